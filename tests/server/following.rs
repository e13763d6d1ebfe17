//! BF.CHANGES, by which clients keep copies of filters that follow the server's.

use std::thread::sleep;
use std::time::Duration;

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec;
use testkit::clock::{SECOND, stopped, time_at, with_clock};
use testkit::command::item;
use testkit::filter_model::FilterModel;
use testkit::info::digest_of;
use testkit::persistence::wait_for_bgsave;
use testkit::replication::wait_for_replica;
use testkit::server::{server_version, wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, run};

use crate::replication::pair;

/// The example for the crate `redis`.
#[path = "../../examples/live_copy.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program")]
mod live_copy;

const GONE: &str = "ERR changes are gone: copy the filter again";
const HASH: usize = 16;

/// A client with a copy of the filter `key`.
struct Follower {
    wire: Wire,
    copy: Filter,
    cursor: String,
}

impl Follower {
    fn start(server: &Server) -> Follower {
        let mut wire = Wire::resp2(server);
        let (cursor, header) = changes(&mut wire, "");
        let mut copy = Filter::from_header(&header).unwrap();
        for (cursor, data) in wire.scan_dump("key").into_iter().skip(1) {
            copy.load_chunk(cursor as u64, &data).unwrap();
        }
        Follower { wire, copy, cursor }
    }

    /// Inserts what became new. Returns the number of changes.
    fn poll(&mut self) -> usize {
        let mut count = 0;
        loop {
            let (cursor, hashes) = changes(&mut self.wire, &format!("SINCE {}", self.cursor));
            self.copy.insert_changes(&hashes).unwrap();
            self.cursor = cursor;
            count += hashes.len() / HASH;
            if hashes.is_empty() {
                return count;
            }
        }
    }

    fn is_refused(&mut self) -> bool {
        self.wire.run(&format!("BF.CHANGES key SINCE {}", self.cursor)) == Reply::error(GONE)
    }

    /// Checks that the copy equals the filter, bit for bit.
    fn check(&mut self) {
        let chunks = self.wire.scan_dump("key").into_iter().map(|(_, data)| data);
        let own: Vec<_> = codec::dump(&self.copy).map(|chunk| chunk.unwrap().data.into_owned()).collect();
        assert!(chunks.eq(own), "{:?}", self.copy);
    }
}

fn changes(client: &mut Wire, options: &str) -> (String, Vec<u8>) {
    let reply = client.run(format!("BF.CHANGES key {options}").trim_end());
    let [cursor, data] = reply.elements() else { panic!("{reply:?}") };
    (cursor.text(), data.bytes().to_vec())
}

fn memory_usage(client: &mut Wire) -> i64 {
    client.run("MEMORY USAGE key").integer()
}

/// The filters that can be followed, whose additions make them grow.
const FILTERS: &[&str] = &[
    "BF.RESERVE key 0.01 100000 NONSCALING",
    "BF.RESERVE key 0.01 1000",
    "BF.RESERVE key 0.0001 1000 LAYOUT classic",
    "BF.RESERVE key 0.001 1000 LAYOUT valkey",
];

#[test]
fn a_copy_equals_the_filter_whenever_it_has_asked_for_the_changes() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    for reserve in FILTERS {
        run(&mut client, reserve).unwrap();
        let mut model = FilterModel::new("key");
        model.add(&mut client, 0..500);
        wait_for_replica(&mut client, &mut reader);
        // A replica gets the additions in other commands.
        let mut followers = [Follower::start(&pair.master), Follower::start(&pair.replica)];
        for more in [500..501, 501..3000, 3000..3000, 2000..4500] {
            model.add(&mut client, more.clone());
            run(&mut client, "BF.ADDPACKED key FIXED 2 aabbccaa").unwrap();
            run(&mut client, "BF.INSERT key ITEMS some more words").unwrap();
            wait_for_replica(&mut client, &mut reader);
            for follower in &mut followers {
                let count = follower.poll();
                assert_eq!(count > 10, more.end > more.start + 10, "{reserve} {more:?}: {count}");
                follower.check();
                assert_eq!(follower.poll(), 0, "{reserve}");
            }
        }
        let [cursor, other] = followers.map(|follower| follower.cursor);
        assert!(cursor != other, "a ring belongs to a server");
        run(&mut client, "DEL key").unwrap();
    }
}

#[test]
fn whatever_else_changes_a_filter_ends_what_can_be_asked_for() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    let fresh = |client: &mut Wire| {
        for words in ["DEL key other", "BF.RESERVE key 0.01 100000", "BF.ADD key item", "BF.RESERVE other LIKE key"] {
            assert!(!client.run(words).is_error(), "{words}");
        }
        client.run("BF.ADD other another");
        Follower::start(&server)
    };
    let payload = |client: &mut Wire| client.run("DUMP key").bytes().to_vec();
    for words in [
        "BF.MERGE key 1 other",
        "BF.MERGE key 1 other REPLACE",
        "BF.FOLD key CAPACITY 100",
        "COPY other key REPLACE",
        "RENAME other key",
        "DEBUG RELOAD",
    ] {
        let mut follower = fresh(&mut client);
        if words.starts_with("COPY") && server_version() < (6, 2) {
            continue;
        }
        assert!(!client.run(words).is_error(), "{words}");
        assert!(follower.is_refused(), "{words}");
        Follower::start(&server).check();
    }
    let mut follower = fresh(&mut client);
    for (cursor, data) in client.scan_dump("other").into_iter().skip(1) {
        assert_eq!(client.load_chunk("key", cursor, &data), Reply::simple("OK"));
    }
    assert!(follower.is_refused(), "a chunk was OR-ed in");
    let mut follower = fresh(&mut client);
    let bytes = payload(&mut client);
    client.run_words(&[&b"RESTORE"[..], b"key", b"0", &bytes, b"REPLACE"]);
    assert!(follower.is_refused(), "restored");
    for words in ["DEL key", "FLUSHALL", "FLUSHALL ASYNC", "PEXPIRE key 0", "UNLINK key", "RENAME key elsewhere"] {
        let mut follower = fresh(&mut client);
        client.run(words);
        let missing = client.run(&format!("BF.CHANGES key SINCE {}", follower.cursor));
        assert_eq!(missing, Reply::error("ERR not found"), "{words}");
        client.run("BF.RESERVE key 0.01 100000");
        assert!(follower.is_refused(), "{words}");
    }
    // A filter that was renamed there and back is the same.
    let mut follower = fresh(&mut client);
    client.run("RENAME key elsewhere");
    client.run("BF.ADD elsewhere one");
    client.run("RENAME elsewhere key");
    assert_eq!(follower.poll(), 1);
    follower.check();
}

#[test]
fn a_cursor_of_another_server_is_rejected() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    run(&mut client, "BF.ADD key item").unwrap();
    wait_for_replica(&mut client, &mut reader);
    let mut follower = Follower::start(&pair.master);
    let mut of_replica = Follower::start(&pair.replica);
    // The replica becomes the master, and keeps its own followers.
    run(&mut reader, "REPLICAOF NO ONE").unwrap();
    run(&mut reader, "BF.ADD key another").unwrap();
    assert_eq!(of_replica.poll(), 1);
    of_replica.check();
    follower.wire = Wire::resp2(&pair.replica);
    assert!(follower.is_refused());
    // The same server, after it was killed. The save for the replica may still be running.
    wait_for_bgsave(&mut client);
    run(&mut client, "SAVE").unwrap();
    let restarted = with_debug(Setup::oxbloom()).on(pair.master.kill()).start();
    follower.wire = Wire::resp2(&restarted);
    assert!(follower.is_refused());
    Follower::start(&restarted).check();
}

#[test]
fn the_changes_since_a_cursor_are_kept_up_to_a_size() {
    let server = Setup::oxbloom().module_arguments("changes-size 160").start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000001 1000");
    let (first, _) = changes(&mut client, "");
    for number in 0..10 {
        client.run(&format!("BF.ADD key {number}"));
    }
    let (end, all) = changes(&mut client, &format!("SINCE {first}"));
    assert_eq!(all.len(), 10 * HASH);
    // A part of them, and the rest.
    for (count, expected) in [("1", 1), ("9", 9), ("10", 10), ("65536", 10)] {
        let (part, hashes) = changes(&mut client, &format!("COUNT {count} SINCE {first}"));
        assert_eq!(hashes, all[..expected * HASH]);
        let (after, rest) = changes(&mut client, &format!("since {part} count 10"));
        assert_eq!((after, rest.as_slice()), (end.clone(), &all[expected * HASH..]));
    }
    client.run("BF.MADD key 0 1 2 another");
    assert_eq!(client.run(&format!("BF.CHANGES key SINCE {first}")), Reply::error(GONE));
    assert_eq!(changes(&mut client, &format!("SINCE {end}")).1.len(), HASH, "duplicates are no changes");
    // A position that is not reached yet, and another epoch.
    let (epoch, _) = end.split_once('-').unwrap();
    for cursor in [format!("{epoch}-c"), format!("{epoch}-ffffffffffffffff"), "0-0".to_owned()] {
        assert_eq!(client.run(&format!("BF.CHANGES key SINCE {cursor}")), Reply::error(GONE), "{cursor}");
    }
    for words in ["", "x", "1", "-", "1-", "-1", "1-g", "+1--1", "1-2-3", "12345678901234567-0"] {
        let reply = client.run_words(&["BF.CHANGES", "key", "SINCE", words]);
        assert_eq!(reply, Reply::error("ERR bad cursor: SINCE must be the cursor of the last reply"), "{words}");
    }
    for count in ["0", "65537", "-1", "x", "18446744073709551616"] {
        let reply = client.run(&format!("BF.CHANGES key COUNT {count}"));
        assert_eq!(reply, Reply::error("ERR bad count: COUNT must be a whole number from 1 to 65536"), "{count}");
    }
    for words in ["BF.CHANGES key SINCE", "BF.CHANGES key COUNT", "BF.CHANGES key 1 SINCE"] {
        assert_eq!(client.run(words), Reply::error("ERR syntax error"), "{words}");
    }
    // The smallest ring has one change.
    client.run("CONFIG SET bf.changes-size 0");
    client.run("RENAME key other");
    client.run("BF.ADD key item");
    let (cursor, _) = changes(&mut client, "");
    client.run("BF.ADD key 1");
    assert_eq!(changes(&mut client, &format!("SINCE {cursor}")).1.len(), HASH);
}

#[test]
fn the_memory_of_changes_is_counted_limited_and_freed_a_minute_after_the_last_question() {
    let server = stopped(with_clock());
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.01 1000");
    let alone = memory_usage(&mut client);
    let (cursor, _) = changes(&mut client, "");
    let followed = memory_usage(&mut client);
    assert!((alone + 65_536..alone + 66_000).contains(&followed), "{alone} {followed}");
    let turn = |client: &mut Wire, seconds: i64| client.run(&format!("BF.CLOCK key {}", time_at(seconds * SECOND)));
    turn(&mut client, 59);
    sleep(Duration::from_millis(300));
    assert_eq!(memory_usage(&mut client), followed);
    changes(&mut client, &format!("SINCE {cursor}"));
    turn(&mut client, 118);
    sleep(Duration::from_millis(300));
    assert_eq!(memory_usage(&mut client), followed, "the question at 59 s was a minute later");
    turn(&mut client, 120);
    wait_until("the changes are freed", || memory_usage(&mut client) == alone);
    assert_eq!(client.run(&format!("BF.CHANGES key SINCE {cursor}")), Reply::error(GONE));
    if server_version() >= (7, 0) {
        client.run("CONFIG SET bf.filter-memory-limit 60000");
        let limited = client.run("BF.CHANGES key");
        assert!(limited.error_text().contains("over bf.filter-memory-limit"), "{limited:?}");
        client.run("CONFIG SET bf.filter-memory-limit 0");
    }
    client.run("CONFIG SET maxmemory 1");
    assert!(client.run("BF.CHANGES key").error_text().contains("over maxmemory"));
    assert_eq!(memory_usage(&mut client), alone);
    client.run("CONFIG SET maxmemory 0");
    changes(&mut client, "");
}

#[test]
fn changes_are_asked_for_in_transactions_scripts_and_resp3() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp3(&server);
    client.run("BF.RESERVE key 0.01 1000");
    // The cursor and the header belong together: the addition after them is a change.
    for words in ["MULTI", "BF.CHANGES key", "BF.ADD key item", "BF.CHANGES key"] {
        client.run(words);
    }
    let replies = client.run("EXEC");
    let [first, _, second] = replies.elements() else { panic!("{replies:?}") };
    assert_ne!(first.elements()[1], second.elements()[1]);
    let since = format!("BF.CHANGES key SINCE {}", first.elements()[0].text());
    let reply = client.run(&since);
    assert_eq!(reply.elements()[1].bytes().len(), HASH);
    let script = "return redis.call('BF.CHANGES', KEYS[1], 'SINCE', ARGV[1])";
    let cursor = first.elements()[0].text();
    assert_eq!(client.run_words(&["EVAL", script, "1", "key", &cursor]), reply);
    if server_version() >= (7, 0) {
        assert_eq!(client.run_words(&["EVAL_RO", script, "1", "key", &cursor]), reply);
    }
}

#[test]
fn filters_whose_items_can_go_are_rejected_by_name() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for options in ["COUNTING", "WINDOW 60", "ROLLING"] {
        client.run(&format!("BF.RESERVE key 0.01 100 {options}"));
        let alone = memory_usage(&mut client);
        for words in ["BF.CHANGES key", "BF.CHANGES key SINCE 0-0"] {
            let reply = client.run(words);
            assert!(reply.error_text().contains("COUNTING, WINDOW or ROLLING"), "{reply:?}");
        }
        assert_eq!(memory_usage(&mut client), alone);
        client.run("DEL key");
    }
    client.run("CF.ADD key item");
    assert!(client.run("BF.CHANGES key").error_text().starts_with("WRONGTYPE"));
}

#[test]
fn many_filters_are_followed_at_the_same_time() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    // More than 64, so that their addresses share marks with those of filters that nobody follows.
    let mut wire = Wire::resp2(&server);
    let cursors: Vec<_> = (0..200)
        .map(|number| {
            run(&mut client, &format!("BF.RESERVE key{number} 0.000001 100 SEED 7")).unwrap();
            (number % 2 == 0).then(|| wire.run(&format!("BF.CHANGES key{number}")).elements()[0].text())
        })
        .collect();
    for number in 0..200 {
        run(&mut client, &format!("BF.MADD key{number} a {number}")).unwrap();
    }
    for number in (0..200).step_by(10) {
        run(&mut client, &format!("UNLINK key{number}")).unwrap();
    }
    for (number, cursor) in cursors.iter().enumerate().filter(|(number, _)| number % 10 != 0) {
        let Some(cursor) = cursor else { continue };
        let reply = wire.run(&format!("BF.CHANGES key{number} SINCE {cursor}"));
        let [_, hashes] = reply.elements() else { panic!("{reply:?}") };
        assert_eq!(hashes.bytes().len(), 2 * HASH, "{number}");
    }
    assert_ne!(digest_of(&mut client, "key2"), digest_of(&mut client, "key4"));
}

#[test]
fn the_example_for_rust_follows_a_filter() {
    let server = Setup::oxbloom().start();
    let (mut client, mut writer) = (server.connect(), server.connect());
    for reserve in FILTERS {
        run(&mut writer, reserve).unwrap();
        let mut model = FilterModel::new("key");
        model.add(&mut writer, 0..2000);
        let mut copy = live_copy::LiveCopy::start(&mut client, "key").unwrap();
        model.add(&mut writer, 2000..5000);
        copy.poll(&mut client, "key").unwrap();
        assert!(model.items.iter().all(|&number| copy.filter.contains(item(number))), "{reserve}");
        run(&mut writer, "DEL key").unwrap();
        let error = copy.poll(&mut client, "key").unwrap_err();
        assert!(error.to_string().contains("not found"), "{error}");
    }
}
