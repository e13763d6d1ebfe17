//! Replies in RESP2 and RESP3. The server translates: a boolean is an integer to a client of RESP2, a map an array.

use std::ffi::{CStr, c_long, c_longlong};

use super::args::Args;
use super::context::Context;
use super::edge::{call, guard};
use super::error::Error;
use super::feature;
use super::rejection;

impl Context<'_> {
    pub fn reply_ok(&self) {
        self.reply_simple(c"OK");
    }

    /// Ends the reply to a command: with the error, or if it was begun, with one in the place of each element that is missing.
    /// An array that is shorter than it was said to be would take the next replies for its own.
    pub fn refuse(&self, args: Args, error: Error) {
        guard(c"rejection", (), || rejection::record(self, args, error));
        while self.owed.get() > 0 {
            self.pay(1);
            match error {
                Error::WrongArity => call!(RedisModule_WrongArity(self.as_raw())),
                error => call!(RedisModule_ReplyWithError(self.as_raw(), error.text().as_ptr())),
            };
        }
    }

    /// Notes that so many replies are sent.
    #[inline]
    fn pay(&self, replies: usize) {
        self.owed.set(self.owed.get().saturating_sub(replies));
    }

    /// Notes that so many elements are to follow.
    fn owe(&self, elements: usize) {
        self.owed.set(self.owed.get() + elements);
    }

    pub fn reply_simple(&self, text: &CStr) {
        self.pay(1);
        call!(RedisModule_ReplyWithSimpleString(self.as_raw(), text.as_ptr()));
    }

    pub fn reply_bulk(&self, bytes: &[u8]) {
        self.pay(1);
        call!(RedisModule_ReplyWithStringBuffer(self.as_raw(), bytes.as_ptr().cast(), bytes.len()));
    }

    pub fn reply_null(&self) {
        self.pay(1);
        call!(RedisModule_ReplyWithNull(self.as_raw()));
    }

    /// An integer. RESP knows none above `2^63 - 1`, at which larger ones stop.
    pub fn reply_integer(&self, number: u64) {
        self.pay(1);
        let number = c_longlong::try_from(number).unwrap_or(c_longlong::MAX);
        call!(RedisModule_ReplyWithLongLong(self.as_raw(), number));
    }

    /// A number: in RESP2 the shortest text that reads back as the same number.
    pub fn reply_double(&self, number: f64) {
        if self.has_maps() {
            self.pay(1);
            call!(RedisModule_ReplyWithDouble(self.as_raw(), number));
        } else {
            self.reply_bulk(shortest(number).as_bytes());
        }
    }

    /// As [`reply_double`](Self::reply_double), of an estimate: four significant digits.
    pub fn reply_estimate(&self, number: f64) {
        self.reply_double(format!("{number:.3e}").parse().unwrap_or(number));
    }

    /// Yes or no: `1` or `0` in RESP2. Servers before 7.0 speak only that to modules.
    #[inline]
    pub fn reply_bool(&self, yes: bool) {
        self.reply_bools(&[yes]);
    }

    /// As [`reply_bool`](Self::reply_bool), of each.
    #[inline]
    pub fn reply_bools(&self, all: &[bool]) {
        self.pay(all.len());
        let has_booleans = feature::RESP3.is_offered();
        for &yes in all {
            if has_booleans {
                call!(RedisModule_ReplyWithBool(self.as_raw(), yes.into()));
            } else {
                call!(RedisModule_ReplyWithLongLong(self.as_raw(), yes.into()));
            }
        }
    }

    /// Starts an array of `length` replies.
    pub fn reply_array(&self, length: usize) {
        self.pay(1);
        self.owe(length);
        call!(RedisModule_ReplyWithArray(self.as_raw(), length as c_long));
    }

    /// Starts a map of `length` pairs.
    pub fn reply_map(&self, length: usize) {
        if feature::RESP3.is_offered() {
            self.pay(1);
            self.owe(2 * length);
            call!(RedisModule_ReplyWithMap(self.as_raw(), length as c_long));
        } else {
            self.reply_array(2 * length);
        }
    }
}

/// The shortest text that reads back as the same number, with an exponent where it would start with many zeros.
fn shortest(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-5 { format!("{number:e}") } else { number.to_string() }
}
