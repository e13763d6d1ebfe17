//! valkey-bloom's dialect, compared with its replies.
//!
//! `replies.tsv` has commands, each with the reply of valkey-bloom in RESP2, and in RESP3 if it only reads. They come from
//! a module that was put together from published parts of valkey-bloom 1.0.

use testkit::server::server_version;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, error, run};

const ARITY: &str = "ERR wrong number of arguments";

/// A command that only we have.
const OURS: &str = "a command of ours";

/// Commands, the beginning of our reply, and why it is not valkey-bloom's.
const INTENDED: &[(&str, &str, &str)] = &[
    ("BF.INFO r SEED", "nil", "a field of ours"),
    ("BF.INFO n SEED", "nil", "a field of ours"),
    ("BF.LOAD l '\\x00abc'", "-ERR bloom object decoding failed", "no version of valkey-bloom wrote a version 0"),
    ("BF.INFO z", "[+Capacity, :3, +Size, :921,", "the size is that of our allocations"),
    ("BF.SCANDUMP r 0", "[:1, ", OURS),
    ("BF.LOADCHUNK r 1 x", "-ERR invalid offset - no link found", OURS),
    ("BF.DEL r x", "-ERR this filter does not support BF.DEL", OURS),
];

/// Returns the words of a line. One in quotes may be empty, or have bytes such as `\x01`.
fn words(line: &str) -> Vec<Vec<u8>> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| {
        let is_quoted = index % 2 == 1;
        if is_quoted { vec![unescaped(part)] } else { part.split_whitespace().map(|word| word.into()).collect() }
    });
    words.collect()
}

/// Replaces `\x01` by the byte 1.
fn unescaped(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let first = parts.next().unwrap().as_bytes().to_vec();
    let byte = |digits| u8::from_str_radix(digits, 16).unwrap();
    parts.fold(first, |bytes, part| [&bytes[..], &[byte(&part[..2])], &part.as_bytes()[2..]].concat())
}

/// Shows a reply as the file does.
fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => format!("-{text}"),
        Reply::Double(number) => format!(",{number:?}"),
        Reply::NullBulk | Reply::Null => "nil".to_owned(),
        Reply::Array(elements) => format!("[{}]", elements.iter().map(shown).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

#[test]
fn replies_are_those_of_valkey_bloom() {
    // With random seeds, a new item is a false positive now and then.
    let arguments = "dialect valkey-bloom layout valkey filter-memory-limit 134217728 bloom-use-random-seed no";
    let server = Setup::oxbloom().module_arguments(arguments).start();
    let (mut resp2, mut resp3) = (Wire::resp2(&server), Wire::resp3(&server));
    // Servers before 7.0 do not offer RESP3 to modules, and quote unknown commands in another way.
    let (protocols, left_out) = if server_version() >= (7, 0) { (2, "#") } else { (1, "BF.FOO") };
    let mut differing = Vec::new();
    for line in include_str!("replies.tsv").lines().skip(1).filter(|line| !line.starts_with('#')) {
        if line.starts_with(left_out) {
            continue;
        }
        let (command, replies) = line.split_once('\t').unwrap();
        let intended = INTENDED.iter().find(|(differing, ..)| *differing == command);
        for (client, theirs) in [&mut resp2, &mut resp3].into_iter().zip(replies.split('\t')).take(protocols) {
            let has_reply = !theirs.is_empty();
            let ours = if has_reply { shown(&client.run_words(&words(command))) } else { continue };
            let is_right = intended.map_or(ours == theirs, |(_, start, _)| ours != theirs && ours.starts_with(start));
            if !is_right {
                differing.push(format!("{command}\n  valkey-bloom: {theirs}\n  oxbloom: {ours}"));
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn options_are_checked_in_order_and_limits_are_named() {
    let server = Setup::oxbloom().module_arguments("dialect valkey-bloom layout valkey").start();
    let mut client = server.connect();
    let capacity = "ERR (capacity should be larger than 0)";
    assert_eq!(error(&mut client, "BF.INSERT key CAPACITY 0 ERROR 1 ITEMS a"), capacity);
    assert_eq!(error(&mut client, "BF.INSERT key ERROR 1 CAPACITY 0 ITEMS a"), "ERR (0 < error rate range < 1)");
    assert_eq!(error(&mut client, "BF.INSERT key SEED 7 ITEMS a"), "ERR invalid seed");
    // Ours, and not valkey-bloom's.
    assert_eq!(error(&mut client, "BF.RESERVE key 0.01 100 COUNTING COUNTING").split(" for ").next(), Some(ARITY));
    run(&mut client, "BF.RESERVE counting 0.01 100 EX 100 COUNTING LAYOUT native").unwrap();
    // The last of equal options counts.
    for [first, last] in
        [["LAYOUT classic", "LAYOUT native"], [&format!("SEED {}", "x".repeat(32)), "LAYOUT native SEED 7"]]
    {
        run(&mut client, &format!("BF.INSERT key {first} {last} ITEMS a")).unwrap();
        assert_eq!(ask::<String>(&mut client, "BF.INFO key LAYOUT"), "native", "{first} {last}");
        run(&mut client, "DEL key").unwrap();
    }
    run(&mut client, "CONFIG SET maxmemory 20mb").unwrap();
    let out_of_memory = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(error(&mut client, "BF.RESERVE key 0.01 100000000"), out_of_memory);
    // Commands on cuckoo filters have no other dialect.
    assert_eq!(error(&mut client, "CF.RESERVE cuckoo x"), "Bad capacity");
    let added = Wire::resp3(&server).run("CF.ADD cuckoo a");
    assert_eq!(added, if server_version() >= (7, 0) { Reply::Boolean(true) } else { Reply::Integer(1) });
}
