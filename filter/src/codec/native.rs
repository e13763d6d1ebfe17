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
//!        lines, probes (u8 each), six zero bytes
//!        of counters: occurrences, history (u64 each), share (u16), six zero bytes
//!  end XXH3-64 of all before it
//! ```
//!
//! Whatever the version, a header starts with the three letters and the version, and ends with the checksum: it could otherwise
//! be a classic one, which starts with its number of items.
//!
//! A layer without a marked cell has no chunks, so that a large filter that was only reserved costs a few bytes. The shape of
//! each layer is stored, never computed again: a later version may size new filters better, and still read old ones.
//!
//! The checksums refuse a chunk that was damaged, or belongs to another filter or another place; see [`Chunk`]. A file holds
//! the header as a string, and for each chunk its bits as a string and its checksum as a number. In a walk, the tag and the
//! checksum are the end of the chunk.
//!
//! The bits of chunks are merged into what is there already, so that a filter may be in use while it is copied. Counters cannot
//! be: an item that was removed or moved to another layer between two chunks would be half there. Their tags are seeded
//! with all that is counted of the filter as well, and a sum of hashes of all that was ever written to it: chunks are only taken from the filter that the
//! header was made of, and by the filter that was made of the header, while neither was written to.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::num::NonZeroU32;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::super::chain::{Chain, Layer};
use super::super::hash::GOLDEN;
use super::super::sizing::{BLOCK_BYTES, Cell, MAX_BLOCKS, MAX_LINES, Shape};
use super::super::table::{Count, Plan, Table};
use super::super::{Error, ErrorRate, Filter, Growth, MAX_ITEMS, MAX_LAYERS, blocked, counting};
use super::{
    DecodeError, Fields, HEADER_ITERATOR, Loaded, Piece, Sink, Source, decode_all, empty_chain, locate, with_room,
};

/// The version of the encoding that is written, and the first that was released. Later ones are refused.
pub const VERSION: u8 = 2;

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
const FIXED_BYTES: usize = 32;
const LAYER_BYTES: usize = 40;
const TAG_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 8;

/// A layer as it is stored.
pub trait Stored: Layer<Plan = Plan> {
    const CELL: Cell;

    /// Bytes in the header beyond those that all layers have.
    const MORE_BYTES: usize;

    fn table(&self) -> &Table;

    fn count(&self) -> Count;

    /// Writes what the layer has beyond what all have.
    fn encode_more(&self, header: &mut Vec<u8>);

    /// Reads it back.
    fn decode_more(
        shape: Shape,
        capacity: u64,
        count: Count,
        fields: &mut Fields<'_>,
    ) -> Result<(Self::Design, Self::Counts), DecodeError>;

    /// What the chunks of `layers` are tied to, beside their place.
    fn state(layers: &[Self]) -> u64;

    /// Fills a part of a new layer, from byte `offset` on. `None` if it is not whole blocks of the layer.
    fn restore(&mut self, offset: usize, bytes: &[u8]) -> Option<()>;

    /// As [`restore`](Self::restore), for a layer that may have been restored before, or in use. Returns whether it changed.
    fn receive(&mut self, offset: usize, bytes: &[u8]) -> Option<bool>;
}

impl Stored for blocked::Layer {
    const CELL: Cell = Cell::Bit;
    const MORE_BYTES: usize = 0;

    fn table(&self) -> &Table {
        self.table()
    }

    fn count(&self) -> Count {
        self.counts()
    }

    fn encode_more(&self, _header: &mut Vec<u8>) {}

    fn decode_more(
        shape: Shape,
        capacity: u64,
        count: Count,
        _fields: &mut Fields<'_>,
    ) -> Result<(blocked::Design, Count), DecodeError> {
        let sound = count.items() <= capacity || count.is_estimate();
        sound.then_some((blocked::Design { shape, capacity }, count)).ok_or(DecodeError::Corrupt)
    }

    fn state(_layers: &[blocked::Layer]) -> u64 {
        0
    }

    fn restore(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        self.restore(offset, bytes)
    }

    fn receive(&mut self, offset: usize, bytes: &[u8]) -> Option<bool> {
        self.merge(offset, bytes)
    }
}

impl Stored for counting::Layer {
    const CELL: Cell = Cell::Counter;
    const MORE_BYTES: usize = 24;

    fn table(&self) -> &Table {
        self.table()
    }

    fn count(&self) -> Count {
        self.counts().count
    }

    fn encode_more(&self, header: &mut Vec<u8>) {
        let counting::Counts { occurrences, history, .. } = self.counts();
        header.extend_from_slice(&occurrences.to_le_bytes());
        header.extend_from_slice(&history.to_le_bytes());
        header.extend_from_slice(&self.design().share.to_le_bytes());
        header.extend_from_slice(&[0; 6]);
    }

    fn decode_more(
        shape: Shape,
        capacity: u64,
        count: Count,
        fields: &mut Fields<'_>,
    ) -> Result<(counting::Design, counting::Counts), DecodeError> {
        let [occurrences, history] = [fields.u64()?, fields.u64()?];
        let share = fields.array().copied().map(u16::from_le_bytes)?;
        zeros(fields, 6)?;
        let sound = usize::from(share) < MAX_LAYERS;
        let counts = counting::Counts { count, occurrences, history };
        sound.then_some((counting::Design { shape, capacity, share }, counts)).ok_or(DecodeError::Corrupt)
    }

    fn state(layers: &[counting::Layer]) -> u64 {
        layers.iter().fold(layers.len() as u64, |state, layer| {
            let counting::Counts { count, occurrences, history } = layer.counts();
            let numbers = [layer.capacity(), count.bits(), occurrences, history, layer.design().share.into()];
            xxh3_64_with_seed(numbers.map(u64::to_le_bytes).as_flattened(), state)
        })
    }

    fn restore(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        self.restore(offset, bytes)
    }

    fn receive(&mut self, offset: usize, bytes: &[u8]) -> Option<bool> {
        self.replace(offset, bytes)
    }
}

/// See [`encode_header`](super::encode_header).
pub fn encode_header<L: Stored>(filter: &Chain<L>) -> Result<Vec<u8>, Error> {
    let Plan { seed, error_rate, .. } = filter.plan();
    let expansion = filter.plan().expansion().unwrap_or(0);
    let layers = filter.layers();
    let mut header = with_room(FIXED_BYTES + layers.len() * (LAYER_BYTES + L::MORE_BYTES) + CHECKSUM_BYTES)?;
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&[VERSION, code(L::CELL), 0, 0, 0]);
    header.extend_from_slice(&expansion.to_le_bytes());
    header.extend_from_slice(&(layers.len() as u32).to_le_bytes());
    header.extend_from_slice(&seed.to_le_bytes());
    header.extend_from_slice(&error_rate.get().to_le_bytes());
    for layer in layers {
        let Shape { blocks, lines, probes, .. } = layer.table().shape();
        for number in [blocks, layer.capacity(), layer.count().bits(), layer.marked()] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&[lines, probes, 0, 0, 0, 0, 0, 0]);
        layer.encode_more(&mut header);
    }
    let checksum = xxh3_64(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    Ok(header)
}

/// What is between the letters and the checksum of a native header, of whatever version. `None` if the bytes are no such
/// header, also if they only start like one.
pub fn header_body(bytes: &[u8]) -> Option<&[u8]> {
    let (header, checksum) = bytes.split_last_chunk()?;
    let body = header.strip_prefix(MAGIC)?;
    (u64::from_le_bytes(*checksum) == xxh3_64(header)).then_some(body)
}

/// What stands for a kind of cells in a header.
const fn code(cell: Cell) -> u8 {
    match cell {
        Cell::Bit => 0,
        Cell::Counter => 1,
    }
}

/// A header that was found sound. Its filter has no bits yet.
#[derive(Debug)]
pub enum Header {
    Bits(Description<blocked::Layer>),
    Counters(Description<counting::Layer>),
}

impl Header {
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

    /// Bytes that the layers' bits will take.
    pub fn memory(&self) -> u64 {
        match self {
            Header::Bits(description) => description.memory(),
            Header::Counters(description) => description.memory(),
        }
    }

    /// The filter, with no bit set yet; its items count as if they were.
    pub fn build(&self) -> Result<Filter, DecodeError> {
        match self {
            Header::Bits(description) => description.build().map(Filter::Native),
            Header::Counters(description) => description.build().map(Filter::Counting),
        }
    }

    /// Whether `filter`, with all its chunks loaded, has as many cells marked as the one that was encoded.
    pub fn describes(&self, filter: &Filter) -> bool {
        match (self, filter) {
            (Header::Bits(description), Filter::Native(chain)) => description.describes(chain),
            (Header::Counters(description), Filter::Counting(chain)) => description.describes(chain),
            _ => false,
        }
    }

    /// The filter with its bits. `next` returns the bits of each chunk, in order, and their checksum.
    pub fn load<B: AsRef<[u8]>>(
        &self,
        next: impl FnMut() -> Result<(B, u64), DecodeError>,
    ) -> Result<Filter, DecodeError> {
        match self {
            Header::Bits(description) => description.load(next).map(Filter::Native),
            Header::Counters(description) => description.load(next).map(Filter::Counting),
        }
    }
}

/// The filter of a header.
pub struct Description<L: Stored> {
    plan: Plan,
    layers: Vec<Record<L>>,
}

struct Record<L: Stored> {
    design: L::Design,
    counts: L::Counts,
    bytes: u64,
    marked: u64,
}

impl<L: Stored> Description<L> {
    /// What follows the kind of cells.
    fn decode(mut fields: Fields<'_>) -> Result<Description<L>, DecodeError> {
        zeros(&mut fields, 3)?;
        let growth = NonZeroU32::new(fields.u32()?).map_or(Growth::Fixed, Growth::By);
        let layers = fields.u32()? as usize;
        let seed = fields.u64()?;
        let error_rate = ErrorRate::new(fields.f64()?).ok_or(DecodeError::Corrupt)?;
        let most = if growth == Growth::Fixed { 1 } else { MAX_LAYERS };
        if !(1..=most).contains(&layers) || fields.0.len() != layers * (LAYER_BYTES + L::MORE_BYTES) {
            return Err(DecodeError::Corrupt);
        }
        let layers = decode_all(layers, || Record::decode(&mut fields))?;
        let description = Description { plan: Plan { seed, error_rate, growth }, layers };
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
        empty_chain(self.plan, self.layers.iter().map(|layer| (layer.design, layer.counts)))
    }

    fn load<B: AsRef<[u8]>>(
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
                layer.restore(loaded, chunk.bits).ok_or(DecodeError::Corrupt)?;
                loaded += chunk.bits.len();
            }
            start += stored.bytes;
        }
        if self.describes(&filter) { Ok(filter) } else { Err(DecodeError::Corrupt) }
    }

    fn describes(&self, filter: &Chain<L>) -> bool {
        self.layers.iter().map(|layer| layer.marked).eq(filter.layers().iter().map(Layer::marked))
    }
}

impl<L: Stored> std::fmt::Debug for Description<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Description").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl<L: Stored> Record<L> {
    fn decode(fields: &mut Fields) -> Result<Record<L>, DecodeError> {
        let [blocks, capacity, items, marked] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let [lines, probes] = [fields.u8()?, fields.u8()?];
        zeros(fields, 6)?;
        // Items and cells marked need not agree: a header may be older than the chunks that came with it.
        let sound = (1..MAX_BLOCKS).contains(&blocks)
            && (1..=MAX_LINES).contains(&lines)
            && u64::from(lines) <= blocks
            && probes >= lines
            && (1..=i64::MAX as u64).contains(&capacity)
            && marked.div_ceil(L::CELL.per_block()) <= blocks
            && Count::from_bits(items).items() <= MAX_ITEMS;
        if !sound {
            return Err(DecodeError::Corrupt);
        }
        let shape = Shape { cell: L::CELL, blocks, lines, probes };
        let count = Count::from_bits(items);
        let (design, counts) = L::decode_more(shape, capacity, count, fields)?;
        Ok(Record { design, counts, bytes: shape.bytes(), marked })
    }
}

/// See [`save`](super::save).
pub fn save<L: Stored>(filter: &Chain<L>, sink: &mut impl Sink) -> Result<(), Error> {
    sink.string(&encode_header(filter)?);
    let seed = seed_of_chunks(filter);
    for chunk in chunks(filter) {
        sink.string(chunk.bits);
        sink.unsigned(chunk.checksum_with(chunk.tag_from(seed, filter)));
    }
    Ok(())
}

/// Reads a filter from a file. `admit` is told the bytes that it will take, and may refuse them.
pub fn load(source: &mut impl Source, admit: impl FnOnce(u64) -> bool) -> Result<Filter, DecodeError> {
    let header = Header::decode(source.string()?.as_ref())?;
    if !admit(header.memory()) {
        return Err(DecodeError::OutOfMemory);
    }
    header.load(|| Ok((source.string()?, source.unsigned()?)))
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
    /// The iterator that comes with the chunk in a walk: the offset behind it, counted from [`ORIGIN`].
    pub fn iterator(&self) -> u64 {
        ORIGIN + self.offset + self.bits.len() as u64
    }

    /// The tag that binds the chunk to `filter`.
    pub fn tag<L: Stored>(&self, filter: &Chain<L>) -> u64 {
        self.tag_from(seed_of_chunks(filter), filter)
    }

    fn tag_from<L: Stored>(&self, seed: u64, filter: &Chain<L>) -> u64 {
        tag(seed, locate(filter.layers(), self.offset).map(|(layer, _)| &filter.layers()[layer]))
    }

    /// The checksum that goes with the chunk in a file of `filter`.
    pub fn checksum<L: Stored>(&self, filter: &Chain<L>) -> u64 {
        self.checksum_with(self.tag(filter))
    }

    fn checksum_with(&self, tag: u64) -> u64 {
        xxh3_64_with_seed(self.bits, tag ^ self.offset.wrapping_mul(GOLDEN))
    }
}

/// A chunk as it travels in a walk: bits, tag and checksum.
pub struct TravellingChunk<'a> {
    chunk: Chunk<'a>,
    tag: u64,
    checksum: u64,
}

impl<'a> TravellingChunk<'a> {
    /// Takes the data of a chunk apart.
    pub fn decode(iterator: u64, data: &'a [u8]) -> Result<TravellingChunk<'a>, DecodeError> {
        let (data, checksum) = data.split_last_chunk().ok_or(DecodeError::Corrupt)?;
        let (bits, tag) = data.split_last_chunk().ok_or(DecodeError::Corrupt)?;
        let offset = iterator.checked_sub(ORIGIN).and_then(|end| end.checked_sub(bits.len() as u64));
        let chunk = Chunk { offset: offset.ok_or(DecodeError::Corrupt)?, bits };
        let [tag, checksum] = [*tag, *checksum].map(u64::from_le_bytes);
        Ok(TravellingChunk { chunk, tag, checksum })
    }

    /// Checks that the chunk is not damaged.
    pub fn check(&self) -> Result<(), DecodeError> {
        let is_whole = !self.chunk.bits.is_empty() && self.chunk.checksum_with(self.tag) == self.checksum;
        is_whole.then_some(()).ok_or(DecodeError::Corrupt)
    }
}

/// What the checksums of all chunks of a filter start from.
fn seed_of_chunks<L: Stored>(filter: &Chain<L>) -> u64 {
    filter.plan().seed ^ L::state(filter.layers())
}

/// The tag that binds chunks to a layer of the filter with this [`seed_of_chunks`].
fn tag<L: Stored>(seed: u64, layer: Option<&L>) -> u64 {
    let shape = layer.map_or([0; 10], |layer| {
        let Shape { blocks, lines, probes, .. } = layer.table().shape();
        let [a, b, c, d, e, f, g, h] = blocks.to_le_bytes();
        [a, b, c, d, e, f, g, h, lines, probes]
    });
    xxh3_64_with_seed(&shape, seed)
}

/// All chunks of a filter, in order.
pub fn chunks<L: Stored>(filter: &Chain<L>) -> impl Iterator<Item = Chunk<'_>> {
    let mut end = 0;
    filter.layers().iter().flat_map(move |layer| {
        let start = end;
        end += layer.bytes().len() as u64;
        let bits = if layer.marked() > 0 { layer.bytes() } else { &[] };
        let offsets = (start..).step_by(CHUNK_BYTES);
        offsets.zip(bits.chunks(CHUNK_BYTES)).map(|(offset, bits)| Chunk { offset, bits })
    })
}

/// See [`next_piece`](super::next_piece).
pub fn next_piece<L: Stored>(filter: &Chain<L>, iterator: u64) -> Result<Option<Piece<'_>>, Error> {
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

/// A chunk as it travels in a walk: bits, tag and checksum.
pub fn encode_chunk<L: Stored>(filter: &Chain<L>, chunk: Chunk<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = with_room(chunk.bits.len() + TAG_BYTES + CHECKSUM_BYTES)?;
    let tag = chunk.tag(filter);
    bytes.extend_from_slice(chunk.bits);
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&chunk.checksum_with(tag).to_le_bytes());
    Ok(bytes)
}

/// See [`load_piece`](super::load_piece).
pub fn load_piece<'a, L: Stored>(
    filter: &mut Chain<L>,
    iterator: u64,
    data: &'a [u8],
) -> Result<Loaded<'a>, DecodeError> {
    let travelling = TravellingChunk::decode(iterator, data)?;
    let Chunk { offset, bits } = travelling.chunk;
    let (layer, within) = locate(filter.layers(), offset).ok_or(DecodeError::NoSuchOffset)?;
    let seed = seed_of_chunks(filter);
    let layer = &mut filter.layers_mut()[layer];
    if bits.len() > layer.bytes().len() - within {
        return Err(DecodeError::BeyondLayer);
    }
    travelling.check()?;
    if travelling.tag != tag(seed, Some(&*layer)) {
        return Err(DecodeError::Foreign);
    }
    let changed = layer.receive(within, bits).ok_or(DecodeError::Corrupt)?;
    Ok(Loaded { bytes: data, changed })
}

fn zeros(fields: &mut Fields<'_>, length: usize) -> Result<(), DecodeError> {
    let zero = fields.take(length)?.iter().all(|&byte| byte == 0);
    zero.then_some(()).ok_or(DecodeError::Corrupt)
}
