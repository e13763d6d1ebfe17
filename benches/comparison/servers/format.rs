//! Formats figures and workloads, for the page and the chart.

use crate::client::CONNECTIONS;
use crate::statistics::Series;
use crate::workloads::{Delivery, Operation, Workload};

/// Describes a workload, without its filter.
pub(crate) fn describe(workload: Workload) -> String {
    let command = workload.command().trim_start_matches("BF.");
    let what = described(workload.operation);
    match workload.delivery {
        Delivery::Batch(items) => format!("{command} × {}, {what}", thousands(items as f64)),
        Delivery::Pipelined => format!("{command}, pipelined, {what}"),
        Delivery::Unpipelined => format!("{command}, {} connections, {what}", CONNECTIONS),
    }
}

/// Describes the items of an operation.
pub(crate) fn described(operation: Operation) -> &'static str {
    match operation {
        Operation::AddNew => "new",
        Operation::AddDuplicate => "duplicate",
        Operation::ExistsHit => "hit",
        Operation::ExistsMiss => "miss",
    }
}

/// Formats the median, and the middle half in brackets.
pub(crate) fn spread(series: &Series) -> String {
    let (low, high) = series.spread();
    format!("{:.0} ({low:.0}–{high:.0})", series.median())
}

/// Formats a time, in a suitable unit.
pub(crate) fn seconds(value: f64) -> String {
    match value {
        value if value >= 1.0 => format!("{value:.2} s"),
        value if value >= 1e-3 => format!("{:.1} ms", value * 1e3),
        value => format!("{:.0} µs", value * 1e6),
    }
}

/// Formats a size, in a suitable unit.
pub(crate) fn bytes(value: f64) -> String {
    match value {
        value if value >= 10e6 => format!("{:.1} MB", value / 1e6),
        value if value >= 10e3 => format!("{:.1} kB", value / 1e3),
        value => format!("{value:.0} B"),
    }
}

/// Formats a whole number, with commas.
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

/// Formats ratios: the least and the greatest, or the only one.
pub(crate) fn range(ratios: &[f64]) -> String {
    let min = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let max = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if ratios.len() == 1 { format!("{max:.2}") } else { format!("{min:.2} to {max:.2}") }
}
