//! Cuckoo filters of both layouts: replies, options and errors of CF.*, and random commands that are checked against a
//! model through restarts, replication and failover.

use redis::Connection;

use crate::commands::{COMMANDS, WRONG_TYPE, events, protocols};
use crate::replication::{master_setup, replica_setup};
use models::random::Random;
use testkit::command::{item, many};
use testkit::cuckoo_workload::CuckooWorkload;
use testkit::filter_model::{Family, FilterModel};
use testkit::info::{Sums, add_gauges, assert_figures_add_up, digest, digest_of, layout_figure, used_memory};
use testkit::memory::{MIB, create, grow, limit};
use testkit::persistence::{aof_commands_shown, rewrite_aof};
use testkit::replication::{Pair, follow, start_replica, wait_for_replica};
use testkit::server::{server_version, with_aof, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, error, run, run_words};

const LAYOUTS: [&str; 2] = ["native", "classic"];

const FULL: &str = "Filter is full";

fn ok() -> Reply {
    Reply::simple("OK")
}

/// Random commands, with the servers that ran them.
struct Story {
    random: Random,
    workload: CuckooWorkload,
    history: Vec<String>,
}

impl Story {
    fn new(seed: u64) -> Story {
        Story { random: Random(seed), workload: CuckooWorkload::new(""), history: Vec::new() }
    }

    fn go_on(&mut self, client: &mut Connection, steps: usize) {
        self.history.clear();
        for _ in 0..steps {
            self.history.push(self.workload.step(&mut self.random, client));
        }
    }

    /// Panics unless both servers have all items, and the same data.
    fn check(&self, case: &str, clients: [&mut Connection; 2]) {
        let [one, other] = clients;
        assert_eq!(digest(one), digest(other), "{case}, after {:#?}", self.history);
        let checked = self.workload.check([&mut *one, &mut *other]);
        checked.unwrap_or_else(|fault| panic!("{case}: {fault} after {:#?}", self.history));
        [one, other].into_iter().for_each(assert_figures_add_up);
    }

    fn check_one(&self, case: &str, server: &Server) {
        self.check(case, [&mut server.connect(), &mut server.connect()]);
    }
}

#[test]
fn after_any_commands_and_any_restart_all_items_are_present() {
    for seed in 0..4 {
        let mut story = Story::new(seed);
        let setup = || with_aof(if seed % 2 == 0 { "no" } else { "yes" }).module_arguments("cf-initial-size 20");
        let others = || with_aof("no").module_arguments("cf-layout classic cf-bucket-size 7 cf-expansion-factor 2");
        let mut server = setup().start();
        for round in 0..6 {
            let mut client = server.connect();
            story.go_on(&mut client, 150);
            story.check_one("the commands", &server);
            let before = digest(&mut client);
            match round % 3 {
                0 => drop(run(&mut client, "DEBUG RELOAD").unwrap()),
                1 => rewrite_aof(&mut client),
                _ => {}
            }
            story.check_one("a snapshot", &server);
            server = if round == 5 { others() } else { setup() }.on(server.shut_down().0).start();
            assert_eq!(digest(&mut server.connect()), before, "{seed}, {round}, after {:#?}", story.history);
            story.check_one("a restart", &server);
        }
    }
}

#[test]
fn after_any_commands_and_a_failover_all_items_are_present() {
    for seed in 10..13 {
        let mut story = Story::new(seed);
        let Pair { master, replica } = Pair::start(master_setup(), replica_setup());
        let (mut one, mut other) = (master.connect(), replica.connect());
        for round in 0..4 {
            story.go_on(&mut one, 200);
            wait_for_replica(&mut one, &mut other);
            story.check("a replica", [&mut one, &mut other]);
            // The replica becomes the master, and the master its replica.
            let port = if round % 2 == 0 { replica.port } else { master.port };
            run(&mut other, "REPLICAOF NO ONE").unwrap();
            follow(&mut one, port);
            std::mem::swap(&mut one, &mut other);
            wait_for_replica(&mut one, &mut other);
        }
        let late = start_replica(&master, replica_setup());
        story.check("a late replica", [&mut one, &mut late.connect()]);
    }
}

#[test]
fn replies_have_the_right_type_in_both_protocols() {
    let server = Setup::oxbloom().start();
    for (layout, (mut client, yes, no)) in
        LAYOUTS.into_iter().flat_map(|layout| protocols(&server).map(|p| (layout, p)))
    {
        let mut check = |line: &str, expected: Reply| assert_eq!(client.run(line), expected, "{layout}: {line}");
        let both = |one: &Reply, other: &Reply| Reply::Array(vec![one.clone(), other.clone()]);
        check("FLUSHALL", ok());
        check(&format!("CF.RESERVE key 1000 LAYOUT {layout}"), ok());
        check("CF.ADD key a", yes.clone());
        check("CF.ADD key a", yes.clone());
        check("CF.ADDNX key a", no.clone());
        check("CF.ADDNX key b", yes.clone());
        check("CF.INSERT key ITEMS a c", both(&yes, &yes));
        check("CF.INSERTNX key ITEMS a d", Reply::integers(&[0, 1]));
        check("CF.EXISTS key a", yes.clone());
        check("CF.MEXISTS key a x", both(&yes, &no));
        check("CF.COUNT key a", Reply::Integer(3));
        check("CF.COUNT key x", Reply::Integer(0));
        check("CF.DEL key a", yes.clone());
        check("CF.DEL key x", no.clone());
        check("CF.COUNT key a", Reply::Integer(2));
        check("CF.COMPACT key", ok());
    }
}

#[test]
fn info_and_debug_describe_the_filter_that_was_asked_for() {
    let server = Setup::oxbloom().start();
    for (layout, (mut client, yes, _)) in LAYOUTS.into_iter().flat_map(|layout| protocols(&server).map(|p| (layout, p)))
    {
        client.run("FLUSHALL SYNC");
        client.run(&format!("CF.RESERVE key 5000 BUCKETSIZE 3 EXPANSION 5 MAXITERATIONS 77 LAYOUT {layout}"));
        client.run("CF.INSERT key ITEMS a a b c");
        assert_eq!(client.run("CF.DEL key b"), yes);
        // The least power of two of buckets that is not below 5000 / 3. The expansion is rounded up to a power of two.
        let size = match layout {
            "classic" => Reply::Integer(40 + 16 + 3 * 2048),
            _ => Reply::Integer(layout_figure(&mut server.connect(), "native_cuckoo", "bytes").cast_signed()),
        };
        let fields = [
            ("Size", size),
            ("Number of buckets", Reply::Integer(2048)),
            ("Number of filters", Reply::Integer(1)),
            ("Number of items inserted", Reply::Integer(3)),
            ("Number of items deleted", Reply::Integer(1)),
            ("Bucket size", Reply::Integer(3)),
            ("Expansion rate", Reply::Integer(8)),
            ("Max iterations", Reply::Integer(77)),
        ];
        let fields = fields.map(|(name, value)| (Reply::simple(name), value));
        let is_map = yes != Reply::Integer(1) || matches!(client.run("CF.INFO key"), Reply::Map(_));
        let expected = match is_map {
            true => Reply::Map(fields.into()),
            false => Reply::Array(fields.into_iter().flat_map(|(name, value)| [name, value]).collect()),
        };
        assert_eq!(client.run("CF.INFO key"), expected, "{layout}");
        let line = "bktsize:3 buckets:2048 items:3 deletes:1 filters:1 max_iterations:77 expansion:8";
        assert_eq!(client.run("CF.DEBUG key"), Reply::bulk(line), "{layout}");
        for line in ["CF.INFO none", "CF.DEBUG none"] {
            assert_eq!(client.run(line), Reply::error("ERR not found"));
        }
    }
}

#[test]
fn only_classic_filters_have_layers_and_compacting_drops_them() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for layout in LAYOUTS {
        client.run(&format!("CF.RESERVE {layout} 64 LAYOUT {layout}"));
        let (mut connection, mut model) = (server.connect(), FilterModel::cuckoo(layout));
        // CF.INSERT also adds false positives, so that each item can be removed.
        let numbers: Vec<u64> = (0..500).collect();
        assert_eq!(many::<Vec<u64>>(&mut connection, "CF.INSERT", layout, &numbers), [1; 500]);
        model.items.extend(0..500);
        let layers = |client: &mut Wire| client.run(&format!("CF.INFO {layout}")).field("Number of filters").integer();
        assert_eq!(layers(&mut client) > 7, layout == "classic", "{layout}: {}", layers(&mut client));
        for number in 30..500 {
            assert_eq!(client.run_words(&[&b"CF.DEL"[..], layout.as_bytes(), &item(number)]), Reply::Integer(1));
        }
        assert_eq!(client.run(&format!("CF.COMPACT {layout}")), ok());
        assert_eq!(layers(&mut client), 1, "{layout}");
        model.items.retain(|&number| number < 30);
        model.observe(&mut connection);
        assert_figures_add_up(&mut connection);
    }
}

#[test]
fn a_full_filter_rejects_some_items_and_stores_the_others() {
    let server = Setup::oxbloom().start();
    for (mut client, yes, no) in protocols(&server) {
        let is_resp3 = yes != Reply::Integer(1);
        let rejected = if is_resp3 { no.clone() } else { Reply::Integer(-1) };
        client.run("FLUSHALL");
        // With one bucket of four slots, the fifth item cannot be stored. A native filter is full at its capacity.
        client.run("CF.RESERVE classic 8 BUCKETSIZE 4 EXPANSION 0 LAYOUT classic");
        client.run("CF.RESERVE native 8 BUCKETSIZE 4 EXPANSION 0 SEED 3 ERROR 0.0000001");
        for key in LAYOUTS {
            let items: Vec<String> = (0..9).map(|number| number.to_string()).collect();
            let words = ["CF.INSERT", key, "ITEMS"].into_iter().chain(items.iter().map(String::as_str));
            let replies = client.run_words(&words.collect::<Vec<_>>());
            let stored = replies.elements().iter().filter(|reply| **reply == yes).count();
            assert!(replies.elements().iter().all(|reply| [&yes, &rejected].contains(&reply)), "{key}: {replies:?}");
            assert!(stored <= 8 && stored > 4, "{key}: {replies:?}");
            let full = replies.elements().iter().position(|reply| *reply == rejected).expect("a full filter");
            let add = |client: &mut Wire, name: &str| client.run(&format!("{name} {key} {full}"));
            assert_eq!(add(&mut client, "CF.ADD"), Reply::error(FULL), "{key}");
            assert_eq!(add(&mut client, "CF.ADDNX"), Reply::error(FULL), "{key}");
            // An item that is present is not added again, and rejections end no command.
            let reply = client.run(&format!("CF.INSERTNX {key} ITEMS 0 {full} 0"));
            assert_eq!(reply, Reply::integers(&[0, -1, 0]), "{key}");
            assert_eq!(client.run(&format!("CF.ADDNX {key} 0")), no, "{key}");
            assert_eq!(client.run(&format!("CF.DEL {key} 0")), yes, "{key}");
            let items = client.run(&format!("CF.INFO {key}")).field("Number of items inserted").integer();
            assert_eq!(items, stored as i64 - 1, "{key}");
        }
        assert_figures_add_up(&mut server.connect());
    }
}

#[test]
fn a_native_filter_counts_copies_that_a_classic_one_has_no_room_for() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    for layout in LAYOUTS {
        run(&mut client, &format!("CF.RESERVE {layout} 1024 LAYOUT {layout}")).unwrap();
    }
    let copies = [7; 1000];
    assert_eq!(many::<Vec<i64>>(&mut client, "CF.INSERT", "native", &copies), [1; 1000]);
    assert_eq!(many::<u64>(&mut client, "CF.COUNT", "native", &[7]), 1000);
    assert_eq!(ask::<Vec<redis::Value>>(&mut client, "CF.INFO native")[5], redis::Value::Int(1));
    let before = used_memory(&mut client);
    // Each layer has room for four copies.
    let rejected = (0..1000).map(|_| add_one(&mut client, "CF.ADD", "classic", 7)).find_map(Result::err);
    assert_eq!(rejected.as_deref(), Some("Maximum expansions reached"));
    assert!(used_memory(&mut client) < before + 64 * MIB);
    assert!(many::<u64>(&mut client, "CF.COUNT", "classic", &[7]) >= 4 * 31);
}

/// Adds an item to a filter. Returns the error, if there is one.
fn add_one(client: &mut Connection, command: &str, key: &str, number: u64) -> Result<redis::Value, String> {
    run_words(client, &[command.as_bytes(), key.as_bytes(), &item(number)]).map_err(|error| testkit::error_text(&error))
}

#[test]
fn bad_options_get_the_errors_of_redisbloom_and_create_nothing() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    let capacity = "Capacity must be at least (BucketSize * 2)";
    let iterations = "MAXITERATIONS: value must be an integer between 1 and 65535, inclusive.";
    let bucket_size = "BUCKETSIZE: value must be an integer between 1 and 255, inclusive.";
    let expansion = "EXPANSION: value must be an integer between 0 and 32768, inclusive.";
    let layout = "ERR bad layout: LAYOUT takes native or classic";
    let seed = "ERR bad seed: SEED takes a whole number from 0 to 18446744073709551615";
    let no_rate = "ERR classic cuckoo filters have no error rate: leave out ERROR, or add LAYOUT native";
    let no_seed = "ERR classic filters have no seed: leave out SEED, or add LAYOUT native";
    let repeated = "ERR repeated argument: give each option once";
    let expire = "ERR invalid expire time: EX, PX, EXAT and PXAT take a whole number above 0";
    for (line, text) in [
        ("CF.RESERVE key x", "Bad capacity"),
        ("CF.RESERVE key 1.5", "Bad capacity"),
        ("CF.RESERVE key 0", capacity),
        ("CF.RESERVE key -1", capacity),
        ("CF.RESERVE key 3", capacity),
        ("CF.RESERVE key 100 BUCKETSIZE 51", capacity),
        ("CF.RESERVE key 100 MAXITERATIONS x", "Couldn't parse MAXITERATIONS"),
        ("CF.RESERVE key 100 MAXITERATIONS 0", iterations),
        ("CF.RESERVE key 100 MAXITERATIONS 65536", iterations),
        ("CF.RESERVE key 100 BUCKETSIZE x", "Couldn't parse BUCKETSIZE"),
        ("CF.RESERVE key 100 BUCKETSIZE 0", bucket_size),
        ("CF.RESERVE key 1000 BUCKETSIZE 256", bucket_size),
        ("CF.RESERVE key 100 EXPANSION x", "Couldn't parse EXPANSION"),
        ("CF.RESERVE key 100 EXPANSION -1", expansion),
        ("CF.RESERVE key 100 EXPANSION 32769", expansion),
        ("CF.RESERVE key 100 EXPANSION x BUCKETSIZE x MAXITERATIONS x", "Couldn't parse MAXITERATIONS"),
        ("CF.RESERVE key 100 LAYOUT other", layout),
        ("CF.RESERVE key 100 SEED -1", seed),
        ("CF.RESERVE key 100 ERROR 0", "ERR (0 < error rate range < 1) "),
        ("CF.RESERVE key 100 ERROR x", "ERR bad error rate"),
        ("CF.RESERVE key 100 LAYOUT classic ERROR 0.1", no_rate),
        ("CF.RESERVE key 100 SEED 7 LAYOUT classic", no_seed),
        ("CF.RESERVE key 100 SEED 7 SEED 7", repeated),
        ("CF.RESERVE key 100 EX 0", expire),
        ("CF.RESERVE key 100 COUNTING x", "ERR unknown option 'COUNTING': correct or remove it"),
        ("CF.RESERVE key 100 WINDOW 5", "ERR unknown option 'WINDOW': correct or remove it"),
        ("CF.INSERT key CAPACITY x ITEMS a", "Bad capacity"),
        ("CF.INSERT key CAPACITY 3 ITEMS a", capacity),
        ("CF.INSERT key NOCREATE ITEMS a", "ERR not found"),
        ("CF.INSERT key BUCKETSIZE 4 ITEMS a", "Unknown argument received"),
        ("CF.INSERT key C 4 ITEMS a", "Unknown argument received"),
        ("CF.INSERT key NX ITEMS a", "Unknown argument received"),
        ("CF.INSERTNX key LAYOUT classic ERROR 0.1 ITEMS a", no_rate),
        ("CF.INSERTNX key NOCREATE NOCREATE ITEMS a", repeated),
        ("CF.DEL key a", "Not found"),
        ("CF.COMPACT key", "Cuckoo filter was not found"),
        ("CF.SCANDUMP key x", "Invalid position"),
        ("CF.SCANDUMP key -1", "Invalid position"),
        ("CF.SCANDUMP key 0", "ERR not found"),
        ("CF.LOADCHUNK key x data", "Invalid position"),
        ("CF.LOADCHUNK key 0 data", "Invalid position"),
        ("CF.LOADCHUNK key 1 data", "Invalid header"),
        ("CF.LOADCHUNK key 9 data", "ERR not found"),
    ] {
        assert_eq!(client.run(line), Reply::error(text), "{line}");
        assert_eq!(client.run("DBSIZE"), Reply::Integer(0), "{line}");
    }
    for line in ["CF.EXISTS key a", "CF.COUNT key a"] {
        assert_eq!(client.run(line), Reply::Integer(0));
    }
    assert_eq!(client.run("CF.MEXISTS key a b"), Reply::integers(&[0, 0]));
}

#[test]
fn options_create_the_filter_and_must_not_contradict_an_existing_one() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    let mut connection = server.connect();
    for (line, data_type) in [
        ("CF.RESERVE a 100", "oxcuckoo-"),
        ("CF.RESERVE b 100 layout NATIVE seed 7 error 0.001", "oxcuckoo-"),
        ("CF.RESERVE c 100 Layout Classic", "MBbloomCF"),
        ("CF.INSERT d CAPACITY 100 SEED 7 ERROR 0.001 ITEMS x", "oxcuckoo-"),
        ("CF.INSERTNX e LAYOUT classic CAPACITY 100 ITEMS x", "MBbloomCF"),
    ] {
        let reply = client.run(line);
        assert!([ok(), Reply::integers(&[1])].contains(&reply), "{line}: {reply:?}");
        let key = line.split(' ').nth(1).unwrap();
        assert_eq!(client.run(&format!("TYPE {key}")).text(), data_type, "{line}");
        assert_eq!(client.run(&format!("CF.RESERVE {key} 100")), Reply::error("ERR item exists"));
    }
    // Filters with the same seed hold the same bits. With another error rate, they do not.
    client.run("CF.ADD b x");
    assert_eq!(digest_of(&mut connection, "b"), digest_of(&mut connection, "d"));
    client.run("CF.INSERT other CAPACITY 100 SEED 7 ERROR 0.01 ITEMS x");
    assert_ne!(digest_of(&mut connection, "b"), digest_of(&mut connection, "other"));
    let kind = "ERR the filter exists with another LAYOUT: leave out LAYOUT, or use another key";
    let seed = "ERR the filter exists with another SEED: leave out SEED, or use another key";
    for (options, text) in [
        ("a LAYOUT classic", kind),
        ("c LAYOUT native", kind),
        ("b SEED 8", seed),
        ("c SEED 7", seed),
        ("b NOCREATE SEED 8", seed),
    ] {
        for name in ["CF.INSERT", "CF.INSERTNX"] {
            assert_eq!(client.run(&format!("{name} {options} ITEMS y")), Reply::error(text), "{name} {options}");
        }
    }
    for options in ["b LAYOUT native SEED 7 ERROR 0.5 CAPACITY 4", "c LAYOUT classic CAPACITY 9 NOCREATE"] {
        assert_eq!(client.run(&format!("CF.INSERT {options} ITEMS y")), Reply::integers(&[1]), "{options}");
    }
}

#[test]
fn each_family_rejects_the_keys_and_headers_of_the_other() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    let mut connection = server.connect();
    let creations = [
        ("bf", "BF.RESERVE key 0.01 100"),
        ("bf", "BF.RESERVE key 0.01 100 COUNTING"),
        ("bf", "BF.RESERVE key 0.01 100 LAYOUT classic"),
        ("cf", "CF.RESERVE key 100"),
        ("cf", "CF.RESERVE key 100 LAYOUT classic"),
    ];
    for (family, creation) in creations {
        client.run("FLUSHALL");
        assert_eq!(client.run(creation), ok());
        client.run(&format!("{family}.ADD key item"));
        let before = digest(&mut connection);
        for command in COMMANDS.iter().filter(|command| !command.name.starts_with(family)) {
            assert_eq!(client.run(command.line), Reply::error(WRONG_TYPE), "{} after {creation}", command.line);
        }
        if family == "cf" {
            for line in ["BF.RESERVE new LIKE key", "BF.MERGE new 1 key", "BF.MERGE new 2 new key INTERSECT"] {
                let expected = if line.contains(" new key") { "ERR not found" } else { WRONG_TYPE };
                assert_eq!(client.run(line), Reply::error(expected), "{line} after {creation}");
            }
        }
        let header = client.run(&format!("{family}.SCANDUMP key 0")).elements()[1].bytes().to_vec();
        let (other, text) = if family == "cf" { ("BF", "ERR received bad data") } else { ("CF", "Invalid header") };
        let load = [format!("{other}.LOADCHUNK").into_bytes(), b"new".to_vec(), b"1".to_vec(), header];
        assert_eq!(client.run_words(&load), Reply::error(text), "{creation}");
        assert_eq!(client.run("DBSIZE"), Reply::Integer(1));
        assert_eq!(digest(&mut connection), before, "{creation}");
    }
}

#[test]
fn a_copy_in_chunks_is_the_same_and_goes_on_alike() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = Wire::resp2(&server);
    let mut connection = server.connect();
    for layout in LAYOUTS {
        client.run(&format!("CF.RESERVE {layout} 64 EXPANSION 2 LAYOUT {layout}"));
        let mut model = FilterModel::cuckoo(layout);
        model.add(&mut connection, 0..3000);
        many::<Vec<i64>>(&mut connection, "CF.INSERT", layout, &[1, 1, 2]);
        let chunks = client.scan_dump_of(Family::Cuckoo, layout);
        assert!(chunks.len() > if layout == "classic" { 5 } else { 1 });
        for (cursor, data) in &chunks {
            assert_eq!(client.load_chunk_of(Family::Cuckoo, "copy", *cursor, data), ok(), "{layout}");
        }
        // A chunk that is loaded again changes nothing. The header is that of a filter that exists.
        let (_, header) = &chunks[0];
        assert_eq!(client.load_chunk_of(Family::Cuckoo, "copy", 1, header), Reply::error("ERR item exists"));
        let (cursor, data) = &chunks[chunks.len() - 1];
        assert_eq!(client.load_chunk_of(Family::Cuckoo, "copy", *cursor, data), ok(), "{layout}");
        let mut copy = model.at("copy");
        assert_eq!(digest_of(&mut connection, layout), digest_of(&mut connection, "copy"));
        assert_eq!(model.add(&mut connection, 5000..6000), copy.add(&mut connection, 5000..6000));
        assert_eq!(model.observe(&mut connection), copy.observe(&mut connection));
        // Chunks from before must not overwrite the new items.
        let before = digest(&mut connection);
        for (cursor, data) in &chunks[1..] {
            let reply = client.load_chunk_of(Family::Cuckoo, "copy", *cursor, data);
            assert!(reply.is_error() || reply == ok() && layout == "classic", "{reply:?}");
            copy.observe(&mut connection);
        }
        assert!(layout == "classic" || digest(&mut connection) == before);
        client.run("DEL copy");
    }
}

#[test]
fn only_commands_that_change_a_filter_are_announced_and_written() {
    let server = with_aof("no").set("notify-keyspace-events KEA").start();
    let mut subscriber = Wire::resp2(&server);
    subscriber.run("PSUBSCRIBE __keyevent@0__:*");
    let mut client = Wire::resp2(&server);
    let mut written = 0;
    for layout in LAYOUTS {
        client.run("FLUSHALL");
        let created = if layout == "native" { "CF.RESERVE" } else { "CF.LOADCHUNK" };
        let compacted: &[&str] = if layout == "native" { &[] } else { &["cf.compact key"] };
        let long = format!("CF.RESERVE key 100 BUCKETSIZE 4 LAYOUT {layout}");
        let insert = format!("CF.INSERTNX new LAYOUT {layout} EX 5000 ITEMS a a");
        let made = [&["cf.reserve new"][..], &["cf.add new"]].concat();
        // Each command with its events, and the starts of the commands in the append-only file.
        let steps: [(&str, &[&str], &[&str]); 20] = [
            (&long, &["cf.reserve key"], &[created]),
            (&long, &[], &[]),
            ("CF.ADD key a", &["cf.add key"], &["CF.ADD key a"]),
            ("CF.ADD key a", &["cf.add key"], &["CF.ADD key a"]),
            ("CF.ADDNX key a", &[], &[]),
            ("CF.ADDNX key b", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS b"]),
            ("CF.INSERT key ITEMS a c", &["cf.add key"], &["CF.INSERT key ITEMS a c"]),
            ("CF.INSERT key NOCREATE ITEMS a", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS a"]),
            ("CF.INSERTNX key ITEMS a d c", &["cf.add key"], &["CF.INSERT key NOCREATE ITEMS d"]),
            ("CF.INSERTNX key ITEMS a d c", &[], &[]),
            ("CF.INSERT none NOCREATE ITEMS a", &[], &[]),
            ("CF.DEL key a", &["cf.del key"], &["CF.DEL key a"]),
            ("CF.DEL key none", &[], &[]),
            ("CF.COMPACT key", compacted, if layout == "native" { &[] } else { &["CF.COMPACT key"] }),
            ("CF.EXISTS key a", &[], &[]),
            ("CF.COUNT key a", &[], &[]),
            ("CF.INFO key", &[], &[]),
            ("CF.SCANDUMP key 0", &[], &[]),
            ("CF.LOADCHUNK key 1 data", &[], &[]),
            (&insert, &made, &[created, "CF.INSERT new NOCREATE ITEMS a"]),
        ];
        for (line, expected, lines) in steps {
            client.run(line);
            client.run("PUBLISH __keyevent@0__:end x");
            assert_eq!(events(&mut subscriber), expected, "{layout}: {line}");
            let now = aof_commands_shown(server.folder());
            assert_eq!(now.len() - written, lines.len(), "{layout}: {line}: {:?}", &now[written..]);
            for (now, start) in now[written..].iter().zip(lines) {
                assert!(now.starts_with(start), "{layout}: {line}: {now}");
            }
            written = now.len();
        }
    }
}

#[test]
fn scripts_and_transactions_get_the_replies() {
    let server = Setup::oxbloom().start();
    let mut client = Wire::resp2(&server);
    for layout in LAYOUTS {
        client.run("FLUSHALL");
        // With another seed, one of these items could be a false positive of another.
        let options: &[&str] = if layout == "native" { &["LAYOUT", layout, "SEED", "7"] } else { &["LAYOUT", layout] };
        let mut eval = |script: &str| client.run_words(&[&["EVAL", script, "1", "key"], options].concat());
        let create = "return redis.call('CF.RESERVE', KEYS[1], 64, 'BUCKETSIZE', 4, 'EXPANSION', 0, unpack(ARGV))";
        assert_eq!(eval(create), ok());
        assert_eq!(eval("return redis.call('CF.ADD', KEYS[1], 'a') + 10"), Reply::Integer(11));
        assert_eq!(eval("return redis.call('CF.INSERT', KEYS[1], 'ITEMS', 'a', 'b')"), Reply::integers(&[1, 1]));
        assert_eq!(eval("return redis.call('CF.COUNT', KEYS[1], 'a')"), Reply::Integer(2));
        assert_eq!(eval("return redis.call('CF.INFO', KEYS[1])[8]"), Reply::Integer(3));
        assert_eq!(eval("return redis.pcall('CF.RESERVE', KEYS[1], 8)"), Reply::error("ERR item exists"));
        let fill = "for n = 1, 200 do
                        local reply = redis.pcall('CF.ADD', KEYS[1], n)
                        if type(reply) == 'table' then return reply['err'] end
                    end";
        assert!(eval(fill).text().contains(FULL), "{layout}");
        if server_version() >= (7, 0) {
            let boolean = "redis.setresp(3); return type(redis.call('CF.EXISTS', KEYS[1], 'a'))";
            assert_eq!(eval(boolean), Reply::bulk("boolean"));
        }
        client.run("MULTI");
        for line in ["CF.DEL key a", "CF.DEL key a", "CF.DEL key a", "CF.EXISTS key b", "CF.COUNT none a"] {
            assert_eq!(client.run(line), Reply::simple("QUEUED"));
        }
        assert_eq!(client.run("EXEC"), Reply::integers(&[1, 1, 0, 1, 0]), "{layout}");
    }
}

/// Commands that create filters of more than a megabyte.
const LARGE: [&str; 2] =
    ["CF.RESERVE new 2000000 LAYOUT classic", "CF.INSERT new LAYOUT classic CAPACITY 2000000 ITEMS a"];

/// Creates filters, named after their layouts. The second layer of the classic one would take 2 MiB.
fn reserve_small(client: &mut Connection) {
    for (layout, options) in LAYOUTS.into_iter().zip(["64 ERROR 0.0000001 SEED 7", "65536 EXPANSION 32 LAYOUT classic"])
    {
        run(client, &format!("CF.RESERVE {layout} {options}")).unwrap();
    }
}

#[test]
fn the_memory_limit_of_filters_holds_at_creation_and_growth() {
    let server = with_debug(Setup::oxbloom().module_arguments("filter-memory-limit 1mb")).start();
    let mut client = server.connect();
    for line in LARGE {
        assert_eq!(error(&mut client, line), create::FILTER_LIMIT);
    }
    for line in ["CF.RESERVE new 9223372036854775807", "CF.INSERT new CAPACITY 9223372036854775807 ITEMS a"] {
        for layout in LAYOUTS {
            let line = line.replace("9223372036854775807", &format!("9223372036854775807 LAYOUT {layout}"));
            let rejection = error(&mut client, &line);
            assert!([create::ADDRESS, create::FILTER_LIMIT].contains(&rejection.as_str()), "{line}: {rejection}");
        }
    }
    reserve_small(&mut client);
    for layout in LAYOUTS {
        let mut model = FilterModel::cuckoo(layout);
        let rejection = (0..).step_by(1000).find_map(|first| grow_by(&mut client, &mut model, first..first + 1000));
        assert_eq!(rejection.as_deref(), Some(grow::FILTER_LIMIT), "{layout}");
        assert!(model.items.len() > 40_000, "{layout}: {}", model.items.len());
        let mut sums = Sums::default();
        add_gauges(&mut client, layout, &mut sums);
        assert!(sums.iter().map(|gauges| gauges[2]).sum::<u64>() <= MIB, "{layout}");
        model.observe(&mut client);
    }
    assert_figures_add_up(&mut client);
}

#[test]
fn maxmemory_holds_at_creation_and_growth() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    reserve_small(&mut client);
    let models = LAYOUTS.map(|layout| {
        let mut model = FilterModel::cuckoo(layout);
        model.add(&mut client, 0..40_000);
        model
    });
    limit(&mut client, MIB);
    for line in LARGE {
        assert_eq!(error(&mut client, line), create::MAXMEMORY);
    }
    for mut model in models.into_iter().rev() {
        let rejection =
            (40_000..).step_by(1000).find_map(|first| grow_by(&mut client, &mut model, first..first + 1000));
        let rejection = rejection.unwrap();
        // The server itself rejects commands that take memory when it is over the limit.
        assert!(rejection == grow::MAXMEMORY || rejection.starts_with("OOM "), "{rejection}");
        model.observe(&mut client);
    }
}

/// Adds items one after another. Returns the error of the first that is rejected.
fn grow_by(client: &mut Connection, model: &mut FilterModel, numbers: std::ops::Range<u64>) -> Option<String> {
    for number in numbers {
        match add_one(client, "CF.ADDNX", &model.key, number) {
            Ok(_) => model.items.insert(number),
            Err(error) => return Some(error),
        };
    }
    None
}
