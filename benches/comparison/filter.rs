//! The filter library against fastbloom, in one process: what an insert, a hit and a miss take.
//!
//! ```text
//! cargo bench -p oxbloom-comparison --bench filter               # all of it, five minutes
//! QUICK=1 cargo bench -p oxbloom-comparison --bench filter       # half a minute
//! cargo bench -p oxbloom-comparison --bench filter -- hit/1e7    # some: operation/capacity/error rate/library
//! ```
//!
//! fastbloom 0.17 is a classic filter: `k` probes, `k` cache lines, and no operation on several items at once that would
//! overlap their cache misses. It is measured with its default hasher, SipHash-1-3, and with foldhash, which its
//! documentation shows and its own benchmarks use. Ours is a fixed filter, which has the tight memory budget, item by item
//! and in batches of all items: the library divides them into batches of 32.
//!
//! - Items are made before the clock starts, into one array that is read from start to end, so that the processor
//!   fetches them ahead. Their length is not known to the compiler.
//! - A pool holds up to 2^22 items, drawn at random from all: they touch nearly every block of a filter of 10^8 items, 120
//!   megabytes, so that its blocks are not in the cache when the pool comes round again. Fewer would be, and more would not
//!   change that. It holds at least 2^17 items, lest the branch predictor learn the outcomes by heart.
//! - Hits and misses are looked up in a full filter. Inserts are of new items into a filter that is half full; when it is
//!   full, or the pool is used up, a copy of the half-full one takes its place, off the clock.
//! - One iteration is one item, so that Criterion's times are times an item, and the time is the thread's own: while
//!   something else has the processor, the clock stands still.
//!
//! The libraries follow one another for each operation, capacity and error rate, because the machine's speed changes over
//! minutes. The results are written to `criterion/filter.json` in Cargo's target folder, as a list with one entry for each
//! operation, capacity, error rate and library.

use std::array;
use std::cell::LazyCell;
use std::env;
use std::fs;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::ops::Range;
use std::path::PathBuf;
use std::slice::ChunksExact;
use std::time::{Duration, SystemTime};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode};
use fastbloom::BloomFilter;
use oxbloom_filter::Filter;
use serde_json::{Value, json};

/// The seed of our hash and of the choice of items.
const SEED: u64 = 42;

/// An item is the prefix and eight digits of five bits.
const PREFIX: &[u8] = b"https://example.com/";
const DIGITS: usize = 8;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Items are numbered, from 0 below 2^40. Filters hold the first; these are the first of those that are inserted on the
/// clock, and of those that never are.
const NEW: u64 = 1 << 38;
const ABSENT: u64 = 1 << 39;

/// How few and how many items are prepared for an operation.
const POOL: (u64, u64) = (1 << 17, 1 << 22);

const ONE_BY_ONE: &str = "oxbloom";
const BATCHES: &str = "oxbloom-batches";
const SIPHASH: &str = "fastbloom";
const FOLDHASH: &str = "fastbloom-foldhash";

/// What is measured, and for how long.
struct Plan {
    capacities: &'static [u64],
    error_rates: &'static [f64],
    /// Absent items to count false positives among.
    absent: u64,
    samples: usize,
    warm_up: Duration,
    measurement: Duration,
}

const FULL: Plan = Plan {
    capacities: &[10_000, 100_000, 1_000_000, 10_000_000, 100_000_000],
    error_rates: &[0.01, 0.001],
    absent: 10_000_000,
    samples: 20,
    warm_up: Duration::from_millis(100),
    measurement: Duration::from_millis(800),
};

const QUICK: Plan = Plan {
    capacities: &[10_000, 1_000_000, 10_000_000],
    error_rates: &[0.01],
    absent: 1_000_000,
    samples: 10,
    warm_up: Duration::from_millis(100),
    measurement: Duration::from_millis(300),
};

/// Criterion's own tests run everything once.
const TEST: Plan = Plan { capacities: &[10_000], ..QUICK };

fn main() {
    let is_given = |wanted| env::args().any(|argument| argument == wanted);
    let is_test = is_given("--test") || !is_given("--bench");
    let is_quick = env::var_os("QUICK").is_some_and(|quick| !quick.is_empty() && quick != "0");
    let plan = match (is_test, is_quick) {
        (true, _) => TEST,
        (_, true) => QUICK,
        _ => FULL,
    };
    let mut criterion = Criterion::default()
        .sample_size(plan.samples)
        .warm_up_time(plan.warm_up)
        .measurement_time(plan.measurement)
        .nresamples(10_000)
        .configure_from_args();
    let mut report = Report::new();
    for &error_rate in plan.error_rates {
        for &capacity in plan.capacities {
            compare(Size { capacity, error_rate }, plan.absent, &mut criterion, &mut report);
        }
    }
    report.write();
}

/// Measures all libraries at one size.
fn compare(size: Size, absent: u64, criterion: &mut Criterion, report: &mut Report) {
    let pool = size.capacity.clamp(POOL.0, POOL.1);
    let new = Pool::new(Box::new(move || Items::new(NEW..NEW + pool)));
    let hits = Pool::new(Box::new(move || Items::new((0..pool).map(|draw| random(draw) % size.capacity))));
    let misses = Pool::new(Box::new(move || Items::new(ABSENT..ABSENT + pool)));

    let mut oxbloom = Subject::<Filter>::new(size, absent);
    let mut siphash = Subject::<BloomFilter>::new(size, absent);
    let mut foldhash = Subject::<BloomFilter<foldhash::fast::RandomState>>::new(size, absent);

    let one_by_one = |filter: &mut Filter, items: Slices| items.filter(|item| filter.insert(item) == Ok(true)).count();
    let mut group = size.group(criterion, "insert");
    oxbloom.insert(&mut group, ONE_BY_ONE, &new, one_by_one);
    oxbloom.insert(&mut group, BATCHES, &new, Filter::insert_items);
    siphash.insert(&mut group, SIPHASH, &new, BloomFilter::insert_items);
    foldhash.insert(&mut group, FOLDHASH, &new, BloomFilter::insert_items);
    group.finish();

    let one_by_one = |filter: &Filter, items: Slices| items.filter(|item| filter.contains(item)).count();
    for (operation, items) in [("hit", &hits), ("miss", &misses)] {
        let mut group = size.group(criterion, operation);
        oxbloom.look_up(&mut group, ONE_BY_ONE, items, one_by_one);
        oxbloom.look_up(&mut group, BATCHES, items, Filter::count_contained);
        siphash.look_up(&mut group, SIPHASH, items, BloomFilter::count_contained);
        foldhash.look_up(&mut group, FOLDHASH, items, BloomFilter::count_contained);
        group.finish();
    }

    report.add(&mut oxbloom, &[ONE_BY_ONE, BATCHES]);
    report.add(&mut siphash, &[SIPHASH]);
    report.add(&mut foldhash, &[FOLDHASH]);
}

/// What the filters of a comparison are made for.
#[derive(Clone, Copy)]
struct Size {
    capacity: u64,
    error_rate: f64,
}

impl Size {
    fn group<'a>(&self, criterion: &'a mut Criterion, operation: &str) -> BenchmarkGroup<'a, WallTime> {
        let mut group = criterion.benchmark_group(self.name(operation, "/"));
        // As many iterations in every sample: the time of one does not depend on their number.
        group.sampling_mode(SamplingMode::Flat);
        group
    }

    fn name(&self, operation: &str, separator: &str) -> String {
        format!("{operation}{separator}{:e}{separator}{}", self.capacity, self.error_rate)
    }
}

/// What is asked of a library.
trait Library {
    fn new(size: Size) -> Self;

    /// A copy that shares nothing.
    fn copy(&self) -> Self;

    /// The memory of the bit array, in bits.
    fn bits(&self) -> u64;

    /// Inserts items in the way that is best for many. How many were new.
    fn insert_items(&mut self, items: Slices) -> usize;

    /// How many of the items are contained, found in the way that is best for many.
    fn count_contained(&self, items: Slices) -> usize;
}

impl Library for Filter {
    fn new(size: Size) -> Filter {
        let builder = Filter::builder().error_rate(size.error_rate).capacity(size.capacity);
        builder.seed(SEED).build().expect("memory")
    }

    fn copy(&self) -> Filter {
        self.clone()
    }

    fn bits(&self) -> u64 {
        self.layers().map(|layer| layer.bits).sum()
    }

    fn insert_items(&mut self, items: Slices) -> usize {
        self.insert_batch(items).expect("room").into_iter().filter(|&new| new).count()
    }

    fn count_contained(&self, items: Slices) -> usize {
        self.contains_batch(items).into_iter().filter(|&found| found).count()
    }
}

impl<S: BuildHasher + Clone + Default> Library for BloomFilter<S> {
    fn new(size: Size) -> BloomFilter<S> {
        BloomFilter::with_false_pos(size.error_rate).hasher(S::default()).expected_items(size.capacity as usize)
    }

    fn copy(&self) -> BloomFilter<S> {
        self.clone()
    }

    fn bits(&self) -> u64 {
        self.num_bits() as u64
    }

    fn insert_items(&mut self, items: Slices) -> usize {
        items.filter(|item| !self.insert(item)).count()
    }

    fn count_contained(&self, items: Slices) -> usize {
        items.filter(|item| self.contains(item)).count()
    }
}

/// The filters of one library at one size. They are filled when they are first needed, which they may never be.
struct Subject<L> {
    size: Size,
    absent: u64,
    half_full: Option<L>,
    full: Option<L>,
}

impl<L: Library> Subject<L> {
    fn new(size: Size, absent: u64) -> Subject<L> {
        Subject { size, absent, half_full: None, full: None }
    }

    fn half_full(&mut self) -> &L {
        self.half_full.get_or_insert_with(|| {
            let mut filter = L::new(self.size);
            each_chunk(0..self.size.capacity / 2, |items| filter.insert_items(items));
            filter
        })
    }

    /// The filter with all items. The half-full one is used up.
    fn full(&mut self) -> &L {
        if self.full.is_none() {
            self.half_full();
            self.full = self.half_full.take();
            let filter = self.full.as_mut().unwrap();
            each_chunk(self.size.capacity / 2..self.size.capacity, |items| filter.insert_items(items));
        }
        self.full.as_ref().unwrap()
    }

    /// Measures inserts of new items into a filter between half full and full.
    fn insert(
        &mut self,
        group: &mut BenchmarkGroup<WallTime>,
        library: &str,
        new: &Pool,
        insert: impl Fn(&mut L, Slices) -> usize,
    ) {
        let room = (self.size.capacity / 2).min(POOL.1) as usize;
        let (mut filter, mut left, mut position) = (None, room, 0);
        group.bench_function(library, |bencher| {
            // What is made out here does not count as warm-up.
            let new = &**new;
            let filter = filter.get_or_insert_with(|| self.half_full().copy());
            bencher.iter_custom(|iterations| {
                let (mut time, mut wanted) = (Duration::ZERO, iterations as usize);
                while wanted > 0 {
                    if left == 0 {
                        *filter = self.half_full().copy();
                        left = room;
                    }
                    let count = wanted.min(left);
                    time += new.time(&mut position, count, |items| insert(filter, items));
                    (left, wanted) = (left - count, wanted - count);
                }
                time
            });
        });
    }

    /// Measures look-ups in the full filter.
    fn look_up(
        &mut self,
        group: &mut BenchmarkGroup<WallTime>,
        library: &str,
        items: &Pool,
        count_contained: impl Fn(&L, Slices) -> usize,
    ) {
        let mut position = 0;
        group.bench_function(library, |bencher| {
            let (filter, items) = (self.full(), &**items);
            bencher.iter_custom(|iterations| {
                items.time(&mut position, iterations as usize, |items| count_contained(filter, items))
            });
        });
    }

    fn bits_per_item(&mut self) -> f64 {
        self.full().bits() as f64 / self.size.capacity as f64
    }

    /// The share of absent items that the full filter calls present.
    fn false_positive_rate(&mut self) -> f64 {
        let absent = self.absent;
        let filter = self.full();
        let found = each_chunk(ABSENT..ABSENT + absent, |items| filter.count_contained(items));
        found as f64 / absent as f64
    }
}

type Slices<'a> = ChunksExact<'a, u8>;

/// Items that are made when they are first needed.
type Pool = LazyCell<Items, Box<dyn FnOnce() -> Items>>;

/// Items, end to end.
struct Items {
    bytes: Vec<u8>,
    /// What the compiler should not know.
    length: usize,
}

impl Items {
    fn new(numbers: impl Iterator<Item = u64>) -> Items {
        let mut items = Items { bytes: Vec::new(), length: black_box(PREFIX.len() + DIGITS) };
        items.replace(numbers);
        items
    }

    fn replace(&mut self, numbers: impl Iterator<Item = u64>) {
        self.bytes.clear();
        self.bytes.reserve(numbers.size_hint().0 * self.length);
        for number in numbers {
            let scrambled = scramble(number);
            self.bytes.extend_from_slice(PREFIX);
            self.bytes
                .extend_from_slice(&array::from_fn::<_, DIGITS, _>(|i| ALPHABET[(scrambled >> (5 * i)) as usize % 32]));
        }
    }

    fn len(&self) -> usize {
        self.bytes.len() / self.length
    }

    fn slices(&self, range: Range<usize>) -> Slices<'_> {
        self.bytes[range.start * self.length..range.end * self.length].chunks_exact(self.length)
    }

    /// The time that `run` takes for `count` items, from `position` on and round again.
    fn time(&self, position: &mut usize, count: usize, mut run: impl FnMut(Slices) -> usize) -> Duration {
        let (mut time, mut left) = (Duration::ZERO, count);
        while left > 0 {
            let count = left.min(self.len() - *position);
            let items = self.slices(*position..*position + count);
            let start = processor_time();
            black_box(run(items));
            time += processor_time() - start;
            *position = (*position + count) % self.len();
            left -= count;
        }
        time
    }
}

/// The time that this thread had the processor: what else runs on the machine does not count, but for the caches.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes the items of `numbers`, few at a time so that they stay in the cache until `run` gets them.
fn each_chunk(numbers: Range<u64>, mut run: impl FnMut(Slices) -> usize) -> usize {
    const CHUNK: usize = 1024;
    let mut items = Items::new(0..0);
    let starts = numbers.clone().step_by(CHUNK);
    starts
        .map(|start| {
            items.replace(start..numbers.end.min(start + CHUNK as u64));
            run(items.slices(0..items.len()))
        })
        .sum()
}

/// A bijection of the numbers below 2^40: different numbers make different items, without an order to them.
fn scramble(number: u64) -> u64 {
    const MASK: u64 = (1 << 40) - 1;
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & MASK;
    (mixed ^ (mixed >> 20)).wrapping_mul(0xBF58_476D_1CE4_E5B9) & MASK
}

/// The `draw`-th of a row of random numbers: SplitMix64.
fn random(draw: u64) -> u64 {
    let word = SEED.wrapping_add(draw.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Collects what Criterion found.
struct Report {
    directory: PathBuf,
    start: SystemTime,
    rows: Vec<Value>,
}

impl Report {
    fn new() -> Report {
        Report { directory: criterion_directory(), start: SystemTime::now(), rows: Vec::new() }
    }

    /// Adds a library's results at one size, under the names that it was measured by.
    fn add<L: Library>(&mut self, subject: &mut Subject<L>, libraries: &[&str]) {
        let Size { capacity, error_rate } = subject.size;
        let measured: Vec<_> = ["insert", "hit", "miss"]
            .into_iter()
            .flat_map(|operation| libraries.iter().map(move |library| (operation, library)))
            .filter_map(|(operation, library)| {
                Some((operation, library, self.median(subject.size, operation, library)?))
            })
            .collect();
        if measured.is_empty() {
            return;
        }
        let (bits_per_item, false_positive_rate) = (subject.bits_per_item(), subject.false_positive_rate());
        println!(
            "{} for {capacity:e} items at {error_rate}: {bits_per_item:.3} bits an item, {false_positive_rate:.6} of {} \
             absent items found\n",
            libraries[0], subject.absent
        );
        self.rows.extend(measured.into_iter().map(|(operation, library, median)| {
            let bounds = &median["confidence_interval"];
            json!({
                "library": library,
                "operation": operation,
                "capacity": capacity,
                "error_rate": error_rate,
                "nanoseconds": median["point_estimate"],
                "lower": bounds["lower_bound"],
                "upper": bounds["upper_bound"],
                "confidence": bounds["confidence_level"],
                "bits_per_item": bits_per_item,
                "false_positive_rate": false_positive_rate,
                "absent_items": subject.absent,
            })
        }));
    }

    /// Criterion's estimate of a median, if it is of this run: there may be one of an earlier run, and none when Criterion was
    /// told to list, test or leave out the function.
    fn median(&self, size: Size, operation: &str, library: &str) -> Option<Value> {
        let file = self.directory.join(size.name(operation, "_")).join(library).join("new/estimates.json");
        let is_new = fs::metadata(&file).and_then(|metadata| metadata.modified()).is_ok_and(|time| time >= self.start);
        let mut estimates: Value = serde_json::from_slice(&fs::read(file).ok().filter(|_| is_new)?).ok()?;
        Some(estimates["median"].take())
    }

    fn write(&self) {
        if !self.rows.is_empty() {
            let file = self.directory.join("filter.json");
            fs::write(&file, serde_json::to_vec_pretty(&self.rows).unwrap()).unwrap();
            println!("{}", file.display());
        }
    }
}

/// Where Criterion writes.
fn criterion_directory() -> PathBuf {
    let target = || match env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        // From `target/release/deps/filter-0123456789abcdef`.
        None => env::current_exe().unwrap().ancestors().nth(3).unwrap().to_path_buf(),
    };
    env::var_os("CRITERION_HOME").map_or_else(|| target().join("criterion"), PathBuf::from)
}
