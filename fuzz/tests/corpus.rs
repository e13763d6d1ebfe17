//! Runs all fuzz targets, or those that the arguments name, on the files in `corpus/`, and then on mutations of them.
//! `PAYLOADS` sets the number of mutations. Then runs `forged` with each value of each number, and with random values
//! of two or three.
//!
//! This has no test harness, since the target of the whole module needs a process with one thread, like a server.

use std::fs;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Mutex;

use models::random::Random;
use oxbloom_fuzz::{commands, decoding, forged, forgetting};

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 5] = [
    ("header", decoding::header::header),
    ("file", decoding::file::file),
    ("chunks", decoding::chunks::chunks),
    ("forgetting", forgetting::forgetting),
    ("commands", commands::session::commands),
];

/// The number of mutations for each target, unless `PAYLOADS` sets another.
const MUTATIONS: u64 = 1000;

fn main() {
    let mutations = std::env::var("PAYLOADS").map_or(MUTATIONS, |number| number.parse().expect("a number"));
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    for (target, run) in TARGETS {
        if !named.is_empty() && !named.iter().any(|name| name == target) {
            continue;
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        assert!(!paths.is_empty(), "{} is empty", folder.display());
        paths.sort();
        let files: Vec<_> =
            paths.iter().flat_map(|path| files_of(target, path).into_iter().map(move |file| (path, file))).collect();
        files.iter().for_each(|(path, file)| run_on(run, file, path));
        let mut mutated = Path::new(env!("CARGO_TARGET_TMPDIR")).join(target);
        mutated.set_extension("broken");
        let (files, mut random): (Vec<_>, _) = (files.iter().map(|(_, file)| &**file).collect(), Random(0x0B100));
        for _ in 0..mutations {
            run_on(run, &mutation(&files, &mut random), &mutated);
        }
        println!("{target}: {} files and {mutations} mutations passed", files.len());
    }
    if named.is_empty() || named.iter().any(|name| name == "forged") {
        run_forged(mutations);
    }
}

/// Returns the files that a file stands for, which differ in the first byte: one for a server of each age, or one for
/// each kind that its name has after `kinds-`.
fn files_of(target: &str, path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).expect("a file that can be read");
    let name = path.file_name().expect("a name").to_string_lossy();
    let firsts: Vec<u8> = match name.strip_prefix("kinds-") {
        Some(kinds) => kinds.split('-').map(|kind| kind.parse().expect("a kind")).collect(),
        None if target == "commands" => vec![0, 1],
        None => return vec![file],
    };
    firsts.into_iter().map(|first| [&[first], file.get(1..).unwrap_or(&[])].concat()).collect()
}

/// Runs `forged` with each single edit, and with random scripts. Panics at the end with all failures.
fn run_forged(random_scripts: u64) {
    let mut scripts = forged::single_edits();
    let (singles, mut random) = (scripts.len(), Random(0xF0_46ED));
    for _ in 0..random_scripts {
        let length = 2 + 2 * (2 + random.below(2));
        let mut script: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        script[1] = (length / 2 - 1) as u8;
        // A third has entries, and half of these are composed of random numbers.
        if random.chance(33) {
            script[1] = random.below(2) as u8;
            script.extend([random.next_u64() as u8, random.below(56) as u8]);
            script.extend((0..random.below(300)).map(|_| random.next_u64() as u8));
        }
        scripts.push((format!("script {script:?}"), script));
    }
    static MESSAGE: Mutex<String> = Mutex::new(String::new());
    let hook = take_hook();
    set_hook(Box::new(|panic| *MESSAGE.lock().expect("one thread") = panic.to_string()));
    let mut failures = 0;
    for (name, script) in scripts {
        if catch_unwind(|| forged::forged(&script)).is_err() {
            eprintln!("{name}\n    {}", MESSAGE.lock().expect("one thread"));
            failures += 1;
        }
    }
    set_hook(hook);
    assert!(failures == 0, "forged: {failures} scripts failed");
    println!("forged: {singles} single edits and {random_scripts} random scripts passed");
}

/// Runs a target. If it panics, writes the bytes to `path`, and prints the path.
fn run_on(run: fn(&[u8]), bytes: &[u8], path: &Path) {
    let failed = Failed { bytes, path };
    run(bytes);
    std::mem::forget(failed);
}

/// Returns one of the files with up to four changes. A change flips bits, writes a number, changes the length, or
/// inserts a part of another file.
fn mutation(files: &[&[u8]], random: &mut Random) -> Vec<u8> {
    const NUMBERS: [u64; 6] = [0, 1, 1 << 31, 1 << 40, i64::MAX as u64, u64::MAX];
    const SIZES: [usize; 4] = [1, 2, 4, 8];
    let mut bytes = random.one_of(files).to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        let end = bytes.len().min(at + random.one_of(&SIZES));
        match random.below(6) {
            0 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << random.below(8)),
            1 => bytes[at..end].copy_from_slice(&random.one_of(&NUMBERS).to_le_bytes()[..end - at]),
            2 => bytes[at..end].copy_from_slice(&random.below(300).to_le_bytes()[..end - at]),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..end)),
            _ => {
                let other = random.one_of(files);
                let from = random.below(other.len() as u64 + 1) as usize;
                let length = random.below(64).min((other.len() - from) as u64) as usize;
                bytes.splice(at..end, other[from..from + length].iter().copied());
            }
        }
    }
    bytes
}

/// Writes the bytes on which a target panicked to a file, and prints its path.
struct Failed<'a> {
    bytes: &'a [u8],
    path: &'a Path,
}

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        let kept = fs::write(self.path, self.bytes);
        eprintln!("The target panicked on {} (written: {kept:?})", self.path.display());
    }
}
