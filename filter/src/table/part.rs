//! The encoding of a table as bytes, in parts of whole segments.
//!
//! A part holds whole segments, in the order of their paths:
//!
//! ```text
//!  start of the first segment, end of the last one (u64 each, in units of 2^-48 of all paths)
//!  per segment: depth, log2 of the number of groups (u8 each), slots (u32, little-endian)
//!               if the segment has slots:
//!               its base (u64), if the table forgets
//!               per group: its base (u8), if the table forgets; the upper part, the lower part (each in whole bytes)
//! ```
//!
//! A part contains no slack, so tables with the same content give the same bytes.

#![warn(clippy::arithmetic_side_effects)]

use super::directory::Bucket as _;
use super::entry::Payload;
use super::growth::{DIRECTORY_BYTES, DIRECTORY_BYTES_PER_SEGMENT, MAX_DEPTH, Sums};
use super::path::Path;
use super::segment::{MAX_LOG_GROUPS, Segment};
use super::{Addressing, Table};
use crate::error::{DecodeError, Error, ensure};
use crate::item_count::ItemCount;
use crate::memory::{Admit, request, try_vec};

/// A position in the sequence of all paths, in units of `2^-48` of them.
pub type Position = u64;

/// The position after all paths.
pub const END: Position = 1 << POSITION_BITS;

const POSITION_BITS: u32 = 48;
const _: () = assert!(MAX_DEPTH <= POSITION_BITS, "segments without a position of their own");

const SEGMENT_HEADER: usize = 6;

/// The place of a segment in a table, before the segment was added.
struct Place {
    path: Path,
    /// The depth of the segment that was there, and whether it was empty.
    depth: u32,
    is_empty: bool,
}

/// A segment of a part.
struct Decoded {
    /// The first path.
    path: Path,
    segment: Segment,
    /// The sum of the fractions of all paths that the entries match.
    coverage: u128,
}

/// Returns the end of a part, where the next one starts, or `None` if the bytes are too short.
pub fn end_of(part: &[u8]) -> Option<Position> {
    let (_, rest) = part.split_at_checked(size_of::<Position>())?;
    rest.first_chunk().copied().map(Position::from_le_bytes)
}

fn end_of_segment(start: Position, segment: &Segment) -> Position {
    start.saturating_add(END >> segment.depth())
}

/// Returns the first path at a position.
pub(super) fn path_at(position: Position) -> Path {
    Path::from(position) << (Path::BITS - POSITION_BITS)
}

/// Returns the position of a path.
fn position_of(path: Path) -> Position {
    (path >> (Path::BITS - POSITION_BITS)) as Position
}

impl Table {
    /// Encodes a part from `from` on: as many segments as take `min_bytes` bytes, or all the remaining ones. Returns
    /// `None` at the end, or if the table is empty.
    pub fn encode_part(&self, from: Position, min_bytes: usize) -> Result<Option<Vec<u8>>, Error> {
        if from >= END || self.slots == 0 {
            return Ok(None);
        }
        // Segments may have merged since the last part, so that `from` lies within a segment.
        let start = self.start_of(from);
        let mut end = start;
        let mut length = size_of::<[Position; 2]>();
        for (position, segment) in self.segments_from(start) {
            if length >= min_bytes {
                break;
            }
            length = length.saturating_add(SEGMENT_HEADER).saturating_add(segment.encoded_bytes());
            end = end_of_segment(position, segment);
        }
        let mut bytes = try_vec(length)?;
        bytes.extend_from_slice([start, end].map(Position::to_le_bytes).as_flattened());
        for (_, segment) in self.segments_from(start).take_while(|(position, _)| *position < end) {
            bytes.extend_from_slice(&[segment.depth() as u8, segment.log_groups() as u8]);
            bytes.extend_from_slice(&segment.slots().to_le_bytes());
            if segment.slots() > 0 {
                segment.encode(&mut bytes);
            }
        }
        Ok(Some(bytes))
    }

    /// Returns the maximum size of all segments as one part, in bytes.
    pub fn max_encoded_bytes(&self) -> u64 {
        let headers = self.segments.saturating_mul(SEGMENT_HEADER as u64);
        (size_of::<[Position; 2]>().saturating_add(self.segment_bytes) as u64).saturating_add(headers)
    }

    /// Returns the segments with their first paths, in order.
    pub(super) fn placed_segments(&self) -> impl Iterator<Item = (Path, &Segment)> {
        self.segments_from(0).map(|(start, segment)| (path_at(start), segment))
    }

    /// Returns the segments from one that starts at `start` on, with their starts.
    fn segments_from(&self, start: Position) -> impl Iterator<Item = (Position, &Segment)> {
        let mut next = start;
        std::iter::from_fn(move || {
            let start = next;
            let segment = (start < END).then(|| self.segment(path_at(start)))?;
            next = end_of_segment(start, segment);
            Some((start, segment))
        })
    }

    /// Returns the start of the segment that a position lies in.
    fn start_of(&self, position: Position) -> Position {
        position & (END >> self.segment(path_at(position)).depth()).wrapping_neg()
    }

    /// Adds the entries of a part. Returns true if the table changed.
    ///
    /// A set may already have entries where the part belongs. In any other table, the segments there must be empty, or
    /// equal to those of the part.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Corrupt`] if the bytes are not a part of a table of this kind; [`DecodeError::Foreign`] if a
    /// table that is not a set has other entries where the part belongs; [`DecodeError::OutOfMemory`] if `admit`
    /// rejects the memory, or an allocation fails.
    pub fn add_part(&mut self, part: &[u8], admit: Admit<'_>) -> Result<bool, DecodeError> {
        let segments = self.decode_part(part)?;
        if self.payload != Payload::Nothing {
            for decoded in &segments {
                if !self.is_empty_or_equal(decoded.path, &decoded.segment)? {
                    return Err(DecodeError::Foreign);
                }
            }
        }
        // Segments with entries ask for more when entries are added to them.
        let into_empty = segments.iter().filter(|decoded| self.segment(decoded.path).slots() == 0);
        let bytes = into_empty
            .map(|Decoded { segment, .. }| size_of::<Segment>().saturating_add(segment.allocated()) as u64)
            .sum();
        request(bytes, admit)?;
        let filled = self.copies_of_filled(&segments)?;
        let mut places = try_vec(segments.len())?;
        for Decoded { path, segment, .. } in &segments {
            let target = self.segment(*path);
            places.push(Place { path: *path, depth: target.depth(), is_empty: target.slots() == 0 });
            if let Err(error) = self.split_for(*path, segment, admit) {
                self.unsplit_all(&places);
                return Err(error);
            }
        }
        let mut changed = false;
        for (place, decoded) in places.iter().zip(segments) {
            changed |= place.depth < self.segment(place.path).depth();
            match self.add_segment(decoded, admit) {
                Ok(added) => changed |= added,
                Err(error) => {
                    for place in places.iter().filter(|place| place.is_empty) {
                        self.replace(place.path, self.empty_segment(self.segment(place.path).depth()));
                    }
                    filled.into_iter().for_each(|(path, segment)| self.put_back(path, segment));
                    self.unsplit_all(&places);
                    return Err(error);
                }
            }
        }
        // An empty table has no division into segments.
        if self.slots == 0 {
            self.unsplit_all(&places);
        }
        Ok(changed && self.slots > 0)
    }

    fn decode_part(&self, part: &[u8]) -> Result<Vec<Decoded>, DecodeError> {
        let end = end_of(part).ok_or(DecodeError::Corrupt)?;
        let (start, mut rest) = part.split_first_chunk().ok_or(DecodeError::Corrupt)?;
        rest = &rest[size_of::<Position>()..];
        let mut position = Position::from_le_bytes(*start);
        let mut segments = Vec::new();
        while !rest.is_empty() {
            let decoded = self.decode_segment(position, &mut rest)?;
            position = end_of_segment(position, &decoded.segment);
            segments.try_reserve(1).map_err(|_| DecodeError::OutOfMemory)?;
            segments.push(decoded);
        }
        ensure(position == end && !segments.is_empty())?;
        Ok(segments)
    }

    /// Returns copies of those segments with slots that have paths of `others`, which follow each other.
    fn copies_of_filled(&self, others: &[Decoded]) -> Result<Vec<(Path, Segment)>, Error> {
        let (Some(first), Some(last)) = (others.first(), others.last()) else { return Ok(Vec::new()) };
        let start = self.start_of(position_of(first.path));
        let end = end_of_segment(position_of(last.path), &last.segment);
        let mut filled = Vec::new();
        for (start, segment) in self.segments_from(start).take_while(|(start, _)| *start < end) {
            if segment.slots() > 0 {
                filled.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
                filled.push((path_at(start), segment.try_clone()?));
            }
        }
        Ok(filled)
    }

    /// Puts a segment back in its place, where it may have split since. Does nothing if its page has split further:
    /// more entries than before do no harm.
    fn put_back(&mut self, path: Path, segment: Segment) {
        if self.pages.get(path).depth() > segment.depth() {
            return;
        }
        let mut half = path;
        while self.segment(path).depth() > segment.depth() {
            let depth = self.segment(half).depth();
            let buddy = half ^ Path::unbounded_shl(1, Path::BITS.saturating_sub(depth));
            if self.segment(buddy).depth() > depth {
                half = buddy;
                continue;
            }
            for half in [half, buddy] {
                self.replace(half, self.empty_segment(depth));
            }
            self.merge_buddies(half, self.empty_segment(depth.saturating_sub(1)));
            half = path;
        }
        self.replace(path, segment);
    }

    /// Splits the empty segment of a path down to the depth of `segment`. Does nothing if it has slots.
    fn split_for(&mut self, path: Path, segment: &Segment, admit: Admit<'_>) -> Result<(), DecodeError> {
        if self.segment(path).slots() > 0 {
            return Ok(());
        }
        let max_bytes = match self.addressing {
            // Forged segments take six bytes each, and can have any depth.
            Addressing::Growing(_) => {
                let segments = self.segments.max(self.announced_segments);
                DIRECTORY_BYTES.saturating_add(DIRECTORY_BYTES_PER_SEGMENT.saturating_mul(segments))
            }
            Addressing::Fixed(_) => u64::MAX,
        };
        Ok(self.split_empty(path, segment.depth(), max_bytes, admit)?)
    }

    /// Undoes [`split_for`](Self::split_for) at all places.
    fn unsplit_all(&mut self, places: &[Place]) {
        for place in places.iter().rev().filter(|place| place.is_empty) {
            self.unsplit_empty(place.path, place.depth);
        }
    }

    fn decode_segment(&self, position: Position, bytes: &mut &[u8]) -> Result<Decoded, DecodeError> {
        let (&[depth, log_groups, a, b, c, d], rest) = bytes.split_first_chunk().ok_or(DecodeError::Corrupt)?;
        let depth = u32::from(depth);
        let log_groups = u32::from(log_groups);
        let slots = u32::from_le_bytes([a, b, c, d]);
        let is_sound = match self.addressing {
            Addressing::Growing(_) if depth > 0 => log_groups == MAX_LOG_GROUPS,
            Addressing::Growing(_) => (1..=MAX_LOG_GROUPS).contains(&log_groups),
            Addressing::Fixed(space) => {
                log_groups == space.log_groups() && depth <= space.depth() && (depth == space.depth() || slots == 0)
            }
        };
        ensure(is_sound && depth <= MAX_DEPTH && position < END && position.is_multiple_of(END >> depth))?;
        *bytes = rest;
        let path = path_at(position);
        if slots == 0 {
            // An empty table has no parts, so an empty segment cannot cover the whole table.
            let segment = self.empty_segment(depth);
            return if depth > 0 { Ok(Decoded { path, segment, coverage: 0 }) } else { Err(DecodeError::Corrupt) };
        }
        let segment =
            self.empty_segment_with_groups(depth, log_groups).decode(slots, bytes)?.ok_or(DecodeError::Corrupt)?;
        let weight = segment.checked_weight(self.payload, |value| self.addressing.weight(value))?;
        let coverage = self.addressing.coverage_of_weight(&segment, weight.ok_or(DecodeError::Corrupt)?);
        Ok(Decoded { path, segment, coverage })
    }

    /// Returns true if the segment of a path is empty, or holds the same entries as `segment`.
    fn is_empty_or_equal(&self, path: Path, segment: &Segment) -> Result<bool, Error> {
        let target = self.segment(path);
        let is_empty = target.slots() == 0 && target.depth() <= segment.depth();
        let is_like = || Ok::<_, Error>(Segment::list(&[target])? == Segment::list(&[segment])?);
        Ok(is_empty || target.depth() == segment.depth() && is_like()?)
    }

    /// Replaces an empty segment by `segment`, or adds its entries to a set. Returns true if that added entries.
    fn add_segment(&mut self, decoded: Decoded, admit: Admit<'_>) -> Result<bool, DecodeError> {
        let Decoded { path, segment, coverage } = decoded;
        let target = self.segment(path);
        if target.slots() == 0 && target.depth() == segment.depth() {
            let is_new = segment.slots() > 0;
            self.replace_by(path, segment, coverage);
            return Ok(is_new);
        }
        if self.payload != Payload::Nothing {
            // `add_part` has checked that both have the same entries.
            return Ok(false);
        }
        Ok(self.add_entries_of(path, &segment, 1, admit)?)
    }

    /// Replaces the segment of a path by one of the same depth.
    pub(super) fn replace(&mut self, path: Path, segment: Segment) {
        let coverage = self.coverage_of_segment(&segment);
        self.replace_by(path, segment, coverage);
    }

    /// Does what [`replace`](Self::replace) does, given the coverage of the segment.
    fn replace_by(&mut self, path: Path, segment: Segment, coverage: u128) {
        let before = self.segment(path);
        debug_assert_eq!(before.depth(), segment.depth());
        debug_assert_eq!(self.coverage_of_segment(&segment), coverage);
        let before = Sums::of(&[before], self.coverage_of_segment(before));
        self.update_sums(before, Sums::of(&[&segment], coverage));
        *self.segment_mut(path) = segment;
    }

    /// Returns the sum of the fractions of all paths that the entries of a segment match.
    pub(super) fn coverage_of_segment(&self, segment: &Segment) -> u128 {
        let mut weight: u128 = 0;
        segment.for_each_value(|value| weight = weight.saturating_add(self.addressing.weight(value).into()));
        self.addressing.coverage_of_weight(segment, weight)
    }

    /// Announces the number of segments that a header states, for whose memory the caller has asked. They may have as
    /// much of a directory as that number needs.
    pub fn announce_segments(&mut self, segments: u64) {
        self.announced_segments = segments;
    }

    /// Sets the counts of items and occurrences of a decoded table.
    pub fn set_counts(&mut self, count: ItemCount, occurrences: u64) {
        self.count = count;
        self.occurrences = occurrences;
    }
}
