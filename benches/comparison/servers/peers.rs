//! The servers that are compared: the same binary with one module or another, all on one core.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use redis::Connection;

use testkit::info::info;
use testkit::{Server, Setup, ask};

/// The core of the servers. Only one of them works at a time.
const SERVER_CORE: &str = "0";

/// The core of this process, the client.
const CLIENT_CORE: &str = "1";

/// Who is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Oxbloom,
    /// oxbloom with RedisBloom's layout. Takes part only where those who migrate will look.
    Classic,
    RedisBloom,
    /// Reads the arguments, opens the key, replies zeros.
    Floor,
}

impl Peer {
    pub(crate) const ALL: [Peer; 4] = [Peer::Oxbloom, Peer::Classic, Peer::RedisBloom, Peer::Floor];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Oxbloom => "oxbloom",
            Peer::Classic => "oxbloom, classic",
            Peer::RedisBloom => "RedisBloom",
            Peer::Floor => "floor",
        }
    }

    /// Whether the module has filters; otherwise it only replies.
    pub(crate) fn has_filters(self) -> bool {
        self != Peer::Floor
    }

    /// A server with the peer's module, not started yet.
    pub(crate) fn setup(self) -> Setup {
        let arguments = if self == Peer::Classic { "bf-layout classic" } else { "" };
        Setup::with_module(self.module()).module_arguments(arguments)
    }

    fn module(self) -> PathBuf {
        match self {
            Peer::Oxbloom | Peer::Classic => testkit::oxbloom(),
            Peer::RedisBloom => testkit::redisbloom(),
            Peer::Floor => testkit::module(
                "FLOOR_MODULE",
                "target/release/examples/libfloor.so",
                "cargo build --release --example floor",
            ),
        }
    }
}

/// A running server, pinned to its core.
pub(crate) struct Instance {
    pub peer: Peer,
    pub server: Server,
    pub connection: Connection,
}

impl Instance {
    pub(crate) fn start(peer: Peer, setup: Setup) -> Instance {
        let server = setup.start();
        pin(server.pid(), SERVER_CORE);
        let connection = server.connect();
        Instance { peer, server, connection }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.server.port))
    }

    /// Processor time of all threads of the server so far, in nanoseconds.
    pub(crate) fn cpu(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.server.pid())).expect("our own child");
        threads.map(|thread| time_on_cpu(&thread.expect("a thread").path()).unwrap_or(0)).sum()
    }

    /// Time within the command's own code so far, in nanoseconds, by the server's own account.
    pub(crate) fn command_time(&mut self, command: &str) -> u64 {
        let stats: String = ask(&mut self.connection, "INFO commandstats");
        let line = stats.lines().find(|line| {
            line.split_once(':').is_some_and(|(name, _)| name.eq_ignore_ascii_case(&format!("cmdstat_{command}")))
        });
        line.and_then(|line| field(line, "usec=")).map_or(0, |microseconds| 1000 * microseconds)
    }

    /// A number of the server's INFO.
    pub(crate) fn info(&mut self, name: &str) -> u64 {
        let value = info(&mut self.connection, "everything", name);
        value.parse().unwrap_or_else(|_| panic!("INFO lacks {name}"))
    }
}

fn time_on_cpu(task: &std::path::Path) -> io::Result<u64> {
    let times = fs::read_to_string(task.join("schedstat"))?;
    Ok(times.split_ascii_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(0))
}

fn field(line: &str, name: &str) -> Option<u64> {
    line.split([':', ',']).find_map(|field| field.strip_prefix(name)?.trim().parse().ok())
}

/// Pins this process to the client's core.
pub(crate) fn pin_client() {
    pin(std::process::id(), CLIENT_CORE);
}

fn pin(pid: u32, core: &str) {
    let output = Command::new("taskset").args(["-acp", core, &pid.to_string()]).output().expect("taskset");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
