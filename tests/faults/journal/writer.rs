//! The journal: it writes, and compares a server with the changes that were acknowledged.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::{Connection, RedisResult, Value};

use crate::journal::clock::Clock;
use crate::journal::state::{Filter, State, forget};
use crate::journal::step::{Command, Step};
use crate::journal::variants::{VARIANTS, Variant};
use models::random::Random;
use testkit::{ask, run};

/// The largest number of filters of each variant per writer.
const SLOTS: u64 = 3;

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
