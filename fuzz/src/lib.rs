//! The fuzz targets. A target takes arbitrary bytes, and panics if a promise is broken. `fuzz_targets/` calls it with
//! the bytes that libFuzzer generates, and `tests/corpus.rs` with those in the corpus.
//!
//! - [`decoding`]: decodes the bytes as a dump's header, as a file, and as chunks that are loaded into a filter;
//! - [`forgetting`]: adds items to filters that forget, at arbitrary times, and loads arbitrary states of them;
//! - [`forged`]: forges numbers in the headers and chunks of filters, and uses what loads, within bounds of time and
//!   memory, and then in the whole module;
//! - [`commands`]: sends arbitrary commands to the whole module in a mock [`server`].
//!
//! [`simulation`] is no target: it gets a seed, and runs several such servers, which replicate, restart and fail over.

#![allow(missing_docs, reason = "not published, and most names explain themselves")]

pub mod commands;
pub mod decoding;
pub mod forged;
pub mod forgetting;
pub mod input;
mod part;
mod server;
pub mod simulation;
mod watchdog;

/// Defines the program of a target.
#[macro_export]
macro_rules! target {
    ($run:path) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $run(bytes));

        #[cfg(not(fuzzing))]
        fn main() {
            eprintln!("This is a target of cargo-fuzz. To try the files of the corpus: cargo test -p oxbloom-fuzz");
        }
    };
}
