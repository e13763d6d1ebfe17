//! The global allocator: the server's, so that `used_memory`, `maxmemory` and active defragmentation know our memory.
//!
//! It differs from `redis_module::alloc::RedisAlloc` in three ways that the filters need:
//!
//! - Zeroed memory comes from the server's `calloc`, which leaves the pages of a large array untouched until they are
//!   used. Writing the zeros would stop the server for seconds.
//! - A large request may fail. The server's own allocators end the process when the system refuses memory, and those
//!   that may fail instead appeared over the years (`TryAlloc` in 7.0, `TryCalloc` in 7.4). So [`can_be_had`] asks the
//!   system first, by mapping as much and letting go of it again, and if that fails, the server.
//! - Outside a server, as in tests and benchmarks, it is the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ffi::available;

/// Requests from this size, in bytes, are first tried on the system. Smaller ones come out of what the allocator has
/// mapped already, or fail together with everything else on the server.
const LARGE: usize = 1 << 20;

/// The alignment that any server's allocator has.
const SERVER_ALIGN: usize = 8;

/// The server's allocator, or the system's where there is no server.
pub(crate) struct ServerAlloc;

impl ServerAlloc {
    /// Returns true if the server serves the request. It only aligns to words, which is all that we ever ask for: cache
    /// lines are aligned by the filter itself.
    fn serves(layout: Layout) -> bool {
        available!(RedisModule_Alloc).is_some() && layout.align() <= SERVER_ALIGN
    }

    /// Allocates from the server if there is one, and returns null if `more` bytes cannot be had; from the system
    /// otherwise.
    fn allocate(
        layout: Layout,
        more: usize,
        system: impl FnOnce() -> *mut u8,
        server: impl FnOnce() -> Option<*mut c_void>,
    ) -> *mut u8 {
        if !Self::serves(layout) {
            return system();
        }
        if can_be_had(more) { server().unwrap_or(ptr::null_mut()).cast() } else { ptr::null_mut() }
    }
}

// SAFETY: memory comes from the server once there is one, else from the system, and returns to where it came from: the
// table of functions is filled when the module is loaded, before anything else of it runs and allocates. Requests of
// more than the server's alignment always go to the system.
unsafe impl GlobalAlloc for ServerAlloc {
    // SAFETY: the contract is the trait's.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let function = || available!(RedisModule_TryAlloc).or(available!(RedisModule_Alloc));
        // SAFETY: to the system, as promised by the caller; to the server, any size will do.
        let (system, server) = (|| unsafe { System.alloc(layout) }, || Some(unsafe { function()?(layout.size()) }));
        Self::allocate(layout, layout.size(), system, server)
    }

    // SAFETY: the contract is the trait's.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        let server = || {
            if let Some(calloc) = available!(RedisModule_TryCalloc) {
                // SAFETY: any size will do.
                return Some(unsafe { calloc(1, size) });
            }
            // A table takes its memory in small parts. Rather than end the server when there is none, zero them here.
            if let Some(alloc) = available!(RedisModule_TryAlloc).filter(|_| size < LARGE) {
                // SAFETY: any size will do.
                let start = unsafe { alloc(size) };
                if !start.is_null() {
                    // SAFETY: the allocation has so many bytes.
                    unsafe { start.write_bytes(0, size) };
                }
                return Some(start);
            }
            let calloc = available!(RedisModule_Calloc)?;
            // SAFETY: any size will do.
            Some(unsafe { calloc(1, size) })
        };
        // SAFETY: as promised by the caller.
        Self::allocate(layout, size, || unsafe { System.alloc_zeroed(layout) }, server)
    }

    // SAFETY: the contract is the trait's.
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let server = || {
            if let Some(realloc) = available!(RedisModule_TryRealloc) {
                // SAFETY: `old` is the server's, by `serves`; any size will do.
                return Some(unsafe { realloc(old.cast(), size) });
            }
            // Rather than end the server when there is no memory, copy what is small.
            if let Some(alloc) = available!(RedisModule_TryAlloc).filter(|_| size < LARGE) {
                // SAFETY: any size will do.
                let new = unsafe { alloc(size) };
                if !new.is_null() {
                    // SAFETY: both allocations have so many bytes, and the old one is the server's, by `serves`.
                    unsafe {
                        new.cast::<u8>().copy_from_nonoverlapping(old, size.min(layout.size()));
                        self.dealloc(old, layout);
                    }
                }
                return Some(new);
            }
            let realloc = available!(RedisModule_Realloc)?;
            // SAFETY: `old` is the server's, by `serves`; any size will do.
            Some(unsafe { realloc(old.cast(), size) })
        };
        // A growing realloc may need both blocks at once.
        let more = if size > layout.size() { size } else { 0 };
        // SAFETY: as promised by the caller.
        Self::allocate(layout, more, || unsafe { System.realloc(old, layout, size) }, server)
    }

    // SAFETY: the contract is the trait's.
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        match available!(RedisModule_Free) {
            // SAFETY: `old` is the server's, by `serves`.
            Some(free) if Self::serves(layout) => unsafe { free(old.cast()) },
            // SAFETY: as promised by the caller.
            _ => unsafe { System.dealloc(old, layout) },
        }
    }
}

/// The bytes that the server keeps at least: for its own allocations, the allocator's records, and the stack of a
/// thread. With a quarter of it, jemalloc 5.1 was seen to lock itself out.
const RESERVE: usize = 32 << 20;

/// Returns true if `size` more bytes can be allocated.
///
/// The system is asked in the words that allocators use, but without waiving its own judgement (`MAP_NORESERVE`): a
/// request for more than the machine has fails here, and not when the pages are first used. What fails for
/// another reason, a limit on the address space, may still be had from the allocator: jemalloc keeps the addresses of
/// what was freed.
pub(crate) fn can_be_had(size: usize) -> bool {
    #[cfg(feature = "fault-injection")]
    if starvation::is_due(size) {
        return false;
    }
    size < LARGE || system_has(size)
}

/// Returns true if the system, or the allocator, has so many bytes and the reserve.
fn system_has(size: usize) -> bool {
    let Some(mapped) = taken_for(size).and_then(|taken| taken.checked_add(RESERVE)) else { return false };
    can_be_mapped(mapped, 0) || !can_be_mapped(mapped, libc::MAP_NORESERVE) && is_kept(size)
}

/// As [`can_be_had`], for what a filter grows by. The system is asked about every mebibyte of small requests, so that they
/// leave the reserve as well.
pub(crate) fn can_grow_by(size: usize) -> bool {
    /// The bytes of small requests since the system was asked.
    static UNASKED: AtomicUsize = AtomicUsize::new(0);
    if size >= LARGE {
        return can_be_had(size);
    }
    let unasked = UNASKED.load(Ordering::Relaxed) + size;
    let is_due = unasked >= LARGE;
    if is_due && !system_has(unasked) {
        return false;
    }
    UNASKED.store(if is_due { 0 } else { unasked }, Ordering::Relaxed);
    can_be_had(size)
}

/// Returns the bytes that jemalloc, the more wasteful of the usual allocators, takes for a request: the next of the
/// four sizes that it has between powers of two.
fn taken_for(size: usize) -> Option<usize> {
    let step = (1 << size.ilog2()) / 4;
    size.checked_next_multiple_of(step)
}

/// Returns true if the system would map so many bytes, with these flags beside the usual ones.
fn can_be_mapped(size: usize, flags: c_int) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new private mapping that nothing else knows of, and that is gone on the next line.
    unsafe {
        let mapping = libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0);
        mapping != libc::MAP_FAILED && libc::munmap(mapping, size) == 0
    }
}

/// Returns true if the allocator can serve `size` plus the reserve from memory that it already holds. (It reuses freed
/// memory first.)
fn is_kept(size: usize) -> bool {
    let (Some(allocate), Some(free)) = (available!(RedisModule_TryAlloc), available!(RedisModule_Free)) else {
        return false;
    };
    // SAFETY: any size will do, and what the server hands out goes back to it, untouched. It takes null as well.
    unsafe {
        let kept = [size, RESERVE].map(|size| allocate(size));
        kept.into_iter().for_each(|kept| free(kept));
        kept.iter().all(|kept| !kept.is_null())
    }
}

/// Requests for memory that fail to order, for tests.
#[cfg(feature = "fault-injection")]
pub(crate) mod starvation {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// The request that is to fail, counted from 1; 0 for none.
    static FAILING: AtomicU64 = AtomicU64::new(0);

    /// The bytes that a request must ask for to count.
    static MIN_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

    /// The number of requests that counted.
    static REQUESTS: AtomicU64 = AtomicU64::new(0);

    /// Chooses the next request to fail. Returns how many there were since the last call.
    pub(crate) fn order(failing: u64, min_bytes: u64) -> u64 {
        let requests = REQUESTS.swap(0, Relaxed);
        FAILING.store(failing, Relaxed);
        MIN_BYTES.store(min_bytes, Relaxed);
        requests
    }

    /// Returns true if a request for memory is the one that is to fail.
    pub(super) fn is_due(size: usize) -> bool {
        size as u64 >= MIN_BYTES.load(Relaxed) && REQUESTS.fetch_add(1, Relaxed) + 1 == FAILING.load(Relaxed)
    }
}
