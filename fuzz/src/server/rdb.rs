//! Saves and loads files, and rewrites the append-only file.

use std::ffi::{c_char, c_int};
use std::ptr;

use oxbloom_filter::DecodeError;
use oxbloom_filter::internals::codec::{Sink, Source};
use redis_module::raw;

use super::keys::{Value, module_value, put};
use super::strings::{Strings, buffer, bytes, text};
use super::{Call, Circumstances, Words, call_module, check_leaks, with};
use crate::input::{Reader, Writer};

/// A file or payload that is read or written, or an append-only file.
pub(super) struct Stream<'a> {
    rest: Reader<'a>,
    written: Writer,
    failed: bool,
    commands: Vec<Words>,
}

/// Returns the type of a filter, by number, and its file.
pub(crate) fn save(instance: usize, key: &[u8]) -> Option<(usize, Vec<u8>)> {
    let (data_type, value, methods) = module_value(instance, key)?;
    let mut stream = Stream::reading(&[]);
    // SAFETY: the module created the value, and the stream outlives the call.
    unsafe { methods.rdb_save.expect("a callback")(stream.as_raw(), value) };
    check_leaks();
    Some((data_type, stream.written.0))
}

/// Restores a key from a file, whose version differs from the current one by `versions_on`. Returns true if the file is
/// valid.
pub(crate) fn restore(
    instance: usize,
    key: &[u8],
    (data_type, file): (usize, &[u8]),
    versions_on: c_int,
    circumstances: Circumstances,
) -> bool {
    let Some((version, methods)) =
        with(|state| state.types.get(data_type).map(|data_type| (data_type.version, data_type.methods)))
    else {
        return false;
    };
    with(|state| state.call = Call { circumstances, instance, ..Call::default() });
    let mut stream = Stream::reading(file);
    let load = methods.rdb_load.expect("a callback");
    // SAFETY: the stream outlives the call.
    let value = call_module(|| unsafe { load(stream.as_raw(), version + versions_on) });
    check_leaks();
    if value.is_null() {
        return false;
    }
    // A server rejects a payload that is too short or too long, whatever the module returns.
    if stream.failed || !stream.rest.0.is_empty() {
        // SAFETY: the module created the value, which is not used after this call.
        unsafe { methods.free.expect("a callback")(value) };
        return false;
    }
    put(instance, key, Value::Module(data_type, value));
    true
}

/// Returns the commands that restore a filter.
pub(crate) fn rewrite(instance: usize, key: &[u8]) -> Vec<Words> {
    let Some((_, value, methods)) = module_value(instance, key) else { return Vec::new() };
    let mut stream = Stream::reading(&[]);
    let name = Strings::new(&[key.to_vec()]);
    // SAFETY: the module created the value, and the stream and the name outlive the call.
    unsafe { methods.aof_rewrite.expect("a callback")(stream.as_raw(), name.0[0], value) };
    drop(name);
    check_leaks();
    stream.commands
}

impl<'a> Stream<'a> {
    fn reading(file: &'a [u8]) -> Stream<'a> {
        Stream { rest: Reader(file), written: Writer::default(), failed: false, commands: Vec::new() }
    }

    fn as_raw(&mut self) -> *mut raw::RedisModuleIO {
        ptr::from_mut(self).cast()
    }

    fn check<T>(&mut self, read: Result<T, DecodeError>) -> Option<T> {
        self.failed |= read.is_err();
        read.ok()
    }
}

/// Returns null: a server need not know the key.
pub(super) unsafe extern "C" fn get_key_name_from_io(_io: *mut raw::RedisModuleIO) -> *const raw::RedisModuleString {
    ptr::null()
}

/// # Safety
///
/// `io` must be the stream that a callback was called with.
pub(super) unsafe fn stream<'a>(io: *mut raw::RedisModuleIO) -> &'a mut Stream<'a> {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { &mut *io.cast() }
}

pub(super) unsafe extern "C" fn is_io_error(io: *mut raw::RedisModuleIO) -> c_int {
    // SAFETY: `io` is the stream that a callback was called with.
    unsafe { stream(io) }.failed.into()
}

pub(super) unsafe extern "C" fn load_unsigned(io: *mut raw::RedisModuleIO) -> u64 {
    // SAFETY: `io` is the stream that a callback was called with.
    let stream = unsafe { stream(io) };
    let read = stream.rest.unsigned();
    stream.check(read).unwrap_or(0)
}

pub(super) unsafe extern "C" fn load_double(io: *mut raw::RedisModuleIO) -> f64 {
    // SAFETY: `io` is the stream that a callback was called with.
    let stream = unsafe { stream(io) };
    let read = stream.rest.double();
    stream.check(read).unwrap_or(0.0)
}

pub(super) unsafe extern "C" fn load_string_buffer(io: *mut raw::RedisModuleIO, length: *mut usize) -> *mut c_char {
    // SAFETY: `io` is the stream that a callback was called with.
    let stream = unsafe { stream(io) };
    let read = stream.rest.string();
    let Some(string) = stream.check(read) else { return ptr::null_mut() };
    // SAFETY: the module passes a valid pointer for the length, and the new allocation has as many bytes.
    unsafe {
        *length = string.len();
        let copy = libc::malloc(string.len().max(1));
        copy.cast::<u8>().copy_from_nonoverlapping(string.as_ptr(), string.len());
        copy.cast()
    }
}

pub(super) unsafe extern "C" fn save_unsigned(io: *mut raw::RedisModuleIO, number: u64) {
    // SAFETY: `io` is the stream that a callback was called with.
    unsafe { stream(io) }.written.unsigned(number);
}

pub(super) unsafe extern "C" fn save_double(io: *mut raw::RedisModuleIO, number: f64) {
    // SAFETY: `io` is the stream that a callback was called with.
    unsafe { stream(io) }.written.double(number);
}

pub(super) unsafe extern "C" fn save_string_buffer(io: *mut raw::RedisModuleIO, start: *const c_char, length: usize) {
    // SAFETY: `io` is the stream that a callback was called with. The module passes a buffer of this length.
    unsafe { stream(io).written.string(buffer(start, length)) };
}

pub(super) unsafe extern "C" fn emit_aof(
    io: *mut raw::RedisModuleIO,
    command: *const c_char,
    format: *const c_char,
    key: *mut raw::RedisModuleString,
    arguments: *const *mut raw::RedisModuleString,
    count: usize,
) {
    // SAFETY: `io` is the stream that a callback was called with. The module passes texts that end with a NUL, a string
    // of the mock, and `count` more of them.
    unsafe {
        assert_eq!(bytes(format), b"sv");
        let arguments = (0..count).map(|index| text(*arguments.add(index)).to_vec());
        let words = [bytes(command), text(key).to_vec()].into_iter().chain(arguments).collect();
        stream(io).commands.push(words);
    }
}
