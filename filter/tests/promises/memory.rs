//! The memory of a filter: compared with RedisBloom's for the same request, and asked for before it is taken.

use std::alloc::{GlobalAlloc, Layout as Allocation, System};
use std::cell::Cell;

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{self, Header, Origin};
use oxbloom_filter::internals::{AnyFilter, CreateParams, Growth, InsertOptions, Kind, MergeOp, OnDuplicate, classic};

use crate::model::{
    CLASSIC, by, chunks, create, filter, item, memory_when_aligned, native_of, params_of, read_from_file, whole,
};
use crate::recorded;

/// A classic filter takes as much memory as RedisBloom's: `tests/oracle` compares them.
#[test]
fn a_growing_filter_takes_no_more_than_redisbloom_and_a_fixed_one_at_most_2_percent_and_64_bytes_more() {
    for error_rate in [0.5, 0.25, 0.2, 0.1, 0.05, 0.01, 0.001, 1e-4, 1e-5, 1e-6, 1e-9] {
        for capacity in (1..600).chain((600..=10_000).step_by(97)).chain([100_000, 1_000_000, 100_000_000]) {
            let taken = |growth: Growth| {
                let theirs = create(params_of(CLASSIC, error_rate, capacity, growth)).memory_usage();
                [memory_when_aligned(&filter(error_rate, capacity, growth, 1)), theirs].map(|bytes| bytes as f64)
            };
            let [ours, theirs] = taken(by(2));
            assert!(ours <= theirs, "{error_rate} {capacity}: {ours} against {theirs}");
            let [ours, theirs] = taken(Growth::Fixed);
            assert!(ours <= theirs * 1.02 + 64.0, "fixed, {error_rate} {capacity}: {ours} against {theirs}");
        }
    }
}

/// A replica gets only the accepted items, and must have the same filter.
#[test]
fn an_addition_without_memory_leaves_no_part_of_a_table() {
    for admitted in 0..4 {
        let mut filter = filter(0.01, 10, by(2), 1);
        let hashes: Vec<_> = (0..20).map(|number| filter.hash(&item(number))).collect();
        let mut left = admitted;
        let mut admit = |_bytes| {
            left -= 1;
            left >= 0
        };
        let inserted = filter.insert_hashes(&hashes, &mut [false; 20], &mut [], &OnDuplicate::Count.into(), &mut admit);
        let handled = inserted.map_or_else(|interrupted| interrupted.handled, |()| hashes.len());
        let mut other = filter.empty_like(&mut |_bytes| true).unwrap();
        other
            .insert_hashes(&hashes[..handled], &mut [false; 20], &mut [], &OnDuplicate::Count.into(), &mut |_bytes| {
                true
            })
            .unwrap();
        assert_eq!(whole(&filter), whole(&other), "with {admitted} admitted requests");
        assert!((0..handled as u64).all(|number| filter.contains(item(number))));
        assert_eq!(handled == 10, native_of(&filter).table().is_none(), "{handled} items");
    }
}

/// Returns the parameters of filters of all kinds. Filters that are full at their capacity have room for all items of
/// these tests.
fn all_kinds() -> impl Iterator<Item = CreateParams> {
    let all =
        recorded::recorded().into_iter().filter(|(name, ..)| !name.ends_with("-empty") && !name.ends_with("-grown"));
    all.map(|(name, params, _)| match params.growth {
        Growth::Fixed if !name.starts_with("rolling") => {
            CreateParams { capacity: 200_000.try_into().unwrap(), ..params }
        }
        _ => params,
    })
}

/// The system's allocator, which counts the bytes that each thread holds.
struct Counted;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

fn count(more: usize, less: usize) {
    HELD.set(HELD.get().wrapping_add(more).wrapping_sub(less));
}

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, allocation: Allocation) -> *mut u8 {
        count(allocation.size(), 0);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(allocation) }
    }

    unsafe fn alloc_zeroed(&self, allocation: Allocation) -> *mut u8 {
        count(allocation.size(), 0);
        // SAFETY: as promised by the caller.
        unsafe { System.alloc_zeroed(allocation) }
    }

    unsafe fn dealloc(&self, start: *mut u8, allocation: Allocation) {
        count(0, allocation.size());
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(start, allocation) }
    }

    unsafe fn realloc(&self, start: *mut u8, allocation: Allocation, size: usize) -> *mut u8 {
        count(size, allocation.size());
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(start, allocation, size) }
    }
}

/// Returns the bytes that a filter holds, besides its own value.
fn held(filter: &Filter) -> usize {
    let before = HELD.get();
    let copy = filter.try_clone().unwrap();
    let held = HELD.get().wrapping_sub(before);
    assert_eq!(copy.memory_usage(), filter.memory_usage());
    held
}

#[test]
fn memory_usage_is_what_the_allocator_gave() {
    for (name, filter) in recorded::filters() {
        let stated = match filter.by_kind() {
            // RedisBloom reports a few bytes less.
            AnyFilter::Classic(chain) => {
                let bits = chain.chain().iter().map(|layer| layer.bytes().len()).sum::<usize>();
                assert_eq!(
                    filter.memory_usage(),
                    classic::FILTER_BYTES + classic::LAYER_BYTES * filter.num_layers() + bits
                );
                size_of::<Filter>() + size_of_val(chain.chain()) + bits
            }
            _ => filter.memory_usage(),
        };
        let held = held(&filter) + size_of::<Filter>();
        // A large array of blocks may take one more line, so that blocks are lines.
        let lines = if filter.memory_usage() < 4096 { 0 } else { 64 * (1 + filter.num_allocations()) };
        assert!((stated..=stated + lines).contains(&held), "{name} states {stated} bytes, and holds {held}");
    }
}

/// The bytes that a filter has asked for.
#[derive(Default)]
struct Ledger(u64);

impl Ledger {
    fn admit(&mut self) -> impl FnMut(u64) -> bool {
        |bytes| {
            self.0 += bytes;
            true
        }
    }

    /// Panics if a filter takes more than it has asked for, besides the values of the filter and of its layers.
    fn check(&self, filter: &Filter, what: &str) {
        let values = match filter.kind() {
            Kind::Classic => classic::FILTER_BYTES + classic::LAYER_BYTES * filter.num_layers(),
            Kind::Valkey => {
                let layer = size_of_val(&filter.valkey().unwrap().chain()[0]);
                size_of::<Filter>() + size_of_val(filter.valkey().unwrap()) + layer * filter.num_layers()
            }
            Kind::Cuckoo => {
                let cuckoo = filter.cuckoo().unwrap();
                size_of::<Filter>() + size_of_val(cuckoo) + size_of_val(cuckoo.chain())
            }
            _ => size_of::<Filter>(),
        };
        let taken = (filter.memory_usage() - values) as u64;
        assert!(taken <= self.0, "{what}: {filter:?} takes {taken} bytes, and asked for {}", self.0);
    }
}

#[test]
fn a_filter_asks_for_all_memory_that_it_takes() {
    const ITEMS: u64 = 100_000;
    for params in all_kinds() {
        let mut ledger = Ledger::default();
        let mut filter = Filter::create(params, &mut ledger.admit()).unwrap();
        ledger.check(&filter, "new");
        for number in 0..ITEMS {
            let options = InsertOptions { now: 1_000_000 + number / 10, ..InsertOptions::default() };
            let hashes = [filter.hash(&item(number))];
            let (mut asked, before) = (Ledger::default(), HELD.get());
            filter.insert_hashes(&hashes, &mut [false], &mut [], &options, &mut asked.admit()).unwrap();
            let taken = HELD.get().saturating_sub(before);
            // The value of a layer is asked for with the filter, and so is the line by which blocks are aligned.
            let lines = if taken < 4096 { 0 } else { 64 };
            let values = if filter.grows_by_layers() { 128 } else { 0 };
            assert!(
                taken <= asked.0 as usize + lines + values,
                "{filter:?} took {taken} bytes, and asked for {}",
                asked.0
            );
            ledger.0 += asked.0;
            if number % 1000 == 0 || number < 1000 {
                ledger.check(&filter, "with items");
            }
        }
        let mut ledger = Ledger::default();
        let copy = read_from_file(&filter, &mut ledger.admit());
        ledger.check(&copy, "from a file");

        let mut ledger = Ledger::default();
        let header = Header::decode(&codec::encode_header(&filter).unwrap(), Origin::Client).unwrap();
        let mut copy = header.build().unwrap();
        (ledger.admit())((copy.memory_usage() - size_of::<Filter>()) as u64);
        for (cursor, chunk) in chunks(&filter) {
            codec::load_chunk(&mut copy, cursor, &chunk, Origin::Client, &mut ledger.admit()).unwrap();
            ledger.check(&copy, "from chunks");
        }
        if filter.windowed().is_some() || filter.valkey().is_some() || filter.cuckoo().is_some() {
            continue;
        }
        let mut other = filter.empty_like(&mut |_| true).unwrap();
        other.insert_batch((ITEMS / 2..ITEMS + ITEMS / 2).map(item)).unwrap_or_default();
        let mut ledger = Ledger::default();
        let union = Filter::merged(&[&filter, &other], MergeOp::Union, &mut ledger.admit()).unwrap();
        ledger.check(&union, "a union");
    }
}

/// A server decides by this figure whether it has enough memory for a filter.
#[test]
fn a_header_says_about_how_much_memory_the_filter_takes() {
    const SMALL: u64 = 4096;
    for params in all_kinds() {
        for items in [0, 1, 1000, 20_000, 200_000] {
            let mut filter = create(params);
            let options = InsertOptions { now: 1_000_000, ..InsertOptions::default() };
            let hashes: Vec<_> = (0..items).map(|number| filter.hash(&item(number))).collect();
            // As many items as fit.
            let _ = filter.insert_hashes(&hashes, &mut vec![false; hashes.len()], &mut [], &options, &mut |_| true);
            let header = Header::decode(&codec::encode_header(&filter).unwrap(), Origin::Client).unwrap();
            let (announced, taken) = (header.memory(), filter.memory_usage() as u64);
            assert!(announced.abs_diff(taken) < taken / 10 + SMALL, "{filter:?} takes {taken} bytes, not {announced}");
        }
    }
}
