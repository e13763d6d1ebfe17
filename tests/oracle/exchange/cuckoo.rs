//! Cuckoo filters of RedisBloom's older versions, and streams of random commands between both modules.

use crate::compare::is_unsafe;
use crate::exchange::filled::words;
use crate::exchange::sides::{Starter, ours, theirs};
use crate::lines::Line;
use crate::lines::cuckoo::{KEYS, lines};
use models::random::Random;
use testkit::payload::{Part, Payload};
use testkit::persistence::rewrite_aof;
use testkit::replication::{Pair, wait_for_replica};
use testkit::wire::Wire;
use testkit::{Setup, copy_of};

/// The number of random lines of a stream.
const LINES: usize = 4000;

/// The number of lines after which the servers are compared.
const STRETCH: usize = 250;

/// Restores filters in all older versions of RedisBloom's file format. They have buckets of two slots, and do not grow
/// faster.
#[test]
fn filters_of_all_versions_are_restored_and_used_as_in_redisbloom() {
    let (their_server, our_server) =
        (theirs().set("rdbcompression no").start(), ours().set("rdbcompression no").start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    theirs.run("CF.ADD key item");
    let original = Payload::parse(theirs.run("DUMP key").bytes());
    assert_eq!(original.encoding(), 4);
    let mut random = Random(1);
    for encoding in 0..4 {
        for (layers, buckets) in [(1, 1), (1, 64), (2, 4), (5, 16)] {
            let mut parts = [layers, buckets, 1000].map(Part::Unsigned).to_vec();
            for _ in 0..layers {
                let slots = (0..2 * buckets).map(|_| if random.chance(60) { random.below(256) as u8 } else { 0 });
                parts.push(Part::String(slots.collect()));
            }
            let payload = original.with_parts(encoding, &parts);
            let mut lines = vec![
                vec![b"FLUSHALL".to_vec()],
                vec![b"RESTORE".to_vec(), b"key".to_vec(), b"0".to_vec(), payload],
                words("CF.MEXISTS", "key", 0, 300),
            ];
            lines.extend((0..40).map(|number| words("CF.DEL", "key", number, number + 1)));
            lines.extend((0..60).map(|number| words("CF.ADD", "key", number, number + 1)));
            for question in ["CF.DEBUG", "CF.INFO", "CF.COMPACT", "DUMP"] {
                lines.push(words(question, "key", 0, 0));
            }
            for line in lines {
                let (theirs, ours) = (theirs.run_words(&line), ours.run_words(&line));
                let what = format!("encoding {encoding}, {layers} layers: {}", line[0].escape_ascii());
                assert!(theirs == ours, "{what}: {theirs:?}, ours: {ours:?}");
                assert!(!ours.is_error(), "{what}: {ours:?}");
            }
        }
    }
}

/// Panics unless all keys have the same content on both servers. Returns the number of filters with several layers.
fn assert_same_keys(client: &mut Wire, other: &mut Wire) -> usize {
    assert_eq!(client.run("DBSIZE"), other.run("DBSIZE"));
    let mut deep = 0;
    for key in KEYS {
        let [dump, other_dump] = [&mut *client, &mut *other].map(|client| client.run_words(&[b"DUMP", *key]));
        let [info, other_info] = [&mut *client, &mut *other].map(|client| client.run_words(&[b"CF.INFO", *key]));
        assert_eq!(info, other_info, "{}", key.escape_ascii());
        assert!(dump == other_dump, "{}: dumps differ", key.escape_ascii());
        deep += usize::from(!info.is_error() && info.field("Number of filters").integer() > 1);
    }
    deep
}

fn logging(setup: Setup) -> Setup {
    setup.keeping_aof("no").set("appendfsync always")
}

/// Sends random lines, also invalid ones, to a server of one module, and compares it with a replica of the other
/// module, and with servers of the other module that load its append-only file, as written and rewritten.
fn compare_streams(writer: Starter, reader: Starter, is_sent: fn(&Line) -> bool) {
    for seed in [1, 2, 3] {
        let Pair { master, replica } = Pair::start(logging(writer()), reader());
        let (mut client, mut other) = (Wire::resp2(&master), Wire::resp2(&replica));
        let mut deep = 0;
        for (index, line) in lines(seed).take(LINES).filter(is_sent).enumerate() {
            client.run_words(&line.words);
            if is_unsafe(&line) {
                client.run_words(&[b"DEL", line.key()]);
            }
            if index % STRETCH == 0 {
                wait_for_replica(&mut master.connect(), &mut replica.connect());
                deep += assert_same_keys(&mut client, &mut other);
            }
        }
        assert!(deep > 10, "{deep} filters had several layers");
        for is_rewritten in [false, true] {
            if is_rewritten {
                rewrite_aof(&mut master.connect());
            }
            let loaded = logging(reader()).on(copy_of(master.folder())).start();
            assert_same_keys(&mut client, &mut Wire::resp2(&loaded));
        }
        assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
    }
}

/// Returns true if a line loads a header with a number of removals, a number of layers and an expansion that filters
/// have.
fn has_sound_header(line: &Line) -> bool {
    let Some([cursor, header]) = line.words.get(2..) else { return false };
    let number = |offset: usize| u64::from_le_bytes(header[offset..offset + 8].try_into().expect("eight bytes"));
    cursor == b"1" && header.len() == 38 && number(16) < u64::MAX && number(24) < 1024 && header[36..] != [3, 0]
}

/// RedisBloom replicates commands as they were sent, with options that this module rejects if a client sends them. It
/// does not replicate chunks.
#[test]
fn random_commands_to_redisbloom_have_the_same_effect_on_a_replica_and_from_its_append_only_file() {
    compare_streams(theirs, ours, |line| line.command() != "CF.LOADCHUNK" || has_sound_header(line));
}

#[test]
fn random_commands_to_this_module_have_the_same_effect_on_redisbloom_and_from_an_append_only_file() {
    compare_streams(ours, theirs, |line| line.words.iter().all(|word| word != b"native"));
}
