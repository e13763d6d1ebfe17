//! The prefix with which the data that the server loads were written.
//!
//! Filters do not depend on the prefix of the module's [names](crate::names), but commands do. A server with another
//! prefix does not know the commands that follow the filters of a master or of an append-only file, and its own
//! messages do not say why. So a snapshot has the prefix in a field before the keys. This module compares it with ours.
//!
//! The field is missing if there was no prefix. It is also missing if there were no filters: a snapshot with the field
//! cannot be loaded without the module, and so the module can be removed again.

use std::cell::{Cell, RefCell};

use redis_module::raw;

use crate::ffi::available;
use crate::names::{Names, names};
use crate::server::Server;

thread_local! {
    /// The last event: the server began to load something, or ended.
    static LOADING: Cell<u64> = const { Cell::new(raw::REDISMODULE_SUBEVENT_LOADING_ENDED) };
    /// The prefix in the data that are being loaded; empty until the field is read.
    static WRITTEN: RefCell<String> = const { RefCell::new(String::new()) };
    static WARNED: Cell<bool> = const { Cell::new(false) };
    static LOADS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of times that the server has begun to load data, if it has events for that.
pub(crate) fn loads() -> u64 {
    LOADS.get()
}

/// Remembers what the server is loading, given the part of the event.
pub(crate) fn on_loading(part: u64) {
    if ![raw::REDISMODULE_SUBEVENT_LOADING_ENDED, raw::REDISMODULE_SUBEVENT_LOADING_FAILED].contains(&part) {
        LOADS.set(LOADS.get().wrapping_add(1));
    }
    LOADING.set(part);
    WRITTEN.take();
    WARNED.set(false);
}

/// Stores the prefix in the data that are being loaded. Returns false if they cannot be loaded, as [`may_load`] does.
pub(crate) fn set(server: &Server, prefix: &[u8]) -> bool {
    let Some(prefix) = Names::checked_prefix(prefix) else {
        server.log_warning("rejected a snapshot: the prefix of the module that wrote it is damaged");
        return false;
    };
    WRITTEN.set(prefix);
    may_load(server)
}

/// Returns false if filters cannot be loaded, because the master's module has another prefix. Logs the reason, and a
/// warning if an append-only file was written with another prefix.
pub(crate) fn may_load(server: &Server) -> bool {
    let ours = &names().prefix;
    let written = WRITTEN.with_borrow(String::clone);
    // Servers before Redis 7.2 write no field, and so their own masters may have any prefix.
    let is_known = !written.is_empty() || available!(RedisModule_CachedMicroseconds).is_some();
    if written == *ours || !is_known {
        return true;
    }
    let (writer, remedy) = if written.is_empty() {
        ("no prefix".to_owned(), format!("remove the argument 'prefix {ours}' of loadmodule here"))
    } else {
        (format!("'prefix {written}'"), format!("load the module here with the argument 'prefix {written}'"))
    };
    match LOADING.get() {
        raw::REDISMODULE_SUBEVENT_LOADING_REPL_START => {
            server.log_warning(&format!(
                "rejected the data of the master: its module was loaded with {writer}, and this server would not know its \
                 commands: {remedy}"
            ));
            false
        }
        raw::REDISMODULE_SUBEVENT_LOADING_AOF_START if !WARNED.replace(true) => {
            server.log_warning(&format!(
                "the append-only file was written by a module that was loaded with {writer}: if the server now exits because of \
                 an unknown command, {remedy}"
            ));
            true
        }
        _ => true,
    }
}
