//! Items: any bytes, of any length, and the replies about them in RESP2 and RESP3.

use crate::expected::{FULL, ok, protocols};
use testkit::Setup;
use testkit::wire::{Reply, Wire};

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
        assert_eq!(client.run("BF.DEL nokey a"), no);
        assert_eq!(client.run("BF.MDEL nokey a b"), Reply::Array(vec![no.clone(), no.clone()]));
        assert_eq!(client.run("BF.COUNT nokey a"), Reply::Integer(0));
        assert_eq!(client.run("BF.MCOUNT nokey a b"), Reply::integers(&[0, 0]));
        assert_eq!(client.run("BF.CARD nokey"), Reply::Integer(0));
        assert_eq!(client.run("DBSIZE"), Reply::Integer(0));
        assert_eq!(client.run("BF.ADD added a"), yes);
        assert_eq!(client.run("BF.MADD many a"), Reply::Array(vec![yes.clone()]));
        assert_eq!(client.run("BF.INSERT inserted ITEMS a"), Reply::Array(vec![yes.clone()]));
        assert_eq!(client.run("DBSIZE"), Reply::Integer(3));
    }
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
