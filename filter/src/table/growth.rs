//! Growth and shrinking: splits and merges of segments, and their allocations.

use super::bits::MAX_WIDTH;
use super::coverage::Coverage;
use super::directory::{Bucket as _, Directory};
use super::entry::{ListedEntry, doubled, halved};
use super::fingerprint::{FIRST_LEVEL, MAX_LEVEL};
use super::path::{Path, bits_of};
use super::segment::{ListedSlot, MAX_LOG_GROUPS, QUOTIENT_BITS, Run, Segment, has_long_run};
use super::{Addressing, PAGE_BITS, Payload, Table};
use crate::arch::{Baseline, Processor};
use crate::error::Error;
use crate::item_count::ItemCount;
use crate::memory::{Admit, request, try_vec};

/// The load from which a segment splits before it gets another slot: slots per quotient, in eighths. Tables that split
/// at another load can still be read. But a master and its replicas must split at the same load, to have equal filters.
const MAX_LOAD: u32 = 8;

/// The load up to which a segment is halved, in the same unit. Directly after a split, a segment has a load of four.
const MIN_LOAD: u32 = 3;

/// The largest depth of a segment. It suffices for `10^15` items.
pub(super) const MAX_DEPTH: u32 = 40;

// The segment, the quotient and the fingerprint are different bits of a path.
const _: () = assert!(MAX_DEPTH + MAX_LOG_GROUPS + QUOTIENT_BITS + MAX_WIDTH <= Path::BITS);
const _: () = assert!(MAX_LEVEL - QUOTIENT_BITS - MAX_LOG_GROUPS <= MAX_DEPTH);

/// The largest size of the directories of a growing table that is decoded, in bytes. Usual tables have about 60 bytes
/// of directories per segment.
pub(super) const DIRECTORY_BYTES: u64 = 1 << 23;
pub(super) const DIRECTORY_BYTES_PER_SEGMENT: u64 = 512;

/// Returns true if a segment must double its quotients before it gets another slot. `max_depth` is the depth from which
/// segments do not split: only the segment with all paths doubles without getting deeper.
#[inline(always)]
pub(super) fn must_double(segment: &Segment, max_depth: u32) -> bool {
    exceeds_load(segment, segment.slots() as usize + 1) && segment.depth() < max_depth
}

/// Returns true if `slots` slots are more than a segment should have.
#[inline(always)]
pub(super) fn exceeds_load(segment: &Segment, slots: usize) -> bool {
    slots > (MAX_LOAD * segment.quotients() / 8) as usize
}

/// Returns true if at most an eighth of the slots of a growing segment belong to entries with fingerprints. Doubling
/// copies the other entries, which are void, so it would not lower the load. Void entries match as many items as the
/// error rate says, so only forged segments and error rates above 80 % have so many of them.
pub(super) fn is_mostly_void(entries: &[ListedEntry], segment: &Segment) -> bool {
    let void = 1 << (segment.value_bits() - 1);
    let voids = entries.iter().filter(|entry| entry.value == void).map(|entry| segment.slots_of(entry)).sum::<usize>();
    voids > 0 && voids / 7 >= segment.slots_for(entries) - voids
}

/// Returns true if a segment has so few slots after a removal that it should [shrink](Table::shrink).
#[inline(always)]
pub(super) fn should_shrink(segment: &Segment, addressing: Addressing) -> bool {
    let is_sparse = segment.slots() <= MIN_LOAD * segment.quotients() / 8;
    matches!(addressing, Addressing::Growing(_)) && is_sparse || segment.is_oversized()
}

/// Returns a path of each of two buddies at a depth above 0, the lower one first. One of them holds `path`.
fn buddies(path: Path, depth: u32) -> [Path; 2] {
    debug_assert!(depth > 0, "a segment with all paths has no buddy");
    let bit = 1 << (Path::BITS - depth);
    [path & !bit, path | bit]
}

/// What some segments add to the sums over all segments of a table.
pub(super) struct Sums {
    bytes: usize,
    slots: u64,
    coverage: u128,
}

impl Sums {
    /// Returns the sums over segments with this coverage.
    pub(super) fn of(segments: &[&Segment], coverage: u128) -> Sums {
        Sums {
            bytes: segments.iter().map(|segment| segment.allocated()).sum(),
            slots: segments.iter().map(|segment| u64::from(segment.slots())).sum(),
            coverage,
        }
    }
}

impl Table {
    /// Makes room for another slot in a run. This may split the segment and move its runs. Clears `may_double` if
    /// doubling the segment would not help.
    ///
    /// Inlined, like all functions that select, so that it is compiled for the processor at hand.
    #[inline(always)]
    pub(super) fn make_room<P: Processor>(
        &mut self,
        path: Path,
        run: &Run,
        may_double: &mut bool,
        admit: Admit<'_>,
    ) -> Result<(), Error> {
        let max_depth = self.max_depth();
        let segment = self.segment_mut(path);
        if *may_double && must_double(segment, max_depth) {
            *may_double = self.double(path, 1, admit)?;
            Ok(())
        } else if run.is_full() {
            Err(Error::CannotGrow)
        } else if segment.fits_another_slot() && segment.borrow::<P>(run.group) {
            Ok(())
        } else {
            self.enlarge::<P>(path, run.group, admit)
        }
    }

    /// Returns the depth from which segments do not split.
    ///
    /// Hashes are uniform, so no segment is much deeper than the others. But anyone who knows the seed can craft items
    /// whose hashes begin with the same bits. Without a limit, each of these items could double the directory.
    #[inline(always)]
    pub(super) fn max_depth(&self) -> u32 {
        const SPARE_BITS: u32 = 6;
        match self.addressing {
            Addressing::Growing(_) => {
                MAX_DEPTH.min(SPARE_BITS + (self.slots >> (QUOTIENT_BITS + MAX_LOG_GROUPS)).max(1).ilog2())
            }
            Addressing::Fixed(_) => 0,
        }
    }

    /// Reallocates a segment with room for another slot in a group. The new allocation is larger, or has the same size
    /// and spreads the slack evenly.
    #[cold]
    #[inline(never)]
    fn enlarge<P: Processor>(&mut self, path: Path, group: usize, admit: Admit<'_>) -> Result<(), Error> {
        let segment = self.segment(path);
        let before = segment.allocated();
        let after = segment.bytes_with_another_slot();
        // It is smaller if forgotten slots were just dropped.
        request(after.saturating_sub(before) as u64, admit)?;
        let mut larger = segment.resized::<P>(after, Some(group))?;
        if before == 0 {
            larger.set_base(self.forgotten());
        }
        *self.segment_mut(path) = larger;
        self.segment_bytes = self.segment_bytes + after - before;
        Ok(())
    }

    /// Allocates the memory of the empty segment of a path, after splitting the segment down to the least depth.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_segment(&mut self, path: Path, admit: Admit<'_>) -> Result<(), Error> {
        request(self.segment(path).bytes_with_another_slot() as u64, admit)?;
        debug_assert_eq!(self.segment(path).allocated(), 0, "a segment with memory");
        let before = self.segment(path).depth();
        self.split_empty(path, self.min_depth(), u64::MAX, admit)?;
        let group = self.segment(path).group(path);
        self.enlarge::<Baseline>(path, group, &mut |_bytes| true).inspect_err(|_| self.unsplit_empty(path, before))
    }

    /// Splits the empty segment of a path until it has at least this depth. If that fails, changes nothing.
    ///
    /// # Errors
    ///
    /// As for [`prepare_split`](Self::prepare_split).
    pub(super) fn split_empty(
        &mut self,
        path: Path,
        depth: u32,
        max_bytes: u64,
        admit: Admit<'_>,
    ) -> Result<(), Error> {
        debug_assert!(self.segment(path).slots() == 0 || self.segment(path).depth() >= depth, "entries would be lost");
        let before = self.segment(path).depth();
        for depth in before + 1..=depth {
            let halves = [self.empty_segment(depth), self.empty_segment(depth)];
            self.prepare_split(path, max_bytes, admit).inspect_err(|_| self.unsplit_empty(path, before))?;
            self.pages.get_mut(path).split(path, halves);
            self.segments += 1;
        }
        Ok(())
    }

    /// Undoes [`split_empty`](Self::split_empty): merges the empty segment of a path with its buddies until it has this
    /// depth.
    #[cold]
    pub(super) fn unsplit_empty(&mut self, path: Path, depth: u32) {
        debug_assert!(self.segment(path).slots() == 0 || self.segment(path).depth() <= depth, "entries would be lost");
        while self.segment(path).depth() > depth {
            let merged = self.segment(path).depth() - 1;
            if merged < self.pages.get(path).depth() {
                // There was no memory to merge pages. The finer directory is still correct.
                return;
            }
            self.merge_buddies(path, self.empty_segment(merged));
        }
    }

    /// Replaces the segment of a path and its buddy by one segment.
    pub(super) fn merge_buddies(&mut self, path: Path, whole: Segment) {
        let page = self.pages.get_mut(path);
        let before = page.bytes();
        page.merge_buddies(path, whole);
        self.directory_bytes = self.directory_bytes + page.bytes() - before;
        self.segments -= 1;
        self.merge_pages(path);
    }

    /// Returns an empty segment with twice as many groups as `segment`, or if these are too many, one for half of its
    /// paths.
    pub(super) fn empty_doubled(&self, segment: &Segment) -> Segment {
        match segment.log_groups() {
            MAX_LOG_GROUPS => self.empty_segment_with_groups(segment.depth() + 1, MAX_LOG_GROUPS),
            log_groups => self.empty_segment_with_groups(segment.depth(), log_groups + 1),
        }
    }

    /// Returns an empty segment for the paths of `segment` and its buddy, or if it has no buddy, one with half as many
    /// groups.
    pub(super) fn empty_halved(&self, segment: &Segment) -> Segment {
        match segment.depth() {
            0 => self.empty_segment_with_groups(0, segment.log_groups() - 1),
            depth => self.empty_segment_with_groups(depth - 1, segment.log_groups()),
        }
    }

    /// Doubles the quotients of a segment: doubles its groups, or splits it in two. The segment of `path` then has room
    /// for `spare` further slots, so that an addition asks for all its memory at once, and changes nothing if that is
    /// rejected. Returns false, and changes nothing, if almost all entries are void.
    #[cold]
    #[inline(never)]
    pub(super) fn double(&mut self, path: Path, spare: usize, admit: Admit<'_>) -> Result<bool, Error> {
        if matches!(self.addressing, Addressing::Fixed(_)) {
            return Err(Error::CannotGrow);
        }
        let segment = self.segment(path);
        let larger = self.empty_doubled(segment);
        if let Some(slots) = segment.doubled_slots(larger.value_bits(), self.payload == Payload::Nothing)? {
            // Each slot matches as many paths as before.
            return self.replace_by_doubled(path, larger, &slots, [0; 2], spare, admit).map(|()| true);
        }
        let listed = Segment::list(&[segment])?;
        if is_mostly_void(&listed, segment) {
            return Ok(false);
        }
        let coverage_before = self.addressing.coverage_of_entries(segment, &listed);
        self.double_with(path, &listed, coverage_before, spare, admit)?;
        Ok(true)
    }

    /// Doubles the quotients of a segment as [`double`](Self::double) does, and replaces its entries by those of
    /// `listed`: two entries may become one, and a set drops entries that void ones make redundant.
    pub(super) fn double_with(
        &mut self,
        path: Path,
        listed: &[ListedEntry],
        coverage_before: u128,
        spare: usize,
        admit: Admit<'_>,
    ) -> Result<(), Error> {
        let segment = self.segment(path);
        let larger = self.empty_doubled(segment);
        let entries = doubled(listed, segment.value_bits(), larger.value_bits(), self.payload)?;
        let coverages = [coverage_before, self.addressing.coverage_of_entries(&larger, &entries)];
        let slots = larger.slots_of_list(&entries)?;
        drop(entries);
        self.replace_by_doubled(path, larger, &slots, coverages, spare, admit)
    }

    /// Replaces a segment by one or two in the format of `larger`, which get `slots`. `coverages` are those of all
    /// entries before and after.
    fn replace_by_doubled(
        &mut self,
        path: Path,
        larger: Segment,
        slots: &[ListedSlot],
        [before, after]: [u128; 2],
        spare: usize,
        admit: Admit<'_>,
    ) -> Result<(), Error> {
        let segment = self.segment(path);
        let before = Sums::of(&[segment], before);
        let is_split = larger.depth() > segment.depth();
        // The second half is empty if the segment only doubles its groups.
        let (low, high) = slots.split_at(slots.partition_point(|&(quotient, _)| quotient < larger.quotients()));
        let is_high = is_split && bits_of(path, segment.depth(), 1) == 1;
        let [low_spare, high_spare] = if is_high { [0, spare] } else { [spare, 0] };
        let bytes = larger.bytes_for_slots(low.len() + low_spare) + larger.bytes_for_slots(high.len() + high_spare);
        request(bytes.saturating_sub(before.bytes) as u64, admit)?;
        let low = larger.empty_copy().with_slots(low, low_spare, self.forgotten())?;
        let high = larger.with_slots(high, high_spare, self.forgotten())?;
        if is_split {
            // Last, so that a failed allocation leaves the directories as they are.
            self.prepare_split(path, u64::MAX, admit)?;
        }
        self.update_sums(before, Sums::of(&[&low, &high], after));
        if is_split {
            self.pages.get_mut(path).split(path, [low, high]);
            self.segments += 1;
        } else {
            *self.segment_mut(path) = low;
        }
        Ok(())
    }

    /// Updates the sums over all segments when some are replaced by others.
    pub(super) fn update_sums(&mut self, before: Sums, after: Sums) {
        self.segment_bytes = self.segment_bytes + after.bytes - before.bytes;
        self.slots = self.slots + after.slots - before.slots;
        self.coverage.add(after.coverage);
        self.coverage.subtract(before.coverage);
    }

    /// Makes room in the directories for both halves of a segment.
    ///
    /// # Errors
    ///
    /// [`Error::CannotGrow`] if the directories would take more than `max_bytes` bytes; [`Error::OutOfMemory`] if
    /// `admit` rejects them, or they cannot be allocated.
    fn prepare_split(&mut self, path: Path, max_bytes: u64, admit: Admit<'_>) -> Result<(), Error> {
        let is_fine = |page: &Directory<Segment>| page.get(path).depth() < page.depth() + page.bits();
        if !is_fine(self.pages.get(path)) && self.pages.get(path).bits() == PAGE_BITS {
            self.split_page(path, max_bytes, admit)?;
        }
        let page = self.pages.get(path);
        if !is_fine(page) {
            let before = page.bytes();
            self.ask_for_directory(before, max_bytes, admit)?;
            let page = self.pages.get_mut(path);
            page.double()?;
            self.directory_bytes = self.directory_bytes + page.bytes() - before;
        }
        Ok(())
    }

    #[cold]
    fn split_page(&mut self, path: Path, max_bytes: u64, admit: Admit<'_>) -> Result<(), Error> {
        let pages = self.pages.bytes();
        let page = self.pages.get(path).bytes();
        if self.pages.get(path).depth() == self.pages.depth() + self.pages.bits() {
            self.ask_for_directory(pages, max_bytes, admit)?;
            self.pages.double()?;
            self.directory_bytes = self.directory_bytes + self.pages.bytes() - pages;
        }
        let halves = self.pages.get_mut(path).split_in_two()?;
        self.directory_bytes = self.directory_bytes + halves[0].bytes() + halves[1].bytes() - page;
        self.pages.split(path, halves);
        Ok(())
    }

    fn ask_for_directory(&self, more: usize, max_bytes: u64, admit: Admit<'_>) -> Result<(), Error> {
        if self.directory_bytes.saturating_add(more) as u64 > max_bytes {
            return Err(Error::CannotGrow);
        }
        request(more as u64, admit)
    }

    /// Frees unused memory of a segment after a removal: halves its quotients, or reallocates it. If an allocation for
    /// the smaller segment fails, the larger one stays.
    #[cold]
    #[inline(never)]
    pub(super) fn shrink<P: Processor>(&mut self, path: Path) {
        while self.halve(path) {}
        let segment = self.segment(path);
        let Some(bytes) = segment.smaller_size() else { return };
        let before = segment.allocated();
        if let Ok(smaller) = segment.resized::<P>(bytes, None) {
            *self.segment_mut(path) = smaller;
            self.segment_bytes = self.segment_bytes + bytes - before;
        }
    }

    /// Halves the quotients of a segment: halves its groups, or merges it with its buddy. Returns false if that is not
    /// possible or not worthwhile, or if an allocation fails.
    #[cold]
    #[inline(never)]
    fn halve(&mut self, path: Path) -> bool {
        let segment = self.segment(path);
        let depth = segment.depth();
        let is_smallest = matches!(self.addressing, Addressing::Fixed(_)) || segment.level() == FIRST_LEVEL;
        // The buddy may have split further, or may be in another page. Small pages have merged before, unless there was
        // no memory.
        let is_alone = depth > 0 && self.pages.get(path).buddy(path).is_none();
        if is_smallest || is_alone {
            return false;
        }

        let pair;
        let sources = if depth > 0 {
            pair = buddies(path, depth).map(|path| self.segment(path));
            &pair[..]
        } else {
            // A segment with all paths has no buddy. It gives up half of its groups instead.
            std::slice::from_ref(&segment)
        };
        let slots: u32 = sources.iter().map(|segment| segment.slots()).sum();
        if slots > MIN_LOAD * segment.quotients() * sources.len() as u32 / 8 {
            return false;
        }

        let Some((whole, coverage_before, coverage)) = self.halved_segment(segment, sources) else { return false };
        let before = Sums::of(sources, coverage_before);
        self.update_sums(before, Sums::of(&[&whole], coverage));
        if depth > 0 {
            self.merge_buddies(path, whole);
        } else {
            *self.segment_mut(path) = whole;
        }
        true
    }

    /// Returns a segment with half the quotients of `sources`, which are `segment` and its buddy if it has one, and the
    /// coverages before and after. Returns `None` if no such segment is possible, or if an allocation fails.
    fn halved_segment(&self, segment: &Segment, sources: &[&Segment]) -> Option<(Segment, u128, u128)> {
        let value_bits = segment.value_bits();
        let empty = self.empty_halved(segment);
        let forgotten = self.forgotten();
        let mut listed = Segment::list(sources).ok()?;
        let coverage_before = self.addressing.coverage_of_entries(segment, &listed);
        if matches!(self.payload, Payload::Slice(_)) {
            listed.retain(|entry| entry.content > forgotten);
        }
        let entries = halved(&listed, value_bits, empty.value_bits(), self.payload).ok()?;
        // Two runs become one, which may be too long.
        let slots = empty.slots_of_list(&entries).ok()?;
        if has_long_run(&slots) {
            return None;
        }
        let whole = empty.with_slots(&slots, 0, forgotten).ok()?;
        let coverage = self.addressing.coverage_of_entries(&whole, &entries);
        Some((whole, coverage_before, coverage))
    }

    /// Merges the page of a path with its buddy while both fit into one page.
    fn merge_pages(&mut self, path: Path) {
        while let page = self.pages.get(path)
            && let Some(buddy) = self.pages.buddy(path)
            && page.bits().max(buddy.bits()) < PAGE_BITS
        {
            let before = page.bytes() + buddy.bytes() + self.pages.bytes();
            let depth = page.depth();
            let Ok(slots) = try_vec(2 << page.bits().max(buddy.bits())) else { return };
            let [low, high] =
                buddies(path, depth).map(|path| std::mem::replace(self.pages.get_mut(path), Directory::alias(depth)));
            let page = low.merged_with(high, slots);
            let after = page.bytes();
            self.pages.merge_buddies(path, page);
            self.directory_bytes = self.directory_bytes + after + self.pages.bytes() - before;
        }
    }

    /// Removes all entries. A table without items may still have copies of void entries.
    #[cold]
    pub(super) fn clear(&mut self) {
        match Table::new(self.addressing, self.payload) {
            Ok(empty) => *self = empty,
            // There is no memory for a new directory: empty the segments of the old one.
            Err(_) => {
                for page in self.pages.slots_mut().iter_mut() {
                    page.slots_mut().iter_mut().for_each(|segment| *segment = segment.empty_copy());
                }
                self.count = ItemCount::default();
                self.occurrences = 0;
                self.slots = 0;
                self.coverage = Coverage(0);
                self.segment_bytes = 0;
            }
        }
    }
}
