//! Runs qemu with the plugin that counts, and reads its counts.

use std::fs;
use std::path::Path;

use super::callgrind::Counts;

/// Returns the command prefix that counts one object file of a program for aarch64. The processor and the libraries are
/// in the environment (`QEMU_CPU`, `QEMU_LD_PREFIX`).
pub(crate) fn prefix(object: &Path, counts: &Path) -> Vec<String> {
    let counter = testkit::instruction_counter();
    let plugin = format!("{},object={},counts={}", counter.display(), object.display(), counts.display());
    ["qemu-aarch64", "-plugin", &plugin].map(str::to_owned).into()
}

/// Returns the counts that the plugin wrote last.
pub(crate) fn counts(file: &Path) -> Counts {
    let text = fs::read_to_string(file).expect("the plugin's counts");
    let numbers = text.lines().last().and_then(|line| line.split_once(' '));
    let number = |text: &str| text.parse().ok();
    let counts = numbers.and_then(|(instructions, calls)| Some((number(instructions)?, number(calls)?)));
    let (instructions, calls) = counts.unwrap_or_else(|| panic!("not what the plugin writes: {text}"));
    Counts { instructions, calls }
}
