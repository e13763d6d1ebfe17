//! Segments as bytes.
//!
//! The bytes may come from anywhere. [`Segment::decode`] checks the structure, and [`Segment::is_sound`] checks the
//! entries.

use super::{GROUP_QUOTIENTS, MAX_LOG_GROUPS, MAX_RUN, Run, Segment};
use crate::error::Error;
use crate::table::bits::{Broadword, MAX_WIDTH, field, low_bits};
use crate::table::entry::{MAX_ENTRY_COUNT, Payload, Stamps, slot_content, slots_of};

impl Segment {
    /// Encodes the segment for [`decode`](Self::decode). Appends the segment's base, and then the base, the upper part
    /// and the lower part of each group, in whole bytes. A segment that does not forget has no bases. `out` must have
    /// room.
    pub(in crate::table) fn encode(&self, out: &mut Vec<u8>) {
        if self.stamp_bits > 0 {
            out.extend_from_slice(&self.base.to_le_bytes());
        }
        for group in self.filled_groups() {
            let ((start, end), slots) = (self.bounds(group), self.slots_in::<Broadword>(group));
            let upper = GROUP_QUOTIENTS as usize + 1 + slots;
            let lower = slots * usize::from(self.width);
            out.extend_from_slice(&self.bytes()[start - self.base_bytes()..start + upper.div_ceil(8)]);
            if let Some(last) = out.last_mut() {
                *last &= 0xFF >> (7 - (upper - 1) % 8);
            }
            let first = out.len();
            out.extend_from_slice(&self.bytes()[end - lower.div_ceil(8)..end]);
            if let Some(first) = out.get_mut(first) {
                *first &= 0xFF << ((8 - lower % 8) % 8);
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
        let (width, groups, base_bytes) = (usize::from(self.width), self.groups(), self.base_bytes());
        if self.stamp_bits > 0 {
            let Some((base, rest)) = bytes.split_first_chunk() else { return Ok(None) };
            (self.base, *bytes) = (u64::from_le_bytes(*base), rest);
        }
        let (mut counts, mut rest) = ([0; 1 << MAX_LOG_GROUPS], *bytes);
        for count in &mut counts[..groups] {
            let Some((_base, parts)) = rest.split_at_checked(base_bytes) else { return Ok(None) };
            let Some(slots) = slots_in_upper(parts) else { return Ok(None) };
            let (upper, lower) = (GROUP_QUOTIENTS as usize + 1 + slots, slots * width);
            let Some((taken, after)) = parts.split_at_checked(upper.div_ceil(8) + lower.div_ceil(8)) else {
                return Ok(None);
            };
            let (upper_bytes, lower_bytes) = taken.split_at(upper.div_ceil(8));
            // The first bit is zero number 0, and all unused bits are clear.
            let is_clear = upper_bytes.first().is_some_and(|first| first & 1 == 0)
                && upper_bytes.last().is_none_or(|last| last & !(0xFF >> (7 - (upper - 1) % 8)) == 0)
                && lower_bytes.first().is_none_or(|first| first & !(0xFF << ((8 - lower % 8) % 8)) == 0);
            if !is_clear {
                return Ok(None);
            }
            (*count, rest) = (slots, after);
        }
        if counts.iter().sum::<usize>() != slots as usize {
            return Ok(None);
        }
        match self.allocate(self.bytes_for_slots(slots as usize), |group| counts[group]) {
            Err(Error::CannotGrow) => return Ok(None),
            result => result?,
        }
        self.slots = slots;
        for (group, &slots) in counts[..groups].iter().enumerate() {
            let (start, end) = self.bounds(group);
            let (upper, lower) = ((GROUP_QUOTIENTS as usize + 1 + slots).div_ceil(8), (slots * width).div_ceil(8));
            let (taken, after) = bytes.split_at(base_bytes + upper + lower);
            *bytes = after;
            let target = self.bytes_mut();
            target[start - base_bytes..start + upper].copy_from_slice(&taken[..base_bytes + upper]);
            target[end - lower..end].copy_from_slice(&taken[base_bytes + upper..]);
        }
        Ok(Some(self))
    }

    /// Returns true if all slots belong to valid entries of this payload.
    pub(in crate::table) fn is_sound(&self, payload: Payload) -> Result<bool, Error> {
        if let Payload::Slice(Stamps { forgotten, .. }) = payload
            && (self.base > forgotten || (0..self.groups()).any(|group| self.base_of(group) > forgotten))
        {
            return Ok(false);
        }
        let mut values = Vec::new();
        for group in 0..self.groups() {
            // Most groups need no closer look. Loading a filter takes most of its time here.
            if self.stamp_bits == 0 && self.has_single_slots(group) {
                continue;
            }
            for (_, run) in self.runs_of(group..group + 1) {
                if run.len > MAX_RUN {
                    return Ok(false);
                }
                values.clear();
                values.try_reserve(run.len).map_err(|_| Error::OutOfMemory)?;
                let are_entries = match payload {
                    Payload::Nothing => self.read_entries(run, 1, &mut values),
                    Payload::Count => self.read_entries(run, MAX_ENTRY_COUNT, &mut values),
                    Payload::Slice(stamps) => self.read_stamped(run, stamps, &mut values),
                };
                if !are_entries || has_repeated(&mut values) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Returns true if each slot of a group is an entry of its own: no slot is 0, and no two slots of a run are equal.
    /// Returns false if a run is so long that it needs another check.
    #[inline(always)]
    pub(super) fn has_single_slots(&self, group: usize) -> bool {
        /// The number of bits of the upper part that are checked at a time. The following bits are read with them.
        const STEP: u32 = 48;
        const MORE: u32 = MAX_WIDTH - STEP;
        let ((start, end), width, slots) = (self.bounds(group), self.width(), self.slots_in::<Broadword>(group));
        let slot = |index: usize| field(self.bytes(), end * 8 - (index + 1) * width as usize, width);
        let (first, length) = (start * 8, GROUP_QUOTIENTS + 1 + slots as u32);
        let mut before = 0;
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
                    return false;
                }
                let mut left = pairs;
                while left != 0 {
                    let index = before + (ones & low_bits(left.trailing_zeros())).count_ones() as usize;
                    if slot(index) == slot(index + distance as usize) {
                        return false;
                    }
                    left &= left - 1;
                }
            }
            before += ones.count_ones() as usize;
        }
        self.slots_of_group(group).all(|slot| slot != 0)
    }

    /// Appends the values of a run to `values`, which must have room. Returns false if a slot belongs to no valid
    /// entry, or to an entry with a count above `max_count`.
    fn read_entries(&self, run: Run, max_count: u64, values: &mut Vec<u64>) -> bool {
        let mut index = 0;
        while index < run.len {
            let entry = self.entry(&run, index);
            let slots = slots_of(entry.count, self.width());
            let slot = |slot| slot_content(entry.value, entry.count, self.width(), slot);
            let is_entry = entry.value != 0
                && entry.count <= max_count
                && index + slots <= run.len
                && (0..slots).all(|within| self.slot(&run, index + within) == slot(within));
            if !is_entry {
                return false;
            }
            values.push(entry.value);
            index += slots;
        }
        true
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
    let mut zeros = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if zeros + byte.count_zeros() > GROUP_QUOTIENTS {
            let last = (0..8).filter(|bit| byte >> bit & 1 == 0).nth((GROUP_QUOTIENTS - zeros) as usize)?;
            return Some(index * 8 + last - GROUP_QUOTIENTS as usize);
        }
        zeros += byte.count_zeros();
    }
    None
}
