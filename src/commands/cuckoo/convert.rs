//! CF.CONVERT.

use crate::admission;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};

/// `CF.CONVERT key`
///
/// Makes a classic filter a native one, with the same items and counts. Replies with false if it is native already. The
/// key keeps its time to live.
pub(super) fn convert(ctx: &Context, mut keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let filter = key.filter().ok_or(Error::NotFound)?;
    let Some(converted) = admission::converted(ctx, filter)? else {
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
