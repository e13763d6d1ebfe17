//! Large filters: more memory than most machines have, and more than any machine has.

use crate::commands::filling::add_numbers;
use crate::expected::ok;
use testkit::memory::{create, grow};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup};

#[test]
fn a_filter_of_ten_gigabytes_takes_memory_only_as_it_is_used() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let before = resident(&server);
    let reply = client.run("BF.RESERVE key 0.01 8000000000");
    if machine_memory() < 14 << 30 && reply == Reply::error(create::SYSTEM) {
        return;
    }
    assert_eq!(reply, ok());
    assert!(client.run("BF.INFO key SIZE").elements()[0].integer() > 9_600_000_000);
    assert_eq!(client.run("BF.ADD key item"), Reply::Integer(1));
    assert_eq!(client.run("BF.EXISTS key item"), Reply::Integer(1));
    assert!(client.run("BF.DEBUG key").elements().len() == 2);
    let after = resident(&server);
    assert!(after < before + (50 << 20), "{before} {after}");
    client.run("DEL key");
}

/// Returns the machine's memory in bytes.
fn machine_memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = info.lines().find(|line| line.starts_with("MemTotal:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Returns the resident memory of a server's process in bytes.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_filter_too_large_for_any_machine_is_rejected_and_the_server_keeps_running() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let rejected = [create::SYSTEM, create::ADDRESS].map(Reply::error);
    for capacity in [1i64 << 53, 1 << 56, 1 << 60, 1 << 61, 1 << 62, i64::MAX - 1, i64::MAX] {
        for rate in ["0.9", "0.01", "1e-9", "1e-300"] {
            for options in ["", " NONSCALING", " EXPANSION 4294967295", " NONSCALING COUNTING", " LAYOUT classic"] {
                let words = format!("BF.RESERVE key {rate} {capacity}{options}");
                assert!(rejected.contains(&client.run(&words)), "{words}");
            }
            let words = format!("BF.INSERT key CAPACITY {capacity} ERROR {rate} ITEMS a");
            assert!(rejected.contains(&client.run(&words)), "{words}");
        }
    }
    assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
    assert!(server.is_alive());
}

#[test]
fn a_layer_too_large_for_any_machine_is_rejected_and_the_filter_stays_as_it_is() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.01 100000 EXPANSION 4294967295 LAYOUT classic");
    let rejected = Reply::error(grow::SYSTEM);
    add_numbers(&mut client, "key", 110_000);
    assert_eq!(client.run("BF.CARD key"), Reply::Integer(100_000));
    let before = client.run("BF.DEBUG key");
    let new = |client: &mut Wire, words: &str| (0..50).map(|n| client.run(&format!("{words}{n}"))).collect::<Vec<_>>();
    assert!(new(&mut client, "BF.ADD key new").contains(&rejected));
    assert!(new(&mut client, "BF.MADD key new").contains(&Reply::Array(vec![rejected.clone()])));
    assert_eq!(client.run("BF.ADD key 0"), Reply::Integer(0));
    assert_eq!(client.run("BF.DEBUG key"), before);
}
