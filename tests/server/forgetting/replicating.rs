//! Replicas, restarted servers and copies remember and forget the same items.

use redis::Connection;

use crate::forgetting::items::{RARE, SEED, add, all_found, found};
use testkit::clock::{SECOND, stopped, stopped_pair, turn, with_clock};
use testkit::info::{digest, digest_of};
use testkit::persistence::aof_commands_shown;
use testkit::replication::{start_replica, wait_for_replica};
use testkit::server::copy_of;
use testkit::wire::{Reply, Wire};
use testkit::{Server, ask, run, run_words};

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
    for line in [
        "BF.RESERVE key 0.000001 1000 WINDOW 3155760000 SLICES 2 SEED 7",
        "BF.RESERVE renewed 0.000001 1000 WINDOW 3155760000 SLICES 64 REFRESH SEED 7",
        "BF.RESERVE last 0.000001 1000 ROLLING SEED 7",
    ] {
        run(&mut client, line).unwrap();
    }
    for (line, start, end) in [
        ("BF.MADD key a b", "BF.INSERT key AT ", " ITEMS a b"),
        ("BF.MADD key a b", "", ""),
        ("BF.ADD key a", "", ""),
        ("BF.MADD key a c b d", "BF.INSERT key AT ", " ITEMS c d"),
        ("BF.INSERT key TTL 60 NOCREATE ITEMS e b", "BF.INSERT key AT ", " TTL 60 ITEMS e"),
        ("BF.MADD renewed a b", "BF.INSERT renewed AT ", " ITEMS a b"),
        // An item is not renewed while its slice is still the current one.
        ("BF.MADD renewed b a", "", ""),
        ("BF.MADD renewed c b d", "BF.INSERT renewed AT ", " ITEMS c b d"),
        ("BF.MADD renewed b c", "", ""),
        ("BF.ADD renewed a", "BF.INSERT renewed AT ", " ITEMS a"),
        // A filter with only ROLLING needs no time, so its commands have none.
        ("BF.MADD last a b", "BF.MADD last a b", ""),
        ("BF.MADD last a c", "BF.MADD last c", ""),
    ] {
        if line.contains("renewed c b d") {
            turn(&mut client, 100_000_000 * SECOND);
        }
        let before = aof_commands_shown(server.folder()).len();
        run(&mut client, line).unwrap();
        let written = aof_commands_shown(server.folder()).split_off(before);
        let Some(time) = written.first().map(|written| written.strip_prefix(start).expect(line)) else {
            assert_eq!(start, "", "{line} was not written");
            continue;
        };
        assert_eq!(written.len(), 1, "{line}: {written:?}");
        assert!(!start.is_empty(), "{line} was written: {written:?}");
        let time = time.strip_suffix(end).expect(line);
        let has_time = time.parse::<u64>().is_ok_and(|time| time > 1_700_000_000_000);
        assert_eq!(has_time, start.ends_with(" AT "), "{line}: {written:?}");
    }
}
