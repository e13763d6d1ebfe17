//! Folding: a filter that was created too large becomes the one that was created smaller, bit for bit.

use std::num::NonZeroU64;

use oxbloom_filter::internals::{Growth, KindParams, MergeOp, Window};
use oxbloom_filter::{Error, Filter, MergeError, Mismatch};
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

/// Returns copies of `filters`, folded to the size of `smallest`.
fn folded_like(smallest: &Filter, filters: &[&Filter]) -> Vec<Filter> {
    let mut folded: Vec<Filter> = filters.iter().map(|filter| filter.try_clone().unwrap()).collect();
    for filter in &mut folded {
        filter.fold(layer(smallest).spec().capacity).unwrap();
        assert_eq!(layer(filter).spec(), layer(smallest).spec());
    }
    folded
}

/// Returns the merge into a new filter, and into the first of the filters.
fn merges(filters: &[&Filter], operation: MergeOp) -> [Result<Filter, MergeError>; 2] {
    let mut target = filters[0].try_clone().unwrap();
    let merged = target.merge(&filters[1..], operation, &mut |_| true);
    [Filter::merged(filters, operation, &mut |_| true), merged.map(|_| target)]
}

proptest! {
    #[test]
    fn a_merge_is_that_of_filters_that_were_folded_to_the_smallest(
        exponent in 0.5..7.0f64, capacity in 1u64..40_000, divisors in [2u64..40, 2u64..9], grows: bool, seed: u64,
        operands in prop::collection::vec((0usize..3, 0u64..=100, 0u64..30_000), 2..=3), overfull in 0u64..100,
    ) {
        // Each size is a multiple of the next.
        let growth = if grows { by(2) } else { Growth::Fixed };
        let mut sizes = vec![filter(0.1f64.powf(exponent), capacity, growth, seed)];
        for divisor in divisors {
            let mut smaller = sizes.last().unwrap().try_clone().unwrap();
            smaller.fold(smaller.capacity() / divisor).unwrap();
            sizes.push(smaller);
        }
        let last = operands.iter().map(|(size, ..)| *size).max().unwrap();
        let most = layer(&sizes[last]).spec().capacity;
        let mut model = Vec::new();
        let filters = operands.iter().map(|&(size, share, first)| {
            let mut filter = sizes[size].try_clone().unwrap();
            // The smallest may also have grown.
            let has_more = grows && layer(&filter).spec() == layer(&sizes[last]).spec();
            let items = first..first + most * share / 100 + if has_more { overfull } else { 0 };
            filter.insert_batch(items.clone().map(item)).unwrap();
            model.push(items);
            filter
        });
        let filters: Vec<Filter> = filters.collect();
        let mut order: Vec<&Filter> = filters.iter().collect();
        for _ in 0..2 {
            let folded = folded_like(&sizes[last], &order);
            for operation in [MergeOp::Union, MergeOp::Intersection] {
                let expected = merges(&folded.iter().collect::<Vec<_>>(), operation);
                for (merged, expected) in merges(&order, operation).into_iter().zip(expected) {
                    let (merged, expected) = match (merged, expected) {
                        (Ok(merged), Ok(expected)) => (merged, expected),
                        (merged, expected) => {
                            prop_assert_eq!(merged.map(drop), expected.map(drop));
                            continue;
                        }
                    };
                    prop_assert!(whole(&merged) == whole(&expected));
                    prop_assert_eq!(layer(&merged).set_bits(), layer(&expected).set_bits());
                    prop_assert!(through_a_file(&merged) == merged);
                    let is_expected = |number: u64| match operation {
                        MergeOp::Union => true,
                        MergeOp::Intersection => model.iter().all(|items| items.contains(&number)),
                    };
                    let mut items = model.iter().cloned().flatten().filter(|&number| is_expected(number));
                    prop_assert!(items.all(|number| merged.contains(item(number))));
                }
            }
            order.reverse();
        }
    }
}

/// Returns an empty filter of a million items, folded to room for the part of them.
fn part_of_a_million(divisor: u64) -> Filter {
    let mut part = filter(0.01, 1_000_000, by(2), 1);
    assert_eq!(part.fold(1_000_000 / divisor), Ok(divisor));
    part
}

#[test]
fn a_merge_folds_a_filter_only_if_it_keeps_its_rate_and_its_size_is_a_multiple_of_the_smallest() {
    let capacity_of = |filter: &Filter| layer(filter).spec().capacity;
    let [whole_size, half, third, sixth] = [1, 2, 3, 6].map(part_of_a_million);
    let [mut fits, mut is_full] = [(); 2].map(|()| whole_size.try_clone().unwrap());
    // As many blocks, which are for fewer items.
    let close = filter(0.01, 999_990, by(2), 1);
    assert_eq!(layer(&close).shape(), layer(&whole_size).shape());
    let mut has_grown = close.try_clone().unwrap();
    offer(&mut fits, capacity_of(&sixth), &mut Fresh::default());
    offer(&mut is_full, capacity_of(&sixth) + 1, &mut Fresh::default());
    offer(&mut has_grown, 1_050_000, &mut Fresh::default());
    assert_eq!(has_grown.num_layers(), 2);
    let differ = Err(MergeError::SourcesDiffer(Mismatch::Capacity));
    for operation in [MergeOp::Union, MergeOp::Intersection] {
        for (filters, expected) in [
            (&[&fits, &sixth][..], Ok(())),
            (&[&sixth, &fits], Ok(())),
            (&[&half, &third, &sixth], Ok(())),
            (&[&is_full, &sixth], differ),
            (&[&sixth, &fits, &is_full], differ),
            (&[&sixth, &has_grown], differ),
            (&[&whole_size, &has_grown], differ),
            (&[&half, &third], differ),
            (&[&whole_size, &half, &third], differ),
        ] {
            assert_eq!(merges(filters, operation).map(|merged| merged.map(drop)), [expected, expected]);
        }
    }
    // The blocks of both hold a million items at the error rate.
    for filters in [[&close, &whole_size], [&whole_size, &close]] {
        let merged = merges(&filters, MergeOp::Union);
        assert!(merged.iter().all(|merged| capacity_of(merged.as_ref().unwrap()) == 1_000_000));
    }
}

#[test]
fn a_merge_takes_the_memory_of_the_smallest_filter_and_changes_nothing_without_it() {
    let [mut large, mut small] = [1, 6].map(part_of_a_million);
    offer(&mut large, 1000, &mut Fresh::default());
    let before = whole(&large);
    let [bytes, smallest] = [&large, &small].map(|filter| layer(filter).bytes().len() as u64);
    assert_eq!((large.replaced_by_merge(&[&small]), small.replaced_by_merge(&[&large])), (bytes - smallest, 0));
    for admits in [false, true] {
        let mut asked = Vec::new();
        let merged = Filter::merged(&[&large, &small], MergeOp::Union, &mut |bytes| {
            asked.push(bytes);
            admits
        });
        assert_eq!((merged.is_ok(), asked), (admits, vec![smallest]));
    }
    // Without memory for the table of the smallest, the larger one is not folded either.
    let mut grown = small.try_clone().unwrap();
    offer(&mut grown, small.capacity() + 1000, &mut Fresh::default());
    let rejected = large.merge(&[&grown], MergeOp::Union, &mut |_| false);
    assert_eq!(rejected, Err(MergeError::OutOfMemory));
    assert!(whole(&large) == before);
    assert_eq!(small.union_with(&large.empty_like(&mut |_| true).unwrap()), Ok(false));
    assert_eq!(large.merge(&[&small], MergeOp::Union, &mut |_| panic!("it shrinks")), Ok(true));
    assert_eq!(layer(&large).bytes().len() as u64, smallest);
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
