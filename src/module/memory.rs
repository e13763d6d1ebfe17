//! Whether a filter may take the memory that it asks for.

use super::config;
use super::context::Context;
use super::edge::call;

/// Whether `requested` more bytes, for a filter that takes `present` already, stay within `bf.filter-memory-limit` and the
/// server's `maxmemory`.
///
/// The server itself only refuses commands when it is over `maxmemory` already: a single BF.RESERVE could go beyond by any
/// amount. Where it may evict other keys to make room, a filter is refused when no eviction would be enough. What a master
/// or the append-only file asks for was granted before, and has to be done.
pub fn admits(ctx: &Context, present: usize, requested: u64) -> bool {
    if ctx.must_obey() {
        return true;
    }
    let limit = config::filter_memory_limit();
    let whole = requested.saturating_add(present as u64);
    (limit == 0 || whole <= limit) && within_maxmemory(ctx, whole, requested)
}

fn within_maxmemory(ctx: &Context, whole: u64, requested: u64) -> bool {
    // The ratio costs nothing, and is 0 without a limit. INFO takes some microseconds.
    if call!(RedisModule_GetUsedMemoryRatio()) == 0.0 {
        return true;
    }
    let number = |field| ctx.info_number(c"memory", field).unwrap_or(0);
    match number(c"maxmemory") {
        0 => true,
        limit if ctx.may_evict() => whole <= limit,
        limit => number(c"used_memory").saturating_add(requested) <= limit,
    }
}
