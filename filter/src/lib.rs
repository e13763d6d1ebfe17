//! Bloom filters that grow, count, merge, and travel as bytes.
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
//! [`Filter::builder`] has the options: growth, a fixed seed, removal, RedisBloom's layout.
//!
//! # How it works
//!
//! A filter is a chain of layers; the newest takes new items, and when it is full a larger one follows. One that supports
//! removal is a quotient table instead, which grows and shrinks in small steps.
//!
//! ```text
//!  Filter ── seed, error rate, growth
//!    └─ layers   ┌─────┐ ┌──────────┐ ┌────────────────────┐
//!                │ 100 │ │ 200      │ │ 400                │ ◄─ inserts      (expansion 2)
//!                └─────┘ └──────────┘ └────────────────────┘
//!       lookups ◄──────────────────────────────────────────
//! ```
//!
//! Each file of the source opens with its idea and where it comes from, and uses only those above it:
//!
//! - `error`; `memory`: what may be refused; `block` and `array`: the bits;
//! - `hash` and `murmur`: from an item to 128 bits; `sizing`: from an error rate and a capacity to a shape; `probe`: from both to
//!   positions; `block_array`: an item's blocks;
//! - `spec`: what a filter is created from; `batch`: items that are handled together;
//! - `table`: fingerprints in segments; `layer`: the kinds of layers;
//! - `chain`: what layers do together; `counting`: what a table does; `prefetch_hint`: where layers are;
//! - `filter`: the public face; `builder`: how a filter is created; `merge`: which filters can be merged; `codec`: filters as
//!   bytes.

#![deny(missing_docs)]

mod array;
mod batch;
mod block;
mod block_array;
mod builder;
mod chain;
mod codec;
mod counting;
mod error;
mod filter;
mod hash;
#[doc(hidden)]
pub mod internals;
mod layer;
mod memory;
mod merge;
mod murmur;
mod prefetch_hint;
mod probe;
mod sizing;
mod spec;
mod table;

pub use builder::FilterBuilder;
pub use error::{DecodeError, Error};
pub use filter::Filter;
pub use merge::{MergeError, Mismatch};

/// The examples of the README, which are tested like those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
