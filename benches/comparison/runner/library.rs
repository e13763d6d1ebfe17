//! Compares the filter library with fastbloom, in this process.
//!
//! fastbloom 0.17 is a classic filter: `k` probes, `k` cache lines, and no operation on several items that would overlap
//! their cache misses. It is measured with its default hasher, SipHash-1-3, and with foldhash, which its documentation
//! shows and its own benchmarks use. Ours is a fixed filter. It is measured item by item, and with all items at once,
//! which the library divides into batches.
//!
//! - The contenders are measured in turn, in each round with new items. These are created before the clock starts, in
//!   one array that is read from start to end, so that the processor prefetches them. The compiler does not know their
//!   length. Half of them are used before the clock starts, so that a filter that fits into the cache is there.
//! - Hits and misses are looked up in a full filter. Insertions add new items to a filter that is half full. When it is
//!   full, a copy of the half-full filter replaces it.
//! - The clock is the thread's processor time, which stops while other threads run.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::ops::Range;
use std::slice::ChunksExact;
use std::time::Duration;

use fastbloom::BloomFilter;
use oxbloom_filter::{Filter, FilterBuilder};

use crate::requests::{ABSENT, items};
use crate::table::{Table, Unit};
use crate::workload::{power, some_of};

const SEED: u64 = 42;

/// The length of an item in bytes.
const LENGTH: usize = 28;

/// The number of the first item that is inserted while the clock runs. Filters contain the items from 0 on.
const NEW: u64 = 1 << 38;

/// The number of items that a contender is measured with in each round. They touch more memory than a cache has, and the
/// branch predictor cannot learn the outcomes.
const ITEMS: usize = 1 << 18;

type Slices<'a> = ChunksExact<'a, u8>;

/// A filter of one of the libraries.
trait Library {
    fn copy(&self) -> Box<dyn Library>;
    fn bits(&self) -> u64;
    /// Returns the number of new items.
    fn insert(&mut self, items: Slices) -> usize;
    /// Returns the number of items that are found.
    fn count_contained(&self, items: Slices) -> usize;
}

/// Our filter, which is asked one by one or with all items at once.
#[derive(Clone)]
struct Ours {
    filter: Filter,
    batches: bool,
}

impl Library for Ours {
    fn copy(&self) -> Box<dyn Library> {
        Box::new(self.clone())
    }

    fn bits(&self) -> u64 {
        8 * self.filter.memory_usage() as u64
    }

    fn insert(&mut self, items: Slices) -> usize {
        if self.batches {
            return self.filter.insert_batch(items).expect("room").into_iter().filter(|&new| new).count();
        }
        items.filter(|item| self.filter.insert(item) == Ok(true)).count()
    }

    fn count_contained(&self, items: Slices) -> usize {
        if self.batches {
            return self.filter.contains_batch(items).into_iter().filter(|&found| found).count();
        }
        items.filter(|item| self.filter.contains(item)).count()
    }
}

impl<S: BuildHasher + Clone + 'static> Library for BloomFilter<S> {
    fn copy(&self) -> Box<dyn Library> {
        Box::new(self.clone())
    }

    fn bits(&self) -> u64 {
        self.num_bits() as u64
    }

    fn insert(&mut self, items: Slices) -> usize {
        items.filter(|item| !self.insert(item)).count()
    }

    fn count_contained(&self, items: Slices) -> usize {
        items.filter(|item| self.contains(item)).count()
    }
}

impl Library for qfilter::Filter {
    fn copy(&self) -> Box<dyn Library> {
        Box::new(self.clone())
    }

    fn bits(&self) -> u64 {
        8 * self.memory_usage() as u64
    }

    fn insert(&mut self, items: Slices) -> usize {
        items.filter(|item| self.insert(item).expect("room")).count()
    }

    fn count_contained(&self, items: Slices) -> usize {
        items.filter(|item| self.contains(item)).count()
    }
}

/// The contenders. The others are compared with the first one.
const CONTENDERS: [&str; 4] = ["fastbloom, foldhash", "fastbloom", "oxbloom, one by one", "oxbloom, batches"];

fn contenders(capacity: u64, error_rate: f64) -> [Box<dyn Library>; 4] {
    let ours = |batches| Ours { filter: builder(capacity).error_rate(error_rate).build().expect("memory"), batches };
    let theirs = BloomFilter::with_false_pos(error_rate);
    let folded = BloomFilter::with_false_pos(error_rate).hasher(foldhash::fast::RandomState::default());
    [
        Box::new(folded.expected_items(capacity as usize)),
        Box::new(theirs.expected_items(capacity as usize)),
        Box::new(ours(false)),
        Box::new(ours(true)),
    ]
}

fn builder(capacity: u64) -> FilterBuilder {
    Filter::builder().capacity(capacity).seed(SEED)
}

/// Measures the tables whose names start with `only`.
pub(crate) fn measure(only: &str, quick: bool, rounds: u64) -> Vec<Table> {
    let (capacities, rates): (&[u64], &[f64]) = match quick {
        true => (&[10_000, 1_000_000], &[0.01]),
        false => (&[10_000, 100_000, 1_000_000, 10_000_000, 100_000_000], &[0.01, 0.001]),
    };
    let mut tables = Vec::new();
    if "library".starts_with(only) {
        let mut table = Table::new("library", "The library, in process", &CONTENDERS);
        for &rate in rates {
            capacities.iter().for_each(|&capacity| compare(capacity, rate, rounds, &mut table));
        }
        tables.push(table);
    }
    if "library-tables".starts_with(only) {
        let contenders = ["counting", "qfilter", "windowed"];
        let mut table = Table::new("library-tables", "The library's tables", &contenders);
        (0..rounds).for_each(|_| measure_tables(&mut table));
        tables.push(table);
    }
    tables
}

/// Measures all libraries at one size.
fn compare(capacity: u64, error_rate: f64, rounds: u64, table: &mut Table) {
    let size = format!("{} at {} %", power(capacity), 100.0 * error_rate);
    eprintln!("The library, {size}");
    let half = capacity / 2;
    let mut filters = contenders(capacity, error_rate);
    for filter in &mut filters {
        each_chunk(0..half, |items| filter.insert(items));
    }
    let mut copies = filters.each_ref().map(|filter| (filter.copy(), half as usize));
    for round in 0..rounds {
        let first = NEW + round * 2 * ITEMS as u64;
        let new = Items::new(first..first + 2 * ITEMS as u64);
        for ((filter, (copy, room)), name) in filters.iter().zip(&mut copies).zip(CONTENDERS) {
            let time = new.time(|mut range| {
                let mut time = Duration::ZERO;
                while !range.is_empty() {
                    if *room == 0 {
                        (*copy, *room) = (filter.copy(), half as usize);
                    }
                    let count = range.len().min(*room);
                    let items = new.slices(range.start..range.start + count);
                    time += timed(|| copy.insert(items));
                    *room -= count;
                    range.start += count;
                }
                time
            });
            push(table, &format!("{size}: insert"), name, time);
        }
    }
    drop(copies);
    for filter in &mut filters {
        each_chunk(half..capacity, |items| filter.insert(items));
    }
    for round in 0..rounds {
        for (operation, numbers) in [("hit", 0..capacity), ("miss", ABSENT)] {
            let items = Items::new(some_of(numbers, 2 * ITEMS as u64, round));
            for (filter, name) in filters.iter().zip(CONTENDERS) {
                let time = items.time(|range| timed(|| filter.count_contained(items.slices(range))));
                push(table, &format!("{size}: {operation}"), name, time);
            }
        }
    }
    for (filter, name) in filters.iter().zip(CONTENDERS) {
        const LOOKED_UP: u64 = 1_000_000;
        let found = each_chunk(ABSENT.start..ABSENT.start + LOOKED_UP, |items| filter.count_contained(items));
        table.push(&format!("{size}: false positives"), Unit::Percent, name, 100.0 * found as f64 / LOOKED_UP as f64);
        table.push(&format!("{size}: bits an item"), Unit::Number, name, filter.bits() as f64 / capacity as f64);
    }
}

/// Measures quotient tables of 10^6 items. Ours and that of qfilter grow from a hundred items; ours gets them in
/// batches, which qfilter does not have. Another one of ours has a window, and has already forgotten some.
fn measure_tables(table: &mut Table) {
    const SIZE: u64 = 1_000_000;
    const WINDOW: Duration = Duration::from_secs(1500);
    let items = Items::new(NEW..NEW + 3 * SIZE);
    let ours = |builder: FilterBuilder| Ours { filter: builder.build().expect("memory"), batches: true };
    let batches = |range: Range<usize>| range.clone().step_by(1000).map(|start| items.slices(start..start + 1000));
    let counting = ours(builder(100).growing(2).counting());
    let theirs = qfilter::Filter::new_resizeable(100, SIZE, 0.01).expect("a filter of this size");
    let growing: [(&str, Box<dyn Library>); 2] = [("counting", Box::new(counting)), ("qfilter", Box::new(theirs))];
    for (name, mut filter) in growing {
        let mut push = |operation: &str, time: Duration| {
            table.push(operation, Unit::Nanoseconds, name, time.as_nanos() as f64 / SIZE as f64);
        };
        let size = SIZE as usize;
        push("growing: add", timed(|| batches(0..size).map(|batch| filter.insert(batch)).sum()));
        push("grown: hit", timed(|| batches(0..size).map(|batch| filter.count_contained(batch)).sum()));
        push("grown: miss", timed(|| batches(size..2 * size).map(|batch| filter.count_contained(batch)).sum()));
        table.push("grown: bits an item", Unit::Number, name, filter.bits() as f64 / SIZE as f64);
    }

    let mut windowed = ours(builder(SIZE).window(WINDOW).slices(15));
    let slice = SIZE as usize / 15 / 1000 * 1000;
    let (mut time, mut measured) = (Duration::ZERO, 0);
    for number in 0..30 {
        windowed.filter.advance_to(number as u32 * WINDOW / 15);
        let spent = timed(|| batches(number * slice..(number + 1) * slice).map(|batch| windowed.insert(batch)).sum());
        if number > 16 {
            (time, measured) = (time + spent, measured + slice);
        }
    }
    table.push("window: add", Unit::Nanoseconds, "windowed", time.as_nanos() as f64 / measured as f64);
}

fn push(table: &mut Table, title: &str, contender: &str, time: Duration) {
    table.push(title, Unit::Nanoseconds, contender, time.as_nanos() as f64 / ITEMS as f64);
}

/// Items, stored end to end.
struct Items {
    bytes: Vec<u8>,
    /// The length of an item, hidden from the compiler.
    length: usize,
}

impl Items {
    fn new(numbers: impl IntoIterator<Item = u64>) -> Items {
        Items { bytes: items((LENGTH, LENGTH), numbers).concat(), length: black_box(LENGTH) }
    }

    fn slices(&self, range: Range<usize>) -> Slices<'_> {
        self.bytes[range.start * self.length..range.end * self.length].chunks_exact(self.length)
    }

    /// Runs `run` with the numbers of the first half of the items, and then of the second. Returns the time that the
    /// second run returned.
    fn time(&self, mut run: impl FnMut(Range<usize>) -> Duration) -> Duration {
        let all = self.bytes.len() / self.length;
        run(0..all / 2);
        run(all / 2..all)
    }
}

/// Returns the processor time of this thread for `run`. Other programs do not count, except through the caches.
fn timed(run: impl FnOnce() -> usize) -> Duration {
    let before = processor_time();
    black_box(run());
    processor_time() - before
}

fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Creates the items of `numbers`, a few at a time, so that they stay in the cache until `run` reads them.
fn each_chunk(numbers: Range<u64>, mut run: impl FnMut(Slices) -> usize) -> usize {
    let starts = numbers.clone().step_by(1024);
    let chunks = starts.map(|start| Items::new(start..numbers.end.min(start + 1024)));
    chunks.map(|items| run(items.slices(0..items.bytes.len() / items.length))).sum()
}
