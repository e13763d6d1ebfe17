//! The module API as C declares it: every call into the server goes through [`call!`].
//!
//! Nothing here is ours, and nothing here is safe by itself. [`call!`] needs an `unsafe` block around it, so `grep
//! unsafe` finds every call into C, each beside the reason why it is sound. Most are in [`server`](crate::server),
//! whose wrappers the rest of the module uses instead.

use std::ffi::c_int;

use redis_module::raw;

/// Calls a function of the module API: `unsafe { call!(RedisModule_CloseKey(key)) }`.
///
/// The arguments must be what the function's documentation asks for. If the server lacks the function, this panics, and
/// [`catch_panic`](crate::callback::catch_panic) turns that into an error. So call only what the oldest supported
/// server has, and for the rest look first whether it is [offered](crate::server::feature) or [`available!`].
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match redis_module::raw::$function {
            Some(function) => function($($argument),*),
            None => $crate::ffi::missing(stringify!($function)),
        }
    };
}
pub(crate) use call;

/// Looks up the function of the module API with this name: `None` if the server lacks it.
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

/// The status that the server's functions and ours return: they did what they were asked to, or did not.
pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;
pub(crate) const FAILED: c_int = raw::REDISMODULE_ERR as c_int;
