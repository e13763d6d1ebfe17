//! The figures of a filter agree with each other and with its content, and those of a copy with the original's.

use oxbloom_filter::Filter;
use oxbloom_filter::internals::{AnyFilter, Table};

use crate::decoding::copies::whole;
use crate::decoding::parts::{bits, content, set_bits, table, table_start};
use crate::input::item;
use crate::part::Shape;

/// The number of items that are inserted into each filter: more than a batch.
pub(crate) const ITEMS: u64 = 48;

/// The maximum size of a table's directories in bytes, without the part that is proportional to its segments.
pub(crate) const DIRECTORY_BYTES: usize = 9 << 20;

/// The maximum number of bytes that a table takes for each byte of its dump, directories included.
const BYTES_PER_DUMPED_BYTE: usize = 128;

/// Panics if the figures of a filter are impossible.
pub(crate) fn check_figures(filter: &Filter) {
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
    filter.windowed().map_or(0, |filter| filter.tables().map(Table::allocated).sum())
}

/// Panics unless the copy is the same filter.
pub(crate) fn check_same(filter: &Filter, copy: &Filter) {
    assert!(whole(copy) == whole(filter));
    assert!(counts_are_right(copy));
    assert!((0..2 * ITEMS).all(|number| copy.contains(item(number)) == filter.contains(item(number))));
    assert!(counts(copy) == counts(filter));
    assert_eq!(copy.false_positive_rate(), filter.false_positive_rate());
    assert_eq!(copy.memory_usage(), filter.memory_usage());
}

/// Returns the count of an item in a filter that counts.
pub(crate) fn count(filter: &Filter, number: u64) -> u64 {
    filter.count(item(number)).expect("a filter that counts")
}

/// Returns the counts of the first items: at most 1 if the filter does not count.
pub(crate) fn counts(filter: &Filter) -> Vec<u64> {
    let count = |number| match filter.counts() {
        true => count(filter, number),
        false => filter.contains(item(number)).into(),
    };
    (0..2 * ITEMS).map(count).collect()
}

/// Returns true if the filter's numbers of set bits and filled slots are right, and its table agrees with its dump.
pub(crate) fn counts_are_right(filter: &Filter) -> bool {
    let is_counted = match filter.by_kind() {
        AnyFilter::Native(native) => {
            let layer = native.layer();
            layer.is_of_fingerprints() || layer.set_bits() == set_bits(layer.bytes())
        }
        AnyFilter::Counting(_) | AnyFilter::NativeCuckoo(_) | AnyFilter::Windowed(_) | AnyFilter::Cuckoo(_) => true,
        AnyFilter::Classic(classic) => classic.chain().iter().all(|layer| layer.set_bits() == set_bits(layer.bytes())),
        AnyFilter::Valkey(valkey) => valkey.chain().iter().all(|layer| layer.set_bits() == set_bits(layer.bytes())),
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
