//! A chain of layers of one layout: how a filter is asked, filled and grown, whatever its layers are.

use std::ptr::NonNull;

use super::hash::{Hash, Hasher};
use super::merge::Operation;
use super::{Error, LayerFacts, MAX_ITEMS, MAX_LAYERS, storage, with_room};

/// What a layout is made of. Layers of different layouts are never in one chain.
pub trait Layer: Sized {
    /// What the layers of a filter share: how items are hashed, and how it grows.
    type Plan: Copy;

    /// What a layer is made from.
    type Design: Copy + PartialEq;

    /// What is counted of a layer, and cannot be told from its bits.
    type Counts: Copy;

    /// How the items of a filter are hashed.
    fn hasher(plan: &Self::Plan) -> Hasher;

    /// The layer that is to follow `layers`, when the newest of them is full.
    fn next(plan: &Self::Plan, layers: &[Self]) -> Result<Self::Design, Error>;

    /// Bytes that the bits of a layer take.
    fn memory(design: &Self::Design) -> u64;

    /// An empty layer.
    fn new(design: Self::Design) -> Result<Self, Error>;

    /// What the layer was made from.
    fn design(&self) -> Self::Design;

    /// How many items the layer was made for.
    fn capacity(&self) -> u64;

    /// How many items were new when they were inserted, and were not removed since.
    fn items(&self) -> u64;

    fn counts(&self) -> Self::Counts;

    /// Takes over what was counted of a stored layer.
    fn restore_counts(&mut self, counts: Self::Counts);

    /// How many bits are set, or counters above zero.
    fn marked(&self) -> u64;

    /// How many bits or counters there are.
    fn cells(&self) -> u64;

    /// The bits, as they are stored.
    fn bytes(&self) -> &[u8];

    /// Bytes asked of the allocator for the bits.
    fn allocated(&self) -> usize;

    /// What is known of the layer, which is number `index` (from 0) of its filter.
    fn facts(&self, plan: &Self::Plan, index: usize) -> LayerFacts;

    /// The estimated probability, at the present fill, that an absent item is called present.
    fn false_positive_rate(&self) -> f64;

    /// Whether the item may have been inserted.
    fn contains(&self, hash: Hash) -> bool;

    /// Whether one of `layers` contains the item.
    fn find_one(layers: &[Self], hash: Hash) -> bool;

    /// Sets `found[i]` to whether one of `layers` contains the item of `hashes[i]`.
    fn find(layers: &[Self], hashes: &[Hash], found: &mut [bool]);

    /// Asks for the memory that any operation on the items looks at first.
    fn prefetch(layers: &[Self], hashes: &[Hash]);

    /// Makes the layer what `operation` makes of `sources`, which have its design, and of itself unless it `is_new`. Whether that
    /// changed it.
    fn combine(&mut self, sources: &[&Self], operation: Operation, is_new: bool) -> bool;

    /// A copy that shares nothing. Where no bit is set, its memory is as untouched as that of a new layer.
    fn try_clone(&self) -> Result<Self, Error>;

    /// Lets `relocate` move the bits.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](storage::Array::relocate).
    unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>);

    /// How many more items fit.
    #[inline]
    fn room(&self) -> u64 {
        self.capacity().min(MAX_ITEMS).saturating_sub(self.items())
    }
}

/// A layer of bits: an item is there or not, and to insert it again changes nothing.
pub trait Insert: Layer {
    /// Sets the item's bits. Whether any of them was clear, that is, whether the item is new.
    ///
    /// A new item counts, even beyond the capacity: the caller looks at [`room`](Layer::room) first.
    fn insert(&mut self, hash: Hash) -> bool;

    /// How many inserts ahead their memory is to be asked for.
    const INSERTS_AHEAD: usize;

    /// Whether an insert into the newest of `layers` looks at more memory than what [`prefetch`](Layer::prefetch) asked for.
    fn inserts_look_further(layers: &[Self]) -> bool;

    /// Asks for all the memory that an insert of the item looks at.
    fn prefetch_insert(&self, hash: Hash);
}

/// Layers, oldest first, and what they share.
pub struct Chain<L: Layer> {
    layers: Box<[L]>,
    plan: L::Plan,
}

impl<L: Layer> Chain<L> {
    /// A chain of one empty layer. `admit` is told the bytes it will take, and may refuse them.
    pub fn new(plan: L::Plan, first: L::Design, admit: impl FnOnce(u64) -> bool) -> Result<Chain<L>, Error> {
        let mut chain = Chain::from_layers(plan, Vec::new());
        chain.append(std::iter::once(first), admit)?;
        Ok(chain)
    }

    /// A chain of empty layers, as the first `depth` of this one. `admit` is told the bytes it will take, and may refuse them.
    pub fn emptied(&self, depth: usize, admit: impl FnOnce(u64) -> bool) -> Result<Chain<L>, Error> {
        let mut chain = Chain::from_layers(self.plan, Vec::new());
        chain.extend_like(self, depth, admit)?;
        Ok(chain)
    }

    /// Adds empty layers, as `other` has them, until there are at least `depth`. `admit` is told the bytes they will take, and
    /// may refuse them.
    pub fn extend_like(
        &mut self,
        other: &Chain<L>,
        depth: usize,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<(), Error> {
        match other.layers.get(self.layers.len()..depth) {
            None | Some([]) => Ok(()),
            Some(missing) => self.append(missing.iter().map(L::design), admit),
        }
    }

    pub(super) fn from_layers(plan: L::Plan, layers: Vec<L>) -> Chain<L> {
        Chain { layers: layers.into_boxed_slice(), plan }
    }

    /// Adds a layer to a full chain. `admit` is told the bytes it will take, and may refuse them.
    pub fn grow(&mut self, admit: impl FnOnce(u64) -> bool) -> Result<(), Error> {
        let next = L::next(&self.plan, &self.layers)?;
        self.append(std::iter::once(next), admit)
    }

    /// Adds empty layers: all, or none.
    fn append(
        &mut self,
        designs: impl ExactSizeIterator<Item = L::Design> + Clone,
        admit: impl FnOnce(u64) -> bool,
    ) -> Result<(), Error> {
        let bytes = designs.clone().fold(0u64, |sum, design| sum.saturating_add(L::memory(&design)));
        if self.layers.len() + designs.len() > MAX_LAYERS {
            return Err(Error::CannotGrow);
        }
        if !admit(bytes) {
            return Err(Error::OutOfMemory);
        }
        let mut new = with_room(designs.len())?;
        for design in designs {
            new.push(L::new(design)?);
        }
        let mut layers = std::mem::take(&mut self.layers).into_vec();
        let room = layers.try_reserve_exact(new.len());
        if room.is_ok() {
            layers.extend(new);
        }
        self.layers = layers.into_boxed_slice();
        room.map_err(|_| Error::OutOfMemory)
    }

    /// Drops the layers of which `is_over` is true, but for the newest; none if there is no memory for the shorter list.
    pub(super) fn drop_older(&mut self, is_over: impl Fn(&L) -> bool) {
        let newest = self.layers.len().saturating_sub(1);
        let stays = |(index, layer): &(usize, L)| *index == newest || !is_over(layer);
        let over = self.layers[..newest].iter().filter(|layer| is_over(layer)).count();
        let mut left = Vec::new();
        if over > 0 && left.try_reserve_exact(self.layers.len() - over).is_ok() {
            let layers = std::mem::take(&mut self.layers).into_vec();
            left.extend(layers.into_iter().enumerate().filter(stays).map(|(_, layer)| layer));
            self.layers = left.into_boxed_slice();
        }
    }

    /// The layers, oldest first.
    pub fn layers(&self) -> &[L] {
        &self.layers
    }

    pub(super) fn layers_mut(&mut self) -> &mut [L] {
        &mut self.layers
    }

    pub fn plan(&self) -> &L::Plan {
        &self.plan
    }

    #[inline]
    pub fn hasher(&self) -> Hasher {
        L::hasher(&self.plan)
    }

    #[inline]
    pub fn prefetch(&self, hashes: &[Hash]) {
        L::prefetch(&self.layers, hashes);
    }

    #[inline]
    pub fn contains(&self, hash: Hash) -> bool {
        L::find_one(&self.layers, hash)
    }

    /// See [`Filter::contains_all`](super::Filter::contains_all).
    #[inline]
    pub fn contains_all(&self, hashes: &[Hash], found: &mut [bool]) {
        L::find(&self.layers, hashes, found);
    }

    /// A copy that shares nothing.
    pub fn try_clone(&self) -> Result<Chain<L>, Error> {
        let mut layers = with_room(self.layers.len())?;
        for layer in &self.layers {
            layers.push(layer.try_clone()?);
        }
        Ok(Chain::from_layers(self.plan, layers))
    }

    /// Lets `relocate` move the chain's allocations.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](storage::Array::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { storage::relocate_slice(&mut self.layers, &relocate) };
        for layer in &mut self.layers {
            // SAFETY: as promised by the caller.
            unsafe { layer.relocate(&relocate) };
        }
    }

    /// The number of items that the layers together are made for.
    pub fn capacity(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.capacity()))
    }

    /// The number of items that were new when they were inserted, and were not removed since.
    pub fn items(&self) -> u64 {
        self.layers.iter().map(L::items).sum()
    }

    /// What is known of each layer, oldest first.
    pub fn facts(&self) -> impl Iterator<Item = LayerFacts> {
        self.layers.iter().enumerate().map(|(index, layer)| layer.facts(&self.plan, index))
    }

    /// Bytes asked of the allocator for the layers.
    pub fn allocated(&self) -> usize {
        self.layers.iter().map(|layer| size_of::<L>() + layer.allocated()).sum()
    }

    /// The share of set bits, or of counters above zero. Without any, all are: such a filter answers that every item is there.
    pub fn fill(&self) -> f64 {
        let (marked, cells) = self
            .layers
            .iter()
            .fold((0.0, 0.0), |(marked, cells), layer| (marked + layer.marked() as f64, cells + layer.cells() as f64));
        if cells > 0.0 { marked / cells } else { 1.0 }
    }

    /// The estimated probability, at the present fill, that an absent item is called present.
    pub fn false_positive_rate(&self) -> f64 {
        let spared: f64 = self.layers.iter().map(|layer| libm::log1p(-layer.false_positive_rate())).sum();
        -libm::expm1(spared)
    }
}

impl<L: Insert> Chain<L> {
    /// See [`Filter::insert_all`](super::Filter::insert_all).
    ///
    /// Apart: those of all layouts together would be a function with more registers to save than one alone.
    #[inline(never)]
    pub fn insert_all(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        let mut handled = 0;
        while handled < hashes.len() {
            // Layers are not asked about items that wait for the next layer: they would be asked again then.
            let left = hashes.len() - handled;
            let room = usize::try_from(self.layers.last().map_or(0, L::room)).unwrap_or(usize::MAX);
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

    /// As [`insert_all`](Self::insert_all).
    fn insert_some(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        let known = new;
        if self.layers.len() == 1 {
            known.fill(false);
        } else {
            self.contains_all(hashes, known);
        }
        let further = L::inserts_look_further(&self.layers);
        let Some(newest) = self.layers.last_mut() else { return 0 };
        // How many of the items have another so far behind them.
        let leaders = if further { hashes.len().saturating_sub(L::INSERTS_AHEAD) } else { 0 };
        if further {
            let absent = hashes.iter().zip(&*known).take(L::INSERTS_AHEAD).filter(|(_, known)| !**known);
            absent.for_each(|(&hash, _)| newest.prefetch_insert(hash));
        }
        for handled in 0..hashes.len() {
            if handled < leaders && !known[handled + L::INSERTS_AHEAD] {
                newest.prefetch_insert(hashes[handled + L::INSERTS_AHEAD]);
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
