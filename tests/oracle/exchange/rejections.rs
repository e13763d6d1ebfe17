//! Chunks, options and filters that one side or both reject.

use crate::exchange::answers::assert_same;
use crate::exchange::filled::{Filled, add, family, words};
use crate::exchange::sides::{ours, theirs};
use testkit::replication::{Pair, start_replica, wait_for_replica};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, copy_of, oxbloom};

/// Both modules reply with the same errors to invalid chunks. (Chunks on which RedisBloom crashes are left out.)
#[test]
fn invalid_chunks_are_rejected_with_the_same_errors() {
    let (their_server, our_server) = (theirs().start(), ours().start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    for client in [&mut theirs, &mut ours] {
        for (key, capacity) in [("key", 100), ("other", 37)] {
            client.run(&format!("BF.RESERVE {key} 0.01 {capacity}"));
            add(client, key, 0, 400);
        }
    }
    let (header, bits) = {
        let mut chunks = ours.scan_dump("key");
        let bits = chunks.split_off(1);
        (chunks.remove(0).1, bits)
    };
    let with = |at: usize, bytes: &[u8]| {
        let mut header = header.clone();
        header[at..at + bytes.len()].copy_from_slice(bytes);
        header
    };
    let (first_layer, number) = (20, |number: u64| number.to_le_bytes());
    let mut saturated = with(0, &number(u64::MAX));
    saturated[first_layer + 16..][..8].copy_from_slice(&number(u64::MAX));
    let headers = [
        vec![],
        header[..header.len() - 1].to_vec(),
        header[..20].to_vec(),
        [&header[..], &[0]].concat(),
        with(0, &number(1)),
        with(0, &number(u64::MAX)),
        with(8, &[0]),
        with(8, &[2]),
        with(8, &[0xff; 4]),
        with(12, &[16]),
        with(12, &[0xff; 4]),
        with(first_layer, &number(0)),
        with(first_layer, &number(143)),
        with(first_layer + 8, &number(0)),
        with(first_layer + 8, &number(1151)),
        with(first_layer + 8, &number(u64::MAX)),
        with(first_layer + 16, &number(1)),
        with(first_layer + 24, &0f64.to_le_bytes()),
        with(first_layer + 24, &(-0.5f64).to_le_bytes()),
        with(first_layer + 24, &1f64.to_le_bytes()),
        with(first_layer + 32, &f64::NAN.to_le_bytes()),
        with(first_layer + 32, &(-1f64).to_le_bytes()),
        with(first_layer + 40, &[0]),
        with(first_layer + 40, &[9]),
        with(first_layer + 52, &[11]),
        // With a saturating sum of the layers' items, this header would be valid.
        saturated,
        bits[0].1.clone(),
    ];
    for (index, header) in headers.iter().enumerate() {
        let replies = [&mut theirs, &mut ours].map(|client| client.load_chunk("nokey", 1, header));
        assert_eq!(replies[0], replies[1], "header {index}");
        assert_eq!(replies[1], Reply::error("ERR received bad data"), "header {index}");
    }
    let before = ours.run("DUMP key");
    let (end, data) = &bits[1];
    let wrong = [
        ("nokey", *end, data.clone()),
        ("nokey", 0, header.clone()),
        ("key", 1, header.clone()),
        ("key", 0, data.clone()),
        ("key", -1, data.clone()),
        ("key", i64::MIN, data.clone()),
        ("key", i64::MAX, data.clone()),
        ("key", 1 << 52, data.clone()),
        ("key", data.len() as i64, data.clone()),
        ("key", data.len() as i64 - 1, data.clone()),
        ("key", end + 8, data.clone()),
        ("key", bits[0].0 + 8, bits[0].1.clone()),
        ("key", bits.last().unwrap().0, [&bits.last().unwrap().1[..], &[0; 8]].concat()),
        ("key", bits.last().unwrap().0 + 1, vec![]),
    ];
    for (key, cursor, data) in &wrong {
        let replies = [&mut theirs, &mut ours].map(|client| client.load_chunk(key, *cursor, data));
        assert_eq!(replies[0], replies[1], "{key} {cursor}");
        assert!(replies[1].is_error(), "{key} {cursor}: {:?}", replies[1]);
    }
    assert!(ours.run("DUMP key") == before && theirs.run("DUMP key") == before);
    assert_eq!(ours.run("EXISTS nokey"), Reply::Integer(0));
}

/// A chunk that is loaded again later is an intended difference: in RedisBloom, it clears the bits that were set since.
#[test]
fn a_chunk_that_is_loaded_again_clears_no_bits_also_on_replicas() {
    let master = ours().set("repl-diskless-sync-delay 0").start();
    let mut client = Wire::resp2(&master);
    client.run("BF.RESERVE key 0.01 1000");
    let old = client.scan_dump("key");
    let all = [Filled { key: "key", items: 500 }];
    for setup in [theirs(), ours()] {
        let replica = start_replica(&master, setup);
        add(&mut client, "key", 0, 500);
        for (cursor, data) in &old[1..] {
            assert_eq!(client.load_chunk("key", *cursor, data), Reply::simple("OK"));
        }
        wait_for_replica(&mut master.connect(), &mut replica.connect());
        assert_same(&mut client, &mut Wire::resp2(&replica), &all);
    }
    // A replica has the same bits as its master, even where the master lost items.
    let master = theirs().set("repl-diskless-sync-delay 0").start();
    let mut client = Wire::resp2(&master);
    client.run("BF.RESERVE key 0.01 1000");
    let replica = start_replica(&master, ours());
    add(&mut client, "key", 0, 500);
    for (cursor, data) in &old[1..] {
        assert_eq!(client.load_chunk("key", *cursor, data), Reply::simple("OK"));
    }
    wait_for_replica(&mut master.connect(), &mut replica.connect());
    assert!(client.run("DUMP key") == Wire::resp2(&replica).run("DUMP key"));
    assert_eq!(client.run_words(&words("BF.EXISTS", "key", 0, 1)), Reply::Integer(0), "RedisBloom still has the item");
}

/// RedisBloom accepts options that we reject, and replicates them. A replica must still get all acknowledged items.
#[test]
fn options_that_only_redisbloom_accepts_are_applied_in_its_commands() {
    const LINES: [&str; 22] = [
        "BF.INSERT letters CAP 9 ERRATIC 0.2 EX 3 ITEMS a b c",
        "BF.INSERT shorter c 9 er 0.2 e 3 i a b c",
        "BF.INSERT last CAPACITY 5 CAPACITY 6 ERROR 0.1 ERROR 0.3 ITEMS a",
        "BF.INSERT fixed N NO CAPACITY 3 ITEMS a",
        "BF.INSERT letters NXCREATE ITEMS d",
        "BF.INSERT wide EXPANSION 4294967299 CAPACITY 2 ITEMS a b c d e",
        "BF.RESERVE unknown 0.01 10 WHATEVER IS SAID",
        "BF.RESERVE seeded 0.01 10 SEED 5",
        "BF.RESERVE first 0.01 10 EXPANSION 3 EXPANSION",
        "BF.RESERVE nonscaling 0.01 10",
        "BF.RESERVE twice 0.01 10 NONSCALING NONSCALING",
        "BF.RESERVE cut 0.01 2 EXPANSION 4294967298",
        "BF.MADD cut a b c d e f g h",
        "BF.MADD unknown a b c d e f g h i j k l m n o",
        "CF.INSERT cuckoo-letters cap 100 iffy a b c",
        "CF.INSERTNX cuckoo-letters I c d e",
        "CF.INSERT cuckoo-last CAPACITY 100 CAPACITY 300 ITEMS a",
        "CF.RESERVE cuckoo-unknown 100 WHATEVER BUCKETSIZE 3 MAXITERATIONS 7 x",
        "CF.RESERVE cuckoo-first 100 BUCKETSIZE 3 BUCKETSIZE x",
        "CF.RESERVE cuckoo-layout 100 SEED 5 LAYOUT native",
        "CF.RESERVE EXPANSION 100",
        "CF.INSERT cuckoo-layout ITEMS a b a",
    ];
    let Pair { master, replica } = Pair::start(theirs().set("appendonly yes").set("appendfsync always"), ours());
    let mut client = Wire::resp2(&master);
    for line in LINES {
        assert!(!client.run(line).is_error(), "{line}");
    }
    wait_for_replica(&mut master.connect(), &mut replica.connect());
    let loaded = ours().set("appendonly yes").on(copy_of(master.folder())).start();
    for other in [&replica, &loaded] {
        let mut other = Wire::resp2(other);
        assert_eq!(other.run("DBSIZE"), client.run("DBSIZE"));
        for line in LINES {
            let dump = format!("DUMP {}", line.split(' ').nth(1).unwrap());
            assert!(client.run(&dump) == other.run(&dump), "{line}");
        }
        let log = replica.log();
        assert!(!log.contains("CRITICAL"), "{log}");
    }
    // A capacity that exceeds any memory does not make the replica exit.
    client.run("BF.RESERVE absurd 0.01 9223372036854775807");
    client.run("BF.ADD absurd item");
    wait_for_replica(&mut master.connect(), &mut replica.connect());
    assert_eq!(Wire::resp2(&replica).run("BF.EXISTS absurd item"), Reply::Integer(1));
}

/// RedisBloom cannot misread native filters: each way to give it one fails with an error.
#[test]
fn redisbloom_rejects_native_filters() {
    for (key, taken, reserve, data_type, no_header, no_chunk) in [
        (
            "key",
            "taken",
            "BF.RESERVE taken 0.01 1000",
            "oxbloom--",
            "ERR received bad data",
            "ERR invalid offset - no link found",
        ),
        (
            "cuckoo-key",
            "cuckoo-taken",
            "CF.RESERVE cuckoo-taken 1000",
            "oxcuckoo-",
            "Invalid header",
            "Couldn't load chunk!",
        ),
    ] {
        let family = family(key);
        let (server, their_server) = (Setup::with_module(oxbloom()).start(), theirs().start());
        let (mut client, mut theirs_client) = (Wire::resp2(&server), Wire::resp2(&their_server));
        add(&mut client, key, 0, 5_000);
        theirs_client.run(reserve);
        add(&mut theirs_client, taken, 0, 5_000);
        let before = theirs_client.run(&format!("DUMP {taken}"));

        let dump = client.run(&format!("DUMP {key}"));
        let restored = theirs_client.run_words(&[&b"RESTORE"[..], b"new", b"0", dump.bytes()]);
        assert_eq!(restored, Reply::error("ERR Bad data format"));
        let chunks = client.scan_dump_of(family, key);
        assert!(chunks.len() > 1, "{key}");
        assert_eq!(theirs_client.load_chunk_of(family, "new", 1, &chunks[0].1), Reply::error(no_header));
        for (cursor, data) in &chunks[1..] {
            assert_eq!(theirs_client.load_chunk_of(family, taken, *cursor, data), Reply::error(no_chunk));
        }
        assert!(theirs_client.run(&format!("DUMP {taken}")) == before);

        assert_eq!(client.run("SAVE"), Reply::simple("OK"));
        theirs().on(copy_of(server.folder())).must_not_start(&[data_type]);
    }

    // The creation of a native filter is replicated with options that RedisBloom rejects.
    let Pair { master, replica } = Pair::start(ours(), theirs());
    let mut client = Wire::resp2(&master);
    client.run("BF.RESERVE growing 0.01 1000 LAYOUT native");
    client.run("BF.RESERVE fixed 0.01 1000 NONSCALING LAYOUT native");
    wait_for_replica(&mut master.connect(), &mut replica.connect());
    assert_eq!(Wire::resp2(&replica).run("EXISTS growing fixed"), Reply::Integer(0));
    let log = replica.log();
    assert_eq!(log.matches("wrong number of arguments for 'bf.reserve'").count(), 2, "{log}");
}
