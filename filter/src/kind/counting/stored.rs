//! Encodes counting filters: a [header](crate::stored::header) with a record, and the chunks of the [table].
//!
//! ```text
//!  record
//!  0   capacity, history (u64 each)
//!  16  the figures, if any (see `figures`)
//!      the table's record
//! ```
//!
//! If an item were removed or moved between two chunks, the copy would be inconsistent. So the tags of chunks depend on
//! the filter's counts and on its history, a sum of hashes of all writes. Chunks are accepted only while neither the
//! source nor the copy has been written to since the header was encoded.

#![warn(clippy::arithmetic_side_effects)]

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::array::try_box;
use crate::error::DecodeError;
use crate::kind::counting::{CountingFilter, Figures};
use crate::kind::{Contained, Header};
use crate::spec::OwnSpec;
use crate::stored::Stored;
use crate::stored::header::Preamble;
use crate::stored::section::{MAX_SECTIONS, Section};
use crate::stored::table;
use crate::table::Payload;

/// The size of the records without the figures, in bytes.
pub(crate) const MAX_RECORD_BYTES: usize = 16 + table::RECORD_BYTES;

impl<F: Figures> Stored for CountingFilter<F> {
    fn code(&self) -> u8 {
        F::CODE
    }

    fn spec(&self) -> &OwnSpec {
        &self.spec
    }

    fn encode_record(&self, header: &mut Vec<u8>) {
        header.extend_from_slice([self.capacity, self.history].map(u64::to_le_bytes).as_flattened());
        self.figures.encode(header);
    }

    fn sections(&self) -> [Option<&dyn Section>; MAX_SECTIONS] {
        [Some(&self.table), None]
    }

    fn sections_mut(&mut self) -> [Option<&mut dyn Section>; MAX_SECTIONS] {
        [Some(&mut self.table), None]
    }

    fn tags(&self) -> [u64; MAX_SECTIONS] {
        let items = self.table.item_count().to_stored();
        let state = [self.capacity, items, self.table.occurrences(), self.history];
        [xxh3_64_with_seed(state.map(u64::to_le_bytes).as_flattened(), self.spec.seed); MAX_SECTIONS]
    }
}

/// Decodes the record.
pub(crate) fn decode_records<F: Figures>(preamble: &mut Preamble<'_>) -> Result<Header, DecodeError>
where
    CountingFilter<F>: Contained,
{
    let &mut Preamble { spec, sections, ref mut fields } = preamble;
    let [capacity, history] = [fields.u64()?, fields.u64()?];
    let figures = F::decode(fields, spec.growth)?;
    let table = table::Record::decode(fields, spec.growth, Payload::Count)?;
    if sections != 1 || !(1..=i64::MAX as u64).contains(&capacity) {
        return Err(DecodeError::Corrupt);
    }
    Ok(Header {
        memory: table.memory(),
        has_chunks: [table.has_chunks(), false],
        build: try_box(move || {
            Ok(CountingFilter { spec, capacity, table: table.build()?, history, figures }.into_content()?)
        })?,
    })
}
