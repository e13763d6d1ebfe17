//! What the module takes for a command, in a real server.
//!
//! The server runs under callgrind, which writes a profile of what happened since the last one whenever a PING begins.

use std::fs;
use std::path::{Path, PathBuf};

use redis::{Cmd, Connection, Pipeline, Value};
use tempfile::TempDir;

use super::Cost;
use super::callgrind::{self, Counts};
use testkit::{Server, Setup};

/// How often each command is sent.
const TIMES: usize = 100;

/// Items of a command that takes many.
const MANY: usize = 100;

/// Sent one after the other, so that each finds what those before it left.
const WORKLOADS: &[Workload] = &[
    Workload { name: "BF.MADD, 100 new items", command: "BF.MADD", key: SMALL, items: MANY, from: 0, ones: MANY },
    Workload { name: "BF.MADD, 100 known items", command: "BF.MADD", key: SMALL, items: MANY, from: 0, ones: 0 },
    Workload { name: "BF.MEXISTS, 100 hits", command: "BF.MEXISTS", key: SMALL, items: MANY, from: 0, ones: MANY },
    Workload { name: "BF.MEXISTS, 100 misses", command: "BF.MEXISTS", key: SMALL, items: MANY, from: ABSENT, ones: 0 },
    Workload { name: "BF.ADD, a new item", command: "BF.ADD", key: SMALL, items: 1, from: TIMES * MANY, ones: 1 },
    Workload { name: "BF.ADD, a known item", command: "BF.ADD", key: SMALL, items: 1, from: 0, ones: 0 },
    Workload { name: "BF.EXISTS, a hit", command: "BF.EXISTS", key: SMALL, items: 1, from: 0, ones: 1 },
    Workload { name: "BF.EXISTS, a miss", command: "BF.EXISTS", key: SMALL, items: 1, from: ABSENT, ones: 0 },
    // With what looks ahead for the command.
    Workload { name: "BF.ADD, looking ahead", command: "BF.ADD", key: LARGE, items: 1, from: 0, ones: 1 },
    Workload { name: "BF.EXISTS, looking ahead", command: "BF.EXISTS", key: LARGE, items: 1, from: 0, ones: 1 },
];

/// A filter in the cache, and one that the module looks ahead for.
const SMALL: &str = "small";
const LARGE: &str = "large";

const ABSENT: usize = 1_000_000;

struct Workload {
    name: &'static str,
    command: &'static str,
    key: &'static str,
    /// Items of each command.
    items: usize,
    /// The number of the first item; each further command goes on where the one before it ended.
    from: usize,
    /// How many items of each command are answered with 1, but for a few false positives.
    ones: usize,
}

impl Workload {
    fn commands(&self) -> Pipeline {
        let mut commands = Pipeline::new();
        for first in (self.from..).step_by(self.items).take(TIMES) {
            let items = (first..first + self.items).map(|number| format!("https://example.com/{number:07}"));
            commands.add_command(items.fold(redis::cmd(self.command).arg(self.key).to_owned(), with_argument));
        }
        commands
    }

    fn send(&self, connection: &mut Connection) {
        let replies: Vec<Value> = self.commands().query(connection).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let ones: usize = replies.iter().map(ones).sum();
        let wrong = ones.abs_diff(TIMES * self.ones);
        assert!(wrong <= TIMES * self.items / 20, "{}: {ones} items are answered with 1", self.name);
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

/// What a command costs the module in each workload.
pub(crate) fn costs(profiles: &Path) -> impl Iterator<Item = (&'static str, Cost)> {
    let module = fs::canonicalize(testkit::oxbloom()).expect("the path of the module");
    let server = ProfiledServer::start();
    let mut connection = server.server.connect();
    testkit::ask::<String>(&mut connection, &format!("BF.RESERVE {SMALL} 0.01 20000 SEED 42"));
    testkit::ask::<String>(&mut connection, &format!("BF.RESERVE {LARGE} 0.01 1000000 SEED 42"));
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
        ProfiledServer { server: Setup::oxbloom().under(prefix).start(), folder }
    }

    /// The profile of what happened since the last.
    fn profile(&self, connection: &mut Connection) -> PathBuf {
        testkit::ask::<String>(connection, "PING");
        let profiles = (1..).map(|number| self.folder.path().join(format!("profile.{number}")));
        let newest = profiles.take_while(|profile| profile.exists()).last();
        newest.unwrap_or_else(|| panic!("{} does not tell where PING begins", testkit::server_binary()))
    }
}
