//! A layer of bits. Each of an item's `k` probes is in another cache line. Two things make look-ups faster than those
//! of RedisBloom:
//!
//! - Batches of items are looked up in two steps. First, the first one or two probes of all items are prefetched
//!   together. Then the other probes are prefetched, but only for the items that may still be present.
//! - Positions are computed by multiplying with the reciprocal of the number of bits. In a classic filter, each further
//!   probe is one addition, and a subtraction if the sum reaches that number.

use std::marker::PhantomData;

use bitvec::prelude::*;

use super::probes::{Modulus, Probes};
use super::spec::{BitLayerSpec, MAX_PROBES};
use crate::arch;
use crate::array::{Bytes, Mover};
use crate::batch::{BATCH, BatchMask, LAYER_IN_CACHE};
use crate::error::Error;
use crate::hash::Hash;
use crate::item_count::{ItemCount, MAX_ITEMS, MergeOp};
use crate::layer::{Destination, LayerInfo, combine_bits};
use crate::line::{LINE, PAGE, count_ones, or};

/// The number of items whose probes are prefetched at a time. 4 items already saturate the memory, and more overflow
/// the processor's queues.
const AHEAD: usize = 4;

/// The number of insertions between the prefetch of an item's memory and its insertion.
pub(super) const INSERTS_AHEAD: usize = AHEAD;

/// A layer of bits, with its counts. `P` are the probes of an item.
pub struct BitLayer<P> {
    bytes: Bytes,
    spec: BitLayerSpec,
    items: u64,
    set_bits: u64,
    modulus: Modulus,
    probes: PhantomData<P>,
}

impl<P: Probes> BitLayer<P> {
    /// Creates an empty layer.
    pub fn new(spec: BitLayerSpec) -> Result<BitLayer<P>, Error> {
        Ok(BitLayer::over(Bytes::zeroed(spec.bytes)?, spec))
    }

    #[inline]
    pub fn spec(&self) -> BitLayerSpec {
        self.spec
    }

    /// Returns the number of items that were new when they were inserted.
    #[inline]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns how many more items fit.
    #[inline]
    pub fn room(&self) -> u64 {
        self.spec.capacity.min(MAX_ITEMS).saturating_sub(self.items)
    }

    /// Counts an item whose bits are set, if there is room for it.
    pub fn count_known(&mut self) {
        self.items += u64::from(self.room() > 0);
    }

    pub fn set_bits(&self) -> u64 {
        self.set_bits
    }

    /// Returns the bits, as they are stored.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice().as_flattened()
    }

    /// Describes the layer. Its filter hashes items to this many bits.
    pub fn info(&self, hash_bits: u8) -> LayerInfo {
        let BitLayerSpec { bytes, bits, probes, capacity, error_rate, .. } = self.spec;
        let items = self.items;
        LayerInfo { bytes, bits, hash_bits, probes, blocks_per_item: None, capacity, items, error_rate }
    }

    /// Returns the estimated false-positive rate at the current fill.
    pub fn false_positive_rate(&self) -> f64 {
        let fill = self.set_bits as f64 / self.modulus.divisor.max(1) as f64;
        libm::pow(fill.min(1.0), self.spec.probes.into())
    }

    /// Returns true if the item may have been inserted.
    #[inline]
    pub fn contains(&self, hash: Hash) -> bool {
        self.others_are_set(self.probes(hash), self.spec.probes)
    }

    /// Merges `sources`, which have this layer's parameters, into the layer. If the layer is new, the result is the
    /// merge of `sources` alone. Returns true if the layer changed.
    ///
    /// The union of one source with a new layer is a copy. Its memory stays untouched where no bit is set.
    pub fn merge<'a>(
        &mut self,
        sources: impl Iterator<Item = &'a BitLayer<P>> + Clone,
        op: MergeOp,
        is_new: bool,
    ) -> bool {
        debug_assert!(sources.clone().all(|source| source.spec == self.spec), "layers of different shapes");
        let bytes = self.bytes.as_mut_slice().as_flattened_mut();
        let bits = sources.clone().map(BitLayer::bytes);
        let (changed, set_bits) = combine_bits(Destination { bytes, block: LINE, is_new }, bits, op);
        self.set_bits = set_bits;
        if changed || is_new {
            let items = sources.map(|source| source.items).chain((!is_new).then_some(self.items));
            let counts = items.map(|items| ItemCount::new(items, false));
            self.items = ItemCount::merged(op, counts, self.estimate()).items();
        }
        changed
    }

    pub fn relocate(&mut self, mover: Mover<'_>) {
        self.bytes.relocate(mover);
    }

    /// Sets the item's bits. Returns true if any of them was clear, which means that the item is new.
    ///
    /// The layer has [room](Self::room).
    #[inline]
    pub fn insert(&mut self, hash: Hash) -> bool {
        debug_assert!(self.room() > 0, "a full layer");
        let modulus = self.modulus;
        let mut probes = self.probes(hash);
        let bits = self.bytes.as_mut_slice().as_flattened_mut().view_bits_mut::<Lsb0>();
        let set: u64 = (0..self.spec.probes).map(|_| u64::from(!bits.replace(probes.next(modulus), true))).sum();
        self.set_bits += set;
        self.items += u64::from(set > 0);
        set > 0
    }

    /// Prefetches all probes of an item.
    #[inline]
    pub fn prefetch_insert(&self, hash: Hash) {
        self.prefetch_next(&mut self.probes(hash), self.spec.probes);
    }

    fn over(bytes: Bytes, spec: BitLayerSpec) -> BitLayer<P> {
        debug_assert!(spec.is_sound(), "{spec:?}");
        let modulus = Modulus::new(spec.used_bits().unwrap_or(0));
        BitLayer { bytes, spec, items: 0, set_bits: 0, modulus, probes: PhantomData }
    }

    /// Returns a layer with stored bits, or `None` unless `spec` is sound.
    pub fn from_stored(bytes: Bytes, spec: BitLayerSpec, items: u64) -> Option<BitLayer<P>> {
        debug_assert_eq!(bytes.as_slice().len() as u64, spec.bytes);
        spec.is_sound().then(|| {
            let set_bits = count_ones(bytes.as_slice().as_flattened());
            BitLayer { items, set_bits, ..BitLayer::over(bytes, spec) }
        })
    }

    /// Restores the item count of a stored layer.
    pub fn set_items(&mut self, items: u64) {
        self.items = items;
    }

    /// ORs `bits` into the layer from byte `offset` on. Returns whether the layer changed, or `None` if `bits` end
    /// beyond the layer.
    pub fn merge_part(&mut self, offset: usize, bits: &[u8]) -> Option<bool> {
        let set = or(self.part(offset, bits.len())?, bits);
        self.set_bits += set;
        Some(set > 0)
    }

    /// Overwrites the layer with `bits` from byte `offset` on. Returns whether the layer changed, or `None` if `bits`
    /// end beyond the layer.
    pub fn replace_part(&mut self, offset: usize, bits: &[u8]) -> Option<bool> {
        let target = self.part(offset, bits.len())?;
        let before = count_ones(target);
        let mut changed = false;
        let pages = target.chunks_mut(PAGE).zip(bits.chunks(PAGE));
        for (target, source) in pages.filter(|(target, source)| target != source) {
            target.copy_from_slice(source);
            changed = true;
        }
        self.set_bits = self.set_bits - before + count_ones(bits);
        Some(changed)
    }

    /// Estimates the number of items from the fill, after Swamidass and Baldi (2007).
    fn estimate(&self) -> f64 {
        let bits = self.modulus.divisor.max(1) as f64;
        let clear = 1.0 - (self.set_bits as f64 / bits).min(1.0 - 0.5 / bits);
        -bits / f64::from(self.spec.probes.max(1)) * libm::log(clear)
    }

    fn part(&mut self, offset: usize, length: usize) -> Option<&mut [u8]> {
        self.bytes.as_mut_slice().as_flattened_mut().get_mut(offset..)?.get_mut(..length)
    }

    #[inline]
    fn probes(&self, hash: Hash) -> P {
        P::new(hash, self.modulus)
    }

    /// Returns the number of probes that are read first, and the number of the others.
    ///
    /// For an absent item, a probe is only reached if all probes before it are set. At fill `f`, a split of 1 + 7
    /// probes costs `1 + 7 f` cache misses, and a split of 2 + 6 costs `2 + 6 f^2`. So 1 + 7 is better below `f = 1/6`.
    #[inline]
    fn split(&self) -> (u32, u32) {
        let first = if self.set_bits < self.modulus.divisor / 6 { 1 } else { 2 };
        let first = self.spec.probes.min(first);
        (first, self.spec.probes - first)
    }

    /// Returns those of `items` that the layer contains. Their first probes are prefetched.
    ///
    /// If the first probes of an item are set, its other probes are prefetched, and read [`AHEAD`] such items later.
    ///
    /// Not inlined: it would share its registers with the loop over the layers.
    #[inline(never)]
    fn present(&self, hashes: &[Hash], items: BatchMask) -> BatchMask {
        let (first, others) = self.split();
        let large = self.bytes().len() > LAYER_IN_CACHE;
        let mut present = 0;
        let mut likely = 0;
        let mut checked = 0;
        let mut waiting = [(0, P::default()); BATCH];
        let check = |(item, probes): (u32, P), present: BatchMask| {
            if self.others_are_set(probes, others) { present | 1 << item } else { present }
        };
        for item in arch::positions(items) {
            let mut probes = self.probes(hashes[item as usize]);
            if !self.first_are_set(&mut probes, first) {
                continue;
            }
            waiting[likely] = (item, probes);
            likely += 1;
            if large {
                self.prefetch_next(&mut probes, others);
            }
            if likely > checked + AHEAD {
                present = check(waiting[checked], present);
                checked += 1;
            }
        }
        waiting[checked..likely].iter().fold(present, |present, &item| check(item, present))
    }

    /// Returns true if the next `count` of `probes` are set. Branchless: all are read at once, and a branch for each
    /// would be mispredicted half of the time.
    #[inline]
    fn first_are_set(&self, probes: &mut P, count: u32) -> bool {
        let bits = self.bytes().view_bits::<Lsb0>();
        (0..count).fold(true, |all, _| all & bits[probes.next(self.modulus)])
    }

    /// Returns true if the next `count` of `probes` are set. Most often they are, so this stops at the first that is
    /// not.
    #[inline]
    fn others_are_set(&self, mut probes: P, count: u32) -> bool {
        let bits = self.bytes().view_bits::<Lsb0>();
        (0..count).all(|_| bits[probes.next(self.modulus)])
    }

    #[inline]
    fn prefetch_next(&self, probes: &mut P, count: u32) {
        let start = self.bytes().as_ptr();
        (0..count).for_each(|_| arch::prefetch(start.wrapping_add(probes.next(self.modulus) / 8)));
    }
}

/// Sets `found[i]` to whether one of `layers` contains the item of `hashes[i]`.
pub(crate) fn contains_hashes<P: Probes>(layers: &[BitLayer<P>], hashes: &[Hash], found: &mut [bool]) {
    if let &[hash] = hashes {
        found[0] = contains_one(layers, hash);
        return;
    }
    if is_deep(layers) {
        hashes.iter().zip(found).for_each(|(&hash, found)| *found = contains_bounded(layers, hash));
        return;
    }
    let batches = hashes.chunks(BATCH).zip(found.chunks_mut(BATCH));
    batches.for_each(|(hashes, found)| contains_batch(layers, hashes, found));
}

/// Prefetches the memory in which the items are looked up first.
#[inline]
pub(crate) fn prefetch<P: Probes>(layers: &[BitLayer<P>], hashes: &[Hash]) {
    if let Some(newest) = layers.last() {
        let (first, _) = newest.split();
        hashes.iter().for_each(|&hash| newest.prefetch_next(&mut newest.probes(hash), first));
    }
}

/// Returns true if one of `layers` contains the item.
pub(crate) fn contains_one<P: Probes>(layers: &[BitLayer<P>], hash: Hash) -> bool {
    if is_deep(layers) {
        return contains_bounded(layers, hash);
    }
    layers.iter().rev().any(|layer| layer.contains(hash))
}

/// Returns true if a look-up might exceed the [limit](Probes::MAX_OF_LOOKUP).
#[inline]
fn is_deep<P: Probes>(layers: &[BitLayer<P>]) -> bool {
    // The number of layers that cannot reach the limit, whatever their parameters.
    let max_shallow = const { (P::MAX_OF_LOOKUP / MAX_PROBES) as usize };
    layers.len() > max_shallow && layers.iter().map(|layer| layer.spec.probes).sum::<u32>() > P::MAX_OF_LOOKUP
}

/// Returns true if one of `layers` contains the item, or if the look-up reaches the [limit](Probes::MAX_OF_LOOKUP).
#[inline(never)]
fn contains_bounded<P: Probes>(layers: &[BitLayer<P>], hash: Hash) -> bool {
    let mut left = P::MAX_OF_LOOKUP;
    layers.iter().rev().any(|layer| {
        let most = layer.spec.probes.min(left);
        let bits = layer.bytes().view_bits::<Lsb0>();
        let mut probes = layer.probes(hash);
        let set = (0..most).take_while(|_| bits[probes.next(layer.modulus)]).count() as u32;
        left -= most.min(set + 1);
        set == most
    })
}

/// Looks up at most [`BATCH`] items, as [`contains_hashes`] does.
fn contains_batch<P: Probes>(layers: &[BitLayer<P>], hashes: &[Hash], found: &mut [bool]) {
    debug_assert!(hashes.len() <= BATCH, "a batch of {}", hashes.len());
    found.fill(false);
    let mut absent = BatchMask::MAX.checked_shr((BATCH - hashes.len()) as u32).unwrap_or(0);
    let mut older = layers.iter().rev().skip(1);
    for layer in layers.iter().rev() {
        // Prefetch the first probes of the next layer while this one is read.
        if let Some(next) = older.next().filter(|next| next.bytes().len() > LAYER_IN_CACHE) {
            let (first, _) = next.split();
            let prefetch = |item: u32| next.prefetch_next(&mut next.probes(hashes[item as usize]), first);
            arch::positions(absent).for_each(prefetch);
        }
        let present = layer.present(hashes, absent);
        arch::positions(present).for_each(|item| found[item as usize] = true);
        absent &= !present;
    }
}
