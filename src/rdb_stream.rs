//! RDB values in the server's files and payloads.

use crate::allocation::can_allocate;
use crate::server::{Io, ServerBuffer};
use oxbloom_filter::DecodeError;
use oxbloom_filter::internals::Bytes;
use oxbloom_filter::internals::codec::{Sink, Source, chunk};

/// Reads a string of about `expected` bytes. If that fails, the server does not report the reason. This assumes a lack
/// of memory if twice as many bytes, for the string compressed and decompressed, cannot be allocated now.
fn read_string(file: &mut Io, expected: usize) -> Result<ServerBuffer, DecodeError> {
    let is_short = || !can_allocate(expected.saturating_mul(2));
    let failed = || if is_short() { DecodeError::OutOfMemory } else { DecodeError::Corrupt };
    file.read_string().ok_or_else(failed)
}

impl Source for Io<'_> {
    type String = ServerBuffer;

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        self.read_unsigned().ok_or(DecodeError::Corrupt)
    }

    fn double(&mut self) -> Result<f64, DecodeError> {
        self.read_double().ok_or(DecodeError::Corrupt)
    }

    fn string(&mut self) -> Result<ServerBuffer, DecodeError> {
        read_string(self, chunk::BITS_CHUNK_BYTES)
    }

    fn array(&mut self, bytes: u64) -> Result<Bytes, DecodeError> {
        let expected = usize::try_from(bytes).unwrap_or(usize::MAX);
        if !can_allocate(expected) {
            return Err(DecodeError::OutOfMemory);
        }
        let buffer = read_string(self, expected)?;
        // An empty allocation cannot be adopted.
        if buffer.as_ref().is_empty() {
            return Bytes::zeroed(0).map_err(|_| DecodeError::OutOfMemory);
        }
        let (start, length) = buffer.into_raw();
        // SAFETY: the server allocated the buffer with its allocator, which is our global allocator, and handed it
        // over. It has at least one byte.
        Ok(unsafe { Bytes::adopt(start, length) })
    }
}

impl Sink for Io<'_> {
    fn unsigned(&mut self, number: u64) {
        self.write_unsigned(number);
    }

    fn double(&mut self, number: f64) {
        self.write_double(number);
    }

    fn string(&mut self, bytes: &[u8]) {
        self.write_string(bytes);
    }
}
