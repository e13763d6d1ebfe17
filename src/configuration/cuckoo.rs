//! The settings of cuckoo filters.

use std::ffi::CStr;
use std::num::NonZeroU64;

use super::setting::{Setting, settings};
use oxbloom_filter::internals::Kind;
use oxbloom_filter::internals::limits::{MAX_BUCKET_SIZE, MAX_EXPANSION};

settings! {
    /// Returns the default number of slots in a bucket.
    bucket_size: u16 = |setting| setting.get() as u16,
        number(c"cf-bucket-size", 2, 1, MAX_BUCKET_SIZE as i64);
    /// Returns the default capacity of new filters.
    initial_size: NonZeroU64 = |setting| NonZeroU64::new(setting.get() as u64).unwrap_or(NonZeroU64::MIN),
        number(c"cf-initial-size", 1024, 2, i64::MAX);
    /// Returns the default maximum number of fingerprints that move to make room for another.
    max_iterations: u16 = |setting| setting.get() as u16,
        number(c"cf-max-iterations", 20, 1, u16::MAX as i64);
    /// Returns the default expansion of new filters; 0 if they do not grow.
    expansion: u32 = |setting| setting.get() as u32,
        number(c"cf-expansion-factor", 1, 0, MAX_EXPANSION as i64);
    /// Returns the number of layers with which a filter rejects additions.
    max_expansions: usize = |setting| setting.get() as usize,
        number(c"cf-max-expansions", 32, 1, i64::MAX);
    /// Returns the default layout of new filters.
    layout: CuckooLayout = |setting| setting.of(LAYOUTS),
        Setting::word(c"cf-layout", &LAYOUT_NAMES);
}

/// Returns a number that has the same name in Redis 8.
const fn number(name: &'static CStr, default: i64, min: i64, max: i64) -> Setting {
    Setting::number(name, default, min, max).redis_8(name)
}

/// A layout that clients can choose with the option LAYOUT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CuckooLayout {
    Native,
    Classic,
}

pub(crate) const LAYOUTS: [CuckooLayout; 2] = [CuckooLayout::Native, CuckooLayout::Classic];

/// The names of [`LAYOUTS`].
pub(crate) const LAYOUT_NAMES: [&CStr; 2] = [Kind::Native.name(), Kind::Classic.name()];
