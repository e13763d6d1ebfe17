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
//! Evil Choices in Bloom Filters"), which is why it is random unless asked for. `docs/security.md` says what that is good for;
//! XXH3 is not cryptographic. Classic filters have no secret: they hash with [`murmur`](super::murmur), as RedisBloom does.

use xxhash_rust::xxh3::{xxh3_128_with_secret, xxh3_128_with_seed};

use super::murmur::{murmur32, murmur64};
use super::sizing::{BLOCK_BITS, MAX_LINES, Shape};

/// 2^64 divided by the golden ratio, odd: multiplying by it carries every bit of a word into the high ones.
pub(super) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Bits of hash that one probe takes: a block has 2^9 bits.
const PROBE_BITS: u32 = BLOCK_BITS.ilog2();

/// Probes in a 64-bit word.
const PROBES_PER_WORD: u8 = (u64::BITS / PROBE_BITS) as u8;

/// 128 bits of hash, all that a filter ever looks at of an item.
///
/// A native filter finds lines by the first word and probes by the second; a classic one starts at the first and steps by
/// the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    pub(super) first: u64,
    pub(super) second: u64,
}

/// How a filter hashes its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hasher {
    /// XXH3-128, for native filters.
    Xxh3 { seed: u64 },
    /// MurmurHash64A, for classic filters.
    Murmur64,
    /// MurmurHash2, for very old classic filters.
    Murmur32,
}

impl Hasher {
    /// Whether it is the same function, apart from the seed.
    pub fn is_like(self, other: Hasher) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    #[inline]
    pub fn hash(self, item: &[u8]) -> Hash {
        match self {
            Hasher::Xxh3 { seed } => Hash::xxh3(item, seed),
            Hasher::Murmur64 => Hash::murmur64(item),
            Hasher::Murmur32 => Hash::murmur32(item),
        }
    }

    /// Hashes items into `hashes`, as many as there are and fit. How many those were.
    #[inline]
    pub fn hash_all<'a>(self, items: impl Iterator<Item = &'a [u8]>, hashes: &mut [Hash]) -> usize {
        let pairs = hashes.iter_mut().zip(items);
        match self {
            Hasher::Xxh3 { seed } => {
                let mut secret = Secret::new(seed);
                pairs.map(|(hash, item)| *hash = secret.hash(item)).count()
            }
            Hasher::Murmur64 => pairs.map(|(hash, item)| *hash = Hash::murmur64(item)).count(),
            Hasher::Murmur32 => pairs.map(|(hash, item)| *hash = Hash::murmur32(item)).count(),
        }
    }
}

impl Hash {
    /// The XXH3 hash of `item` under `seed`.
    #[inline]
    pub fn xxh3(item: &[u8], seed: u64) -> Hash {
        Secret::new(seed).hash(item)
    }

    /// The two hashes of a classic filter: the second is seeded with the first.
    ///
    /// Apart, so that the native layout's code is as short as without it.
    #[inline(never)]
    fn murmur64(item: &[u8]) -> Hash {
        let first = murmur64(item, 0xC6A4_A793_5BD1_E995);
        Hash { first, second: murmur64(item, first) }
    }

    /// As [`murmur64`](Self::murmur64), with 32 bits each.
    #[inline(never)]
    fn murmur32(item: &[u8]) -> Hash {
        let first = murmur32(item, 0x9747_B28C);
        Hash { first: first.into(), second: murmur32(item, first).into() }
    }

    /// The item's bit positions, each in `0..512`, probe after probe and line after line.
    #[inline]
    pub fn probes(self) -> Probes {
        Probes { word: self.second, source: self.second, left: PROBES_PER_WORD }
    }
}

/// A seed, and as much of the secret that follows from it as items needed so far.
///
/// Items of more than 16 bytes are combined with words of a secret and multiplied. XXH3's own way from a seed to a secret is to
/// add it to constants: words then differ by what everybody knows, and some pairs of items collide under one seed in 64. So
/// each word is one of a generator's, wyrand, that the seed is the state of: see [`scramble`].
struct Secret {
    seed: u64,
    words: [[[u8; 8]; 4]; 6],
    /// The length of the longest items that there are enough words for, in bytes.
    enough_for: usize,
}

/// Items of so many bytes, or fewer, are combined with nothing but the seed.
const UNSECRET: usize = 16;

/// The length of the longest items, in bytes, that XXH3 needs so many words for, in fours: up to 128 bytes, as many as the item
/// has; then 17; then all that its own secret has.
const ENOUGH_FOR: [usize; 6] = [32, 64, 96, 128, 240, usize::MAX];

impl Secret {
    #[inline]
    fn new(seed: u64) -> Secret {
        Secret { seed, words: Default::default(), enough_for: UNSECRET }
    }

    /// Inlined, so that hashing many items is one loop.
    #[inline(always)]
    fn hash(&mut self, item: &[u8]) -> Hash {
        let hash = if item.len() <= UNSECRET {
            xxh3_128_with_seed(item, self.seed)
        } else {
            if item.len() > self.enough_for {
                self.extend(item.len());
            }
            xxh3_128_with_secret(item, self.words.as_flattened().as_flattened())
        };
        Hash { first: hash as u64, second: (hash >> 64) as u64 }
    }

    /// Makes the words for an item of so many bytes.
    #[inline(never)]
    fn extend(&mut self, length: usize) {
        let mut state = self.seed;
        for (words, enough_for) in self.words.iter_mut().zip(ENOUGH_FOR) {
            *words = std::array::from_fn(|_| {
                state = state.wrapping_add(GOLDEN);
                scramble(state).to_le_bytes()
            });
            self.enough_for = enough_for;
            if length <= enough_for {
                break;
            }
        }
    }
}

/// How an item's probes are spread over lines: a [`Shape`] without its size, divided out once a layer.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    lines: u8,
    /// Probes in a line, but that the first `longer` lines have one more.
    few: u8,
    longer: u8,
}

impl Pattern {
    pub fn new(shape: Shape) -> Pattern {
        let lines = shape.lines.max(1);
        Pattern { lines, few: shape.probes / lines, longer: shape.probes % lines }
    }

    pub fn lines(&self) -> u8 {
        self.lines
    }

    /// The number of probes in all lines.
    pub fn probes(&self) -> u8 {
        self.lines * self.few + self.longer
    }

    /// The first line of an item among `blocks`.
    #[inline]
    pub fn first_line_of(&self, hash: Hash, blocks: usize) -> usize {
        below(hash.first, blocks as u64) as usize
    }

    /// The number of probes in the first line: no other has more.
    #[inline]
    pub fn first_probes(&self) -> u8 {
        self.few + u8::from(self.longer > 0)
    }

    /// The lines of an item among `blocks`, all different, each with its number of probes.
    #[inline]
    pub fn lines_of(&self, hash: Hash, blocks: usize) -> Lines {
        Lines { pattern: *self, hash: hash.first, blocks: blocks as u64, line: 0, stride: 0, index: 0 }
    }
}

/// A number in `0..bound` from 64 random bits.
#[inline]
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// `number / divisor` for numbers below `2^57` and divisors below [`MAX_LINES`], without the processor's slow division.
///
/// The reciprocal is too large by less than the divisor, and `2^57 * 15 < 2^64` (Granlund and Montgomery 1994, "Division by
/// Invariant Integers using Multiplication").
#[inline]
fn quotient(number: u64, divisor: u8) -> u64 {
    const RECIPROCALS: [u64; MAX_LINES as usize] = {
        let mut reciprocals = [0; MAX_LINES as usize];
        let mut divisor = 2;
        while divisor < MAX_LINES as usize {
            reciprocals[divisor] = u64::MAX / divisor as u64 + 1;
            divisor += 1;
        }
        reciprocals
    };
    match divisor {
        0 | 1 => number,
        _ => below(RECIPROCALS[usize::from(divisor)], number),
    }
}

/// The lines of an item; see [`Pattern::lines_of`].
#[derive(Clone, Debug)]
pub struct Lines {
    pattern: Pattern,
    hash: u64,
    blocks: u64,
    line: u64,
    stride: u64,
    index: u8,
}

impl Iterator for Lines {
    /// The index of a block, and how many bits of it are the item's.
    type Item = (usize, u8);

    #[inline]
    fn next(&mut self) -> Option<(usize, u8)> {
        match self.index {
            index if index == self.pattern.lines => return None,
            0 => self.line = below(self.hash, self.blocks),
            index => {
                if index == 1 {
                    // The last line is at most `blocks - 1` beyond the first, so that all are different.
                    let strides = quotient(self.blocks - 1, self.pattern.lines - 1);
                    self.stride = 1 + below(self.hash.wrapping_mul(GOLDEN), strides);
                }
                self.line += self.stride;
                if self.line >= self.blocks {
                    self.line -= self.blocks;
                }
            }
        }
        let probes = self.pattern.few + u8::from(self.index < self.pattern.longer);
        self.index += 1;
        Some((self.line as usize, probes))
    }
}

/// The bit positions of an item in its lines, one after the other; see [`Hash::probes`].
#[derive(Clone, Debug)]
pub struct Probes {
    word: u64,
    source: u64,
    left: u8,
}

impl Probes {
    /// Hands the next `count` positions to `visit`. There are always more.
    #[inline]
    pub fn draw(&mut self, mut count: u8, mut visit: impl FnMut(usize)) {
        while count > 0 {
            if self.left == 0 {
                self.source = remix(self.source);
                self.word = self.source;
                self.left = PROBES_PER_WORD;
            }
            let from_word = count.min(self.left);
            for _ in 0..from_word {
                visit((self.word % BLOCK_BITS) as usize);
                self.word >>= PROBE_BITS;
            }
            self.left -= from_word;
            count -= from_word;
        }
    }
}

/// What wyrand (Wang 2019) makes of its state: both halves of a product, one upon the other.
#[inline]
fn scramble(state: u64) -> u64 {
    let product = u128::from(state) * u128::from(state ^ 0xE703_7ED1_A0B4_28DB);
    product as u64 ^ (product >> 64) as u64
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
    use crate::sizing::Cell;

    fn lines_of(hash: Hash, shape: Shape) -> impl Iterator<Item = usize> {
        Pattern::new(shape).lines_of(hash, shape.blocks as usize).map(|(line, _)| line).collect::<Vec<_>>().into_iter()
    }

    proptest! {
        #[test]
        fn lines_are_different_blocks(item: Vec<u8>, seed: u64, lines in 1u8..=16, more in 0u64..1 << 57) {
            let shape = Shape { cell: Cell::Bit, blocks: u64::from(lines) + more, lines, probes: lines };
            let mut seen: Vec<usize> = lines_of(Hash::xxh3(&item, seed), shape).collect();
            prop_assert_eq!(seen.len(), usize::from(lines));
            prop_assert!(seen.iter().all(|&line| (line as u64) < shape.blocks));
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), usize::from(lines));
        }

        #[test]
        fn quotients_are_exact(number in 0u64..1 << 57, divisor in 1u8..MAX_LINES) {
            prop_assert_eq!(quotient(number, divisor), number / u64::from(divisor));
            let multiple = number - number % u64::from(divisor);
            prop_assert_eq!(quotient(multiple, divisor), multiple / u64::from(divisor));
            prop_assert_eq!(quotient(multiple.saturating_sub(1), divisor), multiple.saturating_sub(1) / u64::from(divisor));
        }

        #[test]
        fn probes_stay_in_the_block(item: Vec<u8>, seed: u64) {
            let mut probes = Hash::xxh3(&item, seed).probes();
            let mut in_block = true;
            probes.draw(255, |position| in_block &= position < 512);
            prop_assert!(in_block);
        }
    }

    #[test]
    fn no_hash_looks_at_words_of_the_secret_that_are_not_made() {
        let item: Vec<u8> = (0..2000).map(|number| (number % 251) as u8).collect();
        for length in 0..=item.len() {
            let item = &item[..length];
            let mut foul = Secret { seed: 42, words: [[[0xA5; 8]; 4]; 6], enough_for: UNSECRET };
            assert_eq!(foul.hash(item), Hash::xxh3(item, 42), "{length} bytes");
        }
    }

    #[test]
    fn items_have_the_same_hash_alone_and_in_any_order() {
        let items: Vec<Vec<u8>> = (0..300).map(|number| vec![b'x'; number * 7 % 300]).collect();
        let hasher = Hasher::Xxh3 { seed: 42 };
        let mut hashes = vec![Hash::default(); items.len()];
        assert_eq!(hasher.hash_all(items.iter().map(Vec::as_slice), &mut hashes), items.len());
        assert!(items.iter().zip(hashes).all(|(item, hash)| hasher.hash(item) == hash));
    }

    #[test]
    fn hashing_is_pinned() {
        // Stored filters are read with these positions.
        let hash = Hash::xxh3(b"oxbloom", 42);
        let shape = Shape { cell: Cell::Bit, blocks: 1 << 40, lines: 3, probes: 9 };
        let mut probes = Vec::new();
        hash.probes().draw(9, |position| probes.push(position));
        assert_eq!(
            (lines_of(hash, shape).collect::<Vec<_>>(), probes),
            ([813984504309, 237162239466, 759851602399].into(), [470, 158, 474, 196, 292, 497, 488, 118, 395].into())
        );
        // Of all lengths, each of which is hashed in another way.
        let lengths = [0, 1, 8, 16, 17, 33, 65, 97, 128, 129, 240, 241, 1024, 5000];
        let hashes = lengths.map(|length| {
            let hash = Hash::xxh3(&vec![b'x'; length], 42);
            hash.first ^ hash.second
        });
        assert_eq!(
            hashes,
            [
                0x2ADF_0324_CDD3_3E4B,
                0x2DBB_B377_5086_A724,
                0xEA4D_81ED_9A77_995E,
                0xF448_D513_33A1_894D,
                0x1594_1BE1_1BCD_E685,
                0x2700_7B1E_9B5A_22F9,
                0x43F9_EBCC_03FF_31B7,
                0xA932_8B00_8401_D6AE,
                0x1392_9DB4_76A7_061D,
                0xCAB3_F7E6_C876_7FC1,
                0x38DB_F381_E130_B5E3,
                0x7B46_FFFA_C172_B23F,
                0x3B33_A229_FFE6_DE71,
                0x4062_1B49_95E5_697B
            ]
        );
    }

    #[test]
    fn every_line_is_as_likely_as_any_other() {
        // Chi-squared over the blocks of 200,000 items, each of three lines; 12 blocks, 11 degrees of freedom.
        let shape = Shape { cell: Cell::Bit, blocks: 12, lines: 3, probes: 3 };
        let mut counts = [0f64; 12];
        for item in 0u32..200_000 {
            lines_of(Hash::xxh3(&item.to_le_bytes(), 1), shape).for_each(|line| counts[line] += 1.0);
        }
        let expected = 200_000.0 * 3.0 / 12.0;
        let chi: f64 = counts.iter().map(|count| (count - expected) * (count - expected) / expected).sum();
        // The 99.9999th percentile of chi-squared with 11 degrees of freedom is 47.4.
        assert!(chi < 47.4, "{chi} {counts:?}");
    }
}
