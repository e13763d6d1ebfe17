//! The dump streams of layered filters, as in RedisBloom: the bytes of all layers, laid end to end, in chunks of one
//! layer.
//!
//! The cursor of a chunk is one more than the offset of its end. There are no checksums: a damaged chunk cannot be
//! detected, and only the order of the chunks shows that none is missing.

#![warn(clippy::arithmetic_side_effects)]

use std::borrow::Cow;

use super::encoding::Encoded;
use super::{DumpChunk, Header, LoadedChunk, Origin, Sink};
use crate::array::try_box;
use crate::codec::own::section::MAX_SECTIONS;
use crate::error::{DecodeError, Error, ensure};
use crate::kind::Contained;
use crate::kind::chain::bit_layer::BitLayer;
use crate::kind::chain::probes::Probes;
use crate::kind::chain::spec::BitLayerSpec;
use crate::kind::chain::{BitChain, Chain, ChainSpec};
use crate::memory::{Admit, try_collect};

/// The maximum number of bytes in a chunk that is written, as in RedisBloom. Chunks of any length are read.
const MAX_BYTES: usize = 16 << 20;

/// A layer, as it is stored.
pub(super) trait Layer {
    /// True if a chunk of the layer may have no bytes.
    const MAY_LOAD_NOTHING: bool;

    fn bytes(&self) -> &[u8];

    /// Stores the part of its bytes that starts at `start`. Returns true if it changed.
    fn load(&mut self, start: usize, part: &[u8], origin: Origin) -> Result<bool, DecodeError>;
}

impl<P: Probes> Layer for BitLayer<P> {
    const MAY_LOAD_NOTHING: bool = true;

    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn load(&mut self, start: usize, part: &[u8], origin: Origin) -> Result<bool, DecodeError> {
        let changed = match origin {
            Origin::Client => self.merge_part(start, part),
            Origin::Replication => self.replace_part(start, part),
        };
        changed.ok_or(DecodeError::BeyondLayer)
    }
}

/// The parameters that all layers of a chain share, and the encoding of the chain.
pub(super) trait ChainFormat: Sized {
    type Layer: Layer;

    fn write_rdb(filter: &Chain<Self::Layer, Self>, sink: &mut dyn Sink) -> Result<(), Error>;

    fn encode_header(filter: &Chain<Self::Layer, Self>) -> Result<Vec<u8>, Error>;
}

impl<C: ChainFormat> Encoded for Chain<C::Layer, C> {
    fn write_rdb(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        C::write_rdb(self, sink)
    }

    fn encode_header(&self) -> Result<Vec<u8>, Error> {
        C::encode_header(self)
    }

    /// Accepts any cursor, also one between two chunks.
    fn next_chunk(&self, cursor: u64) -> Result<Option<DumpChunk<'_>>, Error> {
        let place = cursor.checked_sub(1).and_then(|offset| locate(self.chain(), offset));
        Ok(place.map(|(layer, within)| {
            let bytes = &self.chain()[layer].bytes()[within..];
            let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
            DumpChunk { cursor: cursor.saturating_add(bytes.len() as u64), data: Cow::Borrowed(bytes) }
        }))
    }

    fn load_chunk<'a>(
        &'a mut self,
        cursor: u64,
        data: &'a [u8],
        origin: Origin,
        _admit: Admit<'_>,
    ) -> Result<LoadedChunk<'a>, DecodeError> {
        ensure(cursor > 0 && (C::Layer::MAY_LOAD_NOTHING || !data.is_empty()))?;
        let start = cursor.checked_sub(data.len() as u64).ok_or(DecodeError::Corrupt)?;
        let place = start.checked_sub(1).and_then(|offset| locate(self.chain(), offset));
        let (layer, within) = place.ok_or(DecodeError::NoSuchOffset)?;
        let layer = &mut self.chain_mut()[layer];
        let changed = layer.load(within, data, origin)?;
        Ok(LoadedChunk { bytes: &layer.bytes()[within..][..data.len()], changed })
    }

    fn digest_content(&self, add: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        self.chain().iter().for_each(|layer| add(layer.bytes()));
        Ok(())
    }

    fn is_next(&self, cursor: u64, length: u64, loaded: u64) -> bool {
        cursor == loaded.saturating_add(1).saturating_add(length)
    }

    /// The header does not depend on the bytes.
    fn is_complete(&self, _header: &[u8], loaded: u64) -> Result<bool, Error> {
        Ok(self.chain().iter().map(|layer| layer.bytes().len() as u64).sum::<u64>() == loaded)
    }
}

/// Returns the layer that holds the byte at `offset`, and the offset in it.
fn locate(layers: &[impl Layer], offset: u64) -> Option<(usize, usize)> {
    let mut start: u64 = 0;
    layers.iter().enumerate().find_map(|(index, layer)| {
        let (within, size) = (offset.checked_sub(start)?, layer.bytes().len() as u64);
        start = start.saturating_add(size);
        (within < size).then_some((index, within as usize))
    })
}

/// Returns the header of a chain of these layers of bits with these numbers of items.
pub(super) fn chain_header<S: ChainSpec>(spec: S, decoded: Vec<(BitLayerSpec, u64)>) -> Result<Header, DecodeError>
where
    BitChain<S>: Contained,
{
    Ok(Header {
        memory: decoded.iter().fold(0, |sum, (layer, _)| sum.saturating_add(layer.bytes)),
        has_chunks: [false; MAX_SECTIONS],
        build: try_box(move || {
            let layers = try_collect(decoded.iter().map(|&(spec, items)| {
                let mut layer = BitLayer::new(spec)?;
                layer.set_items(items);
                Ok::<_, Error>(layer)
            }))?;
            Ok(BitChain::from_layers(spec, layers).into_any()?)
        })?,
    })
}
