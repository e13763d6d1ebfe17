//! Forged numbers of classic cuckoo filters, in RedisBloom's formats. These have no checksums.
//!
//! A forgery holds the numbers of both formats, eight bytes each, since an RDB value has numbers of eight bytes where a
//! dump has shorter ones:
//!
//! ```text
//!  version of the RDB value, layers, buckets, items, removals, bucket size, iterations, expansion
//!  per layer: buckets
//! ```

use oxbloom_filter::internals::codec::{Encoding, HEADER_CURSOR, Header, Origin};
use oxbloom_filter::internals::{CuckooFilter, CuckooSpec, KindFilter};

use crate::forgery::fields::{Field, MAX_ITEMS};
use crate::forgery::sealed::Sealed;
use crate::payload::Part;

const VERSION: usize = 0;
const LAYERS: usize = 8;
const BUCKETS: usize = 16;
const ITEMS: usize = 24;
const REMOVALS: usize = 32;
const BUCKET_SIZE: usize = 40;
const ITERATIONS: usize = 48;
const EXPANSION: usize = 56;
const FIRST_LAYER: usize = 64;

/// Returns the numbers of a filter.
pub(super) fn numbers_of(filter: &CuckooFilter) -> Vec<u8> {
    let CuckooSpec { bucket_size, max_iterations, expansion } = *filter.spec();
    let layers = filter.chain();
    let counts = [layers.len() as u64, filter.first_buckets(), filter.items(), filter.removals()];
    let numbers = [Encoding::Cuckoo.version().into()].into_iter().chain(counts);
    let numbers = numbers.chain([bucket_size, max_iterations, expansion].map(u64::from));
    let numbers = numbers.chain(layers.iter().map(|layer| layer.spec().buckets));
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// Returns the fields. Of the layers, only the newest is there.
pub(super) fn fields(numbers: &[u8]) -> Vec<Field> {
    vec![
        // A payload has room for small versions only.
        Field::new("version", VERSION, 1, Encoding::Cuckoo.version().into()),
        Field::new("layers", LAYERS, 8, 1024),
        Field::new("buckets", BUCKETS, 8, 1 << 55),
        Field::new("items", ITEMS, 8, MAX_ITEMS),
        Field::new("removals", REMOVALS, 8, MAX_ITEMS),
        Field::new("bucket size", BUCKET_SIZE, 8, 255),
        Field::new("iterations", ITERATIONS, 8, u16::MAX.into()),
        Field::new("expansion", EXPANSION, 8, 32768),
        Field::new("newest buckets", numbers.len() - 8, 8, 1 << 55),
    ]
}

/// Returns the dump stream and the RDB values of forged numbers, for a filter whose layers have these slots.
///
/// The slots of a layer are as many as its forged buckets have. The stream is empty if a number does not fit into a
/// dump, or if the header claims more than `max_memory` bytes.
pub(super) fn sealed(numbers: &[u8], slots: &[Vec<u8>], forged: &[usize], max_memory: u64) -> Sealed {
    let numbers = &agreeing(numbers, forged);
    let header = header(numbers);
    let claimed = header.iter().flat_map(|header| {
        [Origin::Client, Origin::Replication].map(|origin| Header::decode(header, origin).map_or(0, |it| it.memory()))
    });
    let memory = claimed.max().unwrap_or(0);
    let resized = resized(numbers, slots, max_memory);
    let mut stream = Vec::new();
    if let Some(header) = header.filter(|_| memory <= max_memory) {
        stream.push((HEADER_CURSOR, header));
        let mut cursor = 1;
        for layer in &resized {
            cursor += layer.len() as u64;
            stream.push((cursor, layer.clone()));
        }
    }
    let values = values(numbers, resized);
    Sealed { stream, values, short: None, encoding: numbers[VERSION].into(), memory: memory.min(max_memory) }
}

/// Returns the numbers, in which the buckets of the layers agree with those of the first and the expansion, unless one
/// of these was forged.
fn agreeing(numbers: &[u8], forged: &[usize]) -> Vec<u8> {
    let mut agreeing = numbers.to_vec();
    let mut buckets = number(numbers, BUCKETS);
    for start in (FIRST_LAYER..numbers.len()).step_by(8) {
        if !forged.contains(&start) {
            agreeing[start..start + 8].copy_from_slice(&buckets.to_le_bytes());
        }
        buckets = buckets.wrapping_mul(number(numbers, EXPANSION));
    }
    agreeing
}

/// Returns the slots of each layer in the number of bytes that was forged, unless these are more than `max_memory`.
fn resized(numbers: &[u8], slots: &[Vec<u8>], max_memory: u64) -> Vec<Vec<u8>> {
    let layers = (FIRST_LAYER..numbers.len()).step_by(8).zip(slots).map(|(start, slots)| {
        let mut slots = slots.clone();
        let bytes = number(numbers, start).checked_mul(number(numbers, BUCKET_SIZE));
        if let Some(bytes) = bytes.filter(|&bytes| bytes <= max_memory) {
            slots.resize(bytes as usize, 7);
        }
        slots
    });
    layers.collect()
}

/// Returns the header of a dump, or `None` if a number does not fit into it.
fn header(numbers: &[u8]) -> Option<Vec<u8>> {
    let counts = [ITEMS, BUCKETS, REMOVALS, LAYERS].map(|at| number(numbers, at).to_le_bytes());
    let mut header = counts.as_flattened().to_vec();
    for at in [BUCKET_SIZE, ITERATIONS, EXPANSION] {
        header.extend(u16::try_from(number(numbers, at)).ok()?.to_le_bytes());
    }
    Some(header)
}

/// Returns the RDB values. The oldest versions have fewer numbers.
fn values(numbers: &[u8], layers: Vec<Vec<u8>>) -> Vec<Part> {
    let is_old = number(numbers, VERSION) < 4;
    let unsigned = |at: usize| Part::Unsigned(number(numbers, at));
    let mut values = vec![unsigned(LAYERS), unsigned(BUCKETS), unsigned(ITEMS)];
    if !is_old {
        values.extend([REMOVALS, BUCKET_SIZE, ITERATIONS, EXPANSION].map(unsigned));
    }
    for (start, slots) in (FIRST_LAYER..numbers.len()).step_by(8).zip(layers) {
        values.extend((!is_old).then(|| unsigned(start)));
        values.push(Part::String(slots));
    }
    values
}

fn number(numbers: &[u8], at: usize) -> u64 {
    Field::number(&numbers[at..])
}
