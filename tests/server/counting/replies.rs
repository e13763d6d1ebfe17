//! The replies of commands on counting filters, in RESP2 and RESP3, and counts however high.

use crate::expected::{array, ok, protocols};
use crate::fields::{field, layout};
use testkit::command::many;
use testkit::filter_model::EXACT;
use testkit::server::with_debug;
use testkit::wire::Reply;
use testkit::{Setup, run};

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
    assert_eq!(many::<u64>(&mut client, "BF.COUNT", "key", &[0]), MOST);
    run(&mut client, "COPY key copy").unwrap();
    run(&mut client, "BF.MERGE key 1 copy").unwrap();
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "key", &numbers), [MOST; 100]);
    run(&mut client, "DEBUG RELOAD").unwrap();
    // An addition does not change a saturated count. A removal decrements it.
    assert_eq!(many::<u64>(&mut client, "BF.ADD", "key", &[0]), 0);
    assert_eq!(many::<u64>(&mut client, "BF.COUNT", "key", &[0]), MOST);
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MDEL", "key", &[0; 10]), [1; 10]);
    assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "key", &[0, 1]), [MOST - 10, MOST]);
}
