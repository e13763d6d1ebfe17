//! Copies that follow filters: while the filter is written to, its chunks are copied, and then the hashes of its new
//! items are inserted into the copy.

use models::random::Random;
use oxbloom_filter::internals::codec::{encode_header, next_chunk};
use oxbloom_filter::internals::{ErrorRate, Growth, KindParams, Payload, Table, Window};
use oxbloom_filter::{DecodeError, Error, Filter};
use proptest::prelude::*;

use crate::model::{CLASSIC, by, create, item, params_of, whole};
use crate::table::hash_from;

fn valkey() -> KindParams {
    KindParams::Valkey { seed: [7; 32], tightening: ErrorRate::new(0.5).unwrap() }
}

/// A filter on a server, which records the hashes of new items, as the module does.
struct Original {
    filter: Filter,
    changes: Vec<u8>,
    items: u64,
}

impl Original {
    fn add(&mut self, count: u64) {
        for number in self.items..self.items + count {
            let hash = self.filter.hash(&item(number));
            if self.filter.insert(item(number)).unwrap() {
                self.changes.extend(hash.to_bytes());
            }
        }
        self.items += count;
    }

    /// Returns a copy of the filter, to which `added` items are added between each two chunks, and the number of changes
    /// before the copy. Starts again if a chunk does not fit.
    fn copy(&mut self, added: u64) -> (Filter, usize) {
        let (mut before, header) = (self.changes.len(), encode_header(&self.filter).unwrap());
        let (mut copy, mut cursor) = (Filter::from_header(&header).unwrap(), 1);
        loop {
            self.add(added);
            let Some(chunk) = next_chunk(&self.filter, cursor).unwrap() else { return (copy, before) };
            cursor = chunk.cursor;
            match copy.load_chunk(cursor, &chunk.data) {
                Ok(()) => {}
                Err(DecodeError::NoSuchOffset) => {
                    before = self.changes.len();
                    copy = Filter::from_header(&encode_header(&self.filter).unwrap()).unwrap();
                    cursor = 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Checks that a copy equals the filter after each of several rounds of additions.
    fn check_followed(&mut self, added: u64, rounds: &[u64]) {
        let (mut copy, mut done) = self.copy(added);
        for &more in rounds {
            self.add(more);
            copy.insert_changes(&self.changes[done..]).unwrap();
            done = self.changes.len();
            assert!((0..self.items).all(|number| copy.contains(item(number))), "a false negative");
            assert!(whole(&copy) == whole(&self.filter), "{copy:?} {:?}", self.filter);
            assert_eq!(copy.len(), self.filter.len());
        }
    }
}

fn original(kind: KindParams, rate: f64, capacity: u64, growth: Growth, items: u64) -> Original {
    let filter = create(params_of(kind, rate, capacity, growth));
    let mut original = Original { filter, changes: Vec::new(), items: 0 };
    original.add(items);
    original
}

proptest! {
    #[test]
    fn a_copy_that_follows_equals_the_filter_whenever_it_is_up_to_date(
        exponent in 0.5..5.0f64, capacity in 1u64..2000, items in 0u64..6000, added in 0u64..300,
        rounds in prop::collection::vec(0u64..1500, 1..4), kind in 0..3usize, seed: u64,
    ) {
        let kind = [KindParams::Native { seed }, CLASSIC, valkey()][kind];
        original(kind, 0.1f64.powf(exponent), capacity, by(2), items).check_followed(added, &rounds);
    }
}

/// A server that lacks memory may split a segment, and then fail to split it again for an item. Until the next item, a
/// copy or a replica has the whole segment. They must find even the false positives of the server, which it does not send.
#[test]
fn what_a_server_without_memory_finds_is_found_in_its_copies() {
    let mut differ = 0;
    for seed in 0..60 {
        let mut random = Random(seed);
        let rate = [0.9, 0.5, 0.2, 0.01][seed as usize % 4];
        let mut server = Table::growing(rate, Payload::Nothing).unwrap();
        let mut copy = Table::growing(rate, Payload::Nothing).unwrap();
        let mut present = Vec::new();
        // The first hashes begin alike, so that after a split, all entries of a segment are in one half of it.
        let (alike, prefix) = (2048 + random.below(3000), random.below(16));
        for number in 0..8000 {
            let hash = hash_from(prefix, if number < alike { 4 } else { 0 }, number);
            match server.add(hash, &mut |_bytes| random.chance(60)) {
                Ok(is_new) => {
                    present.push(hash);
                    if is_new {
                        copy.add(hash, &mut |_bytes| true).unwrap();
                    }
                }
                // Too many hashes are alike, or there is no memory.
                Err(_) => differ += usize::from(server.quotients() != copy.quotients()),
            }
        }
        assert!(present.iter().all(|&hash| copy.contains(hash)), "{seed}: a false negative");
    }
    assert!(differ > 20, "{differ}");
}

#[test]
fn a_filter_of_many_chunks_is_written_to_while_it_is_copied() {
    // A table of 2 chunks or more; blocks of 3; a fixed filter.
    original(KindParams::Native { seed: 1 }, 0.01, 1000, by(2), 700_000).check_followed(10_000, &[0, 1, 10_000]);
    original(KindParams::Native { seed: 2 }, 0.01, 8_000_000, by(2), 5000).check_followed(1000, &[0, 5000]);
    original(KindParams::Native { seed: 3 }, 0.01, 8_000_000, Growth::Fixed, 0).check_followed(1000, &[1]);
    original(CLASSIC, 0.01, 20_000_000, by(2), 0).check_followed(1000, &[0, 5000]);
}

#[test]
fn what_a_copy_cannot_follow_is_rejected() {
    let window = Window { length: None, refresh: false, slices: 15, rolling: true };
    for kind in [KindParams::Counting { seed: 1 }, KindParams::Windowed { seed: 1, window }] {
        let mut filter = create(params_of(kind, 0.01, 100, Growth::Fixed));
        assert_eq!(filter.insert_changes(&[0; 16]).err(), Some(Error::CannotFollow));
        assert_eq!(Filter::from_header(&encode_header(&filter).unwrap()).err(), Some(Error::CannotFollow));
        assert!(filter.is_empty());
    }
    let mut filter = create(params_of(KindParams::Native { seed: 1 }, 0.01, 100, Growth::Fixed));
    for length in [1, 15, 17] {
        assert_eq!(filter.insert_changes(&vec![0; length]).err(), Some(Error::Decode(DecodeError::Corrupt)));
    }
    assert!(filter.is_empty());
    // One hash again and again, as from a damaged server: the counts stay such that the filter can be read again.
    filter.insert_changes(&[7; 16 * 1000]).unwrap();
    assert_eq!(Filter::from_bytes(&filter.to_bytes().unwrap()).unwrap().len(), 100);
    assert_eq!(Filter::from_header(b"OXB").err(), Some(Error::Decode(DecodeError::Corrupt)));
}
