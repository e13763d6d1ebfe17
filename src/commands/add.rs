//! BF.ADD, BF.MADD, BF.INSERT.
//!
//! Adding an item that is already present changes nothing, with three exceptions: a counting filter counts another
//! occurrence, a filter with REFRESH renews the item, and a TTL prolongs the time of the item.

use super::create::{create, create_new, expire_at};
use super::item_flags::ItemFlags;
use super::items::{Arguments, Items, replicate};
use super::option_rows::{self, Creator};
use super::options::Options;
use super::redisbloom;
use super::replication::{Changed, Replay};
use crate::admission;
use crate::family::{Dialect, Verb};
use crate::filter_key::WriteKey;
use crate::lookahead;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace, OwnedString};
use crate::statistics::{self, Footprint, Forgetting};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::Encoding;
use oxbloom_filter::internals::{Hash, InsertOptions, Interrupted, OnDuplicate};

/// `BF.ADD key item`
pub(super) fn add(ctx: &Context, mut keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    if !key.has_filter() {
        key = create_and_open(ctx, name, key, None)?;
    }
    let filter = key.filter().ok_or(Error::NotFound)?;
    lookahead::remember(ctx, name, filter);
    let mut new = [false];
    if filter.windowed().is_some() {
        let items = Arguments::new(args, args.from(2));
        let inserted = insert_and_replicate(ctx, key, name, items, &Options::default(), &mut new)?;
        let (_, failure) = inserted.notify(ctx, keyspace, name);
        failure.map_or(Ok(()), Err)?;
        ctx.reply_bool(new[0]);
        return Ok(());
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
    if changed {
        keyspace.notify_changed(ctx, name, Verb::Add);
    }
    if let Some(error) = failure {
        return Err(error);
    }
    ctx.reply_bool(added);
    Ok(())
}

/// `BF.MADD key item [item …]`
pub(super) fn madd(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    add_arguments(ctx, keyspace, args, args.from(2), None)
}

/// `BF.INSERT key [option …] ITEMS item [item …]`, with [options](option_rows).
pub(super) fn insert(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    // RedisBloom's shortest command has one item. valkey-bloom's may have none, and no option.
    if args.len() < 4 && ctx.dialect() == Dialect::RedisBloom {
        return Err(Error::WrongArity);
    }
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_insert(args);
    let (options, items) =
        if is_foreign { redisbloom::insert(args)? } else { option_rows::parse(ctx, Creator::Insert, args, 2)? };
    // valkey-bloom checks this option also if the filter exists.
    if options.scales_to.is_some() && !ctx.is_replicated_or_loading() {
        options.params(ctx)?;
    }
    // A command that adds nothing is only replicated if it created the filter.
    if items.is_empty() && ctx.is_replicated_or_loading() {
        return create_new(ctx, keyspace, args.at(1), options.params(ctx)?, options.expires_at);
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

/// Adds items in order to the filter of a key, until one does not fit. Creates the filter if it does not exist, unless
/// the options forbid it. Sets `new[i]` to whether item `i` was new. Returns the number of items handled, and the error
/// of the next, if any.
pub(super) fn add_all<'a>(
    ctx: &Context,
    mut keyspace: Keyspace,
    name: Arg,
    items: impl Items<'a>,
    options: Option<&Options>,
    new: &mut [bool],
) -> Result<(usize, Option<Error>), Error> {
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    if let Some(filter) = key.filter()
        && let Some(options) = options
        && !ctx.is_replicated_or_loading()
    {
        options.check_existing(ctx, filter)?;
    }
    let created = !key.has_filter();
    if created {
        if options.is_some_and(|options| options.nocreate) {
            return Err(Error::NotFound);
        }
        key = create_and_open(ctx, name, key, options)?;
    }
    let defaults = Options::default();
    let options = options.unwrap_or(&defaults);
    let inserted = insert_and_replicate(ctx, key, name, items, options, new);
    let inserted = inserted.map(|inserted| inserted.notify(ctx, keyspace.reborrow(), name));
    if created && let Some(time) = options.expires_at {
        expire_at(ctx, keyspace, name, time);
    }
    inserted
}

/// The outcome of additions.
struct Inserted {
    /// The number of items that were handled.
    handled: usize,
    /// The error of the next item, if any.
    failure: Option<Error>,
    /// True if the additions changed the filter.
    changed: bool,
    /// True if the filter forgot other items.
    forgot: bool,
}

impl Inserted {
    /// Notifies watchers and listeners. Returns the number of items handled, and the error of the next, if any.
    fn notify(self, ctx: &Context, mut keyspace: Keyspace, name: Arg) -> (usize, Option<Error>) {
        if self.changed {
            keyspace.notify_changed(ctx, name, Verb::Add);
        }
        if self.forgot {
            keyspace.notify_changed(ctx, name, Verb::Expire);
        }
        (self.handled, self.failure)
    }
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
) -> Result<Inserted, Error> {
    let filter = key.filter().ok_or(Error::NotFound)?;
    let insert_options = options.insert_options(ctx, filter);
    let before = Forgetting::of(filter);
    let renews = options.ttl.is_some() || filter.parameters().window.is_some_and(|window| window.refresh);
    let mut renewed = if renews { Some(ItemFlags::new(ctx, items.len())?) } else { None };
    let renewed = renewed.as_mut().map_or(&mut [][..], |flags| &mut flags.as_mut_slice()[..items.len()]);
    let (handled, failure) = insert_in_batches(ctx, filter, items.iter(), new, renewed, &insert_options);
    // RedisBloom and valkey-bloom replicate all items of a command, also those that did not fit: the same filter is full
    // here, and their client got the error.
    let is_known = ctx.is_replicated_or_loading() && !filter.kind().is_own();
    let failure = failure.filter(|error| !(is_known && matches!(error, Error::Full | Error::CannotGrow)));
    let added = new[..handled].iter().filter(|new| **new).count();
    statistics::count_additions(filter, added as u64, (handled - added) as u64);
    let forgot = statistics::count_forgotten(filter, before, added as u64);
    let counts = !options.skip_duplicates && filter.counts();
    let time = filter.needs_time().then(|| filter.time_of_change());
    let encoding = Encoding::of(filter.kind());
    drop(key);
    renewed.iter_mut().zip(&*new).for_each(|(changed, new)| *changed |= new);
    let changed = if renews { &renewed[..handled] } else { &new[..handled] };
    let changed = if counts { Changed::First(handled) } else { Changed::Flagged(changed) };
    let options = time.map_or(Vec::new(), |time| options.replicated_additions(time));
    let options: Vec<_> = options.iter().map(|option| ctx.string(option.as_bytes())).collect();
    let options: Vec<_> = options.iter().map(OwnedString::as_arg).collect();
    let changed = replicate(ctx, &Replay::additions(name, encoding, &options), items, &changed);
    Ok(Inserted { handled, failure, changed, forgot })
}

/// Creates the filter of a key, with default settings if there are no options, and opens the key again. The filter may
/// already be gone, since its creation runs listeners. They are notified before items are added: the additions may fail
/// as a whole.
///
/// Not inlined: inlined code would make BF.ADD save more registers on each call.
#[cold]
#[inline(never)]
pub(super) fn create_and_open<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    options: Option<&Options>,
) -> Result<WriteKey<'k>, Error> {
    let defaults = if ctx.is_replicated_or_loading() { redisbloom::defaults(ctx.family) } else { Options::default() };
    let params = options.unwrap_or(&defaults).params(ctx)?;
    let mut keyspace = create(ctx, name, key, params, options.and_then(|options| options.expires_at))?;
    keyspace.notify_changed(ctx, name, Verb::Reserve);
    WriteKey::open(keyspace, ctx, name)
}

/// Inserts items until one does not fit. Sets `new[i]` to whether item `i` was new, and `renewed[i]`, unless `renewed`
/// is empty, to whether it was renewed. Returns the number of items handled, and the error of the next, if any.
pub(super) fn insert_in_batches<'a>(
    ctx: &Context,
    filter: &mut Filter,
    mut items: impl Iterator<Item = &'a [u8]>,
    new: &mut [bool],
    renewed: &mut [bool],
    options: &InsertOptions,
) -> (usize, Option<Error>) {
    let mut handled = 0;
    while handled < new.len() {
        let batch = filter.prepare_batch(items.by_ref());
        let renewed = renewed.get_mut(handled..).unwrap_or_default();
        let (in_batch, failure) = insert_batch(ctx, filter, batch.hashes(), &mut new[handled..], renewed, options);
        handled += in_batch;
        if failure.is_some() {
            return (handled, failure);
        }
    }
    (handled, None)
}

/// Inserts the items of one batch, given by their hashes, as [`insert_in_batches`] does.
pub(super) fn insert_batch(
    ctx: &Context,
    filter: &mut Filter,
    hashes: &[Hash],
    new: &mut [bool],
    renewed: &mut [bool],
    options: &InsertOptions,
) -> (usize, Option<Error>) {
    if filter.grows_in_small_steps() {
        return admission::insert(ctx, filter, hashes, new, renewed, options);
    }
    // Admission costs time. So insert without it first, and admit memory only if the filter must grow. `renewed` is not
    // needed: only filters that forget renew items, and these grow in small steps.
    let inserted = filter.insert_hashes(hashes, new, &mut [], options, &mut |_bytes| false);
    let Err(Interrupted { handled, error }) = inserted else { return (hashes.len(), None) };
    if error == oxbloom_filter::Error::Full {
        // Memory would not help.
        statistics::on_insert(filter, Footprint::of(filter), false);
        return (handled, Some(Error::Full));
    }
    let (hashes, new) = (&hashes[handled..], &mut new[handled..]);
    let (more, failure) = admission::insert(ctx, filter, hashes, new, &mut [], options);
    (handled + more, failure)
}
