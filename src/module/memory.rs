//! Whether a filter may take the memory that it asks for, and what happens if not.

use super::config;
use super::context::Context;
use super::edge::call;
use super::error::Error;
use super::stats::{self, Weight};
use crate::filter::codec::{DecodeError, Header};
use crate::filter::merge::Operation;
use crate::filter::{self, Filter, Params};

/// An empty filter, as far as there is memory for it.
pub fn new_filter(ctx: &Context, params: Params) -> Result<Filter, Error> {
    let mut is_possible = false;
    let filter = Filter::new(params, |bytes| {
        is_possible = true;
        admits(ctx, 0, bytes)
    });
    filter.map_err(|error| {
        let error = Error::creating(error);
        // What no machine could hold, a master did not either: RedisBloom makes eight bytes of it.
        if is_possible { refused(ctx, error) } else { error }
    })
}

/// The filter that a header describes, as far as there is memory for it.
pub fn build(ctx: &Context, header: &Header) -> Result<Filter, Error> {
    let admitted = if admits(ctx, 0, header.memory()) { Ok(()) } else { Err(DecodeError::OutOfMemory) };
    admitted.and_then(|()| header.build()).map_err(|error| refused(ctx, error.into()))
}

/// An empty filter that may be merged with `other`, as far as there is memory for it.
pub fn like(ctx: &Context, other: &Filter) -> Result<Filter, Error> {
    other.like(|bytes| admits(ctx, 0, bytes)).map_err(|error| refused(ctx, Error::creating(error)))
}

/// What `operation` makes of filters, as far as there is memory for it.
pub fn merge_new(ctx: &Context, sources: &[&Filter], operation: Operation) -> Result<Filter, Error> {
    let merged = Filter::merged(sources, operation, |bytes| admits(ctx, 0, bytes));
    merged.map_err(|refusal| refused(ctx, Error::merging(refusal, Error::NoMemoryToCreate)))
}

/// Merges filters into another, as far as there is memory for it. Whether that changed it.
pub fn merge_into(
    ctx: &Context,
    filter: &mut Filter,
    sources: &[&Filter],
    operation: Operation,
) -> Result<bool, Error> {
    let before = Weight::of(filter);
    let changed = filter.merge(sources, operation, |bytes| admits(ctx, before.bytes, bytes));
    stats::changed(filter, before);
    changed.map_err(|refusal| refused(ctx, Error::merging(refusal, Error::NoMemoryToGrow)))
}

/// A copy of a filter, as far as there is memory for it.
pub fn copy(ctx: &Context, filter: &Filter) -> Result<Filter, Error> {
    let admitted = admits(ctx, 0, filter.memory_usage() as u64);
    let copied = if admitted { filter.try_clone() } else { Err(filter::Error::OutOfMemory) };
    copied.map_err(|error| refused(ctx, Error::creating(error)))
}

/// Room for `count` things that a command has to keep in mind.
pub fn room<T>(ctx: &Context, count: usize) -> Result<Vec<T>, Error> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| refused(ctx, Error::NoMemory))?;
    Ok(room)
}

/// Adds a layer to a filter, as far as there is memory for it.
#[cold]
pub fn grow(ctx: &Context, filter: &mut Filter) -> Result<(), Error> {
    let before = Weight::of(filter);
    let grown = filter.grow(|bytes| admits(ctx, before.bytes, bytes));
    stats::changed(filter, before);
    stats::grown(filter, grown.is_ok());
    grown.map_err(|error| refused(ctx, Error::growing(error)))
}

/// Returns the error of a command or callback; but ends the process if there was no memory for what a master or the server's
/// own file says, as the server itself does with its own data types. To go on without would be worse: a replica, or a server
/// that comes back, would call items absent that were acknowledged. A slot that migrates goes on being served where it was.
pub fn refused(ctx: &Context, error: Error) -> Error {
    let for_memory = matches!(error, Error::NoMemoryToCreate | Error::NoMemoryToGrow | Error::NoMemory);
    if for_memory && ctx.must_not_fail() && !ctx.is_import() {
        ctx.end_server("out of memory for a filter of the master or of a file: ending, not to lose its items");
    }
    error
}

/// Whether `requested` more bytes, for a filter that takes `present` already, stay within `bf.filter-memory-limit` and the
/// server's `maxmemory`.
///
/// The server itself only refuses commands when it is over `maxmemory` already: a single BF.RESERVE could go beyond by any
/// amount. Where it may evict other keys to make room, a filter is refused when no eviction would be enough. What a master
/// or the append-only file asks for was granted before, and has to be done.
pub fn admits(ctx: &Context, present: u64, requested: u64) -> bool {
    if ctx.must_obey() {
        return true;
    }
    let limit = config::filter_memory_limit();
    let whole = requested.saturating_add(present);
    (limit == 0 || whole <= limit) && within_maxmemory(ctx, whole, requested)
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
