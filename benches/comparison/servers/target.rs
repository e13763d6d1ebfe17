//! A target of oxbloom with its results, and the page `targets.md`.

use std::fmt::Write as _;

use crate::format::range;

/// A target, and its results.
pub(crate) struct Target {
    pub title: String,
    /// The maximum ratio of oxbloom's value to the other's.
    pub at_most: f64,
    /// The ratio in each workload of the target.
    pub measured: Vec<f64>,
}

impl Target {
    /// Returns true if the target is met. Ratios are printed and compared with two digits.
    fn is_met(&self) -> bool {
        self.measured.iter().all(|ratio| *ratio < self.at_most + 0.005)
    }
}

/// Returns the page of targets and results.
pub(crate) fn page(targets: &[Target]) -> String {
    format!(
        "# Targets\n\n\
         `make bench` writes this page, together with [the benchmarks](../../docs/benchmarks.md). It is for those who work on oxbloom: \
         before they optimised it, they set these targets. [Performance](performance.md#what-is-missed-and-why) explains \
         why some of them are missed.\n\n\
         Each figure is a ratio, unless its title says milliseconds: what oxbloom takes, divided by what the other takes. \
         A range covers all commands and all lengths of items of the target. *Floor* and *command time* are explained \
         [with the benchmarks](../../docs/benchmarks.md#how-we-measured).\n\n{}",
        table(targets),
    )
}

/// Returns the table of targets and results.
pub(crate) fn table(targets: &[Target]) -> String {
    let mut table = "| target | at most | measured | |\n|---|--:|--:|---|\n".to_owned();
    for target in targets {
        let verdict = if target.is_met() { "met" } else { "**missed**" };
        let _ =
            writeln!(table, "| {} | {:.2} | {} | {verdict} |", target.title, target.at_most, range(&target.measured));
    }
    table
}
