//! The cuckoo filter: RedisBloom's chain of [layers](crate::kind::cuckoo::cuckoo_layer) of fingerprints.
//!
//! Each addition stores another copy of the item's fingerprint, in the newest layer that has room. If none has, a new
//! layer is added. After many removals, the fingerprints of the newest layers move into older ones.

pub(crate) mod cuckoo_layer;

use super::chain::Chain;
use super::{CreateParams, Insertion, KindFilter};
use crate::array::{Bytes, Mover, Stop, WORD};
use crate::error::{Error, Interrupted, MergeError};
use crate::hash::cuckoo::FINGERPRINTS;
use crate::hash::{Hash, Hasher};
use crate::item_count::MAX_ITEMS;
use crate::kind::AnyFilter;
use crate::layer::LayerInfo;
use crate::memory::{Admit, try_collect, try_vec};
use crate::prediction::Prediction;
use crate::spec::{ErrorRate, Growth, OnDuplicate, Parameters};
use crate::table::Position;
pub use cuckoo_layer::MAX_BUCKET_SIZE;
use cuckoo_layer::{CuckooLayer, CuckooLayerSpec, Entry, Vacancies};

/// The maximum expansion: the largest power of two that RedisBloom's headers have room for.
pub const MAX_EXPANSION: u16 = 1 << 15;

/// The part of its slots that a layer fills before the next is added.
const LOAD: f64 = 0.95;

/// The number of slots up to which a layer is added to a filter that has many free slots. Without this limit, an item
/// that is added again and again would double the memory of a filter each time that it has filled its buckets in all
/// layers: in RedisBloom, 91 additions take 8.6 GB.
const MAX_SPARSE_SLOTS: u64 = 1 << 24;

/// The part of the slots that are filled when a layer above the limit is added is at least one in this number.
const MIN_FILL: u64 = 8;

/// The number of slots that a compaction may look at for each removal since the last one. A removal then takes ten
/// microseconds more at most, on average. Full filters need a dozen.
const STEPS_PER_REMOVAL: u64 = 1024;

/// The number of free slots that are passed over in the time of one that is looked at.
const SLOTS_PER_STEP: u64 = 16;

/// The number of slots that each compaction may look at, so that small filters are always compacted.
const FREE_STEPS: u64 = 1 << 16;

/// The parameters that the layers of a cuckoo filter share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuckooSpec {
    /// The number of slots in a bucket.
    pub bucket_size: u16,
    /// The maximum number of fingerprints that move to make room for another.
    pub max_iterations: u16,
    /// The ratio of the sizes of successive layers, a power of two, or 0 if the filter does not grow.
    pub expansion: u16,
}

impl CuckooSpec {
    /// The maximum number of layers.
    pub const MAX_LAYERS: usize = 1024;

    /// Returns the parameters of a new filter. The expansion is rounded up to a power of two.
    ///
    /// # Errors
    ///
    /// [`Error::CannotGrow`] if the expansion is too large.
    pub fn new(growth: Growth, bucket_size: u16, max_iterations: u16) -> Result<CuckooSpec, Error> {
        let power = growth.expansion().map_or(Some(0), u32::checked_next_power_of_two);
        let expansion = power.and_then(|power| power.try_into().ok()).ok_or(Error::CannotGrow)?;
        Ok(CuckooSpec { bucket_size, max_iterations, expansion })
    }

    /// Returns the behaviour of a full filter, with the expansion as it was rounded.
    pub fn growth(&self) -> Growth {
        Growth::of(self.expansion.into())
    }

    /// Returns the first layer of a filter: the smallest power of two of buckets that is not below `capacity /
    /// bucket_size`, rounded down.
    pub fn first(&self, capacity: u64) -> Result<CuckooLayerSpec, Error> {
        let buckets = capacity.checked_div(self.bucket_size.into()).ok_or(Error::OutOfMemory)?;
        let buckets = buckets.checked_next_power_of_two().ok_or(Error::OutOfMemory)?;
        Ok(CuckooLayerSpec { bucket_size: self.bucket_size, buckets })
    }

    /// Returns the layer after this one, or `None` if it would have too many buckets.
    pub fn next(&self, newest: CuckooLayerSpec) -> Option<CuckooLayerSpec> {
        let buckets = newest.buckets.checked_mul(self.expansion.into())?;
        Some(CuckooLayerSpec { buckets, ..newest })
    }

    /// Returns true if a filter can have these parameters.
    pub fn is_sound(&self) -> bool {
        let grows_by_powers = self.expansion == 0 || self.expansion.is_power_of_two();
        grows_by_powers && (1..=MAX_BUCKET_SIZE).contains(&self.bucket_size)
    }

    /// Returns the false-positive rate of a full layer.
    pub fn error_rate(&self) -> ErrorRate {
        ErrorRate::new(self.false_positive_rate(1.0)).unwrap_or(const { ErrorRate::new(0.5).unwrap() })
    }

    /// Returns the false-positive rate of a layer in which this part of the slots is filled. A look-up compares the
    /// slots of two buckets.
    fn false_positive_rate(&self, fill: f64) -> f64 {
        let compared = 2.0 * f64::from(self.bucket_size) * fill;
        -libm::expm1(compared * libm::log1p(-1.0 / FINGERPRINTS as f64))
    }

    /// Takes from `left` the items with which a layer of `slots` slots is filled up to `load`. Returns the logarithm of
    /// the probability that the layer has no false positive.
    fn fill(&self, left: &mut f64, slots: u64, load: f64) -> f64 {
        let slots = slots as f64;
        let in_layer = left.min(load * slots);
        *left -= in_layer;
        libm::log1p(-self.false_positive_rate(in_layer / slots))
    }
}

/// The parameters of a cuckoo filter, and its counts.
#[derive(Clone, Copy)]
pub struct CuckooState {
    /// The parameters that all layers share.
    pub spec: CuckooSpec,
    /// The number of additions, minus the removals.
    pub items: u64,
    /// The number of removals since the last [compaction](CuckooFilter::compact).
    pub removals: u64,
}

/// A chain of layers of fingerprints.
pub type CuckooFilter = Chain<CuckooLayer, CuckooState>;

impl CuckooFilter {
    fn empty(spec: CuckooSpec) -> CuckooFilter {
        Chain::from_layers(CuckooState { spec, items: 0, removals: 0 }, Vec::new())
    }

    /// Returns the parameters that all layers share.
    pub fn spec(&self) -> &CuckooSpec {
        &self.common.spec
    }

    /// Returns the number of removals since the last [compaction](Self::compact).
    pub fn removals(&self) -> u64 {
        self.common.removals
    }

    pub fn first_buckets(&self) -> u64 {
        self.layers.first().map_or(0, |layer| layer.spec().buckets)
    }

    /// Returns the size that RedisBloom reports for the filter.
    pub fn redisbloom_size(&self) -> u64 {
        40 + 16 * self.layers.len() as u64 + self.slots()
    }

    fn slots(&self) -> u64 {
        self.layers.iter().map(|layer| layer.slots().len() as u64).sum()
    }

    fn contains(&self, entry: Entry) -> bool {
        self.layers.iter().rev().any(|layer| layer.contains(entry))
    }

    /// Stores another copy of a fingerprint. Adds a layer if no layer has room for it.
    #[inline]
    fn insert(&mut self, entry: Entry, is_replay: bool, admit: Admit<'_>) -> Result<(), Error> {
        // Only a forged header has so many items. One more would not fit into a file.
        if self.common.items >= MAX_ITEMS {
            return Err(Error::CannotGrow);
        }
        if !self.layers.iter_mut().rev().any(|layer| layer.insert(entry)) {
            self.insert_with_effort(entry, is_replay, admit)?;
        }
        self.common.items += 1;
        Ok(())
    }

    /// Stores a fingerprint for which no layer has a free slot in its buckets.
    #[inline(never)]
    fn insert_with_effort(&mut self, entry: Entry, is_replay: bool, admit: Admit<'_>) -> Result<(), Error> {
        let max_moves = self.common.spec.max_iterations;
        let newest = self.layers.last_mut().ok_or(Error::CannotGrow)?;
        if newest.insert_by_moving(entry, max_moves) {
            return Ok(());
        }
        self.grow(is_replay, admit)?;
        let stored = self.layers.last_mut().is_some_and(|layer| layer.insert(entry));
        debug_assert!(stored, "a new layer has room");
        Ok(())
    }

    /// Adds a layer to a full chain.
    fn grow(&mut self, is_replay: bool, admit: Admit<'_>) -> Result<(), Error> {
        if self.common.spec.expansion == 0 {
            return Err(Error::Full);
        }
        let [first, newest] = [self.layers.first(), self.layers.last()].map(|layer| layer.map(CuckooLayer::spec));
        let next = newest.and_then(|newest| self.common.spec.next(newest)).ok_or(Error::CannotGrow)?;
        let slots = next.checked_slots().ok_or(Error::CannotGrow)?;
        let reserved = first.and_then(|first| first.checked_slots()).unwrap_or(0);
        let is_sparse = self.common.items < self.slots() / MIN_FILL;
        // A master that is RedisBloom has no such limit, and its replicas must not lose items.
        if is_sparse && !is_replay && slots > MAX_SPARSE_SLOTS.max(4 * reserved) {
            return Err(Error::CannotGrow);
        }
        self.append_empty(next, admit)
    }

    fn append_empty(&mut self, spec: CuckooLayerSpec, admit: Admit<'_>) -> Result<(), Error> {
        let slots = spec.checked_slots().ok_or(Error::OutOfMemory)?;
        let bytes = slots.saturating_add(size_of::<CuckooLayer>() as u64);
        self.append(std::iter::once(spec).map(CuckooLayer::new), bytes, CuckooSpec::MAX_LAYERS, admit)
    }

    /// Removes one copy of a fingerprint, the newest. Returns false if there is none.
    fn remove(&mut self, entry: Entry) -> bool {
        if !self.layers.iter_mut().rev().any(|layer| layer.remove(entry)) {
            return false;
        }
        self.common.items = self.common.items.saturating_sub(1);
        self.common.removals = self.common.removals.saturating_add(1).min(MAX_ITEMS);
        if self.common.removals.saturating_mul(10) > self.common.items && self.may_compact() {
            self.compact(false);
        }
        true
    }

    /// Returns true if the removals since the last compaction pay for another one. Otherwise, each removal would
    /// compact a full filter in vain if its forged header counts no items. A filter that is large and nearly empty waits
    /// for more removals, and so does one whose newest layer has many items to try in many slots of older layers.
    fn may_compact(&self) -> bool {
        let Some((newest, older)) = self.layers.split_last() else { return false };
        let budget = self.common.removals.saturating_mul(STEPS_PER_REMOVAL).saturating_add(FREE_STEPS);
        if older.is_empty() {
            return false;
        }
        if self.has_equal_layers() {
            return self.slots() <= budget;
        }
        // Only fingerprints are tried in other layers: free slots are passed over many at a time.
        let slots = newest.slots().len() as u64 / SLOTS_PER_STEP;
        let tries = older.len() as u64 * u64::from(self.common.spec.bucket_size).div_ceil(WORD as u64);
        let filled = || newest.fingerprints(1..=u8::MAX).count() as u64;
        slots <= budget && slots.saturating_add(filled().saturating_mul(tries)) <= budget
    }

    /// Returns true if all layers have the same size.
    fn has_equal_layers(&self) -> bool {
        self.common.spec.expansion <= 1
    }

    /// Moves fingerprints from the newest layers into older ones, and drops the newest layer when it is empty. Stops at
    /// the first layer that does not get empty, unless `is_thorough`.
    pub fn compact(&mut self, is_thorough: bool) {
        // Without memory for them, it takes longer.
        let first = self.layers.first().filter(|_| self.has_equal_layers());
        let mut vacancies = first.and_then(|first| Vacancies::new(first.spec()).ok());
        for index in (1..self.layers.len()).rev() {
            let Some((layer, older)) = self.layers[..=index].split_last_mut() else { return };
            let is_empty = layer.drain_into(older, vacancies.as_mut());
            if is_empty && index + 1 == self.layers.len() {
                self.drop_newest();
            }
            if !is_empty && !is_thorough {
                break;
            }
        }
        self.common.removals = 0;
    }

    /// Drops the newest layer, which is empty. Keeps it if there is no memory for the shorter list of layers.
    fn drop_newest(&mut self) {
        let Ok(mut layers) = try_vec(self.layers.len() - 1) else { return };
        let all = std::mem::take(&mut self.layers);
        let kept = layers.capacity().min(all.len() - 1);
        layers.extend(all.into_iter().take(kept));
        self.layers = layers.into_boxed_slice();
    }
}

impl KindFilter for CuckooFilter {
    const COUNTS: bool = true;
    const UNMERGED: Option<MergeError> = Some(MergeError::MergedCuckoo);

    type Params = (CuckooSpec,);

    fn create(params: &CreateParams, (spec,): (CuckooSpec,), admit: Admit<'_>) -> Result<CuckooFilter, Error> {
        let first = spec.first(params.capacity.get())?;
        let mut chain = CuckooFilter::empty(spec);
        chain.append_empty(first, admit)?;
        Ok(chain)
    }

    /// Items fill 95 % of the slots of a layer before the next is added.
    fn predict(params: &CreateParams, (spec,): (CuckooSpec,), items: u64) -> Result<Prediction, Error> {
        let mut layer = spec.first(params.capacity.get())?;
        let mut memory = (size_of::<AnyFilter>() + size_of::<CuckooFilter>()) as u64;
        let mut left = items as f64;
        let mut log_negative = 0.0;
        loop {
            let slots = layer.checked_slots().ok_or(Error::OutOfMemory)?;
            log_negative += spec.fill(&mut left, slots, LOAD);
            memory = memory.saturating_add(slots).saturating_add(size_of::<CuckooLayer>() as u64);
            if left < 1.0 {
                break;
            }
            if spec.expansion == 0 {
                return Err(Error::Full);
            }
            layer = spec.next(layer).ok_or(Error::CannotGrow)?;
        }
        Ok(Prediction::of_fingerprints(memory, -libm::expm1(log_negative)))
    }

    /// Returns the false-positive rate of a full layer, and the slots of the first.
    fn parameters(&self) -> Parameters {
        Parameters {
            error_rate: self.common.spec.false_positive_rate(1.0),
            capacity: self.layers.first().map_or(0, |layer| layer.slots().len() as u64),
            expansion: (self.common.spec.expansion > 0).then_some(self.common.spec.expansion.into()),
            seed: None,
            window: None,
        }
    }

    #[inline]
    fn hasher(&self) -> Hasher<'_> {
        Hasher::Cuckoo
    }

    fn empty_copy(&self, admit: Admit<'_>) -> Result<CuckooFilter, Error> {
        let mut chain = CuckooFilter::empty(self.common.spec);
        if let Some(first) = self.layers.first() {
            chain.append_empty(first.spec(), admit)?;
        }
        Ok(chain)
    }

    fn try_clone(&self) -> Result<CuckooFilter, Error> {
        let copy = |layer: &CuckooLayer| {
            let slots = Bytes::copied(layer.slots())?;
            CuckooLayer::from_slots(slots, layer.spec()).ok_or(Error::OutOfMemory)
        };
        let layers = try_collect(self.layers.iter().map(copy))?;
        Ok(Chain::from_layers(self.common, layers))
    }

    /// Returns the number of slots. A layer is full when about 95 % of its slots are filled.
    fn capacity(&self) -> u64 {
        self.slots()
    }

    fn items(&self) -> u64 {
        self.common.items
    }

    fn memory_usage(&self) -> usize {
        size_of::<AnyFilter>() + size_of::<CuckooFilter>() + size_of_val(&*self.layers) + self.slots() as usize
    }

    fn num_allocations(&self) -> usize {
        2 + self.layers.len()
    }

    fn grows_by_layers(&self) -> bool {
        true
    }

    fn num_layers(&self) -> usize {
        self.layers.len()
    }

    fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_> {
        let error_rate = self.common.spec.false_positive_rate(1.0);
        let slots = self.layers.iter().map(|layer| layer.slots().len() as u64);
        // The number of items in a layer is not stored.
        Box::new(slots.map(move |slots| LayerInfo::of_fingerprints(slots, 64, slots, 0, error_rate)))
    }

    /// Returns the number of items for each slot, which is at most 1 even if a header says that there are more.
    fn fill(&self) -> f64 {
        (self.common.items as f64 / self.slots().max(1) as f64).min(1.0)
    }

    fn false_positive_rate_at(&self, _now: u64) -> f64 {
        // Without removals, all layers but the newest are full.
        let load = self.fill().max(LOAD);
        let mut left = self.common.items as f64;
        let slots = self.layers.iter().map(|layer| layer.slots().len().max(1) as u64);
        let log_negative = slots.map(|slots| self.common.spec.fill(&mut left, slots, load));
        -libm::expm1(log_negative.sum())
    }

    #[inline]
    fn prefetch(&self, hashes: &[Hash]) {
        if let Some(newest) = self.layers.last() {
            hashes.iter().for_each(|&hash| newest.prefetch(hash));
        }
    }

    fn look_ahead(&self, hash: Hash) {
        self.prefetch(&[hash]);
    }

    #[inline(never)]
    fn contains_at(&self, hash: Hash, _now: u64) -> bool {
        self.contains(Entry::of(hash))
    }

    /// Looks all items up in one layer before the next, so that their cache misses overlap.
    #[inline(never)]
    fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], _now: u64) {
        found.fill(false);
        for layer in self.layers.iter().rev() {
            let absent = || hashes.iter().zip(&*found).filter(|(_, found)| !**found);
            absent().for_each(|(&hash, _)| layer.prefetch(hash));
            for (found, &hash) in found.iter_mut().zip(hashes) {
                *found = *found || layer.contains(Entry::of(hash));
            }
        }
    }

    /// Sets `new[i]` to whether a copy of item `i` was stored.
    #[inline(never)]
    fn insert_hashes(&mut self, items: Insertion<'_>, admit: Admit<'_>) -> Result<(), Interrupted> {
        let Insertion { hashes, new, options, .. } = items;
        for (handled, (&hash, new)) in hashes.iter().zip(new).enumerate() {
            let entry = Entry::of(hash);
            *new = options.on_duplicate == OnDuplicate::Count || !self.contains(entry);
            if *new {
                self.insert(entry, options.is_replay, &mut *admit).map_err(|error| Interrupted { handled, error })?;
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn count_hashes(&self, hashes: &[Hash], counts: &mut [u64]) -> Result<(), Error> {
        counts.fill(0);
        for layer in self.layers.iter().rev() {
            hashes.iter().for_each(|&hash| layer.prefetch(hash));
            counts.iter_mut().zip(hashes).for_each(|(count, &hash)| *count += layer.count(Entry::of(hash)));
        }
        Ok(())
    }

    #[inline(never)]
    fn remove_hashes(&mut self, hashes: &[Hash], removed: &mut [bool]) -> Result<(), Error> {
        removed.iter_mut().zip(hashes).for_each(|(removed, &hash)| *removed = self.remove(Entry::of(hash)));
        Ok(())
    }

    fn relocate(&mut self, _: Position, mover: Mover<'_>, _: Stop<'_>) -> Option<Position> {
        mover.move_slice(&mut self.layers);
        self.layers.iter_mut().for_each(|layer| layer.relocate(mover));
        None
    }
}
