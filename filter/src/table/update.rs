//! Additions and removals of items.

use super::entry::{MAX_ENTRY_COUNT, Payload, slots_of};
use super::growth::{exceeds_load, must_double, should_shrink};
use super::path::{Path, Prefix};
use super::segment::{Entry, Found};
use super::{Addressing, Table};
use crate::arch::{Processor, versioned};
use crate::error::Error;
use crate::hash::Hash;
use crate::item_count::MAX_ITEMS;
use crate::memory::Admit;

/// The outcome of the addition of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// No entry matched the item before.
    New,
    /// An entry matched the item before.
    Known,
    /// A set has an entry that matches the item, or the count is at its maximum.
    Unchanged,
    /// The table stays as it was: the entry matches more than one quotient, or needs more than one further slot.
    Unfit,
}

impl Table {
    versioned! {
        /// Adds an item. Returns true if it is new. A set that has the item stays as it is.
        ///
        /// # Errors
        ///
        /// [`Error::OutOfMemory`] if an allocation fails or `admit` rejects it; [`Error::CannotGrow`] if too many
        /// hashes are alike. The table then holds the same items as before.
        pub fn add(self: &mut Table, hash: Hash, admit: Admit<'_>) -> Result<bool, Error> = Table::add_with;
        /// Removes one occurrence of an item. Returns false if the item is absent.
        pub fn remove(self: &mut Table, hash: Hash) -> bool = Table::remove_with;
        /// Removes one occurrence of an item as [`remove`](Table::remove) does, if several slots match it or the run has
        /// digits. This is rare, so it is kept out of the code that most removals execute.
        #[cold]
        fn remove_rarely(self: &mut Table, hash: Hash) -> bool = Table::remove_rarely_with;
        /// Adds an item as [`add`](Table::add) does, whatever has to be done first. This is rare, so it is kept out of
        /// the code that most additions execute.
        #[cold]
        fn add_rarely(self: &mut Table, hash: Hash, admit: Admit<'_>) -> Result<bool, Error> = Table::add_rarely_with;
    }

    #[inline(always)]
    fn add_with<P: Processor>(&mut self, _: P, hash: Hash, admit: Admit<'_>) -> Result<bool, Error> {
        let path = self.path(hash);
        let &mut Table { addressing, payload, .. } = self;
        let has_max_items = self.count.items() >= MAX_ITEMS;
        let segment = self.segment_mut(path);
        segment.prefetch_estimated(segment.group(path));
        let address = segment.address(path, addressing.terminator());
        if let Some((run, in_group)) = segment.run_and_slots::<P>(address) {
            if !segment.any(&run, |value| addressing.matches(value, address.remainder)) {
                let may_double = matches!(addressing, Addressing::Growing(_));
                let is_crowded = may_double && exceeds_load(segment, segment.slots() as usize + 1);
                if !is_crowded && !has_max_items && segment.has_room(&run, in_group) {
                    let value = addressing.value(address);
                    let added_coverage = addressing.coverage_of_value(segment, value);
                    segment.insert_slot(&run, 0, value, in_group);
                    self.slots += 1;
                    self.count_addition(true);
                    self.coverage.add(added_coverage);
                    return Ok(true);
                }
            } else if payload == Payload::Nothing {
                return Ok(false);
            }
        }
        self.add_rarely(hash, admit)
    }

    #[inline(always)]
    fn add_rarely_with<P: Processor>(&mut self, _: P, hash: Hash, admit: Admit<'_>) -> Result<bool, Error> {
        if self.count.items() >= MAX_ITEMS && !self.contains(hash) {
            return Err(Error::CannotGrow);
        }
        let all_bits = Prefix { path: self.path(hash), length: Path::BITS };
        let entered = self.enter::<P>(all_bits, 1, admit)?;
        if matches!(entered, Entered::New | Entered::Known) {
            self.count_addition(entered == Entered::New);
        }
        Ok(entered == Entered::New)
    }

    /// Adds `count` occurrences of an item, given a prefix of its path. The caller counts them.
    ///
    /// # Errors
    ///
    /// The same as for [`add`](Self::add).
    #[inline(always)]
    pub(super) fn enter<P: Processor>(
        &mut self,
        Prefix { path, length }: Prefix,
        count: u64,
        admit: Admit<'_>,
    ) -> Result<Entered, Error> {
        let &mut Table { addressing, payload, .. } = self;
        let mut may_double = true;
        // Making room moves slots, so the run is looked for again.
        loop {
            let max_depth = self.max_depth();
            let segment = self.segment_mut(path);
            let address = segment.address(path, addressing.terminator());
            let Some(length) = length.checked_sub(segment.level()) else { return Ok(Entered::Unfit) };
            let Some((run, in_group)) = segment.run_and_slots::<P>(address) else {
                self.allocate_segment(path, admit)?;
                continue;
            };

            let value = addressing.value_of_length(address, length, segment.value_bits());
            let mut is_known = false;
            let identical = segment.find(&run, |other| {
                is_known |= addressing.covers(other, value);
                other == value
            });
            let before = identical.map_or(0, |entry| entry.count);
            let after = before.saturating_add(count).min(MAX_ENTRY_COUNT);
            // In a multiset, an entry that covers the new one but is not identical is older and shorter. It may belong
            // to another item, so the occurrence gets an entry of its own, which a removal can take away.
            if is_known && payload == Payload::Nothing || after == before {
                return Ok(Entered::Unchanged);
            }
            let more = slots_of(after, segment.width()) - slots_of(before, segment.width());
            if more > 1 {
                return Ok(Entered::Unfit);
            }

            if more > 0 && (may_double && must_double(segment, max_depth) || !segment.has_room(&run, in_group)) {
                self.make_room::<P>(path, &run, &mut may_double, admit)?;
                continue;
            }
            segment.set_count(run, identical, value, after, in_group);
            let added_coverage = addressing.coverage_of_value(segment, value);
            self.slots += more as u64;
            if identical.is_none() {
                self.coverage.add(added_coverage);
            }
            return Ok(if is_known { Entered::Known } else { Entered::New });
        }
    }

    /// Counts an addition.
    #[inline(always)]
    pub(crate) fn count_addition(&mut self, is_new: bool) {
        self.occurrences = self.occurrences.saturating_add(1);
        self.count.increment(is_new);
    }

    #[inline(always)]
    fn remove_with<P: Processor>(&mut self, _: P, hash: Hash) -> bool {
        let path = self.path(hash);
        let addressing = self.addressing;
        let segment = self.segment_mut(path);
        segment.prefetch_estimated(segment.group(path));
        let address = segment.address(path, addressing.terminator());
        let Some((run, in_group)) = segment.run_and_slots::<P>(address) else { return false };
        match segment.only_slot(&run, |value| addressing.matches(value, address.remainder)) {
            Found::None => false,
            Found::One { index, value } => {
                segment.remove_slot(&run, index, in_group);
                let should_shrink = should_shrink(segment, addressing);
                let removed_coverage = addressing.coverage_of_value(segment, value);
                self.coverage.subtract(removed_coverage);
                self.count_removal::<P>(path, 1, true, should_shrink);
                true
            }
            Found::Several => self.remove_rarely(hash),
        }
    }

    #[inline(always)]
    fn remove_rarely_with<P: Processor>(&mut self, _: P, hash: Hash) -> bool {
        let path = self.path(hash);
        let addressing = self.addressing;
        let segment = self.segment_mut(path);
        let address = segment.address(path, addressing.terminator());
        let Some((run, in_group)) = segment.run_and_slots::<P>(address) else { return false };
        let mut longest = None::<Entry>;
        let mut matching = 0;
        for entry in segment.entries(run).filter(|entry| addressing.matches(entry.value, address.remainder)) {
            matching += 1;
            // Fewer zeros mean a longer fingerprint. In a table of fixed size, at most one entry matches an item.
            if longest.is_none_or(|longest| entry.value.trailing_zeros() < longest.value.trailing_zeros()) {
                longest = Some(entry);
            }
        }
        let Some(entry) = longest else { return false };
        let before = segment.slots();
        segment.set_count(run, Some(entry), entry.value, entry.count - 1, in_group);
        let freed = before - segment.slots();
        let should_shrink = freed > 0 && should_shrink(segment, addressing);
        let removed_coverage = addressing.coverage_of_value(segment, entry.value);
        if entry.count == 1 {
            self.coverage.subtract(removed_coverage);
        }
        self.count_removal::<P>(path, freed, matching == 1 && entry.count == 1, should_shrink);
        true
    }

    /// Counts the removal of an occurrence that freed some slots, and shrinks the segment of its path.
    #[inline(always)]
    fn count_removal<P: Processor>(&mut self, path: Path, freed: u32, is_gone: bool, should_shrink: bool) {
        self.slots -= u64::from(freed);
        self.count.decrement(is_gone);
        self.occurrences -= u64::from(self.occurrences > 0);
        // The counts of a table that was decoded may be forged.
        self.count.limit(self.occurrences);
        if self.occurrences == 0 || self.slots == 0 {
            self.clear();
        } else if should_shrink {
            self.shrink::<P>(path);
        }
    }
}
