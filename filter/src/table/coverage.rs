//! Coverage: the fraction of all paths that entries match, from which the false-positive rate follows.

use super::entry::ListedEntry;

/// A fraction of all paths, in units of `2^-120`. It is aligned to words. Allocations with a larger alignment do not
/// come from the server's allocator, so defragmentation could not move them.
#[derive(Clone, Copy)]
#[repr(Rust, packed(8))]
pub(super) struct Coverage(pub(super) u128);

impl Coverage {
    pub(super) fn add(&mut self, other: u128) {
        self.0 = self.0.saturating_add(other);
    }

    pub(super) fn subtract(&mut self, other: u128) {
        self.0 = self.0.saturating_sub(other);
    }
}

/// The resolution of a [`Coverage`].
pub(super) const COVERAGE_BITS: u32 = 120;

/// Returns the fraction of all paths that have a given prefix of `bits` bits.
pub(super) fn coverage_of_prefix(bits: u32) -> u128 {
    1 << COVERAGE_BITS.saturating_sub(bits)
}

/// Returns a number in proportion to the fraction of all paths that a value of a growing table matches. A fingerprint
/// that lacks a bit matches twice as many paths, and its terminator stands for twice as much.
#[inline(always)]
pub(super) fn weight_of_prefix(value: u64) -> u64 {
    value & value.wrapping_neg()
}

/// Returns the sum of the fractions of all paths that entries of a growing table match.
pub(super) fn coverage_of_entries(entries: &[ListedEntry], level: u32, value_bits: u32) -> u128 {
    let weight: u128 = entries.iter().map(|entry| u128::from(weight_of_prefix(entry.value))).sum();
    weight * coverage_of_prefix(level + value_bits - 1)
}
