//! Replies in RESP2 and RESP3. The server translates for RESP2: a boolean becomes an integer, and a map an array.

use std::ffi::{CStr, c_int, c_long};

use super::args::Args;
use super::context::Context;
use super::feature;
use crate::family::Dialect;
use crate::ffi::{RawContext, available, call};
use crate::reply_error::Error;

type ReplyWithBool = unsafe extern "C" fn(RawContext, c_int) -> c_int;

impl Context<'_> {
    pub(crate) fn reply_ok(&self) {
        self.reply_simple(c"OK");
    }

    /// Replies with the error of a command with these arguments. If an array was already started, fills its missing
    /// elements with the error, since the client would otherwise consume the next replies as elements.
    pub(crate) fn reply_error(&self, args: Args, error: Error) {
        let text = error.reply(args, self.dialect());
        while self.pending_replies.get() > 0 {
            self.count_sent(1);
            // SAFETY: the context is alive, and the text ends with a NUL.
            unsafe {
                match error {
                    Error::WrongArity => call!(RedisModule_WrongArity(self.as_raw())),
                    _ => call!(RedisModule_ReplyWithError(self.as_raw(), text.as_ptr())),
                }
            };
        }
    }

    #[inline]
    pub(super) fn count_sent(&self, replies: usize) {
        self.pending_replies.set(self.pending_replies.get().saturating_sub(replies));
    }

    fn count_started(&self, elements: usize) {
        self.count_sent(1);
        self.pending_replies.set(self.pending_replies.get() + elements);
    }

    pub(crate) fn reply_simple(&self, text: &CStr) {
        self.count_sent(1);
        // SAFETY: the context is alive, and the text ends with a NUL.
        unsafe { call!(RedisModule_ReplyWithSimpleString(self.as_raw(), text.as_ptr())) };
    }

    pub(crate) fn reply_bulk(&self, bytes: &[u8]) {
        self.count_sent(1);
        // SAFETY: the context is alive, and the server copies the bytes.
        unsafe { call!(RedisModule_ReplyWithStringBuffer(self.as_raw(), bytes.as_ptr().cast(), bytes.len())) };
    }

    pub(crate) fn reply_null(&self) {
        self.count_sent(1);
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithNull(self.as_raw())) };
    }

    /// Replies with an integer. The maximum in RESP is `2^63 - 1`, which is also sent for larger numbers.
    pub(crate) fn reply_integer(&self, number: u64) {
        self.reply_signed(i64::try_from(number).unwrap_or(i64::MAX));
    }

    pub(crate) fn reply_signed(&self, number: i64) {
        self.count_sent(1);
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithLongLong(self.as_raw(), number)) };
    }

    /// Replies with a double; in RESP2, with the shortest text that parses to the same number.
    pub(crate) fn reply_double(&self, number: f64) {
        if self.has_maps() {
            self.count_sent(1);
            // SAFETY: the context is alive.
            unsafe { call!(RedisModule_ReplyWithDouble(self.as_raw(), number)) };
        } else {
            self.reply_bulk(shortest(number).as_bytes());
        }
    }

    /// Replies as [`reply_double`](Self::reply_double), rounded to four significant digits.
    pub(crate) fn reply_estimate(&self, number: f64) {
        self.reply_double(format!("{number:.3e}").parse().unwrap_or(number));
    }

    /// Replies with a boolean: `1` or `0` in RESP2, on servers before 7.0, which do not offer RESP3 to modules, and in
    /// valkey-bloom's dialect.
    #[inline]
    pub(crate) fn reply_bool(&self, yes: bool) {
        self.count_sent(1);
        self.reply_one_bool(self.boolean_reply(), yes);
    }

    /// Replies with several booleans, each as [`reply_bool`](Self::reply_bool) does.
    #[inline]
    pub(crate) fn reply_bools(&self, all: &[bool]) {
        self.count_sent(all.len());
        let reply = self.boolean_reply();
        all.iter().for_each(|&yes| self.reply_one_bool(reply, yes));
    }

    /// Returns the server's function for booleans, unless clients get integers. Whoever has it has all of RESP3: to ask
    /// for more would cost each look-up some instructions.
    #[inline]
    fn boolean_reply(&self) -> Option<ReplyWithBool> {
        available!(RedisModule_ReplyWithBool).filter(|_| self.dialect() == Dialect::RedisBloom)
    }

    #[inline]
    fn reply_one_bool(&self, reply: Option<ReplyWithBool>, yes: bool) {
        // SAFETY: the context is alive.
        unsafe {
            match reply {
                Some(reply) => reply(self.as_raw(), yes.into()),
                None => call!(RedisModule_ReplyWithLongLong(self.as_raw(), yes.into())),
            }
        };
    }

    pub(crate) fn reply_array(&self, length: usize) {
        self.count_started(length);
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithArray(self.as_raw(), length as c_long)) };
    }

    /// Starts a map of `length` pairs.
    pub(crate) fn reply_map(&self, length: usize) {
        if feature::RESP3.is_offered() {
            self.count_started(2 * length);
            // SAFETY: the context is alive.
            unsafe { call!(RedisModule_ReplyWithMap(self.as_raw(), length as c_long)) };
        } else {
            self.reply_array(2 * length);
        }
    }
}

/// Returns the shortest text that parses to the same number, with an exponent if it would otherwise start with many
/// zeros.
fn shortest(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-5 { format!("{number:e}") } else { number.to_string() }
}
