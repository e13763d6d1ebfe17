//! The replies of a server about a filter, which must be the same on both sides.

use crate::exchange::filled::{Filled, REMOVED, add, family, words};
use testkit::filter_model::Family;
use testkit::wire::{Reply, Wire};

/// Items with this number or a higher one are never added.
const ABSENT: u64 = 1 << 40;

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

pub(crate) fn assert_same(one: &mut Wire, other: &mut Wire, all: &[Filled]) {
    for filled in all {
        let (one, other) = (answers(one, filled), answers(other, filled));
        assert_eq!(one.facts, other.facts, "{}", filled.key);
        assert_eq!(one.present, other.present, "{}", filled.key);
        assert_eq!(one.absent, other.absent, "{}", filled.key);
        assert!(one.dump == other.dump, "{}: dumps differ", filled.key);
    }
}

/// Adds the same items to all filters on both servers.
pub(crate) fn add_to_both(clients: [&mut Wire; 2], all: &mut [Filled]) {
    let [one, other] = clients;
    for filled in all {
        let more = if filled.key.ends_with("large") { 4_000 } else { 50 + filled.items / 10 };
        add(one, filled.key, filled.items, filled.items + more);
        add(other, filled.key, filled.items, filled.items + more);
        filled.items += more;
    }
}
