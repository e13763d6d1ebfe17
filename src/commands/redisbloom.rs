//! What RedisBloom sends to a replica or wrote to its append-only file, read as RedisBloom reads it.
//!
//! RedisBloom replicates creations as its clients sent them, and accepts options that we reject. A replica must apply
//! them anyway, or it would lose acknowledged items. All filters of such a stream are classic, whatever `bf.layout`
//! says, so that replicas agree with each other and with the next start.
//!
//! Our own stream has BF.INSERT only with the time of an addition. Before the first addition to a filter of ours it has a BF.RESERVE of at least nine
//! words, a header or a BF.MERGE, and a header before the first addition to a classic one. So whatever creates a filter in
//! another way is RedisBloom's.

use std::num::NonZeroU32;

use super::options::{CreateOptions, Expansion, InsertRequest, Timing, positive};
use crate::configuration::{self, Dialect, LayoutName};
use crate::reply_error::Error;
use crate::server::{Arg, Args};
use oxbloom_filter::internals::{ErrorRate, OnDuplicate};

/// The fewest arguments of a BF.RESERVE of ours, its name included: `BF.RESERVE key rate capacity NONSCALING SEED seed
/// LAYOUT native`. RedisBloom takes seven at most.
const OUR_RESERVE: usize = 9;

/// The highest error rate that filters are created with in Redis 8.
const REDIS_8_MAX_RATE: ErrorRate = ErrorRate::new(0.25).unwrap();

/// Returns true if oxbloom wrote this BF.RESERVE.
pub(super) fn is_our_reserve(args: Args) -> bool {
    args.len() >= OUR_RESERVE
}

/// Returns true if oxbloom wrote this BF.INSERT: RedisBloom has no option that begins so.
pub(super) fn is_our_insert(args: Args) -> bool {
    args.at(2).is("AT")
}

/// Returns the options of a command that gives none.
pub(super) fn defaults() -> CreateOptions {
    of_dialect(CreateOptions::default())
}

/// Parses `BF.RESERVE key error_rate capacity …`. Unknown arguments are ignored, and options are searched from the key
/// on, as in RedisBloom.
pub(super) fn reserve(args: Args) -> Result<CreateOptions, Error> {
    let is_named = |name| move |word: &Arg| word.is(name);
    let mut words = args.from(1).iter();
    let expansion = words.find(is_named("EXPANSION")).map(|_| expansion(words.next())).transpose()?;
    Ok(of_dialect(CreateOptions {
        error_rate: Some(args.at(2).float().and_then(ErrorRate::new).ok_or(Error::BadErrorRate)?),
        capacity: Some(args.at(3).integer().and_then(positive).ok_or(Error::BadCapacity)?),
        expansion,
        nonscaling: args.from(1).iter().any(|word| word.is("NONSCALING")),
        ..CreateOptions::default()
    }))
}

/// Parses `BF.INSERT key … ITEMS item …`. Options are recognized by their first one to three letters, and the last of a
/// kind counts.
pub(super) fn insert(args: Args) -> Result<InsertRequest, Error> {
    let mut options = CreateOptions::default();
    let (mut create, mut next) = (true, 2);
    while next < args.len() {
        let value = || if next + 1 < args.len() { Ok(args.at(next + 1)) } else { Err(Error::WrongArity) };
        let letter = |index: usize| args.at(next).bytes().get(index).map_or(0, u8::to_ascii_lowercase);
        next += match [letter(0), letter(1), letter(2)] {
            [b'i', ..] => {
                let (options, items) = (of_dialect(options), args.from(next + 1));
                let (on_duplicate, timing) = (OnDuplicate::Count, Timing::default());
                return Ok(InsertRequest { options, create, on_duplicate, timing, items });
            }
            [b'c', ..] => {
                options.capacity = Some(value()?.integer().and_then(positive).ok_or(Error::InsertBadCapacity)?);
                2
            }
            [b'e', b'r', _] => {
                options.error_rate = Some(value()?.float().and_then(ErrorRate::new).ok_or(Error::InsertBadErrorRate)?);
                2
            }
            [b'e', ..] => {
                options.expansion = Some(expansion(Some(value()?))?);
                2
            }
            [b'n', _, b'c'] => {
                create = false;
                1
            }
            [b'n', ..] => {
                options.nonscaling = true;
                1
            }
            _ => return Err(Error::UnknownArgument),
        };
    }
    Err(Error::WrongArity)
}

/// Makes a filter classic, and as the RedisBloom that the stream comes from creates it.
fn of_dialect(options: CreateOptions) -> CreateOptions {
    let error_rate = match configuration::dialect() {
        Dialect::RedisBloom2 => options.error_rate,
        Dialect::Redis8 => {
            let rate = options.error_rate.unwrap_or_else(configuration::error_rate);
            Some(if rate > REDIS_8_MAX_RATE { REDIS_8_MAX_RATE } else { rate })
        }
    };
    CreateOptions { error_rate, layout: Some(LayoutName::Classic), ..options }
}

/// Parses an expansion. RedisBloom truncates it to 32 bits. If that yields 0, a filter of Redis 8 does not grow. One of
/// RedisBloom 2.8 breaks: every item is present. Ours grows by 1 instead.
fn expansion(value: Option<Arg>) -> Result<Expansion, Error> {
    let factor = value.ok_or(Error::NoExpansion)?.integer().ok_or(Error::BadExpansion)?;
    Ok(match (NonZeroU32::new(factor as u32), configuration::dialect()) {
        (Some(factor), _) => Expansion::By(factor),
        (None, Dialect::Redis8) => Expansion::None,
        (None, Dialect::RedisBloom2) => Expansion::By(NonZeroU32::MIN),
    })
}
