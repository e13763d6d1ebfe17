//! Predicts what a filter takes with a number of items, without allocating it.
//!
//! The size of bits is computed, and equals that of a filled filter. The size of a table is estimated from a
//! [sample](crate::table::Sample): it depends a little on the hashes of the items.

use crate::error::Error;
use crate::filter::Filter;
use crate::kind::classic::ClassicFilter;
use crate::kind::classic::layer::ClassicSpec;
use crate::kind::counting::CountingFilter;
use crate::kind::native::NativeFilter;
use crate::kind::windowed::WindowedFilter;
use crate::sizing::BlockShape;
use crate::spec::{CreateParams, Layout, OwnSpec};

/// The prediction for a filter: see [`FilterBuilder::predict`](crate::FilterBuilder::predict).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// The bytes that [`Filter::memory_usage`] returns.
    pub memory: u64,
    /// The false-positive rate.
    pub false_positive_rate: f64,
    /// True if the filter has a table, whose size is estimated.
    pub is_estimate: bool,
}

/// The prediction for a filter with a number of items, with its shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The bytes that [`Filter::memory_usage`] returns.
    pub memory: u64,
    /// The false-positive rate.
    pub false_positive_rate: f64,
    /// True if the filter has a table, whose size is estimated.
    pub is_estimate: bool,
    /// The number of bits that an item sets in the first layer, or of slots that it fills.
    pub probes: u32,
    /// The blocks, if the filter has any.
    pub shape: Option<BlockShape>,
}

impl Plan {
    /// Predicts the filter that [`Filter::create`] creates, with `items` distinct items that were counted as new. For a
    /// filter with a window, `items` come in each window, in a steady stream; the filter also remembers the items of
    /// one more slice.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the filter does not grow and has no room for the items; [`Error::OutOfMemory`] or
    /// [`Error::CannotGrow`] if no filter can hold them.
    pub fn new(params: CreateParams, items: u64) -> Result<Plan, Error> {
        let CreateParams { error_rate, capacity, growth, layout } = params;
        let capacity = capacity.get();
        let plan = match layout {
            Layout::Native { seed } => NativeFilter::plan(OwnSpec { seed, error_rate, growth }, capacity, items)?,
            Layout::Counting { seed } => CountingFilter::plan(OwnSpec { seed, error_rate, growth }, capacity, items)?,
            Layout::Windowed { seed, window } => {
                WindowedFilter::plan(OwnSpec { seed, error_rate, growth }, capacity, window, items)?
            }
            Layout::Classic { stored_expansion } => {
                // RedisBloom does not count the value itself.
                return ClassicFilter::plan(ClassicSpec::new(growth, stored_expansion), capacity, error_rate, items);
            }
        };
        Ok(Plan { memory: plan.memory.saturating_add(size_of::<Filter>() as u64), ..plan })
    }
}
