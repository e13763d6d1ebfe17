//! Native filters as bytes: a header describes the filter, chunks of at most 4 MiB carry the bits.
//!
//! All integers are little-endian.
//!
//! ```text
//!  header                                              chunk
//!  0   "OXB", version (1)                              0    bits, whole blocks of one layer
//!  4   layout (0: blocks), three zero bytes            n-8  XXH3-64 of the bits, seeded with the filter's seed,
//!  8   expansion (u32; 0: does not grow)                    the layer's shape and the offset
//!  12  layers (u32)
//!  16  seed (u64)
//!  24  error rate (f64)                                the offset of a chunk counts bytes of all layers' bits, laid
//!  32  per layer, 40 bytes:                            end to end, oldest layer first
//!        blocks, capacity, items, bits set (u64 each)
//!        lines, probes (u8 each), six zero bytes
//!  end XXH3-64 of all before it
//! ```
//!
//! Whatever the version, a header starts with the three letters and the version, and ends with the checksum: it could otherwise
//! be a classic one, which starts with its number of items.
//!
//! A layer without a set bit has no chunks, so that a large filter that was only reserved costs a few bytes. The shape of
//! each layer is stored, never computed again: a later version may size new filters better, and still read old ones.
//!
//! The checksums refuse a chunk that was damaged, or belongs to another filter or another place; see [`Chunk`]. A file holds
//! the header as a string, and for each chunk its bits as a string and its checksum as a number. In a walk, the checksum is
//! the end of the chunk.

use std::borrow::Cow;
use std::num::NonZeroU32;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::super::blocked::{Design, Layer};
use super::super::chain::{self, Layer as _};
use super::super::hash::GOLDEN;
use super::super::sizing::{BLOCK_BITS, BLOCK_BYTES, Cell, MAX_BLOCKS, MAX_LINES, Shape};
use super::super::table::Plan;
use super::super::{Error, ErrorRate, Growth, MAX_LAYERS};
use super::{DecodeError, Fields, HEADER_ITERATOR, Piece, Sink, Source, empty_chain, locate};

type Chain = chain::Chain<Layer>;

/// The version of the encoding that is written. Earlier ones are read, later ones refused.
pub const VERSION: u8 = 1;

/// The most bits in a chunk that is written, in bytes. Chunks of any length are read.
///
/// The server compresses every string that it saves, and allocates a second copy to do it; when it loads, it allocates each
/// string before we copy it. Chunks bound the memory that this takes, and small ones are still in the processor's cache when
/// they are copied. The time to save rises below 4 MiB: the compressor prepares a table for each string.
pub const CHUNK_BYTES: usize = 4 << 20;

/// Where the iterators of chunks start. It is behind the end of any filter of RedisBloom's, which refuses such a chunk, and
/// so does a classic filter of ours; and low enough for clients that keep numbers as doubles.
pub const ORIGIN: u64 = 1 << 52;

const MAGIC: &[u8] = b"OXB";
const LAYOUT_BLOCKED: u8 = 0;
const FIXED_BYTES: usize = 32;
const LAYER_BYTES: usize = 40;
const CHECKSUM_BYTES: usize = 8;

/// The header of a filter.
pub fn encode_header(filter: &Chain) -> Vec<u8> {
    let Plan { seed, error_rate, growth } = filter.plan();
    let expansion = match growth {
        Growth::Fixed => 0,
        Growth::By(expansion) => expansion.get(),
    };
    let layers = filter.layers();
    let mut header = Vec::with_capacity(FIXED_BYTES + layers.len() * LAYER_BYTES + CHECKSUM_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&[VERSION, LAYOUT_BLOCKED, 0, 0, 0]);
    header.extend_from_slice(&expansion.to_le_bytes());
    header.extend_from_slice(&(layers.len() as u32).to_le_bytes());
    header.extend_from_slice(&seed.to_le_bytes());
    header.extend_from_slice(&error_rate.get().to_le_bytes());
    for layer in layers {
        let Shape { blocks, lines, probes, .. } = layer.table().shape();
        for number in [blocks, layer.capacity(), layer.items(), layer.ones()] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&[lines, probes, 0, 0, 0, 0, 0, 0]);
    }
    let checksum = xxh3_64(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    header
}

/// What is between the letters and the checksum of a native header, of whatever version. `None` if the bytes are no such
/// header, also if they only start like one.
pub fn header_body(bytes: &[u8]) -> Option<&[u8]> {
    let (header, checksum) = bytes.split_last_chunk()?;
    let body = header.strip_prefix(MAGIC)?;
    (u64::from_le_bytes(*checksum) == xxh3_64(header)).then_some(body)
}

/// A header that was found sound. Its filter has no bits yet.
#[derive(Debug)]
pub struct Header {
    plan: Plan,
    layers: Vec<StoredLayer>,
}

#[derive(Debug)]
struct StoredLayer {
    design: Design,
    items: u64,
    ones: u64,
}

impl Header {
    pub fn decode(bytes: &[u8]) -> Result<Header, DecodeError> {
        Header::decode_body(header_body(bytes).ok_or(DecodeError::Corrupt)?)
    }

    /// As [`decode`](Self::decode), given the [`header_body`].
    pub fn decode_body(body: &[u8]) -> Result<Header, DecodeError> {
        let mut fields = Fields(body);
        match fields.u8()? {
            0 => return Err(DecodeError::Corrupt),
            1..=VERSION => {}
            _ => return Err(DecodeError::NewerVersion),
        }
        if fields.u8()? != LAYOUT_BLOCKED {
            return Err(DecodeError::Corrupt);
        }
        zeros(&mut fields, 3)?;
        let growth = NonZeroU32::new(fields.u32()?).map_or(Growth::Fixed, Growth::By);
        let layers = fields.u32()? as usize;
        let seed = fields.u64()?;
        let error_rate = ErrorRate::new(fields.f64()?).ok_or(DecodeError::Corrupt)?;
        let most = if growth == Growth::Fixed { 1 } else { MAX_LAYERS };
        if !(1..=most).contains(&layers) || fields.0.len() != layers * LAYER_BYTES {
            return Err(DecodeError::Corrupt);
        }
        let layers = (0..layers).map(|_| StoredLayer::decode(&mut fields)).collect::<Result<_, _>>()?;
        let header = Header { plan: Plan { seed, error_rate, growth }, layers };
        header.bytes().map(|_| header).ok_or(DecodeError::Corrupt)
    }

    /// Bytes that the layers' bits will take.
    pub fn memory(&self) -> u64 {
        self.bytes().unwrap_or(u64::MAX)
    }

    fn bytes(&self) -> Option<u64> {
        let total = self.layers.iter().try_fold(0u64, |sum, layer| sum.checked_add(layer.design.shape.bytes()))?;
        (total <= MAX_BLOCKS * BLOCK_BYTES).then_some(total)
    }

    /// The filter, with no bit set yet; its items count as if they were.
    pub fn build(&self) -> Result<Chain, DecodeError> {
        empty_chain(self.plan, self.layers.iter().map(|layer| (layer.design, layer.items)))
    }

    /// The filter with its bits. `next` returns the bits of each chunk, in order, and their checksum.
    pub fn load<B: AsRef<[u8]>>(
        &self,
        mut next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<Chain, DecodeError> {
        let mut filter = self.build()?;
        let mut start = 0;
        for (layer, stored) in filter.layers_mut().iter_mut().zip(&self.layers) {
            let bytes = if stored.ones > 0 { layer.bytes().len() } else { 0 };
            let mut loaded = 0;
            while loaded < bytes {
                let (bits, expected) = next()?;
                let bits = bits.as_ref();
                verify(self.plan.seed, layer, start + loaded as u64, bits, expected)?;
                layer.restore(loaded, bits).ok_or(DecodeError::Corrupt)?;
                loaded += bits.len();
            }
            start += stored.design.shape.bytes();
        }
        if self.describes(&filter) { Ok(filter) } else { Err(DecodeError::Corrupt) }
    }

    /// Whether `filter`, with all its chunks loaded, has as many bits set as the one that was encoded.
    pub fn describes(&self, filter: &Chain) -> bool {
        self.layers.iter().map(|layer| layer.ones).eq(filter.layers().iter().map(Layer::ones))
    }
}

impl StoredLayer {
    fn decode(fields: &mut Fields) -> Result<StoredLayer, DecodeError> {
        let [blocks, capacity, items, ones] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let [lines, probes] = [fields.u8()?, fields.u8()?];
        zeros(fields, 6)?;
        // Items and bits set need not agree: a header may be older than the chunks that came with it.
        let sound = (1..MAX_BLOCKS).contains(&blocks)
            && (1..=MAX_LINES).contains(&lines)
            && u64::from(lines) <= blocks
            && probes >= lines
            && capacity >= 1
            && items <= capacity
            && ones.div_ceil(BLOCK_BITS) <= blocks;
        let shape = Shape { cell: Cell::Bit, blocks, lines, probes };
        sound.then_some(StoredLayer { design: Design { shape, capacity }, items, ones }).ok_or(DecodeError::Corrupt)
    }
}

/// Writes a filter as a file.
pub fn save(filter: &Chain, sink: &mut impl Sink) {
    sink.string(&encode_header(filter));
    for chunk in chunks(filter) {
        sink.string(chunk.bits);
        sink.unsigned(chunk.checksum(filter));
    }
}

/// Reads a filter from a file. `admit` is told the bytes that it will take, and may refuse them.
pub fn load(source: &mut impl Source, admit: impl FnOnce(u64) -> bool) -> Result<Chain, DecodeError> {
    let header = Header::decode(source.string()?.as_ref())?;
    if !admit(header.memory()) {
        return Err(DecodeError::OutOfMemory);
    }
    header.load(|| Ok((source.string()?, source.unsigned()?)))
}

/// Bits of a filter with the place they belong to.
///
/// The checksum covers the bits, the filter's seed, the layer's shape and the offset, so that a chunk is only taken at the
/// place that it was made for, by a filter that means the same by it.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Where the bits start, in bytes of all layers' bits laid end to end.
    pub offset: u64,
    /// Whole blocks of one layer.
    pub bits: &'a [u8],
}

impl Chunk<'_> {
    /// The iterator that comes with the chunk in a walk: the offset behind it, counted from [`ORIGIN`].
    pub fn iterator(&self) -> u64 {
        ORIGIN + self.offset + self.bits.len() as u64
    }

    pub fn checksum(&self, filter: &Chain) -> u64 {
        let layer = locate(filter.layers(), self.offset).map(|(layer, _)| &filter.layers()[layer]);
        checksum(filter.plan().seed, layer, self.offset, self.bits)
    }
}

fn checksum(seed: u64, layer: Option<&Layer>, offset: u64, bits: &[u8]) -> u64 {
    let shape = layer.map_or(0, |layer| {
        let Shape { blocks, lines, probes, .. } = layer.table().shape();
        blocks.rotate_left(16) ^ u64::from(u16::from_le_bytes([probes, lines]))
    });
    xxh3_64_with_seed(bits, seed ^ (offset ^ shape.rotate_left(32)).wrapping_mul(GOLDEN))
}

/// Whether there are bits, and those that were written.
fn verify(seed: u64, layer: &Layer, offset: u64, bits: &[u8], expected: u64) -> Result<(), DecodeError> {
    let is_whole = !bits.is_empty() && checksum(seed, Some(layer), offset, bits) == expected;
    is_whole.then_some(()).ok_or(DecodeError::Corrupt)
}

/// All chunks of a filter, in order.
pub fn chunks(filter: &Chain) -> impl Iterator<Item = Chunk<'_>> {
    let mut end = 0;
    filter.layers().iter().flat_map(move |layer| {
        let start = end;
        end += layer.bytes().len() as u64;
        let bits = if layer.ones() > 0 { layer.bytes() } else { &[] };
        let offsets = (start..).step_by(CHUNK_BYTES);
        offsets.zip(bits.chunks(CHUNK_BYTES)).map(|(offset, bits)| Chunk { offset, bits })
    })
}

/// See [`next_piece`](super::next_piece).
pub fn next_piece(filter: &Chain, iterator: u64) -> Result<Option<Piece<'_>>, Error> {
    let behind = match iterator {
        HEADER_ITERATOR => ORIGIN,
        ORIGIN.. => iterator,
        _ => return Ok(None),
    };
    let next = chunks(filter).find(|chunk| chunk.iterator() > behind);
    let piece = |chunk: Chunk<'_>| {
        let data = encode_chunk(filter, chunk)?;
        Ok(Piece { iterator: chunk.iterator(), data: Cow::Owned(data) })
    };
    next.map(piece).transpose()
}

/// A chunk as it travels in one piece: bits and checksum.
pub fn encode_chunk(filter: &Chain, chunk: Chunk<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(chunk.bits.len() + CHECKSUM_BYTES).map_err(|_| Error::OutOfMemory)?;
    bytes.extend_from_slice(chunk.bits);
    bytes.extend_from_slice(&chunk.checksum(filter).to_le_bytes());
    Ok(bytes)
}

/// See [`load_piece`](super::load_piece).
pub fn load_piece(filter: &mut Chain, iterator: u64, data: &[u8]) -> Result<(), DecodeError> {
    let (bits, expected) = data.split_last_chunk().ok_or(DecodeError::Corrupt)?;
    let offset = iterator.checked_sub(ORIGIN).and_then(|end| end.checked_sub(bits.len() as u64));
    let offset = offset.ok_or(DecodeError::Corrupt)?;
    let (layer, within) = locate(filter.layers(), offset).ok_or(DecodeError::NoSuchOffset)?;
    let seed = filter.plan().seed;
    let layer = &mut filter.layers_mut()[layer];
    if bits.len() > layer.bytes().len() - within {
        return Err(DecodeError::BeyondLayer);
    }
    verify(seed, layer, offset, bits, u64::from_le_bytes(*expected))?;
    layer.merge(within, bits).ok_or(DecodeError::Corrupt)
}

fn zeros(fields: &mut Fields<'_>, length: usize) -> Result<(), DecodeError> {
    let zero = fields.take(length)?.iter().all(|&byte| byte == 0);
    zero.then_some(()).ok_or(DecodeError::Corrupt)
}
