//! Requests that exceed the memory are rejected with an error that names the limit, and change nothing.

use redis::{Connection, Value};

use testkit::command::{item, try_many};
use testkit::filter_model::FilterModel;
use testkit::info::{assert_figures_add_up, digest, filter_info, info_field, info_number, used_memory};
use testkit::memory::{EXIT_MESSAGE, MIB, confine, confine_data, confine_running, create, grow, limit, reserve};
use testkit::payload::Payload;
use testkit::replication::{Pair, assert_synchronized, start_replica};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::{Server, Setup, ask, error, error_text, run, run_words};

fn unlimited(client: &mut Connection) {
    run(client, "CONFIG SET maxmemory 0").unwrap();
}

#[test]
fn a_filter_that_would_exceed_maxmemory_is_not_created() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    let mut model = FilterModel::new("present");
    model.add(&mut client, 0..3000);
    // Creates the filter that is copied, restored and loaded below.
    run(&mut client, &reserve("large", 20)).unwrap();
    let payload: Vec<u8> = ask(&mut client, "DUMP large");
    let (_, header): (u64, Vec<u8>) = ask(&mut client, "BF.SCANDUMP large 0");
    let maxmemory = limit(&mut client, 10 * MIB);
    let before = (digest(&mut client), model.observe(&mut client));

    let attempts: &[(&[&[u8]], &str)] = &[
        (&[b"BF.RESERVE", b"new", b"0.01", b"20000000"], create::MAXMEMORY),
        (&[b"BF.RESERVE", b"new", b"0.01", b"20000000", b"NONSCALING"], create::MAXMEMORY),
        (&[b"BF.RESERVE", b"new", b"0.01", b"9223372036854775807"], create::ADDRESS),
        (&[b"BF.INSERT", b"new", b"CAPACITY", b"20000000", b"ITEMS", b"item"], create::MAXMEMORY),
        (&[b"CF.RESERVE", b"new", b"20000000", b"LAYOUT", b"classic"], create::MAXMEMORY),
        (&[b"CF.INSERT", b"new", b"LAYOUT", b"classic", b"CAPACITY", b"20000000", b"ITEMS", b"a"], create::MAXMEMORY),
        (&[b"BF.LOADCHUNK", b"new", b"1", &header], create::MAXMEMORY),
        (&[b"RESTORE", b"new", b"0", &payload], "ERR Bad data format"),
        (&[b"COPY", b"large", b"new"], ""),
    ];
    let check = |client: &mut Connection| {
        for (words, expected) in attempts {
            let rejection = run_words(client, words).expect_err("a filter beyond maxmemory was admitted");
            let rejection = error_text(&rejection);
            assert!(rejection == *expected || expected.is_empty(), "{rejection}");
            assert!(used_memory(client) <= maxmemory);
        }
        for add in ["BF.ADD new item", "BF.MADD new item other"] {
            assert_eq!(error(client, add), create::MAXMEMORY);
        }
    };
    // With this setting, every new filter would be too large.
    if server_version() >= (7, 0) {
        run(&mut client, "CONFIG SET bf.initial-size 20000000").unwrap();
        check(&mut client);
        run(&mut client, "CONFIG SET bf.initial-size 100").unwrap();
    } else {
        for (words, expected) in attempts {
            let rejection = error_text(&run_words(&mut client, words).unwrap_err());
            assert!(rejection == *expected || expected.is_empty(), "{rejection}");
        }
    }
    let (_, limit) = create::MAXMEMORY.split_once(": ").expect("a limit");
    let reason = format!("rejected a filter in a file or payload: not enough memory, {limit} (key 'new')");
    assert!(server.log().contains(&reason), "{}", server.log());
    assert_eq!(ask::<u64>(&mut client, "EXISTS new"), 0);
    assert_eq!((digest(&mut client), model.observe(&mut client)), before);
    // A filter that fits is admitted.
    assert_eq!(run(&mut client, &reserve("small", 2)), Ok(Value::Okay));
    model.add(&mut client, 3000..3500);

    unlimited(&mut client);
    // Without the limit, all these commands succeed, except the one that no server could carry out.
    for (words, _) in attempts.iter().filter(|(words, _)| words.last() != Some(&&b"9223372036854775807"[..])) {
        run_words(&mut client, words).unwrap();
        assert_eq!(ask::<u64>(&mut client, "DEL new"), 1);
    }
}

#[test]
fn a_filter_does_not_grow_beyond_maxmemory() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 1000 EXPANSION 30000 LAYOUT classic").unwrap();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..900);
    limit(&mut client, 10 * MIB);
    // The items that fit are added, and the reply ends with the error.
    let numbers: Vec<u64> = (900..2000).collect();
    let rejection = error_text(&try_many(&mut client, "BF.MADD", "key", &numbers).unwrap_err());
    assert_eq!(rejection, grow::MAXMEMORY);
    assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), 1000);
    let taken = model.with_reply(&mut client, &numbers, true);
    assert!(taken.len() >= 90);
    model.items.extend(taken);
    let (before, info) = (digest(&mut client), filter_info(&mut client, "key"));
    // The server keeps running, and keeps rejecting.
    for n in 5000..5020 {
        let rejection = try_many(&mut client, "BF.MADD", "key", &[n]).map(drop);
        if let Err(rejection) = rejection {
            assert_eq!(error_text(&rejection), grow::MAXMEMORY);
        }
    }
    model.observe(&mut client);
    assert_eq!((digest(&mut client), filter_info(&mut client, "key")), (before, info));
    let new = model.with_reply(&mut client, &(5000..5020).collect::<Vec<_>>(), false)[0];
    let rejection = run_words(&mut client, &[&b"BF.ADD"[..], b"key", &item(new)]).unwrap_err();
    assert_eq!(error_text(&rejection), grow::MAXMEMORY);
    unlimited(&mut client);
    model.add(&mut client, 900..3000);
    model.observe(&mut client);
    assert_eq!(ask::<Vec<String>>(&mut client, "BF.DEBUG key").len(), 3);
}

/// A native filter grows in small steps. The items that fit are added, and the first one that does not fit is rejected.
#[test]
fn a_native_filter_grows_in_small_steps_up_to_maxmemory() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.000000001 1000").unwrap();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..900);
    let size = |client: &mut Connection| info_field::<u64>(client, "key", "SIZE");
    let small = size(&mut client);
    // A server allocates a histogram when it runs a command for the first time.
    let state = |client: &mut Connection| (digest(client), filter_info(client, "key"));
    state(&mut client);
    limit(&mut client, MIB / 4);
    let (mut next, mut rejected) = (900, 0);
    while rejected < 20 {
        let numbers: Vec<u64> = (next..next + 100).collect();
        let before = state(&mut client);
        let taken = match try_many(&mut client, "BF.MADD", "key", &numbers) {
            Ok(_) => 100,
            Err(rejection) => {
                // If the server's buffers take the last bytes, the server rejects the command, and not the module.
                let error = error_text(&rejection);
                assert!(error == grow::MAXMEMORY || error.starts_with("OOM"), "{error}");
                let taken = model.with_reply(&mut client, &numbers, true);
                assert_eq!(taken, numbers[..taken.len()]);
                taken.len()
            }
        };
        if taken == 0 {
            assert_eq!(state(&mut client), before);
            rejected += 1;
        }
        model.items.extend(&numbers[..taken]);
        next += taken as u64;
        assert!(next < 200_000, "the filter accepts every item");
    }
    assert!((small + MIB / 8..small + MIB / 4).contains(&size(&mut client)), "{}", size(&mut client));
    model.observe(&mut client);
    unlimited(&mut client);
    model.add(&mut client, next..next + 5000);
    model.observe(&mut client);
    assert_figures_add_up(&mut client);
}

#[test]
fn with_eviction_a_filter_is_admitted_if_it_can_fit() {
    // With eviction in the background, the server may see the freed memory too late. It then decides that eviction does
    // not help.
    let server = Setup::oxbloom().set("maxmemory-policy allkeys-lru").set("lazyfree-lazy-eviction no").start();
    let mut client = server.connect();
    let maxmemory = limit(&mut client, 40 * MIB);
    for mebibytes in [64, 1000, 100_000] {
        assert_eq!(error(&mut client, &reserve("huge", mebibytes)), create::MAXMEMORY);
    }
    for n in 0..20 {
        assert_eq!(run(&mut client, &reserve(&format!("key{n}"), 8)), Ok(Value::Okay));
        assert_eq!(run(&mut client, &format!("BF.ADD key{n} item")), Ok(Value::Int(1)));
    }
    assert!(info_number(&mut client, "stats", "evicted_keys") > 10);
    // The server evicts keys with the next command.
    wait_until("keys are evicted", || {
        let _ = run(&mut client, "SET text value");
        used_memory(&mut client) <= maxmemory
    });
    assert_eq!(ask::<u64>(&mut client, "BF.EXISTS key19 item"), 1);
    assert_eq!(run(&mut client, &reserve("whole", 36)), Ok(Value::Okay));
    assert!(server.is_alive());
}

#[test]
fn a_replica_accepts_filters_that_its_master_admitted() {
    let master = with_debug(Setup::oxbloom()).set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    run(&mut client, &reserve("before", 20)).unwrap();
    let replica = start_replica(&master, with_debug(Setup::oxbloom()).set("maxmemory 8mb"));
    let mut reader = replica.connect();
    run(&mut client, &reserve("after", 20)).unwrap();
    run(&mut client, "COPY after copy").unwrap();
    let models = ["native", "classic"].map(|layout| {
        run(&mut client, &format!("BF.RESERVE {layout} 0.01 100 EXPANSION 100000 LAYOUT {layout}")).unwrap();
        let mut model = FilterModel::new(layout);
        model.add(&mut client, 0..2000);
        model
    });
    assert_synchronized(&mut client, &mut reader, "in the end");
    for model in models {
        assert_eq!(model.observe(&mut reader), model.observe(&mut client));
    }
}

#[test]
fn a_server_loads_its_snapshot_even_beyond_maxmemory() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, &reserve("large", 20)).unwrap();
    let mut model = FilterModel::new("large");
    model.add(&mut client, 0..1000);
    run(&mut client, "SAVE").unwrap();
    let server = with_debug(Setup::oxbloom()).set("maxmemory 8mb").on(server.kill()).start();
    model.observe(&mut server.connect());
}

/// Starts a server that may use this much more memory than an idle one.
pub(crate) fn confined(bytes: u64) -> Server {
    confine(with_debug(Setup::oxbloom()), bytes).start()
}

/// A growing native filter allocates its memory in small parts.
#[test]
fn a_replica_without_the_memory_for_the_growth_of_a_filter_exits_instead_of_losing_items() {
    let Pair { master, mut replica } = Pair::start(Setup::oxbloom(), Setup::oxbloom());
    let mut client = master.connect();
    let mut model = FilterModel::new("grown");
    run(&mut client, "BF.RESERVE grown 0.000000000000000001 10").unwrap();
    // The module leaves 32 MiB to the server. The server needs part of that for the data that the master sends.
    confine_running(&replica, Some(40 * MIB));
    for first in (0..).step_by(10_000) {
        if !replica.is_running() {
            break;
        }
        assert!(first < 10_000_000, "the replica has room for all");
        model.add(&mut client, first..first + 10_000);
    }
    assert!(replica.log().contains(EXIT_MESSAGE), "{}", replica.log());
    model.observe(&mut client);
}

#[test]
fn an_empty_filter_takes_no_memory_when_it_is_copied_or_loaded() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    run(&mut client, &reserve("key", 400)).unwrap();
    let resident = |client: &mut Connection| info_number(client, "memory", "used_memory_rss");
    let before = resident(&mut client);
    assert_eq!(ask::<i64>(&mut client, "COPY key copy"), 1);
    run(&mut client, "BF.ADD copy item").unwrap();
    assert_eq!(ask::<i64>(&mut client, "COPY copy other"), 1);
    run(&mut client, "DEBUG RELOAD").unwrap();
    // Three filters of 400 MiB would take far more. Only a few chunks of 4 MiB have been written to.
    let wait = "the server has measured its memory";
    wait_until(wait, || resident(&mut client) < before + 150 * MIB);
    assert_eq!(run(&mut client, "BF.EXISTS other item"), Ok(Value::Int(1)));
}

/// The module does not ask the system about each small allocation. Small allocations must not use up the memory that
/// the server itself needs.
#[test]
fn filters_of_less_than_a_megabyte_leave_the_server_some_memory() {
    let server = confined(64 * MIB);
    let mut client = server.connect();
    // Each filter takes about 950,000 bytes.
    let mut reserve = |n| run(&mut client, &format!("BF.RESERVE key{n} 0.01 780000 NONSCALING"));
    let rejection = (0..1000).find_map(|n| reserve(n).err()).expect("the server takes more memory than it may have");
    assert_eq!(error_text(&rejection), create::SYSTEM);
    (0..3000).for_each(|number| assert!(run(&mut client, &format!("SET key-{number} {number}")).is_ok()));
    assert!(server.is_alive());
}

/// A filter that grows in small steps must not use up the memory that the server itself needs.
#[test]
fn a_filter_that_grows_until_it_is_rejected_leaves_the_server_some_memory() {
    for kind in ["", "COUNTING"] {
        let server = confined(100 * MIB);
        let mut client = server.connect();
        run(&mut client, &format!("BF.RESERVE key 1e-18 10 {kind}")).unwrap();
        let items = |batch: u64| (batch * 1000..(batch + 1) * 1000).collect::<Vec<_>>();
        let rejection = (0..).find_map(|batch| try_many(&mut client, "BF.MADD", "key", &items(batch)).err()).unwrap();
        assert_eq!(error_text(&rejection), grow::SYSTEM);
        let taken: u64 = info_field(&mut client, "key", "ITEMS");
        assert!(taken > 1_000_000, "{taken}");
        for number in 0..3000 {
            // A segment may have room left for this item.
            let added = run(&mut client, &format!("BF.ADD key other-{number}")).map_err(|error| error_text(&error));
            assert!(added.is_ok() || added == Err(grow::SYSTEM.to_owned()), "{added:?}");
            run(&mut client, &format!("SET key-{number} {number}")).unwrap();
        }
        assert!(server.is_alive());
    }
}

#[test]
fn close_to_the_limit_of_the_system_a_filter_is_created_or_rejected() {
    // The allocator rounds sizes up, and takes some memory for itself. So the requested bytes may fit, while the
    // allocation does not.
    for spare in [700, 333] {
        let server = confined(spare * MIB + 123_456);
        let mut client = server.connect();
        let mut created = Vec::new();
        for mebibytes in (16..=spare + 100).rev() {
            let key = format!("key{mebibytes}");
            match run(&mut client, &reserve(&key, mebibytes)).map_err(|error| error_text(&error)) {
                Ok(_) => created.push(key),
                Err(rejection) => assert_eq!(rejection, create::SYSTEM, "{key}"),
            }
        }
        assert!(!created.is_empty(), "nothing was created in {spare} MiB");
        for key in created {
            let mut model = FilterModel::new(&key);
            model.add(&mut client, 0..1000);
            model.observe(&mut client);
        }
        assert!(server.is_alive());
    }
}

#[test]
fn a_limit_of_the_writable_memory_counts_too() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    confine_data(&server, 128 * MIB);
    assert_eq!(error(&mut client, &reserve("large", 256)), create::SYSTEM);
    run(&mut client, &reserve("small", 16)).unwrap();
    let mut model = FilterModel::new("small");
    model.add(&mut client, 0..1000);
    model.observe(&mut client);
}

#[test]
fn memory_returns_when_filters_are_deleted() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    let start = used_memory(&mut client);
    for _ in 0..3 {
        let mut model = FilterModel::new("grown");
        run(&mut client, "BF.RESERVE grown 0.01 10 EXPANSION 1").unwrap();
        model.add(&mut client, 0..2000);
        for n in 0..2000 {
            run(&mut client, &format!("BF.RESERVE key{n} 0.01 {}", 1 + n * 7)).unwrap();
        }
        assert!(used_memory(&mut client) > start + 5 * MIB);
        let keys: Vec<String> = ask(&mut client, "KEYS *");
        for keys in keys.chunks(500) {
            run(&mut client, &format!("DEL {}", keys.join(" "))).unwrap();
        }
        assert_eq!(ask::<u64>(&mut client, "DBSIZE"), 0);
        wait_until("the memory has returned", || used_memory(&mut client) < start + MIB / 2);
    }
    // Rejected and replaced filters leak no memory either.
    run(&mut client, &reserve("large", 8)).unwrap();
    let payload: Vec<u8> = ask(&mut client, "DUMP large");
    for _ in 0..100 {
        run_words(&mut client, &[b"RESTORE".as_slice(), b"large", b"0", &payload, b"REPLACE"]).unwrap();
        error(&mut client, &reserve("large", 8));
        run(&mut client, &reserve("other", 8)).unwrap();
        run(&mut client, "RENAME other large").unwrap();
        assert_eq!(error(&mut client, "BF.RESERVE other 0.01 9223372036854775807"), create::ADDRESS);
    }
    run(&mut client, "DEL large").unwrap();
    wait_until("the memory has returned", || used_memory(&mut client) < start + MIB / 2);
}

/// A layer of a classic filter is one string in a file. It stays in the buffer that the server read it into, so there
/// is no second copy.
#[test]
fn loading_a_classic_filter_takes_its_memory_only_once() {
    let server = Setup::oxbloom().set("rdbcompression no").start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 40000000 LAYOUT classic").unwrap();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..20_000);
    let observed = model.observe(&mut client);
    let size: u64 = ask(&mut client, "MEMORY USAGE key");
    assert!(size > 50 * MIB, "{size}");
    run(&mut client, "SAVE").unwrap();
    let server = Setup::oxbloom().on(server.kill()).start();
    let mut client = server.connect();
    let peak = info_number(&mut client, "memory", "used_memory_peak");
    assert!(peak < size + 16 * MIB, "{peak} for a filter of {size}");
    assert_eq!(model.observe(&mut client), observed);
    model.add(&mut client, 20_000..25_000);
    assert_eq!(ask::<i64>(&mut client, "DEL key"), 1);
    wait_until("the memory is given back", || used_memory(&mut client) < size / 2);
}

/// A filter of fixed size allocates its directory when the first item is added.
#[test]
fn the_first_item_of_a_large_filter_does_not_exceed_the_limit() {
    let server = with_debug(Setup::oxbloom()).module_arguments("filter-memory-limit 100kb").start();
    let mut client = server.connect();
    for options in ["COUNTING", "WINDOW 60", "ROLLING"] {
        let nonscaling = if options == "ROLLING" { "" } else { "NONSCALING" };
        run(&mut client, &format!("BF.RESERVE key 0.01 10000000000 {options} {nonscaling}")).unwrap();
        let before = digest(&mut client);
        assert_eq!(error(&mut client, "BF.ADD key item"), grow::FILTER_LIMIT, "{options}");
        assert_eq!(digest(&mut client), before, "{options}");
        run(&mut client, "DEL key").unwrap();
    }
}

/// A compressed payload may expand to far more bits than its header says.
#[test]
fn a_payload_that_hides_its_size_in_compression_is_rejected() {
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    run(&mut client, "BF.RESERVE key 0.01 20000000 LAYOUT classic").unwrap();
    let dump: Vec<u8> = ask(&mut client, "DUMP key");
    assert!(dump.len() < MIB as usize);
    let original = Payload::parse(&dump);
    let bits = 8 * ask::<Vec<String>>(&mut client, "BF.DEBUG key")[1]
        .split_ascii_whitespace()
        .find_map(|fact| fact.strip_prefix("bytes:")?.parse::<u32>().ok())
        .expect("a number of bytes");
    let noted = [&[2, 0x80][..], &bits.to_be_bytes()].concat();
    let at = original.body.windows(noted.len()).position(|bytes| bytes == noted).expect("the number of bits");
    let mut body = original.body.clone();
    body[at + 2..at + 6].copy_from_slice(&64u32.to_be_bytes());
    let limited = Setup::oxbloom().module_arguments("filter-memory-limit 1mb").start();
    let mut other = limited.connect();
    for payload in [original.seal(&body), dump] {
        let rejected = run_words(&mut other, &[b"RESTORE".as_slice(), b"key", b"0", &payload]).unwrap_err();
        assert_eq!(error_text(&rejected), "ERR Bad data format");
        assert!(
            limited.log().contains("rejected a filter in a file or payload: not enough memory"),
            "{}",
            limited.log()
        );
    }
    assert_eq!(ask::<i64>(&mut other, "DBSIZE"), 0);
    // Without the limit, the payload is accepted.
    assert_eq!(run_words(&mut client, &[b"RESTORE".as_slice(), b"copy", b"0", &original.seal(&body)]), Ok(Value::Okay));
}
