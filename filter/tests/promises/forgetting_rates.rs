//! Measures the false-positive rates and the memory of filters that forget. [`rates`](crate::rates) explains the bound.

use oxbloom_filter::Filter;
use oxbloom_filter::internals::{Growth, InsertOptions, KindParams, OnDuplicate, Window};

use crate::model::{by, create, params_of};
use crate::rates::{Fresh, Measurement, lookups_for, most_by_chance};

/// The length of all windows here, in milliseconds, and the start time.
const LENGTH: u64 = 3_600_000;
const START: u64 = 1_600_000_000_123;

fn windowed(error_rate: f64, capacity: u64, growth: Growth, window: Window, seed: u64) -> Filter {
    create(params_of(KindParams::Windowed { seed, window }, error_rate, capacity, growth))
}

fn window(slices: u8, refresh: bool) -> Window {
    Window { length: LENGTH.try_into().ok(), slices, refresh, rolling: false }
}

/// Adds `items` fresh items at the time `now`, as far as they fit.
fn add(filter: &mut Filter, fresh: &mut Fresh, items: u64, now: u64) {
    let options = InsertOptions { now, ..OnDuplicate::Count.into() };
    let hashes = fresh.hashes(filter, items);
    let _ = filter.insert_hashes(&hashes, &mut vec![false; hashes.len()], &mut [], &options, &mut |_| true);
}

/// Adds fresh items at a steady rate for a number of windows. Returns the time at the end.
fn stream(filter: &mut Filter, fresh: &mut Fresh, per_window: u64, windows: u64, start: u64) -> u64 {
    const STEPS: u64 = 160;
    for step in 0..windows * STEPS {
        add(filter, fresh, per_window / STEPS, start + step * LENGTH / STEPS);
    }
    start + windows * LENGTH
}

type Scenario = (&'static str, fn(&mut Filter, &mut Fresh, u64));

/// The histories of the measured filters. The last argument is the number of items per window.
const SCENARIOS: [Scenario; 7] = [
    ("a stream that just began", |filter, fresh, capacity| {
        stream(filter, fresh, capacity, 1, START);
    }),
    ("a steady stream", |filter, fresh, capacity| {
        stream(filter, fresh, capacity, 3, START);
    }),
    ("a burst", |filter, fresh, capacity| add(filter, fresh, capacity, START)),
    ("bursts in each window", |filter, fresh, capacity| {
        (0..5).for_each(|burst| add(filter, fresh, capacity, START + burst * (LENGTH + LENGTH / 2)));
    }),
    ("a stream after an idle time", |filter, fresh, capacity| {
        let end = stream(filter, fresh, capacity, 2, START);
        stream(filter, fresh, capacity / 2, 1, end + LENGTH / 2);
    }),
    ("a stream of items that come again", |filter, fresh, capacity| {
        for step in 0..480 {
            let (per_step, now) = (capacity / 160, START + step * LENGTH / 160);
            add(filter, fresh, per_step, now);
            let mut again = Fresh::starting_at(fresh.drawn().saturating_sub(20 * per_step));
            add(filter, &mut again, per_step, now);
        }
    }),
    ("a stream after a flood", |filter, fresh, capacity| {
        add(filter, fresh, 10 * capacity, START);
        stream(filter, fresh, capacity, 2, START + LENGTH / 4);
    }),
];

#[test]
fn the_error_rate_holds_after_every_history() {
    const CAPACITY: u64 = 16_000;
    let mut failures = Vec::new();
    for rate in [0.01, 0.001] {
        for slices in [2, 4, 8, 16] {
            for (growth, window) in [
                (Growth::Fixed, window(slices, false)),
                (by(2), window(slices, true)),
                (Growth::Fixed, Window { rolling: true, ..window(slices, true) }),
                (Growth::Fixed, Window { length: None, rolling: true, ..window(slices, false) }),
            ] {
                for (name, scenario) in SCENARIOS {
                    let what = format!("{name}: rate {rate}, {growth:?}, {window:?}");
                    let make = |seed| windowed(rate, CAPACITY, growth, window, seed);
                    let fill = |filter: &mut Filter, fresh: &mut Fresh| scenario(filter, fresh, CAPACITY);
                    failures.extend(Measurement::new(what, make, fill, 6, lookups_for(rate)).exceeds(rate));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Returns the rows of the table in docs/forgetting.md: the number of slices, and the bits of an item at 1 % and 0.1 %.
fn rows_of_the_page() -> Vec<(u8, [f64; 2])> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/forgetting.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let row = |line: &str| {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        let slices = cells.next()?.split(' ').next()?.parse().ok()?;
        let bits: Vec<f64> = cells.skip(1).filter_map(|cell| cell.parse().ok()).collect();
        Some((slices, bits.try_into().ok()?))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn an_item_takes_as_many_bits_as_the_page_says() {
    const CAPACITY: u64 = 400_000;
    const STEPS_OF_SLICE: u64 = 12;
    let rows = rows_of_the_page();
    assert_eq!(rows.iter().map(|(slices, _)| *slices).collect::<Vec<_>>(), [3, 7, 8, 15, 31, 63]);
    let mut wrong = Vec::new();
    for (slices, stated) in rows {
        let steps = STEPS_OF_SLICE * u64::from(slices);
        for (rate, stated) in [0.01, 0.001].into_iter().zip(stated) {
            let mut filter = windowed(rate, CAPACITY, by(2), window(slices, false), 7);
            let (mut fresh, mut most) = (Fresh::default(), 0);
            for step in 0..3 * steps {
                add(&mut filter, &mut fresh, CAPACITY / steps, START + step * LENGTH / steps);
                most = most.max(filter.memory_usage());
            }
            let bits = most as f64 * 8.0 / CAPACITY as f64;
            println!(
                "{slices} slices at {rate}: {bits:.2} bits an item, {stated} stated, {} layers",
                filter.num_layers()
            );
            wrong.extend(((bits - stated).abs() > 0.1).then(|| format!("{slices} slices at {rate}: {bits:.2}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn forgotten_items_are_false_positives_no_more_often_than_new_ones() {
    const ITEMS: u64 = 50_000;
    for (rate, slices, refresh) in [(0.01, 8, false), (0.001, 2, true), (0.1, 64, false)] {
        for capacity in [ITEMS, ITEMS / 50] {
            let mut filter = windowed(rate, capacity, by(2), window(slices, refresh), 7);
            let mut fresh = Fresh::default();
            stream(&mut filter, &mut fresh, ITEMS, 4, START);
            // The first two of the four windows are forgotten, with any number of slices.
            let old = Fresh::default().hashes(&filter, 2 * ITEMS);
            let mut found = vec![false; old.len()];
            filter.contains_hashes(&old, &mut found, 0);
            let wrong = found.into_iter().filter(|&found| found).count() as f64;
            let limit = most_by_chance(rate, old.len() as f64);
            assert!(
                wrong <= limit,
                "{rate}, {slices} slices, capacity {capacity}: {wrong} of {}, limit {limit}",
                old.len()
            );
            let estimate = filter.false_positive_rate();
            assert!(estimate <= rate && estimate > rate / 10.0, "{rate}: {estimate}");
        }
    }
}
