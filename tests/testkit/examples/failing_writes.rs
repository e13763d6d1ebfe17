//! A library that is preloaded into a program, and lets system calls fail that write files: see
//! `testkit::failing_writes`. It does nothing on processors other than x86-64, whose registers it names.
//!
//! A seccomp filter traps each of these calls into a handler, also those within the C library, such as the writes of its
//! buffered streams. The handler repeats a call with a mark in an argument that the call does not have, by which the
//! filter lets it pass. The filter outlives an exec, but the handler does not: the program must not execute others.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_long, c_void};
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use libc::{REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RSI};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use testkit::failing_writes::{PAGE, PLACE, Page, Verdict};

/// The sixth argument of calls that the filter lets pass.
const MARK: c_long = 0x5af3_107a_4000;
const MARKED_ARGUMENT: usize = 5;

/// Where a call has its file.
#[derive(Clone, Copy)]
enum Target {
    /// The argument is a descriptor.
    Descriptor(usize),
    /// The argument is a path.
    Path(usize),
    /// The same, if the flags in the next argument create a file.
    Created(usize),
}

use Target::{Created, Descriptor, Path as InPath};

/// The calls that write, and where each has its file.
///
/// Without `unlink`: if that fails, a file is left behind, and no program can change this.
const CALLS: [(c_long, Target); 19] = [
    (libc::SYS_write, Descriptor(0)),
    (libc::SYS_writev, Descriptor(0)),
    (libc::SYS_pwrite64, Descriptor(0)),
    (libc::SYS_pwritev, Descriptor(0)),
    (libc::SYS_sendfile, Descriptor(0)),
    (libc::SYS_fsync, Descriptor(0)),
    (libc::SYS_fdatasync, Descriptor(0)),
    (libc::SYS_ftruncate, Descriptor(0)),
    (libc::SYS_fallocate, Descriptor(0)),
    (libc::SYS_close, Descriptor(0)),
    (libc::SYS_truncate, InPath(0)),
    (libc::SYS_rename, InPath(0)),
    (libc::SYS_renameat, InPath(1)),
    (libc::SYS_renameat2, InPath(1)),
    (libc::SYS_link, InPath(0)),
    (libc::SYS_linkat, InPath(1)),
    (libc::SYS_mkdir, InPath(0)),
    (libc::SYS_open, Created(0)),
    (libc::SYS_openat, Created(1)),
];

struct Plan {
    page: &'static Page,
    place: String,
}

static PLAN: OnceLock<Plan> = OnceLock::new();

/// Runs [`install`] when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = install;

extern "C" fn install() {
    let (Ok(page), Ok(place)) = (std::env::var(PAGE), std::env::var(PLACE)) else { return };
    let page = Page::map(Path::new(&page)).expect("a page of memory");
    let _ = PLAN.set(Plan { page, place });
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = trapped;
    // SAFETY: the handler has the signature that SA_SIGINFO demands.
    let is_set = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) == 0
    };
    assert!(is_set, "{}", std::io::Error::last_os_error());
    let unmarked = SeccompCondition::new(MARKED_ARGUMENT as u8, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, MARK as u64);
    let rule = SeccompRule::new(vec![unmarked.expect("an argument")]).expect("a condition");
    let rules: BTreeMap<_, _> = CALLS.iter().map(|(call, _)| (*call, vec![rule.clone()])).collect();
    let processor = std::env::consts::ARCH.try_into().expect("a processor with system calls");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trap, processor).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a short filter");
    seccompiler::apply_filter(&program).expect("a system with seccomp");
}

/// Handles a call that was trapped. Like any signal handler, it must not allocate: the program may be in its allocator.
extern "C" fn trapped(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes the context of the trapped thread, which nothing else uses.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let call = registers[REG_RAX as usize];
    let arguments = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9].map(|register| registers[register as usize]);
    // SAFETY: each thread has a place for its error number. The C library sets it from the result of the call.
    let before = unsafe { *libc::__errno_location() };
    registers[REG_RAX as usize] = result(call, arguments);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = before };
}

/// Returns the result of a call: a number, or an error as a negative number.
fn result(call: c_long, mut arguments: [c_long; 6]) -> c_long {
    let plan = PLAN.get().expect("set before the filter");
    let target = CALLS.iter().find(|(number, _)| *number == call).map(|(_, target)| *target);
    if !target.is_some_and(|target| plan.concerns(target, &arguments)) {
        return repeat(call, arguments);
    }
    match plan.page.count() {
        Verdict::Pass => repeat(call, arguments),
        Verdict::Shorten(_) if [libc::SYS_write, libc::SYS_pwrite64].contains(&call) && arguments[2] > 1 => {
            arguments[2] /= 2;
            repeat(call, arguments)
        }
        Verdict::Fail(error) | Verdict::Shorten(error) => {
            // A descriptor is free after an error, too.
            if call == libc::SYS_close {
                repeat(call, arguments);
            }
            -c_long::from(error)
        }
    }
}

fn repeat(call: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, _] = arguments;
    // SAFETY: these are the call and the arguments of the program.
    match unsafe { libc::syscall(call, a, b, c, d, e, MARK) } {
        // SAFETY: each thread has a place for its error number.
        -1 => -c_long::from(unsafe { *libc::__errno_location() }),
        result => result,
    }
}

impl Plan {
    fn concerns(&self, target: Target, arguments: &[c_long; 6]) -> bool {
        match target {
            Descriptor(index) => {
                let mut name = [0; 32];
                write!(&mut name[..], "/proc/self/fd/{}\0", arguments[index]).is_ok() && self.has_link(&name)
            }
            InPath(index) => self.has_path(arguments[index]),
            Created(index) => {
                arguments[index + 1] & c_long::from(libc::O_CREAT) != 0 && self.has_path(arguments[index])
            }
        }
    }

    /// Returns true if a path is in the place. Paths that are not absolute start in the current folder.
    fn has_path(&self, path: c_long) -> bool {
        // SAFETY: the program passed a path that ends with a zero.
        let path = unsafe { CStr::from_ptr(path as *const _) }.to_bytes();
        path.starts_with(self.place.as_bytes()) || (!path.starts_with(b"/") && self.has_link(b"/proc/self/cwd\0"))
    }

    /// Returns true if a symbolic link leads to the place. Its name ends with a zero.
    fn has_link(&self, name: &[u8]) -> bool {
        let mut link = [0_u8; 4096];
        // SAFETY: the name ends with a zero, and the link gets at most the length of the buffer.
        let length = unsafe { libc::readlink(name.as_ptr().cast(), link.as_mut_ptr().cast(), link.len()) };
        usize::try_from(length).is_ok_and(|length| link[..length].starts_with(self.place.as_bytes()))
    }
}
