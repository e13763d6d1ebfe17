//! Encodes native filters as bytes: a [header] with a record of the blocks, and one of the [table] if the filter has
//! grown; [chunks](chunk) of the bits, and then of the table.
//!
//! ```text
//!  record of the blocks
//!  0   blocks, capacity, items, bits set (u64 each); the top bit of the items marks them as an estimate
//!  32  blocks per item, probes, words of a block (u8 each), five zero bytes
//! ```
//!
//! The offset of a chunk of bits is the position of its first byte in the array of blocks. The offsets of chunks of the
//! table follow. The tag of a chunk of bits is the XXH3-64 of the shape of the blocks, seeded with the filter's seed.
//! The tag of a chunk of the table also covers the lengths of its fingerprints.
//!
//! A filter without set bits has no chunks of bits, so a large empty filter takes only a few bytes. The shape of the
//! blocks is stored, and never computed again.
//!
//! Bits are OR-ed in, and entries added, so that a filter can be written to while it is copied.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::chunk::{self, BITS_CHUNK_BYTES, FIRST_CHUNK_CURSOR, SealedChunk};
use super::fields::Fields;
use super::header::{self, Preamble};
use super::table::{self, each_part, next_part};
use super::{DumpChunk, HEADER_CURSOR, LoadedChunk, Sink, Source};
use crate::array::try_box;
use crate::error::{DecodeError, Error};
use crate::item_count::{ItemCount, MAX_ITEMS};
use crate::layer::blocked::{BlockedLayer, BlockedSpec};
use crate::native::NativeFilter;
use crate::sizing::BlockShape;
use crate::spec::{Growth, OwnSpec};
use crate::table::{Addressing, END, Payload, Table};

const LAYER_BYTES: usize = 40;

/// See [`encode_header`](super::encode_header).
pub fn encode_header(filter: &NativeFilter) -> Result<Vec<u8>, Error> {
    let (layer, table) = (filter.layer(), filter.table());
    let records = 1 + usize::from(table.is_some());
    let bytes = LAYER_BYTES + table.map_or(0, |_| table::RECORD_BYTES);
    header::encode(header::EncodedKind::Native, filter.spec(), records, bytes, |header| {
        let BlockShape { blocks, words, blocks_per_item, probes } = layer.array().shape();
        for number in [blocks, layer.spec().capacity, layer.count().to_stored(), layer.set_bits()] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&[blocks_per_item, probes, words, 0, 0, 0, 0, 0]);
        if let Some(table) = table {
            table::encode_record(table, header);
        }
    })
}

/// A valid header. Its filter has no items yet.
pub struct NativeHeader {
    spec: OwnSpec,
    layer: LayerRecord,
    table: Option<table::Record>,
}

struct LayerRecord {
    spec: BlockedSpec,
    count: ItemCount,
    set_bits: u64,
}

impl NativeHeader {
    /// Decodes the records.
    pub fn decode(preamble: Preamble<'_>) -> Result<NativeHeader, DecodeError> {
        let Preamble { spec, records, mut fields, .. } = preamble;
        let layer = LayerRecord::decode(&mut fields)?;
        let table = match (records, spec.growth) {
            (1, _) => None,
            (2, Growth::By(_)) => Some(table::Record::decode(&mut fields, spec.growth, Payload::Nothing)?),
            _ => return Err(DecodeError::Corrupt),
        };
        if fields.0.is_empty() { Ok(NativeHeader { spec, layer, table }) } else { Err(DecodeError::Corrupt) }
    }

    /// Returns the bytes that the bits and the table will take.
    pub fn memory(&self) -> u64 {
        self.layer.spec.bytes().saturating_add(self.table.as_ref().map_or(0, table::Record::memory))
    }

    /// Returns the filter without its bits and entries. Its item counts are those of the complete filter.
    pub fn build(&self) -> Result<NativeFilter, DecodeError> {
        let mut layer = BlockedLayer::new(self.layer.spec)?;
        layer.set_item_count(self.layer.count);
        let table = match &self.table {
            Some(record) => Some(try_box(record.build()?)?),
            None => None,
        };
        Ok(NativeFilter::from_parts(self.spec, layer, table))
    }

    /// Returns the filter with its bits and entries. `next` returns the content of each chunk, in order, and its
    /// checksum.
    pub fn build_filled<B: AsRef<[u8]>>(
        &self,
        mut next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<NativeFilter, DecodeError> {
        let mut filter = self.build()?;
        let (tag, table_tag) = (tag(&filter), table_tag(&filter));
        let bytes = if self.layer.set_bits > 0 { filter.layer().bytes().len() } else { 0 };
        let mut loaded = 0;
        while loaded < bytes {
            let (bits, checksum) = next()?;
            let chunk = Chunk { offset: loaded as u64, bits: bits.as_ref() };
            if chunk.bits.is_empty() || chunk.checksum_with(tag) != checksum {
                return Err(DecodeError::Corrupt);
            }
            filter.layer_mut().restore_part(loaded, chunk.bits).ok_or(DecodeError::Corrupt)?;
            loaded += chunk.bits.len();
        }
        if let Some((record, table)) = self.table.as_ref().zip(filter.table_mut()) {
            record.fill(table, table_tag, next)?;
        }
        if self.layer.set_bits == filter.layer().set_bits() { Ok(filter) } else { Err(DecodeError::Corrupt) }
    }

    /// Returns true if `filter`, with all its chunks loaded, has as many bits set and slots filled as the one that was
    /// encoded.
    pub fn matches_content(&self, filter: &NativeFilter) -> bool {
        let tables = self.table.as_ref().zip(filter.table());
        self.layer.set_bits == filter.layer().set_bits()
            && tables.is_none_or(|(record, table)| record.matches_slots(table))
    }
}

impl std::fmt::Debug for NativeHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NativeHeader").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl LayerRecord {
    fn decode(fields: &mut Fields<'_>) -> Result<LayerRecord, DecodeError> {
        let [blocks, capacity, items, set_bits] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let [blocks_per_item, probes, words] = [fields.u8()?, fields.u8()?, fields.u8()?];
        fields.zeros(5)?;
        let shape = BlockShape { blocks, words, blocks_per_item, probes };
        // The numbers of items and of set bits need not agree: a header may be older than its chunks.
        let sound = shape.is_sound()
            && (1..=i64::MAX as u64).contains(&capacity)
            && set_bits <= shape.bits()
            && ItemCount::from_stored(items).items() <= MAX_ITEMS;
        if !sound {
            return Err(DecodeError::Corrupt);
        }
        let count = ItemCount::from_stored(items);
        if count.items() > capacity && !count.is_estimate() {
            return Err(DecodeError::Corrupt);
        }
        Ok(LayerRecord { spec: BlockedSpec { shape, capacity }, count, set_bits })
    }
}

/// See [`write_rdb`](super::write_rdb).
pub fn write_rdb(filter: &NativeFilter, sink: &mut impl Sink) -> Result<(), Error> {
    sink.string(&encode_header(filter)?);
    let (tag, table_tag) = (tag(filter), table_tag(filter));
    for chunk in chunks(filter) {
        sink.string(chunk.bits);
        sink.unsigned(chunk.checksum_with(tag));
    }
    filter.table().map_or(Ok(()), |table| {
        each_part(table, |part, end| {
            sink.string(part);
            sink.unsigned(chunk::checksum(part, end, table_tag));
        })
    })
}

/// Reads the chunks of a filter from RDB values.
pub fn read_chunks(header: &NativeHeader, source: &mut impl Source) -> Result<NativeFilter, DecodeError> {
    header.build_filled(|| Ok((source.string()?, source.unsigned()?)))
}

/// Bits of a filter, with their offset.
///
/// The tag of the chunk identifies the filter's seed and the shape of its blocks. The checksum covers the bits, the tag
/// and the offset. A chunk is accepted only at its own offset, by a filter with the same seed and shape.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The offset in bytes at which the bits start.
    pub offset: u64,
    /// The bits of whole blocks.
    pub bits: &'a [u8],
}

impl Chunk<'_> {
    /// Returns the chunk's cursor in a dump stream: the offset of its end, counted from [`FIRST_CHUNK_CURSOR`].
    pub fn cursor(&self) -> u64 {
        FIRST_CHUNK_CURSOR.wrapping_add(self.end())
    }

    /// Returns the chunk's checksum in an RDB value of `filter`.
    pub fn checksum(&self, filter: &NativeFilter) -> u64 {
        self.checksum_with(tag(filter))
    }

    fn checksum_with(&self, tag: u64) -> u64 {
        chunk::checksum(self.bits, self.end(), tag)
    }

    fn end(&self) -> u64 {
        self.offset.wrapping_add(self.bits.len() as u64)
    }
}

/// Returns the tag that binds bits to a filter.
pub fn tag(filter: &NativeFilter) -> u64 {
    let BlockShape { blocks, words, blocks_per_item, probes } = filter.layer().array().shape();
    let [a, b, c, d, e, f, g, h] = blocks.to_le_bytes();
    xxh3_64_with_seed(&[a, b, c, d, e, f, g, h, words, blocks_per_item, probes], filter.spec().seed)
}

/// Returns the tag that binds chunks of a table to a filter.
pub fn table_tag(filter: &NativeFilter) -> u64 {
    let lengths = match filter.table().map(Table::addressing) {
        Some(Addressing::Growing(lengths)) => lengths.to_bytes(),
        _ => [0, 0],
    };
    xxh3_64_with_seed(&lengths, tag(filter))
}

/// Returns all chunks of a filter's bits, in order.
pub fn chunks(filter: &NativeFilter) -> impl Iterator<Item = Chunk<'_>> {
    let bits = if filter.layer().set_bits() > 0 { filter.layer().bytes() } else { &[] };
    let offsets = (0..).step_by(BITS_CHUNK_BYTES);
    offsets.zip(bits.chunks(BITS_CHUNK_BYTES)).map(|(offset, bits)| Chunk { offset, bits })
}

/// See [`next_chunk`](super::next_chunk).
pub fn next_chunk(filter: &NativeFilter, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    let after = match cursor {
        HEADER_CURSOR => FIRST_CHUNK_CURSOR,
        FIRST_CHUNK_CURSOR.. => cursor,
        _ => return Ok(None),
    };
    if let Some(chunk) = chunks(filter).find(|chunk| chunk.cursor() > after) {
        let data = encode_chunk(filter, chunk)?;
        return Ok(Some(DumpChunk { cursor: chunk.cursor(), data: Cow::Owned(data) }));
    }
    let Some(table) = filter.table() else { return Ok(None) };
    let start = FIRST_CHUNK_CURSOR + filter.layer().bytes().len() as u64;
    let Some((part, end)) = next_part(table, after.saturating_sub(start))? else { return Ok(None) };
    let cursor = start + end;
    let data = chunk::seal(&part, cursor - FIRST_CHUNK_CURSOR, table_tag(filter))?;
    Ok(Some(DumpChunk { cursor, data: Cow::Owned(data) }))
}

/// Encodes a chunk of a dump stream.
pub fn encode_chunk(filter: &NativeFilter, chunk: Chunk<'_>) -> Result<Vec<u8>, Error> {
    chunk::seal(chunk.bits, chunk.end(), tag(filter))
}

/// See [`load_chunk`](super::load_chunk).
pub fn load_chunk<'a>(filter: &mut NativeFilter, cursor: u64, data: &'a [u8]) -> Result<LoadedChunk<'a>, DecodeError> {
    let sealed = SealedChunk::decode(cursor, data)?;
    let bytes = filter.layer().bytes().len() as u64;
    let changed = match sealed.end.checked_sub(bytes) {
        None | Some(0) => load_bits(filter, &sealed)?,
        Some(position) => {
            if position > END {
                return Err(DecodeError::NoSuchOffset);
            }
            let tag = table_tag(filter);
            let table = filter.table_mut().ok_or(DecodeError::NoSuchOffset)?;
            sealed.check_tag(tag)?;
            table::load_part(table, sealed.content, position)?
        }
    };
    Ok(LoadedChunk { bytes: data, changed })
}

/// Sets the bits of a chunk. Returns true if any of them was clear.
fn load_bits(filter: &mut NativeFilter, sealed: &SealedChunk<'_>) -> Result<bool, DecodeError> {
    let bits = sealed.content;
    let offset = sealed.end.checked_sub(bits.len() as u64).ok_or(DecodeError::Corrupt)?;
    sealed.check_tag(tag(filter))?;
    filter.layer_mut().merge_part(offset as usize, bits).ok_or(DecodeError::Corrupt)
}
