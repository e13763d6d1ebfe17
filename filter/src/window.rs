//! Windows: the rules by which a filter forgets items. [`slices`](crate::kind::windowed::slices) applies them.

#![warn(clippy::arithmetic_side_effects)]

use std::num::NonZeroU64;

/// The rules by which a filter forgets items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The time for which items are remembered, in milliseconds, from 1 to [`MAX_LENGTH`]. `None` in a filter that
    /// forgets by number only.
    pub length: Option<NonZeroU64>,
    /// The number of slices in the window, from 2 to 64.
    pub slices: u8,
    /// True if adding an item again renews it.
    pub refresh: bool,
    /// True if the oldest items are forgotten to make room for new ones.
    pub rolling: bool,
}

/// The possible numbers of slices in a window.
pub const SLICES: std::ops::RangeInclusive<u8> = 2..=64;

/// The default number of slices in a window.
///
/// Stamps have `ceil(log2(slices + 1))` bits, so one less than a power of two uses them best: 15 slices take 5 % less
/// memory than 8, and forget twice as precisely.
pub const DEFAULT_SLICES: u8 = 15;

/// The length of the longest window: a hundred years, in milliseconds.
pub const MAX_LENGTH: u64 = 100 * 36525 * 24 * 3600 * 10;

/// The largest [span](Window::span) of any window: that of the most slices, if they end by time and by number.
pub(crate) const MAX_SPAN: u8 = {
    let window = Window { length: Some(NonZeroU64::MIN), slices: *SLICES.end(), refresh: false, rolling: true };
    let span = window.span();
    assert!(span < u8::MAX, "a span that saturates");
    span
};

impl Window {
    /// Returns the window, or `None` if it is not valid.
    pub fn checked(self) -> Option<Window> {
        let is_sound = SLICES.contains(&self.slices)
            && match self.length {
                Some(length) => length.get() <= MAX_LENGTH,
                None => self.rolling && !self.refresh,
            };
        is_sound.then_some(self)
    }

    /// Returns the number of items in each slice of a filter with `capacity` items per window.
    pub fn slice_capacity(self, capacity: u64) -> u64 {
        capacity.div_ceil(self.slices.into())
    }

    /// Returns the largest number of items that are remembered at a time, if all slices have equally many.
    pub fn room_for(self, capacity: u64) -> u64 {
        capacity.saturating_add(self.slice_capacity(capacity))
    }

    /// Returns the largest number of slices that are remembered at a time.
    pub const fn span(self) -> u8 {
        match (self.length, self.rolling) {
            // At most `slices + 2` of them began because the time of the slice before was over, the others because it
            // was full.
            (Some(_), true) => self.slices.saturating_add(2).saturating_add(self.max_full_slices()),
            _ => self.slices.saturating_add(1),
        }
    }

    /// Returns the largest number of remembered slices that began because the slice before was full.
    pub const fn max_full_slices(self) -> u8 {
        self.slices.saturating_add(1)
    }

    /// Returns the length of a slice in milliseconds, rounded up; 1 if time does not matter.
    pub fn slice_length(self) -> NonZeroU64 {
        let length = self.length.map_or(1, |length| length.get().div_ceil(self.slices.into()));
        NonZeroU64::new(length).unwrap_or(NonZeroU64::MIN)
    }
}
