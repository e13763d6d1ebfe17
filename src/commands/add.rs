//! BF.ADD, BF.MADD, BF.INSERT.
//!
//! Adding an item that is already present changes nothing, with three exceptions: a counting filter counts another
//! occurrence, a filter with REFRESH renews the item, and a TTL prolongs the time of the item.

use super::create::{create, expire_at};
use super::item_flags::ItemFlags;
use super::options::{
    CreateOptions, Expansion, ExpireOption, InsertRequest, Timing, WindowOptions, flag_once, positive, set_once,
};
use super::redisbloom;
use super::replication::{Changed, ReplicatedAs, replicate_items};
use crate::admission;
use crate::configuration::LayoutName;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::lookahead;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use crate::statistics::{self, Forgetting};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{BATCH, ErrorRate, Hash, InsertOptions, Interrupted, OnDuplicate};

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
    let mut new = [false];
    if filter.windowed().is_some() {
        let additions = Additions::of(args.from(2));
        let (_, failure) =
            insert_and_replicate(ctx, key, args, &additions, &mut new)?.notify(ctx, keyspace, name, created);
        failure.map_or(Ok(()), Err)?;
        ctx.reply_bool(new[0]);
        return Ok(());
    }
    let hash = [filter.hash(args.at(2).bytes())];
    let (handled, failure) = insert_batch(ctx, filter, &hash, &mut new, &mut [], &OnDuplicate::Count.into());
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
    add_all(ctx, keyspace, args, Additions::of(args.from(2)), Creation::Default)
}

/// `BF.INSERT key [CAPACITY n] [ERROR r] [EXPANSION n] [NOCREATE] [NONSCALING] [COUNTING] [WINDOW seconds] [SLICES n]
/// [REFRESH] [ROLLING] [SEED n] [LAYOUT native | classic] [EX seconds | PX milliseconds | EXAT seconds | PXAT
/// milliseconds] [NX] [TTL seconds] [AT milliseconds] ITEMS item [item …]`
pub(super) fn insert(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_insert(args);
    let InsertRequest { options, create, on_duplicate, timing, items } =
        if is_foreign { redisbloom::insert(args) } else { parse(ctx, args) }?;
    let creation = if create { Creation::As(options) } else { Creation::Never(options) };
    add_all(ctx, keyspace, args, Additions { items, on_duplicate, timing }, creation)
}

/// The items to add, and how to add them.
struct Additions<'a> {
    items: Args<'a>,
    on_duplicate: OnDuplicate,
    timing: Timing,
}

impl<'a> Additions<'a> {
    /// Returns the additions of a command without options.
    fn of(items: Args<'a>) -> Additions<'a> {
        Additions { items, on_duplicate: OnDuplicate::Count, timing: Timing::default() }
    }
}

/// The treatment of a key that does not exist.
enum Creation {
    /// Creates a filter with default settings.
    Default,
    /// Creates a filter with these options.
    As(CreateOptions),
    /// Replies with an error, and ignores these options.
    Never(CreateOptions),
}

/// Parses `BF.INSERT key … ITEMS item …` as clients send it.
fn parse<'a>(ctx: &Context, args: Args<'a>) -> Result<InsertRequest<'a>, Error> {
    let (mut capacity, mut error_rate, mut expansion) = (None, None, None);
    let (mut seed, mut layout, mut expires_at) = (None, None, None);
    let (mut nocreate, mut nonscaling, mut counting, mut skip_duplicates) = (false, false, false, false);
    let (mut window, mut timing) = (WindowOptions::default(), Timing::default());
    let mut next = 2;
    // The items start after ITEMS, which is required.
    let items = loop {
        if next >= args.len() {
            return Err(Error::WrongArity);
        }
        let option = args.at(next);
        let value = || if next + 1 < args.len() { Ok(args.at(next + 1)) } else { Err(Error::WrongArity) };
        let taken = window.take(option, || value().ok())? + timing.take(ctx, option, || value().ok())?;
        if taken > 0 {
            next += taken;
            continue;
        }
        let mut length = 2;
        if option.is("ITEMS") {
            break args.from(next + 1);
        } else if option.is("CAPACITY") {
            set_once(&mut capacity, value()?.integer().ok_or(Error::InsertBadCapacity)?)?;
        } else if option.is("ERROR") {
            set_once(&mut error_rate, value()?.float().ok_or(Error::InsertBadErrorRate)?)?;
        } else if option.is("EXPANSION") {
            set_once(&mut expansion, value()?.integer().ok_or(Error::InsertBadExpansion)?)?;
        } else if option.is("SEED") {
            set_once(&mut seed, value()?.unsigned().ok_or(Error::BadSeed)?)?;
        } else if option.is("LAYOUT") {
            set_once(&mut layout, LayoutName::of(value()?).ok_or(Error::BadLayout)?)?;
        } else if let Some(expire) = ExpireOption::of(option) {
            set_once(&mut expires_at, expire.expires_at(ctx, value()?)?)?;
        } else {
            length = 1;
            if option.is("NOCREATE") {
                flag_once(&mut nocreate)?;
            } else if option.is("NONSCALING") {
                flag_once(&mut nonscaling)?;
            } else if option.is("COUNTING") {
                flag_once(&mut counting)?;
            } else if option.is("NX") {
                flag_once(&mut skip_duplicates)?;
            } else {
                return Err(Error::UnknownArgument(next as u32));
            }
        }
        next += length;
    };
    if items.is_empty() {
        return Err(Error::WrongArity);
    }
    let capacity = capacity.map(|number| positive(number).ok_or(Error::InsertRange)).transpose()?;
    let error_rate = error_rate.map(|rate| ErrorRate::new(rate).ok_or(Error::InsertRange)).transpose()?;
    let expansion = expansion.map(|factor| Expansion::of(factor).ok_or(Error::InsertRange)).transpose()?;
    let options =
        CreateOptions { capacity, error_rate, expansion, nonscaling, counting, window, seed, layout, expires_at };
    let on_duplicate = if skip_duplicates { OnDuplicate::Skip } else { OnDuplicate::Count };
    Ok(InsertRequest { options, create: !nocreate, on_duplicate, timing, items })
}

/// Adds items in order to the filter of the key, until one does not fit. Creates the filter if `creation` says so. The
/// reply has an element for each item that was handled, and then the error, if any.
fn add_all(
    ctx: &Context,
    mut keyspace: Keyspace,
    args: Args,
    additions: Additions,
    creation: Creation,
) -> Result<(), Error> {
    let name = args.at(1);
    let mut flags = ItemFlags::new(ctx, additions.items)?;
    let new = &mut flags.as_mut_slice()[..additions.items.len()];
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    if let Some(filter) = key.filter().filter(|_| !ctx.is_replicated_or_loading()) {
        if let Creation::As(options) | Creation::Never(options) = &creation {
            options.check_existing(filter)?;
        }
        additions.timing.check_existing(filter)?;
    }
    let created = !key.has_filter();
    if created {
        let options = match &creation {
            Creation::Default => None,
            Creation::As(options) => Some(options),
            Creation::Never(_) => return Err(Error::NotFound),
        };
        options.map_or(Ok(()), |options| additions.timing.check_new(options))?;
        key = create_and_open(ctx, name, key, options)?;
    }
    let inserted = insert_and_replicate(ctx, key, args, &additions, new);
    let inserted = inserted.map(|inserted| inserted.notify(ctx, keyspace.reborrow(), name, created));
    if let Creation::As(CreateOptions { expires_at: Some(time), .. }) = creation
        && created
    {
        expire_at(ctx, keyspace, name, time)?;
    }
    let (handled, failure) = inserted?;
    ctx.reply_array(handled + usize::from(failure.is_some()));
    ctx.reply_bools(&new[..handled]);
    failure.map_or(Ok(()), Err)
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
    fn notify(self, ctx: &Context, mut keyspace: Keyspace, name: Arg, created: bool) -> (usize, Option<Error>) {
        notify(ctx, &mut keyspace, name, created, self.changed);
        if self.forgot {
            keyspace.notify_changed(ctx, name, Verb::Expire);
        }
        (self.handled, self.failure)
    }
}

/// Adds items in order to the filter of a key, until one does not fit, and replicates the additions. Sets `new[i]` to
/// whether item `i` was new.
fn insert_and_replicate(
    ctx: &Context,
    mut key: WriteKey,
    args: Args,
    additions: &Additions,
    new: &mut [bool],
) -> Result<Inserted, Error> {
    let &Additions { items, on_duplicate, timing } = additions;
    let filter = key.filter().ok_or(Error::NotFound)?;
    let options = timing.insert_options(ctx, filter, on_duplicate);
    let before = Forgetting::of(filter);
    let renews = timing.has_ttl() || filter.parameters().window.is_some_and(|window| window.refresh);
    let mut renewed = if renews { Some(ItemFlags::new(ctx, items)?) } else { None };
    let renewed = renewed.as_mut().map_or(&mut [][..], |flags| &mut flags.as_mut_slice()[..items.len()]);
    let (handled, failure) = insert_in_batches(ctx, filter, items, new, renewed, &options);
    let added = new[..handled].iter().filter(|new| **new).count();
    statistics::count_additions(filter, added as u64, (handled - added) as u64);
    let forgot = statistics::count_forgotten(filter, before, added as u64);
    let counts = on_duplicate == OnDuplicate::Count && filter.counting().is_some();
    let time = filter.needs_time().then(|| filter.time_of_change());
    drop(key);
    renewed.iter_mut().zip(&*new).for_each(|(changed, new)| *changed |= new);
    let changed = if renews { &renewed[..handled] } else { &new[..handled] };
    let changed = if counts { Changed::All } else { Changed::Flagged(changed) };
    if !changed.any(handled) {
        return Ok(Inserted { handled, failure, changed: false, forgot });
    }
    let options = time.map_or(Vec::new(), |time| timing.arguments(time));
    let options: Vec<_> = options.iter().map(|option| ctx.string(option.as_bytes())).collect();
    let options: Vec<_> = options.iter().map(|option| option.as_arg()).collect();
    let names = match options.is_empty() {
        true => ReplicatedAs { one: Verb::Add, many: Verb::Madd, options: &[] },
        false => ReplicatedAs { one: Verb::Insert, many: Verb::Insert, options: &options },
    };
    let changed = replicate_items(ctx, names, args, items.up_to(handled), changed);
    Ok(Inserted { handled, failure, changed, forgot })
}

/// Creates the filter of a key, with default settings if there are no options, and opens the key again. The filter may
/// already be gone, since its creation runs listeners.
///
/// Not inlined: inlined code would make BF.ADD save more registers on each call.
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

/// Notifies watchers and listeners of the creation and of the additions.
fn notify(ctx: &Context, keyspace: &mut Keyspace, name: Arg, created: bool, added: bool) {
    if created {
        keyspace.notify_changed(ctx, name, Verb::Reserve);
    }
    if added {
        keyspace.notify_changed(ctx, name, Verb::Add);
    }
}

/// Inserts items until one does not fit. Sets `new[i]` to whether item `i` was new, and `renewed[i]`, unless `renewed`
/// is empty, to whether it was renewed. Returns the number of items handled, and the error of the next, if any.
fn insert_in_batches(
    ctx: &Context,
    filter: &mut Filter,
    items: Args,
    new: &mut [bool],
    renewed: &mut [bool],
    options: &InsertOptions,
) -> (usize, Option<Error>) {
    let mut handled = 0;
    for items in items.chunks(BATCH) {
        let batch = filter.prepare_batch(items.iter().map(Arg::bytes));
        let new = &mut new[handled..][..items.len()];
        let renewed = renewed.get_mut(handled..).unwrap_or_default();
        let (in_batch, failure) = insert_batch(ctx, filter, batch.hashes(), new, renewed, options);
        handled += in_batch;
        if failure.is_some() {
            return (handled, failure);
        }
    }
    (handled, None)
}

/// Inserts the items of one batch, given by their hashes, as [`insert_in_batches`] does.
fn insert_batch(
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
    let Err(Interrupted { handled, .. }) = inserted else { return (hashes.len(), None) };
    let (hashes, new) = (&hashes[handled..], &mut new[handled..]);
    let (more, failure) = admission::insert(ctx, filter, hashes, new, &mut [], options);
    (handled + more, failure)
}
