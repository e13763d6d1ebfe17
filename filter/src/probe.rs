//! Maps a hash to the blocks of an item, and to its bit positions in them.
//!
//! ```text
//!  hash ──┬── first word ───> first block, and with a stride from the same word, the other blocks
//!         └── second word ──> 9 bits a probe, seven probes a word, then mixed again
//! ```
//!
//! In small filters, whose blocks are not cache lines, a probe takes 21 bits.
//!
//! To map 64 bits to a number below `n`, they are multiplied by `n`, and the high half is kept (Lemire 2019, "Fast
//! Random Integer Generation in an Interval"). This needs no division, and works for any `n` that memory can hold.

use crate::hash::{GOLDEN, Hash};
use crate::line::BITS_PER_LINE;
use crate::sizing::{BlockShape, FOLDABLE_BLOCKS, MAX_BLOCKS_PER_ITEM, WORDS_PER_LINE};

/// The bits of hash that one probe takes: a block has 2^9 bits.
pub(crate) const PROBE_BITS: u32 = BITS_PER_LINE.ilog2();

/// The number of probes in a 64-bit word.
pub(crate) const PROBES_PER_WORD: u8 = (u64::BITS / PROBE_BITS) as u8;

/// The bits of hash that a probe takes in a block of another size. `2^21` values choose each of at most 1984 positions
/// equally often, to within a thousandth.
const SMALL_PROBE_BITS: u32 = 21;
const SMALL_PROBES_PER_WORD: u8 = (u64::BITS / SMALL_PROBE_BITS) as u8;

impl Hash {
    /// Returns the item's bit positions, each in `0..512`, in the order of its blocks.
    #[inline]
    pub fn probes(self) -> Probes {
        Probes { word: self.second, source: self.second, left: PROBES_PER_WORD }
    }

    /// Returns the item's bit positions in blocks of `bits` bits, at most `2^11`.
    #[inline]
    pub fn probes_below(self, bits: u64) -> SmallProbes {
        debug_assert!(bits <= 1 << 11, "a block of {bits} bits");
        SmallProbes { word: self.second, source: self.second, left: SMALL_PROBES_PER_WORD, bits }
    }
}

/// The way in which an item's probes are spread over blocks: a [`BlockShape`] without its size, with the division of
/// probes by blocks already done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbePattern {
    /// The number of words in a block.
    pub(crate) words: u8,
    pub(crate) blocks_per_item: u8,
    /// The number of probes in a block; the first `extra_blocks` blocks have one more.
    base_probes: u8,
    extra_blocks: u8,
}

impl ProbePattern {
    pub(crate) fn new(shape: BlockShape) -> ProbePattern {
        let blocks_per_item = shape.blocks_per_item.max(1);
        let base_probes = shape.probes / blocks_per_item;
        let extra_blocks = shape.probes % blocks_per_item;
        ProbePattern { words: shape.words, blocks_per_item, base_probes, extra_blocks }
    }

    /// Returns the number of blocks in `words` words.
    #[inline]
    pub(crate) fn blocks_in(&self, words: usize) -> usize {
        match self.words {
            WORDS_PER_LINE => words / usize::from(WORDS_PER_LINE),
            words_of_block => words / usize::from(words_of_block),
        }
    }

    /// Returns the number of probes of an item in all its blocks.
    pub(crate) fn probes(&self) -> u8 {
        self.blocks_per_item * self.base_probes + self.extra_blocks
    }

    #[inline]
    pub(crate) fn first_block_of(&self, hash: Hash, blocks: usize) -> usize {
        fastrange(hash.first, blocks as u64) as usize
    }

    /// Returns the number of probes in the first block. No other block has more.
    #[inline]
    pub(crate) fn first_probes(&self) -> u8 {
        self.base_probes + u8::from(self.extra_blocks > 0)
    }

    /// Returns the blocks of an item among `blocks`, all different, each with its number of probes.
    ///
    /// [Folding](BlockShape::folded_by) relies on this: among `blocks / k`, block `b` of an item becomes block `b / k`.
    #[inline]
    pub(crate) fn blocks_of(&self, hash: Hash, blocks: usize) -> ItemBlocks {
        ItemBlocks { pattern: *self, place: hash.first, blocks: blocks as u64, stride: 0, index: 0 }
    }
}

/// Maps 64 random bits to a number in `0..bound`.
#[inline]
fn fastrange(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// `2^64 / n` by `n`, rounded up.
const RECIPROCALS: [u64; FOLDABLE_BLOCKS as usize] = {
    let mut reciprocals = [0; FOLDABLE_BLOCKS as usize];
    let mut number = 2;
    while number < FOLDABLE_BLOCKS {
        reciprocals[number as usize] = u64::MAX / number + 1;
        number += 1;
    }
    reciprocals
};

/// The minimum stride in a filter that can be folded, `1 / FOLDABLE_BLOCKS` of all places.
const MIN_STRIDE: u64 = 1 << (u64::BITS - FOLDABLE_BLOCKS.ilog2());

/// The number of strides in a filter that can be folded, by the number of an item's further blocks. So many strides,
/// and another `MIN_STRIDE`, are at most all places.
const STRIDES: [u64; MAX_BLOCKS_PER_ITEM as usize] = {
    let mut strides = [0; MAX_BLOCKS_PER_ITEM as usize];
    let mut further = 1;
    while further < MAX_BLOCKS_PER_ITEM {
        strides[further as usize] = MIN_STRIDE.wrapping_neg() / further as u64 - MIN_STRIDE;
        further += 1;
    }
    strides
};

/// The blocks of an item; see [`ProbePattern::blocks_of`].
///
/// Each has a place among `2^64`: the first word of the hash, plus a number of strides. Place `p` is in block `floor(p *
/// blocks / 2^64)`. Let `B` be the number of blocks, and `F` be [`FOLDABLE_BLOCKS`].
///
/// - If `B >= F`, places do not depend on `B`. So they are in block `floor(p * B/k / 2^64) = floor(floor(p * B / 2^64) /
///   k)` of a filter with `B/k` blocks, for each `k` that divides `B`.
/// - All blocks are different: a stride is at least `2^64 / F`, and the last place is at most `2^64 - 2^64 / F` beyond
///   the first. So any two places are `2^64 / B` apart, in both directions around the end.
/// - With fewer than `F` blocks, this would leave too few strides. There, a stride is a whole number of blocks.
#[derive(Clone, Debug)]
pub(crate) struct ItemBlocks {
    pattern: ProbePattern,
    place: u64,
    stride: u64,
    blocks: u64,
    index: u8,
}

impl ItemBlocks {
    /// Chooses the stride, when the place is still that of the first block.
    #[inline]
    fn choose_stride(&mut self) {
        let random = self.place.wrapping_mul(GOLDEN);
        let further = self.pattern.blocks_per_item - 1;
        if self.blocks >= FOLDABLE_BLOCKS {
            self.stride = MIN_STRIDE + fastrange(random, STRIDES[usize::from(further)]);
        } else {
            // Rounding up the width adds at most `2 * blocks * blocks / 2^64` of a block, which changes no index.
            let width = RECIPROCALS[self.blocks as usize];
            let most = (self.blocks as u8 - 1) / further;
            self.place = fastrange(self.place, self.blocks) * width;
            self.stride = (1 + fastrange(random, most.into())) * width;
        }
    }
}

impl Iterator for ItemBlocks {
    /// The index of a block, and the number of the item's probes in it.
    type Item = (usize, u8);

    #[inline]
    fn next(&mut self) -> Option<(usize, u8)> {
        if self.index == self.pattern.blocks_per_item {
            return None;
        }
        if self.index > 0 {
            if self.index == 1 {
                self.choose_stride();
            }
            self.place = self.place.wrapping_add(self.stride);
        }
        let block = fastrange(self.place, self.blocks);
        let probes = self.pattern.base_probes + u8::from(self.index < self.pattern.extra_blocks);
        self.index += 1;
        Some((block as usize, probes))
    }
}

/// The bit positions of an item in its blocks; see [`Hash::probes`].
#[derive(Clone, Debug)]
pub struct Probes {
    word: u64,
    source: u64,
    left: u8,
}

impl Probes {
    /// Hands the next `count` positions to `visit`. The sequence never ends.
    #[inline]
    pub fn next_positions(&mut self, mut count: u8, mut visit: impl FnMut(usize)) {
        while count > 0 {
            if self.left == 0 {
                self.source = splitmix_finalizer(self.source);
                self.word = self.source;
                self.left = PROBES_PER_WORD;
            }
            let from_word = count.min(self.left);
            for _ in 0..from_word {
                visit((self.word % BITS_PER_LINE) as usize);
                self.word >>= PROBE_BITS;
            }
            self.left -= from_word;
            count -= from_word;
        }
    }
}

/// The bit positions of an item in blocks that are not cache lines; see [`Hash::probes_below`].
#[derive(Clone, Debug)]
pub struct SmallProbes {
    word: u64,
    source: u64,
    left: u8,
    bits: u64,
}

impl Iterator for SmallProbes {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        const MASK: u64 = (1 << SMALL_PROBE_BITS) - 1;
        if self.left == 0 {
            self.source = splitmix_finalizer(self.source);
            self.word = self.source;
            self.left = SMALL_PROBES_PER_WORD;
        }
        let position = ((self.word & MASK) * self.bits) >> SMALL_PROBE_BITS;
        self.word >>= SMALL_PROBE_BITS;
        self.left -= 1;
        Some(position as usize)
    }
}

/// Mixes a 64-bit word, bijectively, with the finalizer of MurmurHash3 and Stafford's constants ("Mix13", 2011), as in
/// SplitMix64.
#[inline]
fn splitmix_finalizer(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks_of(hash: Hash, shape: BlockShape) -> impl Iterator<Item = usize> {
        ProbePattern::new(shape).blocks_of(hash, shape.blocks as usize).map(|(block, _)| block)
    }

    proptest! {
        #[test]
        fn the_blocks_of_an_item_differ(item: Vec<u8>, seed: u64, per_item in 1u8..=16, more in 0u64..1 << 57) {
            let blocks = u64::from(per_item) + more;
            let shape = BlockShape { blocks, words: WORDS_PER_LINE, blocks_per_item: per_item, probes: per_item };
            let mut seen: Vec<usize> = blocks_of(Hash::xxh3(&item, seed), shape).collect();
            prop_assert_eq!(seen.len(), usize::from(per_item));
            prop_assert!(seen.iter().all(|&block| (block as u64) < shape.blocks));
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), usize::from(per_item));
        }

        #[test]
        fn each_block_of_an_item_is_folded_into_its_block_of_the_smaller_filter(
            first: u64, per_item in 1u8..=16, blocks in FOLDABLE_BLOCKS..1 << 28, factor in 1u64..1 << 28,
        ) {
            let hash = Hash { first, second: 0 };
            let shape = BlockShape { blocks, words: WORDS_PER_LINE, blocks_per_item: per_item, probes: per_item };
            let folded: Vec<_> = blocks_of(hash, shape).collect();
            let of_larger = blocks_of(hash, BlockShape { blocks: blocks * factor, ..shape });
            prop_assert_eq!(of_larger.map(|block| block / factor as usize).collect::<Vec<_>>(), folded);
        }
    }
}
