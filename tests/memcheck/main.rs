//! The module in a real server under valgrind. It accesses only its own, initialized memory, and leaks none.
//!
//! Valgrind tracks the system's functions for allocation. A server with an allocator of its own bypasses them. In such
//! a server, valgrind only notices accesses to memory that is not mapped.

use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use redis::{Connection, Value};
use tempfile::TempDir;

use models::random::Random;
use testkit::filter_model::{FilterModel, various};
use testkit::info::{digest, info, info_number};
use testkit::keyspace_workload::KeyspaceWorkload;
use testkit::payload::Payload;
use testkit::persistence::{rewrite_aof, wait_for_bgsave};
use testkit::replication::{assert_synchronized, start_replica, wait_for_replica};
use testkit::server::{server_version, with_debug};
use testkit::windowed_workload::{Window, WindowedWorkload};
use testkit::wire::Wire;
use testkit::{Server, Setup, ask, payload, run, run_words};

/// Returns the command that runs a server under valgrind, which writes a report for each process to a file.
fn memcheck(logs: &Path) -> Vec<String> {
    let log = format!("--log-file={}/%p", logs.display());
    let words = [
        "valgrind",
        "--leak-check=full",
        "--errors-for-leak-kinds=definite",
        // Debian's server links to an allocator in another library.
        "--soname-synonyms=somalloc=*jemalloc*",
        &log,
    ];
    words.map(str::to_owned).into()
}

#[test]
fn memory_accesses_are_valid_and_no_memory_leaks() {
    let logs = TempDir::new().unwrap();
    let setup = Setup::oxbloom().module_arguments("lookahead on lookahead-size 1").under(memcheck(logs.path()));
    // The server's compressor reads uninitialized memory on purpose.
    let setup = setup.set("rdbcompression no").set("appendonly yes").set("aof-use-rdb-preamble no");
    let server = with_debug(setup).set("repl-diskless-sync-delay 0").start();
    let mut client = server.connect();
    let allocations = expected_allocations(&server, &mut client);

    let models = various(&mut client);
    let replica = start_replica(&server, with_debug(Setup::oxbloom()).under(memcheck(logs.path())));
    let mut reader = replica.connect();
    come_and_are_forgotten(&server);
    use_at_random(&mut client, &models);
    inspect_and_configure(&server, &mut client);
    reject(&server, &mut client, &models);
    persist(&mut client);
    models.iter().for_each(|model| drop(model.observe(&mut client)));
    assert_synchronized(&mut client, &mut reader, "in the end");

    ask::<String>(&mut client, "FLUSHALL SYNC");
    wait_for_replica(&mut client, &mut reader);
    let statuses = [replica, server].map(|server| server.shut_down().1);
    let reports: Vec<String> =
        fs::read_dir(logs.path()).unwrap().map(|log| fs::read_to_string(log.unwrap().path()).unwrap()).collect();
    assert!(statuses.iter().all(ExitStatus::success), "{statuses:?}:\n{}", reports.join("\n"));
    // There is a report for each server, and for each child process that wrote files.
    assert!(reports.len() >= 4, "{} reports", reports.len());
    reports.iter().for_each(|report| assert!(report.contains("ERROR SUMMARY: 0 errors"), "{report}"));
    let total = |report: &String| {
        let (_, rest) = report.split_once("total heap usage: ")?;
        rest.split_once(" allocs")?.0.replace(',', "").parse::<u64>().ok()
    };
    let most = reports.iter().filter_map(total).max().expect("a report that counts");
    assert!(most > allocations, "valgrind saw only {most} allocations: the server may bypass it");
}

/// Returns the minimum number of allocations that valgrind must have seen at the end: 0 if the server bypasses it.
fn expected_allocations(server: &Server, client: &mut Connection) -> u64 {
    let is_shared = fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap().contains("libjemalloc");
    if is_shared || info(client, "memory", "mem_allocator") == "libc" { 100_000 } else { 0 }
}

/// Adds items to filters that forget, and waits until they are forgotten, by the server's clock.
fn come_and_are_forgotten(server: &Server) {
    let mut random = Random(2);
    let mut client = Wire::resp2(server);
    let window = Window { capacity: 20, length: 1, slices: 4, refresh: true };
    let windows = [window, Window { capacity: 1000, refresh: false, ..window }];
    let mut filters =
        [0, 1].map(|n| WindowedWorkload::create(&mut client, &format!("brief-{n}"), n as u64, windows[n]));
    // Many items at first, and then so few that the memory is freed.
    for additions in [30, 1, 1, 1, 1] {
        for _ in 0..additions {
            filters.iter_mut().for_each(|filter| filter.add(&mut random, &mut client));
        }
        // Waits until all windows are over.
        thread::sleep(Duration::from_millis(1300));
    }
    filters.iter().for_each(|filter| filter.check(&mut server.connect()));
    assert!(info_number(&mut server.connect(), "bf", "bf_items_forgotten") > 0);
}

/// Runs random commands on filters of all kinds, and converts a cuckoo filter.
fn use_at_random(client: &mut Connection, models: &[FilterModel]) {
    let (mut random, mut workload) = (Random(3), KeyspaceWorkload::new("random-"));
    for _ in 0..2000 {
        workload.step(&mut random, client).expect("a server that replies");
    }
    let classic = models.iter().find(|model| model.key == "cuckoo-classic-doubled").expect("a classic cuckoo filter");
    run(client, &format!("COPY {} converted", classic.key)).unwrap();
    run(client, "CF.CONVERT converted").unwrap();
    classic.at("converted").observe(client);
}

/// Reads all information about filters and commands, and changes the settings.
fn inspect_and_configure(server: &Server, client: &mut Connection) {
    for mut wire in [Wire::resp2(server), Wire::resp3(server)] {
        for key in ["doubled", "counting-doubled", "classic-doubled"] {
            for field in "CAPACITY SIZE FILTERS ITEMS EXPANSION ERROR SEED LAYOUT FILL FPR ESTIMATED".split(' ') {
                assert!(!wire.run(&format!("BF.INFO {key} {field}")).is_error());
            }
            for words in ["BF.INFO", "BF.DEBUG", "BF.CARD", "MEMORY USAGE", "OBJECT ENCODING", "TYPE"] {
                assert!(!wire.run(&format!("{words} {key}")).is_error());
            }
            assert_eq!(wire.run(&format!("BF.MCOUNT {key} one two")).is_error(), !key.starts_with("counting"));
        }
        assert!(!wire.run("COMMAND GETKEYS BF.MERGE a 2 b c").is_error());
        assert!(!wire.run("COMMAND INFO BF.ADD BF.RESERVE").is_error());
    }
    if server_version() >= (7, 0) {
        run(client, "COMMAND DOCS BF.RESERVE BF.INSERT BF.MERGE").unwrap();
        for _ in 0..3 {
            ask::<Vec<String>>(client, "CONFIG GET bf.*");
            run(client, "CONFIG SET bf.error-rate 2").unwrap_err();
            run(client, "CONFIG SET bf.error-rate 0.02 bf.layout native bf.filter-memory-limit 1gb").unwrap();
        }
    }
    run(client, "ACL SETUSER reader on nopass ~* &* -@all +bf.exists +auth").unwrap();
    let mut reader = Wire::resp2(server);
    assert!(!reader.run("AUTH reader any").is_error());
    assert!(!reader.run("BF.EXISTS doubled one").is_error());
    assert!(reader.run("BF.ADD doubled one").is_error());
    let script = "return redis.call('BF.MADD', KEYS[1], 'one', 'two')";
    run_words(client, &["EVAL", script, "1", "scripted"]).unwrap();
    let mut transaction = redis::pipe();
    transaction.atomic().cmd("BF.ADD").arg("scripted").arg("three").cmd("BF.EXISTS").arg("scripted").arg("three");
    assert_eq!(transaction.query::<Vec<bool>>(client), Ok(vec![true, true]));
}

/// Sends invalid arguments, keys and payloads. The payloads have a flipped bit, or are truncated.
fn reject(server: &Server, client: &mut Connection, models: &[FilterModel]) {
    run(client, "SET text value").unwrap();
    for words in [
        "BF.RESERVE doubled 0.01 100",
        "BF.RESERVE new 0.01 100 EXPANSION 2 EXPANSION 3",
        "BF.RESERVE new 0.01 9223372036854775807",
        "BF.RESERVE new LIKE nothing",
        "BF.INSERT new CAPACITY many ITEMS x",
        "BF.INSERT new NOCREATE ITEMS x",
        "BF.ADD text x",
        "BF.MERGE new 3 a",
        "BF.DEL doubled x",
        "BF.SCANDUMP doubled x",
        "BF.LOADCHUNK new 1 x",
        "BF.INFO doubled WHAT",
        "BF.MADD",
        "MODULE UNLOAD bf",
    ] {
        assert!(run(client, words).is_err(), "{words}");
    }
    let mut wire = Wire::resp2(server);
    for model in models.iter().filter(|model| ["doubled", "grown"].iter().any(|end| model.key.ends_with(end))) {
        let (key, family) = (&model.key, model.family);
        let payload = Payload::parse(&ask::<Vec<u8>>(client, &format!("DUMP {key}")));
        let places = payload::strings(&payload.body).into_iter().flat_map(|place| [place.start, place.end - 1]);
        for place in places.chain(payload::TYPE_BYTES..payload::TYPE_BYTES + 60) {
            let mut damaged = payload.body.clone();
            damaged[place] ^= 1;
            for body in [&damaged[..], &payload.body[..place]] {
                // The server may accept a flipped bit. It only has to reply.
                wire.run_words(&[b"RESTORE".as_slice(), b"damaged", b"0", &payload.seal(body), b"REPLACE"]);
            }
        }
        for (cursor, data) in wire.scan_dump_of(family, key) {
            for place in (0..data.len()).step_by(7) {
                let mut damaged = data.clone();
                damaged[place] ^= 0x10;
                for chunk in [&damaged[..], &data[..place]] {
                    wire.load_chunk_of(family, "damaged", cursor, chunk);
                    wire.run("DEL damaged");
                }
            }
        }
    }
}

/// Saves and loads snapshots and rewritten append-only files.
fn persist(client: &mut Connection) {
    let expected = digest(client);
    run(client, "BGSAVE").unwrap();
    wait_for_bgsave(client);
    for load in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        rewrite_aof(client);
        assert_eq!(run(client, load), Ok(Value::Okay));
        assert_eq!(digest(client), expected, "{load}");
    }
}
