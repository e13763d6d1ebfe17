//! Options of commands, one row each. Parsing, COMMAND DOCS, the arity and replication are made from the rows. Each
//! family has a table of rows, which set the fields of its own options.

use std::num::NonZeroU64;

use super::declaration::{Argument, ArgumentKind};
use crate::family::{Dialect, Verb};
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context};
use oxbloom_filter::Filter;

/// An option that sets a field of `O`.
pub(super) struct OptionRow<O: 'static> {
    /// The option in COMMAND DOCS.
    pub argument: Argument,
    /// The commands that have the option.
    pub verbs: &'static [Verb],
    /// The errors for a missing value: of the command that only creates a filter, and of those that add items.
    pub missing: [Error; 2],
    /// True if the command that only creates a filter parses the value after all other options, so that their errors
    /// come first.
    pub is_late: bool,
    /// Parses the value, and sets the option.
    pub set: fn(&mut O, &Given) -> Result<(), Error>,
    /// Returns the value with which the creation of a filter of our own is replicated, empty for a flag, or `None` if
    /// it lacks the option.
    pub replicated: fn(&Filter) -> Option<String>,
}

/// An option as a client gave it.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub ctx: &'a Context<'a>,
    pub grammar: Grammar,
    pub verb: Verb,
    token: &'a [u8],
    /// The argument after the token, or the token itself for a flag.
    pub value: Arg<'a>,
}

/// How the numbers of a command are parsed, and its options checked.
#[derive(Clone, Copy)]
pub(super) struct Grammar {
    dialect: Dialect,
    is_replicated: bool,
}

impl Grammar {
    pub(super) fn of(ctx: &Context) -> Grammar {
        Grammar { dialect: ctx.dialect(), is_replicated: ctx.is_replicated_or_loading() }
    }

    /// Returns true if a client gets the replies of valkey-bloom. Commands from a master or a file were accepted
    /// before, so the dialect does not matter to them.
    pub(super) fn is_valkey(self) -> bool {
        self.dialect == Dialect::ValkeyBloom && !self.is_replicated
    }

    /// Parses an integer. A master may be valkey-bloom, whatever the dialect is.
    pub(super) fn integer(self, value: Arg) -> Option<i64> {
        if self.is_valkey() || self.is_replicated { value.loose_integer() } else { value.integer() }
    }

    pub(super) fn float(self, value: Arg) -> Option<f64> {
        if self.is_valkey() { value.loose_float() } else { value.float() }
    }

    /// Parses a capacity, or returns the first error if it is not a number, and the second if it is too low.
    pub(super) fn capacity(self, value: Arg, [bad, out_of_range]: [Error; 2]) -> Result<NonZeroU64, Error> {
        let capacity = self.integer(value).filter(|&capacity| capacity >= 0 || !self.is_valkey());
        positive(capacity.ok_or(bad)?).ok_or(out_of_range)
    }

    /// Returns the error for an option that is given twice, or `None` if the last one counts. A master may accept what
    /// we do not.
    fn repetition(self, verb: Verb) -> Option<Error> {
        match verb {
            _ if self.is_replicated => None,
            Verb::Insert if self.is_valkey() => None,
            Verb::Reserve if self.is_valkey() => Some(Error::WrongArity),
            _ => Some(Error::RepeatedArgument),
        }
    }
}

/// Returns the row of an option on the filter to create, which does nothing.
pub(super) const fn row<O>(argument: Argument) -> OptionRow<O> {
    OptionRow {
        argument,
        verbs: &[Verb::Reserve, Verb::Insert],
        missing: [Error::WrongArity; 2],
        is_late: false,
        set: |_, _| Ok(()),
        replicated: |_| None,
    }
}

impl<O> OptionRow<O> {
    fn belongs_to(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// Returns the number of arguments: the token, and a value unless the option is a flag.
    fn length(&self) -> usize {
        if matches!(self.argument.kind, ArgumentKind::Token) { 1 } else { 2 }
    }
}

/// Returns the maximum number of arguments of a command that are options and their values.
pub(super) fn max_arguments<O>(rows: &[OptionRow<O>], verb: Verb) -> usize {
    rows.iter().filter(|row| row.belongs_to(verb)).map(OptionRow::length).sum()
}

/// Returns the options of a command, for COMMAND DOCS.
pub(super) fn arguments<O>(rows: &'static [OptionRow<O>], verb: Verb) -> impl Iterator<Item = Argument> {
    rows.iter().filter(move |row| row.belongs_to(verb)).map(|row| row.argument)
}

/// Returns the options that replicate the creation of a filter of our own, in pairs of a token and a value.
pub(super) fn replicated<O>(rows: &'static [OptionRow<O>], filter: &Filter) -> impl Iterator<Item = String> {
    let rows = rows.iter().filter(|row| row.belongs_to(Verb::Reserve));
    let with_values = rows.filter_map(|row| Some((row.argument.token?, (row.replicated)(filter)?)));
    let words = with_values.flat_map(|(token, value)| [token.to_string_lossy().into_owned(), value]);
    words.filter(|word| !word.is_empty())
}

/// Parses the options of a command, which start at argument `next` and end before the first argument that `ends` them.
/// Also returns the arguments from there on.
///
/// Of several errors, clients get the one that RedisBloom reports. Its BF.RESERVE ignores unknown options, and checks
/// some when it knows all others.
pub(super) fn parse<'a, O: Default, const N: usize>(
    ctx: &Context,
    rows: &'static [OptionRow<O>; N],
    verb: Verb,
    args: Args<'a>,
    mut next: usize,
    ends: fn(&[u8]) -> bool,
) -> Result<(O, Args<'a>), Error> {
    let grammar = Grammar::of(ctx);
    let (mut options, mut all_given) = (O::default(), [None; N]);
    let is_reserve = verb == Verb::Reserve;
    while next < args.len() && !ends(args.at(next).bytes()) {
        let token = args.at(next).bytes();
        let index = rows.iter().position(|row| row.belongs_to(verb) && row.argument.starts_with(token));
        let unknown = if verb == Verb::Insert { Error::UnknownArgument } else { Error::UnknownOption };
        let index = index.ok_or(unknown(next as u32))?;
        let row = &rows[index];
        let value = args.from(next).iter().nth(row.length() - 1).ok_or(row.missing[usize::from(!is_reserve)])?;
        let given = Given { ctx, grammar, verb, token, value };
        if !(row.is_late && is_reserve) {
            (row.set)(&mut options, &given)?;
        }
        let is_repeated = all_given[index].replace(given).is_some();
        if is_repeated && let Some(error) = grammar.repetition(verb) {
            return Err(error);
        }
        next += row.length();
    }
    for (row, given) in rows.iter().zip(&all_given) {
        if let Some(given) = given.as_ref().filter(|_| row.is_late && is_reserve) {
            (row.set)(&mut options, given)?;
        }
    }
    Ok((options, args.from(next)))
}

/// Sets an option to its value, or returns the error if that is bad.
pub(super) fn set<T>(option: &mut Option<T>, value: Option<T>, error: Error) -> Result<(), Error> {
    *option = Some(value.ok_or(error)?);
    Ok(())
}

pub(super) fn switch_on(flag: &mut bool) -> Result<(), Error> {
    *flag = true;
    Ok(())
}

/// Returns the number, or `None` unless it is above 0.
pub(super) fn positive(number: i64) -> Option<NonZeroU64> {
    u64::try_from(number).ok().and_then(NonZeroU64::new)
}

/// The options that set the time at which the key expires, as in the server's own commands.
const EXPIRY: [Argument; 4] = [
    Argument::alternative(c"EX", c"seconds", ArgumentKind::Integer),
    Argument::alternative(c"PX", c"milliseconds", ArgumentKind::Integer),
    Argument::alternative(c"EXAT", c"unix-time-seconds", ArgumentKind::UnixTime),
    Argument::alternative(c"PXAT", c"unix-time-milliseconds", ArgumentKind::UnixTime),
];
/// Their units in milliseconds.
const EXPIRY_UNITS: [i64; 4] = [1000, 1, 1000, 1];

/// Returns the row of the time at which the key expires, given its field. The time belongs to the key, so its
/// replication is not a matter of the filter.
pub(super) const fn expiry_row<O>(set: fn(&mut O, &Given) -> Result<(), Error>) -> OptionRow<O> {
    OptionRow {
        missing: [Error::BadExpireTime, Error::WrongArity],
        set,
        ..row(Argument::choice(c"expiration", &EXPIRY))
    }
}

impl Given<'_> {
    /// Returns the time at which the key expires, in milliseconds since 1970.
    pub(super) fn expires_at(&self) -> Option<i64> {
        let (argument, unit) =
            EXPIRY.iter().zip(EXPIRY_UNITS).find(|(argument, _)| argument.starts_with(self.token))?;
        let start = if matches!(argument.kind, ArgumentKind::UnixTime) { 0 } else { self.ctx.milliseconds() };
        self.value.integer().filter(|&number| number > 0)?.checked_mul(unit)?.checked_add(start)
    }
}
