//! Encodes a table: its record in a [header](super::header), and the [chunks](super::chunk) of its segments. The
//! content of a chunk is a [part](Table::encode_part) of the table.
//!
//! ```text
//!  record
//!  0   items, occurrences, slots, segments (u64 each); the top bit of the items marks them as an estimate
//!  32  level, width (u8 each; 0, 0 for a table that grows),
//!      the length of the shortest fingerprints, and the level below which they are one bit longer, plus 128 if the table
//!      never shrinks, which then has other lengths at each level (u8 each; 0, 0 for a table that does not grow),
//!      bits of a stamp (u8; 0 in a table that does not forget), three zero bytes
//!  40  scale (u64)
//! ```
//!
//! In a table that forgets, the counts of items and occurrences are 0. A table without filled slots has no chunks. All
//! parameters that are needed to find items are stored, and never computed again.

use std::borrow::Cow;

use super::chunk::TABLE_CHUNK_BYTES;
use super::section::{Part, Section};
use crate::array::try_box;
use crate::codec::fields::Fields;
use crate::error::{DecodeError, Error, ensure};
use crate::item_count::{ItemCount, MAX_ITEMS};
use crate::memory::Admit;
use crate::spec::Growth;
use crate::table::{AddressSpace, Addressing, END, FingerprintLengths, Payload, Position, Table, end_of};

pub(crate) const RECORD_BYTES: usize = 48;

/// A valid record.
#[derive(Debug)]
pub(crate) struct Record {
    items: ItemCount,
    occurrences: u64,
    slots: u64,
    segments: u64,
    addressing: Addressing,
    payload: Payload,
}

impl Record {
    /// Decodes the record of a filter's table.
    pub(crate) fn decode(fields: &mut Fields<'_>, growth: Growth, payload: Payload) -> Result<Record, DecodeError> {
        let [items, occurrences, slots, segments] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let [level, width] = *fields.array()?;
        let lengths = *fields.array()?;
        let stamp_bits = u32::from(fields.u8()?);
        fields.zeros(3)?;
        let scale = fields.u64()?;
        let items = ItemCount::from_stored(items);
        let space = AddressSpace { level, width, scale };
        let (addressing, is_sound) = match growth {
            Growth::By(_) => {
                let lengths = FingerprintLengths::from_bytes(lengths).ok_or(DecodeError::Corrupt)?;
                (Addressing::Growing(lengths), (level, width, scale) == (0, 0, 0))
            }
            Growth::Fixed => (Addressing::Fixed(space), space.is_sound(stamp_bits) && lengths == [0, 0]),
        };
        let has_sound_counts = match payload {
            Payload::Nothing | Payload::Count => {
                items.items() <= MAX_ITEMS && items.items() <= occurrences && (occurrences > 0 || slots == 0)
            }
            Payload::Slice(_) => (items, occurrences) == (ItemCount::default(), 0),
        };
        let sound = is_sound && has_sound_counts && stamp_bits == payload.stamp_bits() && segments > 0;
        let record = Record { items, occurrences, slots, segments, addressing, payload };
        sound.then_some(record).ok_or(DecodeError::Corrupt)
    }

    /// Returns the approximate number of bytes that the table takes.
    pub(crate) fn memory(&self) -> u64 {
        Table::bytes_for(self.addressing, self.payload, self.segments, self.slots)
    }

    /// Returns the table without its entries. Its counts are those of the complete table.
    pub(crate) fn build(&self) -> Result<Table, DecodeError> {
        let mut table = Table::new(self.addressing, self.payload)?;
        table.set_counts(self.items, self.occurrences);
        table.announce_segments(self.segments);
        Ok(table)
    }

    /// Returns the same table as [`build`](Self::build), in a box.
    pub(crate) fn build_boxed(&self) -> Result<Box<Table>, DecodeError> {
        Ok(try_box(self.build()?)?)
    }

    pub(crate) fn has_chunks(&self) -> bool {
        self.slots > 0
    }
}

impl Section for Table {
    fn encode_record(&self, header: &mut Vec<u8>) {
        // An empty table has no chunks that could restore its division into segments.
        let segments = if self.slots() > 0 { self.segments() } else { 1 };
        let numbers = [self.item_count().to_stored(), self.occurrences(), self.slots(), segments];
        header.extend_from_slice(numbers.map(u64::to_le_bytes).as_flattened());
        let (shape, scale) = match self.addressing() {
            Addressing::Growing(lengths) => {
                let [shortest, longer_below] = lengths.to_bytes();
                ([0, 0, shortest, longer_below], 0)
            }
            Addressing::Fixed(AddressSpace { level, width, scale }) => ([level, width, 0, 0], scale),
        };
        header.extend_from_slice(&shape);
        header.extend_from_slice(&[self.payload().stamp_bits() as u8, 0, 0, 0]);
        header.extend_from_slice(&scale.to_le_bytes());
    }

    fn end(&self) -> u64 {
        END
    }

    fn part_at(&self, position: Position) -> Result<Option<Part<'_>>, Error> {
        let content = self.encode_part(position, TABLE_CHUNK_BYTES)?;
        Ok(content.map(|content| {
            let end = end_of(&content).unwrap_or(END);
            Part { content: Cow::Owned(content), end }
        }))
    }

    fn content_bytes(&self) -> u64 {
        if self.slots() > 0 { self.max_encoded_bytes() } else { 0 }
    }

    fn end_of(&self, content: &[u8], start: Position) -> Option<Position> {
        end_of(content).filter(|&end| end > start)
    }

    fn load(&mut self, content: &[u8], _end: Position, admit: Admit<'_>) -> Result<(), DecodeError> {
        self.add_part(content, admit).map(drop)
    }

    fn merge(&mut self, content: &[u8], end: Position, admit: Admit<'_>) -> Result<bool, DecodeError> {
        ensure(end_of(content) == Some(end))?;
        // The table was encoded when it was empty, so it has no chunks.
        if self.occurrences() == 0 && !matches!(self.payload(), Payload::Slice(_)) {
            return Err(DecodeError::Foreign);
        }
        self.add_part(content, admit)
    }
}
