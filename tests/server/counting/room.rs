//! Removals make room: a filter takes the memory that its present items need, and no more for those that are gone.

use std::collections::VecDeque;

use redis::{Connection, Value};

use crate::expected::array;
use crate::expected::{FULL, ok, protocols};
use models::random::Random;
use testkit::command::{ABSENT, many};
use testkit::counting_workload::CountingWorkload;
use testkit::filter_model::{EXACT, FilterModel};
use testkit::info::{assert_figures_add_up, info_field};
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, run};

/// Adds or removes numbered items. Returns the number of items that were new when added, or present when removed.
pub(crate) fn each(client: &mut Connection, command: &str, numbers: std::ops::Range<u64>) -> u64 {
    many::<Vec<u64>>(client, command, "key", &numbers.collect::<Vec<_>>()).iter().sum()
}

#[test]
fn a_full_filter_has_room_again_when_items_are_removed() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        let full = Reply::error(FULL);
        client.run(&format!("BF.RESERVE key {EXACT} 4 NONSCALING COUNTING"));
        assert_eq!(client.run("BF.MADD key a b a c d e a"), array([&yes, &yes, &no, &yes, &yes, &full]));
        // Items that are present can be added again, but no others.
        assert_eq!(client.run("BF.ADD key a"), no);
        assert_eq!(client.run("BF.ADD key e"), full);
        assert_eq!(client.run("BF.MCOUNT key a e"), Reply::integers(&[3, 0]));
        assert_eq!(client.run("BF.INSERT key NX ITEMS a b e a"), array([&no, &no, &full]));
        assert_eq!(client.run("BF.MCOUNT key a b e"), Reply::integers(&[3, 1, 0]));
        // Two of its three occurrences are left, so the item still takes up its slot.
        assert_eq!(client.run("BF.DEL key a"), yes);
        assert_eq!(client.run("BF.ADD key e"), full);
        assert_eq!(client.run("BF.MDEL key d e"), array([&yes, &no]));
        assert_eq!(client.run("BF.INSERT key NX ITEMS a e d"), array([&no, &yes, &full]));
        assert_eq!(client.run("BF.MDEL key a a b c e"), array([&yes, &yes, &yes, &yes, &yes]));
        assert_eq!(client.run("BF.MADD key f g h i j"), array([&yes, &yes, &yes, &yes, &full]));
        assert_eq!(client.run("BF.CARD key"), Reply::Integer(4));
        assert_eq!(client.run("BF.INFO key FILTERS").single_field("Number of filters"), Reply::Integer(1));
    }
}

#[test]
fn items_are_removed_in_any_order_before_and_after_growth_and_the_filter_shrinks_again() {
    const ITEMS: u64 = 20_000;
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {EXACT} 10 EXPANSION 1 COUNTING SEED 7")).unwrap();
    let usage = |client: &mut Connection| ask::<u64>(client, "MEMORY USAGE key");
    let state = |client: &mut Connection| ask::<Vec<u64>>(client, "BF.INFO key CAPACITY")[0];
    let empty = (usage(&mut client), state(&mut client));
    for (round, name) in
        ["the oldest first", "the newest first", "at random", "every other one"].into_iter().enumerate()
    {
        let mut random = Random(round as u64);
        assert_eq!((usage(&mut client), state(&mut client)), empty, "{name}");
        // Each item is added twice, the second time after the filter has grown.
        for again in [false, true] {
            for first in (0..ITEMS).step_by(1000) {
                assert_eq!(each(&mut client, "BF.MADD", first..first + 1000), if again { 0 } else { 1000 });
            }
        }
        let largest = (usage(&mut client), state(&mut client));
        assert!((ITEMS..=4 * ITEMS).contains(&largest.1), "{name}: {largest:?}");
        let mut order: Vec<u64> = (0..ITEMS).chain(0..ITEMS).collect();
        match name {
            "the oldest first" => {}
            "the newest first" => order.reverse(),
            "at random" => {
                (1..order.len()).for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
            }
            _ => order.sort_by_key(|number| number % 2),
        }
        let mut left = vec![2; ITEMS as usize];
        let (mut last, mut steps) = (largest, 0);
        for (part, numbers) in order.chunks(1000).enumerate() {
            assert_eq!(many::<Vec<u64>>(&mut client, "BF.MDEL", "key", numbers), [1; 1000], "{name}");
            numbers.iter().for_each(|&number| left[number as usize] -= 1);
            let now = (usage(&mut client), state(&mut client));
            assert!(now.1 <= last.1, "{name}: {now:?} after {last:?}");
            steps += u64::from(now.1 < last.1);
            last = now;
            if part % 8 == 7 {
                let all: Vec<u64> = (0..ITEMS).collect();
                assert_eq!(many::<Vec<u64>>(&mut client, "BF.MCOUNT", "key", &all), left, "{name}");
                let there = left.iter().filter(|&&count| count > 0).count() as u64;
                assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), there, "{name}");
                // An eighth of the occurrences takes less than a quarter of the memory.
                let occurrences: u64 = left.iter().sum();
                assert!(occurrences > ITEMS / 4 || now.0 < largest.0 / 4, "{name}: {now:?} of {largest:?}");
            }
            if part == 20 {
                assert_eq!(run(&mut client, "DEBUG RELOAD"), Ok(Value::Okay));
            }
        }
        assert!(steps >= 3, "{name}: it shrank {steps} times");
        assert_eq!(each(&mut client, "BF.MDEL", 0..1000), 0);
        assert_eq!(info_field::<f64>(&mut client, "key", "FILL"), 0.0);
        assert_eq!(info_field::<f64>(&mut client, "key", "FPR"), 0.0);
        assert_figures_add_up(&mut client);
    }
    assert_eq!((usage(&mut client), state(&mut client)), empty);
}

/// A counting filter allocates memory as it is filled. Reserving a large capacity costs nothing.
#[test]
fn a_filter_may_be_reserved_for_any_number_of_items_and_takes_memory_when_they_are_added() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let usage = |client: &mut Connection| ask::<u64>(client, "MEMORY USAGE key");
    let max = i64::MAX.to_string();
    for capacity in ["1", "1000000", "1000000000000", &max] {
        run(&mut client, &format!("BF.RESERVE key 0.01 {capacity} COUNTING SEED 7")).unwrap();
        let room: u64 = info_field(&mut client, "key", "CAPACITY");
        assert_eq!(room, capacity.parse::<u64>().unwrap().max(128));
        assert!(usage(&mut client) < 1000);

        for first in (0..64_000).step_by(4000) {
            each(&mut client, "BF.MADD", first..first + 4000);
            let now = usage(&mut client);
            // The bounds are 10 and 22 bits an item. The upper one also allows for the smallest table.
            let (min, max) = ((first + 4000) * 10 / 8, (first + 4000) * 22 / 8 + 2000);
            assert!((min..max).contains(&now), "{now} bytes for {} items", first + 4000);
        }
        run(&mut client, "DEL key").unwrap();
    }
    // A filter that does not grow is laid out for its full capacity, but still takes memory only for its items.
    run(&mut client, "BF.RESERVE key 0.01 1000000 NONSCALING COUNTING SEED 7").unwrap();
    assert!(usage(&mut client) < 1000);
    each(&mut client, "BF.MADD", 0..1);
    assert!(usage(&mut client) < 100_000, "{}", usage(&mut client));
}

/// In these filters, up to half of the items are false positives when they are added: they have the fingerprint of
/// another item.
#[test]
fn every_removal_finds_its_item_however_high_the_error_rate_is() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (mut random, kind) in [(Random(1), "EXPANSION 1"), (Random(2), "EXPANSION 2"), (Random::unpredictable(), "")] {
        run(&mut client, "DEL key").unwrap();
        run(&mut client, &format!("BF.RESERVE key 0.5 50 {kind} COUNTING")).unwrap();
        let mut filter = CountingWorkload::new("key");
        let mut wire = Wire::resp2(&server);
        for round in 0..100 {
            for _ in 0..10 {
                if random.chance(if round % 10 < 5 { 70 } else { 30 }) {
                    filter.add(&mut random, &mut wire);
                } else {
                    filter.remove(&mut random, &mut wire);
                }
            }
            filter.check(&mut client);
        }
        filter.empty(&mut random, &mut wire);
    }
}

#[test]
fn a_server_that_is_out_of_memory_still_removes_items() {
    let server = Setup::oxbloom().set("maxmemory-policy noeviction").start();
    let mut client = Wire::resp2(&server);
    client.run(&format!("BF.RESERVE key {EXACT} 2 EXPANSION 1 COUNTING"));
    client.run("BF.MADD key a b c d e f f");
    assert_eq!(client.run("CONFIG SET maxmemory 1"), ok());
    let rejected = |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("OOM "));
    for words in ["BF.ADD key a", "BF.MADD key a", "BF.INSERT key NX ITEMS a", "BF.RESERVE new 0.01 1 COUNTING"] {
        let reply = client.run(words);
        assert!(rejected(&reply), "{words}: {reply:?}");
    }
    assert_eq!(client.run("BF.COUNT key f"), Reply::Integer(2));
    assert_eq!(client.run("BF.DEL key a"), Reply::Integer(1));
    assert_eq!(client.run("BF.DEL nokey a"), Reply::Integer(0));
    let reply = client.run("EVAL return(redis.call('BF.DEL',KEYS[1],'b')) 1 key");
    assert_eq!(reply, Reply::Integer(1));
    assert_eq!(client.run("BF.MDEL key a c d f"), Reply::integers(&[0, 1, 1, 1]));
    assert_eq!(client.run("BF.MCOUNT key a b c d e f"), Reply::integers(&[0, 0, 0, 0, 1, 1]));
    assert!(rejected(&client.run("BF.ADD key a")));
    // Removals give memory back, even if the server is out of memory.
    client.run("CONFIG SET maxmemory 0");
    let mut connection = server.connect();
    each(&mut connection, "BF.MADD", 0..10_000);
    client.run("CONFIG SET maxmemory 1");
    let before = client.run("MEMORY USAGE key").integer();
    assert_eq!(each(&mut connection, "BF.MDEL", 0..9000), 9000);
    assert!(client.run("MEMORY USAGE key").integer() < before / 4);
    client.run("CONFIG SET maxmemory 0");
    assert_eq!(client.run("BF.MADD key a e"), Reply::integers(&[1, 0]));
}

/// The state of a filter while items are added and removed.
struct State {
    memory: u64,
    capacity: u64,
    items: u64,
}

/// Fills the filter `key` with `population` items, and then replaces a hundred times as many: the oldest first, or
/// random ones. Returns the state of the filter after each replacement of 100 items.
fn churn(client: &mut Connection, random: &mut Random, population: u64, oldest_first: bool) -> Vec<State> {
    const BATCH: u64 = 100;
    let mut present: VecDeque<u64> = VecDeque::new();
    let mut states = Vec::new();
    for first in (0..101 * population).step_by(BATCH as usize) {
        if first >= population {
            let mut leave = || {
                let at = if oldest_first { 0 } else { random.below(present.len() as u64) as usize };
                present.swap_remove_front(at).expect("an item")
            };
            let gone: Vec<u64> = (0..BATCH).map(|_| leave()).collect();
            assert_eq!(many::<Vec<u64>>(client, "BF.MDEL", "key", &gone), [1; BATCH as usize]);
        }
        each(client, "BF.MADD", first..first + BATCH);
        present.extend(first..first + BATCH);
        if first >= population {
            let (memory, items) = (ask(client, "MEMORY USAGE key"), ask(client, "BF.CARD key"));
            states.push(State { memory, capacity: info_field(client, "key", "CAPACITY"), items });
        }
    }
    let present: Vec<u64> = present.into();
    assert_eq!(many::<Vec<u64>>(client, "BF.MEXISTS", "key", &present), vec![1; present.len()]);
    states
}

#[test]
fn a_hundred_times_as_many_items_as_fit_may_be_added_and_removed() {
    const POPULATION: u64 = 1000;
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for (rate, parameters, oldest_first) in [
        (0.01, "1000", true),
        (0.01, "1000", false),
        (0.01, "300 EXPANSION 1", true),
        (0.01, "300 EXPANSION 1", false),
        (0.01, "1200 NONSCALING", false),
        (0.3, "100", true),
        (0.3, "300 EXPANSION 1", false),
    ] {
        let kind = format!("{rate} {parameters} COUNTING SEED 7");
        run(&mut client, "DEL key").unwrap();
        run(&mut client, &format!("BF.RESERVE key {kind}")).unwrap();
        let states = churn(&mut client, &mut Random(1), POPULATION, oldest_first);
        assert_eq!(states.len(), 1000);
        // Items that were false positives when they were added are not counted.
        for State { items, .. } in &states {
            let (population, stray) = (POPULATION as f64, 5.0 * (POPULATION as f64).sqrt());
            let range = population * (1.0 - rate) - stray..=population + stray;
            assert!(range.contains(&(*items as f64)), "{kind}: {items} items");
        }
        let (early, late) = states.split_at(200);
        let max = |states: &[State], of: fn(&State) -> u64| states.iter().map(of).max().expect("a state");
        for (what, of) in
            [("memory", (|state| state.memory) as fn(&State) -> u64), ("capacity", |state| state.capacity)]
        {
            let (early, late) = (max(early, of), max(late, of));
            assert!(late <= early + early / 4, "{kind}: {what} {late}, at first {early}");
        }
        let absent: Vec<u64> = (ABSENT..ABSENT + 10_000).collect();
        let found = FilterModel::new("key").with_reply(&mut client, &absent, true).len() as f64;
        assert!(found <= rate * absent.len() as f64, "{kind}: {found} of {}", absent.len());
    }
}
