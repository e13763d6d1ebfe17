//! What is fuzzed. A target takes any bytes, and panics where a promise is broken. `fuzz_targets/` hands them those that
//! libFuzzer makes up, `tests/corpus.rs` those that it found.
//!
//! - [`decoding`]: bytes from anywhere as a walk's header, as a file, and as pieces that are loaded into a filter;
//! - [`commands`]: any commands, to the whole module, in a [`server`] that is a fake.

pub mod commands;
pub mod decoding;
mod server;
