//! Filters that count: what was added is there until it was removed as often, and replicas and files follow.

use std::collections::VecDeque;

use redis::{Connection, Value};
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

use crate::commands::{FULL, WRONG_TYPE, events, protocols};
use crate::replication::{master_setup, replica_setup};
use testkit::command::{ABSENT, many};
use testkit::counting_model::MAX_COUNT;
use testkit::counting_workload::CountingWorkload;
use testkit::filter_model::FilterModel;
use testkit::info::{assert_figures_add_up, digest, digest_of, info_field};
use testkit::memory::grow;
use testkit::persistence::{aof_commands, rewrite_aof, shown};
use testkit::random::Random;
use testkit::replication::{replica_of, wait_for_replica};
use testkit::server::{server_version, with_aof, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, run, run_words};

const NOT_COUNTING: &str = "ERR only filters that were made with COUNTING remove and count items: \
                            BF.RESERVE key error_rate capacity COUNTING";
const CLASSIC_COUNTING: &str = "ERR classic filters do not count";
const FOREIGN_CHUNK: &str = "ERR received a chunk of another filter, or one made before the last change";

/// An error rate so low that no test ever takes an absent item for present.
const EXACT: &str = "0.000000000000000001";

fn array<const N: usize>(elements: [&Reply; N]) -> Reply {
    Reply::Array(elements.map(Clone::clone).into())
}

fn ok() -> Reply {
    Reply::simple("OK")
}

/// A field of BF.INFO that is asked for alone.
fn field(client: &mut Wire, key: &str, token: &str, label: &str) -> Reply {
    client.run(&format!("BF.INFO {key} {token}")).field_or_single(label)
}

fn layout(client: &mut Wire, key: &str) -> String {
    field(client, key, "LAYOUT", "Layout").text()
}

#[test]
fn an_item_is_there_as_often_as_it_was_added_and_not_removed() {
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
            // What was removed can come again.
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
fn filters_that_do_not_count_say_how_to_make_one_that_does_and_stay_as_they_are() {
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
            // A filter that exists is as it was created, and what is there already is left alone anyway.
            let contradicts = Reply::error("ERR the filter exists and was created without COUNTING");
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
fn counting_is_asked_for_once_in_any_order_and_case_and_not_of_classic_filters() {
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
        let repeated = "Repeated argument received";
        let refused = [
            ("BF.RESERVE key 0.01 100 COUNTING COUNTING", repeated),
            ("BF.RESERVE key 0.01 100 LAYOUT classic COUNTING", CLASSIC_COUNTING),
            ("BF.RESERVE key 0.01 100 COUNTING LAYOUT classic", CLASSIC_COUNTING),
            ("BF.RESERVE key 0.01 100 COUNTING LAYOUT counting", "ERR bad layout"),
            ("BF.RESERVE key 0.01 100 COUNTING NX", "Unknown argument received"),
            ("BF.RESERVE key 0.01 100 COUNTING NONSCALING EXPANSION 2", "Nonscaling filters cannot expand"),
            ("BF.INSERT key COUNTING COUNTING ITEMS a", repeated),
            ("BF.INSERT key NX NX ITEMS a", repeated),
            ("BF.INSERT key LAYOUT classic COUNTING ITEMS a", CLASSIC_COUNTING),
            ("BF.INSERT key COUNTING LAYOUT classic NX ITEMS a", CLASSIC_COUNTING),
            ("BF.INSERT key COUNTING LAYOUT counting ITEMS a", "Bad layout"),
            ("BF.INSERT key COUNT ITEMS a", "Unknown argument received"),
        ];
        for (line, error) in refused {
            assert_eq!(client.run(line), Reply::error(error), "{line}");
        }
        assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
    }
}

#[test]
fn info_tells_what_a_counting_filter_is() {
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
        // Four bits in the place of one.
        let size = |client: &mut Wire, key: &str| field(client, key, "SIZE", "Size").integer() as f64;
        let times = size(&mut client, "key") / size(&mut client, "native");
        assert!((3.5..4.5).contains(&times), "{times}");

        let nothing = field(&mut client, "fixed", "EXPANSION", "Expansion rate");
        assert!([Reply::NullBulk, Reply::Null].contains(&nothing), "{nothing:?}");
        let stuck = "Number of counters that stick";
        assert_eq!(field(&mut client, "key", "STUCK", stuck), Reply::Integer(0));
        assert_eq!(field(&mut client, "native", "stuck", stuck), nothing);
        assert_eq!(field(&mut client, "classic", "Stuck", stuck), nothing);
        let estimated = "Number of items is an estimate";
        assert_eq!(field(&mut client, "key", "ESTIMATED", estimated), no);
        assert_eq!(field(&mut client, "native", "estimated", estimated), no);
        assert_eq!(field(&mut client, "classic", "Estimated", estimated), nothing);
        let debug = client.run("BF.DEBUG key");
        assert_eq!(debug.elements().len(), 2);
        assert!(debug.elements()[1].text().contains("capacity:1000 size:0"), "{debug:?}");
    }
}

#[test]
fn the_number_of_items_may_be_an_estimate_from_elsewhere() {
    let server = with_debug(Setup::oxbloom()).start();
    for (mut client, yes, _) in protocols(&server) {
        client.run("FLUSHALL");
        for (key, words) in [("native", ""), ("counting", "COUNTING")] {
            client.run(&format!("BF.RESERVE {key} 0.01 100 {words}"));
            let (_, mut header) = client.scan_dump(key).remove(0);
            // The highest bit of the first layer's number of items.
            header[32 + 16 + 7] |= 0x80;
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

#[test]
fn counts_go_up_to_fifteen_and_stay_there() {
    let server = with_debug(Setup::oxbloom()).start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        client.run(&format!("BF.RESERVE key {EXACT} 1000 COUNTING SEED 7"));
        let stuck = |client: &mut Wire| field(client, "key", "STUCK", "Number of counters that stick").integer();
        // One short of the most: all of them can be taken back.
        for count in 1..MAX_COUNT as i64 {
            assert_eq!(client.run("BF.ADD key often"), if count == 1 { yes.clone() } else { no.clone() });
            assert_eq!(client.run("BF.COUNT key often"), Reply::Integer(count));
        }
        assert_eq!(stuck(&mut client), 0);
        (1..MAX_COUNT).for_each(|_| assert_eq!(client.run("BF.DEL key often"), yes));
        assert_eq!(client.run("BF.DEL key often"), no);

        // Others, each there once, twice or three times.
        let others: Vec<(String, i64)> = (0..300).map(|n| (format!("other{n}"), 1 + n % 3)).collect();
        for (name, count) in &others {
            (0..*count).for_each(|_| drop(client.run(&format!("BF.ADD key {name}"))));
        }
        for count in 1..=20 {
            assert_eq!(client.run("BF.ADD key often"), if count == 1 { yes.clone() } else { no.clone() });
            assert_eq!(client.run("BF.COUNT key often"), Reply::Integer(count.min(MAX_COUNT as i64)));
        }
        let sticking = stuck(&mut client);
        assert!(sticking > 1);
        client.run("DEBUG RELOAD");
        assert_eq!(stuck(&mut client), sticking);
        (1..=20).for_each(|_| assert_eq!(client.run("BF.DEL key often"), yes));
        assert_eq!((client.run("BF.COUNT key often"), client.run("BF.EXISTS key often")), (Reply::Integer(15), yes));
        assert_eq!(stuck(&mut client), sticking);
        for (name, count) in &others {
            assert_eq!(client.run(&format!("BF.COUNT key {name}")), Reply::Integer(*count), "{name}");
        }
        for (name, count) in &others {
            (0..*count).for_each(|_| drop(client.run(&format!("BF.DEL key {name}"))));
            assert_eq!(client.run(&format!("BF.COUNT key {name}")), Reply::Integer(0), "{name}");
        }
        assert_eq!(client.run("BF.COUNT key often"), Reply::Integer(15));
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
        // What is there is added again, but nothing else.
        assert_eq!(client.run("BF.ADD key a"), no);
        assert_eq!(client.run("BF.ADD key e"), full);
        assert_eq!(client.run("BF.MCOUNT key a e"), Reply::integers(&[3, 0]));
        assert_eq!(client.run("BF.INSERT key NX ITEMS a b e a"), array([&no, &no, &full]));
        assert_eq!(client.run("BF.MCOUNT key a b e"), Reply::integers(&[3, 1, 0]));
        // An item that is still there takes its place.
        assert_eq!(client.run("BF.DEL key a"), yes);
        assert_eq!(client.run("BF.ADD key e"), full);
        assert_eq!(client.run("BF.MDEL key d e"), array([&yes, &no]));
        assert_eq!(client.run("BF.INSERT key NX ITEMS a e d"), array([&no, &yes, &full]));
        assert_eq!(client.run("BF.MDEL key a a b c e"), array([&yes, &yes, &yes, &yes, &yes]));
        assert_eq!(client.run("BF.MADD key f g h i j"), array([&yes, &yes, &yes, &yes, &full]));
        assert_eq!(client.run("BF.CARD key"), Reply::Integer(4));
        assert_eq!(client.run("BF.INFO key FILTERS").field_or_single("Number of filters"), Reply::Integer(1));
    }
}

/// Adds or removes numbered items, and returns how many of them were new, or there.
fn each(client: &mut Connection, command: &str, numbers: std::ops::Range<u64>) -> u64 {
    many::<Vec<u64>>(client, command, "key", &numbers.collect::<Vec<_>>()).iter().sum()
}

#[test]
fn a_layer_is_dropped_with_its_last_item_unless_it_is_the_newest() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {EXACT} 10 EXPANSION 1 COUNTING SEED 7")).unwrap();
    let layers = |client: &mut Connection| info_field::<u64>(client, "key", "FILTERS");
    let facts = |client: &mut Connection| ask::<Vec<String>>(client, "BF.DEBUG key");
    assert_eq!(each(&mut client, "BF.MADD", 0..100), 100);
    assert_eq!(layers(&mut client), 10);
    let (whole, before) = (ask::<u64>(&mut client, "MEMORY USAGE key"), facts(&mut client));
    // All items of the fourth but one, and then that one.
    assert_eq!(each(&mut client, "BF.MDEL", 30..39), 9);
    assert_eq!(layers(&mut client), 10);
    assert_eq!(each(&mut client, "BF.MDEL", 39..40), 1);
    assert_eq!(layers(&mut client), 9);
    assert_eq!(info_field::<u64>(&mut client, "key", "CAPACITY"), 90);
    assert!(ask::<u64>(&mut client, "MEMORY USAGE key") < whole);
    let after = facts(&mut client);
    assert_eq!((&after[1..4], &after[4..]), (&before[1..4], &before[5..]));
    // Its share of the error rate is the next layer's.
    let ratio = |line: &str| line.split(' ').find(|fact| fact.starts_with("ratio:")).unwrap().to_owned();
    assert_eq!(each(&mut client, "BF.MADD", 100..101), 1);
    assert_eq!(ratio(&facts(&mut client)[10]), ratio(&before[4]));
    assert_eq!(each(&mut client, "BF.MCOUNT", 0..101), 91);
    // The newest stays without items.
    assert_eq!(each(&mut client, "BF.MDEL", 100..101), 1);
    assert_eq!(layers(&mut client), 10);
    assert_eq!(run(&mut client, "DEBUG RELOAD"), Ok(Value::Okay));
    assert_eq!(each(&mut client, "BF.MDEL", 0..100), 90);
    assert_eq!((layers(&mut client), ask::<u64>(&mut client, "BF.CARD key")), (1, 0));
    assert_eq!(info_field::<f64>(&mut client, "key", "FILL"), 0.0);
    assert!(ask::<u64>(&mut client, "MEMORY USAGE key") < whole / 5);
    assert_eq!(each(&mut client, "BF.MADD", 0..100), 100);
    assert_eq!(each(&mut client, "BF.MCOUNT", 0..100), 100);
}

/// An item goes to the layer that seems to have it, or its removals would go astray. Here up to half of the items seem to be
/// in a layer that they were not added to.
#[test]
fn every_removal_finds_its_item_however_careless_the_filter_is() {
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
fn digests_tell_counts_apart_but_not_the_order_of_additions() {
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
fn items_are_any_bytes_and_as_many_as_wanted() {
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
fn a_server_without_memory_still_removes() {
    let server = Setup::oxbloom().set("maxmemory-policy noeviction").start();
    let mut client = Wire::resp2(&server);
    client.run(&format!("BF.RESERVE key {EXACT} 2 EXPANSION 1 COUNTING"));
    client.run("BF.MADD key a b c d e f f");
    assert_eq!(client.run("CONFIG SET maxmemory 1"), ok());
    let refused = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("OOM "));
    for words in ["BF.ADD key a", "BF.MADD key a", "BF.INSERT key NX ITEMS a", "BF.RESERVE new 0.01 1 COUNTING"] {
        let reply = client.run(words);
        assert!(refused(&reply), "{words}: {reply:?}");
    }
    assert_eq!(client.run("BF.COUNT key f"), Reply::Integer(2));
    assert_eq!(client.run("BF.DEL key a"), Reply::Integer(1));
    assert_eq!(client.run("BF.DEL nokey a"), Reply::Integer(0));
    let reply = client.run("EVAL return(redis.call('BF.DEL',KEYS[1],'b')) 1 key");
    assert_eq!(reply, Reply::Integer(1));
    // Layers go, even so.
    assert_eq!(client.run("BF.INFO key FILTERS"), Reply::integers(&[2]));
    assert_eq!(client.run("BF.MDEL key a c d f"), Reply::integers(&[0, 1, 1, 1]));
    assert_eq!(client.run("BF.INFO key FILTERS"), Reply::integers(&[1]));
    assert_eq!(client.run("BF.MCOUNT key a b c d e f"), Reply::integers(&[0, 0, 0, 0, 1, 1]));
    assert!(refused(&client.run("BF.ADD key a")));
    client.run("CONFIG SET maxmemory 0");
    assert_eq!(client.run("BF.MADD key a e"), Reply::integers(&[1, 0]));
}

/// A replica is not limited: what its master refused, it would do.
#[test]
fn an_addition_that_was_refused_reaches_no_replica_and_a_removal_makes_room() {
    let setup = with_debug(Setup::oxbloom()).module_arguments("filter-memory-limit 20000");
    let master = setup.set("repl-diskless-sync-delay 0").start();
    let replica = replica_of(&master, with_debug(Setup::oxbloom())).start();
    let (mut client, mut reader) = (master.connect(), replica.connect());
    wait_for_replica(&mut client, &mut reader);
    let mut wire = Wire::resp2(&master);
    wire.run("BF.RESERVE key 0.000001 500 COUNTING SEED 7");
    let refused = Reply::error(grow::FILTER_LIMIT);
    let added = (0..10_000).take_while(|n| wire.run(&format!("BF.ADD key {n}")) != refused).count();
    assert!((400..1000).contains(&added), "{added}");
    let [one, none] = [1, 0].map(Reply::Integer);
    assert_eq!(wire.run("BF.ADD key new"), refused);
    assert_eq!(wire.run("BF.MADD key 0 new"), array([&none, &refused]));
    assert_eq!(wire.run("BF.INSERT key NX ITEMS 0 new"), array([&none, &refused]));
    assert_eq!(wire.run("BF.MDEL key 0 0 1 new"), array([&one, &one, &one, &none]));
    assert_eq!(wire.run("BF.MADD key 2 new other another"), array([&none, &one, &one, &refused]));
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(digest(&mut client), digest(&mut reader));
}

/// The chunk of a filter that follows an iterator.
fn chunk_behind(client: &mut Wire, key: &str, iterator: i64) -> (i64, Vec<u8>) {
    let reply = client.run(&format!("BF.SCANDUMP {key} {iterator}"));
    let [Reply::Integer(next), data] = reply.elements() else { panic!("{reply:?}") };
    (*next, data.bytes().to_vec())
}

#[test]
fn chunks_of_a_filter_that_was_written_to_are_refused() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (words, writes) in [
        ("BF.ADD key item", true),
        ("BF.MADD key new", true),
        ("BF.INSERT key NX ITEMS new", true),
        ("BF.DEL key item", true),
        ("BF.MDEL key item absent", true),
        ("BF.DEL key absent", false),
        ("BF.MDEL key absent", false),
        ("BF.INSERT key NX ITEMS item", false),
        ("BF.COUNT key item", false),
    ] {
        client.run("FLUSHALL");
        client.run(&format!("BF.RESERVE key {EXACT} 20 COUNTING"));
        each(&mut server.connect(), "BF.MADD", 0..100);
        client.run("BF.ADD key item");
        let (mut iterator, mut data) = chunk_behind(&mut client, "key", 0);
        for _ in 0..2 {
            assert_eq!(client.load_chunk("copy", iterator, &data), ok());
            (iterator, data) = chunk_behind(&mut client, "key", iterator);
        }
        assert!(!client.run(words).is_error(), "{words}");
        // What was read before is still good.
        assert_eq!(client.load_chunk("copy", iterator, &data), ok());
        let before = client.run("DUMP copy");
        (iterator, data) = chunk_behind(&mut client, "key", iterator);
        let expected = if writes { Reply::error(FOREIGN_CHUNK) } else { ok() };
        assert_eq!(client.load_chunk("copy", iterator, &data), expected, "after {words}");
        assert_eq!(client.run("DUMP copy") == before, writes, "{words}");
    }
}

#[test]
fn a_copy_that_was_written_to_takes_no_more_chunks_and_one_that_was_not_takes_them_in_any_order() {
    let server = with_debug(Setup::oxbloom()).start();
    let (mut client, mut connection) = (Wire::resp2(&server), server.connect());
    client.run(&format!("BF.RESERVE key {EXACT} 20 COUNTING"));
    each(&mut connection, "BF.MADD", 0..100);
    let chunks = client.scan_dump("key");
    assert_eq!(chunks.len(), 4);
    for (words, loaded) in [("BF.ADD copy item", 1), ("BF.ADD copy item", 2), ("BF.INSERT copy NX ITEMS item", 3)] {
        client.run("DEL copy");
        for (iterator, data) in &chunks[..loaded] {
            assert_eq!(client.load_chunk("copy", *iterator, data), ok());
        }
        assert_eq!(client.run("BF.DEL copy absent"), Reply::Integer(0));
        assert!(!client.run(words).is_error(), "{words}");
        let before = client.run("DUMP copy");
        for (iterator, data) in &chunks[1..] {
            assert_eq!(client.load_chunk("copy", *iterator, data), Reply::error(FOREIGN_CHUNK), "after {words}");
        }
        assert_eq!(client.run("DUMP copy"), before);
    }
    client.run("DEL copy");
    // The last first; then all, over a reload, and again.
    for at in [0, 3, 1, 2, 3, 2, 1] {
        assert_eq!(client.load_chunk("copy", chunks[at].0, &chunks[at].1), ok());
        client.run("DEBUG RELOAD");
    }
    assert_eq!(client.run("DUMP copy"), client.run("DUMP key"));
    client.run("RENAME copy key");
    assert_eq!(each(&mut connection, "BF.MDEL", 0..100), 100);
    assert_eq!(client.run("BF.INFO key FILL"), Reply::Array(vec![Reply::bulk("0")]));
}

/// The commands on filters that a replica gets, until it gets `SET end`.
fn received(monitor: &mut Wire) -> Vec<String> {
    let mut commands = Vec::new();
    loop {
        // `time [database address] "COMMAND" "key" …`
        let line = monitor.receive().text();
        let command = line.split_once("] ").map_or("", |(_, command)| command).replace('"', "");
        match command.split(' ').next() {
            Some("SET") => return commands,
            Some(name) if name.starts_with("BF.") => commands.push(command),
            _ => {}
        }
    }
}

/// What the append-only file and a replica get of each command.
#[test]
fn what_changed_the_filter_is_replicated_and_nothing_else() {
    let master = with_aof("no").set("repl-diskless-sync-delay 0").start();
    let replica = replica_setup(&master).start();
    let (mut client, mut reader) = (master.connect(), replica.connect());
    wait_for_replica(&mut client, &mut reader);
    let mut monitor = Wire::resp2(&replica);
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
    let written = aof_commands(master.folder());
    let written = written.iter().map(|command| shown(command)).filter(|line| line.starts_with("BF."));
    assert_eq!(written.collect::<Vec<_>>(), expected);
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(digest(&mut client), digest(&mut reader));
    assert_eq!(ask::<Vec<u64>>(&mut reader, "BF.MCOUNT key a b c d e f g"), [2, 0, 0, 0, 1, 1, 1]);
}

/// A master and its replica, one of which is restarted now and then.
struct Restarted {
    preamble: &'static str,
    master: Server,
    replica: Server,
}

impl Restarted {
    fn start(preamble: &'static str) -> Restarted {
        let master = Restarted::master(preamble, TempDir::new().unwrap());
        let replica = replica_setup(&master).start();
        Restarted { preamble, master, replica }
    }

    /// Everything in the append-only file.
    fn master(preamble: &str, folder: TempDir) -> Server {
        let setup = master_setup().set("appendonly yes").set("auto-aof-rewrite-percentage 0");
        setup.set(format!("aof-use-rdb-preamble {preamble}")).on(folder).start()
    }

    fn clients(&self) -> (Connection, Connection) {
        (self.master.connect(), self.replica.connect())
    }

    /// One or the other loads what it has.
    fn restart(self, how: usize) -> Restarted {
        let Restarted { preamble, master, replica } = self;
        match how % 5 {
            // The replica from its snapshot, whereupon it goes on where it was.
            0 => {
                run(&mut replica.connect(), "SAVE").unwrap();
                let replica = replica_setup(&master).on(replica.kill()).start();
                Restarted { preamble, master, replica }
            }
            // The master from its append-only file, as it was written or as it was rewritten.
            step @ (1 | 2) => {
                if step == 2 {
                    rewrite_aof(&mut master.connect());
                }
                let master = Restarted::master(preamble, master.kill());
                run(&mut replica.connect(), &format!("REPLICAOF 127.0.0.1 {}", master.port)).unwrap();
                Restarted { preamble, master, replica }
            }
            // The replica from nothing.
            3 => {
                drop(replica);
                let replica = replica_setup(&master).start();
                Restarted { preamble, master, replica }
            }
            // The master from a snapshot.
            _ => {
                assert_eq!(run(&mut master.connect(), "DEBUG RELOAD"), Ok(Value::Okay));
                Restarted { preamble, master, replica }
            }
        }
    }

    /// Panics unless both have the filters, and the replica the same.
    fn check(&self, filters: &[CountingWorkload]) {
        let (mut master, mut replica) = self.clients();
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
fn after_any_additions_and_removals_and_restarts_a_replica_is_as_its_master_and_nothing_is_missing() {
    let (mut deepest, mut dropped) = (0, 0);
    for (mut random, preamble) in [(Random(1), "no"), (Random(2), "yes"), (Random::unpredictable(), "no")] {
        let mut servers = Restarted::start(preamble);
        let mut filters = Vec::new();
        for (key, line) in [
            ("linear", "BF.RESERVE linear 0.01 20 EXPANSION 1 COUNTING SEED n"),
            ("doubled", "BF.RESERVE doubled 0.05 10 COUNTING SEED n"),
            ("careless", "BF.RESERVE careless 0.4 50 EXPANSION 4 COUNTING SEED n"),
            ("fixed", "BF.RESERVE fixed 0.001 300 NONSCALING COUNTING SEED n"),
            ("default", "BF.INSERT default COUNTING SEED n ITEMS x"),
        ] {
            // Answers decide what is done next: with the filters' seeds, all of a run follows from its own.
            let line = line.replace("SEED n", &format!("SEED {}", random.next_u64()));
            assert!(!Wire::resp2(&servers.master).run(&line).is_error());
            filters.push(CountingWorkload::new(key));
        }
        // The item that the command could not do without.
        Wire::resp2(&servers.master).run("BF.DEL default x");
        for round in 0..15 {
            let mut client = Wire::resp2(&servers.master);
            let layers = |client: &mut Wire, filter: &CountingWorkload| {
                field(client, &filter.key, "FILTERS", "Number of filters").integer()
            };
            for _ in 0..60 {
                let filter = &mut filters[random.below(5) as usize];
                let before = layers(&mut client, filter);
                if random.chance(if round % 4 < 2 { 75 } else { 30 }) {
                    filter.add(&mut random, &mut client);
                } else {
                    filter.remove(&mut random, &mut client);
                }
                let after = layers(&mut client, filter);
                deepest = deepest.max(after);
                dropped += 0.max(before - after);
            }
            if round % 5 == 4 {
                filters[random.below(5) as usize].empty(&mut random, &mut client);
            }
            servers.check(&filters);
            servers = servers.restart(round);
            servers.check(&filters);
        }
    }
    // By the runs whose seeds are fixed; the other may find less to do.
    assert!(deepest > 10 && dropped > 10, "{deepest} layers, {dropped} dropped");
}

/// A filter while items come and go.
struct State {
    memory: u64,
    layers: u64,
    items: u64,
}

/// Fills the key `key`, and then replaces items a hundred times as many, the oldest first or any. How the filter is after
/// every hundred of them.
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
            states.push(State { memory, layers: info_field(client, "key", "FILTERS"), items });
        }
    }
    let present: Vec<u64> = present.into();
    assert_eq!(many::<Vec<u64>>(client, "BF.MEXISTS", "key", &present), vec![1; present.len()]);
    states
}

#[test]
fn a_hundred_times_as_many_items_as_fit_may_come_and_go() {
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
        // The count of each layer is kept near an estimate, which is itself less than a root off. Items that seemed to be there
        // when they were added are not counted.
        for State { layers, items, .. } in &states {
            let (population, stray) = (POPULATION as f64, 5.0 * ((layers * POPULATION) as f64).sqrt());
            let range = population * (1.0 - rate) - stray..=population + stray;
            assert!(range.contains(&(*items as f64)), "{kind}: {items} items in {layers} layers");
        }
        let (early, late) = states.split_at(200);
        let most = |states: &[State], of: fn(&State) -> u64| states.iter().map(of).max().expect("a state");
        for (what, of) in [("bytes", (|state| state.memory) as fn(&State) -> u64), ("layers", |state| state.layers)] {
            let (early, late) = (most(early, of), most(late, of));
            assert!(late <= early + early / 4, "{kind}: {late} {what}, from {early}");
        }
        let absent: Vec<u64> = (ABSENT..ABSENT + 10_000).collect();
        let found = FilterModel::new("key").found(&mut client, &absent, true).len() as f64;
        assert!(found <= rate * absent.len() as f64, "{kind}: {found} of {}", absent.len());
    }
}
