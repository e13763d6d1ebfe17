//! Simulates several servers with the whole module, from one seed, and judges what their clients saw.
//!
//! A run is a sequence of random steps. A step is a command of a client on a master, the delivery of some replicated
//! commands to a replica, a link that is cut or connected again, a file that is saved, a restart, a failover, or a jump
//! of a clock. As each step is chosen anew, a link can be slow, and links overtake each other. The same seed repeats the
//! same run. From time to time, all servers are healed. The [checker](models::history) then compares their digests, and
//! everything that a client has seen with everything that was acknowledged.
//!
//! ```text
//!  clients ──► master ── log ──► link ──► replica             a log has what each command replicated
//!                │                          │
//!                ▼                          ▼
//!            file + log                 file + log            a file has a snapshot or commands
//! ```
//!
//! The simulation keeps the guarantees of real servers:
//!
//! - **A link** delivers a part of the master's log, in order, without gaps or repetitions. What a command replicates is
//!   delivered as a whole (MULTI, EXEC). After a cut, a replica whose log is the start of the master's continues it from
//!   the backlog. Other replicas get a snapshot, and keep their old content until it has arrived.
//! - **A replica** executes the commands of its master whatever its own clock says. It never expires a key: the master
//!   deletes it and replicates DEL.
//! - **A restart** loses what came after the snapshot; with an append-only file, nothing or the end of the log. Only a
//!   replica with a snapshot continues the same log. All other servers start another one, and their replicas synchronise.
//! - **A failover** promotes a replica whose log is the start of the master's. That a majority chose it counts only if all
//!   replicas are such, since servers cannot compare the lengths of other logs. The old master may accept commands until
//!   it learns of it. Then its content is replaced.
//! - **A clock** is up to ten minutes ahead or behind, and jumps. The master's decides when keys and items expire.
//! - **Only clients repeat** a command, after a reply that was lost: then the command was executed once, twice or not.
//! - **Memory** is refused on a master in half of the runs. Filters stay small in these runs: a large table that lacks
//!   memory to shrink stays as it is, and differs from that of a replica until it shrinks. A replica without memory exits,
//!   as a server does, so this is not simulated.
//!
//! Clients are synchronous, so their commands do not overlap. The checker also judges histories in which they do. Servers
//! offer all functions to the module: the oldest ones cannot set an expiry that is past by the clock of a replica.

mod clients;
mod cluster;

use std::sync::atomic::{AtomicU64, Ordering};

use models::history::judge;
use models::kinds::Kind;
use models::random::Random;
use xxhash_rust::xxh3::xxh3_64;

use crate::server::Words;
use clients::{ITEMS, KINDS, keys};
use cluster::Cluster;

/// The number of kinds of filters in a run, which may be equal. With few, each filter gets many commands.
const KINDS_OF_A_RUN: usize = 4;

/// The largest jump of a clock, in milliseconds.
const JUMP: u64 = 600_000;

/// The outcome of a run.
pub struct Run {
    /// The number of items that clients had to find.
    pub required: usize,
    /// A hash of all that happened.
    pub hash: u64,
}

/// Runs a simulation of some steps. Stores the number of the present one in `step`, so that it is known after a panic.
pub fn run(seed: u64, steps: u64, step: &AtomicU64) -> Run {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let cluster = Cluster::start(&mut random);
    let kinds = std::array::from_fn(|_| random.one_of(KINDS));
    let lacks_memory = random.chance(50);
    let mut simulation = Simulation { random, cluster, kinds, lacks_memory };
    let mut ends = Vec::new();
    for number in 0..steps {
        step.store(number, Ordering::Relaxed);
        simulation.step();
        ends.push(simulation.cluster.history.len());
    }
    simulation.heal();
    let history = &simulation.cluster.history;
    let judged = |end| judge(simulation.cluster.len(), &history[..end]);
    let required = judged(history.len()).unwrap_or_else(|violation| {
        let violated = ends.iter().position(|&end| judged(end).is_err());
        step.store(violated.map_or(steps, |number| number as u64), Ordering::Relaxed);
        panic!("{violation}")
    });
    Run { required, hash: xxh3_64(format!("{history:?}").as_bytes()) }
}

struct Simulation {
    random: Random,
    cluster: Cluster,
    kinds: [Kind; KINDS_OF_A_RUN],
    /// True if masters lack memory at times. Then no command has many items.
    lacks_memory: bool,
}

impl Simulation {
    fn step(&mut self) {
        let replica = self.random.one_of(&self.cluster.replicas());
        let any = self.random.below(self.cluster.len() as u64) as usize;
        match self.random.below(1000) {
            0..650 => self.send_any(),
            650..900 => self.cluster.deliver(replica, 1 + self.random.below(8) as usize),
            900..915 => self.cluster.cut(replica),
            915..950 => self.cluster.connect(replica),
            950..965 => self.cluster.save(any, &mut self.random),
            965..971 => self.cluster.restart(any, self.random.one_of(&[0, 0, 1, 5])),
            971..975 => self.cluster.fail_over(&mut self.random),
            975..978 => self.heal(),
            978..985 => {
                let skew = self.random.below(2 * JUMP).cast_signed() - JUMP.cast_signed();
                self.cluster.set_skew(any, skew);
            }
            _ => self.cluster.now += self.random.below(30_000).cast_signed(),
        }
    }

    /// Heals all servers, and looks up all items on each.
    fn heal(&mut self) {
        self.cluster.heal();
        let all: Vec<u64> = (0..ITEMS).collect();
        for server in 0..self.cluster.len() {
            for kind in self.kinds {
                keys(kind).iter().for_each(|key| self.look_up(server, kind, key, &all));
            }
        }
    }
}

/// Splits a line into words.
fn line(text: &str) -> Words {
    text.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}
