//! BF.LOAD: restores a valkey filter from the payload with which valkey-bloom writes it into an append-only file.

use crate::admission;
use crate::commands::create::open_new;
use crate::family::Verb;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};
use oxbloom_filter::internals::codec::valkey::decode_payload;

/// `BF.LOAD key data`
///
/// Replicated as it was sent: a filter without its items would answer that they are absent. (valkey-bloom replicates
/// only the parameters.)
///
/// An append-only file has only payloads that were accepted. So a damaged one means that the file is damaged. The
/// server ignores the errors of commands that it loads, and would go on without the filter: the process exits instead.
pub(super) fn load(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    apply(ctx, keyspace, args).inspect_err(|&error| {
        if ctx.is_loading() && matches!(error, Error::BadData | Error::NewerData) {
            let (key, reason) = (args.at(1).shown(), error.text().to_string_lossy());
            ctx.log_and_exit(&format!("rejected a payload of the append-only file: {reason} (key '{key}'); exiting, since the file is damaged: restore a backup"));
        }
    })
}

fn apply(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let key = open_new(ctx, keyspace, name).map_err(|error| match error {
        Error::Exists => Error::BusyKey,
        error => error,
    })?;
    let filter = admission::decoded(ctx, args.at(2).bytes(), decode_payload)?;
    let mut keyspace = key.create(filter)?;
    ctx.replicate_verbatim();
    keyspace.notify_changed(ctx, name, Verb::Load);
    ctx.reply_ok();
    Ok(())
}
