//! Encodes filters as bytes, for RDB files, DUMP payloads, AOF rewrites and SCANDUMP.
//!
//! There are two encodings. A *dump stream* (BF.SCANDUMP, BF.LOADCHUNK, AOF) is a header, from which an empty filter is
//! built, and chunks that fill it, each with a cursor. An *RDB value* (RDB files, DUMP payloads) is a sequence of
//! numbers and strings. [`own`] defines both for our own filters, from what all kinds have in common (see
//! [`stored`](crate::stored)) and what each [kind](crate::kind) adds. [`classic`] has RedisBloom's encodings.
//! [`Filter::to_bytes`] encodes a whole dump stream as one string. A [`Loader`] loads all of them.
//!
//! Decoding trusts no input. Every number is checked before memory is allocated.

#![warn(clippy::arithmetic_side_effects)]

mod bytes;
mod header;
mod loader;
mod own;

use std::ffi::CStr;

use crate::error::{DecodeError, Error};
use crate::filter::Filter;
use crate::kind::classic::ClassicFilter;
use crate::kind::classic::stored::{self as classic, ClassicHeader};
use crate::kind::{Content, Described, Kind};
use crate::memory::Admit;
use crate::spec::FilterKind;
use crate::stored::{chunk, section};

pub use crate::stored::{DumpChunk, HEADER_CURSOR, LoadedChunk, Origin, Sink, Source, Stored};
pub use loader::Loader;

/// The encodings of RDB values. Each has a data type of its own in the server's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// That of our own filters.
    Own,
    /// RedisBloom's.
    Classic,
}

impl Encoding {
    /// The encodings, in the order of their discriminants.
    pub const ALL: [Encoding; 2] = [Encoding::Own, Encoding::Classic];

    /// Returns the encoding of a kind of filters.
    pub fn of(kind: FilterKind) -> Encoding {
        if kind.code().is_some() { Encoding::Own } else { Encoding::Classic }
    }

    /// Returns the name of the data type.
    pub const fn type_name(self) -> &'static CStr {
        match self {
            Encoding::Own => c"oxbloom--",
            Encoding::Classic => c"MBbloom--",
        }
    }

    /// Returns the version that is written.
    pub const fn version(self) -> u32 {
        match self {
            Encoding::Own => crate::stored::header::VERSION as u32,
            Encoding::Classic => classic::VERSION,
        }
    }

    /// Reads a filter in a version of this encoding. Calls `admit` with the bytes that it will take; `admit` may reject
    /// them.
    pub fn read(self, version: u64, source: &mut impl Source, admit: Admit<'_>) -> Result<Filter, DecodeError> {
        match (self, u32::try_from(version)) {
            (_, Ok(version)) if version > self.version() => Err(DecodeError::NewerVersion),
            (_, Err(_)) => Err(DecodeError::NewerVersion),
            (Encoding::Own, Ok(_)) => own::read_rdb(source, admit),
            (Encoding::Classic, Ok(version)) => classic::read_rdb(version, source, admit).map(Filter::from),
        }
    }
}

/// A filter, by its encoding.
enum Format<'a> {
    Own(&'a dyn Stored),
    Classic(&'a ClassicFilter),
}

impl Format<'_> {
    fn of(filter: &Filter) -> Format<'_> {
        match filter.content() {
            Content::Native(filter) => Format::Own(filter),
            Content::Counting(filter) => Format::Own(&**filter),
            Content::Windowed(filter) => Format::Own(&**filter),
            Content::Classic(filter) => Format::Classic(filter),
        }
    }
}

/// A filter, by its encoding, to load chunks.
enum FormatMut<'a> {
    Own(&'a mut dyn Stored),
    Classic(&'a mut ClassicFilter),
}

impl FormatMut<'_> {
    fn of(filter: &mut Filter) -> FormatMut<'_> {
        match filter.content_mut() {
            Content::Native(filter) => FormatMut::Own(filter),
            Content::Counting(filter) => FormatMut::Own(&mut **filter),
            Content::Windowed(filter) => FormatMut::Own(&mut **filter),
            Content::Classic(filter) => FormatMut::Classic(filter),
        }
    }
}

/// Writes a filter as RDB values.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if a part cannot be allocated. The values written so far are incomplete, and cannot be
/// decoded.
pub fn write_rdb(filter: &Filter, sink: &mut impl Sink) -> Result<(), Error> {
    match Format::of(filter) {
        Format::Own(filter) => own::write_rdb(filter, sink),
        Format::Classic(filter) => {
            classic::write_rdb(filter, sink);
            Ok(())
        }
    }
}

/// Returns the header of a dump stream.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if it cannot be allocated. It has less than 4 KB, or 53 bytes for each layer of a classic
/// filter.
pub fn encode_header(filter: &Filter) -> Result<Vec<u8>, Error> {
    match Format::of(filter) {
        Format::Own(filter) => crate::stored::header::encode(filter),
        Format::Classic(filter) => classic::encode_header(filter),
    }
}

/// A valid header. Its filter has no items yet.
pub enum Header {
    /// The header of a filter of our own.
    Own(Box<dyn Described>),
    /// The header of a classic filter.
    Classic(ClassicHeader),
}

impl Header {
    /// Decodes and checks a header. From a client, a classic header must be one that RedisBloom accepts. From
    /// replication, it may also be that of a very old filter.
    pub fn decode(bytes: &[u8], origin: Origin) -> Result<Header, DecodeError> {
        let Some(unsealed) = crate::stored::header::unsealed(bytes) else {
            return ClassicHeader::decode(bytes, origin).map(Header::Classic);
        };
        match header::decode(unsealed)? {
            (header, []) => Ok(Header::Own(header)),
            _ => Err(DecodeError::Corrupt),
        }
    }

    /// Returns the bytes that the filter's items will take.
    pub fn memory(&self) -> u64 {
        match self {
            Header::Own(header) => header.memory(),
            Header::Classic(header) => header.memory(),
        }
    }

    /// Returns the filter without its items. Its item counts are those of the complete filter.
    pub fn build(&self) -> Result<Filter, DecodeError> {
        match self {
            Header::Own(header) => Ok(header.build()?.into()),
            Header::Classic(header) => Ok(header.build()?.into_content()?.into()),
        }
    }
}

/// Returns the chunk after `cursor`, or `None` after the last. The first chunk is the one after [`HEADER_CURSOR`].
pub fn next_chunk(filter: &Filter, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    match Format::of(filter) {
        Format::Own(filter) => own::next_chunk(filter, cursor),
        Format::Classic(filter) => Ok(classic::next_chunk(filter, cursor)),
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
    match Format::of(filter) {
        Format::Own(filter) => section::each_part(filter, |part, _tag| add(&part.content)),
        Format::Classic(filter) => {
            filter.chain().iter().for_each(|layer| add(layer.bytes()));
            Ok(())
        }
    }
}

/// Loads a chunk into a filter that was built from the dump stream's header.
///
/// Chunks of native filters are OR-ed in, or their entries added, on replicas too. Chunks of a counting filter, or of
/// one that forgets, are rejected if either filter was written to after the header was encoded. Calls `admit` with the
/// bytes that a table takes for the chunk; `admit` may reject them.
///
/// # Errors
///
/// [`DecodeError::OutOfMemory`] if `admit` rejects the memory, or it cannot be allocated; [`DecodeError::Corrupt`] if
/// the chunk is damaged; another error if it is not damaged, but does not fit this filter.
pub fn load_chunk<'a>(
    filter: &'a mut Filter,
    cursor: u64,
    data: &'a [u8],
    origin: Origin,
    admit: Admit<'_>,
) -> Result<LoadedChunk<'a>, DecodeError> {
    match FormatMut::of(filter) {
        FormatMut::Own(filter) => {
            let changed = own::load_chunk(filter, cursor, data, admit)?;
            Ok(LoadedChunk { bytes: data, changed })
        }
        FormatMut::Classic(filter) => classic::load_chunk(filter, cursor, data, origin),
    }
}

/// Returns the tags of the sections of a filter, with which tests forge chunks. A classic filter has none.
pub fn tags(filter: &Filter) -> Option<[u64; section::MAX_SECTIONS]> {
    match Format::of(filter) {
        Format::Own(filter) => Some(filter.tags()),
        Format::Classic(_) => None,
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
