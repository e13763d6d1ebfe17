//! The files that a data type's callbacks read and write.

use std::ffi::{CStr, c_char, c_longlong};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use redis_module::raw;

use super::args::Arg;
use crate::ffi::call;

/// The longest string that the server may store as a number, in bytes.
const MAX_NUMBER_LEN: usize = 11;

/// An RDB file or DUMP payload that is read or written, or an append-only file that is written.
pub(crate) struct Io<'a> {
    io: *mut raw::RedisModuleIO,
    lifetime: PhantomData<&'a mut raw::RedisModuleIO>,
}

impl Io<'_> {
    /// Wraps a file.
    ///
    /// # Safety
    ///
    /// `io` must be the pointer that the server handed to a callback of a data type, and live for the wrapper's
    /// lifetime.
    pub(crate) unsafe fn new(io: *mut raw::RedisModuleIO) -> Self {
        Io { io, lifetime: PhantomData }
    }

    /// Returns the name of the key whose value is read or written, if the server knows it.
    pub(crate) fn key_name(&self) -> Option<Arg<'_>> {
        // SAFETY: the file is open.
        let name = unsafe { call!(RedisModule_GetKeyNameFromIO(self.io)) }.cast_mut();
        // SAFETY: the name lives as long as the file is open.
        (!name.is_null()).then(|| unsafe { Arg::new(name) })
    }

    /// Returns `value`, or `None` if this read or an earlier one failed.
    fn unless_failed<T>(&self, value: T) -> Option<T> {
        // SAFETY: the file is open.
        (unsafe { call!(RedisModule_IsIOError(self.io)) } == 0).then_some(value)
    }

    pub(crate) fn read_unsigned(&mut self) -> Option<u64> {
        // SAFETY: the file is open.
        let number = unsafe { call!(RedisModule_LoadUnsigned(self.io)) };
        self.unless_failed(number)
    }

    pub(crate) fn read_double(&mut self) -> Option<f64> {
        // SAFETY: the file is open.
        let number = unsafe { call!(RedisModule_LoadDouble(self.io)) };
        self.unless_failed(number)
    }

    pub(crate) fn read_string(&mut self) -> Option<ServerBuffer> {
        let mut length = 0;
        // SAFETY: the file is open, and the server writes the length to a place of ours.
        let start = NonNull::new(unsafe { call!(RedisModule_LoadStringBuffer(self.io, &mut length)) });
        let buffer = start.map(|start| ServerBuffer { start, length });
        self.unless_failed(buffer).flatten()
    }

    pub(crate) fn write_unsigned(&mut self, number: u64) {
        // SAFETY: the file is open.
        unsafe { call!(RedisModule_SaveUnsigned(self.io, number)) };
    }

    pub(crate) fn write_double(&mut self, number: f64) {
        // SAFETY: the file is open.
        unsafe { call!(RedisModule_SaveDouble(self.io, number)) };
    }

    pub(crate) fn write_string(&mut self, bytes: &[u8]) {
        // Servers before Redis 7.0 parse a short string as a number, and expect a zero after it, even if it is empty.
        let mut terminated = [0; MAX_NUMBER_LEN + 1];
        let start = if bytes.len() <= MAX_NUMBER_LEN {
            terminated[..bytes.len()].copy_from_slice(bytes);
            terminated.as_ptr()
        } else {
            bytes.as_ptr()
        };
        // SAFETY: the file is open, and the server copies the bytes.
        unsafe { call!(RedisModule_SaveStringBuffer(self.io, start.cast(), bytes.len())) };
    }

    /// Writes `command key number data` to an append-only file.
    pub(crate) fn write_command(&mut self, command: &CStr, key: Arg, number: u64, data: &[u8]) {
        // SAFETY: the file is open, and the arguments match the format: a string, a number, and bytes with their
        // length.
        unsafe {
            call!(RedisModule_EmitAOF(
                self.io,
                command.as_ptr(),
                c"slb".as_ptr(),
                key.as_raw(),
                number as c_longlong,
                data.as_ptr().cast::<c_char>(),
                data.len()
            ))
        };
    }
}

/// Bytes that the server allocated for us with its allocator. They are freed when dropped.
pub(crate) struct ServerBuffer {
    start: NonNull<c_char>,
    length: usize,
}

impl ServerBuffer {
    /// Returns the allocation, which the caller must free, and its length.
    pub(crate) fn into_raw(self) -> (NonNull<u8>, usize) {
        let buffer = ManuallyDrop::new(self);
        (buffer.start.cast(), buffer.length)
    }
}

impl AsRef<[u8]> for ServerBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the server returned the address and the length, and the allocation is ours until dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.length) }
    }
}

impl Drop for ServerBuffer {
    fn drop(&mut self) {
        // SAFETY: the allocation is ours, and nothing borrows it any more.
        unsafe { call!(RedisModule_Free(self.start.as_ptr().cast())) };
    }
}
