//! Failed allocations, in running servers, starting servers and replicas. Some tests make each request fail in turn.

use std::ops::Range;

use redis::{Connection, Value};

use testkit::clock::{SECOND, stopped_pair, turn, with_clock};
use testkit::command::{item, many};
use testkit::filter_model::{Family, FilterModel};
use testkit::info::{
    CUCKOO_LAYOUTS, LAYOUTS, assert_figures_add_up, digest, digest_of, info_field, info_number, used_memory,
};
use testkit::memory::{EXIT_MESSAGE, MIB, confine, confine_running, create, grow, limit, reserve};
use testkit::persistence::rewrite_aof;
use testkit::replication::{Pair, follow, start_replica, wait_for_replica};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, copy_of, error, error_text, oxbloom_with_faults, run, run_words};

/// The free memory of a server, in bytes. It does not suffice for a filter of the size [`LARGE`].
const SPARE: u64 = 20 * MIB;

/// The size of a large filter, in MiB.
const LARGE: u64 = 24;

/// A command and its arguments. They can be any bytes.
type Words = Vec<Vec<u8>>;

fn words<const N: usize>(words: [&[u8]; N]) -> Words {
    words.map(<[u8]>::to_vec).to_vec()
}

fn split(command: &str) -> Words {
    command.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns a packed command on items in lines.
fn lines(command: &str, numbers: Range<u64>) -> Words {
    let items = numbers.flat_map(|number| [item(number), b"\n".to_vec()].concat()).collect();
    split(command).into_iter().chain([items]).collect()
}

/// Returns true if filters of this layout are tables, whose memory grows with their items.
fn is_table(layout: &str) -> bool {
    ["counting", "windowed"].contains(&layout)
}

fn is_mergeable(layout: &str) -> bool {
    !["windowed", "valkey"].contains(&layout)
}

/// Creates a large filter with items, under the name of its layout. The model of a table has only some of the items.
fn fill_large(client: &mut Connection, (layout, flags): (&str, &str)) -> FilterModel {
    let mut model = FilterModel::new(layout);
    if is_table(layout) {
        run(client, &format!("BF.RESERVE {layout} 0.000000000000000001 1000 {flags}")).unwrap();
        for first in (0..).step_by(10_000) {
            many::<Vec<bool>>(client, "BF.MADD", layout, &(first..first + 10_000).collect::<Vec<_>>());
            if first % 100_000 == 0 && ask::<u64>(client, &format!("MEMORY USAGE {layout}")) > LARGE * MIB {
                break;
            }
        }
    } else {
        run(client, &format!("{} {flags}", reserve(layout, LARGE))).unwrap();
    }
    model.add(client, 0..1000);
    model
}

/// Adds items until BF.CARD returns `count`. Items that are false positives when they are added do not count.
fn fill_up(client: &mut Connection, model: &mut FilterModel, count: u64) {
    for number in 0.. {
        let missing = count - ask::<u64>(client, &format!("BF.CARD {}", model.key));
        if missing == 0 {
            return;
        }
        let start = model.items.last().map_or(0, |last| last + 1);
        model.add(client, start..start + missing);
        assert!(number < 100, "{} does not fill up", model.key);
    }
}

/// Returns all commands that create a second filter as large as the one of a layout, each with the error for failed
/// allocations. The list leaves out commands that reserve tables, which take no memory, and merges of filters that
/// cannot be merged.
fn ways_to_more(client: &mut Connection, (layout, flags): (&str, &str)) -> Vec<(Words, &'static str)> {
    let payload: Vec<u8> = ask(client, &format!("DUMP {layout}"));
    let (_, header): (u64, Vec<u8>) = ask(client, &format!("BF.SCANDUMP {layout} 0"));
    let capacity: u64 = ask::<Vec<u64>>(client, &format!("BF.INFO {layout} CAPACITY"))[0];
    let reserving = [
        (split(&format!("BF.RESERVE new 0.01 {capacity} NONSCALING {flags}")), create::SYSTEM),
        (split(&format!("BF.RESERVE new LIKE {layout}")), create::SYSTEM),
        (split(&format!("BF.INSERT new CAPACITY {capacity} {flags} ITEMS item")), create::SYSTEM),
        (words([b"BF.LOADCHUNK", b"new", b"1", &header]), create::SYSTEM),
    ];
    let filling = [
        (split(&format!("BF.MERGE new 1 {layout}")), create::SYSTEM),
        (split(&format!("COPY {layout} new")), ""),
        (words([b"RESTORE", b"new", b"0", &payload]), "ERR Bad data format"),
    ];
    let reserving = reserving.into_iter().filter(|_| !is_table(layout));
    reserving.chain(filling).filter(|(command, _)| is_mergeable(layout) || command[0] != b"BF.MERGE").collect()
}

/// Returns [`ways_to_more`] without RESTORE of a table. The server itself has no memory for that, since the payload is
/// as large as the table.
fn ways_with_little_memory(client: &mut Connection, layout: (&str, &str)) -> Vec<(Words, &'static str)> {
    let mut ways = ways_to_more(client, layout);
    ways.retain(|(command, _)| !is_table(layout.0) || command[0] != b"RESTORE");
    ways
}

#[test]
fn a_failed_allocation_is_an_error_until_there_is_memory_again() {
    let server = with_debug(Setup::oxbloom()).start();
    let mut client = server.connect();
    let mut models = LAYOUTS.map(|layout| fill_large(&mut client, layout)).to_vec();
    // Another server creates the payloads, since this one could later reuse the memory that they took.
    let other = Setup::oxbloom().start();
    let mut maker = other.connect();
    let ways = LAYOUTS.map(|layout| {
        fill_large(&mut maker, layout);
        ways_with_little_memory(&mut maker, layout)
    });
    let ways = ways.concat();
    // A full filter without false positives, whose next layer is large.
    run(&mut client, "BF.RESERVE growing 0.0000001 100 EXPANSION 70000 LAYOUT classic").unwrap();
    let mut model = FilterModel::new("growing");
    fill_up(&mut client, &mut model, 100);
    models.push(model);
    let grow = [(split("BF.ADD growing something-new"), grow::SYSTEM)];
    let before = digest(&mut client);

    confine_running(&server, Some(SPARE));
    for _ in 0..3 {
        for (command, expected) in ways.iter().chain(&grow) {
            let shown = String::from_utf8_lossy(&command[0]).into_owned();
            let Err(rejection) = run_words(&mut client, command) else { panic!("{shown} was not rejected") };
            let rejection = error_text(&rejection);
            assert!(rejection == *expected || expected.is_empty(), "{shown}: {rejection}");
        }
        models.iter().for_each(|model| {
            model.observe(&mut client);
        });
        assert_eq!(digest(&mut client), before);
    }
    assert!(server.log().contains("rejected a filter in a file or payload: not enough memory"), "{}", server.log());

    confine_running(&server, None);
    for (command, _) in &ways {
        run_words(&mut client, command)
            .unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&command[0])));
        if matches!(&*command[0], b"COPY" | b"RESTORE" | b"BF.MERGE") {
            models[0].at("new").observe(&mut client);
        }
        run(&mut client, "DEL new").unwrap();
    }
    for (command, _) in &grow {
        assert_eq!(run_words(&mut client, command), Ok(Value::Int(1)));
        assert_eq!(run_words(&mut client, command), Ok(Value::Int(0)));
    }
    models.iter().for_each(|model| {
        model.observe(&mut client);
    });
}

#[test]
fn the_memory_of_deleted_filters_can_be_reused() {
    // In earlier versions, a module cannot request memory without the risk that the server exits.
    if server_version() < (7, 0) {
        return;
    }
    let server = Setup::oxbloom().start();
    let mut client = server.connect();
    confine_running(&server, Some(1000 * MIB));
    for mebibytes in [700, 500, 700, 100, 700] {
        // The server may free deleted filters in the background.
        wait_until("the memory is free", || run(&mut client, &reserve("key", mebibytes)).is_ok());
        assert_eq!(error(&mut client, &reserve("other", 950)), create::SYSTEM);
        let mut model = FilterModel::new("key");
        model.add(&mut client, 0..1000);
        model.observe(&mut client);
        run(&mut client, "DEL key").unwrap();
    }
}

#[test]
fn a_server_that_cannot_hold_its_saved_data_logs_this_and_does_not_start() {
    for (persistence, settings) in
        [("SAVE", &["save 900 1"][..]), ("", &["appendonly yes", "aof-use-rdb-preamble no", "appendfsync always"])]
    {
        let setup = || settings.iter().fold(with_debug(Setup::oxbloom()), |setup, line| setup.set(*line));
        for (layout, command) in LAYOUTS.into_iter().zip(["COPY", "MERGE", "RESTORE", "COPY", "RESTORE"]) {
            let server = setup().start();
            let mut client = server.connect();
            let model = fill_large(&mut client, layout);
            for (words, _) in ways_to_more(&mut client, layout) {
                if words[0].ends_with(command.as_bytes()) {
                    run_words(&mut client, &words).unwrap();
                    run(&mut client, "RENAME new one").unwrap();
                    run_words(&mut client, &words).unwrap();
                }
            }
            if !persistence.is_empty() {
                run(&mut client, persistence).unwrap();
            }
            let whole = digest(&mut client);
            let server = setup().on(server.kill()).start();
            let mut client = server.connect();
            assert_eq!(digest(&mut client), whole);
            assert_eq!(model.observe(&mut client), model.at("new").observe(&mut client));
            // The memory suffices for the first of three filters.
            let taken = used_memory(&mut client);
            confine(setup(), taken - LARGE * MIB + SPARE).on(server.kill()).must_not_start(&[EXIT_MESSAGE]);
        }
    }
}

#[test]
fn a_replica_exits_if_it_cannot_copy_or_restore_what_its_master_did() {
    let master = Setup::oxbloom().set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    for layout in LAYOUTS {
        fill_large(&mut client, layout);
        let ways = ways_with_little_memory(&mut client, layout);
        // BF commands are only tried with one layout.
        let ways = ways.iter().filter(|(command, _)| layout.0 == "native" || !command[0].starts_with(b"BF."));
        for (command, _) in ways {
            let mut replica = start_replica(&master, Setup::oxbloom());
            confine_running(&replica, Some(SPARE));
            run_words(&mut client, command).unwrap();
            wait_until("the replica has exited", || !replica.is_running());
            let shown = String::from_utf8_lossy(&command[0]);
            assert!(replica.log().contains(EXIT_MESSAGE), "{shown} {layout:?}: {}", replica.log());
            run(&mut client, "DEL new").unwrap();
        }
        run(&mut client, "FLUSHALL").unwrap();
    }
}

#[test]
fn a_failed_allocation_for_a_client_does_not_end_a_writable_replica() {
    let master = Setup::oxbloom().set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    let models = LAYOUTS.map(|layout| fill_large(&mut client, layout));
    let replica = start_replica(&master, Setup::oxbloom().set("replica-read-only no"));
    let mut reader = replica.connect();
    confine_running(&replica, Some(SPARE));
    for layout in LAYOUTS {
        for (command, expected) in ways_with_little_memory(&mut client, layout) {
            let rejection =
                error_text(&run_words(&mut reader, &command).expect_err("a command that needs too much memory"));
            assert!(rejection == expected || expected.is_empty(), "{rejection}");
        }
    }
    models.iter().for_each(|model| {
        model.observe(&mut reader);
    });
}

#[test]
fn a_replica_without_the_memory_for_its_masters_data_exits() {
    let master = Setup::oxbloom().set("repl-diskless-sync-delay 0").start();
    let mut client = master.connect();
    for layout in LAYOUTS {
        fill_large(&mut client, layout);
        for load in ["disabled", "swapdb"] {
            let mut replica = Setup::oxbloom().set(format!("repl-diskless-load {load}")).start();
            confine_running(&replica, Some(SPARE));
            follow(&mut replica.connect(), master.port);
            wait_until("the replica has exited", || !replica.is_running());
            assert!(replica.log().contains(EXIT_MESSAGE), "{layout:?} {load}: {}", replica.log());
        }
        run(&mut client, "FLUSHALL").unwrap();
    }
}

#[test]
fn eviction_deletes_whole_filters_and_the_others_keep_all_items() {
    const FILTERS: usize = 45;
    for (policy, lazy) in
        [("allkeys-lru", "yes"), ("allkeys-random", "no"), ("volatile-lru", "yes"), ("volatile-ttl", "no")]
    {
        let setup = || with_debug(Setup::oxbloom());
        let master = setup().set(format!("maxmemory-policy {policy}")).set(format!("lazyfree-lazy-eviction {lazy}"));
        let pair = Pair::start(master, setup());
        let (mut client, mut reader) = pair.clients();
        limit(&mut client, 12 * MIB);
        let is_volatile = |number: usize| policy.starts_with("volatile") && !number.is_multiple_of(8);
        let key = |number: usize| format!("{}{number}", LAYOUTS[number % LAYOUTS.len()].0);
        let mut models = Vec::new();
        for number in 0..FILTERS {
            let flags = LAYOUTS[number % LAYOUTS.len()].1;
            let capacity = if number % 5 == 0 { 2_000 } else { 400_000 };
            run(&mut client, &format!("BF.RESERVE {} 0.0001 {capacity} EXPANSION 2 {flags}", key(number))).unwrap();
            if is_volatile(number) {
                run(&mut client, &format!("EXPIRE {} {}", key(number), 10_000 + number)).unwrap();
            }
            models.push(FilterModel::new(&key(number)));
            // Adds items to each filter. Some filters grow, and any of them may have been evicted.
            let first = number as u64 * 700;
            models.retain_mut(|model| insert_if_there(&mut client, model, first..first + 700));
        }
        assert!(info_number(&mut client, "stats", "evicted_keys") > 5, "{policy}");
        run(&mut client, "CONFIG SET maxmemory 0").unwrap();
        let mut is_there = |key: &str| ask::<i64>(&mut client, &format!("EXISTS {key}")) == 1;
        models.retain(|model| is_there(&model.key));
        let stay = (0..FILTERS).filter(|&number| is_there(&key(number))).count();
        let unfair = (0..FILTERS)
            .find(|&number| policy.starts_with("volatile") && !is_volatile(number) && !is_there(&key(number)));
        assert_eq!((models.len(), unfair), (stay, None), "{policy}");
        models.iter().for_each(|model| {
            model.observe(&mut client);
        });
        wait_for_replica(&mut client, &mut reader);
        assert_eq!(digest(&mut reader), digest(&mut client), "{policy}");
    }
}

/// Adds items to a filter if it still exists. Returns true if it does.
fn insert_if_there(client: &mut Connection, model: &mut FilterModel, numbers: Range<u64>) -> bool {
    let mut command = split(&format!("BF.INSERT {} NOCREATE ITEMS", model.key));
    command.extend(numbers.clone().map(item));
    match run_words(client, &command) {
        Ok(_) => model.items.extend(numbers),
        Err(rejection) => assert_eq!(error_text(&rejection), "ERR not found", "{}", model.key),
    }
    ask::<i64>(client, &format!("EXISTS {}", model.key)) == 1
}

/// The minimum size of a request that BF.STARVE counts and fails, in bytes. Smaller requests include those of the
/// server itself, which must not fail.
const LEAST: u64 = 32 << 10;

/// The same for commands on small tables, which make small allocations.
const LEAST_OF_TABLES: u64 = 1 << 10;

/// The same for single additions to filters that forget.
const LEAST_OF_SEGMENTS: u64 = 256;

/// A client that runs commands with failing allocations, and a client that checks the effects.
struct Clients {
    asks: Wire,
    looks: Connection,
    /// The minimum size of a request that may fail, in bytes.
    least: u64,
}

impl Clients {
    /// Fails each of a command's memory requests in turn, until the command succeeds. Returns the number of requests.
    /// Checks that each failure is an error, changes nothing and leaks nothing.
    fn fail_each_request(&mut self, command: &Words) -> u64 {
        const TIMES: u64 = 20;
        let least = self.least;
        const REJECTIONS: [&str; 3] =
            ["ERR Insufficient memory", "ERR Bad data format", "ERR module key failed to copy"];
        let shown = String::from_utf8_lossy(&command[0]).into_owned();
        let before = digest(&mut self.looks);
        for request in 1.. {
            let mut used = 0;
            for time in 0..TIMES {
                self.asks.run(&format!("BF.STARVE key {request} {least}"));
                let reply = self.asks.run_words(command);
                let requests = self.asks.run(&format!("BF.STARVE key 0 {least}")).integer() as u64;
                let end = if let Reply::Array(elements) = &reply { elements.last().unwrap_or(&reply) } else { &reply };
                // A request is repeated if the allocator returns unaligned memory, so the number of requests can vary.
                let Reply::Error(rejection) = end else { return requests };
                assert!(REJECTIONS.iter().any(|expected| rejection.starts_with(expected)), "{shown}: {rejection}");
                assert_eq!(requests, request, "{shown} made further requests after one had failed");
                if time == 0 {
                    used = used_memory(&mut self.looks);
                }
            }
            assert_eq!(digest(&mut self.looks), before, "request {request} failed, but {shown} changed something");
            let returned = format!("{shown} has freed its memory after request {request} failed");
            wait_until(&returned, || used_memory(&mut self.looks) < used + TIMES * least.max(LEAST / 8) / 2);
        }
        unreachable!("all commands succeed in the end")
    }
}

#[test]
fn each_request_for_memory_may_fail_and_then_nothing_has_changed() {
    let faulty = || with_debug(Setup::with_module(oxbloom_with_faults()));
    let Pair { master, replica } = Pair::start(faulty(), faulty());
    let mut clients = Clients { asks: Wire::resp2(&master), looks: master.connect(), least: LEAST };
    for (layout, flags) in LAYOUTS.into_iter().filter(|(layout, _)| !is_table(layout)) {
        let client = &mut clients.looks;
        let parameters = format!("0.0000001 15000 {flags}");
        for key in ["grown", "full"] {
            run(client, &format!("BF.RESERVE {key} {parameters} EXPANSION 1")).unwrap();
        }
        let (mut grown, mut full) = (FilterModel::new("grown"), FilterModel::new("full"));
        grown.add(client, 0..40_000);
        fill_up(client, &mut full, 15_000);
        // Only the blocks of a native filter make large requests. The next test has the small requests of its table.
        let either = |native: u64, classic: u64| if layout == "native" { native } else { classic };
        assert!(ask::<Vec<u64>>(client, "BF.INFO grown FILTERS")[0] >= either(2, 3));
        for (key, items) in [("single", 0..10_000), ("other", 5_000..14_000)] {
            run(client, &format!("BF.RESERVE {key} LIKE grown")).unwrap();
            FilterModel::new(key).add(client, items);
        }
        run(client, &format!("BF.RESERVE wide 0.01 500000 {flags}")).unwrap();
        let (_, header): (u64, Vec<u8>) = ask(client, "BF.SCANDUMP grown 0");
        let payload: Vec<u8> = ask(client, "DUMP grown");
        let many = |command: &str, numbers: Range<u64>| split(command).into_iter().chain(numbers.map(item)).collect();
        // Each command has its minimum number of requests. Keys that are created are called `new`.
        let mut commands: Vec<(u64, Words)> = vec![
            (1, split(&format!("BF.RESERVE new {parameters}"))),
            (1, split("BF.RESERVE new LIKE grown")),
            (1, split(&format!("BF.INSERT new CAPACITY 15000 ERROR 0.0000001 {flags} ITEMS a b"))),
            (either(2, 3), split("COPY grown new")),
            (either(2, 3), words([b"RESTORE", b"new", b"0", &payload])),
            (either(2, 3), words([b"BF.LOADCHUNK", b"new", b"1", &header])),
            (1, split("BF.MERGE new 2 single other")),
            (either(0, 1), many("BF.MADD full", 16_000..17_000)),
            (1, many("BF.MADD wide", 0..70_000)),
            (2, many("BF.INSERT wide NX ITEMS", 30_000..100_000)),
            // The packed commands also allocate their reply, and what they replicate if some items are duplicates.
            (2, lines("BF.ADDPACKED wide LINES", 100_000..400_000)),
            (3, lines("BF.ADDPACKED wide LINES", 130_000..430_000)),
            (1, lines("BF.EXISTSPACKED wide LINES", 0..300_000)),
        ];
        commands.extend([(3, split("BF.MERGE new 1 grown")), (either(1, 2), split("BF.MERGE single 1 grown"))]);
        commands.retain(|(_, command)| is_mergeable(layout) || command[0] != b"BF.MERGE");
        if layout == "native" {
            commands.push((1, split("BF.SCANDUMP grown 1")));
        }
        for (least, command) in &commands {
            let requests = clients.fail_each_request(command);
            let shown = String::from_utf8_lossy(&command[0]);
            assert!(requests >= *least, "{layout}: {shown} made {requests} requests");
            run(&mut clients.looks, "DEL new").unwrap();
        }
        let client = &mut clients.looks;
        grown.observe(client);
        full.items.extend(16_000..17_000);
        full.observe(client);
        let mut reader = replica.connect();
        wait_for_replica(client, &mut reader);
        assert_eq!(digest(&mut reader), digest(client), "{layout}");
        run(client, "FLUSHALL").unwrap();
    }
}

#[test]
fn each_request_for_memory_of_a_table_may_fail_and_then_nothing_has_changed() {
    let Pair { master, replica } = stopped_pair(with_clock(), with_clock());
    let mut clients = Clients { asks: Wire::resp2(&master), looks: master.connect(), least: LEAST };
    let many_items = |command: &str, numbers: Range<u64>| split(command).into_iter().chain(numbers.map(item)).collect();
    // These requests grow with the number of items in a command. The table itself makes no large requests, since it
    // does not split.
    run(&mut clients.looks, "BF.RESERVE wide 0.01 500000 NONSCALING COUNTING SEED 7").unwrap();
    for (least, command) in [
        (1, many_items("BF.MADD wide", 0..70_000)),
        (2, many_items("BF.INSERT wide NX ITEMS", 30_000..100_000)),
        (1, many_items("BF.MDEL wide", 0..70_000)),
        (2, many_items("BF.MDEL wide", 30_000..100_000)),
        (2, lines("BF.ADDPACKED wide LINES", 0..300_000)),
        (1, lines("BF.DELPACKED wide COUNT LINES", 0..70_000)),
        (3, lines("BF.DELPACKED wide LINES", 30_000..330_000)),
    ] {
        let requests = clients.fail_each_request(&command);
        assert!(requests >= least, "{} made {requests} requests", String::from_utf8_lossy(&command[0]));
    }
    run(&mut clients.looks, "FLUSHALL").unwrap();

    clients.least = LEAST_OF_TABLES;
    for (capacity, options) in [
        (10, "SEED 7"),
        (6000, "COUNTING SEED 7"),
        (6000, "NONSCALING COUNTING SEED 7"),
        (10, "WINDOW 3600 SEED 7"),
        (6000, "WINDOW 3600 REFRESH NONSCALING SEED 7"),
        (6000, "ROLLING SEED 7"),
    ] {
        let client = &mut clients.looks;
        run(client, &format!("BF.RESERVE grown 0.0000001 {capacity} {options}")).unwrap();
        run(client, "BF.RESERVE other LIKE grown").unwrap();
        let (mut grown, mut other) = (FilterModel::new("grown"), FilterModel::new("other"));
        grown.add(client, 0..3000);
        other.add(client, 2000..3500);
        let mut dump = clients.asks.scan_dump("grown");
        let (cursor, chunk) = dump.pop().expect("a chunk");
        assert_eq!(dump.len(), if capacity == 10 { 2 } else { 1 }, "{options}");
        let (counts, forgets) =
            (options.contains("COUNTING"), ["WINDOW", "ROLLING"].iter().any(|word| options.contains(word)));
        let client = &mut clients.looks;
        let payload: Vec<u8> = ask(client, "DUMP grown");
        // Each command has its minimum number of requests. Keys that are created are called `new`.
        let mut commands: Vec<(u64, Words)> = vec![
            (2, split("COPY grown new")),
            (2, words([b"RESTORE", b"new", b"0", &payload])),
            (0, split(&format!("BF.RESERVE new 0.01 1000 {options}"))),
            (0, split("BF.RESERVE new LIKE grown")),
        ];
        let merges = [(2, ""), (1, "INTERSECT")];
        let merges = merges.into_iter().filter(|(_, how)| how.is_empty() || options.contains("NONSCALING"));
        for (least, how) in merges.filter(|_| !forgets) {
            commands.push((least, split(&format!("BF.MERGE new 2 grown other {how}"))));
            commands.push((least, split(&format!("BF.MERGE other 1 grown {how}"))));
        }
        for (least, command) in &commands {
            let requests = clients.fail_each_request(command);
            let shown = String::from_utf8_lossy(&command[0]);
            assert!(requests >= *least, "{options}: {shown} made {requests} requests");
            run(&mut clients.looks, "DEL new").unwrap();
        }
        for (cursor, data) in &dump {
            assert_eq!(clients.asks.load_chunk("new", *cursor, data), Reply::simple("OK"));
        }
        let load = words([b"BF.LOADCHUNK", b"new", cursor.to_string().as_bytes(), &chunk]);
        let requests = clients.fail_each_request(&load);
        assert!(requests >= 2, "{options}: a chunk made {requests} requests");
        assert_eq!(clients.asks.run("DUMP new"), Reply::bulk(&payload));

        // Adds single items. Some additions need memory.
        let mut rejected = 0;
        for number in 10_000.. {
            if grown.items.len() == 5500 || rejected == 12 {
                break;
            }
            let command = words([b"BF.ADD", b"grown", &item(number)]);
            clients.asks.run(&format!("BF.STARVE key 1 {LEAST_OF_TABLES}"));
            let reply = clients.asks.run_words(&command);
            clients.asks.run(&format!("BF.STARVE key 0 {LEAST_OF_TABLES}"));
            if reply.is_error() {
                assert_eq!(reply, Reply::error(grow::SYSTEM));
                assert!(clients.fail_each_request(&command) > 0);
                rejected += 1;
            }
            grown.items.insert(number);
        }
        assert!(rejected > 2, "{options}: {rejected} additions were rejected");
        grown.observe(&mut clients.looks);
        assert_figures_add_up(&mut clients.looks);
        let mut reader = replica.connect();
        wait_for_replica(&mut clients.looks, &mut reader);
        assert_eq!(digest(&mut reader), digest(&mut clients.looks), "{options}");
        if !counts {
            run(&mut clients.looks, "FLUSHALL").unwrap();
            continue;
        }

        // Removals succeed even if there is no memory for a smaller filter.
        let expected: Vec<u64> = grown.items.iter().copied().collect();
        for (index, &number) in expected.iter().enumerate() {
            clients.asks.run(&format!("BF.STARVE key {} {LEAST_OF_TABLES}", 1 + index % 4));
            let removed = clients.asks.run_words(&words([b"BF.DEL", b"grown", &item(number)]));
            assert_eq!(removed, Reply::Integer(1), "{options}");
            if index % 500 == 0 {
                clients.asks.run(&format!("BF.STARVE key 0 {LEAST_OF_TABLES}"));
                let counts: Vec<u64> = many(&mut clients.looks, "BF.MCOUNT", "grown", &expected);
                assert_eq!(counts.iter().sum::<u64>() as usize, expected.len() - 1 - index, "{options}");
            }
        }
        clients.asks.run(&format!("BF.STARVE key 0 {LEAST_OF_TABLES}"));
        let client = &mut clients.looks;
        assert_eq!(ask::<u64>(client, "BF.CARD grown"), 0);
        assert_eq!(ask::<Vec<f64>>(client, "BF.INFO grown FILL"), [0.0]);
        assert_figures_add_up(client);
        run(client, "FLUSHALL").unwrap();
    }
}

#[test]
fn each_request_for_memory_of_a_cuckoo_filter_may_fail_and_then_nothing_has_changed() {
    let faulty = || with_debug(Setup::with_module(oxbloom_with_faults()));
    let Pair { master, replica } = Pair::start(faulty(), faulty());
    let mut clients = Clients { asks: Wire::resp2(&master), looks: master.connect(), least: LEAST };
    for (layout, flags) in CUCKOO_LAYOUTS {
        // A native filter makes small requests, except for the items of a command.
        let is_classic = layout == "classic_cuckoo";
        let of_layers = |requests: u64| if is_classic { requests } else { 0 };
        clients.least = if is_classic { LEAST } else { LEAST_OF_TABLES };
        let client = &mut clients.looks;
        let mut grown = FilterModel::cuckoo("grown");
        let capacity = if is_classic { 50_000 } else { 64 };
        run(client, &format!("CF.RESERVE grown {capacity} EXPANSION 1 {flags}")).unwrap();
        grown.add(client, 0..if is_classic { 140_000 } else { 3000 });
        let mut dump = clients.asks.scan_dump_of(Family::Cuckoo, "grown");
        let (cursor, chunk) = dump.pop().expect("a chunk");
        let client = &mut clients.looks;
        let (_, header): (u64, Vec<u8>) = ask(client, "CF.SCANDUMP grown 0");
        let payload: Vec<u8> = ask(client, "DUMP grown");
        // Each command has its minimum number of requests. Keys that are created are called `new`.
        let commands: [(u64, Words); 5] = [
            (of_layers(1), split(&format!("CF.RESERVE new {capacity} {flags}"))),
            (of_layers(1), split(&format!("CF.INSERT new CAPACITY {capacity} {flags} ITEMS a b"))),
            (2, split("COPY grown new")),
            (2, words([b"RESTORE", b"new", b"0", &payload])),
            (of_layers(2), words([b"CF.LOADCHUNK", b"new", b"1", &header])),
        ];
        let check = |clients: &mut Clients, least: u64, command: &Words| {
            let requests = clients.fail_each_request(command);
            let shown = String::from_utf8_lossy(&command[0]);
            assert!(requests >= least, "{layout}: {shown} made {requests} requests");
            run(&mut clients.looks, "DEL new").unwrap();
        };
        commands.iter().for_each(|(least, command)| check(&mut clients, *least, command));
        // These requests grow with the number of items in a command. The filter itself does not grow.
        clients.least = LEAST;
        run(&mut clients.looks, &format!("CF.RESERVE wide 500000 EXPANSION 0 {flags}")).unwrap();
        let items = |command: &str, numbers: Range<u64>| split(command).into_iter().chain(numbers.map(item)).collect();
        check(&mut clients, 2, &items("CF.INSERT wide ITEMS", 0..70_000));
        check(&mut clients, 2, &items("CF.INSERTNX wide ITEMS", 30_000..100_000));
        clients.least = if is_classic { LEAST } else { LEAST_OF_TABLES };
        for (cursor, data) in &dump {
            let loaded = clients.asks.load_chunk_of(Family::Cuckoo, "new", *cursor, data);
            assert_eq!(loaded, Reply::simple("OK"));
        }
        let load = words([b"CF.LOADCHUNK", b"new", cursor.to_string().as_bytes(), &chunk]);
        assert!(clients.fail_each_request(&load) >= u64::from(!is_classic), "{layout}");
        assert_eq!(clients.asks.run("DUMP new"), Reply::bulk(&payload));
        // Adds single items, until two additions have needed memory.
        let (mut next, mut rejected) = (1_000_000, 0);
        while rejected < 2 {
            let command = words([b"CF.ADD", b"grown", &item(next)]);
            clients.asks.run(&format!("BF.STARVE key 1 {}", clients.least));
            let reply = clients.asks.run_words(&command);
            clients.asks.run(&format!("BF.STARVE key 0 {}", clients.least));
            if reply.is_error() {
                assert_eq!(reply, Reply::error(grow::SYSTEM));
                assert!(clients.fail_each_request(&command) > 0);
                rejected += 1;
            }
            grown.items.insert(next);
            next += 1;
        }
        // Removals succeed even if there is no memory for a smaller filter.
        for number in 0..500 {
            clients.asks.run(&format!("BF.STARVE key {} {LEAST_OF_TABLES}", 1 + number % 4));
            let removed = clients.asks.run_words(&words([b"CF.DEL", b"wide", &item(number)]));
            assert_eq!(removed, Reply::Integer(1), "{layout}");
        }
        clients.asks.run(&format!("BF.STARVE key 0 {LEAST_OF_TABLES}"));
        let client = &mut clients.looks;
        grown.observe(client);
        let mut wide = FilterModel::cuckoo("wide");
        // CF.INSERTNX has left out false positives, which are no longer there.
        wide.items.extend(500..70_000);
        wide.observe(client);
        assert_figures_add_up(client);
        let mut reader = replica.connect();
        wait_for_replica(client, &mut reader);
        assert_eq!(digest(&mut reader), digest(client), "{layout}");
        run(client, "FLUSHALL").unwrap();
    }
}

#[test]
fn a_failed_addition_to_a_filter_that_forgets_changes_nothing() {
    /// The number of items in the busiest window.
    const BUSY: usize = 3000;
    /// The total number of items.
    const ALL: u64 = 8000;
    const WINDOW: i64 = 3600 * SECOND;
    let pair = stopped_pair(with_clock(), with_clock());
    let ((mut client, mut reader), mut wire) = (pair.clients(), Wire::resp2(&pair.master));
    for (capacity, options) in [
        (10, "REFRESH"),
        (10, "SLICES 64"),
        (2 * BUSY, "NONSCALING"),
        (2 * BUSY, "ROLLING"),
        // Each slice has one item.
        (64, "ROLLING SLICES 64"),
    ] {
        run(&mut client, &format!("BF.RESERVE key 0.0000001 {capacity} WINDOW 3600 {options} SEED 7")).unwrap();
        let slice = WINDOW / info_field::<i64>(&mut client, "key", "SLICES");
        // `came` has the time of each item's addition.
        let check = |client: &mut Connection, came: &[i64], clock: i64| {
            let numbers: Vec<u64> = (0..=came.len() as u64).collect();
            let mut found: Vec<bool> = many(client, "BF.MEXISTS", "key", &numbers);
            assert_eq!(found.pop(), Some(false), "{options}: an item that was not added is found");
            for (number, (since, found)) in came.iter().zip(found).enumerate() {
                let is_last = !options.contains("ROLLING") || number + capacity >= came.len();
                assert!(found || since + WINDOW <= clock || !is_last, "{options}: item {number} was forgotten");
                assert!(!found || since + WINDOW + slice > clock, "{options}: item {number} was not forgotten");
            }
        };
        let (mut came, mut clock, mut rejected) = (Vec::new(), 0, 0);
        for number in 0..ALL {
            // A pause that is longer than the window, then a fast stream of items, then one at half the speed.
            clock += match number % 4000 {
                0 => 2 * WINDOW,
                1..1500 => WINDOW / BUSY as i64,
                _ => 2 * WINDOW / BUSY as i64,
            };
            turn(&mut client, clock);
            let present: u64 = ask(&mut client, "BF.CARD key");
            for request in 1.. {
                let before = digest_of(&mut client, "key");
                wire.run(&format!("BF.STARVE key {request} {LEAST_OF_SEGMENTS}"));
                let reply = wire.run_words(&words([b"BF.ADD", b"key", &item(number)]));
                wire.run(&format!("BF.STARVE key 0 {LEAST_OF_SEGMENTS}"));
                if !reply.is_error() {
                    assert_eq!(reply, Reply::Integer(1), "{options}: item {number}");
                    break;
                }
                assert_eq!(reply, Reply::error(grow::SYSTEM));
                assert_eq!(ask::<u64>(&mut client, "BF.CARD key"), present, "{options}: item {number}");
                check(&mut client, &came, clock);
                rejected += 1;
                assert_eq!(digest_of(&mut client, "key"), before, "{options}: item {number}");
            }
            came.push(clock);
        }
        assert!(rejected > 2, "{options}: only {rejected} additions failed");
        assert_figures_add_up(&mut client);
        wait_for_replica(&mut client, &mut reader);
        turn(&mut reader, clock);
        check(&mut reader, &came, clock);
        // The replica may have split a growing table when the master had no memory for that.
        if capacity > 10 {
            assert_eq!(digest(&mut reader), digest(&mut client), "{options}");
        }
        run(&mut client, "FLUSHALL").unwrap();
    }
}

/// A table keeps its loaded chunks if there is no memory for the others.
#[test]
fn a_chunk_for_which_there_is_no_memory_is_rejected_and_can_be_loaded_later() {
    for (layout, flags) in LAYOUTS.into_iter().filter(|(layout, _)| is_table(layout)) {
        let server = with_debug(Setup::oxbloom()).start();
        let maker = with_debug(Setup::oxbloom()).start();
        let mut client = server.connect();
        let model = fill_large(&mut maker.connect(), (layout, flags));
        let chunks = Wire::resp2(&maker).scan_dump(layout);
        assert!(chunks.len() > 4);
        confine_running(&server, Some(SPARE));
        let mut wire = Wire::resp2(&server);
        let loaded = chunks.iter().position(|(cursor, data)| {
            let before = digest(&mut client);
            match wire.load_chunk("copy", *cursor, data) {
                Reply::Error(rejection) => {
                    assert_eq!(rejection, create::SYSTEM);
                    assert_eq!(digest(&mut client), before);
                    true
                }
                reply => {
                    assert_eq!(reply, Reply::simple("OK"));
                    false
                }
            }
        });
        let loaded = loaded.expect("a chunk that is rejected");
        confine_running(&server, None);
        for (cursor, data) in &chunks[loaded..] {
            assert_eq!(wire.load_chunk("copy", *cursor, data), Reply::simple("OK"));
        }
        model.at("copy").observe(&mut client);
        assert_eq!(digest_of(&mut client, "copy"), digest_of(&mut maker.connect(), layout));
    }
}

/// The log has a header and chunks, like the stream of a master.
#[test]
fn a_server_without_the_memory_for_the_chunks_of_a_table_exits_rather_than_forget_its_items() {
    for (layout, flags) in LAYOUTS.into_iter().filter(|(layout, _)| is_table(layout)) {
        let setup = || with_debug(Setup::oxbloom()).set("appendonly yes").set("aof-use-rdb-preamble no");
        let server = setup().set("repl-diskless-sync-delay 0").start();
        let mut client = server.connect();
        let model = fill_large(&mut client, (layout, flags));
        let chunks = Wire::resp2(&server).scan_dump(layout);
        run(&mut client, &format!("DEL {layout}")).unwrap();

        let mut replica = start_replica(&server, Setup::oxbloom());
        confine_running(&replica, Some(SPARE));
        let mut wire = Wire::resp2(&server);
        for (cursor, data) in &chunks {
            assert_eq!(wire.load_chunk(layout, *cursor, data), Reply::simple("OK"));
        }
        wait_until("the replica has exited", || !replica.is_running());
        assert!(replica.log().contains(EXIT_MESSAGE), "{}", replica.log());

        rewrite_aof(&mut client);
        drop((client, wire));
        let folder = server.kill();
        let copy = copy_of(folder.path());
        model.observe(&mut setup().on(copy).start().connect());
        confine(setup(), SPARE).on(folder).must_not_start(&[EXIT_MESSAGE]);
    }
}

/// Some requests grow with the number of layers, such as those for a header.
#[test]
fn requests_that_grow_with_the_number_of_layers_may_fail_and_none_ends_the_server() {
    const MANY: u64 = 1000;
    // A header with `MANY` layers is larger than `LEAST` bytes. Few other requests are as large.
    const LEAST: u64 = 28 * MANY;
    let faulty = || with_debug(Setup::with_module(oxbloom_with_faults())).set("appendonly yes");
    let server = faulty().set("aof-use-rdb-preamble no").start();
    let mut client = server.connect();
    let mut wire = Wire::resp2(&server);
    for (layout, flags) in LAYOUTS {
        let mut model = FilterModel::new("deep");
        let is_table = !["classic", "valkey"].contains(&layout);
        if is_table {
            // The filter has one or two layers, and a chunk of more than `LEAST` bytes.
            run(&mut client, &format!("BF.RESERVE deep 0.0000001 1000 {flags}")).unwrap();
            model.add(&mut client, 0..20_000);
        } else {
            run(&mut client, &format!("BF.RESERVE deep 0.5 1 EXPANSION 1 {flags}")).unwrap();
            for first in (0..).step_by(50) {
                model.add(&mut client, first..first + 50);
                if ask::<Vec<u64>>(&mut client, "BF.INFO deep FILTERS")[0] > MANY {
                    break;
                }
            }
        }
        let (cursor, header): (u64, Vec<u8>) = ask(&mut client, "BF.SCANDUMP deep 0");
        let payload: Vec<u8> = ask(&mut client, "DUMP deep");
        // The last chunk is the table's.
        let chunks = Wire::resp2(&server).scan_dump("deep");
        let before_last = chunks[chunks.len() - 2].0;
        assert!(is_table || header.len() as u64 > LEAST, "{layout}: {}", header.len());
        let mut starve = |command: &Words| {
            for request in 1u64.. {
                wire.run(&format!("BF.STARVE deep {request} {LEAST}"));
                let reply = wire.run_words(command);
                let requests = wire.run(&format!("BF.STARVE deep 0 {LEAST}")).integer() as u64;
                if requests < request {
                    assert!(!reply.is_error(), "{layout}: {reply:?}");
                    return request - 1;
                }
                // A module cannot make DUMP fail, so it writes a payload that RESTORE rejects.
                if let Reply::Bulk(cut) = &reply {
                    let restored = wire.run_words(&[b"RESTORE".to_vec(), b"cut".to_vec(), b"0".to_vec(), cut.clone()]);
                    assert_eq!(restored, Reply::error("ERR Bad data format"), "{layout}");
                } else if !command[0].starts_with(b"DEBUG") {
                    let text = format!("{reply:?}");
                    assert!(
                        text.contains("Insufficient memory")
                            || text.contains("Bad data")
                            || text.contains("failed to copy"),
                        "{text}"
                    );
                }
                wire.run("DEL new");
            }
            unreachable!("all commands succeed in the end")
        };
        // The minimum number of requests that grow with the layers.
        let of_layers = u64::from(!is_table);
        for (least, command) in [
            (of_layers, split("BF.SCANDUMP deep 0")),
            (u64::from(is_table), split(&format!("BF.SCANDUMP deep {before_last}"))),
            (0, split("BF.DEBUG deep")),
            (of_layers, split("COPY deep new")),
            (u64::from(is_table), split("DUMP deep")),
            (of_layers, words([b"BF.LOADCHUNK", b"new", cursor.to_string().as_bytes(), &header])),
            (of_layers, words([b"RESTORE", b"new", b"0", &payload])),
            (1, split("DEBUG DIGEST-VALUE deep")),
        ] {
            run(&mut client, "DEL new").unwrap();
            let shown = String::from_utf8_lossy(&command[0]).into_owned();
            assert!(starve(&command) >= least, "{layout}: {shown}");
        }
        // The child that rewrites the log exits when the request fails, and the old log stays.
        wire.run(&format!("BF.STARVE deep 1 {LEAST}"));
        run(&mut client, "BGREWRITEAOF").unwrap();
        let idle = |client: &mut Connection| info_number(client, "persistence", "aof_rewrite_in_progress") == 0;
        wait_until("the rewrite ends", || idle(&mut client));
        wire.run(&format!("BF.STARVE deep 0 {LEAST}"));
        model.observe(&mut client);
        run(&mut client, "FLUSHALL").unwrap();
    }
    assert!(server.is_alive() && !server.log().contains("crashed by signal"));
}
