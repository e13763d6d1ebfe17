//! Measures cuckoo filters of both layouts, compared with RedisBloom's.

use std::fmt::Write as _;

use indicatif::ProgressBar;

use crate::client;
use crate::format::{bytes, seconds, spread};
use crate::peers::{Instance, Peer};
use crate::requests::{ABSENT, NEVER_INSERTED, Requests, some_of};
use crate::statistics::Series;
use crate::target::Target;
use crate::workloads::{Delivery, Measured, fill_by, measure as measure_requests};
use models::random::Random;
use testkit::{ask, run};

/// The servers that are compared.
const PEERS: [Peer; 3] = [Peer::RedisBloom, Peer::Classic, Peer::Oxbloom];

/// The length of an item in bytes.
const LENGTH: usize = 28;

const KEY: &str = "filter";

/// A filter that is measured.
struct Subject {
    name: &'static str,
    capacity: u64,
    /// The number of items in the filter before it is measured.
    filled: u64,
}

const SUBJECTS: [Subject; 2] = [
    Subject { name: "10^6", capacity: 1_000_000, filled: 500_000 },
    Subject { name: "10^8", capacity: 100_000_000, filled: 20_000_000 },
];

/// A command that is measured, on this many items of which this many are in each command.
struct Workload {
    title: &'static str,
    words: &'static [&'static str],
    items: Items,
    delivery: Delivery,
    count: u64,
}

/// The items of a workload.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Items {
    New,
    Present,
    Absent,
    /// The items that the last workload with new ones has added.
    Added,
}

const BATCH: Delivery = Delivery::Batch(1000);

const WORKLOADS: [Workload; 7] = [
    Workload::new("CF.INSERT × 1,000, new", &["CF.INSERT", KEY, "ITEMS"], Items::New, BATCH),
    Workload::new("CF.MEXISTS × 1,000, hit", &["CF.MEXISTS", KEY], Items::Present, BATCH),
    Workload::new("CF.MEXISTS × 1,000, miss", &["CF.MEXISTS", KEY], Items::Absent, BATCH),
    Workload::new("CF.DEL, pipelined", &["CF.DEL", KEY], Items::Added, Delivery::Pipelined),
    Workload::new("CF.ADD, pipelined, new", &["CF.ADD", KEY], Items::New, Delivery::Pipelined),
    Workload::new("CF.EXISTS, pipelined, hit", &["CF.EXISTS", KEY], Items::Present, Delivery::Pipelined),
    Workload::new("CF.EXISTS, pipelined, miss", &["CF.EXISTS", KEY], Items::Absent, Delivery::Pipelined),
];

impl Workload {
    const fn new(title: &'static str, words: &'static [&'static str], items: Items, delivery: Delivery) -> Workload {
        Workload { title, words, items, delivery, count: 40_000 }
    }

    fn requests(&self, subject: &Subject, new: u64, seed: u64) -> Requests {
        let numbers: Box<dyn Iterator<Item = u64>> = match self.items {
            Items::New | Items::Added => Box::new(new..new + self.count),
            Items::Present => Box::new(some_of(0..subject.filled, self.count, seed)),
            Items::Absent => Box::new(some_of(ABSENT, self.count, seed)),
        };
        Requests::delivered(self.delivery, self.words, LENGTH, numbers)
    }
}

/// A filter whose accuracy and memory are measured.
struct Fill {
    title: &'static str,
    reserve: &'static str,
    items: u64,
}

const FILLS: [Fill; 5] = [
    Fill { title: "reserved for 10^6, with 10^6 items", reserve: "1000000", items: 1_000_000 },
    Fill { title: "the same, BUCKETSIZE 4", reserve: "1000000 BUCKETSIZE 4", items: 1_000_000 },
    Fill { title: "grown to 3·10^4 from the defaults", reserve: "1024", items: 30_000 },
    Fill { title: "grown to 10^6 from 1024, EXPANSION 2", reserve: "1024 EXPANSION 2", items: 1_000_000 },
    Fill { title: "grown to 10^7 from 1024, EXPANSION 2", reserve: "1024 EXPANSION 2", items: 10_000_000 },
];

/// The number of copies of one item that are sent. With 91, RedisBloom takes 8.6 GB, and one more ends its server.
const COPIES: u64 = 61;

/// The results.
pub(crate) struct CuckooResults {
    /// For each subject and workload, the measurements of each peer.
    speeds: Vec<[[Measured; PEERS.len()]; WORKLOADS.len()]>,
    /// For each fill, the share of absent items that are found, and the bits an item, by peer.
    fills: Vec<[(f64, f64); PEERS.len()]>,
    /// The bytes that [`COPIES`] copies of one item take, by peer.
    copies: [f64; PEERS.len()],
    /// The longest time of a CF.ADD in microseconds while a filter grows to 10^6 items, by peer, in each round.
    slowest: [Series; PEERS.len()],
}

pub(crate) fn measure(quick: bool) -> CuckooResults {
    let rounds = if quick { 3 } else { 11 };
    let speeds = SUBJECTS.iter().map(|subject| measure_speeds(subject, rounds)).collect();
    let mut instances = PEERS.map(|peer| Instance::start(peer, peer.setup()));
    let fills = FILLS.iter().map(|fill| instances.each_mut().map(|instance| measure_fill(instance, fill))).collect();
    let copies = instances.each_mut().map(measure_copies);
    let mut slowest = PEERS.map(|_| Series::default());
    for _ in 0..if quick { 1 } else { 3 } {
        for (instance, series) in instances.iter_mut().zip(&mut slowest) {
            series.push(slowest_addition(instance));
        }
    }
    CuckooResults { speeds, fills, copies, slowest }
}

/// Creates the filter anew.
fn create(instance: &mut Instance, reserve: &str) {
    let _: i64 = ask(&mut instance.connection, &format!("DEL {KEY}"));
    let _: String = ask(&mut instance.connection, &format!("CF.RESERVE {KEY} {reserve}"));
}

fn measure_speeds(subject: &Subject, rounds: u64) -> [[Measured; PEERS.len()]; WORKLOADS.len()] {
    let mut instances = PEERS.map(|peer| Instance::start(peer, peer.setup()));
    for instance in &mut instances {
        create(instance, &subject.capacity.to_string());
        fill_by(instance.address(), &["CF.INSERT", KEY, "ITEMS"], LENGTH, 0..subject.filled);
    }
    let mut results: [[Measured; PEERS.len()]; WORKLOADS.len()] = Default::default();
    let (mut random, mut new) = (Random(subject.capacity), subject.filled);
    let progress = ProgressBar::new(rounds).with_message(subject.name);
    for _ in 0..rounds {
        for (workload, measured) in WORKLOADS.iter().zip(&mut results) {
            if workload.items == Items::New {
                new += workload.count;
            }
            let requests = workload.requests(subject, new, random.below(u64::MAX));
            for (instance, measured) in instances.iter_mut().zip(measured) {
                let outcome = measure_requests(instance, workload.words[0], workload.delivery, &requests, measured);
                let share = outcome.ones as f64 / requests.items() as f64;
                let (min, max) = if workload.items == Items::Absent { (0.0, 0.05) } else { (1.0, 1.0) };
                assert!((min..=max).contains(&share), "{}: {share}", workload.title);
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    results
}

/// Returns the share of absent items that a filled filter finds, and its bits an item.
fn measure_fill(instance: &mut Instance, fill: &Fill) -> (f64, f64) {
    const LOOKED_UP: u64 = 200_000;
    create(instance, fill.reserve);
    fill_by(instance.address(), &["CF.INSERT", KEY, "ITEMS"], LENGTH, 0..fill.items);
    let absent = Requests::batches(&["CF.MEXISTS", KEY], LENGTH, 1000, NEVER_INSERTED..NEVER_INSERTED + LOOKED_UP);
    let found = client::pipelined(instance.address(), &absent).ones;
    (found as f64 / LOOKED_UP as f64, 8.0 * memory(instance) / fill.items as f64)
}

fn memory(instance: &mut Instance) -> f64 {
    let bytes: u64 = ask(&mut instance.connection, &format!("MEMORY USAGE {KEY}"));
    bytes as f64
}

fn measure_copies(instance: &mut Instance) -> f64 {
    create(instance, "1024 EXPANSION 2");
    for copy in 0..COPIES {
        let added = run(&mut instance.connection, &format!("CF.ADD {KEY} item"));
        // A classic filter rejects copies for which it would need a large layer.
        assert!(added.is_ok() || instance.peer == Peer::Classic && copy > COPIES / 2, "{added:?}");
    }
    memory(instance)
}

fn slowest_addition(instance: &mut Instance) -> f64 {
    create(instance, "1024 EXPANSION 2");
    let requests = Requests::single(&["CF.ADD", KEY], LENGTH, 0..1_000_000);
    let outcome = client::one_by_one(instance.address(), &requests).expect("a server that replies");
    outcome.latencies.map_or(f64::NAN, |latencies| latencies.max() as f64 / 1000.0)
}

impl CuckooResults {
    pub(crate) fn targets(&self) -> Vec<Target> {
        let of_subject = |(subject, speeds): (&Subject, &[[Measured; PEERS.len()]; WORKLOADS.len()])| {
            let batches = WORKLOADS.iter().zip(speeds).filter(|(workload, _)| workload.delivery == BATCH);
            let ratio = |(_, [redisbloom, classic, _]): (_, &[Measured; PEERS.len()])| {
                classic.command.ratio_to(&redisbloom.command)
            };
            Target {
                title: format!(
                    "CF.INSERT and CF.MEXISTS × 1,000, {}, classic: command time, relative to RedisBloom",
                    subject.name
                ),
                at_most: 0.5,
                measured: batches.map(ratio).collect(),
            }
        };
        SUBJECTS.iter().zip(&self.speeds).map(of_subject).collect()
    }

    pub(crate) fn markdown(&self) -> String {
        let mut page = "## Cuckoo filters\n\n\
             [Cuckoo filters](cuckoo.md) have two layouts: *classic* is RedisBloom's, and *native* our own. Items have 28 \
             bytes. CPU is the processor time of the whole server, and command the time in the command's own code, both \
             in nanoseconds an item; ratios are to RedisBloom. The filters of 10^6 are half full, those of 10^8 to a \
             fifth.\n\n"
            .to_owned();
        for (subject, speeds) in SUBJECTS.iter().zip(&self.speeds) {
            let _ = writeln!(
                page,
                "| {} | RedisBloom: CPU | command | classic: CPU | ratio | command | ratio | native: CPU | ratio | command | ratio |\n\
                 |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
                subject.name
            );
            for (workload, [redisbloom, own @ ..]) in WORKLOADS.iter().zip(speeds) {
                let _ = write!(
                    page,
                    "| {} | {} | {} |",
                    workload.title,
                    spread(&redisbloom.cpu),
                    spread(&redisbloom.command)
                );
                for own in own {
                    for (own, redisbloom) in [(&own.cpu, &redisbloom.cpu), (&own.command, &redisbloom.command)] {
                        let _ = write!(page, " {} | {:.2} |", spread(own), own.ratio_to(redisbloom));
                    }
                }
                page.push('\n');
            }
            page.push('\n');
        }
        page += "| filled | RedisBloom: false positives | bits an item | classic: false positives | bits an item | \
                 native: false positives | bits an item |\n|---|--:|--:|--:|--:|--:|--:|\n";
        for (fill, results) in FILLS.iter().zip(&self.fills) {
            let _ = write!(page, "| {} |", fill.title);
            for (rate, bits) in results {
                let _ = write!(page, " {:.2} % | {bits:.1} |", 100.0 * rate);
            }
            page.push('\n');
        }
        page += "\n| | RedisBloom | classic | native |\n|---|--:|--:|--:|\n";
        let [redisbloom, classic, native] = self.copies.map(bytes);
        let _ = writeln!(
            page,
            "| MEMORY USAGE after {COPIES} CF.ADD of one item, EXPANSION 2 (classic rejects some) | {redisbloom} | {classic} | {native} |"
        );
        let [redisbloom, classic, native] = self.slowest.each_ref().map(|series| seconds(series.median() / 1e6));
        let _ = writeln!(
            page,
            "| the slowest CF.ADD while a filter grows to 10^6, EXPANSION 2 | {redisbloom} | {classic} | {native} |\n"
        );
        page
    }
}
