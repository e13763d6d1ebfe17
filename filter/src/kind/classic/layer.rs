//! The classic layer: RedisBloom's, bit for bit, so that filters can be migrated in both directions.
//!
//! ```text
//!  item ── MurmurHash64A ── a            (a + i b) mod m,  i = 0 .. k-1
//!    └─ MurmurHash64A, seed a ── b          │         │            │
//!                                           ▼         ▼            ▼
//!                             │ …  .  .  .  1 .  .  . 1 .  .  .  . 1 …  m bits │
//! ```
//!
//! Each of an item's `k` probes is in another cache line. Two things make look-ups faster than the original:
//!
//! - Batches of items are looked up in two steps. First, the first one or two probes of all items are prefetched
//!   together. Then the other probes are prefetched, but only for the items that may still be present.
//! - `a mod m` and `b mod m` are computed by multiplying with the reciprocal of `m`. Each further probe is one
//!   addition, and a subtraction if the sum reaches `m`.
//!
//! Each layer has half the error rate of the one before. Filters that were created before RedisBloom 2.0 may use 32-bit
//! hashes and sizes that are powers of two.

use std::ptr::NonNull;

use bitvec::prelude::*;

use crate::array::{self, Bytes};
use crate::batch::{BATCH, BatchMask, IN_CACHE};
use crate::error::Error;
use crate::hash::{Hash, Hasher};
use crate::item_count::{ItemCount, MAX_ITEMS, MergeOp};
use crate::layer::{LayerInfo, combine_bits};
use crate::line::count_ones;
use crate::sizing::textbook_false_positive_rate;
use crate::spec::Growth;

/// `ln^2 2` and `ln 2` with RedisBloom's digits. One more digit would give different filters.
const LN2_SQUARED: f64 = 0.480453013918201;
#[allow(clippy::approx_constant, reason = "the digits are RedisBloom's")]
const LN2: f64 = 0.693147180559945;

/// The bytes that RedisBloom takes for a filter without its layers.
pub const FILTER_BYTES: usize = 32;
/// The bytes that RedisBloom takes for a layer without its bits.
pub const LAYER_BYTES: usize = 64;

/// The maximum number of probes of an item: that for the lowest error rate that a double can represent, `2^-1074`.
pub const MAX_PROBES: u32 = 1075;

/// The maximum number of layers of a filter. RedisBloom halves the error rate with each layer, so the 1075th is the
/// last one whose rate a double can represent. A layer without bits may follow: see [`ClassicLayerSpec::is_sound`].
pub const MAX_LAYERS: usize = 1076;

/// The maximum number of probes of a look-up. A look-up that reaches it returns that the item is present.
///
/// A filter that was filled by additions never reaches it: at most half of the bits are set, so an absent item takes
/// about two probes a layer, or 2,200 with 1076 layers. In a forged filter, an absent item may take almost all 1075
/// probes of each layer: without this limit, a look-up took 3.7 ms. Setting more bits only makes look-ups longer, so an
/// item that was found by reaching the limit is found from then on.
pub const MAX_LOOKUP_PROBES: u32 = 8192;

/// The number of layers that cannot reach [`MAX_LOOKUP_PROBES`], whatever their parameters.
const MAX_SHALLOW_LAYERS: usize = (MAX_LOOKUP_PROBES / MAX_PROBES) as usize;

/// The maximum number of bits of a layer: sums of two positions must not overflow, and bitvec supports no more.
pub const MAX_BITS: u64 = 1 << 60;

/// The number of items whose probes are prefetched at a time. 4 items already saturate the memory, and more overflow
/// the processor's queues.
const AHEAD: usize = 4;

/// The size of a page. Unchanged pages are not written, so that a sparse filter stays sparse in memory.
const PAGE: usize = 4096;

/// The parameters that the layers of a classic filter share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicSpec {
    /// RedisBloom's options for hashing, sizing and growth.
    pub options: Options,
    /// The ratio of the sizes of successive layers. A loaded filter may have 0: it cannot grow.
    pub expansion: u32,
}

/// The options of a filter, as RedisBloom stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options(u32);

impl Options {
    /// The number of bits is not rounded up to a power of two.
    const NOT_ROUNDED: u32 = 1;
    /// The capacity of a further layer is the binary logarithm of its number of bits.
    const SIZED_BY_BITS: u32 = 2;
    /// Items are hashed with 64 bits, not 32.
    const WIDE_HASH: u32 = 4;
    /// The filter does not grow.
    const FIXED: u32 = 8;

    /// Returns the options, or `None` if there are unknown ones.
    pub fn new(bits: u32) -> Option<Options> {
        (bits < 16).then_some(Options(bits))
    }

    /// Returns the options as they are stored.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if the filter does not grow.
    pub fn is_fixed(self) -> bool {
        self.0 & Options::FIXED != 0
    }

    /// Returns the width of the hash in bits.
    pub fn hash_bits(self) -> u8 {
        if self.0 & Options::WIDE_HASH != 0 { 64 } else { 32 }
    }
}

impl ClassicSpec {
    /// Returns the parameters of a new filter. If it does not grow, it stores `stored_expansion`.
    pub fn new(growth: Growth, stored_expansion: u32) -> ClassicSpec {
        let options = Options::NOT_ROUNDED | Options::WIDE_HASH;
        match growth {
            Growth::Fixed => ClassicSpec { options: Options(options | Options::FIXED), expansion: stored_expansion },
            Growth::By(expansion) => ClassicSpec { options: Options(options), expansion: expansion.get() },
        }
    }

    /// Returns the ratio of the sizes of successive layers, or `None` if the filter does not grow.
    pub fn expansion(&self) -> Option<u32> {
        (!self.options.is_fixed()).then_some(self.expansion)
    }

    /// Returns the first layer of a filter. In a growing filter, it has half of the error rate.
    pub fn first(&self, capacity: u64, error_rate: f64) -> Result<ClassicLayerSpec, Error> {
        self.layer(capacity, if self.options.is_fixed() { error_rate } else { error_rate / 2.0 })
    }

    /// Returns the hash function of the filter.
    pub fn hasher(&self) -> Hasher {
        if self.options.hash_bits() == 64 { Hasher::Murmur64 } else { Hasher::Murmur32 }
    }

    /// Returns the layer that is added when the newest layer is full.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the filter does not grow; [`Error::CannotGrow`] or [`Error::OutOfMemory`] if no such layer is
    /// possible.
    pub fn next(&self, newest: &ClassicLayerSpec) -> Result<ClassicLayerSpec, Error> {
        if self.options.is_fixed() {
            return Err(Error::Full);
        }
        let capacity = newest.capacity.checked_mul(self.expansion.into()).ok_or(Error::OutOfMemory)?;
        self.layer(capacity, newest.error_rate / 2.0)
    }

    /// Returns a layer for `capacity` items with an error rate of its own.
    fn layer(&self, mut capacity: u64, error_rate: f64) -> Result<ClassicLayerSpec, Error> {
        if capacity == 0 || error_rate <= 0.0 {
            return Err(Error::CannotGrow);
        }
        // The system's logarithm, as in RedisBloom. A portable one may differ in the last bit.
        let bits_per_item = error_rate.ln().abs() / LN2_SQUARED;
        let optimum = capacity as f64 * bits_per_item;
        if optimum >= MAX_BITS as f64 {
            return Err(Error::OutOfMemory);
        }
        let (bits, log2_bits) = if self.options.0 & Options::SIZED_BY_BITS != 0 {
            let bits = 1u64.checked_shl(u32::try_from(capacity).unwrap_or(u32::MAX)).ok_or(Error::OutOfMemory)?;
            let log2_bits = capacity;
            capacity = (bits as f64 / bits_per_item) as u64;
            (bits, log2_bits)
        } else if self.options.0 & Options::NOT_ROUNDED != 0 || optimum < 1.0 {
            (optimum as u64, 0)
        } else {
            let bits = (optimum as u64 + 1).next_power_of_two();
            capacity += ((bits as f64 - optimum) / bits_per_item) as u64;
            (bits, bits.ilog2().into())
        };
        let bytes = bits.max(1).div_ceil(u64::BITS.into()) * 8;
        let probes = probes_for(bits_per_item);
        let spec = ClassicLayerSpec {
            bytes,
            bits: 8 * bytes,
            log2_bits: log2_bits as u8,
            probes,
            capacity,
            error_rate,
            bits_per_item,
        };
        if spec.is_sound() && spec.capacity > 0 { Ok(spec) } else { Err(Error::CannotGrow) }
    }
}

/// Returns the number of probes for `bits_per_item`.
pub fn probes_for(bits_per_item: f64) -> u32 {
    (LN2 * bits_per_item).ceil() as u32
}

/// The parameters of a classic layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassicLayerSpec {
    /// The size of the bit array in bytes.
    pub bytes: u64,
    /// The stored number of bits.
    pub bits: u64,
    /// The binary logarithm of the number of bits that are used, or 0 if that is not a power of two.
    pub log2_bits: u8,
    /// The number of bits that an item sets.
    pub probes: u32,
    /// The number of items that the layer is created for.
    pub capacity: u64,
    /// The layer's own false-positive rate.
    pub error_rate: f64,
    /// The number of bits per item, computed from the error rate.
    pub bits_per_item: f64,
}

impl ClassicLayerSpec {
    /// Returns true if all probes are in the bounds of the layer, and look-ups end.
    pub fn is_sound(&self) -> bool {
        let used = self.used_bits();
        let has_bits = used.is_some_and(|used| (1..=MAX_BITS).contains(&used) && used.div_ceil(8) <= self.bytes);
        self.is_void()
            || has_bits
                && self.bits.div_ceil(8) <= self.bytes
                && self.bytes <= MAX_BITS / 8
                && (1..=MAX_PROBES).contains(&self.probes)
                && self.error_rate > 0.0
                && self.error_rate < 1.0
                && self.bits_per_item > 0.0
                && self.bits_per_item.is_finite()
    }

    /// Returns true for the empty layer that RedisBloom leaves behind when growth fails. It matches every item. We
    /// accept it, since rejecting it would reject the whole RDB file.
    fn is_void(&self) -> bool {
        let is_nothing = (self.bytes, self.bits, self.probes, self.capacity) == (0, 0, 0, 0);
        is_nothing && (self.error_rate, self.bits_per_item) == (0.0, 0.0)
    }

    /// Returns the false-positive rate after `items` distinct items were inserted.
    pub fn false_positive_rate(&self, items: u64) -> f64 {
        match items {
            0 => 0.0,
            _ => textbook_false_positive_rate(self.used_bits().unwrap_or(0) as f64 / items as f64, self.probes),
        }
    }

    /// Returns the number of bits that items are spread over.
    fn used_bits(&self) -> Option<u64> {
        match self.log2_bits {
            0 => Some(self.bits),
            log2_bits => 1u64.checked_shl(log2_bits.into()),
        }
    }
}

/// A layer of bits in RedisBloom's layout, with its counts.
pub struct ClassicLayer {
    bytes: Bytes,
    spec: ClassicLayerSpec,
    items: u64,
    set_bits: u64,
    modulus: Modulus,
}

impl ClassicLayer {
    /// Creates an empty layer.
    pub fn new(spec: ClassicLayerSpec) -> Result<ClassicLayer, Error> {
        Ok(ClassicLayer::over(Bytes::zeroed(spec.bytes)?, spec))
    }

    /// Returns the parameters of the layer.
    #[inline]
    pub fn spec(&self) -> ClassicLayerSpec {
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

    /// Returns the number of bits that are set.
    pub fn set_bits(&self) -> u64 {
        self.set_bits
    }

    /// Returns the bits, as they are stored.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice().as_flattened()
    }

    /// Describes the layer, which belongs to `filter`.
    pub fn info(&self, filter: &ClassicSpec) -> LayerInfo {
        let ClassicLayerSpec { bytes, bits, probes, capacity, error_rate, .. } = self.spec;
        let hash_bits = filter.options.hash_bits();
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
        sources: impl Iterator<Item = &'a ClassicLayer> + Clone,
        op: MergeOp,
        is_new: bool,
    ) -> bool {
        debug_assert!(sources.clone().all(|source| source.spec == self.spec), "layers of different shapes");
        let bytes = self.bytes.as_mut_slice().as_flattened_mut();
        let bits = sources.clone().map(ClassicLayer::bytes);
        let (changed, set_bits) = combine_bits(bytes, bits, op, is_new);
        self.set_bits = set_bits;
        if changed || is_new {
            let items = sources.map(|source| source.items).chain((!is_new).then_some(self.items));
            let counts = items.map(|items| ItemCount::new(items, false));
            self.items = ItemCount::merged(op, counts, self.estimate()).items();
        }
        changed
    }

    /// Lets `relocate` move the bits.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { self.bytes.relocate(relocate) };
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

    /// The number of insertions between the prefetch of an item's memory and its insertion.
    pub const INSERTS_AHEAD: usize = AHEAD;

    /// Returns true if an insertion reads more memory than [`prefetch`] prefetches.
    #[inline]
    pub fn inserts_look_further(&self) -> bool {
        self.bytes().len() > IN_CACHE
    }

    /// Prefetches all probes of an item.
    #[inline]
    pub fn prefetch_insert(&self, hash: Hash) {
        self.prefetch_next(&mut self.probes(hash), self.spec.probes);
    }

    fn over(bytes: Bytes, spec: ClassicLayerSpec) -> ClassicLayer {
        debug_assert!(spec.is_sound(), "{spec:?}");
        let modulus = Modulus::new(spec.used_bits().unwrap_or(0));
        ClassicLayer { bytes, spec, items: 0, set_bits: 0, modulus }
    }

    /// Returns a layer with stored bits, or `None` unless `spec` is sound and matches the bits.
    pub fn from_stored(bytes: Bytes, spec: ClassicLayerSpec, items: u64) -> Option<ClassicLayer> {
        let fits = bytes.as_slice().len() as u64 == spec.bytes && spec.is_sound();
        fits.then(|| {
            let set_bits = count_ones(bytes.as_slice().as_flattened());
            ClassicLayer { items, set_bits, ..ClassicLayer::over(bytes, spec) }
        })
    }

    /// Restores the item count of a stored layer.
    pub fn set_items(&mut self, items: u64) {
        self.items = items;
    }

    /// ORs `bits` into the layer from byte `offset` on. Returns whether the layer changed, or `None` if `bits` end
    /// beyond the layer.
    pub fn merge_part(&mut self, offset: usize, bits: &[u8]) -> Option<bool> {
        let target = self.part(offset, bits.len())?;
        let mut set = 0;
        for (target, source) in target.chunks_mut(PAGE).zip(bits.chunks(PAGE)) {
            if count_ones(source) > 0 {
                let before = count_ones(target);
                target.iter_mut().zip(source).for_each(|(target, source)| *target |= source);
                set += count_ones(target) - before;
            }
        }
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
    fn probes(&self, hash: Hash) -> ClassicProbes {
        ClassicProbes::new(hash, self.modulus)
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
    #[inline]
    fn present(&self, hashes: &[Hash], items: BatchMask) -> BatchMask {
        let (first, others) = self.split();
        let large = self.bytes().len() > IN_CACHE;
        let mut present = BatchMask::EMPTY;
        let mut likely = 0;
        let mut checked = 0;
        let mut waiting = [(0, ClassicProbes::default()); BATCH];
        let check = |(item, probes): (usize, ClassicProbes), present: BatchMask| {
            if self.others_are_set(probes, others) { present.with(item) } else { present }
        };
        for item in items.iter() {
            let mut probes = self.probes(hashes[item]);
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
    fn first_are_set(&self, probes: &mut ClassicProbes, count: u32) -> bool {
        let bits = self.bytes().view_bits::<Lsb0>();
        (0..count).fold(true, |all, _| all & bits[probes.next(self.modulus)])
    }

    /// Returns true if the next `count` of `probes` are set. Most often they are, so this stops at the first that is
    /// not.
    #[inline]
    fn others_are_set(&self, mut probes: ClassicProbes, count: u32) -> bool {
        let bits = self.bytes().view_bits::<Lsb0>();
        (0..count).all(|_| bits[probes.next(self.modulus)])
    }

    #[inline]
    fn prefetch_next(&self, probes: &mut ClassicProbes, count: u32) {
        let start = self.bytes().as_ptr();
        (0..count).for_each(|_| array::prefetch(start.wrapping_add(probes.next(self.modulus) / 8)));
    }
}

/// Sets `found[i]` to whether one of `layers` contains the item of `hashes[i]`.
pub fn contains_hashes(layers: &[ClassicLayer], hashes: &[Hash], found: &mut [bool]) {
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
pub fn prefetch(layers: &[ClassicLayer], hashes: &[Hash]) {
    if let Some(newest) = layers.last() {
        let (first, _) = newest.split();
        hashes.iter().for_each(|&hash| newest.prefetch_next(&mut newest.probes(hash), first));
    }
}

#[inline]
fn contains_one(layers: &[ClassicLayer], hash: Hash) -> bool {
    if is_deep(layers) {
        return contains_bounded(layers, hash);
    }
    layers.iter().rev().any(|layer| layer.contains(hash))
}

/// Returns true if a look-up might exceed [`MAX_LOOKUP_PROBES`].
#[inline]
fn is_deep(layers: &[ClassicLayer]) -> bool {
    layers.len() > MAX_SHALLOW_LAYERS && layers.iter().map(|layer| layer.spec.probes).sum::<u32>() > MAX_LOOKUP_PROBES
}

/// Returns true if one of `layers` contains the item, or if the look-up reaches [`MAX_LOOKUP_PROBES`].
#[inline(never)]
fn contains_bounded(layers: &[ClassicLayer], hash: Hash) -> bool {
    let mut left = MAX_LOOKUP_PROBES;
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
fn contains_batch(layers: &[ClassicLayer], hashes: &[Hash], found: &mut [bool]) {
    debug_assert!(hashes.len() <= BATCH, "a batch of {}", hashes.len());
    found.fill(false);
    let mut absent = BatchMask::first(hashes.len());
    let mut older = layers.iter().rev().skip(1);
    for layer in layers.iter().rev() {
        // Prefetch the first probes of the next layer while this one is read.
        if let Some(next) = older.next().filter(|next| next.bytes().len() > IN_CACHE) {
            let (first, _) = next.split();
            absent.iter().for_each(|item| next.prefetch_next(&mut next.probes(hashes[item]), first));
        }
        let present = layer.present(hashes, absent);
        present.iter().for_each(|item| found[item] = true);
        absent = absent.without(present);
    }
}

/// The number of bits of a layer, prepared for fast division.
#[derive(Clone, Copy, Debug)]
struct Modulus {
    divisor: u64,
    /// `floor((2^64 - 1) / divisor)`
    reciprocal: u64,
    /// `-2^64 mod divisor`, which is added when the sum of two words overflows.
    carry: u64,
}

impl Modulus {
    /// Prepares a divisor up to [`MAX_BITS`]. If it is 0, no position follows from the result.
    fn new(divisor: u64) -> Modulus {
        debug_assert!(divisor <= MAX_BITS, "{divisor} bits");
        let reciprocal = u64::MAX.checked_div(divisor).unwrap_or(0);
        let carry = u64::MAX.checked_rem(divisor).map_or(0, |rest| divisor - 1 - rest);
        Modulus { divisor, reciprocal, carry }
    }

    /// Returns `number mod divisor`, after Barrett (1986): the quotient from the reciprocal is at most one too small.
    #[inline]
    fn of(self, number: u64) -> u64 {
        let quotient = ((u128::from(number) * u128::from(self.reciprocal)) >> 64) as u64;
        self.wrap(number - quotient * self.divisor)
    }

    /// Returns `number mod divisor` for numbers below `2 * divisor`. Branchless: the comparison is unpredictable.
    #[inline]
    fn wrap(self, number: u64) -> u64 {
        number.min(number.wrapping_sub(self.divisor))
    }
}

/// The bit positions of an item: `(first + i * second) mod 2^64 mod divisor` for `i = 0, 1, …`.
#[derive(Clone, Copy, Debug, Default)]
struct ClassicProbes {
    sum: u64,
    addend: u64,
    position: u64,
    step: u64,
    step_with_carry: u64,
}

impl ClassicProbes {
    #[inline]
    fn new(hash: Hash, modulus: Modulus) -> ClassicProbes {
        let step = modulus.of(hash.second);
        ClassicProbes {
            sum: hash.first,
            addend: hash.second,
            position: modulus.of(hash.first),
            step,
            step_with_carry: modulus.wrap(step + modulus.carry),
        }
    }

    #[inline]
    fn next(&mut self, modulus: Modulus) -> usize {
        let position = self.position;
        debug_assert!(position < modulus.divisor, "a probe outside of the layer");
        let (sum, carried) = self.sum.overflowing_add(self.addend);
        self.sum = sum;
        self.position = modulus.wrap(position + if carried { self.step_with_carry } else { self.step });
        position as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_are_exact(
            first: u64,
            second in prop_oneof![any::<u64>(), 0u64..10, Just(u64::MAX)],
            divisor in prop_oneof![1..=MAX_BITS, 1u64..1000, (0u32..=60).prop_map(|bits| 1 << bits)],
        ) {
            let modulus = Modulus::new(divisor);
            let mut probes = ClassicProbes::new(Hash { first, second }, modulus);
            for probe in 0..64u64 {
                let expected = first.wrapping_add(probe.wrapping_mul(second)) % divisor;
                prop_assert_eq!(probes.next(modulus) as u64, expected);
            }
        }

        #[test]
        fn remainders_are_exact(number: u64, divisor in 1..=MAX_BITS) {
            for number in [number, number - number % divisor, (number - number % divisor).saturating_sub(1), u64::MAX] {
                prop_assert_eq!(Modulus::new(divisor).of(number), number % divisor);
            }
        }
    }
}
