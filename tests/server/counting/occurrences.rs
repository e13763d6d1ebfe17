//! Many occurrences of one item, and its count.

use redis::Connection;

use testkit::command::many;

/// Adds or removes item number `number` this many times. Returns the number of additions that found it new, or of
/// removals that found it present.
pub(crate) fn often(client: &mut Connection, command: &str, key: &str, number: u64, mut times: u64) -> u64 {
    let mut sum = 0;
    while times > 0 {
        let some = times.min(10_000);
        sum += many::<Vec<u64>>(client, command, key, &vec![number; some as usize]).iter().sum::<u64>();
        times -= some;
    }
    sum
}

pub(crate) fn count(client: &mut Connection, key: &str, number: u64) -> u64 {
    many(client, "BF.COUNT", key, &[number])
}
