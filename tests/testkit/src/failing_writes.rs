//! Programs for which the n-th system call that writes a file fails.
//!
//! A library that is preloaded into the program (`examples/failing_writes.rs`) intercepts these calls. It shares a page
//! of memory with the test, which plans the next failure there: one process can be used for many failures.

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::NamedTempFile;

use crate::modules::{module, preloading};

/// The environment variable with the path of the shared page.
pub const PAGE: &str = "FAILING_WRITES_PAGE";

/// The environment variable that selects the calls: those on files whose path starts with its value.
pub const PLACE: &str = "FAILING_WRITES_PLACE";

/// What happens to the first call that fails, and to the next ones.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub error: i32,
    /// The number of calls in a row that fail.
    pub calls: u64,
    /// True if the first call, if it writes bytes, writes half of them and succeeds.
    pub is_short: bool,
}

impl Fault {
    /// One call fails, and all later ones succeed.
    pub const ONCE: Fault = Fault { error: libc::ENOSPC, calls: 1, is_short: false };

    /// A call and all later ones fail.
    pub const FOREVER: Fault = Fault { error: libc::EIO, calls: u64::MAX, is_short: false };

    /// The disk has room for half of a write, and for nothing more.
    pub const FULL_DISK: Fault = Fault { error: libc::ENOSPC, calls: u64::MAX, is_short: true };

    pub const ALL: [Fault; 3] = [Fault::ONCE, Fault::FOREVER, Fault::FULL_DISK];
}

/// The page that the test and the program share.
#[repr(C)]
pub struct Page {
    /// The number of calls since the last plan.
    calls: AtomicU64,
    /// The number of calls among them that failed or were short.
    failed: AtomicU64,
    /// The first call that fails, counted from 1, or 0 if none fails.
    first: AtomicU64,
    /// The fields of [`Fault`].
    failing: AtomicU64,
    error: AtomicU64,
    is_short: AtomicU64,
}

/// What the library does with a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Pass,
    Fail(i32),
    /// Fails, or writes half of its bytes if it writes bytes.
    Shorten(i32),
}

impl Page {
    /// Maps the page in a file, until the process ends.
    pub fn map(path: &Path) -> std::io::Result<&'static Page> {
        let file = File::options().read(true).write(true).open(path)?;
        file.set_len(size_of::<Page>() as u64)?;
        let length = size_of::<Page>();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the system chooses the place of the mapping, so that it replaces no other one.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: the mapping is aligned, has this length, and is never unmapped. Any bits are valid.
        Ok(unsafe { &*start.cast::<Page>() })
    }

    /// Counts a call, and returns what happens to it.
    pub fn count(&self) -> Verdict {
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let first = self.first.load(Ordering::SeqCst);
        if first == 0 || number < first || number - first >= self.failing.load(Ordering::SeqCst) {
            return Verdict::Pass;
        }
        self.failed.fetch_add(1, Ordering::SeqCst);
        let error = self.error.load(Ordering::SeqCst) as i32;
        let is_short = number == first && self.is_short.load(Ordering::SeqCst) != 0;
        if is_short { Verdict::Shorten(error) } else { Verdict::Fail(error) }
    }
}

/// The test's side of the page.
pub struct FailingWrites {
    page: &'static Page,
    file: NamedTempFile,
}

impl FailingWrites {
    /// Creates a page on which no failure is planned.
    pub fn create() -> FailingWrites {
        let file = NamedTempFile::new().expect("a temporary file");
        FailingWrites { page: Page::map(file.path()).expect("a page of memory"), file }
    }

    /// Returns the command prefix that runs a program in which writes to files below `place` fail.
    pub fn prefix(&self, place: &Path) -> Vec<String> {
        let default = "target/debug/examples/libfailing_writes.so";
        let library = module("FAILING_WRITES_LIBRARY", default, "make build-modules");
        // The system shows paths without links.
        let place = fs::canonicalize(place).expect("a folder");
        preloading(&library, &[(PAGE, self.file.path()), (PLACE, &place)])
    }

    /// Starts counting at zero, and lets the call of this number fail.
    pub fn plan(&self, first: u64, fault: Fault) {
        self.clear();
        self.page.failing.store(fault.calls, Ordering::SeqCst);
        self.page.error.store(fault.error as u64, Ordering::SeqCst);
        self.page.is_short.store(fault.is_short.into(), Ordering::SeqCst);
        self.page.first.store(first, Ordering::SeqCst);
    }

    /// Starts counting at zero, and lets no call fail.
    pub fn clear(&self) {
        for number in [&self.page.first, &self.page.calls, &self.page.failed] {
            number.store(0, Ordering::SeqCst);
        }
    }

    /// Returns the number of calls since the last plan.
    pub fn calls(&self) -> u64 {
        self.page.calls.load(Ordering::SeqCst)
    }

    /// Returns the number of calls since the last plan that failed or were short.
    pub fn failed(&self) -> u64 {
        self.page.failed.load(Ordering::SeqCst)
    }
}
