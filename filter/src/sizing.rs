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
//! Every step is an IEEE operation (addition, multiplication, division, square root) or comes from `libm`'s portable
//! code. So the same parameters give the same shape on every machine. A replica relies on this when it creates its own
//! copy of a filter.

use std::f64::consts::LN_2;

use crate::line::BITS_PER_LINE;

/// The maximum number of blocks of a filter. Its bits can then be counted in an `i64`, so its bytes can be addressed.
pub const MAX_BLOCKS: u64 = i64::MAX as u64 / BITS_PER_LINE;

/// The maximum number of blocks of an item. Sixteen blocks keep a filter within 2 % of the size of a textbook filter,
/// down to [`LOWEST_ERROR_RATE`].
pub const MAX_BLOCKS_PER_ITEM: u8 = 16;

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
const MAX_SMALL_WORDS: u64 = 512;

/// The number of words by which a small layer may exceed RedisBloom's. The rest of our filter takes that many words
/// less.
const SPARE_WORDS: u64 = 2;

const WORD_BITS: u64 = u64::BITS as u64;

/// The shape of a layer of blocks. An item sets `probes` bits, spread over `blocks_per_item` of the `blocks` blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// The number of blocks.
    pub blocks: u64,
    /// The number of words of 64 bits in a block: [`WORDS_PER_LINE`], except in small filters.
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

/// The items for which the error rate must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guarantee {
    /// All items that are inserted until `capacity` of them were counted as new; see [`items_offered`].
    Counted,
    /// `capacity` distinct items. At error rates above about 5 %, the memory of a textbook filter cannot guarantee
    /// more.
    Distinct,
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
        let in_lines =
            |max: u64| targets.into_iter().find_map(|target| target.search(WORDS_PER_LINE, min.min(max), max));
        // One block over the budget still is a good shape, and rounding may need it.
        let one_more = || in_lines(max + 1);
        in_lines(max).or_else(one_more).or_else(|| targets[1].over_budget(max))
    }

    /// Returns true if no operation on a layer of this shape can be out of bounds.
    pub fn is_sound(&self) -> bool {
        let is_size = if self.words == WORDS_PER_LINE {
            self.blocks < MAX_BLOCKS
        } else {
            (1..=MAX_WORDS).contains(&self.words) && self.blocks.saturating_mul(self.words.into()) <= MAX_SMALL_WORDS
        };
        is_size
            && self.blocks > 0
            && (1..=MAX_BLOCKS_PER_ITEM).contains(&self.blocks_per_item)
            && u64::from(self.blocks_per_item) <= self.blocks
            && self.probes >= self.blocks_per_item
    }

    /// Returns the bytes of all blocks.
    pub fn bytes(&self) -> u64 {
        self.bits() / 8
    }

    /// Returns the bits of all blocks.
    pub fn bits(&self) -> u64 {
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
        if items < 1.0 {
            return 0.0;
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

/// What a layer is to achieve.
#[derive(Clone, Copy)]
struct Target {
    /// The number of items.
    capacity: u64,
    /// The error rate.
    rate: f64,
    guarantee: Guarantee,
}

impl Target {
    /// Returns the best shape of `min` to `max` blocks with this number of words.
    fn search(self, words: u8, min: u64, max: u64) -> Option<BlockShape> {
        Search { target: self, blocks_per_item: 1, words }.fewest_blocks_per_item(min, max)
    }

    /// Returns the shape of a layer of at most `words` words. Up to 31 words form one block, with as few words as
    /// possible, or cache lines if these need no more. More words form cache lines if these fit, otherwise blocks that
    /// use up the words.
    fn small(self, words: u64) -> Option<BlockShape> {
        if words <= MAX_WORDS.into() {
            let mut low = 1;
            let mut high = words as u8;
            let mut best = self.search(high, 1, 1)?;
            while low < high {
                let middle = low + (high - low) / 2;
                if let Some(shape) = self.search(middle, 1, 1) {
                    best = shape;
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            // Look-ups in two or three cache lines are faster than in one block with as many words.
            let lines = u64::from(high / WORDS_PER_LINE);
            let is_of_lines = high.is_multiple_of(WORDS_PER_LINE);
            let in_lines = if is_of_lines { self.search(WORDS_PER_LINE, lines, lines) } else { None };
            return in_lines.or(Some(best));
        }
        self.search(WORDS_PER_LINE, 1, words / u64::from(WORDS_PER_LINE)).or_else(|| {
            let mut sizes: [u8; 16] = std::array::from_fn(|size| 2 * WORDS_PER_LINE + size as u8);
            sizes.sort_by_key(|&size| words % u64::from(size));
            // Other sizes would waste more than they save.
            sizes.into_iter().take(4).find_map(|size| {
                let blocks = words / u64::from(size);
                self.search(size, blocks, blocks)
            })
        })
    }

    /// Returns the best shape of more than `max` cache lines, for rates that no shape within the budget reaches.
    fn over_budget(self, max: u64) -> Option<BlockShape> {
        let min = max + 1;
        let mut max = max.max(blocks_for(self.capacity as f64 * whole_probes_bits_per_item(self.rate))?);
        loop {
            max = max.checked_add(max / 16 + 1).filter(|&blocks| blocks <= MAX_BLOCKS)?;
            if let Some(shape) = self.search(WORDS_PER_LINE, min, max) {
                return Some(shape);
            }
        }
    }
}

/// A search for the smallest layer, with a given number of blocks per item.
#[derive(Clone, Copy)]
struct Search {
    target: Target,
    blocks_per_item: u8,
    words: u8,
}

impl Search {
    /// Returns the shape with the fewest blocks per item that fits between `min` and `max` blocks.
    ///
    /// The error rate falls with the number of blocks per item, as long as each block has a probe. So this bisects.
    fn fewest_blocks_per_item(&self, min: u64, max: u64) -> Option<BlockShape> {
        let with = |blocks_per_item| Search { blocks_per_item, ..*self };
        let mut low = 1;
        let mut high = self.textbook_probes(max).min(MAX_BLOCKS_PER_ITEM).min(u8::try_from(max).unwrap_or(u8::MAX));
        while low < high {
            let middle = low + (high - low) / 2;
            if with(middle).keeps_rate(max).is_some() {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        with(low).fewest_blocks(min, max)
    }

    /// Returns the best number of probes for `blocks` blocks, if it keeps the rate.
    fn keeps_rate(&self, blocks: u64) -> Option<u8> {
        let (probes, rate) = self.best_probes(blocks, self.textbook_probes(blocks));
        (rate <= self.target.rate).then_some(probes)
    }

    /// Returns the shape with the fewest blocks between `min` and `max`, to within 0.1 %, that keeps the rate.
    fn fewest_blocks(&self, min: u64, max: u64) -> Option<BlockShape> {
        let min = min.max(u64::from(self.blocks_per_item));
        if min > max {
            return None;
        }
        let mut probes = self.keeps_rate(max)?;
        let mut best = self.shape(max, probes);
        let mut low = min;
        let mut high = max;
        let step = (min >> 10).max(1);
        while high - low >= step {
            let blocks = low + (high - low) / 2;
            let (better, rate) = self.best_probes(blocks, probes);
            if rate <= self.target.rate {
                high = blocks;
                probes = better;
                best = self.shape(blocks, probes);
            } else {
                low = blocks + 1;
            }
        }
        Some(best)
    }

    fn shape(&self, blocks: u64, probes: u8) -> BlockShape {
        BlockShape { blocks, words: self.words, blocks_per_item: self.blocks_per_item, probes }
    }

    /// Returns the textbook optimum `ln 2 * bits / items`, at which the search for the best number of probes starts.
    fn textbook_probes(&self, blocks: u64) -> u8 {
        let bits = blocks * u64::from(self.words) * WORD_BITS;
        let probes = LN_2 * bits as f64 / self.target.capacity as f64;
        self.probe_range(probes as i64)
    }

    /// Returns the number of probes with the lowest error rate, and that rate, by descent from `probes`.
    fn best_probes(&self, blocks: u64, probes: u8) -> (u8, f64) {
        let Target { capacity, rate, guarantee } = self.target;
        let rate = |probes: u8| {
            let items = match guarantee {
                Guarantee::Counted => items_offered(capacity, rate, probes),
                Guarantee::Distinct => capacity as f64,
            };
            self.shape(blocks, probes).false_positive_rate(items)
        };
        let mut best = (probes, rate(probes));
        for direction in [-1, 1] {
            loop {
                let next = self.probe_range(i64::from(best.0) + direction);
                let candidate = (next, rate(next));
                if next == best.0 || candidate.1 >= best.1 {
                    break;
                }
                best = candidate;
            }
        }
        best
    }

    /// Clamps a number of probes to at least one per block, and at most about twice the number of a textbook filter for
    /// the rate.
    fn probe_range(&self, probes: i64) -> u8 {
        let max = (2.0 * -libm::log2(self.target.rate)) as i64 + 2;
        probes.clamp(i64::from(self.blocks_per_item), max.clamp(i64::from(self.blocks_per_item), i64::from(u8::MAX)))
            as u8
    }
}

/// Returns the number of distinct items that are inserted into a layer before it counts `capacity` of them as new.
///
/// A few items are false positives when they are inserted, and are not counted. The rate must hold after them too.
/// Their fraction is the mean rate while the layer fills, by Simpson's rule from the ends and the middle: `(0 + 4 (1 -
/// 2^(-1/2))^k + rate) / 6`.
fn items_offered(capacity: u64, rate: f64, probes: u8) -> f64 {
    let half_full = power(1.0 - std::f64::consts::FRAC_1_SQRT_2, u32::from(probes));
    capacity as f64 / (1.0 - (rate + 4.0 * half_full) / 6.0)
}

/// Returns the number of bits per item that a textbook filter needs for `rate`: `ln(1/rate) / ln^2 2`.
pub fn textbook_bits_per_item(rate: f64) -> f64 {
    -libm::log(rate) / (LN_2 * LN_2)
}

/// Returns the number of bits per item that a textbook filter needs for `rate`, with one or two probes per item,
/// whichever needs fewer. At high rates, the optimum of [`textbook_bits_per_item`] has a fraction of a probe.
fn whole_probes_bits_per_item(rate: f64) -> f64 {
    let [one, two] = [1.0, 2.0].map(|probes| -probes / libm::log1p(-libm::pow(rate, 1.0 / probes)));
    one.min(two)
}

/// Returns the error rate of a textbook filter with `bits_per_item` bits and `probes` probes an item.
///
/// ```
/// # use oxbloom_filter::internals::sizing::textbook_false_positive_rate;
/// assert_eq!(format!("{:.4}", textbook_false_positive_rate(16.0, 2)), "0.0138");
/// ```
pub fn textbook_false_positive_rate(bits_per_item: f64, probes: u32) -> f64 {
    power(1.0 - libm::exp(-f64::from(probes) / bits_per_item), probes)
}

/// The fraction of the error rate that the blocks of a growing filter may use. The table has the rest.
///
/// With three quarters, the blocks for 100 items at 1 % take 128 bytes. With five eighths, they would take 136, for
/// which allocators use 160. The price of three quarters is up to one more bit per item in the table.
pub const LAYER_SHARE: f64 = 0.75;

/// The number of probes in each of an item's blocks: `extra_blocks` blocks have `base_probes + 1`, the others
/// `base_probes`.
struct ProbesPerBlock {
    base_probes: u32,
    extra_blocks: u32,
    /// The probability that a probe of a block meets a given bit.
    one_bit: f64,
    /// The fraction of the blocks with an extra probe.
    weight: f64,
    /// The probability that one item's probes of a block leave a given bit untouched.
    p_untouched: f64,
    /// The probability that they leave two given bits untouched.
    p_two_untouched: f64,
}

/// The expected fractions of clear bits, and of clear pairs of bits, in a block.
#[derive(Clone, Copy)]
struct Fill {
    clear: f64,
    clear_pairs: f64,
}

impl Fill {
    fn after(per_block: &ProbesPerBlock, items: u64) -> Fill {
        Fill { clear: power(per_block.p_untouched, items), clear_pairs: power(per_block.p_two_untouched, items) }
    }
}

impl ProbesPerBlock {
    fn new(shape: &BlockShape) -> ProbesPerBlock {
        let probes = u32::from(shape.probes);
        let blocks_per_item = u32::from(shape.blocks_per_item);
        let extra_blocks = probes % blocks_per_item;
        let mut per_block = ProbesPerBlock {
            base_probes: probes / blocks_per_item,
            extra_blocks,
            one_bit: 1.0 / shape.bits_per_block() as f64,
            weight: f64::from(extra_blocks) / f64::from(blocks_per_item),
            p_untouched: 0.0,
            p_two_untouched: 0.0,
        };
        per_block.p_untouched = per_block.survival(1.0);
        per_block.p_two_untouched = per_block.survival(2.0);
        per_block
    }

    /// Returns the probability that an item's probes of a block miss `bits` given bits of it.
    fn survival(&self, bits: f64) -> f64 {
        let miss = 1.0 - bits * self.one_bit;
        let base = power(miss, self.base_probes);
        base * (1.0 - self.weight) + base * miss * self.weight
    }

    /// Returns the probability that `base_probes` probes of a block all meet set bits, and the same for one more probe.
    #[inline]
    fn all_set(&self, fill: Fill) -> (f64, f64) {
        let set = 1.0 - fill.clear;
        let variance = (1.0 - self.one_bit) * fill.clear_pairs + self.one_bit * fill.clear - fill.clear * fill.clear;
        let pairs = |probes: u32| f64::from(probes) * (f64::from(probes) - 1.0) / 2.0;
        // f^p + pairs * f^(p-2) * Var, for p = base_probes and base_probes + 1.
        let less = power(set, self.base_probes.saturating_sub(2));
        let base = match self.base_probes {
            1 => set,
            probes => less * (set * set + pairs(probes) * variance),
        };
        let extra = match self.base_probes {
            1 => set * set + variance,
            probes => less * set * (set * set + pairs(probes + 1) * variance),
        };
        (base.min(1.0), extra.min(1.0))
    }

    /// Returns [`all_set`](Self::all_set), averaged over the binomial number of items in a block. Sums from the mode
    /// outwards, until the terms vanish.
    fn all_set_on_average(&self, items: f64, hit: f64) -> (f64, f64) {
        /// Terms below this fraction of the largest no longer change the sum.
        const VANISHED: f64 = 1e-17;
        let odds = hit / (1.0 - hit);
        let mode = ((items + 1.0) * hit) as u64;
        let at_mode = Fill::after(self, mode);
        let mut weights = 0.0;
        let mut base = 0.0;
        let mut extra = 0.0;
        let mut add = |weight: f64, fill: Fill| {
            let (with_base, with_extra) = self.all_set(fill);
            weights += weight;
            base += weight * with_base;
            extra += weight * with_extra;
        };
        add(1.0, at_mode);
        let mut weight = 1.0;
        let mut fill = at_mode;
        let mut j = mode as f64;
        while weight > VANISHED && j < items {
            weight *= (items - j).max(0.0) / (j + 1.0) * odds;
            fill = Fill { clear: fill.clear * self.p_untouched, clear_pairs: fill.clear_pairs * self.p_two_untouched };
            j += 1.0;
            add(weight, fill);
        }
        let mut weight = 1.0;
        let mut fill = at_mode;
        let mut j = mode as f64;
        while weight > VANISHED && j > 0.0 {
            weight *= j / ((items - j + 1.0) * odds);
            fill = Fill { clear: fill.clear / self.p_untouched, clear_pairs: fill.clear_pairs / self.p_two_untouched };
            j -= 1.0;
            add(weight, fill);
        }
        (base / weights, extra / weights)
    }
}

/// Returns `base^exponent` by repeated squaring. Unlike the platform's `powi`, the result has the same bits on every
/// machine.
#[inline]
pub fn power(base: f64, exponent: impl Into<u64>) -> f64 {
    let mut square = base;
    let mut result = 1.0;
    let mut exponent = exponent.into();
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

/// Returns the number of words for `bits` bits, rounded up as RedisBloom does.
fn words_for(bits: f64) -> u64 {
    libm::ceil(libm::trunc(bits) / WORD_BITS as f64).max(1.0) as u64
}

fn blocks_for(bits: f64) -> Option<u64> {
    let blocks = libm::ceil(libm::trunc(bits) / BITS_PER_LINE as f64).max(1.0);
    (blocks <= MAX_BLOCKS as f64).then_some(blocks as u64)
}
