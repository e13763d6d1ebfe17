//! The workloads. They run in rounds, peers in turn.

use std::net::SocketAddr;
use std::ops::Range;

use indicatif::ProgressBar;

use crate::client::{self, Outcome};
use crate::peers::{Instance, Peer};
use crate::requests::{LENGTHS, NEVER_INSERTED, Requests};
use crate::statistics::Series;
use models::random::Random;
use testkit::{ask, run};

/// A filter that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub name: &'static str,
    /// The error rate and the capacity for BF.RESERVE; `None` for a filter that grows from the defaults.
    reserve: Option<(&'static str, u64)>,
    /// The number of items in the filter before it is measured.
    filled: u64,
    /// True if each length of items has a filter of its own, which is created anew in each round. A single filter would
    /// get full.
    renewed: bool,
    /// The numbers of items of a measurement: batches, pipelined, unpipelined.
    items: [u64; 3],
    /// True if the classic layout takes part.
    classic: bool,
}

/// A filter in the processor's cache.
pub(crate) const SMALL: Subject = Subject {
    name: "10^6 at 1 %",
    reserve: Some(("0.01", 1_000_000)),
    filled: 100_000,
    renewed: true,
    items: [200_000, 100_000, 20_000],
    classic: false,
};

/// A filter larger than the cache.
pub(crate) const LARGE: Subject = Subject {
    name: "10^8 at 1 %",
    reserve: Some(("0.01", 100_000_000)),
    filled: 10_200_000,
    renewed: false,
    items: [400_000, 200_000, 30_000],
    classic: true,
};

/// The filter of RedisBloom's own benchmarks.
pub(crate) const HUGE: Subject = Subject {
    name: "6·10^8 at 0.1 %",
    reserve: Some(("0.001", 600_000_000)),
    filled: 60_000_000,
    renewed: false,
    items: [400_000, 200_000, 30_000],
    classic: false,
};

/// A filter that has grown, in RedisBloom to fourteen layers.
pub(crate) const GROWN: Subject = Subject {
    name: "grown to 10^6",
    reserve: None,
    filled: 1_000_000,
    renewed: true,
    items: [150_000, 60_000, 20_000],
    classic: true,
};

/// A filter that has grown, and is larger than the cache.
pub(crate) const GROWN_LARGE: Subject = Subject {
    name: "grown to 10^7",
    reserve: None,
    filled: 10_200_000,
    renewed: false,
    items: [150_000, 60_000, 20_000],
    classic: false,
};

impl Subject {
    /// Returns the key of the filter for items of a length.
    fn key(&self, length: usize) -> String {
        if self.renewed { format!("{}:{length}", self.name) } else { self.name.to_owned() }.replace(' ', "")
    }

    /// Returns the number of items of each length in the filter, given the number of lengths.
    fn filled_with_each(&self, lengths: usize) -> u64 {
        if self.renewed { self.filled } else { self.filled / lengths as u64 }
    }

    /// Creates the filter of a length, and fills it with items of `lengths`.
    fn create(&self, instance: &mut Instance, length: usize, lengths: &[usize]) {
        let key = self.key(length);
        let _: i64 = ask(&mut instance.connection, &format!("DEL {key}"));
        if !instance.peer.has_filters() {
            let _ = run(&mut instance.connection, &format!("SET {key} value")).expect("a string");
            return;
        }
        if let Some((error_rate, capacity)) = self.reserve {
            let _: String = ask(&mut instance.connection, &format!("BF.RESERVE {key} {error_rate} {capacity}"));
        }
        for &length in lengths {
            fill(instance.address(), &key, length, 0..self.filled / lengths.len() as u64);
        }
    }
}

/// Adds items. Panics if more of them are present than a few false positives.
pub(crate) fn fill(address: SocketAddr, key: &str, length: usize, indexes: Range<u64>) {
    fill_by(address, &["BF.MADD", key], length, indexes);
}

/// Adds items like [`fill`], with another command.
pub(crate) fn fill_by(address: SocketAddr, words: &[&str], length: usize, indexes: Range<u64>) {
    const AT_A_TIME: usize = 1_000_000;
    for start in indexes.clone().step_by(AT_A_TIME) {
        let some = start..indexes.end.min(start + AT_A_TIME as u64);
        let items = (some.end - some.start) as usize;
        let requests = Requests::batches(words, length, items.min(1000), some);
        assert_eq!(requests.items(), items, "a multiple of a thousand, or less than a thousand");
        let outcome = client::pipelined(address, &requests);
        assert!(outcome.ones as f64 > 0.97 * items as f64, "{} of {items} were new", outcome.ones);
    }
}

/// An operation on items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    AddNew,
    AddDuplicate,
    ExistsHit,
    ExistsMiss,
}

impl Operation {
    /// Returns the minimum and the maximum fraction of ones in correct replies.
    pub(crate) fn expected_ones(self) -> (f64, f64) {
        match self {
            Operation::AddNew => (0.97, 1.0),
            Operation::AddDuplicate => (0.0, 0.0),
            Operation::ExistsHit => (1.0, 1.0),
            Operation::ExistsMiss => (0.0, 0.03),
        }
    }

    pub(crate) fn adds(self) -> bool {
        matches!(self, Operation::AddNew | Operation::AddDuplicate)
    }
}

/// The way in which requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Delivery {
    /// This number of items per command.
    Batch(usize),
    /// One item per command, [`client::PIPELINED`] commands at a time.
    Pipelined,
    /// One item per command, on [`client::CONNECTIONS`] connections.
    Unpipelined,
}

/// A row of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Workload {
    pub subject: &'static str,
    pub delivery: Delivery,
    pub operation: Operation,
    /// The length of an item in bytes.
    pub length: usize,
}

impl Workload {
    pub(crate) fn command(self) -> &'static str {
        match (self.operation.adds(), self.delivery) {
            (true, Delivery::Batch(_)) => "BF.MADD",
            (true, _) => "BF.ADD",
            (false, Delivery::Batch(_)) => "BF.MEXISTS",
            (false, _) => "BF.EXISTS",
        }
    }

    /// Returns true if a peer takes part. The classic layout is only measured with batches.
    fn is_for(self, peer: Peer) -> bool {
        peer != Peer::Classic || matches!(self.delivery, Delivery::Batch(_))
    }
}

/// The results of one workload and peer, with an element for each round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// The processor time of the whole server, in nanoseconds per item.
    pub cpu: Series,
    /// The time in the command's code, in nanoseconds per item.
    pub command: Series,
    /// The number of items per second.
    pub throughput: Series,
    /// The median time from request to reply, in microseconds; only without pipelining.
    pub p50: Series,
    pub p99: Series,
}

pub(crate) type Results = std::collections::BTreeMap<(Workload, Peer), Measured>;

/// The extent of the measurements.
pub(crate) struct Plan {
    pub subjects: &'static [Subject],
    pub deliveries: &'static [Delivery],
    pub lengths: &'static [usize],
    pub rounds: usize,
}

impl Plan {
    pub(crate) const FULL: Plan = Plan {
        subjects: &[SMALL, LARGE, HUGE, GROWN, GROWN_LARGE],
        deliveries: &[
            Delivery::Batch(10),
            Delivery::Batch(100),
            Delivery::Batch(1000),
            Delivery::Pipelined,
            Delivery::Unpipelined,
        ],
        lengths: &LENGTHS,
        rounds: 7,
    };

    pub(crate) const QUICK: Plan = Plan {
        subjects: &[SMALL, LARGE, GROWN],
        deliveries: &[Delivery::Batch(100), Delivery::Batch(1000), Delivery::Pipelined],
        lengths: &[28],
        rounds: 5,
    };

    pub(crate) fn run(&self, instances: &mut [Instance]) -> Results {
        let mut results = Results::new();
        for subject in self.subjects {
            self.measure(subject, instances, &mut results);
        }
        results
    }

    fn measure(&self, subject: &Subject, instances: &mut [Instance], results: &mut Results) {
        let workloads = self.workloads(subject);
        let takes_part = |instance: &&mut Instance| subject.classic || instance.peer != Peer::Classic;
        let mut instances: Vec<&mut Instance> = instances.iter_mut().filter(takes_part).collect();
        let progress = ProgressBar::new((self.rounds * workloads.len()) as u64).with_message(subject.name);
        // Each item is added only once: those below this index are in the filter.
        let filled = subject.filled_with_each(self.lengths.len());
        let mut next_new = [filled; LENGTHS.len()];
        let mut random = Random(subject.filled);
        for round in 0..self.rounds {
            if round == 0 || subject.renewed {
                next_new = [filled; LENGTHS.len()];
                for instance in &mut instances {
                    if subject.renewed {
                        self.lengths.iter().for_each(|&length| subject.create(instance, length, &[length]));
                    } else {
                        subject.create(instance, 0, self.lengths);
                    }
                }
            }
            for &workload in &workloads {
                let count = subject.items[match workload.delivery {
                    Delivery::Batch(_) => 0,
                    Delivery::Pipelined => 1,
                    Delivery::Unpipelined => 2,
                }];
                let new = &mut next_new[LENGTHS.iter().position(|&length| length == workload.length).expect("listed")];
                let requests = requests(&subject.key(workload.length), workload, count, filled, new, &mut random);
                for instance in instances.iter_mut().filter(|instance| workload.is_for(instance.peer)) {
                    let measured = results.entry((workload, instance.peer)).or_default();
                    let outcome = measure(instance, workload.command(), workload.delivery, &requests, measured);
                    verify(instance.peer, workload, &requests, &outcome);
                }
                progress.inc(1);
            }
            instances.rotate_left(1);
        }
        progress.finish_and_clear();
    }

    fn workloads(&self, subject: &Subject) -> Vec<Workload> {
        let mut workloads = Vec::new();
        for &length in self.lengths {
            for &delivery in self.deliveries {
                let operations: &[Operation] = match delivery {
                    Delivery::Batch(_) => &[Operation::AddNew, Operation::ExistsHit, Operation::ExistsMiss],
                    _ => &[Operation::AddNew, Operation::AddDuplicate, Operation::ExistsHit, Operation::ExistsMiss],
                };
                let workload = |&operation| Workload { subject: subject.name, delivery, operation, length };
                workloads.extend(operations.iter().map(workload));
            }
        }
        workloads
    }
}

/// Returns requests with `count` items: new ones from `new` on, or some of the first `filled`, which are in the filter.
fn requests(key: &str, workload: Workload, count: u64, filled: u64, new: &mut u64, random: &mut Random) -> Requests {
    let indexes: Box<dyn Iterator<Item = u64>> = match workload.operation {
        Operation::AddNew => {
            let start = *new;
            *new += count;
            Box::new(start..*new)
        }
        // Random items, as in a real stream, and not those that were just added.
        Operation::AddDuplicate | Operation::ExistsHit => Box::new((0..count).map(|_| random.below(filled))),
        Operation::ExistsMiss => Box::new((0..count).map(|_| NEVER_INSERTED + random.below(NEVER_INSERTED))),
    };
    let words = [workload.command(), key];
    match workload.delivery {
        Delivery::Batch(items) => Requests::batches(&words, workload.length, items, indexes),
        _ => Requests::single(&words, workload.length, indexes),
    }
}

/// Sends requests of a command, and records the results.
pub(crate) fn measure(
    instance: &mut Instance,
    command: &str,
    delivery: Delivery,
    requests: &Requests,
    measured: &mut Measured,
) -> Outcome {
    let address = instance.address();
    let command_before = instance.command_time(command);
    let cpu_before = instance.cpu();
    let outcome = match delivery {
        Delivery::Unpipelined => client::one_by_one(address, requests).expect("a server that replies"),
        _ => client::pipelined(address, requests),
    };
    let cpu = instance.cpu() - cpu_before;
    let command = instance.command_time(command) - command_before;
    let items = requests.items() as f64;
    measured.cpu.push(cpu as f64 / items);
    measured.command.push(command as f64 / items);
    measured.throughput.push(items / outcome.elapsed.as_secs_f64());
    if let Some(latencies) = &outcome.latencies {
        measured.p50.push(latencies.value_at_quantile(0.5) as f64 / 1000.0);
        measured.p99.push(latencies.value_at_quantile(0.99) as f64 / 1000.0);
    }
    outcome
}

/// Panics if the replies of a peer are wrong.
fn verify(peer: Peer, workload: Workload, requests: &Requests, outcome: &Outcome) {
    let share = outcome.ones as f64 / requests.items() as f64;
    let (min, max) = if peer.has_filters() { workload.operation.expected_ones() } else { (0.0, 0.0) };
    assert!((min..=max).contains(&share), "{peer:?}, {workload:?}: {share} of the replies are ones");
}
