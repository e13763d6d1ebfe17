//! Copies in chunks, by BF.SCANDUMP and BF.LOADCHUNK.

use oxbloom_filter::internals::codec::chunk;

use crate::commands::filling::{add_numbers, dump};
use crate::expected::ok;
use testkit::Setup;
use testkit::filter_model::{Family, FilterModel};
use testkit::persistence::aof_commands;
use testkit::wire::{Reply, Wire};

#[test]
fn a_copy_in_chunks_is_the_same_under_another_key_and_on_another_server() {
    let servers = [Setup::oxbloom().start(), Setup::oxbloom().start()];
    let [mut client, mut other] = [Wire::resp2(&servers[0]), Wire::resp2(&servers[1])];
    client.run("BF.RESERVE empty 0.01 100");
    client.run("BF.RESERVE fixed 0.01 1000 NONSCALING");
    client.run("BF.RESERVE grown 0.01 10");
    client.run("BF.RESERVE deep 0.000000000000000001 10");
    client.run("BF.RESERVE classic 0.01 10 LAYOUT classic");
    client.run("BF.RESERVE large 0.01 30000000");
    client.run("CF.RESERVE cuckoo 64 EXPANSION 2 LAYOUT classic");
    client.run("CF.RESERVE cuckoo-native 64");
    for (key, items, chunks) in [
        ("empty", 0, 1..2),
        ("fixed", 1000, 2..3),
        ("grown", 3000, 2..3),
        ("deep", 150_000, 5..6),
        ("classic", 3000, 8..12),
        ("large", 100, 9..13),
        ("cuckoo", 3000, 6..9),
        ("cuckoo-native", 3000, 2..3),
    ] {
        let family = if key.starts_with("cuckoo") { Family::Cuckoo } else { Family::Bloom };
        match family {
            Family::Bloom => add_numbers(&mut client, key, items),
            Family::Cuckoo => drop(FilterModel::cuckoo(key).add(&mut servers[0].connect(), 0..items as u64)),
        }
        let dumped = client.scan_dump_of(family, key);
        assert!(chunks.contains(&dumped.len()), "{key}: {}", dumped.len());
        assert!(dumped.iter().all(|(_, data)| data.len() <= chunk::BITS_CHUNK_BYTES + 16));
        client.run("DEL copy");
        for (cursor, data) in &dumped {
            assert_eq!(client.load_chunk_of(family, "copy", *cursor, data), ok());
            assert_eq!(other.load_chunk_of(family, key, *cursor, data), ok());
        }
        let original = dump(&mut client, key);
        assert!(original == dump(&mut client, "copy"), "{key}");
        assert!(original == dump(&mut other, key), "{key}");
        let debug = format!("{}.DEBUG {key}", family.prefix());
        assert_eq!(client.run(&debug), other.run(&debug));
    }
}

#[test]
fn a_chunk_that_changes_nothing_is_neither_replicated_nor_announced() {
    let server =
        Setup::oxbloom().set("appendonly yes").set("aof-use-rdb-preamble no").set("notify-keyspace-events EAd").start();
    let mut client = Wire::resp2(&server);
    for options in ["LAYOUT native", "COUNTING", "LAYOUT classic"] {
        client.run(&format!("BF.RESERVE key 0.01 100 {options}"));
        add_numbers(&mut client, "key", 90);
        let chunks = client.scan_dump("key");
        for (cursor, data) in &chunks {
            assert_eq!(client.load_chunk("copy", *cursor, data), ok());
        }
        let written = aof_commands(server.folder()).len();
        client.run("WATCH copy");
        client.run("MULTI");
        for (cursor, data) in &chunks[1..] {
            assert_eq!(Wire::resp2(&server).load_chunk("copy", *cursor, data), ok());
        }
        client.run("PING");
        assert_eq!(client.run("EXEC"), Reply::Array(vec![Reply::simple("PONG")]), "{options}: it was announced");
        assert_eq!(aof_commands(server.folder()).len(), written, "{options}");
        client.run("FLUSHALL");
    }
}
