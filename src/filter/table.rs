//! What the native layers have in common: a row of cache lines, and which of them are an item's.
//!
//! ```text
//!  block (one cache line)      0        1        2               B-1
//!                          │ 64 B   │ 64 B   │ 64 B   │  …  │ 64 B   │
//!                               ▲        ▲▲▲
//!  item ── hash ── 2 lines ─────┴────────┘     k probes in all, k/L cells in each line
//! ```

use std::ptr::NonNull;

use super::hash::{Hash, Lines, Pattern};
use super::sizing::{self, BLOCK_BYTES, Cell, Shape};
use super::storage::{Address, Block, Blocks};
use super::{Error, ErrorRate, Growth};

const BLOCK: usize = BLOCK_BYTES as usize;

/// What the layers of a native filter share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    pub seed: u64,
    /// Of the whole filter.
    pub error_rate: ErrorRate,
    pub growth: Growth,
}

impl Plan {
    /// The part of the error rate that a layer with the share `index` (from 0) may use up.
    pub fn layer_error_rate(&self, index: usize) -> f64 {
        self.error_rate.get()
            * match self.growth {
                Growth::Fixed => 1.0,
                Growth::By(_) => sizing::error_share(index),
            }
    }

    /// The capacity of the layer that follows one of `capacity`.
    pub fn capacity_after(&self, capacity: u64) -> Result<u64, Error> {
        let Growth::By(expansion) = self.growth else { return Err(Error::Full) };
        capacity.checked_mul(expansion.get().into()).ok_or(Error::OutOfMemory)
    }
}

/// A row of blocks, and how items are spread over it.
pub struct Table {
    blocks: Blocks,
    pattern: Pattern,
    cell: Cell,
}

impl Table {
    /// Zeroed blocks, or an error if the allocator refuses.
    pub fn new(shape: Shape) -> Result<Table, Error> {
        Ok(Table { blocks: Blocks::zeroed(shape.blocks)?, pattern: Pattern::new(shape), cell: shape.cell })
    }

    pub fn shape(&self) -> Shape {
        Shape {
            cell: self.cell,
            blocks: self.blocks.as_slice().len() as u64,
            lines: self.pattern.lines(),
            probes: self.pattern.probes(),
        }
    }

    #[inline]
    pub fn blocks(&self) -> &[Block] {
        self.blocks.as_slice()
    }

    #[inline]
    pub fn blocks_mut(&mut self) -> &mut [Block] {
        self.blocks.as_mut_slice()
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.blocks().as_flattened()
    }

    /// Bytes asked of the allocator.
    pub fn allocated(&self) -> usize {
        self.blocks.allocated()
    }

    /// `length` bytes from byte `offset` on, if those are whole blocks.
    pub fn part(&mut self, offset: usize, length: usize) -> Option<&mut [Block]> {
        if !offset.is_multiple_of(BLOCK) || !length.is_multiple_of(BLOCK) {
            return None;
        }
        self.blocks_mut().get_mut(offset / BLOCK..)?.get_mut(..length / BLOCK)
    }

    /// The number of lines of an item.
    #[inline]
    pub fn lines(&self) -> u8 {
        self.pattern.lines()
    }

    /// The number of probes in an item's first line: no other has more.
    #[inline]
    pub fn first_probes(&self) -> u8 {
        self.pattern.first_probes()
    }

    #[inline]
    pub fn first_line_of(&self, hash: Hash) -> usize {
        self.pattern.first_line_of(hash, self.blocks().len())
    }

    /// The lines of an item, all different, each with its number of probes.
    #[inline]
    pub fn lines_of(&self, hash: Hash) -> Lines {
        self.pattern.lines_of(hash, self.blocks().len())
    }

    /// Where to prefetch from.
    #[inline]
    pub fn place(&self) -> Place {
        Place { blocks: self.blocks.address(), pattern: self.pattern }
    }

    /// Lets `relocate` move the blocks.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](super::storage::Array::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { self.blocks.relocate(relocate) };
    }
}

/// Where a table is, or was: enough to prefetch an item's lines from, and no more.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    blocks: Address<BLOCK>,
    pattern: Pattern,
}

impl Place {
    /// Brings an item's lines into the processor's cache.
    #[inline]
    pub fn prefetch(self, hash: Hash) {
        self.pattern.lines_of(hash, self.blocks.length()).for_each(|(line, _)| self.blocks.prefetch(line));
    }

    /// Brings an item's first line into the processor's cache.
    #[inline]
    pub fn prefetch_first(self, hash: Hash) {
        self.blocks.prefetch(self.pattern.first_line_of(hash, self.blocks.length()));
    }
}

/// Where the newest layer of a filter is, or was, and how its items are hashed.
#[derive(Clone, Copy, Debug)]
pub struct Outlook {
    place: Place,
    seed: u64,
}

impl Outlook {
    #[inline]
    pub fn new(plan: &Plan, newest: &Table) -> Outlook {
        Outlook { place: newest.place(), seed: plan.seed }
    }

    /// Brings an item's lines into the processor's cache.
    #[inline]
    pub fn prefetch(&self, item: &[u8]) {
        self.place.prefetch(Hash::xxh3(item, self.seed));
    }
}
