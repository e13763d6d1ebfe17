//! A cache line of bits.
//!
//! Bit `x` of a line is bit `x mod 8` of its byte `x / 8`, least significant first, on every machine: the bytes in
//! memory are the bytes that are stored.

/// The number of bits in a cache line.
pub(crate) const BITS_PER_LINE: u64 = 8 * LINE as u64;

/// The number of bytes in a cache line.
pub(crate) const LINE: usize = 64;

/// One cache line of bits.
pub(crate) type Line = [u8; LINE];

/// The size of a page. The pages of a sparse filter are not touched where no bit is set.
pub(crate) const PAGE: usize = 4096;

/// Sets the bits of `source` in `target`, which is as long. Returns the number of them that were clear.
///
/// Works line by line: bitvec's `|=` works bit by bit, which made loading a filter of 10^8 items take 0.3 s longer.
pub(crate) fn or(target: &mut [u8], source: &[u8]) -> u64 {
    let mut set = 0;
    for (target, source) in target.chunks_mut(PAGE).zip(source.chunks(PAGE)) {
        if source.iter().any(|&byte| byte != 0) {
            let (lines, rest) = target.as_chunks_mut::<LINE>();
            let (of_lines, of_rest) = source.as_chunks::<LINE>();
            set += lines.iter_mut().zip(of_lines).map(|(target, source)| or_line(target, source)).sum::<u64>();
            for (target, source) in rest.iter_mut().zip(of_rest) {
                set += u64::from((source & !*target).count_ones());
                *target |= source;
            }
        }
    }
    set
}

fn or_line(target: &mut Line, source: &Line) -> u64 {
    let new: Line = std::array::from_fn(|byte| source[byte] & !target[byte]);
    let set = count_ones(&new);
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
