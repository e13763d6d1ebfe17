//! The options of the commands that create cuckoo filters, one [row](option_row) each, and what they mean together.
//!
//! To add an option, add three things: its row here, the field of [`Options`] that it sets, and its
//! [error](crate::reply_error).

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::RangeInclusive;

use crate::commands::creation::Creation;
use crate::commands::declaration::{Argument, ArgumentKind};
use crate::commands::items::ITEMS;
use crate::commands::option_row::{self, Given, OptionRow, expiry_row, positive, row, set, switch_on};
use crate::configuration;
use crate::configuration::cuckoo::CuckooLayout;
use crate::family::Verb;
use crate::reply_error::Error;
use crate::server::{Args, Context, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::limits::{MAX_BUCKET_SIZE, MAX_EXPANSION};
use oxbloom_filter::internals::{CreateParams, CuckooSpec, ErrorRate, Growth, Layout};

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
static OPTIONS: &[OptionRow<Options>; 9] = &[
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
            let layout = given.word(&CuckooLayout::NAMES).map(|layout| CuckooLayout::ALL[layout]);
            set(&mut options.layout, layout, Error::BadCuckooLayout)
        },
        replicated: |_| Some(CuckooLayout::Native.name().to_string_lossy().into_owned()),
        ..row(Argument::option(c"LAYOUT", c"layout", ArgumentKind::OneOf(&LAYOUT_ARGUMENTS)))
    },
    expiry_row(|options, given| set(&mut options.expires_at, given.expires_at(), Error::BadExpireTime)),
];

static LAYOUT_ARGUMENTS: [Argument; CuckooLayout::ALL.len()] = {
    let [native, classic] = CuckooLayout::NAMES;
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

/// Returns the options of a command, for COMMAND DOCS.
pub(super) fn arguments(verb: Verb) -> impl Iterator<Item = Argument> {
    option_row::arguments(OPTIONS, verb)
}

/// Parses `CF.RESERVE key capacity …` as clients and our own stream write it.
pub(super) fn parse_reserve(ctx: &Context, args: Args) -> Result<Options, Error> {
    let capacity = args.at(2).integer().ok_or(Error::InsertBadCapacity)?;
    let (options, rest) = option_row::parse(ctx, OPTIONS, Verb::Reserve, args, 3, |_| false)?;
    debug_assert!(rest.is_empty(), "all arguments are options");
    let capacity = positive(capacity).ok_or(Error::CuckooCapacity)?;
    Ok(Options { capacity: Some(capacity), ..options })
}

/// Parses `CF.INSERT key [option …] ITEMS item …` and `CF.INSERTNX …`. Also returns the items.
pub(super) fn parse_insert<'a>(ctx: &Context, args: Args<'a>) -> Result<(Options, Args<'a>), Error> {
    let (options, rest) = option_row::parse(ctx, OPTIONS, Verb::Insert, args, 2, |token| ITEMS.starts_with(token))?;
    let items = rest.from(1);
    if items.is_empty() { Err(Error::WrongArity) } else { Ok((options, items)) }
}

impl Options {
    /// Makes the filter one of RedisBloom's.
    pub(super) fn of_redisbloom(self) -> Options {
        Options { layout: Some(CuckooLayout::Classic), ..self }
    }
}

impl Creation for Options {
    fn of_stream() -> Options {
        Options::default().of_redisbloom()
    }

    fn check_existing(&self, _: &Context, filter: &Filter) -> Result<(), Error> {
        if self.layout.is_some_and(|layout| (layout == CuckooLayout::Native) != filter.kind().is_own()) {
            return Err(Error::OtherLayout);
        }
        if self.seed.is_some() && self.seed != filter.seed() { Err(Error::OtherSeed) } else { Ok(()) }
    }

    fn may_create(&self) -> bool {
        !self.nocreate
    }

    fn params(&self, server: &Server) -> Result<CreateParams, Error> {
        let bucket_size = self.bucket_size.unwrap_or_else(configuration::cuckoo::bucket_size);
        let max_iterations = self.max_iterations.unwrap_or_else(configuration::cuckoo::max_iterations);
        let growth = NonZeroU32::new(self.expansion.unwrap_or_else(configuration::cuckoo::expansion));
        let growth = growth.map_or(Growth::Fixed, Growth::By);
        let min = NonZeroU64::new(2 * u64::from(bucket_size)).unwrap_or(NonZeroU64::MIN);
        let capacity = self.capacity.unwrap_or_else(|| configuration::cuckoo::initial_size().max(min));
        if capacity < min {
            return Err(Error::CuckooCapacity);
        }
        let spec = CuckooSpec::new(growth, bucket_size, max_iterations).map_err(|_| Error::CannotCreate)?;
        let layout = match self.layout.unwrap_or_else(configuration::cuckoo::layout) {
            CuckooLayout::Classic if self.seed.is_some() => return Err(Error::ClassicSeed),
            CuckooLayout::Classic if self.error_rate.is_some() => return Err(Error::ClassicRate),
            CuckooLayout::Classic => Layout::Cuckoo { spec },
            CuckooLayout::Native => Layout::NativeCuckoo { seed: self.seed.unwrap_or_else(|| server.random()), spec },
        };
        let error_rate = self.error_rate.unwrap_or_else(|| spec.error_rate());
        Ok(CreateParams { error_rate, capacity, growth, layout })
    }

    fn expires_at(&self) -> Option<i64> {
        self.expires_at
    }

    fn replicated(filter: &Filter, expiry: Vec<String>) -> Vec<String> {
        let capacity = filter.parameters().capacity.to_string();
        [capacity].into_iter().chain(expiry).chain(option_row::replicated(OPTIONS, filter)).collect()
    }
}
