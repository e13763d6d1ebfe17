//! Forged numbers of classic filters, in RedisBloom's formats. These have no checksums.
//!
//! A forgery holds the numbers of both formats, eight bytes each, since an RDB value has numbers of eight bytes where a
//! dump has shorter ones:
//!
//! ```text
//!  version of the RDB value, items, layers, options, expansion
//!  per layer: capacity, error rate, probes, bits per item, bits, log2 of bits, bytes, items
//! ```

use std::f64::consts::LN_2;

use oxbloom_filter::internals::classic::{MAX_BITS, MAX_LAYERS, MAX_PROBES, probes_for};
use oxbloom_filter::internals::codec::{Encoding, HEADER_CURSOR, Header, Origin};
use oxbloom_filter::internals::{ClassicFilter, KindFilter};

use crate::forgery::fields::{Field, MAX_ITEMS};
use crate::forgery::sealed::Sealed;
use crate::payload::Part;

const VERSION: usize = 0;
const ITEMS: usize = 8;
const LAYERS: usize = 16;
const OPTIONS: usize = 24;
const EXPANSION: usize = 32;
const FIRST_LAYER: usize = 40;

const CAPACITY: usize = 0;
const ERROR_RATE: usize = 8;
const PROBES: usize = 16;
const BITS_PER_ITEM: usize = 24;
const BITS: usize = 32;
const LOG2_BITS: usize = 40;
const BYTES: usize = 48;
const LAYER_ITEMS: usize = 56;
const LAYER_BYTES: usize = 64;

/// The names of the numbers of the oldest layer, and of the newest.
const OF_OLDEST: [&str; 8] = [
    "oldest capacity",
    "oldest error rate",
    "oldest probes",
    "oldest bits per item",
    "oldest bits",
    "oldest log2 of bits",
    "oldest bytes",
    "oldest items",
];
const OF_NEWEST: [&str; 8] = [
    "newest capacity",
    "newest error rate",
    "newest probes",
    "newest bits per item",
    "newest bits",
    "newest log2 of bits",
    "newest bytes",
    "newest items",
];

/// Returns the numbers of a filter. One without options is older than these, and gets the oldest version.
pub(super) fn numbers_of(filter: &ClassicFilter) -> Vec<u8> {
    let (spec, layers) = (filter.spec(), filter.chain());
    let version = if spec.options.bits() == 0 { 0 } else { Encoding::Classic.version().into() };
    let (options, expansion) = (spec.options.bits().into(), spec.expansion.into());
    let mut numbers: Vec<u64> = vec![version, filter.items(), layers.len() as u64, options, expansion];
    for layer in layers {
        let spec = layer.spec();
        numbers.extend([spec.capacity, spec.error_rate.to_bits(), spec.probes.into(), spec.bits_per_item.to_bits()]);
        numbers.extend([spec.bits, spec.log2_bits.into(), spec.bytes, layer.items()]);
    }
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Returns the fields. Of the layers, only the oldest and the newest are there.
pub(super) fn fields(numbers: &[u8]) -> Vec<Field> {
    let mut fields = vec![
        // A payload has room for small versions only.
        Field::new("version", VERSION, 1, Encoding::Classic.version().into()),
        Field::new("items", ITEMS, 8, MAX_ITEMS),
        Field::new("layers", LAYERS, 8, MAX_LAYERS as u64),
        Field::new("options", OPTIONS, 8, 15),
        Field::new("expansion", EXPANSION, 8, u32::MAX.into()),
    ];
    let mut add = |names: [&'static str; 8], start: usize| {
        let [capacity, error_rate, probes, bits_per_item, bits, log2_bits, bytes, items] = names;
        let double =
            |name, at, limit: f64| Field { is_double: true, ..Field::new(name, start + at, 8, limit.to_bits()) };
        fields.extend([
            Field::new(capacity, start + CAPACITY, 8, i64::MAX as u64),
            double(error_rate, ERROR_RATE, 1.0),
            Field::new(probes, start + PROBES, 8, MAX_PROBES.into()),
            double(bits_per_item, BITS_PER_ITEM, f64::MAX),
            Field::new(bits, start + BITS, 8, MAX_BITS),
            Field::new(log2_bits, start + LOG2_BITS, 8, MAX_BITS.ilog2().into()),
            Field::new(bytes, start + BYTES, 8, MAX_BITS / 8),
            Field::new(items, start + LAYER_ITEMS, 8, MAX_ITEMS),
        ]);
    };
    add(OF_OLDEST, FIRST_LAYER);
    if starts(numbers).len() > 1 {
        add(OF_NEWEST, numbers.len() - LAYER_BYTES);
    }
    fields
}

/// Returns the dump stream and the RDB values of forged numbers, for a filter whose layers have these bits.
///
/// In the dump, numbers that were not forged agree with those that were, since a client's dump is rejected otherwise.
/// In the RDB values, they need not agree. The stream is empty if a number does not fit into a dump, or if the header
/// claims more than `max_memory` bytes.
pub(super) fn sealed(numbers: &[u8], bits: &[Vec<u8>], forged: &[usize], max_memory: u64) -> Sealed {
    let agreeing = agreeing(numbers, forged);
    let header = header(&agreeing);
    let claimed = header.iter().flat_map(|header| {
        [Origin::Client, Origin::Replication].map(|origin| Header::decode(header, origin).map_or(0, |it| it.memory()))
    });
    let memory = claimed.max().unwrap_or(0);
    let mut stream = Vec::new();
    if let Some(header) = header.filter(|_| memory <= max_memory) {
        stream.push((HEADER_CURSOR, header));
        let mut cursor = 1;
        for layer in resized(&agreeing, bits, max_memory) {
            cursor += layer.len() as u64;
            stream.push((cursor, layer));
        }
    }
    let values = values(numbers, resized(numbers, bits, max_memory));
    Sealed { stream, values, short: None, encoding: numbers[VERSION].into(), memory: memory.min(max_memory) }
}

/// Returns the numbers, in which those that were not forged agree with those that were.
fn agreeing(numbers: &[u8], forged: &[usize]) -> Vec<u8> {
    let mut agreeing = numbers.to_vec();
    let is_forged = |at: usize| forged.contains(&at);
    let mut put = |at: usize, value: u64| {
        if !is_forged(at) {
            agreeing[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    };
    let mut items = 0u64;
    for start in starts(numbers) {
        let number = |at: usize| Field::number(&numbers[start + at..]);
        items = items.wrapping_add(number(LAYER_ITEMS));
        put(start + BYTES, number(BITS) / 8);
        if is_forged(start + BYTES) {
            put(start + BITS, number(BYTES).wrapping_mul(8));
        }
        put(start + PROBES, probes_for(f64::from_bits(number(BITS_PER_ITEM))).into());
        if is_forged(start + PROBES) {
            put(start + BITS_PER_ITEM, ((number(PROBES) as f64 - 0.5) / LN_2).to_bits());
        }
    }
    put(ITEMS, items);
    agreeing
}

/// Returns the bits of each layer in the number of bytes that was forged, unless these are more than `max_memory`.
fn resized(numbers: &[u8], bits: &[Vec<u8>], max_memory: u64) -> Vec<Vec<u8>> {
    let layers = starts(numbers).zip(bits).map(|(start, bits)| {
        let (mut bits, bytes) = (bits.clone(), Field::number(&numbers[start + BYTES..]));
        if bytes <= max_memory {
            bits.resize(bytes as usize, 0);
        }
        bits
    });
    layers.collect()
}

/// Returns the offsets of the layers.
fn starts(numbers: &[u8]) -> impl ExactSizeIterator<Item = usize> + use<> {
    (FIRST_LAYER..numbers.len()).step_by(LAYER_BYTES)
}

/// Returns the header of a dump, or `None` if a number does not fit into it.
fn header(numbers: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| Field::number(&numbers[at..]);
    let short = |at: usize| u32::try_from(number(at)).ok().map(u32::to_le_bytes);
    let mut header = number(ITEMS).to_le_bytes().to_vec();
    for at in [LAYERS, OPTIONS, EXPANSION] {
        header.extend(short(at)?);
    }
    for start in starts(numbers) {
        for at in [BYTES, BITS, LAYER_ITEMS, ERROR_RATE, BITS_PER_ITEM] {
            header.extend(number(start + at).to_le_bytes());
        }
        header.extend(short(start + PROBES)?);
        header.extend(number(start + CAPACITY).to_le_bytes());
        header.push(number(start + LOG2_BITS).try_into().ok()?);
    }
    Some(header)
}

/// Returns the RDB values. The oldest versions have fewer numbers.
fn values(numbers: &[u8], layers: Vec<Vec<u8>>) -> Vec<Part> {
    let version = numbers[VERSION];
    let unsigned = |at: usize| Part::Unsigned(Field::number(&numbers[at..]));
    let double = |at: usize| Part::Double(f64::from_bits(Field::number(&numbers[at..])));
    let mut values = vec![unsigned(ITEMS), unsigned(LAYERS)];
    values.extend((version >= 2).then(|| unsigned(OPTIONS)));
    values.extend((version >= 4).then(|| unsigned(EXPANSION)));
    for (start, bits) in starts(numbers).zip(layers) {
        values.extend([unsigned(start + CAPACITY), double(start + ERROR_RATE), unsigned(start + PROBES)]);
        values.push(double(start + BITS_PER_ITEM));
        if version >= 1 {
            values.extend([unsigned(start + BITS), unsigned(start + LOG2_BITS)]);
        }
        values.extend([Part::String(bits), unsigned(start + LAYER_ITEMS)]);
    }
    values
}
