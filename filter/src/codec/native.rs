//! Native filters as bytes: a [header] with a record for each layer, and [chunks](chunk) of the
//! bits.
//!
//! ```text
//!  record
//!  0   blocks, capacity, items, bits set (u64 each); the highest bit of the items tells that they are an estimate
//!  32  blocks per item, probes (u8 each), six zero bytes
//! ```
//!
//! The offset of a chunk counts bytes of all layers' bits, laid end to end, oldest layer first. Its tag is the XXH3-64
//! of the layer's shape, seeded with the filter's seed.
//!
//! A layer without a bit set has no chunks, so that a large filter that was only reserved costs a few bytes. The shape
//! of each layer is stored, never computed again: a later version may size new filters better, and still read old ones.
//!
//! Bits are OR-ed in, so that a filter may be in use while it is copied.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::chunk::{self, BITS_CHUNK_BYTES, FIRST_CHUNK_CURSOR, SealedChunk};
use super::fields::{Fields, decode_all};
use super::header::{self, Content, Preamble};
use super::{DumpChunk, HEADER_CURSOR, LoadedChunk, Sink, Source};
use crate::block::{BLOCK_BITS, BLOCK_BYTES};
use crate::chain::Chain;
use crate::error::{DecodeError, Error};
use crate::layer::blocked::{BlockedLayer, BlockedSpec};
use crate::layer::{ItemCount, Layer, LayerSpec, MAX_ITEMS, MAX_LAYERS};
use crate::memory::try_vec;
use crate::sizing::{BlockShape, MAX_BLOCKS, MAX_BLOCKS_PER_ITEM};
use crate::spec::{Growth, OwnSpec};

const LAYER_BYTES: usize = 40;

/// See [`encode_header`](super::encode_header).
pub fn encode_header(filter: &Chain<BlockedLayer>) -> Result<Vec<u8>, Error> {
    let layers = filter.layers();
    header::encode(Content::Bits, filter.spec(), layers.len(), LAYER_BYTES, |header| {
        for layer in layers {
            let BlockShape { blocks, blocks_per_item, probes, .. } = layer.array().shape();
            for number in [blocks, layer.spec().capacity(), layer.count().bits(), layer.marked()] {
                header.extend_from_slice(&number.to_le_bytes());
            }
            header.extend_from_slice(&[blocks_per_item, probes, 0, 0, 0, 0, 0, 0]);
        }
    })
}

/// A valid header. Its filter has no bits yet.
pub struct Header {
    spec: OwnSpec,
    layers: Vec<Record>,
}

struct Record {
    spec: BlockedSpec,
    count: ItemCount,
    bytes: u64,
    marked: u64,
}

impl Header {
    /// Decodes the records.
    pub fn decode(preamble: Preamble<'_>) -> Result<Header, DecodeError> {
        let Preamble { spec, records, mut fields, .. } = preamble;
        let layers = records as usize;
        let most = if spec.growth == Growth::Fixed { 1 } else { MAX_LAYERS };
        if !(1..=most).contains(&layers) || fields.0.len() != layers * LAYER_BYTES {
            return Err(DecodeError::Corrupt);
        }
        let layers = decode_all(layers, || Record::decode(&mut fields))?;
        let header = Header { spec, layers };
        header.bytes().map(|_| header).ok_or(DecodeError::Corrupt)
    }

    /// Returns the bytes that the bits of all layers will take.
    pub fn memory(&self) -> u64 {
        self.bytes().unwrap_or(u64::MAX)
    }

    fn bytes(&self) -> Option<u64> {
        let total = self.layers.iter().try_fold(0u64, |sum, layer| sum.checked_add(layer.bytes))?;
        (total <= MAX_BLOCKS * BLOCK_BYTES).then_some(total)
    }

    /// Returns the filter without its bits. Its item counts are those of the whole filter.
    pub fn build(&self) -> Result<Chain<BlockedLayer>, DecodeError> {
        let mut layers = try_vec(self.layers.len())?;
        for record in &self.layers {
            let mut layer = BlockedLayer::new(record.spec)?;
            layer.set_item_count(record.count);
            layers.push(layer);
        }
        Ok(Chain::from_layers(self.spec, layers))
    }

    /// Returns the filter with its bits. `next` returns the bits of each chunk, in order, and their checksum.
    pub fn build_filled<B: AsRef<[u8]>>(
        &self,
        mut next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<Chain<BlockedLayer>, DecodeError> {
        let mut filter = self.build()?;
        let mut start = 0;
        for (layer, stored) in filter.layers_mut().iter_mut().zip(&self.layers) {
            let bytes = if stored.marked > 0 { layer.bytes().len() } else { 0 };
            let mut loaded = 0;
            while loaded < bytes {
                let (bits, checksum) = next()?;
                let chunk = Chunk { offset: start + loaded as u64, bits: bits.as_ref() };
                if chunk.bits.is_empty() || chunk.checksum_with(tag(self.spec.seed, Some(&*layer))) != checksum {
                    return Err(DecodeError::Corrupt);
                }
                layer.restore_part(loaded, chunk.bits).ok_or(DecodeError::Corrupt)?;
                loaded += chunk.bits.len();
            }
            start += stored.bytes;
        }
        if self.matches_marked(&filter) { Ok(filter) } else { Err(DecodeError::Corrupt) }
    }

    /// Returns true if `filter`, with all its chunks loaded, has as many bits set as the one that was encoded.
    pub fn matches_marked(&self, filter: &Chain<BlockedLayer>) -> bool {
        self.layers.iter().map(|layer| layer.marked).eq(filter.layers().iter().map(Layer::marked))
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Header").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Record {
    fn decode(fields: &mut Fields) -> Result<Record, DecodeError> {
        let [blocks, capacity, items, marked] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let [blocks_per_item, probes] = [fields.u8()?, fields.u8()?];
        fields.zeros(6)?;
        // Items and cells marked need not agree: a header may be older than the chunks that came with it.
        let sound = (1..MAX_BLOCKS).contains(&blocks)
            && (1..=MAX_BLOCKS_PER_ITEM).contains(&blocks_per_item)
            && u64::from(blocks_per_item) <= blocks
            && probes >= blocks_per_item
            && (1..=i64::MAX as u64).contains(&capacity)
            && marked.div_ceil(BLOCK_BITS) <= blocks
            && ItemCount::from_bits(items).items() <= MAX_ITEMS;
        if !sound {
            return Err(DecodeError::Corrupt);
        }
        let shape = BlockShape { blocks, blocks_per_item, probes };
        let count = ItemCount::from_bits(items);
        if count.items() > capacity && !count.is_estimate() {
            return Err(DecodeError::Corrupt);
        }
        Ok(Record { spec: BlockedSpec { shape, capacity }, count, bytes: shape.bytes(), marked })
    }
}

/// See [`write_rdb`](super::write_rdb).
pub fn write_rdb(filter: &Chain<BlockedLayer>, sink: &mut impl Sink) -> Result<(), Error> {
    sink.string(&encode_header(filter)?);
    for chunk in chunks(filter) {
        sink.string(chunk.bits);
        sink.unsigned(chunk.checksum(filter));
    }
    Ok(())
}

/// Reads the chunks of a filter from RDB values.
pub fn read_chunks(header: &Header, source: &mut impl Source) -> Result<Chain<BlockedLayer>, DecodeError> {
    header.build_filled(|| Ok((source.string()?, source.unsigned()?)))
}

/// Bits of a filter with the place they belong to.
///
/// A tag stands for the filter's seed and the layer's shape; the checksum covers the bits, the tag and the offset. A
/// chunk is accepted only at its own place and by a filter of the same seed and shape. When it is rejected, the tag
/// tells whether it was damaged or belongs to another filter.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Where the bits start, in bytes of all layers' bits laid end to end.
    pub offset: u64,
    /// Whole blocks of one layer.
    pub bits: &'a [u8],
}

impl Chunk<'_> {
    /// Returns the chunk's cursor in a dump stream: the offset of its end, counted from [`FIRST_CHUNK_CURSOR`].
    pub fn cursor(&self) -> u64 {
        FIRST_CHUNK_CURSOR.wrapping_add(self.end())
    }

    /// Returns the tag that binds the chunk to `filter`.
    pub fn tag(&self, filter: &Chain<BlockedLayer>) -> u64 {
        tag(filter.spec().seed, filter.locate(self.offset).map(|(layer, _)| &filter.layers()[layer]))
    }

    /// Returns the chunk's checksum in an RDB value of `filter`.
    pub fn checksum(&self, filter: &Chain<BlockedLayer>) -> u64 {
        self.checksum_with(self.tag(filter))
    }

    fn checksum_with(&self, tag: u64) -> u64 {
        chunk::checksum(self.bits, self.end(), tag)
    }

    fn end(&self) -> u64 {
        self.offset.wrapping_add(self.bits.len() as u64)
    }
}

/// Returns the tag that binds chunks to a layer of a filter with this seed.
fn tag(seed: u64, layer: Option<&BlockedLayer>) -> u64 {
    let shape = layer.map_or([0; 10], |layer| {
        let BlockShape { blocks, blocks_per_item, probes, .. } = layer.array().shape();
        let [a, b, c, d, e, f, g, h] = blocks.to_le_bytes();
        [a, b, c, d, e, f, g, h, blocks_per_item, probes]
    });
    xxh3_64_with_seed(&shape, seed)
}

/// Returns all chunks of a filter, in order.
pub fn chunks(filter: &Chain<BlockedLayer>) -> impl Iterator<Item = Chunk<'_>> {
    let mut end = 0;
    filter.layers().iter().flat_map(move |layer| {
        let start = end;
        end += layer.bytes().len() as u64;
        let bits = if layer.marked() > 0 { layer.bytes() } else { &[] };
        let offsets = (start..).step_by(BITS_CHUNK_BYTES);
        offsets.zip(bits.chunks(BITS_CHUNK_BYTES)).map(|(offset, bits)| Chunk { offset, bits })
    })
}

/// See [`next_chunk`](super::next_chunk).
pub fn next_chunk(filter: &Chain<BlockedLayer>, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    let behind = match cursor {
        HEADER_CURSOR => FIRST_CHUNK_CURSOR,
        FIRST_CHUNK_CURSOR.. => cursor,
        _ => return Ok(None),
    };
    let next = chunks(filter).find(|chunk| chunk.cursor() > behind);
    let encode = |chunk: Chunk<'_>| {
        let data = encode_chunk(filter, chunk)?;
        Ok(DumpChunk { cursor: chunk.cursor(), data: Cow::Owned(data) })
    };
    next.map(encode).transpose()
}

/// Encodes a chunk of a dump stream.
pub fn encode_chunk(filter: &Chain<BlockedLayer>, chunk: Chunk<'_>) -> Result<Vec<u8>, Error> {
    chunk::seal(chunk.bits, chunk.end(), chunk.tag(filter))
}

/// See [`load_chunk`](super::load_chunk).
pub fn load_chunk<'a>(
    filter: &mut Chain<BlockedLayer>,
    cursor: u64,
    data: &'a [u8],
) -> Result<LoadedChunk<'a>, DecodeError> {
    let sealed = SealedChunk::decode(cursor, data)?;
    let bits = sealed.content;
    let offset = sealed.end.checked_sub(bits.len() as u64).ok_or(DecodeError::Corrupt)?;
    let (layer, within) = filter.locate(offset).ok_or(DecodeError::NoSuchOffset)?;
    let seed = filter.spec().seed;
    let layer = &mut filter.layers_mut()[layer];
    if bits.len() > layer.bytes().len() - within {
        return Err(DecodeError::BeyondLayer);
    }
    sealed.check_tag(tag(seed, Some(&*layer)))?;
    let changed = layer.merge_part(within, bits).ok_or(DecodeError::Corrupt)?;
    Ok(LoadedChunk { bytes: data, changed })
}
