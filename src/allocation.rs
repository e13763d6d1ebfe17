//! The global allocator: the server's, so that `used_memory`, `maxmemory` and active defragmentation include our
//! memory.
//!
//! It differs from `redis_module::alloc::RedisAlloc` in four ways that the filters need:
//!
//! - Zeroed memory comes from the server's `calloc`, which leaves the pages of a large array untouched until they are
//!   used. Writing the zeros would block the server for seconds.
//! - A large request may fail. The server's own allocators exit the process if the system has no memory. Functions that
//!   fail instead were added later (`TryAlloc` in 7.0, `TryCalloc` in 7.4). So [`can_allocate`] first maps and unmaps
//!   as many bytes, and if that fails, tries the server's allocator.
//! - Blocks for words are aligned to 16 bytes on all servers, since a panic needs that: see [`align_as_server`].
//! - Outside a server, as in tests and benchmarks, it is the system's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::ffi::available;

/// The size in bytes from which requests are first tried on the system. Smaller requests are served from memory that
/// the allocator has already mapped, or fail together with everything else on the server.
const LARGE: usize = 1 << 20;

/// The alignment that every server's allocator guarantees.
const SERVER_ALIGN: usize = 8;

/// The alignment of blocks of that size or larger.
const ALIGN: usize = 16;

/// The bytes between the start of a block of the server and what we use of it: 0 or [`SERVER_ALIGN`].
static SHIFT: AtomicUsize = AtomicUsize::new(0);

/// Finds out how the server aligns its blocks. Call this before anything is allocated from the server.
///
/// The standard library asks for the alignment of a word for what a panic throws, but unwinders write there with
/// instructions that need a multiple of 16: otherwise, a panic on x86-64 ends the process. jemalloc and glibc align so
/// without being asked. A server that uses another allocator, as one for musl may, puts a word with the size before each
/// block, so that all its blocks are at odd multiples of 8. We then leave out the first word of each, except in blocks
/// for bytes: the server also hands over such blocks, which we free.
pub(crate) fn align_as_server() {
    let (Some(allocate), Some(free)) = (available!(RedisModule_Alloc), available!(RedisModule_Free)) else { return };
    // SAFETY: the server accepts any size, and gets back what it handed out.
    unsafe {
        let block = allocate(2 * ALIGN);
        SHIFT.store(block.addr() % ALIGN, Ordering::Relaxed);
        free(block);
    }
}

/// Returns the bytes between the start of a block of the server and the part that we use for a layout.
fn shift(layout: Layout) -> usize {
    if layout.align() < SERVER_ALIGN { 0 } else { SHIFT.load(Ordering::Relaxed) }
}

/// Returns the part of a new block of the server that we use for a layout; null remains null.
///
/// # Safety
///
/// The block has at least [`shift`] bytes.
unsafe fn used_part(block: *mut c_void, layout: Layout) -> *mut u8 {
    // SAFETY: as promised by the caller.
    if block.is_null() { ptr::null_mut() } else { unsafe { block.byte_add(shift(layout)).cast() } }
}

/// Returns the block of the server that contains a part which we use.
///
/// # Safety
///
/// The part comes from [`used_part`] with the same layout, or from the server if the layout's [`shift`] is 0.
unsafe fn block_of(part: *mut u8, layout: Layout) -> *mut c_void {
    // SAFETY: as promised by the caller.
    unsafe { part.byte_sub(shift(layout)).cast() }
}

/// The number of requests for more memory that the server could not serve.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of requests for more memory that failed.
pub(crate) fn failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// The server's allocator, or the system's if there is no server.
pub(crate) struct ServerAlloc;

impl ServerAlloc {
    /// Returns true if the server serves the request. The server aligns to words only. That is enough: the filter
    /// aligns its blocks to cache lines itself.
    fn serves(layout: Layout) -> bool {
        available!(RedisModule_Alloc).is_some() && layout.align() <= SERVER_ALIGN
    }

    /// Allocates from the server if there is one, otherwise from the system. `server` returns a block with [`shift`]
    /// more bytes. Returns null if the server cannot allocate `more` bytes.
    fn allocate(
        layout: Layout,
        more: usize,
        system: impl FnOnce() -> *mut u8,
        server: impl FnOnce() -> Option<*mut c_void>,
    ) -> *mut u8 {
        if !Self::serves(layout) {
            return system();
        }
        let block = if can_allocate(more) { server() } else { None }.unwrap_or(ptr::null_mut());
        if block.is_null() && more > 0 {
            FAILURES.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: `server` asks for as many bytes more.
        unsafe { used_part(block, layout) }
    }
}

// SAFETY: memory comes from the server if there is one, else from the system, and is freed where it came from: the
// table of functions is filled when the module is loaded, before any other code of the module runs and allocates.
// Requests that need more than the server's alignment always go to the system.
unsafe impl GlobalAlloc for ServerAlloc {
    // SAFETY: the contract is the trait's.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let function = || available!(RedisModule_TryAlloc).or(available!(RedisModule_Alloc));
        // SAFETY: as promised by the caller for the system; the server accepts any size.
        let (system, server) =
            (|| unsafe { System.alloc(layout) }, || Some(unsafe { function()?(layout.size() + shift(layout)) }));
        Self::allocate(layout, layout.size(), system, server)
    }

    // SAFETY: the contract is the trait's.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() + shift(layout);
        let server = || {
            if let Some(calloc) = available!(RedisModule_TryCalloc) {
                // SAFETY: the server accepts any size.
                return Some(unsafe { calloc(1, size) });
            }
            // `Calloc` would exit the process if a small segment of a table cannot be allocated. `TryAlloc` returns
            // null, so its memory is zeroed here.
            if let Some(alloc) = available!(RedisModule_TryAlloc).filter(|_| size < LARGE) {
                // SAFETY: the server accepts any size.
                let start = unsafe { alloc(size) };
                if !start.is_null() {
                    // SAFETY: the allocation has `size` bytes.
                    unsafe { start.write_bytes(0, size) };
                }
                return Some(start);
            }
            let calloc = available!(RedisModule_Calloc)?;
            // SAFETY: the server accepts any size.
            Some(unsafe { calloc(1, size) })
        };
        // SAFETY: as promised by the caller.
        Self::allocate(layout, layout.size(), || unsafe { System.alloc_zeroed(layout) }, server)
    }

    // SAFETY: the contract is the trait's.
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let is_smaller = size <= layout.size();
        let server = || {
            #[cfg(feature = "fault-injection")]
            if is_smaller && starvation::is_due(size) {
                return None;
            }
            let with_shift = size + shift(layout);
            if let Some(realloc) = available!(RedisModule_TryRealloc) {
                // SAFETY: `old` is the server's, by `serves`; the server accepts any size.
                return Some(unsafe { realloc(block_of(old, layout), with_shift) });
            }
            // `Realloc` would exit the process if memory runs out. `TryAlloc` returns null, so small allocations are
            // copied here.
            if let Some(alloc) = available!(RedisModule_TryAlloc).filter(|_| size < LARGE) {
                // SAFETY: the server accepts any size.
                let new = unsafe { alloc(with_shift) };
                if !new.is_null() {
                    // SAFETY: both allocations have at least that many bytes, and the old one is the server's, by
                    // `serves`.
                    unsafe {
                        used_part(new, layout).copy_from_nonoverlapping(old, size.min(layout.size()));
                        self.dealloc(old, layout);
                    }
                }
                return Some(new);
            }
            let realloc = available!(RedisModule_Realloc)?;
            // SAFETY: `old` is the server's, by `serves`; the server accepts any size.
            Some(unsafe { realloc(block_of(old, layout), with_shift) })
        };
        // A growing realloc may need both blocks at once.
        let more = if is_smaller { 0 } else { size };
        // SAFETY: as promised by the caller.
        let new = Self::allocate(layout, more, || unsafe { System.realloc(old, layout, size) }, server);
        // A block need not become smaller. If it could not, Rust would end the process when a vector gives back memory.
        if new.is_null() && is_smaller { old } else { new }
    }

    // SAFETY: the contract is the trait's.
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        match available!(RedisModule_Free) {
            // SAFETY: `old` is the server's, by `serves`.
            Some(free) if Self::serves(layout) => unsafe { free(block_of(old, layout)) },
            // SAFETY: as promised by the caller.
            _ => unsafe { System.dealloc(old, layout) },
        }
    }
}

/// The bytes that remain free for the server: for its own allocations, the allocator's records, and a thread's stack.
/// With a quarter of this reserve, jemalloc 5.1 was seen to deadlock.
const RESERVE: usize = 32 << 20;

/// Returns true if `size` more bytes can be allocated.
///
/// This maps memory as allocators do, but without `MAP_NORESERVE`: a request for more than the machine has fails here,
/// and not when the pages are first used. If the mapping fails only because the address space is limited, the request
/// may still succeed: jemalloc keeps and reuses the addresses of freed memory.
pub(crate) fn can_allocate(size: usize) -> bool {
    #[cfg(feature = "fault-injection")]
    if starvation::is_due(size) {
        return false;
    }
    size < LARGE || system_has(size)
}

/// Returns true if the system or the allocator has `size` bytes plus the reserve.
fn system_has(size: usize) -> bool {
    let Some(mapped) = rounded_up(size).and_then(|rounded| rounded.checked_add(RESERVE)) else { return false };
    let is_address_space_limited = || !can_be_mapped(mapped, libc::MAP_NORESERVE);
    can_be_mapped(mapped, 0) || is_address_space_limited() && allocator_has(size)
}

/// Returns true if a filter can grow by `size` bytes. Small requests are added up and checked against the system once
/// per mebibyte, so that they leave the reserve free too.
pub(crate) fn can_grow_by(size: usize) -> bool {
    /// The bytes of small requests since the last check.
    static UNCHECKED: AtomicUsize = AtomicUsize::new(0);
    if size >= LARGE {
        return can_allocate(size);
    }
    let unchecked = UNCHECKED.load(Ordering::Relaxed) + size;
    let is_due = unchecked >= LARGE;
    if is_due && !system_has(unchecked) {
        return false;
    }
    UNCHECKED.store(if is_due { 0 } else { unchecked }, Ordering::Relaxed);
    can_allocate(size)
}

/// Returns the bytes that jemalloc allocates for a request: it has four sizes between two powers of two. Other usual
/// allocators round up less.
fn rounded_up(size: usize) -> Option<usize> {
    let step = (1 << size.ilog2()) / 4;
    size.checked_next_multiple_of(step)
}

/// Returns true if the system can map `size` bytes with `flags` in addition to the usual flags.
fn can_be_mapped(size: usize, flags: c_int) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: this maps new private memory that nothing else uses, and unmaps it at once.
    unsafe {
        let mapping = libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0);
        mapping != libc::MAP_FAILED && libc::munmap(mapping, size) == 0
    }
}

/// Returns true if the allocator can serve `size` plus the reserve from memory that it already holds. (It reuses freed
/// memory first.)
fn allocator_has(size: usize) -> bool {
    let (Some(allocate), Some(free)) = (available!(RedisModule_TryAlloc), available!(RedisModule_Free)) else {
        return false;
    };
    // SAFETY: the server accepts any size, gets back what it handed out, and accepts null.
    unsafe {
        let allocations = [size, RESERVE].map(|size| allocate(size));
        allocations.into_iter().for_each(|allocation| free(allocation));
        allocations.iter().all(|allocation| !allocation.is_null())
    }
}

/// Allocations that fail on demand, for tests.
#[cfg(feature = "fault-injection")]
pub(crate) mod starvation {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// The number of the request that fails, counted from 1; 0 for none.
    static FAILING: AtomicU64 = AtomicU64::new(0);

    /// The minimum size of a request that counts.
    static MIN_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

    /// The number of requests that counted.
    static REQUESTS: AtomicU64 = AtomicU64::new(0);

    /// Chooses the request to fail. Returns the number of requests since the last call.
    pub(crate) fn fail(failing: u64, min_bytes: u64) -> u64 {
        let requests = REQUESTS.swap(0, Relaxed);
        FAILING.store(failing, Relaxed);
        MIN_BYTES.store(min_bytes, Relaxed);
        requests
    }

    /// Counts a request. Returns true if it is the one to fail.
    pub(super) fn is_due(size: usize) -> bool {
        size as u64 >= MIN_BYTES.load(Relaxed) && REQUESTS.fetch_add(1, Relaxed) + 1 == FAILING.load(Relaxed)
    }
}
