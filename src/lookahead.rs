//! What the next command will need of the memory, asked for before the server has begun with it.
//!
//! BF.ADD and BF.EXISTS wait for one cache line of a filter. In a large one it takes longer to come from memory than
//! everything else that the two do. The server shows each command to a command filter as soon as it has read it; until the
//! command runs, it looks it up, checks permissions and limits, and looks for the key:
//!
//! ```text
//!  read │ command filter: hash, prefetch │ checks │ open the key │ look up │ reply
//!                               └──────── memory ────────┘
//! ```
//!
//! A command filter does not know the key space. So the places of the large filters that were used last are kept, and may be
//! out of date: to prefetch from where nothing is any more does nothing, slowly.
//!
//! It took BF.EXISTS on a filter of 10^8 items, pipelined, from 390 to 160 ns, and the server's processor time for it from 880
//! to 770 ns. All other commands pay some dozens of instructions for it, but only once a large
//! filter was used.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;
use xxhash_rust::xxh3::xxh3_64;

use super::args::{Arg, Args};
use super::config;
use super::context::Context;
use super::edge::{call, guard};
use oxbloom_filter::{Filter, Outlook};

/// The large filters that are kept in mind at a time, at most. Those whose names fall together push each other out.
const KEPT: usize = 64;

/// Where a filter looks first.
#[derive(Clone, Copy)]
struct Seen {
    /// The hash of the key's name.
    name: u64,
    outlook: Outlook,
}

thread_local! {
    /// The server runs all commands on one thread.
    static SEEN: [Cell<Option<Seen>>; KEPT] = const { [const { Cell::new(None) }; KEPT] };
}

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Keeps the place of a filter in mind, for the next command.
#[inline]
pub fn remember(ctx: &Context, key: Arg, filter: &Filter) {
    if let Some(outlook) = filter.outlook(config::lookahead_size()) {
        keep(ctx, key, outlook);
    }
}

/// Apart, so that the commands on small filters are as short as without it.
#[inline(never)]
fn keep(ctx: &Context, key: Arg, outlook: Outlook) {
    let seen = Seen { name: xxh3_64(key.bytes()), outlook };
    slot(seen.name, |slot| slot.set(Some(seen)));
    if !REGISTERED.load(Ordering::Relaxed) {
        REGISTERED.store(true, Ordering::Relaxed);
        call!(RedisModule_RegisterCommandFilter(ctx.as_raw(), Some(look_ahead), 0));
    }
}

fn slot<T>(name: u64, f: impl FnOnce(&Cell<Option<Seen>>) -> T) -> T {
    SEEN.with(|seen| f(&seen[(name % KEPT as u64) as usize]))
}

/// Prefetches for `BF.ADD key item`, `BF.EXISTS key item` and the like: commands of three words that start with `BF.`
extern "C" fn look_ahead(command: *mut raw::RedisModuleCommandFilterCtx) {
    guard(c"look_ahead", (), || {
        if call!(RedisModule_CommandFilterArgsCount(command)) != 3 {
            return;
        }
        let mut words = [0, 1, 2].map(|index| call!(RedisModule_CommandFilterArgGet(command, index)));
        // SAFETY: the server hands over a command with as many words, which live for the time of the call.
        let args = unsafe { Args::new(words.as_mut_ptr(), words.len()) };
        if !args.at(0).bytes().get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"BF.")) {
            return;
        }
        let name = xxh3_64(args.at(1).bytes());
        if let Some(seen) = slot(name, Cell::get).filter(|seen| seen.name == name) {
            seen.outlook.prefetch(args.at(2).bytes());
        }
    });
}
