//! Runs qemu with the plugin that counts, and reads its counts.

use std::process::Output;

use super::callgrind::Counts;

/// Returns the command prefix that counts a program for aarch64. The processor and the libraries are in the environment
/// (`QEMU_CPU`, `QEMU_LD_PREFIX`).
pub(crate) fn prefix() -> Vec<String> {
    let counter = testkit::instruction_counter();
    ["qemu-aarch64", "-plugin", counter.to_str().expect("a path in UTF-8")].map(str::to_owned).into()
}

/// Returns the counts of a program that has run with [`prefix`].
pub(crate) fn counts(output: &Output) -> Counts {
    let line = String::from_utf8_lossy(&output.stderr);
    let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or_else(|| panic!("not what the plugin writes: {line}"));
    Counts { instructions: next(), calls: next() }
}
