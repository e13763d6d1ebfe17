//! The search for the smallest layer that keeps an error rate.

use std::f64::consts::LN_2;

use super::probabilities::items_offered;
use super::{BlockShape, MAX_BLOCKS, MAX_BLOCKS_PER_ITEM, MAX_WORDS, WORD_BITS, WORDS_PER_LINE};

/// The items for which the error rate must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guarantee {
    /// All items that are inserted until `capacity` of them were counted as new; see [`items_offered`].
    Counted,
    /// `capacity` distinct items. At error rates above about 5 %, the memory of a textbook filter cannot guarantee
    /// more.
    Distinct,
}

/// The items that a layer must hold, and the error rate that it must keep.
#[derive(Clone, Copy)]
pub(super) struct Target {
    /// The number of items.
    pub capacity: u64,
    pub rate: f64,
    pub guarantee: Guarantee,
}

impl Target {
    /// Returns the best shape of `min` to `max` blocks with this number of words.
    pub(super) fn search(self, words: u8, min: u64, max: u64) -> Option<BlockShape> {
        Search { target: self, blocks_per_item: 1, words }.fewest_blocks_per_item(min, max)
    }

    /// Returns the shape of a layer of at most `words` words. Up to 31 words form one block, with as few words as
    /// possible, or cache lines if these need no more. More words form cache lines if these fit, otherwise blocks that
    /// use up the words.
    pub(super) fn small(self, words: u64) -> Option<BlockShape> {
        if words <= MAX_WORDS.into() {
            let words = words as u8;
            let mut best = self.search(words, 1, 1)?;
            let fewest = first(1, words, |words| self.search(words, 1, 1).inspect(|&shape| best = shape).is_some());
            // Look-ups in two or three cache lines are faster than in one block with as many words.
            let lines = u64::from(fewest / WORDS_PER_LINE);
            let is_of_lines = fewest.is_multiple_of(WORDS_PER_LINE);
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

    /// Returns the best shape of more than `max` cache lines, for rates that no shape within the budget reaches. At
    /// high rates, the optimum has a fraction of a probe.
    pub(super) fn over_budget(self, mut max: u64) -> Option<BlockShape> {
        let min = max + 1;
        loop {
            max = max.checked_add(max / 16 + 1).filter(|&blocks| blocks <= MAX_BLOCKS)?;
            if let Some(shape) = self.search(WORDS_PER_LINE, min, max) {
                return Some(shape);
            }
        }
    }
}

/// Returns the first number from `low` on for which `holds` is true, or `high` if it is for none below that.
fn first(mut low: u8, mut high: u8, mut holds: impl FnMut(u8) -> bool) -> u8 {
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Returns a number of at most `max` (at least 1) with many divisors, and at least half as large.
fn unit(max: u64) -> u64 {
    let factors = [2, 3, 2, 5, 2, 3, 7].into_iter().chain(std::iter::repeat(2));
    let mut unit = 1;
    for factor in factors {
        if unit * 2 > max {
            break;
        }
        if unit * factor <= max {
            unit *= factor;
        }
    }
    unit
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
        let most = self.textbook_probes(max).min(MAX_BLOCKS_PER_ITEM).min(u8::try_from(max).unwrap_or(u8::MAX));
        let fewest = first(1, most, |blocks_per_item| with(blocks_per_item).keeps_rate(max).is_some());
        with(fewest).fewest_blocks(min, max)
    }

    /// Returns the best number of probes for `blocks` blocks, if it keeps the rate.
    fn keeps_rate(&self, blocks: u64) -> Option<u8> {
        let (probes, rate) = self.best_probes(blocks, self.textbook_probes(blocks));
        (rate <= self.target.rate).then_some(probes)
    }

    /// Returns the shape with the fewest blocks between `min` and `max`, to within 0.1 %, that keeps the rate. Except
    /// `max`, only multiples of a number with many divisors are tried, so that the layer can be folded.
    fn fewest_blocks(&self, min: u64, max: u64) -> Option<BlockShape> {
        let min = min.max(u64::from(self.blocks_per_item));
        if min > max {
            return None;
        }
        let mut probes = self.keeps_rate(max)?;
        let mut best = self.shape(max, probes);
        let unit = unit(min >> 10);
        let (mut low, mut high) = (min.div_ceil(unit), max.div_ceil(unit));
        while low < high {
            let middle = low + (high - low) / 2;
            let (better, rate) = self.best_probes(middle * unit, probes);
            if rate <= self.target.rate {
                high = middle;
                probes = better;
                best = self.shape(middle * unit, probes);
            } else {
                low = middle + 1;
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
