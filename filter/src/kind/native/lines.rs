//! Look-ups and insertions of many items in blocks that are cache lines.
//!
//! The seven positions that come from one word of hash are tested with AVX2 where the processor has it: both halves of
//! the line are in registers, and each lane selects the word with its bit. This takes a third of the instructions of a
//! loop over the positions, which the compiler does not vectorize. On a filter in the cache, a look-up takes 3 ns
//! instead of 8, without the hash.

use bitvec::prelude::*;
use multiversion::multiversion;
use multiversion::target::match_target;

use crate::array::WORD;
use crate::hash::Hash;
use crate::line::Line;
use crate::probe::{PROBE_BITS, PROBES_PER_WORD, ProbePattern};

/// Returns true if the item may have been inserted.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub(super) fn contains(lines: &[Line], pattern: ProbePattern, hash: Hash) -> bool {
    let probes = pattern.first_probes().min(PROBES_PER_WORD);
    let line = &lines[pattern.first_block_of(hash, lines.len())];
    let begins = match_target! {
        "x86_64+avx2+bmi1+bmi2+lzcnt+popcnt" => avx2::are_set(line, hash.second, probes),
        _ => are_set(line, hash, probes),
    };
    begins && (probes == pattern.probes() || others_are_set(lines, pattern, hash))
}

/// Sets `found[i]` to whether the item of `hashes[i]` may have been inserted.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
pub(super) fn contains_hashes(lines: &[Line], pattern: ProbePattern, hashes: &[Hash], found: &mut [bool]) {
    let probes = pattern.first_probes().min(PROBES_PER_WORD);
    for (found, &hash) in found.iter_mut().zip(hashes) {
        let line = &lines[pattern.first_block_of(hash, lines.len())];
        let begins = match_target! {
            "x86_64+avx2+bmi1+bmi2+lzcnt+popcnt" => avx2::are_set(line, hash.second, probes),
            _ => are_set(line, hash, probes),
        };
        *found = begins && (probes == pattern.probes() || others_are_set(lines, pattern, hash));
    }
}

/// Inserts items in order, and sets `new[i]` to whether item `i` was new. Returns the number of bits that were clear.
#[inline]
pub(super) fn insert(lines: &mut [Line], pattern: ProbePattern, hashes: &[Hash], new: &mut [bool]) -> u64 {
    // For one item, choosing the version for this processor takes longer than it saves.
    if let ([hash], [new, ..]) = (hashes, &mut *new) {
        let set = set_one(lines, pattern, *hash);
        *new = set > 0;
        return set;
    }
    insert_many(lines, pattern, hashes, new)
}

#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn insert_many(lines: &mut [Line], pattern: ProbePattern, hashes: &[Hash], new: &mut [bool]) -> u64 {
    let probes = pattern.first_probes().min(PROBES_PER_WORD);
    let mut bits = 0;
    for (new, &hash) in new.iter_mut().zip(hashes) {
        let begins = match_target! {
            "x86_64+avx2+bmi1+bmi2+lzcnt+popcnt" => {
                let line = &lines[pattern.first_block_of(hash, lines.len())];
                avx2::are_set(line, hash.second, probes)
            }
            // This takes as long as setting the bits.
            _ => false,
        };
        let is_present = begins && (probes == pattern.probes() || others_are_set(lines, pattern, hash));
        let set = if is_present { 0 } else { set_one(lines, pattern, hash) };
        *new = set > 0;
        bits += set;
    }
    bits
}

/// Sets the positions of an item. Returns the number of them that were clear.
#[inline(always)]
fn set_one(lines: &mut [Line], pattern: ProbePattern, hash: Hash) -> u64 {
    if pattern.probes() != pattern.first_probes() {
        return set_all(lines, pattern, hash);
    }
    let line = &mut lines[pattern.first_block_of(hash, lines.len())];
    match pattern.probes() {
        1 => set::<1>(line, hash),
        2 => set::<2>(line, hash),
        3 => set::<3>(line, hash),
        4 => set::<4>(line, hash),
        5 => set::<5>(line, hash),
        6 => set::<6>(line, hash),
        7 => set::<7>(line, hash),
        _ => set_all(lines, pattern, hash),
    }
}

/// Returns true if the item's first positions are set in its first block.
#[inline]
fn are_set(line: &Line, hash: Hash, probes: u8) -> bool {
    let line = line.view_bits::<Lsb0>();
    // Branchless: the probes share one cache miss, and a branch for each would be mispredicted half of the time.
    let mut all = true;
    hash.probes().next_positions(probes, |position| all &= line[position]);
    all
}

/// Returns true if the positions of an item are set that [`contains`] does not test itself.
///
/// Not inlined: most layers have one block and at most seven probes per item, and most misses end there.
#[inline(never)]
fn others_are_set(lines: &[Line], pattern: ProbePattern, hash: Hash) -> bool {
    let mut positions = hash.probes();
    let tested = pattern.first_probes().min(PROBES_PER_WORD);
    positions.next_positions(tested, |_| {});
    pattern.blocks_of(hash, lines.len()).enumerate().all(|(index, (block, probes))| {
        let line = lines[block].view_bits::<Lsb0>();
        let mut all = true;
        positions.next_positions(if index == 0 { probes - tested } else { probes }, |position| all &= line[position]);
        all
    })
}

/// Sets the first positions of an item, which come from one word of hash. Returns the number of them that were clear.
#[inline(always)]
fn set<const PROBES: u8>(line: &mut Line, hash: Hash) -> u64 {
    let (words, _) = line.as_chunks_mut::<WORD>();
    let mut set = 0;
    for probe in 0..u32::from(PROBES) {
        let position = hash.second >> (PROBE_BITS * probe) & ((1 << PROBE_BITS) - 1);
        // With whole words instead of bitvec's bytes, a new item takes 26 ns instead of 29 in a packed command.
        let word = &mut words[(position / u64::from(u64::BITS)) as usize];
        let (old, bit) = (u64::from_le_bytes(*word), position % u64::from(u64::BITS));
        set += !old >> bit & 1;
        *word = (old | 1 << bit).to_le_bytes();
    }
    set
}

/// Sets the positions of an item in all its blocks. Returns the number of them that were clear.
#[inline(never)]
fn set_all(lines: &mut [Line], pattern: ProbePattern, hash: Hash) -> u64 {
    let mut positions = hash.probes();
    let mut set = 0;
    for (block, probes) in pattern.blocks_of(hash, lines.len()) {
        let line = lines[block].view_bits_mut::<Lsb0>();
        positions.next_positions(probes, |position| set += u64::from(!line.replace(position, true)));
    }
    set
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::array::WORD;
    use crate::line::Line;

    /// Does the same as [`are_set`](super::are_set), given the word of hash with the positions.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn are_set(line: &Line, word: u64, probes: u8) -> bool {
        // Positions 0 to 3 are in the lowest bits of the lanes of `first`, and 4 to 6 in those of `second`.
        let word = _mm256_set1_epi64x(word as i64);
        let first = _mm256_srlv_epi64(word, _mm256_setr_epi64x(0, 9, 18, 27));
        let second = _mm256_srlv_epi64(word, _mm256_setr_epi64x(36, 45, 54, 63));
        // In lanes of 32 bits, the order is 0, 1, 4, 5, 2, 3, 6. The last lane is not used.
        let positions = _mm256_shuffle_ps::<0b10_00_10_00>(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second));
        let positions = _mm256_castps_si256(positions);
        // Bits 5 to 7 of a position choose a word in each half of the line, and bit 8 chooses the half.
        let (low, high) = halves(line);
        let words = _mm256_srli_epi32::<5>(positions);
        let of_low = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, words));
        let of_high = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, words));
        let choice = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(positions));
        let chosen = _mm256_castps_si256(_mm256_blendv_ps(of_low, of_high, choice));
        // The bit becomes the sign of its lane.
        let places = _mm256_andnot_si256(positions, _mm256_set1_epi32(31));
        let signs = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_sllv_epi32(chosen, places)));
        /// The lanes of the first positions, given their number.
        const LANES: [i32; 8] = [0, 1, 0b11, 0b1_0011, 0b11_0011, 0b11_0111, 0b11_1111, 0b111_1111];
        let lanes = LANES[usize::from(probes & 7)];
        signs & lanes == lanes
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn halves(line: &Line) -> (__m256i, __m256i) {
        let (words, _) = line.as_chunks::<WORD>();
        let half = |index: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|word| i64::from_le_bytes(words[index + word]));
            _mm256_setr_epi64x(a, b, c, d)
        };
        (half(0), half(4))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sizing::{BlockShape, WORDS_PER_LINE};

    const BLOCKS: usize = 20;

    /// Returns the block and the position in it of each of an item's bits.
    fn bits_of(pattern: ProbePattern, hash: Hash) -> Vec<(usize, usize)> {
        let mut positions = hash.probes();
        let mut bits = Vec::new();
        for (block, probes) in pattern.blocks_of(hash, BLOCKS) {
            positions.next_positions(probes, |position| bits.push((block, position)));
        }
        bits
    }

    proptest! {
        #[test]
        fn lines_have_the_bits_of_their_items(
            blocks_per_item in 1u8..4,
            more_probes in 0u8..20,
            words: Vec<[u64; 2]>,
            other: [u64; 2],
            missing: usize,
        ) {
            let probes = blocks_per_item + more_probes;
            let shape = BlockShape { blocks: BLOCKS as u64, words: WORDS_PER_LINE, blocks_per_item, probes };
            let pattern = ProbePattern::new(shape);
            let mut lines = [[0; 64]; BLOCKS];
            let mut expected = [[false; 512]; BLOCKS];
            let hashes: Vec<Hash> = words.iter().map(|&[first, second]| Hash { first, second }).collect();
            let mut new = vec![false; hashes.len()];
            let mut set = 0;
            let expected_new: Vec<bool> = hashes
                .iter()
                .map(|&hash| {
                    let before = set;
                    for (block, position) in bits_of(pattern, hash) {
                        set += u64::from(!std::mem::replace(&mut expected[block][position], true));
                    }
                    set > before
                })
                .collect();
            prop_assert_eq!(insert(&mut lines, pattern, &hashes, &mut new), set);
            prop_assert_eq!(&new, &expected_new);
            for (line, expected) in lines.iter().zip(&expected) {
                let bits: Vec<bool> = line.view_bits::<Lsb0>().iter().by_vals().collect();
                prop_assert_eq!(&bits[..], &expected[..]);
            }
            contains_hashes(&lines, pattern, &hashes, &mut new);
            prop_assert!(new.iter().all(|&found| found));
            prop_assert!(hashes.iter().all(|&hash| contains(&lines, pattern, hash)));
            prop_assert_eq!(insert(&mut lines, pattern, &hashes, &mut new), 0);
            // An item without one of its bits is absent.
            let other = Hash { first: other[0], second: other[1] };
            insert(&mut lines, pattern, &[other], &mut [false]);
            let bits = bits_of(pattern, other);
            let (block, position) = bits[missing % bits.len()];
            lines[block].view_bits_mut::<Lsb0>().set(position, false);
            let mut found = [true];
            contains_hashes(&lines, pattern, &[other], &mut found);
            prop_assert!(!found[0] && !contains(&lines, pattern, other));
        }

        #[test]
        fn both_versions_test_the_same_bits(word: u64, clear: u8, probes in 0u8..=PROBES_PER_WORD) {
            let hash = Hash { first: 0, second: word };
            let mut line = [0; 64];
            hash.probes().next_positions(PROBES_PER_WORD, |position| line.view_bits_mut::<Lsb0>().set(position, true));
            hash.probes().next_positions(clear % 9, |position| line.view_bits_mut::<Lsb0>().set(position, false));
            let expected = are_set(&line, hash, probes);
            let mut found = [!expected];
            let shape = BlockShape { blocks: 1, words: WORDS_PER_LINE, blocks_per_item: 1, probes: probes.max(1) };
            contains_hashes(&[line], ProbePattern::new(shape), &[hash], &mut found);
            prop_assert!(probes == 0 || found[0] == expected);
        }
    }
}
