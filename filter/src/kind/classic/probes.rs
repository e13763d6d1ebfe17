//! The bit positions of an item in a layer, and fast division by the number of bits.

use crate::hash::Hash;

/// The maximum number of probes of a look-up. A look-up that reaches it returns that the item is present.
///
/// A filter that was filled by additions never reaches it: at most half of the bits are set, so an absent item takes
/// about two probes a layer, or 2,200 with 1076 layers. In a forged filter, an absent item may take almost all 1075
/// probes of each layer: without this limit, a look-up took 3.7 ms.
pub const MAX_LOOKUP_PROBES: u32 = 8192;

/// The maximum number of bits of a layer: sums of two positions must not overflow, and bitvec supports no more.
pub const MAX_BITS: u64 = 1 << 60;

/// The probes of an item: its bit positions in a layer, in order.
pub trait Probes: Copy + Default + 'static {
    /// The maximum number of probes of a look-up in all layers. A look-up that reaches it returns that the item is
    /// present. Setting more bits only makes look-ups longer, so an item that was found by reaching the limit is found
    /// from then on.
    const MAX_OF_LOOKUP: u32;

    /// Returns the probes in a layer with this number of bits.
    fn new(hash: Hash, modulus: Modulus) -> Self;
    /// Returns the next position.
    fn next(&mut self, modulus: Modulus) -> usize;
}

/// The number of bits of a layer, prepared for fast division.
#[derive(Clone, Copy, Debug)]
pub struct Modulus {
    pub(super) divisor: u64,
    /// `floor((2^64 - 1) / divisor)`
    reciprocal: u64,
    /// `-2^64 mod divisor`, which is added when the sum of two words overflows.
    carry: u64,
}

impl Modulus {
    /// Prepares a divisor up to [`MAX_BITS`]. If it is 0, no position follows from the result.
    pub(super) fn new(divisor: u64) -> Modulus {
        debug_assert!(divisor <= MAX_BITS, "{divisor} bits");
        let reciprocal = u64::MAX.checked_div(divisor).unwrap_or(0);
        let carry = u64::MAX.checked_rem(divisor).map_or(0, |rest| divisor - 1 - rest);
        Modulus { divisor, reciprocal, carry }
    }

    /// Returns `number mod divisor`, after Barrett (1986): the quotient from the reciprocal is at most one too small.
    #[inline]
    pub(crate) fn of(self, number: u64) -> u64 {
        let quotient = ((u128::from(number) * u128::from(self.reciprocal)) >> 64) as u64;
        self.wrap(number - quotient * self.divisor)
    }

    /// Returns `number mod divisor` for numbers below `2 * divisor`. Branchless: the comparison is unpredictable.
    #[inline]
    fn wrap(self, number: u64) -> u64 {
        number.min(number.wrapping_sub(self.divisor))
    }
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
    const MAX_OF_LOOKUP: u32 = MAX_LOOKUP_PROBES;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_are_exact(
            first: u64,
            second in prop_oneof![any::<u64>(), 0u64..10, Just(u64::MAX)],
            divisor in prop_oneof![1..=MAX_BITS, 1u64..1000, (0u32..=60).prop_map(|bits| 1 << bits)],
        ) {
            let modulus = Modulus::new(divisor);
            let mut probes = ClassicProbes::new(Hash { first, second }, modulus);
            for probe in 0..64u64 {
                let expected = first.wrapping_add(probe.wrapping_mul(second)) % divisor;
                prop_assert_eq!(probes.next(modulus) as u64, expected);
            }
        }

        #[test]
        fn remainders_are_exact(number: u64, divisor in 1..=MAX_BITS) {
            for number in [number, number - number % divisor, (number - number % divisor).saturating_sub(1), u64::MAX] {
                prop_assert_eq!(Modulus::new(divisor).of(number), number % divisor);
            }
        }
    }
}
