//! Coverage: the fraction of all paths that entries match, from which the false-positive rate follows.

use super::Addressing;
use super::entry::ListedEntry;
use super::segment::Segment;

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

impl Addressing {
    /// Returns a number in proportion to the fraction of all paths that a value matches.
    #[inline(always)]
    pub(super) fn weight(self, value: u64) -> u64 {
        match self {
            // A fingerprint that lacks a bit matches twice as many paths, and its terminator stands for twice as much.
            Addressing::Growing(_) => value & value.wrapping_neg(),
            // The value 1 also stands for 0.
            Addressing::Fixed(_) => 1 + u64::from(value == 1),
        }
    }

    /// Returns the fraction of all paths that values of a segment match, given the sum of their weights.
    #[inline(always)]
    pub(super) fn coverage_of_weight(self, segment: &Segment, weight: u128) -> u128 {
        weight * (1 << COVERAGE_BITS.saturating_sub(segment.level() + segment.value_bits() - self.terminator()))
    }

    /// Returns the fraction of all paths that a value of a segment matches.
    #[inline(always)]
    pub(super) fn coverage_of_value(self, segment: &Segment, value: u64) -> u128 {
        self.coverage_of_weight(segment, self.weight(value).into())
    }

    /// Returns the sum of the fractions of all paths that entries of a segment match.
    pub(super) fn coverage_of_entries(self, segment: &Segment, entries: &[ListedEntry]) -> u128 {
        let weights = entries.iter().map(|entry| u128::from(self.weight(entry.value)));
        self.coverage_of_weight(segment, weights.sum())
    }
}
