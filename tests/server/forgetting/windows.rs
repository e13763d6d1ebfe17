//! How long items are present, and how many of them.

use redis::Value;

use crate::forgetting::items::{RARE, SEED, add, all_found, found};
use testkit::clock::{SECOND, stopped, stopped_pair, turn, with_clock};
use testkit::info::{digest, info_field, info_number, layout_figure};
use testkit::replication::assert_synchronized;
use testkit::wire::Wire;
use testkit::{ask, run};

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
        assert_synchronized(&mut client, &mut reader, options);
        for (seconds, expected) in [(59, [1, 1, 1]), (65, [0, 0, 1])] {
            turn(&mut client, seconds * SECOND);
            assert_eq!(ask::<Vec<u64>>(&mut client, "BF.MEXISTS key a b c"), expected, "{options} after {seconds} s");
        }
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
        assert_synchronized(&mut client, &mut reader, options);
    }
}

#[test]
fn each_slice_that_was_forgotten_early_is_counted_once() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {RARE} 8 WINDOW 60 ROLLING SLICES 2 {SEED}")).unwrap();
    // Each slice has four items. At most three slices are remembered.
    for (number, early) in (0..40).zip([0; 12].into_iter().chain((1..8).flat_map(|early| [early; 4]))) {
        add(&mut client, "key", number..number + 1);
        assert_eq!(layout_figure(&mut client, "windowed", "slices_ended_early"), early, "{number}");
    }
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
