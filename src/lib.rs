//! oxbloom: Bloom filters for Redis and Valkey.
//!
//! The module is the thin part: arguments in, replies out, replication, persistence. The filters are in
//! [`oxbloom_filter`].
//!
//! Each of these uses only those below it:
//!
//! ```text
//!  registration                             what is registered with the server when it loads the module
//!  commands/                                what clients see
//!  filter_key   lookahead                   keys that hold filters; prefetching before a command runs
//!  datatype     info_section                what the server sees; what operators watch
//!  rdb_stream                               RDB values in the server's files
//!  admission                                whether a filter may take memory
//!  configuration                            what operators set
//!  callback                                 guards every call from C: panics, arity, sound wrappers
//!  rejection                                rejected commands, for the log and INFO
//!  server/      statistics    allocation    sound wrappers over the C API; the figures of INFO; the global allocator
//!  ffi          reply_error                 calls into C; what clients are told
//!  rejection_reason                         why commands are rejected, as INFO counts it
//! ```

mod admission;
mod allocation;
mod callback;
mod commands;
mod configuration;
mod datatype;
mod ffi;
mod filter_key;
mod info_section;
mod lookahead;
mod rdb_stream;
mod registration;
mod rejection;
mod rejection_reason;
mod reply_error;
mod server;
mod statistics;

use std::ffi::{CStr, c_int};

use redis_module::raw;

use callback::catch_panic;
use ffi::{FAILED, OK};
use server::{Args, Context};

/// Takes all memory from the server when loaded into one, and from the system otherwise.
#[global_allocator]
static ALLOCATOR: allocation::ServerAlloc = allocation::ServerAlloc;

/// The module's name on the server: RedisBloom's, so that neither loads beside the other.
const NAME: &CStr = c"bf";

/// The version that MODULE LIST shows: that of the RedisBloom whose commands these are, 2.8.2, as 10000 * major + 100 *
/// minor + patch. Clients look at it to tell which commands there are. INFO has our own version.
const VERSION: c_int = 20_802;

/// Loads the module: the server calls this.
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
    // SAFETY: the context is the server's. This fills the table of functions: nothing before it may call one, or
    // allocate.
    let named =
        unsafe { raw::Export_RedisModule_Init(ctx, NAME.as_ptr(), VERSION, raw::REDISMODULE_APIVER_1 as c_int) };
    // SAFETY: the server hands over its context and `argc` live strings for the time of the call.
    let (context, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
    catch_panic(c"load", FAILED, || {
        if named == FAILED {
            context.log_warning(
                "not loaded: another module named 'bf' is there already (oxbloom, RedisBloom or valkey-bloom); load only one, see \
                 'Servers that bring their own module' in docs/operating.md",
            );
            return FAILED;
        }
        match registration::register_all(&context, args) {
            Ok(()) => OK,
            Err(reason) => {
                context.log_warning(&reason);
                FAILED
            }
        }
    })
}
