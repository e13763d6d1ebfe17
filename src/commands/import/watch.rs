//! The running imports, and which of their sources may have been written to.
//!
//! A header tells only how many items a source has, and can come back to what it was: after a removal, an addition and
//! a compaction, for example. Other modules raise no event when they write. So while an import runs, a command filter
//! sees all commands, also those of scripts, and marks the imports whose source is named by one that may write.
//!
//! Two things happen unseen. Commands that a transaction has queued before the import run without the filter: if there
//! are any when the import begins, each EXEC may be theirs. And a server may replace its data, as a new replica does:
//! an import from before is not continued.

use std::cmp::Reverse;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis_module::raw;
use xxhash_rust::xxh3::xxh3_128;

use super::{Cursor, IDLE};
use crate::callback::catch_panic;
use crate::family;
use crate::ffi::RawContext;
use crate::server::{Arg, CommandFilter, Context, FilteredCommand, Server};
use crate::written_prefix::loads;

/// The maximum number of running imports. Another one takes the place of the one that was idle for longest.
const MAX_RUNNING: usize = 64;

/// The commands that change no item of a source that they name. Scripts call their commands one by one.
const HARMLESS: [&str; 4] = [
    "BF.EXISTS BF.MEXISTS BF.CARD BF.INFO BF.SCANDUMP BF.DEBUG",
    "CF.EXISTS CF.MEXISTS CF.COUNT CF.INFO CF.SCANDUMP CF.DEBUG",
    "EXISTS TYPE TTL PTTL EXPIRETIME PEXPIRETIME EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST",
    "TOUCH DUMP OBJECT MEMORY WATCH EVAL EVAL_RO EVALSHA EVALSHA_RO FCALL FCALL_RO",
];

/// An import that has begun, and is neither complete nor rejected.
#[derive(Clone, Copy)]
pub(super) struct Running {
    database: c_int,
    /// The hash of the source's name.
    source: u128,
    /// The hash of the new key's name.
    newkey: u128,
    /// The number that distinguishes the key of the unfinished filter.
    pub id: u64,
    /// The place in the source that the import has reached.
    pub cursor: Cursor,
    /// True if the source may have been written to.
    pub is_changed: bool,
    /// True if a transaction may have queued a command before the import began.
    is_queued: bool,
    /// The number of times that the server had replaced its data.
    loads: u64,
    /// The time of the last step, in milliseconds since 1970.
    latest: i64,
}

static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());

/// Registered while an import runs.
static FILTER: CommandFilter = CommandFilter::new(observe);

/// Not locked while a command is called, since the filter sees that command.
fn running() -> MutexGuard<'static, Vec<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to watch the source of an import. `is_queued` is true if a transaction may have queued commands.
pub(super) fn begin(ctx: &Context, source: Arg, newkey: Arg, id: u64, is_queued: bool) {
    let mut all = running();
    let new = Running {
        database: ctx.database(),
        source: xxh3_128(source.bytes()),
        newkey: xxh3_128(newkey.bytes()),
        id,
        cursor: Cursor::FIRST,
        is_changed: false,
        is_queued,
        loads: loads(),
        latest: ctx.milliseconds(),
    };
    all.sort_unstable_by_key(|running| Reverse(running.latest));
    all.truncate(MAX_RUNNING - 1);
    all.push(new);
    // SAFETY: the context is alive.
    unsafe { FILTER.register(ctx.as_raw()) };
}

/// Returns the running import of a source to a new key, unless the server has replaced its data since.
pub(super) fn find(ctx: &Context, source: Arg, newkey: Arg) -> Option<Running> {
    let keys = (ctx.database(), xxh3_128(source.bytes()), xxh3_128(newkey.bytes()));
    let is_it = |running: &&Running| (running.database, running.source, running.newkey) == keys;
    running().iter().filter(|running| running.loads == loads()).find(is_it).copied()
}

/// Sets the place that an import has reached.
pub(super) fn advance(ctx: &Context, id: u64, cursor: Cursor) {
    for running in running().iter_mut().filter(|running| running.id == id) {
        running.cursor = cursor;
        running.latest = ctx.milliseconds();
    }
}

/// Ends the running import of a source to a new key, if there is one.
pub(super) fn end(ctx: &Context, source: Arg, newkey: Arg) {
    let ended = find(ctx, source, newkey).map(|running| running.id);
    // SAFETY: the context is alive. A command runs, so the server passes no command to its filters.
    unsafe { drop_if(ctx.as_raw(), |running| ended == Some(running.id)) };
}

/// Drops imports. Without any, the server need not call the filter.
///
/// # Safety
///
/// The context must be alive, and the server must not be passing a command to its filters.
unsafe fn drop_if(ctx: RawContext, is_over: impl Fn(&Running) -> bool) {
    let mut all = running();
    all.retain(|running| !is_over(running));
    if all.is_empty() {
        // SAFETY: as promised by the caller.
        unsafe { FILTER.unregister(ctx) };
    }
}

/// Drops the imports that were idle for too long. Their unfinished filters have expired.
///
/// # Safety
///
/// As for [`drop_if`].
pub(crate) unsafe fn drop_idle(ctx: RawContext) {
    if FILTER.is_registered() {
        let now = Server::without_context().milliseconds();
        // SAFETY: as promised by the caller.
        unsafe { drop_if(ctx, |running| now.saturating_sub(running.latest) >= IDLE) };
    }
}

/// Marks the imports whose source a command may write to.
///
/// # Safety
///
/// Only the server may call this.
unsafe extern "C" fn observe(command: *mut raw::RedisModuleCommandFilterCtx) {
    catch_panic(c"observe", (), || {
        // SAFETY: the server hands over a command for the time of the call.
        let command = unsafe { FilteredCommand::new(command) };
        let count = command.len();
        if count == 0 {
            return;
        }
        let name = command.at(0);
        let mut all = running();
        let unchanged = all.iter_mut().filter(|running| !running.is_changed);
        if name.is("SWAPDB") {
            unchanged.for_each(|running| running.is_changed = true);
        } else if name.is("EXEC") {
            unchanged.for_each(|running| running.is_changed = running.is_queued);
        } else if !family::may_have(name.bytes()) {
            // The other arguments of a command on filters are items, or other filters that it reads.
            let keys = if family::is_usual(name.bytes()) { 1..count.min(2) } else { 1..count };
            let names =
                |running: &Running| keys.clone().any(|index| running.source == xxh3_128(command.at(index).bytes()));
            let is_harmless = || HARMLESS.iter().flat_map(|names| names.split(' ')).any(|harmless| name.is(harmless));
            unchanged.filter(|running| names(running)).for_each(|running| running.is_changed = !is_harmless());
        }
    });
}
