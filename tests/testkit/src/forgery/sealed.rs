//! A forgery as a server and the library read it.

use oxbloom_filter::internals::codec::packing;
use xxhash_rust::xxh3::xxh3_64;

use crate::payload::Part;

/// A forgery as a server and the library read it.
pub struct Sealed {
    /// The header and the chunks of a dump stream, with their cursors.
    pub stream: Vec<(u64, Vec<u8>)>,
    /// The values in an RDB file, and the version of their encoding.
    pub values: Vec<Part>,
    /// The value in an RDB file that has the header and the chunks in one string, for a filter of our own.
    pub short: Option<Part>,
    pub encoding: u64,
    /// The memory that the header claims, in bytes.
    pub memory: u64,
}

impl Sealed {
    /// Returns the number of bytes of the stream, or of the strings in a file if they have more.
    pub fn size(&self) -> usize {
        let strings = self.values.iter().map(|value| if let Part::String(bytes) = value { bytes.len() } else { 0 });
        self.stream.iter().map(|(_, chunk)| chunk.len()).sum::<usize>().max(strings.sum())
    }

    /// Returns the encoding of [`Filter::to_bytes`].
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"OXBLOOM\x01".to_vec();
        for (cursor, chunk) in &self.stream {
            bytes.extend_from_slice(&cursor.to_le_bytes());
            bytes.extend_from_slice(&(chunk.len() as u64).to_le_bytes());
            bytes.extend_from_slice(chunk);
        }
        let checksum = xxh3_64(&bytes);
        [bytes, checksum.to_le_bytes().to_vec()].concat()
    }
}

/// Returns the first string in an RDB file, for a header without its checksum, and perhaps chunks.
pub fn first_string(bytes: &[u8]) -> Vec<u8> {
    let packed = packing::pack(bytes).expect("little memory");
    [&packed[..], &xxh3_64(&packed).to_le_bytes()].concat()
}
