//! The replies of commands on counting filters, in RESP2 and RESP3, and counts however high.

use crate::expected::{array, ok, protocols};
use crate::fields::{field, layout};
use testkit::Setup;
use testkit::filter_model::EXACT;
use testkit::wire::Reply;

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
