//! Hashes an item to 128 bits.
//!
//! An item is read only once, whatever the number of blocks, probes and layers. [`probe`](crate::probe) maps the hash
//! to positions.
//!
//! Each filter has its own seed. Anyone who knows it can craft items that collide (Gerbet, Kumar, Lauradoux 2015, "The
//! Power of Evil Choices in Bloom Filters"), so it is random by default. XXH3 is not cryptographic: without the seed,
//! such items are expensive to find, but not impossible. Classic filters have no secret seed: they hash with
//! [`murmur`](crate::murmur), as RedisBloom does.

pub(crate) mod cuckoo;

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use xxhash_rust::xxh3::{xxh3_128_with_secret, xxh3_128_with_seed};

use crate::murmur::{murmur32, murmur64};

/// 2^64 divided by the golden ratio, made odd. Multiplying by it makes the high bits of a word depend on all its bits.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The 128-bit hash of an item. Filters use nothing else of an item.
///
/// A native filter finds blocks by the first word and probes by the second; a classic one starts at the first and steps
/// by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    pub(crate) first: u64,
    pub(crate) second: u64,
}

/// The hash function of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hasher<'a> {
    /// XXH3-128, for all filters of our own that were not converted.
    Xxh3 {
        /// The filter's seed.
        seed: u64,
    },
    /// MurmurHash64A, for classic filters.
    Murmur64,
    /// MurmurHash2, for very old classic filters.
    Murmur32,
    /// MurmurHash64A without a seed, for cuckoo filters.
    Cuckoo,
    /// The same, for cuckoo filters that were converted into tables.
    ConvertedCuckoo,
    /// SipHash-1-3, for valkey filters.
    Sip {
        /// The filter's seed: the keys of both words.
        seed: &'a [u8; 32],
    },
}

impl Hasher<'_> {
    /// Returns true if both are the same function, whatever their seeds.
    pub fn is_like(self, other: Hasher<'_>) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Returns the hash of an item. Always inlined, so that a filter that knows its hash function does not choose it.
    #[inline(always)]
    pub fn hash(self, item: &[u8]) -> Hash {
        match self {
            Hasher::Xxh3 { seed } => Hash::xxh3(item, seed),
            Hasher::Murmur64 => Hash::murmur64(item),
            Hasher::Murmur32 => Hash::murmur32(item),
            Hasher::Cuckoo => Hash::in_buckets(item),
            Hasher::ConvertedCuckoo => Hash::in_table(item),
            Hasher::Sip { seed } => Hash::sip(item, seed),
        }
    }

    /// Hashes items into `hashes`, until either ends. Returns the number of hashed items.
    #[inline]
    pub fn hash_all<'i>(self, items: impl Iterator<Item = &'i [u8]>, hashes: &mut [Hash]) -> usize {
        let pairs = hashes.iter_mut().zip(items);
        match self {
            Hasher::Xxh3 { seed } => {
                let mut secret = Secret::new(seed);
                pairs.map(|(hash, item)| *hash = secret.hash(item)).count()
            }
            hasher => pairs.map(|(hash, item)| *hash = hasher.hash(item)).count(),
        }
    }
}

impl Hash {
    /// Returns the XXH3 hash of `item` under `seed`.
    ///
    /// The words for most items are in registers: a look-up takes a third fewer instructions than with a `Secret`.
    pub fn xxh3(item: &[u8], seed: u64) -> Hash {
        if item.len() <= SEED_ONLY_MAX {
            return xxh3_128_with_seed(item, seed).into();
        }
        if item.len() > FIRST_WORDS_MAX {
            return Hash::xxh3_of_long(item, seed);
        }
        let mut words = [[[0; 8]; 4]; 6];
        words[0] = next_words(&mut { seed });
        xxh3_128_with_secret(item, words.as_flattened().as_flattened()).into()
    }

    #[inline(never)]
    fn xxh3_of_long(item: &[u8], seed: u64) -> Hash {
        Secret::new(seed).hash(item)
    }

    /// Returns the two hashes of a classic filter. The seed of the second is the first.
    ///
    /// Not inlined, to keep it out of the native filter's hot path.
    #[inline(never)]
    fn murmur64(item: &[u8]) -> Hash {
        let first = murmur64(item, 0xC6A4_A793_5BD1_E995);
        Hash { first, second: murmur64(item, first) }
    }

    /// Returns the two 32-bit hashes of a very old classic filter.
    #[inline(never)]
    fn murmur32(item: &[u8]) -> Hash {
        let first = murmur32(item, 0x9747_B28C);
        Hash { first: first.into(), second: murmur32(item, first).into() }
    }

    /// Returns the two hashes of a valkey filter, of the item's length and of the item.
    ///
    /// Not inlined, to keep it out of the native filter's hot path.
    #[inline(never)]
    fn sip(item: &[u8], seed: &[u8; 32]) -> Hash {
        let (keys, _) = seed.as_chunks();
        let [first, second] = [0, 1].map(|index| {
            let mut hasher = SipHasher13::new_with_key(&keys[index]);
            hasher.write(&(item.len() as u64).to_le_bytes());
            hasher.write(item);
            hasher.finish()
        });
        Hash { first, second }
    }
}

impl From<u128> for Hash {
    #[inline(always)]
    fn from(hash: u128) -> Hash {
        Hash { first: hash as u64, second: (hash >> 64) as u64 }
    }
}

/// A seed, and the part of its secret that was needed so far.
///
/// XXH3 combines items of more than 16 bytes with the words of a secret, and multiplies. XXH3 itself derives the secret
/// by adding the seed to constants: the differences of the words are then public, and some pairs of items collide under
/// one seed in 64. So here, the words come from a random number generator whose state starts with the seed: see
/// [`wyrand`].
struct Secret {
    seed: u64,
    words: [[[u8; 8]; 4]; 6],
    /// The maximum length in bytes of items for which there are enough words.
    covers: usize,
}

/// The maximum length in bytes of items that need the seed, but no words of the secret.
const SEED_ONLY_MAX: usize = 16;

/// The maximum length in bytes of items for which 4, 8, 12, … words suffice. XXH3 needs as many words as the item has,
/// up to 128 bytes. Up to 240 bytes, it needs 17 words, and beyond that, as many as its own secret has.
const SECRET_COVERS: [usize; 6] = [FIRST_WORDS_MAX, 64, 96, 128, 240, usize::MAX];

/// The maximum length in bytes of items for which the first four words suffice.
const FIRST_WORDS_MAX: usize = 32;

impl Secret {
    #[inline]
    fn new(seed: u64) -> Secret {
        Secret { seed, words: Default::default(), covers: SEED_ONLY_MAX }
    }

    /// Hashes an item. Inlined, so that hashing many items is one loop.
    #[inline(always)]
    fn hash(&mut self, item: &[u8]) -> Hash {
        if item.len() <= SEED_ONLY_MAX {
            return xxh3_128_with_seed(item, self.seed).into();
        }
        if item.len() > self.covers {
            self.extend(item.len());
        }
        xxh3_128_with_secret(item, self.words.as_flattened().as_flattened()).into()
    }

    /// Computes the words for an item of `length` bytes.
    #[inline(never)]
    fn extend(&mut self, length: usize) {
        let mut state = self.seed;
        for (words, covers) in self.words.iter_mut().zip(SECRET_COVERS) {
            *words = next_words(&mut state);
            self.covers = covers;
            if length <= covers {
                break;
            }
        }
    }
}

/// Returns the next four words of a secret.
#[inline(always)]
fn next_words(state: &mut u64) -> [[u8; 8]; 4] {
    std::array::from_fn(|_| {
        *state = state.wrapping_add(GOLDEN);
        wyrand(*state).to_le_bytes()
    })
}

/// Returns the output of wyrand (Wang 2019) for a state: the two halves of a product, XORed.
#[inline]
fn wyrand(state: u64) -> u64 {
    let product = u128::from(state) * u128::from(state ^ 0xE703_7ED1_A0B4_28DB);
    product as u64 ^ (product >> 64) as u64
}
