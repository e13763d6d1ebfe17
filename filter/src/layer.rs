//! Layers of bits, in native and classic filters.

use crate::item_count::MergeOp;
use crate::line::{CombineOp, combine, count_ones_of_part};
use crate::table::Table;

/// Combines the bits of layers. Returns whether `target` changed, and the number of its bits that are set.
pub(crate) fn combine_bits<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    op: MergeOp,
    is_new: bool,
) -> (bool, u64) {
    let op = match op {
        MergeOp::Union => CombineOp::Or,
        MergeOp::Intersection => CombineOp::And,
    };
    let mut set_bits = 0;
    let changed = combine(target, sources, op, is_new, |part| set_bits += count_ones_of_part(part));
    (changed, set_bits)
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
    /// Describes a table.
    pub fn of_table(table: &Table, capacity: u64, error_rate: f64) -> LayerInfo {
        let bytes = table.allocated() as u64;
        LayerInfo {
            bytes,
            bits: 8 * bytes,
            hash_bits: 128,
            probes: 1,
            blocks_per_item: None,
            capacity,
            items: table.items(),
            error_rate,
        }
    }
}
