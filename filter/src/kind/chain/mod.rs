//! A chain of layers: of [bits](bit_layer) in classic and valkey filters, of fingerprints in [cuckoo
//! filters](super::cuckoo). New items go into the newest layer. When it is full, a larger layer is added.

pub(crate) mod bit_layer;
pub(crate) mod probes;
pub(crate) mod spec;

use super::{Contained, CreateParams, Insertion, KindFilter};
use crate::array::{Mover, Stop};
use crate::batch::LAYER_IN_CACHE;
use crate::error::{Error, Interrupted, MergeError};
use crate::hash::{Hash, Hasher};
use crate::item_count::MergeOp;
use crate::layer::LayerInfo;
use crate::memory::{Admit, request, try_collect};
use crate::prediction::Prediction;
use crate::spec::Parameters;
use crate::table::Position;
use bit_layer::{BitLayer, INSERTS_AHEAD};
use probes::Probes;
use spec::BitLayerSpec;

/// A chain of layers, oldest first, and what they have in common.
pub struct Chain<L, C> {
    pub(super) layers: Box<[L]>,
    pub(super) common: C,
}

impl<L, C> Chain<L, C> {
    /// Creates a chain from existing layers.
    pub fn from_layers(common: C, layers: Vec<L>) -> Chain<L, C> {
        Chain { layers: layers.into_boxed_slice(), common }
    }

    /// Returns the layers, oldest first.
    pub fn chain(&self) -> &[L] {
        &self.layers
    }

    /// Returns the layers, oldest first, to change them.
    pub fn chain_mut(&mut self) -> &mut [L] {
        &mut self.layers
    }

    /// Adds layers that take `bytes` bytes, up to `max_layers` in all: all of them, or none.
    pub(super) fn append(
        &mut self,
        layers: impl ExactSizeIterator<Item = Result<L, Error>>,
        bytes: u64,
        max_layers: usize,
        admit: Admit<'_>,
    ) -> Result<(), Error> {
        if self.layers.len() + layers.len() > max_layers {
            return Err(Error::CannotGrow);
        }
        request(bytes, admit)?;
        let new = try_collect(layers)?;
        let mut layers = std::mem::take(&mut self.layers).into_vec();
        let reserved = layers.try_reserve_exact(new.len());
        if reserved.is_ok() {
            layers.extend(new);
        }
        self.layers = layers.into_boxed_slice();
        reserved.map_err(|_| Error::OutOfMemory)
    }
}

/// A chain of layers of bits, and their common parameters.
pub(crate) type BitChain<S> = Chain<BitLayer<<S as ChainSpec>::Probes>, S>;

/// The parameters that the layers of a chain share, and how the chain grows.
pub trait ChainSpec: Copy + PartialEq + 'static {
    /// The probes of an item in a layer.
    type Probes: Probes;

    const MAX_LAYERS: usize;
    /// The bytes of a filter without its layers, as [`KindFilter::memory_usage`] reports them.
    const FILTER_BYTES: usize;
    /// The bytes of a layer without its bits.
    const LAYER_BYTES: usize;
    /// The reason if filters cannot be merged.
    const UNMERGED: Option<MergeError> = None;

    /// The values of the parameters that only this kind has.
    type Params;

    /// Returns the parameters of a new chain.
    fn new(params: &CreateParams, own: Self::Params) -> Self;
    fn hasher(&self) -> Hasher<'_>;
    fn hash_bits(&self) -> u8;
    /// Returns the ratio of the sizes of successive layers, or `None` if the filter does not grow.
    fn expansion(&self) -> Option<u32>;
    /// Returns the error rate that the filter was created with, given that of its first layer.
    fn error_rate(&self, of_first: f64) -> f64;
    /// Returns the first layer of a filter.
    fn first(&self, capacity: u64, error_rate: f64) -> Result<BitLayerSpec, Error>;
    /// Returns a further layer for `capacity` items, which comes after `num_layers` others.
    fn further(&self, capacity: u64, newest: &BitLayerSpec, num_layers: usize) -> Result<BitLayerSpec, Error>;

    /// Returns the layer that is added when the newest layer is full. It comes after `num_layers` others.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the filter does not grow; [`Error::CannotGrow`] or [`Error::OutOfMemory`] if no such layer is
    /// possible.
    fn next(&self, newest: &BitLayerSpec, num_layers: usize) -> Result<BitLayerSpec, Error> {
        let expansion = self.expansion().ok_or(Error::Full)?;
        let capacity = newest.capacity.checked_mul(expansion.into()).ok_or(Error::OutOfMemory)?;
        self.further(capacity, newest, num_layers)
    }
}

impl<S: ChainSpec> BitChain<S> {
    /// Returns a chain of empty layers that are like the first `num_layers` of this chain.
    fn empty_chain(&self, num_layers: usize, admit: Admit<'_>) -> Result<BitChain<S>, Error> {
        let mut chain = BitChain::from_layers(self.common, Vec::new());
        chain.ensure_layers_like(self, num_layers, admit)?;
        Ok(chain)
    }

    /// Adds empty layers, like those of `other`, until there are at least `num_layers`.
    fn ensure_layers_like(&mut self, other: &BitChain<S>, num_layers: usize, admit: Admit<'_>) -> Result<(), Error> {
        match other.layers.get(self.layers.len()..num_layers) {
            None | Some([]) => Ok(()),
            Some(missing) => self.append_empty(missing.iter().map(BitLayer::spec), admit),
        }
    }

    /// Adds a layer to a full chain.
    fn grow(&mut self, admit: Admit<'_>) -> Result<(), Error> {
        let newest = self.layers.last().ok_or(Error::OutOfMemory)?.spec();
        let next = self.common.next(&newest, self.layers.len())?;
        self.append_empty(std::iter::once(next), admit)
    }

    /// Adds empty layers: all of them, or none.
    fn append_empty(
        &mut self,
        specs: impl ExactSizeIterator<Item = BitLayerSpec> + Clone,
        admit: Admit<'_>,
    ) -> Result<(), Error> {
        let bytes = specs.clone().fold(0u64, |sum, spec| sum.saturating_add(spec.bytes));
        self.append(specs.map(BitLayer::new), bytes, S::MAX_LAYERS, admit)
    }

    fn merge_layers(&mut self, sources: &[(&BitChain<S>, u64)], op: MergeOp, is_new: bool) -> bool {
        let mut changed = false;
        for (index, target) in self.layers.iter_mut().enumerate() {
            changed |= target.merge(sources.iter().filter_map(|(source, _)| source.layers.get(index)), op, is_new);
        }
        changed
    }

    /// Returns the parameters that all layers share.
    pub fn spec(&self) -> &S {
        &self.common
    }

    /// Inserts items in order until the newest layer is full. Returns the number of items handled.
    fn insert_some(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        // Until an item is handled, its element says whether it is known; from then on, whether it was new.
        let known = new;
        if self.layers.len() == 1 {
            known.fill(false);
        } else {
            bit_layer::contains_hashes(&self.layers, hashes, known);
        }
        let Some(newest) = self.layers.last_mut() else { return 0 };
        // An insertion then reads more memory than `prefetch` prefetches.
        let further = newest.bytes().len() > LAYER_IN_CACHE;
        // The number of items that still have one INSERTS_AHEAD later to prefetch.
        let leaders = if further { hashes.len().saturating_sub(INSERTS_AHEAD) } else { 0 };
        if further {
            let first = hashes.iter().zip(&*known).take(INSERTS_AHEAD);
            first.filter(|(_, is_known)| !**is_known).for_each(|(&hash, _)| newest.prefetch_insert(hash));
        }
        for handled in 0..hashes.len() {
            if handled < leaders && !known[handled + INSERTS_AHEAD] {
                newest.prefetch_insert(hashes[handled + INSERTS_AHEAD]);
            }
            let hash = hashes[handled];
            let known = &mut known[handled];
            // The batch may contain an item twice: an item that was absent before may be present now.
            if newest.room() == 0 && !*known {
                *known = newest.contains(hash);
                if !*known {
                    return handled;
                }
            }
            *known = !*known && newest.insert(hash);
        }
        hashes.len()
    }
}

/// Returns the bytes of a filter besides its bits.
fn overhead<S: ChainSpec>(layers: usize) -> usize {
    S::FILTER_BYTES + S::LAYER_BYTES * layers
}

fn longest<'a, S: ChainSpec>(chains: &[(&'a BitChain<S>, u64)]) -> Option<&'a BitChain<S>> {
    chains.iter().map(|(chain, _)| *chain).max_by_key(|chain| chain.layers.len())
}

impl<S: ChainSpec> KindFilter for BitChain<S>
where
    BitChain<S>: Contained,
{
    const UNMERGED: Option<MergeError> = S::UNMERGED;
    const CAN_BE_FOLLOWED: bool = true;

    type Params = S::Params;

    fn create(params: &CreateParams, own: S::Params, admit: Admit<'_>) -> Result<BitChain<S>, Error> {
        let spec = S::new(params, own);
        let first = spec.first(params.capacity.get(), params.error_rate.get())?;
        let mut chain = BitChain::from_layers(spec, Vec::new());
        chain.append_empty(std::iter::once(first), admit)?;
        Ok(chain)
    }

    fn predict(params: &CreateParams, own: S::Params, items: u64) -> Result<Prediction, Error> {
        let spec = S::new(params, own);
        let mut layer = spec.first(params.capacity.get(), params.error_rate.get())?;
        let probes = layer.probes;
        let mut layers = 1;
        let mut bytes = layer.bytes;
        let mut left = items;
        let mut log_negative = 0.0;
        while left > layer.capacity {
            log_negative += libm::log1p(-layer.false_positive_rate(layer.capacity));
            left -= layer.capacity;
            layer = spec.next(&layer, layers)?;
            layers += 1;
            bytes = bytes.saturating_add(layer.bytes);
            if layers > S::MAX_LAYERS {
                return Err(Error::CannotGrow);
            }
        }
        log_negative += libm::log1p(-layer.false_positive_rate(left));
        Ok(Prediction {
            memory: bytes.saturating_add(overhead::<S>(layers) as u64),
            false_positive_rate: -libm::expm1(log_negative),
            is_estimate: false,
            probes,
            shape: None,
        })
    }

    fn parameters(&self) -> Parameters {
        let (capacity, of_first) = self.layers.first().map_or((0, 0.0), |layer| {
            let BitLayerSpec { capacity, error_rate, .. } = layer.spec();
            (capacity, error_rate)
        });
        let error_rate = self.common.error_rate(of_first);
        Parameters { error_rate, capacity, expansion: self.common.expansion(), seed: None, window: None }
    }

    #[inline]
    fn hasher(&self) -> Hasher<'_> {
        self.common.hasher()
    }

    fn empty_copy(&self, admit: Admit<'_>) -> Result<BitChain<S>, Error> {
        self.empty_chain(1, admit)
    }

    fn try_clone(&self) -> Result<BitChain<S>, Error> {
        BitChain::merged(&[(self, 1)], MergeOp::Union, &mut |_bytes| true)
    }

    /// Returns the number of items that all layers together were created for.
    fn capacity(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.spec().capacity))
    }

    fn items(&self) -> u64 {
        self.layers.iter().map(BitLayer::items).sum()
    }

    /// For a classic filter, returns the memory that RedisBloom reports, a few bytes less than ours takes.
    fn memory_usage(&self) -> usize {
        let bits: usize = self.layers.iter().map(|layer| layer.bytes().len()).sum();
        overhead::<S>(self.layers.len()) + bits
    }

    fn num_allocations(&self) -> usize {
        self.layers.len()
    }

    fn grows_by_layers(&self) -> bool {
        true
    }

    fn num_layers(&self) -> usize {
        self.layers.len()
    }

    fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_> {
        Box::new(self.layers.iter().map(|layer| layer.info(self.common.hash_bits())))
    }

    /// Returns 1 if there are no bits: such a filter matches every item.
    fn fill(&self) -> f64 {
        let (set_bits, bits) = self.layers.iter().fold((0.0, 0.0), |(set_bits, bits), layer| {
            (set_bits + layer.set_bits() as f64, bits + 8.0 * layer.bytes().len() as f64)
        });
        if bits > 0.0 { set_bits / bits } else { 1.0 }
    }

    fn false_positive_rate_at(&self, _now: u64) -> f64 {
        let log_negative: f64 = self.layers.iter().map(|layer| libm::log1p(-layer.false_positive_rate())).sum();
        -libm::expm1(log_negative)
    }

    #[inline]
    fn prefetch(&self, hashes: &[Hash]) {
        bit_layer::prefetch(&self.layers, hashes);
    }

    fn look_ahead(&self, hash: Hash) {
        if let Some(newest) = self.layers.last() {
            newest.prefetch_insert(hash);
        }
    }

    #[inline]
    fn contains_at(&self, hash: Hash, _now: u64) -> bool {
        match &*self.layers {
            // Inlined: most filters have one layer.
            [layer] => layer.contains(hash),
            layers => bit_layer::contains_one(layers, hash),
        }
    }

    #[inline]
    fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], _now: u64) {
        self.prefetch(hashes);
        bit_layer::contains_hashes(&self.layers, hashes, found);
    }

    /// Adds layers for items that do not fit.
    ///
    /// Not inlined: with all kinds in one function, more registers are spilled.
    #[inline(never)]
    fn insert_hashes(&mut self, items: Insertion<'_>, admit: Admit<'_>) -> Result<(), Interrupted> {
        let Insertion { hashes, new, .. } = items;
        let mut handled = 0;
        while handled < hashes.len() {
            // Items that must wait for the next layer are not looked up now, since they are looked up again then.
            let left = hashes.len() - handled;
            let room = usize::try_from(self.layers.last().map_or(0, BitLayer::room)).unwrap_or(usize::MAX);
            let count = if self.layers.len() == 1 { left } else { left.min(room.saturating_add(1)) };
            let inserted = self.insert_some(&hashes[handled..][..count], &mut new[handled..][..count]);
            handled += inserted;
            if inserted < count {
                self.grow(&mut *admit).map_err(|error| Interrupted { handled, error })?;
            }
        }
        Ok(())
    }

    fn count_known(&mut self) {
        self.layers.last_mut().into_iter().for_each(BitLayer::count_known);
    }

    /// Returns true if the layers that both filters have are equal in shape, pair by pair.
    fn is_shaped_like(&self, other: &BitChain<S>) -> bool {
        self.layers.iter().zip(&other.layers).all(|(one, other)| one.spec() == other.spec())
    }

    fn grows_like(&self, other: &BitChain<S>) -> bool {
        self.common.expansion() == other.common.expansion()
    }

    fn merged(sources: &[(&BitChain<S>, u64)], op: MergeOp, admit: Admit<'_>) -> Result<BitChain<S>, Error> {
        let longest = longest(sources).ok_or(Error::OutOfMemory)?;
        let mut merged = longest.empty_chain(longest.layers.len(), admit)?;
        merged.merge_layers(sources, op, true);
        Ok(merged)
    }

    fn merge(&mut self, sources: &[(&BitChain<S>, u64)], op: MergeOp, admit: Admit<'_>) -> Result<bool, Error> {
        let num_layers = self.layers.len();
        if let Some(longest) = longest(sources) {
            self.ensure_layers_like(longest, longest.layers.len(), admit)?;
        }
        let changed = self.merge_layers(sources, op, false);
        Ok(changed || self.layers.len() > num_layers)
    }

    fn relocate(&mut self, _: Position, mover: Mover<'_>, _: Stop<'_>) -> Option<Position> {
        mover.move_slice(&mut self.layers);
        self.layers.iter_mut().for_each(|layer| layer.relocate(mover));
        None
    }
}
