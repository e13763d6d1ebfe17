//! Open keys, and the permission for calls that may run other modules' code.
//!
//! Other modules may listen to keyspace events. A listener runs in the middle of our call into the server, and may do
//! anything to any key: it may delete the filter that a command just found. Four kinds of calls run other code:
//!
//! - opening a key raises `keymiss` if the key does not exist, `expired` if it has expired, and nothing if it exists;
//! - setting a value raises `new`, and if the key had a value, an event for its removal;
//! - [`Keyspace::notify_changed`] and [`Keyspace::notify_expire`] raise the event that they name;
//! - [`Keyspace::call`] runs a command.
//!
//! All four take the [`Keyspace`]. Each command has exactly one. An open key borrows the keyspace, and a filter
//! borrows its key. So the compiler ensures that nobody holds a filter or an open key while a listener may run.
//! (Several keys can be open at a time as long as all of them exist: see [`OpenKey::open_another`].)

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;

use redis_module::raw;

use super::args::Arg;
use super::context::Context;
use crate::family::Verb;
use crate::ffi::{OK, available, call};

/// The permission for calls that may run listeners. It costs no memory and no time.
pub(crate) struct Keyspace<'a>(PhantomData<&'a mut ()>);

impl Keyspace<'_> {
    /// Grants the permission.
    ///
    /// # Safety
    ///
    /// The caller must be a callback, such as a command, that the server calls while none of its values is borrowed. It
    /// may call this once.
    #[inline]
    pub(crate) unsafe fn new() -> Self {
        Keyspace(PhantomData)
    }

    /// Lends the permission.
    #[inline]
    pub(crate) fn reborrow(&mut self) -> Keyspace<'_> {
        Keyspace(PhantomData)
    }

    /// Notifies watchers and listeners that an event of the command's family changed the key.
    pub(crate) fn notify_changed(&mut self, ctx: &Context, key: Arg, event: Verb) {
        // SAFETY: the context and the key's name are alive.
        unsafe { call!(RedisModule_SignalModifiedKey(ctx.as_raw(), key.as_raw())) };
        self.notify(ctx, raw::REDISMODULE_NOTIFY_MODULE, ctx.family.name(event), key);
    }

    /// Notifies listeners that the key got a time to live, with the event that the server's own commands raise.
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

/// An open key. It is closed when dropped.
pub(crate) struct OpenKey<'k> {
    /// The key, or null if it was opened for reading and does not exist.
    key: *mut raw::RedisModuleKey,
    _keyspace: Keyspace<'k>,
}

impl<'k> OpenKey<'k> {
    #[inline]
    pub(crate) fn open(keyspace: Keyspace<'k>, ctx: &Context, name: Arg, mode: u32) -> OpenKey<'k> {
        // SAFETY: the context and the name are alive. Listeners may run: the caller gave up the permission.
        let key = unsafe { call!(RedisModule_OpenKey(ctx.as_raw(), name.as_raw(), mode as c_int)) };
        OpenKey { key, _keyspace: keyspace }
    }

    /// Opens another key while this one is open.
    ///
    /// # Safety
    ///
    /// If the other key has no value, a listener may have run and removed the values of keys that were opened before.
    /// The caller must then close these keys without using their values.
    pub(crate) unsafe fn open_another(&self, ctx: &Context, name: Arg, mode: u32) -> OpenKey<'k> {
        OpenKey::open(Keyspace(PhantomData), ctx, name, mode)
    }

    /// Returns true if the key was opened for reading and does not exist.
    #[inline]
    pub(crate) fn is_missing(&self) -> bool {
        self.key.is_null()
    }

    /// Returns the data type of the value, or null if the value is not of a module's type.
    #[inline]
    pub(crate) fn data_type(&self) -> *mut raw::RedisModuleType {
        // SAFETY: the key is open; null has no type.
        unsafe { call!(RedisModule_ModuleTypeGetType(self.key)) }
    }

    /// Returns the value, or null if it is not of a module's type. It lives while the key is open.
    #[inline]
    pub(crate) fn value(&self) -> *mut c_void {
        // SAFETY: the key is open; null has no value.
        unsafe { call!(RedisModule_ModuleTypeGetValue(self.key)) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: the key is open; null is empty.
        unsafe { call!(RedisModule_KeyType(self.key)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int }
    }

    /// Returns the time at which the key expires, in milliseconds since 1970, if it has one.
    pub(crate) fn expire_time(&self) -> Option<i64> {
        if self.is_missing() {
            return None;
        }
        // The first releases of Redis 6.2 only have a time to live.
        if available!(RedisModule_GetAbsExpire).is_some() {
            // SAFETY: the key is open.
            let time = unsafe { call!(RedisModule_GetAbsExpire(self.key)) };
            return (time >= 0).then_some(time);
        }
        // SAFETY: the key is open.
        let (left, now) = unsafe { (call!(RedisModule_GetExpire(self.key)), call!(RedisModule_Milliseconds())) };
        (left >= 0).then(|| now.saturating_add(left))
    }

    /// Sets the time at which the key expires, in milliseconds since 1970. The key must be open for writing. Does
    /// nothing if it has no value.
    pub(crate) fn set_expire_time(&mut self, time: i64) {
        // The first releases of Redis 6.2 only take a time to live.
        let is_absolute = available!(RedisModule_SetAbsExpire).is_some();
        // SAFETY: the key is open. The server rejects a key without a value, and one that is open for reading.
        unsafe {
            if is_absolute {
                call!(RedisModule_SetAbsExpire(self.key, time));
            } else {
                let now = call!(RedisModule_Milliseconds());
                call!(RedisModule_SetExpire(self.key, time.saturating_sub(now).max(0)));
            }
        }
    }

    /// Sets the value of a key that is open for writing, and closes the key. Its previous value and time to live are
    /// removed. Returns the permission to open the key again. The caller must open it again to use the value, since a
    /// listener may have removed it. If the server rejects the value, returns `None`, and the caller still owns the
    /// value.
    ///
    /// # Safety
    ///
    /// The key must be open for writing. `value` must be of `data_type`, and nobody else may own it.
    pub(crate) unsafe fn set_value(
        self,
        data_type: *mut raw::RedisModuleType,
        value: *mut c_void,
    ) -> Option<Keyspace<'k>> {
        // SAFETY: the key is open, and the rest is as promised by the caller. Listeners may run: `self` is consumed, so
        // the key cannot be used any more.
        let status = unsafe { call!(RedisModule_ModuleTypeSetValue(self.key, data_type, value)) };
        (status == OK).then_some(Keyspace(PhantomData))
    }
}

impl Drop for OpenKey<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.key.is_null() {
            // SAFETY: the key is open, and nothing borrows it any more.
            unsafe { call!(RedisModule_CloseKey(self.key)) };
        }
    }
}
