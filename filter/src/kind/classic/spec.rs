//! The parameters of classic filters and of their layers, and the sizes of the layers.

use super::ChainSpec;
use super::probes::ClassicProbes;
pub use super::probes::{MAX_BITS, MAX_LOOKUP_PROBES};
use crate::error::Error;
use crate::hash::Hasher;
use crate::sizing::textbook_false_positive_rate;
use crate::spec::Growth;
/// `ln^2 2` and `ln 2` with RedisBloom's digits. One more digit would give different filters.
const LN2_SQUARED: f64 = 0.480453013918201;
#[allow(clippy::approx_constant, reason = "the digits are RedisBloom's")]
const LN2: f64 = 0.693147180559945;

/// The bytes that RedisBloom takes for a filter without its layers.
pub const FILTER_BYTES: usize = 32;
/// The bytes that RedisBloom takes for a layer without its bits.
pub const LAYER_BYTES: usize = 64;

/// The maximum number of probes of an item: that for the lowest error rate that a double can represent, `2^-1074`.
pub const MAX_PROBES: u32 = 1075;

/// The maximum number of layers of a filter. RedisBloom halves the error rate with each layer, so the 1075th is the
/// last one whose rate a double can represent. A layer without bits may follow: see [`ClassicLayerSpec::is_sound`].
pub const MAX_LAYERS: usize = 1076;

// An absent item takes about two probes a layer.
const _: () = assert!(4 * MAX_LAYERS <= MAX_LOOKUP_PROBES as usize);

/// The parameters that the layers of a classic filter share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassicSpec {
    /// RedisBloom's options for hashing, sizing and growth.
    pub options: Options,
    /// The ratio of the sizes of successive layers. A loaded filter may have 0: it cannot grow.
    pub expansion: u32,
}

/// The options of a filter, as RedisBloom stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options(u32);

impl Options {
    /// The number of bits is not rounded up to a power of two.
    const NOT_ROUNDED: u32 = 1;
    /// The capacity of a further layer is the binary logarithm of its number of bits.
    const SIZED_BY_BITS: u32 = 2;
    /// Items are hashed with 64 bits, not 32.
    const WIDE_HASH: u32 = 4;
    /// The filter does not grow.
    const FIXED: u32 = 8;

    /// Returns the options, or `None` if there are unknown ones.
    pub fn new(bits: u32) -> Option<Options> {
        (bits < 16).then_some(Options(bits))
    }

    /// Returns the options as they are stored.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if the filter does not grow.
    pub fn is_fixed(self) -> bool {
        self.0 & Options::FIXED != 0
    }

    /// Returns the width of the hash in bits.
    pub fn hash_bits(self) -> u8 {
        if self.0 & Options::WIDE_HASH != 0 { 64 } else { 32 }
    }
}

impl ClassicSpec {
    /// Returns the parameters of a new filter. If it does not grow, it stores `stored_expansion`.
    pub fn new(growth: Growth, stored_expansion: u32) -> ClassicSpec {
        let options = Options::NOT_ROUNDED | Options::WIDE_HASH;
        match growth {
            Growth::Fixed => ClassicSpec { options: Options(options | Options::FIXED), expansion: stored_expansion },
            Growth::By(expansion) => ClassicSpec { options: Options(options), expansion: expansion.get() },
        }
    }

    /// Returns a layer for `capacity` items with an error rate of its own.
    fn layer(&self, mut capacity: u64, error_rate: f64) -> Result<ClassicLayerSpec, Error> {
        if capacity == 0 || error_rate <= 0.0 {
            return Err(Error::CannotGrow);
        }
        // The system's logarithm, as in RedisBloom. A portable one may differ in the last bit.
        let bits_per_item = error_rate.ln().abs() / LN2_SQUARED;
        let optimum = capacity as f64 * bits_per_item;
        if optimum >= MAX_BITS as f64 {
            return Err(Error::OutOfMemory);
        }
        let (bits, log2_bits) = if self.options.0 & Options::SIZED_BY_BITS != 0 {
            let bits = 1u64.checked_shl(u32::try_from(capacity).unwrap_or(u32::MAX)).ok_or(Error::OutOfMemory)?;
            let log2_bits = capacity;
            capacity = (bits as f64 / bits_per_item) as u64;
            (bits, log2_bits)
        } else if self.options.0 & Options::NOT_ROUNDED != 0 {
            (optimum as u64, 0)
        } else {
            let bits = (optimum as u64 + 1).next_power_of_two();
            capacity += ((bits as f64 - optimum) / bits_per_item) as u64;
            (bits, bits.ilog2().into())
        };
        let bytes = bits.max(1).div_ceil(u64::BITS.into()) * 8;
        let probes = probes_for(bits_per_item);
        let spec = ClassicLayerSpec {
            bytes,
            bits: 8 * bytes,
            log2_bits: log2_bits as u8,
            probes,
            capacity,
            error_rate,
            bits_per_item,
        };
        if spec.is_sound() && spec.capacity > 0 { Ok(spec) } else { Err(Error::CannotGrow) }
    }
}

impl ChainSpec for ClassicSpec {
    type Probes = ClassicProbes;

    const MAX_LAYERS: usize = MAX_LAYERS;
    const FILTER_BYTES: usize = FILTER_BYTES;
    const LAYER_BYTES: usize = LAYER_BYTES;

    #[inline]
    fn hasher(&self) -> Hasher<'_> {
        if self.options.hash_bits() == 64 { Hasher::Murmur64 } else { Hasher::Murmur32 }
    }

    fn hash_bits(&self) -> u8 {
        self.options.hash_bits()
    }

    fn expansion(&self) -> Option<u32> {
        (!self.options.is_fixed()).then_some(self.expansion)
    }

    fn error_rate(&self, of_first: f64) -> f64 {
        if self.options.is_fixed() { of_first } else { 2.0 * of_first }
    }

    /// In a growing filter, the first layer has half of the error rate.
    fn first(&self, capacity: u64, error_rate: f64) -> Result<ClassicLayerSpec, Error> {
        self.layer(capacity, if self.options.is_fixed() { error_rate } else { error_rate / 2.0 })
    }

    fn next(&self, newest: &ClassicLayerSpec, _num_layers: usize) -> Result<ClassicLayerSpec, Error> {
        if self.options.is_fixed() {
            return Err(Error::Full);
        }
        let capacity = newest.capacity.checked_mul(self.expansion.into()).ok_or(Error::OutOfMemory)?;
        self.layer(capacity, newest.error_rate / 2.0)
    }
}

/// Returns the number of probes for `bits_per_item`.
pub fn probes_for(bits_per_item: f64) -> u32 {
    (LN2 * bits_per_item).ceil() as u32
}

/// The parameters of a classic layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassicLayerSpec {
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

impl ClassicLayerSpec {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_holds_at_least_one_item() {
        let spec = ClassicSpec { options: Options(Options::SIZED_BY_BITS | Options::WIDE_HASH), expansion: 2 };
        // An item needs 14.4 bits.
        assert_eq!(spec.layer(4, 0.001).map(|layer| layer.capacity), Ok(1));
        assert_eq!(spec.layer(3, 0.001).map(|layer| layer.capacity), Err(Error::CannotGrow));
    }
}
