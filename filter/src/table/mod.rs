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

mod bits;
mod directory;
mod entry;
mod fingerprint;
#[macro_use]
mod dispatch;
mod forgetting;
mod growth;
mod merge;
mod path;
mod segment;
mod stored;

use std::ptr::NonNull;

use crate::array::{prefetch, relocate_slice};
use crate::batch::BATCH;
use crate::error::Error;
use crate::hash::Hash;
use crate::item_count::ItemCount;
use crate::memory::{Admit, try_vec};
use bits::{Broadword, MAX_WIDTH, Select};
use directory::{Bucket as _, Directory};
use entry::{ListedEntry, MAX_ENTRY_COUNT, length, max_count_with_another_slot};
pub use entry::{Payload, Stamps};
pub(crate) use forgetting::{AddOutcome, SliceAddition};

use fingerprint::FIRST_LEVEL;
pub(crate) use fingerprint::{AddressSpace, FingerprintLengths};
use growth::{must_double, should_shrink};
use path::Path;
use segment::{Address, Entry, GROUP_QUOTIENTS, MAX_LOG_GROUPS, QUOTIENT_BITS, Run, Segment, SlotFormat};
use stored::path_at;
pub use stored::{END, Position, end_of};

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

    /// Returns true if an entry's value matches an item with this remainder.
    #[inline(always)]
    fn matches(self, value: u64, remainder: u64) -> bool {
        match self {
            Addressing::Growing(_) => is_prefix(value, remainder),
            Addressing::Fixed(_) => value == remainder.max(1),
        }
    }

    /// Returns the value of a new entry.
    #[inline(always)]
    fn value(self, address: Address) -> u64 {
        match self {
            Addressing::Growing(_) => address.remainder << 1 | 1,
            Addressing::Fixed(_) => address.remainder.max(1),
        }
    }

    /// Returns the fraction of all paths that a value matches. In a table of fixed size, the value 1 also stands for 0.
    #[inline(always)]
    fn coverage_of_value(self, segment: &Segment, value: u64) -> u128 {
        match self {
            Addressing::Growing(_) => coverage_of_prefix(segment.level() + length(value, segment.value_bits())),
            Addressing::Fixed(_) => coverage_of_prefix(segment.level() + segment.value_bits()) << u32::from(value == 1),
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

/// The largest table, in bytes, that is not prefetched. Such a table stays in the second-level cache if it is used
/// often, and prefetching it would cost 8 ns an item without a gain.
const IN_CACHE: usize = 256 << 10;

/// A quotient table.
pub struct Table {
    pages: Directory<Directory<Segment>>,
    addressing: Addressing,
    payload: Payload,
    count: ItemCount,
    /// The number of additions less the number of removals.
    occurrences: u64,
    segments: u64,
    slots: u64,
    /// The sum of the fractions of all paths that the entries match. Overlaps count twice.
    coverage: Coverage,
    /// The size of all segments.
    segment_bytes: usize,
    /// The size of all directories.
    directory_bytes: usize,
}

dispatched! {
    /// Returns true if the item may be in the table.
    pub fn contains(table: &Table, hash: Hash) -> bool = contains_with
}
dispatched! {
    /// Sets `found[i]` if the item of `hashes[i]` may be in the table. Leaves the other elements unchanged.
    pub fn find(table: &Table, hashes: &[Hash], found: &mut [bool]) = find_with
}
dispatched! {
    /// Returns the number of additions of the item less the number of its removals. It is never too low, and too high
    /// at the error rate.
    pub fn count(table: &Table, hash: Hash) -> u64 = count_with
}
dispatched! {
    /// Sets `counts[i]` to the [`count`](Table::count) of the item of `hashes[i]`.
    pub fn count_all(table: &Table, hashes: &[Hash], counts: &mut [u64]) = count_all_with
}
dispatched! {
    /// Adds an item. Returns true if it is new. A set that has the item stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if an allocation fails or `admit` rejects it; [`Error::CannotGrow`] if too many hashes
    /// are alike. The table then holds the same items as before.
    pub fn add(table: &mut Table, hash: Hash, admit: Admit<'_>) -> Result<bool, Error> = add_with
}
dispatched! {
    /// Removes one occurrence of an item. Returns false if the item is absent.
    pub fn remove(table: &mut Table, hash: Hash) -> bool = remove_with
}

impl Table {
    /// Creates an empty table that grows.
    pub fn growing(error_rate: f64, payload: Payload) -> Result<Table, Error> {
        Table::new(Addressing::Growing(FingerprintLengths::for_error_rate(error_rate)), payload)
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
            slots: 0,
            coverage: Coverage(0),
            segment_bytes: 0,
            directory_bytes: 0,
        };
        let (mut pages, mut segments) = (try_vec(1)?, try_vec(1)?);
        segments.push(table.empty_segment(0));
        pages.push(Directory::new(0, 0, segments));
        table.pages = Directory::new(0, 0, pages);
        table.directory_bytes = table.pages.bytes() + size_of::<Segment>();
        Ok(table)
    }

    /// Returns a segment without memory, with the initial number of groups at this depth.
    fn empty_segment(&self, depth: u32) -> Segment {
        let log_groups = match self.addressing {
            Addressing::Growing(_) if depth == 0 => FIRST_LEVEL - QUOTIENT_BITS,
            Addressing::Growing(_) => MAX_LOG_GROUPS,
            Addressing::Fixed(space) => space.log_groups(),
        };
        self.empty_segment_of(depth, log_groups)
    }

    /// Returns a segment without memory, with a given number of groups.
    fn empty_segment_of(&self, depth: u32, log_groups: u32) -> Segment {
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

    /// Returns the number of distinct items: new ones when they were added, less the removed ones.
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
        let log_groups = self.all_segments().next().map_or(0, Segment::log_groups);
        self.segments << (log_groups + QUOTIENT_BITS)
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Returns the approximate size of a table with this many segments and filled slots, in bytes.
    pub fn bytes_for(addressing: Addressing, payload: Payload, segments: u64, slots: u64) -> u64 {
        let level = segments.max(1).ilog2() + MAX_LOG_GROUPS + QUOTIENT_BITS;
        let width = slot_format(addressing, payload, level).width;
        let empty = size_of::<Segment>() as u64 + u64::from(GROUP_QUOTIENTS << MAX_LOG_GROUPS) / 8;
        let pages = match addressing {
            Addressing::Growing(_) => 0,
            // The first item allocates the whole directory of pages.
            Addressing::Fixed(space) => {
                (size_of::<Directory<Segment>>() as u64) << space.depth().saturating_sub(PAGE_BITS)
            }
        };
        let whole = slots.saturating_mul(u64::from(width) + 1) / 8;
        whole.saturating_add(segments.saturating_mul(empty)).saturating_add(pages)
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
            Addressing::Fixed(AddressSpace { scale, .. }) if scale > 0 => scale as f64 / libm::exp2(64.0),
            _ => 1.0,
        };
        (self.coverage.get() as f64 / libm::exp2(f64::from(COVERAGE_BITS)) / space).min(1.0)
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

    /// Returns the segments, in the order of their paths.
    fn all_segments(&self) -> impl Iterator<Item = &Segment> {
        self.pages.buckets().flat_map(Directory::buckets)
    }

    /// Prefetches the memory that any operation on the items reads. `hashes` has at most [`BATCH`] elements.
    #[inline]
    pub fn prefetch(&self, hashes: &[Hash]) {
        self.prefetch_directory(hashes);
        let address = |&hash: &Hash| {
            let path = self.path(hash);
            let segment = self.segment(path);
            (segment, segment.group(path))
        };
        self.prefetch_groups(hashes.iter().map(address));
    }

    /// Prefetches the items' slots of the directory, if the directory is large.
    #[inline(always)]
    fn prefetch_directory(&self, hashes: &[Hash]) {
        if self.segments > DIRECTORY_IN_CACHE {
            for &hash in hashes {
                let path = self.path(hash);
                prefetch(self.pages.get(path).slot(path));
            }
        }
    }

    /// Prefetches at most [`BATCH`] groups, if the table is large. The first pass prefetches the offsets, which the
    /// second pass reads.
    #[inline(always)]
    fn prefetch_groups<'a>(&'a self, groups: impl Iterator<Item = (&'a Segment, usize)>) {
        if self.segment_bytes <= IN_CACHE {
            return;
        }
        let mut noted = [None; BATCH];
        for (noted, (segment, group)) in noted.iter_mut().zip(groups) {
            segment.prefetch_offset(group);
            *noted = Some((segment, group));
        }
        noted.iter().flatten().for_each(|(segment, group)| segment.prefetch_group(*group));
    }

    #[inline(always)]
    fn contains_with<S: Select>(&self, hash: Hash) -> bool {
        let path = self.path(hash);
        let segment = self.segment(path);
        segment.prefetch_estimated(segment.group(path));
        let address = segment.address(path, self.addressing.terminator());
        segment.run::<S>(address).is_some_and(|run| self.any_matches(segment, run, address.remainder))
    }

    #[inline(always)]
    fn find_with<S: Select>(&self, hashes: &[Hash], found: &mut [bool]) {
        let is_wanted = |found: &bool| !found;
        self.for_each_run::<S, _>(
            self.addressing.terminator(),
            hashes,
            found,
            is_wanted,
            |found, segment, run, remainder| {
                *found = self.any_matches(segment, run, remainder);
            },
        );
    }

    #[inline(always)]
    fn count_all_with<S: Select>(&self, hashes: &[Hash], counts: &mut [u64]) {
        counts.fill(0);
        let is_wanted = |_: &u64| true;
        self.for_each_run::<S, _>(
            self.addressing.terminator(),
            hashes,
            counts,
            is_wanted,
            |count, segment, run, remainder| {
                *count = self.count_in(segment, run, remainder);
            },
        );
    }

    /// Calls `visit` with the answer, the segment, the run and the remainder of each item. Skips items whose answer is
    /// not wanted and items whose segment is empty. The last `suffix_bits` bits of a slot are no part of the
    /// fingerprint.
    ///
    /// Each step is done for all items of a batch before the next step. Out-of-order execution then overlaps the steps
    /// of several items, and each step can prefetch for the next. In a table of a million items, this reduced a look-up
    /// from 87 to 65 ns.
    #[inline(always)]
    fn for_each_run<S: Select, A>(
        &self,
        suffix_bits: u32,
        hashes: &[Hash],
        answers: &mut [A],
        is_wanted: impl Fn(&A) -> bool,
        visit: impl Fn(&mut A, &Segment, Run, u64),
    ) {
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            self.prefetch_directory(hashes);
            let mut addresses = [None; BATCH];
            for ((address, &hash), answer) in addresses.iter_mut().zip(hashes).zip(&*answers) {
                if is_wanted(answer) {
                    let path = self.path(hash);
                    let segment = self.segment(path);
                    *address = Some((segment, segment.address(path, suffix_bits)));
                }
            }
            self.prefetch_groups(addresses.iter().flatten().map(|(segment, address)| (*segment, address.group)));
            let mut runs = [None; BATCH];
            for (run, address) in runs.iter_mut().zip(addresses) {
                *run = address
                    .and_then(|(segment, address)| Some((segment, segment.run::<S>(address)?, address.remainder)));
            }
            for (answer, run) in answers.iter_mut().zip(runs) {
                if let Some((segment, run, remainder)) = run {
                    visit(answer, segment, run, remainder);
                }
            }
        }
    }

    /// Returns true if an entry of a run matches an item with this remainder.
    #[inline(always)]
    fn any_matches(&self, segment: &Segment, run: Run, remainder: u64) -> bool {
        match self.addressing {
            Addressing::Growing(_) => segment.any(&run, |slot| is_prefix(slot, remainder)),
            Addressing::Fixed(_) => segment.any(&run, |slot| slot == remainder.max(1)),
        }
    }

    fn count_with<S: Select>(&self, hash: Hash) -> u64 {
        let path = self.path(hash);
        let segment = self.segment(path);
        let address = segment.address(path, self.addressing.terminator());
        segment.run::<S>(address).map_or(0, |run| self.count_in(segment, run, address.remainder))
    }

    /// Returns the sum of the counts of all entries of a run that match an item with this remainder.
    #[inline(always)]
    fn count_in(&self, segment: &Segment, run: Run, remainder: u64) -> u64 {
        let entries = segment.entries(run).filter(|entry| self.addressing.matches(entry.value, remainder));
        entries.fold(0, |sum: u64, entry| sum.saturating_add(entry.count))
    }

    #[inline(always)]
    fn add_with<S: Select>(&mut self, hash: Hash, admit: Admit<'_>) -> Result<bool, Error> {
        let (path, addressing, payload) = (self.path(hash), self.addressing, self.payload);
        loop {
            let max_depth = self.max_depth();
            let segment = self.segment_mut(path);
            let address = segment.address(path, addressing.terminator());
            let Some(run) = segment.run::<S>(address) else {
                self.allocate_segment(path, admit)?;
                continue;
            };
            let value = addressing.value(address);
            let (mut is_known, mut identical) = (false, None);
            if payload == Payload::Nothing {
                if segment.any(&run, |slot| addressing.matches(slot, address.remainder)) {
                    return Ok(false);
                }
            } else {
                for entry in segment.entries(run).filter(|entry| addressing.matches(entry.value, address.remainder)) {
                    is_known = true;
                    if entry.value == value {
                        identical = Some(entry);
                    }
                }
            }
            let count = identical.map_or(0, |entry: Entry| entry.count);
            if count == MAX_ENTRY_COUNT {
                return Ok(false);
            }
            let needs_slot = segment.needs_slot(count, count + 1);
            let mut in_group = 0;
            if needs_slot {
                let room = segment.slots_if_room::<S>(&run).filter(|_| !must_double(segment, max_depth));
                let Some(slots) = room else {
                    self.make_room::<S>(path, run.group(), admit)?;
                    continue;
                };
                in_group = slots;
            }
            segment.set_count(run, identical, value, count + 1, in_group);
            let added_coverage = addressing.coverage_of_value(segment, value);
            self.slots += u64::from(needs_slot);
            self.occurrences = self.occurrences.saturating_add(1);
            self.count.increment(!is_known);
            if identical.is_none() {
                self.coverage.add(added_coverage);
            }
            return Ok(!is_known);
        }
    }

    /// Adds an entry with a count. The entry is the prefix of `path` with `length` bits. A set that has a prefix of
    /// this entry stays as it is. Returns true if the table changed.
    fn put(&mut self, path: Path, length: u32, mut count: u64, admit: Admit<'_>) -> Result<bool, Error> {
        loop {
            let segment = self.segment(path);
            let Some(bits) = length.checked_sub(segment.level()) else {
                // A prefix this short matches several quotients. Both halves of its paths get it.
                let other = path | 1 << (Path::BITS - 1 - length);
                return Ok(self.put(path, length + 1, count, admit)? | self.put(other, length + 1, count, admit)?);
            };
            let address = segment.address(path, self.addressing.terminator());
            let Some(run) = segment.run::<Broadword>(address) else {
                self.allocate_segment(path, admit)?;
                continue;
            };
            let value = match self.addressing {
                Addressing::Growing(_) => {
                    let unused = (segment.width() - 1).saturating_sub(bits);
                    (address.remainder >> unused << 1 | 1) << unused
                }
                Addressing::Fixed(_) => self.addressing.value(address),
            };
            let covers = |slot: u64| {
                self.addressing.matches(slot, address.remainder)
                    && (slot == value || slot.trailing_zeros() > value.trailing_zeros())
            };
            if self.payload == Payload::Nothing && segment.any(&run, covers) {
                return Ok(false);
            }
            let identical = segment.entries(run).find(|entry| entry.value == value);
            let before = identical.map_or(0, |entry| entry.count);
            if before == MAX_ENTRY_COUNT {
                return Ok(false);
            }
            let after = (before.saturating_add(count)).min(max_count_with_another_slot(before, segment.width()));
            let mut in_group = 0;
            if segment.needs_slot(before, after) {
                let room = segment.slots_if_room::<Broadword>(&run).filter(|_| !must_double(segment, self.max_depth()));
                let Some(slots) = room else {
                    self.make_room::<Broadword>(path, run.group(), admit)?;
                    continue;
                };
                in_group = slots;
            }
            let (added_coverage, slots) = (self.addressing.coverage_of_value(segment, value), segment.slots());
            let segment = self.segment_mut(path);
            segment.set_count(run, identical, value, after, in_group);
            let added = segment.slots() - slots;
            self.slots += u64::from(added);
            if before == 0 {
                self.coverage.add(added_coverage);
            }
            count -= after - before;
            if count == 0 {
                return Ok(true);
            }
        }
    }

    #[inline(always)]
    fn remove_with<S: Select>(&mut self, hash: Hash) -> bool {
        let (path, addressing) = (self.path(hash), self.addressing);
        let segment = self.segment_mut(path);
        let address = segment.address(path, addressing.terminator());
        let Some(run) = segment.run::<S>(address) else { return false };
        let (mut longest, mut matching) = (None, 0);
        for entry in segment.entries(run).filter(|entry| addressing.matches(entry.value, address.remainder)) {
            matching += 1;
            longest = match longest {
                Some(longer) if length_order(longer) <= length_order(entry) => Some(longer),
                _ => Some(entry),
            };
        }
        let Some(entry) = longest else { return false };
        let (before, in_group) = (segment.slots(), segment.slots_in::<S>(run.group()));
        segment.set_count(run, Some(entry), entry.value, entry.count - 1, in_group);
        let freed = before - segment.slots();
        let should_shrink = freed > 0 && should_shrink(segment, addressing);
        let removed_coverage = addressing.coverage_of_value(segment, entry.value);
        self.slots -= u64::from(freed);
        if entry.count == 1 {
            self.coverage.subtract(removed_coverage);
        }
        self.count.decrement(matching == 1 && entry.count == 1);
        self.occurrences -= u64::from(self.occurrences > 0);
        // The counts of a table that was decoded may be forged.
        self.count.limit(self.occurrences);
        if self.occurrences == 0 || self.slots == 0 {
            self.clear();
        } else if should_shrink {
            self.shrink::<S>(path);
        }
        true
    }
}

/// The largest number of segments whose directory is not prefetched. Such a directory stays in the second-level cache
/// if it is used often.
const DIRECTORY_IN_CACHE: u64 = 1 << 13;

/// A fraction of all paths, in units of `2^-120`. It is aligned to words. Allocations with a larger alignment do not
/// come from the server's allocator, so that defragmentation could not move them.
#[derive(Clone, Copy)]
#[repr(Rust, packed(8))]
struct Coverage(u128);

impl Coverage {
    fn get(self) -> u128 {
        self.0
    }

    fn add(&mut self, other: u128) {
        self.0 = self.get().saturating_add(other);
    }

    fn subtract(&mut self, other: u128) {
        self.0 = self.get().saturating_sub(other);
    }
}

/// The resolution of a [`Coverage`].
const COVERAGE_BITS: u32 = 120;

/// Returns the fraction of all paths that have a given prefix of `bits` bits.
fn coverage_of_prefix(bits: u32) -> u128 {
    1 << COVERAGE_BITS.saturating_sub(bits)
}

/// Returns the sum of the fractions of all paths that entries of a growing table match.
fn coverage_of_entries(entries: &[ListedEntry], level: u32, value_bits: u32) -> u128 {
    entries.iter().map(|entry| coverage_of_prefix(level + length(entry.value, value_bits))).sum()
}

/// Returns true if the fingerprint of a value is a prefix of `remainder`. The value's lowest set bit is the terminator.
#[inline(always)]
fn is_prefix(value: u64, remainder: u64) -> bool {
    (value ^ remainder << 1) >> value.trailing_zeros() >> 1 == 0
}

/// Returns a sort key that puts entries with longer fingerprints first. In a table of fixed size, all fingerprints have
/// the same length, and at most one entry matches an item.
#[inline(always)]
fn length_order(entry: Entry) -> u32 {
    entry.value.trailing_zeros()
}

impl Table {
    /// Lets `relocate` move the table's allocations from `start` on. Calls `should_stop` after each page, which has up
    /// to 64 segments. Returns the position of the next page if it stopped early.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    pub unsafe fn relocate(
        &mut self,
        start: Position,
        relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>,
        mut should_stop: impl FnMut() -> bool,
    ) -> Option<Position> {
        if start == 0 {
            // SAFETY: as promised by the caller.
            unsafe { relocate_slice(self.pages.slots_mut(), &relocate) };
        }
        let mut position = start;
        while position < END {
            if position > start && should_stop() {
                return Some(position);
            }
            let page = self.pages.get_mut(path_at(position));
            // SAFETY: as promised by the caller.
            unsafe { relocate_slice(page.slots_mut(), &relocate) };
            for segment in page.buckets_mut() {
                // SAFETY: as promised by the caller.
                unsafe { segment.relocate(&relocate) };
            }
            // Pages may have split or merged since the last call, so that `start` lies within a page.
            let length = END >> page.depth();
            position = (position & !(length - 1)) + length;
        }
        None
    }
}
