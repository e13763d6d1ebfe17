//! Layers of bits, in native and classic filters.
//!
//! Whole layers are combined and counted byte by byte. The compiler vectorizes that.

use crate::arch::{Processor, versioned};
use crate::item_count::MergeOp;
use crate::line::{LINE, Line, count_ones};
use crate::table::Table;

/// The number of bytes that are combined at a time, so that they are still in the processor's L1 cache when they are
/// counted.
const PART: usize = 4 << 10;

/// Combines the bits of layers of the same length. If `target` is new, and so zeroed, combines `sources` alone. Returns
/// whether `target` changed, and the number of its bits that are set.
///
/// Reads all memory once, and does not write bytes that stay zero: the pages of a sparse filter stay untouched.
pub(crate) fn combine_bits<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    op: MergeOp,
    is_new: bool,
) -> (bool, u64) {
    let mut changed = false;
    let mut set_bits = 0;
    for (index, part) in target.chunks_mut(PART).enumerate() {
        let mut sources = sources.clone().filter_map(|source| source.chunks(PART).nth(index));
        // A page that is written without being read first costs one page fault instead of two.
        let first = if is_new { sources.next() } else { None };
        if let Some(first) = first.filter(|first| first.iter().any(|&byte| byte != 0)) {
            part.copy_from_slice(first);
            changed = true;
        }
        for source in sources {
            changed |= combine(part, source, op);
        }
        set_bits += count_ones_of_part(part);
    }
    (changed, set_bits)
}

versioned! {
    /// Combines `target` with `source`. Returns true if `target` changed.
    fn combine(target: &mut [u8], source: &[u8], op: MergeOp) -> bool = combine_with;
    /// Returns the number of bits that are set, for many bytes.
    fn count_ones_of_part(part: &[u8]) -> u64 = count_ones_with;
    /// Combines each `factor` neighbouring blocks of this many bytes into one, at the start of `bytes`. Returns the
    /// number of bits that are set there.
    pub(crate) fn fold_blocks(bytes: &mut [u8], block: usize, factor: usize) -> u64 = fold_blocks_with;
}

#[inline(always)]
fn combine_with(target: &mut [u8], _: impl Processor, source: &[u8], op: MergeOp) -> bool {
    match op {
        MergeOp::Union => combine_lines(target, source, |one, other| one | other),
        MergeOp::Intersection => combine_lines(target, source, |one, other| one & other),
    }
}

#[inline(always)]
fn combine_lines(target: &mut [u8], source: &[u8], op: impl Fn(u8, u8) -> u8) -> bool {
    debug_assert_eq!(target.len(), source.len());
    let (lines, rest) = target.as_chunks_mut::<LINE>();
    let (sources, others) = source.as_chunks::<LINE>();
    let mut changed = false;
    for (target, source) in lines.iter_mut().zip(sources) {
        let combined: Line = std::array::from_fn(|byte| op(target[byte], source[byte]));
        if combined != *target {
            *target = combined;
            changed = true;
        }
    }
    for (target, &source) in rest.iter_mut().zip(others) {
        let combined = op(*target, source);
        changed |= combined != *target;
        *target = combined;
    }
    changed
}

#[inline(always)]
fn count_ones_with(part: &[u8], _: impl Processor) -> u64 {
    count_ones(part)
}

#[inline(always)]
fn fold_blocks_with(bytes: &mut [u8], _: impl Processor, block: usize, factor: usize) -> u64 {
    let blocks = bytes.len() / (block * factor);
    if block != LINE {
        for byte in 0..blocks * block {
            let first = byte / block * block * factor + byte % block;
            bytes[byte] = (first..).step_by(block).take(factor).fold(0, |folded, source| folded | bytes[source]);
        }
        return count_ones(&bytes[..blocks * block]);
    }
    let (lines, _) = bytes.as_chunks_mut::<LINE>();
    let mut set = 0;
    for target in 0..blocks {
        let mut line: Line = [0; LINE];
        for source in &lines[target * factor..][..factor] {
            line.iter_mut().zip(source).for_each(|(byte, source)| *byte |= source);
        }
        // Pages without set bits stay untouched.
        if line != lines[target] {
            lines[target] = line;
        }
        set += count_ones(&line);
    }
    set
}

/// A description of a layer: blocks, a table, or a classic layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerInfo {
    /// The size in bytes.
    pub bytes: u64,
    /// The size in bits.
    pub bits: u64,
    /// The width of the hash in bits.
    pub hash_bits: u8,
    /// The number of bits that an item sets, or of slots that it fills.
    pub probes: u32,
    /// The number of blocks that an item touches. Blocks are cache lines except in small filters. `None` if the layer
    /// has no blocks.
    pub blocks_per_item: Option<u8>,
    /// The number of distinct items that fit.
    pub capacity: u64,
    /// The number of items in the layer.
    pub items: u64,
    /// The part of the filter's error rate that the layer may use.
    pub error_rate: f64,
}

impl LayerInfo {
    /// Describes a layer of fingerprints.
    pub fn of_fingerprints(bytes: u64, hash_bits: u8, capacity: u64, items: u64, error_rate: f64) -> LayerInfo {
        LayerInfo { bytes, bits: 8 * bytes, hash_bits, probes: 1, blocks_per_item: None, capacity, items, error_rate }
    }

    /// Describes a table.
    pub fn of_table(table: &Table, capacity: u64, error_rate: f64) -> LayerInfo {
        LayerInfo::of_fingerprints(table.allocated() as u64, 128, capacity, table.items(), error_rate)
    }
}
