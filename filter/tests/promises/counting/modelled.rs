//! Filters with the exact multisets that they hold, and steps that proptest draws.

use std::collections::BTreeMap;

use oxbloom_filter::internals::{CreateParams, Growth, OnDuplicate};
use oxbloom_filter::{Error, Filter};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::counting::filters::{COPYING, Copying, count, counting_params, counts, remove_hash};
use crate::model::{self, by, insert_batch, item};

/// An operation on a filter. Items are numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Act {
    /// Adds an occurrence.
    Add,
    /// Adds an item if it is absent.
    AddAbsent,
    /// Removes an occurrence.
    Remove,
}

/// A filter, the multiset that it holds, and the operations so far.
pub(crate) struct Modelled {
    pub filter: Filter,
    held: BTreeMap<u64, u64>,
    pub done: Vec<(Act, u64)>,
}

impl Modelled {
    pub(crate) fn new(params: CreateParams) -> Modelled {
        Modelled { filter: Filter::create(params, &mut |_| true).unwrap(), held: BTreeMap::new(), done: Vec::new() }
    }

    /// Performs an operation on a batch of items, and checks each answer.
    pub(crate) fn act(&mut self, act: Act, numbers: &[u64]) {
        self.done.extend(numbers.iter().map(|&number| (act, number)));
        for (&number, answer) in numbers.iter().zip(perform(&mut self.filter, act, numbers)) {
            let held = self.held.get(&number).copied().unwrap_or(0);
            let now = match (act, answer) {
                (Act::Remove, removed) => {
                    assert_eq!(removed, Ok(true), "{number} is held {held} times");
                    held - 1
                }
                (_, Err(error)) => {
                    assert_eq!((error, self.filter.expansion(), held), (Error::Full, None, 0));
                    0
                }
                (_, Ok(new)) if new && held > 0 => panic!("{number} was missing, but is held {held} times"),
                (Act::Add, Ok(_)) => held + 1,
                // A false positive is not added.
                (Act::AddAbsent, Ok(new)) => held + u64::from(new),
            };
            if now > 0 {
                self.held.insert(number, now);
            } else {
                self.held.remove(&number);
            }
        }
    }

    /// Removes an occurrence of one of the held items. Returns the item, or `None` if the filter is empty.
    pub(crate) fn remove_one(&mut self, choose: impl FnOnce(usize) -> usize) -> Option<u64> {
        let at = (!self.held.is_empty()).then(|| choose(self.held.len()))?;
        let number = self.held.keys().nth(at).copied()?;
        self.act(Act::Remove, &[number]);
        Some(number)
    }

    pub(crate) fn check_one(&self, number: u64) {
        let (occurrences, item) = (self.held.get(&number).copied().unwrap_or(0), item(number));
        let counted = count(&self.filter, &item);
        assert!(counted >= occurrences, "{number}: {counted} of {occurrences}");
        assert_eq!(self.filter.contains(item), counted > 0, "{number}");
    }

    /// Checks all invariants.
    pub(crate) fn check(&self) {
        self.held.keys().for_each(|&number| self.check_one(number));
        let hashes: Vec<_> = self.held.keys().map(|&number| self.filter.hash(&item(number))).collect();
        let mut found = vec![false; hashes.len()];
        self.filter.contains_hashes(&hashes, &mut found, 0);
        assert!(found.into_iter().all(|found| found));
        let mut all = vec![u64::MAX; hashes.len()];
        self.filter.count_hashes(&hashes, &mut all).unwrap();
        assert!(hashes.iter().zip(all).all(|(&hash, counted)| counted == counts(&self.filter).count(hash)));
        let (table, occurrences) = (counts(&self.filter).table(), self.held.values().sum::<u64>());
        assert_eq!(table.occurrences(), occurrences);
        assert!(self.filter.len() <= self.held.len() as u64 && self.filter.len() <= self.filter.capacity());
        assert_eq!(table.slots() == 0, occurrences == 0);
    }

    /// Removes all held items. Checks that the filter is then like a new one.
    pub(crate) fn clear(&mut self, mut choose: impl FnMut(usize) -> usize) {
        while self.remove_one(&mut choose).is_some() {}
        assert_eq!((self.filter.num_layers(), self.filter.len()), (1, 0));
        assert_eq!((self.filter.fill(), self.filter.false_positive_rate()), (0.0, 0.0));
        let empty = self.filter.empty_like(&mut |_| true).unwrap();
        assert_eq!(self.filter.memory_usage(), empty.memory_usage());
    }
}

/// Performs an operation on a batch of items. Returns the answer for each item.
pub(crate) fn perform(filter: &mut Filter, act: Act, numbers: &[u64]) -> Vec<Result<bool, Error>> {
    let hashes: Vec<_> = numbers.iter().map(|&number| filter.hash(&item(number))).collect();
    match act {
        Act::Add => insert_batch(filter, &hashes, OnDuplicate::Count),
        Act::AddAbsent => insert_batch(filter, &hashes, OnDuplicate::Skip),
        Act::Remove => hashes.into_iter().map(|hash| Ok(remove_hash(filter, hash))).collect(),
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Batch(Act, Vec<u64>),
    /// Removes occurrences of held items.
    Remove(Vec<Index>),
    /// Continues with a copy.
    Copy(Copying),
}

pub(crate) fn any_params() -> impl Strategy<Value = CreateParams> {
    let rate = prop_oneof![Just(0.3), (1e-4f64.log10()..=0.3f64.log10()).prop_map(|exponent| 10f64.powf(exponent))];
    let growth = select(vec![Growth::Fixed, by(1), by(2), by(4)]);
    (rate, 1u64..=50, growth, any::<u64>())
        .prop_map(|(rate, capacity, growth, seed)| counting_params(rate, capacity, growth, seed))
}

/// Returns steps with few items and high counts, or with many items and several doublings.
pub(crate) fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    select(vec![3u64, 40, 2_000]).prop_flat_map(|items| {
        let numbers = || prop_oneof![vec(0..items, 1..3), vec(0..items, 1..60)];
        let removed = prop_oneof![vec(any::<Index>(), 1..3), vec(any::<Index>(), 1..60)];
        let step = prop_oneof![
            4 => numbers().prop_map(|numbers| Step::Batch(Act::Add, numbers)),
            2 => numbers().prop_map(|numbers| Step::Batch(Act::AddAbsent, numbers)),
            5 => removed.prop_map(Step::Remove),
            1 => select(COPYING.to_vec()).prop_map(Step::Copy),
        ];
        vec(step, 1..60)
    })
}

pub(crate) fn follow(params: CreateParams, steps: &[Step]) -> Modelled {
    let mut modelled = Modelled::new(params);
    for step in steps {
        match step {
            Step::Batch(act, numbers) => modelled.act(*act, numbers),
            Step::Remove(items) => items.iter().for_each(|at| {
                modelled.remove_one(|held| at.index(held));
            }),
            Step::Copy(copy) => {
                let copy = copy(&modelled.filter);
                assert!(model::whole(&copy) == model::whole(&modelled.filter));
                modelled.filter = copy;
            }
        }
        modelled.check();
    }
    modelled
}
