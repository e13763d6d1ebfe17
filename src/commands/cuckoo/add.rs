//! CF.ADD, CF.ADDNX, CF.INSERT, CF.INSERTNX.
//!
//! CF.ADD and CF.INSERT store another copy of an item that is present. The others do not.

use crate::commands::add::{create_and_open, insert_batch};
use crate::commands::create::expire_at;
use crate::commands::item_flags::ItemFlags;
use crate::commands::items::{Arguments, replicate};
use crate::commands::option_rows::{self, Creator};
use crate::commands::options::Options;
use crate::commands::redisbloom;
use crate::commands::replication::{Changed, Replay};
use crate::configuration;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::lookahead;
use crate::rejection;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use crate::statistics;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{BATCH, InsertOptions, OnDuplicate};

/// `CF.ADD key item`
pub(super) fn add(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    add_one(ctx, keyspace, args, OnDuplicate::Count)
}

/// `CF.ADDNX key item`
pub(super) fn addnx(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    add_one(ctx, keyspace, args, OnDuplicate::Skip)
}

/// `CF.INSERT key [option …] ITEMS item [item …]`, with [options](option_rows).
pub(super) fn insert(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    add_arguments(ctx, keyspace, args, OnDuplicate::Count)
}

/// `CF.INSERTNX key [option …] ITEMS item [item …]`, with [options](option_rows).
pub(super) fn insertnx(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    add_arguments(ctx, keyspace, args, OnDuplicate::Skip)
}

fn add_one(ctx: &Context, keyspace: Keyspace, args: Args, on_duplicate: OnDuplicate) -> Result<(), Error> {
    let (mut stored, mut rejected) = ([false], [false]);
    let items = args.from(2);
    let added = Addition { args, items, options: None, on_duplicate };
    added.run(ctx, keyspace, &mut stored, &mut rejected)?.map_or(Ok(()), |(_, error)| Err(error))?;
    if rejected[0] {
        return Err(Error::CuckooFull);
    }
    ctx.reply_bool(stored[0]);
    Ok(())
}

/// Adds items that are arguments. The reply has an element for each item that was handled, and then the error, if any.
fn add_arguments(ctx: &Context, keyspace: Keyspace, args: Args, on_duplicate: OnDuplicate) -> Result<(), Error> {
    let (options, items) = if ctx.is_replicated_or_loading() {
        redisbloom::cuckoo_insert(args)?
    } else {
        option_rows::parse(ctx, Creator::CuckooInsert, args, 2)?
    };
    let [mut stored, mut rejected] = [ItemFlags::new(ctx, items.len())?, ItemFlags::new(ctx, items.len())?];
    let [stored, rejected] = [&mut stored, &mut rejected].map(|flags| &mut flags.as_mut_slice()[..items.len()]);
    let addition = Addition { args, items, options: Some(&options), on_duplicate };
    let failure = addition.run(ctx, keyspace, stored, rejected)?;
    if rejected.contains(&true) {
        rejection::record(ctx, args, Error::CuckooFull);
    }
    let handled = failure.map_or(items.len(), |(handled, _)| handled);
    ctx.reply_array(handled + usize::from(failure.is_some()));
    // As in RedisBloom: in RESP3, CF.INSERT has booleans, which are false if the filter was full.
    let has_booleans = on_duplicate == OnDuplicate::Count && ctx.has_maps();
    for (&stored, &rejected) in stored.iter().zip(&*rejected).take(handled) {
        if has_booleans {
            ctx.reply_bool(stored);
        } else {
            ctx.reply_signed(if rejected { -1 } else { stored.into() });
        }
    }
    failure.map_or(Ok(()), |(_, error)| Err(error))
}

/// Items that a command adds.
struct Addition<'a> {
    args: Args<'a>,
    items: Args<'a>,
    options: Option<&'a Options>,
    on_duplicate: OnDuplicate,
}

impl Addition<'_> {
    /// Adds the items in order. Sets `stored[i]` to whether item `i` was stored, and `rejected[i]` if the filter was full.
    /// Returns the number of items that were handled before another error, and that error.
    fn run(
        &self,
        ctx: &Context,
        mut keyspace: Keyspace,
        stored: &mut [bool],
        rejected: &mut [bool],
    ) -> Result<Option<(usize, Error)>, Error> {
        let name = self.args.at(1);
        let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
        if let Some(filter) = key.filter()
            && let Some(options) = self.options
            && !ctx.is_replicated_or_loading()
        {
            options.check_existing(ctx, filter)?;
        }
        let created = !key.has_filter();
        if created {
            if self.options.is_some_and(|options| options.nocreate) {
                return Err(Error::NotFound);
            }
            key = create_and_open(ctx, name, key, self.options)?;
        }
        let filter = key.filter().ok_or(Error::NotFound)?;
        lookahead::remember(ctx, name, filter);
        let layers = filter.cuckoo().map_or(0, |filter| filter.chain().len());
        let has_all_layers = layers >= configuration::cuckoo_max_expansions() && !ctx.is_replicated_or_loading();
        let failure =
            if has_all_layers { Some((0, Error::MaxExpansions)) } else { self.insert(ctx, filter, stored, rejected) };
        let handled = failure.map_or(stored.len(), |(handled, _)| handled);
        let [new, full] = [&*stored, &*rejected].map(|flags| flags.iter().filter(|is_set| **is_set).count());
        statistics::count_additions(filter, new as u64, (handled - new - full) as u64);
        if self.on_duplicate == OnDuplicate::Count {
            // A native filter flags an item only if it was absent, and stores a copy of the others, too.
            stored[..handled].iter_mut().zip(&*rejected).for_each(|(stored, rejected)| *stored = !rejected);
        }
        drop(key);
        if self.replicate(ctx, name, stored) {
            keyspace.notify_changed(ctx, name, Verb::Add);
        }
        if created && let Some(time) = self.options.and_then(|options| options.expires_at) {
            expire_at(ctx, keyspace, name, time);
        }
        // As in RedisBloom, this error is the whole reply.
        if has_all_layers { Err(Error::MaxExpansions) } else { Ok(failure) }
    }

    /// Inserts items in order, as [`run`](Self::run) does. An item for which the filter is full ends no batch, so that
    /// the others are hashed only once.
    fn insert(
        &self,
        ctx: &Context,
        filter: &mut Filter,
        stored: &mut [bool],
        rejected: &mut [bool],
    ) -> Option<(usize, Error)> {
        let options = InsertOptions { is_replay: ctx.is_replicated_or_loading(), ..self.on_duplicate.into() };
        let mut next = 0;
        for items in self.items.chunks(BATCH) {
            let batch = filter.prepare_batch(items.iter().map(Arg::bytes));
            let mut left = batch.hashes();
            while !left.is_empty() {
                let (handled, failure) = insert_batch(ctx, filter, left, &mut stored[next..], &mut [], &options);
                next += handled;
                left = &left[handled..];
                match failure {
                    None => {}
                    Some(Error::Full) => {
                        (stored[next], rejected[next]) = (false, true);
                        next += 1;
                        left = &left[1..];
                    }
                    Some(error) => {
                        stored[next..].fill(false);
                        return Some((next, if error == Error::CannotGrow { Error::MaxExpansions } else { error }));
                    }
                }
            }
        }
        None
    }

    /// Replicates the items that were stored. Returns true if there was one.
    ///
    /// Options are not sent: the creation has been replicated, and RedisBloom rejects those that it does not know.
    fn replicate(&self, ctx: &Context, name: Arg, stored: &[bool]) -> bool {
        let has_no_options = self.args.len() - self.items.len() <= 3;
        if self.on_duplicate == OnDuplicate::Count && has_no_options && stored.iter().all(|stored| *stored) {
            ctx.replicate_verbatim();
            return true;
        }
        let nocreate = ctx.string(b"NOCREATE");
        let items = Arguments::new(self.args, self.items);
        replicate(ctx, &Replay::copies(name, &[nocreate.as_arg()]), items, &Changed::Flagged(stored))
    }
}
