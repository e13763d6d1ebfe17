//! Commands, sent through the `redis` crate, and the items in them.

use redis::{Connection, FromRedisValue, RedisResult, Value};

/// Runs a command, given as arguments separated by spaces, and returns the reply without converting it.
pub fn run(connection: &mut Connection, words: &str) -> RedisResult<Value> {
    run_words(connection, &words.split_ascii_whitespace().collect::<Vec<_>>())
}

/// Runs a command, given as arguments of any bytes, and returns the reply without converting it.
pub fn run_words<W: AsRef<[u8]>>(connection: &mut Connection, words: &[W]) -> RedisResult<Value> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word.as_ref());
    });
    command.query(connection)
}

/// Runs a command, and returns its reply, which may be an error or contain some. Fails only if the connection breaks.
pub(crate) fn raw<W: AsRef<[u8]>>(connection: &mut Connection, words: &[W]) -> RedisResult<Value> {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word.as_ref());
    });
    connection.send_packed_command(&command.get_packed_command())?;
    connection.recv_response()
}

/// Runs a command that must succeed, and reads its reply as `T`.
pub fn ask<T: FromRedisValue>(connection: &mut Connection, words: &str) -> T {
    let value = run(connection, words).unwrap_or_else(|error| panic!("{words}: {error}"));
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Runs a command that must fail, and returns the text of the server's error.
pub fn error(connection: &mut Connection, words: &str) -> String {
    match run(connection, words) {
        Ok(value) => panic!("{words} should have failed, but returned {value:?}"),
        Err(error) => error_text(&error),
    }
}

/// Returns the text of a server's error.
pub fn error_text(error: &redis::RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        _ => error.to_string(),
    }
}

/// Returns item number `n`. Items are binary, and of various lengths.
pub fn item(n: u64) -> Vec<u8> {
    let mut item = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec();
    item.extend_from_slice(&b"\r\n\0 \xff%s"[..(n % 8) as usize]);
    item
}

/// The first of the numbers that never belong to a `FilterModel`.
pub const ABSENT: u64 = 1 << 40;

/// Runs `command key item…`.
pub fn many<T: FromRedisValue>(client: &mut Connection, command: &str, key: &str, numbers: &[u64]) -> T {
    let value = try_many(client, command, key, numbers).unwrap_or_else(|error| panic!("{command} {key}: {error}"));
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("{command} {key}: {error}"))
}

/// Runs `command key item…`, which may fail. The items of some commands follow ITEMS.
pub fn try_many(client: &mut Connection, command: &str, key: &str, numbers: &[u64]) -> RedisResult<Value> {
    let option = if ["CF.INSERT", "CF.INSERTNX"].contains(&command) { "ITEMS" } else { "" };
    run_words(client, &with_items(&format!("{command} {key} {option}"), numbers))
}

/// Returns the arguments of a command with items. The others are separated by spaces.
pub fn with_items(command: &str, numbers: &[u64]) -> Vec<Vec<u8>> {
    let words = command.split_ascii_whitespace().map(|word| word.as_bytes().to_vec());
    words.chain(numbers.iter().map(|&number| item(number))).collect()
}
