//! Folding: a filter that was created too large becomes the one that was created smaller, bit for bit.

use std::num::NonZeroU64;

use oxbloom_filter::internals::{Growth, KindParams, Window};
use oxbloom_filter::{Error, Filter};
use proptest::prelude::*;

use crate::model::{by, chunks, create, filter, item, layer, params_of, through_a_client, through_a_file, whole};
use crate::rates::{Fresh, Measurement, lookups_for, offer};
use crate::recorded;

/// Returns the filter with the same parameters and shape, into which `items` were inserted.
fn created_smaller(folded: &Filter, items: u64) -> Filter {
    let mut smaller = folded.empty_like(&mut |_| true).unwrap();
    smaller.insert_batch((0..items).map(item)).unwrap();
    smaller
}

proptest! {
    #[test]
    fn a_folded_filter_is_the_one_that_was_created_smaller(
        exponent in 0.5..9.0f64, capacity in 1u64..40_000, share in 0u64..=100, wanted in 0u64..40_000, grows: bool, seed: u64,
    ) {
        let growth = if grows { by(2) } else { Growth::Fixed };
        let mut folded = filter(0.1f64.powf(exponent), capacity, growth, seed);
        let items = capacity * share / 100;
        folded.insert_batch((0..items).map(item)).unwrap();
        let (before, whole_before, counted) = (layer(&folded).shape(), whole(&folded), folded.len());
        let factor = folded.fold(wanted).unwrap();
        let after = layer(&folded).shape();
        prop_assert_eq!(after.blocks * factor, before.blocks);
        prop_assert!(folded.capacity() >= counted.max(wanted.min(capacity)) && folded.len() == counted);
        if factor == 1 {
            prop_assert!(whole(&folded) == whole_before);
        }
        let smaller = created_smaller(&folded, items);
        prop_assert_eq!(layer(&folded).bytes(), layer(&smaller).bytes());
        prop_assert_eq!(layer(&folded).set_bits(), layer(&smaller).set_bits());
        prop_assert!(chunks(&folded) == chunks(&smaller));
        prop_assert!((0..items).all(|number| folded.contains(item(number))));
        prop_assert!(through_a_client(&folded) == folded && through_a_file(&folded) == folded);
        // Once more changes nothing, and further items are inserted as into the smaller one.
        let (mut one, mut other) = (folded.try_clone().unwrap(), smaller);
        prop_assert_eq!(one.fold(folded.capacity()).unwrap(), 1);
        for number in (items..items + 50).take_while(|_| folded.len() + 50 <= folded.capacity()) {
            one.insert(item(number)).unwrap();
            other.insert(item(number)).unwrap();
        }
        prop_assert_eq!(layer(&one).bytes(), layer(&other).bytes());
        prop_assert!(one.union_with(&other).is_ok(), "filters of one shape can be merged");
        prop_assert_eq!(layer(&one).bytes(), layer(&other).bytes());
    }
}

#[test]
fn a_filter_is_folded_as_far_as_its_rate_allows() {
    for (rate, capacity) in [(0.01, 10_000_000), (0.001, 30_000_000), (1e-6, 2_000_000), (0.1, 5_000_000)] {
        for growth in [by(2), Growth::Fixed] {
            for divisor in [2, 3, 5, 7, 10, 24, 100] {
                let mut filter = filter(rate, capacity, growth, 1);
                let factor = filter.fold(capacity / divisor).unwrap();
                // The factor divides the number of blocks, which was chosen to have many divisors.
                assert!(
                    factor <= divisor * 5 / 4 && factor * 5 / 4 >= divisor,
                    "{rate} {growth:?}: {factor}, {divisor}"
                );
                assert!(filter.capacity() >= capacity / divisor);
            }
        }
    }
}

#[test]
fn folding_ends_at_one_block_or_where_the_blocks_of_an_item_would_depend_on_their_number() {
    let blocks_of = |rate, capacity| {
        let mut filter = filter(rate, capacity, by(2), 1);
        filter.fold(0).unwrap();
        let shape = layer(&filter).shape();
        assert!(filter.insert("first").unwrap() && filter.contains("first"));
        (shape.blocks, shape.blocks_per_item)
    };
    assert_eq!(blocks_of(0.01, 1_000_000), (1, 1));
    assert_eq!(blocks_of(0.01, 1), (1, 1), "a filter of one block");
    let (blocks, blocks_per_item) = blocks_of(1e-6, 1_000_000);
    assert!(blocks_per_item > 1 && (128..256).contains(&blocks), "{blocks}");
    // Its blocks are too few.
    assert_eq!(filter(1e-6, 100, by(2), 1).fold(0), Ok(1));
    // A prime number of blocks leaves one factor.
    let prime = (2_000..).find(|&capacity| {
        let blocks = layer(&filter(0.01, capacity, by(2), 1)).shape().blocks;
        (2..blocks).all(|divisor| !blocks.is_multiple_of(divisor))
    });
    let mut filter = filter(0.01, prime.unwrap(), by(2), 1);
    let blocks = layer(&filter).shape().blocks;
    assert_eq!((filter.fold(1000), filter.fold(0)), (Ok(1), Ok(blocks)));
}

#[test]
fn a_filter_that_is_full_or_has_grown_stays_as_it_is() {
    for items in [1000, 1001, 5000] {
        let mut filter = filter(0.01, 1000, by(2), 1);
        offer(&mut filter, items, &mut Fresh::default());
        let before = whole(&filter);
        for capacity in [0, 1, 1000, u64::MAX] {
            assert_eq!(filter.fold(capacity), Ok(1));
        }
        assert!(whole(&filter) == before);
    }
}

#[test]
fn only_native_filters_are_folded() {
    for (name, mut filter) in recorded::filters() {
        let before = filter.to_bytes().unwrap();
        let folded = filter.fold(0);
        if name.starts_with("native") && !name.contains("cuckoo") {
            assert!(folded.is_ok(), "{name}");
        } else {
            assert_eq!(folded, Err(Error::CannotFold), "{name}");
            assert_eq!(filter.to_bytes().unwrap(), before, "{name}");
        }
    }
    let window = Window { length: NonZeroU64::new(1000), slices: 4, refresh: false, rolling: false };
    let windowed = KindParams::Windowed { seed: 7, window };
    assert_eq!(create(params_of(windowed, 0.01, 100, by(2))).fold(0), Err(Error::CannotFold));
}

#[test]
fn a_folded_filter_keeps_its_rate_when_it_has_as_many_items_as_it_was_folded_for() {
    let mut failures = Vec::new();
    for (rate, capacity) in [(0.05, 100_000), (0.01, 1_000_000), (0.001, 300_000), (1e-4, 300_000)] {
        for (growth, items) in [(Growth::Fixed, capacity / 17), (by(2), capacity / 6)] {
            let make = |seed| filter(rate, capacity, growth, seed);
            // Half of the items before the fold, and half after it.
            let fill = |filter: &mut Filter, fresh: &mut Fresh| {
                offer(filter, items / 2, fresh);
                assert!(filter.fold(items).unwrap() > 4);
                offer(filter, items - items / 2, fresh);
                assert_eq!(filter.num_layers(), 1);
            };
            let lookups = lookups_for(rate);
            let what = format!("folded, {growth:?}, rate {rate}, capacity {capacity}");
            failures.extend(Measurement::new(what, make, fill, (lookups / items).max(4), lookups).exceeds(rate));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
