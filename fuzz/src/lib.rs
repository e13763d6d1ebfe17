//! The fuzz targets. A target takes any bytes, and panics if a promise is broken. `fuzz_targets/` passes it the bytes that
//! libFuzzer invents, `tests/corpus.rs` those that it found.
//!
//! - [`decoding`]: any bytes as a dump's header, as a file, and as chunks that are loaded into a filter;
//! - [`forgetting`]: any additions to filters that forget, at any times, and states of them that nobody wrote;
//! - [`commands`]: any commands, to the whole module in a mock [`server`].

#![allow(missing_docs, reason = "not published: names say what the rest is")]

pub mod commands;
pub mod decoding;
pub mod forgetting;
pub mod input;
mod part;
mod server;
