//! Encodes blocks of bits: their record in a [header](super::header), and their [chunks](super::chunk).
//!
//! ```text
//!  record
//!  0   blocks, capacity, items, bits set (u64 each); the top bit of the items marks them as an estimate
//!  32  blocks per item, probes, words of a block (u8 each), five zero bytes
//! ```
//!
//! A chunk is the bits of whole blocks. A position is a number of bytes in the array of blocks. Blocks without set bits
//! have no chunks, so a large empty filter takes only a few bytes. The shape of the blocks is stored, and never
//! computed again.
//!
//! The first items of a small filter that grows have fingerprints instead. Then the record has the capacity in the place
//! of the number of blocks, the number of fingerprints in that of the bits set, 1 block per item of 0 words, and the bits
//! of a fingerprint instead of probes. The only chunk is
//!
//! ```text
//!  0   for each quotient, a one for each of its items, and a zero; zeros until there is a bit for each quotient and for
//!      each item of the capacity
//!      the fingerprints, in order; zeros up to a whole word
//! ```
//!
//! Bits fill each byte from its lowest one. A quotient is the first bits of a hash: the fewest that are at least as many
//! as the capacity. When the filter grows, all is in the table, and there is no such chunk.

#![warn(clippy::arithmetic_side_effects)]

use std::borrow::Cow;

use super::chunk::BITS_CHUNK_BYTES;
use super::section::{Part, Section};
use crate::array::WORD;
use crate::codec::fields::Fields;
use crate::error::{DecodeError, Error};
use crate::item_count::{ItemCount, MAX_ITEMS};
use crate::kind::native::blocked_layer::{BlockedLayer, BlockedSpec};
use crate::memory::Admit;
use crate::sizing::{BlockShape, LAST_WORDS};

pub(crate) const RECORD_BYTES: usize = 40;

/// A valid record.
pub(crate) struct Record {
    spec: BlockedSpec,
    count: ItemCount,
    set_bits: u64,
}

impl Record {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Record, DecodeError> {
        let [blocks, capacity, items, set_bits] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let [blocks_per_item, probes, words] = [fields.u8()?, fields.u8()?, fields.u8()?];
        fields.zeros(5)?;
        let shape = BlockShape { blocks, words, blocks_per_item, probes };
        let count = ItemCount::from_stored(items);
        // The numbers of items and of set bits need not agree: a header may be older than its chunks.
        let is_sound = shape.is_sound()
            && (1..=i64::MAX as u64).contains(&capacity)
            && set_bits <= shape.bits()
            && count.items() <= MAX_ITEMS
            && (count.items() <= capacity || count.is_estimate())
            && (!shape.is_of_fingerprints() || (blocks, set_bits) == (capacity, count.items()));
        let record = Record { spec: BlockedSpec { shape, capacity }, count, set_bits };
        is_sound.then_some(record).ok_or(DecodeError::Corrupt)
    }

    /// Returns the bytes that the bits take.
    pub(crate) fn memory(&self) -> u64 {
        self.spec.shape.bytes()
    }

    pub(crate) fn is_of_fingerprints(&self) -> bool {
        self.spec.shape.is_of_fingerprints()
    }

    pub(crate) fn has_chunks(&self) -> bool {
        self.set_bits > 0
    }

    /// Returns the blocks without their bits. Their item count is that of the complete blocks.
    pub(crate) fn build(&self) -> Result<BlockedLayer, DecodeError> {
        let mut layer = BlockedLayer::new(self.spec)?;
        // Fingerprints are counted when they are loaded.
        let items = if layer.is_of_fingerprints() { 0 } else { self.count.items() };
        layer.set_item_count(ItemCount::new(items, self.count.is_estimate()));
        Ok(layer)
    }
}

impl Section for BlockedLayer {
    fn encode_record(&self, header: &mut Vec<u8>) {
        let BlockShape { blocks, words, blocks_per_item, probes } = self.shape();
        let numbers = [blocks, self.spec().capacity, self.count().to_stored(), self.set_bits()];
        header.extend_from_slice(numbers.map(u64::to_le_bytes).as_flattened());
        header.extend_from_slice(&[blocks_per_item, probes, words, 0, 0, 0, 0, 0]);
    }

    fn end(&self) -> u64 {
        let beside = if self.is_of_fingerprints() { const { LAST_WORDS * WORD as u64 } } else { 0 };
        self.shape().bytes().saturating_add(beside)
    }

    fn part_at(&self, position: u64) -> Result<Option<Part<'_>>, Error> {
        if self.set_bits() == 0 || position >= self.end() {
            return Ok(None);
        }
        if self.is_of_fingerprints() {
            return Ok(Some(Part { content: Cow::Owned(self.encoded()?), end: self.end() }));
        }
        let all = self.bytes();
        let start = position as usize & BITS_CHUNK_BYTES.wrapping_neg();
        let end = start.saturating_add(BITS_CHUNK_BYTES).min(all.len());
        Ok(Some(Part { content: Cow::Borrowed(&all[start..end]), end: end as u64 }))
    }

    fn content_bytes(&self) -> u64 {
        if self.set_bits() > 0 { self.end() } else { 0 }
    }

    fn end_of(&self, content: &[u8], start: u64) -> Option<u64> {
        start.checked_add(content.len() as u64).filter(|&end| end > start)
    }

    fn load(&mut self, content: &[u8], end: u64, _admit: Admit<'_>) -> Result<(), DecodeError> {
        if self.is_of_fingerprints() {
            *self = self.of_encoded(content)?.ok_or(DecodeError::Corrupt)?;
            return Ok(());
        }
        self.load_part(offset(content, end)?, content).ok_or(DecodeError::Corrupt)
    }

    fn merge(&mut self, content: &[u8], end: u64, _admit: Admit<'_>) -> Result<bool, DecodeError> {
        self.merge_part(offset(content, end)?, content).ok_or(DecodeError::Corrupt)
    }
}

/// Returns the offset of bits that end at `end`.
fn offset(bits: &[u8], end: u64) -> Result<usize, DecodeError> {
    let offset = end.checked_sub(bits.len() as u64).and_then(|offset| usize::try_from(offset).ok());
    offset.ok_or(DecodeError::Corrupt)
}
