//! A model of a filter on a server, and filters of many kinds.

use std::collections::BTreeSet;
use std::ops::Range;

use redis::{Connection, Value};

use crate::command::{ABSENT, ask, error_text, item, many, run, run_words};
use crate::info::{filter_info, info_field, layout_of};
use models::random::Random;

/// An error rate so low that tests meet no false positive.
pub const EXACT: &str = "0.000000000000000001";

/// A filter's key, and every item that the server acknowledged.
#[derive(Clone, Debug)]
pub struct FilterModel {
    pub key: String,
    pub items: BTreeSet<u64>,
    pub family: Family,
}

/// The prefix of the commands on a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family {
    Bloom,
    Cuckoo,
}

impl Family {
    pub fn prefix(self) -> &'static str {
        match self {
            Family::Bloom => "BF",
            Family::Cuckoo => "CF",
        }
    }
}

/// The replies of a filter. They are equal for two filters with the same bits.
#[derive(Debug, PartialEq)]
pub struct Observed {
    info: Vec<Value>,
    layout: String,
    /// The seed, if the filter is not classic.
    seed: Option<String>,
    /// The error rate, unless it is a cuckoo filter.
    error_rate: Option<String>,
    /// The number of false positives among items that were never added, and a digest of the false positives.
    false_positives: (usize, u64),
}

impl FilterModel {
    pub fn new(key: &str) -> FilterModel {
        FilterModel { key: key.to_owned(), items: BTreeSet::new(), family: Family::Bloom }
    }

    /// Returns the model of an empty cuckoo filter.
    pub fn cuckoo(key: &str) -> FilterModel {
        FilterModel { family: Family::Cuckoo, ..FilterModel::new(key) }
    }

    /// Returns the model of an empty filter of a layout, given by its name in INFO.
    pub fn of_layout(layout: &str, key: &str) -> FilterModel {
        if layout.ends_with("cuckoo") { FilterModel::cuckoo(key) } else { FilterModel::new(key) }
    }

    /// Returns a model of the same items under another key.
    pub fn at(&self, key: &str) -> FilterModel {
        FilterModel { key: key.to_owned(), ..self.clone() }
    }

    /// Returns true if it is one of the [`various`] filters that are full and do not grow.
    pub fn is_fixed(&self) -> bool {
        self.key.ends_with("fixed")
    }

    /// Returns true if its content depends on the times at which items were added.
    pub fn needs_time(&self) -> bool {
        self.key.starts_with("windowed")
    }

    /// Adds items. Panics if one is rejected. Returns the number of new ones.
    pub fn add(&mut self, client: &mut Connection, numbers: Range<u64>) -> u64 {
        let command = self.adding();
        let numbers: Vec<u64> = numbers.collect();
        let mut new = 0;
        for numbers in numbers.chunks(1000) {
            // A cuckoo filter replies with -1 for a rejected item, which is not unsigned.
            let replies: Vec<u64> = many(client, command, &self.key, numbers);
            assert_eq!(replies.len(), numbers.len(), "{command} {}", self.key);
            new += replies.iter().sum::<u64>();
            self.items.extend(numbers);
        }
        new
    }

    /// Returns the command that adds items which are absent, up to the key.
    pub fn adding(&self) -> &'static str {
        match self.family {
            Family::Bloom => "BF.MADD",
            Family::Cuckoo => "CF.INSERTNX",
        }
    }

    /// Panics if an item that was added is missing. Returns all other replies.
    pub fn observe(&self, client: &mut Connection) -> Observed {
        let items: Vec<u64> = self.items.iter().copied().collect();
        let missing = self.with_reply(client, &items, false);
        assert!(missing.is_empty(), "{}: {} of {} items are missing", self.key, missing.len(), items.len());
        let absent: Vec<u64> = (ABSENT..ABSENT + 2000).collect();
        let found = self.with_reply(client, &absent, true);
        let is_bloom = self.family == Family::Bloom;
        Observed {
            info: filter_info(client, &self.key),
            layout: layout_of(client, &self.key),
            seed: if is_bloom { info_field(client, &self.key, "SEED") } else { None },
            error_rate: is_bloom.then(|| info_field(client, &self.key, "ERROR")),
            false_positives: (found.len(), found.iter().fold(0, |digest, n| Random(digest ^ n).next_u64())),
        }
    }

    /// Returns those of `numbers` for which BF.MEXISTS or CF.MEXISTS replies `expected`.
    pub fn with_reply(&self, client: &mut Connection, numbers: &[u64], expected: bool) -> Vec<u64> {
        let mut found = Vec::new();
        for numbers in numbers.chunks(1000) {
            let answers: Vec<bool> = many(client, &format!("{}.MEXISTS", self.family.prefix()), &self.key, numbers);
            found.extend(numbers.iter().zip(answers).filter(|(_, answer)| *answer == expected).map(|(&n, _)| n));
        }
        found
    }
}

/// Uses a filter that was created from untrusted data. Added items must be found, and no command may hang.
pub fn use_in_every_way(client: &mut Connection, key: &str) {
    let layout = layout_of(client, key);
    let model = FilterModel::of_layout(&layout, key);
    let (prefix, is_bloom) = (model.family.prefix(), model.family == Family::Bloom);
    let mut pipe = redis::pipe();
    let questions = ["INFO", "DEBUG"].map(|verb| format!("{prefix}.{verb}"));
    let others = ["BF.CARD", "DUMP", "DEBUG DIGEST-VALUE", "MEMORY USAGE"].into_iter().skip(usize::from(!is_bloom));
    for question in questions.iter().map(String::as_str).chain(others) {
        question.split(' ').chain([key]).enumerate().fold(&mut pipe, |pipe, (index, word)| match index {
            0 => pipe.cmd(word),
            _ => pipe.arg(word),
        });
    }
    for field in ["ERROR", "SEED", "LAYOUT", "FILL", "FPR", "ESTIMATED"].iter().filter(|_| is_bloom) {
        pipe.cmd("BF.INFO").arg(key).arg(field);
    }
    pipe.cmd(&format!("{prefix}.SCANDUMP")).arg(key).arg(1);
    let _: Vec<Value> = pipe.query(client).expect("answers");
    let is_counting = !is_bloom || layout == "counting";
    // Time stands still in a script. Elsewhere the filter could forget the item first: its window may be a millisecond.
    let add_and_look =
        format!("redis.call('{prefix}.ADD', KEYS[1], ARGV[1]) return redis.call('{prefix}.EXISTS', KEYS[1], ARGV[1])");
    for n in 0..30 {
        let words = [b"EVAL", add_and_look.as_bytes(), b"1", key.as_bytes(), &item(n)];
        match run_words(client, &words).map_err(|error| error_text(&error)) {
            Ok(found) => {
                assert_eq!(found, Value::Int(1));
                // Removes every other item.
                if is_counting && n % 2 == 1 {
                    let command = format!("{prefix}.COUNT");
                    assert!([n - 1, n].iter().all(|&number| many::<u64>(client, &command, key, &[number]) > 0));
                    assert_eq!(many::<u64>(client, &format!("{prefix}.DEL"), key, &[n]), 1);
                }
            }
            Err(error) => {
                const KNOWN: [&str; 5] = [
                    "non scaling filter is full",
                    "Insufficient memory to grow filter",
                    "problem inserting into filter",
                    "Filter is full",
                    "Maximum expansions reached",
                ];
                assert!(KNOWN.iter().any(|known| error.contains(known)), "{error}");
                break;
            }
        }
    }
    if !is_bloom {
        assert_eq!(run(client, &format!("CF.COMPACT {key}")), Ok(Value::Okay));
    }
}

/// Creates a native filter that has grown. Its dump has a header, a chunk of bits, and three chunks of its table.
pub fn native_in_four_chunks(client: &mut Connection, key: &str) -> FilterModel {
    assert_eq!(ask::<String>(client, &format!("BF.RESERVE {key} 0.000000000000000001 20")), "OK");
    let mut model = FilterModel::new(key);
    model.add(client, 0..150_000);
    model
}

/// Creates a counting filter whose dump has a header and three chunks. Each item has three occurrences.
pub fn counting_in_three_chunks(client: &mut Connection, key: &str) -> FilterModel {
    let single = format!("{key}-single");
    assert_eq!(ask::<String>(client, &format!("BF.RESERVE {single} 0.000000000000000001 20 COUNTING")), "OK");
    let mut model = FilterModel::new(&single);
    model.add(client, 0..56_000);
    // An item with three occurrences takes three times the memory.
    assert_eq!(ask::<String>(client, &format!("BF.MERGE {key} 3 {single} {single} {single}")), "OK");
    assert_eq!(ask::<u64>(client, &format!("DEL {single}")), 1);
    model.at(key)
}

/// Creates filters of many kinds, in all layouts: empty, fixed and full, grown, with many false positives, and large.
/// The windows of filters that forget end long after the tests.
pub fn various(client: &mut Connection) -> Vec<FilterModel> {
    let kinds = [
        ("empty", "0.01 1000", 0),
        ("fixed", "0.05 4000 NONSCALING", 4000),
        ("doubled", "0.05 10 EXPANSION 2", 3000),
        ("linear", "0.01 20 EXPANSION 1", 600),
        ("careless", "0.4 100 EXPANSION 4", 2000),
        ("exact", "0.0000001 500 SEED 18446744073709551615", 700),
        ("large", "0.01 2000000", 20_000),
        ("counting-empty", "0.01 1000 COUNTING", 0),
        ("counting-fixed", "0.05 4000 NONSCALING COUNTING", 4000),
        ("counting-doubled", "0.05 10 EXPANSION 2 COUNTING", 3000),
        ("counting-linear", "0.01 20 EXPANSION 1 COUNTING", 600),
        ("counting-large", "0.01 200000 COUNTING", 20_000),
        ("counting-often", "0.0001 10 COUNTING", 600),
        ("windowed-empty", "0.01 1000 WINDOW 604800", 0),
        ("windowed-unscaled", "0.05 40000 NONSCALING WINDOW 604800 SLICES 2", 4000),
        ("windowed-grown", "0.05 10 WINDOW 604800 SLICES 16 REFRESH", 3000),
        ("windowed-large", "0.01 200000 WINDOW 31536000 SLICES 64", 20_000),
        ("windowed-rolling", "0.05 30000 WINDOW 604800 ROLLING REFRESH", 3000),
        ("rolling", "0.01 50000 ROLLING", 4000),
        ("classic-empty", "0.01 1000 LAYOUT classic", 0),
        ("classic-fixed", "0.05 4000 NONSCALING LAYOUT classic", 4000),
        ("classic-doubled", "0.05 10 EXPANSION 2 LAYOUT classic", 3000),
        ("classic-linear", "0.01 20 EXPANSION 1 LAYOUT classic", 600),
        ("classic-careless", "0.4 100 EXPANSION 4 LAYOUT classic", 2000),
        ("classic-large", "0.01 2000000 LAYOUT classic", 20_000),
        ("valkey-empty", "0.01 1000 LAYOUT valkey", 0),
        ("valkey-fixed", "0.05 4000 NONSCALING LAYOUT valkey", 4000),
        ("valkey-doubled", "0.05 10 EXPANSION 2 TIGHTENING 0.3", 3000),
        ("valkey-linear", "0.01 20 EXPANSION 1 LAYOUT valkey", 600),
        ("valkey-large", "0.01 2000000 LAYOUT valkey", 20_000),
    ];
    // Without room for all of its items, a cuckoo filter that does not grow could reject one. Two have copies of items.
    let cuckoo = [
        ("cuckoo-empty", "1000", 0),
        ("cuckoo-fixed", "4000 EXPANSION 0 SEED 3", 4000),
        ("cuckoo-grown", "16 ERROR 0.05 BUCKETSIZE 4 EXPANSION 2 MAXITERATIONS 7", 3000),
        ("cuckoo-copies", "64 BUCKETSIZE 1", 600),
        ("cuckoo-large", "200000", 20_000),
        ("cuckoo-classic-empty", "1000 LAYOUT classic", 0),
        ("cuckoo-classic-fixed", "64 EXPANSION 0 MAXITERATIONS 100 LAYOUT classic", 50),
        ("cuckoo-classic-doubled", "64 BUCKETSIZE 4 EXPANSION 2 LAYOUT classic", 3000),
        ("cuckoo-classic-copies", "512 LAYOUT classic", 600),
        ("cuckoo-classic-large", "2000000 LAYOUT classic", 20_000),
    ];
    let blooms = kinds.into_iter().map(|(key, parameters, items)| (FilterModel::new(key), parameters, items));
    let cuckoos = cuckoo.into_iter().map(|(key, parameters, items)| (FilterModel::cuckoo(key), parameters, items));
    let filled = blooms.chain(cuckoos).map(|(mut model, parameters, items)| {
        let reserve = format!("{}.RESERVE {} {parameters}", model.family.prefix(), model.key);
        assert_eq!(ask::<String>(client, &reserve), "OK");
        model.add(client, 0..items);
        if model.key.ends_with("often") {
            // A count that takes several slots.
            (0..3).for_each(|_| drop(many::<Vec<u64>>(client, "BF.MADD", &model.key, &[7; 10_000])));
        }
        if model.key.ends_with("copies") {
            let copied: Vec<u64> = (0..items / 3).collect();
            assert!(many::<Vec<bool>>(client, "CF.INSERT", &model.key, &copied).iter().all(|&stored| stored));
        }
        model
    });
    filled.collect()
}
