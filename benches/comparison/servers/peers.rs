//! The servers that are compared: the same binary with different modules, all on one core.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use redis::Connection;

use testkit::info::info;
use testkit::{Server, Setup, ask};

/// The core of the servers. Only one of them is busy at a time.
const SERVER_CORE: &str = "0";

/// The core of this process, the client.
const CLIENT_CORE: &str = "1";

/// A module that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Oxbloom,
    /// oxbloom with RedisBloom's layout. It is only measured where it matters for a migration.
    Classic,
    RedisBloom,
    /// A module that reads the arguments, opens the key, and replies with zeros.
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

    /// Returns true if the module has filters. The floor has none.
    pub(crate) fn has_filters(self) -> bool {
        self != Peer::Floor
    }

    /// Returns the parameters of a server with the peer's module.
    pub(crate) fn setup(self) -> Setup {
        let arguments = if self == Peer::Classic { "bf-layout classic cf-layout classic" } else { "" };
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

/// The peers that are compared on every filter.
pub(crate) const MAIN: [Peer; 3] = [Peer::Oxbloom, Peer::RedisBloom, Peer::Floor];

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

    /// Returns the processor time of all threads of the server so far, in nanoseconds.
    pub(crate) fn cpu(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.server.pid())).expect("our own child");
        threads.map(|thread| time_on_cpu(&thread.expect("a thread").path()).unwrap_or(0)).sum()
    }

    /// Returns the time in the command's code so far, in nanoseconds, as the server reports it.
    pub(crate) fn command_time(&mut self, command: &str) -> u64 {
        self.statistic::<u64>("commandstats", &format!("cmdstat_{command}"), "usec=").map_or(0, |time| 1000 * time)
    }

    /// Resets the server's statistics of commands.
    pub(crate) fn reset_statistics(&mut self) {
        for command in ["CONFIG SET latency-tracking-info-percentiles 100", "CONFIG RESETSTAT"] {
            let _: String = ask(&mut self.connection, command);
        }
    }

    /// Returns the longest time in the command's code since [`reset_statistics`](Self::reset_statistics), in seconds.
    pub(crate) fn longest_command(&mut self, command: &str) -> f64 {
        let name = format!("latency_percentiles_usec_{command}");
        self.statistic::<f64>("latencystats", &name, "p100=").expect("a command that was sent") / 1e6
    }

    /// Returns a field in the line of a command in a section of INFO, or `None` if the command was not sent yet.
    fn statistic<T: FromStr>(&mut self, section: &str, name: &str, field: &str) -> Option<T> {
        let statistics: String = ask(&mut self.connection, &format!("INFO {section}"));
        let mut lines = statistics.lines().filter_map(|line| line.split_once(':'));
        let (_, fields) = lines.find(|(line, _)| line.eq_ignore_ascii_case(name))?;
        fields.split(',').find_map(|text| text.strip_prefix(field)?.trim().parse().ok())
    }

    /// Returns the version of the module: the field `bf_version` of INFO if there is one, as with oxbloom, or else the
    /// number in the section `modules`.
    pub(crate) fn module_version(&mut self) -> String {
        let own = info(&mut self.connection, "bf", "bf_version");
        if !own.is_empty() {
            return own;
        }
        let modules: String = ask(&mut self.connection, "INFO modules");
        let (_, listed) = modules.split_once(",ver=").expect("a module");
        let number: u32 = listed.split(',').next().and_then(|number| number.parse().ok()).expect("its version");
        format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    }

    /// Returns a number of the server's INFO.
    pub(crate) fn info(&mut self, name: &str) -> u64 {
        let value = info(&mut self.connection, "everything", name);
        value.parse().unwrap_or_else(|_| panic!("INFO lacks {name}"))
    }
}

fn time_on_cpu(task: &std::path::Path) -> io::Result<u64> {
    let times = fs::read_to_string(task.join("schedstat"))?;
    Ok(times.split_ascii_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(0))
}

/// Pins this process to the client's core.
pub(crate) fn pin_client() {
    pin(std::process::id(), CLIENT_CORE);
}

fn pin(pid: u32, core: &str) {
    let output = Command::new("taskset").args(["-acp", core, &pid.to_string()]).output().expect("taskset");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
