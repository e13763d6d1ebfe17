//! Encodes classic filters as bytes, in RedisBloom's formats, and decodes all versions of these.
//!
//! An RDB value (data type `MBbloom--`, encoding version 4) is, with *u* for unsigned numbers, *d* for doubles, *s* for
//! strings:
//!
//! ```text
//!  u items   u layers   u options (version >= 2, else 0)   u expansion (version >= 4, else 2)
//!  per layer:
//!    u capacity   d error rate   u probes   d bits per item   u bits   u log2 of bits   s the bit array   u items
//!    (version 0: neither bits nor their log2; bits = capacity * bits per item)
//! ```
//!
//! A dump stream is a packed header of little-endian numbers,
//!
//! ```text
//!  u64 items   u32 layers   u32 options   u32 expansion
//!  per layer:
//!    u64 bytes   u64 bits   u64 items   f64 error rate   f64 bits per item   u32 probes   u64 capacity
//!    u8 log2 of bits
//! ```
//!
//! and the bit arrays in chunks of [layers](super::layers).

#![warn(clippy::arithmetic_side_effects)]

use super::encoding::Format;
use super::layers::{ChainFormat, chain_header};
use super::{Header, Origin, Sink, Source};
use crate::array::Bytes;
use crate::codec::fields::Fields;
use crate::error::{DecodeError, Error, ensure};
use crate::filter::Filter;
use crate::item_count::MAX_ITEMS;
use crate::kind::chain::ChainSpec;
use crate::kind::chain::probes::MAX_BITS;
use crate::kind::chain::spec::BitLayerSpec;
use crate::kind::classic::{ClassicFilter, ClassicLayer, ClassicSpec, Options, probes_for};
use crate::kind::{Contained, KindFilter};
use crate::memory::{Admit, request, try_collect, try_vec};

/// RedisBloom's expansion where an RDB value has none.
const OLD_EXPANSION: u32 = 2;

/// The size of a header without its layers, and of a layer in it, in bytes.
const HEADER_BYTES: usize = 20;
const HEADER_LAYER_BYTES: usize = 53;

pub(super) struct ClassicFormat;

impl Format for ClassicFormat {
    const VERSION: u32 = 4;

    fn read_rdb(version: u32, source: &mut impl Source, admit: Admit<'_>) -> Result<Filter, DecodeError> {
        // The number of items is ignored: the layers' item counts are used.
        source.unsigned()?;
        let count = source.unsigned()?;
        let options = if version >= 2 { source.number()? } else { 0 };
        let expansion = if version >= 4 { source.number()? } else { OLD_EXPANSION };
        let spec = spec(options, expansion)?;
        ensure((1..=ClassicSpec::MAX_LAYERS as u64).contains(&count))?;
        let layers = try_collect((0..count as usize).map(|_| read_layer(version, source, admit)))?;
        Ok(Filter::from(ClassicFilter::from_layers(spec, layers).into_any()?))
    }

    fn decode_header(bytes: &[u8], origin: Origin) -> Option<Result<Header, DecodeError>> {
        Some(decode_header(bytes, origin))
    }

    fn check_chunk(cursor: u64, data: &[u8]) -> Option<Result<(), DecodeError>> {
        let start = cursor.checked_sub(data.len() as u64);
        Some(start.map(drop).ok_or(DecodeError::Corrupt))
    }
}

fn read_layer(version: u32, source: &mut impl Source, admit: Admit<'_>) -> Result<ClassicLayer, DecodeError> {
    let capacity = source.unsigned()?;
    let error_rate = source.double()?;
    let probes = source.number()?;
    let bits_per_item = source.double()?;
    let (bits, log2_bits) = match version {
        0 => ((capacity as f64 * bits_per_item) as u64, 0),
        _ => (source.unsigned()?, source.number()?),
    };
    let mut layer =
        BitLayerSpec { bytes: bits.div_ceil(8), bits, log2_bits, probes, capacity, error_rate, bits_per_item };
    ensure(layer.bytes <= MAX_BITS / 8)?;
    request(layer.bytes, admit)?;
    let array: Bytes = source.array(layer.bytes)?;
    // The array may be longer than its bits need.
    let bytes = array.as_slice().len() as u64;
    request(bytes.saturating_sub(layer.bytes), admit)?;
    layer.bytes = bytes;
    let items = source.unsigned()?;
    ClassicLayer::from_stored(array, layer, items).filter(|_| items <= MAX_ITEMS).ok_or(DecodeError::Corrupt)
}

fn spec(options: u32, expansion: u32) -> Result<ClassicSpec, DecodeError> {
    Ok(ClassicSpec { options: Options::new(options).ok_or(DecodeError::Corrupt)?, expansion })
}

fn decode_header(bytes: &[u8], origin: Origin) -> Result<Header, DecodeError> {
    let mut fields = Fields(bytes);
    let items = fields.u64()?;
    let count = fields.u32()? as usize;
    let spec = spec(fields.u32()?, fields.u32()?)?;
    ensure((1..=ClassicSpec::MAX_LAYERS).contains(&count))?;
    ensure(fields.0.len() == count.saturating_mul(HEADER_LAYER_BYTES))?;
    let decoded = try_collect((0..count).map(|_| decode_layer(&mut fields, origin)))?;
    ensure(decoded.iter().map(|(_, items)| items).sum::<u64>() == items)?;
    chain_header(spec, decoded)
}

/// Decodes and checks a layer. RedisBloom requires that all bytes of a layer are bits, and that the number of probes
/// follows from the bits per item. Filters from its oldest files differ, and must be readable from our append-only
/// files.
fn decode_layer(fields: &mut Fields<'_>, origin: Origin) -> Result<(BitLayerSpec, u64), DecodeError> {
    let [bytes, bits, items] = [fields.u64()?, fields.u64()?, fields.u64()?];
    let [error_rate, bits_per_item] = [fields.f64()?, fields.f64()?];
    let probes = fields.u32()?;
    let spec = BitLayerSpec { bytes, bits, log2_bits: 0, probes, capacity: fields.u64()?, error_rate, bits_per_item };
    let spec = BitLayerSpec { log2_bits: fields.u8()?, ..spec };
    let is_usual = bytes > 0 && bytes.checked_mul(8) == Some(bits) && probes == probes_for(bits_per_item);
    let sound = spec.is_sound() && items <= MAX_ITEMS && (is_usual || origin == Origin::Replication);
    sound.then_some((spec, items)).ok_or(DecodeError::Corrupt)
}

impl ChainFormat for ClassicSpec {
    type Layer = ClassicLayer;

    fn write_rdb(filter: &ClassicFilter, sink: &mut dyn Sink) -> Result<(), Error> {
        let ClassicSpec { options, expansion } = filter.spec();
        for number in [filter.items(), filter.chain().len() as u64, options.bits().into(), (*expansion).into()] {
            sink.unsigned(number);
        }
        for layer in filter.chain() {
            let BitLayerSpec { bits, log2_bits, probes, capacity, error_rate, bits_per_item, .. } = layer.spec();
            sink.unsigned(capacity);
            sink.double(error_rate);
            sink.unsigned(probes.into());
            sink.double(bits_per_item);
            sink.unsigned(bits);
            sink.unsigned(log2_bits.into());
            sink.string(layer.bytes());
            sink.unsigned(layer.items());
        }
        Ok(())
    }

    fn encode_header(filter: &ClassicFilter) -> Result<Vec<u8>, Error> {
        let ClassicSpec { options, expansion } = filter.spec();
        let layers = filter.chain();
        let mut header = try_vec(HEADER_BYTES.saturating_add(layers.len().saturating_mul(HEADER_LAYER_BYTES)))?;
        header.extend_from_slice(&filter.items().to_le_bytes());
        for number in [layers.len() as u32, options.bits(), *expansion] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        for layer in layers {
            let BitLayerSpec { bytes, bits, log2_bits, probes, capacity, error_rate, bits_per_item } = layer.spec();
            for number in [bytes, bits, layer.items(), error_rate.to_bits(), bits_per_item.to_bits()] {
                header.extend_from_slice(&number.to_le_bytes());
            }
            header.extend_from_slice(&probes.to_le_bytes());
            header.extend_from_slice(&capacity.to_le_bytes());
            header.push(log2_bits);
        }
        Ok(header)
    }
}
