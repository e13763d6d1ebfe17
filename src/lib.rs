//! oxbloom: Bloom filters for Redis and Valkey.
//!
//! The module is thin: it parses arguments, replies, replicates and persists. The filters are in [`oxbloom_filter`].
//!
//! Each module uses only those below it:
//!
//! ```text
//!  registration                             registers everything with the server when it loads the module
//!  commands/                                the commands
//!  filter_key                               keys that hold filters
//!  datatype     info_section                callbacks of the data types; the section of INFO
//!  admission    lookahead                   decides whether a filter may take more memory; prefetches before a command
//!  configuration                            the settings
//!  callback                                 guards every call from C: panics, arity, safe wrappers
//!  rejection                                rejected commands, for the log and INFO
//!  server/      statistics                  safe wrappers over the C API; the figures of INFO
//!  allocation   family        reply_error   the global allocator; the names of commands; the errors that clients get
//!  ffi                                      calls into C
//!  rejection_reason                         the reasons for rejections, as INFO counts them
//! ```

mod admission;
mod allocation;
mod callback;
mod commands;
mod configuration;
mod datatype;
mod family;
mod ffi;
mod filter_key;
mod info_section;
mod lookahead;
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

/// The global allocator: the server's if the module is loaded into a server, otherwise the system's.
#[global_allocator]
static ALLOCATOR: allocation::ServerAlloc = allocation::ServerAlloc;

/// The module's name on the server: RedisBloom's, so that a server cannot load both.
const NAME: &CStr = c"bf";

/// The version that MODULE LIST shows, as 10000 * major + 100 * minor + patch. It is that of RedisBloom 2.8.2, whose
/// commands the module has: clients use it to decide which commands they can send. INFO shows our own version.
const VERSION: c_int = 20_802;

/// Loads the module.
///
/// # Safety
///
/// Only the server may call this, with a context and `argc` arguments that live for the time of the call.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the context is the server's. This fills the table of functions. Nothing before it may call one of them,
    // or allocate.
    let named =
        unsafe { raw::Export_RedisModule_Init(ctx, NAME.as_ptr(), VERSION, raw::REDISMODULE_APIVER_1 as c_int) };
    // SAFETY: the server hands over its context and `argc` live strings for the time of the call.
    let (context, args) = unsafe { (Context::new(ctx, &family::BLOOM), Args::new(argv, argc)) };
    catch_panic(c"load", FAILED, || {
        if named == FAILED {
            context.log_warning(
                "not loaded: another module named 'bf' is already loaded (oxbloom, RedisBloom or valkey-bloom); load only one, see \
                 'Servers that bring their own module' in docs/operating.md",
            );
            return FAILED;
        }
        match registration::register_all(&context, args) {
            Ok(()) => OK,
            Err(reason) => {
                context.log_warning(&format!("not loaded: {reason}"));
                FAILED
            }
        }
    })
}
