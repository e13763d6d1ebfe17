//! The commands: each is declared once, in the [`registry`].
//!
//! A handler parses its arguments, opens the keys, acts, replicates, notifies and replies, in this order. It must drop
//! its filters before it notifies.
//!
//! ```text
//!  add, reserve, merge, …      the handlers, one file for each family
//!  create, replication         shared by several: creating a filter, replicating changes of items
//!  items, packing              the items of a command: arguments, or packed into one
//!  item_flags                  one flag per item, for the reply and for replication
//!  import                      copies filters of another module on the same server
//!  redisbloom                  commands of RedisBloom's stream, parsed as RedisBloom parses them
//!  option_rows, options        the options that create a filter, one row each; what they mean together
//!  cuckoo                      the commands on cuckoo filters
//!  registry, declaration       the declaration of each command, and how it is registered
//! ```

mod add;
mod counting;
mod create;
mod cuckoo;
mod declaration;
mod dump;
#[cfg(feature = "fault-injection")]
mod fault_injection;
mod import;
mod info;
mod item_flags;
mod items;
mod load;
mod merge;
mod option_rows;
mod options;
mod packed;
mod packing;
mod query;
mod redisbloom;
mod registry;
mod replication;
mod reserve;

use std::ffi::CStr;

use crate::server::Context;

/// Registers all commands. The error is the name of the first command that the server rejects.
pub(crate) fn register_all(ctx: &Context) -> Result<(), &'static CStr> {
    declaration::register(ctx, registry::FAMILY, registry::COMMANDS)?;
    declaration::register(ctx, cuckoo::FAMILY, cuckoo::COMMANDS)
}
