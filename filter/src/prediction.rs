//! What a filter takes with a number of items, predicted without allocating it.
//!
//! The size of bits is computed, and equals that of a filled filter. The size of a table is estimated from a
//! [sample](crate::table::Sample): it depends a little on the hashes of the items.

use crate::sizing::BlockShape;

/// The prediction for a filter: see [`FilterBuilder::predict`](crate::FilterBuilder::predict).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// The bytes that [`Filter::memory_usage`](crate::Filter::memory_usage) returns.
    pub memory: u64,
    /// The false-positive rate.
    pub false_positive_rate: f64,
    /// True if the filter has a table, whose size is estimated.
    pub is_estimate: bool,
    /// The number of bits that an item sets in the first layer, or of slots that it fills.
    #[doc(hidden)]
    pub probes: u32,
    /// The blocks, if the filter has any.
    #[doc(hidden)]
    pub shape: Option<BlockShape>,
}

impl Prediction {
    pub(crate) fn of_fingerprints(memory: u64, false_positive_rate: f64) -> Prediction {
        Prediction { memory, false_positive_rate, is_estimate: true, probes: 1, shape: None }
    }
}
