//! The time by which filters forget.
//!
//! While a script or a transaction runs, time stands still, as it does for the server's own commands: what a script saw
//! remembered is not forgotten before its next line. Servers before Redis 7.2 do not tell modules their time, so the first
//! command of a script or transaction keeps it, until a timer forgets it again: the server calls timers in the next round of
//! its event loop, never before the script or transaction has ended.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
#[cfg(feature = "fault-injection")]
use std::sync::atomic::{AtomicI64, Ordering};

use redis_module::raw;

use super::context::Context;
use crate::ffi::call;

thread_local! {
    /// The time of the script or transaction that runs, in milliseconds since 1970. All commands run on one thread.
    static KEPT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Where tests have stopped the clock, in milliseconds since 1970.
#[cfg(feature = "fault-injection")]
pub(crate) static STOPPED_AT: AtomicI64 = AtomicI64::new(GOES);
#[cfg(feature = "fault-injection")]
const GOES: i64 = i64::MIN;

impl Context<'_> {
    /// Returns the time by which filters forget, in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        if !self.is_in_script_or_transaction() {
            return self.clock();
        }
        KEPT.get().unwrap_or_else(|| {
            let now = self.clock();
            KEPT.set(Some(now));
            // SAFETY: the context is alive, and the callback of the type that the server expects. It gets no data.
            unsafe { call!(RedisModule_CreateTimer(self.as_raw(), 0, Some(forget_kept), ptr::null_mut())) };
            now
        })
    }

    fn clock(&self) -> u64 {
        #[cfg(feature = "fault-injection")]
        let stopped = Some(STOPPED_AT.load(Ordering::Relaxed)).filter(|&time| time != GOES);
        #[cfg(not(feature = "fault-injection"))]
        let stopped = None;
        u64::try_from(stopped.unwrap_or_else(|| self.milliseconds())).unwrap_or(0)
    }
}

/// # Safety
///
/// For the server only.
unsafe extern "C" fn forget_kept(_ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    KEPT.set(None);
}
