//! How filters are stored: what the encodings of all kinds have in common. A filter of our own is a [header] and the
//! [chunks](chunk) of its [sections](section).

#![warn(clippy::arithmetic_side_effects)]

pub mod chunk;
pub(crate) mod fields;
pub mod header;
pub mod packing;
pub(crate) mod section;
pub(crate) mod table;

use std::borrow::Cow;

use crate::array::Bytes;
use crate::error::DecodeError;
use crate::spec::OwnSpec;
use section::{MAX_SECTIONS, Section};

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

    /// Returns whether the next value is a string, if the source can see that before it reads the value. A server cannot.
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

/// A filter of our own, as it is stored.
pub trait Stored {
    /// Returns the code of its kind in the header.
    fn code(&self) -> u8;
    /// Returns its parameters.
    fn spec(&self) -> &OwnSpec;
    /// Appends the record of its kind to the header.
    fn encode_record(&self, header: &mut Vec<u8>);
    /// Returns its sections, in order.
    fn sections(&self) -> [Option<&dyn Section>; MAX_SECTIONS];
    /// Returns its sections, to change them.
    fn sections_mut(&mut self) -> [Option<&mut dyn Section>; MAX_SECTIONS];
    /// Returns the tags that bind chunks to the filter, for each section.
    fn tags(&self) -> [u64; MAX_SECTIONS];
}
