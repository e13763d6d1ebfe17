//! MurmurHash2 (Austin Appleby 2008, public domain), in the two widths that RedisBloom's filters use.
//!
//! It has collisions under any seed (Aumasson and Bernstein 2012, "SipHash: a fast short-input PRF"). This is one of
//! the reasons why our own filters use another hash function.

/// Returns the MurmurHash64A of an item, which it reads in little-endian words.
#[inline]
pub(crate) fn murmur64(item: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xC6A4_A793_5BD1_E995;
    const R: u32 = 47;
    let (words, rest) = item.as_chunks();
    let mut hash = seed ^ (item.len() as u64).wrapping_mul(M);
    for &word in words {
        let mut word = u64::from_le_bytes(word).wrapping_mul(M);
        word = (word ^ (word >> R)).wrapping_mul(M);
        hash = (hash ^ word).wrapping_mul(M);
    }
    if !rest.is_empty() {
        // The rest is the end of the last eight bytes, if there are as many.
        let rest = match item.last_chunk() {
            Some(&last) => u64::from_le_bytes(last) >> (u64::BITS - u8::BITS * rest.len() as u32),
            None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        hash = (hash ^ rest).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> R)).wrapping_mul(M);
    hash ^ (hash >> R)
}

/// Returns the MurmurHash2 of an item, which it reads in little-endian words of 32 bits.
pub(crate) fn murmur32(item: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5BD1_E995;
    const R: u32 = 24;
    let (words, rest) = item.as_chunks();
    let mut hash = seed ^ item.len() as u32;
    for &word in words {
        let mut word = u32::from_le_bytes(word).wrapping_mul(M);
        word = (word ^ (word >> R)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ word;
    }
    if !rest.is_empty() {
        let rest = rest.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        hash = (hash ^ rest).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}
