//! Safe wrappers over the server's C API.
//!
//! ```text
//!  feature      optional features of servers
//!  args         the arguments of a command
//!  context      Server: log, state, limits;  Context: a command's client, replication
//!  clock        the time, on Context
//!  command_filter  callbacks that see each command before it runs
//!  reply        replies, on Context
//!  key          Keyspace and open keys
//!  call         calls of commands, and their replies
//!  io           RDB files, whose values are those of the library, and AOF files
//! ```
//!
//! Rules for all wrappers:
//!
//! 1. A wrapper is created from a raw pointer in an `unsafe` function. The caller promises that the pointer is the
//!    server's and lives for the wrapper's lifetime. All other functions are safe.
//! 2. A function that may run other modules' code (their listeners to keyspace events) takes the [`Keyspace`], which
//!    every open key borrows. So nobody holds a reference to a value at that time: see [`key`].

mod args;
mod call;
pub(crate) mod clock;
mod command_filter;
mod context;
pub(crate) mod feature;
mod io;
pub(crate) mod key;
mod reply;

pub(crate) use args::{Arg, Args, Arity};
pub(crate) use call::CallReply;
pub(crate) use command_filter::{CommandFilter, FilteredCommand};
pub(crate) use context::{Context, OwnedString, Server};
pub(crate) use io::Io;
pub(crate) use key::{Keyspace, OpenKey};
