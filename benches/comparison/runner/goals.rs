//! The goals, and the table that compares them with the measurements.

use std::fmt::Write as _;

use crate::table::{Row, Table};

/// The maximum of a contender's figures in some rows of some tables.
struct Goal {
    /// The names of tables. Their tables of other lengths are meant, too.
    tables: &'static str,
    rows: Rows,
    /// The part of the rows' titles after the colon, or the end of titles that have none. If empty, any.
    quantity: &'static str,
    contender: &'static str,
    /// The contender that it is divided by. If empty, the figure itself is meant.
    other: &'static str,
    at_most: f64,
}

/// A name for rows. The title of each row has one of the parts.
type Rows = (&'static str, &'static [&'static str]);

const ONE: Rows = ("one item in a command", &["pipelined", "50 connections"]);
const MANY: Rows = ("100 or 1,000 items in a command", &["× 100,", "× 1,000,"]);
const ADDITIONS: Rows = ("additions, 1,000 in a command", &["MADD × 1,000, new", "INSERT × 1,000"]);
const LOOKUPS: Rows = ("look-ups, 1,000 in a command", &["MEXISTS × 1,000"]);
const ONE_LOOKUP: Rows = ("look-ups, one in a command", &["EXISTS, pipelined"]);
const CHANGES: Rows = ("CF.ADD and CF.DEL", &["CF.ADD, pipelined", "CF.DEL, pipelined"]);
const NEW: Rows = ("packed additions", &["new"]);
const FOUND: Rows = ("packed look-ups", &["hit", "miss"]);

const AT_7: &[&str] = &["10^7 at 1 %: insert", "10^7 at 1 %: hit", "10^7 at 1 %: miss"];
const AT_8: &[&str] = &["10^8 at 1 %: insert", "10^8 at 1 %: hit", "10^8 at 1 %: miss"];

const BLOOM: &str = "RedisBloom";
const OURS: &str = "oxbloom";
const CLASSIC: &str = "oxbloom, classic";
const UNPACKED: &str = "RedisBloom × 1,000";
const FIXED: &str = "FIXED × 10,000";
const COUNTING: &str = "counting, FIXED × 10,000";
const WINDOWED: &str = "windowed, FIXED × 10,000";
const FASTBLOOM: &str = "fastbloom, foldhash";

const ON_SERVERS: &str =
    "small large huge grown grown-large redis-8.2-small redis-8.2-large valkey-9.1-small valkey-9.1-large";

const fn goal(
    tables: &'static str,
    rows: Rows,
    quantity: &'static str,
    contender: &'static str,
    other: &'static str,
    at_most: f64,
) -> Goal {
    Goal { tables, rows, quantity, contender, other, at_most }
}

#[rustfmt::skip]
const GOALS: &[Goal] = &[
    goal(ON_SERVERS, ONE, "CPU", OURS, BLOOM, 1.0),
    goal("large", ("one item in a command, pipelined", &["pipelined"]), "CPU", OURS, BLOOM, 0.74),
    goal("large huge redis-8.2-large valkey-9.1-large", MANY, "CPU", OURS, BLOOM, 0.4),
    goal("small grown grown-large redis-8.2-small valkey-9.1-small", MANY, "CPU", OURS, BLOOM, 0.67),
    goal("large huge", MANY, "command", OURS, BLOOM, 0.2),
    goal("small", MANY, "command", OURS, BLOOM, 0.4),
    goal("large", MANY, "CPU", OURS, "floor", 1.6),
    goal("small", MANY, "CPU", OURS, "floor", 1.25),
    goal("large", LOOKUPS, "command", CLASSIC, BLOOM, 0.5),
    goal("grown", ("hits, 1,000 in a command", &["MEXISTS × 1,000, hit"]), "command", OURS, BLOOM, 0.25),
    goal("grown", ("misses, 1,000 in a command", &["MEXISTS × 1,000, miss"]), "command", OURS, BLOOM, 0.15),
    goal("grown grown-large", ADDITIONS, "command", OURS, BLOOM, 0.35),
    goal("packed", NEW, "CPU", FIXED, UNPACKED, 0.09),
    goal("packed", FOUND, "CPU", FIXED, UNPACKED, 0.09),
    goal("packed-small", NEW, "CPU", FIXED, UNPACKED, 0.15),
    goal("packed-small", FOUND, "CPU", FIXED, UNPACKED, 0.12),
    goal("packed-urls", NEW, "CPU", "LINES × 10,000", UNPACKED, 0.15),
    goal("packed-urls", FOUND, "CPU", "LINES × 10,000", UNPACKED, 0.13),
    goal("packed redis-8.2-packed", NEW, "CPU", COUNTING, UNPACKED, 0.45),
    goal("packed redis-8.2-packed", FOUND, "CPU", COUNTING, UNPACKED, 0.2),
    goal("packed redis-8.2-packed", NEW, "CPU", WINDOWED, UNPACKED, 0.45),
    goal("packed redis-8.2-packed", FOUND, "CPU", WINDOWED, UNPACKED, 0.2),
    goal("packed-small redis-8.2-packed-small", NEW, "CPU", COUNTING, UNPACKED, 0.5),
    goal("packed-small redis-8.2-packed-small", FOUND, "CPU", COUNTING, UNPACKED, 0.22),
    goal("packed-small redis-8.2-packed-small", NEW, "CPU", WINDOWED, UNPACKED, 0.5),
    goal("packed-small redis-8.2-packed-small", FOUND, "CPU", WINDOWED, UNPACKED, 0.22),
    goal("windows redis-8.2-windows", ADDITIONS, "command", "WINDOW", BLOOM, 0.5),
    goal("windows", ADDITIONS, "command", "ROLLING", BLOOM, 0.5),
    goal("windows redis-8.2-windows", LOOKUPS, "command", "WINDOW", "plain", 2.5),
    goal("windows redis-8.2-windows", ONE_LOOKUP, "CPU", "WINDOW", "plain", 1.25),
    goal("windows", ("the longest command", &["MADD"]), "longest command", "WINDOW", "", 0.002),
    goal("three-filters", ("all", &[""]), "CPU", "oxbloom, one filter", "RedisBloom, three filters, a script", 0.25),
    goal("three-filters", ("memory", &["MEMORY"]), "", "oxbloom, one filter", "RedisBloom, three filters, a script", 1.0),
    goal("cuckoo-small redis-8.2-cuckoo-small", CHANGES, "CPU", OURS, BLOOM, 1.0),
    goal("cuckoo redis-8.2-cuckoo", CHANGES, "CPU", OURS, BLOOM, 0.9),
    goal("cuckoo-small cuckoo redis-8.2-cuckoo-small redis-8.2-cuckoo", ADDITIONS, "command", OURS, BLOOM, 0.75),
    goal("cuckoo-small cuckoo", LOOKUPS, "command", CLASSIC, BLOOM, 0.5),
    goal("others redis-8.2-others", ("GET, SET, HGET", &[""]), "CPU", "oxbloom", "no module", 1.0),
    goal("others redis-8.2-others", ("GET, SET, HGET", &[""]), "CPU", "oxbloom, a large filter", "no module", 1.0),
    goal("memory", ("a small filter", &["used_memory"]), "", OURS, BLOOM, 1.0),
    goal("memory", ("reserved", &["USAGE, 10^", "USAGE, 6"]), "", OURS, BLOOM, 1.0),
    goal("memory", ("grown", &["USAGE, grown"]), "", OURS, BLOOM, 0.6),
    goal("memory", ("grown, resident", &["resident memory, grown"]), "", OURS, BLOOM, 0.6),
    goal("memory-counting", ("fixed", &["NONSCALING"]), "", "counting", "plain, NONSCALING", 1.15),
    goal("memory-counting", ("grown", &["grown"]), "", "counting", "plain, NONSCALING", 1.8),
    goal("growing", ("the longest pause", &[""]), "", OURS, "", 0.002),
    goal("saving", ("SAVE and BGSAVE", &["SAVE"]), "SAVE", OURS, BLOOM, 1.0),
    goal("saving", ("loading", &["loading"]), "loading", OURS, BLOOM, 1.0),
    goal("saving", ("peak memory of the child", &["peak memory of the child"]), "", OURS, BLOOM, 1.0),
    goal("replication", ("BF.ADD, BF.MADD", &["BF.ADD,", "BF.MADD"]), "", OURS, BLOOM, 0.3),
    goal("replication", ("BF.ADDPACKED", &["BF.ADDPACKED"]), "", OURS, BLOOM, 0.2),
    goal("merging", ("into one of two", &["of two, into one"]), "", OURS, "a loop over memory", 1.5),
    goal("library", ("hits at 10^8, one by one", &["10^8 at 1 %: hit"]), "", "oxbloom, one by one", FASTBLOOM, 1.0),
    goal("library", ("at 10^7", AT_7), "", "oxbloom, batches", FASTBLOOM, 1.0),
    goal("library", ("at 10^8", AT_8), "", "oxbloom, batches", FASTBLOOM, 1.0),
    goal("library", ("bits an item", &["bits an item"]), "", "oxbloom, batches", FASTBLOOM, 1.03),
    goal("library-tables", ("additions, nanoseconds", &["add"]), "", "counting", "", 52.0),
    goal("library-tables", ("additions, nanoseconds", &["add"]), "", "windowed", "", 78.0),
];

impl Goal {
    /// Returns the figure of a row, if the row is one of the goal's.
    fn figure(&self, table: &Table, row: &Row) -> Option<f64> {
        let is_of_quantity = match row.title.split_once(": ") {
            Some((_, quantity)) => self.quantity.is_empty() || quantity == self.quantity,
            None => row.title.ends_with(self.quantity),
        };
        let is_meant = is_of_quantity && self.rows.1.iter().any(|part| row.title.contains(part));
        let own = table.series(row, self.contender).filter(|_| is_meant)?;
        match self.other {
            "" => Some(own.median()),
            other => Some(own.ratio_to(table.series(row, other)?)),
        }
    }

    /// Returns the row of a table's goal, if it was measured.
    fn markdown(&self, name: &str, tables: &[Table]) -> Option<String> {
        let is_meant = |table: &&Table| table.name == name || table.name.starts_with(&format!("{name}/"));
        let tables: Vec<&Table> = tables.iter().filter(is_meant).collect();
        let rows = tables.iter().flat_map(|table| table.rows.iter().map(move |row| (*table, row)));
        let (units, mut figures): (Vec<_>, Vec<f64>) =
            rows.filter_map(|(table, row)| Some((row.unit, self.figure(table, row)?))).unzip();
        figures.sort_by(f64::total_cmp);
        let (unit, least, most) = (units.first()?, *figures.first()?, *figures.last()?);
        let (format, divided): (&dyn Fn(f64) -> String, _) = match self.other {
            "" => (&|value| unit.format(value), String::new()),
            other => (&|value| format!("{value:.2}"), format!(" / {other}")),
        };
        let measured = if figures.len() == 1 { format(most) } else { format!("{} to {}", format(least), format(most)) };
        // Figures are compared as they are printed.
        let is_met = most < self.at_most || format(most) == format(self.at_most);
        let verdict = if is_met { "met" } else { "**missed**" };
        let quantity = if self.quantity.is_empty() { String::new() } else { format!(", {}", self.quantity) };
        let (title, what, contender) = (&tables[0].title, self.rows.0, self.contender);
        let goal = format(self.at_most);
        Some(format!("| {what} | {title} | {contender}{divided}{quantity} | {measured} | {goal} | {verdict} |"))
    }
}

/// Returns a row for each goal that has measurements.
pub(crate) fn markdown(tables: &[Table]) -> String {
    let mut page = "| | table | figure | measured | goal | |\n|---|---|---|--:|--:|---|\n".to_owned();
    for goal in GOALS {
        for row in goal.tables.split(' ').filter_map(|name| goal.markdown(name, tables)) {
            let _ = writeln!(page, "{row}");
        }
    }
    page
}
