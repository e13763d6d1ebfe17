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
use super::{Error, ErrorRate, Growth, LayerFacts, MAX_ITEMS};

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

    /// How many times as large each further layer is. `None` if there are none.
    pub fn expansion(&self) -> Option<u32> {
        match self.growth {
            Growth::Fixed => None,
            Growth::By(expansion) => Some(expansion.get()),
        }
    }

    /// The capacity of the layer that follows one of `capacity`.
    pub fn capacity_after(&self, capacity: u64) -> Result<u64, Error> {
        let Growth::By(expansion) = self.growth else { return Err(Error::Full) };
        capacity.checked_mul(expansion.get().into()).ok_or(Error::OutOfMemory)
    }
}

/// How many items a layer has, and whether they were ever estimated from the fill, as after a merge, and not counted one by
/// one. In a word, of which the highest bit tells that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count(u64);

impl Count {
    const ESTIMATE: u64 = 1 << 63;

    pub fn new(items: u64, is_estimate: bool) -> Count {
        Count(items.min(MAX_ITEMS) | if is_estimate { Count::ESTIMATE } else { 0 })
    }

    pub fn from_bits(bits: u64) -> Count {
        Count(bits)
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn items(self) -> u64 {
        self.0 & !Count::ESTIMATE
    }

    pub fn is_estimate(self) -> bool {
        self.0 & Count::ESTIMATE != 0
    }

    /// As many items, whether counted or estimated as before.
    pub fn with(self, items: u64) -> Count {
        Count::new(items, self.is_estimate())
    }

    /// Counts an item, if it `is_new`.
    #[inline]
    pub fn increment(&mut self, is_new: bool) {
        self.0 = self.0.wrapping_add(is_new.into());
    }
}

/// A row of blocks, and how items are spread over it.
pub struct Table(Blocks<(Pattern, Cell)>);

impl Table {
    /// Zeroed blocks, or an error if the allocator refuses.
    pub fn new(shape: Shape) -> Result<Table, Error> {
        Blocks::noted(shape.blocks, (Pattern::new(shape), shape.cell)).map(Table)
    }

    pub fn shape(&self) -> Shape {
        let (pattern, cell) = self.0.note();
        let blocks = self.0.as_slice().len() as u64;
        Shape { cell, blocks, lines: pattern.lines(), probes: pattern.probes() }
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

    /// Bytes asked of the allocator.
    pub fn allocated(&self) -> usize {
        self.0.allocated()
    }

    /// What is known of a layer on this table, with the share `index` (from 0) of the error rate.
    pub fn facts(&self, plan: &Plan, index: usize, capacity: u64, items: u64) -> LayerFacts {
        let shape = self.shape();
        LayerFacts {
            bytes: shape.bytes(),
            bits: 8 * shape.bytes(),
            hash_bits: 128,
            probes: shape.probes.into(),
            lines: Some(shape.lines),
            capacity,
            items,
            error_rate: plan.layer_error_rate(index).max(sizing::LOWEST_ERROR_RATE),
        }
    }

    /// `length` bytes from byte `offset` on, if those are whole blocks.
    pub fn part(&mut self, offset: usize, length: usize) -> Option<&mut [Block]> {
        if !offset.is_multiple_of(BLOCK) || !length.is_multiple_of(BLOCK) {
            return None;
        }
        self.blocks_mut().get_mut(offset / BLOCK..)?.get_mut(..length / BLOCK)
    }

    #[inline]
    fn pattern(&self) -> Pattern {
        self.0.note().0
    }

    /// The number of lines of an item.
    #[inline]
    pub fn lines(&self) -> u8 {
        self.pattern().lines()
    }

    /// The number of probes in an item's first line: no other has more.
    #[inline]
    pub fn first_probes(&self) -> u8 {
        self.pattern().first_probes()
    }

    #[inline]
    pub fn first_line_of(&self, hash: Hash) -> usize {
        self.pattern().first_line_of(hash, self.blocks().len())
    }

    /// The lines of an item, all different, each with its number of probes.
    #[inline]
    pub fn lines_of(&self, hash: Hash) -> Lines {
        self.pattern().lines_of(hash, self.blocks().len())
    }

    /// Where to prefetch from.
    #[inline]
    pub fn place(&self) -> Place {
        Place { blocks: self.0.address(), pattern: self.pattern() }
    }

    /// Lets `relocate` move the blocks.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](super::storage::Array::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { self.0.relocate(relocate) };
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
