//! Tables that forget: additions to slices, and the removal of forgotten slots.
//!
//! A slot of a forgotten slice is no longer an entry. It stays until an item is added to its group, or until
//! [`Table::sweep`] reaches its group. Forgetting many items at once therefore slows no operation down.

use super::Table;
use super::directory::Bucket as _;
use super::entry::{Payload, Stamps};
use super::growth::{must_double, should_shrink};
use super::part::{END, Position, path_at};
use super::path::Path;
use super::segment::Run;
use crate::arch::{Baseline, Processor, versioned};
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

/// The progress of an addition to a slice in making room.
struct Progress {
    /// True if forgotten slots were dropped.
    dropped: bool,
    /// False if doubling the segment would not help.
    may_double: bool,
}

impl Table {
    versioned! {
        /// Returns true if the item may be in a slice after `forgotten`.
        pub fn remembers(self: &Table, hash: Hash, forgotten: u64) -> bool = Table::remembers_with;
        /// Does the same as [`find_more`](Table::find_more), for items in slices after `forgotten`.
        pub fn find_more_remembered(
            self: &Table, hashes: &[Hash], found: &mut [bool], forgotten: u64
        ) = Table::find_more_remembered_with;
        /// Adds an item to a slice. An item that is present moves only if `addition.refresh` is set and its slice is
        /// earlier.
        ///
        /// # Errors
        ///
        /// The same as for [`add`](Table::add). A failed addition changes nothing, unless forgotten slots were dropped
        /// before an allocation failed.
        pub fn add_to_slice(
            self: &mut Table, hash: Hash, addition: SliceAddition, admit: Admit<'_>
        ) -> Result<AddOutcome, Error> = Table::add_to_slice_with;
        /// Drops the forgotten slots of a group. Returns true if there was one.
        fn forget_in_group(self: &mut Table, path: Path, group: usize) -> bool = Table::forget_in_group_with;
    }

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
    fn remembers_with<P: Processor>(&self, _: P, hash: Hash, forgotten: u64) -> bool {
        let path = self.path(hash);
        let segment = self.segment(path);
        segment.prefetch_estimated(segment.group(path));
        let address = segment.address(path, self.suffix_bits());
        let matches = |value| self.addressing.matches(value, address.remainder);
        segment.run::<P>(address).is_some_and(|run| segment.remembers_any(&run, forgotten, matches))
    }

    #[inline(always)]
    fn find_more_remembered_with<P: Processor>(&self, _: P, hashes: &[Hash], found: &mut [bool], forgotten: u64) {
        let addressing = self.addressing;
        let is_wanted = |found: &bool| !found;
        self.for_each_run::<P, _>(hashes, found, is_wanted, |found, segment, run, remainder| {
            *found = segment.remembers_any(&run, forgotten, |value| addressing.matches(value, remainder));
        });
    }

    #[inline(always)]
    fn add_to_slice_with<P: Processor>(
        &mut self,
        _: P,
        hash: Hash,
        addition: SliceAddition,
        admit: Admit<'_>,
    ) -> Result<AddOutcome, Error> {
        let last_forgotten = self.forgotten();
        let mut progress = Progress { dropped: false, may_double: true };
        // Whatever moves slots starts again, since the run is then somewhere else.
        let added = loop {
            let tried = self.try_add_to_slice::<P>(hash, addition, &mut progress, admit);
            if tried.is_err() && !progress.dropped {
                self.set_forgotten(last_forgotten);
            }
            if let Some(added) = tried? {
                break added;
            }
        };
        if added != AddOutcome::Unchanged {
            self.mark_forgotten(addition.forgotten_after);
            let path = self.path(hash);
            if progress.dropped && should_shrink(self.segment(path), self.addressing) {
                self.shrink::<P>(path);
            }
        }
        Ok(added)
    }

    /// Adds an item to a slice, or else moves slots towards that, and returns `None`.
    #[inline(always)]
    fn try_add_to_slice<P: Processor>(
        &mut self,
        hash: Hash,
        SliceAddition { forgotten_before, forgotten_after, slice, refresh }: SliceAddition,
        progress: &mut Progress,
        admit: Admit<'_>,
    ) -> Result<Option<AddOutcome>, Error> {
        let path = self.path(hash);
        let (addressing, suffix_bits, max_depth) = (self.addressing, self.suffix_bits(), self.max_depth());
        let segment = self.segment_mut(path);
        let address = segment.address(path, suffix_bits);
        let Some((run, in_group)) = segment.run_and_slots::<P>(address) else {
            self.mark_forgotten(forgotten_after);
            return self.allocate_segment(path, admit).map(|()| None);
        };
        let known = segment.newest(&run, forgotten_before, |value| addressing.matches(value, address.remainder));
        if known.is_some_and(|entry| !refresh || entry.slice >= slice) {
            return Ok(Some(AddOutcome::Unchanged));
        }
        let is_crowded = progress.may_double && must_double(segment, max_depth);
        let has_room = !is_crowded && segment.has_room(&run, in_group);

        // Stamps count from the base of the group, and only reach the new slice from the last forgotten one. Moving the
        // base up drops slots for good, so this is done only if the addition then succeeds: the item needs no slot, or
        // there is room, or this makes room.
        if segment.is_stale(run.group, forgotten_after)
            && (known.is_some() || has_room || segment.holds_forgotten(run.group, forgotten_after))
        {
            self.mark_forgotten(forgotten_after);
            progress.dropped |= self.forget_in_group(path, run.group);
            return Ok(None);
        }
        if let Some(entry) = known {
            segment.set_slice(&run, entry, slice);
            return Ok(Some(AddOutcome::Moved(entry.slice)));
        }
        if !has_room {
            self.mark_forgotten(forgotten_after);
            return self.forget_or_make_room::<P>(path, &run, is_crowded, progress, admit).map(|()| None);
        }
        let value = addressing.value(address);
        let added_coverage = addressing.coverage_of_value(segment, value);
        segment.insert_slot(&run, 0, segment.new_slot(&run, value, slice), in_group);
        self.slots += 1;
        self.coverage.add(added_coverage);
        Ok(Some(AddOutcome::New))
    }

    /// Makes room for another slot in a run. A segment that is full of forgotten slots need not grow.
    #[inline(always)]
    fn forget_or_make_room<P: Processor>(
        &mut self,
        path: Path,
        run: &Run,
        is_crowded: bool,
        progress: &mut Progress,
        admit: Admit<'_>,
    ) -> Result<(), Error> {
        if is_crowded && self.forget_in_segment(path) {
            progress.dropped = true;
            return Ok(());
        }
        self.make_room::<P>(path, run, &mut progress.may_double, admit)
    }

    #[inline(always)]
    fn forget_in_group_with<P: Processor>(&mut self, _: P, path: Path, group: usize) -> bool {
        let addressing = self.addressing;
        let forgotten = self.forgotten();
        let segment = self.segment_mut(path);
        let before = segment.slots();
        let mut weight = 0;
        segment.forget::<P>(group, forgotten, |value| weight += u128::from(addressing.weight(value)));
        let dropped = before - segment.slots();
        let dropped_coverage = addressing.coverage_of_weight(segment, weight);
        self.slots -= u64::from(dropped);
        self.coverage.subtract(dropped_coverage);
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
            self.forget_in_group(path, group);
        }
        true
    }

    /// Drops the forgotten slots of the group at a position. Returns the position of the next group; the first group
    /// follows the last.
    pub fn sweep(&mut self, position: Position) -> Position {
        let path = path_at(position);
        let segment = self.segment(path);
        let depth = segment.depth();
        let is_empty = segment.slots() == 0;
        // An empty segment is skipped in one step.
        let groups = if is_empty { 0 } else { segment.log_groups() };
        let step = END >> depth >> groups;
        if !is_empty
            && self.forget_in_group(path, self.segment(path).group(path))
            && should_shrink(self.segment(path), self.addressing)
        {
            self.shrink::<Baseline>(path);
        }
        ((position & !(step - 1)) + step) & (END - 1)
    }
}
