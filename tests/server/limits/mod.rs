//! Every documented limit: filters at the limit can be copied, replicated, saved and loaded, and one beyond is rejected.
//!
//! [`table`] has the limits. docs/limits.md is made from it.

mod table;

use std::path::Path;

use redis::{Connection, Value};

use table::{Limit, limits};
use testkit::command::{many, with_items};
use testkit::filter_model::Family;
use testkit::info::{digest, digest_of};
use testkit::persistence::rewrite_aof;
use testkit::replication::{Pair, assert_synchronized, start_replica};
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, copy_of, error, error_text, run, run_words};

use crate::configuration::defaults::failed_start;

/// Fills filters, each with a key of its own.
struct Filler {
    client: Connection,
    keys: Vec<String>,
}

impl Filler {
    /// Creates a filter with a command in which `KEY` stands for its key, and adds items. Returns the key.
    fn filter(&mut self, creation: &str, items: u64) -> String {
        let family = if creation.starts_with("CF") { "cuckoo" } else { "bloom" };
        let key = format!("{family}-{}", self.keys.len());
        run(&mut self.client, &creation.replace("KEY", &key)).unwrap_or_else(|error| panic!("{creation}: {error}"));
        self.keys.push(key.clone());
        let numbers: Vec<u64> = (0..items).collect();
        let (add, exists) = if family == "cuckoo" { ("CF.INSERT", "CF.MEXISTS") } else { ("BF.MADD", "BF.MEXISTS") };
        for numbers in numbers.chunks(1000) {
            let added: Vec<Value> = many(&mut self.client, add, &key, numbers);
            assert!(added.iter().all(|reply| !matches!(reply, Value::ServerError(_))), "{creation}: {added:?}");
            let found: Vec<bool> = many(&mut self.client, exists, &key, numbers);
            // The items of these may be forgotten at once.
            let is_short = ["ROLLING", "WINDOW 1 "].iter().any(|option| creation.contains(option));
            assert!(is_short || found.iter().all(|&found| found), "{creation}: an item is missing");
        }
        key
    }

    /// Returns the time, in milliseconds since 1970.
    fn now(&mut self) -> u64 {
        let [seconds, _]: [u64; 2] = ask(&mut self.client, "TIME");
        1000 * seconds
    }

    /// Runs a command with items, given by their numbers.
    fn insert(&mut self, command: &str, numbers: impl IntoIterator<Item = u64>) {
        let numbers: Vec<u64> = numbers.into_iter().collect();
        run_words(&mut self.client, &with_items(command, &numbers))
            .unwrap_or_else(|error| panic!("{command}: {error}"));
    }

    /// Adds items until one is rejected. Returns the error.
    fn fill(&mut self, command: &str) -> String {
        (0..u64::MAX)
            .step_by(100)
            .find_map(|first| {
                let numbers: Vec<u64> = (first..first + 100).collect();
                match run_words(&mut self.client, &with_items(command, &numbers)) {
                    Ok(Value::Array(replies)) => replies.into_iter().find_map(|reply| match reply {
                        Value::ServerError(error) => Some(error_text(&error.into())),
                        _ => None,
                    }),
                    Ok(reply) => panic!("{command}: {reply:?}"),
                    Err(error) => Some(error_text(&error)),
                }
            })
            .expect("a filter that gets full")
    }
}

/// Copies a filter in both ways, and panics unless the copies are equal.
fn copy(client: &mut Connection, wire: &mut Wire, key: &str) {
    let payload: Vec<u8> = ask(client, &format!("DUMP {key}"));
    run_words(client, &[b"RESTORE", &b"copy"[..], b"0", &payload]).unwrap_or_else(|error| panic!("{key}: {error}"));
    let expected = digest_of(client, key);
    assert_eq!(digest_of(client, "copy"), expected, "{key}");
    run(client, "DEL copy").unwrap();
    let family = if key.starts_with("cuckoo") { Family::Cuckoo } else { Family::Bloom };
    for (cursor, data) in wire.scan_dump_of(family, key) {
        assert_eq!(wire.load_chunk_of(family, "copy", cursor, &data), Reply::simple("OK"), "{key}");
    }
    assert_eq!(digest_of(client, "copy"), expected, "{key}");
    run(client, "DEL copy").unwrap();
}

#[test]
fn filters_at_each_limit_are_copied_replicated_saved_and_loaded() {
    let setup = || with_debug(Setup::oxbloom().module_arguments("cf-max-expansions 9223372036854775807"));
    let pair = Pair::start(setup(), setup());
    let mut filler = Filler { client: pair.master.connect(), keys: Vec::new() };
    for limit in limits() {
        (limit.at)(&mut filler);
    }
    assert_synchronized(&mut filler.client, &mut pair.replica.connect(), "replicated commands");
    let Filler { mut client, keys } = filler;
    let mut wire = Wire::resp2(&pair.master);
    keys.iter().for_each(|key| copy(&mut client, &mut wire, key));
    let expected = digest(&mut client);
    let check = |server: &Server, way: &str| {
        assert_eq!(digest(&mut server.connect()), expected, "{way}");
    };
    check(&start_replica(&pair.master, setup()), "a synchronization");
    run(&mut client, "SAVE").unwrap();
    check(&setup().on(copy_of(pair.master.folder())).start(), "a snapshot");
    run(&mut client, "CONFIG SET aof-use-rdb-preamble no").unwrap();
    run(&mut client, "CONFIG SET appendonly yes").unwrap();
    rewrite_aof(&mut client);
    let folder = copy_of(pair.master.folder());
    check(&setup().keeping_aof("no").on(folder).start(), "an append-only file");
}

#[test]
fn one_beyond_each_limit_is_rejected_and_changes_nothing() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    for line in ["BF.RESERVE window 0.01 10 WINDOW 60", "CF.RESERVE cuckoo 100 LAYOUT classic"] {
        run(&mut client, line).unwrap();
    }
    let before = digest(&mut client);
    for Limit { what, beyond, .. } in limits() {
        for (line, text) in beyond {
            assert_eq!(error(&mut client, &line), text, "{what}: {line}");
        }
    }
    assert_eq!(digest(&mut client), before);
}

/// With `UPDATE_SNAPSHOTS=yes`, writes the table of the page.
#[test]
fn the_page_has_all_limits() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/limits.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let start = page.find("| limit |").expect("a table");
    let end = start + page[start..].find("\n\n").expect("text after the table");
    let rows = limits().iter().map(Limit::row).collect::<Vec<_>>().join("\n");
    let table = format!("| limit | from | to | beyond |\n|---|---|---|---|\n{rows}");
    if std::env::var("UPDATE_SNAPSHOTS").is_ok_and(|value| value == "yes") {
        std::fs::write(&path, [&page[..start], &table, &page[end..]].concat()).expect("a page that can be written");
    } else {
        assert_eq!(page[start..end], table, "run this test with UPDATE_SNAPSHOTS=yes");
    }
}

/// The settings with their smallest and largest values, and values beyond these.
const SETTINGS: [(&str, [&str; 2], [&str; 2]); 9] = [
    ("error-rate", ["5e-324", "0.9999999999999999"], ["0", "1"]),
    ("initial-size", ["1", "9223372036854775807"], ["0", "9223372036854775808"]),
    ("expansion-factor", ["0", "4294967295"], ["-1", "4294967296"]),
    ("cf-bucket-size", ["1", "255"], ["0", "256"]),
    ("cf-initial-size", ["2", "4611686018427387904"], ["1", "9223372036854775808"]),
    ("cf-max-iterations", ["1", "65535"], ["0", "65536"]),
    ("cf-expansion-factor", ["0", "32768"], ["-1", "32769"]),
    ("cf-max-expansions", ["1", "9223372036854775807"], ["0", "9223372036854775808"]),
    ("lookahead-size", ["0", "9223372036854775807"], ["-1", "9223372036854775808"]),
];

#[test]
fn filters_of_the_smallest_and_largest_settings_are_saved_and_loaded() {
    for end in [0, 1] {
        let arguments: Vec<String> = SETTINGS.iter().map(|(name, ends, _)| format!("{name} {}", ends[end])).collect();
        let setup = || with_debug(Setup::oxbloom().module_arguments(&arguments.join(" ")));
        let server = setup().start();
        let mut client = server.connect();
        // The largest capacity is only possible in a filter whose memory does not depend on it.
        for line in ["BF.INSERT counting COUNTING ITEMS a b c", "CF.ADD cuckoo a"] {
            let is_possible = end == 1 || !line.contains("COUNTING");
            let line = if is_possible { line.to_owned() } else { line.replace(" b c", "") };
            run(&mut client, &line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let before = digest(&mut client);
        run(&mut client, "SAVE").unwrap();
        let restarted = setup().on(copy_of(server.folder())).start();
        assert_eq!(digest(&mut restarted.connect()), before, "{arguments:?}");
    }
}

#[test]
fn settings_beyond_their_ranges_are_rejected() {
    for (name, _, beyond) in SETTINGS {
        for value in beyond {
            let log = failed_start(Setup::oxbloom().module_arguments(&format!("{name} {value}")));
            assert!(log.contains(&format!("{name} must be")) && log.contains(&format!("not '{value}'")), "{log}");
        }
    }
}

#[test]
fn the_longest_prefix_and_name_work_and_longer_ones_are_rejected() {
    let (prefix, name) = ("P".repeat(16), "n".repeat(32));
    let arguments = format!("prefix {prefix} name {name}");
    let setup = || with_debug(Setup::oxbloom().module_arguments(&arguments));
    let server = setup().start();
    let mut client = server.connect();
    for line in ["BF.ADD bloom a", "BF.RESERVE classic 0.01 10 LAYOUT classic", "CF.ADD cuckoo a"] {
        run(&mut client, &format!("{prefix}{line}")).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let before = digest(&mut client);
    run(&mut client, "SAVE").unwrap();
    let replica = start_replica(&server, setup());
    assert_eq!(digest(&mut replica.connect()), before);
    let restarted = setup().on(copy_of(server.folder())).start();
    assert_eq!(digest(&mut restarted.connect()), before);
    for longer in [format!("prefix {prefix}P"), format!("prefix {prefix} name {name}n")] {
        assert!(failed_start(Setup::oxbloom().module_arguments(&longer)).contains("must"), "{longer}");
    }
}
