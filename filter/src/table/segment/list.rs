//! Segments as lists of entries.

use std::ops::Range;

use super::run::MAX_RUN;
use super::stamps::slice_of;
use super::{GROUP_QUOTIENTS, MAX_LOG_GROUPS, Run, Segment};
use crate::arch::Baseline;
use crate::error::Error;
use crate::memory::try_vec;
use crate::table::bits::{AscendingWriter, DescendingWriter, field, low_bits, ones_from};
use crate::table::entry::{ListedEntry, MIN_DIGITS_COUNT, insert_before, slot_content, slots_of};

/// The quotient and the content of a slot.
pub(in crate::table) type ListedSlot = (u32, u64);

/// Returns true if a quotient has more than [`MAX_RUN`] of `slots`, which are ordered by quotient.
pub(in crate::table) fn has_long_run(slots: &[ListedSlot]) -> bool {
    slots.windows(MAX_RUN + 1).any(|slots| slots[0].0 == slots[MAX_RUN].0)
}

impl Segment {
    /// Returns all entries of neighbouring segments, in order. Quotients are numbered across the segments.
    pub(in crate::table) fn list(segments: &[&Segment]) -> Result<Vec<ListedEntry>, Error> {
        let mut entries = try_vec(segments.iter().map(|segment| segment.slots as usize).sum())?;
        let mut first = 0;
        for segment in segments {
            segment.for_each_entry(|quotient, value, content| {
                entries.push(ListedEntry { quotient: first + quotient, value, content });
            });
            first += segment.quotients();
        }
        Ok(entries)
    }

    /// Returns the slots of a growing segment after its quotients doubled, with values of `to` bits, as
    /// [`doubled`](crate::table::entry::doubled) returns its entries. Returns `None` if that takes more than a change of
    /// each slot: if an entry has digits, if two entries become one, if a set has a void entry then, or if more than an
    /// eighth of the slots are void.
    pub(in crate::table) fn doubled_slots(&self, to: u32, is_set: bool) -> Result<Option<Vec<ListedSlot>>, Error> {
        let mut copies_left = self.slots / 8;
        let mut slots: Vec<ListedSlot> = try_vec((self.slots + copies_left) as usize)?;
        let top = self.width() - 1;
        let more = to + 1 - self.value_bits();
        let stamp = low_bits(self.stamp_bits());
        let after_next_bit = low_bits(top - 1) & !stamp;
        let insert =
            |slots: &mut _, slot: ListedSlot| insert_before(slots, slot, |other: &ListedSlot| other.0 > slot.0);
        let moved = |quotient, rest| (quotient, (rest & !stamp) << more | rest & stamp);
        let mut is_plain = true;
        for group in self.filled_groups() {
            self.for_each_slot(group, |quotient, slot| {
                let bit = (slot >> top) as u32;
                let rest = slot & low_bits(top);
                if slot & after_next_bit != 0 {
                    return insert(&mut slots, moved(quotient << 1 | bit, rest));
                }
                // A void value, which is copied, or a value that becomes void, or the 0 before digits.
                let is_copied = rest & !stamp == 0;
                is_plain &= !is_set && (!is_copied || bit == 1 && copies_left > 0);
                copies_left = copies_left.saturating_sub(is_copied.into());
                for bit in if is_copied { 0..2 } else { bit..bit + 1 } {
                    let void = moved(quotient << 1 | bit, rest | 1 << (top - 1));
                    let mut others = slots.iter().rev().take_while(|other| other.0 >= void.0);
                    is_plain &= !others.any(|other| other.0 == void.0 && (other.1 ^ void.1) & !stamp == 0);
                    if is_plain {
                        insert(&mut slots, void);
                    }
                }
            });
            if !is_plain {
                return Ok(None);
            }
        }
        Ok(Some(slots))
    }

    /// Returns the slots of `entries`, which are ordered by quotient.
    pub(in crate::table) fn slots_of_list(&self, entries: &[ListedEntry]) -> Result<Vec<ListedSlot>, Error> {
        let mut slots = try_vec(self.slots_for(entries))?;
        for entry in entries {
            for index in 0..self.slots_of(entry) {
                slots.push((entry.quotient, self.slot_content(entry, index)));
            }
        }
        Ok(slots)
    }

    /// Fills an empty segment with its `slots`, which are ordered by quotient, and leaves room for `spare` more. Their
    /// quotients may be numbered across two segments. `base` is the last forgotten slice; no slot is in it or in an
    /// earlier one. No run is [too long](has_long_run).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::CannotGrow`] if the segment would be too large.
    pub(in crate::table) fn with_slots(
        mut self,
        slots: &[ListedSlot],
        spare: usize,
        base: u64,
    ) -> Result<Segment, Error> {
        debug_assert!(self.slots == 0, "a segment that is not empty");
        debug_assert!(!has_long_run(slots));
        self.base = base;
        let bytes = self.bytes_for_slots(slots.len() + spare);
        if bytes == 0 {
            return Ok(self);
        }
        let mut counts = [0; 1 << MAX_LOG_GROUPS];
        let groups = self.groups();
        slots.iter().for_each(|(quotient, _)| counts[(quotient / GROUP_QUOTIENTS) as usize % groups] += 1);
        self.allocate(bytes, |group| counts[group])?;
        self.slots = slots.len() as u32;
        let width = self.width();
        let mut rest = slots;
        for (group, &count) in counts[..groups].iter().enumerate() {
            let (start, end) = self.bounds(group);
            let bytes = self.bytes_mut();
            let (mut upper, mut lower) = (AscendingWriter::new(start), DescendingWriter::new(end));
            upper.append(bytes, 0, 1);
            let mut last = 0;
            for &(quotient, content) in rest.split_off(..count).unwrap_or_default() {
                let quotient = quotient % GROUP_QUOTIENTS;
                upper.append(bytes, 1 << (quotient - last), quotient - last + 1);
                lower.append(bytes, content, width);
                last = quotient;
            }
            upper.finish(bytes);
            lower.finish(bytes);
        }
        Ok(self)
    }

    /// Calls `visit` with the quotient, the value, and the count or slice of each entry.
    #[inline(always)]
    fn for_each_entry(&self, mut visit: impl FnMut(u32, u64, u64)) {
        for group in self.filled_groups() {
            if self.stamp_bits > 0 {
                let base = self.base_of(group);
                self.for_each_slot(group, |quotient, slot| {
                    visit(quotient, slot >> self.stamp_bits, slice_of(base, slot, self.stamp_bits()));
                });
                continue;
            }
            // An entry is complete when a slot follows that is neither equal to its value, nor its 0, nor a digit.
            let mut last = ListedEntry { quotient: 0, value: 0, content: 0 };
            // The place of the next digit in the count, in bits, if the slot is one.
            let mut digit = None;
            self.for_each_slot(group, |quotient, slot| {
                if let Some(place) = digit {
                    let bits = self.width() - 1;
                    last.content += (slot & low_bits(bits)) << place;
                    digit = (slot >> bits > 0).then_some(place + bits);
                } else if slot == 0 {
                    last.content = MIN_DIGITS_COUNT;
                    digit = Some(0);
                } else if slot == last.value && quotient == last.quotient {
                    last.content = 2;
                } else {
                    if last.content > 0 {
                        visit(last.quotient, last.value, last.content);
                    }
                    last = ListedEntry { quotient, value: slot, content: 1 };
                }
            });
            if last.content > 0 {
                visit(last.quotient, last.value, last.content);
            }
        }
    }

    /// Calls `visit` with the quotient and the content of each slot of a group. There is no loop over runs: most have
    /// no slot, one or two, and a processor cannot predict how many.
    #[inline(always)]
    fn for_each_slot(&self, group: usize, mut visit: impl FnMut(u32, u64)) {
        /// The number of bits of the upper part that are read at a time.
        const STEP: u32 = 56;
        let (start, end) = self.bounds(group);
        // Without the last zero.
        let length = GROUP_QUOTIENTS + self.slots_in::<Baseline>(group) as u32;
        let width = self.width();
        let mut low = end * 8;
        let mut index = 0;
        for position in (0..length).step_by(STEP as usize) {
            let mut ones = field(self.bytes(), start * 8 + position as usize, STEP.min(length - position));
            let first = group as u32 * GROUP_QUOTIENTS + position;
            while ones != 0 {
                low -= width as usize;
                index += 1;
                // Among the bits before a slot's own one, the zeros are those of quotients up to its own.
                visit(first + ones.trailing_zeros() - index, field(self.bytes(), low, width));
                ones &= ones - 1;
            }
        }
    }

    /// Calls `visit` with the value of each entry.
    pub(in crate::table) fn for_each_value(&self, mut visit: impl FnMut(u64)) {
        self.for_each_entry(|_quotient, value, _content| visit(value));
    }

    /// Returns the groups, or none if the segment has no memory.
    pub(super) fn filled_groups(&self) -> Range<usize> {
        0..if !self.bytes().is_empty() { self.groups() } else { 0 }
    }

    /// Returns the runs of a group, in order.
    pub(super) fn runs_of(&self, group: usize) -> impl Iterator<Item = Run> {
        let (start, end) = self.bounds(group);
        let mut first = 0;
        (0..GROUP_QUOTIENTS as usize).map(move |quotient| {
            let zero = start * 8 + quotient + first;
            let len = ones_from(self.bytes(), zero + 1);
            let run = Run { group, start: start * 8, end: end * 8, zero, first, len };
            first += len;
            run
        })
    }

    pub(in crate::table) fn slots_for(&self, entries: &[ListedEntry]) -> usize {
        entries.iter().map(|entry| self.slots_of(entry)).sum()
    }

    pub(in crate::table) fn slots_of(&self, entry: &ListedEntry) -> usize {
        if self.stamp_bits > 0 { 1 } else { slots_of(entry.content, self.width()) }
    }

    /// Returns the content of slot `index` of an entry.
    fn slot_content(&self, entry: &ListedEntry, index: usize) -> u64 {
        match self.stamp_bits {
            0 => slot_content(entry.value, entry.content, self.width(), index),
            _ => self.stamped_slot(entry.value, entry.content),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Hash;
    use crate::table::entry::{Payload, Stamps, doubled};
    use crate::table::segment::SlotFormat;

    /// Values have few bits, so that many are void or become void.
    #[test]
    fn slots_double_as_their_entries_do() {
        const BITS: u32 = 5;
        for payload in [Payload::Nothing, Payload::Count, Payload::Slice(Stamps { forgotten: 0, span: 4 })] {
            let stamp_bits = payload.stamp_bits();
            let empty =
                |log_groups, bits| Segment::empty(0, log_groups, SlotFormat { width: bits + stamp_bits, stamp_bits });
            for (seed, to) in (0..100).flat_map(|seed| [4, 5, 6].map(|to| (seed, to))) {
                let mut entries = Vec::new();
                for (quotient, value) in
                    (0..128).flat_map(|quotient| (1..1 << BITS).map(move |value| (quotient, value)))
                {
                    let random = Hash::xxh3(&[quotient as u8, value as u8], seed).first;
                    let content = if payload == Payload::Nothing { 1 } else { 1 + random / 64 % 2 };
                    // Half of the tables have neither values that are void nor values that become void.
                    if random.is_multiple_of(64) && (seed % 2 == 0 || value % 8 > 0) {
                        entries.push(ListedEntry { quotient, value, content });
                    }
                }
                let slots = empty(1, BITS).slots_of_list(&entries).unwrap();
                let segment = empty(1, BITS).with_slots(&slots, 0, 0).unwrap();
                assert_eq!(Segment::list(&[&segment]).unwrap(), entries);
                let of_entries = empty(2, to).slots_of_list(&doubled(&entries, BITS, to, payload).unwrap()).unwrap();
                match segment.doubled_slots(to, payload == Payload::Nothing).unwrap() {
                    Some(slots) => assert_eq!(slots, of_entries),
                    None => assert_eq!(seed % 2, 0, "lists are only for void entries"),
                }
            }
        }
    }
}
