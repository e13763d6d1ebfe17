//! Replicas, restarted servers and copies remember and forget the same items.

use std::collections::BTreeMap;

use redis::{Connection, Value};

use crate::forgetting::items::{RARE, SEED, add, all_found, found};
use models::random::Random;
use testkit::clock::{SECOND, stopped, stopped_pair, turn, with_clock};
use testkit::command::{item, many};
use testkit::info::{digest, digest_of, info, info_number};
use testkit::persistence::{aof_commands, rewrite_aof};
use testkit::replication::{follow, start_replica, wait_for_replica};
use testkit::server::{copy_of, wait_until};
use testkit::wire::{Reply, Wire};
use testkit::{Server, ask, run, run_words};

/// Adds items to filters of all kinds, while the clock goes forward.
fn fill(client: &mut Connection, random: &mut Random, clock: &mut i64, rounds: u64) {
    const KINDS: [(&str, &str); 6] = [
        ("plain", "WINDOW 3600"),
        ("refresh", "WINDOW 3600 REFRESH SLICES 3"),
        ("fixed", "WINDOW 3600 NONSCALING SLICES 64"),
        ("rolling", "ROLLING"),
        ("both", "WINDOW 3600 ROLLING REFRESH"),
        ("small", "WINDOW 3600 EXPANSION 1 SLICES 2"),
    ];
    for (key, options) in KINDS {
        let capacity = if key == "small" { 10 } else { 2000 };
        // In later calls, the filter exists, and this is rejected.
        let _ = run(client, &format!("BF.RESERVE {key} 0.01 {capacity} {options}"));
    }
    for _ in 0..rounds {
        *clock += random.below(600) as i64 * SECOND;
        turn(client, *clock);
        for (key, _) in KINDS {
            let first = random.below(2000);
            let numbers: Vec<_> = (first..first + random.below(200) + 1).collect();
            match random.below(4) {
                0 => drop(many::<Value>(client, "BF.ADD", key, &numbers[..1])),
                1 if !["rolling", "both"].contains(&key) => {
                    let ttl = (1 + random.below(3600)).to_string();
                    let words: [&[u8]; 5] = [b"BF.INSERT", key.as_bytes(), b"TTL", ttl.as_bytes(), b"ITEMS"];
                    let items: Vec<_> = numbers.iter().map(|&number| item(number)).collect();
                    let words: Vec<&[u8]> = words.into_iter().chain(items.iter().map(Vec::as_slice)).collect();
                    run_words(client, &words).unwrap();
                }
                _ => drop(many::<Value>(client, "BF.MADD", key, &numbers)),
            }
        }
    }
}

/// Returns the replies about the first 2,500 items and the facts about each filter.
fn answers(client: &mut Connection) -> BTreeMap<String, (Vec<bool>, u64, Value)> {
    let numbers: Vec<_> = (0..2500).collect();
    let keys: Vec<String> = ask(client, "KEYS *");
    let answer = |key: String| {
        let card = ask(client, &format!("BF.CARD {key}"));
        let facts = ask(client, &format!("BF.INFO {key}"));
        (key.clone(), (found(client, &key, &numbers), card, facts))
    };
    keys.into_iter().map(answer).collect()
}

/// Synchronizes a replica in full, and calls `write` until its link is up. Returns true if `write` ran while the link
/// was down.
fn resynchronize(master: &Server, replica: &Server, mut write: impl FnMut()) -> bool {
    let (mut client, mut reader) = (master.connect(), replica.connect());
    let before = info_number(&mut client, "stats", "sync_full");
    run(&mut client, "CONFIG SET rdb-key-save-delay 200000").unwrap();
    run(&mut reader, "REPLICAOF NO ONE").unwrap();
    follow(&mut reader, master.port);
    wait_until("the synchronization has begun", || info_number(&mut client, "stats", "sync_full") > before);
    let mut hit = false;
    wait_until("the replica's link is up", || {
        write();
        let is_up = info(&mut reader, "replication", "master_link_status") == "up";
        hit |= !is_up;
        is_up
    });
    run(&mut client, "CONFIG SET rdb-key-save-delay 0").unwrap();
    hit
}

#[test]
fn replicas_and_restarted_servers_have_the_same_filters_whatever_their_clocks_say() {
    let master = stopped(with_clock().set("appendonly yes").set("aof-use-rdb-preamble no"));
    let mut client = master.connect();
    let (mut random, mut clock) = (Random(1), 0);
    fill(&mut client, &mut random, &mut clock, 5);
    let replicas = [0, 40 * 86_400 * SECOND, -40 * 86_400 * SECOND].map(|ahead| {
        let replica = start_replica(&master, with_clock().module_arguments("error-rate 0.3 layout classic"));
        turn(&mut replica.connect(), ahead);
        replica
    });
    let same = |client: &mut Connection, digest: &str, clock: i64, expected: &BTreeMap<_, _>, what: &str| {
        assert_eq!(testkit::info::digest(client), digest, "{what}");
        turn(client, clock);
        assert!(answers(client) == *expected, "{what}");
    };
    let mut hit = false;
    for round in 0..3 {
        fill(&mut client, &mut random, &mut clock, 20);
        hit |= resynchronize(&master, &replicas[round], || fill(&mut client, &mut random, &mut clock, 1));
        let digest = digest(&mut client);
        for later in [0, 1000, 5000] {
            turn(&mut client, clock + later * SECOND);
            let expected = answers(&mut client);
            for (number, replica) in replicas.iter().enumerate() {
                let mut replica = replica.connect();
                wait_for_replica(&mut client, &mut replica);
                same(
                    &mut replica,
                    &digest,
                    clock + later * SECOND,
                    &expected,
                    &format!("replica {number}, round {round}"),
                );
                turn(&mut replica, [0, 40, -40][number] * 86_400 * SECOND);
            }
            let copy = copy_of(master.folder());
            let restarted = with_clock().set("appendonly yes").set("aof-use-rdb-preamble no").on(copy).start();
            same(&mut restarted.connect(), &digest, clock + later * SECOND, &expected, "log");
        }
        turn(&mut client, clock);
        let expected = answers(&mut client);
        run(&mut client, "DEBUG RELOAD").unwrap();
        same(&mut client, &digest, clock, &expected, "snapshot");
        rewrite_aof(&mut client);
        let restarted =
            with_clock().set("appendonly yes").set("aof-use-rdb-preamble no").on(copy_of(master.folder())).start();
        same(&mut restarted.connect(), &digest, clock, &expected, "rewritten log");
        for key in ["plain", "refresh", "small", "rolling", "both"] {
            run(&mut client, &format!("COPY {key} copy-of")).unwrap();
            assert_eq!(digest_of(&mut client, "copy-of"), digest_of(&mut client, key), "{key}");
            run(&mut client, "DEL copy-of").unwrap();
            let dump: Vec<u8> = ask(&mut client, &format!("DUMP {key}"));
            run_words(&mut client, &[b"RESTORE".as_slice(), b"copy-of", b"0", &dump]).unwrap();
            assert_eq!(digest_of(&mut client, "copy-of"), digest_of(&mut client, key), "{key}");
            run(&mut client, "DEL copy-of").unwrap();
            let mut wire = Wire::resp2(&master);
            for (cursor, data) in wire.scan_dump(key) {
                assert_eq!(wire.load_chunk("copy-of", cursor, &data), Reply::simple("OK"), "{key}");
            }
            assert_eq!(digest_of(&mut client, "copy-of"), digest_of(&mut client, key), "{key}");
            run(&mut client, "DEL copy-of").unwrap();
        }
    }
    assert!(hit, "nothing was written during a full synchronization");
}

#[test]
fn a_copy_that_is_restored_a_week_later_has_forgotten_expired_items_and_no_others() {
    const WEEK: i64 = 7 * 86_400;
    let source = stopped(with_clock());
    let mut client = source.connect();
    let kinds = ["WINDOW 691200", "WINDOW 691200 REFRESH SLICES 2", "WINDOW 691200 ROLLING SLICES 30", "ROLLING"];
    let key = |number: usize| format!("key-{number}");
    for (number, options) in kinds.into_iter().enumerate() {
        run(&mut client, &format!("BF.RESERVE {} {RARE} 200 {options} {SEED}", key(number))).unwrap();
    }
    let fill = |client: &mut Connection, numbers: &std::ops::Range<u64>| {
        for number in 0..kinds.len() {
            add(client, &key(number), numbers.clone());
        }
    };
    // The window is eight days.
    for (day, numbers) in [(0, 0..60), (1, 40..90), (3, 0..30), (3, 100..130)] {
        turn(&mut client, day * 86_400 * SECOND);
        fill(&mut client, &numbers);
    }
    let dumps = [0, 1, 2, 3].map(|number| ask::<Vec<u8>>(&mut client, &format!("DUMP {}", key(number))));
    let mut wire = Wire::resp2(&source);
    let chunks = [0, 1, 2, 3].map(|number| wire.scan_dump(&key(number)));
    let digests = [0, 1, 2, 3].map(|number| digest_of(&mut client, &key(number)));
    run(&mut client, "SAVE").unwrap();
    let saved = with_clock().on(copy_of(source.folder())).start();

    let mut copies = vec![saved];
    for is_dump in [true, false] {
        let server = stopped(with_clock());
        let (mut client, mut wire) = (server.connect(), Wire::resp2(&server));
        turn(&mut client, (3 * 86_400 + WEEK) * SECOND);
        for number in 0..kinds.len() {
            if is_dump {
                let key = key(number);
                let words = [b"RESTORE".as_slice(), key.as_bytes(), b"0", &dumps[number]];
                run_words(&mut client, &words).unwrap();
                continue;
            }
            for (iterator, data) in &chunks[number] {
                assert_eq!(wire.load_chunk(&key(number), *iterator, data), Reply::simple("OK"));
            }
        }
        copies.push(server);
    }
    // The clock of the source moves on by the same week.
    for copy in &copies {
        turn(&mut client, (3 * 86_400 + WEEK) * SECOND);
        let mut other = copy.connect();
        turn(&mut other, (3 * 86_400 + WEEK) * SECOND);
        for (number, options) in kinds.into_iter().enumerate() {
            let key = key(number);
            assert_eq!(digest_of(&mut other, &key), digests[number], "{options}");
            let all: Vec<_> = (0..140).collect();
            let present = found(&mut other, &key, &all);
            assert_eq!(present, found(&mut client, &key, &all), "{options}");
            // Item 0 was added on the first day, and again on the last.
            assert_eq!(present[0], options.contains("REFRESH") || options == "ROLLING", "{options}");
            assert!(present[100..130].iter().all(|found| *found), "{options}: items of the last day");
            assert_eq!(
                ask::<usize>(&mut other, &format!("BF.CARD {key}")),
                present.iter().filter(|found| **found).count(),
                "{options}"
            );
        }
    }
    // All copies change in the same way from then on.
    let mut clients: Vec<_> = copies.iter().chain([&source]).map(Server::connect).collect();
    for later in [WEEK, WEEK + 86_400, 2 * WEEK] {
        let digests = clients.iter_mut().map(|client| {
            turn(client, (3 * 86_400 + later) * SECOND);
            fill(client, &(later as u64 % 1000..later as u64 % 1000 + 50));
            digest(client)
        });
        let digests: Vec<_> = digests.collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{later}: {digests:?}");
    }
}

#[test]
fn a_replica_that_takes_over_in_the_middle_of_a_slice_remembers_items_for_the_window() {
    let master = stopped(with_clock());
    let mut client = master.connect();
    run(&mut client, &format!("BF.RESERVE key {RARE} 1000 WINDOW 3600 SLICES 4 {SEED}")).unwrap();
    run(&mut client, &format!("BF.RESERVE renewed {RARE} 1000 WINDOW 3600 SLICES 4 REFRESH {SEED}")).unwrap();
    let replica = start_replica(&master, with_clock());
    let mut other = replica.connect();
    for key in ["key", "renewed"] {
        turn(&mut client, 0);
        add(&mut client, key, 0..100);
        turn(&mut client, 450 * SECOND);
        add(&mut client, key, 50..200);
    }
    wait_for_replica(&mut client, &mut other);
    run(&mut client, "SHUTDOWN NOSAVE").unwrap_err();
    run(&mut other, "REPLICAOF NO ONE").unwrap();
    // The replica's clock is five minutes behind at first.
    turn(&mut other, 150 * SECOND);
    for key in ["key", "renewed"] {
        assert!(all_found(&mut other, key, 0..200), "{key}");
        assert_eq!(add(&mut other, key, 150..300), 100, "{key}");
    }
    turn(&mut other, 3599 * SECOND);
    assert!(all_found(&mut other, "key", 0..300));
    turn(&mut other, 4040 * SECOND);
    assert!(all_found(&mut other, "key", 100..300));
    assert!(all_found(&mut other, "renewed", 50..300));
    turn(&mut other, 6000 * SECOND);
    for key in ["key", "renewed"] {
        assert!(found(&mut other, key, &(0..300).collect::<Vec<_>>()).iter().all(|found| !found), "{key}");
    }
}

/// An item that is new to the master may be a false positive on a replica. The replica must still remember it as long
/// as the master does. Here, a client of the replica has added the item.
#[test]
fn a_replica_remembers_an_item_as_long_as_its_master_even_if_it_was_present_before() {
    let pair = stopped_pair(with_clock(), with_clock().set("replica-read-only no"));
    let (mut client, mut reader) = pair.clients();
    run(&mut client, &format!("BF.RESERVE key {RARE} 100 WINDOW 3600 SLICES 4 {SEED}")).unwrap();
    wait_for_replica(&mut client, &mut reader);
    assert_eq!(add(&mut reader, "key", 0..20), 20);
    turn(&mut client, 1800 * SECOND);
    assert_eq!(add(&mut client, "key", 10..30), 20);
    wait_for_replica(&mut client, &mut reader);
    turn(&mut reader, 5399 * SECOND);
    let all: Vec<_> = (0..30).collect();
    assert_eq!(found(&mut reader, "key", &all), all.iter().map(|&number| number >= 10).collect::<Vec<_>>());
    turn(&mut reader, 6301 * SECOND);
    assert!(!found(&mut reader, "key", &all).contains(&true));
}

#[test]
fn unchanged_items_are_not_replicated_and_renewed_ones_are() {
    let server = stopped(with_clock().set("appendonly yes").set("aof-use-rdb-preamble no"));
    let mut client = server.connect();
    let last = |count: usize| {
        let commands = aof_commands(server.folder());
        let shown = |command: &Vec<Vec<u8>>| {
            command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        // This leaves out MULTI and EXEC: servers before 7.0 put each command into a transaction.
        let ours = commands.iter().map(shown).filter(|words| words[0].starts_with("BF."));
        ours.skip(count).collect::<Vec<_>>()
    };
    run(&mut client, "BF.RESERVE key 0.000001 1000 WINDOW 3155760000 SLICES 2 SEED 7").unwrap();
    let created = last(0).len();
    run(&mut client, "BF.MADD key a b").unwrap();
    run(&mut client, "BF.MADD key a b").unwrap();
    run(&mut client, "BF.ADD key a").unwrap();
    run(&mut client, "BF.MADD key a c b d").unwrap();
    run(&mut client, "BF.INSERT key TTL 60 NOCREATE ITEMS e b").unwrap();
    let commands = last(created);
    let ends: Vec<_> = commands.iter().map(|words| words[4..].join(" ")).collect();
    assert_eq!(ends, ["ITEMS a b", "ITEMS c d", "TTL 60 ITEMS e"]);
    for words in &commands {
        assert_eq!((&*words[0], &*words[2]), ("BF.INSERT", "AT"));
        assert!(words[3].parse::<u64>().unwrap() > 1_700_000_000_000);
    }
    // An item is not renewed while its slice is still the current one.
    run(&mut client, "BF.RESERVE renewed 0.000001 1000 WINDOW 3155760000 SLICES 64 REFRESH SEED 7").unwrap();
    let created = last(0).len();
    run(&mut client, "BF.MADD renewed a b").unwrap();
    run(&mut client, "BF.MADD renewed b a").unwrap();
    turn(&mut client, 100_000_000 * SECOND);
    run(&mut client, "BF.MADD renewed c b d").unwrap();
    run(&mut client, "BF.MADD renewed b c").unwrap();
    run(&mut client, "BF.ADD renewed a").unwrap();
    let ends: Vec<_> = last(created).iter().map(|words| words[4..].join(" ")).collect();
    assert_eq!(ends, ["ITEMS a b", "ITEMS c b d", "ITEMS a"]);
    // A filter with only ROLLING needs no time, so its commands have none.
    run(&mut client, "BF.RESERVE last 0.000001 1000 ROLLING SEED 7").unwrap();
    let created = last(0).len();
    run(&mut client, "BF.MADD last a b").unwrap();
    run(&mut client, "BF.MADD last a c").unwrap();
    assert_eq!(last(created), [vec!["BF.MADD", "last", "a", "b"], vec!["BF.MADD", "last", "c"]]);
}
