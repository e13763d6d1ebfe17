//! Native filters as bytes: a header describes the filter, chunks of at most 4 MiB carry the bits, or the counters.
//!
//! All integers are little-endian.
//!
//! ```text
//!  header                                              chunk
//!  0   "OXB", version (2)                              0    bits, whole blocks of one layer
//!  4   cells (0: bits, 1: counters), three zero bytes  n-16 tag: XXH3-64 of the layer's shape, seeded with the
//!  8   expansion (u32; 0: does not grow)                    filter's seed
//!  12  layers (u32)                                    n-8  XXH3-64 of the bits, seeded with the tag and the offset
//!  16  seed (u64)
//!  24  error rate (f64)                                the offset of a chunk counts bytes of all layers' bits, laid
//!  32  per layer, 40 bytes, or 64 with counters:       end to end, oldest layer first
//!        blocks, capacity, items, cells marked (u64 each);
//!          the highest bit of the items tells that they are an estimate
//!        blocks per item, probes (u8 each), six zero bytes
//!        of counters: occurrences, history (u64 each), share (u16), six zero bytes
//!  end XXH3-64 of all before it
//! ```
//!
//! In every version, a header starts with the three letters and the version, and ends with the checksum: this tells it from a
//! classic header, which starts with the number of items.
//!
//! A layer without a marked cell has no chunks, so that a large filter that was only reserved costs a few bytes. The shape of
//! each layer is stored, never computed again: a later version may size new filters better, and still read old ones.
//!
//! A chunk that was damaged, or belongs to another filter or another place, is rejected by its checksum; see [`Chunk`]. In RDB,
//! the header is a string, and each chunk a string of bits and a checksum as a number. In a dump stream, a chunk ends with its tag
//! and its checksum.
//!
//! Chunks of bits are OR-ed in, so that a filter may be in use while it is copied. Counters cannot be: an item that was removed
//! or moved to another layer between two chunks would be half there. So the tags of counters are also seeded with the filter's
//! counts and a sum of hashes of all that was ever written to it. Their chunks are accepted only while neither the source
//! nor the copy has been written to since the header was made.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::num::NonZeroU32;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{DumpChunk, Fields, HEADER_CURSOR, LoadedChunk, Sink, Source, decode_all, locate};
use crate::block::BLOCK_BYTES;
use crate::block_array::BlockArray;
use crate::chain::Chain;
use crate::error::{DecodeError, Error, try_vec};
use crate::filter::{Chains, Filter, LayerKind};
use crate::hash::GOLDEN;
use crate::layer::blocked::{BlockedLayer, BlockedSpec};
use crate::layer::counting::{CountingLayer, CountingSpec, Counts};
use crate::layer::{ItemCount, Layer, LayerSpec, MAX_ITEMS, MAX_LAYERS};
use crate::sizing::{BlockShape, Cell, MAX_BLOCKS, MAX_BLOCKS_PER_ITEM};
use crate::spec::{ErrorRate, Growth, NativeSpec};

/// The version of the encoding that is written, and the only one that is read. Later ones are rejected.
pub const VERSION: u8 = 2;

/// The most bytes of bits in a chunk that is written. Chunks of any length are read.
///
/// The server compresses every string that it saves, and allocates a second copy to do it; when it loads, it allocates each
/// string before we copy it. Chunks bound the memory that this takes, and small ones are still in the processor's cache when
/// they are copied. The time to save rises below 4 MiB: the compressor prepares a table for each string.
pub const CHUNK_BYTES: usize = 4 << 20;

/// Where the cursors of chunks start. It is beyond the end of any classic filter, so that RedisBloom and our own classic filters
/// reject such a chunk, and low enough for clients that keep numbers as doubles.
pub const FIRST_CHUNK_CURSOR: u64 = 1 << 52;

const MAGIC: &[u8] = b"OXB";
const FIXED_BYTES: usize = 32;
const LAYER_BYTES: usize = 40;
const TAG_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 8;

/// A native or counting layer as it is stored.
pub trait NativeLayer: Layer<FilterSpec = NativeSpec> + LayerKind {
    /// What is counted of a layer, and cannot be told from its cells.
    type Counts: Copy;

    /// Bytes of a layer in the header beyond those that both kinds have.
    const EXTRA_BYTES: usize;

    /// Returns the cells.
    fn array(&self) -> &BlockArray;

    /// Returns the item count.
    fn count(&self) -> ItemCount;

    /// Restores what was counted of a stored layer.
    fn set_counts(&mut self, counts: Self::Counts);

    /// Writes what the layer has beyond what both kinds have.
    fn encode_extra(&self, header: &mut Vec<u8>);

    /// Reads it back.
    fn decode_extra(
        shape: BlockShape,
        capacity: u64,
        count: ItemCount,
        fields: &mut Fields<'_>,
    ) -> Result<(Self::LayerSpec, Self::Counts), DecodeError>;

    /// Returns what the chunks of `layers` are tied to, beside their place.
    fn write_stamp(layers: &[Self]) -> u64;

    /// Fills a part of a new layer, from byte `offset` on. Returns `None` if it is not whole blocks of the layer.
    fn restore_part(&mut self, offset: usize, bytes: &[u8]) -> Option<()>;

    /// As [`restore_part`](Self::restore_part), for a layer that may be in use. Returns true if it changed.
    fn load_part(&mut self, offset: usize, bytes: &[u8]) -> Option<bool>;
}

impl NativeLayer for BlockedLayer {
    type Counts = ItemCount;

    const EXTRA_BYTES: usize = 0;

    fn array(&self) -> &BlockArray {
        self.array()
    }

    fn count(&self) -> ItemCount {
        self.count()
    }

    fn set_counts(&mut self, count: ItemCount) {
        self.set_count(count);
    }

    fn encode_extra(&self, _header: &mut Vec<u8>) {}

    fn decode_extra(
        shape: BlockShape,
        capacity: u64,
        count: ItemCount,
        _fields: &mut Fields<'_>,
    ) -> Result<(BlockedSpec, ItemCount), DecodeError> {
        let sound = count.items() <= capacity || count.is_estimate();
        sound.then_some((BlockedSpec { shape, capacity }, count)).ok_or(DecodeError::Corrupt)
    }

    fn write_stamp(_layers: &[BlockedLayer]) -> u64 {
        0
    }

    fn restore_part(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        self.restore_part(offset, bytes)
    }

    fn load_part(&mut self, offset: usize, bytes: &[u8]) -> Option<bool> {
        self.merge_part(offset, bytes)
    }
}

impl NativeLayer for CountingLayer {
    type Counts = Counts;

    const EXTRA_BYTES: usize = 24;

    fn array(&self) -> &BlockArray {
        self.array()
    }

    fn count(&self) -> ItemCount {
        self.counts().count
    }

    fn set_counts(&mut self, counts: Counts) {
        self.set_counts(counts);
    }

    fn encode_extra(&self, header: &mut Vec<u8>) {
        let Counts { occurrences, history, .. } = self.counts();
        header.extend_from_slice(&occurrences.to_le_bytes());
        header.extend_from_slice(&history.to_le_bytes());
        header.extend_from_slice(&self.spec().share.to_le_bytes());
        header.extend_from_slice(&[0; 6]);
    }

    fn decode_extra(
        shape: BlockShape,
        capacity: u64,
        count: ItemCount,
        fields: &mut Fields<'_>,
    ) -> Result<(CountingSpec, Counts), DecodeError> {
        let [occurrences, history] = [fields.u64()?, fields.u64()?];
        let share = fields.array().copied().map(u16::from_le_bytes)?;
        zeros(fields, 6)?;
        let sound = usize::from(share) < MAX_LAYERS;
        let counts = Counts { count, occurrences, history };
        sound.then_some((CountingSpec { shape, capacity, share }, counts)).ok_or(DecodeError::Corrupt)
    }

    fn write_stamp(layers: &[CountingLayer]) -> u64 {
        layers.iter().fold(layers.len() as u64, |stamp, layer| {
            let (Counts { count, occurrences, history }, spec) = (layer.counts(), layer.spec());
            let numbers = [spec.capacity, count.bits(), occurrences, history, spec.share.into()];
            xxh3_64_with_seed(numbers.map(u64::to_le_bytes).as_flattened(), stamp)
        })
    }

    fn restore_part(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        self.restore_part(offset, bytes)
    }

    fn load_part(&mut self, offset: usize, bytes: &[u8]) -> Option<bool> {
        self.replace_part(offset, bytes)
    }
}

/// See [`encode_header`](super::encode_header).
pub fn encode_header<L: NativeLayer>(filter: &Chain<L>) -> Result<Vec<u8>, Error> {
    let NativeSpec { seed, error_rate, .. } = filter.spec();
    let expansion = filter.spec().expansion().unwrap_or(0);
    let layers = filter.layers();
    let mut header = try_vec(FIXED_BYTES + layers.len() * (LAYER_BYTES + L::EXTRA_BYTES) + CHECKSUM_BYTES)?;
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&[VERSION, code(L::CELL), 0, 0, 0]);
    header.extend_from_slice(&expansion.to_le_bytes());
    header.extend_from_slice(&(layers.len() as u32).to_le_bytes());
    header.extend_from_slice(&seed.to_le_bytes());
    header.extend_from_slice(&error_rate.get().to_le_bytes());
    for layer in layers {
        let BlockShape { blocks, blocks_per_item, probes, .. } = layer.array().shape();
        for number in [blocks, layer.spec().capacity(), layer.count().bits(), layer.marked()] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&[blocks_per_item, probes, 0, 0, 0, 0, 0, 0]);
        layer.encode_extra(&mut header);
    }
    let checksum = xxh3_64(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    Ok(header)
}

/// Returns what is between the letters and the checksum of a native header of any version, or `None` if the bytes are no such
/// header.
pub fn header_body(bytes: &[u8]) -> Option<&[u8]> {
    let (header, checksum) = bytes.split_last_chunk()?;
    let body = header.strip_prefix(MAGIC)?;
    (u64::from_le_bytes(*checksum) == xxh3_64(header)).then_some(body)
}

/// Returns the code of a kind of cells in a header.
const fn code(cell: Cell) -> u8 {
    match cell {
        Cell::Bit => 0,
        Cell::Counter => 1,
    }
}

/// A valid header. Its filter has no bits yet.
#[derive(Debug)]
pub enum Header {
    /// Of a native filter.
    Bits(Description<BlockedLayer>),
    /// Of a counting filter.
    Counters(Description<CountingLayer>),
}

impl Header {
    /// Checks a header.
    pub fn decode(bytes: &[u8]) -> Result<Header, DecodeError> {
        Header::decode_body(header_body(bytes).ok_or(DecodeError::Corrupt)?)
    }

    /// As [`decode`](Self::decode), given the [`header_body`].
    pub fn decode_body(body: &[u8]) -> Result<Header, DecodeError> {
        const BITS: u8 = code(Cell::Bit);
        const COUNTERS: u8 = code(Cell::Counter);
        let mut fields = Fields(body);
        match fields.u8()?.cmp(&VERSION) {
            Ordering::Less => return Err(DecodeError::Corrupt),
            Ordering::Equal => {}
            Ordering::Greater => return Err(DecodeError::NewerVersion),
        }
        match fields.u8()? {
            BITS => Description::decode(fields).map(Header::Bits),
            COUNTERS => Description::decode(fields).map(Header::Counters),
            _ => Err(DecodeError::Corrupt),
        }
    }

    /// Returns the bytes that the cells of all layers will take.
    pub fn memory(&self) -> u64 {
        match self {
            Header::Bits(description) => description.memory(),
            Header::Counters(description) => description.memory(),
        }
    }

    /// Returns the filter without its bits. Its item counts are those of the whole filter.
    pub fn build(&self) -> Result<Filter, DecodeError> {
        match self {
            Header::Bits(description) => description.build().map(LayerKind::into_filter),
            Header::Counters(description) => description.build().map(LayerKind::into_filter),
        }
    }

    /// Returns true if `filter`, with all its chunks loaded, has as many cells marked as the one that was encoded.
    pub fn matches_marked(&self, filter: &Filter) -> bool {
        match (self, filter.chains()) {
            (Header::Bits(description), Chains::Native(chain)) => description.matches_marked(chain),
            (Header::Counters(description), Chains::Counting(chain)) => description.matches_marked(chain),
            _ => false,
        }
    }

    /// Returns the filter with its bits. `next` returns the bits of each chunk, in order, and their checksum.
    pub fn build_filled<B: AsRef<[u8]>>(
        &self,
        next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<Filter, DecodeError> {
        match self {
            Header::Bits(description) => description.build_filled(next).map(LayerKind::into_filter),
            Header::Counters(description) => description.build_filled(next).map(LayerKind::into_filter),
        }
    }
}

/// The filter that a header describes, without its cells.
pub struct Description<L: NativeLayer> {
    spec: NativeSpec,
    layers: Vec<Record<L>>,
}

struct Record<L: NativeLayer> {
    spec: L::LayerSpec,
    counts: L::Counts,
    bytes: u64,
    marked: u64,
}

impl<L: NativeLayer> Description<L> {
    /// Decodes what follows the kind of cells.
    fn decode(mut fields: Fields<'_>) -> Result<Description<L>, DecodeError> {
        zeros(&mut fields, 3)?;
        let growth = NonZeroU32::new(fields.u32()?).map_or(Growth::Fixed, Growth::By);
        let layers = fields.u32()? as usize;
        let seed = fields.u64()?;
        let error_rate = ErrorRate::new(fields.f64()?).ok_or(DecodeError::Corrupt)?;
        let most = if growth == Growth::Fixed { 1 } else { MAX_LAYERS };
        if !(1..=most).contains(&layers) || fields.0.len() != layers * (LAYER_BYTES + L::EXTRA_BYTES) {
            return Err(DecodeError::Corrupt);
        }
        let layers = decode_all(layers, || Record::decode(&mut fields))?;
        let description = Description { spec: NativeSpec { seed, error_rate, growth }, layers };
        description.bytes().map(|_| description).ok_or(DecodeError::Corrupt)
    }

    fn memory(&self) -> u64 {
        self.bytes().unwrap_or(u64::MAX)
    }

    fn bytes(&self) -> Option<u64> {
        let total = self.layers.iter().try_fold(0u64, |sum, layer| sum.checked_add(layer.bytes))?;
        (total <= MAX_BLOCKS * BLOCK_BYTES).then_some(total)
    }

    fn build(&self) -> Result<Chain<L>, DecodeError> {
        let mut layers = try_vec(self.layers.len())?;
        for record in &self.layers {
            let mut layer = L::new(record.spec)?;
            layer.set_counts(record.counts);
            layers.push(layer);
        }
        Ok(Chain::from_layers(self.spec, layers))
    }

    fn build_filled<B: AsRef<[u8]>>(
        &self,
        mut next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<Chain<L>, DecodeError> {
        let mut filter = self.build()?;
        let seed = seed_of_chunks(&filter);
        let mut start = 0;
        for (layer, stored) in filter.layers_mut().iter_mut().zip(&self.layers) {
            let bytes = if stored.marked > 0 { layer.bytes().len() } else { 0 };
            let mut loaded = 0;
            while loaded < bytes {
                let (bits, checksum) = next()?;
                let chunk = Chunk { offset: start + loaded as u64, bits: bits.as_ref() };
                if chunk.bits.is_empty() || chunk.checksum_with(tag(seed, Some(&*layer))) != checksum {
                    return Err(DecodeError::Corrupt);
                }
                layer.restore_part(loaded, chunk.bits).ok_or(DecodeError::Corrupt)?;
                loaded += chunk.bits.len();
            }
            start += stored.bytes;
        }
        if self.matches_marked(&filter) { Ok(filter) } else { Err(DecodeError::Corrupt) }
    }

    fn matches_marked(&self, filter: &Chain<L>) -> bool {
        self.layers.iter().map(|layer| layer.marked).eq(filter.layers().iter().map(Layer::marked))
    }
}

impl<L: NativeLayer> std::fmt::Debug for Description<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Description").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl<L: NativeLayer> Record<L> {
    fn decode(fields: &mut Fields) -> Result<Record<L>, DecodeError> {
        let [blocks, capacity, items, marked] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let [blocks_per_item, probes] = [fields.u8()?, fields.u8()?];
        zeros(fields, 6)?;
        // Items and cells marked need not agree: a header may be older than the chunks that came with it.
        let sound = (1..MAX_BLOCKS).contains(&blocks)
            && (1..=MAX_BLOCKS_PER_ITEM).contains(&blocks_per_item)
            && u64::from(blocks_per_item) <= blocks
            && probes >= blocks_per_item
            && (1..=i64::MAX as u64).contains(&capacity)
            && marked.div_ceil(L::CELL.per_block()) <= blocks
            && ItemCount::from_bits(items).items() <= MAX_ITEMS;
        if !sound {
            return Err(DecodeError::Corrupt);
        }
        let shape = BlockShape { cell: L::CELL, blocks, blocks_per_item, probes };
        let count = ItemCount::from_bits(items);
        let (spec, counts) = L::decode_extra(shape, capacity, count, fields)?;
        Ok(Record { spec, counts, bytes: shape.bytes(), marked })
    }
}

/// See [`write_rdb`](super::write_rdb).
pub fn write_rdb<L: NativeLayer>(filter: &Chain<L>, sink: &mut impl Sink) -> Result<(), Error> {
    sink.string(&encode_header(filter)?);
    let seed = seed_of_chunks(filter);
    for chunk in chunks(filter) {
        sink.string(chunk.bits);
        sink.unsigned(chunk.checksum_with(chunk.tag_from(seed, filter)));
    }
    Ok(())
}

/// Reads a filter from RDB values. `admit` gets the bytes that it will take, and may reject them.
pub fn read_rdb(source: &mut impl Source, admit: impl FnOnce(u64) -> bool) -> Result<Filter, DecodeError> {
    let header = Header::decode(source.string()?.as_ref())?;
    if !admit(header.memory()) {
        return Err(DecodeError::OutOfMemory);
    }
    header.build_filled(|| Ok((source.string()?, source.unsigned()?)))
}

/// Bits of a filter with the place they belong to.
///
/// A tag stands for the filter's seed and the layer's shape; the checksum covers the bits, the tag and the offset. A chunk is
/// accepted only at its own place and by a filter of the same seed and shape. When it is rejected, the tag tells whether it was
/// damaged or belongs to another filter.
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
        FIRST_CHUNK_CURSOR + self.offset + self.bits.len() as u64
    }

    /// Returns the tag that binds the chunk to `filter`.
    pub fn tag<L: NativeLayer>(&self, filter: &Chain<L>) -> u64 {
        self.tag_from(seed_of_chunks(filter), filter)
    }

    fn tag_from<L: NativeLayer>(&self, seed: u64, filter: &Chain<L>) -> u64 {
        tag(seed, locate(filter.layers(), self.offset).map(|(layer, _)| &filter.layers()[layer]))
    }

    /// Returns the chunk's checksum in an RDB value of `filter`.
    pub fn checksum<L: NativeLayer>(&self, filter: &Chain<L>) -> u64 {
        self.checksum_with(self.tag(filter))
    }

    fn checksum_with(&self, tag: u64) -> u64 {
        xxh3_64_with_seed(self.bits, tag ^ self.offset.wrapping_mul(GOLDEN))
    }
}

/// A chunk of a dump stream: bits, tag and checksum.
pub struct SealedChunk<'a> {
    chunk: Chunk<'a>,
    tag: u64,
    checksum: u64,
}

impl<'a> SealedChunk<'a> {
    /// Splits the data of a chunk.
    pub fn decode(cursor: u64, data: &'a [u8]) -> Result<SealedChunk<'a>, DecodeError> {
        let (data, checksum) = data.split_last_chunk().ok_or(DecodeError::Corrupt)?;
        let (bits, tag) = data.split_last_chunk().ok_or(DecodeError::Corrupt)?;
        let offset = cursor.checked_sub(FIRST_CHUNK_CURSOR).and_then(|end| end.checked_sub(bits.len() as u64));
        let chunk = Chunk { offset: offset.ok_or(DecodeError::Corrupt)?, bits };
        let [tag, checksum] = [*tag, *checksum].map(u64::from_le_bytes);
        Ok(SealedChunk { chunk, tag, checksum })
    }

    /// Checks that the chunk is not damaged.
    pub fn check(&self) -> Result<(), DecodeError> {
        let is_whole = !self.chunk.bits.is_empty() && self.chunk.checksum_with(self.tag) == self.checksum;
        is_whole.then_some(()).ok_or(DecodeError::Corrupt)
    }
}

/// Returns what the tags of all chunks of a filter are seeded with.
fn seed_of_chunks<L: NativeLayer>(filter: &Chain<L>) -> u64 {
    filter.spec().seed ^ L::write_stamp(filter.layers())
}

/// Returns the tag that binds chunks to a layer of the filter with this [`seed_of_chunks`].
fn tag<L: NativeLayer>(seed: u64, layer: Option<&L>) -> u64 {
    let shape = layer.map_or([0; 10], |layer| {
        let BlockShape { blocks, blocks_per_item, probes, .. } = layer.array().shape();
        let [a, b, c, d, e, f, g, h] = blocks.to_le_bytes();
        [a, b, c, d, e, f, g, h, blocks_per_item, probes]
    });
    xxh3_64_with_seed(&shape, seed)
}

/// Returns all chunks of a filter, in order.
pub fn chunks<L: NativeLayer>(filter: &Chain<L>) -> impl Iterator<Item = Chunk<'_>> {
    let mut end = 0;
    filter.layers().iter().flat_map(move |layer| {
        let start = end;
        end += layer.bytes().len() as u64;
        let bits = if layer.marked() > 0 { layer.bytes() } else { &[] };
        let offsets = (start..).step_by(CHUNK_BYTES);
        offsets.zip(bits.chunks(CHUNK_BYTES)).map(|(offset, bits)| Chunk { offset, bits })
    })
}

/// See [`next_chunk`](super::next_chunk).
pub fn next_chunk<L: NativeLayer>(filter: &Chain<L>, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
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

/// Encodes a chunk of a dump stream: bits, tag and checksum.
pub fn encode_chunk<L: NativeLayer>(filter: &Chain<L>, chunk: Chunk<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = try_vec(chunk.bits.len() + TAG_BYTES + CHECKSUM_BYTES)?;
    let tag = chunk.tag(filter);
    bytes.extend_from_slice(chunk.bits);
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&chunk.checksum_with(tag).to_le_bytes());
    Ok(bytes)
}

/// See [`load_chunk`](super::load_chunk).
pub fn load_chunk<'a, L: NativeLayer>(
    filter: &mut Chain<L>,
    cursor: u64,
    data: &'a [u8],
) -> Result<LoadedChunk<'a>, DecodeError> {
    let sealed = SealedChunk::decode(cursor, data)?;
    let Chunk { offset, bits } = sealed.chunk;
    let (layer, within) = locate(filter.layers(), offset).ok_or(DecodeError::NoSuchOffset)?;
    let seed = seed_of_chunks(filter);
    let layer = &mut filter.layers_mut()[layer];
    if bits.len() > layer.bytes().len() - within {
        return Err(DecodeError::BeyondLayer);
    }
    sealed.check()?;
    if sealed.tag != tag(seed, Some(&*layer)) {
        return Err(DecodeError::Foreign);
    }
    let changed = layer.load_part(within, bits).ok_or(DecodeError::Corrupt)?;
    Ok(LoadedChunk { bytes: data, changed })
}

fn zeros(fields: &mut Fields<'_>, length: usize) -> Result<(), DecodeError> {
    let zero = fields.take(length)?.iter().all(|&byte| byte == 0);
    zero.then_some(()).ok_or(DecodeError::Corrupt)
}
