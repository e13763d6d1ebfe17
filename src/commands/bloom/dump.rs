//! BF.SCANDUMP and BF.LOADCHUNK: [`dump`] with RedisBloom's errors for Bloom filters.

use crate::commands::dump;
use crate::filter_key::ReadKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};

/// `BF.SCANDUMP key iterator`
///
/// Iterator 0 starts a dump, and returns the header. Each reply has the next iterator and a chunk; the last has
/// iterator 0.
pub(super) fn scandump(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    let cursor = args.at(2).integer().ok_or(Error::ScanCursor)?;
    // There is no chunk after a negative cursor.
    dump::dump_chunk(ctx, filter, u64::try_from(cursor).unwrap_or(u64::MAX), |ctx| ctx.reply_bulk(&[]))
}

/// `BF.LOADCHUNK key iterator data`
pub(super) fn loadchunk(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    dump::load_chunk(ctx, keyspace, args, None)
}
