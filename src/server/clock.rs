//! The clock of filters that forget.
//!
//! The clock stops while a script or a transaction runs, as it does for the server's own commands: no item expires
//! between two commands of a script. Servers from Redis 7.2 on offer their stopped clock to modules. On older ones, the
//! first command of a script or transaction stores the time, and the next command outside clears it. If none comes, a
//! timer clears it in the next round of the server's event loop, which is never before the script or transaction has
//! ended. Timers follow the clock of the system, so a timer can be an hour late if that clock is set back. So the
//! server's cron also clears the time, ten times a second.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};

use super::context::Context;
use crate::ffi::{RawContext, available, call};

thread_local! {
    /// The time of the running script or transaction, in milliseconds since 1970. All commands run on one thread.
    static STORED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The time at which a test stopped the clock, in milliseconds since 1970.
pub(crate) static STOPPED_AT: AtomicI64 = AtomicI64::new(RUNNING);
/// The value of [`STOPPED_AT`] while the clock runs.
const RUNNING: i64 = i64::MIN;

/// Returns the time that a test set, in milliseconds since 1970. Such a clock does not stop by itself in scripts.
fn time_of_test() -> Option<i64> {
    let stopped_at = cfg!(feature = "fault-injection").then(|| STOPPED_AT.load(Ordering::Relaxed));
    stopped_at.filter(|&time| time != RUNNING)
}

impl Context<'_> {
    /// Returns the time for filters that forget, in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        let stops = available!(RedisModule_CachedMicroseconds).is_some() && time_of_test().is_none();
        if stops {
            return self.clock();
        }
        if !self.is_in_script_or_transaction() {
            STORED.set(None);
            return self.clock();
        }
        STORED.get().unwrap_or_else(|| {
            let now = self.clock();
            STORED.set(Some(now));
            // SAFETY: the context is alive, and the callback has the type that the server expects. It gets no data.
            unsafe { call!(RedisModule_CreateTimer(self.as_raw(), 0, Some(clear_stored), ptr::null_mut())) };
            now
        })
    }

    /// Returns the time at which the command, script or transaction began if the server offers it, or else the present
    /// time.
    fn clock(&self) -> u64 {
        // SAFETY: it takes no arguments.
        let cached = || available!(RedisModule_CachedMicroseconds).map(|cached| unsafe { cached() } / 1000);
        let time = time_of_test().or_else(cached).unwrap_or_else(|| self.milliseconds());
        u64::try_from(time).unwrap_or(0)
    }
}

/// Clears the stored time. No script or transaction runs at this time.
pub(crate) fn forget_stored_time() {
    STORED.set(None);
}

extern "C" fn clear_stored(_ctx: RawContext, _data: *mut c_void) {
    forget_stored_time();
}
