//! Filters of RedisBloom that are imported on the same server.

use std::num::{NonZeroU32, NonZeroU64};

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::valkey::encode_payload;
use oxbloom_filter::internals::{CreateParams, ErrorRate, Growth, KindParams};
use testkit::filter_model::Family;
use testkit::info::digest_of;
use testkit::modules::{oxbloom_with_faults, valkey_bloom};
use testkit::persistence::aof_commands;
use testkit::replication::{start_replica, wait_for_replica};
use testkit::server::{server_version, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, copy_of};

use crate::access::cluster::{serve_slots, start_node_of, wait_for_cluster};
use crate::access::users::user;
use crate::beside::{beside_redisbloom, both};
use crate::expected::WRONG_TYPE;

const NO_IMPORT: &str = "ERR no import is at this cursor: start again without CURSOR";
const CHANGED: &str =
    "ERR the source changed during the import: import again without CURSOR, while no client writes to it";

/// Runs one step of an import. Returns the next cursor, and the fields of the reply.
fn step(client: &mut Wire, family: Family, keys: &str, cursor: &str) -> Result<(String, Reply), Reply> {
    let option = if cursor == "0" { String::new() } else { format!(" CURSOR {cursor}") };
    let reply = client.run(&format!("OX{}.IMPORT {keys}{option}", family.prefix()));
    if reply.is_error() {
        return Err(reply);
    }
    let [cursor, fields] = reply.elements() else { panic!("{reply:?}") };
    Ok((cursor.text(), fields.clone()))
}

/// Imports a filter. Returns the number of steps, and the fields of the last reply.
fn import(client: &mut Wire, family: Family, keys: &str) -> (usize, Reply) {
    let mut cursor = "0".to_owned();
    let mut loaded = 0;
    for steps in 1.. {
        let (next, fields) = step(client, family, keys, &cursor).unwrap_or_else(|error| panic!("{keys}: {error:?}"));
        let bytes = fields.field("Bytes loaded").integer();
        assert!(bytes >= loaded && bytes <= fields.field("Bytes in total").integer(), "{fields:?}");
        if next == "0" {
            assert_eq!(bytes, fields.field("Bytes in total").integer());
            return (steps, fields);
        }
        (cursor, loaded) = (next, bytes);
    }
    unreachable!("more steps than a number can count")
}

/// Returns the dump of a filter by the commands of a module.
fn dump(client: &mut Wire, prefix: &str, family: Family, key: &str) -> Vec<Reply> {
    let mut chunks = Vec::new();
    let mut cursor = 0;
    loop {
        let reply = client.run(&format!("{prefix}{}.SCANDUMP {key} {cursor}", family.prefix()));
        cursor = reply.elements()[0].integer();
        if cursor == 0 {
            return chunks;
        }
        chunks.push(reply);
    }
}

/// Adds numbers to a filter by the commands of a module.
fn add(client: &mut Wire, prefix: &str, family: Family, (key, numbers): (&str, std::ops::Range<u32>)) {
    let command = match family {
        Family::Bloom => format!("{prefix}BF.INSERT {key} ITEMS"),
        Family::Cuckoo => format!("{prefix}CF.INSERT {key} ITEMS"),
    };
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    for numbers in numbers.chunks(1000) {
        let reply = client.run(&format!("{command} {}", numbers.join(" ")));
        assert_eq!(reply.elements().len(), numbers.len(), "{reply:?}");
    }
}

/// Filters of RedisBloom: the command that creates one, and the number of its items.
const SOURCES: [(Family, &str, u32); 8] = [
    (Family::Bloom, "BF.RESERVE source 0.01 1000", 500),
    (Family::Bloom, "BF.RESERVE source 0.01 1000 NONSCALING", 1000),
    (Family::Bloom, "BF.RESERVE source 0.05 10 EXPANSION 2", 3000),
    (Family::Bloom, "BF.RESERVE source 0.01 20 EXPANSION 1", 600),
    (Family::Bloom, "BF.RESERVE source 0.001 10", 0),
    (Family::Cuckoo, "CF.RESERVE source 1000", 500),
    (Family::Cuckoo, "CF.RESERVE source 64 BUCKETSIZE 4 EXPANSION 2 MAXITERATIONS 7", 3000),
    (Family::Cuckoo, "CF.RESERVE source 100 EXPANSION 0", 40),
];

#[test]
fn an_imported_filter_has_the_bytes_of_the_source_also_after_the_same_additions() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    for (family, reserve, items) in SOURCES {
        client.run("FLUSHALL");
        assert_eq!(client.run(reserve), Reply::simple("OK"));
        add(&mut client, "", family, ("source", 0..items));
        let (_, verdict) = import(&mut client, family, "source new");
        let [theirs, ours] =
            [("", "source"), ("OX", "new")].map(|(prefix, key)| dump(&mut client, prefix, family, key));
        assert_eq!(theirs, ours, "{reserve}");
        let number = |name: &str| verdict.field(name).integer();
        let info = client.run(&format!("{}.INFO source", family.prefix()));
        assert_eq!(number("Number of items inserted"), info.field("Number of items inserted").integer(), "{reserve}");
        for item in 0..items {
            let reply = client.run(&format!("OX{}.EXISTS new {item}", family.prefix()));
            assert_eq!(reply, Reply::Integer(1), "{reserve}: {item}");
        }
        assert_eq!(number("Items compared"), 1000);
        let size = client.run("MEMORY USAGE new").integer();
        assert!((size - 600..=size).contains(&number("Size")), "{size}: {verdict:?}");
        let gained = if family == Family::Bloom { "OXBF.MERGE" } else { "OXCF.CONVERT" };
        assert!(verdict.field("Gained").text().starts_with(gained), "{verdict:?}");
        assert_eq!(client.run("TTL new"), Reply::Integer(-1));
        assert_eq!(client.run("DBSIZE"), Reply::Integer(2));
        if reserve.contains("NONSCALING") || reserve.ends_with("EXPANSION 0") {
            continue;
        }
        for (prefix, key) in [("", "source"), ("OX", "new")] {
            add(&mut client, prefix, family, (key, items..items + 500));
        }
        let [theirs, ours] =
            [("", "source"), ("OX", "new")].map(|(prefix, key)| dump(&mut client, prefix, family, key));
        assert_eq!(theirs, ours, "{reserve}, after further additions");
    }
}

fn by_two() -> Growth {
    Growth::By(NonZeroU32::new(2).unwrap())
}

#[test]
fn filters_of_valkey_bloom_are_imported_from_their_dump() {
    let ours = || Setup::oxbloom().module_arguments("prefix OX");
    let stand_in = format!("loadmodule {}", valkey_bloom().display());
    let server = with_debug(ours().set(stand_in)).start();
    let replica = start_replica(&server, with_debug(ours()));
    let mut client = Wire::resp2(&server);
    let half = ErrorRate::new(0.5).unwrap();
    for (items, growth) in [(0, by_two()), (70, Growth::Fixed), (5000, by_two())] {
        client.run("FLUSHALL");
        let params = CreateParams {
            error_rate: ErrorRate::new(0.01).unwrap(),
            capacity: NonZeroU64::new(100).unwrap(),
            growth,
            kind: KindParams::Valkey { seed: [7; 32], tightening: half },
        };
        let mut filter = Filter::create(params, &mut |_bytes| true).unwrap();
        let mut insert = |item: u32| assert!(filter.insert(item.to_string()).is_ok());
        (0..items).for_each(&mut insert);
        let payload = encode_payload(&filter).unwrap().unwrap();
        assert_eq!(client.run_words(&[&b"BF.LOAD"[..], b"source", &payload]), Reply::simple("OK"));
        assert_eq!(client.run("TYPE source"), Reply::simple("bloomfltr"));
        client.run("EXPIRE source 1000");
        let (steps, verdict) = import(&mut client, Family::Bloom, "source new");
        assert!(client.run("TTL new").integer() > 900);
        assert_eq!((steps, verdict.field("Items compared").integer()), (1, 1000));
        assert_eq!(verdict.field("Number of items inserted").integer() as u64, filter.len());
        assert_eq!(client.run("TYPE new"), Reply::simple("oxvalkeyB"));
        assert!((0..items).all(|item| client.run(&format!("OXBF.EXISTS new {item}")) == Reply::Integer(1)));
        // It grows as the source does.
        if growth != Growth::Fixed {
            add(&mut client, "OX", Family::Bloom, ("new", items..items + 500));
            (items..items + 500).for_each(|item| assert!(filter.insert(item.to_string()).is_ok()));
        }
        let reply = client.run("OXBF.INFO new SIZE");
        assert_eq!(reply.elements().last().unwrap_or(&reply).integer(), filter.memory_usage() as i64);
        let mut reader = replica.connect();
        wait_for_replica(&mut server.connect(), &mut reader);
        assert_eq!(digest_of(&mut server.connect(), "new"), digest_of(&mut reader, "new"));
    }
}

/// Creates filters with more than one chunk, of more than one part.
fn large(client: &mut Wire, family: Family) {
    let reserve = match family {
        Family::Bloom => "BF.RESERVE source 0.01 14000000",
        Family::Cuckoo => "CF.RESERVE source 20000000",
    };
    assert_eq!(client.run(reserve), Reply::simple("OK"));
    add(client, "", family, ("source", 0..20_000));
}

/// Returns the keys of unfinished filters.
fn unfinished(client: &mut Wire) -> Vec<String> {
    client.run("KEYS *:import:*").elements().iter().map(Reply::text).collect()
}

#[test]
fn large_filters_arrive_in_parts_and_start_again_after_a_restart() {
    for family in [Family::Bloom, Family::Cuckoo] {
        let setup = || both().keeping_aof("no");
        let server = setup().start();
        let mut client = Wire::resp2(&server);
        large(&mut client, family);
        let mut cursor = "0".to_owned();
        for _ in 0..4 {
            cursor = step(&mut client, family, "source new", &cursor).expect("a step").0;
        }
        // A lost reply: the step was made, so its cursor is in the past.
        let (next, fields) = step(&mut client, family, "source new", &cursor).expect("a step");
        assert_eq!(step(&mut client, family, "source new", &cursor), Err(Reply::error(NO_IMPORT)));
        assert!(fields.field("Bytes loaded").integer() > 4 << 20, "{fields:?}");
        assert_eq!(client.run("EXISTS new"), Reply::Integer(0));
        let [unfinished] = &unfinished(&mut client)[..] else { panic!("one unfinished filter") };
        assert!((1..=600).contains(&client.run(&format!("TTL {unfinished}")).integer()));
        let folder = copy_of(server.folder());
        let mut cursor = next.clone();
        while cursor != "0" {
            cursor = step(&mut client, family, "source new", &cursor).expect("a step").0;
        }
        let [theirs, ours] =
            [("", "source"), ("OX", "new")].map(|(prefix, key)| dump(&mut client, prefix, family, key));
        assert!(theirs == ours && ours.len() > 2, "{} chunks", ours.len());
        assert_eq!(client.run("DBSIZE"), Reply::Integer(2));
        // Nobody knows whether the source was written to while the server was down.
        drop(server);
        let restarted = setup().on(folder).start();
        let mut client = Wire::resp2(&restarted);
        assert_eq!(step(&mut client, family, "source new", &next), Err(Reply::error(NO_IMPORT)));
        import(&mut client, family, "source new");
    }
}

/// Creates a source with the items 0 to 499, and makes some steps of an import. Returns the cursor.
fn begun(client: &mut Wire, family: Family, steps: usize) -> String {
    client.run("FLUSHALL");
    client.run(if family == Family::Bloom { "BF.RESERVE source 0.01 1000" } else { "CF.RESERVE source 1000" });
    add(client, "", family, ("source", 0..500));
    (0..steps).fold("0".to_owned(), |cursor, _| step(client, family, "source new", &cursor).expect("a step").0)
}

/// Returns the commands that replace the items of the source by as many others.
fn replacement() -> [String; 3] {
    let items = |range: std::ops::Range<u32>| range.map(|item| format!(" {item}")).collect::<String>();
    ["DEL source".into(), "BF.RESERVE source 0.01 1000".into(), format!("BF.MADD source{}", items(1000..1500))]
}

#[test]
fn a_write_to_the_source_during_an_import_is_noticed() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    let mut others = Wire::resp2(&server);
    let replaced = replacement();
    let replaced: Vec<&str> = replaced.iter().map(String::as_str).collect();
    for (family, writes) in [
        (Family::Bloom, &["BF.ADD source new-item"][..]),
        (Family::Bloom, &["DEL source", "BF.RESERVE source 0.01 1000", "BF.ADD source item"]),
        (Family::Bloom, &replaced),
        (Family::Bloom, &["RENAME source other", "RENAME other source"]),
        (Family::Bloom, &["SWAPDB 0 1", "SWAPDB 0 1"]),
        (Family::Bloom, &["MULTI", "bf.add source new-item", "EXEC"]),
        (Family::Bloom, &["DEBUG RELOAD"]),
        (Family::Cuckoo, &["CF.ADD source new-item"]),
        (Family::Cuckoo, &["CF.DEL source 1"]),
        (Family::Cuckoo, &["CF.DEL source 1", "CF.ADD source 1"]),
        // The header is the same again.
        (
            Family::Cuckoo,
            &[
                "CF.INSERT source ITEMS a b c",
                "CF.DEL source 1",
                "CF.DEL source 2",
                "CF.DEL source 3",
                "CF.COMPACT source",
            ],
        ),
        (Family::Cuckoo, &["CF.COMPACT source"]),
        (Family::Cuckoo, &["EVAL return(redis.call('CF.COMPACT',KEYS[1])) 1 source"]),
    ] {
        for steps in 1..=2 {
            let cursor = begun(&mut client, family, steps);
            for write in writes {
                assert!(!others.run(write).is_error(), "{write}");
            }
            let error = if writes == ["DEBUG RELOAD"] { NO_IMPORT } else { CHANGED };
            assert_eq!(step(&mut client, family, "source new", &cursor), Err(Reply::error(error)), "{writes:?}");
            // Nothing is left of the import, and it can be repeated.
            assert!(error == NO_IMPORT || client.run("DBSIZE") == Reply::Integer(1), "{writes:?}");
            import(&mut client, family, "source new");
        }
    }
}

#[test]
fn a_chunk_that_is_loaded_into_the_source_is_noticed() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    begun(&mut client, Family::Bloom, 0);
    let chunks = client.scan_dump("source");
    let cursor = begun(&mut client, Family::Bloom, 1);
    let (offset, data) = &chunks[1];
    assert_eq!(client.load_chunk("source", *offset, data), Reply::simple("OK"));
    assert_eq!(step(&mut client, Family::Bloom, "source new", &cursor), Err(Reply::error(CHANGED)));
}

/// The server does not tell which commands they are.
#[test]
fn commands_that_were_queued_before_an_import_are_noticed() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    let mut others = Wire::resp2(&server);
    for (queued, is_noticed) in [(&["MULTI", "CF.COMPACT source"][..], true), (&[], false)] {
        begun(&mut client, Family::Cuckoo, 0);
        queued.iter().for_each(|line| drop(others.run(line)));
        let cursor = step(&mut client, Family::Cuckoo, "source new", "0").expect("a step").0;
        if queued.is_empty() {
            ["MULTI", "SET other value", "CF.EXISTS source 1"].iter().for_each(|line| drop(others.run(line)));
        }
        assert!(!others.run("EXEC").is_error());
        let next = step(&mut client, Family::Cuckoo, "source new", &cursor);
        assert_eq!(next.as_ref().err() == Some(&Reply::error(CHANGED)), is_noticed, "{queued:?}: {next:?}");
    }
}

#[test]
fn reading_the_source_and_writing_to_other_keys_does_not_disturb_an_import() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    let mut others = Wire::resp2(&server);
    for (family, lines) in [
        (
            Family::Bloom,
            &["BF.EXISTS source 1", "bf.mexists source 1 2", "BF.INFO source", "BF.CARD source", "BF.ADD other source"]
                [..],
        ),
        (Family::Cuckoo, &["CF.EXISTS source 1", "CF.COUNT source 1", "CF.INFO source", "CF.ADD other source"]),
    ] {
        let mut cursor = "0".to_owned();
        begun(&mut client, family, 0);
        loop {
            for line in lines.iter().chain(&[
                "TTL source",
                "OXBF.ADD ours source",
                "EVAL return(redis.call('TYPE',KEYS[1])) 1 source",
            ]) {
                assert!(!others.run(line).is_error(), "{line}");
            }
            cursor = step(&mut client, family, "source new", &cursor).expect("a step").0;
            if cursor == "0" {
                break;
            }
        }
    }
}

#[test]
fn an_import_keeps_the_time_to_live_of_the_source() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.ADD source item");
    client.run("PEXPIRE source 99999000");
    import(&mut client, Family::Bloom, "source new");
    let [theirs, ours] = ["PTTL source", "PTTL new"].map(|line| client.run(line).integer());
    assert!((99_000_000..=theirs + 1).contains(&ours), "{theirs} {ours}");
    if server_version() >= (7, 0) {
        assert_eq!(client.run("PEXPIRETIME new"), client.run("PEXPIRETIME source"));
    }
}

#[test]
fn an_import_leaves_all_other_keys_alone() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.ADD source item");
    let others = ["{new}:import", "{new}:import:32", "{new}:import:33", "new:import:32"];
    others.iter().for_each(|key| drop(client.run(&format!("SET {key} value"))));
    let (_, other) = step(&mut client, Family::Bloom, "source new", "0").expect("a step");
    assert_eq!(other.field("Bytes loaded"), &Reply::Integer(0));
    // An import of another source to the same key is another import.
    client.run("BF.ADD second item");
    let second = step(&mut client, Family::Bloom, "second new", "0").expect("a step").0;
    import(&mut client, Family::Bloom, "source new");
    assert_eq!(step(&mut client, Family::Bloom, "second new", &second), Err(Reply::error("ERR item exists")));
    others.iter().for_each(|key| assert_eq!(client.run(&format!("GET {key}")), Reply::bulk("value")));
}

#[test]
fn the_verdict_counts_the_compared_items_that_both_filters_have() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    let sample = (1..=1000u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string());
    let sample: Vec<String> = sample.collect();
    for found in [0, 1, 700, 1000] {
        client.run("FLUSHALL");
        client.run("BF.RESERVE source 0.0000001 1000");
        for item in &sample[..found] {
            assert_eq!(client.run(&format!("BF.ADD source {item}")), Reply::Integer(1));
        }
        let (_, verdict) = import(&mut client, Family::Bloom, "source new");
        assert_eq!(verdict.field("Items found in both").integer(), found as i64);
    }
}

#[test]
fn errors_say_what_to_do_and_change_nothing() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    for line in ["BF.ADD bloom a", "CF.ADD cuckoo a", "CF.RESERVE empty 100", "OXBF.ADD ours a", "SET text a"] {
        client.run(line);
    }
    let keys = client.run("DBSIZE");
    for (line, error) in [
        ("OXBF.IMPORT nothing new", "ERR not found"),
        ("OXCF.IMPORT nothing new", "ERR not found"),
        ("OXBF.IMPORT text new", WRONG_TYPE),
        ("OXBF.IMPORT cuckoo new", WRONG_TYPE),
        ("OXCF.IMPORT bloom new", WRONG_TYPE),
        ("OXBF.IMPORT ours new", WRONG_TYPE),
        ("OXBF.IMPORT bloom ours", "ERR item exists"),
        ("OXBF.IMPORT bloom bloom", "ERR item exists"),
        ("OXBF.IMPORT bloom text", "ERR item exists"),
        ("OXCF.IMPORT empty new", "ERR the source is empty: create an empty filter instead"),
        ("OXBF.IMPORT bloom new CURSOR 32", NO_IMPORT),
        ("OXBF.IMPORT bloom new CURSOR 18446744073709551615", NO_IMPORT),
        ("OXBF.IMPORT bloom new CURSOR x", "ERR bad cursor: CURSOR must be the cursor of the last reply"),
        ("OXBF.IMPORT bloom new CURSOR -1", "ERR bad cursor: CURSOR must be the cursor of the last reply"),
        ("OXBF.IMPORT bloom new CURSOR", "ERR syntax error"),
        ("OXBF.IMPORT bloom new NEXT 0", "ERR syntax error"),
        ("oxbf.import bloom", "ERR wrong number of arguments for 'oxbf.import' command"),
    ] {
        assert_eq!(client.run(line), Reply::error(error), "{line}");
    }
    assert_eq!(client.run("DBSIZE"), keys);
    assert_eq!(step(&mut client, Family::Bloom, "bloom new", "0").expect("a step").0, "32");
    client.run("OXBF.ADD new early");
    assert_eq!(client.run("OXBF.IMPORT bloom new CURSOR 32"), Reply::error("ERR item exists"));
    let alone = Setup::oxbloom().module_arguments("prefix OX").start();
    let missing = "ERR no other module on this server has filters to import: load RedisBloom beside this module";
    assert_eq!(Wire::resp2(&alone).run("OXBF.IMPORT bloom new"), Reply::error(missing));
    let usual = Setup::oxbloom().start();
    assert!(Wire::resp2(&usual).run("BF.IMPORT bloom new").error_text().starts_with("ERR unknown command"));
}

#[test]
fn a_limit_of_memory_stops_an_import() {
    if server_version() < (7, 0) {
        return;
    }
    let server = both().set("oxbf.filter-memory-limit 1mb").start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE source 0.01 10000000");
    let limit = "ERR Insufficient memory to create filter: over oxbf.filter-memory-limit, raise the limit or choose a \
                 smaller capacity";
    assert_eq!(client.run("OXBF.IMPORT source new"), Reply::error(limit));
    assert_eq!(client.run("DBSIZE"), Reply::Integer(1));
}

/// The server exits if it has no memory for the reply to SCANDUMP.
#[test]
fn an_import_asks_for_the_memory_of_a_whole_chunk_first() {
    let server = beside_redisbloom(&oxbloom_with_faults()).start();
    let mut client = Wire::resp2(&server);
    client.run("BF.ADD source item");
    let no_memory = "ERR Insufficient memory: the system has no more, add memory or delete keys";
    client.run(&format!("OXBF.STARVE key 1 {}", 32 << 20));
    assert_eq!(client.run("OXBF.IMPORT source new"), Reply::error(no_memory));
    assert_eq!(client.run("DBSIZE"), Reply::Integer(1));
    import(&mut client, Family::Bloom, "source new");
}

#[test]
fn replicas_and_files_get_chunks() {
    let master = both().set("repl-diskless-sync-delay 0").keeping_aof("no").start();
    let replica = start_replica(&master, both());
    let mut client = Wire::resp2(&master);
    for (family, reserve, items) in [SOURCES[2], SOURCES[6]] {
        client.run("DEL source");
        client.run(reserve);
        add(&mut client, "", family, ("source", 0..items));
        import(&mut client, family, &format!("source new{}", family.prefix()));
    }
    client.run("OXCF.CONVERT newCF");
    wait_for_replica(&mut master.connect(), &mut replica.connect());
    let mut follower = Wire::resp2(&replica);
    assert_eq!(client.run("DEBUG DIGEST"), follower.run("DEBUG DIGEST"));
    assert_eq!(client.run("TYPE newCF"), Reply::simple("oxcuckoo-"));
    assert_eq!(follower.run("TTL newBF"), Reply::Integer(-1));
    let names = aof_commands(master.folder()).into_iter().map(|words| String::from_utf8_lossy(&words[0]).into_owned());
    let names: Vec<_> = names.map(|name| name.to_uppercase()).collect();
    assert!(!names.iter().any(|name| name.contains("IMPORT")), "{names:?}");
    assert!(names.iter().filter(|name| *name == "OXBF.LOADCHUNK").count() > 5, "{names:?}");
}

#[test]
fn a_script_imports_in_one_step_for_all_others() {
    let server = both().start();
    let mut client = Wire::resp2(&server);
    client.run("BF.RESERVE source 0.01 1000");
    add(&mut client, "", Family::Bloom, ("source", 0..500));
    let script = "local reply = redis.call('OXBF.IMPORT', KEYS[1], KEYS[2]) while reply[1] ~= '0' do reply = \
                  redis.call('OXBF.IMPORT', KEYS[1], KEYS[2], 'CURSOR', reply[1]) end return reply";
    let reply = client.run_words(&["EVAL", script, "2", "source", "new"]);
    assert_eq!(reply.elements()[0], Reply::bulk("0"), "{reply:?}");
    assert_eq!(client.run("OXBF.CARD new"), Reply::Integer(500));
    assert_eq!(dump(&mut client, "OX", Family::Bloom, "new"), dump(&mut client, "", Family::Bloom, "source"));
}

#[test]
fn the_reply_is_a_map_in_resp3() {
    if server_version() < (7, 0) {
        return;
    }
    let server = both().start();
    let mut client = Wire::resp3(&server);
    client.run("BF.ADD source item");
    let reply = client.run("OXBF.IMPORT source new");
    let [cursor, Reply::Map(_)] = reply.elements() else { panic!("{reply:?}") };
    let cursor = cursor.text();
    client.run(&format!("OXBF.IMPORT source new CURSOR {cursor}"));
}

#[test]
fn an_import_needs_permission_to_read_the_source_and_to_write_the_new_key() {
    if server_version() < (7, 0) {
        return;
    }
    let server = both().start();
    Wire::resp2(&server).run("BF.ADD source item");
    for (rules, allowed) in [
        ("~* -@all +oxbf.import", true),
        ("%R~source %W~new ~{new}:import:* +oxbf.import", true),
        ("%R~source %W~new +oxbf.import", false),
        ("%R~source %W~new %W~{new}:import:* +oxbf.import", false),
        ("%R~source %R~new +oxbf.import", false),
        ("%W~source %W~new +oxbf.import", false),
        ("~source +oxbf.import", false),
        ("~* +@all -oxbf.import", false),
    ] {
        let reply = user(&server, rules).run("OXBF.IMPORT source new");
        assert_eq!(!reply.is_error(), allowed, "{rules}: {reply:?}");
        assert!(allowed || reply.error_text().starts_with("NOPERM"), "{rules}: {reply:?}");
    }
}

#[test]
fn in_a_cluster_both_keys_are_in_one_slot() {
    let server = start_node_of(both);
    let mut client = Wire::resp2(&server);
    serve_slots(&mut client, 0..16384);
    wait_for_cluster(&mut client);
    client.run("BF.ADD source item");
    client.run("BF.ADD {tag}source item");
    assert!(client.run("OXBF.IMPORT source new").error_text().starts_with("CROSSSLOT"));
    import(&mut client, Family::Bloom, "source {source}new");
    import(&mut client, Family::Bloom, "{tag}source {tag}new");
    import(&mut client, Family::Bloom, "{tag}source tag");
    client.run("BF.ADD {a{b}source item");
    import(&mut client, Family::Bloom, "{a{b}source a{b");
    // No hash tag gives the slot of this new key. This source has it.
    let source = "source20516";
    assert_eq!(client.run(&format!("CLUSTER KEYSLOT {source}")), client.run("CLUSTER KEYSLOT x}y"));
    client.run(&format!("BF.ADD {source} item"));
    let slot =
        "ERR in a cluster, a new key with '}' needs a hash tag: import to another key of this slot, and rename it";
    assert_eq!(client.run(&format!("OXBF.IMPORT {source} x}}y")), Reply::error(slot));
    let reply = client.run("COMMAND GETKEYS OXBF.IMPORT source new CURSOR 32");
    assert_eq!(reply, Reply::Array(vec![Reply::bulk("source"), Reply::bulk("new")]));
    if server_version() >= (7, 0) {
        let info = client.run("COMMAND INFO OXBF.IMPORT").elements()[0].elements()[8].clone();
        let places = info.elements().iter().map(|key| key.field("begin_search").field("spec").field("index").integer());
        assert!(places.eq([1, 2]), "{info:?}");
    }
}
