//! Items that are handled together, so that their cache misses overlap, and how most layers are ruled out for them.
//!
//! An item that is new to a filter of fourteen layers is looked for in fourteen places. Its first probes are the same bits of
//! a block in every layer: a [`Screen`] of them, prepared once, is held against the item's first line in each, with a few
//! wide instructions and no branch. Only where it fits, one time in sixteen or so, is the layer asked in earnest.

use bitvec::prelude::*;

use super::Filter;
use super::hash::Hash;
use super::storage::Block;

/// How many items are handled together: enough to keep the processor's two dozen or so outstanding cache misses busy, few
/// enough that what was prefetched is still there when it is looked at.
pub const BATCH: usize = 32;

/// Layers of up to so many bytes are in the processor's first cache if they are looked at often: nothing to ask for.
pub(super) const IN_CACHE: usize = 32 << 10;

/// The hashes of at most [`BATCH`] items, whose memory is on its way.
///
/// A filter is larger than the processor's cache, so that most of an item's time is spent waiting for memory. Asked for
/// together, the waits overlap: on a filter of 10^8 items, BF.MEXISTS takes 85 ns an item instead of 175. To ask for the next
/// batch before this one is replied to made no difference.
pub struct Prepared {
    hashes: [Hash; BATCH],
    len: usize,
}

impl Prepared {
    /// Hashes the next items, as many as there are and fit, and asks for the memory that the filter keeps them in.
    #[inline]
    pub fn new<'a>(filter: &Filter, items: impl Iterator<Item = &'a [u8]>) -> Prepared {
        let mut prepared = Prepared { hashes: [Hash::default(); BATCH], len: 0 };
        prepared.len = filter.hasher().hash_all(items, &mut prepared.hashes);
        filter.prefetch(prepared.hashes());
        prepared
    }

    pub fn hashes(&self) -> &[Hash] {
        &self.hashes[..self.len]
    }
}

/// The first probes of an item, as bits of a block.
#[derive(Clone, Copy, Debug)]
pub struct Screen(Block);

impl Screen {
    /// Lets everything through.
    pub const OPEN: Screen = Screen([0; size_of::<Block>()]);

    /// Adds the first `probes` of an item.
    ///
    /// In place: a screen that is copied right after its bits were set one by one is waited for, 6 ns an item.
    #[inline]
    pub fn add(&mut self, hash: Hash, probes: u8) {
        let bits = self.0.view_bits_mut::<Lsb0>();
        hash.probes().draw(probes, |position| bits.set(position, true));
    }

    /// Whether `block`, the item's first line, has all the bits.
    #[inline]
    pub fn fits(&self, block: &Block) -> bool {
        // Bytes, which the compiler takes sixteen at a time: bitvec would go bit by bit.
        block.iter().zip(&self.0).fold(0, |missing, (block, probes)| missing | (probes & !block)) == 0
    }
}

/// Some of the items of a batch: bit `i` stands for item `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subset(u32);

impl Subset {
    pub const EMPTY: Subset = Subset(0);

    /// The first `len` items, at most [`BATCH`].
    pub fn first(len: usize) -> Subset {
        const { assert!(BATCH == u32::BITS as usize) }
        Subset(u32::MAX.checked_shr((BATCH - len.min(BATCH)) as u32).unwrap_or(0))
    }

    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let item = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (item < u32::BITS).then_some(item as usize)
        })
    }

    /// The items that `keep` says yes to. The answer is no branch: the processor could not guess it.
    #[inline]
    pub fn filter(self, mut keep: impl FnMut(usize) -> bool) -> Subset {
        Subset(self.iter().fold(0, |kept, item| kept | u32::from(keep(item)) << item))
    }

    pub fn with(self, item: usize) -> Subset {
        Subset(self.0 | 1 << item)
    }

    pub fn without(self, other: Subset) -> Subset {
        Subset(self.0 & !other.0)
    }
}
