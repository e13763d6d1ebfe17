//! The floor of every benchmark: a module whose BF.ADD, BF.EXISTS, BF.MADD, BF.MEXISTS, BF.ADDPACKED and BF.EXISTSPACKED
//! read their arguments, open the key and reply with zeros. Its time is the server's own. The additional time of another
//! module is the filter's.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::hint::black_box;
use std::slice;

use redis_module::raw::{self, RedisModuleCtx, RedisModuleString};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const FAILED: c_int = raw::REDISMODULE_ERR as c_int;

/// Calls a function of the module API.
macro_rules! call {
    ($function:ident($($argument:expr),*)) => {
        // SAFETY: the table is filled when the module is loaded, and has all functions that are used here. The
        // arguments are the server's.
        unsafe { raw::$function.unwrap_unchecked()($($argument),*) }
    };
}

/// Returns the arguments of a command. They are valid during the call.
fn arguments<'a>(argv: *mut *mut RedisModuleString, argc: c_int) -> &'a [*mut RedisModuleString] {
    // SAFETY: the server passes `argc` strings, the command's name first.
    unsafe { slice::from_raw_parts(argv, argc as usize) }
}

fn read(item: *mut RedisModuleString) {
    let mut length = 0;
    let start = call!(RedisModule_StringPtrLen(item, &mut length));
    // SAFETY: the pointer and the length are those of a string of the server.
    black_box(unsafe { slice::from_raw_parts(start.cast::<u8>(), length) }.first());
}

fn open_and_close(ctx: *mut RedisModuleCtx, key: *mut RedisModuleString, mode: u32) {
    let key = call!(RedisModule_OpenKey(ctx, key, mode as c_int));
    if !key.is_null() {
        black_box(call!(RedisModule_ModuleTypeGetType(key)));
        call!(RedisModule_CloseKey(key));
    }
}

fn one(ctx: *mut RedisModuleCtx, argv: *mut *mut RedisModuleString, argc: c_int, mode: u32) -> c_int {
    let &[_, key, item] = arguments(argv, argc) else { return call!(RedisModule_WrongArity(ctx)) };
    open_and_close(ctx, key, mode);
    read(item);
    call!(RedisModule_ReplyWithLongLong(ctx, 0))
}

fn many(ctx: *mut RedisModuleCtx, argv: *mut *mut RedisModuleString, argc: c_int, mode: u32) -> c_int {
    let [_, key, items @ ..] = arguments(argv, argc) else { return call!(RedisModule_WrongArity(ctx)) };
    open_and_close(ctx, *key, mode);
    call!(RedisModule_ReplyWithArray(ctx, items.len() as c_long));
    for &item in items {
        read(item);
        call!(RedisModule_ReplyWithLongLong(ctx, 0));
    }
    OK
}

/// Replies to `key FIXED width items`.
fn packed(ctx: *mut RedisModuleCtx, argv: *mut *mut RedisModuleString, argc: c_int, mode: u32) -> c_int {
    let &[_, key, _, width, items] = arguments(argv, argc) else { return call!(RedisModule_WrongArity(ctx)) };
    open_and_close(ctx, key, mode);
    let (mut bytes, mut each) = (0, 1);
    call!(RedisModule_StringPtrLen(items, &mut bytes));
    call!(RedisModule_StringToLongLong(width, &mut each));
    read(items);
    let zeros = vec![0u8; (bytes / each.max(1) as usize).div_ceil(8)];
    call!(RedisModule_ReplyWithStringBuffer(ctx, zeros.as_ptr().cast(), zeros.len()))
}

type Arguments = *mut *mut RedisModuleString;

/// Defines a command that calls a function above with a mode.
macro_rules! command {
    ($name:ident, $function:ident, $mode:expr) => {
        unsafe extern "C" fn $name(ctx: *mut RedisModuleCtx, argv: Arguments, argc: c_int) -> c_int {
            $function(ctx, argv, argc, $mode)
        }
    };
}

command!(add, one, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE);
command!(exists, one, raw::REDISMODULE_READ);
command!(madd, many, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE);
command!(mexists, many, raw::REDISMODULE_READ);
command!(addpacked, packed, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE);
command!(existspacked, packed, raw::REDISMODULE_READ);

/// Loads the module.
///
/// # Safety
///
/// Only the server may call this.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: *mut RedisModuleCtx, _argv: Arguments, _argc: c_int) -> c_int {
    // SAFETY: the context is the server's. This fills the table of functions.
    if unsafe { raw::Export_RedisModule_Init(ctx, c"floor".as_ptr(), 1, raw::REDISMODULE_APIVER_1 as c_int) } == FAILED
    {
        return FAILED;
    }
    let register = |name: &CStr, callback, flags: &CStr| {
        let flags: *const c_char = flags.as_ptr();
        call!(RedisModule_CreateCommand(ctx, name.as_ptr(), Some(callback), flags, 1, 1, 1)) == OK
    };
    let registered = register(c"bf.add", add as unsafe extern "C" fn(_, _, _) -> _, c"write deny-oom fast")
        && register(c"bf.exists", exists, c"readonly fast")
        && register(c"bf.madd", madd, c"write deny-oom")
        && register(c"bf.mexists", mexists, c"readonly")
        && register(c"bf.addpacked", addpacked, c"write deny-oom")
        && register(c"bf.existspacked", existspacked, c"readonly");
    if registered { OK } else { FAILED }
}
