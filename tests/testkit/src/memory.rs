//! Servers that are short of memory.

use redis::Connection;

use crate::command::run;
use crate::info::used_memory;
use crate::server::{Server, Setup, with_debug};
use crate::wire::Wire;

pub const MIB: u64 = 1 << 20;

/// The errors of a filter that cannot be created, by the limit that was exceeded.
pub mod create {
    pub const FILTER_LIMIT: &str = "ERR Insufficient memory to create filter: over bf.filter-memory-limit, raise the limit or choose a smaller capacity";
    pub const MAXMEMORY: &str = "ERR Insufficient memory to create filter: over maxmemory, raise it or delete keys";
    pub const SYSTEM: &str =
        "ERR Insufficient memory to create filter: the system has no more, add memory or delete keys";
    pub const ADDRESS: &str =
        "ERR Insufficient memory to create filter: more than can be addressed, choose a smaller capacity or expansion";
}

/// The errors of a filter that cannot grow, by the limit that was exceeded.
pub mod grow {
    pub const FILTER_LIMIT: &str = "ERR Insufficient memory to grow filter: over bf.filter-memory-limit, raise the limit or choose a smaller capacity";
    pub const MAXMEMORY: &str = "ERR Insufficient memory to grow filter: over maxmemory, raise it or delete keys";
    pub const SYSTEM: &str =
        "ERR Insufficient memory to grow filter: the system has no more, add memory or delete keys";
}

/// The log message of a server that exits to avoid losing items.
pub const EXIT_MESSAGE: &str = "exiting to avoid losing items";

/// Returns the BF.RESERVE command for a filter of about `mebibytes` MiB.
pub fn reserve(key: &str, mebibytes: u64) -> String {
    format!("BF.RESERVE {key} 0.01 {} NONSCALING", mebibytes * MIB * 8 / 10)
}

/// Sets `maxmemory` so that the server has `room` bytes left. Returns the limit.
pub fn limit(client: &mut Connection, room: u64) -> u64 {
    let limit = used_memory(client) + room;
    run(client, &format!("CONFIG SET maxmemory {limit}")).unwrap();
    limit
}

/// Limits the memory of a server, so that damaged data cannot make it allocate much.
pub fn limited(setup: Setup) -> Setup {
    setup.module_arguments("filter-memory-limit 512mb").limit_address_space(4 << 30)
}

/// Limits a server that is not started yet to `bytes` bytes more than an idle server uses.
pub fn confine(setup: Setup, bytes: u64) -> Setup {
    let idle = with_debug(Setup::oxbloom()).limit_address_space(libc::RLIM_INFINITY).start();
    setup.limit_address_space(used(&idle, "VmSize:") + bytes)
}

/// Limits the address space of a running server to `bytes` bytes more than it uses; `None` removes the limit.
pub fn confine_running(server: &Server, bytes: Option<u64>) {
    let most = bytes.map_or(libc::RLIM_INFINITY, |bytes| used(server, "VmSize:") + bytes);
    limit_resource(server, libc::RLIMIT_AS, most);
}

/// Limits the data of a running server, which are its writable pages, to `bytes` bytes more than it has.
pub fn confine_data(server: &Server, bytes: u64) {
    limit_resource(server, libc::RLIMIT_DATA, used(server, "VmData:") + bytes);
}

fn limit_resource(server: &Server, resource: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
    let pid = server.pid().try_into().expect("a process number");
    // SAFETY: the new limit outlives the call, and the pointer for the old one may be null.
    let status = unsafe { libc::prlimit(pid, resource, &limit, std::ptr::null_mut()) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}

/// Returns the size in bytes that a field of the kernel's status of a server has.
fn used(server: &Server, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the status of a process");
    let size = status.lines().find_map(|line| line.strip_prefix(field)).expect("the size of a process");
    let size: u64 = size.trim().trim_end_matches(" kB").trim().parse().expect("a number");
    size * 1024
}

/// Acts while a request of the module for at least `least` bytes of memory fails: the one with this number, counted from
/// 1. Returns the result, and the number of such requests.
pub fn starving<T>(client: &mut Wire, request: u64, least: u64, act: impl FnOnce(&mut Wire) -> T) -> (T, u64) {
    let starve =
        |client: &mut Wire, request: u64| client.run(&format!("BF.STARVE key {request} {least}")).integer() as u64;
    starve(client, request);
    let result = act(client);
    (result, starve(client, 0))
}
