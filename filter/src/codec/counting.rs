//! Encodes counting filters as bytes: a [header] with a record, and [chunks](chunk) of the [table].
//!
//! ```text
//!  record
//!  0   capacity, history (u64 each)
//!  16  the table's record
//! ```
//!
//! If an item were removed or moved between two chunks, the copy would be inconsistent. So the tags of chunks depend on
//! the filter's counts and on its history, a sum of hashes of all writes. Chunks are accepted only while neither the
//! source nor the copy has been written to since the header was encoded.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::chunk::{self, FIRST_CHUNK_CURSOR, SealedChunk};
use super::header::{self, EncodedKind, Preamble};
use super::table::{self, each_part, next_part};
use super::{DumpChunk, HEADER_CURSOR, LoadedChunk, Sink, Source};
use crate::counting::CountingFilter;
use crate::error::{DecodeError, Error};
use crate::spec::OwnSpec;
use crate::table::{END, Payload};

const RECORD_BYTES: usize = 16 + table::RECORD_BYTES;

/// See [`encode_header`](super::encode_header).
pub fn encode_header(filter: &CountingFilter) -> Result<Vec<u8>, Error> {
    header::encode(EncodedKind::Counting, filter.spec(), 1, RECORD_BYTES, |header| {
        for number in [filter.initial_capacity(), filter.history()] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        table::encode_record(filter.table(), header);
    })
}

/// A valid header. Its filter has no items yet.
#[derive(Debug)]
pub struct CountingHeader {
    spec: OwnSpec,
    capacity: u64,
    history: u64,
    table: table::Record,
}

impl CountingHeader {
    /// Decodes the record.
    pub fn decode(preamble: Preamble<'_>) -> Result<CountingHeader, DecodeError> {
        let Preamble { spec, records, mut fields, .. } = preamble;
        let [capacity, history] = [fields.u64()?, fields.u64()?];
        let table = table::Record::decode(&mut fields, spec.growth, Payload::Count)?;
        let sound = (records, fields.0.len()) == (1, 0) && (1..=i64::MAX as u64).contains(&capacity);
        sound.then_some(CountingHeader { spec, capacity, history, table }).ok_or(DecodeError::Corrupt)
    }

    /// Returns the approximate number of bytes that the table takes.
    pub fn memory(&self) -> u64 {
        self.table.memory()
    }

    /// Returns the filter without its entries. Its counts are those of the complete filter.
    pub fn build(&self) -> Result<CountingFilter, DecodeError> {
        let table = self.table.build()?;
        let mut filter = CountingFilter::from_parts(self.spec, self.capacity, table);
        filter.set_history(self.history);
        Ok(filter)
    }

    /// Returns the filter with its entries. `next` returns the content of each chunk, in order, and its checksum.
    pub fn build_filled<B: AsRef<[u8]>>(
        &self,
        next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<CountingFilter, DecodeError> {
        let mut filter = self.build()?;
        let tag = tag(&filter);
        self.table.fill(filter.table_mut(), tag, next)?;
        Ok(filter)
    }

    /// Returns true if `filter`, with all its chunks loaded, has as many slots filled as the one that was encoded.
    pub fn matches_slots(&self, filter: &CountingFilter) -> bool {
        self.table.matches_slots(filter.table())
    }
}

/// See [`write_rdb`](super::write_rdb).
pub fn write_rdb(filter: &CountingFilter, sink: &mut impl Sink) -> Result<(), Error> {
    sink.string(&encode_header(filter)?);
    let tag = tag(filter);
    each_part(filter.table(), |part, end| {
        sink.string(part);
        sink.unsigned(chunk::checksum(part, end, tag));
    })
}

/// Reads the chunks of a filter from RDB values.
pub fn read_chunks(header: &CountingHeader, source: &mut impl Source) -> Result<CountingFilter, DecodeError> {
    header.build_filled(|| Ok((source.string()?, source.unsigned()?)))
}

/// Returns the tag of a filter's chunks.
pub fn tag(filter: &CountingFilter) -> u64 {
    let table = filter.table();
    let numbers = [filter.initial_capacity(), table.item_count().to_stored(), table.occurrences(), filter.history()];
    xxh3_64_with_seed(numbers.map(u64::to_le_bytes).as_flattened(), filter.spec().seed)
}

/// See [`next_chunk`](super::next_chunk).
pub fn next_chunk(filter: &CountingFilter, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    let position = match cursor {
        HEADER_CURSOR => 0,
        FIRST_CHUNK_CURSOR.. => cursor - FIRST_CHUNK_CURSOR,
        _ => return Ok(None),
    };
    let Some((part, end)) = next_part(filter.table(), position)? else { return Ok(None) };
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
    let changed = table::load_part(filter.table_mut(), sealed.content, sealed.end)?;
    Ok(LoadedChunk { bytes: data, changed })
}
