//! The options of the commands that create Bloom filters or add to them, one [row](option_row) each.
//!
//! To add an option, add three things: its row here, the field of [`Options`] that it sets, and its
//! [error](crate::reply_error).

use std::num::NonZeroU64;

use super::options::{AskedKind, Options};
use super::packing;
use crate::commands::declaration::{Argument, ArgumentKind};
use crate::commands::items::ITEMS;
use crate::commands::option_row::{self, Given, OptionRow, expiry_row, row, set, switch_on};
use crate::configuration::bloom::BloomLayout;
use crate::family::{Dialect, Verb};
use crate::reply_error::Error;
use crate::server::{Args, Context};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::limits::{MAX_LENGTH, SLICES};
use oxbloom_filter::internals::{ErrorRate, Window};

/// The options, in the order of COMMAND DOCS and of replication.
pub(super) static OPTIONS: &[OptionRow<Options>; 19] = &[
    OptionRow {
        set: |options, given| {
            let errors = [Error::InsertBadCapacity, Error::InsertCapacityRange];
            set_ranged(options, given, |options| {
                options.capacity = Some(given.grammar.capacity(given.value, errors)?);
                Ok(())
            })
        },
        ..insert_row(Argument::option(c"CAPACITY", c"capacity", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            let rate = given.grammar.float(given.value).ok_or(Error::InsertBadErrorRate)?;
            let out_of_range = Error::InsertRateRange;
            set_ranged(options, given, |options| set(&mut options.error_rate, ErrorRate::new(rate), out_of_range))
        },
        ..insert_row(Argument::option(c"ERROR", c"error_rate", ArgumentKind::Double))
    },
    OptionRow {
        missing: [Error::NoExpansion, Error::WrongArity],
        is_late: true,
        set: |options, given| set_ranged(options, given, |options| set_expansion(options, given)),
        replicated: |filter| filter.expansion().map(|expansion| expansion.to_string()),
        ..row(Argument::option(c"EXPANSION", c"expansion", ArgumentKind::Integer))
    },
    OptionRow {
        verbs: &[Verb::Insert, Verb::Addpacked],
        set: |options, _| switch_on(&mut options.nocreate),
        ..row(Argument::flag(c"NOCREATE", c"nocreate"))
    },
    OptionRow {
        set: |options, given| {
            // In valkey-bloom, the last of both options counts.
            options.expansion = options.expansion.filter(|_| !given.grammar.is_valkey());
            switch_on(&mut options.nonscaling)
        },
        // A rolling filter neither grows nor gets full, and BF.RESERVE rejects both options.
        replicated: |filter| (filter.expansion().is_none() && !has(filter, |window| window.rolling)).then(String::new),
        ..row(Argument::flag(c"NONSCALING", c"nonscaling"))
    },
    OptionRow {
        set: |options, _| options.ask_for(AskedKind::Counting),
        replicated: |filter| AskedKind::Counting.is_kind_of(filter).then(String::new),
        ..row(Argument::flag(c"COUNTING", c"counting"))
    },
    OptionRow {
        missing: [Error::WindowRange; 2],
        set: |options, given| {
            let length = given.value.unsigned().and_then(milliseconds).filter(|length| length.get() <= MAX_LENGTH);
            set(&mut options.window, length, Error::WindowRange)?;
            options.ask_for(AskedKind::Windowed)
        },
        replicated: |filter| Some((filter.parameters().window?.length?.get() / 1000).to_string()),
        ..row(Argument::option(c"WINDOW", c"seconds", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::SlicesRange; 2],
        set: |options, given| {
            let slices = given.value.unsigned().and_then(|slices| u8::try_from(slices).ok());
            set(&mut options.slices, slices.filter(|slices| SLICES.contains(slices)), Error::SlicesRange)?;
            options.ask_for(AskedKind::Windowed)
        },
        replicated: |filter| Some(filter.parameters().window?.slices.to_string()),
        ..row(Argument::option(c"SLICES", c"slices", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, _| {
            options.refresh = true;
            options.ask_for(AskedKind::Windowed)
        },
        replicated: |filter| has(filter, |window| window.refresh).then(String::new),
        ..row(Argument::flag(c"REFRESH", c"refresh"))
    },
    OptionRow {
        set: |options, _| {
            options.rolling = true;
            options.ask_for(AskedKind::Windowed)
        },
        replicated: |filter| has(filter, |window| window.rolling).then(String::new),
        ..row(Argument::flag(c"ROLLING", c"rolling"))
    },
    OptionRow {
        set: |options, given| {
            let ratio = given.grammar.float(given.value).ok_or(Error::BadTightening)?;
            set(&mut options.tightening, ErrorRate::new(ratio), Error::TighteningRange)?;
            options.ask_for(AskedKind::Valkey)
        },
        ..row(Argument::option(c"TIGHTENING", c"ratio", ArgumentKind::Double))
    },
    OptionRow {
        set: |options, given| {
            let items = given.grammar.capacity(given.value, [Error::BadCapacity, Error::CapacityRange])?;
            options.scales_to = Some(items);
            options.ask_for(AskedKind::Valkey)
        },
        ..row(Argument::option(c"VALIDATESCALETO", c"items", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadSeed, Error::WrongArity],
        set: |options, given| match given.value.bytes().try_into() {
            // A number has at most 20 digits.
            Ok(seed) => {
                options.valkey_seed = Some(seed);
                options.ask_for(AskedKind::Valkey)
            }
            Err(_) => set(&mut options.seed, given.value.unsigned(), Error::BadSeed),
        },
        replicated: |filter| filter.seed().map(|seed| seed.to_string()),
        ..row(Argument::option(c"SEED", c"seed", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadLayout, Error::WrongArity],
        set: |options, given| {
            let layout = given.word(&BloomLayout::NAMES).ok_or(Error::BadLayout)?;
            options.ask_for(BloomLayout::ALL[layout].into())
        },
        replicated: |_| Some(BloomLayout::Native.name().to_string_lossy().into_owned()),
        ..row(Argument::option(c"LAYOUT", c"layout", ArgumentKind::OneOf(&LAYOUT_ARGUMENTS)))
    },
    expiry_row(|options, given| set(&mut options.expires_at, given.expires_at(), Error::BadExpireTime)),
    OptionRow { set: |options, _| switch_on(&mut options.skip_duplicates), ..adding_row(Argument::flag(c"NX", c"nx")) },
    OptionRow {
        missing: [Error::TtlRange; 2],
        set: |options, given| set(&mut options.ttl, given.value.unsigned().and_then(milliseconds), Error::TtlRange),
        ..adding_row(Argument::option(c"TTL", c"seconds", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadTime; 2],
        set: |options, given| {
            let is_past = |&time: &u64| given.ctx.is_replicated_or_loading() || time <= given.ctx.now();
            set(&mut options.at, given.value.unsigned().filter(is_past), Error::BadTime)
        },
        ..adding_row(Argument::option(c"AT", c"unix-time-milliseconds", ArgumentKind::UnixTime))
    },
    OptionRow { verbs: &[Verb::Addpacked], set: |options, _| switch_on(&mut options.count), ..row(packing::COUNT) },
];

static LAYOUT_ARGUMENTS: [Argument; BloomLayout::ALL.len()] = {
    let [native, classic, valkey] = BloomLayout::NAMES;
    [Argument::token(native, native), Argument::token(classic, classic), Argument::token(valkey, valkey)]
};

/// Returns the row of an option that only BF.INSERT has, and that does nothing.
const fn insert_row(argument: Argument) -> OptionRow<Options> {
    OptionRow { verbs: &[Verb::Insert], ..row(argument) }
}

/// Returns the row of an option on the items to add, which does nothing.
const fn adding_row(argument: Argument) -> OptionRow<Options> {
    OptionRow { verbs: &[Verb::Insert, Verb::Addpacked], ..row(argument) }
}

/// Runs `set`. BF.INSERT checks options in order, but in RedisBloom's dialect their ranges last.
fn set_ranged(
    options: &mut Options,
    given: &Given,
    set: impl FnOnce(&mut Options) -> Result<(), Error>,
) -> Result<(), Error> {
    match set(options) {
        Err(error @ (Error::InsertCapacityRange | Error::InsertRateRange | Error::InsertExpansionRange))
            if !given.grammar.is_valkey() =>
        {
            options.out_of_range.get_or_insert(error);
            Ok(())
        }
        result => result,
    }
}

fn set_expansion(options: &mut Options, given: &Given) -> Result<(), Error> {
    let factor = given.grammar.integer(given.value);
    let (bad, out_of_range) = match given.verb {
        _ if given.grammar.is_valkey() => return set_valkey_expansion(options, given, factor),
        Verb::Insert => (Error::InsertBadExpansion, Error::InsertExpansionRange),
        _ if given.value.is("NONSCALING") || options.nonscaling && factor != Some(0) => {
            return Err(Error::NonscalingExpands);
        }
        _ if factor.is_some_and(|factor| factor < 0) => (Error::BadExpansion, Error::ExpansionRange),
        _ => (Error::BadExpansion, Error::BadExpansion),
    };
    set(&mut options.expansion, u32::try_from(factor.ok_or(bad)?).ok(), out_of_range)
}

/// Sets the expansion in valkey-bloom's dialect.
fn set_valkey_expansion(options: &mut Options, given: &Given, factor: Option<i64>) -> Result<(), Error> {
    if matches!(given.verb, Verb::Reserve) && options.nonscaling {
        return Err(Error::WrongArity);
    }
    options.nonscaling = false;
    let factor = factor.and_then(|factor| u32::try_from(factor).ok()).filter(|&factor| factor > 0);
    set(&mut options.expansion, factor, Error::BadExpansion)
}

fn has(filter: &Filter, is_set: fn(Window) -> bool) -> bool {
    filter.parameters().window.is_some_and(is_set)
}

/// Parses the options of BF.INSERT, which start at argument 2. Also returns the items. In valkey-bloom's dialect, and
/// with its options, there may be none.
pub(super) fn parse_insert<'a>(ctx: &Context, args: Args<'a>) -> Result<(Options, Args<'a>), Error> {
    let ends = |token: &[u8]| ITEMS.starts_with(token);
    let (options, rest) = option_row::parse(ctx, OPTIONS, Verb::Insert, args, 2, ends)?;
    let items = rest.from(1);
    let may_lack_items = rest.is_empty() && (options.is_valkey() || ctx.dialect() == Dialect::ValkeyBloom);
    if items.is_empty() && !may_lack_items {
        return Err(Error::WrongArity);
    }
    options.out_of_range.map_or(Ok((options, items)), Err)
}

/// Converts seconds to milliseconds.
fn milliseconds(seconds: u64) -> Option<NonZeroU64> {
    seconds.checked_mul(1000).and_then(NonZeroU64::new)
}
