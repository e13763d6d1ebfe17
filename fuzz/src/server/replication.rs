//! The commands that the module replicates.

use std::ffi::{c_char, c_int};

use redis_module::raw;

use super::strings::{bytes, text};
use super::{OK, with};

pub(super) unsafe extern "C" fn replicate(
    _ctx: *mut raw::RedisModuleCtx,
    command: *const c_char,
    format: *const c_char,
    key: *mut raw::RedisModuleString,
    arguments: *const *mut raw::RedisModuleString,
    count: usize,
) -> c_int {
    // SAFETY: the module passes texts that end with a NUL, a string of the mock, and `count` more of them.
    let words = unsafe {
        assert_eq!(bytes(format), b"sv");
        let arguments = (0..count).map(|index| text(*arguments.add(index)).to_vec());
        [bytes(command), text(key).to_vec()].into_iter().chain(arguments).collect()
    };
    with(|state| state.call.replicated.push(words));
    OK
}

pub(super) unsafe extern "C" fn replicate_verbatim(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    with(|state| {
        let words = state.call.words.clone();
        state.call.replicated.push(words);
    });
    OK
}
