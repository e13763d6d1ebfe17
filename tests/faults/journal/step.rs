//! A change that a writer makes: its commands, and the filters after it.

use std::sync::Arc;

use redis::{Connection, RedisResult, Value};

use crate::journal::state::{Filter, State};
use crate::journal::variants::{Variant, WINDOW};
use models::random::Random;
use testkit::clock::SECOND;
use testkit::command::item;
use testkit::run_words;

/// A command, and its reply if that is certain.
pub(crate) struct Command {
    pub words: Vec<Vec<u8>>,
    reply: Option<Value>,
}

impl Command {
    pub(crate) fn new(words: &str, reply: Value) -> Command {
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
pub(crate) struct Step {
    pub commands: Vec<Command>,
    pub after: State,
    pub now: i64,
}

impl Step {
    pub(crate) fn new(before: &State, now: i64) -> Step {
        Step { commands: Vec::new(), after: before.clone(), now }
    }

    fn change(&mut self, key: &str, variant: &'static Variant) -> &mut Filter {
        Arc::make_mut(self.after.entry(key.to_owned()).or_insert_with(|| Arc::new(Filter::new(variant))))
    }

    pub(crate) fn add(&mut self, random: &mut Random, key: &str, variant: &'static Variant, options: &str) {
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
    pub(crate) fn remove(&mut self, random: &mut Random, key: &str) {
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

    pub(crate) fn delete(&mut self, key: &str) {
        if self.after.remove(key).is_some() {
            self.commands.push(Command::new(&format!("DEL {key}"), Value::Int(1)));
        }
    }

    /// Returns the other completely loaded filters of the same variant.
    pub(crate) fn others(&self, key: &str, variant: &Variant) -> Vec<String> {
        let others = self
            .after
            .iter()
            .filter(|(other, filter)| *other != key && filter.whole && std::ptr::eq(filter.variant, variant));
        others.map(|(other, _)| other.clone()).collect()
    }

    pub(crate) fn reserve(&mut self, random: &mut Random, key: &str, variant: &'static Variant, seed: &str) {
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

    pub(crate) fn copy(&mut self, random: &mut Random, key: &str, variant: &'static Variant) {
        let others = self.others(key, variant);
        if !others.is_empty() {
            let from = &others[random.below(others.len() as u64) as usize];
            self.after.insert(key.to_owned(), self.after[from].clone());
            self.commands.push(Command::new(&format!("COPY {from} {key} REPLACE"), Value::Int(1)));
        }
    }

    pub(crate) fn merge(&mut self, random: &mut Random, key: &str, variant: &'static Variant) {
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
    pub(crate) fn run(&self, client: &mut Connection) -> RedisResult<()> {
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
