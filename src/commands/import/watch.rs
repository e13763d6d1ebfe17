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
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis_module::raw;
use xxhash_rust::xxh3::xxh3_128;

use super::{Cursor, IDLE};
use crate::callback::catch_panic;
use crate::family;
use crate::ffi::{RawContext, call};
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

struct Watch {
    running: Vec<Running>,
    /// True if a timer will drop idle imports.
    has_timer: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { running: Vec::new(), has_timer: false });

/// Registered while an import runs.
static FILTER: CommandFilter = CommandFilter::new(observe);

/// Not locked while a command is called, since the filter sees that command.
fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to watch the source of an import. `is_queued` is true if a transaction may have queued commands.
pub(super) fn begin(ctx: &Context, source: Arg, newkey: Arg, id: u64, is_queued: bool) {
    let mut watch = watch();
    let running = Running {
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
    watch.running.sort_unstable_by_key(|running| Reverse(running.latest));
    watch.running.truncate(MAX_RUNNING - 1);
    watch.running.push(running);
    // SAFETY: the context is alive.
    unsafe { FILTER.register(ctx.as_raw()) };
    watch.set_timer(ctx.as_raw());
}

/// Returns the running import of a source to a new key, unless the server has replaced its data since.
pub(super) fn find(ctx: &Context, source: Arg, newkey: Arg) -> Option<Running> {
    let keys = (ctx.database(), xxh3_128(source.bytes()), xxh3_128(newkey.bytes()));
    let is_it = |running: &&Running| (running.database, running.source, running.newkey) == keys;
    watch().running.iter().filter(|running| running.loads == loads()).find(is_it).copied()
}

/// Sets the place that an import has reached.
pub(super) fn advance(ctx: &Context, id: u64, cursor: Cursor) {
    let mut watch = watch();
    for running in watch.running.iter_mut().filter(|running| running.id == id) {
        running.cursor = cursor;
        running.latest = ctx.milliseconds();
    }
}

/// Ends the running import of a source to a new key, if there is one.
pub(super) fn end(ctx: &Context, source: Arg, newkey: Arg) {
    let ended = find(ctx, source, newkey).map(|running| running.id);
    watch().drop_if(ctx.as_raw(), |running| ended == Some(running.id));
}

impl Watch {
    /// Drops imports. Without any, the server need not call the filter.
    fn drop_if(&mut self, ctx: RawContext, is_over: impl Fn(&Running) -> bool) {
        self.running.retain(|running| !is_over(running));
        if self.running.is_empty() {
            // SAFETY: the context is alive. A command or a timer runs, so the server passes no command to its filters.
            unsafe { FILTER.unregister(ctx) };
        }
    }

    /// Sets a timer that drops idle imports, unless there is one.
    fn set_timer(&mut self, ctx: RawContext) {
        if !self.has_timer {
            self.has_timer = true;
            // SAFETY: the context is alive, and the callback has the type that the server expects. It gets no data.
            unsafe { call!(RedisModule_CreateTimer(ctx, IDLE, Some(drop_idle), ptr::null_mut())) };
        }
    }
}

/// Drops the imports that were idle for too long. Their unfinished filters have expired.
///
/// # Safety
///
/// Only the server may call this.
unsafe extern "C" fn drop_idle(ctx: RawContext, _data: *mut c_void) {
    catch_panic(c"drop_idle", (), || {
        let now = Server::without_context().milliseconds();
        let mut watch = watch();
        watch.has_timer = false;
        watch.drop_if(ctx, |running| now.saturating_sub(running.latest) >= IDLE);
        if FILTER.is_registered() {
            watch.set_timer(ctx);
        }
    });
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
        let mut watch = watch();
        let unchanged = watch.running.iter_mut().filter(|running| !running.is_changed);
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
