//! Forged numbers of valkey filters, in valkey-bloom's format and in that of our dump streams. These have no checksums.
//!
//! A forgery holds the numbers of both formats, eight bytes each, since some have fewer bytes in a dump or a blob:
//!
//! ```text
//!  layers, expansion, error rate, tightening ratio, 1 if the seed is random
//!  per layer: capacity, items, bytes, probes, version of the blob
//! ```

use oxbloom_filter::internals::codec::{Encoding, HEADER_CURSOR, Header, Origin};
use oxbloom_filter::internals::{FIXED_SEED, ValkeyFilter};

use crate::forgery::fields::{Field, MAX_ITEMS};
use crate::forgery::sealed::Sealed;
use crate::payload::Part;

const LAYERS: usize = 0;
const EXPANSION: usize = 8;
const ERROR_RATE: usize = 16;
const TIGHTENING: usize = 24;
const IS_RANDOM: usize = 32;
const FIRST_LAYER: usize = 40;

const CAPACITY: usize = 0;
const ITEMS: usize = 8;
const BYTES: usize = 16;
const PROBES: usize = 24;
const BLOB_VERSION: usize = 32;
const LAYER_BYTES: usize = 40;

/// The names of the numbers of the oldest layer, and of the newest.
const OF_OLDEST: [&str; 5] = ["oldest capacity", "oldest items", "oldest bytes", "oldest probes", "oldest version"];
const OF_NEWEST: [&str; 5] = ["newest capacity", "newest items", "newest bytes", "newest probes", "newest version"];

/// Returns the numbers of a filter with the fixed seed.
pub(super) fn numbers_of(filter: &ValkeyFilter) -> Vec<u8> {
    let spec = filter.spec();
    let rates = [spec.error_rate, spec.tightening].map(|rate| rate.get().to_bits());
    let mut numbers = vec![filter.chain().len() as u64, spec.expansion.into(), rates[0], rates[1], 0];
    for layer in filter.chain() {
        let spec = layer.spec();
        numbers.extend([spec.capacity, layer.items(), spec.bytes, spec.probes.into(), 1]);
    }
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Returns the fields. Of the layers, only the oldest and the newest are there.
pub(super) fn fields(numbers: &[u8]) -> Vec<Field> {
    let double = |name, at| Field { is_double: true, ..Field::new(name, at, 8, 1f64.to_bits()) };
    let mut fields = vec![
        Field::new("layers", LAYERS, 8, 1 << 15),
        Field::new("expansion", EXPANSION, 8, u32::MAX.into()),
        double("error rate", ERROR_RATE),
        double("tightening ratio", TIGHTENING),
        Field::new("seed is random", IS_RANDOM, 8, 1),
    ];
    let newest = numbers.len() - LAYER_BYTES;
    for (start, names) in [(FIRST_LAYER, OF_OLDEST), (newest, OF_NEWEST)] {
        let limits = [i64::MAX as u64, MAX_ITEMS, 1 << 57, u32::MAX.into(), u8::MAX.into()];
        let all = names.into_iter().zip((start..).step_by(8)).zip(limits);
        fields.extend(all.map(|((name, at), limit)| Field::new(name, at, 8, limit)));
    }
    fields
}

/// Returns the dump stream and the RDB values of forged numbers, for a filter whose layers have these bits.
///
/// The bits of a layer are as many as its forged bytes. The stream is empty if a number does not fit into a dump, or if
/// the header claims more than `max_memory` bytes.
pub(super) fn sealed(numbers: &[u8], bits: &[Vec<u8>], max_memory: u64) -> Sealed {
    let header = header(numbers);
    let claimed = header.as_ref().and_then(|header| Header::decode(header, Origin::Client).ok());
    let memory = claimed.map_or(0, |header| header.memory());
    let layers = layers(numbers).zip(bits).map(|(layer, bits)| {
        let mut bits = bits.clone();
        let bytes = number(layer, BYTES);
        if bytes <= max_memory {
            bits.resize(bytes as usize, 7);
        }
        bits
    });
    let bits: Vec<_> = layers.collect();
    let mut stream = Vec::new();
    if let Some(header) = header.filter(|_| memory <= max_memory) {
        stream.push((HEADER_CURSOR, header));
        let mut cursor = 1;
        for bits in &bits {
            cursor += bits.len() as u64;
            stream.push((cursor, bits.clone()));
        }
    }
    let encoding = Encoding::Valkey.version().into();
    Sealed { stream, values: values(numbers, &bits), short: None, encoding, memory: memory.min(max_memory) }
}

/// Returns the header of a dump, or `None` if a number does not fit into it.
fn header(numbers: &[u8]) -> Option<Vec<u8>> {
    let narrow = |numbers: &[u8], at: usize| u32::try_from(number(numbers, at)).map(u32::to_le_bytes).ok();
    let mut header = b"OXVALKEY".to_vec();
    header.extend(narrow(numbers, EXPANSION)?);
    header.extend_from_slice(&numbers[ERROR_RATE..IS_RANDOM]);
    header.extend(FIXED_SEED);
    header.extend(narrow(numbers, LAYERS)?);
    for layer in layers(numbers) {
        header.extend_from_slice(&layer[CAPACITY..PROBES]);
        header.extend(narrow(layer, PROBES)?);
    }
    Some(header)
}

/// Returns the RDB values. Numbers that are too large for a blob are cut off.
fn values(numbers: &[u8], bits: &[Vec<u8>]) -> Vec<Part> {
    let double = |at: usize| Part::Double(f64::from_bits(number(numbers, at)));
    let unsigned = |numbers: &[u8], at: usize| Part::Unsigned(number(numbers, at));
    let mut values = vec![unsigned(numbers, LAYERS), unsigned(numbers, EXPANSION)];
    values.extend([double(ERROR_RATE), double(TIGHTENING), unsigned(numbers, IS_RANDOM)]);
    let newest = layers(numbers).count() - 1;
    for (index, (layer, bits)) in layers(numbers).zip(bits).enumerate() {
        values.push(unsigned(layer, CAPACITY));
        values.extend((index == newest).then(|| unsigned(layer, ITEMS)));
        let [bytes, probes] = [&layer[BYTES..PROBES], &layer[PROBES..PROBES + 4]];
        values.push(Part::String([&layer[BLOB_VERSION..=BLOB_VERSION], bytes, probes, &FIXED_SEED, bits].concat()));
    }
    values
}

fn layers(numbers: &[u8]) -> impl Iterator<Item = &[u8]> {
    numbers[FIRST_LAYER..].chunks(LAYER_BYTES)
}

fn number(numbers: &[u8], at: usize) -> u64 {
    Field::number(&numbers[at..])
}
