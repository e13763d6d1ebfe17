//! Segments as lists of entries.

use std::ops::Range;

use super::stamps::slice_of;
use super::{GROUP_QUOTIENTS, MAX_LOG_GROUPS, MAX_RUN, Run, Segment};
use crate::arch::Baseline;
use crate::error::Error;
use crate::memory::try_vec;
use crate::table::bits::{AscendingWriter, DescendingWriter, field, low_bits, ones_from};
use crate::table::entry::{ListedEntry, MIN_DIGITS_COUNT, slot_content, slots_of};

/// The quotient and the content of a slot.
pub(in crate::table) type ListedSlot = (u32, u64);

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

    /// Returns the slots of a growing segment after its quotients doubled, with values of `to` bits: each fingerprint
    /// gives its top bit to the quotient, as in [`doubled`](crate::table::entry::doubled). Returns `None` if that takes
    /// more than a change of each slot: if an entry has digits, or is void now or then.
    pub(in crate::table) fn doubled_slots(&self, to: u32) -> Result<Option<Vec<ListedSlot>>, Error> {
        let mut slots: Vec<ListedSlot> = try_vec(self.slots as usize)?;
        let top = self.width() - 1;
        let more = to + 1 - self.value_bits();
        let stamp = low_bits(self.stamp_bits());
        let after_next_bit = low_bits(top - 1) & !stamp;
        let mut is_plain = true;
        for group in self.filled_groups() {
            self.for_each_slot(group, |quotient, slot| {
                is_plain &= slot & after_next_bit != 0;
                let rest = slot & low_bits(top);
                let slot = (quotient << 1 | (slot >> top) as u32, (rest & !stamp) << more | rest & stamp);
                slots.push(slot);
                let mut at = slots.len() - 1;
                while at > 0 && slots[at - 1].0 > slot.0 {
                    slots.swap(at - 1, at);
                    at -= 1;
                }
            });
        }
        Ok(is_plain.then_some(slots))
    }

    /// Returns the slots of `entries`, which are ordered by quotient.
    pub(in crate::table) fn slots_of_list(&self, entries: &[ListedEntry]) -> Result<Vec<ListedSlot>, Error> {
        debug_assert!(!self.has_long_run(entries));
        let mut slots = try_vec(self.slots_for(entries))?;
        for entry in entries {
            slots.extend((0..self.slots_of(entry)).map(|index| (entry.quotient, self.slot_content(entry, index))));
        }
        Ok(slots)
    }

    /// Fills an empty segment with `slots`, which are ordered by quotient. Quotients may be numbered across two segments,
    /// of which this one gets its own slots. `bytes` is the size that
    /// [`bytes_for_slots`](Self::bytes_for_slots) returns, or a larger one. `base` is the last forgotten slice; no slot
    /// is in it or in an earlier one. No run is longer than [`MAX_RUN`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::CannotGrow`] if the segment would be too large.
    pub(in crate::table) fn with_slots(
        mut self,
        bytes: usize,
        slots: &[ListedSlot],
        base: u64,
    ) -> Result<Segment, Error> {
        debug_assert!(self.slots == 0, "a segment that is not empty");
        self.base = base;
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

    /// Returns the size of a segment of this format with `entries`, in bytes.
    pub(in crate::table) fn bytes_for(&self, entries: &[ListedEntry]) -> usize {
        self.bytes_for_slots(self.slots_for(entries))
    }

    /// Fills an empty segment with `entries`, as [`with_slots`](Self::with_slots) does.
    pub(in crate::table) fn with_entries(
        self,
        bytes: usize,
        entries: &[ListedEntry],
        base: u64,
    ) -> Result<Segment, Error> {
        let slots = self.slots_of_list(entries)?;
        self.with_slots(bytes, &slots, base)
    }

    /// Returns true if the entries of a quotient, of `entries` ordered by quotient, fill more than [`MAX_RUN`] slots.
    pub(in crate::table) fn has_long_run(&self, entries: &[ListedEntry]) -> bool {
        let mut runs = entries.chunk_by(|one, other| one.quotient == other.quotient);
        runs.any(|run| self.slots_for(run) > MAX_RUN)
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
