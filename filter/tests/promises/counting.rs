//! Counting filters: an item that was added and not removed is present, whatever else was added or removed.
//!
//! Most tests compare a filter with an exact multiset. They use error rates up to 0.3, since the many false positives
//! of short fingerprints are the hard cases. All tests are deterministic, except for the inputs that proptest draws.

use std::collections::{BTreeMap, VecDeque};

use models::random::Random;
use oxbloom_filter::internals::codec::{self, Header, Origin, chunk};
use oxbloom_filter::internals::{
    BATCH, CountingFilter, CreateParams, Growth, Hash, Interrupted, Kind, Layout, MAX_ITEMS, OnDuplicate,
};
use oxbloom_filter::{DecodeError, Error, Filter};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::model::{self, body, built, by, chunks, insert_batch, item, params, with_checksum};
use crate::rates::{Fresh, Measurement, lookups_for, offer};

/// The maximum number of bytes that these tests allocate for a header, so that they run on small machines.
const MEMORY_LIMIT: u64 = 16 << 20;

fn counting_params(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> CreateParams {
    CreateParams { layout: Layout::Counting { seed }, ..params(error_rate, capacity, growth, seed) }
}

fn counting(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> Filter {
    Filter::create(counting_params(error_rate, capacity, growth, seed), &mut |_| true).unwrap()
}

fn counts(filter: &Filter) -> &CountingFilter {
    filter.counting().expect("a filter that counts")
}

fn remove(filter: &mut Filter, item: &[u8]) -> bool {
    remove_hash(filter, filter.hash(item))
}

fn remove_hash(filter: &mut Filter, hash: Hash) -> bool {
    let mut removed = [false];
    filter.remove_hashes(&[hash], &mut removed).expect("a filter that counts");
    removed[0]
}

fn count(filter: &Filter, item: &[u8]) -> u64 {
    counts(filter).count(filter.hash(item))
}

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
    held: BTreeMap<u64, u64>,
    done: Vec<(Act, u64)>,
}

impl Modelled {
    fn new(params: CreateParams) -> Modelled {
        Modelled { filter: Filter::create(params, &mut |_| true).unwrap(), held: BTreeMap::new(), done: Vec::new() }
    }

    /// Performs an operation on a batch of items, and checks each answer.
    fn act(&mut self, act: Act, numbers: &[u64]) {
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
    fn remove_one(&mut self, choose: impl FnOnce(usize) -> usize) -> Option<u64> {
        let at = (!self.held.is_empty()).then(|| choose(self.held.len()))?;
        let number = self.held.keys().nth(at).copied()?;
        self.act(Act::Remove, &[number]);
        Some(number)
    }

    fn check_one(&self, number: u64) {
        let (occurrences, item) = (self.held.get(&number).copied().unwrap_or(0), item(number));
        let counted = count(&self.filter, &item);
        assert!(counted >= occurrences, "{number}: {counted} of {occurrences}");
        assert_eq!(self.filter.contains(item), counted > 0, "{number}");
    }

    /// Checks all invariants.
    fn check(&self) {
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

/// A way to copy a filter.
type Copying = fn(&Filter) -> Filter;

const COPYING: [Copying; 3] = [
    |filter| filter.try_clone().unwrap(),
    |filter| model::through_a_file(filter),
    |filter| model::through_a_client(filter),
];

#[derive(Clone, Debug)]
enum Step {
    Batch(Act, Vec<u64>),
    /// Removes occurrences of held items.
    Remove(Vec<Index>),
    /// Continues with a copy.
    Copy(Copying),
}

fn any_params() -> impl Strategy<Value = CreateParams> {
    let rate = prop_oneof![Just(0.3), (1e-4f64.log10()..=0.3f64.log10()).prop_map(|exponent| 10f64.powf(exponent))];
    let growth = select(vec![Growth::Fixed, by(1), by(2), by(4)]);
    (rate, 1u64..=50, growth, any::<u64>())
        .prop_map(|(rate, capacity, growth, seed)| counting_params(rate, capacity, growth, seed))
}

/// Returns steps with few items and high counts, or with many items and several doublings.
fn any_steps() -> impl Strategy<Value = Vec<Step>> {
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

fn follow(params: CreateParams, steps: &[Step]) -> Modelled {
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

/// Removes items of `held`, the oldest ones or random ones, and adds fresh ones in their place.
fn churn(filter: &mut Filter, held: &mut VecDeque<Hash>, fresh: &mut Fresh, times: u64, random: &mut Option<Random>) {
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

fn add(filter: &mut Filter, hash: Hash) {
    filter.insert_hashes(&[hash], &mut [false], &mut [], &OnDuplicate::Count.into(), &mut |_| true).unwrap();
}

/// Adds `items` fresh items. Returns them.
fn populate(filter: &mut Filter, items: u64, fresh: &mut Fresh) -> VecDeque<Hash> {
    let hashes = fresh.hashes(filter, items);
    hashes.iter().for_each(|&hash| add(filter, hash));
    hashes.into()
}

/// Measures filters that `fill` fills. Returns a message if there are too many false positives for `rate`.
fn exceeds(
    what: String,
    rate: f64,
    make: impl Fn(u64) -> Filter,
    fill: impl Fn(&mut Filter, &mut Fresh),
) -> Option<String> {
    let items = {
        let mut filter = make(0);
        fill(&mut filter, &mut Fresh::default());
        filter.len()
    };
    let lookups = lookups_for(rate).min(1_000_000);
    let filters = (lookups / items.max(16) / 2).clamp(4, 100);
    Measurement::new(what, make, fill, filters, lookups).exceeds(rate)
}

#[test]
fn a_full_counting_filter_keeps_its_rate() {
    let mut failures = Vec::new();
    for rate in [0.25, 0.05, 0.01, 0.001, 1e-4] {
        for capacity in [1, 10, 100, 1_000, 100_000] {
            for growth in [Growth::Fixed, by(2)] {
                let make = |seed| counting(rate, capacity, growth, seed);
                let fill = |filter: &mut Filter, fresh: &mut Fresh| {
                    offer(filter, filter.capacity(), fresh);
                    assert_eq!(filter.num_layers(), 1);
                };
                failures.extend(exceeds(
                    format!("counting, {growth:?}, rate {rate}, {capacity} items"),
                    rate,
                    make,
                    fill,
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn a_counting_filter_keeps_its_rate_when_it_grows() {
    let mut failures = Vec::new();
    for rate in [0.5, 0.1, 0.01, 0.001, 1e-4] {
        for items in [1, 100, 1_000, 5_000, 50_000, 300_000] {
            let make = |seed| counting(rate, 100, by(2), seed);
            let fill = |filter: &mut Filter, fresh: &mut Fresh| offer(filter, items, fresh);
            let what = format!("counting, rate {rate}, grown to {items}");
            failures.extend(exceeds(what, rate, make, fill));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A full, nearly full or grown filter gets four times as many new items as it holds. Each replaces an old one.
#[test]
fn a_counting_filter_keeps_its_rate_while_items_come_and_go() {
    let mut failures = Vec::new();
    for rate in [0.1, 0.01] {
        for (growth, capacity, population) in [
            (Growth::Fixed, 1_000, 800),
            (by(1), 200, 200),
            (by(1), 200, 600),
            (by(2), 200, 200),
            (by(2), 200, 600),
            (by(2), 1_000, 1_000),
        ] {
            for first_out in [true, false] {
                let make = |seed| counting(rate, capacity, growth, seed);
                let fill = |filter: &mut Filter, fresh: &mut Fresh| {
                    let mut held = populate(filter, population, fresh);
                    let mut random = (!first_out).then_some(Random(held.len() as u64));
                    churn(filter, &mut held, fresh, 4 * population, &mut random);
                };
                let what =
                    format!("counting, rate {rate}, {growth:?}, {population} of {capacity}, first out: {first_out}");
                failures.extend(exceeds(what, rate, make, fill));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn the_estimated_rate_of_a_counting_filter_is_the_measured_one() {
    let mut failures = Vec::new();
    for rate in [0.25, 0.01] {
        for (growth, capacity, population, replaced) in [
            (Growth::Fixed, 1_000, 1_000, 0),
            (Growth::Fixed, 1_000, 500, 2_000),
            (by(2), 1_000, 3_000, 0),
            (by(2), 1_000, 3_000, 9_000),
            (by(1), 500, 2_000, 0),
            (by(1), 500, 2_000, 6_000),
        ] {
            let make = |seed| counting(rate, capacity, growth, seed);
            let mut estimates = Vec::new();
            let fill = |filter: &mut Filter, fresh: &mut Fresh| {
                if replaced == 0 {
                    offer(filter, population, fresh);
                } else {
                    let mut held = populate(filter, population, fresh);
                    churn(filter, &mut held, fresh, replaced, &mut Some(Random(population)));
                }
                estimates.push(filter.false_positive_rate());
            };
            let what =
                format!("counting, rate {rate}, {growth:?} from {capacity}, {population} items, {replaced} replaced");
            let measured = Measurement::new(what, make, fill, 100, 400_000);
            failures.extend(measured.contradicts(&estimates));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A counting filter of fixed size has at most 1.15 times the bits per item of a plain filter at 1 %, and at most as
/// many at 0.1 %. A growing one has at most 1.8 times as many on average.
#[test]
fn the_memory_of_a_counting_filter_stays_within_stated_ratios_to_a_plain_one() {
    for (rate, most) in [(0.01, 1.15), (0.001, 1.0), (1e-4, 1.0)] {
        for items in [10_000, 100_000, 1_000_000] {
            let plain = model::filter(rate, items, Growth::Fixed, 1).memory_usage() as f64;
            let mut filter = counting(rate, items, Growth::Fixed, 1);
            offer(&mut filter, items, &mut Fresh::default());
            let ratio = filter.memory_usage() as f64 / plain;
            println!("fixed, {rate}, {items}: {ratio:.3} of a plain filter");
            assert!(ratio <= most, "{rate} {items}: {ratio}");
        }
        let (mut filter, mut fresh, mut ratios) = (counting(rate, 100, by(2), 1), Fresh::default(), Vec::new());
        for step in 0..20 {
            let items = (10_000.0 * 100f64.powf(f64::from(step) / 19.0)) as u64;
            let missing = items.saturating_sub(filter.len());
            offer(&mut filter, missing, &mut fresh);
            let plain = model::filter(rate, items, Growth::Fixed, 1).memory_usage() as f64;
            ratios.push(filter.memory_usage() as f64 / plain);
        }
        let average = ratios.iter().sum::<f64>() / ratios.len() as f64;
        println!("growing, {rate}: {average:.3} of a plain filter, {ratios:.2?}");
        assert!(average <= 1.8, "{rate}: {average}");
    }
}

/// The largest memory of a filter over some time.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    memory: usize,
}

impl Peak {
    fn look(&mut self, filter: &Filter, held: usize) {
        self.memory = self.memory.max(filter.memory_usage());
        // False positives are not counted, and the count may drift a little.
        let (items, held) = (filter.len() as f64, held as f64);
        assert!(items <= held && items >= held * (1.0 - 2.0 * filter.error_rate()) - 30.0, "{items} of {held}");
    }
}

/// In this test, each added item replaces a removed one, as happens with sessions, leases or recent visitors.
#[test]
fn a_filter_whose_items_come_and_go_stays_as_large_as_it_was() {
    for rate in [0.3, 0.1, 0.01] {
        for (expansion, capacity) in [(1, 200), (2, 200), (2, 20)] {
            for population in [150, 200, 600] {
                for first_out in [true, false] {
                    let mut filter = counting(rate, capacity, by(expansion), population);
                    let (mut fresh, mut random) = (Fresh::default(), (!first_out).then_some(Random(1)));
                    let mut held = populate(&mut filter, population, &mut fresh);
                    let mut halves = [Peak::default(); 2];
                    for peak in &mut halves {
                        for _ in 0..50 * population / 10 {
                            churn(&mut filter, &mut held, &mut fresh, 10, &mut random);
                            peak.look(&filter, held.len());
                        }
                    }
                    let line =
                        format!("{rate}, expansion {expansion} from {capacity}, {population}, {first_out}: {halves:?}");
                    println!("{line}");
                    let [first, second] = halves;
                    assert!(second.memory * 4 <= first.memory * 5, "{line}");
                    while let Some(hash) = held.pop_back() {
                        assert!(remove_hash(&mut filter, hash));
                    }
                    assert_eq!((filter.num_layers(), filter.len(), filter.fill()), (1, 0, 0.0));
                }
            }
        }
    }
}

/// Fails the first allocation of each addition. The filter then holds the same items as before, and the next attempt
/// succeeds.
#[test]
fn a_failed_allocation_loses_nothing() {
    let mut filter = counting(0.01, 100, by(2), 7);
    let mut requests = 0u64;
    for number in 0..20_000 {
        let hash = filter.hash(&item(number));
        let mut rejects = true;
        loop {
            let before = rejects.then(|| (filter.len(), filter.memory_usage()));
            let inserted =
                filter.insert_hashes(&[hash], &mut [false], &mut [], &OnDuplicate::Count.into(), &mut |_bytes| {
                    requests += 1;
                    !rejects
                });
            match inserted {
                Ok(()) => break,
                Err(interrupted) => {
                    assert_eq!(interrupted, Interrupted { handled: 0, error: Error::OutOfMemory });
                    assert_eq!(before.map(|before| before.0), Some(filter.len()));
                    rejects = false;
                }
            }
        }
        if number.is_power_of_two() || number == 19_999 {
            assert!((0..=number).all(|number| filter.contains(item(number))));
        }
    }
    assert!(requests > 150, "{requests}");
    (0..20_000).for_each(|number| assert!(remove(&mut filter, &item(number))));
    assert_eq!((filter.len(), filter.fill()), (0, 0.0));
}

/// Returns a filter that grew, and from which some items were then removed.
fn grown() -> Filter {
    let mut filter = counting(0.01, 100, by(2), 7);
    (0..5_000).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
    (0..5_000).step_by(7).for_each(|number| assert!(remove(&mut filter, &item(number))));
    (0..2_000).for_each(|_| assert!(filter.insert(b"often").is_ok()));
    filter
}

fn decode(bytes: &[u8]) -> Result<Header, DecodeError> {
    // Even from a master, no damaged header is taken for a classic one.
    Header::decode(bytes, Origin::Replication)
}

/// Builds an empty filter from the header of another.
fn built_like(filter: &Filter) -> Filter {
    built(&codec::encode_header(filter).unwrap()).unwrap()
}

/// Loads a chunk that must be rejected and must change nothing. Returns the error.
fn assert_rejected(filter: &mut Filter, (cursor, chunk): &(u64, Vec<u8>), why: &str) -> DecodeError {
    let before = model::whole(filter);
    let answer = model::load(filter, *cursor, chunk);
    assert!(model::whole(filter) == before, "{why}");
    answer.expect_err(why)
}

/// Performs all operations on a filter. Adds items while they take little memory.
fn use_in_every_way(mut filter: Filter) {
    let hashes: Vec<_> = (0..200).map(|number| filter.hash(&item(number))).collect();
    for on_duplicate in [OnDuplicate::Count, OnDuplicate::Skip, OnDuplicate::Count] {
        let mut new = vec![false; hashes.len()];
        let inserted =
            filter.insert_hashes(&hashes, &mut new, &mut [], &on_duplicate.into(), &mut |bytes| bytes < MEMORY_LIMIT);
        let handled = inserted.map_or_else(|interrupted| interrupted.handled, |()| hashes.len());
        let mut found = vec![false; handled];
        filter.contains_hashes(&hashes[..handled], &mut found, 0);
        assert!(found.into_iter().all(|found| found));
        assert!(hashes[..handled].iter().all(|&hash| counts(&filter).count(hash) > 0));
    }
    assert!((0.0..=1.0).contains(&filter.fill()), "{}", filter.fill());
    assert!((0.0..=1.0).contains(&filter.false_positive_rate()), "{}", filter.false_positive_rate());
    let copy = filter.try_clone().unwrap();
    assert!(model::whole(&copy) == model::whole(&filter));
    assert!(model::whole(&model::through_a_file(&filter)) == model::whole(&filter));
    for hash in hashes {
        let there = counts(&filter).contains_at(hash, 0);
        assert_eq!(remove_hash(&mut filter, hash), there);
    }
}

#[test]
fn a_counting_header_that_is_damaged_is_rejected() {
    let header = codec::encode_header(&grown()).unwrap();
    for length in 0..header.len() {
        assert_eq!(decode(&header[..length]).err(), Some(DecodeError::Corrupt), "{length} bytes");
        // The same holds if the checksum is forged.
        assert_eq!(decode(&with_checksum(&header[..length])).is_ok(), length == header.len() - 8, "{length}");
    }
    for bit in 0..header.len() * 8 {
        let mut damaged = header.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn impossible_numbers_of_a_table_are_rejected() {
    const RECORD: usize = 32;
    let number = |value: u64| value.to_le_bytes().to_vec();
    let impossible: &[(&str, usize, Vec<u8>)] = &[
        ("a native filter", 4, vec![0]),
        ("reserved bytes", 5, vec![0, 0, 1]),
        ("a table that grows, in a filter that does not", 8, vec![0; 4]),
        ("no record", 12, vec![0; 4]),
        ("two records", 12, vec![2]),
        ("capacity 0", RECORD, number(0)),
        ("more items than can be counted", RECORD + 16, number(MAX_ITEMS + 1)),
        ("more items than occurrences", RECORD + 16, number(1 << 40)),
        ("slots without items", RECORD + 16, [number(0), number(0)].concat()),
        ("no segments", RECORD + 40, number(0)),
        ("a level in a table that grows", RECORD + 48, vec![12]),
        ("fingerprints without bits", RECORD + 50, vec![0]),
        ("fingerprints of too many bits", RECORD + 50, vec![57]),
        ("a step of lengths at a wrong level", RECORD + 51, vec![13]),
        ("stamps in a filter that does not forget", RECORD + 52, vec![1]),
        ("reserved bytes at the end", RECORD + 55, vec![1]),
        ("a scale in a table that grows", RECORD + 56, number(1)),
    ];
    for (what, at, bytes) in impossible {
        let mut body = body(&grown());
        body[*at..][..bytes.len()].copy_from_slice(bytes);
        assert_eq!(decode(&with_checksum(&body)).err(), Some(DecodeError::Corrupt), "{what}");
    }
    // Plausible numbers pass, whatever the chunks contain.
    let possible: &[(&str, usize, Vec<u8>)] = &[
        ("the maximum number of occurrences", RECORD + 24, number(u64::MAX)),
        ("the maximum number of writes", RECORD + 8, number(u64::MAX)),
        ("other slots", RECORD + 32, number(77)),
        ("other lengths", RECORD + 50, vec![3, 15]),
    ];
    for (what, at, bytes) in possible {
        println!("{what}");
        let mut body = body(&grown());
        body[*at..][..bytes.len()].copy_from_slice(bytes);
        let header = decode(&with_checksum(&body)).unwrap();
        use_in_every_way(header.build().unwrap());
    }
}

/// An edit of a header or a chunk: a byte, or a number that gets a value that is likely to cause failures.
#[derive(Clone, Debug)]
enum Edit {
    Byte(Index, u8),
    Number(Index, u64),
}

impl Edit {
    fn apply(&self, bytes: &mut [u8]) {
        match self {
            Edit::Byte(at, byte) => *at.get_mut(bytes) = *byte,
            Edit::Number(at, value) => {
                at.get_mut(bytes.as_chunks_mut::<8>().0).copy_from_slice(&value.to_le_bytes());
            }
        }
    }
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let edges = [0, 1, 2, 127, 128, 129, 511, 1 << 20, 1 << 32, 1 << 57, 1 << 63, i64::MAX as u64, u64::MAX];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (any::<Index>(), prop_oneof![select(edges.to_vec()), 0u64..5_000])
            .prop_map(|(at, value)| Edit::Number(at, value)),
    ]
}

/// Returns a small filter with counts from 1 to 9. It grows if `growing` is true.
fn small(growing: bool) -> Filter {
    let mut filter = counting(0.3, 150, if growing { by(2) } else { Growth::Fixed }, 7);
    for number in 0..100 {
        (0..number % 9 + 1).for_each(|_| assert!(filter.insert(item(number)).is_ok()));
    }
    filter
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_counting_header_that_was_tampered_with_is_rejected_or_makes_a_sound_filter(
        growing: bool,
        edits in vec(any_edit(), 1..4),
    ) {
        let mut body = body(&small(growing));
        edits.iter().for_each(|edit| edit.apply(&mut body));
        if let Ok(header) = decode(&with_checksum(&body))
            && header.memory() < MEMORY_LIMIT
        {
            let filter = header.build().unwrap();
            if filter.counting().is_some() {
                use_in_every_way(filter);
            }
        }
    }

    #[test]
    fn a_chunk_of_a_table_that_was_damaged_is_rejected(at: Index, xor in 1u8..) {
        let filter = grown();
        let mut copy = built_like(&filter);
        for (cursor, mut chunk) in chunks(&filter) {
            *at.get_mut(&mut chunk) ^= xor;
            prop_assert_eq!(model::load(&mut copy, cursor, &chunk), Err(DecodeError::Corrupt));
        }
        prop_assert_eq!(copy.fill(), 0.0);
    }

    /// A client that forges the checksum of a chunk can add other entries, but cannot break the filter.
    #[test]
    fn a_table_that_was_forged_is_rejected_or_makes_a_sound_filter(growing: bool, edits in vec(any_edit(), 1..5)) {
        let filter = small(growing);
        let mut copy = built_like(&filter);
        for (cursor, mut sealed) in chunks(&filter) {
            let checksum = sealed.len() - 8;
            sealed.truncate(checksum);
            let tag = u64::from_le_bytes(*sealed.last_chunk().unwrap());
            sealed.truncate(checksum - 8);
            edits.iter().for_each(|edit| edit.apply(&mut sealed));
            let end = cursor - chunk::FIRST_CHUNK_CURSOR;
            let forged = chunk::seal(&sealed, end, tag).unwrap();
            let before = model::whole(&copy);
            match model::load(&mut copy, cursor, &forged) {
                Ok(()) => use_in_every_way(copy.try_clone().unwrap()),
                Err(_) => prop_assert!(model::whole(&copy) == before),
            }
        }
    }
}

#[test]
fn chunks_of_a_table_may_arrive_in_any_order_and_more_than_once() {
    let mut filter = counting(0.01, 100, by(2), 7);
    // The table has about 1.3 MB, and therefore three chunks.
    for first in (0..700_000).step_by(BATCH) {
        let hashes: Vec<_> = (first..first + BATCH as u64).map(|number| filter.hash(&item(number))).collect();
        assert!(insert_batch(&mut filter, &hashes, OnDuplicate::Count).into_iter().all(|new| new.is_ok()));
    }
    let header = codec::encode_header(&filter).unwrap();
    let mut chunks = chunks(&filter);
    assert_eq!(chunks.len(), 3);
    for _ in 0..3 {
        chunks.rotate_left(1);
        let mut copy = built(&header).unwrap();
        for (number, (cursor, chunk)) in chunks.iter().chain(&chunks[..1]).enumerate() {
            assert_eq!(model::is_complete(&header, &copy), number == 3);
            model::load(&mut copy, *cursor, chunk).unwrap();
        }
        assert!(model::whole(&copy) == model::whole(&filter));
        assert!((0..700_000).step_by(7).all(|number| copy.contains(item(number))));
    }
    assert!(model::whole(&model::through_a_client(&filter)) == model::whole(&filter));
    assert!(model::whole(&model::through_a_file(&filter)) == model::whole(&filter));
}

/// An operation on a filter.
type Operation = fn(&mut Filter);

/// If such a chunk were accepted, the copy could contain items that the write removed, or lack items that it moved.
#[test]
fn a_chunk_from_before_a_write_is_rejected_after_it() {
    const FIRST: u64 = 1;
    let writes: &[(&str, Operation)] = &[
        ("a new item", |filter| assert_eq!(filter.insert(b"new"), Ok(true))),
        ("another occurrence", |filter| assert_eq!(filter.insert(item(FIRST)), Ok(false))),
        ("a removal", |filter| assert!(remove(filter, &item(FIRST)))),
        ("an addition that is undone", |filter| {
            assert!(filter.insert(b"new").is_ok() && remove(filter, b"new"));
        }),
        ("a removal that is undone", |filter| {
            assert!(remove(filter, &item(FIRST)) && filter.insert(item(FIRST)).is_ok());
        }),
        ("one item for another", |filter| {
            assert!(remove(filter, &item(499)) && filter.insert(b"new").is_ok());
        }),
        ("all items but one", |filter| {
            let removed = (2..5_000).filter(|number| number % 7 > 0);
            removed.for_each(|number| assert!(remove(filter, &item(number)), "{number}"));
        }),
    ];
    for (what, write) in writes {
        let mut source = grown();
        let (mut early, before) = (built_like(&source), chunks(&source));
        let mut whole = model::through_a_client(&source);
        write(&mut source);
        let mut late = built_like(&source);
        // A copy takes chunks from before the write or from after it, but not both.
        for chunk in &before {
            assert_eq!(assert_rejected(&mut late, chunk, what), DecodeError::Foreign);
        }
        for chunk in &chunks(&source) {
            assert_eq!(assert_rejected(&mut early, chunk, what), DecodeError::Foreign);
        }
        for (cursor, chunk) in &before {
            assert_eq!(model::load(&mut early, *cursor, chunk), Ok(()), "{what}");
        }
        assert!(model::whole(&early) == model::whole(&grown()));
        // A filter that was written to is no longer a copy.
        write(&mut whole);
        for chunk in &before {
            assert_rejected(&mut whole, chunk, what);
        }
        assert!(model::whole(&whole) == model::whole(&source), "{what}");
    }

    let questions: &[(&str, Operation)] = &[
        ("a look-up", |filter| assert!(filter.contains(item(FIRST)))),
        ("a present item, only if it is absent", |filter| {
            let hash = filter.hash(&item(FIRST));
            filter.insert_hashes(&[hash], &mut [true], &mut [], &OnDuplicate::Skip.into(), &mut |_| true).unwrap();
        }),
        ("a removal of an absent item", |filter| assert!(!remove(filter, b"absent"))),
    ];
    for (what, question) in questions {
        let mut source = grown();
        let (mut copy, before) = (built_like(&source), chunks(&source));
        question(&mut source);
        assert!(chunks(&source) == before, "{what}");
        for (cursor, chunk) in before {
            assert_eq!(model::load(&mut copy, cursor, &chunk), Ok(()), "{what}");
        }
        assert!(model::whole(&copy) == model::whole(&grown()), "{what}");
    }
}

/// Two copies can diverge and still have equal counts. A filter with chunks of both would lack items.
#[test]
fn a_chunk_of_a_filter_with_the_same_counts_is_rejected() {
    let (mut twin, mut other) = (grown(), grown());
    for (filter, new) in [(&mut twin, b"one  "), (&mut other, b"other")] {
        assert!(remove(filter, &item(1)));
        assert_eq!(filter.insert(new), Ok(true));
    }
    assert_eq!(twin.len(), other.len());
    for (chunk, others) in chunks(&twin).iter().zip(&chunks(&other)) {
        assert_rejected(&mut built_like(&twin), others, "of a copy that diverged");
        assert_rejected(&mut built_like(&other), chunk, "of a copy that diverged");
    }
}

#[test]
fn a_chunk_of_another_counting_filter_or_place_is_rejected() {
    let filter = grown();
    let [mut other, mut alike] = [8, 9].map(|seed| counting(0.01, 100, by(2), seed));
    for filter in [&mut other, &mut alike] {
        (0..90).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
    }
    assert_rejected(&mut built_like(&other), &chunks(&alike)[0], "other seed");
    assert_rejected(&mut built_like(&other), &chunks(&filter)[0], "other table");
    let mut copy = built_like(&filter);
    for (at, chunk) in chunks(&filter) {
        let places = chunk::FIRST_CHUNK_CURSOR..chunk::FIRST_CHUNK_CURSOR + 1_000;
        for cursor in places.chain([0, 1, 64, at - 1, at + 1, u64::MAX, u64::MAX - 63]) {
            assert_rejected(&mut copy, &(cursor, chunk.clone()), "elsewhere");
        }
    }
}

/// A server can save at any time, even between a client's header and its last chunk. Later chunks must then still load.
#[test]
fn a_counting_filter_that_is_still_being_loaded_can_be_saved() {
    let filter = grown();
    let mut partial = built_like(&filter);
    for (cursor, chunk) in chunks(&filter) {
        let copy = model::through_a_file(&partial);
        assert!(model::whole(&copy) == model::whole(&partial));
        partial = copy;
        assert_eq!(model::load(&mut partial, cursor, &chunk), Ok(()));
    }
    assert!(model::whole(&partial) == model::whole(&filter));
}
