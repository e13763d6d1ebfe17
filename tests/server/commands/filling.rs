//! Filters that tests fill with numbers, and their contents.

use testkit::wire::{Reply, Wire};

pub(crate) fn add_numbers(client: &mut Wire, key: &str, count: usize) {
    let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
    for numbers in numbers.chunks(1000) {
        let words: Vec<_> = ["BF.MADD", key].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        assert!(!client.run_words(&words).is_error());
    }
}

/// Returns the contents of a key, for comparison.
pub(crate) fn dump(client: &mut Wire, key: &str) -> Reply {
    client.run(&format!("DUMP {key}"))
}
