//! Compares the filter library with fastbloom, in one process: the times of an insert, a hit and a miss.
//!
//! ```text
//! cargo bench -p oxbloom-comparison --bench filter               # all of it, five minutes
//! QUICK=1 cargo bench -p oxbloom-comparison --bench filter       # half a minute
//! cargo bench -p oxbloom-comparison --bench filter -- hit/1e7    # a selection: operation/capacity/error rate/library
//! ```
//!
//! fastbloom 0.17 is a classic filter: `k` probes, `k` cache lines, and no operation on several items that would
//! overlap their cache misses. It is measured with its default hasher, SipHash-1-3, and with foldhash, which its
//! documentation shows and its own benchmarks use. Ours is a fixed filter, which has the tight memory budget. It is
//! measured item by item, and with all items at once, which the library divides into batches. So is a filter with
//! valkey-bloom's layout, beside a loop over the crate `bloomfilter`, of which valkey-bloom is made.
//!
//! - Items are created before the clock starts, in one array that is read from start to end, so that the processor
//!   prefetches them. The compiler does not know their length.
//! - A pool has up to 2^22 items, drawn at random from all. They touch nearly every block of a filter of 10^8 items,
//!   120 megabytes, so that its blocks are not in the cache when the pool is used again. With fewer items, some would
//!   still be in the cache; more items would make no difference. A pool has at least 2^17 items, so that the branch
//!   predictor cannot learn the outcomes.
//! - Hits and misses are looked up in a full filter. Inserts add new items to a filter that is half full. When it is
//!   full, or the pool is used up, a copy of the half-full filter replaces it while the clock is stopped.
//! - One iteration is one item, so Criterion's times are times per item. The clock is the thread's processor time,
//!   which stops while other threads run.
//!
//! For each operation, capacity and error rate, the libraries are measured one after the other, because the machine's
//! speed changes over minutes. The results are written to `criterion/filter.json` in Cargo's target folder, as a list
//! with one entry for each operation, capacity, error rate and library.

mod peers;

use std::array;
use std::cell::LazyCell;
use std::env;
use std::fs;
use std::hint::black_box;
use std::ops::Range;
use std::path::PathBuf;
use std::slice::ChunksExact;
use std::time::{Duration, SystemTime};

use bloomfilter::Bloom;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode};
use fastbloom::BloomFilter;
use oxbloom_filter::Filter;
use peers::Valkey;
use serde_json::{Value, json};

/// The seed of our hash and of the choice of items.
const SEED: u64 = 42;

/// An item is the prefix and eight digits of five bits.
const PREFIX: &[u8] = b"https://example.com/";
const DIGITS: usize = 8;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The number of the first item that is inserted while the clock runs. All numbers are below 2^40. Filters contain the
/// items from number 0 on.
const NEW: u64 = 1 << 38;
/// The number of the first item that is never inserted.
const ABSENT: u64 = 1 << 39;

/// The minimum and the maximum number of items that are prepared for an operation.
const POOL: (u64, u64) = (1 << 17, 1 << 22);

const ONE_BY_ONE: &str = "oxbloom";
const BATCHES: &str = "oxbloom-batches";
const SIPHASH: &str = "fastbloom";
const FOLDHASH: &str = "fastbloom-foldhash";
const VALKEY: &str = "oxbloom-valkey";
const BLOOMFILTER: &str = "bloomfilter";

/// The extent of the measurements.
struct Plan {
    capacities: &'static [u64],
    error_rates: &'static [f64],
    /// The number of absent items with which false positives are counted.
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

/// The plan for Criterion's test mode, which runs everything once.
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

    let mut valkey = Subject::<Valkey>::new(size, absent);
    let mut bloomfilter = Subject::<Bloom<[u8]>>::new(size, absent);

    let one_by_one = |filter: &mut Filter, items: Slices| items.filter(|item| filter.insert(item) == Ok(true)).count();
    let mut group = size.group(criterion, "insert");
    oxbloom.insert(&mut group, ONE_BY_ONE, &new, one_by_one);
    oxbloom.insert(&mut group, BATCHES, &new, Filter::insert_items);
    siphash.insert(&mut group, SIPHASH, &new, BloomFilter::insert_items);
    foldhash.insert(&mut group, FOLDHASH, &new, BloomFilter::insert_items);
    valkey.insert(&mut group, VALKEY, &new, Valkey::insert_items);
    bloomfilter.insert(&mut group, BLOOMFILTER, &new, Bloom::insert_items);
    group.finish();

    let one_by_one = |filter: &Filter, items: Slices| items.filter(|item| filter.contains(item)).count();
    for (operation, items) in [("hit", &hits), ("miss", &misses)] {
        let mut group = size.group(criterion, operation);
        oxbloom.look_up(&mut group, ONE_BY_ONE, items, one_by_one);
        oxbloom.look_up(&mut group, BATCHES, items, Filter::count_contained);
        siphash.look_up(&mut group, SIPHASH, items, BloomFilter::count_contained);
        foldhash.look_up(&mut group, FOLDHASH, items, BloomFilter::count_contained);
        valkey.look_up(&mut group, VALKEY, items, Valkey::count_contained);
        bloomfilter.look_up(&mut group, BLOOMFILTER, items, Bloom::count_contained);
        group.finish();
    }

    report.add(&mut oxbloom, &[ONE_BY_ONE, BATCHES]);
    report.add(&mut siphash, &[SIPHASH]);
    report.add(&mut foldhash, &[FOLDHASH]);
    report.add(&mut valkey, &[VALKEY]);
    report.add(&mut bloomfilter, &[BLOOMFILTER]);
}

/// The capacity and the error rate of the filters of a comparison.
#[derive(Clone, Copy)]
struct Size {
    capacity: u64,
    error_rate: f64,
}

impl Size {
    fn group<'a>(&self, criterion: &'a mut Criterion, operation: &str) -> BenchmarkGroup<'a, WallTime> {
        let mut group = criterion.benchmark_group(self.name(operation, "/"));
        // Every sample has the same number of iterations, since the time of an iteration does not depend on it.
        group.sampling_mode(SamplingMode::Flat);
        group
    }

    fn name(&self, operation: &str, separator: &str) -> String {
        format!("{operation}{separator}{:e}{separator}{}", self.capacity, self.error_rate)
    }
}

/// The operations of a library that are measured.
trait Library {
    fn new(size: Size) -> Self;

    /// Returns a copy that shares nothing.
    fn copy(&self) -> Self;

    /// Returns the size of the bit array in bits.
    fn bits(&self) -> u64;

    /// Inserts items in the way that is fastest for many. Returns the number of new items.
    fn insert_items(&mut self, items: Slices) -> usize;

    /// Returns the number of items that are contained, looked up in the way that is fastest for many.
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

/// The filters of one library at one size. They are filled when they are first needed.
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

    /// Returns the full filter. Creates it from the half-full one, which then no longer exists.
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
            // Values created here are not part of the warm-up.
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

    /// Returns the fraction of absent items that are false positives in the full filter.
    fn false_positive_rate(&mut self) -> f64 {
        let absent = self.absent;
        let filter = self.full();
        let found = each_chunk(ABSENT..ABSENT + absent, |items| filter.count_contained(items));
        found as f64 / absent as f64
    }
}

type Slices<'a> = ChunksExact<'a, u8>;

/// Items that are created when they are first needed.
type Pool = LazyCell<Items, Box<dyn FnOnce() -> Items>>;

/// Items, stored end to end.
struct Items {
    bytes: Vec<u8>,
    /// The length of an item, hidden from the compiler.
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

    /// Returns the time of `run` for `count` items, from `position` on. Wraps around at the end.
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

/// Returns the processor time of this thread. Other programs do not count, except through the caches.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the timespec outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Creates the items of `numbers`, a few at a time, so that they stay in the cache until `run` reads them.
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

/// Scrambles a number below 2^40, bijectively: different numbers give different items in random order.
fn scramble(number: u64) -> u64 {
    const MASK: u64 = (1 << 40) - 1;
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & MASK;
    (mixed ^ (mixed >> 20)).wrapping_mul(0xBF58_476D_1CE4_E5B9) & MASK
}

/// Returns the `draw`-th number of SplitMix64.
fn random(draw: u64) -> u64 {
    let word = SEED.wrapping_add(draw.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The collected results of Criterion.
struct Report {
    directory: PathBuf,
    start: SystemTime,
    rows: Vec<Value>,
}

impl Report {
    fn new() -> Report {
        Report { directory: criterion_directory(), start: SystemTime::now(), rows: Vec::new() }
    }

    /// Adds a library's results at one size, under the names with which it was measured.
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

    /// Returns Criterion's estimate of a median, if it is from this run. The file may be from an earlier run, or
    /// missing, since Criterion can be told to list, test or skip a function.
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

/// Returns the folder of Criterion's results.
fn criterion_directory() -> PathBuf {
    let target = || match env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        // From `target/release/deps/filter-0123456789abcdef`.
        None => env::current_exe().unwrap().ancestors().nth(3).unwrap().to_path_buf(),
    };
    env::var_os("CRITERION_HOME").map_or_else(|| target().join("criterion"), PathBuf::from)
}
