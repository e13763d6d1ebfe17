//! The settings of Bloom filters.

use std::ffi::CStr;
use std::num::NonZeroU64;

use super::setting::{Setting, settings};
use crate::family::{BLOOM, Dialect};
use crate::server::feature;
use oxbloom_filter::internals::{ErrorRate, Growth, Kind};

settings! {
    /// Returns the default error rate of new filters.
    error_rate: ErrorRate = Setting::rate,
        Setting::fraction(c"error-rate", 0.01).redis_8(c"bf-error-rate").valkey(c"bloom-fp-rate");
    /// Returns the default ratio of the error rates of successive layers of a valkey filter.
    tightening_ratio: ErrorRate = Setting::rate,
        Setting::fraction(c"bloom-tightening-ratio", 0.5);
    /// Returns the default capacity of new filters.
    initial_size: NonZeroU64 = |setting| NonZeroU64::new(setting.get() as u64).unwrap_or(NonZeroU64::MIN),
        Setting::number(c"initial-size", 100, 1, i64::MAX).redis_8(c"bf-initial-size").valkey(c"bloom-capacity");
    /// Returns the default growth of new filters.
    growth: Growth = |setting| Growth::of(setting.get() as u32),
        Setting::number(c"expansion-factor", 2, 0, u32::MAX as i64)
            .redis_8(c"bf-expansion-factor")
            .valkey(c"bloom-expansion");
    /// Returns the maximum number of bytes of tables that a command merges; 0 for no limit.
    merge_limit: u64 = |setting| setting.get() as u64,
        // Merging tables takes 12 to 15 ns for each byte of them, so this many take about a second.
        Setting::size(c"merge-limit", 64 << 20);
    /// Returns the number of bytes in which the last changes of a filter are kept while clients follow it.
    changes_size: u64 = |setting| setting.get() as u64,
        Setting::size(c"changes-size", 64 << 10);
    /// Returns the layout of new filters whose options do not ask for a kind: its index in [`LAYOUT_NAMES`].
    layout: usize = |setting| setting.of([0, 1, 2]),
        Setting::word(c"layout", &LAYOUT_NAMES);
    /// Returns true if RedisBloom's streams and append-only files are of the one that is built into Redis 8, and false
    /// for RedisBloom up to 2.8: by default, of the one for this server. They create different filters from the same
    /// commands.
    has_redis_8_streams: bool = |setting| setting.of([feature::is_redis_8(), false, true]),
        Setting::word(c"redisbloom-version", &[c"auto", c"2", c"8"]);
    /// Returns the project whose replies clients get. Commands ask their [family](BLOOM) for it.
    dialect: Dialect = |setting| setting.of([Dialect::RedisBloom, Dialect::ValkeyBloom]),
        Setting::word(c"dialect", &[c"redisbloom", c"valkey-bloom"]).on_set(|| BLOOM.set_dialect(dialect()));
    /// Returns true if each new valkey filter gets a seed of its own, and false if all get valkey-bloom's fixed one.
    uses_random_seeds: bool = Setting::is_yes,
        Setting::yes_or_no(c"bloom-use-random-seed");
}

/// The layouts of new filters, by their names.
pub(crate) const LAYOUT_NAMES: [&CStr; 3] = [Kind::Native.name(), Kind::Classic.name(), Kind::Valkey.name()];
