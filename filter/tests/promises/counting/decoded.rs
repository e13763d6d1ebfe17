//! Filters from headers and chunks: they must be sound, or be rejected.

use oxbloom_filter::internals::codec::{self, Header, Origin};
use oxbloom_filter::internals::{Kind, OnDuplicate};
use oxbloom_filter::{DecodeError, Filter};

use crate::counting::filters::{counting, counts, remove, remove_hash};
use crate::model::{self, built, by, item};

/// The maximum number of bytes that these tests allocate for a header, so that they run on small machines.
pub(crate) const MEMORY_LIMIT: u64 = 16 << 20;

/// Returns a filter that grew, and from which some items were then removed.
pub(crate) fn grown() -> Filter {
    let mut filter = counting(0.01, 100, by(2), 7);
    (0..5_000).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
    (0..5_000).step_by(7).for_each(|number| assert!(remove(&mut filter, &item(number))));
    (0..2_000).for_each(|_| assert!(filter.insert(b"often").is_ok()));
    filter
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Header, DecodeError> {
    // Even from a master, no damaged header is taken for a classic one.
    Header::decode(bytes, Origin::Replication)
}

/// Builds an empty filter from the header of another.
pub(crate) fn built_like(filter: &Filter) -> Filter {
    built(&codec::encode_header(filter).unwrap()).unwrap()
}

/// Loads a chunk that must be rejected and must change nothing. Returns the error.
pub(crate) fn assert_rejected(filter: &mut Filter, (cursor, chunk): &(u64, Vec<u8>), why: &str) -> DecodeError {
    let before = model::whole(filter);
    let answer = model::load(filter, *cursor, chunk);
    assert!(model::whole(filter) == before, "{why}");
    answer.expect_err(why)
}

/// Performs all operations on a filter. Adds items while they take little memory.
pub(crate) fn use_in_every_way(mut filter: Filter) {
    let hashes: Vec<_> = (0..200).map(|number| filter.hash(&item(number))).collect();
    for on_duplicate in [OnDuplicate::Count, OnDuplicate::Skip, OnDuplicate::Count] {
        let mut new = vec![false; hashes.len()];
        let inserted =
            filter.insert_hashes(&hashes, &mut new, &mut [], &on_duplicate.into(), &mut |bytes| bytes < MEMORY_LIMIT);
        let handled = inserted.map_or_else(|interrupted| interrupted.handled, |()| hashes.len());
        let mut found = vec![false; handled];
        filter.contains_hashes(&hashes[..handled], &mut found, 0);
        assert!(found.into_iter().all(|found| found));
        assert!(hashes[..handled].iter().all(|&hash| counts(&filter).count(hash) > 0));
    }
    assert!((0.0..=1.0).contains(&filter.fill()), "{}", filter.fill());
    assert!((0.0..=1.0).contains(&filter.false_positive_rate()), "{}", filter.false_positive_rate());
    let copy = filter.try_clone().unwrap();
    assert!(model::whole(&copy) == model::whole(&filter));
    assert!(model::whole(&model::through_a_file(&filter)) == model::whole(&filter));
    for hash in hashes {
        let there = counts(&filter).contains_at(hash, 0);
        assert_eq!(remove_hash(&mut filter, hash), there);
    }
}
