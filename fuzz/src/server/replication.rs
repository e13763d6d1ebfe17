//! The commands that the module replicates, and those of the server in the same stream.

use std::ffi::{c_char, c_int};

use redis_module::raw;

use super::keys::{copy, delete, rename, set_expire_time};
use super::rdb::restore;
use super::strings::{bytes, text, whole_number};
use super::{Circumstances, OK, run, with};

/// Applies a command of a master's stream or of an append-only file. Returns true if it succeeded.
///
/// Apart from the module's commands, these are `PEXPIREAT key time`, `DEL key`, `RENAME key newkey`, `COPY key newkey`, and
/// `RESTORE key type file`, with the number of a type.
pub(crate) fn apply(instance: usize, words: &[Vec<u8>], circumstances: Circumstances) -> bool {
    let number = |word: &[u8]| whole_number(word).expect("a number");
    match words.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
        [b"PEXPIREAT", key, time] => set_expire_time(instance, key, number(time)),
        [b"DEL", key] => delete(instance, key),
        [b"RENAME", from, to] => return rename(instance, from, to),
        [b"COPY", from, to] => return copy(instance, from, to, circumstances),
        [b"RESTORE", key, data_type, file] => {
            return restore(instance, key, (number(data_type) as usize, file), 0, circumstances);
        }
        _ => return !run(instance, words, circumstances).expect("a command of the module").reply.is_error(),
    }
    true
}

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
