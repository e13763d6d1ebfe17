//! The options of the commands that create cuckoo filters, one [row](option_row) each.
//!
//! To add an option, add its row and the field of [`Options`] that it sets here, its [error](crate::reply_error), and
//! what it means for the filter to [create](super::creation).

use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use crate::commands::declaration::{Argument, ArgumentKind};
use crate::commands::items::ITEMS;
use crate::commands::option_row::{self, Given, OptionRow, expiry_row, positive, row, set, switch_on};
use crate::configuration;
use crate::configuration::cuckoo::{CuckooLayout, LAYOUT_NAMES, LAYOUTS};
use crate::family::Verb;
use crate::reply_error::Error;
use crate::server::{Args, Context};
use oxbloom_filter::internals::limits::{MAX_BUCKET_SIZE, MAX_EXPANSION};
use oxbloom_filter::internals::{ErrorRate, Kind};

/// The options of a command that creates a filter or adds items. An option that is not given has its default.
#[derive(Default)]
pub(super) struct Options {
    pub capacity: Option<NonZeroU64>,
    pub error_rate: Option<ErrorRate>,
    /// The factor by which a classic filter grows; 0 if it does not grow.
    pub expansion: Option<u32>,
    pub nocreate: bool,
    pub seed: Option<u64>,
    pub layout: Option<CuckooLayout>,
    /// The number of slots in a bucket.
    pub bucket_size: Option<u16>,
    /// The maximum number of fingerprints that move to make room for another.
    pub max_iterations: Option<u16>,
    /// The time at which the key expires, in milliseconds since 1970. It may be over, as in the server's SET.
    pub expires_at: Option<i64>,
}

/// The options, in the order of COMMAND DOCS and of replication.
pub(super) static OPTIONS: &[OptionRow<Options>; 9] = &[
    OptionRow {
        set: |options, given| {
            // RedisBloom's cuckoo filters have no error rate, and so no text for a bad one.
            let rate = given.value.float().ok_or(Error::BadErrorRate)?;
            set(&mut options.error_rate, ErrorRate::new(rate), Error::RateRange)
        },
        replicated: |filter| Some(filter.error_rate().to_string()),
        ..row(Argument::option(c"ERROR", c"error_rate", ArgumentKind::Double))
    },
    OptionRow {
        verbs: &[Verb::Insert],
        set: |options, given| {
            let capacity = given.value.integer().ok_or(Error::InsertBadCapacity)?;
            let min = 2 * u64::from(configuration::cuckoo::bucket_size());
            let capacity = positive(capacity).filter(|capacity| capacity.get() >= min);
            set(&mut options.capacity, capacity, Error::CuckooCapacity)
        },
        ..row(Argument::option(c"CAPACITY", c"capacity", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            let errors = [Error::BadMaxIterations, Error::MaxIterationsRange];
            set_number(&mut options.max_iterations, given, 1..=i64::from(u16::MAX), errors)
        },
        replicated: |filter| Some(filter.cuckoo_spec()?.max_iterations.to_string()),
        ..late_row(Argument::option(c"MAXITERATIONS", c"maxiterations", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            let errors = [Error::BadBucketSize, Error::BucketSizeRange];
            set_number(&mut options.bucket_size, given, 1..=MAX_BUCKET_SIZE.into(), errors)
        },
        replicated: |filter| Some(filter.cuckoo_spec()?.bucket_size.to_string()),
        ..late_row(Argument::option(c"BUCKETSIZE", c"bucketsize", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            let errors = [Error::BadCuckooExpansion, Error::CuckooExpansionRange];
            set_number(&mut options.expansion, given, 0..=MAX_EXPANSION.into(), errors)
        },
        replicated: |filter| Some(filter.cuckoo_spec()?.expansion.to_string()),
        ..late_row(Argument::option(c"EXPANSION", c"expansion", ArgumentKind::Integer))
    },
    OptionRow {
        verbs: &[Verb::Insert],
        set: |options, _| switch_on(&mut options.nocreate),
        ..row(Argument::flag(c"NOCREATE", c"nocreate"))
    },
    OptionRow {
        missing: [Error::BadSeed, Error::WrongArity],
        set: |options, given| set(&mut options.seed, given.value.unsigned(), Error::BadSeed),
        replicated: |filter| filter.seed().map(|seed| seed.to_string()),
        ..row(Argument::option(c"SEED", c"seed", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadCuckooLayout, Error::WrongArity],
        is_late: true,
        set: |options, given| {
            let layout = given.value.index_in(&LAYOUT_NAMES).map(|layout| LAYOUTS[layout]);
            set(&mut options.layout, layout, Error::BadCuckooLayout)
        },
        replicated: |_| Some(Kind::Native.name().to_string_lossy().into_owned()),
        ..row(Argument::option(c"LAYOUT", c"layout", ArgumentKind::OneOf(&LAYOUT_ARGUMENTS)))
    },
    expiry_row(|options, given| set(&mut options.expires_at, given.expires_at(), Error::BadExpireTime)),
];

static LAYOUT_ARGUMENTS: [Argument; LAYOUTS.len()] = {
    let [native, classic] = LAYOUT_NAMES;
    [Argument::token(native, native), Argument::token(classic, classic)]
};

/// Returns the row of an option that only CF.RESERVE has, and that does nothing. RedisBloom checks these options last.
const fn late_row(argument: Argument) -> OptionRow<Options> {
    OptionRow { verbs: &[Verb::Reserve], is_late: true, ..row(argument) }
}

/// Sets an option to a number in a range.
fn set_number<T: TryFrom<i64>>(
    option: &mut Option<T>,
    given: &Given,
    range: RangeInclusive<i64>,
    [bad, out_of_range]: [Error; 2],
) -> Result<(), Error> {
    let number = given.value.integer().ok_or(bad)?;
    let number = Some(number).filter(|number| range.contains(number));
    set(option, number.and_then(|number| number.try_into().ok()), out_of_range)
}

/// Parses `CF.INSERT key [option …] ITEMS item …` and `CF.INSERTNX …`. Also returns the items.
pub(super) fn parse_insert<'a>(ctx: &Context, args: Args<'a>) -> Result<(Options, Args<'a>), Error> {
    let (options, rest) = option_row::parse(ctx, OPTIONS, Verb::Insert, args, 2, |token| ITEMS.starts_with(token))?;
    let items = rest.from(1);
    if items.is_empty() { Err(Error::WrongArity) } else { Ok((options, items)) }
}
