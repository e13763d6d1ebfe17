//! Unions and intersections of quotient tables.

use oxbloom_filter::Error;
use oxbloom_filter::internals::{Payload, Table};

use crate::table::{EXACT, add, hash, hash_from, new, parts};

/// Returns a table of the items from `first` on. In a multiset, each item has a count of one to ten.
fn table(growing: bool, payload: Payload, first: u64, items: u64) -> Table {
    let mut table = new(EXACT, 100_000, growing, payload);
    let times = |number| if payload == Payload::Count { 1 + number % 10 } else { 1 };
    for number in (first..first + items).flat_map(|number| (0..times(number)).map(move |_| number)) {
        add(&mut table, number);
    }
    table
}

/// Adds all parts of a table. Returns true if that changed `table`.
fn add_parts_of(table: &mut Table, other: &Table) -> bool {
    parts(other, 10_000).iter().filter(|part| table.add_part(part, &mut |_bytes| true).unwrap()).count() > 0
}

fn union_of(tables: &[(&Table, u64)]) -> Table {
    Table::union_of(tables.iter().copied(), &mut |_bytes| true).unwrap()
}

/// Panics unless a table is the same after it was stored.
pub(crate) fn assert_sums_are_right(table: &Table) {
    let mut copy = Table::new(table.addressing(), table.payload()).unwrap();
    add_parts_of(&mut copy, table);
    assert!(copy.holds_the_same(table).unwrap());
    assert_eq!((copy.slots(), copy.segments()), (table.slots(), table.segments()));
    assert_eq!((copy.allocated(), copy.false_positive_rate()), (table.allocated(), table.false_positive_rate()));
}

/// Tables of fixed size have many segments. A few items leave most of them empty.
#[test]
fn a_union_counts_each_item_as_often_as_its_parts_together() {
    for (growing, payload) in [true, false]
        .into_iter()
        .flat_map(|growing| [Payload::Nothing, Payload::Count].map(|payload| (growing, payload)))
    {
        for [of_one, of_other] in [[0, 5], [5, 4], [10, 2000], [300, 300], [1500, 1400], [9000, 100]] {
            let one = table(growing, payload, 0, of_one);
            let other = table(growing, payload, of_one / 2, of_other);
            for times in if payload == Payload::Count { [1, 2, 100] } else { [1; 3] } {
                for operands in [[(&one, 1), (&other, times)], [(&other, times), (&one, 1)]] {
                    let union = union_of(&operands);
                    let sum_of = |count: &dyn Fn(&Table) -> u64| count(&one) + times * count(&other);
                    for item in (0..of_one + of_other).map(hash) {
                        let sum = sum_of(&|table| table.count(item));
                        assert_eq!(union.count(item), if payload == Payload::Count { sum } else { sum.min(1) });
                    }
                    assert_eq!(union.occurrences(), sum_of(&|table| table.occurrences()));
                    assert_sums_are_right(&union);
                }
            }
        }
    }
}

/// Segments split by their own slots, so that a part of one table can be deeper than that of the other, or empty.
#[test]
fn a_union_has_all_items_of_tables_with_uneven_segments() {
    let parts = [
        vec![(0, 0, 100)],
        vec![(0, 0, 3000)],
        vec![(0, 1, 3000)],
        vec![(1, 1, 3000), (0b10, 2, 30)],
        vec![(0b11, 2, 3000), (0b10, 2, 40), (0, 1, 5)],
        vec![(0b1101, 4, 5000), (0b1011, 4, 50)],
        vec![(0, 1, 6000), (0b11, 2, 20)],
    ];
    let hashes = parts.map(|parts| -> Vec<_> {
        let hashes_of = |(prefix, length, items)| (0..items).map(move |number| hash_from(prefix, length, number));
        parts.into_iter().flat_map(hashes_of).collect()
    });
    for (payload, times) in [(Payload::Nothing, 1), (Payload::Count, 1), (Payload::Count, 3)] {
        let tables = hashes.each_ref().map(|hashes| {
            let mut table = new(EXACT, 0, true, payload);
            hashes.iter().for_each(|&hash| assert!(table.add(hash, &mut |_bytes| true).is_ok()));
            table
        });
        for (one, other) in (0..tables.len()).flat_map(|one| (0..tables.len()).map(move |other| (one, other))) {
            let union = union_of(&[(&tables[one], 1), (&tables[other], times)]);
            for &hash in hashes[one].iter().chain(&hashes[other]) {
                let [own, added] = [one, other].map(|table| tables[table].count(hash));
                let held = if payload == Payload::Count { own + times * added } else { own.max(added) };
                assert_eq!(union.count(hash), held, "{one} and {other}, {times} times");
            }
            assert_eq!(union.occurrences(), tables[one].occurrences() + times * tables[other].occurrences());
            assert_sums_are_right(&union);
        }
    }
}

#[test]
fn runs_that_would_be_too_long_together_are_rejected() {
    let of = |items: std::ops::Range<u64>, others| {
        let mut table = new(EXACT, 0, true, Payload::Count);
        let beside = (items.start..items.start + others).map(|number| hash_from(1, 1, number));
        let hashes = items.map(|number| hash_from(0, 30, number)).chain(beside);
        { hashes }.for_each(|hash| assert!(table.add(hash, &mut |_bytes| true).is_ok()));
        table
    };
    // A segment that would be too full doubles first.
    for (more, others) in [(56, 0), (57, 0), (56, 1000), (57, 1000)] {
        let [one, other] = [of(0..200, others), of(1000..1000 + more, others)];
        let union = Table::union_of([(&one, 1), (&other, 1)].into_iter(), &mut |_bytes| true);
        match union {
            Ok(union) => {
                assert_eq!(more, 56);
                let mut items = (0..200).chain(1000..1000 + more);
                assert!(items.all(|number| union.contains(hash_from(0, 30, number))));
            }
            Err(error) => assert_eq!((more, error), (57, Error::CannotGrow)),
        }
    }
}

/// A table of fixed size stays divided when its items are removed.
#[test]
fn a_union_is_not_divided_where_it_has_no_items() {
    let one = table(false, Payload::Count, 1000, 5);
    let mut other = table(false, Payload::Count, 0, 30);
    while (0..29).any(|number| other.remove(hash(number))) {}
    let fresh = table(false, Payload::Count, 29, 1);
    assert!(other.segments() > fresh.segments());
    let [after_removals, of_fresh] = [&other, &fresh].map(|other| union_of(&[(&one, 1), (other, 1)]));
    assert!(after_removals.holds_the_same(&of_fresh).unwrap());
    assert_eq!(after_removals.allocated(), of_fresh.allocated());
}

/// Each segment of the tables doubles once or twice when another table's entries come.
#[test]
fn a_union_has_as_many_quotients_as_slots_and_no_higher_error_rate_than_its_parts_together() {
    for (of_one, of_other) in [(1900, 2000), (20_000, 100_000), (30_000, 31_000)] {
        let [one, other] = [(0, of_one), (1_000_000, of_other)].map(|(first, items)| {
            let mut table = new(0.01, 0, true, Payload::Nothing);
            for number in first..first + items {
                add(&mut table, number);
            }
            table
        });
        let most = one.false_positive_rate() + other.false_positive_rate();
        let [mut small, mut large] = [&one, &other].map(|table| table.try_clone().unwrap());
        add_parts_of(&mut small, &other);
        add_parts_of(&mut large, &one);
        for union in [union_of(&[(&one, 1), (&other, 1)]), small, large] {
            assert!(union.slots() as f64 <= 1.02 * union.quotients() as f64, "{of_one} and {of_other} items");
            assert!(union.quotients() <= 2 * union.slots(), "{of_one} and {of_other} items");
            let rate = union.false_positive_rate();
            assert!(rate <= 1.001 * most, "{of_one} and {of_other} items: {rate} of {most}");
        }
    }
}

#[test]
fn a_part_changes_a_set_if_it_adds_an_entry() {
    const ITEMS: u64 = 3000;
    let before = table(true, Payload::Nothing, 0, ITEMS);
    // How the entries are added depends on their number.
    for of_both in [1, 20, 300, ITEMS] {
        let other = table(true, Payload::Nothing, 0, of_both);
        assert!(!add_parts_of(&mut before.try_clone().unwrap(), &other), "{of_both} items");
        for more in (0..30).map(|first| ITEMS + first..ITEMS + first + first % 5 + 1) {
            let mut set = before.try_clone().unwrap();
            let mut other = other.try_clone().unwrap();
            for number in more.clone() {
                add(&mut other, number);
            }
            assert!(add_parts_of(&mut set, &other), "{of_both} items, and {more:?}");
            assert!(!add_parts_of(&mut set, &other), "again");
            assert!(!set.holds_the_same(&before).unwrap());
        }
    }
}

#[test]
fn an_intersection_has_the_lower_count_of_each_item() {
    for payload in [Payload::Nothing, Payload::Count] {
        for [of_one, of_other] in [[0, 5], [5, 4], [10, 2000], [1500, 1400], [9000, 100]] {
            let one = table(false, payload, 0, of_one);
            let mut other = table(false, payload, of_one / 2, of_other);
            for number in 0..3 {
                add(&mut other, number);
            }
            for (one, other) in [(&one, &other), (&other, &one)] {
                let common = one.intersection(other).unwrap();
                let mut sum = 0;
                for item in (0..of_one + of_other).map(hash) {
                    let lower = one.count(item).min(other.count(item));
                    assert_eq!(common.count(item), lower);
                    sum += lower;
                }
                assert_eq!(common.occurrences(), sum);
                assert_sums_are_right(&common);
            }
        }
    }
}
