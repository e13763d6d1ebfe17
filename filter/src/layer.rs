//! Layers of bits, in native and classic filters.
//!
//! Whole layers are combined and counted byte by byte. The compiler vectorizes that.

use crate::arch::{Processor, versioned};
use crate::array::WORD;
use crate::item_count::MergeOp;
use crate::line::{LINE, Line, count_ones};
use crate::sizing::MAX_SMALL_WORDS;
use crate::table::Table;

/// The number of bytes that are combined at a time, so that they are still in the processor's L1 cache when they are
/// counted. Blocks that are not cache lines are all in one part.
const PART: usize = 4 << 10;
const _: () = assert!(PART.is_multiple_of(LINE) && MAX_SMALL_WORDS as usize * WORD <= PART, "parts are whole blocks");

/// The bits of the layer that others are combined into.
pub(crate) struct Destination<'a> {
    pub bytes: &'a mut [u8],
    /// The size of a block. Larger sources have more blocks of this size.
    pub block: usize,
    /// True if the layer is new, and so zeroed. It then gets the combination of the sources alone.
    pub is_new: bool,
}

/// Combines the bits of layers. Those of a larger source are folded on the way, as by [`fold_blocks`]. Returns whether
/// the destination changed, and the number of its bits that are set.
///
/// Reads all memory once, and does not write bytes that stay zero: the pages of a sparse filter stay untouched.
pub(crate) fn combine_bits<'a>(
    destination: Destination<'_>,
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    op: MergeOp,
) -> (bool, u64) {
    let Destination { bytes, block, is_new } = destination;
    let length = bytes.len();
    let mut buffer = None;
    let mut changed = false;
    let mut set_bits = 0;
    for (index, part) in bytes.chunks_mut(PART).enumerate() {
        let mut is_empty = is_new;
        for source in sources.clone() {
            let factor = (source.len() / length).max(1);
            let Some(source) = source.chunks(PART.saturating_mul(factor)).nth(index) else { continue };
            let source = match factor {
                1 => source,
                _ => fold_part(buffer.get_or_insert([0; PART]), source, block, factor),
            };
            // A page that is written without being read first costs one page fault instead of two.
            if !std::mem::take(&mut is_empty) {
                changed |= combine(part, source, op);
            } else if source.iter().any(|&byte| byte != 0) {
                part.copy_from_slice(source);
                changed = true;
            }
        }
        set_bits += count_ones_of_part(part);
    }
    (changed, set_bits)
}

/// Combines each `factor` neighbouring blocks of this many bytes into one, at the start of `bytes`. Returns the number
/// of bits that are set there.
pub(crate) fn fold_blocks(bytes: &mut [u8], block: usize, factor: usize) -> u64 {
    let length = bytes.len() / factor;
    let mut buffer = [0; PART];
    let mut set_bits = 0;
    for start in (0..length).step_by(PART) {
        let end = length.min(start + PART);
        let folded = fold_part(&mut buffer, &bytes[start * factor..end * factor], block, factor);
        set_bits += count_ones_of_part(folded);
        // Pages without set bits stay untouched.
        if bytes[start..end] != *folded {
            bytes[start..end].copy_from_slice(folded);
        }
    }
    set_bits
}

/// Folds the blocks of `source` into the start of `buffer`, and returns them.
fn fold_part<'a>(buffer: &'a mut [u8; PART], source: &[u8], block: usize, factor: usize) -> &'a [u8] {
    let folded = &mut buffer[..source.len() / factor];
    fold_into(folded, source, block);
    folded
}

versioned! {
    /// Combines `target` with `source`. Returns true if `target` changed.
    fn combine(target: &mut [u8], source: &[u8], op: MergeOp) -> bool = combine_with;
    /// Returns the number of bits that are set, for many bytes.
    fn count_ones_of_part(part: &[u8]) -> u64 = count_ones_with;
    /// Sets each block of `target`, which has `block` bytes, to the OR of neighbouring blocks of `source`. It has a
    /// multiple of the length.
    fn fold_into(target: &mut [u8], source: &[u8], block: usize) = fold_into_with;
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
fn fold_into_with(target: &mut [u8], _: impl Processor, source: &[u8], block: usize) {
    let factor = source.len() / target.len();
    if block != LINE {
        for (target, sources) in target.chunks_mut(block).zip(source.chunks(block * factor)) {
            target.copy_from_slice(&sources[..block]);
            for source in sources.chunks(block) {
                target.iter_mut().zip(source).for_each(|(byte, source)| *byte |= source);
            }
        }
        return;
    }
    let (lines, _) = target.as_chunks_mut::<LINE>();
    let (sources, _) = source.as_chunks::<LINE>();
    for (target, sources) in lines.iter_mut().zip(sources.chunks(factor)) {
        let mut line: Line = [0; LINE];
        for source in sources {
            line.iter_mut().zip(source).for_each(|(byte, source)| *byte |= source);
        }
        *target = line;
    }
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
