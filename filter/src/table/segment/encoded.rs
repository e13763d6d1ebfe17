//! Segments as bytes.
//!
//! The bytes may come from anywhere. [`Segment::decode`] checks the structure, and [`Segment::checked_weight`] checks
//! the entries.

#![warn(clippy::arithmetic_side_effects)]

use super::run::MAX_RUN;
use super::stamps::slices_between;
use super::{GROUP_QUOTIENTS, MAX_LOG_GROUPS, Run, Segment};
use crate::arch::Baseline;
use crate::error::Error;
use crate::table::bits::{MAX_WIDTH, field, low_bits};
use crate::table::entry::{MAX_ENTRY_COUNT, Payload, Stamps, slot_content, slots_of};

impl Segment {
    /// Encodes the segment for [`decode`](Self::decode). Appends the segment's base, and then the base, the upper part
    /// and the lower part of each group, in whole bytes. A segment that does not forget has no bases. `out` has
    /// [room](Self::encoded_bytes).
    pub(in crate::table) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(out.capacity().saturating_sub(out.len()) >= self.encoded_bytes(), "no room for a segment");
        if self.stamp_bits > 0 {
            out.extend_from_slice(&self.base.to_le_bytes());
        }
        for group in self.filled_groups() {
            let parts = PartBits::of(self.slots_in::<Baseline>(group), self.width());
            let (start, end) = self.extent(group);
            let group = &self.bytes()[start..end];
            let upper = parts.upper.div_ceil(8);
            let lower = parts.lower.div_ceil(8);
            out.extend_from_slice(&group[..self.base_bytes().saturating_add(upper)]);
            if let Some(last) = out.last_mut() {
                *last &= parts.used_in_last_upper();
            }
            let first = out.len();
            out.extend_from_slice(&group[group.len().saturating_sub(lower)..]);
            if let Some(first) = out.get_mut(first) {
                *first &= parts.used_in_first_lower();
            }
        }
    }

    /// Returns the largest number of bytes that [`encode`](Self::encode) appends.
    pub(in crate::table) fn encoded_bytes(&self) -> usize {
        // The slack of a segment is larger than its base.
        self.allocated()
    }

    /// Fills an empty segment with `slots` slots, at least one, from the start of `bytes`, and removes the decoded
    /// bytes from `bytes`. Returns `None` if [`encode`](Self::encode) cannot have written them.
    pub(in crate::table) fn decode(mut self, slots: u32, bytes: &mut &[u8]) -> Result<Option<Segment>, Error> {
        debug_assert!(self.slots == 0 && slots > 0);
        let width = self.width();
        let groups = self.groups();
        let base_bytes = self.base_bytes();
        if self.stamp_bits > 0 {
            let Some((base, rest)) = bytes.split_first_chunk() else { return Ok(None) };
            self.base = u64::from_le_bytes(*base);
            *bytes = rest;
        }
        let mut counts = [0; 1 << MAX_LOG_GROUPS];
        let mut parts = [<(&[u8], &[u8])>::default(); 1 << MAX_LOG_GROUPS];
        for (count, parts) in counts.iter_mut().zip(&mut parts).take(groups) {
            let Some(slots) = bytes.get(base_bytes..).and_then(slots_in_upper) else { return Ok(None) };
            let bits = PartBits::of(slots, width);
            let upper_bytes = base_bytes.saturating_add(bits.upper.div_ceil(8));
            let Some((upper, after)) = bytes.split_at_checked(upper_bytes) else { return Ok(None) };
            let Some((lower, after)) = after.split_at_checked(bits.lower.div_ceil(8)) else { return Ok(None) };
            // The first bit is zero number 0, and all unused bits are clear.
            let is_clear = upper.get(base_bytes).is_some_and(|first| first & 1 == 0)
                && upper.last().is_none_or(|last| last & !bits.used_in_last_upper() == 0)
                && lower.first().is_none_or(|first| first & !bits.used_in_first_lower() == 0);
            if !is_clear {
                return Ok(None);
            }
            *count = slots;
            *parts = (upper, lower);
            *bytes = after;
        }
        if counts.iter().sum::<usize>() != slots as usize {
            return Ok(None);
        }
        match self.allocate(self.bytes_for_slots(slots as usize), |group| counts[group]) {
            Err(Error::CannotGrow) => return Ok(None),
            result => result?,
        }
        self.slots = slots;
        for (group, (upper, lower)) in parts[..groups].iter().enumerate() {
            let (start, end) = self.extent(group);
            let target = &mut self.bytes_mut()[start..end];
            target[..upper.len()].copy_from_slice(upper);
            let slack_end = target.len().saturating_sub(lower.len());
            target[slack_end..].copy_from_slice(lower);
        }
        Ok(Some(self))
    }

    /// Returns the sum of the weights of all values, or `None` if a slot belongs to no valid entry of this payload.
    pub(in crate::table) fn checked_weight(
        &self,
        payload: Payload,
        weigh: impl Fn(u64) -> u64,
    ) -> Result<Option<u128>, Error> {
        if let Payload::Slice(Stamps { forgotten, .. }) = payload
            && (self.base > forgotten || (0..self.groups()).any(|group| self.base_of(group) > forgotten))
        {
            return Ok(None);
        }
        let mut values = Vec::new();
        let mut sum: u128 = 0;
        for group in 0..self.groups() {
            // Most groups need no closer look. Loading a filter takes most of its time here.
            if let Some(of_group) = self.weight_of_plain(group, payload, &weigh) {
                sum = sum.saturating_add(of_group);
                continue;
            }
            for run in self.runs_of(group) {
                if run.len > MAX_RUN {
                    return Ok(None);
                }
                values.clear();
                values.try_reserve(run.len).map_err(|_| Error::OutOfMemory)?;
                let are_entries = match payload {
                    Payload::Nothing => self.read_entries(run, 1, &mut values),
                    Payload::Count => self.read_entries(run, MAX_ENTRY_COUNT, &mut values),
                    Payload::Slice(stamps) => self.read_stamped(run, stamps, &mut values),
                };
                if !are_entries || has_repeated(&mut values) {
                    return Ok(None);
                }
                values.iter().for_each(|&value| sum = sum.saturating_add(weigh(value).into()));
            }
        }
        Ok(Some(sum))
    }

    /// Returns the sum of the weights of a group's values, if a quick look shows that all entries are valid: each has a
    /// slot of its own, or two if the payload is a count. Returns `None` if the group needs a closer look.
    ///
    /// Inlined, so that it is compiled for each way to weigh.
    #[inline(always)]
    #[expect(clippy::arithmetic_side_effects, reason = "these are positions in the segment's own bytes")]
    fn weight_of_plain(&self, group: usize, payload: Payload, weigh: impl Fn(u64) -> u64) -> Option<u128> {
        /// The number of bits of the upper part that are checked at a time. The following bits are read with them.
        const STEP: u32 = 48;
        const MORE: u32 = MAX_WIDTH - STEP;
        let (start, end) = self.bounds(group);
        let width = self.width();
        let slots = self.slots_in::<Baseline>(group) as u32;
        let value =
            |index: usize| field(self.bytes(), end * 8 - (index + 1) * width as usize, width) >> self.stamp_bits;
        let first = start * 8;
        // Without the last zero.
        let length = GROUP_QUOTIENTS + slots;
        let mut before = 0;
        let mut of_repeated: u128 = 0;
        for at in (0..length).step_by(STEP as usize) {
            let left = length - at;
            let bits = field(self.bytes(), first + at as usize, MAX_WIDTH.min(left));
            let ones = bits & low_bits(STEP);
            // Bit i of `pairs` is set if the slots of bit i and of bit i + distance are in one run.
            let mut pairs = ones;
            for distance in 1..=MORE {
                pairs &= bits >> distance;
                if pairs == 0 {
                    break;
                }
                if distance == MORE {
                    return None;
                }
                let mut left = pairs;
                while left != 0 {
                    let index = before + (ones & low_bits(left.trailing_zeros())).count_ones() as usize;
                    let first = value(index);
                    if first == value(index + distance as usize) {
                        // Two equal neighbours are an entry with the count 2. A third one is noticed at distance 2.
                        if distance > 1 || payload != Payload::Count {
                            return None;
                        }
                        of_repeated += u128::from(weigh(first));
                    }
                    left &= left - 1;
                }
            }
            before += ones.count_ones() as usize;
        }
        Some(self.weight_of_slots(group, slots, payload, weigh)?.wrapping_sub(of_repeated))
    }

    /// Returns the sum of the weights of the values in all slots of a group, or `None` if a slot is not valid.
    #[inline(always)]
    #[expect(clippy::arithmetic_side_effects, reason = "these are positions in the segment's own bytes")]
    fn weight_of_slots(&self, group: usize, slots: u32, payload: Payload, weigh: impl Fn(u64) -> u64) -> Option<u128> {
        let stamp_bits = self.stamp_bits();
        // Without stamps, all slots are in the only slice.
        let (base, span) = match payload {
            Payload::Slice(stamps) => (self.base_of(group), stamps.span.into()),
            Payload::Nothing | Payload::Count => (0, 1),
        };
        // As many slots as fit into a word are read at a time.
        let width = self.width();
        let per_word = MAX_WIDTH / width;
        let mut bit = self.bounds(group).1 * 8;
        let mut left = slots;
        let mut sum: u128 = 0;
        let mut is_valid = true;
        while left > 0 {
            let count = per_word.min(left);
            bit -= (count * width) as usize;
            let mut word = field(self.bytes(), bit, count * width);
            for _ in 0..count {
                let slot = word & low_bits(width);
                let value = slot >> stamp_bits;
                is_valid &= value != 0 && slices_between(base, slot, stamp_bits) < span;
                sum = sum.wrapping_add(weigh(value).into());
                word >>= width;
            }
            left -= count;
        }
        is_valid.then_some(sum)
    }

    /// Appends the values of a run to `values`, which has room. Returns false if a slot belongs to no valid entry, or
    /// to an entry with a count above `max_count`.
    fn read_entries(&self, run: Run, max_count: u64, values: &mut Vec<u64>) -> bool {
        debug_assert!(values.capacity().saturating_sub(values.len()) >= run.len, "no room for a run");
        self.entries(run).all(|entry| {
            values.push(entry.value);
            let end = entry.index.saturating_add(slots_of(entry.count, self.width()));
            let content = |slot| slot_content(entry.value, entry.count, self.width(), slot);
            entry.value != 0
                && entry.count <= max_count
                && end <= run.len
                && (entry.index..end).enumerate().all(|(within, index)| self.slot(&run, index) == content(within))
        })
    }
}

/// Returns true if a value occurs twice. May reorder the values.
fn has_repeated(values: &mut [u64]) -> bool {
    /// The largest number of values for which comparing all pairs is faster than sorting.
    const PAIRWISE_MAX: usize = 8;
    if values.len() <= PAIRWISE_MAX {
        return (1..values.len()).any(|index| values[..index].contains(&values[index]));
    }
    values.sort_unstable();
    values.windows(2).any(|pair| pair[0] == pair[1])
}

/// Returns the number of slots in an upper part: the number of ones before its last zero.
fn slots_in_upper(bytes: &[u8]) -> Option<usize> {
    // The zeros that are left before the last one.
    let mut left = GROUP_QUOTIENTS;
    for (index, byte) in bytes.iter().enumerate() {
        match left.checked_sub(byte.count_zeros()) {
            Some(after) => left = after,
            None => {
                let last = (0..8).filter(|bit| byte >> bit & 1 == 0).nth(left as usize)?;
                return index.checked_mul(8)?.checked_add(last)?.checked_sub(GROUP_QUOTIENTS as usize);
            }
        }
    }
    None
}

/// The numbers of bits in the two parts of a group. Each part is stored in whole bytes.
struct PartBits {
    upper: usize,
    lower: usize,
}

impl PartBits {
    /// Returns those of a group with `slots` slots. The number of slots may be forged: too many saturate, and no bytes
    /// are as long.
    fn of(slots: usize, width: u32) -> PartBits {
        let upper = slots.saturating_add(GROUP_QUOTIENTS as usize).saturating_add(1);
        PartBits { upper, lower: slots.saturating_mul(width as usize) }
    }

    /// Returns the bits of the upper part's last byte that are used.
    fn used_in_last_upper(&self) -> u8 {
        0xFF >> (self.upper.wrapping_neg() % 8)
    }

    /// Returns the bits of the lower part's first byte that are used.
    fn used_in_first_lower(&self) -> u8 {
        0xFF << (self.lower.wrapping_neg() % 8)
    }
}
