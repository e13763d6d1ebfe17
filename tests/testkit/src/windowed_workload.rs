//! Random additions to a filter that forgets, on a server with a running clock, checked against a model.

use std::collections::BTreeMap;

use redis::Connection;

use crate::command::{ask, item, many};
use crate::wire::{Reply, Wire};
use models::random::Random;

/// The number of different items.
const ITEMS: u64 = 1000;

/// An error rate that is low enough to rule out false positives among these items, with fixed seeds.
const EXACT: &str = "0.000000000001";

/// A filter's key, with a model of the times when its items are forgotten.
pub struct WindowedWorkload {
    pub key: String,
    window: Window,
    model: BTreeMap<u64, Remembered>,
}

/// The options of a filter. The length is in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub capacity: u64,
    pub length: u64,
    pub slices: u64,
    pub refresh: bool,
}

/// The time when an item is forgotten, in milliseconds since 1970: not before `min`, and not after `max`.
#[derive(Clone, Copy, Debug)]
struct Remembered {
    min: u64,
    max: u64,
}

impl WindowedWorkload {
    /// Creates the filter. The seed must be the same in all runs, since `EXACT` does not suffice for all seeds.
    pub fn create(client: &mut Wire, key: &str, seed: u64, window: Window) -> WindowedWorkload {
        let Window { capacity, length, slices, refresh } = window;
        let option = if refresh { "REFRESH" } else { "" };
        let line = format!("BF.RESERVE {key} {EXACT} {capacity} WINDOW {length} SLICES {slices} {option} SEED {seed}");
        assert_eq!(client.run(&line), Reply::simple("OK"));
        WindowedWorkload { key: key.to_owned(), window, model: BTreeMap::new() }
    }

    /// Adds random items with the lifetime of the window or a shorter one.
    pub fn add(&mut self, random: &mut Random, client: &mut Wire) {
        let lifetime = if random.chance(30) { 1 + random.below(self.window.length) } else { self.window.length };
        let ttl = format!("TTL {lifetime} ITEMS");
        let options = if lifetime < self.window.length { &ttl } else { random.one_of(&["ITEMS", "NOCREATE ITEMS"]) };
        let numbers: Vec<u64> = (0..=random.below(40)).map(|_| random.below(ITEMS)).collect();
        let words = ["BF.INSERT", &self.key].into_iter().chain(options.split_ascii_whitespace());
        let words = words.map(|word| word.as_bytes().to_vec()).chain(numbers.iter().map(|&number| item(number)));
        let words: Vec<_> = words.collect();
        let before = time(&client.run("TIME"));
        let reply = client.run_words(&words);
        let after = time(&client.run("TIME"));
        let slice = (1000 * self.window.length).div_ceil(self.window.slices);
        let added = Remembered { min: before + 1000 * lifetime, max: after + 1000 * lifetime + slice };
        for (&number, reply) in numbers.iter().zip(reply.elements()) {
            let known = self.model.get(&number).copied();
            if reply.as_bool().expect("an item that is added") {
                let was_due = known.is_none_or(|known| known.min <= after);
                assert!(was_due, "{}: item {number} was forgotten too early", self.key);
                self.model.insert(number, added);
                continue;
            }
            let known = known.filter(|known| known.max > before);
            let known = known.unwrap_or_else(|| panic!("{}: item {number} should have been new", self.key));
            // A lifetime that is given holds for items that are present, too. A shorter one changes nothing.
            if self.window.refresh || lifetime < self.window.length {
                let renewed = Remembered { min: known.min.max(added.min), max: known.max.max(added.max) };
                self.model.insert(number, renewed);
            }
        }
    }

    /// Panics if an item is missing too early, or present too late.
    pub fn check(&self, client: &mut Connection) {
        let numbers: Vec<u64> = (0..ITEMS).collect();
        let now = |client: &mut Connection| {
            let [seconds, microseconds]: [u64; 2] = ask(client, "TIME");
            1000 * seconds + microseconds / 1000
        };
        let before = now(client);
        let found: Vec<bool> = many(client, "BF.MEXISTS", &self.key, &numbers);
        let after = now(client);
        for (number, found) in numbers.into_iter().zip(found) {
            let known = self.model.get(&number);
            let is_sound = match known {
                Some(known) if found => known.max > before,
                Some(known) => known.min <= after,
                None => !found,
            };
            assert!(is_sound, "{}: item {number}: found {found} at {before} to {after}, model {known:?}", self.key);
        }
    }
}

/// Returns the time in a reply to TIME, in milliseconds since 1970.
fn time(reply: &Reply) -> u64 {
    let number = |reply: &Reply| reply.text().parse::<u64>().expect("a number");
    1000 * number(&reply.elements()[0]) + number(&reply.elements()[1]) / 1000
}
