//! Removals make room: a filter takes the memory that its present items need, and no more for those that are gone.

use redis::Connection;

use crate::expected::{FULL, array, ok, protocols};
use crate::fields::field;
use testkit::command::many;
use testkit::filter_model::EXACT;
use testkit::info::{assert_figures_add_up, info_field};
use testkit::memory::grow;
use testkit::replication::{Pair, assert_synchronized};
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, run};

/// Adds or removes numbered items. Returns the number of items that were new when added, or present when removed.
fn each(client: &mut Connection, command: &str, numbers: std::ops::Range<u64>) -> u64 {
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

/// A replica applies no limit of its own, so it would accept additions that its master rejected.
#[test]
fn a_rejected_addition_reaches_no_replica_and_removals_make_room() {
    let setup = || with_debug(Setup::oxbloom());
    let pair = Pair::start(setup().module_arguments("filter-memory-limit 20000"), setup());
    let (mut client, mut reader) = pair.clients();
    let mut wire = Wire::resp2(&pair.master);
    wire.run("BF.RESERVE key 0.000001 500 COUNTING SEED 7");
    let rejected = Reply::error(grow::FILTER_LIMIT);
    let added = (0..100_000).take_while(|n| wire.run(&format!("BF.ADD key {n}")) != rejected).count();
    assert!((3000..8000).contains(&added), "{added}");
    let size = || field(&mut Wire::resp2(&pair.master), "key", "SIZE", "Size").integer();
    assert!((16_000..=20_000).contains(&size()), "{}", size());
    // Some other items may still fit, but soon none does.
    let mut batch = vec!["BF.MADD".to_owned(), "key".to_owned()];
    batch.extend((0..10_000).map(|number| format!("other{number}")));
    for number in 0.. {
        let reply = wire.run_words(&batch);
        let replies = reply.elements();
        assert_eq!(replies.last(), Some(&rejected));
        assert!(size() <= 20_000, "{}", size());
        if replies.len() == 1 {
            break;
        }
        // Removes the added items from the batch, so that they are not sent again.
        batch.drain(2..1 + replies.len());
        assert!(number < 100 && batch.len() > 2, "the filter accepts every item");
    }
    let (known, new) = (format!("{}", added - 1), batch[2].clone());
    let none = Reply::Integer(0);
    assert_eq!(wire.run(&format!("BF.ADD key {new}")), rejected);
    assert_eq!(wire.run(&format!("BF.INSERT key NX ITEMS {known} {new}")), array([&none, &rejected]));
    let removed: Vec<String> = (0..added as u64 / 2).map(|number| number.to_string()).collect();
    let reply = wire.run(&format!("BF.MDEL key {} {new}", removed.join(" ")));
    assert_eq!(reply.elements()[..removed.len()], vec![Reply::Integer(1); removed.len()]);
    assert_eq!(reply.elements()[removed.len()], none);
    assert!(size() < 18_000, "{}", size());
    let reply = wire.run(&format!("BF.MADD key {known} {new} {known}"));
    assert_eq!(reply, array([&none, &Reply::Integer(1), &none]));
    assert_synchronized(&mut client, &mut reader, "in the end");
    assert_figures_add_up(&mut client);
}
