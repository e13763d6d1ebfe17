//! The parameters of filters and of insertions.

use std::num::{NonZeroU32, NonZeroU64};

use crate::sizing::LAYER_SHARE;
use crate::window::Window;

/// A false-positive rate, above 0 and below 1. Rates below `2^-64` are treated as `2^-64` in blocks, and below `2^-50`
/// as `2^-50` in tables.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct ErrorRate(f64);

impl ErrorRate {
    /// Returns the rate, or `None` unless `0 < rate < 1`.
    pub const fn new(rate: f64) -> Option<ErrorRate> {
        if rate > 0.0 && rate < 1.0 { Some(ErrorRate(rate)) } else { None }
    }

    /// Returns the rate as a number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// The behaviour of a full filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Insertions of new items fail.
    Fixed,
    /// The filter grows. A classic filter gets another layer, this many times as large.
    By(NonZeroU32),
}

impl Growth {
    /// Returns the behaviour with an expansion; 0 stands for none.
    pub fn of(expansion: u32) -> Growth {
        NonZeroU32::new(expansion).map_or(Growth::Fixed, Growth::By)
    }

    /// Returns the expansion, or `None` if the filter does not grow.
    pub fn expansion(self) -> Option<u32> {
        match self {
            Growth::Fixed => None,
            Growth::By(expansion) => Some(expansion.get()),
        }
    }
}

/// What a filter was created with.
#[derive(Clone, Copy, PartialEq)]
pub struct Parameters {
    /// The false-positive rate of the whole filter, however far it grows. That of a classic filter is computed from the
    /// rate of its first layer, since only that is stored.
    pub error_rate: f64,
    /// The number of distinct items that fit before the filter grows or rejects items: in each window, if it forgets by
    /// time.
    pub capacity: u64,
    /// The expansion, or `None` if the filter does not grow.
    pub expansion: Option<u32>,
    /// The seed of the hash, or `None` if the filter is not one of our own.
    pub seed: Option<u64>,
    /// The window of a filter that forgets.
    pub window: Option<Window>,
}

/// The expansion that RedisBloom stores in a filter that does not grow, unless the client gave another.
pub const DEFAULT_STORED_EXPANSION: u32 = 2;

/// The parameters of a filter of our own, except its capacity.
#[derive(Clone, Copy, PartialEq)]
pub struct OwnSpec {
    pub seed: u64,
    /// The false-positive rate of the whole filter.
    pub error_rate: ErrorRate,
    pub growth: Growth,
}

impl OwnSpec {
    /// Returns the parameters of a filter of our own.
    pub fn parameters(&self, capacity: u64, window: Option<Window>) -> Parameters {
        let error_rate = self.error_rate.get();
        let seed = Some(self.seed);
        Parameters { error_rate, capacity, expansion: self.growth.expansion(), seed, window }
    }

    /// Returns the part of the error rate that the layer of a native filter may use.
    pub fn layer_error_rate(&self) -> f64 {
        match self.growth {
            Growth::Fixed => self.error_rate.get(),
            Growth::By(_) => LAYER_SHARE * self.error_rate.get(),
        }
    }
}

/// The treatment of an item that a counting filter already contains. Other filters ignore such items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDuplicate {
    /// Count another occurrence.
    #[default]
    Count,
    /// Leave the filter unchanged.
    Skip,
}

/// The options of an insertion.
#[derive(Clone, Copy, Debug, Default)]
pub struct InsertOptions {
    /// The action for an item that is already in a counting filter.
    pub on_duplicate: OnDuplicate,
    /// The time, in milliseconds since 1970. Only filters that forget use it. 0 stands for the time of the last change.
    pub now: u64,
    /// The time for which a filter that forgets remembers the items, in milliseconds. The maximum and the default are
    /// the length of its window.
    pub lifetime: Option<NonZeroU64>,
    /// True if a filter with a window renews the items that it holds already, even if it was created without `refresh`.
    pub refresh: bool,
    /// True if a master or an append-only file has the items. A cuckoo filter then grows for copies as far as it did
    /// there.
    pub is_replay: bool,
}

impl From<OnDuplicate> for InsertOptions {
    fn from(on_duplicate: OnDuplicate) -> InsertOptions {
        InsertOptions { on_duplicate, ..InsertOptions::default() }
    }
}
