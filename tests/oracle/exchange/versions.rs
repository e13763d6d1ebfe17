//! Filters in the files of older versions, broken ones, and the sizes of new ones.

use crate::exchange::filled::words;
use crate::exchange::sides::{ours, theirs};
use models::random::Random;
use testkit::payload::{Part, Payload};
use testkit::wire::{Reply, Wire};

/// Restores filters in all versions of RedisBloom's file format. Some are from before it hashed with 64 bits, and some
/// have its earlier rounding.
#[test]
fn filters_of_all_versions_are_restored_and_grow_as_in_redisbloom() {
    let (their_server, our_server) =
        (theirs().set("rdbcompression no").start(), ours().set("rdbcompression no").start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    theirs.run("BF.ADD key item");
    let original = Payload::parse(theirs.run("DUMP key").bytes());
    const BITS_PER_ITEM: f64 = 11.027754;
    // The option flags, the number of bits, and its logarithm if it is a power of two.
    for (options, bits, log2_bits) in [(5, 1152, 0), (4, 1024, 10), (1, 1152, 0), (0, 1024, 10), (13, 1152, 0)] {
        for encoding in 0..=5 {
            for expansion in [1, 2, 3] {
                use Part::{Double, String, Unsigned};
                let mut parts = vec![Unsigned(0), Unsigned(1)];
                if encoding >= 2 {
                    parts.push(Unsigned(options));
                }
                if encoding >= 4 {
                    parts.push(Unsigned(expansion));
                }
                parts.extend([Unsigned(90), Double(0.005), Unsigned(8), Double(BITS_PER_ITEM)]);
                if encoding >= 1 {
                    parts.extend([Unsigned(bits), Unsigned(log2_bits)]);
                }
                parts.extend([String(vec![0; bits as usize / 8]), Unsigned(0)]);
                let payload = original.with_parts(encoding, &parts);
                let what = format!("encoding {encoding}, options {options}, expansion {expansion}");
                let lines: Vec<Vec<Vec<u8>>> = [
                    vec![b"FLUSHALL".to_vec()],
                    vec![b"RESTORE".to_vec(), b"key".to_vec(), b"0".to_vec(), payload],
                    words("BF.MADD", "key", 0, 800),
                    words("BF.MEXISTS", "key", 0, 2000),
                ]
                .into();
                let questions = ["BF.DEBUG key", "BF.INFO key", "BF.CARD key", "DUMP key", "BF.SCANDUMP key 0"];
                let questions = questions.map(|line| line.split(' ').map(|word| word.as_bytes().to_vec()).collect());
                for line in lines.into_iter().chain(questions) {
                    let (theirs, ours) = (theirs.run_words(&line), ours.run_words(&line));
                    assert!(theirs == ours, "{what}: {}: {theirs:?}, ours: {ours:?}", line[0].escape_ascii());
                }
            }
        }
    }
}

/// After a failure to grow, RedisBloom leaves a layer without bits, in which every item is present.
#[test]
fn a_filter_that_broke_in_redisbloom_is_restored_as_it_is() {
    let (their_server, our_server) = (theirs().start(), ours().start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    theirs.run("BF.INSERT key CAPACITY 2 EXPANSION 4294967296 ITEMS one two three");
    let dump = theirs.run("DUMP key");
    assert_eq!(ours.run_words(&[&b"RESTORE"[..], b"key", b"0", dump.bytes()]), Reply::simple("OK"));
    for line in ["BF.DEBUG key", "BF.INFO key", "DUMP key", "BF.MEXISTS key one three four", "BF.ADD key five"] {
        assert_eq!(theirs.run(line), ours.run(line), "{line}");
    }
    assert_eq!(ours.run("BF.MEXISTS key one three four"), Reply::integers(&[1, 1, 1]));
}

/// Compares thousands of random capacities and error rates.
#[test]
fn filters_have_the_same_size_for_any_capacity_and_error_rate() {
    let (their_server, our_server) = (theirs().start(), ours().start());
    let (mut theirs, mut ours) = (Wire::resp2(&their_server), Wire::resp2(&our_server));
    let mut random = Random::unpredictable();
    for _ in 0..3000 {
        let rate = 10f64.powf(-(random.below(12_000) as f64) / 1000.0 - 0.001);
        let capacity = 1 + random.next_u64() % 10u64.pow(1 + random.below(8) as u32);
        let option = random.one_of(&["", "NONSCALING", "EXPANSION 1"]);
        let reserve = format!("BF.RESERVE key {rate} {capacity} {option}");
        for line in [reserve.as_str(), "BF.SCANDUMP key 0", "MEMORY USAGE key", "DEL key"] {
            assert_eq!(theirs.run(line), ours.run(line), "{reserve}: {line}");
        }
    }
}
