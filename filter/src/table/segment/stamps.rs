//! Segments that forget: the stamps of their slots, the bases that these are counted from, and what is dropped when.

use super::{Run, Segment};
use crate::table::bits::{Broadword, MAX_WIDTH, field, low_bits, ones_from, set_field, zeros_from};
use crate::table::entry::Stamps;
use crate::table::segment::{GROUP, MAX_LOG_GROUPS};

/// A value in a run of a segment that forgets, and its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Stamped {
    pub value: u64,
    pub slice: u64,
    /// Its slot in the run.
    index: usize,
}

/// How far the bases of groups may be from that of their segment: as far as a byte says.
const BASES: u64 = 1 << 8;

/// What a segment that forgets does beside all others. `forgotten` is the last slice that is.
impl Segment {
    /// Returns the slice from which the stamps of a group are counted.
    #[inline(always)]
    pub(super) fn base_of(&self, group: usize) -> u64 {
        self.base + u64::from(self.bytes()[self.bounds(group).0 - 1])
    }

    fn set_base_of(&mut self, group: usize, base: u64) {
        let (place, segment) = (self.bounds(group).0 - 1, self.base);
        self.bytes_mut()[place] = (base - segment) as u8;
    }

    /// Notes, in a segment that just got its memory, which slice is the last that is forgotten.
    pub(in crate::table) fn set_base(&mut self, forgotten: u64) {
        self.base = forgotten;
    }

    /// Returns true if an entry that is remembered fits.
    #[inline(always)]
    pub(in crate::table) fn remembers_any(&self, run: &Run, forgotten: u64, fits: impl Fn(u64) -> bool) -> bool {
        let (bits, least) = (self.stamp_bits(), forgotten.saturating_sub(self.base_of(run.group)));
        (0..run.len).any(|index| {
            let slot = self.slot(run, index);
            slot & low_bits(bits) >= least && fits(slot >> bits)
        })
    }

    /// Returns the entry that fits and is remembered longest.
    #[inline(always)]
    pub(in crate::table) fn newest(&self, run: &Run, forgotten: u64, fits: impl Fn(u64) -> bool) -> Option<Stamped> {
        let all = (0..run.len).map(|index| self.stamped(run, index));
        all.filter(|entry| entry.slice > forgotten && fits(entry.value)).max_by_key(|entry| entry.slice)
    }

    /// Returns the entry of a run in slot `index`.
    #[inline(always)]
    pub(super) fn stamped(&self, run: &Run, index: usize) -> Stamped {
        let (slot, bits) = (self.slot(run, index), self.stamp_bits());
        Stamped { value: slot >> bits, slice: self.base_of(run.group) + 1 + (slot & low_bits(bits)), index }
    }

    /// Adds an entry to the front of a run, for which there is [room](Self::slots_if_room), and whose group has
    /// [forgotten](Self::forget) what it should.
    #[inline(always)]
    pub(in crate::table) fn insert_stamped(&mut self, run: &Run, value: u64, slice: u64, in_group: usize) {
        self.insert_slot(run, 0, in_group);
        self.set_stamped(run, Stamped { value, slice, index: 0 });
    }

    /// Moves an entry to another slice. Its group has [forgotten](Self::forget) what it should.
    pub(in crate::table) fn set_slice(&mut self, run: &Run, entry: Stamped, slice: u64) {
        self.set_stamped(run, Stamped { slice, ..entry });
    }

    #[inline(always)]
    fn set_stamped(&mut self, run: &Run, Stamped { value, slice, index }: Stamped) {
        let stamp = slice - 1 - self.base_of(run.group);
        debug_assert!(stamp <= low_bits(self.stamp_bits()), "a slice beyond those that are remembered");
        let (bit, width, slot) = (self.slot_bit(run, index), self.width(), value << self.stamp_bits | stamp);
        set_field(self.bytes_mut(), bit, width, slot);
    }

    /// Returns true if a group may hold slots of slices that were forgotten since it was last written to.
    #[inline(always)]
    pub(in crate::table) fn is_stale(&self, group: usize, forgotten: u64) -> bool {
        self.base_of(group) < forgotten
    }

    /// Returns true if a group holds a slot of a slice that is forgotten.
    #[inline(never)]
    pub(in crate::table) fn holds_forgotten(&self, group: usize, forgotten: u64) -> bool {
        let least = forgotten.saturating_sub(self.base_of(group));
        let (end, width, bits) = (self.bounds(group).1 * 8, usize::from(self.width), self.stamp_bits());
        let mut slots = (1..=self.slots_in::<Broadword>(group)).map(|slot| end - slot * width);
        least > 0 && slots.any(|bit| field(self.bytes(), bit, bits) < least)
    }

    /// Drops the slots of a group that are forgotten, and hands their values to `dropped`.
    pub(in crate::table) fn forget(&mut self, group: usize, forgotten: u64, mut dropped: impl FnMut(u64)) {
        if forgotten - self.base >= BASES {
            self.move_base(forgotten, &mut dropped);
        }
        if self.is_stale(group, forgotten) {
            self.drop_slots(group, forgotten, &mut dropped);
            self.set_base_of(group, forgotten);
        }
    }

    /// Moves the base of the segment up, so that a group's can be `forgotten`.
    #[cold]
    fn move_base(&mut self, forgotten: u64, dropped: &mut impl FnMut(u64)) {
        // Groups that are in use have bases close to `forgotten`: theirs stay.
        let new = forgotten - BASES / 2;
        let mut bases = [new; 1 << MAX_LOG_GROUPS];
        for (group, base) in bases[..self.groups()].iter_mut().enumerate() {
            if self.is_stale(group, new) {
                self.drop_slots(group, new, dropped);
            } else {
                *base = self.base_of(group);
            }
        }
        self.base = new;
        bases[..self.groups()].iter().enumerate().for_each(|(group, &base)| self.set_base_of(group, base));
    }

    /// Drops the slots of a group whose slices are not beyond `base`, and counts the stamps of the others from there.
    fn drop_slots(&mut self, group: usize, base: u64, dropped: &mut impl FnMut(u64)) {
        let (by, bits) = (base - self.base_of(group), self.stamp_bits());
        let ((start, end), width) = (self.bounds(group), self.width());
        let slot_bit = |slot: usize| end * 8 - (slot + 1) * width as usize;
        let bytes = self.bytes_mut();
        // What is written is never ahead of what is read.
        let (mut read, mut written) = (start * 8, start * 8);
        let (mut slots, mut kept, mut zeros) = (0, 0, 0);
        while zeros <= GROUP {
            // Quotients without slots are passed together.
            let empty = zeros_from(bytes, read).min(GROUP + 1 - zeros);
            set_field(bytes, written, empty, 0);
            (read, written, zeros) = (read + empty as usize, written + empty as usize, zeros + empty);
            if zeros > GROUP || empty == MAX_WIDTH {
                continue;
            }
            let (len, before) = (ones_from(bytes, read), kept);
            for slot in slots..slots + len {
                let content = field(bytes, slot_bit(slot), width);
                if content & low_bits(bits) >= by {
                    set_field(bytes, slot_bit(kept), width, content - by);
                    kept += 1;
                } else {
                    dropped(content >> bits);
                }
            }
            let mut ones = kept - before;
            while ones > 0 {
                let some = ones.min(MAX_WIDTH as usize);
                set_field(bytes, written, some as u32, low_bits(some as u32));
                written += some;
                ones -= some;
            }
            read += len;
            slots += len;
        }
        self.slots -= (slots - kept) as u32;
    }

    /// Appends the values of a run, for which there is room. Returns false if a slot is none that could be.
    pub(super) fn read_stamped(&self, run: Run, stamps: Stamps, values: &mut Vec<u64>) -> bool {
        let bits = self.stamp_bits();
        let slots = (0..run.len).map(|index| self.slot(&run, index));
        values.extend(slots.clone().map(|slot| slot >> bits));
        let is_entry = |slot| slot >> bits != 0 && slot & low_bits(bits) < stamps.span.into();
        slots.clone().all(is_entry)
    }
}
