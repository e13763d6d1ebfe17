//! Changes are announced: by an event, and to clients that watch the key.

use testkit::Setup;
use testkit::wire::{Reply, Wire};

/// Returns the events of our commands that arrive before the event `end`, each with its key.
pub(crate) fn events(subscriber: &mut Wire) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        let message = subscriber.receive();
        let [_, _, channel, key] = message.elements() else { panic!("{message:?}") };
        let event = channel.text().rsplit(':').next().unwrap().to_owned();
        match event.as_str() {
            "end" => return events,
            event if event.starts_with("bf.") || event.starts_with("cf.") => {
                events.push(format!("{event} {}", key.text()))
            }
            _ => {}
        }
    }
}

#[test]
fn only_commands_that_change_a_filter_cause_an_event() {
    let server = Setup::oxbloom().set("notify-keyspace-events KEA").start();
    let mut subscriber = Wire::resp2(&server);
    subscriber.run("PSUBSCRIBE __keyevent@0__:*");
    let mut client = Wire::resp2(&server);
    let mut events_after = |client: &mut Wire, lines: &[&str]| {
        lines.iter().for_each(|words| drop(client.run(words)));
        client.run("PUBLISH __keyevent@0__:end x");
        events(&mut subscriber)
    };
    assert_eq!(events_after(&mut client, &["BF.RESERVE key 0.0001 2 NONSCALING"]), ["bf.reserve key"]);
    assert_eq!(events_after(&mut client, &["BF.ADD key a"]), ["bf.add key"]);
    assert_eq!(events_after(&mut client, &["BF.MADD key a b c d"]), ["bf.add key"]);
    assert_eq!(events_after(&mut client, &["BF.ADD one a"]), ["bf.reserve one", "bf.add one"]);
    assert_eq!(events_after(&mut client, &["BF.MADD two a b"]), ["bf.reserve two", "bf.add two"]);
    assert_eq!(events_after(&mut client, &["BF.INSERT three ITEMS a b"]), ["bf.reserve three", "bf.add three"]);
    let nothing = [
        "BF.ADD key a",
        "BF.ADD key c",
        "BF.MADD key a b c",
        "BF.INSERT key NOCREATE ITEMS a b",
        "BF.INSERT nokey NOCREATE ITEMS a",
        "BF.RESERVE key 0.1 100",
        "BF.EXISTS key a",
        "BF.MEXISTS key a",
        "BF.CARD key",
        "BF.INFO key",
        "BF.DEBUG key",
        "BF.SCANDUMP key 0",
        "BF.LOADCHUNK key 1 data",
        "BF.LOADCHUNK nokey 1 data",
    ];
    assert_eq!(events_after(&mut client, &nothing), [""; 0]);
    for ((cursor, data), event) in client.scan_dump("one").into_iter().zip(["bf.reserve copy", "bf.loadchunk copy"]) {
        client.load_chunk("copy", cursor, &data);
        assert_eq!(events_after(&mut client, &[]), [event]);
    }
}

#[test]
fn only_commands_that_change_a_watched_key_abort_the_transaction() {
    let server = Setup::oxbloom().start();
    let (mut watcher, mut client) = (Wire::resp2(&server), Wire::resp2(&server));
    let mut aborts = |words: &str| {
        client.run("FLUSHALL");
        client.run("BF.RESERVE key 0.0001 2 NONSCALING");
        client.run("BF.ADD key a");
        watcher.run("WATCH key nokey");
        client.run(words);
        watcher.run("MULTI");
        watcher.run("PING");
        watcher.run("EXEC") == Reply::NullArray
    };
    for words in ["BF.ADD key b", "BF.MADD key a b", "BF.INSERT key ITEMS b c", "BF.ADD nokey a"] {
        assert!(aborts(words), "{words}");
    }
    let idle = ["BF.ADD key a", "BF.MADD key a a", "BF.INSERT key ITEMS a", "BF.RESERVE key 0.1 5", "BF.EXISTS key a"];
    for words in idle.into_iter().chain(["BF.EXISTS nokey a", "BF.SCANDUMP key 0", "BF.LOADCHUNK key 1 data"]) {
        assert!(!aborts(words), "{words}");
    }
}
