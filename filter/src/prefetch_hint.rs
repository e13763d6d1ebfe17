//! Where a filter looks for an item first: a hint that stays harmless for as long as anyone keeps it.

use crate::block_array::BlockSpan;
use crate::chain::Chain;
use crate::hash::Hash;
use crate::layer::Layer;
use crate::layer::blocked::BlockedLayer;
use crate::layer::classic::{ClassicHint, ClassicLayer};

/// Where the newest layer of a filter is, or was, and how its items are hashed.
///
/// A prefetch from a layer that is gone has no effect.
#[derive(Clone, Copy, Debug)]
pub enum PrefetchHint {
    /// The blocks of a native layer.
    Blocks {
        /// Where they are.
        blocks: BlockSpan,
        /// The filter's seed.
        seed: u64,
    },
    /// The probes of a classic layer.
    Classic(ClassicHint),
}

impl PrefetchHint {
    /// Returns the hint for a native chain, unless its newest layer has less than `min_bytes`.
    #[inline]
    pub fn of_blocked(chain: &Chain<BlockedLayer>, min_bytes: u64) -> Option<PrefetchHint> {
        let newest = newest(chain, min_bytes)?;
        Some(PrefetchHint::Blocks { blocks: newest.array().span(), seed: chain.spec().seed })
    }

    /// As [`of_blocked`](Self::of_blocked), for a classic chain.
    #[inline]
    pub fn of_classic(chain: &Chain<ClassicLayer>, min_bytes: u64) -> Option<PrefetchHint> {
        let newest = newest(chain, min_bytes)?;
        Some(PrefetchHint::Classic(ClassicHint::new(chain.spec(), newest)))
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

/// Returns the newest layer, if it has at least `min_bytes`.
#[inline]
fn newest<L: Layer>(chain: &Chain<L>, min_bytes: u64) -> Option<&L> {
    chain.layers().last().filter(|layer| layer.bytes().len() as u64 >= min_bytes)
}
