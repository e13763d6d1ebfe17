//! Decodes arbitrary bytes. Our own headers and chunks have checksums, which a fuzzer cannot guess. So the targets
//! insert the right ones.
//!
//! - [`header`]: the bytes are a dump's header; [`file`]: a file; [`chunks`]: chunks that are loaded into a filter of
//!   one of the [`kinds`];
//! - [`uses`]: calls all operations of what was decoded, and checks it; [`figures`]: its figures agree;
//! - [`copies`]: copies of a filter; [`parts`]: the bits of a filter and the parts of its table.

pub mod chunks;
pub(crate) mod copies;
pub(crate) mod figures;
pub mod file;
pub mod header;
mod kinds;
pub(crate) mod parts;
mod uses;
