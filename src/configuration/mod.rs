//! Settings: the defaults of new filters, limits, prefetching, and compatibility with RedisBloom and valkey-bloom.
//!
//! Every server reads them from the [`arguments`] of `loadmodule`, in RedisBloom's, valkey-bloom's or our spelling.
//! From Redis 7 and Valkey 8 on, they are also [`parameters`] of CONFIG named `bf.…`, or after the module's
//! [name](crate::names). Those that other modules have, too, also have the name of their server: `bf-…` on Redis 8, as
//! in its built-in RedisBloom, and `bf.bloom-…` on Valkey.
//!
//! To add a setting, add its static, its place in a list and its getter: to a family's file, or here if it is for all.

mod arguments;
pub(crate) mod bloom;
pub(crate) mod cuckoo;
mod parameters;
mod setting;

use setting::{Choice, Fraction, Naming, Number, Settings};

pub(crate) use arguments::read_arguments;
pub(crate) use parameters::register;

/// All settings.
static ALL: [&Settings; 3] = [&bloom::SETTINGS, &cuckoo::SETTINGS, &SETTINGS];

/// The settings for filters of all families.
static SETTINGS: Settings =
    Settings { fractions: &[], numbers: &[&FILTER_MEMORY_LIMIT, &LOOKAHEAD_SIZE], choices: &[&DEFRAG_ENABLED] };

static FILTER_MEMORY_LIMIT: Number =
    Number::size(Naming::new(c"filter-memory-limit").valkey(c"bloom-memory-usage-limit"), 0);
static LOOKAHEAD_SIZE: Number = Number::size(Naming::new(c"lookahead-size"), 2 << 20);
static DEFRAG_ENABLED: Choice = Choice::yes_or_no(c"bloom-defrag-enabled");

fn fractions() -> impl Iterator<Item = &'static Fraction> {
    ALL.iter().flat_map(|settings| settings.fractions).copied()
}

fn numbers() -> impl Iterator<Item = &'static Number> {
    ALL.iter().flat_map(|settings| settings.numbers).copied()
}

fn choices() -> impl Iterator<Item = &'static Choice> {
    ALL.iter().flat_map(|settings| settings.choices).copied()
}

/// Returns the maximum number of bytes of a single filter; 0 for no limit.
pub(crate) fn filter_memory_limit() -> u64 {
    FILTER_MEMORY_LIMIT.get() as u64
}

/// Returns the size in bytes from which filters are prefetched before a command runs; `u64::MAX` for never.
pub(crate) fn lookahead_size() -> u64 {
    match LOOKAHEAD_SIZE.get() as u64 {
        0 => u64::MAX,
        size => size,
    }
}

/// Returns true if the server's defragmenter may move the allocations of filters.
pub(crate) fn is_defragmented() -> bool {
    DEFRAG_ENABLED.is_yes()
}

/// Lists the settings, for the log.
pub(crate) fn describe() -> String {
    let fractions = fractions().map(|fraction| (fraction.naming.own, fraction.get().get().to_string()));
    let numbers = numbers().map(|number| (number.naming.own, number.get().to_string()));
    let choices = choices().map(|choice| (choice.name, choice.word().to_string_lossy().into_owned()));
    let all = fractions.chain(numbers).chain(choices);
    all.map(|(name, value)| format!("{} {value}", name.to_string_lossy())).collect::<Vec<_>>().join(", ")
}
