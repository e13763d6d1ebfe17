//! Look-ups of items, alone and in batches.

use super::segment::{Address, Run, Segment};
use super::{Addressing, Table, is_prefix};
use crate::arch::{Processor, prefetch, versioned};
use crate::batch::{BATCH, SECOND_LEVEL_CACHE};
use crate::hash::Hash;

/// The largest number of segments whose directory is not prefetched. Such a directory stays in the second-level cache
/// if it is used often.
const DIRECTORY_IN_CACHE: u64 = 1 << 13;

/// The number of items whose groups are prefetched before the first of them is read. A group takes up to four cache
/// lines, and a processor waits for about two dozen at a time. With 64 items, whatever was read first was not there yet:
/// look-ups in tables of 20 MB took half as long again, and additions nearly twice as long.
const GROUPS_AHEAD: usize = 8;

impl Table {
    versioned! {
        /// Returns true if the item may be in the table.
        pub fn contains(self: &Table, hash: Hash) -> bool = Table::contains_with;
        /// Sets `found[i]` to true if the item of `hashes[i]` may be in the table. Never sets it to false, and looks up
        /// only the items that are not found yet.
        pub fn find_more(self: &Table, hashes: &[Hash], found: &mut [bool]) = Table::find_more_with;
        /// Sets `counts[i]` to the [`count`](Table::count) of the item of `hashes[i]`.
        pub fn count_all(self: &Table, hashes: &[Hash], counts: &mut [u64]) = Table::count_all_with;
    }

    /// Returns the number of additions of the item less the number of its removals. It is never too low, and too high
    /// at the error rate.
    pub fn count(&self, hash: Hash) -> u64 {
        let mut counts = [0];
        self.count_all(&[hash], &mut counts);
        counts[0]
    }

    /// Prefetches the memory that any operation on the items reads first: that of all items but the groups, and the first
    /// groups. Operations then [prefetch the other groups](Self::prefetch_after) one by one.
    #[inline]
    pub fn prefetch(&self, hashes: &[Hash]) {
        if let &[hash] = hashes {
            return self.look_ahead(hash);
        }
        self.prefetch_directory(hashes);
        if self.is_large() {
            for &hash in hashes {
                let (segment, group) = self.group_of(hash);
                segment.prefetch_offset(group);
            }
            hashes.iter().take(GROUPS_AHEAD).for_each(|&hash| self.prefetch_group(hash));
        }
    }

    /// Prefetches the group of the item that is handled a few items after item `index`.
    #[inline(always)]
    pub fn prefetch_after(&self, hashes: &[Hash], index: usize) {
        if self.is_large()
            && let Some(&later) = hashes.get(index + GROUPS_AHEAD)
        {
            self.prefetch_group(later);
        }
    }

    /// Prefetches the memory that a look-up of the item reads. Waits for the directory only.
    pub fn look_ahead(&self, hash: Hash) {
        let (segment, group) = self.group_of(hash);
        segment.prefetch_offset(group);
        segment.prefetch_estimated(group);
    }

    /// Returns true if the table does not fit into the second-level cache.
    #[inline(always)]
    fn is_large(&self) -> bool {
        self.segment_bytes > SECOND_LEVEL_CACHE
    }

    /// Returns the segment and the group of an item.
    #[inline(always)]
    fn group_of(&self, hash: Hash) -> (&Segment, usize) {
        let path = self.path(hash);
        let segment = self.segment(path);
        (segment, segment.group(path))
    }

    #[inline(always)]
    fn prefetch_group(&self, hash: Hash) {
        let (segment, group) = self.group_of(hash);
        segment.prefetch_group(group);
    }

    /// Prefetches the items' slots of the directory, if the directory is large.
    #[inline(always)]
    fn prefetch_directory(&self, hashes: &[Hash]) {
        if self.segments > DIRECTORY_IN_CACHE {
            for &hash in hashes {
                let path = self.path(hash);
                prefetch(self.pages.get(path).slot(path));
            }
        }
    }

    #[inline(always)]
    fn contains_with<P: Processor>(&self, _: P, hash: Hash) -> bool {
        let path = self.path(hash);
        let segment = self.segment(path);
        segment.prefetch_estimated(segment.group(path));
        let address = segment.address(path, self.addressing.terminator());
        segment.run::<P>(address).is_some_and(|run| self.any_matches(segment, run, address.remainder))
    }

    #[inline(always)]
    fn find_more_with<P: Processor>(&self, _: P, hashes: &[Hash], found: &mut [bool]) {
        let is_wanted = |found: &bool| !found;
        let by_prefix = matches!(self.addressing, Addressing::Growing(_));
        self.for_each_run::<P, _>(hashes, found, is_wanted, |found, segment, run, remainder| {
            let at_once = segment.any_at_once(&run, self.addressing.value_of(remainder), by_prefix);
            *found = at_once.unwrap_or_else(|| self.any_matches(segment, run, remainder));
        });
    }

    #[inline(always)]
    fn count_all_with<P: Processor>(&self, _: P, hashes: &[Hash], counts: &mut [u64]) {
        counts.fill(0);
        let is_wanted = |_: &u64| true;
        self.for_each_run::<P, _>(hashes, counts, is_wanted, |count, segment, run, remainder| {
            let entries = segment.entries(run).filter(|entry| self.addressing.matches(entry.value, remainder));
            *count = entries.fold(0, |sum: u64, entry| sum.saturating_add(entry.count));
        });
    }

    /// Calls `visit` with the answer, the segment, the run and the remainder of each item. Skips items whose answer is
    /// not wanted and items whose segment is empty.
    ///
    /// Each step is done for many items before the next step. Out-of-order execution then overlaps the steps of several
    /// items, and each step can prefetch for the next. In a table of a million items, this reduced a look-up from 87 to
    /// 65 ns.
    #[inline(always)]
    pub(super) fn for_each_run<P: Processor, A>(
        &self,
        hashes: &[Hash],
        answers: &mut [A],
        is_wanted: impl Fn(&A) -> bool,
        visit: impl Fn(&mut A, &Segment, Run, u64),
    ) {
        debug_assert!(answers.len() >= hashes.len(), "an answer for each item");
        let suffix_bits = self.suffix_bits();
        let is_large = self.is_large();
        let step = if is_large { GROUPS_AHEAD } else { BATCH };
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            self.prefetch_directory(hashes);
            let mut addresses = [None; BATCH];
            for ((address, &hash), answer) in addresses.iter_mut().zip(hashes).zip(&*answers) {
                if is_wanted(answer) {
                    let path = self.path(hash);
                    let segment = self.segment(path);
                    *address = Some((segment, segment.address(path, suffix_bits)));
                }
            }
            let prefetch_groups = |addresses: &[Option<(&Segment, Address)>]| {
                addresses.iter().flatten().for_each(|(segment, address)| segment.prefetch_group(address.group));
            };
            let mut left = &addresses[..hashes.len()];
            if is_large {
                left.iter().flatten().for_each(|(segment, address)| segment.prefetch_offset(address.group));
                prefetch_groups(&left[..GROUPS_AHEAD.min(left.len())]);
            }
            let runs = &mut [None; BATCH];
            for answers in answers[..hashes.len()].chunks_mut(step) {
                let (part, after) = left.split_at(answers.len());
                left = after;
                prefetch_groups(&left[..step.min(left.len())]);
                let runs = &mut runs[..part.len()];
                for (run, &address) in runs.iter_mut().zip(part) {
                    *run = address
                        .and_then(|(segment, address)| Some((segment, segment.run::<P>(address)?, address.remainder)));
                }
                for (answer, &mut run) in answers.iter_mut().zip(runs) {
                    if let Some((segment, run, remainder)) = run {
                        visit(answer, segment, run, remainder);
                    }
                }
            }
        }
    }

    /// Returns true if an entry of a run matches an item with this remainder.
    #[inline(always)]
    fn any_matches(&self, segment: &Segment, run: Run, remainder: u64) -> bool {
        match self.addressing {
            Addressing::Growing(_) => segment.any(&run, |slot| is_prefix(slot, remainder)),
            Addressing::Fixed(_) => segment.any(&run, |slot| slot == remainder.max(1)),
        }
    }
}
