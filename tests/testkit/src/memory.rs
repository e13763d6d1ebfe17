//! Servers that are short of memory.

use redis::Connection;

use crate::command::run;
use crate::info::used_memory;
use crate::server::{Server, Setup, with_debug};

pub const MIB: u64 = 1 << 20;

/// What a client is told when a filter cannot be created, by the limit that was exceeded.
pub mod create {
    pub const FILTER_LIMIT: &str = "ERR Insufficient memory to create filter: over bf.filter-memory-limit, raise the limit or choose a smaller capacity";
    pub const MAXMEMORY: &str = "ERR Insufficient memory to create filter: over maxmemory, raise it or delete keys";
    pub const SYSTEM: &str =
        "ERR Insufficient memory to create filter: the system has no more, add memory or delete keys";
    pub const ADDRESS: &str =
        "ERR Insufficient memory to create filter: more than can be addressed, choose a smaller capacity or expansion";
}

/// What it is told when one cannot grow.
pub mod grow {
    pub const FILTER_LIMIT: &str = "ERR Insufficient memory to grow filter: over bf.filter-memory-limit, raise the limit or choose a smaller capacity";
    pub const MAXMEMORY: &str = "ERR Insufficient memory to grow filter: over maxmemory, raise it or delete keys";
    pub const SYSTEM: &str =
        "ERR Insufficient memory to grow filter: the system has no more, add memory or delete keys";
}

/// What a server logs when it exits because it would otherwise lose items.
pub const EXIT_MESSAGE: &str = "exiting to avoid losing items";

/// A reserve of about so many MiB.
pub fn reserve(key: &str, mebibytes: u64) -> String {
    format!("BF.RESERVE {key} 0.01 {} NONSCALING", mebibytes * MIB * 8 / 10)
}

/// Leaves the server so much room under `maxmemory`.
pub fn limit(client: &mut Connection, room: u64) -> u64 {
    let limit = used_memory(client) + room;
    run(client, &format!("CONFIG SET maxmemory {limit}")).unwrap();
    limit
}

/// A server that has to get by with little memory, whatever damaged data asks for.
pub fn limited(setup: Setup) -> Setup {
    setup.module_arguments("filter-memory-limit 512mb").limit_address_space(4 << 30)
}

/// Lets a server that is to start have so many bytes more than an idle one has.
pub fn confine(setup: Setup, bytes: u64) -> Setup {
    let idle = with_debug(Setup::oxbloom()).limit_address_space(libc::RLIM_INFINITY).start();
    setup.limit_address_space(address_space(&idle) + bytes)
}

/// Lets a running server have so many bytes more than it has; `None` for as many as it likes.
pub fn confine_running(server: &Server, bytes: Option<u64>) {
    let most = bytes.map_or(libc::RLIM_INFINITY, |bytes| address_space(server) + bytes);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
    let pid = server.pid().try_into().expect("a process number");
    // SAFETY: a limit that lives for the time of the call, and no place for the old one.
    let status = unsafe { libc::prlimit(pid, libc::RLIMIT_AS, &limit, std::ptr::null_mut()) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}

/// How many bytes a process has addresses for.
fn address_space(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the status of a process");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("the size of a process");
    let size: u64 = size.trim().trim_end_matches(" kB").trim().parse().expect("a number");
    size * 1024
}
