//! From an item to 128 bits of hash, and from those to block and bit positions.
//!
//! ```text
//!  item, seed ── XXH3-128 ──┬── 64 bits ──> first line ──> stride ──> the other lines
//!                           └── 64 bits ──> 9 bits a probe, seven at a time, then remixed
//! ```
//!
//! The item is read once, whatever the number of lines, probes and layers. A number below `n` is drawn from 64 bits by
//! multiplying and keeping the high half (Lemire 2019, "Fast Random Integer Generation in an Interval"): no division, and
//! good for any `n` that memory can hold.
//!
//! The seed is the filter's own. Who knows it can craft items that collide (Gerbet, Kumar, Lauradoux 2015, "The Power of
//! Evil Choices in Bloom Filters"), which is why it is random unless asked for.

use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::sizing::{BLOCK_BITS, Shape};

/// 2^64 divided by the golden ratio, odd: multiplying by it carries every bit of a word into the high ones.
pub(super) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bits of hash that one probe takes: a block has 2^9 bits.
const PROBE_BITS: u32 = BLOCK_BITS.ilog2();

/// Probes in a 64-bit word.
const PROBES_PER_WORD: u32 = u64::BITS / PROBE_BITS;

/// 128 bits of hash, all that a filter ever looks at of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    lines: u64,
    probes: u64,
}

impl Hash {
    /// The XXH3 hash of `item` under `seed`.
    #[inline]
    pub fn new(item: &[u8], seed: u64) -> Hash {
        let hash = xxh3_128_with_seed(item, seed);
        Hash { lines: hash as u64, probes: (hash >> 64) as u64 }
    }

    /// The item's bit positions, each in `0..512`, probe after probe and line after line.
    #[inline]
    pub fn probes(self) -> Probes {
        Probes { word: self.probes, source: self.probes, left: PROBES_PER_WORD }
    }
}

/// A [`Shape`], prepared for probing: what is the same for every item is divided out once a command, not once an item.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    blocks: u64,
    strides: u64,
    lines: u32,
    /// Probes in a line, but that the first `longer` lines have one more.
    few: u32,
    longer: u32,
}

impl Pattern {
    pub fn new(shape: Shape) -> Pattern {
        let lines = shape.lines.max(1);
        Pattern {
            blocks: shape.blocks,
            // With more than one line, the last is at most `blocks - 1` beyond the first, so that all are different.
            strides: (shape.blocks - 1).checked_div(u64::from(lines - 1)).unwrap_or(0),
            lines: u32::from(lines),
            few: u32::from(shape.probes / lines),
            longer: u32::from(shape.probes % lines),
        }
    }

    /// The lines of an item, all different, each with its number of probes.
    #[inline]
    pub fn lines(&self, hash: Hash) -> Lines<'_> {
        let stride = match self.lines {
            1 => 0,
            _ => 1 + below(hash.lines.wrapping_mul(GOLDEN), self.strides),
        };
        Lines { pattern: self, line: below(hash.lines, self.blocks), stride, index: 0 }
    }
}

/// A number in `0..bound` from 64 random bits.
#[inline]
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// The lines of an item; see [`Pattern::lines`].
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    pattern: &'a Pattern,
    line: u64,
    stride: u64,
    index: u32,
}

impl Iterator for Lines<'_> {
    /// The index of a block, and how many bits of it are the item's.
    type Item = (usize, u32);

    #[inline]
    fn next(&mut self) -> Option<(usize, u32)> {
        if self.index == self.pattern.lines {
            return None;
        }
        let line = self.line;
        let probes = self.pattern.few + u32::from(self.index < self.pattern.longer);
        self.index += 1;
        self.line += self.stride;
        if self.line >= self.pattern.blocks {
            self.line -= self.pattern.blocks;
        }
        Some((line as usize, probes))
    }
}

/// The bit positions of an item in its lines, one after the other; see [`Hash::probes`].
#[derive(Clone, Debug)]
pub struct Probes {
    word: u64,
    source: u64,
    left: u32,
}

impl Probes {
    /// The next position. There is always one more.
    #[inline]
    pub fn draw(&mut self) -> usize {
        if self.left == 0 {
            self.source = remix(self.source);
            self.word = self.source;
            self.left = PROBES_PER_WORD;
        }
        self.left -= 1;
        let position = self.word % BLOCK_BITS;
        self.word >>= PROBE_BITS;
        position as usize
    }
}

/// A bijection of 64-bit words whose output looks unrelated to its input: the finalizer of MurmurHash3 with Stafford's
/// constants ("Mix13", 2011), as in SplitMix64.
#[inline]
fn remix(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines_of(hash: Hash, shape: Shape) -> impl Iterator<Item = usize> {
        Pattern::new(shape).lines(hash).map(|(line, _)| line).collect::<Vec<_>>().into_iter()
    }

    proptest! {
        #[test]
        fn lines_are_different_blocks(item: Vec<u8>, seed: u64, lines in 1u8..=16, more in 0u64..1 << 57) {
            let shape = Shape { blocks: u64::from(lines) + more, lines, probes: lines };
            let mut seen: Vec<usize> = lines_of(Hash::new(&item, seed), shape).collect();
            prop_assert_eq!(seen.len(), usize::from(lines));
            prop_assert!(seen.iter().all(|&line| (line as u64) < shape.blocks));
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), usize::from(lines));
        }

        #[test]
        fn probes_stay_in_the_block(item: Vec<u8>, seed: u64) {
            let mut probes = Hash::new(&item, seed).probes();
            prop_assert!((0..255).all(|_| probes.draw() < 512));
        }
    }

    #[test]
    fn hashing_is_pinned() {
        // Stored filters are read with these positions.
        let hash = Hash::new(b"oxbloom", 42);
        let shape = Shape { blocks: 1 << 40, lines: 3, probes: 9 };
        let mut probes = hash.probes();
        let probes: Vec<usize> = (0..9).map(|_| probes.draw()).collect();
        assert_eq!(
            (lines_of(hash, shape).collect::<Vec<_>>(), probes),
            ([813984504309, 237162239466, 759851602399].into(), [470, 158, 474, 196, 292, 497, 488, 118, 395].into())
        );
    }

    #[test]
    fn every_line_is_as_likely_as_any_other() {
        // Chi-squared over the blocks of 200,000 items, each of three lines; 12 blocks, 11 degrees of freedom.
        let shape = Shape { blocks: 12, lines: 3, probes: 3 };
        let mut counts = [0f64; 12];
        for item in 0u32..200_000 {
            lines_of(Hash::new(&item.to_le_bytes(), 1), shape).for_each(|line| counts[line] += 1.0);
        }
        let expected = 200_000.0 * 3.0 / 12.0;
        let chi: f64 = counts.iter().map(|count| (count - expected) * (count - expected) / expected).sum();
        // The 99.9999th percentile of chi-squared with 11 degrees of freedom is 47.4.
        assert!(chi < 47.4, "{chi} {counts:?}");
    }
}
