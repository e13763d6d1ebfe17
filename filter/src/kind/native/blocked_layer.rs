//! The native layer: a blocked Bloom filter after Putze, Sanders and Singler (2007). Blocks have 512 bits, except in
//! small filters, where a block may have fewer or more words.
//!
//! ```text
//!  block (one cache line)      0        1        2               B-1
//!                          │ 64 B   │ 64 B   │ 64 B   │  …  │ 64 B   │
//!                               ▲        ▲▲▲
//!  item ── hash ── 2 blocks ────┴────────┘     k probes in all, divided among the blocks
//! ```
//!
//! An item costs `L` cache misses, one per block. In a classic filter it costs `k`, one per probe.
//! [`sizing`](crate::sizing) explains the memory that blocking costs, and chooses `L` and `k`.
//!
//! Bits are read and set through `bitvec`, except where [`lines`] is faster. The first items of a small filter that grows
//! have [fingerprints] instead.

mod fingerprints;

use std::ops::Range;

use bitvec::prelude::*;

use super::lines;
use crate::array::{Mover, WORD, Words};
use crate::error::Error;
use crate::hash::Hash;
use crate::item_count::{ItemCount, MAX_ITEMS, MergeOp};
use crate::layer::{Destination, LayerInfo, combine_bits, fold_blocks};
use crate::line::{LINE, Line, count_ones, or};
use crate::probe::{ItemBlocks, ProbePattern};
use crate::sizing::{BlockShape, Budget, LOWEST_ERROR_RATE, WORDS_PER_LINE, textbook_bits_per_item};
use crate::spec::{Growth, OwnSpec};

/// The parameters of a native layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedSpec {
    pub shape: BlockShape,
    pub capacity: u64,
}

impl BlockedSpec {
    /// Returns the spec of the layer of a filter for `capacity` items.
    ///
    /// In a fixed filter, the layer has the whole error rate and a tight budget. In a growing filter, the layer may
    /// take as much memory as RedisBloom's first layer.
    pub fn new(filter: &OwnSpec, capacity: u64) -> Result<BlockedSpec, Error> {
        let budget = match filter.growth {
            Growth::By(_) => Budget::RedisBloom { rate: filter.error_rate.get() },
            Growth::Fixed => Budget::Tight,
        };
        let shape = BlockShape::choose(capacity, filter.layer_error_rate(), budget).ok_or(Error::OutOfMemory)?;
        let fingerprints = match filter.growth {
            Growth::By(_) => BlockShape::of_fingerprints(capacity, filter.error_rate.get(), shape.bytes()),
            Growth::Fixed => None,
        };
        Ok(BlockedSpec { shape: fingerprints.unwrap_or(shape), capacity })
    }

    /// Returns the false-positive rate of a filter's layer when it is full.
    pub fn full_rate(&self, filter: &OwnSpec) -> f64 {
        let most = filter.layer_error_rate();
        self.shape.full_rate(self.capacity, most).min(most)
    }

    /// Returns the spec of the smallest layer into which the layer can be folded so that it keeps its error rate with
    /// `items` items.
    ///
    /// Folding by `k` keeps the number of items a block, and so the rate, if the capacity is divided by `k` too.
    pub fn folded_for(self, filter: &OwnSpec, items: u64) -> BlockedSpec {
        let BlockedSpec { shape, capacity } = self;
        let rate = filter.layer_error_rate();
        // High rates exceed it: see `Guarantee`.
        let most = shape.full_rate(capacity, rate).max(rate);
        let least_bits = items as f64 * textbook_bits_per_item(most);
        let folded = |factor: u64| {
            let shape = shape.folded_by(factor).filter(|shape| shape.bits() as f64 >= least_bits)?;
            let capacity = items.max(capacity / factor).max(1);
            (shape.full_rate(capacity, rate) <= most).then_some(BlockedSpec { shape, capacity })
        };
        let root = shape.blocks.isqrt();
        let divides = |divisor: &u64| shape.blocks.is_multiple_of(*divisor);
        let large = (1..=root).filter(divides).map(|divisor| shape.blocks / divisor);
        large.chain((2..=root).rev().filter(divides)).find_map(folded).unwrap_or(self)
    }
}

/// A layer of bits in blocks, with its counts.
pub struct BlockedLayer {
    /// The blocks, and the pattern by which items are spread over them; or fingerprints, and their maximum number.
    words: Words<(ProbePattern, u16)>,
    count: ItemCount,
    /// The number of bits that are set. A layer of fingerprints has its last word but one here instead.
    set_bits: u64,
    /// The number of items that the blocks are for. A layer of fingerprints has its last word here instead.
    capacity: u64,
}

impl BlockedLayer {
    /// Creates an empty layer.
    pub fn new(BlockedSpec { shape, capacity }: BlockedSpec) -> Result<BlockedLayer, Error> {
        debug_assert!(shape.is_sound(), "{shape:?}");
        let [of_blocks, of_fingerprints] = if shape.is_of_fingerprints() { [0, capacity] } else { [capacity, 0] };
        let label = (ProbePattern::new(shape), of_fingerprints as u16);
        let words = Words::labelled(shape.bytes() / WORD as u64, label)?;
        Ok(BlockedLayer { words, count: ItemCount::default(), set_bits: 0, capacity: of_blocks })
    }

    /// Returns a copy that shares nothing. Its memory stays untouched where no bit is set.
    pub fn try_clone(&self) -> Result<BlockedLayer, Error> {
        let mut words = Words::labelled(self.words.as_slice().len() as u64, self.words.label())?;
        let bytes = words.as_mut_slice().as_flattened_mut();
        let copy = Destination { bytes, block: self.block_bytes(), is_new: true };
        combine_bits(copy, std::iter::once(self.bytes()), MergeOp::Union);
        Ok(BlockedLayer { words, ..*self })
    }

    /// Returns the parameters of the layer.
    #[inline]
    pub fn spec(&self) -> BlockedSpec {
        BlockedSpec { shape: self.shape(), capacity: self.capacity() }
    }

    /// Returns the number of items that the layer is for.
    #[inline]
    fn capacity(&self) -> u64 {
        if self.is_of_fingerprints() { self.words.label().1.into() } else { self.capacity }
    }

    /// Returns the shape of the blocks.
    #[inline]
    pub fn shape(&self) -> BlockShape {
        let pattern = self.pattern();
        let ProbePattern { words, blocks_per_item, .. } = pattern;
        let blocks = if self.is_of_fingerprints() { self.capacity() } else { self.blocks() as u64 };
        BlockShape { blocks, words, blocks_per_item, probes: pattern.probes() }
    }

    #[inline]
    fn pattern(&self) -> ProbePattern {
        self.words.label().0
    }

    #[inline]
    fn blocks(&self) -> usize {
        self.pattern().blocks_in(self.words.as_slice().len())
    }

    /// Returns true if the blocks are cache lines.
    #[inline]
    fn is_of_lines(&self) -> bool {
        self.pattern().words == WORDS_PER_LINE
    }

    /// Returns true if the layer has fingerprints instead of blocks.
    #[inline]
    pub fn is_of_fingerprints(&self) -> bool {
        self.pattern().words == 0
    }

    /// Returns the blocks, if they are cache lines.
    #[inline]
    fn lines(&self) -> &[Line] {
        self.bytes().as_chunks().0
    }

    /// Returns the number of items that were new when they were inserted.
    #[inline]
    pub fn items(&self) -> u64 {
        self.count.items()
    }

    /// Returns how many more items fit.
    #[inline]
    fn room(&self) -> u64 {
        self.capacity().min(MAX_ITEMS).saturating_sub(self.items())
    }

    /// Counts an item whose bits are set, if there is room for it. Fingerprints are counted when they are inserted.
    pub fn count_known(&mut self) {
        self.count.increment(self.room() > 0 && !self.is_of_fingerprints());
    }

    /// Returns the number of bits that are set, or of fingerprints.
    pub fn set_bits(&self) -> u64 {
        if self.is_of_fingerprints() { self.items() } else { self.set_bits }
    }

    /// Returns the bits, as they are stored.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.words.as_slice().as_flattened()
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.words.as_mut_slice().as_flattened_mut()
    }

    fn block_bytes(&self) -> usize {
        usize::from(self.pattern().words) * WORD
    }

    fn block(&self, block: usize) -> Range<usize> {
        let size = self.block_bytes();
        block * size..(block + 1) * size
    }

    /// Returns the blocks of an item, all different, each with its number of probes.
    #[inline]
    fn blocks_of(&self, hash: Hash) -> ItemBlocks {
        self.pattern().blocks_of(hash, self.blocks())
    }

    /// Describes the layer, which belongs to `filter`.
    pub fn info(&self, filter: &OwnSpec) -> LayerInfo {
        let shape = self.shape();
        if self.is_of_fingerprints() {
            let rate = self.spec().full_rate(filter);
            return LayerInfo::of_fingerprints(shape.bytes(), 128, self.capacity(), self.items(), rate);
        }
        LayerInfo {
            bytes: shape.bytes(),
            bits: 8 * shape.bytes(),
            hash_bits: 128,
            probes: shape.probes.into(),
            blocks_per_item: Some(shape.blocks_per_item),
            capacity: self.capacity,
            items: self.items(),
            error_rate: filter.layer_error_rate().max(LOWEST_ERROR_RATE),
        }
    }

    /// Returns the fraction of bits that are set, or the number of fingerprints as a fraction of the capacity.
    pub fn fill(&self) -> f64 {
        let all = if self.is_of_fingerprints() { self.capacity() } else { self.shape().bits() };
        self.set_bits() as f64 / all as f64
    }

    /// Returns the estimated false-positive rate at the current fill.
    pub fn false_positive_rate(&self) -> f64 {
        let shape = self.shape();
        let items = if self.is_of_fingerprints() { self.items() as f64 } else { shape.items_from_fill(self.set_bits) };
        shape.false_positive_rate(items)
    }

    /// Returns true if the item may have been inserted.
    #[inline]
    pub fn contains(&self, hash: Hash) -> bool {
        if self.is_of_lines() { lines::contains(self.lines(), self.pattern(), hash) } else { self.small_contains(hash) }
    }

    /// Sets `found[i]` to whether the item of `hashes[i]` may have been inserted.
    #[inline]
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool]) {
        if self.is_of_lines() {
            lines::contains_hashes(self.lines(), self.pattern(), hashes, found);
        } else {
            let is_empty = self.items() == 0;
            found.iter_mut().zip(hashes).for_each(|(found, &hash)| *found = !is_empty && self.small_contains(hash));
        }
    }

    /// Prefetches the memory that any operation on the items reads first, unless the layer is small.
    #[inline]
    pub fn prefetch(&self, hashes: &[Hash]) {
        if self.is_of_lines() {
            lines::prefetch(self.lines(), self.pattern(), hashes);
        }
    }

    /// Merges `sources` into the layer. They [can be folded](BlockShape::folded_by) to its shape, or have it. If the
    /// layer is new, the result is the merge of `sources` alone. Returns true if the layer changed.
    ///
    /// The union of one source with a new layer is a copy. Its memory stays untouched where no bit is set.
    pub fn merge<'a>(
        &mut self,
        sources: impl Iterator<Item = &'a BlockedLayer> + Clone,
        op: MergeOp,
        is_new: bool,
    ) -> bool {
        debug_assert!(sources.clone().all(|source| source.folds_to(self.shape())), "layers of different shapes");
        debug_assert!(!self.is_of_fingerprints(), "see `insert_merged`");
        let bits = sources.clone().map(BlockedLayer::bytes);
        let block = self.block_bytes();
        let (changed, set_bits) = combine_bits(Destination { bytes: self.bytes_mut(), block, is_new }, bits, op);
        self.set_bits = set_bits;
        if changed || is_new {
            let operands = sources.map(|source| source.count).chain((!is_new).then_some(self.count));
            self.count = ItemCount::merged(op, operands, self.shape().items_from_fill(set_bits));
        }
        changed
    }

    /// Returns true if the layer has this shape, or can be folded to it.
    pub fn folds_to(&self, shape: BlockShape) -> bool {
        let factor = self.shape().blocks / shape.blocks;
        self.shape().folded_by(factor) == Some(shape)
    }

    /// Makes the layer one of a spec from `BlockedSpec::folded_for`, with the same items: each of its blocks has all bits
    /// of as many neighbouring blocks as were folded into it. So it is bit for bit the layer that was created with this
    /// spec, with the items inserted into it.
    pub fn fold(&mut self, spec: BlockedSpec) -> Result<(), Error> {
        // Only used if the allocator cannot shrink the array: until then, the system provides no page of it.
        let mut spare = BlockedLayer::new(spec)?;
        let (block, factor) = (self.block_bytes(), self.blocks() / spare.blocks());
        self.set_bits = fold_blocks(self.bytes_mut(), block, factor);
        if !self.words.truncate(spare.words.as_slice().len()) {
            let folded = &self.bytes()[..spare.bytes().len()];
            spare.bytes_mut().copy_from_slice(folded);
            self.words = spare.words;
        }
        self.capacity = spec.capacity;
        Ok(())
    }

    /// Lets a mover move the bits.
    pub fn relocate(&mut self, mover: Mover<'_>) {
        self.words.relocate(mover);
    }

    /// Inserts an item, unless the layer is full or its blocks are not cache lines. Returns whether it was new.
    #[inline(always)]
    pub fn insert_one(&mut self, hash: Hash) -> Option<bool> {
        if !self.is_of_lines() || self.room() == 0 {
            return None;
        }
        let pattern = self.pattern();
        let set = lines::set_one(self.bytes_mut().as_chunks_mut().0, pattern, hash);
        self.set_bits += set;
        self.count.increment(set > 0);
        Some(set > 0)
    }

    /// Inserts items in order until one does not fit, and sets `new[i]` to whether item `i` was new. Returns the number
    /// of items handled.
    #[inline]
    pub fn insert_while_room(&mut self, hashes: &[Hash], new: &mut [bool]) -> usize {
        let mut handled = 0;
        while handled < hashes.len() {
            // As many items fit, even if all of them are new.
            let fitting = self.room().min((hashes.len() - handled) as u64) as usize;
            if fitting > 0 {
                let end = handled + fitting;
                self.insert(&hashes[handled..end], &mut new[handled..end]);
                handled = end;
            } else if self.contains(hashes[handled]) {
                new[handled] = false;
                handled += 1;
            } else {
                break;
            }
        }
        handled
    }

    /// Inserts items in order, and sets `new[i]` to whether item `i` was new: whether any of its bits was clear.
    #[inline]
    fn insert(&mut self, hashes: &[Hash], new: &mut [bool]) {
        debug_assert!(new.len() == hashes.len() && self.room() >= hashes.len() as u64, "room for all items");
        if self.is_of_fingerprints() {
            return new.iter_mut().zip(hashes).for_each(|(new, &hash)| *new = self.insert_fingerprint(hash));
        }
        let pattern = self.pattern();
        self.set_bits += if self.is_of_lines() {
            lines::insert_many(self.bytes_mut().as_chunks_mut().0, pattern, hashes, new)
        } else {
            let mut set_bits = 0;
            for (new, &hash) in new.iter_mut().zip(hashes) {
                let set = self.set_in_small(hash);
                *new = set > 0;
                set_bits += set;
            }
            set_bits
        };
        new.iter().for_each(|&is_new| self.count.increment(is_new));
    }

    /// Returns true if the item may have been inserted, in blocks that are not cache lines.
    #[inline(never)]
    fn small_contains(&self, hash: Hash) -> bool {
        if self.is_of_fingerprints() {
            return self.has_fingerprint(hash);
        }
        let mut positions = hash.probes_below(8 * self.block_bytes() as u64);
        self.blocks_of(hash).all(|(block, probes)| {
            let block = self.bytes()[self.block(block)].view_bits::<Lsb0>();
            positions.by_ref().take(probes.into()).all(|position| block[position])
        })
    }

    /// Sets the item's bits in blocks that are not cache lines. Returns the number of bits that were clear.
    #[inline(never)]
    fn set_in_small(&mut self, hash: Hash) -> u64 {
        let mut positions = hash.probes_below(8 * self.block_bytes() as u64);
        let mut set = 0;
        for (block, probes) in self.blocks_of(hash) {
            let range = self.block(block);
            let block = self.bytes_mut()[range].view_bits_mut::<Lsb0>();
            for position in positions.by_ref().take(probes.into()) {
                set += u64::from(!block.replace(position, true));
            }
        }
        set
    }

    /// Returns the item count.
    pub fn count(&self) -> ItemCount {
        self.count
    }

    /// Restores the item count of a stored layer.
    pub fn set_item_count(&mut self, count: ItemCount) {
        self.count = count;
    }

    /// ORs `bits` into the layer from byte `offset` on. Returns whether the layer changed, or `None` if `bits` are not
    /// whole blocks of the layer.
    ///
    /// Bits are never cleared, so chunks that arrive twice or late cannot cause false negatives.
    pub fn merge_part(&mut self, offset: usize, bits: &[u8]) -> Option<bool> {
        let set = or(self.part(offset, bits.len())?, bits);
        self.set_bits += set;
        Some(set > 0)
    }

    /// Copies `bits` into the layer from byte `offset` on, where no bit is set yet. Returns `None` as
    /// [`merge_part`](Self::merge_part) does.
    ///
    /// Unlike `merge_part`, this does not read memory before writing, which saves one of two page faults a page: 12 MB
    /// take 1.3 ms instead of 4.4.
    pub fn load_part(&mut self, offset: usize, bits: &[u8]) -> Option<()> {
        let (lines, rest) = self.part(offset, bits.len())?.as_chunks_mut::<LINE>();
        let (of_lines, of_rest) = bits.as_chunks();
        rest.copy_from_slice(of_rest);
        let mut set = count_ones(of_rest);
        for (target, source) in lines.iter_mut().zip(of_lines) {
            let in_line = count_ones(source);
            // Empty blocks are not written: the pages of a sparse filter stay untouched.
            if in_line > 0 {
                *target = *source;
            }
            set += in_line;
        }
        self.set_bits += set;
        Some(())
    }

    /// Returns the `length` bytes from byte `offset` on, or `None` if they are not whole blocks of the layer.
    fn part(&mut self, offset: usize, length: usize) -> Option<&mut [u8]> {
        if !offset.is_multiple_of(self.block_bytes()) || !length.is_multiple_of(self.block_bytes()) {
            return None;
        }
        self.bytes_mut().get_mut(offset..)?.get_mut(..length)
    }
}
