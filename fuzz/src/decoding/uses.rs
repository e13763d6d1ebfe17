//! All operations on a filter, and their promises.

use std::ops::Range;

use oxbloom_filter::internals::{Interrupted, Kind, MergeOp, OnDuplicate, Table};
use oxbloom_filter::{Error, Filter, MergeError, Mismatch};

use crate::decoding::copies::{MEMORY_LIMIT, through_a_file, whole};
use crate::decoding::figures::{ITEMS, check_figures, check_same, count, counts};
use crate::decoding::parts::table;
use crate::input::item;

/// The maximum count of an entry of a table.
const MAX_COUNT: u64 = 1 << 48;

/// Calls all operations of a filter, adds items while they take little memory, and copies it.
pub(crate) fn use_in_every_way(filter: &mut Filter) {
    check_figures(filter);
    let before: Vec<bool> = (0..ITEMS).map(|number| filter.contains(item(number))).collect();
    let counts = counts(filter);
    let is_said_to_be_empty = filter.counts() && table(filter).is_some_and(|table| table.occurrences() == 0);
    let inserted = insert(filter, OnDuplicate::Count, 0..ITEMS);
    if filter.windowed().is_some_and(|filter| filter.slices().window().rolling) {
        // A rolling filter forgets items to make room for new ones. The `forgetting` target checks it.
        return;
    }
    assert!((0..inserted).all(|number| filter.contains(item(number))));
    assert!((inserted..ITEMS).all(|number| !before[number as usize] || filter.contains(item(number))));
    // These items are present now, so that adding them again with `Skip` changes nothing.
    let after = whole(filter);
    assert!(insert(filter, OnDuplicate::Skip, 0..inserted) == inserted);
    assert!(whole(filter) == after);
    count_again(filter, 0..inserted);

    check_figures(filter);
    check_batches(filter);
    check_same(filter, &filter.try_clone().expect("a copy"));
    check_same(filter, &through_a_file(filter));
    check_same(filter, &Filter::from_bytes(&filter.to_bytes().expect("little memory")).expect("sound bytes"));
    check_merges(filter);
    check_conversion(filter);
    check_folding(filter, inserted);
    filter.look_ahead(&item(0));

    if filter.counts() {
        remove(filter, 0..inserted);
        check_figures(filter);
        // Items that were present before are still present, with two exceptions: a header may wrongly say that the
        // table is empty; and a removal lowers a count at its maximum, which the addition before it did not raise.
        let is_there = |(now, before)| now >= before || before >= MAX_COUNT;
        assert!(is_said_to_be_empty || self::counts(filter).into_iter().zip(counts).all(is_there));
    }
}

/// Folds a filter that can be folded, which then has all items.
fn check_folding(filter: &Filter, inserted: u64) {
    let mut folded = filter.try_clone().expect("a copy");
    match folded.fold(0) {
        Ok(1) | Err(Error::CannotFold) => assert!(whole(&folded) == whole(filter)),
        Ok(_) => assert!(folded.memory_usage() < filter.memory_usage() && folded.len() == filter.len()),
        Err(error) => panic!("{error}"),
    }
    assert!((0..inserted).all(|number| folded.contains(item(number))));
    check_figures(&folded);
}

/// Converts a classic cuckoo filter into a native one, which has all items, and counts that are not too low: if both
/// buckets of an item are the same, a classic filter counts twice.
fn check_conversion(filter: &Filter) {
    let Some(converted) = filter.converted(&mut |_bytes| true).expect("little memory") else { return };
    let is_enough = |(now, before): (u64, u64)| 2 * now >= before && (now > 0) == (before > 0) || now > before;
    assert!(counts(&converted).into_iter().zip(counts(filter)).all(is_enough));
    check_figures(&converted);
    check_same(&converted, &through_a_file(&converted));
}

/// If the filter counts its items, adds another occurrence of present items, and removes it again.
fn count_again(filter: &mut Filter, numbers: Range<u64>) {
    if filter.counts() {
        let numbers = numbers.start..numbers.start + insert(filter, OnDuplicate::Count, numbers);
        assert!(numbers.clone().all(|number| count(filter, number) >= 2));
        remove(filter, numbers.clone());
        assert!(numbers.clone().all(|number| count(filter, number) >= 1));
    }
}

/// Merges a filter of our own with itself and with another. A union adds the counts; an intersection keeps the smaller
/// count.
fn check_merges(filter: &Filter) {
    if !filter.kind().is_own() || filter.kind() == Kind::Windowed {
        return;
    }
    let mut other = filter.empty_like(&mut |_bytes| true).expect("little memory");
    insert(&mut other, OnDuplicate::Count, ITEMS / 2..2 * ITEMS);
    for (one, other) in [(filter, &other), (&other, filter), (filter, filter)] {
        for op in [MergeOp::Union, MergeOp::Intersection] {
            let Some(merged) = merged(one, other, op) else { continue };
            let max = if merged.counts() { MAX_COUNT } else { 1 };
            let min = counts(one).into_iter().zip(counts(other)).map(|(one, other)| match op {
                MergeOp::Union => max.min(one + other),
                MergeOp::Intersection => one.min(other),
            });
            assert!(counts(&merged).into_iter().zip(min).all(|(count, min)| count >= min));
            check_figures(&merged);
            check_same(&merged, &through_a_file(&merged));
        }
    }
}

/// Returns the merge of two filters, if it is possible and takes little memory. Checks that a merge that is given too
/// little memory changes nothing.
fn merged(one: &Filter, other: &Filter, op: MergeOp) -> Option<Filter> {
    let mut merged = one.try_clone().expect("a copy");
    let present = (one.memory_usage() + other.memory_usage()) as u64;
    let mut taken = 0;
    let result = merged.merge(&[other], op, &mut |bytes| {
        taken += bytes;
        present + taken <= 4 * MEMORY_LIMIT
    });
    match result {
        Ok(true) => {}
        Ok(false) | Err(MergeError::OutOfMemory) => assert!(whole(&merged) == whole(one)),
        // A header may say that fingerprints are longer or shorter than a new table's.
        Err(MergeError::SourcesDiffer(Mismatch::Size)) => {
            let addressing = |filter| table(filter).map(Table::addressing);
            assert!(addressing(one) != addressing(other));
        }
        Err(error) => {
            let has_grown = matches!(error, MergeError::IntersectedGrowing | MergeError::IntersectedLayers);
            assert!(has_grown && op == MergeOp::Intersection, "{error}");
        }
    }
    result.is_ok().then_some(merged)
}

/// Removes one occurrence of each of the items, which must be present in a filter that counts.
pub(crate) fn remove(filter: &mut Filter, mut numbers: Range<u64>) {
    assert!(numbers.all(|number| filter.remove(item(number)) == Ok(true)));
}

/// Inserts items until one does not fit. Returns the number of items that fit.
pub(crate) fn insert(filter: &mut Filter, on_duplicate: OnDuplicate, numbers: Range<u64>) -> u64 {
    let hashes: Vec<_> = numbers.map(|number| filter.hash(&item(number))).collect();
    let mut new = vec![true; hashes.len()];
    let inserted = filter.insert_hashes(&hashes, &mut new, &mut [], &on_duplicate.into(), &mut |_bytes| false);
    let Err(Interrupted { handled, .. }) = inserted else { return hashes.len() as u64 };
    let (rest, new) = (&hashes[handled..], &mut new[handled..]);
    let mut expected = filter.try_clone().expect("a copy");
    let present = filter.memory_usage() as u64;
    let mut taken = 0;
    let grown = filter.insert_hashes(rest, new, &mut [], &on_duplicate.into(), &mut |bytes| {
        let is_little = present + taken + bytes <= 2 * MEMORY_LIMIT;
        taken += if is_little { bytes } else { 0 };
        is_little
    });
    let Err(Interrupted { handled: more, error }) = grown else { return hashes.len() as u64 };
    match error {
        Error::Full => assert_eq!(filter.expansion(), None),
        _ => assert!(filter.expansion().is_some() || filter.counts() || filter.windowed().is_some()),
    }
    // The item that does not fit must change nothing.
    assert_eq!(expected.insert_hashes(&rest[..more], new, &mut [], &on_duplicate.into(), &mut |_bytes| true), Ok(()));
    assert!(whole(filter) == whole(&expected));
    (handled + more) as u64
}

/// Panics unless look-ups in batches and of single items agree.
fn check_batches(filter: &Filter) {
    let items: Vec<_> = (0..2 * ITEMS).map(item).collect();
    let mut items = items.iter().map(|item| item.as_slice()).peekable();
    let mut number = 0;
    while items.peek().is_some() {
        let batch = filter.hash_batch(&mut items);
        let mut found = vec![false; batch.hashes().len()];
        filter.contains_hashes(batch.hashes(), &mut found, 0);
        for found in found {
            assert_eq!(found, filter.contains(item(number)));
            number += 1;
        }
    }
}
