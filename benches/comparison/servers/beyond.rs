//! Measures features that RedisBloom lacks: counting filters, compared with plain ones, and merges, compared with a
//! loop over memory.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use crate::client::{self, longest_pause, timed};
use crate::format::{seconds, spread, thousands};
use crate::peers::{Instance, Peer};
use crate::requests::{ABSENT, Requests, some_of};
use crate::statistics::Series;
use crate::target::Target;
use crate::workloads::fill;
use models::random::Random;
use testkit::ask;

/// The length of an item, that of a typical URL.
const LENGTH: usize = 28;
/// The number of items of a command.
const BATCH: usize = 1000;

/// The kinds of filters: key and parameter.
const KINDS: [(&str, &str); 2] = [("plain", ""), ("counting", "COUNTING")];

/// The extent of the measurements.
struct Scale {
    /// The filters for operations on items, at 1 %: their capacity, its text, and the number of items in them.
    counted: (u64, &'static str, u64),
    /// The sizes to which counting filters grow from the defaults.
    grown: &'static [u64],
    /// The number of items of a measurement.
    items: u64,
    /// The filters that are merged, at 1 %: their capacity, the text of their size, and a number of items that touch
    /// nearly all pages.
    merged: (u64, &'static str, u64),
    rounds: usize,
}

const FULL: Scale = Scale {
    counted: (100_000_000, "10^8", 10_000_000),
    grown: &[10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000],
    items: 200_000,
    merged: (750_000_000, "1 GB", 2_000_000),
    rounds: 7,
};

const QUICK: Scale = Scale {
    counted: (10_000_000, "10^7", 1_000_000),
    grown: &[10_000, 100_000, 1_000_000],
    items: 100_000,
    merged: (75_000_000, "100 MB", 200_000),
    rounds: 3,
};

/// The titles of merges that the summary mentions.
pub(crate) const UNION_INTO_ONE: &str = "union of two, into one of them";
pub(crate) const UNION_INTO_NEW: &str = "union of two, into a new one";
pub(crate) const UNION_OF_COUNTING: &str = "union of two counting filters, into one of them";

/// The results.
pub(crate) struct Beyond {
    filter: String,
    /// The memory of counting filters: a title, MEMORY USAGE of a plain fixed filter, and of the counting one.
    memory: Vec<(String, [f64; 2])>,
    /// The operations on items: a title, and the command time in nanoseconds per item, for each of [`KINDS`].
    items: Vec<(&'static str, [Series; 2])>,
    /// The size of the filters that are merged.
    pub size: &'static str,
    /// The number of items in each of them.
    pub touching: u64,
    /// The merges: a title, the time, and the longest wait of another client, in seconds.
    merges: Vec<(&'static str, [Series; 2])>,
    /// The time of a loop with the same reads and writes as a union into one of two filters.
    loop_over_memory: Series,
}

pub(crate) fn measure(quick: bool) -> Beyond {
    let scale = if quick { &QUICK } else { &FULL };
    let loop_over_memory = loop_over_memory(scale);
    Beyond {
        filter: format!("{} at 1 %", scale.counted.1),
        memory: memory(scale),
        items: items(scale),
        size: scale.merged.1,
        touching: scale.merged.2,
        merges: merges(scale),
        loop_over_memory,
    }
}

/// The key of the filter that is measured.
const MEASURED: &str = "measured";

/// The titles of counting filters of fixed size.
const FIXED: [&str; 2] = ["10^6 at 1 %, NONSCALING", "10^6 at 0.1 %, NONSCALING"];

fn memory(scale: &Scale) -> Vec<(String, [f64; 2])> {
    const MILLION: u64 = 1_000_000;
    let mut instance = Instance::start(Peer::Oxbloom, Peer::Oxbloom.setup());
    let mut rows = Vec::new();
    for (title, error_rate) in FIXED.into_iter().zip(["0.01", "0.001"]) {
        let plain = memory_usage(&mut instance, &format!("{error_rate} {MILLION} NONSCALING"), 0);
        let counting = memory_usage(&mut instance, &format!("{error_rate} {MILLION} NONSCALING COUNTING"), MILLION);
        rows.push((title.to_owned(), [plain, counting]));
    }
    for &items in scale.grown {
        let plain = memory_usage(&mut instance, &format!("0.01 {items} NONSCALING"), 0);
        let counting = memory_usage(&mut instance, "0.01 100 COUNTING", items);
        rows.push((format!("grown from 100 to {items} at 1 %"), [plain, counting]));
    }
    rows
}

/// Returns the MEMORY USAGE of a filter with `items` items.
fn memory_usage(instance: &mut Instance, parameters: &str, items: u64) -> f64 {
    let _: String = ask(&mut instance.connection, &format!("BF.RESERVE {MEASURED} {parameters}"));
    fill(instance.address(), MEASURED, LENGTH, 0..items);
    let bytes: u64 = ask(&mut instance.connection, &format!("MEMORY USAGE {MEASURED}"));
    assert_eq!(ask::<i64>(&mut instance.connection, &format!("DEL {MEASURED}")), 1);
    bytes as f64
}

fn items(scale: &Scale) -> Vec<(&'static str, [Series; 2])> {
    let mut instance = Instance::start(Peer::Oxbloom, Peer::Oxbloom.setup());
    let (capacity, _, filled) = scale.counted;
    for (key, parameter) in KINDS {
        let _: String = ask(&mut instance.connection, &format!("BF.RESERVE {key} 0.01 {capacity} {parameter}"));
        fill(instance.address(), key, LENGTH, 0..filled);
    }
    let mut rows: Vec<(&str, [Series; 2])> = Vec::new();
    let mut random = Random(filled);
    for round in 0..scale.rounds as u64 {
        let new = filled + round * scale.items..filled + (round + 1) * scale.items;
        let [hits, misses] =
            [0..filled, ABSENT].map(|range| some_of(range, scale.items, random.below(u64::MAX)).collect::<Vec<_>>());
        let steps = [
            ("BF.MADD × 1,000, new", "BF.MADD", new.clone().collect()),
            ("BF.MADD × 1,000, there already", "BF.MADD", new.clone().collect()),
            ("BF.MEXISTS × 1,000, hit", "BF.MEXISTS", hits.clone()),
            ("BF.MCOUNT × 1,000, hit", "BF.MCOUNT", hits),
            ("BF.MEXISTS × 1,000, miss", "BF.MEXISTS", misses),
            ("BF.MDEL × 1,000, added twice", "BF.MDEL", new.clone().collect()),
            ("BF.MDEL × 1,000, added once", "BF.MDEL", new.collect::<Vec<_>>()),
        ];
        for (index, (title, command, numbers)) in steps.into_iter().enumerate() {
            if rows.len() == index {
                rows.push((title, <[Series; 2]>::default()));
            }
            for (kind, (key, _)) in KINDS.into_iter().enumerate() {
                if !matches!(command, "BF.MDEL" | "BF.MCOUNT") || key == "counting" {
                    let requests = Requests::batches(&[command, key], LENGTH, BATCH, numbers.iter().copied());
                    rows[index].1[kind].push(command_time(&mut instance, command, &requests));
                }
            }
        }
    }
    rows
}

/// Returns the command time in nanoseconds per item.
fn command_time(instance: &mut Instance, command: &str, requests: &Requests) -> f64 {
    let before = instance.command_time(command);
    let outcome = client::pipelined(instance.address(), requests);
    assert!(command != "BF.MDEL" || outcome.ones == requests.items(), "an added item was not removed");
    (instance.command_time(command) - before) as f64 / requests.items() as f64
}

fn merges(scale: &Scale) -> Vec<(&'static str, [Series; 2])> {
    let mut instance = Instance::start(Peer::Oxbloom, Peer::Oxbloom.setup());
    let (capacity, _, touching) = scale.merged;
    let _: String = ask(&mut instance.connection, "CONFIG SET bf.merge-limit 0");
    for (one, other, parameter) in [("a", "b", ""), ("c", "d", "COUNTING")] {
        let connection = &mut instance.connection;
        let _: String = ask(connection, &format!("BF.RESERVE {one} 0.01 {capacity} NONSCALING {parameter}"));
        let _: String = ask(connection, &format!("BF.RESERVE {other} LIKE {one}"));
        fill(instance.address(), one, LENGTH, 0..touching);
        fill(instance.address(), other, LENGTH, touching / 2..touching / 2 + touching);
    }
    let steps = [
        (UNION_INTO_ONE, "COPY a t", "BF.MERGE t 1 b"),
        ("intersection of two, into one of them", "COPY a t", "BF.MERGE t 1 b INTERSECT"),
        (UNION_INTO_NEW, "EXISTS a", "BF.MERGE t 2 a b"),
        (UNION_OF_COUNTING, "COPY c t", "BF.MERGE t 1 d"),
    ];
    let mut rows = steps.map(|(title, ..)| (title, <[Series; 2]>::default()));
    for _ in 0..scale.rounds {
        for ((_, series), (_, before, merge)) in rows.iter_mut().zip(steps) {
            assert_eq!(ask::<i64>(&mut instance.connection, before), 1);
            let address = instance.address();
            let (elapsed, pause) = longest_pause(address, || {
                assert_eq!(ask::<String>(&mut instance.connection, merge), "OK");
            });
            series[0].push(elapsed.as_secs_f64());
            series[1].push(pause.as_secs_f64());
            assert_eq!(ask::<i64>(&mut instance.connection, "UNLINK t"), 1);
        }
    }
    rows.into()
}

/// Measures a loop that ORs one array into another. Both are as large as the merged filters.
fn loop_over_memory(scale: &Scale) -> Series {
    let words = scale.merged.0 as usize * 10 / 64;
    let (mut target, source) = (vec![1u64; words], vec![2u64; words]);
    let mut series = Series::default();
    for _ in 0..scale.rounds {
        let elapsed: Duration = timed(|| {
            target.iter_mut().zip(&source).for_each(|(target, source)| *target |= source);
            black_box(&mut target);
        });
        series.push(elapsed.as_secs_f64());
    }
    series
}

impl Beyond {
    /// Returns the time of a merge, given its title.
    pub(crate) fn time_of_merge(&self, title: &str) -> &Series {
        let (_, [time, _]) = self.merges.iter().find(|(merge, _)| *merge == title).expect("a measured merge");
        time
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        let time = self.time_of_merge(UNION_INTO_ONE);
        let title =
            format!("BF.MERGE of two filters of {} into one of them: time, relative to a loop over memory", self.size);
        let ratio = |(_, [plain, counting]): &(String, [f64; 2])| counting / plain;
        let (fixed, grown) = self.memory.split_at(FIXED.len());
        let average = grown.iter().map(ratio).sum::<f64>() / grown.len() as f64;
        let mut targets =
            vec![Target { title, at_most: 1.5, measured: vec![time.median() / self.loop_over_memory.median()] }];
        for (row, at_most) in fixed.iter().zip([1.15, 1.0]) {
            let title = format!("MEMORY USAGE of a counting filter, {}, relative to a plain one", row.0);
            targets.push(Target { title, at_most, measured: vec![ratio(row)] });
        }
        let title = "MEMORY USAGE of counting filters that grow, relative to plain fixed ones, average".to_owned();
        targets.push(Target { title, at_most: 1.8, measured: vec![average] });
        targets
    }

    pub(crate) fn markdown(&self) -> String {
        let mut page = format!(
            "## Counting filters, {}\n\nThe command time, in nanoseconds an item of {LENGTH} bytes:\n\n\
             | | plain | counting | ratio |\n|---|--:|--:|--:|\n",
            self.filter
        );
        for (title, [plain, counting]) in &self.items {
            let (of_plain, ratio) = match plain.is_empty() {
                true => ("not supported".to_owned(), String::new()),
                false => (spread(plain), format!("{:.2}", counting.median() / plain.median())),
            };
            let _ = writeln!(page, "| {title} | {of_plain} | {} | {ratio} |", spread(counting));
        }
        page += "\n| MEMORY USAGE | plain, NONSCALING | counting | ratio |\n|---|--:|--:|--:|\n";
        for (title, [plain, counting]) in &self.memory {
            let _ = writeln!(page, "| {title} | {plain} | {counting} | {:.2} |", counting / plain);
        }
        let _ = write!(
            page,
            "\n## Merging filters of {}\n\n\
             Each holds {} items, so the tables of counting filters are nearly empty. For comparison, a loop in a \
             process of its own ORs one array of this size into another. *Longest pause of others* is the longest time \
             that another client waits for a reply.\n\n\
             | | time | of the loop | longest pause of others |\n|---|--:|--:|--:|\n",
            self.size,
            thousands(self.touching as f64)
        );
        let loop_time = self.loop_over_memory.median();
        for (title, [time, pause]) in &self.merges {
            let ratio = time.median() / loop_time;
            let [time, pause] = [time, pause].map(|series| seconds(series.median()));
            let _ = writeln!(page, "| {title} | {time} | {ratio:.2} | {pause} |");
        }
        let _ = writeln!(page, "| the loop | {} | | |\n", seconds(loop_time));
        page
    }
}
