//! Filters give the answers of an exact multiset, except for false positives.

use models::random::Random;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{BATCH, Growth, OnDuplicate};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::counting::filters::{COPYING, count, counting, counting_params, remove, remove_hash};
use crate::counting::modelled::{Act, Modelled, any_params, any_steps, follow, perform};
use crate::model::{self, by, insert_batch, item};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn items_that_were_added_and_not_removed_are_found_and_can_be_removed(
        params in any_params(),
        steps in any_steps(),
        order in vec(any::<Index>(), 1..30),
    ) {
        let mut order = order.iter().cycle();
        follow(params, &steps).clear(|held| order.next().map_or(0, |at| at.index(held)));
    }

    /// A replica gets the same items in other batches, or one by one.
    #[test]
    fn the_same_items_in_other_batches_leave_the_same_filter(
        params in any_params(),
        steps in any_steps(),
        sizes in vec(1usize..100, 1..6),
    ) {
        let master = follow(params, &steps);
        let mut replica = Filter::create(params, &mut |_| true).unwrap();
        let (mut rest, mut sizes) = (master.done.as_slice(), sizes.iter().cycle());
        while let (Some(&(act, _)), Some(&size)) = (rest.first(), sizes.next()) {
            let alike = rest.iter().take(size).take_while(|(other, _)| *other == act).count();
            let numbers: Vec<_> = rest[..alike].iter().map(|&(_, number)| number).collect();
            perform(&mut replica, act, &numbers);
            rest = &rest[alike..];
        }
        prop_assert!(model::whole(&replica) == model::whole(&master.filter));
    }

    #[test]
    fn removing_an_absent_item_changes_nothing(
        params in any_params(),
        steps in any_steps(),
        absent in 2_000..u64::MAX / 2,
    ) {
        let mut filter = follow(params, &steps).filter;
        let before = model::whole(&filter);
        for absent in (absent..).take(100).map(item) {
            if !filter.contains(absent) {
                prop_assert!(!remove(&mut filter, &absent));
                prop_assert_eq!(count(&filter, &absent), 0);
            }
        }
        prop_assert!(model::whole(&filter) == before);
    }
}

/// The number of items grows and shrinks, so that segments split and merge. Some items are added many times.
#[test]
fn no_item_is_lost_in_100_000_operations() {
    for (rate, capacity, growth, items) in [
        (0.3, 10, by(1), 200),
        (0.3, 1, by(2), 1_000),
        (0.3, 20, by(4), 20),
        (0.3, 40, Growth::Fixed, 40),
        (0.1, 50, by(1), 1_000),
        (0.01, 30, by(2), 300),
        (1e-4, 10, by(1), 100),
    ] {
        let mut modelled = Modelled::new(counting_params(rate, capacity, growth, 1));
        let mut random = Random(capacity);
        for operation in 0..100_000 {
            let (number, swells) = (random.below(items), operation / 5_000 % 2 == 0);
            let touched = match random.below(10) {
                0 => {
                    modelled.act(Act::AddAbsent, &[number]);
                    Some(number)
                }
                1..=3 => {
                    modelled.act(Act::Add, &[number]);
                    Some(number)
                }
                4 if swells => {
                    modelled.act(Act::Add, &[number, number / 2, number]);
                    Some(number)
                }
                _ => modelled.remove_one(|held| random.below(held as u64) as usize),
            };
            touched.into_iter().for_each(|number| modelled.check_one(number));
            if operation % 500 == 0 {
                modelled.check();
            }
        }
        modelled.clear(|held| random.below(held as u64) as usize);
    }
}

#[test]
fn the_count_of_an_item_is_the_number_of_its_additions() {
    for growth in [Growth::Fixed, by(2)] {
        let mut filter = counting(1e-6, 50, growth, 1);
        (0..20).for_each(|number| assert_eq!(filter.insert(item(number)), Ok(true)));
        let checks = |times: u64| times < 300 || times.is_multiple_of(997);
        for times in 1..=70_000 {
            assert_eq!(filter.insert(b"often"), Ok(times == 1));
            assert!(!checks(times) || count(&filter, b"often") == times, "{times}");
        }
        for copy in COPYING {
            filter = copy(&filter);
            assert_eq!(count(&filter, b"often"), 70_000);
        }
        for times in (0..70_000).rev() {
            assert!(remove(&mut filter, b"often"));
            assert!(!checks(times) || count(&filter, b"often") == times, "{times}");
        }
        assert!(!remove(&mut filter, b"often"));
        assert!((0..20).all(|number| count(&filter, &item(number)) == 1));
    }
}

/// Batches are hashed and prefetched before they are looked up, and the filter may have grown by then.
#[test]
fn a_prefetched_batch_gets_the_same_answers() {
    let (mut filter, mut other) = (counting(0.01, 50, by(1), 1), counting(0.01, 50, by(1), 1));
    let items: Vec<_> = (0..500).map(item).collect();
    for (round, batch) in items.chunks(BATCH).enumerate() {
        let prepared = filter.prepare_batch(batch.iter().map(|item| &item[..]));
        assert!(insert_batch(&mut filter, prepared.hashes(), OnDuplicate::Count).into_iter().all(|new| new.is_ok()));
        batch.iter().for_each(|item| assert!(other.insert(item).is_ok()));
        if round % 2 == 1 {
            let prepared = filter.prepare_batch(batch.iter().map(|item| &item[..]));
            prepared.hashes().iter().for_each(|&hash| assert!(remove_hash(&mut filter, hash)));
            batch.iter().for_each(|item| assert!(remove(&mut other, item)));
        }
        assert!(model::whole(&filter) == model::whole(&other));
    }
}
