//! Every command: its replies in RESP2 and RESP3, its errors, its limits, and the server's information about it.

use oxbloom_filter::internals::codec::chunk;
use redis::Value;

use testkit::memory::{create, grow};
use testkit::persistence::aof_commands;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, error, run};

pub(crate) const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const FULL: &str = "ERR non scaling filter is full";

/// The properties of a command that clients can see.
pub(crate) struct Command {
    pub name: &'static str,
    /// A valid command line. Its key is `key`.
    pub line: &'static str,
    pub arity: i64,
    pub writes: bool,
    pub fast: bool,
    /// Flags of the key specification.
    key_flags: &'static [&'static str],
}

const BAD_SEED: &str = "ERR bad seed: SEED takes a whole number from 0 to 18446744073709551615";
const READS: &[&str; 2] = &["RO", "access"];
const INSERTS: &[&str] = &["RW", "insert"];
const REMOVES: &[&str] = &["RW", "delete"];
const UPDATES: &[&str] = &["RW", "update"];
const MERGES: &[&str] = &["RW", "access", "update"];

pub(crate) const COMMANDS: &[Command] = &[
    command("bf.reserve", "BF.RESERVE key 0.01 100", -4, true, true, UPDATES),
    command("bf.add", "BF.ADD key item", 3, true, true, INSERTS),
    command("bf.madd", "BF.MADD key item", -3, true, false, INSERTS),
    command("bf.insert", "BF.INSERT key ITEMS item", -4, true, false, INSERTS),
    command("bf.addpacked", "BF.ADDPACKED key LINES item", -4, true, false, INSERTS),
    command("bf.exists", "BF.EXISTS key item", 3, false, true, READS),
    command("bf.mexists", "BF.MEXISTS key item", -3, false, false, READS),
    command("bf.existspacked", "BF.EXISTSPACKED key LINES item", -4, false, false, READS),
    command("bf.del", "BF.DEL key item", 3, true, true, REMOVES),
    command("bf.mdel", "BF.MDEL key item", -3, true, false, REMOVES),
    command("bf.delpacked", "BF.DELPACKED key LINES item", -4, true, false, REMOVES),
    command("bf.count", "BF.COUNT key item", 3, false, true, READS),
    command("bf.mcount", "BF.MCOUNT key item", -3, false, false, READS),
    command("bf.merge", "BF.MERGE key 1 key", -4, true, false, MERGES),
    command("bf.card", "BF.CARD key", 2, false, true, READS),
    command("bf.info", "BF.INFO key", -2, false, true, READS),
    command("bf.scandump", "BF.SCANDUMP key 0", 3, false, false, READS),
    command("bf.loadchunk", "BF.LOADCHUNK key 1 data", 4, true, false, UPDATES),
    command("bf.load", "BF.LOAD key data", 3, true, false, UPDATES),
    command("bf.debug", "BF.DEBUG key", 2, false, true, READS),
    command("cf.reserve", "CF.RESERVE key 100", -3, true, true, UPDATES),
    command("cf.add", "CF.ADD key item", 3, true, true, INSERTS),
    command("cf.addnx", "CF.ADDNX key item", 3, true, true, INSERTS),
    command("cf.insert", "CF.INSERT key ITEMS item", -4, true, false, INSERTS),
    command("cf.insertnx", "CF.INSERTNX key ITEMS item", -4, true, false, INSERTS),
    command("cf.exists", "CF.EXISTS key item", 3, false, true, READS),
    command("cf.mexists", "CF.MEXISTS key item", -3, false, false, READS),
    command("cf.count", "CF.COUNT key item", 3, false, true, READS),
    command("cf.del", "CF.DEL key item", 3, true, true, REMOVES),
    command("cf.info", "CF.INFO key", 2, false, true, READS),
    command("cf.debug", "CF.DEBUG key", 2, false, true, READS),
    command("cf.compact", "CF.COMPACT key", 2, true, false, REMOVES),
    command("cf.convert", "CF.CONVERT key", 2, true, false, UPDATES),
    command("cf.scandump", "CF.SCANDUMP key 0", 3, false, false, READS),
    command("cf.loadchunk", "CF.LOADCHUNK key 1 data", 4, true, false, UPDATES),
];

const fn command(
    name: &'static str,
    line: &'static str,
    arity: i64,
    writes: bool,
    fast: bool,
    key_flags: &'static [&'static str],
) -> Command {
    Command { name, line, arity, writes, fast, key_flags }
}

impl Command {
    /// Returns true if a server that is out of memory rejects the command. Commands that only remove items are allowed,
    /// since they free memory.
    fn takes_memory(&self) -> bool {
        self.writes && self.key_flags != REMOVES
    }

    /// Returns true if the command may name further keys, which it reads.
    pub(crate) fn may_name_others(&self) -> bool {
        matches!(self.name, "bf.reserve" | "bf.merge")
    }
}

/// The fields of the reply to BF.INFO without further arguments.
const LABELS: [&str; 5] = ["Capacity", "Size", "Number of filters", "Number of items inserted", "Expansion rate"];

/// Returns a connection for each protocol, with its replies for true and false.
pub(crate) fn protocols(server: &Server) -> [(Wire, Reply, Reply); 2] {
    // Servers before 7.0 have no booleans for modules.
    let boolean = |yes: bool| if server_version() >= (7, 0) { Reply::Boolean(yes) } else { Reply::Integer(yes.into()) };
    [(Wire::resp2(server), Reply::Integer(1), Reply::Integer(0)), (Wire::resp3(server), boolean(true), boolean(false))]
}

fn ok() -> Reply {
    Reply::simple("OK")
}

/// Returns the contents of a key, for comparison.
fn dump(client: &mut Wire, key: &str) -> Reply {
    client.run(&format!("DUMP {key}"))
}

fn add_numbers(client: &mut Wire, key: &str, count: usize) {
    let numbers: Vec<_> = (0..count).map(|number| number.to_string()).collect();
    for numbers in numbers.chunks(1000) {
        let words: Vec<_> = ["BF.MADD", key].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        assert!(!client.run_words(&words).is_error());
    }
}

#[test]
fn an_item_is_new_once_and_present_ever_after() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    assert_eq!(run(&mut client, "BF.ADD key item"), Ok(Value::Int(1)));
    assert_eq!(run(&mut client, "BF.ADD key item"), Ok(Value::Int(0)));
    assert_eq!(run(&mut client, "BF.EXISTS key item"), Ok(Value::Int(1)));
    assert_eq!(ask::<Vec<i64>>(&mut client, "BF.MEXISTS key item other"), [1, 0]);
    assert_eq!(error(&mut client, "BF.RESERVE key 0.01 100"), "ERR item exists");
    assert_eq!(error(&mut client, "BF.INFO nokey"), "ERR not found");
    assert_eq!(error(&mut client, "BF.INFO key nofield"), "Invalid information value");
}

#[test]
fn replies_have_the_right_type_in_both_protocols() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        let expected = [
            ("BF.RESERVE key 0.001 1000", ok()),
            ("BF.ADD key a", yes.clone()),
            ("BF.ADD key a", no.clone()),
            ("BF.MADD key a b b", Reply::Array(vec![no.clone(), yes.clone(), no.clone()])),
            ("BF.INSERT key ITEMS b c", Reply::Array(vec![no.clone(), yes.clone()])),
            ("BF.EXISTS key a", yes.clone()),
            ("BF.EXISTS key z", no.clone()),
            ("BF.MEXISTS key a z c", Reply::Array(vec![yes.clone(), no.clone(), yes.clone()])),
            ("BF.CARD key", Reply::Integer(3)),
        ];
        for (words, reply) in expected {
            assert_eq!(client.run(words), reply, "{words}");
        }
        let debug = client.run("BF.DEBUG key");
        assert!(matches!(debug.elements(), [Reply::Bulk(_), Reply::Bulk(_)]), "{debug:?}");
        let chunks = client.scan_dump("key");
        assert_eq!(chunks[0].0, 1);
        for (cursor, data) in chunks {
            assert_eq!(client.load_chunk("copy", cursor, &data), ok());
        }
    }
}

#[test]
fn a_missing_key_holds_nothing_and_is_created_by_adding() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        for words in ["BF.INFO nokey", "BF.INFO nokey nofield", "BF.SCANDUMP nokey 0", "BF.SCANDUMP nokey x"] {
            assert_eq!(client.run(words), Reply::error("ERR not found"), "{words}");
        }
        for words in ["BF.DEBUG nokey", "BF.LOADCHUNK nokey 2 data", "BF.INSERT nokey NOCREATE ITEMS a"] {
            assert_eq!(client.run(words), Reply::error("ERR not found"), "{words}");
        }
        assert_eq!(client.run("BF.EXISTS nokey a"), no);
        assert_eq!(client.run("BF.MEXISTS nokey a b"), Reply::Array(vec![no.clone(), no.clone()]));
        assert_eq!(client.run("BF.CARD nokey"), Reply::Integer(0));
        assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
        assert_eq!(client.run("BF.ADD added a"), yes);
        assert_eq!(client.run("BF.MADD many a"), Reply::Array(vec![yes.clone()]));
        assert_eq!(client.run("BF.INSERT inserted ITEMS a"), Reply::Array(vec![yes.clone()]));
        assert_eq!(client.run("DBSIZE"), Reply::Integer(3));
    }
}

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

#[test]
fn a_command_with_too_few_arguments_is_rejected_when_it_is_queued() {
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for command in COMMANDS {
        let words: Vec<_> = command.line.split(' ').collect();
        client.run("MULTI");
        assert_eq!(client.run(command.line), Reply::simple("QUEUED"));
        let min = command.arity.unsigned_abs() as usize;
        assert_eq!(client.run(&words[..min - 1].join(" ")), wrong_arity(command.name));
        assert!(client.run("EXEC").is_error());
    }
    assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
}

#[test]
fn commands_get_the_same_replies_in_a_transaction() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        let lines = ["BF.RESERVE key 0.01 1 NONSCALING", "BF.ADD key a", "BF.MADD key a b", "BF.EXISTS key b"];
        client.run("MULTI");
        for words in lines {
            assert_eq!(client.run(words), Reply::simple("QUEUED"));
        }
        let many = Reply::Array(vec![no.clone(), Reply::error(FULL)]);
        assert_eq!(client.run("EXEC"), Reply::Array(vec![ok(), yes, many, no]));
    }
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
fn an_item_may_be_any_bytes() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000000001 1000");
    let mut items: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    items.extend([vec![], vec![0, 0], vec![0; 3], b"a\0b".to_vec(), b"a\0c".to_vec(), b"\xff\xfe".to_vec()]);
    items.extend([b"\r\n$1\r\n".to_vec(), vec![b'x'; 1 << 20], "ключ".as_bytes().to_vec()]);
    for item in &items {
        let words = |name: &'static str| [name.as_bytes(), b"key", item.as_slice()];
        assert_eq!(client.run_words(&words("BF.EXISTS")), Reply::Integer(0), "{item:?}");
        assert_eq!(client.run_words(&words("BF.ADD")), Reply::Integer(1), "{item:?}");
        assert_eq!(client.run_words(&words("BF.ADD")), Reply::Integer(0), "{item:?}");
        assert_eq!(client.run_words(&words("BF.EXISTS")), Reply::Integer(1), "{item:?}");
    }
    let words: Vec<_> = [&b"BF.MEXISTS"[..], b"key"].into_iter().chain(items.iter().map(Vec::as_slice)).collect();
    assert_eq!(client.run_words(&words), Reply::Array(vec![Reply::Integer(1); items.len()]));
    for key in [&b""[..], b"\0", b"\xff"] {
        assert_eq!(client.run_words(&[&b"BF.ADD"[..], key, b"item"]), Reply::Integer(1));
        assert_eq!(client.run_words(&[&b"BF.EXISTS"[..], key, b"item"]), Reply::Integer(1));
    }
}

#[test]
fn an_item_may_be_as_long_as_the_server_accepts() {
    const LENGTH: usize = 512 << 20;
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let part = vec![b'x'; 16 << 20];
    let mut send = |name: &str, last: u8| {
        client.send_raw(format!("*3\r\n${}\r\n{name}\r\n$3\r\nkey\r\n${LENGTH}\r\n", name.len()).as_bytes());
        (1..LENGTH / part.len()).for_each(|_| client.send_raw(&part));
        client.send_raw(&part[1..]);
        client.send_raw(&[last, b'\r', b'\n']);
        client.receive()
    };
    assert_eq!(send("BF.ADD", b'a'), Reply::Integer(1));
    assert_eq!(send("BF.EXISTS", b'a'), Reply::Integer(1));
    assert_eq!(send("BF.EXISTS", b'b'), Reply::Integer(0));
}

#[test]
fn a_thousand_items_in_one_command_get_their_replies_in_order() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000000001 10 SEED 7");
    let items: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    let line = |name: &str, step: usize| -> Vec<String> {
        [name.to_owned(), "key".to_owned()].into_iter().chain(items.iter().step_by(step).cloned()).collect()
    };
    assert_eq!(client.run_words(&line("BF.MADD", 3)), Reply::integers(&[1; 334]));
    let thirds: Vec<_> = (0..1000).map(|number| i64::from(number % 3 == 0)).collect();
    assert_eq!(client.run_words(&line("BF.MEXISTS", 1)), Reply::integers(&thirds));
    let others: Vec<_> = thirds.iter().map(|third| 1 - third).collect();
    assert_eq!(client.run_words(&line("BF.MADD", 1)), Reply::integers(&others));
    assert_eq!(client.run("BF.CARD key"), Reply::Integer(1000));
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
fn numbers_out_of_range_get_the_errors_of_redisbloom() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let rate_range = "ERR (0 < error rate range < 1) ";
    let expansion_range = "ERR expansion should be greater or equal to 1";
    let rejected = [
        ("BF.RESERVE key x 100", "ERR bad error rate"),
        ("BF.RESERVE key nan 100", "ERR bad error rate"),
        ("BF.RESERVE key 0 100", rate_range),
        ("BF.RESERVE key 1 100", rate_range),
        ("BF.RESERVE key inf x", rate_range),
        ("BF.RESERVE key 0.01 1.5", "ERR bad capacity"),
        ("BF.RESERVE key 0.01 9223372036854775808", "ERR bad capacity"),
        ("BF.RESERVE key 0.01 0", "ERR (capacity should be larger than 0)"),
        ("BF.RESERVE key 0.01 -1", "ERR (capacity should be larger than 0)"),
        ("BF.RESERVE key 0.01 100 EXPANSION", "ERR no expansion"),
        ("BF.RESERVE key 0.01 100 EXPANSION x", "ERR bad expansion"),
        ("BF.RESERVE key 0.01 100 EXPANSION 4294967296", "ERR bad expansion"),
        ("BF.RESERVE key 0.01 100 EXPANSION -1", expansion_range),
        ("BF.RESERVE key 0.01 100 EXPANSION 2 NONSCALING", "Nonscaling filters cannot expand"),
        ("BF.RESERVE key 0.01 100 NONSCALING EXPANSION 2", "Nonscaling filters cannot expand"),
        ("BF.RESERVE key 0.01 100 SEED", BAD_SEED),
        ("BF.RESERVE key 0.01 100 SEED -1", BAD_SEED),
        ("BF.RESERVE key 0.01 100 SEED 18446744073709551616", BAD_SEED),
        ("BF.INSERT key CAPACITY x ITEMS a", "Bad capacity"),
        ("BF.INSERT key ERROR x ITEMS a", "Bad error rate"),
        ("BF.INSERT key EXPANSION x ITEMS a", "Bad expansion"),
        ("BF.INSERT key SEED x ITEMS a", BAD_SEED),
        ("BF.INSERT key CAPACITY 0 ITEMS a", "Bad argument received"),
        ("BF.INSERT key ERROR 1 ITEMS a", "Bad argument received"),
        ("BF.INSERT key EXPANSION -1 ITEMS a", "Bad argument received"),
        ("BF.INSERT key EXPANSION -1 NONSCALING ITEMS a", "Bad argument received"),
        ("BF.INSERT key EXPANSION 4294967296 ITEMS a", "Bad argument received"),
    ];
    for (words, text) in rejected {
        assert_eq!(client.run(words), Reply::error(text), "{words}");
    }
    assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
    assert_eq!(client.run("BF.RESERVE key 0.01 100 SEED 18446744073709551615"), ok());
    assert_eq!(client.run("BF.RESERVE steep 0.01 100 EXPANSION 4294967295"), ok());
    assert_eq!(client.run("BF.INFO steep EXPANSION"), Reply::integers(&[4_294_967_295]));
}

#[test]
fn a_full_filter_adds_the_items_that_fit_and_ends_the_reply_with_the_error() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        for line in ["BF.MADD key", "BF.INSERT key ITEMS", "BF.INSERT key NOCREATE ITEMS"] {
            client.run("DEL key");
            client.run("BF.RESERVE key 0.0001 4 NONSCALING");
            let fits = Reply::Array(vec![yes.clone(), yes.clone(), no.clone(), yes.clone()]);
            assert_eq!(client.run(&format!("{line} a b a c")), fits);
            let stops = Reply::Array(vec![no.clone(), yes.clone(), no.clone(), Reply::error(FULL)]);
            assert_eq!(client.run(&format!("{line} a d b e a f")), stops, "{line}");
            assert_eq!(client.run("BF.MEXISTS key d e f"), Reply::Array(vec![yes.clone(), no.clone(), no.clone()]));
            assert_eq!(client.run("BF.ADD key e"), Reply::error(FULL));
            assert_eq!(client.run("BF.ADD key a"), no);
            assert_eq!(client.run(&format!("{line} e a")), Reply::Array(vec![Reply::error(FULL)]));
            assert_eq!(client.run(&format!("{line} a b c d")), Reply::Array(vec![no.clone(); 4]));
            assert_eq!(client.run("BF.CARD key"), Reply::Integer(4));
            assert_eq!(client.run("BF.INFO key CAPACITY").single_field("Capacity"), Reply::Integer(4));
        }
    }
}

#[test]
fn info_has_exactly_the_five_fields_of_redisbloom() {
    let server = Setup::oxbloom().start();
    for (mut client, ..) in protocols(&server) {
        client.run("FLUSHALL");
        client.run("BF.RESERVE key 0.01 100 EXPANSION 3");
        client.run("BF.RESERVE fixed 0.01 100 NONSCALING");
        add_numbers(&mut client, "key", 150);
        let info = client.run("BF.INFO key");
        let labels: Vec<_> = match &info {
            Reply::Map(pairs) => pairs.iter().map(|(label, _)| label.clone()).collect(),
            array => array.elements().iter().step_by(2).cloned().collect(),
        };
        assert_eq!(labels, LABELS.map(Reply::simple));
        // The first table holds 128 items.
        assert_eq!(*info.field("Capacity"), Reply::Integer(228));
        assert_eq!(*info.field("Number of filters"), Reply::Integer(2));
        assert_eq!(info.field("Number of items inserted"), &client.run("BF.CARD key"));
        assert_eq!(*info.field("Expansion rate"), Reply::Integer(3));
        let used = client.run("MEMORY USAGE key").integer();
        assert!((100..used).contains(&info.field("Size").integer()), "{info:?}, {used}");
        for (token, label) in ["CAPACITY", "size", "Filters", "ITEMS", "expansion"].into_iter().zip(LABELS) {
            let single = client.run(&format!("BF.INFO key {token}"));
            assert_eq!(single.single_field(label), *info.field(label), "{token}");
        }
        // Returns true for a null. Servers before 7.0 let modules reply with a RESP3 null, but not with a map.
        let nothing = |reply: &Reply| match info {
            Reply::Map(_) => *reply == Reply::Null,
            _ if server_version() < (7, 0) => [Reply::Null, Reply::NullBulk].contains(reply),
            _ => *reply == Reply::NullBulk,
        };
        assert!(nothing(client.run("BF.INFO fixed").field("Expansion rate")));
        assert!(nothing(&client.run("BF.INFO fixed EXPANSION").single_field("Expansion rate")));
        for token in ["CAP", "Number", "CAPACITYX", "x"] {
            assert_eq!(client.run(&format!("BF.INFO key {token}")), Reply::error("Invalid information value"));
        }
    }
}

#[test]
fn info_has_further_fields_which_must_be_named() {
    let server = Setup::oxbloom().start();
    for (mut client, ..) in protocols(&server) {
        client.run("FLUSHALL");
        client.run("BF.RESERVE key 0.001 1000 SEED 18446744073709551615");
        let mut field = |token: &str, label: &str| client.run(&format!("BF.INFO key {token}")).single_field(label);
        assert_eq!(field("ERROR", "Error rate").float(), 0.001);
        assert_eq!(field("seed", "Seed"), Reply::bulk("18446744073709551615"));
        assert_eq!(field("Layout", "Layout"), Reply::simple("native"));
        assert_eq!(field("FILL", "Fill ratio").float(), 0.0);
        assert_eq!(field("FPR", "Estimated false positive rate").float(), 0.0);
        add_numbers(&mut client, "key", 1000);
        let mut field = |token: &str, label: &str| client.run(&format!("BF.INFO key {token}")).single_field(label);
        let fill = field("FILL", "Fill ratio").float();
        assert!((0.1..0.6).contains(&fill), "{fill}");
        let rate = field("FPR", "Estimated false positive rate").float();
        assert!((1e-6..0.001).contains(&rate), "{rate}");
        // ALL returns the usual fields and the further ones.
        let all = client.run("BF.INFO key all");
        let usual = client.run("BF.INFO key");
        LABELS.iter().for_each(|label| assert_eq!(all.field(label), usual.field(label), "{label}"));
        for (token, label) in [
            ("ERROR", "Error rate"),
            ("SEED", "Seed"),
            ("LAYOUT", "Layout"),
            ("FILL", "Fill ratio"),
            ("FPR", "Estimated false positive rate"),
            ("ESTIMATED", "Number of items is an estimate"),
            ("WINDOW", "Window"),
            ("SLICES", "Slices"),
            ("REFRESH", "Refresh"),
            ("ROLLING", "Rolling"),
            ("OLDEST", "Age of the oldest slice"),
        ] {
            let single = client.run(&format!("BF.INFO key {token}")).single_field(label);
            assert_eq!(*all.field(label), single, "{token}");
        }
        let facts = match &all {
            Reply::Map(pairs) => pairs.len(),
            array => array.elements().len() / 2,
        };
        assert_eq!(facts, 18);
    }
}

#[test]
fn debug_has_a_line_for_each_layer() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    // The capacity and the number of items of each layer. The layers of a native filter are blocks and a table.
    for (options, hash_bits, layers) in
        [("SEED 7", 128, &[(10, 10), (128, 40)][..]), ("LAYOUT classic", 64, &[(10, 10), (30, 30), (90, 10)])]
    {
        client.run(&format!("BF.RESERVE key 0.000001 10 EXPANSION 3 {options}"));
        add_numbers(&mut client, "key", 50);
        let lines: Vec<_> = client.run("BF.DEBUG key").elements().iter().map(Reply::text).collect();
        assert_eq!(lines[0], "size:50");
        assert_eq!(lines.len(), 1 + layers.len(), "{lines:?}");
        let mut bytes = 0;
        for (index, (line, &(capacity, items))) in lines[1..].iter().zip(layers).enumerate() {
            let facts: Vec<(&str, &str)> = line.split(' ').map(|fact| fact.split_once(':').unwrap()).collect();
            let names: Vec<_> = facts.iter().map(|(name, _)| *name).collect();
            assert_eq!(names[..7], ["bytes", "bits", "hashes", "hashwidth", "capacity", "size", "ratio"]);
            let has_blocks = hash_bits == 128 && index == 0;
            assert_eq!(names[7..], ["blocks"][..usize::from(has_blocks)], "{line}");
            let fact = |index: usize| facts[index].1.parse::<u64>().unwrap();
            assert_eq!(fact(0) * 8, fact(1));
            assert_eq!((fact(3), fact(4), fact(5)), (hash_bits, capacity, items));
            assert!(fact(2) >= 1 && (!has_blocks || (1..=fact(2)).contains(&fact(7))), "{line}");
            let ratio: f64 = facts[6].1.parse().unwrap();
            assert!(ratio > 0.0 && ratio < 0.000001, "{line}");
            bytes += fact(0);
        }
        let size = client.run("BF.INFO key SIZE").elements()[0].integer() as u64;
        assert!((bytes..bytes + 1000).contains(&size), "{bytes} {size}");
        client.run("DEL key");
    }
}

#[test]
fn a_capacity_may_exceed_32_bits() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for capacity in [(1 << 30) + 1, (1 << 31) + 1, 1 << 33] {
        client.run("DEL key");
        assert_eq!(client.run(&format!("BF.RESERVE key 0.9 {capacity} NONSCALING")), ok());
        assert_eq!(client.run("BF.INFO key CAPACITY"), Reply::integers(&[capacity]));
        add_numbers(&mut client, "key", 1000);
        let added = client.run("BF.CARD key").integer();
        assert!(added > 990, "{added}");
        assert_eq!(client.run("BF.MEXISTS key 0 500 999"), Reply::integers(&[1, 1, 1]));
    }
}

#[test]
fn filters_with_the_same_seed_hold_the_same_bits() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE a 0.01 50 SEED 42");
    client.run("BF.INSERT b CAPACITY 50 ERROR 0.01 SEED 42 ITEMS 0");
    client.run("BF.RESERVE other 0.01 50 SEED 43");
    for key in ["a", "b", "other"] {
        add_numbers(&mut client, key, 500);
    }
    assert_eq!(dump(&mut client, "a"), dump(&mut client, "b"));
    assert_ne!(dump(&mut client, "a"), dump(&mut client, "other"));
}

#[test]
fn each_filter_gets_a_random_seed_of_its_own() {
    const FILTERS: u64 = 2000;
    let servers = [Setup::oxbloom().start(), Setup::oxbloom().start()];
    let mut seeds = std::collections::HashSet::new();
    let mut ones = [0u64; 64];
    for server in &servers {
        let mut client = Wire::resp2(server);
        let lines = ["BF.RESERVE key 0.01 100", "BF.ADD key a", "BF.MADD key a", "BF.INSERT key ITEMS a"];
        let lines = lines.into_iter().chain(["BF.RESERVE key 0.01 100 COUNTING"]).cycle();
        for line in lines.take(FILTERS as usize / servers.len()) {
            client.run("DEL key");
            client.run(line);
            let seed = client.run("BF.INFO key SEED").elements()[0].text();
            let seed: u64 = seed.parse().unwrap();
            assert!(seeds.insert(seed), "{seed} twice");
            ones.iter_mut().enumerate().for_each(|(bit, ones)| *ones += seed >> bit & 1);
        }
    }
    // Each bit is set in half of the seeds, within 9 standard deviations. By chance, one of the 64 bits exceeds this in
    // fewer than one run in 10^16.
    let expected = FILTERS as f64 / 2.0;
    let limit = 9.0 * expected.sqrt() / 2f64.sqrt();
    assert!(ones.iter().all(|&ones| (ones as f64 - expected).abs() < limit), "{ones:?}, limit {limit}");
}

#[test]
fn card_counts_new_items_over_all_layers() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (parameters, layers) in [("10 SEED 7", 2), ("100 LAYOUT classic", 4)] {
        client.run(&format!("BF.RESERVE key 0.000000001 {parameters}"));
        add_numbers(&mut client, "key", 1000);
        add_numbers(&mut client, "key", 1000);
        assert_eq!(client.run("BF.CARD key"), Reply::Integer(1000));
        assert_eq!(client.run("BF.INFO key FILTERS"), Reply::integers(&[layers]));
        client.run("DEL key");
    }
}

#[test]
fn a_copy_in_chunks_is_the_same_under_another_key_and_on_another_server() {
    let servers = [Setup::oxbloom().start(), Setup::oxbloom().start()];
    let [mut client, mut other] = [Wire::resp2(&servers[0]), Wire::resp2(&servers[1])];
    client.run("BF.RESERVE empty 0.01 100");
    client.run("BF.RESERVE fixed 0.01 1000 NONSCALING");
    client.run("BF.RESERVE grown 0.01 10");
    client.run("BF.RESERVE deep 0.000000000000000001 10");
    client.run("BF.RESERVE classic 0.01 10 LAYOUT classic");
    client.run("BF.RESERVE large 0.01 30000000");
    for (key, items, chunks) in [
        ("empty", 0, 1..2),
        ("fixed", 1000, 2..3),
        ("grown", 3000, 3..4),
        ("deep", 150_000, 5..6),
        ("classic", 3000, 8..12),
        ("large", 100, 9..13),
    ] {
        add_numbers(&mut client, key, items);
        let dumped = client.scan_dump(key);
        assert!(chunks.contains(&dumped.len()), "{key}: {}", dumped.len());
        assert!(dumped.iter().all(|(_, data)| data.len() <= chunk::BITS_CHUNK_BYTES + 16));
        client.run("DEL copy");
        for (cursor, data) in &dumped {
            assert_eq!(client.load_chunk("copy", *cursor, data), ok());
            assert_eq!(other.load_chunk(key, *cursor, data), ok());
        }
        let original = dump(&mut client, key);
        assert!(original == dump(&mut client, "copy"), "{key}");
        assert!(original == dump(&mut other, key), "{key}");
        assert_eq!(client.run(&format!("BF.DEBUG {key}")), other.run(&format!("BF.DEBUG {key}")));
    }
}

#[test]
fn a_loaded_filter_grows_like_the_original() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.01 100");
    add_numbers(&mut client, "key", 250);
    for (cursor, data) in client.scan_dump("key") {
        client.load_chunk("copy", cursor, &data);
    }
    for key in ["key", "copy"] {
        add_numbers(&mut client, key, 2000);
    }
    assert_eq!(dump(&mut client, "key"), dump(&mut client, "copy"));
}

#[test]
fn damaged_chunks_and_those_of_another_filter_are_rejected_and_change_nothing() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (key, seed) in [("key", 1), ("other", 2)] {
        client.run(&format!("BF.RESERVE {key} 0.01 100 SEED {seed}"));
        add_numbers(&mut client, key, 1000);
    }
    let chunks = client.scan_dump("key");
    let others = client.scan_dump("other");
    // The chunks are the header, the bits, and the table.
    assert_eq!(chunks.len(), 3);
    let (_, header) = chunks[0].clone();
    let flipped = |data: &[u8], bit: usize| {
        let mut data = data.to_vec();
        data[bit / 8] ^= 1 << (bit % 8);
        data
    };
    for [that, this] in [[2, 1], [1, 2]] {
        client.run("DEL target");
        assert_eq!(client.load_chunk("target", 1, &header), ok());
        assert_eq!(client.load_chunk("target", chunks[that].0, &chunks[that].1), ok());
        let before = (dump(&mut client, "target"), client.run("DBSIZE"));
        let (cursor, data) = chunks[this].clone();
        let mut wrong = vec![
            ("another filter's", cursor, others[this].1.clone()),
            ("another chunk's", cursor, chunks[that].1.clone()),
            ("a longer cursor", cursor + 64, data.clone()),
            ("a shorter cursor", cursor - 64, data.clone()),
            ("a cursor off by one", cursor + 1, data.clone()),
            ("no cursor", 0, data.clone()),
            ("a negative cursor", -1, data.clone()),
            ("the smallest cursor", i64::MIN, data.clone()),
            ("the largest cursor", i64::MAX, data.clone()),
            ("the header's cursor", 1, data.clone()),
            ("the header again", 1, header.clone()),
            ("the header as a chunk", header.len() as i64 + 1, header.clone()),
            ("truncated at the end", cursor, data[..data.len() - 1].to_vec()),
            ("truncated by a block", cursor, data[..data.len() - 64].to_vec()),
            ("truncated at the start", cursor, data[1..].to_vec()),
            ("empty", cursor, vec![]),
            ("a tag and a checksum only", cursor, data[data.len() - 16..].to_vec()),
            ("more at the end", cursor, [&data[..], b"x"].concat()),
        ];
        wrong.extend((0..data.len() * 8).step_by(97).map(|bit| ("a bit flipped", cursor, flipped(&data, bit))));
        for (what, cursor, data) in wrong {
            let reply = client.load_chunk("target", cursor, &data);
            assert!(reply.is_error(), "chunk {this}: {what}: {reply:?}");
        }
        assert_eq!(before, (dump(&mut client, "target"), client.run("DBSIZE")));
    }
    let before = (dump(&mut client, "target"), client.run("DBSIZE"));
    for bit in 0..header.len() * 8 {
        assert!(client.load_chunk("nokey", 1, &flipped(&header, bit)).is_error(), "bit {bit}");
    }
    for length in 0..header.len() {
        assert_eq!(client.load_chunk("nokey", 1, &header[..length]), Reply::error("ERR received bad data"));
    }
    for cursor in [0, 2, -1, i64::MAX] {
        assert_eq!(client.load_chunk("nokey", cursor, &header), Reply::error("ERR not found"));
    }
    assert_eq!(before, (dump(&mut client, "target"), client.run("DBSIZE")));
    for (cursor, data) in &chunks[1..] {
        assert_eq!(client.load_chunk("target", *cursor, data), ok());
    }
    assert_eq!(dump(&mut client, "target"), dump(&mut client, "key"));
}

#[test]
fn cursors_are_numbers() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.ADD key item");
    for cursor in ["x", "1.0", "01", "9223372036854775808"] {
        let scan = client.run(&format!("BF.SCANDUMP key {cursor}"));
        assert_eq!(scan, Reply::error("Second argument must be numeric"));
        let load = client.run(&format!("BF.LOADCHUNK key {cursor} data"));
        assert_eq!(load, Reply::error("ERR Second argument must be numeric"));
    }
    let end = Reply::Array(vec![Reply::Integer(0), Reply::bulk("")]);
    for cursor in ["-1", "-9223372036854775808", "9223372036854775807", "1000000"] {
        assert_eq!(client.run(&format!("BF.SCANDUMP key {cursor}")), end);
    }
}

/// Returns the machine's memory in bytes.
fn machine_memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = info.lines().find(|line| line.starts_with("MemTotal:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Returns the resident memory of a server's process in bytes.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_filter_of_ten_gigabytes_takes_memory_only_as_it_is_used() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let before = resident(&server);
    let reply = client.run("BF.RESERVE key 0.01 8000000000");
    if machine_memory() < 14 << 30 && reply == Reply::error(create::SYSTEM) {
        return;
    }
    assert_eq!(reply, ok());
    assert!(client.run("BF.INFO key SIZE").elements()[0].integer() > 9_600_000_000);
    assert_eq!(client.run("BF.ADD key item"), Reply::Integer(1));
    assert_eq!(client.run("BF.EXISTS key item"), Reply::Integer(1));
    assert!(client.run("BF.DEBUG key").elements().len() == 2);
    let after = resident(&server);
    assert!(after < before + (50 << 20), "{before} {after}");
    client.run("DEL key");
}

#[test]
fn a_filter_for_twenty_billion_items_is_created_if_the_machine_has_the_memory() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let reply = client.run("BF.RESERVE key 0.01 20000000000");
    assert!(reply == ok() || reply == Reply::error(create::SYSTEM), "{reply:?}");
    // At 9.6 bits an item, this filter takes 24 GB.
    if machine_memory() > 32 << 30 {
        assert_eq!(reply, ok());
    }
    assert_eq!(client.run("EXISTS key"), Reply::Integer(i64::from(reply == ok())));
    assert!(server.is_alive());
}

#[test]
fn a_filter_too_large_for_any_machine_is_rejected_and_the_server_keeps_running() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let rejected = [create::SYSTEM, create::ADDRESS].map(Reply::error);
    for capacity in [1i64 << 53, 1 << 56, 1 << 60, 1 << 61, 1 << 62, i64::MAX - 1, i64::MAX] {
        for rate in ["0.9", "0.01", "1e-9", "1e-300"] {
            for options in ["", " NONSCALING", " EXPANSION 4294967295", " NONSCALING COUNTING"] {
                let words = format!("BF.RESERVE key {rate} {capacity}{options}");
                assert!(rejected.contains(&client.run(&words)), "{words}");
            }
            let words = format!("BF.INSERT key CAPACITY {capacity} ERROR {rate} ITEMS a");
            assert!(rejected.contains(&client.run(&words)), "{words}");
        }
    }
    assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
    assert!(server.is_alive());
}

#[test]
fn a_layer_too_large_for_any_machine_is_rejected_and_the_filter_stays_as_it_is() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.01 100000 EXPANSION 4294967295 LAYOUT classic");
    let rejected = Reply::error(grow::SYSTEM);
    add_numbers(&mut client, "key", 110_000);
    assert_eq!(client.run("BF.CARD key"), Reply::Integer(100_000));
    let before = client.run("BF.DEBUG key");
    let new = |client: &mut Wire, words: &str| (0..50).map(|n| client.run(&format!("{words}{n}"))).collect::<Vec<_>>();
    assert!(new(&mut client, "BF.ADD key new").contains(&rejected));
    assert!(new(&mut client, "BF.MADD key new").contains(&Reply::Array(vec![rejected.clone()])));
    assert_eq!(client.run("BF.ADD key 0"), Reply::Integer(0));
    assert_eq!(client.run("BF.DEBUG key"), before);
}

#[test]
fn a_native_filter_grows_as_its_items_need_whatever_its_expansion_is() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (key, expansion) in [("least", 1), ("most", u32::MAX)] {
        client.run(&format!("BF.RESERVE {key} 0.01 1000 EXPANSION {expansion} SEED 7"));
        let mut field = |name: &str| client.run(&format!("BF.INFO {key} {name}")).elements()[0].integer();
        assert_eq!(field("EXPANSION"), i64::from(expansion));
        let size = field("SIZE");
        add_numbers(&mut client, key, 50_000);
        let mut field = |name: &str| client.run(&format!("BF.INFO {key} {name}")).elements()[0].integer();
        // Each item takes about seventeen bits.
        assert!((size + 75_000..size + 125_000).contains(&field("SIZE")), "{expansion}: {}", field("SIZE"));
    }
    assert_eq!(client.run("BF.DEBUG least"), client.run("BF.DEBUG most"));
}

/// Returns the events of our commands that arrive before the event `end`, each with its key.
pub(crate) fn events(subscriber: &mut Wire) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        let message = subscriber.receive();
        let [_, _, channel, key] = message.elements() else { panic!("{message:?}") };
        let event = channel.text().rsplit(':').next().unwrap().to_owned();
        match event.as_str() {
            "end" => return events,
            event if event.starts_with("bf.") || event.starts_with("cf.") => {
                events.push(format!("{event} {}", key.text()))
            }
            _ => {}
        }
    }
}

#[test]
fn only_commands_that_change_a_filter_cause_an_event() {
    let server = Setup::oxbloom().set("notify-keyspace-events KEA").start();
    let mut subscriber = Wire::resp2(&server);
    subscriber.run("PSUBSCRIBE __keyevent@0__:*");
    let mut client = Wire::resp2(&server);
    let mut events_after = |client: &mut Wire, lines: &[&str]| {
        lines.iter().for_each(|words| drop(client.run(words)));
        client.run("PUBLISH __keyevent@0__:end x");
        events(&mut subscriber)
    };
    assert_eq!(events_after(&mut client, &["BF.RESERVE key 0.0001 2 NONSCALING"]), ["bf.reserve key"]);
    assert_eq!(events_after(&mut client, &["BF.ADD key a"]), ["bf.add key"]);
    assert_eq!(events_after(&mut client, &["BF.MADD key a b c d"]), ["bf.add key"]);
    assert_eq!(events_after(&mut client, &["BF.ADD one a"]), ["bf.reserve one", "bf.add one"]);
    assert_eq!(events_after(&mut client, &["BF.MADD two a b"]), ["bf.reserve two", "bf.add two"]);
    assert_eq!(events_after(&mut client, &["BF.INSERT three ITEMS a b"]), ["bf.reserve three", "bf.add three"]);
    let nothing = [
        "BF.ADD key a",
        "BF.ADD key c",
        "BF.MADD key a b c",
        "BF.INSERT key NOCREATE ITEMS a b",
        "BF.INSERT nokey NOCREATE ITEMS a",
        "BF.RESERVE key 0.1 100",
        "BF.EXISTS key a",
        "BF.MEXISTS key a",
        "BF.CARD key",
        "BF.INFO key",
        "BF.DEBUG key",
        "BF.SCANDUMP key 0",
        "BF.LOADCHUNK key 1 data",
        "BF.LOADCHUNK nokey 1 data",
    ];
    assert_eq!(events_after(&mut client, &nothing), [""; 0]);
    for ((cursor, data), event) in client.scan_dump("one").into_iter().zip(["bf.reserve copy", "bf.loadchunk copy"]) {
        client.load_chunk("copy", cursor, &data);
        assert_eq!(events_after(&mut client, &[]), [event]);
    }
}

#[test]
fn only_commands_that_change_a_watched_key_abort_the_transaction() {
    let server = Setup::oxbloom().start();
    let (mut watcher, mut client) = (Wire::resp2(&server), Wire::resp2(&server));
    let mut aborts = |words: &str| {
        client.run("FLUSHALL");
        client.run("BF.RESERVE key 0.0001 2 NONSCALING");
        client.run("BF.ADD key a");
        watcher.run("WATCH key nokey");
        client.run(words);
        watcher.run("MULTI");
        watcher.run("PING");
        watcher.run("EXEC") == Reply::NullArray
    };
    for words in ["BF.ADD key b", "BF.MADD key a b", "BF.INSERT key ITEMS b c", "BF.ADD nokey a"] {
        assert!(aborts(words), "{words}");
    }
    let idle = ["BF.ADD key a", "BF.MADD key a a", "BF.INSERT key ITEMS a", "BF.RESERVE key 0.1 5", "BF.EXISTS key a"];
    for words in idle.into_iter().chain(["BF.EXISTS nokey a", "BF.SCANDUMP key 0", "BF.LOADCHUNK key 1 data"]) {
        assert!(!aborts(words), "{words}");
    }
}

#[test]
fn scripts_get_the_replies_and_the_errors() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let mut eval = |script: &str| client.run_words(&["EVAL", script, "1", "key"]);
    assert_eq!(eval("return redis.call('BF.ADD', KEYS[1], 'a')"), Reply::Integer(1));
    assert_eq!(eval("return redis.call('BF.ADD', KEYS[1], 'a') + 10"), Reply::Integer(10));
    assert_eq!(eval("return redis.call('BF.MADD', KEYS[1], 'a', 'b')"), Reply::integers(&[0, 1]));
    assert_eq!(eval("return redis.call('BF.EXISTS', KEYS[1], 'b')"), Reply::Integer(1));
    assert_eq!(eval("return redis.call('BF.MEXISTS', KEYS[1], 'b', 'c')"), Reply::integers(&[1, 0]));
    assert_eq!(eval("return redis.call('BF.INFO', KEYS[1])[2]"), Reply::Integer(100));
    assert_eq!(eval("return redis.call('BF.SCANDUMP', KEYS[1], 0)[1]"), Reply::Integer(1));
    assert_eq!(eval("return redis.pcall('BF.RESERVE', KEYS[1], 0.1, 5)"), Reply::error("ERR item exists"));
    let caught = "return redis.pcall('BF.RESERVE', KEYS[1], 0.1, 5)['err']";
    assert!(eval(caught).text().contains("item exists"));
    let uncaught = eval("return redis.call('BF.RESERVE', KEYS[1], 0.1, 5)");
    assert!(matches!(&uncaught, Reply::Error(text) if text.contains("item exists")), "{uncaught:?}");
    assert!(eval("return redis.pcall('BF.ADD', KEYS[1])").is_error());
    let full = "redis.call('DEL', KEYS[1]); redis.call('BF.RESERVE', KEYS[1], 0.1, 1, 'NONSCALING')
                return redis.call('BF.MADD', KEYS[1], 'a', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k')";
    // Valkey 9 ends a script that returns an array with an error in it, and replies with that error.
    match eval(full) {
        Reply::Error(text) => assert!(server_version() >= (9, 0) && text.contains(FULL), "{text}"),
        reply => assert_eq!(reply.elements().last(), Some(&Reply::error(FULL)), "{reply:?}"),
    }
    if server_version() >= (7, 0) {
        let boolean = "redis.setresp(3); return type(redis.call('BF.EXISTS', KEYS[1], 'a'))";
        assert_eq!(eval(boolean), Reply::bulk("boolean"));
        let read_only = client.run_words(&["EVAL_RO", "return redis.call('BF.ADD', KEYS[1], 'a')", "1", "key"]);
        assert!(read_only.is_error());
        let read_only = client.run_words(&["EVAL_RO", "return redis.call('BF.EXISTS', KEYS[1], 'a')", "1", "key"]);
        assert_eq!(read_only, Reply::Integer(1));
    }
}

#[test]
fn functions_get_the_replies() {
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let library = "#!lua name=bloom
        redis.register_function('see', function(keys, args) return redis.call('BF.ADD', keys[1], args[1]) end)
        redis.register_function{function_name='seen', flags={'no-writes'},
            callback=function(keys, args) return redis.call('BF.EXISTS', keys[1], args[1]) end}";
    assert_eq!(client.run_words(&["FUNCTION", "LOAD", library]), Reply::bulk("bloom"));
    assert_eq!(client.run("FCALL_RO seen 1 key item"), Reply::Integer(0));
    assert_eq!(client.run("FCALL see 1 key item"), Reply::Integer(1));
    assert_eq!(client.run("FCALL see 1 key item"), Reply::Integer(0));
    assert_eq!(client.run("FCALL_RO seen 1 key item"), Reply::Integer(1));
}

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
        let [key, others @ ..] = info[8].elements() else { panic!("{:?}", info[8]) };
        let flags_of = |key: &Reply| key.field("flags").elements().iter().map(Reply::text).collect::<Vec<_>>();
        assert_eq!(flags_of(key), command.key_flags, "{}", command.name);
        assert_eq!(others.len(), usize::from(command.may_name_others()), "{}", command.name);
        // The argument LIKE may also be a key or a value, so the server has to ask the command for its keys.
        let expected = if command.name == "bf.reserve" { &["RO", "access", "incomplete"][..] } else { READS };
        assert!(others.iter().all(|other| flags_of(other) == expected), "{}", command.name);
        assert_eq!(*key.field("begin_search").field("spec").field("index"), Reply::Integer(1));
        assert_eq!(*key.field("find_keys").field("spec").field("lastkey"), Reply::Integer(0));
        let with_flags = client.run(&format!("COMMAND GETKEYSANDFLAGS {}", command.line));
        assert!(with_flags.elements().iter().all(|key| key.elements()[0].text() == "key"));
    }
}

#[test]
fn each_command_is_documented_with_all_its_arguments() {
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    const CUCKOO_INSERT: &str =
        "key error_rate:ERROR capacity:CAPACITY nocreate:NOCREATE seed:SEED layout:LAYOUT expiration item:ITEMS";
    let expected = [
        (
            "bf.reserve",
            "key [error_rate capacity expansion:EXPANSION nonscaling:NONSCALING counting:COUNTING seconds:WINDOW \
             slices:SLICES refresh:REFRESH rolling:ROLLING ratio:TIGHTENING items:VALIDATESCALETO seed:SEED \
             layout:LAYOUT expiration]|other:LIKE",
        ),
        ("bf.add", "key item"),
        ("bf.madd", "key item"),
        (
            "bf.insert",
            "key capacity:CAPACITY error_rate:ERROR expansion:EXPANSION nocreate:NOCREATE nonscaling:NONSCALING \
             counting:COUNTING seconds:WINDOW slices:SLICES refresh:REFRESH rolling:ROLLING ratio:TIGHTENING \
             items:VALIDATESCALETO seed:SEED layout:LAYOUT expiration nx:NX seconds:TTL unix-time-milliseconds:AT item:ITEMS",
        ),
        ("bf.addpacked", "key nocreate:NOCREATE nx:NX seconds:TTL unix-time-milliseconds:AT count:COUNT packing items"),
        ("bf.exists", "key item"),
        ("bf.mexists", "key item"),
        ("bf.existspacked", "key count:COUNT packing items"),
        ("bf.del", "key item"),
        ("bf.mdel", "key item"),
        ("bf.delpacked", "key count:COUNT packing items"),
        ("bf.count", "key item"),
        ("bf.mcount", "key item"),
        ("bf.merge", "key numkeys source operation replace:REPLACE"),
        ("bf.card", "key"),
        ("bf.info", "key field"),
        ("bf.scandump", "key iterator"),
        ("bf.loadchunk", "key iterator data"),
        ("bf.load", "key data"),
        ("bf.debug", "key"),
        (
            "cf.reserve",
            "key capacity error_rate:ERROR maxiterations:MAXITERATIONS bucketsize:BUCKETSIZE expansion:EXPANSION \
             seed:SEED layout:LAYOUT expiration",
        ),
        ("cf.add", "key item"),
        ("cf.addnx", "key item"),
        ("cf.insert", CUCKOO_INSERT),
        ("cf.insertnx", CUCKOO_INSERT),
        ("cf.exists", "key item"),
        ("cf.mexists", "key item"),
        ("cf.count", "key item"),
        ("cf.del", "key item"),
        ("cf.info", "key"),
        ("cf.debug", "key"),
        ("cf.compact", "key"),
        ("cf.convert", "key"),
        ("cf.scandump", "key iterator"),
        ("cf.loadchunk", "key iterator data"),
    ];
    assert!(expected.iter().map(|(name, _)| name).eq(COMMANDS.iter().map(|command| &command.name)));
    for (name, arguments) in expected {
        let docs = client.run(&format!("COMMAND DOCS {name}"));
        let docs = docs.field(name);
        assert!(docs.field("summary").text().ends_with('.'), "{docs:?}");
        assert!(docs.field("complexity").text().starts_with("O("), "{docs:?}");
        assert!(!docs.field("since").text().is_empty());
        assert_eq!(docs.field("module").text(), "bf");
        let found: Vec<_> = docs.field("arguments").elements().iter().map(shown).collect();
        assert_eq!(found.join(" "), arguments, "{name}");
    }
}

/// Returns the name of a documented argument, with its token if it has one. Blocks are shown by their parts.
fn shown(argument: &Reply) -> String {
    let parts = |separator: &str| {
        let parts: Vec<_> = argument.field("arguments").elements().iter().map(shown).collect();
        parts.join(separator)
    };
    match argument.field("type").text().as_str() {
        "block" => return format!("[{}]", parts(" ")),
        "oneof" if parts("|").contains('[') => return parts("|"),
        _ => {}
    }
    let has_token = argument.elements().iter().step_by(2).any(|name| name.bytes() == b"token");
    let name = argument.field("name").text();
    if has_token { format!("{name}:{}", argument.field("token").text()) } else { name }
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

#[test]
fn numbers_are_as_short_as_possible_and_estimates_have_four_digits() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let mut field = |rate: &str, field: &str| {
        client.run("DEL key");
        client.run(&format!("BF.RESERVE key {rate} 1000 SEED 1"));
        add_numbers(&mut client, "key", 777);
        client.run(&format!("BF.INFO key {field}")).elements()[0].text()
    };
    for (rate, shown) in [
        ("0.003", "0.003"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.30000000000000004"),
        ("1e-7", "1e-7"),
        ("0.00001", "0.00001"),
        ("2.5e-300", "2.5e-300"),
    ] {
        assert_eq!(field(rate, "ERROR"), shown);
    }
    for name in ["FILL", "FPR"] {
        let shown = field("0.003", name);
        let digits = shown.split('e').next().unwrap().replace('.', "");
        assert!(digits.trim_start_matches('0').len() <= 4 && shown.parse::<f64>().unwrap() > 0.0, "{name} {shown}");
    }
}

#[test]
fn the_keys_of_reserve_are_its_first_argument_and_the_one_after_like() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (words, keys) in [
        ("k 0.01 100", &["k"][..]),
        ("k LIKE other", &["k", "other"]),
        ("k like other", &["k", "other"]),
        ("LIKE 0.01 100", &["LIKE"]),
        ("k 0.01 100 SEED LIKE foo", &["k"]),
        ("k 0.01 LIKE foo", &["k"]),
        ("k 0.01 100 LAYOUT LIKE", &["k"]),
        ("k LIKE other NONSCALING", &["k"]),
        ("LIKE LIKE LIKE", &["LIKE", "LIKE"]),
    ] {
        let named = client.run(&format!("COMMAND GETKEYS BF.RESERVE {words}"));
        assert_eq!(named, Reply::Array(keys.iter().map(Reply::bulk).collect()), "{words}");
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
fn a_chunk_that_changes_nothing_is_neither_replicated_nor_announced() {
    let server =
        Setup::oxbloom().set("appendonly yes").set("aof-use-rdb-preamble no").set("notify-keyspace-events EAd").start();
    let mut client = Wire::resp2(&server);
    for options in ["LAYOUT native", "COUNTING", "LAYOUT classic"] {
        client.run(&format!("BF.RESERVE key 0.01 100 {options}"));
        add_numbers(&mut client, "key", 90);
        let chunks = client.scan_dump("key");
        for (cursor, data) in &chunks {
            assert_eq!(client.load_chunk("copy", *cursor, data), ok());
        }
        let written = aof_commands(server.folder()).len();
        client.run("WATCH copy");
        client.run("MULTI");
        for (cursor, data) in &chunks[1..] {
            assert_eq!(Wire::resp2(&server).load_chunk("copy", *cursor, data), ok());
        }
        client.run("PING");
        assert_eq!(client.run("EXEC"), Reply::Array(vec![Reply::simple("PONG")]), "{options}: it was announced");
        assert_eq!(aof_commands(server.folder()).len(), written, "{options}");
        client.run("FLUSHALL");
    }
}

/// Under libc's allocator, arrays have padding for alignment. The reported size leaves it out, so that it is the same
/// on every server.
#[test]
fn equal_filters_have_the_same_size_on_every_server() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (parameters, size) in [
        ("0.01 100", 208),
        ("0.01 10000", 13_328),
        ("0.001 10000", 19_216),
        // Counting filters allocate memory when items are added.
        ("0.01 100 COUNTING", 328),
        ("0.01 10000 COUNTING", 328),
        ("0.01 10000 NONSCALING COUNTING", 328),
        ("0.01 10000 LAYOUT classic", 13_888),
    ] {
        client.run("DEL key");
        client.run(&format!("BF.RESERVE key {parameters}"));
        assert_eq!(client.run("BF.INFO key SIZE"), Reply::integers(&[size]), "{parameters}");
    }
}
