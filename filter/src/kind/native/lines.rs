//! Look-ups and insertions of many items in blocks that are cache lines.

use bitvec::prelude::*;

use crate::arch::{self, Processor, versioned};
use crate::array::WORD;
use crate::batch::SECOND_LEVEL_CACHE;
use crate::hash::Hash;
use crate::line::Line;
use crate::probe::{PROBE_BITS, PROBES_PER_WORD, ProbePattern};

versioned! {
    /// Returns true if the item may have been inserted.
    pub(super) fn contains(lines: &[Line], pattern: ProbePattern, hash: Hash) -> bool = contains_with;
    /// Sets `found[i]` to whether the item of `hashes[i]` may have been inserted.
    pub(super) fn contains_hashes(
        lines: &[Line], pattern: ProbePattern, hashes: &[Hash], found: &mut [bool]
    ) = contains_hashes_with;
    /// Inserts items in order, and sets `new[i]` to whether item `i` was new. Returns the number of bits that were clear.
    /// For one item, choosing the version takes longer than it saves: [`set_one`] is enough.
    pub(super) fn insert_many(lines: &mut [Line], pattern: ProbePattern, hashes: &[Hash], new: &mut [bool]) -> u64
        = insert_many_with;
}

/// The number of items whose blocks are prefetched before those of the first are read, if items have one block. A
/// processor waits for about two dozen cache lines at a time. Prefetching for 64 items made additions take a third
/// longer, and look-ups a tenth.
///
/// If items have more blocks, those of all items are prefetched at once: in a filter of a gigabyte, where each prefetch
/// also waits for the address of its page, anything else made additions take twice as long.
const ITEMS_AHEAD: usize = 20;

/// Returns the items whose blocks are prefetched before those of the first item are read, and those whose blocks are
/// prefetched with each item that is handled.
#[inline(always)]
fn first_and_later<'a>(lines: &[Line], pattern: ProbePattern, hashes: &'a [Hash]) -> (&'a [Hash], &'a [Hash]) {
    if size_of_val(lines) <= SECOND_LEVEL_CACHE {
        return (&[], &[]);
    }
    let ahead = if pattern.blocks_per_item == 1 { ITEMS_AHEAD } else { hashes.len() };
    hashes.split_at(ahead.min(hashes.len()))
}

/// Prefetches the blocks of the first items. [`contains_hashes`] and [`insert_many`] prefetch the others as they go.
#[inline]
pub(super) fn prefetch(lines: &[Line], pattern: ProbePattern, hashes: &[Hash]) {
    let (first, _) = first_and_later(lines, pattern, hashes);
    first.iter().for_each(|&hash| prefetch_item(lines, pattern, hash));
}

#[inline(always)]
fn prefetch_item(lines: &[Line], pattern: ProbePattern, hash: Hash) {
    let fetch = |line: usize| arch::prefetch(lines.as_ptr().wrapping_add(line));
    match pattern.blocks_per_item {
        1 => fetch(pattern.first_block_of(hash, lines.len())),
        _ => pattern.blocks_of(hash, lines.len()).for_each(|(line, _)| fetch(line)),
    }
}

#[inline(always)]
fn contains_with<P: Processor>(lines: &[Line], _: P, pattern: ProbePattern, hash: Hash) -> bool {
    let probes = pattern.first_probes().min(PROBES_PER_WORD);
    let begins = P::are_set(&lines[pattern.first_block_of(hash, lines.len())], hash, probes);
    begins && (probes == pattern.probes() || others_are_set(lines, pattern, hash))
}

#[inline(always)]
fn contains_hashes_with<P: Processor>(
    lines: &[Line],
    processor: P,
    pattern: ProbePattern,
    hashes: &[Hash],
    found: &mut [bool],
) {
    let mut later = first_and_later(lines, pattern, hashes).1.iter();
    for (found, &hash) in found.iter_mut().zip(hashes) {
        if let Some(&later) = later.next() {
            prefetch_item(lines, pattern, later);
        }
        *found = contains_with(lines, processor, pattern, hash);
    }
}

#[inline(always)]
fn insert_many_with<P: Processor>(
    lines: &mut [Line],
    processor: P,
    pattern: ProbePattern,
    hashes: &[Hash],
    new: &mut [bool],
) -> u64 {
    let mut later = first_and_later(lines, pattern, hashes).1.iter();
    let mut bits = 0;
    for (new, &hash) in new.iter_mut().zip(hashes) {
        if let Some(&later) = later.next() {
            prefetch_item(lines, pattern, later);
        }
        let is_present = P::TESTS_BEFORE_SETTING && contains_with(lines, processor, pattern, hash);
        let set = if is_present { 0 } else { set_one(lines, pattern, hash) };
        *new = set > 0;
        bits += set;
    }
    bits
}

/// Sets the positions of an item. Returns the number of them that were clear.
#[inline(always)]
pub(super) fn set_one(lines: &mut [Line], pattern: ProbePattern, hash: Hash) -> u64 {
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
