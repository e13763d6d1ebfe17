//! Filters that count: what was added and not removed is there, whatever else came and went.
//!
//! Most tests compare a filter with a multiset of what it holds, and use error rates as high as 0.3: the more items a layer
//! claims that it does not hold, the more often an item could be looked for in the wrong one. Nothing is left to chance at
//! run time, but for what proptest draws.

use std::collections::{BTreeMap, VecDeque};

use oxbloom_filter::internals::codec;
use oxbloom_filter::internals::codec::native::{self, Chunk, Header};
use oxbloom_filter::internals::{
    BATCH, Chain, CountingLayer as Layer, CreateParams, Growth, Hash, Layer as _, Layout, MAX_COUNT, MAX_ITEMS,
    MAX_LAYERS,
};
use oxbloom_filter::{DecodeError, Error, Filter};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::model::{self, body, built, by, item, params, with_checksum};
use crate::rates::{Fresh, Measurement, fill_layers, offer, queries};

/// What a sound header may ask for before the tests take its word: they are to run on small machines.
const MEMORY_LIMIT: u64 = 16 << 20;

fn counting_params(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> CreateParams {
    CreateParams { layout: Layout::Counting { seed }, ..params(error_rate, capacity, growth, seed) }
}

fn counting(error_rate: f64, capacity: u64, growth: Growth, seed: u64) -> Filter {
    Filter::create(counting_params(error_rate, capacity, growth, seed), |_| true).unwrap()
}

fn chain(filter: &Filter) -> &Chain<Layer> {
    filter.counting().expect("a filter that counts")
}

fn layers(filter: &Filter) -> &[Layer] {
    chain(filter).layers()
}

fn remove(filter: &mut Filter, item: &[u8]) -> bool {
    let hash = filter.hash(item);
    filter.counting_mut().expect("a filter that counts").remove(hash)
}

fn count(filter: &Filter, item: &[u8]) -> u8 {
    chain(filter).count(filter.hash(item))
}

fn stuck(filter: &Filter) -> u64 {
    chain(filter).stuck()
}

/// All counters of a filter, oldest layer first.
fn counters(filter: &Filter) -> Vec<u8> {
    model::bits(filter).into_iter().flat_map(|byte| [byte & 0xF, byte >> 4]).collect()
}

/// Numbers without a pattern, the same at every run.
struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn new(seed: u64) -> Random {
        Random { seed, drawn: 0 }
    }

    fn fastrange(&mut self, end: usize) -> usize {
        self.drawn += 1;
        (xxh3_64_with_seed(&self.drawn.to_le_bytes(), self.seed) % end as u64) as usize
    }
}

/// What can be done to a filter. Items are numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    /// Adds an occurrence.
    Add,
    /// Adds an item, unless it is there.
    AddAbsent,
    /// Takes an occurrence back.
    Remove,
}

/// A filter, what it holds, and what was done to it.
struct Modelled {
    filter: Filter,
    held: BTreeMap<u64, u64>,
    done: Vec<(Act, u64)>,
}

impl Modelled {
    fn new(params: CreateParams) -> Modelled {
        Modelled { filter: Filter::create(params, |_| true).unwrap(), held: BTreeMap::new(), done: Vec::new() }
    }

    /// Does the same to a batch of items, and checks each answer.
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
                (_, Ok(new)) if new && held > 0 => panic!("forgotten: {number}, held {held} times"),
                (Act::Add, Ok(_)) => held + 1,
                // What is taken for present is not added.
                (Act::AddAbsent, Ok(new)) => held + u64::from(new),
            };
            if now > 0 {
                self.held.insert(number, now);
            } else {
                self.held.remove(&number);
            }
        }
    }

    /// Takes an occurrence back of one of the items that are held, if there are any. Which one it was.
    fn remove_one(&mut self, choose: impl FnOnce(usize) -> usize) -> Option<u64> {
        let at = (!self.held.is_empty()).then(|| choose(self.held.len()))?;
        let number = self.held.keys().nth(at).copied()?;
        self.act(Act::Remove, &[number]);
        Some(number)
    }

    fn check_one(&self, number: u64) {
        let (occurrences, item) = (self.held.get(&number).copied().unwrap_or(0), item(number));
        let counted = u64::from(count(&self.filter, &item));
        assert!(counted >= occurrences.min(MAX_COUNT.into()), "{number}: {counted} of {occurrences}");
        assert_eq!(self.filter.contains(item), counted > 0, "{number}");
    }

    /// All that must be true at any time.
    fn check(&self) {
        self.held.keys().for_each(|&number| self.check_one(number));
        let hashes: Vec<_> = self.held.keys().map(|&number| self.filter.hash(&item(number))).collect();
        let mut found = vec![false; hashes.len()];
        self.filter.contains_hashes(&hashes, &mut found);
        assert!(found.into_iter().all(|found| found));
        // What is counted of the counters is what they say.
        let counters = counters(&self.filter);
        let having = |test: fn(u8) -> bool| counters.iter().filter(|&&counter| test(counter)).count() as u64;
        assert_eq!(layers(&self.filter).iter().map(Layer::marked).sum::<u64>(), having(|counter| counter > 0));
        assert_eq!(stuck(&self.filter), having(|counter| counter == MAX_COUNT));
        assert_shares(&self.filter);
    }

    /// Removes all that is held. What is left is what a new filter has, but for what sticks.
    fn clear(&mut self, mut choose: impl FnMut(usize) -> usize) {
        while self.remove_one(&mut choose).is_some() {}
        assert_eq!((self.filter.num_layers(), self.filter.len()), (1, 0));
        let marked: u64 = layers(&self.filter).iter().map(Layer::marked).sum();
        assert_eq!(marked, stuck(&self.filter));
        assert!(marked > 0 || (self.filter.fill(), self.filter.false_positive_rate()) == (0.0, 0.0));
    }
}

/// The layers that are there together use up no more than the error rate.
fn assert_shares(filter: &Filter) {
    let rates: f64 = filter.layers().map(|layer| layer.error_rate).sum();
    assert!(rates <= filter.error_rate() * (1.0 + 1e-9), "{rates} of {}", filter.error_rate());
}

/// Does the same to a batch of items, growing in its middle where needed. What is refused is left out.
fn perform(filter: &mut Filter, act: Act, numbers: &[u64]) -> Vec<Result<bool, Error>> {
    let mut hashes: Vec<_> = numbers.iter().map(|&number| filter.hash(&item(number))).collect();
    if act == Act::Remove {
        let chain = filter.counting_mut().expect("a filter that counts");
        return hashes.into_iter().map(|hash| Ok(chain.remove(hash))).collect();
    }
    let mut answers = Vec::new();
    while !hashes.is_empty() {
        let mut new = vec![false; hashes.len()];
        let handled = match act {
            Act::Add => filter.insert_hashes(&hashes, &mut new),
            _ => filter.insert_absent_hashes(&hashes, &mut new),
        };
        answers.extend(new[..handled].iter().map(|&new| Ok(new)));
        hashes.drain(..handled);
        if !hashes.is_empty()
            && let Err(error) = filter.grow(|_| true)
        {
            answers.push(Err(error));
            hashes.remove(0);
        }
    }
    answers
}

/// A way to make a copy.
type Copying = fn(&Filter) -> Filter;

const COPYING: [Copying; 3] = [
    |filter| filter.try_clone().unwrap(),
    |filter| model::through_a_file(filter),
    |filter| model::through_a_client(filter),
];

#[derive(Clone, Debug)]
enum Step {
    Batch(Act, Vec<u64>),
    /// Of items that are held then.
    Remove(Vec<Index>),
    /// The test goes on with a copy.
    Copy(Copying),
}

fn any_params() -> impl Strategy<Value = CreateParams> {
    let rate = prop_oneof![Just(0.3), (1e-4f64.log10()..=0.3f64.log10()).prop_map(|exponent| 10f64.powf(exponent))];
    let growth = select(vec![Growth::Fixed, by(1), by(2), by(4)]);
    (rate, 1u64..=50, growth, any::<u64>())
        .prop_map(|(rate, capacity, growth, seed)| counting_params(rate, capacity, growth, seed))
}

/// Steps with few items, of which counters stick, or with many, for several layers.
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
    fn what_was_added_and_not_removed_is_found_and_each_removal_finds_it(
        params in any_params(),
        steps in any_steps(),
        order in vec(any::<Index>(), 1..30),
    ) {
        let mut order = order.iter().cycle();
        follow(params, &steps).clear(|held| order.next().map_or(0, |at| at.index(held)));
    }

    /// A replica is sent the same items in other batches, or one by one.
    #[test]
    fn the_same_items_in_other_batches_leave_the_same_filter(
        params in any_params(),
        steps in any_steps(),
        sizes in vec(1usize..100, 1..6),
    ) {
        let master = follow(params, &steps);
        let mut replica = Filter::create(params, |_| true).unwrap();
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
    fn a_removal_of_what_is_not_there_changes_nothing(
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

/// The population swells and shrinks, so that layers come and go; some items are added again and again.
#[test]
fn nothing_is_lost_in_100_000_operations() {
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
        let mut random = Random::new(capacity);
        for operation in 0..100_000 {
            let (number, swells) = (random.fastrange(items) as u64, operation / 5_000 % 2 == 0);
            let touched = match random.fastrange(10) {
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
                _ => modelled.remove_one(|held| random.fastrange(held)),
            };
            touched.into_iter().for_each(|number| modelled.check_one(number));
            if operation % 500 == 0 {
                modelled.check();
            }
        }
        modelled.clear(|held| random.fastrange(held));
    }
}

#[test]
fn an_item_is_there_as_often_as_it_was_added() {
    for growth in [Growth::Fixed, by(1), by(2)] {
        let mut filter = counting(1e-9, 100, growth, 1);
        for occurrences in 1..MAX_COUNT {
            assert_eq!(filter.insert(b"often"), Ok(occurrences == 1));
            assert_eq!((count(&filter, b"often"), filter.len()), (occurrences, 1));
        }
        // To add what is there already is no further occurrence, if absent items are asked for.
        let often = filter.hash(b"often");
        assert_eq!(filter.insert_absent_hashes(&[often, often], &mut [true; 2]), 2);
        for occurrences in (0..MAX_COUNT - 1).rev() {
            assert!(filter.contains(b"often"));
            assert!(remove(&mut filter, b"often"));
            assert_eq!(count(&filter, b"often"), occurrences);
        }
        assert!(!filter.contains(b"often") && !remove(&mut filter, b"often"));
        assert_eq!((filter.len(), filter.fill()), (0, 0.0));
    }
}

#[test]
fn what_is_there_is_counted_again_also_when_nothing_new_fits() {
    let mut filter = counting(1e-9, 10, Growth::Fixed, 1);
    (0..10).for_each(|number| assert_eq!(filter.insert(item(number)), Ok(true)));
    assert_eq!(filter.insert(b"eleventh"), Err(Error::Full));
    assert_eq!(filter.insert(item(3)), Ok(false));
    assert_eq!((count(&filter, &item(3)), filter.len()), (2, 10));
    // There is room again once an item is gone.
    assert!(remove(&mut filter, &item(4)));
    assert_eq!(filter.insert(b"eleventh"), Ok(true));
}

/// Nobody knows how many items a counter stands for that went as far as it can.
#[test]
fn an_item_that_was_added_more_often_than_can_be_counted_sticks_and_harms_no_other() {
    for (rate, growth) in [(0.01, Growth::Fixed), (1e-4, by(1)), (0.3, by(2))] {
        let mut filter = counting(rate, 100, growth, 1);
        let others: Vec<_> = (0..50).map(item).collect();
        others.iter().for_each(|item| assert!(filter.insert(item).is_ok()));
        let before: Vec<_> = others.iter().map(|item| count(&filter, item)).collect();
        (0..20).for_each(|_| assert!(filter.insert(b"often").is_ok()));
        assert_eq!(count(&filter, b"often"), MAX_COUNT);
        (0..20).for_each(|_| assert!(remove(&mut filter, b"often")));
        assert_eq!(count(&filter, b"often"), MAX_COUNT);
        // All its counters stick, and no others.
        let mut alone = counting(rate, 100, growth, 1);
        assert_eq!(alone.insert(b"often"), Ok(true));
        assert_eq!(stuck(&filter), layers(&alone)[0].marked());
        assert_eq!(stuck(&filter), counters(&filter).iter().filter(|&&counter| counter == MAX_COUNT).count() as u64);
        let after: Vec<_> = others.iter().map(|item| count(&filter, item)).collect();
        assert!(after.iter().zip(before).all(|(&after, before)| after >= before));
        others.iter().for_each(|item| assert!(filter.contains(item) && remove(&mut filter, item)));
        assert_eq!(filter.len(), 0);
        assert!(filter.contains(b"often"));
        assert_eq!(layers(&filter)[0].marked(), stuck(&filter));
        for copy in COPYING {
            assert_eq!(stuck(&copy(&filter)), stuck(&filter));
        }
    }
}

/// In a full layer of different items, no counter comes near to where it sticks.
#[test]
fn different_items_stick_nowhere() {
    for rate in [0.3, 0.01, 1e-4] {
        let mut filter = counting(rate, 100_000, Growth::Fixed, 1);
        offer(&mut filter, 100_000, &mut Fresh::default());
        assert_eq!(stuck(&filter), 0);
        let highest = counters(&filter).into_iter().max();
        assert!(highest < Some(12), "{highest:?}");
    }
}

/// Batches that are prepared are asked for ahead of time, from wherever their layers are by then.
#[test]
fn what_is_asked_for_ahead_is_answered_as_ever() {
    let (mut filter, mut other) = (counting(0.01, 50, by(1), 1), counting(0.01, 50, by(1), 1));
    let items: Vec<_> = (0..500).map(item).collect();
    for (round, batch) in items.chunks(BATCH).enumerate() {
        let prepared = filter.hash_batch(batch.iter().map(|item| &item[..]));
        let mut hashes = prepared.hashes();
        while !hashes.is_empty() {
            hashes = &hashes[filter.insert_hashes(hashes, &mut vec![false; hashes.len()])..];
            if !hashes.is_empty() {
                filter.grow(|_| true).unwrap();
            }
        }
        batch.iter().for_each(|item| assert!(other.insert(item).is_ok()));
        if round % 2 == 1 {
            let prepared = filter.hash_batch(batch.iter().map(|item| &item[..]));
            let chain = filter.counting_mut().unwrap();
            prepared.hashes().iter().for_each(|&hash| assert!(chain.remove(hash)));
            batch.iter().for_each(|item| assert!(remove(&mut other, item)));
        }
        assert!(model::whole(&filter) == model::whole(&other));
    }
    assert!(filter.num_layers() > 4);
}

/// Removes the oldest of `held`, or any of them, and adds others in their place.
fn churn(filter: &mut Filter, held: &mut VecDeque<Hash>, fresh: &mut Fresh, times: u64, random: &mut Option<Random>) {
    for hash in fresh.hashes(filter, times) {
        if let Some(random) = random {
            let at = random.fastrange(held.len());
            held.swap(0, at);
        }
        let gone = held.pop_front().unwrap();
        assert!(filter.counting_mut().unwrap().remove(gone));
        add(filter, hash);
        held.push_back(hash);
    }
}

fn add(filter: &mut Filter, hash: Hash) {
    while filter.insert_hashes(&[hash], &mut [false]) == 0 {
        filter.grow(|_| true).unwrap();
    }
}

/// Adds so many items. Which they were.
fn populate(filter: &mut Filter, items: u64, fresh: &mut Fresh) -> VecDeque<Hash> {
    let hashes = fresh.hashes(filter, items);
    hashes.iter().for_each(|&hash| add(filter, hash));
    hashes.into()
}

/// Measures filters that `fill` fills.
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
    let queries = queries(rate).min(1_000_000);
    let filters = (queries / items.max(16) / 2).clamp(4, 100);
    Measurement::new(what, make, fill, filters, queries).exceeds(rate)
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
    for rate in [0.1, 0.01] {
        for (expansion, layers, capacity) in [(1, 4, 2_000), (1, 12, 100), (2, 4, 500), (2, 8, 10), (4, 6, 1)] {
            let make = |seed| counting(rate, capacity, by(expansion), seed);
            let fill = |filter: &mut Filter, fresh: &mut Fresh| fill_layers(filter, layers, fresh);
            let what = format!("counting, rate {rate}, expansion {expansion}, {layers} layers from {capacity}");
            failures.extend(exceeds(what, rate, make, fill));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// A filter that is full, or grown, of which all items were replaced several times.
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
                    let mut random = (!first_out).then(|| Random::new(held.len() as u64));
                    churn(filter, &mut held, fresh, 4 * population, &mut random);
                    assert_shares(filter);
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
                    churn(filter, &mut held, fresh, replaced, &mut Some(Random::new(population)));
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

/// Four bits for one, and a twentieth for the smaller blocks.
#[test]
fn counters_take_four_times_the_memory_and_a_twentieth() {
    for rate in [0.3, 0.25, 0.1, 0.05, 0.01, 0.001, 1e-4, 1e-5, 1e-6, 1e-9] {
        for capacity in [1, 2, 10, 64, 100, 999, 1_000, 10_000, 100_000, 1_000_000] {
            for growth in [Growth::Fixed, by(1), by(2)] {
                let bits = model::filter(rate, capacity, growth, 1).layers().next().unwrap().bytes;
                let filter = counting(rate, capacity, growth, 1);
                let counters = filter.layers().next().unwrap().bytes;
                assert!(
                    counters as f64 <= bits as f64 * 4.0 * 1.05 + 64.0,
                    "{rate} {capacity} {growth:?}: {counters} {bits}"
                );
                let allocated: usize =
                    layers(&filter).iter().map(|layer| size_of_val(layer) + layer.bytes().len()).sum();
                assert_eq!(filter.memory_usage(), size_of::<Filter>() + allocated);
            }
        }
    }
}

/// The most that was seen of a filter over some time.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    depth: usize,
    memory: usize,
}

impl Peak {
    fn look(&mut self, filter: &Filter, held: usize) {
        assert_shares(filter);
        self.depth = self.depth.max(filter.num_layers());
        self.memory = self.memory.max(filter.memory_usage());
        let mut stray = 1.0;
        for layer in layers(filter) {
            let shape = layer.array().shape();
            let (items, estimate) = (layer.items() as f64, shape.items_from_fill(layer.marked()));
            let deviation = (estimate / f64::from(shape.probes)).sqrt();
            let uncounted = estimate * (layer.marked() as f64 / shape.cells() as f64).powi(shape.probes.into());
            // As promised of one removal in sixteen, and some more for what came after it.
            let range = estimate - uncounted - 4.5 * deviation - 20.0..=estimate + 4.5 * deviation + 20.0;
            assert!(range.contains(&items), "{items} counted, {estimate} estimated");
            // The estimate is wrong as well: at these error rates, by less than that at six standard deviations.
            stray += uncounted + (4.5 + 4.0) * deviation + 20.0;
        }
        let items = filter.len();
        assert!(items.abs_diff(held as u64) as f64 <= stray, "{items} of {held}");
    }
}

/// Sessions, leases, recent visitors: as many go as come, for ever.
#[test]
fn a_filter_whose_items_come_and_go_stays_as_large_as_it_was() {
    for rate in [0.3, 0.1, 0.01] {
        for (expansion, capacity) in [(1, 200), (2, 200), (2, 20)] {
            for population in [150, 200, 600] {
                for first_out in [true, false] {
                    let mut filter = counting(rate, capacity, by(expansion), population);
                    let (mut fresh, mut random) = (Fresh::default(), (!first_out).then(|| Random::new(1)));
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
                    assert!(second.depth <= first.depth && second.memory <= first.memory, "{line}");
                    while let Some(hash) = held.pop_back() {
                        assert!(filter.counting_mut().unwrap().remove(hash));
                    }
                    assert_eq!((filter.num_layers(), filter.len(), stuck(&filter), filter.fill()), (1, 0, 0, 0.0));
                }
            }
        }
    }
}

/// What [`counting`](oxbloom_filter::counting) relies on: a count may stray from the truth, and the fill does not.
#[test]
fn the_fill_tells_how_many_items_there_are() {
    for rate in [0.3, 0.01, 1e-4] {
        for capacity in [50, 1_000, 20_000] {
            for items in [capacity / 2, capacity] {
                let (mut fresh, seeds) = (Fresh::default(), (200_000 / capacity).clamp(50, 500));
                let errors: Vec<_> = (0..seeds)
                    .map(|seed| {
                        let mut filter = counting(rate, capacity, Growth::Fixed, seed);
                        offer(&mut filter, items, &mut fresh);
                        let layer = &layers(&filter)[0];
                        layer.array().shape().items_from_fill(layer.marked()) - items as f64
                    })
                    .collect();
                let mean = errors.iter().sum::<f64>() / seeds as f64;
                let deviation =
                    (errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / (seeds - 1) as f64).sqrt();
                let stray = 4.0 * (items as f64).sqrt();
                println!(
                    "rate {rate}, {items} of {capacity}: {mean:.2} off, 4 sqrt(n) is {:.1} deviations",
                    stray / deviation
                );
                assert!(6.0 * deviation <= stray, "{rate} {capacity} {items}: {deviation} {stray}");
                assert!(
                    mean.abs() <= 6.0 * deviation / (seeds as f64).sqrt(),
                    "{rate} {capacity} {items}: {mean} {deviation}"
                );
                assert!(errors.iter().all(|error| error.abs() <= stray), "{rate} {capacity} {items}");
            }
        }
    }
}

/// Three layers with items that came and went, one that sticks, and the last layer not yet full.
fn grown() -> Filter {
    let mut filter = counting(0.01, 100, by(2), 7);
    (0..500).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
    (0..500).step_by(7).for_each(|number| assert!(remove(&mut filter, &item(number))));
    (0..20).for_each(|_| assert!(filter.insert(b"often").is_ok()));
    assert_eq!(filter.num_layers(), 3);
    assert!(stuck(&filter) > 0);
    filter
}

/// The chunks of a filter as they travel, each with its iterator.
fn pieces(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    let (chain, chunks) = (chain(filter), native::chunks(chain(filter)));
    chunks.map(|chunk| (chunk.cursor(), native::encode_chunk(chain, chunk).unwrap())).collect()
}

/// A filter of the same header, without counters.
fn built_like(filter: &Filter) -> Filter {
    built(&codec::encode_header(filter).unwrap()).unwrap()
}

/// Loads a piece that must be refused, and must not change anything. Returns the reason given.
fn assert_refused(filter: &mut Filter, (iterator, piece): &(u64, Vec<u8>), why: &str) -> DecodeError {
    let before = model::whole(filter);
    let answer = model::load(filter, *iterator, piece);
    assert!(model::whole(filter) == before, "{why}");
    answer.expect_err(why)
}

/// Does everything to a filter, giving it items while they take little memory.
fn use_in_every_way(mut filter: Filter) {
    let hashes: Vec<_> = (0..200).map(|number| filter.hash(&item(number))).collect();
    for again in [true, false, true] {
        let mut rest = hashes.as_slice();
        while !rest.is_empty() {
            let mut new = vec![false; rest.len()];
            let handled =
                if again { filter.insert_hashes(rest, &mut new) } else { filter.insert_absent_hashes(rest, &mut new) };
            let mut found = vec![false; handled];
            filter.contains_hashes(&rest[..handled], &mut found);
            assert!(found.into_iter().all(|found| found));
            assert!(rest[..handled].iter().all(|&hash| (1..=MAX_COUNT).contains(&chain(&filter).count(hash))));
            rest = &rest[handled..];
            if !rest.is_empty()
                && let Err(error) = filter.grow(|bytes| bytes < MEMORY_LIMIT)
            {
                assert!(error == Error::OutOfMemory || filter.expansion().is_none());
                break;
            }
        }
        let cells: u64 = layers(&filter).iter().map(Layer::cells).sum();
        assert!(stuck(&filter) <= cells);
        assert!((0.0..=1.0).contains(&filter.fill()), "{}", filter.fill());
        assert!((0.0..=1.0).contains(&filter.false_positive_rate()), "{}", filter.false_positive_rate());
        assert!(filter.layers().all(|layer| (0.0..1.0).contains(&layer.error_rate)));
        assert!(filter.memory_usage() > model::bits(&filter).len());
        let copy = filter.try_clone().unwrap();
        assert!(model::whole(&copy) == model::whole(&filter));
        if filter.num_layers() < 100 {
            assert!(model::whole(&model::through_a_file(&filter)) == model::whole(&filter));
            assert!(model::whole(&model::through_a_client(&filter)) == model::whole(&filter));
        }
        for &hash in &hashes {
            let there = filter.counting().unwrap().contains(hash);
            assert_eq!(filter.counting_mut().unwrap().remove(hash), there);
        }
    }
}

#[test]
fn a_counting_header_that_is_damaged_is_refused() {
    let header = codec::encode_header(&grown()).unwrap();
    for length in 0..header.len() {
        assert_eq!(Header::decode(&header[..length]).err(), Some(DecodeError::Corrupt), "{length} bytes");
        // Even if whoever cut it knows of the checksum.
        assert_eq!(Header::decode(&with_checksum(&header[..length])).is_ok(), length == header.len() - 8, "{length}");
    }
    for bit in 0..header.len() * 8 {
        let mut damaged = header.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn numbers_of_counters_that_cannot_be_are_refused() {
    const LAYER: usize = 32;
    const LAYER_BYTES: usize = 64;
    let number = |value: u64| value.to_le_bytes().to_vec();
    let impossible: &[(&str, usize, Vec<u8>)] = &[
        ("cells of bits", 4, vec![0]),
        ("other cells", 4, vec![2]),
        ("reserved bytes", 5, vec![0, 0, 1]),
        ("layers of a filter that does not grow", 8, vec![0; 4]),
        ("no layers", 12, vec![0; 4]),
        ("too few layers", 12, vec![2]),
        ("as many layers as can be", 12, vec![0xFF; 4]),
        ("no blocks", LAYER, number(0)),
        ("blocks whose bytes overflow", LAYER, number(1 << 58)),
        ("capacity 0", LAYER + 8, number(0)),
        ("more items than can be counted", LAYER + 16, number(MAX_ITEMS + 1)),
        ("an estimate of more items than can be counted", LAYER + 16, number(u64::MAX)),
        ("more marked than counters", LAYER + 24, number(layers(&grown())[2].cells() + 1)),
        ("no lines", LAYER + 32, vec![0]),
        ("more lines than probes", LAYER + 32, vec![2, 1]),
        ("reserved bytes of a layer", LAYER + 39, vec![1]),
        ("a share that no layer has", LAYER + 56, (MAX_LAYERS as u16).to_le_bytes().to_vec()),
        ("reserved bytes behind the share", LAYER + 58, vec![1]),
        ("reserved bytes at the end", LAYER + 63, vec![1]),
    ];
    let filter = grown();
    for (what, at, bytes) in impossible {
        for layer in if *at < LAYER { 0..1 } else { 0..3 } {
            let mut body = body(&filter);
            body[at + layer * LAYER_BYTES..][..bytes.len()].copy_from_slice(bytes);
            assert_eq!(Header::decode(&with_checksum(&body)).err(), Some(DecodeError::Corrupt), "{what}");
        }
    }
    // What could be, whatever the counters say.
    let possible: &[(&str, usize, Vec<u8>)] = &[
        ("more items than capacity", LAYER + 16, number(101)),
        ("as many items as can be", LAYER + 16, number(MAX_ITEMS | 1 << 63)),
        ("no occurrences", LAYER + 40, number(0)),
        ("as many occurrences as can be", LAYER + 40, number(u64::MAX)),
        ("as many writes as can be", LAYER + 48, number(u64::MAX)),
        ("the share of another layer", LAYER + 56, 1u16.to_le_bytes().to_vec()),
        ("the last share", LAYER + 56, (MAX_LAYERS as u16 - 1).to_le_bytes().to_vec()),
    ];
    for (what, at, bytes) in possible {
        for layer in 0..3 {
            println!("{what}, layer {layer}");
            let mut body = body(&filter);
            body[at + layer * LAYER_BYTES..][..bytes.len()].copy_from_slice(bytes);
            let header = Header::decode(&with_checksum(&body)).unwrap();
            use_in_every_way(header.build().unwrap());
            // With its counters.
            let mut chunks = native::chunks(chain(&filter));
            let empty = header.build().unwrap();
            let load =
                || chunks.next().map(|chunk| (chunk.bits, chunk.checksum(chain(&empty)))).ok_or(DecodeError::Corrupt);
            use_in_every_way(header.build_filled(load).unwrap());
        }
    }
}

/// An edit of a header: a byte, or a number with a value that is likely to hurt.
#[derive(Clone, Debug)]
enum Edit {
    Byte(Index, u8),
    Number(Index, u64),
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let edges = [0, 1, 2, 127, 128, 129, 511, 1 << 20, 1 << 32, 1 << 57, 1 << 63, i64::MAX as u64, u64::MAX];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (any::<Index>(), prop_oneof![select(edges.to_vec()), 0u64..5_000])
            .prop_map(|(at, value)| Edit::Number(at, value)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn a_counting_header_that_was_tampered_with_is_refused_or_makes_a_sound_filter(
        is_grown: bool,
        edits in vec(any_edit(), 1..4),
    ) {
        let mut body = body(&if is_grown { grown() } else { counting(0.01, 100, by(2), 7) });
        for edit in edits {
            match edit {
                Edit::Byte(at, byte) => *at.get_mut(&mut body) = byte,
                Edit::Number(at, value) => {
                    at.get_mut(body.as_chunks_mut::<8>().0).copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        if let Ok(header) = Header::decode(&with_checksum(&body))
            && header.memory() < MEMORY_LIMIT
        {
            let filter = header.build().unwrap();
            prop_assert_eq!(model::bits(&filter).len() as u64, header.memory());
            if filter.counting().is_some() {
                use_in_every_way(filter);
            }
        }
    }

    #[test]
    fn a_piece_of_counters_that_was_damaged_is_refused(at: Index, xor in 1u8..) {
        let filter = grown();
        let mut copy = built_like(&filter);
        for (iterator, mut piece) in pieces(&filter) {
            *at.get_mut(&mut piece) ^= xor;
            prop_assert_eq!(model::load(&mut copy, iterator, &piece), Err(DecodeError::Corrupt));
        }
        prop_assert_eq!(copy.fill(), 0.0);
    }

    /// Whoever forges the checksum of a piece can put any counters in, but break nothing else.
    #[test]
    fn counters_that_were_forged_make_a_sound_filter(block in vec(any::<u8>(), 64), same: bool) {
        let mut copy = built_like(&grown());
        let length = layers(&copy)[0].bytes().len();
        let bits: Vec<_> = if same { vec![block[0]; length] } else { block.into_iter().cycle().take(length).collect() };
        let piece = native::encode_chunk(chain(&copy), Chunk { offset: 0, bits: &bits }).unwrap();
        prop_assert_eq!(model::load(&mut copy, native::FIRST_CHUNK_CURSOR + length as u64, &piece), Ok(()));
        use_in_every_way(copy);
    }
}

#[test]
fn pieces_may_arrive_in_any_order_and_more_than_once() {
    let filter = grown();
    let header = Header::decode(&codec::encode_header(&filter).unwrap()).unwrap();
    // Of any length, as a later version may write them.
    let blocks = native::chunks(chain(&filter)).flat_map(|Chunk { offset, bits }| {
        (offset..).step_by(64).zip(bits.chunks(64)).map(|(offset, bits)| Chunk { offset, bits })
    });
    let mut blocks: Vec<_> =
        blocks.map(|block| (block.cursor(), native::encode_chunk(chain(&filter), block).unwrap())).collect();
    let mut random = Random::new(1);
    for _ in 0..20 {
        let mut copy = header.build().unwrap();
        let seen = random.fastrange(blocks.len() / 2);
        for (iterator, piece) in blocks.iter().chain(&blocks[..seen]) {
            model::load(&mut copy, *iterator, piece).unwrap();
        }
        assert!(header.matches_marked(&copy));
        assert!(model::whole(&copy) == model::whole(&filter));
        for last in 1..blocks.len() {
            blocks.swap(last, random.fastrange(last + 1));
        }
    }
}

/// A change of a filter, or what might be taken for one.
type Change = fn(&mut Filter);

/// Items that were removed or moved meanwhile would be half there.
#[test]
fn a_piece_that_was_made_before_a_write_is_refused_after_it() {
    const FIRST: u64 = 1;
    let writes: &[(&str, Change)] = &[
        ("a new item", |filter| assert_eq!(filter.insert(b"new"), Ok(true))),
        ("another occurrence", |filter| assert_eq!(filter.insert(item(FIRST)), Ok(false))),
        ("another occurrence of what sticks", |filter| assert_eq!(filter.insert(b"often"), Ok(false))),
        ("a removal", |filter| assert!(remove(filter, &item(FIRST)))),
        ("a removal from the newest layer", |filter| assert!(remove(filter, &item(499)))),
        ("an addition that is taken back", |filter| {
            assert!(filter.insert(b"new").is_ok() && remove(filter, b"new"));
        }),
        ("a removal that is made good", |filter| {
            assert!(remove(filter, &item(FIRST)) && filter.insert(item(FIRST)).is_ok());
        }),
        ("one item for another", |filter| {
            assert!(remove(filter, &item(499)) && filter.insert(b"new").is_ok());
        }),
        ("another layer", |filter| assert_eq!(filter.grow(|_| true), Ok(()))),
        ("a layer less", |filter| {
            (0..500).for_each(|number| assert_eq!(remove(filter, &item(number)), number % 7 != 0, "{number}"));
        }),
    ];
    for (what, write) in writes {
        let mut source = grown();
        let (mut early, before) = (built_like(&source), pieces(&source));
        let mut whole = model::through_a_client(&source);
        write(&mut source);
        let mut late = built_like(&source);
        // Of the filter as it was, or as it is now, but never of both.
        for piece in &before {
            assert_refused(&mut late, piece, what);
        }
        for piece in &pieces(&source) {
            assert_refused(&mut early, piece, what);
        }
        for (iterator, piece) in &before {
            assert_eq!(model::load(&mut early, *iterator, piece), Ok(()), "{what}");
        }
        assert!(model::whole(&early) == model::whole(&grown()));
        // What is written to is no copy any more.
        write(&mut whole);
        for piece in &before {
            assert_refused(&mut whole, piece, what);
        }
        assert!(model::whole(&whole) == model::whole(&source), "{what}");
    }

    let questions: &[(&str, Change)] = &[
        ("a look-up", |filter| assert!(filter.contains(item(FIRST)))),
        ("an item that is there, if it is absent", |filter| {
            let hash = filter.hash(&item(FIRST));
            assert_eq!(filter.insert_absent_hashes(&[hash], &mut [true]), 1);
        }),
        ("a removal of what is not there", |filter| assert!(!remove(filter, b"absent"))),
        ("memory that is refused", |filter| assert_eq!(filter.grow(|_| false), Err(Error::OutOfMemory))),
    ];
    for (what, question) in questions {
        let mut source = grown();
        let (mut copy, before) = (built_like(&source), pieces(&source));
        question(&mut source);
        assert!(pieces(&source) == before, "{what}");
        for (iterator, piece) in before {
            assert_eq!(model::load(&mut copy, iterator, &piece), Ok(()), "{what}");
        }
        assert!(model::whole(&copy) == model::whole(&grown()), "{what}");
    }
}

/// What is counted of a filter may be the same again when all its layers were replaced, or of two copies that went their own
/// ways. Pieces of both would leave a filter that lacks items.
#[test]
fn a_piece_of_a_filter_with_the_same_counts_is_refused() {
    let counts = |filter: &Filter| {
        let layer = |layer: &Layer| (layer.spec(), layer.items(), layer.counts().occurrences);
        layers(filter).iter().map(layer).collect::<Vec<_>>()
    };
    for capacity in [1, 100] {
        let mut filter = counting(1e-6, capacity, by(1), 7);
        (0..capacity).for_each(|number| assert_eq!(filter.insert(item(number)), Ok(true)));
        let (early, mut twin) = (filter.try_clone().unwrap(), filter.try_clone().unwrap());
        // First in, first out: the layer that follows the next has the first one's share of the error rate, and its size.
        for number in capacity..3 * capacity {
            assert_eq!(filter.insert(item(number)), Ok(true));
            assert!(remove(&mut filter, &item(number - capacity)));
        }
        assert_eq!(counts(&filter), counts(&early));
        for (piece, other) in pieces(&early).iter().zip(&pieces(&filter)) {
            assert_refused(&mut built_like(&filter), piece, "earlier");
            assert_refused(&mut built_like(&early), other, "later");
        }

        let mut other = twin.try_clone().unwrap();
        for (filter, new) in [(&mut twin, b"one  "), (&mut other, b"other")] {
            assert!(remove(filter, &item(0)));
            assert_eq!(filter.insert(new), Ok(true));
        }
        assert_eq!(counts(&twin), counts(&other));
        for (piece, others) in pieces(&twin).iter().zip(&pieces(&other)) {
            assert_refused(&mut built_like(&twin), others, "of a copy that went its own way");
            assert_refused(&mut built_like(&other), piece, "of a copy that went its own way");
        }
    }
}

#[test]
fn a_piece_of_another_counting_filter_or_place_is_refused() {
    let filter = grown();
    let mut other = counting(0.01, 100, by(2), 8);
    (0..90).for_each(|number| assert!(other.insert(item(number)).is_ok()));
    let mut alike = counting(0.01, 100, by(2), 9);
    (0..90).for_each(|number| assert!(alike.insert(item(number)).is_ok()));
    assert_refused(&mut built_like(&other), &pieces(&alike)[0], "other seed");
    assert_refused(&mut built_like(&other), &pieces(&filter)[0], "other layers");
    let mut copy = built_like(&filter);
    for (at, piece) in pieces(&filter) {
        for iterator in (native::FIRST_CHUNK_CURSOR..at + 1_000).chain([0, 1, 64, u64::MAX, u64::MAX - 63]) {
            if iterator != at {
                assert_refused(&mut copy, &(iterator, piece.clone()), "elsewhere");
            }
        }
    }
    let (length, all) = (layers(&copy)[0].bytes().len(), model::bits(&copy).len() as u64);
    for (why, offset, length, reason) in [
        ("no counters", 0, 0, DecodeError::Corrupt),
        ("part of a block", 0, 63, DecodeError::Corrupt),
        ("not at a block", 1, 64, DecodeError::Corrupt),
        ("over the end of a layer", length as u64 - 64, 128, DecodeError::BeyondLayer),
        ("behind the filter", all, 64, DecodeError::NoSuchOffset),
    ] {
        let piece = native::encode_chunk(chain(&copy), Chunk { offset, bits: &vec![0xFF; length] }).unwrap();
        let piece = (native::FIRST_CHUNK_CURSOR + offset + length as u64, piece);
        assert_eq!(assert_refused(&mut copy, &piece, why), reason, "{why}");
    }
}

/// A server may save at any moment, also between a client's header and its last piece, and must go on from that.
#[test]
fn a_counting_filter_that_is_still_being_loaded_can_be_saved() {
    let filter = grown();
    let mut partial = built_like(&filter);
    for (iterator, piece) in pieces(&filter) {
        let copy = model::through_a_file(&partial);
        assert!(model::whole(&copy) == model::whole(&partial));
        partial = copy;
        assert_eq!(model::load(&mut partial, iterator, &piece), Ok(()));
    }
    assert!(model::whole(&partial) == model::whole(&filter));
}
