//! Encodes filters as bytes, for RDB files, DUMP payloads, AOF rewrites and SCANDUMP.
//!
//! A filter has two forms. A *dump stream* (BF.SCANDUMP, BF.LOADCHUNK, AOF) is a header, from which an empty filter is
//! built, and chunks that fill it, each with a cursor. An *RDB value* (RDB files, DUMP payloads) is a sequence of
//! numbers and strings. An [`encoding`] defines both: [`own`] for our own filters; [`classic`] and [`cuckoo`] for
//! RedisBloom's; [`valkey`] for valkey-bloom's. [`Filter::to_bytes`] encodes a whole dump stream as one string, and
//! [`payload`] an RDB value as DUMP does. A [`Loader`] loads dump streams of all encodings.
//!
//! Decoding trusts no input. Every number is checked before memory is allocated.

#![warn(clippy::arithmetic_side_effects)]

mod bytes;
mod classic;
mod cuckoo;
mod encoding;
mod fields;
mod layers;
mod loader;
mod own;
pub mod payload;
#[cfg(feature = "serde")]
mod serde;
pub mod valkey;

use std::borrow::Cow;
use std::ffi::CStr;

use crate::array::Bytes;
use crate::error::{DecodeError, Error};
use crate::filter::Filter;
use crate::kind::{AnyFilter, Kind, for_each_kind};
use crate::memory::Admit;
use classic::ClassicFormat;
use cuckoo::CuckooFormat;
use encoding::{Encoded, Format};
use own::OwnFormat;
use own::section::MAX_SECTIONS;
use valkey::ValkeyFormat;

pub use cuckoo::HEADER_BYTES as CUCKOO_HEADER_BYTES;
pub use loader::Loader;
pub use own::{chunk, header, packing};

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
    /// Reads an unsigned number that must fit into a type.
    fn number<T: TryFrom<u64>>(&mut self) -> Result<T, DecodeError> {
        self.unsigned()?.try_into().map_err(|_| DecodeError::Corrupt)
    }
    /// Reads a floating-point number.
    fn double(&mut self) -> Result<f64, DecodeError>;
    /// Reads a string.
    fn string(&mut self) -> Result<Self::String, DecodeError>;

    /// Returns whether the next value is a string, if the source can see that before it reads the value. A server
    /// cannot.
    fn has_string_next(&self) -> Option<bool> {
        None
    }

    /// Reads a string of about `bytes` bytes into an array.
    fn array(&mut self, bytes: u64) -> Result<Bytes, DecodeError>;
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

/// A chunk of a dump stream.
#[derive(PartialEq)]
pub struct DumpChunk<'a> {
    /// The cursor with which this chunk is loaded and the next one is requested.
    pub cursor: u64,
    /// The bytes of the chunk.
    pub data: Cow<'a, [u8]>,
}

/// A chunk that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedChunk<'a> {
    /// The bytes now stored at the chunk's offset. The caller replicates these if they differ from the chunk.
    pub bytes: &'a [u8],
    /// True if the chunk changed the filter.
    pub changed: bool,
}

/// Declares the encodings: for each, its format, the name of its data type, a second name if the first is another
/// module's, and the kinds of its filters.
macro_rules! encodings {
    ($($(#[$doc:meta])* $encoding:ident = $format:ty, $type_name:literal $(or $beside:literal)?, $($kind:ident)|+;)*) => {
        /// The encodings of RDB values. Each has a data type of its own in the server's files.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Encoding {
            $($(#[$doc])* $encoding,)*
        }

        impl Encoding {
            /// The encodings, in the order of their discriminants.
            pub const ALL: &[Encoding] = &[$(Encoding::$encoding),*];

            /// Returns the encoding of a kind of filters.
            pub const fn of(kind: Kind) -> Encoding {
                match kind {
                    $($(Kind::$kind)|+ => Encoding::$encoding,)*
                }
            }

            /// Returns the name of the data type.
            pub const fn type_name(self) -> &'static CStr {
                match self {
                    $(Encoding::$encoding => $type_name,)*
                }
            }

            /// Returns the name of the data type beside the module that owns the usual one, or `None` if that is ours.
            pub fn name_beside(self) -> Option<&'static CStr> {
                match self {
                    $(Encoding::$encoding => None$(.or(Some($beside)))?,)*
                }
            }

            /// Returns the version that is written.
            pub const fn version(self) -> u32 {
                match self {
                    $(Encoding::$encoding => <$format>::VERSION,)*
                }
            }

            /// Reads a filter in a version of this encoding.
            pub fn read(self, version: u64, source: &mut impl Source, admit: Admit<'_>) -> Result<Filter, DecodeError> {
                let version = u32::try_from(version).ok().filter(|&version| version <= self.version());
                let version = version.ok_or(DecodeError::NewerVersion)?;
                let filter = match self {
                    $(Encoding::$encoding => <$format>::read_rdb(version, source, admit),)*
                }?;
                if Encoding::of(filter.kind()) == self { Ok(filter) } else { Err(DecodeError::Corrupt) }
            }
        }

        impl Header {
            /// Decodes and checks a header, with the first format that knows it. From a client, a classic header must
            /// be one that RedisBloom accepts. From replication, it may also be that of a very old filter.
            pub fn decode(bytes: &[u8], origin: Origin) -> Result<Header, DecodeError> {
                let header = None$(.or_else(|| <$format>::decode_header(bytes, origin)))*;
                header.unwrap_or(Err(DecodeError::Corrupt))
            }
        }

        /// Checks the header or a chunk of a dump stream without its filter, with the first format that knows it.
        /// Classic chunks have no checksum, so little can be checked.
        ///
        /// # Errors
        ///
        /// [`DecodeError::Corrupt`] or [`DecodeError::NewerVersion`] if no filter can accept it.
        pub fn check_chunk(cursor: u64, data: &[u8]) -> Result<(), DecodeError> {
            if is_header(cursor, data) {
                return Header::decode(data, Origin::Replication).map(drop);
            }
            let checked = None$(.or_else(|| <$format>::check_chunk(cursor, data)))*;
            checked.unwrap_or(Err(DecodeError::Corrupt))
        }
    };
}

encodings! {
    /// That of our own filters.
    Own = OwnFormat, c"oxbloom--", Native | Counting | Windowed;
    /// That of our own filters, for those that stand for cuckoo filters.
    OwnCuckoo = OwnFormat, c"oxcuckoo-", NativeCuckoo;
    /// RedisBloom's for cuckoo filters.
    Cuckoo = CuckooFormat, c"MBbloomCF" or c"oxclassCF", Cuckoo;
    /// valkey-bloom's.
    Valkey = ValkeyFormat, c"bloomfltr" or c"oxvalkeyB", Valkey;
    // The last: its headers and chunks have no mark that distinguishes them from others.
    /// RedisBloom's.
    Classic = ClassicFormat, c"MBbloom--" or c"oxclassBF", Classic;
}

impl Kind {
    /// Returns true if filters of this kind have our own encoding.
    pub const fn is_own(self) -> bool {
        matches!(Encoding::of(self), Encoding::Own | Encoding::OwnCuckoo)
    }
}

/// Writes a filter as RDB values.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if a part cannot be allocated. The values written so far are incomplete, and cannot be
/// decoded.
pub fn write_rdb(filter: &Filter, sink: &mut dyn Sink) -> Result<(), Error> {
    for_each_kind!(filter.by_kind(), filter => filter.write_rdb(sink))
}

/// Returns the header of a dump stream.
pub fn encode_header(filter: &Filter) -> Result<Vec<u8>, Error> {
    for_each_kind!(filter.by_kind(), filter => filter.encode_header())
}

/// A valid header of a dump stream. Its filter has no items yet.
pub struct Header {
    /// The bytes that the items of the filter take. For tables, it is an approximation.
    memory: u64,
    /// For each section, whether it has chunks. Only filters of our own have sections.
    has_chunks: [bool; MAX_SECTIONS],
    /// Returns the filter without its items. Its item counts are those of the complete filter.
    build: Box<dyn Fn() -> Result<AnyFilter, DecodeError>>,
}

impl Header {
    /// Returns the bytes that the filter's items will take.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the filter without its items. Its item counts are those of the complete filter.
    pub fn build(&self) -> Result<Filter, DecodeError> {
        (self.build)().map(Filter::from)
    }
}

/// Returns the chunk after `cursor`, or `None` after the last. The header is the one after 0.
pub fn next_chunk(filter: &Filter, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
    if cursor == 0 {
        return Ok(Some(DumpChunk { cursor: HEADER_CURSOR, data: encode_header(filter)?.into() }));
    }
    for_each_kind!(filter.by_kind(), filter => filter.next_chunk(cursor))
}

/// Returns an iterator over a whole dump stream: the header, and then the chunks. An item is [`Error::OutOfMemory`] if
/// it cannot be allocated.
pub fn dump(filter: &Filter) -> impl Iterator<Item = Result<DumpChunk<'_>, Error>> {
    let mut cursor = 0;
    std::iter::from_fn(move || {
        let chunk = next_chunk(filter, cursor).transpose()?;
        cursor = chunk.as_ref().map_or(cursor, |chunk| chunk.cursor);
        Some(chunk)
    })
}

/// Hands everything that distinguishes a filter to `add`: its header and its content. Bits are not copied.
pub fn digest(filter: &Filter, mut add: impl FnMut(&[u8])) -> Result<(), Error> {
    add(&encode_header(filter)?);
    for_each_kind!(filter.by_kind(), filter => filter.digest_content(&mut add))
}

/// Loads a chunk into a filter that was built from the dump stream's header.
///
/// Chunks of native filters are OR-ed in, or their entries added, on replicas too. Chunks of a counting filter, or of
/// one that forgets, are rejected if either filter was written to after the header was encoded.
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
    for_each_kind!(filter.by_kind_mut(), filter => filter.load_chunk(cursor, data, origin, admit))
}

/// Returns the tags of the sections of a filter, with which tests forge chunks. Only filters of our own have them.
pub fn tags(filter: &Filter) -> Option<[u64; MAX_SECTIONS]> {
    for_each_kind!(filter.by_kind(), filter => filter.tags())
}

/// Returns true if `cursor` and `data` are the header of a dump stream.
pub fn is_header(cursor: u64, data: &[u8]) -> bool {
    cursor == HEADER_CURSOR && !data.is_empty()
}
