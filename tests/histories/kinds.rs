//! The filters of a history: three of each kind. The first two always exist, and are merged and copied. The third
//! expires.

use models::kinds::Remembers::{Since, SinceLast};
use models::kinds::{Kind, Remembers};
use testkit::command::{item, many, with_items};
use testkit::packing::{Packing, bits};
use testkit::{Setup, run};

/// The number of items that clients add. No filter becomes full, unless it grows.
pub(crate) const ITEMS: u64 = 200;

/// The number of the key that expires.
pub(crate) const EXPIRING: usize = 2;

const BLOOM: Kind = Kind { name: "", error_rate: "0.001", capacity: 20, options: "", remembers: Remembers::All };
/// Nothing may be removed that was not added, but an addition may be lost: so two items may never look alike.
const COUNTING: Kind = Kind { error_rate: "0.00000000000001", remembers: Remembers::Counts, ..BLOOM };

#[rustfmt::skip]
pub(crate) static KINDS: [Kind; 12] = [
    Kind { name: "growing", capacity: 5, options: "SEED 7", ..BLOOM },
    // So large that it can be folded.
    Kind { name: "fixed", capacity: 100_000, options: "NONSCALING SEED 7", ..BLOOM },
    Kind { name: "counting", options: "COUNTING SEED 7", ..COUNTING },
    Kind { name: "counting-fixed", capacity: 2000, options: "COUNTING NONSCALING SEED 7", ..COUNTING },
    Kind { name: "window", options: "WINDOW 1800 SLICES 7 SEED 7", remembers: Since(1800), ..BLOOM },
    Kind { name: "refresh", options: "WINDOW 60 REFRESH SEED 7", remembers: SinceLast(60), ..BLOOM },
    Kind { name: "refresh-long", options: "WINDOW 3000 REFRESH SEED 7", remembers: SinceLast(3000), ..BLOOM },
    Kind { name: "rolling", capacity: 2000, options: "ROLLING SEED 7", remembers: Remembers::New, ..BLOOM },
    Kind { name: "classic", options: "LAYOUT classic", ..BLOOM },
    Kind { name: "valkey", options: "LAYOUT valkey", ..BLOOM },
    Kind { name: "cuckoo", options: "ERROR 0.00000000000001 SEED 7", ..COUNTING },
    // Its fingerprints have eight bits. These buckets are so many that no two of the items look alike, as a test says.
    Kind { name: "cuckoo-classic", capacity: 1 << 16, options: "LAYOUT classic", ..COUNTING },
];

/// Returns the three keys of a kind.
pub(crate) fn keys(kind: &Kind) -> [String; 3] {
    ["a", "b", "expiring"].map(|key| format!("{}-{key}", kind.name))
}

/// Returns true if filters of a kind can be merged.
pub(crate) fn merges(kind: &Kind) -> bool {
    let is_permanent = matches!(kind.remembers, Remembers::All | Remembers::Counts);
    is_permanent && !kind.is_cuckoo() && kind.name != "valkey"
}

/// Returns the commands that add items; if `create` is set, those that also create the filter as it must be.
pub(crate) fn additions(kind: &Kind, create: bool) -> &'static [&'static str] {
    match (kind.is_cuckoo(), create) {
        (false, true) => &["BF.INSERT"],
        (false, false) => &["BF.INSERT", "BF.ADD", "BF.MADD", "BF.ADDPACKED"],
        (true, true) => &["CF.INSERT", "CF.INSERTNX"],
        (true, false) => &["CF.INSERT", "CF.INSERTNX", "CF.ADD", "CF.ADDNX"],
    }
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
