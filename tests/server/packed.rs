//! Packed items: a packed command does the same as the command on single items, with one argument and one reply.

use crate::expected::{FULL, WRONG_TYPE, protocols};
use models::random::Random;
use testkit::clock::{SECOND, stopped, stopped_pair, time_at, turn, with_clock};
use testkit::info::{digest, digest_of};
use testkit::packing::{Packing, bits};
use testkit::persistence::aof_commands_shown;
use testkit::replication::assert_synchronized;
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, run};

const REMAINDER: &str = "ERR the last item is too short: all items of FIXED have one width";
const BAD_WIDTH: &str = "ERR bad width: FIXED must be the number of bytes of an item, from 1";
const BAD_OFFSETS: &str = "ERR bad offsets: OFFSETS must be little-endian integers of 32 bits (OFFSETS64: of 64), \
                           one more than there are items, that never fall and span all items";
const NO_PACKING: &str = "ERR the items must be packed: end the command with FIXED width items, \
                          OFFSETS offsets items or LINES items";
const TOO_MANY: &str = "ERR too many items: at most 16777216 in a packed command";

/// Filters of each kind, by the options of BF.RESERVE.
const KINDS: [&str; 10] = [
    "0.01 10",
    "0.001 300 NONSCALING",
    "0.01 10 COUNTING",
    "0.001 300 NONSCALING COUNTING",
    "0.01 1000 WINDOW 100",
    "0.01 100 WINDOW 100 REFRESH SLICES 3",
    "0.01 500 WINDOW 100 NONSCALING",
    "0.01 500 ROLLING",
    "0.01 10 LAYOUT classic",
    "0.001 300 NONSCALING LAYOUT classic",
];

fn words(line: &str, packed: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).chain(packed).collect()
}

/// Returns the reply of a packed command as that of the command on single items: the answers, and the error, if any.
fn unpacked(reply: &Reply, count: usize) -> (Vec<bool>, Option<Reply>) {
    match reply {
        Reply::Bulk(bytes) => (bits(bytes, count), None),
        Reply::Error(_) => (Vec::new(), Some(reply.clone())),
        _ => {
            let [handled, answers, error] = reply.elements() else { panic!("{reply:?}") };
            (bits(answers.bytes(), handled.integer() as usize), Some(error.clone()))
        }
    }
}

/// Returns the reply of a command on single items in the same form.
fn single(reply: &Reply) -> (Vec<bool>, Option<Reply>) {
    let Reply::Array(elements) = reply else { return (Vec::new(), Some(reply.clone())) };
    let (errors, answers): (Vec<_>, Vec<_>) = elements.iter().partition(|element| element.is_error());
    (answers.iter().map(|answer| answer.as_bool().unwrap()).collect(), errors.first().map(|&error| error.clone()))
}

#[test]
fn a_packed_command_does_the_same_as_the_command_on_single_items() {
    let aof = |setup: Setup| setup.keeping_aof("no");
    let pair = stopped_pair(aof(with_clock()), with_clock());
    let (mut client, mut reader) = pair.clients();
    let mut wire = Wire::resp2(&pair.master);
    let mut random = Random(1);
    for kind in KINDS {
        let seed = if kind.contains("classic") { "" } else { "SEED 7" };
        let (mut failures, mut now) = (0, 0);
        for key in ["single", "packed"] {
            assert_eq!(wire.run(&format!("BF.RESERVE {key} {kind} {seed}")), Reply::simple("OK"));
        }
        for round in 0..80 {
            if random.chance(20) {
                now += random.below(30) as i64 * SECOND;
                turn(&mut client, now);
            }
            let packing = Packing::any(&mut random);
            let count = random.one_of(&[0, 1, 7, 8, 31, 32, 33, 64, 300]);
            let items: Vec<_> = (0..count).map(|_| packing.item(random.below(5000))).collect();
            let (many, packed, options) = match random.below(if kind.contains("COUNTING") { 4 } else { 3 }) {
                0 => ("BF.MEXISTS", "BF.EXISTSPACKED", ""),
                3 => ("BF.MDEL", "BF.DELPACKED", ""),
                _ if kind.contains("WINDOW") && random.chance(30) => ("BF.INSERT", "BF.ADDPACKED", "TTL 40"),
                _ if random.chance(30) => ("BF.INSERT", "BF.ADDPACKED", random.one_of(&["NX", "NOCREATE"])),
                _ => ("BF.MADD", "BF.ADDPACKED", ""),
            };
            let items_follow = if many == "BF.INSERT" { "ITEMS" } else { "" };
            let expected = match &*items {
                [] => (Vec::new(), None),
                _ => {
                    let line = format!("{many} single {options} {items_follow}").replace("  ", " ");
                    single(&wire.run_words(&words(line.trim_end(), items.clone())))
                }
            };
            let line = format!("{packed} packed {options}");
            let reply = wire.run_words(&words(line.trim_end(), packing.pack(&items)));
            assert_eq!(unpacked(&reply, count), expected, "{kind}, round {round}: {line}, {packing:?}: {reply:?}");
            failures += u64::from(expected.1.is_some());
        }
        assert_eq!(digest_of(&mut client, "packed"), digest_of(&mut client, "single"), "{kind}");
        assert_eq!(failures > 0, kind.contains("NONSCALING"), "{kind}");
        assert_synchronized(&mut client, &mut reader, kind);
        run(&mut client, "DEBUG LOADAOF").unwrap();
        assert_eq!(digest(&mut client), digest(&mut reader), "{kind}");
        run(&mut client, "FLUSHALL").unwrap();
    }
}

#[test]
fn replies_are_bits_or_with_count_a_number() {
    let server = Setup::oxbloom().start();
    for (mut client, ..) in protocols(&server) {
        client.run("FLUSHALL");
        assert_eq!(client.run("BF.EXISTSPACKED none LINES a"), Reply::bulk([0]));
        assert_eq!(client.run("BF.EXISTSPACKED none FIXED 1 abcdefghi"), Reply::bulk([0, 0]));
        assert_eq!(client.run("BF.DELPACKED none FIXED 1 abcdefghi"), Reply::bulk([0, 0]));
        assert_eq!(client.run("BF.ADDPACKED none NOCREATE FIXED 1 ab"), Reply::error("ERR not found"));
        assert_eq!(client.run("EXISTS none"), Reply::Integer(0));
        // A filter is created with the defaults, as by BF.MADD.
        assert_eq!(client.run("BF.ADDPACKED seen FIXED 1 abacadaea"), Reply::bulk([0b1101_0101, 0]));
        assert_eq!(client.run("BF.INFO seen CAPACITY").single_field("Capacity"), Reply::Integer(100));
        assert_eq!(client.run("BF.EXISTSPACKED seen fixed 1 axbycz"), Reply::bulk([0b1010_1000]));
        assert_eq!(client.run("BF.EXISTSPACKED seen COUNT FIXED 1 axbycz"), Reply::Integer(3));
        assert_eq!(client.run("BF.ADDPACKED seen count FIXED 1 xyza"), Reply::Integer(3));
        assert_eq!(client.run("BF.RESERVE counting 0.001 100 COUNTING"), Reply::simple("OK"));
        assert_eq!(client.run("BF.ADDPACKED counting COUNT FIXED 1 aab"), Reply::Integer(2));
        assert_eq!(client.run("BF.DELPACKED counting COUNT FIXED 1 aaab"), Reply::Integer(3));
        assert_eq!(client.run("BF.RESERVE full 0.001 2 NONSCALING"), Reply::simple("OK"));
        let stopped = |second: Reply| Reply::Array(vec![Reply::Integer(3), second, Reply::error(FULL)]);
        assert_eq!(client.run("BF.ADDPACKED full FIXED 1 aabc"), stopped(Reply::bulk([0b1010_0000])));
        assert_eq!(client.run("BF.ADDPACKED full COUNT FIXED 1 aabc"), stopped(Reply::Integer(0)));
        assert_eq!(client.run("BF.ADDPACKED full FIXED 1 cab"), Reply::error(FULL));
        let script = "return redis.call('BF.ADDPACKED', KEYS[1], 'FIXED', 1, 'pqrs')";
        assert_eq!(client.run_words(&[&b"EVAL"[..], script.as_bytes(), b"1", b"script"]), Reply::bulk([0b1111_0000]));
        client.run("MULTI");
        client.run("BF.ADDPACKED seen COUNT FIXED 1 pqrs");
        client.run("BF.EXISTSPACKED seen FIXED 1 pqrs");
        assert_eq!(client.run("EXEC"), Reply::Array(vec![Reply::Integer(4), Reply::bulk([0b1111_0000])]));
    }
}

#[test]
fn every_line_is_an_item_and_the_last_needs_no_line_feed() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (lines, items) in [
        (&b""[..], &[][..]),
        (b"\n", &[&b""[..]]),
        (b"a", &[b"a"]),
        (b"a\n", &[b"a"]),
        (b"a\n\nb", &[b"a", b"", b"b"]),
        (b"a\r\nb\r\n", &[b"a\r", b"b\r"]),
    ] {
        client.run("FLUSHALL");
        let count = items.len() as i64;
        assert_eq!(client.run_words(&[&b"BF.ADDPACKED"[..], b"key", b"COUNT", b"LINES", lines]), Reply::Integer(count));
        assert_eq!(client.run("BF.CARD key"), Reply::Integer(count));
        for item in items {
            assert_eq!(client.run_words(&[&b"BF.EXISTS"[..], b"key", item]), Reply::Integer(1), "{lines:?}");
        }
    }
}

#[test]
fn bad_packings_are_errors_and_change_nothing() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    let four = |offsets: &[u32]| offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect::<Vec<_>>();
    let eight = |offsets: &[u64]| offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect::<Vec<_>>();
    let mut cases: Vec<(Vec<Vec<u8>>, &str)> = Vec::new();
    for (width, error) in [
        ("3", REMAINDER),
        ("5", REMAINDER),
        ("18446744073709551615", REMAINDER),
        ("18446744073709551616", BAD_WIDTH),
        ("0", BAD_WIDTH),
        ("-1", BAD_WIDTH),
        ("1.5", BAD_WIDTH),
        ("", BAD_WIDTH),
    ] {
        cases.push((vec![b"FIXED".into(), width.into(), b"abcd".into()], error));
    }
    for offsets in [
        vec![],
        b"abc".to_vec(),
        four(&[0]),
        four(&[0, 3]),
        four(&[0, 5]),
        four(&[0, 3, 2, 4]),
        four(&[0, 4, 3]),
        four(&[4, 0]),
        four(&[u32::MAX, 3]),
        four(&[0, u32::MAX, 4]),
        [four(&[0, 4]), b"x".to_vec()].concat(),
    ] {
        cases.push((vec![b"OFFSETS".into(), offsets, b"abcd".into()], BAD_OFFSETS));
    }
    for offsets in [
        vec![],
        four(&[0, 4, 4]),
        eight(&[0, 3]),
        eight(&[0, 1 << 63, 4]),
        eight(&[u64::MAX, 3]),
        eight(&[1, 0, 5]),
        eight(&[4 + (1 << 32), 0]),
    ] {
        cases.push((vec![b"OFFSETS64".into(), offsets, b"abcd".into()], BAD_OFFSETS));
    }
    cases.push((vec![b"LINES".into(), vec![b'\n'; (1 << 24) + 1]], TOO_MANY));
    cases.push((vec![b"OFFSETS".into(), vec![0; 4 * ((1 << 24) + 2)], vec![]], TOO_MANY));
    for line in ["FIXED abcd", "FIXED 1", "LINES a b", "OFFSETS abcd", "FIXED 1 a b", "COUNT LINES"] {
        cases.push((words(line, vec![]), NO_PACKING));
    }
    run(&mut server.connect(), "BF.RESERVE key 0.01 100 COUNTING").unwrap();
    let before = digest(&mut server.connect());
    for (packed, error) in cases {
        for command in ["BF.ADDPACKED", "BF.EXISTSPACKED", "BF.DELPACKED"] {
            for key in ["key", "absent"] {
                let reply = client.run_words(&words(&format!("{command} {key}"), packed.clone()));
                let start: Vec<_> = packed.iter().map(|word| word[..word.len().min(20)].escape_ascii()).collect();
                assert_eq!(reply, Reply::error(error), "{command} {key} {start:?}");
            }
        }
    }
    assert_eq!(
        client.run("BF.ADDPACKED key EX 5 LINES a").error_text(),
        "ERR unknown option 'EX': correct or remove it"
    );
    assert_eq!(
        client.run("BF.ADDPACKED key NX NX LINES a").error_text(),
        "ERR repeated argument: give each option once"
    );
    assert_eq!(client.run("BF.EXISTSPACKED key NX LINES a"), Reply::error(NO_PACKING));
    assert_eq!(
        client.run("BF.ADDPACKED key TTL 5 LINES a").error_text(),
        "ERR TTL needs a filter with WINDOW and without ROLLING: leave out TTL, or use another key"
    );
    assert_eq!(digest(&mut server.connect()), before);
    client.run("SET text text");
    for line in ["BF.ADDPACKED text LINES a", "BF.EXISTSPACKED text LINES a", "BF.DELPACKED text LINES a"] {
        assert_eq!(client.run(line), Reply::error(WRONG_TYPE));
    }
    client.run("BF.RESERVE plain 0.01 100");
    assert!(client.run("BF.DELPACKED plain LINES a").error_text().starts_with("ERR this filter does not support"));
}

#[test]
fn the_time_of_packed_additions_is_replicated() {
    let server = stopped(with_clock().keeping_aof("no"));
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000001 1000 WINDOW 100");
    client.run("BF.ADDPACKED key FIXED 1 ab");
    turn(&mut server.connect(), 7 * SECOND);
    client.run("BF.ADDPACKED key TTL 60 FIXED 1 xay");
    let commands = aof_commands_shown(server.folder());
    let expected = [
        format!("BF.ADDPACKED key AT {} FIXED 1 ab", time_at(0)),
        format!("BF.ADDPACKED key AT {} TTL 60 FIXED 1 xy", time_at(7 * SECOND)),
    ];
    assert_eq!(commands[commands.len() - 2..], expected);
}
