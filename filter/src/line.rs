//! A cache line of bits, and what is done with the bytes of many.
//!
//! Bit `x` of a line is bit `x mod 8` of its byte `x / 8`, least significant first, whatever the
//! machine: what is in memory is what is stored.
//!
//! Whole layers are combined and counted byte by byte: the compiler turns that into operations on many bytes. These
//! functions are compiled twice, for any processor and for one with AVX2. The choice is made when the program runs.

use multiversion::multiversion;

/// Bits in a cache line.
pub(crate) const LINE_BITS: u64 = 8 * LINE as u64;

/// Bytes in a cache line.
pub(crate) const LINE: usize = 64;

/// One cache line of bits.
pub(crate) type Line = [u8; LINE];

/// How two bytes are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CombineOp {
    Or,
    And,
}

/// Bytes that are combined before the next: they stay in the processor's first cache until they are counted.
const PART: usize = 4 << 10;

/// Combines `target` with `sources`, which are as long. If `target` is new, and so zeroed, combines `sources` alone.
///
/// Shows each part of the result to `see`. Returns true if `target` changed.
///
/// All memory is gone through once. What stays zero is not written: the pages of a sparse filter stay untouched.
pub(crate) fn combine<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    op: CombineOp,
    is_new: bool,
    mut see: impl FnMut(&[u8]),
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
        see(part);
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
    let ((lines, rest), (sources, others)) = (target.as_chunks_mut::<LINE>(), source.as_chunks::<LINE>());
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

/// Sets the bits of `source` in `target`, both a line or a word. Returns how many of them were clear.
///
/// By bytes: bitvec's `|=` goes bit by bit, which made loading a filter of 10^8 items take 0.3 s longer.
pub(crate) fn or<const N: usize>(target: &mut [u8; N], source: &[u8; N]) -> u64 {
    let new: [u8; N] = std::array::from_fn(|byte| source[byte] & !target[byte]);
    let set = count_ones(&new);
    // What gains nothing is not written: the pages of a sparse filter stay untouched.
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

/// As [`count_ones`], for many bytes.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub fn count_ones_of_part(part: &[u8]) -> u64 {
    count_ones(part)
}
