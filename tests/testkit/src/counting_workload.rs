//! Random additions to and removals from a counting filter on a server, checked against a model.

use redis::Connection;

use crate::command::{item, many};
use crate::wire::{Reply, Wire};
use models::counting::CountingModel;
use models::random::Random;

/// The number of different items.
const ITEMS: u64 = 2000;

/// The key of a counting filter, and the model of its content.
pub struct CountingWorkload {
    pub key: String,
    model: CountingModel<u64>,
}

impl CountingWorkload {
    pub fn new(key: &str) -> CountingWorkload {
        CountingWorkload { key: key.to_owned(), model: CountingModel::default() }
    }

    /// Adds random items, or one item a hundred times, until one does not fit. Some of the items are already present.
    pub fn add(&mut self, random: &mut Random, client: &mut Wire) {
        let (command, options) = random.one_of(&[
            ("BF.ADD", ""),
            ("BF.MADD", ""),
            ("BF.MADD", ""),
            ("BF.INSERT", "COUNTING ITEMS"),
            ("BF.INSERT", "NOCREATE NX ITEMS"),
        ]);
        let most = if command == "BF.ADD" { 1 } else { 60 };
        let some = |random: &mut Random| if random.chance(5) { random.below(3) } else { random.below(ITEMS) };
        let numbers: Vec<u64> = if random.chance(4) && command != "BF.ADD" {
            vec![some(random); 100]
        } else {
            (0..=random.below(most)).map(|_| some(random)).collect()
        };
        let reply = self.ask(client, command, options, &numbers);
        let replies = match &reply {
            Reply::Array(replies) => replies,
            single => std::slice::from_ref(single),
        };
        for (number, reply) in numbers.iter().zip(replies) {
            let Some(new) = reply.as_bool() else {
                assert_eq!(*reply, Reply::error("ERR non scaling filter is full"));
                break;
            };
            let count = self.model.count(number);
            assert!(!new || count == 0, "{command} {}: item {number} was new, but had the count {count}", self.key);
            // NX also skips false positives.
            if new || !options.contains("NX") {
                self.model.add(*number);
            }
        }
    }

    /// Removes some present items, and tries to remove a few absent ones.
    ///
    /// The absent ones must not be false positives: removing a false positive would remove another item.
    pub fn remove(&mut self, random: &mut Random, client: &mut Wire) {
        let absent: Vec<u64> = (0..random.below(4)).map(|_| random.below(ITEMS)).collect();
        let absent = absent.into_iter().filter(|number| {
            !self.model.contains(number) && self.ask(client, "BF.COUNT", "", &[*number]) == Reply::Integer(0)
        });
        let absent: Vec<u64> = absent.collect();
        let most = 1 + random.below(60);
        let mut steps: Vec<(u64, i64)> = self.take(random, most).into_iter().map(|number| (number, 1)).collect();
        for number in absent {
            steps.insert(random.below(steps.len() as u64 + 1) as usize, (number, 0));
        }
        if random.chance(20) {
            for (number, expected) in steps {
                let removed = self.ask(client, "BF.DEL", "", &[number]);
                assert_eq!(removed, Reply::Integer(expected), "BF.DEL {} (item {number})", self.key);
            }
        } else if !steps.is_empty() {
            let (numbers, expected): (Vec<u64>, Vec<i64>) = steps.into_iter().unzip();
            let removed = self.ask(client, "BF.MDEL", "", &numbers);
            assert_eq!(removed, Reply::integers(&expected), "BF.MDEL {} (items {numbers:?})", self.key);
        }
    }

    /// Removes all items, and checks that the filter then is as large as an empty one.
    pub fn empty(&mut self, random: &mut Random, client: &mut Wire) {
        while !self.model.is_empty() {
            let numbers = self.take(random, 100);
            let removed = self.ask(client, "BF.MDEL", "", &numbers);
            assert_eq!(removed, Reply::integers(&vec![1; numbers.len()]), "BF.MDEL {} (items {numbers:?})", self.key);
        }
        self.assert_empty(client);
    }

    /// Panics unless the filter is like a new one.
    fn assert_empty(&self, client: &mut Wire) {
        let Self { key, .. } = self;
        let empty = format!("{key}-never-added-to");
        assert_eq!(client.run(&format!("BF.RESERVE {empty} LIKE {key}")), Reply::simple("OK"));
        for field in ["ITEMS", "FILTERS", "CAPACITY", "FILL", "FPR", "SIZE"] {
            let [now, never] = [key, &empty].map(|key| client.run(&format!("BF.INFO {key} {field}")));
            assert_eq!(now, never, "{field} of the emptied filter {key}, and of a new one");
        }
        let all: Vec<u64> = (0..ITEMS).collect();
        let counts = self.ask(client, "BF.MCOUNT", "", &all);
        assert_eq!(counts, Reply::integers(&[0; ITEMS as usize]), "{key}");
        assert_eq!(client.run(&format!("DEL {empty}")), Reply::Integer(1));
    }

    /// Panics if an item is missing, or if its count is too low.
    pub fn check(&self, client: &mut Connection) {
        let numbers: Vec<u64> = self.model.items().copied().collect();
        for numbers in numbers.chunks(1000) {
            let counts: Vec<u64> = many(client, "BF.MCOUNT", &self.key, numbers);
            let found: Vec<bool> = many(client, "BF.MEXISTS", &self.key, numbers);
            for (number, (count, found)) in numbers.iter().zip(counts.into_iter().zip(found)) {
                let held = self.model.count(number);
                let is_sound = found && self.model.allows(number, count);
                assert!(is_sound, "{}: item {number} is held {held} times; found {found}, count {count}", self.key);
            }
        }
    }

    /// Removes some occurrences from the model, and returns their items.
    fn take(&mut self, random: &mut Random, most: u64) -> Vec<u64> {
        let mut held: Vec<u64> = self.model.occurrences().copied().collect();
        let count = most.min(held.len() as u64);
        let taken: Vec<u64> = (0..count).map(|_| held.swap_remove(random.below(held.len() as u64) as usize)).collect();
        taken.iter().for_each(|number| self.model.remove(number));
        taken
    }

    fn ask(&self, client: &mut Wire, command: &str, options: &str, numbers: &[u64]) -> Reply {
        let words = [command, &self.key].into_iter().chain(options.split_ascii_whitespace());
        let words = words.map(|word| word.as_bytes().to_vec()).chain(numbers.iter().map(|&number| item(number)));
        client.run_words(&words.collect::<Vec<_>>())
    }
}
