//! The counting layer: a counting Bloom filter (Fan, Cao, Almeida and Broder 2000, "Summary Cache"), in cache lines.
//!
//! Each cell of an [array of blocks](crate::block_array) is a counter of four bits, 128 to a block. To add an item raises its counters, to
//! remove it lowers them, and it is there while none of them is zero. So it is with multisets: an item that was added twice is
//! removed twice.
//!
//! ```text
//!  byte      0    1    2          63
//!          │1 0 │3 2 │5 4 │ … │127 126│      counter x: byte x / 2, its low half if x is even
//! ```
//!
//! A counter that reaches 15 *sticks*: nobody knows how many items it stands for, so that it is never lowered again. Until the
//! filter is made anew, some absent items seem to be there that would not; no item is ever missing. In a full layer of
//! items that are all different, fewer than one counter in `10^14` gets there.
//!
//! Counters are read and written by shifts and masks. Through `bitvec`'s fields a look-up took 81 ns instead of 24, an addition 167
//! instead of 49 (batches of 32 items of 27 bytes, 1 %, 10^5 items, hash and all, on a Zen 4 core).
//!
//! # Why removal is exact, through all layers
//!
//! Say that a layer *claims* an item if none of the item's counters in it is zero. The rules:
//!
//! - an addition raises the counters of the oldest layer that claims the item, or of the newest one if none does;
//! - a removal lowers the counters of the oldest layer that claims the item, and does nothing if none does.
//!
//! Assume that every removal of an item comes after an addition of it that was not taken back yet. Then all occurrences of an
//! item that is there are in one layer, its *holder*, and the holder is the oldest layer that claims the item:
//!
//! 1. A layer that is not the newest never gets a counter above zero that was zero. It is only raised where it claims an
//!    item, where all counters are above zero already. So if such a layer does not claim an item, it never will.
//! 2. When an item that is not there is added, its holder becomes the oldest layer that claims it, or the newest. The older layers
//!    do not claim it, and are not the newest; by 1 they never will.
//! 3. While the item is there, its holder claims it: each counter is at least the number of its occurrences, or stuck, because
//!    only removals of items that the layer holds lower its counters (by 2 and the rules), each by no more than was raised for it. So
//!    further additions and removals of the item go to its holder, until none is left; then it starts again with 2.
//!
//! So whatever was added and not removed is found, and each of its removals finds it. The argument needs the order of the
//! layers and that old ones gain nothing. [`counting_chain`](crate::counting_chain) carries out the rules. It drops layers only once they hold nothing,
//! filters of several layers are not merged, and a copy in chunks is only accepted while nobody writes
//! ([`codec`](crate::codec::native)).
//!
//! Who removes what was never added breaks the assumption: if the item seems to be there, counters of other items are lowered,
//! and those may be missing from then on. No counting Bloom filter can tell.
//!
//! # How many items there are
//!
//! Additions that find the item absent count, and removals that leave it absent. Both are wrong at the error rate, so that
//! the count would stray with the square root of the number of removals. The fill does not stray: by it, there are some
//! [`n` items](crate::sizing::BlockShape::items_from_fill), of which a share of less than `f` was never counted, `f` being the
//! probability that an absent item finds all counters above zero. After some removals, one in sixteen, the count is brought
//! back between `n - f n - 4 sqrt(n/k)` and `n + 4 sqrt(n/k)`, with `k` probes: at error rates of up to 0.5, six times the
//! standard deviation of the estimate or more.

use std::ptr::NonNull;

use multiversion::multiversion;

use super::{ItemCount, Layer, LayerInfo, LayerSpec, MAX_LAYERS, MergeOp};
use crate::block::{Block, CombineOp, combine};
use crate::block_array::BlockArray;
use crate::error::Error;
use crate::hash::{GOLDEN, Hash, Hasher};
use crate::probe::Probes;
use crate::sizing::{BlockShape, Budget, Cell, power};
use crate::spec::NativeSpec;

/// What a counter holds at most. There it sticks.
pub const MAX_COUNT: u8 = 15;

/// What a counting layer is created from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountingSpec {
    pub shape: BlockShape,
    pub capacity: u64,
    /// Which share of the filter's error rate the layer may use up; see [`error_share`](crate::sizing::error_share). Layers come and
    /// go: their place in the chain does not tell.
    pub share: u16,
}

impl CountingSpec {
    /// Returns the spec of a layer for `capacity` items with share number `share` of the error rate.
    pub fn new(filter: &NativeSpec, share: u16, capacity: u64) -> Result<CountingSpec, Error> {
        let rate = filter.layer_error_rate(share.into());
        let shape = BlockShape::choose(Cell::Counter, capacity, rate, Budget::Tight).ok_or(Error::OutOfMemory)?;
        Ok(CountingSpec { shape, capacity, share })
    }
}

impl LayerSpec for CountingSpec {
    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn bytes(&self) -> u64 {
        self.shape.bytes()
    }
}

/// What is counted of a layer, and cannot be told from its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub count: ItemCount,
    /// Additions that were not taken back.
    pub occurrences: u64,
    /// The sum of hashes of all additions and removals ever: it is the same only where the same was written, in whatever order.
    pub history: u64,
}

/// A layer of counters in blocks, and what is counted of it.
pub struct CountingLayer {
    array: BlockArray,
    capacity: u64,
    share: u16,
    counts: Counts,
    tally: Tally,
}

/// How many counters are above zero, and how many of them are stuck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    marked: u64,
    stuck: u64,
}

impl Layer for CountingLayer {
    type FilterSpec = NativeSpec;
    type LayerSpec = CountingSpec;

    const CELL: Cell = Cell::Counter;

    /// Not inlined, like all counting-only code, to keep it out of the plain filters' hot path.
    #[inline(never)]
    fn hasher(filter: &NativeSpec) -> Hasher {
        Hasher::Xxh3 { seed: filter.seed }
    }

    /// The lowest share that no layer has: the shares of all that are there sum to less than 1, whatever came and went.
    fn next(filter: &NativeSpec, layers: &[CountingLayer]) -> Result<CountingSpec, Error> {
        let newest = layers.last().ok_or(Error::OutOfMemory)?;
        let mut taken = [false; MAX_LAYERS];
        // An older one that is empty is only there still because there was no memory to drop it.
        let older = layers.iter().filter(|layer| !layer.is_empty());
        older.chain([newest]).for_each(|layer| taken[usize::from(layer.share)] = true);
        let share = taken.iter().position(|taken| !taken).and_then(|share| u16::try_from(share).ok());
        CountingSpec::new(filter, share.ok_or(Error::CannotGrow)?, filter.capacity_after(newest.capacity)?)
    }

    fn new(CountingSpec { shape, capacity, share }: CountingSpec) -> Result<CountingLayer, Error> {
        let array = BlockArray::new(shape)?;
        Ok(CountingLayer { array, capacity, share, counts: Counts::default(), tally: Tally::default() })
    }

    #[inline]
    fn spec(&self) -> CountingSpec {
        CountingSpec { shape: self.array.shape(), capacity: self.capacity, share: self.share }
    }

    #[inline]
    fn items(&self) -> u64 {
        self.counts.count.items()
    }

    fn marked(&self) -> u64 {
        self.tally.marked
    }

    fn bytes(&self) -> &[u8] {
        self.array.bytes()
    }

    fn info(&self, filter: &NativeSpec, _index: usize) -> LayerInfo {
        LayerInfo::of_blocks(filter, self.share.into(), self.array.shape(), self.capacity, self.items())
    }

    fn false_positive_rate(&self) -> f64 {
        self.array.shape().false_positive_rate(self.estimate())
    }

    #[inline]
    fn contains(&self, hash: Hash) -> bool {
        let mut positions = hash.probes();
        self.array.blocks_of(hash).all(|(block, probes)| {
            let block = &self.array.blocks()[block];
            // All are read before any is judged: see `blocked`.
            let mut all = true;
            next_counters(&mut positions, probes, |counter| all &= read(block, counter) > 0);
            all
        })
    }

    fn find(layers: &[CountingLayer], hashes: &[Hash], found: &mut [bool]) {
        found.iter_mut().zip(hashes).for_each(|(found, &hash)| *found = find_one(layers, hash));
    }

    #[inline(never)]
    fn prefetch(layers: &[CountingLayer], hashes: &[Hash]) {
        if let [older @ .., newest] = layers {
            let span = newest.array.span();
            hashes.iter().for_each(|&hash| span.prefetch(hash));
            for layer in older.iter().rev().take(LAYERS_AHEAD) {
                let span = layer.array.span();
                hashes.iter().for_each(|&hash| span.prefetch_first(hash));
            }
        }
    }

    fn merge(&mut self, sources: &[&CountingLayer], op: MergeOp, is_new: bool) -> bool {
        let (target, mut tally) = (self.array.blocks_mut().as_flattened_mut(), Tally::default());
        let combine_op = match op {
            MergeOp::Union => CombineOp::Sum,
            MergeOp::Intersection => CombineOp::Minimum,
        };
        let bytes = sources.iter().map(|source| source.bytes());
        let changed = combine(target, bytes, combine_op, is_new, |part| tally.add(Tally::of_part(part)));
        // What was added to saturated counters shows in the counts alone.
        let adds = op == MergeOp::Union && sources.iter().any(|source| source.counts.occurrences > 0);
        let changed = changed || adds;
        self.tally = tally;
        if changed || is_new {
            let operands = || sources.iter().map(|source| source.counts).chain((!is_new).then_some(self.counts));
            let occurrences = operands().map(|operand| operand.occurrences);
            let histories = operands().fold(0, |sum: u64, operand| sum.wrapping_add(operand.history));
            self.counts = Counts {
                count: ItemCount::merged(op, operands().map(|operand| operand.count), self.estimate()),
                occurrences: match op {
                    MergeOp::Union => occurrences.fold(0, u64::saturating_add),
                    MergeOp::Intersection => occurrences.min().unwrap_or(0),
                },
                history: match op {
                    MergeOp::Union => histories,
                    MergeOp::Intersection => histories.wrapping_add(GOLDEN),
                },
            };
        }
        changed
    }

    unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { self.array.relocate(relocate) };
    }
}

/// How many older layers are prefetched for a batch: with more, the first ones would be evicted again.
const LAYERS_AHEAD: usize = 4;

#[inline(never)]
fn find_one(layers: &[CountingLayer], hash: Hash) -> bool {
    layers.iter().rev().any(|layer| layer.contains(hash))
}

impl CountingLayer {
    /// Returns the counters.
    pub fn array(&self) -> &BlockArray {
        &self.array
    }

    /// Returns what is counted of the layer.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Restores the counts of a stored layer.
    pub fn set_counts(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// The counters that stick.
    pub fn stuck(&self) -> u64 {
        self.tally.stuck
    }

    /// The number of items, by the fill.
    fn estimate(&self) -> f64 {
        self.array.shape().items_from_fill(self.tally.marked)
    }

    /// Whether nothing is left that could be removed.
    pub fn is_empty(&self) -> bool {
        self.counts.occurrences == 0 && self.tally.marked == self.tally.stuck
    }

    /// Adds an occurrence of an item. Whether it is new; if so it counts, even beyond the capacity: the caller looks at the
    /// room first.
    pub fn raise(&mut self, hash: Hash) -> bool {
        let before = self.tally.marked;
        self.change(hash, |count| MAX_COUNT.min(count + 1));
        let is_new = self.tally.marked > before;
        self.counts.count.increment(is_new);
        self.counts.occurrences = self.counts.occurrences.saturating_add(1);
        self.counts.history = self.counts.history.wrapping_add(hash.second);
        is_new
    }

    /// Takes an occurrence back of an item that the layer claims.
    pub fn lower(&mut self, hash: Hash) {
        let before = self.tally.marked;
        self.change(hash, |count| if count < MAX_COUNT { count.saturating_sub(1) } else { MAX_COUNT });
        let is_gone = self.tally.marked < before;
        self.counts.occurrences = self.counts.occurrences.saturating_sub(1);
        self.counts.history = self.counts.history.wrapping_add(hash.first);
        self.count_items(self.items().saturating_sub(is_gone.into()));
        // Any one in sixteen, the same on a replica: the logarithm takes as long as all else together.
        if self.counts.history.is_multiple_of(16) {
            self.check_items();
        }
    }

    /// Gives each of an item's counters the value that `rule` makes of the one that it has.
    #[inline]
    fn change(&mut self, hash: Hash, rule: impl Fn(u8) -> u8) {
        let mut positions = hash.probes();
        for (block, probes) in self.array.blocks_of(hash) {
            let (block, tally) = (&mut self.array.blocks_mut()[block], &mut self.tally);
            each_once(&mut positions, probes, |counter| {
                let before = read(block, counter);
                let after = rule(before);
                write(block, counter, after);
                tally.marked = tally.marked + u64::from(after > 0) - u64::from(before > 0);
                tally.stuck = tally.stuck + u64::from(after == MAX_COUNT) - u64::from(before == MAX_COUNT);
            });
        }
    }

    /// Brings the number of items into the range in which it must be by the fill; see the [module](self).
    fn check_items(&mut self) {
        let shape = self.array.shape();
        let (estimate, fill) = (self.estimate(), self.tally.marked as f64 / shape.cells() as f64);
        let stray = 4.0 * (estimate / f64::from(shape.probes)).sqrt();
        let least = estimate * (1.0 - power(fill, shape.probes)) - stray;
        self.count_items(self.items().clamp(least as u64, (estimate + stray) as u64 + 1));
    }

    /// Notes how many items there are. They are never more than their occurrences.
    fn count_items(&mut self, items: u64) {
        self.counts.count = self.counts.count.with(items.min(self.counts.occurrences));
    }

    /// The smallest of an item's counters.
    pub fn smallest(&self, hash: Hash) -> u8 {
        let (mut positions, mut smallest) = (hash.probes(), MAX_COUNT);
        for (block, probes) in self.array.blocks_of(hash) {
            let block = &self.array.blocks()[block];
            next_counters(&mut positions, probes, |counter| smallest = smallest.min(read(block, counter)));
        }
        smallest
    }

    /// Fills a part of a new layer, from byte `offset` on. `None` if it is not whole blocks of the layer.
    pub fn restore_part(&mut self, offset: usize, counters: &[u8]) -> Option<()> {
        let (target, source) = (self.array.part(offset, counters.len())?, counters.as_chunks().0);
        for (target, source) in target.iter_mut().zip(source) {
            let tally = Tally::of(source);
            // Empty blocks are left out: the pages of a sparse filter stay untouched.
            if tally.marked > 0 {
                *target = *source;
            }
            self.tally.add(tally);
        }
        Some(())
    }

    /// Puts `counters` in the place of what is at byte `offset`. Returns whether that changed any, or `None` if they are not whole
    /// blocks of the layer.
    pub fn replace_part(&mut self, offset: usize, counters: &[u8]) -> Option<bool> {
        let (target, source) = (self.array.part(offset, counters.len())?, counters.as_chunks().0);
        let mut changed = false;
        for (target, source) in target.iter_mut().zip(source).filter(|(target, source)| target != source) {
            self.tally.subtract(Tally::of(target));
            self.tally.add(Tally::of(source));
            *target = *source;
            changed = true;
        }
        Some(changed)
    }
}

/// Hands the next `count` counters of `positions` to `visit`.
#[inline]
fn next_counters(positions: &mut Probes, count: u8, mut visit: impl FnMut(usize)) {
    const COUNTERS: usize = Cell::Counter.per_block() as usize;
    positions.next_positions(count, |position| visit(position % COUNTERS));
}

/// As [`next_counters`], but a counter that is drawn twice is visited once.
#[inline]
fn each_once(positions: &mut Probes, count: u8, mut visit: impl FnMut(usize)) {
    const { assert!(Cell::Counter.per_block() == u128::BITS as u64) }
    let mut seen = 0u128;
    next_counters(positions, count, |counter| {
        if seen & 1 << counter == 0 {
            seen |= 1 << counter;
            visit(counter);
        }
    });
}

#[inline]
fn read(block: &Block, counter: usize) -> u8 {
    block[counter / 2] >> shift(counter) & MAX_COUNT
}

#[inline]
fn write(block: &mut Block, counter: usize, count: u8) {
    let byte = &mut block[counter / 2];
    *byte = *byte & !(MAX_COUNT << shift(counter)) | count << shift(counter);
}

fn shift(counter: usize) -> usize {
    counter % 2 * 4
}

impl Tally {
    /// Of whole blocks; compiled twice, as what goes through whole layers is.
    #[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
    fn of_part(part: &[u8]) -> Tally {
        part.as_chunks().0.iter().fold(Tally::default(), |mut tally, block| {
            tally.add(Tally::of(block));
            tally
        })
    }

    /// Byte by byte, of which the compiler takes many at a time.
    #[inline(always)]
    fn of(block: &Block) -> Tally {
        let (mut marked, mut stuck) = (0u8, 0u8);
        for pair in block {
            let (low, high) = (pair & MAX_COUNT, pair >> 4);
            marked += u8::from(low > 0) + u8::from(high > 0);
            stuck += u8::from(low == MAX_COUNT) + u8::from(high == MAX_COUNT);
        }
        Tally { marked: marked.into(), stuck: stuck.into() }
    }

    fn add(&mut self, other: Tally) {
        self.marked += other.marked;
        self.stuck += other.stuck;
    }

    fn subtract(&mut self, other: Tally) {
        self.marked -= other.marked;
        self.stuck -= other.stuck;
    }
}
