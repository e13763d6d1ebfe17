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
pub(crate) fn start_node_of(setup: fn() -> Setup) -> Server {
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
fn a_cluster_of_one_node_serves_every_command() {
    let server = start_node();
    let mut client = Wire::resp2(&server);
    serve_slots(&mut client, 0..16384);
    wait_for_cluster(&mut client);
    assert_eq!(client.run("BF.RESERVE key 0.001 1000"), Reply::simple("OK"));
    assert_eq!(client.run("BF.ADD key a"), Reply::Integer(1));
    assert_eq!(client.run("BF.MADD key a b"), Reply::integers(&[0, 1]));
    assert_eq!(client.run("BF.INSERT key ITEMS b c"), Reply::integers(&[0, 1]));
    assert_eq!(client.run("BF.EXISTS key a"), Reply::Integer(1));
    assert_eq!(client.run("BF.MEXISTS key a b c"), Reply::integers(&[1, 1, 1]));
    assert_eq!(client.run("BF.CARD key"), Reply::Integer(3));
    assert_eq!(client.run("BF.INFO key ITEMS"), Reply::integers(&[3]));
    assert_eq!(client.run("BF.INSERT counts COUNTING NX ITEMS a a"), Reply::integers(&[1, 0]));
    assert_eq!(client.run("BF.MCOUNT counts a b"), Reply::integers(&[1, 0]));
    assert_eq!(client.run("BF.DEL counts a"), Reply::Integer(1));
    assert_eq!(client.run("BF.MDEL counts a b"), Reply::integers(&[0, 0]));
    assert_eq!(client.run("BF.COUNT counts a"), Reply::Integer(0));
    assert_eq!(client.run("CF.INSERT cuckoo ITEMS a a"), Reply::integers(&[1, 1]));
    assert_eq!(client.run("CF.ADDNX cuckoo a"), Reply::Integer(0));
    assert_eq!(client.run("CF.DEL cuckoo a"), Reply::Integer(1));
    assert_eq!(client.run("CF.COUNT cuckoo a"), Reply::Integer(1));
    let header = client.run("BF.SCANDUMP key 0");
    let words = [&b"BF.LOADCHUNK"[..], b"copy", b"1", header.elements()[1].bytes()];
    assert_eq!(client.run_words(&words), Reply::simple("OK"));
    assert_eq!(client.run("BF.CARD copy"), Reply::Integer(3));
}

#[test]
fn commands_on_a_key_of_another_node_are_redirected() {
    let nodes = [start_node(), start_node()];
    let [mut first, mut second] = [Wire::resp2(&nodes[0]), Wire::resp2(&nodes[1])];
    serve_slots(&mut first, 0..8192);
    serve_slots(&mut second, 8192..16384);
    first.run(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port));
    wait_for_cluster(&mut first);
    wait_for_cluster(&mut second);
    // The slot of `key`, 12539, belongs to the second node.
    let moved = Reply::Error(format!("MOVED 12539 127.0.0.1:{}", nodes[1].port));
    assert_eq!(first.run("CLUSTER KEYSLOT key"), Reply::Integer(12539));
    for command in COMMANDS {
        assert_eq!(first.run(command.line), moved, "{}", command.line);
        let reply = second.run(command.line);
        assert!(!matches!(&reply, Reply::Error(text) if text.starts_with("MOVED")), "{}: {reply:?}", command.line);
    }
    assert_eq!(second.run("BF.EXISTS key item"), Reply::Integer(1));
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
    let crossing = Reply::error("CROSSSLOT Keys in request don't hash to the same slot");
    for line in ["BF.MERGE {t}d 2 {t}a b", "BF.MERGE d 2 {t}a {t}b", "BF.RESERVE c LIKE {t}a"] {
        assert_eq!(client.run(line), crossing, "{line}");
    }
}
