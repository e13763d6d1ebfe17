//! Encodes a table: its record in a [header](super::header), and the [chunks](super::chunk) of its segments. The
//! content of a chunk is a [part](Table::encode_part) of the table.
//!
//! ```text
//!  record
//!  0   items, occurrences, slots, segments (u64 each); the top bit of the items marks them as an estimate
//!  32  level, width (u8 each; 0, 0 for a table that grows),
//!      the length of the shortest fingerprints, and the level below which they are one bit longer (u8 each; 0, 0 for a
//!      table that does not grow),
//!      bits of a stamp (u8; 0 in a table that does not forget), three zero bytes
//!  40  scale (u64)
//! ```
//!
//! In a table that forgets, the counts of items and occurrences are 0. A table without filled slots has no chunks. All
//! parameters that are needed to find items are stored, and never computed again.

use super::chunk::{self, TABLE_CHUNK_BYTES};
use super::fields::Fields;
use crate::error::{DecodeError, Error};
use crate::item_count::{ItemCount, MAX_ITEMS};
use crate::spec::Growth;
use crate::table::{AddressSpace, Addressing, END, FingerprintLengths, Payload, Position, Table, end_of};

/// The size of a record.
pub const RECORD_BYTES: usize = 48;

/// Appends the record of a table.
pub fn encode_record(table: &Table, header: &mut Vec<u8>) {
    // An empty table has no chunks that could restore its division into segments.
    let segments = if table.slots() > 0 { table.segments() } else { 1 };
    for number in [table.item_count().to_stored(), table.occurrences(), table.slots(), segments] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    let (shape, scale) = match table.addressing() {
        Addressing::Growing(lengths) => {
            let [shortest, longer_below] = lengths.to_bytes();
            ([0, 0, shortest, longer_below], 0)
        }
        Addressing::Fixed(AddressSpace { level, width, scale }) => ([level, width, 0, 0], scale),
    };
    header.extend_from_slice(&shape);
    header.extend_from_slice(&[table.payload().stamp_bits() as u8, 0, 0, 0]);
    header.extend_from_slice(&scale.to_le_bytes());
}

/// A valid record.
#[derive(Debug)]
pub struct Record {
    items: ItemCount,
    occurrences: u64,
    slots: u64,
    segments: u64,
    addressing: Addressing,
    payload: Payload,
}

impl Record {
    /// Decodes the record of a filter's table.
    pub fn decode(fields: &mut Fields<'_>, growth: Growth, payload: Payload) -> Result<Record, DecodeError> {
        let [items, occurrences, slots, segments] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let ([level, width], lengths) = (*fields.array()?, *fields.array()?);
        let stamp_bits = u32::from(fields.u8()?);
        fields.zeros(3)?;
        let scale = fields.u64()?;
        let items = ItemCount::from_stored(items);
        let addressing = match growth {
            Growth::By(_) => {
                let lengths = FingerprintLengths::from_bytes(lengths).filter(|_| (level, width, scale) == (0, 0, 0));
                Addressing::Growing(lengths.ok_or(DecodeError::Corrupt)?)
            }
            Growth::Fixed => Addressing::Fixed(AddressSpace { level, width, scale }),
        };
        let is_sound = match addressing {
            Addressing::Growing(_) => true,
            Addressing::Fixed(space) => space.is_sound(stamp_bits) && lengths == [0, 0],
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
    pub fn memory(&self) -> u64 {
        Table::bytes_for(self.addressing, self.payload, self.segments, self.slots)
    }

    /// Returns the table without its entries. Its counts are those of the complete table.
    pub fn build(&self) -> Result<Table, DecodeError> {
        let mut table = Table::new(self.addressing, self.payload)?;
        table.set_counts(self.items, self.occurrences);
        Ok(table)
    }

    /// Fills a table with its entries. `next` returns the content of each chunk, in order, and its checksum, which
    /// depends on `tag`.
    pub fn fill<B: AsRef<[u8]>>(
        &self,
        table: &mut Table,
        tag: u64,
        mut next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut position = 0;
        while self.slots > 0 && position < END {
            let (content, checksum) = next()?;
            let content = content.as_ref();
            let end = end_of(content).filter(|&end| end > position).ok_or(DecodeError::Corrupt)?;
            if chunk::checksum(content, end, tag) != checksum {
                return Err(DecodeError::Corrupt);
            }
            table.add_part(content)?;
            position = end;
        }
        if self.matches_slots(table) { Ok(()) } else { Err(DecodeError::Corrupt) }
    }

    /// Returns true if `table`, with all its chunks loaded, has as many filled slots as the table that was encoded.
    pub fn matches_slots(&self, table: &Table) -> bool {
        table.slots() == self.slots
    }
}

/// Returns the content of the chunk that starts at `position`, and the position of its end, or `None` after the last
/// chunk.
pub fn next_part(table: &Table, position: Position) -> Result<Option<(Vec<u8>, Position)>, Error> {
    let part = table.encode_part(position, TABLE_CHUNK_BYTES)?;
    Ok(part.map(|part| {
        let end = end_of(&part).unwrap_or(END);
        (part, end)
    }))
}

/// Calls `emit` with the content of each chunk and the position of its end.
pub fn each_part(table: &Table, mut emit: impl FnMut(&[u8], Position)) -> Result<(), Error> {
    let mut position = 0;
    while let Some((part, end)) = next_part(table, position)? {
        position = end;
        emit(&part, end);
    }
    Ok(())
}

/// Adds the entries of a chunk that ends at `end`. Returns true if the table changed.
///
/// # Errors
///
/// [`DecodeError::Foreign`] if the table was encoded when it was empty, and otherwise as for [`Table::add_part`].
pub fn load_part(table: &mut Table, content: &[u8], end: Position) -> Result<bool, DecodeError> {
    if end_of(content) != Some(end) {
        return Err(DecodeError::Corrupt);
    }
    if table.occurrences() == 0 && !matches!(table.payload(), Payload::Slice(_)) {
        return Err(DecodeError::Foreign);
    }
    table.add_part(content)
}
