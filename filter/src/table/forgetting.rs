//! Tables that forget: additions to slices, and the removal of forgotten slots.
//!
//! A slot of a forgotten slice is no longer an entry. It stays until an item is added to its group, or until
//! [`Table::sweep`] reaches its group. Forgetting many items at once therefore slows no operation down.

use super::Table;
use super::bits::{Broadword, Select};
use super::directory::Part as _;
use super::entry::{Payload, Stamps};
use super::growth::{must_double, shrinks};
use super::path::Path;
use super::stored::{END, Position, path_at};
use crate::error::Error;
use crate::hash::Hash;
use crate::memory::Admit;

/// The outcome of an addition to a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The item is new.
    New,
    /// The item moved from this slice to a later one.
    Moved(u64),
    /// The item is present, and stays in its slice.
    Nothing,
}

/// The parameters of an addition to a slice.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The last slice that is forgotten before the addition.
    pub present: u64,
    /// The last slice that is forgotten after the addition. It may be later than `present`, to make room for a new
    /// item.
    pub forgotten: u64,
    /// The slice that gets the item, after `forgotten`.
    pub slice: u64,
    /// True if an item in an earlier slice moves to this slice.
    pub moves: bool,
}

dispatched! {
    /// Returns true if the item may be in a slice after `forgotten`.
    pub fn remembers(table: &Table, hash: Hash, forgotten: u64) -> bool = remembers_with
}
dispatched! {
    /// Sets `found[i]` if the item of `hashes[i]` may be in a slice after `forgotten`. Leaves the other elements
    /// unchanged.
    pub fn find_remembered(table: &Table, hashes: &[Hash], found: &mut [bool], forgotten: u64) = find_remembered_with
}
dispatched! {
    /// Adds an item to a slice. An item that is present moves only if `target.moves` is set and its slice is earlier.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Table::add). A failed addition forgets nothing.
    pub fn add_to_slice(table: &mut Table, hash: Hash, target: Target, admit: Admit<'_>) -> Result<Added, Error> =
        add_to_slice_with
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
    pub fn note_forgotten(&mut self, up_to: u64) {
        self.set_forgotten(up_to.max(self.forgotten()));
    }

    fn set_forgotten(&mut self, up_to: u64) {
        if let Payload::Slice(stamps) = &mut self.payload {
            stamps.forgotten = up_to;
        }
    }

    /// Returns the number of bits of a slot after its fingerprint: the terminator and the stamp.
    #[inline(always)]
    fn bits_behind(&self) -> u32 {
        self.addressing.terminator() + self.payload.stamp_bits()
    }

    #[inline(always)]
    fn remembers_with<S: Select>(&self, hash: Hash, forgotten: u64) -> bool {
        let path = self.path(hash);
        let segment = self.segment(path);
        segment.prefetch_near(segment.group(path));
        let place = segment.place(path, self.bits_behind());
        let fits = |value| self.addressing.fits(value, place.remainder);
        segment.run::<S>(place).is_some_and(|run| segment.remembers_any(&run, forgotten, fits))
    }

    #[inline(always)]
    fn find_remembered_with<S: Select>(&self, hashes: &[Hash], found: &mut [bool], forgotten: u64) {
        let addressing = self.addressing;
        let is_wanted = |found: &bool| !found;
        self.each_run::<S, _>(self.bits_behind(), hashes, found, is_wanted, |found, segment, run, remainder| {
            *found = segment.remembers_any(&run, forgotten, |value| addressing.fits(value, remainder));
        });
    }

    #[inline(always)]
    fn add_to_slice_with<S: Select>(&mut self, hash: Hash, target: Target, admit: Admit<'_>) -> Result<Added, Error> {
        let Target { present, forgotten, slice, moves } = target;
        let (path, addressing, behind) = (self.path(hash), self.addressing, self.bits_behind());
        let (mut dropped, before) = (false, self.forgotten());
        let added = loop {
            let deepest = self.deepest();
            let segment = self.segment_mut(path);
            let place = segment.place(path, behind);
            let Some(run) = segment.run::<S>(place) else {
                self.note_forgotten(forgotten);
                self.allocate_segment(path, admit).inspect_err(|_| self.set_forgotten(before))?;
                continue;
            };
            let known = segment.newest(&run, present, |value| addressing.fits(value, place.remainder));
            if known.is_some_and(|entry| !moves || entry.slice >= slice) {
                return Ok(Added::Nothing);
            }
            let room = segment.slots_if_room::<S>(&run).filter(|_| !must_double(segment, deepest));
            // Drops slots only if the addition then succeeds: the item needs no slot, or there is room, or this makes
            // room.
            if segment.is_stale(run.group(), forgotten)
                && (known.is_some() || room.is_some() || segment.holds_forgotten(run.group(), forgotten))
            {
                self.note_forgotten(forgotten);
                dropped |= self.forget_in_group::<S>(path, run.group());
                continue;
            }
            if let Some(entry) = known {
                segment.set_slice(&run, entry, slice);
                break Added::Moved(entry.slice);
            }
            let Some(in_group) = room else {
                self.note_forgotten(forgotten);
                self.make_room::<S>(path, run.group(), admit).inspect_err(|_| self.set_forgotten(before))?;
                continue;
            };
            let value = addressing.value(place);
            let claim = addressing.claim_of(segment, value);
            segment.insert_stamped(&run, value, slice, in_group);
            self.slots += 1;
            self.claimed.add(claim);
            break Added::New;
        };
        self.note_forgotten(forgotten);
        if dropped && shrinks(self.segment(path), addressing) {
            self.shrink::<S>(path);
        }
        Ok(added)
    }

    /// Drops the forgotten slots of a group. Returns true if there was one.
    #[inline(always)]
    fn forget_in_group<S: Select>(&mut self, path: Path, group: usize) -> bool {
        let (addressing, forgotten, mut claimed) = (self.addressing, self.forgotten(), self.claimed);
        let segment = self.segment_mut(path);
        let before = segment.slots();
        // The closure cannot borrow the segment that it drops slots from, so it uses an empty one of the same shape.
        let shape = segment.without_slots();
        segment.forget::<S>(group, forgotten, |value| claimed.subtract(addressing.claim_of(&shape, value)));
        let dropped = before - segment.slots();
        self.slots -= u64::from(dropped);
        self.claimed = claimed;
        dropped > 0
    }

    /// Drops the forgotten slots of a segment. Returns true if there was one.
    pub(super) fn forget_in_segment(&mut self, path: Path) -> bool {
        let segment = self.segment(path);
        if !matches!(self.payload, Payload::Slice(_)) || segment.slots() == 0 {
            return false;
        }
        let groups = 0..1 << segment.log_groups();
        let dropped = groups.fold(false, |dropped, group| self.forget_in_group::<Broadword>(path, group) | dropped);
        if dropped && shrinks(self.segment(path), self.addressing) {
            self.shrink::<Broadword>(path);
        }
        dropped
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
            && shrinks(self.segment(path), self.addressing)
        {
            self.shrink::<Broadword>(path);
        }
        ((position & !(step - 1)) + step) & (END - 1)
    }
}
