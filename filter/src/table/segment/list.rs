//! Segments as lists of entries.

use std::ops::Range;

use super::stamps::slice_of;
use super::{GROUP_QUOTIENTS, MAX_LOG_GROUPS, MAX_RUN, Run, Segment};
use crate::arch::Baseline;
use crate::error::Error;
use crate::memory::try_vec;
use crate::table::bits::{DescendingWriter, field, low_bits, ones_from};
use crate::table::entry::{ListedEntry, MIN_DIGITS_COUNT, slot_content, slots_of};

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

    /// Fills an empty segment with `entries`, which are ordered by quotient. `bytes` is the size that
    /// [`bytes_for`](Self::bytes_for) returns, or a larger one. `base` is the last forgotten slice; no entry is in it
    /// or in an earlier one. No run is [too long](Self::has_long_run).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::CannotGrow`] if the segment would be too large.
    pub(in crate::table) fn with_entries(
        mut self,
        bytes: usize,
        entries: &[ListedEntry],
        base: u64,
    ) -> Result<Segment, Error> {
        debug_assert!(self.slots == 0, "a segment that is not empty");
        debug_assert!(!self.has_long_run(entries));
        self.base = base;
        let mut slots = [0usize; 1 << MAX_LOG_GROUPS];
        for entry in entries {
            slots[(entry.quotient / GROUP_QUOTIENTS) as usize] += self.slots_of(entry);
        }
        if bytes == 0 {
            return Ok(self);
        }
        self.allocate(bytes, |group| slots[group])?;
        self.slots = slots.iter().sum::<usize>() as u32;
        let shape = self.empty_copy();
        let mut rest = entries;
        for group in 0..self.groups() {
            let (start, end) = self.bounds(group);
            let bytes = self.bytes_mut();
            let mut lower = DescendingWriter::new(end);
            let mut bit = start * 8 + 1;
            let count = rest.partition_point(|entry| (entry.quotient / GROUP_QUOTIENTS) as usize == group);
            for entry in rest.split_off(..count).unwrap_or_default() {
                for index in 0..shape.slots_of(entry) {
                    let one = bit + (entry.quotient % GROUP_QUOTIENTS) as usize;
                    bytes[one / 8] |= 1 << (one % 8);
                    lower.append(bytes, shape.slot_content(entry, index), shape.width());
                    bit += 1;
                }
            }
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
        let slots = self.slots_in::<Baseline>(group);
        let width = self.width();
        let mut low = end * 8;
        let mut index = 0;
        let mut position = 0;
        while index < slots {
            let mut ones = field(self.bytes(), start * 8 + position, STEP);
            while ones != 0 && index < slots {
                low -= width as usize;
                // Among the bits before the slot's own one, the zeros are those of quotients up to its own.
                let zeros = position + ones.trailing_zeros() as usize - index;
                let quotient = group as u32 * GROUP_QUOTIENTS + zeros as u32 - 1;
                visit(quotient, field(self.bytes(), low, width));
                index += 1;
                ones &= ones - 1;
            }
            position += STEP as usize;
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

    /// Returns the size of a segment of this format with `entries` and room for `spare` further slots, in bytes.
    pub(in crate::table) fn bytes_for(&self, entries: &[ListedEntry], spare: usize) -> usize {
        self.bytes_for_slots(self.slots_for(entries) + spare)
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
