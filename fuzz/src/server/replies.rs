//! The module's replies.

use std::ffi::{c_char, c_int, c_long, c_longlong};

use redis_module::raw;

use super::strings::{buffer, bytes};
use super::{OK, with};

/// A reply.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    Null,
    Integer(i64),
    Double(f64),
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<Reply>),
}

/// A part of a reply.
pub(super) enum Part {
    Whole(Reply),
    Array(usize),
    Map(usize),
}

impl Reply {
    pub(super) fn of(parts: &mut impl Iterator<Item = Part>) -> Reply {
        match parts.next().expect("a complete reply") {
            Part::Whole(reply) => reply,
            Part::Array(length) => Reply::Array((0..length).map(|_| Reply::of(parts)).collect()),
            Part::Map(length) => Reply::Map((0..2 * length).map(|_| Reply::of(parts)).collect()),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// Returns the elements of an array, or the reply as the only element.
    pub(crate) fn elements(&self) -> &[Reply] {
        if let Reply::Array(elements) = self { elements } else { std::slice::from_ref(self) }
    }

    /// Returns the numbers among the elements. Only the last element may be an error.
    pub(crate) fn integers(&self) -> Vec<i64> {
        let number = |reply: &Reply| if let Reply::Integer(number) = reply { Some(*number) } else { None };
        self.elements().iter().filter_map(number).collect()
    }
}

pub(super) fn reply(part: Part) -> c_int {
    with(|state| {
        assert!(!state.call.is_request);
        state.call.parts.push(part);
    });
    OK
}

pub(super) unsafe extern "C" fn wrong_arity(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    reply(Part::Whole(Reply::Error(b"ERR wrong number of arguments".to_vec())))
}

pub(super) unsafe extern "C" fn reply_with_error(_ctx: *mut raw::RedisModuleCtx, error: *const c_char) -> c_int {
    // SAFETY: the module passes a text that ends with a NUL.
    let error = unsafe { bytes(error) };
    assert!(error != b"ERR internal error: see the log, and report it");
    reply(Part::Whole(Reply::Error(error)))
}

pub(super) unsafe extern "C" fn reply_with_simple_string(
    _ctx: *mut raw::RedisModuleCtx,
    simple: *const c_char,
) -> c_int {
    // SAFETY: the module passes a text that ends with a NUL.
    reply(Part::Whole(Reply::Simple(unsafe { bytes(simple) })))
}

pub(super) unsafe extern "C" fn reply_with_string_buffer(
    _ctx: *mut raw::RedisModuleCtx,
    start: *const c_char,
    length: usize,
) -> c_int {
    // SAFETY: the module passes a buffer of this length.
    reply(Part::Whole(Reply::Bulk(unsafe { buffer(start, length) }.to_vec())))
}

pub(super) unsafe extern "C" fn reply_with_long_long(_ctx: *mut raw::RedisModuleCtx, number: c_longlong) -> c_int {
    reply(Part::Whole(Reply::Integer(number)))
}

pub(super) unsafe extern "C" fn reply_with_bool(_ctx: *mut raw::RedisModuleCtx, yes: c_int) -> c_int {
    assert!((0..=1).contains(&yes));
    reply(Part::Whole(Reply::Integer(yes.into())))
}

pub(super) unsafe extern "C" fn reply_with_double(_ctx: *mut raw::RedisModuleCtx, number: f64) -> c_int {
    assert!(number.is_finite());
    reply(Part::Whole(Reply::Double(number)))
}

pub(super) unsafe extern "C" fn reply_with_null(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    reply(Part::Whole(Reply::Null))
}

pub(super) unsafe extern "C" fn reply_with_array(_ctx: *mut raw::RedisModuleCtx, length: c_long) -> c_int {
    reply(Part::Array(usize::try_from(length).expect("a length")))
}

pub(super) unsafe extern "C" fn reply_with_map(_ctx: *mut raw::RedisModuleCtx, length: c_long) -> c_int {
    reply(Part::Map(usize::try_from(length).expect("a length")))
}
