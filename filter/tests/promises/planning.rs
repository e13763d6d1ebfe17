//! Compares predictions with filters that are filled.

use std::time::Duration;

use oxbloom_filter::internals::{InsertOptions, OnDuplicate};
use oxbloom_filter::{Error, Filter, FilterBuilder, Prediction};

use crate::rates::{Fresh, fill_to};

const RATES: [f64; 4] = [0.2, 0.01, 0.001, 1e-6];

fn filled(builder: FilterBuilder, items: u64) -> Filter {
    // A classic filter has no seed.
    let mut filter = builder.seed(7).build().or_else(|_| builder.build()).unwrap();
    fill_to(&mut filter, items, &mut Fresh::default());
    filter
}

/// Panics unless two numbers are close.
fn assert_near(planned: f64, real: f64, tolerance: f64, what: &str) {
    println!("{what}: {planned} planned, {real} real, {:+.2} %", 100.0 * (planned / real - 1.0));
    assert!((planned / real - 1.0).abs() <= tolerance, "{what}: {planned} planned, {real} real");
}

#[test]
fn the_planned_memory_of_arrays_of_bits_is_exact() {
    for rate in RATES {
        for capacity in [1, 10, 100, 300, 1000, 4321, 100_000] {
            let builder = Filter::builder().error_rate(rate).capacity(capacity);
            for builder in [builder, builder.growing(2), builder.classic(), builder.classic().growing(3)] {
                for items in [0, capacity / 2, capacity] {
                    let (plan, filter) = (builder.predict(items).unwrap(), filled(builder, items));
                    assert_eq!(plan.memory, filter.memory_usage() as u64, "{rate} {capacity} {items}");
                    let info = filter.layers().next().unwrap();
                    assert_eq!((plan.probes, plan.is_estimate), (info.probes, false));
                    assert_eq!(plan.shape.map(|shape| shape.blocks_per_item), info.blocks_per_item);
                }
            }
        }
    }
}

#[test]
fn classic_filters_grow_as_planned() {
    for rate in RATES {
        for (expansion, items) in [(1, 5000), (2, 5000), (2, 100_000), (4, 12_345)] {
            let builder = Filter::builder().error_rate(rate).classic().growing(expansion);
            let (plan, filter) = (builder.predict(items).unwrap(), filled(builder, items));
            assert_eq!((plan.memory, plan.is_estimate), (filter.memory_usage() as u64, false));
        }
    }
}

#[test]
fn the_planned_false_positive_rate_is_that_of_the_filter() {
    for rate in RATES {
        let builder = Filter::builder().error_rate(rate).capacity(10_000);
        for (number, (builder, items)) in [
            (builder, 10_000),
            (builder, 4000),
            (builder.classic(), 10_000),
            (builder.classic().growing(1), 20_000),
            (builder.classic().growing(2), 50_000),
            (builder.counting(), 10_000),
            (builder.counting().capacity(70_000), 70_000),
            (builder.counting().growing(2), 50),
            (builder.counting().growing(2), 300_000),
            (builder.growing(2), 300_000),
            (builder.growing(2).capacity(1000), 3000),
            (builder.growing(2).capacity(1000), 3_000_000),
        ]
        .into_iter()
        .enumerate()
        {
            let planned = builder.predict(items).unwrap().false_positive_rate;
            let real = filled(builder, items).false_positive_rate();
            // The filter also has items that were false positives, which are neither counted nor planned for.
            assert_near(planned, real, 0.05 + rate / 2.0, &format!("kind {number} at {rate}"));
        }
    }
}

#[test]
fn the_planned_memory_of_an_empty_filter_is_exact() {
    let builder = Filter::builder().capacity(1000).seed(7);
    let window = builder.window(WINDOW);
    for builder in [builder, builder.counting(), window, builder.rolling(), window.rolling()] {
        let filter = builder.build().unwrap();
        assert_eq!(builder.predict(0).unwrap().memory, filter.memory_usage() as u64, "{builder:?}");
    }
}

/// At a high rate, the sum of the rates of a filter's parts would be much too high.
#[test]
fn the_planned_false_positive_rate_is_hardly_above_the_one_asked_for() {
    let builder = Filter::builder().capacity(1000).growing(2);
    for rate in [0.5, 0.9] {
        let builder = builder.error_rate(rate);
        for builder in [builder, builder.classic(), builder.counting(), builder.window(WINDOW)] {
            let planned = builder.predict(8000).unwrap().false_positive_rate;
            assert!(planned > 0.0 && planned <= 1.05 * rate, "{builder:?}: {planned}");
        }
    }
}

#[test]
fn the_size_of_a_table_is_estimated() {
    const SIZES: [u64; 7] = [3000, 20_000, 65_536, 65_537, 150_000, 700_000, 2_000_000];
    for (rate, items) in RATES.iter().flat_map(|&rate| SIZES.map(|items| (rate, items))) {
        let builder = Filter::builder().error_rate(rate);
        for (name, builder) in [
            ("growing", builder.growing(2)),
            ("counting", builder.counting().capacity(items)),
            ("growing counting", builder.counting().growing(2)),
        ] {
            let plan = builder.predict(items).unwrap();
            assert!(plan.is_estimate);
            let real = filled(builder, items).memory_usage();
            // A small table has few segments, and each of them has one of a few sizes. A counting table stores false
            // positives, and a sample, which lacks the oldest fingerprints, has fewer of them.
            let tolerance = if items < 10_000 || rate > 0.1 { 0.1 } else { 0.05 };
            assert_near(plan.memory as f64, real as f64, tolerance, &format!("{name}, {items} at {rate}"));
        }
    }
}

/// Returns a filter after a steady stream of `items` items per window, for `windows` windows.
fn streamed(builder: FilterBuilder, items: u64, windows: u64) -> Filter {
    const STEPS: u64 = 160;
    let mut filter = builder.seed(7).build().unwrap();
    let mut fresh = Fresh::default();
    for step in 0..windows * STEPS {
        let options = InsertOptions { now: 1_700_000_000_000 + step * 8000 / STEPS, ..OnDuplicate::Count.into() };
        let hashes = fresh.hashes(&filter, items / STEPS);
        let mut new = vec![false; hashes.len()];
        filter.insert_hashes(&hashes, &mut new, &mut [], &options, &mut |_| true).unwrap();
    }
    filter
}

const WINDOW: Duration = Duration::from_secs(8);

#[test]
fn the_size_of_a_filter_that_forgets_is_estimated() {
    for rate in [0.01, 0.001] {
        let builder = Filter::builder().error_rate(rate).slices(8);
        let window = builder.window(WINDOW);
        for (name, builder, items) in [
            ("full", window.capacity(4800), 4800),
            ("full, two slices", window.slices(2).capacity(4800), 4800),
            ("nearly empty", window.capacity(4800), 480),
            ("half full, two slices", window.slices(2).capacity(4800), 2400),
            ("sampled, two slices", window.slices(2).capacity(80_000), 80_000),
            ("growing, two slices", window.slices(2).growing(2).capacity(160), 20_000),
            ("window", window.capacity(160_000), 160_000),
            ("half full", window.capacity(160_000), 80_000),
            ("large", window.capacity(800_000), 800_000),
            ("16 slices", window.slices(16).capacity(160_000), 160_000),
            ("growing", window.growing(2).capacity(1600), 320_000),
            ("growing little", window.growing(2).capacity(160_000), 320_000),
            ("rolling", builder.rolling().capacity(160_000), 160_000),
        ] {
            let (plan, filter) = (builder.predict(items).unwrap(), streamed(builder, items, 4));
            assert!(plan.is_estimate);
            let what = format!("{name} at {rate}");
            let tolerance = if items < 10_000 { 0.1 } else { 0.05 };
            assert_near(plan.memory as f64, filter.memory_usage() as f64, tolerance, &what);
            assert_near(plan.false_positive_rate, filter.false_positive_rate(), 0.03, &what);
        }
    }
    let rolling = Filter::builder().rolling();
    assert_eq!(rolling.predict(1000), rolling.predict(100), "more items than fit push others out");
}

#[test]
fn plans_of_any_size_take_no_memory() {
    let builder = Filter::builder().error_rate(0.01);
    let bits_per_item = |plan: Prediction, items: u64| 8.0 * plan.memory as f64 / items as f64;
    for exponent in 6..=14 {
        let items = 10u64.pow(exponent);
        assert_near(bits_per_item(builder.capacity(items).predict(items).unwrap(), items), 9.68, 0.01, "fixed");
        let grown = bits_per_item(builder.growing(2).predict(items).unwrap(), items);
        assert!((14.0..45.0).contains(&grown), "{grown}");
        // The rate of a table that grows without end approaches the requested one.
        let rate = builder.growing(2).predict(items).unwrap().false_positive_rate;
        assert!((0.0065..=0.01).contains(&rate), "{rate}");
        if exponent <= 10 {
            let counting = builder.counting().capacity(items).predict(items).unwrap();
            assert_near(bits_per_item(counting, items), 10.1, 0.02, "counting");
        }
    }
}

#[test]
fn plans_of_impossible_filters_are_rejected() {
    let builder = Filter::builder().error_rate(0.01).capacity(100);
    assert_eq!(builder.predict(101).err(), Some(Error::Full));
    assert_eq!(builder.counting().predict(101).err(), Some(Error::Full));
    assert_eq!(builder.classic().predict(101).err(), Some(Error::Full));
    assert_eq!(builder.window(Duration::from_secs(1)).predict(101).err(), Some(Error::Full));
    assert_eq!(builder.growing(2).predict(u64::MAX).err(), Some(Error::OutOfMemory));
    assert_eq!(builder.counting().capacity(u64::MAX).predict(1).err(), Some(Error::OutOfMemory));
    assert_eq!(builder.capacity(u64::MAX).predict(1).err(), Some(Error::OutOfMemory));
    let windows = [builder.window(Duration::from_secs(1)), builder.rolling(), builder.rolling().slices(2)];
    for builder in windows.map(|builder| builder.capacity(u64::MAX)) {
        assert_eq!(builder.predict(1).err(), Some(Error::OutOfMemory));
        assert_eq!(builder.build().err(), Some(Error::OutOfMemory));
    }
    assert_eq!(builder.classic().growing(1).predict(u64::MAX).err(), Some(Error::CannotGrow));
    assert_eq!(builder.error_rate(2.0).predict(1).err(), Some(Error::InvalidErrorRate));
}
