//! Active defragmentation of many small filters and some large ones. No reply changes.

use std::ops::Range;
use std::thread;

use redis::{Connection, Value};

use models::random::Random;
use testkit::command::{ABSENT, item, many};
use testkit::info::{assert_figures_add_up, digest, info_number, used_memory};
use testkit::server::{server_version, wait_until, with_debug};
use testkit::{Server, Setup, run};

/// Kinds of filters, each with the number of items in a filter. The items of filter `n` are `n`, `n + 1`, and so on.
const KINDS: [(&str, u64); 12] = [
    ("0.01 10", 2),
    ("0.01 100", 3),
    ("0.01 4 EXPANSION 1", 9),
    ("0.001 10 EXPANSION 2", 25),
    ("0.01 1000", 3),
    ("0.01 10 COUNTING", 2),
    ("0.01 4 EXPANSION 1 COUNTING", 9),
    ("0.01 10 WINDOW 604800", 2),
    ("0.01 4 WINDOW 604800 SLICES 64 REFRESH", 9),
    ("0.01 1000 ROLLING", 25),
    ("0.01 10 LAYOUT classic", 2),
    ("0.01 4 EXPANSION 1 LAYOUT classic", 9),
];

/// The number of commands in a pipeline.
const PIPELINED: usize = 200;

/// One filter in `GROWING` grows at the end.
const GROWING: usize = 50;

/// Filters with many allocations, which the server moves in steps.
const LARGE: [(&str, &str); 2] = [("large", "COUNTING"), ("large-window", "WINDOW 604800 SLICES 64")];
const LARGE_ITEMS: Range<u64> = 0..1_000_000;

pub(crate) fn soak(filters: u64, mut random: Random) {
    let server = with_debug(Setup::oxbloom().module_arguments("lookahead on lookahead-size 1")).start();
    let mut client = server.connect();
    run(&mut client, "CONFIG SET activedefrag yes").expect("a server that can move memory");
    run(&mut client, "CONFIG SET activedefrag no").unwrap();
    fill(&server, filters);
    for (key, options) in LARGE {
        run(&mut client, &format!("BF.RESERVE {key} 0.01 100 {options}")).unwrap();
        assert!(large(&mut client, "BF.MADD", key) > LARGE_ITEMS.end * 9 / 10);
    }
    let (kept, gone): (Vec<u64>, Vec<u64>) = (0..filters).partition(|_| random.chance(50));
    for numbers in gone.chunks(1000) {
        let keys: Vec<String> = numbers.iter().map(|n| format!("f{n}")).collect();
        let _: u64 = redis::cmd("DEL").arg(&keys).query(&mut client).unwrap();
    }
    let before = digest(&mut client);
    // The server checks its fragmentation at intervals.
    wait_until("the memory is fragmented", || holes(&mut client) > used_memory(&mut client) / 4);
    let holes_before = holes(&mut client);
    let may_be_off = server_version() >= (7, 0);
    if may_be_off {
        run(&mut client, "CONFIG SET bf.bloom-defrag-enabled no").unwrap();
    }
    for setting in [
        "active-defrag-ignore-bytes 1",
        "active-defrag-threshold-lower 0",
        "active-defrag-threshold-upper 1",
        "active-defrag-cycle-min 50",
        "active-defrag-cycle-max 90",
        "active-defrag-max-scan-fields 100",
        "hz 500",
        "activedefrag yes",
    ] {
        run(&mut client, &format!("CONFIG SET {setting}")).unwrap_or_else(|error| panic!("{setting}: {error}"));
    }
    if may_be_off {
        let fields = ["active_defrag_key_hits", "active_defrag_key_misses"];
        let visited =
            |client: &mut Connection| -> u64 { fields.map(|field| info_number(client, "stats", field)).iter().sum() };
        wait_until("the defragmenter has visited all keys", || visited(&mut client) > kept.len() as u64);
        for figure in ["bf_bloom_defrag_hits", "bf_bloom_defrag_misses"] {
            assert_eq!(info_number(&mut client, "bf", figure), 0, "it moved a filter");
        }
        run(&mut client, "CONFIG SET bf.bloom-defrag-enabled yes").unwrap();
    }
    let mut moved = |field: &str| info_number(&mut client, "stats", field);
    // A filter has at least three allocations in addition to its key.
    wait_until("the defragmenter has moved filters", || {
        moved("active_defrag_key_hits") > kept.len() as u64 / 2 && moved("active_defrag_hits") > kept.len() as u64
    });
    wait_until("half of the holes are gone", || holes(&mut client) < holes_before / 2);
    let hits = info_number(&mut client, "stats", "active_defrag_hits");
    let ours = info_number(&mut client, "bf", "bf_bloom_defrag_hits");
    assert!((kept.len() as u64..=hits).contains(&ours), "{ours} of {hits}");
    assert_eq!(digest(&mut client), before);
    assert!(of_each(&server, "BF.MEXISTS", &kept, own_items), "an item is missing");
    for (key, _) in LARGE {
        assert_eq!(large(&mut client, "BF.MEXISTS", key), LARGE_ITEMS.end, "an item of {key} is missing");
    }
    // The filters are still intact: they can grow, and can be freed.
    let growing: Vec<u64> = kept.iter().copied().step_by(GROWING).collect();
    let more = |_| ABSENT..ABSENT + 100;
    of_each(&server, "BF.MADD", &growing, more);
    assert!(of_each(&server, "BF.MEXISTS", &growing, more), "an item is missing");
    let holes_after = holes(&mut client);
    assert_eq!(run(&mut client, "FLUSHALL SYNC"), Ok(Value::Okay));
    assert_figures_add_up(&mut client);
    println!(
        "{} of {filters} filters were kept, and {hits} allocations were moved. Unused bytes in pages: {holes_before} \
         before, {holes_after} after.",
        kept.len()
    );
}

/// Runs a command on a large filter, with its items. Returns the number of replies that were true.
fn large(client: &mut Connection, command: &str, key: &str) -> u64 {
    let numbers: Vec<u64> = LARGE_ITEMS.collect();
    let yes = |numbers: &[u64]| many::<Vec<bool>>(client, command, key, numbers).into_iter().filter(|yes| *yes).count();
    numbers.chunks(1000).map(yes).sum::<usize>() as u64
}

/// Returns the number of unused bytes in the allocator's pages.
fn holes(client: &mut Connection) -> u64 {
    info_number(client, "memory", "allocator_frag_bytes")
}

fn own_items(n: u64) -> Range<u64> {
    n..n + KINDS[(n % KINDS.len() as u64) as usize].1
}

fn fill(server: &Server, filters: u64) {
    let numbers: Vec<u64> = (0..filters).collect();
    let mut client = server.connect();
    for numbers in numbers.chunks(PIPELINED) {
        let mut pipe = redis::pipe();
        for &n in numbers {
            let (parameters, _) = KINDS[(n % KINDS.len() as u64) as usize];
            pipe.cmd("BF.RESERVE").arg(format!("f{n}")).arg(parameters.split(' ').collect::<Vec<_>>());
        }
        pipe.query::<Value>(&mut client).unwrap();
    }
    of_each(server, "BF.MADD", &numbers, own_items);
}

/// Runs a command on each filter with its items, over two connections. Returns true if all replies are true.
fn of_each(server: &Server, command: &str, numbers: &[u64], items: impl Fn(u64) -> Range<u64> + Sync) -> bool {
    let run = |numbers: &[u64]| {
        let mut client = server.connect();
        let mut all = true;
        for numbers in numbers.chunks(PIPELINED) {
            let mut pipe = redis::pipe();
            for &n in numbers {
                pipe.cmd(command).arg(format!("f{n}")).arg(items(n).map(item).collect::<Vec<_>>());
            }
            all &= pipe.query::<Vec<Vec<bool>>>(&mut client).unwrap().iter().flatten().all(|&yes| yes);
        }
        all
    };
    let (first, second) = numbers.split_at(numbers.len() / 2);
    thread::scope(|scope| {
        let first = scope.spawn(|| run(first));
        run(second) & first.join().expect("a thread that did not panic")
    })
}
