//! CF.RESERVE.

use crate::commands::create::create_new;
use crate::commands::option_rows::{self, Creator, positive};
use crate::commands::options::Options;
use crate::commands::redisbloom;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};

/// `CF.RESERVE key capacity [option …]`, with [options](option_rows).
pub(super) fn reserve(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_cuckoo_reserve(args);
    let options = if is_foreign { redisbloom::cuckoo_reserve(args)? } else { parse(ctx, args)? };
    create_new(ctx, keyspace, args.at(1), options.params(ctx)?, options.expires_at)
}

/// Parses `CF.RESERVE key capacity …` as clients and our own stream write it.
fn parse(ctx: &Context, args: Args) -> Result<Options, Error> {
    let capacity = args.at(2).integer().ok_or(Error::InsertBadCapacity)?;
    let (options, rest) = option_rows::parse(ctx, Creator::CuckooReserve, args, 3)?;
    debug_assert!(rest.is_empty(), "all arguments are options");
    let capacity = positive(capacity).ok_or(Error::CuckooCapacity)?;
    Ok(Options { capacity: Some(capacity), ..options })
}
