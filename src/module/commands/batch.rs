//! Items on their way to a filter, some at a time.
//!
//! A filter is larger than the processor's cache, so that most of an item's time is spent waiting for memory. A command of
//! many items asks for the memory of a batch of them first, and the waits overlap: on a filter of 10^8 items, BF.MEXISTS takes
//! 85 ns an item instead of 175. To ask for the next batch before this one is replied to made no difference.

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
