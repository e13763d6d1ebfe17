//! oxbloom: Bloom filters for Redis and Valkey.
//!
//! The module is the thin part: arguments in, replies out, replication, persistence. The filters are in [`oxbloom_filter`].
//!
//! [`edge`] is where C calls in and out; [`context`], [`args`], [`reply`] and [`key`] make what comes through it safe to
//! use; [`command`] and [`commands`] are what clients see, [`datatype`] what the server sees, [`config`] what operators see, and
//! [`stats`] what they watch; [`feature`] is what not every server offers; [`lookahead`] asks for memory before a command runs.

mod alloc;
mod args;
mod command;
mod commands;
mod config;
mod context;
mod datatype;
mod edge;
mod error;
mod feature;
mod key;
mod load;
mod lookahead;
mod memory;
mod rejection;
mod reply;
mod stats;

use std::ffi::{CStr, c_int};

use redis_module::raw;

use args::Args;
use context::Context;
use edge::{FAILED, OK};

/// All memory is the server's when loaded into one, and the system's otherwise.
#[global_allocator]
static ALLOCATOR: alloc::ServerAlloc = alloc::ServerAlloc;

/// The module's name on the server: RedisBloom's, so that neither loads beside the other.
const NAME: &CStr = c"bf";

/// The version that MODULE LIST shows: that of the RedisBloom whose commands these are, 2.8.2, as 10000 * major + 100 * minor +
/// patch. Clients look at it to tell which commands there are. INFO has our own version.
const VERSION: c_int = 20_802;

/// What the server calls when it loads the module.
///
/// # Safety
///
/// For the server only, with a context and `argc` arguments that live for the time of the call.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the context is the server's. This fills the table of functions: nothing before it may call one, or allocate.
    let named =
        unsafe { raw::Export_RedisModule_Init(ctx, NAME.as_ptr(), VERSION, raw::REDISMODULE_APIVER_1 as c_int) };
    let context = Context::new(ctx);
    edge::guard(c"load", FAILED, || {
        if named == FAILED {
            context.log_warning(
                "not loaded: another module named 'bf' is there already (oxbloom, RedisBloom or valkey-bloom); load only one, see \
                 'Servers that bring their own module' in docs/operating.md",
            );
            return FAILED;
        }
        // SAFETY: the server hands over `argc` live strings for the time of the call.
        let args = unsafe { Args::new(argv, usize::try_from(argc).unwrap_or(0)) };
        match load::load(&context, args) {
            Ok(()) => OK,
            Err(reason) => {
                context.log_warning(&reason);
                FAILED
            }
        }
    })
}
