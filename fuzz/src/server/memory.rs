//! Memory. Both the mock and the module use the system's allocator.

use std::ffi::{c_char, c_int, c_ulong, c_ulonglong, c_void};
use std::ptr;

use redis_module::raw;

use super::keys::{module_value, set_address};
use super::strings::{Strings, bytes};
use super::{OK, OUT_OF_MEMORY, check_leaks, with};

/// Defragments a filter: moves some of its allocations.
pub(crate) fn defragment(instance: usize, key: &[u8]) {
    let Some((_, mut value, methods)) = module_value(instance, key) else { return };
    let name = Strings::new(&[key.to_vec()]);
    with(|state| state.cursor = 0);
    // SAFETY: the module created the value, and the name outlives the call.
    while unsafe { methods.defrag.expect("a callback")(ptr::null_mut(), name.0[0], &raw mut value) } != 0 {}
    drop(name);
    check_leaks();
    set_address(instance, key, value);
}

pub(super) unsafe extern "C" fn alloc(bytes: usize) -> *mut c_void {
    // SAFETY: every size is valid.
    unsafe { libc::malloc(bytes) }
}

pub(super) unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: every size is valid.
    unsafe { libc::calloc(count, size) }
}

pub(super) unsafe extern "C" fn try_calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: every size is valid.
    if OUT_OF_MEMORY.get() { ptr::null_mut() } else { unsafe { libc::calloc(count, size) } }
}

pub(super) unsafe extern "C" fn realloc(old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: `old` was allocated here.
    unsafe { libc::realloc(old, bytes) }
}

pub(super) unsafe extern "C" fn free(old: *mut c_void) {
    // SAFETY: `old` was allocated here.
    unsafe { libc::free(old) }
}

/// Moves two of every three allocations.
pub(super) unsafe extern "C" fn defrag_alloc(_ctx: *mut raw::RedisModuleDefragCtx, old: *mut c_void) -> *mut c_void {
    let stays = with(|state| {
        state.moves += 1;
        state.moves % 3 == 0
    });
    if stays {
        return ptr::null_mut();
    }
    // SAFETY: `old` was allocated here. All its bytes are copied before it is freed.
    unsafe {
        let size = libc::malloc_usable_size(old);
        let moved = libc::malloc(size);
        moved.cast::<u8>().copy_from_nonoverlapping(old.cast(), size);
        libc::free(old);
        moved
    }
}

/// Always returns true, so that the module stops at every opportunity.
pub(super) unsafe extern "C" fn defrag_should_stop(_ctx: *mut raw::RedisModuleDefragCtx) -> c_int {
    1
}

pub(super) unsafe extern "C" fn defrag_cursor_get(_ctx: *mut raw::RedisModuleDefragCtx, cursor: *mut c_ulong) -> c_int {
    // SAFETY: the module passes a valid pointer to a number.
    unsafe { *cursor = with(|state| state.cursor) };
    OK
}

pub(super) unsafe extern "C" fn defrag_cursor_set(_ctx: *mut raw::RedisModuleDefragCtx, cursor: c_ulong) -> c_int {
    with(|state| {
        assert!(cursor > state.cursor, "the cursor does not advance");
        state.cursor = cursor;
    });
    OK
}

/// The limit at which a full server has one KiB left.
pub(super) const MAXMEMORY: c_ulonglong = 1 << 20;

pub(super) unsafe extern "C" fn get_used_memory_ratio() -> f32 {
    let is_full = with(|state| state.call.circumstances.full);
    if is_full { 1023.0 / 1024.0 } else { 0.0 }
}

pub(super) unsafe extern "C" fn get_server_info(
    _ctx: *mut raw::RedisModuleCtx,
    section: *const c_char,
) -> *mut raw::RedisModuleServerInfoData {
    // SAFETY: the module passes a text that ends with a NUL.
    assert_eq!(unsafe { bytes(section) }, b"memory");
    with(|state| state.call.open_keys += 1);
    ptr::without_provenance_mut(1)
}

pub(super) unsafe extern "C" fn server_info_get_field_unsigned(
    _info: *mut raw::RedisModuleServerInfoData,
    field: *const c_char,
    status: *mut c_int,
) -> c_ulonglong {
    // SAFETY: the module passes a text that ends with a NUL, and a valid pointer for the status.
    unsafe {
        assert_eq!(bytes(field), b"maxmemory");
        *status = OK;
    }
    MAXMEMORY
}

pub(super) unsafe extern "C" fn free_server_info(
    _ctx: *mut raw::RedisModuleCtx,
    _info: *mut raw::RedisModuleServerInfoData,
) {
    with(|state| state.call.open_keys -= 1);
}
