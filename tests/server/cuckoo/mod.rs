//! Cuckoo filters of both layouts.
//!
//! - [`replies`]: the replies of CF.*; [`options`]: its options and their errors;
//! - [`events`]: events and replication, transactions and scripts, and copies in chunks;
//! - [`limits`]: the limits of memory.

mod events;
mod limits;
mod options;
mod replies;
