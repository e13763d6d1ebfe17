//! The module's section of INFO: [`statistics`], the figures of [`lookahead`], and the last [`rejection`].

use std::ffi::{CStr, c_int};

use redis_module::raw;

use crate::callback::catch_panic;
use crate::ffi::{OK, call};
use crate::lookahead;
use crate::rejection;
use crate::server::Context;
use crate::statistics;

/// Our version, for INFO.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => c"unknown",
};

/// Registers the section of INFO. Returns false if the server rejects it.
pub(crate) fn register(ctx: &Context) -> bool {
    // SAFETY: the context is alive, and the callback is of the type that the server expects.
    unsafe { call!(RedisModule_RegisterInfoFunc(ctx.as_raw(), Some(write_section))) == OK }
}

/// Writes the section. The server also calls this for crash reports, when memory may be corrupt. So it allocates
/// nothing, and reads no filter.
///
/// # Safety
///
/// Only the server may call this.
unsafe extern "C" fn write_section(info: *mut raw::RedisModuleInfoCtx, _for_crash_report: c_int) {
    // SAFETY: the server hands over `info` for the time of the call, and all texts end with a NUL.
    catch_panic(c"info", (), || unsafe {
        // The caller of INFO may not have requested the section.
        if call!(RedisModule_InfoAddSection(info, c"".as_ptr())) != OK {
            return;
        }
        let text = |name: &CStr, text: &CStr| {
            call!(RedisModule_InfoAddFieldCString(info, name.as_ptr(), text.as_ptr()));
        };
        let numbers = |figures: &[(&CStr, u64)]| {
            for (name, figure) in figures {
                call!(RedisModule_InfoAddFieldULongLong(info, name.as_ptr(), *figure));
            }
        };
        text(c"version", VERSION);
        numbers(&statistics::totals());
        numbers(&statistics::rejections());
        numbers(&statistics::module_figures());
        numbers(&lookahead::figures());
        rejection::show_last(|rejection| text(c"last_rejection", rejection));
        numbers(&statistics::exporter_figures());
        for (kind, figures) in statistics::by_kind() {
            // All figures of a kind are in one line.
            call!(RedisModule_InfoBeginDictField(info, kind.as_ptr()));
            numbers(&figures);
            call!(RedisModule_InfoEndDictField(info));
        }
    });
}
