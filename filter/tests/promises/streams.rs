//! Dump streams and payloads, for all kinds of filters.

use crc::{CRC_64_REDIS, Crc};
use oxbloom_filter::internals::codec::{self, Header, Loader, Origin, payload};
use oxbloom_filter::internals::{CuckooSpec, Growth, KindParams};
use oxbloom_filter::{DecodeError, Filter};

use crate::model::{CLASSIC, built, chunks, create, params_of, whole, with_checksum};
use crate::recorded;

type Parts = Vec<(u64, Vec<u8>)>;

/// Returns a filter's dump stream: its header, and then its chunks.
fn parts(filter: &Filter) -> Parts {
    let header = (codec::HEADER_CURSOR, codec::encode_header(filter).unwrap());
    [vec![header], chunks(filter)].concat()
}

/// Loads a dump stream into at most `max_memory` bytes.
fn loaded(parts: &[(u64, Vec<u8>)], max_memory: u64) -> Result<Filter, DecodeError> {
    let encoded = &parts[0].1;
    let mut loader = Loader::new(&Header::decode(encoded, Origin::Replication)?, encoded, max_memory)?;
    for (cursor, data) in &parts[1..] {
        loader.load(*cursor, data)?;
    }
    loader.finish()
}

#[test]
fn a_stream_is_loaded_only_if_it_is_complete() {
    for (name, filter) in recorded::filters() {
        let parts = parts(&filter);
        assert!(whole(&loaded(&parts, u64::MAX).unwrap()) == whole(&filter), "{name}");
        for missing in 1..parts.len() {
            let rest = [&parts[..missing], &parts[missing + 1..]].concat();
            assert_eq!(loaded(&rest, u64::MAX).err(), Some(DecodeError::Incomplete), "{name} without {missing}");
        }
    }
}

#[test]
fn a_header_of_another_length_is_rejected() {
    for (name, filter) in recorded::filters() {
        let header = codec::encode_header(&filter).unwrap();
        let has_checksum = codec::tags(&filter).is_some();
        let rejected = |bytes: &[u8]| Header::decode(bytes, Origin::Replication).err();
        assert_eq!(rejected(&header), None, "{name}");
        for length in 0..header.len() {
            assert_eq!(rejected(&header[..length]), Some(DecodeError::Corrupt), "{name}: {length} bytes");
            // Headers of other projects have no checksum that could be forged.
            let forged = has_checksum.then(|| rejected(&with_checksum(&header[..length])));
            assert!(forged.is_none_or(|error| error.is_none() == (length == header.len() - 8)), "{name}: {length}");
        }
        for more in [&[0][..], &[0; 8], &[0; 28], &[0; 40], &[0; 53], &header] {
            let long = [&header, more].concat();
            let forged = if has_checksum { with_checksum(&long) } else { long.clone() };
            for long in [long, forged] {
                assert_eq!(rejected(&long), Some(DecodeError::Corrupt), "{name}: {} more", more.len());
            }
        }
    }
}

/// Chunks of other projects' filters have no checksums, so their order must show that none is missing.
#[test]
fn a_repeated_chunk_does_not_stand_for_a_missing_one() {
    for (name, filter) in recorded::filters().filter(|(_, filter)| codec::tags(filter).is_none()) {
        let parts = parts(&filter);
        let (end, data) = &parts[1];
        let start = end - data.len() as u64;
        let [first, second] = [0, 1].map(|index| (start + index + 1, vec![data[index as usize]]));
        let rest = [&[(*end, data[2..].to_vec())], &parts[2..]].concat();
        let split = [&parts[..1], &[first.clone(), second], &rest].concat();
        assert!(whole(&loaded(&split, u64::MAX).unwrap()) == whole(&filter), "{name}");
        let repeated = [&parts[..1], &[first.clone(), first], &rest].concat();
        assert_eq!(loaded(&repeated, u64::MAX).err(), Some(DecodeError::Incomplete), "{name}");
    }
}

#[test]
fn a_stream_takes_no_more_memory_than_allowed() {
    for (name, filter) in recorded::filters() {
        let memory = filter.memory_usage() as u64;
        assert!(loaded(&parts(&filter), 2 * memory).is_ok(), "{name}");
        assert!(
            filter.is_empty() || loaded(&parts(&filter), memory / 4).err() == Some(DecodeError::OutOfMemory),
            "{name}"
        );
    }
}

#[test]
fn parts_of_a_stream_are_checked_without_their_filter() {
    for (name, filter) in recorded::filters() {
        for (cursor, data) in parts(&filter) {
            assert_eq!(codec::check_chunk(cursor, &data), Ok(()), "{name}, {cursor}");
            let too_early = data.len() as u64 - 1;
            assert_eq!(codec::check_chunk(too_early, &data), Err(DecodeError::Corrupt), "{name}, {cursor}");
            // Chunks of other projects' filters have no checksums.
            if codec::tags(&filter).is_some() {
                let damaged = [&[!data[0]], &data[1..]].concat();
                assert!(codec::check_chunk(cursor, &damaged).is_err(), "{name}, {cursor}");
            }
        }
    }
}

#[test]
fn a_payload_has_the_same_filter_and_asks_for_its_memory() {
    for (name, filter) in recorded::filters() {
        let encoded = payload::encode(&filter).unwrap();
        assert!(payload::is_payload(&encoded));
        assert!(!payload::is_payload(&encoded[..10]) && !payload::is_payload(&encoded[1..]));
        let mut asked = 0;
        let mut admit = |bytes| {
            asked += bytes;
            true
        };
        assert!(whole(&payload::decode(&encoded, &mut admit).unwrap()) == whole(&filter), "{name}");
        let content: usize = chunks(&filter).iter().map(|(_, data)| data.len()).sum();
        assert!(asked >= content as u64 / 2, "{name}: {asked} of {content} bytes");
        assert!(asked == 0 || payload::decode(&encoded, &mut |_| false).err() == Some(DecodeError::OutOfMemory));
    }
}

#[test]
fn a_damaged_payload_is_rejected() {
    for (name, filter) in recorded::filters() {
        let mut encoded = payload::encode(&filter).unwrap();
        for length in (0..encoded.len()).step_by(97).chain(0..encoded.len().min(30)) {
            let cut = payload::decode(&encoded[..length], &mut |_| true);
            assert_eq!(cut.err(), Some(DecodeError::Corrupt), "{name}: {length} bytes");
        }
        for index in (0..encoded.len()).step_by(97).chain(encoded.len() - 20..encoded.len()) {
            encoded[index] ^= 0x10;
            let damaged = payload::decode(&encoded, &mut |_| true);
            assert_eq!(damaged.err(), Some(DecodeError::Corrupt), "{name}: byte {index}");
            encoded[index] ^= 0x10;
        }
    }
}

/// These are values of payloads, which have no checksum of their own. Each byte is overwritten with bytes that also begin
/// long, odd and compressed lengths. What is accepted works.
#[test]
fn a_forged_payload_is_rejected_or_makes_a_sound_filter() {
    const MAX_MEMORY: u64 = 1 << 24;
    for (name, filter) in recorded::filters() {
        let encoded = payload::encode(&filter).unwrap();
        let value = &encoded[1..encoded.len() - 10];
        let mut accepted = 0;
        let decoded = |forged: &[u8]| {
            let mut asked = 0;
            payload::decode_value(forged, &mut |bytes| {
                asked += bytes;
                asked <= MAX_MEMORY
            })
        };
        for at in (0..value.len().min(400)).chain((400..value.len()).step_by(997)) {
            let [before, after] = [&value[..at], &value[at + 1..]];
            let overwritten = [0, 1, 0x80, 0x81, 0x82, 0xc3, 0xc4, 0xff].map(|byte| [before, &[byte], after].concat());
            let others = [[before, after].concat(), [before, &value[at / 2..]].concat()];
            for mut filter in overwritten.iter().chain(&others).filter_map(|forged| decoded(forged).ok()) {
                filter.contains("absent");
                filter.insert("item").ok();
                let again = payload::decode(&payload::encode(&filter).unwrap(), &mut |_| true);
                assert!(again.is_ok_and(|again| again == filter), "{name}: byte {at}");
                accepted += 1;
            }
        }
        assert!(accepted > 0, "{name}");
    }
}

/// Returns a filter of a kind that has these bits or slots, in a layer that may be larger.
fn with_content(kind: KindParams, content: &[u8]) -> Filter {
    let mut filter = create(params_of(kind, 0.01, content.len() as u64, Growth::Fixed));
    let cursor = codec::HEADER_CURSOR + content.len() as u64;
    codec::load_chunk(&mut filter, cursor, content, Origin::Client, &mut |_| true).unwrap();
    filter
}

/// Servers store short decimal numbers as integers, and compress longer strings. Each file is the reply of Redis 7.0 to
/// DUMP.
#[test]
fn payloads_of_a_server_are_read() {
    let cuckoo = KindParams::Cuckoo { spec: CuckooSpec::new(Growth::Fixed, 2, 20).unwrap() };
    // The literal bytes, a copy of them, a pattern that overlaps its own copy, and a copy from far back.
    let bytes: Vec<u8> = (0..600u32).map(|index| (index.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
    let varied = [&bytes[..], &bytes[..300], &bytes[100..105].repeat(20), &[0; 3000], &bytes[500..512]].concat();
    for (name, filter) in [
        ("digits-2", with_content(cuckoo, b"12")),
        ("digits-4", with_content(cuckoo, b"1234")),
        ("digits-8", with_content(cuckoo, b"12345678")),
        ("compressed", with_content(CLASSIC, &varied)),
    ] {
        let recorded = std::fs::read(recorded::folder().join(format!("{name}.dump"))).unwrap();
        assert!(payload::decode(&recorded, &mut |_| true).unwrap() == filter, "{name}");
    }
}

#[test]
fn a_compressed_string_has_the_announced_length() {
    let recorded = std::fs::read(recorded::folder().join("compressed.dump")).unwrap();
    let value = &recorded[1..recorded.len() - 10];
    // A compressed string begins with its length, and that of the string itself, both in two bytes.
    let at = value.windows(2).position(|bytes| bytes == [5, 0xc3]).unwrap() + 4;
    let announcing = |length: &[u8]| {
        payload::decode_value(&[&value[..at], length, &value[at + 2..]].concat(), &mut |_| true).map(drop)
    };
    for length in 0x4000..0x8000u16 {
        let expected = if length.to_be_bytes() == value[at..][..2] { Ok(()) } else { Err(DecodeError::Corrupt) };
        assert_eq!(announcing(&length.to_be_bytes()), expected, "{length:x}");
    }
    assert_eq!(announcing(&[&[0x81][..], &[0xff; 8]].concat()), Err(DecodeError::Corrupt));
}

#[test]
fn a_payload_has_a_known_version_and_nothing_but_a_value() {
    let encoded = payload::encode(&create(params_of(CLASSIC, 0.01, 100, Growth::Fixed))).unwrap();
    let value = &encoded[..encoded.len() - 10];
    let decoded = |value: &[u8], version: u16| {
        let checked = [value, &version.to_le_bytes()].concat();
        let checksum = Crc::<u64>::new(&CRC_64_REDIS).checksum(&checked);
        payload::decode(&[&checked[..], &checksum.to_le_bytes()].concat(), &mut |_| true).map(drop)
    };
    for (version, expected) in [(7, Err(DecodeError::Corrupt)), (8, Ok(())), (99, Ok(()))] {
        assert_eq!(decoded(value, version), expected, "{version}");
    }
    let (_end, rest) = value.split_last().unwrap();
    for wrong in [[value, &[0]].concat(), [rest, &[1]].concat()] {
        assert_eq!(decoded(&wrong, 9), Err(DecodeError::Corrupt));
    }
}

/// Servers do the same, so that equal filters have equal payloads.
#[test]
fn lengths_take_the_fewest_bytes() {
    let lengths = [0x3f, 0x40, 0x3fff, 0x4000, u32::MAX].map(|stored_expansion| {
        let filter = create(params_of(KindParams::Classic { stored_expansion }, 0.01, 100, Growth::Fixed));
        let encoded = payload::encode(&filter).unwrap();
        assert!(payload::decode(&encoded, &mut |_| true).unwrap() == filter);
        encoded.len()
    });
    assert_eq!(lengths.map(|length| length - lengths[0]), [0, 1, 1, 4, 4]);
}

/// A chunk that changes nothing is not replicated.
#[test]
fn a_chunk_changes_a_filter_once() {
    for (name, filter) in recorded::filters() {
        for origin in [Origin::Client, Origin::Replication] {
            let mut copy = built(&codec::encode_header(&filter).unwrap()).unwrap();
            for (cursor, data) in chunks(&filter) {
                for is_new in [true, false] {
                    let before = whole(&copy);
                    let loaded = codec::load_chunk(&mut copy, cursor, &data, origin, &mut |_| true).unwrap();
                    assert_eq!(loaded.changed, is_new, "{name}, {cursor}, {origin:?}");
                    assert_eq!(whole(&copy) != before, is_new, "{name}, {cursor}, {origin:?}");
                }
            }
        }
    }
}

/// RedisBloom rejects it in the same way.
#[test]
fn a_chunk_without_bytes_at_cursor_0_is_damaged() {
    for (name, mut filter) in recorded::filters() {
        let loaded = codec::load_chunk(&mut filter, 0, &[], Origin::Client, &mut |_| true);
        assert_eq!(loaded.err(), Some(DecodeError::Corrupt), "{name}");
    }
}

#[test]
fn filters_of_the_same_header_have_the_same_digest_only_if_they_have_the_same_content() {
    let native = |item: &str| {
        let mut filter = Filter::builder().capacity(100).seed(7).build().unwrap();
        filter.insert(item).unwrap();
        filter
    };
    let digest = |filter: &Filter| {
        let mut digested = Vec::new();
        codec::digest(filter, |part| digested.extend_from_slice(part)).unwrap();
        digested
    };
    let cuckoo = KindParams::Cuckoo { spec: CuckooSpec::new(Growth::Fixed, 2, 20).unwrap() };
    let of_kind = |kind| [with_content(kind, b"12"), with_content(kind, b"21")];
    for [one, other] in [[native("1"), native("2")], of_kind(CLASSIC), of_kind(cuckoo)] {
        assert_eq!(codec::encode_header(&one).unwrap(), codec::encode_header(&other).unwrap());
        assert_eq!(digest(&one), digest(&one.clone()));
        assert_ne!(digest(&one), digest(&other));
    }
}
