//! Entries: values and their counts.
//!
//! An entry fills one or more slots:
//!
//! ```text
//!  count 1     │ value │
//!  count 2     │ value │ value │
//!  count 3 …   │ value │ 0     │ digit │ digit …      the digits of count - 3, the lowest first
//! ```
//!
//! The top bit of a digit is set if another digit follows. No value is 0. The entries of a run have different values,
//! since two equal entries next to each other would read as one with another count.
//!
//! In a table that [forgets](Stamps), an entry is one slot, with its value and then its stamp.
//!
//! A value of a growing table is a fingerprint, a one that ends it, and zeros. When the table doubles, the fingerprint
//! gives its top bit to the quotient. When the table is halved, the fingerprint gets this bit back, and loses its last
//! bit if it becomes too long.

use super::Addressing;
use super::bits::low_bits;
use crate::error::Error;
use crate::memory::try_vec;

/// The part of an entry that is not its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: the table is a set.
    Nothing,
    /// The number of additions: the table is a multiset.
    Count,
    /// The slice of the item: the table is a set that forgets.
    Slice(Stamps),
}

impl Payload {
    /// Returns the number of bits in a stamp, or 0 if slots have no stamps.
    pub fn stamp_bits(self) -> u32 {
        match self {
            Payload::Nothing | Payload::Count => 0,
            Payload::Slice(stamps) => stamps.bits(),
        }
    }
}

/// The slices of a table that forgets. Items of one slice are forgotten together, in the order of the slices' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The last forgotten slice.
    pub forgotten: u64,
    /// The largest number of slices that are remembered at a time, at least 2. No item is in a slice after `forgotten +
    /// span`.
    pub span: u8,
}

impl Stamps {
    /// Returns the number of bits in a stamp.
    pub(super) fn bits(self) -> u32 {
        debug_assert!(self.span >= 2, "a window of one slice");
        u8::BITS - (self.span - 1).leading_zeros()
    }
}

/// The largest count of an entry: nine years of a million additions per second. Further additions are not counted.
pub const MAX_ENTRY_COUNT: u64 = 1 << 48;

/// The smallest count that is stored as digits.
pub(super) const MIN_DIGITS_COUNT: u64 = 3;

/// An entry in a list: a value with its quotient and its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListedEntry {
    pub quotient: u32,
    pub value: u64,
    /// The count or the slice; 1 in a table without a payload.
    pub content: u64,
}

/// Returns the number of slots of `width` bits that an entry with this count fills.
#[inline(always)]
pub(super) fn slots_of(count: u64, width: u32) -> usize {
    match count {
        0..MIN_DIGITS_COUNT => count as usize,
        _ => 2 + (u64::BITS - (count - MIN_DIGITS_COUNT).leading_zeros()).div_ceil(width - 1).max(1) as usize,
    }
}

/// Returns the content of slot `index` of an entry.
#[inline(always)]
pub(super) fn slot_content(value: u64, count: u64, width: u32, index: usize) -> u64 {
    match index {
        0 => value,
        1 if count == 2 => value,
        1 => 0,
        _ => {
            let bits = width - 1;
            let left = (count - MIN_DIGITS_COUNT) >> ((index - 2) as u32 * bits);
            let more = left >> bits > 0;
            left & low_bits(bits) | u64::from(more) << bits
        }
    }
}

/// Converts a value of `from` bits to one of `to` bits with the same fingerprint. Cuts the fingerprint off if it does
/// not fit.
fn resize_value(value: u64, from: u32, to: u32) -> u64 {
    match to.checked_sub(from) {
        Some(more) => value << more,
        None if value.trailing_zeros() >= from - to => value >> (from - to),
        None => value >> (from - to) | 1,
    }
}

/// Returns the entries of a growing segment after its quotients doubled. Each fingerprint gives its top bit to the
/// quotient. Void entries, whose fingerprints have no bits, are copied.
pub(super) fn doubled(
    entries: &[ListedEntry],
    from: u32,
    to: u32,
    payload: Payload,
) -> Result<Vec<ListedEntry>, Error> {
    let void = 1 << (from - 1);
    let new_void = 1 << (to - 1);
    // Memory is asked for while this vector exists, so it has no more room than it needs.
    let voids = entries.iter().filter(|entry| entry.value == void).count();
    let mut doubled = try_vec(entries.len() + voids)?;
    // No fingerprint is cut off, so values only become equal if they become void.
    debug_assert!(to + 1 >= from, "fingerprints of {from} bits get {to}");
    for &ListedEntry { quotient, value, content } in entries {
        if value == void {
            for bit in 0..2 {
                let entry = ListedEntry { quotient: quotient << 1 | bit, value: new_void, content };
                insert(&mut doubled, entry, false, payload);
            }
        } else {
            let bit = (value >> (from - 1)) as u32;
            let value = resize_value(value & (void - 1), from - 1, to);
            let entry = ListedEntry { quotient: quotient << 1 | bit, value, content };
            insert(&mut doubled, entry, value != new_void, payload);
        }
    }
    if payload == Payload::Nothing {
        // In a set, a void entry makes all others of its quotient redundant. It is the first of them.
        doubled.dedup_by(|later, first| later.quotient == first.quotient && first.value == new_void);
    }
    Ok(doubled)
}

/// Inserts an entry after those of its quotient, or, in a set, before them if it may not be unique. The list ends with
/// this quotient or the next one.
#[inline(always)]
fn insert(entries: &mut Vec<ListedEntry>, entry: ListedEntry, is_unique: bool, payload: Payload) {
    let quotient = entry.quotient;
    if !is_unique {
        let mut others = entries.iter_mut().rev().take_while(|other| other.quotient >= quotient);
        if let Some(other) = others.find(|other| (other.quotient, other.value) == (quotient, entry.value)) {
            return absorb(other, entry, payload);
        }
    }
    let is_first = !is_unique && payload == Payload::Nothing;
    insert_before(entries, entry, |other| other.quotient > quotient || is_first && other.quotient == quotient);
}

/// Inserts an element into a list before those at its end for which `is_later` returns true.
#[inline(always)]
pub(super) fn insert_before<T>(list: &mut Vec<T>, element: T, is_later: impl Fn(&T) -> bool) {
    list.push(element);
    let mut at = list.len() - 1;
    while at > 0 && is_later(&list[at - 1]) {
        list.swap(at - 1, at);
        at -= 1;
    }
}

/// Returns the entries of a growing segment after its quotients were halved. Each fingerprint gets a bit back from the
/// quotient.
pub(super) fn halved(entries: &[ListedEntry], from: u32, to: u32, payload: Payload) -> Result<Vec<ListedEntry>, Error> {
    let mut halved: Vec<ListedEntry> = try_vec(entries.len())?;
    for run in entries.chunk_by(|a, b| a.quotient / 2 == b.quotient / 2) {
        let start = halved.len();
        for &ListedEntry { quotient, value, content } in run {
            let value = resize_value(u64::from(quotient & 1) << from | value, from + 1, to);
            push(&mut halved, start, ListedEntry { quotient: quotient / 2, value, content }, payload);
        }
    }
    Ok(halved)
}

/// Merges the entries of two segments for the same paths, both ordered by quotient. A set does not get an entry of
/// `added` that one of its own entries covers.
pub(super) fn merged(
    own: &[ListedEntry],
    added: &[ListedEntry],
    addressing: Addressing,
    payload: Payload,
) -> Result<Vec<ListedEntry>, Error> {
    let mut merged = try_vec(own.len() + added.len())?;
    let mut own = own.iter().peekable();
    for &entry in added {
        while let Some(&other) = own.next_if(|other| other.quotient <= entry.quotient) {
            merged.push(other);
        }
        let run = merged.iter().rev().take_while(|other: &&ListedEntry| other.quotient == entry.quotient);
        let covers = |other: &ListedEntry| addressing.covers(other.value, entry.value);
        if payload != Payload::Nothing || !run.clone().any(covers) {
            let start = merged.len() - run.count();
            push(&mut merged, start, entry, payload);
        }
    }
    merged.extend(own);
    Ok(merged)
}

/// Adds an entry. The entries from `start` on have the same quotient. If one of them has the same value, it absorbs the
/// content of the new entry.
fn push(entries: &mut Vec<ListedEntry>, start: usize, entry: ListedEntry, payload: Payload) {
    match entries[start..].iter_mut().find(|other| other.value == entry.value) {
        None => entries.push(entry),
        Some(other) => absorb(other, entry, payload),
    }
}

/// Adds the content of an entry to that of another one with the same value.
fn absorb(other: &mut ListedEntry, entry: ListedEntry, payload: Payload) {
    other.content = match payload {
        Payload::Nothing => 1,
        Payload::Count => other.content.saturating_add(entry.content).min(MAX_ENTRY_COUNT),
        // The later slice: no item of either entry is forgotten early.
        Payload::Slice(_) => other.content.max(entry.content),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an entry for each value of seven bits, in five quotients.
    fn entries() -> Vec<ListedEntry> {
        let all = (1..1 << 7).map(|value| ListedEntry { quotient: value as u32 % 5, value, content: 1 + value % 4 });
        let mut entries: Vec<_> = all.collect();
        entries.sort_by_key(|entry| entry.quotient);
        entries
    }

    #[test]
    fn a_set_matches_the_same_after_it_doubled() {
        let void = 1 << 6;
        let without_void: Vec<_> = entries().into_iter().filter(|entry| entry.value != void).collect();
        for entries in [entries(), without_void] {
            assert_matches_the_same(&entries, void);
        }
    }

    fn assert_matches_the_same(entries: &[ListedEntry], void: u64) {
        let doubled = doubled(entries, 7, 7, Payload::Nothing).unwrap();
        let has = |quotient, value| doubled.iter().any(|entry| (entry.quotient, entry.value) == (quotient, value));
        for &ListedEntry { quotient, value, .. } in entries {
            let [low, high] = [quotient << 1, quotient << 1 | 1];
            if value == void {
                assert!(has(low, void) && has(high, void));
            } else {
                let half = if value < void { low } else { high };
                assert!(has(half, (value & (void - 1)) << 1) || has(half, void), "{quotient}: {value:b}");
            }
        }
        // A void entry matches whatever the others of its quotient match.
        assert!(doubled.iter().all(|entry| entry.value == void || !has(entry.quotient, void)));
    }
}
