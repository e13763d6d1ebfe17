//! BF.DEL, BF.MDEL, BF.COUNT, BF.MCOUNT: commands that require a counting filter.

use super::items::{Arguments, Changed, ItemFlags, Items, Replay, replicate};
use crate::family::Verb;
use crate::filter_key::{ReadKey, WriteKey};
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use crate::statistics::{self, Footprint};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{BATCH, Hash, HashedBatch};

/// `BF.DEL key item`
///
/// `missing` is the error if the key does not exist, or `None` if the item is only absent then.
pub(super) fn remove(ctx: &Context, mut keyspace: Keyspace, args: Args, missing: Option<Error>) -> Result<(), Error> {
    let name = args.at(1);
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let mut removed = false;
    if let Some(filter) = key.filter() {
        let item = prepare(filter, args.from(2));
        removed = remove_one_of_each(filter, item.hashes(), &mut [false])? == 1;
    } else if let Some(error) = missing {
        return Err(error);
    }
    drop(key);
    if removed {
        ctx.replicate_verbatim();
        keyspace.notify_changed(ctx, name, Verb::Del);
    }
    ctx.reply_bool(removed);
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

/// Removes one occurrence of each item from the filter of a key. Sets `removed[i]` to whether item `i` had one.
pub(super) fn remove_all<'a>(
    ctx: &Context,
    mut keyspace: Keyspace,
    name: Arg,
    items: impl Items<'a>,
    removed: &mut [bool],
) -> Result<(), Error> {
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    if let Some(filter) = key.filter() {
        let mut all = items.iter();
        for removed in removed.chunks_mut(BATCH) {
            let batch = filter.prepare_batch(all.by_ref());
            remove_one_of_each(filter, batch.hashes(), removed)?;
        }
    }
    drop(key);
    if replicate(ctx, &Replay::removals(name), items, &Changed::Flagged(removed)) {
        keyspace.notify_changed(ctx, name, Verb::Del);
    }
    Ok(())
}

/// Removes one occurrence of each item. Sets `removed[i]` to whether item `i` had one. Returns the number of removals.
fn remove_one_of_each(filter: &mut Filter, hashes: &[Hash], removed: &mut [bool]) -> Result<usize, Error> {
    let before = Footprint::of(filter);
    filter.remove_hashes(hashes, removed).map_err(|_| Error::NotCounting)?;
    statistics::on_change(filter, before);
    let count = removed.iter().filter(|removed| **removed).count();
    statistics::count_removals(filter, count as u64);
    Ok(count)
}

/// `BF.COUNT key item`
pub(super) fn count(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let mut counts = [0];
    if let Some(filter) = key.filter()? {
        count_items(filter, args.from(2), &mut counts)?;
    }
    ctx.reply_integer(counts[0]);
    Ok(())
}

/// `BF.MCOUNT key item [item …]`
pub(super) fn mcount(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?;
    if filter.is_some_and(|filter| !filter.counts()) {
        return Err(Error::NotCounting);
    }
    let items = args.from(2);
    ctx.reply_array(items.len());
    for items in items.chunks(BATCH) {
        let mut counts = [0; BATCH];
        let counts = &mut counts[..items.len()];
        if let Some(filter) = filter {
            count_items(filter, items, counts)?;
        }
        counts.iter().for_each(|&count| ctx.reply_integer(count));
    }
    Ok(())
}

/// Hashes items and prefetches their memory. Not inlined: another copy of the hash function in each command slows down
/// the commands on plain filters.
#[inline(never)]
fn prepare(filter: &Filter, items: Args) -> HashedBatch {
    filter.prepare_batch(items.iter().map(Arg::bytes))
}

/// Counts at most [`BATCH`] items. Not inlined, like [`prepare`].
#[inline(never)]
fn count_items(filter: &Filter, items: Args, counts: &mut [u64]) -> Result<(), Error> {
    let batch = filter.hash_batch(items.iter().map(Arg::bytes));
    filter.count_hashes(batch.hashes(), counts).map_err(|_| Error::NotCounting)
}
