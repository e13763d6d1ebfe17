//! The options of the commands that create filters, one row each. Parsing, COMMAND DOCS, the arity and
//! replication are made from the rows.
//!
//! To add an option, add three things: its row here, the field of [`Options`] that it sets, and its
//! [error](crate::reply_error).

use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use super::declaration::{Argument, ArgumentKind};
use super::items::ITEMS_TOKEN;
use super::options::Options;
use super::packing;
use crate::configuration::{self, CUCKOO_LAYOUTS, LAYOUTS};
use crate::family::Dialect;
use crate::reply_error::{CuckooOption, Error, RangedOption};
use crate::server::{Arg, Args, Context};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::limits::{MAX_BUCKET_SIZE, MAX_EXPANSION, MAX_LENGTH, SLICES};
use oxbloom_filter::internals::{ErrorRate, FilterKind, Window};

/// A command that creates filters. The errors depend on it, as RedisBloom's do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Creator {
    Reserve,
    Insert,
    Addpacked,
    CuckooReserve,
    CuckooInsert,
}

impl Creator {
    /// Returns true if the command only creates a filter.
    fn is_reserve(self) -> bool {
        matches!(self, Creator::Reserve | Creator::CuckooReserve)
    }

    /// Returns true if the command creates cuckoo filters.
    fn is_of_cuckoo(self) -> bool {
        matches!(self, Creator::CuckooReserve | Creator::CuckooInsert)
    }

    /// Returns true if items follow the options, each an argument.
    fn takes_items(self) -> bool {
        matches!(self, Creator::Insert | Creator::CuckooInsert)
    }
}

/// An option.
struct OptionRow {
    /// The option in COMMAND DOCS.
    argument: Argument,
    /// The commands that have the option.
    creators: &'static [Creator],
    /// The errors for a missing value: of the commands that only create a filter, and of those that add items.
    missing: [Error; 2],
    /// True if a command that only creates a filter parses the value after all other options, so that their errors come
    /// first.
    is_late: bool,
    /// The kind of filters that has the option.
    kind: Option<FilterKind>,
    /// Parses the value, and sets the option.
    set: fn(&mut Options, &Given) -> Result<(), Error>,
    /// Returns the value with which the creation of a filter of our own is replicated, empty for a flag, or `None` if
    /// it lacks the option.
    replicated: fn(&Filter) -> Option<String>,
}

/// The commands with the options that all filters have.
const CREATORS: &[Creator] = &[Creator::Reserve, Creator::Insert, Creator::CuckooReserve, Creator::CuckooInsert];

/// How the numbers of a command are parsed, and its options checked.
#[derive(Clone, Copy)]
pub(super) struct Grammar {
    /// The dialect. It does not matter to commands from a master or a file, which were accepted before.
    dialect: Dialect,
    is_replicated: bool,
}

impl Grammar {
    pub(super) fn of(ctx: &Context) -> Grammar {
        Grammar { dialect: ctx.dialect(), is_replicated: ctx.is_replicated_or_loading() }
    }

    /// Returns true if a client gets the replies of valkey-bloom.
    fn is_valkey(self) -> bool {
        self.dialect == Dialect::ValkeyBloom && !self.is_replicated
    }

    /// Parses an integer. A master may be valkey-bloom, whatever the dialect is.
    fn integer(self, value: Arg) -> Option<i64> {
        if self.is_valkey() || self.is_replicated { value.loose_integer() } else { value.integer() }
    }

    pub(super) fn float(self, value: Arg) -> Option<f64> {
        if self.is_valkey() { value.loose_float() } else { value.float() }
    }

    /// Returns the error for an option that is given twice, or `None` if the last one counts. A master may accept what
    /// we do not.
    fn repetition(self, creator: Creator) -> Option<Error> {
        match creator {
            _ if self.is_replicated => None,
            Creator::Insert if self.is_valkey() => None,
            Creator::Reserve if self.is_valkey() => Some(Error::WrongArity),
            _ => Some(Error::RepeatedArgument),
        }
    }

    /// Parses a capacity, or returns the first error if it is not a number, and the second if it is too low.
    pub(super) fn capacity(self, value: Arg, [bad, out_of_range]: [Error; 2]) -> Result<NonZeroU64, Error> {
        let capacity = self.integer(value).filter(|&capacity| capacity >= 0 || !self.is_valkey());
        positive(capacity.ok_or(bad)?).ok_or(out_of_range)
    }
}

/// An option as a client gave it.
#[derive(Clone, Copy)]
struct Given<'a> {
    ctx: &'a Context<'a>,
    grammar: Grammar,
    creator: Creator,
    token: &'a [u8],
    /// The argument after the token, or the token itself for a flag.
    value: Arg<'a>,
}

/// The options, in the order of COMMAND DOCS and of replication.
static OPTIONS: &[OptionRow] = &[
    OptionRow {
        set: |options, given| {
            let errors = [Error::InsertBadCapacity, Error::InsertRange(RangedOption::Capacity)];
            options.capacity = Some(given.grammar.capacity(given.value, errors)?);
            Ok(())
        },
        ..insert_row(Argument::option(c"CAPACITY", c"capacity", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            // RedisBloom's cuckoo filters have no error rate, and so no text for a bad one.
            let (bad, out_of_range) = match given.creator.is_of_cuckoo() {
                true => (Error::BadErrorRate, Error::RateRange),
                false => (Error::InsertBadErrorRate, Error::InsertRange(RangedOption::ErrorRate)),
            };
            let rate = given.grammar.float(given.value).ok_or(bad)?;
            set(&mut options.error_rate, ErrorRate::new(rate), out_of_range)
        },
        creators: &[Creator::Insert, Creator::CuckooReserve, Creator::CuckooInsert],
        replicated: |filter| Some(filter.error_rate().to_string()),
        ..row(Argument::option(c"ERROR", c"error_rate", ArgumentKind::Double))
    },
    OptionRow {
        creators: &[Creator::CuckooInsert],
        set: |options, given| {
            let capacity = given.value.integer().ok_or(Error::InsertBadCapacity)?;
            let min = 2 * u64::from(configuration::cuckoo_bucket_size());
            let capacity = positive(capacity).filter(|capacity| capacity.get() >= min);
            set(&mut options.capacity, capacity, Error::CuckooCapacity)
        },
        ..row(Argument::option(c"CAPACITY", c"capacity", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            set_number(&mut options.max_iterations, given, 1..=i64::from(u16::MAX), CuckooOption::MaxIterations)
        },
        replicated: |filter| Some(filter.cuckoo_spec()?.max_iterations.to_string()),
        ..cuckoo_row(Argument::option(c"MAXITERATIONS", c"maxiterations", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            set_number(&mut options.bucket_size, given, 1..=MAX_BUCKET_SIZE.into(), CuckooOption::BucketSize)
        },
        replicated: |filter| Some(filter.cuckoo_spec()?.bucket_size.to_string()),
        ..cuckoo_row(Argument::option(c"BUCKETSIZE", c"bucketsize", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            set_number(&mut options.expansion, given, 0..=MAX_EXPANSION.into(), CuckooOption::Expansion)
        },
        replicated: |filter| Some(filter.cuckoo_spec()?.expansion.to_string()),
        ..cuckoo_row(Argument::option(c"EXPANSION", c"expansion", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::NoExpansion, Error::WrongArity],
        is_late: true,
        set: set_expansion,
        replicated: |filter| filter.expansion().map(|expansion| expansion.to_string()),
        ..row(Argument::option(c"EXPANSION", c"expansion", ArgumentKind::Integer))
    },
    OptionRow {
        creators: &[Creator::Insert, Creator::Addpacked, Creator::CuckooInsert],
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
        kind: Some(FilterKind::Counting),
        replicated: |filter| (filter.kind() == FilterKind::Counting).then(String::new),
        ..row(Argument::flag(c"COUNTING", c"counting"))
    },
    OptionRow {
        kind: Some(FilterKind::Windowed),
        missing: [Error::WindowRange; 2],
        set: |options, given| {
            let length = given.value.unsigned().and_then(milliseconds).filter(|length| length.get() <= MAX_LENGTH);
            set(&mut options.window, length, Error::WindowRange)
        },
        replicated: |filter| Some((filter.parameters().window?.length?.get() / 1000).to_string()),
        ..row(Argument::option(c"WINDOW", c"seconds", ArgumentKind::Integer))
    },
    OptionRow {
        kind: Some(FilterKind::Windowed),
        missing: [Error::SlicesRange; 2],
        set: |options, given| {
            let slices = given.value.unsigned().and_then(|slices| u8::try_from(slices).ok());
            set(&mut options.slices, slices.filter(|slices| SLICES.contains(slices)), Error::SlicesRange)
        },
        replicated: |filter| Some(filter.parameters().window?.slices.to_string()),
        ..row(Argument::option(c"SLICES", c"slices", ArgumentKind::Integer))
    },
    OptionRow {
        kind: Some(FilterKind::Windowed),
        set: |options, _| switch_on(&mut options.refresh),
        replicated: |filter| has(filter, |window| window.refresh).then(String::new),
        ..row(Argument::flag(c"REFRESH", c"refresh"))
    },
    OptionRow {
        kind: Some(FilterKind::Windowed),
        set: |options, _| switch_on(&mut options.rolling),
        replicated: |filter| has(filter, |window| window.rolling).then(String::new),
        ..row(Argument::flag(c"ROLLING", c"rolling"))
    },
    OptionRow {
        kind: Some(FilterKind::Valkey),
        set: |options, given| {
            let ratio = given.grammar.float(given.value).ok_or(Error::BadTightening)?;
            set(&mut options.tightening, ErrorRate::new(ratio), Error::TighteningRange)
        },
        ..row(Argument::option(c"TIGHTENING", c"ratio", ArgumentKind::Double))
    },
    OptionRow {
        kind: Some(FilterKind::Valkey),
        set: |options, given| {
            let items = given.grammar.capacity(given.value, [Error::BadCapacity, Error::CapacityRange])?;
            options.scales_to = Some(items);
            Ok(())
        },
        ..row(Argument::option(c"VALIDATESCALETO", c"items", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadSeed, Error::WrongArity],
        creators: CREATORS,
        set: |options, given| match given.value.bytes().try_into() {
            // A number has at most 20 digits.
            Ok(seed) if !given.creator.is_of_cuckoo() => {
                options.kinds.add(FilterKind::Valkey);
                options.valkey_seed = Some(seed);
                Ok(())
            }
            _ => set(&mut options.seed, given.value.unsigned(), Error::BadSeed),
        },
        replicated: |filter| filter.seed().map(|seed| seed.to_string()),
        ..row(Argument::option(c"SEED", c"seed", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadLayout, Error::WrongArity],
        set: |options, given| {
            options.kinds.add(layout(given, &LAYOUTS).ok_or(Error::BadLayout)?);
            Ok(())
        },
        replicated: |_| Some(FilterKind::Native.name().to_string_lossy().into_owned()),
        ..row(Argument::option(c"LAYOUT", c"layout", ArgumentKind::OneOf(&LAYOUT_ARGUMENTS)))
    },
    OptionRow {
        missing: [Error::BadCuckooLayout, Error::WrongArity],
        set: |options, given| {
            let kind = layout(given, &LAYOUTS[..CUCKOO_LAYOUTS]).ok_or(Error::BadCuckooLayout)?;
            options.kinds.add(if kind == FilterKind::Classic { FilterKind::Cuckoo } else { kind });
            Ok(())
        },
        creators: &[Creator::CuckooReserve, Creator::CuckooInsert],
        replicated: |_| Some(FilterKind::Native.name().to_string_lossy().into_owned()),
        ..cuckoo_row(Argument::option(
            c"LAYOUT",
            c"layout",
            ArgumentKind::OneOf(LAYOUT_ARGUMENTS.split_at(CUCKOO_LAYOUTS).0),
        ))
    },
    // The time belongs to the key, so `create` replicates it.
    OptionRow {
        creators: CREATORS,
        missing: [Error::BadExpireTime, Error::WrongArity],
        set: |options, given| set(&mut options.expires_at, expires_at(given), Error::BadExpireTime),
        ..row(Argument::choice(c"expiration", &EXPIRY_ARGUMENTS))
    },
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
    OptionRow { creators: &[Creator::Addpacked], set: |options, _| switch_on(&mut options.count), ..row(COUNT) },
];

static LAYOUT_ARGUMENTS: [Argument; LAYOUTS.len()] = [
    Argument::token(LAYOUTS[0].name(), LAYOUTS[0].name()),
    Argument::token(LAYOUTS[1].name(), LAYOUTS[1].name()),
    Argument::token(LAYOUTS[2].name(), LAYOUTS[2].name()),
];

/// The options that set the time at which the key expires, as in the server's own commands, with their units in
/// milliseconds.
const EXPIRY: [(Argument, i64); 4] = [
    (Argument::alternative(c"EX", c"seconds", ArgumentKind::Integer), 1000),
    (Argument::alternative(c"PX", c"milliseconds", ArgumentKind::Integer), 1),
    (Argument::alternative(c"EXAT", c"unix-time-seconds", ArgumentKind::UnixTime), 1000),
    (Argument::alternative(c"PXAT", c"unix-time-milliseconds", ArgumentKind::UnixTime), 1),
];

const EXPIRY_ARGUMENTS: [Argument; 4] = [EXPIRY[0].0, EXPIRY[1].0, EXPIRY[2].0, EXPIRY[3].0];

/// Returns the row of an option that only BF.INSERT has, and that does nothing.
const fn insert_row(argument: Argument) -> OptionRow {
    OptionRow { creators: &[Creator::Insert], ..row(argument) }
}

/// Returns the row of an option on the items to add, which does nothing.
const fn adding_row(argument: Argument) -> OptionRow {
    OptionRow { creators: &[Creator::Insert, Creator::Addpacked], ..row(argument) }
}

/// Returns the row of an option that only CF.RESERVE has, and that does nothing.
const fn cuckoo_row(argument: Argument) -> OptionRow {
    OptionRow { creators: &[Creator::CuckooReserve], is_late: true, ..row(argument) }
}

/// Returns the row of an option on the filter to create, which does nothing.
const fn row(argument: Argument) -> OptionRow {
    OptionRow {
        argument,
        creators: &[Creator::Reserve, Creator::Insert],
        missing: [Error::WrongArity; 2],
        is_late: false,
        kind: None,
        set: |_, _| Ok(()),
        replicated: |_| None,
    }
}

/// Sets an option to its value, or returns the error if that is bad.
fn set<T>(option: &mut Option<T>, value: Option<T>, error: Error) -> Result<(), Error> {
    *option = Some(value.ok_or(error)?);
    Ok(())
}

/// Sets an option of a cuckoo filter to a number in a range.
fn set_number<T: TryFrom<i64>>(
    option: &mut Option<T>,
    given: &Given,
    range: RangeInclusive<i64>,
    name: CuckooOption,
) -> Result<(), Error> {
    let number = given.value.integer().ok_or(Error::CuckooNumber(name))?;
    let number = Some(number).filter(|number| range.contains(number));
    set(option, number.and_then(|number| number.try_into().ok()), Error::CuckooRange(name))
}

fn switch_on(flag: &mut bool) -> Result<(), Error> {
    *flag = true;
    Ok(())
}

fn set_expansion(options: &mut Options, given: &Given) -> Result<(), Error> {
    let factor = given.grammar.integer(given.value);
    let (bad, out_of_range) = match given.creator {
        _ if given.grammar.is_valkey() => return set_valkey_expansion(options, given, factor),
        Creator::Insert | Creator::Addpacked => {
            (Error::InsertBadExpansion, Error::InsertRange(RangedOption::Expansion))
        }
        Creator::Reserve if given.value.is("NONSCALING") || options.nonscaling && factor != Some(0) => {
            return Err(Error::NonscalingExpands);
        }
        Creator::Reserve if factor.is_some_and(|factor| factor < 0) => (Error::BadExpansion, Error::ExpansionRange),
        _ => (Error::BadExpansion, Error::BadExpansion),
    };
    set(&mut options.expansion, u32::try_from(factor.ok_or(bad)?).ok(), out_of_range)
}

/// Sets the expansion in valkey-bloom's dialect.
fn set_valkey_expansion(options: &mut Options, given: &Given, factor: Option<i64>) -> Result<(), Error> {
    if given.creator == Creator::Reserve && options.nonscaling {
        return Err(Error::WrongArity);
    }
    options.nonscaling = false;
    let factor = factor.and_then(|factor| u32::try_from(factor).ok()).filter(|&factor| factor > 0);
    set(&mut options.expansion, factor, Error::BadExpansion)
}

/// Returns the layout that is given, if it is one of these.
fn layout(given: &Given, layouts: &[FilterKind]) -> Option<FilterKind> {
    layouts.iter().copied().find(|kind| kind.name().to_bytes().eq_ignore_ascii_case(given.value.bytes()))
}

/// Returns the time at which the key expires, in milliseconds since 1970.
fn expires_at(given: &Given) -> Option<i64> {
    let (argument, unit) = EXPIRY.iter().find(|(argument, _)| argument.starts_with(given.token))?;
    let start = if matches!(argument.kind, ArgumentKind::UnixTime) { 0 } else { given.ctx.milliseconds() };
    given.value.integer().filter(|&number| number > 0)?.checked_mul(*unit)?.checked_add(start)
}

fn has(filter: &Filter, is_set: fn(Window) -> bool) -> bool {
    filter.parameters().window.is_some_and(is_set)
}

impl OptionRow {
    const fn belongs_to(&self, creator: Creator) -> bool {
        let mut index = 0;
        while index < self.creators.len() {
            if self.creators[index] as u8 == creator as u8 {
                return true;
            }
            index += 1;
        }
        false
    }

    const fn is_flag(&self) -> bool {
        matches!(self.argument.kind, ArgumentKind::Token)
    }
}

/// Returns the maximum number of arguments of a command that are options and their values.
pub(super) const fn max_arguments(creator: Creator) -> usize {
    let (mut count, mut row) = (0, 0);
    while row < OPTIONS.len() {
        if OPTIONS[row].belongs_to(creator) {
            count += if OPTIONS[row].is_flag() { 1 } else { 2 };
        }
        row += 1;
    }
    count
}

/// Returns the options of a command, for COMMAND DOCS.
pub(super) fn arguments(creator: Creator) -> impl Iterator<Item = Argument> {
    OPTIONS.iter().filter(move |row| row.belongs_to(creator)).map(|row| row.argument)
}

/// Returns the options of a command that replicates a new filter of our own, whatever the configuration is.
pub(super) fn replicated(creator: Creator, filter: &Filter) -> impl Iterator<Item = String> {
    let rows = OPTIONS.iter().filter(move |row| row.belongs_to(creator));
    let with_values = rows.filter_map(|row| Some((row.argument.token?, (row.replicated)(filter)?)));
    let words = with_values.flat_map(|(token, value)| [token.to_string_lossy().into_owned(), value]);
    words.filter(|word| !word.is_empty())
}

/// The option of all packed commands that makes the reply a number.
pub(super) const COUNT: Argument = Argument::flag(c"COUNT", c"count");

/// The items of BF.INSERT, after its options.
pub(super) const ITEMS: Argument = Argument::items(Some(ITEMS_TOKEN));

/// Parses the options of a command, which start at argument `next`. Also returns the arguments after the options: the
/// items of BF.INSERT, or the packing of BF.ADDPACKED and its items.
///
/// Of several errors, clients get the one that RedisBloom reports. Its BF.INSERT checks the options in order, but their
/// ranges last. Its BF.RESERVE ignores unknown options, and checks EXPANSION when it knows whether NONSCALING is given.
///
/// In valkey-bloom, ranges are checked in order, too. The last of equal options counts, and BF.RESERVE has one option.
pub(super) fn parse<'a>(
    ctx: &Context,
    creator: Creator,
    args: Args<'a>,
    mut next: usize,
) -> Result<(Options, Args<'a>), Error> {
    let ends_options = |token: &[u8]| match creator {
        Creator::Addpacked => packing::starts_with(token),
        _ => creator.takes_items() && ITEMS.starts_with(token),
    };
    let is_late = |row: &OptionRow| row.is_late && creator.is_reserve();
    let grammar = Grammar::of(ctx);
    let (mut options, mut all_given) = (Options::default(), [None; OPTIONS.len()]);
    let mut out_of_range = None;
    while next < args.len() && !ends_options(args.at(next).bytes()) {
        let token = args.at(next).bytes();
        let index = OPTIONS.iter().position(|row| row.belongs_to(creator) && row.argument.starts_with(token));
        let unknown = if creator.takes_items() { Error::UnknownArgument } else { Error::UnknownOption };
        let index = index.ok_or(unknown(next as u32))?;
        let row = &OPTIONS[index];
        let length = if row.is_flag() { 1 } else { 2 };
        let value = args.from(next).iter().nth(length - 1).ok_or(row.missing[usize::from(!creator.is_reserve())])?;
        let given = Given { ctx, grammar, creator, token, value };
        if !is_late(row) {
            match (row.set)(&mut options, &given) {
                Err(error @ Error::InsertRange(_)) if !grammar.is_valkey() => {
                    out_of_range = out_of_range.or(Some(error))
                }
                set => set?,
            }
        }
        let is_repeated = all_given[index].replace(given).is_some();
        if is_repeated && let Some(error) = grammar.repetition(creator) {
            return Err(error);
        }
        if let Some(kind) = row.kind {
            options.kinds.add(kind);
        }
        next += length;
    }
    for (row, given) in OPTIONS.iter().zip(&all_given) {
        if let Some(given) = given.as_ref().filter(|_| is_late(row)) {
            (row.set)(&mut options, given)?;
        }
    }
    let rest = if creator.takes_items() { args.from(next + 1) } else { args.from(next) };
    // valkey-bloom's BF.INSERT may have no items, and then only creates a filter.
    let is_valkey = options.is_valkey() || ctx.dialect() == Dialect::ValkeyBloom;
    let may_lack_items = creator == Creator::Insert && next == args.len() && is_valkey;
    if creator.takes_items() && rest.is_empty() && !may_lack_items {
        return Err(Error::WrongArity);
    }
    out_of_range.map_or(Ok((options, rest)), Err)
}

/// Converts seconds to milliseconds.
fn milliseconds(seconds: u64) -> Option<NonZeroU64> {
    seconds.checked_mul(1000).and_then(NonZeroU64::new)
}

/// Returns the number, or `None` unless it is above 0.
pub(super) fn positive(number: i64) -> Option<NonZeroU64> {
    u64::try_from(number).ok().and_then(NonZeroU64::new)
}
