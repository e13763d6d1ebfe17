//! An array of blocks, and which of them an item is in.
//!
//! ```text
//!  block (one cache line)      0        1        2               B-1
//!                          │ 64 B   │ 64 B   │ 64 B   │  …  │ 64 B   │
//!                               ▲        ▲▲▲
//!  item ── hash ── 2 blocks ────┴────────┘     k probes in all, k/L bits in each block
//! ```

use std::ptr::NonNull;

use crate::array::{Blocks, RawSpan};
use crate::block::{BLOCK_BYTES, Block};
use crate::error::Error;
use crate::hash::Hash;
use crate::probe::{ItemBlocks, ProbePattern};
use crate::sizing::BlockShape;

const BLOCK: usize = BLOCK_BYTES as usize;

/// An array of blocks, and how items are spread over it.
pub struct BlockArray(Blocks<ProbePattern>);

impl BlockArray {
    /// Creates zeroed blocks.
    pub fn new(shape: BlockShape) -> Result<BlockArray, Error> {
        Blocks::labelled(shape.blocks, ProbePattern::new(shape)).map(BlockArray)
    }

    #[inline]
    pub fn shape(&self) -> BlockShape {
        let pattern = self.pattern();
        let blocks = self.0.as_slice().len() as u64;
        BlockShape { blocks, blocks_per_item: pattern.blocks_per_item(), probes: pattern.probes() }
    }

    #[inline]
    pub fn blocks(&self) -> &[Block] {
        self.0.as_slice()
    }

    #[inline]
    pub fn blocks_mut(&mut self) -> &mut [Block] {
        self.0.as_mut_slice()
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.blocks().as_flattened()
    }

    /// Returns the `length` bytes from byte `offset` on, or `None` if they are not whole blocks of the array.
    pub fn part(&mut self, offset: usize, length: usize) -> Option<&mut [Block]> {
        if !offset.is_multiple_of(BLOCK) || !length.is_multiple_of(BLOCK) {
            return None;
        }
        self.blocks_mut().get_mut(offset / BLOCK..)?.get_mut(..length / BLOCK)
    }

    #[inline]
    fn pattern(&self) -> ProbePattern {
        self.0.label()
    }

    /// Returns the number of blocks of an item.
    #[inline]
    pub fn blocks_per_item(&self) -> u8 {
        self.pattern().blocks_per_item()
    }

    /// Returns the number of probes in an item's first block: no other has more.
    #[inline]
    pub fn first_probes(&self) -> u8 {
        self.pattern().first_probes()
    }

    #[inline]
    pub fn first_block_of(&self, hash: Hash) -> usize {
        self.pattern().first_block_of(hash, self.blocks().len())
    }

    /// Returns the blocks of an item, all different, each with its number of probes.
    #[inline]
    pub fn blocks_of(&self, hash: Hash) -> ItemBlocks {
        self.pattern().blocks_of(hash, self.blocks().len())
    }

    /// Returns where to prefetch from.
    #[inline]
    pub fn span(&self) -> BlockSpan {
        BlockSpan { blocks: self.0.span(), pattern: self.pattern() }
    }

    /// Lets `relocate` move the blocks.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { self.0.relocate(relocate) };
    }
}

/// Where an array of blocks is, or was: enough to prefetch an item's blocks, and no more.
#[derive(Clone, Copy, Debug)]
pub struct BlockSpan {
    blocks: RawSpan<BLOCK>,
    pattern: ProbePattern,
}

impl BlockSpan {
    /// Prefetches an item's blocks.
    #[inline]
    pub fn prefetch(self, hash: Hash) {
        self.pattern.blocks_of(hash, self.blocks.length()).for_each(|(block, _)| self.blocks.prefetch(block));
    }
}
