//! Settings: the defaults of new filters, limits, prefetching, and compatibility with RedisBloom.
//!
//! Every server reads them from the arguments of `loadmodule`, in RedisBloom's spelling or ours. From Redis 7 and
//! Valkey 8 on, they are also CONFIG parameters named `bf.…`, or after the module's [name](crate::names). On Redis 8,
//! those that its built-in RedisBloom has are also available under its names, `bf-…`.

mod arguments;
mod parameters;

use std::ffi::CStr;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};

use crate::family::{CUCKOO, Family};
use crate::reply_error::Dialect;
use crate::server::{Arg, feature};
use oxbloom_filter::internals::limits::{MAX_BUCKET_SIZE, MAX_EXPANSION};
use oxbloom_filter::internals::{ErrorRate, FilterKind, Growth};

pub(crate) use arguments::read_arguments;
pub(crate) use parameters::register;

/// A setting that is a whole number.
struct Number {
    name: &'static CStr,
    /// The name in Redis 8, if RedisBloom has this setting.
    redis_8_name: Option<&'static CStr>,
    min: i64,
    max: i64,
    /// True if the value may be a size such as `1gb`.
    is_size: bool,
    value: AtomicI64,
}

impl Number {
    const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Number {
        Number { name, redis_8_name: None, min, max, is_size: false, value: AtomicI64::new(default) }
    }

    /// Returns a setting that has the same name in Redis 8.
    const fn of_redis_8(name: &'static CStr, default: i64, min: i64, max: i64) -> Number {
        Number { redis_8_name: Some(name), ..Number::new(name, default, min, max) }
    }

    fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}

static INITIAL_SIZE: Number =
    Number { redis_8_name: Some(c"bf-initial-size"), ..Number::new(c"initial-size", 100, 1, i64::MAX) };
static EXPANSION_FACTOR: Number =
    Number { redis_8_name: Some(c"bf-expansion-factor"), ..Number::new(c"expansion-factor", 2, 0, u32::MAX as i64) };
static FILTER_MEMORY_LIMIT: Number = Number { is_size: true, ..Number::new(c"filter-memory-limit", 0, 0, i64::MAX) };
static MERGE_LIMIT: Number = Number { is_size: true, ..Number::new(c"merge-limit", DEFAULT_MERGE_LIMIT, 0, i64::MAX) };

/// Merging tables takes 12 to 15 ns for each byte of them, so this many take about a second.
const DEFAULT_MERGE_LIMIT: i64 = 64 << 20;

static LOOKAHEAD_SIZE: Number = Number { is_size: true, ..Number::new(c"lookahead-size", 2 << 20, 0, i64::MAX) };

static CF_BUCKET_SIZE: Number = Number::of_redis_8(c"cf-bucket-size", 2, 1, MAX_BUCKET_SIZE as i64);
static CF_INITIAL_SIZE: Number = Number::of_redis_8(c"cf-initial-size", 1024, 2, i64::MAX);
static CF_MAX_ITERATIONS: Number = Number::of_redis_8(c"cf-max-iterations", 20, 1, u16::MAX as i64);
static CF_EXPANSION_FACTOR: Number = Number::of_redis_8(c"cf-expansion-factor", 1, 0, MAX_EXPANSION as i64);
static CF_MAX_EXPANSIONS: Number = Number::of_redis_8(c"cf-max-expansions", 32, 1, i64::MAX);

static NUMBERS: [&Number; 10] = [
    &INITIAL_SIZE,
    &EXPANSION_FACTOR,
    &FILTER_MEMORY_LIMIT,
    &MERGE_LIMIT,
    &LOOKAHEAD_SIZE,
    &CF_BUCKET_SIZE,
    &CF_INITIAL_SIZE,
    &CF_MAX_ITERATIONS,
    &CF_EXPANSION_FACTOR,
    &CF_MAX_EXPANSIONS,
];

/// The only setting that is a fraction. The server offers only strings for such settings.
const ERROR_RATE_NAME: &CStr = c"error-rate";
const REDIS_8_ERROR_RATE_NAME: &CStr = c"bf-error-rate";
const ERROR_RATE_RANGE: &str = "must be a number above 0 and below 1";
const DEFAULT_ERROR_RATE: f64 = 0.01;
static ERROR_RATE: AtomicU64 = AtomicU64::new(DEFAULT_ERROR_RATE.to_bits());

/// A setting whose value is one of several words.
struct Choice {
    name: &'static CStr,
    words: &'static [&'static CStr],
    /// The index of the chosen word.
    value: AtomicI32,
}

static LAYOUT: Choice = Choice::of_layouts(c"layout", LAYOUTS.len());
static CF_LAYOUT: Choice = Choice::of_layouts(c"cf-layout", CUCKOO_LAYOUTS);
static REDISBLOOM_VERSION: Choice =
    Choice { name: c"redisbloom-version", words: &[c"auto", c"2", c"8"], value: AtomicI32::new(0) };

static DIALECT: Choice =
    Choice { name: c"dialect", words: &[c"redisbloom", c"valkey-bloom"], value: AtomicI32::new(0) };

static CHOICES: [&Choice; 4] = [&LAYOUT, &CF_LAYOUT, &REDISBLOOM_VERSION, &DIALECT];

impl Choice {
    /// Returns a choice of the first layouts, this many.
    const fn of_layouts(name: &'static CStr, count: usize) -> Choice {
        const WORDS: &[&CStr] = &[LAYOUTS[0].name(), LAYOUTS[1].name(), LAYOUTS[2].name()];
        Choice { name, words: WORDS.split_at(count).0, value: AtomicI32::new(0) }
    }

    /// Returns the layout that is chosen.
    fn layout(&self) -> FilterKind {
        usize::try_from(self.get()).ok().and_then(|index| LAYOUTS.get(index)).copied().unwrap_or(FilterKind::Native)
    }

    fn get(&self) -> i32 {
        self.value.load(Ordering::Relaxed)
    }

    fn word(&self) -> &'static CStr {
        usize::try_from(self.get()).ok().and_then(|index| self.words.get(index)).copied().unwrap_or_default()
    }

    /// Chooses a word, ignoring case. Returns `None` if it is not one of the words.
    fn set_word(&self, word: &[u8]) -> Option<()> {
        let index = self.words.iter().position(|known| word.eq_ignore_ascii_case(known.to_bytes()))?;
        self.value.store(i32::try_from(index).ok()?, Ordering::Relaxed);
        Some(())
    }
}

/// The version of RedisBloom that wrote a replication stream or an append-only file. The versions create different
/// filters from the same commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisBloomVersion {
    /// RedisBloom up to 2.8.
    RedisBloom2,
    /// The RedisBloom that is built into Redis 8 and later.
    Redis8,
}

/// Returns the configured version of RedisBloom, or by default the one of the server's version.
pub(crate) fn redisbloom_version() -> RedisBloomVersion {
    const AUTO: i32 = 0;
    const VERSION_2: i32 = 1;
    match REDISBLOOM_VERSION.get() {
        AUTO if feature::is_redis_8() => RedisBloomVersion::Redis8,
        AUTO | VERSION_2 => RedisBloomVersion::RedisBloom2,
        _ => RedisBloomVersion::Redis8,
    }
}

/// Returns the dialect of the replies to the commands of a family. valkey-bloom has no cuckoo filters.
pub(crate) fn dialect(family: &Family) -> Dialect {
    if DIALECT.get() == 0 || *family == CUCKOO { Dialect::RedisBloom } else { Dialect::ValkeyBloom }
}

/// The kinds of filters that clients can choose with the option LAYOUT, and without another option.
pub(crate) const LAYOUTS: [FilterKind; 3] = [FilterKind::Native, FilterKind::Classic, FilterKind::Valkey];

/// The number of them that cuckoo filters have, too.
pub(crate) const CUCKOO_LAYOUTS: usize = 2;

/// Returns the default kind of new filters.
pub(crate) fn layout() -> FilterKind {
    LAYOUT.layout()
}

/// Returns the default layout of new cuckoo filters.
pub(crate) fn cuckoo_layout() -> FilterKind {
    CF_LAYOUT.layout()
}

/// Returns the default number of slots in a bucket of a cuckoo filter.
pub(crate) fn cuckoo_bucket_size() -> u16 {
    CF_BUCKET_SIZE.get() as u16
}

/// Returns the default capacity of new cuckoo filters.
pub(crate) fn cuckoo_initial_size() -> NonZeroU64 {
    NonZeroU64::new(CF_INITIAL_SIZE.get() as u64).unwrap_or(NonZeroU64::MIN)
}

/// Returns the default maximum number of fingerprints that move in a cuckoo filter to make room for another.
pub(crate) fn cuckoo_max_iterations() -> u16 {
    CF_MAX_ITERATIONS.get() as u16
}

/// Returns the default expansion of new cuckoo filters; 0 if they do not grow.
pub(crate) fn cuckoo_expansion() -> u32 {
    CF_EXPANSION_FACTOR.get() as u32
}

/// Returns the number of layers with which a cuckoo filter rejects additions.
pub(crate) fn cuckoo_max_expansions() -> usize {
    CF_MAX_EXPANSIONS.get() as usize
}

/// Returns the default error rate of new filters.
pub(crate) fn error_rate() -> ErrorRate {
    ErrorRate::new(f64::from_bits(ERROR_RATE.load(Ordering::Relaxed)))
        .unwrap_or(const { ErrorRate::new(DEFAULT_ERROR_RATE).unwrap() })
}

/// Returns the default capacity of new filters.
pub(crate) fn initial_size() -> NonZeroU64 {
    NonZeroU64::new(INITIAL_SIZE.get() as u64).unwrap_or(NonZeroU64::MIN)
}

/// Returns the default growth of new filters.
pub(crate) fn growth() -> Growth {
    let factor = u32::try_from(EXPANSION_FACTOR.get()).unwrap_or(0);
    NonZeroU32::new(factor).map_or(Growth::Fixed, Growth::By)
}

/// Returns the maximum number of bytes of a single filter; 0 for no limit.
pub(crate) fn filter_memory_limit() -> u64 {
    FILTER_MEMORY_LIMIT.get() as u64
}

/// Returns the maximum number of bytes of tables that a command merges; 0 for no limit.
pub(crate) fn merge_limit() -> u64 {
    MERGE_LIMIT.get() as u64
}

/// Returns the size in bytes from which filters are prefetched before a command runs; `u64::MAX` for never.
pub(crate) fn lookahead_size() -> u64 {
    match LOOKAHEAD_SIZE.get() as u64 {
        0 => u64::MAX,
        size => size,
    }
}

/// Lists the settings, for the log.
pub(crate) fn describe() -> String {
    let numbers = NUMBERS.map(|number| format!("{} {}", number.name.to_string_lossy(), number.get()));
    let choices =
        CHOICES.map(|choice| format!("{} {}", choice.name.to_string_lossy(), choice.word().to_string_lossy()));
    let rate_name = ERROR_RATE_NAME.to_string_lossy();
    format!("{rate_name} {}, {}, {}", error_rate().get(), numbers.join(", "), choices.join(", "))
}

fn set_error_rate(value: Arg) -> Option<()> {
    let rate = ErrorRate::new(value.float()?)?;
    ERROR_RATE.store(rate.get().to_bits(), Ordering::Relaxed);
    Some(())
}
