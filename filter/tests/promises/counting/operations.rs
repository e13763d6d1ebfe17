//! Filters give the answers of an exact multiset, except for false positives.

use models::counting::CountingModel;
use models::random::Random;
use oxbloom_filter::internals::{BATCH, CreateParams, Growth, OnDuplicate};
use oxbloom_filter::{Error, Filter};

use crate::counting::filters::{COPYING, count, counting, counting_params, counts, remove, remove_hash};
use crate::model::{self, by, create, insert_batch, item};

/// An operation on a filter. Items are numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    /// Adds an occurrence.
    Add,
    /// Adds an item if it is absent.
    AddAbsent,
    /// Removes an occurrence.
    Remove,
}

/// A filter, the multiset that it holds, and the operations so far.
struct Modelled {
    filter: Filter,
    held: CountingModel<u64>,
    done: Vec<(Act, u64)>,
}

impl Modelled {
    fn new(params: CreateParams) -> Modelled {
        Modelled { filter: create(params), held: CountingModel::default(), done: Vec::new() }
    }

    /// Performs an operation on a batch of items, and checks each answer.
    fn act(&mut self, act: Act, numbers: &[u64]) {
        self.done.extend(numbers.iter().map(|&number| (act, number)));
        for (&number, answer) in numbers.iter().zip(perform(&mut self.filter, act, numbers)) {
            let held = self.held.count(&number);
            match (act, answer) {
                (Act::Remove, removed) => {
                    assert_eq!(removed, Ok(true), "{number} is held {held} times");
                    self.held.remove(&number);
                }
                (_, Err(error)) => assert_eq!((error, self.filter.expansion(), held), (Error::Full, None, 0)),
                (_, Ok(true)) if held > 0 => panic!("{number} was missing, but is held {held} times"),
                (Act::Add, _) | (_, Ok(true)) => self.held.add(number),
                // The item was there, or is a false positive.
                (Act::AddAbsent, Ok(false)) => {}
            }
        }
    }

    /// Removes an occurrence of one of the held items. Returns the item, or `None` if the filter is empty.
    fn remove_one(&mut self, choose: impl FnOnce(usize) -> usize) -> Option<u64> {
        let at = (!self.held.is_empty()).then(|| choose(self.held.items().len()))?;
        let number = self.held.items().nth(at).copied()?;
        self.act(Act::Remove, &[number]);
        Some(number)
    }

    fn check_one(&self, number: u64) {
        let (occurrences, item) = (self.held.count(&number), item(number));
        let counted = count(&self.filter, &item);
        assert!(counted >= occurrences, "{number}: {counted} of {occurrences}");
        assert_eq!(self.filter.contains(item), counted > 0, "{number}");
    }

    /// Checks all invariants.
    fn check(&self) {
        self.held.items().for_each(|&number| self.check_one(number));
        let hashes: Vec<_> = self.held.items().map(|&number| self.filter.hash(&item(number))).collect();
        let mut found = vec![false; hashes.len()];
        self.filter.contains_hashes(&hashes, &mut found, 0);
        assert!(found.into_iter().all(|found| found));
        let mut all = vec![u64::MAX; hashes.len()];
        self.filter.count_hashes(&hashes, &mut all).unwrap();
        assert!(hashes.iter().zip(all).all(|(&hash, counted)| counted == counts(&self.filter).table().count(hash)));
        let (table, occurrences) = (counts(&self.filter).table(), self.held.occurrences().count() as u64);
        assert_eq!(table.occurrences(), occurrences);
        assert!(self.filter.len() <= self.held.items().len() as u64 && self.filter.len() <= self.filter.capacity());
        assert_eq!(table.slots() == 0, occurrences == 0);
    }

    /// Removes all held items. Checks that the filter is then like a new one.
    fn clear(&mut self, mut choose: impl FnMut(usize) -> usize) {
        while self.remove_one(&mut choose).is_some() {}
        assert_eq!((self.filter.num_layers(), self.filter.len()), (1, 0));
        assert_eq!((self.filter.fill(), self.filter.false_positive_rate()), (0.0, 0.0));
        let empty = self.filter.empty_like(&mut |_| true).unwrap();
        assert_eq!(self.filter.memory_usage(), empty.memory_usage());
    }
}

/// Performs an operation on a batch of items. Returns the answer for each item.
fn perform(filter: &mut Filter, act: Act, numbers: &[u64]) -> Vec<Result<bool, Error>> {
    let hashes: Vec<_> = numbers.iter().map(|&number| filter.hash(&item(number))).collect();
    match act {
        Act::Add => insert_batch(filter, &hashes, OnDuplicate::Count),
        Act::AddAbsent => insert_batch(filter, &hashes, OnDuplicate::Skip),
        Act::Remove => hashes.into_iter().map(|hash| Ok(remove_hash(filter, hash))).collect(),
    }
}

/// Returns a filter after this many random operations on items below `items`. Their number grows and shrinks, so that
/// segments split and merge. Some items are added many times, and now and then a copy takes the place of the filter.
fn exercised(params: CreateParams, items: u64, operations: usize) -> Modelled {
    let mut modelled = Modelled::new(params);
    let mut random = Random(params.capacity.get());
    for operation in 0..operations {
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
            let batch: Vec<_> = (0..random.below(60)).map(|_| random.below(items)).collect();
            modelled.act(if random.chance(50) { Act::Add } else { Act::AddAbsent }, &batch);
            let copy = random.one_of(&COPYING)(&modelled.filter);
            assert!(model::whole(&copy) == model::whole(&modelled.filter));
            modelled.filter = copy;
            modelled.check();
        }
    }
    modelled
}

/// Parameters, and the number of different items.
const CASES: [(f64, u64, Growth, u64); 7] = [
    (0.3, 10, by(1), 200),
    (0.3, 1, by(2), 1_000),
    (0.3, 20, by(4), 20),
    (0.3, 40, Growth::Fixed, 40),
    (0.1, 50, by(1), 1_000),
    (0.01, 30, by(2), 300),
    (1e-4, 10, by(1), 100),
];

#[test]
fn items_that_were_added_and_not_removed_are_found_and_can_be_removed() {
    for (rate, capacity, growth, items) in CASES {
        let mut random = Random(items);
        let mut modelled = exercised(counting_params(rate, capacity, growth, 1), items, 100_000);
        modelled.clear(|held| random.below(held as u64) as usize);
    }
}

/// A replica gets the same items in other batches, or one by one.
#[test]
fn the_same_items_in_other_batches_leave_the_same_filter() {
    for (rate, capacity, growth, items) in CASES {
        let params = counting_params(rate, capacity, growth, 2);
        let (master, mut replica, mut random) = (exercised(params, items, 20_000), create(params), Random(items));
        let mut rest = master.done.as_slice();
        while let Some(&(act, _)) = rest.first() {
            let most = 1 + random.below(100) as usize;
            let alike = rest.iter().take(most).take_while(|(other, _)| *other == act).count();
            let numbers: Vec<_> = rest[..alike].iter().map(|&(_, number)| number).collect();
            perform(&mut replica, act, &numbers);
            rest = &rest[alike..];
        }
        assert!(model::whole(&replica) == model::whole(&master.filter));
    }
}

#[test]
fn removing_an_absent_item_changes_nothing() {
    for (rate, capacity, growth, items) in CASES {
        let mut filter = exercised(counting_params(rate, capacity, growth, 3), items, 7_000).filter;
        let before = model::whole(&filter);
        for absent in (1 << 40..(1 << 40) + 1000).map(item) {
            if !filter.contains(absent) {
                assert!(!remove(&mut filter, &absent));
                assert_eq!(count(&filter, &absent), 0);
            }
        }
        assert!(model::whole(&filter) == before);
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
