//! CF.RESERVE.

use super::options;
use super::redisbloom;
use crate::commands::create::create_new;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};

/// `CF.RESERVE key capacity [option …]`, with [options].
pub(super) fn reserve(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_reserve(args);
    let options = if is_foreign { redisbloom::reserve(args)? } else { options::parse_reserve(ctx, args)? };
    create_new(ctx, keyspace, args.at(1), &options)
}
