//! The native filter: [blocks of bits](crate::kind::native::blocked_layer) for the items that it was created for, and a
//! [quotient table](crate::table) for all others.
//!
//! Blocks have the fastest look-ups, but their size must be chosen for a number of items. The table takes all further
//! items, any number of them, and grows in small steps. Together they keep the error rate: the table uses the part of
//! it that the blocks leave.
//!
//! A filter that grows and was created for few items has fingerprints instead of blocks. When it grows, these move to the
//! table.

pub(crate) mod blocked_layer;
mod lines;

use std::cmp::Reverse;

use super::{AnyFilter, CreateParams, Insertion, KindFilter};
use crate::array::{Mover, Stop, try_box};
use crate::error::{Error, Interrupted, MergeError};
use crate::hash::{Hash, Hasher};
use crate::item_count::MergeOp;
use crate::layer::LayerInfo;
use crate::memory::{Admit, request, try_vec};
use crate::prediction::Prediction;
use crate::sizing::either;
use crate::spec::{Growth, OwnSpec, Parameters};
use crate::table::{Addressing, Payload, Position, Sample, Table};
use blocked_layer::{BlockedLayer, BlockedSpec};

/// A filter of bits that may grow.
pub struct NativeFilter {
    pub(crate) layer: BlockedLayer,
    pub(crate) spec: OwnSpec,
    /// The items that did not fit into the blocks, or all if these would have been fingerprints. Boxed, so that filters
    /// that have not grown are small.
    pub(crate) table: Option<Box<Table>>,
}

impl NativeFilter {
    fn of_shape(spec: OwnSpec, layer: BlockedSpec, admit: Admit<'_>) -> Result<NativeFilter, Error> {
        request(layer.shape.bytes(), admit)?;
        Ok(NativeFilter { layer: BlockedLayer::new(layer)?, spec, table: None })
    }

    /// Returns the blocks.
    #[inline]
    pub fn layer(&self) -> &BlockedLayer {
        &self.layer
    }

    /// Returns the table, if the filter has grown.
    #[inline]
    pub fn table(&self) -> Option<&Table> {
        self.table.as_deref()
    }

    /// Returns the number of items that the blocks were created for, or the larger number that a union put into them.
    fn layer_capacity(&self) -> u64 {
        self.layer.spec().capacity.max(self.layer.items())
    }

    /// Inserts items in order, and sets `new[i]` to whether item `i` was new.
    ///
    /// Not inlined: with all kinds in one function, more registers are spilled. It has fewer parameters than
    /// `insert_hashes`, which saves instructions.
    #[inline(never)]
    fn insert_all(&mut self, hashes: &[Hash], new: &mut [bool], admit: Admit<'_>) -> Result<(), Interrupted> {
        if let (&[hash], [new, ..], None) = (hashes, &mut *new, &self.table)
            && let Some(is_new) = self.layer.insert_one(hash)
        {
            *new = is_new;
            return Ok(());
        }
        self.insert_many(hashes, new, admit)
    }

    /// Inserts items as [`insert_all`](Self::insert_all) does. Not inlined: it would make one item save all registers.
    #[inline(never)]
    fn insert_many(&mut self, hashes: &[Hash], new: &mut [bool], admit: Admit<'_>) -> Result<(), Interrupted> {
        let handled = if self.table.is_none() { self.layer.insert_while_room(hashes, new) } else { 0 };
        if handled == hashes.len() { Ok(()) } else { self.insert_overflow(handled, hashes, new, admit) }
    }

    /// Inserts the items from `handled` on, which do not fit into the blocks, as [`insert_all`](Self::insert_all) does.
    ///
    /// Not inlined, to keep it out of the hot path of filters that have not grown.
    #[inline(never)]
    fn insert_overflow(
        &mut self,
        mut handled: usize,
        hashes: &[Hash],
        new: &mut [bool],
        admit: Admit<'_>,
    ) -> Result<(), Interrupted> {
        let has_blocks = !self.layer.is_of_fingerprints();
        for (&hash, new) in hashes[handled..].iter().zip(&mut new[handled..]) {
            if let Some(table) = &self.table {
                table.prefetch_after(hashes, handled);
            }
            *new = !(has_blocks && self.layer.contains(hash))
                && self.add_to_table(hash, admit).map_err(|error| Interrupted { handled, error })?;
            handled += 1;
        }
        Ok(())
    }

    /// Adds an item to the table. Creates the table for the first item.
    #[inline]
    fn add_to_table(&mut self, hash: Hash, admit: Admit<'_>) -> Result<bool, Error> {
        if let Some(table) = &mut self.table {
            return table.add(hash, admit);
        }
        let mut table = self.new_table(None, admit)?;
        let is_new = table.add(hash, admit)?;
        self.table = Some(table);
        if self.has_moved() {
            self.layer.clear();
        }
        Ok(is_new)
    }

    /// Returns a table with the items of the layer, if these are fingerprints.
    #[cold]
    fn new_table(&self, like: Option<Addressing>, admit: Admit<'_>) -> Result<Box<Table>, Error> {
        if self.spec.growth == Growth::Fixed {
            return Err(Error::Full);
        }
        let mut table = match like {
            None => table_after(&self.spec, &self.layer.spec())?,
            Some(addressing) => Table::new(addressing, Payload::Nothing)?,
        };
        request((size_of::<Table>() + table.allocated()) as u64, admit)?;
        if self.layer.is_of_fingerprints() {
            let mut prefixes = try_vec(self.layer.items() as usize)?;
            prefixes.extend(self.layer.prefixes());
            // At a lower level, fingerprints might be cut off.
            table.split_for_entries(self.layer.items(), &mut *admit)?;
            table.add_prefixes(&mut prefixes, self.layer.shape().prefix_bits(), admit)?;
            table.set_counts(self.layer.count(), self.layer.items());
        }
        try_box(table)
    }

    /// Returns true if the layer had fingerprints, which are in the table now.
    fn has_moved(&self) -> bool {
        self.table.is_some() && self.layer.is_of_fingerprints()
    }

    /// Returns true if the filter can be folded to the size of `other`, and has no more items than this has room for.
    /// So a merge folds no filter further than [`fold`](KindFilter::fold) does: it keeps its error rate.
    fn folds_to(&self, other: &NativeFilter) -> bool {
        let BlockedSpec { shape, capacity } = other.layer.spec();
        self.table.is_none() && self.layer.items() <= capacity && self.layer.folds_to(shape)
    }

    /// Returns the parameters of the smallest layer, into which all are merged.
    fn merged_layer<'a>(filters: impl Iterator<Item = &'a NativeFilter>) -> Result<BlockedSpec, Error> {
        let smallest = filters.min_by_key(|filter| filter.size_to_fold());
        smallest.map(|filter| filter.layer.spec()).ok_or(Error::OutOfMemory)
    }

    /// Returns the union of the filters' tables, or `None` if no filter has one. Filters of fingerprints that have not
    /// grown do so first.
    fn merged_table<'a>(
        filters: impl Iterator<Item = &'a NativeFilter> + Clone,
        admit: Admit<'_>,
    ) -> Result<Option<Box<Table>>, Error> {
        let mut moved = try_vec(filters.clone().count())?;
        let tables = filters.clone().filter_map(NativeFilter::table);
        let like = tables.clone().next().map(Table::addressing);
        for filter in filters.filter(|filter| filter.table.is_none() && filter.layer.is_of_fingerprints()) {
            moved.push(filter.new_table(like, &mut *admit)?);
        }
        let tables = tables.map(|table| (table, 1)).chain(moved.iter().map(|table| (&**table, 1)));
        if tables.clone().next().is_none() {
            return Ok(None);
        }
        Table::union_of(tables, admit).and_then(try_box).map(Some)
    }
}

impl KindFilter for NativeFilter {
    const CAN_BE_FOLLOWED: bool = true;

    type Params = (u64,);

    fn create(params: &CreateParams, (seed,): (u64,), admit: Admit<'_>) -> Result<NativeFilter, Error> {
        let (spec, capacity) = (params.own(seed), params.capacity.get());
        NativeFilter::of_shape(spec, BlockedSpec::new(&spec, capacity)?, admit)
    }

    fn predict(params: &CreateParams, (seed,): (u64,), items: u64) -> Result<Prediction, Error> {
        let (spec, capacity) = (params.own(seed), params.capacity.get());
        let layer = BlockedSpec::new(&spec, capacity)?;
        let of_layer = layer.shape.false_positive_rate(items.min(capacity) as f64).min(spec.error_rate.get());
        let of_blocks = Some(layer.shape).filter(|shape| !shape.is_of_fingerprints());
        let mut prediction = Prediction {
            memory: layer.shape.bytes().saturating_add(size_of::<AnyFilter>() as u64),
            false_positive_rate: of_layer,
            is_estimate: false,
            probes: of_blocks.map_or(1, |shape| shape.probes.into()),
            shape: of_blocks,
        };
        if items <= capacity {
            return Ok(prediction);
        }
        if spec.growth == Growth::Fixed {
            return Err(Error::Full);
        }
        let given = given_by(&layer);
        let of_moved = if of_blocks.is_some() { 0 } else { layer.shape.bytes() };
        let mut table = Sample::new(table_after(&spec, &layer)?, items - capacity + given)?;
        table.fill(given)?;
        let of_given = table.false_positive_rate();
        table.fill(items - capacity)?;
        let of_table = table.false_positive_rate() - of_given;
        let memory = table.allocated().saturating_add(size_of::<Table>() as u64);
        prediction.memory = (prediction.memory - of_moved).saturating_add(memory);
        prediction.false_positive_rate = either(of_layer, of_table);
        prediction.is_estimate = true;
        Ok(prediction)
    }

    fn parameters(&self) -> Parameters {
        self.spec.parameters(self.layer.spec().capacity, None)
    }

    #[inline]
    fn hasher(&self) -> Hasher<'_> {
        Hasher::Xxh3 { seed: self.spec.seed }
    }

    fn empty_copy(&self, admit: Admit<'_>) -> Result<NativeFilter, Error> {
        NativeFilter::of_shape(self.spec, self.layer.spec(), admit)
    }

    fn try_clone(&self) -> Result<NativeFilter, Error> {
        let table = self.table.as_ref().map(|table| table.try_clone().and_then(try_box)).transpose()?;
        Ok(NativeFilter { layer: self.layer.try_clone()?, spec: self.spec, table })
    }

    fn capacity(&self) -> u64 {
        let of_layer = if self.has_moved() { 0 } else { self.layer_capacity() };
        of_layer.saturating_add(self.table().map_or(0, Table::quotients))
    }

    fn items(&self) -> u64 {
        self.layer.items() + self.table().map_or(0, Table::items)
    }

    fn is_estimate(&self) -> Option<bool> {
        let of_table = self.table().is_some_and(|table| table.item_count().is_estimate());
        Some(self.layer.count().is_estimate() || of_table)
    }

    /// Counts no padding, so that equal filters have equal sizes under every allocator.
    #[inline]
    fn memory_usage(&self) -> usize {
        size_of::<AnyFilter>() + self.layer.bytes().len() + self.table_bytes()
    }

    fn num_allocations(&self) -> usize {
        1 + self.table().map_or(0, |table| table.segments() as usize)
    }

    fn grows_in_small_steps(&self) -> bool {
        self.table.is_some()
    }

    fn num_layers(&self) -> usize {
        1 + usize::from(self.table.is_some() && !self.has_moved())
    }

    fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_> {
        let layer = LayerInfo { capacity: self.layer_capacity(), ..self.layer.info(&self.spec) };
        let table = self
            .table()
            .map(|table| LayerInfo::of_table(table, capacity_of(table), rate_of_table(&self.spec, &self.layer.spec())));
        Box::new((!self.has_moved()).then_some(layer).into_iter().chain(table))
    }

    fn fill(&self) -> f64 {
        self.table().map_or_else(|| self.layer.fill(), Table::fill)
    }

    fn false_positive_rate_at(&self, _now: u64) -> f64 {
        let of_layer = self.layer.false_positive_rate();
        let of_table = self.table().map_or(0.0, Table::false_positive_rate);
        either(of_layer, of_table)
    }

    #[inline]
    fn prefetch(&self, hashes: &[Hash]) {
        self.layer.prefetch(hashes);
        if let Some(table) = &self.table {
            table.prefetch(hashes);
        }
    }

    #[inline]
    fn look_ahead(&self, hash: Hash) {
        self.layer.prefetch(&[hash]);
        if let Some(table) = &self.table {
            table.look_ahead(hash);
        }
    }

    #[inline]
    fn contains_at(&self, hash: Hash, _now: u64) -> bool {
        self.layer.contains(hash) || self.table.as_ref().is_some_and(|table| table.contains(hash))
    }

    #[inline]
    fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], _now: u64) {
        self.layer.prefetch(hashes);
        self.layer.contains_hashes(hashes, found);
        if let Some(table) = &self.table {
            table.find_more(hashes, found);
        }
    }

    #[inline]
    fn insert_hashes(&mut self, items: Insertion<'_>, admit: Admit<'_>) -> Result<(), Interrupted> {
        let Insertion { hashes, new, .. } = items;
        self.insert_all(hashes, new, admit)
    }

    fn size_to_fold(&self) -> (u64, Reverse<u64>) {
        let BlockedSpec { shape, capacity } = self.layer.spec();
        (shape.bytes(), Reverse(capacity))
    }

    fn is_sized_like(&self, other: &NativeFilter) -> bool {
        self.layer.spec().capacity == other.layer.spec().capacity || other.folds_to(self)
    }

    fn is_shaped_like(&self, other: &NativeFilter) -> bool {
        let mut tables = self.table().into_iter().zip(other.table());
        let is_like = self.layer.spec() == other.layer.spec() || other.folds_to(self);
        is_like && tables.all(|(one, other)| one.addressing() == other.addressing())
    }

    /// Returns an error if the filter has grown.
    fn check_intersection(&self) -> Result<(), MergeError> {
        if self.table.is_some() { Err(MergeError::IntersectedLayers) } else { Ok(()) }
    }

    fn merged(sources: &[(&NativeFilter, u64)], op: MergeOp, admit: Admit<'_>) -> Result<NativeFilter, Error> {
        let filters = sources.iter().map(|(source, _)| *source);
        let layers = filters.clone().map(|filter| &filter.layer);
        let (first, _) = sources.first().ok_or(Error::OutOfMemory)?;
        let layer = NativeFilter::merged_layer(filters.clone())?;
        let mut merged = NativeFilter::of_shape(first.spec, layer, &mut *admit)?;
        if !merged.layer.is_of_fingerprints() {
            merged.table = NativeFilter::merged_table(filters, admit)?;
            merged.layer.merge(layers, op, true);
        } else if filters.clone().any(|filter| filter.table.is_some()) || !merged.layer.insert_merged(layers, op) {
            merged.table = NativeFilter::merged_table(filters, admit)?;
            merged.layer.clear();
        }
        Ok(merged)
    }

    fn merge(&mut self, sources: &[(&NativeFilter, u64)], op: MergeOp, admit: Admit<'_>) -> Result<bool, Error> {
        if self.layer.is_of_fingerprints() {
            let mut all = try_vec(1 + sources.len())?;
            all.push((&*self, 1));
            all.extend_from_slice(sources);
            let merged = NativeFilter::merged(&all, op, admit)?;
            let changed = match merged.table().zip(self.table()) {
                Some((merged, own)) => !merged.holds_the_same(own)?,
                None => merged.table.is_some() || merged.items() != self.items(),
            };
            if changed {
                *self = merged;
            }
            return Ok(changed);
        }
        let all = std::iter::once(&*self).chain(sources.iter().map(|(source, _)| *source));
        let layer = NativeFilter::merged_layer(all.clone())?;
        let mut new_table = None;
        if sources.iter().any(|(source, _)| source.table.is_some()) {
            let merged_table = NativeFilter::merged_table(all, admit)?;
            let is_same = match merged_table.as_deref().zip(self.table()) {
                Some((merged_table, own)) => merged_table.holds_the_same(own)?,
                None => false,
            };
            new_table = merged_table.filter(|_| !is_same);
        }
        // Nothing fails after the fold.
        let is_folded = layer != self.layer.spec();
        if is_folded {
            self.layer.fold(layer)?;
        }
        let changed = is_folded || new_table.is_some();
        if new_table.is_some() {
            self.table = new_table;
        }
        let layers = sources.iter().map(|(source, _)| &source.layer);
        Ok(self.layer.merge(layers, op, false) || changed)
    }

    fn count_known(&mut self) {
        match &mut self.table {
            Some(table) => table.count_addition(true),
            None => self.layer.count_known(),
        }
    }

    /// Does nothing if the filter has grown: then its blocks are full.
    fn fold(&mut self, capacity: u64) -> Result<u64, Error> {
        let spec = self.layer.spec();
        let folded = match self.table {
            None => spec.folded_for(&self.spec, capacity.max(self.layer.items())),
            Some(_) => spec,
        };
        if folded != spec {
            self.layer.fold(folded)?;
        }
        Ok(spec.shape.blocks / folded.shape.blocks)
    }

    #[inline]
    fn table_bytes(&self) -> usize {
        self.table().map_or(0, |table| size_of::<Table>() + table.allocated())
    }

    /// Moves the blocks first, and then the table.
    fn relocate(&mut self, start: Position, mover: Mover<'_>, should_stop: Stop<'_>) -> Option<Position> {
        if start == 0 {
            self.layer.relocate(mover);
        }
        let table = self.table.as_mut()?;
        if start == 0 {
            mover.move_box(table);
        }
        table.relocate(start, mover, should_stop)
    }
}

/// Returns the part of the error rate that the blocks leave for the table: at least a quarter of it.
fn rate_of_table(spec: &OwnSpec, layer: &BlockedSpec) -> f64 {
    spec.error_rate.get() - layer.full_rate(spec)
}

/// Returns the number of items that move from a full layer to the table.
fn given_by(layer: &BlockedSpec) -> u64 {
    if layer.shape.is_of_fingerprints() { layer.capacity } else { 0 }
}

/// Returns an empty table for what comes after a layer.
fn table_after(spec: &OwnSpec, layer: &BlockedSpec) -> Result<Table, Error> {
    Table::only_growing(rate_of_table(spec, layer), given_by(layer))
}

/// Returns the number of items that fit into a table before it grows again.
fn capacity_of(table: &Table) -> u64 {
    table.quotients().max(table.items())
}
