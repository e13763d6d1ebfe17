//! The false-positive rates of filters that are full, grow, or replace their items.

use models::random::Random;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::Growth;

use crate::counting::filters::{churn, counting, populate};
use crate::model::by;
use crate::rates::{Fresh, Measurement, lookups_for, offer};

/// Measures filters that `fill` fills. Returns a message if there are too many false positives for `rate`.
fn exceeds(
    what: String,
    rate: f64,
    make: impl Fn(u64) -> Filter,
    fill: impl Fn(&mut Filter, &mut Fresh),
) -> Option<String> {
    let items = {
        let mut filter = make(0);
        fill(&mut filter, &mut Fresh::default());
        filter.len()
    };
    let lookups = lookups_for(rate).min(1_000_000);
    let filters = (lookups / items.max(16) / 2).clamp(4, 100);
    Measurement::new(what, make, fill, filters, lookups).exceeds(rate)
}

#[test]
fn a_counting_filter_keeps_its_rate_when_it_grows() {
    let mut failures = Vec::new();
    for rate in [0.5, 0.1, 0.01, 0.001, 1e-4] {
        for items in [1, 100, 1_000, 5_000, 50_000, 300_000] {
            let make = |seed| counting(rate, 100, by(2), seed);
            let fill = |filter: &mut Filter, fresh: &mut Fresh| offer(filter, items, fresh);
            let what = format!("counting, rate {rate}, grown to {items}");
            failures.extend(exceeds(what, rate, make, fill));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A full, nearly full or grown filter gets four times as many new items as it holds. Each replaces an old one.
#[test]
fn a_counting_filter_keeps_its_rate_while_items_come_and_go() {
    let mut failures = Vec::new();
    for rate in [0.1, 0.01] {
        for (growth, capacity, population) in [
            (Growth::Fixed, 1_000, 800),
            (by(1), 200, 200),
            (by(1), 200, 600),
            (by(2), 200, 200),
            (by(2), 200, 600),
            (by(2), 1_000, 1_000),
        ] {
            for first_out in [true, false] {
                let make = |seed| counting(rate, capacity, growth, seed);
                let fill = |filter: &mut Filter, fresh: &mut Fresh| {
                    let mut held = populate(filter, population, fresh);
                    let mut random = (!first_out).then_some(Random(held.len() as u64));
                    churn(filter, &mut held, fresh, 4 * population, &mut random);
                };
                let what =
                    format!("counting, rate {rate}, {growth:?}, {population} of {capacity}, first out: {first_out}");
                failures.extend(exceeds(what, rate, make, fill));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn the_estimated_rate_of_a_counting_filter_is_the_measured_one() {
    let mut failures = Vec::new();
    for rate in [0.25, 0.01] {
        for (growth, capacity, population, replaced) in [
            (Growth::Fixed, 1_000, 1_000, 0),
            (Growth::Fixed, 1_000, 500, 2_000),
            (by(2), 1_000, 3_000, 0),
            (by(2), 1_000, 3_000, 9_000),
            (by(1), 500, 2_000, 0),
            (by(1), 500, 2_000, 6_000),
        ] {
            let make = |seed| counting(rate, capacity, growth, seed);
            let mut estimates = Vec::new();
            let fill = |filter: &mut Filter, fresh: &mut Fresh| {
                if replaced == 0 {
                    offer(filter, population, fresh);
                } else {
                    let mut held = populate(filter, population, fresh);
                    churn(filter, &mut held, fresh, replaced, &mut Some(Random(population)));
                }
                estimates.push(filter.false_positive_rate());
            };
            let what =
                format!("counting, rate {rate}, {growth:?} from {capacity}, {population} items, {replaced} replaced");
            let measured = Measurement::new(what, make, fill, 100, 400_000);
            failures.extend(measured.contradicts(&estimates));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}
