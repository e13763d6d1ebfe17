//! Impossible headers, and headers and tables that were forged.

use oxbloom_filter::DecodeError;
use oxbloom_filter::internals::MAX_ITEMS;
use oxbloom_filter::internals::codec::{Header, Origin, chunk};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::counting::filters::{built_like, grown, small};
use crate::decoding::{any_edit, use_in_every_way};
use crate::model::{self, body, chunks, with_checksum};

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
        ("more items than occurrences", RECORD + 16, number(1 << 40)),
        ("slots without items", RECORD + 16, [number(0), number(0)].concat()),
        ("no segments", RECORD + 40, number(0)),
        ("a level in a table that grows", RECORD + 48, vec![12]),
        ("fingerprints without bits", RECORD + 50, vec![0]),
        ("fingerprints of too many bits", RECORD + 50, vec![57]),
        ("a step of lengths at a wrong level", RECORD + 51, vec![13]),
        ("stamps in a filter that does not forget", RECORD + 52, vec![1]),
        ("reserved bytes at the end", RECORD + 55, vec![1]),
        ("a scale in a table that grows", RECORD + 56, number(1)),
    ];
    for (what, at, bytes) in impossible {
        let mut body = body(&grown());
        body[*at..][..bytes.len()].copy_from_slice(bytes);
        assert_eq!(Header::decode(&with_checksum(&body), Origin::Client).err(), Some(DecodeError::Corrupt), "{what}");
    }
    // Plausible numbers pass, whatever the chunks contain.
    let possible: &[(&str, usize, Vec<u8>)] = &[
        ("the maximum number of occurrences", RECORD + 24, number(u64::MAX)),
        ("the maximum number of writes", RECORD + 8, number(u64::MAX)),
        ("other slots", RECORD + 32, number(77)),
        ("other lengths", RECORD + 50, vec![3, 15]),
    ];
    for (what, at, bytes) in possible {
        println!("{what}");
        let mut body = body(&grown());
        body[*at..][..bytes.len()].copy_from_slice(bytes);
        let header = Header::decode(&with_checksum(&body), Origin::Client).unwrap();
        use_in_every_way(header.build().unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A client that forges the checksum of a chunk can add other entries, but cannot break the filter.
    #[test]
    fn a_table_that_was_forged_is_rejected_or_makes_a_sound_filter(growing: bool, edits in vec(any_edit(), 1..5)) {
        let filter = small(growing);
        let mut copy = built_like(&filter);
        for (cursor, mut sealed) in chunks(&filter) {
            let checksum = sealed.len() - 8;
            sealed.truncate(checksum);
            let tag = u64::from_le_bytes(*sealed.last_chunk().unwrap());
            sealed.truncate(checksum - 8);
            edits.iter().for_each(|edit| edit.apply(&mut sealed));
            let end = cursor - chunk::FIRST_CHUNK_CURSOR;
            let forged = chunk::seal(&sealed, end, tag).unwrap();
            let before = model::whole(&copy);
            match model::load(&mut copy, cursor, &forged) {
                Ok(()) => use_in_every_way(copy.try_clone().unwrap()),
                Err(_) => prop_assert!(model::whole(&copy) == before),
            }
        }
    }
}
