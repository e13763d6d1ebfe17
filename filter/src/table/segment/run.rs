//! Runs: the slots of a quotient, and the search for entries in them.

use super::Segment;
use crate::table::bits::{MAX_WIDTH, field, low_bits};
use crate::table::entry::{MAX_ENTRY_COUNT, MIN_DIGITS_COUNT, slots_of};

/// The largest number of slots in a run.
///
/// A quotient has about one entry, and hardly ever ten. Only items that were crafted for the filter's seed, or forged
/// bytes, fill more. All operations pass over a run, and merges compare its entries pairwise, so the limit bounds their
/// time.
pub(super) const MAX_RUN: usize = 256;

// In the narrowest slots, a digit has one bit.
const _: () = assert!(MAX_ENTRY_COUNT.ilog2() as usize + 3 <= MAX_RUN, "an entry that no run has room for");

/// The slots of a quotient.
#[derive(Clone, Copy)]
pub(in crate::table) struct Run {
    pub group: usize,
    /// The start of the group's upper part, in bits from the start of the segment.
    pub(super) start: usize,
    /// The end of the group, in bits from the start of the segment.
    pub(super) end: usize,
    /// The position of the quotient's zero, in bits from the start of the segment.
    pub(super) zero: usize,
    /// The number of the group's slots before the run.
    pub(super) first: usize,
    /// The number of slots in the run.
    pub(super) len: usize,
}

impl Run {
    /// Returns true if the run must not get another slot.
    #[inline(always)]
    pub(in crate::table) fn is_full(&self) -> bool {
        self.len >= MAX_RUN
    }
}

/// A value in a run, and its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Entry {
    pub value: u64,
    pub count: u64,
    /// The index of the entry's first slot in the run.
    pub(super) index: usize,
}

/// The slots of a run that match an item.
pub(in crate::table) enum Found {
    None,
    One {
        index: usize,
        value: u64,
    },
    /// Several slots match, or the run has digits.
    Several,
}

/// An iterator over the entries of a run.
pub(in crate::table) struct Entries<'a> {
    segment: &'a Segment,
    run: Run,
    next: usize,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    #[inline(always)]
    fn next(&mut self) -> Option<Entry> {
        let entry = (self.next < self.run.len).then(|| self.segment.entry(&self.run, self.next))?;
        debug_assert!(entry.count > 0, "an entry without slots would never end");
        self.next += slots_of(entry.count, self.segment.width());
        Some(entry)
    }
}

impl Segment {
    #[inline(always)]
    pub(super) fn slot_bit(&self, run: &Run, index: usize) -> usize {
        run.end - (run.first + index + 1) * usize::from(self.width)
    }

    #[inline(always)]
    pub(super) fn slot(&self, run: &Run, index: usize) -> u64 {
        field(self.bytes(), self.slot_bit(run, index), self.width())
    }

    /// Returns true if `matches` returns true for the value of any entry of a run.
    #[inline(always)]
    pub(in crate::table) fn any(&self, run: &Run, matches: impl Fn(u64) -> bool) -> bool {
        self.position(run, matches).is_some()
    }

    /// Returns true if a value of a run is equal to `value`, or, `by_prefix`, if its fingerprint is a prefix of that of
    /// `value`. Returns `None` if the slots do not fit into a word, or if one is 0, which comes before digits.
    ///
    /// Compares all slots at once: a processor cannot predict how many there are.
    #[inline(always)]
    pub(in crate::table) fn any_at_once(&self, run: &Run, value: u64, by_prefix: bool) -> Option<bool> {
        let width = self.width();
        let bits = run.len as u32 * width;
        if bits > MAX_WIDTH {
            return None;
        }
        let slots = field(self.bytes(), run.end - run.first * width as usize - bits as usize, bits);
        // Bit 0 and the top bit of each slot.
        let ones = ONES[width as usize] & low_bits(bits);
        let tops = ones << (width - 1);
        // Sets the top bit of each slot that is not 0.
        let filled = |slots: u64| (((slots & !tops) + (tops - ones)) | slots) & tops;
        if filled(slots) != tops {
            return None;
        }
        // The terminator of each slot, and the zeros below it.
        let ends = if by_prefix { slots ^ (slots - ones) } else { 0 };
        Some(filled((slots ^ (value * ones)) & !ends) != tops)
    }

    /// Returns the first entry of a run for whose value `matches` returns true. Does not read the counts of others.
    #[inline(always)]
    pub(in crate::table) fn find(&self, run: &Run, matches: impl FnMut(u64) -> bool) -> Option<Entry> {
        self.position(run, matches).map(|index| self.entry(run, index))
    }

    /// Returns the index of the first slot of the entry that [`find`](Self::find) returns.
    #[inline(always)]
    fn position(&self, run: &Run, mut matches: impl FnMut(u64) -> bool) -> Option<usize> {
        let mut index = 0;
        while index < run.len {
            let slot = self.slot(run, index);
            if slot == 0 {
                index = self.after_digits(run, index);
                continue;
            }
            if matches(slot) {
                return Some(index);
            }
            index += 1;
        }
        None
    }

    /// Looks for the only slot of a run whose value matches. Returns [`Found::Several`] for every run with digits.
    #[inline(always)]
    pub(in crate::table) fn only_slot(&self, run: &Run, matches: impl Fn(u64) -> bool) -> Found {
        let mut found = Found::None;
        for index in 0..run.len {
            let value = self.slot(run, index);
            if value == 0 || matches(value) {
                if value == 0 || !matches!(found, Found::None) {
                    return Found::Several;
                }
                found = Found::One { index, value };
            }
        }
        found
    }

    /// Returns the slot after the digits that follow the 0 at `index`.
    #[cold]
    fn after_digits(&self, run: &Run, index: usize) -> usize {
        let digits = (index + 1..run.len).take_while(|&digit| self.slot(run, digit) >> (self.width() - 1) > 0).count();
        index + 1 + digits + 1
    }

    #[inline(always)]
    pub(in crate::table) fn entries(&self, run: Run) -> Entries<'_> {
        Entries { segment: self, run, next: 0 }
    }

    #[inline(always)]
    fn entry(&self, run: &Run, index: usize) -> Entry {
        let value = self.slot(run, index);
        let next = if index + 1 < run.len { self.slot(run, index + 1) } else { u64::MAX };
        let count = match next {
            0 => self.count(run, index + 2),
            next if next == value => 2,
            _ => 1,
        };
        Entry { value, count, index }
    }

    /// Returns the count of an entry whose digits begin at `index`. Stored digits may be forged, so a count that does
    /// not fit becomes [`u64::MAX`], which is more than any valid count.
    #[cold]
    fn count(&self, run: &Run, index: usize) -> u64 {
        let bits = self.width() - 1;
        let mut number = 0;
        let mut shift = 0;
        for digit in index..run.len {
            let digit = self.slot(run, digit);
            number |= (digit & low_bits(bits)).checked_shl(shift).unwrap_or(0);
            shift += bits;
            if digit >> bits == 0 {
                break;
            }
        }
        u64::saturating_add(number, MIN_DIGITS_COUNT)
    }
}

/// For each width of slots, a word in which bit 0 of each slot is set.
pub(super) const ONES: [u64; MAX_WIDTH as usize + 1] = {
    let mut ones = [0; MAX_WIDTH as usize + 1];
    let mut width = 1;
    while width < ones.len() {
        let mut at = 0;
        while at < u64::BITS as usize {
            ones[width] |= 1 << at;
            at += width;
        }
        width += 1;
    }
    ones
};
