//! Chunks of a table: in any order, but not of another filter, nor of another time.

use oxbloom_filter::internals::OnDuplicate;
use oxbloom_filter::{DecodeError, Filter};

use crate::counting::filters::{built_like, grown, remove};
use crate::decoding::assert_rejected;
use crate::model::{self, chunks, item};

/// An operation on a filter.
type Operation = fn(&mut Filter);

/// If such a chunk were accepted, the copy could contain items that the write removed, or lack items that it moved.
#[test]
fn a_chunk_from_before_a_write_is_rejected_after_it() {
    const FIRST: u64 = 1;
    let writes: &[(&str, Operation)] = &[
        ("a new item", |filter| assert_eq!(filter.insert(b"new"), Ok(true))),
        ("another occurrence", |filter| assert_eq!(filter.insert(item(FIRST)), Ok(false))),
        ("a removal", |filter| assert!(remove(filter, &item(FIRST)))),
        ("an addition that is undone", |filter| {
            assert!(filter.insert(b"new").is_ok() && remove(filter, b"new"));
        }),
        ("a removal that is undone", |filter| {
            assert!(remove(filter, &item(FIRST)) && filter.insert(item(FIRST)).is_ok());
        }),
        ("one item for another", |filter| {
            assert!(remove(filter, &item(499)) && filter.insert(b"new").is_ok());
        }),
        ("all items but one", |filter| {
            let removed = (2..5_000).filter(|number| number % 7 > 0);
            removed.for_each(|number| assert!(remove(filter, &item(number)), "{number}"));
        }),
    ];
    for (what, write) in writes {
        let mut source = grown();
        let (mut early, before) = (built_like(&source), chunks(&source));
        let mut whole = model::through_a_client(&source);
        write(&mut source);
        let mut late = built_like(&source);
        // A copy takes chunks from before the write or from after it, but not both.
        for chunk in &before {
            assert_eq!(assert_rejected(&mut late, chunk.0, &chunk.1, what), DecodeError::Foreign);
        }
        for chunk in &chunks(&source) {
            assert_eq!(assert_rejected(&mut early, chunk.0, &chunk.1, what), DecodeError::Foreign);
        }
        for (cursor, chunk) in &before {
            assert_eq!(model::load(&mut early, *cursor, chunk), Ok(()), "{what}");
        }
        assert!(model::whole(&early) == model::whole(&grown()));
        // A filter that was written to is no longer a copy.
        write(&mut whole);
        for chunk in &before {
            assert_rejected(&mut whole, chunk.0, &chunk.1, what);
        }
        assert!(model::whole(&whole) == model::whole(&source), "{what}");
    }

    let questions: &[(&str, Operation)] = &[
        ("a look-up", |filter| assert!(filter.contains(item(FIRST)))),
        ("a present item, only if it is absent", |filter| {
            let hash = filter.hash(&item(FIRST));
            filter.insert_hashes(&[hash], &mut [true], &mut [], &OnDuplicate::Skip.into(), &mut |_| true).unwrap();
        }),
        ("a removal of an absent item", |filter| assert!(!remove(filter, b"absent"))),
    ];
    for (what, question) in questions {
        let mut source = grown();
        let (mut copy, before) = (built_like(&source), chunks(&source));
        question(&mut source);
        assert!(chunks(&source) == before, "{what}");
        for (cursor, chunk) in before {
            assert_eq!(model::load(&mut copy, cursor, &chunk), Ok(()), "{what}");
        }
        assert!(model::whole(&copy) == model::whole(&grown()), "{what}");
    }
}

/// Two copies can diverge and still have equal counts. A filter with chunks of both would lack items.
#[test]
fn a_chunk_of_a_filter_with_the_same_counts_is_rejected() {
    let (mut twin, mut other) = (grown(), grown());
    for (filter, new) in [(&mut twin, b"one  "), (&mut other, b"other")] {
        assert!(remove(filter, &item(1)));
        assert_eq!(filter.insert(new), Ok(true));
    }
    assert_eq!(twin.len(), other.len());
    for (chunk, others) in chunks(&twin).iter().zip(&chunks(&other)) {
        assert_rejected(&mut built_like(&twin), others.0, &others.1, "of a copy that diverged");
        assert_rejected(&mut built_like(&other), chunk.0, &chunk.1, "of a copy that diverged");
    }
}
