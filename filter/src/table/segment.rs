//! A segment: up to 32 Elias–Fano groups in one allocation of a few kilobytes.
//!
//! A *group* has 64 quotients. Its *upper* part holds, for each quotient, a zero and then a one for each slot of the
//! quotient; a last zero ends it. Its *lower* part holds the slots, in the same order, from the group's end downwards.
//! Between them is slack:
//!
//! ```text
//!  bytes   │ offsets    │ group 0                     │ group 1              │ … │ padding │
//!           u16 a group  │ upper ──>  slack  <── lower │ upper ──> <── lower │
//!
//!  upper    0 1 0 0 1 1 0 …  0          one slot of quotient 0, none of 1, two of 2, …
//! ```
//!
//! The slots of quotient `x` are its *run*. A look-up selects zero number `x` in the upper part. The position of that
//! zero, less `x`, is the number of slots before the run. The ones that follow the zero count the slots of the run. An
//! insertion moves the bits that follow in its group. A group without slack takes half the slack of the nearest group
//! that has some. Nothing leaves its segment.
//!
//! A run is a sequence of [entries](super::entry).
//!
//! # Forgetting
//!
//! In a table that forgets, the last bits of each slot are a *stamp*: the low bits of a slice number. The slice is the
//! first one after the group's *base* with these low bits. A byte before each upper part holds the group's base,
//! relative to the segment's base. A write to a group first drops the slots of forgotten slices, and then moves the
//! group's base up to the last forgotten slice. Stamps therefore need only as many values as there are remembered
//! slices, and no operation has to pass over the whole table.

mod stamps;

use std::ptr::NonNull;

use super::bits::{
    Broadword, MAX_WIDTH, PADDING, Select, field, low_bits, move_down, move_up, ones_from, select_zero, set_field,
    zeros_from,
};
use super::directory::Bucket;
use super::entry::{ListedEntry, MAX_ENTRY_COUNT, Payload, Stamps, slot_content, slots_of};
use super::path::{Path, bits_of, later_bits_of};
use crate::array::{Bytes, prefetch};
use crate::error::Error;
use crate::line::LINE;
use crate::memory::try_vec;

/// The number of quotients in a group.
pub(super) const GROUP_QUOTIENTS: u32 = 1 << QUOTIENT_BITS;

/// The number of path bits that choose a quotient in a group.
pub(super) const QUOTIENT_BITS: u32 = 6;

/// The most groups in a segment, as a power of two.
///
/// With 32 groups, a segment has 2 to 4 KiB. The allocator's overhead is then about 1 %, and a split takes about 20
/// microseconds.
pub(super) const MAX_LOG_GROUPS: u32 = 5;

/// The most bytes in a segment: offsets have 16 bits.
pub(super) const MAX_BYTES: usize = u16::MAX as usize;

/// A segment, or the alias of one.
pub(super) struct Segment {
    /// The offsets, groups and padding; empty if no slot is filled. See [`bytes_for_slots`](Self::bytes_for_slots) for
    /// the size.
    bytes: Bytes,
    /// The number of filled slots.
    slots: u32,
    /// The number of bits in a slot, at least 2.
    width: u8,
    /// The number of bits in a stamp: 0 in a table that does not forget.
    stamp_bits: u8,
    log_groups: u8,
    /// The number of path bits that choose the segment.
    depth: u8,
    /// The slice that the bases of groups are relative to.
    base: u64,
}

impl Bucket for Segment {
    #[inline(always)]
    fn depth(&self) -> u32 {
        self.depth.into()
    }

    fn alias(depth: u32) -> Segment {
        Segment::empty(depth, 0, SlotFormat { width: 0, stamp_bits: 0 })
    }
}

/// The format of a slot: a value, and then a stamp in a table that forgets.
#[derive(Clone, Copy)]
pub(super) struct SlotFormat {
    /// The number of bits in a slot.
    pub width: u32,
    /// The number of these bits that belong to the stamp.
    pub stamp_bits: u32,
}

/// The address of a path in a segment.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub group: usize,
    pub quotient: u32,
    /// The following bits of the path, in the length of the longest fingerprint.
    pub remainder: u64,
}

/// The slots of a quotient.
#[derive(Clone, Copy)]
pub(super) struct Run {
    group: usize,
    /// The end of the group, in bits from the start of the segment.
    end: usize,
    /// The position of the quotient's zero, in bits from the start of the segment.
    zero: usize,
    /// The number of the group's slots before the run.
    first: usize,
    /// The number of slots in the run.
    len: usize,
}

impl Run {
    /// Returns the run's group.
    #[inline(always)]
    pub(super) fn group(&self) -> usize {
        self.group
    }
}

/// A value in a run, and its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub value: u64,
    pub count: u64,
    /// The index of the entry's first slot in the run.
    index: usize,
}

/// An iterator over the entries of a run.
pub(super) struct Entries<'a> {
    segment: &'a Segment,
    run: Run,
    next: usize,
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    #[inline(always)]
    fn next(&mut self) -> Option<Entry> {
        let entry = (self.next < self.run.len).then(|| self.segment.entry(&self.run, self.next))?;
        self.next += slots_of(entry.count, self.segment.width());
        Some(entry)
    }
}

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
pub(super) fn bytes_of_segment(slots: usize, log_groups: u32, format: SlotFormat) -> usize {
    round_to_size_class(min_bytes(slots, 1 << log_groups, format.width as usize, usize::from(format.stamp_bits > 0)))
}

/// Returns the size of the offsets, in bytes.
const fn header_bytes(groups: usize) -> usize {
    (groups + 1) * size_of::<u16>()
}

/// An iterator over the quotients of a segment that have slots, and their runs.
struct Runs<'a> {
    segment: &'a Segment,
    /// The groups after the current one.
    groups: std::ops::Range<usize>,
    /// The current group.
    group: usize,
    /// The end of the group, in bits from the start of the segment.
    end: usize,
    /// The next bit of the group's upper part.
    at: usize,
    /// The number of the group's zeros before that bit: one more than quotients at the end of the group.
    zeros: u32,
    /// The number of the group's slots before that bit.
    first: usize,
}

impl Iterator for Runs<'_> {
    type Item = (u32, Run);

    #[inline]
    fn next(&mut self) -> Option<(u32, Run)> {
        let bytes = self.segment.bytes();
        loop {
            if self.zeros > GROUP_QUOTIENTS {
                self.group = self.groups.next()?;
                let (start, end) = self.segment.bounds(self.group);
                (self.at, self.end, self.zeros, self.first) = (start * 8, end * 8, 0, 0);
            }
            let zeros = zeros_from(bytes, self.at);
            (self.at, self.zeros) = (self.at + zeros as usize, self.zeros + zeros);
            if self.zeros > GROUP_QUOTIENTS || zeros == MAX_WIDTH {
                continue;
            }
            let len = ones_from(bytes, self.at);
            let run = Run { group: self.group, end: self.end, zero: self.at - 1, first: self.first, len };
            (self.at, self.first) = (self.at + len, self.first + len);
            return Some((self.group as u32 * GROUP_QUOTIENTS + self.zeros - 1, run));
        }
    }
}

/// Rounds a size up to one of jemalloc's size classes, four per doubling.
fn round_to_size_class(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

impl Segment {
    pub(super) fn empty(depth: u32, log_groups: u32, format: SlotFormat) -> Segment {
        Segment {
            bytes: Bytes::empty(),
            slots: 0,
            width: format.width as u8,
            stamp_bits: format.stamp_bits as u8,
            log_groups: log_groups as u8,
            depth: depth as u8,
            base: 0,
        }
    }

    /// Returns an empty segment with the same format and depth.
    pub(super) fn empty_copy(&self) -> Segment {
        Segment { bytes: Bytes::empty(), slots: 0, ..*self }
    }

    #[inline(always)]
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    #[inline(always)]
    pub(super) fn width(&self) -> u32 {
        self.width.into()
    }

    #[inline(always)]
    fn stamp_bits(&self) -> u32 {
        self.stamp_bits.into()
    }

    /// Returns the number of bits in a value.
    #[inline(always)]
    pub(super) fn value_bits(&self) -> u32 {
        (self.width - self.stamp_bits).into()
    }

    /// Returns the number of bytes before the upper part of a group: 1 for the base in a table that forgets.
    #[inline(always)]
    fn base_bytes(&self) -> usize {
        usize::from(self.stamp_bits > 0)
    }

    #[inline(always)]
    pub(super) fn log_groups(&self) -> u32 {
        self.log_groups.into()
    }

    #[inline(always)]
    fn groups(&self) -> usize {
        1 << self.log_groups
    }

    /// Returns the size of a group with `slots` slots and no slack, in bytes. Its two parts share no byte.
    fn group_bytes(&self, slots: usize) -> usize {
        self.base_bytes()
            + (GROUP_QUOTIENTS as usize + 1 + slots).div_ceil(8)
            + (slots * usize::from(self.width)).div_ceil(8)
    }

    /// Returns the size of a segment of this format with `slots` slots, in bytes. It depends on nothing else, so that
    /// tables with equal content have equal sizes, whatever their history.
    fn bytes_for_slots(&self, slots: usize) -> usize {
        if slots == 0 { 0 } else { round_to_size_class(self.min_bytes(slots)) }
    }

    /// Returns the least size for `slots` slots: see the function [`min_bytes`].
    #[inline(always)]
    fn min_bytes(&self, slots: usize) -> usize {
        min_bytes(slots, self.groups(), self.width.into(), self.base_bytes())
    }

    /// Returns the number of path bits that choose a quotient of the whole table.
    pub(super) fn level(&self) -> u32 {
        self.depth() + self.log_groups() + QUOTIENT_BITS
    }

    /// Returns the size of the allocation, in bytes.
    pub(super) fn allocated(&self) -> usize {
        self.bytes().len()
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.bytes.as_slice().as_flattened()
    }

    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut_slice().as_flattened_mut()
    }

    /// Returns the address of a path. The last `suffix_bits` bits of a slot, a terminator and a stamp, are no part of a
    /// fingerprint.
    #[inline(always)]
    pub(super) fn address(&self, path: Path, suffix_bits: u32) -> Address {
        let (depth, log_groups) = (self.depth(), self.log_groups());
        Address {
            group: self.group(path),
            quotient: bits_of(path, depth + log_groups, QUOTIENT_BITS) as u32,
            remainder: later_bits_of(path, self.level(), self.width() - suffix_bits),
        }
    }

    /// Returns the group of a path.
    #[inline(always)]
    pub(super) fn group(&self, path: Path) -> usize {
        bits_of(path, self.depth(), self.log_groups()) as usize
    }

    /// Returns the first byte of a group's upper part, and the byte after its lower part.
    #[inline(always)]
    fn bounds(&self, group: usize) -> (usize, usize) {
        let (start, end) = self.extent(group);
        (start + self.base_bytes(), end)
    }

    /// Returns the first byte of a group, and the byte after its last.
    #[inline(always)]
    fn extent(&self, group: usize) -> (usize, usize) {
        let offsets = field(self.bytes(), group * 16, 32);
        (offsets as usize & 0xFFFF, offsets as usize >> 16)
    }

    /// Returns the first byte of a group. For the number of groups, returns the end of the last group.
    fn offset(&self, group: usize) -> usize {
        field(self.bytes(), group * 16, 16) as usize
    }

    fn set_offset(&mut self, group: usize, offset: usize) {
        set_field(self.bytes_mut(), group * 16, 16, offset as u64);
    }

    /// Returns the run of a quotient, or `None` if the segment is empty.
    #[inline(always)]
    pub(super) fn run<S: Select>(&self, address: Address) -> Option<Run> {
        if self.bytes().is_empty() {
            return None;
        }
        let (start, end) = self.bounds(address.group);
        let zero = select_zero::<S>(self.bytes(), start, address.quotient);
        let len = ones_from(self.bytes(), start * 8 + zero + 1);
        let first = zero - address.quotient as usize;
        Some(Run { group: address.group, end: end * 8, zero: start * 8 + zero, first, len })
    }

    /// Returns the number of slots in a group.
    #[inline(always)]
    pub(super) fn slots_in<S: Select>(&self, group: usize) -> usize {
        select_zero::<S>(self.bytes(), self.bounds(group).0, GROUP_QUOTIENTS) - GROUP_QUOTIENTS as usize
    }

    #[inline(always)]
    fn slot_bit(&self, run: &Run, index: usize) -> usize {
        run.end - (run.first + index + 1) * usize::from(self.width)
    }

    #[inline(always)]
    fn slot(&self, run: &Run, index: usize) -> u64 {
        field(self.bytes(), self.slot_bit(run, index), self.width())
    }

    /// Returns true if `matches` returns true for the value of any entry of a run.
    #[inline(always)]
    pub(super) fn any(&self, run: &Run, matches: impl Fn(u64) -> bool) -> bool {
        let mut index = 0;
        while index < run.len {
            let slot = self.slot(run, index);
            if slot == 0 {
                index = self.after_digits(run, index);
                continue;
            }
            if matches(slot) {
                return true;
            }
            index += 1;
        }
        false
    }

    /// Returns the slot after the digits that follow the 0 at `index`.
    #[cold]
    fn after_digits(&self, run: &Run, index: usize) -> usize {
        let digits = (index + 1..run.len).take_while(|&digit| self.slot(run, digit) >> (self.width() - 1) > 0).count();
        index + 1 + digits + 1
    }

    /// Returns the entries of a run.
    #[inline(always)]
    pub(super) fn entries(&self, run: Run) -> Entries<'_> {
        Entries { segment: self, run, next: 0 }
    }

    #[inline(always)]
    fn entry(&self, run: &Run, index: usize) -> Entry {
        let value = self.slot(run, index);
        let next = if index + 1 < run.len { self.slot(run, index + 1) } else { u64::MAX };
        let count = match next {
            0 => self.number(run, index + 2) + 3,
            next if next == value => 2,
            _ => 1,
        };
        Entry { value, count, index }
    }

    /// Returns the number whose digits begin at `index`.
    #[cold]
    fn number(&self, run: &Run, index: usize) -> u64 {
        let bits = self.width() - 1;
        let (mut number, mut shift) = (0, 0);
        for digit in index..run.len {
            let digit = self.slot(run, digit);
            number |= (digit & low_bits(bits)).checked_shl(shift).unwrap_or(0);
            shift += bits;
            if digit >> bits == 0 {
                break;
            }
        }
        number
    }

    /// Sets the count of an entry. The count 0 removes it. If `entry` is `None`, a new entry is added to the front of
    /// the run. If the entry needs another slot, there must be [room](Self::slots_if_room) for it. `in_group` is the
    /// number of slots in the run's group.
    #[inline(always)]
    pub(super) fn set_count(&mut self, run: Run, entry: Option<Entry>, value: u64, count: u64, in_group: usize) {
        let Entry { index, count: before, .. } = entry.unwrap_or(Entry { value, count: 0, index: 0 });
        let (old, new) = (slots_of(before, self.width()), slots_of(count, self.width()));
        if new > old {
            self.insert_slot(&run, index + old, in_group);
        } else if new < old {
            self.remove_slot(&run, index + new, in_group);
        }
        for slot in 0..new {
            let bit = self.slot_bit(&run, index + slot);
            let content = slot_content(value, count, self.width(), slot);
            let width = self.width();
            set_field(self.bytes_mut(), bit, width, content);
        }
    }

    /// Returns true if an entry needs another slot when its count changes.
    #[inline(always)]
    pub(super) fn needs_slot(&self, from: u64, to: u64) -> bool {
        slots_of(to, self.width()) > slots_of(from, self.width())
    }

    #[inline(always)]
    fn insert_slot(&mut self, run: &Run, index: usize, slots: usize) {
        let width = usize::from(self.width);
        let upper_end = self.bounds(run.group).0 * 8 + GROUP_QUOTIENTS as usize + 1 + slots;
        let bytes = self.bytes_mut();
        move_up(bytes, run.zero + 1, upper_end, 1);
        set_field(bytes, run.zero + 1, 1, 1);
        move_down(bytes, run.end - slots * width, run.end - (run.first + index) * width, width);
        self.slots += 1;
    }

    #[inline(always)]
    fn remove_slot(&mut self, run: &Run, index: usize, slots: usize) {
        let width = usize::from(self.width);
        let upper_end = self.bounds(run.group).0 * 8 + GROUP_QUOTIENTS as usize + 1 + slots;
        let bytes = self.bytes_mut();
        move_down(bytes, run.zero + 2, upper_end, 1);
        move_up(bytes, run.end - slots * width, run.end - (run.first + index + 1) * width, width);
        self.slots -= 1;
    }

    /// Returns the number of slots in a run's group, if both the group and the segment have room for another slot.
    #[inline(always)]
    pub(super) fn slots_if_room<S: Select>(&self, run: &Run) -> Option<usize> {
        let start = self.bounds(run.group).0;
        let slots = self.slots_in::<S>(run.group);
        let used = GROUP_QUOTIENTS as usize + 1 + slots * (usize::from(self.width) + 1);
        (used + usize::from(self.width) < run.end - start * 8 && self.fits_another_slot()).then_some(slots)
    }

    /// Moves half the slack of the nearest group with enough of it to a group. Returns false if no group has enough.
    ///
    /// Inlined, like all functions that select, so that it is compiled for the processor at hand.
    #[inline(always)]
    pub(super) fn borrow<S: Select>(&mut self, group: usize) -> bool {
        let need = (usize::from(self.width) + 1).div_ceil(8) + 1;
        let (_, upper_end, lower_start) = self.slack::<S>(group);
        for distance in 1..self.groups() {
            if let Some(donor) = Some(group + distance).filter(|&donor| donor < self.groups()) {
                let (slack, donor_upper_end, _) = self.slack::<S>(donor);
                if slack >= need {
                    let by = need.max(slack / 2);
                    self.bytes_mut().copy_within(lower_start..donor_upper_end, lower_start + by);
                    for next in group + 1..=donor {
                        self.set_offset(next, self.offset(next) + by);
                    }
                    return true;
                }
            }
            if let Some(donor) = group.checked_sub(distance) {
                let (slack, _, donor_lower_start) = self.slack::<S>(donor);
                if slack >= need {
                    let by = need.max(slack / 2);
                    self.bytes_mut().copy_within(donor_lower_start..upper_end, donor_lower_start - by);
                    for next in donor + 1..=group {
                        self.set_offset(next, self.offset(next) - by);
                    }
                    return true;
                }
            }
        }
        false
    }

    /// Returns the number of unused bytes in a group, the byte after its upper part, and the first byte of its lower
    /// part.
    #[inline(always)]
    fn slack<S: Select>(&self, group: usize) -> (usize, usize, usize) {
        let ((start, end), slots) = (self.bounds(group), self.slots_in::<S>(group));
        let upper_end = start + (GROUP_QUOTIENTS as usize + 1 + slots).div_ceil(8);
        let lower_start = (end * 8 - slots * usize::from(self.width)) / 8;
        (lower_start.saturating_sub(upper_end), upper_end, lower_start)
    }

    /// Returns true if the segment is large enough for another slot.
    #[inline(always)]
    pub(super) fn fits_another_slot(&self) -> bool {
        self.min_bytes(self.slots as usize + 1) <= self.allocated()
    }

    /// Returns the size of the segment with another slot, in bytes.
    pub(super) fn bytes_with_another_slot(&self) -> usize {
        self.bytes_for_slots(self.slots as usize + 1)
    }

    /// Returns the size that the segment should have, or `None` if it is not larger than that.
    #[inline(always)]
    pub(super) fn smaller_size(&self) -> Option<usize> {
        Some(self.bytes_for_slots(self.slots as usize)).filter(|&bytes| bytes < self.allocated())
    }

    /// Returns a copy with a size of `bytes` bytes, which must suffice, and with room for another slot in group `next`.
    pub(super) fn resized<S: Select>(&self, bytes: usize, next: Option<usize>) -> Result<Segment, Error> {
        let slots_of_group = |group| if !self.bytes().is_empty() { self.slots_in::<S>(group) } else { 0 };
        let mut new = Segment { bytes: Bytes::empty(), ..*self };
        if bytes == 0 {
            return Ok(new);
        }
        new.allocate(bytes, |group| slots_of_group(group) + usize::from(next == Some(group)))?;
        if !self.bytes().is_empty() {
            for group in 0..self.groups() {
                let (slots, end, new_end) = (slots_of_group(group), self.bounds(group).1, new.bounds(group).1);
                let (start, new_start) = (self.bounds(group).0, new.bounds(group).0);
                // The lower part comes first: its first byte may also be the last byte of the upper part.
                let lower = (slots * usize::from(self.width)).div_ceil(8);
                let upper = (GROUP_QUOTIENTS as usize + 1 + slots).div_ceil(8);
                let (base_bytes, bytes) = (self.base_bytes(), new.bytes_mut());
                bytes[new_end - lower..new_end].copy_from_slice(&self.bytes()[end - lower..end]);
                bytes[new_start - base_bytes..new_start + upper]
                    .copy_from_slice(&self.bytes()[start - base_bytes..start + upper]);
            }
        }
        Ok(new)
    }

    /// Allocates `bytes` bytes, and sets the offsets so that all groups get equal slack.
    fn allocate(&mut self, bytes: usize, slots_of_group: impl Fn(usize) -> usize) -> Result<(), Error> {
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

    /// Returns all entries of neighbouring segments, in order. Quotients are numbered across the segments.
    pub(super) fn list(segments: &[&Segment]) -> Result<Vec<ListedEntry>, Error> {
        let mut entries = try_vec(segments.iter().map(|segment| segment.slots as usize).sum())?;
        let mut first = 0;
        for segment in segments {
            segment.for_each_entry(|quotient, value, content| {
                entries.push(ListedEntry { quotient: first + quotient, value, content });
            });
            first += GROUP_QUOTIENTS << segment.log_groups;
        }
        Ok(entries)
    }

    /// Calls `visit` with the quotient, the value, and the count or slice of each entry.
    #[inline(always)]
    fn for_each_entry(&self, mut visit: impl FnMut(u32, u64, u64)) {
        for (quotient, run) in self.runs() {
            if self.stamp_bits > 0 {
                let stamped = (0..run.len).map(|index| self.stamped(&run, index));
                stamped.for_each(|entry| visit(quotient, entry.value, entry.slice));
            } else if run.len == 1 {
                visit(quotient, self.slot(&run, 0), 1);
            } else {
                self.entries(run).for_each(|entry| visit(quotient, entry.value, entry.count));
            }
        }
    }

    /// Returns an iterator over the quotients that have slots, and their runs.
    fn runs(&self) -> Runs<'_> {
        let groups = if !self.bytes().is_empty() { self.groups() } else { 0 };
        Runs { segment: self, groups: 0..groups, group: 0, end: 0, at: 0, zeros: GROUP_QUOTIENTS + 1, first: 0 }
    }

    /// Returns the size of a segment of this format with `entries`, in bytes.
    pub(super) fn bytes_for(&self, entries: &[ListedEntry]) -> usize {
        self.bytes_for_slots(entries.iter().map(|entry| self.slots_of(entry)).sum())
    }

    /// Returns the number of slots that an entry fills.
    fn slots_of(&self, entry: &ListedEntry) -> usize {
        if self.stamp_bits > 0 { 1 } else { slots_of(entry.content, self.width()) }
    }

    /// Returns the content of slot `index` of an entry.
    fn slot_content(&self, entry: &ListedEntry, index: usize) -> u64 {
        match self.stamp_bits {
            0 => slot_content(entry.value, entry.content, self.width(), index),
            _ => self.stamped_slot(entry.value, entry.content),
        }
    }

    /// Returns a copy.
    pub(super) fn try_clone(&self) -> Result<Segment, Error> {
        let mut copy = Segment { bytes: Bytes::zeroed(self.allocated() as u64)?, ..*self };
        copy.bytes_mut().copy_from_slice(self.bytes());
        Ok(copy)
    }

    /// Fills an empty segment with `entries`, which are ordered by quotient. `bytes` is the size that
    /// [`bytes_for`](Self::bytes_for) returns. `base` is the last forgotten slice; no entry is in it or in an earlier
    /// one.
    pub(super) fn with_entries(mut self, bytes: usize, entries: &[ListedEntry], base: u64) -> Result<Segment, Error> {
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
        let mut entries = entries.iter().peekable();
        for group in 0..self.groups() {
            let (start, end) = self.bounds(group);
            let (mut low, mut filled) = (end * 8, 0);
            while let Some(entry) = entries.next_if(|entry| (entry.quotient / GROUP_QUOTIENTS) as usize == group) {
                for index in 0..self.slots_of(entry) {
                    let bit = start * 8 + (entry.quotient % GROUP_QUOTIENTS) as usize + 1 + filled;
                    low -= usize::from(self.width);
                    filled += 1;
                    let (slot, width) = (self.slot_content(entry, index), self.width());
                    let bytes = self.bytes_mut();
                    bytes[bit / 8] |= 1 << (bit % 8);
                    set_field(bytes, low, width, slot);
                }
            }
        }
        Ok(self)
    }

    /// Encodes the segment for [`decode`](Self::decode). Appends the segment's base, and then the base, the upper part
    /// and the lower part of each group, in whole bytes. A segment that does not forget has no bases. `out` must have
    /// room.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let groups = if !self.bytes().is_empty() { self.groups() } else { 0 };
        if self.stamp_bits > 0 {
            out.extend_from_slice(&self.base.to_le_bytes());
        }
        for group in 0..groups {
            let ((start, end), slots) = (self.bounds(group), self.slots_in::<Broadword>(group));
            let upper = GROUP_QUOTIENTS as usize + 1 + slots;
            let lower = slots * usize::from(self.width);
            out.extend_from_slice(&self.bytes()[start - self.base_bytes()..start + upper.div_ceil(8)]);
            if let Some(last) = out.last_mut() {
                *last &= 0xFF >> (7 - (upper - 1) % 8);
            }
            let first = out.len();
            out.extend_from_slice(&self.bytes()[end - lower.div_ceil(8)..end]);
            if let Some(first) = out.get_mut(first) {
                *first &= 0xFF << ((8 - lower % 8) % 8);
            }
        }
    }

    /// Returns the largest number of bytes that [`encode`](Self::encode) appends.
    pub(super) fn encoded_bytes(&self) -> usize {
        // The slack of a segment is larger than its base.
        self.allocated()
    }

    /// Fills an empty segment with `slots` slots, at least one, from the start of `bytes`, and removes the decoded
    /// bytes from `bytes`. Returns `None` if [`encode`](Self::encode) cannot have written them.
    pub(super) fn decode(mut self, slots: u32, bytes: &mut &[u8]) -> Result<Option<Segment>, Error> {
        let (width, groups, base_bytes) = (usize::from(self.width), self.groups(), self.base_bytes());
        if self.stamp_bits > 0 {
            let Some((base, rest)) = bytes.split_first_chunk() else { return Ok(None) };
            (self.base, *bytes) = (u64::from_le_bytes(*base), rest);
        }
        let (mut counts, mut rest) = ([0; 1 << MAX_LOG_GROUPS], *bytes);
        for count in &mut counts[..groups] {
            let Some((_base, parts)) = rest.split_at_checked(base_bytes) else { return Ok(None) };
            let Some(slots) = slots_in_upper(parts) else { return Ok(None) };
            let (upper, lower) = (GROUP_QUOTIENTS as usize + 1 + slots, slots * width);
            let Some((taken, after)) = parts.split_at_checked(upper.div_ceil(8) + lower.div_ceil(8)) else {
                return Ok(None);
            };
            let (upper_bytes, lower_bytes) = taken.split_at(upper.div_ceil(8));
            // The first bit is zero number 0, and all unused bits are clear.
            let is_clear = upper_bytes.first().is_some_and(|first| first & 1 == 0)
                && upper_bytes.last().is_none_or(|last| last & !(0xFF >> (7 - (upper - 1) % 8)) == 0)
                && lower_bytes.first().is_none_or(|first| first & !(0xFF << ((8 - lower % 8) % 8)) == 0);
            if !is_clear {
                return Ok(None);
            }
            (*count, rest) = (slots, after);
        }
        if counts.iter().sum::<usize>() != slots as usize {
            return Ok(None);
        }
        match self.allocate(self.bytes_for_slots(slots as usize), |group| counts[group]) {
            Err(Error::CannotGrow) => return Ok(None),
            result => result?,
        }
        self.slots = slots;
        for (group, &slots) in counts[..groups].iter().enumerate() {
            let (start, end) = self.bounds(group);
            let (upper, lower) = ((GROUP_QUOTIENTS as usize + 1 + slots).div_ceil(8), (slots * width).div_ceil(8));
            let (taken, after) = bytes.split_at(base_bytes + upper + lower);
            *bytes = after;
            let target = self.bytes_mut();
            target[start - base_bytes..start + upper].copy_from_slice(&taken[..base_bytes + upper]);
            target[end - lower..end].copy_from_slice(&taken[base_bytes + upper..]);
        }
        Ok(Some(self))
    }

    /// Returns true if all slots belong to valid entries of this payload.
    pub(super) fn is_sound(&self, payload: Payload) -> Result<bool, Error> {
        if let Payload::Slice(Stamps { forgotten, .. }) = payload
            && (self.base > forgotten || (0..self.groups()).any(|group| self.base_of(group) > forgotten))
        {
            return Ok(false);
        }
        let mut values = Vec::new();
        for (_, run) in self.runs() {
            // Fast path for most runs: this check dominates the time of loading a filter.
            if run.len == 1 && self.stamp_bits == 0 && self.slot(&run, 0) != 0 {
                continue;
            }
            values.clear();
            values.try_reserve(run.len).map_err(|_| Error::OutOfMemory)?;
            let are_entries = match payload {
                Payload::Nothing => self.read_entries(run, 1, &mut values),
                Payload::Count => self.read_entries(run, MAX_ENTRY_COUNT, &mut values),
                Payload::Slice(stamps) => self.read_stamped(run, stamps, &mut values),
            };
            if !are_entries || has_repeated(&mut values) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Appends the values of a run to `values`, which must have room. Returns false if a slot belongs to no valid
    /// entry, or to an entry with a count above `max_count`.
    fn read_entries(&self, run: Run, max_count: u64, values: &mut Vec<u64>) -> bool {
        let mut index = 0;
        while index < run.len {
            let entry = self.entry(&run, index);
            let slots = slots_of(entry.count, self.width());
            let slot = |slot| slot_content(entry.value, entry.count, self.width(), slot);
            let is_entry = entry.value != 0
                && entry.count <= max_count
                && index + slots <= run.len
                && (0..slots).all(|within| self.slot(&run, index + within) == slot(within));
            if !is_entry {
                return false;
            }
            values.push(entry.value);
            index += slots;
        }
        true
    }

    /// Calls `visit` with the value of each entry.
    pub(super) fn for_each_value(&self, mut visit: impl FnMut(u64)) {
        self.for_each_entry(|_quotient, value, _count| visit(value));
    }

    /// Prefetches the offsets of a group.
    #[inline(always)]
    pub(super) fn prefetch_offset(&self, group: usize) {
        prefetch(self.bytes().as_ptr().wrapping_add(group * 2));
    }

    /// Prefetches the likely position of a group, without waiting for its offset. Groups have about equal sizes.
    #[inline(always)]
    pub(super) fn prefetch_estimated(&self, group: usize) {
        let start = (self.bytes().len() * group) >> self.log_groups;
        let base = self.bytes().as_ptr();
        for line in 0..GROUP_LINES {
            prefetch(base.wrapping_add(start + line * LINE));
        }
    }

    /// Prefetches the first [`GROUP_LINES`] cache lines and the last byte of a group. Only crafted groups are longer.
    #[inline(always)]
    pub(super) fn prefetch_group(&self, group: usize) {
        if !self.bytes().is_empty() {
            let (start, end) = self.extent(group);
            let lines = (start..end).step_by(LINE).take(GROUP_LINES).chain([end - 1]);
            lines.for_each(|byte| prefetch(self.bytes().as_ptr().wrapping_add(byte)));
        }
    }

    /// Lets `relocate` move the allocation.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    pub(super) unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { self.bytes.relocate(relocate) };
    }
}

/// Returns true if a value occurs twice. May reorder the values.
fn has_repeated(values: &mut [u64]) -> bool {
    /// The largest number of values for which comparing all pairs is faster than sorting.
    const FEW: usize = 8;
    if values.len() <= FEW {
        return (1..values.len()).any(|index| values[..index].contains(&values[index]));
    }
    values.sort_unstable();
    values.windows(2).any(|pair| pair[0] == pair[1])
}

/// Returns the number of slots in an upper part: the number of ones before its last zero.
fn slots_in_upper(bytes: &[u8]) -> Option<usize> {
    let mut zeros = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if zeros + byte.count_zeros() > GROUP_QUOTIENTS {
            let last = (0..8).filter(|bit| byte >> bit & 1 == 0).nth((GROUP_QUOTIENTS - zeros) as usize)?;
            return Some(index * 8 + last - GROUP_QUOTIENTS as usize);
        }
        zeros += byte.count_zeros();
    }
    None
}

/// The number of a group's cache lines that are prefetched.
const GROUP_LINES: usize = 3;

/// The divisor that gives the slack of a segment. With less slack, the search for it takes longer.
const SLACK_DIVISOR: usize = 32;
