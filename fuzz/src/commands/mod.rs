//! Sends arbitrary commands to the whole module in a mock [`server`](super::server), and checks after each command:
//!
//! - An added item is present until it is removed, and its count is not too low.
//! - A follower that applies the replicated commands has the same filters, whatever its defaults.
//! - A command that changes a filter is replicated and announced. A command that only reads is neither.
//! - A copy that follows a filter by BF.CHANGES equals it, or is told to copy it again.
//! - Files, rewritten append-only files, copies and moved values have the same content.
//!
//! [`script`] reads the commands from the bytes, and [`session`] runs them and checks. [`items`] knows the items of
//! a command.

pub(crate) mod items;
pub(crate) mod script;
pub mod session;
