//! Who may run what on which key: access control lists, and the nodes of a cluster.

use crate::commands::{COMMANDS, Command};
use crate::support::model::{server_version, wait_until};
use crate::support::wire::{Reply, Wire};
use crate::support::{Server, Setup};

/// Makes `user` from `rules` alone, and connects as that user.
pub fn user(server: &Server, rules: &str) -> Wire {
    let mut admin = Wire::resp2(server);
    let reply = admin.run(&format!("ACL SETUSER user reset on nopass {rules}"));
    assert_eq!(reply, Reply::simple("OK"), "{rules}");
    let mut client = Wire::resp2(server);
    assert_eq!(client.run("AUTH user x"), Reply::simple("OK"));
    client
}

pub fn is_denied(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOPERM "))
}

/// The command's line, on another key.
fn line_on(command: &Command, key: &str) -> String {
    command.line.replace("key", key)
}

#[test]
fn a_command_is_allowed_by_its_name_alone() {
    let server = Setup::oxbloom().start();
    for allowed in COMMANDS {
        let mut client = user(&server, &format!("~* -@all +{}", allowed.name));
        for command in COMMANDS {
            let denied = is_denied(&client.run(command.line));
            assert_eq!(denied, command.name != allowed.name, "{} with +{}", command.line, allowed.name);
        }
    }
}

#[test]
fn a_command_is_denied_by_its_name_alone() {
    let server = Setup::oxbloom().start();
    for refused in COMMANDS {
        let mut client = user(&server, &format!("~* +@all -{}", refused.name));
        for command in COMMANDS {
            let denied = is_denied(&client.run(command.line));
            assert_eq!(denied, command.name == refused.name, "{} with -{}", command.line, refused.name);
        }
    }
}

#[test]
fn only_keys_of_the_pattern_are_allowed() {
    let server = Setup::oxbloom().start();
    let mut client = user(&server, "~seen:* +@all");
    for command in COMMANDS {
        assert!(!is_denied(&client.run(&line_on(command, "seen:1"))), "{}", command.name);
        for key in ["other", "seen", "xseen:1"] {
            assert!(is_denied(&client.run(&line_on(command, key))), "{} {key}", command.name);
        }
    }
    // Items are no keys.
    let many = client.run("BF.MADD seen:1 other xseen:1");
    assert_eq!(many, Reply::integers(&[1, 1]));
}

#[test]
fn reading_takes_the_right_to_read_and_writing_the_right_to_write() {
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().start();
    for (rule, may_read, may_write) in [("%R~key", true, false), ("%W~key", false, true), ("%RW~key", true, true)] {
        let mut client = user(&server, &format!("{rule} +@all"));
        // Some read other keys than the one that they write.
        for command in COMMANDS.iter().filter(|command| !command.line.contains("key 1 key")) {
            let denied = is_denied(&client.run(command.line));
            let may = if command.writes { may_write } else { may_read };
            assert_eq!(denied, !may, "{} with {rule}", command.line);
        }
    }
}

#[test]
fn scripts_may_do_no_more_than_their_user() {
    let server = Setup::oxbloom().start();
    let mut client = user(&server, "~key +eval +bf.exists");
    let mut eval = |script: &str, key: &str| client.run_words(&["EVAL", script, "1", key]);
    assert_eq!(eval("return redis.call('BF.EXISTS', KEYS[1], 'a')", "key"), Reply::Integer(0));
    assert!(eval("return redis.call('BF.ADD', KEYS[1], 'a')", "key").is_error());
    assert!(eval("return redis.call('BF.EXISTS', 'other', 'a')", "key").is_error());
}

#[test]
fn commands_are_in_the_categories_that_the_server_lets_modules_have() {
    let server = Setup::oxbloom().start();
    let mut admin = Wire::resp2(&server);
    let bloom = admin.run("ACL CAT bloom");
    if bloom.is_error() {
        assert!(server_version() < (7, 4), "{bloom:?}");
        return;
    }
    let mut members = |category: &str| -> Vec<String> {
        let members = admin.run(&format!("ACL CAT {category}"));
        members.elements().iter().map(Reply::text).filter(|name| name.starts_with("bf.")).collect()
    };
    let (all, reads, writes, fast) = (members("bloom"), members("read"), members("write"), members("fast"));
    for command in COMMANDS {
        let is_in = |category: &[String]| category.iter().any(|name| name == command.name);
        assert!(is_in(&all), "{}", command.name);
        assert_eq!((is_in(&reads), is_in(&writes)), (!command.writes, command.writes), "{}", command.name);
        assert_eq!(is_in(&fast), command.fast, "{}", command.name);
    }
    for (rules, may) in [("+@bloom", None), ("+@read", Some(false)), ("+@write", Some(true))] {
        let mut client = user(&server, &format!("~* -@all {rules}"));
        for command in COMMANDS {
            let allowed = may.is_none_or(|writes| writes == command.writes);
            assert_eq!(is_denied(&client.run(command.line)), !allowed, "{} with {rules}", command.line);
        }
    }
}

/// A server of a cluster, which also needs the port 10000 above its own.
pub fn start_node() -> Server {
    let start = || Setup::oxbloom().set("cluster-enabled yes").try_start();
    let mut last = String::new();
    for _ in 0..20 {
        match start() {
            Ok(server) => return server,
            Err(log) => last = log,
        }
    }
    panic!("no node of a cluster started:\n{last}")
}

pub fn serve_slots(node: &mut Wire, slots: std::ops::Range<u32>) {
    let words: Vec<_> =
        ["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots.map(|slot| slot.to_string())).collect();
    assert_eq!(node.run_words(&words), Reply::simple("OK"));
}

pub fn wait_for_cluster(node: &mut Wire) {
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
    let header = client.run("BF.SCANDUMP key 0");
    let words = [&b"BF.LOADCHUNK"[..], b"copy", b"1", header.elements()[1].bytes()];
    assert_eq!(client.run_words(&words), Reply::simple("OK"));
    assert_eq!(client.run("BF.CARD copy"), Reply::Integer(3));
}

#[test]
fn a_key_of_another_node_is_redirected_there() {
    let nodes = [start_node(), start_node()];
    let [mut first, mut second] = [Wire::resp2(&nodes[0]), Wire::resp2(&nodes[1])];
    serve_slots(&mut first, 0..8192);
    serve_slots(&mut second, 8192..16384);
    first.run(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[1].port));
    wait_for_cluster(&mut first);
    wait_for_cluster(&mut second);
    // Slot 12539 is the second node's, whatever the items are.
    let moved = Reply::Error(format!("MOVED 12539 127.0.0.1:{}", nodes[1].port));
    assert_eq!(first.run("CLUSTER KEYSLOT key"), Reply::Integer(12539));
    for command in COMMANDS {
        assert_eq!(first.run(command.line), moved, "{}", command.line);
        let reply = second.run(command.line);
        assert!(!matches!(&reply, Reply::Error(text) if text.starts_with("MOVED")), "{}: {reply:?}", command.line);
    }
    assert_eq!(second.run("BF.EXISTS key item"), Reply::Integer(1));
}
