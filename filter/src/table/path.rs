//! Where an item belongs.

/// 128 bits of an item's hash, of which each level of the table uses up the next ones, from the top.
pub(super) type Path = u128;

/// Returns `bits` bits of a path, at most 63, behind the first `skip`, which are fewer than 128.
#[inline(always)]
pub(super) fn bits_of(path: Path, skip: u32, bits: u32) -> u64 {
    // Two shifts: a shift by 64 would be none.
    ((path << skip) >> 64) as u64 >> 1 >> (63 - bits)
}
