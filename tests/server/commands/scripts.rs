//! Commands in transactions, scripts and functions get the same replies.

use crate::expected::{FULL, ok, protocols};
use testkit::Setup;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};

#[test]
fn commands_get_the_same_replies_in_a_transaction() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        client.run("FLUSHALL");
        let lines = ["BF.RESERVE key 0.01 1 NONSCALING", "BF.ADD key a", "BF.MADD key a b", "BF.EXISTS key b"];
        client.run("MULTI");
        for words in lines {
            assert_eq!(client.run(words), Reply::simple("QUEUED"));
        }
        let many = Reply::Array(vec![no.clone(), Reply::error(FULL)]);
        assert_eq!(client.run("EXEC"), Reply::Array(vec![ok(), yes, many, no]));
    }
}

#[test]
fn scripts_get_the_replies_and_the_errors() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let mut eval = |script: &str| client.run_words(&["EVAL", script, "1", "key"]);
    assert_eq!(eval("return redis.call('BF.ADD', KEYS[1], 'a')"), Reply::Integer(1));
    // The oracle compares the replies of all commands.
    assert_eq!(eval("return redis.call('BF.ADD', KEYS[1], 'a') + 10"), Reply::Integer(10));
    let caught = "return redis.pcall('BF.RESERVE', KEYS[1], 0.1, 5)['err']";
    assert!(eval(caught).text().contains("item exists"));
    let uncaught = eval("return redis.call('BF.RESERVE', KEYS[1], 0.1, 5)");
    assert!(matches!(&uncaught, Reply::Error(text) if text.contains("item exists")), "{uncaught:?}");
    assert!(eval("return redis.pcall('BF.ADD', KEYS[1])").is_error());
    let full = "redis.call('DEL', KEYS[1]); redis.call('BF.RESERVE', KEYS[1], 0.1, 1, 'NONSCALING')
                return redis.call('BF.MADD', KEYS[1], 'a', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k')";
    // Valkey 9 ends a script that returns an array with an error in it, and replies with that error.
    match eval(full) {
        Reply::Error(text) => assert!(server_version() >= (9, 0) && text.contains(FULL), "{text}"),
        reply => assert_eq!(reply.elements().last(), Some(&Reply::error(FULL)), "{reply:?}"),
    }
    if server_version() >= (7, 0) {
        let boolean = "redis.setresp(3); return type(redis.call('BF.EXISTS', KEYS[1], 'a'))";
        assert_eq!(eval(boolean), Reply::bulk("boolean"));
    }
}
