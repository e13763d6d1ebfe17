//! Nodes of a cluster: they serve their own slots, and redirect clients to others.

use crate::commands::table::COMMANDS;
use testkit::server::wait_until;
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup};

/// Starts a node of a cluster. The node also needs the port 10000 above its own. If that port is taken, the function
/// tries again.
pub(crate) fn start_node() -> Server {
    start_node_of(Setup::oxbloom)
}

/// Starts a node of a cluster, as [`start_node`] does, with the modules of a setup.
pub(crate) fn start_node_of(setup: impl Fn() -> Setup) -> Server {
    let mut last = String::new();
    for _ in 0..20 {
        match setup().set("cluster-enabled yes").try_start() {
            Ok(server) => return server,
            Err(log) => last = log,
        }
    }
    panic!("no cluster node started:\n{last}")
}

pub(crate) fn serve_slots(node: &mut Wire, slots: std::ops::Range<u32>) {
    let words: Vec<_> =
        ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots.map(|slot| slot.to_string())).collect();
    assert_eq!(node.run_words(&words), Reply::simple("OK"));
}

pub(crate) fn wait_for_cluster(node: &mut Wire) {
    wait_until("the cluster is up", || node.run("CLUSTER INFO").text().contains("cluster_state:ok"));
}

#[test]
fn commands_on_a_key_of_another_node_are_redirected() {
    for (prefix, arguments) in [("", ""), ("OX", "prefix OX")] {
        let setup = || Setup::oxbloom().module_arguments(arguments);
        let nodes = [start_node_of(setup), start_node_of(setup)];
        let [mut first, mut second] = nodes.each_ref().map(Wire::resp2);
        serve_slots(&mut first, 0..8192);
        serve_slots(&mut second, 8192..16384);
        first.run(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port));
        wait_for_cluster(&mut first);
        wait_for_cluster(&mut second);
        // The slot of `key`, 12539, belongs to the second node.
        let moved = Reply::Error(format!("MOVED 12539 127.0.0.1:{}", nodes[1].port));
        assert_eq!(first.run("CLUSTER KEYSLOT key"), Reply::Integer(12539));
        // A server of its own gives the replies of the second node.
        let alone = setup().start();
        let mut alone = Wire::resp2(&alone);
        for command in COMMANDS {
            let line = format!("{prefix}{}", command.line);
            assert_eq!(first.run(&line), moved, "{line}");
            let replies = [&mut second, &mut alone].map(|client| client.run(&line));
            assert!(replies[0] == replies[1] || command.has_seed_in_reply(), "{line}: {replies:?}");
        }
        assert_eq!(second.run(&format!("{prefix}BF.EXISTS key item")), Reply::Integer(1));
    }
}

#[test]
fn filters_in_one_slot_of_a_cluster_are_merged_and_others_are_not() {
    let server = start_node();
    let mut client = Wire::resp2(&server);
    serve_slots(&mut client, 0..16384);
    wait_for_cluster(&mut client);
    assert_eq!(client.run("BF.RESERVE {t}a 0.01 100"), Reply::simple("OK"));
    assert_eq!(client.run("BF.RESERVE {t}b LIKE {t}a"), Reply::simple("OK"));
    assert_eq!(client.run("BF.ADD {t}b item"), Reply::Integer(1));
    assert_eq!(client.run("BF.MERGE {t}d 2 {t}a {t}b"), Reply::simple("OK"));
    assert_eq!(client.run("BF.EXISTS {t}d item"), Reply::Integer(1));
    // Folded in the same way, large filters are merged, too.
    assert_eq!(client.run("BF.RESERVE {t}large 0.01 100000"), Reply::simple("OK"));
    assert_eq!(client.run("BF.RESERVE {t}other LIKE {t}large"), Reply::simple("OK"));
    assert_eq!(client.run("BF.ADD {t}other item"), Reply::Integer(1));
    assert_eq!(client.run("BF.FOLD {t}large CAPACITY 1000"), client.run("BF.FOLD {t}other CAPACITY 1000"));
    assert_eq!(client.run("BF.MERGE {t}large 1 {t}other"), Reply::simple("OK"));
    assert_eq!(client.run("BF.EXISTS {t}large item"), Reply::Integer(1));
    let crossing = Reply::error("CROSSSLOT Keys in request don't hash to the same slot");
    for line in ["BF.MERGE {t}d 2 {t}a b", "BF.MERGE d 2 {t}a {t}b", "BF.RESERVE c LIKE {t}a"] {
        assert_eq!(client.run(line), crossing, "{line}");
    }
}
