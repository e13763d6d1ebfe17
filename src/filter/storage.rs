//! The bit array: a row of 64-byte blocks that starts zeroed, is aligned to cache lines, and may be refused.
//!
//! This is the only unsafe memory of the filter. What holds, always:
//!
//! 1. `start - offset` is an allocation of `layout(blocks, padded)` from the global allocator, and `self` owns it.
//! 2. All its bytes are initialized: they come from `alloc_zeroed`, or were copied from such.
//! 3. `offset` is 0, or up to 63 when `padded`, so that `blocks * 64` bytes from `start` lie in the allocation.
//!
//! ```text
//!    offset        start (64-byte aligned)
//!   │ 0–63 bytes │ block 0          │ block 1          │ … │ unused, if padded │
//! ```
//!
//! jemalloc, which most servers run on, aligns any multiple of 64 bytes to 64, so that the padding is only paid for
//! under other allocators (glibc aligns to 16): the first attempt asks for the bare blocks, and only when they come
//! unaligned is one line more asked for. Blocks that straddle lines would cost a second cache miss, never a wrong answer;
//! so arrays of less than 4 KiB, which stay in the cache, are left as they come.
//!
//! The memory is zeroed by the system, page by page when first touched: ten gigabytes take no longer than ten bytes.

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};

use super::Error;
use super::sizing::{BLOCK_BYTES, MAX_BLOCKS};

/// One cache line of bits.
pub type Block = [u8; BLOCK_BYTES as usize];

/// What an allocation is aligned to, in the ideal case.
const LINE: usize = BLOCK_BYTES as usize;

/// The fewest blocks for which alignment is worth a line.
const WORTH_PADDING: usize = 64;

/// What any allocator aligns to.
const WORD: usize = align_of::<u64>();

/// A fixed number of zero-initialized blocks.
pub struct Blocks {
    start: NonNull<u8>,
    blocks: usize,
    offset: u8,
    padded: bool,
}

// SAFETY: `Blocks` owns plain bytes, and hands them out by the usual borrowing rules.
unsafe impl Send for Blocks {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for Blocks {}

impl Blocks {
    /// `blocks` (at least 1) zeroed blocks, or an error if the allocator refuses.
    pub fn zeroed(blocks: u64) -> Result<Blocks, Error> {
        if blocks == 0 || blocks >= MAX_BLOCKS {
            return Err(Error::OutOfMemory);
        }
        let blocks = usize::try_from(blocks).map_err(|_| Error::OutOfMemory)?;
        let bare = Blocks::allocate(blocks, false)?;
        if blocks < WORTH_PADDING || bare.start.align_offset(LINE) == 0 {
            return Ok(bare);
        }
        drop(bare);
        Blocks::allocate(blocks, true)
    }

    fn allocate(blocks: usize, padded: bool) -> Result<Blocks, Error> {
        // SAFETY: the layout is at least one block long.
        let base = unsafe { alloc::alloc_zeroed(layout(blocks, padded)) };
        let base = NonNull::new(base).ok_or(Error::OutOfMemory)?;
        let offset = padding(base, padded);
        // SAFETY: `offset` is less than a block, and the allocation has one more when padded.
        let start = unsafe { base.add(offset.into()) };
        Ok(Blocks { start, blocks, offset, padded })
    }

    /// Bytes asked of the allocator.
    pub fn allocated(&self) -> usize {
        layout(self.blocks, self.padded).size()
    }

    #[inline]
    pub fn as_slice(&self) -> &[Block] {
        // SAFETY: invariants 2 and 3; `Block` has alignment 1.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.blocks) }
    }

    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Block] {
        // SAFETY: invariants 2 and 3; `Block` has alignment 1, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.blocks) }
    }

    #[inline]
    pub fn address(&self) -> Address {
        Address { start: self.start, blocks: self.blocks }
    }

    /// Lets `relocate` move the allocation. It returns the new address, or `None` if it left the old one in place.
    ///
    /// # Safety
    ///
    /// An address that is returned must be of a live allocation of the same size from the same allocator, with the same
    /// contents; the old one must have been freed.
    pub unsafe fn relocate(&mut self, relocate: impl FnOnce(NonNull<u8>) -> Option<NonNull<u8>>) {
        let Some(base) = relocate(self.base()) else { return };
        let (was, offset) = (self.offset, padding(base, self.padded));
        // SAFETY: the new allocation is as large as the old one was, and holds the blocks `was` bytes from its base
        // (invariant 3).
        unsafe {
            self.start = base.add(offset.into());
            if was != offset {
                base.add(was.into()).copy_to(self.start, self.blocks * LINE);
            }
        }
        self.offset = offset;
    }

    fn base(&self) -> NonNull<u8> {
        // SAFETY: invariant 1.
        unsafe { self.start.sub(self.offset.into()) }
    }
}

/// Where blocks are, or were: it does not keep them.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    start: NonNull<u8>,
    blocks: usize,
}

impl Address {
    /// The number of blocks.
    #[inline]
    pub fn blocks(self) -> usize {
        self.blocks
    }

    /// Asks the processor to bring block `index` into its cache. If the blocks are gone, nothing happens.
    #[inline]
    pub fn prefetch(self, index: usize) {
        let line = self.start.as_ptr().wrapping_add(index.wrapping_mul(LINE));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint; it does not fault whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line.cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above; `prfm` reads no register but its address and writes none.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) line, options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}

/// How far behind the start of its allocation the first block is.
fn padding(base: NonNull<u8>, padded: bool) -> u8 {
    if padded { base.align_offset(LINE) as u8 } else { 0 }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        unsafe { alloc::dealloc(self.base().as_ptr(), layout(self.blocks, self.padded)) }
    }
}

/// Lets `relocate` move the allocation of a slice.
///
/// # Safety
///
/// See [`Blocks::relocate`].
pub unsafe fn relocate_slice<T>(slice: &mut Box<[T]>, relocate: impl FnOnce(NonNull<u8>) -> Option<NonNull<u8>>) {
    if size_of_val::<[T]>(slice) == 0 {
        return;
    }
    let length = slice.len();
    let Some(moved) = relocate(NonNull::from(&mut **slice).cast()) else { return };
    let moved = ptr::slice_from_raw_parts_mut(moved.as_ptr().cast::<T>(), length);
    // SAFETY: the caller promises that `moved` is the slice's allocation, moved, and that the old one is gone.
    unsafe { ptr::write(slice, Box::from_raw(moved)) };
}

fn layout(blocks: usize, padded: bool) -> Layout {
    let size = (blocks + usize::from(padded)) * LINE;
    // SAFETY: `WORD` is a power of two, and `zeroed` keeps `blocks + 1` at or under `MAX_BLOCKS`, that is, `isize::MAX`
    // bytes.
    unsafe { Layout::from_size_align_unchecked(size, WORD) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_start_zeroed_and_aligned() {
        for count in [1, 2, 3, 5, 8, 13, 100, 1000, 100_000] {
            let blocks = Blocks::zeroed(count).unwrap();
            assert_eq!(blocks.as_slice().len() as u64, count);
            assert!(count < WORTH_PADDING as u64 || blocks.as_slice().as_ptr().align_offset(LINE) == 0);
            assert!(blocks.as_slice().as_flattened().iter().all(|&byte| byte == 0));
            assert!(blocks.allocated() as u64 <= (count + 1) * BLOCK_BYTES);
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for blocks in [0, MAX_BLOCKS, MAX_BLOCKS - 1, u64::MAX] {
            assert!(matches!(Blocks::zeroed(blocks), Err(Error::OutOfMemory)), "{blocks}");
        }
    }

    #[test]
    fn relocation_keeps_the_blocks() {
        for padded in [false, true] {
            for offset in (0..LINE).step_by(WORD) {
                let mut blocks = Blocks::allocate(3, padded).unwrap();
                let content: Vec<u8> = (0..3 * LINE).map(|i| (i * 7) as u8).collect();
                blocks.as_mut_slice().as_flattened_mut().copy_from_slice(&content);
                let size = layout(3, padded).size();
                let mut arena = vec![0u8; size + 2 * LINE];
                let target = arena.as_mut_ptr().wrapping_add(arena.as_ptr().align_offset(LINE) + offset);
                let (start, offset_of_start) = (blocks.start, blocks.offset);
                // SAFETY: the target holds `size` bytes and gets the contents; the old allocation is given back below.
                unsafe {
                    blocks.relocate(|base| {
                        base.as_ptr().copy_to(target, size);
                        NonNull::new(target)
                    });
                }
                assert_eq!(blocks.as_slice().as_flattened(), content);
                (blocks.start, blocks.offset) = (start, offset_of_start);
            }
        }
    }
}
