//! Layers of bits: what native and classic filters are made of.

pub(crate) mod blocked;
pub mod classic;

use crate::item_count::MergeOp;
use crate::line::{CombineOp, combine, count_ones_of_part};
use crate::table::Table;

/// Merges layers of bits. Returns whether `target` changed, and how many bits of it are set.
fn merge_bits<'a>(
    target: &mut [u8],
    sources: impl Iterator<Item = &'a [u8]> + Clone,
    op: MergeOp,
    is_new: bool,
) -> (bool, u64) {
    let op = match op {
        MergeOp::Union => CombineOp::Or,
        MergeOp::Intersection => CombineOp::And,
    };
    let mut ones = 0;
    let changed = combine(target, sources, op, is_new, |part| ones += count_ones_of_part(part));
    (changed, ones)
}

/// What is known of a part of a filter: a layer or a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerInfo {
    /// Its size in bytes.
    pub bytes: u64,
    /// The same in bits.
    pub bits: u64,
    /// The width of the hash in bits.
    pub hash_bits: u8,
    /// The number of bits that an item sets, or of slots that it fills.
    pub probes: u32,
    /// The number of blocks that an item touches, cache lines but in small filters. `None` if it has no blocks.
    pub blocks_per_item: Option<u8>,
    /// The number of distinct items that fit.
    pub capacity: u64,
    /// The number of items in it.
    pub items: u64,
    /// The part of the filter's error rate that it may use.
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
