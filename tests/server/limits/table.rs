//! The limits.

use oxbloom_filter::internals::limits::{
    MAX_BUCKET_SIZE, MAX_COUNT, MAX_CUCKOO_LAYERS, MAX_EXPANSION, MAX_LENGTH, MAX_VALKEY_LAYERS, SLICES,
};
use redis::Value;

use super::Filler;
use testkit::filter_model::EXACT;
use testkit::memory::create;
use testkit::{ask, run, run_words};

/// A limit, or two: the smallest and the largest value of something.
pub(super) struct Limit {
    /// The name of the limit, for the page.
    pub what: &'static str,
    /// The smallest and the largest value, for the page.
    range: [String; 2],
    /// Fills filters at the limits.
    pub at: fn(&mut Filler),
    /// Commands beyond the limits, and their errors. There are filters `window` and `cuckoo`.
    pub beyond: Vec<(String, String)>,
    /// The effect beyond, for the page, if it is not in `beyond`.
    instead: &'static str,
}

impl Limit {
    /// Returns the row of the page's table.
    pub(super) fn row(&self) -> String {
        let Limit { what, range: [least, most], beyond, instead, .. } = self;
        let mut errors: Vec<String> = beyond.iter().map(|(_, text)| format!("`{}`", text.trim_end())).collect();
        errors.dedup();
        let errors = if errors.is_empty() { (*instead).to_owned() } else { errors.join(", ") };
        format!("| {what} | {least} | {most} | {errors} |")
    }
}

/// Returns a limit with the errors beyond it, each given as a command and an error.
fn limit<T: ToString, U: ToString>(
    what: &'static str,
    least: T,
    most: U,
    at: fn(&mut Filler),
    beyond: &[(&str, &str)],
) -> Limit {
    let beyond = beyond.iter().map(|(line, text)| (line.to_string(), text.to_string())).collect();
    Limit { what, range: [least.to_string(), most.to_string()], at, beyond, instead: "" }
}

/// The options of all kinds of filters that grow. Rolling filters forget instead.
const KINDS: [&str; 7] =
    ["", "COUNTING", "WINDOW 60", "ROLLING", "WINDOW 60 ROLLING", "LAYOUT classic", "LAYOUT valkey"];

/// The options of those filters whose first table has a fixed size.
const FIXED: [&str; 5] =
    ["COUNTING NONSCALING", "WINDOW 60", "WINDOW 60 NONSCALING", "ROLLING", "WINDOW 60 ROLLING SLICES 64"];

const CAPACITY: &str = "ERR (capacity should be larger than 0)";
const RATE: &str = "ERR (0 < error rate range < 1) ";
const RATIO: &str = "ERR (0 < tightening ratio range < 1)";
const SEED: &str = "ERR bad seed: SEED must be a whole number from 0 to 18446744073709551615";
const TIME: &str = "ERR bad time: AT must be milliseconds since 1970, not in the future";
const TTL: &str = "ERR bad TTL: TTL must be seconds, from 1 to the filter's WINDOW";

#[rustfmt::skip]
pub(super) fn limits() -> Vec<Limit> {
    let window = format!("ERR bad window: WINDOW must be seconds, from 1 to {} (100 years)", MAX_LENGTH / 1000);
    let slices = format!("ERR bad slices: SLICES must be a whole number from {} to {}", SLICES.start(), SLICES.end());
    let number = |name: &str, least: u64, most: u64| {
        format!("{name}: value must be an integer between {least} and {most}, inclusive.")
    };
    let [buckets, iterations, expansion] = [
        number("BUCKETSIZE", 1, MAX_BUCKET_SIZE.into()),
        number("MAXITERATIONS", 1, u16::MAX.into()),
        number("EXPANSION", 0, MAX_EXPANSION.into()),
    ];
    vec![
        limit("the error rate", "5e-324", "0.9999999999999999", rates, &[
            ("BF.RESERVE new 0 10", RATE),
            ("BF.RESERVE new 1 10", RATE),
            ("CF.RESERVE new 10 ERROR 1", RATE),
        ]),
        limit("the capacity of BF.RESERVE, as far as there is memory", 1, i64::MAX, capacities, &[
            ("BF.RESERVE new 0.01 0", CAPACITY),
            ("BF.RESERVE new 0.01 9223372036854775808", "ERR bad capacity"),
        ]),
        limit("the same, with a window, or with COUNTING and NONSCALING", 1, "10^11 at 1 %, fewer at lower error rates", fixed_capacities, &[
            ("BF.RESERVE new 0.01 1000000000000 COUNTING NONSCALING", create::ADDRESS),
            ("BF.RESERVE new 0.01 1000000000000 WINDOW 60", create::ADDRESS),
            ("BF.RESERVE new 0.01 1000000000000 ROLLING", create::ADDRESS),
        ]),
        limit("the capacity of CF.RESERVE, as far as there is memory", "2 BUCKETSIZE", "2^55 BUCKETSIZE", cuckoo_capacities, &[
            ("CF.RESERVE new 509 BUCKETSIZE 255", "Capacity must be at least (BucketSize * 2)"),
            ("CF.RESERVE new 36028797018963969 BUCKETSIZE 1", create::ADDRESS),
        ]),
        limit("EXPANSION of BF.RESERVE; with 0, the filter does not grow", 0, u32::MAX, expansions, &[
            ("BF.RESERVE new 0.01 10 EXPANSION -1", "ERR expansion should be greater or equal to 1"),
            ("BF.RESERVE new 0.01 10 EXPANSION 4294967296", "ERR bad expansion"),
        ]),
        limit("EXPANSION of CF.RESERVE; with 0, the filter does not grow", 0, MAX_EXPANSION, cuckoo_expansions, &[
            ("CF.RESERVE new 10 EXPANSION -1", &expansion),
            ("CF.RESERVE new 10 EXPANSION 32769", &expansion),
        ]),
        limit("BUCKETSIZE", 1, MAX_BUCKET_SIZE, buckets_of_all_sizes, &[
            ("CF.RESERVE new 1000 BUCKETSIZE 0", &buckets),
            ("CF.RESERVE new 1000 BUCKETSIZE 256", &buckets),
        ]),
        limit("MAXITERATIONS", 1, u16::MAX, iterations_of_cuckoo_filters, &[
            ("CF.RESERVE new 10 MAXITERATIONS 0", &iterations),
            ("CF.RESERVE new 10 MAXITERATIONS 65536", &iterations),
        ]),
        limit("SEED of our own layouts", 0, u64::MAX, seeds, &[
            ("BF.RESERVE new 0.01 10 SEED -1", SEED),
            ("BF.RESERVE new 0.01 10 SEED 18446744073709551616", SEED),
        ]),
        limit("SEED of the layout valkey, in bytes", 32, 32, valkey_seeds, &[
            ("BF.RESERVE new 0.01 10 SEED abcdefghijklmnopqrstuvwxyz01234", SEED),
            ("BF.RESERVE new 0.01 10 SEED abcdefghijklmnopqrstuvwxyz0123456", SEED),
        ]),
        limit("TIGHTENING", "5e-324", "0.9999999999999999", ratios, &[
            ("BF.RESERVE new 0.01 10 TIGHTENING 0", RATIO),
            ("BF.RESERVE new 0.01 10 TIGHTENING 1", RATIO),
        ]),
        limit("WINDOW, in seconds", 1, MAX_LENGTH / 1000, windows, &[
            ("BF.RESERVE new 0.01 10 WINDOW 0", &window),
            ("BF.RESERVE new 0.01 10 WINDOW 3155760001", &window),
        ]),
        limit("SLICES", SLICES.start(), SLICES.end(), slices_of_all_windows, &[
            ("BF.RESERVE new 0.01 10 WINDOW 60 SLICES 1", &slices),
            ("BF.RESERVE new 0.01 10 WINDOW 60 SLICES 65", &slices),
            ("BF.RESERVE new 0.01 10 ROLLING SLICES 65", &slices),
        ]),
        limit("TTL, in seconds", 1, "the WINDOW", lifetimes, &[
            ("BF.INSERT window TTL 0 ITEMS a", TTL),
            ("BF.INSERT window TTL 61 ITEMS a", TTL),
        ]),
        limit("AT, in milliseconds since 1970", 0, "now", times, &[
            ("BF.INSERT window AT -1 ITEMS a", TIME),
            ("BF.INSERT window AT 9999999999999 ITEMS a", TIME),
        ]),
        Limit { instead: "further additions are not counted", ..limit("the count of an item with COUNTING", 0, "2^48", counts, &[]) },
        Limit { instead: "`ERR problem inserting into filter`", ..limit("the layers of a filter with the layout classic", 1, CLASSIC_LAYERS, classic_layers, &[]) },
        Limit { instead: "`ERR problem inserting into filter`", ..limit("the layers of a filter with the layout valkey", 1, MAX_VALKEY_LAYERS, valkey_layers, &[]) },
        Limit { instead: "`Maximum expansions reached`", ..limit("the layers of a cuckoo filter with the layout classic", 1, MAX_CUCKOO_LAYERS, cuckoo_layers, &[]) },
        Limit { instead: "`ERR too many items: at most 16777216 in a packed command`", ..limit("the items of a packed command", 0, PACKED_ITEMS, packed, &[]) },
    ]
}

fn rates(filler: &mut Filler) {
    for rate in ["5e-324", "0.9999999999999999"] {
        for kind in KINDS {
            // RedisBloom's first layer has half of the rate, if the filter grows.
            let rate = if kind == "LAYOUT classic" && rate == "5e-324" { "1e-323" } else { rate };
            filler.filter(&format!("BF.RESERVE KEY {rate} 1000 {kind}"), 100);
        }
        for kind in ["", "COUNTING", "WINDOW 60", "LAYOUT classic", "LAYOUT valkey"] {
            filler.filter(&format!("BF.RESERVE KEY {rate} 1000 NONSCALING {kind}"), 100);
        }
        for expansion in [0, 1] {
            filler.filter(&format!("CF.RESERVE KEY 1000 ERROR {rate} EXPANSION {expansion}"), 100);
        }
    }
}

fn capacities(filler: &mut Filler) {
    KINDS.iter().for_each(|kind| drop(filler.filter(&format!("BF.RESERVE KEY 0.01 1 {kind}"), 20)));
    filler.filter(&format!("BF.RESERVE KEY 0.01 {} COUNTING", i64::MAX), 1000);
    let key = filler.filter("BF.RESERVE KEY 0.01 1000000", 1000);
    let mut fold = |capacity: i64| ask::<u64>(&mut filler.client, &format!("BF.FOLD {key} CAPACITY {capacity}"));
    assert!(fold(i64::MAX) == 1 && fold(1) > 500);
}

fn fixed_capacities(filler: &mut Filler) {
    FIXED.iter().for_each(|kind| drop(filler.filter(&format!("BF.RESERVE KEY 0.01 1 {kind}"), 1)));
    FIXED.iter().for_each(|kind| drop(filler.filter(&format!("BF.RESERVE KEY 0.01 100000000000 {kind}"), 1000)));
}

fn cuckoo_capacities(filler: &mut Filler) {
    for (capacity, size) in [(2, 1), (510, 255), (1u64 << 55, 1), (i64::MAX as u64 / 256 * 255, 255)] {
        filler.filter(&format!("CF.RESERVE KEY {capacity} BUCKETSIZE {size}"), 1000);
    }
    for size in [1, 255] {
        filler.filter(&format!("CF.RESERVE KEY {} BUCKETSIZE {size} LAYOUT classic", 2 * size), 1000);
    }
}

fn expansions(filler: &mut Filler) {
    for kind in ["", "COUNTING", "WINDOW 60"] {
        filler.filter(&format!("BF.RESERVE KEY {EXACT} 10 EXPANSION {} {kind}", u32::MAX), 1000);
        filler.filter(&format!("BF.RESERVE KEY {EXACT} 10 EXPANSION 1 {kind}"), 1000);
    }
    // A second layer of these would take gigabytes.
    for kind in ["LAYOUT classic", "LAYOUT valkey"] {
        filler.filter(&format!("BF.RESERVE KEY {EXACT} 10 EXPANSION {} {kind}", u32::MAX), 10);
    }
    KINDS.iter().filter(|kind| !kind.contains("ROLLING")).for_each(|kind| {
        filler.filter(&format!("BF.RESERVE KEY {EXACT} 10 EXPANSION 0 {kind}"), 10);
    });
}

fn cuckoo_expansions(filler: &mut Filler) {
    for layout in ["native", "classic"] {
        filler.filter(&format!("CF.RESERVE KEY 2 BUCKETSIZE 1 EXPANSION {MAX_EXPANSION} LAYOUT {layout}"), 1000);
        filler.filter(&format!("CF.RESERVE KEY 100 EXPANSION 0 LAYOUT {layout}"), 50);
    }
}

fn buckets_of_all_sizes(filler: &mut Filler) {
    for size in 1..=MAX_BUCKET_SIZE {
        for layout in ["native", "classic"] {
            filler.filter(&format!("CF.RESERVE KEY 600 BUCKETSIZE {size} LAYOUT {layout}"), 1000);
        }
    }
}

fn iterations_of_cuckoo_filters(filler: &mut Filler) {
    for iterations in [1, u16::MAX] {
        for layout in ["native", "classic"] {
            filler.filter(&format!("CF.RESERVE KEY 1000 MAXITERATIONS {iterations} LAYOUT {layout}"), 3000);
        }
    }
}

fn seeds(filler: &mut Filler) {
    for seed in [0, u64::MAX] {
        for kind in ["", "COUNTING", "WINDOW 60", "ROLLING"] {
            filler.filter(&format!("BF.RESERVE KEY {EXACT} 10 SEED {seed} {kind}"), 100);
        }
        filler.filter(&format!("CF.RESERVE KEY 10 SEED {seed}"), 100);
    }
}

fn valkey_seeds(filler: &mut Filler) {
    filler.filter("BF.RESERVE KEY 0.01 10 SEED abcdefghijklmnopqrstuvwxyz012345", 100);
}

fn ratios(filler: &mut Filler) {
    for (ratio, items) in [("5e-324", 10), ("0.9999999999999999", 100)] {
        filler.filter(&format!("BF.RESERVE KEY {EXACT} 10 TIGHTENING {ratio}"), items);
    }
}

fn windows(filler: &mut Filler) {
    for seconds in [1, MAX_LENGTH / 1000] {
        for options in
            ["SLICES 2", "SLICES 64", "NONSCALING SLICES 64", "REFRESH", "ROLLING SLICES 64", "ROLLING REFRESH"]
        {
            filler.filter(&format!("BF.RESERVE KEY {EXACT} 100 WINDOW {seconds} {options}"), 100);
        }
    }
}

/// Fills windows with as many slices as they can remember: first slices that end by time, and then full ones.
fn slices_of_all_windows(filler: &mut Filler) {
    /// The number of items in a full slice.
    const FULL: u64 = 3;
    for slices in SLICES.map(u64::from) {
        let capacity = FULL * slices;
        let now = filler.now();
        let time = |step: u64| now - 1000 * (slices - step);
        for options in ["", "NONSCALING", "ROLLING", "REFRESH ROLLING"] {
            let key = filler
                .filter(&format!("BF.RESERVE KEY {EXACT} {capacity} WINDOW {slices} SLICES {slices} {options}"), 0);
            filler.insert(&format!("BF.INSERT {key} AT {} ITEMS", time(0)), [0]);
            for step in 1..=slices {
                // Renewed items leave their slices, and so make room for more slices.
                let item = if options.contains("REFRESH") { 1 } else { step };
                filler.insert(&format!("BF.INSERT {key} AT {} ITEMS", time(step)), [item]);
            }
            for round in (0..=slices).filter(|_| options.contains("ROLLING")) {
                let first = if options.contains("REFRESH") { 2 } else { 100 + FULL * round };
                filler.insert(&format!("BF.MADD {key}"), first..first + FULL);
            }
        }
        filler.filter(&format!("BF.RESERVE KEY {EXACT} {capacity} ROLLING SLICES {slices}"), FULL * (slices + 1) - 1);
    }
}

fn lifetimes(filler: &mut Filler) {
    for (window, ttl) in [(1, 1), (60, 1), (60, 60), (MAX_LENGTH / 1000, 1), (MAX_LENGTH / 1000, MAX_LENGTH / 1000)] {
        let key = filler.filter(&format!("BF.RESERVE KEY {EXACT} 100 WINDOW {window}"), 10);
        filler.insert(&format!("BF.INSERT {key} TTL {ttl} ITEMS"), 10..20);
    }
}

fn times(filler: &mut Filler) {
    for options in ["WINDOW 3155760000", "WINDOW 1 SLICES 64", "WINDOW 60 ROLLING SLICES 64", "ROLLING", ""] {
        let key = filler.filter(&format!("BF.RESERVE KEY {EXACT} 100 {options}"), 0);
        for (time, item) in [(0, 0), (1, 1), (filler.now(), 2)] {
            filler.insert(&format!("BF.INSERT {key} AT {time} ITEMS"), [item]);
        }
    }
}

/// Adds the counts of a filter to itself until they stay as they are.
fn counts(filler: &mut Filler) {
    for creation in ["0.01 100 COUNTING", "0.01 100 COUNTING NONSCALING", "0.5 10 COUNTING NONSCALING"] {
        let key = filler.filter(&format!("BF.RESERVE KEY {creation}"), 5);
        for _ in 0..=MAX_COUNT.ilog2() + 16 {
            for line in [format!("COPY {key} copy"), format!("BF.MERGE {key} 1 copy"), "DEL copy".to_owned()] {
                run(&mut filler.client, &line).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
        filler.insert(&format!("BF.MADD {key}"), 0..5);
        let counts =
            run_words(&mut filler.client, &testkit::command::with_items(&format!("BF.MCOUNT {key}"), &[0, 1, 2, 3, 4]));
        assert_eq!(counts, Ok(Value::Array(vec![Value::Int(MAX_COUNT as i64); 5])), "{creation}");
        // A removal decrements a saturated count.
        filler.insert(&format!("BF.MDEL {key}"), [4; 10]);
        let count = run_words(&mut filler.client, &testkit::command::with_items(&format!("BF.COUNT {key}"), &[4]));
        assert_eq!(count, Ok(Value::Int(MAX_COUNT as i64 - 10)), "{creation}");
    }
}

/// The layers of a classic filter that a double can represent the error rates of, if the first has half of one.
const CLASSIC_LAYERS: usize = 1074;

/// Adds items until the filter of a key cannot grow.
fn fill_layers(filler: &mut Filler, key: &str, layers: usize, rejection: &str) {
    let [add, info] = if key.starts_with("cuckoo") {
        ["CF.INSERT KEY ITEMS", "CF.INFO KEY"]
    } else {
        ["BF.MADD KEY", "BF.INFO KEY FILTERS"]
    };
    let error = filler.fill(&add.replace("KEY", key));
    assert!(error.contains(rejection), "{error}");
    let info: Vec<Value> = ask(&mut filler.client, &info.replace("KEY", key));
    assert!(info.contains(&Value::Int(layers as i64)), "{info:?}");
}

fn classic_layers(filler: &mut Filler) {
    let key = filler.filter("BF.RESERVE KEY 0.9999 1 EXPANSION 1 LAYOUT classic", 0);
    fill_layers(filler, &key, CLASSIC_LAYERS, "problem inserting into filter");
}

/// Each addition examines all layers, so nearly all of them come from a header.
fn valkey_layers(filler: &mut Filler) {
    /// The size of a layer in a header, after the number of layers.
    const LAYER_BYTES: usize = 28;
    let key = filler.filter(&format!("BF.RESERVE KEY {EXACT} 1 EXPANSION 1 TIGHTENING 0.9999999"), 1);
    let (_, header): (u64, Vec<u8>) = ask(&mut filler.client, &format!("BF.SCANDUMP {key} 0"));
    let (start, layer) = header.split_at(header.len() - LAYER_BYTES);
    let layers = MAX_VALKEY_LAYERS - 10;
    let start = start.strip_suffix(&1u32.to_le_bytes()).expect("a header with a layer");
    let header = [start, &(layers as u32).to_le_bytes(), &layer.repeat(layers)].concat();
    run(&mut filler.client, &format!("DEL {key}")).unwrap();
    let loaded = run_words(&mut filler.client, &[b"BF.LOADCHUNK", key.as_bytes(), b"1", &header]);
    assert_eq!(loaded, Ok(Value::Okay));
    fill_layers(filler, &key, MAX_VALKEY_LAYERS, "problem inserting into filter");
}

fn cuckoo_layers(filler: &mut Filler) {
    for size in [1, 2, 255] {
        let key = filler.filter(&format!("CF.RESERVE KEY {} BUCKETSIZE {size} LAYOUT classic", 2 * size), 0);
        fill_layers(filler, &key, MAX_CUCKOO_LAYERS, "Maximum expansions reached");
    }
}

/// The maximum number of items in a packed command.
const PACKED_ITEMS: usize = 16_777_216;

fn packed(filler: &mut Filler) {
    let key = filler.filter(&format!("BF.RESERVE KEY {EXACT} 300"), 0);
    let bytes: Vec<u8> = (0..=PACKED_ITEMS).map(|number| number as u8).collect();
    let mut add = |items: &[u8]| {
        run_words(&mut filler.client, &[b"BF.ADDPACKED", key.as_bytes(), b"COUNT", b"FIXED", b"1", items])
    };
    assert_eq!(add(&[]), Ok(Value::Int(0)));
    let rejected = add(&bytes).expect_err("too many items");
    assert!(rejected.to_string().contains("at most 16777216 in a packed command"), "{rejected}");
    assert_eq!(add(&bytes[1..]), Ok(Value::Int(256)));
}
