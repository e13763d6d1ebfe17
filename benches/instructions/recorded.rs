//! The recorded costs, in a table that people can review when it changes.
//!
//! ```text
//!  # rustc 1.95.0 (59807616e 2026-04-14)
//!  # instructions, calls out of our code, workload
//!        295.22      0.062  insert, 1 %
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::Cost;

pub(crate) const FILE: &str = "benches/instructions/recorded.txt";
pub(crate) const FILE_FOR_AARCH64: &str = "benches/instructions/recorded-aarch64.txt";

pub(crate) struct Recorded {
    /// The path of the file in the repository.
    pub file: &'static str,
    pub compiler: String,
    costs: Vec<(String, Cost)>,
}

impl Recorded {
    /// Reads a file. Returns no costs if it does not exist.
    pub(crate) fn read(file: &'static str) -> Recorded {
        let text = fs::read_to_string(path(file)).unwrap_or_default();
        let compiler = text.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let costs = lines.map(|line| parse(line).unwrap_or_else(|| panic!("{file} has a bad line: {line}"))).collect();
        Recorded { file, compiler, costs }
    }

    /// Writes other costs to the file.
    pub(crate) fn replace(&self, compiler: &str, costs: &[(&str, Cost)]) {
        let mut text = format!("# {compiler}\n# instructions, calls out of our code, workload\n");
        for (workload, Cost { instructions, calls }) in costs {
            let _ = writeln!(text, "{instructions:>12.2} {calls:>10.3}  {workload}");
        }
        fs::write(path(self.file), &text).unwrap_or_else(|error| panic!("{} cannot be written: {error}", self.file));
    }

    pub(crate) fn cost(&self, workload: &str) -> Option<Cost> {
        self.costs.iter().find(|(name, _)| name == workload).map(|&(_, cost)| cost)
    }

    pub(crate) fn len(&self) -> usize {
        self.costs.len()
    }
}

fn parse(line: &str) -> Option<(String, Cost)> {
    let (instructions, line) = line.trim_start().split_once(' ')?;
    let (calls, workload) = line.trim_start().split_once(' ')?;
    let cost = Cost { instructions: instructions.parse().ok()?, calls: calls.parse().ok()? };
    Some((workload.trim_start().to_owned(), cost))
}

fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), file].iter().collect()
}
