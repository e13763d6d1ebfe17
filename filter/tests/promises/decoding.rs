//! Decoding of damaged and forged bytes.

use oxbloom_filter::internals::codec::packing::{pack, unpack};
use oxbloom_filter::internals::codec::{self, Origin, chunk, header};
use oxbloom_filter::internals::sizing::{MAX_BLOCKS, WORDS_PER_LINE};
use oxbloom_filter::internals::{Growth, MAX_ITEMS};
use oxbloom_filter::{DecodeError, Filter, MergeError, Mismatch};

use crate::counting;
use crate::counting::filters::{built_like, counting};
use crate::model::{
    self, Chunk, body, built, by, chunks, chunks_of_bits, filter, is_complete, item, layer, with_checksum,
};
use crate::recorded;

fn decode(header: &[u8]) -> Result<codec::Header, DecodeError> {
    codec::Header::decode(header, Origin::Client)
}

/// Decodes a filter's header that has other bytes from byte `at` on, and a correct checksum.
fn decode_with(filter: &Filter, at: usize, bytes: &[u8]) -> Result<codec::Header, DecodeError> {
    let mut body = body(filter);
    body[at..][..bytes.len()].copy_from_slice(bytes);
    decode(&with_checksum(&body))
}

fn filled(error_rate: f64, capacity: u64, growth: Growth, seed: u64, items: u64) -> Filter {
    let mut filter = filter(error_rate, capacity, growth, seed);
    (0..items).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
    filter
}

/// Returns a filter with blocks and a table.
fn grown() -> Filter {
    let filter = filled(0.01, 1000, by(2), 7, 1600);
    assert_eq!(filter.num_layers(), 2);
    filter
}

/// Forges a chunk that has the tag of a filter and a correct checksum.
fn forged(filter: &Filter, offset: u64, bits: &[u8]) -> Vec<u8> {
    Chunk { offset, bits }.sealed(filter)
}

/// Loads bytes that must be rejected and must change nothing. Returns the error.
pub(crate) fn assert_rejected(filter: &mut Filter, cursor: u64, bytes: &[u8], why: &str) -> DecodeError {
    let before = model::whole(filter);
    let answer = model::load(filter, cursor, bytes);
    assert!(model::whole(filter) == before, "{why}");
    answer.expect_err(why)
}

#[test]
fn a_header_with_a_flipped_bit_is_rejected_and_not_taken_for_a_classic_one() {
    for filter in [grown(), counting::filters::grown()] {
        let header = codec::encode_header(&filter).unwrap();
        for bit in 0..header.len() * 8 {
            let mut damaged = header.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            for origin in [Origin::Client, Origin::Replication] {
                assert!(codec::Header::decode(&damaged, origin).is_err(), "bit {bit}");
            }
        }
    }
}

#[test]
fn a_later_version_is_reported_and_not_taken_for_damage() {
    for version in 0..=u8::MAX {
        let mut body = body(&grown());
        body[3] = version;
        let expected = match version {
            0..header::VERSION => Some(DecodeError::Corrupt),
            header::VERSION => None,
            _ => Some(DecodeError::NewerVersion),
        };
        assert_eq!(decode(&with_checksum(&body)).err(), expected, "version {version}");
        // Only that version knows the format of the bytes between the version number and the checksum.
        if version > header::VERSION {
            assert_eq!(decode(&with_checksum(&body[..20])).err(), expected, "version {version}");
        }
    }
}

#[test]
fn an_unknown_kind_is_one_of_a_later_version() {
    for kind in [1, 5, 255] {
        assert_eq!(decode_with(&grown(), 4, &[kind]).err(), Some(DecodeError::NewerVersion), "kind {kind}");
    }
}

#[test]
fn impossible_numbers_are_rejected() {
    const FIRST_LAYER: usize = 32;
    let number = |value: u64| value.to_le_bytes().to_vec();
    let impossible: &[(&str, usize, Vec<u8>)] = &[
        ("magic", 0, b"oxb".to_vec()),
        ("reserved bytes", 5, vec![0, 0, 1]),
        ("layers of a filter that does not grow", 8, vec![0; 4]),
        ("no layers", 12, vec![0; 4]),
        ("no record of the table", 12, vec![1]),
        ("too many layers", 12, vec![4]),
        ("the maximum number of layers", 12, vec![0xFF; 4]),
        ("error rate 0", 24, 0f64.to_le_bytes().to_vec()),
        ("error rate 1", 24, 1f64.to_le_bytes().to_vec()),
        ("error rate below 0", 24, (-0.01f64).to_le_bytes().to_vec()),
        ("error rate that is not a number", 24, f64::NAN.to_le_bytes().to_vec()),
        ("no blocks", FIRST_LAYER, number(0)),
        ("more blocks than addresses", FIRST_LAYER, number(u64::MAX)),
        ("blocks whose bytes overflow", FIRST_LAYER, number(1 << 58)),
        ("capacity 0", FIRST_LAYER + 8, number(0)),
        ("more items than capacity", FIRST_LAYER + 16, number(301)),
        ("more items than can be counted, by an estimate", FIRST_LAYER + 16, number(u64::MAX)),
        ("more set bits than bits", FIRST_LAYER + 24, number(u64::MAX)),
        ("no blocks per item", FIRST_LAYER + 32, vec![0]),
        ("17 blocks per item", FIRST_LAYER + 32, vec![17, 17]),
        ("more blocks per item than blocks", FIRST_LAYER + 32, vec![4, 8]),
        ("more blocks per item than probes", FIRST_LAYER + 32, vec![2, 1]),
        ("no probes", FIRST_LAYER + 33, vec![0]),
        ("no words", FIRST_LAYER + 34, vec![0]),
        ("32 words", FIRST_LAYER + 34, vec![32]),
        ("reserved bytes of a layer", FIRST_LAYER + 39, vec![1]),
    ];
    let filter = filled(0.3, 300, by(2), 7, 700);
    let shape = layer(&filter).shape();
    assert_eq!((shape.blocks, shape.words), (2, 8));
    for (what, at, bytes) in impossible {
        assert_eq!(decode_with(&filter, *at, bytes).err(), Some(DecodeError::Corrupt), "{what}");
    }
}

#[test]
fn impossible_numbers_of_a_table_are_rejected() {
    const RECORD: usize = 32;
    let number = |value: u64| value.to_le_bytes().to_vec();
    let impossible: &[(&str, usize, Vec<u8>)] = &[
        ("a native filter", 4, vec![0]),
        ("reserved bytes", 5, vec![0, 0, 1]),
        ("a table that grows, in a filter that does not", 8, vec![0; 4]),
        ("no record", 12, vec![0; 4]),
        ("two records", 12, vec![2]),
        ("capacity 0", RECORD, number(0)),
        ("more items than can be counted", RECORD + 16, number(MAX_ITEMS + 1)),
        ("more items than can be counted, by an estimate", RECORD + 16, number(u64::MAX)),
        ("more items than occurrences", RECORD + 16, number(1 << 40)),
        ("slots without items", RECORD + 16, [number(0), number(0)].concat()),
        ("no segments", RECORD + 40, number(0)),
        ("a level in a table that grows", RECORD + 48, vec![12]),
        ("fingerprints without bits", RECORD + 50, vec![0]),
        ("fingerprints of too many bits", RECORD + 50, vec![57]),
        ("a step of lengths at too low a level", RECORD + 51, vec![14]),
        ("a step of lengths at too high a level", RECORD + 51, vec![24]),
        ("stamps in a filter that does not forget", RECORD + 52, vec![1]),
        ("reserved bytes at the end", RECORD + 55, vec![1]),
        ("a scale in a table that grows", RECORD + 56, number(1)),
    ];
    let filter = counting::filters::grown();
    for (what, at, bytes) in impossible {
        assert_eq!(decode_with(&filter, *at, bytes).err(), Some(DecodeError::Corrupt), "{what}");
    }
    // Plausible numbers pass, whatever the chunks contain.
    let possible: &[(&str, usize, Vec<u8>)] = &[
        ("the maximum number of occurrences", RECORD + 24, number(u64::MAX)),
        ("the maximum number of writes", RECORD + 8, number(u64::MAX)),
        ("other slots", RECORD + 32, number(77)),
        ("the shortest lengths", RECORD + 50, vec![1, 15]),
        ("the longest lengths", RECORD + 50, vec![56, 23]),
    ];
    for (what, at, bytes) in possible {
        assert!(decode_with(&filter, *at, bytes).is_ok(), "{what}");
    }
}

#[test]
fn unavailable_memory_is_an_error() {
    let filter = filled(0.01, 10_000, Growth::Fixed, 7, 0);
    let header = decode_with(&filter, 32, &(MAX_BLOCKS - 1).to_le_bytes()).unwrap();
    assert_eq!(header.memory(), (MAX_BLOCKS - 1) * 64);
    assert_eq!(header.build().err(), Some(DecodeError::OutOfMemory));
}

#[test]
fn a_chunk_with_damaged_bytes_is_rejected() {
    for filter in [grown(), counting::filters::grown()] {
        let mut copy = built_like(&filter);
        for (cursor, mut bytes) in chunks(&filter) {
            for at in (0..bytes.len()).step_by(7) {
                bytes[at] ^= 1 << (at % 8);
                assert_eq!(assert_rejected(&mut copy, cursor, &bytes, "damaged"), DecodeError::Corrupt, "byte {at}");
                bytes[at] ^= 1 << (at % 8);
            }
        }
    }
}

#[test]
fn a_truncated_or_extended_chunk_is_rejected() {
    let filter = grown();
    let mut copy = built(&codec::encode_header(&filter).unwrap()).unwrap();
    for chunk in chunks_of_bits(&filter) {
        let (bytes, cursor) = (chunk.sealed(&filter), chunk.cursor());
        for length in 0..bytes.len() {
            assert_rejected(&mut copy, cursor, &bytes[..length], "cut at its end");
            assert_rejected(&mut copy, cursor, &bytes[bytes.len() - length..], "cut at its start");
            assert_rejected(&mut copy, chunk.offset + length as u64, &bytes[..length], "cut, at its offset");
        }
        for more in [1, 8, 64] {
            let more = vec![0; more];
            assert_rejected(&mut copy, cursor, &[&bytes, more.as_slice()].concat(), "more at its end");
            assert_rejected(&mut copy, cursor, &[&more, bytes.as_slice()].concat(), "more at its start");
        }
    }
}

#[test]
fn a_chunk_of_another_filter_or_place_is_rejected() {
    for filter in [grown(), counting::filters::grown()] {
        let mut copy = built_like(&filter);
        for (at, chunk) in chunks(&filter) {
            let near = [0, chunk::FIRST_CHUNK_CURSOR].into_iter().flat_map(|first| first..first + 2_000);
            let places = near.chain([at - 1, at + 1, 1 << 63, u64::MAX, u64::MAX - 63]);
            for cursor in places.filter(|&cursor| cursor != at) {
                assert_rejected(&mut copy, cursor, &chunk, "elsewhere");
            }
        }
    }
    let native = |seed| filled(0.01, 100, by(2), seed, 90);
    let counting = |seed| {
        let mut filter = counting(0.01, 100, by(2), seed);
        (0..90).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
        filter
    };
    for (ours, theirs, why) in [
        (native(7), native(8), "other seed"),
        (counting(8), counting(9), "other seed"),
        (counting(8), counting::filters::grown(), "other table"),
    ] {
        let (cursor, chunk) = &chunks(&theirs)[0];
        assert_rejected(&mut built_like(&ours), *cursor, chunk, why);
    }
}

/// A client that forges the checksum of a chunk can only set bits in whole blocks of an existing layer.
#[test]
fn a_forged_chunk_cannot_leave_its_layer() {
    let filter = filled(0.01, 1500, by(2), 7, 2000);
    assert_eq!(layer(&filter).shape().words, WORDS_PER_LINE);
    let mut copy = built(&codec::encode_header(&filter).unwrap()).unwrap();
    let first = layer(&filter).shape().bytes();
    for (why, offset, length, reason) in [
        ("no bits", 0, 0, DecodeError::Corrupt),
        ("part of a block", 0, 63, DecodeError::Corrupt),
        ("not at a block", 1, 64, DecodeError::Corrupt),
        ("over the end of the blocks", first - 64, 128, DecodeError::Foreign),
        ("more than a chunk", 0, chunk::BITS_CHUNK_BYTES + 64, DecodeError::Foreign),
        ("after the blocks", first, 64, DecodeError::Foreign),
        ("far after the filter", 1 << 62, 64, DecodeError::NoSuchOffset),
    ] {
        let bytes = forged(&copy, offset, &vec![0xFF; length]);
        let cursor = chunk::FIRST_CHUNK_CURSOR + offset + length as u64;
        assert_eq!(assert_rejected(&mut copy, cursor, &bytes, why), reason, "{why}");
    }
    let (last, bits) = (u64::MAX - 63, [0xFF; 64]);
    let wrapped = forged(&copy, last, &bits);
    assert_rejected(&mut copy, 0, &wrapped, "an offset that overflows");
    let moved = forged(&copy, 0, &bits);
    assert_rejected(&mut copy, chunk::FIRST_CHUNK_CURSOR + 128, &moved, "at another block");

    // The same forgery is accepted at the right position.
    let bytes = forged(&copy, first - 64, &[0xFF; 64]);
    assert_eq!(model::load(&mut copy, chunk::FIRST_CHUNK_CURSOR + first, &bytes), Ok(()));
    assert_eq!(layer(&copy).set_bits(), 512);

    // A block of fifteen words is also loaded as a whole.
    let small = filled(0.01, 96, Growth::Fixed, 7, 90);
    assert_eq!(layer(&small).shape().words, 15);
    let mut small = built(&codec::encode_header(&small).unwrap()).unwrap();
    let half = forged(&small, 0, &[0xFF; 64]);
    assert_rejected(&mut small, chunk::FIRST_CHUNK_CURSOR + 64, &half, "half a block");
    let whole = forged(&small, 0, &[0xFF; 120]);
    assert_eq!(model::load(&mut small, chunk::FIRST_CHUNK_CURSOR + 120, &whole), Ok(()));
    assert_eq!(layer(&small).set_bits(), 960);
}

/// Returns the cursor and the content of the only chunk of a filter of fingerprints.
fn fingerprints(filter: &Filter) -> (u64, Vec<u8>) {
    let (cursor, chunk) = chunks(filter).remove(0);
    (cursor, chunk[..chunk.len() - 16].to_vec())
}

#[test]
fn a_forged_chunk_of_fingerprints_is_rejected_or_makes_a_sound_filter() {
    for (capacity, items) in [(1, 1), (10, 4), (100, 1), (100, 99), (100, 100), (400, 400), (800, 700)] {
        let filter = filled(0.01, capacity, by(2), 7, items);
        assert!(layer(&filter).is_of_fingerprints());
        let (cursor, content) = fingerprints(&filter);
        let check = |why: &str, content: &[u8]| {
            let forged = Chunk { offset: cursor - chunk::FIRST_CHUNK_CURSOR - content.len() as u64, bits: content };
            let mut copy = built(&codec::encode_header(&filter).unwrap()).unwrap();
            let loaded = model::load(&mut copy, cursor, &forged.sealed(&filter));
            // A filter that accepts a chunk writes the same chunk.
            let expected = if loaded.is_ok() { content.to_vec() } else { Vec::new() };
            let again = if copy.is_empty() { Vec::new() } else { fingerprints(&copy).1 };
            assert!(again == expected, "{capacity}, {items}: {why}");
            assert_eq!(model::through_a_client(&copy).len(), copy.len());
            loaded
        };
        assert_eq!(check("nothing forged", &content), Ok(()));
        for bit in 0..content.len() * 8 {
            let mut content = content.clone();
            content[bit / 8] ^= 1 << (bit % 8);
            let _ = check("a bit", &content);
        }
        assert_eq!(check("all ones", &vec![0xFF; content.len()]), Err(DecodeError::Corrupt));
        let mut numbers = model::item(items).into_iter().cycle().scan(7u8, |state, byte| {
            *state = state.wrapping_mul(31).wrapping_add(byte);
            Some(*state)
        });
        for _ in 0..100 {
            let _ = check("any bits", &numbers.by_ref().take(content.len()).collect::<Vec<_>>());
        }
        for length in [0, 1, content.len() - 8, content.len() - 1] {
            assert_eq!(check("too short", &content[..length]), Err(DecodeError::Corrupt));
        }
    }
}

/// A client writes to a filter while chunks of an earlier state arrive.
#[test]
fn a_chunk_of_fingerprints_is_added_to_a_filter_in_any_state() {
    for (of_source, of_target) in [(90, 0), (90, 5), (60, 60), (100, 100), (90, 101), (1, 3000), (100, 20_000)] {
        let source = filled(0.01, 100, by(2), 7, of_source);
        let mut target = built(&codec::encode_header(&source).unwrap()).unwrap();
        let added = 50..50 + of_target;
        added.clone().for_each(|number| assert!(target.insert(item(number)).is_ok()));
        let (cursor, chunk) = &chunks(&source)[0];
        assert_eq!(model::load(&mut target, *cursor, chunk), Ok(()));
        let all = (0..of_source).chain(added);
        assert!(all.clone().all(|number| target.contains(item(number))), "{of_source} {of_target}");
        assert!(target.false_positive_rate() <= 0.01);
        assert!(target.len() as f64 <= all.collect::<std::collections::HashSet<_>>().len() as f64 * 1.02 + 2.0);
        // Nothing changes any more.
        let before = model::whole(&target);
        assert_eq!(model::load(&mut target, *cursor, chunk), Ok(()));
        assert!(model::whole(&target) == before);
        let again = model::through_a_file(&target);
        assert!(model::whole(&again) == before);
    }
}

/// Filters that were created for few items had blocks of bits, in the versions before fingerprints.
#[test]
fn a_filter_of_small_blocks_is_read_and_grows_as_before() {
    for (name, items) in [("native-empty", 0), ("native-small", 3), ("native-grown", 3000)] {
        let path = recorded::folder().join(format!("{name}-of-blocks"));
        let bytes = std::fs::read(path.with_extension("bytes")).unwrap();
        let mut filter = Filter::from_bytes(&bytes).unwrap();
        let file = std::fs::read(path.with_extension("rdb")).unwrap();
        assert!(model::read_values(&filter, &file).unwrap() == filter, "{name}");
        assert!(filter.to_bytes().unwrap() == bytes && !layer(&filter).is_of_fingerprints(), "{name}");
        (0..4000).for_each(|number| assert!(number >= items || filter.contains(item(number)), "{name}"));
        (items..4000).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
        assert!(
            (0..4000).all(|number| filter.contains(item(number))) && filter.false_positive_rate() <= 0.01,
            "{name}"
        );
        let current = filled(0.01, 100, by(2), 7, 10);
        assert_eq!(filter.union_with(&current), Err(MergeError::SourcesDiffer(Mismatch::Size)));
    }
}

#[test]
fn a_chunk_that_arrives_late_clears_nothing() {
    let filter = grown();
    let mut copy = model::through_a_client(&filter);
    let later: Vec<_> = (2_000..2_150).map(item).collect();
    later.iter().for_each(|item| assert!(copy.insert(item).is_ok()));
    let before = model::whole(&copy);
    for chunk in chunks_of_bits(&filter) {
        let bytes = chunk.sealed(&filter);
        assert_eq!(model::load(&mut copy, chunk.cursor(), &bytes), Ok(()));
    }
    assert!(later.iter().all(|item| copy.contains(item)));
    assert!(model::whole(&copy) == before);
}

/// The bits of one filter have about 6 MB, and the table of the other about 1.3 MB.
#[test]
fn chunks_may_arrive_in_any_order_and_more_than_once_and_a_missing_one_is_noticed() {
    let bits = filled(0.01, 5_000_000, Growth::Fixed, 7, 1_000);
    let mut table = counting(0.01, 100, by(2), 7);
    table.insert_batch((0..700_000).map(item)).unwrap();
    for (filter, expected) in [(bits, 2), (table, 3)] {
        let header = codec::encode_header(&filter).unwrap();
        let mut chunks = chunks(&filter);
        assert_eq!(chunks.len(), expected);
        for _ in 0..expected {
            chunks.rotate_left(1);
            let mut copy = built(&header).unwrap();
            for (number, (cursor, chunk)) in chunks.iter().chain(&chunks[..1]).enumerate() {
                assert_eq!(is_complete(&header, &copy), number == expected);
                model::load(&mut copy, *cursor, chunk).unwrap();
            }
            assert!(model::whole(&copy) == model::whole(&filter));
        }
        for copy in [model::through_a_client(&filter), model::through_a_file(&filter)] {
            assert!(model::whole(&copy) == model::whole(&filter));
        }
    }
}

/// A later version may write longer or shorter chunks.
#[test]
fn chunks_may_be_of_any_length() {
    let filter = filled(0.01, 1000, by(2), 7, 900);
    let header = codec::encode_header(&filter).unwrap();
    let blocks = chunks_of_bits(&filter).flat_map(|Chunk { offset, bits }| {
        (offset..).step_by(64).zip(bits.chunks(64)).map(|(offset, bits)| Chunk { offset, bits })
    });
    let mut copy = built(&header).unwrap();
    let mut stored = Vec::new();
    for block in blocks {
        let bytes = block.sealed(&filter);
        model::load(&mut copy, block.cursor(), &bytes).unwrap();
        stored.push((block.bits, block.checksum(&filter)));
    }
    assert!(model::whole(&copy) == model::whole(&filter));
    assert!(model::whole(&model::read_file(&header, stored).unwrap()) == model::whole(&filter));
    // Each chunk must have whole blocks, at least one, and must not reach past the last block.
    for bits in [vec![], vec![0xFF; 63], vec![0xFF; model::content_bytes(&filter).len() + 64]] {
        let checksum = Chunk { offset: 0, bits: &bits }.checksum(&filter);
        let loaded = model::read_file(&header, [(&bits, checksum)]);
        assert_eq!(loaded.err(), Some(DecodeError::Corrupt));
    }
}

#[test]
fn a_filter_without_items_has_no_chunks() {
    let filter = filled(0.001, 10_000_000, by(2), 7, 0);
    assert!(codec::next_chunk(&filter, codec::HEADER_CURSOR).unwrap().is_none());
    assert!(codec::encode_header(&filter).unwrap().len() < 100);
    assert!(model::whole(&model::through_a_client(&filter)) == model::whole(&filter));
}

/// A server may hold millions of filters with a few items.
#[test]
fn a_filter_with_a_few_items_takes_a_few_bytes_in_a_file() {
    for (items, expected) in [(0, 60), (1, 85), (3, 120)] {
        for capacity in [100, 1000, 2000] {
            let bytes = model::values(&filled(0.01, capacity, by(2), u64::MAX / 7, items)).len();
            assert!(bytes <= expected, "{bytes} bytes for {items} items of {capacity}");
        }
    }
}

/// A server can save at any time, even between a client's header and its last chunk. It must be able to load that file.
#[test]
fn a_filter_that_is_still_being_loaded_can_be_saved() {
    for filter in [grown(), counting::filters::grown()] {
        let mut partial = built(&codec::encode_header(&filter).unwrap()).unwrap();
        for (cursor, chunk) in chunks(&filter) {
            let saved = model::through_a_file(&partial);
            assert!(model::whole(&saved) == model::whole(&partial));
            // The later chunks must still load.
            partial = saved;
            model::load(&mut partial, cursor, &chunk).unwrap();
        }
        assert!(model::whole(&partial) == model::whole(&filter));
    }
}

#[test]
fn packed_bytes_come_back() {
    let mut cases = vec![vec![], vec![0; 8], vec![0; 8 * 256], vec![0; 8 * 600], vec![7; 64]];
    cases.push([vec![1, 0, 0, 2, 0, 0, 0, 3], vec![0; 80], vec![255; 8], vec![0; 8]].concat());
    for bytes in cases {
        let packed = pack(&bytes).unwrap();
        assert_eq!(unpack(&packed, bytes.len()), Ok(bytes.clone()));
        assert!(bytes.is_empty() || unpack(&packed, bytes.len() - 8) == Err(DecodeError::Corrupt));
        let cut = unpack(&packed[..packed.len().saturating_sub(1)], bytes.len());
        assert!(cut != Ok(bytes.clone()) || bytes.is_empty());
    }
}

#[test]
fn zeros_take_little() {
    assert_eq!(pack(&[0; 8 * 256]), Ok(vec![0, 255]));
    assert_eq!(pack(&1u64.to_le_bytes()), Ok(vec![1, 1]));
}
