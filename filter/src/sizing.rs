//! Chooses the number of blocks, blocks per item, and probes for an error rate and a capacity.
//!
//! A textbook Bloom filter of `m` bits with `k` probes an item has a false-positive rate of `(1 - e^(-kn/m))^k` (Bloom
//! 1970). The minimum is at `k = ln 2 * m/n`, and needs `m/n = ln(1/rate) / ln^2 2` bits an item.
//!
//! Our filters confine an item to `L` blocks of 512 bits, one cache line each. So the number of items in a block varies
//! around its mean, and the fuller blocks add more false positives than the emptier ones save (Putze, Sanders, Singler
//! 2007, "Cache-, Hash- and Space-Efficient Bloom Filters"). [`BlockShape::false_positive_rate`] is the exact
//! expectation over that variation. [`BlockShape::choose`] chooses the fewest blocks per item (cache misses) within a
//! memory budget:
//!
//! ```text
//!  bits an item (probes)  textbook       L=1          L=2          L=3          L=4
//!  rate 0.1                   4.79    4.84 (3)     4.81 (3)     4.81 (3)     4.84 (4)
//!  rate 0.01                  9.59    9.92 (6)     9.66 (7)     9.62 (7)     9.60 (7)
//!  rate 0.001                14.38   15.55 (9)    14.63 (10)   14.47 (10)   14.42 (10)
//!  rate 0.0001               19.17   22.03 (12)   19.82 (13)   19.43 (13)   19.30 (13)
//!  rate 0.00001              23.96   29.67 (14)   25.27 (16)   24.50 (16)   24.23 (16)
//! ```
//!
//! A small filter has blocks of another size, so that it is no larger than RedisBloom's. Up to 31 words of 64 bits form
//! one block. Up to 4 KiB may form blocks of 16 to 31 words, if whole cache lines would take more.
//!
//! The first items of a small filter that grows need no more memory as fingerprints: see
//! [`BlockShape::of_fingerprints`].
//!
//! Every step is an IEEE operation (addition, multiplication, division, square root) or comes from `libm`'s portable
//! code. So the same parameters give the same shape on every machine. A replica relies on this when it creates its own
//! copy of a filter.

mod probabilities;
mod search;

use crate::line::BITS_PER_LINE;
use crate::table::QUOTIENT_BITS;
pub(crate) use probabilities::either;
use probabilities::{Fill, ProbesPerBlock, items_offered};
pub use probabilities::{power, textbook_bits_per_item, textbook_false_positive_rate};
use search::{Guarantee, Target};

/// The maximum number of blocks of a filter. Its bits can then be counted in an `i64`, so its bytes can be addressed.
pub const MAX_BLOCKS: u64 = i64::MAX as u64 / BITS_PER_LINE;

/// The maximum number of blocks of an item. Sixteen blocks keep a filter within 2 % of the size of a textbook filter,
/// down to [`LOWEST_ERROR_RATE`].
pub const MAX_BLOCKS_PER_ITEM: u8 = 16;

/// The number of blocks from which on a filter can be folded if an item has several blocks, a power of two. With fewer,
/// their choice depends on the number of blocks.
pub const FOLDABLE_BLOCKS: u64 = 128;

/// The lowest error rate that a layer is sized for, `2^-64`: one false positive in 18 quintillion look-ups.
pub const LOWEST_ERROR_RATE: f64 = 1.0 / (1u128 << 64) as f64;

/// The maximum size of a layer relative to the textbook optimum. With more memory, an item touches fewer cache lines. A
/// change breaks replication between versions: see [`BlockShape::choose`].
const SPEED_BUDGET: f64 = 1.02;

/// The number of words in a block that is a cache line.
pub const WORDS_PER_LINE: u8 = (BITS_PER_LINE / WORD_BITS) as u8;

/// The maximum number of words in a block.
const MAX_WORDS: u8 = 31;

/// The maximum number of words of all blocks, if these are not cache lines.
pub(crate) const MAX_SMALL_WORDS: u64 = 512;

/// The number of words by which a small layer may exceed RedisBloom's. The rest of our filter takes that many words
/// less.
const SPARE_WORDS: u64 = 2;

const WORD_BITS: u64 = u64::BITS as u64;

/// The fraction of the error rate that the blocks of a growing filter may use. The table has the rest.
///
/// With three quarters, the blocks for 100 items at 1 % take 128 bytes. With five eighths, they would take 136, for
/// which allocators use 160. The price of three quarters is up to one more bit per item in the table.
pub const LAYER_SHARE: f64 = 0.75;

/// The fraction of the error rate that fingerprints of the first items may use. The table has the rest.
const FINGERPRINTS_SHARE: f64 = 0.4;

/// The fraction of the error rate that fingerprints should use. With less, the table would not take much less.
const GOOD_FINGERPRINTS_SHARE: f64 = 0.05;

/// The maximum number of words that fingerprints take beside the last ones. With more, an insertion moves too many bits.
const MAX_FINGERPRINT_WORDS: u64 = 128;
const _: () = assert!(MAX_FINGERPRINT_WORDS * WORD_BITS <= u16::MAX as u64, "a layer stores their number in 16 bits");

/// The number of words of fingerprints that are stored beside the others.
pub const LAST_WORDS: u64 = 2;

/// The shape of a layer of blocks. An item sets `probes` bits, spread over `blocks_per_item` of the `blocks` blocks.
///
/// A layer without words has a fingerprint of `probes` bits for each of up to `blocks` items instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// The number of blocks.
    pub blocks: u64,
    /// The number of words of 64 bits in a block: [`WORDS_PER_LINE`], except in small filters; 0 for fingerprints.
    pub words: u8,
    /// The number of different blocks that an item touches.
    pub blocks_per_item: u8,
    /// The number of bits that an item sets.
    pub probes: u8,
}

/// The memory that a layer may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Up to 2 % over the textbook optimum, or a few words.
    Tight,
    /// The memory of RedisBloom's first layer of a growing filter: the textbook optimum for half of the filter's
    /// `rate`.
    RedisBloom {
        /// The filter's false-positive rate.
        rate: f64,
    },
}

impl BlockShape {
    /// Returns the shape with the fewest blocks per item, and then the fewest blocks, that holds `capacity` items (at
    /// least 1) at an error rate of at most `rate`, within `budget`. For a layer of up to 31 words, returns the shape
    /// with the fewest words. Takes 1 to 300 microseconds: 4 for 100 items at 1 %.
    ///
    /// Above a rate of about 0.3, a whole number of probes wastes more than the budget allows: the shape then exceeds
    /// the budget. Returns `None` if the bits cannot be addressed.
    ///
    /// A master and its replica both compute the shape of the same filter, and must get the same result. Stored filters
    /// include their shape, and stay readable if this function changes. But until master and replica are both updated,
    /// the replica would reject chunks and merges of filters that it created itself.
    pub fn choose(capacity: u64, rate: f64, budget: Budget) -> Option<BlockShape> {
        debug_assert!(capacity > 0, "a layer for no items has no size");
        let rate = rate.max(LOWEST_ERROR_RATE);
        // The stronger guarantee first.
        let targets = [Guarantee::Counted, Guarantee::Distinct].map(|guarantee| Target { capacity, rate, guarantee });
        let optimum = capacity as f64 * textbook_bits_per_item(rate);
        let limit = match budget {
            Budget::Tight => optimum * SPEED_BUDGET,
            Budget::RedisBloom { rate } => capacity as f64 * textbook_bits_per_item(rate.max(LOWEST_ERROR_RATE) / 2.0),
        };

        // Whole cache lines would waste much of a small layer.
        let (bits, max_small_words) = match budget {
            Budget::Tight => (optimum, MAX_WORDS.into()),
            Budget::RedisBloom { .. } => (limit, MAX_SMALL_WORDS),
        };
        let words = words_for(bits).saturating_add(SPARE_WORDS);
        if words <= max_small_words
            && let Some(shape) = targets.into_iter().find_map(|target| target.small(words))
        {
            return Some(shape);
        }

        // No layer needs much less than the optimum.
        let min = blocks_for(optimum)?.saturating_sub(1).max(1);
        let max = match budget {
            Budget::Tight => blocks_for(limit)?,
            // Rounded down to whole lines, so that the layer is no larger than RedisBloom's.
            Budget::RedisBloom { .. } => blocks_for(limit)?.min(words / u64::from(WORDS_PER_LINE)),
        };
        let in_budget = targets.into_iter().find_map(|target| target.search(WORDS_PER_LINE, min.min(max), max));
        // Rounding may need one block more.
        in_budget.or_else(|| targets[1].over_budget(max))
    }

    /// Returns the shape of fingerprints of the first `capacity` items of a filter with this error rate, in at most
    /// `max_bytes` bytes, or `None` if the items are too many, or the fingerprints too long. They are as long as fit, but
    /// no longer than is good.
    ///
    /// A hundred items at 1 % take the 128 bytes that a block of bits would take, but 0.15 % of all hashes match, and
    /// not 0.75 %. They move to the table when the filter grows, whose own fingerprints then need almost two bits less.
    pub fn of_fingerprints(capacity: u64, rate: f64, max_bytes: u64) -> Option<BlockShape> {
        let shapes =
            (1..u64::BITS as u8).map(|probes| BlockShape { blocks: capacity, words: 0, blocks_per_item: 1, probes });
        let share = |shape: &BlockShape| shape.false_positive_rate(capacity as f64) / rate;
        let mut fitting =
            shapes.filter(|shape| shape.is_sound() && shape.bytes() <= max_bytes && share(shape) <= FINGERPRINTS_SHARE);
        let good = fitting.clone().find(|shape| share(shape) <= GOOD_FINGERPRINTS_SHARE);
        good.or_else(|| fitting.next_back())
    }

    /// Returns true if a layer of this shape has fingerprints instead of blocks.
    #[inline]
    pub fn is_of_fingerprints(&self) -> bool {
        self.words == 0
    }

    /// Returns the number of a hash's bits that fingerprints and their quotients store.
    #[inline]
    pub fn prefix_bits(&self) -> u32 {
        self.blocks.next_power_of_two().ilog2() + u32::from(self.probes)
    }

    /// Returns the number of bits before the fingerprints: one for each quotient, and one for each item.
    #[inline]
    pub fn upper_bits(&self) -> u64 {
        self.blocks.next_power_of_two() + self.blocks
    }

    /// Returns true if no operation on a layer of this shape can be out of bounds.
    pub fn is_sound(&self) -> bool {
        let is_size = match self.words {
            0 => {
                (1..=MAX_FINGERPRINT_WORDS * WORD_BITS).contains(&self.blocks)
                    && (QUOTIENT_BITS + 1..u64::BITS).contains(&self.prefix_bits())
                    && self.bits() <= MAX_FINGERPRINT_WORDS * WORD_BITS
            }
            WORDS_PER_LINE => self.blocks < MAX_BLOCKS,
            words => words <= MAX_WORDS && self.blocks.saturating_mul(words.into()) <= MAX_SMALL_WORDS,
        };
        is_size
            && (1..=MAX_BLOCKS_PER_ITEM).contains(&self.blocks_per_item)
            && u64::from(self.blocks_per_item) <= self.blocks
            && self.probes >= self.blocks_per_item
    }

    /// Returns true if the places of an item's blocks do not depend on the number of blocks.
    pub fn has_fixed_places(&self) -> bool {
        self.blocks_per_item == 1 || self.blocks >= FOLDABLE_BLOCKS
    }

    /// Returns the shape after each `factor` neighbouring blocks were combined into one, or `None` if this would not be
    /// the layer that was created with this shape, with the same items.
    pub fn folded_by(self, factor: u64) -> Option<BlockShape> {
        let folded = BlockShape { blocks: self.blocks.checked_div(factor)?, ..self };
        let is_exact = !self.is_of_fingerprints()
            && self.blocks.is_multiple_of(factor)
            && folded.is_sound()
            && folded.has_fixed_places();
        (is_exact || factor == 1).then_some(folded)
    }

    /// Returns the bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.bits() / 8
    }

    /// Returns the bits of all blocks. The last words of fingerprints are stored beside them, and do not count.
    pub fn bits(&self) -> u64 {
        if self.is_of_fingerprints() {
            let bits = self.upper_bits() + self.blocks * u64::from(self.probes);
            return bits.saturating_sub(LAST_WORDS * WORD_BITS).max(1).next_multiple_of(WORD_BITS);
        }
        self.blocks * self.bits_per_block()
    }

    fn bits_per_block(&self) -> u64 {
        u64::from(self.words) * WORD_BITS
    }

    /// Returns the expected false-positive rate after `items` distinct items were inserted. Each of them sets `probes`
    /// bits in `blocks_per_item` different blocks.
    ///
    /// The number of items in a block of `b` bits is binomial, `B(items, blocks_per_item/blocks)`. With `j` items, a
    /// bit of the block is still clear with probability `s^j`, where `s` is the mean over the item's blocks of `(1 -
    /// 1/b)^(probes in the block)`. All `p` probes of a look-up in the block meet set bits with probability `E[fill^p]
    /// = f^p + p(p-1)/2 * f^(p-2) * Var(fill)`, with `f = 1 - s^j`. The second term is 1 to 5 %; the popular formula
    /// for a Bloom filter omits it (Bose et al. 2008, "On the false-positive rate of Bloom filters"). The rates of the
    /// item's blocks are multiplied.
    pub fn false_positive_rate(&self, items: f64) -> f64 {
        if self.is_of_fingerprints() {
            return (items / libm::exp2(self.prefix_bits().into())).min(1.0);
        }
        let per_block = ProbesPerBlock::new(self);
        let hit = f64::from(self.blocks_per_item) / self.blocks as f64;
        // With 64 items per bit, a double cannot represent the fraction of clear bits, and the sum would take very
        // long.
        if items * hit > 64.0 * self.bits_per_block() as f64 {
            return 1.0;
        }
        let (base, extra) = if hit >= 1.0 {
            per_block.all_set(Fill::after(&per_block, items as u64))
        } else {
            per_block.all_set_on_average(items, hit)
        };
        let blocks = u32::from(self.blocks_per_item);
        power(base, blocks - per_block.extra_blocks) * power(extra, per_block.extra_blocks)
    }

    /// Returns the false-positive rate of a layer that was chosen for `rate`, after `capacity` items were counted as
    /// new.
    pub fn full_rate(&self, capacity: u64, rate: f64) -> f64 {
        self.false_positive_rate(items_offered(capacity, rate.max(LOWEST_ERROR_RATE), self.probes))
    }

    /// Returns the estimated number of distinct items in a layer with `set_bits` set bits.
    ///
    /// This is Swamidass and Baldi's estimate (2007), adapted to blocks: an item leaves a given bit clear with
    /// probability `1 - L/B + L/B * s`, with `s` as in [`false_positive_rate`](Self::false_positive_rate).
    pub fn items_from_fill(&self, set_bits: u64) -> f64 {
        let clear = 1.0 - (set_bits as f64 / self.bits() as f64).min(1.0 - 0.5 / self.bits() as f64);
        let per_block = ProbesPerBlock::new(self);
        let hit = f64::from(self.blocks_per_item) / self.blocks as f64;
        let log_untouched = libm::log1p(-hit * (1.0 - per_block.survival(1.0)));
        libm::log(clear) / log_untouched
    }
}

/// Returns the number of words for `bits` bits, rounded up as RedisBloom does.
fn words_for(bits: f64) -> u64 {
    libm::ceil(libm::trunc(bits) / WORD_BITS as f64).max(1.0) as u64
}

fn blocks_for(bits: f64) -> Option<u64> {
    let blocks = libm::ceil(libm::trunc(bits) / BITS_PER_LINE as f64).max(1.0);
    (blocks <= MAX_BLOCKS as f64).then_some(blocks as u64)
}
