//! Counting filters: an item stays present until it has been removed as often as it was added, also on replicas and
//! after restarts.

use std::collections::VecDeque;
use std::ops::Range;

use redis::{Connection, Value};
use xxhash_rust::xxh3::xxh3_64;

use crate::commands::{FULL, WRONG_TYPE, events, protocols};
use crate::replication::{master_setup, replica_setup};
use models::random::Random;
use testkit::command::{ABSENT, many};
use testkit::counting_workload::CountingWorkload;
use testkit::filter_model::{FilterModel, counting_in_three_chunks};
use testkit::info::{assert_figures_add_up, digest, digest_of, info_field};
use testkit::memory::grow;
use testkit::persistence::{aof_commands, rewrite_aof, shown};
use testkit::replication::{Pair, follow, start_replica, wait_for_replica};
use testkit::server::{server_version, with_aof, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, run, run_words};

const BAD_LAYOUT: &str = "ERR bad layout: LAYOUT takes native, classic or valkey";
const NOT_COUNTING: &str = "ERR this filter does not support BF.DEL and BF.COUNT: create it with \
                            BF.RESERVE key error_rate capacity COUNTING";
const CLASSIC_COUNTING: &str =
    "ERR COUNTING, LAYOUT classic or valkey, and WINDOW or ROLLING exclude each other: leave out all but one";
const FOREIGN_CHUNK: &str =
    "ERR received a chunk of another filter, or one from before its last write: copy again from iterator 0";

/// An error rate so low that these tests meet no false positive.
const EXACT: &str = "0.000000000000000001";

fn array<const N: usize>(elements: [&Reply; N]) -> Reply {
    Reply::Array(elements.map(Clone::clone).into())
}

fn ok() -> Reply {
    Reply::simple("OK")
}

/// Returns one field of BF.INFO.
fn field(client: &mut Wire, key: &str, token: &str, label: &str) -> Reply {
    client.run(&format!("BF.INFO {key} {token}")).single_field(label)
}

fn layout(client: &mut Wire, key: &str) -> String {
    field(client, key, "LAYOUT", "Layout").text()
}

#[test]
fn the_count_of_an_item_is_its_additions_minus_its_removals() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        let integers = Reply::integers;
        let expected = [
            (format!("BF.RESERVE key {EXACT} 100 COUNTING"), ok()),
            ("BF.COUNT key a".into(), Reply::Integer(0)),
            ("BF.ADD key a".into(), yes.clone()),
            ("BF.ADD key a".into(), no.clone()),
            ("BF.COUNT key a".into(), Reply::Integer(2)),
            ("BF.MADD key a b b".into(), array([&no, &yes, &no])),
            ("BF.MCOUNT key a b c".into(), integers(&[3, 2, 0])),
            ("BF.INSERT key ITEMS b c".into(), array([&no, &yes])),
            ("BF.INSERT key NX ITEMS a d d".into(), array([&no, &yes, &no])),
            ("BF.INSERT key NX NOCREATE ITEMS a b".into(), array([&no, &no])),
            ("BF.MCOUNT key a b c d".into(), integers(&[3, 3, 1, 1])),
            ("BF.CARD key".into(), Reply::Integer(4)),
            ("BF.DEL key d".into(), yes.clone()),
            ("BF.DEL key d".into(), no.clone()),
            ("BF.EXISTS key d".into(), no.clone()),
            ("BF.MDEL key a z a c c".into(), array([&yes, &no, &yes, &yes, &no])),
            ("BF.MCOUNT key a b c d".into(), integers(&[1, 3, 0, 0])),
            ("BF.MEXISTS key a b c d".into(), array([&yes, &yes, &no, &no])),
            ("BF.CARD key".into(), Reply::Integer(2)),
            ("BF.MDEL key a b b b".into(), array([&yes, &yes, &yes, &yes])),
            ("BF.MEXISTS key a b c d".into(), array([&no, &no, &no, &no])),
            ("BF.CARD key".into(), Reply::Integer(0)),
            // A removed item can be added again.
            ("BF.ADD key a".into(), yes.clone()),
            ("BF.COUNT key a".into(), Reply::Integer(1)),
        ];
        for (words, reply) in expected {
            assert_eq!(client.run(&words), reply, "{words}");
        }
    }
}

#[test]
fn a_missing_key_has_nothing_to_remove_or_count() {
    let server = Setup::oxbloom().start();
    for (mut client, _, no) in protocols(&server) {
        assert_eq!(client.run("BF.DEL nokey a"), no);
        assert_eq!(client.run("BF.MDEL nokey a b"), array([&no, &no]));
        assert_eq!(client.run("BF.COUNT nokey a"), Reply::Integer(0));
        assert_eq!(client.run("BF.MCOUNT nokey a b"), Reply::integers(&[0, 0]));
        assert_eq!(client.run("BF.INSERT nokey COUNTING NX NOCREATE ITEMS a"), Reply::error("ERR not found"));
        assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
    }
}

#[test]
fn other_filters_reject_removals_with_advice_and_stay_as_they_are() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        for name in ["native", "classic"] {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE key 0.01 100 LAYOUT {name}"));
            client.run("BF.ADD key a");
            let before = client.run("DUMP key");
            for words in ["BF.DEL key a", "BF.DEL key z", "BF.MDEL key a z", "BF.COUNT key a", "BF.MCOUNT key a z"] {
                assert_eq!(client.run(words), Reply::error(NOT_COUNTING), "{words}");
            }
            // COUNTING is rejected for an existing filter without it. NX alone is accepted: in any filter, it skips
            // items that are present.
            let contradicts = Reply::error(
                "ERR the filter exists without COUNTING, or with another LAYOUT: leave out this option, or use another key",
            );
            assert_eq!(client.run("BF.INSERT key NX COUNTING ITEMS a"), contradicts);
            assert_eq!(client.run("DUMP key"), before);
            assert_eq!(client.run("BF.INSERT key NX ITEMS a b b"), array([&no, &yes, &no]));
            assert_eq!(layout(&mut client, "key"), name);
        }
        client.run("SET text value");
        for words in ["BF.DEL text a", "BF.MDEL text a", "BF.COUNT text a", "BF.MCOUNT text a"] {
            assert_eq!(client.run(words), Reply::error(WRONG_TYPE), "{words}");
        }
    }
}

#[test]
fn the_option_counting_is_given_once_in_any_order_and_case_and_not_with_layout_classic() {
    for default in ["native", "classic"] {
        let server = Setup::oxbloom().module_arguments(&format!("bf-layout {default}")).start();
        let mut client = Wire::resp2(&server);
        for line in [
            "BF.RESERVE key 0.01 100 COUNTING",
            "BF.RESERVE key 0.01 100 counting EXPANSION 3",
            "BF.RESERVE key 0.01 100 NONSCALING Counting SEED 7",
            "BF.RESERVE key 0.01 100 LAYOUT native EXPANSION 3 SEED 7 COUNTING",
            "BF.INSERT key COUNTING ITEMS a",
            "BF.INSERT key nx counting CAPACITY 5 SEED 7 ITEMS a",
            "BF.INSERT key LAYOUT native COUNTING EXPANSION 3 ERROR 0.1 NX ITEMS a",
        ] {
            assert!(!client.run(line).is_error(), "{line}");
            assert_eq!(layout(&mut client, "key"), "counting", "{line}");
            assert_eq!(client.run("TYPE key"), Reply::simple("oxbloom--"));
            client.run("DEL key");
        }
        let repeated = "ERR repeated argument: give each option once";
        let rejected = [
            ("BF.RESERVE key 0.01 100 COUNTING COUNTING", repeated),
            ("BF.RESERVE key 0.01 100 LAYOUT classic COUNTING", CLASSIC_COUNTING),
            ("BF.RESERVE key 0.01 100 COUNTING LAYOUT classic", CLASSIC_COUNTING),
            ("BF.RESERVE key 0.01 100 COUNTING LAYOUT counting", BAD_LAYOUT),
            ("BF.RESERVE key 0.01 100 COUNTING NX", "ERR unknown option 'NX': correct or remove it"),
            ("BF.RESERVE key 0.01 100 COUNTING NONSCALING EXPANSION 2", "Nonscaling filters cannot expand"),
            ("BF.INSERT key COUNTING COUNTING ITEMS a", repeated),
            ("BF.INSERT key NX NX ITEMS a", repeated),
            ("BF.INSERT key LAYOUT classic COUNTING ITEMS a", CLASSIC_COUNTING),
            ("BF.INSERT key COUNTING LAYOUT classic NX ITEMS a", CLASSIC_COUNTING),
            ("BF.INSERT key COUNTING LAYOUT counting ITEMS a", BAD_LAYOUT),
            ("BF.INSERT key COUNT ITEMS a", "Unknown argument received"),
        ];
        for (line, error) in rejected {
            assert_eq!(client.run(line), Reply::error(error), "{line}");
        }
        assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
    }
}

#[test]
fn info_reports_the_figures_of_a_counting_filter() {
    let server = Setup::oxbloom().start();
    for (mut client, _, no) in protocols(&server) {
        client.run("FLUSHALL");
        client.run("BF.RESERVE key 0.01 1000 SEED 7 COUNTING");
        client.run("BF.RESERVE native 0.01 1000 SEED 7");
        client.run("BF.RESERVE classic 0.01 1000 LAYOUT classic");
        client.run("BF.RESERVE fixed 0.01 1000 NONSCALING COUNTING");
        let info = client.run("BF.INFO key");
        let facts = ["Capacity", "Number of filters", "Number of items inserted", "Expansion rate"];
        assert_eq!(facts.map(|fact| info.field(fact).clone()), [1000, 1, 0, 2].map(Reply::Integer));
        assert_eq!(layout(&mut client, "key"), "counting");
        assert_eq!(layout(&mut client, "fixed"), "counting");
        assert_eq!(field(&mut client, "key", "SEED", "Seed"), Reply::bulk("7"));
        let nothing = field(&mut client, "fixed", "EXPANSION", "Expansion rate");
        assert!([Reply::NullBulk, Reply::Null].contains(&nothing), "{nothing:?}");
        for word in ["FILL", "FPR"] {
            assert_eq!(client.run(&format!("BF.INFO key {word}")), client.run(&format!("BF.INFO native {word}")));
        }
        let estimated = "Number of items is an estimate";
        assert_eq!(field(&mut client, "key", "ESTIMATED", estimated), no);
        assert_eq!(field(&mut client, "native", "estimated", estimated), no);
        assert_eq!(field(&mut client, "classic", "Estimated", estimated), nothing);
        let debug = client.run("BF.DEBUG key");
        assert_eq!(debug.elements().len(), 2);
        assert!(debug.elements()[1].text().contains("capacity:1000 size:0"), "{debug:?}");
        // It still has a single layer after growth.
        let items: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
        client.run(&format!("BF.MADD key {}", items.join(" ")));
        let debug = client.run("BF.DEBUG key");
        assert_eq!(debug.elements().len(), 2);
        let card = client.run("BF.CARD key").integer();
        assert!((4900..=5000).contains(&card), "{card}");
        assert_eq!(field(&mut client, "key", "FILTERS", "Number of filters"), Reply::Integer(1));
        let capacity = field(&mut client, "key", "CAPACITY", "Capacity").integer();
        assert!((5000..=16_384).contains(&capacity), "{capacity}");
        assert!(debug.elements()[1].text().contains(&format!("capacity:{capacity} size:{card} ")), "{debug:?}");
    }
}

#[test]
fn a_loaded_header_may_mark_the_number_of_items_as_an_estimate() {
    let server = with_debug(Setup::oxbloom()).start();
    for (mut client, yes, _) in protocols(&server) {
        client.run("FLUSHALL");
        // In both headers, the number of items is the third 64-bit number after the first 32 bytes.
        let place = 32 + 16;
        for (key, words) in [("native", ""), ("counting", "COUNTING")] {
            client.run(&format!("BF.RESERVE {key} 0.01 100 {words}"));
            let (_, mut header) = client.scan_dump(key).remove(0);
            // The highest bit marks an estimate.
            header[place + 7] |= 0x80;
            let end = header.len() - 8;
            let checksum = xxh3_64(&header[..end]);
            header[end..].copy_from_slice(&checksum.to_le_bytes());
            client.run(&format!("DEL {key}"));
            assert_eq!(client.load_chunk(key, 1, &header), ok());
            client.run(&format!("BF.MADD {key} a b"));
            client.run("DEBUG RELOAD");
            assert_eq!(field(&mut client, key, "ESTIMATED", "Number of items is an estimate"), yes, "{key}");
            assert_eq!(client.run(&format!("BF.CARD {key}")), Reply::Integer(2), "{key}");
        }
    }
}

/// Adds or removes item number `number` this many times. Returns the number of additions that found it new, or of
/// removals that found it present.
fn often(client: &mut Connection, command: &str, key: &str, number: u64, mut times: u64) -> u64 {
    let mut sum = 0;
    while times > 0 {
        let some = times.min(10_000);
        sum += many::<Vec<u64>>(client, command, key, &vec![number; some as usize]).iter().sum::<u64>();
        times -= some;
    }
    sum
}

fn count(client: &mut Connection, key: &str, number: u64) -> u64 {
    many(client, "BF.COUNT", key, &[number])
}

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
fn a_full_filter_has_room_again_when_items_are_removed() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        let full = Reply::error(FULL);
        client.run(&format!("BF.RESERVE key {EXACT} 4 NONSCALING COUNTING"));
        assert_eq!(client.run("BF.MADD key a b a c d e a"), array([&yes, &yes, &no, &yes, &yes, &full]));
        // Items that are present can be added again, but no others.
        assert_eq!(client.run("BF.ADD key a"), no);
        assert_eq!(client.run("BF.ADD key e"), full);
        assert_eq!(client.run("BF.MCOUNT key a e"), Reply::integers(&[3, 0]));
        assert_eq!(client.run("BF.INSERT key NX ITEMS a b e a"), array([&no, &no, &full]));
        assert_eq!(client.run("BF.MCOUNT key a b e"), Reply::integers(&[3, 1, 0]));
        // Two of its three occurrences are left, so the item still takes up its slot.
        assert_eq!(client.run("BF.DEL key a"), yes);
        assert_eq!(client.run("BF.ADD key e"), full);
        assert_eq!(client.run("BF.MDEL key d e"), array([&yes, &no]));
        assert_eq!(client.run("BF.INSERT key NX ITEMS a e d"), array([&no, &yes, &full]));
        assert_eq!(client.run("BF.MDEL key a a b c e"), array([&yes, &yes, &yes, &yes, &yes]));
        assert_eq!(client.run("BF.MADD key f g h i j"), array([&yes, &yes, &yes, &yes, &full]));
        assert_eq!(client.run("BF.CARD key"), Reply::Integer(4));
        assert_eq!(client.run("BF.INFO key FILTERS").single_field("Number of filters"), Reply::Integer(1));
    }
}

/// Adds or removes numbered items. Returns the number of items that were new when added, or present when removed.
fn each(client: &mut Connection, command: &str, numbers: std::ops::Range<u64>) -> u64 {
    many::<Vec<u64>>(client, command, "key", &numbers.collect::<Vec<_>>()).iter().sum()
}

#[test]
fn items_are_removed_in_any_order_before_and_after_growth_and_the_filter_shrinks_again() {
    const ITEMS: u64 = 20_000;
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {EXACT} 10 EXPANSION 1 COUNTING SEED 7")).unwrap();
    let usage = |client: &mut Connection| ask::<u64>(client, "MEMORY USAGE key");
    let state = |client: &mut Connection| ask::<Vec<u64>>(client, "BF.INFO key CAPACITY")[0];
    let empty = (usage(&mut client), state(&mut client));
    for (round, name) in
        ["the oldest first", "the newest first", "at random", "every other one"].into_iter().enumerate()
    {
        let mut random = Random(round as u64);
        assert_eq!((usage(&mut client), state(&mut client)), empty, "{name}");
        // Each item is added twice, the second time after the filter has grown.
        for again in [false, true] {
            for first in (0..ITEMS).step_by(1000) {
                assert_eq!(each(&mut client, "BF.MADD", first..first + 1000), if again { 0 } else { 1000 });
            }
        }
        let largest = (usage(&mut client), state(&mut client));
        assert!((ITEMS..=4 * ITEMS).contains(&largest.1), "{name}: {largest:?}");
        let mut order: Vec<u64> = (0..ITEMS).chain(0..ITEMS).collect();
        match name {
            "the oldest first" => {}
            "the newest first" => order.reverse(),
            "at random" => {
                (1..order.len()).for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
            }
            _ => order.sort_by_key(|number| number % 2),
        }
        let mut left = vec![2; ITEMS as usize];
        let (mut last, mut steps) = (largest, 0);
        for (part, numbers) in order.chunks(1000).enumerate() {
            assert_eq!(many::<Vec<u64>>(&mut client, "BF.MDEL", "key", numbers), [1; 1000], "{name}");
            numbers.iter().for_each(|&number| left[number as usize] -= 1);
            let now = (usage(&mut client), state(&mut client));
            assert!(now.1 <= last.1, "{name}: {now:?} after {last:?}");
            steps += u64::from(now.1 < last.1);
            last = now;
            if part % 8 == 7 {
                let all: Vec<u64> = (0..ITEMS).collect();
                assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "key", &all), left, "{name}");
                let there = left.iter().filter(|&&count| count > 0).count() as u64;
                assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), there, "{name}");
                // An eighth of the occurrences takes less than a quarter of the memory.
                let occurrences: u64 = left.iter().sum();
                assert!(occurrences > ITEMS / 4 || now.0 < largest.0 / 4, "{name}: {now:?} of {largest:?}");
            }
            if part == 20 {
                assert_eq!(run(&mut client, "DEBUG RELOAD"), Ok(Value::Okay));
            }
        }
        assert!(steps >= 3, "{name}: it shrank {steps} times");
        assert_eq!(each(&mut client, "BF.MDEL", 0..1000), 0);
        assert_eq!(info_field::<f64>(&mut client, "key", "FILL"), 0.0);
        assert_eq!(info_field::<f64>(&mut client, "key", "FPR"), 0.0);
        assert_figures_add_up(&mut client);
    }
    assert_eq!((usage(&mut client), state(&mut client)), empty);
}

/// A counting filter allocates memory as it is filled. Reserving a large capacity costs nothing.
#[test]
fn a_filter_may_be_reserved_for_any_number_of_items_and_takes_memory_when_they_are_added() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let usage = |client: &mut Connection| ask::<u64>(client, "MEMORY USAGE key");
    let max = i64::MAX.to_string();
    for capacity in ["1", "1000000", "1000000000000", &max] {
        run(&mut client, &format!("BF.RESERVE key 0.01 {capacity} COUNTING SEED 7")).unwrap();
        let room: u64 = info_field(&mut client, "key", "CAPACITY");
        assert_eq!(room, capacity.parse::<u64>().unwrap().max(128));
        assert!(usage(&mut client) < 1000);

        for first in (0..64_000).step_by(4000) {
            each(&mut client, "BF.MADD", first..first + 4000);
            let now = usage(&mut client);
            // The bounds are 10 and 22 bits an item. The upper one also allows for the smallest table.
            let (min, max) = ((first + 4000) * 10 / 8, (first + 4000) * 22 / 8 + 2000);
            assert!((min..max).contains(&now), "{now} bytes for {} items", first + 4000);
        }
        run(&mut client, "DEL key").unwrap();
    }
    // A filter that does not grow is laid out for its full capacity, but still takes memory only for its items.
    run(&mut client, "BF.RESERVE key 0.01 1000000 NONSCALING COUNTING SEED 7").unwrap();
    assert!(usage(&mut client) < 1000);
    each(&mut client, "BF.MADD", 0..1);
    assert!(usage(&mut client) < 100_000, "{}", usage(&mut client));
}

/// In these filters, up to half of the items are false positives when they are added: they have the fingerprint of
/// another item.
#[test]
fn every_removal_finds_its_item_however_high_the_error_rate_is() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (mut random, kind) in [(Random(1), "EXPANSION 1"), (Random(2), "EXPANSION 2"), (Random::unpredictable(), "")] {
        run(&mut client, "DEL key").unwrap();
        run(&mut client, &format!("BF.RESERVE key 0.5 50 {kind} COUNTING")).unwrap();
        let mut filter = CountingWorkload::new("key");
        let mut wire = Wire::resp2(&server);
        for round in 0..100 {
            for _ in 0..10 {
                if random.chance(if round % 10 < 5 { 70 } else { 30 }) {
                    filter.add(&mut random, &mut wire);
                } else {
                    filter.remove(&mut random, &mut wire);
                }
            }
            filter.check(&mut client);
        }
        filter.empty(&mut random, &mut wire);
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

#[test]
fn a_removal_is_an_event_and_touches_a_watched_key_if_it_removed_something() {
    let server = Setup::oxbloom().set("notify-keyspace-events KEA").start();
    let mut subscriber = Wire::resp2(&server);
    subscriber.run("PSUBSCRIBE __keyevent@0__:*");
    let (mut client, mut watcher) = (Wire::resp2(&server), Wire::resp2(&server));
    client.run(&format!("BF.RESERVE key {EXACT} 3 NONSCALING COUNTING"));
    client.run("PUBLISH __keyevent@0__:end x");
    assert_eq!(events(&mut subscriber), ["bf.reserve key"]);
    let steps: [(&str, &[&str]); 19] = [
        ("BF.ADD key a", &["bf.add key"]),
        ("BF.ADD key a", &["bf.add key"]),
        ("BF.MADD key a a", &["bf.add key"]),
        ("BF.INSERT key ITEMS a", &["bf.add key"]),
        ("BF.INSERT key NX ITEMS a", &[]),
        ("BF.INSERT key NX ITEMS a b", &["bf.add key"]),
        ("BF.COUNT key a", &[]),
        ("BF.MCOUNT key a b", &[]),
        ("BF.DEL key z", &[]),
        ("BF.MDEL key y z", &[]),
        ("BF.DEL nokey a", &[]),
        ("BF.MDEL nokey a", &[]),
        ("BF.DEL key a", &["bf.del key"]),
        ("BF.MDEL key a a z b b", &["bf.del key"]),
        ("BF.MADD key b c d", &["bf.add key"]),
        ("BF.ADD key d", &[]),
        ("BF.MADD key d", &[]),
        ("BF.INSERT key NX ITEMS b d", &[]),
        ("BF.INSERT other COUNTING NX ITEMS a a", &["bf.reserve other", "bf.add other"]),
    ];
    for (words, expected) in steps {
        watcher.run("WATCH key nokey other");
        client.run(words);
        client.run("PUBLISH __keyevent@0__:end x");
        assert_eq!(events(&mut subscriber), expected, "{words}");
        watcher.run("MULTI");
        let aborted = watcher.run("EXEC") == Reply::NullArray;
        assert_eq!(aborted, !expected.is_empty(), "{words}");
    }
}

#[test]
fn transactions_scripts_and_functions_remove_and_count() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        client.run("MULTI");
        for words in [
            "BF.INSERT key COUNTING ERROR 0.000001 ITEMS a a",
            "BF.COUNT key a",
            "BF.DEL key a",
            "BF.MDEL key a a",
            "BF.MCOUNT key a b",
        ] {
            assert_eq!(client.run(words), Reply::simple("QUEUED"));
        }
        let replies =
            [array([&yes, &no]), Reply::Integer(2), yes.clone(), array([&yes, &no]), Reply::integers(&[0, 0])];
        assert_eq!(client.run("EXEC"), Reply::Array(replies.into()));
    }
    let mut client = Wire::resp2(&server);
    let mut eval = |command: &str, script: &str| client.run_words(&[command, script, "1", "key"]);
    let script = "redis.call('BF.MADD', KEYS[1], 'x', 'x', 'y')
                  return {redis.call('BF.DEL', KEYS[1], 'y'), redis.call('BF.DEL', KEYS[1], 'y'),
                          redis.call('BF.COUNT', KEYS[1], 'x'), redis.call('BF.MCOUNT', KEYS[1], 'x', 'y')[2]}";
    assert_eq!(eval("EVAL", script), Reply::integers(&[1, 0, 2, 0]));
    if server_version() >= (7, 0) {
        assert!(eval("EVAL_RO", "return redis.call('BF.DEL', KEYS[1], 'x')").is_error());
        assert_eq!(eval("EVAL_RO", "return redis.call('BF.COUNT', KEYS[1], 'x')"), Reply::Integer(2));
        let library = "#!lua name=bloom
            redis.register_function('forget', function(keys, args) return redis.call('BF.DEL', keys[1], args[1]) end)";
        client.run_words(&["FUNCTION", "LOAD", library]);
        assert_eq!(client.run("FCALL forget 1 key x"), Reply::Integer(1));
        assert_eq!(client.run("BF.COUNT key x"), Reply::Integer(1));
    }
}

#[test]
fn items_may_be_any_bytes_and_a_command_may_have_many() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {EXACT} 10 COUNTING")).unwrap();
    let numbers: Vec<u64> = (0..1000).collect();
    assert_eq!(each(&mut client, "BF.MADD", 0..1000), 1000);
    let thirds: Vec<u64> = numbers.iter().copied().filter(|number| number % 3 == 0).collect();
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MADD", "key", &thirds), [0; 334]);
    let counts: Vec<u64> = numbers.iter().map(|number| if number % 3 == 0 { 2 } else { 1 }).collect();
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "key", &numbers), counts);
    assert_eq!(each(&mut client, "BF.MDEL", 0..1000), 1000);
    let left: Vec<u64> = counts.iter().map(|count| count - 1).collect();
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "key", &numbers), left);
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MDEL", "key", &numbers), left);
    for item in [&b""[..], b"\0", b"a\0b", b"\r\n", b"\xff"] {
        for (command, reply) in [("BF.ADD", 1), ("BF.COUNT", 1), ("BF.DEL", 1), ("BF.DEL", 0), ("BF.COUNT", 0)] {
            let words = [command.as_bytes(), b"key", item];
            assert_eq!(run_words(&mut client, &words), Ok(Value::Int(reply)), "{command} {item:?}");
        }
    }
}

#[test]
fn a_server_that_is_out_of_memory_still_removes_items() {
    let server = Setup::oxbloom().set("maxmemory-policy noeviction").start();
    let mut client = Wire::resp2(&server);
    client.run(&format!("BF.RESERVE key {EXACT} 2 EXPANSION 1 COUNTING"));
    client.run("BF.MADD key a b c d e f f");
    assert_eq!(client.run("CONFIG SET maxmemory 1"), ok());
    let rejected = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("OOM "));
    for words in ["BF.ADD key a", "BF.MADD key a", "BF.INSERT key NX ITEMS a", "BF.RESERVE new 0.01 1 COUNTING"] {
        let reply = client.run(words);
        assert!(rejected(&reply), "{words}: {reply:?}");
    }
    assert_eq!(client.run("BF.COUNT key f"), Reply::Integer(2));
    assert_eq!(client.run("BF.DEL key a"), Reply::Integer(1));
    assert_eq!(client.run("BF.DEL nokey a"), Reply::Integer(0));
    let reply = client.run("EVAL return(redis.call('BF.DEL',KEYS[1],'b')) 1 key");
    assert_eq!(reply, Reply::Integer(1));
    assert_eq!(client.run("BF.MDEL key a c d f"), Reply::integers(&[0, 1, 1, 1]));
    assert_eq!(client.run("BF.MCOUNT key a b c d e f"), Reply::integers(&[0, 0, 0, 0, 1, 1]));
    assert!(rejected(&client.run("BF.ADD key a")));
    // Removals give memory back, even if the server is out of memory.
    client.run("CONFIG SET maxmemory 0");
    let mut connection = server.connect();
    each(&mut connection, "BF.MADD", 0..10_000);
    client.run("CONFIG SET maxmemory 1");
    let before = client.run("MEMORY USAGE key").integer();
    assert_eq!(each(&mut connection, "BF.MDEL", 0..9000), 9000);
    assert!(client.run("MEMORY USAGE key").integer() < before / 4);
    client.run("CONFIG SET maxmemory 0");
    assert_eq!(client.run("BF.MADD key a e"), Reply::integers(&[1, 0]));
}

/// A replica applies no limit of its own, so it would accept additions that its master rejected.
#[test]
fn a_rejected_addition_reaches_no_replica_and_removals_make_room() {
    let setup = || with_debug(Setup::oxbloom());
    let pair = Pair::start(setup().module_arguments("filter-memory-limit 20000"), setup());
    let (mut client, mut reader) = pair.clients();
    let mut wire = Wire::resp2(&pair.master);
    wire.run("BF.RESERVE key 0.000001 500 COUNTING SEED 7");
    let rejected = Reply::error(grow::FILTER_LIMIT);
    let added = (0..100_000).take_while(|n| wire.run(&format!("BF.ADD key {n}")) != rejected).count();
    assert!((3000..8000).contains(&added), "{added}");
    let size = || field(&mut Wire::resp2(&pair.master), "key", "SIZE", "Size").integer();
    assert!((16_000..=20_000).contains(&size()), "{}", size());
    // Some other items may still fit, but soon none does.
    let mut batch = vec!["BF.MADD".to_owned(), "key".to_owned()];
    batch.extend((0..10_000).map(|number| format!("other{number}")));
    for number in 0.. {
        let reply = wire.run_words(&batch);
        let replies = reply.elements();
        assert_eq!(replies.last(), Some(&rejected));
        assert!(size() <= 20_000, "{}", size());
        if replies.len() == 1 {
            break;
        }
        // Removes the added items from the batch, so that they are not sent again.
        batch.drain(2..1 + replies.len());
        assert!(number < 100 && batch.len() > 2, "the filter accepts every item");
    }
    let (known, new) = (format!("{}", added - 1), batch[2].clone());
    let none = Reply::Integer(0);
    assert_eq!(wire.run(&format!("BF.ADD key {new}")), rejected);
    assert_eq!(wire.run(&format!("BF.INSERT key NX ITEMS {known} {new}")), array([&none, &rejected]));
    let removed: Vec<String> = (0..added as u64 / 2).map(|number| number.to_string()).collect();
    let reply = wire.run(&format!("BF.MDEL key {} {new}", removed.join(" ")));
    assert_eq!(reply.elements()[..removed.len()], vec![Reply::Integer(1); removed.len()]);
    assert_eq!(reply.elements()[removed.len()], none);
    assert!(size() < 18_000, "{}", size());
    let reply = wire.run(&format!("BF.MADD key {known} {new} {known}"));
    assert_eq!(reply, array([&none, &Reply::Integer(1), &none]));
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(digest(&mut client), digest(&mut reader));
    assert_figures_add_up(&mut client);
}

/// Returns the chunk after a cursor, with its own cursor.
fn chunk_after(client: &mut Wire, key: &str, cursor: i64) -> (i64, Vec<u8>) {
    let reply = client.run(&format!("BF.SCANDUMP {key} {cursor}"));
    let [Reply::Integer(next), data] = reply.elements() else { panic!("{reply:?}") };
    (*next, data.bytes().to_vec())
}

#[test]
fn chunks_of_a_filter_that_was_written_to_are_rejected() {
    let server = Setup::oxbloom().set("rdbcompression no").start();
    let mut client = Wire::resp2(&server);
    counting_in_three_chunks(&mut server.connect(), "whole");
    client.run("BF.ADD whole item");
    for (words, writes) in [
        ("BF.ADD key item", true),
        ("BF.MADD key new", true),
        ("BF.INSERT key NX ITEMS new", true),
        ("BF.DEL key item", true),
        ("BF.MDEL key item absent", true),
        ("BF.MERGE key 1 whole", true),
        ("BF.DEL key absent", false),
        ("BF.MDEL key absent", false),
        ("BF.INSERT key NX ITEMS item", false),
        ("BF.COUNT key item", false),
    ] {
        client.run("DEL key copy");
        assert_eq!(client.run("COPY whole key"), Reply::Integer(1));
        let (mut cursor, mut data) = chunk_after(&mut client, "key", 0);
        for _ in 0..2 {
            assert_eq!(client.load_chunk("copy", cursor, &data), ok());
            (cursor, data) = chunk_after(&mut client, "key", cursor);
        }
        assert!(!client.run(words).is_error(), "{words}");
        // A chunk that was read before the write is still valid.
        assert_eq!(client.load_chunk("copy", cursor, &data), ok());
        let before = client.run("DUMP copy");
        (cursor, data) = chunk_after(&mut client, "key", cursor);
        assert!(cursor > 0, "no chunk is left");
        let expected = if writes { Reply::error(FOREIGN_CHUNK) } else { ok() };
        assert_eq!(client.load_chunk("copy", cursor, &data), expected, "after {words}");
        assert_eq!(client.run("DUMP copy") == before, writes, "{words}");
        assert_eq!(client.run("DUMP copy") == client.run("DUMP whole"), !writes, "{words}");
    }
}

/// Additions and removals may restore the earlier contents. Chunks are still rejected, since the filter was written to.
#[test]
fn chunks_of_a_filter_that_was_changed_and_changed_back_are_rejected() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for parameters in ["0.01 100", "0.01 100 NONSCALING"] {
        for words in [["BF.ADD key item", "BF.DEL key item"], ["BF.DEL key known", "BF.ADD key known"]] {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE key {parameters} COUNTING"));
            client.run("BF.MADD key known other known");
            let (cursor, header) = chunk_after(&mut client, "key", 0);
            assert_eq!(client.load_chunk("copy", cursor, &header), ok());
            let (end, chunk) = chunk_after(&mut client, "key", cursor);
            words.into_iter().for_each(|words| assert!(!client.run(words).is_error()));
            let (late_end, late) = chunk_after(&mut client, "key", cursor);
            assert_eq!((late_end, late.len()), (end, chunk.len()));
            assert_eq!(client.load_chunk("copy", end, &late), Reply::error(FOREIGN_CHUNK), "{words:?}");
            assert_eq!(client.load_chunk("copy", end, &chunk), ok());
            // The same commands on the copy have the same effect.
            words.into_iter().for_each(|words| assert!(!client.run(&words.replace("key", "copy")).is_error()));
            assert_eq!(client.load_chunk("copy", end, &chunk), Reply::error(FOREIGN_CHUNK), "{words:?}");
        }
    }
}

#[test]
fn a_copy_accepts_chunks_in_any_order_until_it_is_written_to() {
    let server = with_debug(Setup::oxbloom()).set("rdbcompression no").start();
    let (mut client, mut connection) = (Wire::resp2(&server), server.connect());
    let model = counting_in_three_chunks(&mut connection, "key");
    let chunks = client.scan_dump("key");
    assert_eq!(chunks.len(), 4);
    for (words, loaded) in [("BF.ADD copy item", 1), ("BF.ADD copy item", 2), ("BF.INSERT copy NX ITEMS item", 3)] {
        client.run("DEL copy");
        for (cursor, data) in &chunks[..loaded] {
            assert_eq!(client.load_chunk("copy", *cursor, data), ok());
        }
        assert_eq!(client.run("BF.DEL copy absent"), Reply::Integer(0));
        assert!(!client.run(words).is_error(), "{words}");
        let before = client.run("DUMP copy");
        for (cursor, data) in &chunks[1..] {
            assert_eq!(client.load_chunk("copy", *cursor, data), Reply::error(FOREIGN_CHUNK), "after {words}");
        }
        assert_eq!(client.run("DUMP copy"), before);
    }
    client.run("DEL copy");
    // After the header, loads the last chunk first, then the others, and all again, with a reload after each.
    for at in [0, 3, 1, 2, 3, 2, 1] {
        assert_eq!(client.load_chunk("copy", chunks[at].0, &chunks[at].1), ok());
        client.run("DEBUG RELOAD");
    }
    assert_eq!(client.run("DUMP copy"), client.run("DUMP key"));
    client.run("RENAME copy key");
    let items: Vec<u64> = model.items.into_iter().collect();
    for _ in 0..3 {
        for items in items.chunks(1000) {
            assert_eq!(many::<Vec<u64>>(&mut connection, "BF.MDEL", "key", items), vec![1; items.len()]);
        }
    }
    assert_eq!(client.run("BF.INFO key FILL"), Reply::Array(vec![Reply::bulk("0")]));
}

/// Returns the commands on filters that a replica gets before `SET end`.
fn received(monitor: &mut Wire) -> Vec<String> {
    let mut commands = Vec::new();
    loop {
        // A line of MONITOR is `time [database address] "COMMAND" "key" …`.
        let line = monitor.receive().text();
        let command = line.split_once("] ").map_or("", |(_, command)| command).replace('"', "");
        match command.split(' ').next() {
            Some("SET") => return commands,
            Some(name) if name.starts_with("BF.") => commands.push(command),
            _ => {}
        }
    }
}

/// The append-only file and a replica get the same commands.
#[test]
fn only_changes_are_replicated() {
    let pair = Pair::start(with_aof("no"), replica_setup());
    let (mut client, mut reader) = pair.clients();
    let mut monitor = Wire::resp2(&pair.replica);
    monitor.run("MONITOR");
    let reserve = |key: &str, rest: &str| format!("BF.RESERVE {key} 0.000000001 {rest} LAYOUT native");
    let steps = [
        ("BF.RESERVE key 1e-9 100 COUNTING SEED 7", vec![reserve("key", "100 EXPANSION 2 COUNTING SEED 7")]),
        ("BF.RESERVE fixed 1e-9 2 NONSCALING SEED 7 COUNTING", vec![reserve("fixed", "2 NONSCALING COUNTING SEED 7")]),
        ("BF.ADD key a", vec!["BF.ADD key a".into()]),
        ("BF.ADD key a", vec!["BF.ADD key a".into()]),
        ("BF.MADD key a b a", vec!["BF.MADD key a b a".into()]),
        ("BF.INSERT key COUNTING CAPACITY 5 ITEMS a c", vec!["BF.MADD key a c".into()]),
        ("BF.INSERT key NX ITEMS a d b e d", vec!["BF.MADD key d e".into()]),
        ("BF.INSERT key NX ITEMS f g", vec!["BF.MADD key f g".into()]),
        ("BF.INSERT key NX ITEMS a f", vec![]),
        ("BF.MADD fixed a a b c a", vec!["BF.MADD fixed a a b".into()]),
        ("BF.MADD fixed c a", vec![]),
        ("BF.ADD fixed c", vec![]),
        ("BF.INSERT fixed NX ITEMS a c", vec![]),
        ("BF.INSERT fixed ITEMS b b c", vec!["BF.MADD fixed b b".into()]),
        ("BF.DEL fixed z", vec![]),
        ("BF.DEL key z", vec![]),
        ("BF.DEL nokey a", vec![]),
        ("BF.MDEL key y z", vec![]),
        ("BF.MDEL nokey y z", vec![]),
        ("BF.DEL key a", vec!["BF.DEL key a".into()]),
        ("BF.MDEL key z a y b b", vec!["BF.MDEL key a b".into()]),
        ("BF.MDEL key c a", vec!["BF.MDEL key c a".into()]),
        ("BF.MDEL key d", vec!["BF.MDEL key d".into()]),
        ("BF.COUNT key a", vec![]),
        ("BF.MCOUNT key a b", vec![]),
        (
            "BF.INSERT new NX COUNTING ERROR 1e-9 CAPACITY 9 EXPANSION 3 SEED 8 ITEMS a a b",
            vec![reserve("new", "9 EXPANSION 3 COUNTING SEED 8"), "BF.MADD new a b".into()],
        ),
    ];
    let mut expected = Vec::new();
    for (words, replicated) in steps {
        let mut packed = redis::Cmd::new();
        packed.arg(words.split(' ').collect::<Vec<_>>());
        client.send_packed_command(&packed.get_packed_command()).unwrap();
        client.recv_response().unwrap();
        run(&mut client, "SET end x").unwrap();
        assert_eq!(received(&mut monitor), replicated, "{words}");
        expected.extend(replicated);
    }
    let written = aof_commands(pair.master.folder());
    let written = written.iter().map(|command| shown(command)).filter(|line| line.starts_with("BF."));
    assert_eq!(written.collect::<Vec<_>>(), expected);
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(digest(&mut client), digest(&mut reader));
    assert_eq!(ask::<Vec<u64>>(&mut reader, "BF.MCOUNT key a b c d e f g"), [2, 0, 0, 0, 1, 1, 1]);
}

/// A master and its replica. One of them restarts from time to time.
struct Restarted {
    preamble: &'static str,
    pair: Pair,
}

impl Restarted {
    fn start(preamble: &'static str) -> Restarted {
        Restarted { preamble, pair: Pair::start(Restarted::master(preamble), replica_setup()) }
    }

    /// Returns the setup of a master with an append-only file that is not rewritten on its own.
    fn master(preamble: &str) -> Setup {
        master_setup().keeping_aof(preamble)
    }

    /// Restarts or reloads one of the two, in one of five ways.
    fn restart(self, how: usize) -> Restarted {
        let Restarted { preamble, pair: Pair { mut master, mut replica } } = self;
        match how % 5 {
            // The replica restarts from its snapshot, and resumes replication.
            0 => {
                run(&mut replica.connect(), "SAVE").unwrap();
                replica = start_replica(&master, replica_setup().on(replica.kill()));
            }
            // The master restarts from its append-only file, either as written or rewritten.
            step @ (1 | 2) => {
                if step == 2 {
                    rewrite_aof(&mut master.connect());
                }
                master = Restarted::master(preamble).on(master.kill()).start();
                follow(&mut replica.connect(), master.port);
            }
            // A new replica without data takes the place of the old one.
            3 => {
                drop(replica);
                replica = start_replica(&master, replica_setup());
            }
            // The master reloads a snapshot.
            _ => assert_eq!(run(&mut master.connect(), "DEBUG RELOAD"), Ok(Value::Okay)),
        }
        Restarted { preamble, pair: Pair { master, replica } }
    }

    /// Panics unless the filters have the expected items, and the replica has the same bytes.
    fn check(&self, filters: &[CountingWorkload]) {
        let (mut master, mut replica) = self.pair.clients();
        wait_for_replica(&mut master, &mut replica);
        for filter in filters {
            let dumps =
                [&mut master, &mut replica].map(|client| ask::<Vec<u8>>(client, &format!("DUMP {}", filter.key)));
            assert!(dumps[0] == dumps[1], "{} differs", filter.key);
            filter.check(&mut master);
            filter.check(&mut replica);
        }
        assert_eq!(digest(&mut master), digest(&mut replica));
        [&mut master, &mut replica].into_iter().for_each(assert_figures_add_up);
    }
}

#[test]
fn after_any_additions_removals_and_restarts_a_replica_equals_its_master_and_no_item_is_missing() {
    let (mut largest, mut shrunk) = (0, 0);
    for (mut random, preamble) in [(Random(1), "yes"), (Random::unpredictable(), "no")] {
        let mut servers = Restarted::start(preamble);
        let mut filters = Vec::new();
        for (key, line) in [
            ("linear", "BF.RESERVE linear 0.01 20 EXPANSION 1 COUNTING SEED n"),
            ("doubled", "BF.RESERVE doubled 0.05 10 COUNTING SEED n"),
            ("careless", "BF.RESERVE careless 0.4 50 EXPANSION 4 COUNTING SEED n"),
            ("fixed", "BF.RESERVE fixed 0.001 300 NONSCALING COUNTING SEED n"),
            ("default", "BF.INSERT default COUNTING SEED n ITEMS x"),
        ] {
            // The replies decide the steps, and depend on the filters' seeds. So `random` also chooses the seeds, and a
            // run can be repeated.
            let line = line.replace("SEED n", &format!("SEED {}", random.next_u64()));
            assert!(!Wire::resp2(&servers.pair.master).run(&line).is_error());
            filters.push(CountingWorkload::new(key));
        }
        // Removes the item that BF.INSERT needed to create the filter.
        Wire::resp2(&servers.pair.master).run("BF.DEL default x");
        for round in 0..15 {
            let mut client = Wire::resp2(&servers.pair.master);
            let capacity = |client: &mut Wire, filter: &CountingWorkload| {
                field(client, &filter.key, "CAPACITY", "Capacity").integer()
            };
            for _ in 0..60 {
                let filter = &mut filters[random.below(5) as usize];
                let before = capacity(&mut client, filter);
                if random.chance(if round % 4 < 2 { 75 } else { 30 }) {
                    filter.add(&mut random, &mut client);
                } else {
                    filter.remove(&mut random, &mut client);
                }
                let after = capacity(&mut client, filter);
                largest = largest.max(after);
                shrunk += u64::from(after < before);
            }
            if round % 5 == 4 {
                filters[random.below(5) as usize].empty(&mut random, &mut client);
            }
            servers.check(&filters);
            servers = servers.restart(round);
            servers.check(&filters);
        }
    }
    // The run with a fixed seed reaches these bounds. The random one need not.
    assert!(largest >= 1024 && shrunk > 10, "largest capacity {largest}, shrunk {shrunk} times");
}

/// The state of a filter while items are added and removed.
struct State {
    memory: u64,
    capacity: u64,
    items: u64,
}

/// Fills the filter `key` with `population` items, and then replaces a hundred times as many: the oldest first, or
/// random ones. Returns the state of the filter after each replacement of 100 items.
fn churn(client: &mut Connection, random: &mut Random, population: u64, oldest_first: bool) -> Vec<State> {
    const BATCH: u64 = 100;
    let mut present: VecDeque<u64> = VecDeque::new();
    let mut states = Vec::new();
    for first in (0..101 * population).step_by(BATCH as usize) {
        if first >= population {
            let mut leave = || {
                let at = if oldest_first { 0 } else { random.below(present.len() as u64) as usize };
                present.swap_remove_front(at).expect("an item")
            };
            let gone: Vec<u64> = (0..BATCH).map(|_| leave()).collect();
            assert_eq!(many::<Vec<u64>>(client, "BF.MDEL", "key", &gone), [1; BATCH as usize]);
        }
        each(client, "BF.MADD", first..first + BATCH);
        present.extend(first..first + BATCH);
        if first >= population {
            let (memory, items) = (ask(client, "MEMORY USAGE key"), ask(client, "BF.CARD key"));
            states.push(State { memory, capacity: info_field(client, "key", "CAPACITY"), items });
        }
    }
    let present: Vec<u64> = present.into();
    assert_eq!(many::<Vec<u64>>(client, "BF.MEXISTS", "key", &present), vec![1; present.len()]);
    states
}

#[test]
fn a_hundred_times_as_many_items_as_fit_may_be_added_and_removed() {
    const POPULATION: u64 = 1000;
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (rate, parameters, oldest_first) in [
        (0.01, "1000", true),
        (0.01, "1000", false),
        (0.01, "300 EXPANSION 1", true),
        (0.01, "300 EXPANSION 1", false),
        (0.01, "1200 NONSCALING", false),
        (0.3, "100", true),
        (0.3, "300 EXPANSION 1", false),
    ] {
        let kind = format!("{rate} {parameters} COUNTING SEED 7");
        run(&mut client, "DEL key").unwrap();
        run(&mut client, &format!("BF.RESERVE key {kind}")).unwrap();
        let states = churn(&mut client, &mut Random(1), POPULATION, oldest_first);
        assert_eq!(states.len(), 1000);
        // Items that were false positives when they were added are not counted.
        for State { items, .. } in &states {
            let (population, stray) = (POPULATION as f64, 5.0 * (POPULATION as f64).sqrt());
            let range = population * (1.0 - rate) - stray..=population + stray;
            assert!(range.contains(&(*items as f64)), "{kind}: {items} items");
        }
        let (early, late) = states.split_at(200);
        let max = |states: &[State], of: fn(&State) -> u64| states.iter().map(of).max().expect("a state");
        for (what, of) in
            [("memory", (|state| state.memory) as fn(&State) -> u64), ("capacity", |state| state.capacity)]
        {
            let (early, late) = (max(early, of), max(late, of));
            assert!(late <= early + early / 4, "{kind}: {what} {late}, at first {early}");
        }
        let absent: Vec<u64> = (ABSENT..ABSENT + 10_000).collect();
        let found = FilterModel::new("key").with_reply(&mut client, &absent, true).len() as f64;
        assert!(found <= rate * absent.len() as f64, "{kind}: {found} of {}", absent.len());
    }
}
