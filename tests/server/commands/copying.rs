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
        ("grown", 3000, 3..4),
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
fn damaged_chunks_and_those_of_another_filter_are_rejected_and_change_nothing() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (key, seed) in [("key", 1), ("other", 2)] {
        client.run(&format!("BF.RESERVE {key} 0.01 100 SEED {seed}"));
        add_numbers(&mut client, key, 1000);
    }
    let others = client.scan_dump("other");
    let chunks = client.scan_dump("key");
    let [(_, header), (cursor, bits), (last, table)] = &chunks[..] else { panic!("{} chunks", chunks.len()) };
    assert_eq!(client.load_chunk("target", 1, header), ok());
    assert_eq!(client.load_chunk("target", *last, table), ok());
    let before = (dump(&mut client, "target"), client.run("DBSIZE"));
    let mut flipped = bits.clone();
    flipped[20] ^= 1;
    // The library's tests have further damages.
    for (what, cursor, data) in [
        ("another filter's", *cursor, &others[1].1[..]),
        ("another chunk's", *cursor, table),
        ("a bit flipped", *cursor, &flipped),
        ("truncated", *cursor, &bits[1..]),
        ("empty", *cursor, &[]),
        ("no cursor", 0, bits),
        ("a cursor off by one", cursor + 1, bits),
        ("a negative cursor", -1, bits),
        ("the smallest cursor", i64::MIN, bits),
        ("the largest cursor", i64::MAX, bits),
        ("the header's cursor", 1, bits),
        ("the header again", 1, header),
        ("the header as a chunk", header.len() as i64 + 1, header),
    ] {
        let reply = client.load_chunk("target", cursor, data);
        assert!(reply.is_error(), "{what}: {reply:?}");
    }
    assert_eq!(client.load_chunk("nokey", 1, &header[1..]), Reply::error("ERR received bad data"));
    for cursor in [0, 2, -1, i64::MAX] {
        assert_eq!(client.load_chunk("nokey", cursor, header), Reply::error("ERR not found"));
    }
    assert_eq!(before, (dump(&mut client, "target"), client.run("DBSIZE")));
    assert_eq!(client.load_chunk("target", *cursor, bits), ok());
    assert_eq!(dump(&mut client, "target"), dump(&mut client, "key"));
}

#[test]
fn cursors_are_numbers() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.ADD key item");
    for cursor in ["x", "1.0", "01", "9223372036854775808"] {
        let scan = client.run(&format!("BF.SCANDUMP key {cursor}"));
        assert_eq!(scan, Reply::error("Second argument must be numeric"));
        let load = client.run(&format!("BF.LOADCHUNK key {cursor} data"));
        assert_eq!(load, Reply::error("ERR Second argument must be numeric"));
    }
    let end = Reply::Array(vec![Reply::Integer(0), Reply::bulk("")]);
    for cursor in ["-1", "-9223372036854775808", "9223372036854775807", "1000000"] {
        assert_eq!(client.run(&format!("BF.SCANDUMP key {cursor}")), end);
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
