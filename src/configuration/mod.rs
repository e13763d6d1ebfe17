//! Settings: the defaults of new filters, limits, prefetching, and compatibility with RedisBloom and valkey-bloom.
//!
//! Every server reads them from the arguments of [`loadmodule`], in RedisBloom's, valkey-bloom's or our spelling.
//! From Redis 7 and Valkey 8 on, they are also [`parameters`] of CONFIG named `bf.…`, or after the module's
//! [name](crate::names). Those that other modules have, too, also have the name of their server: `bf-…` on Redis 8, as
//! in its built-in RedisBloom, and `bf.bloom-…` on Valkey.
//!
//! To add a setting, add its row: to a family's file, or here if it is for all.

pub(crate) mod bloom;
pub(crate) mod cuckoo;
mod loadmodule;
mod parameters;
mod setting;

use setting::{Setting, settings};

pub(crate) use loadmodule::read_arguments;
pub(crate) use parameters::register;

// The settings for filters of all families.
settings! {
    /// Returns the maximum number of bytes of a single filter; 0 for no limit.
    filter_memory_limit: u64 = |setting| setting.get() as u64,
        Setting::size(c"filter-memory-limit", 0).valkey(c"bloom-memory-usage-limit");
    /// Returns when commands on large filters are prefetched for.
    lookahead: Lookahead = |setting| setting.of([Lookahead::Auto, Lookahead::On, Lookahead::Off]),
        Setting::word(c"lookahead", &[c"auto", c"on", c"off"]);
    /// Returns the size in bytes above which filters are prefetched before a command runs; `u64::MAX` for never.
    max_size_without_lookahead: u64 = |setting| (setting.get() as u64).wrapping_sub(1),
        Setting::size(c"lookahead-size", 2 << 20);
    /// Returns true if the server's defragmenter may move the allocations of filters.
    is_defragmented: bool = Setting::is_yes,
        Setting::yes_or_no(c"bloom-defrag-enabled");
}

/// When the module looks ahead: while it pays, always, or never.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookahead {
    Auto,
    On,
    Off,
}

fn all() -> impl Iterator<Item = &'static Setting> {
    bloom::SETTINGS.iter().chain(&cuckoo::SETTINGS).chain(&SETTINGS)
}

/// Lists the settings, for the log.
pub(crate) fn describe() -> String {
    let shown = all().map(|setting| format!("{} {}", setting.name.to_string_lossy(), setting.shown()));
    shown.collect::<Vec<_>>().join(", ")
}
