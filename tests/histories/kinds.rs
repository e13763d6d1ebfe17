//! The filters of a history: three of each kind. The first two always exist, and are merged and copied. The third
//! expires.

use testkit::command::{item, many};
use testkit::filter_model::Family;
use testkit::packing::{Packing, bits};
use testkit::{Setup, run};

/// The number of items that clients add. No filter becomes full, unless it grows.
pub(crate) const ITEMS: u64 = 200;

/// The number of the key that expires.
pub(crate) const EXPIRING: usize = 2;

/// A kind of filters.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) family: Family,
    error_rate: &'static str,
    capacity: u64,
    options: &'static str,
    pub(crate) counts: bool,
    pub(crate) merges: bool,
    pub(crate) intersects: bool,
    pub(crate) window: Option<u64>,
    /// True if the additions of items that were present are not remembered.
    pub(crate) only_new: bool,
}

const BLOOM: Kind = Kind {
    name: "",
    family: Family::Bloom,
    error_rate: "0.001",
    capacity: 20,
    options: "",
    counts: false,
    merges: true,
    intersects: false,
    window: None,
    only_new: false,
};
/// Nothing may be removed that was not added, but an addition may be lost: so two items may never look alike.
const COUNTING: Kind = Kind { error_rate: "0.00000000000001", counts: true, ..BLOOM };
const WINDOW: Kind = Kind { merges: false, ..BLOOM };
const CUCKOO: Kind = Kind { family: Family::Cuckoo, merges: false, ..COUNTING };

pub(crate) static KINDS: [Kind; 12] = [
    Kind { name: "growing", capacity: 5, options: "SEED 7", ..BLOOM },
    Kind { name: "fixed", capacity: 2000, options: "NONSCALING SEED 7", intersects: true, ..BLOOM },
    Kind { name: "counting", options: "COUNTING SEED 7", ..COUNTING },
    Kind {
        name: "counting-fixed",
        capacity: 2000,
        options: "COUNTING NONSCALING SEED 7",
        intersects: true,
        ..COUNTING
    },
    Kind { name: "window", options: "WINDOW 1800 SLICES 7 SEED 7", window: Some(1800), only_new: true, ..WINDOW },
    Kind { name: "refresh", options: "WINDOW 60 REFRESH SEED 7", window: Some(60), ..WINDOW },
    Kind { name: "refresh-long", options: "WINDOW 3000 REFRESH SEED 7", window: Some(3000), ..WINDOW },
    Kind { name: "rolling", capacity: 2000, options: "ROLLING SEED 7", only_new: true, ..WINDOW },
    Kind { name: "classic", options: "LAYOUT classic", ..BLOOM },
    Kind { name: "valkey", options: "LAYOUT valkey", merges: false, ..BLOOM },
    Kind { name: "cuckoo", options: "ERROR 0.00000000000001 SEED 7", ..CUCKOO },
    // Its fingerprints have eight bits. These buckets are so many that no two of the items look alike, as a test says.
    Kind { name: "cuckoo-classic", capacity: 1 << 16, options: "LAYOUT classic", ..CUCKOO },
];

impl Kind {
    /// Returns the three keys.
    pub(crate) fn keys(&self) -> [String; 3] {
        ["a", "b", "expiring"].map(|key| format!("{}-{key}", self.name))
    }

    pub(crate) fn reserving(&self, key: &str) -> String {
        match self.family {
            Family::Bloom => format!("BF.RESERVE {key} {} {} {}", self.error_rate, self.capacity, self.options),
            Family::Cuckoo => format!("CF.RESERVE {key} {} {}", self.capacity, self.options),
        }
    }

    /// Returns the commands that add items; if `create` is set, those that also create the filter as it must be.
    pub(crate) fn additions(&self, create: bool) -> &'static [&'static str] {
        match (self.family, create) {
            (Family::Bloom, true) => &["BF.INSERT"],
            (Family::Bloom, false) => &["BF.INSERT", "BF.ADD", "BF.MADD", "BF.ADDPACKED"],
            (Family::Cuckoo, true) => &["CF.INSERT", "CF.INSERTNX"],
            (Family::Cuckoo, false) => &["CF.INSERT", "CF.INSERTNX", "CF.ADD", "CF.ADDNX"],
        }
    }

    /// Returns one of these commands up to the items.
    pub(crate) fn inserting(&self, command: &str, key: &str, options: &str) -> String {
        let error_rate =
            if self.family == Family::Bloom { format!("ERROR {}", self.error_rate) } else { String::new() };
        format!("{command} {key} {error_rate} CAPACITY {} {} {options} ITEMS", self.capacity, self.options)
    }
}

/// Returns the arguments of a command with items.
pub(crate) fn with_items(command: &str, items: &[u64]) -> Vec<Vec<u8>> {
    let words = command.split_ascii_whitespace().map(|word| word.as_bytes().to_vec());
    words.chain(items.iter().map(|&number| item(number))).collect()
}

/// Returns the arguments of a command with packed items.
pub(crate) fn with_packed(command: &str, items: &[u64]) -> Vec<Vec<u8>> {
    let items: Vec<Vec<u8>> = items.iter().map(|&number| item(number)).collect();
    with_items(command, &[]).into_iter().chain(Packing::Offsets(0).pack(&items)).collect()
}

/// Converts the reply to a packed command to one number an item.
pub(crate) fn unpacked(reply: &[u8], count: usize) -> Vec<i64> {
    bits(reply, count).into_iter().map(i64::from).collect()
}

/// Panics if a classic cuckoo filter takes one of the items for another.
pub(crate) fn assert_items_differ() {
    let kind = KINDS.last().expect("some kinds");
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    run(&mut client, &kind.reserving("filter")).expect("a filter");
    let items: Vec<u64> = (0..ITEMS).collect();
    let found = items.iter().filter(|&&number| {
        let was_absent = many::<u64>(&mut client, "CF.ADDNX", "filter", &[number]) == 1;
        !was_absent
    });
    assert_eq!(found.count(), 0, "items that look like others");
}
