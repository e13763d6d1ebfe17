//! Filters that forget: they remember items for as long as they must, and then forget them.
//!
//! - [`windows`]: how long items are remembered, compared with a model; [`modelled`]: filters with such models;
//! - [`memory`]: growth, and failed allocations; [`tables`]: the same for tables by themselves; [`headers`]: headers and
//!   their times; [`filters`]: filters to test.
//!
//! All tests are deterministic, except for the inputs that proptest draws.

mod filters;
mod headers;
mod memory;
mod modelled;
mod tables;
mod windows;
