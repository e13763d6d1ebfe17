//! Admission: decides whether a filter may take more memory, and wraps the operations that ask for memory. Rejects
//! merges that would take too long.

use std::cell::Cell;

use crate::allocation::{can_grow_by, failures};
use crate::changes;
use crate::configuration;
use crate::reply_error::{Error, Limit};
use crate::server::{Context, Server};
use crate::statistics::{self, Footprint};
use oxbloom_filter::internals::codec::Header;
use oxbloom_filter::internals::{Admit, CreateParams, Hash, InsertOptions, MergeOp};
use oxbloom_filter::{DecodeError, Filter};

/// Decides whether a filter may take more memory. If not, remembers which limit was exceeded.
pub(crate) struct Admission<'a> {
    server: &'a Server<'a>,
    /// The bytes that the filter already takes.
    present: u64,
    /// The bytes that were admitted.
    admitted: Cell<u64>,
    /// The limit that made the last request fail.
    limit: Cell<Limit>,
}

impl Admission<'_> {
    /// Returns the admission of a filter that takes `present` bytes. `limit` is the one that was exceeded if the
    /// library fails without calling [`admits`](Self::admits): for a layer, the addresses; else, the system's memory.
    pub(crate) fn new<'a>(server: &'a Server<'a>, present: u64, limit: Limit) -> Admission<'a> {
        Admission { server, present, admitted: Cell::new(0), limit: Cell::new(limit) }
    }

    /// Returns true if `more` bytes, in addition to those that were admitted before, are within the limits.
    ///
    /// Small requests are checked against the system's memory too. The many small segments of a table could otherwise
    /// use up the memory that the server itself needs.
    pub(crate) fn admits(&self, more: u64) -> bool {
        let requested = self.admitted.get().saturating_add(more);
        let exceeded = exceeded(self.server, self.present, requested);
        self.limit.set(exceeded.unwrap_or(Limit::System));
        let is_admitted = exceeded.is_none() && usize::try_from(more).is_ok_and(can_grow_by);
        if is_admitted {
            self.admitted.set(requested);
        }
        is_admitted
    }

    /// Returns the limit that made the last request fail.
    pub(crate) fn limit(&self) -> Limit {
        self.limit.get()
    }

    /// Converts a failure into an error, by [`exit_if_data_lost`].
    fn or_exit<T, E>(&self, result: Result<T, E>, error: impl FnOnce(E, Limit) -> Error) -> Result<T, Error> {
        result.map_err(|failure| exit_if_data_lost(self.server, error(failure, self.limit())))
    }
}

/// Creates an empty filter, if there is memory for it.
pub(crate) fn new_filter(server: &Server, params: CreateParams) -> Result<Filter, Error> {
    let admission = Admission::new(server, 0, Limit::Address);
    admission.or_exit(Filter::create(params, &mut |bytes| admission.admits(bytes)), Error::creating)
}

/// Runs an operation that asks for the memory of a new filter, as far as the limits allow.
pub(crate) fn admitted<T, E>(
    server: &Server,
    operation: impl FnOnce(Admit<'_>) -> Result<T, E>,
    error: impl FnOnce(E, Limit) -> Error,
) -> Result<T, Error> {
    let admission = Admission::new(server, 0, Limit::System);
    admission.or_exit(operation(&mut |bytes| admission.admits(bytes)), error)
}

/// Builds the filter that a header describes, if there is memory for it.
pub(crate) fn build(server: &Server, header: &Header) -> Result<Filter, Error> {
    let build = |admit: Admit<'_>| if admit(header.memory()) { header.build() } else { Err(DecodeError::OutOfMemory) };
    admitted(server, build, Error::decoding)
}

/// Merges filters into a new one, if there is memory for it.
pub(crate) fn merged(server: &Server, sources: &[&Filter], operation: MergeOp) -> Result<Filter, Error> {
    check_merge_limit(server, sources.iter().copied())?;
    let no_memory = |error, limit| Error::merging(error, Error::NoMemoryToCreate(limit));
    admitted(server, |admit| Filter::merged(sources, operation, admit), no_memory)
}

/// Merges filters into another, if there is memory for it. Returns true if the filter changed.
pub(crate) fn merge(
    server: &Server,
    filter: &mut Filter,
    sources: &[&Filter],
    operation: MergeOp,
) -> Result<bool, Error> {
    check_merge_limit(server, sources.iter().copied().chain([&*filter]))?;
    let before = Footprint::of(filter);
    let kept = before.bytes.saturating_sub(filter.replaced_by_merge(sources));
    let admission = Admission::new(server, kept, Limit::System);
    let changed = filter.merge(sources, operation, &mut |bytes| admission.admits(bytes));
    changes::forget(filter);
    statistics::on_change(filter, before);
    admission.or_exit(changed, |error, limit| Error::merging(error, Error::NoMemoryToGrow(limit)))
}

/// Folds a filter. Returns the factor.
///
/// Needs no admission, since the filter takes less memory afterwards; and no limit, since blocks are folded at the speed
/// of memory, as they are merged.
pub(crate) fn fold(server: &Server, filter: &mut Filter, capacity: u64) -> Result<u64, Error> {
    let before = Footprint::of(filter);
    let folded = admitted(server, |_admit| filter.fold(capacity), Error::folding);
    changes::forget(filter);
    statistics::on_change(filter, before);
    folded
}

/// Returns an error if the tables of these filters are larger than one command may merge, since all other clients wait
/// for it. Blocks need no limit: they are merged at the speed of memory. What a master or the append-only file has
/// merged is always merged here.
fn check_merge_limit<'a>(server: &Server, filters: impl Iterator<Item = &'a Filter>) -> Result<(), Error> {
    let limit = configuration::bloom::merge_limit();
    let bytes = filters.map(Filter::table_bytes).fold(0, u64::saturating_add);
    let is_over = limit != 0 && bytes > limit && !server.is_replicated_or_loading();
    if is_over { Err(Error::MergeTooLong) } else { Ok(()) }
}

/// Copies a filter, if there is memory for it.
pub(crate) fn copy(server: &Server, filter: &Filter) -> Result<Filter, Error> {
    let copy = |admit: Admit<'_>| match admit(filter.memory_usage() as u64) {
        true => filter.try_clone(),
        false => Err(oxbloom_filter::Error::OutOfMemory),
    };
    admitted(server, copy, Error::creating)
}

/// Returns the cursor after the last change of a filter, which is followed from now on if there is memory for it.
pub(crate) fn follow(ctx: &Context, filter: &Filter) -> Result<changes::Cursor, Error> {
    let admission = Admission::new(ctx, filter.memory_usage() as u64, Limit::System);
    let follow = changes::follow(ctx, filter, configuration::bloom::changes_size(), |bytes| admission.admits(bytes));
    follow.ok_or_else(|| Error::NoMemory(admission.limit()))
}

/// Returns an empty vector with room for `count` elements.
pub(crate) fn try_vec<T>(server: &Server, count: usize) -> Result<Vec<T>, Error> {
    oxbloom_filter::internals::try_vec(count).map_err(|_| exit_if_data_lost(server, Error::NoMemory(Limit::System)))
}

/// Inserts items into a filter in order until one fails. The filter grows as far as the limits allow. Returns the
/// number of items handled, and the error of the next one, if any. `renewed` is as for [`Filter::insert_hashes`]. Records
/// the new items for clients that follow the filter.
#[inline(never)]
pub(crate) fn insert(
    server: &Server,
    filter: &mut Filter,
    hashes: &[Hash],
    new: &mut [bool],
    renewed: &mut [bool],
    options: &InsertOptions,
) -> (usize, Option<Error>) {
    let before = Footprint::of(filter);
    let limit = if filter.grows_by_layers() { Limit::Address } else { Limit::System };
    let admission = Admission::new(server, before.bytes, limit);
    let insert = || filter.insert_hashes(hashes, new, renewed, options, &mut |bytes| admission.admits(bytes));
    let inserted = shrinking(server, insert);
    statistics::on_insert(filter, before, inserted.is_ok());
    let handled = inserted.as_ref().map_or_else(|interrupted| interrupted.handled, |()| hashes.len());
    changes::record(filter, &hashes[..handled], new);
    (handled, admission.or_exit(inserted, |interrupted, limit| Error::growing(interrupted.error, limit)).err())
}

/// Removes one occurrence of each item from a filter. Sets `removed[i]` to whether the item of `hashes[i]` had one.
pub(crate) fn remove(server: &Server, filter: &mut Filter, hashes: &[Hash], removed: &mut [bool]) -> Result<(), Error> {
    shrinking(server, || filter.remove_hashes(hashes, removed)).map_err(|_| Error::NotCounting)
}

/// Returns the error of a command or callback. Exits instead if memory ran out while applying data from a master or
/// from the server's own file, as the server does for its own data types: continuing would lose acknowledged items.
///
/// Two cases do not exit. A slot that fails to migrate stays on its source node. A size that no machine can address
/// cannot exist on the master either (RedisBloom's size overflows to 8 bytes).
pub(crate) fn exit_if_data_lost(server: &Server, error: Error) -> Error {
    if error.limit().is_some_and(|limit| limit != Limit::Address) && server.must_apply() && !server.is_import() {
        server.log_and_exit("out of memory applying replicated or persisted data; exiting to avoid losing items: give the server more memory");
    }
    error
}

/// Runs an operation that may leave a table as large as it is if there is no memory for a smaller one. Exits then if it
/// applies data from a master or from the server's own file.
///
/// The fingerprints of the larger table are longer than those of the master's. So it could miss an item that the master
/// took for one of its own, and did not replicate.
fn shrinking<T>(server: &Server, operation: impl FnOnce() -> T) -> T {
    let before = failures();
    let result = operation();
    if failures() != before {
        exit_if_data_lost(server, Error::NoMemory(Limit::System));
    }
    result
}

/// Returns the limit that `requested` more bytes exceed, for a filter that already takes `present` bytes.
///
/// The server only rejects commands once it is over `maxmemory`, so a single BF.RESERVE could exceed the limit by any
/// amount. If the server may evict other keys, a filter is rejected only if no eviction could make enough room.
/// Requests from a master or the append-only file were admitted before, and are always admitted here.
fn exceeded(server: &Server, present: u64, requested: u64) -> Option<Limit> {
    if server.is_replicated_or_loading() {
        return None;
    }
    let limit = configuration::filter_memory_limit();
    let whole = requested.saturating_add(present);
    if limit != 0 && whole > limit {
        return Some(Limit::Filter);
    }
    (!within_maxmemory(server, whole, requested)).then_some(Limit::Server)
}

fn within_maxmemory(server: &Server, whole: u64, requested: u64) -> bool {
    // Reading the ratio costs nothing. It is 0 without a limit, and excludes the same memory as the server's own check,
    // such as replica buffers.
    let used = server.used_memory_ratio();
    if used == 0.0 {
        return true;
    }
    match server.max_memory() {
        0 => true,
        limit if server.may_evict() => whole <= limit,
        limit => used * limit as f64 + requested as f64 <= limit as f64,
    }
}
