//! Encodes counting filters: a [header](super::header) with a record, and the chunks of the [table].
//!
//! ```text
//!  record
//!  0   capacity, history (u64 each)
//!  16  the figures of a cuckoo filter, if it stands for one:
//!      bucket size, maximum of iterations, expansion (u16 each), 1 if it was converted, else 0 (u16), removals (u64)
//!      the table's record
//! ```
//!
//! If an item were removed or moved between two chunks, the copy would be inconsistent. So the tags of chunks depend on
//! the filter's counts and on its history, a sum of hashes of all writes. Chunks are accepted only while neither the
//! source nor the copy has been written to since the header was encoded.

#![warn(clippy::arithmetic_side_effects)]

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::header::{OwnKind, Preamble};
use super::section::{MAX_SECTIONS, OwnFilter, Section};
use super::table;
use crate::array::try_box;
use crate::codec::Header;
use crate::codec::fields::Fields;
use crate::error::{DecodeError, ensure};
use crate::kind::Contained;
use crate::kind::counting::figures::CuckooFigures;
use crate::kind::counting::{CountingFilter, Figures};
use crate::kind::cuckoo::CuckooSpec;
use crate::spec::{Growth, OwnSpec};
use crate::table::Payload;

/// The figures of a kind of counting filters, as they are stored.
pub(super) trait StoredFigures: Figures {
    const KIND_NUMBER: u8;

    /// Appends the figures to a header.
    fn encode(&self, header: &mut Vec<u8>);
    /// Decodes the figures of a filter that grows in this way.
    fn decode(fields: &mut Fields<'_>, growth: Growth) -> Result<Self, DecodeError>;
}

impl StoredFigures for () {
    const KIND_NUMBER: u8 = 2;

    fn encode(&self, _header: &mut Vec<u8>) {}

    fn decode(_fields: &mut Fields<'_>, _growth: Growth) -> Result<(), DecodeError> {
        Ok(())
    }
}

impl StoredFigures for CuckooFigures {
    const KIND_NUMBER: u8 = 4;

    fn encode(&self, header: &mut Vec<u8>) {
        let CuckooSpec { bucket_size, max_iterations, expansion } = self.spec;
        let numbers = [bucket_size, max_iterations, expansion, self.is_converted.into()];
        header.extend_from_slice(numbers.map(u16::to_le_bytes).as_flattened());
        header.extend_from_slice(&self.removals.to_le_bytes());
    }

    fn decode(fields: &mut Fields<'_>, growth: Growth) -> Result<CuckooFigures, DecodeError> {
        let [bucket_size, max_iterations, expansion] = [fields.u16()?, fields.u16()?, fields.u16()?];
        let converted = fields.u16()?;
        let spec = CuckooSpec { bucket_size, max_iterations, expansion };
        ensure(spec.is_sound() && spec.growth() == growth && converted <= 1)?;
        Ok(CuckooFigures { spec, removals: fields.u64()?, is_converted: converted == 1 })
    }
}

impl<F: StoredFigures> OwnFilter for CountingFilter<F> {
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

impl<F: StoredFigures> OwnKind for CountingFilter<F>
where
    CountingFilter<F>: Contained,
{
    const NUMBER: u8 = F::KIND_NUMBER;
    const MAX_RECORD_BYTES: usize = 32 + table::RECORD_BYTES;

    fn decode_records(preamble: &mut Preamble<'_>) -> Result<Header, DecodeError> {
        let &mut Preamble { spec, sections, ref mut fields } = preamble;
        let [capacity, history] = [fields.u64()?, fields.u64()?];
        let figures = F::decode(fields, spec.growth)?;
        let table = table::Record::decode(fields, spec.growth, Payload::Count)?;
        ensure(sections == 1 && (1..=i64::MAX as u64).contains(&capacity))?;
        Ok(Header {
            memory: table.memory(),
            has_chunks: [table.has_chunks(), false],
            build: try_box(move || {
                Ok(CountingFilter { spec, capacity, table: table.build()?, history, figures }.into_any()?)
            })?,
        })
    }
}
