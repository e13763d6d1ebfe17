//! The input of a target: numbers, items, and files.

use oxbloom_filter::DecodeError;
use oxbloom_filter::internals::Bytes;
use oxbloom_filter::internals::codec::{Sink, Source};

/// Returns the item of a number. Items have various lengths.
pub fn item(number: u64) -> Vec<u8> {
    number.to_string().repeat(1 + number as usize % 4).into_bytes()
}

/// A file in memory. A number or a double takes eight bytes; a string takes four bytes for its length, and its content.
/// All are little-endian.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Sink for Writer {
    fn unsigned(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn double(&mut self, number: f64) {
        self.unsigned(number.to_bits());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
    }
}

/// Reads files of [`Writer`], and numbers of other sizes.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

impl<'a> Source for Reader<'a> {
    type String = &'a [u8];

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        self.u64().ok_or(DecodeError::Corrupt)
    }

    fn double(&mut self) -> Result<f64, DecodeError> {
        self.unsigned().map(f64::from_bits)
    }

    fn string(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.array().map(u32::from_le_bytes).ok_or(DecodeError::Corrupt)?;
        self.take(length as usize).ok_or(DecodeError::Corrupt)
    }

    fn array(&mut self, _bytes: u64) -> Result<Bytes, DecodeError> {
        let string = self.string()?;
        let mut array = Bytes::zeroed(string.len() as u64)?;
        array.as_mut_slice().as_flattened_mut().copy_from_slice(string);
        Ok(array)
    }
}
