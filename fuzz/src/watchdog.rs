//! Bounds the time of an operation, and ends the process with a message if it does not end.

use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The maximum processor time of an operation, in milliseconds.
const MAX_MILLISECONDS: u64 = 100;

/// The processor time after which an operation is aborted, in seconds.
const ABORT_SECONDS: i64 = 3;

/// The address space of the process, so that an operation that never ends cannot take all memory before it is aborted.
const ADDRESS_SPACE: u64 = 6 << 30;

/// The running operation: its name, which the signal handler prints.
static RUNNING: (AtomicPtr<u8>, AtomicUsize) = (AtomicPtr::new(null_mut()), AtomicUsize::new(0));

/// Runs an operation. Panics if it takes more than [`MAX_MILLISECONDS`]. If it does not end, or runs out of memory,
/// aborts the process and prints its name.
pub(crate) fn timed<T>(name: &str, operation: impl FnOnce() -> T) -> T {
    static SET_UP: Once = Once::new();
    SET_UP.call_once(set_up);
    RUNNING.0.store(name.as_ptr().cast_mut(), Ordering::SeqCst);
    RUNNING.1.store(name.len(), Ordering::SeqCst);
    let armed = Armed::new();
    let begin = processor_time();
    let result = operation();
    let taken = processor_time() - begin;
    drop(armed);
    assert!(taken <= MAX_MILLISECONDS * 1_000_000, "{name}: takes {} ms", taken / 1_000_000);
    result
}

/// A timer that runs, until it is dropped.
struct Armed;

impl Armed {
    fn new() -> Armed {
        set_timer(ABORT_SECONDS);
        Armed
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        set_timer(0);
        RUNNING.1.store(0, Ordering::SeqCst);
    }
}

fn set_timer(seconds: i64) {
    let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: never, it_value: libc::timeval { tv_sec: seconds, ..never } };
    // SAFETY: the new value outlives the call, and the pointer for the old one may be null.
    let status = unsafe { libc::setitimer(libc::ITIMER_VIRTUAL, &timer, null_mut()) };
    assert_eq!(status, 0);
}

fn set_up() {
    let limit = libc::rlimit { rlim_cur: ADDRESS_SPACE, rlim_max: libc::RLIM_INFINITY };
    // AddressSanitizer reserves terabytes of address space.
    if address_space() < ADDRESS_SPACE {
        // SAFETY: the limit outlives the call.
        let _ = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
    }
    for signal in [libc::SIGVTALRM, libc::SIGABRT] {
        // SAFETY: the handler only calls functions that are safe in a signal handler.
        unsafe { libc::signal(signal, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// Returns the bytes of address space that the process has.
fn address_space() -> u64 {
    const PAGE: u64 = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").expect("the size of this process");
    PAGE * pages.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages")
}

/// Prints the running operation, and ends the process.
extern "C" fn on_signal(signal: libc::c_int) {
    let print = |text: &[u8]| {
        // SAFETY: the text is valid for its length.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    };
    let (name, length) = (RUNNING.0.load(Ordering::SeqCst), RUNNING.1.load(Ordering::SeqCst));
    if length > 0 {
        // SAFETY: the name lives until the length is set to 0.
        print(unsafe { std::slice::from_raw_parts(name, length) });
        print(if signal == libc::SIGABRT { b": aborted\n" } else { b": does not end\n" });
    }
    // SAFETY: ends the process, without a handler for the signal.
    unsafe {
        libc::signal(libc::SIGABRT, libc::SIG_DFL);
        libc::abort();
    }
}

/// Returns the processor time of this thread, in nanoseconds.
fn processor_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
