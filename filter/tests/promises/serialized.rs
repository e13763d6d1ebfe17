//! Filters in the formats of serde.

use oxbloom_filter::{DecodeError, Filter};
use serde_core::Deserialize;
use serde_core::de::value::{BorrowedBytesDeserializer, BytesDeserializer, Error, SeqDeserializer};

use crate::interface::sealed;
use crate::recorded;

/// Deserializes bytes in each form in which a format may have them. Returns the texts of errors.
fn deserialized(bytes: &[u8]) -> [Result<Filter, String>; 5] {
    let text = |error: Error| error.to_string();
    [
        Filter::deserialize(BytesDeserializer::new(bytes)).map_err(text),
        Filter::deserialize(BorrowedBytesDeserializer::new(bytes)).map_err(text),
        Filter::deserialize(SeqDeserializer::new(bytes.iter().copied())).map_err(text),
        bincode::deserialize(&bincode::serialize(bytes).unwrap()).map_err(|error| error.to_string()),
        serde_json::from_slice(&serde_json::to_vec(bytes).unwrap()).map_err(|error| error.to_string()),
    ]
}

#[test]
fn filters_of_all_kinds_are_the_same_in_every_format() {
    for (name, filter) in recorded::filters() {
        let bytes = filter.to_bytes().unwrap();
        let binary = bincode::serialize(&filter).unwrap();
        assert!(binary == bincode::serialize(&bytes).unwrap(), "{name}: other bytes");
        let text = serde_json::to_vec(&filter).unwrap();
        assert!(text == serde_json::to_vec(&bytes).unwrap(), "{name}: other numbers");
        let mut tagged = Vec::new();
        ciborium::into_writer(&filter, &mut tagged).unwrap();
        assert!(tagged.ends_with(&bytes) && tagged.len() < bytes.len() + 10, "{name}: other bytes");

        let mut copies = deserialized(&bytes).map(Result::unwrap).to_vec();
        copies.push(bincode::deserialize(&binary).unwrap());
        copies.push(serde_json::from_slice(&text).unwrap());
        copies.push(ciborium::from_reader(tagged.as_slice()).unwrap());
        for copy in copies {
            assert!(copy == filter, "{name}: another filter");
        }
    }
}

#[test]
fn damaged_bytes_are_rejected_with_the_texts_of_the_library() {
    for (name, filter) in recorded::filters() {
        let bytes = filter.to_bytes().unwrap();
        let (mut flipped, mut later) = (bytes.clone(), bytes.clone());
        flipped[bytes.len() / 2] ^= 1;
        later[7] += 1;
        let cut = [&[], &bytes[..8], &bytes[..bytes.len() - 1], &bytes[1..], &flipped];
        let cases = cut.map(|cut| (cut.to_vec(), DecodeError::Corrupt));
        for (damaged, expected) in cases.into_iter().chain([(sealed(later), DecodeError::NewerVersion)]) {
            for error in deserialized(&damaged).map(Result::unwrap_err) {
                assert!(error.starts_with(&expected.to_string()), "{name}: {error}");
            }
        }
    }
}

#[test]
fn other_values_than_bytes_are_rejected() {
    for (text, expected) in [
        ("null", "expected the bytes of a filter"),
        ("{\"seed\": 7}", "expected the bytes of a filter"),
        ("[79, 88, 256]", "expected u8"),
        ("[79, 88, -1]", "expected u8"),
        ("[79, 88", "EOF"),
        ("\"OXBLOOM\"", "damaged data"),
    ] {
        let error = serde_json::from_str::<Filter>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// A list that claims to be as long as no list can be.
struct Boasting<I>(I);

impl<I: Iterator> Iterator for Boasting<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.0.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, Some(usize::MAX))
    }
}

#[test]
fn no_memory_is_requested_for_the_length_that_a_list_claims_to_have() {
    let filter = Filter::new(0.01, 1000).unwrap();
    let list = SeqDeserializer::<_, Error>::new(Boasting(filter.to_bytes().unwrap().into_iter()));
    assert!(Filter::deserialize(list).unwrap() == filter);
}
