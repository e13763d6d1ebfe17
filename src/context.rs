//! What a command or callback can ask of the server: logging, replication, notification, its state.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;

use redis_module::raw;

use super::args::Arg;
use super::edge::{OK, call};
use super::feature;

/// The server, for the time of one call from it.
pub struct Context<'a> {
    ctx: *mut raw::RedisModuleCtx,
    /// How many replies the client waits for: that of the command, then the elements that it was said to have.
    pub(super) owed: Cell<usize>,
    lifetime: PhantomData<&'a raw::RedisModuleCtx>,
}

impl Context<'_> {
    pub fn new(ctx: *mut raw::RedisModuleCtx) -> Self {
        Context { ctx, owed: Cell::new(1), lifetime: PhantomData }
    }

    /// Where no client is served, as in the callbacks of the data type: for what the server tells anybody, and the log, which
    /// then says `<module>` for `<bf>`.
    pub fn detached() -> Self {
        Context::new(std::ptr::null_mut())
    }

    pub fn as_raw(&self) -> *mut raw::RedisModuleCtx {
        self.ctx
    }

    pub fn log_notice(&self, message: &str) {
        self.log(c"notice", message);
    }

    pub fn log_warning(&self, message: &str) {
        self.log(c"warning", message);
    }

    fn log(&self, level: &CStr, message: &str) {
        // What is logged may hold a client's bytes: no NUL.
        self.log_line(level, &CString::new(message.replace('\0', "\\0")).unwrap_or_default());
    }

    /// As the others, at any level, without allocating.
    pub fn log_line(&self, level: &CStr, message: &CStr) {
        // What is logged may hold a client's bytes: no format directive but ours.
        call!(RedisModule_Log(self.ctx, level.as_ptr(), c"%s".as_ptr(), message.as_ptr()));
    }

    /// Sends `command key arguments…` to replicas and the append-only file.
    pub fn replicate(&self, command: &CStr, key: Arg, arguments: &[*mut raw::RedisModuleString]) {
        let format = c"sv".as_ptr();
        call!(RedisModule_Replicate(
            self.ctx,
            command.as_ptr(),
            format,
            key.as_raw(),
            arguments.as_ptr(),
            arguments.len()
        ));
    }

    /// Sends the command to replicas and the append-only file as the client sent it.
    pub fn replicate_verbatim(&self) {
        call!(RedisModule_ReplicateVerbatim(self.ctx));
    }

    /// Tells watchers and listeners that `event` changed the key.
    pub fn notify_changed(&self, key: Arg, event: &CStr) {
        call!(RedisModule_SignalModifiedKey(self.ctx, key.as_raw()));
        call!(RedisModule_NotifyKeyspaceEvent(
            self.ctx,
            raw::REDISMODULE_NOTIFY_MODULE as c_int,
            event.as_ptr(),
            key.as_raw()
        ));
    }

    /// A string of the server's, freed when dropped.
    pub fn string(&self, bytes: &[u8]) -> OwnedString {
        OwnedString(call!(RedisModule_CreateString(std::ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())))
    }

    /// Whether what is asked for comes from the master, or a file that is loaded: it was granted already.
    ///
    /// Callbacks of the data type do not know their client; on a replica they work for the master. A replica that serves
    /// clients from its old data while it loads the new is not said to be loading: their commands are theirs.
    pub fn must_obey(&self) -> bool {
        self.is_granted(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }

    /// As [`must_obey`](Self::must_obey), but certain: on a replica that clients may write to, a callback may work for one.
    pub fn must_not_fail(&self) -> bool {
        self.is_granted(raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_READONLY)
    }

    /// Whether it is known where a wish comes from, and that is the master or a file; or else, whether the server has all of
    /// `flags`.
    fn is_granted(&self, flags: u32) -> bool {
        const GRANTED: u32 = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        let present = self.flags();
        present & GRANTED != 0 || self.ctx.is_null() && present & flags == flags
    }

    /// Whether what is asked for comes with a slot that migrates here, and that stays where it was should anything of it fail.
    pub fn is_import(&self) -> bool {
        let imports = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_MASTER;
        let loads = raw::REDISMODULE_CTX_FLAGS_LOADING;
        self.flags() & (imports | loads) == imports && feature::SLOT_MIGRATION.is_offered()
    }

    /// Whether what is asked for comes from a file that is loaded.
    pub fn is_loading(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LOADING != 0
    }

    /// Returns true if a connected client may have sent the command itself: scripts, transactions and most modules run commands for
    /// clients of their own.
    pub fn has_connection(&self) -> bool {
        const WITHOUT: u32 = raw::REDISMODULE_CTX_FLAGS_LUA | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        !self.ctx.is_null() && self.flags() & WITHOUT == 0
    }

    /// Ends the server, where to go on would be worse.
    pub fn end_server(&self, reason: &str) -> ! {
        self.log_warning(reason);
        // SAFETY: ends the process without running anything else of it.
        unsafe { libc::_exit(1) }
    }

    /// Whether the server evicts keys when it reaches `maxmemory`.
    pub fn may_evict(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_EVICT != 0
    }

    /// Whether this process is a child that writes a snapshot or a log.
    pub fn is_child(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_IS_CHILD != 0
    }

    /// Whether the client gets maps: it speaks RESP3, and the server has it for modules.
    pub fn has_maps(&self) -> bool {
        feature::RESP3.is_offered() && self.flags() & raw::REDISMODULE_CTX_FLAGS_RESP3 != 0
    }

    fn flags(&self) -> u32 {
        call!(RedisModule_GetContextFlags(self.ctx)) as u32
    }

    /// A whole number of the server's INFO, by section and field.
    pub fn info_number(&self, section: &CStr, field: &CStr) -> Option<u64> {
        let info = call!(RedisModule_GetServerInfo(self.ctx, section.as_ptr()));
        let mut failed = 0;
        let number = call!(RedisModule_ServerInfoGetFieldUnsigned(info, field.as_ptr(), &mut failed));
        call!(RedisModule_FreeServerInfo(self.ctx, info));
        (failed == OK).then_some(number)
    }
}

/// A string that was created for a call to the server.
pub struct OwnedString(*mut raw::RedisModuleString);

impl OwnedString {
    pub fn as_raw(&self) -> *mut raw::RedisModuleString {
        self.0
    }

    /// The string, to be freed by whoever gets it.
    pub fn into_raw(self) -> *mut raw::RedisModuleString {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for OwnedString {
    fn drop(&mut self) {
        call!(RedisModule_FreeString(std::ptr::null_mut(), self.0));
    }
}
