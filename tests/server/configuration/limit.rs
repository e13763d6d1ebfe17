//! The limit of memory of each filter.

use crate::configuration::defaults::{config, has_config, set};
use testkit::Setup;
use testkit::memory::{create, grow};
use testkit::wire::{Reply, Wire};

#[test]
fn the_memory_limit_rejects_creation_growth_and_loading() {
    for layout in ["native", "classic"] {
        let server = Setup::oxbloom().module_arguments(&format!("filter-memory-limit 100000 layout {layout}")).start();
        let mut client = Wire::resp2(&server);
        assert_eq!(client.run("BF.RESERVE large 0.01 100000"), Reply::error(create::FILTER_LIMIT));
        assert_eq!(client.run("BF.INSERT large CAPACITY 100000 ITEMS a"), Reply::error(create::FILTER_LIMIT));
        assert_eq!(client.run("BF.RESERVE small 0.01 10000"), Reply::simple("OK"));
        let mut added = 0;
        let rejected = loop {
            match client.run(&format!("BF.ADD small item{added}")) {
                Reply::Integer(_) => added += 1,
                reply => break reply,
            }
            assert!(added < 100_000);
        };
        assert_eq!(rejected, Reply::error(grow::FILTER_LIMIT));
        assert!(added > 20_000, "{added}");
        let size = client.run("BF.INFO small SIZE").elements()[0].integer();
        assert!(size <= 100_000, "{size}");
        let words: Vec<_> = (0..200).map(|number| format!("new{number}")).collect();
        let many = client.run(&format!("BF.MADD small item0 {}", words.join(" ")));
        assert_eq!(many.elements()[0], Reply::Integer(0));
        assert_eq!(many.elements().last(), Some(&Reply::error(grow::FILTER_LIMIT)));
        assert_eq!(client.run("BF.ADD small item0"), Reply::Integer(0));
        assert_eq!(client.run(&format!("BF.EXISTS small item{}", added - 1)), Reply::Integer(1));

        let unlimited = Setup::oxbloom().start();
        let mut other = Wire::resp2(&unlimited);
        other.run(&format!("BF.RESERVE large 0.01 100000 LAYOUT {layout}"));
        let header = other.run("BF.SCANDUMP large 0");
        let words = [&b"BF.LOADCHUNK"[..], b"large", b"1", header.elements()[1].bytes()];
        assert_eq!(client.run_words(&words), Reply::error(create::FILTER_LIMIT));
        assert_eq!(client.run("EXISTS large"), Reply::Integer(0));
        if has_config() {
            set(&mut client, "bf.filter-memory-limit", "0");
            assert!((0..100).all(|number| !client.run(&format!("BF.ADD small more{number}")).is_error()));
            assert_eq!(client.run_words(&words), Reply::simple("OK"));
        }
    }
}

#[test]
fn sizes_are_set_in_the_servers_units_and_shown_in_bytes() {
    if !has_config() {
        return;
    }
    let server = Setup::oxbloom().set("bf.filter-memory-limit 512mb").start();
    let mut client = Wire::resp2(&server);
    assert_eq!(config(&mut client, "bf.filter-memory-limit"), (512 << 20).to_string());
    for size in ["bf.lookahead-size", "bf.merge-limit", "bf.changes-size", "bf.filter-memory-limit"] {
        set(&mut client, size, "1gb");
        assert_eq!(config(&mut client, size), (1 << 30).to_string());
    }
    assert_eq!(client.run("BF.RESERVE large 0.01 1000000000"), Reply::error(create::FILTER_LIMIT));
    assert_eq!(client.run("BF.RESERVE small 0.01 100000000"), Reply::simple("OK"));
}
