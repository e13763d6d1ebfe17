//! BF.ADD, BF.MADD, BF.INSERT.
//!
//! Adding an item that is already present changes nothing, with three exceptions: a counting filter counts another
//! occurrence, a filter with REFRESH renews the item, and a TTL prolongs the time of the item.

use super::options::{self, Options};
use super::redisbloom;
use crate::commands::adding::{self, Change, insert_batch, insert_in_batches};
use crate::commands::creation::{Creation as _, create_new};
use crate::commands::items::{Arguments, Changed, ItemFlags, Items, Replay, replicate};
use crate::commands::query::time_for;
use crate::family::Dialect;
use crate::filter_key::WriteKey;
use crate::lookahead;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace, OwnedString};
use crate::statistics::{self, Forgetting};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{InsertOptions, OnDuplicate};

/// `BF.ADD key item`
///
/// One item needs no buffers, no options and no batches.
pub(super) fn add(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let mut new = [false];
    let failure = adding::add(ctx, keyspace, name, None::<&Options>, |mut key| {
        let filter = key.filter().ok_or(Error::NotFound)?;
        lookahead::remember(ctx, name, filter);
        if filter.forgets() {
            let items = Arguments::new(args, args.from(2));
            let inserted = insert_and_replicate(ctx, key, name, items, &Options::default(), &mut new)?;
            let ((_, failure), change) = inserted;
            return Ok((failure, change));
        }
        let hash = [filter.hash(args.at(2).bytes())];
        let (handled, failure) = insert_batch(ctx, filter, &hash, &mut new, &mut [], &OnDuplicate::Count.into());
        let [added] = new;
        statistics::count_additions(filter, added.into(), u64::from(handled == 1 && !added));
        let changed = added || handled == 1 && filter.counts();
        drop(key);
        if changed {
            ctx.replicate_verbatim();
        }
        Ok((failure, Change { added: changed, forgot: false }))
    })?;
    failure.map_or(Ok(()), Err)?;
    ctx.reply_bool(new[0]);
    Ok(())
}

/// `BF.MADD key item [item …]`
pub(super) fn madd(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    add_arguments(ctx, keyspace, args, args.from(2), None)
}

/// `BF.INSERT key [option …] ITEMS item [item …]`, with [options](options::OPTIONS).
pub(super) fn insert(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    // RedisBloom's shortest command has one item. valkey-bloom's may have none, and no option.
    if args.len() < 4 && ctx.dialect() == Dialect::RedisBloom {
        return Err(Error::WrongArity);
    }
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_insert(args);
    let (options, items) = if is_foreign { redisbloom::insert(args)? } else { options::parse_insert(ctx, args)? };
    // valkey-bloom checks this option also if the filter exists.
    if options.scales_to.is_some() && !ctx.is_replicated_or_loading() {
        options.params(ctx)?;
    }
    // A command that adds nothing is only replicated if it created the filter.
    if items.is_empty() && ctx.is_replicated_or_loading() {
        return create_new(ctx, keyspace, args.at(1), &options);
    }
    add_arguments(ctx, keyspace, args, items, Some(&options))
}

/// Adds items that are arguments. The reply has an element for each item that was handled, and then the error, if any.
fn add_arguments(
    ctx: &Context,
    keyspace: Keyspace,
    args: Args,
    items: Args,
    options: Option<&Options>,
) -> Result<(), Error> {
    let mut flags = ItemFlags::new(ctx, items.len())?;
    let new = &mut flags.as_mut_slice()[..items.len()];
    let (handled, failure) = add_all(ctx, keyspace, args.at(1), Arguments::new(args, items), options, new)?;
    ctx.reply_array(handled + usize::from(failure.is_some()));
    ctx.reply_bools(&new[..handled]);
    failure.map_or(Ok(()), Err)
}

/// Adds items in order to the filter of a key, until one does not fit. Sets `new[i]` to whether item `i` was new.
/// Returns the number of items handled, and the error of the next, if any.
pub(super) fn add_all<'a>(
    ctx: &Context,
    keyspace: Keyspace,
    name: Arg,
    items: impl Items<'a>,
    options: Option<&Options>,
    new: &mut [bool],
) -> Result<(usize, Option<Error>), Error> {
    adding::add(ctx, keyspace, name, options, |key| {
        insert_and_replicate(ctx, key, name, items, options.unwrap_or(&Options::default()), new)
    })
}

/// Adds items in order to the filter of a key, until one does not fit, and replicates the additions. Sets `new[i]` to
/// whether item `i` was new.
fn insert_and_replicate<'a>(
    ctx: &Context,
    mut key: WriteKey,
    name: Arg,
    items: impl Items<'a>,
    options: &Options,
    new: &mut [bool],
) -> Result<((usize, Option<Error>), Change), Error> {
    let filter = key.filter().ok_or(Error::NotFound)?;
    let insert_options = options.insert_options(ctx, filter);
    let before = Forgetting::of(filter);
    let renews = options.ttl.is_some() || filter.parameters().window.is_some_and(|window| window.refresh);
    let mut renewed = if renews { Some(ItemFlags::new(ctx, items.len())?) } else { None };
    let renewed = renewed.as_mut().map_or(&mut [][..], |flags| &mut flags.as_mut_slice()[..items.len()]);
    let (handled, failure) = insert_in_batches(ctx, filter, items.iter(), new, renewed, &insert_options);
    // RedisBloom and valkey-bloom replicate all items of a command, also those that did not fit: the same filter is
    // full here, and their client got the error.
    let is_known = ctx.is_replicated_or_loading() && !filter.kind().is_own();
    let failure = failure.filter(|error| !(is_known && matches!(error, Error::Full | Error::CannotGrow)));
    let added = new[..handled].iter().filter(|new| **new).count();
    statistics::count_additions(filter, added as u64, (handled - added) as u64);
    let forgot = statistics::count_forgotten(filter, before, added as u64);
    let counts = !options.skip_duplicates && filter.counts();
    let time = filter.needs_time().then(|| filter.time_of_change());
    let is_own = filter.kind().is_own();
    drop(key);
    renewed.iter_mut().zip(&*new).for_each(|(changed, new)| *changed |= new);
    let changed = if renews { &renewed[..handled] } else { &new[..handled] };
    let changed = if counts { Changed::First(handled) } else { Changed::Flagged(changed) };
    let options = time.map_or(Vec::new(), |time| options.replicated_additions(time));
    let options: Vec<_> = options.iter().map(|option| ctx.string(option.as_bytes())).collect();
    let options: Vec<_> = options.iter().map(OwnedString::as_arg).collect();
    let changed = replicate(ctx, &Replay::additions(name, is_own, &options), items, &changed);
    Ok(((handled, failure), Change { added: changed, forgot }))
}

impl Options {
    /// Returns the options with which items are inserted into a filter.
    pub(super) fn insert_options(&self, ctx: &Context, filter: &Filter) -> InsertOptions {
        let on_duplicate = if self.skip_duplicates { OnDuplicate::Skip } else { OnDuplicate::Count };
        let now = self.at.unwrap_or_else(|| time_for(ctx, filter));
        // An item that is new to the master may be a false positive here, if the master lacked memory and split its
        // table in another way. Refreshing makes both remember it equally long.
        let is_replay = ctx.is_replicated_or_loading();
        let refresh = filter.forgets() && is_replay;
        InsertOptions { on_duplicate, now, lifetime: self.ttl, refresh, is_replay }
    }

    /// Returns the options that replicate additions at `time`.
    pub(super) fn replicated_additions(&self, time: u64) -> Vec<String> {
        let ttl = self.ttl.map(|ttl| ("TTL", ttl.get() / 1000));
        let options = std::iter::once(("AT", time)).chain(ttl);
        options.flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect()
    }
}
