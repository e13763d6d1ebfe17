//! The settings of Bloom filters.

use std::ffi::CStr;
use std::num::{NonZeroU32, NonZeroU64};

use super::setting::{Choice, Fraction, Naming, Number, Settings};
use crate::family::{BLOOM, Dialect};
use crate::server::feature;
use oxbloom_filter::internals::{ErrorRate, FilterKind, Growth};

pub(super) static SETTINGS: Settings = Settings {
    fractions: &[&ERROR_RATE, &TIGHTENING_RATIO],
    numbers: &[&INITIAL_SIZE, &EXPANSION_FACTOR, &MERGE_LIMIT],
    choices: &[&LAYOUT, &REDISBLOOM_VERSION, &DIALECT, &USE_RANDOM_SEED],
};

static ERROR_RATE: Fraction = Fraction::new(
    Naming::new(c"error-rate").redis_8(c"bf-error-rate").valkey(c"bloom-fp-rate"),
    const { ErrorRate::new(0.01).unwrap() },
);
static TIGHTENING_RATIO: Fraction =
    Fraction::new(Naming::new(c"bloom-tightening-ratio"), const { ErrorRate::new(0.5).unwrap() });

static INITIAL_SIZE: Number =
    Number::new(Naming::new(c"initial-size").redis_8(c"bf-initial-size").valkey(c"bloom-capacity"), 100, 1, i64::MAX);
static EXPANSION_FACTOR: Number = Number::new(
    Naming::new(c"expansion-factor").redis_8(c"bf-expansion-factor").valkey(c"bloom-expansion"),
    2,
    0,
    u32::MAX as i64,
);
static MERGE_LIMIT: Number = Number::size(Naming::new(c"merge-limit"), DEFAULT_MERGE_LIMIT);

/// Merging tables takes 12 to 15 ns for each byte of them, so this many take about a second.
const DEFAULT_MERGE_LIMIT: i64 = 64 << 20;

static LAYOUT: Choice = Choice::new(c"layout", &BloomLayout::NAMES);
static REDISBLOOM_VERSION: Choice = Choice::new(c"redisbloom-version", &[c"auto", c"2", c"8"]);
static DIALECT: Choice = Choice { on_set: set_dialect, ..Choice::new(c"dialect", &[c"redisbloom", c"valkey-bloom"]) };
static USE_RANDOM_SEED: Choice = Choice::yes_or_no(c"bloom-use-random-seed");

fn set_dialect(_: i32) {
    BLOOM.set_dialect(DIALECT.of([Dialect::RedisBloom, Dialect::ValkeyBloom]));
}

/// A layout that clients can choose with the option LAYOUT, and without another option.
#[derive(Clone, Copy)]
pub(crate) enum BloomLayout {
    Native,
    Classic,
    Valkey,
}

impl BloomLayout {
    pub(crate) const ALL: [BloomLayout; 3] = [BloomLayout::Native, BloomLayout::Classic, BloomLayout::Valkey];

    /// The names, in the order of [`ALL`](Self::ALL).
    pub(crate) const NAMES: [&CStr; 3] = [Self::ALL[0].name(), Self::ALL[1].name(), Self::ALL[2].name()];

    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            BloomLayout::Native => FilterKind::Native.name(),
            BloomLayout::Classic => FilterKind::Classic.name(),
            BloomLayout::Valkey => FilterKind::Valkey.name(),
        }
    }
}

/// Returns the default layout of new filters.
pub(crate) fn layout() -> BloomLayout {
    LAYOUT.of(BloomLayout::ALL)
}

/// Returns the default error rate of new filters.
pub(crate) fn error_rate() -> ErrorRate {
    ERROR_RATE.get()
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

/// Returns the maximum number of bytes of tables that a command merges; 0 for no limit.
pub(crate) fn merge_limit() -> u64 {
    MERGE_LIMIT.get() as u64
}

/// Returns the default ratio of the error rates of successive layers of a valkey filter.
pub(crate) fn tightening_ratio() -> ErrorRate {
    TIGHTENING_RATIO.get()
}

/// Returns true if each new valkey filter gets a seed of its own, and false if all get valkey-bloom's fixed one.
pub(crate) fn uses_random_seeds() -> bool {
    USE_RANDOM_SEED.is_yes()
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
    let of_server = if feature::is_redis_8() { RedisBloomVersion::Redis8 } else { RedisBloomVersion::RedisBloom2 };
    REDISBLOOM_VERSION.of([of_server, RedisBloomVersion::RedisBloom2, RedisBloomVersion::Redis8])
}
