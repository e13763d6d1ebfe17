//! Settings: the defaults of new filters, limits, prefetching, and compatibility with RedisBloom and valkey-bloom.
//!
//! Every server reads them from the [`arguments`] of `loadmodule`, in RedisBloom's, valkey-bloom's or our spelling. From
//! Redis 7 and Valkey 8 on, they are also [`parameters`] of CONFIG named `bf.…`, or after the module's
//! [name](crate::names). Those that other modules have, too, also have the name of their server: `bf-…` on Redis 8, as in
//! its built-in RedisBloom, and `bf.bloom-…` on Valkey.

mod arguments;
mod parameters;

use std::ffi::CStr;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};

use crate::family::{BLOOM, Dialect};
use crate::server::feature;
use oxbloom_filter::internals::limits::{MAX_BUCKET_SIZE, MAX_EXPANSION};
use oxbloom_filter::internals::{ErrorRate, FilterKind, Growth};

pub(crate) use arguments::read_arguments;
pub(crate) use parameters::register;

/// The names of a setting.
#[derive(Clone, Copy)]
struct Naming {
    own: &'static CStr,
    /// The name in Redis 8, if RedisBloom has this setting.
    redis_8: Option<&'static CStr>,
    /// The name in valkey-bloom, if it has this setting and the name is not our own.
    valkey: Option<&'static CStr>,
}

impl Naming {
    const fn new(own: &'static CStr) -> Naming {
        Naming { own, redis_8: None, valkey: None }
    }

    const fn redis_8(self, name: &'static CStr) -> Naming {
        Naming { redis_8: Some(name), ..self }
    }

    const fn valkey(self, name: &'static CStr) -> Naming {
        Naming { valkey: Some(name), ..self }
    }

    /// Returns true if this is our own name or valkey-bloom's.
    fn has(&self, name: &str) -> bool {
        [Some(self.own), self.valkey].into_iter().flatten().any(|known| known.to_bytes() == name.as_bytes())
    }
}

/// The state of valkey-bloom's name of a setting.
struct SecondName<T> {
    /// True if the setting was last set by this name.
    is_used: AtomicBool,
    /// The value that the setting had before the server applied its configuration file.
    before_file: T,
}

impl<T> SecondName<T> {
    const fn new(before_file: T) -> SecondName<T> {
        SecondName { is_used: AtomicBool::new(false), before_file }
    }
}

/// A setting that is a whole number.
struct Number {
    naming: Naming,
    min: i64,
    max: i64,
    /// True if the value may be a size such as `1gb`.
    is_size: bool,
    value: AtomicI64,
    second_name: SecondName<AtomicI64>,
}

impl Number {
    const fn new(naming: Naming, default: i64, min: i64, max: i64) -> Number {
        let second_name = SecondName::new(AtomicI64::new(default));
        Number { naming, min, max, is_size: false, value: AtomicI64::new(default), second_name }
    }

    /// Returns a setting whose value may be a size such as `1gb`.
    const fn size(naming: Naming, default: i64) -> Number {
        Number { is_size: true, ..Number::new(naming, default, 0, i64::MAX) }
    }

    /// Returns a setting that has the same name in Redis 8.
    const fn of_redis_8(name: &'static CStr, default: i64, min: i64, max: i64) -> Number {
        Number::new(Naming::new(name).redis_8(name), default, min, max)
    }

    fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }
}

static INITIAL_SIZE: Number =
    Number::new(Naming::new(c"initial-size").redis_8(c"bf-initial-size").valkey(c"bloom-capacity"), 100, 1, i64::MAX);
static EXPANSION_FACTOR: Number = Number::new(
    Naming::new(c"expansion-factor").redis_8(c"bf-expansion-factor").valkey(c"bloom-expansion"),
    2,
    0,
    u32::MAX as i64,
);
static FILTER_MEMORY_LIMIT: Number =
    Number::size(Naming::new(c"filter-memory-limit").valkey(c"bloom-memory-usage-limit"), 0);
static MERGE_LIMIT: Number = Number::size(Naming::new(c"merge-limit"), DEFAULT_MERGE_LIMIT);

/// Merging tables takes 12 to 15 ns for each byte of them, so this many take about a second.
const DEFAULT_MERGE_LIMIT: i64 = 64 << 20;

static LOOKAHEAD_SIZE: Number = Number::size(Naming::new(c"lookahead-size"), 2 << 20);

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

/// A setting that is a number above 0 and below 1.
struct Fraction {
    naming: Naming,
    /// The bits of the value.
    value: AtomicU64,
    second_name: SecondName<AtomicU64>,
}

impl Fraction {
    const RANGE: &str = "must be a number above 0 and below 1";

    const fn new(naming: Naming, default: ErrorRate) -> Fraction {
        let default = default.get().to_bits();
        Fraction { naming, value: AtomicU64::new(default), second_name: SecondName::new(AtomicU64::new(default)) }
    }

    fn get(&self) -> ErrorRate {
        // Only such rates are ever set.
        ErrorRate::new(f64::from_bits(self.value.load(Ordering::Relaxed))).unwrap_or(DEFAULT_ERROR_RATE)
    }

    fn set(&self, value: ErrorRate) {
        self.value.store(value.get().to_bits(), Ordering::Relaxed);
    }
}

const DEFAULT_ERROR_RATE: ErrorRate = ErrorRate::new(0.01).unwrap();

static ERROR_RATE: Fraction =
    Fraction::new(Naming::new(c"error-rate").redis_8(c"bf-error-rate").valkey(c"bloom-fp-rate"), DEFAULT_ERROR_RATE);
static TIGHTENING_RATIO: Fraction =
    Fraction::new(Naming::new(c"bloom-tightening-ratio"), const { ErrorRate::new(0.5).unwrap() });

static FRACTIONS: [&Fraction; 2] = [&ERROR_RATE, &TIGHTENING_RATIO];

/// A setting whose value is one of several words.
struct Choice {
    name: &'static CStr,
    words: &'static [&'static CStr],
    /// The index of the chosen word.
    value: AtomicI32,
    /// Tells other parts of the module the index.
    on_set: fn(i32),
}

static LAYOUT: Choice = Choice::of_layouts(c"layout", LAYOUTS.len());
static CF_LAYOUT: Choice = Choice::of_layouts(c"cf-layout", CUCKOO_LAYOUTS);
static REDISBLOOM_VERSION: Choice = Choice::new(c"redisbloom-version", &[c"auto", c"2", c"8"]);

static DIALECT: Choice = Choice { on_set: set_dialect, ..Choice::new(c"dialect", &[c"redisbloom", c"valkey-bloom"]) };

/// Sets the dialect of all families that valkey-bloom has. It has no cuckoo filters.
fn set_dialect(index: i32) {
    BLOOM.set_dialect(if index == 0 { Dialect::RedisBloom } else { Dialect::ValkeyBloom });
}

static USE_RANDOM_SEED: Choice = Choice::yes_or_no(c"bloom-use-random-seed");
static DEFRAG_ENABLED: Choice = Choice::yes_or_no(c"bloom-defrag-enabled");

static CHOICES: [&Choice; 6] = [&LAYOUT, &CF_LAYOUT, &REDISBLOOM_VERSION, &DIALECT, &USE_RANDOM_SEED, &DEFRAG_ENABLED];

impl Choice {
    /// Returns a choice of which the default is the first word.
    const fn new(name: &'static CStr, words: &'static [&'static CStr]) -> Choice {
        Choice { name, words, value: AtomicI32::new(0), on_set: |_| () }
    }

    /// Returns a choice of the first layouts, this many.
    const fn of_layouts(name: &'static CStr, count: usize) -> Choice {
        const WORDS: &[&CStr] = &[LAYOUTS[0].name(), LAYOUTS[1].name(), LAYOUTS[2].name()];
        Choice::new(name, WORDS.split_at(count).0)
    }

    /// Returns a choice of which the default is `yes`.
    const fn yes_or_no(name: &'static CStr) -> Choice {
        Choice::new(name, &[c"yes", c"no"])
    }

    fn is_yes(&self) -> bool {
        self.get() == 0
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
        self.set(i32::try_from(index).ok()?);
        Some(())
    }

    fn set(&self, index: i32) {
        self.value.store(index, Ordering::Relaxed);
        (self.on_set)(index);
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
    ERROR_RATE.get()
}

/// Returns the default ratio of the error rates of successive layers of a valkey filter.
pub(crate) fn tightening_ratio() -> ErrorRate {
    TIGHTENING_RATIO.get()
}

/// Returns true if each new valkey filter gets a seed of its own, and false if all get valkey-bloom's fixed one.
pub(crate) fn uses_random_seeds() -> bool {
    USE_RANDOM_SEED.is_yes()
}

/// Returns true if the server's defragmenter may move the allocations of filters.
pub(crate) fn is_defragmented() -> bool {
    DEFRAG_ENABLED.is_yes()
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
    let fractions =
        FRACTIONS.map(|fraction| format!("{} {}", fraction.naming.own.to_string_lossy(), fraction.get().get()));
    let numbers = NUMBERS.map(|number| format!("{} {}", number.naming.own.to_string_lossy(), number.get()));
    let choices =
        CHOICES.map(|choice| format!("{} {}", choice.name.to_string_lossy(), choice.word().to_string_lossy()));
    [&fractions[..], &numbers, &choices].concat().join(", ")
}
