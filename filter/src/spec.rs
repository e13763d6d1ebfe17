//! What a filter is created from.

use std::num::{NonZeroU32, NonZeroU64};

use crate::sizing::LAYER_SHARE;
use crate::window::Window;

/// A false-positive rate, above 0 and below 1. Rates below `2^-64` are treated as `2^-64` in blocks, and below `2^-50` as
/// `2^-50` in tables.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct ErrorRate(f64);

impl ErrorRate {
    /// Returns `None` unless `0 < rate < 1`.
    pub const fn new(rate: f64) -> Option<ErrorRate> {
        if rate > 0.0 && rate < 1.0 { Some(ErrorRate(rate)) } else { None }
    }

    /// Returns the rate as a number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// What happens when a filter is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Insertions of new items fail.
    Fixed,
    /// It grows. In a classic filter, another layer follows, this many times as large.
    By(NonZeroU32),
}

/// What a filter is created from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CreateParams {
    /// The false-positive rate of the whole filter, however far it grows.
    pub error_rate: ErrorRate,
    /// The number of distinct items that fit before the filter grows or rejects.
    pub capacity: NonZeroU64,
    /// What happens when the filter is full.
    pub growth: Growth,
    /// How the bits lie in memory.
    pub layout: Layout,
}

/// The kinds of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// Bits in blocks, of a cache line but in small filters; and a table once it has grown.
    Native,
    /// Fingerprints with their counts, in a table.
    Counting,
    /// Fingerprints with the slices in which they are forgotten, in tables.
    Windowed,
    /// RedisBloom's bits.
    Classic,
}

/// How the bits lie in memory, and what that takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In blocks, of a cache line but in small filters.
    Native {
        /// Filters of one shape and seed hold the same bits for the same items. Anyone who knows it can craft collisions.
        seed: u64,
    },
    /// In a table of fingerprints with their counts, so that items can be removed.
    Counting {
        /// As for native filters.
        seed: u64,
    },
    /// In tables of fingerprints that are forgotten after a while.
    Windowed {
        /// As for native filters.
        seed: u64,
        /// How long they are remembered. One that is rolling does not grow.
        window: Window,
    },
    /// As in RedisBloom.
    Classic {
        /// The expansion that a filter that does not grow stores nevertheless.
        stored_expansion: u32,
    },
}

/// What a filter of our own is created from, but for its capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnSpec {
    pub seed: u64,
    /// The false-positive rate of the whole filter.
    pub error_rate: ErrorRate,
    pub growth: Growth,
}

impl OwnSpec {
    /// Returns the part of the error rate that the layer of a native filter may use.
    pub fn layer_error_rate(&self) -> f64 {
        match self.growth {
            Growth::Fixed => self.error_rate.get(),
            Growth::By(_) => LAYER_SHARE * self.error_rate.get(),
        }
    }

    /// Returns the expansion that the filter was created with, or `None` if it does not grow.
    pub fn expansion(&self) -> Option<u32> {
        match self.growth {
            Growth::Fixed => None,
            Growth::By(expansion) => Some(expansion.get()),
        }
    }
}
