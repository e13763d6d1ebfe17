//! The commands: each is declared once, in the [`registry`].
//!
//! A handler parses its arguments, opens the keys, acts, replicates, notifies and replies, in this order. It holds no
//! filter any more when it notifies.
//!
//! ```text
//!  add, reserve, merge, …      the handlers, one file for each family
//!  create, replication         what several of them do: create a filter, tell replicas what became of items
//!  item_flags                  a flag for each item, for the reply and the replicas
//!  redisbloom                  RedisBloom's stream, parsed as RedisBloom parses it
//!  options                     the options that create a filter
//!  registry, declaration       what each command tells the server about itself
//! ```

mod add;
mod counting;
mod create;
mod declaration;
mod dump;
#[cfg(feature = "fault-injection")]
mod fault_injection;
mod info;
mod item_flags;
mod merge;
mod options;
mod query;
mod redisbloom;
mod registry;
mod replication;
mod reserve;

use std::ffi::CStr;

use crate::server::Context;

/// Registers all commands. An error is the name of the first that the server rejects.
pub(crate) fn register_all(ctx: &Context) -> Result<(), &'static CStr> {
    declaration::register(ctx, registry::COMMANDS)
}
