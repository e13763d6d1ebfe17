//! Samples: a part of a table, from which the size of the whole table is estimated.
//!
//! All segments are alike, since hashes are uniform, and a segment splits by its own slots alone. The segments whose
//! paths begin with `b` zeros therefore show what a `2^b`-th of the table takes. A sample has only these segments, and
//! gets only the items that belong there.
//!
//! A small table is its own sample, with all of its items. Their hashes are always the same, so that a prediction does
//! not change from call to call.

use super::fingerprint::AddressSpace;
use super::forgetting::{AddOutcome, SliceAddition};
use super::growth::MAX_DEPTH;
use super::path::bits_of;
use super::{Addressing, Table};
use crate::error::Error;
use crate::hash::Hash;

/// The largest number of items in a sample. The 32 segments or more that they fill estimate a size to about 0.5 %.
const MAX_SAMPLED: u64 = 1 << 16;

/// The maximum number of attempts for each item. It is reached only at error rates above 90 %, where most items are
/// false positives when they are added.
const MAX_ATTEMPTS: u64 = 10;

/// A part of a table.
pub(crate) struct Sample {
    table: Table,
    /// The size of the whole table in samples.
    scale: f64,
    /// The number of zeros with which all paths begin.
    bits: u32,
    /// The number of hashes so far.
    drawn: u64,
    /// The number of items of the whole table that the sample was filled with.
    filled: u64,
    /// The fraction of the slots that are not forgotten.
    remembered: f64,
}

impl Sample {
    /// Returns an empty sample of a table that is to hold `items` items. The table is empty, and gives the parameters.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if no table can hold so many items.
    pub(crate) fn new(mut table: Table, items: u64) -> Result<Sample, Error> {
        debug_assert_eq!(table.slots, 0, "a table that is not empty");
        let wanted = items.div_ceil(MAX_SAMPLED).next_power_of_two().ilog2();
        let (bits, used) = match table.addressing {
            Addressing::Growing(_) if wanted >= MAX_DEPTH => return Err(Error::OutOfMemory),
            Addressing::Growing(_) => (wanted, 1.0),
            Addressing::Fixed(space) => (wanted.min(space.depth()), space.used()),
        };
        let mut scale = 1.0;
        if bits > 0 {
            table.pages = table.directories_of_one(bits)?;
            // The depth of segments is limited by the slots of the whole table.
            table.slots = items;
            scale = used * libm::exp2(f64::from(bits));
        }
        Ok(Sample { table, scale, bits, drawn: 0, filled: 0, remembered: 1.0 })
    }

    /// Adds the sample's part of `items` new items.
    pub(crate) fn fill(&mut self, items: u64) -> Result<(), Error> {
        self.filled += items;
        self.add_new(items, |table, hash| table.add(hash, &mut |_bytes| true))
    }

    /// Adds the sample's part of a steady stream for `windows` windows: `items` new items in each window, in `slices`
    /// slices. The table remembers a window and one more slice.
    pub(crate) fn stream(&mut self, items: u64, slices: u64, windows: u64) -> Result<(), Error> {
        let slots_before = self.table.slots;
        let remembered = slices + 1;
        let added_until = |slice: u64| (u128::from(items) * u128::from(slice) / u128::from(slices)) as u64;
        let last = windows * slices;
        for slice in 1..=last {
            let items = added_until(slice) - added_until(slice - 1);
            let forgotten = slice.saturating_sub(remembered);
            let addition =
                SliceAddition { forgotten_before: forgotten, forgotten_after: forgotten, slice, refresh: false };
            self.add_new(items, |table, hash| {
                Ok(table.add_to_slice(hash, addition, &mut |_bytes| true)? == AddOutcome::New)
            })?;
        }
        let slots = self.table.slots - slots_before;
        let items = added_until(last) - added_until(last - remembered);
        self.remembered = (self.part_of(items) as f64 / slots.max(1) as f64).min(1.0);
        Ok(())
    }

    /// Calls `add` with one hash after another, until the sample's part of `items` was new.
    fn add_new(&mut self, items: u64, add: impl Fn(&mut Table, Hash) -> Result<bool, Error>) -> Result<(), Error> {
        let mut missing = self.part_of(items);
        let limit = self.drawn + MAX_ATTEMPTS * missing;
        while missing > 0 && self.drawn < limit {
            let hash = self.next_hash();
            missing -= u64::from(add(&mut self.table, hash)?);
        }
        Ok(())
    }

    /// Returns the sample's part of a number of items.
    fn part_of(&self, items: u64) -> u64 {
        libm::round(items as f64 / self.scale) as u64
    }

    /// Returns the hash of another item of the sample.
    fn next_hash(&mut self) -> Hash {
        self.drawn += 1;
        let Hash { first, second } = Hash::xxh3(&self.drawn.to_le_bytes(), 0);
        let first = first >> self.bits;
        let hash = match self.table.addressing {
            // The table scales hashes to its size, so the hashes of the sample's paths are larger than the paths.
            Addressing::Fixed(AddressSpace { scale, .. }) if self.bits > 0 && scale > 0 => {
                Hash { first: ((u128::from(first) << 64) / u128::from(scale)) as u64, second }
            }
            _ => Hash { first, second },
        };
        debug_assert_eq!(bits_of(self.table.path(hash), 0, self.bits), 0, "a path of another part");
        hash
    }

    /// Returns the estimated number of bytes that the whole table requests from the allocator, without the table
    /// itself.
    pub(crate) fn allocated(&self) -> u64 {
        (self.table.allocated() as f64 * self.scale) as u64
    }

    /// Returns the estimated false-positive rate of the whole table.
    ///
    /// A sample of a table that grows begins with more quotients than a new table. Its oldest fingerprints, which match
    /// the most, are missing.
    pub(crate) fn false_positive_rate(&self) -> f64 {
        if let (Addressing::Growing(lengths), true) = (self.table.addressing, self.filled > 0) {
            return lengths.error_rate_at(self.filled).min(1.0);
        }
        (self.table.false_positive_rate() * self.scale * self.remembered).min(1.0)
    }
}
