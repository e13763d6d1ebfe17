//! Each request for memory may fail: those of blocks, tables, cuckoo filters, and filters of many layers. Then nothing
//! has changed.

use std::ops::Range;

use crate::memory::filling::{Words, fill_up, is_mergeable, is_table, lines, split, words};
use crate::memory::starving::{Clients, LEAST, LEAST_OF_TABLES};
use testkit::clock::{stopped_pair, with_clock};
use testkit::command::{many, with_items};
use testkit::filter_model::{Family, FilterModel};
use testkit::info::{CUCKOO_LAYOUTS, LAYOUTS, assert_figures_add_up, digest, digest_of};
use testkit::memory::starving;
use testkit::replication::{Pair, assert_synchronized, wait_for_replica};
use testkit::server::with_debug;
use testkit::wire::{Reply, Wire};
use testkit::{Setup, ask, oxbloom_with_faults, run};

/// Copies the filter `grown` to `new` in chunks, and fails each request of the last one. Returns their number.
fn copy_in_chunks(clients: &mut Clients, family: Family) -> u64 {
    let mut chunks = clients.asks.scan_dump_of(family, "grown");
    let (last, data) = chunks.pop().expect("a chunk");
    for (cursor, data) in &chunks {
        assert_eq!(clients.asks.load_chunk_of(family, "new", *cursor, data), Reply::simple("OK"));
    }
    let command = format!("{}.LOADCHUNK", family.prefix());
    let requests = clients.fail_each_request(&words([command.as_bytes(), b"new", last.to_string().as_bytes(), &data]));
    assert_eq!(clients.asks.run("DUMP new"), clients.asks.run("DUMP grown"));
    requests
}

/// Returns a command with items.
fn items(command: &str, numbers: Range<u64>) -> Words {
    with_items(command, &numbers.collect::<Vec<_>>())
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
        // Each command has its minimum number of requests. Keys that are created are called `new`.
        let mut commands: Vec<(u64, Words)> = vec![
            (1, split(&format!("BF.RESERVE new {parameters}"))),
            (1, split("BF.RESERVE new LIKE grown")),
            (1, split(&format!("BF.INSERT new CAPACITY 15000 ERROR 0.0000001 {flags} ITEMS a b"))),
            (either(2, 3), split("COPY grown new")),
            (either(2, 3), words([b"RESTORE", b"new", b"0", &payload])),
            (either(2, 3), words([b"BF.LOADCHUNK", b"new", b"1", &header])),
            (1, split("BF.MERGE new 2 single other")),
            (either(0, 1), items("BF.MADD full", 16_000..17_000)),
            (1, items("BF.MADD wide", 0..70_000)),
            (2, items("BF.INSERT wide NX ITEMS", 30_000..100_000)),
            // The packed commands also allocate their reply, and what they replicate packed if some items are duplicates.
            (2, lines("BF.ADDPACKED wide LINES", 100_000..400_000)),
            (either(3, 2), lines("BF.ADDPACKED wide LINES", 130_000..430_000)),
            (1, lines("BF.EXISTSPACKED wide LINES", 0..300_000)),
            // The last changes of the filter, from now on.
            (1, split("BF.CHANGES grown")),
        ];
        commands.extend([(3, split("BF.MERGE new 1 grown")), (either(1, 2), split("BF.MERGE single 1 grown"))]);
        commands.retain(|(_, command)| is_mergeable(layout) || command[0] != b"BF.MERGE");
        if layout == "native" {
            commands.push((1, split("BF.SCANDUMP grown 1")));
        }
        clients.fail_all(layout, &commands);
        let client = &mut clients.looks;
        grown.observe(client);
        full.items.extend(16_000..17_000);
        full.observe(client);
        let mut reader = replica.connect();
        assert_synchronized(client, &mut reader, layout);
        run(client, "FLUSHALL").unwrap();
    }
}

#[test]
fn each_request_for_memory_of_a_table_may_fail_and_then_nothing_has_changed() {
    let Pair { master, replica } = stopped_pair(with_clock(), with_clock());
    let mut clients = Clients { asks: Wire::resp2(&master), looks: master.connect(), least: LEAST };
    // These requests grow with the number of items in a command. The table itself makes no large requests, since it
    // does not split.
    run(&mut clients.looks, "BF.RESERVE wide 0.01 500000 NONSCALING COUNTING SEED 7").unwrap();
    let commands = [
        (1, items("BF.MADD wide", 0..70_000)),
        (2, items("BF.INSERT wide NX ITEMS", 30_000..100_000)),
        (1, items("BF.MDEL wide", 0..70_000)),
        (2, items("BF.MDEL wide", 30_000..100_000)),
        (2, lines("BF.ADDPACKED wide LINES", 0..300_000)),
        (1, lines("BF.DELPACKED wide COUNT LINES", 0..70_000)),
        (3, lines("BF.DELPACKED wide LINES", 30_000..330_000)),
    ];
    clients.fail_all("wide", &commands);
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
        clients.fail_all(options, &commands);
        let requests = copy_in_chunks(&mut clients, Family::Bloom);
        assert!(requests >= 2, "{options}: a chunk made {requests} requests");

        let rejected = clients.fail_additions(&mut grown, 12, 5500);
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

        let expected: Vec<u64> = grown.items.iter().copied().collect();
        for (index, &number) in expected.iter().enumerate() {
            clients.remove_while_starving("BF.DEL grown", number);
            if index % 500 == 0 {
                let counts: Vec<u64> = many(&mut clients.looks, "BF.MCOUNT", "grown", &expected);
                assert_eq!(counts.iter().sum::<u64>() as usize, expected.len() - 1 - index, "{options}");
            }
        }
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
        clients.fail_all(layout, &commands);
        // These requests grow with the number of items in a command. The filter itself does not grow.
        clients.least = LEAST;
        run(&mut clients.looks, &format!("CF.RESERVE wide 500000 EXPANSION 0 {flags}")).unwrap();
        let inserting = [("CF.INSERT wide ITEMS", 0..70_000), ("CF.INSERTNX wide ITEMS", 30_000..100_000)];
        clients.fail_all(layout, &inserting.map(|(command, numbers)| (2, items(command, numbers))));
        clients.least = if is_classic { LEAST } else { LEAST_OF_TABLES };
        assert!(copy_in_chunks(&mut clients, Family::Cuckoo) >= u64::from(!is_classic), "{layout}");
        assert_eq!(clients.fail_additions(&mut grown, 2, usize::MAX), 2);
        (0..500).for_each(|number| clients.remove_while_starving("CF.DEL wide", number));
        let client = &mut clients.looks;
        grown.observe(client);
        let mut wide = FilterModel::cuckoo("wide");
        // CF.INSERTNX has left out false positives, which are no longer there.
        wide.items.extend(500..70_000);
        wide.observe(client);
        assert_figures_add_up(client);
        let mut reader = replica.connect();
        assert_synchronized(client, &mut reader, layout);
        run(client, "FLUSHALL").unwrap();
    }
}

/// The flags of renewed items are allocated after the filter was created, and the flags of new ones before that.
#[test]
fn a_creation_is_an_event_also_if_the_additions_then_fail_as_a_whole() {
    let server = Setup::with_module(oxbloom_with_faults()).set("notify-keyspace-events KEA").start();
    let (mut client, mut listener) = (Wire::resp2(&server), Wire::resp2(&server));
    listener.run("SUBSCRIBE __keyspace@0__:new");
    let mut created_and_failed = 0;
    for command in [
        items("BF.INSERT new WINDOW 1000 REFRESH ITEMS", 0..40_000),
        items("BF.INSERT new WINDOW 1000 TTL 100 ITEMS", 0..40_000),
        lines("BF.ADDPACKED new LINES", 0..400_000),
        items("BF.INSERT new COUNTING ITEMS", 0..40_000),
        items("CF.INSERT new ITEMS", 0..40_000),
        items("CF.INSERT new LAYOUT classic CAPACITY 40000 ITEMS", 0..40_000),
    ] {
        for request in 1.. {
            let (reply, requests) = starving(&mut client, request, LEAST, |client| client.run_words(&command));
            let exists = client.run("EXISTS new") == Reply::Integer(1);
            client.run("DEL new");
            client.run("PUBLISH __keyspace@0__:new end");
            let event = |listener: &mut Wire| listener.receive().elements()[2].text();
            let events: Vec<_> =
                std::iter::from_fn(|| Some(event(&mut listener)).filter(|event| event != "end")).collect();
            let creations = events.iter().filter(|event| event.ends_with(".reserve")).count();
            let shown = String::from_utf8_lossy(&command[0]);
            assert_eq!(creations, usize::from(exists), "{shown} with request {request} failing: {events:?}");
            created_and_failed += u64::from(exists && reply.is_error());
            if requests < request {
                break;
            }
        }
    }
    assert!(created_and_failed > 0, "no command failed after it had created its key");
}

#[test]
fn a_filter_is_folded_even_if_the_allocator_cannot_shrink_its_bits() {
    let server = with_debug(Setup::with_module(oxbloom_with_faults())).start();
    let (mut client, mut wire) = (server.connect(), Wire::resp2(&server));
    run(&mut client, "BF.RESERVE key 0.01 1000000").unwrap();
    let mut model = FilterModel::new("key");
    model.add(&mut client, 0..1000);
    for copy in ["other", "merged", "kept"] {
        run(&mut client, &format!("COPY key {copy}")).unwrap();
    }
    let mut fold = |key: &str, request: u64| {
        starving(&mut wire, request, LEAST, |wire| wire.run(&format!("BF.FOLD {key} CAPACITY 500000")).integer())
    };
    // The last request gives back the bits that are no longer used.
    let (factor, requests) = fold("other", 0);
    assert!(factor > 1 && requests > 1);
    assert_eq!(fold("key", requests), (factor, requests));
    assert_eq!(digest_of(&mut client, "key"), digest_of(&mut client, "other"));
    model.observe(&mut client);
    // So does a merge with a smaller filter. If it fails, it has not folded its destination.
    for request in 1..=requests {
        let (reply, _) = starving(&mut wire, request, LEAST, |wire| wire.run("BF.MERGE merged 1 key"));
        assert_eq!(reply.is_error(), request < requests, "{reply:?}");
        let same = if reply.is_error() { "kept" } else { "key" };
        assert_eq!(digest_of(&mut client, "merged"), digest_of(&mut client, same));
    }
}
