//! Commands from a master or an append-only file. Creations are applied even if another key is in their way. Commands
//! from RedisBloom are applied as RedisBloom applies them.

use redis::Connection;

use crate::replication::pair;
use testkit::filter_model::{Family, FilterModel};
use testkit::info::{CUCKOO_LAYOUTS, LAYOUTS, digest, digest_of, is_foreign, reserving};
use testkit::persistence::{append_line_to_aof, append_to_aof, rewrite_aof};
use testkit::replication::wait_for_replica;
use testkit::server::{server_name_and_version, server_version, with_aof};
use testkit::wire::{Reply, Wire};
use testkit::{Server, Setup, ask, run, run_words};

const REPLACED: &str = "it exists here, but not where the master or the append-only file creates it";

/// Runs a command that is neither replicated nor written to the append-only file.
fn without_replication<W: AsRef<[u8]>>(client: &mut Connection, words: &[W]) {
    const SCRIPT: &str = "if redis.replicate_commands then redis.replicate_commands() end \
                          redis.set_repl(redis.REPL_NONE) return redis.call(unpack(ARGV))";
    let words = words.iter().map(AsRef::as_ref);
    let all: Vec<&[u8]> = [b"EVAL", SCRIPT.as_bytes(), b"0"].into_iter().chain(words).collect();
    run_words(client, &all).unwrap();
}

fn commands(server: &Server) -> impl FnMut(&str) + use<> {
    let mut client = Wire::resp2(server);
    move |line| {
        let reply = client.run(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
}

/// Commands that create a filter. Some read another filter, `other`.
const CREATIONS: [&str; 13] = [
    "BF.RESERVE key 0.01 100 SEED 7 LAYOUT native",
    "BF.RESERVE key 0.01 100 SEED 7 COUNTING",
    "BF.RESERVE key 0.01 100 LAYOUT classic",
    "BF.RESERVE key LIKE other",
    "BF.ADD key item",
    "BF.INSERT key LAYOUT classic ITEMS item",
    "BF.MERGE key 1 other",
    "BF.RESERVE key 0.01 100 LAYOUT valkey",
    "BF.INSERT key LAYOUT valkey ITEMS item",
    "CF.RESERVE key 100 SEED 7 EXPANSION 3",
    "CF.RESERVE key 100 LAYOUT classic",
    "CF.ADD key item",
    "CF.INSERTNX key LAYOUT classic ITEMS item",
];

/// Commands that create another key of that name.
const OBSTACLES: [&str; 5] = [
    "BF.RESERVE key 0.01 100",
    "BF.INSERT key CAPACITY 7 LAYOUT classic ITEMS a b",
    "CF.INSERT key LAYOUT classic ITEMS a",
    "SET key text",
    "RPUSH key element",
];

/// Creates filters while the replicas and the append-only file of the server have other keys of their names. Returns
/// each name with the commands.
fn create_despite_obstacles(server: &Server) -> Vec<(String, String)> {
    let mut client = server.connect();
    let mut run_line = commands(server);
    run_line("BF.RESERVE other 0.01 100 SEED 7 LAYOUT native");
    run_line("BF.ADD other first");
    let mut created = Vec::new();
    for (creation, obstacle) in CREATIONS.into_iter().flat_map(|creation| OBSTACLES.map(|line| (creation, line))) {
        let key = format!("k{}", created.len());
        run_line(&obstacle.replace(" key ", &format!(" {key} ")));
        without_replication(&mut client, &["DEL", &key]);
        run_line(&creation.replace(" key ", &format!(" {key} ")));
        let mut model = if creation.starts_with("CF") { FilterModel::cuckoo(&key) } else { FilterModel::new(&key) };
        model.add(&mut client, 0..200);
        created.push((key, format!("{creation} after {obstacle}")));
    }
    created
}

#[test]
fn an_append_only_file_is_loaded_whatever_is_in_the_way_of_a_creation() {
    for layout in ["native", "classic"] {
        let setup = || with_aof("no").module_arguments(&format!("LAYOUT {layout}"));
        let server = setup().start();
        let created = create_despite_obstacles(&server);
        let mut client = server.connect();
        let before: Vec<_> = created.iter().map(|(key, _)| digest_of(&mut client, key)).collect();
        let (folder, _) = server.shut_down();
        let server = setup().on(folder).start();
        let (mut client, log) = (server.connect(), server.log());
        for ((key, commands), before) in created.iter().zip(before) {
            assert_eq!(digest_of(&mut client, key), before, "{layout}: {commands}:\n{log}");
            // BF.MERGE is replicated with REPLACE, which logs nothing.
            let is_told = log.contains(&format!("replaced key '{key}': {REPLACED}"));
            assert!(is_told || commands.starts_with("BF.MERGE"), "{layout}: {commands}:\n{log}");
        }
        assert!(ask::<bool>(&mut client, "BF.EXISTS other first"));
    }
}

#[test]
fn a_replica_has_what_its_master_created_whatever_was_in_the_way() {
    let pair = pair();
    let (mut client, mut reader) = pair.clients();
    let created = create_despite_obstacles(&pair.master);
    wait_for_replica(&mut client, &mut reader);
    for (key, commands) in created {
        assert_eq!(digest_of(&mut client, &key), digest_of(&mut reader, &key), "{commands}");
    }
    assert!(pair.replica.log().contains(REPLACED));
}

/// Writes chunks for `keys` to the append-only file, in which these keys hold nothing, a text, and another filter.
fn send_foreign_chunks(server: &Server, keys: &[&str; 3], layout: (&str, &str)) {
    let mut client = server.connect();
    let mut run_line = commands(server);
    run_line(&reserving("source", "0.01 1000", layout));
    let mut source = FilterModel::of_layout(layout.0, "source");
    let family = source.family;
    source.add(&mut client, 0..500);
    let chunks = Wire::resp2(server).scan_dump_of(family, "source");
    let (cursor, header) = &chunks[0];
    assert_eq!(Wire::resp2(server).load_chunk_of(family, "blank", *cursor, header), Reply::simple("OK"));
    let blank: Vec<u8> = ask(&mut client, "DUMP blank");
    let [absent, text, other] = keys;
    run_line(&format!("SET {text} text"));
    run_line(&format!(
        "{}.RESERVE {other} {} EXPANSION 1 SEED 1",
        family.prefix(),
        if family == Family::Bloom { "0.001 3" } else { "8" }
    ));
    for key in keys {
        without_replication(&mut client, &["DEL", key]);
        without_replication(&mut client, &[&b"RESTORE"[..], key.as_bytes(), b"0", &blank]);
        for (cursor, data) in &chunks[1..] {
            let loaded = Wire::resp2(server).load_chunk_of(family, key, *cursor, data);
            assert_eq!(loaded, Reply::simple("OK"));
        }
    }
    assert!(!ask::<bool>(&mut client, &format!("{}.EXISTS {absent} nothing", family.prefix())));
}

#[test]
fn a_chunk_that_matches_no_filter_is_rejected_and_the_server_starts() {
    for (layout, options) in LAYOUTS.into_iter().chain(CUCKOO_LAYOUTS) {
        let server = with_aof("no").start();
        send_foreign_chunks(&server, &["absent", "text", "other"], (layout, options));
        let source = digest_of(&mut server.connect(), "source");
        let (folder, _) = server.shut_down();
        let server = with_aof("no").on(folder).start();
        let mut client = server.connect();
        assert_eq!(digest_of(&mut client, "source"), source);
        assert!(!ask::<bool>(&mut client, "EXISTS absent"));
        assert_eq!(ask::<String>(&mut client, "GET text"), "text");
        let model = FilterModel::of_layout(layout, "other");
        assert!(model.with_reply(&mut client, &(0..500).collect::<Vec<_>>(), true).is_empty(), "{layout}");
        for key in ["absent", "text", "other"] {
            let message = format!(
                "rejected {}.LOADCHUNK '{key}' from the master or the append-only file: ",
                model.family.prefix()
            );
            assert!(server.log().contains(&message), "{layout}: {key}:\n{}", server.log());
        }
    }
}

#[test]
fn the_server_exits_at_a_damaged_chunk_whatever_the_key_holds() {
    let with_checksums = LAYOUTS.into_iter().chain(CUCKOO_LAYOUTS).filter(|(layout, _)| !is_foreign(layout));
    for (layout, key) in with_checksums.flat_map(|layout| ["absent", "text", "other"].map(|key| (layout, key))) {
        let server = with_aof("no").start();
        let mut client = server.connect();
        run(&mut client, &reserving("source", "0.01 1000", layout)).unwrap();
        let mut source = FilterModel::of_layout(layout.0, "source");
        source.add(&mut client, 0..500);
        let (cursor, mut chunk) = Wire::resp2(&server).scan_dump_of(source.family, "source").remove(1);
        run(&mut client, "SET text text").unwrap();
        run(&mut client, &reserving("other", "0.001 8", layout)).unwrap();
        let command = format!("{}.LOADCHUNK", source.family.prefix());
        let (folder, _) = server.shut_down();
        let middle = chunk.len() / 2;
        chunk[middle] ^= 1;
        append_to_aof(folder.path(), &[&[command.as_bytes(), key.as_bytes(), cursor.to_string().as_bytes(), &chunk]]);
        with_aof("no").on(folder).must_not_start(&["rejected a chunk of the append-only file: "]);
    }
}

/// Commands as RedisBloom writes them to its append-only file. It never writes the last two.
const REDISBLOOM_LINES: [&str; 9] = [
    "BF.RESERVE reserved 0.01 100",
    "BF.RESERVE native 0.01 100 LAYOUT native",
    "BF.INSERT inserted CAPACITY 7 ITEMS a b c",
    "BF.INSERT fixed NX CAPACITY 3 ITEMS a",
    "BF.ADD added item",
    "BF.MADD several a b c",
    "CF.RESERVE cuckoo 100 BUCKETSIZE 2 MAXITERATIONS 20 EXPANSION 1 LAYOUT native",
    "BF.INSERT seeded COUNTING NONSCALING ITEMS a",
    "BF.INSERT absent NOCREATE ITEMS a",
];

/// Starts a server on an append-only file with these commands, as if RedisBloom had written them.
fn on_redisbloom_file(setup: impl Fn() -> Setup, lines: &[&str]) -> Server {
    let server = setup().start();
    run(&mut server.connect(), "SET some key").unwrap();
    let (folder, _) = server.shut_down();
    lines.iter().for_each(|line| append_line_to_aof(folder.path(), line));
    setup().on(folder).start()
}

#[test]
fn filters_from_redisbloom_are_classic_whatever_the_settings_are() {
    let mut digests = Vec::new();
    for layout in ["native", "classic"] {
        let setup = || with_aof("no").module_arguments(&format!("LAYOUT {layout}"));
        let server = on_redisbloom_file(setup, &REDISBLOOM_LINES[..7]);
        let mut client = Wire::resp2(&server);
        for key in ["reserved", "native", "inserted", "fixed", "added", "several"] {
            assert_eq!(client.run(&format!("BF.INFO {key} LAYOUT")).elements()[0].text(), "classic", "{key}");
        }
        assert_eq!(client.run("TYPE cuckoo"), Reply::simple("MBbloomCF"));
        // RedisBloom reads NX as NONSCALING, since it only looks at the first letters.
        assert_eq!(client.run("BF.INFO fixed EXPANSION"), Reply::Array(vec![Reply::NullBulk]));
        assert_eq!(client.run("BF.INFO inserted EXPANSION"), Reply::integers(&[2]));
        let before = digest(&mut server.connect());
        rewrite_aof(&mut server.connect());
        let (folder, _) = server.shut_down();
        assert_eq!(digest(&mut setup().on(folder).start().connect()), before);
        digests.push(before);
    }
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn options_that_only_we_have_are_not_recognized_in_commands_from_redisbloom() {
    // RedisBloom reads COUNTING as CAPACITY, and rejects the command, since NONSCALING is not a number. So it never
    // writes this. Nor does it write commands that found no filter.
    let server = on_redisbloom_file(|| with_aof("no"), &REDISBLOOM_LINES[7..]);
    assert_eq!(ask::<u64>(&mut server.connect(), "EXISTS seeded absent"), 0);
    assert!(server.log().contains("rejected BF.INSERT 'seeded' from the master or the append-only file"));
}

#[test]
fn our_own_commands_create_the_same_filters_whatever_the_settings_are() {
    let server = with_aof("no").module_arguments("error-rate 0.05 initial-size 30 expansion-factor 3").start();
    let mut run_line = commands(&server);
    for line in [
        "BF.ADD added item",
        "BF.MADD several a b",
        "BF.INSERT inserted NX ITEMS a b",
        "BF.INSERT counted COUNTING NX SEED 3 ITEMS a a",
        "BF.INSERT all CAPACITY 7 ERROR 0.5 NONSCALING SEED 9 ITEMS a",
        "BF.RESERVE fixed 0.01 100 NONSCALING",
        "BF.RESERVE grows 0.01 100 EXPANSION 3",
        "BF.RESERVE zero 0.01 100 EXPANSION 0",
        "BF.INSERT classic LAYOUT classic ITEMS a",
        "CF.ADD cuckoo a",
        "CF.INSERT copies ITEMS a a b",
        "CF.INSERTNX seeded SEED 3 ERROR 0.1 CAPACITY 64 ITEMS a a",
        "CF.RESERVE short 100 EXPANSION 0 BUCKETSIZE 7 MAXITERATIONS 3",
        "CF.INSERT cuckoo-classic LAYOUT classic ITEMS a a",
        "CF.DEL copies a",
        "MULTI",
        "BF.ADD queued a",
        "SET text value",
        "BF.RESERVE queued-too 0.1 5 EXPANSION 4",
        "EXEC",
        "EVAL redis.call('BF.ADD',KEYS[1],'a');return(redis.call('BF.MADD',KEYS[1],'a','b')) 1 scripted",
    ] {
        run_line(line);
    }
    let before = digest(&mut server.connect());
    let (folder, _) = server.shut_down();
    let others = "LAYOUT classic cf-layout classic cf-bucket-size 9 cf-expansion-factor 8 cf-max-expansions 1";
    let server = with_aof("no").module_arguments(others).on(folder).start();
    assert_eq!(digest(&mut server.connect()), before);
}

/// Returns the error rate of a filter's first layer, and true if the filter grows.
fn shape(client: &mut Wire, key: &str) -> (String, bool) {
    let layer = client.run(&format!("BF.DEBUG {key}")).elements()[1].text();
    let rate = layer.split(' ').find_map(|word| word.strip_prefix("ratio:")).expect("a ratio").to_owned();
    (rate, client.run(&format!("BF.INFO {key} EXPANSION")) != Reply::Array(vec![Reply::NullBulk]))
}

#[test]
fn commands_from_redisbloom_create_the_filters_of_the_version_that_wrote_them() {
    let lines = [
        "BF.RESERVE high 0.5 100",
        "BF.RESERVE low 0.25 100",
        "BF.INSERT high-too ERROR 0.9 NONSCALING ITEMS a",
        "BF.RESERVE zero 0.01 100 EXPANSION 0",
        "BF.INSERT zero-too EXPANSION 0 ITEMS a",
        "BF.ADD default a",
    ];
    let is_redis_8 = server_name_and_version().0 == "Redis" && server_version() >= (8, 0);
    for (arguments, caps) in [
        ("error-rate 0.4", is_redis_8),
        ("error-rate 0.4 redisbloom-version auto", is_redis_8),
        ("error-rate 0.4 redisbloom-version 2", false),
        ("error-rate 0.4 bf.redisbloom-version 8", true),
    ] {
        let server = on_redisbloom_file(|| with_aof("no").module_arguments(arguments), &lines);
        let mut client = Wire::resp2(&server);
        let expected = if caps {
            [("0.125", true), ("0.125", true), ("0.25", false), ("0.01", false), ("0.25", false), ("0.125", true)]
        } else {
            [("0.25", true), ("0.125", true), ("0.9", false), ("0.005", true), ("0.2", true), ("0.2", true)]
        };
        for (key, (rate, grows)) in ["high", "low", "high-too", "zero", "zero-too", "default"].into_iter().zip(expected)
        {
            assert_eq!(shape(&mut client, key), (rate.to_owned(), grows), "{key} with {arguments}");
        }
    }
}

#[test]
fn clients_get_the_error_rate_that_they_ask_for_and_an_expansion_of_0_means_nonscaling() {
    for version in ["2", "8"] {
        let server = Setup::oxbloom().module_arguments(&format!("redisbloom-version {version}")).start();
        let mut client = Wire::resp2(&server);
        for (line, key) in [
            ("BF.RESERVE reserved 0.5 100 EXPANSION 0", "reserved"),
            ("BF.RESERVE both 0.5 100 EXPANSION 0 NONSCALING", "both"),
            ("BF.RESERVE classic 0.5 100 EXPANSION 0 LAYOUT classic", "classic"),
            ("BF.INSERT inserted ERROR 0.5 EXPANSION 0 ITEMS a", "inserted"),
        ] {
            assert!(!client.run(line).is_error(), "{line}");
            assert_eq!(shape(&mut client, key), ("0.5".to_owned(), false), "{line}");
        }
        assert_eq!(
            client.run("BF.RESERVE k 0.5 100 EXPANSION -1"),
            Reply::error("ERR expansion should be greater or equal to 1")
        );
        let expands = Reply::error("Nonscaling filters cannot expand");
        assert_eq!(client.run("BF.RESERVE k 0.5 100 EXPANSION 2 NONSCALING"), expands);
    }
}
