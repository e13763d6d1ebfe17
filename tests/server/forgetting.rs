//! Filters that forget: an item is present until its window is over, and forgotten a slice later at most, also on a
//! replica and after a restart. The tests set the module's clock.

use std::collections::BTreeMap;

use redis::{Connection, Value};

use testkit::clock::{SECOND, stopped, time_at, turn, with_clock};
use testkit::command::{item, many};
use testkit::info::{digest, digest_of, info, info_field, info_number, layout_figure};
use testkit::persistence::{aof_commands, rewrite_aof};
use testkit::random::Random;
use testkit::replication::{follow, replica_of, wait_for_replica};
use testkit::server::{copy_of, wait_until};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, error, run, run_words};

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

/// The seed that makes replies the same in every run.
const SEED: &str = "SEED 7";

#[test]
fn an_item_is_there_for_the_window_and_gone_a_slice_later() {
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
fn items_may_live_shorter_than_the_window() {
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
fn bad_options_are_errors_and_create_nothing() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let window = "ERR bad window: WINDOW takes seconds, from 1 to 3155760000 (100 years)";
    let slices = "ERR bad slices: SLICES takes a whole number from 2 to 64";
    let alone = "ERR SLICES needs WINDOW or ROLLING, and REFRESH needs WINDOW: add the missing option";
    let grows = "ERR a filter with ROLLING never grows: leave out EXPANSION and NONSCALING";
    let other = "ERR WINDOW and ROLLING cannot be combined with COUNTING or LAYOUT classic: leave out one of them";
    for (options, text) in [
        ("WINDOW 0", window),
        ("WINDOW -1", window),
        ("WINDOW 1.5", window),
        ("WINDOW 3155760001", window),
        ("WINDOW 18446744073709551615", window),
        ("WINDOW x", window),
        ("WINDOW 60 SLICES 1", slices),
        ("WINDOW 60 SLICES 65", slices),
        ("WINDOW 60 SLICES 258", slices),
        ("ROLLING SLICES 0", slices),
        ("SLICES 8", alone),
        ("REFRESH", alone),
        ("ROLLING REFRESH", alone),
        ("ROLLING NONSCALING", grows),
        ("WINDOW 60 ROLLING EXPANSION 2", grows),
        ("WINDOW 60 COUNTING", other),
        ("ROLLING LAYOUT classic", other),
        ("WINDOW 60 WINDOW 60", "ERR repeated argument: give each option once"),
        ("ROLLING ROLLING", "ERR repeated argument: give each option once"),
        ("WINDOW 60 REFRESH REFRESH", "ERR repeated argument: give each option once"),
    ] {
        for line in [format!("BF.RESERVE key 0.01 100 {options}"), format!("BF.INSERT key {options} ITEMS a")] {
            assert_eq!(error(&mut client, &line), text, "{line}");
        }
        assert_eq!(ask::<u64>(&mut client, "EXISTS key"), 0, "{options}");
    }
    let ttl = "ERR bad TTL: TTL takes seconds, from 1 to the filter's WINDOW";
    let without = "ERR TTL needs a filter with WINDOW and without ROLLING: leave out TTL, or use another key";
    let time = "ERR bad time: AT takes milliseconds since 1970, and no time in the future";
    for (options, text) in [
        ("TTL 0", ttl),
        ("TTL -1", ttl),
        ("TTL soon", ttl),
        ("TTL 10", without),
        ("ROLLING TTL 10", without),
        ("WINDOW 60 ROLLING TTL 10", without),
        ("WINDOW 60 TTL 61", ttl),
        ("WINDOW 60 AT 9999999999999", time),
        ("WINDOW 60 AT -1", time),
        ("WINDOW 60 AT now", time),
    ] {
        assert_eq!(error(&mut client, &format!("BF.INSERT key {options} ITEMS a")), text, "{options}");
        assert_eq!(ask::<u64>(&mut client, "EXISTS key"), 0, "{options}");
    }
    run(&mut client, "BF.RESERVE plain 0.01 100").unwrap();
    run(&mut client, "BF.RESERVE window 0.01 100 WINDOW 60 SLICES 4").unwrap();
    let another =
        "ERR the filter exists with another WINDOW, SLICES, REFRESH or ROLLING: leave these out, or use another key";
    for (line, text) in [
        ("plain TTL 10 ITEMS a", without),
        ("plain WINDOW 60 ITEMS a", another),
        ("window WINDOW 61 ITEMS a", another),
        ("window SLICES 5 ITEMS a", another),
        ("window REFRESH ITEMS a", another),
        ("window ROLLING ITEMS a", another),
        ("window TTL 61 ITEMS a", ttl),
    ] {
        assert_eq!(error(&mut client, &format!("BF.INSERT {line}")), text);
    }
    assert_eq!(ask::<u64>(&mut client, "BF.CARD window"), 0);
    assert_eq!(ask::<Vec<u64>>(&mut client, "BF.INSERT window WINDOW 60 SLICES 4 TTL 60 ITEMS a"), [1]);
    for line in ["BF.DEL window a", "BF.MDEL window a", "BF.COUNT window a", "BF.MCOUNT window a"] {
        assert!(error(&mut client, line).contains("COUNTING"), "{line}");
    }
    run(&mut client, "BF.RESERVE copy LIKE window").unwrap();
    for line in [
        "BF.MERGE copy 1 window",
        "BF.MERGE new 2 copy window",
        "BF.MERGE new 2 window plain",
        "BF.MERGE plain 1 window INTERSECT",
    ] {
        assert_eq!(
            error(&mut client, line),
            "ERR cannot merge filters with WINDOW or ROLLING: add all items to one filter",
            "{line}"
        );
    }
    assert_eq!(ask::<u64>(&mut client, "BF.CARD copy"), 0);
}

#[test]
fn the_last_items_are_there_however_many_there_were() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    for options in ["ROLLING", "ROLLING SLICES 2", "WINDOW 86400 ROLLING", "WINDOW 86400 ROLLING SLICES 64 REFRESH"] {
        run(&mut client, "DEL key").unwrap();
        turn(&mut client, 0);
        run(&mut client, &format!("BF.RESERVE key 0.000001 1000 {options} {SEED}")).unwrap();
        let early = layout_figure(&mut client, "windowed", "slices_ended_early");
        let mut size = 0;
        for first in (0..20_000).step_by(500) {
            add(&mut client, "key", first..first + 500);
            // A few of the items were false positives when they were added, and took no room.
            let last = (first + 500).saturating_sub(998);
            assert!(all_found(&mut client, "key", last..first + 500), "{options} {first}");
            assert!(ask::<u64>(&mut client, "BF.CARD key") <= 1500, "{options}");
            size = size.max(info_field::<u64>(&mut client, "key", "SIZE"));
        }
        assert!(size < 10_000, "{options}: {size}");
        assert!(!all_found(&mut client, "key", 17_000..18_000), "{options}");
        let early = layout_figure(&mut client, "windowed", "slices_ended_early") - early;
        assert_eq!(early > 0, options.starts_with("WINDOW"), "{options}: {early}");
        // As time passes, only WINDOW makes the filter forget.
        turn(&mut client, 2 * 86_400 * SECOND);
        assert_eq!(all_found(&mut client, "key", 19_100..20_000), !options.starts_with("WINDOW"), "{options}");
    }
}

#[test]
fn one_that_does_not_grow_is_full_until_it_forgets() {
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
fn what_was_forgotten_is_counted_and_told() {
    let server = stopped(with_clock().set("notify-keyspace-events KEA"));
    let (mut client, mut subscriber) = (server.connect(), Wire::resp2(&server));
    subscriber.run("PSUBSCRIBE __keyspace@0__:key");
    run(&mut client, &format!("BF.RESERVE key {RARE} 100 WINDOW 60 {SEED}")).unwrap();
    add(&mut client, "key", 0..50);
    turn(&mut client, 100 * SECOND);
    // Reading forgets nothing.
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
        // In later rounds, the filter exists.
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

/// Returns all replies about the first items, for all filters.
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

/// Makes a replica synchronize anew while more is written. Returns true if anything was written before it was in sync.
fn resynchronize(master: &Server, replica: &Server, mut write: impl FnMut()) -> bool {
    let (mut client, mut reader) = (master.connect(), replica.connect());
    let before = info_number(&mut client, "stats", "sync_full");
    run(&mut client, "CONFIG SET rdb-key-save-delay 200000").unwrap();
    run(&mut reader, "REPLICAOF NO ONE").unwrap();
    follow(&mut reader, master.port);
    wait_until("it has begun", || info_number(&mut client, "stats", "sync_full") > before);
    let mut hit = false;
    wait_until("the replica has got everything", || {
        write();
        let is_up = info(&mut reader, "replication", "master_link_status") == "up";
        hit |= !is_up;
        is_up
    });
    run(&mut client, "CONFIG SET rdb-key-save-delay 0").unwrap();
    hit
}

#[test]
fn replicas_and_restarts_hold_the_same_whatever_their_clocks_say() {
    let master = stopped(with_clock().set("appendonly yes").set("aof-use-rdb-preamble no"));
    let mut client = master.connect();
    let (mut random, mut clock) = (Random(1), 0);
    fill(&mut client, &mut random, &mut clock, 5);
    let replicas = [0, 40 * 86_400 * SECOND, -40 * 86_400 * SECOND].map(|ahead| {
        let replica = replica_of(&master, with_clock().module_arguments("error-rate 0.3 layout classic")).start();
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
fn a_replica_that_takes_over_in_the_middle_of_a_slice_keeps_the_promise() {
    let master = stopped(with_clock());
    let mut client = master.connect();
    run(&mut client, &format!("BF.RESERVE key {RARE} 1000 WINDOW 3600 SLICES 4 {SEED}")).unwrap();
    run(&mut client, &format!("BF.RESERVE renewed {RARE} 1000 WINDOW 3600 SLICES 4 REFRESH {SEED}")).unwrap();
    let replica = replica_of(&master, with_clock()).start();
    let mut other = replica.connect();
    wait_for_replica(&mut client, &mut other);
    for key in ["key", "renewed"] {
        turn(&mut client, 0);
        add(&mut client, key, 0..100);
        turn(&mut client, 450 * SECOND);
        add(&mut client, key, 50..200);
    }
    wait_for_replica(&mut client, &mut other);
    run(&mut client, "SHUTDOWN NOSAVE").unwrap_err();
    run(&mut other, "REPLICAOF NO ONE").unwrap();
    // Its clock is five minutes behind at first.
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

#[test]
fn what_changes_nothing_is_not_replicated_and_what_is_renewed_is() {
    let server = stopped(with_clock().set("appendonly yes").set("aof-use-rdb-preamble no"));
    let mut client = server.connect();
    let last = |count: usize| {
        let commands = aof_commands(server.folder());
        let shown = |command: &Vec<Vec<u8>>| {
            command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
        };
        // Servers before 7.0 put each command into a transaction.
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
    // Items are not renewed within their slice.
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
    // A filter with ROLLING alone needs no time, so the commands have none.
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

#[test]
fn a_clock_that_jumps_breaks_nothing() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {RARE} 1000 WINDOW 60 {SEED}")).unwrap();
    add(&mut client, "key", 0..100);
    // The clock goes back: items stay present, and new items are remembered no shorter than usual.
    for ahead in [-86_400, -1_000_000_000_000, -30] {
        turn(&mut client, ahead * SECOND);
        assert!(all_found(&mut client, "key", 0..100), "{ahead}");
        assert_eq!(add(&mut client, "key", 0..100), 0, "{ahead}");
    }
    assert_eq!(add(&mut client, "key", 100..200), 100);
    turn(&mut client, 29 * SECOND);
    assert!(all_found(&mut client, "key", 100..200));
    // The clock goes far ahead and back: items that were added meanwhile are remembered, and the server keeps running.
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
fn a_filter_that_was_idle_gives_its_memory_back_as_it_is_written_to() {
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
