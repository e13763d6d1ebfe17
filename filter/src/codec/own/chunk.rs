//! The sizes of chunks, and the format of our own chunks. (RedisBloom's chunks are only bits.)
//!
//! ```text
//!  0    the content
//!  n-16 tag: identifies the filter that the chunk belongs to
//!  n-8  XXH3-64 of the content, seeded with the tag and the offset
//! ```
//!
//! A chunk is accepted only by its own filter, and at its own offset. If it is rejected, the tag tells whether it is
//! damaged or belongs to another filter. In an RDB value, a chunk is a string with the content, and a number with the
//! checksum.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{DecodeError, Error, ensure};
use crate::hash::GOLDEN;
use crate::memory::try_vec;

/// The maximum number of bytes of content in a chunk of bits that is written. Chunks of any length are read.
///
/// The server compresses every string that it saves, and allocates a second copy for that. When it loads, it allocates
/// each string before we copy it. Chunks bound this memory, and small chunks are still in the processor's cache when
/// they are copied. Chunks below 4 MiB take longer to save, since the compressor prepares a table for each string.
pub const BITS_CHUNK_BYTES: usize = 4 << 20;

const _: () = assert!(BITS_CHUNK_BYTES.is_power_of_two());

/// The number of bytes at which a chunk of a table ends. It holds whole segments, and ends with the segment that
/// reaches this size. Unlike bits, segments are copied to be saved; the copy is small, so that saves do not fail for
/// lack of memory.
pub const TABLE_CHUNK_BYTES: usize = 512 << 10;

/// The cursor of offset 0. It is beyond the end of any classic filter, so that RedisBloom and our own classic filters
/// reject our chunks. It is low enough for clients that store numbers as doubles.
pub const FIRST_CHUNK_CURSOR: u64 = 1 << 52;

const TAG_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 8;

/// Returns the checksum of content that ends at `end`.
pub fn checksum(content: &[u8], end: u64, tag: u64) -> u64 {
    let offset = end.wrapping_sub(content.len() as u64);
    xxh3_64_with_seed(content, tag ^ offset.wrapping_mul(GOLDEN))
}

/// Returns the chunk of a dump stream for content that ends at `end`.
pub fn seal(content: &[u8], end: u64, tag: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = try_vec(content.len().saturating_add(TAG_BYTES + CHECKSUM_BYTES))?;
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&checksum(content, end, tag).to_le_bytes());
    Ok(bytes)
}

/// A chunk of a dump stream.
pub struct SealedChunk<'a> {
    /// The offset at which the content ends.
    pub end: u64,
    /// The content.
    pub content: &'a [u8],
    tag: u64,
    checksum: u64,
}

impl<'a> SealedChunk<'a> {
    /// Splits the data of a chunk.
    pub fn decode(cursor: u64, data: &'a [u8]) -> Result<SealedChunk<'a>, DecodeError> {
        let (data, checksum) = data.split_last_chunk().ok_or(DecodeError::Corrupt)?;
        let (content, tag) = data.split_last_chunk().ok_or(DecodeError::Corrupt)?;
        let end = cursor.checked_sub(FIRST_CHUNK_CURSOR).ok_or(DecodeError::Corrupt)?;
        let [tag, checksum] = [*tag, *checksum].map(u64::from_le_bytes);
        Ok(SealedChunk { end, content, tag, checksum })
    }

    /// Checks that the chunk is not damaged.
    pub fn check(&self) -> Result<(), DecodeError> {
        let is_whole = !self.content.is_empty() && checksum(self.content, self.end, self.tag) == self.checksum;
        ensure(is_whole)
    }

    /// Checks that the chunk is not damaged, and has this tag.
    pub fn check_tag(&self, tag: u64) -> Result<(), DecodeError> {
        self.check()?;
        if self.tag == tag { Ok(()) } else { Err(DecodeError::Foreign) }
    }
}
