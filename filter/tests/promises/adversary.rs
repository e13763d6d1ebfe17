//! Adversaries that know the code but not the seed. On a filter with another seed, items that were crafted for one seed
//! have the same effect as random items.
//!
//! The attacks are those of Gerbet, Kumar and Lauradoux (2015), "The Power of Evil Choices in Bloom Filters", who
//! attacked a crawler:
//!
//! - *Forgery* finds items that are false positives.
//! - *Pollution* adds items that raise the false-positive rate for all others. Each item sets as many new bits as
//!   possible, or all items set bits in the same region.
//!
//! The adversary searches with filters of its own. The items that it finds must have an effect on a filter with the
//! same seed. On a filter with another seed, the effect must stay within the bounds that [`rates`](crate::rates)
//! explains. A classic filter has no secret seed, so all attacks succeed. The last test uses pairs of items with equal
//! XXH3 hashes under many seeds, which a filter must tell apart.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use oxbloom_filter::Filter;
use oxbloom_filter::internals::{Growth, Hash, KindParams};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128, xxh3_128_with_seed};

use crate::model::{CLASSIC, by, content_bytes, create, params_of};
use crate::rates::{Measurement, most_by_chance};

const CAPACITY: usize = 1000;
const RATE: f64 = 0.01;

/// The seed that the adversary knows.
const KNOWN: u64 = 0x3C6E_F372_FE94_F82B;

/// Seeds that the adversary does not know: some derived from the known seed, two simple ones, and a random one.
const OTHERS: [u64; 8] =
    [KNOWN + 1, KNOWN - 1, KNOWN ^ (1 << 63), !KNOWN, KNOWN.swap_bytes(), 0, 1, 0xA54F_F53A_5F1D_36F1];

/// The ranges of item lengths. The hash function has a different code path for each.
const LENGTHS: [RangeInclusive<usize>; 6] = [1..=3, 4..=8, 9..=16, 17..=128, 129..=240, 241..=500];

const SEEDED: [fn(u64) -> KindParams; 2] = [|seed| KindParams::Native { seed }, |seed| KindParams::Counting { seed }];

type Items = Vec<Vec<u8>>;

fn empty(kind: KindParams) -> Filter {
    create(params_of(kind, RATE, CAPACITY as u64, Growth::Fixed))
}

fn insert(filter: &mut Filter, items: &Items) {
    items.iter().for_each(|item| assert!(filter.insert(item).is_ok()));
}

fn holding(kind: KindParams, items: &Items) -> Filter {
    let mut filter = empty(kind);
    insert(&mut filter, items);
    filter
}

/// Returns the number of items that a filter finds.
fn found(filter: &Filter, items: &Items) -> u64 {
    items.iter().filter(|item| filter.contains(item)).count() as u64
}

/// Returns an endless sequence of different pseudorandom items.
fn candidates(lengths: &RangeInclusive<usize>) -> impl Iterator<Item = Vec<u8>> {
    let (shortest, lengths) = (*lengths.start(), lengths.clone().count());
    let mut seen = HashSet::new();
    (0u64..)
        .map(move |number| {
            let word = |index: usize| xxh3_64_with_seed(&number.to_le_bytes(), index as u64);
            let length = shortest + word(0) as usize % lengths;
            let mut item: Vec<u8> = (1..=length.div_ceil(8)).flat_map(|index| word(index).to_le_bytes()).collect();
            item.truncate(length);
            item
        })
        .filter(move |item| seen.insert(xxh3_128(item)))
}

/// Finds items that are false positives.
fn forge(filter: &Filter, candidates: &mut impl Iterator<Item = Vec<u8>>) -> Items {
    candidates.filter(|item| filter.contains(item)).take(CAPACITY).collect()
}

/// Returns the positions of the bits that an item sets in an empty filter.
fn positions(empty: &Filter, item: &[u8]) -> Vec<usize> {
    let mut filter = empty.try_clone().unwrap();
    assert_eq!(filter.insert(item), Ok(true));
    let marked = content_bytes(&filter).into_iter().enumerate().filter(|(_, byte)| *byte != 0);
    marked
        .flat_map(|(index, byte)| (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| 8 * index + bit))
        .collect()
}

/// Finds as many items as the filter's capacity. Each is the one of 32 candidates that sets the most bits that no
/// earlier item has set.
fn spread(empty: &Filter, candidates: &mut impl Iterator<Item = Vec<u8>>) -> Items {
    const TRIES: usize = 32;
    let mut taken = HashSet::new();
    let mut best = || {
        let tries = candidates.by_ref().take(TRIES).map(|item| (positions(empty, &item), item));
        let new = |positions: &[usize]| positions.iter().filter(|position| !taken.contains(*position)).count();
        let (positions, item) = tries.max_by_key(|(positions, _)| new(positions)).unwrap();
        taken.extend(positions);
        item
    };
    (0..CAPACITY).map(|_| best()).collect()
}

/// Finds as many items as the filter's capacity. All their bits are in the first quarter of the filter.
fn crowd(empty: &Filter, candidates: &mut impl Iterator<Item = Vec<u8>>) -> Items {
    let quarter = 8 * content_bytes(empty).len() / 4;
    candidates.filter(|item| positions(empty, item).iter().all(|&position| position < quarter)).take(CAPACITY).collect()
}

/// Measures the false-positive rate of a filter with the items.
fn measured(kind: KindParams, how: &str, items: &Items) -> Measurement {
    let what = format!("{kind:?}, {how}");
    Measurement::new(what, |_| empty(kind), |filter, _| insert(filter, items), 4, 25_000)
}

#[test]
fn forged_items_are_false_positives_for_one_seed_only() {
    for (kind, lengths) in SEEDED.iter().flat_map(|kind| LENGTHS.iter().map(move |lengths| (kind, lengths))) {
        let mut candidates = candidates(lengths);
        let contents: Items = candidates.by_ref().take(CAPACITY).collect();
        let forged = forge(&holding(kind(KNOWN), &contents), &mut candidates);
        assert_eq!(found(&holding(kind(KNOWN), &contents), &forged), CAPACITY as u64);
        let elsewhere = OTHERS.map(|seed| found(&holding(kind(seed), &contents), &forged));
        println!("{:?}, {lengths:?}: {elsewhere:?} of {CAPACITY} each", kind(KNOWN));
        let each = most_by_chance(RATE, CAPACITY as f64);
        assert!(elsewhere.iter().all(|&found| found as f64 <= each), "{lengths:?}: {elsewhere:?}, limit {each}");
        let all = most_by_chance(RATE, (OTHERS.len() * CAPACITY) as f64);
        assert!(elsewhere.iter().sum::<u64>() as f64 <= all, "{lengths:?}: {elsewhere:?}, limit {all}");
    }
}

#[test]
fn polluting_items_pollute_for_one_seed_only() {
    let kind = |seed| KindParams::Native { seed };
    for lengths in &LENGTHS {
        let own = empty(kind(KNOWN));
        for (how, items) in
            [("spread", spread(&own, &mut candidates(lengths))), ("crowded", crowd(&own, &mut candidates(lengths)))]
        {
            let how = format!("{how} items of {lengths:?} bytes");
            let known = measured(kind(KNOWN), &how, &items).exceeds(2.0 * RATE);
            assert!(known.is_some(), "{:?}, {how}", kind(KNOWN));
            for seed in OTHERS {
                assert_eq!(measured(kind(seed), &how, &items).exceeds(RATE), None);
            }
        }
    }
}

/// Returns true if both words of a hash are in the first quarter of their range.
fn starts_low(hash: u128) -> bool {
    [hash as u64, (hash >> 64) as u64].iter().all(|word| word >> 62 == 0)
}

/// A table has one entry per item, whatever the item's hash is. So chosen items raise the error rate no more than
/// random ones.
#[test]
fn no_items_pollute_a_counting_filter() {
    let kind = KindParams::Counting { seed: KNOWN };
    for lengths in &LENGTHS[..3] {
        let mut own = empty(kind);
        let spread = candidates(lengths).filter(|item| own.insert(item) == Ok(true)).take(CAPACITY).collect();
        let crowd =
            candidates(lengths).filter(|item| starts_low(xxh3_128_with_seed(item, KNOWN))).take(CAPACITY).collect();
        for (how, items) in [("spread", spread), ("crowded", crowd)] {
            let how = format!("{how} items of {lengths:?} bytes");
            assert_eq!(measured(kind, &how, &items).exceeds(RATE), None);
        }
    }
}

/// Returns `2^pairs` items of `16 * pairs` bytes that have the same MurmurHash64A hash under every seed.
///
/// The hash function first mixes each word of an item alone, and then combines it with the hash. The multiplication
/// that follows preserves a change of the top bit, so an equal change in the next word cancels it.
fn murmur_twins(pairs: usize) -> Items {
    const FACTOR: u64 = 0xC6A4_A793_5BD1_E995;
    // The inverse of an odd number, by Newton's method.
    let inverse = (0..6).fold(1u64, |x, _| x.wrapping_mul(2u64.wrapping_sub(FACTOR.wrapping_mul(x))));
    let unmixed = |word: u64| {
        let word = word.wrapping_mul(inverse);
        (word ^ word >> 47).wrapping_mul(inverse)
    };
    let word = |pair: usize, flipped: bool| unmixed((pair as u64 + 1) | (u64::from(flipped) << 63)).to_le_bytes();
    let item =
        |choice: usize| (0..pairs).flat_map(move |pair| [word(pair, choice >> pair & 1 == 1); 2].concat()).collect();
    (0..1 << pairs).map(item).collect()
}

#[test]
fn some_items_collide_in_every_classic_filter_but_in_no_other() {
    let twins = murmur_twins(8);
    assert_eq!(twins.iter().collect::<HashSet<_>>().len(), 256);
    let twins_found = |kind, error_rate: f64, capacity: u64| {
        let mut filter = create(params_of(kind, error_rate, capacity, by(2)));
        assert_eq!(filter.insert(&twins[0]), Ok(true));
        found(&filter, &twins)
    };
    for (error_rate, capacity) in [(0.1, 100), (0.01, 1000), (1e-9, 12_345), (0.001, 1_000_000)] {
        assert_eq!(twins_found(CLASSIC, error_rate, capacity), 256);
        for (kind, seed) in SEEDED.iter().flat_map(|kind| OTHERS.map(|seed| (kind, seed))) {
            assert_eq!(twins_found(kind(seed), error_rate, capacity), 1);
        }
    }
}

/// Returns a pair of long items that differ in two words, at `places`. They have the same hash if the seed matches
/// `difference`.
///
/// For items above 240 bytes, XXH3 combines words of the item with words of a secret, which are constants plus or minus
/// the seed. It multiplies the two halves of each combined word, and sums up every eighth product. Changes of the top
/// bits of two words in the same sum cancel if the combined words have equal lower halves. To make them equal, the
/// lower halves of the item's words must differ by the XOR of the secret's. This XOR depends on the seed. It has the
/// form `x ^ (x + d)`, where `d` is a constant and `x` depends on the seed.
fn long_pair(length: usize, places: [usize; 2], difference: u32, is_flipped: bool) -> [Vec<u8>; 2] {
    let mut item = vec![b'/'; length];
    let word = u64::from(difference) | u64::from(is_flipped) << 63;
    for (place, word) in places.into_iter().zip([0, word]) {
        item[place..place + 8].copy_from_slice(&word.to_le_bytes());
    }
    let mut twin = item.clone();
    places.into_iter().for_each(|place| twin[place + 7] ^= 0x80);
    [item, twin]
}

/// Returns a pair of items of 32 bytes that have the same hash under one seed in `2^18`.
///
/// For items of 17 to 240 bytes, XXH3 multiplies two combined words with each other. If the item's words are
/// complements, XORing both with the XOR of the combined words exchanges the factors and preserves the product. This
/// XOR has the form `x ^ (x + d)` again.
fn short_pair() -> [Vec<u8>; 2] {
    let item = |word: u64| [[b'/'; 16].as_slice(), &word.to_le_bytes(), &(!word).to_le_bytes()].concat();
    [item(0), item(0x0500_C444_9212_1551)]
}

/// Returns the number of seeds under which the items of a pair have the same hash: in XXH3, and in a filter.
fn collisions([item, twin]: &[Vec<u8>; 2], seeds: impl Iterator<Item = u64>) -> [u64; 2] {
    seeds.fold([0, 0], |[to_xxh3, to_filter], seed| {
        let collides_in_xxh3 = xxh3_128_with_seed(item, seed) == xxh3_128_with_seed(twin, seed);
        let collides_in_filter = Hash::xxh3(item, seed) == Hash::xxh3(twin, seed);
        [to_xxh3 + u64::from(collides_in_xxh3), to_filter + u64::from(collides_in_filter)]
    })
}

/// Returns pseudorandom seeds.
fn seeds(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|number| xxh3_64_with_seed(&number.to_le_bytes(), KNOWN))
}

#[test]
fn pairs_that_collide_in_xxh3_under_many_seeds_do_not_collide_in_a_filter() {
    for (pair, bits) in [
        (long_pair(1000, [0, 768], 0x060A_0410, false), 6),
        (long_pair(264, [64, 192], 0x8823_410A, true), 8),
        (short_pair(), 18),
    ] {
        let expected = 16;
        let [to_xxh3, to_filter] = collisions(&pair, seeds(expected << bits));
        println!("{} bytes: {to_xxh3} of {} seeds", pair[0].len(), expected << bits);
        assert!((expected / 4..expected * 4).contains(&to_xxh3), "{} bytes: {to_xxh3}", pair[0].len());
        assert_eq!(to_filter, 0, "{} bytes", pair[0].len());
    }
}
