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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Oxbloom,
    /// oxbloom with RedisBloom's layout.
    Classic,
    RedisBloom,
    /// A module that reads the arguments, opens the key, and replies with zeros.
    Floor,
    /// No module.
    Nothing,
}

impl Peer {
    /// Returns true if the module has filters.
    pub(crate) fn has_filters(self) -> bool {
        !matches!(self, Peer::Floor | Peer::Nothing)
    }

    /// Returns the parameters of a server with the peer's module.
    pub(crate) fn setup(self) -> Setup {
        let floor = "target/release/examples/libfloor.so";
        match self {
            Peer::Oxbloom => Setup::oxbloom(),
            Peer::Classic => Setup::oxbloom().module_arguments("bf-layout classic cf-layout classic"),
            Peer::RedisBloom => Setup::with_module(testkit::redisbloom()),
            Peer::Floor => Setup::with_module(testkit::module("FLOOR_MODULE", floor, "make bench")),
            Peer::Nothing => Setup::without_module(),
        }
    }
}

/// Returns the folder of what make has built and installed.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| testkit::repository().join("target"), PathBuf::from)
}

/// Returns the path of a server that make has installed.
pub(crate) fn installed(name: &str) -> PathBuf {
    target().join("servers").join(name)
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

    /// Returns the processor time of all threads of the server so far, in nanoseconds.
    pub(crate) fn cpu(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.server.pid())).expect("our own child");
        threads.map(|thread| time_on_cpu(&thread.expect("a thread").path()).unwrap_or(0)).sum()
    }

    /// Returns the time in the command's code since [`reset_statistics`](Self::reset_statistics), in nanoseconds, as
    /// the server reports it.
    pub(crate) fn command_time(&mut self, command: &str) -> u64 {
        let time: Option<u64> = self.statistic("commandstats", &format!("cmdstat_{command}"), "usec=");
        1000 * time.expect("a command that was sent")
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

    /// Returns the names and versions of the server and of its module, such as `RedisBloom 2.8.2 in Redis 7.0.15`.
    pub(crate) fn versions(&mut self) -> String {
        let server = match info(&mut self.connection, "server", "valkey_version") {
            none if none.is_empty() => format!("Redis {}", info(&mut self.connection, "server", "redis_version")),
            valkey => format!("Valkey {valkey}"),
        };
        let own = info(&mut self.connection, "bf", "bf_version");
        if !own.is_empty() {
            return format!("oxbloom {own} in {server}");
        }
        let modules: String = ask(&mut self.connection, "INFO modules");
        let (_, listed) = modules.split_once(",ver=").expect("a module");
        let number: u32 = listed.split(',').next().and_then(|number| number.parse().ok()).expect("its version");
        format!("RedisBloom {}.{}.{} in {server}", number / 10_000, number / 100 % 100, number % 100)
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
