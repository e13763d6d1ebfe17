//! CF.COMPACT and CF.CONVERT.

use crate::admission;
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

/// `CF.CONVERT key`
///
/// Makes a classic filter a native one, with the same items and counts. Replies with false if it is native already. The
/// key keeps its time to live.
pub(super) fn convert(ctx: &Context, mut keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let filter = key.filter().ok_or(Error::NotFound)?;
    let Some(converted) = admission::admitted(ctx, |admit| filter.converted(admit), Error::creating)? else {
        drop(key);
        ctx.reply_bool(false);
        return Ok(());
    };
    let expire_time = key.expire_time();
    let mut opened = key.create(converted)?;
    ctx.replicate_verbatim();
    // A listener may have replaced the filter.
    if let Some(time) = expire_time
        && let Ok(mut key) = WriteKey::open(opened.reborrow(), ctx, name)
    {
        key.set_expire_time(time);
    }
    keyspace.notify_changed(ctx, name, Verb::Convert);
    ctx.reply_bool(true);
    Ok(())
}
