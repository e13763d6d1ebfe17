//! An array of words, or of bytes: zeroed, fallible, and, if it is large, aligned to cache lines.
//!
//! The library manages memory with unsafe code only here. The invariants are:
//!
//! 1. `start - offset` is an allocation of `layout::<N>(length, padded)` from the global allocator, and `self` owns it.
//!    An array without elements has no allocation.
//! 2. All its bytes are initialized: they come from `alloc_zeroed`, were initialized when adopted, or are copies of
//!    initialized bytes.
//! 3. `offset` is 0, or up to 63 when `padded`, so that `length * N` bytes from `start` lie in the allocation.
//!
//! ```text
//!    offset        start (64-byte aligned)
//!   │ 0–63 bytes │ block 0          │ block 1          │ … │ unused, if padded │
//! ```
//!
//! Blocks of 64 bytes are aligned to cache lines. jemalloc, which most servers use, aligns allocations of a multiple of
//! 64 bytes to 64 bytes. So the first attempt allocates the blocks without padding, and only if they are not aligned
//! (glibc aligns to 16), a second one allocates one line more. A block that straddles two lines costs a second cache
//! miss, but never a wrong result. So arrays of less than 4 KiB, which stay in the cache, are not aligned.
//!
//! The system zeroes the memory, page by page when first touched: creating ten gigabytes takes no longer than ten
//! bytes.

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};

use crate::error::Error;
use crate::line::LINE;
use crate::memory::try_vec;

/// The minimum size in bytes for which alignment is worth an additional line.
const WORTH_PADDING: usize = 64 * LINE;

/// The size of a word in bytes, to which every allocator aligns.
pub(crate) const WORD: usize = size_of::<u64>();

/// The maximum number of bytes in an array.
const MAX_BYTES: u64 = isize::MAX as u64 - 2 * LINE as u64;

/// An array of words, which form cache lines if there are enough of them.
pub(crate) type Words<T = ()> = Array<{ WORD }, T>;

/// An array of bytes.
pub type Bytes = Array<1>;

/// A fixed number of elements of `N` bytes, and a label. Up to six bytes of the label use the struct's padding.
pub struct Array<const N: usize, T = ()> {
    start: NonNull<u8>,
    length: usize,
    offset: u8,
    padded: bool,
    label: T,
}

// SAFETY: `Array` owns plain bytes, and lends them by the usual borrowing rules.
unsafe impl<const N: usize, T: Send> Send for Array<N, T> {}
// SAFETY: as above; there is no interior mutability.
unsafe impl<const N: usize, T: Sync> Sync for Array<N, T> {}

impl<const N: usize> Array<N> {
    /// Returns an array without elements, which takes no memory.
    #[inline]
    pub const fn empty() -> Array<N> {
        Array::without_elements(())
    }

    /// Returns `length` zeroed elements.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the allocator has no memory for them, or they cannot be addressed.
    pub fn zeroed(length: u64) -> Result<Array<N>, Error> {
        Array::labelled(length, ())
    }
}

impl Bytes {
    /// Takes over an allocation of `length` bytes.
    ///
    /// # Safety
    ///
    /// The global allocator must be able to free `start` as `length` bytes that need no alignment, at least one and at
    /// most `isize::MAX - 128`. All bytes must be initialized, and nobody else may use the allocation.
    pub unsafe fn adopt(start: NonNull<u8>, length: usize) -> Bytes {
        Array { start, length, offset: 0, padded: false, label: () }
    }

    /// Returns a copy of bytes.
    pub fn copied(bytes: &[u8]) -> Result<Bytes, Error> {
        let mut copy = Bytes::zeroed(bytes.len() as u64)?;
        copy.as_mut_slice().as_flattened_mut().copy_from_slice(bytes);
        Ok(copy)
    }
}

impl<const N: usize, T: Copy> Array<N, T> {
    /// Returns an array without elements, which takes no memory, with a label.
    pub(crate) const fn without_elements(label: T) -> Array<N, T> {
        Array { start: NonNull::dangling(), length: 0, offset: 0, padded: false, label }
    }

    /// Returns `length` zeroed elements with a label.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Array::zeroed).
    pub fn labelled(length: u64, label: T) -> Result<Array<N, T>, Error> {
        let bytes = length.checked_mul(N as u64).filter(|&bytes| bytes <= MAX_BYTES);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).ok_or(Error::OutOfMemory)?;
        let length = bytes / N;
        if length == 0 {
            return Ok(Array::without_elements(label));
        }
        let bare = Array::allocate(length, false, label)?;
        if N != WORD || bytes < WORTH_PADDING || bare.start.align_offset(LINE) == 0 {
            return Ok(bare);
        }
        drop(bare);
        Array::allocate(length, true, label)
    }

    fn allocate(length: usize, padded: bool, label: T) -> Result<Array<N, T>, Error> {
        // SAFETY: there are elements, so the layout is at least one byte long.
        let base = unsafe { alloc::alloc_zeroed(layout::<N>(length, padded)) };
        let base = NonNull::new(base).ok_or(Error::OutOfMemory)?;
        let offset = padding(base, padded);
        // SAFETY: `offset` is less than a line, and a padded allocation has one line more.
        let start = unsafe { base.add(offset.into()) };
        Ok(Array { start, length, offset, padded, label })
    }

    /// Returns the label.
    #[inline]
    pub fn label(&self) -> T {
        self.label
    }

    /// Returns the elements.
    #[inline]
    pub fn as_slice(&self) -> &[[u8; N]] {
        // SAFETY: invariants 2 and 3; elements have alignment 1.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.length) }
    }

    /// Returns the elements, to change them.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [[u8; N]] {
        // SAFETY: invariants 2 and 3; elements have alignment 1, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.length) }
    }

    /// Lets a mover move the allocation.
    pub(crate) fn relocate(&mut self, mover: Mover<'_>) {
        if self.length == 0 {
            return;
        }
        if let Some(base) = (mover.0)(self.base()) {
            // SAFETY: a mover's new allocation has the size and the contents of the old one, which is gone.
            unsafe { self.rebase(base) };
        }
    }

    /// Keeps the first `length` elements, at least one, and frees the memory of the others. Returns false if the
    /// allocator cannot do that, and keeps all.
    ///
    /// The memory stays where it is, as far as the allocator can shrink it: copying a gigabyte takes longer, because the
    /// system has to provide each page of the copy.
    pub(crate) fn truncate(&mut self, length: usize) -> bool {
        debug_assert!((1..=self.length).contains(&length), "{length} of {} elements", self.length);
        let (all, kept) = (layout::<N>(self.length, self.padded), layout::<N>(length, self.padded));
        // SAFETY: by invariant 1; the array has elements, and `kept` is no larger, and at least one byte long.
        let Some(base) = NonNull::new(unsafe { alloc::realloc(self.base().as_ptr(), all, kept.size()) }) else {
            return false;
        };
        self.length = length;
        // SAFETY: the new allocation has the layout of so many elements, and the contents of the old one, which is gone.
        unsafe { self.rebase(base) };
        true
    }

    /// Sets the base of the allocation after it moved.
    ///
    /// # Safety
    ///
    /// `base` must be an allocation of the array's layout, with the elements as many bytes from it as from the old one.
    unsafe fn rebase(&mut self, base: NonNull<u8>) {
        let was = self.offset;
        self.offset = padding(base, self.padded);
        // SAFETY: by the caller's promise and invariant 3, for the old offset and for the new one.
        unsafe {
            self.start = base.add(self.offset.into());
            if was != self.offset {
                base.add(was.into()).copy_to(self.start, self.length * N);
            }
        }
    }
}

impl<const N: usize, T> Array<N, T> {
    fn base(&self) -> NonNull<u8> {
        // SAFETY: invariant 1.
        unsafe { self.start.sub(self.offset.into()) }
    }
}

/// Returns the offset of the first element from the start of its allocation.
fn padding(base: NonNull<u8>, padded: bool) -> u8 {
    if padded { base.align_offset(LINE) as u8 } else { 0 }
}

impl<const N: usize, T> Drop for Array<N, T> {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        // SAFETY: invariant 1.
        unsafe { alloc::dealloc(self.base().as_ptr(), layout::<N>(self.length, self.padded)) }
    }
}

/// A mover of allocations, with which a server defragments its memory.
#[derive(Clone, Copy)]
pub struct Mover<'a>(&'a dyn Fn(NonNull<u8>) -> Option<NonNull<u8>>);

/// Decides whether a move stops, to be continued later.
pub(crate) type Stop<'a> = &'a mut dyn FnMut() -> bool;

impl<'a> Mover<'a> {
    /// Returns a mover. `relocate` gets the address of an allocation, and returns the new address, or `None` if it left
    /// the allocation in place.
    ///
    /// # Safety
    ///
    /// A returned address must be a live allocation of the same size from the same allocator, with the same contents,
    /// and the old allocation must have been freed. This holds for all allocations of what the mover is handed to.
    pub unsafe fn new(relocate: &'a dyn Fn(NonNull<u8>) -> Option<NonNull<u8>>) -> Mover<'a> {
        Mover(relocate)
    }

    /// Moves the allocation of a slice.
    pub(crate) fn move_slice<T>(self, slice: &mut Box<[T]>) {
        const { assert!(align_of::<T>() <= WORD, "the server's allocator only aligns to words") };
        if size_of_val::<[T]>(slice) == 0 {
            return;
        }
        let length = slice.len();
        let Some(moved) = (self.0)(NonNull::from(&mut **slice).cast()) else { return };
        let moved = ptr::slice_from_raw_parts_mut(moved.as_ptr().cast::<T>(), length);
        // SAFETY: `moved` is the slice's allocation, moved, and the old one is gone: see `new`.
        unsafe { ptr::write(slice, Box::from_raw(moved)) };
    }

    /// Moves the allocation of a box.
    pub(crate) fn move_box<T>(self, owner: &mut Box<T>) {
        const { assert!(align_of::<T>() <= WORD, "the server's allocator only aligns to words") };
        let Some(moved) = (self.0)(NonNull::from(&mut **owner).cast()) else { return };
        // SAFETY: `moved` is the box's allocation, moved, and the old one is gone: see `new`.
        unsafe { ptr::write(owner, Box::from_raw(moved.as_ptr().cast())) };
    }
}

/// Returns a box with a value.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if the allocator has no memory for it, where [`Box::new`] aborts.
pub(crate) fn try_box<T>(value: T) -> Result<Box<T>, Error> {
    let mut values = try_vec(1)?;
    values.push(value);
    let slice: *mut [T] = Box::into_raw(values.into_boxed_slice());
    // SAFETY: the slice has one element, and so the layout of the element itself.
    Ok(unsafe { Box::from_raw(slice.cast::<T>()) })
}

/// Returns the layout of the allocation of an array with elements. Elements are aligned to their size.
fn layout<const N: usize>(length: usize, padded: bool) -> Layout {
    let size = length * N + usize::from(padded) * LINE;
    const { assert!(N.is_power_of_two() && N <= WORD) };
    // SAFETY: by the above, and since no array has more than `MAX_BYTES`, which is two lines under `isize::MAX`.
    unsafe { Layout::from_size_align_unchecked(size, N) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_start_zeroed_and_aligned() {
        const WORTH: u64 = (WORTH_PADDING / WORD) as u64;
        // All arrays are kept, so that the allocator cannot give the same address to several of them.
        let sizes = [1, 2, 3, 5, 8, 13, 100, WORTH - 1, WORTH, WORTH + 1, 1000, 100_000];
        let all = sizes.repeat(8).into_iter().map(|count| (count, Words::zeroed(count).unwrap()));
        for (count, words) in all.collect::<Vec<_>>() {
            assert_eq!(words.as_slice().len() as u64, count);
            let is_small = count < WORTH;
            assert!(is_small || words.as_slice().as_ptr().align_offset(LINE) == 0);
            assert!(!(is_small && words.padded), "{count} words take more memory");
            assert!(words.as_slice().as_flattened().iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn an_array_takes_its_elements_and_at_most_one_more_line() {
        for length in [1, 7, 64, 5000] {
            assert_eq!(layout::<1>(length, false).size(), length);
            assert_eq!(layout::<WORD>(length, false).size(), length * WORD);
            assert_eq!(layout::<WORD>(length, true).size(), length * WORD + LINE);
        }
        // Bytes are never aligned. Memory that the system maps for a large array starts 16 bytes after a page.
        assert!([5000, 1 << 20].iter().all(|&length| !Bytes::zeroed(length).unwrap().padded));
    }

    #[test]
    fn allocations_that_cannot_succeed_are_rejected() {
        for bytes in [MAX_BYTES / LINE as u64 * LINE as u64, MAX_BYTES, i64::MAX as u64, u64::MAX] {
            assert!(matches!(Words::zeroed(bytes.div_ceil(WORD as u64)), Err(Error::OutOfMemory)), "{bytes}");
            assert!(matches!(Words::zeroed(bytes), Err(Error::OutOfMemory)), "{bytes}");
            assert!(matches!(Bytes::zeroed(bytes), Err(Error::OutOfMemory)), "{bytes}");
        }
    }

    #[test]
    fn what_is_kept_of_an_array_stays_the_same() {
        for padded in [false, true] {
            for (length, kept) in [(1, 1), (100, 3), (1000, 999), (1 << 18, 5000), (1 << 18, 1 << 17)] {
                let mut words = Words::allocate(length, padded, ()).unwrap();
                words
                    .as_mut_slice()
                    .as_flattened_mut()
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, byte)| *byte = (i * 7) as u8);
                let content = words.as_slice()[..kept].to_vec();
                assert!(words.truncate(kept));
                assert_eq!(words.as_slice(), content);
                assert!(!padded || words.as_slice().as_ptr().align_offset(LINE) == 0);
            }
        }
    }

    #[test]
    fn relocation_keeps_the_blocks() {
        for padded in [false, true] {
            for offset in (0..LINE).step_by(WORD) {
                let mut blocks = Words::allocate(3 * LINE / WORD, padded, ()).unwrap();
                let content: Vec<u8> = (0..3 * LINE).map(|i| (i * 7) as u8).collect();
                blocks.as_mut_slice().as_flattened_mut().copy_from_slice(&content);
                let size = layout::<WORD>(3 * LINE / WORD, padded).size();
                let mut arena = vec![0u8; size + 2 * LINE];
                let target = arena.as_mut_ptr().wrapping_add(arena.as_ptr().align_offset(LINE) + offset);
                let (start, offset_of_start) = (blocks.start, blocks.offset);
                let relocate = |base: NonNull<u8>| {
                    // SAFETY: both have `size` bytes.
                    unsafe { base.as_ptr().copy_to(target, size) };
                    NonNull::new(target)
                };
                // SAFETY: the target gets the contents; the old allocation is given back below.
                blocks.relocate(unsafe { Mover::new(&relocate) });
                assert_eq!(blocks.as_slice().as_flattened(), content);
                (blocks.start, blocks.offset) = (start, offset_of_start);
            }
        }
    }
}
