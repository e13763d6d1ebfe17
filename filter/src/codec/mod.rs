//! Encodes filters as bytes, for RDB files, DUMP payloads, AOF rewrites and SCANDUMP.
//!
//! There are two encodings. A *dump stream* (BF.SCANDUMP, BF.LOADCHUNK, AOF) is a header, from which an empty filter is
//! built, and chunks that fill it, each with a cursor. An *RDB value* (RDB files, DUMP payloads) is a sequence of
//! numbers and strings. [`header`], [`chunk`], [`native`], [`counting`], [`windowed`] and [`table`] define their
//! content for our own filters, and [`classic`] for RedisBloom's. [`Filter::to_bytes`] encodes a whole dump stream as
//! one string.
//!
//! Decoding trusts no input. Every number is checked before memory is allocated.

mod bytes;
pub mod chunk;
pub mod classic;
pub mod counting;
mod fields;
pub mod header;
pub mod native;
pub mod table;
pub mod windowed;

use std::borrow::Cow;

use crate::array::Bytes;
use crate::error::{DecodeError, Error};
use crate::filter::{Content, Filter};

/// A destination of RDB values.
pub trait Sink {
    /// Writes an unsigned number.
    fn unsigned(&mut self, number: u64);
    /// Writes a floating-point number.
    fn double(&mut self, number: f64);
    /// Writes a string.
    fn string(&mut self, bytes: &[u8]);
}

/// A source of RDB values, in the order in which they were written.
pub trait Source {
    /// A string that was read.
    type String: AsRef<[u8]>;

    /// Reads an unsigned number.
    fn unsigned(&mut self) -> Result<u64, DecodeError>;
    /// Reads a floating-point number.
    fn double(&mut self) -> Result<f64, DecodeError>;
    /// Reads a string.
    fn string(&mut self) -> Result<Self::String, DecodeError>;

    /// Reads a string of about `bytes` bytes into an array.
    fn array(&mut self, bytes: u64) -> Result<Bytes, DecodeError>;
}

/// Writes a filter as RDB values.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if a part cannot be allocated. The values written so far are incomplete, and cannot be
/// decoded.
pub fn write_rdb(filter: &Filter, sink: &mut impl Sink) -> Result<(), Error> {
    match filter.content() {
        Content::Native(filter) => native::write_rdb(filter, sink),
        Content::Counting(filter) => counting::write_rdb(filter, sink),
        Content::Windowed(filter) => windowed::write_rdb(filter, sink),
        Content::Classic(filter) => {
            classic::write_rdb(filter, sink);
            Ok(())
        }
    }
}

/// Reads one of our own filters from RDB values. Calls `admit` with the bytes that it will take; `admit` may reject
/// them.
pub fn read_own_rdb(source: &mut impl Source, admit: impl FnOnce(u64) -> bool) -> Result<Filter, DecodeError> {
    let header = source.string()?;
    let header = Header::decode_own(header::body(header.as_ref()).ok_or(DecodeError::Corrupt)?)?;
    if !admit(header.memory()) {
        return Err(DecodeError::OutOfMemory);
    }
    match &header {
        Header::Native(header) => native::read_chunks(header, source).map(Filter::from),
        Header::Counting(header) => Ok(Filter::try_from(counting::read_chunks(header, source)?)?),
        Header::Windowed(header) => Ok(Filter::try_from(windowed::read_chunks(header, source)?)?),
        Header::Classic(_) => Err(DecodeError::Corrupt),
    }
}

/// The cursor that comes with the header in a dump stream.
pub const HEADER_CURSOR: u64 = 1;

/// The origin of a dump stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client: chunks are OR-ed in, so that items added since the dump are not lost.
    Client,
    /// A master or our own append-only file: a chunk of a classic filter overwrites the stored bytes.
    Replication,
}

/// Returns the header of a dump stream.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if it cannot be allocated. It has less than 4 KB, or 53 bytes for each layer of a classic
/// filter.
pub fn encode_header(filter: &Filter) -> Result<Vec<u8>, Error> {
    match filter.content() {
        Content::Native(filter) => native::encode_header(filter),
        Content::Counting(filter) => counting::encode_header(filter),
        Content::Windowed(filter) => windowed::encode_header(filter),
        Content::Classic(filter) => classic::encode_header(filter),
    }
}

/// A valid header. Its filter has no items yet.
#[derive(Debug)]
pub enum Header {
    /// The header of a native filter.
    Native(native::NativeHeader),
    /// The header of a counting filter.
    Counting(counting::CountingHeader),
    /// The header of a filter that forgets.
    Windowed(windowed::WindowedHeader),
    /// The header of a classic filter.
    Classic(classic::ClassicHeader),
}

impl Header {
    /// Decodes and checks a header. From a client, a classic header must be one that RedisBloom accepts. From
    /// replication, it may also be that of a very old filter.
    pub fn decode(bytes: &[u8], origin: Origin) -> Result<Header, DecodeError> {
        match header::body(bytes) {
            Some(body) => Header::decode_own(body),
            None => classic::ClassicHeader::decode(bytes, origin).map(Header::Classic),
        }
    }

    fn decode_own(body: &[u8]) -> Result<Header, DecodeError> {
        let preamble = header::Preamble::decode(body)?;
        match preamble.kind {
            header::EncodedKind::Native => native::NativeHeader::decode(preamble).map(Header::Native),
            header::EncodedKind::Counting => counting::CountingHeader::decode(preamble).map(Header::Counting),
            header::EncodedKind::Windowed => windowed::WindowedHeader::decode(preamble).map(Header::Windowed),
        }
    }

    /// Returns the bytes that the filter's items will take.
    pub fn memory(&self) -> u64 {
        match self {
            Header::Native(header) => header.memory(),
            Header::Counting(header) => header.memory(),
            Header::Windowed(header) => header.memory(),
            Header::Classic(header) => header.memory(),
        }
    }

    /// Returns the filter without its items. Its item counts are those of the complete filter.
    pub fn build(&self) -> Result<Filter, DecodeError> {
        match self {
            Header::Native(header) => header.build().map(Filter::from),
            Header::Counting(header) => Ok(Filter::try_from(header.build()?)?),
            Header::Windowed(header) => Ok(Filter::try_from(header.build()?)?),
            Header::Classic(header) => header.build().map(Filter::from),
        }
    }
}

/// A chunk of a dump stream.
pub struct DumpChunk<'a> {
    /// The cursor with which this chunk is loaded and the next one is requested.
    pub cursor: u64,
    /// The bytes of the chunk.
    pub data: Cow<'a, [u8]>,
}

/// Returns the chunk after `cursor`, or `None` after the last. The first chunk is the one after [`HEADER_CURSOR`].
pub fn next_chunk(filter: &Filter, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    match filter.content() {
        Content::Native(filter) => native::next_chunk(filter, cursor),
        Content::Counting(filter) => counting::next_chunk(filter, cursor),
        Content::Windowed(filter) => windowed::next_chunk(filter, cursor),
        Content::Classic(filter) => Ok(classic::next_chunk(filter, cursor)),
    }
}

/// Hands a whole dump stream to `emit`: the header, then the chunks, each with its cursor.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if one of them cannot be allocated.
pub fn dump(filter: &Filter, mut emit: impl FnMut(u64, &[u8])) -> Result<(), Error> {
    emit(HEADER_CURSOR, &encode_header(filter)?);
    let mut cursor = HEADER_CURSOR;
    while let Some(chunk) = next_chunk(filter, cursor)? {
        cursor = chunk.cursor;
        emit(cursor, &chunk.data);
    }
    Ok(())
}

/// Hands everything that distinguishes a filter to `add`: its header and its content. Bits are not copied.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if there is no memory for the header or for a copy of a table's chunk.
pub fn digest(filter: &Filter, mut add: impl FnMut(&[u8])) -> Result<(), Error> {
    add(&encode_header(filter)?);
    match filter.content() {
        Content::Native(filter) => {
            add(filter.layer().bytes());
            filter.table().map_or(Ok(()), |table| table::each_part(table, |part, _end| add(part)))?;
        }
        Content::Counting(filter) => table::each_part(filter.table(), |part, _end| add(part))?,
        Content::Windowed(filter) => {
            for table in windowed::tables(filter) {
                table::each_part(table, |part, _end| add(part))?;
            }
        }
        Content::Classic(filter) => filter.layers().iter().for_each(|layer| add(layer.bytes())),
    }
    Ok(())
}

/// A chunk that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedChunk<'a> {
    /// The bytes now stored at the chunk's offset. The caller replicates these if they differ from the chunk.
    pub bytes: &'a [u8],
    /// True if the chunk changed the filter.
    pub changed: bool,
}

/// Loads a chunk into a filter that was built from the dump stream's header.
///
/// Chunks of native filters are OR-ed in, or their entries added, on replicas too. Chunks of a counting filter, or of
/// one that forgets, are rejected if either filter was written to after the header was encoded.
///
/// # Errors
///
/// [`DecodeError::Corrupt`] if the chunk is damaged; another error if it is not damaged, but does not fit this filter.
pub fn load_chunk<'a>(
    filter: &'a mut Filter,
    cursor: u64,
    data: &'a [u8],
    origin: Origin,
) -> Result<LoadedChunk<'a>, DecodeError> {
    match filter.content_mut() {
        Content::Native(filter) => native::load_chunk(filter, cursor, data),
        Content::Counting(filter) => counting::load_chunk(filter, cursor, data),
        Content::Windowed(filter) => windowed::load_chunk(filter, cursor, data),
        Content::Classic(filter) => classic::load_chunk(filter, cursor, data, origin),
    }
}

/// Returns true if `cursor` and `data` are the header of a dump stream.
pub fn is_header(cursor: u64, data: &[u8]) -> bool {
    cursor == HEADER_CURSOR && !data.is_empty()
}

/// Checks the header or a chunk of a dump stream without its filter. Classic chunks have no checksum, so little can be
/// checked.
///
/// # Errors
///
/// [`DecodeError::Corrupt`] or [`DecodeError::NewerVersion`] if no filter can accept it.
pub fn check_chunk(cursor: u64, data: &[u8]) -> Result<(), DecodeError> {
    if is_header(cursor, data) {
        Header::decode(data, Origin::Replication).map(drop)
    } else if cursor >= chunk::FIRST_CHUNK_CURSOR {
        chunk::SealedChunk::decode(cursor, data)?.check()
    } else {
        cursor.checked_sub(data.len() as u64).map(drop).ok_or(DecodeError::Corrupt)
    }
}
