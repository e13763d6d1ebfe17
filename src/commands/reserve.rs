//! BF.RESERVE.
//!
//! To add an option, change five places: the parser here, [`CreateOptions`], the [`registry`](super::registry) (the
//! declaration and the arity), [`create`](super::create), which replicates it, and [`redisbloom`], which tells our
//! stream from RedisBloom's.

use std::iter;

use super::create::{create, create_from_header, expire_at};
use super::declaration::is_like;
use super::options::{CreateOptions, Expansion, ExpireOption, WindowOptions, flag_once, positive, set_once};
use super::redisbloom;
use crate::admission;
use crate::configuration::LayoutName;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use oxbloom_filter::internals::ErrorRate;

/// `BF.RESERVE key error_rate capacity [EXPANSION n] [NONSCALING] [COUNTING] [WINDOW seconds] [SLICES n] [REFRESH]
/// [ROLLING] [SEED n] [LAYOUT native | classic] [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds]`
///
/// `BF.RESERVE key LIKE other` creates an empty filter that can be merged with `other`.
pub(super) fn reserve(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    if is_like(args) {
        return reserve_like(ctx, keyspace, name, args.at(3));
    }
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_reserve(args);
    let options = if is_foreign { redisbloom::reserve(args)? } else { parse(ctx, args)? };
    let params = options.params(ctx)?;
    let key = open_new(ctx, keyspace, name)?;
    let mut keyspace = create(ctx, name, key, params, options.expires_at)?;
    keyspace.notify_changed(ctx, name, Verb::Reserve);
    if let Some(time) = options.expires_at {
        expire_at(ctx, keyspace, name, time)?;
    }
    ctx.reply_ok();
    Ok(())
}

fn reserve_like(ctx: &Context, keyspace: Keyspace, name: Arg, other: Arg) -> Result<(), Error> {
    let mut keys = open_new(ctx, keyspace, name)?.with_sources(ctx, iter::once(other))?;
    let (_, mut sources) = keys.filters();
    let filter = admission::like(ctx, sources.next().ok_or(Error::NotFound)?)?;
    drop(sources);
    let mut keyspace = create_from_header(ctx, name, keys.close_sources(), filter)?;
    keyspace.notify_changed(ctx, name, Verb::Reserve);
    ctx.reply_ok();
    Ok(())
}

/// Opens a key to create a filter in it.
///
/// The key must not exist. But a master or an append-only file creates a filter only if the key does not exist there:
/// if it exists here, its value is replaced.
fn open_new<'k>(ctx: &Context, keyspace: Keyspace<'k>, name: Arg) -> Result<WriteKey<'k>, Error> {
    if ctx.is_replicated_or_loading() {
        return Ok(WriteKey::open_to_create(keyspace, ctx, name));
    }
    let key = WriteKey::open(keyspace, ctx, name)?;
    if key.has_filter() { Err(Error::Exists) } else { Ok(key) }
}

/// Parses `BF.RESERVE key error_rate capacity …` as clients and our own stream write it.
fn parse(ctx: &Context, args: Args) -> Result<CreateOptions, Error> {
    if args.at(2).is("LIKE") {
        return Err(Error::LikeAlone);
    }
    let error_rate = args.at(2).float().ok_or(Error::BadErrorRate)?;
    let error_rate = ErrorRate::new(error_rate).ok_or(Error::RateRange)?;
    let capacity = args.at(3).integer().ok_or(Error::BadCapacity)?;
    let capacity = positive(capacity).ok_or(Error::CapacityRange)?;
    let (mut expansion, mut seed, mut layout, mut expires_at) = (None, None, None, None);
    let (mut nonscaling, mut counting, mut window) = (false, false, WindowOptions::default());
    let mut rest = args.from(4).iter();
    while let Some(option) = rest.next() {
        if window.take(option, || rest.next())? > 0 {
            continue;
        }
        if option.is("NONSCALING") {
            flag_once(&mut nonscaling)?;
        } else if option.is("COUNTING") {
            flag_once(&mut counting)?;
        } else if option.is("EXPANSION") {
            set_once(&mut expansion, rest.next().ok_or(Error::NoExpansion)?)?;
        } else if option.is("SEED") {
            set_once(&mut seed, rest.next().ok_or(Error::BadSeed)?)?;
        } else if option.is("LAYOUT") {
            set_once(&mut layout, rest.next().ok_or(Error::BadLayout)?)?;
        } else if let Some(expire) = ExpireOption::of(option) {
            let value = rest.next().ok_or(Error::BadExpireTime)?;
            set_once(&mut expires_at, expire.expires_at(ctx, value)?)?;
        } else {
            return Err(Error::UnknownOption((args.len() - 1 - rest.count()) as u32));
        }
    }
    let expansion = match expansion {
        Some(value) if value.is("NONSCALING") || nonscaling && value.integer() != Some(0) => {
            return Err(Error::NonscalingExpands);
        }
        Some(value) => {
            let factor = value.integer().ok_or(Error::BadExpansion)?;
            Some(Expansion::of(factor).ok_or(match factor {
                ..=0 => Error::ExpansionRange,
                1.. => Error::BadExpansion,
            })?)
        }
        None => None,
    };
    let seed = seed.map(|value: Arg| value.unsigned().ok_or(Error::BadSeed)).transpose()?;
    let layout = layout.map(|value: Arg| LayoutName::of(value).ok_or(Error::BadLayout)).transpose()?;
    Ok(CreateOptions {
        capacity: Some(capacity),
        error_rate: Some(error_rate),
        expansion,
        nonscaling,
        counting,
        window,
        seed,
        layout,
        expires_at,
    })
}
