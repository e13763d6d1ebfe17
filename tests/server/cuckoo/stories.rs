//! Random commands, checked against a model through restarts, replication and failover.

use redis::Connection;

use crate::replication::{master_setup, replica_setup};
use models::random::Random;
use testkit::cuckoo_workload::CuckooWorkload;
use testkit::info::{assert_figures_add_up, digest};
use testkit::persistence::rewrite_aof;
use testkit::replication::{Pair, follow, start_replica, wait_for_replica};
use testkit::server::with_aof;
use testkit::{Server, run};

/// Random commands, with the servers that ran them.
struct Story {
    random: Random,
    workload: CuckooWorkload,
    history: Vec<String>,
}

impl Story {
    fn new(seed: u64) -> Story {
        Story { random: Random(seed), workload: CuckooWorkload::new(""), history: Vec::new() }
    }

    fn go_on(&mut self, client: &mut Connection, steps: usize) {
        self.history.clear();
        for _ in 0..steps {
            self.history.push(self.workload.step(&mut self.random, client));
        }
    }

    /// Panics unless both servers have all items, and the same data.
    fn check(&self, case: &str, clients: [&mut Connection; 2]) {
        let [one, other] = clients;
        assert_eq!(digest(one), digest(other), "{case}, after {:#?}", self.history);
        let checked = self.workload.check([&mut *one, &mut *other]);
        checked.unwrap_or_else(|fault| panic!("{case}: {fault} after {:#?}", self.history));
        [one, other].into_iter().for_each(assert_figures_add_up);
    }

    fn check_one(&self, case: &str, server: &Server) {
        self.check(case, [&mut server.connect(), &mut server.connect()]);
    }
}

#[test]
fn after_any_commands_and_any_restart_all_items_are_present() {
    for seed in 0..4 {
        let mut story = Story::new(seed);
        let setup = || with_aof(if seed % 2 == 0 { "no" } else { "yes" }).module_arguments("cf-initial-size 20");
        let others = || with_aof("no").module_arguments("cf-layout classic cf-bucket-size 7 cf-expansion-factor 2");
        let mut server = setup().start();
        for round in 0..6 {
            let mut client = server.connect();
            story.go_on(&mut client, 150);
            story.check_one("the commands", &server);
            let before = digest(&mut client);
            match round % 3 {
                0 => drop(run(&mut client, "DEBUG RELOAD").unwrap()),
                1 => rewrite_aof(&mut client),
                _ => {}
            }
            story.check_one("a snapshot", &server);
            server = if round == 5 { others() } else { setup() }.on(server.shut_down().0).start();
            assert_eq!(digest(&mut server.connect()), before, "{seed}, {round}, after {:#?}", story.history);
            story.check_one("a restart", &server);
        }
    }
}

#[test]
fn after_any_commands_and_a_failover_all_items_are_present() {
    for seed in 10..13 {
        let mut story = Story::new(seed);
        let Pair { master, replica } = Pair::start(master_setup(), replica_setup());
        let (mut one, mut other) = (master.connect(), replica.connect());
        for round in 0..4 {
            story.go_on(&mut one, 200);
            wait_for_replica(&mut one, &mut other);
            story.check("a replica", [&mut one, &mut other]);
            // The replica becomes the master, and the master its replica.
            let port = if round % 2 == 0 { replica.port } else { master.port };
            run(&mut other, "REPLICAOF NO ONE").unwrap();
            follow(&mut one, port);
            std::mem::swap(&mut one, &mut other);
            wait_for_replica(&mut one, &mut other);
        }
        let late = start_replica(&master, replica_setup());
        story.check("a late replica", [&mut one, &mut late.connect()]);
    }
}
