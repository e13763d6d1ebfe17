//! Filters with the time until which they must remember each item.

use std::num::NonZeroU64;

use models::window::{Due, Rules, WindowModel};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::limits::MAX_LENGTH;
use oxbloom_filter::internals::{Growth, Window};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::forgetting::filters::{EXACT, START, contains, insert, window, windowed};
use crate::model::{by, item};

/// A filter that forgets, and a model of its content.
pub(crate) struct Modelled {
    pub filter: Filter,
    window: Window,
    pub now: u64,
    pub model: WindowModel,
    capacity: u64,
}

impl Modelled {
    pub(crate) fn new(error_rate: f64, capacity: u64, growth: Growth, window: Window) -> Modelled {
        let filter = windowed(error_rate, capacity, growth, window);
        let Window { refresh, rolling, .. } = window;
        let model = WindowModel::new(Rules { capacity, has_window: window.length.is_some(), refresh, rolling });
        Modelled { filter, window, now: START, model, capacity }
    }

    fn slice(&self) -> u64 {
        self.window.length.map_or(0, |length| length.get().div_ceil(self.window.slices.into()))
    }

    /// Adds items that arrive in one command. Checks that no item that must be remembered is new.
    pub(crate) fn add(&mut self, numbers: &[u64], lifetime: Option<u64>) {
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

    pub(crate) fn must_remember(&self, number: u64) -> bool {
        self.model.must_remember(number, self.now)
    }

    pub(crate) fn check(&self) {
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
pub(crate) enum Act {
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

pub(crate) fn acts() -> impl Strategy<Value = Vec<Act>> {
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

pub(crate) fn windows() -> impl Strategy<Value = (Growth, Window)> {
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
