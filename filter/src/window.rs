//! How long a filter remembers its items: for a time, or until so many others came.
//!
//! Items are in *slices*, each of which is forgotten as a whole. A window of time is divided into `g` slices, and the filter
//! remembers one more, which is the one that fills: so an item is remembered for the window at least, and at most a slice
//! longer.
//!
//! ```text
//!  time      │ 0    │ 1    │ 2    │ 3    │ 4    │ 5  …    with g = 4
//!  added in    ├──────┼──────┼──────┼──────┤
//!  remembered  ████████████████████████████████▒▒▒▒▒▒    by then it is forgotten: the number of its slice
//! ```
//!
//! - **By time.** Slice `n` is forgotten at `n` times the length of a slice, after 1970. An item goes into the first slice that
//!   is not forgotten before the item may be.
//! - **By number.** A slice is full when it has a `g`-th of the capacity. Then the next one begins, and the one that is
//!   `g + 1` before it is forgotten.
//! - **By both.** A slice ends when its time is over, or when it is full. It is forgotten when its window is over, or earlier
//!   if all slices hold more items than there is room for. Where items are renewed, the slices that they left may be empty, and
//!   only so many are begun because one is full: the newest then takes more.
//!
//! Time never goes back: if the clock does, it stands still. Only changes move it, so that what a filter holds follows from
//! them alone.

use std::num::NonZeroU64;

use crate::array::relocate_slice;
use crate::error::{DecodeError, Error};
use crate::item_count::MAX_ITEMS;
use crate::memory::try_vec;

/// How long a filter remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How long an item is remembered, in milliseconds, from 1 to [`MAX_LENGTH`]. `None` if only the number of items counts.
    pub length: Option<NonZeroU64>,
    /// The number of slices that the window is divided into, from 2 to 64.
    pub slices: u8,
    /// Whether an item that is added again is remembered anew.
    pub refresh: bool,
    /// Whether the oldest items are forgotten when there is no room for new ones.
    pub rolling: bool,
}

/// The numbers of slices that a window may be divided into.
pub const SLICES: std::ops::RangeInclusive<u8> = 2..=64;
/// The number of slices of a window by default.
pub const DEFAULT_SLICES: u8 = 8;

/// The longest window: a hundred years, in milliseconds.
pub const MAX_LENGTH: u64 = 100 * 36525 * 24 * 3600 * 10;

/// The latest time, in milliseconds since 1970: some 140,000 years later. A later one would overflow sums.
pub(crate) const MAX_TIME: u64 = 1 << 52;

impl Window {
    /// Returns the window, if there is such a one.
    pub fn checked(self) -> Option<Window> {
        let is_sound = SLICES.contains(&self.slices)
            && match self.length {
                Some(length) => length.get() <= MAX_LENGTH,
                None => self.rolling && !self.refresh,
            };
        is_sound.then_some(self)
    }

    /// Returns the number of items in a slice, if equally many are in each.
    pub fn share_of(self, capacity: u64) -> u64 {
        capacity.div_ceil(self.slices.into())
    }

    /// Returns the most items that are remembered at a time, if equally many are in each slice.
    pub fn room_for(self, capacity: u64) -> u64 {
        let share = self.share_of(capacity);
        match self.length {
            Some(_) => capacity.saturating_add(share),
            None => share.saturating_mul(u64::from(self.slices) + 1),
        }
    }

    /// Returns the most slices that are remembered at a time.
    pub fn span(self) -> u8 {
        match (self.length, self.rolling) {
            // Those that began because time was over are forgotten after as many, and so many may begin because one was full.
            (Some(_), true) => self.slices + 2 + self.most_full(),
            _ => self.slices + 1,
        }
    }

    /// Returns the most slices that are remembered at a time and began because the one before was full.
    fn most_full(self) -> u8 {
        self.slices + 1
    }

    /// Returns the length of a slice in milliseconds, rounded up.
    fn slice_length(self) -> u64 {
        self.length.map_or(0, |length| length.get().div_ceil(self.slices.into()))
    }
}

/// The parts of a filter in which the items of a slice are.
pub(crate) const PARTS: usize = 2;

/// A slice that is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// When it is forgotten, in milliseconds since 1970; [`u64::MAX`] if time does not matter.
    pub until: u64,
    /// The number of items in each part of the filter.
    pub items: [u64; PARTS],
}

impl Slice {
    /// Returns the number of items in it.
    pub fn total(&self) -> u64 {
        self.items.iter().sum()
    }
}

/// Returns the number of items in each part of the filter.
fn sum(slices: &[Slice]) -> [u64; PARTS] {
    let mut totals = [0; PARTS];
    slices.iter().for_each(|slice| totals.iter_mut().zip(slice.items).for_each(|(total, items)| *total += items));
    totals
}

/// The slices of a filter: which are remembered, and how many items are in each.
pub struct Slices {
    window: Window,
    /// The number of items of a full slice.
    share: u64,
    /// The most items that are remembered at a time, if equally many are in each slice.
    room: u64,
    /// The length of a slice in milliseconds, 0 if time does not matter.
    slice_length: u64,
    /// The last slice that is forgotten.
    forgotten: u64,
    /// When the filter was last changed, in milliseconds since 1970; 0 if time does not matter.
    latest: u64,
    /// Those that follow `forgotten`, and then unused ones: as many as there may ever be.
    slices: Box<[Slice]>,
    /// The number of those that are remembered.
    len: usize,
    /// The items in all of them.
    totals: [u64; PARTS],
    /// The number of slices that were forgotten before their time. It is not stored.
    ended_early: u64,
}

/// What happens when an item is added: which slices are forgotten before, and which one the item is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub forgotten: u64,
    pub slice: u64,
}

impl Slices {
    /// Returns slices without items.
    pub fn new(window: Window, capacity: u64) -> Result<Slices, Error> {
        let mut slices = try_vec(window.span().into())?;
        slices.resize(window.span().into(), Slice::default());
        Ok(Slices {
            window,
            share: window.share_of(capacity),
            room: window.room_for(capacity),
            slice_length: window.slice_length(),
            forgotten: 0,
            latest: 0,
            slices: slices.into_boxed_slice(),
            len: 0,
            totals: [0; PARTS],
            ended_early: 0,
        })
    }

    /// Restores slices that were stored.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Corrupt`] if no filter has them; [`DecodeError::OutOfMemory`].
    pub fn restored(
        window: Window,
        capacity: u64,
        (forgotten, latest): (u64, u64),
        stored: &[Slice],
    ) -> Result<Slices, DecodeError> {
        let mut slices = Slices::new(window, capacity)?;
        let is_sound = latest <= MAX_TIME
            && forgotten <= MAX_TIME
            && stored.len() <= slices.slices.len()
            && stored.is_sorted_by_key(|slice| slice.until)
            && stored.iter().all(|slice| slice.items.iter().all(|&items| items <= MAX_ITEMS))
            && match (window.length, window.rolling) {
                (Some(_), false) => {
                    let ends = (forgotten + 1..).map(|number| number * slices.slice_length);
                    forgotten == latest / slices.slice_length
                        && stored.iter().map(|slice| slice.until).eq(ends.take(stored.len()))
                }
                (Some(_), true) => stored.iter().all(|slice| slice.until <= slices.end_of(latest)),
                (None, _) => stored.iter().all(|slice| slice.until == u64::MAX && slice.total() <= slices.share),
            };
        if !is_sound {
            return Err(DecodeError::Corrupt);
        }
        (slices.forgotten, slices.latest, slices.len) = (forgotten, latest, stored.len());
        slices.slices[..stored.len()].copy_from_slice(stored);
        slices.totals = sum(stored);
        Ok(slices)
    }

    /// Returns a copy.
    pub fn try_clone(&self) -> Result<Slices, Error> {
        let mut slices = try_vec(self.slices.len())?;
        slices.extend_from_slice(&self.slices);
        Ok(Slices { slices: slices.into_boxed_slice(), ..*self })
    }

    /// Returns how long they are remembered.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the most items that are remembered at a time, if equally many are in each slice.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Returns the number of items in each part of the filter when it was changed.
    pub fn items(&self) -> [u64; PARTS] {
        self.totals
    }

    /// Returns the last slice that was forgotten when the filter was changed.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns when the filter was last changed, in milliseconds since 1970.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns those that were remembered when the filter was changed, the oldest first.
    pub fn remembered(&self) -> &[Slice] {
        &self.slices[..self.len]
    }

    /// Returns the number of slices that were forgotten before their time since the filter was created or loaded.
    pub fn ended_early(&self) -> u64 {
        self.ended_early
    }

    /// Returns the bytes of the allocation.
    pub fn allocated(&self) -> usize {
        size_of_val(&*self.slices)
    }

    /// Returns the time that it is, given what the clock says.
    pub fn time(&self, clock: u64) -> u64 {
        clock.clamp(self.latest, MAX_TIME)
    }

    /// Returns the last slice that is forgotten at a time.
    #[inline]
    pub fn forgotten_at(&self, clock: u64) -> u64 {
        let now = self.time(clock);
        match self.window {
            Window { length: None, .. } => self.forgotten,
            // Mostly no slice has ended since the last change, and a product is known sooner than a quotient.
            Window { rolling: false, .. } if now < (self.forgotten + 1) * self.slice_length => self.forgotten,
            Window { rolling: false, .. } => now / self.slice_length,
            Window { rolling: true, .. } => {
                self.forgotten + self.remembered().iter().take_while(|slice| slice.until <= now).count() as u64
            }
        }
    }

    /// Returns the slices that are remembered at a time, the oldest first.
    pub fn remembered_at(&self, clock: u64) -> &[Slice] {
        let over = (self.forgotten_at(clock) - self.forgotten).min(self.len as u64);
        &self.remembered()[over as usize..]
    }

    /// Returns the number of items in each part of the filter at a time.
    #[inline]
    pub fn items_at(&self, clock: u64) -> [u64; PARTS] {
        if self.forgotten_at(clock) == self.forgotten { self.totals } else { sum(self.remembered_at(clock)) }
    }

    /// Returns for how many milliseconds the oldest item that is remembered may have been there. `None` if there is none, or
    /// time does not matter.
    pub fn age_at(&self, clock: u64) -> Option<u64> {
        let length = self.window.length?.get();
        let oldest = self.remembered_at(clock).iter().find(|slice| slice.total() > 0)?;
        let began = oldest.until.saturating_sub(length.saturating_add(self.slice_length));
        Some(self.time(clock).saturating_sub(began))
    }

    /// Returns what happens if an item is added now, to be remembered for `lifetime` milliseconds, at most the window's
    /// length; `None` stands for that. `room` is the number of items that may be remembered beside it.
    #[inline]
    pub fn step(&self, clock: u64, lifetime: Option<NonZeroU64>, room: u64) -> Step {
        let (now, length) = (self.time(clock), self.slice_length);
        let forgotten = self.forgotten_at(clock);
        match self.window {
            Window { length: Some(whole), rolling: false, .. } => {
                // A master of another version may say more than a stamp can.
                let lifetime = lifetime.unwrap_or(whole).min(whole);
                Step { forgotten, slice: (now + lifetime.get()).div_ceil(length) }
            }
            Window { length: None, .. } => {
                let begins = self.remembered().last().is_none_or(|newest| newest.total() >= self.share);
                let slice = self.forgotten + self.len as u64 + u64::from(begins);
                Step { forgotten: forgotten.max(slice.saturating_sub(self.slices.len() as u64)), slice }
            }
            Window { length: Some(_), rolling: true, .. } => {
                let all = self.remembered_at(clock);
                let (mut left, mut remembered) = (all, self.items_at(clock).iter().sum::<u64>());
                // Whatever has no items is forgotten with the oldest, except for the newest.
                while let [oldest, others @ ..] = left
                    && (remembered > room || oldest.total() == 0 && !others.is_empty())
                {
                    (left, remembered) = (others, remembered - oldest.total());
                }
                let forgotten = forgotten + (all.len() - left.len()) as u64;
                let begins = left.last().is_none_or(|newest| {
                    let full = left.windows(2).filter(|pair| pair[0].until == pair[1].until).count();
                    newest.until < self.end_of(now)
                        || newest.total() >= self.share && full < self.window.most_full().into()
                });
                Step { forgotten, slice: forgotten + left.len() as u64 + u64::from(begins) }
            }
        }
    }

    /// Returns when a slice is forgotten that begins at a time, if the filter forgets by both.
    fn end_of(&self, now: u64) -> u64 {
        let length = self.slice_length;
        (now / length + 1) * length + self.window.length.map_or(0, NonZeroU64::get)
    }

    /// Notes that a filter is changed, and which slices it forgets by that.
    pub fn advance(&mut self, clock: u64, forgotten: u64) {
        if self.window.length.is_some() {
            self.latest = self.time(clock);
        }
        if forgotten > self.forgotten {
            let count = (forgotten - self.forgotten).min(self.len as u64) as usize;
            let early = |slice: &&Slice| self.window.length.is_some() && slice.until > self.latest;
            self.ended_early += self.slices[..count].iter().filter(early).count() as u64;
            self.slices[..self.len].rotate_left(count);
            (self.len, self.forgotten) = (self.len - count, forgotten);
            self.totals = sum(self.remembered());
        }
    }

    /// Counts an item in a slice that is remembered, after [`advance`](Self::advance).
    pub fn add(&mut self, slice: u64, part: usize) {
        while self.forgotten + (self.len as u64) < slice && self.len < self.slices.len() {
            let number = self.forgotten + self.len as u64 + 1;
            let until = match self.window {
                Window { length: None, .. } => u64::MAX,
                Window { rolling: false, .. } => number * self.slice_length,
                Window { rolling: true, .. } => self.end_of(self.latest),
            };
            self.slices[self.len] = Slice { until, items: [0; PARTS] };
            self.len += 1;
        }
        if let Some(slice) = self.slice_mut(slice) {
            slice.items[part] += 1;
            self.totals[part] += 1;
        }
    }

    /// Takes an item off a slice.
    pub fn remove(&mut self, slice: u64, part: usize) {
        if let Some(slice) = self.slice_mut(slice)
            && slice.items[part] > 0
        {
            slice.items[part] -= 1;
            self.totals[part] -= 1;
        }
    }

    /// Returns a slice that is remembered.
    fn slice_mut(&mut self, number: u64) -> Option<&mut Slice> {
        let index = number.checked_sub(self.forgotten + 1)?;
        self.slices[..self.len].get_mut(usize::try_from(index).ok()?)
    }

    /// Lets `relocate` move the allocation.
    ///
    /// # Safety
    ///
    /// See [`Array::relocate`](crate::array::Array::relocate).
    pub unsafe fn relocate(&mut self, relocate: impl Fn(std::ptr::NonNull<u8>) -> Option<std::ptr::NonNull<u8>>) {
        // SAFETY: as promised by the caller.
        unsafe { relocate_slice(&mut self.slices, relocate) };
    }
}
