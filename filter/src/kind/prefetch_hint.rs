//! The address where a filter looks for an item first. It is a hint, which stays harmless even if the filter is gone.

use crate::block_array::BlockSpan;
use crate::hash::Hash;
use crate::kind::classic::ClassicFilter;
use crate::kind::classic::layer::ClassicHint;
use crate::kind::native::NativeFilter;

/// The address of the blocks or of the newest layer of a filter, and its hash function.
///
/// If the filter is gone, a prefetch has no effect.
#[derive(Clone, Copy, Debug)]
pub enum PrefetchHint {
    /// The blocks of a native layer.
    Blocks {
        /// The address of the blocks.
        blocks: BlockSpan,
        /// The filter's seed.
        seed: u64,
    },
    /// The probes of a classic layer.
    Classic(ClassicHint),
}

impl PrefetchHint {
    /// Returns the hint for the blocks of a native filter, unless they have less than `min_bytes`.
    #[inline]
    pub fn of_native(filter: &NativeFilter, min_bytes: u64) -> Option<PrefetchHint> {
        let layer = filter.layer();
        let is_large = layer.bytes().len() as u64 >= min_bytes && layer.array().is_of_lines();
        is_large.then(|| PrefetchHint::Blocks { blocks: layer.array().span(), seed: filter.spec().seed })
    }

    /// Returns the hint for a classic filter, unless its newest layer has less than `min_bytes`.
    #[inline]
    pub fn of_classic(filter: &ClassicFilter, min_bytes: u64) -> Option<PrefetchHint> {
        let newest = filter.layers().last().filter(|layer| layer.bytes().len() as u64 >= min_bytes)?;
        Some(PrefetchHint::Classic(ClassicHint::new(filter.spec(), newest)))
    }

    /// Prefetches the memory in which an item is looked up.
    #[inline]
    pub fn prefetch(&self, item: &[u8]) {
        match self {
            PrefetchHint::Blocks { blocks, seed } => blocks.prefetch(Hash::xxh3(item, *seed)),
            PrefetchHint::Classic(hint) => hint.prefetch(item),
        }
    }
}
