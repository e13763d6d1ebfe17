//! The guard around every call from C. It upholds two rules for the rest of the module:
//!
//! 1. No panic crosses into C, where unwinding through the server's frames would be undefined behaviour. Every function
//!    that the server calls runs in [`catch_panic`], unless it only reads or writes a number.
//! 2. Raw pointers from the server are wrapped in safe types ([`server`](crate::server)) before they are used.

use std::any::Any;
use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redis_module::raw;

use crate::family::{Family, Verb};
use crate::ffi::{OK, RawContext, RawString, available, call};
use crate::rejection;
use crate::reply_error::Error;
use crate::server::{Args, Arity, Context, Keyspace, Server};
use crate::statistics;

/// Runs a command on its arguments. An error that it returns becomes the reply, or the rest of a reply already begun.
pub(crate) type Handler = fn(&Context, Keyspace, Args) -> Result<(), Error>;

/// Runs `body`. If it panics, logs the panic and returns `otherwise`. `what` names the callback in the log.
pub(crate) fn catch_panic<T>(what: &CStr, otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_panic_in(|| what, otherwise, body)
}

/// Runs `body` as [`catch_panic`] does. Asks for the name only if `body` panics.
#[inline]
fn catch_panic_in<'a, T>(what: impl FnOnce() -> &'a CStr, otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        log_panic(what(), &*panic);
        otherwise
    })
}

fn log_panic(what: &CStr, panic: &(dyn Any + Send)) {
    statistics::count_panic();
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Server::without_context().log_warning(&format!(
        "internal error in {}: {message} (a bug of the module, please report it)",
        what.to_string_lossy()
    ));
}

/// The handler of a command, and the family and the verb that give its name.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub family: &'static Family,
    pub verb: Verb,
    pub arity: Arity,
    pub handler: Handler,
}

impl Route {
    #[inline]
    pub(crate) fn name(&self) -> &'static CStr {
        self.family.name(self.verb)
    }
}

/// Runs a command: checks the number of arguments, and replies with the error if it returns one or panics.
///
/// # Safety
///
/// `ctx`, `argv` and `argc` must be the arguments with which the server called the command.
pub(crate) unsafe fn dispatch(ctx: RawContext, argv: *mut RawString, argc: c_int, route: &Route) -> c_int {
    // SAFETY: the server hands over `argc` strings, the command's name first, which live for the time of the call. No
    // value of a key is borrowed at this point.
    let (context, keyspace, args) =
        unsafe { (Context::new(ctx, route.family), Keyspace::new(), Args::new(argv, argc)) };
    let error = if route.arity.accepts(args.len()) {
        catch_panic_in(|| route.name(), Some(Error::Internal), || (route.handler)(&context, keyspace, args).err())
    } else {
        Some(Error::WrongArity)
    };
    if let Some(error) = error {
        reject(&context, args, error);
    }
    OK
}

/// Records a rejected command, and completes its reply with the error.
#[cold]
#[inline(never)]
fn reject(ctx: &Context, args: Args, error: Error) {
    catch_panic(c"rejection", (), || rejection::record(ctx, args, error));
    ctx.reply_error(args, error);
}

/// The flags of all keys after the first. They are only read.
pub(crate) const OTHER_KEY_FLAGS: c_int = (raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS) as c_int;

/// Answers the server if it called the command only to learn the positions and flags of its keys. The first key gets
/// `first_flags`, all others [`OTHER_KEY_FLAGS`]. Returns false if the server wants the command to run.
///
/// # Safety
///
/// `ctx`, `argv` and `argc` must be the arguments with which the server called the command.
pub(crate) unsafe fn answer_getkeys(
    ctx: RawContext,
    argv: *mut RawString,
    argc: c_int,
    first_flags: c_int,
    others: fn(Args) -> Range<usize>,
) -> bool {
    // SAFETY: the context is alive.
    if unsafe { call!(RedisModule_IsKeysPositionRequest(ctx)) } == 0 {
        return false;
    }
    // Servers before Redis 7.0 take positions without flags.
    let name_key = |position: usize, flags| match available!(RedisModule_KeyAtPosWithFlags) {
        // SAFETY: the context is alive, and the server asks for positions.
        Some(_) => unsafe { call!(RedisModule_KeyAtPosWithFlags(ctx, position as c_int, flags)) },
        // SAFETY: as above.
        None => unsafe { call!(RedisModule_KeyAtPos(ctx, position as c_int)) },
    };
    catch_panic(c"keys", (), || {
        // SAFETY: the server hands over `argc` strings, the command's name first, which live for the time of the call.
        let args = unsafe { Args::new(argv, argc) };
        if args.len() > 1 {
            name_key(1, first_flags);
        }
        others(args).for_each(|position| name_key(position, OTHER_KEY_FLAGS));
    });
    true
}
