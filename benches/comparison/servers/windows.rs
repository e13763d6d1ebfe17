//! Measures filters that forget. Compares them with plain filters, and with a script that uses three filters. Measures
//! the pauses at the start of a slice.

mod instead;

use std::fmt::Write as _;
use std::ops::Range;
use std::thread;
use std::time::SystemTime;

use crate::chart;
use crate::client::longest_pause;
use crate::format::{bytes, seconds, spread};
use crate::peers::{Instance, Peer};
use crate::requests::{ABSENT, Requests, some_of};
use crate::statistics::Series;
use crate::target::Target;
use crate::workloads::{Delivery, Measured, fill_by, measure as measure_requests};
use instead::Instead;
use models::random::Random;
use testkit::ask;

/// The file name of the chart.
pub(crate) const CHART: &str = "windows.svg";

/// The length of an item, that of a typical URL.
const LENGTH: usize = 28;

/// A window, and its default number of slices. Additions set their own time, so no slice ends while a measurement runs.
const WINDOW: &str = "WINDOW 28800";
const SLICES: u64 = 15;
const SLICE_MILLISECONDS: u64 = 28_800_000 / SLICES;

/// A filter that is measured.
#[derive(Clone, Copy)]
struct Kind {
    title: &'static str,
    peer: Peer,
    key: &'static str,
    parameters: &'static str,
    /// The number of slices that are filled before the measurement. A filter that forgets is then as full as it can be.
    slices_before: u64,
}

const KINDS: [Kind; 4] = [
    Kind { title: "RedisBloom", peer: Peer::RedisBloom, key: "plain", parameters: "", slices_before: 2 },
    Kind { title: "plain", peer: Peer::Oxbloom, key: "plain", parameters: "", slices_before: 2 },
    Kind { title: "WINDOW", peer: Peer::Oxbloom, key: "window", parameters: WINDOW, slices_before: SLICES + 1 },
    Kind { title: "ROLLING", peer: Peer::Oxbloom, key: "rolling", parameters: "ROLLING", slices_before: SLICES + 1 },
];

impl Kind {
    fn forgets(self) -> bool {
        !self.parameters.is_empty()
    }
}

/// Indexes in [`KINDS`].
const REDISBLOOM: usize = 0;
const PLAIN: usize = 1;
const FORGETTING: [usize; 2] = [2, 3];

/// The extent of the measurements.
struct Scale {
    /// The filters at 1 %: capacity, and its text.
    filters: (u64, &'static str),
    /// The number of slices that are added and measured.
    slices: u64,
    /// The filter that replaces three, at 1 %: capacity, and its text.
    instead: (u64, &'static str),
    /// The numbers of items and rounds of the other measurements.
    items: u64,
    rounds: usize,
}

const FULL: Scale =
    Scale { filters: (100_000_000, "10^8"), slices: 5, instead: (10_000_000, "10^7"), items: 400_000, rounds: 7 };

const QUICK: Scale =
    Scale { filters: (1_000_000, "10^6"), slices: 5, instead: (1_000_000, "10^6"), items: 100_000, rounds: 3 };

/// The results.
pub(crate) struct Windows {
    size: &'static str,
    /// The operations on each of [`KINDS`].
    items: Vec<(Step, [Measured; KINDS.len()])>,
    /// The MEMORY USAGE of each of [`KINDS`].
    memory: [f64; KINDS.len()],
    /// The pauses: a title, the longest command, and the longest wait of another client, in seconds.
    pauses: Vec<(String, [Series; 2])>,
    instead: Instead,
}

/// An operation on all kinds of filters.
#[derive(Clone, Copy)]
struct Step {
    title: &'static str,
    delivery: Delivery,
    /// The time that is reported.
    time: fn(&Measured) -> &Series,
}

const ADD: Step = Step { title: "MADD × 1,000, new: command", delivery: Delivery::Batch(1000), time: |m| &m.command };

/// The look-ups, each with true if its items are present.
const LOOKUPS: [(Step, bool); 4] = [
    (Step { title: "MEXISTS × 1,000, hit: command", ..ADD }, true),
    (Step { title: "MEXISTS × 1,000, miss: command", ..ADD }, false),
    (Step { title: "EXISTS, pipelined, hit: CPU", delivery: Delivery::Pipelined, time: |m| &m.cpu }, true),
    (Step { title: "EXISTS, pipelined, miss: CPU", delivery: Delivery::Pipelined, time: |m| &m.cpu }, false),
];

pub(crate) fn measure(quick: bool) -> Windows {
    let scale = if quick { &QUICK } else { &FULL };
    let start = |peer: Peer| Instance::start(peer, peer.setup());
    let mut filters = KINDS.map(|kind| Stream::new(kind, scale.filters.0, scale.slices));
    let mut instances = [start(Peer::Oxbloom), start(Peer::RedisBloom)];
    let mut pauses = Vec::new();
    let mut items = vec![(ADD, additions(&mut instances, &mut filters, scale, &mut pauses))];
    items.extend(lookups(&mut instances, &filters, scale));
    let memory = filters.each_ref().map(|filter| {
        let instance = of(&mut instances, filter.kind.peer);
        ask(&mut instance.connection, &format!("MEMORY USAGE {}", filter.kind.key))
    });
    drop(instances);
    Windows { size: scale.filters.1, items, memory, pauses, instead: instead::measure(scale) }
}

fn of(instances: &mut [Instance; 2], peer: Peer) -> &mut Instance {
    instances.iter_mut().find(|instance| instance.peer == peer).expect("a server for each kind")
}

/// A filter to which slice after slice of items is added.
struct Stream {
    kind: Kind,
    per_slice: u64,
    /// The next item.
    next: u64,
    /// The time at which the items of this slice are added, in milliseconds since 1970. The last slice is the current
    /// one.
    time: u64,
}

impl Stream {
    /// Returns a stream of the slices before the measurement, and then `slices` more.
    fn new(kind: Kind, capacity: u64, slices: u64) -> Stream {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock that is set").as_millis();
        let time = now as u64 - (kind.slices_before + slices - 1) * SLICE_MILLISECONDS;
        Stream { kind, per_slice: capacity / SLICES / 1000 * 1000, next: 0, time }
    }

    /// Fills the filter before the measurement, up to the end of a slice.
    fn fill(&mut self, instance: &mut Instance) {
        let Kind { key, parameters, slices_before, .. } = self.kind;
        let capacity = self.per_slice * SLICES;
        let _: String = ask(&mut instance.connection, &format!("BF.RESERVE {key} 0.01 {capacity} {parameters}"));
        for _ in 0..slices_before {
            self.add(instance, self.per_slice);
            self.time += SLICE_MILLISECONDS;
        }
        let left = self.left(instance, self.per_slice);
        self.add(instance, left);
    }

    fn add(&mut self, instance: &Instance, items: u64) {
        let (command, time) = (self.command(), self.time.to_string());
        let at = ["AT", &time, "ITEMS"];
        let at = if command == "BF.INSERT" { &at[..] } else { &[] };
        let words = [&[command, self.kind.key], at].concat();
        fill_by(instance.address(), &words, LENGTH, self.next..self.next + items);
        self.next += items;
    }

    /// Adds items. Returns the time of the commands in nanoseconds, and resets the server's statistics.
    fn add_timed(&mut self, instance: &mut Instance, items: u64) -> u64 {
        instance.reset_statistics();
        self.add(instance, items);
        instance.command_time(self.command())
    }

    fn command(&self) -> &'static str {
        if self.kind.parameters == WINDOW { "BF.INSERT" } else { "BF.MADD" }
    }

    /// Returns the number of items that the slice still takes after `added` items. A slice of a rolling filter ends at
    /// a number of items, in which false positives do not count.
    fn left(&self, instance: &mut Instance, added: u64) -> u64 {
        if self.kind.parameters != "ROLLING" {
            return self.per_slice - added;
        }
        let items: u64 = ask(&mut instance.connection, &format!("BF.CARD {}", self.kind.key));
        ((SLICES + 1) * self.per_slice).saturating_sub(items) / 1000 * 1000
    }

    /// Returns the items that were added in the last window.
    fn present(&self) -> Range<u64> {
        self.next.saturating_sub(SLICES * self.per_slice)..self.next
    }
}

/// Adds whole slices, filters in turn, so that the time of forgetting is included. At the start of a slice, and once
/// after that, another client measures its pauses.
fn additions(
    instances: &mut [Instance; 2],
    filters: &mut [Stream; KINDS.len()],
    scale: &Scale,
    pauses: &mut Vec<(String, [Series; 2])>,
) -> [Measured; KINDS.len()] {
    let watched = scale.filters.0 / 100;
    let mut measured = <[Measured; KINDS.len()]>::default();
    for filter in &mut *filters {
        filter.fill(of(instances, filter.kind.peer));
    }
    for _ in 0..scale.slices {
        for (filter, measured) in filters.iter_mut().zip(&mut measured) {
            let instance = of(instances, filter.kind.peer);
            let (address, title) = (instance.address(), filter.kind.title);
            let (first, cpu_before, mut time) = (filter.next, instance.cpu(), 0);
            for when in [BEGINS, "within a slice"] {
                let (elapsed, pause) = longest_pause(address, || time += filter.add_timed(instance, watched));
                let longest = instance.longest_command(filter.command());
                let title = if filter.kind.forgets() { format!("{title}, {when}") } else { title.to_owned() };
                note(pauses, title, [Some(longest), Some(pause.as_secs_f64())]);
                if filter.kind.peer == Peer::RedisBloom {
                    let (_, pause) = longest_pause(address, || thread::sleep(elapsed));
                    note(pauses, "a server that is idle".to_owned(), [None, Some(pause.as_secs_f64())]);
                }
            }
            let left = filter.left(instance, 2 * watched);
            time += filter.add_timed(instance, left);
            let items = (filter.next - first) as f64;
            measured.command.push(time as f64 / items);
            measured.cpu.push((instance.cpu() - cpu_before) as f64 / items);
            filter.time += SLICE_MILLISECONDS;
        }
    }
    measured
}

/// The end of the titles of pauses at the start of a slice.
const BEGINS: &str = "as a slice begins and another ends";

fn note(pauses: &mut Vec<(String, [Series; 2])>, title: String, values: [Option<f64>; 2]) {
    let present = pauses.iter().position(|row| row.0 == title);
    let row = present.unwrap_or_else(|| {
        pauses.push((title, <[Series; 2]>::default()));
        pauses.len() - 1
    });
    for (series, value) in pauses[row].1.iter_mut().zip(values) {
        value.into_iter().for_each(|value| series.push(value));
    }
}

fn lookups(
    instances: &mut [Instance; 2],
    filters: &[Stream; KINDS.len()],
    scale: &Scale,
) -> Vec<(Step, [Measured; KINDS.len()])> {
    let mut rows = LOOKUPS.map(|(step, _)| (step, <[Measured; KINDS.len()]>::default()));
    let mut random = Random(scale.filters.0);
    for _ in 0..scale.rounds {
        for ((step, row), (_, hit)) in rows.iter_mut().zip(LOOKUPS) {
            let seed = random.below(u64::MAX);
            for (filter, measured) in filters.iter().zip(row) {
                let range = if hit { filter.present() } else { ABSENT };
                let command = if step.delivery == Delivery::Pipelined { "BF.EXISTS" } else { "BF.MEXISTS" };
                let indexes = some_of(range, scale.items, seed);
                let words = [command, filter.kind.key];
                let requests = Requests::delivered(step.delivery, &words, LENGTH, indexes);
                let instance = of(instances, filter.kind.peer);
                let outcome = measure_requests(instance, command, step.delivery, &requests, measured);
                let share = outcome.ones as f64 / requests.items() as f64;
                // A false positive was not added, and is forgotten together with the item that it matched.
                let expected = match (hit, filter.kind.forgets()) {
                    (false, _) => 0.0..=0.03,
                    (true, true) => 0.99..=1.0,
                    (true, false) => 1.0..=1.0,
                };
                assert!(expected.contains(&share), "{}, {}: {share} are present", filter.kind.title, step.title);
            }
        }
    }
    rows.into()
}

impl Windows {
    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        let mut target = |title, at_most, measured| targets.push(Target { title, at_most, measured });
        for kind in FORGETTING {
            let title = KINDS[kind].title;
            let shares = |delivery: Delivery, other: usize| {
                let rows = self.items.iter().filter(|(step, _)| step.delivery == delivery);
                rows.map(|(step, row)| (step.time)(&row[kind]).ratio_to((step.time)(&row[other]))).collect()
            };
            let batches = format!("{title}, MADD, MEXISTS × 1,000, {} at 1 %: command time", self.size);
            target(format!("{batches}, relative to a plain filter"), 2.5, shares(ADD.delivery, PLAIN));
            target(format!("{batches}, relative to RedisBloom's plain filter"), 0.6, shares(ADD.delivery, REDISBLOOM));
            let single =
                format!("{title}, EXISTS pipelined, {} at 1 %: server CPU, relative to a plain filter", self.size);
            target(single, 1.3, shares(Delivery::Pipelined, PLAIN));
        }
        let instead = format!("WINDOW, {} at 1 %, instead of three filters and a script", self.instead.size);
        let cpu = |(_, [one, three]): &(_, [Measured; 2])| one.cpu.ratio_to(&three.cpu);
        target(format!("{instead}: server CPU"), 0.25, self.instead.items.iter().map(cpu).collect());
        let [one, three] = self.instead.memory;
        target(format!("{instead}: MEMORY USAGE"), 1.0, vec![one / three]);
        for (title, [command, ping]) in self.pauses.iter().filter(|row| row.0.ends_with(BEGINS)) {
            for (what, series) in [("longest command", command), ("longest pause of others", ping)] {
                let title = format!("{title}, {} at 1 %, {what}, least of the rounds: milliseconds", self.size);
                target(title, 2.0, vec![1000.0 * series.min()]);
            }
        }
        targets
    }

    pub(crate) fn markdown(&self) -> String {
        let mut page = format!(
            "## Filters that forget, {} at 1 %\n\n\
             Each filter has {SLICES} slices. It holds the items of a whole window and of one more slice. It is compared \
             with plain filters that are a quarter to two thirds full. Times are in nanoseconds an item of \
             {LENGTH} bytes. Whole slices are added, so the times include forgetting.\n\n\
             | | RedisBloom, plain | plain | WINDOW | of plain | of RedisBloom | ROLLING | of plain | of RedisBloom |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
            self.size
        );
        for (step, row) in &self.items {
            let times = row.each_ref().map(step.time);
            let _ = write!(page, "| {} | {} | {} |", step.title, spread(times[REDISBLOOM]), spread(times[PLAIN]));
            for kind in FORGETTING {
                let [plain, redisbloom] = [PLAIN, REDISBLOOM].map(|other| times[kind].ratio_to(times[other]));
                let _ = write!(page, " {} | {plain:.2} | {redisbloom:.2} |", spread(times[kind]));
            }
            page.push('\n');
        }
        let [redisbloom, plain, ..] = self.memory;
        let _ = write!(page, "| MEMORY USAGE | {} | {} |", bytes(redisbloom), bytes(plain));
        for kind in FORGETTING {
            let usage = self.memory[kind];
            let [of_plain, of_redisbloom] = [plain, redisbloom].map(|other| usage / other);
            let _ = write!(page, " {} | {of_plain:.2} | {of_redisbloom:.2} |", bytes(usage));
        }
        self.write_pauses(&mut page);
        self.instead.write(&mut page);
        page
    }

    fn write_pauses(&self, page: &mut String) {
        page.push_str(
            "\n\nItems are added with BF.MADD × 1,000. The table shows the longest command, and the longest time that \
             another client waits for a reply: the median of the rounds, and the least. The least leaves out the \
             interruptions by the machine, because they are not in every round. The work of a new slice is in every \
             round.\n\n\
             | | longest command | least | longest pause of others | least |\n|---|--:|--:|--:|--:|\n",
        );
        for (title, series) in &self.pauses {
            let [command, ping] = series.each_ref().map(|series| match series.is_empty() {
                true => " | ".to_owned(),
                false => format!("{} | {}", seconds(series.median()), seconds(series.min())),
            });
            let _ = writeln!(page, "| {title} | {command} | {ping} |");
        }
        page.push('\n');
    }

    /// Returns the chart, which compares one filter that forgets with the three filters that it replaces.
    pub(crate) fn chart(&self) -> String {
        let legend = [(Peer::Oxbloom, "oxbloom, WINDOW"), (Peer::RedisBloom, "three filters, a script")];
        let bars = |[one, three]: &[Measured; 2]| {
            vec![(Peer::Oxbloom, one.cpu.median()), (Peer::RedisBloom, three.cpu.median())]
        };
        let groups: Vec<_> = self.instead.items.iter().map(|(title, row)| ((*title).to_owned(), bars(row))).collect();
        chart::svg(&format!("{LENGTH} bytes"), &legend, &groups).expect("a picture")
    }
}
