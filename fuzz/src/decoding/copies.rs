//! Copies of a filter: by its header, by chunks, and by a file.

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{self, Encoding, Header, Origin};
use oxbloom_filter::internals::{AnyFilter, KindFilter, Table};

use crate::decoding::parts::table;
use crate::input::{Reader, Writer};
use crate::part::Shape;

/// The maximum size of a new filter, in bytes. It may grow to twice this size.
pub(crate) const MEMORY_LIMIT: u64 = 256 << 10;

/// Returns the header and all chunks with their cursors, which are equal for equal filters.
pub(crate) fn whole(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    let chunks = codec::dump(filter).map(|chunk| chunk.expect("little memory"));
    chunks.map(|chunk| (chunk.cursor, chunk.data.into_owned())).collect()
}

/// Returns the filter of a header, if it is small.
pub(crate) fn built(header: &Header) -> Option<Filter> {
    let filter = (header.memory() <= MEMORY_LIMIT).then(|| header.build().expect("little memory"))?;
    // The first item of a table for many items allocates directories of megabytes, which only slows the target down.
    let is_small = table(&filter).is_none() || Shape::of(&filter).depth() <= 26;
    is_small.then_some(filter)
}

/// Returns a filter without bits or entries, from the header of this one.
pub(crate) fn emptied(filter: &Filter) -> Filter {
    let header = Header::decode(&codec::encode_header(filter).unwrap(), Origin::Replication).expect("a sound header");
    let empty = header.build().expect("little memory");
    assert_eq!((empty.seed(), empty.expansion()), (filter.seed(), filter.expansion()));
    assert_eq!(empty.error_rate(), filter.error_rate());
    // Fingerprints beside no table are counted when they are loaded.
    let counts_its_chunks = matches!(filter.by_kind(), AnyFilter::Native(filter)
        if filter.layer().is_of_fingerprints() && filter.table().is_none());
    assert_eq!(empty.len(), if counts_its_chunks { 0 } else { filter.len() });
    // The records of tables follow: the tables themselves are empty.
    let starts_alike = |length: usize| {
        let [one, other] = [&empty, filter].map(|filter| codec::encode_header(filter).expect("little memory"));
        one[..length] == other[..length]
    };
    match (empty.by_kind(), filter.by_kind()) {
        (AnyFilter::Native(empty), AnyFilter::Native(filter)) => {
            let has_blocks = !filter.layer().is_of_fingerprints();
            assert!(!has_blocks || empty.layers().next() == filter.layers().next());
            assert!(empty.is_shaped_like(filter));
        }
        (AnyFilter::Counting(empty), AnyFilter::Counting(filter)) => {
            assert!(starts_alike(48) && empty.is_shaped_like(filter));
        }
        (AnyFilter::NativeCuckoo(empty), AnyFilter::NativeCuckoo(filter)) => {
            assert!(starts_alike(64) && empty.is_shaped_like(filter));
        }
        (AnyFilter::Windowed(_), AnyFilter::Windowed(filter)) => {
            assert!(starts_alike(96 + 24 * filter.slices().remembered().len()));
        }
        _ => assert!(empty.layers().eq(filter.layers())),
    }
    let occurrences = |filter| table(filter).map(Table::occurrences);
    assert_eq!(occurrences(&empty), occurrences(filter));
    assert!(table(&empty).is_none_or(|table| table.slots() == 0));
    empty
}

/// Copies a filter as a client does, chunk by chunk.
pub(crate) fn through_a_dump(filter: &Filter) -> Filter {
    let mut copy = emptied(filter);
    let mut cursor = codec::HEADER_CURSOR;
    while let Some(chunk) = codec::next_chunk(filter, cursor).expect("little memory") {
        assert!(chunk.cursor > cursor);
        cursor = chunk.cursor;
        let loaded = codec::load_chunk(&mut copy, cursor, &chunk.data, Origin::Client, &mut |_| true);
        assert_eq!(loaded.map(|loaded| loaded.bytes), Ok(&*chunk.data));
    }
    copy
}

pub(crate) fn through_a_file(filter: &Filter) -> Filter {
    let file = saved(filter);
    let mut reader = Reader(&file);
    let encoding = Encoding::of(filter.kind());
    let copy = encoding.read(encoding.version().into(), &mut reader, &mut |_| true);
    assert!(reader.0.is_empty());
    copy.expect("a sound file")
}

pub(crate) fn saved(filter: &Filter) -> Vec<u8> {
    let mut file = Writer::default();
    codec::write_rdb(filter, &mut file).unwrap();
    file.0
}
