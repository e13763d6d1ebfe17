//! A cache line of bits, and bitwise operations on many lines.
//!
//! Bit `x` of a line is bit `x mod 8` of its byte `x / 8`, least significant first, on every machine: the bytes in
//! memory are the bytes that are stored.
//!
//! Whole layers are combined and counted byte by byte. The compiler vectorizes that. These functions are compiled
//! twice, for any processor and for processors with AVX2, and the program chooses at run time.

use multiversion::multiversion;

/// The number of bits in a cache line.
pub(crate) const BITS_PER_LINE: u64 = 8 * LINE as u64;

/// The number of bytes in a cache line.
pub(crate) const LINE: usize = 64;

/// One cache line of bits.
pub(crate) type Line = [u8; LINE];

/// The operation that combines two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CombineOp {
    Or,
    And,
}

/// The number of bytes that are combined at a time, so that they are still in the processor's L1 cache when they are
/// counted.
const PART: usize = 4 << 10;

/// Combines `target` with `sources`, which have the same length. If `target` is new, and so zeroed, combines `sources`
/// alone.
///
/// Hands each part of the result to `visit`. Returns true if `target` changed.
///
/// Reads all memory once, and does not write bytes that stay zero: the pages of a sparse filter stay untouched.
pub(crate) fn combine<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    op: CombineOp,
    is_new: bool,
    mut visit: impl FnMut(&[u8]),
) -> bool {
    let mut changed = false;
    for (index, part) in target.chunks_mut(PART).enumerate() {
        let mut sources = sources.clone().filter_map(|source| source.chunks(PART).nth(index));
        // A page that is written without being read first costs one page fault instead of two.
        let first = if is_new { sources.next() } else { None };
        if let Some(first) = first.filter(|first| first.iter().any(|&byte| byte != 0)) {
            part.copy_from_slice(first);
            changed = true;
        }
        for source in sources {
            changed |= apply(part, source, op);
        }
        visit(part);
    }
    changed
}

/// Combines `target` with `source`. Returns true if `target` changed.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn apply(target: &mut [u8], source: &[u8], op: CombineOp) -> bool {
    match op {
        CombineOp::Or => in_lines(target, source, |one, other| one | other),
        CombineOp::And => in_lines(target, source, |one, other| one & other),
    }
}

#[inline(always)]
fn in_lines(target: &mut [u8], source: &[u8], op: impl Fn(u8, u8) -> u8) -> bool {
    debug_assert_eq!(target.len(), source.len());
    let (lines, rest) = target.as_chunks_mut::<LINE>();
    let (sources, others) = source.as_chunks::<LINE>();
    let mut changed = false;
    for (target, source) in lines.iter_mut().zip(sources) {
        let combined: Line = std::array::from_fn(|byte| op(target[byte], source[byte]));
        if combined != *target {
            *target = combined;
            changed = true;
        }
    }
    for (target, &source) in rest.iter_mut().zip(others) {
        let combined = op(*target, source);
        changed |= combined != *target;
        *target = combined;
    }
    changed
}

/// Sets the bits of `source`, a line or a word, in `target`. Returns the number of them that were clear.
///
/// Works byte by byte: bitvec's `|=` works bit by bit, which made loading a filter of 10^8 items take 0.3 s longer.
pub(crate) fn or<const N: usize>(target: &mut [u8; N], source: &[u8; N]) -> u64 {
    let new: [u8; N] = std::array::from_fn(|byte| source[byte] & !target[byte]);
    let set = count_ones(&new);
    // If no bit is new, nothing is written: the pages of a sparse filter stay untouched.
    if set > 0 {
        target.iter_mut().zip(&new).for_each(|(target, new)| *target |= new);
    }
    set
}

/// Returns the number of bits that are set.
#[inline]
pub(crate) fn count_ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let of_words: u64 = words.iter().map(|&word| u64::from(u64::from_ne_bytes(word).count_ones())).sum();
    of_words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// Returns the number of bits that are set, for many bytes.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub fn count_ones_of_part(part: &[u8]) -> u64 {
    count_ones(part)
}
