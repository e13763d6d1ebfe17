//! Quotient tables that forget, by themselves.

use std::ops::Range;

use oxbloom_filter::Error::{self, CannotGrow, OutOfMemory};
use oxbloom_filter::internals::{AddOutcome, Admit, Hash, Payload, SliceAddition, Stamps, Table};

use crate::table::{EXACT, hash, hash_from, new};
use crate::unions::assert_sums_are_right;

const FORGETTING: Payload = Payload::Slice(Stamps { forgotten: 0, span: 4 });

/// Adds an item to a slice, and then forgets slices up to `forgotten`.
fn add(table: &mut Table, hash: Hash, slice: u64, forgotten: u64, admit: Admit<'_>) -> Result<AddOutcome, Error> {
    let forgotten_before = table.forgotten();
    let addition = SliceAddition { forgotten_before, forgotten_after: forgotten, slice, refresh: false };
    table.add_to_slice(hash, addition, admit)
}

/// Adds items to a slice, whose hashes begin with the `length` bits of `prefix`.
fn fill(table: &mut Table, slice: u64, (prefix, length): (u64, u32), numbers: Range<u64>) {
    for number in numbers {
        let forgotten = table.forgotten();
        let added = add(table, hash_from(prefix, length, number), slice, forgotten, &mut |_bytes| true);
        assert_eq!(added, Ok(AddOutcome::New), "item {number}");
    }
}

fn forget(table: &mut Table, slice: u64) {
    table.mark_forgotten(slice);
    let mut position = 0;
    while {
        position = table.sweep(position);
        position > 0
    } {}
}

#[test]
fn a_segment_full_of_forgotten_slots_needs_no_memory_for_another_item() {
    let mut table = new(EXACT, 0, true, FORGETTING);
    fill(&mut table, 1, (0, 1), 0..64);
    fill(&mut table, 3, (1, 1), 0..64);
    assert_eq!(table.slots(), table.quotients());
    let item = hash_from(1, 1, 64);
    assert_eq!(add(&mut table, item, 4, 0, &mut |_bytes| false), Err(OutOfMemory));
    assert_eq!(add(&mut table, item, 4, 1, &mut |_bytes| false), Ok(AddOutcome::New));
    assert_eq!(table.slots(), 65);
}

#[test]
fn a_failed_addition_forgets_nothing_unless_it_dropped_slots() {
    let mut table = new(EXACT, 0, true, FORGETTING);
    fill(&mut table, 3, (0, 0), 0..128);
    assert_eq!(add(&mut table, hash(128), 4, 1, &mut |_bytes| false), Err(OutOfMemory));
    assert_eq!(table.forgotten(), 0);

    // A run that is full, and a slot in the same group.
    let mut table = new(EXACT, 0, true, FORGETTING);
    fill(&mut table, 1, (1, 5), 0..1);
    fill(&mut table, 3, (0, 30), 0..256);
    assert_eq!(add(&mut table, hash_from(0, 30, 256), 4, 1, &mut |_bytes| true), Err(CannotGrow));
    assert_eq!((table.slots(), table.forgotten()), (256, 1));
    assert_sums_are_right(&table);
}

#[test]
fn forgotten_items_stay_forgotten_when_the_table_is_halved() {
    let mut table = new(EXACT, 0, true, FORGETTING);
    fill(&mut table, 1, (0, 0), 0..3000);
    fill(&mut table, 2, (0, 0), 3000..6000);
    fill(&mut table, 3, (0, 0), 6000..6100);
    let quotients = table.quotients();
    forget(&mut table, 2);
    assert!(8 * table.quotients() <= quotients);
    assert!((0..6100).all(|number| table.remembers(hash(number), 2) == (number >= 6000)));
    assert_sums_are_right(&table);
}

/// Halving shortens the fingerprints of a large table. An entry that stands for items of two slices stays for the later.
#[test]
fn no_item_is_forgotten_early_when_entries_become_equal() {
    let mut table = new(0.5, 0, true, FORGETTING);
    for (slice, numbers) in [(1, 0..200_000), (2, 200_000..204_000), (3, 204_000..208_000)] {
        let addition = SliceAddition { forgotten_before: 0, forgotten_after: 0, slice, refresh: true };
        { numbers }.for_each(|number| assert!(table.add_to_slice(hash(number), addition, &mut |_bytes| true).is_ok()));
    }
    let quotients = table.quotients();
    forget(&mut table, 1);
    assert!(4 * table.quotients() <= quotients);
    assert!((204_000..208_000).all(|number| table.remembers(hash(number), 2)));
    assert_sums_are_right(&table);
}

/// A master and its replicas must halve at the same sizes.
#[test]
fn segments_are_merged_when_a_sparse_one_loses_slots() {
    let mut table = new(EXACT, 0, true, FORGETTING);
    fill(&mut table, 3, (0, 1), 0..2);
    fill(&mut table, 1, (1, 1), 2..500);
    fill(&mut table, 2, (1, 1), 500..520);
    fill(&mut table, 3, (1, 1), 520..2050);
    assert_eq!(table.segments(), 2);
    forget(&mut table, 1);
    // Both together are now sparse enough, but none of them is alone.
    forget(&mut table, 2);
    assert_eq!((table.segments(), table.slots()), (2, 1532));
    forget(&mut table, 2);
    fill(&mut table, 4, (0, 1), 2..3);
    assert_eq!(table.segments(), 2);
}

/// A span after a power of two needs one bit more in each stamp.
#[test]
fn items_are_remembered_at_any_span_and_the_lowest_error_rate() {
    for span in [2, 3, 4, 5, 128, 129, 255] {
        let mut table = new(1e-15, 0, true, Payload::Slice(Stamps { forgotten: 0, span }));
        let slices = u64::from(span);
        for slice in 1..=slices {
            fill(&mut table, slice, (0, 0), 4 * slice..4 * slice + 4);
        }
        for forgotten in 0..=slices {
            let is_later = |number| number >= 4 * (forgotten + 1);
            assert!((4..4 * slices + 4).all(|number| table.remembers(hash(number), forgotten) == is_later(number)));
        }
    }
}
