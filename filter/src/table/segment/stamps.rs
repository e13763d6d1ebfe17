//! Segments that forget: the stamps of slots, the bases of groups, and the removal of forgotten slots.

use super::run::ONES;
use super::{Run, Segment};
use crate::arch::{Baseline, Processor, positions};
use crate::array::WORD;
use crate::table::bits::{
    AscendingWriter, DescendingWriter, MAX_WIDTH, field, first_zeros, low_bits, low_bits_up_to_64, set_field,
};
use crate::table::entry::Stamps;
use crate::table::segment::{GROUP_QUOTIENTS, MAX_LOG_GROUPS};

/// An entry of a segment that forgets: a value and its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct Stamped {
    pub value: u64,
    pub slice: u64,
    /// The index of the entry's slot in the run.
    index: usize,
}

/// Returns the number of slices between `base` and the slice of a slot, whose last `stamp_bits` bits are its stamp.
#[inline(always)]
pub(super) fn slices_between(base: u64, slot: u64, stamp_bits: u32) -> u64 {
    slot.wrapping_sub(base + 1) & low_bits(stamp_bits)
}

/// Returns the slice of a slot of a group with this base.
#[inline(always)]
pub(super) fn slice_of(base: u64, slot: u64, stamp_bits: u32) -> u64 {
    base + 1 + slices_between(base, slot, stamp_bits)
}

/// The number of values that the base of a group can have, relative to the base of its segment. It is stored in a byte.
const BASE_RANGE: u64 = 1 << 8;

/// The operations that only segments that forget have. `forgotten` is the last forgotten slice.
impl Segment {
    /// Returns the slice that the stamps of a group are relative to.
    #[inline(always)]
    pub(super) fn base_of(&self, group: usize) -> u64 {
        self.base + u64::from(self.bytes()[self.bounds(group).0 - 1])
    }

    fn set_base_of(&mut self, group: usize, base: u64) {
        let position = self.bounds(group).0 - 1;
        let relative = base - self.base;
        debug_assert!(relative < BASE_RANGE, "a base {relative} slices after that of the segment");
        self.bytes_mut()[position] = relative as u8;
    }

    /// Sets the base of a segment that was just allocated to the last forgotten slice.
    pub(in crate::table) fn set_base(&mut self, forgotten: u64) {
        self.base = forgotten;
    }

    /// Returns true if `matches` returns true for the value of any remembered entry of a run.
    #[inline(always)]
    pub(in crate::table) fn remembers_any(&self, run: &Run, forgotten: u64, matches: impl Fn(u64) -> bool) -> bool {
        let bits = self.stamp_bits();
        let base = self.base_of(run.group);
        let least = forgotten.saturating_sub(base);
        (0..run.len).any(|index| {
            let slot = self.slot(run, index);
            slices_between(base, slot, bits) >= least && matches(slot >> bits)
        })
    }

    /// Returns the entry in the latest slice among the remembered entries whose value `matches`.
    #[inline(always)]
    pub(in crate::table) fn newest(&self, run: &Run, forgotten: u64, matches: impl Fn(u64) -> bool) -> Option<Stamped> {
        let mut newest = None::<Stamped>;
        for index in 0..run.len {
            let slot = self.slot(run, index);
            let value = slot >> self.stamp_bits;
            // Hardly any value matches, so its slice comes second.
            if matches(value) {
                let slice = slice_of(self.base_of(run.group), slot, self.stamp_bits());
                if slice > forgotten && newest.is_none_or(|newest| newest.slice <= slice) {
                    newest = Some(Stamped { value, slice, index });
                }
            }
        }
        newest
    }

    /// Moves an entry to another slice. The forgotten slots of its group are [dropped](Self::forget).
    pub(in crate::table) fn set_slice(&mut self, run: &Run, entry: Stamped, slice: u64) {
        let bit = self.slot_bit(run, entry.index);
        let width = self.width();
        let slot = self.new_slot(run, entry.value, slice);
        set_field(self.bytes_mut(), bit, width, slot);
    }

    /// Returns the content of the slot of an entry.
    #[inline(always)]
    pub(super) fn stamped_slot(&self, value: u64, slice: u64) -> u64 {
        value << self.stamp_bits | slice & low_bits(self.stamp_bits())
    }

    /// Returns the content of a new slot of a run. The forgotten slots of its group are [dropped](Self::forget).
    #[inline(always)]
    pub(in crate::table) fn new_slot(&self, run: &Run, value: u64, slice: u64) -> u64 {
        debug_assert!(
            (1..=1 << self.stamp_bits).contains(&slice.saturating_sub(self.base_of(run.group))),
            "a stamp cannot stand for slice {slice}"
        );
        self.stamped_slot(value, slice)
    }

    /// Returns true if slices were forgotten since the group was last written to.
    #[inline(always)]
    pub(in crate::table) fn is_stale(&self, group: usize, forgotten: u64) -> bool {
        self.base_of(group) < forgotten
    }

    /// Returns true if a group holds a slot of a forgotten slice.
    #[inline(never)]
    pub(in crate::table) fn holds_forgotten(&self, group: usize, forgotten: u64) -> bool {
        let base = self.base_of(group);
        let least = forgotten.saturating_sub(base);
        self.slots_of_group(group).any(|slot| slices_between(base, slot, self.stamp_bits()) < least)
    }

    /// Returns the slots of a group, in order.
    #[inline(always)]
    fn slots_of_group(&self, group: usize) -> impl Iterator<Item = u64> {
        let end = self.bounds(group).1 * 8;
        let width = usize::from(self.width);
        (1..=self.slots_in::<Baseline>(group)).map(move |slot| field(self.bytes(), end - slot * width, self.width()))
    }

    /// Drops the forgotten slots of a group, and calls `dropped` with their values.
    #[inline(always)]
    pub(in crate::table) fn forget<P: Processor>(
        &mut self,
        group: usize,
        forgotten: u64,
        mut dropped: impl FnMut(u64),
    ) {
        if forgotten - self.base >= BASE_RANGE {
            self.move_base(forgotten, &mut dropped);
        }
        if self.is_stale(group, forgotten) {
            self.drop_slots::<P>(group, forgotten, &mut dropped);
            self.set_base_of(group, forgotten);
        }
    }

    /// Moves the base of the segment up, so that `forgotten` can be the base of a group.
    #[cold]
    fn move_base(&mut self, forgotten: u64, dropped: &mut impl FnMut(u64)) {
        // Groups in use have bases close to `forgotten`, and keep them.
        let new = forgotten - BASE_RANGE / 2;
        let mut bases = [new; 1 << MAX_LOG_GROUPS];
        for (group, base) in bases[..self.groups()].iter_mut().enumerate() {
            if self.is_stale(group, new) {
                self.drop_slots::<Baseline>(group, new, dropped);
            } else {
                *base = self.base_of(group);
            }
        }
        self.base = new;
        bases[..self.groups()].iter().enumerate().for_each(|(group, &base)| self.set_base_of(group, base));
    }

    /// Drops the slots of a group with slices up to `forgotten`. Rewrites the other slots, in whole words.
    #[inline(always)]
    fn drop_slots<P: Processor>(&mut self, group: usize, forgotten: u64, dropped: &mut impl FnMut(u64)) {
        let (start, end) = self.bounds(group);
        let width = self.width();
        let stamp_bits = self.stamp_bits();
        let base = self.base_of(group);
        let least = (forgotten - base).min(1 << stamp_bits);
        let remembered = Remembered { stamp_bits, first: (base + 1) & low_bits(stamp_bits), least };
        // Several slots are read as a word, and compared at once. Bit 0 of each slot stands for it.
        let per_word = MAX_WIDTH / width;
        let all_slots = ONES[width as usize] & low_bits(per_word * width);
        let mut upper = AscendingWriter::new(start);
        let mut lower = DescendingWriter::new(end);
        let mut at = start;
        let mut low = end * 8;
        let mut zeros = 0;
        let mut gone = 0;
        let bytes = self.bytes_mut();
        // Both parts are rewritten in place: what is kept is never longer than what was read.
        while zeros <= GROUP_QUOTIENTS {
            let (bits, length) = first_zeros::<P>(bytes, at, GROUP_QUOTIENTS + 1 - zeros);
            let slots = bits.count_ones();
            // Bit i says whether slot i of this word is kept, counted from the last one.
            let mut kept = 0;
            let mut left = slots;
            while left > 0 {
                let count = per_word.min(left);
                low -= (count * width) as usize;
                let word = field(bytes, low, count * width);
                let in_word = all_slots & low_bits(count * width);
                let stay = remembered.among(word, all_slots) & in_word;
                lower.append(bytes, P::extract(word, stay * low_bits(width)), stay.count_ones() * width);
                kept = kept << count | P::extract(stay, in_word);
                positions(in_word & !stay).for_each(|at| dropped((word >> at & low_bits(width)) >> stamp_bits));
                left -= count;
            }
            let kept = kept.reverse_bits().checked_shr(u64::BITS - slots).unwrap_or(0);
            // All zeros stay, and the ones of the slots that are kept.
            let stays = !bits & low_bits_up_to_64(length) | P::deposit(kept, bits);
            upper.append(bytes, P::extract(bits, stays), stays.count_ones());
            gone += slots - kept.count_ones();
            zeros += length - slots;
            at += WORD;
        }
        upper.finish(bytes);
        lower.finish(bytes);
        self.slots -= gone;
    }

    /// Appends the values of a run to `values`, which has room. Returns false if a slot is not valid.
    pub(super) fn read_stamped(&self, run: Run, stamps: Stamps, values: &mut Vec<u64>) -> bool {
        debug_assert!(values.capacity() - values.len() >= run.len, "no room for a run");
        let bits = self.stamp_bits();
        let base = self.base_of(run.group);
        (0..run.len).all(|index| {
            let slot = self.slot(&run, index);
            values.push(slot >> bits);
            slot >> bits != 0 && slices_between(base, slot, bits) < stamps.span.into()
        })
    }
}

/// Tells the remembered slots of a group from the forgotten ones.
struct Remembered {
    stamp_bits: u32,
    /// The stamp of the slice after the group's base.
    first: u64,
    /// The number of slices between that one and the first remembered one.
    least: u64,
}

impl Remembered {
    /// Returns the remembered ones among the slots of a word. Bit 0 of each slot stands for it.
    #[inline(always)]
    fn among(&self, word: u64, slots: u64) -> u64 {
        // The bit after each stamp keeps a subtraction within the slot, and is set if its result is not negative.
        let guards = slots << self.stamp_bits;
        let stamps = guards - slots;
        let between = ((word & stamps | guards) - slots * self.first) & stamps;
        (((between | guards) - slots * self.least) & guards) >> self.stamp_bits
    }
}
