//! Lookahead: prefetches the memory that the next command will read, before the server runs the command.
//!
//! BF.ADD and BF.EXISTS wait for one cache line of a filter, CF.ADD and CF.EXISTS for two. If the filter is large,
//! fetching that line from memory takes longer than the rest of the command. The server passes each command to a
//! command filter as soon as it has parsed it. Before the command runs, the server still looks it up, checks
//! permissions and limits, and opens the key:
//!
//! ```text
//!  read │ command filter: hash, prefetch │ checks │ open the key │ look up │ reply
//!                               └──────── memory ────────┘
//! ```
//!
//! A command filter cannot open keys. So this module remembers the large filters that were used last. A filter that is
//! freed or moved is forgotten first, also when a background thread frees it.
//!
//! For a pipelined BF.EXISTS on a filter of 10^8 items, this reduces the look-up from 390 to 160 ns, and the server's
//! processor time per command from 880 to 770 ns. It saves 1 to 5 % in a filter of 10 MB. In one of 2.4 MB, additions
//! take 7 % longer, and look-ups as long; in one of 1.2 MB, both take a tenth longer. Every other command pays about 70
//! instructions, 25 of them ours, and 20 more if it has three arguments. This takes 8 to 26 ns. So the command filter is
//! only registered while enough commands are ours. Handlers count those on large filters. Five times a second, this
//! module compares them with the number of all commands, which INFO has. Until a large filter is used, this costs
//! nothing.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use redis_module::raw;
use xxhash_rust::xxh3::xxh3_64;

use crate::callback::catch_panic;
use crate::configuration::{self, Lookahead};
use crate::family;
use crate::ffi::RawContext;
use crate::server::{Arg, CommandFilter, Context, FilteredCommand, Server, feature};
use crate::statistics::Figures;
use oxbloom_filter::Filter;

/// The maximum number of large filters that are remembered. Keys whose hashes share a slot displace each other.
const SLOTS: usize = 64;

/// The time between two decisions, in milliseconds. For each, the server formats a section of INFO.
const PERIOD: u64 = 200;

/// With fewer commands in a period, it does not matter whether the command filter is registered.
const LEAST_COMMANDS: u64 = 200;

/// A large filter that was used.
struct Slot {
    /// The hash of the key's name.
    name: AtomicU64,
    /// The address of the filter, or 0. The filter is alive while [`READING`] is locked.
    filter: AtomicUsize,
}

/// The filters, by the hash of the key's name. Empty while the command filter is not registered.
static REMEMBERED: [Slot; SLOTS] = [const { Slot { name: AtomicU64::new(0), filter: AtomicUsize::new(0) } }; SLOTS];

/// Locked while a remembered filter is read, and while one is forgotten.
static READING: Mutex<()> = Mutex::new(());

static FILTER: CommandFilter = CommandFilter::new(look_ahead);

/// True on servers where a command filter costs others little.
static IS_OFFERED: AtomicBool = AtomicBool::new(false);

/// The number of single-item commands on large filters in this period.
static USES: AtomicU64 = AtomicU64::new(0);

/// The number of commands that the server had run when the period began; 0 if it is not known.
static RUN_BEFORE: AtomicU64 = AtomicU64::new(0);

/// The time when the period began.
static BEGAN: AtomicI64 = AtomicI64::new(0);

/// The percentage of all commands that were single-item commands on large filters, in the last period with enough.
static SHARE: AtomicU64 = AtomicU64::new(0);

/// The number of commands for which memory was prefetched.
static PREFETCHED: AtomicU64 = AtomicU64::new(0);

/// Finds out what the server offers.
pub(crate) fn register() {
    IS_OFFERED.store(feature::LOOKAHEAD.is_offered(), Ordering::Relaxed);
}

pub(crate) fn figures() -> Figures<3> {
    [
        (c"lookahead_active", FILTER.is_registered().into()),
        (c"lookahead_commands", PREFETCHED.load(Ordering::Relaxed)),
        (c"lookahead_share", SHARE.load(Ordering::Relaxed)),
    ]
}

/// Counts a single-item command on a filter, and remembers the filter for the next command, if it is large. Returns
/// true if it was remembered before, so that the command filter has prefetched for this command.
#[inline]
pub(crate) fn remember(ctx: &Context, key: Arg, filter: &Filter) -> bool {
    filter.memory_usage() as u64 > configuration::max_size_without_lookahead() && insert(ctx, key, filter)
}

/// Not inlined, to keep it out of the hot path of commands on small filters.
#[inline(never)]
fn insert(ctx: &Context, key: Arg, filter: &Filter) -> bool {
    count(&USES);
    if !FILTER.is_registered() {
        if mode() != Lookahead::On {
            return false;
        }
        // SAFETY: the context is alive.
        unsafe { FILTER.register(ctx.as_raw()) };
    }
    let name = xxh3_64(key.bytes());
    let filter = ptr::from_ref(filter).expose_provenance();
    let slot = slot(name);
    let was_remembered = slot.name.load(Ordering::Relaxed) == name && slot.filter.load(Ordering::Relaxed) == filter;
    slot.name.store(name, Ordering::Relaxed);
    slot.filter.store(filter, Ordering::Relaxed);
    was_remembered
}

/// Adds 1, without an atomic addition: all commands run on one thread at a time.
fn count(number: &AtomicU64) {
    number.store(number.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

fn slot(name: u64) -> &'static Slot {
    &REMEMBERED[(name % SLOTS as u64) as usize]
}

/// Forgets a filter that is about to be freed or moved.
pub(crate) fn forget(filter: *const Filter) {
    if FILTER.is_registered() {
        forget_if(|address| address == filter.addr());
    }
}

/// Forgets filters by their addresses.
fn forget_if(is_gone: impl Fn(usize) -> bool) {
    let _reading = READING.lock().unwrap_or_else(PoisonError::into_inner);
    let gone = REMEMBERED.iter().filter(|slot| is_gone(slot.filter.load(Ordering::Relaxed)));
    gone.for_each(|slot| slot.filter.store(0, Ordering::Relaxed));
}

/// Returns the setting, or [`Lookahead::Off`] if something else turns prefetching off.
fn mode() -> Lookahead {
    let is_possible = IS_OFFERED.load(Ordering::Relaxed) && configuration::max_size_without_lookahead() < u64::MAX;
    if is_possible { configuration::lookahead() } else { Lookahead::Off }
}

/// Registers or unregisters the command filter.
///
/// # Safety
///
/// The context must be alive, and the server must not be passing a command to its filters.
pub(crate) unsafe fn decide(ctx: RawContext) {
    let is_registered = FILTER.is_registered();
    let should_be = match mode() {
        Lookahead::Off => false,
        // The next command on a large filter registers it.
        Lookahead::On => is_registered,
        Lookahead::Auto => count_of_period().map_or(is_registered, |(ours, all)| pays(ours, all, is_registered)),
    };
    if should_be {
        // SAFETY: as promised by the caller.
        unsafe { FILTER.register(ctx) };
    } else if is_registered {
        forget_if(|_| true);
        // SAFETY: as promised by the caller.
        unsafe { FILTER.unregister(ctx) };
    }
}

/// Returns the numbers of single-item commands on large filters and of all commands, if a period is over.
fn count_of_period() -> Option<(u64, u64)> {
    let server = Server::without_context();
    let now = server.milliseconds();
    // Also if the clock was set back.
    if now.abs_diff(BEGAN.load(Ordering::Relaxed)) < PERIOD {
        return None;
    }
    BEGAN.store(now, Ordering::Relaxed);
    let ours = USES.swap(0, Ordering::Relaxed);
    let is_of_interest = ours > 0 || FILTER.is_registered();
    let run = if is_of_interest { server.commands_run().unwrap_or(0) } else { 0 };
    let before = RUN_BEFORE.swap(run, Ordering::Relaxed);
    // CONFIG RESETSTAT sets it back.
    let all = run.checked_sub(before).filter(|_| before > 0)?;
    SHARE.store(ours.saturating_mul(100) / all.max(ours).max(1), Ordering::Relaxed);
    Some((ours, all))
}

/// Returns true if looking ahead saves more time than the command filter costs. By the times above, it does from one
/// command in six to twelve on. The limits differ, so that it is not registered and unregistered all the time.
fn pays(ours: u64, all: u64, is_registered: bool) -> bool {
    match all {
        ..LEAST_COMMANDS => is_registered,
        _ if is_registered => ours >= all / 8,
        _ => ours >= all / 4,
    }
}

/// Prefetches for commands of our families with three arguments, the name included, such as `BF.EXISTS key item`.
/// For other commands, this should execute as few instructions as possible, and call the server as rarely.
///
/// # Safety
///
/// Only the server may call this.
unsafe extern "C" fn look_ahead(command: *mut raw::RedisModuleCommandFilterCtx) {
    catch_panic(c"look_ahead", (), || {
        // SAFETY: the server hands over a command for the time of the call.
        let command = unsafe { FilteredCommand::new(command) };
        if command.len() == 3 && family::may_have(command.at(0).bytes()) {
            prefetch(command);
        }
    });
}

/// Prefetches for a command of ours, if the filter of its key is remembered. Not inlined, so that other commands save
/// no registers.
#[inline(never)]
fn prefetch(command: FilteredCommand) {
    let key = xxh3_64(command.at(1).bytes());
    let slot = slot(key);
    // Another thread forgets a filter: it is not worth waiting for.
    let Ok(_reading) = READING.try_lock() else { return };
    if slot.name.load(Ordering::Relaxed) != key {
        return;
    }
    let filter = ptr::with_exposed_provenance::<Filter>(slot.filter.load(Ordering::Relaxed));
    // SAFETY: whoever frees or moves a filter calls `forget` first, which waits until `READING` is unlocked. No command
    // of this module runs meanwhile, so nobody changes the filter.
    if let Some(filter) = unsafe { filter.as_ref() } {
        filter.look_ahead(command.at(2).bytes());
        count(&PREFETCHED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_larger_share_of_the_commands_than_it_ends_at() {
        for (ours, begins, stays) in
            [(10_000, true, true), (2500, true, true), (2499, false, true), (1250, false, true)]
        {
            assert_eq!([pays(ours, 10_000, false), pays(ours, 10_000, true)], [begins, stays], "{ours}");
        }
        assert!(!pays(1249, 10_000, true) && !pays(0, u64::MAX, true));
        // A log that is loaded has commands of ours that the server does not count.
        assert!(pays(10_000, 2000, false));
    }

    #[test]
    fn an_idle_server_changes_nothing() {
        for ours in [0, LEAST_COMMANDS - 1] {
            let all = LEAST_COMMANDS - 1;
            assert_eq!([pays(ours, all, false), pays(ours, all, true)], [false, true], "{ours}");
        }
    }
}
