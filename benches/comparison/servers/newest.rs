//! Compares oxbloom with RedisBloom on the newest servers of both projects. All other tables are of one server.

use std::fmt::Write as _;
use std::path::Path;

use testkit::info::info;

use crate::peers::{Instance, Peer};
use crate::summary::{MANY, SINGLE, times};
use crate::workloads::{Delivery, LARGE, Plan, Results, SMALL};

/// The servers, as make installs them.
const SERVERS: [&str; 2] = ["redis-8.2", "valkey-9.1"];

const FULL: Plan = Plan {
    subjects: &[SMALL, LARGE],
    deliveries: &[Delivery::Batch(100), Delivery::Batch(1000), Delivery::Pipelined, Delivery::Unpipelined],
    lengths: &[28],
    rounds: 7,
};

const QUICK: Plan = Plan { deliveries: &[Delivery::Batch(1000), Delivery::Pipelined], rounds: 3, ..FULL };

/// The results, with an element for each server: its name, and what was measured.
pub(crate) struct Newest(Vec<(String, Results)>);

pub(crate) fn measure(quick: bool, target: &Path) -> Newest {
    let plan = if quick { QUICK } else { FULL };
    let on_server = |server: &str| {
        let binary = target.join("servers").join(server);
        let start = |peer: Peer| Instance::start(peer, peer.setup().server(&binary));
        let mut instances = [Peer::Oxbloom, Peer::RedisBloom].map(start);
        let results = plan.run(&mut instances);
        (name(&mut instances[0]), results)
    };
    Newest(SERVERS.map(on_server).into())
}

/// Returns the name and the version of a server, such as `Valkey 9.1.2`.
fn name(instance: &mut Instance) -> String {
    let mut version = |field| info(&mut instance.connection, "server", field);
    match version("valkey_version") {
        none if none.is_empty() => format!("Redis {}", version("redis_version")),
        valkey => format!("Valkey {valkey}"),
    }
}

impl Newest {
    pub(crate) fn markdown(&self) -> String {
        let mut page = "On the newest servers, with items of 28 bytes:\n\n\
             | server | filter | a single item in a command | 100 or 1,000 items in a command |\n|---|---|--:|--:|\n"
            .to_owned();
        for (server, results) in &self.0 {
            for subject in FULL.subjects {
                let [single, many] = [SINGLE, MANY].map(|chosen| times(results, subject.name, chosen));
                let _ = writeln!(page, "| {server} | {} | {single} | {many} |", subject.name);
            }
        }
        page
    }
}
