//! Cuckoo filters, RedisBloom's and native ones, beside a model that remembers every item.

use std::collections::HashMap;

use models::random::Random;
use oxbloom_filter::internals::{
    CreateParams, CuckooSpec, Growth, Hash, InsertOptions, Kind, KindParams, OnDuplicate, codec,
};
use oxbloom_filter::{DecodeError, Error, Filter};
use xxhash_rust::xxh3::xxh3_64;

use crate::model::{built, by, create, item, params_of, through_a_client, through_a_file, whole};

/// Returns the parameters of a cuckoo filter of either kind.
fn params(is_native: bool, capacity: u64, growth: Growth, bucket_size: u16) -> CreateParams {
    let spec = CuckooSpec::new(growth, bucket_size, 20).unwrap();
    let kind = if is_native { KindParams::NativeCuckoo { seed: 7, spec } } else { KindParams::Cuckoo { spec } };
    params_of(kind, spec.error_rate().get(), capacity, growth)
}

fn add(filter: &mut Filter, number: u64, on_duplicate: OnDuplicate) -> Result<bool, Error> {
    let mut new = [false];
    let hashes = [filter.hash(&item(number))];
    let options = InsertOptions::from(on_duplicate);
    filter.insert_hashes(&hashes, &mut new, &mut [], &options, &mut |_| true).map_err(|failure| failure.error)?;
    Ok(new[0])
}

/// Panics unless the filter contains each item at least as often as the model.
fn check(filter: &Filter, model: &HashMap<u64, u64>) {
    let numbers: Vec<u64> = model.keys().copied().collect();
    for numbers in numbers.chunks(50) {
        let hashes: Vec<Hash> = numbers.iter().map(|&number| filter.hash(&item(number))).collect();
        let (mut found, mut counts) = ([false; 50], [0; 50]);
        filter.contains_hashes(&hashes, &mut found, 0);
        filter.count_hashes(&hashes, &mut counts[..hashes.len()]).unwrap();
        for (index, number) in numbers.iter().enumerate() {
            assert!(counts[index] >= model[number], "item {number}");
            assert_eq!(found[index], counts[index] > 0, "item {number}");
            assert_eq!(filter.contains(item(*number)), found[index], "item {number}");
        }
    }
}

#[test]
fn items_are_found_until_they_are_removed() {
    let mut random = Random(0);
    for round in 0..60 {
        let growth = [by(1), by(2), by(4)][round % 3];
        let bucket_size = [1, 2, 3, 4, 7, 8, 9][round / 2 % 7];
        let mut filter = create(params(round % 2 == 0, 64, growth, bucket_size));
        let (mut model, mut items) = (HashMap::new(), 0);
        let universe = [50, 500][round / 2 % 2];
        for step in 0..1500 {
            let number = random.below(universe);
            let count = model.entry(number).or_insert(0);
            match random.below(4) {
                0 if *count > 0 => {
                    assert!(filter.remove(item(number)).unwrap());
                    *count -= 1;
                    items -= 1;
                }
                1 if *count < 9 => match add(&mut filter, number, OnDuplicate::Skip) {
                    Ok(stored) => {
                        assert!(stored || *count > 0 || filter.contains(item(number)));
                        *count += u64::from(stored);
                        items += u64::from(stored);
                    }
                    Err(error) => panic!("{error} after {items} items"),
                },
                2 if *count < 9 => {
                    add(&mut filter, number, OnDuplicate::Count).unwrap();
                    *count += 1;
                    items += 1;
                }
                _ => {}
            }
            if step % 500 == 499 {
                filter.compact();
                check(&filter, &model);
                for copy in [through_a_file(&filter), through_a_client(&filter), filter.try_clone().unwrap()] {
                    assert!(whole(&copy) == whole(&filter));
                    assert_eq!(copy.memory_usage(), filter.memory_usage());
                    check(&copy, &model);
                }
            }
        }
        if filter.kind() == Kind::Cuckoo {
            assert_eq!(filter.len(), items);
        }
    }
}

/// As in RedisBloom, a compaction begins when more than a tenth as many items were removed as there are. It frees layers
/// until one does not get empty.
#[test]
fn removals_compact_a_filter_when_there_are_enough_of_them() {
    const REMOVALS: u64 = 200;
    let mut filter = create(params(false, 64, by(1), 2));
    (0..11 * REMOVALS).for_each(|number| assert_eq!(add(&mut filter, number, OnDuplicate::Count), Ok(true)));
    let layers = filter.num_layers();
    for number in 0..REMOVALS {
        assert_eq!(filter.remove(item(number)), Ok(true));
        assert_eq!((filter.cuckoo().unwrap().removals(), filter.num_layers()), (number + 1, layers));
    }
    assert_eq!(filter.remove(item(REMOVALS)), Ok(true));
    assert_eq!(filter.cuckoo().unwrap().removals(), 0);
    assert!(filter.num_layers() + 2 <= layers, "{} of {layers}", filter.num_layers());
}

/// Its header says that a tenth of its items were removed as soon as one was.
#[test]
fn a_forged_filter_is_not_compacted_at_each_removal() {
    for (capacity, bucket_size, growth, layers) in [(203, 203, by(1), 1024), (255, 255, by(2), 8)] {
        let mut filter = forged(capacity, bucket_size, growth, layers, None);
        let mut removals = 0;
        let is_compacted = |number: &u64| {
            removals += u64::from(filter.remove(item(*number)).unwrap());
            filter.cuckoo().unwrap().removals() == 0
        };
        let compactions = (0..600).filter(is_compacted).count();
        assert!(removals > 500 && compactions < 6, "{compactions} compactions of {layers} layers");
    }
}

/// A compaction remembers which buckets of layers are full. That must not change where a fingerprint moves.
#[test]
fn a_compaction_moves_each_item_into_the_first_layer_with_room() {
    for (bucket_size, growth, copies) in [(1, by(1), 0), (2, by(1), 0), (2, by(1), 100), (9, by(1), 0), (2, by(2), 0)] {
        let mut filter = create(params(false, 64, growth, bucket_size));
        (0..3000).for_each(|number| assert_eq!(add(&mut filter, number, OnDuplicate::Count), Ok(true)));
        // Copies of one item fill its buckets in all layers, so that the newest one does not get empty.
        (0..copies).for_each(|_| assert_eq!(add(&mut filter, 3000, OnDuplicate::Count), Ok(true)));
        let mut header = codec::encode_header(&filter).unwrap();
        // A filter that counts many items is not compacted by removals.
        header[..8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let mut sparse = built(&header).unwrap();
        let mut cursor = codec::HEADER_CURSOR;
        while let Some(chunk) = codec::next_chunk(&filter, cursor).unwrap() {
            cursor = chunk.cursor;
            codec::load_chunk(&mut sparse, cursor, &chunk.data, codec::Origin::Client, &mut |_| true).unwrap();
        }
        (0..3000).filter(|number| number % 3 > 0).for_each(|number| assert_eq!(sparse.remove(item(number)), Ok(true)));
        let expected = compacted(&sparse);
        sparse.compact();
        let slots: Vec<_> = sparse.cuckoo().unwrap().chain().iter().map(|layer| layer.slots().to_vec()).collect();
        assert!(slots.len() < filter.num_layers() && slots == expected[..slots.len()], "{bucket_size} in a bucket");
        assert!(expected[slots.len()..].iter().flatten().all(|&slot| slot == 0));
    }
}

/// Returns the slots of all layers of a filter after a thorough compaction that remembers nothing.
fn compacted(filter: &Filter) -> Vec<Vec<u8>> {
    let chain = filter.cuckoo().unwrap().chain();
    let mut slots: Vec<_> = chain.iter().map(|layer| layer.slots().to_vec()).collect();
    for newest in (1..chain.len()).rev() {
        let bucket_size = usize::from(chain[newest].spec().bucket_size);
        for index in 0..slots[newest].len() {
            let fingerprint = slots[newest][index];
            let bucket = (index / bucket_size) as u64;
            let other = bucket ^ (u64::from(fingerprint) * 0x5BD1_E995);
            let mut places =
                (0..newest).flat_map(|layer| [(layer, bucket), (layer, other)]).flat_map(|(layer, bucket)| {
                    let start = (bucket & (chain[layer].spec().buckets - 1)) as usize * bucket_size;
                    (start..start + bucket_size).map(move |slot| (layer, slot))
                });
            if fingerprint != 0
                && let Some((layer, slot)) = places.find(|&(layer, slot)| slots[layer][slot] == 0)
            {
                slots[layer][slot] = fingerprint;
                slots[newest][index] = 0;
            }
        }
    }
    slots
}

#[test]
fn a_full_filter_that_does_not_grow_stays_as_it_is() {
    for is_native in [false, true] {
        let mut filter = create(params(is_native, 64, Growth::Fixed, 2));
        let added = (0..1000).take_while(|&number| add(&mut filter, number, OnDuplicate::Count).is_ok()).count() as u64;
        assert!((48..=64).contains(&added), "{added}");
        let before = whole(&filter);
        let rejected = (1000..2000).filter(|&number| add(&mut filter, number, OnDuplicate::Count) == Err(Error::Full));
        assert!(rejected.count() > 900);
        assert!(is_native || whole(&filter).1.len() == before.1.len());
        assert!((0..added).all(|number| filter.contains(item(number))));
    }
}

/// The numbers of items are not close to those at which a layer is added, since that depends on the items.
#[test]
fn a_filter_takes_what_was_planned() {
    let cases = [(Growth::Fixed, 500), (by(1), 500), (by(1), 3300), (by(2), 0), (by(2), 2000), (by(2), 5000)];
    for (growth, items) in cases {
        let params = params(false, 1024, growth, 4);
        let plan = params.predict(items).unwrap();
        let mut filter = create(params);
        (0..items).for_each(|number| assert_eq!(add(&mut filter, number, OnDuplicate::Count), Ok(true)));
        assert_eq!(plan.memory, filter.memory_usage() as u64, "{growth:?}, {items} items");
        let layers: Vec<_> = filter.layers().map(|layer| (layer.bytes, layer.bits / 8, layer.capacity)).collect();
        assert!(layers.iter().all(|&(bytes, bytes_of_bits, slots)| bytes == bytes_of_bits && bytes == slots));
        assert_eq!(layers.iter().map(|&(bytes, ..)| bytes).sum::<u64>(), filter.capacity());
        let (planned, real) = (plan.false_positive_rate, filter.false_positive_rate());
        let measured = false_positive_rate(&filter);
        assert!((planned - real).abs() <= 1e-9 * planned, "{growth:?}, {items} items: {planned} planned, {real} real");
        assert!((measured - real).abs() <= 0.1 * real, "{growth:?}, {items} items: {measured}, not {real}");
        // RedisBloom 2.8.2 says that a filter with 1024 slots takes 1080 bytes, and 16 more for each further layer.
        let more = 16 * (layers.len() as u64 - 1) + filter.capacity() - 1024;
        assert_eq!(filter.cuckoo().unwrap().redisbloom_size(), 1080 + more);
    }
    for bucket_size in [4, 5] {
        let slots = 256 * u64::from(bucket_size);
        let most = params(false, slots, Growth::Fixed, bucket_size);
        assert_eq!(most.predict(slots).err(), Some(Error::Full), "no filter fills all of its slots");
    }
    assert_eq!(params(false, 20, Growth::Fixed, 5).predict(20).err(), Some(Error::Full), "19 items are 95 %");
}

#[test]
fn copies_of_one_item_take_bounded_memory() {
    for growth in [by(1), by(2), by(32768)] {
        let mut filter = create(params(false, 1024, growth, 2));
        let added = (0..100_000).take_while(|_| add(&mut filter, 1, OnDuplicate::Count).is_ok()).count();
        assert!(added >= 4, "{growth:?}");
        assert!(filter.memory_usage() < 64 << 20, "{} bytes", filter.memory_usage());
        assert_eq!(add(&mut filter, 1, OnDuplicate::Count), Err(Error::CannotGrow));
        let mut native = create(params(true, 1024, growth, 2));
        (0..100_000).for_each(|_| assert!(add(&mut native, 1, OnDuplicate::Count).is_ok()));
        assert_eq!(native.count(item(1)), Ok(100_000));
        assert!(native.memory_usage() < 16 << 10);
    }
}

/// In RedisBloom, 91 copies of an item take 8.6 GB.
#[test]
fn a_large_filter_with_few_items_only_grows_to_four_times_its_first_size() {
    const SLOTS: u64 = 1 << 23;
    let grown = |expansion: u32, items: u64| {
        let mut header = codec::encode_header(&create(params(false, SLOTS, by(expansion), 1))).unwrap();
        // The filter counts these items, but its slots are free.
        header[..8].copy_from_slice(&(items - 2).to_le_bytes());
        let mut filter = built(&header).unwrap();
        (0..2).for_each(|_| assert_eq!(add(&mut filter, 1, OnDuplicate::Count), Ok(true)));
        assert_eq!((filter.len(), filter.num_layers()), (items, 1));
        add(&mut filter, 1, OnDuplicate::Count)
    };
    assert_eq!(grown(4, 2), Ok(true));
    assert_eq!(grown(8, SLOTS / 8 - 1), Err(Error::CannotGrow));
    assert_eq!(grown(8, SLOTS / 8), Ok(true));
}

#[test]
fn headers_that_no_filter_has_are_rejected() {
    let header = codec::encode_header(&create(params(false, 1024, by(2), 2))).unwrap();
    assert!(built(&header).is_ok());
    // No power of two of buckets, too many buckets or removals or layers, none; a bucket size of 0, or above 255; no
    // power of two as expansion.
    let bad: [(usize, &[u8]); 10] = [
        (8, &[3]),
        (8, &[0; 8]),
        (15, &[0x80]),
        (23, &[0xFF]),
        (24, &[0; 8]),
        (25, &[0xFF; 2]),
        (24, &[64]),
        (32, &[0; 2]),
        (33, &[1]),
        (36, &[3]),
    ];
    for (offset, bytes) in bad {
        let mut forged = header.clone();
        forged[offset..][..bytes.len()].copy_from_slice(bytes);
        assert!(matches!(built(&forged), Err(DecodeError::Corrupt)), "{bytes:?} at {offset}");
    }
    // Only clients must not create a filter without iterations.
    let mut idle = header.clone();
    idle[34..36].fill(0);
    let decoded = |origin| codec::Header::decode(&idle, origin).map(drop);
    assert_eq!(decoded(codec::Origin::Client), Err(DecodeError::Corrupt));
    assert_eq!(decoded(codec::Origin::Replication), Ok(()));
}

#[test]
fn numbers_at_their_limits_stay_in_files_that_can_be_loaded() {
    let mut header = codec::encode_header(&create(params(false, 1024, by(2), 2))).unwrap();
    for at in [0, 16] {
        header[at..at + 8].copy_from_slice(&(1u64 << 48).to_le_bytes());
    }
    let mut filter = built(&header).unwrap();
    assert_eq!(add(&mut filter, 1, OnDuplicate::Count), Err(Error::CannotGrow));
    header[..8].copy_from_slice(&((1u64 << 48) - 1).to_le_bytes());
    let mut filter = built(&header).unwrap();
    assert_eq!(add(&mut filter, 1, OnDuplicate::Count), Ok(true));
    assert_eq!(filter.len(), 1 << 48);
    assert!(whole(&through_a_file(&filter)) == whole(&filter));
    assert_eq!(filter.remove(item(1)), Ok(true));
    assert_eq!(filter.cuckoo().unwrap().removals(), 1 << 48);
    assert!(whole(&through_a_file(&filter)) == whole(&filter));
}

#[test]
fn a_number_of_items_that_fell_below_0_in_redisbloom_is_0() {
    let mut filter = create(params(false, 1024, by(2), 2));
    assert_eq!(add(&mut filter, 1, OnDuplicate::Count), Ok(true));
    let mut header = codec::encode_header(&filter).unwrap();
    assert_eq!(built(&header).unwrap().len(), 1);
    header[..8].copy_from_slice(&(-1i64).to_le_bytes());
    assert_eq!(built(&header).unwrap().len(), 0);
}

#[test]
fn a_replica_stores_all_copies_that_its_master_stored() {
    let mut filter = create(params(false, 1024, by(2), 2));
    let options = InsertOptions { is_replay: true, ..OnDuplicate::Count.into() };
    let hashes = [filter.hash(&item(1))];
    for _ in 0..65 {
        assert!(filter.insert_hashes(&hashes, &mut [false], &mut [], &options, &mut |_| true).is_ok());
    }
    assert_eq!(filter.count(item(1)), Ok(65));
    assert_eq!(add(&mut filter, 1, OnDuplicate::Count), Ok(true), "there is room in the newest layer");
    let rejected = (0..4).map(|_| add(&mut filter, 1, OnDuplicate::Count)).find(Result::is_err);
    assert_eq!(rejected, Some(Err(Error::CannotGrow)), "a client's copies are bounded");
}

#[test]
fn headers_of_native_filters_with_figures_that_no_filter_has_are_rejected() {
    let header = codec::encode_header(&create(params(true, 1024, by(2), 2))).unwrap();
    let (body, _) = header.split_last_chunk::<8>().unwrap();
    // A bucket size of 0, or above 255; an expansion that is no power of two, another than the filter's, or none.
    let bad: [(usize, &[u8]); 5] = [(48, &[0; 2]), (49, &[1]), (52, &[3]), (52, &[4]), (52, &[0])];
    for (offset, bytes) in [(48, &[2][..])].into_iter().chain(bad) {
        let mut forged = body.to_vec();
        let is_same = forged[offset..].starts_with(bytes);
        forged[offset..][..bytes.len()].copy_from_slice(bytes);
        let built = built(&[&forged[..], &xxh3_64(&forged).to_le_bytes()].concat());
        assert!(is_same == built.is_ok(), "{bytes:?} at {offset}: {:?}", built.err());
    }
}

#[test]
fn a_filter_is_the_same_whether_it_was_asked_for_an_expansion_or_its_rounding() {
    for is_native in [false, true] {
        let [asked, rounded] = [by(3), by(4)].map(|growth| create(params(is_native, 1024, growth, 2)));
        assert!(whole(&asked) == whole(&rounded));
        assert_eq!(asked.expansion(), Some(4));
    }
}

#[test]
fn chunks_of_a_client_never_overwrite_items() {
    let mut filter = create(params(false, 1024, by(2), 2));
    (0..100).for_each(|number| assert_eq!(add(&mut filter, number, OnDuplicate::Count), Ok(true)));
    let header = codec::encode_header(&filter).unwrap();
    let chunk = codec::next_chunk(&filter, codec::HEADER_CURSOR).unwrap().unwrap();
    let mut copy = built(&header).unwrap();
    assert_eq!(add(&mut copy, 1000, OnDuplicate::Count), Ok(true));
    let load =
        |copy: &mut Filter, origin| codec::load_chunk(copy, chunk.cursor, &chunk.data, origin, &mut |_| true).map(drop);
    assert_eq!(load(&mut copy, codec::Origin::Client), Err(DecodeError::Foreign));
    assert!(copy.contains(item(1000)));
    assert_eq!(load(&mut copy, codec::Origin::Replication), Ok(()));
    assert_eq!(load(&mut copy, codec::Origin::Client), Ok(()), "a chunk may be loaded again");
    let nothing = codec::load_chunk(&mut copy, chunk.cursor, &[], codec::Origin::Client, &mut |_| true).map(drop);
    assert_eq!(nothing, Err(DecodeError::Corrupt));
    assert!(whole(&copy).1 == whole(&filter).1);
}

/// Returns the share of absent items that a filter finds.
fn false_positive_rate(filter: &Filter) -> f64 {
    const ABSENT: u64 = 50_000;
    (0..ABSENT).filter(|number| filter.contains(item(1 << 40 | number))).count() as f64 / ABSENT as f64
}

#[test]
fn a_converted_filter_has_all_items_with_their_counts() {
    let mut random = Random(0);
    for (bucket_size, growth) in [(1, by(1)), (2, by(2)), (2, by(4)), (4, by(1)), (4, by(2)), (7, by(8))] {
        let mut cuckoo = create(params(false, 64, growth, bucket_size));
        let mut model = HashMap::new();
        for _ in 0..20_000 {
            let number = random.below(8_000);
            let count = model.entry(number).or_insert(0);
            if random.chance(25) && *count > 0 {
                assert!(cuckoo.remove(item(number)).unwrap());
                *count -= 1;
            } else if *count < 3 && add(&mut cuckoo, number, OnDuplicate::Count).is_ok() {
                *count += 1;
            }
        }
        let mut converted = cuckoo.converted(&mut |_| true).unwrap().unwrap();
        assert_eq!(converted.kind(), Kind::NativeCuckoo);
        check(&converted, &model);
        // Each answer is the same, whether the item is there or not.
        for number in (0..8_000).chain(1 << 40..(1 << 40) + 20_000) {
            assert_eq!(converted.contains(item(number)), cuckoo.contains(item(number)), "item {number}");
        }
        for copy in [through_a_file(&converted), through_a_client(&converted)] {
            assert!(whole(&copy) == whole(&converted));
            check(&copy, &model);
        }
        let before = false_positive_rate(&converted);
        for number in 10_000..40_000 {
            add(&mut converted, number, OnDuplicate::Count).unwrap();
            *model.entry(number).or_insert(0) += 1;
        }
        check(&converted, &model);
        let after = false_positive_rate(&converted);
        // The new items only add what a filter with the requested rate would have.
        assert!(after <= before + converted.error_rate(), "{after} after {before}");
        let numbers: Vec<_> = model.keys().copied().collect();
        for number in numbers {
            for _ in 0..model.remove(&number).unwrap() {
                assert!(converted.remove(item(number)).unwrap());
            }
            if number.is_multiple_of(5000) {
                check(&converted, &model);
            }
        }
        assert_eq!(converted.native_cuckoo().unwrap().table().slots(), 0);
    }
}

/// Returns a filter whose slots are all filled, with any fingerprints or all with the same. Its header counts no items.
fn forged(capacity: u64, bucket_size: u16, growth: Growth, layers: u64, fingerprint: Option<u8>) -> Filter {
    let mut header = codec::encode_header(&create(params(false, capacity, growth, bucket_size))).unwrap();
    header[24..32].copy_from_slice(&layers.to_le_bytes());
    let empty = built(&header).unwrap();
    let mut full = built(&header).unwrap();
    let (mut cursor, mut random) = (codec::HEADER_CURSOR, Random(0));
    while let Some(chunk) = codec::next_chunk(&empty, cursor).unwrap() {
        cursor = chunk.cursor;
        let slots: Vec<u8> =
            chunk.data.iter().map(|_| fingerprint.unwrap_or_else(|| 1 + random.below(255) as u8)).collect();
        codec::load_chunk(&mut full, cursor, &slots, codec::Origin::Replication, &mut |_| true).unwrap();
    }
    full
}

/// A segment of the table has up to 2,048 slots, and asks for memory each time that it is built.
#[test]
fn a_conversion_takes_few_steps_whatever_the_shape_of_the_filter() {
    // The largest buckets, many layers, the most layers, both, and layers of many sizes.
    let shapes = [
        (4080, 255, by(1), 2),
        (1000, 8, by(1), 32),
        (1, 2, by(1), 1024),
        (64, 64, by(1), 1024),
        (255, 255, by(2), 9),
        (1, 1, by(2), 16),
        (4, 4, by(16), 4),
    ];
    for (capacity, bucket_size, growth, layers) in shapes {
        for fingerprint in [None, Some(1), Some(128)] {
            let case = format!("{bucket_size} in a bucket, {layers} layers, fingerprint {fingerprint:?}");
            let filter = forged(capacity, bucket_size, growth, layers, fingerprint);
            let mut steps = 0;
            let mut count_step = |_bytes| {
                steps += 1;
                true
            };
            let converted = filter.converted(&mut count_step).unwrap().unwrap();
            assert!(steps <= 16 + filter.capacity() / 128, "{case}: {steps} steps for {} slots", filter.capacity());
            assert_eq!(converted.native_cuckoo().unwrap().table().occurrences(), filter.capacity(), "{case}");
            for number in 0..2000 {
                assert_eq!(converted.contains(item(number)), filter.contains(item(number)), "{case}: item {number}");
            }
            assert!(whole(&through_a_file(&converted)) == whole(&converted), "{case}");
        }
    }
}
