//! The size of a segment, and the slack in it.

use super::{GROUP_QUOTIENTS, MAX_LOG_GROUPS, Run, Segment, SlotFormat};
use crate::arch::Processor;
use crate::array::Bytes;
use crate::error::Error;
use crate::table::bits::PADDING;

/// The most bytes in a segment: offsets have 16 bits.
pub(in crate::table) const MAX_BYTES: usize = u16::MAX as usize;

/// The divisor that gives the slack of a segment. With less slack, the search for it takes longer.
const SLACK_DIVISOR: usize = 32;

/// Returns the least size of a segment for `slots` slots of `width` bits, with enough slack that a search for slack
/// stays short. Each group has `base_bytes` bytes before its upper part.
#[inline(always)]
fn min_bytes(slots: usize, groups: usize, width: usize, base_bytes: usize) -> usize {
    let bits = (GROUP_QUOTIENTS as usize + 1) * groups + slots * (width + 1);
    // The upper and the lower part of a group share no byte.
    let needed = bits.div_ceil(8) + (2 + base_bytes) * groups + header_bytes(groups) + PADDING;
    needed + needed / SLACK_DIVISOR
}

/// Returns the size of a segment with `slots` filled slots, in bytes.
pub(in crate::table) fn bytes_of_segment(slots: usize, log_groups: u32, format: SlotFormat) -> usize {
    round_to_size_class(min_bytes(slots, 1 << log_groups, format.width as usize, usize::from(format.stamp_bits > 0)))
}

/// Returns the size of the upper part of a group with `slots` slots, in bytes.
#[inline(always)]
fn upper_bytes(slots: usize) -> usize {
    (GROUP_QUOTIENTS as usize + 1 + slots).div_ceil(8)
}

/// Returns the size of the offsets, in bytes.
const fn header_bytes(groups: usize) -> usize {
    (groups + 1) * size_of::<u16>()
}

/// Rounds a size up to one of jemalloc's size classes, four per doubling.
fn round_to_size_class(bytes: usize) -> usize {
    bytes.next_multiple_of(size_class_step(bytes))
}

/// Returns the distance from the smallest size class that holds `bytes` bytes to the next smaller one.
fn size_class_step(bytes: usize) -> usize {
    (bytes.next_power_of_two() / 8).max(16)
}

impl Segment {
    /// Returns the size of a group with `slots` slots and no slack, in bytes. Its two parts share no byte.
    fn group_bytes(&self, slots: usize) -> usize {
        self.base_bytes() + upper_bytes(slots) + (slots * usize::from(self.width)).div_ceil(8)
    }

    /// Returns the size of a segment of this format with `slots` slots, in bytes. It depends on nothing else, so that
    /// tables with equal content have equal sizes, whatever their history.
    pub(in crate::table) fn bytes_for_slots(&self, slots: usize) -> usize {
        if slots == 0 { 0 } else { round_to_size_class(self.min_bytes(slots)) }
    }

    /// Returns the least size for `slots` slots: see the function [`min_bytes`].
    #[inline(always)]
    fn min_bytes(&self, slots: usize) -> usize {
        min_bytes(slots, self.groups(), self.width.into(), self.base_bytes())
    }

    /// Returns true if a run, its group with `slots` slots, and the segment have room for another slot.
    #[inline(always)]
    pub(in crate::table) fn has_room(&self, run: &Run, slots: usize) -> bool {
        let used = GROUP_QUOTIENTS as usize + 1 + slots * (usize::from(self.width) + 1);
        !run.is_full() && used + usize::from(self.width) < run.end - run.start && self.fits_another_slot()
    }

    /// Gives a group half the slack of the nearest group that has enough. Returns false if no group has enough.
    ///
    /// Inlined, like all functions that select, so that it is compiled for the processor at hand.
    #[inline(always)]
    pub(in crate::table) fn borrow<P: Processor>(&mut self, group: usize) -> bool {
        let need = (usize::from(self.width) + 1).div_ceil(8) + 1;
        let (_, upper_end, lower_start) = self.slack::<P>(group);
        for distance in 1..self.groups() {
            let above = Some(group + distance).filter(|&donor| donor < self.groups());
            for donor in above.into_iter().chain(group.checked_sub(distance)) {
                let (slack, donor_upper_end, donor_lower_start) = self.slack::<P>(donor);
                if slack < need {
                    continue;
                }
                let by = need.max(slack / 2);
                if donor > group {
                    self.bytes_mut().copy_within(lower_start..donor_upper_end, lower_start + by);
                    (group + 1..=donor).for_each(|next| self.set_offset(next, self.offset(next) + by));
                } else {
                    self.bytes_mut().copy_within(donor_lower_start..upper_end, donor_lower_start - by);
                    (donor + 1..=group).for_each(|next| self.set_offset(next, self.offset(next) - by));
                }
                return true;
            }
        }
        false
    }

    /// Returns the number of unused bytes in a group, the byte after its upper part, and the first byte of its lower
    /// part.
    #[inline(always)]
    fn slack<P: Processor>(&self, group: usize) -> (usize, usize, usize) {
        let (start, end) = self.bounds(group);
        let slots = self.slots_in::<P>(group);
        let upper_end = start + upper_bytes(slots);
        let lower_start = (end * 8 - slots * usize::from(self.width)) / 8;
        (lower_start.saturating_sub(upper_end), upper_end, lower_start)
    }

    /// Returns true if the segment is large enough for another slot.
    #[inline(always)]
    pub(in crate::table) fn fits_another_slot(&self) -> bool {
        self.min_bytes(self.slots as usize + 1) <= self.allocated()
    }

    pub(in crate::table) fn bytes_with_another_slot(&self) -> usize {
        self.bytes_for_slots(self.slots as usize + 1)
    }

    /// Returns the size that the segment should have, or `None` if it is not larger than that.
    pub(in crate::table) fn smaller_size(&self) -> Option<usize> {
        Some(self.bytes_for_slots(self.slots as usize)).filter(|&bytes| bytes < self.allocated())
    }

    /// Returns true if a segment with memory has a [`smaller_size`](Self::smaller_size), in fewer instructions.
    #[inline(always)]
    pub(in crate::table) fn is_oversized(&self) -> bool {
        let allocated = self.allocated();
        // The size of a segment is a size class.
        let is_oversized =
            self.slots == 0 || self.min_bytes(self.slots as usize) + size_class_step(allocated) <= allocated;
        debug_assert_eq!(is_oversized, self.smaller_size().is_some(), "{allocated} bytes are not a size class");
        is_oversized
    }

    /// Returns a copy with a size of `bytes` bytes, and with room for another slot in group `next`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::CannotGrow`] if the bytes do not suffice.
    pub(in crate::table) fn resized<P: Processor>(&self, bytes: usize, next: Option<usize>) -> Result<Segment, Error> {
        let mut new = Segment { bytes: Bytes::empty(), ..*self };
        if bytes == 0 {
            return Ok(new);
        }
        let mut slots = [0; 1 << MAX_LOG_GROUPS];
        self.filled_groups().for_each(|group| slots[group] = self.slots_in::<P>(group));
        new.allocate(bytes, |group| slots[group] + usize::from(next == Some(group)))?;
        for group in self.filled_groups() {
            let (start, end) = self.extent(group);
            let (new_start, new_end) = new.extent(group);
            // The lower part comes first: its first byte may also be the last byte of the upper part.
            let lower = (slots[group] * usize::from(self.width)).div_ceil(8);
            let upper = self.base_bytes() + upper_bytes(slots[group]);
            let bytes = new.bytes_mut();
            bytes[new_end - lower..new_end].copy_from_slice(&self.bytes()[end - lower..end]);
            bytes[new_start..new_start + upper].copy_from_slice(&self.bytes()[start..start + upper]);
        }
        Ok(new)
    }

    /// Allocates `bytes` bytes, and sets the offsets so that all groups get equal slack.
    pub(super) fn allocate(&mut self, bytes: usize, slots_of_group: impl Fn(usize) -> usize) -> Result<(), Error> {
        let groups = self.groups();
        let needed: usize = (0..groups).map(|group| self.group_bytes(slots_of_group(group))).sum();
        let header = header_bytes(groups);
        let free = bytes.checked_sub(header + needed + PADDING).filter(|_| bytes <= MAX_BYTES);
        let mut free = free.ok_or(Error::CannotGrow)?;
        self.bytes = Bytes::zeroed(bytes as u64)?;
        let mut offset = header;
        for group in 0..groups {
            self.set_offset(group, offset);
            let share = free / (groups - group);
            free -= share;
            offset += self.group_bytes(slots_of_group(group)) + share;
        }
        self.set_offset(groups, offset);
        Ok(())
    }
}
