//! CF.ADD, CF.ADDNX, CF.INSERT, CF.INSERTNX.
//!
//! CF.ADD and CF.INSERT store another copy of an item that is present. The others do not.

use super::options::{self, Options};
use super::redisbloom;
use crate::commands::adding::{self, Change, insert_batch};
use crate::commands::items::{Arguments, Changed, ItemFlags, Replay, replicate};
use crate::configuration;
use crate::lookahead;
use crate::rejection;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use crate::statistics;
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{BATCH, Hash, InsertOptions, OnDuplicate};

/// `CF.ADD key item` or `CF.ADDNX key item`
pub(super) fn add(ctx: &Context, keyspace: Keyspace, args: Args, on_duplicate: OnDuplicate) -> Result<(), Error> {
    let (mut stored, mut rejected) = ([false], [false]);
    let items = args.from(2);
    let addition = Addition { args, items, options: None, on_duplicate };
    let (_, failure) = addition.run(ctx, keyspace, &mut stored, &mut rejected)?;
    failure.map_or(Ok(()), Err)?;
    if rejected[0] {
        return Err(Error::CuckooFull);
    }
    ctx.reply_bool(stored[0]);
    Ok(())
}

/// `CF.INSERT key [option …] ITEMS item [item …]` or `CF.INSERTNX …`, with [options].
///
/// The reply has an element for each item that was handled, and then the error, if any.
pub(super) fn insert(ctx: &Context, keyspace: Keyspace, args: Args, on_duplicate: OnDuplicate) -> Result<(), Error> {
    let (options, items) =
        if ctx.is_replicated_or_loading() { redisbloom::insert(args)? } else { options::parse_insert(ctx, args)? };
    let [mut stored, mut rejected] = [ItemFlags::new(ctx, items.len())?, ItemFlags::new(ctx, items.len())?];
    let [stored, rejected] = [&mut stored, &mut rejected].map(|flags| &mut flags.as_mut_slice()[..items.len()]);
    let addition = Addition { args, items, options: Some(&options), on_duplicate };
    let (handled, failure) = addition.run(ctx, keyspace, stored, rejected)?;
    if rejected.contains(&true) {
        rejection::record(ctx, args, Error::CuckooFull);
    }
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
    failure.map_or(Ok(()), Err)
}

/// Items that a command adds.
struct Addition<'a> {
    args: Args<'a>,
    items: Args<'a>,
    options: Option<&'a Options>,
    on_duplicate: OnDuplicate,
}

impl Addition<'_> {
    /// Adds the items in order. Sets `stored[i]` to whether item `i` was stored, and `rejected[i]` if the filter was
    /// full. Returns the number of items that were handled, and the error of the next, if any.
    ///
    /// Always inlined, and compiled for each type of flags, so that CF.ADD pays for one item only.
    #[inline(always)]
    fn run<F: AsMut<[bool]> + ?Sized>(
        &self,
        ctx: &Context,
        keyspace: Keyspace,
        stored: &mut F,
        rejected: &mut F,
    ) -> Result<(usize, Option<Error>), Error> {
        adding::add(ctx, keyspace, self.args.at(1), self.options, |mut key| {
            let (stored, rejected) = (stored.as_mut(), rejected.as_mut());
            let filter = key.filter().ok_or(Error::NotFound)?;
            let mut options = InsertOptions::from(self.on_duplicate);
            if filter.grows_by_layers() {
                options.is_replay = ctx.is_replicated_or_loading();
                if !options.is_replay && filter.num_layers() >= configuration::cuckoo::max_expansions() {
                    // As in RedisBloom, this error is the whole reply.
                    return Err(Error::MaxExpansions);
                }
            }
            let (handled, failure) = self.insert(ctx, filter, stored, rejected, &options);
            let [new, full] = [&*stored, &*rejected].map(|flags| flags.iter().filter(|is_set| **is_set).count());
            statistics::count_additions(filter, new as u64, (handled - new - full) as u64);
            if self.on_duplicate == OnDuplicate::Count {
                // A native filter flags an item only if it was absent, and stores a copy of the others, too.
                stored[..handled].iter_mut().zip(&*rejected).for_each(|(stored, rejected)| *stored = !rejected);
            }
            drop(key);
            Ok(((handled, failure), Change { added: self.replicate(ctx, stored), forgot: false }))
        })
    }

    /// Inserts items in order, as [`run`](Self::run) does. One item needs no batch.
    #[inline(always)]
    fn insert(
        &self,
        ctx: &Context,
        filter: &mut Filter,
        stored: &mut [bool],
        rejected: &mut [bool],
        options: &InsertOptions,
    ) -> (usize, Option<Error>) {
        if self.items.len() == 1 {
            let item = self.items.at(0).bytes();
            let is_prefetched = self.options.is_none() && lookahead::remember(ctx, self.args.at(1), filter);
            // The table prefetches, too, but later.
            let hash = if is_prefetched { filter.hash(item) } else { filter.look_ahead(item) };
            return insert_hashes(ctx, filter, &[hash], stored, rejected, options);
        }
        let mut next = 0;
        for items in self.items.chunks(BATCH) {
            let batch = filter.prepare_batch(items.iter().map(Arg::bytes));
            let (stored, rejected) = (&mut stored[next..], &mut rejected[next..]);
            let (handled, failure) = insert_hashes(ctx, filter, batch.hashes(), stored, rejected, options);
            next += handled;
            if failure.is_some() {
                return (next, failure);
            }
        }
        (next, None)
    }

    /// Replicates the items that were stored. Returns true if there was one.
    ///
    /// Options are not sent: the creation has been replicated, and RedisBloom rejects those that it does not know.
    fn replicate(&self, ctx: &Context, stored: &[bool]) -> bool {
        let has_no_options = self.args.len() - self.items.len() <= 3;
        if self.on_duplicate == OnDuplicate::Count && has_no_options && stored.iter().all(|stored| *stored) {
            ctx.replicate_verbatim();
            return true;
        }
        let nocreate = ctx.string(b"NOCREATE");
        let items = Arguments::new(self.args, self.items);
        replicate(ctx, &Replay::copies(self.args.at(1), &[nocreate.as_arg()]), items, &Changed::Flagged(stored))
    }
}

/// Inserts items, given by their hashes, as [`Addition::run`] does. An item for which the filter is full does not
/// end this, so that the others are hashed only once.
#[inline(always)]
fn insert_hashes(
    ctx: &Context,
    filter: &mut Filter,
    hashes: &[Hash],
    stored: &mut [bool],
    rejected: &mut [bool],
    options: &InsertOptions,
) -> (usize, Option<Error>) {
    let mut next = 0;
    while next < hashes.len() {
        let (handled, failure) = insert_batch(ctx, filter, &hashes[next..], &mut stored[next..], &mut [], options);
        next += handled;
        match failure {
            None => {}
            Some(Error::Full) => {
                (stored[next], rejected[next]) = (false, true);
                next += 1;
            }
            Some(error) => {
                stored[next..].fill(false);
                let error = if error == Error::CannotGrow { Error::MaxExpansions } else { error };
                return (next, Some(error));
            }
        }
    }
    (next, None)
}
