//! Encodes native filters: a [header](super::header) with the records of the [blocks], and of the [table] if
//! the filter has grown; the chunks of the blocks, and then of the table.
//!
//! The tag of a chunk of bits is the XXH3-64 of the shape of the blocks, seeded with the filter's seed. The tag of a
//! chunk of the table also covers the lengths of its fingerprints. So the chunks of a filter also fit a copy that was
//! written to: bits are OR-ed in, and entries added, so that a filter can be written to while it is copied.

#![warn(clippy::arithmetic_side_effects)]

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::blocks;
use super::header::{OwnKind, Preamble};
use super::section::{MAX_SECTIONS, OwnFilter, Section};
use super::table;
use crate::array::try_box;
use crate::codec::Header;
use crate::error::{DecodeError, ensure};
use crate::item_count::MergeOp;
use crate::kind::native::NativeFilter;
use crate::kind::{Contained, KindFilter};
use crate::memory::Admit;
use crate::sizing::BlockShape;
use crate::spec::{Growth, OwnSpec};
use crate::table::{Addressing, Payload, Table};

impl OwnFilter for NativeFilter {
    fn spec(&self) -> &OwnSpec {
        &self.spec
    }

    fn encode_record(&self, _header: &mut Vec<u8>) {}

    fn sections(&self) -> [Option<&dyn Section>; MAX_SECTIONS] {
        [Some(&self.layer), self.table.as_deref().map(|table| table as _)]
    }

    fn sections_mut(&mut self) -> [Option<&mut dyn Section>; MAX_SECTIONS] {
        [Some(&mut self.layer), self.table.as_deref_mut().map(|table| table as _)]
    }

    fn tags(&self) -> [u64; MAX_SECTIONS] {
        let BlockShape { blocks, words, blocks_per_item, probes } = self.layer.shape();
        let [a, b, c, d, e, f, g, h] = blocks.to_le_bytes();
        // Before filters could be folded, the further blocks of an item were others: their chunks have another tag.
        let places = u8::from(blocks_per_item > 1 && self.layer.shape().has_fixed_places()) << 7;
        let shape = [a, b, c, d, e, f, g, h, words, blocks_per_item | places, probes];
        let of_blocks = xxh3_64_with_seed(&shape, self.spec.seed);
        let lengths = match self.table().map(Table::addressing) {
            Some(Addressing::Growing(lengths)) => lengths.to_bytes(),
            _ => [0, 0],
        };
        [of_blocks, xxh3_64_with_seed(&lengths, of_blocks)]
    }

    /// Fingerprints that do not fit into the layer, or come after the filter grew, are added to the table.
    fn merge_part(&mut self, number: usize, content: &[u8], end: u64, admit: Admit<'_>) -> Result<bool, DecodeError> {
        match (number, &mut self.table) {
            (0, _) if self.layer.is_of_fingerprints() => {
                ensure(end == self.layer.end())?;
                let layer = self.layer.of_encoded(content)?.ok_or(DecodeError::Corrupt)?;
                let source = NativeFilter { layer, spec: self.spec, table: None };
                Ok(self.merge(&[(&source, 1)], MergeOp::Union, admit)?)
            }
            (0, _) => Section::merge(&mut self.layer, content, end, admit),
            (_, Some(table)) => Section::merge(&mut **table, content, end, admit),
            (_, None) => Err(DecodeError::NoSuchOffset),
        }
    }
}

impl OwnKind for NativeFilter {
    const NUMBER: u8 = 0;
    const MAX_RECORD_BYTES: usize = blocks::RECORD_BYTES + table::RECORD_BYTES;

    fn decode_records(preamble: &mut Preamble<'_>) -> Result<Header, DecodeError> {
        let &mut Preamble { spec, sections, ref mut fields } = preamble;
        let blocks = blocks::Record::decode(fields)?;
        let table = match (sections, spec.growth) {
            (1, _) => None,
            (2, Growth::By(_)) => Some(table::Record::decode(fields, spec.growth, Payload::Nothing)?),
            _ => return Err(DecodeError::Corrupt),
        };
        // A filter with a table has no other fingerprints.
        ensure(table.is_none() || !(blocks.is_of_fingerprints() && blocks.has_chunks()))?;
        Ok(Header {
            memory: blocks.memory().saturating_add(table.as_ref().map_or(0, table::Record::memory)),
            has_chunks: [blocks.has_chunks(), table.as_ref().is_some_and(table::Record::has_chunks)],
            build: try_box(move || {
                let table = table.as_ref().map(table::Record::build_boxed).transpose()?;
                let mut layer = blocks.build()?;
                if table.is_some() && layer.is_of_fingerprints() {
                    layer.clear();
                }
                Ok(NativeFilter { layer, spec, table }.into_any()?)
            })?,
        })
    }
}
