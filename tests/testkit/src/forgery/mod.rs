//! Forged bytes of filters.
//!
//! - [`kinds`]: the filters whose bytes are forged; [`fields`]: the fields of headers and chunks, their limits, and
//!   values that overflow sums; [`content`]: the content of a filter, in which fields are forged; [`sealed`]: the same
//!   with checksums that match;
//! - [`entries`]: tables of entries that no additions make.
//!
//! The formats are those of `filter/src/codec/own` and `filter/src/table/part.rs`. [`classic`] and [`cuckoo`] have those
//! of RedisBloom, and [`valkey`] that of valkey-bloom.

mod classic;
pub mod content;
mod cuckoo;
pub mod entries;
pub mod fields;
pub mod kinds;
pub mod sealed;
mod valkey;
