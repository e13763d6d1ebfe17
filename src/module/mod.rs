//! The skin between the server and the filters: arguments in, replies out, replication, persistence. No mathematics.
//!
//! [`edge`] is where C calls in and out; [`context`], [`args`], [`reply`] and [`key`] make what comes through it safe to
//! use; [`command`] and [`commands`] are what clients see, [`datatype`] what the server sees, [`config`] what operators see, and
//! [`stats`] what they watch; [`feature`] is what not every server offers; [`lookahead`] asks for memory before a command runs.

pub mod alloc;
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
mod reply;
mod stats;

use std::ffi::{CStr, c_int};

use redis_module::raw;

use args::Args;
use context::Context;
use edge::{FAILED, OK};

/// The module's name on the server: RedisBloom's, so that neither loads beside the other.
const NAME: &CStr = c"bf";

/// The module's version as the server shows it: 10000 * major + 100 * minor + patch.
const VERSION: c_int = 100;

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
            context.log_warning("a module named 'bf' is loaded already: this one, or RedisBloom");
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
