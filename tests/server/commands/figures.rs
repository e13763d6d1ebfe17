//! The figures of a filter: BF.INFO, BF.DEBUG and BF.CARD.

use crate::commands::filling::add_numbers;
use crate::expected::protocols;
use testkit::Setup;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

/// The fields of the reply to BF.INFO without further arguments.
const LABELS: [&str; 5] = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"];

#[test]
fn info_has_exactly_the_five_fields_of_redisbloom() {
    let server = Setup::oxbloom().start();
    for (mut client, ..) in protocols(&server) {
        client.run("FLUSHALL");
        client.run("BF.RESERVE key 0.01 100 EXPANSION 3");
        client.run("BF.RESERVE fixed 0.01 100 NONSCALING");
        add_numbers(&mut client, "key", 150);
        let info = client.run("BF.INFO key");
        let labels: Vec<_> = match &info {
            Reply::Map(pairs) => pairs.iter().map(|(label, _)| label.clone()).collect(),
            array => array.elements().iter().step_by(2).cloned().collect(),
        };
        assert_eq!(labels, LABELS.map(Reply::simple));
        // The fingerprints moved to a table, which has doubled once.
        assert_eq!(*info.field("Capacity"), Reply::Integer(256));
        assert_eq!(*info.field("Number of filters"), Reply::Integer(1));
        assert_eq!(info.field("Number of items inserted"), &client.run("BF.CARD key"));
        assert_eq!(*info.field("Expansion rate"), Reply::Integer(3));
        let used = client.run("MEMORY USAGE key").integer();
        assert!((100..used).contains(&info.field("Size").integer()), "{info:?}, {used}");
        for (token, label) in ["CAPACITY", "size", "Filters", "ITEMS", "expansion"].into_iter().zip(LABELS) {
            let single = client.run(&format!("BF.INFO key {token}"));
            assert_eq!(single.single_field(label), *info.field(label), "{token}");
        }
        // Returns true for a null. Servers before 7.0 let modules reply with a RESP3 null, but not with a map.
        let nothing = |reply: &Reply| match info {
            Reply::Map(_) => *reply == Reply::Null,
            _ if server_version() < (7, 0) => [Reply::Null, Reply::NullBulk].contains(reply),
            _ => *reply == Reply::NullBulk,
        };
        assert!(nothing(client.run("BF.INFO fixed").field("Expansion rate")));
        assert!(nothing(&client.run("BF.INFO fixed EXPANSION").single_field("Expansion rate")));
        for token in ["CAP", "Number", "CAPACITYX", "x"] {
            assert_eq!(client.run(&format!("BF.INFO key {token}")), Reply::error("Invalid information value"));
        }
    }
}

#[test]
fn info_has_further_fields_which_must_be_named() {
    let server = Setup::oxbloom().start();
    for (mut client, ..) in protocols(&server) {
        client.run("FLUSHALL");
        client.run("BF.RESERVE key 0.001 1000 SEED 18446744073709551615");
        let mut field = |token: &str, label: &str| client.run(&format!("BF.INFO key {token}")).single_field(label);
        assert_eq!(field("ERROR", "Error rate").float(), 0.001);
        assert_eq!(field("seed", "Seed"), Reply::bulk("18446744073709551615"));
        assert_eq!(field("Layout", "Layout"), Reply::simple("native"));
        assert_eq!(field("FILL", "Fill ratio").float(), 0.0);
        assert_eq!(field("FPR", "Estimated false positive rate").float(), 0.0);
        add_numbers(&mut client, "key", 1000);
        let mut field = |token: &str, label: &str| client.run(&format!("BF.INFO key {token}")).single_field(label);
        let fill = field("FILL", "Fill ratio").float();
        assert!((0.1..0.6).contains(&fill), "{fill}");
        let rate = field("FPR", "Estimated false positive rate").float();
        assert!((1e-6..0.001).contains(&rate), "{rate}");
        // ALL returns the usual fields and the further ones.
        let all = client.run("BF.INFO key all");
        let usual = client.run("BF.INFO key");
        LABELS.iter().for_each(|label| assert_eq!(all.field(label), usual.field(label), "{label}"));
        for (token, label) in [
            ("ERROR", "Error rate"),
            ("SEED", "Seed"),
            ("LAYOUT", "Layout"),
            ("FILL", "Fill ratio"),
            ("FPR", "Estimated false positive rate"),
            ("ESTIMATED", "Number of items is an estimate"),
            ("WINDOW", "Window"),
            ("SLICES", "Slices"),
            ("REFRESH", "Refresh"),
            ("ROLLING", "Rolling"),
            ("OLDEST", "Age of the oldest slice"),
        ] {
            let single = client.run(&format!("BF.INFO key {token}")).single_field(label);
            assert_eq!(*all.field(label), single, "{token}");
        }
        let facts = match &all {
            Reply::Map(pairs) => pairs.len(),
            array => array.elements().len() / 2,
        };
        assert_eq!(facts, 18);
    }
}

#[test]
fn numbers_are_as_short_as_possible_and_estimates_have_four_digits() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let mut field = |rate: &str, field: &str| {
        client.run("DEL key");
        client.run(&format!("BF.RESERVE key {rate} 1000 SEED 1"));
        add_numbers(&mut client, "key", 777);
        client.run(&format!("BF.INFO key {field}")).elements()[0].text()
    };
    for (rate, shown) in [
        ("0.003", "0.003"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1e-7", "1e-7"),
        ("0.00001", "0.00001"),
        ("2.5e-300", "2.5e-300"),
    ] {
        assert_eq!(field(rate, "ERROR"), shown);
    }
    for name in ["FILL", "FPR"] {
        let shown = field("0.003", name);
        let digits = shown.split('e').next().unwrap().replace('.', "");
        assert!(digits.trim_start_matches('0').len() <= 4 && shown.parse::<f64>().unwrap() > 0.0, "{name} {shown}");
    }
}

#[test]
fn debug_has_a_line_for_each_layer() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    // The capacity and the number of items of each layer. The layers of a native filter are blocks and a table, or only a
    // table.
    for (reserved, hash_bits, layers) in [
        ("400 SEED 7", 128, &[(400, 400), (128, 40)][..]),
        ("10 SEED 7", 128, &[(128, 50)]),
        ("10 LAYOUT classic", 64, &[(10, 10), (30, 30), (90, 10)]),
    ] {
        client.run(&format!("BF.RESERVE key 0.000001 {reserved} EXPANSION 3"));
        let items = layers.iter().map(|(_, items)| items).sum::<u64>();
        add_numbers(&mut client, "key", items as usize);
        let lines: Vec<_> = client.run("BF.DEBUG key").elements().iter().map(Reply::text).collect();
        assert_eq!(lines[0], format!("size:{items}"));
        assert_eq!(lines.len(), 1 + layers.len(), "{lines:?}");
        let mut bytes = 0;
        for (index, (line, &(capacity, items))) in lines[1..].iter().zip(layers).enumerate() {
            let facts: Vec<(&str, &str)> = line.split(' ').map(|fact| fact.split_once(':').unwrap()).collect();
            let names: Vec<_> = facts.iter().map(|(name, _)| *name).collect();
            assert_eq!(names[..7], ["bytes", "bits", "hashes", "hashwidth", "capacity", "size", "ratio"]);
            let has_blocks = hash_bits == 128 && index + 1 < layers.len();
            assert_eq!(names[7..], ["blocks"][..usize::from(has_blocks)], "{line}");
            let fact = |index: usize| facts[index].1.parse::<u64>().unwrap();
            assert_eq!(fact(0) * 8, fact(1));
            assert_eq!((fact(3), fact(4), fact(5)), (hash_bits, capacity, items));
            assert!(fact(2) >= 1 && (!has_blocks || (1..=fact(2)).contains(&fact(7))), "{line}");
            let ratio: f64 = facts[6].1.parse().unwrap();
            assert!(ratio > 0.0 && ratio < 0.000001, "{line}");
            bytes += fact(0);
        }
        let size = client.run("BF.INFO key SIZE").elements()[0].integer() as u64;
        assert!((bytes..bytes + 1000).contains(&size), "{bytes} {size}");
        client.run("DEL key");
    }
}

#[test]
fn card_counts_new_items_over_all_layers() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (parameters, layers) in [("10 SEED 7", 1), ("900 SEED 7", 2), ("100 LAYOUT classic", 4)] {
        client.run(&format!("BF.RESERVE key 0.000000001 {parameters}"));
        add_numbers(&mut client, "key", 1000);
        add_numbers(&mut client, "key", 1000);
        assert_eq!(client.run("BF.CARD key"), Reply::Integer(1000));
        assert_eq!(client.run("BF.INFO key FILTERS"), Reply::integers(&[layers]));
        client.run("DEL key");
    }
}

/// Under libc's allocator, arrays have padding for alignment. The reported size leaves it out, so that it is the same
/// on every server.
#[test]
fn equal_filters_have_the_same_size_on_every_server() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (parameters, size) in [
        ("0.01 100", 208),
        ("0.01 10000", 13_328),
        ("0.001 10000", 19_216),
        // Counting filters allocate memory when items are added.
        ("0.01 100 COUNTING", 328),
        ("0.01 10000 COUNTING", 328),
        ("0.01 10000 NONSCALING COUNTING", 328),
        ("0.01 10000 LAYOUT classic", 13_888),
    ] {
        client.run("DEL key");
        client.run(&format!("BF.RESERVE key {parameters}"));
        assert_eq!(client.run("BF.INFO key SIZE"), Reply::integers(&[size]), "{parameters}");
    }
}
