//! The filter that forgets: two [quotient tables](crate::table) whose entries have stamps for their
//! [slices].
//!
//! The first table has a fixed size, for the items of a window and one more slice. Further items go into the *overflow
//! table*, which grows and shrinks. Both tables together keep the error rate, like the two parts of a [native
//! filter](crate::kind::native).
//!
//! Look-ups ignore the slots of forgotten slices. An addition to a group drops the group's forgotten slots. If a table
//! has many forgotten slots, each addition also drops those of one more group.

pub(crate) mod slices;

use super::{AnyFilter, CreateParams, Insertion, KindFilter};
use crate::array::{Mover, Stop, try_box};
use crate::error::{Error, Interrupted, MergeError};
use crate::hash::{Hash, Hasher};
use crate::layer::LayerInfo;
use crate::memory::{Admit, request};
use crate::prediction::Prediction;
use crate::sizing::either;
use crate::spec::{Growth, InsertOptions, OwnSpec, Parameters};
use crate::table::{AddOutcome, END, Payload, Position, Sample, SliceAddition, Stamps, Table};
use crate::window::Window;
use slices::{Moment, Slices, Step, in_both};

/// The index of the first table, for the expected items, in arrays with an element for each table.
const EXPECTED: usize = 0;

/// The index of the overflow table, for further items, in these arrays.
const OVERFLOW: usize = 1;

/// The lowest error rate of a table with stamps. A fingerprint and a stamp must fit into a slot.
const MIN_ERROR_RATE: f64 = 1.0 / (1u64 << 40) as f64;

/// The share of the error rate for the first table of a filter that grows. The overflow table gets the rest. This split
/// costs 0.4 bits per slot in the first table, and two bits per slot in the overflow table, which is mostly small or
/// absent.
const EXPECTED_SHARE: f64 = 0.75;

/// A filter that forgets.
pub struct WindowedFilter {
    pub(crate) spec: OwnSpec,
    pub(crate) capacity: u64,
    pub(crate) slices: Slices,
    pub(crate) expected: Table,
    pub(crate) overflow: Option<Box<Table>>,
    /// The position in each table where the next sweep for forgotten slots starts.
    pub(crate) sweep_positions: [Position; 2],
    /// The sum of the hashes of all additions. Equal sums mean that the same items were added, in any order.
    pub(crate) history: u64,
}

impl WindowedFilter {
    fn admitted(self, admit: Admit<'_>) -> Result<WindowedFilter, Error> {
        request(self.allocated() as u64, admit)?;
        Ok(self)
    }

    /// Returns the slices.
    pub fn slices(&self) -> &Slices {
        &self.slices
    }

    /// Returns the table for the expected items, and the overflow table.
    #[inline]
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        std::iter::once(&self.expected).chain(self.overflow.as_deref())
    }

    /// Returns the number of bytes requested from the allocator.
    fn allocated(&self) -> usize {
        let overflow = self.overflow.as_ref().map_or(0, |table| size_of::<Table>() + table.allocated());
        size_of::<WindowedFilter>() + self.slices.allocated() + self.expected.allocated() + overflow
    }

    /// Inserts an item at `now`, which becomes the moment after that. `refresh` says whether an item that is present is
    /// [renewed](Self::renews). If not, it changes nothing.
    #[inline(always)]
    fn insert(
        &mut self,
        hash: Hash,
        now: &mut Moment,
        refresh: bool,
        options: &InsertOptions,
        admit: Admit<'_>,
    ) -> Result<AddOutcome, Error> {
        let known_in = self.table_of(hash, now);
        if known_in.is_some() && !refresh {
            return Ok(AddOutcome::Unchanged);
        }
        let (table_index, Step { forgotten, slice }) = self.destination(known_in, now, options)?;
        let addition = SliceAddition { forgotten_before: now.forgotten, forgotten_after: forgotten, slice, refresh };
        let added = match table_index {
            EXPECTED => self.expected.add_to_slice(hash, addition, admit),
            _ => self.add_to_overflow(hash, addition, admit),
        };
        let has_changed = match added {
            Ok(AddOutcome::Unchanged) => false,
            Ok(AddOutcome::New | AddOutcome::Moved(_)) => true,
            // A failed addition changes nothing, unless an allocation failed after forgotten slots were dropped. Then
            // the slices forget, too.
            Err(_) => self.last_forgotten() > self.slices.forgotten(),
        };
        if !has_changed {
            return added;
        }
        if added.is_err() || self.slices.forgotten() < forgotten || self.slices.latest() < now.time {
            self.advance_to(options.now);
        }
        if let AddOutcome::Moved(from) = added? {
            self.slices.remove(from, table_index);
        }
        self.slices.add(slice, table_index);
        self.history = self.history.wrapping_add(hash.second);
        self.sweep();
        (now.forgotten, now.items) = (forgotten, self.slices.items());
        added
    }

    /// Returns where an item goes now, which is the table that it is known in, if there is one: the index of the table,
    /// and the slice.
    #[inline(always)]
    fn destination(
        &self,
        known_in: Option<usize>,
        now: &Moment,
        options: &InsertOptions,
    ) -> Result<(usize, Step), Error> {
        let is_rolling = self.slices.window().rolling;
        // Only a new item in a filter that rolls takes the place of others.
        let takes_room = is_rolling && known_in.is_none();
        let spare = if takes_room { self.slices.room().saturating_sub(1) } else { u64::MAX };
        let step = self.slices.step(*now, options.lifetime, spare).ok_or(Error::CannotGrow)?;
        let table_index = match (known_in, self.spec.growth) {
            (Some(table_index), _) => table_index,
            // A filter that rolls has just made room.
            (None, _) if !self.is_full(now) || is_rolling => EXPECTED,
            (None, Growth::By(_)) => OVERFLOW,
            (None, Growth::Fixed) => return Err(Error::Full),
        };
        Ok((table_index, step))
    }

    /// Returns true if the first table has as many items as it is meant for.
    #[inline(always)]
    fn is_full(&self, now: &Moment) -> bool {
        now.items[EXPECTED] >= self.slices.room()
    }

    /// Returns true if an addition with these options renews an item that is present.
    #[inline(always)]
    fn renews(&self, options: &InsertOptions) -> bool {
        let Window { rolling, refresh, length, .. } = self.slices.window();
        // An explicit lifetime is a promise: an item that is present must not be forgotten before it is over.
        let is_asked_for = options.refresh || options.lifetime.is_some() && !rolling;
        // Without a length, the number of further items decides when an item is forgotten. It cannot be renewed.
        refresh || is_asked_for && length.is_some()
    }

    /// Returns the index of the table that remembers an item. Does not search the first table if a new item would fit
    /// there: the table then treats it in the same way, new or not.
    #[inline(always)]
    fn table_of(&self, hash: Hash, now: &Moment) -> Option<usize> {
        if self.overflow.as_ref().is_some_and(|table| table.remembers(hash, now.forgotten)) {
            return Some(OVERFLOW);
        }
        let Window { rolling, length, .. } = self.slices.window();
        // A filter that rolls by number always has room: it forgets by full slices alone.
        let may_not_fit = if rolling { length.is_some() } else { self.is_full(now) };
        (may_not_fit && self.expected.remembers(hash, now.forgotten)).then_some(EXPECTED)
    }

    /// Adds an item to the overflow table. The first such item creates the table.
    #[cold]
    fn add_to_overflow(&mut self, hash: Hash, addition: SliceAddition, admit: Admit<'_>) -> Result<AddOutcome, Error> {
        if let Some(table) = &mut self.overflow {
            return table.add_to_slice(hash, addition, admit);
        }
        let [_, rate] = rates(&self.spec);
        let mut table = Table::growing(rate.max(MIN_ERROR_RATE), self.expected.payload())?;
        request((size_of::<Table>() + table.allocated()) as u64, admit)?;
        let added = table.add_to_slice(hash, addition, admit)?;
        self.overflow = Some(try_box(table)?);
        Ok(added)
    }

    /// Advances the time of the last change. Forgets the slices whose time is over and those that a table has forgotten
    /// to make room.
    pub fn advance_to(&mut self, now: u64) {
        let forgotten = self.slices.forgotten_at(now).max(self.last_forgotten());
        self.slices.advance(now, forgotten);
        self.expected.mark_forgotten(forgotten);
        if let Some(table) = &mut self.overflow {
            table.mark_forgotten(forgotten);
        }
    }

    /// Returns the last slice that a table has forgotten.
    fn last_forgotten(&self) -> u64 {
        self.tables().map(Table::forgotten).max().unwrap_or(0)
    }

    /// Drops the forgotten slots of one group in each table with many of them. Frees the overflow table when it has no
    /// more items.
    ///
    /// In a steady stream, additions reach most groups within a slice, and this sweep has nothing to do.
    fn sweep(&mut self) {
        let items = self.slices.items();
        let has_many =
            |table: &Table, items: u64| table.slots() > items.saturating_add(items / 4).saturating_add(UNSWEPT_SLOTS);
        if has_many(&self.expected, items[EXPECTED]) {
            self.sweep_positions[EXPECTED] = self.expected.sweep(self.sweep_positions[EXPECTED]);
        }
        let Some(overflow) = &mut self.overflow else { return };
        if has_many(overflow, items[OVERFLOW]) {
            self.sweep_positions[OVERFLOW] = overflow.sweep(self.sweep_positions[OVERFLOW]);
        }
        if overflow.slots() == 0 || items[OVERFLOW] == 0 && overflow.slots() <= UNSWEPT_SLOTS {
            self.overflow = None;
            self.sweep_positions[OVERFLOW] = 0;
            // Forged slices may claim items that the table never had.
            self.slices.forget_table(OVERFLOW);
        }
    }
}

impl KindFilter for WindowedFilter {
    const UNMERGED: Option<MergeError> = Some(MergeError::MergedWindows);

    type Params = (u64, Window);

    /// The first addition allocates the memory of the table.
    fn create(params: &CreateParams, (seed, window): (u64, Window), admit: Admit<'_>) -> Result<WindowedFilter, Error> {
        let (spec, capacity) = (params.own(seed), params.capacity.get());
        let slices = Slices::new(window, capacity)?;
        let [expected, _] = rates(&spec);
        let table = first_table(expected, capacity, window)?;
        WindowedFilter { spec, capacity, slices, expected: table, overflow: None, sweep_positions: [0; 2], history: 0 }
            .admitted(admit)
    }

    fn predict(params: &CreateParams, (seed, window): (u64, Window), items: u64) -> Result<Prediction, Error> {
        let (spec, capacity) = (params.own(seed), params.capacity.get());
        let overflow_items = match spec.growth {
            _ if window.rolling => 0,
            Growth::Fixed if items > capacity => return Err(Error::Full),
            Growth::Fixed | Growth::By(_) => items.saturating_sub(capacity),
        };
        let [rate_of_expected, rate_of_overflow] = rates(&spec);
        let fill = |table, items: u64| {
            let mut table = Sample::new(table, items)?;
            table.stream(items, window.slices.into(), PLANNED_WINDOWS)?;
            Ok::<_, Error>(table)
        };
        let expected = fill(first_table(rate_of_expected, capacity, window)?, items.min(capacity))?;
        let mut memory =
            (size_of::<AnyFilter>() + size_of::<WindowedFilter>() + Slices::new(window, capacity)?.allocated()) as u64;
        memory = memory.saturating_add(expected.allocated());
        let mut rate = expected.false_positive_rate();
        if overflow_items > 0 {
            let overflow = Table::growing(rate_of_overflow.max(MIN_ERROR_RATE), payload(window))?;
            let overflow = fill(overflow, overflow_items)?;
            memory = memory.saturating_add(size_of::<Table>() as u64).saturating_add(overflow.allocated());
            rate = either(rate, overflow.false_positive_rate());
        }
        Ok(Prediction::of_fingerprints(memory, rate))
    }

    fn parameters(&self) -> Parameters {
        self.spec.parameters(self.capacity, Some(self.slices.window()))
    }

    #[inline(never)]
    fn hasher(&self) -> Hasher<'_> {
        Hasher::Xxh3 { seed: self.spec.seed }
    }

    fn empty_copy(&self, admit: Admit<'_>) -> Result<WindowedFilter, Error> {
        let window = self.slices.window();
        let expected = Table::new(self.expected.addressing(), payload(window))?;
        let slices = Slices::new(window, self.capacity)?;
        WindowedFilter { slices, expected, overflow: None, sweep_positions: [0; 2], history: 0, ..*self }
            .admitted(admit)
    }

    fn try_clone(&self) -> Result<WindowedFilter, Error> {
        let overflow = self.overflow.as_ref().map(|table| table.try_clone().and_then(try_box)).transpose()?;
        Ok(WindowedFilter { slices: self.slices.try_clone()?, expected: self.expected.try_clone()?, overflow, ..*self })
    }

    /// Returns the number of items per window that fit, or the present number of items if that is larger. With a steady
    /// stream, the filter also remembers the items of one more slice.
    fn capacity(&self) -> u64 {
        let overflow = self.overflow.as_ref().map_or(0, |table| table.quotients());
        self.capacity.saturating_add(overflow).max(self.items())
    }

    fn items(&self) -> u64 {
        in_both(self.slices.items())
    }

    fn items_at(&self, now: u64) -> u64 {
        in_both(self.slices.at(now).items)
    }

    fn is_estimate(&self) -> Option<bool> {
        Some(false)
    }

    fn memory_usage(&self) -> usize {
        size_of::<AnyFilter>() + self.allocated()
    }

    fn num_allocations(&self) -> usize {
        self.tables().map(Table::segments).sum::<u64>() as usize
    }

    fn num_layers(&self) -> usize {
        1 + usize::from(self.overflow.is_some())
    }

    fn layers(&self) -> Box<dyn Iterator<Item = LayerInfo> + '_> {
        let [of_expected, of_overflow] = rates(&self.spec);
        let info = |table: &Table, table_index, capacity, rate| LayerInfo {
            items: self.slices.items()[table_index],
            ..LayerInfo::of_table(table, capacity, rate)
        };
        let expected = info(&self.expected, EXPECTED, self.capacity, of_expected);
        let overflow = self.overflow.as_deref().map(|table| info(table, OVERFLOW, table.quotients(), of_overflow));
        Box::new(std::iter::once(expected).chain(overflow))
    }

    fn fill(&self) -> f64 {
        self.overflow.as_deref().unwrap_or(&self.expected).fill()
    }

    fn false_positive_rate_at(&self, now: u64) -> f64 {
        let rates = self.tables().zip(self.slices.at(now).items).map(|(table, items)| {
            let remembered = items as f64 / table.slots().max(1) as f64;
            table.false_positive_rate() * remembered.min(1.0)
        });
        rates.fold(0.0, either)
    }

    #[inline(never)]
    fn prefetch(&self, hashes: &[Hash]) {
        self.tables().for_each(|table| table.prefetch(hashes));
    }

    fn look_ahead(&self, hash: Hash) {
        self.tables().for_each(|table| table.look_ahead(hash));
    }

    #[inline(never)]
    fn contains_at(&self, hash: Hash, now: u64) -> bool {
        let forgotten = self.slices.forgotten_at(now);
        self.expected.remembers(hash, forgotten)
            || self.overflow.as_ref().is_some_and(|table| table.remembers(hash, forgotten))
    }

    #[inline(never)]
    fn contains_hashes(&self, hashes: &[Hash], found: &mut [bool], now: u64) {
        let forgotten = self.slices.forgotten_at(now);
        found.fill(false);
        self.tables().for_each(|table| table.find_more_remembered(hashes, found, forgotten));
    }

    #[inline(never)]
    fn insert_hashes(&mut self, items: Insertion<'_>, admit: Admit<'_>) -> Result<(), Interrupted> {
        let Insertion { hashes, new, renewed, options } = items;
        let mut now = self.slices.at(options.now);
        let refresh = self.renews(options);
        for (handled, &hash) in hashes.iter().enumerate() {
            self.tables().for_each(|table| table.prefetch_after(hashes, handled));
            let added =
                self.insert(hash, &mut now, refresh, options, admit).map_err(|error| Interrupted { handled, error })?;
            new[handled] = added == AddOutcome::New;
            if let Some(renewed) = renewed.get_mut(handled) {
                *renewed = matches!(added, AddOutcome::Moved(_));
            }
        }
        Ok(())
    }

    /// Moves the slices and the first table, and then the overflow table. Positions of the overflow table follow those
    /// of the first.
    fn relocate(&mut self, start: Position, mover: Mover<'_>, should_stop: Stop<'_>) -> Option<Position> {
        if start == 0 {
            self.slices.relocate(mover);
        }
        if start < END
            && let Some(next) = self.expected.relocate(start, mover, should_stop)
        {
            return Some(next);
        }
        let overflow = self.overflow.as_mut()?;
        if start <= END {
            mover.move_box(overflow);
        }
        overflow.relocate(start.saturating_sub(END), mover, should_stop).map(|next| END + next)
    }
}

/// The number of windows for which a stream is simulated to predict a filter. After two, forgotten slots have reached
/// their steady share.
const PLANNED_WINDOWS: u64 = 3;

/// Returns the empty table for the expected items.
fn first_table(error_rate: f64, capacity: u64, window: Window) -> Result<Table, Error> {
    Table::fixed(window.room_for(capacity), error_rate.max(MIN_ERROR_RATE), payload(window))
}

/// Returns the payload of the entries of an empty table.
fn payload(window: Window) -> Payload {
    Payload::Slice(Stamps { forgotten: 0, span: window.span() })
}

/// Returns the error rates of the first table and the overflow table.
fn rates(spec: &OwnSpec) -> [f64; 2] {
    let rate = spec.error_rate.get();
    match spec.growth {
        Growth::Fixed => [rate, 0.0],
        Growth::By(_) => [EXPECTED_SHARE * rate, (1.0 - EXPECTED_SHARE) * rate],
    }
}

/// The number of forgotten slots, in addition to a quarter of the items, that a table may have before it is swept.
const UNSWEPT_SLOTS: u64 = 64;
