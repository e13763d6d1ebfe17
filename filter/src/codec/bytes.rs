//! A whole filter as one string of bytes.
//!
//! ```text
//!  "OXBLOOM", version (1)
//!  per chunk: cursor (u64), length (u64), the chunk       little-endian; the first chunk is the header
//!  XXH3-64 of all before it
//! ```
//!
//! The chunks and their cursors are those of BF.SCANDUMP. BF.LOADCHUNK restores the same filter from them on a server.

use xxhash_rust::xxh3::xxh3_64;

use super::{DumpChunk, Header, Loader, Origin, dump, is_header};
use crate::codec::fields::{Fields, checked};
use crate::codec::own::chunk::BITS_CHUNK_BYTES;
use crate::error::{DecodeError, Error, ensure};
use crate::filter::{Filter, or_abort};
use crate::memory::try_append;

const MAGIC: [u8; 8] = *b"OXBLOOM\x01";

impl Filter {
    /// Returns the filter as bytes, with checksums. The bytes are the same on every machine, and contain the seed.
    ///
    /// They take about as much memory as the filter, or less if layers are empty.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the bytes cannot be allocated.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut filter = Filter::new(0.01, 1000)?;
    /// filter.insert("apple")?;
    /// let copy = Filter::from_bytes(&filter.to_bytes()?)?;
    /// assert!(copy.contains("apple"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        try_append(&mut bytes, &[&MAGIC])?;
        for chunk in dump(self) {
            let DumpChunk { cursor, data } = chunk?;
            try_append(&mut bytes, &[&cursor.to_le_bytes(), &(data.len() as u64).to_le_bytes(), &data])?;
        }
        let checksum = xxh3_64(&bytes).to_le_bytes();
        try_append(&mut bytes, &[&checksum])?;
        Ok(bytes)
    }

    /// Returns the filter that [`to_bytes`](Filter::to_bytes) encoded.
    ///
    /// A header of a few bytes can describe a filter of any size, and its memory is allocated at once. For bytes from
    /// an untrusted party, use [`from_bytes_within`](Filter::from_bytes_within).
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the bytes are damaged, incomplete, no filter, or of a later version, or if there is no memory
    /// for the filter.
    ///
    /// ```
    /// # use oxbloom_filter::{DecodeError, Filter};
    /// let bytes = Filter::new(0.01, 1000)?.to_bytes()?;
    /// assert!(Filter::from_bytes(&bytes)?.is_empty());
    /// assert_eq!(Filter::from_bytes(&bytes[1..]).err(), Some(DecodeError::Corrupt));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Result<Filter, DecodeError> {
        Filter::from_bytes_within(bytes, u64::MAX)
    }

    /// Decodes a filter as [`from_bytes`](Filter::from_bytes) does, but rejects one whose layers take more than
    /// `max_memory` bytes.
    ///
    /// # Errors
    ///
    /// As for [`from_bytes`](Filter::from_bytes); [`DecodeError::OutOfMemory`] if the filter is larger.
    ///
    /// ```
    /// # use oxbloom_filter::{DecodeError, Filter};
    /// let bytes = Filter::new(0.01, 1_000_000)?.to_bytes()?;
    /// assert_eq!(Filter::from_bytes_within(&bytes, 1 << 20).err(), Some(DecodeError::OutOfMemory));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_bytes_within(bytes: &[u8], max_memory: u64) -> Result<Filter, DecodeError> {
        let chunks = checked(bytes)?.strip_prefix(&MAGIC[..7]).ok_or(DecodeError::Corrupt)?;
        let mut fields = Fields(chunks);
        if fields.u8()? != MAGIC[7] {
            return Err(DecodeError::NewerVersion);
        }
        let (cursor, encoded) = take_chunk(&mut fields)?;
        ensure(is_header(cursor, encoded))?;
        let header = Header::decode(encoded, Origin::Replication)?;
        let mut loader = Loader::new(&header, encoded, max_memory)?;
        while !fields.0.is_empty() {
            let (cursor, data) = take_chunk(&mut fields)?;
            loader.load(cursor, data)?;
        }
        loader.finish()
    }
}

impl PartialEq for Filter {
    /// Returns true if both filters have the same [bytes](Filter::to_bytes), and so the same options, seed and content.
    ///
    /// Aborts the process if there is no memory for a chunk of each, of at most a few megabytes.
    fn eq(&self, other: &Filter) -> bool {
        or_abort(self.try_eq(other), BITS_CHUNK_BYTES)
    }
}

/// The [internal interface](crate::internals), for the Python package.
#[doc(hidden)]
impl Filter {
    /// Compares filters as `==` does, but returns [`Error::OutOfMemory`] where that aborts.
    pub fn try_eq(&self, other: &Filter) -> Result<bool, Error> {
        let mut others = dump(other);
        for chunk in dump(self) {
            if Some(chunk?) != others.next().transpose()? {
                return Ok(false);
            }
        }
        Ok(others.next().is_none())
    }
}

fn take_chunk<'a>(fields: &mut Fields<'a>) -> Result<(u64, &'a [u8]), DecodeError> {
    let cursor = fields.u64()?;
    let length = fields.u64()?;
    Ok((cursor, fields.take(length)?))
}
