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
//! zero, less `x`, is the number of slots before the run. The number of ones right after that zero is the number of
//! slots in the run. An insertion moves the bits that follow in its group. A group without slack takes half the slack
//! of the nearest group that has some. Nothing leaves its segment.
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

mod encoded;
mod list;
mod room;
mod run;
mod stamps;

use super::bits::{field, insert_one, move_down, move_up, ones_from, remove_one, select_zero, select_zeros, set_field};
use super::directory::Bucket;
use super::entry::{slot_content, slots_of};
use super::path::{Path, bits_of, later_bits_of};
use crate::arch::{Baseline, Processor, prefetch};
use crate::array::{Bytes, Mover};
use crate::error::Error;
use crate::line::LINE;
pub(super) use list::{ListedSlot, has_long_run};
pub(super) use room::{MAX_BYTES, bytes_of_segment};
pub(super) use run::{Entry, Found, Run};

/// The number of quotients in a group.
pub(super) const GROUP_QUOTIENTS: u32 = 1 << QUOTIENT_BITS;

/// The number of path bits that choose a quotient in a group.
pub(crate) const QUOTIENT_BITS: u32 = 6;

/// The binary logarithm of the maximum number of groups in a segment.
///
/// With 32 groups, a segment has 2 to 4 KiB. The allocator's overhead is then about 1 %, and a split takes about 20
/// microseconds.
pub(super) const MAX_LOG_GROUPS: u32 = 5;

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

    #[inline(always)]
    pub(super) fn quotients(&self) -> u32 {
        GROUP_QUOTIENTS << self.log_groups
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
        let depth = self.depth();
        let log_groups = self.log_groups();
        Address {
            group: self.group(path),
            quotient: bits_of(path, depth + log_groups, QUOTIENT_BITS) as u32,
            remainder: later_bits_of(path, self.level(), self.width() - suffix_bits),
        }
    }

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
    pub(super) fn run<P: Processor>(&self, address: Address) -> Option<Run> {
        if self.bytes().is_empty() {
            return None;
        }
        let bounds = self.bounds(address.group);
        let zero = select_zero::<P>(self.bytes(), bounds.0, address.quotient);
        Some(self.run_at(address, bounds, zero))
    }

    /// Returns the run of a quotient and the number of slots in its group, or `None` if the segment is empty.
    #[inline(always)]
    pub(super) fn run_and_slots<P: Processor>(&self, address: Address) -> Option<(Run, usize)> {
        if self.bytes().is_empty() {
            return None;
        }
        let (start, end) = self.bounds(address.group);
        let [zero, last] = select_zeros::<P>(self.bytes(), start, [address.quotient, GROUP_QUOTIENTS]);
        Some((self.run_at(address, (start, end), zero), last - GROUP_QUOTIENTS as usize))
    }

    /// Returns the run of a quotient, given the bounds of its group and the position of its zero.
    #[inline(always)]
    fn run_at(&self, address: Address, (start, end): (usize, usize), zero: usize) -> Run {
        let len = ones_from(self.bytes(), start * 8 + zero + 1);
        let first = zero - address.quotient as usize;
        Run { group: address.group, start: start * 8, end: end * 8, zero: start * 8 + zero, first, len }
    }

    #[inline(always)]
    pub(super) fn slots_in<P: Processor>(&self, group: usize) -> usize {
        select_zero::<P>(self.bytes(), self.bounds(group).0, GROUP_QUOTIENTS) - GROUP_QUOTIENTS as usize
    }

    /// Sets the count of an entry. The count 0 removes it. If `entry` is `None`, a new entry is added to the front of
    /// the run. An entry needs at most one slot more or less, and there is [room](Self::has_room) for it.
    /// `in_group` is the number of slots in the run's group.
    #[inline(always)]
    pub(super) fn set_count(&mut self, run: Run, entry: Option<Entry>, value: u64, count: u64, in_group: usize) {
        let Entry { index, count: before, .. } = entry.unwrap_or(Entry { value, count: 0, index: 0 });
        let old = slots_of(before, self.width());
        let new = slots_of(count, self.width());
        debug_assert!(old.abs_diff(new) <= 1, "an entry that grows from {old} to {new} slots");
        let content = |slot, width| slot_content(value, count, width, slot);
        if new > old {
            self.insert_slot(&run, index + old, content(old, self.width()), in_group);
        } else if new < old {
            self.remove_slot(&run, index + new, in_group);
        }
        for slot in 0..old.min(new) {
            let bit = self.slot_bit(&run, index + slot);
            let width = self.width();
            set_field(self.bytes_mut(), bit, width, content(slot, width));
        }
    }

    /// Inserts a slot into a run before slot `index`. There is [room](Self::has_room) for it. `slots` is the number of
    /// slots in the run's group.
    #[inline(always)]
    pub(super) fn insert_slot(&mut self, run: &Run, index: usize, content: u64, slots: usize) {
        debug_assert_eq!(self.slots_in::<Baseline>(run.group), slots);
        debug_assert!(self.has_room(run, slots), "a group without room");
        debug_assert!(index <= run.len);
        let width = usize::from(self.width);
        let upper_end = run.start + GROUP_QUOTIENTS as usize + 1 + slots;
        let lower = run.end - slots * width..run.end - (run.first + index) * width;
        let bytes = self.bytes_mut();
        insert_one(bytes, run.zero + 1..upper_end);
        move_down(bytes, lower, width as u32, content);
        self.slots += 1;
    }

    #[inline(always)]
    pub(super) fn remove_slot(&mut self, run: &Run, index: usize, slots: usize) {
        debug_assert_eq!(self.slots_in::<Baseline>(run.group), slots);
        debug_assert!(index < run.len);
        let width = usize::from(self.width);
        // The last zero stays. Another one takes its place before it.
        let upper_end = run.start + GROUP_QUOTIENTS as usize + slots;
        let lower = run.end - slots * width..run.end - (run.first + index + 1) * width;
        let bytes = self.bytes_mut();
        remove_one(bytes, run.zero + 2..upper_end);
        move_up(bytes, lower, width as u32, 0);
        self.slots -= 1;
    }

    pub(super) fn try_clone(&self) -> Result<Segment, Error> {
        Ok(Segment { bytes: Bytes::copied(self.bytes())?, ..*self })
    }

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

    /// Lets a mover move the allocation.
    pub(super) fn relocate(&mut self, mover: Mover<'_>) {
        self.bytes.relocate(mover);
    }
}

/// The number of a group's cache lines that are prefetched.
const GROUP_LINES: usize = 3;
