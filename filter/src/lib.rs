//! Bloom filters that grow, count, merge, and travel as bytes.
//!
//! A Bloom filter remembers items in few bits each, and answers "certainly not" or "probably" when asked for one. This one
//! keeps each item in one or two cache lines, holds its error rate for the whole filter, and reads and writes RedisBloom's
//! filters bit for bit. It is the library below oxbloom, a module for Redis and Valkey. It has no unsafe dependency on C, no
//! global state, no clock and no I/O.
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
//! A filter is a chain of layers; the newest takes new items, and when it is full a larger one follows:
//!
//! ```text
//!  Filter ── seed, error rate, growth
//!    └─ layers   ┌─────┐ ┌──────────┐ ┌────────────────────┐
//!                │ 100 │ │ 200      │ │ 400                │ ◄─ inserts      (expansion 2)
//!                └─────┘ └──────────┘ └────────────────────┘
//!       lookups ◄──────────────────────────────────────────
//! ```
//!
//! In the source, each file opens with its idea, its picture and where it comes from. From the ground up:
//!
//! - `block` and `array` are the memory; `block_array` the blocks of an item in it;
//! - `hash`, `murmur` and `probe` turn an item into positions; `sizing` turns an error rate and a capacity into a shape;
//! - `layer` has the kinds of layers, `chain` what layers together do, `merge` which filters can be merged;
//! - `codec` turns a filter into bytes and back;
//! - `filter` and `builder` are the public face.

#![deny(missing_docs)]

mod array;
mod batch;
mod block;
mod block_array;
mod builder;
mod chain;
mod codec;
mod counting_chain;
mod error;
mod filter;
mod hash;
#[doc(hidden)]
pub mod internals;
mod layer;
mod merge;
mod murmur;
mod prefetch;
mod probe;
mod sizing;
mod spec;

pub use builder::FilterBuilder;
pub use codec::DecodeError;
pub use error::Error;
pub use filter::Filter;
pub use merge::{MergeError, Mismatch};
