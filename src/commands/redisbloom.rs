//! Parses commands from RedisBloom's replication stream or append-only file as RedisBloom does.
//!
//! RedisBloom replicates creations as its clients sent them, and accepts options that we reject. A replica must apply
//! them anyway, or it would lose acknowledged items. All filters of such a stream become classic, whatever `bf.layout`
//! says, so that all replicas agree, also after a restart.
//!
//! Our own stream is recognized by its commands. It has BF.INSERT only with AT, the time of an addition. It creates our
//! own filters with a BF.RESERVE of at least nine arguments, a header or a BF.MERGE, and classic filters with a header.
//! A command that creates a filter in any other way comes from RedisBloom.

use std::num::NonZeroU32;

use super::options::{CreateOptions, Expansion, InsertRequest, Timing, positive};
use crate::configuration::{self, Dialect, LayoutName};
use crate::reply_error::Error;
use crate::server::{Arg, Args};
use oxbloom_filter::internals::{ErrorRate, OnDuplicate};

/// The minimum number of arguments of our BF.RESERVE, its name included: `BF.RESERVE key rate capacity NONSCALING SEED
/// seed LAYOUT native`. RedisBloom takes at most seven.
const OUR_RESERVE: usize = 9;

/// The maximum error rate of filters in Redis 8.
const REDIS_8_MAX_RATE: ErrorRate = ErrorRate::new(0.25).unwrap();

/// Returns true if oxbloom wrote this BF.RESERVE.
pub(super) fn is_our_reserve(args: Args) -> bool {
    args.len() >= OUR_RESERVE
}

/// Returns true if oxbloom wrote this BF.INSERT: RedisBloom has no option that starts with A.
pub(super) fn is_our_insert(args: Args) -> bool {
    args.at(2).is("AT")
}

/// Returns the default options.
pub(super) fn defaults() -> CreateOptions {
    of_dialect(CreateOptions::default())
}

/// Parses `BF.RESERVE key error_rate capacity …`. As in RedisBloom, unknown arguments are ignored, and the key is also
/// searched for options.
pub(super) fn reserve(args: Args) -> Result<CreateOptions, Error> {
    let mut from_key = args.from(1).iter();
    let expansion = from_key.find(|arg| arg.is("EXPANSION")).map(|_| expansion(from_key.next())).transpose()?;
    Ok(of_dialect(CreateOptions {
        error_rate: Some(args.at(2).float().and_then(ErrorRate::new).ok_or(Error::BadErrorRate)?),
        capacity: Some(args.at(3).integer().and_then(positive).ok_or(Error::BadCapacity)?),
        expansion,
        nonscaling: args.from(1).iter().any(|arg| arg.is("NONSCALING")),
        ..CreateOptions::default()
    }))
}

/// Parses `BF.INSERT key … ITEMS item …`. As in RedisBloom, options are recognized by their first one to three letters,
/// and the last of equal options counts.
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
            _ => return Err(Error::UnknownArgument(next as u32)),
        };
    }
    Err(Error::WrongArity)
}

/// Makes the filter classic, and caps its error rate as the RedisBloom that wrote the stream does.
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

/// Parses an expansion. RedisBloom truncates it to 32 bits. If that yields 0, a filter of Redis 8 does not grow, and a
/// filter of RedisBloom 2.8 breaks: every item is present. In the latter case, ours grows by 1 instead.
fn expansion(value: Option<Arg>) -> Result<Expansion, Error> {
    let factor = value.ok_or(Error::NoExpansion)?.integer().ok_or(Error::BadExpansion)?;
    Ok(match (NonZeroU32::new(factor as u32), configuration::dialect()) {
        (Some(factor), _) => Expansion::By(factor),
        (None, Dialect::Redis8) => Expansion::None,
        (None, Dialect::RedisBloom2) => Expansion::By(NonZeroU32::MIN),
    })
}
