//! Measures what is not a time for an item: memory, saving and loading, replication, merging, and pauses of other
//! clients.

use std::fs;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use testkit::ask;
use testkit::replication::{replica_of, wait_for_replica};
use testkit::server::wait_until;
use xxhash_rust::xxh3::xxh3_64;

use crate::client::{self, longest_pause, timed};
use crate::requests::{ABSENT, Delivery, Requests, items};
use crate::servers::{Instance, Peer, target};
use crate::table::{Table, Unit};
use crate::workload::{fill, power};

const REDISBLOOM: Contender = ("RedisBloom", Peer::RedisBloom);
const OXBLOOM: Contender = ("oxbloom", Peer::Oxbloom);
const CLASSIC: Contender = ("oxbloom, classic", Peer::Classic);

type Contender = (&'static str, Peer);

/// The contenders of all tables here, unless a table names others.
const ALL: [Contender; 3] = [REDISBLOOM, OXBLOOM, CLASSIC];

/// The filter of every measurement.
const KEY: &str = "filter";
const ADD: &[&str] = &["BF.MADD", KEY];

/// The extent of the measurements.
#[derive(Clone, Copy)]
struct Scale {
    /// The number of times that each operation is measured.
    rounds: usize,
    /// The capacity of the filter that is saved and loaded, at 1 %. Half of it is filled.
    saved: u64,
    /// The number of additions that are logged and replicated.
    stream: u64,
    /// The largest size to which filters grow.
    grown: u64,
    /// The capacity of the filters that are copied, deleted and merged, at 1 %, and a number of items that touch nearly
    /// all of their pages: eight per page.
    big: u64,
    touching: u64,
}

#[rustfmt::skip]
const FULL: Scale =
    Scale { rounds: 5, saved: 100_000_000, stream: 1_000_000, grown: 10_000_000, big: 750_000_000, touching: 2_000_000 };

#[rustfmt::skip]
const QUICK: Scale =
    Scale { rounds: 3, saved: 10_000_000, stream: 200_000, grown: 1_000_000, big: 75_000_000, touching: 200_000 };

/// A function that measures into a table.
type Measure = fn(&Scale, &mut Table);

/// Measures the tables whose names start with `only`.
pub(crate) fn measure(only: &str, quick: bool) -> Vec<Table> {
    const COUNTED: [Contender; 2] = [("plain, NONSCALING", Peer::Oxbloom), ("counting", Peer::Oxbloom)];
    const MERGED: [Contender; 2] = [("a loop over memory", Peer::Nothing), OXBLOOM];
    const ONE: [Contender; 1] = [("measured", Peer::Oxbloom)];
    const TABLES: [(&str, &str, &[Contender], Measure); 9] = [
        ("memory", "Memory", &ALL, memory),
        ("memory-counting", "Memory of counting filters", &COUNTED, memory_counting),
        ("memory-cuckoo", "Memory and false positives of cuckoo filters", &ALL, memory_cuckoo),
        ("growing", "Pauses while a filter grows", &ALL, growing),
        ("saving", "Saving and loading", &ALL, saving),
        ("replication", "Replication and append-only file", &[REDISBLOOM, OXBLOOM], propagation),
        ("deleting", "Copying and deleting", &[REDISBLOOM, OXBLOOM], deleting),
        ("merging", "Merging", &MERGED, merging),
        ("following", "Live copies in Python, 10^6 at 1 %", &ONE, following),
    ];
    let scale = if quick { &QUICK } else { &FULL };
    let chosen = TABLES.into_iter().filter(|(name, ..)| name.starts_with(only));
    let measure = |(name, title, contenders, measure): (&str, &str, &[Contender], Measure)| {
        eprintln!("{title}");
        let names: Vec<_> = contenders.iter().map(|(name, _)| *name).collect();
        let mut table = Table::new(name, title, &names);
        measure(scale, &mut table);
        table
    };
    chosen.map(measure).collect()
}

fn start(peer: Peer) -> Instance {
    Instance::start(peer, peer.setup())
}

fn on_all<const N: usize>(contenders: [Contender; N]) -> [(&'static str, Instance); N] {
    contenders.map(|(name, peer)| (name, start(peer)))
}

fn time(table: &mut Table, title: &str, contender: &str, time: Duration) {
    table.push(title, Unit::Seconds, contender, time.as_secs_f64());
}

fn bytes(table: &mut Table, title: &str, contender: &str, bytes: u64) {
    table.push(title, Unit::Bytes, contender, bytes as f64);
}

/// Creates a filter, fills it, and measures its memory.
fn filled(instance: &mut Instance, create: &str, add: &[&str], items: u64, table: &mut Table, row: [&str; 2]) {
    if !create.is_empty() {
        let _: String = ask(&mut instance.connection, create);
    }
    fill(instance, add, 0..items);
    let usage: u64 = ask(&mut instance.connection, &format!("MEMORY USAGE {KEY}"));
    bytes(table, &format!("MEMORY USAGE, {}", row[0]), row[1], usage);
}

/// Measures filters that were reserved large enough, filters that grew, and many small ones.
///
/// jemalloc keeps freed memory for ten seconds, so it is told to return it before the resident memory is read. The
/// first commands touch memory of the server itself, so a filter is created and deleted before the measurement.
fn memory(scale: &Scale, table: &mut Table) {
    const SMALL: u64 = 10_000;
    for (name, mut instance) in on_all(ALL) {
        for (title, rate, capacity) in [
            ("10^4 at 1 %", "0.01", 10_000),
            ("10^6 at 1 %", "0.01", 1_000_000),
            ("10^8 at 1 %", "0.01", 100_000_000),
            ("6·10^8 at 0.1 %", "0.001", 600_000_000),
        ] {
            let create = format!("BF.RESERVE {KEY} {rate} {capacity}");
            filled(&mut instance, &create, ADD, 0, table, [title, name]);
            discard(&mut instance, "UNLINK");
        }
        fill(&mut instance, ADD, 0..SMALL);
        discard(&mut instance, "DEL");
        for size in sizes(scale) {
            let before = settled(&mut instance);
            filled(&mut instance, "", ADD, size, table, [&format!("grown to {}", power(size)), name]);
            if size >= 1_000_000 {
                let grown = settled(&mut instance).saturating_sub(before);
                bytes(table, &format!("resident memory, grown to {}", power(size)), name, grown);
            }
            discard(&mut instance, "DEL");
        }
        let before = instance.info("used_memory");
        (0..SMALL).for_each(|key| assert_eq!(ask::<i64>(&mut instance.connection, &format!("BF.ADD {key} item")), 1));
        let grown = instance.info("used_memory") - before;
        bytes(table, "used_memory, a filter with the default settings", name, grown / SMALL);
    }
}

fn sizes(scale: &Scale) -> impl Iterator<Item = u64> + use<> {
    let greatest = scale.grown;
    let sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];
    sizes.into_iter().filter(move |size| *size <= greatest)
}

fn memory_counting(scale: &Scale, table: &mut Table) {
    let mut instance = start(Peer::Oxbloom);
    let mut measure = |title: &str, plain: &str, counting: &str, items: u64| {
        for (name, parameters, items) in [("plain, NONSCALING", plain, 0), ("counting", counting, items)] {
            filled(&mut instance, &format!("BF.RESERVE {KEY} {parameters}"), ADD, items, table, [title, name]);
            discard(&mut instance, "DEL");
        }
    };
    for (title, plain) in [("10^6 at 1 %", "0.01 1000000 NONSCALING"), ("10^6 at 0.1 %", "0.001 1000000 NONSCALING")] {
        measure(&format!("{title}, NONSCALING"), plain, &format!("{plain} COUNTING"), 1_000_000);
    }
    for size in sizes(scale) {
        let title = format!("grown from 100 to {} at 1 %", power(size));
        measure(&title, &format!("0.01 {size} NONSCALING"), "0.01 100 COUNTING", size);
    }
}

fn memory_cuckoo(scale: &Scale, table: &mut Table) {
    const LOOKED_UP: u64 = 200_000;
    let cases = [
        ("reserved for 10^6, with 10^6 items", "1000000", 1_000_000),
        ("the same, BUCKETSIZE 4", "1000000 BUCKETSIZE 4", 1_000_000),
        ("grown to 3·10^4 from the defaults", "1024", 30_000),
        ("grown to 10^6 from 1024, EXPANSION 2", "1024 EXPANSION 2", 1_000_000),
        ("grown to 10^7 from 1024, EXPANSION 2", "1024 EXPANSION 2", 10_000_000),
    ];
    let absent = items((28, 28), ABSENT.start..ABSENT.start + LOOKED_UP);
    let requests = Requests::new(&["CF.MEXISTS", KEY], &absent, Delivery::Batch(1000));
    for (name, mut instance) in on_all(ALL) {
        for (title, parameters, count) in cases.into_iter().filter(|case| case.2 <= scale.grown) {
            let (create, add) = (format!("CF.RESERVE {KEY} {parameters}"), ["CF.INSERT", KEY, "ITEMS"]);
            filled(&mut instance, &create, &add, count, table, [title, name]);
            let found = client::pipelined(instance.address(), &requests).ones;
            let share = 100.0 * found as f64 / LOOKED_UP as f64;
            table.push(&format!("false positives, {title}"), Unit::Percent, name, share);
            discard(&mut instance, "DEL");
        }
    }
}

/// Measures filters that grow, in turn. While commands with a thousand items each fill a filter, another client measures
/// its longest wait.
fn growing(scale: &Scale, table: &mut Table) {
    let mut instances = on_all(ALL);
    for _ in 0..2 * scale.rounds {
        for (name, instance) in &mut instances {
            let (_, longest) = longest_pause(instance.address(), || fill(instance, ADD, 0..1_000_000));
            time(table, "growing to 10^6, pause of others", name, longest);
            discard(instance, "DEL");
        }
    }
}

/// Measures SAVE, BGSAVE, and a start with the file that they wrote, in turn.
fn saving(scale: &Scale, table: &mut Table) {
    let size = format!("{} at 1 %, half full", power(scale.saved));
    let mut instances = on_all(ALL).map(|(name, mut instance)| {
        let before = resident(&instance);
        reserve(&mut instance, &format!("0.01 {}", scale.saved));
        fill(&mut instance, ADD, 0..scale.saved / 2);
        bytes(table, &format!("resident memory, {size}"), name, resident(&instance).saturating_sub(before));
        (name, instance)
    });
    for _ in 0..scale.rounds {
        instances = instances.map(|(name, mut instance)| {
            let elapsed = timed(|| ask::<String>(&mut instance.connection, "SAVE"));
            let file = fs::metadata(instance.server.folder().join("dump.rdb")).expect("the saved file");
            time(table, "SAVE", name, elapsed);
            bytes(table, "dump.rdb", name, file.len());
            background_save(&mut instance, name, table);
            (name, reload(instance, name, table))
        });
    }
}

/// Measures BGSAVE. The server checks its child only every 100 ms, so this watches the child directly.
fn background_save(instance: &mut Instance, name: &str, table: &mut Table) {
    const PAUSE: Duration = Duration::from_millis(2);
    let mut peak = 0;
    let elapsed = timed(|| {
        let _: String = ask(&mut instance.connection, "BGSAVE");
        let log = instance.server.log();
        let child = log.rsplit("Background saving started by pid ").next().and_then(|rest| rest.lines().next());
        let child = child.and_then(|pid| pid.parse().ok()).expect("the child in the log");
        // The memory of a process that has exited cannot be read, even before its parent has noticed.
        while let Some(private) = process_memory(child, "smaps_rollup", "Private_Dirty") {
            peak = peak.max(private);
            thread::sleep(PAUSE);
        }
    });
    wait_until("the save has ended", || instance.info("rdb_bgsave_in_progress") == 0);
    time(table, "BGSAVE", name, elapsed);
    bytes(table, "BGSAVE, peak memory of the child", name, peak);
}

/// Stops the server, and starts another one with its files.
fn reload(instance: Instance, name: &str, table: &mut Table) -> Instance {
    let Instance { peer, server, .. } = instance;
    let setup = peer.setup().on(server.kill());
    let instance = Instance::start(peer, setup);
    let log = instance.server.log();
    let load = log.split("DB loaded from disk: ").nth(1).and_then(|rest| rest.split(' ').next());
    let load = load.and_then(|seconds| seconds.parse().ok()).expect("the time in the log");
    let peak = process_memory(instance.server.pid(), "status", "VmHWM").expect("a server that lives");
    time(table, "loading", name, Duration::from_secs_f64(load));
    bytes(table, "peak memory of the server that loads", name, peak);
    instance
}

/// Measures a stream with four duplicates in five items, to a server with an append-only file and a replica. RedisBloom
/// has no packed commands, and gets the same items by BF.MADD.
fn propagation(scale: &Scale, table: &mut Table) {
    use testkit::packing::Packing::Lines;
    let stream = (0..scale.stream).map(|index| xxh3_64(&index.to_le_bytes()) % (scale.stream / 5));
    let stream = items((28, 28), stream);
    for (name, peer) in [REDISBLOOM, OXBLOOM] {
        // A rewrite would shorten the file.
        let setup = peer.setup().set("appendonly yes").set("auto-aof-rewrite-percentage 0");
        let mut master = Instance::start(peer, setup.set("repl-diskless-sync-delay 0"));
        let mut replica = Instance::start(peer, replica_of(&master.server, peer.setup()));
        wait_for_replica(&mut master.connection, &mut replica.connection);
        let batches = ("BF.MADD", Delivery::Batch(100));
        let packed = ("BF.ADDPACKED", Delivery::Packed(Lines, 1000));
        for (title, (command, delivery)) in [
            ("BF.MADD of 100, 80 % duplicates", batches),
            ("BF.ADD, 80 % duplicates", ("BF.ADD", Delivery::Pipelined)),
            ("BF.ADDPACKED of 1,000, 80 % duplicates", if peer == Peer::Oxbloom { packed } else { batches }),
        ] {
            let requests = Requests::new(&[command, KEY], &stream, delivery);
            reserve(&mut master, &format!("0.01 {}", scale.stream));
            let written =
                |master: &mut Instance| ["aof_current_size", "master_repl_offset"].map(|name| master.info(name));
            let before = written(&mut master);
            client::pipelined(master.address(), &requests);
            let after = written(&mut master);
            bytes(table, &format!("append-only file, {title}"), name, after[0] - before[0]);
            bytes(table, &format!("replication, {title}"), name, after[1] - before[1]);
            discard(&mut master, "DEL");
        }
    }
}

/// Measures COPY, UNLINK and DEL of a large filter, and the pauses of other clients.
fn deleting(scale: &Scale, table: &mut Table) {
    for (name, mut instance) in on_all([REDISBLOOM, OXBLOOM]) {
        for command in ["UNLINK", "DEL"].repeat(scale.rounds) {
            reserve(&mut instance, &format!("0.01 {}", scale.big));
            fill(&mut instance, ADD, 0..scale.touching);
            // RedisBloom does not support COPY.
            if name == "oxbloom" {
                time(table, "COPY", name, timed(|| ask::<i64>(&mut instance.connection, &format!("COPY {KEY} copy"))));
                assert_eq!(ask::<i64>(&mut instance.connection, "DEL copy"), 1);
            }
            let (elapsed, longest) = longest_pause(instance.address(), || discard(&mut instance, command));
            time(table, command, name, elapsed);
            time(table, &format!("{command}, pause of others"), name, longest);
        }
    }
}

/// Measures merges of filters, which all other clients wait for. The loop, in this process, ORs one array of the size of
/// the filters into another.
fn merging(scale: &Scale, table: &mut Table) {
    let mut instance = start(Peer::Oxbloom);
    let _: String = ask(&mut instance.connection, "CONFIG SET bf.merge-limit 0");
    for (one, other, parameter) in [("a", "b", ""), ("c", "d", "COUNTING")] {
        let reserve = format!("BF.RESERVE {one} 0.01 {} NONSCALING {parameter}", scale.big);
        let _: String = ask(&mut instance.connection, &reserve);
        let _: String = ask(&mut instance.connection, &format!("BF.RESERVE {other} LIKE {one}"));
        fill(&mut instance, &["BF.MADD", one], 0..scale.touching);
        fill(&mut instance, &["BF.MADD", other], scale.touching / 2..scale.touching / 2 + scale.touching);
    }
    let words = scale.big as usize * 10 / 64;
    let (mut target, source) = (vec![1u64; words], vec![2u64; words]);
    for _ in 0..scale.rounds {
        for (title, before, merge) in [
            ("union of two, into one of them", "COPY a t", "BF.MERGE t 1 b"),
            ("intersection of two, into one of them", "COPY a t", "BF.MERGE t 1 b INTERSECT"),
            ("union of two, into a new one", "EXISTS a", "BF.MERGE t 2 a b"),
            ("union of two counting filters, nearly empty", "COPY c t", "BF.MERGE t 1 d"),
        ] {
            time(
                table,
                title,
                "a loop over memory",
                timed(|| {
                    target.iter_mut().zip(&source).for_each(|(target, source)| *target |= source);
                    black_box(&mut target);
                }),
            );
            assert_eq!(ask::<i64>(&mut instance.connection, before), 1);
            let elapsed = timed(|| assert_eq!(ask::<String>(&mut instance.connection, merge), "OK"));
            time(table, title, "oxbloom", elapsed);
            assert_eq!(ask::<i64>(&mut instance.connection, "UNLINK t"), 1);
        }
    }
}

/// Measures copies that follow a filter, by the Python package.
fn following(scale: &Scale, table: &mut Table) {
    let instance = start(Peer::Oxbloom);
    let script = testkit::repository().join("python/benchmarks/following.py");
    let (port, seconds) = (instance.server.port.to_string(), (scale.rounds / 2).to_string());
    for _ in 0..scale.rounds {
        let mut python = Command::new(target().join("python/bin/python"));
        let output = python.arg(&script).args([&port, &seconds]).stderr(Stdio::inherit()).output().expect("Python");
        assert!(output.status.success(), "the script failed");
        for line in String::from_utf8(output.stdout).expect("text").lines() {
            let [title, unit, value] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let unit = match unit {
                "bytes" => Unit::Bytes,
                "nanoseconds" => Unit::Nanoseconds,
                "percent" => Unit::Percent,
                _ => Unit::Number,
            };
            table.push(title, unit, "measured", value.parse().expect("a number"));
        }
    }
}

fn reserve(instance: &mut Instance, parameters: &str) {
    let _: String = ask(&mut instance.connection, &format!("BF.RESERVE {KEY} {parameters}"));
}

fn discard(instance: &mut Instance, command: &str) {
    assert_eq!(ask::<i64>(&mut instance.connection, &format!("{command} {KEY}")), 1);
}

/// Returns the resident memory of the server. The server's own number is up to 100 ms old.
fn resident(instance: &Instance) -> u64 {
    process_memory(instance.server.pid(), "status", "VmRSS").expect("a server that lives")
}

/// Returns the resident memory of the server after the allocator has returned freed memory.
fn settled(instance: &mut Instance) -> u64 {
    let _: String = ask(&mut instance.connection, "MEMORY PURGE");
    resident(instance)
}

/// Returns a number of bytes from a file of a process in `/proc`, or `None` if the process is gone.
fn process_memory(pid: u32, file: &str, name: &str) -> Option<u64> {
    memory_field(&format!("/proc/{pid}/{file}"), name)
}

/// Returns a number of bytes from a file of the system, or `None` if there is no such file.
pub(crate) fn memory_field(path: &str, name: &str) -> Option<u64> {
    let fields = fs::read_to_string(path).ok()?;
    let value = fields.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.parse().ok().map(|kilobytes: u64| 1024 * kilobytes)
}
