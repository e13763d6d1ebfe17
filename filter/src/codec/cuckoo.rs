//! Encodes cuckoo filters as bytes, in RedisBloom's formats, and decodes all versions of these.
//!
//! An RDB value (data type `MBbloomCF`, encoding version 4) is, with *u* for unsigned numbers and *s* for strings:
//!
//! ```text
//!  u layers   u buckets of the first   u items
//!  u removals   u bucket size   u maximum of iterations   u expansion
//!    (before version 4, these are absent: no removals, 2, 20 and 1)
//!  per layer:
//!    u buckets (version 4)   s the slots
//! ```
//!
//! A dump stream is a packed header of little-endian numbers,
//!
//! ```text
//!  u64 items   u64 buckets of the first   u64 removals   u64 layers   u16 bucket size   u16 iterations   u16 expansion
//! ```
//!
//! and the slots in chunks of [layers](super::layers).

#![warn(clippy::arithmetic_side_effects)]

use super::encoding::Format;
use super::layers::{ChainFormat, Layer};
use super::{Header, Origin, Sink, Source};
use crate::array::try_box;
use crate::codec::fields::Fields;
use crate::codec::own::section::MAX_SECTIONS;
use crate::error::{DecodeError, Error, ensure};
use crate::filter::Filter;
use crate::item_count::MAX_ITEMS;
use crate::kind::cuckoo::cuckoo_layer::{CuckooLayer, CuckooLayerSpec};
use crate::kind::cuckoo::{CuckooFilter, CuckooSpec, CuckooState};
use crate::kind::{Contained, KindFilter};
use crate::memory::{Admit, request, try_collect, try_vec};

/// The parameters of filters of RedisBloom's oldest files.
const OLD_SPEC: CuckooSpec = CuckooSpec { bucket_size: 2, max_iterations: 20, expansion: 1 };

/// The size of a header in bytes. No header of another format has it.
pub const HEADER_BYTES: usize = 38;

pub(super) struct CuckooFormat;

/// Returns the state of a filter and the shapes of its layers, or an error if no filter can have these numbers.
fn checked(state: CuckooState, buckets: u64, layers: u64) -> Result<(CuckooState, Vec<CuckooLayerSpec>), DecodeError> {
    let CuckooState { spec, items, removals } = state;
    let has_layers = (1..=CuckooSpec::MAX_LAYERS as u64).contains(&layers);
    ensure(spec.is_sound() && removals <= MAX_ITEMS && has_layers)?;
    // If items are added while RedisBloom dumps a filter, the copy has more items than its header says. When they
    // are removed, the count falls below 0, and wraps.
    let items = if items <= MAX_ITEMS { items } else { 0 };
    let mut next = Some(CuckooLayerSpec { bucket_size: spec.bucket_size, buckets });
    let layers = try_collect((0..layers as usize).map(|_| {
        let layer = next.filter(|layer| layer.checked_slots().is_some()).ok_or(DecodeError::Corrupt)?;
        next = spec.next(layer);
        Ok::<_, DecodeError>(layer)
    }))?;
    Ok((CuckooState { items, ..state }, layers))
}

impl Format for CuckooFormat {
    const VERSION: u32 = 4;

    fn read_rdb(version: u32, source: &mut impl Source, admit: Admit<'_>) -> Result<Filter, DecodeError> {
        let [layers, buckets, items] = [source.unsigned()?, source.unsigned()?, source.unsigned()?];
        let mut removals = 0;
        let mut spec = OLD_SPEC;
        if version >= 4 {
            removals = source.unsigned()?;
            let [bucket_size, max_iterations, expansion] = [source.number()?, source.number()?, source.number()?];
            spec = CuckooSpec { bucket_size, max_iterations, expansion };
        }
        let (state, layers) = checked(CuckooState { spec, items, removals }, buckets, layers)?;
        let layers = try_collect(layers.iter().map(|&spec| {
            ensure(version < 4 || source.unsigned()? == spec.buckets)?;
            let slots = spec.checked_slots().ok_or(DecodeError::Corrupt)?;
            request(slots, admit)?;
            CuckooLayer::from_slots(source.array(slots)?, spec).ok_or(DecodeError::Corrupt)
        }))?;
        Ok(Filter::from(CuckooFilter::from_layers(state, layers).into_any()?))
    }

    fn decode_header(bytes: &[u8], origin: Origin) -> Option<Result<Header, DecodeError>> {
        (bytes.len() == HEADER_BYTES).then(|| decode_header(Fields(bytes), origin))
    }
}

fn decode_header(mut fields: Fields<'_>, origin: Origin) -> Result<Header, DecodeError> {
    let [items, buckets, removals, layers] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
    let [bucket_size, max_iterations, expansion] = [fields.u16()?, fields.u16()?, fields.u16()?];
    // RedisBloom restores files with no iterations, but rejects such headers.
    ensure(max_iterations > 0 || origin == Origin::Replication)?;
    let spec = CuckooSpec { bucket_size, max_iterations, expansion };
    let (state, layers) = checked(CuckooState { spec, items, removals }, buckets, layers)?;
    Ok(Header {
        memory: layers.iter().filter_map(CuckooLayerSpec::checked_slots).fold(0, u64::saturating_add),
        has_chunks: [false; MAX_SECTIONS],
        build: try_box(move || {
            let layers = try_collect(layers.iter().map(|&spec| CuckooLayer::new(spec)))?;
            Ok(CuckooFilter::from_layers(state, layers).into_any()?)
        })?,
    })
}

impl Layer for CuckooLayer {
    const MAY_LOAD_NOTHING: bool = false;

    fn bytes(&self) -> &[u8] {
        self.slots()
    }

    /// Overwrites the slots. A client may only load a chunk into free slots, or what they hold already: the
    /// fingerprints of items that were added meanwhile must not get lost.
    fn load(&mut self, start: usize, part: &[u8], origin: Origin) -> Result<bool, DecodeError> {
        let slots = self.slots_mut()[start..].get_mut(..part.len()).ok_or(DecodeError::BeyondLayer)?;
        let changed = *slots != *part;
        if changed && origin == Origin::Client && slots.iter().any(|&slot| slot != 0) {
            return Err(DecodeError::Foreign);
        }
        slots.copy_from_slice(part);
        Ok(changed)
    }
}

impl ChainFormat for CuckooState {
    type Layer = CuckooLayer;

    fn write_rdb(filter: &CuckooFilter, sink: &mut dyn Sink) -> Result<(), Error> {
        let CuckooSpec { bucket_size, max_iterations, expansion } = *filter.spec();
        for number in [filter.chain().len() as u64, filter.first_buckets(), filter.items(), filter.removals()] {
            sink.unsigned(number);
        }
        for number in [bucket_size, max_iterations, expansion] {
            sink.unsigned(number.into());
        }
        for layer in filter.chain() {
            sink.unsigned(layer.spec().buckets);
            sink.string(layer.slots());
        }
        Ok(())
    }

    fn encode_header(filter: &CuckooFilter) -> Result<Vec<u8>, Error> {
        let CuckooSpec { bucket_size, max_iterations, expansion } = *filter.spec();
        let mut header = try_vec(HEADER_BYTES)?;
        let counts = [filter.items(), filter.first_buckets(), filter.removals(), filter.chain().len() as u64];
        header.extend_from_slice(counts.map(u64::to_le_bytes).as_flattened());
        header.extend_from_slice([bucket_size, max_iterations, expansion].map(u16::to_le_bytes).as_flattened());
        Ok(header)
    }
}
