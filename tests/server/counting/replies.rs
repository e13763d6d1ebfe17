//! The replies of commands on counting filters, in RESP2 and RESP3, in transactions and in scripts.

use redis::Value;

use crate::commands::events::events;
use crate::counting::room::each;
use crate::expected::array;
use crate::expected::{ok, protocols};
use crate::fields::{field, layout};
use testkit::command::many;
use testkit::filter_model::EXACT;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, run, run_words};

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
