//! The number of items in a layer.

use super::{MAX_ITEMS, MergeOp};

/// An item count. The top bit marks it as an estimate, as after a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemCount(u64);

impl ItemCount {
    const ESTIMATE: u64 = 1 << 63;

    pub fn new(items: u64, is_estimate: bool) -> ItemCount {
        ItemCount(items.min(MAX_ITEMS) | if is_estimate { ItemCount::ESTIMATE } else { 0 })
    }

    /// Returns the item count after a merge of layers with `operands` items.
    ///
    /// Exact if at most one operand is non-empty. Otherwise it is `estimate`, which comes from the fill, clamped to what is
    /// possible.
    pub fn merged(op: MergeOp, operands: impl Iterator<Item = ItemCount>, estimate: f64) -> ItemCount {
        let (mut number, mut least, mut most, mut sum, mut is_estimate) = (0, u64::MAX, 0, 0u64, false);
        for count in operands {
            least = least.min(count.items());
            most = most.max(count.items());
            sum = sum.saturating_add(count.items());
            is_estimate |= count.is_estimate();
            number += 1;
        }
        let (low, high) = match op {
            MergeOp::Union => (most, sum),
            MergeOp::Intersection if number == 1 => (least, least),
            MergeOp::Intersection => (0, least),
        };
        ItemCount::new((estimate.round() as u64).clamp(low, high), is_estimate || low < high)
    }

    pub fn from_bits(bits: u64) -> ItemCount {
        ItemCount(bits)
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn items(self) -> u64 {
        self.0 & !ItemCount::ESTIMATE
    }

    pub fn is_estimate(self) -> bool {
        self.0 & ItemCount::ESTIMATE != 0
    }

    /// Returns `items`, marked as an estimate if this count is one.
    pub fn with(self, items: u64) -> ItemCount {
        ItemCount::new(items, self.is_estimate())
    }

    /// Counts an item, if it `is_new`.
    #[inline]
    pub fn increment(&mut self, is_new: bool) {
        self.0 = self.0.wrapping_add(is_new.into());
    }
}
