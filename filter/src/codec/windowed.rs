//! The encoding of filters that forget: a [header] with a record of the slices and a record of each [table], and
//! [chunks](chunk) of the tables.
//!
//! ```text
//!  record of the slices
//!  0   capacity, window in milliseconds (u64 each; 0: time does not matter)
//!  16  slices of a window (u8), 1 if items are renewed + 2 if it is rolling (u8), number of remembered slices (u8),
//!      five zero bytes
//!  24  last forgotten slice, time of the last change in milliseconds since 1970, history, position in each table
//!      where the next sweep for forgotten slots starts (u64 each)
//!  64  per remembered slice: the time when it is forgotten, items in each table (u64 each)
//! ```
//!
//! As in [counting filters](super::counting), chunks are accepted only if neither the source nor the copy was written
//! to since the header was encoded. Positions of the second table follow those of the first.

use std::borrow::Cow;
use std::num::NonZeroU64;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::chunk::{self, FIRST_CHUNK_CURSOR, SealedChunk};
use super::fields::{Fields, decode_all};
use super::header::{self, EncodedKind, Preamble};
use super::table::{self, each_part, next_part};
use super::{DumpChunk, HEADER_CURSOR, LoadedChunk, Sink, Source};
use crate::array::try_box;
use crate::error::{DecodeError, Error};
use crate::spec::{Growth, OwnSpec};
use crate::table::{END, Payload, Position, Stamps, Table};
use crate::window::{Slice, Slices, Window};
use crate::windowed::WindowedFilter;

const FIXED_BYTES: usize = 64;
const SLICE_BYTES: usize = 24;

const REFRESH: u8 = 1;
const ROLLING: u8 = 2;

/// See [`encode_header`](super::encode_header).
pub fn encode_header(filter: &WindowedFilter) -> Result<Vec<u8>, Error> {
    let (slices, (expected, beyond)) = (filter.slices(), filter.tables());
    let tables = 1 + usize::from(beyond.is_some());
    let bytes = FIXED_BYTES + SLICE_BYTES * slices.remembered().len() + tables * table::RECORD_BYTES;
    header::encode(EncodedKind::Windowed, filter.spec(), tables, bytes, |header| {
        let Window { length, slices: number, refresh, rolling } = slices.window();
        let flags = if refresh { REFRESH } else { 0 } | if rolling { ROLLING } else { 0 };
        let append = |header: &mut Vec<u8>, numbers: &[u64]| {
            numbers.iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        };
        append(header, &[filter.initial_capacity(), length.map_or(0, NonZeroU64::get)]);
        header.extend_from_slice(&[number, flags, slices.remembered().len() as u8, 0, 0, 0, 0, 0]);
        append(header, &[slices.forgotten(), slices.latest(), filter.history()]);
        append(header, &filter.cursors());
        for Slice { until, items } in slices.remembered() {
            append(header, &[*until]);
            append(header, items);
        }
        std::iter::once(expected).chain(beyond).for_each(|table| table::encode_record(table, header));
    })
}

/// A valid header. Its filter has no items yet.
#[derive(Debug)]
pub struct WindowedHeader {
    spec: OwnSpec,
    capacity: u64,
    window: Window,
    /// The last forgotten slice, and the time of the last change.
    state: (u64, u64),
    remembered: Vec<Slice>,
    history: u64,
    cursors: [Position; 2],
    expected: table::Record,
    beyond: Option<table::Record>,
}

impl WindowedHeader {
    /// Decodes the records.
    pub fn decode(preamble: Preamble<'_>) -> Result<WindowedHeader, DecodeError> {
        let Preamble { spec, records, mut fields, .. } = preamble;
        let capacity = Some(fields.u64()?).filter(|capacity| (1..=i64::MAX as u64).contains(capacity));
        let (length, slices, flags, number) = (fields.u64()?, fields.u8()?, fields.u8()?, fields.u8()?);
        fields.zeros(5)?;
        let (refresh, rolling) = (flags & REFRESH != 0, flags & ROLLING != 0);
        let window = Window { length: NonZeroU64::new(length), slices, refresh, rolling }.checked();
        let is_sound = flags <= REFRESH | ROLLING && !(rolling && spec.growth != Growth::Fixed);
        let window = window.filter(|_| is_sound).ok_or(DecodeError::Corrupt)?;
        let capacity = capacity.ok_or(DecodeError::Corrupt)?;
        let (state, history) = ((fields.u64()?, fields.u64()?), fields.u64()?);
        let cursors = [fields.u64()?, fields.u64()?];
        if cursors.iter().any(|&cursor| cursor >= END) {
            return Err(DecodeError::Corrupt);
        }
        let remembered = decode_all(number.into(), || decode_slice(&mut fields))?;
        // Checks that the slices are valid.
        Slices::restored(window, capacity, state, &remembered)?;
        let payload = Payload::Slice(Stamps { forgotten: state.0, span: window.span() });
        let expected = table::Record::decode(&mut fields, Growth::Fixed, payload)?;
        let beyond = match (records, spec.growth) {
            (1, _) => None,
            (2, Growth::By(_)) => Some(table::Record::decode(&mut fields, spec.growth, payload)?),
            _ => return Err(DecodeError::Corrupt),
        };
        if beyond.is_none() && remembered.iter().any(|slice| slice.items[1] > 0) {
            return Err(DecodeError::Corrupt);
        }
        let header = WindowedHeader { spec, capacity, window, state, remembered, history, cursors, expected, beyond };
        if fields.0.is_empty() { Ok(header) } else { Err(DecodeError::Corrupt) }
    }

    /// Returns the approximate size of the tables, in bytes.
    pub fn memory(&self) -> u64 {
        self.expected.memory().saturating_add(self.beyond.as_ref().map_or(0, table::Record::memory))
    }

    /// Returns the filter without its entries. Its counts are those of the whole filter.
    pub fn build(&self) -> Result<WindowedFilter, DecodeError> {
        let slices = Slices::restored(self.window, self.capacity, self.state, &self.remembered)?;
        let beyond = match &self.beyond {
            Some(record) => Some(try_box(record.build()?)?),
            None => None,
        };
        let mut filter = WindowedFilter::from_parts(self.spec, self.capacity, slices, self.expected.build()?, beyond);
        filter.set_state(self.cursors, self.history);
        Ok(filter)
    }

    /// Returns the filter with its entries. `next` returns the content of each chunk, in order, and its checksum.
    pub fn build_filled<B: AsRef<[u8]>>(
        &self,
        mut next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<WindowedFilter, DecodeError> {
        let mut filter = self.build()?;
        let [tag, tag_beyond] = tags(&filter);
        let (expected, beyond) = filter.tables_mut();
        self.expected.fill(expected, tag, &mut next)?;
        if let Some((record, table)) = self.beyond.as_ref().zip(beyond) {
            record.fill(table, tag_beyond, next)?;
        }
        Ok(filter)
    }

    /// Returns true if `filter`, with all its chunks loaded, has as many filled slots as the filter that was encoded.
    pub fn matches_content(&self, filter: &WindowedFilter) -> bool {
        let (expected, beyond) = filter.tables();
        let tables = self.beyond.as_ref().zip(beyond);
        self.expected.matches_slots(expected) && tables.is_none_or(|(record, table)| record.matches_slots(table))
    }
}

fn decode_slice(fields: &mut Fields<'_>) -> Result<Slice, DecodeError> {
    Ok(Slice { until: fields.u64()?, items: [fields.u64()?, fields.u64()?] })
}

/// See [`write_rdb`](super::write_rdb).
pub fn write_rdb(filter: &WindowedFilter, sink: &mut impl Sink) -> Result<(), Error> {
    sink.string(&encode_header(filter)?);
    for (table, tag) in tables(filter).zip(tags(filter)) {
        each_part(table, |part, end| {
            sink.string(part);
            sink.unsigned(chunk::checksum(part, end, tag));
        })?;
    }
    Ok(())
}

/// Reads the chunks of a filter from RDB values.
pub fn read_chunks(header: &WindowedHeader, source: &mut impl Source) -> Result<WindowedFilter, DecodeError> {
    header.build_filled(|| Ok((source.string()?, source.unsigned()?)))
}

/// Returns the tables of a filter, in the order of their chunks.
pub fn tables(filter: &WindowedFilter) -> impl Iterator<Item = &Table> {
    let (expected, beyond) = filter.tables();
    std::iter::once(expected).chain(beyond)
}

/// Returns a tag for each table, which binds chunks to the present state of the filter.
pub fn tags(filter: &WindowedFilter) -> [u64; 2] {
    let slices = filter.slices();
    let [expected, beyond] = slices.items();
    let state = [filter.initial_capacity(), slices.forgotten(), slices.latest(), filter.history(), expected, beyond];
    let tag = xxh3_64_with_seed(state.map(u64::to_le_bytes).as_flattened(), filter.spec().seed);
    [tag, !tag]
}

/// See [`next_chunk`](super::next_chunk).
pub fn next_chunk(filter: &WindowedFilter, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    let position = match cursor {
        HEADER_CURSOR => 0,
        FIRST_CHUNK_CURSOR.. => cursor - FIRST_CHUNK_CURSOR,
        _ => return Ok(None),
    };
    for ((table, tag), start) in tables(filter).zip(tags(filter)).zip([0, END]) {
        if let Some((part, end)) = next_part(table, position.saturating_sub(start))? {
            let data = chunk::seal(&part, start + end, tag)?;
            return Ok(Some(DumpChunk { cursor: FIRST_CHUNK_CURSOR + start + end, data: Cow::Owned(data) }));
        }
    }
    Ok(None)
}

/// See [`load_chunk`](super::load_chunk).
pub fn load_chunk<'a>(
    filter: &mut WindowedFilter,
    cursor: u64,
    data: &'a [u8],
) -> Result<LoadedChunk<'a>, DecodeError> {
    let sealed = SealedChunk::decode(cursor, data)?;
    let [tag, tag_beyond] = tags(filter);
    let (table, tag, end) = match (filter.tables_mut(), sealed.end) {
        ((expected, _), ..=END) => (expected, tag, sealed.end),
        ((_, Some(beyond)), end) if end <= 2 * END => (beyond, tag_beyond, end - END),
        _ => return Err(DecodeError::NoSuchOffset),
    };
    sealed.check_tag(tag)?;
    let changed = table::load_part(table, sealed.content, end)?;
    Ok(LoadedChunk { bytes: data, changed })
}
