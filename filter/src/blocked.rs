//! The native layer: a Bloom filter of 512-bit blocks, after Putze, Sanders and Singler (2007).
//!
//! Where an item's blocks are is in [`table`](super::table).
//!
//! Bit `x` of a block is bit `x mod 8` of its byte `x / 8`, least significant first, whatever the machine: what is in
//! memory is what is stored. An item costs `L` cache misses where a classic filter pays `k`. What blocking costs in
//! memory, and how `L` and `k` are chosen, is in [`sizing`](super::sizing).
//!
//! Bits are read and set through `bitvec`, at no cost: with shifts and masks by hand a look-up took 18.7–19.8 ns, through
//! `bitvec` 18.6–19.4 (batches of 32 items of 27 bytes, 1 %, 10^6 items, hash and all, on a Zen 4 core).

use std::ptr::NonNull;

use bitvec::prelude::*;
use multiversion::multiversion;

use super::batch::{BATCH, IN_CACHE, Screen, Subset};
use super::chain::{Insert, Layer as _};
use super::hash::{Hash, Hasher, Probes};
use super::merge::{self, Operation};
use super::sizing::{Budget, Cell, Shape};
use super::storage::{Block, ones};
use super::table::{Count, Plan, Table};
use super::{Error, Growth, LayerFacts, chain};

/// What a layer is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    pub shape: Shape,
    pub capacity: u64,
}

impl Design {
    /// Layer `index` (from 0) for `capacity` items.
    ///
    /// A fixed filter has the whole error rate for its one layer and a tight budget. The first layer of a growing one may
    /// take as much as the incumbent's; the others are tight again, for they hold most of the memory.
    pub fn new(plan: &Plan, index: usize, capacity: u64) -> Result<Design, Error> {
        let budget = match (plan.growth, index) {
            (Growth::By(_), 0) => Budget::Incumbent { rate: plan.error_rate.get() },
            _ => Budget::Tight,
        };
        let shape = Shape::choose(Cell::Bit, capacity, plan.layer_error_rate(index), budget);
        Ok(Design { shape: shape.ok_or(Error::OutOfMemory)?, capacity })
    }
}

/// One layer of a filter: a bit array and what is counted of it.
pub struct Layer {
    table: Table,
    capacity: u64,
    count: Count,
    ones: u64,
}

impl chain::Layer for Layer {
    type Plan = Plan;
    type Design = Design;
    type Counts = Count;

    fn hasher(plan: &Plan) -> Hasher {
        Hasher::Xxh3 { seed: plan.seed }
    }

    fn next(plan: &Plan, layers: &[Layer]) -> Result<Design, Error> {
        let newest = layers.last().ok_or(Error::OutOfMemory)?;
        Design::new(plan, layers.len(), plan.capacity_after(newest.capacity)?)
    }

    fn memory(design: &Design) -> u64 {
        design.shape.bytes()
    }

    fn new(Design { shape, capacity }: Design) -> Result<Layer, Error> {
        Ok(Layer { table: Table::new(shape)?, capacity, count: Count::default(), ones: 0 })
    }

    fn design(&self) -> Design {
        Design { shape: self.table.shape(), capacity: self.capacity }
    }

    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn items(&self) -> u64 {
        self.count.items()
    }

    fn counts(&self) -> Count {
        self.count
    }

    fn restore_counts(&mut self, count: Count) {
        self.count = count;
    }

    fn marked(&self) -> u64 {
        self.ones
    }

    fn cells(&self) -> u64 {
        self.table.shape().cells()
    }

    fn bytes(&self) -> &[u8] {
        self.table.bytes()
    }

    fn allocated(&self) -> usize {
        self.table.allocated()
    }

    fn facts(&self, plan: &Plan, index: usize) -> LayerFacts {
        self.table.facts(plan, index, self.capacity, self.items())
    }

    fn false_positive_rate(&self) -> f64 {
        let shape = self.table.shape();
        shape.false_positive_rate(shape.items_from_fill(self.ones))
    }

    #[inline]
    fn contains(&self, hash: Hash) -> bool {
        let mut positions = hash.probes();
        self.line_contains(self.table.first_line_of(hash), self.table.first_probes(), &mut positions)
            && (self.table.lines() == 1 || self.other_lines_contain(hash, positions))
    }

    #[inline]
    fn find_one(layers: &[Layer], hash: Hash) -> bool {
        match layers {
            [layer] => layer.contains(hash),
            layers => {
                let mut screen = Screen::OPEN;
                screen.add(hash, common_probes(layers));
                layers.iter().rev().any(|layer| layer.fits(&screen, hash) && layer.contains(hash))
            }
        }
    }

    fn find(layers: &[Layer], hashes: &[Hash], found: &mut [bool]) {
        match (layers, hashes) {
            ([layer], _) => found.iter_mut().zip(hashes).for_each(|(found, &hash)| *found = layer.contains(hash)),
            (layers, &[hash]) => found[0] = Layer::find_one(layers, hash),
            (layers, _) => {
                let batches = hashes.chunks(BATCH).zip(found.chunks_mut(BATCH));
                batches.for_each(|(hashes, found)| find_batch(layers, hashes, found));
            }
        }
    }

    #[inline]
    fn prefetch(layers: &[Layer], hashes: &[Hash]) {
        match layers {
            [layer] => {
                let place = layer.table.place();
                hashes.iter().for_each(|&hash| place.prefetch(hash));
            }
            [.., newest] => {
                let place = newest.table.place();
                hashes.iter().for_each(|&hash| place.prefetch_first(hash));
            }
            [] => {}
        }
    }

    fn combine(&mut self, sources: &[&Layer], operation: Operation, is_new: bool) -> bool {
        let sources_bytes = sources.iter().map(|source| source.bytes());
        let (changed, ones) =
            merge::combine_bits(self.table.blocks_mut().as_flattened_mut(), sources_bytes, operation, is_new);
        self.ones = ones;
        if changed || is_new {
            let operands = sources.iter().map(|source| source.count).chain((!is_new).then_some(self.count));
            self.count = merge::items(operation, operands, self.table.shape().items_from_fill(ones));
        }
        changed
    }

    fn try_clone(&self) -> Result<Layer, Error> {
        let mut copy = Layer::new(self.design())?;
        copy.count = self.count;
        if self.ones > 0 {
            copy.restore(0, self.bytes()).ok_or(Error::OutOfMemory)?;
        }
        Ok(copy)
    }

    unsafe fn relocate(&mut self, relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { self.table.relocate(relocate) };
    }
}

impl Insert for Layer {
    #[inline]
    fn insert(&mut self, hash: Hash) -> bool {
        let mut positions = hash.probes();
        let mut set = self.set_in_line(self.table.first_line_of(hash), self.table.first_probes(), &mut positions);
        if self.table.lines() > 1 {
            set += self.set_in_other_lines(hash, positions);
        }
        self.ones += set;
        self.count.increment(set > 0);
        set > 0
    }

    /// All of a batch: they have few lines each.
    const INSERTS_AHEAD: usize = BATCH;

    /// A look-up in several layers asks for the first line in each only.
    #[inline]
    fn inserts_look_further(layers: &[Layer]) -> bool {
        layers.len() > 1
    }

    #[inline]
    fn prefetch_insert(&self, hash: Hash) {
        self.table.place().prefetch(hash);
    }
}

impl Layer {
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Apart, for the first line is all that there is of most layers, and all that is looked at for most absent items.
    #[inline(never)]
    fn other_lines_contain(&self, hash: Hash, mut positions: Probes) -> bool {
        self.table.lines_of(hash).skip(1).all(|(line, probes)| self.line_contains(line, probes, &mut positions))
    }

    /// Whether the next `probes` of `positions` are set in a line.
    #[inline]
    fn line_contains(&self, line: usize, probes: u8, positions: &mut Probes) -> bool {
        let block = self.table.blocks()[line].view_bits::<Lsb0>();
        // All are read before any is judged: they share one cache miss, and a branch for each would be mispredicted half
        // of the time.
        let mut all = true;
        positions.draw(probes, |position| all &= block[position]);
        all
    }

    /// Whether the item's first line lets it through `screen`. If not, the layer does not contain the item.
    #[inline]
    pub fn fits(&self, screen: &Screen, hash: Hash) -> bool {
        screen.fits(&self.table.blocks()[self.table.first_line_of(hash)])
    }

    #[inline(never)]
    fn set_in_other_lines(&mut self, hash: Hash, mut positions: Probes) -> u64 {
        let lines = self.table.lines_of(hash).skip(1);
        lines.map(|(line, probes)| self.set_in_line(line, probes, &mut positions)).sum()
    }

    /// Sets the next `probes` of `positions` in a line. How many of them were clear.
    #[inline]
    fn set_in_line(&mut self, line: usize, probes: u8, positions: &mut Probes) -> u64 {
        let block = self.table.blocks_mut()[line].view_bits_mut::<Lsb0>();
        let mut set = 0;
        positions.draw(probes, |position| set += u64::from(!block.replace(position, true)));
        set
    }

    /// Sets every bit that is set in `bits`, which start at byte `offset`. Returns whether any was clear, or `None` if they are not
    /// whole blocks of the layer.
    ///
    /// Nothing is ever cleared: bits that arrive twice, or late, cannot make the layer forget.
    pub fn merge(&mut self, offset: usize, bits: &[u8]) -> Option<bool> {
        let (target, source) = (self.table.part(offset, bits.len())?, bits.as_chunks().0);
        let set: u64 = target.iter_mut().zip(source).map(|(target, source)| union(target, source)).sum();
        self.ones += set;
        Some(set > 0)
    }

    /// As [`merge`](Self::merge), for a part of a new layer: where no bit was set before.
    ///
    /// What is not read before it is written costs one page fault a page instead of two: a copy of 12 MB takes 1.3 ms, and took
    /// 4.4 with `merge`.
    pub fn restore(&mut self, offset: usize, bits: &[u8]) -> Option<()> {
        let (target, source) = (self.table.part(offset, bits.len())?, bits.as_chunks().0);
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

/// Sets `found[i]` to whether one of `layers` contains the item of `hashes[i]`, of which there are at most [`BATCH`].
///
/// Compiled twice, for any processor and for one with AVX2, which is chosen when the program runs: with 256 bits at a time, an
/// item that is absent from fourteen layers took 57 ns, and 87 with 128.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn find_batch(layers: &[Layer], hashes: &[Hash], found: &mut [bool]) {
    let probes = common_probes(layers);
    let mut screens = [Screen::OPEN; BATCH];
    screens.iter_mut().zip(hashes).for_each(|(screen, &hash)| screen.add(hash, probes));
    found.fill(false);
    let mut absent = Subset::first(hashes.len());
    let mut older = layers.iter().rev().skip(1);
    for layer in layers.iter().rev() {
        // While this layer is looked through, the lines of the next one come.
        if let Some(next) = older.next().filter(|next| next.bytes().len() > IN_CACHE) {
            let place = next.table.place();
            absent.iter().for_each(|item| place.prefetch_first(hashes[item]));
        }
        let likely = absent.filter(|item| layer.fits(&screens[item], hashes[item]));
        let present = likely.filter(|item| layer.contains(hashes[item]));
        present.iter().for_each(|item| found[item] = true);
        absent = absent.without(present);
    }
}

/// The number of probes that an item has in its first line, whatever the layer.
fn common_probes(layers: &[Layer]) -> u8 {
    layers.iter().map(|layer| layer.table.first_probes()).min().unwrap_or(0)
}
