//! Encodes valkey filters as bytes, in valkey-bloom's formats, and decodes these.
//!
//! An RDB value (data type `bloomfltr`, encoding version 1) is, with *u* for unsigned numbers, *d* for doubles, *s* for
//! strings:
//!
//! ```text
//!  u layers   u expansion (0: does not grow)   d error rate   d tightening ratio   u 1 if the seed is random, else 0
//!  per layer:
//!    u capacity   u items (the last layer; the others are full)   s blob
//! ```
//!
//! The payload of BF.LOAD, in which an append-only file has a filter, is packed:
//!
//! ```text
//!  u8 version (1)   u32 expansion   f64 error rate   f64 tightening ratio   u8 1 if the seed is random   u64 layers
//!  per layer:
//!    u64 length of the blob   blob   u64 items   u64 capacity
//! ```
//!
//! All numbers in bytes are little-endian. A blob is
//!
//! ```text
//!  u8 version (1)   u64 bytes of bits   u32 probes   the seed (32 bytes)   the bits
//! ```
//!
//! valkey-bloom has no dump stream. Ours is a header
//!
//! ```text
//!  "OXVALKEY"   u32 expansion   f64 error rate   f64 tightening ratio   the seed   u32 layers
//!  per layer:
//!    u64 capacity   u64 items   u64 bytes of bits   u32 probes
//! ```
//!
//! and the bits in chunks of layers, as those of classic filters.

#![warn(clippy::arithmetic_side_effects)]

use super::encoding::Format;
use super::layers::{ChainFormat, chain_header};
use super::{Header, Origin, Sink, Source};
use crate::array::Bytes;
use crate::codec::fields::Fields;
use crate::error::{DecodeError, Error, ensure};
use crate::filter::Filter;
use crate::item_count::MAX_ITEMS;
use crate::kind::Contained;
use crate::kind::chain::bit_layer::BitLayer;
use crate::kind::chain::spec::BitLayerSpec;
use crate::kind::chain::{BitChain, ChainSpec};
use crate::kind::valkey::{FIXED_SEED, SEED_BYTES, ValkeyFilter, ValkeyProbes, ValkeySpec};
use crate::memory::{Admit, request, try_append, try_collect, try_vec};
use crate::spec::ErrorRate;

/// The version of a blob, and of a payload.
const VERSION: u8 = 1;

/// The start of a header. As a number, it is larger than any item count, which is the start of other headers.
const MAGIC: [u8; 8] = *b"OXVALKEY";

/// The size of a header without its layers, and of a layer in it, in bytes.
const HEADER_BYTES: usize = 64;
const HEADER_LAYER_BYTES: usize = 28;

/// The bytes of a blob before its bits.
const BLOB_BYTES: usize = 45;

/// The size of a payload in bytes above which a server rejects it as an argument, unless it is configured otherwise.
const MAX_PAYLOAD: usize = 512 << 20;

pub(super) struct ValkeyFormat;

impl Format for ValkeyFormat {
    const VERSION: u32 = 1;

    fn read_rdb(_version: u32, source: &mut impl Source, admit: Admit<'_>) -> Result<Filter, DecodeError> {
        let num_layers = source.unsigned()?;
        let expansion = source.unsigned()?;
        let rates = [source.double()?, source.double()?];
        let is_random = source.unsigned()?;
        let mut reading = Reading::new(num_layers, expansion, rates, is_random)?;
        while reading.has_next() {
            // Development versions of valkey-bloom wrote the blob before the numbers. Servers cannot tell.
            let blob = if source.has_string_next() == Some(true) { Some(source.array(0)?) } else { None };
            let capacity = source.unsigned()?;
            let items = if reading.is_last() { source.unsigned()? } else { capacity };
            let blob = match blob {
                Some(blob) => blob,
                None => source.array(reading.expected(capacity)?.bytes.saturating_add(BLOB_BYTES as u64))?,
            };
            reading.add(capacity, items, blob.as_slice().as_flattened(), admit)?;
        }
        reading.finish()
    }

    fn decode_header(bytes: &[u8], _origin: Origin) -> Option<Result<Header, DecodeError>> {
        Some(decode_header(Fields(bytes.strip_prefix(&MAGIC)?)))
    }
}

/// A filter that is being read, layer by layer.
struct Reading {
    num_layers: usize,
    /// The parameters. The seed is that of the first layer.
    spec: ValkeySpec,
    is_random: bool,
    /// The number of layers whose numbers were read, and the parameters of the last of them.
    read: usize,
    newest: Option<BitLayerSpec>,
    layers: Vec<BitLayer<ValkeyProbes>>,
}

impl Reading {
    /// Checks the numbers of a filter. `rates` are its error rate and its tightening ratio.
    fn new(num_layers: u64, expansion: u64, rates: [f64; 2], is_random: u64) -> Result<Reading, DecodeError> {
        let [error_rate, tightening] = rates;
        let spec = ValkeySpec {
            seed: FIXED_SEED,
            error_rate: ErrorRate::new(error_rate).ok_or(DecodeError::Corrupt)?,
            tightening: ErrorRate::new(tightening).ok_or(DecodeError::Corrupt)?,
            expansion: expansion.try_into().map_err(|_| DecodeError::Corrupt)?,
        };
        ensure((1..=ValkeySpec::MAX_LAYERS as u64).contains(&num_layers) && is_random <= 1)?;
        let (num_layers, is_random) = (num_layers as usize, is_random == 1);
        Ok(Reading { num_layers, spec, is_random, read: 0, newest: None, layers: Vec::new() })
    }

    fn has_next(&self) -> bool {
        self.read < self.num_layers
    }

    /// Returns true if the next layer is the last.
    fn is_last(&self) -> bool {
        self.read.saturating_add(1) == self.num_layers
    }

    /// Returns the parameters that the next layer has if this is its capacity.
    fn expected(&self, capacity: u64) -> Result<BitLayerSpec, DecodeError> {
        let expected = match self.newest {
            None => self.spec.first(capacity, self.spec.error_rate.get()),
            Some(newest) => self.spec.next(&newest, self.read),
        };
        expected.map_err(|_| DecodeError::Corrupt)
    }

    /// Reads the numbers of the next layer. Returns its parameters, or an error unless they are as expected. On another
    /// machine, a logarithm or a power may differ in its last bit, and then so may the size.
    fn next(&mut self, capacity: u64, items: u64, bytes: u64, probes: u32) -> Result<BitLayerSpec, DecodeError> {
        let expected = self.expected(capacity)?;
        let is_sized = bytes.abs_diff(expected.bytes) <= 1 && probes.abs_diff(expected.probes) <= 1;
        let is_filled = items <= capacity.min(MAX_ITEMS) && (self.is_last() || items == capacity);
        let layer = BitLayerSpec { bytes, bits: bytes.saturating_mul(8), probes, ..expected };
        ensure(capacity == expected.capacity && is_sized && is_filled && layer.is_sound())?;
        self.newest = Some(layer);
        self.read = self.read.saturating_add(1);
        Ok(layer)
    }

    fn add(&mut self, capacity: u64, items: u64, blob: &[u8], admit: Admit<'_>) -> Result<(), DecodeError> {
        let mut fields = Fields(blob);
        check_version(&mut fields)?;
        let bytes = fields.u64()?;
        let probes = fields.u32()?;
        let seed = *fields.array::<SEED_BYTES>()?;
        if self.newest.is_none() && self.is_random {
            self.spec.seed = seed;
        }
        let layer = self.next(capacity, items, bytes, probes)?;
        ensure(seed == self.spec.seed && fields.0.len() as u64 == bytes)?;
        request(bytes, admit)?;
        let layer = BitLayer::from_stored(Bytes::copied(fields.0)?, layer, items).ok_or(DecodeError::Corrupt)?;
        self.layers.try_reserve(1).map_err(|_| DecodeError::OutOfMemory)?;
        self.layers.push(layer);
        Ok(())
    }

    fn finish(self) -> Result<Filter, DecodeError> {
        Ok(Filter::from(BitChain::from_layers(self.spec, self.layers).into_any()?))
    }
}

/// Checks the version of a blob or of a payload.
fn check_version(fields: &mut Fields<'_>) -> Result<(), DecodeError> {
    match fields.u8()? {
        VERSION => Ok(()),
        0 => Err(DecodeError::Corrupt),
        _ => Err(DecodeError::NewerVersion),
    }
}

/// Decodes a payload of BF.LOAD. Bytes after the filter are ignored, as valkey-bloom does.
pub fn decode_payload(payload: &[u8], admit: Admit<'_>) -> Result<Filter, DecodeError> {
    let mut fields = Fields(payload);
    check_version(&mut fields)?;
    let expansion = fields.u32()?.into();
    let rates = [fields.f64()?, fields.f64()?];
    let is_random = fields.u8()?.into();
    let mut reading = Reading::new(fields.u64()?, expansion, rates, is_random)?;
    while reading.has_next() {
        let length = fields.u64()?;
        let blob = fields.take(length)?;
        let items = fields.u64()?;
        let capacity = fields.u64()?;
        reading.add(capacity, items, blob, admit)?;
    }
    reading.finish()
}

/// Returns the payload of BF.LOAD for a filter, or `None` if it is no valkey filter, or too large for an argument.
pub fn encode_payload(filter: &Filter) -> Result<Option<Vec<u8>>, Error> {
    const START: usize = 30;
    const PER_LAYER: usize = 24 + BLOB_BYTES;
    let Some(filter) = filter.valkey() else { return Ok(None) };
    let size = filter
        .chain()
        .iter()
        .fold(START, |sum, layer| sum.saturating_add(PER_LAYER).saturating_add(layer.bytes().len()));
    if size > MAX_PAYLOAD {
        return Ok(None);
    }
    let spec = filter.spec();
    let mut payload = try_vec(size)?;
    payload.push(VERSION);
    payload.extend_from_slice(&spec.expansion.to_le_bytes());
    payload.extend_from_slice([spec.error_rate, spec.tightening].map(|rate| rate.get().to_le_bytes()).as_flattened());
    payload.push(is_random(spec).into());
    payload.extend_from_slice(&(filter.chain().len() as u64).to_le_bytes());
    for layer in filter.chain() {
        let length = BLOB_BYTES.saturating_add(layer.bytes().len()) as u64;
        payload.extend_from_slice(&length.to_le_bytes());
        append_blob(&mut payload, spec, layer)?;
        payload.extend_from_slice([layer.items(), layer.spec().capacity].map(u64::to_le_bytes).as_flattened());
    }
    debug_assert_eq!(payload.len(), size);
    Ok(Some(payload))
}

fn is_random(spec: &ValkeySpec) -> bool {
    spec.seed != FIXED_SEED
}

fn append_blob(bytes: &mut Vec<u8>, spec: &ValkeySpec, layer: &BitLayer<ValkeyProbes>) -> Result<(), Error> {
    let BitLayerSpec { bytes: length, probes, .. } = layer.spec();
    try_append(bytes, &[&[VERSION], &length.to_le_bytes(), &probes.to_le_bytes(), &spec.seed, layer.bytes()])
}

/// Decodes and checks a header, without its magic.
fn decode_header(mut fields: Fields<'_>) -> Result<Header, DecodeError> {
    let expansion = fields.u32()?.into();
    let rates = [fields.f64()?, fields.f64()?];
    let seed = *fields.array()?;
    let num_layers = fields.u32()?;
    let mut reading = Reading::new(num_layers.into(), expansion, rates, 1)?;
    ensure(fields.0.len() == reading.num_layers.saturating_mul(HEADER_LAYER_BYTES))?;
    let decoded = try_collect((0..reading.num_layers).map(|_| {
        let [capacity, items, bytes] = [fields.u64()?, fields.u64()?, fields.u64()?];
        Ok::<_, DecodeError>((reading.next(capacity, items, bytes, fields.u32()?)?, items))
    }))?;
    chain_header(ValkeySpec { seed, ..reading.spec }, decoded)
}

impl ChainFormat for ValkeySpec {
    type Layer = BitLayer<ValkeyProbes>;

    fn write_rdb(filter: &ValkeyFilter, sink: &mut dyn Sink) -> Result<(), Error> {
        let spec = filter.spec();
        sink.unsigned(filter.chain().len() as u64);
        sink.unsigned(spec.expansion.into());
        sink.double(spec.error_rate.get());
        sink.double(spec.tightening.get());
        sink.unsigned(is_random(spec).into());
        let last = filter.chain().len().saturating_sub(1);
        for (index, layer) in filter.chain().iter().enumerate() {
            let mut blob = Vec::new();
            append_blob(&mut blob, spec, layer)?;
            sink.unsigned(layer.spec().capacity);
            if index == last {
                sink.unsigned(layer.items());
            }
            sink.string(&blob);
        }
        Ok(())
    }

    fn encode_header(filter: &ValkeyFilter) -> Result<Vec<u8>, Error> {
        let layers = filter.chain();
        let &ValkeySpec { seed, error_rate, tightening, expansion } = filter.spec();
        let mut header = try_vec(HEADER_BYTES.saturating_add(layers.len().saturating_mul(HEADER_LAYER_BYTES)))?;
        header.extend_from_slice(&MAGIC);
        header.extend_from_slice(&expansion.to_le_bytes());
        header.extend_from_slice([error_rate, tightening].map(|rate| rate.get().to_le_bytes()).as_flattened());
        header.extend_from_slice(&seed);
        header.extend_from_slice(&(layers.len() as u32).to_le_bytes());
        for layer in layers {
            let BitLayerSpec { bytes, probes, capacity, .. } = layer.spec();
            header.extend_from_slice([capacity, layer.items(), bytes].map(u64::to_le_bytes).as_flattened());
            header.extend_from_slice(&probes.to_le_bytes());
        }
        Ok(header)
    }
}
