//! The edge between the server's C and our Rust.
//!
//! Two rules hold here, and nowhere else has to think of them: no panic crosses into C (unwinding through the server's
//! frames is undefined behaviour), and no function is called that this server does not have.

use std::any::Any;
use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redis_module::raw;

use super::args::Args;
use super::context::Context;
use super::error::Error;
use super::stats;

/// Calls a function of the module API: `call!(RedisModule_CloseKey(key))`.
///
/// The arguments must be what the function's documentation asks for; as with any call into C, the compiler does not
/// check. A function that the server lacks is a panic, caught by [`guard`]: only ask for what the oldest supported server
/// has, and for the rest look first, in [`feature`](super::feature).
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the table of functions is filled when the module is loaded, and only read from then on.
        match unsafe { redis_module::raw::$function } {
            // SAFETY: the arguments are live and of the documented kind, which each caller sees to.
            Some(function) => unsafe { function($($argument),*) },
            None => $crate::edge::missing(stringify!($function)),
        }
    }};
}
pub(crate) use call;

/// The function of the module API by this name, if the server has it.
macro_rules! available {
    ($function:ident) => {{
        // SAFETY: the table of functions is filled when the module is loaded, and only read from then on.
        unsafe { redis_module::raw::$function }
    }};
}
pub(crate) use available;

#[cold]
pub fn missing(function: &str) -> ! {
    panic!("this server does not have {function}")
}

/// Runs `body`; should it panic, logs that and returns `otherwise`.
pub fn guard<T>(what: &CStr, otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        log_panic(what, &*panic);
        otherwise
    })
}

fn log_panic(what: &CStr, panic: &(dyn Any + Send)) {
    stats::panicked();
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Context::detached().log_warning(&format!("internal error in {}: {message}", what.to_string_lossy()));
}

/// Runs a command: checks the number of arguments, and replies with the error if it returns one or panics.
pub fn run(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
    name: &CStr,
    arity: Arity,
    handler: fn(&Context, Args) -> Result<(), Error>,
) -> c_int {
    let context = Context::new(ctx);
    // SAFETY: the server hands over `argc` live strings, the command's name first, for the time of the call.
    let args = unsafe { Args::new(argv, usize::try_from(argc).unwrap_or(0)) };
    let error = if arity.accepts(args.len()) {
        guard(name, Some(Error::Internal), || handler(&context, args).err())
    } else {
        Some(Error::WrongArity)
    };
    if let Some(error) = error {
        context.refuse(args, error);
    }
    OK
}

/// How the server's functions say, and ours to it, that they have done what they were asked to, and that they have not.
pub const OK: c_int = raw::REDISMODULE_OK as c_int;
pub const FAILED: c_int = raw::REDISMODULE_ERR as c_int;

/// The flags of all keys after the first: they are only read.
pub const OTHER_KEY_FLAGS: c_int = (raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS) as c_int;

/// Tells the server where the keys of a command are, if that is what it calls the command for, and what is done to them: to the
/// first what `first_flags` say, and the others are read.
pub fn names_keys(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
    first_flags: c_int,
    others: fn(Args) -> Range<usize>,
) -> bool {
    if call!(RedisModule_IsKeysPositionRequest(ctx)) == 0 {
        return false;
    }
    guard(c"keys", (), || {
        // SAFETY: the server hands over `argc` live strings, the command's name first, for the time of the call.
        let args = unsafe { Args::new(argv, usize::try_from(argc).unwrap_or(0)) };
        if args.len() > 1 {
            key_at(ctx, 1, first_flags);
        }
        others(args).for_each(|position| key_at(ctx, position, OTHER_KEY_FLAGS));
    });
    true
}

/// Names a key. Before Redis 7.0, servers do not ask what is done to it.
fn key_at(ctx: *mut raw::RedisModuleCtx, position: usize, flags: c_int) {
    match available!(RedisModule_KeyAtPosWithFlags) {
        Some(_) => call!(RedisModule_KeyAtPosWithFlags(ctx, position as c_int, flags)),
        None => call!(RedisModule_KeyAtPos(ctx, position as c_int)),
    }
}

/// How many arguments a command takes, its own name among them.
#[derive(Clone, Copy, Debug)]
pub struct Arity {
    pub least: usize,
    pub most: usize,
}

impl Arity {
    pub const fn exactly(count: usize) -> Arity {
        Arity { least: count, most: count }
    }

    pub const fn at_least(least: usize) -> Arity {
        Arity { least, most: usize::MAX }
    }

    fn accepts(self, count: usize) -> bool {
        (self.least..=self.most).contains(&count)
    }

    /// As the server counts: negative for "at least".
    pub fn as_server_counts(self) -> c_int {
        let least = c_int::try_from(self.least).unwrap_or(c_int::MAX);
        if self.most == self.least { least } else { -least }
    }
}
