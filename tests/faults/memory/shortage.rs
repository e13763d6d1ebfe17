//! Servers with too little memory for another large filter: an error for clients, the end for a replica or a start.

use redis::Value;

use crate::memory::filling::{
    LARGE, SPARE, fill_large, fill_up, is_table, split, ways_to_more, ways_with_little_memory,
};
use crate::memory::starving::LEAST_OF_TABLES;
use testkit::command::with_items;
use testkit::filter_model::FilterModel;
use testkit::info::{LAYOUTS, digest, digest_of, used_memory};
use testkit::memory::{EXIT_MESSAGE, MIB, confine, confine_running, create, grow};
use testkit::persistence::rewrite_aof;
use testkit::replication::{follow, start_replica};
use testkit::server::{wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, copy_of, error_text, oxbloom_with_faults, run, run_words};

#[test]
fn a_failed_allocation_is_an_error_until_there_is_memory_again() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    let mut models = LAYOUTS.map(|layout| fill_large(&mut client, layout)).to_vec();
    // Another server creates the payloads, since this one could later reuse the memory that they took.
    let other = Setup::oxbloom().start();
    let mut maker = other.connect();
    let ways = LAYOUTS.map(|layout| {
        fill_large(&mut maker, layout);
        ways_with_little_memory(&mut maker, layout)
    });
    let ways = ways.concat();
    // A full filter without false positives, whose next layer is large.
    run(&mut client, "BF.RESERVE growing 0.0000001 100 EXPANSION 70000 LAYOUT classic").unwrap();
    let mut model = FilterModel::new("growing");
    fill_up(&mut client, &mut model, 100);
    models.push(model);
    let grow = [(split("BF.ADD growing something-new"), grow::SYSTEM)];
    let before = digest(&mut client);

    confine_running(&server, Some(SPARE));
    for _ in 0..3 {
        for (command, expected) in ways.iter().chain(&grow) {
            let shown = String::from_utf8_lossy(&command[0]).into_owned();
            let Err(rejection) = run_words(&mut client, command) else { panic!("{shown} was not rejected") };
            let rejection = error_text(&rejection);
            assert!(rejection == *expected || expected.is_empty(), "{shown}: {rejection}");
        }
        models.iter().for_each(|model| {
            model.observe(&mut client);
        });
        assert_eq!(digest(&mut client), before);
    }
    assert!(server.log().contains("rejected a filter in a file or payload: not enough memory"), "{}", server.log());

    confine_running(&server, None);
    for (command, _) in &ways {
        run_words(&mut client, command)
            .unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&command[0])));
        if matches!(&*command[0], b"COPY" | b"RESTORE" | b"BF.MERGE") {
            models[0].at("new").observe(&mut client);
        }
        run(&mut client, "DEL new").unwrap();
    }
    for (command, _) in &grow {
        assert_eq!(run_words(&mut client, command), Ok(Value::Int(1)));
        assert_eq!(run_words(&mut client, command), Ok(Value::Int(0)));
    }
    models.iter().for_each(|model| {
        model.observe(&mut client);
    });
}

#[test]
fn a_server_that_cannot_hold_its_saved_data_logs_this_and_does_not_start() {
    for (persistence, settings) in
        [("SAVE", &["save 900 1"][..]), ("", &["appendonly yes", "aof-use-rdb-preamble no", "appendfsync always"])]
    {
        let setup = || settings.iter().fold(with_debug(Setup::oxbloom()), |setup, line| setup.set(*line));
        for (layout, command) in LAYOUTS.into_iter().zip(["COPY", "MERGE", "RESTORE", "COPY", "RESTORE"]) {
            let server = setup().start();
            let mut client = server.connect();
            let model = fill_large(&mut client, layout);
            for (words, _) in ways_to_more(&mut client, layout) {
                if words[0].ends_with(command.as_bytes()) {
                    run_words(&mut client, &words).unwrap();
                    run(&mut client, "RENAME new one").unwrap();
                    run_words(&mut client, &words).unwrap();
                }
            }
            if !persistence.is_empty() {
                run(&mut client, persistence).unwrap();
            }
            let whole = digest(&mut client);
            let server = setup().on(server.kill()).start();
            let mut client = server.connect();
            assert_eq!(digest(&mut client), whole);
            assert_eq!(model.observe(&mut client), model.at("new").observe(&mut client));
            // The memory suffices for the first of three filters.
            let taken = used_memory(&mut client);
            confine(setup(), taken - LARGE * MIB + SPARE).on(server.kill()).must_not_start(&[EXIT_MESSAGE]);
        }
    }
}

#[test]
fn a_replica_exits_if_it_cannot_copy_or_restore_what_its_master_did() {
    let master = Setup::oxbloom().set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    for layout in LAYOUTS {
        fill_large(&mut client, layout);
        let ways = ways_with_little_memory(&mut client, layout);
        // BF commands are only tried with one layout.
        let ways = ways.iter().filter(|(command, _)| layout.0 == "native" || !command[0].starts_with(b"BF."));
        for (command, _) in ways {
            let mut replica = start_replica(&master, Setup::oxbloom());
            confine_running(&replica, Some(SPARE));
            run_words(&mut client, command).unwrap();
            wait_until("the replica has exited", || !replica.is_running());
            let shown = String::from_utf8_lossy(&command[0]);
            assert!(replica.log().contains(EXIT_MESSAGE), "{shown} {layout:?}: {}", replica.log());
            run(&mut client, "DEL new").unwrap();
        }
        run(&mut client, "FLUSHALL").unwrap();
    }
}

/// Its fingerprints would be longer than the master's, and match fewer items.
#[test]
fn a_replica_that_cannot_shrink_a_table_as_its_master_did_exits() {
    let master = Setup::oxbloom().set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    let mut model = FilterModel::new("key");
    run(&mut client, "BF.RESERVE key 0.01 100 COUNTING").unwrap();
    model.add(&mut client, 0..4000);
    let mut replica = start_replica(&master, Setup::with_module(oxbloom_with_faults()));
    // A list of the entries of a segment is larger than that, and no other request of a removal is.
    Wire::resp2(&replica).run(&format!("BF.STARVE key 1 {LEAST_OF_TABLES}"));
    for number in 0..3500 {
        run_words(&mut client, &with_items("BF.DEL key", &[number])).unwrap();
    }
    wait_until("the replica has exited", || !replica.is_running());
    assert!(replica.log().contains(EXIT_MESSAGE), "{}", replica.log());
}

#[test]
fn a_failed_allocation_for_a_client_does_not_end_a_writable_replica() {
    let master = Setup::oxbloom().set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    let models = LAYOUTS.map(|layout| fill_large(&mut client, layout));
    let replica = start_replica(&master, Setup::oxbloom().set("replica-read-only no"));
    let mut reader = replica.connect();
    confine_running(&replica, Some(SPARE));
    for layout in LAYOUTS {
        for (command, expected) in ways_with_little_memory(&mut client, layout) {
            let rejection =
                error_text(&run_words(&mut reader, &command).expect_err("a command that needs too much memory"));
            assert!(rejection == expected || expected.is_empty(), "{rejection}");
        }
    }
    models.iter().for_each(|model| {
        model.observe(&mut reader);
    });
}

#[test]
fn a_replica_without_the_memory_for_its_masters_data_exits() {
    let master = Setup::oxbloom().set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    for layout in LAYOUTS {
        fill_large(&mut client, layout);
        for load in ["disabled", "swapdb"] {
            let mut replica = Setup::oxbloom().set(format!("repl-diskless-load {load}")).start();
            confine_running(&replica, Some(SPARE));
            follow(&mut replica.connect(), master.port);
            wait_until("the replica has exited", || !replica.is_running());
            assert!(replica.log().contains(EXIT_MESSAGE), "{layout:?} {load}: {}", replica.log());
        }
        run(&mut client, "FLUSHALL").unwrap();
    }
}

/// A table keeps its loaded chunks if there is no memory for the others.
#[test]
fn a_chunk_for_which_there_is_no_memory_is_rejected_and_can_be_loaded_later() {
    for (layout, flags) in LAYOUTS.into_iter().filter(|(layout, _)| is_table(layout)) {
        let server = with_debug(Setup::oxbloom()).start();
        let maker = with_debug(Setup::oxbloom()).start();
        let mut client = server.connect();
        let model = fill_large(&mut maker.connect(), (layout, flags));
        let chunks = Wire::resp2(&maker).scan_dump(layout);
        assert!(chunks.len() > 4);
        confine_running(&server, Some(SPARE));
        let mut wire = Wire::resp2(&server);
        let loaded = chunks.iter().position(|(cursor, data)| {
            let before = digest(&mut client);
            match wire.load_chunk("copy", *cursor, data) {
                Reply::Error(rejection) => {
                    assert_eq!(rejection, create::SYSTEM);
                    assert_eq!(digest(&mut client), before);
                    true
                }
                reply => {
                    assert_eq!(reply, Reply::simple("OK"));
                    false
                }
            }
        });
        let loaded = loaded.expect("a chunk that is rejected");
        confine_running(&server, None);
        for (cursor, data) in &chunks[loaded..] {
            assert_eq!(wire.load_chunk("copy", *cursor, data), Reply::simple("OK"));
        }
        model.at("copy").observe(&mut client);
        assert_eq!(digest_of(&mut client, "copy"), digest_of(&mut maker.connect(), layout));
    }
}

/// The log has a header and chunks, like the stream of a master.
#[test]
fn a_server_without_the_memory_for_the_chunks_of_a_table_exits_rather_than_forget_its_items() {
    for (layout, flags) in LAYOUTS.into_iter().filter(|(layout, _)| is_table(layout)) {
        let setup = || with_debug(Setup::oxbloom()).set("appendonly yes").set("aof-use-rdb-preamble no");
        let server = setup().set("repl-diskless-sync-delay 0").start();
        let mut client = server.connect();
        let model = fill_large(&mut client, (layout, flags));
        let chunks = Wire::resp2(&server).scan_dump(layout);
        run(&mut client, &format!("DEL {layout}")).unwrap();

        let mut replica = start_replica(&server, Setup::oxbloom());
        confine_running(&replica, Some(SPARE));
        let mut wire = Wire::resp2(&server);
        for (cursor, data) in &chunks {
            assert_eq!(wire.load_chunk(layout, *cursor, data), Reply::simple("OK"));
        }
        wait_until("the replica has exited", || !replica.is_running());
        assert!(replica.log().contains(EXIT_MESSAGE), "{}", replica.log());

        rewrite_aof(&mut client);
        drop((client, wire));
        let folder = server.kill();
        let copy = copy_of(folder.path());
        model.observe(&mut setup().on(copy).start().connect());
        confine(setup(), SPARE).on(folder).must_not_start(&[EXIT_MESSAGE]);
    }
}
