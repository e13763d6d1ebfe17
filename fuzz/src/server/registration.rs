//! The commands, data types and command filter that the module registers.

use std::ffi::{c_char, c_int};
use std::ptr;

use redis_module::raw;

use super::keys::handle;
use super::strings::bytes;
use super::{OK, with};

pub(super) struct DataType {
    pub(super) version: c_int,
    pub(super) methods: raw::RedisModuleTypeMethods,
}

#[derive(Clone, Copy)]
pub(super) struct Command {
    pub(super) callback:
        unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int,
    pub(super) writes: bool,
    /// True if the server calls the command to get the positions of its keys.
    pub(super) reports_keys: bool,
}

pub(super) unsafe extern "C" fn is_module_name_busy(_name: *const c_char) -> c_int {
    0
}

pub(super) unsafe extern "C" fn set_module_attribs(_: *mut raw::RedisModuleCtx, _: *const c_char, _: c_int, _: c_int) {}

pub(super) unsafe extern "C" fn set_module_options(_ctx: *mut raw::RedisModuleCtx, _options: c_int) {}

pub(super) unsafe extern "C" fn create_command(
    _ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    callback: raw::RedisModuleCmdFunc,
    flags: *const c_char,
    first_key: c_int,
    last_key: c_int,
    step: c_int,
) -> c_int {
    assert_eq!((first_key, last_key, step), (1, 1, 1));
    // SAFETY: the module passes texts that end with a NUL.
    let (name, flags) = unsafe { (bytes(name), bytes(flags)) };
    let has = |flag: &[u8]| flags.split(|&byte| byte == b' ').any(|given| given == flag);
    assert!(has(b"write") != has(b"readonly"));
    let callback = callback.expect("a callback");
    let command = Command { callback, writes: has(b"write"), reports_keys: has(b"getkeys-api") };
    // Servers ignore case in the names of commands.
    assert!(with(|state| state.commands.insert(name.to_ascii_lowercase(), command)).is_none());
    OK
}

pub(super) unsafe extern "C" fn create_data_type(
    _ctx: *mut raw::RedisModuleCtx,
    _name: *const c_char,
    version: c_int,
    methods: *mut raw::RedisModuleTypeMethods,
) -> *mut raw::RedisModuleType {
    // SAFETY: the module passes a valid table of callbacks.
    let methods = unsafe { *methods };
    with(|state| {
        state.types.push(DataType { version, methods });
        handle(state.types.len() - 1)
    })
}

pub(super) unsafe extern "C" fn register_command_filter(
    _ctx: *mut raw::RedisModuleCtx,
    filter: raw::RedisModuleCommandFilterFunc,
    _flags: c_int,
) -> *mut raw::RedisModuleCommandFilter {
    with(|state| state.filters.push(filter.expect("a callback")));
    ptr::without_provenance_mut(1)
}
