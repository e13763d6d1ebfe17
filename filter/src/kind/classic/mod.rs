//! The classic filter: RedisBloom's [chain](BitChain) of layers, bit for bit, so that filters can be migrated in both
//! directions.
//!
//! ```text
//!  item ── MurmurHash64A ── a            (a + i b) mod m,  i = 0 .. k-1
//!    └─ MurmurHash64A, seed a ── b          │         │            │
//!                                           ▼         ▼            ▼
//!                             │ …  .  .  .  1 .  .  . 1 .  .  .  . 1 …  m bits │
//! ```
//!
//! Each layer has half the error rate of the one before. Filters that were created before RedisBloom 2.0 may use 32-bit
//! hashes and sizes that are powers of two.

use super::CreateParams;
use super::chain::bit_layer::BitLayer;
use super::chain::probes::{MAX_BITS, Modulus, Probes};
use super::chain::spec::BitLayerSpec;
use super::chain::{BitChain, ChainSpec};
use crate::error::Error;
use crate::hash::{Hash, Hasher};
use crate::spec::Growth;

/// `ln^2 2` and `ln 2` with RedisBloom's digits. One more digit would give different filters.
const LN2_SQUARED: f64 = 0.480453013918201;
#[allow(clippy::approx_constant, reason = "the digits are RedisBloom's")]
const LN2: f64 = 0.693147180559945;

/// A filter with RedisBloom's layout.
pub type ClassicFilter = BitChain<ClassicSpec>;

pub(crate) type ClassicLayer = BitLayer<ClassicProbes>;

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

    pub fn hash_bits(self) -> u8 {
        if self.0 & Options::WIDE_HASH != 0 { 64 } else { 32 }
    }
}

impl ClassicSpec {
    /// Returns a layer for `capacity` items with an error rate of its own.
    fn layer(&self, mut capacity: u64, error_rate: f64) -> Result<BitLayerSpec, Error> {
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
        let spec = BitLayerSpec {
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

    /// RedisBloom halves the error rate with each layer, so the 1075th is the last one whose rate a double can
    /// represent. A layer without bits may follow: see [`BitLayerSpec::is_sound`].
    const MAX_LAYERS: usize = 1076;
    /// As in RedisBloom.
    const FILTER_BYTES: usize = 32;
    /// As in RedisBloom.
    const LAYER_BYTES: usize = 64;

    type Params = (u32,);

    /// A filter that does not grow stores `stored_expansion`.
    fn new(params: &CreateParams, (stored_expansion,): (u32,)) -> ClassicSpec {
        let options = Options::NOT_ROUNDED | Options::WIDE_HASH;
        match params.growth {
            Growth::Fixed => ClassicSpec { options: Options(options | Options::FIXED), expansion: stored_expansion },
            Growth::By(expansion) => ClassicSpec { options: Options(options), expansion: expansion.get() },
        }
    }

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
    fn first(&self, capacity: u64, error_rate: f64) -> Result<BitLayerSpec, Error> {
        self.layer(capacity, if self.options.is_fixed() { error_rate } else { error_rate / 2.0 })
    }

    fn further(&self, capacity: u64, newest: &BitLayerSpec, _num_layers: usize) -> Result<BitLayerSpec, Error> {
        self.layer(capacity, newest.error_rate / 2.0)
    }
}

/// Returns the number of probes for `bits_per_item`.
pub fn probes_for(bits_per_item: f64) -> u32 {
    (LN2 * bits_per_item).ceil() as u32
}

/// The bit positions of an item: `(first + i * second) mod 2^64 mod divisor` for `i = 0, 1, …`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassicProbes {
    sum: u64,
    addend: u64,
    position: u64,
    step: u64,
    step_with_carry: u64,
}

impl Probes for ClassicProbes {
    /// A filter that was filled by additions never reaches it: at most half of the bits are set, so an absent item
    /// takes about two probes a layer, or 2,200 with 1076 layers. In a forged filter, an absent item may take almost
    /// all 1075 probes of each layer: without this limit, a look-up took 3.7 ms.
    const MAX_OF_LOOKUP: u32 = 8192;

    #[inline]
    fn new(hash: Hash, modulus: Modulus) -> ClassicProbes {
        let step = modulus.of(hash.second);
        ClassicProbes {
            sum: hash.first,
            addend: hash.second,
            position: modulus.of(hash.first),
            step,
            step_with_carry: modulus.wrap(step + modulus.carry),
        }
    }

    #[inline]
    fn next(&mut self, modulus: Modulus) -> usize {
        let position = self.position;
        debug_assert!(position < modulus.divisor, "a probe outside of the layer");
        let (sum, carried) = self.sum.overflowing_add(self.addend);
        self.sum = sum;
        self.position = modulus.wrap(position + if carried { self.step_with_carry } else { self.step });
        position as usize
    }
}

// An absent item takes about two probes a layer.
const _: () = assert!(4 * ClassicSpec::MAX_LAYERS <= ClassicProbes::MAX_OF_LOOKUP as usize);

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
