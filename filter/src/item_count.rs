//! The number of items, also after a merge.

#![warn(clippy::arithmetic_side_effects)]

/// The maximum number of items in a layer or table, 2.8 * 10^14. It is then full, whatever its capacity. A layer with
/// so many items would take 32 terabytes even at one bit an item. A larger stored count is forged, and could overflow
/// sums.
pub const MAX_ITEMS: u64 = 1 << 48;

/// A set operation on filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOp {
    /// Keeps the items that are in any filter.
    Union,
    /// Keeps the items that are in all filters, and some additional false positives.
    Intersection,
}

/// An item count. The top bit marks it as an estimate, as after a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemCount(u64);

impl ItemCount {
    const ESTIMATE: u64 = 1 << 63;

    /// Returns a count of at most [`MAX_ITEMS`].
    pub fn new(items: u64, is_estimate: bool) -> ItemCount {
        ItemCount(items.min(MAX_ITEMS) | if is_estimate { ItemCount::ESTIMATE } else { 0 })
    }

    /// Returns the item count of the merge of filters with the item counts `operands`.
    ///
    /// It is exact if at most one operand is non-empty. Otherwise it is `estimate`, which comes from the fill, clamped
    /// to the possible range.
    pub fn merged(op: MergeOp, mut operands: impl Iterator<Item = ItemCount> + Clone, estimate: f64) -> ItemCount {
        let items = operands.clone().map(ItemCount::items);
        let [least, most] = [items.clone().min(), items.clone().max()].map(Option::unwrap_or_default);
        let (low, high) = match op {
            MergeOp::Union => (most, items.fold(0, u64::saturating_add)),
            MergeOp::Intersection if items.count() == 1 => (least, least),
            MergeOp::Intersection => (0, least),
        };
        let is_estimate = operands.any(ItemCount::is_estimate);
        ItemCount::new((estimate.round() as u64).clamp(low, high), is_estimate || low < high)
    }

    /// Decodes a stored count.
    pub fn from_stored(number: u64) -> ItemCount {
        ItemCount(number)
    }

    /// Encodes the count as one number.
    pub fn to_stored(self) -> u64 {
        self.0
    }

    /// Returns the number of items.
    #[inline]
    pub fn items(self) -> u64 {
        self.0 & !ItemCount::ESTIMATE
    }

    /// Returns true if the number is an estimate.
    pub fn is_estimate(self) -> bool {
        self.0 & ItemCount::ESTIMATE != 0
    }

    /// Adds an item if `is_new`.
    #[inline]
    pub fn increment(&mut self, is_new: bool) {
        self.0 = self.0.wrapping_add(is_new.into());
    }

    /// Subtracts an item if `is_gone` and the count is not 0.
    #[inline]
    pub fn decrement(&mut self, is_gone: bool) {
        self.0 = self.0.wrapping_sub(u64::from(is_gone && self.items() > 0));
    }

    /// Reduces the count to at most `max` items.
    #[inline]
    pub fn limit(&mut self, max: u64) {
        self.0 = self.0 & ItemCount::ESTIMATE | self.items().min(max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An estimate may be too low, so that more items are removed than were counted.
    #[test]
    fn a_count_stays_an_estimate_and_never_falls_below_0() {
        for is_estimate in [false, true] {
            let mut count = ItemCount::new(1, is_estimate);
            for left in [0, 0] {
                count.decrement(true);
                assert_eq!((count.items(), count.is_estimate()), (left, is_estimate));
            }
        }
    }
}
