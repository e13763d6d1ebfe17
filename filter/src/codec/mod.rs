//! A filter as bytes: what RDB files, DUMP payloads, AOF rewrites and SCANDUMP have in common.
//!
//! There are two encodings. A *dump stream* (BF.SCANDUMP, BF.LOADCHUNK, AOF) is a header, from which an empty filter is built,
//! and chunks that fill it, each with its cursor. An *RDB* value (RDB files, DUMP payloads) is a sequence of numbers and
//! strings. [`native`] says what they hold for our own layouts, [`classic`] for RedisBloom's. [`Filter::to_bytes`] encodes a
//! whole dump stream as one string.
//!
//! Decoding trusts nothing. Every number is checked before memory is requested.

mod bytes;
pub mod classic;
pub mod native;

use std::borrow::Cow;

use crate::array::Bytes;
use crate::error::{DecodeError, Error, try_vec};
use crate::filter::{Chains, Filter, LayerKind};
use crate::layer::Layer;

/// Where RDB values are written to.
pub trait Sink {
    /// Writes an unsigned number.
    fn unsigned(&mut self, number: u64);
    /// Writes a floating-point number.
    fn double(&mut self, number: f64);
    /// Writes a string.
    fn string(&mut self, bytes: &[u8]);
}

/// Where RDB values are read from, in the order in which they were written.
pub trait Source {
    /// A string that was read.
    type String: AsRef<[u8]>;

    /// Reads an unsigned number.
    fn unsigned(&mut self) -> Result<u64, DecodeError>;
    /// Reads a floating-point number.
    fn double(&mut self) -> Result<f64, DecodeError>;
    /// Reads a string.
    fn string(&mut self) -> Result<Self::String, DecodeError>;

    /// Reads a string to keep, of about `bytes` bytes.
    fn array(&mut self, bytes: u64) -> Result<Bytes, DecodeError>;
}

/// Writes a filter as RDB values.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if the header cannot be allocated. What was written so far cannot be read back.
pub fn write_rdb(filter: &Filter, sink: &mut impl Sink) -> Result<(), Error> {
    match filter.chains() {
        Chains::Native(chain) => native::write_rdb(chain, sink),
        Chains::Counting(chain) => native::write_rdb(chain, sink),
        Chains::Classic(chain) => {
            classic::write_rdb(chain, sink);
            Ok(())
        }
    }
}

/// The cursor that comes with the header in a dump stream.
pub const HEADER_CURSOR: u64 = 1;

/// Where a dump stream comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client: bits that are set stay set, so that no item that was added in between is lost.
    Client,
    /// A master or our own append-only file: each chunk replaces what is stored.
    Replication,
}

/// Returns the header of a dump stream.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if it cannot be allocated: it takes up to 64 bytes a layer.
pub fn encode_header(filter: &Filter) -> Result<Vec<u8>, Error> {
    match filter.chains() {
        Chains::Native(chain) => native::encode_header(chain),
        Chains::Counting(chain) => native::encode_header(chain),
        Chains::Classic(chain) => classic::encode_header(chain),
    }
}

/// A valid header. Its filter has no bits yet.
#[derive(Debug)]
pub enum Header {
    /// Of a native or counting filter.
    Native(native::Header),
    /// Of a classic filter.
    Classic(classic::Header),
}

impl Header {
    /// Checks a header. A classic header from a client must be one that RedisBloom accepts; from replication, it may also be that of
    /// a very old filter.
    pub fn decode(bytes: &[u8], origin: Origin) -> Result<Header, DecodeError> {
        match native::header_body(bytes) {
            Some(body) => native::Header::decode_body(body).map(Header::Native),
            None => classic::Header::decode(bytes, origin).map(Header::Classic),
        }
    }

    /// Returns the bytes that the cells of all layers will take.
    pub fn memory(&self) -> u64 {
        match self {
            Header::Native(header) => header.memory(),
            Header::Classic(header) => header.memory(),
        }
    }

    /// Returns the filter without its bits. Its item counts are those of the whole filter.
    pub fn build(&self) -> Result<Filter, DecodeError> {
        match self {
            Header::Native(header) => header.build(),
            Header::Classic(header) => header.build().map(LayerKind::into_filter),
        }
    }
}

/// A part of a dump stream.
pub struct DumpChunk<'a> {
    /// The cursor to load the chunk with, and to request the next one.
    pub cursor: u64,
    /// The bytes of the chunk.
    pub data: Cow<'a, [u8]>,
}

/// Returns the chunk that follows `cursor` in a dump stream, which starts at [`HEADER_CURSOR`], or `None` after the last.
pub fn next_chunk(filter: &Filter, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    match filter.chains() {
        Chains::Native(chain) => native::next_chunk(chain, cursor),
        Chains::Counting(chain) => native::next_chunk(chain, cursor),
        Chains::Classic(chain) => Ok(classic::next_chunk(chain, cursor)),
    }
}

/// A chunk that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedChunk<'a> {
    /// The bytes that the filter now has in the chunk's place. The caller replicates these, which may differ from the chunk.
    pub bytes: &'a [u8],
    /// True if the chunk changed the filter.
    pub changed: bool,
}

/// Loads a chunk into a filter that was built from the dump stream's header.
///
/// Native chunks are OR-ed in, on replicas as well. Chunks of counters are rejected if either filter was written to after the
/// header was made.
///
/// # Errors
///
/// [`DecodeError::Corrupt`] if the chunk is damaged, whatever filter it is for; another error if it does not fit this filter.
pub fn load_chunk<'a>(
    filter: &'a mut Filter,
    cursor: u64,
    data: &'a [u8],
    origin: Origin,
) -> Result<LoadedChunk<'a>, DecodeError> {
    match filter.chains_mut() {
        Chains::Native(chain) => native::load_chunk(chain, cursor, data),
        Chains::Counting(chain) => native::load_chunk(chain, cursor, data),
        Chains::Classic(chain) => classic::load_chunk(chain, cursor, data, origin),
    }
}

/// Returns true if `cursor` and `data` are the header of a dump stream, from which a filter is built.
pub fn is_header(cursor: u64, data: &[u8]) -> bool {
    cursor == HEADER_CURSOR && !data.is_empty()
}

/// Checks the header or a chunk of a dump stream by itself, whatever filter it is for. Classic chunks have little to check them by.
///
/// # Errors
///
/// [`DecodeError::Corrupt`] or [`DecodeError::NewerVersion`] if no filter could take it.
pub fn check_chunk(cursor: u64, data: &[u8]) -> Result<(), DecodeError> {
    if is_header(cursor, data) {
        Header::decode(data, Origin::Replication).map(drop)
    } else if cursor >= native::FIRST_CHUNK_CURSOR {
        native::SealedChunk::decode(cursor, data)?.check()
    } else {
        cursor.checked_sub(data.len() as u64).map(drop).ok_or(DecodeError::Corrupt)
    }
}

/// Returns the layer that holds byte `offset` of all layers' cells, laid end to end, and the offset in it.
fn locate<L: Layer>(layers: &[L], offset: u64) -> Option<(usize, usize)> {
    let mut start = 0;
    layers.iter().enumerate().find_map(|(index, layer)| {
        let (within, bytes) = (offset.checked_sub(start)?, layer.bytes().len() as u64);
        start += bytes;
        (within < bytes).then_some((index, within as usize))
    })
}

/// Decodes `count` values, one after the other.
fn decode_all<T>(count: usize, mut decode: impl FnMut() -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
    let mut values = try_vec(count)?;
    for _ in 0..count {
        values.push(decode()?);
    }
    Ok(values)
}

/// Little-endian fields, taken from the front.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Corrupt)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Corrupt)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().copied().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().copied().map(u64::from_le_bytes)
    }

    fn f64(&mut self) -> Result<f64, DecodeError> {
        self.array().copied().map(f64::from_le_bytes)
    }
}
