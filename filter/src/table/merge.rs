//! Copies, unions and intersections of tables.

use std::cmp::Reverse;

use super::directory::Bucket as _;
use super::entry::ListedEntry;
use super::path::Path;
use super::segment::Segment;
use super::stored::{END, path_at};
use super::{Addressing, Table};
use crate::error::Error;
use crate::item_count::{ItemCount, MergeOp};
use crate::memory::Admit;

impl Table {
    /// Returns a copy that shares nothing.
    pub fn try_clone(&self) -> Result<Table, Error> {
        let mut copy = Table::new(self.addressing, self.payload)?;
        for (path, segment) in self.placed_segments() {
            copy.split_empty(path, segment.depth(), u64::MAX)?;
            copy.segment_bytes = copy.segment_bytes + segment.allocated() - copy.segment(path).allocated();
            *copy.segment_mut(path) = segment.try_clone()?;
        }
        (copy.count, copy.occurrences, copy.slots, copy.coverage) =
            (self.count, self.occurrences, self.slots, self.coverage);
        Ok(copy)
    }

    /// Returns a table with the entries of all `tables`, at least one, which have the same addressing.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Self::add).
    pub fn union_of<'a>(tables: impl Iterator<Item = &'a Table> + Clone, admit: Admit<'_>) -> Result<Table, Error> {
        // The other tables are added to a copy of the largest one, or of the first among equals.
        let largest = tables.clone().enumerate().min_by_key(|(_, table)| Reverse(table.slots()));
        let (largest, table) = largest.ok_or(Error::OutOfMemory)?;
        if !admit((size_of::<Table>() + table.allocated()) as u64) {
            return Err(Error::OutOfMemory);
        }
        let mut union = table.try_clone()?;
        for (_, table) in tables.clone().enumerate().filter(|(number, _)| *number != largest) {
            union.union_with(table, admit)?;
        }
        union.count = ItemCount::merged(MergeOp::Union, tables.map(|table| table.count), union.entries() as f64);
        Ok(union)
    }

    /// Returns true if both tables have the same segments with the same entries.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if a buffer for the comparison cannot be allocated.
    pub fn holds_the_same(&self, other: &Table) -> Result<bool, Error> {
        if (self.slots, self.segments) != (other.slots, other.segments) {
            return Ok(false);
        }
        let mut encoded = [Vec::new(), Vec::new()];
        for ((path, one), (other_path, other)) in self.placed_segments().zip(other.placed_segments()) {
            let shape = |segment: &Segment| (segment.depth(), segment.log_groups(), segment.slots());
            if path != other_path || shape(one) != shape(other) {
                return Ok(false);
            }
            for (bytes, segment) in encoded.iter_mut().zip([one, other]) {
                bytes.clear();
                bytes.try_reserve(segment.encoded_bytes()).map_err(|_| Error::OutOfMemory)?;
                segment.encode(bytes);
            }
            if encoded[0] != encoded[1] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the entries of a table with the same addressing. Returns true if this table changed. The caller updates the
    /// item count.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Self::add). Some of the entries may have been added.
    pub fn union_with(&mut self, other: &Table, admit: Admit<'_>) -> Result<bool, Error> {
        let mut changed = false;
        for (path, segment) in other.placed_segments().filter(|(_, segment)| segment.slots() > 0) {
            let target = self.segment(path);
            if target.slots() == 0 && target.depth() <= segment.depth() {
                if !admit(segment.allocated() as u64) {
                    return Err(Error::OutOfMemory);
                }
                let copy = segment.try_clone()?;
                self.split_empty(path, segment.depth(), u64::MAX)?;
                self.replace_empty(path, copy);
                changed = true;
            } else {
                changed |= self.add_entries_of(path, segment, admit)?;
            }
        }
        self.occurrences = self.occurrences.saturating_add(other.occurrences);
        Ok(changed)
    }

    /// Returns the entries that are in both tables, with the lower count of the two. Both tables have the same fixed
    /// size.
    pub fn intersection(&self, other: &Table) -> Result<Table, Error> {
        let mut intersection = Table::new(self.addressing, self.payload)?;
        let mut position = 0;
        while position < END {
            let path = path_at(position);
            let (segment, counterpart) = (self.segment(path), other.segment(path));
            // An empty segment may not have been split yet, so it can be less deep than its counterpart.
            position += END >> segment.depth().max(counterpart.depth());
            if segment.slots() == 0 || counterpart.slots() == 0 {
                continue;
            }
            let theirs = Segment::list(&[counterpart])?;
            let mut common = Segment::list(&[segment])?;
            common.retain_mut(|entry| {
                let first = theirs.partition_point(|other| other.quotient < entry.quotient);
                let run = theirs[first..].iter().take_while(|other| other.quotient == entry.quotient);
                let count =
                    run.filter(|other| other.value == entry.value).map(|other| other.content).next().unwrap_or(0);
                entry.content = entry.content.min(count);
                entry.content > 0
            });
            let empty = self.empty_segment(segment.depth());
            let bytes = empty.bytes_for(&common);
            let whole = empty.with_entries(bytes, &common, self.forgotten())?;
            intersection.split_empty(path, segment.depth(), u64::MAX)?;
            intersection.replace_empty(path, whole);
            intersection.occurrences =
                common.iter().fold(intersection.occurrences, |sum, entry| sum.saturating_add(entry.content));
        }
        Ok(intersection)
    }

    /// Returns the number of entries, which is the number of items that the table can tell apart.
    pub fn entries(&self) -> u64 {
        let mut entries = 0;
        self.all_segments().for_each(|segment| segment.for_each_value(|_| entries += 1));
        entries
    }

    /// Adds the entries of a segment that starts at `path`. Returns true if the table changed.
    pub(super) fn add_entries_of(&mut self, path: Path, segment: &Segment, admit: Admit<'_>) -> Result<bool, Error> {
        let mut changed = false;
        for ListedEntry { quotient, value, content } in Segment::list(&[segment])? {
            let quotient = Path::from(quotient) << (Path::BITS - segment.level());
            let (bits, length) = match self.addressing {
                Addressing::Growing(_) => {
                    (value >> 1 >> value.trailing_zeros(), segment.width() - 1 - value.trailing_zeros())
                }
                Addressing::Fixed(_) => (value, segment.width()),
            };
            let length = segment.level() + length;
            let bits = Path::from(bits).checked_shl(Path::BITS - length).unwrap_or(0);
            changed |= self.put(path | quotient | bits, length, content, admit)?;
        }
        Ok(changed)
    }
}
