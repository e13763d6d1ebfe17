//! Data that were written by a module with another prefix.

use testkit::persistence::rewrite_aof;
use testkit::replication::{replica_of, start_replica};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, copy_of};

/// Returns the setup of a server with our module alone, with a prefix or without one.
fn with(prefix: &str) -> Setup {
    let arguments = if prefix.is_empty() { String::new() } else { format!("prefix {prefix}") };
    with_debug(Setup::oxbloom().module_arguments(&arguments))
}

fn add(server: &Server, prefix: &str, key: &str) {
    assert_eq!(Wire::resp2(server).run(&format!("{prefix}BF.ADD {key} item")), Reply::Integer(1));
}

/// Pairs of different prefixes: of the module that wrote the data, and of the one that loads them.
const PAIRS: [(&str, &str); 3] = [("OX", "OY"), ("OX", ""), ("", "OX")];

/// Returns the end of the message for such a pair.
fn remedy((written, ours): (&str, &str)) -> String {
    match written {
        "" => format!("remove the argument 'prefix {ours}' of loadmodule here"),
        _ => format!("load the module here with the argument 'prefix {written}'"),
    }
}

/// The code in a snapshot before a field that belongs to a data type.
const AUXILIARY_FIELD: u8 = 247;

/// Returns true if the server writes the prefix into snapshots.
fn writes_prefix() -> bool {
    server_version() >= (7, 2)
}

#[test]
fn a_replica_with_another_prefix_rejects_the_data_and_says_what_to_do() {
    if !writes_prefix() {
        return;
    }
    for (written, ours) in PAIRS {
        let master = with(written).set("repl-diskless-sync-delay 0").start();
        add(&master, written, "key");
        for load in ["disabled", "swapdb"] {
            let replica = replica_of(&master, with(ours).set(format!("repl-diskless-load {load}")));
            let reason = "rejected the data of the master: its module was loaded with ";
            // The server may be ready before it rejects the data. If it has written them to a file, it then exits.
            let log = replica.attempt(&[reason]).map_or_else(
                |log| log,
                |replica| {
                    wait_until("the data are rejected", || replica.log().contains(reason));
                    replica.log()
                },
            );
            assert!(log.contains(&remedy((written, ours))), "{log}");
        }
        let follower = start_replica(&master, with(written));
        assert_eq!(Wire::resp2(&follower).run(&format!("{written}BF.EXISTS key item")), Reply::Integer(1));
    }
}

#[test]
fn a_snapshot_loads_with_any_prefix_and_without_complaint() {
    for (written, ours) in PAIRS.into_iter().chain([("OX", "OX"), ("", "")]) {
        let server = with(written).start();
        add(&server, written, "key");
        let mut client = Wire::resp2(&server);
        assert_eq!(client.run("SAVE"), Reply::simple("OK"));
        // One field, of the data type of native filters.
        let data_type = client.run("DUMP key").bytes()[1..10].to_vec();
        let field = [&[AUXILIARY_FIELD][..], &data_type].concat();
        let snapshot = std::fs::read(server.folder().join("dump.rdb")).expect("a snapshot");
        let fields = snapshot.windows(field.len()).filter(|bytes| *bytes == field).count();
        assert_eq!(fields, usize::from(writes_prefix() && !written.is_empty()), "{written}");
        let loaded = with(ours).set("repl-diskless-sync-delay 0").on(copy_of(server.folder())).start();
        assert_eq!(Wire::resp2(&loaded).run(&format!("{ours}BF.EXISTS key item")), Reply::Integer(1));
        assert!(!loaded.log().contains("prefix"), "{}", loaded.log());
        // It is written again with the new prefix, and a replica can follow.
        add(&loaded, ours, "another");
        let follower = start_replica(&loaded, with(ours));
        assert_eq!(Wire::resp2(&follower).run(&format!("{ours}BF.EXISTS another item")), Reply::Integer(1));
    }
}

#[test]
fn an_append_only_file_of_another_prefix_names_the_argument_before_its_commands_are_read() {
    for (written, ours) in PAIRS {
        let server = with(written).keeping_aof("yes").start();
        add(&server, written, "key");
        rewrite_aof(&mut server.connect());
        let preamble_alone = copy_of(server.folder());
        add(&server, written, "later");
        let warning = "the append-only file was written by a module that was loaded with ";
        let loaded = with(ours).keeping_aof("yes").on(preamble_alone).start();
        assert_eq!(Wire::resp2(&loaded).run(&format!("{ours}BF.EXISTS key item")), Reply::Integer(1));
        assert_eq!(loaded.log().matches(warning).count(), usize::from(writes_prefix()), "{}", loaded.log());
        let stopped = with(ours).keeping_aof("yes").on(copy_of(server.folder()));
        let unknown = ["U", "u"].map(|letter| format!("{letter}nknown command '{written}BF."));
        let log = stopped.must_not_start(&unknown.each_ref().map(String::as_str));
        assert!(!writes_prefix() || log.contains(warning) && log.contains(&remedy((written, ours))), "{log}");
        let restarted = with(written).keeping_aof("yes").on(copy_of(server.folder())).start();
        assert_eq!(Wire::resp2(&restarted).run(&format!("{written}BF.EXISTS later item")), Reply::Integer(1));
        assert!(!restarted.log().contains(warning), "{}", restarted.log());
    }
}

#[test]
#[cfg(target_arch = "x86_64")] // like RedisBloom
fn the_module_can_be_removed_when_no_filters_are_left() {
    let server = with("OX").start();
    let mut client = Wire::resp2(&server);
    add(&server, "OX", "key");
    client.run("DEL key");
    client.run("SET text value");
    assert_eq!(client.run("SAVE"), Reply::simple("OK"));
    for setup in [Setup::without_module(), Setup::with_module(testkit::redisbloom())] {
        let without = setup.on(copy_of(server.folder())).start();
        assert_eq!(Wire::resp2(&without).run("GET text"), Reply::bulk("value"));
    }
}
