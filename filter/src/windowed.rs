//! The filter that forgets: two [quotient tables](crate::table) whose entries say which [slice](crate::window) they are in.
//!
//! The first table is made for the items of a window and one more slice. What does not fit goes into the second one, which
//! grows, and shrinks again. Together they keep the error rate, as the two parts of a [native filter](crate::native) do.
//!
//! Slots of slices that are forgotten answer nothing, and are dropped when something is added to their groups. Where little
//! is added, each addition drops those of a further group.

use std::num::NonZeroU64;
use std::ptr::NonNull;

use crate::array::{relocate_box, try_box};
use crate::counting::OnDuplicate;
use crate::error::{Error, Interrupted};
use crate::hash::{Hash, Hasher};
use crate::layer::LayerInfo;
use crate::memory::Admit;
use crate::spec::{Growth, OwnSpec};
use crate::table::{AddOutcome, END, Payload, Position, SliceAddition, Stamps, Table};
use crate::window::{Slices, Step, Window};

/// How items are inserted.
#[derive(Clone, Copy, Debug)]
pub struct InsertOptions {
    /// What to do with an item that a counting filter holds already.
    pub on_duplicate: OnDuplicate,
    /// The time, in milliseconds since 1970. Only filters that forget look at it; 0 stands for that of the last change.
    pub now: u64,
    /// How long a filter that forgets remembers the items, in milliseconds, at most its window: which it is by default.
    pub lifetime: Option<NonZeroU64>,
    /// True if a filter with a window renews the items that it holds already, even if it was created without `refresh`.
    pub refresh: bool,
}

impl Default for InsertOptions {
    fn default() -> InsertOptions {
        InsertOptions { on_duplicate: OnDuplicate::Count, now: 0, lifetime: None, refresh: false }
    }
}

impl From<OnDuplicate> for InsertOptions {
    fn from(on_duplicate: OnDuplicate) -> InsertOptions {
        InsertOptions { on_duplicate, ..InsertOptions::default() }
    }
}

/// The parts of a filter that forgets, by their numbers in its slices.
const EXPECTED: usize = 0;
const BEYOND: usize = 1;

/// The lowest error rate of a table with stamps: fingerprints and stamps have to fit into a slot.
const MIN_ERROR_RATE: f64 = 1.0 / (1u64 << 40) as f64;

/// The share of the error rate that the first table of a filter that grows may use. The second one is small, if there is
/// one at all, and may use the rest: that costs it two bits a slot, and the first one 0.4.
const SHARE: f64 = 0.75;

/// A filter that forgets.
pub struct WindowedFilter {
    spec: OwnSpec,
    capacity: u64,
    slices: Slices,
    expected: Table,
    beyond: Option<Box<Table>>,
    /// Where forgotten slots of either table are looked for next.
    cursors: [Position; 2],
    /// The sum of hashes of all additions ever: it is the same only where the same was written, in whatever order.
    history: u64,
}

impl WindowedFilter {
    /// Creates an empty filter. It takes memory when items are added.
    pub fn new(spec: OwnSpec, capacity: u64, window: Window) -> Result<WindowedFilter, Error> {
        let slices = Slices::new(window, capacity)?;
        let [rate, _] = rates(&spec);
        let (room, stamps) = (window.room_for(capacity), Stamps { forgotten: 0, span: window.span() });
        let expected = Table::fixed(room, rate.max(MIN_ERROR_RATE), Payload::Slice(stamps))?;
        Ok(WindowedFilter::from_parts(spec, capacity, slices, expected, None))
    }

    /// Makes a filter of what is there already.
    pub fn from_parts(
        spec: OwnSpec,
        capacity: u64,
        slices: Slices,
        expected: Table,
        beyond: Option<Box<Table>>,
    ) -> WindowedFilter {
        WindowedFilter { spec, capacity, slices, expected, beyond, cursors: [0; 2], history: 0 }
    }

    /// Returns an empty filter of the same options.
    pub fn empty_copy(&self) -> Result<WindowedFilter, Error> {
        let window = self.slices.window();
        let stamps = Stamps { forgotten: 0, span: window.span() };
        let expected = Table::new(self.expected.addressing(), Payload::Slice(stamps))?;
        Ok(WindowedFilter::from_parts(self.spec, self.capacity, Slices::new(window, self.capacity)?, expected, None))
    }

    /// Returns a copy that shares nothing.
    pub fn try_clone(&self) -> Result<WindowedFilter, Error> {
        let beyond = self.beyond.as_ref().map(|table| table.try_clone().and_then(try_box)).transpose()?;
        Ok(WindowedFilter { slices: self.slices.try_clone()?, expected: self.expected.try_clone()?, beyond, ..*self })
    }

    /// Returns how the filter is created and hashed.
    pub fn spec(&self) -> &OwnSpec {
        &self.spec
    }

    /// Returns the slices.
    pub fn slices(&self) -> &Slices {
        &self.slices
    }

    /// Returns the tables: for the items that were expected, and for others, if there are any.
    pub fn tables(&self) -> (&Table, Option<&Table>) {
        (&self.expected, self.beyond.as_deref())
    }

    /// As [`tables`](Self::tables), to fill them.
    pub fn tables_mut(&mut self) -> (&mut Table, Option<&mut Table>) {
        (&mut self.expected, self.beyond.as_deref_mut())
    }

    /// Returns where forgotten slots of either table are looked for next.
    pub fn cursors(&self) -> [Position; 2] {
        self.cursors
    }

    /// Returns the sum of hashes of all that was ever added.
    pub fn history(&self) -> u64 {
        self.history
    }

    /// Restores what else is stored of a filter.
    pub fn set_state(&mut self, cursors: [Position; 2], history: u64) {
        (self.cursors, self.history) = (cursors, history);
    }

    /// Returns how the filter hashes its items.
    #[inline(never)]
    pub fn hasher(&self) -> Hasher {
        Hasher::Xxh3 { seed: self.spec.seed }
    }

    /// Returns the number of items in a window that the filter was created for.
    pub fn initial_capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of items in a window that fit, or of those that are there, if they are more: a steady stream leaves
    /// those of a slice more.
    pub fn capacity(&self) -> u64 {
        let beyond = self.beyond.as_ref().map_or(0, |table| table.quotients());
        self.capacity.saturating_add(beyond).max(self.items())
    }

    /// Returns the number of items that were remembered when the filter was last changed.
    pub fn items(&self) -> u64 {
        self.slices.items().iter().sum()
    }

    /// Returns the number of items that are remembered at a time, in milliseconds since 1970.
    pub fn items_at(&self, now: u64) -> u64 {
        self.slices.items_at(now).iter().sum()
    }

    /// Returns the bytes requested of the allocator.
    pub fn allocated(&self) -> usize {
        let beyond = self.beyond.as_ref().map_or(0, |table| size_of::<Table>() + table.allocated());
        size_of::<WindowedFilter>() + self.slices.allocated() + self.expected.allocated() + beyond
    }

    /// Returns the share of slots that are filled in the table that was last added.
    pub fn fill(&self) -> f64 {
        self.beyond.as_deref().unwrap_or(&self.expected).fill()
    }

    /// Returns the false-positive rate of what is remembered at a time, in milliseconds since 1970.
    pub fn false_positive_rate_at(&self, now: u64) -> f64 {
        let rate = |table: &Table, part| {
            let remembered = self.slices.items_at(now)[part] as f64 / table.slots().max(1) as f64;
            table.false_positive_rate() * remembered.min(1.0)
        };
        let of_expected = rate(&self.expected, EXPECTED);
        let of_beyond = self.beyond.as_ref().map_or(0.0, |table| rate(table, BEYOND));
        of_expected + of_beyond - of_expected * of_beyond
    }

    /// Returns what is known of the tables.
    pub fn info(&self) -> impl Iterator<Item = LayerInfo> {
        let [of_expected, of_beyond] = rates(&self.spec);
        let info = |table: &Table, part, capacity, rate| LayerInfo {
            items: self.slices.items()[part],
            ..LayerInfo::of_table(table, capacity, rate)
        };
        let beyond = self.beyond.as_deref().map(|table| info(table, BEYOND, table.quotients(), of_beyond));
        std::iter::once(info(&self.expected, EXPECTED, self.capacity, of_expected)).chain(beyond)
    }

    /// See [`Table::prefetch`].
    #[inline(never)]
    pub fn prefetch(&self, hashes: &[Hash]) {
        self.expected.prefetch(hashes);
        if let Some(table) = &self.beyond {
            table.prefetch(hashes);
        }
    }

    /// Returns true if the item may be remembered at a time, in milliseconds since 1970.
    #[inline(never)]
    pub fn contains(&self, hash: Hash, now: u64) -> bool {
        let forgotten = self.slices.forgotten_at(now);
        self.expected.remembers(hash, forgotten)
            || self.beyond.as_ref().is_some_and(|table| table.remembers(hash, forgotten))
    }

    /// See [`Filter::contains_hashes`](crate::Filter::contains_hashes).
    #[inline(never)]
    pub fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], now: u64) {
        let forgotten = self.slices.forgotten_at(now);
        found.fill(false);
        self.expected.find_remembered(hashes, found, forgotten);
        if let Some(table) = &self.beyond {
            table.find_remembered(hashes, found, forgotten);
        }
    }

    /// Inserts items in order; `new[i]` tells whether the item was new. `renewed` has no elements, or `renewed[i]` tells
    /// whether the item was there and is remembered anew.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] at the first item that does not fit.
    #[inline(never)]
    pub fn insert_all(
        &mut self,
        hashes: &[Hash],
        new: &mut [bool],
        renewed: &mut [bool],
        options: &InsertOptions,
        admit: Admit<'_>,
    ) -> Result<(), Interrupted> {
        for (handled, &hash) in hashes.iter().enumerate() {
            let added = self.insert(hash, options, admit).map_err(|error| Interrupted { handled, error })?;
            new[handled] = added == AddOutcome::New;
            if let Some(renewed) = renewed.get_mut(handled) {
                *renewed = matches!(added, AddOutcome::Moved(_));
            }
        }
        Ok(())
    }

    /// Inserts an item. What is there and stays where it is changes nothing.
    #[inline]
    fn insert(&mut self, hash: Hash, options: &InsertOptions, admit: Admit<'_>) -> Result<AddOutcome, Error> {
        let &InsertOptions { now, lifetime, .. } = options;
        let Window { rolling, refresh, length, .. } = self.slices.window();
        let refresh = refresh || options.refresh && length.is_some();
        let room = self.slices.room();
        let forgotten_before = self.slices.forgotten_at(now);
        let is_full = self.slices.items_at(now)[EXPECTED] >= room;
        let is_beyond = self.beyond.as_ref().is_some_and(|table| table.remembers(hash, forgotten_before));
        // What is there need not fit. One that rolls without time always has room: it begins a slice for it.
        let may_not_fit = is_full && !rolling || rolling && length.is_some();
        let is_expected = may_not_fit && !is_beyond && self.expected.remembers(hash, forgotten_before);
        let spare = if is_expected || !rolling { u64::MAX } else { room - 1 };
        let Step { forgotten, slice } = match is_expected && !refresh {
            true => return Ok(AddOutcome::Unchanged),
            false => self.slices.step(now, lifetime, spare),
        };
        let addition = SliceAddition { forgotten_before, forgotten_after: forgotten, slice, refresh };
        let part = match self.spec.growth {
            _ if is_beyond => BEYOND,
            _ if !is_full || is_expected || rolling => EXPECTED,
            Growth::By(_) => BEYOND,
            Growth::Fixed => return Err(Error::Full),
        };
        let added = match part {
            EXPECTED => self.expected.add_to_slice(hash, addition, admit),
            _ => self.add_beyond(hash, addition, admit),
        };
        // A table that was refused memory may have been divided anew by then.
        if added != Ok(AddOutcome::Unchanged) {
            self.advance(now);
        }
        match added? {
            AddOutcome::Unchanged => return added,
            AddOutcome::New => {}
            AddOutcome::Moved(from) => self.slices.remove(from, part),
        }
        self.slices.add(slice, part);
        self.history = self.history.wrapping_add(hash.second);
        self.sweep();
        added
    }

    /// Adds an item to the second table. There is none before the first one.
    #[cold]
    fn add_beyond(&mut self, hash: Hash, addition: SliceAddition, admit: Admit<'_>) -> Result<AddOutcome, Error> {
        if let Some(table) = &mut self.beyond {
            return table.add_to_slice(hash, addition, admit);
        }
        let [_, rate] = rates(&self.spec);
        let mut table = Table::growing(rate.max(MIN_ERROR_RATE), self.expected.payload())?;
        if !admit((size_of::<Table>() + table.allocated()) as u64) {
            return Err(Error::OutOfMemory);
        }
        let added = table.add_to_slice(hash, addition, admit)?;
        self.beyond = Some(try_box(table)?);
        Ok(added)
    }

    /// Notes what time it is.
    pub fn advance_to(&mut self, now: u64) {
        self.advance(now);
    }

    /// Notes what time it is, and which slices are forgotten: those whose time is over, and as many as a table made room by.
    fn advance(&mut self, now: u64) {
        let beyond = self.beyond.as_ref().map_or(0, |table| table.forgotten());
        let forgotten = self.slices.forgotten_at(now).max(self.expected.forgotten()).max(beyond);
        self.slices.advance(now, forgotten);
        self.expected.mark_forgotten(forgotten);
        if let Some(table) = &mut self.beyond {
            table.mark_forgotten(forgotten);
        }
    }

    /// Drops forgotten slots of a group of each table that has many of them, and a table that has few others.
    ///
    /// In a steady stream, most groups are written to while a slice lasts, and have dropped them by then.
    fn sweep(&mut self) {
        let items = self.slices.items();
        let has_many = |table: &Table, items: u64| table.slots() > items + items / 4 + FEW_SLOTS;
        if has_many(&self.expected, items[EXPECTED]) {
            self.cursors[EXPECTED] = self.expected.sweep(self.cursors[EXPECTED]);
        }
        if self.expected.slots() == 0 && (self.expected.segments() > 1 || self.cursors[EXPECTED] > 0) {
            self.expected.clear();
            self.cursors[EXPECTED] = 0;
        }
        let Some(beyond) = &mut self.beyond else { return };
        if has_many(beyond, items[BEYOND]) {
            self.cursors[BEYOND] = beyond.sweep(self.cursors[BEYOND]);
        }
        if beyond.slots() == 0 || items[BEYOND] == 0 && beyond.slots() <= FEW_SLOTS {
            (self.beyond, self.cursors[BEYOND]) = (None, 0);
        }
    }

    /// Lets `relocate` move the filter's allocations, as [`Table::relocate`] does: those of the second table behind those of
    /// the first.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    pub unsafe fn relocate(
        &mut self,
        start: Position,
        relocate: impl Fn(NonNull<u8>) -> Option<NonNull<u8>>,
        mut should_stop: impl FnMut() -> bool,
    ) -> Option<Position> {
        // SAFETY: as promised by the caller.
        unsafe {
            if start == 0 {
                self.slices.relocate(&relocate);
            }
            if start < END
                && let Some(next) = self.expected.relocate(start, &relocate, &mut should_stop)
            {
                return Some(next);
            }
            let beyond = self.beyond.as_mut()?;
            if start <= END {
                relocate_box(beyond, &relocate);
            }
            beyond.relocate(start.saturating_sub(END), relocate, should_stop).map(|next| END + next)
        }
    }
}

/// Returns the part of the error rate that the first table may use, and the second one.
fn rates(spec: &OwnSpec) -> [f64; 2] {
    let rate = spec.error_rate.get();
    match spec.growth {
        Growth::Fixed => [rate, 0.0],
        Growth::By(_) => [SHARE * rate, (1.0 - SHARE) * rate],
    }
}

/// A table may hold so many forgotten slots, and as many as a quarter of its items, before they are looked for.
const FEW_SLOTS: u64 = 64;
