//! Extendible hashing (Fagin, Nievergelt, Pippenger and Strong 1979). The first bits of a path choose a slot of the
//! directory, and the slot leads to the bucket that holds the path.
//!
//! ```text
//!  bits        00     01     10     11
//!  slots     │ A    │ alias│ B    │ C    │      A has depth 1: it holds all paths that begin with 0
//! ```
//!
//! A bucket that splits needs another bit. If the directory has no more bits, it doubles, and every slot gets an alias.

use super::path::{Path, bits_of};
use crate::error::Error;
use crate::memory::try_vec;

/// A part of the table: it holds all paths that begin with the same [`depth`](Self::depth) bits.
pub(super) trait Bucket {
    /// Returns the number of bits that all paths of this bucket share.
    fn depth(&self) -> u32;

    /// Returns the placeholder that fills the slots of a bucket of this depth after its first slot.
    fn alias(depth: u32) -> Self;
}

/// A map from paths that begin with the same bits to buckets. The following bits of a path choose the bucket.
pub(super) struct Directory<T> {
    /// Each bucket is in the first slot of its range, and aliases follow. Slots that no path leads to may be missing.
    slots: Box<[T]>,
    /// The number of bits that all paths share.
    base: u32,
    /// The number of bits that choose a slot.
    bits: u32,
}

impl<T: Bucket> Directory<T> {
    pub(super) fn new(base: u32, bits: u32, slots: Vec<T>) -> Directory<T> {
        debug_assert!(slots.len() <= 1 << bits, "{} slots for {bits} bits", slots.len());
        Directory { slots: slots.into_boxed_slice(), base, bits }
    }

    /// Returns the number of bits that choose a slot.
    pub(super) fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the size of the slots, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Returns the slots, which are buckets and their aliases, for changes.
    pub(super) fn slots_mut(&mut self) -> &mut Box<[T]> {
        &mut self.slots
    }

    /// Returns the index of the bucket that holds a path.
    #[inline(always)]
    fn index(&self, path: Path) -> usize {
        let slot = bits_of(path, self.base, self.bits) as usize;
        let spare = self.base + self.bits - self.slots[slot].depth();
        slot >> spare << spare
    }

    /// Returns the bucket that holds a path.
    #[inline(always)]
    pub(super) fn get(&self, path: Path) -> &T {
        &self.slots[self.index(path)]
    }

    /// Returns the slot of a path, which may be an alias.
    #[inline(always)]
    pub(super) fn slot(&self, path: Path) -> &T {
        &self.slots[bits_of(path, self.base, self.bits) as usize]
    }

    /// Returns the bucket that holds a path, for changes.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, path: Path) -> &mut T {
        &mut self.slots[self.index(path)]
    }

    /// Doubles the directory, since a bucket has no bit to split by.
    pub(super) fn double(&mut self) -> Result<(), Error> {
        let mut slots = try_vec(self.slots.len().checked_mul(2).ok_or(Error::OutOfMemory)?)?;
        for bucket in std::mem::take(&mut self.slots) {
            let alias = T::alias(bucket.depth());
            slots.extend([bucket, alias]);
        }
        self.slots = slots.into_boxed_slice();
        self.bits += 1;
        Ok(())
    }

    /// Replaces the bucket that holds a path by two buckets, which are one bit deeper. The directory has this bit.
    pub(super) fn split(&mut self, path: Path, [low, high]: [T; 2]) {
        let first = self.index(path);
        let depth = low.depth();
        debug_assert!(depth == high.depth() && depth == self.slots[first].depth() + 1);
        debug_assert!(depth <= self.base + self.bits, "a directory without a bit to split by");
        let half = 1 << (self.base + self.bits - depth);
        self.slots[first..first + 2 * half].fill_with(|| T::alias(depth));
        self.slots[first] = low;
        self.slots[first + half] = high;
    }

    /// Returns the buddy of the bucket that holds a path: the bucket whose bits differ in the last one only. Returns
    /// `None` if the buddy has split further.
    pub(super) fn buddy(&self, path: Path) -> Option<&T> {
        let depth = self.get(path).depth();
        if depth == self.base {
            return None;
        }
        let spare = self.base + self.bits - depth;
        let buddy = self.slots.get(self.index(path) ^ 1 << spare)?;
        (buddy.depth() == depth).then_some(buddy)
    }

    /// Replaces the bucket that holds a path and its [buddy](Self::buddy) by one bucket.
    pub(super) fn merge_buddies(&mut self, path: Path, bucket: T) {
        let depth = bucket.depth();
        debug_assert_eq!(depth + 1, self.get(path).depth());
        debug_assert!(self.buddy(path).is_some(), "a buddy that has split further");
        let spare = self.base + self.bits - depth;
        let first = self.index(path) >> spare << spare;
        self.slots[first..first + (1 << spare)].fill_with(|| T::alias(depth));
        self.slots[first] = bucket;
        self.shrink_to_fit();
    }

    /// Merges this directory with its buddy, which follows it. `slots` is empty, and has room for the slots of the
    /// result.
    pub(super) fn merged_with(self, buddy: Directory<T>, mut slots: Vec<T>) -> Directory<T> {
        let base = self.base - 1;
        let bits = self.bits.max(buddy.bits) + 1;
        debug_assert_eq!(self.base, buddy.base);
        debug_assert!(slots.is_empty() && slots.capacity() >= 1 << bits);
        for half in [self, buddy] {
            let copies = 1 << (bits - 1 - half.bits);
            for bucket in half.slots {
                let depth = bucket.depth();
                slots.push(bucket);
                slots.extend((1..copies).map(|_| T::alias(depth)));
            }
        }
        Directory::new(base, bits, slots)
    }

    /// Halves the directory while no bucket needs its last bit. Stops if an allocation fails.
    fn shrink_to_fit(&mut self) {
        while self.slots.iter().all(|bucket| bucket.depth() < self.base + self.bits) {
            let Ok(mut slots) = try_vec(self.slots.len() / 2) else { return };
            slots.extend(std::mem::take(&mut self.slots).into_iter().step_by(2));
            self.slots = slots.into_boxed_slice();
            self.bits -= 1;
        }
    }

    /// Splits the directory in two by its first bit, and leaves it empty. The directory has at least one bit. Each half
    /// has no more slots than it needs.
    pub(super) fn split_in_two(&mut self) -> Result<[Directory<T>; 2], Error> {
        debug_assert!(self.bits > 0, "a directory without a bit to split by");
        let half = self.slots.len() / 2;
        let mut low = try_vec(half)?;
        let mut high = try_vec(half)?;
        let mut slots = std::mem::take(&mut self.slots).into_iter();
        low.extend(slots.by_ref().take(half));
        high.extend(slots);
        let mut halves = [low, high].map(|slots| Directory::new(self.base + 1, self.bits - 1, slots));
        halves.iter_mut().for_each(Directory::shrink_to_fit);
        Ok(halves)
    }
}

/// A directory can be a bucket of a larger directory.
impl<T> Bucket for Directory<T> {
    fn depth(&self) -> u32 {
        self.base
    }

    fn alias(depth: u32) -> Directory<T> {
        Directory { slots: Box::default(), base: depth, bits: 0 }
    }
}
