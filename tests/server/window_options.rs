//! The options of filters that forget: the filters that they create, and their errors, which change nothing.

use redis::{Connection, Value};

use testkit::clock::{SECOND, stopped, stopped_pair, turn, with_clock};
use testkit::command::{many, try_many};
use testkit::info::{digest, digest_of, info_field};
use testkit::persistence::aof_commands;
use testkit::replication::assert_synchronized;
use testkit::server::server_version;
use testkit::wire::{Reply, Wire};
use testkit::{Server, ask, error, run};

const WINDOW: &str = "ERR bad window: WINDOW must be seconds, from 1 to 3155760000 (100 years)";
const SLICES: &str = "ERR bad slices: SLICES must be a whole number from 2 to 64";
const ALONE: &str = "ERR SLICES needs WINDOW or ROLLING, and REFRESH needs WINDOW: add the missing option";
const GROWS: &str = "ERR a filter with ROLLING never grows: leave out EXPANSION and NONSCALING";
const OTHER_KIND: &str =
    "ERR COUNTING, LAYOUT classic or valkey, and WINDOW or ROLLING exclude each other: leave out all but one";
const WITHOUT: &str =
    "ERR the filter exists without COUNTING, or with another LAYOUT: leave out this option, or use another key";
const REPEATED: &str = "ERR repeated argument: give each option once";
const TTL: &str = "ERR bad TTL: TTL must be seconds, from 1 to the filter's WINDOW";
const NO_TTL: &str = "ERR TTL needs a filter with WINDOW and without ROLLING: leave out TTL, or use another key";
const TIME: &str = "ERR bad time: AT must be milliseconds since 1970, not in the future";
const OTHER_WINDOW: &str =
    "ERR the filter exists with another WINDOW, SLICES, REFRESH or ROLLING: leave these out, or use another key";
const EXPIRY: &str = "ERR invalid expire time: EX, PX, EXAT and PXAT must be a whole number above 0";
const MERGED: &str = "ERR cannot merge filters with WINDOW or ROLLING: add all items to one filter";

/// A server with filters of all kinds. If they have a window, it is over for their first items, which are still in
/// memory.
struct Filled {
    server: Server,
    client: Connection,
    subscriber: Wire,
}

impl Filled {
    fn new() -> Filled {
        let settings = with_clock().set("appendonly yes").set("aof-use-rdb-preamble no");
        let server = stopped(settings.set("notify-keyspace-events KEA"));
        let mut client = server.connect();
        for (key, options) in [
            ("plain", ""),
            ("counting", "COUNTING"),
            ("classic", "LAYOUT classic"),
            ("window", "WINDOW 60 SLICES 4"),
            ("renewed", "WINDOW 60 REFRESH"),
            ("last", "ROLLING"),
            ("both", "WINDOW 60 ROLLING SLICES 4"),
        ] {
            run(&mut client, &format!("BF.RESERVE {key} 0.000001 100 {options}")).unwrap();
            many::<Value>(&mut client, "BF.MADD", key, &(0..50).collect::<Vec<_>>());
            turn(&mut client, 50 * SECOND);
            many::<Value>(&mut client, "BF.MADD", key, &(50..70).collect::<Vec<_>>());
            turn(&mut client, 0);
        }
        turn(&mut client, 90 * SECOND);
        let mut subscriber = Wire::resp2(&server);
        subscriber.run("PSUBSCRIBE __key*__:*");
        Filled { server, client, subscriber }
    }

    /// Panics unless a command is rejected with this error, and changes nothing.
    fn reject(&mut self, line: &str, text: &str) {
        let state = |client: &mut Connection| (digest(client), aof_commands(self.server.folder()).len());
        let before = state(&mut self.client);
        assert_eq!(error(&mut self.client, line), text, "{line}");
        assert_eq!(state(&mut self.client), before, "{line}");
    }

    /// Panics if there was a keyspace event.
    fn assert_silent(&mut self) {
        ask::<u64>(&mut self.client, "PUBLISH __keyspace@0__:key end");
        assert_eq!(self.subscriber.receive().elements()[3].text(), "end");
    }
}

#[test]
fn bad_options_of_a_new_filter_are_errors_and_change_nothing() {
    let mut filled = Filled::new();
    for (options, text) in [
        ("WINDOW 0", WINDOW),
        ("WINDOW -1", WINDOW),
        ("WINDOW 1.5", WINDOW),
        ("WINDOW 60.0", WINDOW),
        ("WINDOW 1e3", WINDOW),
        ("WINDOW +60", WINDOW),
        ("WINDOW 3155760001", WINDOW),
        ("WINDOW 9223372036854775807", WINDOW),
        // In milliseconds, these overflow 64 bits. The second one would become about a minute.
        ("WINDOW 18446744073709551615", WINDOW),
        ("WINDOW 18446744073709612", WINDOW),
        ("WINDOW 18446744073709551616", WINDOW),
        ("WINDOW x", WINDOW),
        ("WINDOW SLICES 4", WINDOW),
        ("WINDOW 60 SLICES -1", SLICES),
        ("WINDOW 60 SLICES 0", SLICES),
        ("WINDOW 60 SLICES 1", SLICES),
        ("WINDOW 60 SLICES 65", SLICES),
        ("WINDOW 60 SLICES 258", SLICES),
        ("WINDOW 60 SLICES 7.5", SLICES),
        ("WINDOW 60 SLICES many", SLICES),
        ("ROLLING SLICES 0", SLICES),
        ("SLICES 65 ROLLING", SLICES),
        ("SLICES 8", ALONE),
        ("REFRESH", ALONE),
        ("REFRESH SLICES 8", ALONE),
        ("ROLLING REFRESH", ALONE),
        ("REFRESH ROLLING SLICES 4", ALONE),
        ("ROLLING NONSCALING", GROWS),
        ("NONSCALING WINDOW 60 ROLLING", GROWS),
        ("WINDOW 60 ROLLING EXPANSION 2", GROWS),
        ("EXPANSION 0 ROLLING", GROWS),
        ("WINDOW 60 COUNTING", OTHER_KIND),
        ("COUNTING WINDOW 60 REFRESH", OTHER_KIND),
        ("ROLLING COUNTING", OTHER_KIND),
        ("LAYOUT classic WINDOW 60", OTHER_KIND),
        ("ROLLING LAYOUT classic", OTHER_KIND),
        ("COUNTING LAYOUT classic", OTHER_KIND),
        ("LAYOUT classic COUNTING", OTHER_KIND),
        ("WINDOW 60 WINDOW 60", REPEATED),
        ("WINDOW 60 SLICES 4 WINDOW 61", REPEATED),
        ("WINDOW 60 SLICES 8 SLICES 8", REPEATED),
        ("ROLLING ROLLING", REPEATED),
        ("WINDOW 60 REFRESH REFRESH", REPEATED),
        ("WINDOW 60 EX 0", EXPIRY),
        ("EX 10 WINDOW 60 PX 10", REPEATED),
        ("WINDOW 60 EXAT 0", EXPIRY),
    ] {
        for line in [format!("BF.RESERVE key 0.01 100 {options}"), format!("BF.INSERT key {options} ITEMS a")] {
            filled.reject(&line, text);
        }
        assert_eq!(ask::<u64>(&mut filled.client, "EXISTS key"), 0, "{options}");
    }
    // At the end of a command, the value of an option is missing.
    for (options, text) in [("WINDOW", WINDOW), ("WINDOW 60 SLICES", SLICES), ("WINDOW 60 EX", EXPIRY)] {
        filled.reject(&format!("BF.RESERVE key 0.01 100 {options}"), text);
    }
    for (options, text) in [("TTL", TTL), ("AT", TIME)] {
        filled.reject(&format!("BF.INSERT key WINDOW 60 {options}"), text);
    }
    // Only BF.INSERT has these options.
    for (options, unknown) in [
        ("WINDOW 60 TTL 10", "TTL"),
        ("WINDOW 60 AT 1000", "AT"),
        ("WINDOW 60 NOCREATE", "NOCREATE"),
        ("WINDOW 60 NX", "NX"),
    ] {
        let text = format!("ERR unknown option '{unknown}': correct or remove it");
        filled.reject(&format!("BF.RESERVE key 0.01 100 {options}"), &text);
    }
    filled.reject("BF.INSERT key WINDOW 60 FORGET ITEMS a", "Unknown argument received");
    filled.reject("BF.RESERVE window 0.01 100 WINDOW 60", "ERR item exists");
    filled.reject(
        "BF.RESERVE key LIKE window WINDOW 60",
        "ERR LIKE needs one key and no options: BF.RESERVE key LIKE other",
    );
    filled.assert_silent();
}

#[test]
fn bad_options_of_items_are_errors_and_change_nothing() {
    let mut filled = Filled::new();
    for (options, text) in [
        ("WINDOW 60 TTL 0", TTL),
        ("TTL -1 WINDOW 60", TTL),
        ("WINDOW 60 TTL 1.5", TTL),
        ("WINDOW 60 TTL soon", TTL),
        ("WINDOW 60 TTL 61", TTL),
        ("TTL 61 WINDOW 60", TTL),
        ("WINDOW 60 TTL 9223372036854775807", TTL),
        ("WINDOW 60 TTL 18446744073709551615", TTL),
        ("WINDOW 60 TTL 18446744073709612", TTL),
        ("WINDOW 60 TTL 10 TTL 10", REPEATED),
        ("TTL 10", NO_TTL),
        ("TTL 10 COUNTING", NO_TTL),
        ("TTL 10 LAYOUT classic", NO_TTL),
        ("ROLLING TTL 10", NO_TTL),
        ("WINDOW 60 ROLLING TTL 10", NO_TTL),
        ("WINDOW 60 AT 9999999999999", TIME),
        ("WINDOW 60 AT -1", TIME),
        ("WINDOW 60 AT now", TIME),
        ("WINDOW 60 AT 1 AT 1", REPEATED),
        // An option without a value takes the next argument, ITEMS, as its value.
        ("WINDOW 60 TTL", TTL),
        ("WINDOW 60 AT", TIME),
        ("NOCREATE", "ERR not found"),
        ("NOCREATE WINDOW 60 TTL 10", "ERR not found"),
        ("WINDOW 60 NOCREATE NOCREATE", REPEATED),
    ] {
        filled.reject(&format!("BF.INSERT key {options} ITEMS a"), text);
        assert_eq!(ask::<u64>(&mut filled.client, "EXISTS key"), 0, "{options}");
    }
    for (line, text) in [
        ("plain TTL 10", NO_TTL),
        ("counting TTL 10", NO_TTL),
        ("classic TTL 10", NO_TTL),
        ("last TTL 10", NO_TTL),
        ("both TTL 10", NO_TTL),
        ("window TTL 61", TTL),
        ("window TTL 0", TTL),
        ("renewed TTL 61", TTL),
        ("plain WINDOW 60", OTHER_WINDOW),
        ("plain ROLLING", OTHER_WINDOW),
        ("counting WINDOW 60", OTHER_WINDOW),
        ("classic ROLLING", OTHER_WINDOW),
        ("window WINDOW 61", OTHER_WINDOW),
        ("window WINDOW 61 NOCREATE", OTHER_WINDOW),
        ("window SLICES 5", OTHER_WINDOW),
        ("window WINDOW 60 SLICES 8", OTHER_WINDOW),
        ("window REFRESH", OTHER_WINDOW),
        ("window ROLLING", OTHER_WINDOW),
        ("renewed WINDOW 60 SLICES 9", OTHER_WINDOW),
        ("last WINDOW 60", OTHER_WINDOW),
        ("last REFRESH", OTHER_WINDOW),
        ("both REFRESH", OTHER_WINDOW),
        ("both WINDOW 59", OTHER_WINDOW),
        ("window WINDOW 0", WINDOW),
        ("window SLICES 65", SLICES),
        ("window AT 9999999999999", TIME),
        ("window EX 0", EXPIRY),
        ("window COUNTING", WITHOUT),
        ("window LAYOUT classic", WITHOUT),
    ] {
        filled.reject(&format!("BF.INSERT {line} ITEMS a"), text);
    }
    for key in ["window", "last"] {
        for command in ["BF.DEL", "BF.MDEL", "BF.COUNT", "BF.MCOUNT"] {
            let line = format!("{command} {key} a");
            assert!(error(&mut filled.client, &line).contains("COUNTING"), "{line}");
        }
    }
    for line in [
        "window 1 renewed",
        "new 2 last window",
        "new 2 window plain",
        "plain 1 window INTERSECT",
        "counting 1 last",
        "new 1 both REPLACE",
    ] {
        filled.reject(&format!("BF.MERGE {line}"), MERGED);
    }
    filled.assert_silent();
}

#[test]
fn options_may_be_given_in_any_order_and_again_for_the_filter_that_they_created() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    for options in [
        ["WINDOW 60", "SLICES 4", "REFRESH", "NONSCALING", "SEED 7", "EX 1000"],
        ["window 60", "slices 64", "refresh", "expansion 2", "seed 7", "layout native"],
        ["WINDOW 60", "SLICES 2", "REFRESH", "ROLLING", "SEED 7", "PX 1000000"],
        ["ROLLING", "SLICES 9", "SEED 7", "LAYOUT native", "EXAT 4102444800", ""],
    ] {
        let mut digests = Vec::new();
        for first in 0..options.len() {
            let mut rotated = options;
            rotated.rotate_left(first);
            let shown = rotated.join(" ");
            run(&mut client, "DEL reserved inserted").unwrap();
            run(&mut client, &format!("BF.RESERVE reserved 0.01 100 {shown}")).unwrap();
            for replies in [[1, 1], [0, 0]] {
                let line = format!("BF.INSERT inserted {shown} ERROR 0.01 CAPACITY 100 ITEMS a b");
                assert_eq!(ask::<[u64; 2]>(&mut client, &line), replies, "{shown}");
            }
            run(&mut client, "BF.MADD reserved a b").unwrap();
            digests.extend(["reserved", "inserted"].map(|key| digest_of(&mut client, key)));
        }
        assert!(digests.iter().all(|digest| *digest == digests[0]), "{options:?}");
    }
}

/// Returns the fields WINDOW, SLICES, REFRESH, ROLLING and OLDEST of BF.INFO. Each must be the same alone and with ALL.
fn facts(client: &mut Wire, has_booleans: bool, key: &str) -> [Option<i64>; 5] {
    let all = client.run(&format!("BF.INFO {key} ALL"));
    [
        ("WINDOW", "Window"),
        ("SLICES", "Slices"),
        ("refresh", "Refresh"),
        ("Rolling", "Rolling"),
        ("OLDEST", "Age of the oldest slice"),
    ]
    .map(|(token, label)| {
        let single = client.run(&format!("BF.INFO {key} {token}")).single_field(label);
        assert_eq!(*all.field(label), single, "{key} {token}");
        let is_flag = ["Refresh", "Rolling"].contains(&label);
        match single {
            Reply::Integer(number) if !(is_flag && has_booleans) => Some(number),
            Reply::Boolean(yes) if is_flag && has_booleans => Some(yes.into()),
            Reply::NullBulk if !has_booleans => None,
            // Redis 6.2 lets modules reply with this null, but not with booleans.
            Reply::Null if has_booleans || server_version() < (7, 0) => None,
            other => panic!("{token}: {other:?}"),
        }
    })
}

#[test]
fn info_reports_the_window_in_both_protocols() {
    let server = stopped(with_clock());
    let mut clock = server.connect();
    let has_booleans = server_version() >= (7, 0);
    for (mut client, has_booleans) in [(Wire::resp2(&server), false), (Wire::resp3(&server), has_booleans)] {
        for (options, expected) in [
            ("", [None, None, Some(0), Some(0)]),
            ("COUNTING", [None, None, Some(0), Some(0)]),
            ("LAYOUT classic", [None, None, Some(0), Some(0)]),
            ("WINDOW 3600", [Some(3600), Some(15), Some(0), Some(0)]),
            ("WINDOW 1 SLICES 64 REFRESH", [Some(1), Some(64), Some(1), Some(0)]),
            ("WINDOW 3155760000 ROLLING SLICES 2", [Some(3_155_760_000), Some(2), Some(0), Some(1)]),
            ("WINDOW 60 ROLLING REFRESH", [Some(60), Some(15), Some(1), Some(1)]),
            ("ROLLING SLICES 5", [None, Some(5), Some(0), Some(1)]),
        ] {
            client.run("FLUSHALL");
            turn(&mut clock, 0);
            assert_eq!(client.run(&format!("BF.RESERVE key 0.000001 100 {options}")), Reply::simple("OK"));
            assert_eq!(client.run("BF.RESERVE twin LIKE key"), Reply::simple("OK"));
            for key in ["key", "twin"] {
                let [window, slices, refresh, rolling, oldest] = facts(&mut client, has_booleans, key);
                assert_eq!([window, slices, refresh, rolling], expected, "{key} {options}");
                assert_eq!(oldest, None, "{key} {options}");
            }
        }
    }
}

/// OLDEST is the highest age that a remembered item can have: an item may have been added right when its slice began.
#[test]
fn the_age_of_the_oldest_slice_is_that_of_the_oldest_item_or_up_to_a_slice_more() {
    let server = stopped(with_clock());
    let mut client = server.connect();
    for options in ["WINDOW 3600 SLICES 6", "WINDOW 3600 SLICES 6 REFRESH", "WINDOW 3600 SLICES 6 ROLLING"] {
        run(&mut client, "DEL key").unwrap();
        turn(&mut client, 0);
        run(&mut client, &format!("BF.RESERVE key 0.000001 100 {options}")).unwrap();
        let mut came = Vec::new();
        for minute in (0..300).step_by(7) {
            turn(&mut client, minute * 60 * SECOND);
            if minute < 200 {
                many::<Value>(&mut client, "BF.ADD", "key", &[minute as u64]);
                came.push(minute);
            }
            let oldest: Option<i64> = info_field(&mut client, "key", "OLDEST");
            let numbers: Vec<u64> = came.iter().map(|&minute| minute as u64).collect();
            let found: Vec<bool> = many(&mut client, "BF.MEXISTS", "key", &numbers);
            let remembered = came.iter().zip(found).find(|(_, found)| *found).map(|(&came, _)| minute - came);
            assert_eq!(oldest.is_some(), remembered.is_some(), "{options}, minute {minute}");
            if let Some((oldest, age)) = oldest.zip(remembered) {
                assert!((age * 60..=age * 60 + 600).contains(&oldest), "{options}, minute {minute}: {oldest}, {age}");
            }
        }
        assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), 0);
    }
}

#[test]
fn a_filter_created_like_another_forgets_in_the_same_way() {
    let pair = stopped_pair(with_clock(), with_clock().module_arguments("layout classic"));
    let (mut client, mut reader) = pair.clients();
    for options in ["WINDOW 3600 REFRESH SLICES 3 EX 100000", "WINDOW 3600 NONSCALING", "WINDOW 60 ROLLING", "ROLLING"]
    {
        turn(&mut client, 0);
        run(&mut client, "FLUSHALL").unwrap();
        run(&mut client, &format!("BF.RESERVE key 0.0001 100 {options}")).unwrap();
        many::<Value>(&mut client, "BF.MADD", "key", &(0..40).collect::<Vec<_>>());
        turn(&mut client, 5000 * SECOND);
        run(&mut client, "BF.RESERVE twin LIKE key").unwrap();
        assert_eq!(ask::<u64>(&mut client, "BF.CARD twin"), 0, "{options}");
        assert_eq!(ask::<i64>(&mut client, "PTTL twin"), -1, "{options}");
        run(&mut client, &format!("BF.RESERVE other 0.0001 100 {} SEED 7", options.replace("EX 100000", ""))).unwrap();
        run(&mut client, "BF.RESERVE twin-of-other LIKE other").unwrap();
        for later in [0, 1000, 2500, 9000] {
            turn(&mut client, (5000 + later) * SECOND);
            for key in ["other", "twin-of-other"] {
                let numbers: Vec<_> = (later as u64..later as u64 + 90).collect();
                // Some items do not fit into a filter that does not grow.
                let _ = try_many(&mut client, "BF.MADD", key, &numbers);
            }
            assert_eq!(digest_of(&mut client, "other"), digest_of(&mut client, "twin-of-other"), "{options} {later}");
        }
        assert_synchronized(&mut client, &mut reader, options);
    }
}
