//! A writer that remembers its acknowledged changes, and the unacknowledged change at the time of a crash.
//!
//! - [`writer`]: the journal, which writes, and compares a server with what it remembers;
//! - [`step`]: a change: its commands and its effect; [`state`]: the filters as the journal remembers them;
//! - [`variants`]: the kinds of filters; [`clock`]: the time of all servers.

pub(crate) mod clock;
mod state;
mod step;
mod variants;
pub(crate) mod writer;
