//! Counting filters, and operations on single items.

use std::collections::VecDeque;

use models::random::Random;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{
    AnyFilter, CountingFilter, CreateParams, Growth, Hash, KindParams, OnDuplicate, codec,
};

use crate::model::{self, built, by, create, item, params_of};
use crate::rates::Fresh;

pub(crate) fn counting_params(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> CreateParams {
    params_of(KindParams::Counting { seed }, error_rate, capacity, growth)
}

pub(crate) fn counting(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> Filter {
    create(counting_params(error_rate, capacity, growth, seed))
}

pub(crate) fn counts(filter: &Filter) -> &CountingFilter {
    let AnyFilter::Counting(filter) = filter.by_kind() else { panic!("a filter that counts") };
    filter
}

pub(crate) fn remove(filter: &mut Filter, item: &[u8]) -> bool {
    remove_hash(filter, filter.hash(item))
}

pub(crate) fn remove_hash(filter: &mut Filter, hash: Hash) -> bool {
    let mut removed = [false];
    filter.remove_hashes(&[hash], &mut removed).expect("a filter that counts");
    removed[0]
}

pub(crate) fn count(filter: &Filter, item: &[u8]) -> u64 {
    filter.count(item).expect("a filter that counts")
}

fn add(filter: &mut Filter, hash: Hash) {
    filter.insert_hashes(&[hash], &mut [false], &mut [], &OnDuplicate::Count.into(), &mut |_| true).unwrap();
}

/// Adds `items` fresh items. Returns them.
pub(crate) fn populate(filter: &mut Filter, items: u64, fresh: &mut Fresh) -> VecDeque<Hash> {
    let hashes = fresh.hashes(filter, items);
    hashes.iter().for_each(|&hash| add(filter, hash));
    hashes.into()
}

/// Removes items of `held`, the oldest ones or random ones, and adds fresh ones in their place.
pub(crate) fn churn(
    filter: &mut Filter,
    held: &mut VecDeque<Hash>,
    fresh: &mut Fresh,
    times: u64,
    random: &mut Option<Random>,
) {
    for hash in fresh.hashes(filter, times) {
        if let Some(random) = random {
            let at = random.below(held.len() as u64) as usize;
            held.swap(0, at);
        }
        let gone = held.pop_front().unwrap();
        assert!(remove_hash(filter, gone));
        add(filter, hash);
        held.push_back(hash);
    }
}

/// A way to copy a filter.
pub(crate) type Copying = fn(&Filter) -> Filter;

pub(crate) const COPYING: [Copying; 3] = [
    |filter| filter.try_clone().unwrap(),
    |filter| model::through_a_file(filter),
    |filter| model::through_a_client(filter),
];

/// Returns a filter that grew, and from which some items were then removed.
pub(crate) fn grown() -> Filter {
    let mut filter = counting(0.01, 100, by(2), 7);
    (0..5_000).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
    (0..5_000).step_by(7).for_each(|number| assert!(remove(&mut filter, &item(number))));
    (0..2_000).for_each(|_| assert!(filter.insert(b"often").is_ok()));
    filter
}

/// Builds an empty filter from the header of another.
pub(crate) fn built_like(filter: &Filter) -> Filter {
    built(&codec::encode_header(filter).unwrap()).unwrap()
}
