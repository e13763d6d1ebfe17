//! The operations that processors do in different ways, and how every processor can do them.

use bitvec::prelude::*;

use crate::hash::Hash;
use crate::line::Line;

/// The operations that some processors do in a way of their own. The provided methods work on every processor.
pub(crate) trait Processor: Copy {
    /// True if testing the bits of an item takes less time than setting them.
    const TESTS_BEFORE_SETTING: bool = false;

    /// Tells the processor to load the cache line of an address into its cache. An invalid address has no effect.
    #[inline(always)]
    fn prefetch<T>(_address: *const T) {}

    /// Returns true if the item's first positions are set in its first block. They come from one word of hash, so there
    /// are at most seven.
    #[inline(always)]
    fn are_set(line: &Line, hash: Hash, probes: u8) -> bool {
        let line = line.view_bits::<Lsb0>();
        // Branchless: the probes share one cache miss, and a branch for each would be mispredicted half of the time.
        let mut all = true;
        hash.probes().next_positions(probes, |position| all &= line[position]);
        all
    }

    /// Returns the position of set bit number `rank`, counted from 0. The word has such a bit.
    ///
    /// Counts bits byte by byte (Vigna 2008, "Broadword Implementation of Rank/Select Queries"), and looks up the bit in
    /// its byte. On x86-64, this takes 3 ns; clearing the bits below it takes 13, since the processor mispredicts how many
    /// there are.
    #[inline(always)]
    fn select(word: u64, rank: u32) -> u32 {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const TOPS: u64 = 0x8080_8080_8080_8080;
        debug_assert!(rank < word.count_ones(), "bit {rank} of {word:x}");
        let pairs = word - (word >> 1 & 0x5555_5555_5555_5555);
        let fours = (pairs & 0x3333_3333_3333_3333) + (pairs >> 2 & 0x3333_3333_3333_3333);
        let bytes = (fours + (fours >> 4)) & 0x0F0F_0F0F_0F0F_0F0F;
        // Byte i holds the number of bits in the bytes up to i, at most 64.
        let up_to = bytes.wrapping_mul(ONES);
        let exceeding = (up_to | TOPS).wrapping_sub(u64::from(rank + 1).wrapping_mul(ONES)) & TOPS;
        let byte = exceeding.trailing_zeros() & !7;
        let before = (up_to << 8 >> byte) as u32 & 0xFF;
        byte + u32::from(SELECTED[(word >> byte & 0xFF) as usize][(rank - before) as usize & 7])
    }

    /// Returns a word with the lowest bits of `bits`, in order, at the positions that are set in `mask`, and clear bits
    /// at all others.
    #[inline(always)]
    fn deposit(bits: u64, mask: u64) -> u64 {
        positions(mask).enumerate().fold(0, |word, (index, position)| word | (bits >> index & 1) << position)
    }

    /// Returns the bits of a word at the positions that are set in `mask`, in order, as the lowest bits.
    ///
    /// Moves each bit down by the number of clear bits of the mask below it, one binary digit of that number after the
    /// other (Warren, "Hacker's Delight", 7-4).
    #[inline(always)]
    fn extract(word: u64, mask: u64) -> u64 {
        let mut word = word & mask;
        let mut mask = mask;
        let mut clear = !mask << 1;
        for by in [1, 2, 4, 8, 16, 32] {
            let odd = [1, 2, 4, 8, 16, 32].into_iter().fold(clear, |parity, shift| parity ^ parity << shift);
            let moved = odd & mask;
            // The bits that have moved may stay in the mask, since the word has none there any more.
            mask |= moved >> by;
            word = word & !moved | (word & moved) >> by;
            clear &= !odd;
        }
        word
    }
}

/// The position of set bit number `rank` of a byte, at `[byte][rank]`.
static SELECTED: [[u8; 8]; 256] = {
    let mut selected = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut rank, mut position) = (0, 0);
        while position < 8 {
            if byte >> position & 1 == 1 {
                selected[byte][rank] = position;
                rank += 1;
            }
            position += 1;
        }
        byte += 1;
    }
    selected
};

/// Returns the positions of the set bits of a word, in order.
#[inline(always)]
pub(crate) fn positions(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let position = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(position)
    })
}

/// The provided methods alone. Some architectures only use it in tests.
#[derive(Clone, Copy)]
#[allow(dead_code)]
pub(crate) struct Baseline;

impl Processor for Baseline {}
