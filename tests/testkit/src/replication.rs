//! Makes a server a replica, and waits until it has caught up.

use redis::{Connection, Value};

use crate::command::run;
use crate::info::{info, info_number};
use crate::server::{Server, Setup, wait_until};

/// Makes a server start as a replica of `master`.
pub fn replica_of(master: &Server, setup: Setup) -> Setup {
    setup.set(format!("replicaof 127.0.0.1 {}", master.port))
}

/// Makes a running server a replica of the server at a port.
pub fn follow(replica: &mut Connection, port: u16) {
    assert_eq!(run(replica, &format!("REPLICAOF 127.0.0.1 {port}")), Ok(Value::Okay));
}

/// Waits until the replica has applied all commands of the master.
pub fn wait_for_replica(master: &mut Connection, replica: &mut Connection) {
    wait_until("the replica has caught up", || {
        info(replica, "replication", "master_link_status") == "up"
            && info_number(master, "replication", "master_repl_offset")
                == info_number(replica, "replication", "slave_repl_offset")
    });
}
