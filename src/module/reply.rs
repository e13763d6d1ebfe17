//! Replies in RESP2 and RESP3. The server translates: a boolean is an integer to a client of RESP2, a map an array.

use std::ffi::{CStr, c_long, c_longlong};

use super::context::Context;
use super::edge::{available, call};
use super::error::Error;

impl Context<'_> {
    pub fn reply_ok(&self) {
        self.reply_simple(c"OK");
    }

    pub fn reply_error(&self, error: Error) {
        match error {
            Error::WrongArity => call!(RedisModule_WrongArity(self.as_raw())),
            error => call!(RedisModule_ReplyWithError(self.as_raw(), error.text().as_ptr())),
        };
    }

    pub fn reply_simple(&self, text: &CStr) {
        call!(RedisModule_ReplyWithSimpleString(self.as_raw(), text.as_ptr()));
    }

    pub fn reply_bulk(&self, bytes: &[u8]) {
        call!(RedisModule_ReplyWithStringBuffer(self.as_raw(), bytes.as_ptr().cast(), bytes.len()));
    }

    pub fn reply_null(&self) {
        call!(RedisModule_ReplyWithNull(self.as_raw()));
    }

    /// An integer. RESP knows none above `2^63 - 1`, at which larger ones stop.
    pub fn reply_integer(&self, number: u64) {
        let number = c_longlong::try_from(number).unwrap_or(c_longlong::MAX);
        call!(RedisModule_ReplyWithLongLong(self.as_raw(), number));
    }

    pub fn reply_double(&self, number: f64) {
        call!(RedisModule_ReplyWithDouble(self.as_raw(), number));
    }

    /// Yes or no: `1` or `0` in RESP2. Servers before 7.0 speak only that to modules.
    #[inline]
    pub fn reply_bool(&self, yes: bool) {
        if available!(RedisModule_ReplyWithBool).is_some() {
            call!(RedisModule_ReplyWithBool(self.as_raw(), yes.into()));
        } else {
            self.reply_integer(yes.into());
        }
    }

    /// Starts an array of `length` replies.
    pub fn reply_array(&self, length: usize) {
        call!(RedisModule_ReplyWithArray(self.as_raw(), length as c_long));
    }

    /// Starts a map of `length` pairs.
    pub fn reply_map(&self, length: usize) {
        if available!(RedisModule_ReplyWithMap).is_some() {
            call!(RedisModule_ReplyWithMap(self.as_raw(), length as c_long));
        } else {
            self.reply_array(2 * length);
        }
    }
}
