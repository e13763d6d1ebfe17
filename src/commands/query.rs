//! BF.EXISTS, BF.MEXISTS, BF.CARD.

use crate::filter_key::ReadKey;
use crate::lookahead;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::BATCH;

/// `BF.EXISTS key item`
pub(super) fn exists(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let &[_, name, item] = args.as_slice() else { return Err(Error::WrongArity) };
    let key = ReadKey::open(keyspace, ctx, name);
    let item = item.bytes();
    let filter = key.filter()?;
    if let Some(filter) = filter {
        lookahead::remember(ctx, name, filter);
    }
    ctx.reply_bool(filter.is_some_and(|filter| filter.contains_at(item, time_for(ctx, filter))));
    Ok(())
}

/// `BF.MEXISTS key item [item …]`
pub(super) fn mexists(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?;
    let items = args.from(2);
    ctx.reply_array(items.len());
    let Some(filter) = filter else {
        items.iter().for_each(|_| ctx.reply_bool(false));
        return Ok(());
    };
    contains_all(filter, items.iter().map(Arg::bytes), time_for(ctx, filter), |found| ctx.reply_bools(found));
    Ok(())
}

/// Hands for each item whether the filter may contain it to `visit`, at most [`BATCH`] at a time, in order.
pub(super) fn contains_all<'a>(
    filter: &Filter,
    mut items: impl Iterator<Item = &'a [u8]>,
    now: u64,
    mut visit: impl FnMut(&[bool]),
) {
    loop {
        let batch = filter.hash_batch(items.by_ref());
        let mut found = [false; BATCH];
        let found = &mut found[..batch.hashes().len()];
        if found.is_empty() {
            return;
        }
        filter.contains_hashes(batch.hashes(), found, now);
        visit(found);
    }
}

/// `BF.CARD key`
pub(super) fn card(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    ctx.reply_integer(key.filter()?.map_or(0, |filter| filter.len_at(time_for(ctx, filter))));
    Ok(())
}

/// Returns the current time for a filter, in milliseconds since 1970, or 0 if the filter does not need the time.
#[inline]
pub(super) fn time_for(ctx: &Context, filter: &Filter) -> u64 {
    if filter.needs_time() { ctx.now() } else { 0 }
}
