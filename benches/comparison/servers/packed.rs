//! Measures packed commands, compared with RedisBloom's BF.MADD and BF.MEXISTS with 1,000 items.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use indicatif::ProgressBar;

use crate::client;
use crate::format::{spread, thousands};
use crate::peers::{Instance, MAIN, Peer};
use crate::requests::{ABSENT, Item, Requests, some_of};
use crate::target::Target;
use crate::workloads::{Delivery, Measured, Operation, measure as measure_requests};
use models::random::Random;
use testkit::ask;
use testkit::packing::Packing;

/// A filter that is measured with each method.
struct Subject {
    name: &'static str,
    capacity: u64,
    /// The number of items in the filter before it is measured.
    filled: u64,
    /// True if the filter is created anew in each round, so that it does not get full.
    renewed: bool,
    lengths: Lengths,
    /// The number of items of a measurement.
    items: u64,
}

/// The lengths of items in bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lengths {
    Fixed(usize),
    /// URLs of 28 to 68 bytes.
    Urls,
}

const URLS: &str = "10^7 at 1 %, URLs";

const SUBJECTS: [Subject; 3] = [
    Subject {
        name: "10^6 at 1 %",
        capacity: 1_000_000,
        filled: 100_000,
        renewed: true,
        lengths: Lengths::Fixed(20),
        items: 200_000,
    },
    Subject {
        name: URLS,
        capacity: 10_000_000,
        filled: 2_000_000,
        renewed: false,
        lengths: Lengths::Urls,
        items: 400_000,
    },
    Subject {
        name: "10^8 at 1 %",
        capacity: 100_000_000,
        filled: 10_000_000,
        renewed: false,
        lengths: Lengths::Fixed(20),
        items: 400_000,
    },
];

/// A way to send items to a filter.
#[derive(Clone, Copy)]
pub(crate) struct Method {
    title: &'static str,
    peer: Peer,
    /// The kind of the filter, for BF.RESERVE.
    parameters: &'static str,
    /// The items of a command, packed in this way.
    packing: Option<Packing>,
    items_each: usize,
}

const UNPACKED: Method =
    Method { title: "RedisBloom × 1,000", peer: Peer::RedisBloom, parameters: "", packing: None, items_each: 1000 };

const FIXED: Method = Method {
    title: "FIXED × 10,000",
    peer: Peer::Oxbloom,
    packing: Some(Packing::Fixed),
    items_each: 10_000,
    ..UNPACKED
};

const OFFSETS: Method = Method { title: "OFFSETS × 10,000", packing: Some(Packing::Offsets(0)), ..FIXED };

pub(crate) const LINES: Method = Method { title: "LINES × 10,000", packing: Some(Packing::Lines), ..FIXED };

const COUNTING: Method = Method { title: "counting, FIXED × 10,000", parameters: "COUNTING", ..FIXED };

const WINDOWED: Method = Method { title: "windowed, FIXED × 10,000", parameters: "WINDOW 86400", ..FIXED };

const FLOOR: Method = Method { title: "the floor, FIXED × 10,000", peer: Peer::Floor, ..FIXED };

const METHODS: [Method; 10] = [
    UNPACKED,
    Method { title: "oxbloom × 1,000", peer: Peer::Oxbloom, ..UNPACKED },
    Method { title: "FIXED × 1,000", items_each: 1000, ..FIXED },
    FIXED,
    Method { title: "FIXED × 100,000", items_each: 100_000, ..FIXED },
    OFFSETS,
    LINES,
    COUNTING,
    WINDOWED,
    FLOOR,
];

const OPERATIONS: [Operation; 3] = [Operation::AddNew, Operation::ExistsHit, Operation::ExistsMiss];

impl Method {
    /// Returns the method with this number of items in a command.
    pub(crate) fn with(self, items_each: usize) -> Method {
        Method { items_each, ..self }
    }

    /// Returns true if the items of a subject can be sent like this.
    fn is_for(&self, subject: &Subject) -> bool {
        self.packing != Some(Packing::Fixed) || subject.lengths != Lengths::Urls
    }

    fn command(&self, operation: Operation) -> &'static str {
        match (operation.adds(), self.packing) {
            (true, None) => "BF.MADD",
            (true, Some(_)) => "BF.ADDPACKED",
            (false, None) => "BF.MEXISTS",
            (false, Some(_)) => "BF.EXISTSPACKED",
        }
    }
}

/// The processor time of the server, in nanoseconds an item.
struct Row {
    subject: &'static str,
    method: &'static str,
    of_operations: [Measured; OPERATIONS.len()],
}

/// The results.
pub(crate) struct PackedResults(Vec<Row>);

pub(crate) fn measure(quick: bool) -> PackedResults {
    let rounds = if quick { 3 } else { 11 };
    PackedResults(SUBJECTS.iter().flat_map(|subject| measure_filters(subject, rounds)).collect())
}

/// Measures one subject: a filter for each method, which are measured in turn.
fn measure_filters(subject: &Subject, rounds: u64) -> Vec<Row> {
    let mut instances = MAIN.map(|peer| Instance::start(peer, peer.setup()));
    let methods: Vec<Method> = METHODS.into_iter().filter(|method| method.is_for(subject)).collect();
    let row = |method: &Method| Row { subject: subject.name, method: method.title, of_operations: Default::default() };
    let mut rows: Vec<Row> = methods.iter().map(row).collect();
    let (mut random, mut next) = (Random(subject.capacity), subject.filled);
    let progress = ProgressBar::new(rounds).with_message(subject.name);
    for round in 0..rounds {
        let new = if subject.renewed { subject.filled } else { next };
        next = new + subject.items;
        for (step, operation) in OPERATIONS.into_iter().enumerate() {
            let seed = random.below(u64::MAX);
            for (method, row) in methods.iter().zip(&mut rows) {
                let instance = instances.iter_mut().find(|instance| instance.peer == method.peer).expect("each peer");
                let key = method.title.replace(' ', "");
                if step == 0 && (round == 0 || subject.renewed) {
                    create(instance, &key, method, subject);
                }
                let numbers = numbers(operation, subject, new, seed);
                let command = method.command(operation);
                let requests = requests(method, &[command, &key], subject.lengths, numbers);
                let measured = &mut row.of_operations[step];
                let outcome =
                    measure_requests(instance, command, Delivery::Batch(method.items_each), &requests, measured);
                let share = outcome.ones as f64 / requests.items() as f64;
                let (min, max) = if method.peer.has_filters() { operation.expected_ones() } else { (0.0, 0.0) };
                assert!((min..=max).contains(&share), "{}, {}: {share}", subject.name, method.title);
            }
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    rows
}

/// Returns the numbers of the items of a measurement.
fn numbers(operation: Operation, subject: &Subject, new: u64, seed: u64) -> Box<dyn Iterator<Item = u64>> {
    match operation {
        Operation::ExistsHit => Box::new(some_of(0..subject.filled, subject.items, seed)),
        Operation::ExistsMiss => Box::new(some_of(ABSENT, subject.items, seed)),
        _ => Box::new(new..new + subject.items),
    }
}

/// Creates a filter, and fills it by the method.
fn create(instance: &mut Instance, key: &str, method: &Method, subject: &Subject) {
    let Subject { capacity, filled, lengths, .. } = *subject;
    let _: i64 = ask(&mut instance.connection, &format!("DEL {key}"));
    if !method.peer.has_filters() {
        let _: String = ask(&mut instance.connection, &format!("SET {key} value"));
        return;
    }
    let reserve = format!("BF.RESERVE {key} 0.01 {capacity} {}", method.parameters);
    let _: String = ask(&mut instance.connection, &reserve);
    const AT_A_TIME: u64 = 1_000_000;
    for start in (0..filled).step_by(AT_A_TIME as usize) {
        let numbers = start..filled.min(start + AT_A_TIME);
        let words = [method.command(Operation::AddNew), key];
        let outcome = client::pipelined(instance.address(), &requests(method, &words, lengths, numbers.clone()));
        assert!(outcome.ones as f64 > 0.97 * (numbers.end - numbers.start) as f64, "{} were new", outcome.ones);
    }
}

/// Returns requests that send items by a method, given their numbers.
pub(crate) fn requests(
    method: &Method,
    words: &[&str],
    lengths: Lengths,
    numbers: impl Iterator<Item = u64>,
) -> Requests {
    let mut templates: Vec<Item> = lengths.all().map(Item::new).collect();
    let items: Vec<Vec<u8>> = numbers
        .map(|number| {
            // Neighbours have different lengths.
            let template = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let index = template as usize % templates.len();
            templates[index].bytes(number).to_vec()
        })
        .collect();
    Requests::of_items(words, &items, method.items_each, method.packing)
}

impl Lengths {
    fn all(self) -> RangeInclusive<usize> {
        match self {
            Lengths::Fixed(length) => length..=length,
            Lengths::Urls => 28..=68,
        }
    }
}

impl PackedResults {
    fn of(&self, subject: &str, method: &Method) -> &[Measured; OPERATIONS.len()] {
        let row = self.0.iter().find(|row| row.subject == subject && row.method == method.title);
        &row.expect("a measured method").of_operations
    }

    /// Returns the ratios of the server's processor time for packed items to that for RedisBloom's batches.
    pub(crate) fn ratios_on(&self, subject: &str) -> Vec<f64> {
        let is_measured = SUBJECTS.iter().any(|measured| measured.name == subject && measured.name != URLS);
        if is_measured { self.ratios(subject, [&FIXED, &UNPACKED]).concat() } else { Vec::new() }
    }

    /// Returns the server's processor time for packed items, and for RedisBloom's batches: for new items, and for hits.
    pub(crate) fn times_on(&self, subject: &str) -> [(Operation, [(Peer, f64); 3]); 2] {
        [0, 1].map(|step| {
            let of_methods =
                [FIXED, UNPACKED, FLOOR].map(|method| (method.peer, self.of(subject, &method)[step].cpu.median()));
            (OPERATIONS[step], of_methods)
        })
    }

    /// Returns the server's processor time by a method, relative to another, for additions and for look-ups.
    fn ratios(&self, subject: &str, [own, other]: [&Method; 2]) -> [Vec<f64>; 2] {
        let pairs = self.of(subject, own).iter().zip(self.of(subject, other));
        let ratios: Vec<f64> = pairs.map(|(own, other)| own.cpu.ratio_to(&other.cpu)).collect();
        let (additions, lookups) = ratios.split_at(1);
        [additions.to_vec(), lookups.to_vec()]
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for subject in SUBJECTS.map(|subject| subject.name) {
            let at_most: &[(&[Method], [f64; 2])] = match subject {
                "10^6 at 1 %" => &[(&[FIXED], [0.15, 0.12]), (&[COUNTING, WINDOWED], [0.45, 0.20])],
                URLS => &[(&[LINES], [0.15, 0.13])],
                _ => &[(&[FIXED], [0.09, 0.09]), (&[COUNTING, WINDOWED], [0.45, 0.20])],
            };
            for (methods, at_most) in at_most {
                for (method, (index, operation)) in
                    methods.iter().flat_map(|method| [(method, (0, "additions")), (method, (1, "look-ups"))])
                {
                    targets.push(Target {
                        title: format!(
                            "packed {operation}, {subject}, {}: server CPU, relative to {}",
                            method.title, UNPACKED.title
                        ),
                        at_most: at_most[index],
                        measured: self.ratios(subject, [method, &UNPACKED])[index].clone(),
                    });
                }
            }
            if subject != URLS {
                targets.push(Target {
                    title: format!("OFFSETS, {subject}: server CPU, relative to FIXED"),
                    at_most: 1.15,
                    measured: self.ratios(subject, [&OFFSETS, &FIXED]).concat(),
                });
            }
        }
        targets
    }

    pub(crate) fn markdown(&self) -> String {
        let mut page = "## Packed batches\n\n\
             [BF.ADDPACKED and BF.EXISTSPACKED](commands/bf.addpacked.md) take all items in one argument. The tables show \
             the processor time of the whole server, in nanoseconds an item, and how much that is of the time that \
             RedisBloom takes for the same items with 1,000 in each BF.MADD or BF.MEXISTS. \
             Items have 20 bytes; the URLs have 28 to 68. The last column is the number of items that the client, \
             which has no other work, gets looked up in a second.\n\n"
            .to_owned();
        for subject in SUBJECTS.map(|subject| subject.name) {
            let _ = writeln!(
                page,
                "| {subject} | new | of RedisBloom | hit | of RedisBloom | miss | of RedisBloom | hits/s |\n\
                 |---|--:|--:|--:|--:|--:|--:|--:|"
            );
            let reference = self.of(subject, &UNPACKED);
            for row in self.0.iter().filter(|row| row.subject == subject) {
                let _ = write!(page, "| {} |", row.method);
                for (measured, reference) in row.of_operations.iter().zip(reference) {
                    let ratio = measured.cpu.ratio_to(&reference.cpu);
                    let _ = write!(page, " {} | {ratio:.2} |", spread(&measured.cpu));
                }
                let _ = writeln!(page, " {} |", thousands(row.of_operations[1].throughput.median()));
            }
            page.push('\n');
        }
        page
    }
}
