//! Keys that are created with a TTL.

use std::ops::RangeInclusive;

use redis::Connection;

use testkit::info::{info_number, layout_of};
use testkit::replication::{Pair, wait_for_replica};
use testkit::server::{server_version, wait_until, with_aof, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, error, run};

use crate::replication::replica_setup;

/// A time in the year 2100, in seconds since 1970.
const FAR: i64 = 4_102_444_800;

/// Commands that create a filter: the parts before and after the options.
const CREATIONS: [(&str, &str); 12] = [
    ("BF.RESERVE key 0.01 100", ""),
    ("BF.RESERVE key 0.01 100 COUNTING", ""),
    ("BF.RESERVE key 0.01 100 LAYOUT classic", ""),
    ("BF.INSERT key", "ITEMS a b"),
    ("BF.INSERT key LAYOUT classic", "ITEMS a b"),
    ("BF.RESERVE key 0.01 100 WINDOW 604800", ""),
    ("BF.RESERVE key 0.01 100 ROLLING", ""),
    ("BF.INSERT key WINDOW 604800 REFRESH TTL 1000", "ITEMS a b"),
    ("CF.RESERVE key 100", ""),
    ("CF.RESERVE key 100 LAYOUT classic", ""),
    ("CF.INSERT key", "ITEMS a b"),
    ("CF.INSERTNX key LAYOUT classic", "ITEMS a b"),
];

/// Returns the prefix of the commands of a line, `BF` or `CF`.
fn family(line: &str) -> &str {
    line.split('.').next().expect("a prefix")
}

/// Returns a range that contains the time at which a key expires, in milliseconds since 1970. The range is wide before
/// 7.0: the first releases of Redis 6.2 only let modules set a relative TTL.
fn expire_time(client: &mut Connection, key: &str) -> RangeInclusive<i64> {
    let now = |client: &mut Connection| {
        let [seconds, microseconds]: [i64; 2] = ask(client, "TIME");
        1000 * seconds + microseconds / 1000
    };
    let before = now(client);
    let left: i64 = ask(client, &format!("PTTL {key}"));
    assert!(left > 0, "{key} does not expire: {left}");
    let slack = if server_version() < (7, 0) { 10_000 } else { 1 };
    before + left - slack..=now(client) + left + slack
}

#[test]
fn a_key_is_created_with_a_ttl() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (before, after) in CREATIONS {
        for (option, milliseconds) in [("EX 1000", 1_000_000), ("px 1000000", 1_000_000)] {
            run(&mut client, "DEL key").unwrap();
            run(&mut client, &format!("{before} {option} {after}")).unwrap();
            let left: i64 = ask(&mut client, "PTTL key");
            assert!((milliseconds - 60_000..=milliseconds).contains(&left), "{before} {option}: {left}");
        }
        for option in [format!("EXAT {FAR}"), format!("PXAT {FAR}000")] {
            run(&mut client, "DEL key").unwrap();
            run(&mut client, &format!("{before} {option} {after}")).unwrap();
            assert!(expire_time(&mut client, "key").contains(&(1000 * FAR)), "{before} {option}");
        }
        // The TTL belongs to the key, so later additions do not change it.
        let insert = format!("{}.INSERT key", family(before));
        run(&mut client, &format!("{insert} EX 5 ITEMS c")).unwrap();
        assert!(expire_time(&mut client, "key").contains(&(1000 * FAR)), "{before}");
        run(&mut client, "PERSIST key").unwrap();
        for (item, option) in [("d", "EX 5"), ("e", "EXAT 1")] {
            assert!(run(&mut client, &format!("{insert} {option} ITEMS {item}")).is_ok(), "{before} {option}");
        }
        assert_eq!(ask::<i64>(&mut client, "PTTL key"), -1, "{before}");
    }
    // Without an option, a key has no TTL.
    run(&mut client, "BF.RESERVE other 0.01 100").unwrap();
    assert_eq!(ask::<i64>(&mut client, "PTTL other"), -1);
}

#[test]
fn a_bad_ttl_is_an_error_and_creates_nothing() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let bad = ["0", "-1", "soon", "1.5", "9223372036854775807", "9223372036854775808", "''"];
    for (before, after) in CREATIONS {
        let options = ["EX", "PX", "EXAT", "PXAT"].into_iter();
        let bad = options.clone().flat_map(|option| bad.map(|value| format!("{option} {value}")));
        // PXAT accepts this number: it is a valid time in milliseconds.
        let bad = bad.filter(|option| option != "PXAT 9223372036854775807");
        for option in bad {
            let text = error(&mut client, &format!("{before} {option} {after}"));
            assert_eq!(
                text, "ERR invalid expire time: EX, PX, EXAT and PXAT must be a whole number above 0",
                "{before} {option}"
            );
        }
        for option in ["EX 10 EX 10", "EX 10 PXAT 9000000000000"] {
            assert_eq!(
                error(&mut client, &format!("{before} {option} {after}")),
                "ERR repeated argument: give each option once",
                "{before}"
            );
        }
        assert_eq!(ask::<i64>(&mut client, "EXISTS key"), 0, "{before}");
    }
    assert_eq!(
        error(&mut client, "BF.RESERVE key 0.01 100 EX"),
        "ERR invalid expire time: EX, PX, EXAT and PXAT must be a whole number above 0"
    );
    run(&mut client, "BF.RESERVE there 0.01 100").unwrap();
    assert!(error(&mut client, "BF.RESERVE there 0.01 100 EX 10").contains("item exists"));
    assert_eq!(ask::<i64>(&mut client, "PTTL there"), -1);
}

/// As with SET. A client whose clock is late sends such a time.
#[test]
fn a_key_whose_time_is_over_is_created_and_gone() {
    for preamble in ["yes", "no"] {
        let pair = Pair::start(with_aof(preamble), replica_setup());
        let (mut client, mut reader) = pair.clients();
        for (before, after) in CREATIONS {
            for option in ["EXAT 1", "EXAT 1000000000", "PXAT 1000000000000"] {
                let line = format!("{before} {option} {after}");
                let reply = Wire::resp2(&pair.master).run(&line);
                match after {
                    "" => assert_eq!(reply, Reply::simple("OK"), "{line}"),
                    _ => assert_eq!(reply, Reply::Array(vec![Reply::Integer(1), Reply::Integer(1)]), "{line}"),
                }
                // The first releases of Redis 6.2 only let modules set a TTL, so that a millisecond is left.
                wait_until("the key has expired", || ask::<i64>(&mut client, "EXISTS key") == 0);
                assert_eq!(ask::<i64>(&mut client, &format!("{}.EXISTS key a", family(before))), 0, "{line}");
                // The next creation does not meet the key that is over.
                run(&mut client, &format!("{before} {after}")).unwrap();
                wait_for_replica(&mut client, &mut reader);
                for client in [&mut client, &mut reader] {
                    assert_eq!(ask::<i64>(client, "EXISTS key"), 1, "{line}");
                    assert_eq!(ask::<i64>(client, "PTTL key"), -1, "{line}");
                }
                run(&mut client, "DEL key").unwrap();
            }
        }
        run(&mut client, "BF.INSERT key EXAT 1 ITEMS a").unwrap();
        wait_until("the last key has expired", || ask::<i64>(&mut client, "EXISTS key") == 0);
        wait_for_replica(&mut client, &mut reader);
        assert_eq!(ask::<i64>(&mut reader, "DBSIZE"), 0);
        assert_eq!(info_number(&mut reader, "bf", "bf_rejected_replicated"), 0);
        let restarted = with_aof(preamble).on(testkit::server::copy_of(pair.master.folder())).start();
        assert_eq!(ask::<i64>(&mut restarted.connect(), "EXISTS key"), 0);
    }
}

#[test]
fn a_replica_and_a_restart_keep_the_ttl() {
    for preamble in ["yes", "no"] {
        let pair = Pair::start(with_aof(preamble), replica_setup());
        let (mut client, mut reader) = pair.clients();
        let mut keys = Vec::new();
        for (number, (before, after)) in CREATIONS.into_iter().enumerate() {
            for (option, name) in [("EX 100000", "in"), ("PXAT 4102444800123", "at")] {
                let key = format!("{name}-{number}");
                let before = before.replacen("key", &key, 1);
                run(&mut client, &format!("{before} {option} {after}")).unwrap();
                keys.push(key);
            }
        }
        wait_for_replica(&mut client, &mut reader);
        let agree = |one: &RangeInclusive<i64>, other: &RangeInclusive<i64>| {
            one.start() <= other.end() && other.start() <= one.end()
        };
        let times: Vec<_> = keys.iter().map(|key| expire_time(&mut client, key)).collect();
        for (key, time) in keys.iter().zip(&times) {
            let there = expire_time(&mut reader, key);
            assert!(agree(time, &there), "{key}: {time:?}, replica {there:?}");
            assert!(key.starts_with("in") || there.contains(&4_102_444_800_123), "{key}");
            let layouts = [&mut client, &mut reader].map(|client| layout_of(client, key));
            assert_eq!(layouts[0], layouts[1], "{key}");
        }
        for rewritten in [false, true] {
            if rewritten {
                run(&mut client, "BGREWRITEAOF").unwrap();
                let under_way = ["aof_rewrite_scheduled", "aof_rewrite_in_progress"];
                wait_until("the file is rewritten", || {
                    under_way.iter().all(|field| info_number(&mut client, "persistence", field) == 0)
                });
            }
            let copy = testkit::server::copy_of(pair.master.folder());
            let restarted = with_aof(preamble).on(copy).start();
            let mut restarted = restarted.connect();
            for (key, time) in keys.iter().zip(&times) {
                let there = expire_time(&mut restarted, key);
                assert!(agree(time, &there), "{key}: {time:?}, restarted {there:?}, {preamble} {rewritten}");
            }
        }
    }
}

/// The commands in the file are applied even if their TTL is over.
#[test]
fn an_append_only_file_is_loaded_after_the_ttl_is_over() {
    let server = with_aof("no").start();
    let mut client = server.connect();
    for (number, (before, after)) in CREATIONS.into_iter().enumerate() {
        let before = before.replacen("key", &format!("key-{number}"), 1);
        run(&mut client, &format!("{before} PX 300 {after}")).unwrap();
    }
    // This copies the file before the server deletes the expired keys, if the machine is fast enough.
    let copy = testkit::server::copy_of(server.folder());
    let keys: Vec<_> = (0..CREATIONS.len()).map(|number| format!("key-{number}")).collect();
    let there = format!("EXISTS {}", keys.join(" "));
    wait_until("all have expired", || ask::<i64>(&mut client, &there) == 0);
    let restarted = with_aof("no").on(copy).start();
    let mut client = restarted.connect();
    assert_eq!(ask::<i64>(&mut client, &there), 0);
    assert_eq!(info_number(&mut client, "bf", "bf_rejected_replicated"), 0);
    assert!(!restarted.log().contains("rejected"), "{}", restarted.log());
}

#[test]
fn no_time_passes_in_a_transaction() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    client.run("MULTI");
    client.run("BF.INSERT key PX 10 ITEMS a");
    client.run("DEBUG SLEEP 0.05");
    client.run("BF.EXISTS key a");
    let replies = client.run("EXEC");
    assert_eq!(replies, Reply::Array(vec![Reply::integers(&[1]), Reply::simple("OK"), Reply::Integer(1)]));
}
