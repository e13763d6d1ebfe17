//! The functions that the module looks up by name.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use redis_module::raw;

use super::configuration::*;
use super::information::*;
use super::keys::*;
use super::memory::*;
use super::rdb::*;
use super::registration::*;
use super::replication::*;
use super::replies::*;
use super::strings::*;
use super::{AGE, Age, ERR, OK};

/// The first field of a context, the only one that is read.
#[repr(transparent)]
pub(super) struct Context(unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int);

pub(super) static CONTEXT: Context = Context(get_api);

pub(super) fn context() -> *mut raw::RedisModuleCtx {
    ptr::from_ref(&CONTEXT).cast_mut().cast()
}

/// The functions that were added after Redis 6.2.
pub(super) const LATER: &[&str] = &[
    "RedisModule_KeyAtPosWithFlags",
    "RedisModule_LoadConfigs",
    "RedisModule_RegisterEnumConfig",
    "RedisModule_RegisterNumericConfig",
    "RedisModule_RegisterStringConfig",
    "RedisModule_ReplyWithBool",
    "RedisModule_ReplyWithMap",
    "RedisModule_SetAbsExpire",
    "RedisModule_TryAlloc",
    "RedisModule_TryCalloc",
    "RedisModule_TryRealloc",
];

pub(super) unsafe extern "C" fn get_api(name: *const c_char, place: *mut c_void) -> c_int {
    // SAFETY: the module passes the name of a function, and a valid pointer for its address.
    let (name, place) = unsafe { (CStr::from_ptr(name), &mut *place.cast::<*const c_void>()) };
    let name = name.to_str().expect("a name");
    let is_missing = AGE.get() == Age::Old && LATER.contains(&name);
    *place = if is_missing { ptr::null() } else { function(name) };
    if place.is_null() { ERR } else { OK }
}

/// Returns a function, and checks that it has the type that the module expects.
pub(super) fn typed<F>(_expected: Option<F>, function: F) -> F {
    function
}

macro_rules! functions {
    ({ $($name:ident: $function:expr,)* } variadic { $($variadic:ident: $fixed:expr,)* }) => {
        /// Returns the function with a name, or null if there is none.
        fn function(name: &str) -> *const c_void {
            match name {
                // SAFETY: only the type of the static is used.
                $(stringify!($name) => typed(unsafe { raw::$name }, $function) as *const c_void,)*
                $(stringify!($variadic) => $fixed as *const c_void,)*
                _ => ptr::null(),
            }
        }
    };
}

functions! {
{
    RedisModule_Alloc: alloc,
    RedisModule_Calloc: calloc,
    RedisModule_CloseKey: close_key,
    RedisModule_CommandFilterArgGet: command_filter_arg_get,
    RedisModule_CommandFilterArgsCount: command_filter_args_count,
    RedisModule_CreateCommand: create_command,
    RedisModule_CreateDataType: create_data_type,
    RedisModule_CreateString: create_string,
    RedisModule_DefragAlloc: defrag_alloc,
    RedisModule_DefragCursorGet: defrag_cursor_get,
    RedisModule_DefragCursorSet: defrag_cursor_set,
    RedisModule_DefragShouldStop: defrag_should_stop,
    RedisModule_DigestAddStringBuffer: digest_add_string_buffer,
    RedisModule_DigestEndSequence: digest_end_sequence,
    RedisModule_Free: free,
    RedisModule_FreeServerInfo: free_server_info,
    RedisModule_FreeString: free_string,
    RedisModule_GetClientId: get_client_id,
    RedisModule_GetContextFlags: get_context_flags,
    RedisModule_GetKeyNameFromIO: get_key_name_from_io,
    RedisModule_GetRandomBytes: get_random_bytes,
    RedisModule_GetServerInfo: get_server_info,
    RedisModule_GetUsedMemoryRatio: get_used_memory_ratio,
    RedisModule_InfoAddFieldCString: info_add_field_c_string,
    RedisModule_InfoAddFieldULongLong: info_add_field_ulong_long,
    RedisModule_InfoAddSection: info_add_section,
    RedisModule_InfoBeginDictField: info_begin_dict_field,
    RedisModule_InfoEndDictField: info_end_dict_field,
    RedisModule_IsIOError: is_io_error,
    RedisModule_IsKeysPositionRequest: is_keys_position_request,
    RedisModule_IsModuleNameBusy: is_module_name_busy,
    RedisModule_KeyAtPos: key_at_pos,
    RedisModule_KeyAtPosWithFlags: key_at_pos_with_flags,
    RedisModule_KeyType: key_type,
    RedisModule_LoadConfigs: load_configs,
    RedisModule_LoadDouble: load_double,
    RedisModule_LoadStringBuffer: load_string_buffer,
    RedisModule_LoadUnsigned: load_unsigned,
    RedisModule_Milliseconds: milliseconds,
    RedisModule_ModuleTypeGetType: module_type_get_type,
    RedisModule_ModuleTypeGetValue: module_type_get_value,
    RedisModule_ModuleTypeSetValue: module_type_set_value,
    RedisModule_NotifyKeyspaceEvent: notify_keyspace_event,
    RedisModule_OpenKey: open_key,
    RedisModule_Realloc: realloc,
    RedisModule_RegisterCommandFilter: register_command_filter,
    RedisModule_RegisterEnumConfig: register_enum_config,
    RedisModule_RegisterInfoFunc: register_info_func,
    RedisModule_RegisterNumericConfig: register_numeric_config,
    RedisModule_RegisterStringConfig: register_string_config,
    RedisModule_ReplicateVerbatim: replicate_verbatim,
    RedisModule_ReplyWithArray: reply_with_array,
    RedisModule_ReplyWithBool: reply_with_bool,
    RedisModule_ReplyWithDouble: reply_with_double,
    RedisModule_ReplyWithError: reply_with_error,
    RedisModule_ReplyWithLongLong: reply_with_long_long,
    RedisModule_ReplyWithMap: reply_with_map,
    RedisModule_ReplyWithNull: reply_with_null,
    RedisModule_ReplyWithSimpleString: reply_with_simple_string,
    RedisModule_ReplyWithStringBuffer: reply_with_string_buffer,
    RedisModule_SaveDouble: save_double,
    RedisModule_SaveStringBuffer: save_string_buffer,
    RedisModule_SaveUnsigned: save_unsigned,
    RedisModule_ServerInfoGetFieldUnsigned: server_info_get_field_unsigned,
    RedisModule_GetExpire: get_expire,
    RedisModule_SetAbsExpire: set_abs_expire,
    RedisModule_SetExpire: set_expire,
    RedisModule_SetModuleAttribs: set_module_attribs,
    RedisModule_SetModuleOptions: set_module_options,
    RedisModule_SignalModifiedKey: signal_modified_key,
    RedisModule_StringPtrLen: string_ptr_len,
    RedisModule_StringToDouble: string_to_double,
    RedisModule_StringToLongLong: string_to_long_long,
    RedisModule_TryAlloc: alloc,
    RedisModule_TryCalloc: try_calloc,
    RedisModule_TryRealloc: realloc,
    RedisModule_WrongArity: wrong_arity,
}
// Rust cannot define variadic functions. These functions have fixed arguments, those that the module passes. On Linux,
// both are called in the same way.
variadic {
    RedisModule_EmitAOF: emit_aof as unsafe extern "C" fn(_, _, _, _, _, _),
    RedisModule_Log: log as unsafe extern "C" fn(_, _, _, _),
    RedisModule_Replicate: replicate as unsafe extern "C" fn(_, _, _, _, _, _) -> _,
}
}
