//! Whether a filter may take the memory that it asks for, and what happens if not.

use std::cell::Cell;

use super::config;
use super::context::Context;
use super::edge::call;
use super::error::Error;
use super::stats::{self, Weight};
use oxbloom_filter::codec::{self, DecodeError, Header};
use oxbloom_filter::merge::Operation;
use oxbloom_filter::{Filter, Params};

/// The limit that a request for memory exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// What any machine can address.
    Address,
    /// `bf.filter-memory-limit`.
    Filter,
    /// `maxmemory`.
    Server,
    /// What the allocator could get from the system.
    System,
}

/// Decides whether a filter may take more memory, and keeps which limit it exceeded otherwise.
pub struct Admission<'a> {
    ctx: &'a Context<'a>,
    /// Bytes that the filter takes already.
    present: u64,
    limit: Cell<Limit>,
}

impl Admission<'_> {
    pub fn new<'a>(ctx: &'a Context<'a>, present: u64) -> Admission<'a> {
        Admission { ctx, present, limit: Cell::new(Limit::System) }
    }

    /// As [`new`](Self::new), for a layer whose size is computed: the library never asks for what cannot be addressed.
    fn of_new_layer<'a>(ctx: &'a Context<'a>, present: u64) -> Admission<'a> {
        Admission { limit: Cell::new(Limit::Address), ..Admission::new(ctx, present) }
    }

    /// Returns whether `requested` more bytes stay within the limits.
    pub fn admits(&self, requested: u64) -> bool {
        let exceeded = exceeded(self.ctx, self.present, requested);
        self.limit.set(exceeded.unwrap_or(Limit::System));
        exceeded.is_none()
    }

    /// The limit that made the last request fail.
    pub fn limit(&self) -> Limit {
        self.limit.get()
    }

    /// Turns a failure into an error, which [`refused`] returns.
    fn check<T, E>(&self, result: Result<T, E>, error: impl FnOnce(E, Limit) -> Error) -> Result<T, Error> {
        result.map_err(|failure| refused(self.ctx, error(failure, self.limit())))
    }
}

/// An empty filter, as far as there is memory for it.
pub fn new_filter(ctx: &Context, params: Params) -> Result<Filter, Error> {
    let admission = Admission::of_new_layer(ctx, 0);
    admission.check(Filter::new(params, |bytes| admission.admits(bytes)), Error::creating)
}

/// The filter that a header describes, as far as there is memory for it.
pub fn build(ctx: &Context, header: &Header) -> Result<Filter, Error> {
    let admission = Admission::new(ctx, 0);
    let built = if admission.admits(header.memory()) { header.build() } else { Err(DecodeError::OutOfMemory) };
    admission.check(built, Error::decoding)
}

/// An empty filter that may be merged with `other`, as far as there is memory for it.
pub fn like(ctx: &Context, other: &Filter) -> Result<Filter, Error> {
    let admission = Admission::new(ctx, 0);
    admission.check(other.like(|bytes| admission.admits(bytes)), Error::creating)
}

/// What `operation` makes of filters, as far as there is memory for it.
pub fn merge_new(ctx: &Context, sources: &[&Filter], operation: Operation) -> Result<Filter, Error> {
    let admission = Admission::new(ctx, 0);
    let merged = Filter::merged(sources, operation, |bytes| admission.admits(bytes));
    admission.check(merged, |refusal, limit| Error::merging(refusal, Error::NoMemoryToCreate(limit)))
}

/// Merges filters into another, as far as there is memory for it. Whether that changed it.
pub fn merge_into(
    ctx: &Context,
    filter: &mut Filter,
    sources: &[&Filter],
    operation: Operation,
) -> Result<bool, Error> {
    let before = Weight::of(filter);
    let admission = Admission::new(ctx, before.bytes);
    let changed = filter.merge(sources, operation, |bytes| admission.admits(bytes));
    stats::changed(filter, before);
    admission.check(changed, |refusal, limit| Error::merging(refusal, Error::NoMemoryToGrow(limit)))
}

/// A copy of a filter, as far as there is memory for it.
pub fn copy(ctx: &Context, filter: &Filter) -> Result<Filter, Error> {
    let admission = Admission::new(ctx, 0);
    let admitted = admission.admits(filter.memory_usage() as u64);
    let copied = if admitted { filter.try_clone() } else { Err(oxbloom_filter::Error::OutOfMemory) };
    admission.check(copied, Error::creating)
}

/// Room for `count` things that a command has to keep in mind.
pub fn room<T>(ctx: &Context, count: usize) -> Result<Vec<T>, Error> {
    oxbloom_filter::with_room(count).map_err(|_| refused(ctx, Error::NoMemory(Limit::System)))
}

/// The header of a filter's walk, as far as there is memory for it.
pub fn encode_header(ctx: &Context, filter: &Filter) -> Result<Vec<u8>, Error> {
    codec::encode_header(filter).map_err(|_| refused(ctx, Error::NoMemory(Limit::System)))
}

/// Adds a layer to a filter, as far as there is memory for it.
#[cold]
pub fn grow(ctx: &Context, filter: &mut Filter) -> Result<(), Error> {
    let before = Weight::of(filter);
    let admission = Admission::of_new_layer(ctx, before.bytes);
    let grown = filter.grow(|bytes| admission.admits(bytes));
    stats::changed(filter, before);
    stats::grown(filter, grown.is_ok());
    admission.check(grown, Error::growing)
}

/// Returns the error of a command or callback; but ends the process if there was no memory for what a master or the server's
/// own file says, as the server itself does with its own data types. To go on without would be worse: a replica, or a server
/// that comes back, would call items absent that were acknowledged. A slot that migrates goes on being served where it was.
///
/// What no machine can address, the master cannot hold either (RedisBloom's size overflows to 8 bytes): no reason to exit.
pub fn refused(ctx: &Context, error: Error) -> Error {
    let limit = match error {
        Error::NoMemoryToCreate(limit) | Error::NoMemoryToGrow(limit) | Error::NoMemory(limit) => Some(limit),
        _ => None,
    };
    if limit.is_some_and(|limit| limit != Limit::Address) && ctx.must_not_fail() && !ctx.is_import() {
        ctx.end_server("out of memory for a filter of the master or of a file: ending, not to lose its items");
    }
    error
}

/// Returns which limit `requested` more bytes exceed, for a filter that takes `present` already.
///
/// The server itself only rejects commands when it is over `maxmemory` already: a single BF.RESERVE could go beyond by any
/// amount. Where it may evict other keys to make room, a filter is rejected when no eviction would be enough. What a master
/// or the append-only file asks for was granted before, and has to be done.
fn exceeded(ctx: &Context, present: u64, requested: u64) -> Option<Limit> {
    if ctx.must_obey() {
        return None;
    }
    let limit = config::filter_memory_limit();
    let whole = requested.saturating_add(present);
    if limit != 0 && whole > limit {
        return Some(Limit::Filter);
    }
    (!within_maxmemory(ctx, whole, requested)).then_some(Limit::Server)
}

fn within_maxmemory(ctx: &Context, whole: u64, requested: u64) -> bool {
    // The ratio costs nothing, is 0 without a limit, and leaves out what the server leaves out, such as the buffers of
    // replicas. INFO takes some 40 microseconds.
    let used = f64::from(call!(RedisModule_GetUsedMemoryRatio()));
    if used == 0.0 {
        return true;
    }
    match ctx.info_number(c"memory", c"maxmemory").unwrap_or(0) {
        0 => true,
        limit if ctx.may_evict() => whole <= limit,
        limit => used * limit as f64 + requested as f64 <= limit as f64,
    }
}
