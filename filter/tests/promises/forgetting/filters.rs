//! Filters that forget, and operations on single items.

use std::num::NonZeroU64;

use models::window::Answer;
use oxbloom_filter::internals::{Growth, InsertOptions, Interrupted, KindParams, OnDuplicate, Window};
use oxbloom_filter::{Error, Filter};

use crate::model::{create, item, params_of};

/// A time that is not a multiple of the usual lengths of slices.
pub(crate) const START: u64 = 1_600_000_000_123;

/// An error rate at which no item of these tests is a false positive.
pub(crate) const EXACT: f64 = 1e-12;

pub(crate) fn window(length: u64, slices: u8) -> Window {
    Window { length: NonZeroU64::new(length), slices, refresh: false, rolling: false }
}

pub(crate) fn windowed(error_rate: f64, capacity: u64, growth: Growth, window: Window) -> Filter {
    create(params_of(KindParams::Windowed { seed: 7, window }, error_rate, capacity, growth))
}

pub(crate) fn contains(filter: &Filter, number: u64, now: u64) -> bool {
    filter.contains_at(&item(number), now)
}

/// Adds items that arrive in one command. Returns the answer for each, or `None` if the filter is full.
pub(crate) fn insert(filter: &mut Filter, numbers: &[u64], now: u64, lifetime: Option<u64>) -> Vec<Option<Answer>> {
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
