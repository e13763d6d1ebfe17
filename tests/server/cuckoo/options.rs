//! Options of CF.* and their errors, and keys of the other family.

use redis::Connection;

use crate::commands::table::COMMANDS;
use crate::expected::{WRONG_TYPE, ok};
use testkit::command::item;
use testkit::info::{digest, digest_of};
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, run_words};

const CAPACITY: &str = "Capacity must be at least (BucketSize * 2)";

/// Adds an item to a filter. Returns the error, if there is one.
pub(crate) fn add_one(client: &mut Connection, command: &str, key: &str, number: u64) -> Result<redis::Value, String> {
    run_words(client, &[command.as_bytes(), key.as_bytes(), &item(number)]).map_err(|error| testkit::error_text(&error))
}

#[test]
fn the_capacity_is_at_least_that_of_two_buckets_also_of_a_filter_that_exists() {
    let server = Setup::oxbloom().module_arguments("cf-bucket-size 3").start();
    let mut client = Wire::resp2(&server);
    client.run("CF.ADD old a");
    for key in ["old", "new"] {
        assert_eq!(client.run(&format!("CF.INSERT {key} CAPACITY 5 ITEMS b")), Reply::error(CAPACITY));
        assert_eq!(client.run(&format!("CF.INSERT {key} CAPACITY 6 ITEMS b")), Reply::integers(&[1]));
    }
}

#[test]
fn options_create_the_filter_and_must_not_contradict_an_existing_one() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    let mut connection = server.connect();
    for (line, data_type) in [
        ("CF.RESERVE a 100", "oxcuckoo-"),
        ("CF.RESERVE b 100 layout NATIVE seed 7 error 0.001", "oxcuckoo-"),
        ("CF.RESERVE c 100 Layout Classic", "MBbloomCF"),
        ("CF.INSERT d CAPACITY 100 SEED 7 ERROR 0.001 ITEMS x", "oxcuckoo-"),
        ("CF.INSERTNX e LAYOUT classic CAPACITY 100 ITEMS x", "MBbloomCF"),
    ] {
        let reply = client.run(line);
        assert!([ok(), Reply::integers(&[1])].contains(&reply), "{line}: {reply:?}");
        let key = line.split(' ').nth(1).unwrap();
        assert_eq!(client.run(&format!("TYPE {key}")).text(), data_type, "{line}");
        assert_eq!(client.run(&format!("CF.RESERVE {key} 100")), Reply::error("ERR item exists"));
    }
    // Filters with the same seed hold the same bits. With another error rate, they do not.
    client.run("CF.ADD b x");
    assert_eq!(digest_of(&mut connection, "b"), digest_of(&mut connection, "d"));
    client.run("CF.INSERT other CAPACITY 100 SEED 7 ERROR 0.01 ITEMS x");
    assert_ne!(digest_of(&mut connection, "b"), digest_of(&mut connection, "other"));
    let kind = "ERR the filter exists with another LAYOUT: leave out LAYOUT, or use another key";
    let seed = "ERR the filter exists with another SEED: leave out SEED, or use another key";
    for (options, text) in [
        ("a LAYOUT classic", kind),
        ("c LAYOUT native", kind),
        ("b SEED 8", seed),
        ("c SEED 7", seed),
        ("b NOCREATE SEED 8", seed),
    ] {
        for name in ["CF.INSERT", "CF.INSERTNX"] {
            assert_eq!(client.run(&format!("{name} {options} ITEMS y")), Reply::error(text), "{name} {options}");
        }
    }
    for options in ["b LAYOUT native SEED 7 ERROR 0.5 CAPACITY 4", "c LAYOUT classic CAPACITY 9 NOCREATE"] {
        assert_eq!(client.run(&format!("CF.INSERT {options} ITEMS y")), Reply::integers(&[1]), "{options}");
    }
}

#[test]
fn each_family_rejects_the_keys_and_headers_of_the_other() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    let mut connection = server.connect();
    let creations = [
        ("bf", "BF.RESERVE key 0.01 100"),
        ("bf", "BF.RESERVE key 0.01 100 COUNTING"),
        ("bf", "BF.RESERVE key 0.01 100 LAYOUT classic"),
        ("cf", "CF.RESERVE key 100"),
        ("cf", "CF.RESERVE key 100 LAYOUT classic"),
    ];
    for (family, creation) in creations {
        client.run("FLUSHALL");
        assert_eq!(client.run(creation), ok());
        client.run(&format!("{family}.ADD key item"));
        let before = digest(&mut connection);
        for command in COMMANDS.iter().filter(|command| !command.name.starts_with(family)) {
            assert_eq!(client.run(command.line), Reply::error(WRONG_TYPE), "{} after {creation}", command.line);
        }
        if family == "cf" {
            for line in ["BF.RESERVE new LIKE key", "BF.MERGE new 1 key", "BF.MERGE new 2 new key INTERSECT"] {
                let expected = if line.contains(" new key") { "ERR not found" } else { WRONG_TYPE };
                assert_eq!(client.run(line), Reply::error(expected), "{line} after {creation}");
            }
        }
        let header = client.run(&format!("{family}.SCANDUMP key 0")).elements()[1].bytes().to_vec();
        let (other, text) = if family == "cf" { ("BF", "ERR received bad data") } else { ("CF", "Invalid header") };
        let load = [format!("{other}.LOADCHUNK").into_bytes(), b"new".to_vec(), b"1".to_vec(), header];
        assert_eq!(client.run_words(&load), Reply::error(text), "{creation}");
        assert_eq!(client.run("DBSIZE"), Reply::Integer(1));
        assert_eq!(digest(&mut connection), before, "{creation}");
    }
}
