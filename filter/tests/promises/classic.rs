//! The classic layout: the same bits as RedisBloom 2.8.2. The expected figures come from RedisBloom.

use std::collections::VecDeque;

use oxbloom_filter::internals::codec::{self, Encoding, Header, LoadedChunk, Origin};
use oxbloom_filter::internals::{AnyFilter, Bytes, CreateParams, Growth, MAX_ITEMS, classic};
use oxbloom_filter::{DecodeError, Error, Filter};

use crate::model::{CLASSIC, built, by, content_bytes, create, item, params_of, whole};

fn params(error_rate: f64, capacity: u64, growth: Growth) -> CreateParams {
    params_of(CLASSIC, error_rate, capacity, growth)
}

fn classic_filter(error_rate: f64, capacity: u64, growth: Growth) -> Filter {
    create(params(error_rate, capacity, growth))
}

/// Returns the positions of the set bits.
fn positions(filter: &Filter) -> Vec<usize> {
    let bits = content_bytes(filter);
    (0..8 * bits.len()).filter(|position| bits[position / 8] >> (position % 8) & 1 == 1).collect()
}

/// Returns the packed header of a filter with one layer.
fn header(options: u32, bits: u64, probes: u32, bits_per_item: f64, log2_bits: u8) -> Vec<u8> {
    let mut header =
        [&0u64.to_le_bytes()[..], &1u32.to_le_bytes(), &options.to_le_bytes(), &2u32.to_le_bytes()].concat();
    for number in [bits / 8, bits, 0, 0.005f64.to_bits(), bits_per_item.to_bits()] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    header.extend_from_slice(&probes.to_le_bytes());
    header.extend_from_slice(&100u64.to_le_bytes());
    header.push(log2_bits);
    header
}

#[test]
fn items_set_the_same_bits_as_in_redisbloom() {
    const BITS_PER_ITEM: f64 = 11.027754;
    let long = [b'x'; 100];
    // The columns are the options, the number of bits, its logarithm, the item, and the bits that it sets.
    type Case<'a> = (u32, u64, u8, &'a [u8], [usize; 8]);
    let cases: [Case; 12] = [
        (5, 1152, 0, b"a", [172, 257, 462, 539, 752, 829, 1034, 1119]),
        (5, 1152, 0, b"hello", [77, 97, 497, 517, 537, 789, 809, 957]),
        (5, 1152, 0, b"", [138, 223, 366, 451, 536, 764, 849, 1077]),
        (4, 1024, 10, b"", [280, 323, 366, 607, 650, 693, 977, 1020]),
        (4, 1024, 10, b"abc", [77, 228, 368, 379, 519, 670, 810, 961]),
        (4, 1024, 10, b"\x00\xff\x80", [754, 768, 782, 796, 810, 824, 838, 852]),
        (4, 1024, 10, &long, [56, 178, 300, 422, 507, 629, 751, 873]),
        // A logarithm in the header takes precedence over the number of bits.
        (5, 1152, 10, b"ab", [44, 46, 48, 50, 52, 54, 56, 58]),
        (0, 1024, 10, b"abcd", [56, 100, 144, 412, 456, 500, 768, 812]),
        (0, 1024, 10, b"\x00\xff\x80", [235, 275, 563, 603, 643, 891, 931, 971]),
        (0, 1024, 10, &long, [20, 180, 316, 476, 612, 748, 772, 908]),
        // In a large layer, all bits of the hash matter.
        (1, 1 << 23, 0, b"hello", [282737, 1956797, 1961374, 3635434, 3640011, 5314071, 5318648, 6992708]),
    ];
    for (options, bits, log2_bits, item, expected) in cases {
        let mut filter = built(&header(options, bits, 8, BITS_PER_ITEM, log2_bits)).unwrap();
        assert_eq!(filter.insert(item), Ok(true));
        assert_eq!(positions(&filter), expected, "options {options}, {}", item.escape_ascii());
        assert!(filter.contains(item));
    }
}

#[test]
fn layers_have_the_same_sizes_as_in_redisbloom() {
    let mut filter = classic_filter(0.01, 100, by(2));
    (0..650).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
    // The bytes, probes, capacity and error rate of each layer.
    let layers = filter.layers().map(|layer| (layer.bytes, layer.probes, layer.capacity, layer.error_rate));
    assert_eq!(layers.collect::<Vec<_>>(), [(144, 8, 100, 0.005), (312, 9, 200, 0.0025), (696, 10, 400, 0.00125)]);
    assert_eq!(filter.memory_usage(), 144 + 312 + 696 + 32 + 3 * 64);
    // The columns are the error rate, the capacity, the growth, and the bytes and probes of the layer.
    for (rate, capacity, growth, bytes, probes) in [
        (0.9, 1000, by(2), 208, 2),
        (0.9, 1000, Growth::Fixed, 32, 1),
        (0.5, 1000, by(2), 368, 3),
        (0.25, 1000, Growth::Fixed, 368, 3),
        (0.01, 100, Growth::Fixed, 120, 7),
        (0.01, 1, by(1), 8, 8),
    ] {
        let filter = classic_filter(rate, capacity, growth);
        let layer = filter.layers().next().unwrap();
        assert_eq!((layer.bytes, layer.probes, layer.capacity), (bytes, probes, capacity), "{rate} {capacity}");
        assert!((filter.error_rate() - rate).abs() < 1e-12);
    }
}

/// Returns a filter with these options, and one full layer of this capacity.
fn full(options: u32, capacity: u64) -> Filter {
    let mut header = header(options, 1024, 8, 11.027754, 10);
    for (at, number) in [(0, capacity), (36, capacity), (64, capacity)] {
        header[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    built(&header).unwrap()
}

/// Filters of RedisBloom's API may have powers of two as sizes.
#[test]
fn a_layer_of_a_rounded_size_has_the_capacity_of_all_its_bits() {
    // Of the options 4 and 6, the second one makes the capacity the logarithm of the number of bits.
    for (options, capacities) in [(4, 1..400), (6, 3..10)] {
        for capacity in capacities {
            let mut filter = full(options, capacity);
            assert_eq!(filter.insert(b"new"), Ok(true));
            let AnyFilter::Classic(chain) = filter.by_kind() else { panic!("no classic filter") };
            let layer = chain.chain()[1].spec();
            assert!(layer.bits.max(64) == 8 * layer.bytes && layer.log2_bits > 0);
            let bits = 1u64 << layer.log2_bits;
            let holds = bits as f64 / layer.bits_per_item;
            assert!((holds - layer.capacity as f64).abs() <= 1.0, "{} of {holds} items", layer.capacity);
            if options == 6 {
                assert_eq!(u64::from(layer.log2_bits), 2 * capacity);
            } else {
                let needed = 2.0 * capacity as f64 * layer.bits_per_item;
                assert!((needed..=2.0 * needed).contains(&(bits as f64)), "{bits} bits, {needed} needed");
            }
        }
    }
    // A layer without room for an item, and one with more bits than any layer has.
    assert_eq!([1, 31].map(|capacity| full(6, capacity).insert(b"new")), [Err(Error::CannotGrow); 2]);
}

#[test]
fn impossible_filters_are_rejected() {
    let rejected = |rate, capacity| Filter::create(params(rate, capacity, by(2)), &mut |_| true).err();
    assert_eq!(rejected(0.01, u64::MAX), Some(Error::OutOfMemory));
    assert_eq!(rejected(0.01, 1 << 60), Some(Error::OutOfMemory));
    assert_eq!(rejected(5e-324, 100), Some(Error::CannotGrow));
    assert_eq!(Filter::create(params(0.01, 100, by(2)), &mut |bytes| bytes < 144).err(), Some(Error::OutOfMemory));
    let mut full = classic_filter(0.01, 1, Growth::Fixed);
    assert_eq!((full.insert(b"one"), full.insert(b"two")), (Ok(true), Err(Error::Full)));
    // Each layer halves the error rate, until it becomes 0.
    let mut vanishing = classic_filter(1e-322, 1, by(1));
    let rejected = (0..100).find_map(|number| vanishing.insert(item(number)).err());
    assert_eq!(rejected, Some(Error::CannotGrow));
    assert!(vanishing.num_layers() < 10);
}

#[test]
fn a_late_chunk_clears_bits_only_if_it_comes_from_a_master() {
    let mut filter = classic_filter(0.01, 100, by(2));
    let early = filter.try_clone().unwrap();
    (0..90).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
    let (before, fill) = (whole(&filter), filter.fill());
    let chunk = codec::next_chunk(&early, codec::HEADER_CURSOR).unwrap().unwrap();
    for late in [&chunk.data, &before.1[..]] {
        let loaded = codec::load_chunk(&mut filter, chunk.cursor, late, Origin::Client, &mut |_| true).unwrap();
        assert_eq!(loaded, LoadedChunk { bytes: &before.1, changed: false }, "the stored bytes are returned");
    }
    assert!(whole(&filter) == before);
    assert_eq!(filter.fill(), fill);
    let loaded = codec::load_chunk(&mut filter, chunk.cursor, &chunk.data, Origin::Replication, &mut |_| true).unwrap();
    assert_eq!(loaded, LoadedChunk { bytes: &chunk.data, changed: true });
    assert_eq!((content_bytes(&filter), filter.fill()), (content_bytes(&early), 0.0));
}

/// The item count at the start of a classic header can look like the start of one of our own headers.
#[test]
fn a_classic_header_is_never_taken_for_one_of_our_own() {
    let mut header = header(5, 1152, 8, 11.027754, 0);
    for version in 0..=255 {
        let items = [b'O', b'X', b'B', version, 0, 0, 0, 0];
        header[..8].copy_from_slice(&items);
        header[20 + 16..20 + 24].copy_from_slice(&items);
        assert!(built(&header).is_ok_and(|filter| filter.seed().is_none()), "version {version}");
    }
}

/// Forges a header: `layers` layers of `bits` bits, each with the largest number of probes and with `items` items.
fn forged(layers: u32, bits: u64, items: u64) -> Vec<u8> {
    let (probes, bits_per_item) = (classic::MAX_PROBES, f64::from(classic::MAX_PROBES) / std::f64::consts::LN_2 - 1e-6);
    let total = items.wrapping_mul(layers.into());
    let mut header =
        [&total.to_le_bytes()[..], &layers.to_le_bytes(), &5u32.to_le_bytes(), &1u32.to_le_bytes()].concat();
    for _ in 0..layers {
        for number in [bits / 8, bits, items, 5e-324f64.to_bits(), bits_per_item.to_bits()] {
            header.extend_from_slice(&number.to_le_bytes());
        }
        header.extend_from_slice(&probes.to_le_bytes());
        header.extend_from_slice(&1u64.to_le_bytes());
        header.push(0);
    }
    header
}

#[test]
fn items_that_cannot_be_counted_are_rejected() {
    let rejected = |header: &[u8], origin| Header::decode(header, origin).err();
    for origin in [Origin::Client, Origin::Replication] {
        for (layers, items) in [(1, u64::MAX), (2, u64::MAX), (2, 1 << 63), (4, 1 << 62), (2, MAX_ITEMS + 1)] {
            let header = forged(layers, 6400, items);
            assert_eq!(rejected(&header, origin), Some(DecodeError::Corrupt), "{layers} layers of {items} items");
        }
        assert_eq!(rejected(&forged(2, 6400, MAX_ITEMS), Origin::Replication), None);
    }
    // The sum in the header may be equal to a saturated sum.
    let mut header = forged(2, 6400, 1 << 63);
    header[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(rejected(&header, Origin::Client), Some(DecodeError::Corrupt));
}

/// The numbers of a file, and the number of bytes by which each array is longer than its bits need.
struct Numbers(VecDeque<u64>, u64);

impl codec::Source for Numbers {
    type String = Vec<u8>;
    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        self.0.pop_front().ok_or(DecodeError::Corrupt)
    }
    fn double(&mut self) -> Result<f64, DecodeError> {
        self.unsigned().map(f64::from_bits)
    }
    fn string(&mut self) -> Result<Vec<u8>, DecodeError> {
        unreachable!("a classic filter is stored as numbers and arrays")
    }
    fn array(&mut self, bytes: u64) -> Result<Bytes, DecodeError> {
        Ok(Bytes::zeroed(bytes + self.1)?)
    }
}

/// Reads a file of a version that has these numbers, and arrays with `more` bytes than their bits need. `asked` is the
/// memory that it asks for.
fn read(version: u64, numbers: &[u64], more: u64, asked: &mut u64) -> Result<Filter, DecodeError> {
    Encoding::Classic.read(version, &mut Numbers(numbers.to_vec().into(), more), &mut |bytes| {
        *asked += bytes;
        true
    })
}

#[test]
fn a_file_with_numbers_that_no_filter_has_is_rejected() {
    let layer = [100, 0.005f64.to_bits(), 8, 11.027754f64.to_bits(), 1152, 0, 0];
    let with = |changes: &[(usize, u64)], asked: &mut u64| {
        let mut numbers = [&[0, 2, 5, 2][..], &layer, &layer].concat();
        changes.iter().for_each(|&(place, number)| numbers[place] = number);
        read(4, &numbers, 0, asked).err()
    };
    let items = |items: u64| vec![(0, items.wrapping_mul(2)), (10, items), (17, items)];
    assert_eq!([vec![], items(MAX_ITEMS)].map(|changes| with(&changes, &mut 0)), [None; 2]);
    let [none, one, nan, infinite] = [0.0, 1.0, f64::NAN, f64::INFINITY].map(f64::to_bits);
    let layers = [(5, none), (5, one), (5, nan), (6, 0), (6, 1 << 31), (7, none), (7, nan), (7, infinite)];
    // More bits than any filter has.
    let layers = layers.into_iter().chain([(8, classic::MAX_BITS + 8), (8, u64::MAX)]).map(|change| vec![change]);
    for changes in layers.chain([items(u64::MAX), items(MAX_ITEMS + 1)]) {
        let mut asked = 0;
        assert_eq!(with(&changes, &mut asked), Some(DecodeError::Corrupt), "{changes:?}");
        assert!(asked <= 2 * 144, "{changes:?}: {asked} bytes");
    }
}

/// Version 1 added the number of bits, version 2 the options, and version 4 the expansion.
#[test]
fn files_of_all_versions_are_read() {
    let (rate, bits_per_item) = (0.005f64.to_bits(), 11.027754f64.to_bits());
    for version in 0..=4 {
        let options = [5].into_iter().filter(|_| version >= 2);
        let expansion = [3].into_iter().filter(|_| version >= 4);
        let bits = [1152, 0].into_iter().filter(|_| version >= 1);
        let layer = [100, rate, 8, bits_per_item].into_iter().chain(bits).chain([7]);
        let numbers: Vec<_> = [7, 1].into_iter().chain(options).chain(expansion).chain(layer).collect();
        for more in [0, 8] {
            let mut asked = 0;
            let filter = read(version, &numbers, more, &mut asked).unwrap();
            // The first version has as many bits as the items need.
            let bytes = if version == 0 { 1102u64.div_ceil(8) } else { 144 } + more;
            let layer = filter.layers().next().unwrap();
            assert_eq!((layer.bytes, layer.probes, layer.capacity), (bytes, 8, 100), "version {version}");
            assert_eq!((asked, filter.len()), (bytes, 7), "version {version}");
            assert_eq!(filter.expansion(), Some(if version == 4 { 3 } else { 2 }), "version {version}");
        }
    }
    assert_eq!(read(5, &[], 0, &mut 0).err(), Some(DecodeError::NewerVersion));
}

/// RedisBloom never writes such headers, and rejects them. Our own append-only files may have them.
#[test]
fn unusual_layers_are_accepted_only_from_our_own_files() {
    let usual = header(5, 1152, 8, 11.027754, 0);
    let void = [&header(5, 0, 0, 0.0, 0)[..44], &[0; 29]].concat();
    let bits_in_part_of_the_bytes = [&usual[..28], &1151u64.to_le_bytes(), &usual[36..]].concat();
    let of_client = |header: &[u8]| Header::decode(header, Origin::Client).err();
    assert_eq!(of_client(&usual), None);
    for unusual in [void, bits_in_part_of_the_bytes, header(5, 1152, 7, 11.027754, 0)] {
        assert_eq!(of_client(&unusual), Some(DecodeError::Corrupt));
        assert!(Header::decode(&unusual, Origin::Replication).is_ok());
    }
    let more_bytes_than_any_layer = [&usual[..20], &(classic::MAX_BITS / 8 + 8).to_le_bytes(), &usual[28..]].concat();
    let rejected = Header::decode(&more_bytes_than_any_layer, Origin::Replication).err();
    assert_eq!(rejected, Some(DecodeError::Corrupt));
}

#[test]
fn no_filter_has_more_layers_than_halvings_of_its_error_rate() {
    let most = classic::MAX_LAYERS as u32;
    assert!(Header::decode(&forged(most, 64, 0), Origin::Client).is_ok());
    for origin in [Origin::Client, Origin::Replication] {
        assert_eq!(Header::decode(&forged(most + 1, 64, 0), origin).err(), Some(DecodeError::Corrupt));
    }
    // A filter that grows by additions has fewer layers, and finds every item.
    let mut deepest = classic_filter(0.9, 1, by(1));
    let rejected = (0..100_000).find_map(|number| deepest.insert(item(number)).err().map(|error| (number, error)));
    let (held, error) = rejected.expect("an addition that fails");
    assert_eq!((error, deepest.num_layers()), (Error::CannotGrow, classic::MAX_LAYERS - 2));
    assert!((0..held).all(|number| deepest.contains(item(number))));
    // The limit on probes per look-up is not reached, so some absent items are not found.
    let found = (200_000..202_000).filter(|&number| deepest.contains(item(number))).count();
    assert!(found < 2_000, "all absent items are found");
}

/// In a forged filter, all probes of an item but the last can pass in each layer. A look-up then stops after a bounded
/// number of probes, and answers that the item is present.
#[test]
fn a_look_up_examines_a_bounded_number_of_probes_and_what_it_finds_stays_found() {
    const BITS: u64 = 6400;
    let mut filter = built(&forged(100, BITS, 0)).unwrap();
    // Returns the bits of an item with this number of probes.
    let bits_of = |probes: u32| {
        let bits_per_item = f64::from(probes) / std::f64::consts::LN_2 - 1e-6;
        let mut filter = built(&header(5, BITS, probes, bits_per_item, 0)).unwrap();
        assert_eq!(filter.insert(b"target"), Ok(true));
        content_bytes(&filter)
    };
    let [but_the_last, all] = [classic::MAX_PROBES - 1, classic::MAX_PROBES].map(bits_of);
    assert!(but_the_last != all);
    let load = |filter: &mut Filter, layer: u64, bytes: &[u8]| {
        let end = (layer + 1) * BITS / 8;
        codec::load_chunk(filter, end + 1, bytes, Origin::Client, &mut |_| true).unwrap();
    };
    let found = |filter: &Filter| {
        let hashes = [filter.hash(b"target"), filter.hash(b"target")];
        let mut found = [false; 2];
        filter.contains_hashes(&hashes, &mut found, 0);
        assert_eq!(found, [filter.contains(b"target"); 2]);
        found[0]
    };
    assert!(!found(&filter));
    for layer in 0..100 {
        load(&mut filter, layer, &but_the_last);
        let probes = (layer as u32 + 1) * classic::MAX_PROBES;
        assert_eq!(found(&filter), probes >= classic::MAX_LOOKUP_PROBES, "with layer {layer}");
    }
    // The item stays present when further bits are set.
    load(&mut filter, 50, &all);
    assert!(found(&filter));
}

/// The bits stand for about `1024 / 8 * ln(2 * 1024)` items, which are fewer than each filter says that it has.
#[test]
fn a_union_of_which_all_bits_are_set_does_not_have_infinitely_many_items() {
    let [mut union, mut other] = [0; 2].map(|_| full(4, 5000));
    codec::load_chunk(&mut other, 129, &[0xFF; 128], Origin::Client, &mut |_| true).unwrap();
    assert_eq!(union.union_with(&other), Ok(true));
    assert_eq!(union.len(), 5000);
}
