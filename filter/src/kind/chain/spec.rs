//! The parameters of a layer of bits.

use super::probes::MAX_BITS;
use crate::sizing::textbook_false_positive_rate;

/// The maximum number of probes of an item: that for the lowest error rate that a double can represent, `2^-1074`.
pub const MAX_PROBES: u32 = 1075;

/// The parameters of a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BitLayerSpec {
    /// The size of the bit array in bytes.
    pub bytes: u64,
    /// The stored number of bits.
    pub bits: u64,
    /// The binary logarithm of the number of bits that are used, or 0 if that is not a power of two.
    pub log2_bits: u8,
    /// The number of bits that an item sets.
    pub probes: u32,
    /// The number of items that the layer is created for.
    pub capacity: u64,
    /// The layer's own false-positive rate.
    pub error_rate: f64,
    /// The number of bits per item, computed from the error rate.
    pub bits_per_item: f64,
}

impl BitLayerSpec {
    /// Returns true if all probes are in the bounds of the layer, and look-ups end.
    pub fn is_sound(&self) -> bool {
        let used = self.used_bits();
        let has_bits = used.is_some_and(|used| (1..=MAX_BITS).contains(&used) && used.div_ceil(8) <= self.bytes);
        self.is_void()
            || has_bits
                && self.bits.div_ceil(8) <= self.bytes
                && self.bytes <= MAX_BITS / 8
                && (1..=MAX_PROBES).contains(&self.probes)
                && self.error_rate > 0.0
                && self.error_rate < 1.0
                && self.bits_per_item > 0.0
                && self.bits_per_item.is_finite()
    }

    /// Returns true for the empty layer that RedisBloom leaves behind when growth fails. It matches every item. We
    /// accept it, since rejecting it would reject the whole RDB file.
    fn is_void(&self) -> bool {
        let is_nothing = (self.bytes, self.bits, self.probes, self.capacity) == (0, 0, 0, 0);
        is_nothing && (self.error_rate, self.bits_per_item) == (0.0, 0.0)
    }

    /// Returns the false-positive rate after `items` distinct items were inserted.
    pub fn false_positive_rate(&self, items: u64) -> f64 {
        match items {
            0 => 0.0,
            _ => textbook_false_positive_rate(self.used_bits().unwrap_or(0) as f64 / items as f64, self.probes),
        }
    }

    /// Returns the number of bits that items are spread over.
    pub(super) fn used_bits(&self) -> Option<u64> {
        match self.log2_bits {
            0 => Some(self.bits),
            log2_bits => 1u64.checked_shl(log2_bits.into()),
        }
    }
}
