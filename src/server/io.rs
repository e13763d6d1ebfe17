//! The files that a data type's callbacks read and write.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use redis_module::raw;

use super::args::Arg;
use super::context::{OwnedString, Server};
use crate::allocation::can_allocate;
use crate::ffi::{RawString, call};
use oxbloom_filter::DecodeError;
use oxbloom_filter::internals::Bytes;
use oxbloom_filter::internals::codec::{Sink, Source, chunk};

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

    /// Returns true if the last read or an earlier one failed.
    pub(crate) fn has_failed(&self) -> bool {
        // SAFETY: the file is open.
        unsafe { call!(RedisModule_IsIOError(self.io)) != 0 }
    }

    /// Reads a string of about `expected` bytes. If that fails, the server does not report the reason. This assumes a
    /// lack of memory if twice as many bytes, for the string compressed and decompressed, cannot be allocated now.
    fn read_string(&mut self, expected: usize) -> Result<ServerBuffer, DecodeError> {
        let mut length = 0;
        // SAFETY: the file is open, and the server writes the length to a place of ours.
        let start = NonNull::new(unsafe { call!(RedisModule_LoadStringBuffer(self.io, &mut length)) });
        let buffer = start.map(|start| ServerBuffer { start, length });
        let is_short = || !can_allocate(expected.saturating_mul(2));
        let failure = || if is_short() { DecodeError::OutOfMemory } else { DecodeError::Corrupt };
        buffer.filter(|_| !self.has_failed()).ok_or_else(failure)
    }

    /// Writes a command with these arguments after the key to an append-only file.
    pub(crate) fn write_command(&mut self, command: &CStr, key: Arg, arguments: &[&[u8]]) {
        let owned: Vec<_> = arguments.iter().map(|bytes| Server::without_context().string(bytes)).collect();
        let arguments: Vec<_> = owned.iter().map(OwnedString::as_arg).collect();
        let (strings, count) = (arguments.as_ptr().cast::<RawString>(), arguments.len());
        let (command, format, key) = (command.as_ptr(), c"sv".as_ptr(), key.as_raw());
        // SAFETY: the file is open, and the arguments match the format: a string, and an array of strings with its
        // length. All are alive, and an `Arg` is a pointer to a string.
        unsafe { call!(RedisModule_EmitAOF(self.io, command, format, key, strings, count)) };
    }
}

/// RDB values.
impl Source for Io<'_> {
    type String = ServerBuffer;

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        // SAFETY: the file is open.
        let number = unsafe { call!(RedisModule_LoadUnsigned(self.io)) };
        if self.has_failed() { Err(DecodeError::Corrupt) } else { Ok(number) }
    }

    fn double(&mut self) -> Result<f64, DecodeError> {
        // SAFETY: the file is open.
        let number = unsafe { call!(RedisModule_LoadDouble(self.io)) };
        if self.has_failed() { Err(DecodeError::Corrupt) } else { Ok(number) }
    }

    fn string(&mut self) -> Result<ServerBuffer, DecodeError> {
        self.read_string(chunk::BITS_CHUNK_BYTES)
    }

    fn array(&mut self, bytes: u64) -> Result<Bytes, DecodeError> {
        let expected = usize::try_from(bytes).unwrap_or(usize::MAX);
        if !can_allocate(expected) {
            return Err(DecodeError::OutOfMemory);
        }
        let buffer = self.read_string(expected)?;
        // An empty allocation cannot be adopted.
        if buffer.length == 0 {
            return Ok(Bytes::empty());
        }
        let buffer = ManuallyDrop::new(buffer);
        // SAFETY: the server allocated the buffer with its allocator, as it does for our requests of bytes, and handed
        // it over. It has at least one byte.
        Ok(unsafe { Bytes::adopt(buffer.start.cast(), buffer.length) })
    }
}

impl Sink for Io<'_> {
    fn unsigned(&mut self, number: u64) {
        // SAFETY: the file is open.
        unsafe { call!(RedisModule_SaveUnsigned(self.io, number)) };
    }

    fn double(&mut self, number: f64) {
        // SAFETY: the file is open.
        unsafe { call!(RedisModule_SaveDouble(self.io, number)) };
    }

    fn string(&mut self, bytes: &[u8]) {
        // Servers before Redis 7.0 parse a short string as a number, and expect a zero after it, even if it is empty.
        let terminated = (bytes.len() <= MAX_NUMBER_LEN).then(|| [bytes, &[0]].concat());
        let start = terminated.as_deref().unwrap_or(bytes).as_ptr();
        // SAFETY: the file is open, and the server copies the bytes.
        unsafe { call!(RedisModule_SaveStringBuffer(self.io, start.cast(), bytes.len())) };
    }
}

/// Bytes that the server allocated for us with its allocator. They are freed when dropped.
pub(crate) struct ServerBuffer {
    start: NonNull<c_char>,
    length: usize,
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
