
/// Chooses a mutant. tools/mutants.py appends this to the root of a crate.
mod mutants {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    /// The number of mutants, plus one.
    const COUNT: usize = 0;
    const UNKNOWN: usize = usize::MAX - 1;
    const RECORDING: usize = usize::MAX;
    static CHOSEN: AtomicUsize = AtomicUsize::new(UNKNOWN);
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    /// Returns the chosen arm of a function whose arms have the numbers from `first` on, or 0 if none of them is chosen.
    pub(crate) fn chosen(first: usize, arms: usize) -> usize {
        let chosen = CHOSEN.load(Relaxed);
        let chosen = if chosen < UNKNOWN { chosen } else { choose_or_record(first) };
        if chosen.wrapping_sub(first) < arms { chosen - first + 1 } else { 0 }
    }

    /// Reads the number of a mutant from `MUTANT`. If that is a path, appends each function that is called to a file.
    #[cold]
    fn choose_or_record(first: usize) -> usize {
        if CHOSEN.load(Relaxed) == UNKNOWN {
            // Reading a variable allocates, and an allocation may call this.
            CHOSEN.store(0, Relaxed);
            let mutant = std::env::var("MUTANT").unwrap_or("0".to_owned());
            CHOSEN.store(mutant.parse().unwrap_or(RECORDING), Relaxed);
        }
        let chosen = CHOSEN.load(Relaxed);
        if chosen == RECORDING && !REACHED[first].swap(true, Relaxed) {
            let path = std::env::var("MUTANT").expect("a path");
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            file.and_then(|mut file| file.write_all(format!("{first}\n").as_bytes())).expect("a file");
        }
        chosen
    }
}
