//! Runs workloads. A workload is a filter, some steps, and contenders, each on a server of its own. In each round, the
//! contenders take each step in turn.

use std::ops::{Range, RangeInclusive};
use std::time::{Duration, Instant, SystemTime};

use models::random::Random;
use testkit::ask;

use crate::client;
use crate::requests::{ABSENT, Delivery, Lengths, Requests, items};
use crate::servers::{Instance, Peer, installed};
use crate::table::{Table, Unit};

#[derive(Clone, Copy)]
pub(crate) struct Workload {
    /// The name of its table, after the server's, and the start of the names of the tables of other lengths.
    pub name: &'static str,
    /// The title of its table, before the server's, with `{}` in the place of the size of the filter.
    pub title: &'static str,
    /// The server, as make installs it. If empty, the server under test.
    pub server: &'static str,
    pub error_rate: &'static str,
    /// The capacity that is reserved; 0 for a filter that grows from the defaults.
    pub capacity: u64,
    /// The number of items in the filter before it is measured.
    pub filled: u64,
    /// True if the filter is created anew in each round, so that it does not get full.
    pub renewed: bool,
    /// The lengths of items. Each has a table of its own.
    pub lengths: &'static [Lengths],
    /// The number of items of a step with many items in a command. Other steps have fewer.
    pub items: u64,
    pub contenders: &'static [Contender],
    pub steps: &'static [Step],
    pub quantities: &'static [Quantity],
}

#[derive(Clone, Copy)]
pub(crate) struct Contender {
    pub name: &'static str,
    pub peer: Peer,
    pub kind: Kind,
    /// How items are sent, if not as the steps say.
    pub delivery: Option<Delivery>,
}

/// How a filter is created, and which commands it has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// BF.RESERVE with these options.
    Bloom(&'static str),
    /// BF.RESERVE with these options, of which one is WINDOW or ROLLING. The filter is filled slice by slice until it has
    /// forgotten some, so that it is as full as it can be.
    Forgetting(&'static str),
    /// CF.RESERVE with these options.
    Cuckoo(&'static str),
    /// Three filters, of which a script replaces the oldest: see `three_filters.lua`.
    Script,
    /// The server's own commands, after these commands.
    Server(&'static [&'static str]),
}

#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub title: &'static str,
    pub verb: Verb,
    pub items: Items,
    pub delivery: Delivery,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    /// Adds the items of a whole slice, so that the time of forgetting is included.
    AddSlice,
    Exists,
    Count,
    Delete,
    /// A command of the server, up to its last argument, and its reply.
    Server(&'static str, &'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Items {
    New,
    /// Those that the last step with new items has added.
    Added,
    /// Random ones of those that the filter was filled with.
    Present,
    Absent,
}

/// The figure that is measured for each step.
#[derive(Clone, Copy)]
pub(crate) enum Quantity {
    /// The processor time of the whole server, per item.
    Cpu,
    /// The time in the command's code, per item.
    Command,
    /// The longest time in the command's code.
    Longest,
    /// The median time from request to reply; only of [`Delivery::Unpipelined`].
    P50,
    P99,
}

/// The default number of slices of a filter that forgets.
const SLICES: u64 = 15;

/// The length of a slice: that of `WINDOW 28800`. Additions set their own time, so no slice ends during a measurement.
const SLICE_MILLISECONDS: u64 = 28_800_000 / SLICES;

/// The time of commands with one item before the first that is measured. The module decides five times a second whether
/// it looks ahead, and its first decision only begins a count.
const SETTLING: Duration = Duration::from_millis(700);

/// The key of a contender's filter.
const KEY: &str = "filter";

/// The slices of [`Kind::Script`]. The filters of the last three are used.
const SCRIPT_SLICES: [&str; 6] = ["slice:0", "slice:1", "slice:2", "slice:3", "slice:4", "slice:5"];

impl Workload {
    /// Returns the workload with the first of the lengths, and if it has more than a million items, with a tenth of them,
    /// in whole thousands.
    pub(crate) fn quick(self) -> Workload {
        let lengths = &self.lengths[..1];
        if self.capacity.max(self.filled) <= 1_000_000 {
            return Workload { lengths, ..self };
        }
        let [capacity, filled] = [self.capacity, self.filled].map(|items| items / 10_000 * 1000);
        Workload { capacity, filled, lengths, ..self }
    }

    /// Returns the name of its table.
    pub(crate) fn table_name(&self) -> String {
        if self.server.is_empty() { self.name.to_owned() } else { format!("{}-{}", self.server, self.name) }
    }

    /// Returns a table for each length of items.
    pub(crate) fn measure(&self, rounds: u64) -> Vec<Table> {
        self.lengths.iter().map(|&lengths| self.measure_length(lengths, rounds)).collect()
    }

    fn measure_length(&self, lengths: Lengths, rounds: u64) -> Table {
        let (mut name, mut title) = (self.table_name(), self.title.replace("{}", &self.size()));
        if let Some((project, version)) = self.server.split_once('-') {
            title += &format!(", {}{} {version}", project[..1].to_uppercase(), &project[1..]);
        }
        if lengths != self.lengths[0] {
            name += &format!("/{}", lengths.0);
            title += &format!(", items of {} bytes", lengths.0);
        }
        let names: Vec<_> = self.contenders.iter().map(|contender| contender.name).collect();
        let mut table = Table::new(&name, &title, &names);
        let mut subjects: Vec<_> = self.contenders.iter().map(|kind| Subject::start(self, *kind, lengths)).collect();
        let filled = subjects.iter().map(Subject::items_before).max().unwrap_or(0);
        let (mut random, mut next) = (Random(filled), filled);
        for round in 0..rounds {
            eprintln!("{title}: round {} of {rounds}", round + 1);
            if round == 0 || self.renewed {
                next = filled;
                let end = filled + if self.adds_slices() { rounds * slice(self.capacity) } else { 0 };
                subjects.iter_mut().for_each(|subject| subject.create(filled, end));
            }
            let mut added = next..next;
            let mut is_settled = false;
            for step in self.steps {
                let has_single_items = matches!(step.delivery, Delivery::Pipelined | Delivery::Unpipelined);
                if has_single_items && !is_settled {
                    subjects.iter_mut().for_each(Subject::settle);
                }
                is_settled = has_single_items;
                let count = self.count(step.verb, step.delivery);
                if step.items == Items::New {
                    added = next..next + count;
                    next += count;
                }
                let seed = random.next_u64();
                for subject in subjects.iter_mut().filter(|subject| subject.supports(step.verb)) {
                    let numbers = match step.items {
                        Items::New | Items::Added => (added.start..added.start + count).collect(),
                        Items::Present => some_of(subject.present(next), count, seed),
                        Items::Absent => some_of(ABSENT, count, seed),
                    };
                    let sample = subject.take(step, &numbers);
                    sample.verify(subject, step);
                    sample.record(&mut table, step, subject.contender.name, self.quantities);
                }
            }
            // Otherwise, a contender would always follow the same other one.
            subjects.rotate_left(1);
        }
        for subject in &mut subjects {
            if let Some(bytes) = subject.memory() {
                table.push("MEMORY USAGE", Unit::Bytes, subject.contender.name, bytes as f64);
            }
        }
        table
    }

    /// Returns the number of items of a step.
    fn count(&self, verb: Verb, delivery: Delivery) -> u64 {
        match (verb, delivery) {
            (Verb::AddSlice, _) => slice(self.capacity),
            (_, Delivery::Batch(_) | Delivery::Packed(..)) => self.items,
            (_, Delivery::Pipelined) => self.items / 2,
            (_, Delivery::Unpipelined) => self.items / 10,
        }
    }

    fn adds_slices(&self) -> bool {
        self.steps.iter().any(|step| step.verb == Verb::AddSlice)
    }

    /// Returns the size of the filter, such as `6·10^8`.
    fn size(&self) -> String {
        power(if self.capacity == 0 { self.filled } else { self.capacity })
    }
}

/// Formats a round number, such as `6·10^8`.
pub(crate) fn power(number: u64) -> String {
    let digits = number.to_string();
    let factor = digits.trim_end_matches('0');
    let zeros = digits.len() - factor.len();
    if factor == "1" { format!("10^{zeros}") } else { format!("{factor}·10^{zeros}") }
}

/// Returns the number of items of a slice.
fn slice(capacity: u64) -> u64 {
    capacity / SLICES / 1000 * 1000
}

/// Returns random numbers of a range.
pub(crate) fn some_of(range: Range<u64>, count: u64, seed: u64) -> Vec<u64> {
    let mut random = Random(seed);
    (0..count).map(|_| range.start + random.below(range.end - range.start)).collect()
}

/// A contender with its filter. Items have numbers, and the contenders' filters end with the same item before the
/// measurement.
struct Subject<'a> {
    contender: Contender,
    workload: &'a Workload,
    lengths: Lengths,
    instance: Instance,
    /// The numbers of the first item, and of the one after the last, before the measurement.
    filled: Range<u64>,
    /// The number after the last item of the measurement, which is in the present slice.
    end: u64,
    /// The time of the slice with the number 0, in milliseconds since 1970.
    epoch: u64,
    /// The hashes of the scripts for one item and for many.
    scripts: [String; 2],
}

impl<'a> Subject<'a> {
    fn start(workload: &'a Workload, contender: Contender, lengths: Lengths) -> Subject<'a> {
        let setup = match workload.server {
            "" => contender.peer.setup(),
            server => contender.peer.setup().server(&installed(server)),
        };
        let instance = Instance::start(contender.peer, setup);
        Subject { contender, workload, lengths, instance, filled: 0..0, end: 0, epoch: 0, scripts: Default::default() }
    }

    /// Returns the number of items of a slice, if the filter has slices.
    fn slice(&self) -> Option<u64> {
        match self.contender.kind {
            Kind::Forgetting(_) => Some(slice(self.workload.capacity)),
            // If each of the three filters has the items of half a window, items are remembered for at least a window.
            Kind::Script => Some(self.workload.capacity / 2),
            _ => None,
        }
    }

    /// Returns the number of items in the filter before it is measured.
    fn items_before(&self) -> u64 {
        match (self.contender.kind, self.slice()) {
            (Kind::Forgetting(_), Some(slice)) => (SLICES + 1) * slice,
            (Kind::Script, Some(slice)) => 5 * slice / 2,
            (Kind::Server(_), _) => 0,
            _ => self.workload.filled,
        }
    }

    /// Creates the filter, and fills it with items up to a number. `end` is where the measurement ends.
    fn create(&mut self, filled: u64, end: u64) {
        let Workload { capacity, error_rate, .. } = *self.workload;
        let connection = &mut self.instance.connection;
        let _: i64 = ask(connection, &format!("DEL {KEY}"));
        let commands = match self.contender.kind {
            _ if self.contender.peer == Peer::Floor => vec![format!("SET {KEY} value")],
            Kind::Bloom(_) if capacity == 0 => Vec::new(),
            Kind::Bloom(options) | Kind::Forgetting(options) => {
                vec![format!("BF.RESERVE {KEY} {error_rate} {capacity} {options}")]
            }
            Kind::Cuckoo(options) => vec![format!("CF.RESERVE {KEY} {capacity} {options}")],
            Kind::Script => Vec::new(),
            Kind::Server(commands) => commands.iter().map(|&command| command.to_owned()).collect(),
        };
        for command in commands {
            let _: redis::Value = ask(connection, &command);
        }
        if self.contender.kind == Kind::Script {
            self.load_scripts();
        }
        self.filled = filled - self.items_before()..filled;
        self.end = end;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock that is set").as_millis();
        self.epoch = now as u64 - self.slice().map_or(0, |slice| (end - 1) / slice * SLICE_MILLISECONDS);
        if self.instance.peer.has_filters() && !self.filled.is_empty() {
            let step = Step { title: "fill", verb: Verb::AddSlice, items: Items::New, delivery: Delivery::Batch(1000) };
            let numbers: Vec<u64> = self.filled.clone().collect();
            self.take(&step, &numbers).verify(self, &step);
        }
    }

    fn load_scripts(&mut self) {
        const SCRIPTS: &str = include_str!("three_filters.lua");
        let rate: f64 = self.workload.error_rate.parse().expect("a number");
        let capacity = (self.workload.capacity / 2).to_string();
        let scripts = SCRIPTS.replace("ERROR_RATE", &(rate / 3.0).to_string()).replace("CAPACITY", &capacity);
        let [rotate, one, many] = scripts.split("---\n").collect::<Vec<_>>()[..] else { panic!("three parts") };
        self.scripts = [one, many].map(|script| {
            let load =
                redis::cmd("SCRIPT").arg("LOAD").arg(rotate.to_owned() + script).query(&mut self.instance.connection);
            load.expect("a valid script")
        });
    }

    /// Returns the items that the filter holds for sure, given the next new one: those that it was filled with, or those
    /// that are not forgotten before the measurement ends.
    fn present(&self, next: u64) -> Range<u64> {
        let Kind::Forgetting(_) = self.contender.kind else { return self.filled.clone() };
        let end = if self.workload.adds_slices() { next } else { self.filled.end };
        self.end - SLICES * slice(self.workload.capacity)..end
    }

    fn supports(&self, verb: Verb) -> bool {
        let counts = matches!(self.contender.kind, Kind::Bloom("COUNTING") | Kind::Cuckoo(_));
        counts || !matches!(verb, Verb::Count | Verb::Delete)
    }

    /// Returns the words of a command up to its items, given the number of the first one.
    fn words(&self, verb: Verb, delivery: Delivery, first: u64) -> Vec<String> {
        let one = matches!(delivery, Delivery::Pipelined | Delivery::Unpipelined);
        let number = self.slice().map_or(0, |slice| first / slice);
        let command = match (self.contender.kind, verb) {
            (_, Verb::Server(words, _)) => words.to_owned(),
            (Kind::Script, _) => {
                let newest = if verb == Verb::AddSlice { 3 + (number as usize).min(2) } else { 5 };
                let keys: Vec<_> = SCRIPT_SLICES[newest - 3..=newest].iter().rev().copied().collect();
                format!("EVALSHA {} 4 {}", self.scripts[usize::from(!one)], keys.join(" "))
            }
            (Kind::Forgetting(options), Verb::AddSlice) if options.starts_with("WINDOW") => {
                format!("BF.INSERT {KEY} AT {} ITEMS", self.epoch + number * SLICE_MILLISECONDS)
            }
            (Kind::Cuckoo(_), Verb::Add | Verb::AddSlice) if !one => format!("CF.INSERT {KEY} ITEMS"),
            (kind, _) => {
                let family = if matches!(kind, Kind::Cuckoo(_)) { "CF" } else { "BF" };
                let name = match verb {
                    Verb::Add | Verb::AddSlice => "ADD",
                    Verb::Exists => "EXISTS",
                    Verb::Count => "COUNT",
                    Verb::Delete | Verb::Server(..) => "DEL",
                };
                let (before, after) = match delivery {
                    Delivery::Batch(_) => ("M", ""),
                    Delivery::Packed(..) => ("", "PACKED"),
                    _ => ("", ""),
                };
                format!("{family}.{before}{name}{after} {KEY}")
            }
        };
        command.split(' ').map(str::to_owned).collect()
    }

    /// Sends the items of a step, a million at a time, but those of different slices in different commands.
    fn take(&mut self, step: &Step, numbers: &[u64]) -> Sample {
        let delivery = self.contender.delivery.unwrap_or(step.delivery);
        let slice = self.slice().filter(|_| step.verb == Verb::AddSlice).unwrap_or(u64::MAX);
        let mut sample = Sample::default();
        let of_slices = numbers.chunk_by(|one, other| one / slice == other / slice);
        for numbers in of_slices.flat_map(|numbers| numbers.chunks(1_000_000)) {
            let words = self.words(step.verb, delivery, numbers[0]);
            let mut requests = Requests::new(&words, &items(self.lengths, numbers.iter().copied()), delivery);
            if let Verb::Server(_, reply) = step.verb {
                requests = requests.replied_with(reply);
            }
            sample.send(&mut self.instance, &words[0], delivery, &requests);
        }
        sample
    }

    /// Lets oxbloom see that items come one by one, so that it looks ahead. Does not reset the server's statistics,
    /// from which it decides.
    fn settle(&mut self) {
        let has_lookahead = matches!(self.contender.peer, Peer::Oxbloom | Peer::Classic);
        if !has_lookahead || matches!(self.contender.kind, Kind::Server(_)) {
            return;
        }
        let words = self.words(Verb::Exists, Delivery::Pipelined, ABSENT.start);
        let items = items(self.lengths, some_of(ABSENT, 10_000, 1));
        let requests = Requests::new(&words, &items, Delivery::Pipelined);
        let started = Instant::now();
        while started.elapsed() < SETTLING {
            client::pipelined(self.instance.address(), &requests);
        }
    }

    fn memory(&mut self) -> Option<u64> {
        let keys = match self.contender.kind {
            _ if !self.contender.peer.has_filters() => return None,
            Kind::Server(_) => return None,
            Kind::Script => &SCRIPT_SLICES[3..],
            _ => &[KEY],
        };
        Some(keys.iter().map(|key| -> u64 { ask(&mut self.instance.connection, &format!("MEMORY USAGE {key}")) }).sum())
    }
}

/// The measurements of a step of one contender in one round.
#[derive(Default)]
pub(crate) struct Sample {
    items: usize,
    /// The number of items whose reply was 1.
    ones: usize,
    cpu: u64,
    command: u64,
    longest: f64,
    latencies: Vec<f64>,
}

impl Sample {
    /// Sends requests of a command, and adds what is measured.
    fn send(&mut self, instance: &mut Instance, command: &str, delivery: Delivery, requests: &Requests) {
        let address = instance.address();
        instance.reset_statistics();
        let before = instance.cpu();
        let outcome = match delivery {
            Delivery::Unpipelined => client::one_by_one(address, requests).expect("a server that replies"),
            _ => client::pipelined(address, requests),
        };
        self.cpu += instance.cpu() - before;
        self.command += instance.command_time(command);
        self.longest = self.longest.max(instance.longest_command(command));
        self.items += requests.items();
        self.ones += outcome.ones;
        self.latencies = outcome.latencies;
    }

    /// Panics if the replies are wrong.
    fn verify(&self, subject: &Subject, step: &Step) {
        let kind = subject.contender.kind;
        let expected: RangeInclusive<f64> = match (step.verb, step.items) {
            _ if !subject.instance.peer.has_filters() => 0.0..=0.0,
            (Verb::Server(..), _) => 0.0..=0.0,
            (Verb::Add | Verb::AddSlice, Items::New) if matches!(kind, Kind::Cuckoo(_)) => 1.0..=1.0,
            (Verb::Add | Verb::AddSlice, Items::New) => 0.97..=1.0,
            (Verb::Add | Verb::AddSlice, _) if matches!(kind, Kind::Bloom(_)) => 0.0..=0.0,
            // A false positive was not added, and is forgotten together with the item that it matched.
            (Verb::Add | Verb::AddSlice, _) => 0.0..=0.01,
            (_, Items::Absent) => 0.0..=0.05,
            _ if matches!(kind, Kind::Forgetting(_)) => 0.99..=1.0,
            _ => 1.0..=1.0,
        };
        let share = self.ones as f64 / self.items as f64;
        let Contender { name, .. } = subject.contender;
        assert!(
            expected.contains(&share),
            "{}, {name}, {}: {share} of the replies are 1",
            subject.workload.name,
            step.title
        );
    }

    fn record(&self, table: &mut Table, step: &Step, contender: &str, quantities: &[Quantity]) {
        let latency = |quantile: usize| self.latencies.get(self.latencies.len() * quantile / 100).copied();
        for quantity in quantities {
            let (name, unit, value) = match quantity {
                Quantity::Cpu => ("CPU", Unit::Nanoseconds, Some(self.cpu as f64 / self.items as f64)),
                Quantity::Command => ("command", Unit::Nanoseconds, Some(self.command as f64 / self.items as f64)),
                Quantity::Longest => ("longest command", Unit::Seconds, Some(self.longest)),
                Quantity::P50 => ("p50", Unit::Seconds, latency(50)),
                Quantity::P99 => ("p99", Unit::Seconds, latency(99)),
            };
            if let Some(value) = value {
                table.push(&format!("{}: {name}", step.title), unit, contender, value);
            }
        }
    }
}

/// Adds items with commands like `BF.MADD key`, a thousand in each. Panics if more of them are present than a few false
/// positives.
pub(crate) fn fill(instance: &mut Instance, words: &[&str], numbers: Range<u64>) {
    for start in numbers.clone().step_by(1_000_000) {
        let some = start..numbers.end.min(start + 1_000_000);
        let requests = Requests::new(words, &items((28, 28), some), Delivery::Batch(1000));
        let ones = client::pipelined(instance.address(), &requests).ones;
        assert!(ones as f64 > 0.97 * requests.items() as f64, "{ones} of {} were new", requests.items());
    }
}
