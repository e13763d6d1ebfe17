//! CF.SCANDUMP and CF.LOADCHUNK: [`dump`] with RedisBloom's errors for cuckoo filters.

use crate::commands::dump;
use crate::filter_key::ReadKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};
use oxbloom_filter::internals::codec;

/// `CF.SCANDUMP key iterator`
pub(super) fn scandump(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let cursor = args.at(2).integer().and_then(|cursor| u64::try_from(cursor).ok()).ok_or(Error::InvalidPosition)?;
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    dump::dump_chunk(ctx, key.filter()?.ok_or(Error::NotFound)?, cursor, |ctx| ctx.reply_null())
}

/// `CF.LOADCHUNK key iterator data`
pub(super) fn loadchunk(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let cursor = args.at(2).integer().filter(|&cursor| cursor != 0).ok_or(Error::InvalidPosition)?;
    let has_header_length = args.at(3).bytes().len() == codec::CUCKOO_HEADER_BYTES;
    dump::load_chunk(ctx, keyspace, args, Some(Error::Exists)).map_err(|error| match error {
        Error::BadData if cursor == 1 && has_header_length => Error::CannotCreateCuckoo,
        Error::BadData if cursor == 1 => Error::InvalidHeader,
        Error::BadData | Error::NoSuchOffset | Error::ChunkTooBig => Error::CannotLoadChunk,
        error => error,
    })
}
