//! Filters that move from RedisBloom to this module and back, by snapshots, append-only files, chunks and replication.
//! Both sides have the same bits, report the same figures, and give the same replies, false positives included.

mod cuckoo;

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use models::random::Random;
use testkit::command::item;
use testkit::filter_model::{Family, native_in_four_chunks};
use testkit::info::info;
use testkit::payload::{Part, Payload};
use testkit::persistence::{aof_commands, rewrite_aof};
use testkit::replication::{Pair, replica_of, start_replica, wait_for_replica};
use testkit::server::wait_until;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, copy_of, oxbloom, redisbloom};

/// Items with this number or a higher one are never added.
const ABSENT: u64 = 1 << 40;

fn theirs() -> Setup {
    Setup::with_module(redisbloom())
}

/// The settings with which filters are RedisBloom's.
const CLASSIC: &str = "bf-layout classic cf-layout classic";

/// Returns the setup of this module with classic filters.
fn ours() -> Setup {
    Setup::with_module(oxbloom()).module_arguments(CLASSIC)
}

/// A filter's key, and its number of items. The items are numbered from 0.
struct Filled {
    key: &'static str,
    items: u64,
}

/// The first part of the keys of cuckoo filters.
const CUCKOO: &str = "cuckoo";

/// The first part of the keys of cuckoo filters from which half of the items were removed.
const REMOVED: &str = "cuckoo-removed";

/// Returns the prefix of the commands on the filter of a key.
fn family(key: &str) -> Family {
    if key.starts_with(CUCKOO) { Family::Cuckoo } else { Family::Bloom }
}

/// Filters of many kinds: the key, the command that creates the filter, and the number of items. Some are created by
/// additions, with the server's defaults. The last one has several chunks.
const KINDS: [(&str, &str, u64); 19] = [
    ("empty", "BF.RESERVE empty 0.01 1000", 0),
    ("fixed", "BF.RESERVE fixed 0.05 4000 NONSCALING", 3_000),
    ("noted", "BF.INSERT noted CAPACITY 900 EXPANSION 5 NONSCALING ITEMS item", 500),
    ("doubled", "BF.RESERVE doubled 0.05 10 EXPANSION 2", 3_000),
    ("linear", "BF.RESERVE linear 0.01 20 EXPANSION 1", 600),
    ("careless", "BF.RESERVE careless 0.9 100 EXPANSION 4", 2_000),
    ("exact", "BF.RESERVE exact 0.000000001 500", 700),
    ("added", "BF.ADD added item", 1_000),
    ("inserted", "BF.INSERT inserted CAPACITY 7 ERROR 0.2 ITEMS item", 100),
    // Layers of 11 KB and 25 MB.
    ("large", "BF.RESERVE large 0.01 8000 EXPANSION 2000", 9_000),
    ("cuckoo-empty", "CF.RESERVE cuckoo-empty 1000", 0),
    ("cuckoo-fixed", "CF.RESERVE cuckoo-fixed 5000 EXPANSION 0", 3_000),
    ("cuckoo-doubled", "CF.RESERVE cuckoo-doubled 10 EXPANSION 2 MAXITERATIONS 5", 3_000),
    ("cuckoo-linear", "CF.RESERVE cuckoo-linear 60 BUCKETSIZE 3", 600),
    ("cuckoo-added", "CF.ADD cuckoo-added item", 2_000),
    ("cuckoo-inserted", "CF.INSERT cuckoo-inserted CAPACITY 70 ITEMS item", 600),
    ("cuckoo-removed", "CF.INSERTNX cuckoo-removed CAPACITY 500 ITEMS item", 4_000),
    ("cuckoo-removed-fast", "CF.RESERVE cuckoo-removed-fast 4 BUCKETSIZE 1 EXPANSION 4", 1_000),
    // Layers of 10 KB and 21 MB.
    ("cuckoo-large", "CF.RESERVE cuckoo-large 10000 BUCKETSIZE 5 EXPANSION 2000", 20_000),
];

fn fill(client: &mut Wire) -> Vec<Filled> {
    let fill = |(key, command, items)| {
        assert!(!client.run(command).is_error(), "{command}");
        add(client, key, 0, items);
        if !key.starts_with(REMOVED) {
            return Filled { key, items };
        }
        for number in items / 2..items {
            let removed = client.run_words(&words("CF.DEL", key, number, number + 1));
            assert!(!removed.is_error(), "{key}: {removed:?}");
        }
        assert_eq!(client.run(&format!("CF.COMPACT {key}")), Reply::simple("OK"));
        Filled { key, items: items / 2 }
    };
    KINDS.map(fill).into()
}

fn words(command: &str, key: &str, from: u64, to: u64) -> Vec<Vec<u8>> {
    let items = (from..to).map(item);
    [command, key].into_iter().map(|word| word.as_bytes().to_vec()).chain(items).collect()
}

/// Adds items by BF.MADD and BF.INSERT, or by CF.INSERT and CF.INSERTNX, in turn.
fn add(client: &mut Wire, key: &str, from: u64, to: u64) {
    let commands = if family(key) == Family::Cuckoo { ["CF.INSERT", "CF.INSERTNX"] } else { ["BF.MADD", "BF.INSERT"] };
    for (start, command) in (from..to).step_by(1000).zip(commands.into_iter().cycle()) {
        let mut words = words(command, key, start, to.min(start + 1000));
        if command != "BF.MADD" {
            words.insert(2, b"ITEMS".to_vec());
        }
        let reply = client.run_words(&words);
        assert!(reply.elements().iter().all(|reply| !reply.is_error()), "{key}: {reply:?}");
    }
}

/// A server's replies about a filter.
#[derive(PartialEq)]
struct Answers {
    facts: Vec<Reply>,
    dump: Reply,
    present: Vec<bool>,
    absent: Vec<bool>,
}

/// Returns a server's replies about a filter. Panics if an item is missing, unless others were removed: in a classic
/// cuckoo filter with several layers, two items may be the same in one of them.
fn answers(client: &mut Wire, filled: &Filled) -> Answers {
    let key = filled.key;
    let family = family(key);
    // The memory of a cuckoo filter includes that of its layers' descriptions, which RedisBloom does not count.
    let facts: &[&str] = if family == Family::Cuckoo {
        &["CF.INFO key", "CF.DEBUG key", "CF.COUNT key item", "TYPE key"]
    } else {
        &["BF.INFO key", "BF.DEBUG key", "BF.CARD key", "MEMORY USAGE key", "TYPE key"]
    };
    let facts = facts.iter().map(|question| client.run(&question.replace("key", key))).collect();
    let mexists = format!("{}.MEXISTS", family.prefix());
    let mut found = |from: u64, to: u64| -> Vec<bool> {
        let starts = (from..to).step_by(1000);
        let replies = starts.map(|start| client.run_words(&words(&mexists, key, start, to.min(start + 1000))));
        replies.flat_map(|reply| reply.elements().iter().filter_map(Reply::as_bool).collect::<Vec<_>>()).collect()
    };
    let present = found(0, filled.items);
    assert_eq!(present.len() as u64, filled.items);
    assert!(key.starts_with(REMOVED) || present.iter().all(|&present| present), "{key}: items are missing");
    let absent = found(ABSENT, ABSENT + 3000);
    Answers { facts, dump: client.run(&format!("DUMP {key}")), present, absent }
}

fn assert_same(one: &mut Wire, other: &mut Wire, all: &[Filled]) {
    for filled in all {
        let (one, other) = (answers(one, filled), answers(other, filled));
        assert_eq!(one.facts, other.facts, "{}", filled.key);
        assert_eq!(one.present, other.present, "{}", filled.key);
        assert_eq!(one.absent, other.absent, "{}", filled.key);
        assert!(one.dump == other.dump, "{}: dumps differ", filled.key);
    }
}

/// Adds the same items to all filters on both servers.
fn add_to_both(clients: [&mut Wire; 2], all: &mut [Filled]) {
    let [one, other] = clients;
    for filled in all {
        let more = if filled.key.ends_with("large") { 4_000 } else { 50 + filled.items / 10 };
        add(one, filled.key, filled.items, filled.items + more);
        add(other, filled.key, filled.items, filled.items + more);
        filled.items += more;
    }
}

type Starter = fn() -> Setup;

/// Returns both directions of a move: the setups of the server that writes and of the one that reads.
fn directions() -> [(Starter, Starter); 2] {
    [(theirs, ours), (ours, theirs)]
}

#[test]
fn a_snapshot_of_either_is_loaded_by_the_other() {
    for (writer, reader) in directions() {
        let server = writer().start();
        let mut client = Wire::resp2(&server);
        let mut all = fill(&mut client);
        assert_eq!(client.run("SAVE"), Reply::simple("OK"));
        let other = reader().on(copy_of(server.folder())).start();
        let mut other_client = Wire::resp2(&other);
        assert_same(&mut client, &mut other_client, &all);
        add_to_both([&mut client, &mut other_client], &mut all);
        assert_same(&mut client, &mut other_client, &all);
        // Moves the filters back.
        assert_eq!(other_client.run("SAVE"), Reply::simple("OK"));
        let back = writer().on(copy_of(other.folder())).start();
        assert_same(&mut Wire::resp2(&back), &mut other_client, &all);
    }
}

#[test]
fn a_dump_of_either_is_restored_by_the_other() {
    for (writer, reader) in directions() {
        let (server, other) = (writer().start(), reader().start());
        let (mut client, mut other) = (Wire::resp2(&server), Wire::resp2(&other));
        let mut all = fill(&mut client);
        for filled in &all {
            let dump = client.run(&format!("DUMP {}", filled.key));
            let restored = other.run_words(&[b"RESTORE", filled.key.as_bytes(), b"0", dump.bytes()]);
            assert_eq!(restored, Reply::simple("OK"));
        }
        assert_same(&mut client, &mut other, &all);
        add_to_both([&mut client, &mut other], &mut all);
        assert_same(&mut client, &mut other, &all);
    }
}

#[test]
fn chunks_of_either_are_loaded_by_the_other() {
    for (writer, reader) in directions() {
        let (server, other) = (writer().start(), reader().start());
        let (mut client, mut other) = (Wire::resp2(&server), Wire::resp2(&other));
        let mut all = fill(&mut client);
        // One layer of 36 MB, which has three chunks.
        client.run("BF.RESERVE huge 0.01 26000000");
        add(&mut client, "huge", 0, 20_000);
        all.push(Filled { key: "huge", items: 20_000 });
        // RedisBloom's dump of an empty cuckoo filter is empty.
        all.retain(|filled| !client.scan_dump_of(family(filled.key), filled.key).is_empty());
        assert!(all.len() >= KINDS.len());
        for filled in &all {
            let family = family(filled.key);
            let written = client.scan_dump_of(family, filled.key);
            for (cursor, data) in &written {
                assert_eq!(other.load_chunk_of(family, filled.key, *cursor, data), Reply::simple("OK"));
            }
            let again = other.scan_dump_of(family, filled.key);
            let is_same = written == again || filled.key == "cuckoo-empty" && again.is_empty();
            assert!(is_same, "{}: chunks differ", filled.key);
        }
        assert_eq!(client.scan_dump("huge").len(), 1 + 3);
        assert_eq!(client.scan_dump("large").len(), 1 + 1 + 2);
        assert_eq!(client.scan_dump_of(Family::Cuckoo, "cuckoo-large").len(), 1 + 1 + 2);
        assert_same(&mut client, &mut other, &all);
        add_to_both([&mut client, &mut other], &mut all);
        assert_same(&mut client, &mut other, &all);
    }
}

/// BF.SCANDUMP reads from any cursor, and BF.LOADCHUNK accepts any part of a layer.
#[test]
fn chunks_may_begin_anywhere() {
    let (their_server, our_server) = (theirs().start(), ours().start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    for client in [&mut theirs, &mut ours] {
        client.run("BF.RESERVE key 0.01 100 EXPANSION 2");
        add(client, "key", 0, 500);
    }
    let bytes: i64 = ours.scan_dump("key").last().unwrap().0;
    for cursor in (-2..bytes + 3).chain([1 << 40, 1 << 52, i64::MAX, i64::MIN]) {
        let line = format!("BF.SCANDUMP key {cursor}");
        assert_eq!(theirs.run(&line), ours.run(&line), "{line}");
    }
    let (_, header) = &ours.scan_dump("key")[0];
    for client in [&mut theirs, &mut ours] {
        assert_eq!(client.load_chunk("copy", 1, header), Reply::simple("OK"));
    }
    let all = ours.scan_dump("key").split_off(1);
    for (end, data) in &all {
        let start = end - data.len() as i64;
        for (index, part) in data.chunks(7).enumerate() {
            let cursor = start + 7 * index as i64 + part.len() as i64;
            for client in [&mut theirs, &mut ours] {
                assert_eq!(client.load_chunk("copy", cursor, part), Reply::simple("OK"));
            }
        }
    }
    let whole = theirs.run("DUMP key");
    for client in [&mut theirs, &mut ours] {
        assert!(client.run("DUMP copy") == whole);
    }
}

#[test]
fn an_append_only_file_of_either_is_loaded_by_the_other() {
    for preamble in ["yes", "no"] {
        for (writer, reader) in directions() {
            let log = |setup: Setup| {
                let setup = setup.set("appendonly yes").set("appendfsync always");
                setup.set(format!("aof-use-rdb-preamble {preamble}"))
            };
            let server = log(writer()).start();
            let mut client = Wire::resp2(&server);
            let mut all = fill(&mut client);
            // Both the file as written and the rewritten file are loaded.
            for rewritten in [false, true] {
                if rewritten {
                    rewrite_aof(&mut server.connect());
                }
                if rewritten && preamble == "no" {
                    let names = aof_commands(server.folder()).into_iter().map(|words| words[0].to_ascii_uppercase());
                    assert!(names.filter(|name| name.ends_with(b"F.LOADCHUNK")).count() > all.len());
                }
                let other = log(reader()).on(copy_of(server.folder())).start();
                let mut other_client = Wire::resp2(&other);
                assert_same(&mut client, &mut other_client, &all);
                for filled in &mut all {
                    add(&mut client, filled.key, filled.items, filled.items + 20);
                    filled.items += 20;
                }
            }
        }
    }
}

type BoxedStarter = Box<dyn Fn() -> Setup>;

#[test]
fn either_is_a_replica_of_the_other_under_load_and_takes_over() {
    let defaults =
        |setup: Setup, layout: &str| setup.module_arguments(&format!("ERROR_RATE 0.03 INITIAL_SIZE 20 {layout}"));
    let theirs: BoxedStarter = Box::new(move || defaults(theirs(), ""));
    let ours: BoxedStarter = Box::new(move || defaults(ours(), CLASSIC));
    for (master, replica) in [(&theirs, &ours), (&ours, &theirs)] {
        let master = master().set("repl-backlog-size 64mb").set("repl-diskless-sync-delay 0").start();
        let mut client = Wire::resp2(&master);
        let mut all = fill(&mut client);

        // Additions continue while the replica receives the snapshot, while its link is cut, and while it reconnects.
        let (replica, written) = thread::scope(|scope| {
            let (running, ended) = mpsc::channel();
            let writer = Wire::resp2(&master);
            let writing = scope.spawn(move || write_until(&ended, writer));
            let replica = replica_of(&master, replica().set("repl-diskless-sync-delay 0")).start();
            let (mut on_master, mut on_replica) = (master.connect(), replica.connect());
            wait_until("the link is up", || info(&mut on_replica, "replication", "master_link_status") == "up");
            for _ in 0..3 {
                let before = info(&mut on_master, "stats", "sync_partial_ok");
                assert!(ask::<u64>(&mut on_master, "CLIENT KILL TYPE replica") >= 1);
                wait_until("the replica resumes", || info(&mut on_master, "stats", "sync_partial_ok") != before);
                thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(info(&mut on_master, "stats", "sync_full"), "1");
            // A replica that was a master in between synchronizes in full.
            let mut other = Wire::resp2(&replica);
            for line in ["REPLICAOF NO ONE".to_owned(), format!("REPLICAOF 127.0.0.1 {}", master.port)] {
                assert_eq!(other.run(&line), Reply::simple("OK"));
            }
            wait_until("the link is up", || {
                info(&mut on_replica, "replication", "master_link_status") == "up"
                    && info(&mut on_master, "stats", "sync_full") == "2"
            });
            drop(running);
            let written = writing.join().unwrap();
            wait_for_replica(&mut on_master, &mut on_replica);
            (replica, written)
        });
        all.extend(written);
        let mut other = Wire::resp2(&replica);
        assert_same(&mut client, &mut other, &all);

        // The replica takes over, and behaves as the master would have.
        assert_eq!(other.run("REPLICAOF NO ONE"), Reply::simple("OK"));
        add_to_both([&mut client, &mut other], &mut all);
        assert_same(&mut client, &mut other, &all);
    }
}

/// Creates filters, most of them by additions, adds items to them, and removes some from one of them, until the other
/// end of the channel is dropped, also by a panic.
fn write_until(ended: &Receiver<()>, mut client: Wire) -> Vec<Filled> {
    const KEYS: [&str; 6] = ["live-1", "live-2", "cuckoo-removed-live", "live-3", "cuckoo-live", "live-4"];
    let mut all: Vec<Filled> = Vec::new();
    let mut random = Random::unpredictable();
    while ended.try_recv() == Err(TryRecvError::Empty) {
        let index = random.below(KEYS.len() as u64) as usize;
        if index >= all.len() {
            let key = KEYS[all.len()];
            all.push(Filled { key, items: 0 });
            if family(key) == Family::Cuckoo {
                // With the default expansion, the filter would be full after 31,000 items.
                assert_eq!(client.run(&format!("CF.RESERVE {key} 1000 EXPANSION 2")), Reply::simple("OK"));
            }
        }
        let newest = all.len() - 1;
        let filled = &mut all[index.min(newest)];
        let more = 1 + random.below(30);
        if more == 1 {
            let add = format!("{}.ADD", family(filled.key).prefix());
            let added = client.run_words(&words(&add, filled.key, filled.items, filled.items + 1));
            assert!(!added.is_error());
        } else {
            add(&mut client, filled.key, filled.items, filled.items + more);
        }
        // Most of these items are present.
        add(&mut client, filled.key, filled.items / 2, filled.items / 2 + 2);
        filled.items += more;
        if filled.key.starts_with(REMOVED) {
            let number = random.below(filled.items);
            assert!(client.run_words(&words("CF.DEL", filled.key, number, number + 1)).as_bool().is_some());
            if more < 3 {
                assert_eq!(client.run(&format!("CF.COMPACT {}", filled.key)), Reply::simple("OK"));
            }
        }
    }
    all
}

/// Restores filters in all versions of RedisBloom's file format. Some are from before it hashed with 64 bits, and some
/// have its earlier rounding.
#[test]
fn filters_of_all_versions_are_restored_and_grow_as_in_redisbloom() {
    let (their_server, our_server) =
        (theirs().set("rdbcompression no").start(), ours().set("rdbcompression no").start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    theirs.run("BF.ADD key item");
    let original = Payload::parse(theirs.run("DUMP key").bytes());
    const BITS_PER_ITEM: f64 = 11.027754;
    // The option flags, the number of bits, and its logarithm if it is a power of two.
    for (options, bits, log2_bits) in [(5, 1152, 0), (4, 1024, 10), (1, 1152, 0), (0, 1024, 10), (13, 1152, 0)] {
        for encoding in 0..=5 {
            for expansion in [1, 2, 3] {
                use Part::{Double, String, Unsigned};
                let mut parts = vec![Unsigned(0), Unsigned(1)];
                if encoding >= 2 {
                    parts.push(Unsigned(options));
                }
                if encoding >= 4 {
                    parts.push(Unsigned(expansion));
                }
                parts.extend([Unsigned(90), Double(0.005), Unsigned(8), Double(BITS_PER_ITEM)]);
                if encoding >= 1 {
                    parts.extend([Unsigned(bits), Unsigned(log2_bits)]);
                }
                parts.extend([String(vec![0; bits as usize / 8]), Unsigned(0)]);
                let payload = original.with_parts(encoding, &parts);
                let what = format!("encoding {encoding}, options {options}, expansion {expansion}");
                let lines: Vec<Vec<Vec<u8>>> = [
                    vec![b"FLUSHALL".to_vec()],
                    vec![b"RESTORE".to_vec(), b"key".to_vec(), b"0".to_vec(), payload],
                    words("BF.MADD", "key", 0, 800),
                    words("BF.MEXISTS", "key", 0, 2000),
                ]
                .into();
                let questions = ["BF.DEBUG key", "BF.INFO key", "BF.CARD key", "DUMP key", "BF.SCANDUMP key 0"];
                let questions = questions.map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect());
                for line in lines.into_iter().chain(questions) {
                    let (theirs, ours) = (theirs.run_words(&line), ours.run_words(&line));
                    assert!(theirs == ours, "{what}: {}: {theirs:?}, ours: {ours:?}", line[0].escape_ascii());
                }
            }
        }
    }
}

/// After a failure to grow, RedisBloom leaves a layer without bits, in which every item is present.
#[test]
fn a_filter_that_broke_in_redisbloom_is_restored_as_it_is() {
    let (their_server, our_server) = (theirs().start(), ours().start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    theirs.run("BF.INSERT key CAPACITY 2 EXPANSION 4294967296 ITEMS one two three");
    let dump = theirs.run("DUMP key");
    assert_eq!(ours.run_words(&[&b"RESTORE"[..], b"key", b"0", dump.bytes()]), Reply::simple("OK"));
    for line in ["BF.DEBUG key", "BF.INFO key", "DUMP key", "BF.MEXISTS key one three four", "BF.ADD key five"] {
        assert_eq!(theirs.run(line), ours.run(line), "{line}");
    }
    assert_eq!(ours.run("BF.MEXISTS key one three four"), Reply::integers(&[1, 1, 1]));
}

/// Compares thousands of random capacities and error rates.
#[test]
fn filters_have_the_same_size_for_any_capacity_and_error_rate() {
    let (their_server, our_server) = (theirs().start(), ours().start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    let mut random = Random::unpredictable();
    for _ in 0..3000 {
        let rate = 10f64.powf(-(random.below(12_000) as f64) / 1000.0 - 0.001);
        let capacity = 1 + random.next_u64() % 10u64.pow(1 + random.below(8) as u32);
        let option = random.one_of(&["", "NONSCALING", "EXPANSION 1"]);
        let reserve = format!("BF.RESERVE key {rate} {capacity} {option}");
        for line in [reserve.as_str(), "BF.SCANDUMP key 0", "MEMORY USAGE key", "DEL key"] {
            assert_eq!(theirs.run(line), ours.run(line), "{reserve}: {line}");
        }
    }
}

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
    let server = Setup::with_module(oxbloom()).start();
    let mut client = Wire::resp2(&server);
    native_in_four_chunks(&mut server.connect(), "key");
    let their_server = theirs().start();
    let mut theirs_client = Wire::resp2(&their_server);
    theirs_client.run("BF.RESERVE taken 0.01 1000");
    add(&mut theirs_client, "taken", 0, 5_000);
    let before = theirs_client.run("DUMP taken");

    let dump = client.run("DUMP key");
    let restored = theirs_client.run_words(&[&b"RESTORE"[..], b"key", b"0", dump.bytes()]);
    assert_eq!(restored, Reply::error("ERR Bad data format"));
    let chunks = client.scan_dump("key");
    assert_eq!(chunks.len(), 5);
    assert_eq!(theirs_client.load_chunk("key", 1, &chunks[0].1), Reply::error("ERR received bad data"));
    for (cursor, data) in &chunks[1..] {
        let reply = theirs_client.load_chunk("taken", *cursor, data);
        assert_eq!(reply, Reply::error("ERR invalid offset - no link found"));
    }
    assert!(theirs_client.run("DUMP taken") == before);

    assert_eq!(client.run("SAVE"), Reply::simple("OK"));
    theirs().on(copy_of(server.folder())).must_not_start(&["oxbloom--"]);

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
