//! BF.RESERVE.

use std::iter;

use super::option_rows::OPTIONS;
use super::options::Options;
use super::redisbloom;
use crate::admission;
use crate::commands::create::{create_empty, create_new, open_new};
use crate::commands::declaration::is_like;
use crate::commands::option_row::{self, Grammar};
use crate::family::Verb;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use oxbloom_filter::internals::ErrorRate;

/// `BF.RESERVE key error_rate capacity [option …]`, with [options](OPTIONS).
///
/// `BF.RESERVE key LIKE other` creates an empty filter that can be merged with `other`.
pub(super) fn reserve(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    if is_like(args) {
        return reserve_like(ctx, keyspace, name, args.at(3));
    }
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_reserve(args);
    let options = if is_foreign { redisbloom::reserve(args)? } else { parse(ctx, args)? };
    create_new(ctx, keyspace, name, &options)
}

fn reserve_like(ctx: &Context, keyspace: Keyspace, name: Arg, other: Arg) -> Result<(), Error> {
    let mut keys = open_new(ctx, keyspace, name)?.with_sources(ctx, iter::once(other))?;
    let (_, mut sources) = keys.filters();
    let filter = admission::like(ctx, sources.next().ok_or(Error::NotFound)?)?;
    drop(sources);
    let mut keyspace = create_empty::<Options>(ctx, name, keys.close_sources(), filter)?;
    keyspace.notify_changed(ctx, name, Verb::Reserve);
    ctx.reply_ok();
    Ok(())
}

/// Parses `BF.RESERVE key error_rate capacity …` as clients and our own stream write it.
fn parse(ctx: &Context, args: Args) -> Result<Options, Error> {
    if args.at(2).is("LIKE") {
        return Err(Error::LikeAlone);
    }
    let grammar = Grammar::of(ctx);
    let error_rate = grammar.float(args.at(2)).ok_or(Error::BadErrorRate)?;
    let error_rate = ErrorRate::new(error_rate).ok_or(Error::RateRange)?;
    let capacity = grammar.capacity(args.at(3), [Error::BadCapacity, Error::CapacityRange])?;
    let (options, _) = option_row::parse(ctx, OPTIONS, Verb::Reserve, args, 4, |_| false)?;
    Ok(Options { capacity: Some(capacity), error_rate: Some(error_rate), ..options })
}
