//! Additions: the steps that all commands share which add items to a filter, and create it if it does not exist.

use super::creation::{Creation, create, expire_at};
use crate::admission;
use crate::changes;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::reply_error::Error;
use crate::server::{Arg, Context, Keyspace};
use crate::statistics::{self, Footprint};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{Hash, InsertOptions, Interrupted};

/// What additions did to a filter.
#[derive(Clone, Copy, Default)]
pub(super) struct Change {
    /// True if they changed it.
    pub added: bool,
    /// True if it forgot other items.
    pub forgot: bool,
}

/// Adds items to the filter of a key. Creates the filter if it does not exist, unless the options forbid it. `insert`
/// inserts the items, replicates those that changed the filter, and returns what is left to reply with. Then watchers
/// and listeners are notified.
///
/// Always inlined, so that BF.ADD pays only for the steps that it needs.
#[inline(always)]
pub(super) fn add<'k, O: Creation, T>(
    ctx: &Context,
    mut keyspace: Keyspace<'k>,
    name: Arg,
    options: Option<&O>,
    insert: impl FnOnce(WriteKey) -> Result<(T, Change), Error>,
) -> Result<T, Error> {
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let created = !key.has_filter();
    if created {
        key = create_and_open(ctx, name, key, options)?;
    } else if let Some(options) = options
        && let Some(filter) = key.filter()
        && !ctx.is_replicated_or_loading()
    {
        options.check_existing(ctx, filter)?;
    }
    let inserted = insert(key);
    let Change { added, forgot } = inserted.as_ref().map_or(Change::default(), |&(_, change)| change);
    if added {
        keyspace.notify_changed(ctx, name, Verb::Add);
    }
    if forgot {
        keyspace.notify_changed(ctx, name, Verb::Expire);
    }
    if created && let Some(time) = options.and_then(O::expires_at) {
        expire_at(ctx, keyspace, name, time);
    }
    inserted.map(|(left, _)| left)
}

/// Creates the filter of a key, with default settings if there are no options, and opens the key again. The filter may
/// already be gone, since its creation runs listeners. They are notified before items are added: the additions may fail
/// as a whole.
///
/// Not inlined: inlined code would make BF.ADD save more registers on each call.
#[cold]
#[inline(never)]
fn create_and_open<'k, O: Creation>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    options: Option<&O>,
) -> Result<WriteKey<'k>, Error> {
    if options.is_some_and(|options| !options.may_create()) {
        return Err(Error::NotFound);
    }
    let defaults = if ctx.is_replicated_or_loading() { O::of_stream() } else { O::default() };
    let options = options.unwrap_or(&defaults);
    let mut keyspace = create(ctx, name, key, options.params(ctx)?, options)?;
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

/// Inserts the items of one batch, given by their hashes, as [`insert_in_batches`] does. Records the new ones for
/// clients that follow the filter.
pub(super) fn insert_batch(
    ctx: &Context,
    filter: &mut Filter,
    hashes: &[Hash],
    new: &mut [bool],
    renewed: &mut [bool],
    options: &InsertOptions,
) -> (usize, Option<Error>) {
    if filter.forgets() || hashes.len() > 1 && filter.grows_in_small_steps() {
        return admission::insert(ctx, filter, hashes, new, renewed, options);
    }
    // Admission costs time. So insert without it first, and admit memory only if the filter must grow. `renewed` is not
    // needed: only filters that forget renew items.
    let inserted = filter.insert_hashes(hashes, new, &mut [], options, &mut |_bytes| false);
    let Err(Interrupted { handled, error }) = inserted else {
        changes::record(filter, hashes, new);
        return (hashes.len(), None);
    };
    changes::record(filter, &hashes[..handled], new);
    if error == oxbloom_filter::Error::Full {
        // Memory would not help.
        statistics::on_insert(filter, Footprint::of(filter), false);
        return (handled, Some(Error::Full));
    }
    let (hashes, new) = (&hashes[handled..], &mut new[handled..]);
    let (more, failure) = admission::insert(ctx, filter, hashes, new, &mut [], options);
    (handled + more, failure)
}
