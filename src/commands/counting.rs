//! BF.DEL, BF.MDEL, BF.COUNT, BF.MCOUNT: commands that require a counting filter.

use super::items::{Arguments, Changed, ItemFlags, Items, Replay, replicate};
use crate::admission;
use crate::family::Verb;
use crate::filter_key::{ReadKey, WriteKey};
use crate::lookahead;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use crate::statistics::{self, Footprint};
use oxbloom_filter::internals::BATCH;

/// `BF.DEL key item`
///
/// `missing` is the error if the key does not exist, or `None` if the item is only absent then.
pub(super) fn remove(ctx: &Context, keyspace: Keyspace, args: Args, missing: Option<Error>) -> Result<(), Error> {
    let mut removed = [false];
    let exists = remove_all(ctx, keyspace, args.at(1), Arguments::new(args, args.from(2)), &mut removed)?;
    if let Some(error) = missing.filter(|_| !exists) {
        return Err(error);
    }
    ctx.reply_bool(removed[0]);
    Ok(())
}

/// `BF.MDEL key item [item …]`
pub(super) fn mdel(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let items = Arguments::new(args, args.from(2));
    let mut flags = ItemFlags::new(ctx, items.len())?;
    let removed = &mut flags.as_mut_slice()[..items.len()];
    remove_all(ctx, keyspace, args.at(1), items, removed)?;
    ctx.reply_array(removed.len());
    ctx.reply_bools(removed);
    Ok(())
}

/// Removes one occurrence of each item from the filter of a key. Sets `removed[i]` to whether item `i` had one. Returns
/// false if the key does not exist.
pub(super) fn remove_all<'a>(
    ctx: &Context,
    mut keyspace: Keyspace,
    name: Arg,
    items: impl Items<'a>,
    removed: &mut [bool],
) -> Result<bool, Error> {
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let exists = key.has_filter();
    if let Some(filter) = key.filter() {
        let before = Footprint::of(filter);
        let mut all = items.iter();
        if removed.len() == 1 {
            // It needs no batch.
            lookahead::remember(ctx, name, filter);
            let hash = all.next().map(|item| filter.hash(item));
            admission::remove(ctx, filter, hash.as_slice(), removed)?;
        } else {
            for removed in removed.chunks_mut(BATCH) {
                let batch = filter.prepare_batch(all.by_ref());
                admission::remove(ctx, filter, batch.hashes(), removed)?;
            }
        }
        statistics::on_change(filter, before);
        statistics::count_removals(filter, removed.iter().filter(|removed| **removed).count() as u64);
    }
    drop(key);
    if replicate(ctx, &Replay::removals(name), items, &Changed::Flagged(removed)) {
        keyspace.notify_changed(ctx, name, Verb::Del);
    }
    Ok(exists)
}

/// `BF.COUNT key item`
pub(super) fn count(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    reply_counts(ctx, keyspace, args, &|| ())
}

/// `BF.MCOUNT key item [item …]`
pub(super) fn mcount(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    reply_counts(ctx, keyspace, args, &|| ctx.reply_array(args.len() - 2))
}

/// Replies with the count of each item, after `start`.
fn reply_counts(ctx: &Context, keyspace: Keyspace, args: Args, start: &dyn Fn()) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?;
    if filter.is_some_and(|filter| !filter.counts()) {
        return Err(Error::NotCounting);
    }
    start();
    for items in args.from(2).chunks(BATCH) {
        let mut counts = [0; BATCH];
        let counts = &mut counts[..items.len()];
        if let Some(filter) = filter {
            let batch = filter.hash_batch(items.iter().map(Arg::bytes));
            filter.count_hashes(batch.hashes(), counts).map_err(|_| Error::NotCounting)?;
        }
        counts.iter().for_each(|&count| ctx.reply_integer(count));
    }
    Ok(())
}
