//! Measures the module's cost per command, in a real server.
//!
//! The server runs under callgrind. Whenever a PING begins, callgrind writes a profile of the time since the last one.

use std::fs;
use std::path::{Path, PathBuf};

use redis::{Cmd, Connection, Pipeline, Value};
use tempfile::TempDir;

use super::Cost;
use super::callgrind::{self, Counts};
use testkit::{Server, Setup};

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
    let module = fs::canonicalize(testkit::oxbloom()).expect("the path of the module");
    let server = ProfiledServer::start();
    let mut connection = server.server.connect();
    testkit::ask::<String>(&mut connection, &format!("BF.RESERVE {SMALL} 0.01 20000 SEED 42"));
    testkit::ask::<String>(&mut connection, &format!("BF.RESERVE {LARGE} 0.01 2000000 SEED 42"));
    testkit::ask::<String>(&mut connection, &format!("CF.RESERVE {FILLED} 20000 SEED 42"));
    WORKLOADS.iter().map(move |workload| {
        server.profile(&mut connection);
        workload.send(&mut connection);
        let profile = callgrind::profile_of(workload.name, profiles);
        fs::copy(server.profile(&mut connection), &profile).expect("a profile");
        let profile = fs::read_to_string(profile).expect("a profile");
        (workload.name, Cost::of_each(Counts::parse(&profile, &module), TIMES))
    })
}

/// A server under callgrind.
struct ProfiledServer {
    server: Server,
    folder: TempDir,
}

impl ProfiledServer {
    fn start() -> ProfiledServer {
        let folder = TempDir::new().expect("a temporary folder");
        let prefix = callgrind::prefix("--dump-before=pingCommand", &folder.path().join("profile"));
        ProfiledServer { server: Setup::oxbloom().module_arguments("lookahead on").under(prefix).start(), folder }
    }

    /// Writes a profile of the time since the last one. Returns its path.
    fn profile(&self, connection: &mut Connection) -> PathBuf {
        testkit::ask::<String>(connection, "PING");
        let profiles = (1..).map(|number| self.folder.path().join(format!("profile.{number}")));
        let newest = profiles.take_while(|profile| profile.exists()).last();
        newest.unwrap_or_else(|| panic!("{} has no symbol for PING", testkit::server_binary()))
    }
}
