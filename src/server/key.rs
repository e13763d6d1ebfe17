//! Open keys, and what may run other modules' code.
//!
//! Other modules may listen to keyspace events. A listener runs in the middle of our call into the server, and may do
//! anything to any key, such as delete the filter that a command just found. The events come from
//!
//! - opening a key: `keymiss` if it does not exist, `expired` if its time is over. If the key is found, no event is
//!   raised;
//! - setting a value: `new`, and where there was a value, what tells that it is gone;
//! - [`Keyspace::notify_changed`] and [`Keyspace::notify_expire`].
//!
//! All three take the [`Keyspace`], of which there is one for a command. An open key borrows it, and a filter borrows
//! its key. So the compiler sees to it that nobody holds a filter, or a key that remembers one, while a listener may
//! run. (To open several keys at a time is possible as long as each is found: see [`OpenKey::open_another`].)

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;

use redis_module::raw;

use super::args::Arg;
use super::context::Context;
use crate::ffi::{OK, available, call};

/// The permission to do what may run listeners. It takes no memory, and no time.
pub(crate) struct Keyspace<'a>(PhantomData<&'a mut ()>);

impl Keyspace<'_> {
    /// Grants the permission.
    ///
    /// # Safety
    ///
    /// For callbacks that the server calls while none of its values is borrowed, such as commands; once in each call.
    #[inline]
    pub(crate) unsafe fn new() -> Self {
        Keyspace(PhantomData)
    }

    /// Lends the permission.
    #[inline]
    pub(crate) fn reborrow(&mut self) -> Keyspace<'_> {
        Keyspace(PhantomData)
    }

    /// Tells watchers and listeners that `event` changed the key.
    pub(crate) fn notify_changed(&mut self, ctx: &Context, key: Arg, event: &CStr) {
        // SAFETY: the context and the key's name are alive.
        unsafe { call!(RedisModule_SignalModifiedKey(ctx.as_raw(), key.as_raw())) };
        self.notify(ctx, raw::REDISMODULE_NOTIFY_MODULE, event, key);
    }

    /// Tells listeners that the key got a time to live, by the event of the server's own commands.
    pub(crate) fn notify_expire(&mut self, ctx: &Context, key: Arg) {
        self.notify(ctx, raw::REDISMODULE_NOTIFY_GENERIC, c"expire", key);
    }

    fn notify(&mut self, ctx: &Context, class: c_int, event: &CStr, key: Arg) {
        // SAFETY: the context and the key's name are alive, and the event ends with a NUL. Listeners may do anything:
        // all keys are closed.
        unsafe {
            call!(RedisModule_NotifyKeyspaceEvent(ctx.as_raw(), class, event.as_ptr(), key.as_raw()));
        }
    }
}

/// An open key; closed when dropped.
pub(crate) struct OpenKey<'k> {
    /// Null if the key was opened to be read and does not exist.
    key: *mut raw::RedisModuleKey,
    _keyspace: Keyspace<'k>,
}

impl<'k> OpenKey<'k> {
    #[inline]
    pub(crate) fn open(keyspace: Keyspace<'k>, ctx: &Context, name: Arg, mode: u32) -> OpenKey<'k> {
        // SAFETY: the context and the name are alive. Listeners may run: nobody else has the permission.
        let key = unsafe { call!(RedisModule_OpenKey(ctx.as_raw(), name.as_raw(), mode as c_int)) };
        OpenKey { key, _keyspace: keyspace }
    }

    /// Opens another key while this one is open.
    ///
    /// # Safety
    ///
    /// If it has no value, a listener may have run, so that keys that were opened before it may have lost theirs: they
    /// must be closed, and no value of theirs used.
    pub(crate) unsafe fn open_another(&self, ctx: &Context, name: Arg, mode: u32) -> OpenKey<'k> {
        OpenKey::open(Keyspace(PhantomData), ctx, name, mode)
    }

    /// Returns true if the key was not found by an opening to read.
    #[inline]
    pub(crate) fn is_missing(&self) -> bool {
        self.key.is_null()
    }

    /// Returns the data type of the value, null if it is none of a module.
    #[inline]
    pub(crate) fn data_type(&self) -> *mut raw::RedisModuleType {
        // SAFETY: the key is open; null has no type.
        unsafe { call!(RedisModule_ModuleTypeGetType(self.key)) }
    }

    /// Returns the value, null if it is none of a module. It stays while the key is open.
    #[inline]
    pub(crate) fn value(&self) -> *mut c_void {
        // SAFETY: the key is open; null has no value.
        unsafe { call!(RedisModule_ModuleTypeGetValue(self.key)) }
    }

    /// Returns true if the key has no value.
    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: the key is open; null is empty.
        unsafe { call!(RedisModule_KeyType(self.key)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int }
    }

    /// Makes a key that is open to be written expire at a time, in milliseconds since 1970. Without a value, nothing happens.
    pub(crate) fn set_expire_time(&mut self, time: i64) {
        // The first releases of Redis 6.2 know only times from now on.
        let is_absolute = available!(RedisModule_SetAbsExpire).is_some();
        // SAFETY: the key is open. The server refuses one without a value, and one that is only read.
        unsafe {
            if is_absolute {
                call!(RedisModule_SetAbsExpire(self.key, time));
            } else {
                let now = call!(RedisModule_Milliseconds());
                call!(RedisModule_SetExpire(self.key, time.saturating_sub(now).max(0)));
            }
        }
    }

    /// Sets the value of a key that is open to be written, and closes it. A value that it has already, and its time to
    /// live, are gone. Returns the permission to open it again, which is needed to use the value: a listener may have
    /// removed it. If the server does not take the value, returns an error; the value then still belongs to the caller.
    ///
    /// # Safety
    ///
    /// The key must be open to be written. `value` must be one of `data_type`, and belong to nobody else.
    pub(crate) unsafe fn set_value(
        self,
        data_type: *mut raw::RedisModuleType,
        value: *mut c_void,
    ) -> Result<Keyspace<'k>, Keyspace<'k>> {
        // SAFETY: the key is open, and the rest is as promised by the caller. Listeners may run: the key cannot be used
        // any more.
        let status = unsafe { call!(RedisModule_ModuleTypeSetValue(self.key, data_type, value)) };
        if status == OK { Ok(Keyspace(PhantomData)) } else { Err(Keyspace(PhantomData)) }
    }
}

impl Drop for OpenKey<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.key.is_null() {
            // SAFETY: the key is open, and nobody has it any more.
            unsafe { call!(RedisModule_CloseKey(self.key)) };
        }
    }
}
