//! A writer that remembers its acknowledged changes, and the unacknowledged change at the time of a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use redis::{Connection, RedisResult, Value};

use models::random::Random;
use testkit::clock::{SECOND, try_turn, turn};
use testkit::command::{item, many};
use testkit::{Server, Setup, ask, run, run_words};

/// The parameters of a kind of filter. If a variant has `merges`, a writer can merge its own filters of that kind.
struct Variant {
    name: &'static str,
    /// The error rate and the capacity; `None` for the server's defaults.
    parameters: Option<(&'static str, &'static str)>,
    options: &'static str,
    /// The largest number of different items.
    items: u64,
    /// The merge operations that the journal can check. A union that exceeds its capacity has false positives.
    merges: &'static [&'static str],
}

/// An error rate that is low enough to rule out false positives in any test.
const EXACT: &str = "0.000000000000000001";

/// Filters with counts above this are no longer merged, since a merge can double a count.
const MANY: u64 = 1 << 40;

/// The window of filters that forget, in milliseconds. The tests set the clock only to starts of slices, so items are
/// forgotten after exactly this time.
const WINDOW: i64 = 4 * SECOND;

static VARIANTS: [Variant; 13] = [
    Variant::new("plain", EXACT, "5000", "", 1000, &["UNION", "INTERSECT"]),
    Variant::new("grown", "0.05", "10", "EXPANSION 2", 3000, &["UNION"]),
    Variant::new("grown-exact", EXACT, "10", "EXPANSION 2", 2000, &[]),
    Variant::new("counting", EXACT, "5000", "COUNTING", 500, &["UNION"]),
    Variant::new("counting-fixed", EXACT, "5000", "NONSCALING COUNTING", 500, &["UNION", "INTERSECT"]),
    Variant::new("counting-grown", EXACT, "10", "EXPANSION 2 COUNTING", 2000, &["UNION"]),
    Variant::new("counting-careless", "0.1", "10", "EXPANSION 1 COUNTING", 300, &["UNION"]),
    Variant::new("windowed", EXACT, "5000", "WINDOW 4 SLICES 4 NONSCALING", 500, &[]),
    Variant::new("windowed-grown", EXACT, "10", "WINDOW 4 SLICES 4 REFRESH", 1000, &[]),
    Variant::new("rolling", EXACT, "500", "ROLLING", 500, &[]),
    Variant::new("classic", "0.01", "5000", "LAYOUT classic", 1000, &["UNION", "INTERSECT"]),
    Variant::new("classic-grown", "0.05", "10", "EXPANSION 2 LAYOUT classic", 3000, &["UNION"]),
    Variant { name: "default", parameters: None, options: "", items: 2000, merges: &[] },
];

/// The largest number of filters of each variant per writer.
const SLOTS: u64 = 3;

impl Variant {
    const fn new(
        name: &'static str,
        error_rate: &'static str,
        capacity: &'static str,
        options: &'static str,
        items: u64,
        merges: &'static [&'static str],
    ) -> Variant {
        Variant { name, parameters: Some((error_rate, capacity)), options, items, merges }
    }

    fn counts(&self) -> bool {
        self.options.contains("COUNTING")
    }

    fn forgets(&self) -> bool {
        self.options.contains("WINDOW")
    }
}

/// The clock of all servers in a test, for their filters that forget.
#[derive(Default)]
pub(crate) struct Clock(RwLock<i64>);

impl Clock {
    /// Starts a server with this clock.
    pub(crate) fn start(&self, setup: Setup) -> Server {
        let server = setup.start();
        self.tell(&mut server.connect());
        server
    }

    /// Sets the time of a server. Returns the time.
    fn tell(&self, client: &mut Connection) -> i64 {
        let now = *self.0.read().expect("no writer panicked");
        turn(client, now);
        now
    }

    /// Advances the time by up to two slices while no server runs.
    pub(crate) fn pass(&self, random: &mut Random) {
        *self.0.write().expect("no writer panicked") += random.below(3) as i64 * SECOND;
    }

    /// Advances the time by up to three slices, between the commands of all writers.
    fn go_on(&self, random: &mut Random, client: &mut Connection) -> RedisResult<()> {
        let mut now = self.0.write().expect("no writer panicked");
        *now += (1 + random.below(3)) as i64 * SECOND;
        try_turn(client, *now)
    }
}

/// The content of a filter.
#[derive(Clone)]
struct Filter {
    variant: &'static Variant,
    /// True if all chunks of the filter were loaded.
    whole: bool,
    /// True if the filter has no false positives.
    exact: bool,
    /// The minimum count of each item. Removed items have the count 0.
    counts: BTreeMap<u64, u64>,
    /// The time when each item is forgotten, in a filter that forgets.
    ends: BTreeMap<u64, i64>,
}

impl Filter {
    fn new(variant: &'static Variant) -> Filter {
        let exact = variant.parameters.is_some_and(|(error_rate, _)| error_rate == EXACT);
        Filter { variant, whole: true, exact, counts: BTreeMap::new(), ends: BTreeMap::new() }
    }

    fn count(&self, number: u64) -> u64 {
        self.counts.get(&number).copied().unwrap_or(0)
    }

    /// Adds an item. Returns true if it is new.
    fn add(&mut self, number: u64) -> bool {
        let count = self.counts.entry(number).or_default();
        *count = if self.variant.counts() { *count + 1 } else { 1 };
        *count == 1
    }

    /// Adds an item, and the time when a filter that forgets will forget it, which may be that of a TTL. Returns true
    /// if it is new.
    fn add_until(&mut self, number: u64, end: i64, is_ttl: bool) -> bool {
        let is_new = self.add(number);
        if self.variant.forgets() {
            let last = self.ends.entry(number).or_insert(end);
            if is_ttl || self.variant.options.contains("REFRESH") {
                *last = end.max(*last);
            }
        }
        is_new
    }

    fn is_over(&self, now: i64) -> bool {
        self.ends.values().any(|&end| end <= now)
    }

    /// Forgets the items whose time is over.
    fn forget(&mut self, now: i64) {
        self.counts.retain(|number, _| self.ends.get(number).is_none_or(|&end| end > now));
        self.ends.retain(|_, end| *end > now);
    }

    /// Removes one occurrence of an item.
    fn remove(&mut self, number: u64) {
        *self.counts.get_mut(&number).expect("a present item") -= 1;
    }

    fn is_crowded(&self) -> bool {
        self.counts.values().any(|&count| count > MANY)
    }

    fn merge(&mut self, other: &Filter, operation: &str) {
        let numbers: BTreeSet<u64> = self.counts.keys().chain(other.counts.keys()).copied().collect();
        self.counts = numbers
            .into_iter()
            .map(|number| {
                let (ours, theirs) = (self.count(number), other.count(number));
                let count = match operation {
                    "INTERSECT" => ours.min(theirs),
                    _ if self.variant.counts() => ours + theirs,
                    _ => ours.max(theirs),
                };
                (number, count)
            })
            .collect();
        self.exact &= other.exact;
        self.ends.retain(|number, end| other.ends.get(number).inspect(|&&theirs| *end = theirs.min(*end)).is_some());
    }

    /// Describes the first of these items whose count on the server differs from this filter's.
    fn difference(&self, client: &mut Connection, key: &str, numbers: &[u64]) -> Option<String> {
        let command = if self.variant.counts() { "BF.MCOUNT" } else { "BF.MEXISTS" };
        numbers.chunks(1000).find_map(|numbers| {
            let found: Vec<u64> = many(client, command, key, numbers);
            numbers.iter().zip(found).find_map(|(&number, found)| {
                let expected = self.count(number);
                let fits = if self.exact { found == expected } else { found >= expected };
                (!fits).then(|| format!("{key}: the count of item {number} is {found}, not {expected}"))
            })
        })
    }
}

/// Filters by key.
type State = BTreeMap<String, Arc<Filter>>;

/// Forgets the items whose time is over, in all filters.
fn forget(state: &mut State, now: i64) {
    state.values_mut().filter(|filter| filter.is_over(now)).for_each(|filter| Arc::make_mut(filter).forget(now));
}

/// A command, and its reply if that is certain.
struct Command {
    words: Vec<Vec<u8>>,
    reply: Option<Value>,
}

impl Command {
    fn new(words: &str, reply: Value) -> Command {
        Command::with_items(words, &[], Some(reply))
    }

    fn with_items(words: &str, numbers: &[u64], reply: Option<Value>) -> Command {
        let words = words.split_ascii_whitespace().map(|word| word.as_bytes().to_vec());
        Command { words: words.chain(numbers.iter().map(|&number| item(number))).collect(), reply }
    }
}

fn integers(numbers: impl IntoIterator<Item = bool>) -> Value {
    Value::Array(numbers.into_iter().map(|number| Value::Int(number.into())).collect())
}

/// Commands that run together, and the state after them.
struct Step {
    commands: Vec<Command>,
    after: State,
    now: i64,
}

impl Step {
    fn new(before: &State, now: i64) -> Step {
        Step { commands: Vec::new(), after: before.clone(), now }
    }

    fn change(&mut self, key: &str, variant: &'static Variant) -> &mut Filter {
        Arc::make_mut(self.after.entry(key.to_owned()).or_insert_with(|| Arc::new(Filter::new(variant))))
    }

    fn add(&mut self, random: &mut Random, key: &str, variant: &'static Variant, options: &str) {
        let exists = self.after.contains_key(key);
        let mut choices = vec!["BF.ADD", "BF.MADD", "BF.MADD"];
        if !exists && variant.parameters.is_some() {
            choices.clear();
        }
        choices.push(if exists { "BF.INSERT NOCREATE ITEMS" } else { "BF.INSERT ITEMS" });
        if exists && variant.forgets() {
            choices.push("BF.INSERT NOCREATE TTL 2 ITEMS");
        }
        let now = self.now;
        let filter = self.change(key, variant);
        if exists && filter.exact && !variant.forgets() {
            choices.push("BF.INSERT NOCREATE NX ITEMS");
        }
        let choice = random.one_of(&choices);
        let max = if choice == "BF.ADD" { 1 } else { 20 };
        let numbers: Vec<u64> = (0..=random.below(max)).map(|_| random.below(variant.items)).collect();
        let only_new = choice.contains("NX");
        let is_ttl = choice.contains("TTL 2");
        let end = now + if is_ttl { 2 * SECOND } else { WINDOW };
        let mut new = Vec::new();
        for &number in &numbers {
            new.push(filter.count(number) == 0);
            if !only_new || filter.count(number) == 0 {
                filter.add_until(number, end, is_ttl);
            }
        }
        let reply = match choice {
            _ if !filter.exact => None,
            "BF.ADD" => Some(Value::Int(new[0].into())),
            _ => Some(integers(new)),
        };
        let (command, own) = choice.split_once(' ').unwrap_or((choice, ""));
        let options = if exists { "" } else { options };
        self.commands.push(Command::with_items(&format!("{command} {key} {options} {own}"), &numbers, reply));
    }

    /// Removes present items, if there are any.
    fn remove(&mut self, random: &mut Random, key: &str) {
        let Some(filter) = self.after.get_mut(key).map(Arc::make_mut) else { return };
        let mut held: Vec<u64> = filter.counts.keys().copied().filter(|&number| filter.count(number) > 0).collect();
        let count = if random.chance(30) { 1 } else { random.below(10) };
        let count = count.min(held.len() as u64);
        let numbers: Vec<u64> =
            (0..count).map(|_| held.swap_remove(random.below(held.len() as u64) as usize)).collect();
        numbers.iter().for_each(|&number| filter.remove(number));
        let (command, reply) = match numbers.len() {
            0 => return,
            1 if random.chance(50) => ("BF.DEL", Value::Int(1)),
            _ => ("BF.MDEL", integers(numbers.iter().map(|_| true))),
        };
        self.commands.push(Command::with_items(&format!("{command} {key}"), &numbers, Some(reply)));
    }

    fn delete(&mut self, key: &str) {
        if self.after.remove(key).is_some() {
            self.commands.push(Command::new(&format!("DEL {key}"), Value::Int(1)));
        }
    }

    /// Returns the other completely loaded filters of the same variant.
    fn others(&self, key: &str, variant: &Variant) -> Vec<String> {
        let others = self
            .after
            .iter()
            .filter(|(other, filter)| *other != key && filter.whole && std::ptr::eq(filter.variant, variant));
        others.map(|(other, _)| other.clone()).collect()
    }

    fn reserve(&mut self, random: &mut Random, key: &str, variant: &'static Variant, seed: &str) {
        let (None, Some((error_rate, capacity))) = (self.after.get(key), variant.parameters) else { return };
        let others = self.others(key, variant);
        let words = if others.is_empty() || random.chance(50) {
            format!("BF.RESERVE {key} {error_rate} {capacity} {} {seed}", variant.options)
        } else {
            format!("BF.RESERVE {key} LIKE {}", others[random.below(others.len() as u64) as usize])
        };
        self.change(key, variant);
        self.commands.push(Command::new(&words, Value::Okay));
    }

    fn copy(&mut self, random: &mut Random, key: &str, variant: &'static Variant) {
        let others = self.others(key, variant);
        if !others.is_empty() {
            let from = &others[random.below(others.len() as u64) as usize];
            self.after.insert(key.to_owned(), self.after[from].clone());
            self.commands.push(Command::new(&format!("COPY {from} {key} REPLACE"), Value::Int(1)));
        }
    }

    fn merge(&mut self, random: &mut Random, key: &str, variant: &'static Variant) {
        let mut sources = self.others(key, variant);
        if sources.is_empty() || variant.merges.is_empty() {
            return;
        }
        sources.truncate(1 + random.below(sources.len() as u64) as usize);
        let operation = random.one_of(variant.merges);
        let mut parts = sources.iter().map(|source| self.after[source].clone()).collect::<Vec<_>>();
        parts.extend(self.after.get(key).cloned());
        if parts.iter().any(|part| part.is_crowded()) {
            return;
        }
        let mut merged = Filter::clone(&parts[0]);
        parts[1..].iter().for_each(|part| merged.merge(part, operation));
        self.after.insert(key.to_owned(), Arc::new(merged));
        let words = format!("BF.MERGE {key} {} {} {operation}", sources.len(), sources.join(" "));
        self.commands.push(Command::new(&words, Value::Okay));
    }

    /// Runs a single command as it is, or several commands in a transaction.
    fn run(&self, client: &mut Connection) -> RedisResult<()> {
        let replies = match &self.commands[..] {
            [command] => vec![run_words(client, &command.words)?],
            commands => {
                let mut pipe = redis::pipe();
                pipe.atomic();
                for command in commands {
                    command
                        .words
                        .iter()
                        .skip(1)
                        .fold(pipe.cmd(&String::from_utf8_lossy(&command.words[0])), |pipe, word| pipe.arg(&word[..]));
                }
                pipe.query::<Vec<Value>>(client)?
            }
        };
        assert_eq!(replies.len(), self.commands.len());
        for (command, reply) in self.commands.iter().zip(replies) {
            let words = String::from_utf8_lossy(&command.words[..2].join(&b' ')).into_owned();
            assert!(command.reply.as_ref().is_none_or(|expected| *expected == reply), "{words}: {reply:?}");
        }
        Ok(())
    }
}

/// A writer's filters.
pub(crate) struct Journal {
    writer: u64,
    acknowledged: State,
    /// The state after the last commands, if they were not acknowledged: the server may or may not have run them.
    doubtful: Option<State>,
    clock: Arc<Clock>,
}

impl Journal {
    pub(crate) fn new(writer: u64, clock: &Arc<Clock>) -> Journal {
        Journal { writer, acknowledged: State::new(), doubtful: None, clock: Arc::clone(clock) }
    }

    /// Returns a copy with the acknowledged state, for a later check.
    pub(crate) fn noted(&self) -> Journal {
        assert!(self.doubtful.is_none());
        Journal { acknowledged: self.acknowledged.clone(), ..Journal::new(self.writer, &self.clock) }
    }

    /// Changes one or several filters, and sometimes advances the clock first. Returns false if the server stopped
    /// before it acknowledged the change.
    pub(crate) fn write(&mut self, random: &mut Random, client: &mut Connection) -> bool {
        let clock = Arc::clone(&self.clock);
        if random.below(300) == 0
            && let Err(error) = clock.go_on(random, client)
        {
            return gone(&error);
        }
        let now = clock.0.read().expect("no writer panicked");
        forget(&mut self.acknowledged, *now);
        let steps = match self.steps(random, client, *now) {
            Ok(steps) => steps,
            Err(error) => return gone(&error),
        };
        for step in steps {
            let ran = step.run(client);
            self.doubtful = Some(step.after);
            if let Err(error) = ran {
                return gone(&error);
            }
            self.acknowledged = self.doubtful.take().expect("set above");
        }
        true
    }

    /// Panics unless the server has all acknowledged items whose time is not over, and the unacknowledged change either
    /// completely or not at all.
    pub(crate) fn check(&mut self, client: &mut Connection) {
        let now = self.clock.tell(client);
        forget(&mut self.acknowledged, now);
        if let Some(mut after) = self.doubtful.take() {
            forget(&mut after, now);
            self.decide(client, after);
        }
        for key in VARIANTS.iter().flat_map(|variant| (0..SLOTS).map(|slot| self.key(variant, slot))) {
            let filter = self.acknowledged.get(&key);
            let exists: bool = ask(client, &format!("EXISTS {key}"));
            assert_eq!(exists, filter.is_some(), "EXISTS {key}");
            if let Some(filter) = filter {
                let numbers: Vec<u64> = if filter.exact {
                    (0..filter.variant.items).collect()
                } else {
                    filter.counts.keys().copied().collect()
                };
                assert_eq!(filter.difference(client, &key, &numbers), None);
            }
        }
    }

    /// Finds out if the server ran the last commands, and updates the acknowledged state.
    fn decide(&mut self, client: &mut Connection, after: State) {
        let before = &self.acknowledged;
        let changed = before.keys().chain(after.keys()).filter(|&key| {
            let [before, after] = [before, &after].map(|state| state.get(key).map(Arc::as_ptr));
            before != after
        });
        let changed: BTreeSet<String> = changed.cloned().collect();
        let fits = |client: &mut Connection, state: &State| {
            changed.iter().all(|key| {
                let exists: bool = ask(client, &format!("EXISTS {key}"));
                let numbers = [before, &after].into_iter().filter_map(|state| state.get(key));
                let numbers: BTreeSet<u64> = numbers.flat_map(|filter| filter.counts.keys().copied()).collect();
                match state.get(key) {
                    Some(filter) => exists && filter.difference(client, key, &Vec::from_iter(numbers)).is_none(),
                    None => !exists,
                }
            })
        };
        match [fits(client, before), fits(client, &after)] {
            [false, false] => panic!("{changed:?}: neither the state before the last commands, nor the one after them"),
            [true, false] => {}
            [false, true] => self.acknowledged = after,
            // Both states are possible: only their common content is certain.
            [true, true] => {
                let mut certain = State::new();
                for (key, before) in before.iter().filter(|(key, _)| changed.contains(*key)) {
                    let mut lesser = Filter::clone(before);
                    lesser.merge(&after[key], "INTERSECT");
                    // The times of items are not certain either, so a filter that forgets is only checked and then
                    // deleted.
                    lesser.whole &= after[key].whole && !lesser.variant.forgets();
                    lesser.exact &= !lesser.variant.forgets();
                    certain.insert(key.clone(), Arc::new(lesser));
                }
                self.acknowledged.extend(certain);
            }
        }
    }

    fn key(&self, variant: &Variant, slot: u64) -> String {
        format!("{}-{}-{slot}", self.writer, variant.name)
    }

    fn seed(&self, variant: &Variant) -> String {
        if variant.options.contains("classic") { String::new() } else { format!("SEED {}", self.writer) }
    }

    /// Chooses the next steps.
    fn steps(&self, random: &mut Random, client: &mut Connection, now: i64) -> RedisResult<Vec<Step>> {
        if random.chance(5) {
            let steps = self.copy_in_chunks(random, client, now)?;
            if !steps.is_empty() {
                return Ok(steps);
            }
        }
        let mut step = Step::new(&self.acknowledged, now);
        let count = if random.chance(10) { 2 + random.below(4) } else { 1 };
        for _ in 0..count {
            self.extend(random, &mut step);
        }
        Ok(vec![step])
    }

    /// Adds one or more commands to a step.
    fn extend(&self, random: &mut Random, step: &mut Step) {
        let (variant, key) = self.any(random);
        let before = step.commands.len();
        if step.after.get(&key).is_some_and(|filter| !filter.whole) {
            return step.delete(&key);
        }
        match random.below(100) {
            0..25 if variant.counts() => step.remove(random, &key),
            25..28 => step.delete(&key),
            28..35 => step.reserve(random, &key, variant, &self.seed(variant)),
            35..40 => step.copy(random, &key, variant),
            40..47 => step.merge(random, &key, variant),
            _ => {}
        }
        if step.commands.len() == before {
            let options = variant.parameters.map_or_else(String::new, |(error_rate, capacity)| {
                format!("ERROR {error_rate} CAPACITY {capacity} {} {}", variant.options, self.seed(variant))
            });
            step.add(random, &key, variant, &options);
        }
    }

    fn any(&self, random: &mut Random) -> (&'static Variant, String) {
        let variant = &VARIANTS[random.below(VARIANTS.len() as u64) as usize];
        (variant, self.key(variant, random.below(SLOTS)))
    }

    /// Replaces a filter by a copy of another one, chunk by chunk.
    fn copy_in_chunks(&self, random: &mut Random, client: &mut Connection, now: i64) -> RedisResult<Vec<Step>> {
        let (variant, key) = self.any(random);
        let mut step = Step::new(&self.acknowledged, now);
        let others = step.others(&key, variant);
        let Some(from) = others.first() else { return Ok(Vec::new()) };
        let mut chunks: Vec<(i64, Vec<u8>)> = Vec::new();
        loop {
            let cursor = chunks.last().map_or(0, |(cursor, _)| *cursor);
            let reply = run(client, &format!("BF.SCANDUMP {from} {cursor}"))?;
            let (next, data) = redis::from_redis_value(reply).expect("a cursor and data");
            if next == 0 {
                break;
            }
            chunks.push((next, data));
        }
        let mut steps = Vec::new();
        step.delete(&key);
        let mut after = step.after.clone();
        if !step.commands.is_empty() {
            steps.push(step);
        }
        let copied = self.acknowledged[from].clone();
        let last = chunks.len() - 1;
        for (index, (cursor, data)) in chunks.into_iter().enumerate() {
            let part = Filter { whole: false, exact: false, ..Filter::new(variant) };
            after.insert(key.clone(), if index == last { copied.clone() } else { Arc::new(part) });
            let mut command = Command::new(&format!("BF.LOADCHUNK {key} {cursor}"), Value::Okay);
            command.words.push(data);
            steps.push(Step { commands: vec![command], after: after.clone(), now });
        }
        Ok(steps)
    }
}

/// Returns false if the error says that the server has stopped. Panics at any other error.
fn gone(error: &redis::RedisError) -> bool {
    assert!(error.is_io_error() || error.is_connection_dropped(), "{error}");
    false
}
