//! Looking ahead: the module sees all commands before they run, but only while enough of them are its own.

use std::time::{Duration, Instant};

use redis::Connection;

use crate::configuration::defaults::has_config;
use testkit::info::info_number;
use testkit::server::wait_until;
use testkit::{Server, Setup, ask};

fn start(arguments: &str) -> Server {
    Setup::oxbloom().module_arguments(arguments).start()
}

fn figure(client: &mut Connection, name: &str) -> u64 {
    info_number(client, "bf", &format!("bf_lookahead_{name}"))
}

pub(crate) fn is_active(client: &mut Connection) -> bool {
    figure(client, "active") == 1
}

/// Sends commands of ours and of the server in turn, more than those with which nothing is decided. Returns the number
/// of those that were prefetched for.
fn send(client: &mut Connection, ours: usize, others: usize) -> u64 {
    let before = figure(client, "commands");
    let mut commands = redis::pipe();
    for number in 0..3000 {
        let name = if number % (ours + others) < ours { "BF.EXISTS" } else { "HGET" };
        let key = if name == "BF.EXISTS" { "filter" } else { "hash" };
        commands.cmd(name).arg(key).arg(number).ignore();
    }
    let () = commands.query(client).unwrap();
    figure(client, "commands") - before
}

#[test]
fn it_looks_ahead_for_removals() {
    let server = start("lookahead-size 1");
    let mut client = server.connect();
    let _: bool = ask(&mut client, "CF.ADD cuckoo item");
    wait_until("it begins", || {
        let mut commands = redis::pipe();
        for number in 0..3000 {
            commands.cmd("CF.DEL").arg("cuckoo").arg(number).ignore();
        }
        let () = commands.query(&mut client).unwrap();
        is_active(&mut client) && figure(&mut client, "commands") > 0
    });
}

#[test]
fn it_looks_ahead_only_while_many_commands_are_its_own() {
    let server = start("lookahead-size 1");
    let mut client = server.connect();
    let _: bool = ask(&mut client, "BF.ADD filter item");
    assert!(!is_active(&mut client));
    // All commands are ours, or every third is.
    for others in [0, 2] {
        wait_until("it begins", || {
            send(&mut client, 1, others);
            is_active(&mut client)
        });
        // The first command is remembered.
        send(&mut client, 1, others);
        assert_eq!(send(&mut client, 1, others), 3000 / (1 + others as u64));
        assert!(figure(&mut client, "share") >= 25);
        wait_until("it stops, since most commands are others", || {
            send(&mut client, 1, 29);
            !is_active(&mut client)
        });
        assert_eq!(send(&mut client, 1, 29), 0);
        assert!(figure(&mut client, "share") < 13);
    }
}

#[test]
fn it_never_looks_ahead_if_it_is_off_or_no_filter_is_large() {
    let servers = ["lookahead off lookahead-size 1", "lookahead on lookahead-size 0", "lookahead auto", "lookahead on"];
    let servers = servers.map(start);
    let mut clients = servers.each_ref().map(Server::connect);
    for client in &mut clients {
        let _: bool = ask(client, "BF.ADD filter item");
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2500) {
        assert_eq!(clients.each_mut().map(|client| send(client, 1, 0)), [0; 4]);
    }
    assert_eq!(clients.each_mut().map(is_active), [false; 4]);
}

#[test]
fn a_filter_that_is_gone_is_not_prefetched() {
    let server = start("lookahead on lookahead-size 1");
    let mut client = server.connect();
    for command in ["DEL filter", "UNLINK filter", "RENAME filter new", "FLUSHALL", "FLUSHALL ASYNC", "SET filter x"] {
        let _: i64 = ask(&mut client, "DEL filter new");
        let _: bool = ask(&mut client, "BF.ADD filter item");
        assert_eq!(send(&mut client, 1, 1), 1500);
        let _: redis::Value = ask(&mut client, command);
        let _: i64 = ask(&mut client, "DEL filter");
        // A renamed filter is still remembered under its old name. Others may be freed in the background.
        let expected = if command.starts_with("RENAME") { 1500 } else { 0 };
        wait_until(command, || send(&mut client, 1, 1) == expected);
    }
}

#[test]
fn what_was_remembered_is_forgotten_when_it_stops() {
    if !has_config() {
        return;
    }
    let server = start("lookahead on lookahead-size 1");
    let mut client = server.connect();
    let _: bool = ask(&mut client, "BF.ADD filter item");
    let _: bool = ask(&mut client, "BF.ADD other item");
    assert_eq!(send(&mut client, 1, 1), 1500);
    let _: String = ask(&mut client, "CONFIG SET bf.lookahead off");
    wait_until("it stops", || !is_active(&mut client));
    // The filter is freed while nobody would forget it.
    let _: i64 = ask(&mut client, "DEL filter");
    let _: String = ask(&mut client, "CONFIG SET bf.lookahead on");
    assert!(!is_active(&mut client));
    let _: bool = ask(&mut client, "BF.EXISTS other item");
    assert!(is_active(&mut client));
    assert_eq!(send(&mut client, 1, 1), 0);
}

#[test]
fn commands_of_scripts_and_transactions_are_right_while_it_looks_ahead() {
    let server = start("lookahead on lookahead-size 1");
    let mut client = server.connect();
    let _: bool = ask(&mut client, "BF.ADD filter item");
    let script = "return {redis.call('BF.EXISTS', KEYS[1], 'item'), redis.call('BF.ADD', KEYS[1], 'new')}";
    let replies: (bool, bool) =
        redis::cmd("EVAL").arg(script).arg(1).arg("filter").query(&mut client).expect("the replies of the script");
    assert_eq!(replies, (true, true));
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("BF.EXISTS").arg("filter").arg("new").cmd("DEL").arg("filter").ignore();
    transaction.cmd("BF.EXISTS").arg("filter").arg("new").cmd("BF.ADD").arg("filter").arg("item");
    let replies: (bool, bool, bool) = transaction.query(&mut client).expect("the replies of the transaction");
    assert_eq!(replies, (true, false, true));
    assert!(figure(&mut client, "commands") >= 4);
}
