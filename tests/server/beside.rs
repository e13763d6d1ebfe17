//! The module beside RedisBloom on one server, under other names.

use std::path::Path;

use testkit::info::info;
use testkit::persistence::{aof_commands, rewrite_aof};
use testkit::replication::{start_replica, wait_for_replica};
use testkit::server::{server_version, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, copy_of, oxbloom, redisbloom};

use crate::commands::table::COMMANDS;
use crate::expected::WRONG_TYPE;

/// Returns the setup of a server with RedisBloom and a build of our module.
pub(crate) fn beside_redisbloom(ours: &Path) -> Setup {
    Setup::with_module(redisbloom()).set(format!("loadmodule {} prefix OX", ours.display()))
}

/// Returns the setup of a server with both modules, RedisBloom first.
pub(crate) fn both() -> Setup {
    with_debug(beside_redisbloom(&oxbloom()))
}

/// Returns the setups of servers with both modules, in both orders.
fn both_orders() -> [Setup; 2] {
    let ours = with_debug(Setup::oxbloom().module_arguments("prefix OX"));
    [both(), ours.set(format!("loadmodule {}", redisbloom().display()))]
}

/// The filters of both modules: the key, the commands that fill it, and its data type.
const FILTERS: [(&str, &[&str], &str); 7] = [
    ("native", &["OXBF.RESERVE native 0.01 100", "OXBF.MADD native a b c"], "oxbloom--"),
    ("classic", &["OXBF.RESERVE classic 0.01 100 LAYOUT classic", "OXBF.MADD classic a b c"], "oxclassBF"),
    ("valkey", &["OXBF.RESERVE valkey 0.01 100 LAYOUT valkey", "OXBF.MADD valkey a b c"], "oxvalkeyB"),
    ("cuckoo", &["OXCF.RESERVE cuckoo 100", "OXCF.INSERT cuckoo ITEMS a b c"], "oxcuckoo-"),
    ("old", &["OXCF.RESERVE old 100 LAYOUT classic", "OXCF.INSERT old ITEMS a b c"], "oxclassCF"),
    ("theirs", &["BF.RESERVE theirs 0.01 100", "BF.MADD theirs a b c"], "MBbloom--"),
    ("their-cuckoo", &["CF.RESERVE their-cuckoo 100", "CF.INSERT their-cuckoo ITEMS a b c"], "MBbloomCF"),
];

fn fill(client: &mut Wire) {
    for line in FILTERS.iter().flat_map(|(_, lines, _)| *lines) {
        assert!(!client.run(line).is_error(), "{line}");
    }
}

/// Returns the prefix of the commands for a data type, for a module with the prefix `ours`.
fn prefix_of(data_type: &str, ours: &str) -> String {
    let usual = if data_type.ends_with("CF") || data_type == "oxcuckoo-" { "CF" } else { "BF" };
    if data_type.starts_with("MB") { usual.to_owned() } else { format!("{ours}{usual}") }
}

/// Checks that filters have their items and types. `ours` is the prefix of our module.
fn check<'a>(client: &mut Wire, ours: &str, filters: impl IntoIterator<Item = &'a (&'a str, &'a [&'a str], &'a str)>) {
    for (key, _, data_type) in filters {
        assert_eq!(client.run(&format!("TYPE {key}")), Reply::simple(data_type));
        let reply = client.run(&format!("{}.MEXISTS {key} a b c d", prefix_of(data_type, ours)));
        assert_eq!(reply, Reply::integers(&[1, 1, 1, 0]), "{key}");
    }
}

/// The filters that are not RedisBloom's.
fn our_filters() -> impl Iterator<Item = &'static (&'static str, &'static [&'static str], &'static str)> {
    FILTERS.iter().filter(|(_, _, data_type)| !data_type.starts_with("MB"))
}

fn digest(client: &mut Wire) -> Reply {
    client.run("DEBUG DIGEST")
}

#[test]
fn both_modules_work_and_neither_uses_the_filters_of_the_other() {
    for setup in both_orders() {
        let server = setup.start();
        let mut client = Wire::resp2(&server);
        fill(&mut client);
        check(&mut client, "OX", &FILTERS);
        for (key, _, data_type) in FILTERS {
            for family in
                ["OXBF", "OXCF", "BF", "CF"].into_iter().filter(|family| *family != prefix_of(data_type, "OX"))
            {
                let replies = ["ADD", "EXISTS"].map(|verb| client.run(&format!("{family}.{verb} {key} a")));
                // RedisBloom replies that nothing is there.
                let is_theirs = !family.starts_with("OX");
                assert_eq!(replies[0], Reply::error(WRONG_TYPE), "{family} {key}");
                assert!(replies[1] == Reply::error(WRONG_TYPE) || is_theirs, "{family} {key}: {replies:?}");
            }
            assert!(client.run(&format!("MEMORY USAGE {key}")).integer() > 100, "{key}");
        }
        check(&mut client, "OX", &FILTERS);
        let log = server.log();
        assert!(
            log.contains("loaded as 'oxbf' with the commands OXBF.* and OXCF.*, beside any module named 'bf'"),
            "{log}"
        );
    }
}

#[test]
fn every_command_has_the_prefix() {
    let [usual, prefixed] = ["", "prefix ox"].map(|arguments| Setup::oxbloom().module_arguments(arguments).start());
    let (mut usual, mut prefixed) = (Wire::resp2(&usual), Wire::resp2(&prefixed));
    for command in COMMANDS {
        let name = format!("ox{}", command.name);
        let info = |client: &mut Wire, name: &str| client.run(&format!("COMMAND INFO {name}")).elements()[0].clone();
        let rest = |info: &Reply| info.elements().iter().skip(1).map(|part| format!("{part:?}")).collect::<Vec<_>>();
        let infos = (info(&mut usual, command.name), info(&mut prefixed, &name));
        let expected =
            rest(&infos.0).into_iter().map(|part| part.replace("@bloom", "@oxbloom").replace("@cuckoo", "@oxcuckoo"));
        assert!(expected.eq(rest(&infos.1)), "{name}: {:?}", infos.1);
        let keys = ["", "OX"].map(|prefix| {
            let client = if prefix.is_empty() { &mut usual } else { &mut prefixed };
            client.run(&format!("COMMAND GETKEYS {prefix}{}", command.line))
        });
        assert_eq!(keys[0], keys[1], "{name}");
        assert!(keys[0].elements().contains(&Reply::bulk("key")), "{name}: {keys:?}");
        assert!(matches!(info(&mut prefixed, command.name), Reply::NullArray | Reply::NullBulk), "{}", command.name);
        let reply = format!("{:?}", usual.run(command.line)).replace("BF.", "OXBF.");
        let other = format!("{:?}", prefixed.run(&format!("OX{}", command.line)));
        assert!(reply == other || command.has_seed_in_reply(), "{}: {reply} {other}", command.line);
    }
}

#[test]
fn texts_and_settings_have_the_names_of_the_module() {
    if server_version() < (7, 0) {
        return;
    }
    let setup =
        both().set("oxbf.initial-size 77").set("oxbf.filter-memory-limit 1mb").set("notify-keyspace-events KEA");
    let server = setup.start();
    let mut client = Wire::resp2(&server);
    assert_eq!(client.run("CONFIG GET oxbf.initial-size").field("oxbf.initial-size").text(), "77");
    assert_eq!(client.run("CONFIG SET oxbf.layout classic"), Reply::simple("OK"));
    client.run("OXBF.ADD key item");
    assert_eq!(client.run("OXBF.INFO key CAPACITY"), Reply::integers(&[77]));
    assert_eq!(client.run("TYPE key"), Reply::simple("oxclassBF"));
    let no_count = "ERR this filter does not support OXBF.DEL and OXBF.COUNT: create it with OXBF.RESERVE key error_rate \
                    capacity COUNTING";
    assert_eq!(client.run("OXBF.DEL key item"), Reply::error(no_count));
    let limit = "ERR Insufficient memory to create filter: over oxbf.filter-memory-limit, raise the limit or choose a \
                 smaller capacity";
    assert_eq!(client.run("OXBF.RESERVE large 0.01 10000000"), Reply::error(limit));
    assert_eq!(client.run("OXBF.ADD key"), Reply::error("ERR wrong number of arguments for 'oxbf.add' command"));
    let mut admin = server.connect();
    assert!(info(&mut admin, "oxbf", "oxbf_last_rejection").ends_with(limit), "{}", server.log());
    assert_eq!(info(&mut admin, "oxbf", "oxbf_filters"), "1");
    assert!(server.log().contains("rejected OXBF.DEL 'key' from"), "{}", server.log());
    let docs = client.run("COMMAND DOCS oxbf.loadchunk");
    let summary = docs.elements()[1].field("summary").text();
    assert_eq!(summary, "Restores a chunk of a Bloom filter that was dumped with OXBF.SCANDUMP.");
    let mut listener = Wire::resp2(&server);
    listener.run("SUBSCRIBE __keyspace@0__:key");
    client.run("OXBF.ADD key another");
    assert_eq!(listener.receive().elements()[2], Reply::bulk("oxbf.add"));
}

#[test]
fn all_filters_survive_a_restart_from_every_file() {
    for (index, preamble) in [None, Some("yes"), Some("no")].into_iter().enumerate() {
        for (setup, restart) in both_orders().into_iter().zip(both_orders()) {
            let [setup, restart] = [setup, restart].map(|setup| match preamble {
                Some(preamble) => setup.keeping_aof(preamble),
                None => setup,
            });
            let server = setup.start();
            let mut client = Wire::resp2(&server);
            fill(&mut client);
            match preamble {
                // The rest of the file has commands.
                Some(_) if index == 1 => {
                    rewrite_aof(&mut server.connect());
                    client.run("OXBF.ADD native later");
                }
                Some(_) => rewrite_aof(&mut server.connect()),
                None => assert_eq!(client.run("SAVE"), Reply::simple("OK")),
            }
            let before = digest(&mut client);
            let restarted = restart.on(copy_of(server.folder())).start();
            let mut client = Wire::resp2(&restarted);
            check(&mut client, "OX", &FILTERS);
            assert_eq!(digest(&mut client), before, "{preamble:?}");
        }
    }
}

#[test]
fn changes_reach_replicas_and_files_under_the_names_of_the_module() {
    let master = both().set("repl-diskless-sync-delay 0").keeping_aof("no").start();
    let mut client = Wire::resp2(&master);
    client.run("OXBF.ADD before item");
    let replica = start_replica(&master, both());
    fill(&mut client);
    client.run("OXBF.MERGE union 2 native before REPLACE");
    client.run("OXCF.CONVERT old");
    wait_for_replica(&mut master.connect(), &mut replica.connect());
    let mut follower = Wire::resp2(&replica);
    check(&mut follower, "OX", FILTERS.iter().filter(|(key, ..)| *key != "old"));
    assert_eq!(follower.run("TYPE old"), Reply::simple("oxcuckoo-"));
    assert_eq!(digest(&mut follower), digest(&mut client));
    let ours = aof_commands(master.folder()).into_iter().map(|words| String::from_utf8_lossy(&words[0]).into_owned());
    let ours: Vec<_> = ours.filter(|name| name.contains('.') && !name.starts_with(['B', 'C'])).collect();
    assert!(ours.len() > 8 && ours.iter().all(|name| name.starts_with("OX")), "{ours:?}");
}

#[test]
fn our_filters_stay_without_redisbloom_and_without_the_prefix() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    fill(&mut client);
    // RedisBloom's own filters cannot be loaded without it.
    client.run("DEL theirs their-cuckoo");
    assert_eq!(client.run("SAVE"), Reply::simple("OK"));
    let before = digest(&mut client);
    for (arguments, prefix) in [("prefix OX", "OX"), ("prefix Other_2 name oth-er", "OTHER_2"), ("", "")] {
        let alone = with_debug(Setup::oxbloom().module_arguments(arguments)).on(copy_of(server.folder())).start();
        let mut client = Wire::resp2(&alone);
        check(&mut client, prefix, our_filters());
        assert_eq!(digest(&mut client), before);
        for (key, _, data_type) in our_filters() {
            let commands = prefix_of(data_type, prefix);
            assert_eq!(client.run(&format!("COPY {key} copy REPLACE")), Reply::Integer(1), "{key}");
            assert_eq!(client.run("TYPE copy"), Reply::simple(data_type));
            let dump = client.run("DUMP copy");
            let restore = [&b"RESTORE"[..], b"copy", b"0", dump.bytes(), b"REPLACE"];
            assert_eq!(client.run_words(&restore), Reply::simple("OK"), "{key}");
            assert_eq!(client.run(&format!("{commands}.ADD copy another")), Reply::Integer(1), "{key}");
            assert_eq!(client.run(&format!("{commands}.EXISTS copy another")), Reply::Integer(1), "{key}");
        }
        // New classic filters have RedisBloom's types only if they cannot be RedisBloom's.
        client.run(&format!("{prefix}BF.RESERVE new 0.01 100 LAYOUT classic"));
        let data_type = if prefix.is_empty() { "MBbloom--" } else { "oxclassBF" };
        assert_eq!(client.run("TYPE new"), Reply::simple(data_type));
    }
    let loadable = copy_of(server.folder());
    with_debug(Setup::with_module(redisbloom())).on(loadable).must_not_start(&[
        "oxbloom--",
        "oxcuckoo-",
        "oxclass",
        "oxvalk",
    ]);
}

#[test]
fn a_load_that_fails_says_why_and_leaves_the_server_running() {
    let setup = Setup::with_module(redisbloom());
    let setup = if server_version() >= (7, 0) { setup.set("enable-module-command yes") } else { setup };
    let server = setup.start();
    let mut client = Wire::resp2(&server);
    let load =
        |client: &mut Wire, arguments: &str| client.run(&format!("MODULE LOAD {} {arguments}", oxbloom().display()));
    let long = "x".repeat(17);
    for (arguments, reason) in [
        ("", "load only one, or load oxbloom with the argument 'prefix OX'"),
        ("prefix", "argument 'prefix' has no value"),
        ("prefix O.X", "argument 'prefix' must be 1 to 16 letters, digits, '_' or '-', not 'O.X'"),
        (&format!("prefix {long}"), "argument 'prefix' must be 1 to 16 letters"),
        ("prefix OX name a:b", "argument 'name' must be 1 to 32 letters"),
        ("name oxbloom", "argument 'name' needs 'prefix' too"),
        ("prefix OX name bf", "another module named 'bf' is already loaded: choose another"),
        ("prefix OX nothing 1", "'nothing' is not a setting of this module"),
    ] {
        assert!(load(&mut client, arguments).is_error(), "{arguments}");
        assert!(server.log().contains(reason), "{arguments}: {}", server.log());
    }
    assert_eq!(load(&mut client, "prefix OX error-rate 0.02"), Reply::simple("OK"));
    for (arguments, reason) in [
        ("prefix OX", "another module named 'oxbf' is already loaded: choose another prefix"),
        ("prefix OY error-rate 0.5", "this file is already loaded, as 'oxbf'"),
    ] {
        assert!(load(&mut client, arguments).is_error(), "{arguments}");
        assert!(server.log().contains(reason), "{arguments}: {}", server.log());
    }
    // A copy of the file is another module to the server.
    let copy = server.folder().join("copy.so");
    std::fs::copy(oxbloom(), &copy).expect("a copy");
    assert!(client.run(&format!("MODULE LOAD {} prefix OY", copy.display())).is_error());
    assert!(server.log().contains("rejected the data type 'oxbloom--': another module has it"), "{}", server.log());
    fill(&mut client);
    check(&mut client, "OX", &FILTERS);
    client.run("OXBF.ADD new item");
    assert_eq!(client.run("OXBF.INFO new ERROR"), Reply::Array(vec![Reply::bulk("0.02")]));
}
