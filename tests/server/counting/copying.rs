//! Tests copies in chunks, while clients write to the filter.

use crate::expected::ok;
use testkit::Setup;
use testkit::filter_model::counting_in_three_chunks;
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
