//! Tables of measurements: a row for each quantity, and a column for each contender. Prints them as Markdown.

use std::fmt::Write as _;

/// The measurements of one quantity, in the order of the rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns the median of the ratios to `other` in each round, so that the slowdown of a whole round cancels out.
    pub(crate) fn ratio_to(&self, other: &Series) -> f64 {
        Series(self.0.iter().zip(&other.0).map(|(own, other)| own / other).collect()).median()
    }

    /// Returns a quantile, interpolated linearly; NaN if there are no measurements.
    fn quantile(&self, quantile: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let position = quantile * last as f64;
        let (below, above) = (position.floor() as usize, position.ceil() as usize);
        sorted[below] + (sorted[above] - sorted[below]) * position.fract()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Nanoseconds,
    Seconds,
    Bytes,
    Percent,
    Number,
}

impl Unit {
    /// Formats a value. Nanoseconds, which most tables have, are numbers without a unit.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Unit::Nanoseconds if value < 20.0 => format!("{value:.1}"),
            Unit::Nanoseconds => format!("{value:.0}"),
            Unit::Seconds if value >= 1.0 => format!("{value:.2} s"),
            Unit::Seconds if value >= 1e-3 => format!("{:.1} ms", value * 1e3),
            Unit::Seconds => format!("{:.0} µs", value * 1e6),
            Unit::Bytes if value >= 10e6 => format!("{:.1} MB", value / 1e6),
            Unit::Bytes if value >= 10e3 => format!("{:.1} kB", value / 1e3),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Percent => format!("{value:.3} %"),
            Unit::Number if value >= 999.5e3 => format!("{:.1} million", value / 1e6),
            Unit::Number if value >= 1e3 => format!("{:.0},000", value / 1e3),
            Unit::Number => format!("{value:.2}"),
        }
    }
}

/// A quantity, with the measurements of each contender.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub title: String,
    pub unit: Unit,
    values: Vec<Series>,
}

/// The measurements of one run on one kind of filter.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The name by which `ONLY` chooses the table, and by which a page shows it.
    pub name: String,
    pub title: String,
    /// The names of the columns. The others are compared with the first one.
    contenders: Vec<&'static str>,
    pub rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(name: &str, title: &str, contenders: &[&'static str]) -> Table {
        Table { name: name.to_owned(), title: title.to_owned(), contenders: contenders.to_vec(), rows: Vec::new() }
    }

    /// Adds the measurement of a round to a row, which is created with its first measurement.
    pub(crate) fn push(&mut self, title: &str, unit: Unit, contender: &str, value: f64) {
        let row = self.rows.iter().position(|row| row.title == title).unwrap_or_else(|| {
            let values = vec![Series::default(); self.contenders.len()];
            self.rows.push(Row { title: title.to_owned(), unit, values });
            self.rows.len() - 1
        });
        let column = self.column(contender).expect("a contender of the table");
        self.rows[row].values[column].0.push(value);
    }

    fn column(&self, contender: &str) -> Option<usize> {
        self.contenders.iter().position(|name| *name == contender)
    }

    /// Returns the measurements of a contender, if it has been measured.
    pub(crate) fn series<'a>(&self, row: &'a Row, contender: &str) -> Option<&'a Series> {
        Some(&row.values[self.column(contender)?]).filter(|series| !series.0.is_empty())
    }

    /// Returns the table. If it has more columns than rows, its contenders are the rows.
    pub(crate) fn markdown(&self) -> String {
        let names = [""].iter().chain(&self.contenders).map(|name| (*name).to_owned()).collect();
        let mut cells: Vec<Vec<String>> = vec![names];
        cells.extend(self.rows.iter().map(|row| {
            let values = row.values.iter().map(|series| row.cell(series));
            [row.title.clone()].into_iter().chain(values).collect()
        }));
        if cells[0].len() > cells.len() {
            cells = (0..cells[0].len()).map(|at| cells.iter().map(|row| row[at].clone()).collect()).collect();
        }
        let mut page = String::new();
        for (index, row) in cells.iter().enumerate() {
            let _ = writeln!(page, "| {} |", row.join(" | "));
            if index == 0 {
                let _ = writeln!(page, "|---|{}", "--:|".repeat(row.len() - 1));
            }
        }
        page
    }
}

impl Row {
    /// Returns the median, the middle half in brackets if it varies, and the ratio to the first contender.
    fn cell(&self, series: &Series) -> String {
        if series.0.is_empty() {
            return String::new();
        }
        let mut cell = self.unit.format(series.median());
        if self.unit == Unit::Nanoseconds {
            let [low, high] = [0.25, 0.75].map(|quantile| self.unit.format(series.quantile(quantile)));
            let _ = write!(cell, " ({low}–{high})");
        }
        let first = &self.values[0];
        if !std::ptr::eq(first, series) && !first.0.is_empty() && self.unit != Unit::Percent {
            let _ = write!(cell, ", {:.2}", series.ratio_to(first));
        }
        cell
    }
}
