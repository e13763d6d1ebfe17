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
//! The slots of quotient `x` are its *run*. To find it is to select zero number `x`: its place less `x` is the number
//! of slots before the run, and the ones behind it are as many as the run has slots. An insertion moves what follows in
//! its group; a group without slack takes half of that of the nearest group that has some. Nothing leaves its segment.
//!
//! A run is a row of [entries](super::entry).

use std::ptr::NonNull;

use super::bits::{Broadword, PADDING, Select, field, low_bits, move_down, move_up, ones_from, select_zero, set_field};
use super::directory::Part;
use super::entry::{Listed, MAX_ENTRY_COUNT, Multiplicity, slot_of, slots_of};
use super::path::{Path, bits_of, later_bits_of};
use crate::array::{Bytes, prefetch};
use crate::error::Error;
use crate::line::LINE;
use crate::memory::try_vec;

/// Quotients in a group.
pub(super) const GROUP: u32 = 1 << LOG_GROUP;
pub(super) const LOG_GROUP: u32 = 6;

/// The most groups in a segment, as a power of two.
///
/// With 32, a segment has 2 to 4 KiB: the allocator's bookkeeping is a hundredth of it, and to split it takes some 20
/// microseconds.
pub(super) const MAX_LOG_GROUPS: u32 = 5;

/// The most bytes in a segment: offsets have 16 bits.
const MAX_BYTES: usize = u16::MAX as usize;

/// A segment, or the alias of one.
pub(super) struct Segment {
    /// As many as [`bytes_for_slots`] says: none if no slot is filled.
    bytes: Option<Bytes>,
    slots: u32,
    /// Bits of a slot, at least 2.
    width: u8,
    log_groups: u8,
    depth: u8,
}

impl Part for Segment {
    #[inline(always)]
    fn depth(&self) -> u32 {
        self.depth.into()
    }

    fn alias(depth: u32) -> Segment {
        Segment::empty(depth, 0, 0)
    }
}

/// Where a path leads in a segment.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub group: usize,
    pub quotient: u32,
    /// The next bits of the path: as many as a slot has, less the terminator.
    pub remainder: u64,
}

/// The slots of a quotient.
#[derive(Clone, Copy)]
pub(super) struct Run {
    group: usize,
    /// The end of the group, in bits from the start of the segment.
    end: usize,
    /// The place of the quotient's zero, in bits from the start of the segment.
    zero: usize,
    /// The number of slots of the group before the run.
    first: usize,
    /// The number of slots.
    len: usize,
}

impl Run {
    /// Returns the group that it is in.
    #[inline(always)]
    pub(super) fn group(&self) -> usize {
        self.group
    }
}

/// A value in a run, and how often it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub value: u64,
    pub count: u64,
    /// Its first slot in the run.
    index: usize,
}

/// The entries of a run, from its front.
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

/// Returns the bytes that a group with so many slots takes, when neither part shares a byte with the other.
fn group_bytes(slots: usize, width: u32) -> usize {
    (GROUP as usize + 1 + slots).div_ceil(8) + (slots * width as usize).div_ceil(8)
}

/// Returns how many bytes a segment with so many slots takes. It depends on nothing else, so that equal tables have
/// equal sizes, however they came to be.
fn bytes_for_slots(slots: usize, log_groups: u32, width: u32) -> usize {
    if slots == 0 { 0 } else { rounded(least_bytes(slots, log_groups, width)) }
}

/// Returns the bytes in which a segment with so many slots finds room for one without a long search.
#[inline(always)]
fn least_bytes(slots: usize, log_groups: u32, width: u32) -> usize {
    let groups = 1 << log_groups;
    let bits = (GROUP as usize + 1) * groups + slots * (width as usize + 1);
    // The two parts of a group share no byte.
    let needed = bits.div_ceil(8) + 2 * groups + header_bytes(groups) + PADDING;
    needed + needed / SPARE
}

/// Returns the bytes of the offsets.
const fn header_bytes(groups: usize) -> usize {
    (groups + 1) * size_of::<u16>()
}

/// Rounds a size up to one that jemalloc has: four to a doubling.
fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}

impl Segment {
    pub(super) fn empty(depth: u32, log_groups: u32, width: u32) -> Segment {
        Segment { bytes: None, slots: 0, width: width as u8, log_groups: log_groups as u8, depth: depth as u8 }
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
    pub(super) fn log_groups(&self) -> u32 {
        self.log_groups.into()
    }

    #[inline(always)]
    fn groups(&self) -> usize {
        1 << self.log_groups
    }

    /// Returns the number of bits that its paths have used up when they reach a quotient.
    pub(super) fn level(&self) -> u32 {
        self.depth() + self.log_groups() + LOG_GROUP
    }

    /// Returns the bytes of the allocation.
    pub(super) fn allocated(&self) -> usize {
        self.bytes().len()
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| bytes.as_slice().as_flattened())
    }

    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut().map_or(&mut [], |bytes| bytes.as_mut_slice().as_flattened_mut())
    }

    /// Returns where a path leads, whose slots end in a terminator of `terminator` bits.
    #[inline(always)]
    pub(super) fn place(&self, path: Path, terminator: u32) -> Place {
        let (depth, log_groups) = (self.depth(), self.log_groups());
        Place {
            group: self.group(path),
            quotient: bits_of(path, depth + log_groups, LOG_GROUP) as u32,
            remainder: later_bits_of(path, self.level(), self.width() - terminator),
        }
    }

    /// Returns the group that a path leads to.
    #[inline(always)]
    pub(super) fn group(&self, path: Path) -> usize {
        bits_of(path, self.depth(), self.log_groups()) as usize
    }

    /// Returns the first and the last byte of a group, exclusive.
    #[inline(always)]
    fn bounds(&self, group: usize) -> (usize, usize) {
        let bounds = field(self.bytes(), group * 16, 32);
        (bounds as usize & 0xFFFF, bounds as usize >> 16)
    }

    /// Returns the byte where a group begins, or the last one ends.
    fn offset(&self, group: usize) -> usize {
        field(self.bytes(), group * 16, 16) as usize
    }

    fn set_offset(&mut self, group: usize, offset: usize) {
        set_field(self.bytes_mut(), group * 16, 16, offset as u64);
    }

    /// Returns the slots of the quotient that a path leads to, or `None` if the segment is empty.
    #[inline(always)]
    pub(super) fn run<S: Select>(&self, place: Place) -> Option<Run> {
        self.bytes.as_ref()?;
        let (start, end) = self.bounds(place.group);
        let zero = select_zero::<S>(self.bytes(), start, place.quotient);
        let len = ones_from(self.bytes(), start * 8 + zero + 1);
        let first = zero - place.quotient as usize;
        Some(Run { group: place.group, end: end * 8, zero: start * 8 + zero, first, len })
    }

    /// Returns the number of slots in a group.
    #[inline(always)]
    pub(super) fn slots_in<S: Select>(&self, group: usize) -> usize {
        select_zero::<S>(self.bytes(), self.bounds(group).0, GROUP) - GROUP as usize
    }

    #[inline(always)]
    fn slot_bit(&self, run: &Run, index: usize) -> usize {
        run.end - (run.first + index + 1) * usize::from(self.width)
    }

    #[inline(always)]
    fn slot(&self, run: &Run, index: usize) -> u64 {
        field(self.bytes(), self.slot_bit(run, index), self.width())
    }

    /// Returns true if `fits` does for the value of an entry.
    #[inline(always)]
    pub(super) fn any(&self, run: &Run, fits: impl Fn(u64) -> bool) -> bool {
        let mut index = 0;
        while index < run.len {
            let slot = self.slot(run, index);
            if slot == 0 {
                index = self.after_digits(run, index);
                continue;
            }
            if fits(slot) {
                return true;
            }
            index += 1;
        }
        false
    }

    /// Returns the slot behind the digits that follow the 0 at `index`.
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

    /// Adds an entry to the front of a run, or changes how often an entry was added: 0 removes it. If that takes a slot more, there
    /// must be [room](Self::slots_if_room) for it. There are `in_group` slots in the run's group.
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
            let content = slot_of(value, count, self.width(), slot);
            let width = self.width();
            set_field(self.bytes_mut(), bit, width, content);
        }
    }

    /// Returns true if changing an entry's count takes a further slot.
    #[inline(always)]
    pub(super) fn needs_slot(&self, from: u64, to: u64) -> bool {
        slots_of(to, self.width()) > slots_of(from, self.width())
    }

    #[inline(always)]
    fn insert_slot(&mut self, run: &Run, index: usize, slots: usize) {
        let width = usize::from(self.width);
        let upper_end = self.bounds(run.group).0 * 8 + GROUP as usize + 1 + slots;
        let bytes = self.bytes_mut();
        move_up(bytes, run.zero + 1, upper_end, 1);
        set_field(bytes, run.zero + 1, 1, 1);
        move_down(bytes, run.end - slots * width, run.end - (run.first + index) * width, width);
        self.slots += 1;
    }

    #[inline(always)]
    fn remove_slot(&mut self, run: &Run, index: usize, slots: usize) {
        let width = usize::from(self.width);
        let upper_end = self.bounds(run.group).0 * 8 + GROUP as usize + 1 + slots;
        let bytes = self.bytes_mut();
        move_down(bytes, run.zero + 2, upper_end, 1);
        move_up(bytes, run.end - slots * width, run.end - (run.first + index + 1) * width, width);
        self.slots -= 1;
    }

    /// Returns the number of slots in a run's group, if it has room for another, and the segment has the bytes for it.
    #[inline(always)]
    pub(super) fn slots_if_room<S: Select>(&self, run: &Run) -> Option<usize> {
        let start = self.bounds(run.group).0;
        let slots = self.slots_in::<S>(run.group);
        let used = GROUP as usize + 1 + slots * (usize::from(self.width) + 1);
        (used + usize::from(self.width) < run.end - start * 8 && self.fits_another_slot()).then_some(slots)
    }

    /// Gives a group slack from the nearest one that has enough: half of it. Returns false if none has.
    ///
    /// Inlined, as all that selects, to be compiled for the processor that it runs on.
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

    /// Returns the number of bytes in a group that hold nothing, the byte behind its upper part, and the first of its
    /// lower part.
    #[inline(always)]
    fn slack<S: Select>(&self, group: usize) -> (usize, usize, usize) {
        let ((start, end), slots) = (self.bounds(group), self.slots_in::<S>(group));
        let upper_end = start + (GROUP as usize + 1 + slots).div_ceil(8);
        let lower_start = (end * 8 - slots * usize::from(self.width)) / 8;
        (lower_start.saturating_sub(upper_end), upper_end, lower_start)
    }

    /// Returns true if the segment has the bytes for another slot.
    #[inline(always)]
    pub(super) fn fits_another_slot(&self) -> bool {
        least_bytes(self.slots as usize + 1, self.log_groups(), self.width()) <= self.allocated()
    }

    /// Returns the bytes for another slot.
    pub(super) fn bytes_with_another_slot(&self) -> usize {
        bytes_for_slots(self.slots as usize + 1, self.log_groups(), self.width())
    }

    /// Returns the bytes that the segment should have, if it has more.
    #[inline(always)]
    pub(super) fn reduced(&self) -> Option<usize> {
        Some(bytes_for_slots(self.slots as usize, self.log_groups(), self.width()))
            .filter(|&bytes| bytes < self.allocated())
    }

    /// Returns the same in `bytes` bytes, which are enough, with room for a slot in group `next`.
    pub(super) fn resized<S: Select>(&self, bytes: usize, next: Option<usize>) -> Result<Segment, Error> {
        let slots_of_group = |group| if self.bytes.is_some() { self.slots_in::<S>(group) } else { 0 };
        let mut new = Segment { bytes: None, ..*self };
        if bytes == 0 {
            return Ok(new);
        }
        new.allocate(bytes, |group| slots_of_group(group) + usize::from(next == Some(group)))?;
        if self.bytes.is_some() {
            for group in 0..self.groups() {
                let (slots, end, new_end) = (slots_of_group(group), self.bounds(group).1, new.bounds(group).1);
                let (start, new_start) = (self.bounds(group).0, new.bounds(group).0);
                // The lower part first: its first byte may also be the last of the upper part.
                let lower = (slots * usize::from(self.width)).div_ceil(8);
                let upper = (GROUP as usize + 1 + slots).div_ceil(8);
                let bytes = new.bytes_mut();
                bytes[new_end - lower..new_end].copy_from_slice(&self.bytes()[end - lower..end]);
                bytes[new_start..new_start + upper].copy_from_slice(&self.bytes()[start..start + upper]);
            }
        }
        Ok(new)
    }

    /// Allocates `bytes` bytes, and shares what the slots of the groups leave free.
    fn allocate(&mut self, bytes: usize, slots_of_group: impl Fn(usize) -> usize) -> Result<(), Error> {
        let (groups, width) = (self.groups(), self.width());
        let needed: usize = (0..groups).map(|group| group_bytes(slots_of_group(group), width)).sum();
        let header = header_bytes(groups);
        let free = bytes.checked_sub(header + needed + PADDING).filter(|_| bytes <= MAX_BYTES);
        let mut free = free.ok_or(Error::CannotGrow)?;
        self.bytes = Some(Bytes::zeroed(bytes as u64)?);
        let mut offset = header;
        for group in 0..groups {
            self.set_offset(group, offset);
            let share = free / (groups - group);
            free -= share;
            offset += group_bytes(slots_of_group(group), width) + share;
        }
        self.set_offset(groups, offset);
        Ok(())
    }

    /// Returns all entries of neighbouring segments, in order. Quotients are counted over all of them.
    pub(super) fn list(segments: &[&Segment]) -> Result<Vec<Listed>, Error> {
        let mut entries = try_vec(segments.iter().map(|segment| segment.slots as usize).sum())?;
        let mut first = 0;
        for segment in segments {
            segment.each_entry(|quotient, value, count| {
                entries.push(Listed { quotient: first + quotient, value, count });
            });
            first += GROUP << segment.log_groups;
        }
        Ok(entries)
    }

    /// Hands each entry to `visit`: its quotient, its value and its count.
    #[inline(always)]
    fn each_entry(&self, mut visit: impl FnMut(u32, u64, u64)) {
        for (quotient, run) in self.runs() {
            if run.len == 1 {
                visit(quotient, self.slot(&run, 0), 1);
            } else {
                self.entries(run).for_each(|entry| visit(quotient, entry.value, entry.count));
            }
        }
    }

    /// Returns all quotients that have slots, and their runs.
    #[inline(always)]
    fn runs(&self) -> impl Iterator<Item = (u32, Run)> {
        let quotients = if self.bytes.is_some() { GROUP << self.log_groups } else { 0 };
        let (mut end, mut zero, mut first) = (0, 0, 0);
        let all = (0..quotients).map(move |quotient| {
            let group = (quotient / GROUP) as usize;
            if quotient % GROUP == 0 {
                let (start, behind) = self.bounds(group);
                (end, zero, first) = (behind * 8, start * 8, 0);
            }
            let len = ones_from(self.bytes(), zero + 1);
            let run = Run { group, end, zero, first, len };
            zero += len + 1;
            first += len;
            (quotient, run)
        });
        all.filter(|(_, run)| run.len > 0)
    }

    /// Returns how many bytes a segment for `entries` takes.
    pub(super) fn bytes_for(entries: &[Listed], log_groups: u32, width: u32) -> usize {
        bytes_for_slots(entries.iter().map(|entry| slots_of(entry.count, width)).sum(), log_groups, width)
    }

    /// Returns a copy.
    pub(super) fn try_clone(&self) -> Result<Segment, Error> {
        let copy = |bytes: &Bytes| {
            let mut copy = Bytes::zeroed(bytes.as_slice().len() as u64)?;
            copy.as_mut_slice().copy_from_slice(bytes.as_slice());
            Ok(copy)
        };
        Ok(Segment { bytes: self.bytes.as_ref().map(copy).transpose()?, ..*self })
    }

    /// Returns a segment of `bytes` bytes, as [`bytes_for`](Self::bytes_for) says, with `entries`, which are ordered by
    /// quotient.
    pub(super) fn with(mut self, bytes: usize, entries: &[Listed]) -> Result<Segment, Error> {
        let width = self.width();
        let mut slots = [0usize; 1 << MAX_LOG_GROUPS];
        for entry in entries {
            slots[(entry.quotient / GROUP) as usize] += slots_of(entry.count, width);
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
            while let Some(entry) = entries.next_if(|entry| (entry.quotient / GROUP) as usize == group) {
                for index in 0..slots_of(entry.count, width) {
                    let bit = start * 8 + (entry.quotient % GROUP) as usize + 1 + filled;
                    low -= width as usize;
                    filled += 1;
                    let slot = slot_of(entry.value, entry.count, width, index);
                    let bytes = self.bytes_mut();
                    bytes[bit / 8] |= 1 << (bit % 8);
                    set_field(bytes, low, width, slot);
                }
            }
        }
        Ok(self)
    }

    /// Appends what [`decode`](Self::decode) reads: each group's upper and lower part, each in whole bytes. There is
    /// room for it.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let groups = if self.bytes.is_some() { self.groups() } else { 0 };
        for group in 0..groups {
            let ((start, end), slots) = (self.bounds(group), self.slots_in::<Broadword>(group));
            let upper = GROUP as usize + 1 + slots;
            let lower = slots * usize::from(self.width);
            out.extend_from_slice(&self.bytes()[start..start + upper.div_ceil(8)]);
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

    /// Returns the most bytes that [`encode`](Self::encode) appends.
    pub(super) fn encoded_bytes(&self) -> usize {
        self.allocated()
    }

    /// Fills an empty segment with the `slots` slots, at least one, that [`encode`](Self::encode) wrote, and takes them
    /// off `bytes`.
    ///
    /// # Errors
    ///
    /// `Ok(None)` if they are not what was written.
    pub(super) fn decode(mut self, slots: u32, bytes: &mut &[u8]) -> Result<Option<Segment>, Error> {
        let (width, groups) = (usize::from(self.width), self.groups());
        let (mut counts, mut rest) = ([0; 1 << MAX_LOG_GROUPS], *bytes);
        for count in &mut counts[..groups] {
            let Some(slots) = slots_in_upper(rest) else { return Ok(None) };
            let (upper, lower) = (GROUP as usize + 1 + slots, slots * width);
            let Some((taken, after)) = rest.split_at_checked(upper.div_ceil(8) + lower.div_ceil(8)) else {
                return Ok(None);
            };
            let (upper_bytes, lower_bytes) = taken.split_at(upper.div_ceil(8));
            // Zero number 0 comes before all ones.
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
        match self.allocate(bytes_for_slots(slots as usize, self.log_groups(), self.width()), |group| counts[group]) {
            Err(Error::CannotGrow) => return Ok(None),
            result => result?,
        }
        self.slots = slots;
        for (group, &slots) in counts[..groups].iter().enumerate() {
            let (start, end) = self.bounds(group);
            let (upper, lower) = ((GROUP as usize + 1 + slots).div_ceil(8), (slots * width).div_ceil(8));
            let (taken, after) = bytes.split_at(upper + lower);
            *bytes = after;
            let target = self.bytes_mut();
            target[start..start + upper].copy_from_slice(&taken[..upper]);
            target[end - lower..end].copy_from_slice(&taken[upper..]);
        }
        Ok(Some(self))
    }

    /// Returns true if all slots are those of entries, as a set or multiset has them.
    pub(super) fn is_sound(&self, multiplicity: Multiplicity) -> Result<bool, Error> {
        let mut values = Vec::new();
        for (_, run) in self.runs() {
            values.clear();
            values.try_reserve(run.len).map_err(|_| Error::OutOfMemory)?;
            let mut index = 0;
            while index < run.len {
                let entry = self.entry(&run, index);
                let slots = slots_of(entry.count, self.width());
                let slot = |slot| slot_of(entry.value, entry.count, self.width(), slot);
                let is_entry = entry.value != 0
                    && (entry.count == 1 || multiplicity == Multiplicity::Multiset && entry.count <= MAX_ENTRY_COUNT)
                    && index + slots <= run.len
                    && (0..slots).all(|within| self.slot(&run, index + within) == slot(within));
                if !is_entry {
                    return Ok(false);
                }
                values.push(entry.value);
                index += slots;
            }
            values.sort_unstable();
            if values.windows(2).any(|pair| pair[0] == pair[1]) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hands the values of all entries to `visit`.
    pub(super) fn each_value(&self, mut visit: impl FnMut(u64)) {
        self.each_entry(|_quotient, value, _count| visit(value));
    }

    /// Prefetches where a group begins and ends.
    #[inline(always)]
    pub(super) fn prefetch_offset(&self, group: usize) {
        prefetch(self.bytes().as_ptr().wrapping_add(group * 2));
    }

    /// Prefetches a group, or as much of it as any has that is not crafted.
    #[inline(always)]
    pub(super) fn prefetch_group(&self, group: usize) {
        if self.bytes.is_some() {
            let (start, end) = self.bounds(group);
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
        if let Some(bytes) = &mut self.bytes {
            // SAFETY: as promised by the caller.
            unsafe { bytes.relocate(relocate) };
        }
    }
}

/// Returns the number of ones before the last zero of an upper part.
fn slots_in_upper(bytes: &[u8]) -> Option<usize> {
    let mut zeros = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if zeros + byte.count_zeros() > GROUP {
            let last = (0..8).filter(|bit| byte >> bit & 1 == 0).nth((GROUP - zeros) as usize)?;
            return Some(index * 8 + last - GROUP as usize);
        }
        zeros += byte.count_zeros();
    }
    None
}

/// The cache lines of a group that are prefetched.
const GROUP_LINES: usize = 3;

/// The part of a segment that stays free: the less, the longer is the search for it.
const SPARE: usize = 32;
