//! The server's strings, and its parsing of numbers.

use std::ffi::{CStr, c_char, c_int, c_longlong};
use std::ptr;

use redis_module::raw;

use super::{ERR, OK, with};

/// Strings of the server.
pub(super) struct Strings(pub(super) Vec<*mut raw::RedisModuleString>);

impl Strings {
    pub(super) fn new(words: &[Vec<u8>]) -> Strings {
        Strings(words.iter().map(|word| Box::into_raw(Box::new(word.clone().into_boxed_slice())).cast()).collect())
    }
}

impl Drop for Strings {
    fn drop(&mut self) {
        // SAFETY: `new` created the strings, and the module no longer uses them.
        self.0.iter().for_each(|&string| drop(unsafe { Box::from_raw(string.cast::<Box<[u8]>>()) }));
    }
}

/// Returns the bytes of a string.
///
/// # Safety
///
/// The string must come from the mock, and must not be freed during `'a`.
pub(super) unsafe fn text<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { &*string.cast::<Box<[u8]>>() }
}

/// # Safety
///
/// The contract is that of `slice::from_raw_parts`, but `start` may be null if the buffer is empty.
pub(super) unsafe fn buffer<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller upholds the contract of this function.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

/// # Safety
///
/// The contract is that of `CStr::from_ptr`.
pub(super) unsafe fn bytes(text: *const c_char) -> Vec<u8> {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()
}

/// Parses a whole number as the server does.
pub(crate) fn whole_number(text: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(text).ok()?;
    let number: i64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// Parses a number as the server does.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    let is_range_error = |number: f64| {
        std::io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE) && (number.is_infinite() || number == 0.0)
    };
    if text.first().is_none_or(|first| first.is_ascii_whitespace() || *first == 0x0B) {
        return None;
    }
    let copy = [text, b"\0"].concat();
    let mut end = ptr::null_mut();
    // SAFETY: the text ends with a NUL, and the pointer for the end of the number is valid.
    let number = unsafe {
        *libc::__errno_location() = 0;
        libc::strtod(copy.as_ptr().cast(), &raw mut end)
    };
    let is_all = end.addr() - copy.as_ptr().addr() == text.len();
    (is_all && !number.is_nan() && !is_range_error(number)).then_some(number)
}

pub(super) unsafe extern "C" fn create_string(
    _ctx: *mut raw::RedisModuleCtx,
    start: *const c_char,
    length: usize,
) -> *mut raw::RedisModuleString {
    with(|state| state.call.strings += 1);
    // SAFETY: the module passes a buffer of this length.
    let copy: Box<[u8]> = unsafe { buffer(start, length) }.into();
    Box::into_raw(Box::new(copy)).cast()
}

pub(super) extern "C" fn free_string(_ctx: *mut raw::RedisModuleCtx, string: *mut raw::RedisModuleString) {
    with(|state| state.call.strings = state.call.strings.saturating_sub(1));
    // SAFETY: `create_string` created the string, which is not used after this call.
    drop(unsafe { Box::from_raw(string.cast::<Box<[u8]>>()) });
}

pub(super) unsafe extern "C" fn string_ptr_len(
    string: *const raw::RedisModuleString,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the string comes from the mock, and the module passes a valid pointer for its length.
    unsafe {
        *length = text(string).len();
        text(string).as_ptr().cast()
    }
}

pub(super) unsafe extern "C" fn string_to_long_long(
    string: *const raw::RedisModuleString,
    place: *mut c_longlong,
) -> c_int {
    // SAFETY: the string comes from the mock.
    let Some(number) = whole_number(unsafe { text(string) }) else { return ERR };
    // SAFETY: the module passes a valid pointer to a number.
    unsafe { *place = number };
    OK
}

pub(super) unsafe extern "C" fn string_to_double(string: *const raw::RedisModuleString, place: *mut f64) -> c_int {
    // SAFETY: the string comes from the mock.
    let Some(number) = number(unsafe { text(string) }) else { return ERR };
    // SAFETY: the module passes a valid pointer to a number.
    unsafe { *place = number };
    OK
}

pub(super) unsafe extern "C" fn command_filter_args_count(command: *mut raw::RedisModuleCommandFilterCtx) -> c_int {
    // SAFETY: `command` is what a command filter was called with.
    unsafe { &*command.cast::<Strings>() }.0.len() as c_int
}

pub(super) unsafe extern "C" fn command_filter_arg_get(
    command: *mut raw::RedisModuleCommandFilterCtx,
    position: c_int,
) -> *mut raw::RedisModuleString {
    // SAFETY: `command` is what a command filter was called with.
    unsafe { &*command.cast::<Strings>() }.0[position as usize]
}
