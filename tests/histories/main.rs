//! Histories of real servers with faults. Clients change filters of every kind on a master with two or four replicas.
//! Meanwhile, links break, also in one direction only, servers pause or are killed, disks are slow, clocks jump by
//! minutes, and replicas become masters. Then all faults end, and [`models::history`] judges what the clients saw.
//!
//! ```text
//! make test-histories HISTORIES=100 SEED=7
//! ```
//!
//! Replication is asynchronous: the server itself loses what it acknowledged, even to WAIT, when a replica becomes the
//! master that had not received it. So only this is required:
//!
//! - a server has what its master had when it reached the same offset, and keeps it when it becomes the master;
//! - a master that the test chose, as in most histories ([`authority`]), has what a majority acknowledged;
//! - a master that is killed has everything when it restarts with its append-only file;
//! - nothing is forgotten before its time by the clocks of the masters and of the server that is asked;
//! - when all is well again, all servers have the same filters.
//!
//! In every tenth history, Sentinels choose the master.
//!
//! A seed determines the servers' settings, the faults, and the commands of each client, but not how they overlap.

mod authority;
mod client;
mod connection;
mod group;
mod kinds;
mod play;
mod record;
mod schedule;
mod sentinels;
mod watch;

use std::panic;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use models::random::Random;

/// The number of histories at a time. They wait most of the time.
const AT_A_TIME: usize = 6;

fn main() -> ExitCode {
    const USAGE: &str = "HISTORIES [SEED]";
    let numbers: Vec<u64> = std::env::args().skip(1).map(|number| number.parse().expect(USAGE)).collect();
    let (histories, first) = match numbers[..] {
        [histories] => (histories, Random::unpredictable().0),
        [histories, seed] => (histories, seed),
        _ => panic!("{USAGE}"),
    };
    kinds::assert_items_differ();
    let started = Instant::now();
    let (next, failures, required) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= histories {
                        return;
                    }
                    let seed = first.wrapping_add(number);
                    let result = panic::catch_unwind(|| play::play(seed));
                    match result.unwrap_or_else(|_| Err("the servers did not start".to_owned())) {
                        Ok(found) => drop(required.fetch_add(found as u64, Ordering::SeqCst)),
                        Err(violation) => {
                            println!("FAILED: the history with SEED={seed}: {violation}");
                            failures.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
    });
    let (failures, required) = (failures.into_inner(), required.into_inner());
    let seconds = started.elapsed().as_secs();
    println!(
        "{histories} histories from SEED={first} in {seconds} s: {failures} failed, {required} items were required."
    );
    ExitCode::from(u8::from(failures > 0 || required == 0))
}
