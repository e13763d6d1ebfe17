//! Servers of either side.

use testkit::{Setup, oxbloom, redisbloom};

pub(crate) fn theirs() -> Setup {
    Setup::with_module(redisbloom())
}

/// The settings with which filters are RedisBloom's.
pub(crate) const CLASSIC: &str = "bf-layout classic cf-layout classic";

/// Returns the setup of this module with classic filters.
pub(crate) fn ours() -> Setup {
    Setup::with_module(oxbloom()).module_arguments(CLASSIC)
}

pub(crate) type Starter = fn() -> Setup;

/// Returns both directions of a move: the setups of the server that writes and of the one that reads.
pub(crate) fn directions() -> [(Starter, Starter); 2] {
    [(theirs, ours), (ours, theirs)]
}
