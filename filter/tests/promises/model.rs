//! Shared parts of the tests: filters with plain numbers as parameters, and copies through a file or a client.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use oxbloom_filter::internals::codec::chunk::{self, BITS_CHUNK_BYTES, FIRST_CHUNK_CURSOR};
use oxbloom_filter::internals::codec::{self, Encoding, Origin, Sink, Source, packing};
use oxbloom_filter::internals::{
    Admit, AnyFilter, BlockedLayer, Bytes, CreateParams, ErrorRate, Growth, Hash, Interrupted, Kind, KindParams,
    NativeFilter, OnDuplicate,
};
use oxbloom_filter::{DecodeError, Error, Filter};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const CLASSIC: KindParams = KindParams::Classic { stored_expansion: 2 };

pub(crate) fn params_of(kind: KindParams, error_rate: f64, capacity: u64, growth: Growth) -> CreateParams {
    let (error_rate, capacity) = (ErrorRate::new(error_rate).unwrap(), capacity.try_into().unwrap());
    CreateParams { error_rate, capacity, growth, kind }
}

pub(crate) fn params(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> CreateParams {
    params_of(KindParams::Native { seed }, error_rate, capacity, growth)
}

pub(crate) fn create(params: CreateParams) -> Filter {
    Filter::create(params, &mut |_| true).unwrap()
}

pub(crate) fn filter(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> Filter {
    create(params(error_rate, capacity, growth, seed))
}

pub(crate) const fn by(expansion: u32) -> Growth {
    Growth::By(NonZeroU32::new(expansion).unwrap())
}

/// Returns a filter as a native filter.
pub(crate) fn native_of(filter: &Filter) -> &NativeFilter {
    match filter.by_kind() {
        AnyFilter::Native(filter) => filter,
        _ => panic!("not a native filter"),
    }
}

/// Returns the blocks of a native filter.
pub(crate) fn layer(filter: &Filter) -> &BlockedLayer {
    native_of(filter).layer()
}

/// Returns the item for a number. Different numbers give different items.
pub(crate) fn item(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// Inserts items in batches. Repeats the given batch sizes as often as necessary.
pub(crate) fn insert_in_batches(filter: &mut Filter, items: &[Vec<u8>], sizes: &[usize]) -> Vec<Result<bool, Error>> {
    let hashes: Vec<_> = items.iter().map(|item| filter.hash(item)).collect();
    let (mut rest, mut answers) = (hashes.as_slice(), Vec::new());
    for &size in sizes.iter().cycle() {
        let (batch, others) = rest.split_at(size.min(rest.len()));
        rest = others;
        answers.extend(insert_batch(filter, batch, OnDuplicate::Count));
        if rest.is_empty() {
            break;
        }
    }
    answers
}

/// Inserts a batch. Skips items that do not fit, and continues after them.
pub(crate) fn insert_batch(
    filter: &mut Filter,
    mut batch: &[Hash],
    on_duplicate: OnDuplicate,
) -> Vec<Result<bool, Error>> {
    let mut answers = Vec::new();
    while !batch.is_empty() {
        let mut new = vec![true; batch.len()];
        let (handled, failure) =
            match filter.insert_hashes(batch, &mut new, &mut [], &on_duplicate.into(), &mut |_| true) {
                Ok(()) => (batch.len(), None),
                Err(Interrupted { handled, error }) => (handled, Some(Err(error))),
            };
        answers.extend(new[..handled].iter().map(|&new| Ok(new)));
        batch = &batch[(handled + usize::from(failure.is_some())).min(batch.len())..];
        answers.extend(failure);
    }
    answers
}

/// Returns the bytes of a filter's content.
pub(crate) fn content_bytes(filter: &Filter) -> Vec<u8> {
    match filter.by_kind() {
        AnyFilter::Native(native) if native.table().is_none() => layer(filter).bytes().to_vec(),
        AnyFilter::Classic(chain) => chain.chain().iter().flat_map(|layer| layer.bytes()).copied().collect(),
        _ => chunks(filter).into_iter().flat_map(|(_, chunk)| chunk).collect(),
    }
}

/// Returns the chunks of a dump, each with its cursor.
pub(crate) fn chunks(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    let chunks = codec::dump(filter).skip(1).map(|chunk| chunk.unwrap());
    chunks.map(|chunk| (chunk.cursor, chunk.data.into_owned())).collect()
}

/// Returns the header and the content of a filter. Filters are the same if both are equal.
pub(crate) fn whole(filter: &Filter) -> (Vec<u8>, Vec<u8>) {
    (codec::encode_header(filter).unwrap(), content_bytes(filter))
}

/// Builds the empty filter of a header.
pub(crate) fn built(header: &[u8]) -> Result<Filter, DecodeError> {
    codec::Header::decode(header, Origin::Client)?.build()
}

/// Returns the header of a filter without its checksum.
pub(crate) fn body(filter: &Filter) -> Vec<u8> {
    let header = codec::encode_header(filter).unwrap();
    header[..header.len() - 8].to_vec()
}

pub(crate) fn with_checksum(body: &[u8]) -> Vec<u8> {
    [body, &xxh3_64(body).to_le_bytes()].concat()
}

/// A value in an RDB file.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Unsigned(u64),
    Double(f64),
    String(Vec<u8>),
}

/// An RDB file in memory.
#[derive(Default)]
struct File(VecDeque<Value>);

impl Sink for File {
    fn unsigned(&mut self, number: u64) {
        self.0.push_back(Value::Unsigned(number));
    }

    fn double(&mut self, number: f64) {
        self.0.push_back(Value::Double(number));
    }

    fn string(&mut self, bytes: &[u8]) {
        self.0.push_back(Value::String(bytes.to_vec()));
    }
}

impl Source for File {
    type String = Vec<u8>;

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        match self.0.pop_front() {
            Some(Value::Unsigned(number)) => Ok(number),
            _ => Err(DecodeError::Corrupt),
        }
    }

    fn double(&mut self) -> Result<f64, DecodeError> {
        match self.0.pop_front() {
            Some(Value::Double(number)) => Ok(number),
            _ => Err(DecodeError::Corrupt),
        }
    }

    fn string(&mut self) -> Result<Vec<u8>, DecodeError> {
        match self.0.pop_front() {
            Some(Value::String(bytes)) => Ok(bytes),
            _ => Err(DecodeError::Corrupt),
        }
    }

    fn has_string_next(&self) -> Option<bool> {
        Some(matches!(self.0.front(), Some(Value::String(_))))
    }

    fn array(&mut self, _bytes: u64) -> Result<Bytes, DecodeError> {
        Ok(Bytes::copied(&Source::string(self)?)?)
    }
}

/// Writes a filter to an RDB file, and reads it back.
pub(crate) fn through_a_file(filter: &Filter) -> Filter {
    read_from_file(filter, &mut |_| true)
}

/// Writes a filter to an RDB file, and reads it back within the memory that `admit` grants.
pub(crate) fn read_from_file(filter: &Filter, admit: Admit<'_>) -> Filter {
    let mut file = File::default();
    codec::write_rdb(filter, &mut file).unwrap();
    file.read(filter.kind(), admit).unwrap()
}

/// Returns the values of a filter's RDB file as bytes: for each, a letter, and a number or a length with the bytes.
pub(crate) fn values(filter: &Filter) -> Vec<u8> {
    let mut file = File::default();
    codec::write_rdb(filter, &mut file).unwrap();
    let mut bytes = Vec::new();
    for value in file.0 {
        let (letter, number, string) = match value {
            Value::Unsigned(number) => (b'u', number, vec![]),
            Value::Double(number) => (b'd', number.to_bits(), vec![]),
            Value::String(string) => (b's', string.len() as u64, string),
        };
        bytes.push(letter);
        bytes.extend(number.to_le_bytes());
        bytes.extend(string);
    }
    bytes
}

/// Reads a filter of the same kind as `filter` from the values that [`values`] returned.
pub(crate) fn read_values(filter: &Filter, mut bytes: &[u8]) -> Result<Filter, DecodeError> {
    let mut file = File::default();
    while let Some((letter, rest)) = bytes.split_first() {
        let (number, rest) = rest.split_first_chunk().ok_or(DecodeError::Corrupt)?;
        let number = u64::from_le_bytes(*number);
        let length = if *letter == b's' { number as usize } else { 0 };
        let (string, rest) = rest.split_at_checked(length).ok_or(DecodeError::Corrupt)?;
        file.0.push_back(match letter {
            b'u' => Value::Unsigned(number),
            b'd' => Value::Double(f64::from_bits(number)),
            _ => Value::String(string.to_vec()),
        });
        bytes = rest;
    }
    file.read(filter.kind(), &mut |_| true)
}

impl File {
    /// Reads a filter of a kind, and checks that nothing is left.
    fn read(mut self, kind: Kind, admit: Admit<'_>) -> Result<Filter, DecodeError> {
        let encoding = Encoding::of(kind);
        let filter = encoding.read(encoding.version().into(), &mut self, admit);
        assert!(self.0.is_empty() || filter.is_err());
        filter
    }
}

/// Loads a chunk like a client.
pub(crate) fn load(filter: &mut Filter, cursor: u64, data: &[u8]) -> Result<(), DecodeError> {
    codec::load_chunk(filter, cursor, data, Origin::Client, &mut |_| true).map(|_| ())
}

/// Copies a filter like a client: one chunk with its cursor per request.
pub(crate) fn through_a_client(filter: &Filter) -> Filter {
    let header = codec::encode_header(filter).unwrap();
    let mut copy = built(&header).unwrap();
    let mut cursor = codec::HEADER_CURSOR;
    while let Some(chunk) = codec::next_chunk(filter, cursor).unwrap() {
        assert!(chunk.cursor > cursor);
        cursor = chunk.cursor;
        load(&mut copy, cursor, &chunk.data).unwrap();
    }
    assert!(is_complete(&header, &copy));
    copy
}

/// Returns true if all content of a header's filter is loaded.
pub(crate) fn is_complete(header: &[u8], filter: &Filter) -> bool {
    codec::encode_header(filter).unwrap() == header
}

/// Bits of a native filter, with the offset of the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk<'a> {
    pub(crate) offset: u64,
    pub(crate) bits: &'a [u8],
}

impl Chunk<'_> {
    pub(crate) fn end(&self) -> u64 {
        self.offset.wrapping_add(self.bits.len() as u64)
    }

    pub(crate) fn cursor(&self) -> u64 {
        FIRST_CHUNK_CURSOR.wrapping_add(self.end())
    }

    /// Returns the chunk of a filter's dump stream.
    pub(crate) fn sealed(&self, filter: &Filter) -> Vec<u8> {
        chunk::seal(self.bits, self.end(), codec::tags(filter).unwrap()[0]).unwrap()
    }

    /// Returns the checksum in a filter's file.
    pub(crate) fn checksum(&self, filter: &Filter) -> u64 {
        chunk::checksum(self.bits, self.end(), codec::tags(filter).unwrap()[0])
    }
}

/// Returns the chunks of a native filter's bits.
pub(crate) fn chunks_of_bits(filter: &Filter) -> impl Iterator<Item = Chunk<'_>> {
    let bits = layer(filter).bytes().chunks(BITS_CHUNK_BYTES);
    (0..).step_by(BITS_CHUNK_BYTES).zip(bits).map(|(offset, bits)| Chunk { offset, bits })
}

/// Reads a filter from a file with a header, and chunks with their checksums.
pub(crate) fn read_file<B: AsRef<[u8]>>(
    header: &[u8],
    chunks: impl IntoIterator<Item = (B, u64)>,
) -> Result<Filter, DecodeError> {
    let packed = packing::pack(&header[..header.len() - 8]).unwrap();
    let mut file = File::default();
    file.0.push_back(Value::String(with_checksum(&packed)));
    for (content, checksum) in chunks {
        file.0.extend([Value::String(content.as_ref().to_vec()), Value::Unsigned(checksum)]);
    }
    file.read(Kind::Native, &mut |_| true)
}

/// Returns the number of bytes that a filter requests from an allocator that aligns to cache lines.
pub(crate) fn memory_when_aligned(filter: &Filter) -> usize {
    let table = native_of(filter).table().map_or(0, |table| size_of_val(table) + table.allocated());
    size_of::<Filter>() + layer(filter).shape().bytes() as usize + table
}
