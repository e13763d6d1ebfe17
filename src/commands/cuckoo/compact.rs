//! CF.COMPACT.

use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};
use crate::statistics::{self, Footprint};

/// `CF.COMPACT key`
///
/// A native filter needs no compaction: its table shrinks when items are removed.
pub(super) fn compact(ctx: &Context, mut keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let filter = key.filter().ok_or(Error::NothingToCompact)?;
    let changes = !filter.kind().is_own();
    let before = Footprint::of(filter);
    filter.compact();
    statistics::on_change(filter, before);
    drop(key);
    if changes {
        ctx.replicate_verbatim();
        keyspace.notify_changed(ctx, name, Verb::Compact);
    }
    ctx.reply_ok();
    Ok(())
}
