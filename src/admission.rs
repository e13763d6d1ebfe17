//! Admission: whether a filter may take the memory that it asks for, what happens if not, and the operations of commands
//! that ask for some.

use std::cell::Cell;

use crate::allocation::can_grow_by;
use crate::configuration;
use crate::reply_error::{Error, Limit};
use crate::server::Server;
use crate::statistics::{self, Footprint};
use oxbloom_filter::internals::codec::{self, Header};
use oxbloom_filter::internals::{CreateParams, FilterKind, Hash, InsertOptions, Interrupted, MergeOp};
use oxbloom_filter::{DecodeError, Filter};

/// Decides whether a filter may take more memory, and remembers which limit it exceeded otherwise.
pub(crate) struct Admission<'a> {
    server: &'a Server<'a>,
    /// Bytes that the filter takes already.
    present: u64,
    /// Bytes that were admitted.
    admitted: Cell<u64>,
    limit: Cell<Limit>,
}

impl Admission<'_> {
    pub(crate) fn new<'a>(server: &'a Server<'a>, present: u64) -> Admission<'a> {
        Admission { server, present, admitted: Cell::new(0), limit: Cell::new(Limit::System) }
    }

    /// As [`new`](Self::new), for a layer of bits, whose size is computed: the library does not ask for one that cannot be
    /// addressed.
    fn of_new_layer<'a>(server: &'a Server<'a>, present: u64) -> Admission<'a> {
        Admission { limit: Cell::new(Limit::Address), ..Admission::new(server, present) }
    }

    /// Returns whether `more` bytes, in addition to those that were admitted before, stay within the limits.
    ///
    /// The system is asked as well: what comes in many small requests, as the segments of a table do, could otherwise take
    /// the last that the server itself needs.
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

    /// The limit that made the last request fail.
    pub(crate) fn limit(&self) -> Limit {
        self.limit.get()
    }

    /// Turns a failure into an error, by [`exit_if_data_lost`].
    fn or_exit<T, E>(&self, result: Result<T, E>, error: impl FnOnce(E, Limit) -> Error) -> Result<T, Error> {
        result.map_err(|failure| exit_if_data_lost(self.server, error(failure, self.limit())))
    }
}

/// Creates an empty filter, if there is memory for it.
pub(crate) fn new_filter(server: &Server, params: CreateParams) -> Result<Filter, Error> {
    let admission = Admission::of_new_layer(server, 0);
    admission.or_exit(Filter::create(params, |bytes| admission.admits(bytes)), Error::creating)
}

/// Builds the filter that a header describes, if there is memory for it.
pub(crate) fn build(server: &Server, header: &Header) -> Result<Filter, Error> {
    let admission = Admission::new(server, 0);
    let built = if admission.admits(header.memory()) { header.build() } else { Err(DecodeError::OutOfMemory) };
    admission.or_exit(built, Error::decoding)
}

/// Creates an empty filter that can be merged with `other`, if there is memory for it.
pub(crate) fn like(server: &Server, other: &Filter) -> Result<Filter, Error> {
    let admission = Admission::new(server, 0);
    admission.or_exit(other.empty_like(|bytes| admission.admits(bytes)), Error::creating)
}

/// Merges filters into a new one, if there is memory for it.
pub(crate) fn merged(server: &Server, sources: &[&Filter], operation: MergeOp) -> Result<Filter, Error> {
    let admission = Admission::new(server, 0);
    let merged = Filter::merged(sources, operation, &mut |bytes| admission.admits(bytes));
    admission.or_exit(merged, |error, limit| Error::merging(error, Error::NoMemoryToCreate(limit)))
}

/// Merges filters into another, if there is memory for it. Returns whether that changed it.
pub(crate) fn merge(
    server: &Server,
    filter: &mut Filter,
    sources: &[&Filter],
    operation: MergeOp,
) -> Result<bool, Error> {
    let before = Footprint::of(filter);
    let admission = Admission::new(server, before.bytes.saturating_sub(filter.replaced_by_merge(sources)));
    let changed = filter.merge(sources, operation, &mut |bytes| admission.admits(bytes));
    statistics::on_change(filter, before);
    admission.or_exit(changed, |error, limit| Error::merging(error, Error::NoMemoryToGrow(limit)))
}

/// Copies a filter, if there is memory for it.
pub(crate) fn copy(server: &Server, filter: &Filter) -> Result<Filter, Error> {
    let admission = Admission::new(server, 0);
    let admitted = admission.admits(filter.memory_usage() as u64);
    let copied = if admitted { filter.try_clone() } else { Err(oxbloom_filter::Error::OutOfMemory) };
    admission.or_exit(copied, Error::creating)
}

/// Returns an empty vector with room for `count` elements.
pub(crate) fn try_vec<T>(server: &Server, count: usize) -> Result<Vec<T>, Error> {
    oxbloom_filter::internals::try_vec(count).map_err(|_| exit_if_data_lost(server, Error::NoMemory(Limit::System)))
}

/// Encodes the header of a filter's dump, if there is memory for it.
pub(crate) fn encode_header(server: &Server, filter: &Filter) -> Result<Vec<u8>, Error> {
    codec::encode_header(filter).map_err(|_| exit_if_data_lost(server, Error::NoMemory(Limit::System)))
}

/// Inserts items into a filter, which may grow for it as far as there is memory, until one does not fit. Returns how many
/// were handled, and what was wrong with the next. `renewed` as for [`Filter::insert_hashes`].
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
    let admission = match filter.kind() {
        FilterKind::Classic => Admission::of_new_layer(server, before.bytes),
        FilterKind::Native | FilterKind::Counting | FilterKind::Windowed => Admission::new(server, before.bytes),
    };
    let inserted = filter.insert_hashes(hashes, new, renewed, options, &mut |bytes| admission.admits(bytes));
    statistics::on_insert(filter, before, inserted.is_ok());
    match inserted {
        Ok(()) => (hashes.len(), None),
        Err(Interrupted { handled, error }) => (handled, admission.or_exit::<(), _>(Err(error), Error::growing).err()),
    }
}

/// Returns the error of a command or callback, or exits if there was no memory to apply what a master or the server's
/// own file says, as the server itself does with its own data types. Continuing would lose acknowledged items, on a
/// replica or after a restart. A slot that migrates is no reason to exit: it stays where it was.
///
/// A size that no machine can address is no reason to exit: the master cannot hold it either (RedisBloom's overflows to
/// 8 bytes).
pub(crate) fn exit_if_data_lost(server: &Server, error: Error) -> Error {
    let limit = match error {
        Error::NoMemoryToCreate(limit) | Error::NoMemoryToGrow(limit) | Error::NoMemory(limit) => Some(limit),
        _ => None,
    };
    if limit.is_some_and(|limit| limit != Limit::Address) && server.must_apply() && !server.is_import() {
        server.end_server("out of memory for a filter of the master or of a file: ending, not to lose its items");
    }
    error
}

/// Returns which limit `requested` more bytes exceed, for a filter that takes `present` already.
///
/// The server itself only rejects commands when it is over `maxmemory` already: a single BF.RESERVE could go beyond by
/// any amount. Where it may evict other keys to make room, a filter is rejected when no eviction would be enough. What
/// a master or the append-only file asks for was granted before, and has to be done.
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
    // The ratio costs nothing, is 0 without a limit, and leaves out what the server leaves out, such as the buffers of
    // replicas.
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
