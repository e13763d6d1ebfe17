//! Cuckoo filters of both layouts.
//!
//! - [`replies`]: the replies of CF.*; [`options`]: its options and their errors; [`limits`]: the limits of memory.

mod limits;
mod options;
mod replies;
