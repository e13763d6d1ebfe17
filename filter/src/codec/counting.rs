//! Counting filters as bytes: a [header] with a record, and [chunks](chunk) of the table's segments.
//!
//! ```text
//!  record
//!  0   capacity, items, occurrences, history, slots, segments (u64 each); the highest bit of the items tells that they are
//!      an estimate
//!  48  level, width (u8 each; 0, 0 for a filter that grows), lengths of fingerprints (two bytes; 0, 0 for one that does not),
//!      bits of stamps (u8: 0, until items expire), three zero bytes
//!  56  scale (u64)
//! ```
//!
//! A filter without items has no chunks. What the table needs to find its items is stored, never computed again.
//!
//! An item that was removed or moved between two chunks would be half there. So the tags of chunks are seeded with the
//! filter's counts and a sum of hashes of all that was ever written to it. They are accepted only while neither the
//! source nor the copy has been written to since the header was made.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::chunk::{self, FIRST_CHUNK_CURSOR, SealedChunk, TABLE_CHUNK_BYTES};
use super::header::{self, Content, Preamble};
use super::{DumpChunk, HEADER_CURSOR, LoadedChunk, Sink, Source};
use crate::counting::CountingFilter;
use crate::error::{DecodeError, Error};
use crate::layer::{ItemCount, MAX_ITEMS};
use crate::spec::{Growth, OwnSpec};
use crate::table::{Addressing, END, Lengths, Multiplicity, Space, Table, end_of};

const RECORD_BYTES: usize = 64;

/// See [`encode_header`](super::encode_header).
pub fn encode_header(filter: &CountingFilter) -> Result<Vec<u8>, Error> {
    let table = filter.table();
    header::encode(Content::Table, filter.spec(), 1, RECORD_BYTES, |header| {
        let items = filter.item_count().bits();
        // An empty table has no chunks, from which its division could be restored.
        let segments = if table.slots() > 0 { table.segments() } else { 1 };
        for number in [filter.reserved(), items, table.occurrences(), filter.history(), table.slots(), segments] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        let (shape, scale) = match table.addressing() {
            Addressing::Growing(lengths) => {
                let [shortest, longer_below] = lengths.to_bytes();
                ([0, 0, shortest, longer_below], 0)
            }
            Addressing::Fixed(Space { level, width, scale }) => ([level, width, 0, 0], scale),
        };
        header.extend_from_slice(&shape);
        header.extend_from_slice(&[0; 4]);
        header.extend_from_slice(&scale.to_le_bytes());
    })
}

/// A valid header. Its filter has no items yet.
#[derive(Debug)]
pub struct Header {
    spec: OwnSpec,
    capacity: u64,
    items: ItemCount,
    occurrences: u64,
    history: u64,
    slots: u64,
    segments: u64,
    addressing: Addressing,
}

impl Header {
    /// Decodes the record.
    pub fn decode(preamble: Preamble<'_>) -> Result<Header, DecodeError> {
        let Preamble { spec, records, mut fields, .. } = preamble;
        let [capacity, items, occurrences] = [fields.u64()?, fields.u64()?, fields.u64()?];
        let [history, slots, segments] = [fields.u64()?, fields.u64()?, fields.u64()?];
        let ([level, width], lengths) = (*fields.array()?, *fields.array()?);
        fields.zeros(4)?;
        let scale = fields.u64()?;
        let items = ItemCount::from_bits(items);
        let addressing = match spec.growth {
            Growth::By(_) => {
                let lengths = Lengths::from_bytes(lengths).filter(|_| (level, width, scale) == (0, 0, 0));
                Addressing::Growing(lengths.ok_or(DecodeError::Corrupt)?)
            }
            Growth::Fixed => Addressing::Fixed(Space { level, width, scale }),
        };
        let is_sound = match addressing {
            Addressing::Growing(_) => true,
            Addressing::Fixed(space) => space.is_sound() && lengths == [0, 0],
        };
        let sound = is_sound
            && (records, fields.0.len()) == (1, 0)
            && (1..=i64::MAX as u64).contains(&capacity)
            && items.items() <= MAX_ITEMS
            && items.items() <= occurrences
            && (occurrences > 0 || slots == 0)
            && segments > 0;
        sound
            .then_some(Header { spec, capacity, items, occurrences, history, slots, segments, addressing })
            .ok_or(DecodeError::Corrupt)
    }

    /// Returns about how many bytes the table takes.
    pub fn memory(&self) -> u64 {
        Table::bytes_for(self.addressing, self.segments, self.slots)
    }

    /// Returns the filter without its entries. Its counts are those of the whole filter.
    pub fn build(&self) -> Result<CountingFilter, DecodeError> {
        let table = Table::new(self.addressing, Multiplicity::Multiset)?;
        let mut filter = CountingFilter::from_parts(self.spec, self.capacity, table);
        filter.set_counts(self.items, self.occurrences, self.history);
        Ok(filter)
    }

    /// Returns the filter with its entries. `next` returns the content of each chunk, in order, and its checksum.
    pub fn build_filled<B: AsRef<[u8]>>(
        &self,
        mut next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<CountingFilter, DecodeError> {
        let mut filter = self.build()?;
        let (tag, mut position) = (tag(&filter), 0);
        while self.slots > 0 && position < END {
            let (content, checksum) = next()?;
            let content = content.as_ref();
            let end = end_of(content).filter(|&end| end > position).ok_or(DecodeError::Corrupt)?;
            if chunk::checksum(content, end, tag) != checksum {
                return Err(DecodeError::Corrupt);
            }
            filter.table_mut().decode(content)?;
            position = end;
        }
        if self.matches_slots(&filter) { Ok(filter) } else { Err(DecodeError::Corrupt) }
    }

    /// Returns true if `filter`, with all its chunks loaded, has as many slots filled as the one that was encoded.
    pub fn matches_slots(&self, filter: &CountingFilter) -> bool {
        filter.table().slots() == self.slots
    }
}

/// See [`write_rdb`](super::write_rdb).
pub fn write_rdb(filter: &CountingFilter, sink: &mut impl Sink) -> Result<(), Error> {
    sink.string(&encode_header(filter)?);
    let tag = tag(filter);
    each_part(filter, |part, end| {
        sink.string(part);
        sink.unsigned(chunk::checksum(part, end, tag));
    })
}

/// Hands the content of each chunk to `emit`, with where it ends.
pub fn each_part(filter: &CountingFilter, mut emit: impl FnMut(&[u8], u64)) -> Result<(), Error> {
    let mut position = 0;
    while let Some(part) = filter.table().encode(position, TABLE_CHUNK_BYTES)? {
        position = end_of(&part).unwrap_or(END);
        emit(&part, position);
    }
    Ok(())
}

/// Reads the chunks of a filter from RDB values.
pub fn read_chunks(header: &Header, source: &mut impl Source) -> Result<CountingFilter, DecodeError> {
    header.build_filled(|| Ok((source.string()?, source.unsigned()?)))
}

/// Returns the tag of a filter's chunks.
fn tag(filter: &CountingFilter) -> u64 {
    let table = filter.table();
    let numbers = [filter.reserved(), filter.item_count().bits(), table.occurrences(), filter.history()];
    xxh3_64_with_seed(numbers.map(u64::to_le_bytes).as_flattened(), filter.spec().seed)
}

/// See [`next_chunk`](super::next_chunk).
pub fn next_chunk(filter: &CountingFilter, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    let position = match cursor {
        HEADER_CURSOR => 0,
        FIRST_CHUNK_CURSOR.. => cursor - FIRST_CHUNK_CURSOR,
        _ => return Ok(None),
    };
    let Some(part) = filter.table().encode(position, TABLE_CHUNK_BYTES)? else { return Ok(None) };
    let end = end_of(&part).unwrap_or(END);
    let data = chunk::seal(&part, end, tag(filter))?;
    Ok(Some(DumpChunk { cursor: FIRST_CHUNK_CURSOR + end, data: Cow::Owned(data) }))
}

/// See [`load_chunk`](super::load_chunk).
pub fn load_chunk<'a>(
    filter: &mut CountingFilter,
    cursor: u64,
    data: &'a [u8],
) -> Result<LoadedChunk<'a>, DecodeError> {
    let sealed = SealedChunk::decode(cursor, data)?;
    if sealed.end > END {
        return Err(DecodeError::NoSuchOffset);
    }
    sealed.check_tag(tag(filter))?;
    if end_of(sealed.content) != Some(sealed.end) {
        return Err(DecodeError::Corrupt);
    }
    if filter.table().occurrences() == 0 {
        return Err(DecodeError::Foreign);
    }
    let changed = filter.table_mut().decode(sealed.content)?;
    Ok(LoadedChunk { bytes: data, changed })
}
