//! Filters with WINDOW or ROLLING, which forget old items: an item is present until its window is over, and is
//! forgotten at most one slice later, also on replicas and after restarts. The tests set the module's clock.

use std::collections::BTreeMap;

use redis::{Connection, Value};

use models::random::Random;
use testkit::clock::{SECOND, stopped, stopped_pair, time_at, turn, with_clock};
use testkit::command::{item, many};
use testkit::info::{digest, digest_of, info, info_field, info_number, layout_figure};
use testkit::persistence::{aof_commands, rewrite_aof};
use testkit::replication::{follow, start_replica, wait_for_replica};
use testkit::server::{copy_of, wait_until};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, run, run_words};

fn found(client: &mut Connection, key: &str, numbers: &[u64]) -> Vec<bool> {
    many(client, "BF.MEXISTS", key, numbers)
}

fn all_found(client: &mut Connection, key: &str, numbers: std::ops::Range<u64>) -> bool {
    numbers.collect::<Vec<_>>().chunks(1000).all(|numbers| found(client, key, numbers).into_iter().all(|found| found))
}

fn add(client: &mut Connection, key: &str, numbers: std::ops::Range<u64>) -> u64 {
    let numbers: Vec<_> = numbers.collect();
    numbers.chunks(1000).map(|numbers| many::<Vec<u64>>(client, "BF.MADD", key, numbers).iter().sum::<u64>()).sum()
}

/// An error rate so low that these tests meet no false positive.
const RARE: &str = "0.00000000001";

/// A fixed seed, so that the replies are the same in every run.
const SEED: &str = "SEED 7";

#[test]
fn an_item_is_present_for_the_window_and_gone_a_slice_later() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    for (options, refresh) in [
        ("WINDOW 3600", false),
        ("WINDOW 3600 SLICES 2 NONSCALING", false),
        ("window 3600 slices 64 refresh", true),
        ("REFRESH WINDOW 3600 SLICES 5 NONSCALING", true),
        ("WINDOW 3600 ROLLING", false),
        ("WINDOW 3600 ROLLING REFRESH SLICES 3", true),
    ] {
        run(&mut client, "FLUSHALL").unwrap();
        turn(&mut client, 0);
        run(&mut client, &format!("BF.RESERVE key {RARE} 1000 {options} {SEED}")).unwrap();
        let slices: i64 = info_field(&mut client, "key", "SLICES");
        let slice = 3600 * SECOND / slices + 1;
        assert_eq!(add(&mut client, "key", 0..500), 500, "{options}");
        assert_eq!(add(&mut client, "key", 0..500), 0, "{options}");
        turn(&mut client, 1801 * SECOND);
        assert_eq!(add(&mut client, "key", 250..750), 250, "{options}");
        // Within the first hour, all items are present.
        turn(&mut client, 3599 * SECOND);
        assert!(all_found(&mut client, "key", 0..750), "{options}");
        assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), 750, "{options}");
        turn(&mut client, 3600 * SECOND + slice);
        let answers = found(&mut client, "key", &(0..750).collect::<Vec<_>>());
        let expected = |number| number >= if refresh { 250 } else { 500 };
        assert!((0..750).all(|number| answers[number] == expected(number)), "{options}");
        assert_eq!(ask::<usize>(&mut client, "BF.CARD key"), (0..750).filter(|&n| expected(n)).count(), "{options}");
        let oldest: i64 = info_field(&mut client, "key", "OLDEST");
        assert!(oldest >= 1800 && oldest * SECOND <= 3600 * SECOND + slice, "{options}: {oldest}");
        turn(&mut client, 5401 * SECOND + slice);
        assert!(found(&mut client, "key", &(0..750).collect::<Vec<_>>()).iter().all(|found| !found), "{options}");
        assert_eq!(info_field::<Value>(&mut client, "key", "OLDEST"), Value::Nil, "{options}");
        // A forgotten item is new again.
        assert_eq!(add(&mut client, "key", 0..10), 10, "{options}");
        assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), 10, "{options}");
    }
}

#[test]
fn items_may_have_a_ttl_shorter_than_the_window() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE tokens {RARE} 1000 WINDOW 86400 SLICES 24 {SEED}")).unwrap();
    let added: Vec<u64> = ask(&mut client, "BF.INSERT tokens TTL 7200 ITEMS a b");
    assert_eq!(added, [1, 1]);
    assert_eq!(ask::<Vec<u64>>(&mut client, "BF.INSERT tokens ttl 1 items c"), [1]);
    assert_eq!(ask::<Vec<u64>>(&mut client, "BF.INSERT tokens TTL 86400 ITEMS d"), [1]);
    for (hours, expected) in [(0, [1, 1, 1, 1]), (1, [1, 1, 0, 1]), (3, [0, 0, 0, 1]), (25, [0; 4])] {
        turn(&mut client, hours * 3600 * SECOND + if hours > 0 { SECOND } else { 0 });
        assert_eq!(ask::<Vec<u64>>(&mut client, "BF.MEXISTS tokens a b c d"), expected, "after {hours} hours");
    }
    // BF.INSERT with TTL may also create the filter.
    assert_eq!(ask::<Vec<u64>>(&mut client, "BF.INSERT new WINDOW 60 TTL 10 ITEMS a"), [1]);
    assert_eq!(info_field::<u64>(&mut client, "new", "WINDOW"), 60);
}

#[test]
fn a_ttl_holds_for_items_that_are_present_and_a_shorter_one_changes_nothing() {
    let pair = stopped_pair(with_clock(), with_clock());
    let (mut client, mut reader) = pair.clients();
    for options in ["", "NONSCALING", "REFRESH"] {
        run(&mut client, "DEL key").unwrap();
        turn(&mut client, 0);
        run(&mut client, &format!("BF.RESERVE key {RARE} 100 WINDOW 100 SLICES 50 {options} {SEED}")).unwrap();
        for (ttl, items, new) in [(1, "a", [1]), (60, "a", [0]), (60, "b", [1]), (1, "b", [0]), (99, "c", [1])] {
            assert_eq!(ask::<Vec<u64>>(&mut client, &format!("BF.INSERT key TTL {ttl} ITEMS {items}")), new, "{ttl}");
        }
        assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), 3);
        wait_for_replica(&mut client, &mut reader);
        assert_eq!(digest(&mut reader), digest(&mut client), "{options}");
        for (seconds, expected) in [(59, [1, 1, 1]), (65, [0, 0, 1])] {
            turn(&mut client, seconds * SECOND);
            assert_eq!(ask::<Vec<u64>>(&mut client, "BF.MEXISTS key a b c"), expected, "{options} after {seconds} s");
        }
    }
}

/// At this error rate, a third of the new items are false positives of others that expire sooner.
#[test]
fn a_ttl_holds_for_items_that_are_false_positives() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    for options in ["", "NONSCALING"] {
        run(&mut client, "DEL key").unwrap();
        turn(&mut client, 0);
        run(&mut client, &format!("BF.RESERVE key 0.3 2000 WINDOW 100 SLICES 15 {options} {SEED}")).unwrap();
        let numbers = |range: std::ops::Range<u64>| range.map(|number| format!(" {number}")).collect::<String>();
        run(&mut client, &format!("BF.INSERT key TTL 1 ITEMS{}", numbers(0..1000))).unwrap();
        run(&mut client, &format!("BF.INSERT key TTL 90 ITEMS{}", numbers(1000..2000))).unwrap();
        turn(&mut client, 89 * SECOND);
        let items: Vec<u64> = ask(&mut client, &format!("BF.MEXISTS key{}", numbers(1000..2000)));
        assert_eq!(items, [1; 1000], "{options}");
    }
}

#[test]
fn a_rolling_filter_remembers_its_capacity_and_less_than_a_slice_more() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (capacity, slices) in [(1, 2), (1, 64), (2, 15), (7, 3), (65, 64), (1000, 15), (1000, 64)] {
        run(&mut client, "DEL key").unwrap();
        run(&mut client, &format!("BF.RESERVE key {RARE} {capacity} ROLLING SLICES {slices} {SEED}")).unwrap();
        for number in 0..3 * capacity + 10 {
            assert_eq!(add(&mut client, "key", number..number + 1), 1);
            let items: u64 = ask(&mut client, "BF.CARD key");
            let expected = capacity.min(number + 1)..capacity + u64::div_ceil(capacity, slices);
            assert!(expected.contains(&items), "{capacity} in {slices} slices: {items} after {number}");
        }
        let end = 3 * capacity + 10;
        assert!(all_found(&mut client, "key", end - capacity..end), "{capacity} in {slices} slices");
    }
}

#[test]
fn a_rejected_addition_leaves_the_time_of_the_filter_and_its_items() {
    let pair = stopped_pair(with_clock().module_arguments("filter-memory-limit 6000"), with_clock());
    let (mut client, mut reader) = pair.clients();
    for options in ["WINDOW 100", "WINDOW 100 SLICES 2 REFRESH", "WINDOW 100 ROLLING", "WINDOW 100 NONSCALING"] {
        run(&mut client, "FLUSHALL").unwrap();
        turn(&mut client, 0);
        run(&mut client, &format!("BF.RESERVE key 0.001 6000 {options} {SEED}")).unwrap();
        let mut rejected = 0;
        for number in 0..4000 {
            turn(&mut client, 50 * number);
            let before = digest(&mut client);
            if run(&mut client, &format!("BF.ADD key {number}")).is_err() {
                rejected += 1;
                assert_eq!(digest(&mut client), before, "{options} {number}");
            }
        }
        assert!(rejected > 0, "{options}");
        wait_for_replica(&mut client, &mut reader);
        assert_eq!(digest(&mut reader), digest(&mut client), "{options}");
    }
}

#[test]
fn a_rolling_filter_has_its_last_items_however_many_were_added() {
    let pair = stopped_pair(with_clock(), with_clock());
    let (mut client, mut reader) = pair.clients();
    for options in ["ROLLING", "ROLLING SLICES 2", "WINDOW 86400 ROLLING", "WINDOW 86400 ROLLING SLICES 64 REFRESH"] {
        run(&mut client, "DEL key").unwrap();
        turn(&mut client, 0);
        run(&mut client, &format!("BF.RESERVE key {RARE} 1000 {options} {SEED}")).unwrap();
        let early = layout_figure(&mut client, "windowed", "slices_ended_early");
        let (mut size, mut end) = (0, 0);
        let slices: u64 = info_field(&mut client, "key", "SLICES");
        // The batches have a prime number of items, so they end at every place of a slice.
        while end < 20_000 {
            assert_eq!(add(&mut client, "key", end..end + 83), 83, "{options} {end}");
            end += 83;
            let last = end.saturating_sub(1000)..end;
            if end % 7 == 0 {
                run(&mut client, "DEBUG RELOAD").unwrap();
                wait_for_replica(&mut client, &mut reader);
                assert!(all_found(&mut reader, "key", last.clone()), "{options} {end}: on the replica");
            }
            assert!(all_found(&mut client, "key", last), "{options} {end}");
            assert!(ask::<u64>(&mut client, "BF.CARD key") <= 1000 + 1000u64.div_ceil(slices), "{options} {end}");
            size = size.max(info_field::<u64>(&mut client, "key", "SIZE"));
        }
        assert!(size < 15_000, "{options}: {size}");
        assert!(!all_found(&mut client, "key", 17_000..18_000), "{options}");
        let early = layout_figure(&mut client, "windowed", "slices_ended_early") - early;
        assert_eq!(early > 0, options.starts_with("WINDOW"), "{options}: {early}");
        // As time passes, only a filter with WINDOW forgets.
        turn(&mut client, 2 * 86_400 * SECOND);
        assert_eq!(all_found(&mut client, "key", 19_100..20_000), !options.starts_with("WINDOW"), "{options}");
    }
}

#[test]
fn a_filter_that_does_not_grow_is_full_until_it_forgets() {
    let server = stopped(with_clock());
    let mut client = Wire::resp2(&server);
    let mut clock = server.connect();
    client.run("BF.RESERVE key 0.000001 100 WINDOW 60 NONSCALING SEED 7");
    let words = |first: u64, count: u64| {
        let items = (first..first + count).map(|number| number.to_string());
        ["BF.MADD".to_owned(), "key".to_owned()].into_iter().chain(items).collect::<Vec<_>>()
    };
    let replies = client.run_words(&words(0, 200));
    let accepted = replies.elements().len() - 1;
    assert!((100..=113).contains(&accepted), "{accepted}");
    assert_eq!(replies.elements()[accepted], Reply::error("ERR non scaling filter is full"));
    // An item that is present needs no room.
    assert_eq!(client.run("BF.ADD key 5"), Reply::Integer(0));
    turn(&mut clock, 70 * SECOND);
    assert_eq!(client.run("BF.ADD key 5"), Reply::Integer(1));
}

#[test]
fn forgotten_items_are_counted_and_cause_an_event() {
    let server = stopped(with_clock().set("notify-keyspace-events KEA"));
    let (mut client, mut subscriber) = (server.connect(), Wire::resp2(&server));
    subscriber.run("PSUBSCRIBE __keyspace@0__:key");
    run(&mut client, &format!("BF.RESERVE key {RARE} 100 WINDOW 60 {SEED}")).unwrap();
    add(&mut client, "key", 0..50);
    turn(&mut client, 100 * SECOND);
    // Reads do not drop items whose window is over.
    assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), 0);
    assert_eq!(info_number(&mut client, "bf", "bf_items_forgotten"), 0);
    assert_eq!(info_number(&mut client, "bf", "bf_items"), 50);
    add(&mut client, "key", 100..110);
    assert_eq!(info_number(&mut client, "bf", "bf_items_forgotten"), 50);
    assert_eq!(info_number(&mut client, "bf", "bf_items"), 10);
    add(&mut client, "key", 110..120);
    ask::<u64>(&mut client, "PUBLISH __keyspace@0__:key end");
    let mut events = Vec::new();
    while events.last().is_none_or(|last| last != "end") {
        events.push(subscriber.receive().elements()[3].text());
    }
    events.retain(|event| event != "new");
    assert_eq!(events, ["bf.reserve", "bf.add", "bf.add", "bf.expire", "bf.add", "end"]);
}

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

#[test]
fn time_stands_still_in_transactions_and_scripts() {
    let server = stopped(with_clock());
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000001 100 WINDOW 60");
    let script = "redis.call('BF.ADD', KEYS[1], 'a') \
                  redis.call('BF.CLOCK', KEYS[1], ARGV[1]) \
                  return {redis.call('BF.EXISTS', KEYS[1], 'a'), redis.call('BF.CARD', KEYS[1])}";
    for round in 1..4 {
        let later = time_at(round * 100_000).to_string();
        assert_eq!(client.run_words(&["EVAL", script, "1", "key", &later]), Reply::integers(&[1, 1]));
        assert_eq!(client.run("BF.EXISTS key a"), Reply::Integer(0));
    }
    for round in 4..7 {
        for words in [
            "MULTI",
            "BF.ADD key a",
            &format!("BF.CLOCK key {}", time_at(round * 100_000)),
            "BF.EXISTS key a",
            "BF.CARD key",
        ] {
            client.run(words);
        }
        let replies = client.run("EXEC");
        assert_eq!(replies.elements()[2..], [Reply::Integer(1), Reply::Integer(1)]);
        assert_eq!(client.run("BF.EXISTS key a"), Reply::Integer(0));
    }
}

/// In one round of the server's event loop, a script has the time at which it begins, not that of an earlier script.
#[test]
fn pipelined_scripts_do_not_share_their_time() {
    let server = stopped(with_clock());
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000001 100 WINDOW 60");
    client.run("BF.ADD key a");
    let script = |client: &mut Wire| client.send(&["EVAL", "return redis.call('BF.EXISTS', KEYS[1], 'a')", "1", "key"]);
    script(&mut client);
    client.send(&["BF.CLOCK", "key", &time_at(100_000).to_string()]);
    client.send(&["BF.EXISTS", "key", "a"]);
    script(&mut client);
    let replies = [(); 4].map(|()| client.receive());
    assert_eq!(replies, [Reply::Integer(1), Reply::simple("OK"), Reply::Integer(0), Reply::Integer(0)]);
}

#[test]
fn a_clock_that_jumps_breaks_nothing() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {RARE} 1000 WINDOW 60 {SEED}")).unwrap();
    add(&mut client, "key", 0..100);
    // The clock goes back: items stay present, and new items are remembered at least as long as usual.
    for ahead in [-86_400, -1_000_000_000_000, -30] {
        turn(&mut client, ahead * SECOND);
        assert!(all_found(&mut client, "key", 0..100), "{ahead}");
        assert_eq!(add(&mut client, "key", 0..100), 0, "{ahead}");
    }
    assert_eq!(add(&mut client, "key", 100..200), 100);
    turn(&mut client, 29 * SECOND);
    assert!(all_found(&mut client, "key", 100..200));
    // The clock goes far ahead and back: items that were added in between are remembered, and the server keeps running.
    for ahead in [1_000_000_000, 9_000_000_000_000, 9_000_000_000_000_000] {
        turn(&mut client, ahead * SECOND);
        add(&mut client, "key", 300..400);
        assert!(all_found(&mut client, "key", 300..400), "{ahead}");
        turn(&mut client, 0);
        assert!(all_found(&mut client, "key", 300..400), "{ahead}");
        add(&mut client, "key", 400..500);
        assert!(all_found(&mut client, "key", 300..500), "{ahead}");
        run(&mut client, "DEBUG RELOAD").unwrap();
        assert!(all_found(&mut client, "key", 300..500), "{ahead}");
    }
}

#[test]
fn a_filter_that_was_idle_gives_memory_back_when_it_is_written_to() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 1000 WINDOW 3600").unwrap();
    add(&mut client, "key", 0..100_000);
    let grown: u64 = info_field(&mut client, "key", "SIZE");
    assert_eq!(info_field::<u64>(&mut client, "key", "FILTERS"), 2);
    turn(&mut client, 5000 * SECOND);
    assert_eq!(info_field::<u64>(&mut client, "key", "SIZE"), grown);
    add(&mut client, "key", 200_000..205_000);
    let left: u64 = info_field(&mut client, "key", "SIZE");
    assert!(left < grown / 8, "{left} of {grown}");
    turn(&mut client, 10_000 * SECOND);
    add(&mut client, "key", 300_000..301_000);
    assert_eq!(info_field::<u64>(&mut client, "key", "FILTERS"), 1);
    wait_until("the memory is free", || info_field::<u64>(&mut client, "key", "SIZE") < 4000);
}
