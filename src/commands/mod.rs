//! The commands. Each family has a folder, which declares its commands and has the handlers that only they have. To add
//! a family, add a folder like these, and its row to [`FAMILIES`].
//!
//! A handler parses its arguments, opens the keys, acts, replicates, notifies and replies, in this order. It must drop
//! its filters before it notifies.
//!
//! ```text
//!  bloom, cuckoo            the families
//!  declaration              the declaration of a command, and how it is registered
//!  option_row               an option of a command, and how options are parsed
//!  creation                 creating a filter, and what a family tells about it
//!  adding                   adding items to a filter
//!  query, counting          look-ups; removals and counts
//!  dump, import             dumps in chunks; copies of filters of another module on the same server
//!  items                    the items of a command, one flag for each, and the commands that repeat their change
//! ```

mod adding;
mod bloom;
mod counting;
mod creation;
mod cuckoo;
mod declaration;
mod dump;
#[cfg(feature = "fault-injection")]
mod fault_injection;
mod import;
mod items;
mod option_row;
mod query;

use std::ffi::CStr;

use crate::family::Family;
use crate::server::Context;
use declaration::Command;

pub(crate) use import::drop_idle as drop_idle_imports;

/// The families, and their commands.
static FAMILIES: [(&Family, &[Command]); 2] = [(bloom::FAMILY, bloom::COMMANDS), (cuckoo::FAMILY, cuckoo::COMMANDS)];

/// Registers all commands. The error is the name of the first command that the server rejects.
pub(crate) fn register_all(ctx: &Context) -> Result<(), &'static CStr> {
    FAMILIES.iter().try_for_each(|(family, commands)| declaration::register(ctx, family, commands))
}
