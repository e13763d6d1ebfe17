//! Bloom filters that grow, count, forget, merge, and travel as bytes.
//!
//! A Bloom filter stores a set of items in a few bits each. A look-up returns "certainly not" or "probably". This one
//! keeps each item in one or two cache lines at error rates down to 0.1 %, and in a few more at lower rates. The error
//! rate holds for the whole filter, however far it grows. RedisBloom's layout, bit for bit, is an option. The library
//! is the core of oxbloom, a module for Redis and Valkey. It needs no C library, and has no global state, no clock and
//! no I/O.
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
//! [`Filter::builder`] offers the options: growth, a fixed seed, removal, time windows, RedisBloom's layout.
//!
//! With the feature `serde`, filters implement `Serialize` and `Deserialize` of [serde](https://serde.rs), as the bytes
//! of [`Filter::to_bytes`].
//!
//! # How it works
//!
//! A filter has blocks of bits for the items that it was created for. A growing filter stores all other items in a
//! quotient table, which grows in small steps. A filter that supports removal is such a table alone, and also shrinks.
//! In a filter that forgets, each fingerprint has a stamp: the time at which it expires.
//!
//! ```text
//!  Filter ── seed, error rate
//!    ├─ blocks   │ 64 B │ 64 B │ …     the expected number of items
//!    └─ table    │ fingerprints │      all other items
//! ```
//!
//! Each source file opens with its idea and the source of that idea. In this list, a file uses only files above it, and
//! a test checks that:
//!
//! - `error`; `memory`: allocation that may fail; `line` and `array`: the bits;
//! - `murmur` and `hash`: map an item to 128 bits; `sizing`: maps an error rate and a capacity to a shape; `probe`:
//!   maps a hash and a shape to positions; `arch`: what is written for one processor;
//! - `window`: how a filter forgets; `spec`: the parameters of a filter; `item_count`: the number of items; `batch`:
//!   items that are handled together;
//! - `table`: fingerprints in segments; `layer`: layers of bits; `prediction`: what a filter takes;
//! - `kind`: what a filter is and does, with a folder for each kind;
//! - `filter`: the public type; `builder`: creates filters; `merge`: set operations; `codec`: filters as bytes, with a
//!   file for each kind; `following`: copies of filters on servers.

#![deny(missing_docs)]

mod arch;
mod array;
mod batch;
mod builder;
mod codec;
mod error;
mod filter;
mod following;
mod hash;
#[doc(hidden)]
pub mod internals;
mod item_count;
mod kind;
mod layer;
mod line;
mod memory;
mod merge;
mod murmur;
mod prediction;
mod probe;
mod sizing;
mod spec;
mod table;
mod window;

pub use builder::FilterBuilder;
pub use error::{DecodeError, Error, Interrupted, InvalidWindow, MergeError, Mismatch};
pub use filter::Filter;
pub use prediction::Prediction;

/// The examples of the README, which run as tests like those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
