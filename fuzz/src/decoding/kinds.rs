//! The filters into which chunks are loaded.

use std::ops::{Range, RangeInclusive};

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{self, Header, Origin};
use oxbloom_filter::internals::{CreateParams, CuckooSpec, ErrorRate, Growth, KindParams};
use testkit::forgery::kinds::without_options;

use crate::decoding::parts::sealed;

/// The kinds of counting filters in the `chunks` target.
const COUNTING_KINDS: Range<u8> = 9..12;

/// The kinds of cuckoo filters in the `chunks` target: classic ones, and then a native one.
const CUCKOO_KINDS: Range<u8> = 240..245;

/// The kinds of valkey filters in the `chunks` target.
const VALKEY_KINDS: Range<u8> = 245..248;

/// The number that stands for the kind of the filter into which chunks are loaded.
pub(crate) const SAME_KIND: u8 = 239;

/// The kinds of filters that start with so many items that their tables have many segments. The first kind is native,
/// the others are counting.
const LARGE_KINDS: RangeInclusive<u8> = LARGE_NATIVE..=255;

const LARGE_NATIVE: u8 = 251;

/// Returns a small filter of a kind.
pub(crate) fn filter_of_kind(kind: u8) -> Filter {
    let native = KindParams::Native { seed: 7 };
    let counting = KindParams::Counting { seed: 7 };
    let classic = KindParams::Classic { stored_expansion: 2 };
    let valkey = KindParams::Valkey { seed: [7; 32], tightening: ErrorRate::new(0.5).expect("a ratio") };
    let spec = |bucket_size, expansion| CuckooSpec { bucket_size, max_iterations: 20, expansion };
    let cuckoo = |bucket_size, expansion| KindParams::Cuckoo { spec: spec(bucket_size, expansion) };
    // All other numbers stand for the kinds that existed first, so that the corpus keeps its meaning.
    let is_later = [&COUNTING_KINDS, &CUCKOO_KINDS, &VALKEY_KINDS].iter().any(|kinds| kinds.contains(&kind));
    let is_later = is_later || LARGE_KINDS.contains(&kind);
    let kind = if is_later { kind } else { kind % COUNTING_KINDS.start };
    let (error_rate, capacity, expansion, params) = match kind {
        0 => (0.01, 20, 2, native),
        1 => (0.001, 5, 1, native),
        2 => (0.01, 300, 0, native),
        3 | 4 => (0.01, 20, 2, classic),
        5 => (0.3, 5, 1, classic),
        6 => (0.01, 300, 0, classic),
        7 => (1e-9, 1, 3, classic),
        8 => (2.0 * f64::MIN_POSITIVE * f64::EPSILON, 3, 2, classic),
        9 => (0.01, 20, 2, counting),
        10 => (0.3, 40, 1, counting),
        11 => (0.01, 300, 0, counting),
        240 => (0.01, 16, 2, cuckoo(2, 2)),
        241 => (0.01, 8, 1, cuckoo(4, 1)),
        242 => (0.01, 300, 0, cuckoo(3, 0)),
        243 => (0.01, 2, 4, cuckoo(1, 4)),
        244 => (0.01, 20, 2, KindParams::NativeCuckoo { seed: 7, spec: spec(2, 2) }),
        245 => (0.01, 20, 2, valkey),
        246 => (0.3, 5, 1, valkey),
        247 => (0.01, 300, 0, valkey),
        LARGE_NATIVE => (0.5, 20, 2, native),
        252 => (0.9, 5000, 0, counting),
        253 => (0.01, 10_000, 0, counting),
        _ => (0.5, 20, 2, counting),
    };
    let params = CreateParams {
        error_rate: ErrorRate::new(error_rate).expect("an error rate"),
        capacity: capacity.try_into().expect("a capacity"),
        growth: std::num::NonZeroU32::new(expansion).map_or(Growth::Fixed, Growth::By),
        kind: params,
    };
    let filter = Filter::create(params, &mut |_| true).expect("little memory");
    match kind {
        4 => without_options(&filter),
        255 => shortened(&filter),
        _ => filter,
    }
}

/// Returns the number of items that a filter of a kind starts with.
pub(crate) fn items_of_kind(kind: u8, items: u8) -> u64 {
    let times = match kind {
        LARGE_NATIVE..255 => 20,
        255 => 80,
        _ => 1,
    };
    u64::from(items) * times
}

/// Returns a counting filter with the shortest fingerprints, which soon have no bits left.
fn shortened(filter: &Filter) -> Filter {
    let mut header = codec::encode_header(filter).unwrap();
    header[82..84].copy_from_slice(&[1, 0]);
    Header::decode(&sealed(&header), Origin::Client).and_then(|header| header.build()).expect("a sound header")
}
