//! Arguments that are rejected: too few or too many, unknown or repeated options, and keys of another type. The limits
//! and the oracle have numbers out of range.

use crate::commands::table::COMMANDS;
use crate::expected::WRONG_TYPE;
use testkit::Setup;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

#[test]
fn every_command_rejects_a_key_of_another_type_and_leaves_it_unchanged() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("SET key value");
    for command in COMMANDS {
        assert_eq!(client.run(command.line), Reply::error(WRONG_TYPE), "{}", command.line);
    }
    for words in ["BF.INSERT key NOCREATE ITEMS a", "BF.INFO key nofield", "BF.SCANDUMP key x"] {
        assert_eq!(client.run(words), Reply::error(WRONG_TYPE), "{words}");
    }
    assert_eq!(client.run("GET key"), Reply::bulk("value"));
    client.run("BF.ADD filter item");
    assert_eq!(client.run("GET filter"), Reply::error(WRONG_TYPE));
    assert_eq!(client.run("SADD filter member"), Reply::error(WRONG_TYPE));
}

#[test]
fn a_wrong_number_of_arguments_is_rejected_whatever_the_key_holds() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for prepare in ["DEL key", "SET key value", "DEL key", "BF.ADD key item"] {
        client.run(prepare);
        for (name, words) in lines_of_wrong_length() {
            assert_eq!(client.run(&words), wrong_arity(name), "{words}");
        }
    }
    for words in [
        "ITEMS",
        "CAPACITY 5",
        "CAPACITY 5 ITEMS",
        "NOCREATE NONSCALING",
        "COUNTING NX",
        "ERROR 0.1 EXPANSION",
        "SEED 1 SEED",
        "LAYOUT",
    ] {
        assert_eq!(client.run(&format!("BF.INSERT key {words}")), wrong_arity("bf.insert"), "{words}");
    }
}

/// Returns command lines with too few arguments, and with one too many if the command has a maximum.
fn lines_of_wrong_length() -> Vec<(&'static str, String)> {
    let max = |name| match name {
        "bf.reserve" => Some(24),
        "bf.info" => Some(3),
        _ => None,
    };
    let mut lines = Vec::new();
    for command in COMMANDS {
        let words: Vec<_> = command.line.split(' ').collect();
        let min = command.arity.unsigned_abs() as usize;
        lines.push((command.name, words[..min - 1].join(" ")));
        lines.push((command.name, words[0].to_owned()));
        if let Some(max) = max(command.name).or((command.arity > 0).then_some(min)) {
            let surplus = ["word"].repeat(max + 1 - words.len());
            lines.push((command.name, format!("{} {}", command.line, surplus.join(" "))));
        }
    }
    lines
}

/// Returns the error for a wrong number of arguments. Servers before 7.0 repeat the name as it was sent, which is in
/// upper case here.
fn wrong_arity(name: &str) -> Reply {
    let name = if server_version() < (7, 0) { name.to_ascii_uppercase() } else { name.to_owned() };
    Reply::Error(format!("ERR wrong number of arguments for '{name}' command"))
}

#[test]
fn commands_and_options_may_be_in_any_case() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let reserve = "BF.RESERVE 1 0.01 100 EXPANSION 4 SEED 7";
    let insert = "BF.INSERT 1 CAPACITY 5 ERROR 0.1 EXPANSION 3 SEED 7 ITEMS a";
    let flags = "BF.INSERT 1 NONSCALING COUNTING NX ITEMS a";
    let nonscaling = "BF.RESERVE 1 0.01 100 NONSCALING";
    let counting = "BF.RESERVE 1 0.01 100 COUNTING";
    for words in [reserve, insert, flags, nonscaling, counting] {
        let mixed: String =
            words.char_indices().map(|(i, c)| if i % 3 == 1 { c.to_ascii_lowercase() } else { c }).collect();
        let created = [words.to_owned(), words.to_ascii_lowercase(), mixed].map(|words| {
            client.run("DEL 1");
            assert!(!client.run(&words).is_error(), "{words}");
            client.run("BF.INFO 1")
        });
        assert!(created.iter().all(|info| *info == created[0]), "{words}: {created:?}");
    }
    assert_eq!(client.run("bf.insert nokey NoCreate iteMS a"), Reply::error("ERR not found"));
    client.run(nonscaling.replace(" 1 ", " 2 ").as_str());
    assert_eq!(client.run("BF.info 2 cApacity"), Reply::integers(&[100]));
}

#[test]
fn unknown_and_repeated_options_are_rejected_and_create_nothing() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let unknown = Reply::error("Unknown argument received");
    for option in ["I a", "ITEM a", "NO ITEMS a", "NOCREAT ITEMS a", "CAP 5 ITEMS a", "E 2 ITEMS a", "x ITEMS a"] {
        assert_eq!(client.run(&format!("BF.INSERT key {option}")), unknown, "{option}");
    }
    let unknown = |option: &str| Reply::error(&format!("ERR unknown option '{option}': correct or remove it"));
    for (options, first) in [
        ("x", "x"),
        ("NOCREATE", "NOCREATE"),
        ("CAPACITY 5", "CAPACITY"),
        ("EXPANSION 2 x NX", "x"),
        ("NONSCALING x", "x"),
        ("COUNTING EX 10 NX", "NX"),
    ] {
        assert_eq!(client.run(&format!("BF.RESERVE key 0.01 100 {options}")), unknown(first), "{options}");
    }
    let line: [&[u8]; 5] = [b"BF.RESERVE", b"key", b"0.01", b"100", b"it's\n\0"];
    assert_eq!(client.run_words(&line), unknown("it\\'s\\n\\0"));
    let repeated = Reply::error("ERR repeated argument: give each option once");
    for option in ["CAPACITY 5", "ERROR 0.1", "EXPANSION 2", "SEED 1", "NOCREATE", "NONSCALING", "COUNTING", "NX"] {
        assert_eq!(client.run(&format!("BF.INSERT key {option} {option} ITEMS a")), repeated, "{option}");
    }
    for option in ["EXPANSION 2", "SEED 1", "NONSCALING", "COUNTING"] {
        assert_eq!(client.run(&format!("BF.RESERVE key 0.01 100 {option} {option}")), repeated, "{option}");
    }
    assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
}

#[test]
fn insert_rejects_another_layout_or_seed_than_the_filters_but_not_another_capacity() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE native 0.001 100 SEED 7");
    client.run("BF.RESERVE counting 0.001 100 SEED 7 COUNTING");
    client.run("BF.RESERVE classic 0.001 100 LAYOUT classic");
    let kind =
        "ERR the filter exists without COUNTING, or with another LAYOUT: leave out this option, or use another key";
    let seed = "ERR the filter exists with another SEED: leave out SEED, or use another key";
    for (words, rejection) in [
        ("native LAYOUT classic", kind),
        ("counting LAYOUT classic", kind),
        ("classic LAYOUT native", kind),
        ("native SEED 8", seed),
        ("counting SEED 8", seed),
        ("classic SEED 7", seed),
        ("native COUNTING", kind),
        ("classic COUNTING", kind),
        ("native NOCREATE SEED 8", seed),
    ] {
        assert_eq!(client.run(&format!("BF.INSERT {words} ITEMS new")), Reply::error(rejection), "{words}");
    }
    for words in [
        "native SEED 7 LAYOUT native",
        "counting SEED 7 LAYOUT native COUNTING",
        "counting CAPACITY 5 ERROR 0.5",
        "classic LAYOUT classic CAPACITY 5",
        "native CAPACITY 5 ERROR 0.5 EXPANSION 7",
        "native NONSCALING",
    ] {
        assert!(!client.run(&format!("BF.INSERT {words} ITEMS new")).is_error(), "{words}");
    }
    for (key, expected) in [("native", 1), ("counting", 1), ("classic", 1)] {
        assert_eq!(client.run(&format!("BF.CARD {key}")), Reply::Integer(expected), "{key}");
    }
}
