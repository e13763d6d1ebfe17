//! A command's arguments, borrowed from the server: no copy, no reference count, no allocation.

use std::borrow::Cow;
use std::ffi::{c_double, c_longlong};
use std::fmt::{self, Write as _};
use std::marker::PhantomData;

use redis_module::raw;

use super::edge::{OK, call};

/// The arguments of a command, its name first.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [*mut raw::RedisModuleString]);

impl<'a> Args<'a> {
    /// # Safety
    ///
    /// `argv` must point to `argc` strings that stay alive, and unchanged, for `'a`.
    pub unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: usize) -> Args<'a> {
        if argv.is_null() || argc == 0 {
            return Args(&[]);
        }
        // SAFETY: as promised by the caller.
        Args(unsafe { std::slice::from_raw_parts(argv, argc) })
    }

    pub fn len(self) -> usize {
        self.0.len()
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Argument `index`. The name is argument 0, the key usually 1; the arity check saw to it that they are there.
    #[inline]
    pub fn at(self, index: usize) -> Arg<'a> {
        Arg { string: self.0[index], lifetime: PhantomData }
    }

    /// The arguments from `index` on.
    pub fn from(self, index: usize) -> Args<'a> {
        Args(self.0.get(index..).unwrap_or(&[]))
    }

    /// The first `count` arguments, or all if they are fewer.
    pub fn up_to(self, count: usize) -> Args<'a> {
        Args(self.0.get(..count).unwrap_or(self.0))
    }

    pub fn iter(self) -> impl Iterator<Item = Arg<'a>> {
        self.0.iter().map(|&string| Arg { string, lifetime: PhantomData })
    }

    /// The arguments in groups of at most `size`.
    pub fn chunks(self, size: usize) -> impl Iterator<Item = Args<'a>> {
        self.0.chunks(size).map(Args)
    }

    /// The strings as the server knows them, to be handed back to it.
    pub fn as_raw(self) -> &'a [*mut raw::RedisModuleString] {
        self.0
    }
}

/// One argument: any bytes.
#[derive(Clone, Copy)]
pub struct Arg<'a> {
    string: *mut raw::RedisModuleString,
    lifetime: PhantomData<&'a raw::RedisModuleString>,
}

impl<'a> Arg<'a> {
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let mut length = 0;
        let start = call!(RedisModule_StringPtrLen(self.string, &mut length));
        // SAFETY: the server returns its string's address and length, and the string stays for `'a`.
        unsafe { std::slice::from_raw_parts(start.cast(), length) }
    }

    pub fn lossy(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes())
    }

    /// For the log: the beginning, in one line. What a client made up ends neither the line nor the quotes around it.
    pub fn shown(self) -> Shown<'a> {
        Shown(self)
    }

    /// Whether this is the option `name`, in whatever case.
    pub fn is(self, name: &str) -> bool {
        self.bytes().eq_ignore_ascii_case(name.as_bytes())
    }

    /// The number, as the server's own commands read numbers: decimal, no spaces, no leading zeros or plus.
    pub fn integer(self) -> Option<i64> {
        let mut number: c_longlong = 0;
        let status = call!(RedisModule_StringToLongLong(self.string, &mut number));
        (status == OK).then_some(number)
    }

    /// As [`integer`](Self::integer), up to `2^64 - 1`.
    pub fn unsigned(self) -> Option<u64> {
        let digits = std::str::from_utf8(self.bytes()).ok()?;
        let number: u64 = digits.parse().ok()?;
        (number.to_string() == digits).then_some(number)
    }

    /// The number, as the server's own commands read floating-point numbers.
    pub fn float(self) -> Option<f64> {
        let mut number: c_double = 0.0;
        let status = call!(RedisModule_StringToDouble(self.string, &mut number));
        (status == OK).then_some(number)
    }

    pub fn as_raw(self) -> *mut raw::RedisModuleString {
        self.string
    }
}

/// See [`Arg::shown`].
pub struct Shown<'a>(Arg<'a>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 128;
        let bytes = self.0.bytes();
        for chunk in bytes[..bytes.len().min(MOST)].utf8_chunks() {
            write!(f, "{}", chunk.valid().escape_debug())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        if bytes.len() > MOST { f.write_str("...") } else { Ok(()) }
    }
}
