//! An array of blocks, and the blocks of each item.
//!
//! ```text
//!  block (one cache line)      0        1        2               B-1
//!                          │ 64 B   │ 64 B   │ 64 B   │  …  │ 64 B   │
//!                               ▲        ▲▲▲
//!  item ── hash ── 2 blocks ────┴────────┘     k probes in all, divided among the blocks
//! ```
//!
//! In a small array, a block may have fewer or more words than a cache line.

use crate::arch::prefetch;
use crate::array::{Mover, WORD, Words};
use crate::error::Error;
use crate::hash::Hash;
use crate::line::Line;
use crate::probe::{ItemBlocks, ProbePattern};
use crate::sizing::{BlockShape, WORDS_PER_LINE};

/// An array of blocks, and the pattern by which items are spread over it.
pub struct BlockArray(Words<ProbePattern>);

impl BlockArray {
    /// Creates zeroed blocks.
    pub fn new(shape: BlockShape) -> Result<BlockArray, Error> {
        debug_assert!(shape.is_sound(), "{shape:?}");
        let words = shape.blocks.checked_mul(shape.words.into()).ok_or(Error::OutOfMemory)?;
        Words::labelled(words, ProbePattern::new(shape)).map(BlockArray)
    }

    #[inline]
    pub fn shape(&self) -> BlockShape {
        let pattern = self.pattern();
        BlockShape {
            blocks: self.blocks() as u64,
            words: pattern.words,
            blocks_per_item: pattern.blocks_per_item,
            probes: pattern.probes(),
        }
    }

    /// Returns true if the blocks are cache lines.
    #[inline]
    pub fn is_of_lines(&self) -> bool {
        self.pattern().words == WORDS_PER_LINE
    }

    /// Returns the blocks, if they are cache lines.
    #[inline]
    pub fn lines(&self) -> &[Line] {
        self.bytes().as_chunks().0
    }

    /// Returns the blocks, if they are cache lines, to change them.
    #[inline]
    pub fn lines_mut(&mut self) -> &mut [Line] {
        self.bytes_mut().as_chunks_mut().0
    }

    /// Returns the bytes of a block of any size, to change them.
    pub fn block_mut(&mut self, block: usize) -> &mut [u8] {
        let size = self.block_bytes();
        &mut self.bytes_mut()[block * size..][..size]
    }

    /// Returns the bytes of a block of any size.
    pub fn block(&self, block: usize) -> &[u8] {
        let size = self.block_bytes();
        &self.bytes()[block * size..][..size]
    }

    /// Returns the number of bits in a block.
    pub fn bits_per_block(&self) -> u64 {
        8 * self.block_bytes() as u64
    }

    fn block_bytes(&self) -> usize {
        usize::from(self.pattern().words) * WORD
    }

    /// Returns the bytes of all blocks.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_slice().as_flattened()
    }

    /// Returns the bytes of all blocks, to change them.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_slice().as_flattened_mut()
    }

    /// Returns the `length` bytes from byte `offset` on, or `None` if they are not whole blocks of the array.
    pub fn part(&mut self, offset: usize, length: usize) -> Option<&mut [u8]> {
        if !offset.is_multiple_of(self.block_bytes()) || !length.is_multiple_of(self.block_bytes()) {
            return None;
        }
        self.bytes_mut().get_mut(offset..)?.get_mut(..length)
    }

    #[inline]
    fn blocks(&self) -> usize {
        self.pattern().blocks_in(self.0.as_slice().len())
    }

    /// Returns the pattern by which items are spread over the blocks.
    #[inline]
    pub(crate) fn pattern(&self) -> ProbePattern {
        self.0.label()
    }

    /// Returns the blocks of an item, all different, each with its number of probes.
    #[inline]
    pub fn blocks_of(&self, hash: Hash) -> ItemBlocks {
        self.pattern().blocks_of(hash, self.blocks())
    }

    /// Prefetches an item's blocks, if the blocks are cache lines.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        let pattern = self.pattern();
        let lines = self.lines();
        let fetch = |line: usize| prefetch(lines.as_ptr().wrapping_add(line));
        fetch(pattern.first_block_of(hash, lines.len()));
        if pattern.blocks_per_item > 1 {
            pattern.blocks_of(hash, lines.len()).skip(1).for_each(|(line, _)| fetch(line));
        }
    }

    /// Lets a mover move the blocks.
    pub fn relocate(&mut self, mover: Mover<'_>) {
        self.0.relocate(mover);
    }
}
