//! A filter as bytes: what RDB files, DUMP payloads, AOF rewrites and SCANDUMP have in common.
//!
//! There are two ways to travel. A *walk* (BF.SCANDUMP, BF.LOADCHUNK, AOF) is a header, from which an empty filter is built,
//! and pieces that fill it, each with the iterator that it came with. A *file* (RDB, DUMP) is a sequence of numbers and
//! strings. [`native`] says what they hold for our own layouts, [`classic`] for RedisBloom's.
//!
//! Decoding trusts nothing. Every number is checked before memory is asked for.

pub mod classic;
pub mod native;

use std::borrow::Cow;

use super::chain::{Chain, Layer};
use super::storage::Bytes;
use super::{Error, Filter, with_room};

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They are of a later version of the encoding.
    NewerVersion,
    /// They are not what was written: cut short, damaged, or of something else.
    Corrupt,
    /// A whole chunk, but of another filter, or made before this one was last written to.
    Foreign,
    /// A chunk's place is not in the filter.
    NoSuchOffset,
    /// A chunk starts in a layer, and does not end in it.
    BeyondLayer,
    /// The memory for them was refused.
    OutOfMemory,
}

impl From<Error> for DecodeError {
    fn from(_: Error) -> DecodeError {
        DecodeError::OutOfMemory
    }
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DecodeError::NewerVersion => "written by a later version of the module",
            DecodeError::Corrupt => "damaged data",
            DecodeError::Foreign => "a chunk of another filter",
            DecodeError::NoSuchOffset => "a chunk that starts in no layer",
            DecodeError::BeyondLayer => "a chunk that ends in no layer",
            DecodeError::OutOfMemory => "not enough memory",
        })
    }
}

impl std::error::Error for DecodeError {}

/// Where the values of a file are written to.
pub trait Sink {
    fn unsigned(&mut self, number: u64);
    fn double(&mut self, number: f64);
    fn string(&mut self, bytes: &[u8]);
}

/// Where the values of a file are read from, in the order in which they were written.
pub trait Source {
    type String: AsRef<[u8]>;

    fn unsigned(&mut self) -> Result<u64, DecodeError>;
    fn double(&mut self) -> Result<f64, DecodeError>;
    fn string(&mut self) -> Result<Self::String, DecodeError>;

    /// A string to keep, of about so many bytes.
    fn array(&mut self, bytes: u64) -> Result<Bytes, DecodeError>;
}

/// Writes a filter as a file.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if the header cannot be allocated. What was written until then is no file.
pub fn save(filter: &Filter, sink: &mut impl Sink) -> Result<(), Error> {
    match filter {
        Filter::Native(chain) => native::save(chain, sink),
        Filter::Counting(chain) => native::save(chain, sink),
        Filter::Classic(chain) => {
            classic::save(chain, sink);
            Ok(())
        }
    }
}

/// The iterator that comes with the header in a walk.
pub const HEADER_ITERATOR: u64 = 1;

/// Where a walk comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Bits that are set stay set, or what was added meanwhile would be forgotten.
    Anyone,
    /// Who knows all that was added, as a master does, or the file that the server itself wrote: the filter is to have the bits
    /// that are sent, and no others.
    Authority,
}

/// Returns the header of a walk.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if it cannot be allocated: it has some dozens of bytes for each layer.
pub fn encode_header(filter: &Filter) -> Result<Vec<u8>, Error> {
    match filter {
        Filter::Native(chain) => native::encode_header(chain),
        Filter::Counting(chain) => native::encode_header(chain),
        Filter::Classic(chain) => classic::encode_header(chain),
    }
}

/// A header that was found sound. Its filter has no bits yet.
#[derive(Debug)]
pub enum Header {
    Native(native::Header),
    Classic(classic::Header),
}

impl Header {
    /// A classic header from anyone must be one that RedisBloom takes; from an authority, also one of a very old filter.
    pub fn decode(bytes: &[u8], sender: Sender) -> Result<Header, DecodeError> {
        match native::header_body(bytes) {
            Some(body) => native::Header::decode_body(body).map(Header::Native),
            None => classic::Header::decode(bytes, sender).map(Header::Classic),
        }
    }

    /// Bytes that the layers' bits will take.
    pub fn memory(&self) -> u64 {
        match self {
            Header::Native(header) => header.memory(),
            Header::Classic(header) => header.memory(),
        }
    }

    /// The filter, with no bit set yet; its items count as if they were.
    pub fn build(&self) -> Result<Filter, DecodeError> {
        match self {
            Header::Native(header) => header.build(),
            Header::Classic(header) => header.build().map(Filter::Classic),
        }
    }
}

/// A part of a walk.
pub struct Piece<'a> {
    /// What the piece is loaded with, and the next one asked for.
    pub iterator: u64,
    pub data: Cow<'a, [u8]>,
}

/// The piece that follows `iterator` in a walk, which starts at [`HEADER_ITERATOR`]. `None` behind the last.
pub fn next_piece(filter: &Filter, iterator: u64) -> Result<Option<Piece<'_>>, Error> {
    match filter {
        Filter::Native(chain) => native::next_piece(chain, iterator),
        Filter::Counting(chain) => native::next_piece(chain, iterator),
        Filter::Classic(chain) => Ok(classic::next_piece(chain, iterator)),
    }
}

/// A piece that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded<'a> {
    /// The bytes that the filter now has in the piece's place. The caller replicates these, which may differ from the piece.
    pub bytes: &'a [u8],
    /// True if the piece changed the filter.
    pub changed: bool,
}

/// Loads a piece into a filter that was built from the walk's header.
///
/// Native pieces are merged, on replicas as well. Those of counters are rejected once the filter, or the one that they come
/// from, was written to after the header was made.
///
/// # Errors
///
/// [`DecodeError::Corrupt`] if the piece is damaged, whatever filter it is for; another error if it does not fit this filter.
pub fn load_piece<'a>(
    filter: &'a mut Filter,
    iterator: u64,
    data: &'a [u8],
    sender: Sender,
) -> Result<Loaded<'a>, DecodeError> {
    match filter {
        Filter::Native(chain) => native::load_piece(chain, iterator, data),
        Filter::Counting(chain) => native::load_piece(chain, iterator, data),
        Filter::Classic(chain) => classic::load_piece(chain, iterator, data, sender),
    }
}

/// Returns true if `iterator` and `data` are the header of a walk, from which a filter is built.
pub fn is_header(iterator: u64, data: &[u8]) -> bool {
    iterator == HEADER_ITERATOR && !data.is_empty()
}

/// Checks the header or a piece of a walk by itself, whatever filter it is for. Classic pieces have little to check them by.
///
/// # Errors
///
/// [`DecodeError::Corrupt`] or [`DecodeError::NewerVersion`] if no filter could take it.
pub fn check_piece(iterator: u64, data: &[u8]) -> Result<(), DecodeError> {
    if is_header(iterator, data) {
        Header::decode(data, Sender::Authority).map(drop)
    } else if iterator >= native::ORIGIN {
        native::TravellingChunk::decode(iterator, data)?.check()
    } else {
        iterator.checked_sub(data.len() as u64).map(drop).ok_or(DecodeError::Corrupt)
    }
}

/// A filter of layers that have no bit set yet; their items count as if they were.
fn empty_chain<L: Layer>(
    plan: L::Plan,
    designs: impl ExactSizeIterator<Item = (L::Design, L::Counts)>,
) -> Result<Chain<L>, DecodeError> {
    let mut layers = with_room(designs.len())?;
    for (design, counts) in designs {
        let mut layer = L::new(design)?;
        layer.restore_counts(counts);
        layers.push(layer);
    }
    Ok(Chain::from_layers(plan, layers))
}

/// The layer that holds byte `offset` of all layers' bits, laid end to end, and the offset in it.
fn locate<L: Layer>(layers: &[L], offset: u64) -> Option<(usize, usize)> {
    let mut start = 0;
    layers.iter().enumerate().find_map(|(index, layer)| {
        let (within, bytes) = (offset.checked_sub(start)?, layer.bytes().len() as u64);
        start += bytes;
        (within < bytes).then_some((index, within as usize))
    })
}

/// So many values, decoded one after the other.
fn decode_all<T>(count: usize, mut decode: impl FnMut() -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
    let mut values = with_room(count)?;
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
