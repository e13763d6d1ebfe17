//! Measures filters that forget. Compares them with plain filters, and with a script that uses three filters. Measures
//! the pauses at the start of a slice.

use std::fmt::Write as _;
use std::ops::Range;
use std::thread;
use std::time::SystemTime;

use crate::chart;
use crate::client;
use crate::format::{bytes, seconds, spread};
use crate::operations::longest_pause;
use crate::peers::{Instance, Peer};
use crate::requests::{NEVER_INSERTED, Requests};
use crate::statistics::Series;
use crate::target::Target;
use crate::workloads::{Delivery, Measured, fill, fill_by, measure as measure_requests};
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

/// The results of one filter and of three filters, in this order.
struct Instead {
    size: &'static str,
    items: Vec<(&'static str, [Measured; 2])>,
    memory: [f64; 2],
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
    Windows { size: scale.filters.1, items, memory, pauses, instead: instead(scale) }
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
                let range = if hit { filter.present() } else { NEVER_INSERTED..2 * NEVER_INSERTED };
                let command = if step.delivery == Delivery::Pipelined { "BF.EXISTS" } else { "BF.MEXISTS" };
                let requests = requests(&[command, filter.kind.key], step.delivery, some_of(range, scale.items, seed));
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

/// Returns random items of a range.
fn some_of(range: Range<u64>, items: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random(seed);
    (0..items).map(move |_| range.start + random.below(range.end - range.start))
}

fn requests(words: &[&str], delivery: Delivery, indexes: impl Iterator<Item = u64>) -> Requests {
    match delivery {
        Delivery::Batch(items) => Requests::batches(words, LENGTH, items, indexes),
        _ => Requests::single(words, LENGTH, indexes),
    }
}

/// The start of the scripts. If the newest slice has no filter, this creates it, and deletes the oldest one. KEYS has
/// the filters of four slices, the newest first; the fourth is too old.
const ROTATE: &str = "
    if redis.call('EXISTS', KEYS[1]) == 0 then
      redis.call('UNLINK', KEYS[4])
      redis.call('BF.RESERVE', KEYS[1], ERROR_RATE, CAPACITY)
    end";

/// Adds an item to the newest of three filters, unless it is in one of them.
const ONE_ITEM: &str = "
    for slice = 1, 3 do
      if redis.call('BF.EXISTS', KEYS[slice], ARGV[1]) == 1 then return 0 end
    end
    return redis.call('BF.ADD', KEYS[1], ARGV[1])";

/// Adds many items in the same way. The reply of BF.MADD shows which of them were new to the newest filter.
const MANY_ITEMS: &str = "
    local newer = redis.call('BF.MEXISTS', KEYS[2], unpack(ARGV))
    local oldest = redis.call('BF.MEXISTS', KEYS[3], unpack(ARGV))
    local replies, absent, places = {}, {}, {}
    for place, item in ipairs(ARGV) do
      replies[place] = 0
      if newer[place] == 0 and oldest[place] == 0 then
        absent[#absent + 1] = item
        places[#places + 1] = place
      end
    end
    if #absent > 0 then
      for index, added in ipairs(redis.call('BF.MADD', KEYS[1], unpack(absent))) do
        replies[places[index]] = added
      end
    end
    return replies";

/// The operations on one filter and on three: title, delivery, and true if the items are new.
const INSTEAD: [(&str, Delivery, bool); 4] = [
    ("one item a command, new", Delivery::Pipelined, true),
    ("one item a command, duplicate", Delivery::Pipelined, false),
    ("100 items a command, new", Delivery::Batch(100), true),
    ("100 items a command, duplicate", Delivery::Batch(100), false),
];

/// The index of the newest slice. The three filters are those of the slices 3 to 5.
const NEWEST: usize = 5;

/// Returns the arguments that run a script, up to its items, given the newest slice.
fn script<'a>(hash: &'a str, keys: &'a [String], newest: usize) -> Vec<&'a str> {
    let keys = keys[newest - 3..=newest].iter().rev().map(String::as_str);
    ["EVALSHA", hash, "4"].into_iter().chain(keys).collect()
}

/// Runs a script that creates the filters of three slices, and fills them, the newest by half. Returns the keys of all
/// slices, and the next item.
fn fill_three(instance: &Instance, per_slice: u64, hash: &str) -> (Vec<String>, u64) {
    let keys: Vec<String> = (0..=NEWEST).map(|slice| format!("slice:{slice}")).collect();
    let mut next = 0;
    for newest in 3..=NEWEST {
        let first = Requests::single(&script(hash, &keys, newest), LENGTH, next..next + 1);
        client::pipelined(instance.address(), &first);
        let end = next + if newest == NEWEST { per_slice / 2 } else { per_slice };
        fill(instance.address(), &keys[newest], LENGTH, next..end);
        next = end;
    }
    (keys, next)
}

fn instead(scale: &Scale) -> Instead {
    let [mut one, mut three] = [Peer::Oxbloom, Peer::RedisBloom].map(|peer| Instance::start(peer, peer.setup()));
    let (capacity, size) = scale.instead;
    let mut filter = Stream::new(KINDS[FORGETTING[0]], capacity, 1);
    filter.fill(&mut one);
    // If each of the three filters has the items of half a window, items are remembered for at least a window.
    let half = capacity / 2;
    let rotate = ROTATE.replace("ERROR_RATE", &(0.01 / 3.0).to_string()).replace("CAPACITY", &half.to_string());
    let hashes = [ONE_ITEM, MANY_ITEMS].map(|script| {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(rotate.clone() + script).query::<String>(&mut three.connection);
        load.expect("a valid script")
    });
    let (keys, mut next) = fill_three(&three, half, &hashes[0]);
    let mut rows = INSTEAD.map(|(title, ..)| (title, <[Measured; 2]>::default()));
    let (items, mut random) = (scale.items / 5, Random(capacity));
    for _ in 0..scale.rounds {
        for ((_, measured), (title, delivery, new)) in rows.iter_mut().zip(INSTEAD) {
            let seed = random.below(u64::MAX);
            let numbers: Vec<u64> =
                if new { (next..next + items).collect() } else { some_of(filter.present(), items, seed).collect() };
            next += if new { items } else { 0 };
            let (command, hash) = match delivery {
                Delivery::Pipelined => ("BF.ADD", &hashes[0]),
                _ => ("BF.MADD", &hashes[1]),
            };
            let asked = [vec![command, filter.kind.key], script(hash, &keys, NEWEST)];
            for ((instance, words), measured) in [&mut one, &mut three].into_iter().zip(asked).zip(measured) {
                let requests = requests(&words, delivery, numbers.iter().copied());
                let outcome = measure_requests(instance, words[0], delivery, &requests, measured);
                let share = outcome.ones as f64 / requests.items() as f64;
                let expected = if new { 0.97..=1.0 } else { 0.0..=0.01 };
                assert!(expected.contains(&share), "{words:?}, {title}: {share} are new");
            }
        }
    }
    let usage =
        |instance: &mut Instance, key: &str| -> f64 { ask(&mut instance.connection, &format!("MEMORY USAGE {key}")) };
    let memory = [usage(&mut one, filter.kind.key), keys[3..].iter().map(|key| usage(&mut three, key)).sum()];
    Instead { size, items: rows.into(), memory }
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

impl Instead {
    fn write(&self, page: &mut String) {
        let _ = write!(
            page,
            "### Instead of three filters and a script\n\n\
             This compares two ways to remember {size} items at 1 %. The first is one filter with WINDOW, which forgets an \
             item 1 to {most:.3} windows after it was added. The second is three of RedisBloom's filters, each with a third of \
             the error rate and the items of half a window. They forget an item after 1 to 1.5 windows. A Lua script checks \
             all three, and adds an item that is in none of them to the newest. When it is time, the script deletes the \
             oldest filter and reserves a new one. Times are the processor time of the whole server, in nanoseconds an item \
             of {LENGTH} bytes.\n\n\
             ![Processor time an item]({CHART})\n\n\
             | | oxbloom, one filter | RedisBloom, three filters, a script | ratio |\n|---|--:|--:|--:|\n",
            size = self.size,
            most = 1.0 + 1.0 / SLICES as f64,
        );
        for (title, [one, three]) in &self.items {
            let ratio = one.cpu.ratio_to(&three.cpu);
            let _ = writeln!(page, "| {title} | {} | {} | {ratio:.2} |", spread(&one.cpu), spread(&three.cpu));
        }
        let [one, three] = self.memory;
        let ratio = one / three;
        let _ = writeln!(page, "| MEMORY USAGE | {} | {} | {ratio:.2} |\n", bytes(one), bytes(three));
    }
}
