//! Probabilities of false positives: those of a textbook filter, and of the items in one block.

use std::f64::consts::LN_2;

use super::BlockShape;

/// Returns the number of distinct items that are inserted into a layer before it counts `capacity` of them as new.
///
/// A few items are false positives when they are inserted, and are not counted. The rate must hold after them too.
/// Their fraction is the mean rate while the layer fills, by Simpson's rule from the ends and the middle: `(0 + 4 (1 -
/// 2^(-1/2))^k + rate) / 6`.
pub(super) fn items_offered(capacity: u64, rate: f64, probes: u8) -> f64 {
    let half_full = power(1.0 - std::f64::consts::FRAC_1_SQRT_2, u32::from(probes));
    capacity as f64 / (1.0 - (rate + 4.0 * half_full) / 6.0)
}

/// Returns the number of bits per item that a textbook filter needs for `rate`: `ln(1/rate) / ln^2 2`.
pub fn textbook_bits_per_item(rate: f64) -> f64 {
    -libm::log(rate) / (LN_2 * LN_2)
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

/// Returns the probability of at least one of two independent events.
#[inline]
pub(crate) fn either(first: f64, second: f64) -> f64 {
    first + (1.0 - first) * second
}

/// The number of probes in each of an item's blocks: `extra_blocks` blocks have `base_probes + 1`, the others
/// `base_probes`.
pub(super) struct ProbesPerBlock {
    base_probes: u32,
    pub extra_blocks: u32,
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
pub(super) struct Fill {
    clear: f64,
    clear_pairs: f64,
}

impl Fill {
    pub(super) fn after(per_block: &ProbesPerBlock, items: u64) -> Fill {
        Fill { clear: power(per_block.p_untouched, items), clear_pairs: power(per_block.p_two_untouched, items) }
    }
}

impl ProbesPerBlock {
    pub(super) fn new(shape: &BlockShape) -> ProbesPerBlock {
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
    pub(super) fn survival(&self, bits: f64) -> f64 {
        let miss = 1.0 - bits * self.one_bit;
        let base = power(miss, self.base_probes);
        base * (1.0 - self.weight) + base * miss * self.weight
    }

    /// Returns the probability that `base_probes` probes of a block all meet set bits, and the same for one more probe.
    #[inline]
    pub(super) fn all_set(&self, fill: Fill) -> (f64, f64) {
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
    pub(super) fn all_set_on_average(&self, items: f64, hit: f64) -> (f64, f64) {
        /// Terms below this fraction of the largest no longer change the sum.
        const VANISHED: f64 = 1e-17;
        let odds = hit / (1.0 - hit);
        let mode = ((items + 1.0) * hit) as u64;
        let at_mode = Fill::after(self, mode);
        let (mut weights, mut base, mut extra) = (0.0, 0.0, 0.0);
        let mut add = |weight: f64, fill: Fill| {
            let (with_base, with_extra) = self.all_set(fill);
            weights += weight;
            base += weight * with_base;
            extra += weight * with_extra;
        };
        add(1.0, at_mode);
        let (mut weight, mut fill, mut j) = (1.0, at_mode, mode as f64);
        while weight > VANISHED && j < items {
            weight *= (items - j).max(0.0) / (j + 1.0) * odds;
            fill = Fill { clear: fill.clear * self.p_untouched, clear_pairs: fill.clear_pairs * self.p_two_untouched };
            j += 1.0;
            add(weight, fill);
        }
        let (mut weight, mut fill, mut j) = (1.0, at_mode, mode as f64);
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
