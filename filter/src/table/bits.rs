//! Bits of a byte slice: fields of any width, moves of bits, and selection.
//!
//! Bit `i` is bit `i % 8` of byte `i / 8`. Eight bytes read as a little-endian word therefore hold 64 bits in order,
//! wherever they start. All functions read whole words, so a slice ends with [`PADDING`] unused bytes.

use std::ops::Range;

use crate::arch::Processor;
use crate::array::WORD;

/// The number of bytes after the last field of a slice. With them, a word can be read from any byte of a field.
pub(super) const PADDING: usize = WORD;

/// The width of the widest field. With up to seven bits before it, it fits into one word.
pub(super) const MAX_WIDTH: u32 = u64::BITS - 7;

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let (word, _) = bytes[at..].split_first_chunk().expect("the padding holds the end of a word");
    u64::from_le_bytes(*word)
}

#[inline(always)]
fn set_word(bytes: &mut [u8], at: usize, word: u64) {
    *bytes[at..].first_chunk_mut().expect("the padding holds the end of a word") = word.to_le_bytes();
}

/// Returns the `width` bits from bit `at` on.
#[inline(always)]
pub(super) fn field(bytes: &[u8], at: usize, width: u32) -> u64 {
    debug_assert!(width <= MAX_WIDTH, "a field of {width} bits");
    word(bytes, at / 8) >> (at % 8) & low_bits(width)
}

/// Overwrites the `width` bits from bit `at` on.
#[inline(always)]
pub(super) fn set_field(bytes: &mut [u8], at: usize, width: u32, value: u64) {
    debug_assert!(value <= low_bits(width), "{value:x} in {width} bits");
    let byte = at / 8;
    let shift = at % 8;
    let others = word(bytes, byte) & !(low_bits(width) << shift);
    set_word(bytes, byte, others | value << shift);
}

/// Returns a word with the `width` lowest bits set, for widths from 0 to 63.
#[inline(always)]
pub(crate) fn low_bits(width: u32) -> u64 {
    (1 << width) - 1
}

/// Returns a word with the `width` lowest bits set, for widths from 1 to 64.
#[inline(always)]
pub(crate) fn low_bits_up_to_64(width: u32) -> u64 {
    u64::MAX >> (u64::BITS - width)
}

/// Returns the number of set bits from bit `at` to the next clear bit.
#[inline(always)]
pub(super) fn ones_from(bytes: &[u8], mut at: usize) -> usize {
    let start = at;
    loop {
        let ones = (word(bytes, at / 8) >> (at % 8)).trailing_ones();
        at += ones.min(MAX_WIDTH) as usize;
        if ones < MAX_WIDTH {
            return at - start;
        }
    }
}

/// Moves `bits` up by `width`, at most [`MAX_WIDTH`], and writes `field` to the `width` bits before them.
///
/// Each word is read before it is written, and never again: a read that overlaps the last write in part has to wait.
#[inline(always)]
pub(super) fn move_up(bytes: &mut [u8], bits: Range<usize>, width: u32, field: u64) {
    debug_assert!((1..=MAX_WIDTH).contains(&width) && field <= low_bits(width), "{field:x} in {width} bits");
    let base = bits.start / 8;
    let (words, inside) = words_up_to(bytes, base, bits.end + width as usize);
    let first = bits.start % 8;
    let last = words.len() - 1;
    let mut old = u64::from_le_bytes(words[0]);
    let below = old & low_bits(first as u32);
    old ^= below;
    let mut incoming = field << first | below;
    for index in 0..last {
        words[index] = (old << width | incoming).to_le_bytes();
        incoming = old >> (u64::BITS - width);
        old = u64::from_le_bytes(words[index + 1]);
    }
    words[last] = ((old << width | incoming) & inside | old & !inside).to_le_bytes();
}

/// Moves `bits` up by one, and sets the bit before them.
#[inline(always)]
pub(super) fn insert_one(bytes: &mut [u8], bits: Range<usize>) {
    let base = bits.start / 8;
    let end = bits.end + 1 - base * 8;
    let words = bytes[base..].split_first_chunk_mut().map(|(words, _)| words).filter(|_| end <= 128);
    // Without a loop, whose number of passes a processor could not predict.
    let Some(words) = words else { return move_up(bytes, bits, 1, 1) };
    let old = u128::from_le_bytes(*words);
    let first = 1u128 << (bits.start % 8);
    let moving = u128::MAX >> (128 - end) & !(first - 1);
    *words = ((old << 1 & moving | old & !moving) | first).to_le_bytes();
}

/// Moves `bits` down by one, over the bit before them, and clears the last of them.
#[inline(always)]
pub(super) fn remove_one(bytes: &mut [u8], bits: Range<usize>) {
    let base = (bits.start - 1) / 8;
    let end = bits.end - base * 8;
    let words = bytes[base..].split_first_chunk_mut().map(|(words, _)| words).filter(|_| end <= 128);
    let Some(words) = words else { return move_down(bytes, bits, 1, 0) };
    let old = u128::from_le_bytes(*words);
    let up_to = u128::MAX >> (128 - end);
    let moving = up_to & !((1u128 << ((bits.start - 1) % 8)) - 1);
    *words = ((old & up_to) >> 1 & moving | old & !moving).to_le_bytes();
}

/// Moves `bits` down by `width`, at most [`MAX_WIDTH`], and writes `field` to the last `width` of them.
#[inline(always)]
pub(super) fn move_down(bytes: &mut [u8], bits: Range<usize>, width: u32, field: u64) {
    debug_assert!((1..=MAX_WIDTH).contains(&width) && field <= low_bits(width), "{field:x} in {width} bits");
    let start = bits.start - width as usize;
    let (words, inside) = words_up_to(bytes, start / 8, bits.end);
    let moved = |low: u64, high: u64| low >> width | high << (u64::BITS - width);
    let last = words.len() - 1;
    let [bottom, top] = [words[0], words[last]].map(u64::from_le_bytes);
    // The field is moved down with the bits, from the place after them.
    let used = inside.count_ones();
    let with_field = top & inside | field.checked_shl(used).unwrap_or(0);
    // The compiler makes a vector of four words. The last four may overlap those before them.
    if let Some(&before_last) = words[..last].last_chunk::<4>() {
        let mut index = 0;
        while index + 4 < last
            && let Some(five) = words[index..].first_chunk_mut::<5>()
        {
            let old = five.map(u64::from_le_bytes);
            five[..4].copy_from_slice(&[0, 1, 2, 3].map(|at| moved(old[at], old[at + 1]).to_le_bytes()));
            index += 4;
        }
        let [a, b, c, d] = before_last.map(u64::from_le_bytes);
        let new = [moved(a, b), moved(b, c), moved(c, d), moved(d, with_field)].map(u64::to_le_bytes);
        words[last - 4..last].copy_from_slice(&new);
    } else {
        for index in 0..last {
            let above = if index + 1 < last { u64::from_le_bytes(words[index + 1]) } else { with_field };
            words[index] = moved(u64::from_le_bytes(words[index]), above).to_le_bytes();
        }
    }
    let moved = moved(with_field, field >> (u64::BITS - used));
    words[last] = (moved & inside | top & !inside).to_le_bytes();
    let below = low_bits(start as u32 % 8);
    words[0] = (u64::from_le_bytes(words[0]) & !below | bottom & below).to_le_bytes();
}

/// Returns the words from byte `base` to bit `end`, and the bits of the last word before bit `end`.
#[inline(always)]
fn words_up_to(bytes: &mut [u8], base: usize, end: usize) -> (&mut [[u8; 8]], u64) {
    let length = end - base * 8;
    let (words, _) = bytes[base..][..length.div_ceil(64) * WORD].as_chunks_mut();
    (words, low_bits_up_to_64((length as u32 - 1) % u64::BITS + 1))
}

/// Returns the position of clear bit number `rank`, counted from 0, relative to byte `start`.
#[inline(always)]
pub(super) fn select_zero<P: Processor>(bytes: &[u8], start: usize, rank: u32) -> usize {
    // The bit is mostly in the first or the second word, and a branch could not be predicted. So both words are read.
    let [first, second] = [!word(bytes, start), !word(bytes, start + WORD)];
    let in_first = first.count_ones();
    let is_later = rank >= in_first;
    let (zeros, rank) = if is_later { (second, rank - in_first) } else { (first, rank) };
    if rank < zeros.count_ones() {
        return usize::from(is_later) * 64 + P::select(zeros, rank) as usize;
    }
    select_later_zero::<P>(bytes, start, start + 2 * WORD, rank - zeros.count_ones())
}

/// Returns what [`select_zero`] returns for two ranks, the larger one second. Both bits are usually in the first three
/// words, which are read once.
#[inline(always)]
pub(super) fn select_zeros<P: Processor>(bytes: &[u8], start: usize, ranks: [u32; 2]) -> [usize; 2] {
    let wherever_they_are = || ranks.map(|rank| select_later_zero::<P>(bytes, start, start, rank));
    let Some(words) = bytes[start..].first_chunk::<{ 3 * WORD }>() else { return wherever_they_are() };
    let zeros = |index: usize| !u64::from_le_bytes(words.as_chunks().0[index]);
    let [in_first, in_second, in_third] = [0, 1, 2].map(|index| zeros(index).count_ones());
    let before = [0, in_first, in_first + in_second];
    if before[2] + in_third <= ranks[1] {
        return wherever_they_are();
    }
    ranks.map(|rank| {
        let index = usize::from(rank >= before[1]) + usize::from(rank >= before[2]);
        index * u64::BITS as usize + P::select(zeros(index), rank - before[index]) as usize
    })
}

/// Continues [`select_zero`] at byte `at`, from which on `rank` is counted.
#[inline(never)]
fn select_later_zero<P: Processor>(bytes: &[u8], start: usize, mut at: usize, mut rank: u32) -> usize {
    loop {
        let zeros = !word(bytes, at);
        let count = zeros.count_ones();
        if rank < count {
            return (at - start) * 8 + P::select(zeros, rank) as usize;
        }
        rank -= count;
        at += WORD;
    }
}

/// Returns the bits of the word at byte `at` up to its `max_zeros`-th clear bit, or all 64 bits if the word has fewer
/// clear bits. Also returns the number of these bits.
#[inline(always)]
pub(super) fn first_zeros<P: Processor>(bytes: &[u8], at: usize, max_zeros: u32) -> (u64, u32) {
    let word = word(bytes, at);
    let length = if word.count_zeros() < max_zeros { u64::BITS } else { P::select(!word, max_zeros - 1) + 1 };
    (word & low_bits_up_to_64(length), length)
}

/// A writer of bits, from a byte upwards.
pub(super) struct AscendingWriter {
    /// The next byte.
    at: usize,
    /// The bits that are not written yet, the first one lowest.
    pending: u64,
    /// The number of pending bits, below 64.
    count: u32,
}

impl AscendingWriter {
    pub(super) fn new(at: usize) -> AscendingWriter {
        AscendingWriter { at, pending: 0, count: 0 }
    }

    /// Appends the `width` bits of `bits`, 64 at most.
    #[inline(always)]
    pub(super) fn append(&mut self, bytes: &mut [u8], bits: u64, width: u32) {
        debug_assert!(bits.checked_shr(width).unwrap_or(0) == 0, "{bits:x} in {width} bits");
        self.pending |= bits << self.count;
        self.count += width;
        if self.count >= u64::BITS {
            set_word(bytes, self.at, self.pending);
            self.at += WORD;
            self.count -= u64::BITS;
            // The last `count` bits of `bits` are still to be written.
            self.pending = bits.checked_shr(width - self.count).unwrap_or(0);
        }
    }

    /// Writes the pending bits. The bits after them stay unchanged.
    pub(super) fn finish(self, bytes: &mut [u8]) {
        let others = word(bytes, self.at) & !low_bits(self.count);
        set_word(bytes, self.at, others | self.pending);
    }
}

/// A writer of fields, from the end of a byte downwards.
pub(super) struct DescendingWriter {
    /// The byte after the next one.
    at: usize,
    /// The bits that are not written yet, the first one highest.
    pending: u64,
    /// The number of pending bits, below 64.
    count: u32,
}

impl DescendingWriter {
    pub(super) fn new(at: usize) -> DescendingWriter {
        DescendingWriter { at, pending: 0, count: 0 }
    }

    /// Writes the `width` lowest bits of `bits`, fewer than 64, before all earlier fields.
    #[inline(always)]
    pub(super) fn append(&mut self, bytes: &mut [u8], bits: u64, width: u32) {
        let bits = bits & low_bits(width);
        self.count += width;
        if self.count < u64::BITS {
            self.pending |= bits.rotate_right(self.count);
            return;
        }
        self.count -= u64::BITS;
        self.at -= WORD;
        set_word(bytes, self.at, self.pending | bits >> self.count);
        self.pending = bits.checked_shl(u64::BITS - self.count).unwrap_or(0);
    }

    /// Writes the pending bits. The bits before them stay unchanged.
    pub(super) fn finish(self, bytes: &mut [u8]) {
        let at = self.at - WORD;
        let others = word(bytes, at) & low_bits_up_to_64(u64::BITS - self.count);
        set_word(bytes, at, others | self.pending);
    }
}
