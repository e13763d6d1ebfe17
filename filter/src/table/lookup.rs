//! Look-ups of items, alone and in batches.

use super::segment::{Run, Segment};
use super::{Addressing, Table, is_prefix};
use crate::arch::{Processor, prefetch, versioned};
use crate::batch::BATCH;
use crate::hash::Hash;

/// The largest table, in bytes, that is not prefetched. Such a table stays in the second-level cache if it is used
/// often, and prefetching it would cost 8 ns an item without a gain.
const TABLE_IN_CACHE: usize = 256 << 10;

/// The largest number of segments whose directory is not prefetched. Such a directory stays in the second-level cache
/// if it is used often.
const DIRECTORY_IN_CACHE: u64 = 1 << 13;

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

    /// Prefetches the memory that any operation on the items reads. `hashes` has at most [`BATCH`] elements.
    #[inline]
    pub fn prefetch(&self, hashes: &[Hash]) {
        debug_assert!(hashes.len() <= BATCH, "a batch of {}", hashes.len());
        if let &[hash] = hashes {
            return self.look_ahead(hash);
        }
        self.prefetch_directory(hashes);
        let address = |&hash: &Hash| {
            let path = self.path(hash);
            let segment = self.segment(path);
            (segment, segment.group(path))
        };
        self.prefetch_groups(hashes.iter().map(address));
    }

    /// Prefetches the memory that a look-up of the item reads. Waits for the directory only.
    pub fn look_ahead(&self, hash: Hash) {
        let path = self.path(hash);
        let segment = self.segment(path);
        let group = segment.group(path);
        segment.prefetch_offset(group);
        segment.prefetch_estimated(group);
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

    /// Prefetches at most [`BATCH`] groups, if the table is large. The first pass prefetches the offsets, which the
    /// second pass reads.
    #[inline(always)]
    fn prefetch_groups<'a>(&'a self, groups: impl Iterator<Item = (&'a Segment, usize)>) {
        if self.segment_bytes <= TABLE_IN_CACHE {
            return;
        }
        let mut located = [None; BATCH];
        let mut count = 0;
        for (located, (segment, group)) in located.iter_mut().zip(groups) {
            segment.prefetch_offset(group);
            *located = Some((segment, group));
            count += 1;
        }
        located[..count].iter().flatten().for_each(|(segment, group)| segment.prefetch_group(*group));
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
        self.for_each_run::<P, _>(hashes, found, is_wanted, |found, segment, run, remainder| {
            *found = self.any_matches(segment, run, remainder);
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
    /// Each step is done for all items of a batch before the next step. Out-of-order execution then overlaps the steps
    /// of several items, and each step can prefetch for the next. In a table of a million items, this reduced a look-up
    /// from 87 to 65 ns.
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
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            self.prefetch_directory(hashes);
            let addresses = &mut [None; BATCH][..hashes.len()];
            for ((address, &hash), answer) in addresses.iter_mut().zip(hashes).zip(&*answers) {
                if is_wanted(answer) {
                    let path = self.path(hash);
                    let segment = self.segment(path);
                    *address = Some((segment, segment.address(path, suffix_bits)));
                }
            }
            self.prefetch_groups(addresses.iter().flatten().map(|(segment, address)| (*segment, address.group)));
            let runs = &mut [None; BATCH][..hashes.len()];
            for (run, &mut address) in runs.iter_mut().zip(addresses) {
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

    /// Returns true if an entry of a run matches an item with this remainder.
    #[inline(always)]
    fn any_matches(&self, segment: &Segment, run: Run, remainder: u64) -> bool {
        match self.addressing {
            Addressing::Growing(_) => segment.any(&run, |slot| is_prefix(slot, remainder)),
            Addressing::Fixed(_) => segment.any(&run, |slot| slot == remainder.max(1)),
        }
    }
}
