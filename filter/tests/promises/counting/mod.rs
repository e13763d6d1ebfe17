//! Counting filters: an item that was added and not removed is present, whatever else was added or removed.
//!
//! - [`operations`]: additions and removals, compared with an exact multiset;
//! - [`measured`]: false-positive rates while items come and go; [`memory`]: the memory of a filter, and failed
//!   allocations;
//! - [`chunks`]: chunks out of turn;
//! - [`filters`]: filters to test.
//!
//! The tests use error rates up to 0.3, since the many false positives of short fingerprints are the hard cases. All
//! tests are deterministic.

mod chunks;
pub(crate) mod filters;
mod measured;
mod memory;
mod operations;
