//! The bits of a filter, the parts of its table, and the checksums of both.

use oxbloom_filter::internals::codec::chunk::{self, FIRST_CHUNK_CURSOR};
use oxbloom_filter::internals::codec::{self, Origin};
use oxbloom_filter::internals::{AnyFilter, Kind, Table};
use oxbloom_filter::{DecodeError, Filter};
use xxhash_rust::xxh3::xxh3_64;

use crate::part;

/// Returns the filter's table, unless it has none or forgets.
pub(crate) fn table(filter: &Filter) -> Option<&Table> {
    match filter.by_kind() {
        AnyFilter::Native(filter) => filter.table(),
        AnyFilter::Counting(filter) => Some(filter.table()),
        AnyFilter::NativeCuckoo(filter) => Some(filter.table()),
        AnyFilter::Windowed(_) | AnyFilter::Classic(_) | AnyFilter::Cuckoo(_) | AnyFilter::Valkey(_) => None,
    }
}

/// Returns the cursor after which the cursors of a table's chunks start.
pub(crate) fn table_start(filter: &Filter) -> u64 {
    FIRST_CHUNK_CURSOR + bits(filter).len() as u64
}

/// Returns the number of set bits.
pub(crate) fn set_bits(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(byte.count_ones())).sum()
}

/// Returns all bits of a filter, oldest layer first. A table has none.
pub(crate) fn bits(filter: &Filter) -> Vec<u8> {
    match filter.by_kind() {
        AnyFilter::Native(native) => native.layer().bytes().to_vec(),
        AnyFilter::Counting(_) | AnyFilter::NativeCuckoo(_) | AnyFilter::Windowed(_) => Vec::new(),
        AnyFilter::Classic(classic) => classic.chain().iter().flat_map(|layer| layer.bytes()).copied().collect(),
        AnyFilter::Cuckoo(cuckoo) => cuckoo.chain().iter().flat_map(|layer| layer.slots()).copied().collect(),
        AnyFilter::Valkey(valkey) => valkey.chain().iter().flat_map(|layer| layer.bytes()).copied().collect(),
    }
}

/// Returns one of our own headers with the right checksum, and other bytes unchanged.
pub(crate) fn sealed(bytes: &[u8]) -> Vec<u8> {
    match bytes.split_last_chunk::<8>() {
        Some((body, _)) if body.starts_with(b"OXB") => [body, &xxh3_64(body).to_le_bytes()].concat(),
        _ => bytes.to_vec(),
    }
}

/// Returns the content of a chunk, which precedes the tag and the checksum.
pub(crate) fn content(chunk: &[u8]) -> &[u8] {
    &chunk[..chunk.len() - 16]
}

/// Returns the tag of the chunks of a filter's table.
pub(crate) fn tag(filter: &Filter) -> u64 {
    let [first, second] = codec::tags(filter).expect("tags");
    if filter.kind() == Kind::Native { second } else { first }
}

/// Loads a part of a table with the right checksum. Returns true if the filter changed.
pub(crate) fn load_part(filter: &mut Filter, part: &[u8], tag: u64, origin: Origin) -> Result<bool, DecodeError> {
    let (cursor, chunk) = sealed_part(filter, part, tag);
    codec::load_chunk(filter, cursor, &chunk, origin, &mut |_| true).map(|loaded| loaded.changed)
}

/// Returns the chunk for a part of a filter's table, and its cursor.
pub(crate) fn sealed_part(filter: &Filter, part: &[u8], tag: u64) -> (u64, Vec<u8>) {
    let cursor = table_start(filter).wrapping_add(part::end_of(part).unwrap_or_default());
    let end = cursor.wrapping_sub(FIRST_CHUNK_CURSOR);
    (cursor, chunk::seal(part, end, tag).expect("little memory"))
}
