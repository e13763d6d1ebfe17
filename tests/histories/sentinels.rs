//! Three Sentinels, which choose the master. They know it by the replicas' last reports, so they may choose one that
//! lacks what a majority had acknowledged.

use redis::Value;

use testkit::server::{server_version, wait_until};
use testkit::{Server, Setup, ask, run};

const QUORUM: usize = 2;

pub(crate) struct Sentinels(Vec<Server>);

impl Sentinels {
    /// Starts Sentinels, and waits until they know each other and the replicas of the master.
    pub(crate) fn start(master: u16) -> Sentinels {
        let sentinels: Vec<Server> = (0..3).map(|_| Setup::without_module().option("--sentinel").start()).collect();
        for sentinel in &sentinels {
            let mut client = sentinel.connect();
            let mut tell = |words: &str| {
                run(&mut client, words).unwrap_or_else(|error| panic!("{words}: {error}"));
            };
            tell(&format!("SENTINEL MONITOR filters 127.0.0.1 {master} {QUORUM}"));
            tell("SENTINEL SET filters down-after-milliseconds 700");
            tell("SENTINEL SET filters failover-timeout 3000");
            if server_version() >= (7, 0) {
                // The second one determines how soon a former master learns who its successor is.
                tell("SENTINEL DEBUG info-period 500");
                tell("SENTINEL DEBUG publish-period 300");
            }
        }
        for sentinel in &sentinels {
            let mut client = sentinel.connect();
            wait_until("a Sentinel knows all", || {
                ["REPLICAS", "SENTINELS"]
                    .iter()
                    .all(|others| ask::<Vec<Value>>(&mut client, &format!("SENTINEL {others} filters")).len() == 2)
            });
        }
        Sentinels(sentinels)
    }

    /// Returns the port of the master that each Sentinel knows.
    pub(crate) fn masters(&self) -> Vec<u16> {
        let address = |sentinel: &Server| {
            ask::<Vec<String>>(&mut sentinel.connect(), "SENTINEL GET-MASTER-ADDR-BY-NAME filters")[1].clone()
        };
        self.0.iter().map(|sentinel| address(sentinel).parse().expect("a port")).collect()
    }

    /// Makes them accept a master that does not reply for some seconds, as on a busy machine.
    pub(crate) fn rest(&self) {
        for sentinel in &self.0 {
            run(&mut sentinel.connect(), "SENTINEL SET filters down-after-milliseconds 10000").expect("a setting");
        }
    }
}
