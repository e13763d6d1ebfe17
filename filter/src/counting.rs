//! The counting filter: a [quotient table](crate::table) that counts how often each item was added.
//!
//! One that grows keeps its error rate at any size. One that does not is full when it holds as many items as it was
//! created for, and rejects new ones; further occurrences of items that are there are always taken.

use crate::error::{Error, Interrupted};
use crate::hash::{GOLDEN, Hash, Hasher};
use crate::layer::{ItemCount, LayerInfo, MergeOp};
use crate::memory::Admit;
use crate::spec::{Growth, OwnSpec};
use crate::table::{Addressing, Multiplicity, Table};

/// What to do with an item that a counting filter holds already. Such an item does not change other filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDuplicate {
    /// Another occurrence is counted.
    Count,
    /// Nothing.
    Skip,
}

/// A counting filter.
pub struct CountingFilter {
    spec: OwnSpec,
    capacity: u64,
    table: Table,
    is_estimate: bool,
    /// The sum of hashes of all additions and removals ever: it is the same only where the same was written, in
    /// whatever order.
    history: u64,
}

impl CountingFilter {
    /// Creates an empty filter. It takes memory when items are added.
    pub fn new(spec: OwnSpec, capacity: u64) -> Result<CountingFilter, Error> {
        let rate = spec.error_rate.get();
        let table = match spec.growth {
            Growth::Fixed => Table::fixed(capacity, rate, Multiplicity::Multiset),
            Growth::By(_) => Table::growing(rate, Multiplicity::Multiset),
        };
        Ok(CountingFilter::from_parts(spec, capacity, table?))
    }

    /// Makes a filter of a table that is there already.
    pub fn from_parts(spec: OwnSpec, capacity: u64, table: Table) -> CountingFilter {
        CountingFilter { spec, capacity, table, is_estimate: false, history: 0 }
    }

    /// Returns an empty filter that can be merged with this one.
    pub fn empty_copy(&self) -> Result<CountingFilter, Error> {
        let table = Table::new(self.table.addressing(), Multiplicity::Multiset)?;
        Ok(CountingFilter::from_parts(self.spec, self.capacity, table))
    }

    /// Returns a copy that shares nothing.
    pub fn try_clone(&self) -> Result<CountingFilter, Error> {
        Ok(CountingFilter { table: self.table.try_clone()?, ..*self })
    }

    /// Returns how the filter is created and hashed.
    pub fn spec(&self) -> &OwnSpec {
        &self.spec
    }

    /// Returns the table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// As [`table`](Self::table), to change it.
    pub fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }

    /// Returns how the filter hashes its items.
    ///
    /// Not inlined, like all counting-only code, to keep it out of the plain filters' hot path.
    #[inline(never)]
    pub fn hasher(&self) -> Hasher {
        Hasher::Xxh3 { seed: self.spec.seed }
    }

    /// Returns the number of items that the filter was created for.
    pub fn reserved(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of items that fit before the filter grows any further, or is full.
    pub fn capacity(&self) -> u64 {
        match self.spec.growth {
            Growth::Fixed => self.capacity,
            Growth::By(_) => self.capacity.max(self.table.quotients()).max(self.items()),
        }
    }

    /// Returns the number of items that were new when they were added, and were not removed since.
    pub fn items(&self) -> u64 {
        self.table.items()
    }

    /// Returns the item count as it is stored.
    pub fn item_count(&self) -> ItemCount {
        ItemCount::new(self.items(), self.is_estimate)
    }

    /// Returns the sum of hashes of all that was ever written.
    pub fn history(&self) -> u64 {
        self.history
    }

    /// Restores what was counted of a stored filter.
    pub fn set_counts(&mut self, items: ItemCount, occurrences: u64, history: u64) {
        self.table.set_counts(items.items(), occurrences);
        self.is_estimate = items.is_estimate();
        self.history = history;
    }

    /// Returns the bytes requested of the allocator.
    pub fn allocated(&self) -> usize {
        size_of::<CountingFilter>() + self.table.allocated()
    }

    /// Returns the share of slots that are filled: above 1 where many items are alike.
    pub fn fill(&self) -> f64 {
        (self.table.slots() as f64 / self.table.quotients() as f64).min(1.0)
    }

    /// Returns the false-positive rate of what is in the filter now.
    pub fn false_positive_rate(&self) -> f64 {
        self.table.false_positive_rate()
    }

    /// Returns what is known of the table.
    pub fn info(&self) -> LayerInfo {
        let bytes = self.table.allocated() as u64;
        LayerInfo {
            bytes,
            bits: 8 * bytes,
            hash_bits: 128,
            probes: 1,
            blocks_per_item: None,
            capacity: self.capacity(),
            items: self.items(),
            error_rate: self.spec.error_rate.get(),
        }
    }

    /// See [`Table::prefetch`].
    #[inline(never)]
    pub fn prefetch(&self, hashes: &[Hash]) {
        self.table.prefetch(hashes);
    }

    /// Returns true if the item may be in the filter.
    #[inline(never)]
    pub fn contains(&self, hash: Hash) -> bool {
        self.table.contains(hash)
    }

    /// See [`Filter::contains_hashes`](crate::Filter::contains_hashes).
    #[inline(never)]
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool]) {
        found.fill(false);
        self.table.find(hashes, found);
    }

    /// Returns how often the item was added and not removed: never less than that, up to `2^48`.
    #[inline(never)]
    pub fn count(&self, hash: Hash) -> u64 {
        self.table.count(hash)
    }

    /// Adds an occurrence of each item in order; `new[i]` tells whether the item was new.
    #[inline(never)]
    pub fn insert_all(
        &mut self,
        hashes: &[Hash],
        new: &mut [bool],
        on_duplicate: OnDuplicate,
        admit: Admit<'_>,
    ) -> Result<(), Interrupted> {
        for (handled, (&hash, new)) in hashes.iter().zip(new).enumerate() {
            *new = false;
            let is_full = self.spec.growth == Growth::Fixed && self.items() >= self.capacity;
            if (on_duplicate == OnDuplicate::Skip || is_full) && self.table.contains(hash) {
                if on_duplicate == OnDuplicate::Skip {
                    continue;
                }
            } else if is_full {
                return Err(Interrupted { handled, error: Error::Full });
            }
            *new = self.table.add(hash, admit).map_err(|error| Interrupted { handled, error })?;
            self.history = self.history.wrapping_add(hash.second);
        }
        Ok(())
    }

    /// Removes an occurrence of an item. Returns false if there is none.
    #[inline(never)]
    pub fn remove(&mut self, hash: Hash) -> bool {
        let removed = self.table.remove(hash);
        if removed {
            self.history = self.history.wrapping_add(hash.first);
        }
        removed
    }

    /// Returns true if both filters hold the same entries for the same items.
    pub fn is_addressed_like(&self, other: &CountingFilter) -> bool {
        self.table.addressing() == other.table.addressing()
    }

    /// Returns true if the filter can be intersected: fingerprints of different lengths cannot be.
    pub fn is_fixed(&self) -> bool {
        matches!(self.table.addressing(), Addressing::Fixed(_))
    }

    /// Returns a new filter: the merge of this one and `others`, which are addressed alike; and whether it differs from
    /// this one. `admit` gets the bytes that it will take, as they become known.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] or [`Error::CannotGrow`].
    pub fn merged(
        &self,
        others: &[&CountingFilter],
        op: MergeOp,
        admit: Admit<'_>,
    ) -> Result<(CountingFilter, bool), Error> {
        let operands = || std::iter::once(self).chain(others.iter().copied());
        let size = |table: &Table| (table.slots(), table.occurrences());
        let (mut table, history) = match op {
            MergeOp::Union => CountingFilter::union(operands(), admit)?,
            MergeOp::Intersection => self.intersection(others, admit)?,
        };
        let is_same = others.is_empty() || op == MergeOp::Intersection && size(&table) == size(&self.table);
        let count = if is_same {
            self.item_count()
        } else {
            ItemCount::merged(op, operands().map(CountingFilter::item_count), table.entries() as f64)
        };
        table.set_counts(count.items(), table.occurrences());
        let history = if is_same { self.history } else { history };
        let merged = CountingFilter { table, is_estimate: count.is_estimate(), history, ..*self };
        let state = |filter: &CountingFilter| (size(&filter.table), filter.item_count(), filter.history);
        let changed = state(&merged) != state(self);
        Ok((merged, changed))
    }

    /// Returns a table with the entries of all filters, at least one, and the sum of their histories.
    fn union<'a>(
        filters: impl Iterator<Item = &'a CountingFilter> + Clone,
        admit: Admit<'_>,
    ) -> Result<(Table, u64), Error> {
        // The smaller ones go into the largest.
        let largest = filters.clone().enumerate().max_by_key(|(_, filter)| filter.table.slots());
        let (largest, filter) = largest.ok_or(Error::OutOfMemory)?;
        if !admit(filter.allocated() as u64) {
            return Err(Error::OutOfMemory);
        }
        let (mut table, mut history) = (filter.table.try_clone()?, filter.history);
        for (_, filter) in filters.enumerate().filter(|(number, _)| *number != largest) {
            table.union_with(&filter.table, admit)?;
            history = history.wrapping_add(filter.history);
        }
        Ok((table, history))
    }

    /// Returns a table with the entries that are in all filters, and a history that stands for them.
    fn intersection(&self, others: &[&CountingFilter], admit: Admit<'_>) -> Result<(Table, u64), Error> {
        if !admit(self.allocated() as u64) {
            return Err(Error::OutOfMemory);
        }
        let (mut table, mut history) = (None, self.history);
        for filter in others {
            table = Some(table.as_ref().unwrap_or(&self.table).intersection(&filter.table)?);
            history = history.wrapping_add(filter.history).wrapping_add(GOLDEN);
        }
        Ok((table.map_or_else(|| self.table.try_clone(), Ok)?, history))
    }
}
