//! Membership: no false negatives, and the number of items that fit.

use std::collections::HashSet;

use oxbloom_filter::internals::sizing::LOWEST_ERROR_RATE;
use oxbloom_filter::internals::{CreateParams, ErrorRate, Growth, Hash, Hasher, Interrupted, Kind, OnDuplicate};
use oxbloom_filter::{Error, Filter};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::{self, CLASSIC, by, create, filter, item, layer, native_of, params};

/// Returns parameters from a wide range: error rates from 0.9 to 1e-12, and mostly small capacities.
fn any_params() -> impl Strategy<Value = CreateParams> {
    let rate = (-12.0..=0.9f64.log10()).prop_map(|exponent| 10f64.powf(exponent));
    let capacity = prop_oneof![2 => 1u64..=30, 1 => 1u64..=300, 1 => 1u64..=4000];
    let growth = prop_oneof![1 => Just(Growth::Fixed), 3 => (1u32..=10).prop_map(by)];
    (rate, capacity, growth, any::<u64>())
        .prop_map(|(rate, capacity, growth, seed)| params(rate, capacity, growth, seed))
}

/// Returns parameters of native and of classic filters.
fn any_params_of_bits() -> impl Strategy<Value = CreateParams> {
    let layouts = (any_params(), any::<bool>());
    layouts.prop_map(|(params, is_classic)| match is_classic {
        true => CreateParams { kind: CLASSIC, ..params },
        false => params,
    })
}

/// Returns items with many repetitions, empty items, NUL bytes, and sometimes enough items for several layers.
fn any_items() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let one = prop_oneof![
        1 => vec(prop_oneof![Just(0u8), Just(b'a'), Just(0xFF)], 0..4),
        1 => vec(any::<u8>(), 0..300),
        4 => any::<u16>().prop_map(|number| item(number.into()).to_vec()),
    ];
    prop_oneof![vec(one.clone(), 0..60), vec(one, 0..2000)]
}

/// Inserts all items, one by one, and checks each answer. Returns the accepted items.
fn insert_each<'a>(filter: &mut Filter, items: &'a [Vec<u8>]) -> HashSet<&'a [u8]> {
    let (mut taken, mut new) = (HashSet::<&[u8]>::new(), 0);
    for item in items {
        let (claimed, layers) = (filter.contains(item), filter.num_layers());
        assert!(claimed || !taken.contains(&item[..]), "false negative: {item:?}");
        match filter.insert(item) {
            Ok(answer) => {
                assert_eq!(answer, !claimed, "{item:?}");
                taken.insert(item);
                new += u64::from(answer);
            }
            Err(error) => {
                assert_eq!((error, filter.expansion(), claimed), (Error::Full, None, false));
                assert_eq!(filter.len(), filter.capacity());
            }
        }
        assert_eq!(filter.len(), new);
        // Growth loses nothing.
        if filter.num_layers() > layers {
            assert_eq!(filter.num_layers(), layers + 1);
            assert!(taken.iter().all(|item| filter.contains(item)));
        }
    }
    taken
}

fn answers(filter: &Filter, hashes: &[Hash]) -> Vec<bool> {
    let mut found = vec![true; hashes.len()];
    filter.contains_hashes(hashes, &mut found, 0);
    found
}

/// Checks that two filters give the same answers.
fn assert_same(filter: &Filter, copy: &Filter, questions: &[Vec<u8>]) {
    assert_eq!(
        (copy.seed(), copy.error_rate(), copy.expansion(), copy.len(), copy.capacity()),
        (filter.seed(), filter.error_rate(), filter.expansion(), filter.len(), filter.capacity())
    );
    assert_eq!((copy.fill(), copy.false_positive_rate()), (filter.fill(), filter.false_positive_rate()));
    // The memory of a filter that has grown is not compared.
    assert!(filter.num_layers() > 1 || copy.memory_usage().abs_diff(filter.memory_usage()) <= 64);
    assert_eq!(copy.num_layers(), filter.num_layers());
    if filter.kind() == Kind::Native {
        let aligned = [filter, copy].map(model::memory_when_aligned);
        assert!(filter.num_layers() > 1 || aligned[0] == aligned[1], "{aligned:?}");
        let blocks = |filter| (layer(filter).spec(), layer(filter).items(), layer(filter).set_bits());
        assert_eq!(blocks(copy), blocks(filter));
        let table = |filter| native_of(filter).table().map(|table| (table.items(), table.slots(), table.segments()));
        assert_eq!(table(copy), table(filter));
    }
    assert!(model::whole(copy) == model::whole(filter));
    assert!(questions.iter().all(|item| copy.contains(item) == filter.contains(item)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// [`insert_each`] also checks that `insert` returns true exactly for the accepted items that `contains` did not
    /// find.
    #[test]
    fn an_accepted_item_is_never_lost(params in any_params_of_bits(), items in any_items()) {
        let mut filter = create(params);
        let taken = insert_each(&mut filter, &items);
        prop_assert!(taken.iter().all(|item| filter.contains(item)));
        for item in &taken {
            prop_assert_eq!(filter.insert(item), Ok(false));
        }
    }

    #[test]
    fn a_copy_is_the_same_filter(params in any_params_of_bits(), items in any_items(), absent in any_items()) {
        let mut filter = create(params);
        let taken = insert_each(&mut filter, &items);
        let copies = [
            filter.try_clone().unwrap(),
            model::through_a_file(&filter),
            model::through_a_client(&filter),
        ];
        for copy in &copies {
            prop_assert!(taken.iter().all(|item| copy.contains(item)));
            assert_same(&filter, copy, &items);
            assert_same(&filter, copy, &absent);
        }
        // Later items also have the same effects on the filter and on each copy: on answers, counts and growth.
        let later = absent.iter().map(|item| filter.insert(item)).collect::<Vec<_>>();
        for mut copy in copies {
            prop_assert!(later.iter().eq(&absent.iter().map(|item| copy.insert(item)).collect::<Vec<_>>()));
            assert_same(&filter, &copy, &items);
        }
    }

    #[test]
    fn batches_give_the_same_answers_and_the_same_filter_as_single_items(
        params in any_params_of_bits(),
        items in any_items(),
        absent in any_items(),
        sizes in vec(1usize..100, 1..6),
    ) {
        let mut one_by_one = create(params);
        let mut in_batches = create(params);
        let single: Vec<_> = items.iter().map(|item| one_by_one.insert(item)).collect();
        prop_assert_eq!(single, model::insert_in_batches(&mut in_batches, &items, &sizes));
        assert_same(&one_by_one, &in_batches, &items);

        let questions: Vec<_> = items.iter().chain(&absent).collect();
        let hashes: Vec<_> = questions.iter().map(|item| in_batches.hash(item)).collect();
        let single: Vec<_> = questions.iter().map(|item| in_batches.contains(item)).collect();
        prop_assert_eq!(&single, &answers(&in_batches, &hashes));
        for size in sizes {
            let batched: Vec<_> = hashes.chunks(size).flat_map(|batch| answers(&in_batches, batch)).collect();
            prop_assert_eq!(&single, &batched);
        }
    }

    #[test]
    fn a_fixed_filter_takes_its_capacity_and_no_more(mut params in any_params(), start: u32) {
        params.growth = Growth::Fixed;
        let capacity = params.capacity.get();
        let mut filter = create(params);
        let mut taken = Vec::new();
        let mut rejected = 0;
        for number in (u64::from(start)..).take(2 * capacity as usize + 100) {
            let (item, claimed, before) = (item(number), filter.contains(item(number)), filter.len());
            let whole = (before == capacity && rejected < 3).then(|| model::whole(&filter));
            let answer = filter.insert(item);
            match (claimed, before < capacity) {
                (true, _) => prop_assert_eq!(answer, Ok(false)),
                (false, true) => prop_assert_eq!(answer, Ok(true)),
                (false, false) => prop_assert_eq!(answer, Err(Error::Full)),
            }
            match answer {
                Ok(_) => taken.push(item),
                Err(_) => rejected += 1,
            }
            prop_assert!(whole.is_none_or(|whole| whole == model::whole(&filter)), "a full filter changed");
        }
        prop_assert!(filter.len() <= capacity && (rejected == 0 || filter.len() == capacity));
        prop_assert!(taken.iter().all(|item| filter.contains(item) && filter.insert(item) == Ok(false)));
        prop_assert_eq!((filter.num_layers(), filter.capacity()), (1, capacity));
    }

    #[test]
    fn a_growing_filter_has_no_table_until_it_counted_its_capacity(
        (rate, capacity, expansion, seed) in (0.0001..0.9, 1u64..2000, 1u32..=10, any::<u64>()),
    ) {
        let mut filter = filter(rate, capacity, by(expansion), seed);
        let mut numbers = 0..;
        // The first new item that does not fit creates the table.
        while filter.len() < 2 * capacity {
            let before = filter.len();
            let new = filter.insert(item(numbers.next().unwrap()));
            prop_assert_eq!(new, Ok(filter.len() == before + 1));
            prop_assert_eq!(native_of(&filter).table().is_some(), filter.len() > capacity);
            prop_assert!(filter.capacity() >= filter.len());
        }
        let [first, last] = [filter.layers().next(), filter.layers().last()].map(Option::unwrap);
        if layer(&filter).is_of_fingerprints() {
            prop_assert_eq!((filter.num_layers(), first.items), (1, 2 * capacity));
        } else {
            prop_assert_eq!((filter.num_layers(), first.capacity, first.items), (2, capacity, capacity));
            prop_assert_eq!(last.items, capacity);
        }
    }

    #[test]
    fn a_failed_allocation_changes_nothing(params in any_params(), items in any_items()) {
        let mut asked = None;
        let rejected = Filter::create(params, &mut |bytes| {
            asked = Some(bytes);
            false
        });
        prop_assert_eq!(rejected.err(), Some(Error::OutOfMemory));

        let mut filter = Filter::create(params, &mut |bytes| Some(bytes) == asked).unwrap();
        prop_assert_eq!(Some(model::content_bytes(&filter).len() as u64), asked);
        let hashes: Vec<Hash> = items.iter().map(|item| filter.hash(item)).collect();
        let mut new = vec![false; hashes.len()];
        let inserted = filter.insert_hashes(&hashes, &mut new, &mut [], &OnDuplicate::Count.into(), &mut |_| false);
        let expected = if params.growth == Growth::Fixed { Error::Full } else { Error::OutOfMemory };
        match inserted {
            Ok(()) => prop_assert!(filter.len() <= filter.capacity()),
            Err(Interrupted { handled, error }) => {
                prop_assert_eq!((error, filter.len()), (expected, filter.capacity()));
                prop_assert!(!filter.contains(&items[handled]));
                prop_assert!(items[..handled].iter().all(|item| filter.contains(item)));
            }
        }
        prop_assert_eq!(filter.num_layers(), 1);
    }
}

#[test]
fn an_error_rate_lies_between_zero_and_one() {
    for rate in [0.0, -0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(ErrorRate::new(rate), None, "{rate}");
    }
    for rate in [f64::from_bits(1), f64::MIN_POSITIVE, 1e-300, 0.5, 1.0 - f64::EPSILON / 2.0] {
        assert_eq!(ErrorRate::new(rate).map(ErrorRate::get), Some(rate));
        let mut filter = filter(rate, 1_000, Growth::Fixed, 1);
        assert!((0..1_000).all(|number| filter.insert(item(number)).is_ok() && filter.contains(item(number))));
    }
}

#[test]
fn a_rate_below_the_lowest_supported_one_gives_the_same_filter() {
    for growth in [Growth::Fixed, by(2)] {
        let lowest = filter(LOWEST_ERROR_RATE, 100, growth, 1);
        for rate in [LOWEST_ERROR_RATE / 2.0, 1e-100, 1e-300, f64::MIN_POSITIVE, f64::from_bits(1)] {
            let filter = Filter::create(params(rate, 100, growth, 1), &mut |_| true).ok();
            let shape = filter.map(|filter| layer(&filter).shape());
            assert_eq!(shape, Some(layer(&lowest).shape()), "{rate:e} {growth:?}");
        }
    }
}

/// Clients choose the parameters, and all clients wait while the server creates the filter. So creation must be fast
/// for all parameters: all cases of this test together take a tenth of a second.
#[test]
fn filters_of_any_rate_and_capacity_are_created_or_rejected_fast() {
    let rates =
        [f64::from_bits(1), 1e-300, 1e-20, 0.01, 0.3, 0.5, 0.9, 0.99, 0.9999, 1.0 - 1e-9, 1.0 - f64::EPSILON / 2.0];
    let capacities = [1, 1_000, 1_000_000, 1_000_000_000, 1_000_000_000_000, 1_000_000_000_000_000_000, u64::MAX];
    for (rate, capacity) in rates.into_iter().flat_map(|rate| capacities.map(|capacity| (rate, capacity))) {
        for growth in [Growth::Fixed, by(2)] {
            let _ = Filter::create(params(rate, capacity, growth, 1), &mut |bytes| bytes < 1 << 30);
        }
    }
}

#[test]
fn a_capacity_that_memory_cannot_hold_is_rejected() {
    for growth in [Growth::Fixed, by(1), by(u32::MAX)] {
        for capacity in [u64::MAX, 1 << 62] {
            let rejected = Filter::create(params(0.001, capacity, growth, 1), &mut |_| true);
            assert_eq!(rejected.err(), Some(Error::OutOfMemory), "{capacity}");
        }
    }
    // With any expansion, a filter takes only the memory that its items need.
    let mut filter = filter(0.01, 1, by(u32::MAX), 1);
    assert_eq!((filter.insert(b"first"), filter.insert(b"second")), (Ok(true), Ok(true)));
    assert!(filter.contains(b"first") && filter.memory_usage() < 1000, "{}", filter.memory_usage());
}

#[test]
fn items_have_the_same_hash_alone_and_in_any_order() {
    let items: Vec<Vec<u8>> = (0..300).map(|number| vec![b'x'; number * 7 % 300]).collect();
    let hasher = Hasher::Xxh3 { seed: 42 };
    let mut hashes = vec![Hash::default(); items.len()];
    assert_eq!(hasher.hash_all(items.iter().map(Vec::as_slice), &mut hashes), items.len());
    assert!(items.iter().zip(hashes).all(|(item, hash)| hasher.hash(item) == hash));
}
