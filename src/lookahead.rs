//! What the next command will need of the memory, asked for before the server has begun with it.
//!
//! BF.ADD and BF.EXISTS wait for one cache line of a filter. In a large one it takes longer to come from memory than
//! everything else that the two do. The server shows each command to a command filter as soon as it has read it; until
//! the command runs, it looks it up, checks permissions and limits, and looks for the key:
//!
//! ```text
//!  read │ command filter: hash, prefetch │ checks │ open the key │ look up │ reply
//!                               └──────── memory ────────┘
//! ```
//!
//! A command filter does not know the key space. So the places of the large filters that were used last are kept, and
//! may be out of date: a prefetch from where nothing is any more does nothing, slowly.
//!
//! It took BF.EXISTS on a filter of 10^8 items, pipelined, from 390 to 160 ns, and the server's processor time for it
//! from 880 to 770 ns. All other commands pay some dozens of instructions for it, but only once a large filter was
//! used.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;
use xxhash_rust::xxh3::xxh3_64;

use crate::callback::catch_panic;
use crate::configuration;
use crate::ffi::call;
use crate::server::{Arg, Context};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::PrefetchHint;

/// The number of large filters that are remembered at a time, at most. Names that share a slot displace each other.
const SLOTS: usize = 64;

/// The place where a filter looks first.
#[derive(Clone, Copy)]
struct CachedHint {
    /// The hash of the key's name.
    name: u64,
    prefetch_hint: PrefetchHint,
}

thread_local! {
    /// The server runs all commands on one thread.
    static CACHE: [Cell<Option<CachedHint>>; SLOTS] = const { [const { Cell::new(None) }; SLOTS] };
}

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Remembers where a filter is, for the next command.
#[inline]
pub(crate) fn remember(ctx: &Context, key: Arg, filter: &Filter) {
    if let Some(prefetch_hint) = filter.prefetch_hint(configuration::lookahead_size()) {
        insert(ctx, key, prefetch_hint);
    }
}

/// Not inlined, so that the commands on small filters are as short as without it.
#[inline(never)]
fn insert(ctx: &Context, key: Arg, prefetch_hint: PrefetchHint) {
    let hint = CachedHint { name: xxh3_64(key.bytes()), prefetch_hint };
    slot(hint.name, |slot| slot.set(Some(hint)));
    if !REGISTERED.load(Ordering::Relaxed) {
        REGISTERED.store(true, Ordering::Relaxed);
        // SAFETY: the context is alive, and the callback is of the type that the server expects.
        unsafe { call!(RedisModule_RegisterCommandFilter(ctx.as_raw(), Some(look_ahead), 0)) };
    }
}

fn slot<T>(name: u64, f: impl FnOnce(&Cell<Option<CachedHint>>) -> T) -> T {
    CACHE.with(|cache| f(&cache[(name % SLOTS as u64) as usize]))
}

/// Prefetches for `BF.ADD key item`, `BF.EXISTS key item` and the like: commands of three words that start with `BF.`
///
/// # Safety
///
/// For the server only.
unsafe extern "C" fn look_ahead(command: *mut raw::RedisModuleCommandFilterCtx) {
    catch_panic(c"look_ahead", (), || {
        // SAFETY: the server hands over a command for the time of the call.
        if unsafe { call!(RedisModule_CommandFilterArgsCount(command)) } != 3 {
            return;
        }
        // SAFETY: the command has as many words, which live for the time of the call.
        let [name, key, item] =
            [0, 1, 2].map(|index| unsafe { Arg::new(call!(RedisModule_CommandFilterArgGet(command, index))) });
        if !name.bytes().get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"BF.")) {
            return;
        }
        let key = xxh3_64(key.bytes());
        if let Some(hint) = slot(key, Cell::get).filter(|hint| hint.name == key) {
            hint.prefetch_hint.prefetch(item.bytes());
        }
    });
}
