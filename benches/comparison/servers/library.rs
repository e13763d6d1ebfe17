//! Reads the results of `cargo bench -p oxbloom-comparison --bench filter`, which compares the library with
//! `fastbloom`.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// A result of one library.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub library: String,
    pub operation: String,
    pub capacity: u64,
    pub error_rate: f64,
    /// The median.
    pub nanoseconds: f64,
    /// The confidence interval of the median.
    pub lower: f64,
    pub upper: f64,
    pub bits_per_item: f64,
    /// The rate measured with items that were never inserted.
    pub false_positive_rate: f64,
}

/// Returns the rows of the last run, or none if there was no run.
pub(crate) fn rows(target: &Path) -> Vec<Row> {
    let Ok(text) = fs::read_to_string(target.join("criterion/filter.json")) else { return Vec::new() };
    let rows: Vec<Value> = serde_json::from_str(&text).expect("results of the other benchmark");
    let text = |row: &Value, name: &str| row[name].as_str().expect("a string").to_owned();
    let number = |row: &Value, name: &str| row[name].as_f64().expect("a number");
    let row = |row: &Value| Row {
        library: text(row, "library"),
        operation: text(row, "operation"),
        capacity: number(row, "capacity") as u64,
        error_rate: number(row, "error_rate"),
        nanoseconds: number(row, "nanoseconds"),
        lower: number(row, "lower"),
        upper: number(row, "upper"),
        bits_per_item: number(row, "bits_per_item"),
        false_positive_rate: number(row, "false_positive_rate"),
    };
    rows.iter().map(row).collect()
}

/// Returns the row of another library for the same operation on a filter of the same size and error rate.
pub(crate) fn peer<'a>(rows: &'a [Row], row: &Row, library: &str) -> Option<&'a Row> {
    rows.iter().find(|other| {
        other.library == library
            && other.operation == row.operation
            && other.capacity == row.capacity
            && other.error_rate == row.error_rate
    })
}
