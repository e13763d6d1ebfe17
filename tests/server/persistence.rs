//! All acknowledged items are present after a restart.

use std::fs;

use redis::{Connection, Value};

use crate::expected::OTHER_DEFAULTS;
use testkit::filter_model::{FilterModel, Observed, counting_in_three_chunks, native_in_four_chunks, various};
use testkit::info::{digest, digest_of};
use testkit::memory::starving;
use testkit::persistence::{aof_commands, bgsave_succeeds, rewrite_aof, wait_for_bgsave};
use testkit::server::{with_aof, with_debug};
use testkit::wire::{Chunk, Reply, Wire};
use testkit::{Server, Setup, ask, oxbloom_with_faults, run};

/// Filters, with their replies before a restart.
struct Before {
    models: Vec<FilterModel>,
    observed: Vec<Observed>,
    digest: String,
}

impl Before {
    /// Fills a server with filters of many kinds. One of them has several chunks, and one is reserved but empty.
    fn fill(client: &mut Connection) -> Before {
        let mut models = various(client);
        for (key, parameters, items) in [("chunks", "0.01 16000000", 5000), ("room", "0.001 50000000", 0)] {
            assert_eq!(run(client, &format!("BF.RESERVE {key} {parameters}")), Ok(Value::Okay));
            let mut model = FilterModel::new(key);
            model.add(client, 0..items);
            models.push(model);
        }
        let observed = models.iter().map(|model| model.observe(client)).collect();
        Before { models, observed, digest: digest(client) }
    }

    fn check(&self, server: &Server) {
        let mut client = server.connect();
        for (model, expected) in self.models.iter().zip(&self.observed) {
            assert_eq!(model.observe(&mut client), *expected, "{}", model.key);
        }
        assert_eq!(digest(&mut client), self.digest);
    }
}

#[test]
fn a_snapshot_is_loaded_whole() {
    for save in ["SAVE", "BGSAVE"] {
        let server = with_debug(Setup::oxbloom()).start();
        let mut client = server.connect();
        let before = Before::fill(&mut client);
        run(&mut client, save).unwrap();
        wait_for_bgsave(&mut client);
        let folder = server.kill();
        before.check(&with_debug(Setup::oxbloom()).module_arguments(OTHER_DEFAULTS).on(folder).start());
    }
}

#[test]
fn a_reserved_filter_costs_a_few_bytes_in_a_snapshot() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE room 0.001 500000000").unwrap();
    assert!(ask::<u64>(&mut client, "MEMORY USAGE room") > 500_000_000);
    run(&mut client, "SAVE").unwrap();
    let length = fs::metadata(server.folder().join("dump.rdb")).unwrap().len();
    assert!(length < 1000, "{length} bytes");
    assert!(ask::<Vec<u8>>(&mut client, "DUMP room").len() < 200);
}

#[test]
fn an_append_only_file_is_loaded_whole() {
    for (preamble, rewrite) in [("yes", false), ("no", false), ("yes", true), ("no", true)] {
        let server = with_aof(preamble).start();
        let mut client = server.connect();
        let before = Before::fill(&mut client);
        if rewrite {
            rewrite_aof(&mut client);
        }
        before.check(&server);
        let folder = server.kill();
        let server = with_aof(preamble).module_arguments(OTHER_DEFAULTS).on(folder).start();
        before.check(&server);
        // The server that loaded the file rewrites it, and appends further commands.
        let mut client = server.connect();
        rewrite_aof(&mut client);
        let mut models = before.models;
        models.iter_mut().filter(|model| !model.is_fixed()).for_each(|model| {
            model.add(&mut client, 100_000..101_000);
        });
        let observed = models.iter().map(|model| model.observe(&mut client)).collect();
        let before = Before { models, observed, digest: digest(&mut client) };
        let folder = server.kill();
        before.check(&with_aof(preamble).on(folder).start());
    }
}

#[test]
fn an_append_only_file_is_rewritten_as_chunks() {
    let server = with_aof("no").start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 50").unwrap();
    FilterModel::new("key").add(&mut client, 0..100);
    run(&mut client, "BF.RESERVE room 0.01 50000000").unwrap();
    run(&mut client, "PEXPIRE room 10000000").unwrap();
    rewrite_aof(&mut client);
    let commands = aof_commands(server.folder());
    let loads = |key: &str| {
        let loads = commands.iter().filter(|command| command[0] == b"BF.LOADCHUNK" && command[1] == key.as_bytes());
        loads.map(|command| command[2].clone()).collect::<Vec<_>>()
    };
    assert_eq!(loads("room"), [b"1"]);
    assert_eq!(loads("key").len(), 2);
    assert!(!commands.iter().any(|command| command[0] == b"BF.MADD" || command[0] == b"BF.RESERVE"));
}

#[test]
fn a_filter_that_is_loaded_in_part_survives_a_restart_and_can_be_completed() {
    for words in ["LAYOUT native", "COUNTING", "LAYOUT classic"] {
        let server = with_aof("no").start();
        let mut client = server.connect();
        let model = match words {
            "LAYOUT native" => native_in_four_chunks(&mut client, "whole"),
            "COUNTING" => counting_in_three_chunks(&mut client, "whole"),
            _ => {
                run(&mut client, &format!("BF.RESERVE whole 0.01 50 EXPANSION 2 {words}")).unwrap();
                let mut model = FilterModel::new("whole");
                model.add(&mut client, 0..500);
                model
            }
        };
        let chunks = Wire::resp2(&server).scan_dump("whole");
        assert!(chunks.len() > 3);
        let load = |server: &Server, key: &str, chunks: &[Chunk]| {
            for (cursor, data) in chunks {
                assert_eq!(Wire::resp2(server).load_chunk(key, *cursor, data), Reply::simple("OK"), "{words}");
            }
        };
        let keys = ["whole", "header", "part"];
        load(&server, "header", &chunks[..1]);
        load(&server, "part", &chunks[..2]);
        let mut expected = keys.map(|key| digest_of(&mut client, key));
        // The server restarts from commands in the file, twice from a rewritten file with appended chunks, from a
        // snapshot in the file, and from a snapshot alone. The remaining chunks are loaded after the first two
        // restarts.
        let mut server = with_aof("no").on(server.kill()).start();
        for (preamble, from, to) in [("no", 2, 3), ("yes", 3, chunks.len())] {
            let mut client = server.connect();
            assert_eq!(keys.map(|key| digest_of(&mut client, key)), expected, "{words}");
            rewrite_aof(&mut client);
            load(&server, "part", &chunks[from..to]);
            expected = keys.map(|key| digest_of(&mut client, key));
            server = with_aof(preamble).on(server.kill()).start();
        }
        let mut client = server.connect();
        assert_eq!(keys.map(|key| digest_of(&mut client, key)), expected, "{words}");
        model.at("part").observe(&mut client);
        rewrite_aof(&mut client);
        let server = with_aof("yes").on(server.kill()).start();
        let mut client = server.connect();
        assert_eq!(keys.map(|key| digest_of(&mut client, key)), expected, "{words}");
        run(&mut client, "SAVE").unwrap();
        let server = with_debug(Setup::oxbloom()).on(server.kill()).start();
        assert_eq!(keys.map(|key| digest_of(&mut server.connect(), key)), expected, "{words}");
        model.observe(&mut server.connect());
    }
}

/// A callback of the server cannot report that it failed. So a child that writes a snapshot ends. The server itself must
/// not.
#[test]
fn without_memory_to_write_a_filter_a_background_save_fails_and_the_server_goes_on() {
    /// The size of the buffer for a header, in bytes.
    const HEADER: u64 = 2 << 10;
    let server = Setup::with_module(oxbloom_with_faults()).start();
    let mut client = server.connect();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..1000);
    starving(&mut Wire::resp2(&server), 1, HEADER, |_| {
        run(&mut client, "BGSAVE").unwrap();
        assert!(!bgsave_succeeds(&mut client));
        run(&mut client, "SAVE").unwrap();
    });
    assert_eq!(server.log().matches("rdb_save failed, out of memory").count(), 2, "{}", server.log());
    run(&mut client, "BGSAVE").unwrap();
    wait_for_bgsave(&mut client);
    let restarted = Setup::oxbloom().on(server.kill()).start();
    model.observe(&mut restarted.connect());
}
