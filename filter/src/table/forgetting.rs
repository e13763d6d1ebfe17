//! Tables that forget: additions to slices, and the removal of forgotten slots.
//!
//! A slot of a forgotten slice is no longer an entry. It stays until an item is added to its group, or until
//! [`Table::sweep`] reaches its group. Forgetting many items at once therefore slows no operation down.

use super::Table;
use super::bits::{Broadword, Select};
use super::directory::Bucket as _;
use super::entry::{Payload, Stamps};
use super::growth::{must_double, should_shrink};
use super::path::Path;
use super::stored::{END, Position, path_at};
use crate::error::Error;
use crate::hash::Hash;
use crate::memory::Admit;

/// The outcome of an addition to a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOutcome {
    /// The item is new.
    New,
    /// The item moved from this slice to a later one.
    Moved(u64),
    /// The item is present, and stays in its slice.
    Unchanged,
}

/// The parameters of an addition to a slice.
#[derive(Clone, Copy, Debug)]
pub struct SliceAddition {
    /// The last slice that is forgotten before the addition.
    pub forgotten_before: u64,
    /// The last slice that is forgotten after the addition. It may be later than `forgotten_before`, to make room for a
    /// new item.
    pub forgotten_after: u64,
    /// The slice that gets the item, after `forgotten_after`.
    pub slice: u64,
    /// True if an item in an earlier slice moves to this slice.
    pub refresh: bool,
}

dispatched! {
    /// Returns true if the item may be in a slice after `forgotten`.
    pub fn remembers(table: &Table, hash: Hash, forgotten: u64) -> bool = remembers_with;
    /// Does the same as [`find_more`](Table::find_more), for items in slices after `forgotten`.
    pub fn find_more_remembered(
        table: &Table, hashes: &[Hash], found: &mut [bool], forgotten: u64
    ) = find_more_remembered_with;
    /// Adds an item to a slice. An item that is present moves only if `addition.refresh` is set and its slice is
    /// earlier.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Table::add). A failed addition changes nothing, unless forgotten slots were dropped
    /// before an allocation failed.
    pub fn add_to_slice(
        table: &mut Table, hash: Hash, addition: SliceAddition, admit: Admit<'_>
    ) -> Result<AddOutcome, Error> = add_to_slice_with;
}

impl Table {
    /// Returns the last slice that was forgotten when the table was last written to, or 0 if the table does not forget.
    pub fn forgotten(&self) -> u64 {
        match self.payload {
            Payload::Slice(Stamps { forgotten, .. }) => forgotten,
            Payload::Nothing | Payload::Count => 0,
        }
    }

    /// Marks the slices up to this one as forgotten. Their slots stay until later writes drop them.
    pub fn mark_forgotten(&mut self, slice: u64) {
        self.set_forgotten(slice.max(self.forgotten()));
    }

    fn set_forgotten(&mut self, slice: u64) {
        if let Payload::Slice(stamps) = &mut self.payload {
            stamps.forgotten = slice;
        }
    }

    /// Returns the number of bits of a slot after its fingerprint: the terminator and the stamp.
    #[inline(always)]
    pub(super) fn suffix_bits(&self) -> u32 {
        self.addressing.terminator() + self.payload.stamp_bits()
    }

    #[inline(always)]
    fn remembers_with<S: Select>(&self, _select: S, hash: Hash, forgotten: u64) -> bool {
        let path = self.path(hash);
        let segment = self.segment(path);
        segment.prefetch_estimated(segment.group(path));
        let address = segment.address(path, self.suffix_bits());
        let matches = |value| self.addressing.matches(value, address.remainder);
        segment.run::<S>(address).is_some_and(|run| segment.remembers_any(&run, forgotten, matches))
    }

    #[inline(always)]
    fn find_more_remembered_with<S: Select>(&self, _select: S, hashes: &[Hash], found: &mut [bool], forgotten: u64) {
        let addressing = self.addressing;
        let is_wanted = |found: &bool| !found;
        self.for_each_run::<S, _>(hashes, found, is_wanted, |found, segment, run, remainder| {
            *found = segment.remembers_any(&run, forgotten, |value| addressing.matches(value, remainder));
        });
    }

    #[inline(always)]
    fn add_to_slice_with<S: Select>(
        &mut self,
        _select: S,
        hash: Hash,
        addition: SliceAddition,
        admit: Admit<'_>,
    ) -> Result<AddOutcome, Error> {
        let SliceAddition { forgotten_before, forgotten_after, slice, refresh } = addition;
        let path = self.path(hash);
        let addressing = self.addressing;
        let suffix_bits = self.suffix_bits();
        let last_forgotten = self.forgotten();
        let mut dropped = false;
        let mut may_double = true;
        // Whatever moves slots starts again, since the run is then somewhere else.
        let added = loop {
            let max_depth = self.max_depth();
            let segment = self.segment_mut(path);
            let address = segment.address(path, suffix_bits);
            let Some(run) = segment.run::<S>(address) else {
                self.mark_forgotten(forgotten_after);
                self.allocate_segment(path, admit).inspect_err(|_| self.set_forgotten(last_forgotten))?;
                continue;
            };

            let known = segment.newest(&run, forgotten_before, |value| addressing.matches(value, address.remainder));
            if known.is_some_and(|entry| !refresh || entry.slice >= slice) {
                return Ok(AddOutcome::Unchanged);
            }
            let is_crowded = may_double && must_double(segment, max_depth);
            let room = segment.slots_if_room::<S>(&run).filter(|_| !is_crowded);

            // Stamps count from the base of the group, and only reach the new slice from the last forgotten one. Moving
            // the base up drops slots for good, so this is done only if the addition then succeeds: the item needs no
            // slot, or there is room, or this makes room.
            if segment.is_stale(run.group, forgotten_after)
                && (known.is_some() || room.is_some() || segment.holds_forgotten(run.group, forgotten_after))
            {
                self.mark_forgotten(forgotten_after);
                dropped |= self.forget_in_group::<S>(path, run.group);
                continue;
            }

            if let Some(entry) = known {
                segment.set_slice(&run, entry, slice);
                break AddOutcome::Moved(entry.slice);
            }
            if let Some(in_group) = room {
                let value = addressing.value(address);
                let added_coverage = addressing.coverage_of_value(segment, value);
                segment.insert_stamped(&run, value, slice, in_group);
                self.slots += 1;
                self.coverage.add(added_coverage);
                break AddOutcome::New;
            }

            self.mark_forgotten(forgotten_after);
            // A segment that is full of forgotten slots need not grow.
            if is_crowded && self.forget_in_segment(path) {
                dropped = true;
                continue;
            }
            let made = self.make_room::<S>(path, &run, &mut may_double, admit);
            if made.is_err() && !dropped {
                self.set_forgotten(last_forgotten);
            }
            made?;
        };
        self.mark_forgotten(forgotten_after);
        if dropped && should_shrink(self.segment(path), addressing) {
            self.shrink::<S>(path);
        }
        Ok(added)
    }

    /// Drops the forgotten slots of a group. Returns true if there was one.
    #[inline(always)]
    fn forget_in_group<S: Select>(&mut self, path: Path, group: usize) -> bool {
        let addressing = self.addressing;
        let forgotten = self.forgotten();
        let mut coverage = self.coverage;
        let segment = self.segment_mut(path);
        let before = segment.slots();
        // The closure cannot borrow the segment that it drops slots from, so it uses an empty one of the same shape.
        let shape = segment.empty_copy();
        segment.forget::<S>(group, forgotten, |value| coverage.subtract(addressing.coverage_of_value(&shape, value)));
        let dropped = before - segment.slots();
        self.slots -= u64::from(dropped);
        self.coverage = coverage;
        dropped > 0
    }

    /// Drops the forgotten slots of a segment that has slots. Returns false, and changes nothing, if there is none.
    #[cold]
    fn forget_in_segment(&mut self, path: Path) -> bool {
        let segment = self.segment(path);
        let forgotten = self.forgotten();
        let groups = 0..1 << segment.log_groups();
        if !groups.clone().any(|group| segment.holds_forgotten(group, forgotten)) {
            return false;
        }
        for group in groups {
            self.forget_in_group::<Broadword>(path, group);
        }
        true
    }

    /// Drops the forgotten slots of the group at a position. Returns the position of the next group; the first group
    /// follows the last.
    pub fn sweep(&mut self, position: Position) -> Position {
        let path = path_at(position);
        let segment = self.segment(path);
        let depth = segment.depth();
        // An empty segment is skipped in one step.
        let groups = if segment.slots() > 0 { segment.log_groups() } else { 0 };
        let step = END >> depth >> groups;
        if segment.slots() > 0
            && self.forget_in_group::<Broadword>(path, self.segment(path).group(path))
            && should_shrink(self.segment(path), self.addressing)
        {
            self.shrink::<Broadword>(path);
        }
        ((position & !(step - 1)) + step) & (END - 1)
    }
}
