//! Runs simulations of several servers from fixed seeds. `SEEDS` sets another number of seeds, or the only ones as in
//! `SEEDS=17..18`.
//!
//! This has no test harness, for the same reason as `corpus.rs`.

use std::ops::Range;
use std::panic::{set_hook, take_hook};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use oxbloom_fuzz::simulation::run;

/// The number of steps from each seed.
const STEPS: u64 = 500;

/// The present seed and step, for the message after a panic.
static SEED: AtomicU64 = AtomicU64::new(0);
static STEP: AtomicU64 = AtomicU64::new(0);

fn main() {
    let seeds = std::env::var("SEEDS").map_or(0..300, |seeds| range(&seeds).expect("a number or a range"));
    let hook = take_hook();
    // A panic in a function of the mock server aborts the process, after the hook.
    set_hook(Box::new(move |panic| {
        let [seed, step] = [&SEED, &STEP].map(|number| number.load(Ordering::Relaxed));
        eprintln!("The simulation failed at step {step} of seed {seed}. Repeat it with SEEDS={seed}..{}", seed + 1);
        hook(panic);
    }));
    let start = Instant::now();
    let mut required = 0;
    for seed in seeds.clone() {
        SEED.store(seed, Ordering::Relaxed);
        let outcome = run(seed, STEPS, &STEP);
        required += outcome.required;
        if seed == seeds.start {
            assert_eq!(run(seed, STEPS, &STEP).hash, outcome.hash, "the same seed had another outcome");
        }
    }
    assert!(required > 0);
    let steps = seeds.count() as u64 * STEPS;
    let per_minute = steps as f64 * 60.0 / start.elapsed().as_secs_f64();
    println!("{steps} steps passed, with {required} items that had to be found: {per_minute:.0} steps a minute");
}

fn range(text: &str) -> Option<Range<u64>> {
    let (first, end) = text.split_once("..").unwrap_or(("0", text));
    Some(first.parse().ok()?..end.parse().ok()?)
}
