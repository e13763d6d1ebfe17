//! Soak tests, of any length: many clients that run all commands, active defragmentation of many filters, additions to
//! and removals from counting filters, and additions to filters that forget.
//!
//! ```text
//! make test-soak SECONDS=3600 FILTERS=10000000 OPERATIONS=100000000 SEED=1
//! ```

mod clients;
mod defragmentation;
mod removals;
mod windows;

use std::time::{Duration, Instant};

use models::random::Random;

const USAGE: &str =
    "clients SECONDS [SEED], defragmentation FILTERS [SEED], removals OPERATIONS [SEED], or windows OPERATIONS [SEED]";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (what, numbers) = arguments.split_first().expect(USAGE);
    let numbers: Vec<u64> = numbers.iter().map(|number| number.parse().expect(USAGE)).collect();
    let (amount, random) = match numbers[..] {
        [amount] => (amount, Random::unpredictable()),
        [amount, seed] => (amount, Random(seed)),
        _ => panic!("{USAGE}"),
    };
    let started = Instant::now();
    match what.as_str() {
        "clients" => clients::soak(Duration::from_secs(amount), random),
        "defragmentation" => defragmentation::soak(amount, random),
        "removals" => removals::soak(amount, random),
        "windows" => windows::soak(amount, random),
        _ => panic!("{USAGE}"),
    }
    println!("No errors in {} seconds.", started.elapsed().as_secs());
}
