//! Encodes filters that forget: a [header](super::header) with a record of the slices and a record of each
//! [table], and the chunks of the tables.
//!
//! ```text
//!  record of the slices
//!  0   capacity, window in milliseconds (u64 each; 0: time does not matter)
//!  16  slices of a window (u8), 1 if items are renewed + 2 if it is rolling (u8), number of remembered slices (u8),
//!      five zero bytes
//!  24  last forgotten slice, time of the last change in milliseconds since 1970, history, position in each table
//!      where the next sweep for forgotten slots starts (u64 each)
//!  64  per remembered slice: the time when it is forgotten, items in each table (u64 each)
//! ```
//!
//! As in [counting filters](super::counting), chunks are accepted only if neither the source nor the copy
//! was written to since the header was encoded. Positions of the overflow table follow those of the first.

#![warn(clippy::arithmetic_side_effects)]

use std::num::NonZeroU64;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::header::{OwnKind, Preamble};
use super::section::{MAX_SECTIONS, OwnFilter, Section};
use super::table;
use crate::array::try_box;
use crate::codec::Header;
use crate::error::{DecodeError, ensure};
use crate::kind::Contained;
use crate::kind::windowed::WindowedFilter;
use crate::kind::windowed::slices::{Slice, Slices, TABLES};
use crate::memory::try_collect;
use crate::spec::{Growth, OwnSpec};
use crate::table::{END, Payload, Stamps};
use crate::window::{MAX_SPAN, Window};

const REFRESH: u8 = 1;
const ROLLING: u8 = 2;

/// The size of the record of the slices without its slices.
const SLICES_BYTES: usize = 64;

/// The size of a slice in the record.
const SLICE_BYTES: usize = (1 + TABLES) * size_of::<u64>();

impl OwnFilter for WindowedFilter {
    fn spec(&self) -> &OwnSpec {
        &self.spec
    }

    fn encode_record(&self, header: &mut Vec<u8>) {
        let slices = &self.slices;
        let Window { length, slices: number, refresh, rolling } = slices.window();
        let flags = if refresh { REFRESH } else { 0 } | if rolling { ROLLING } else { 0 };
        let append = |header: &mut Vec<u8>, numbers: &[u64]| {
            numbers.iter().for_each(|number| header.extend_from_slice(&number.to_le_bytes()));
        };
        append(header, &[self.capacity, length.map_or(0, NonZeroU64::get)]);
        header.extend_from_slice(&[number, flags, slices.remembered().len() as u8, 0, 0, 0, 0, 0]);
        append(header, &[slices.forgotten(), slices.latest(), self.history]);
        append(header, &self.sweep_positions);
        for Slice { until, items } in slices.remembered() {
            append(header, &[*until]);
            append(header, items);
        }
    }

    fn sections(&self) -> [Option<&dyn Section>; MAX_SECTIONS] {
        [Some(&self.expected), self.overflow.as_deref().map(|table| table as _)]
    }

    fn sections_mut(&mut self) -> [Option<&mut dyn Section>; MAX_SECTIONS] {
        [Some(&mut self.expected), self.overflow.as_deref_mut().map(|table| table as _)]
    }

    fn tags(&self) -> [u64; MAX_SECTIONS] {
        let slices = &self.slices;
        let [expected, overflow] = slices.items();
        let state = [self.capacity, slices.forgotten(), slices.latest(), self.history, expected, overflow];
        let tag = xxh3_64_with_seed(state.map(u64::to_le_bytes).as_flattened(), self.spec.seed);
        [tag, !tag]
    }
}

impl OwnKind for WindowedFilter {
    const NUMBER: u8 = 3;
    const MAX_RECORD_BYTES: usize = SLICES_BYTES + MAX_SPAN as usize * SLICE_BYTES + MAX_SECTIONS * table::RECORD_BYTES;

    fn decode_records(preamble: &mut Preamble<'_>) -> Result<Header, DecodeError> {
        let &mut Preamble { spec, sections, ref mut fields } = preamble;
        let capacity = Some(fields.u64()?).filter(|capacity| (1..=i64::MAX as u64).contains(capacity));
        let length = fields.u64()?;
        let slices = fields.u8()?;
        let flags = fields.u8()?;
        let number = fields.u8()?;
        fields.zeros(5)?;
        let refresh = flags & REFRESH != 0;
        let rolling = flags & ROLLING != 0;
        let window = Window { length: NonZeroU64::new(length), slices, refresh, rolling }.checked();
        let is_sound = flags <= REFRESH | ROLLING && !(rolling && spec.growth != Growth::Fixed);
        let window = window.filter(|_| is_sound).ok_or(DecodeError::Corrupt)?;
        let capacity = capacity.ok_or(DecodeError::Corrupt)?;
        let [forgotten, latest] = [fields.u64()?, fields.u64()?];
        let history = fields.u64()?;
        let sweep_positions = [fields.u64()?, fields.u64()?];
        ensure(sweep_positions.iter().all(|&position| position < END))?;
        let decode_slice =
            |_| Ok::<_, DecodeError>(Slice { until: fields.u64()?, items: [fields.u64()?, fields.u64()?] });
        let remembered = try_collect((0..number).map(decode_slice))?;
        let slices = Slices::restored(window, capacity, (forgotten, latest), &remembered)?;
        let payload = Payload::Slice(Stamps { forgotten, span: window.span() });
        let expected = table::Record::decode(fields, Growth::Fixed, payload)?;
        let overflow = match (sections, spec.growth) {
            (1, _) => None,
            (2, Growth::By(_)) => Some(table::Record::decode(fields, spec.growth, payload)?),
            _ => return Err(DecodeError::Corrupt),
        };
        let is_in_overflow = |slice: &Slice| slice.items[1] > 0;
        ensure(overflow.is_some() || !remembered.iter().any(is_in_overflow))?;
        Ok(Header {
            memory: expected.memory().saturating_add(overflow.as_ref().map_or(0, table::Record::memory)),
            has_chunks: [expected.has_chunks(), overflow.as_ref().is_some_and(table::Record::has_chunks)],
            build: try_box(move || {
                let slices = slices.try_clone()?;
                let expected = expected.build()?;
                let overflow = overflow.as_ref().map(table::Record::build_boxed).transpose()?;
                let filter = WindowedFilter { spec, capacity, slices, expected, overflow, sweep_positions, history };
                Ok(filter.into_any()?)
            })?,
        })
    }
}
