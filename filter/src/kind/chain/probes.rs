//! The bit positions of an item in a layer, and fast division by the number of bits.

use crate::hash::Hash;

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
    pub(crate) divisor: u64,
    /// `floor((2^64 - 1) / divisor)`
    reciprocal: u64,
    /// `-2^64 mod divisor`, which is added when the sum of two words overflows.
    pub(crate) carry: u64,
}

impl Modulus {
    /// Prepares a divisor up to [`MAX_BITS`]. If it is 0, no position follows from the result.
    pub(crate) fn new(divisor: u64) -> Modulus {
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
    pub(crate) fn wrap(self, number: u64) -> u64 {
        number.min(number.wrapping_sub(self.divisor))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn remainders_are_exact(number: u64, divisor in 1..=MAX_BITS) {
            for number in [number, number - number % divisor, (number - number % divisor).saturating_sub(1), u64::MAX] {
                prop_assert_eq!(Modulus::new(divisor).of(number), number % divisor);
            }
        }
    }
}
