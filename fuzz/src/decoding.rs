//! Decodes arbitrary bytes: as a dump's header, as a file, and as chunks that are loaded into a filter.
//!
//! Our own headers and chunks have checksums, which a fuzzer cannot guess. So the targets insert the right ones.

use std::ops::{Range, RangeInclusive};

use models::counting::CountingModel;
use oxbloom_filter::internals::codec::chunk::{self, FIRST_CHUNK_CURSOR};
use oxbloom_filter::internals::codec::{self, Encoding, Header, LoadedChunk, Origin, Sink, Source};
use oxbloom_filter::internals::{
    Content, CreateParams, CuckooSpec, ErrorRate, FilterKind, Growth, Interrupted, Kind, Layout, MergeOp, OnDuplicate,
    Table,
};
use oxbloom_filter::{DecodeError, Error, Filter, MergeError, Mismatch};
use testkit::forgery::kinds::without_options;
use testkit::forgery::sealed::first_string;
use xxhash_rust::xxh3::xxh3_64;

use crate::input::{Reader, Writer, item};
use crate::part::{self, END, Shape};

/// The maximum size of a new filter, in bytes. It may grow to twice this size.
pub const MEMORY_LIMIT: u64 = 256 << 10;

/// The kind of the first file of a cuckoo filter.
pub const CUCKOO_FILES: u8 = 0xF0;

/// The kinds of the file of a valkey filter, and of its payload for BF.LOAD.
pub const VALKEY_FILE: u8 = 0xEF;
pub const VALKEY_PAYLOAD: u8 = 0xEE;

/// The number of items that are inserted into each filter: more than a batch.
const ITEMS: u64 = 48;

/// The kinds of counting filters in the `chunks` target.
pub const COUNTING_KINDS: Range<u8> = 9..12;

/// The kinds of cuckoo filters in the `chunks` target: classic ones, and then a native one.
pub const CUCKOO_KINDS: Range<u8> = 240..245;

/// The kinds of valkey filters in the `chunks` target.
pub const VALKEY_KINDS: Range<u8> = 245..248;

/// The kinds of filters that start with so many items that their tables have many segments. The first kind is native,
/// the others are counting.
pub const LARGE_KINDS: RangeInclusive<u8> = LARGE_NATIVE..=255;
const LARGE_NATIVE: u8 = 251;

/// The maximum count of an entry of a table.
const MAX_COUNT: u64 = 1 << 48;

/// The maximum size of a table's directories in bytes, without the part that is proportional to its segments.
pub(crate) const DIRECTORY_BYTES: usize = 9 << 20;

/// The maximum number of bytes that a table takes for each byte of its dump, directories included.
const BYTES_PER_DUMPED_BYTE: usize = 128;

/// Decodes a header.
pub fn header(bytes: &[u8]) {
    let bytes = &sealed(bytes);
    let Some(mut filter) = Header::decode(bytes, Origin::Client).ok().and_then(|header| built(&header)) else { return };
    // Our own headers contain the number of set bits or filled slots, which is still 0 in the new filter. A number of
    // items in a classic cuckoo filter that is too large is read as 0.
    let start = match filter.content() {
        Content::Classic(_) => 0,
        Content::Cuckoo(_) => 8,
        _ => bytes.len(),
    };
    assert!(codec::encode_header(&filter).unwrap()[start..] == bytes[start..]);
    use_in_every_way(&mut filter);
    check_same(&filter, &through_a_dump(&filter));
}

/// Decodes a file. The first byte is its kind: up to 6, a classic filter of this version; 7, one of our own filters;
/// from 8 on, one of our own filters whose checksums and numbers of set bits or filled slots are corrected first;
/// from [`CUCKOO_FILES`] on, the same for cuckoo filters; before, the files of valkey filters, which have no checksums.
pub fn file(bytes: &[u8]) {
    let Some((&kind, file)) = bytes.split_first() else { return };
    let (classic, own) = match kind {
        ..CUCKOO_FILES => (Encoding::Classic, Encoding::Own),
        _ => (Encoding::Cuckoo, Encoding::OwnCuckoo),
    };
    let loaded = match kind % CUCKOO_FILES {
        VALKEY_FILE => load(Encoding::Valkey, Encoding::Valkey.version().into(), file),
        VALKEY_PAYLOAD => codec::valkey::decode_payload(file, &mut |bytes| bytes <= MEMORY_LIMIT),
        version @ 0..=6 => load(classic, version.into(), file),
        7 => load(own, own.version().into(), file),
        _ => sealed_file(file).and_then(|file| load(own, own.version().into(), &file)),
    };
    let Ok(mut filter) = loaded else { return };
    // The decoder does not check the number of items: in a classic filter, the sum over the layers.
    let items = if kind < CUCKOO_FILES { 0..8 } else { 16..24 };
    if kind % CUCKOO_FILES == 4 {
        let saved = saved(&filter);
        assert!(saved[..items.start] == file[..items.start] && saved[items.end..] == file[items.end..saved.len()]);
    }
    use_in_every_way(&mut filter);
    check_same(&filter, &through_a_dump(&filter));
}

/// Runs operations on a filter. The first two bytes choose the filter and its number of items.
pub fn chunks(bytes: &[u8]) {
    let mut rest = Reader(bytes);
    if let Some(mut subject) = Subject::new(&mut rest) {
        while subject.step(&mut rest).is_some() {}
        subject.check_held();
        check_figures(&subject.filter);
        subject.check_emptied();
    }
}

/// Calls all operations of a filter, adds items while they take little memory, and copies it.
pub(crate) fn use_in_every_way(filter: &mut Filter) {
    check_figures(filter);
    let before: Vec<bool> = (0..ITEMS).map(|number| filter.contains(item(number))).collect();
    let counts = counts(filter);
    let is_said_to_be_empty = filter.counts() && table(filter).is_some_and(|table| table.occurrences() == 0);
    let inserted = insert(filter, OnDuplicate::Count, 0..ITEMS);
    if filter.windowed().is_some_and(|filter| filter.slices().window().rolling) {
        // A rolling filter forgets items to make room for new ones. The `forgetting` target checks it.
        return;
    }
    assert!((0..inserted).all(|number| filter.contains(item(number))));
    assert!((inserted..ITEMS).all(|number| !before[number as usize] || filter.contains(item(number))));
    // These items are present now, so that adding them again with `Skip` changes nothing.
    let after = whole(filter);
    assert!(insert(filter, OnDuplicate::Skip, 0..inserted) == inserted);
    assert!(whole(filter) == after);
    count_again(filter, 0..inserted);

    check_figures(filter);
    check_batches(filter);
    check_same(filter, &filter.try_clone().expect("a copy"));
    check_same(filter, &through_a_file(filter));
    check_same(filter, &Filter::from_bytes(&filter.to_bytes().expect("little memory")).expect("sound bytes"));
    check_merges(filter);
    check_conversion(filter);
    filter.look_ahead(&item(0));

    if filter.counts() {
        remove(filter, 0..inserted);
        check_figures(filter);
        // Items that were present before are still present, with two exceptions: a header may wrongly say that the
        // table is empty; and a removal lowers a count at its maximum, which the addition before it did not raise.
        let is_there = |(now, before)| now >= before || before >= MAX_COUNT;
        assert!(is_said_to_be_empty || self::counts(filter).into_iter().zip(counts).all(is_there));
    }
}

/// Converts a classic cuckoo filter into a native one, which has all items, and counts that are not too low: if both
/// buckets of an item are the same, a classic filter counts twice.
fn check_conversion(filter: &Filter) {
    let Some(converted) = filter.converted(&mut |_bytes| true).expect("little memory") else { return };
    let is_enough = |(now, before): (u64, u64)| 2 * now >= before && (now > 0) == (before > 0) || now > before;
    assert!(counts(&converted).into_iter().zip(counts(filter)).all(is_enough));
    check_figures(&converted);
    check_same(&converted, &through_a_file(&converted));
}

/// If the filter counts its items, adds another occurrence of present items, and removes it again.
fn count_again(filter: &mut Filter, numbers: Range<u64>) {
    if filter.counts() {
        let numbers = numbers.start..numbers.start + insert(filter, OnDuplicate::Count, numbers);
        assert!(numbers.clone().all(|number| count(filter, number) >= 2));
        remove(filter, numbers.clone());
        assert!(numbers.clone().all(|number| count(filter, number) >= 1));
    }
}

/// Merges a filter of our own with itself and with another. A union adds the counts; an intersection keeps the smaller
/// count.
fn check_merges(filter: &Filter) {
    if !filter.kind().is_own() || filter.kind() == FilterKind::Windowed {
        return;
    }
    let mut other = filter.empty_like(&mut |_bytes| true).expect("little memory");
    insert(&mut other, OnDuplicate::Count, ITEMS / 2..2 * ITEMS);
    for (one, other) in [(filter, &other), (&other, filter), (filter, filter)] {
        for op in [MergeOp::Union, MergeOp::Intersection] {
            let Some(merged) = merged(one, other, op) else { continue };
            let max = if merged.counts() { MAX_COUNT } else { 1 };
            let min = counts(one).into_iter().zip(counts(other)).map(|(one, other)| match op {
                MergeOp::Union => max.min(one + other),
                MergeOp::Intersection => one.min(other),
            });
            assert!(counts(&merged).into_iter().zip(min).all(|(count, min)| count >= min));
            check_figures(&merged);
            check_same(&merged, &through_a_file(&merged));
        }
    }
}

/// Returns the merge of two filters, if it is possible and takes little memory. Checks that a merge that is given too
/// little memory changes nothing.
fn merged(one: &Filter, other: &Filter, op: MergeOp) -> Option<Filter> {
    let mut merged = one.try_clone().expect("a copy");
    let present = (one.memory_usage() + other.memory_usage()) as u64;
    let mut taken = 0;
    let result = merged.merge(&[other], op, &mut |bytes| {
        taken += bytes;
        present + taken <= 4 * MEMORY_LIMIT
    });
    match result {
        Ok(true) => {}
        Ok(false) | Err(MergeError::OutOfMemory) => assert!(whole(&merged) == whole(one)),
        // A header may say that fingerprints are longer or shorter than a new table's.
        Err(MergeError::SourcesDiffer(Mismatch::Size)) => {
            let addressing = |filter| table(filter).map(Table::addressing);
            assert!(addressing(one) != addressing(other));
        }
        Err(error) => {
            let has_grown = matches!(error, MergeError::IntersectedGrowing | MergeError::IntersectedLayers);
            assert!(has_grown && op == MergeOp::Intersection, "{error}");
        }
    }
    result.is_ok().then_some(merged)
}

/// Returns the count of an item in a filter that counts.
fn count(filter: &Filter, number: u64) -> u64 {
    filter.count(item(number)).expect("a filter that counts")
}

/// Returns the counts of the first items: at most 1 if the filter does not count.
fn counts(filter: &Filter) -> Vec<u64> {
    let count = |number| match filter.counts() {
        true => count(filter, number),
        false => filter.contains(item(number)).into(),
    };
    (0..2 * ITEMS).map(count).collect()
}

/// Removes one occurrence of each of the items, which must be present in a filter that counts.
fn remove(filter: &mut Filter, mut numbers: Range<u64>) {
    assert!(numbers.all(|number| filter.remove(item(number)) == Ok(true)));
}

/// Inserts items until one does not fit. Returns the number of items that fit.
fn insert(filter: &mut Filter, on_duplicate: OnDuplicate, numbers: Range<u64>) -> u64 {
    let hashes: Vec<_> = numbers.map(|number| filter.hash(&item(number))).collect();
    let mut new = vec![true; hashes.len()];
    let inserted = filter.insert_hashes(&hashes, &mut new, &mut [], &on_duplicate.into(), &mut |_bytes| false);
    let Err(Interrupted { handled, .. }) = inserted else { return hashes.len() as u64 };
    let (rest, new) = (&hashes[handled..], &mut new[handled..]);
    let mut expected = filter.try_clone().expect("a copy");
    let present = filter.memory_usage() as u64;
    let mut taken = 0;
    let grown = filter.insert_hashes(rest, new, &mut [], &on_duplicate.into(), &mut |bytes| {
        let is_little = present + taken + bytes <= 2 * MEMORY_LIMIT;
        taken += if is_little { bytes } else { 0 };
        is_little
    });
    let Err(Interrupted { handled: more, error }) = grown else { return hashes.len() as u64 };
    match error {
        Error::Full => assert_eq!(filter.expansion(), None),
        _ => assert!(filter.expansion().is_some() || filter.counts() || filter.windowed().is_some()),
    }
    // The item that does not fit must change nothing.
    assert_eq!(expected.insert_hashes(&rest[..more], new, &mut [], &on_duplicate.into(), &mut |_bytes| true), Ok(()));
    assert!(whole(filter) == whole(&expected));
    (handled + more) as u64
}

/// Panics if the figures of a filter are impossible.
fn check_figures(filter: &Filter) {
    let layers: Vec<_> = filter.layers().collect();
    assert_eq!(layers.len(), filter.num_layers());
    // A classic cuckoo filter does not store the number of items of each layer.
    let items = layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.items));
    assert_eq!(items, if filter.cuckoo().is_some() { 0 } else { filter.len() });
    assert_eq!(layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.capacity)), filter.capacity());
    let bytes: u64 = layers.iter().map(|layer| layer.bytes).sum();
    assert!(filter.memory_usage() as u64 > bytes);
    assert!((0.0..=1.0).contains(&filter.fill()), "{}", filter.fill());
    assert!((0.0..=1.0).contains(&filter.false_positive_rate()), "{}", filter.false_positive_rate());
    let of_table = table(filter).map_or_else(
        || allocated_by_windows(filter),
        |table| {
            let dumped: usize = whole(filter).iter().map(|(_, chunk)| chunk.len()).sum();
            let max = DIRECTORY_BYTES + BYTES_PER_DUMPED_BYTE * dumped;
            assert!(filter.memory_usage() <= max, "{} bytes for {dumped}", filter.memory_usage());
            assert!(filter.expansion().is_none() || filter.len() <= filter.capacity());
            table.allocated()
        },
    );
    assert_eq!((bits(filter).len() + of_table) as u64, bytes);
    assert!(counts_are_right(filter));
}

/// Returns the bytes of the tables of a filter that forgets, or 0.
fn allocated_by_windows(filter: &Filter) -> usize {
    filter.windowed().map_or(0, |filter| {
        let (expected, overflow) = filter.tables();
        expected.allocated() + overflow.map_or(0, Table::allocated)
    })
}

/// Panics unless look-ups in batches and of single items agree.
fn check_batches(filter: &Filter) {
    let items: Vec<_> = (0..2 * ITEMS).map(item).collect();
    let mut items = items.iter().map(|item| item.as_slice()).peekable();
    let mut number = 0;
    while items.peek().is_some() {
        let batch = filter.hash_batch(&mut items);
        let mut found = vec![false; batch.hashes().len()];
        filter.contains_hashes(batch.hashes(), &mut found, 0);
        for found in found {
            assert_eq!(found, filter.contains(item(number)));
            number += 1;
        }
    }
}

/// Panics unless the copy is the same filter.
fn check_same(filter: &Filter, copy: &Filter) {
    assert!(whole(copy) == whole(filter));
    assert!(counts_are_right(copy));
    assert!((0..2 * ITEMS).all(|number| copy.contains(item(number)) == filter.contains(item(number))));
    assert!(counts(copy) == counts(filter));
    assert_eq!(copy.false_positive_rate(), filter.false_positive_rate());
    assert_eq!(copy.memory_usage(), filter.memory_usage());
}

/// Returns true if the filter's numbers of set bits and filled slots are right, and its table agrees with its dump.
fn counts_are_right(filter: &Filter) -> bool {
    let is_counted = match filter.content() {
        Content::Native(native) => native.layer().set_bits() == set_bits(native.layer().bytes()),
        Content::Counting(_) | Content::NativeCuckoo(_) | Content::Windowed(_) | Content::Cuckoo(_) => true,
        Content::Classic(classic) => classic.chain().iter().all(|layer| layer.set_bits() == set_bits(layer.bytes())),
        Content::Valkey(valkey) => valkey.chain().iter().all(|layer| layer.set_bits() == set_bits(layer.bytes())),
    };
    is_counted && table(filter).is_none_or(|table| table_is_right(filter, table))
}

/// Returns true if a filter's table agrees with its dump.
fn table_is_right(filter: &Filter, table: &Table) -> bool {
    let (shape, mut entries) = (Shape::of(filter), Vec::new());
    let parts = whole(filter).into_iter().filter(|&(cursor, _)| cursor > table_start(filter));
    let filled: u64 = parts.map(|(_, chunk)| shape.read(content(&chunk), &mut entries).expect("a part")).sum();
    let is_right = |number| {
        let (hash, count) = (filter.hash(&item(number)), shape.count(number, &entries));
        table.count(hash) == count && table.contains(hash) == (count > 0)
    };
    table.slots() == filled && (!shape.knows_paths() || (0..2 * ITEMS).all(is_right))
}

/// Returns the filter's table, unless it has none or forgets.
fn table(filter: &Filter) -> Option<&Table> {
    match filter.content() {
        Content::Native(filter) => filter.table(),
        Content::Counting(filter) => Some(filter.table()),
        Content::NativeCuckoo(filter) => Some(filter.table()),
        Content::Windowed(_) | Content::Classic(_) | Content::Cuckoo(_) | Content::Valkey(_) => None,
    }
}

/// Returns the cursor after which the cursors of a table's chunks start.
fn table_start(filter: &Filter) -> u64 {
    FIRST_CHUNK_CURSOR + bits(filter).len() as u64
}

/// Returns the number of set bits.
fn set_bits(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
}

/// Returns all bits of a filter, oldest layer first. A table has none.
fn bits(filter: &Filter) -> Vec<u8> {
    match filter.content() {
        Content::Native(native) => native.layer().bytes().to_vec(),
        Content::Counting(_) | Content::NativeCuckoo(_) | Content::Windowed(_) => Vec::new(),
        Content::Classic(classic) => classic.chain().iter().flat_map(|layer| layer.bytes()).copied().collect(),
        Content::Cuckoo(cuckoo) => cuckoo.chain().iter().flat_map(|layer| layer.slots()).copied().collect(),
        Content::Valkey(valkey) => valkey.chain().iter().flat_map(|layer| layer.bytes()).copied().collect(),
    }
}

/// Returns the header and all chunks with their cursors, which are equal for equal filters.
pub(crate) fn whole(filter: &Filter) -> Vec<(u64, Vec<u8>)> {
    let chunks = codec::dump(filter).map(|chunk| chunk.expect("little memory"));
    chunks.map(|chunk| (chunk.cursor, chunk.data.into_owned())).collect()
}

/// Returns the filter of a header, if it is small.
fn built(header: &Header) -> Option<Filter> {
    let filter = (header.memory() <= MEMORY_LIMIT).then(|| header.build().expect("little memory"))?;
    // The first item of a table for many items allocates directories of megabytes, which only slows the target down.
    let is_small = table(&filter).is_none() || Shape::of(&filter).depth() <= 26;
    is_small.then_some(filter)
}

/// Returns a filter without bits or entries, from the header of this one.
fn emptied(filter: &Filter) -> Filter {
    let header = Header::decode(&codec::encode_header(filter).unwrap(), Origin::Replication).expect("a sound header");
    let empty = header.build().expect("little memory");
    assert_eq!((empty.seed(), empty.expansion()), (filter.seed(), filter.expansion()));
    assert_eq!((empty.error_rate(), empty.len()), (filter.error_rate(), filter.len()));
    // The records of tables follow: the tables themselves are empty.
    let starts_alike = |length: usize| {
        let [one, other] = [&empty, filter].map(|filter| codec::encode_header(filter).expect("little memory"));
        one[..length] == other[..length]
    };
    match (empty.content(), filter.content()) {
        (Content::Native(empty), Content::Native(filter)) => {
            assert!(empty.layers().next() == filter.layers().next() && empty.is_shaped_like(filter));
        }
        (Content::Counting(empty), Content::Counting(filter)) => {
            assert!(starts_alike(48) && empty.is_shaped_like(filter));
        }
        (Content::NativeCuckoo(empty), Content::NativeCuckoo(filter)) => {
            assert!(starts_alike(64) && empty.is_shaped_like(filter));
        }
        (Content::Windowed(_), Content::Windowed(filter)) => {
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

fn load(encoding: Encoding, version: u64, file: &[u8]) -> Result<Filter, DecodeError> {
    encoding.read(version, &mut Reader(file), &mut |bytes| bytes <= MEMORY_LIMIT)
}

/// Returns one of our own headers with the right checksum, and other bytes unchanged.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    match bytes.split_last_chunk::<8>() {
        Some((body, _)) if body.starts_with(b"OXB") => [body, &xxh3_64(body).to_le_bytes()].concat(),
        _ => bytes.to_vec(),
    }
}

/// Returns a file of one of our own filters with the right checksums, and the right numbers of set bits and filled
/// slots. Checksums and numbers that are 0 stay 0.
fn sealed_file(file: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut file = Reader(file);
    let mut header = sealed(file.string()?);
    let filter = built(&Header::decode(&header, Origin::Client)?).ok_or(DecodeError::Corrupt)?;
    let mut whole = Writer::default();
    if filter.kind() == FilterKind::Native {
        seal_bits(&filter, &mut header, &mut file, &mut whole)?;
    }
    if table(&filter).is_some() {
        seal_parts(filter, &mut header, &mut file, &mut whole)?;
    }
    let mut first = Writer::default();
    first.string(&first_string(&header[..header.len() - 8]));
    Ok([first.0, whole.0].concat())
}

/// Writes the chunks of bits of a [`sealed_file`], and their number of set bits into the header.
fn seal_bits(
    filter: &Filter,
    header: &mut [u8],
    file: &mut Reader<'_>,
    chunks: &mut Writer,
) -> Result<(), DecodeError> {
    const SET_BITS: Range<usize> = 56..64;
    let [tag, _] = codec::tags(filter).expect("tags");
    let expected = if header[SET_BITS] == [0; 8] { 0 } else { bits(filter).len() };
    let (mut loaded, mut total) = (0, 0);
    while loaded < expected {
        let (bits, checksum) = (file.string()?, file.unsigned()?);
        loaded += bits.len();
        chunks.string(bits);
        chunks.unsigned(if checksum == 0 { 0 } else { chunk::checksum(bits, loaded as u64, tag) });
        total += set_bits(bits);
    }
    header[SET_BITS].copy_from_slice(&total.to_le_bytes());
    Ok(())
}

/// Writes the chunks of a table of a [`sealed_file`]. Loads them into a filter, and writes its numbers into the header.
fn seal_parts(
    mut filter: Filter,
    header: &mut [u8],
    file: &mut Reader<'_>,
    chunks: &mut Writer,
) -> Result<(), DecodeError> {
    let slots_and_segments = part::record_start(&filter) + 16..part::record_start(&filter) + 32;
    let (tag, mut position) = (tag(&filter), 0);
    while header[slots_and_segments.clone()][..8] != [0; 8] && position < END {
        let (part, checksum) = (file.string()?, file.unsigned()?);
        let end = part::end_of(part).filter(|&end| end > position).ok_or(DecodeError::Corrupt)?;
        chunks.string(part);
        chunks.unsigned(if checksum == 0 { 0 } else { chunk::checksum(part, end, tag) });
        // The reader rejects the parts that the filter rejects here.
        let _ = load_part(&mut filter, part, tag, Origin::Client);
        position = end;
    }
    header[slots_and_segments.clone()].copy_from_slice(&codec::encode_header(&filter)?[slots_and_segments]);
    Ok(())
}

/// Returns the content of a chunk, which precedes the tag and the checksum.
fn content(chunk: &[u8]) -> &[u8] {
    &chunk[..chunk.len() - 16]
}

/// Returns the tag of the chunks of a filter's table.
fn tag(filter: &Filter) -> u64 {
    let [first, second] = codec::tags(filter).expect("tags");
    if filter.kind() == FilterKind::Native { second } else { first }
}

/// Loads a part of a table with the right checksum. Returns true if the filter changed.
fn load_part(filter: &mut Filter, part: &[u8], tag: u64, origin: Origin) -> Result<bool, DecodeError> {
    let (cursor, chunk) = sealed_part(filter, part, tag);
    codec::load_chunk(filter, cursor, &chunk, origin, &mut |_| true).map(|loaded| loaded.changed)
}

/// Returns the chunk for a part of a filter's table, and its cursor.
fn sealed_part(filter: &Filter, part: &[u8], tag: u64) -> (u64, Vec<u8>) {
    let cursor = table_start(filter).wrapping_add(part::end_of(part).unwrap_or_default());
    let end = cursor.wrapping_sub(FIRST_CHUNK_CURSOR);
    (cursor, chunk::seal(part, end, tag).expect("little memory"))
}

/// A filter into which chunks are loaded.
struct Subject {
    filter: Filter,
    /// The items that must be in the filter.
    model: CountingModel<u64>,
    /// A chunk of a counting filter from before its first write.
    outdated: Option<(u64, Vec<u8>)>,
    /// True if a chunk has changed the filter.
    is_loaded: bool,
}

impl Subject {
    fn of(filter: Filter, model: CountingModel<u64>) -> Subject {
        Subject { filter, model, outdated: None, is_loaded: false }
    }

    fn new(rest: &mut Reader<'_>) -> Option<Subject> {
        let (kind, items) = (rest.u8()?, rest.u8()?);
        let mut subject = Subject::of(filter_of_kind(kind), CountingModel::default());
        (0..items_of_kind(kind, items)).all(|number| subject.insert(number));
        Some(subject)
    }

    /// Runs an operation. Returns `None` at the end of the bytes.
    fn step(&mut self, rest: &mut Reader<'_>) -> Option<()> {
        let operation = rest.u8()?;
        let origin = if operation & 0x80 == 0 { Origin::Client } else { Origin::Replication };
        let reference = (operation >> 4) & 7;
        let (counts, is_table) = (self.filter.counts(), table(&self.filter).is_some());
        match operation & 0xF {
            code @ 0..4 if counts => {
                let (times, number) = ((1 + u64::from(operation >> 4)).pow(2), rest.u16()?.into());
                self.write(|subject| match code {
                    0 => drop((0..times).all(|_| subject.insert(number))),
                    1 => subject.insert_absent(number),
                    2 => (0..times).for_each(|_| subject.remove(number as usize)),
                    _ => subject.check_count(number),
                });
            }
            0..4 => drop(self.insert(rest.u16()?.into())),
            4..6 => check_same(&self.filter, &through_a_dump(&self.filter)),
            6..9 => {
                let cursor = self.cursor(reference, rest)?;
                self.ask(cursor);
            }
            9..12 => {
                let (cursor, length) = (self.cursor(reference, rest)?, rest.u16()?);
                let data = rest.take(rest.0.len().min(length.into()))?;
                self.load(cursor, data, origin);
            }
            12 if counts && is_table => self.load_edited(rest, reference, origin)?,
            13 if counts && is_table => self.load_composed(rest, reference, origin)?,
            14 if counts && !is_table => self.filter.compact(),
            14 if !counts && is_table => match reference & 4 {
                0 => self.load_edited(rest, reference, origin)?,
                _ => self.load_composed(rest, reference, origin)?,
            },
            12..14 => {
                let (offset, length) = (u64::from(rest.u8()?), u16::from(rest.u8()?));
                let unit = if codec::tags(&self.filter).is_none() { 8 } else { 64 };
                let data = rest.take(rest.0.len().min((length * unit / 8).into()))?;
                self.load_sealed(offset * u64::from(unit), data, origin);
            }
            _ => {
                let (kind, items) = (rest.u8()?, rest.u8()?);
                self.load_another(&filter_of_kind(kind), items_of_kind(kind, items), origin);
            }
        }
        Some(())
    }

    /// Returns any number, or one near the cursor of a chunk.
    fn cursor(&self, reference: u8, rest: &mut Reader<'_>) -> Option<u64> {
        // Positions in a table are much further apart than offsets of bytes.
        let (bits, is_table) = (bits(&self.filter).len() as u64, table(&self.filter).is_some());
        let (start, unit) = if is_table { (bits, 1 << 32) } else { (0, 1) };
        let end = if is_table { start + END } else { bits };
        let near = |place: u64, rest: &mut Reader<'_>| {
            rest.u8().map(|distance| place.wrapping_add_signed(i64::from(distance.cast_signed())))
        };
        match reference & 3 {
            0 => rest.u64(),
            1 => rest.u16().map(u64::from),
            2 => rest.u16().map(|offset| FIRST_CHUNK_CURSOR + start + u64::from(offset) * unit),
            _ if reference & 4 == 0 && is_table => near(FIRST_CHUNK_CURSOR + start, rest),
            _ if reference & 4 == 0 => near(1 + end, rest),
            _ => near(FIRST_CHUNK_CURSOR + end, rest),
        }
    }

    /// Inserts an item. Returns true if it fits.
    fn insert(&mut self, number: u64) -> bool {
        let inserted = insert(&mut self.filter, OnDuplicate::Count, number..number + 1) == 1;
        if inserted {
            self.model.add(number);
            assert!(self.filter.contains(item(number)));
        }
        inserted
    }

    /// Writes to a filter that counts. A copy with the same writes must be the same filter. A table must reject chunks
    /// from before the write.
    fn write(&mut self, write: impl Fn(&mut Subject)) {
        let before = whole(&self.filter);
        let mut copy = Subject::of(through_a_file(&self.filter), self.model.clone());
        write(self);
        write(&mut copy);
        let after = whole(&self.filter);
        assert!(whole(&copy.filter) == after && copy.model == self.model);
        if after != before && self.outdated.is_none() && table(&self.filter).is_some() {
            self.outdated = before.into_iter().nth(1);
        }
        if let Some((cursor, data)) = &self.outdated {
            assert!(codec::load_chunk(&mut self.filter, *cursor, data, Origin::Replication, &mut |_| true).is_err());
            assert!(whole(&self.filter) == after);
        }
    }

    /// Inserts an item, unless it is present.
    fn insert_absent(&mut self, number: u64) {
        let (before, is_there) = (whole(&self.filter), self.filter.contains(item(number)));
        let inserted = insert(&mut self.filter, OnDuplicate::Skip, number..number + 1) == 1;
        assert!(!is_there || (inserted && whole(&self.filter) == before));
        if inserted && !is_there {
            assert!(!self.model.contains(&number));
            self.model.add(number);
            assert!(self.filter.contains(item(number)));
        }
    }

    /// Removes one occurrence of a present item. Absent items must not be removed.
    fn remove(&mut self, index: usize) {
        let count = self.model.items().len().max(1);
        let Some(number) = self.model.items().nth(index % count).copied() else { return };
        remove(&mut self.filter, number..number + 1);
        self.model.remove(&number);
    }

    fn check_count(&self, number: u64) {
        assert!((count(&self.filter, number) > 0) == self.filter.contains(item(number)));
        self.check_held();
    }

    /// Panics if an item is missing, or if its count is too low.
    fn check_held(&self) {
        assert!(self.model.items().all(|&number| self.filter.contains(item(number))));
        if self.filter.counts() {
            assert!(self.model.items().all(|number| count(&self.filter, *number) >= self.model.count(number)));
        }
    }

    /// Removes all items from a filter that counts, and checks that it is empty unless chunks were loaded.
    fn check_emptied(&mut self) {
        if self.filter.counts() {
            self.model.occurrences().for_each(|&number| remove(&mut self.filter, number..number + 1));
            let empty = self.filter.empty_like(&mut |_bytes| true).expect("little memory");
            let figures = |filter: &Filter| (filter.len(), filter.capacity(), filter.fill(), filter.memory_usage());
            if !self.is_loaded {
                assert_eq!(figures(&self.filter), figures(&empty));
            }
            check_figures(&self.filter);
        }
    }

    /// Requests a chunk, and checks that it loads into an empty copy of the filter.
    fn ask(&self, cursor: u64) {
        let chunk = codec::next_chunk(&self.filter, cursor).expect("little memory");
        let Some(chunk) = chunk.filter(|chunk| chunk.cursor != codec::HEADER_CURSOR) else { return };
        let mut copy = emptied(&self.filter);
        let loaded = codec::load_chunk(&mut copy, chunk.cursor, &chunk.data, Origin::Replication, &mut |_| true);
        assert_eq!(loaded.map(|loaded| loaded.bytes), Ok(&*chunk.data));
        assert!(counts_are_right(&copy));
        assert!(bits(&copy).iter().zip(bits(&self.filter)).all(|(&copied, bits)| copied == 0 || copied == bits));
        if table(&self.filter).is_some() && self.filter.counts() {
            assert!(has_part(&copy, content(&chunk.data)));
        }
    }

    fn load(&mut self, cursor: u64, data: &[u8], origin: Origin) {
        let before = (whole(&self.filter), bits(&self.filter));
        let is_of_bits = table(&self.filter).is_none() || !self.filter.counts();
        let replaces = codec::tags(&self.filter).is_none() && origin == Origin::Replication;
        match codec::load_chunk(&mut self.filter, cursor, data, origin, &mut |_| true) {
            Ok(LoadedChunk { bytes, changed }) => {
                assert!(bytes.len() == data.len());
                assert!(bytes.iter().zip(data).all(|(&loaded, &data)| loaded & data == data));
                assert!(bytes == data || !replaces && is_of_bits);
                assert_eq!(changed, whole(&self.filter) != before.0);
                self.is_loaded |= changed;
                if replaces && changed && self.filter.counts() {
                    self.model = CountingModel::uncertain();
                } else if replaces {
                    self.model.retain(|&number| self.filter.contains(item(number)));
                }
                let before = before.1.iter().zip(bits(&self.filter));
                assert!(replaces || before.into_iter().all(|(&before, after)| before & after == before));
                if !is_of_bits {
                    assert!(has_part(&self.filter, content(data)));
                    check_figures(&self.filter);
                }
                self.check_held();
                // Loading it again changes nothing.
                let again = codec::load_chunk(&mut self.filter, cursor, data, origin, &mut |_| true)
                    .map(|loaded| loaded.changed);
                assert_eq!(again, Ok(false));
            }
            Err(_) => assert!(whole(&self.filter) == before.0),
        }
        assert!(counts_are_right(&self.filter));
    }

    /// Loads bits at an offset, as a chunk with the right cursor and checksum.
    fn load_sealed(&mut self, offset: u64, bits: &[u8], origin: Origin) {
        let end = offset + bits.len() as u64;
        let (cursor, chunk) = match (self.filter.kind(), codec::tags(&self.filter)) {
            (FilterKind::Native, Some([tag, _])) => {
                (FIRST_CHUNK_CURSOR + end, chunk::seal(bits, end, tag).expect("little memory"))
            }
            (_, Some(_)) => return,
            (_, None) => (1 + end, bits.to_vec()),
        };
        self.load(cursor, &chunk, origin);
    }

    /// Loads a chunk of this filter with some bytes of its table changed.
    fn load_edited(&mut self, rest: &mut Reader<'_>, reference: u8, origin: Origin) -> Option<()> {
        let chunk = codec::next_chunk(&self.filter, table_start(&self.filter)).expect("little memory");
        let mut part = chunk.map_or_else(Vec::new, |chunk| content(&chunk.data).to_vec());
        for _ in 0..rest.u8()? & 7 {
            part::edit(&mut part, rest.u8()?, rest.u16()?.into(), rest.u8()?);
        }
        self.load_tagged(&part, reference, origin);
        Some(())
    }

    /// Loads a part of a table with arbitrary entries.
    fn load_composed(&mut self, rest: &mut Reader<'_>, reference: u8, origin: Origin) -> Option<()> {
        let part = part::composed(rest, &Shape::of(&self.filter))?;
        self.load_tagged(&part, reference, origin);
        Some(())
    }

    /// Loads a part of a table with the right tag and checksum, into this filter or into an empty one that replaces it.
    fn load_tagged(&mut self, part: &[u8], reference: u8, origin: Origin) {
        let (cursor, chunk) = sealed_part(&self.filter, part, tag(&self.filter));
        if reference & 1 == 1 {
            // The new filter has no entries, so no item is certain to be present.
            *self = Subject { is_loaded: true, ..Subject::of(emptied(&self.filter), CountingModel::default()) };
        }
        self.load(cursor, &chunk, origin);
        if reference & 2 == 2 {
            let mut copy = self.filter.try_clone().expect("a copy");
            use_in_every_way(&mut copy);
        }
    }

    /// Loads the chunks of another filter with other items.
    fn load_another(&mut self, other: &Filter, items: u64, origin: Origin) {
        let mut other = other.try_clone().expect("little memory");
        insert(&mut other, OnDuplicate::Count, 1000..1000 + items);
        let mut cursor = codec::HEADER_CURSOR;
        while let Some(chunk) = codec::next_chunk(&other, cursor).expect("little memory") {
            cursor = chunk.cursor;
            self.load(cursor, &chunk.data, origin);
        }
    }
}

/// Returns true if a table has the segments of a part at the part's position, or has no entries at all.
fn has_part(filter: &Filter, part: &[u8]) -> bool {
    let (start, segments) = part.split_at(8);
    let start = u64::from_le_bytes(*start.first_chunk().expect("a place"));
    let chunk = codec::next_chunk(filter, FIRST_CHUNK_CURSOR + start).expect("little memory");
    chunk.is_none_or(|chunk| content(&chunk.data)[16..].starts_with(&segments[8..]))
}

/// Returns a small filter of a kind.
fn filter_of_kind(kind: u8) -> Filter {
    let native = Layout::Native { seed: 7 };
    let counting = Layout::Counting { seed: 7 };
    let classic = Layout::Classic { stored_expansion: 2 };
    let valkey = Layout::Valkey { seed: [7; 32], tightening: ErrorRate::new(0.5).expect("a ratio") };
    let spec = |bucket_size, expansion| CuckooSpec { bucket_size, max_iterations: 20, expansion };
    let cuckoo = |bucket_size, expansion| Layout::Cuckoo { spec: spec(bucket_size, expansion) };
    // All other numbers stand for the kinds that existed first, so that the corpus keeps its meaning.
    let is_later = [&COUNTING_KINDS, &CUCKOO_KINDS, &VALKEY_KINDS].iter().any(|kinds| kinds.contains(&kind));
    let is_later = is_later || LARGE_KINDS.contains(&kind);
    let kind = if is_later { kind } else { kind % COUNTING_KINDS.start };
    let (error_rate, capacity, expansion, layout) = match kind {
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
        244 => (0.01, 20, 2, Layout::NativeCuckoo { seed: 7, spec: spec(2, 2) }),
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
        layout,
    };
    let filter = Filter::create(params, &mut |_| true).expect("little memory");
    match kind {
        4 => without_options(&filter),
        255 => shortened(&filter),
        _ => filter,
    }
}

/// Returns the number of items that a filter of a kind starts with.
fn items_of_kind(kind: u8, items: u8) -> u64 {
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
