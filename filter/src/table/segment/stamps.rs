//! Segments that forget: the stamps of their slots, the bases that these are counted from, and what is dropped when.

use super::{Run, Segment};
use crate::array::WORD;
use crate::table::bits::{Ascending, Broadword, Descending, Select, field, first_zeros, low_bits, set_field, up_to};
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

    /// Returns how many slices there are between the base of a group, or another slice, and that of a slot.
    #[inline(always)]
    fn slices_between(&self, base: u64, slot: u64) -> u64 {
        slot.wrapping_sub(base + 1) & low_bits(self.stamp_bits())
    }

    /// Returns true if an entry that is remembered fits.
    #[inline(always)]
    pub(in crate::table) fn remembers_any(&self, run: &Run, forgotten: u64, fits: impl Fn(u64) -> bool) -> bool {
        let (bits, base) = (self.stamp_bits(), self.base_of(run.group));
        let least = forgotten.saturating_sub(base);
        (0..run.len).any(|index| {
            let slot = self.slot(run, index);
            self.slices_between(base, slot) >= least && fits(slot >> bits)
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
        let (slot, base) = (self.slot(run, index), self.base_of(run.group));
        Stamped { value: slot >> self.stamp_bits, slice: base + 1 + self.slices_between(base, slot), index }
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

    /// Returns the slot of a value and its slice.
    #[inline(always)]
    pub(super) fn stamped_slot(&self, value: u64, slice: u64) -> u64 {
        value << self.stamp_bits | slice & low_bits(self.stamp_bits())
    }

    #[inline(always)]
    fn set_stamped(&mut self, run: &Run, Stamped { value, slice, index }: Stamped) {
        debug_assert!(
            slice - self.base_of(run.group) <= 1 << self.stamp_bits,
            "a slice beyond those that are remembered"
        );
        let (bit, width, slot) = (self.slot_bit(run, index), self.width(), self.stamped_slot(value, slice));
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
        let base = self.base_of(group);
        let least = forgotten.saturating_sub(base);
        let (end, width, bits) = (self.bounds(group).1 * 8, usize::from(self.width), self.stamp_bits());
        let mut slots =
            (1..=self.slots_in::<Broadword>(group)).map(|slot| field(self.bytes(), end - slot * width, bits));
        least > 0 && slots.any(|slot| self.slices_between(base, slot) < least)
    }

    /// Drops the slots of a group that are forgotten, and hands their values to `dropped`.
    #[inline(always)]
    pub(in crate::table) fn forget<S: Select>(&mut self, group: usize, forgotten: u64, mut dropped: impl FnMut(u64)) {
        if forgotten - self.base >= BASES {
            self.move_base(forgotten, &mut dropped);
        }
        if self.is_stale(group, forgotten) {
            self.drop_slots::<S>(group, forgotten, &mut dropped);
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
                self.drop_slots::<Broadword>(group, new, dropped);
            } else {
                *base = self.base_of(group);
            }
        }
        self.base = new;
        bases[..self.groups()].iter().enumerate().for_each(|(group, &base)| self.set_base_of(group, base));
    }

    /// Drops the slots of a group whose slices are not beyond `forgotten`: writes the others anew, in whole words.
    #[inline(always)]
    fn drop_slots<S: Select>(&mut self, group: usize, forgotten: u64, dropped: &mut impl FnMut(u64)) {
        let (base, (start, end), width, stamp_bits) =
            (self.base_of(group), self.bounds(group), self.width(), self.stamp_bits());
        let (first, stamp, least) = (base + 1, low_bits(stamp_bits), forgotten - base);
        let (mut at, mut zeros, mut low, mut gone) = (start, 0, end * 8, 0);
        let (mut upper, mut lower) = (Ascending::new(start), Descending::new(end));
        let bytes = self.bytes_mut();
        while zeros <= GROUP {
            let (bits, length) = first_zeros::<S>(bytes, at, GROUP + 1 - zeros);
            let (slots, mut kept) = (bits.count_ones(), 0);
            for index in 0..slots {
                low -= width as usize;
                let slot = field(bytes, low, width);
                let is_kept = slot.wrapping_sub(first) & stamp >= least;
                lower.append(bytes, slot, if is_kept { width } else { 0 });
                kept |= u64::from(is_kept) << index;
                if !is_kept {
                    dropped(slot >> stamp_bits);
                }
            }
            // All zeros stay, and the ones of slots that do.
            let stays = !bits & up_to(length) | S::deposit(kept, bits);
            upper.append(bytes, S::extract(bits, stays), stays.count_ones());
            gone += slots - kept.count_ones();
            zeros += length - slots;
            at += WORD;
        }
        upper.finish(bytes);
        lower.finish(bytes);
        self.slots -= gone;
    }

    /// Appends the values of a run, for which there is room. Returns false if a slot is none that could be.
    pub(super) fn read_stamped(&self, run: Run, stamps: Stamps, values: &mut Vec<u64>) -> bool {
        let (bits, base) = (self.stamp_bits(), self.base_of(run.group));
        let slots = (0..run.len).map(|index| self.slot(&run, index));
        values.extend(slots.clone().map(|slot| slot >> bits));
        let is_entry = |slot| slot >> bits != 0 && self.slices_between(base, slot) < stamps.span.into();
        slots.clone().all(is_entry)
    }
}
