//! The hashes of items in cuckoo filters, all of them functions of the MurmurHash64A of the item.
//!
//! In a cuckoo filter, an item has a fingerprint and two buckets. A bucket of a layer is the low bits of a hash, and
//! the other bucket is the bitwise XOR of the bucket with a multiple of the fingerprint. The factor is odd, so both
//! buckets differ in the bit at the fingerprint's number of trailing zeros, and not below it. The *canonical* bucket is
//! the one in which that bit is 0.
//!
//! In a table, the fingerprint and the other bits of the canonical bucket, the lowest first, are the first bits of the
//! item's path. Everything that a layer stores of an item is therefore a prefix of its path, the longer the larger the
//! layer is.

use std::ops::RangeInclusive;

use super::{GOLDEN, Hash};
use crate::murmur::murmur64;

/// The number of values of a fingerprint.
pub(crate) const FINGERPRINTS: u64 = 255;

const FINGERPRINT_BITS: u32 = 8;

/// Returns the fingerprint of an item, given its hash.
#[inline]
pub(crate) fn fingerprint(hash: u64) -> u8 {
    (hash % FINGERPRINTS) as u8 + 1
}

/// Returns the other bucket of a fingerprint. This function is its own inverse, also in the low bits.
#[inline]
pub(crate) fn other_bucket(bucket: u64, fingerprint: u8) -> u64 {
    bucket ^ u64::from(fingerprint).wrapping_mul(0x5BD1_E995)
}

impl Hash {
    /// Returns the hash of an item in a cuckoo filter: the low bits of both words are its buckets.
    ///
    /// Not inlined, like those of classic filters, to keep it out of the native filter's hot path.
    #[inline(never)]
    pub(super) fn in_buckets(item: &[u8]) -> Hash {
        let murmur = murmur64(item, 0);
        Hash { first: murmur, second: other_bucket(murmur, fingerprint(murmur)) }
    }

    /// Returns the hash of an item in a table.
    #[inline(never)]
    pub(super) fn in_table(item: &[u8]) -> Hash {
        let murmur = murmur64(item, 0);
        Hash { first: path(fingerprint(murmur), murmur), second: murmur.wrapping_mul(GOLDEN) }
    }

    /// Returns what a layer with `2^log_buckets` buckets stores of an item, as the first bits of the item's hash in a
    /// table, and the number of these bits.
    pub(crate) fn of_stored(fingerprint: u8, bucket: u64, log_buckets: u32) -> (Hash, u32) {
        let has_canonical_bit = log_buckets > fingerprint.trailing_zeros();
        let length = FINGERPRINT_BITS + log_buckets - u32::from(has_canonical_bit);
        (Hash { first: path(fingerprint, bucket), second: 0 }, length)
    }

    /// Returns the numbers of bits that [`of_stored`](Self::of_stored) returns for a layer: one more for fingerprints
    /// whose buckets in a small layer are the same.
    pub(crate) fn stored_lengths(log_buckets: u32) -> RangeInclusive<u32> {
        let [shortest, longest] =
            [1, u8::MAX - u8::MAX / 2].map(|fingerprint| Hash::of_stored(fingerprint, 0, log_buckets).1);
        shortest..=longest
    }
}

/// Returns the first 64 bits of the path of a fingerprint in one of its buckets.
#[inline]
fn path(fingerprint: u8, bucket: u64) -> u64 {
    let zeros = fingerprint.trailing_zeros();
    let is_canonical = bucket >> zeros & 1 == 0;
    let canonical = if is_canonical { bucket } else { other_bucket(bucket, fingerprint) };
    let below = canonical & ((1 << zeros) - 1);
    let above = canonical >> zeros >> 1 << zeros;
    u64::from(fingerprint) << (u64::BITS - FINGERPRINT_BITS) | (below | above).reverse_bits() >> FINGERPRINT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_pinned() {
        // Stored filters are read with these paths.
        let items: [&[u8]; 4] = [b"", b"a", b"oxbloom", b"valkey"];
        let paths = [0x0100_0000_0000_0000, 0xC491_ADAD_9697_D1D1, 0xEC02_302B_F10B_D11B, 0x27EF_121A_B0A0_16A9];
        assert_eq!(items.map(|item| Hash::in_table(item).first), paths);
    }
}
