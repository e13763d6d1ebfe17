//! The quotient table by itself: its sizes, its memory, and entries that differ in length.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;

use oxbloom_filter::Error;
use oxbloom_filter::internals::{
    Addressing, END, Hash, ItemCount, Mover, Payload, SliceAddition, Stamps, Table, end_of,
};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// An error rate at which no item of these tests is a false positive.
pub(crate) const EXACT: f64 = 1e-12;

pub(crate) fn hash(number: u64) -> Hash {
    hash_from(0, 0, number)
}

/// Returns a hash that begins with the last `length` bits of `prefix`. Other numbers give other hashes.
pub(crate) fn hash_from(prefix: u64, length: u32, number: u64) -> Hash {
    let second = xxh3_128_with_seed(&number.to_le_bytes(), 42) >> 64 << 64;
    Hash::from(second | u128::from(first_word(prefix, length, number)))
}

/// Returns the first word of the hash that [`hash_from`] returns.
pub(crate) fn first_word(prefix: u64, length: u32, number: u64) -> u64 {
    let random = xxh3_128_with_seed(&number.to_le_bytes(), 42) as u64;
    prefix.checked_shl(u64::BITS - length).unwrap_or(0) | random.checked_shr(length).unwrap_or(0)
}

pub(crate) fn add(table: &mut Table, number: u64) -> bool {
    table.add(hash(number), &mut |_bytes| true).unwrap()
}

/// A master and its replicas must double and halve at the same sizes.
#[test]
fn a_table_doubles_when_each_quotient_has_a_slot_and_is_halved_when_three_eighths_have() {
    const SMALLEST: u64 = 128;
    let mut table = Table::growing(1e-9, Payload::Count).unwrap();
    for number in 0..2000 {
        let quotients = table.quotients();
        let expected = if table.slots() == quotients { 2 * quotients } else { quotients };
        add(&mut table, number);
        assert_eq!(table.quotients(), expected, "{number} items");
    }
    for number in 0..2000 {
        let quotients = table.quotients();
        assert!(table.remove(hash(number)));
        let is_halved = quotients > SMALLEST && 8 * table.slots() <= 3 * quotients;
        assert_eq!(table.quotients(), if is_halved { quotients / 2 } else { quotients }, "without {number}");
    }
    assert_eq!(table.quotients(), SMALLEST);
}

/// Doubling copies void entries, so it does not lower the load.
#[test]
fn a_table_of_void_entries_doubles_only_when_an_eighth_of_the_slots_have_fingerprints() {
    let group = {
        // A slot after each of the 64 zeros, and then the last zero. The slots have twelve bits.
        let mut bytes = [0xAA; 16 + 1 + 96];
        bytes[16] = 0;
        bytes[17..].fill(0);
        (0..64).map(|slot| 12 * slot + 11).for_each(|bit| bytes[17 + bit / 8] |= 1 << (bit % 8));
        bytes
    };
    let places = [0u64.to_le_bytes(), END.to_le_bytes()].concat();
    let part = [&places[..], &[0, 1, 128, 0, 0, 0], &group, &group].concat();
    let mut table = Table::growing(0.5, Payload::Count).unwrap();
    assert_eq!(table.add_part(&part, &mut |_| true), Ok(true));
    for number in 0..100 {
        let quotients = table.quotients();
        let others = table.slots() - quotients;
        table.add(hash(number), &mut |bytes| bytes < 100_000).unwrap();
        assert_eq!(table.quotients(), if 7 * others > quotients { 2 * quotients } else { quotients }, "{number} items");
    }
}

/// Returns all parts of a table, of about `part_bytes` bytes each.
pub(crate) fn parts(table: &Table, part_bytes: usize) -> Vec<Vec<u8>> {
    let (mut position, mut parts) = (0, Vec::new());
    while let Some(part) = table.encode_part(position, part_bytes).unwrap() {
        position = end_of(&part).unwrap();
        parts.push(part);
    }
    assert!(parts.is_empty() || position == END);
    parts
}

pub(crate) fn new(rate: f64, items: u64, growing: bool, payload: Payload) -> Table {
    match growing {
        true => Table::growing(rate, payload).unwrap(),
        false => Table::fixed(items, rate, payload).unwrap(),
    }
}

#[test]
fn a_table_is_the_same_after_it_was_stored() {
    for payload in [Payload::Nothing, Payload::Count] {
        for (rate, growing) in [(0.01, true), (0.5, true), (0.01, false), (0.5, false)] {
            for items in [1, 100, 5_000, 300_000] {
                let mut table = new(rate, items, growing, payload);
                for number in (0..items).chain((0..items).filter(|number| number % 7 < 5)) {
                    add(&mut table, number);
                }
                if payload == Payload::Count {
                    (0..items).filter(|number| number % 10 > 0).for_each(|number| assert!(table.remove(hash(number))));
                }
                let stored = parts(&table, 10_000);
                let clone = table.try_clone().unwrap();
                assert_eq!((parts(&clone, 10_000), clone.allocated()), (stored.clone(), table.allocated()));
                for reversed in [false, true] {
                    let mut copy = new(rate, items, growing, payload);
                    let mut loaded: Vec<_> = stored.iter().collect();
                    if reversed {
                        loaded.reverse();
                    }
                    for part in &loaded {
                        copy.add_part(part, &mut |_| true).unwrap();
                    }
                    for part in &loaded {
                        assert_eq!(copy.add_part(part, &mut |_| true), Ok(false), "again");
                    }
                    assert_eq!(parts(&copy, 10_000), stored);
                    assert_eq!(
                        (copy.slots(), copy.false_positive_rate(), copy.allocated()),
                        (table.slots(), table.false_positive_rate(), table.allocated())
                    );
                    assert!((0..items).all(|number| table.count(hash(number)) == copy.count(hash(number))));
                    // The copy then changes in the same way as the original.
                    let mut original = table.try_clone().unwrap();
                    for number in items..2 * items {
                        if !growing {
                            break;
                        }
                        add(&mut copy, number);
                        add(&mut original, number);
                    }
                    assert_eq!(parts(&copy, usize::MAX), parts(&original, usize::MAX));
                    assert_eq!(copy.allocated(), original.allocated());
                }
            }
        }
    }
}

/// Of a table of fixed size, the value 1 also stands for the fingerprint 0.
#[test]
fn the_stated_error_rate_is_the_share_of_absent_items_that_are_found() {
    const ABSENT: u64 = 100_000;
    for growing in [true, false] {
        let mut table = new(0.25, 400, growing, Payload::Count);
        for number in 0..400 {
            add(&mut table, number);
        }
        let found = (0..ABSENT).filter(|number| table.contains(hash(1 << 40 | number))).count();
        let ratio = found as f64 / ABSENT as f64 / table.false_positive_rate();
        assert!((0.95..1.05).contains(&ratio), "{ratio} of {}", table.false_positive_rate());
    }
}

/// An empty table of fixed size has no directory. The first item asks for it.
#[test]
fn the_directory_of_a_large_table_is_asked_for() {
    let mut table = new(0.01, 10_000_000_000, false, Payload::Count);
    let mut requested = 0;
    let refused = table.add(hash(1), &mut |bytes| {
        requested += bytes;
        bytes < 100_000
    });
    assert_eq!(refused, Err(Error::OutOfMemory));
    assert!(table.allocated() < 200_000, "{} bytes", table.allocated());
    requested = 0;
    let added = table.add(hash(1), &mut |bytes| {
        requested += bytes;
        true
    });
    assert_eq!(added, Ok(true));
    assert!((1 << 20..8 << 20).contains(&requested), "{requested} bytes");
    let allocated = table.allocated() as u64;
    assert!(allocated <= requested + 10_000, "{allocated} bytes");
    let announced = Table::bytes_for(table.addressing(), table.payload(), table.segments(), table.slots());
    assert!(announced.abs_diff(allocated) < 10_000, "{announced} bytes, not {allocated}");
    assert!(matches!(Table::fixed(1 << 40, 0.01, Payload::Count), Err(Error::OutOfMemory)));
}

/// A decoded table has the counts of its header, which may be forged.
#[test]
fn a_table_with_forged_counts_is_empty_when_its_entries_are_gone() {
    for growing in [true, false] {
        for (items, occurrences) in [(0, 0), (9, 1), (9, 2), (0, 100), (u64::MAX, u64::MAX)] {
            let mut table = new(0.01, 1000, growing, Payload::Count);
            add(&mut table, 1);
            add(&mut table, 2);
            table.set_counts(ItemCount::new(items, false), occurrences);
            while table.remove(hash(1)) || table.remove(hash(2)) {
                assert!(table.items() <= table.occurrences());
            }
            assert_eq!((table.items(), table.occurrences(), table.slots()), (0, 0, 0));
        }
    }
}

/// Fails the first allocation of each addition. The table then holds the same items as before, and the next attempt
/// succeeds.
#[test]
fn a_failed_allocation_changes_nothing() {
    for growing in [true, false] {
        let mut table = new(0.01, 20_000, growing, Payload::Count);
        let mut rejections = 0;
        for number in 0..20_000 {
            let before = (table.items(), table.slots(), table.allocated());
            let rejected = table.add(hash(number), &mut |_bytes| false);
            if rejected == Err(Error::OutOfMemory) {
                rejections += 1;
                assert_eq!((table.items(), table.slots(), table.allocated()), before);
                add(&mut table, number);
            }
            if number.is_power_of_two() || number == 19_999 {
                assert!((0..=number).all(|number| table.contains(hash(number))));
            }
        }
        assert!(rejections > 80, "{rejections}");
        assert!((0..20_000).all(|number| table.remove(hash(number))));
        assert_eq!((table.items(), table.slots()), (0, 0));
    }
}

/// An addition may ask for the memory of two halves and of directories. All of it is asked for before anything changes.
#[test]
fn an_addition_for_which_any_memory_is_refused_changes_nothing() {
    const SLOTS: u64 = 2048;
    let fill = |table: &mut Table, numbers: &mut std::ops::RangeFrom<u64>| {
        while table.slots() < SLOTS {
            add(table, numbers.next().unwrap());
        }
    };
    // The halves fill their allocations to the last slot in some of these tables.
    for rate in (2..40).map(|exponent| 0.5f64.powi(exponent)) {
        let mut table = new(rate, 0, true, Payload::Count);
        let mut numbers = 0..;
        fill(&mut table, &mut numbers);
        assert_eq!((table.quotients(), table.segments()), (SLOTS, 1));
        for removed in 0..60 {
            assert!(table.remove(hash(removed)));
            fill(&mut table, &mut numbers);
            let figures = |table: &Table| (table.segments(), table.slots(), table.allocated());
            for refused in 0.. {
                let mut split = table.try_clone().unwrap();
                let mut requests = 0..=refused;
                match split.add(hash(1 << 40 | removed), &mut |_bytes| requests.next() != Some(refused)) {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error, Error::OutOfMemory),
                }
                assert_eq!(figures(&split), figures(&table), "rate {rate}, request {refused}");
            }
        }
    }
}

#[test]
fn an_addition_that_needs_no_slot_needs_no_memory() {
    let mut table = new(1e-9, 0, true, Payload::Count);
    for number in [0; 4].into_iter().chain(1..=125) {
        add(&mut table, number);
    }
    assert_eq!(table.slots(), table.quotients());
    assert_eq!(table.add(hash(126), &mut |_bytes| false), Err(Error::OutOfMemory));
    assert_eq!(table.add(hash(0), &mut |_bytes| false), Ok(false));
    assert_eq!((table.count(hash(0)), table.slots(), table.quotients()), (5, 128, 128));
}

/// A caller may stop after each page, and add items before it continues.
#[test]
fn a_table_that_is_moved_in_steps_loses_nothing() {
    let mut table = new(0.01, 0, true, Payload::Count);
    for number in 0..600_000 {
        add(&mut table, number);
    }
    let before = parts(&table, usize::MAX);
    for more in [0, 5_000] {
        let (mut start, mut steps, mut added) = (0, 0, 0);
        let moved = Cell::new(0);
        let relocate = |old: NonNull<u8>| {
            moved.set(moved.get() + 1);
            // Moves every other block.
            (moved.get() % 2 == 0).then(|| moved_block(old))
        };
        // SAFETY: the table's blocks are from the system's allocator, and each is moved whole.
        let mover = unsafe { Mover::new(&relocate) };
        while let Some(position) = table.relocate(start, mover, &mut || true) {
            assert!(position > start);
            (start, steps) = (position, steps + 1);
            for number in 600_000 + added..600_000 + added + more {
                add(&mut table, number);
            }
            added += more;
        }
        assert!(steps >= 3 && moved.get() as u64 >= table.segments(), "{steps} steps, {} blocks", moved.get());
        assert!((0..600_000 + added).all(|number| table.contains(hash(number))));
        assert!(more > 0 || parts(&table, usize::MAX) == before);
    }
}

// The standard library links these functions, so no crate is needed.
unsafe extern "C" {
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(block: *mut c_void);
    fn malloc_usable_size(block: *mut c_void) -> usize;
}

/// Moves a block of the system's allocator.
fn moved_block(old: NonNull<u8>) -> NonNull<u8> {
    // SAFETY: the whole block is copied, and then freed.
    unsafe {
        let size = malloc_usable_size(old.as_ptr().cast());
        let new = NonNull::new(malloc(size).cast::<u8>()).expect("memory");
        new.copy_from_nonoverlapping(old, size);
        free(old.as_ptr().cast());
        new
    }
}

/// Returns a growing table at an error rate of 1/2. Its only entry is in its first quotient, and has eleven bits.
fn with_entry(value: u16) -> Table {
    let places = [0u64.to_le_bytes(), END.to_le_bytes()].concat();
    let (depth, log_groups, slots) = (0, 1, 1);
    let mut upper = [0; 9];
    upper[0] = 0b10;
    let group = [&upper[..], &(value << 5).to_le_bytes()].concat();
    let part = [&places[..], &[depth, log_groups, slots, 0, 0, 0], &group, &[0; 9]].concat();
    let mut table = Table::growing(0.5, Payload::Nothing).unwrap();
    assert_eq!(table.add_part(&part, &mut |_| true), Ok(true));
    table
}

#[test]
fn a_union_keeps_the_entry_that_matches_more() {
    let (long, short) = (with_entry(0b000_0000_1011), with_entry(0b010_0000_0000));
    assert!(long.false_positive_rate() < short.false_positive_rate());
    for (one, other) in [(&long, &short), (&short, &long)] {
        let union = Table::union_of([(one, 1), (other, 1)].into_iter(), &mut |_bytes| true).unwrap();
        assert!(union.false_positive_rate() >= short.false_positive_rate());
        assert_eq!(union.holds_the_same(one).unwrap(), one.slots() == union.slots());
    }
    assert!(!long.holds_the_same(&short).unwrap());
    assert!(long.holds_the_same(&long.try_clone().unwrap()).unwrap());
}

/// Otherwise, a thousand of them could double the directory.
#[test]
fn items_whose_hashes_begin_with_the_same_bits_are_rejected_before_they_take_much_memory() {
    let mut table = new(0.01, 0, true, Payload::Count);
    let crafted = (0..30).flat_map(|zeros| (0..1500).map(move |n| hash_from(0, zeros, 1500 * u64::from(zeros) + n)));
    let rejected = { crafted }.find_map(|hash| table.add(hash, &mut |bytes| bytes < 50_000).err());
    assert_eq!(rejected, Some(Error::CannotGrow));
    assert!(table.allocated() < 500_000, "{} bytes", table.allocated());
}

/// Segments of a table of fixed size do not split, so each must have room for its share of the items.
#[test]
fn a_table_of_the_largest_capacity_has_room_for_its_items() {
    let stamps = Payload::Slice(Stamps { forgotten: 0, span: u8::MAX });
    for (rate, payload) in [0.9, 0.01, EXACT].into_iter().flat_map(|rate| [(rate, Payload::Count), (rate, stamps)]) {
        let fits = |capacity: u64| Table::fixed(capacity, rate, payload).is_ok();
        let more = |largest, bit: u32| if fits(largest + (1 << bit)) { largest + (1 << bit) } else { largest };
        let capacity = (0..63).rev().fold(0, more);
        let mut table = new(rate, capacity, false, payload);
        let Addressing::Fixed(space) = table.addressing() else { panic!("a table that grows") };
        // A segment has 2^11 quotients.
        let depth = u32::from(space.level) - 11;
        let used = if space.scale == 0 { 1.0 } else { space.scale as f64 / 2f64.powi(64) };
        let mean = capacity as f64 / (used * 2f64.powi(depth as i32));
        let items = (mean + 6.0 * mean.sqrt()) as u64;
        for number in 0..items {
            let hash = hash_from(0, depth + 1, number);
            let addition = SliceAddition {
                forgotten_before: 0,
                forgotten_after: 0,
                slice: 1 + number % u64::from(u8::MAX),
                refresh: false,
            };
            let added = match payload {
                Payload::Slice(_) => table.add_to_slice(hash, addition, &mut |_bytes| true).map(drop),
                _ => table.add(hash, &mut |_bytes| true).map(drop),
            };
            assert_eq!(added, Ok(()), "item {number} of {items}, {rate} {payload:?} {capacity}");
        }
    }
}

/// Other items may match the shorter entry. So an item is gone only if no other entry matches it.
#[test]
fn the_longest_entry_that_matches_is_removed() {
    for lengths in [[12, 20, 30], [30, 20, 12], [20, 30, 12]] {
        let mut table = new(EXACT, 0, true, Payload::Count);
        table.add(hash_from(1, 1, 1), &mut |_bytes| true).unwrap();
        for length in lengths {
            table.add_prefixes(&mut [first_word(0, length, 1)], length, &mut |_bytes| true).unwrap();
        }
        for left in [[3, 2, 1], [2, 2, 1], [1, 1, 1]] {
            assert_eq!([30, 20, 12].map(|length| table.count(hash_from(0, length, 2))), left);
            assert_eq!(table.items(), 1);
            assert!(table.remove(hash_from(0, 30, 1)));
        }
        assert_eq!((table.items(), table.slots()), (0, 1));
    }
}

/// A master and its replicas must halve at the same sizes.
#[test]
fn segments_are_merged_when_a_sparse_one_loses_slots() {
    let mut table = new(EXACT, 0, true, Payload::Count);
    let items = (0..2048).map(|number| hash_from(1, 1, number));
    for hash in [hash_from(0, 1, 1); 4].into_iter().chain(items.clone()) {
        table.add(hash, &mut |_bytes| true).unwrap();
    }
    // Both together become sparse enough, but none of them loses slots while it is sparse alone.
    assert!(items.take(table.slots() as usize - 1536).all(|hash| table.remove(hash)));
    for segments in [2, 2, 1] {
        assert_eq!(table.segments(), segments);
        assert!(table.remove(hash_from(0, 1, 1)));
    }
}

#[test]
fn a_prefix_matches_the_items_that_begin_with_it_and_no_others() {
    for items in [0, 40_000] {
        let mut table = new(EXACT, 0, true, Payload::Count);
        (0..items).for_each(|number| assert!(add(&mut table, number)));
        for length in 7..40 {
            let prefix = (0x9E37_79B9_7F4A_7C15 >> (u64::BITS - length)) ^ 1;
            let mut other = table.try_clone().unwrap();
            other.add_prefixes(&mut [first_word(prefix, length, 1); 2], length, &mut |_bytes| true).unwrap();
            for number in items..items + 20 {
                assert_eq!(other.count(hash_from(prefix, length, number)), 2, "{length} bits");
                assert_eq!(other.count(hash_from(prefix ^ 1, length, number)), 0, "{length} bits");
            }
            let rise = other.false_positive_rate() - table.false_positive_rate();
            assert!((rise * 2f64.powi(length as i32) - 1.0).abs() < 1e-3, "{rise} for {length} bits");
            assert_eq!(other.occurrences(), items + 2);
        }
    }
}
