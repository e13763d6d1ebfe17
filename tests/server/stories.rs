//! Stories: random commands on filters of all kinds, checked against a model through replication, restarts and
//! failover.

use models::random::Random;
use testkit::info::{assert_figures_add_up, digest};
use testkit::keyspace_workload::KeyspaceWorkload;
use testkit::persistence::rewrite_aof;
use testkit::replication::{Pair, assert_synchronized, follow, start_replica};
use testkit::{Setup, run};

use crate::replication::{master_setup, replica_setup};

/// Random commands, with the servers that run them.
struct Story {
    random: Random,
    workload: KeyspaceWorkload,
    preamble: &'static str,
    pair: Pair,
    /// The commands since the last restart.
    history: Vec<String>,
    /// The number of commands that removed items from counting filters.
    removals: usize,
}

impl Story {
    fn begin(random: Random, preamble: &'static str) -> Story {
        let pair = Pair::start(Story::master(preamble), replica_setup());
        Story { random, workload: KeyspaceWorkload::new(""), preamble, pair, history: Vec::new(), removals: 0 }
    }

    fn master(preamble: &str) -> Setup {
        master_setup().keeping_aof(preamble)
    }

    fn go_on(&mut self) {
        let mut client = self.pair.master.connect();
        self.history.clear();
        for _ in 0..120 {
            self.history.push(self.workload.step(&mut self.random, &mut client).expect("a server that replies"));
        }
        let has_removed = |line: &&String| line.starts_with("BF.MDEL") && line.contains("int(1)");
        self.removals += self.history.iter().filter(has_removed).count();
        self.check("the commands");
    }

    /// Panics unless both servers have all items, and the same data.
    fn check(&self, last: &str) {
        let (mut master, mut replica) = self.pair.clients();
        assert_synchronized(&mut master, &mut replica, &format!("after {last}, {:#?}", self.history));
        let checked = self.workload.check([&mut master, &mut replica]);
        checked.unwrap_or_else(|fault| panic!("after {last}: {fault} after {:#?}", self.history));
        [&mut master, &mut replica].into_iter().for_each(assert_figures_add_up);
    }

    /// Restarts or reloads one of the servers. The master's data must be the same as before.
    fn restart(self, how: usize) -> Story {
        let before = digest(&mut self.pair.master.connect());
        let Story { preamble, pair: Pair { mut master, mut replica }, .. } = self;
        let what = match how % 5 {
            0 => {
                run(&mut replica.connect(), "SAVE").unwrap();
                replica = start_replica(&master, replica_setup().on(replica.kill()));
                "the replica restarted from its snapshot"
            }
            step @ (1 | 2) => {
                if step == 2 {
                    rewrite_aof(&mut master.connect());
                }
                master = Story::master(preamble).on(master.kill()).start();
                follow(&mut replica.connect(), master.port);
                "the master restarted from its append-only file"
            }
            3 => {
                drop(replica);
                replica = start_replica(&master, replica_setup());
                "another replica joined"
            }
            _ => {
                run(&mut master.connect(), "DEBUG RELOAD").unwrap();
                "the master reloaded a snapshot"
            }
        };
        assert_eq!(digest(&mut master.connect()), before, "{what} after {:#?}", self.history);
        let story = Story { pair: Pair { master, replica }, ..self };
        story.check(what);
        story
    }

    /// Makes the replica the master, and the master its replica.
    fn fail_over(self) -> Story {
        let Pair { master, replica } = self.pair;
        run(&mut replica.connect(), "REPLICAOF NO ONE").unwrap();
        follow(&mut master.connect(), replica.port);
        Story { pair: Pair { master: replica, replica: master }, ..self }
    }
}

#[test]
fn after_any_commands_restarts_and_a_failover_all_items_are_present_and_both_servers_are_equal() {
    let mut removals = 0;
    for (random, preamble) in [(Random(1), "no"), (Random(2), "yes"), (Random::unpredictable(), "no")] {
        let mut story = Story::begin(random, preamble);
        for round in 0..10 {
            story.go_on();
            story = story.restart(round);
        }
        story = story.fail_over();
        story.go_on();
        removals += story.removals;
    }
    // About sixty are expected.
    assert!(removals > 0);
}
