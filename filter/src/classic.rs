//! The classic filter: RedisBloom's chain of [layers](crate::layer::classic). The newest takes new items; when it is full, a
//! larger one follows.

use std::ptr::NonNull;

use crate::array;
use crate::error::{Error, Interrupted};
use crate::hash::{Hash, Hasher};
use crate::item_count::MergeOp;
use crate::layer::LayerInfo;
use crate::layer::classic::{self, ClassicLayer, ClassicLayerSpec, ClassicSpec};
use crate::memory::{Admit, try_vec};

/// Layers, oldest first, and what they share.
pub struct ClassicFilter {
    layers: Box<[ClassicLayer]>,
    spec: ClassicSpec,
}

impl ClassicFilter {
    /// Creates a chain of one empty layer.
    ///
    /// `admit` gets the bytes that it will take, and may reject them.
    pub fn new(
        spec: ClassicSpec,
        first: ClassicLayerSpec,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<ClassicFilter, Error> {
        let mut chain = ClassicFilter::from_layers(spec, Vec::new());
        chain.append(std::iter::once(first), admit)?;
        Ok(chain)
    }

    /// Returns a chain of empty layers, like the first `num_layers` of this one. `admit` as for [`new`](Self::new).
    pub fn empty_copy(&self, num_layers: usize, admit: impl FnOnce(u64) -> bool) -> Result<ClassicFilter, Error> {
        let mut chain = ClassicFilter::from_layers(self.spec, Vec::new());
        chain.ensure_layers_like(self, num_layers, admit)?;
        Ok(chain)
    }

    /// Adds empty layers, like those of `other`, until there are at least `num_layers`. `admit` as for
    /// [`new`](Self::new).
    fn ensure_layers_like(
        &mut self,
        other: &ClassicFilter,
        num_layers: usize,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<(), Error> {
        match other.layers.get(self.layers.len()..num_layers) {
            None | Some([]) => Ok(()),
            Some(missing) => self.append(missing.iter().map(ClassicLayer::spec), admit),
        }
    }

    /// Makes a chain of layers that are there already.
    pub fn from_layers(spec: ClassicSpec, layers: Vec<ClassicLayer>) -> ClassicFilter {
        ClassicFilter { layers: layers.into_boxed_slice(), spec }
    }

    /// Adds a layer to a full chain. `admit` as for [`new`](Self::new).
    fn grow(&mut self, admit: impl FnOnce(u64) -> bool) -> Result<(), Error> {
        let next = self.spec.next(self.layers.last().ok_or(Error::OutOfMemory)?)?;
        self.append(std::iter::once(next), admit)
    }

    /// Adds empty layers: all, or none.
    fn append(
        &mut self,
        specs: impl ExactSizeIterator<Item = ClassicLayerSpec> + Clone,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<(), Error> {
        let bytes = specs.clone().fold(0u64, |sum, spec| sum.saturating_add(spec.bytes));
        if self.layers.len() + specs.len() > classic::MAX_LAYERS {
            return Err(Error::CannotGrow);
        }
        if !admit(bytes) {
            return Err(Error::OutOfMemory);
        }
        let mut new = try_vec(specs.len())?;
        for spec in specs {
            new.push(ClassicLayer::new(spec)?);
        }
        let mut layers = std::mem::take(&mut self.layers).into_vec();
        let room = layers.try_reserve_exact(new.len());
        if room.is_ok() {
            layers.extend(new);
        }
        self.layers = layers.into_boxed_slice();
        room.map_err(|_| Error::OutOfMemory)
    }

    /// Returns a new chain: the merge of `sources` by `op`. There is at least one source, and they differ at most in
    /// their number of layers. `admit` as for [`new`](Self::new).
    pub fn merged(
        sources: &[&ClassicFilter],
        op: MergeOp,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<ClassicFilter, Error> {
        let longest = longest(sources).ok_or(Error::OutOfMemory)?;
        let layers = try_vec(sources.len())?;
        let mut merged = longest.empty_copy(longest.layers.len(), admit)?;
        merged.combine(layers, sources, op, true);
        Ok(merged)
    }

    /// Merges `sources`, which agree with this chain in all but their number of layers. Returns true if that changed
    /// the chain. `admit` gets the bytes that it will take in addition.
    pub fn merge(
        &mut self,
        sources: &[&ClassicFilter],
        op: MergeOp,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<bool, Error> {
        let (layers, num_layers) = (try_vec(sources.len())?, self.layers.len());
        if let Some(longest) = longest(sources) {
            self.ensure_layers_like(longest, longest.layers.len(), admit)?;
        }
        let changed = self.combine(layers, sources, op, false);
        Ok(changed || self.layers.len() > num_layers)
    }

    /// Merges layer by layer. `layers` is empty, and has room for one layer of each source.
    fn combine<'a>(
        &mut self,
        mut layers: Vec<&'a ClassicLayer>,
        sources: &[&'a ClassicFilter],
        op: MergeOp,
        is_new: bool,
    ) -> bool {
        let mut changed = false;
        for (index, target) in self.layers.iter_mut().enumerate() {
            layers.clear();
            layers.extend(sources.iter().filter_map(|source| source.layers.get(index)));
            changed |= target.merge(&layers, op, is_new);
        }
        changed
    }

    /// Returns a copy that shares nothing.
    pub fn try_clone(&self) -> Result<ClassicFilter, Error> {
        ClassicFilter::merged(&[self], MergeOp::Union, |_bytes| true)
    }

    /// Returns the layers, oldest first.
    pub fn layers(&self) -> &[ClassicLayer] {
        &self.layers
    }

    /// As [`layers`](Self::layers), to change them.
    pub fn layers_mut(&mut self) -> &mut [ClassicLayer] {
        &mut self.layers
    }

    /// Returns the false-positive rate that the filter was created for, which follows from that of the first layer.
    pub fn error_rate(&self) -> f64 {
        let first = self.layers.first().map_or(0.0, |layer| layer.spec().error_rate);
        if self.spec.options.is_fixed() { first } else { 2.0 * first }
    }

    /// Returns the number of items that the oldest layer is created for.
    pub fn initial_capacity(&self) -> u64 {
        self.layers.first().map_or(0, |layer| layer.spec().capacity)
    }

    /// Returns true if the layers that both filters have are equal in shape.
    pub fn is_shaped_like(&self, other: &ClassicFilter) -> bool {
        self.layers.iter().zip(&other.layers).all(|(one, other)| one.spec() == other.spec())
    }

    /// Returns what the layers share.
    pub fn spec(&self) -> &ClassicSpec {
        &self.spec
    }

    /// Returns how the chain hashes its items.
    #[inline]
    pub fn hasher(&self) -> Hasher {
        self.spec.hasher()
    }

    /// Prefetches the memory that any operation on the items reads first.
    #[inline]
    pub fn prefetch(&self, hashes: &[Hash]) {
        classic::prefetch(&self.layers, hashes);
    }

    /// Returns true if the item may be in one of the layers.
    #[inline]
    pub fn contains(&self, hash: Hash) -> bool {
        match &*self.layers {
            // Inlined: most filters have one layer.
            [layer] => layer.contains(hash),
            layers => {
                let mut found = [false];
                classic::find(layers, &[hash], &mut found);
                found[0]
            }
        }
    }

    /// See [`Filter::contains_hashes`](crate::Filter::contains_hashes).
    #[inline]
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool]) {
        self.prefetch(hashes);
        classic::find(&self.layers, hashes, found);
    }

    /// Lets `relocate` move the chain's allocations.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { array::relocate_slice(&mut self.layers, &relocate) };
        for layer in &mut self.layers {
            // SAFETY: as promised by the caller.
            unsafe { layer.relocate(&relocate) };
        }
    }

    /// Returns the number of items that the layers together are created for.
    pub fn capacity(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.spec().capacity))
    }

    /// Returns the number of items that were new when they were inserted.
    pub fn items(&self) -> u64 {
        self.layers.iter().map(ClassicLayer::items).sum()
    }

    /// Returns what is known of each layer, oldest first.
    pub fn info(&self) -> impl Iterator<Item = LayerInfo> {
        self.layers.iter().map(|layer| layer.info(&self.spec))
    }

    /// Returns the layer that holds byte `offset` of all layers' bits, laid end to end, and the offset in it.
    pub fn locate(&self, offset: u64) -> Option<(usize, usize)> {
        let mut start = 0;
        self.layers.iter().enumerate().find_map(|(index, layer)| {
            let (within, bytes) = (offset.checked_sub(start)?, layer.bytes().len() as u64);
            start += bytes;
            (within < bytes).then_some((index, within as usize))
        })
    }

    /// Returns what RedisBloom reports as the memory of such a filter: a few bytes less than ours takes.
    pub fn memory_usage(&self) -> usize {
        let bits: usize = self.layers.iter().map(|layer| layer.bytes().len()).sum();
        classic::FILTER_BYTES + classic::LAYER_BYTES * self.layers.len() + bits
    }

    /// Returns the share of set bits. It is 1 without any bits: such a filter matches every item.
    pub fn fill(&self) -> f64 {
        let (marked, bits) = self.layers.iter().fold((0.0, 0.0), |(marked, bits), layer| {
            (marked + layer.marked() as f64, bits + 8.0 * layer.bytes().len() as f64)
        });
        if bits > 0.0 { marked / bits } else { 1.0 }
    }

    /// Returns the estimated false-positive rate at the present fill.
    pub fn false_positive_rate(&self) -> f64 {
        let spared: f64 = self.layers.iter().map(|layer| libm::log1p(-layer.false_positive_rate())).sum();
        -libm::expm1(spared)
    }
}

/// Returns the chain with the most layers.
fn longest<'a>(chains: &[&'a ClassicFilter]) -> Option<&'a ClassicFilter> {
    chains.iter().copied().max_by_key(|chain| chain.layers.len())
}

impl ClassicFilter {
    /// Inserts items in order; `new[i]` tells whether the item was new. Adds layers for what does not fit; `admit` gets
    /// the bytes that each will take.
    ///
    /// Not inlined: with all three kinds in one function, more registers are spilled.
    #[inline(never)]
    pub fn insert_all(&mut self, hashes: &[Hash], new: &mut [bool], admit: Admit<'_>) -> Result<(), Interrupted> {
        let mut handled = 0;
        loop {
            handled += self.insert_while_room(&hashes[handled..], &mut new[handled..]);
            if handled == hashes.len() {
                return Ok(());
            }
            self.grow(&mut *admit).map_err(|error| Interrupted { handled, error })?;
        }
    }

    /// Inserts items in order until one does not fit. Returns how many were handled.
    fn insert_while_room(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        let mut handled = 0;
        while handled < hashes.len() {
            // Layers are not asked about items that wait for the next layer: they would be asked again then.
            let left = hashes.len() - handled;
            let room = usize::try_from(self.layers.last().map_or(0, ClassicLayer::room)).unwrap_or(usize::MAX);
            let count = if self.layers.len() == 1 { left } else { left.min(room.saturating_add(1)) };
            let (hashes, new) = (&hashes[handled..][..count], &mut new[handled..][..count]);
            let inserted = self.insert_some(hashes, new);
            handled += inserted;
            if inserted < count {
                break;
            }
        }
        handled
    }

    /// As [`insert_while_room`](Self::insert_while_room).
    fn insert_some(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        // Until an item is handled, its place tells whether it is known; from then on, whether it was new.
        let known = new;
        if self.layers.len() == 1 {
            known.fill(false);
        } else {
            classic::find(&self.layers, hashes, known);
        }
        let Some(newest) = self.layers.last_mut() else { return 0 };
        let further = newest.inserts_look_further();
        // The number of items that still have one INSERTS_AHEAD later to prefetch.
        let leaders = if further { hashes.len().saturating_sub(ClassicLayer::INSERTS_AHEAD) } else { 0 };
        if further {
            let absent = hashes.iter().zip(&*known).take(ClassicLayer::INSERTS_AHEAD).filter(|(_, known)| !**known);
            absent.for_each(|(&hash, _)| newest.prefetch_insert(hash));
        }
        for handled in 0..hashes.len() {
            if handled < leaders && !known[handled + ClassicLayer::INSERTS_AHEAD] {
                newest.prefetch_insert(hashes[handled + ClassicLayer::INSERTS_AHEAD]);
            }
            let (hash, known) = (hashes[handled], &mut known[handled]);
            // Items of the batch may be the same, so that what was absent is not any more.
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
