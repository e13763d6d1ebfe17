//! The chunks of RedisBloom's dump streams: the bytes of all layers, laid end to end, in parts of one layer.
//!
//! The cursor of a chunk is one more than the offset of its end. There are no checksums: a damaged chunk cannot be
//! detected, and only the order of the chunks shows that none is missing.

#![warn(clippy::arithmetic_side_effects)]

use std::borrow::Cow;

use crate::error::DecodeError;
use crate::stored::DumpChunk;

/// The maximum number of bytes in a chunk that is written, as in RedisBloom. Chunks of any length are read.
const MAX_BYTES: usize = 16 << 20;

/// Returns the chunk after a cursor, or `None` after the last. Accepts any cursor, also one between two chunks.
pub(super) fn next_chunk<'a>(cursor: u64, mut layers: impl Iterator<Item = &'a [u8]> + Clone) -> Option<DumpChunk<'a>> {
    let (layer, within) = locate(layers.clone(), cursor.checked_sub(1)?)?;
    let bytes = layers.nth(layer)?.get(within..)?;
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    Some(DumpChunk { cursor: cursor.saturating_add(bytes.len() as u64), data: Cow::Borrowed(bytes) })
}

/// Returns the layer in which a chunk of `length` bytes starts, and the offset in it.
pub(super) fn place_of<'a>(
    cursor: u64,
    length: usize,
    layers: impl Iterator<Item = &'a [u8]>,
) -> Result<(usize, usize), DecodeError> {
    let start = cursor.checked_sub(length as u64).filter(|_| cursor > 0).ok_or(DecodeError::Corrupt)?;
    start.checked_sub(1).and_then(|offset| locate(layers, offset)).ok_or(DecodeError::NoSuchOffset)
}

/// Returns true if a chunk of `length` bytes is the next one after `loaded` bytes of chunks.
pub(super) fn is_next(cursor: u64, length: u64, loaded: u64) -> bool {
    cursor == loaded.saturating_add(1).saturating_add(length)
}

/// Returns the layer that holds the byte at `offset`, and the offset in it.
fn locate<'a>(layers: impl Iterator<Item = &'a [u8]>, offset: u64) -> Option<(usize, usize)> {
    let mut start: u64 = 0;
    layers.enumerate().find_map(|(index, layer)| {
        let (within, size) = (offset.checked_sub(start)?, layer.len() as u64);
        start = start.saturating_add(size);
        (within < size).then_some((index, within as usize))
    })
}
