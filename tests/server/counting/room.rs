//! Removals make room: a filter takes the memory that its present items need, and no more for those that are gone.

use redis::Connection;

use crate::expected::{array, ok};
use crate::fields::field;
use testkit::Setup;
use testkit::command::many;
use testkit::filter_model::EXACT;
use testkit::info::assert_figures_add_up;
use testkit::memory::grow;
use testkit::replication::{Pair, assert_synchronized};
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};

/// Adds or removes numbered items. Returns the number of items that were new when added, or present when removed.
fn each(client: &mut Connection, command: &str, numbers: std::ops::Range<u64>) -> u64 {
    many::<Vec<u64>>(client, command, "key", &numbers.collect::<Vec<_>>()).iter().sum()
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
