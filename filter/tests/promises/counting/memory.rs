//! The memory of a filter, at its peak too, and allocations that fail.

use models::random::Random;
use oxbloom_filter::internals::Growth;

use crate::counting::filters::{churn, counting, populate, remove_hash};
use crate::model::{self, by};
use crate::rates::{Fresh, offer};

/// A counting filter of fixed size has at most 1.15 times the bits per item of a plain filter at 1 %, and at most as
/// many at 0.1 %. A growing one has at most 1.8 times as many on average.
#[test]
fn the_memory_of_a_counting_filter_stays_within_stated_ratios_to_a_plain_one() {
    for (rate, most) in [(0.01, 1.15), (0.001, 1.0), (1e-4, 1.0)] {
        for items in [10_000, 100_000, 1_000_000] {
            let plain = model::filter(rate, items, Growth::Fixed, 1).memory_usage() as f64;
            let mut filter = counting(rate, items, Growth::Fixed, 1);
            offer(&mut filter, items, &mut Fresh::default());
            let ratio = filter.memory_usage() as f64 / plain;
            println!("fixed, {rate}, {items}: {ratio:.3} of a plain filter");
            assert!(ratio <= most, "{rate} {items}: {ratio}");
        }
        let (mut filter, mut fresh, mut ratios) = (counting(rate, 100, by(2), 1), Fresh::default(), Vec::new());
        for step in 0..20 {
            let items = (10_000.0 * 100f64.powf(f64::from(step) / 19.0)) as u64;
            let missing = items.saturating_sub(filter.len());
            offer(&mut filter, missing, &mut fresh);
            let plain = model::filter(rate, items, Growth::Fixed, 1).memory_usage() as f64;
            ratios.push(filter.memory_usage() as f64 / plain);
        }
        let average = ratios.iter().sum::<f64>() / ratios.len() as f64;
        println!("growing, {rate}: {average:.3} of a plain filter, {ratios:.2?}");
        assert!(average <= 1.8, "{rate}: {average}");
    }
}

/// In this test, each added item replaces a removed one, as happens with sessions, leases or recent visitors.
#[test]
fn a_filter_whose_items_come_and_go_stays_as_large_as_it_was() {
    for rate in [0.3, 0.1, 0.01] {
        for (expansion, capacity) in [(1, 200), (2, 200), (2, 20)] {
            for population in [150, 200, 600] {
                for first_out in [true, false] {
                    let mut filter = counting(rate, capacity, by(expansion), population);
                    let (mut fresh, mut random) = (Fresh::default(), (!first_out).then_some(Random(1)));
                    let mut held = populate(&mut filter, population, &mut fresh);
                    let mut peaks = [0; 2];
                    for peak in &mut peaks {
                        for _ in 0..50 * population / 10 {
                            churn(&mut filter, &mut held, &mut fresh, 10, &mut random);
                            *peak = filter.memory_usage().max(*peak);
                            // False positives are not counted, and the count may drift a little.
                            let (items, held) = (filter.len() as f64, held.len() as f64);
                            assert!(items <= held && items >= held * (1.0 - 2.0 * rate) - 30.0, "{items} of {held}");
                        }
                    }
                    let case = format!("{rate}, expansion {expansion} from {capacity}, {population}, {first_out}");
                    assert!(peaks[1] * 4 <= peaks[0] * 5, "{case}: {peaks:?}");
                    while let Some(hash) = held.pop_back() {
                        assert!(remove_hash(&mut filter, hash));
                    }
                    assert_eq!((filter.num_layers(), filter.len(), filter.fill()), (1, 0, 0.0));
                }
            }
        }
    }
}
