//! The intended differences of commands on cuckoo filters.

use super::*;
use crate::{Layout, Protocol};
use testkit::persistence::aof_commands;
use testkit::server::with_debug;
use testkit::wire::Wire;
use testkit::{Server, Setup, oxbloom, redisbloom};

fn start() -> Pair {
    Pair::start_with(Protocol::Resp2, Layout::Classic)
}

/// Starts both servers with more settings, and returns clients of both: RedisBloom's, and ours.
fn clients_with(set: impl Fn(Setup) -> Setup) -> ([Server; 2], [Wire; 2]) {
    let ours = Setup::with_module(oxbloom()).module_arguments("cf-layout classic");
    let servers = [Setup::with_module(redisbloom()), ours].map(|setup| set(setup).start());
    let clients = [&servers[0], &servers[1]].map(Wire::resp2);
    (servers, clients)
}

/// Returns a header of a filter with buckets of two slots.
fn header(items: u64, buckets: u64, layers: u64, expansion: u16) -> Vec<u8> {
    let numbers = [items, buckets, 0, layers].map(u64::to_le_bytes);
    let options = [2, 20, expansion].map(u16::to_le_bytes);
    [numbers.as_flattened(), options.as_flattened()].concat()
}

fn load(pair: &mut Pair, key: &str, cursor: i64, data: &[u8]) -> (Reply, Reply) {
    pair.run_words(&[&b"CF.LOADCHUNK"[..], key.as_bytes(), cursor.to_string().as_bytes(), data])
}

#[test]
fn all_commands_reject_a_key_of_another_type_and_redisbloom_finds_no_items_or_no_filter() {
    for (protocol, no) in [(Protocol::Resp2, Reply::Integer(0)), (Protocol::Resp3, Reply::Boolean(false))] {
        let mut pair = Pair::start_with(protocol, Layout::Classic);
        pair.agree("SET text value");
        let none = Reply::Array(vec![no.clone(), no.clone()]);
        for (words, expected) in [
            ("CF.EXISTS text item", no),
            ("CF.MEXISTS text item other", none),
            ("CF.COUNT text item", Reply::Integer(0)),
            ("CF.DEL text item", Reply::error("Not found")),
            ("CF.COMPACT text", Reply::error("Cuckoo filter was not found")),
        ] {
            let (theirs, ours) = differ(&mut pair, Difference::WrongTypeIsAnError, true, words);
            assert_eq!((theirs, ours), (expected, Reply::error(WRONG_TYPE)), "{words}");
        }
        for words in ["CF.ADD text a", "CF.INSERTNX text ITEMS a", "CF.RESERVE text 100", "CF.INFO text"] {
            assert_eq!(pair.agree(words), Reply::error(WRONG_TYPE));
        }
        assert_eq!(pair.agree("CF.DEL nokey item"), Reply::error("Not found"));
    }
}

const ODD: &str = "ERR wrong number of arguments for 'cf.reserve' command";

const CASES: &[Case] = {
    use Difference::*;
    const NOTHING: &str = "ERR unknown option 'NOTHING': correct or remove it";
    const BUCKET: &str = "ERR unknown option 'BUCKET': correct or remove it";
    const X: &str = "ERR unknown option 'x': correct or remove it";
    const NOCREATE: &str = "ERR unknown option 'NOCREATE': correct or remove it";
    &[
        (UnknownOptionIsRejected, "CF.RESERVE one 100 NOTHING 3", "OK", NOTHING),
        (UnknownOptionIsRejected, "CF.RESERVE two 100 BUCKET 3", "OK", BUCKET),
        (UnknownOptionIsRejected, "CF.RESERVE three 100 x BUCKETSIZE 3 y", "OK", X),
        (ArgumentIsNamed, "CF.RESERVE k many EXPANSION", ODD, "Bad capacity"),
        (ArgumentIsNamed, "CF.RESERVE k 100 NOCREATE", ODD, NOCREATE),
        (RepeatedOptionIsRejected, "CF.RESERVE first 100 BUCKETSIZE 3 BUCKETSIZE x", "OK", REPEATED),
        (RepeatedOptionIsRejected, "CF.INSERT last CAPACITY 100 CAPACITY 200 ITEMS a", "[1]", REPEATED),
        (FurtherOptions, "CF.INSERT a LAYOUT classic ITEMS item", UNKNOWN, "[1]"),
        (FurtherOptions, "CF.INSERT b SEED 42 LAYOUT native ITEMS item", UNKNOWN, "[1]"),
        (FurtherOptions, "CF.INSERTNX c EX 1000 ITEMS item", UNKNOWN, "[1]"),
        (FurtherOptions, "CF.INSERTNX d ERROR 0.01 ITEMS item", UNKNOWN, NO_RATE),
        (FurtherOptions, "CF.RESERVE e 100 SEED 42", "OK", NO_SEED),
        (FurtherOptions, "CF.RESERVE f 100 LAYOUT flat", "OK", BAD_CUCKOO_LAYOUT),
        (FurtherOptions, "CF.RESERVE g 100 ERROR 0.01", "OK", NO_RATE),
        (FurtherOptions, "CF.RESERVE h 100 EX 0", "OK", BAD_TIME),
        (KeyIsNotAnOption, "CF.RESERVE bucketsize 100", "Capacity must be at least (BucketSize * 2)", "OK"),
        (OptionsAreWholeWords, "CF.INSERT i I a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "CF.INSERT item ITEM a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "CF.INSERTNX cap CAP 100 ITEMS a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "CF.INSERTNX letters c 100 i a", "[1]", UNKNOWN),
        (OptionsAreWholeWords, "CF.INSERT absent NO ITEMS a", "ERR not found", UNKNOWN),
        (LimitIsNamed, "CF.RESERVE most 9223372036854775807", "ERR Insufficient memory to create filter", NO_MEMORY),
        (
            LimitIsNamed,
            "CF.INSERT most CAPACITY 9223372036854775807 ITEMS a",
            "ERR Insufficient memory to create filter",
            NO_MEMORY,
        ),
    ]
};

/// Similar lines with the same reply on both sides.
const AGREED: &[(&str, &str)] = &[
    ("CF.RESERVE k x NOTHING 3", "Bad capacity"),
    ("CF.INSERT k XYZ ITEMS item", UNKNOWN),
    ("CF.RESERVE k 100 BUCKETSIZE", ODD),
    ("CF.RESERVE agreed 100 LAYOUT classic", "OK"),
    ("CF.RESERVE EXPANSION 100", "OK"),
];

#[test]
fn lines_that_redisbloom_reads_in_another_way_get_these_replies() {
    let mut pair = start();
    assert_differ(&mut pair, CASES);
    AGREED.iter().for_each(|(words, expected)| assert_eq!(pair.agree(words), reply(expected), "{words}"));
    // RedisBloom's filters have what it read.
    for (key, field, expected) in [
        ("three", "Bucket size", 3),
        ("first", "Bucket size", 3),
        ("last", "Number of buckets", 128),
        ("EXPANSION", "Expansion rate", 128),
    ] {
        let (theirs, _) = pair.run(&format!("CF.INFO {key}"));
        assert_eq!(theirs.field(field), &Reply::Integer(expected), "{key}");
    }
    assert_eq!(pair.run("CF.INFO EXPANSION").1.field("Expansion rate"), &Reply::Integer(1));
    let ttl = pair.run("TTL c").1.integer();
    assert!((900..=1000).contains(&ttl), "{ttl}");
}

#[test]
fn an_empty_filter_can_be_dumped_and_its_dump_is_empty_in_redisbloom() {
    let mut pair = start();
    pair.agree("CF.RESERVE key 8 EXPANSION 4");
    let end = Reply::Array(vec![Reply::Integer(0), Reply::NullBulk]);
    let (theirs, ours) = pair.run("CF.SCANDUMP key 0");
    assert_eq!(theirs, end);
    assert_eq!(ours, Reply::Array(vec![Reply::Integer(1), Reply::bulk(header(0, 4, 1, 4))]));
    assert!(Difference::EmptyFilterIsDumped.allows(&theirs, &ours));
    let (theirs, ours) = pair.run("CF.SCANDUMP key 1");
    assert_eq!((theirs, ours), (end.clone(), Reply::Array(vec![Reply::Integer(9), Reply::bulk([0; 8])])));
    assert_eq!(pair.agree("CF.SCANDUMP key 9"), end);
    // RedisBloom loads such a dump.
    let loaded = load(&mut pair, "copy", 1, &header(0, 4, 1, 4));
    assert_eq!(loaded, (Reply::simple("OK"), Reply::simple("OK")));
    assert_eq!(pair.agree("CF.DEBUG copy"), pair.agree("CF.DEBUG key"));
}

#[test]
fn a_dump_continues_at_any_cursor_and_redisbloom_repeats_the_layer() {
    let mut pair = start();
    assert_eq!(load(&mut pair, "key", 1, &header(5, 2, 2, 2)).1, Reply::simple("OK"));
    for (cursor, slots) in [(5, &b"abcd"[..]), (13, b"efghijkl")] {
        assert_eq!(load(&mut pair, "key", cursor, slots), (Reply::simple("OK"), Reply::simple("OK")));
    }
    let chunk = |next, slots: &[u8]| Reply::Array(vec![Reply::Integer(next), Reply::bulk(slots)]);
    for (cursor, theirs, ours) in [
        (2, chunk(6, b"abcd"), chunk(5, b"bcd")),
        (4, chunk(8, b"abcd"), chunk(5, b"d")),
        (10, chunk(18, b"efghijkl"), chunk(13, b"jkl")),
    ] {
        let replies = pair.run(&format!("CF.SCANDUMP key {cursor}"));
        assert!(Difference::DumpContinuesAtCursor.allows(&replies.0, &replies.1));
        assert_eq!(replies, (theirs, ours), "{cursor}");
    }
    assert_eq!(pair.agree("CF.SCANDUMP key 1"), chunk(5, b"abcd"));
    assert_eq!(pair.agree("CF.SCANDUMP key 5"), chunk(13, b"efghijkl"));
}

#[test]
fn a_chunk_beyond_the_end_is_rejected_and_redisbloom_loads_it_into_the_newest_layer() {
    let mut pair = start();
    load(&mut pair, "key", 1, &header(5, 2, 1, 1));
    let (theirs, ours) = load(&mut pair, "key", 9, b"abcd");
    assert_eq!((&theirs, &ours), (&Reply::simple("OK"), &Reply::error("Couldn't load chunk!")));
    assert!(Difference::ChunkMustFit.allows(&theirs, &ours));
    let (theirs, ours) = pair.run("CF.SCANDUMP key 1");
    assert_eq!([theirs, ours].map(|reply| reply.elements()[1].clone()), [&b"abcd"[..], &[0; 4]].map(Reply::bulk));
}

#[test]
fn a_chunk_of_a_client_overwrites_no_items_and_in_redisbloom_it_does() {
    let mut pair = start();
    pair.agree("CF.RESERVE key 8");
    pair.agree("CF.ADD key item");
    let dumped = pair.agree("CF.SCANDUMP key 1").elements()[1].clone();
    let (theirs, ours) = load(&mut pair, "key", 9, &[0; 8]);
    assert_eq!((&theirs, &ours), (&Reply::simple("OK"), &Reply::error(FOREIGN_CHUNK)));
    assert!(Difference::ChunkOverwritesNothing.allows(&theirs, &ours));
    assert_eq!(pair.run("CF.EXISTS key item"), (Reply::Integer(0), Reply::Integer(1)));
    // A chunk that changes nothing may come again, and free slots may be filled.
    assert_eq!(load(&mut pair, "key", 9, dumped.bytes()).1, Reply::simple("OK"));
    assert_eq!(pair.agree("CF.EXISTS key item"), Reply::Integer(1));
}

#[test]
fn headers_that_no_filter_has_are_rejected_and_redisbloom_accepts_some() {
    let mut pair = start();
    let removals_beyond_all = [&header(5, 4, 1, 1)[..16], &[0xFF; 8], &header(5, 4, 1, 1)[24..]].concat();
    for (key, header) in [
        ("layers", header(5, 4, 65537, 1)),
        ("expansion", header(5, 4, 1, 3)),
        ("many", header(5, 1, 2000, 1)),
        ("removals", removals_beyond_all),
    ] {
        let (theirs, ours) = load(&mut pair, key, 1, &header);
        assert_eq!((&theirs, &ours), (&Reply::simple("OK"), &Reply::error("Couldn't create filter!")), "{key}");
        assert!(Difference::HeaderIsChecked.allows(&theirs, &ours));
    }
}

#[test]
fn a_number_of_items_is_never_negative_but_it_is_in_redisbloom() {
    let mut pair = start();
    load(&mut pair, "key", 1, &header(0, 4, 1, 1));
    pair.agree("CF.RESERVE other 8");
    pair.agree("CF.ADD other item");
    let slots = pair.agree("CF.SCANDUMP other 1").elements()[1].clone();
    assert_eq!(load(&mut pair, "key", 9, slots.bytes()).1, Reply::simple("OK"));
    assert_eq!(pair.agree("CF.DEL key item"), Reply::Integer(1));
    let (theirs, ours) = pair.run("CF.INFO key");
    assert_eq!([theirs, ours].map(|info| info.field("Number of items inserted").integer()), [-1, 0]);
    // The filter is restored with 0 items.
    let dump = pair.run("DUMP key").0;
    let restored = pair.run_words(&[&b"RESTORE"[..], b"key", b"0", dump.bytes(), b"REPLACE"]);
    assert_eq!(restored, (Reply::simple("OK"), Reply::simple("OK")));
    assert_eq!(pair.run("CF.INFO key").1.field("Number of items inserted"), &Reply::Integer(0));
}

#[test]
fn copies_of_one_item_take_bounded_memory_and_in_redisbloom_they_take_all() {
    let mut pair = start();
    pair.agree("CF.RESERVE key 1024 EXPANSION 32768");
    for _ in 0..4 {
        assert_eq!(pair.agree("CF.ADD key item"), Reply::Integer(1));
    }
    let (theirs, ours) = pair.run("CF.ADD key item");
    assert_eq!((theirs, ours), (Reply::Integer(1), Reply::error("Maximum expansions reached")));
    let (theirs, ours) = pair.run("CF.INFO key");
    let [theirs, ours] = [theirs, ours].map(|info| info.field("Size").integer());
    assert!(theirs > 32 << 20 && ours < 2000, "{theirs} {ours}");
    // Other items are still added.
    assert_eq!(pair.agree("CF.ADD key other"), Reply::Integer(1));
}

#[test]
fn digests_events_copies_and_read_only_replicas_cover_our_filters_and_not_redisblooms() {
    let (servers, clients) = clients_with(|setup| with_debug(setup).set("notify-keyspace-events KEA"));
    let facts = clients.into_iter().zip(&servers).map(|(mut client, server)| {
        let mut listener = Wire::resp2(server);
        listener.run("PSUBSCRIBE __keyevent@0__:cf.*");
        client.run("CF.RESERVE key 100");
        let empty = client.run("DEBUG DIGEST-VALUE key");
        client.run("CF.ADD key item");
        let digest_differs = client.run("DEBUG DIGEST-VALUE key") != empty;
        client.run("PUBLISH __keyevent@0__:cf.end x");
        let has_events = listener.receive().elements()[2].text() != "__keyevent@0__:cf.end";
        let is_copied = client.run("COPY key copy") == Reply::Integer(1);
        assert_eq!(client.run("REPLICAOF 127.0.0.1 1"), Reply::simple("OK"));
        let is_protected = client.run("CF.COMPACT key").is_error();
        [digest_differs, has_events, is_copied, is_protected]
    });
    assert_eq!(facts.collect::<Vec<_>>(), [[false; 4], [true; 4]]);
}

/// Returns the verbs of the commands on cuckoo filters in a server's append-only file.
fn logged(server: &Server) -> Vec<String> {
    let names = aof_commands(server.folder()).into_iter().map(|words| String::from_utf8_lossy(&words[0]).into_owned());
    names.filter_map(|name| Some(name.to_ascii_uppercase().strip_prefix("CF.")?.to_owned())).collect()
}

#[test]
fn changes_are_replicated_and_in_redisbloom_commands_except_for_chunks() {
    let (servers, clients) = clients_with(|setup| setup.keeping_aof("no"));
    for mut client in clients {
        let mut chunk = |cursor: &str, data: &[u8]| {
            let words = [&b"CF.LOADCHUNK"[..], b"loaded", cursor.as_bytes(), data];
            assert_eq!(client.run_words(&words), Reply::simple("OK"));
        };
        chunk("1", &header(1, 4, 1, 1));
        chunk("9", b"12345678");
        for line in ["CF.ADDNX key item", "CF.ADDNX key item", "CF.INSERTNX key ITEMS item other", "CF.DEL key absent"]
        {
            assert!(!client.run(line).is_error(), "{line}");
        }
    }
    let [theirs, ours] = [&servers[0], &servers[1]].map(logged);
    assert_eq!(theirs, ["LOADCHUNK", "ADDNX", "ADDNX", "INSERTNX", "DEL"]);
    // The key is created by a header, and each addition is one whatever the replica has.
    assert_eq!(ours, ["LOADCHUNK", "LOADCHUNK", "LOADCHUNK", "INSERT", "INSERT"]);
}
