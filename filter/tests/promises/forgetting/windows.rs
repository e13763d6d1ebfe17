//! Items are remembered until their window is over, and forgotten then.

use std::num::NonZeroU64;
use std::time::Duration;

use models::window::Answer;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{Growth, InsertOptions, OnDuplicate, Window};
use proptest::prelude::*;
use proptest::sample::select;

use crate::forgetting::filters::{EXACT, START, contains, insert, window, windowed};
use crate::forgetting::modelled::{Act, Modelled, acts, windows};
use crate::model::{by, item, through_a_client, through_a_file, whole};

#[test]
fn an_addition_with_refresh_renews_items_of_a_window_without_it() {
    let mut filter = windowed(0.001, 100, Growth::Fixed, window(1000, 4));
    let mut add = |now, refresh| {
        let options = InsertOptions { now, refresh, ..OnDuplicate::Count.into() };
        let (hashes, mut new, mut renewed) = ([filter.hash(&item(1))], [false], [false]);
        filter.insert_hashes(&hashes, &mut new, &mut renewed, &options, &mut |_| true).unwrap();
        (new[0], renewed[0], contains(&filter, 1, now + 1000), contains(&filter, 1, now + 1250))
    };
    assert_eq!(add(START, false), (true, false, true, false));
    assert_eq!(add(START + 500, false), (false, false, false, false));
    assert_eq!(add(START + 500, true), (false, true, true, false));
}

proptest! {
    #[test]
    fn no_item_is_forgotten_before_its_window_is_over((growth, window) in windows(), capacity in 1u64..2000,
                                                 rate in select(vec![0.3, 0.01, 1e-4, EXACT]), acts in acts()) {
        let mut model = Modelled::new(rate, capacity, growth, window);
        let length = window.length.map_or(1000, NonZeroU64::get);
        let mut behind = 0;
        for act in acts {
            match act {
                Act::Add(first, count) => model.add(&(first..first + count).collect::<Vec<_>>(), None),
                Act::AddFor(first, count, share) if window.length.is_some() && !window.rolling => {
                    let lifetime = 1 + share.index(length as usize) as u64;
                    model.add(&(first..first + count).collect::<Vec<_>>(), Some(lifetime));
                }
                Act::AddFor(..) => {}
                Act::Wait(share) => model.now += share.index((length / 2).max(2) as usize) as u64,
                Act::GoBack => behind = length / 3,
                Act::Reload => {
                    let copy = through_a_file(&model.filter);
                    prop_assert_eq!(whole(&copy), whole(&model.filter));
                    prop_assert_eq!(copy.memory_usage(), model.filter.memory_usage());
                    model.filter = copy;
                }
                Act::Copy => {
                    let copy = through_a_client(&model.filter);
                    prop_assert_eq!(whole(&copy), whole(&model.filter));
                    prop_assert_eq!(whole(&model.filter.try_clone().unwrap()), whole(&model.filter));
                    model.filter = copy;
                }
            }
            model.check();
            if behind > 0 {
                // The clock is now before the time of the last change, so the filter's time stands still.
                let before = whole(&model.filter);
                let numbers: Vec<_> = model.model.due().keys().copied().filter(|&number| model.must_remember(number)).collect();
                prop_assert!(numbers.iter().all(|&number| contains(&model.filter, number, model.now - behind)));
                if !window.refresh {
                    let answers = insert(&mut model.filter, &numbers, model.now - behind, None);
                    prop_assert!(answers.iter().all(|answer| *answer == Some(Answer::Present)));
                    prop_assert_eq!(whole(&model.filter), before);
                }
                behind = 0;
            }
        }
    }
}

#[test]
fn renewing_some_items_pushes_no_others_out() {
    let window = Window { rolling: true, refresh: true, ..window(86_400_000, 8) };
    let mut model = Modelled::new(1e-9, 1000, Growth::Fixed, window);
    model.add(&(0..75).collect::<Vec<_>>(), None);
    for round in 0..200 {
        model.now += 40_000;
        model.add(&(1000..1125).collect::<Vec<_>>(), None);
        model.check();
        assert_eq!(model.filter.len_at(model.now), 200, "{round}");
    }
}

/// Otherwise, renewed items would fill the number of slices that a filter can remember.
#[test]
fn slices_that_renewed_items_have_left_are_forgotten() {
    let window = Window { rolling: true, refresh: true, ..window(1000, 4) };
    let mut filter = windowed(EXACT, 20, Growth::Fixed, window);
    for number in 0..205 {
        insert(&mut filter, &[number % 5], START, None);
        let slices = filter.windowed().unwrap().slices();
        assert_eq!(filter.len(), 5.min(number + 1));
        assert!(slices.remembered().len() <= 3, "{:?}", slices.remembered());
    }
}

#[test]
fn renewing_the_items_of_a_full_filter_pushes_no_others_out() {
    let window = Window { rolling: true, refresh: true, ..window(86_400_000, 8) };
    let mut model = Modelled::new(EXACT, 80, Growth::Fixed, window);
    // 80 items, and those of one more slice.
    model.add(&(0..90).collect::<Vec<_>>(), None);
    for number in 0..90 {
        model.now += 1000;
        model.add(&[number], None);
        assert_eq!(model.filter.len_at(model.now), 90, "{number}");
    }
    model.add(&[1000], None);
    assert!(model.filter.len_at(model.now) <= 90);
}

#[test]
fn slices_that_make_room_before_their_time_are_counted() {
    for (window, growth, is_early) in [
        (window(1000, 8), by(2), false),
        (Window { rolling: true, ..window(0, 8) }, Growth::Fixed, false),
        (Window { rolling: true, ..window(1000, 8) }, Growth::Fixed, true),
    ] {
        let mut filter = windowed(EXACT, 80, growth, window);
        insert(&mut filter, &(0..200).collect::<Vec<_>>(), START, None);
        let early = filter.windowed().unwrap().slices().ended_early();
        // 200 items fill 20 slices, and at most 9 of them are remembered.
        assert_eq!(early >= 11, is_early, "{window:?}: {early}");
        assert_eq!(early > 0, is_early, "{window:?}: {early}");
        let last = filter.windowed().unwrap().slices().remembered().last().unwrap().until;
        filter.advance_to(Duration::from_millis(last));
        assert_eq!(filter.windowed().unwrap().slices().ended_early(), early, "{window:?}");
    }
}

#[test]
fn no_item_lives_longer_than_the_window_whatever_a_master_says() {
    let mut filter = windowed(1e-9, 1000, by(2), window(1000, 8));
    for lifetime in [1001, 5000, 1 << 40, u64::MAX] {
        let numbers: Vec<_> = (0..100).map(|number| lifetime.wrapping_add(number * 7919)).collect();
        insert(&mut filter, &numbers, START, Some(lifetime));
        assert!(numbers.iter().all(|&number| contains(&filter, number, START + 999)));
        assert!(!numbers.iter().any(|&number| contains(&filter, number, START + 1130)));
        assert!(whole(&through_a_file(&filter)) == whole(&filter));
    }
}

/// Without its time, the filter would take its next items for old ones.
#[test]
fn a_cleared_filter_keeps_its_time() {
    let minute = Duration::from_secs(60);
    let base = Filter::builder().error_rate(0.01).capacity(500).seed(7);
    for builder in [base.window(minute), base.window(minute).growing(2), base.rolling().window(minute), base.rolling()]
    {
        let (mut filter, mut new) = (builder.build().unwrap(), builder.build().unwrap());
        filter.advance_to(Duration::from_millis(START));
        new.advance_to(Duration::from_millis(START));
        filter.insert_batch((0..300).map(item)).unwrap();
        filter.clear().unwrap();
        assert!(filter == new && filter.is_empty() && !filter.contains(item(0)), "{builder:?}");
        filter.insert_batch((0..300).map(item)).unwrap();
        filter.advance_to(Duration::from_millis(START) + minute - Duration::from_millis(1));
        assert!(filter.contains_batch((0..300).map(item)).into_iter().all(|found| found), "{builder:?}");
        filter.advance_to(Duration::from_millis(START) + 2 * minute);
        let has_window = filter.parameters().window.is_some_and(|window| window.length.is_some());
        assert_eq!(filter.contains_batch((0..300).map(item)), [!has_window; 300], "{builder:?}");
    }
}
