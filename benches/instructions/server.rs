//! Measures the module's cost per command, in a real server.
//!
//! The server runs under callgrind. Whenever a PING begins, callgrind writes a profile of the time since the last one. In
//! qemu, the plugin writes its counts.

use std::fs;
use std::path::{Path, PathBuf};

use redis::{Cmd, Connection, Pipeline, Value};
use tempfile::TempDir;

use super::Cost;
use super::callgrind::{self, Counts};
use super::qemu;
use testkit::Setup;

/// The number of times that each command is sent.
const TIMES: usize = 100;

/// The number of items in a command with many items.
const MANY: usize = 100;

/// The workloads. They are sent in this order, and each finds the items of those before it.
const WORKLOADS: &[Workload] = &[
    Workload { name: "BF.MADD, 100 new items", command: "BF.MADD", key: SMALL, items: MANY, from: 0, ones: MANY },
    Workload { name: "BF.MADD, 100 known items", command: "BF.MADD", key: SMALL, items: MANY, from: 0, ones: 0 },
    Workload { name: "BF.MEXISTS, 100 hits", command: "BF.MEXISTS", key: SMALL, items: MANY, from: 0, ones: MANY },
    Workload { name: "BF.MEXISTS, 100 misses", command: "BF.MEXISTS", key: SMALL, items: MANY, from: ABSENT, ones: 0 },
    Workload { name: "BF.ADD, a new item", command: "BF.ADD", key: SMALL, items: 1, from: TIMES * MANY, ones: 1 },
    Workload { name: "BF.ADD, a known item", command: "BF.ADD", key: SMALL, items: 1, from: 0, ones: 0 },
    Workload { name: "BF.EXISTS, a hit", command: "BF.EXISTS", key: SMALL, items: 1, from: 0, ones: 1 },
    Workload { name: "BF.EXISTS, a miss", command: "BF.EXISTS", key: SMALL, items: 1, from: ABSENT, ones: 0 },
    Workload { name: "CF.INSERT, 100 new items", command: "CF.INSERT", key: FILLED, items: MANY, from: 0, ones: MANY },
    Workload { name: "CF.ADD, a new item", command: "CF.ADD", key: FILLED, items: 1, from: TIMES * MANY, ones: 1 },
    Workload { name: "CF.EXISTS, a hit", command: "CF.EXISTS", key: FILLED, items: 1, from: 0, ones: 1 },
    Workload { name: "CF.DEL, an item", command: "CF.DEL", key: FILLED, items: 1, from: TIMES * MANY, ones: 1 },
    // These commands use the lookahead.
    Workload { name: "BF.ADD, looking ahead", command: "BF.ADD", key: LARGE, items: 1, from: 0, ones: 1 },
    Workload { name: "BF.EXISTS, looking ahead", command: "BF.EXISTS", key: LARGE, items: 1, from: 0, ones: 1 },
];

/// The key of a filter in the processor's cache.
const SMALL: &str = "small";
/// The key of a filter that is large enough for the lookahead.
const LARGE: &str = "large";
/// The key of a cuckoo filter.
const FILLED: &str = "filled";

const ABSENT: usize = 1_000_000;

struct Workload {
    name: &'static str,
    command: &'static str,
    key: &'static str,
    /// The number of items of each command.
    items: usize,
    /// The number of the first item of the first command. Each further command continues with the next item.
    from: usize,
    /// The expected number of ones in the reply to a command. A few false positives may change it.
    ones: usize,
}

impl Workload {
    fn commands(&self) -> Pipeline {
        let mut commands = Pipeline::new();
        for first in (self.from..).step_by(self.items).take(TIMES) {
            let items = (first..first + self.items).map(|number| format!("https://example.com/{number:07}"));
            let mut command = redis::cmd(self.command);
            command.arg(self.key);
            if self.command == "CF.INSERT" {
                command.arg("ITEMS");
            }
            commands.add_command(items.fold(command, with_argument));
        }
        commands
    }

    fn send(&self, connection: &mut Connection) {
        let replies: Vec<Value> = self.commands().query(connection).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let ones: usize = replies.iter().map(ones).sum();
        let wrong = ones.abs_diff(TIMES * self.ones);
        assert!(wrong <= TIMES * self.items / 20, "{}: {ones} replies are 1", self.name);
    }
}

fn with_argument(mut command: Cmd, argument: String) -> Cmd {
    command.arg(argument);
    command
}

fn ones(reply: &Value) -> usize {
    match reply {
        Value::Array(elements) => elements.iter().map(ones).sum(),
        reply => usize::from(*reply == Value::Int(1)),
    }
}

/// Measures the module's cost per command in each workload.
pub(crate) fn costs(profiles: &Path) -> impl Iterator<Item = (&'static str, Cost)> {
    let folder = TempDir::new().expect("a temporary folder");
    let prefix = callgrind::prefix("--dump-before=pingCommand", &folder.path().join("profile"));
    measure(prefix, move |name, module| {
        let profile = callgrind::profile_of(name, profiles);
        fs::copy(newest_profile(folder.path()), &profile).expect("a profile");
        Counts::parse(&fs::read_to_string(profile).expect("a profile"), module)
    })
}

/// The same in qemu.
pub(crate) fn costs_in_qemu(profiles: &Path) -> impl Iterator<Item = (&'static str, Cost)> {
    let (counts, mut before) = (profiles.join("server"), Counts::default());
    let prefix = qemu::prefix(&module(), &counts);
    measure(prefix, move |_name, _module| {
        let all = qemu::counts(&counts);
        all - std::mem::replace(&mut before, all)
    })
}

fn module() -> PathBuf {
    fs::canonicalize(testkit::oxbloom()).expect("the path of the module")
}

/// Runs each workload between two PINGs, on a server under a program that counts. `since_last` returns the counts of a
/// workload: those since the last PING.
fn measure(
    prefix: Vec<String>,
    mut since_last: impl FnMut(&str, &Path) -> Counts,
) -> impl Iterator<Item = (&'static str, Cost)> {
    let module = module();
    let server = Setup::oxbloom().module_arguments("lookahead on").under(prefix).start();
    let mut connection = server.connect();
    testkit::ask::<String>(&mut connection, &format!("BF.RESERVE {SMALL} 0.01 20000 SEED 42"));
    testkit::ask::<String>(&mut connection, &format!("BF.RESERVE {LARGE} 0.01 2000000 SEED 42"));
    testkit::ask::<String>(&mut connection, &format!("CF.RESERVE {FILLED} 20000 SEED 42"));
    WORKLOADS.iter().map(move |workload| {
        let _running = &server;
        let mut counts = |connection: &mut Connection| {
            testkit::ask::<String>(connection, "PING");
            since_last(workload.name, &module)
        };
        counts(&mut connection);
        workload.send(&mut connection);
        (workload.name, Cost::of_each(counts(&mut connection), TIMES))
    })
}

/// Returns the path of callgrind's newest profile.
fn newest_profile(folder: &Path) -> PathBuf {
    let profiles = (1..).map(|number| folder.join(format!("profile.{number}")));
    let newest = profiles.take_while(|profile| profile.exists()).last();
    newest.unwrap_or_else(|| panic!("{} has no symbol for PING", testkit::server_binary()))
}
