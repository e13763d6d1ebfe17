//! Valkey filters, beside the crates that valkey-bloom is made of: the same bits, the same payloads.

use bloomfilter::Bloom;
use models::random::Random;
use oxbloom_filter::internals::codec::payload as dump;
use oxbloom_filter::internals::codec::valkey::{decode_payload, encode_payload};
use oxbloom_filter::internals::{CreateParams, ErrorRate, FIXED_SEED, Growth, KindParams, codec};
use oxbloom_filter::{DecodeError, Error, Filter, Prediction};

use crate::model::{
    built, by, create, insert_in_batches, item, params_of, read_values, through_a_client, through_a_file, values, whole,
};

/// The seed 0, 1, …, 31.
const SEED: [u8; 32] = {
    let mut seed = [0; 32];
    let mut index = 0;
    while index < seed.len() {
        seed[index] = index as u8;
        index += 1;
    }
    seed
};

/// The parameters of a filter.
#[derive(Clone, Copy, Debug)]
struct Given {
    capacity: u64,
    error_rate: f64,
    tightening: f64,
    /// 0 if the filter does not grow.
    expansion: u32,
    seed: [u8; 32],
}

impl Default for Given {
    fn default() -> Given {
        Given { capacity: 10, error_rate: 0.01, tightening: 0.5, expansion: 2, seed: SEED }
    }
}

impl Given {
    fn params(self) -> CreateParams {
        let Given { capacity, error_rate, tightening, expansion, seed } = self;
        let kind = KindParams::Valkey { seed, tightening: ErrorRate::new(tightening).unwrap() };
        params_of(kind, error_rate, capacity, if expansion == 0 { Growth::Fixed } else { by(expansion) })
    }

    fn create(self) -> Filter {
        create(self.params())
    }

    /// Returns a filter with this many items.
    fn filled(self, items: u64) -> Filter {
        let mut filter = self.create();
        (0..items).for_each(|number| assert!(filter.insert(item(number)).is_ok()));
        filter
    }
}

/// A filter as valkey-bloom has it.
struct Oracle {
    given: Given,
    layers: Vec<OracleLayer>,
}

struct OracleLayer {
    bits: Bloom<[u8]>,
    capacity: i64,
    items: i64,
}

impl Oracle {
    fn new(given: Given) -> Oracle {
        let mut oracle = Oracle { given, layers: Vec::new() };
        oracle.grow(given.capacity as i64, given.error_rate);
        oracle
    }

    fn grow(&mut self, capacity: i64, error_rate: f64) {
        let bits = Bloom::new_for_fp_rate_with_seed(capacity as usize, error_rate, &self.given.seed).unwrap();
        self.layers.push(OracleLayer { bits, capacity, items: 0 });
    }

    fn contains(&self, item: &[u8]) -> bool {
        self.layers.iter().any(|layer| layer.bits.check(item))
    }

    fn insert(&mut self, item: &[u8]) -> Result<bool, Error> {
        if self.contains(item) {
            return Ok(false);
        }
        let newest = self.layers.last().unwrap();
        if newest.items == newest.capacity {
            if self.given.expansion == 0 {
                return Err(Error::Full);
            }
            let error_rate = self.given.error_rate * self.given.tightening.powi(self.layers.len() as i32);
            if error_rate <= f64::MIN_POSITIVE {
                return Err(Error::CannotGrow);
            }
            self.grow(newest.capacity * i64::from(self.given.expansion), error_rate);
        }
        let newest = self.layers.last_mut().unwrap();
        newest.bits.set(item);
        newest.items += 1;
        Ok(true)
    }

    /// Returns the payload of BF.LOAD.
    fn payload(&self) -> Vec<u8> {
        let Given { error_rate, tightening, expansion, seed, .. } = self.given;
        let layers: Vec<_> =
            self.layers.iter().map(|layer| (layer.bits.to_bytes(), layer.items, layer.capacity)).collect();
        let packed = bincode::serialize(&(expansion, error_rate, tightening, seed != FIXED_SEED, layers)).unwrap();
        [&[1], &*packed].concat()
    }

    /// Returns the values of an RDB file, as [`values`] does.
    fn values(&self, blob_is_first: bool) -> Vec<u8> {
        let Given { error_rate, tightening, expansion, seed, .. } = self.given;
        let unsigned = |number: u64| [&b"u"[..], &number.to_le_bytes()].concat();
        let double = |number: f64| [&b"d"[..], &number.to_le_bytes()].concat();
        let mut parts = vec![unsigned(self.layers.len() as u64), unsigned(expansion.into()), double(error_rate)];
        parts.extend([double(tightening), unsigned((seed != FIXED_SEED).into())]);
        for (index, layer) in self.layers.iter().enumerate() {
            let blob = layer.bits.to_bytes();
            let blob = [&b"s"[..], &(blob.len() as u64).to_le_bytes(), &blob].concat();
            let is_last = index + 1 == self.layers.len();
            let numbers = [layer.capacity, layer.items].map(|number| unsigned(number as u64));
            let numbers = numbers[..1 + usize::from(is_last)].concat();
            parts.extend(if blob_is_first { [blob, numbers] } else { [numbers, blob] });
        }
        parts.concat()
    }
}

fn loaded(payload: &[u8]) -> Result<Filter, DecodeError> {
    decode_payload(payload, &mut |_| true)
}

fn payload(filter: &Filter) -> Vec<u8> {
    encode_payload(filter).unwrap().unwrap()
}

/// Returns random parameters.
fn any_given(random: &mut Random) -> Given {
    Given {
        capacity: random.one_of(&[1, 2, 3, 7, 10, 50, 100, 333]),
        error_rate: random.one_of(&[0.999, 0.5, 0.1, 0.01, 0.013, 0.001, 1e-6, 1e-12]),
        tightening: random.one_of(&[0.5, 0.5, 0.9, 0.3, 0.99]),
        expansion: random.one_of(&[0, 1, 2, 2, 3, 5]),
        seed: if random.chance(25) { FIXED_SEED } else { [random.next_u64() as u8; 32] },
    }
}

/// Returns up to 400 items, with repetitions.
fn any_items(random: &mut Random) -> Vec<Vec<u8>> {
    let universe = random.one_of(&[10, 100, 1000]);
    let count = random.below(400);
    let mut item = || {
        let number = random.below(universe);
        vec![number as u8; (number / 3) as usize % 70].into_iter().chain(number.to_le_bytes()).collect()
    };
    (0..count).map(|_| item()).collect()
}

#[test]
fn bits_and_sizes_are_those_of_the_known_vectors() {
    let mut filter = Given::default().create();
    assert!(filter.insert("hello").unwrap());
    let layer = &filter.valkey().unwrap().chain()[0];
    assert_eq!(layer.bytes(), [0, 0, 0x20, 0x20, 0x20, 0, 0, 1, 0, 0x20, 0, 0]);
    for (capacity, error_rate, bytes, probes) in
        [(100, 0.01, 120, 7), (200, 0.005, 276, 8), (1_000_000, 0.001, 1_797_199, 10)]
    {
        let layer = Given { capacity, error_rate, ..Given::default() }.create().layers().next().unwrap();
        assert_eq!((layer.bytes, layer.probes), (bytes, probes), "{capacity}, {error_rate}");
    }
}

/// Thousands of filters get random items, one by one and in batches, and are saved and loaded in between.
#[test]
fn random_filters_have_the_bits_and_answers_of_valkey_bloom() {
    let mut random = Random(0);
    for round in 0..3000 {
        let given = any_given(&mut random);
        let items = any_items(&mut random);
        let mut oracle = Oracle::new(given);
        let mut filter = given.create();
        for part in items.chunks(1 + random.below(150) as usize) {
            let expected: Vec<_> = part.iter().map(|item| oracle.insert(item)).collect();
            let sizes = random.one_of(&[&[1][..], &[64], &[3, 17]]);
            assert_eq!(insert_in_batches(&mut filter, part, sizes), expected, "round {round}: {given:?}");
            assert!(payload(&filter) == oracle.payload(), "round {round}: {given:?}");
            filter = match random.below(4) {
                0 => loaded(&oracle.payload()).unwrap(),
                1 => through_a_file(&filter),
                2 => through_a_client(&filter),
                _ => filter.try_clone().unwrap(),
            };
        }
        let asked: Vec<_> = items.into_iter().chain((5000..5050).map(|number| item(number).to_vec())).collect();
        let expected: Vec<_> = asked.iter().map(|item| oracle.contains(item)).collect();
        assert_eq!(filter.contains_batch(&asked), expected, "round {round}: {given:?}");
        assert!(asked.iter().zip(expected).all(|(item, expected)| filter.contains(item) == expected));
        assert!(values(&filter) == oracle.values(false), "round {round}: {given:?}");
        for blob_is_first in [false, true] {
            let read = read_values(&filter, &oracle.values(blob_is_first)).unwrap();
            assert!(whole(&read) == whole(&filter), "round {round}: {given:?}");
        }
    }
}

/// Large layers are looked up in another way than those that fit into the processor's cache.
#[test]
fn large_filters_have_the_bits_and_answers_of_valkey_bloom() {
    let given = Given { capacity: 60_000, error_rate: 0.001, ..Given::default() };
    let mut oracle = Oracle::new(given);
    let mut filter = given.create();
    let items: Vec<_> = (0..250_000).map(|number| item(number).to_vec()).collect();
    let expected: Vec<_> = items.iter().map(|item| oracle.insert(item)).collect();
    assert!(insert_in_batches(&mut filter, &items, &[64, 1, 13]) == expected);
    assert!(payload(&filter) == oracle.payload());
    assert!(filter.contains_batch(&items).into_iter().all(|found| found));
    let absent: Vec<_> = (1_000_000..1_050_000).map(item).collect();
    let expected: Vec<_> = absent.iter().map(|item| oracle.contains(item)).collect();
    assert!(filter.contains_batch(&absent) == expected);
}

#[test]
fn growth_ends_where_the_error_rate_is_no_normal_number() {
    let given = Given { capacity: 1, error_rate: 1e-300, expansion: 1, tightening: 0.1, ..Given::default() };
    let mut oracle = Oracle::new(given);
    let mut filter = given.create();
    for number in 0..20 {
        assert_eq!(filter.insert(item(number)), oracle.insert(&item(number)), "item {number}");
    }
    assert_eq!(filter.insert(item(99)), Err(Error::CannotGrow));
    assert_eq!(filter.valkey().unwrap().max_capacity(u64::MAX), filter.capacity());
}

#[test]
fn a_filter_of_many_layers_finds_what_it_has_and_not_everything() {
    let given = Given { capacity: 1, error_rate: 1e-12, expansion: 1, tightening: 0.999_999, ..Given::default() };
    let filter = given.filled(3000);
    assert!(filter.num_layers() > 1000, "{filter:?}");
    assert!((0..3000).all(|number| filter.contains(item(number))));
    assert!((3000..6000).any(|number| !filter.contains(item(number))));
    let copy = loaded(&payload(&filter)).unwrap();
    assert!(whole(&copy) == whole(&filter));
}

#[test]
fn the_maximum_capacity_is_what_fits_into_the_memory() {
    let given = Given { capacity: 100, ..Given::default() };
    let filter = given.create();
    let max = filter.valkey().unwrap().max_capacity(1 << 20);
    let Prediction { memory, .. } = given.params().predict(max).unwrap();
    assert!(memory <= 1 << 20);
    assert_eq!([memory - 1, memory].map(|limit| filter.valkey().unwrap().max_capacity(limit) == max), [false, true]);
    let grown = given.params().predict(max + 1).unwrap();
    assert!(grown.memory > 1 << 20);
    assert_eq!(given.filled(max).memory_usage() as u64, memory);
    let fixed = Given { expansion: 0, ..given };
    assert_eq!(fixed.params().predict(101).err(), Some(Error::Full));
}

/// All layers have the same capacity, so they are not counted one by one.
#[test]
fn the_maximum_capacity_of_equal_layers_is_what_fits_into_the_memory() {
    let few_items = [(1, 0.01, 0.999), (7, 0.9, 0.01), (100, 0.5, 0.999_999), (1000, 1e-300, 0.5)];
    let many_items = [(12_345, 0.01, 0.999_9), (1 << 24, 0.001, 0.99)];
    for (capacity, error_rate, tightening) in few_items.into_iter().chain(many_items) {
        let given = Given { capacity, error_rate, tightening, expansion: 1, ..Given::default() };
        let filter = given.create();
        for limit in (0..48).step_by(4).map(|bit| 12_345 << bit).chain([0, u64::MAX]) {
            let max = filter.valkey().unwrap().max_capacity(limit);
            let fits = |items| given.params().predict(items).is_ok_and(|plan| plan.memory <= limit);
            assert!((max == capacity || fits(max)) && !fits(max + 1), "{given:?} {limit}: {max}");
        }
    }
}

#[test]
fn a_filter_grows_to_its_maximum_number_of_layers_and_no_further() {
    const LAYERS: u64 = 1 << 15;
    let given = Given { capacity: 1, error_rate: 0.5, expansion: 1, tightening: 0.999_999, ..Given::default() };
    let filter = given.create();
    assert_eq!(filter.valkey().unwrap().max_capacity(u64::MAX), LAYERS);
    assert_eq!(given.params().predict(LAYERS).err(), None);
    assert_eq!(given.params().predict(LAYERS + 1).err(), Some(Error::CannotGrow));
    // Copies the layers of a payload, since adding as many items would take long.
    let two = payload(&given.filled(2));
    let layer = (two.len() - payload(&filter).len()) as u64;
    let start = two.len() - 2 * layer as usize;
    let with = |layers: u64| {
        let layers = two[start..start + layer as usize].repeat(layers as usize);
        let mut bytes = [&two[..start], &layers].concat();
        let count = bytes[..start].len() - 8;
        bytes[count..start].copy_from_slice(&(layers.len() as u64 / layer).to_le_bytes());
        loaded(&bytes).unwrap()
    };
    let grown = |mut filter: Filter| (0..).map(|number| filter.insert(item(number))).find(|added| *added != Ok(false));
    assert_eq!(grown(with(LAYERS - 1)), Some(Ok(true)));
    assert_eq!(grown(with(LAYERS)), Some(Err(Error::CannotGrow)));
}

#[test]
fn a_capacity_that_no_file_can_hold_asks_for_no_memory() {
    // At this error rate, the bits could be addressed.
    let params = Given { capacity: 1 << 63, error_rate: 0.99, ..Given::default() }.params();
    let created = Filter::create(params, &mut |bytes| panic!("{bytes} bytes"));
    assert_eq!(created.map(drop), Err(Error::OutOfMemory));
}

/// Development versions of valkey-bloom wrote the blob of a layer before its numbers.
#[test]
fn files_with_the_blob_before_its_numbers_are_read() {
    let filter = Given::default().filled(5);
    let encoded = dump::encode(&filter).unwrap();
    // The data type and five numbers of the filter come first, then two numbers of the layer, and its blob.
    let (of_filter, of_layer) = encoded[1..encoded.len() - 11].split_at(9 + 24);
    let (numbers, blob) = of_layer.split_at(4);
    let early = dump::decode_value(&[of_filter, blob, numbers, &[0]].concat(), &mut |_| true).unwrap();
    assert!(whole(&early) == whole(&filter));
}

/// Each is a place in the payload of a filter with two layers, and what stands there.
#[test]
fn payloads_that_no_filter_has_are_rejected() {
    let good = payload(&Given::default().filled(15));
    let second = 30 + 8 + 45 + 12 + 16;
    assert_eq!(loaded(&good).unwrap().num_layers(), 2);
    let [nan, infinite, negative] = [f64::NAN, f64::INFINITY, -0.5].map(f64::to_le_bytes);
    let bad: &[(usize, &[u8])] = &[
        (0, &[0]),    // no version
        (1, &[0; 4]), // a filter that does not grow, with two layers
        (1, &[3]),    // another expansion
        (5, &[0; 8]), // the error rate: none, too high, another
        (5, &1f64.to_le_bytes()),
        (5, &0.3f64.to_le_bytes()),
        (5, &nan),
        (5, &infinite),
        (5, &negative),
        (13, &[0; 8]), // the tightening ratio
        (13, &1f64.to_le_bytes()),
        (13, &nan),
        (21, &[2]),    // neither true nor false
        (21, &[0]),    // not the fixed seed
        (22, &[0; 8]), // the number of layers
        (22, &[3]),
        (22, &[0xFF; 8]),
        (22, &(1u64 << 40).to_le_bytes()),
        (30, &[0xFF; 8]), // the length of the blob
        (30, &[56]),
        (38, &[0]),  // the version of the blob
        (39, &[14]), // its number of bytes
        (39, &[0; 8]),
        (39, &[0xFF; 8]),
        (47, &[0; 4]), // its probes
        (47, &[9]),
        (47, &[0xFF; 4]),
        (30 + 8 + 45 + 12, &[9]), // the items of a full layer
        (30 + 8 + 45 + 12, &[0xFF; 8]),
        (30 + 8 + 45 + 12 + 8, &[0; 8]), // its capacity
        (30 + 8 + 45 + 12 + 8, &[11]),
        (30 + 8 + 45 + 12 + 8, &[0xFF; 8]),
        (second + 8 + 13, &[77]), // another seed
        (good.len() - 16, &[21]), // more items than the capacity
        (good.len() - 16, &[0xFF; 8]),
        (good.len() - 8, &[19]), // not twice the capacity
    ];
    for &(offset, bytes) in bad {
        let mut forged = good.clone();
        forged[offset..][..bytes.len()].copy_from_slice(bytes);
        assert_eq!(loaded(&forged).err(), Some(DecodeError::Corrupt), "{bytes:?} at {offset}");
    }
    for offset in [0, 38] {
        let mut later = good.clone();
        later[offset] = 2;
        assert_eq!(loaded(&later).err(), Some(DecodeError::NewerVersion), "at {offset}");
    }
    for length in 0..good.len() {
        assert_eq!(loaded(&good[..length]).err(), Some(DecodeError::Corrupt), "{length} bytes");
    }
    assert!(whole(&loaded(&[&good, &b"more"[..]].concat()).unwrap()) == whole(&loaded(&good).unwrap()));
}

#[test]
fn headers_that_no_filter_has_are_rejected() {
    let good = codec::encode_header(&Given::default().filled(15)).unwrap();
    assert!(built(&good).is_ok());
    let bad: &[(usize, &[u8])] = &[
        (0, &[0]),     // the magic
        (8, &[0; 4]),  // the expansion
        (12, &[0; 8]), // the error rate
        (20, &[0; 8]), // the tightening ratio
        (60, &[3]),    // the number of layers
        (60, &[0xFF; 4]),
        (64, &[11]),      // the capacity
        (72, &[9]),       // the items
        (80, &[0xFF; 8]), // the bytes
        (88, &[9]),       // the probes
        (92 + 8, &[21]),  // the items of the last layer
    ];
    for &(offset, bytes) in bad {
        let mut forged = good.clone();
        forged[offset..][..bytes.len()].copy_from_slice(bytes);
        assert_eq!(built(&forged).err(), Some(DecodeError::Corrupt), "{bytes:?} at {offset}");
    }
    for length in 0..good.len() {
        assert_eq!(built(&good[..length]).err(), Some(DecodeError::Corrupt), "{length} bytes");
    }
    assert_eq!(built(&[&good, &good[64..92]].concat()).err(), Some(DecodeError::Corrupt));
}

/// Returns a payload of one layer with `more` bytes and probes more than it has.
fn resized(payload: &[u8], more: i8) -> Vec<u8> {
    let mut resized = payload.to_vec();
    for number in [30, 39, 47] {
        resized[number] = resized[number].wrapping_add_signed(more);
    }
    let (bits, end) = (30 + 8 + 45, payload.len() - 16);
    match more {
        1 => resized.insert(bits, 0),
        _ => drop(resized.remove(end - 1)),
    }
    resized
}

/// Another machine's logarithm may differ in its last bit.
#[test]
fn a_size_that_differs_by_rounding_is_accepted_and_kept() {
    let good = payload(&Given::default().filled(5));
    for more in [-1, 1] {
        let other = resized(&good, more);
        let filter = loaded(&other).unwrap();
        assert!(payload(&filter) == other);
        assert!(payload(&through_a_client(&filter)) == other);
    }
    // A layer has at least one byte.
    let smallest = Given { error_rate: 0.3, capacity: 1, ..Given::default() }.filled(0);
    let empty = resized(&payload(&smallest), -1);
    assert_eq!(loaded(&empty).err(), Some(DecodeError::Corrupt));
}

#[test]
fn a_filter_is_admitted_before_it_is_allocated() {
    let good = payload(&Given::default().filled(15));
    let mut asked = 0;
    let rejected = decode_payload(&good, &mut |bytes| {
        asked += bytes;
        asked <= 12
    });
    assert_eq!((rejected.err(), asked), (Some(DecodeError::OutOfMemory), 12 + 28));
}
