//! BF.ADD, BF.MADD, BF.INSERT.
//!
//! To add an item that is there changes nothing, but in a counting filter, where it adds an occurrence.

use super::create::create;
use super::item_flags::ItemFlags;
use super::options::{CreateOptions, Expansion, ExpireOption, InsertRequest, flag_once, positive, set_once};
use super::redisbloom;
use super::replication::{Changed, ReplicatedAs, replicate_items};
use crate::admission;
use crate::configuration::LayoutName;
use crate::filter_key::WriteKey;
use crate::lookahead;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use crate::statistics;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{BATCH, ErrorRate, Hash, Interrupted, OnDuplicate};

/// `BF.ADD key item`
pub(super) fn add(ctx: &Context, mut keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let created = !key.has_filter();
    if created {
        key = create_and_open(ctx, name, key, None)?;
    }
    let filter = key.filter().ok_or(Error::NotFound)?;
    lookahead::remember(ctx, name, filter);
    let hash = [filter.hash(args.at(2).bytes())];
    let mut new = [false];
    let (handled, failure) = insert_batch(ctx, filter, &hash, &mut new, OnDuplicate::Count);
    let [added] = new;
    statistics::count_additions(filter, added.into(), u64::from(handled == 1 && !added));
    let changed = added || handled == 1 && filter.counting().is_some();
    drop(key);
    if changed {
        ctx.replicate_verbatim();
    }
    notify(ctx, &mut keyspace, name, created, changed);
    if let Some(error) = failure {
        return Err(error);
    }
    ctx.reply_bool(added);
    Ok(())
}

/// `BF.MADD key item [item …]`
pub(super) fn madd(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    add_all(ctx, keyspace, args, args.from(2), OnDuplicate::Count, Creation::Default)
}

/// `BF.INSERT key [CAPACITY n] [ERROR r] [EXPANSION n] [NOCREATE] [NONSCALING] [COUNTING] [SEED n] [LAYOUT native |
/// classic] [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds] [NX] ITEMS item [item …]`
pub(super) fn insert(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let is_foreign = ctx.is_replicated_or_loading();
    let InsertRequest { options, create, on_duplicate, items } =
        if is_foreign { redisbloom::insert(args) } else { parse(ctx, args) }?;
    let creation = if create { Creation::As(options) } else { Creation::Never(options) };
    add_all(ctx, keyspace, args, items, on_duplicate, creation)
}

/// The treatment of a key that does not exist.
enum Creation {
    /// Creates a filter with default settings.
    Default,
    /// Creates a filter with these options.
    As(CreateOptions),
    /// Replies with an error, whatever its options.
    Never(CreateOptions),
}

/// Parses `BF.INSERT key … ITEMS item …`, as our clients write it.
fn parse<'a>(ctx: &Context, args: Args<'a>) -> Result<InsertRequest<'a>, Error> {
    let (mut capacity, mut error_rate, mut expansion) = (None, None, None);
    let (mut seed, mut layout, mut expires_at) = (None, None, None);
    let (mut nocreate, mut nonscaling, mut counting, mut skip_duplicates) = (false, false, false, false);
    let mut next = 2;
    // The items start after the word ITEMS; without it there are none.
    let items = loop {
        if next >= args.len() {
            return Err(Error::WrongArity);
        }
        let option = args.at(next);
        let value = || if next + 1 < args.len() { Ok(args.at(next + 1)) } else { Err(Error::WrongArity) };
        let mut words = 2;
        if option.is("ITEMS") {
            break args.from(next + 1);
        } else if option.is("CAPACITY") {
            set_once(&mut capacity, value()?.integer().ok_or(Error::InsertBadCapacity)?)?;
        } else if option.is("ERROR") {
            set_once(&mut error_rate, value()?.float().ok_or(Error::InsertBadErrorRate)?)?;
        } else if option.is("EXPANSION") {
            set_once(&mut expansion, value()?.integer().ok_or(Error::InsertBadExpansion)?)?;
        } else if option.is("SEED") {
            set_once(&mut seed, value()?.unsigned().ok_or(Error::InsertBadSeed)?)?;
        } else if option.is("LAYOUT") {
            set_once(&mut layout, LayoutName::of(value()?).ok_or(Error::InsertBadLayout)?)?;
        } else if let Some(expire) = ExpireOption::of(option) {
            set_once(&mut expires_at, expire.expires_at(ctx, value()?)?)?;
        } else {
            words = 1;
            if option.is("NOCREATE") {
                flag_once(&mut nocreate)?;
            } else if option.is("NONSCALING") {
                flag_once(&mut nonscaling)?;
            } else if option.is("COUNTING") {
                flag_once(&mut counting)?;
            } else if option.is("NX") {
                flag_once(&mut skip_duplicates)?;
            } else {
                return Err(Error::UnknownArgument);
            }
        }
        next += words;
    };
    if items.is_empty() {
        return Err(Error::WrongArity);
    }
    let capacity = capacity.map(|number| positive(number).ok_or(Error::InsertRange)).transpose()?;
    let error_rate = error_rate.map(|rate| ErrorRate::new(rate).ok_or(Error::InsertRange)).transpose()?;
    let expansion = expansion.map(|factor| Expansion::of(factor).ok_or(Error::InsertRange)).transpose()?;
    let options = CreateOptions { capacity, error_rate, expansion, nonscaling, counting, seed, layout, expires_at };
    let on_duplicate = if skip_duplicates { OnDuplicate::Skip } else { OnDuplicate::Count };
    Ok(InsertRequest { options, create: !nocreate, on_duplicate, items })
}

/// Adds items in order, as far as they fit, to the filter of the key, which is created if `creation` says so. The reply
/// has an element for each, and ends with an error where one did not fit.
fn add_all(
    ctx: &Context,
    mut keyspace: Keyspace,
    args: Args,
    items: Args,
    on_duplicate: OnDuplicate,
    creation: Creation,
) -> Result<(), Error> {
    let name = args.at(1);
    let mut flags = ItemFlags::new(ctx, items)?;
    let new = &mut flags.as_mut_slice()[..items.len()];
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    if let (Some(filter), Creation::As(options) | Creation::Never(options)) = (key.filter(), &creation)
        && let Err(error) = options.check_existing(filter)
        && !ctx.is_replicated_or_loading()
    {
        return Err(error);
    }
    let created = !key.has_filter();
    if created {
        let options = match &creation {
            Creation::Default => None,
            Creation::As(options) => Some(options),
            Creation::Never(_) => return Err(Error::NotFound),
        };
        key = create_and_open(ctx, name, key, options)?;
    }
    let filter = key.filter().ok_or(Error::NotFound)?;
    let (handled, failure) = insert_in_batches(ctx, filter, items, new, on_duplicate);
    let new = &new[..handled];
    let added = new.iter().filter(|new| **new).count();
    statistics::count_additions(filter, added as u64, (handled - added) as u64);
    let counts = on_duplicate == OnDuplicate::Count && filter.counting().is_some();
    drop(key);
    let names = ReplicatedAs { one: c"BF.ADD", many: c"BF.MADD" };
    let changed = if counts { Changed::All } else { Changed::Flagged(new) };
    let changed = replicate_items(ctx, names, args, items.up_to(handled), changed);
    notify(ctx, &mut keyspace, name, created, changed);
    if created && matches!(&creation, Creation::As(options) if options.expires_at.is_some()) {
        keyspace.notify_expire(ctx, name);
    }
    ctx.reply_array(handled + usize::from(failure.is_some()));
    ctx.reply_bools(new);
    failure.map_or(Ok(()), Err)
}

/// Creates the filter of a key, by default if there are no options, and opens the key again. It may be gone: creating
/// it tells listeners.
///
/// Not inlined: it happens once, and would have BF.ADD save more registers each time.
#[cold]
#[inline(never)]
fn create_and_open<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    options: Option<&CreateOptions>,
) -> Result<WriteKey<'k>, Error> {
    let params = match options {
        Some(options) => options.params(ctx)?,
        None if ctx.is_replicated_or_loading() => redisbloom::defaults().params(ctx)?,
        None => CreateOptions::default().params(ctx)?,
    };
    let keyspace = create(ctx, name, key, params, options.and_then(|options| options.expires_at))?;
    WriteKey::open(keyspace, ctx, name)
}

/// Tells watchers and listeners what happened.
fn notify(ctx: &Context, keyspace: &mut Keyspace, name: Arg, created: bool, added: bool) {
    if created {
        keyspace.notify_changed(ctx, name, c"bf.reserve");
    }
    if added {
        keyspace.notify_changed(ctx, name, c"bf.add");
    }
}

/// Inserts items until one does not fit; `new[i]` tells whether the item was new. Returns how many were handled, and
/// what was wrong with the next.
fn insert_in_batches(
    ctx: &Context,
    filter: &mut Filter,
    items: Args,
    new: &mut [bool],
    on_duplicate: OnDuplicate,
) -> (usize, Option<Error>) {
    let mut handled = 0;
    for items in items.chunks(BATCH) {
        let batch = filter.prepare_batch(items.iter().map(Arg::bytes));
        let new = &mut new[handled..][..items.len()];
        let (in_batch, failure) = insert_batch(ctx, filter, batch.hashes(), new, on_duplicate);
        handled += in_batch;
        if failure.is_some() {
            return (handled, failure);
        }
    }
    (handled, None)
}

/// Inserts the items of `hashes`, growing as needed, until one does not fit; returns as [`insert_in_batches`].
fn insert_batch(
    ctx: &Context,
    filter: &mut Filter,
    hashes: &[Hash],
    new: &mut [bool],
    on_duplicate: OnDuplicate,
) -> (usize, Option<Error>) {
    if filter.grows_in_small_steps() {
        return admission::insert(ctx, filter, hashes, new, on_duplicate);
    }
    // What takes no more memory needs none of what admission costs.
    let inserted = filter.insert_hashes(hashes, new, on_duplicate, &mut |_bytes| false);
    let Err(Interrupted { handled, .. }) = inserted else { return (hashes.len(), None) };
    let (hashes, new) = (&hashes[handled..], &mut new[handled..]);
    let (more, failure) = admission::insert(ctx, filter, hashes, new, on_duplicate);
    (handled + more, failure)
}
