//! The arguments of a command, borrowed from the server without a copy, a reference count or an allocation.

use std::borrow::Cow;
use std::ffi::{CStr, c_double, c_int, c_longlong};
use std::fmt::{self, Write as _};
use std::marker::PhantomData;

use redis_module::raw;

use crate::ffi::{OK, RawString, call};

/// The arguments of a command. The first is its name.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a>(&'a [Arg<'a>]);

impl<'a> Args<'a> {
    /// Borrows the arguments that the server hands to a callback.
    ///
    /// # Safety
    ///
    /// `argv` must point to `argc` strings that stay alive, and unchanged, for `'a`.
    pub(crate) unsafe fn new(argv: *mut RawString, argc: c_int) -> Args<'a> {
        match usize::try_from(argc) {
            // SAFETY: as promised by the caller; an `Arg` is a pointer to a string.
            Ok(count @ 1..) if !argv.is_null() => Args(unsafe { std::slice::from_raw_parts(argv.cast(), count) }),
            _ => Args(&[]),
        }
    }

    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns argument `index`: 0 is the name, 1 usually the key. The arity check ensures that the argument exists.
    #[inline]
    pub(crate) fn at(self, index: usize) -> Arg<'a> {
        self.0[index]
    }

    /// Returns the arguments from `index` on.
    pub(crate) fn from(self, index: usize) -> Args<'a> {
        Args(self.0.get(index..).unwrap_or(&[]))
    }

    /// Returns the first `count` arguments, or all if there are fewer.
    pub(crate) fn up_to(self, count: usize) -> Args<'a> {
        Args(self.0.get(..count).unwrap_or(self.0))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Arg<'a>> {
        self.0.iter().copied()
    }

    /// Splits the arguments into groups of at most `size`.
    pub(crate) fn chunks(self, size: usize) -> impl Iterator<Item = Args<'a>> {
        self.0.chunks(size).map(Args)
    }

    /// Returns the arguments as a slice, to be handed back to the server.
    pub(crate) fn as_slice(self) -> &'a [Arg<'a>] {
        self.0
    }
}

/// The number of arguments that a command takes, its name included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arity {
    pub min: usize,
    pub max: usize,
}

impl Arity {
    pub(crate) const fn exactly(count: usize) -> Arity {
        Arity { min: count, max: count }
    }

    pub(crate) const fn at_least(min: usize) -> Arity {
        Arity { min, max: usize::MAX }
    }

    pub(crate) fn accepts(self, count: usize) -> bool {
        (self.min..=self.max).contains(&count)
    }

    /// Returns the arity as the server encodes it: negative for "at least".
    pub(crate) fn as_server_counts(self) -> c_int {
        let min = c_int::try_from(self.min).unwrap_or(c_int::MAX);
        if self.max == self.min { min } else { -min }
    }
}

/// One argument, which may be any bytes.
///
/// It is a pointer to a string of the server, which lives for `'a`, and has the memory layout of a pointer.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Arg<'a> {
    string: RawString,
    lifetime: PhantomData<&'a raw::RedisModuleString>,
}

impl<'a> Arg<'a> {
    /// Borrows a string of the server.
    ///
    /// # Safety
    ///
    /// `string` must stay alive, and unchanged, for `'a`.
    pub(crate) unsafe fn new(string: RawString) -> Arg<'a> {
        Arg { string, lifetime: PhantomData }
    }

    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        let mut length = 0;
        // SAFETY: the string is alive, and the server writes its length to a place of ours.
        let start = unsafe { call!(RedisModule_StringPtrLen(self.string, &mut length)) };
        // SAFETY: the server returns its string's address and length, and the string stays for `'a`.
        unsafe { std::slice::from_raw_parts(start.cast(), length) }
    }

    pub(crate) fn lossy(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes())
    }

    /// Returns the beginning of the argument, escaped for the log: the bytes of a client can end neither the line nor
    /// the quotes.
    pub(crate) fn shown(self) -> Shown<'a> {
        Shown(self)
    }

    /// Returns true if this is the option `name`, ignoring case.
    pub(crate) fn is(self, name: &str) -> bool {
        self.bytes().eq_ignore_ascii_case(name.as_bytes())
    }

    /// Returns the index of the word that this is, ignoring case.
    pub(crate) fn index_in(self, words: &[&CStr]) -> Option<usize> {
        words.iter().position(|word| word.to_bytes().eq_ignore_ascii_case(self.bytes()))
    }

    /// Parses an integer as the server's own commands do: decimal, without spaces, leading zeros or plus.
    pub(crate) fn integer(self) -> Option<i64> {
        let mut number: c_longlong = 0;
        // SAFETY: the string is alive, and the server writes the number to a place of ours.
        let status = unsafe { call!(RedisModule_StringToLongLong(self.string, &mut number)) };
        (status == OK).then_some(number)
    }

    /// Parses an integer as valkey-bloom does: decimal, without spaces; leading zeros and a plus are allowed.
    pub(crate) fn loose_integer(self) -> Option<i64> {
        str::from_utf8(self.bytes()).ok()?.parse().ok()
    }

    /// Parses an integer from 0 to `2^64 - 1`, as [`integer`](Self::integer) does.
    pub(crate) fn unsigned(self) -> Option<u64> {
        let digits = std::str::from_utf8(self.bytes()).ok()?;
        let number: u64 = digits.parse().ok()?;
        (number.to_string() == digits).then_some(number)
    }

    /// Parses a floating-point number as the server's own commands do.
    pub(crate) fn float(self) -> Option<f64> {
        let mut number: c_double = 0.0;
        // SAFETY: the string is alive, and the server writes the number to a place of ours.
        let status = unsafe { call!(RedisModule_StringToDouble(self.string, &mut number)) };
        (status == OK).then_some(number)
    }

    /// Parses a floating-point number as valkey-bloom does, which knows `nan`.
    pub(crate) fn loose_float(self) -> Option<f64> {
        str::from_utf8(self.bytes()).ok()?.parse().ok()
    }

    pub(crate) fn as_raw(self) -> RawString {
        self.string
    }
}

/// The escaped beginning of an argument. See [`Arg::shown`].
pub(crate) struct Shown<'a>(Arg<'a>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX: usize = 128;
        let bytes = self.0.bytes();
        for chunk in bytes[..bytes.len().min(MAX)].utf8_chunks() {
            write!(f, "{}", chunk.valid().escape_debug())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        if bytes.len() > MAX { f.write_str("...") } else { Ok(()) }
    }
}
