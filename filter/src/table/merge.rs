//! Copies, unions and intersections of tables.

use std::cmp::Reverse;

use super::directory::Bucket as _;
use super::entry::{ListedEntry, MAX_ENTRY_COUNT, Payload, doubled, halved, merged};
use super::fingerprint::FIRST_LEVEL;
use super::growth::{exceeds_load, is_mostly_void};
use super::part::{END, end_of, path_at};
use super::path::{Path, Prefix};
use super::segment::{GROUP_QUOTIENTS, ListedSlot, MAX_LOG_GROUPS, QUOTIENT_BITS, Segment, has_long_run};
use super::update::Entered;
use super::{Addressing, Table};
use crate::arch::Baseline;
use crate::error::Error;
use crate::item_count::{ItemCount, MergeOp};
use crate::memory::{Admit, request, try_vec};

/// Entries are added one by one if the segments that they belong to have more than this many times their number of
/// slots. To rebuild a segment takes about 20 ns a slot, to add an entry 230 ns.
const REBUILD_FACTOR: u64 = 10;

impl Prefix {
    /// Returns the prefix that an entry of a segment that starts at `path` matches.
    fn of(path: Path, entry: &ListedEntry, segment: &Segment, addressing: Addressing) -> Prefix {
        let spare_bits = match addressing {
            Addressing::Growing(_) => entry.value.trailing_zeros() + 1,
            Addressing::Fixed(_) => 0,
        };
        let length = segment.level() + segment.value_bits() - spare_bits;
        let quotient = Path::from(entry.quotient) << (Path::BITS - segment.level());
        let fingerprint = Path::from(entry.value >> spare_bits) << (Path::BITS - length);
        Prefix { path: path | quotient | fingerprint, length }
    }
}

impl Table {
    /// Returns a copy that shares nothing.
    pub fn try_clone(&self) -> Result<Table, Error> {
        let mut copy = Table::new(self.addressing, self.payload)?;
        for (path, segment) in self.placed_segments() {
            copy.split_empty(path, segment.depth(), u64::MAX, &mut |_bytes| true)?;
            copy.segment_bytes += segment.allocated();
            *copy.segment_mut(path) = segment.try_clone()?;
        }
        copy.count = self.count;
        copy.occurrences = self.occurrences;
        copy.slots = self.slots;
        copy.coverage = self.coverage;
        Ok(copy)
    }

    /// Returns a table with the entries of all `tables`, at least one, which have the same addressing. Each of them
    /// comes with the number of times that its counts are added.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Self::add).
    pub fn union_of<'a>(
        tables: impl Iterator<Item = (&'a Table, u64)> + Clone,
        admit: Admit<'_>,
    ) -> Result<Table, Error> {
        // The other tables are added to a copy of the largest one, or of the first among equals.
        let largest = tables.clone().enumerate().min_by_key(|(_, (table, _))| Reverse(table.slots()));
        let (largest, (table, times)) = largest.ok_or(Error::OutOfMemory)?;
        request((size_of::<Table>() + table.allocated()) as u64, admit)?;
        let mut union = table.try_clone()?;
        if times > 1 {
            union.union_with(table, times - 1, admit)?;
        }
        for (_, (table, times)) in tables.clone().enumerate().filter(|(number, _)| *number != largest) {
            union.union_with(table, times, admit)?;
        }
        union.count = ItemCount::merged(MergeOp::Union, tables.map(|(table, _)| table.count), union.entries() as f64);
        Ok(union)
    }

    /// Returns true if both tables have the same segments with the same entries.
    pub fn holds_the_same(&self, other: &Table) -> Result<bool, Error> {
        /// The least number of bytes that are compared at a time.
        const COMPARED: usize = 64 << 10;
        let mut position = 0;
        while position < END {
            let part = self.encode_part(position, COMPARED)?;
            if part != other.encode_part(position, COMPARED)? {
                return Ok(false);
            }
            position = part.as_deref().and_then(end_of).unwrap_or(END);
        }
        Ok(true)
    }

    /// Adds the entries of a table with the same addressing, with `times` their counts. The caller updates the item
    /// count.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Self::add). Some of the entries may have been added.
    fn union_with(&mut self, other: &Table, times: u64, admit: Admit<'_>) -> Result<(), Error> {
        debug_assert_eq!(self.addressing, other.addressing);
        let times = if self.payload == Payload::Count { times } else { 1 };
        for (path, segment) in other.placed_segments().filter(|(_, segment)| segment.slots() > 0) {
            let target = self.segment(path);
            if times == 1 && target.slots() == 0 && target.depth() <= segment.depth() {
                request(segment.allocated() as u64, admit)?;
                let copy = segment.try_clone()?;
                self.split_empty(path, segment.depth(), u64::MAX, admit)?;
                self.replace(path, copy);
            } else {
                self.add_entries_of(path, segment, times, admit)?;
            }
        }
        self.occurrences = self.occurrences.saturating_add(other.occurrences.saturating_mul(times));
        Ok(())
    }

    /// Returns the entries that are in both tables, with the lower count of the two. Both tables have the same fixed
    /// size.
    pub fn intersection(&self, other: &Table) -> Result<Table, Error> {
        debug_assert!(matches!(self.addressing, Addressing::Fixed(_)) && self.addressing == other.addressing);
        let mut intersection = Table::new(self.addressing, self.payload)?;
        // Only empty segments may not have been split yet: all others have the same depth.
        for (path, segment) in self.placed_segments() {
            let counterpart = other.segment(path);
            if segment.slots() == 0 || counterpart.slots() == 0 {
                continue;
            }
            let theirs = Segment::list(&[counterpart])?;
            let mut common = Segment::list(&[segment])?;
            // An entry with the count 0 takes no slot.
            for entry in &mut common {
                let first = theirs.partition_point(|other| other.quotient < entry.quotient);
                let mut run = theirs[first..].iter().take_while(|other| other.quotient == entry.quotient);
                let count = run.find(|other| other.value == entry.value).map_or(0, |other| other.content);
                entry.content = entry.content.min(count);
            }
            let empty = self.empty_segment(segment.depth());
            let slots = empty.slots_of_list(&common)?;
            let whole = empty.with_slots(&slots, 0, self.forgotten())?;
            intersection.split_empty(path, segment.depth(), u64::MAX, &mut |_bytes| true)?;
            intersection.replace(path, whole);
            intersection.occurrences =
                common.iter().fold(intersection.occurrences, |sum, entry| sum.saturating_add(entry.content));
        }
        Ok(intersection)
    }

    /// Returns the number of entries, which is the number of items that the table can tell apart.
    pub fn entries(&self) -> u64 {
        let mut entries = 0;
        self.placed_segments().for_each(|(_, segment)| segment.for_each_value(|_| entries += 1));
        entries
    }

    /// Adds the entries of a segment that starts at `path`, with `times` their counts. Returns true if the table
    /// changed.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Self::add). Some of the entries may have been added.
    pub(super) fn add_entries_of(
        &mut self,
        path: Path,
        segment: &Segment,
        times: u64,
        admit: Admit<'_>,
    ) -> Result<bool, Error> {
        let mut entries = Segment::list(&[segment])?;
        if self.payload == Payload::Count {
            entries
                .iter_mut()
                .for_each(|entry| entry.content = entry.content.saturating_mul(times).min(MAX_ENTRY_COUNT));
        }
        self.add_lists(path, entries, &segment.empty_copy(), admit)
    }

    /// Adds the entries of a segment that starts at `path`, given as a list. `place` is an empty segment of the same
    /// depth and size. Returns true if the table changed.
    fn add_lists(
        &mut self,
        path: Path,
        mut entries: Vec<ListedEntry>,
        place: &Segment,
        admit: Admit<'_>,
    ) -> Result<bool, Error> {
        let mut changed = false;
        // A few entries are added one by one, since rebuilding all segments for them would take longer.
        if entries.len() as u64 * REBUILD_FACTOR < self.slots >> place.depth() {
            let mut left = try_vec(entries.len())?;
            for entry in entries {
                let prefix = Prefix::of(path, &entry, place, self.addressing);
                match self.enter::<Baseline>(prefix, entry.content, admit)? {
                    Entered::Unfit => left.push(entry),
                    entered => changed |= entered != Entered::Unchanged,
                }
            }
            entries = left;
        }
        Ok(self.add_list(path, &entries, place, admit)? || changed)
    }

    /// Adds an occurrence of each of some items, given only the first `length` bits of their hashes, more than choose a
    /// quotient in a group. Cuts off those that do not fit into a slot. The caller updates the item count.
    ///
    /// Sorts the items, and adds all that belong to a segment at once: equal ones become one entry, and an entry that
    /// matches all items of many quotients is only copied into these once.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Self::add). Some of the items may have been added.
    pub fn add_prefixes(&mut self, prefixes: &mut [u64], length: u32, admit: Admit<'_>) -> Result<(), Error> {
        debug_assert!(length > QUOTIENT_BITS && matches!(self.addressing, Addressing::Growing(_)));
        prefixes.iter_mut().for_each(|prefix| *prefix &= !(u64::MAX >> length));
        prefixes.sort_unstable();
        let path_of = |prefix: u64| Path::from(prefix) << (Path::BITS - u64::BITS);
        let mut left = &*prefixes;
        while let Some(&first) = left.first() {
            let target = self.segment(path_of(first));
            let place = if target.level() <= length {
                target.empty_copy()
            } else {
                // Each entry matches all items of several quotients.
                let depth = length.saturating_sub(QUOTIENT_BITS + MAX_LOG_GROUPS);
                self.empty_segment_with_groups(depth, length - depth - QUOTIENT_BITS)
            };
            let start = |prefix| path_of(prefix) & !(Path::MAX >> place.depth());
            let (here, others) = left.split_at(left.partition_point(|&prefix| start(prefix) == start(first)));
            let entries = self.listed_prefixes(here.iter().map(|&prefix| path_of(prefix)), length, &place)?;
            self.add_lists(start(first), entries, &place, admit)?;
            left = others;
        }
        self.occurrences = self.occurrences.saturating_add(prefixes.len() as u64);
        Ok(())
    }

    /// Returns the entries of an empty segment for the first `length` bits of `paths`, which are ordered.
    fn listed_prefixes(
        &self,
        paths: impl ExactSizeIterator<Item = Path>,
        length: u32,
        place: &Segment,
    ) -> Result<Vec<ListedEntry>, Error> {
        let mut entries = try_vec::<ListedEntry>(paths.len())?;
        for path in paths {
            let address = place.address(path, self.addressing.terminator());
            let quotient = address.group as u32 * GROUP_QUOTIENTS + address.quotient;
            let value = self.addressing.value_of_length(address, length - place.level(), place.value_bits());
            match entries.last_mut() {
                Some(last) if (last.quotient, last.value) == (quotient, value) => last.content += 1,
                _ => entries.push(ListedEntry { quotient, value, content: 1 }),
            }
        }
        Ok(entries)
    }

    /// Splits an empty table that grows until it has room for this many entries.
    pub fn split_for_entries(&mut self, entries: u64, admit: Admit<'_>) -> Result<(), Error> {
        let level = (u64::BITS - entries.saturating_sub(1).leading_zeros()).max(FIRST_LEVEL);
        let depth = level.saturating_sub(QUOTIENT_BITS + MAX_LOG_GROUPS);
        if depth == 0 {
            *self.segment_mut(0) = self.empty_segment_with_groups(0, level - QUOTIENT_BITS);
        }
        let mut starts = (0..END).step_by((END >> depth) as usize);
        starts.try_for_each(|start| self.split_empty(path_at(start), depth, u64::MAX, &mut *admit))
    }

    /// Adds the entries of a segment that starts at `path`, given as a list. `place` is an empty segment of the same
    /// depth and size. First brings the list to the level of the table's segment, and then merges it with the entries
    /// there.
    fn add_list(
        &mut self,
        path: Path,
        entries: &[ListedEntry],
        place: &Segment,
        admit: Admit<'_>,
    ) -> Result<bool, Error> {
        if entries.is_empty() {
            return Ok(false);
        }
        loop {
            let target = self.segment(path);
            if target.depth() < self.min_depth() {
                self.split_empty(path, self.min_depth(), u64::MAX, admit)?;
                continue;
            }
            if target.level() > place.level() {
                return self.add_doubled_list(path, entries, place, admit);
            }
            let listed = Segment::list(&[target])?;
            let empty = target.empty_copy();
            let halved = self.halved_list(path, entries, place, target.level())?;
            let merged = merged(&listed, halved.as_deref().unwrap_or(entries), self.addressing, self.payload)?;
            if merged == listed {
                return Ok(false);
            }
            let slots = empty.slots_of_list(&merged)?;
            let is_too_full = exceeds_load(&empty, slots.len()) && empty.depth() < self.max_depth();
            if is_too_full && !is_mostly_void(&merged, &empty) {
                // The union of two segments of one size fits into twice that size, or nearly: the next addition
                // doubles what is still too full.
                if place.level() == empty.level() && !has_long_run(&slots) {
                    let coverage_before = self.coverage_of_segment(target);
                    return self.double_with(path, &merged, coverage_before, 0, admit).map(|()| true);
                }
                if self.double(path, 0, admit)? {
                    continue;
                }
            }
            return self.replace_slots(path, empty, &slots, admit).map(|()| true);
        }
    }

    /// Replaces the segment of a path by one with these slots. `empty` is an empty segment of the same size.
    fn replace_slots(
        &mut self,
        path: Path,
        empty: Segment,
        slots: &[ListedSlot],
        admit: Admit<'_>,
    ) -> Result<(), Error> {
        if has_long_run(slots) {
            return Err(Error::CannotGrow);
        }
        let bytes = empty.bytes_for_slots(slots.len());
        request(bytes.saturating_sub(self.segment(path).allocated()) as u64, admit)?;
        let whole = empty.with_slots(slots, 0, self.forgotten())?;
        self.replace(path, whole);
        Ok(())
    }

    /// Adds a list as [`add_list`](Self::add_list) does, to the deeper or larger segments of the table.
    fn add_doubled_list(
        &mut self,
        path: Path,
        entries: &[ListedEntry],
        place: &Segment,
        admit: Admit<'_>,
    ) -> Result<bool, Error> {
        let larger = self.empty_doubled(place);
        let mut entries = doubled(entries, place.value_bits(), larger.value_bits(), self.payload)?;
        if larger.depth() == place.depth() {
            return self.add_list(path, &entries, &larger, admit);
        }
        let cut = entries.partition_point(|entry| entry.quotient < larger.quotients());
        let (low, high) = entries.split_at_mut(cut);
        high.iter_mut().for_each(|entry| entry.quotient -= larger.quotients());
        let second = path | 1 << (Path::BITS - larger.depth());
        let changed = self.add_list(path, low, &larger, admit)?;
        Ok(self.add_list(second, high, &larger, admit)? || changed)
    }

    /// Converts the entries of a segment to entries of the segment that contains it at a lower level. Returns `None` if
    /// `level` is that of `place`.
    fn halved_list(
        &self,
        path: Path,
        entries: &[ListedEntry],
        place: &Segment,
        level: u32,
    ) -> Result<Option<Vec<ListedEntry>>, Error> {
        let mut list = None::<Vec<_>>;
        let mut place = place.empty_copy();
        while place.level() > level {
            let whole = self.empty_halved(&place);
            let source = list.as_deref().unwrap_or(entries);
            let mut halved = halved(source, place.value_bits(), whole.value_bits(), self.payload)?;
            if whole.depth() < place.depth() && path >> (Path::BITS - place.depth()) & 1 == 1 {
                halved.iter_mut().for_each(|entry| entry.quotient += place.quotients() / 2);
            }
            list = Some(halved);
            place = whole;
        }
        Ok(list)
    }
}
