//! The libraries beside ours, and our filters with the layout of one of them.

use std::hash::BuildHasher;

use bloomfilter::Bloom;
use fastbloom::BloomFilter;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CreateParams, ErrorRate, FIXED_SEED, Growth, Layout};

use super::{Library, Size, Slices};

impl<S: BuildHasher + Clone + Default> Library for BloomFilter<S> {
    fn new(size: Size) -> BloomFilter<S> {
        BloomFilter::with_false_pos(size.error_rate).hasher(S::default()).expected_items(size.capacity as usize)
    }

    fn copy(&self) -> BloomFilter<S> {
        self.clone()
    }

    fn bits(&self) -> u64 {
        self.num_bits() as u64
    }

    fn insert_items(&mut self, items: Slices) -> usize {
        items.filter(|item| !self.insert(item)).count()
    }

    fn count_contained(&self, items: Slices) -> usize {
        items.filter(|item| self.contains(item)).count()
    }
}

/// A filter with valkey-bloom's layout: the bits of [`Bloom`].
pub(crate) struct Valkey(Filter);

impl Library for Valkey {
    fn new(size: Size) -> Valkey {
        let params = CreateParams {
            error_rate: ErrorRate::new(size.error_rate).expect("an error rate"),
            capacity: size.capacity.try_into().expect("a capacity"),
            growth: Growth::Fixed,
            layout: Layout::Valkey { seed: FIXED_SEED, tightening: ErrorRate::new(0.5).expect("a ratio") },
        };
        Valkey(Filter::create(params, &mut |_| true).expect("memory"))
    }

    fn copy(&self) -> Valkey {
        Valkey(self.0.clone())
    }

    fn bits(&self) -> u64 {
        self.0.bits()
    }

    fn insert_items(&mut self, items: Slices) -> usize {
        self.0.insert_items(items)
    }

    fn count_contained(&self, items: Slices) -> usize {
        self.0.count_contained(items)
    }
}

impl Library for Bloom<[u8]> {
    fn new(size: Size) -> Bloom<[u8]> {
        let capacity = size.capacity as usize;
        Bloom::new_for_fp_rate_with_seed(capacity, size.error_rate, &FIXED_SEED).expect("memory")
    }

    fn copy(&self) -> Bloom<[u8]> {
        Bloom::from_bytes(self.to_bytes()).expect("its own bytes")
    }

    fn bits(&self) -> u64 {
        self.len()
    }

    fn insert_items(&mut self, items: Slices) -> usize {
        items.filter(|item| !self.check_and_set(item)).count()
    }

    fn count_contained(&self, items: Slices) -> usize {
        items.filter(|item| self.check(item)).count()
    }
}
