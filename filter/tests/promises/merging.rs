//! Merges: the items of the result, its counts, and the filters that cannot be merged.

use oxbloom_filter::internals::{Growth, Kind, KindParams, MergeOp, codec};
use oxbloom_filter::{Error, Filter, MergeError, Mismatch};
use proptest::prelude::*;

use crate::model::{
    CLASSIC, body, built, by, content_bytes, create, item, native_of, params_of, through_a_file, whole, with_checksum,
};
use crate::recorded;

const NATIVE: KindParams = KindParams::Native { seed: 7 };
const COUNTING: KindParams = KindParams::Counting { seed: 7 };
const KINDS: [KindParams; 3] = [NATIVE, COUNTING, CLASSIC];

fn empty(error_rate: f64, capacity: u64, growth: Growth, kind: KindParams) -> Filter {
    create(params_of(kind, error_rate, capacity, growth))
}

fn add(filter: &mut Filter, mut numbers: impl Iterator<Item = u64>) {
    assert!(numbers.all(|number| filter.insert(item(number)).is_ok()));
}

/// Adds the items that fit.
fn add_some(filter: &mut Filter, numbers: impl Iterator<Item = u64>) {
    numbers.map(|number| filter.insert(item(number))).for_each(|_| ());
}

fn filled_for(capacity: u64, numbers: impl Iterator<Item = u64>) -> Filter {
    let mut filter = empty(0.01, capacity, by(2), NATIVE);
    add(&mut filter, numbers);
    filter
}

fn filled(kind: KindParams, growth: Growth, numbers: impl Iterator<Item = u64>) -> Filter {
    let mut filter = empty(0.01, 1000, growth, kind);
    add(&mut filter, numbers);
    filter
}

fn merged(sources: &[&Filter], operation: MergeOp) -> Filter {
    Filter::merged(sources, operation, &mut |_| true).unwrap()
}

/// Returns a copy of `target` with `sources` merged into it.
fn merged_into(target: &Filter, sources: &[&Filter], operation: MergeOp) -> Filter {
    let mut target = target.try_clone().unwrap();
    target.merge(sources, operation, &mut |_| true).unwrap();
    target
}

fn contains_all(filter: &Filter, mut numbers: impl Iterator<Item = u64>) -> bool {
    numbers.all(|number| filter.contains(item(number)))
}

fn count(filter: &Filter, number: u64) -> u64 {
    filter.count(item(number)).unwrap()
}

fn remove(filter: &mut Filter, number: u64) -> bool {
    filter.remove(item(number)).unwrap()
}

/// Combines the bytes of both filters one by one.
fn bytes_by(one: &Filter, other: &Filter, rule: impl Fn(u8, u8) -> u8) -> Vec<u8> {
    let (one, other) = (content_bytes(one), content_bytes(other));
    assert_eq!(one.len(), other.len());
    one.iter().zip(&other).map(|(&one, &other)| rule(one, other)).collect()
}

#[test]
fn a_union_is_the_filter_that_all_items_would_have_made() {
    for kind in [NATIVE, CLASSIC] {
        let one = filled(kind, Growth::Fixed, 0..300);
        let other = filled(kind, Growth::Fixed, 200..600);
        let third = filled(kind, Growth::Fixed, 900..950);
        let all = filled(kind, Growth::Fixed, (0..600).chain(900..950));
        assert!(content_bytes(&merged(&[&one, &other, &third], MergeOp::Union)) == content_bytes(&all), "{kind:?}");
        assert!(
            content_bytes(&merged_into(&one, &[&other, &third], MergeOp::Union)) == content_bytes(&all),
            "{kind:?}"
        );
    }
}

/// Asserts that a merge has all sources' items, with their counts, and no more memory than a filter that was loaded.
fn check_union_of_many(kind: KindParams, growth: Growth, capacity: u64) {
    const SOURCES: u64 = 60;
    let items_of = |source: u64| source * 290..source * 290 + 300;
    let source_with = |numbers: std::ops::Range<u64>| {
        // No item of this test is a false positive.
        let mut source = empty(1e-9, capacity, growth, kind);
        // One item of each source is added often, so that its count needs several slots.
        let often = numbers.start..numbers.start + 1;
        add(&mut source, numbers.chain(often.cycle().take(100)));
        source
    };
    let sources: Vec<Filter> = (0..SOURCES).map(|source| source_with(items_of(source))).collect();
    // The first source is named three times.
    let named: Vec<&Filter> = sources.iter().chain([&sources[0], &sources[0]]).collect();
    let union = merged(&named, MergeOp::Union);
    assert!(contains_all(&union, 0..SOURCES * 290 + 10), "{kind:?}");
    if kind == COUNTING {
        for number in 0..SOURCES * 290 + 10 {
            let sum = named.iter().map(|source| count(source, number)).sum::<u64>();
            assert_eq!(count(&union, number), sum, "{number}");
        }
    }
    let loaded = through_a_file(&union);
    assert!(whole(&loaded) == whole(&union));
    assert_eq!(loaded.memory_usage(), union.memory_usage());
}

#[test]
fn a_union_of_many_filters_has_all_their_items() {
    check_union_of_many(NATIVE, by(2), 10);
    check_union_of_many(COUNTING, by(2), 10);
    check_union_of_many(COUNTING, Growth::Fixed, 20_000);
}

#[test]
fn an_intersection_has_the_items_of_all() {
    for kind in KINDS {
        let [one, other] = [0..600, 400..1000].map(|numbers| filled(kind, Growth::Fixed, numbers));
        for both in
            [merged(&[&one, &other], MergeOp::Intersection), merged_into(&one, &[&other], MergeOp::Intersection)]
        {
            assert!(contains_all(&both, 400..600), "{kind:?}");
            match kind {
                COUNTING => assert!(
                    (0..2_000).all(|number| { count(&both, number) == count(&one, number).min(count(&other, number)) })
                ),
                _ => assert!(content_bytes(&both) == bytes_by(&one, &other, |one, other| one & other), "{kind:?}"),
            }
            assert!(both.len() <= 600);
        }
    }
}

#[test]
fn filters_that_grew_are_merged_layer_by_layer() {
    for kind in [NATIVE, CLASSIC] {
        let shallow = filled(kind, by(2), 0..900);
        let deep = filled(kind, by(2), 5000..14_000);
        assert_eq!((shallow.num_layers(), deep.num_layers()), (1, if kind == NATIVE { 2 } else { 4 }));
        for both in [
            merged(&[&shallow, &deep], MergeOp::Union),
            merged(&[&deep, &shallow], MergeOp::Union),
            merged_into(&shallow, &[&deep], MergeOp::Union),
            merged_into(&deep, &[&shallow], MergeOp::Union),
        ] {
            assert_eq!(both.num_layers(), deep.num_layers());
            assert!(contains_all(&both, (0..900).chain(5000..14_000)), "{kind:?}");
            let [united, deep] = [&both, &deep].map(|filter| filter.layers().skip(1).collect::<Vec<_>>());
            assert_eq!(united, deep, "the layers that only one filter has");
        }
    }
}

/// Merges filters of several sizes. Each is the first source once.
#[test]
fn grown_filters_of_any_sizes_are_merged() {
    let sizes = [10, 900, 3_000, 30_000, 100_000];
    let filters: Vec<Filter> =
        (0..).zip(sizes).map(|(first, size)| filled(NATIVE, by(2), first * 50_000..first * 50_000 + size)).collect();
    let all = || (0u64..).zip(sizes).flat_map(|(first, size)| first * 50_000..first * 50_000 + size);
    for turn in 0..filters.len() {
        let sources: Vec<&Filter> = filters.iter().cycle().skip(turn).take(filters.len()).collect();
        for mut both in [merged(&sources, MergeOp::Union), merged_into(sources[0], &sources[1..], MergeOp::Union)] {
            assert!(contains_all(&both, all()));
            assert!(both.capacity() >= both.len());
            assert!((120_000..=140_000).contains(&both.len()), "{}", both.len());
            assert_eq!(both.merge(&sources, MergeOp::Union, &mut |_| true), Ok(false));
            let copy = through_a_file(&both);
            assert!(whole(&copy) == whole(&both));
        }
    }
}

proptest! {
    /// Compares merged filters with exact multisets.
    #[test]
    fn merged_items_are_found_and_can_be_removed_as_often_as_they_were_added(
        one in prop::collection::vec(0u64..40, 0..60),
        other in prop::collection::vec(0u64..40, 0..60),
        union: bool,
        into: bool,
    ) {
        let [first, second] = [&one, &other].map(|numbers| {
            let mut filter = empty(0.2, 60, Growth::Fixed, COUNTING);
            add(&mut filter, numbers.iter().copied());
            filter
        });
        let operation = if union { MergeOp::Union } else { MergeOp::Intersection };
        let mut both = if into {
            merged_into(&first, &[&second], operation)
        } else {
            merged(&[&first, &second], operation)
        };
        prop_assert!(whole(&through_a_file(&both)) == whole(&both));
        let occurrences = |numbers: &[u64], number| numbers.iter().filter(|&&n| n == number).count() as u64;
        let mut left: Vec<(u64, u64)> = (0..40)
            .map(|number| {
                let [one, other] = [&one, &other].map(|numbers| occurrences(numbers, number));
                (number, if union { one + other } else { one.min(other) })
            })
            .collect();
        while let Some(index) = left.iter().position(|&(_, occurrences)| occurrences > 0) {
            for &(number, occurrences) in &left {
                prop_assert!(count(&both, number) >= occurrences, "{number}");
                prop_assert!(occurrences == 0 || both.contains(item(number)), "{number}");
            }
            prop_assert!(remove(&mut both, left[index].0));
            left[index].1 -= 1;
        }
    }
}

/// For a union of `n` items, the standard deviation of the estimate is less than `sqrt(n)`. The test allows six
/// deviations.
/// The first items of a filter that grows may be fingerprints, which move to a table.
#[test]
fn a_union_of_small_and_grown_filters_has_all_their_items() {
    const SIZES: [u64; 6] = [0, 7, 60, 100, 101, 1000];
    for (one, other) in SIZES.into_iter().flat_map(|one| SIZES.map(|other| (one, other))) {
        for first in [0, one / 2, one] {
            let filters = [0..one, first..first + other].map(|numbers| filled_for(100, numbers));
            let all = one.max(first + other);
            let of_all = filled_for(100, 0..all);
            let [ours, theirs] = &filters;
            let unions = [merged(&[ours, theirs], MergeOp::Union), merged_into(ours, &[theirs], MergeOp::Union)];
            for union in unions {
                assert!(contains_all(&union, (0..one).chain(first..first + other)), "{one} {first} {other}");
                let [least, most] = [ours.len().max(theirs.len()), ours.len() + theirs.len()];
                assert!((least..=most).contains(&union.len()), "{one} {first} {other}: {}", union.len());
                assert!(union.false_positive_rate() <= 0.01);
                // Equal sets of fingerprints have equal bytes.
                assert!(of_all.len() > 100 || content_bytes(&union) == content_bytes(&of_all));
                assert!(whole(&through_a_file(&union)) == whole(&union));
                let again = merged_into(&union, &[ours, theirs], MergeOp::Union);
                assert!(whole(&again) == whole(&union), "a union that changes nothing");
            }
            let intersection = Filter::merged(&[ours, theirs], MergeOp::Intersection, &mut |_| true);
            if filters.iter().any(|filter| native_of(filter).table().is_some()) {
                assert_eq!(intersection.err(), Some(MergeError::IntersectedLayers));
            } else {
                assert!(contains_all(&intersection.unwrap(), first..one.min(first + other)));
            }
        }
    }
}

#[test]
fn the_items_of_a_union_are_estimated_from_its_fill() {
    for kind in KINDS {
        for overlap in [0, 100, 250, 500] {
            let [one, other] =
                [0..500, 500 - overlap..1000 - overlap].map(|numbers| filled(kind, Growth::Fixed, numbers));
            let both = merged(&[&one, &other], MergeOp::Union);
            let (items, truth) = (both.len() as f64, 1000.0 - overlap as f64);
            // The sources did not count the few items that were false positives.
            assert!((items - truth).abs() < 6.0 * truth.sqrt(), "{kind:?} {overlap}: {items}");
            assert_eq!(both.is_estimate(), if kind == CLASSIC { None } else { Some(true) });
            assert!(whole(&through_a_file(&both)) == whole(&both));
            assert_eq!(through_a_file(&both).is_estimate(), both.is_estimate());
            // The union with a filter without items is as uncertain.
            let same = merged(&[&both, &filled(kind, Growth::Fixed, 0..0)], MergeOp::Union);
            assert_eq!((same.len(), same.is_estimate()), (both.len(), both.is_estimate()));
        }
    }
}

#[test]
fn the_number_of_items_stays_exact_if_nothing_has_to_be_estimated() {
    for kind in KINDS {
        let one = filled(kind, Growth::Fixed, 0..500);
        let none = filled(kind, Growth::Fixed, 0..0);
        let expected = if kind == CLASSIC { None } else { Some(false) };
        for same in [
            merged(&[&one], MergeOp::Union),
            merged(&[&one], MergeOp::Intersection),
            merged(&[&none, &one, &none], MergeOp::Union),
            merged_into(&one, &[&none], MergeOp::Union),
            merged_into(&none, &[&one], MergeOp::Union),
        ] {
            assert!(content_bytes(&same) == content_bytes(&one));
            assert_eq!((same.len(), same.is_estimate()), (one.len(), expected), "{kind:?}");
        }
        let nothing = merged(&[&one, &none], MergeOp::Intersection);
        assert_eq!((nothing.len(), nothing.fill(), nothing.is_estimate()), (0, 0.0, expected));
    }
}

#[test]
fn a_merge_that_changes_nothing_returns_false() {
    for kind in [NATIVE, CLASSIC] {
        let (mut all, part) = (filled(kind, Growth::Fixed, 0..500), filled(kind, Growth::Fixed, 0..100));
        let before = whole(&all);
        assert_eq!(all.merge(&[&part], MergeOp::Union, &mut |_| true), Ok(false));
        assert!(whole(&all) == before);
        assert_eq!(all.merge(&[&part], MergeOp::Intersection, &mut |_| true), Ok(true));
    }
    // Counts add up, so only an empty filter changes nothing.
    let [mut all, none, one] = [0..500, 0..0, 0..1].map(|numbers| filled(COUNTING, Growth::Fixed, numbers));
    assert_eq!(all.merge(&[&none], MergeOp::Union, &mut |_| true), Ok(false));
    assert_eq!(all.merge(&[&one], MergeOp::Union, &mut |_| true), Ok(true));
}

/// The bits of a source's layer may not have been loaded yet.
#[test]
fn a_merge_that_only_adds_layers_is_a_change() {
    for kind in [NATIVE, CLASSIC] {
        let (mut shallow, deep) = (filled(kind, by(2), 0..900), filled(kind, by(2), 0..2000));
        let bare = built(&codec::encode_header(&deep).unwrap()).unwrap();
        assert_eq!(shallow.merge(&[&bare], MergeOp::Union, &mut |_| true), Ok(true));
        assert_eq!(shallow.num_layers(), 2);
        assert_eq!(shallow.merge(&[&bare], MergeOp::Union, &mut |_| true), Ok(false));
    }
}

#[test]
fn an_overfull_union_reports_its_error_rate_and_grows_with_the_next_item() {
    for kind in KINDS {
        for growth in [Growth::Fixed, by(2)] {
            let [one, other] = [0..1000, 5000..6000].map(|numbers| {
                let mut filter = empty(0.01, 1000, growth, kind);
                // Adds as many items as fit: false positives take no room.
                add_some(&mut filter, numbers);
                filter
            });
            assert!(one.num_layers() == 1 && other.num_layers() == 1);
            let mut both = merged(&[&one, &other], MergeOp::Union);
            assert!(both.len() > 1500, "{kind:?}");
            // A table with twice the items has twice the error rate, or grows and keeps it.
            let exceeds = match (kind, growth) {
                (COUNTING, Growth::Fixed) => 0.018,
                (COUNTING, Growth::By(_)) => 0.0,
                _ => 0.05,
            };
            assert!(one.false_positive_rate() < 0.0101 && both.false_positive_rate() > exceeds, "{kind:?}");
            let absent = (10_000..).find(|&number| !both.contains(item(number))).unwrap();
            match growth {
                Growth::Fixed => assert_eq!(both.insert(item(absent)), Err(Error::Full)),
                Growth::By(_) => {
                    assert_eq!(both.insert(item(absent)), Ok(true));
                    assert_eq!(both.num_layers(), if kind == COUNTING { 1 } else { 2 }, "{kind:?}");
                }
            }
            let copy = through_a_file(&both);
            assert!(whole(&copy) == whole(&both));
        }
    }
}

#[test]
fn filters_that_differ_are_rejected_with_the_first_difference() {
    let base = empty(0.01, 1000, by(2), NATIVE);
    let cases = [
        (empty(0.01, 1000, by(2), COUNTING), Mismatch::Layout),
        (empty(0.01, 1000, by(2), CLASSIC), Mismatch::Layout),
        (empty(0.02, 1100, by(2), NATIVE), Mismatch::ErrorRate),
        (empty(0.01, 1100, by(3), NATIVE), Mismatch::Capacity),
        (empty(0.01, 1000, Growth::Fixed, NATIVE), Mismatch::Expansion),
        (empty(0.01, 1000, Growth::Fixed, KindParams::Native { seed: 8 }), Mismatch::Expansion),
        (empty(0.01, 1000, by(3), KindParams::Native { seed: 8 }), Mismatch::Seed),
    ];
    for (other, parameter) in &cases {
        let rejected = Err(MergeError::SourcesDiffer(*parameter));
        assert_eq!(Filter::merged(&[&base, other], MergeOp::Union, &mut |_| true).map(drop), rejected);
        assert_eq!(Filter::merged(&[other, &base], MergeOp::Union, &mut |_| true).map(drop), rejected);
        let mut target = filled(NATIVE, by(2), 0..100);
        let before = whole(&target);
        let merged = target.merge(&[&base, other], MergeOp::Union, &mut |_| true);
        assert_eq!(merged, Err(MergeError::SourcesDiffer(*parameter)));
        assert!(whole(&target) == before);
    }
}

/// Another version may choose other lengths of fingerprints, even for a table that the destination does not have yet.
#[test]
fn tables_of_other_shapes_are_not_merged() {
    let (shallow, deep) = (filled(NATIVE, by(2), 0..900), filled(NATIVE, by(2), 0..2000));
    assert_eq!((shallow.num_layers(), deep.num_layers()), (1, 2));
    let mut header = body(&deep);
    // Changes the length of the table's fingerprints.
    header[32 + 40 + 34] += 1;
    let other = built(&with_checksum(&header)).unwrap();
    let rejected = Err(MergeError::SourcesDiffer(Mismatch::Size));
    for sources in [[&deep, &other], [&other, &deep]] {
        let mut target = shallow.try_clone().unwrap();
        assert_eq!(target.merge(&sources, MergeOp::Union, &mut |_| true), rejected);
        assert!(whole(&target) == whole(&shallow));
        assert_eq!(Filter::merged(&sources, MergeOp::Union, &mut |_| true).map(drop), rejected.map(drop));
    }
    assert_eq!(deep.try_clone().unwrap().merge(&[&other], MergeOp::Union, &mut |_| true), rejected);
    let counting = filled(COUNTING, by(2), 0..900);
    let mut header = body(&counting);
    header[32 + 16 + 34] += 1;
    let other = built(&with_checksum(&header)).unwrap();
    assert_eq!(counting.try_clone().unwrap().merge(&[&other], MergeOp::Union, &mut |_| true), rejected);
}

/// Their items have other hashes, so a union would lose some of them.
#[test]
fn filters_with_other_hash_functions_differ_in_their_layouts() {
    let murmur64 = empty(0.01, 1000, by(2), CLASSIC);
    let mut header = codec::encode_header(&murmur64).unwrap();
    // Clears the option for hashes of 64 bits.
    header[12] &= !4;
    let murmur32 = built(&header).unwrap();
    for (one, other) in [(&murmur64, &murmur32), (&murmur32, &murmur64)] {
        let merged = one.clone().merge(&[other], MergeOp::Union, &mut |_| true);
        assert_eq!(merged, Err(MergeError::SourcesDiffer(Mismatch::Layout)));
    }
}

#[test]
fn some_kinds_of_filters_are_never_merged() {
    let mut plain = filled(NATIVE, by(2), 0..100);
    for (name, mut filter) in recorded::filters() {
        let error = match filter.kind() {
            Kind::Windowed => MergeError::MergedWindows,
            Kind::Cuckoo => MergeError::MergedCuckoo,
            Kind::Valkey => MergeError::MergedValkey,
            _ => continue,
        };
        let (other, before) = (filter.clone(), whole(&filter));
        assert_eq!([filter.union_with(&other), filter.intersect_with(&other)], [Err(error); 2], "{name}");
        assert_eq!([filter.union_with(&plain), plain.union_with(&filter)], [Err(error); 2], "{name}");
        assert!(whole(&filter) == before, "{name}");
    }
}

/// A server with little memory admits a merge if the memory that it frees is enough.
#[test]
fn a_merge_replaces_only_the_tables_that_it_changes() {
    let [blocks, table] = [0..900, 0..3000].map(|numbers| filled(NATIVE, by(2), numbers));
    let bytes = table.memory_usage() - blocks.memory_usage();
    assert_eq!((blocks.table_bytes(), table.table_bytes()), (0, bytes as u64));
    for (sources, replaced) in [([&blocks, &blocks], 0), ([&blocks, &table], bytes), ([&table, &table], bytes)] {
        assert_eq!(table.replaced_by_merge(&sources), replaced as u64);
        assert_eq!(blocks.replaced_by_merge(&sources), 0);
    }
    let [counting, classic] = [COUNTING, CLASSIC].map(|kind| filled(kind, by(2), 0..3000));
    assert_eq!(counting.replaced_by_merge(&[&counting]) as usize, counting.memory_usage() - size_of::<Filter>());
    assert_eq!((classic.table_bytes(), classic.replaced_by_merge(&[&classic])), (0, 0));
}

#[test]
fn only_single_layers_and_fixed_tables_are_intersected() {
    for kind in KINDS {
        let [one, grown] = [0..900, 0..3000].map(|numbers| filled(kind, by(2), numbers));
        let before = whole(&one);
        let mut target = one.try_clone().unwrap();
        for operation in [MergeOp::Union, MergeOp::Intersection] {
            let expected = match (kind, operation) {
                (_, MergeOp::Union) => continue,
                (COUNTING, _) => MergeError::IntersectedGrowing,
                (_, MergeOp::Intersection) => MergeError::IntersectedLayers,
            };
            assert_eq!(target.merge(&[&grown], operation, &mut |_| true), Err(expected));
            assert_eq!(Filter::merged(&[&one, &grown], operation, &mut |_| true).map(drop), Err(expected));
            let into_grown = grown.try_clone().unwrap().merge(&[&one], operation, &mut |_| true);
            assert_eq!(into_grown, Err(expected));
            assert!(whole(&target) == before);
        }
    }
}

#[test]
fn a_failed_allocation_leaves_the_filters_as_they_were() {
    for kind in [NATIVE, CLASSIC] {
        let (mut one, grown) = (filled(kind, by(2), 0..900), filled(kind, by(2), 0..3000));
        let before = whole(&one);
        let mut asked = 0;
        let rejected = one.merge(&[&grown], MergeOp::Union, &mut |bytes| {
            asked = bytes;
            false
        });
        assert_eq!(rejected, Err(MergeError::OutOfMemory));
        assert!(whole(&one) == before);
        let more = grown.memory_usage() - one.memory_usage();
        assert!(more.abs_diff(asked as usize) < 1000, "{kind:?}: {asked} of {more}");
        let rejected = Filter::merged(&[&one, &grown], MergeOp::Union, &mut |bytes| {
            asked = bytes;
            false
        });
        assert_eq!(rejected.map(drop), Err(MergeError::OutOfMemory));
        assert!(asked > 0);
    }
}

/// Bits are merged in parts of 4 KiB. The last part can be shorter, and bytes that stay zero are not written.
#[test]
fn all_sizes_are_merged_to_the_last_byte() {
    for capacity in [1, 2, 5, 33, 100, 1000, 12_345, 100_000] {
        for kind in KINDS {
            let [one, other] = [0, 1].map(|from| {
                let mut filter = empty(0.001, capacity, Growth::Fixed, kind);
                add_some(&mut filter, (from..capacity).step_by(2));
                filter
            });
            let both = merged(&[&one, &other], MergeOp::Union);
            assert!(contains_all(&both, 0..capacity / 2), "{capacity} {kind:?}");
            let copy = through_a_file(&both);
            assert_eq!(copy.fill(), both.fill());
            assert!(whole(&copy) == whole(&both));
        }
    }
}
