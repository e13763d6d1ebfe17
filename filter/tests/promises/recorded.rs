//! Bytes that this version wrote are read, and written again, by all later versions.
//!
//! `RECORD=1 cargo test -p oxbloom-filter recorded` writes files for kinds of filters that have none yet.

use std::num::NonZeroU64;
use std::path::PathBuf;

use oxbloom_filter::Filter;
use oxbloom_filter::internals::{
    CreateParams, CuckooSpec, ErrorRate, Growth, Hash, InsertOptions, KindParams, MergeOp, Window, with_each_version,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::model::{CLASSIC, by, content_bytes, create, filter, item, params_of, read_values, values};

/// Names, and what the recorded filters were created with. A name never gets another meaning.
pub(crate) fn recorded() -> Vec<(&'static str, CreateParams, u64)> {
    let window = |length, refresh, rolling| KindParams::Windowed {
        seed: 7,
        window: Window { length: NonZeroU64::new(length), slices: 4, refresh, rolling },
    };
    let (native, counting) = (KindParams::Native { seed: 7 }, KindParams::Counting { seed: 7 });
    let classic = CLASSIC;
    let valkey = KindParams::Valkey { seed: [7; 32], tightening: ErrorRate::new(0.5).unwrap() };
    let spec = CuckooSpec::new(by(2), 2, 20).unwrap();
    let (cuckoo, native_cuckoo) = (KindParams::Cuckoo { spec }, KindParams::NativeCuckoo { seed: 7, spec });
    let params = |capacity, growth, kind| params_of(kind, 0.01, capacity, growth);
    vec![
        ("native-empty", params(100, by(2), native), 0),
        ("native-small", params(100, by(2), native), 3),
        ("native-large", params(10_000, Growth::Fixed, native), 2000),
        ("native-grown", params(100, by(2), native), 3000),
        ("counting-small", params(100, by(2), counting), 3),
        ("counting-grown", params(100, by(2), counting), 3000),
        ("counting-fixed", params(5000, Growth::Fixed, counting), 3000),
        ("window-small", params(100, by(2), window(8000, false, false)), 3),
        ("window-grown", params(1000, by(2), window(8000, true, false)), 5000),
        ("window-fixed", params(5000, Growth::Fixed, window(8000, false, false)), 3000),
        ("rolling", params(1000, Growth::Fixed, window(0, false, true)), 3000),
        ("rolling-window", params(1000, Growth::Fixed, window(8000, true, true)), 3000),
        ("classic-small", params(100, by(2), classic), 3),
        ("classic-grown", params(100, by(2), classic), 500),
        ("classic-fixed", params(1000, Growth::Fixed, classic), 500),
        ("cuckoo-small", params(128, by(2), cuckoo), 3),
        ("cuckoo-grown", params(128, by(2), cuckoo), 500),
        ("native-cuckoo-small", params(128, by(2), native_cuckoo), 3),
        ("native-cuckoo-grown", params(128, by(2), native_cuckoo), 500),
        ("valkey-small", params(100, by(2), valkey), 3),
        ("valkey-grown", params(100, by(2), valkey), 500),
        ("valkey-fixed", params(1000, Growth::Fixed, valkey), 500),
    ]
}

pub(crate) fn filled(params: CreateParams, items: u64) -> Filter {
    let mut filter = create(params);
    for number in 0..items {
        let options = InsertOptions { now: 1_700_000_000_000 + number * 3, ..InsertOptions::default() };
        // Every third item is added twice.
        for _ in 0..1 + u64::from(number % 3 == 0) {
            let hash = [filter.hash(&item(number))];
            filter.insert_hashes(&hash, &mut [false], &mut [], &options, &mut |_| true).unwrap();
        }
    }
    filter
}

/// Returns the folder with the recorded bytes.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

/// Returns the recorded filters, with their names.
pub(crate) fn filters() -> impl Iterator<Item = (&'static str, Filter)> {
    recorded().into_iter().map(|(name, params, items)| (name, filled(params, items)))
}

#[test]
fn recorded_bytes_are_read_and_written_as_ever() {
    for (name, params, items) in recorded() {
        let filter = filled(params, items);
        for (form, bytes) in [("bytes", filter.to_bytes().unwrap()), ("rdb", values(&filter))] {
            let path = folder().join(format!("{name}.{form}"));
            if !path.exists() && std::env::var_os("RECORD").is_some() {
                std::fs::write(&path, &bytes).unwrap();
            }
            let recorded = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let loaded = if form == "rdb" { read_values(&filter, &recorded) } else { Filter::from_bytes(&recorded) };
            assert!(loaded.unwrap() == filter, "{name}: other content");
            assert!(recorded == bytes, "{name}: other bytes");
        }
    }
}

/// Items of each of these lengths are hashed in another way. Each has 20 probes, in several blocks.
#[test]
fn items_of_all_lengths_are_found_where_they_are_stored() {
    let lengths = [0, 1, 8, 16, 17, 33, 65, 97, 128, 129, 240, 241, 1024, 5000];
    let items = lengths.map(|length| vec![b'x'; length]);
    let digests = [(1000, by(2)), (1_000_000, Growth::Fixed)].map(|(capacity, growth)| {
        let mut filter = filter(1e-6, capacity, growth, 42);
        filter.insert_batch(&items).unwrap();
        xxh3_64(&content_bytes(&filter))
    });
    assert_eq!(digests, [0xBD14_2157_9E10_D4DA, 0x6CE3_2BA1_99BE_DF60]);
}

/// A processor may choose how a function is executed, but not what it does.
#[test]
fn filters_are_the_same_with_each_version_for_a_processor() {
    for (name, params, items) in recorded() {
        let mut records = Vec::new();
        with_each_version(|| records.push(record(params, items)));
        assert!(!records.is_empty() && records.windows(2).all(|pair| pair[0] == pair[1]), "{name}");
    }
}

/// Returns all that a filter replies, and its bytes, when it is used in every way that its kind offers.
fn record(params: CreateParams, items: u64) -> impl PartialEq {
    let mut filter = filled(params, items);
    let now = 1_700_000_000_000 + items * 3;
    let hashes: Vec<Hash> = (0..2 * items).map(|number| filter.hash(&item(number))).collect();
    let one_by_one: Vec<bool> = (0..2 * items).map(|number| filter.contains_at(&item(number), now)).collect();
    let [mut found, mut new, mut removed] = [(); 3].map(|_| vec![false; hashes.len()]);
    let mut counts = vec![0; hashes.len()];
    filter.contains_hashes(&hashes, &mut found, now);
    let options = InsertOptions { now, ..InsertOptions::default() };
    let inserted = filter.insert_hashes(&hashes[hashes.len() / 4..], &mut new, &mut [], &options, &mut |_| true);
    let counted = filter.count_hashes(&hashes, &mut counts);
    let one = filter.count(item(0));
    let intersection = Filter::merged(&[&filter, &filled(params, items)], MergeOp::Intersection, &mut |_| true);
    let rest = filter.remove_hashes(&hashes[..hashes.len() / 2], &mut removed);
    let replies = (found, one_by_one, inserted, new, counted, counts, one, rest, removed);
    (replies, intersection.map(|filter| filter.to_bytes()), filter.to_bytes())
}
