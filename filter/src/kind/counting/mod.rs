//! The counting filter: a [quotient table](crate::table) that counts how often each item was added.
//!
//! A growing filter keeps its error rate at any size. A fixed filter is full at its capacity, and then rejects new
//! items. It still accepts further occurrences of present items, as far as memory allows.

mod conversion;
pub(crate) mod figures;

use super::{AnyFilter, Contained, CreateParams, Insertion, KindFilter};
use crate::array::{Mover, Stop};
use crate::error::{Error, Interrupted, MergeError};
use crate::hash::{GOLDEN, Hash, Hasher};
use crate::item_count::{ItemCount, MergeOp};
use crate::layer::LayerInfo;
use crate::memory::{Admit, request, try_vec};
use crate::prediction::Prediction;
use crate::spec::{Growth, OnDuplicate, OwnSpec, Parameters};
use crate::table::{Payload, Position, Sample, Table};

/// A counting filter. `F` is what it stores besides its items.
pub struct CountingFilter<F = ()> {
    pub(crate) spec: OwnSpec,
    pub(crate) capacity: u64,
    pub(crate) table: Table,
    /// The sum of hashes of all additions and removals ever. Two filters have equal sums only if they had the same
    /// writes, in any order.
    pub(crate) history: u64,
    pub(crate) figures: F,
}

/// What a counting filter stores besides its items: nothing, or the [figures](figures::CuckooFigures) of the cuckoo
/// filter that it stands for.
pub trait Figures: Copy + 'static {
    /// The values of the parameters that only this kind has.
    type Params;

    /// Returns the parameters, the capacity and the figures of a new filter.
    fn new(params: &CreateParams, own: Self::Params) -> Result<(OwnSpec, u64, Self), Error>;
    /// Returns the figures of a filter without items.
    fn cleared(self) -> Self;
    fn count_removal(&mut self);
    /// Returns the hash function of the filter, given its seed.
    fn hasher(&self, seed: u64) -> Hasher<'static>;
}

impl<F: Figures> CountingFilter<F> {
    fn admitted(self, admit: Admit<'_>) -> Result<CountingFilter<F>, Error> {
        request(self.allocated() as u64, admit)?;
        Ok(self)
    }

    fn new_table(spec: &OwnSpec, capacity: u64) -> Result<Table, Error> {
        let rate = spec.error_rate.get();
        match spec.growth {
            Growth::Fixed => Table::fixed(capacity, rate, Payload::Count),
            Growth::By(_) => Table::growing(rate, Payload::Count),
        }
    }

    /// Returns the table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the bytes requested from the allocator.
    fn allocated(&self) -> usize {
        size_of::<CountingFilter<F>>() + self.table.allocated()
    }

    /// Returns numbers that change with every write.
    fn state(&self) -> (u64, u64, ItemCount, u64) {
        (self.table.slots(), self.table.occurrences(), self.table.item_count(), self.history)
    }

    /// Returns a table with the entries that are in all filters, and its history.
    fn intersection(&self, others: &[(&CountingFilter<F>, u64)], admit: Admit<'_>) -> Result<(Table, u64), Error> {
        request(self.allocated() as u64, admit)?;
        let mut common = None;
        let mut history = self.history;
        for (filter, _) in others {
            common = Some(common.as_ref().unwrap_or(&self.table).intersection(&filter.table)?);
            history = history.wrapping_add(filter.history).wrapping_add(GOLDEN);
        }
        let is_same =
            |common: &Table| (common.slots(), common.occurrences()) == (self.table.slots(), self.table.occurrences());
        match common.filter(|common| !is_same(common)) {
            Some(mut table) => {
                let operands = std::iter::once(self).chain(others.iter().map(|(filter, _)| *filter));
                let counts = operands.map(|filter| filter.table.item_count());
                let count = ItemCount::merged(MergeOp::Intersection, counts, table.entries() as f64);
                table.set_counts(count, table.occurrences());
                Ok((table, history))
            }
            None => Ok((self.table.try_clone()?, self.history)),
        }
    }
}

impl<F: Figures> KindFilter for CountingFilter<F>
where
    CountingFilter<F>: Contained,
{
    const COUNTS: bool = true;

    type Params = F::Params;

    /// The filter allocates memory when items are added.
    fn create(params: &CreateParams, own: F::Params, admit: Admit<'_>) -> Result<CountingFilter<F>, Error> {
        let (spec, capacity, figures) = F::new(params, own)?;
        let table = CountingFilter::<F>::new_table(&spec, capacity)?;
        CountingFilter { spec, capacity, table, history: 0, figures }.admitted(admit)
    }

    fn predict(params: &CreateParams, own: F::Params, items: u64) -> Result<Prediction, Error> {
        let (spec, capacity, _) = F::new(params, own)?;
        if spec.growth == Growth::Fixed && items > capacity {
            return Err(Error::Full);
        }
        let mut table = Sample::new(CountingFilter::<F>::new_table(&spec, capacity)?, items)?;
        table.fill(items)?;
        let memory = table.allocated().saturating_add((size_of::<AnyFilter>() + size_of::<CountingFilter<F>>()) as u64);
        Ok(Prediction::of_fingerprints(memory, table.false_positive_rate()))
    }

    fn parameters(&self) -> Parameters {
        self.spec.parameters(self.capacity, None)
    }

    /// Not inlined, like all counting-only code, to keep it out of the plain filters' hot path.
    #[inline(never)]
    fn hasher(&self) -> Hasher<'_> {
        self.figures.hasher(self.spec.seed)
    }

    fn empty_copy(&self, admit: Admit<'_>) -> Result<CountingFilter<F>, Error> {
        let table = Table::new(self.table.addressing(), Payload::Count)?;
        CountingFilter { table, history: 0, figures: self.figures.cleared(), ..*self }.admitted(admit)
    }

    fn try_clone(&self) -> Result<CountingFilter<F>, Error> {
        Ok(CountingFilter { table: self.table.try_clone()?, ..*self })
    }

    fn capacity(&self) -> u64 {
        match self.spec.growth {
            Growth::Fixed => self.capacity,
            Growth::By(_) => self.capacity.max(self.table.quotients()),
        }
    }

    fn items(&self) -> u64 {
        self.table.items()
    }

    fn is_estimate(&self) -> Option<bool> {
        Some(self.table.item_count().is_estimate())
    }

    fn memory_usage(&self) -> usize {
        size_of::<AnyFilter>() + self.allocated()
    }

    fn num_allocations(&self) -> usize {
        self.table.segments() as usize
    }

    fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_> {
        // A union of growing filters may have more items than quotients.
        let items = if self.spec.growth == Growth::Fixed { 0 } else { self.items() };
        let layer = LayerInfo::of_table(&self.table, self.capacity().max(items), self.spec.error_rate.get());
        Box::new(std::iter::once(layer))
    }

    fn fill(&self) -> f64 {
        self.table.fill()
    }

    fn false_positive_rate_at(&self, _now: u64) -> f64 {
        self.table.false_positive_rate()
    }

    #[inline(never)]
    fn prefetch(&self, hashes: &[Hash]) {
        self.table.prefetch(hashes);
    }

    fn look_ahead(&self, hash: Hash) {
        self.table.look_ahead(hash);
    }

    #[inline(never)]
    fn contains_at(&self, hash: Hash, _now: u64) -> bool {
        self.table.contains(hash)
    }

    #[inline(never)]
    fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], _now: u64) {
        found.fill(false);
        self.table.find_more(hashes, found);
    }

    #[inline(never)]
    fn insert_hashes(&mut self, items: Insertion<'_>, admit: Admit<'_>) -> Result<(), Interrupted> {
        let Insertion { hashes, new, options, .. } = items;
        let skips_duplicates = options.on_duplicate == OnDuplicate::Skip;
        for (handled, (&hash, new)) in hashes.iter().zip(new).enumerate() {
            *new = false;
            self.table.prefetch_after(hashes, handled);
            let is_full = self.spec.growth == Growth::Fixed && self.items() >= self.capacity;
            if (skips_duplicates || is_full) && self.table.contains(hash) {
                if skips_duplicates {
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

    #[inline(never)]
    fn count_hashes(&self, hashes: &[Hash], counts: &mut [u64]) -> Result<(), Error> {
        self.table.count_all(hashes, counts);
        Ok(())
    }

    #[inline(never)]
    fn remove_hashes(&mut self, hashes: &[Hash], removed: &mut [bool]) -> Result<(), Error> {
        for (index, (removed, &hash)) in removed.iter_mut().zip(hashes).enumerate() {
            self.table.prefetch_after(hashes, index);
            *removed = self.table.remove(hash);
            if *removed {
                self.history = self.history.wrapping_add(hash.first);
                self.figures.count_removal();
            }
        }
        Ok(())
    }

    fn is_shaped_like(&self, other: &CountingFilter<F>) -> bool {
        self.table.addressing() == other.table.addressing()
    }

    /// Returns an error if the filter may grow: then, its fingerprints may differ in length from those of others.
    fn check_intersection(&self) -> Result<(), MergeError> {
        if self.spec.growth == Growth::Fixed { Ok(()) } else { Err(MergeError::IntersectedGrowing) }
    }

    fn merged(sources: &[(&Self, u64)], op: MergeOp, admit: Admit<'_>) -> Result<CountingFilter<F>, Error> {
        let (&(first, _), others) = sources.split_first().ok_or(Error::OutOfMemory)?;
        let (table, history) = match op {
            MergeOp::Union => {
                // The union asks for the table.
                request((size_of::<CountingFilter<F>>() - size_of::<Table>()) as u64, admit)?;
                let tables = sources.iter().map(|&(filter, times)| (filter.table(), times));
                let histories = sources.iter().map(|(filter, times)| filter.history.wrapping_mul(*times));
                (Table::union_of(tables, admit)?, histories.fold(0, u64::wrapping_add))
            }
            MergeOp::Intersection => first.intersection(others, admit)?,
        };
        Ok(CountingFilter { table, history, ..*first })
    }

    fn merge(&mut self, sources: &[(&CountingFilter<F>, u64)], op: MergeOp, admit: Admit<'_>) -> Result<bool, Error> {
        let mut all = try_vec(1 + sources.len())?;
        all.push((&*self, 1));
        all.extend_from_slice(sources);
        let merged = CountingFilter::merged(&all, op, admit)?;
        let changed = merged.state() != self.state();
        *self = merged;
        Ok(changed)
    }

    fn table_bytes(&self) -> usize {
        self.allocated()
    }

    fn relocate(&mut self, start: Position, mover: Mover<'_>, should_stop: Stop<'_>) -> Option<Position> {
        self.table.relocate(start, mover, should_stop)
    }
}
