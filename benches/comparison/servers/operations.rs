//! Measures memory, saving and loading, replication, and pauses of other clients.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use redis::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::client::{self, longest_pause, timed};
use crate::packed::{self, LINES, Lengths};
use crate::peers::{Instance, Peer};
use crate::requests::Requests;
use crate::statistics::Series;
use crate::workloads::fill;
use testkit::replication::{replica_of, wait_for_replica};
use testkit::server::wait_until;
use testkit::{ask, error_text, run};

/// The peers that are compared. The floor has no filters.
const PEERS: [Peer; 2] = [Peer::Oxbloom, Peer::RedisBloom];

/// The peers that are compared where the layout matters most.
const WITH_CLASSIC: [Peer; 3] = [Peer::Oxbloom, Peer::Classic, Peer::RedisBloom];

/// The filter of every measurement.
const KEY: &str = "filter";

/// The length of an item, that of a typical URL.
const LENGTH: usize = 28;

/// The size at which the memory of growing filters has a row of its own.
const GROWN: u64 = 1_000_000;

/// The titles of the memory of filters that were reserved large enough, and of filters that have grown.
pub(crate) const MEMORY_RESERVED: &str = "MEMORY USAGE";
pub(crate) const MEMORY_GROWN: &str = "MEMORY USAGE, grown from the defaults";
pub(crate) const RESIDENT_GROWN: &str = "resident memory, grown from the defaults";

/// The title of the time of COPY.
pub(crate) const COPY: &str = "COPY";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Seconds,
}

/// A row of the results.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The title of the measurement, and the size of the filter, which is empty if there is only one size.
    pub what: &'static str,
    pub size: &'static str,
    pub unit: Unit,
    /// The values of the peers that take part and support the operation.
    pub values: BTreeMap<Peer, Series>,
}

impl Row {
    pub(crate) fn title(&self) -> String {
        if self.size.is_empty() { self.what.to_owned() } else { format!("{}, {}", self.what, self.size) }
    }

    /// Returns the ratio of a peer's value to RedisBloom's.
    pub(crate) fn ratio(&self, peer: Peer) -> Option<f64> {
        Some(self.values.get(&peer)?.median() / self.values.get(&Peer::RedisBloom)?.median())
    }
}

/// The results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operations {
    pub rows: Vec<Row>,
}

impl Operations {
    pub(crate) fn rows_of(&self, what: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.what == what)
    }

    fn bytes(&mut self, what: &'static str, size: &'static str, peer: Peer, bytes: u64) {
        self.push(what, size, Unit::Bytes, peer, bytes as f64);
    }

    fn time(&mut self, what: &'static str, size: &'static str, peer: Peer, time: Duration) {
        self.push(what, size, Unit::Seconds, peer, time.as_secs_f64());
    }

    fn push(&mut self, what: &'static str, size: &'static str, unit: Unit, peer: Peer, value: f64) {
        let present = self.rows.iter().position(|row| row.what == what && row.size == size);
        let row = present.unwrap_or_else(|| {
            self.rows.push(Row { what, size, unit, values: BTreeMap::new() });
            self.rows.len() - 1
        });
        self.rows[row].values.entry(peer).or_default().push(value);
    }
}

/// The extent of the measurements.
struct Scale {
    /// The filters whose memory alone is measured: error rate, capacity, and its text.
    reserved: &'static [(&'static str, u64, &'static str)],
    /// The filter that is saved and loaded, at 1 %. Half of it is filled.
    saved: (u64, &'static str),
    saves: usize,
    /// The number of additions that are logged and replicated.
    stream: u64,
    /// The filter that is reserved and discarded, at 1 %.
    vast: (u64, &'static str),
    reserves: usize,
    /// The sizes to which filters grow from the defaults.
    grown: &'static [(u64, &'static str)],
    /// The number of times that a filter grows from the defaults, to measure the pauses of other clients.
    growths: usize,
    /// The filter that is copied and deleted, at 1 %, and a number of items that touch nearly all of its pages: eight
    /// per page.
    deleted: (u64, &'static str),
    touching: u64,
    deletions: usize,
}

const FULL: Scale = Scale {
    reserved: &[
        ("0.01", 10_000, "10^4 at 1 %"),
        ("0.01", 1_000_000, "10^6 at 1 %"),
        ("0.01", 100_000_000, "10^8 at 1 %"),
        ("0.001", 600_000_000, "6·10^8 at 0.1 %"),
    ],
    saved: (100_000_000, "10^8 at 1 %, half full"),
    saves: 5,
    stream: 1_000_000,
    vast: (10_000_000_000, "10^10 at 1 %"),
    reserves: 5,
    grown: &[
        (10_000, "10^4"),
        (30_000, "3·10^4"),
        (100_000, "10^5"),
        (300_000, "3·10^5"),
        (GROWN, "10^6"),
        (3_000_000, "3·10^6"),
        (10_000_000, "10^7"),
    ],
    growths: 9,
    deleted: (750_000_000, "1 GB"),
    touching: 2_000_000,
    deletions: 3,
};

const QUICK: Scale = Scale {
    saved: (10_000_000, "10^7 at 1 %, half full"),
    saves: 3,
    stream: 200_000,
    vast: (1_000_000_000, "10^9 at 1 %"),
    reserves: 3,
    grown: &[(10_000, "10^4"), (100_000, "10^5"), (GROWN, "10^6")],
    growths: 5,
    deleted: (75_000_000, "100 MB"),
    touching: 200_000,
    ..FULL
};

/// Measures everything, on servers of its own.
pub(crate) fn measure(quick: bool) -> Operations {
    type Step = (&'static str, fn(&Scale, &mut Operations));
    const STEPS: [Step; 7] = [
        ("memory of reserved filters", memory_reserved),
        ("memory of a filter that grew", memory_grown),
        ("pauses while a filter grows", growing),
        ("saving and loading", saving),
        ("append-only file and replication", propagation),
        ("a very large filter", reserving),
        ("copying and deleting", deleting),
    ];
    let scale = if quick { &QUICK } else { &FULL };
    let mut operations = Operations::default();
    let style = ProgressStyle::with_template("{spinner} {pos}/{len} {msg}").expect("a valid template");
    let progress = ProgressBar::new(STEPS.len() as u64).with_style(style);
    progress.enable_steady_tick(Duration::from_millis(200));
    for (name, step) in STEPS {
        progress.set_message(name);
        step(scale, &mut operations);
        progress.inc(1);
    }
    progress.finish_and_clear();
    operations
}

fn memory_reserved(scale: &Scale, operations: &mut Operations) {
    for peer in PEERS {
        let mut instance = Instance::start(peer, peer.setup());
        for (error_rate, capacity, size) in scale.reserved {
            reserve(&mut instance, error_rate, *capacity);
            operations.bytes(MEMORY_RESERVED, size, peer, memory_usage(&mut instance));
            discard(&mut instance, "UNLINK");
        }
    }
}

/// Measures the memory of a filter that grows from size to size.
///
/// jemalloc keeps freed memory for ten seconds, so it is told to return it before the resident memory is read. The
/// first commands touch memory of the server itself, so a filter is created and deleted before the measurement.
fn memory_grown(scale: &Scale, operations: &mut Operations) {
    for peer in WITH_CLASSIC {
        let mut instance = Instance::start(peer, peer.setup());
        let address = instance.address();
        fill(address, KEY, LENGTH, 0..scale.grown[0].0);
        discard(&mut instance, "DEL");
        let (before, mut items) = (settled(&mut instance), 0);
        for &(size, title) in scale.grown {
            fill(address, KEY, LENGTH, items..size);
            items = size;
            operations.bytes(MEMORY_GROWN, title, peer, memory_usage(&mut instance));
            if size >= GROWN {
                let grown = settled(&mut instance).saturating_sub(before);
                operations.bytes(RESIDENT_GROWN, title, peer, grown);
            }
        }
    }
}

/// Measures filters that grow, peers in turn. While commands with a thousand items each fill a filter, another client
/// measures its longest wait.
fn growing(scale: &Scale, operations: &mut Operations) {
    let mut instances = WITH_CLASSIC.map(|peer| Instance::start(peer, peer.setup()));
    for _ in 0..scale.growths {
        for instance in &mut instances {
            let address = instance.address();
            let (_, longest) = longest_pause(address, || fill(address, KEY, LENGTH, 0..GROWN));
            operations.time("growing, pause of others", "10^6", instance.peer, longest);
            discard(instance, "DEL");
        }
    }
}

/// Measures SAVE, BGSAVE, and a start with the file that they wrote, peers in turn.
fn saving(scale: &Scale, operations: &mut Operations) {
    let (capacity, size) = scale.saved;
    let mut instances = WITH_CLASSIC.map(|peer| {
        let mut instance = Instance::start(peer, peer.setup());
        let before = resident(&instance);
        reserve(&mut instance, "0.01", capacity);
        fill(instance.address(), KEY, LENGTH, 0..capacity / 2);
        let grown = resident(&instance).saturating_sub(before);
        operations.bytes("resident memory", size, peer, grown);
        instance
    });
    for _ in 0..scale.saves {
        instances = instances.map(|mut instance| {
            save(&mut instance, size, operations);
            background_save(&mut instance, size, operations);
            reload(instance, size, operations)
        });
    }
}

fn save(instance: &mut Instance, size: &'static str, operations: &mut Operations) {
    let elapsed = timed(|| ask::<String>(&mut instance.connection, "SAVE"));
    let file = fs::metadata(instance.server.folder().join("dump.rdb")).expect("the saved file");
    operations.time("SAVE", size, instance.peer, elapsed);
    operations.bytes("dump.rdb", size, instance.peer, file.len());
}

/// Measures BGSAVE. The server checks its child only every 100 ms, so this watches the child directly.
fn background_save(instance: &mut Instance, size: &'static str, operations: &mut Operations) {
    const PAUSE: Duration = Duration::from_millis(2);
    let cpu_before = children_cpu(instance);
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
    let (peer, cpu) = (instance.peer, children_cpu(instance) - cpu_before);
    let (fork, copied) = (instance.info("latest_fork_usec"), instance.info("rdb_last_cow_size"));
    operations.time("BGSAVE", size, peer, elapsed);
    operations.time("BGSAVE, fork", size, peer, Duration::from_micros(fork));
    operations.time("BGSAVE, processor time of the child", size, peer, cpu);
    operations.bytes("BGSAVE, peak memory of the child", size, peer, peak);
    operations.bytes("BGSAVE, rdb_last_cow_size", size, peer, copied);
}

/// Stops the server, and starts another one with its files.
fn reload(instance: Instance, size: &'static str, operations: &mut Operations) -> Instance {
    let Instance { peer, server, .. } = instance;
    let setup = peer.setup().on(server.kill());
    let started = Instant::now();
    let instance = Instance::start(peer, setup);
    let elapsed = started.elapsed();
    let log = instance.server.log();
    let load = log.split("DB loaded from disk: ").nth(1).and_then(|rest| rest.split(' ').next());
    let load = load.and_then(|seconds| seconds.parse().ok()).expect("the time in the log");
    let peak = process_memory(instance.server.pid(), "status", "VmHWM").expect("a server that lives");
    operations.time("loading", size, peer, Duration::from_secs_f64(load));
    operations.time("starting on the file", size, peer, elapsed);
    operations.bytes("peak memory of the server that loads", size, peer, peak);
    instance
}

/// Measures a stream with four duplicates in five items, to a server with an append-only file and a replica. RedisBloom
/// has no packed commands, and gets the same items by BF.MADD.
fn propagation(scale: &Scale, operations: &mut Operations) {
    const BATCH: usize = 100;
    let distinct = scale.stream / 5;
    let items = || (0..scale.stream).map(|index| xxh3_64(&index.to_le_bytes()) % distinct);
    let by = LINES.with(1000);
    let batches = || Requests::batches(&["BF.MADD", KEY], LENGTH, BATCH, items());
    for peer in PEERS {
        let packed = || packed::requests(&by, &["BF.ADDPACKED", KEY], Lengths::Fixed(LENGTH), items());
        let packed = if peer == Peer::RedisBloom { batches() } else { packed() };
        let streams = [
            (
                batches(),
                "append-only file, BF.MADD of 100, 80 % duplicates",
                "replication, BF.MADD of 100, 80 % duplicates",
            ),
            (
                Requests::single(&["BF.ADD", KEY], LENGTH, items()),
                "append-only file, BF.ADD, 80 % duplicates",
                "replication, BF.ADD, 80 % duplicates",
            ),
            (
                packed,
                "append-only file, BF.ADDPACKED of 1,000, 80 % duplicates",
                "replication, BF.ADDPACKED of 1,000, 80 % duplicates",
            ),
        ];
        // A rewrite would shorten the file.
        let setup = peer.setup().set("appendonly yes").set("auto-aof-rewrite-percentage 0");
        let mut master = Instance::start(peer, setup.set("repl-diskless-sync-delay 0"));
        let _replica = replica(&mut master);
        for (requests, aof, replication) in &streams {
            reserve(&mut master, "0.01", scale.stream);
            let before = written(&mut master);
            client::pipelined(master.address(), requests);
            let after = written(&mut master);
            operations.bytes(aof, "", peer, after.0 - before.0);
            operations.bytes(replication, "", peer, after.1 - before.1);
            discard(&mut master, "DEL");
        }
    }
}

/// Returns the number of bytes in the append-only file, and the number of bytes that were sent to replicas.
fn written(master: &mut Instance) -> (u64, u64) {
    (master.info("aof_current_size"), master.info("master_repl_offset"))
}

fn replica(master: &mut Instance) -> Instance {
    let mut replica = Instance::start(master.peer, replica_of(&master.server, master.peer.setup()));
    wait_for_replica(&mut master.connection, &mut replica.connection);
    replica
}

/// Measures BF.RESERVE of more memory than many machines have, and the memory that it touches.
fn reserving(scale: &Scale, operations: &mut Operations) {
    let (capacity, size) = scale.vast;
    // A module might touch all the memory, so the machine must have it. At 1 %, an item takes 11 bits.
    let needed = capacity / 8 * 12;
    let available = memory_field("/proc/meminfo", "MemAvailable").expect("Linux");
    if available < needed {
        eprintln!("{size} is left out: {available} bytes of memory are available, and {needed} might be needed");
        return;
    }
    for peer in PEERS {
        let mut instance = Instance::start(peer, peer.setup());
        let before = resident(&instance);
        for _ in 0..scale.reserves {
            let elapsed = timed(|| reserve(&mut instance, "0.01", capacity));
            let grown = resident(&instance).saturating_sub(before);
            operations.time("BF.RESERVE", size, peer, elapsed);
            operations.bytes("BF.RESERVE, resident", size, peer, grown);
            discard(&mut instance, "UNLINK");
        }
    }
}

/// Measures COPY, UNLINK and DEL of a large filter, and the pauses of other clients.
fn deleting(scale: &Scale, operations: &mut Operations) {
    let size = scale.deleted.1;
    for peer in PEERS {
        let mut instance = Instance::start(peer, peer.setup());
        for _ in 0..scale.deletions {
            for (command, pause) in [("UNLINK", "UNLINK, pause of others"), ("DEL", "DEL, pause of others")] {
                touch(&mut instance, scale);
                if command == "UNLINK" {
                    copy(&mut instance, size, operations);
                }
                let (elapsed, longest) = longest_pause(instance.address(), || discard(&mut instance, command));
                operations.time(command, size, peer, elapsed);
                operations.time(pause, size, peer, longest);
            }
        }
    }
}

/// Creates a large filter, and touches its memory.
fn touch(instance: &mut Instance, scale: &Scale) {
    reserve(instance, "0.01", scale.deleted.0);
    fill(instance.address(), KEY, LENGTH, 0..scale.touching);
}

/// Copies the filter, if the peer supports this.
fn copy(instance: &mut Instance, size: &'static str, operations: &mut Operations) {
    let mut reply = Ok(Value::Nil);
    let address = instance.address();
    let (elapsed, longest) =
        longest_pause(address, || reply = run(&mut instance.connection, &format!("COPY {KEY} copy")));
    match reply.map_err(|error| error_text(&error)) {
        Ok(reply) => assert_eq!(reply, Value::Int(1)),
        Err(error) if error.contains("not supported") => return,
        Err(error) => panic!("COPY: {error}"),
    }
    operations.time(COPY, size, instance.peer, elapsed);
    operations.time("COPY, pause of others", size, instance.peer, longest);
    assert_eq!(ask::<i64>(&mut instance.connection, "DEL copy"), 1);
}

fn reserve(instance: &mut Instance, error_rate: &str, capacity: u64) {
    let _: String = ask(&mut instance.connection, &format!("BF.RESERVE {KEY} {error_rate} {capacity}"));
}

fn discard(instance: &mut Instance, command: &str) {
    assert_eq!(ask::<i64>(&mut instance.connection, &format!("{command} {KEY}")), 1);
}

fn memory_usage(instance: &mut Instance) -> u64 {
    ask(&mut instance.connection, &format!("MEMORY USAGE {KEY}"))
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

/// Returns the processor time of the server's children that have exited.
fn children_cpu(instance: &mut Instance) -> Duration {
    let info: String = ask(&mut instance.connection, "INFO cpu");
    let times = info.lines().filter_map(|line| {
        let (name, seconds) = line.split_once(':')?;
        let is_childrens = matches!(name, "used_cpu_sys_children" | "used_cpu_user_children");
        is_childrens.then(|| seconds.trim().parse::<f64>().expect("seconds"))
    });
    Duration::from_secs_f64(times.sum())
}
