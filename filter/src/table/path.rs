//! Paths: the bits of a hash that lead from the directory to a fingerprint.

/// The 128 bits of an item's hash, scaled in a table of fixed size. The directory, the segment, the group and the
/// fingerprint take the next bits each, from the top.
pub(super) type Path = u128;

/// The bits with which the paths of some items begin.
#[derive(Clone, Copy)]
pub(super) struct Prefix {
    /// The bits, and then zeros.
    pub path: Path,
    pub length: u32,
}

/// Returns `bits` bits of a path, at most 63, after the first `skip` bits. All of them are among the first 64.
#[inline(always)]
pub(super) fn bits_of(path: Path, skip: u32, bits: u32) -> u64 {
    // Two shifts, since a shift by 64 overflows.
    ((path >> 64) as u64) << skip >> 1 >> (63 - bits)
}

/// Returns the same as [`bits_of`], also for bits after the first 64. It is slower, since it shifts two words.
#[inline(always)]
pub(super) fn later_bits_of(path: Path, skip: u32, bits: u32) -> u64 {
    ((path << skip) >> 64) as u64 >> 1 >> (63 - bits)
}
