//! Bloom filters that grow, count, forget, merge, and travel as bytes.
//!
//! A Bloom filter remembers items in few bits each, and answers "certainly not" or "probably" when asked for one. This one
//! keeps each item in one or two cache lines at error rates down to 0.1 %, and in a few more below. It holds its error rate for
//! the whole filter, and has RedisBloom's layout, bit for bit, as an option. It is the library below oxbloom, a module for
//! Redis and Valkey. It needs no C library, and has no global state, no clock and no I/O.
//!
//! ```
//! use oxbloom_filter::Filter;
//!
//! let mut seen = Filter::new(0.01, 1_000_000)?;      // 1 % false positives, a million items: 1.2 MB
//! assert!(seen.insert("https://example.com/")?);     // new
//! assert!(!seen.insert("https://example.com/")?);    // a duplicate
//! assert!(seen.contains("https://example.com/"));    // never a false negative
//! # Ok::<(), oxbloom_filter::Error>(())
//! ```
//!
//! [`Filter::builder`] has the options: growth, a fixed seed, removal, windows of time, RedisBloom's layout.
//!
//! # How it works
//!
//! A filter has blocks of bits for the items that it was created for. One that grows keeps all others in a quotient table,
//! which grows in small steps. One that supports removal is such a table alone, and shrinks as well. In one that forgets, each
//! fingerprint has a stamp that tells when.
//!
//! ```text
//!  Filter ── seed, error rate
//!    ├─ blocks   │ 64 B │ 64 B │ …     as many items as were expected
//!    └─ table    │ fingerprints │      all others
//! ```
//!
//! Each file of the source opens with its idea and where it comes from, and uses only those above it:
//!
//! - `error`; `memory`: what may be refused; `line` and `array`: the bits;
//! - `hash` and `murmur`: from an item to 128 bits; `sizing`: from an error rate and a capacity to a shape; `probe`: from both to
//!   positions; `block_array`: an item's blocks;
//! - `spec`: what a filter is created from; `item_count`: how many items there are; `batch`: items that are handled together;
//! - `table`: fingerprints in segments; `layer`: bits, in blocks or as RedisBloom has them;
//! - `window`: how long a filter remembers; `native`, `counting`, `windowed` and `classic`: the four kinds of filters;
//!   `prefetch_hint`: where they are;
//! - `filter`: the public face; `builder`: how a filter is created; `merge`: which filters can be merged; `codec`: filters as
//!   bytes.

#![deny(missing_docs)]

mod array;
mod batch;
mod block_array;
mod builder;
mod classic;
mod codec;
mod counting;
mod error;
mod filter;
mod hash;
#[doc(hidden)]
pub mod internals;
mod item_count;
mod layer;
mod line;
mod memory;
mod merge;
mod murmur;
mod native;
mod prefetch_hint;
mod probe;
mod sizing;
mod spec;
mod table;
mod window;
mod windowed;

pub use builder::FilterBuilder;
pub use error::{DecodeError, Error, MergeError, Mismatch};
pub use filter::Filter;

/// The examples of the README, which are tested like those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
