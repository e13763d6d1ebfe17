//! The time that commands take for the present: in transactions and scripts, and when the clock jumps.

use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::forgetting::items::{RARE, SEED, add, all_found};
use testkit::clock::{SECOND, set_offset, stopped, time_at, turn, with_clock, with_false_clock};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, run};

#[test]
fn time_stands_still_in_transactions_and_scripts() {
    let server = stopped(with_clock());
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000001 100 WINDOW 60");
    let script = "redis.call('BF.ADD', KEYS[1], 'a') \
                  redis.call('BF.CLOCK', KEYS[1], ARGV[1]) \
                  return {redis.call('BF.EXISTS', KEYS[1], 'a'), redis.call('BF.CARD', KEYS[1])}";
    for round in 1..4 {
        let later = time_at(round * 100_000).to_string();
        assert_eq!(client.run_words(&["EVAL", script, "1", "key", &later]), Reply::integers(&[1, 1]));
        assert_eq!(client.run("BF.EXISTS key a"), Reply::Integer(0));
    }
    for round in 4..7 {
        for words in [
            "MULTI",
            "BF.ADD key a",
            &format!("BF.CLOCK key {}", time_at(round * 100_000)),
            "BF.EXISTS key a",
            "BF.CARD key",
        ] {
            client.run(words);
        }
        let replies = client.run("EXEC");
        assert_eq!(replies.elements()[2..], [Reply::Integer(1), Reply::Integer(1)]);
        assert_eq!(client.run("BF.EXISTS key a"), Reply::Integer(0));
    }
}

/// Nothing is written when an item is forgotten, so the server invalidates nothing.
#[test]
fn clients_that_cache_replies_are_told_which_of_them_time_changes() {
    if server_version() < (7, 0) {
        return; // has no tips
    }
    let server = stopped(with_clock());
    let (mut writer, mut cache) = (Wire::resp3(&server), Wire::resp3(&server));
    assert_eq!(cache.run("CLIENT TRACKING ON"), Reply::simple("OK"));
    let may_cache = |writer: &mut Wire, question: &str| {
        let name = question.split(' ').next().expect("a command");
        let info = writer.run(&format!("COMMAND INFO {name}"));
        let tips = info.elements()[0].elements()[7].elements();
        !tips.iter().any(|tip| tip.text() == "dont_cache")
    };
    writer.run("BF.RESERVE key 0.000001 100 WINDOW 60");
    writer.run("BF.ADD key a");
    writer.run("CF.ADD cuckoo a");
    let questions =
        ["BF.EXISTS key a", "BF.MEXISTS key a", "BF.EXISTSPACKED key LINES a", "BF.CARD key", "BF.INFO key ITEMS"];
    let cached = questions.map(|question| cache.run(question));
    writer.run(&format!("BF.CLOCK key {}", time_at(100_000)));
    for (question, cached) in questions.into_iter().zip(cached) {
        assert_ne!(writer.run(question), cached, "{question}");
        assert!(!may_cache(&mut writer, question), "{question}");
    }
    assert_eq!(cache.run("PING"), Reply::simple("PONG"), "no invalidation before it");
    // In other filters, only writes change them.
    assert_eq!(cache.run("CF.EXISTS cuckoo a"), Reply::Boolean(true));
    assert!(may_cache(&mut writer, "CF.EXISTS cuckoo a"));
    writer.run("CF.DEL cuckoo a");
    assert!(matches!(cache.receive(), Reply::Push(_)), "an invalidation");
}

/// In one round of the server's event loop, a script has the time at which it begins, not that of an earlier script.
#[test]
fn pipelined_scripts_do_not_share_their_time() {
    let server = stopped(with_clock());
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000001 100 WINDOW 60");
    client.run("BF.ADD key a");
    let script = |client: &mut Wire| client.send(&["EVAL", "return redis.call('BF.EXISTS', KEYS[1], 'a')", "1", "key"]);
    script(&mut client);
    client.send(&["BF.CLOCK", "key", &time_at(100_000).to_string()]);
    client.send(&["BF.EXISTS", "key", "a"]);
    script(&mut client);
    let replies = [(); 4].map(|()| client.receive());
    assert_eq!(replies, [Reply::Integer(1), Reply::simple("OK"), Reply::Integer(0), Reply::Integer(0)]);
}

#[test]
fn the_clock_of_the_server_runs_at_its_pace() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for (key, seconds) in [("day", 86_400), ("second", 1)] {
        client.run(&format!("BF.RESERVE {key} 0.000001 100 WINDOW {seconds}"));
        assert_eq!(client.run(&format!("BF.ADD {key} a")), Reply::Integer(1));
    }
    wait_until("a second has passed", || client.run("BF.EXISTS second a") == Reply::Integer(0));
    assert_eq!(client.run("BF.EXISTS day a"), Reply::Integer(1));
}

/// Older servers do not stop their clock in a script, so the module stores the time. If the clock is set back during the
/// script, the timer that clears the stored time comes hours later, and the server's cron has to clear it.
#[test]
fn a_script_has_the_present_time_although_the_clock_was_set_back_in_another() {
    if server_version() >= (7, 2) {
        return;
    }
    let folder = TempDir::new().expect("a temporary folder");
    let clock = folder.path().join("clock");
    set_offset(&clock, 0);
    let server = with_false_clock(Setup::oxbloom(), &clock).start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000001 100 WINDOW 3600");
    client.run("BF.ADD key a");
    set_offset(&clock, 7200 * SECOND);
    let waits = "local found = redis.call('BF.EXISTS', KEYS[1], 'a') local now = redis.call('TIME')[1] \
                 redis.log(redis.LOG_WARNING, 'waits') while redis.call('TIME')[1] >= now do end return found";
    client.send(&["EVAL", waits, "1", "key"]);
    wait_until("the script waits", || server.log().contains("waits"));
    set_offset(&clock, 0);
    assert_eq!(client.receive(), Reply::Integer(0));
    let script = ["EVAL", "return redis.call('BF.EXISTS', KEYS[1], 'a')", "1", "key"];
    wait_until("the time is forgotten", || client.run_words(&script) == Reply::Integer(1));
}

/// Later servers stop their clock in a transaction, and the module must not keep the time of one in which the clock was
/// set back.
#[test]
fn a_script_has_the_present_time_after_the_clock_was_set_back_in_a_transaction() {
    if server_version() < (7, 2) {
        return;
    }
    let folder = TempDir::new().expect("a temporary folder");
    let clock = folder.path().join("clock");
    set_offset(&clock, 0);
    let server = with_false_clock(with_debug(Setup::oxbloom()), &clock).start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE key 0.000001 100 WINDOW 10");
    for line in ["MULTI", "BF.ADD key before", "DEBUG SLEEP 2"] {
        client.run(line);
    }
    client.send(&["EXEC"]);
    sleep(Duration::from_millis(500));
    set_offset(&clock, -3600 * SECOND);
    assert_eq!(client.receive().elements()[0], Reply::Integer(1));
    set_offset(&clock, 60 * SECOND);
    let present = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    wait_until("the clock is ahead", || client.run("TIME").elements()[0].text().parse::<u64>().unwrap() > present + 30);
    let add = ["EVAL", "return redis.call('BF.ADD', KEYS[1], 'after')", "1", "key"];
    assert_eq!(client.run_words(&add), Reply::Integer(1));
    assert_eq!(client.run("BF.MEXISTS key after before"), Reply::integers(&[1, 0]));
}

#[test]
fn a_clock_that_jumps_breaks_nothing() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    run(&mut client, &format!("BF.RESERVE key {RARE} 1000 WINDOW 60 {SEED}")).unwrap();
    add(&mut client, "key", 0..100);
    // The clock goes back: items stay present, and new items are remembered at least as long as usual.
    for ahead in [-86_400, -1_000_000_000_000, -30] {
        turn(&mut client, ahead * SECOND);
        assert!(all_found(&mut client, "key", 0..100), "{ahead}");
        assert_eq!(add(&mut client, "key", 0..100), 0, "{ahead}");
    }
    assert_eq!(add(&mut client, "key", 100..200), 100);
    turn(&mut client, 29 * SECOND);
    assert!(all_found(&mut client, "key", 100..200));
    // The clock goes far ahead and back: items that were added in between are remembered, and the server keeps running.
    for ahead in [1_000_000_000, 9_000_000_000_000, 9_000_000_000_000_000] {
        turn(&mut client, ahead * SECOND);
        add(&mut client, "key", 300..400);
        assert!(all_found(&mut client, "key", 300..400), "{ahead}");
        turn(&mut client, 0);
        assert!(all_found(&mut client, "key", 300..400), "{ahead}");
        add(&mut client, "key", 400..500);
        assert!(all_found(&mut client, "key", 300..500), "{ahead}");
        run(&mut client, "DEBUG RELOAD").unwrap();
        assert!(all_found(&mut client, "key", 300..500), "{ahead}");
    }
}
