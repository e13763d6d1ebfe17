//! BF.SCANDUMP and BF.LOADCHUNK: [`dump`] with RedisBloom's errors for Bloom filters. BF.LOAD: restores a valkey filter
//! from the payload with which valkey-bloom writes it into an append-only file.

use crate::admission;
use crate::commands::creation::open_new;
use crate::commands::dump;
use crate::family::Verb;
use crate::filter_key::ReadKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};
use oxbloom_filter::internals::codec::valkey::decode_payload;

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

/// `BF.LOAD key data`
///
/// Replicated as it was sent: a filter without its items would answer that they are absent. (valkey-bloom replicates
/// only the parameters.)
///
/// An append-only file has only payloads that were accepted. So a damaged one means that the file is damaged. The
/// server ignores the errors of commands that it loads, and would go on without the filter: the process exits instead.
pub(super) fn load(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    apply_payload(ctx, keyspace, args).inspect_err(|&error| {
        if ctx.is_loading() && matches!(error, Error::BadData | Error::NewerData) {
            dump::exit_for_damaged_file(ctx, args, "payload", error);
        }
    })
}

fn apply_payload(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let key = open_new(ctx, keyspace, name).map_err(|error| match error {
        Error::Exists => Error::BusyKey,
        error => error,
    })?;
    let filter = admission::admitted(ctx, |admit| decode_payload(args.at(2).bytes(), admit), Error::decoding)?;
    let mut keyspace = key.create(filter)?;
    ctx.replicate_verbatim();
    keyspace.notify_changed(ctx, name, Verb::Load);
    ctx.reply_ok();
    Ok(())
}
