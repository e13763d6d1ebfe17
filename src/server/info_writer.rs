//! Writes a section of INFO.

use std::ffi::CStr;
use std::marker::PhantomData;

use redis_module::raw;

use crate::ffi::{OK, call};

/// The module's section of INFO, while the server collects it.
pub(crate) struct InfoSection<'a> {
    info: *mut raw::RedisModuleInfoCtx,
    lifetime: PhantomData<&'a raw::RedisModuleInfoCtx>,
}

impl InfoSection<'_> {
    /// Begins the section. Returns `None` if the caller of INFO did not request it.
    ///
    /// # Safety
    ///
    /// `info` must be the pointer that the server handed to the module's callback for INFO, and live for the wrapper's
    /// lifetime.
    pub(crate) unsafe fn begin(info: *mut raw::RedisModuleInfoCtx) -> Option<Self> {
        // SAFETY: as promised by the caller; the name ends with a NUL.
        let status = unsafe { call!(RedisModule_InfoAddSection(info, c"".as_ptr())) };
        (status == OK).then_some(InfoSection { info, lifetime: PhantomData })
    }

    pub(crate) fn number(&self, name: &CStr, number: u64) {
        // SAFETY: the section is open, and the name ends with a NUL.
        unsafe { call!(RedisModule_InfoAddFieldULongLong(self.info, name.as_ptr(), number)) };
    }

    pub(crate) fn text(&self, name: &CStr, text: &CStr) {
        // SAFETY: the section is open, and both texts end with a NUL.
        unsafe { call!(RedisModule_InfoAddFieldCString(self.info, name.as_ptr(), text.as_ptr())) };
    }

    /// Writes a field that consists of several numbers, in one line.
    pub(crate) fn numbers<const N: usize>(&self, name: &CStr, numbers: [(&CStr, u64); N]) {
        // SAFETY: the section is open, and the name ends with a NUL.
        unsafe { call!(RedisModule_InfoBeginDictField(self.info, name.as_ptr())) };
        numbers.into_iter().for_each(|(name, number)| self.number(name, number));
        // SAFETY: the section is open, and a field of several numbers was begun.
        unsafe { call!(RedisModule_InfoEndDictField(self.info)) };
    }
}
