//! Merges stay within the limits of memory.

use crate::merging::sources::alike;
use testkit::command::many;
use testkit::filter_model::FilterModel;
use testkit::info::{digest, info_field};
use testkit::memory::{create, grow};
use testkit::replication::{Pair, assert_synchronized};
use testkit::server::{server_version, with_aof, with_debug};
use testkit::{Setup, ask, error, run};

#[test]
fn a_merge_stays_within_the_memory_limits() {
    let server = with_debug(Setup::oxbloom()).module_arguments("filter-memory-limit 100000").start();
    let mut client = server.connect();
    for options in ["10000", "10000 LAYOUT classic", "10000 COUNTING", "30000 COUNTING NONSCALING"] {
        run(&mut client, &format!("BF.RESERVE a 0.01 {options}")).unwrap();
        run(&mut client, "BF.RESERVE b LIKE a").unwrap();
        run(&mut client, "BF.RESERVE c LIKE a").unwrap();
        for key in ["a", "c"] {
            FilterModel::new(key).add(&mut client, 0..20_000);
        }
        let before = digest(&mut client);
        if server_version() < (7, 0) {
            return;
        }
        let size: u64 = info_field(&mut client, "a", "SIZE");
        run(&mut client, &format!("CONFIG SET bf.filter-memory-limit {}", size * 3 / 4)).unwrap();
        assert_eq!(error(&mut client, "BF.MERGE new 1 a"), create::FILTER_LIMIT, "{options}");
        assert_eq!(error(&mut client, "BF.MERGE b 1 a"), grow::FILTER_LIMIT, "{options}");
        assert_eq!(error(&mut client, "BF.MERGE new 2 b a"), create::FILTER_LIMIT, "{options}");
        assert!(run(&mut client, "COPY a new").is_err(), "{options}");
        assert_eq!(digest(&mut client), before);
        // A merge is admitted if its result fits. The limit applies to the filter, not to the memory that the merge
        // needs while it runs.
        // The counts of items that are in both take more slots.
        let limit = if options.contains("COUNTING") { size * 3 } else { size * 5 / 4 };
        run(&mut client, &format!("CONFIG SET bf.filter-memory-limit {limit}")).unwrap();
        for line in ["BF.MERGE b 1 a", "BF.MERGE c 1 a", "BF.MERGE new 2 b a"] {
            assert_eq!(ask::<String>(&mut client, line), "OK", "{line} {options}");
        }
        for key in ["b", "c", "new"] {
            assert!(info_field::<u64>(&mut client, key, "SIZE") <= limit, "{key} {options}");
            let found: Vec<bool> = many(&mut client, "BF.MEXISTS", key, &(0..20_000).collect::<Vec<_>>());
            assert!(found.into_iter().all(|found| found), "{key} {options}");
        }
        run(&mut client, "CONFIG SET bf.filter-memory-limit 100000").unwrap();
        run(&mut client, "FLUSHALL").unwrap();
    }
}

/// A larger filter is folded before it counts.
#[test]
fn a_merge_of_filters_of_different_sizes_needs_the_memory_of_the_smallest() {
    if server_version() < (7, 0) {
        return;
    }
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    for (key, capacity) in [("large", 1_000_000), ("small", 10_000), ("grown", 10_000)] {
        run(&mut client, &format!("BF.RESERVE {key} 0.01 1000000 SEED 7")).unwrap();
        run(&mut client, &format!("BF.FOLD {key} CAPACITY {capacity}")).unwrap();
    }
    let mut grown = FilterModel::new("grown");
    grown.add(&mut client, 0..40_000);
    let before = digest(&mut client);
    let [large, small, of_grown] = ["large", "small", "grown"].map(|key| info_field::<u64>(&mut client, key, "SIZE"));
    assert!(small * 2 < of_grown && of_grown * 2 < large);
    for (limit, merge, rejection) in [
        (small * 3 / 4, "BF.MERGE new 2 large small", create::FILTER_LIMIT),
        (of_grown * 3 / 4, "BF.MERGE new 2 large grown", create::FILTER_LIMIT),
        (of_grown * 3 / 4, "BF.MERGE large 1 grown", grow::FILTER_LIMIT),
    ] {
        run(&mut client, &format!("CONFIG SET bf.filter-memory-limit {limit}")).unwrap();
        assert_eq!(error(&mut client, merge), rejection, "{merge}");
    }
    assert_eq!(digest(&mut client), before);
    for (size, merge) in [
        (small, "BF.MERGE new 2 large small"),
        (of_grown, "BF.MERGE other 2 large grown"),
        (of_grown, "BF.MERGE large 1 grown"),
    ] {
        run(&mut client, &format!("CONFIG SET bf.filter-memory-limit {}", size * 5 / 4)).unwrap();
        assert_eq!(ask::<String>(&mut client, merge), "OK", "{merge}");
    }
    grown.at("large").observe(&mut client);
}

/// Blocks have no limit. A replica and an append-only file apply what the master has merged, whatever the limit is there.
#[test]
fn tables_over_the_limit_are_not_merged_unless_a_master_has_merged_them() {
    const REJECTION: &str = "ERR this merge would stop the server for too long: over bf.merge-limit, raise the limit or \
                             merge on another server";
    if server_version() < (7, 0) {
        return;
    }
    let pair = Pair::start(with_aof("no"), with_debug(Setup::oxbloom()).module_arguments("merge-limit 1"));
    let (mut client, mut reader) = pair.clients();
    for parameters in ["0.01 10", "0.01 10 COUNTING", "0.01 400 COUNTING NONSCALING"] {
        run(&mut client, "CONFIG SET bf.merge-limit 0").unwrap();
        run(&mut client, "FLUSHALL").unwrap();
        alike(&mut client, &["a", "b", "c"], parameters);
        run(&mut client, "BF.RESERVE sum LIKE a").unwrap();
        let before = digest(&mut client);
        let limit: u64 = ["a", "b"].iter().map(|key| info_field::<u64>(&mut client, key, "SIZE")).sum();
        run(&mut client, &format!("CONFIG SET bf.merge-limit {limit}")).unwrap();
        for line in ["BF.MERGE new 3 a b c", "BF.MERGE a 2 b c", "BF.MERGE sum 3 a b c REPLACE"] {
            assert_eq!(error(&mut client, line), REJECTION, "{line} {parameters}");
        }
        assert_eq!(digest(&mut client), before, "{parameters}");
        for line in ["BF.MERGE new 2 a b", "BF.MERGE c 1 b"] {
            assert_eq!(ask::<String>(&mut client, line), "OK", "{line} {parameters}");
        }
        assert_synchronized(&mut client, &mut reader, parameters);
        let merged = digest(&mut client);
        run(&mut client, "CONFIG SET bf.merge-limit 1").unwrap();
        assert_eq!(error(&mut client, "BF.MERGE new 2 a b"), REJECTION, "{parameters}");
        run(&mut client, "DEBUG LOADAOF").unwrap();
        assert_eq!(digest(&mut client), merged, "{parameters}");
    }
    run(&mut client, "BF.RESERVE d 0.01 100000").unwrap();
    run(&mut client, "BF.RESERVE e LIKE d").unwrap();
    assert_eq!(ask::<String>(&mut client, "BF.MERGE d 1 e"), "OK");
}
