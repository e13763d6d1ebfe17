//! Tests the flags and the keys of each command, as the server shows them. `tests/clients/test_command_pages.py` compares
//! their documentation with their pages.

use crate::commands::table::{COMMANDS, READS};
use testkit::Setup;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

#[test]
fn the_server_knows_the_flags_and_keys_of_each_command() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for command in COMMANDS {
        let info = client.run(&format!("COMMAND INFO {}", command.name)).elements()[0].clone();
        let info = info.elements();
        assert_eq!(info[0].text(), command.name);
        let flags: Vec<_> = info[2].elements().iter().map(Reply::text).collect();
        let has = |flag: &str| flags.contains(&flag.to_owned());
        let expected = (command.writes, command.takes_memory());
        assert_eq!((has("write"), has("denyoom")), expected, "{}: {flags:?}", command.name);
        assert_eq!((has("readonly"), has("fast")), (!command.writes, command.fast), "{}: {flags:?}", command.name);
        assert!(has("module") || server_version() < (7, 0), "{}: {flags:?}", command.name);
        assert_eq!(
            (has("movablekeys"), has("noscript")),
            (command.may_name_others(), false),
            "{}: {flags:?}",
            command.name
        );
        assert_eq!(info[3..6], [1, 1, 1].map(Reply::Integer), "{}", command.name);
        let keys = client.run(&format!("COMMAND GETKEYS {}", command.line));
        let named = command.line.split(' ').filter(|word| *word == "key").count();
        assert_eq!(keys, Reply::Array(vec![Reply::bulk("key"); named]));
        if server_version() < (7, 0) {
            continue;
        }
        assert_eq!(info[1], Reply::Integer(command.arity), "{}", command.name);
        // These replies change without a write to the key, or are too large for a cache.
        let varies = ["info", "debug", "scandump", "changes"].contains(&&command.name[3..])
            || ["bf.exists", "bf.mexists", "bf.existspacked", "bf.card"].contains(&command.name);
        let tips: Vec<_> = info[7].elements().iter().map(Reply::text).collect();
        assert_eq!(tips, if varies { vec!["dont_cache"] } else { vec![] }, "{}", command.name);
        let [key, others @ ..] = info[8].elements() else { panic!("{:?}", info[8]) };
        let flags_of = |key: &Reply| key.field("flags").elements().iter().map(Reply::text).collect::<Vec<_>>();
        assert_eq!(flags_of(key), command.key_flags, "{}", command.name);
        assert_eq!(others.len(), usize::from(command.may_name_others()), "{}", command.name);
        // The argument LIKE may also be a key or a value, so the server has to ask the command for its keys.
        let expected = if command.name == "bf.reserve" { &["RO", "access", "incomplete"][..] } else { READS };
        assert!(others.iter().all(|other| flags_of(other) == expected), "{}", command.name);
        // The number of sources, and the word LIKE.
        let place = if command.name == "bf.merge" { "index" } else { "startfrom" };
        let starts = |other: &Reply| other.field("begin_search").field("spec").field(place).integer();
        assert!(others.iter().all(|other| starts(other) == 2), "{}", command.name);
        assert_eq!(*key.field("begin_search").field("spec").field("index"), Reply::Integer(1));
        assert_eq!(*key.field("find_keys").field("spec").field("lastkey"), Reply::Integer(0));
        let with_flags = client.run(&format!("COMMAND GETKEYSANDFLAGS {}", command.line));
        assert!(with_flags.elements().iter().all(|key| key.elements()[0].text() == "key"));
    }
}

#[test]
fn the_server_finds_the_keys_of_commands_with_several() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (words, keys) in [
        ("BF.RESERVE k 0.01 100", &["k"][..]),
        ("BF.RESERVE k LIKE other", &["k", "other"]),
        ("bf.reserve k like other", &["k", "other"]),
        ("BF.RESERVE LIKE 0.01 100", &["LIKE"]),
        ("BF.RESERVE k 0.01 100 SEED LIKE foo", &["k"]),
        ("BF.RESERVE k 0.01 LIKE foo", &["k"]),
        ("BF.RESERVE k 0.01 100 LAYOUT LIKE", &["k"]),
        ("BF.RESERVE k LIKE other NONSCALING", &["k"]),
        ("BF.RESERVE LIKE LIKE LIKE", &["LIKE", "LIKE"]),
        ("BF.MERGE k 1 a", &["k", "a"]),
        ("BF.MERGE k 3 a b 3 INTERSECT", &["k", "a", "b", "3"]),
    ] {
        let named = client.run(&format!("COMMAND GETKEYS {words}"));
        assert_eq!(named, Reply::Array(keys.iter().map(Reply::bulk).collect()), "{words}");
    }
    // For an invalid merge, the server finds only the destination, or replies with an error.
    for line in ["BF.MERGE d 5 a", "BF.MERGE d -1 a", "BF.MERGE d x a"] {
        let reply = client.run(&format!("COMMAND GETKEYS {line}"));
        assert!(reply.is_error() || reply.elements() == [Reply::bulk("d")], "{line}: {reply:?}");
    }
    if server_version() >= (7, 0) {
        let flags = client.run("COMMAND GETKEYSANDFLAGS BF.RESERVE k LIKE other");
        let flags =
            |key: usize| flags.elements()[key].elements()[1].elements().iter().map(Reply::text).collect::<Vec<_>>();
        assert_eq!(
            (flags(0), flags(1)),
            (vec!["RW".to_owned(), "update".to_owned()], READS.map(str::to_owned).to_vec())
        );
    }
}

#[test]
fn no_other_command_is_registered() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let mut names: Vec<_> = client
        .run("COMMAND")
        .elements()
        .iter()
        .map(|command| command.elements()[0].text())
        .filter(|name| name.starts_with("bf.") || name.starts_with("cf."))
        .collect();
    let mut expected: Vec<_> = COMMANDS.iter().map(|command| command.name.to_owned()).collect();
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
}
