//! Decodes fields of fixed size from bytes, and checks checksums.

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{DecodeError, ensure};

/// Returns bytes without the XXH3-64 of them at their end.
pub(crate) fn checked(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let (content, checksum) = bytes.split_last_chunk().ok_or(DecodeError::Corrupt)?;
    ensure(u64::from_le_bytes(*checksum) == xxh3_64(content))?;
    Ok(content)
}

/// The remaining bytes. Fields are little-endian, and taken from the front.
pub struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, length: impl TryInto<usize>) -> Result<&'a [u8], DecodeError> {
        let length = length.try_into().map_err(|_| DecodeError::Corrupt)?;
        self.0.split_off(..length).ok_or(DecodeError::Corrupt)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Corrupt)
    }

    pub(crate) fn zeros(&mut self, length: usize) -> Result<(), DecodeError> {
        ensure(self.take(length)?.iter().all(|&byte| byte == 0))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().copied().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().copied().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().copied().map(u64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Result<f64, DecodeError> {
        self.array().copied().map(f64::from_le_bytes)
    }
}
