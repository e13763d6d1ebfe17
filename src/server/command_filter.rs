//! Command filters: callbacks that see each command as soon as the server has parsed it, also those of scripts and of
//! other modules.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use super::args::Arg;
use crate::ffi::{RawContext, call};

/// A command filter that can be registered and unregistered.
pub(crate) struct CommandFilter {
    callback: unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx),
    /// The server's handle, or null while the filter is not registered.
    handle: AtomicPtr<raw::RedisModuleCommandFilter>,
}

impl CommandFilter {
    pub(crate) const fn new(callback: unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx)) -> CommandFilter {
        CommandFilter { callback, handle: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    pub(crate) fn is_registered(&self) -> bool {
        !self.handle.load(Ordering::Relaxed).is_null()
    }

    /// Registers the filter, unless it is registered.
    ///
    /// # Safety
    ///
    /// `ctx` must be alive.
    pub(crate) unsafe fn register(&self, ctx: RawContext) {
        if !self.is_registered() {
            // SAFETY: as promised by the caller; the callback has the type that the server expects.
            let handle = unsafe { call!(RedisModule_RegisterCommandFilter(ctx, Some(self.callback), 0)) };
            self.handle.store(handle, Ordering::Relaxed);
        }
    }

    /// Unregisters the filter, if it is registered.
    ///
    /// # Safety
    ///
    /// `ctx` must be alive. The server must not be passing a command to its filters: it walks through a list of them.
    pub(crate) unsafe fn unregister(&self, ctx: RawContext) {
        let handle = self.handle.swap(ptr::null_mut(), Ordering::Relaxed);
        if !handle.is_null() {
            // SAFETY: as promised by the caller; the server returned the handle when the filter was registered.
            unsafe { call!(RedisModule_UnregisterCommandFilter(ctx, handle)) };
        }
    }
}

/// A command that the server passes to a filter.
#[derive(Clone, Copy)]
pub(crate) struct FilteredCommand<'a> {
    command: *mut raw::RedisModuleCommandFilterCtx,
    lifetime: PhantomData<&'a raw::RedisModuleCommandFilterCtx>,
}

impl<'a> FilteredCommand<'a> {
    /// Wraps a command that the server passes to a callback.
    ///
    /// # Safety
    ///
    /// `command` must be the server's, and stay alive for `'a`.
    pub(crate) unsafe fn new(command: *mut raw::RedisModuleCommandFilterCtx) -> FilteredCommand<'a> {
        FilteredCommand { command, lifetime: PhantomData }
    }

    /// Returns the number of arguments, the name included.
    pub(crate) fn len(self) -> c_int {
        // SAFETY: the command is alive.
        unsafe { call!(RedisModule_CommandFilterArgsCount(self.command)) }
    }

    /// Returns an argument. There must be one with this index.
    pub(crate) fn at(self, index: c_int) -> Arg<'a> {
        // SAFETY: the command is alive, and so are its arguments.
        unsafe { Arg::new(call!(RedisModule_CommandFilterArgGet(self.command, index))) }
    }
}
