//! The optional features that servers offer to modules. The log and docs/versions.md must list the missing ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::lookahead;
use testkit::server::server_name_and_version;
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask};

/// A check that returns true if a feature works on a server.
type Check = fn(&Server) -> bool;

/// The features that only some servers offer to modules, with their checks.
const FEATURES: [(&str, Check); 7] = [
    ("settings in CONFIG", has_settings),
    ("settings named bf-… as in Redis 8", takes_redis_8_settings),
    ("COMMAND DOCS", describes_commands),
    ("RESP3 booleans and maps", replies_in_resp3),
    ("ACL categories", has_categories),
    ("CLUSTER MIGRATESLOTS", migrates_slots),
    ("bf.lookahead", looks_ahead),
];

fn looks_ahead(_: &Server) -> bool {
    let server = Setup::oxbloom().module_arguments("lookahead on lookahead-size 1").start();
    let mut client = server.connect();
    ask::<bool>(&mut client, "BF.ADD filter item") && lookahead::is_active(&mut client)
}

fn has_settings(server: &Server) -> bool {
    !Wire::resp2(server).run("CONFIG GET bf.*").elements().is_empty()
}

fn takes_redis_8_settings(_: &Server) -> bool {
    Setup::oxbloom().set("bf-initial-size 7").try_start().is_ok()
}

fn describes_commands(server: &Server) -> bool {
    let docs = Wire::resp2(server).run("COMMAND DOCS bf.add");
    !docs.is_error() && !docs.elements().is_empty()
}

fn replies_in_resp3(server: &Server) -> bool {
    let mut client = Wire::resp3(server);
    let replies = [client.run("BF.ADD key item"), client.run("BF.INFO key")];
    matches!(replies, [Reply::Boolean(true), Reply::Map(_)])
}

fn has_categories(server: &Server) -> bool {
    !Wire::resp2(server).run("ACL CAT bloom").is_error()
}

fn migrates_slots(_: &Server) -> bool {
    let server = Setup::oxbloom().set("cluster-enabled yes").start();
    let nobody = "0".repeat(40);
    let reply = Wire::resp2(&server).run(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 0 NODE {nobody}"));
    let Reply::Error(rejection) = reply else { panic!("{reply:?}") };
    // The server first checks that its modules support the command. Ours does, so the error is not about modules.
    assert!(!rejection.contains("module"), "{rejection}");
    !rejection.to_lowercase().contains("unknown subcommand")
}

/// Returns the lines that the module logged on this server.
pub(crate) fn logged(server: &Server) -> Vec<String> {
    server.log().lines().filter_map(|line| Some(line.split_once("<bf> ")?.1.to_owned())).collect()
}

/// Returns the missing features that the log lists, each with its fallback.
pub(crate) fn lacking(server: &Server) -> BTreeMap<String, String> {
    let lines = logged(server);
    let lists = lines
        .iter()
        .filter_map(|line| line.strip_prefix("this server lacks optional features, which are off (nothing to do): "));
    let entries = lists.flat_map(|list| list.split_terminator(')').map(|entry| entry.trim_start_matches(", ")));
    entries
        .map(|entry| entry.split_once(" (").unwrap_or_else(|| panic!("{entry}")))
        .map(|(feature, instead)| (feature.to_owned(), instead.to_owned()))
        .collect()
}

/// Returns the text of a file of the project.
fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the cells of the table in docs/versions.md, without backticks. The first row has the names of the servers,
/// and each further row is about one feature.
fn table() -> Vec<Vec<String>> {
    let page = file("docs/versions.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Servers\n")).expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let rows = rows.filter(|row| !row.starts_with("---"));
    rows.map(|row| row.split('|').map(|cell| cell.trim().replace('`', "")).collect()).collect()
}

#[test]
fn the_log_and_the_page_name_the_features_that_this_server_lacks() {
    let server = Setup::oxbloom().start();
    let lacking = lacking(&server);
    let table = table();
    let [names, rows @ ..] = &table[..] else { panic!("no table") };
    let (name, (major, minor)) = server_name_and_version();
    let column = names.iter().position(|column| *column == format!("{name} {major}.{minor}"));
    assert!(rows.iter().map(|row| row[0].as_str()).eq(FEATURES.map(|(feature, _)| feature)), "{rows:?}");
    for (row, (feature, is_seen)) in rows.iter().zip(FEATURES) {
        assert_eq!(is_seen(&server), !lacking.contains_key(feature), "{feature}: {lacking:?}");
        // The table has no column for some versions.
        if let Some(column) = column {
            assert_eq!(&row[column], lacking.get(feature).map_or("yes", String::as_str), "{feature}");
        }
    }
    assert!(lacking.keys().all(|named| FEATURES.iter().any(|(feature, _)| feature == named)), "{lacking:?}");
}

#[test]
fn the_page_names_the_servers_that_are_tested() {
    let names = table().swap_remove(0);
    let makefile = file("Makefile");
    let listed = makefile.lines().find_map(|line| line.strip_prefix("SERVERS := ")).expect("a list of servers");
    let columns: Vec<_> = names[1..].iter().map(|name| name.to_lowercase().replace(' ', "-")).collect();
    assert_eq!(columns, listed.split(' ').collect::<Vec<_>>());
}
