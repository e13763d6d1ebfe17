//! Starts replicas, and waits until they have caught up.

use redis::{Connection, Value};

use crate::command::run;
use crate::info::{digest, info, info_number};
use crate::server::{Server, Setup, wait_until};

/// A master and its replica.
pub struct Pair {
    pub master: Server,
    pub replica: Server,
}

impl Pair {
    /// Starts a master and its replica.
    pub fn start(master: Setup, replica: Setup) -> Pair {
        let master = master.set("repl-diskless-sync-delay 0").start();
        Pair { replica: start_replica(&master, replica), master }
    }

    /// Returns connections to the master and to the replica.
    pub fn clients(&self) -> (Connection, Connection) {
        (self.master.connect(), self.replica.connect())
    }
}

/// Starts a replica of `master`, and waits until it has the master's data.
pub fn start_replica(master: &Server, setup: Setup) -> Server {
    let replica = replica_of(master, setup).start();
    wait_for_replica(&mut master.connect(), &mut replica.connect());
    replica
}

/// Makes a server start as a replica of `master`.
pub fn replica_of(master: &Server, setup: Setup) -> Setup {
    setup.set(format!("replicaof 127.0.0.1 {}", master.port))
}

/// Makes a running server a replica of the server at a port.
pub fn follow(replica: &mut Connection, port: u16) {
    assert_eq!(run(replica, &format!("REPLICAOF 127.0.0.1 {port}")), Ok(Value::Okay));
}

/// Waits until the replica has applied all commands of the master. Panics unless it then has the same data.
pub fn assert_synchronized(master: &mut Connection, replica: &mut Connection, case: &str) {
    wait_for_replica(master, replica);
    assert_eq!(digest(master), digest(replica), "{case}");
}

/// Waits until the replica has applied all commands of the master.
pub fn wait_for_replica(master: &mut Connection, replica: &mut Connection) {
    wait_until("the replica has caught up", || {
        info(replica, "replication", "master_link_status") == "up"
            && info_number(master, "replication", "master_repl_offset")
                == info_number(replica, "replication", "slave_repl_offset")
    });
}
