//! Counts are exact, however high, and the same in files, copies and replicas.

use std::ops::Range;

use redis::{Connection, Value};

use crate::counting::occurrences::{count, often};
use crate::expected::ok;
use crate::replication::replica_setup;
use testkit::command::many;
use testkit::filter_model::EXACT;
use testkit::info::{digest, digest_of, info_field};
use testkit::persistence::rewrite_aof;
use testkit::replication::{Pair, start_replica, wait_for_replica};
use testkit::server::{with_aof, with_debug};
use testkit::wire::Wire;
use testkit::{Setup, ask, run, run_words};

#[test]
fn a_count_is_exact_however_large_and_removals_bring_it_back_to_0() {
    const TIMES: u64 = 100_000;
    const OTHERS: Range<u64> = 1..301;
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for parameters in [format!("{EXACT} 10"), format!("{EXACT} 1000 NONSCALING"), "0.0001 10".to_owned()] {
        run(&mut client, "DEL key").unwrap();
        run(&mut client, &format!("BF.RESERVE key {parameters} COUNTING SEED 7")).unwrap();
        // Adds the other items once, twice or three times.
        for number in OTHERS {
            often(&mut client, "BF.MADD", "key", number, 1 + number % 3);
        }
        assert_eq!(often(&mut client, "BF.MADD", "key", 0, TIMES), 1);
        assert_eq!(count(&mut client, "key", 0), TIMES);
        assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), 301);
        // The first 1,000 removals and the last 20 are checked one by one.
        for left in (TIMES - 1000..TIMES).rev() {
            assert_eq!(often(&mut client, "BF.MDEL", "key", 0, 1), 1);
            assert_eq!(count(&mut client, "key", 0), left);
        }
        assert_eq!(often(&mut client, "BF.MDEL", "key", 0, TIMES - 1020), TIMES - 1020);
        for left in (0..20).rev() {
            assert_eq!(many::<u64>(&mut client, "BF.DEL", "key", &[0]), 1);
            assert_eq!(count(&mut client, "key", 0), left);
        }
        assert_eq!(often(&mut client, "BF.MDEL", "key", 0, 2), 0);
        assert!(!many::<bool>(&mut client, "BF.EXISTS", "key", &[0]));
        let counts: Vec<u64> = many(&mut client, "BF.MCOUNT", "key", &OTHERS.collect::<Vec<_>>());
        assert_eq!(counts, OTHERS.map(|number| 1 + number % 3).collect::<Vec<_>>(), "{parameters}");
        for number in OTHERS {
            assert_eq!(often(&mut client, "BF.MDEL", "key", number, 4), 1 + number % 3);
        }
        assert_eq!(info_field::<f64>(&mut client, "key", "FILL"), 0.0);
    }
}

/// Merging a filter with its copy doubles the counts, so the test needs few additions.
#[test]
fn counts_saturate_at_two_to_the_forty_eighth() {
    const MOST: u64 = 1 << 48;
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {EXACT} 100 NONSCALING COUNTING SEED 7")).unwrap();
    let numbers: Vec<u64> = (0..100).collect();
    many::<Vec<u64>>(&mut client, "BF.MADD", "key", &numbers);
    many::<Vec<u64>>(&mut client, "BF.MADD", "key", &numbers[..50]);
    for doublings in 1..=47u32 {
        run(&mut client, "COPY key copy").unwrap();
        run(&mut client, "BF.MERGE key 1 copy").unwrap();
        run(&mut client, "DEL copy").unwrap();
        let counts: Vec<u64> = many(&mut client, "BF.MCOUNT", "key", &numbers);
        assert_eq!(counts[..50], [2 << doublings; 50]);
        assert_eq!(counts[50..], [1 << doublings; 50]);
    }
    assert_eq!(count(&mut client, "key", 0), MOST);
    run(&mut client, "COPY key copy").unwrap();
    run(&mut client, "BF.MERGE key 1 copy").unwrap();
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "key", &numbers), [MOST; 100]);
    run(&mut client, "DEBUG RELOAD").unwrap();
    // An addition does not change a saturated count. A removal decrements it.
    assert_eq!(many::<u64>(&mut client, "BF.ADD", "key", &[0]), 0);
    assert_eq!(count(&mut client, "key", 0), MOST);
    assert_eq!(often(&mut client, "BF.MDEL", "key", 0, 10), 10);
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "key", &[0, 1]), [MOST - 10, MOST]);
}

#[test]
fn large_counts_are_the_same_in_files_copies_and_replicas() {
    const TIMES: u64 = 100_000;
    let Pair { master, replica } = Pair::start(with_aof("no"), replica_setup());
    let (mut client, mut reader) = (master.connect(), replica.connect());
    let keys = ["growing", "fixed", "careless"];
    for (key, parameters) in keys.into_iter().zip(["0.0001 10", "0.0001 1000 NONSCALING", "0.3 10"]) {
        run(&mut client, &format!("BF.RESERVE {key} {parameters} COUNTING SEED 7")).unwrap();
        often(&mut client, "BF.MADD", key, 0, TIMES);
        for number in 1..500 {
            often(&mut client, "BF.MADD", key, number, 1 + number % 7 * number);
        }
    }
    let numbers: Vec<u64> = (0..1000).collect();
    let counts = |client: &mut Connection, key: &str| many::<Vec<u64>>(client, "BF.MCOUNT", key, &numbers);
    let expected = keys.map(|key| counts(&mut client, key));
    assert!(expected.iter().all(|counts| counts[0] >= TIMES));
    assert_eq!(expected[0][..500], expected[1][..500]);
    let is_as_expected = |client: &mut Connection, place: &str| {
        assert_eq!(keys.map(|key| counts(client, key)), expected, "{place}");
    };
    wait_for_replica(&mut client, &mut reader);
    is_as_expected(&mut reader, "a replica that follows");
    let late = start_replica(&master, replica_setup());
    is_as_expected(&mut late.connect(), "a replica that joined late");
    run(&mut client, "DEBUG RELOAD").unwrap();
    is_as_expected(&mut client, "a snapshot");
    let mut wire = Wire::resp2(&master);
    for (key, expected) in keys.into_iter().zip(&expected) {
        run(&mut client, &format!("COPY {key} copy")).unwrap();
        assert_eq!(counts(&mut client, "copy"), *expected, "a copy");
        let payload: Vec<u8> = ask(&mut client, &format!("DUMP {key}"));
        run_words(&mut client, &[b"RESTORE", b"copy".as_slice(), b"0", &payload, b"REPLACE"]).unwrap();
        assert_eq!(counts(&mut client, "copy"), *expected, "a dump");
        run(&mut client, "DEL copy").unwrap();
        for (cursor, data) in wire.scan_dump(key) {
            assert_eq!(wire.load_chunk("copy", cursor, &data), ok());
        }
        assert_eq!(counts(&mut client, "copy"), *expected, "chunks");
        // The occurrences can be removed from the copy.
        assert_eq!(often(&mut client, "BF.MDEL", "copy", 0, TIMES), TIMES);
        assert_eq!(counts(&mut client, "copy")[0], expected[0] - TIMES);
        run(&mut client, "DEL copy").unwrap();
    }
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(digest(&mut client), digest(&mut reader));
    drop(wire);
    let mut master = with_aof("no").on(master.kill()).start();
    is_as_expected(&mut master.connect(), "an append-only file");
    for preamble in ["no", "yes"] {
        run(&mut master.connect(), &format!("CONFIG SET aof-use-rdb-preamble {preamble}")).unwrap();
        rewrite_aof(&mut master.connect());
        master = with_aof(preamble).on(master.kill()).start();
        is_as_expected(&mut master.connect(), "an append-only file that was rewritten");
    }
    let mut client = master.connect();
    for (key, expected) in keys.into_iter().zip(&expected) {
        assert_eq!(often(&mut client, "BF.MDEL", key, 0, TIMES), TIMES);
        assert_eq!(counts(&mut client, key)[0], expected[0] - TIMES);
    }
}

#[test]
fn digests_depend_on_counts_but_not_on_the_order_of_additions() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    for (key, words) in [("a", "COUNTING"), ("b", "COUNTING"), ("bits", "")] {
        run(&mut client, &format!("BF.RESERVE {key} 0.001 100 SEED 7 {words}")).unwrap();
    }
    let digest = |client: &mut Connection, key| digest_of(client, key);
    assert_eq!(digest(&mut client, "a"), digest(&mut client, "b"));
    assert_ne!(digest(&mut client, "a"), digest(&mut client, "bits"));
    run(&mut client, "BF.MADD a one two two").unwrap();
    run(&mut client, "BF.MADD b two one").unwrap();
    assert_ne!(digest(&mut client, "a"), digest(&mut client, "b"));
    run(&mut client, "BF.ADD b two").unwrap();
    assert_eq!(digest(&mut client, "a"), digest(&mut client, "b"));
    assert_eq!(run(&mut client, "BF.DEL a three"), Ok(Value::Int(0)));
    assert_eq!(digest(&mut client, "a"), digest(&mut client, "b"));
    run(&mut client, "BF.DEL a two").unwrap();
    assert_ne!(digest(&mut client, "a"), digest(&mut client, "b"));
    run(&mut client, "BF.DEL b two").unwrap();
    assert_eq!(digest(&mut client, "a"), digest(&mut client, "b"));
}
