//! The server's state for the module, and the module's INFO and log.

use std::ffi::{c_char, c_int, c_uchar, c_ulonglong};
use std::ptr;

use oxbloom_filter::Filter;
use redis_module::raw;

use super::keys::{keys, module_value};
use super::strings::bytes;
use super::{INSTANCES, OK, with};

/// Panics unless INFO shows the right numbers of filters, layers, bytes and items.
pub(crate) fn check_figures() {
    let mut expected = [0; 4];
    for instance in 0..INSTANCES {
        for (_, value, _) in keys(instance).iter().filter_map(|key| module_value(instance, key)) {
            // SAFETY: all values of the module's types are filters, and nothing changes this one now.
            let filter = unsafe { &*value.cast::<Filter>() };
            let weights = [1, filter.num_layers() as u64, filter.memory_usage() as u64, filter.len()];
            // The sum wraps as in the module, since a payload may claim any number of items.
            expected.iter_mut().zip(weights).for_each(|(sum, weight): (&mut u64, _)| *sum = sum.wrapping_add(weight));
        }
    }
    let show = with(|state| state.info).expect("a callback");
    // SAFETY: the module only passes the context back to the mock.
    unsafe { show(ptr::null_mut(), 0) };
    let shown = with(|state| ["filters", "layers", "bytes", "items"].map(|name| state.figures[name]));
    assert_eq!(shown, expected, "filters, layers, bytes and items");
}

pub(super) unsafe extern "C" fn get_context_flags(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    with(|state| state.call.circumstances.flags) as c_int
}

pub(super) unsafe extern "C" fn get_random_bytes(start: *mut c_uchar, length: usize) {
    let seed = with(|state| {
        state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.random
    });
    // SAFETY: the module passes a buffer of this length.
    (0..length).for_each(|index| unsafe { *start.add(index) = seed.to_le_bytes()[index % 8] });
}

pub(super) unsafe extern "C" fn register_info_func(
    _ctx: *mut raw::RedisModuleCtx,
    show: raw::RedisModuleInfoFunc,
) -> c_int {
    with(|state| state.info = show);
    OK
}

pub(super) unsafe extern "C" fn info_add_section(_info: *mut raw::RedisModuleInfoCtx, _name: *const c_char) -> c_int {
    with(|state| state.figures.clear());
    OK
}

/// Stores a number. The totals precede the dictionaries, whose fields of the same names are ignored.
pub(super) unsafe extern "C" fn info_add_field_ulong_long(
    _info: *mut raw::RedisModuleInfoCtx,
    name: *const c_char,
    figure: c_ulonglong,
) -> c_int {
    // SAFETY: the module passes a text that ends with a NUL.
    let name = String::from_utf8(unsafe { bytes(name) }).expect("a name");
    with(|state| {
        state.figures.entry(name).or_insert(figure);
    });
    OK
}

pub(super) unsafe extern "C" fn info_add_field_c_string(
    _info: *mut raw::RedisModuleInfoCtx,
    _name: *const c_char,
    text: *const c_char,
) -> c_int {
    // SAFETY: the module passes a text that ends with a NUL.
    let text = unsafe { bytes(text) };
    assert!(text.iter().all(|byte| !byte.is_ascii_control()), "a value with control characters");
    OK
}

pub(super) unsafe extern "C" fn info_begin_dict_field(
    _info: *mut raw::RedisModuleInfoCtx,
    _name: *const c_char,
) -> c_int {
    OK
}

pub(super) unsafe extern "C" fn info_end_dict_field(_info: *mut raw::RedisModuleInfoCtx) -> c_int {
    OK
}

pub(super) unsafe extern "C" fn log(
    _ctx: *mut raw::RedisModuleCtx,
    level: *const c_char,
    format: *const c_char,
    message: *const c_char,
) {
    // SAFETY: the module passes texts that end with a NUL.
    let (level, format, message) = unsafe { (bytes(level), bytes(format), bytes(message)) };
    assert_eq!(format, b"%s");
    let message = String::from_utf8_lossy(&message).into_owned();
    // A replica without memory would exit, but no script asks for so much memory.
    assert!(!message.contains("internal error") && !message.contains("exiting"), "{message}");
    if level == b"warning" {
        with(|state| state.warnings.push(message));
    }
}

/// Returns 0: no command has a client.
pub(super) unsafe extern "C" fn get_client_id(_ctx: *mut raw::RedisModuleCtx) -> c_ulonglong {
    0
}
