//! Copies in chunks of filters that are written to meanwhile.

use xxhash_rust::xxh3::xxh3_64;

use crate::expected::{ok, protocols};
use crate::fields::field;
use testkit::Setup;
use testkit::command::many;
use testkit::filter_model::counting_in_three_chunks;
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};

const FOREIGN_CHUNK: &str =
    "ERR received a chunk of another filter, or one from before its last write: copy again from iterator 0";

/// Returns the chunk after a cursor, with its own cursor.
fn chunk_after(client: &mut Wire, key: &str, cursor: i64) -> (i64, Vec<u8>) {
    let reply = client.run(&format!("BF.SCANDUMP {key} {cursor}"));
    let [Reply::Integer(next), data] = reply.elements() else { panic!("{reply:?}") };
    (*next, data.bytes().to_vec())
}

#[test]
fn chunks_of_a_filter_that_was_written_to_are_rejected() {
    let server = Setup::oxbloom().set("rdbcompression no").start();
    let mut client = Wire::resp2(&server);
    counting_in_three_chunks(&mut server.connect(), "whole");
    client.run("BF.ADD whole item");
    for (words, writes) in [
        ("BF.ADD key item", true),
        ("BF.MADD key new", true),
        ("BF.INSERT key NX ITEMS new", true),
        ("BF.DEL key item", true),
        ("BF.MDEL key item absent", true),
        ("BF.MERGE key 1 whole", true),
        ("BF.DEL key absent", false),
        ("BF.MDEL key absent", false),
        ("BF.INSERT key NX ITEMS item", false),
        ("BF.COUNT key item", false),
    ] {
        client.run("DEL key copy");
        assert_eq!(client.run("COPY whole key"), Reply::Integer(1));
        let (mut cursor, mut data) = chunk_after(&mut client, "key", 0);
        for _ in 0..2 {
            assert_eq!(client.load_chunk("copy", cursor, &data), ok());
            (cursor, data) = chunk_after(&mut client, "key", cursor);
        }
        assert!(!client.run(words).is_error(), "{words}");
        // A chunk that was read before the write is still valid.
        assert_eq!(client.load_chunk("copy", cursor, &data), ok());
        let before = client.run("DUMP copy");
        (cursor, data) = chunk_after(&mut client, "key", cursor);
        assert!(cursor > 0, "no chunk is left");
        let expected = if writes { Reply::error(FOREIGN_CHUNK) } else { ok() };
        assert_eq!(client.load_chunk("copy", cursor, &data), expected, "after {words}");
        assert_eq!(client.run("DUMP copy") == before, writes, "{words}");
        assert_eq!(client.run("DUMP copy") == client.run("DUMP whole"), !writes, "{words}");
    }
}

/// Additions and removals may restore the earlier contents. Chunks are still rejected, since the filter was written to.
#[test]
fn chunks_of_a_filter_that_was_changed_and_changed_back_are_rejected() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for parameters in ["0.01 100", "0.01 100 NONSCALING"] {
        for words in [["BF.ADD key item", "BF.DEL key item"], ["BF.DEL key known", "BF.ADD key known"]] {
            client.run("FLUSHALL");
            client.run(&format!("BF.RESERVE key {parameters} COUNTING"));
            client.run("BF.MADD key known other known");
            let (cursor, header) = chunk_after(&mut client, "key", 0);
            assert_eq!(client.load_chunk("copy", cursor, &header), ok());
            let (end, chunk) = chunk_after(&mut client, "key", cursor);
            words.into_iter().for_each(|words| assert!(!client.run(words).is_error()));
            let (late_end, late) = chunk_after(&mut client, "key", cursor);
            assert_eq!((late_end, late.len()), (end, chunk.len()));
            assert_eq!(client.load_chunk("copy", end, &late), Reply::error(FOREIGN_CHUNK), "{words:?}");
            assert_eq!(client.load_chunk("copy", end, &chunk), ok());
            // The same commands on the copy have the same effect.
            words.into_iter().for_each(|words| assert!(!client.run(&words.replace("key", "copy")).is_error()));
            assert_eq!(client.load_chunk("copy", end, &chunk), Reply::error(FOREIGN_CHUNK), "{words:?}");
        }
    }
}

#[test]
fn a_copy_accepts_chunks_in_any_order_until_it_is_written_to() {
    let server = with_debug(Setup::oxbloom()).set("rdbcompression no").start();
    let (mut client, mut connection) = (Wire::resp2(&server), server.connect());
    let model = counting_in_three_chunks(&mut connection, "key");
    let chunks = client.scan_dump("key");
    assert_eq!(chunks.len(), 4);
    for (words, loaded) in [("BF.ADD copy item", 1), ("BF.ADD copy item", 2), ("BF.INSERT copy NX ITEMS item", 3)] {
        client.run("DEL copy");
        for (cursor, data) in &chunks[..loaded] {
            assert_eq!(client.load_chunk("copy", *cursor, data), ok());
        }
        assert_eq!(client.run("BF.DEL copy absent"), Reply::Integer(0));
        assert!(!client.run(words).is_error(), "{words}");
        let before = client.run("DUMP copy");
        for (cursor, data) in &chunks[1..] {
            assert_eq!(client.load_chunk("copy", *cursor, data), Reply::error(FOREIGN_CHUNK), "after {words}");
        }
        assert_eq!(client.run("DUMP copy"), before);
    }
    client.run("DEL copy");
    // After the header, loads the last chunk first, then the others, and all again, with a reload after each.
    for at in [0, 3, 1, 2, 3, 2, 1] {
        assert_eq!(client.load_chunk("copy", chunks[at].0, &chunks[at].1), ok());
        client.run("DEBUG RELOAD");
    }
    assert_eq!(client.run("DUMP copy"), client.run("DUMP key"));
    client.run("RENAME copy key");
    let items: Vec<u64> = model.items.into_iter().collect();
    for _ in 0..3 {
        for items in items.chunks(1000) {
            assert_eq!(many::<Vec<u64>>(&mut connection, "BF.MDEL", "key", items), vec![1; items.len()]);
        }
    }
    assert_eq!(client.run("BF.INFO key FILL"), Reply::Array(vec![Reply::bulk("0")]));
}

#[test]
fn a_loaded_header_may_mark_the_number_of_items_as_an_estimate() {
    let server = with_debug(Setup::oxbloom()).start();
    for (mut client, yes, _) in protocols(&server) {
        client.run("FLUSHALL");
        // In both headers, the number of items is the third 64-bit number after the first 32 bytes.
        let place = 32 + 16;
        for (key, words) in [("native", ""), ("counting", "COUNTING")] {
            client.run(&format!("BF.RESERVE {key} 0.01 100 {words}"));
            let (_, mut header) = client.scan_dump(key).remove(0);
            // The highest bit marks an estimate.
            header[place + 7] |= 0x80;
            let end = header.len() - 8;
            let checksum = xxh3_64(&header[..end]);
            header[end..].copy_from_slice(&checksum.to_le_bytes());
            client.run(&format!("DEL {key}"));
            assert_eq!(client.load_chunk(key, 1, &header), ok());
            client.run(&format!("BF.MADD {key} a b"));
            client.run("DEBUG RELOAD");
            assert_eq!(field(&mut client, key, "ESTIMATED", "Number of items is an estimate"), yes, "{key}");
            assert_eq!(client.run(&format!("BF.CARD {key}")), Reply::Integer(2), "{key}");
        }
    }
}
