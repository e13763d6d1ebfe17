//! The server's services: [`Server`] offers those that any code may use, [`Context`] those of a command or of the load.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;

use redis_module::raw;

use super::args::Arg;
use super::feature;
use crate::family::{Dialect, Family, Verb};
use crate::ffi::{OK, RawContext, RawString, available, call};

/// The server's log, state and limits, for any code.
///
/// The pointer is null, which all functions here accept, or the context of a call from the server, which lives for
/// `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Server<'a> {
    ctx: RawContext,
    lifetime: PhantomData<&'a raw::RedisModuleCtx>,
}

impl Server<'static> {
    /// Returns the server without a context, as in the callbacks of the data types. Its log lines start with `<module>`
    /// instead of `<bf>`.
    pub(crate) fn without_context() -> Server<'static> {
        Server { ctx: ptr::null_mut(), lifetime: PhantomData }
    }
}

impl Server<'_> {
    pub(crate) fn log_notice(&self, message: &str) {
        self.log(c"notice", message);
    }

    pub(crate) fn log_warning(&self, message: &str) {
        self.log(c"warning", message);
    }

    fn log(&self, level: &CStr, message: &str) {
        // A message may contain a client's bytes, and among them a NUL.
        self.log_line(level, &CString::new(message.replace('\0', "\\0")).unwrap_or_default());
    }

    /// Logs a line at any level, without allocating.
    pub(crate) fn log_line(&self, level: &CStr, message: &CStr) {
        // SAFETY: all texts end with a NUL. The message is not the format, since it may contain a client's bytes.
        unsafe { call!(RedisModule_Log(self.ctx, level.as_ptr(), c"%s".as_ptr(), message.as_ptr())) };
    }

    /// Creates a string of the server, which is freed when dropped.
    pub(crate) fn string(&self, bytes: &[u8]) -> OwnedString {
        // SAFETY: the server copies the bytes. Without a context, only we own the string.
        OwnedString(unsafe { call!(RedisModule_CreateString(ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())) })
    }

    /// Returns true if the command comes from the master or from a file that is being loaded, and so was accepted
    /// before.
    ///
    /// The callbacks of a data type do not know their client: on a replica, this assumes the master. If a replica
    /// serves clients from its old data while it loads the new data, this returns false for the commands of these
    /// clients.
    pub(crate) fn is_replicated_or_loading(&self) -> bool {
        self.is_from_master_or_file(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }

    /// Returns true if the command certainly comes from the master or from a file that is being loaded. Unlike
    /// [`is_replicated_or_loading`](Self::is_replicated_or_loading), this returns false in a callback on a writable
    /// replica, which may be working for a client.
    pub(crate) fn must_apply(&self) -> bool {
        self.is_from_master_or_file(raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_READONLY)
    }

    /// Returns true if the command comes from the master or a file. Without a context, returns true if the server has
    /// all of `flags`.
    fn is_from_master_or_file(&self, flags: u32) -> bool {
        const EITHER: u32 = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        let present = self.flags();
        present & EITHER != 0 || self.ctx.is_null() && present & flags == flags
    }

    /// Returns true if the command belongs to a slot that migrates to this node. If such a command fails, the slot
    /// stays on its source node.
    pub(crate) fn is_import(&self) -> bool {
        let imports = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_MASTER;
        let loads = raw::REDISMODULE_CTX_FLAGS_LOADING;
        self.flags() & (imports | loads) == imports && feature::SLOT_MIGRATION.is_offered()
    }

    /// Returns true if the command comes from a file that is being loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LOADING != 0
    }

    /// Returns true if the server evicts keys when it reaches `maxmemory`.
    pub(crate) fn may_evict(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_EVICT != 0
    }

    /// Returns true if this process is a child that writes a snapshot or an append-only file.
    pub(crate) fn is_child(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_IS_CHILD != 0
    }

    fn flags(&self) -> u32 {
        // SAFETY: the context is the server's, or null.
        unsafe { call!(RedisModule_GetContextFlags(self.ctx)) as u32 }
    }

    pub(crate) fn log_and_exit(&self, reason: &str) -> ! {
        self.log_warning(reason);
        self.exit()
    }

    pub(crate) fn exit(&self) -> ! {
        // SAFETY: this exits the process without running any more of its code.
        unsafe { libc::_exit(1) }
    }

    /// Returns the used memory as a fraction of `maxmemory`; 0 without a limit.
    pub(crate) fn used_memory_ratio(&self) -> f64 {
        // SAFETY: it takes no arguments.
        f64::from(unsafe { call!(RedisModule_GetUsedMemoryRatio()) })
    }

    /// Returns `maxmemory` in bytes; 0 for no limit. Takes about 40 microseconds.
    pub(crate) fn max_memory(&self) -> u64 {
        self.info(c"memory", c"maxmemory").unwrap_or(0)
    }

    /// Returns the number of commands that the server has run, also those of scripts and transactions, since it started
    /// or CONFIG RESETSTAT. Takes as long.
    pub(crate) fn commands_run(&self) -> Option<u64> {
        self.info(c"stats", c"total_commands_processed")
    }

    /// Returns a number of INFO. The section must be the server's own, so that no other module runs.
    fn info(&self, section: &CStr, field: &CStr) -> Option<u64> {
        let mut failed = 0;
        // SAFETY: both names end with a NUL, the context may be null, and the server's reply is freed after it is read.
        let number = unsafe {
            let info = call!(RedisModule_GetServerInfo(self.ctx, section.as_ptr()));
            let number = call!(RedisModule_ServerInfoGetFieldUnsigned(info, field.as_ptr(), &mut failed));
            call!(RedisModule_FreeServerInfo(self.ctx, info));
            number
        };
        (failed == OK).then_some(number)
    }

    /// Returns the time, in milliseconds since 1970.
    pub(crate) fn milliseconds(&self) -> i64 {
        // SAFETY: it takes no arguments.
        unsafe { call!(RedisModule_Milliseconds()) }
    }

    /// Returns random bits that nobody can guess, from the server's own source.
    pub(crate) fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        // SAFETY: the server fills as many bytes as the buffer has.
        unsafe { call!(RedisModule_GetRandomBytes(bytes.as_mut_ptr(), bytes.len())) };
        u64::from_ne_bytes(bytes)
    }
}

/// The server during one call that has a client: a command, or the load of the module.
pub(crate) struct Context<'a> {
    server: Server<'a>,
    /// The family of the command, or of all commands when the module is loaded.
    pub(crate) family: &'static Family,
    /// The number of replies that the client still waits for: the command's own reply, then the elements of the arrays
    /// that it started.
    pub(super) pending_replies: Cell<usize>,
}

impl<'a> Deref for Context<'a> {
    type Target = Server<'a>;

    #[inline]
    fn deref(&self) -> &Server<'a> {
        &self.server
    }
}

impl Context<'_> {
    /// Wraps the context of a call from the server, for a command of a family.
    ///
    /// # Safety
    ///
    /// `ctx` must be a context that the server handed to a command or to the function that loads the module, and that
    /// lives for the wrapper's lifetime.
    #[inline]
    pub(crate) unsafe fn new(ctx: RawContext, family: &'static Family) -> Self {
        Context { server: Server { ctx, lifetime: PhantomData }, family, pending_replies: Cell::new(1) }
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> RawContext {
        self.server.ctx
    }

    #[inline]
    pub(crate) fn dialect(&self) -> Dialect {
        self.family.dialect()
    }

    /// Sends `command key arguments…` to replicas and the append-only file, with a command of the same family.
    pub(crate) fn replicate(&self, verb: Verb, key: Arg, arguments: &[Arg]) {
        self.replicate_command(self.family.replicated_name(verb), key, arguments);
    }

    /// Sends any `command key arguments…` to replicas and the append-only file.
    pub(crate) fn replicate_command(&self, command: &CStr, key: Arg, arguments: &[Arg]) {
        let (strings, count) = (arguments.as_ptr().cast::<RawString>(), arguments.len());
        let (command, format, key) = (command.as_ptr(), c"sv".as_ptr(), key.as_raw());
        // SAFETY: the arguments match the format: a string, and an array of strings with its length. All are alive, and
        // an `Arg` is a pointer to a string.
        unsafe { call!(RedisModule_Replicate(self.as_raw(), command, format, key, strings, count)) };
    }

    /// Sends the command to replicas and the append-only file as the client sent it.
    pub(crate) fn replicate_verbatim(&self) {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplicateVerbatim(self.as_raw())) };
    }

    /// Returns true if a connected client may have sent the command itself. Scripts, transactions and most modules run
    /// commands for internal clients.
    pub(crate) fn has_connection(&self) -> bool {
        const WITHOUT: u32 = raw::REDISMODULE_CTX_FLAGS_LUA | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        self.flags() & WITHOUT == 0
    }

    pub(crate) fn database(&self) -> c_int {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_GetSelectedDb(self.as_raw())) }
    }

    /// Returns true if the client's user may read, change, create and delete a key that is no argument of its command.
    /// Servers before Redis 7.0 do not tell, and this returns true.
    pub(crate) fn may_use(&self, key: Arg) -> bool {
        const ALL: u32 = raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_UPDATE
            | raw::REDISMODULE_CMD_KEY_INSERT
            | raw::REDISMODULE_CMD_KEY_DELETE;
        if available!(RedisModule_ACLCheckKeyPermissions).is_none() {
            return true;
        }
        // SAFETY: the context is alive. The server returns null, or a string that is ours to free.
        let name = unsafe { call!(RedisModule_GetCurrentUserName(self.as_raw())) };
        if name.is_null() {
            // An internal client has no user, and may do anything.
            return true;
        }
        let name = OwnedString(name);
        // SAFETY: the name and the key are alive. The server returns null, or a user that is ours to free.
        unsafe {
            let user = call!(RedisModule_GetModuleUserFromUserName(name.0));
            let may_use =
                !user.is_null() && call!(RedisModule_ACLCheckKeyPermissions(user, key.as_raw(), ALL as c_int)) == OK;
            if !user.is_null() {
                call!(RedisModule_FreeModuleUser(user));
            }
            may_use
        }
    }

    pub(crate) fn is_in_cluster(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
    }

    pub(super) fn is_in_script_or_transaction(&self) -> bool {
        const WITHIN: u32 = raw::REDISMODULE_CTX_FLAGS_LUA | raw::REDISMODULE_CTX_FLAGS_MULTI;
        self.flags() & WITHIN != 0
    }

    /// Returns the ID of the client, or 0 if there is none.
    pub(crate) fn client_id(&self) -> u64 {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_GetClientId(self.as_raw())) }
    }

    /// Hands the address and port of a client to `show`. Returns false if there is no such client.
    pub(crate) fn show_address(&self, client: u64, show: impl FnOnce(&str, u16)) -> bool {
        let mut info = raw::RedisModuleClientInfo { version: 1, flags: 0, id: client, addr: [0; 46], port: 0, db: 0 };
        // SAFETY: the server fills a structure of the version that its field states.
        if unsafe { call!(RedisModule_GetClientInfoById((&raw mut info).cast(), client)) } != OK {
            return false;
        }
        let address = info.addr.map(|byte| byte as u8);
        let length = address.iter().position(|&byte| byte == 0).unwrap_or(address.len());
        show(str::from_utf8(&address[..length]).unwrap_or_default(), info.port);
        true
    }

    /// Returns the name of a client's user, if the server offers it.
    pub(crate) fn user_name(&self, client: u64) -> Option<OwnedString> {
        available!(RedisModule_GetClientUserNameById)?;
        // SAFETY: the context is alive. The server returns null or a string that is ours to free.
        let name = unsafe { call!(RedisModule_GetClientUserNameById(self.as_raw(), client)) };
        (!name.is_null()).then_some(OwnedString(name))
    }

    /// Returns true if the client gets maps: it uses RESP3, and the server offers RESP3 to modules.
    pub(crate) fn has_maps(&self) -> bool {
        feature::RESP3.is_offered() && self.flags() & raw::REDISMODULE_CTX_FLAGS_RESP3 != 0
    }
}

/// A string of the server that is ours. It is freed when dropped.
pub(crate) struct OwnedString(RawString);

impl OwnedString {
    pub(crate) fn as_arg(&self) -> Arg<'_> {
        // SAFETY: the string lives as long as it is borrowed, and only we own it.
        unsafe { Arg::new(self.0) }
    }

    /// Returns the string, which the caller must free.
    pub(crate) fn into_raw(self) -> RawString {
        ManuallyDrop::new(self).0
    }

    /// Takes over a string, and frees it when dropped.
    ///
    /// # Safety
    ///
    /// Nobody else may free `string`.
    pub(crate) unsafe fn from_raw(string: RawString) -> OwnedString {
        OwnedString(string)
    }
}

impl Drop for OwnedString {
    fn drop(&mut self) {
        // SAFETY: the string is ours, and nothing borrows it any more.
        unsafe { call!(RedisModule_FreeString(ptr::null_mut(), self.0)) };
    }
}
