//! Items on their way to a filter, some at a time.
//!
//! A filter is larger than the processor's cache, so that most of an item's time is spent waiting for memory. A command of
//! many items prepares a batch, and has the memory it needs on its way, while it works off the one before:
//!
//! ```text
//!  prepare 1 │ look up 1 │ prepare 2 │ reply 1 │ look up 2 │ prepare 3 │ reply 2 │ …
//!                            └────── memory ──────┘
//! ```

use super::super::args::Args;
use crate::filter::Filter;
pub use crate::filter::batch::BATCH;
use crate::filter::hash::Hash;

/// The hashes of at most [`BATCH`] items.
pub struct Prepared {
    hashes: [Hash; BATCH],
    len: usize,
}

impl Prepared {
    /// Hashes items, of which there are at most [`BATCH`], and asks for the memory that the filter keeps them in.
    #[inline]
    pub fn new(filter: &Filter, items: Args) -> Prepared {
        let mut prepared = Prepared { hashes: [Hash::default(); BATCH], len: items.len() };
        for (hash, item) in prepared.hashes.iter_mut().zip(items.iter()) {
            *hash = filter.hash(item.bytes());
        }
        filter.prefetch(prepared.hashes());
        prepared
    }

    pub fn hashes(&self) -> &[Hash] {
        &self.hashes[..self.len]
    }
}
