//! The quotient table: a set or multiset of fingerprints that grows and shrinks, and supports removal.
//!
//! The first bits of an item's hash choose a [segment], the next ones a group in it, and then one of the group's 64
//! quotients. The following bits are stored there as a [fingerprint].
//!
//! The idea comes from quotient filters (Bender et al., VLDB 2012) and from two that grow: InfiniFilter (Dayan et al.,
//! SIGMOD 2023) and Aleph filter (VLDB 2024). Those filters have one row of slots, in which an insertion shifts a whole
//! cluster of runs. This table has Elias–Fano groups instead, as in the quotient representation of Carter et al.
//! (1978). An insertion moves nothing outside its segment.
//!
//! ```text
//!  hash  │ page │ segment │ group 5 │ quotient 6 │ fingerprint │ unused …
//!         └─ directories ─┘
//!  slot  │ fingerprint │ 1 │ 0 … │      in a growing table, where fingerprints have different lengths
//!        │ fingerprint ≠ 0       │      in a table of fixed size
//! ```
//!
//! # Growth
//!
//! A segment with as many slots as quotients doubles its groups, up to 32, or splits in two. Each fingerprint gives its
//! top bit to the quotient. A fingerprint without bits is *void* (InfiniFilter's word): it matches every item of its
//! quotient, and is copied into both halves. Splits depend on the number of slots alone, never on slack. Equal
//! sequences of commands therefore give equal tables.
//!
//! # Why removal is exact
//!
//! *Invariant*: the items that were added and not removed can be matched to distinct entries, such that each entry is a
//! prefix of its item's hash. (An entry with the count `c` stands for `c` entries here.)
//!
//! - **Addition** adds an item and an entry, which are matched to each other.
//! - **Removal** of `y` removes `d`, the longest entry that is a prefix of `y`'s hash. Let `f` be the entry matched to
//!   `y`. If `d` is matched to another item `z`, both `f` and `d` are prefixes of `y`'s hash, and `f` is no longer than
//!   `d`. So `f` is a prefix of `d`, hence of `z`'s hash, and can be matched to `z`.
//! - **Growth** keeps the matching. An entry that gives its top bit to the quotient stays the same prefix, and copies
//!   of void entries only add entries.
//! - **Shrinking** shortens entries, and a shorter prefix is still a prefix.
//!
//! So the table has no false negatives. The proof assumes that only items that were added are removed. Removing an item
//! that was never added, but is a false positive, removes the entry of another item.
//!
//! # Files
//!
//! - `bits`: fields of bits in bytes; `path`: the bits of a hash; `entry`: values and counts; `segment`: groups of
//!   slots;
//! - `directory`: from a path to its segment; `fingerprint`: lengths and error rates; `coverage`: the false-positive
//!   rate;
//! - `lookup`, `update`, `growth`, `merge`, `forgetting` and `part`: the operations;
//! - `sample`: a part of a table, to predict the size of the whole.

mod bits;
mod coverage;
mod directory;
mod entry;
mod fingerprint;
mod forgetting;
mod growth;
mod lookup;
mod merge;
mod part;
mod path;
mod sample;
mod segment;
mod update;

use crate::array::{Mover, Stop};
use crate::error::Error;
use crate::hash::Hash;
use crate::item_count::ItemCount;
use crate::memory::try_vec;
use bits::MAX_WIDTH;
pub(crate) use bits::{low_bits, low_bits_up_to_64};
use coverage::{COVERAGE_BITS, Coverage};
use directory::{Bucket as _, Directory};
pub use entry::{MAX_ENTRY_COUNT, Payload, Stamps};
pub(crate) use fingerprint::{AddressSpace, FingerprintLengths};
use fingerprint::{FIRST_LEVEL, Levels};
pub use forgetting::{AddOutcome, SliceAddition};
use part::path_at;
pub use part::{END, Position, end_of};
use path::Path;
pub(crate) use sample::Sample;
pub(crate) use segment::QUOTIENT_BITS;
use segment::{Address, MAX_BYTES, MAX_LOG_GROUPS, Segment, SlotFormat, bytes_of_segment};

/// The mapping from hashes to quotients and fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// The hash is the path. Fingerprints get shorter when the table grows.
    Growing(FingerprintLengths),
    /// The hash is scaled to the size of the table. All fingerprints have the same length.
    Fixed(AddressSpace),
}

impl Addressing {
    /// Returns the number of bits that end a fingerprint.
    #[inline(always)]
    fn terminator(self) -> u32 {
        match self {
            Addressing::Growing(_) => 1,
            Addressing::Fixed(_) => 0,
        }
    }

    /// Returns the binary logarithm of the number of groups in a segment, unless it is the only one of a growing table.
    fn log_groups(self) -> u32 {
        match self {
            Addressing::Growing(_) => MAX_LOG_GROUPS,
            Addressing::Fixed(space) => space.log_groups(),
        }
    }

    /// Returns true if an entry's value matches an item with this remainder.
    #[inline(always)]
    fn matches(self, value: u64, remainder: u64) -> bool {
        match self {
            Addressing::Growing(_) => is_prefix(value, remainder),
            Addressing::Fixed(_) => value == remainder.max(1),
        }
    }

    /// Returns true if a value matches all items that another value of its quotient matches.
    #[inline(always)]
    fn covers(self, value: u64, other: u64) -> bool {
        match self {
            Addressing::Growing(_) => value.trailing_zeros() >= other.trailing_zeros() && is_prefix(value, other >> 1),
            Addressing::Fixed(_) => value == other,
        }
    }

    /// Returns the value of a new entry.
    #[inline(always)]
    fn value(self, address: Address) -> u64 {
        self.value_of(address.remainder)
    }

    /// Returns the value of an entry with this remainder, in its full length.
    #[inline(always)]
    fn value_of(self, remainder: u64) -> u64 {
        match self {
            Addressing::Growing(_) => remainder << 1 | 1,
            Addressing::Fixed(_) => remainder.max(1),
        }
    }

    /// Returns the value of an entry whose prefix has `length` bits after the quotient, in a table with values of
    /// `value_bits` bits. Cuts the fingerprint off if it does not fit.
    fn value_of_length(self, address: Address, length: u32, value_bits: u32) -> u64 {
        match self {
            Addressing::Growing(_) => address.remainder << 1 | 1 << (value_bits - 1).saturating_sub(length),
            Addressing::Fixed(_) => self.value(address),
        }
    }
}

/// Returns the format of the slots at a level of a table.
fn slot_format(addressing: Addressing, payload: Payload, level: u32) -> SlotFormat {
    let stamp_bits = payload.stamp_bits();
    let value_bits = match addressing {
        Addressing::Growing(lengths) => (lengths.at(level) + 1).min(MAX_WIDTH - stamp_bits),
        Addressing::Fixed(space) => space.width.into(),
    };
    SlotFormat { width: value_bits + stamp_bits, stamp_bits }
}

/// The most bits that choose a segment in a page of the directory. A page that needs another bit splits in two, so that
/// no insertion copies a large directory. A page has 2 KB. With `10^9` items, the directory of pages has half a
/// megabyte.
const PAGE_BITS: u32 = 6;

/// A quotient table.
pub struct Table {
    pages: Directory<Directory<Segment>>,
    addressing: Addressing,
    payload: Payload,
    count: ItemCount,
    /// The number of additions less the number of removals.
    occurrences: u64,
    segments: u64,
    /// The number of segments that the complete table has, if this one is loaded from a header and chunks.
    announced_segments: u64,
    slots: u64,
    /// The sum of the fractions of all paths that the entries match. Overlaps count twice.
    coverage: Coverage,
    /// The size of all segments.
    segment_bytes: usize,
    /// The size of all directories.
    directory_bytes: usize,
}

impl Table {
    /// Creates an empty table that grows, and may shrink.
    pub fn growing(error_rate: f64, payload: Payload) -> Result<Table, Error> {
        let lengths = FingerprintLengths::for_error_rate(Levels::OF_ALL, error_rate, 0);
        Table::new(Addressing::Growing(lengths), payload)
    }

    /// Creates an empty table from which nothing is removed. Its first `given` items have an error rate of their own.
    pub fn only_growing(error_rate: f64, given: u64) -> Result<Table, Error> {
        let lengths = FingerprintLengths::for_error_rate(Levels::OF_GROWTH, error_rate, given);
        Table::new(Addressing::Growing(lengths), Payload::Nothing)
    }

    /// Creates an empty table of fixed size for `capacity` items. The caller enforces the capacity.
    pub fn fixed(capacity: u64, error_rate: f64, payload: Payload) -> Result<Table, Error> {
        let space = AddressSpace::for_items(capacity, error_rate, payload.stamp_bits()).ok_or(Error::OutOfMemory)?;
        Table::new(Addressing::Fixed(space), payload)
    }

    /// Creates an empty table: one segment without memory. The first addition splits it as far as necessary.
    pub fn new(addressing: Addressing, payload: Payload) -> Result<Table, Error> {
        let mut table = Table {
            pages: Directory::new(0, 0, Vec::new()),
            addressing,
            payload,
            count: ItemCount::default(),
            occurrences: 0,
            segments: 1,
            announced_segments: 1,
            slots: 0,
            coverage: Coverage(0),
            segment_bytes: 0,
            directory_bytes: 0,
        };
        table.pages = table.directories_of_one(0)?;
        table.directory_bytes = table.pages.bytes() + size_of::<Segment>();
        Ok(table)
    }

    /// Returns the directories of one segment without memory. The first `depth` bits of all paths are zeros.
    fn directories_of_one(&self, depth: u32) -> Result<Directory<Directory<Segment>>, Error> {
        let mut pages = try_vec(1)?;
        let mut segments = try_vec(1)?;
        segments.push(self.empty_segment(depth));
        pages.push(Directory::new(depth, 0, segments));
        Ok(Directory::new(depth, 0, pages))
    }

    /// Returns a segment without memory, with the initial number of groups at this depth.
    fn empty_segment(&self, depth: u32) -> Segment {
        let log_groups = match self.addressing {
            Addressing::Growing(_) if depth == 0 => FIRST_LEVEL - QUOTIENT_BITS,
            addressing => addressing.log_groups(),
        };
        self.empty_segment_with_groups(depth, log_groups)
    }

    /// Returns a segment without memory, with a given number of groups.
    fn empty_segment_with_groups(&self, depth: u32, log_groups: u32) -> Segment {
        let format = slot_format(self.addressing, self.payload, depth + log_groups + QUOTIENT_BITS);
        Segment::empty(depth, log_groups, format)
    }

    /// Returns the least depth of a segment with memory.
    fn min_depth(&self) -> u32 {
        match self.addressing {
            Addressing::Growing(_) => 0,
            Addressing::Fixed(space) => space.depth(),
        }
    }

    /// Returns the number of items that were new when they were added, less the removed ones.
    pub fn items(&self) -> u64 {
        self.count.items()
    }

    /// Returns the item count as it is stored.
    pub fn item_count(&self) -> ItemCount {
        self.count
    }

    /// Returns the number of additions less the number of removals. In a set, an item is added once.
    pub fn occurrences(&self) -> u64 {
        self.occurrences
    }

    /// Returns the number of quotients: the number of items that the table has room for at its present size.
    pub fn quotients(&self) -> u64 {
        let log_groups = if self.segments == 1 { self.segment(0).log_groups() } else { self.addressing.log_groups() };
        self.segments << (log_groups + QUOTIENT_BITS)
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Returns the approximate size of a table with this many segments and filled slots, in bytes.
    pub fn bytes_for(addressing: Addressing, payload: Payload, segments: u64, slots: u64) -> u64 {
        let log_groups = addressing.log_groups();
        let format = slot_format(addressing, payload, segments.max(1).ilog2() + log_groups + QUOTIENT_BITS);
        let filled = segments.min(slots);
        // The numbers may be forged.
        let slots_of_each = slots.checked_div(filled).unwrap_or(0).min(MAX_BYTES as u64);
        let of_each = bytes_of_segment(slots_of_each as usize, log_groups, format) as u64;
        let pages = match addressing {
            Addressing::Growing(_) => 0,
            // The first item allocates the whole directory of pages.
            Addressing::Fixed(space) => {
                (size_of::<Directory<Segment>>() as u64) << space.depth().saturating_sub(PAGE_BITS)
            }
        };
        let directory = segments.saturating_mul(size_of::<Segment>() as u64).saturating_add(pages);
        filled.saturating_mul(of_each).saturating_add(directory)
    }

    /// Returns the number of filled slots.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns the payload of the table's entries.
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// Returns the mapping from hashes to quotients and fingerprints.
    pub fn addressing(&self) -> Addressing {
        self.addressing
    }

    /// Returns the number of bytes requested from the allocator, without the table itself.
    pub fn allocated(&self) -> usize {
        self.segment_bytes + self.directory_bytes
    }

    /// Returns the number of filled slots per quotient, at most 1.
    pub fn fill(&self) -> f64 {
        (self.slots as f64 / self.quotients() as f64).min(1.0)
    }

    /// Returns the false-positive rate of the table with its present entries.
    pub fn false_positive_rate(&self) -> f64 {
        let space = match self.addressing {
            Addressing::Fixed(space) => space.used(),
            Addressing::Growing(_) => 1.0,
        };
        (self.coverage.0 as f64 / libm::exp2(f64::from(COVERAGE_BITS)) / space).min(1.0)
    }

    #[inline(always)]
    fn path(&self, hash: Hash) -> Path {
        let path = u128::from(hash.first) << 64 | u128::from(hash.second);
        match self.addressing {
            Addressing::Growing(_) => path,
            Addressing::Fixed(space) => space.path(path),
        }
    }

    #[inline(always)]
    fn segment(&self, path: Path) -> &Segment {
        self.pages.get(path).get(path)
    }

    #[inline(always)]
    fn segment_mut(&mut self, path: Path) -> &mut Segment {
        self.pages.get_mut(path).get_mut(path)
    }
}

/// Returns true if the fingerprint of a value is a prefix of `remainder`. The value's lowest set bit is the terminator.
#[inline(always)]
fn is_prefix(value: u64, remainder: u64) -> bool {
    (value ^ remainder << 1) >> value.trailing_zeros() >> 1 == 0
}

impl Table {
    /// Lets a mover move the table's allocations from `start` on. Calls `should_stop` after each page, which has up to
    /// 64 segments. Returns the position of the next page if it stopped early.
    pub fn relocate(&mut self, start: Position, mover: Mover<'_>, should_stop: Stop<'_>) -> Option<Position> {
        if start == 0 {
            mover.move_slice(self.pages.slots_mut());
        }
        let mut position = start;
        while position < END {
            if position > start && should_stop() {
                return Some(position);
            }
            let page = self.pages.get_mut(path_at(position));
            mover.move_slice(page.slots_mut());
            page.slots_mut().iter_mut().for_each(|segment| segment.relocate(mover));
            // Pages may have split or merged since the last call, so that `start` lies within a page.
            let length = END >> page.depth();
            position = (position & !(length - 1)) + length;
        }
        None
    }
}
