//! The native layer: a Bloom filter of 512-bit blocks, after Putze, Sanders and Singler (2007).
//!
//! ```text
//!  block (one cache line)      0        1        2               B-1
//!                          │ 512 b  │ 512 b  │ 512 b  │  …  │ 512 b  │
//!                               ▲        ▲▲▲
//!  item ── hash ── 2 lines ─────┴────────┘     k probes in all, k/L bits in each line
//! ```
//!
//! Bit `x` of a block is bit `x mod 8` of its byte `x / 8`, least significant first, whatever the machine: what is in
//! memory is what is stored. An item costs `L` cache misses where a classic filter pays `k`. What blocking costs in
//! memory, and how `L` and `k` are chosen, is in [`sizing`](super::sizing).
//!
//! Bits are read and set through `bitvec`, at no cost: with shifts and masks by hand a look-up took 18.7–19.8 ns, through
//! `bitvec` 18.6–19.4 (batches of 32 items of 27 bytes, 1 %, 10^6 items, hash and all, on a Zen 4 core).

use std::ptr::NonNull;

use bitvec::prelude::*;

use super::Error;
use super::batch::Screen;
use super::hash::{Hash, Lines, Pattern, Probes};
use super::sizing::{BLOCK_BYTES, Shape};
use super::storage::{Address, Block, Blocks};

const BLOCK: usize = BLOCK_BYTES as usize;

/// One layer of a filter: a bit array and its counters.
pub struct Layer {
    blocks: Blocks,
    capacity: u64,
    items: u64,
    ones: u64,
    pattern: Pattern,
}

impl Layer {
    /// An empty layer for `capacity` items.
    pub fn new(shape: Shape, capacity: u64) -> Result<Layer, Error> {
        let blocks = Blocks::zeroed(shape.blocks)?;
        Ok(Layer { blocks, capacity, items: 0, ones: 0, pattern: Pattern::new(shape) })
    }

    pub fn shape(&self) -> Shape {
        Shape {
            blocks: self.blocks.as_slice().len() as u64,
            lines: self.pattern.lines(),
            probes: self.pattern.probes(),
        }
    }

    /// How many items the layer was made for.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many items were new when they were inserted.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// How many bits are set.
    pub fn ones(&self) -> u64 {
        self.ones
    }

    /// How many more items fit.
    pub fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.items)
    }

    /// Bytes asked of the allocator for the bits.
    pub fn allocated(&self) -> usize {
        self.blocks.allocated()
    }

    /// Where to prefetch from.
    #[inline]
    pub fn place(&self) -> Place {
        Place { blocks: self.blocks.address(), pattern: self.pattern }
    }

    /// Whether the item may have been inserted.
    #[inline]
    pub fn contains(&self, hash: Hash) -> bool {
        let mut positions = hash.probes();
        self.line_contains(self.first_line(hash), self.first_probes(), &mut positions)
            && (self.pattern.lines() == 1 || self.other_lines_contain(hash, positions))
    }

    /// Apart, for the first line is all that there is of most layers, and all that is looked at for most absent items.
    #[inline(never)]
    fn other_lines_contain(&self, hash: Hash, mut positions: Probes) -> bool {
        self.lines_of(hash).skip(1).all(|(line, probes)| self.line_contains(line, probes, &mut positions))
    }

    /// Whether the next `probes` of `positions` are set in a line.
    #[inline]
    fn line_contains(&self, line: usize, probes: u8, positions: &mut Probes) -> bool {
        let block = self.blocks.as_slice()[line].view_bits::<Lsb0>();
        // All are read before any is judged: they share one cache miss, and a branch for each would be mispredicted half
        // of the time.
        let mut all = true;
        positions.draw(probes, |position| all &= block[position]);
        all
    }

    /// The number of probes in an item's first line.
    #[inline]
    pub fn first_probes(&self) -> u8 {
        self.pattern.first_probes()
    }

    /// Whether the item's first line lets it through `screen`. If not, the layer does not contain the item.
    #[inline]
    pub fn fits(&self, screen: &Screen, hash: Hash) -> bool {
        screen.fits(&self.blocks.as_slice()[self.first_line(hash)])
    }

    /// Sets the item's bits. Whether any of them was clear, that is, whether the item is new.
    ///
    /// A new item counts, even beyond the capacity: the caller looks at [`room`](Self::room) first.
    #[inline]
    pub fn insert(&mut self, hash: Hash) -> bool {
        let mut positions = hash.probes();
        let mut set = self.set_in_line(self.first_line(hash), self.first_probes(), &mut positions);
        if self.pattern.lines() > 1 {
            set += self.set_in_other_lines(hash, positions);
        }
        self.ones += set;
        self.items += u64::from(set > 0);
        set > 0
    }

    #[inline(never)]
    fn set_in_other_lines(&mut self, hash: Hash, mut positions: Probes) -> u64 {
        let lines = self.lines_of(hash).skip(1);
        lines.map(|(line, probes)| self.set_in_line(line, probes, &mut positions)).sum()
    }

    /// Sets the next `probes` of `positions` in a line. How many of them were clear.
    #[inline]
    fn set_in_line(&mut self, line: usize, probes: u8, positions: &mut Probes) -> u64 {
        let block = self.blocks.as_mut_slice()[line].view_bits_mut::<Lsb0>();
        let mut set = 0;
        positions.draw(probes, |position| set += u64::from(!block.replace(position, true)));
        set
    }

    #[inline]
    fn first_line(&self, hash: Hash) -> usize {
        self.pattern.first_line_of(hash, self.blocks.as_slice().len())
    }

    #[inline]
    fn lines_of(&self, hash: Hash) -> Lines {
        self.pattern.lines_of(hash, self.blocks.as_slice().len())
    }

    /// The bits, as they are stored.
    pub fn bytes(&self) -> &[u8] {
        self.blocks.as_slice().as_flattened()
    }

    /// Sets every bit that is set in `bits`, which start at byte `offset`. `None` if they are not whole blocks of the layer.
    ///
    /// Nothing is ever cleared: bits that arrive twice, or late, cannot make the layer forget.
    pub fn merge(&mut self, offset: usize, bits: &[u8]) -> Option<()> {
        let (target, source) = (self.part(offset, bits.len())?, bits.as_chunks().0);
        self.ones += target.iter_mut().zip(source).map(|(target, source)| union(target, source)).sum::<u64>();
        Some(())
    }

    /// As [`merge`](Self::merge), for a part of a new layer: where no bit was set before.
    ///
    /// What is not read before it is written costs one page fault a page instead of two: a copy of 12 MB takes 1.3 ms, and took
    /// 4.4 with `merge`.
    pub fn restore(&mut self, offset: usize, bits: &[u8]) -> Option<()> {
        let (target, source) = (self.part(offset, bits.len())?, bits.as_chunks().0);
        let mut set = 0;
        for (target, source) in target.iter_mut().zip(source) {
            let ones = ones(source);
            // Empty blocks are left out: the pages of a sparse filter stay untouched.
            if ones > 0 {
                *target = *source;
            }
            set += ones;
        }
        self.ones += set;
        Some(())
    }

    /// `length` bytes from byte `offset` on, if those are whole blocks of the layer.
    fn part(&mut self, offset: usize, length: usize) -> Option<&mut [Block]> {
        if !offset.is_multiple_of(BLOCK) || !length.is_multiple_of(BLOCK) {
            return None;
        }
        self.blocks.as_mut_slice().get_mut(offset / BLOCK..)?.get_mut(..length / BLOCK)
    }

    /// Takes over the number of items of a stored layer.
    pub fn restore_items(&mut self, items: u64) {
        self.items = items;
    }

    /// A copy that shares nothing. Where no bit is set, its memory is as untouched as that of a new layer.
    pub fn try_clone(&self) -> Result<Layer, Error> {
        let mut copy = Layer::new(self.shape(), self.capacity)?;
        copy.items = self.items;
        if self.ones > 0 {
            copy.restore(0, self.bytes()).ok_or(Error::OutOfMemory)?;
        }
        Ok(copy)
    }

    /// Lets `relocate` move the bits.
    ///
    /// # Safety
    ///
    /// See [`Blocks::relocate`].
    pub unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { self.blocks.relocate(relocate) };
    }
}

/// Where a layer is, or was: enough to prefetch an item's lines from, and no more.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    blocks: Address,
    pattern: Pattern,
}

impl Place {
    /// Brings an item's lines into the processor's cache.
    #[inline]
    pub fn prefetch(self, hash: Hash) {
        self.pattern.lines_of(hash, self.blocks.blocks()).for_each(|(line, _)| self.blocks.prefetch(line));
    }

    /// Brings an item's first line into the processor's cache.
    #[inline]
    pub fn prefetch_first(self, hash: Hash) {
        self.blocks.prefetch(self.pattern.first_line_of(hash, self.blocks.blocks()));
    }
}

/// Sets the bits of `source` in `target`. How many of them were clear.
///
/// By words: bitvec's `|=` goes bit by bit, which made loading a filter of 10^8 items take 0.3 s longer.
fn union(target: &mut Block, source: &Block) -> u64 {
    let new: Block = std::array::from_fn(|byte| source[byte] & !target[byte]);
    let set = ones(&new);
    // A block that gains nothing is not written: the pages of a sparse filter stay untouched.
    if set > 0 {
        target.iter_mut().zip(&new).for_each(|(target, new)| *target |= new);
    }
    set
}

/// How many bits of a block are set.
fn ones(block: &Block) -> u64 {
    block.as_chunks().0.iter().map(|&word| u64::from(u64::from_ne_bytes(word).count_ones())).sum()
}
