//! All acknowledged items are present after a restart.

use std::fs;

use redis::{Connection, Value};

use testkit::command::{item, many};
use testkit::filter_model::{FilterModel, Observed, counting_in_three_chunks, native_in_four_chunks, various};
use testkit::info::{digest, digest_of, info_field, info_number};
use testkit::persistence::{aof_commands, rewrite_aof, shown, wait_for_bgsave};
use testkit::server::{with_aof, with_debug};
use testkit::wire::{Chunk, Reply, Wire};
use testkit::{Server, Setup, ask, run, run_words};

/// Defaults that differ from the usual ones. A loaded filter must not depend on them.
const OTHER_DEFAULTS: &str = "error-rate 0.2 initial-size 7 expansion-factor 5 cf-layout classic cf-bucket-size 3 \
                              cf-initial-size 9 cf-max-iterations 3 cf-expansion-factor 4";

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
        before.check(&with_debug(Setup::oxbloom()).on(folder).start());
    }
}

#[test]
fn a_snapshot_is_loaded_whole_by_a_server_with_other_defaults() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    let before = Before::fill(&mut client);
    run(&mut client, "SAVE").unwrap();
    let folder = server.kill();
    let server = with_debug(Setup::oxbloom().module_arguments(OTHER_DEFAULTS)).on(folder).start();
    before.check(&server);
    // A growing filter keeps the parameters of its creation, before and after the restart.
    let mut client = server.connect();
    let mut model = before.models.into_iter().find(|model| model.key == "doubled").unwrap();
    model.add(&mut client, 10_000..15_000);
    assert_eq!(info_field::<u64>(&mut client, "doubled", "EXPANSION"), 2);
    model.observe(&mut client);
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
    assert_eq!(loads("key").len(), 3);
    assert!(!commands.iter().any(|command| command[0] == b"BF.MADD" || command[0] == b"BF.RESERVE"));
}

#[test]
fn commands_that_change_nothing_are_not_written() {
    let server = with_aof("no").start();
    let mut client = server.connect();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..10_000);
    let size = |client: &mut Connection| info_number(client, "persistence", "aof_current_size");
    let before = size(&mut client);
    for _ in 0..3 {
        assert_eq!(model.add(&mut client, 0..10_000), 0);
    }
    assert_eq!(run_words(&mut client, &[b"BF.ADD".as_slice(), b"key", &item(5)]), Ok(Value::Int(0)));
    let insert: Vec<u64> = {
        let words =
            ["BF.INSERT".as_bytes(), b"key", b"CAPACITY", b"5", b"ITEMS", &item(1), &item(2)].map(<[u8]>::to_vec);
        redis::from_redis_value(run_words(&mut client, &words).unwrap()).unwrap()
    };
    assert_eq!(insert, [0, 0]);
    assert_eq!(size(&mut client), before);
}

#[test]
fn only_the_three_new_items_of_a_thousand_are_written() {
    let server = with_aof("no").start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.000001 10000 SEED 1").unwrap();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..997);
    let before = aof_commands(server.folder()).len();
    assert_eq!(model.add(&mut client, 0..1000), 3);
    let commands = aof_commands(server.folder());
    let written: Vec<_> = commands[before..].iter().filter(|command| command[0].starts_with(b"BF.")).collect();
    let expected = [b"BF.MADD".to_vec(), b"key".to_vec(), item(997), item(998), item(999)];
    assert_eq!(written, [&expected.to_vec()]);
    // An item that occurs several times in a command is written once.
    let twice: Vec<u64> = many(&mut client, "BF.MADD", "key", &[7, 2000, 2000, 8, 2000]);
    assert_eq!(twice, [0, 1, 0, 0, 0]);
    let commands = aof_commands(server.folder());
    let last = commands.iter().rfind(|command| command[0].starts_with(b"BF.")).unwrap();
    assert_eq!(last[1..], [b"key".to_vec(), item(2000)]);
}

#[test]
fn a_creation_is_written_with_all_its_parameters() {
    let server = with_aof("no").module_arguments("error-rate 0.05 initial-size 30 expansion-factor 3").start();
    let mut client = server.connect();
    for command in
        ["BF.ADD add one", "BF.MADD madd one two", "BF.INSERT insert CAPACITY 7 ERROR 0.5 NONSCALING SEED 9 ITEMS one"]
    {
        run(&mut client, command).unwrap();
    }
    run(&mut client, "MULTI").unwrap();
    run(&mut client, "BF.ADD multi one").unwrap();
    run(&mut client, "SET text value").unwrap();
    run(&mut client, "BF.RESERVE reserve 0.1 5 EXPANSION 4").unwrap();
    run(&mut client, "EXEC").unwrap();
    let script = "redis.call('BF.ADD', KEYS[1], 'one'); return redis.call('BF.MADD', KEYS[1], 'one', 'two')";
    run_words(&mut client, &["EVAL", script, "1", "lua"]).unwrap();

    let seed = |client: &mut Connection, key: &str| info_field::<String>(client, key, "SEED");
    let commands: Vec<String> = aof_commands(server.folder()).iter().map(|command| shown(command)).collect();
    for (key, parameters) in [
        ("add", "0.05 30 EXPANSION 3"),
        ("madd", "0.05 30 EXPANSION 3"),
        ("insert", "0.5 7 NONSCALING"),
        ("multi", "0.05 30 EXPANSION 3"),
        ("reserve", "0.1 5 EXPANSION 4"),
        ("lua", "0.05 30 EXPANSION 3"),
    ] {
        let expected = format!("BF.RESERVE {key} {parameters} SEED {} LAYOUT native", seed(&mut client, key));
        assert!(commands.contains(&expected), "no {expected} in {commands:#?}");
    }
    // The creation and the items are one transaction, also within another transaction.
    let position = |wanted: &str| {
        commands.iter().position(|command| command.starts_with(wanted)).unwrap_or_else(|| panic!("no {wanted}"))
    };
    for (from, to) in [("BF.RESERVE add ", "BF.ADD add one"), ("BF.RESERVE multi ", "BF.RESERVE reserve ")] {
        let (from, to) = (position(from), position(to));
        assert!(
            commands[..from].iter().rev().find(|command| *command == "MULTI" || *command == "EXEC").unwrap() == "MULTI"
        );
        assert!(!commands[from..to].iter().any(|command| command == "EXEC"), "{commands:#?}");
    }
    assert!(commands.contains(&"BF.MADD lua two".to_owned()), "{commands:#?}");
    assert_eq!(
        commands.iter().filter(|command| *command == "MULTI").count(),
        commands.iter().filter(|command| *command == "EXEC").count()
    );
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
