//! Filters of many kinds, with items.

use testkit::command::item;
use testkit::filter_model::Family;
use testkit::wire::{Reply, Wire};

/// A filter's key, and its number of items. The items are numbered from 0.
pub(crate) struct Filled {
    pub key: &'static str,
    pub items: u64,
}

/// The first part of the keys of cuckoo filters.
const CUCKOO: &str = "cuckoo";

/// The first part of the keys of cuckoo filters from which half of the items were removed.
pub(crate) const REMOVED: &str = "cuckoo-removed";

/// Returns the prefix of the commands on the filter of a key.
pub(crate) fn family(key: &str) -> Family {
    if key.starts_with(CUCKOO) { Family::Cuckoo } else { Family::Bloom }
}

/// Filters of many kinds: the key, the command that creates the filter, and the number of items. Some are created by
/// additions, with the server's defaults. The last one has several chunks.
pub(crate) const KINDS: [(&str, &str, u64); 19] = [
    ("empty", "BF.RESERVE empty 0.01 1000", 0),
    ("fixed", "BF.RESERVE fixed 0.05 4000 NONSCALING", 3_000),
    ("noted", "BF.INSERT noted CAPACITY 900 EXPANSION 5 NONSCALING ITEMS item", 500),
    ("doubled", "BF.RESERVE doubled 0.05 10 EXPANSION 2", 3_000),
    ("linear", "BF.RESERVE linear 0.01 20 EXPANSION 1", 600),
    ("careless", "BF.RESERVE careless 0.9 100 EXPANSION 4", 2_000),
    ("exact", "BF.RESERVE exact 0.000000001 500", 700),
    ("added", "BF.ADD added item", 1_000),
    ("inserted", "BF.INSERT inserted CAPACITY 7 ERROR 0.2 ITEMS item", 100),
    // Layers of 11 KB and 25 MB.
    ("large", "BF.RESERVE large 0.01 8000 EXPANSION 2000", 9_000),
    ("cuckoo-empty", "CF.RESERVE cuckoo-empty 1000", 0),
    ("cuckoo-fixed", "CF.RESERVE cuckoo-fixed 5000 EXPANSION 0", 3_000),
    ("cuckoo-doubled", "CF.RESERVE cuckoo-doubled 10 EXPANSION 2 MAXITERATIONS 5", 3_000),
    ("cuckoo-linear", "CF.RESERVE cuckoo-linear 60 BUCKETSIZE 3", 600),
    ("cuckoo-added", "CF.ADD cuckoo-added item", 2_000),
    ("cuckoo-inserted", "CF.INSERT cuckoo-inserted CAPACITY 70 ITEMS item", 600),
    ("cuckoo-removed", "CF.INSERTNX cuckoo-removed CAPACITY 500 ITEMS item", 4_000),
    ("cuckoo-removed-fast", "CF.RESERVE cuckoo-removed-fast 4 BUCKETSIZE 1 EXPANSION 4", 1_000),
    // Layers of 10 KB and 21 MB.
    ("cuckoo-large", "CF.RESERVE cuckoo-large 10000 BUCKETSIZE 5 EXPANSION 2000", 20_000),
];

pub(crate) fn fill(client: &mut Wire) -> Vec<Filled> {
    let fill = |(key, command, items)| {
        assert!(!client.run(command).is_error(), "{command}");
        add(client, key, 0, items);
        if !key.starts_with(REMOVED) {
            return Filled { key, items };
        }
        for number in items / 2..items {
            let removed = client.run_words(&words("CF.DEL", key, number, number + 1));
            assert!(!removed.is_error(), "{key}: {removed:?}");
        }
        assert_eq!(client.run(&format!("CF.COMPACT {key}")), Reply::simple("OK"));
        Filled { key, items: items / 2 }
    };
    KINDS.map(fill).into()
}

pub(crate) fn words(command: &str, key: &str, from: u64, to: u64) -> Vec<Vec<u8>> {
    let items = (from..to).map(item);
    [command, key].into_iter().map(|word| word.as_bytes().to_vec()).chain(items).collect()
}

/// Adds items by BF.MADD and BF.INSERT, or by CF.INSERT and CF.INSERTNX, in turn.
pub(crate) fn add(client: &mut Wire, key: &str, from: u64, to: u64) {
    let commands = if family(key) == Family::Cuckoo { ["CF.INSERT", "CF.INSERTNX"] } else { ["BF.MADD", "BF.INSERT"] };
    for (start, command) in (from..to).step_by(1000).zip(commands.into_iter().cycle()) {
        let mut words = words(command, key, start, to.min(start + 1000));
        if command != "BF.MADD" {
            words.insert(2, b"ITEMS".to_vec());
        }
        let reply = client.run_words(&words);
        assert!(reply.elements().iter().all(|reply| !reply.is_error()), "{key}: {reply:?}");
    }
}
