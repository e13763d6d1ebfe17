//! The slices of a filter that forgets: how long it remembers its items.
//!
//! Items are in *slices*, and a slice is forgotten as a whole. A window is divided into `g` slices. The filter also
//! remembers one more slice, the one that is being filled. An item is therefore remembered for at least the window, and
//! at most one slice longer.
//!
//! ```text
//!  time         │ 0    │ 1    │ 2    │ 3    │ 4    │ 5  …    with g = 4
//!  window           ├───────────────────────────┤            of an item that is added
//!  remembered       ███████████████████████████████          until slice 5 is forgotten
//! ```
//!
//! - **By time.** Slice `n` is forgotten `n` slice lengths after 1970. An item goes into the first slice that is
//!   remembered for the whole lifetime of the item.
//! - **By number.** A slice is full when it has a `g`-th of the capacity. Then the next slice begins. The oldest slice is
//!   forgotten as soon as the others hold as many items as the capacity.
//! - **By both.** A slice ends when its time is over or when it is full. It is forgotten when its window is over, or
//!   earlier if all slices together hold more items than there is room for. Renewed items leave their slices, which can
//!   make full slices empty. The number of slices that begin early is limited. At the limit, the newest slice gets more
//!   items than its share.
//!
//! Time never goes back: if the clock goes back, time stands still. Only changes of the filter advance its time, so its
//! content is a function of the commands alone.

#![warn(clippy::arithmetic_side_effects)]

use std::num::NonZeroU64;

use crate::array::Mover;
use crate::error::{DecodeError, Error, ensure};
use crate::item_count::MAX_ITEMS;
use crate::memory::try_vec;
use crate::window::{MAX_LENGTH, MAX_SPAN, Window};

/// The latest time, in milliseconds since 1970: some 140,000 years later. A later one would overflow sums.
pub(crate) const MAX_TIME: u64 = 1 << 52;

/// The last slice of a filter that rolls. A later slice is forged, and could overflow sums.
const MAX_SLICE: u64 = 1 << 52;

/// The number of tables in a filter that forgets. Both have items of each slice.
pub(crate) const TABLES: usize = 2;

/// Sums of times, of numbers of slices, and of the items of all slices stay below this.
const _: () = {
    const LIMIT: u64 = 1 << 60;
    assert!(MAX_TIME + 2 * MAX_LENGTH < LIMIT && MAX_SLICE + (MAX_SPAN as u64) < LIMIT);
    assert!(TABLES as u64 * MAX_SPAN as u64 * MAX_ITEMS < LIMIT);
};

/// A remembered slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The time when the slice is forgotten, in milliseconds since 1970; [`u64::MAX`] if time does not matter.
    pub until: u64,
    /// The number of the slice's items in each table.
    pub items: [u64; TABLES],
}

impl Slice {
    /// Returns the number of items in the slice.
    pub fn total(&self) -> u64 {
        in_both(self.items)
    }
}

/// Returns the number of items in both tables together.
pub(crate) fn in_both([expected, overflow]: [u64; TABLES]) -> u64 {
    expected.saturating_add(overflow)
}

/// Returns the number of items of these slices in each table.
fn sum(slices: &[Slice]) -> [u64; TABLES] {
    std::array::from_fn(|table| slices.iter().fold(0u64, |total, slice| total.saturating_add(slice.items[table])))
}

/// The remembered slices of a filter, with the number of items in each.
///
/// Times and numbers may come from forged bytes. [`restored`](Self::restored) and [`step`](Self::step) limit times, the
/// numbers of slices, and the number of a slice's items in each table. Arithmetic saturates all the same: if a limit
/// were missing, a sum that wraps could forget items.
pub struct Slices {
    window: Window,
    /// The number of items in a full slice.
    slice_capacity: u64,
    /// The largest number of items that are remembered at a time, if all slices have equally many.
    room: u64,
    /// The length of a slice in milliseconds; 1 if time does not matter.
    slice_length: NonZeroU64,
    /// The last forgotten slice.
    forgotten: u64,
    /// The time of the last change, in milliseconds since 1970; 0 if time does not matter.
    latest: u64,
    /// The remembered slices, which follow `forgotten`, and then unused ones up to the span of the window.
    slices: Box<[Slice]>,
    /// The number of remembered slices.
    len: usize,
    /// The number of items of all remembered slices in each table.
    totals: [u64; TABLES],
    /// The number of slices that were forgotten before their time. It is not stored.
    ended_early: u64,
}

/// The remembered slices and items at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The filter's time, in milliseconds since 1970.
    pub time: u64,
    /// The last slice that is forgotten.
    pub forgotten: u64,
    /// The number of remembered items in each table.
    pub items: [u64; TABLES],
}

/// The effect of an addition on the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The last slice that is forgotten before the addition.
    pub forgotten: u64,
    /// The slice that gets the item.
    pub slice: u64,
}

impl Slices {
    /// Creates slices without items.
    pub fn new(window: Window, capacity: u64) -> Result<Slices, Error> {
        debug_assert!(window.checked().is_some(), "{window:?}");
        let mut slices = try_vec(window.span().into())?;
        slices.resize(window.span().into(), Slice::default());
        Ok(Slices {
            window,
            slice_capacity: window.slice_capacity(capacity),
            room: window.room_for(capacity),
            slice_length: window.slice_length(),
            forgotten: 0,
            latest: 0,
            slices: slices.into_boxed_slice(),
            len: 0,
            totals: [0; TABLES],
            ended_early: 0,
        })
    }

    /// Restores stored slices.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Corrupt`] if no filter has such slices; [`DecodeError::OutOfMemory`] if an allocation fails.
    pub fn restored(
        window: Window,
        capacity: u64,
        (forgotten, latest): (u64, u64),
        stored: &[Slice],
    ) -> Result<Slices, DecodeError> {
        let mut slices = Slices::new(window, capacity)?;
        let is_numbered = forgotten.saturating_add(stored.len() as u64) <= MAX_SLICE;
        let is_sound = latest <= MAX_TIME
            && forgotten <= MAX_SLICE
            && stored.len() <= slices.slices.len()
            && stored.is_sorted_by_key(|slice| slice.until)
            && stored.iter().all(|slice| slice.items.iter().all(|&items| items <= MAX_ITEMS))
            && match (window.length, window.rolling) {
                (Some(_), false) => {
                    let ends = (forgotten.saturating_add(1)..).map(|number| slices.end_of(number));
                    forgotten == latest / slices.slice_length
                        && stored.iter().map(|slice| slice.until).eq(ends.take(stored.len()))
                }
                (Some(_), true) => is_numbered && stored.iter().all(|slice| slice.until <= slices.end_if_begun(latest)),
                (None, _) => {
                    is_numbered
                        && stored.iter().all(|slice| slice.until == u64::MAX && slice.total() <= slices.slice_capacity)
                }
            };
        ensure(is_sound)?;
        slices.forgotten = forgotten;
        slices.latest = latest;
        slices.len = stored.len();
        slices.slices[..stored.len()].copy_from_slice(stored);
        slices.totals = sum(stored);
        Ok(slices)
    }

    pub fn try_clone(&self) -> Result<Slices, Error> {
        let mut slices = try_vec(self.slices.len())?;
        slices.extend_from_slice(&self.slices);
        Ok(Slices { slices: slices.into_boxed_slice(), ..*self })
    }

    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the largest number of items that are remembered at a time, if all slices have equally many.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Returns the number of items in each table at the last change.
    pub fn items(&self) -> [u64; TABLES] {
        self.totals
    }

    /// Returns the last slice that was forgotten at the last change.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the time of the last change, in milliseconds since 1970.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns the slices that were remembered at the last change, the oldest first.
    pub fn remembered(&self) -> &[Slice] {
        &self.slices[..self.len]
    }

    /// Returns the number of slices that were forgotten before their time since the filter was created or loaded.
    pub fn ended_early(&self) -> u64 {
        self.ended_early
    }

    /// Returns the size of the allocation, in bytes.
    pub fn allocated(&self) -> usize {
        size_of_val(&*self.slices)
    }

    /// Returns the filter's time for a time of the clock: not before the last change, and not after [`MAX_TIME`].
    pub fn time(&self, clock: u64) -> u64 {
        clock.clamp(self.latest, MAX_TIME)
    }

    /// Returns the last slice that is forgotten at a time of the clock.
    #[inline]
    pub fn forgotten_at(&self, clock: u64) -> u64 {
        let now = self.time(clock);
        match self.window {
            Window { length: None, .. } => self.forgotten,
            // Fast path: mostly no slice has ended since the last change, and a multiplication is faster than a
            // division.
            Window { rolling: false, .. } if now < self.next_end() => self.forgotten,
            Window { rolling: false, .. } => now / self.slice_length,
            Window { rolling: true, .. } => {
                let over = self.remembered().iter().take_while(|slice| slice.until <= now).count();
                self.forgotten.saturating_add(over as u64)
            }
        }
    }

    /// Returns what is remembered at a time of the clock.
    #[inline]
    pub fn at(&self, clock: u64) -> Moment {
        let forgotten = self.forgotten_at(clock);
        let items = if forgotten == self.forgotten { self.totals } else { sum(self.remembered_after(forgotten)) };
        Moment { time: self.time(clock), forgotten, items }
    }

    /// Returns the remembered slices after the forgotten ones, the oldest first.
    fn remembered_after(&self, forgotten: u64) -> &[Slice] {
        let over = forgotten.saturating_sub(self.forgotten).min(self.len as u64);
        &self.remembered()[over as usize..]
    }

    /// Returns an upper bound for the age of the oldest remembered item, in milliseconds. Returns `None` if there are
    /// no items, or time does not matter.
    pub fn age_at(&self, clock: u64) -> Option<u64> {
        let length = self.window.length?.get();
        let oldest = self.remembered_after(self.forgotten_at(clock)).iter().find(|slice| slice.total() > 0)?;
        let began = oldest.until.saturating_sub(length.saturating_add(self.slice_length.get()));
        Some(self.time(clock).saturating_sub(began))
    }

    /// Returns the effect of adding an item now that is to be remembered for `lifetime` milliseconds, at most the
    /// length of the window. `None` stands for the length of the window. `room` is the number of other items that may
    /// be remembered. Returns `None` if there is no slice for the item.
    #[inline]
    pub fn step(&self, now: Moment, lifetime: Option<NonZeroU64>, room: u64) -> Option<Step> {
        let step = match self.window {
            Window { length: Some(whole), rolling: false, .. } => {
                // The first slice that is remembered for the whole lifetime of the item. A master of another version
                // may send a lifetime that is longer than the window.
                let until = now.time.saturating_add(lifetime.unwrap_or(whole).min(whole).get());
                Step { forgotten: now.forgotten, slice: until.div_ceil(self.slice_length.get()) }
            }
            Window { length: None, .. } => self.step_by_number(),
            Window { length: Some(_), rolling: true, .. } => self.step_by_both(now, room),
        };
        let is_numbered = !self.window.rolling || step.slice <= MAX_SLICE;
        let has_room = self.totals.iter().all(|&items| items < MAX_ITEMS);
        (is_numbered && has_room).then_some(step)
    }

    /// Returns the step in a filter that forgets by number: the item goes into the newest slice, or the next one if
    /// that is full. The oldest slices are forgotten if the others hold as many items as the capacity.
    #[inline]
    fn step_by_number(&self) -> Step {
        let is_newest_full = self.remembered().last().is_none_or(|newest| newest.total() >= self.slice_capacity);
        let slice = self.newest().saturating_add(is_newest_full.into());
        let capacity = self.room.saturating_sub(self.slice_capacity);
        // Only as many slices are stored as the window spans, so the slices up to this one are forgotten in any case.
        // Unless slices are forged, the others hold enough items.
        let least = slice.saturating_sub(self.slices.len() as u64);

        let mut forgotten = self.forgotten;
        // The new item counts.
        let mut remembered = in_both(self.items()).saturating_add(1);
        for oldest in self.remembered() {
            let number = forgotten.saturating_add(1);
            let others = remembered.saturating_sub(oldest.total());
            let is_needed = others < capacity && forgotten >= least;
            if is_needed || number == slice {
                break;
            }
            forgotten = number;
            remembered = others;
        }
        Step { forgotten, slice }
    }

    /// Returns the step in a filter that forgets by time and by number: the item goes into the newest slice, or the
    /// next one if the time of that is over or it is full.
    #[inline]
    fn step_by_both(&self, now: Moment, room: u64) -> Step {
        let all = self.remembered_after(now.forgotten);
        let mut left = all;
        let mut remembered = in_both(now.items);
        while let [oldest, others @ ..] = left {
            // An empty slice holds nothing, and only uses up the number of slices. The newest one may still get items.
            let is_useless = oldest.total() == 0 && !others.is_empty();
            if remembered <= room && !is_useless {
                break;
            }
            left = others;
            remembered = remembered.saturating_sub(oldest.total());
        }
        let count = all.len().saturating_sub(left.len()) as u64;
        let forgotten = now.forgotten.saturating_add(count);

        let begins = left.last().is_none_or(|newest| self.ends(newest, left, now.time));
        Step { forgotten, slice: forgotten.saturating_add(left.len() as u64).saturating_add(begins.into()) }
    }

    /// Returns true if the newest of some slices takes no more items, in a filter that forgets by time and by number.
    #[inline]
    fn ends(&self, newest: &Slice, slices: &[Slice], time: u64) -> bool {
        if newest.until < self.end_if_begun(time) {
            return true;
        }
        // Slices that end at the same time began early. At the limit, the newest one gets more items than its share.
        let began_early = slices.windows(2).filter(|pair| pair[0].until == pair[1].until).count();
        newest.total() >= self.slice_capacity && began_early < self.window.max_full_slices().into()
    }

    /// Returns the number of the newest remembered slice.
    #[inline]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most `MAX_SPAN` more than a number up to 2^52, on the hot path"
    )]
    fn newest(&self) -> u64 {
        self.forgotten + self.len as u64
    }

    /// Returns the time when a slice is forgotten, in a filter that forgets by time only.
    fn end_of(&self, number: u64) -> u64 {
        number.saturating_mul(self.slice_length.get())
    }

    /// Returns the time when the next slice is forgotten, in a filter that forgets by time only.
    #[inline]
    #[expect(clippy::arithmetic_side_effects, reason = "at most one slice length after `latest`, on the hot path")]
    fn next_end(&self) -> u64 {
        (self.forgotten + 1) * self.slice_length.get()
    }

    /// Returns the time when a slice that begins now is forgotten, in a filter that forgets by time and by number.
    fn end_if_begun(&self, now: u64) -> u64 {
        let next = (now / self.slice_length).saturating_add(1);
        self.end_of(next).saturating_add(self.window.length.map_or(0, NonZeroU64::get))
    }

    /// Advances the time of the last change, and forgets the slices up to `forgotten`.
    pub fn advance(&mut self, clock: u64, forgotten: u64) {
        if self.window.length.is_some() {
            self.latest = self.time(clock);
        }
        if forgotten > self.forgotten {
            let count = forgotten.saturating_sub(self.forgotten).min(self.len as u64) as usize;
            let early = |slice: &&Slice| self.window.length.is_some() && slice.until > self.latest;
            let ended_early = self.slices[..count].iter().filter(early).count();
            self.ended_early = self.ended_early.saturating_add(ended_early as u64);
            self.slices[..self.len].rotate_left(count);
            self.len = self.len.saturating_sub(count);
            self.forgotten = forgotten;
            self.totals = sum(self.remembered());
        }
    }

    /// Counts an item in a slice that is not forgotten, and begins that slice if necessary. The time of the last change
    /// is that of the addition.
    pub fn add(&mut self, slice: u64, table: usize) {
        debug_assert!(slice > self.forgotten, "an item in the forgotten slice {slice}");
        while self.newest() < slice {
            let until = match self.window {
                Window { length: None, .. } => u64::MAX,
                Window { rolling: false, .. } => self.end_of(self.newest().saturating_add(1)),
                Window { rolling: true, .. } => self.end_if_begun(self.latest),
            };
            let Some(unused) = self.slices.get_mut(self.len) else { break };
            *unused = Slice { until, items: [0; TABLES] };
            self.len = self.len.saturating_add(1);
        }
        if let Some(slice) = self.slice_mut(slice) {
            slice.items[table] = slice.items[table].saturating_add(1);
            self.totals[table] = self.totals[table].saturating_add(1);
        }
    }

    /// Subtracts an item from a slice, if the slice is remembered.
    pub fn remove(&mut self, slice: u64, table: usize) {
        if let Some(slice) = self.slice_mut(slice)
            && let Some(left) = slice.items[table].checked_sub(1)
        {
            slice.items[table] = left;
            self.totals[table] = self.totals[table].saturating_sub(1);
        }
    }

    /// Sets the number of a table's items to 0 in all slices.
    pub fn forget_table(&mut self, table: usize) {
        self.slices.iter_mut().for_each(|slice| slice.items[table] = 0);
        self.totals[table] = 0;
    }

    /// Returns a slice by its number, if it is remembered.
    fn slice_mut(&mut self, number: u64) -> Option<&mut Slice> {
        let index = number.checked_sub(self.forgotten)?.checked_sub(1)?;
        self.slices[..self.len].get_mut(usize::try_from(index).ok()?)
    }

    pub fn relocate(&mut self, mover: Mover<'_>) {
        mover.move_slice(&mut self.slices);
    }
}
