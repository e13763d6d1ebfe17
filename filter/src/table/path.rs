//! Where an item belongs.

/// 128 bits of an item's hash, of which each level of the table uses up the next ones, from the top.
pub(super) type Path = u128;

/// Returns `bits` bits of a path, at most 63, behind the first `skip`. They are among the first 64.
#[inline(always)]
pub(super) fn bits_of(path: Path, skip: u32, bits: u32) -> u64 {
    // Two shifts: a shift by 64 would be none.
    ((path >> 64) as u64) << skip >> 1 >> (63 - bits)
}

/// As [`bits_of`], for bits that may be beyond the first 64. Slower: it shifts two words.
#[inline(always)]
pub(super) fn later_bits_of(path: Path, skip: u32, bits: u32) -> u64 {
    ((path << skip) >> 64) as u64 >> 1 >> (63 - bits)
}
