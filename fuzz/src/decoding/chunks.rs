//! Loads chunks into a filter, between additions and removals.

use models::counting::CountingModel;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::chunk::{self, FIRST_CHUNK_CURSOR};
use oxbloom_filter::internals::codec::{self, LoadedChunk, Origin};
use oxbloom_filter::internals::{Kind, OnDuplicate};

use crate::decoding::copies::{emptied, through_a_dump, through_a_file, whole};
use crate::decoding::figures::{check_figures, check_same, count, counts_are_right};
use crate::decoding::kinds::{SAME_KIND, filter_of_kind, items_of_kind};
use crate::decoding::parts::{bits, content, sealed_part, table, table_start, tag};
use crate::decoding::uses::{insert, remove, use_in_every_way};
use crate::input::{Reader, item};
use crate::part::{self, END, Shape};

/// Runs operations on a filter. The first two bytes choose the filter and its number of items.
pub fn chunks(bytes: &[u8]) {
    let mut rest = Reader(bytes);
    if let Some(mut subject) = Subject::new(&mut rest) {
        while subject.step(&mut rest).is_some() {}
        subject.check_held();
        check_figures(&subject.filter);
        subject.check_emptied();
    }
}

/// A filter into which chunks are loaded.
struct Subject {
    kind: u8,
    filter: Filter,
    /// The items that must be in the filter.
    model: CountingModel<u64>,
    /// A chunk of a counting filter from before its first write.
    outdated: Option<(u64, Vec<u8>)>,
    /// True if a chunk has changed the filter.
    is_loaded: bool,
}

impl Subject {
    fn of(kind: u8, filter: Filter, model: CountingModel<u64>) -> Subject {
        Subject { kind, filter, model, outdated: None, is_loaded: false }
    }

    fn new(rest: &mut Reader<'_>) -> Option<Subject> {
        let (kind, items) = (rest.u8()?, rest.u8()?);
        let mut subject = Subject::of(kind, filter_of_kind(kind), CountingModel::default());
        (0..items_of_kind(kind, items)).all(|number| subject.insert(number));
        Some(subject)
    }

    /// Runs an operation. Returns `None` at the end of the bytes.
    fn step(&mut self, rest: &mut Reader<'_>) -> Option<()> {
        let operation = rest.u8()?;
        let origin = if operation & 0x80 == 0 { Origin::Client } else { Origin::Replication };
        let reference = (operation >> 4) & 7;
        let (counts, is_table) = (self.filter.counts(), table(&self.filter).is_some());
        match operation & 0xF {
            code @ 0..4 if counts => {
                let (times, number) = ((1 + u64::from(operation >> 4)).pow(2), rest.u16()?.into());
                self.write(|subject| match code {
                    0 => drop((0..times).all(|_| subject.insert(number))),
                    1 => subject.insert_absent(number),
                    2 => (0..times).for_each(|_| subject.remove(number as usize)),
                    _ => subject.check_count(number),
                });
            }
            0..4 => drop(self.insert(rest.u16()?.into())),
            4..6 => check_same(&self.filter, &through_a_dump(&self.filter)),
            6..9 => {
                let cursor = self.cursor(reference, rest)?;
                self.ask(cursor);
            }
            9..12 => {
                let (cursor, length) = (self.cursor(reference, rest)?, rest.u16()?);
                let data = rest.take(rest.0.len().min(length.into()))?;
                self.load(cursor, data, origin);
            }
            12 if counts && is_table => self.load_edited(rest, reference, origin)?,
            13 if counts && is_table => self.load_composed(rest, reference, origin)?,
            14 if counts && !is_table => self.filter.compact(),
            14 if !counts && is_table => match reference & 4 {
                0 => self.load_edited(rest, reference, origin)?,
                _ => self.load_composed(rest, reference, origin)?,
            },
            12..14 => {
                let (offset, length) = (u64::from(rest.u8()?), u16::from(rest.u8()?));
                let unit = if codec::tags(&self.filter).is_none() { 8 } else { 64 };
                let data = rest.take(rest.0.len().min((length * unit / 8).into()))?;
                self.load_sealed(offset * u64::from(unit), data, origin);
            }
            _ => {
                let (kind, items) = (rest.u8()?, rest.u8()?);
                let kind = if kind == SAME_KIND { self.kind } else { kind };
                self.load_another(&filter_of_kind(kind), items_of_kind(kind, items), origin);
            }
        }
        Some(())
    }

    /// Returns any number, or one near the cursor of a chunk.
    fn cursor(&self, reference: u8, rest: &mut Reader<'_>) -> Option<u64> {
        // Positions in a table are much further apart than offsets of bytes.
        let (bits, is_table) = (bits(&self.filter).len() as u64, table(&self.filter).is_some());
        let (start, unit) = if is_table { (bits, 1 << 32) } else { (0, 1) };
        let end = if is_table { start + END } else { bits };
        let near = |place: u64, rest: &mut Reader<'_>| {
            rest.u8().map(|distance| place.wrapping_add_signed(i64::from(distance.cast_signed())))
        };
        match reference & 3 {
            0 => rest.u64(),
            1 => rest.u16().map(u64::from),
            2 => rest.u16().map(|offset| FIRST_CHUNK_CURSOR + start + u64::from(offset) * unit),
            _ if reference & 4 == 0 && is_table => near(FIRST_CHUNK_CURSOR + start, rest),
            _ if reference & 4 == 0 => near(1 + end, rest),
            _ => near(FIRST_CHUNK_CURSOR + end, rest),
        }
    }

    /// Inserts an item. Returns true if it fits.
    fn insert(&mut self, number: u64) -> bool {
        let inserted = insert(&mut self.filter, OnDuplicate::Count, number..number + 1) == 1;
        if inserted {
            self.model.add(number);
            assert!(self.filter.contains(item(number)));
        }
        inserted
    }

    /// Writes to a filter that counts. A copy with the same writes must be the same filter. A table must reject chunks
    /// from before the write.
    fn write(&mut self, write: impl Fn(&mut Subject)) {
        let before = whole(&self.filter);
        let mut copy = Subject::of(self.kind, through_a_file(&self.filter), self.model.clone());
        write(self);
        write(&mut copy);
        let after = whole(&self.filter);
        assert!(whole(&copy.filter) == after && copy.model == self.model);
        if after != before && self.outdated.is_none() && table(&self.filter).is_some() {
            self.outdated = before.into_iter().nth(1);
        }
        if let Some((cursor, data)) = &self.outdated {
            assert!(codec::load_chunk(&mut self.filter, *cursor, data, Origin::Replication, &mut |_| true).is_err());
            assert!(whole(&self.filter) == after);
        }
    }

    /// Inserts an item, unless it is present.
    fn insert_absent(&mut self, number: u64) {
        let (before, is_there) = (whole(&self.filter), self.filter.contains(item(number)));
        let inserted = insert(&mut self.filter, OnDuplicate::Skip, number..number + 1) == 1;
        assert!(!is_there || (inserted && whole(&self.filter) == before));
        if inserted && !is_there {
            assert!(!self.model.contains(&number));
            self.model.add(number);
            assert!(self.filter.contains(item(number)));
        }
    }

    /// Removes one occurrence of a present item. Absent items must not be removed.
    fn remove(&mut self, index: usize) {
        let count = self.model.items().len().max(1);
        let Some(number) = self.model.items().nth(index % count).copied() else { return };
        remove(&mut self.filter, number..number + 1);
        self.model.remove(&number);
    }

    fn check_count(&self, number: u64) {
        assert!((count(&self.filter, number) > 0) == self.filter.contains(item(number)));
        self.check_held();
    }

    /// Panics if an item is missing, or if its count is too low.
    fn check_held(&self) {
        assert!(self.model.items().all(|&number| self.filter.contains(item(number))));
        if self.filter.counts() {
            assert!(self.model.items().all(|number| count(&self.filter, *number) >= self.model.count(number)));
        }
    }

    /// Removes all items from a filter that counts, and checks that it is empty unless chunks were loaded.
    fn check_emptied(&mut self) {
        if self.filter.counts() {
            self.model.occurrences().for_each(|&number| remove(&mut self.filter, number..number + 1));
            let empty = self.filter.empty_like(&mut |_bytes| true).expect("little memory");
            let figures = |filter: &Filter| (filter.len(), filter.capacity(), filter.fill(), filter.memory_usage());
            if !self.is_loaded {
                assert_eq!(figures(&self.filter), figures(&empty));
            }
            check_figures(&self.filter);
        }
    }

    /// Requests a chunk, and checks that it loads into an empty copy of the filter.
    fn ask(&self, cursor: u64) {
        let chunk = codec::next_chunk(&self.filter, cursor).expect("little memory");
        let Some(chunk) = chunk.filter(|chunk| chunk.cursor != codec::HEADER_CURSOR) else { return };
        let mut copy = emptied(&self.filter);
        let loaded = codec::load_chunk(&mut copy, chunk.cursor, &chunk.data, Origin::Replication, &mut |_| true);
        assert_eq!(loaded.map(|loaded| loaded.bytes), Ok(&*chunk.data));
        assert!(counts_are_right(&copy));
        assert!(bits(&copy).iter().zip(bits(&self.filter)).all(|(&copied, bits)| copied == 0 || copied == bits));
        if table(&self.filter).is_some() && self.filter.counts() {
            assert!(has_part(&copy, content(&chunk.data)));
        }
    }

    fn load(&mut self, cursor: u64, data: &[u8], origin: Origin) {
        let before = (whole(&self.filter), bits(&self.filter));
        let is_of_bits = table(&self.filter).is_none() || !self.filter.counts();
        let replaces = codec::tags(&self.filter).is_none() && origin == Origin::Replication;
        match codec::load_chunk(&mut self.filter, cursor, data, origin, &mut |_| true) {
            Ok(LoadedChunk { bytes, changed }) => {
                assert!(bytes.len() == data.len());
                assert!(bytes.iter().zip(data).all(|(&loaded, &data)| loaded & data == data));
                assert!(bytes == data || !replaces && is_of_bits);
                assert_eq!(changed, whole(&self.filter) != before.0);
                self.is_loaded |= changed;
                if replaces && changed && self.filter.counts() {
                    self.model = CountingModel::uncertain();
                } else if replaces {
                    self.model.retain(|&number| self.filter.contains(item(number)));
                }
                let before = before.1.iter().zip(bits(&self.filter));
                assert!(replaces || before.into_iter().all(|(&before, after)| before & after == before));
                if !is_of_bits {
                    assert!(has_part(&self.filter, content(data)));
                    check_figures(&self.filter);
                }
                self.check_held();
                // Loading it again changes nothing.
                let again = codec::load_chunk(&mut self.filter, cursor, data, origin, &mut |_| true)
                    .map(|loaded| loaded.changed);
                assert_eq!(again, Ok(false));
            }
            Err(_) => assert!(whole(&self.filter) == before.0),
        }
        assert!(counts_are_right(&self.filter));
    }

    /// Loads bits at an offset, as a chunk with the right cursor and checksum.
    fn load_sealed(&mut self, offset: u64, bits: &[u8], origin: Origin) {
        let end = offset + bits.len() as u64;
        let (cursor, chunk) = match (self.filter.kind(), codec::tags(&self.filter)) {
            (Kind::Native, Some([tag, _])) => {
                (FIRST_CHUNK_CURSOR + end, chunk::seal(bits, end, tag).expect("little memory"))
            }
            (_, Some(_)) => return,
            (_, None) => (1 + end, bits.to_vec()),
        };
        self.load(cursor, &chunk, origin);
    }

    /// Loads a chunk of this filter with some bytes of its table changed.
    fn load_edited(&mut self, rest: &mut Reader<'_>, reference: u8, origin: Origin) -> Option<()> {
        let chunk = codec::next_chunk(&self.filter, table_start(&self.filter)).expect("little memory");
        let mut part = chunk.map_or_else(Vec::new, |chunk| content(&chunk.data).to_vec());
        for _ in 0..rest.u8()? & 7 {
            part::edit(&mut part, rest.u8()?, rest.u16()?.into(), rest.u8()?);
        }
        self.load_tagged(&part, reference, origin);
        Some(())
    }

    /// Loads a part of a table with arbitrary entries.
    fn load_composed(&mut self, rest: &mut Reader<'_>, reference: u8, origin: Origin) -> Option<()> {
        let part = part::composed(rest, &Shape::of(&self.filter))?;
        self.load_tagged(&part, reference, origin);
        Some(())
    }

    /// Loads a part of a table with the right tag and checksum, into this filter or into an empty one that replaces it.
    fn load_tagged(&mut self, part: &[u8], reference: u8, origin: Origin) {
        let (cursor, chunk) = sealed_part(&self.filter, part, tag(&self.filter));
        if reference & 1 == 1 {
            // The new filter has no entries, so no item is certain to be present.
            let empty = Subject::of(self.kind, emptied(&self.filter), CountingModel::default());
            *self = Subject { is_loaded: true, ..empty };
        }
        self.load(cursor, &chunk, origin);
        if reference & 2 == 2 {
            let mut copy = self.filter.try_clone().expect("a copy");
            use_in_every_way(&mut copy);
        }
    }

    /// Loads the chunks of another filter with other items.
    fn load_another(&mut self, other: &Filter, items: u64, origin: Origin) {
        let mut other = other.try_clone().expect("little memory");
        insert(&mut other, OnDuplicate::Count, 1000..1000 + items);
        let mut cursor = codec::HEADER_CURSOR;
        while let Some(chunk) = codec::next_chunk(&other, cursor).expect("little memory") {
            cursor = chunk.cursor;
            self.load(cursor, &chunk.data, origin);
        }
    }
}

/// Returns true if a table has the segments of a part at the part's position, or has no entries at all.
fn has_part(filter: &Filter, part: &[u8]) -> bool {
    let (start, segments) = part.split_at(8);
    let start = u64::from_le_bytes(*start.first_chunk().expect("a place"));
    let chunk = codec::next_chunk(filter, FIRST_CHUNK_CURSOR + start).expect("little memory");
    chunk.is_none_or(|chunk| content(&chunk.data)[16..].starts_with(&segments[8..]))
}
