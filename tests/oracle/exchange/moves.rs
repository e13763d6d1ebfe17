//! Filters move by snapshots, dumps, chunks, append-only files and replication.

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use crate::exchange::answers::{add_to_both, assert_same};
use crate::exchange::filled::{Filled, KINDS, REMOVED, add, family, fill, words};
use crate::exchange::sides::{CLASSIC, directions, ours, theirs};
use models::random::Random;
use testkit::filter_model::Family;
use testkit::info::info;
use testkit::persistence::{aof_commands, rewrite_aof};
use testkit::replication::{replica_of, wait_for_replica};
use testkit::server::wait_until;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, copy_of};

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
