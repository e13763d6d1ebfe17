//! The native layer: a blocked Bloom filter after Putze, Sanders and Singler (2007). Blocks have 512 bits, except in
//! small filters.
//!
//! [`block_array`](crate::block_array) finds an item's blocks. An item costs `L` cache misses, one per block. In a
//! classic filter it costs `k`, one per probe. [`sizing`](crate::sizing) explains the memory that blocking costs, and
//! chooses `L` and `k`.
//!
//! Bits are read and set through `bitvec`, except where [`lines`] is faster.

use bitvec::prelude::*;

use super::lines;
use crate::array::{Mover, WORD};
use crate::block_array::BlockArray;
use crate::error::Error;
use crate::hash::Hash;
use crate::item_count::{ItemCount, MAX_ITEMS, MergeOp};
use crate::layer::{LayerInfo, combine_bits};
use crate::line::{Line, count_ones, or};
use crate::sizing::{BlockShape, Budget, LOWEST_ERROR_RATE};
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
        let shape = BlockShape::choose(capacity, filter.layer_error_rate(), budget);
        Ok(BlockedSpec { shape: shape.ok_or(Error::OutOfMemory)?, capacity })
    }

    /// Returns the false-positive rate of a filter's layer when it is full.
    pub fn full_rate(&self, filter: &OwnSpec) -> f64 {
        let most = filter.layer_error_rate();
        self.shape.full_rate(self.capacity, most).min(most)
    }
}

/// A layer of bits in blocks, with its counts.
pub struct BlockedLayer {
    array: BlockArray,
    capacity: u64,
    count: ItemCount,
    set_bits: u64,
}

impl BlockedLayer {
    /// Creates an empty layer.
    pub fn new(BlockedSpec { shape, capacity }: BlockedSpec) -> Result<BlockedLayer, Error> {
        Ok(BlockedLayer { array: BlockArray::new(shape)?, capacity, count: ItemCount::default(), set_bits: 0 })
    }

    /// Returns the parameters of the layer.
    #[inline]
    pub fn spec(&self) -> BlockedSpec {
        BlockedSpec { shape: self.array.shape(), capacity: self.capacity }
    }

    /// Returns the number of items that were new when they were inserted.
    #[inline]
    pub fn items(&self) -> u64 {
        self.count.items()
    }

    /// Returns how many more items fit.
    #[inline]
    fn room(&self) -> u64 {
        self.capacity.min(MAX_ITEMS).saturating_sub(self.items())
    }

    /// Returns the number of bits that are set.
    pub fn set_bits(&self) -> u64 {
        self.set_bits
    }

    /// Returns the bits, as they are stored.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.array.bytes()
    }

    /// Describes the layer, which belongs to `filter`.
    pub fn info(&self, filter: &OwnSpec) -> LayerInfo {
        let shape = self.array.shape();
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

    /// Returns the fraction of bits that are set.
    pub fn fill(&self) -> f64 {
        self.set_bits as f64 / self.array.shape().bits() as f64
    }

    /// Returns the estimated false-positive rate at the current fill.
    pub fn false_positive_rate(&self) -> f64 {
        let shape = self.array.shape();
        shape.false_positive_rate(shape.items_from_fill(self.set_bits))
    }

    /// Returns true if the item may have been inserted.
    #[inline]
    pub fn contains(&self, hash: Hash) -> bool {
        if self.array.is_of_lines() {
            lines::contains(self.array.lines(), self.array.pattern(), hash)
        } else {
            self.small_contains(hash)
        }
    }

    /// Sets `found[i]` to whether the item of `hashes[i]` may have been inserted.
    #[inline]
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool]) {
        if self.array.is_of_lines() {
            lines::contains_hashes(self.array.lines(), self.array.pattern(), hashes, found);
        } else {
            found.iter_mut().zip(hashes).for_each(|(found, &hash)| *found = self.small_contains(hash));
        }
    }

    /// Prefetches the memory that any operation on the items reads, unless the layer is small.
    #[inline]
    pub fn prefetch(&self, hashes: &[Hash]) {
        if self.array.is_of_lines() {
            hashes.iter().for_each(|&hash| self.array.prefetch(hash));
        }
    }

    /// Merges `sources`, which have this layer's parameters, into the layer. If the layer is new, the result is the
    /// merge of `sources` alone. Returns true if the layer changed.
    ///
    /// The union of one source with a new layer is a copy. Its memory stays untouched where no bit is set.
    pub fn merge<'a>(
        &mut self,
        sources: impl Iterator<Item = &'a BlockedLayer> + Clone,
        op: MergeOp,
        is_new: bool,
    ) -> bool {
        debug_assert!(sources.clone().all(|source| source.spec() == self.spec()), "layers of different shapes");
        let bits = sources.clone().map(BlockedLayer::bytes);
        let (changed, set_bits) = combine_bits(self.array.bytes_mut(), bits, op, is_new);
        self.set_bits = set_bits;
        if changed || is_new {
            let operands = sources.map(|source| source.count).chain((!is_new).then_some(self.count));
            self.count = ItemCount::merged(op, operands, self.array.shape().items_from_fill(set_bits));
        }
        changed
    }

    /// Lets a mover move the bits.
    pub fn relocate(&mut self, mover: Mover<'_>) {
        self.array.relocate(mover);
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
        let pattern = self.array.pattern();
        self.set_bits += if self.array.is_of_lines() {
            lines::insert(self.array.lines_mut(), pattern, hashes, new)
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
        let mut positions = hash.probes_below(self.array.bits_per_block());
        self.array.blocks_of(hash).all(|(block, probes)| {
            let block = self.array.block(block).view_bits::<Lsb0>();
            positions.by_ref().take(probes.into()).all(|position| block[position])
        })
    }

    /// Sets the item's bits in blocks that are not cache lines. Returns the number of bits that were clear.
    #[inline(never)]
    fn set_in_small(&mut self, hash: Hash) -> u64 {
        let mut positions = hash.probes_below(self.array.bits_per_block());
        let mut set = 0;
        for (block, probes) in self.array.blocks_of(hash) {
            let block = self.array.block_mut(block).view_bits_mut::<Lsb0>();
            for position in positions.by_ref().take(probes.into()) {
                set += u64::from(!block.replace(position, true));
            }
        }
        set
    }

    /// Returns the blocks.
    pub fn array(&self) -> &BlockArray {
        &self.array
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
        let ((lines, words), (of_lines, of_words)) = divided(self.array.part(offset, bits.len())?, bits);
        let in_lines: u64 = lines.iter_mut().zip(of_lines).map(|(target, source)| or(target, source)).sum();
        let in_words: u64 = words.iter_mut().zip(of_words).map(|(target, source)| or(target, source)).sum();
        let set = in_lines + in_words;
        self.set_bits += set;
        Some(set > 0)
    }

    /// Copies `bits` into the layer from byte `offset` on, where no bit is set yet. Returns `None` as
    /// [`merge_part`](Self::merge_part) does.
    ///
    /// Unlike `merge_part`, this does not read memory before writing, which saves one of two page faults a page: 12 MB
    /// take 1.3 ms instead of 4.4.
    pub fn load_part(&mut self, offset: usize, bits: &[u8]) -> Option<()> {
        let ((lines, words), (of_lines, of_words)) = divided(self.array.part(offset, bits.len())?, bits);
        for (target, source) in lines.iter_mut().zip(of_lines) {
            let set_bits = count_ones(source);
            // Empty blocks are not written: the pages of a sparse filter stay untouched.
            if set_bits > 0 {
                *target = *source;
            }
            self.set_bits += set_bits;
        }
        words.copy_from_slice(of_words);
        self.set_bits += count_ones(of_words.as_flattened());
        Some(())
    }
}

/// Bytes, divided into cache lines and the words after them.
type LinesAndWords<'a> = (&'a [Line], &'a [[u8; WORD]]);
type LinesAndWordsMut<'a> = (&'a mut [Line], &'a mut [[u8; WORD]]);

/// Divides two slices of equal length into cache lines and the words after them.
fn divided<'a>(target: &'a mut [u8], source: &'a [u8]) -> (LinesAndWordsMut<'a>, LinesAndWords<'a>) {
    debug_assert_eq!(target.len(), source.len());
    let (lines, rest) = target.as_chunks_mut();
    let (of_lines, of_rest) = source.as_chunks();
    ((lines, rest.as_chunks_mut().0), (of_lines, of_rest.as_chunks().0))
}
