//! Events of the server. It keeps one callback of a module for each event, so all that follows an event is called here.

use std::ffi::c_void;

use redis_module::raw;

use crate::callback::catch_panic;
use crate::family::BLOOM;
use crate::ffi::{RawContext, available, call};
use crate::server::{Context, clock};
use crate::{changes, commands, lookahead, written_prefix};

/// Subscribes to the events, if the server has them.
pub(crate) fn register(ctx: &Context) {
    if available!(RedisModule_SubscribeToServerEvent).is_none() {
        return;
    }
    let [cron, loading] = [raw::REDISMODULE_EVENT_CRON_LOOP, raw::REDISMODULE_EVENT_LOADING]
        .map(|id| raw::RedisModuleEvent { id, dataver: 1 });
    // SAFETY: the context is alive, and the callbacks have the type that the server expects.
    unsafe {
        call!(RedisModule_SubscribeToServerEvent(ctx.as_raw(), cron, Some(on_cron)));
        call!(RedisModule_SubscribeToServerEvent(ctx.as_raw(), loading, Some(on_loading)));
    }
}

/// Follows the server's cron. The event loop calls it some ten times a second, between two commands: never within a
/// script or transaction, nor while data are loaded.
///
/// # Safety
///
/// Only the server may call this.
unsafe extern "C" fn on_cron(ctx: RawContext, _: raw::RedisModuleEvent, _: u64, _: *mut c_void) {
    catch_panic(c"on_cron", (), || {
        clock::forget_stored_time();
        // SAFETY: the server hands over a context for the time of the call, and is not passing a command to filters.
        unsafe {
            changes::drop_idle(&Context::new(ctx, &BLOOM));
            lookahead::decide(ctx);
            commands::drop_idle_imports(ctx);
        }
    });
}

/// Follows the server as it begins to load data, or ends.
extern "C" fn on_loading(_: RawContext, _: raw::RedisModuleEvent, part: u64, _: *mut c_void) {
    catch_panic(c"on_loading", (), || written_prefix::on_loading(part));
}
