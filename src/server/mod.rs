//! The server's C API, wrapped so that it can be used from safe code.
//!
//! ```text
//!  feature      what this server offers to modules
//!  args         the arguments of a command
//!  context      Server: log, state, limits;  Context: a command's client, replication
//!  clock        the time, on Context
//!  reply        replies, on Context
//!  key          Keyspace and open keys
//!  io           RDB and AOF files, digests, defragmentation
//!  info_writer  a section of INFO
//! ```
//!
//! Rules that hold in all of it:
//!
//! 1. A wrapper is created from a raw pointer in an `unsafe` function, whose caller promises that the pointer is the
//!    server's and lives for the wrapper's lifetime. All else is safe.
//! 2. What may run other modules' code (their keyspace event listeners) takes the [`Keyspace`], which is lent to every
//!    open key. So nobody holds a reference to a value then: see [`key`].

mod args;
pub(crate) mod clock;
mod context;
pub(crate) mod feature;
mod info_writer;
mod io;
pub(crate) mod key;
mod reply;

pub(crate) use args::{Arg, Args, Arity};
pub(crate) use context::{Context, OwnedString, Server};
pub(crate) use info_writer::InfoSection;
pub(crate) use io::{Defragmenter, Digest, Io, ServerBuffer};
pub(crate) use key::{Keyspace, OpenKey};
