//! A library that gives a process, which preloads it, a clock that is off. A file that `FALSE_CLOCK_FILE` names holds
//! the offset, which another process may change: milliseconds, as a 64-bit integer of this machine.
//!
//! libfaketime opens its file each time, which a server's child must not do in a signal handler: it may wait for itself
//! forever. Here, all functions may be called at any moment.

use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

use libc::{c_int, c_void, clockid_t, time_t, timespec, timeval};

/// The offset in the file, once it is mapped into memory.
static OFFSET: AtomicPtr<AtomicI64> = AtomicPtr::new(ptr::null_mut());

/// The offset of a process without a file.
static NONE: AtomicI64 = AtomicI64::new(0);

/// Returns the offset of the clock in milliseconds.
fn offset() -> i64 {
    let mut offset = OFFSET.load(Ordering::Acquire);
    if offset.is_null() {
        offset = map().unwrap_or((&raw const NONE).cast_mut());
        OFFSET.store(offset, Ordering::Release);
    }
    // SAFETY: it is a static, or memory of eight aligned bytes that is never unmapped.
    unsafe { &*offset }.load(Ordering::Relaxed)
}

/// Maps the file into memory, if there is one.
fn map() -> Option<*mut AtomicI64> {
    // SAFETY: the environment does not change while the process starts, when the first of these calls comes. The file
    // is only read, and has eight bytes.
    unsafe {
        let name = libc::getenv(c"FALSE_CLOCK_FILE".as_ptr());
        let file = if name.is_null() { -1 } else { libc::open(name, libc::O_RDONLY | libc::O_CLOEXEC) };
        if file < 0 {
            return None;
        }
        let start = libc::mmap(ptr::null_mut(), size_of::<i64>(), libc::PROT_READ, libc::MAP_SHARED, file, 0);
        libc::close(file);
        (start != libc::MAP_FAILED).then(|| start.cast())
    }
}

/// Returns the time that the process sees, in nanoseconds since 1970.
fn now() -> i64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the time to a place of ours.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec + offset() * 1_000_000
}

/// # Safety
///
/// As for the function of the same name in C. This also applies to those below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    if clock != libc::CLOCK_REALTIME && clock != libc::CLOCK_REALTIME_COARSE {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as c_int;
    }
    let now = now();
    // SAFETY: the caller's promise.
    unsafe { time.write(timespec { tv_sec: now / 1_000_000_000, tv_nsec: now % 1_000_000_000 }) };
    0
}

/// # Safety
///
/// See above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut timeval, _zone: *mut c_void) -> c_int {
    let now = now() / 1000;
    // SAFETY: the caller's promise.
    unsafe { time.write(timeval { tv_sec: now / 1_000_000, tv_usec: now % 1_000_000 }) };
    0
}

/// # Safety
///
/// See above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut time_t) -> time_t {
    let now = now() / 1_000_000_000;
    if !time.is_null() {
        // SAFETY: the caller's promise.
        unsafe { time.write(now) };
    }
    now
}
