//! A stand-in for valkey-bloom, of which no binary can be had: a module with its name and its data type, and with the
//! two of its commands that an import needs. The filters are ours, so they show nothing about valkey-bloom's bits.

use std::ffi::{CStr, c_int, c_long, c_void};
use std::slice;

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{self, Encoding, Sink, valkey};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleIO, RedisModuleString};

const OK: c_int = raw::REDISMODULE_OK as c_int;
const FAILED: c_int = raw::REDISMODULE_ERR as c_int;
const READ: c_int = raw::REDISMODULE_READ as c_int;
const WRITE: c_int = raw::REDISMODULE_WRITE as c_int;

/// Calls a function of the module API.
macro_rules! call {
    ($function:ident($($argument:expr),*)) => {
        // SAFETY: the table is filled when the module is loaded, and has all functions that are used here. The
        // arguments are the server's.
        unsafe { raw::$function.unwrap_unchecked()($($argument),*) }
    };
}

type Arguments = *mut *mut RedisModuleString;

/// The server's handle of the data type. It is set once, before any command.
static mut TYPE: *mut raw::RedisModuleType = std::ptr::null_mut();

fn data_type() -> *mut raw::RedisModuleType {
    // SAFETY: the handle does not change after the module was loaded.
    unsafe { TYPE }
}

/// Returns the arguments of a command. They are valid during the call.
fn arguments<'a>(argv: Arguments, argc: c_int) -> &'a [*mut RedisModuleString] {
    // SAFETY: the server passes `argc` strings, the command's name first.
    unsafe { slice::from_raw_parts(argv, argc as usize) }
}

fn bytes<'a>(string: *mut RedisModuleString) -> &'a [u8] {
    let mut length = 0;
    let start = call!(RedisModule_StringPtrLen(string, &mut length));
    // SAFETY: the pointer and the length are those of a string of the server.
    unsafe { slice::from_raw_parts(start.cast(), length) }
}

/// `BF.LOAD key payload`
unsafe extern "C" fn load(ctx: *mut RedisModuleCtx, argv: Arguments, argc: c_int) -> c_int {
    let &[_, name, payload] = arguments(argv, argc) else { return call!(RedisModule_WrongArity(ctx)) };
    let Ok(filter) = valkey::decode_payload(bytes(payload), &mut |_bytes| true) else {
        return call!(RedisModule_ReplyWithError(ctx, c"ERR bloom object decoding failed".as_ptr()));
    };
    let key = call!(RedisModule_OpenKey(ctx, name, READ | WRITE));
    call!(RedisModule_ModuleTypeSetValue(key, data_type(), Box::into_raw(Box::new(filter)).cast()));
    call!(RedisModule_CloseKey(key));
    call!(RedisModule_ReplyWithSimpleString(ctx, c"OK".as_ptr()))
}

/// `BF.MEXISTS key item [item …]`
unsafe extern "C" fn mexists(ctx: *mut RedisModuleCtx, argv: Arguments, argc: c_int) -> c_int {
    let [_, name, items @ ..] = arguments(argv, argc) else { return call!(RedisModule_WrongArity(ctx)) };
    let key = call!(RedisModule_OpenKey(ctx, *name, READ));
    if key.is_null() || call!(RedisModule_ModuleTypeGetType(key)) != data_type() {
        return call!(RedisModule_ReplyWithError(ctx, c"ERR not found".as_ptr()));
    }
    let value = call!(RedisModule_ModuleTypeGetValue(key)).cast::<Filter>();
    // SAFETY: all values of the type are boxed filters.
    let filter = unsafe { &*value };
    call!(RedisModule_ReplyWithArray(ctx, items.len() as c_long));
    for &item in items {
        call!(RedisModule_ReplyWithLongLong(ctx, filter.contains(bytes(item)).into()));
    }
    call!(RedisModule_CloseKey(key));
    OK
}

/// A value that is saved.
struct Values(*mut RedisModuleIO);

impl Sink for Values {
    fn unsigned(&mut self, number: u64) {
        call!(RedisModule_SaveUnsigned(self.0, number));
    }

    fn double(&mut self, number: f64) {
        call!(RedisModule_SaveDouble(self.0, number));
    }

    fn string(&mut self, bytes: &[u8]) {
        call!(RedisModule_SaveStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }
}

unsafe extern "C" fn save(rdb: *mut RedisModuleIO, value: *mut c_void) {
    // SAFETY: all values of the type are boxed filters.
    let filter = unsafe { &*value.cast::<Filter>() };
    codec::write_rdb(filter, &mut Values(rdb)).expect("memory for a filter of a test");
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: all values of the type are boxed filters, and the server no longer uses this one.
    drop(unsafe { Box::from_raw(value.cast::<Filter>()) });
}

/// Loads the module.
///
/// # Safety
///
/// Only the server may call this.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: *mut RedisModuleCtx, _argv: Arguments, _argc: c_int) -> c_int {
    // SAFETY: the context is the server's. This fills the table of functions.
    if unsafe { raw::Export_RedisModule_Init(ctx, c"bf".as_ptr(), 1, raw::REDISMODULE_APIVER_1 as c_int) } == FAILED {
        return FAILED;
    }
    // SAFETY: missing callbacks are null.
    let mut methods: raw::RedisModuleTypeMethods = unsafe { std::mem::zeroed() };
    methods.version = raw::REDISMODULE_TYPE_METHOD_VERSION.into();
    methods.rdb_save = Some(save);
    methods.free = Some(free);
    let name = Encoding::Valkey.type_name();
    let version = Encoding::Valkey.version() as c_int;
    let handle = call!(RedisModule_CreateDataType(ctx, name.as_ptr(), version, &mut methods));
    // SAFETY: no command runs yet.
    unsafe { TYPE = handle };
    let register = |name: &CStr, callback, flags: &CStr| {
        call!(RedisModule_CreateCommand(ctx, name.as_ptr(), Some(callback), flags.as_ptr(), 1, 1, 1)) == OK
    };
    let load: unsafe extern "C" fn(_, _, _) -> _ = load;
    let is_registered = register(c"bf.load", load, c"write deny-oom") && register(c"bf.mexists", mexists, c"readonly");
    if is_registered && !handle.is_null() { OK } else { FAILED }
}
