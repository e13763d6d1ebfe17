//! The module's section of INFO: [`statistics`], and the last [`rejection`].

use std::ffi::{CStr, c_int};

use redis_module::raw;

use crate::callback::catch_panic;
use crate::ffi::{OK, call};
use crate::rejection;
use crate::server::{Context, InfoSection};
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
    catch_panic(c"info", (), || {
        // SAFETY: the server hands over `info` for the time of the call.
        let Some(section) = (unsafe { InfoSection::begin(info) }) else { return };
        let numbers =
            |figures: &[(&CStr, u64)]| figures.iter().for_each(|&(name, figure)| section.number(name, figure));
        section.text(c"version", VERSION);
        numbers(&statistics::totals());
        numbers(&statistics::rejections());
        numbers(&statistics::module_figures());
        rejection::show_last(|rejection| section.text(c"last_rejection", rejection));
        numbers(&statistics::exporter_figures());
        for (layout, figures) in statistics::by_layout() {
            section.numbers(layout, figures);
        }
    });
}
