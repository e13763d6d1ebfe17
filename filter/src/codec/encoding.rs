//! The two traits of an encoding: [`Format`] needs no filter, and [`Encoded`] is implemented by filters.
//!
//! To add an encoding, implement both in a file of its own, and add its row to [`Encoding`](super::Encoding). In the
//! module, its data type needs a row (`datatype.rs`).

use super::own::section::OwnFilter;
use super::{DumpChunk, Header, LoadedChunk, Origin, Sink, Source};
use crate::codec::own::section::MAX_SECTIONS;
use crate::error::{DecodeError, Error};
use crate::filter::Filter;
use crate::memory::Admit;

/// An encoding, without a filter.
pub(super) trait Format {
    /// The version of RDB values that is written. Later ones are rejected.
    const VERSION: u32;

    /// Reads a filter from RDB values of a version, at most [`VERSION`](Self::VERSION).
    fn read_rdb(version: u32, source: &mut impl Source, admit: Admit<'_>) -> Result<Filter, DecodeError>;

    /// Decodes and checks the header of a dump stream. Returns `None` if it is one of another encoding.
    fn decode_header(bytes: &[u8], origin: Origin) -> Option<Result<Header, DecodeError>>;

    /// Checks a chunk of a dump stream without its filter. Returns `None` if it is one of another encoding, or has no
    /// mark that distinguishes it from those of classic filters.
    fn check_chunk(_cursor: u64, _data: &[u8]) -> Option<Result<(), DecodeError>> {
        None
    }
}

/// A filter, as its encoding stores it. The functions of [`codec`](super) with the same names call these.
pub(super) trait Encoded {
    fn write_rdb(&self, sink: &mut dyn Sink) -> Result<(), Error>;

    fn encode_header(&self) -> Result<Vec<u8>, Error>;

    fn next_chunk(&self, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error>;

    fn load_chunk<'a>(
        &'a mut self,
        cursor: u64,
        data: &'a [u8],
        origin: Origin,
        admit: Admit<'_>,
    ) -> Result<LoadedChunk<'a>, DecodeError>;

    /// Hands the content to `add`: everything that distinguishes the filter from others with the same header.
    fn digest_content(&self, add: &mut dyn FnMut(&[u8])) -> Result<(), Error>;

    /// Returns true if a chunk of `length` bytes can be the next one after `loaded` bytes of chunks.
    fn is_next(&self, _cursor: u64, _length: u64, _loaded: u64) -> bool {
        true
    }

    /// Returns true if the filter was built from this header, and all its chunks were loaded, which had `loaded` bytes.
    fn is_complete(&self, header: &[u8], loaded: u64) -> Result<bool, Error>;

    /// Returns the tags of the sections, if the filter has sections.
    fn tags(&self) -> Option<[u64; MAX_SECTIONS]> {
        None
    }

    /// Returns the filter, if it is one of our own.
    fn own_mut(&mut self) -> Option<&mut dyn OwnFilter> {
        None
    }
}
