//! Filters that forget: they remember items for as long as they must, and then forget them.
//!
//! A model holds, for every item, the time until which the filter must remember it. All tests are deterministic, except
//! for the inputs that proptest draws.

use std::num::NonZeroU64;
use std::time::Duration;

use models::window::{Answer, Due, Rules, WindowModel};
use oxbloom_filter::internals::codec::{self, Header, Origin};
use oxbloom_filter::internals::{
    CreateParams, Growth, InsertOptions, Interrupted, Layout, MAX_LENGTH, OnDuplicate, Window,
};
use oxbloom_filter::{Error, Filter, MergeError};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::model::{body, by, item, params, through_a_client, through_a_file, whole, with_checksum};

/// A time that is not a multiple of the usual lengths of slices.
const START: u64 = 1_600_000_000_123;

fn window(length: u64, slices: u8) -> Window {
    Window { length: NonZeroU64::new(length), slices, refresh: false, rolling: false }
}

fn windowed(error_rate: f64, capacity: u64, growth: Growth, window: Window) -> Filter {
    let layout = Layout::Windowed { seed: 7, window };
    Filter::create(CreateParams { layout, ..params(error_rate, capacity, growth, 7) }, &mut |_| true).unwrap()
}

fn contains(filter: &Filter, number: u64, now: u64) -> bool {
    filter.contains_at(&item(number), now)
}

/// An error rate at which no item of these tests is a false positive.
const EXACT: f64 = 1e-12;

/// Adds items that arrive in one command. Returns the answer for each, or `None` if the filter is full.
fn insert(filter: &mut Filter, numbers: &[u64], now: u64, lifetime: Option<u64>) -> Vec<Option<Answer>> {
    let hashes: Vec<_> = numbers.iter().map(|&number| filter.hash(&item(number))).collect();
    let options = InsertOptions { now, lifetime: lifetime.and_then(NonZeroU64::new), ..OnDuplicate::Count.into() };
    let (mut answers, mut rest) = (Vec::new(), &hashes[..]);
    while !rest.is_empty() {
        let (mut new, mut renewed) = (vec![false; rest.len()], vec![false; rest.len()]);
        let inserted = filter.insert_hashes(rest, &mut new, &mut renewed, &options, &mut |_| true);
        let handled = match inserted {
            Ok(()) => rest.len(),
            Err(Interrupted { handled, error }) => {
                // Only a forged filter has no slice for another item.
                assert!(matches!(error, Error::Full | Error::CannotGrow));
                handled
            }
        };
        answers.extend(new.iter().zip(&renewed).take(handled).map(|(new, renewed)| match (new, renewed) {
            (true, false) => Some(Answer::New),
            (false, true) => Some(Answer::Renewed),
            (false, false) => Some(Answer::Present),
            (true, true) => panic!("new and renewed"),
        }));
        answers.extend(inserted.is_err().then_some(None));
        rest = rest.get(handled + 1..).unwrap_or_default();
    }
    answers
}

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

/// A filter that forgets, and a model of its content.
struct Modelled {
    filter: Filter,
    window: Window,
    now: u64,
    model: WindowModel,
    capacity: u64,
}

impl Modelled {
    fn new(error_rate: f64, capacity: u64, growth: Growth, window: Window) -> Modelled {
        let filter = windowed(error_rate, capacity, growth, window);
        let Window { refresh, rolling, .. } = window;
        let model = WindowModel::new(Rules { capacity, has_window: window.length.is_some(), refresh, rolling });
        Modelled { filter, window, now: START, model, capacity }
    }

    fn slice(&self) -> u64 {
        self.window.length.map_or(0, |length| length.get().div_ceil(self.window.slices.into()))
    }

    /// Adds items that arrive in one command. Checks that no item that must be remembered is new.
    fn add(&mut self, numbers: &[u64], lifetime: Option<u64>) {
        let there = || self.model.due().values().filter(|due| due.until + self.slice() + 1 > self.now).count();
        let is_crowded = self.window.rolling && there() + numbers.len() > self.capacity as usize;
        let answers = insert(&mut self.filter, numbers, self.now, lifetime);
        if is_crowded {
            self.model.crowd();
        }
        for (&number, answer) in numbers.iter().zip(answers) {
            let Some(answer) = answer else {
                assert!(self.filter.expansion().is_none() && !self.window.rolling);
                assert!(!self.must_remember(number));
                continue;
            };
            // In a rolling filter, later items of the command may have pushed this item out.
            assert!(self.window.rolling || contains(&self.filter, number, self.now), "{number} is missing: {answer:?}");
            let until = self.now + lifetime.or(self.window.length.map(NonZeroU64::get)).unwrap_or(0);
            self.model.add(number, answer, [self.now, until], lifetime.is_some());
        }
        if is_crowded {
            self.model.settle();
        }
    }

    fn must_remember(&self, number: u64) -> bool {
        self.model.must_remember(number, self.now)
    }

    fn check(&self) {
        for (&number, due) in self.model.due() {
            assert!(
                !self.must_remember(number) || contains(&self.filter, number, self.now),
                "{number}: {due:?} at {}",
                self.now
            );
        }
        let items = self.filter.len_at(self.now);
        let is_held = |due: &Due| self.window.length.is_none() || due.until + self.slice() > self.now;
        assert!(items <= self.model.due().values().filter(|due| is_held(due)).count() as u64);
        if self.filter.error_rate() <= EXACT {
            for (&number, due) in self.model.due().iter().filter(|(_, due)| !is_held(due)) {
                assert!(!contains(&self.filter, number, self.now), "{number}: {due:?} is found at {}", self.now);
            }
        }
        if self.window.rolling {
            assert!(items <= self.window.room_for(self.capacity));
        }
        let mut found = vec![false; self.model.due().len()];
        let hashes: Vec<_> = self.model.due().keys().map(|&number| self.filter.hash(&item(number))).collect();
        self.filter.contains_hashes(&hashes, &mut found, self.now);
        assert!(
            self.model
                .due()
                .keys()
                .zip(found)
                .all(|(&number, found)| found == contains(&self.filter, number, self.now))
        );
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// Adds items from a range.
    Add(u64, u64),
    /// Adds items with a lifetime that is a share of the window.
    AddFor(u64, u64, Index),
    /// Advances the clock by up to half a window.
    Wait(Index),
    /// Looks up and adds items at an earlier time, once.
    GoBack,
    Reload,
    Copy,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let range = (0u64..4000, 1u64..600);
    let act = prop_oneof![
        6 => range.clone().prop_map(|(first, count)| Act::Add(first, count)),
        1 => (range, any::<Index>()).prop_map(|((first, count), share)| Act::AddFor(first, count, share)),
        6 => any::<Index>().prop_map(Act::Wait),
        1 => Just(Act::GoBack),
        1 => Just(Act::Reload),
        1 => Just(Act::Copy),
    ];
    vec(act, 1..60)
}

fn windows() -> impl Strategy<Value = (Growth, Window)> {
    let slices = prop_oneof![2 => 2u8..=16, 1 => 17u8..=64];
    let length = select(vec![1, 7, 1000, 60_000, 604_800_000, MAX_LENGTH]);
    let growth = select(vec![Growth::Fixed, by(2)]);
    prop_oneof![
        4 => (growth, length.clone(), slices.clone(), any::<bool>())
            .prop_map(|(growth, length, slices, refresh)| (growth, Window { refresh, ..window(length, slices) })),
        1 => slices.clone().prop_map(|slices| (Growth::Fixed, Window { rolling: true, ..window(0, slices) })),
        2 => (length, slices, any::<bool>()).prop_map(|(length, slices, refresh)| {
            (Growth::Fixed, Window { refresh, rolling: true, ..window(length, slices) })
        }),
    ]
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

/// The maximum number of bytes that these tests allocate for a header.
const MEMORY_LIMIT: u64 = 16 << 20;

#[test]
fn a_filter_that_forgets_grows_and_shrinks_through_many_doublings() {
    // At 0.4, fingerprints are so short that many entries become void, and match every item of their quotients.
    for (rate, refresh) in [(0.4, true), (0.01, false)] {
        let length = 64_000;
        let mut model = Modelled::new(rate, 10, by(2), Window { refresh, ..window(length, 8) });
        for step in 0..40 {
            model.now += length / 40;
            model.add(&(step * 5_000..step * 5_000 + 6_000).collect::<Vec<_>>(), None);
        }
        model.check();
        let grown = model.filter.memory_usage();
        assert!(grown > 100_000, "{grown}");
        let copy = through_a_file(&model.filter);
        assert_eq!((whole(&copy), copy.memory_usage()), (whole(&model.filter), grown));
        // After all items are forgotten, additions free the memory step by step.
        model.now += 2 * length;
        let mut left = grown;
        for number in 0..20_000 {
            model.now += length / 8;
            model.add(&[1_000_000 + number], None);
            left = left.min(model.filter.memory_usage());
        }
        model.check();
        assert!(left < 2000 && model.filter.num_layers() == 1, "{left} of {grown}, {}", model.filter.num_layers());
    }
}

/// A failed addition changes no answer. The next addition has the same effect on a replica, and a saved file is valid.
#[test]
fn a_failed_allocation_changes_no_answer() {
    for (growth, rolling) in [(Growth::Fixed, false), (by(2), false), (Growth::Fixed, true)] {
        for rejected in 0..60 {
            let window = Window { rolling, refresh: rejected % 2 == 0, ..window(1000, 4) };
            let mut model = Modelled::new(0.05, 300, growth, window);
            let (mut requests, mut replica) = (0, model.filter.try_clone().unwrap());
            for step in 0..60 {
                model.now += 50;
                for number in step * 20..step * 20 + 20 {
                    let hashes = [model.filter.hash(&item(number))];
                    let options = InsertOptions { now: model.now, ..OnDuplicate::Count.into() };
                    let before = model.filter.try_clone().unwrap();
                    let inserted =
                        model.filter.insert_hashes(&hashes, &mut [false], &mut [], &options, &mut |_bytes| {
                            requests += 1;
                            requests - 1 != rejected
                        });
                    match inserted {
                        Ok(()) => {
                            let changed = whole(&model.filter) != whole(&before);
                            model.filter = before;
                            model.add(&[number], None);
                            if changed {
                                insert(&mut replica, &[number], model.filter.time_of_change(), None);
                                assert!(
                                    whole(&replica) == whole(&model.filter),
                                    "{growth:?} {rolling} {rejected}: {number}"
                                );
                            }
                        }
                        Err(Interrupted { error: Error::Full, .. }) => assert!(growth == Growth::Fixed && !rolling),
                        Err(Interrupted { error, .. }) => {
                            assert_eq!(error, Error::OutOfMemory);
                            assert!(whole(&through_a_file(&model.filter)) == whole(&model.filter));
                        }
                    }
                }
                model.check();
            }
        }
    }
}

#[test]
fn every_accepted_header_gives_a_working_filter() {
    for window in
        [window(1000, 8), Window { rolling: true, ..window(1000, 3) }, Window { rolling: true, ..window(0, 8) }]
    {
        let mut filter = windowed(0.01, 100, if window.rolling { Growth::Fixed } else { by(2) }, window);
        insert(&mut filter, &(0..300).collect::<Vec<_>>(), START, None);
        let sound = body(&filter);
        for at in 0..sound.len() {
            for value in [0, 1, 2, 7, 64, 127, 128, 254, 255, sound[at] ^ 1, sound[at].wrapping_add(1)] {
                let mut header = sound.clone();
                header[at] = value;
                let header = with_checksum(&header);
                let Ok(header) = Header::decode(&header, Origin::Client) else { continue };
                if header.memory() > MEMORY_LIMIT {
                    continue;
                }
                let mut filter = header.build().unwrap();
                for now in [0, START, START + 500, START + 100_000, u64::MAX] {
                    let answers = insert(&mut filter, &(0..20).collect::<Vec<_>>(), now, None);
                    let there = |number: u64| contains(&filter, number, now) || window.rolling;
                    assert!((0..20).all(|number| answers[number as usize].is_none() || there(number)), "{at} {value}");
                    filter.false_positive_rate_at(now);
                    filter.layers().for_each(drop);
                }
                let copy = through_a_file(&filter);
                assert_eq!(whole(&copy), whole(&filter), "{at} {value}");
                // These chunks may be rejected, but must not cause a panic.
                for (cursor, data) in crate::model::chunks(&filter) {
                    let mut other = header.build().unwrap();
                    let _ = codec::load_chunk(&mut other, cursor, &data, Origin::Client, &mut |_| true);
                }
            }
        }
    }
}

/// A header without its checksum, and the offsets of its fields with the times of slices.
struct Times {
    body: Vec<u8>,
    forgotten: usize,
    latest: usize,
    /// The offset of the time when each slice is forgotten.
    ends: Vec<usize>,
    is_rolling: bool,
}

impl Times {
    fn of(filter: &Filter) -> Times {
        let (body, latest) = (body(filter), filter.time_of_change().to_le_bytes());
        let latest = body.windows(8).position(|field| field == latest).expect("the time of the last change");
        let slices = filter.windowed().expect("a filter that forgets").slices();
        let ends = (0..slices.remembered().len()).map(|slice| latest + 32 + 24 * slice).collect();
        Times { body, forgotten: latest - 8, latest, ends, is_rolling: slices.window().rolling }
    }

    fn get(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.body[at..].first_chunk().unwrap())
    }

    fn set(&mut self, at: usize, number: u64) {
        self.body[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }

    /// Moves all times by a number of slices.
    fn shift(&mut self, slices: i64, length: u64) {
        for at in self.ends.iter().copied().chain([self.latest]).collect::<Vec<_>>() {
            self.set(at, self.get(at).wrapping_add_signed(slices * length as i64));
        }
        // A slice of a rolling filter also ends when it is full, so the numbers of slices do not depend on the time.
        if !self.is_rolling {
            self.set(self.forgotten, self.get(self.forgotten).wrapping_add_signed(slices));
        }
    }

    fn load(&self) -> Option<Filter> {
        Header::decode(&with_checksum(&self.body), Origin::Client).ok().map(|header| header.build().unwrap())
    }
}

#[test]
fn slices_in_the_past_and_in_the_future_load_and_those_that_are_out_of_order_do_not() {
    for window in [window(1000, 8), Window { rolling: true, ..window(1000, 8) }] {
        let mut filter = windowed(EXACT, 1000, Growth::Fixed, window);
        for step in 0..8 {
            insert(&mut filter, &(step * 10..step * 10 + 10).collect::<Vec<_>>(), START + step * 125, None);
        }
        let (items, now) = (filter.len(), filter.time_of_change());
        let edited = |edit: &dyn Fn(&mut Times)| {
            let mut times = Times::of(&filter);
            edit(&mut times);
            times.load()
        };
        assert_eq!(edited(&|_| ()).expect("an unchanged header").len_at(now), items);
        let unsound: [&dyn Fn(&mut Times); 6] = [
            &|times| {
                let (one, other) = (times.get(times.ends[1]), times.get(times.ends[2]));
                times.set(times.ends[1], other);
                times.set(times.ends[2], one);
            },
            &|times| times.set(times.ends[7], u64::MAX),
            &|times| times.set(times.ends[7], times.get(times.ends[7]) + 100_000),
            &|times| times.set(times.ends[0], times.get(times.ends[7]) + 1),
            &|times| times.set(times.latest, times.get(times.latest) - 100_000),
            &|times| times.set(times.latest, u64::MAX),
        ];
        for (number, edit) in unsound.into_iter().enumerate() {
            assert!(edited(edit).is_none(), "{window:?}, edit {number}");
        }
        // Items in past slices are forgotten. If slices are in the future, the filter's time stands still, and nothing
        // is forgotten.
        for (slices, expected) in [(-1_000_000, 0), (-20, 0), (20, items), (1_000_000_000, items)] {
            let mut shifted = edited(&|times| times.shift(slices, 125)).expect("slices in order");
            assert_eq!(shifted.len_at(now), expected, "{window:?} {slices}");
            assert_eq!(insert(&mut shifted, &[1000], now, None), [Some(Answer::New)]);
            assert!(contains(&shifted, 1000, now) && contains(&shifted, 1000, now + 999), "{window:?} {slices}");
            assert!(whole(&through_a_file(&shifted)) == whole(&shifted));
        }
    }
}

#[test]
fn filters_that_forget_are_not_merged() {
    let mut one = windowed(0.01, 100, by(2), window(1000, 8));
    insert(&mut one, &[1, 2, 3], START, None);
    let (mut other, before) = (one.try_clone().unwrap(), whole(&one));
    assert_eq!(one.union_with(&other), Err(MergeError::MergedWindows));
    assert_eq!(one.intersect_with(&other), Err(MergeError::MergedWindows));
    let mut plain = Filter::builder().capacity(100).growing(2).seed(7).build().unwrap();
    assert_eq!(plain.union_with(&one), Err(MergeError::MergedWindows));
    assert_eq!(other.union_with(&plain), Err(MergeError::MergedWindows));
    assert_eq!(whole(&one), before);
    assert_eq!(one.remove(item(1)), Err(Error::NotCounting));
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

#[test]
fn a_second_table_is_freed_when_its_items_are_forgotten() {
    let mut model = Modelled::new(0.01, 100, by(2), window(1000, 8));
    model.add(&(0..150).collect::<Vec<_>>(), None);
    assert_eq!(model.filter.num_layers(), 2);
    for number in 1000..1300 {
        model.now += 100;
        model.add(&[number], None);
    }
    model.check();
    assert_eq!(model.filter.num_layers(), 1);
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
    }
}
