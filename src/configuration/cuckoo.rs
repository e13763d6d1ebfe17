//! The settings of cuckoo filters.

use std::ffi::CStr;
use std::num::NonZeroU64;

use super::setting::{Choice, Number, Settings};
use oxbloom_filter::internals::FilterKind;
use oxbloom_filter::internals::limits::{MAX_BUCKET_SIZE, MAX_EXPANSION};

pub(super) static SETTINGS: Settings = Settings {
    fractions: &[],
    numbers: &[&BUCKET_SIZE, &INITIAL_SIZE, &MAX_ITERATIONS, &EXPANSION_FACTOR, &MAX_EXPANSIONS],
    choices: &[&LAYOUT],
};

static BUCKET_SIZE: Number = Number::of_redis_8(c"cf-bucket-size", 2, 1, MAX_BUCKET_SIZE as i64);
static INITIAL_SIZE: Number = Number::of_redis_8(c"cf-initial-size", 1024, 2, i64::MAX);
static MAX_ITERATIONS: Number = Number::of_redis_8(c"cf-max-iterations", 20, 1, u16::MAX as i64);
static EXPANSION_FACTOR: Number = Number::of_redis_8(c"cf-expansion-factor", 1, 0, MAX_EXPANSION as i64);
static MAX_EXPANSIONS: Number = Number::of_redis_8(c"cf-max-expansions", 32, 1, i64::MAX);
static LAYOUT: Choice = Choice::new(c"cf-layout", &CuckooLayout::NAMES);

/// A layout that clients can choose with the option LAYOUT.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CuckooLayout {
    Native,
    Classic,
}

impl CuckooLayout {
    pub(crate) const ALL: [CuckooLayout; 2] = [CuckooLayout::Native, CuckooLayout::Classic];

    /// The names, in the order of [`ALL`](Self::ALL).
    pub(crate) const NAMES: [&CStr; 2] = [Self::ALL[0].name(), Self::ALL[1].name()];

    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            CuckooLayout::Native => FilterKind::Native.name(),
            CuckooLayout::Classic => FilterKind::Classic.name(),
        }
    }
}

/// Returns the default layout of new filters.
pub(crate) fn layout() -> CuckooLayout {
    LAYOUT.of(CuckooLayout::ALL)
}

/// Returns the default number of slots in a bucket.
pub(crate) fn bucket_size() -> u16 {
    BUCKET_SIZE.get() as u16
}

/// Returns the default capacity of new filters.
pub(crate) fn initial_size() -> NonZeroU64 {
    NonZeroU64::new(INITIAL_SIZE.get() as u64).unwrap_or(NonZeroU64::MIN)
}

/// Returns the default maximum number of fingerprints that move to make room for another.
pub(crate) fn max_iterations() -> u16 {
    MAX_ITERATIONS.get() as u16
}

/// Returns the default expansion of new filters; 0 if they do not grow.
pub(crate) fn expansion() -> u32 {
    EXPANSION_FACTOR.get() as u32
}

/// Returns the number of layers with which a filter rejects additions.
pub(crate) fn max_expansions() -> usize {
    MAX_EXPANSIONS.get() as usize
}
