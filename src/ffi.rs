//! Calls into the server's C API. Every call goes through [`call!`].
//!
//! [`call!`] needs an `unsafe` block around it, so `grep unsafe` finds every call into C, next to the reason why it is
//! sound. Most calls are in [`server`](crate::server), whose safe wrappers the rest of the module uses.

use std::ffi::c_int;

use redis_module::raw;

/// Calls a function of the module API: `unsafe { call!(RedisModule_CloseKey(key)) }`.
///
/// The arguments must be as the function's documentation requires. If the server lacks the function, this panics, and
/// [`catch_panic`](crate::callback::catch_panic) turns that into an error. So call only functions that the oldest
/// supported server has; before any other call, check that it is [offered](crate::server::feature) or [`available!`].
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match redis_module::raw::$function {
            Some(function) => function($($argument),*),
            None => $crate::ffi::missing(stringify!($function)),
        }
    };
}
pub(crate) use call;

/// Looks up a function of the module API by name. Expands to `None` if the server lacks it.
macro_rules! available {
    ($function:ident) => {{
        // SAFETY: the table of functions is filled when the module is loaded, and only read from then on.
        unsafe { redis_module::raw::$function }
    }};
}
pub(crate) use available;

/// Panics for a function that the server lacks.
#[cold]
pub(crate) fn missing(function: &str) -> ! {
    panic!("this server does not have {function}")
}

/// The server's context of a call.
pub(crate) type RawContext = *mut raw::RedisModuleCtx;
/// A string of the server.
pub(crate) type RawString = *mut raw::RedisModuleString;

/// The status of success, which the server's functions and ours return.
pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;
/// The status of failure.
pub(crate) const FAILED: c_int = raw::REDISMODULE_ERR as c_int;
