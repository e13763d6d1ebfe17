//! Items that tests add to filters that forget, and look up.

use redis::Connection;

use testkit::command::many;

/// An error rate so low that these tests meet no false positive.
pub(crate) const RARE: &str = "0.00000000001";

/// A fixed seed, so that the replies are the same in every run.
pub(crate) const SEED: &str = "SEED 7";

pub(crate) fn add(client: &mut Connection, key: &str, numbers: std::ops::Range<u64>) -> u64 {
    let numbers: Vec<_> = numbers.collect();
    numbers.chunks(1000).map(|numbers| many::<Vec<u64>>(client, "BF.MADD", key, numbers).iter().sum::<u64>()).sum()
}

pub(crate) fn found(client: &mut Connection, key: &str, numbers: &[u64]) -> Vec<bool> {
    many(client, "BF.MEXISTS", key, numbers)
}

pub(crate) fn all_found(client: &mut Connection, key: &str, numbers: std::ops::Range<u64>) -> bool {
    numbers.collect::<Vec<_>>().chunks(1000).all(|numbers| found(client, key, numbers).into_iter().all(|found| found))
}
