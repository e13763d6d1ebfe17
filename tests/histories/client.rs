//! A client: it sends random commands to the master that it believes in, reads from any server, and records what the
//! filters must remember from then on.

use redis::Value;

use models::history::{Action, Added, PRESENT, Rule, UNKNOWN};
use models::kinds::{Addition, Kind};
use models::random::Random;
use testkit::command::with_items;
use testkit::error_text;

use crate::connection::Client;
use crate::group::Group;
use crate::kinds::{EXPIRING, ITEMS, additions, keys, merges, unpacked, with_packed};
use crate::record::Time;

/// The maximum number of items in a command.
const BATCH: u64 = 9;

/// Errors that say that a server is no master at the moment, or has no data or no such key.
const EXPECTED: [&str; 7] = [
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "UNBLOCKED",
    "WAIT cannot be used",
    "Not found",
    // One of two filters was folded.
    "cannot merge filters that differ in their capacity",
];

pub(crate) struct Worker<'a> {
    pub(crate) group: &'a Group,
    pub(crate) random: Random,
    clients: Vec<Client<'a>>,
}

/// The outcome of a command, as far as the client knows it.
enum Outcome {
    Done(Value),
    /// The server did nothing.
    Rejected,
    Unknown,
}

/// A command on a key that is on its way.
struct Call {
    server: usize,
    key: String,
    invoked: Time,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(group: &'a Group, random: Random) -> Worker<'a> {
        Worker { group, random, clients: (0..group.size()).map(|server| Client::new(group, server)).collect() }
    }

    /// Runs a random command.
    pub(crate) fn step(&mut self) {
        let kind = self.random.one_of(&self.group.kinds);
        let any = self.random.below(self.group.size() as u64) as usize;
        let server = if self.random.chance(95) { self.group.master() } else { any };
        match self.random.below(100) {
            0..50 => self.add(server, kind),
            50..62 if kind.counts() => self.remove(server, kind),
            62..72 => self.combine(server, kind),
            72..74 => self.clear(server, kind),
            74..78 => self.expire(server, kind),
            _ => {
                let key = self.random.below(3) as usize;
                let items = self.items(BATCH);
                self.read(any, kind, key, &items);
            }
        }
    }

    fn add(&mut self, server: usize, kind: &Kind) {
        let number = self.random.below(3) as usize;
        let key = &keys(kind)[number];
        // Sentinels may promote a replica that has no filters any more.
        let may_create = number == EXPIRING || self.group.sentinels.is_some();
        let command = self.random.one_of(additions(kind, may_create));
        let mut items = self.items(BATCH);
        let waits = self.random.chance(40);
        let mut expiry = None;
        let mut ttl = None;
        let words = if command.contains("INSERT") {
            expiry = (number == EXPIRING).then(|| self.random.one_of(&[500, 900]));
            ttl = kind.window().filter(|_| self.random.chance(50)).map(|window| window / 2);
            let option = |name, seconds: Option<u64>| seconds.map(|seconds| format!("{name} {seconds}"));
            let options = [option("EX", expiry), option("TTL", ttl)].into_iter().flatten().collect::<Vec<_>>();
            with_items(&format!("{} {} ITEMS", kind.inserting(command, key), options.join(" ")), &items)
        } else if command == "BF.ADDPACKED" {
            with_packed(&format!("{command} {key}"), &items)
        } else {
            items.truncate(if command == "BF.MADD" { items.len() } else { 1 });
            with_items(&format!("{command} {key}"), &items)
        };
        let call = self.call(server, key);
        let outcome = self.send(server, &words);
        let earliest = self.group.record.earliest_clock(server, call.invoked);
        if let Some(seconds) = expiry {
            // It only holds if this command created the filter, which nobody knows.
            self.note_expiry(&call, &outcome, earliest + seconds * 1000);
        }
        let unknown = |key| Action::Add { key, items: Vec::new(), copies: 1 };
        let Some(replies) = self.numbers(&call, outcome, items.len(), unknown) else { return };
        let addition = Addition { time: earliest, ttl, is_nx: command.ends_with("NX") };
        self.note_addition(call, kind.promised(addition, &items, &replies), waits);
    }

    /// Records an addition. With `waits`, first waits until a majority of the servers has it.
    fn note_addition(&mut self, call: Call, items: Vec<Added>, waits: bool) {
        let Call { server, key, invoked } = call;
        let (mut copies, mut completed) = (1, self.group.record.now());
        if waits {
            let majority = self.group.size() / 2;
            if let Outcome::Done(Value::Int(replicas)) =
                self.send(server, &with_items(&format!("WAIT {majority} 150"), &[]))
            {
                copies += replicas as usize;
                completed = self.group.record.now();
            }
        }
        self.group.record.note_during(server, invoked..completed, Action::Add { key, items, copies });
    }

    fn remove(&mut self, server: usize, kind: &Kind) {
        let key = &keys(kind)[self.random.below(3) as usize];
        let mut items = self.items(BATCH);
        let form = self.random.below(3);
        if kind.is_cuckoo() || form == 0 {
            items.truncate(1);
        }
        let words = match form {
            1 if !kind.is_cuckoo() => with_items(&format!("BF.MDEL {key}"), &items),
            2 if !kind.is_cuckoo() => with_packed(&format!("BF.DELPACKED {key}"), &items),
            _ => with_items(&format!("{}.DEL {key}", kind.prefix()), &items),
        };
        let call = self.call(server, key);
        let outcome = self.send(server, &words);
        let all = items.clone();
        let Some(replies) = self.numbers(&call, outcome, items.len(), |key| Action::Remove { key, items: all }) else {
            return;
        };
        let removed = items.into_iter().zip(replies).filter(|&(_, reply)| reply == 1).map(|(item, _)| item).collect();
        self.group.record.note(server, call.invoked, Action::Remove { key: call.key, items: removed });
    }

    /// Merges one of the two filters that always exist into the other, copies it, or folds the other.
    fn combine(&mut self, server: usize, kind: &Kind) {
        let [mut from, mut to, _] = keys(kind);
        if self.random.chance(50) {
            std::mem::swap(&mut from, &mut to);
        }
        if kind.name == "fixed" && self.random.chance(20) {
            // No item changes.
            self.send(server, &with_items(&format!("BF.FOLD {to} CAPACITY {}", 2 * ITEMS), &[]));
            return;
        }
        let merge = format!("BF.MERGE {to} 1 {from}");
        let both = vec![to.clone(), from.clone()];
        let (command, sources, rule) = match self.random.below(5) {
            0 | 1 if merges(kind) => (merge, vec![from], Rule::Union),
            2 if merges(kind) => (format!("{merge} REPLACE"), vec![from], Rule::Replace),
            3 if merges(kind) && kind.options.contains("NONSCALING") => {
                (format!("{merge} INTERSECT"), both, Rule::Intersect)
            }
            _ => (format!("COPY {from} {to} REPLACE"), vec![from], Rule::Replace),
        };
        let call = self.call(server, &to);
        let action = Action::Merge { to, sources, rule };
        match self.send(server, &with_items(&command, &[])) {
            Outcome::Done(Value::Int(0)) | Outcome::Rejected => {}
            Outcome::Done(_) => self.group.record.note(server, call.invoked, action),
            Outcome::Unknown => self.group.record.note_during(server, call.invoked..UNKNOWN, action),
        }
    }

    /// Deletes a key. One that always exists is created again at the same moment.
    fn clear(&mut self, server: usize, kind: &Kind) {
        let key = self.random.below(3) as usize;
        let name = &keys(kind)[key];
        let words = if key == EXPIRING {
            with_items(&format!("DEL {name}"), &[])
        } else {
            let script = "redis.call('DEL', KEYS[1]) return redis.call(unpack(ARGV))";
            let call = ["EVAL", script, "1", name].map(|word| word.as_bytes().to_vec());
            call.into_iter().chain(with_items(&kind.reserving(name), &[])).collect()
        };
        let call = self.call(server, name);
        let action = Action::Clear { key: call.key };
        match self.send(server, &words) {
            Outcome::Done(_) => self.group.record.note(server, call.invoked, action),
            Outcome::Rejected => {}
            Outcome::Unknown => self.group.record.note_unknown(server, call.invoked, action),
        }
    }

    fn expire(&mut self, server: usize, kind: &Kind) {
        let [_, _, key] = keys(kind);
        let seconds = self.random.one_of(&[1, 400, 500, 600, 700, 800]);
        let call = self.call(server, &key);
        let outcome = self.send(server, &with_items(&format!("EXPIRE {key} {seconds}"), &[]));
        let earliest = self.group.record.earliest_clock(server, call.invoked);
        self.note_expiry(&call, &outcome, earliest + seconds * 1000);
    }

    /// Records that a key may expire at a time of the clock. If the server executes the command later, its clock may
    /// show any time.
    fn note_expiry(&self, call: &Call, outcome: &Outcome, at: u64) {
        let key = call.key.clone();
        let record = &self.group.record;
        match outcome {
            Outcome::Done(_) => record.note(call.server, call.invoked, Action::Expire { key, at }),
            Outcome::Rejected => {}
            Outcome::Unknown => record.note_unknown(call.server, call.invoked, Action::Expire { key, at: 0 }),
        }
    }

    /// Looks items up. A server that has no data may reject this.
    pub(crate) fn read(&mut self, server: usize, kind: &Kind, number: usize, items: &[u64]) {
        let key = &keys(kind)[number];
        let counts = kind.counts() && self.random.chance(70);
        if counts && kind.is_cuckoo() && items.len() > 1 {
            // CF.COUNT takes one item.
            return items.chunks(1).for_each(|item| self.read(server, kind, number, item));
        }
        let words = match kind.is_cuckoo() {
            false if counts => with_items(&format!("BF.MCOUNT {key}"), items),
            false if self.random.chance(30) => with_packed(&format!("BF.EXISTSPACKED {key}"), items),
            true if counts => with_items(&format!("CF.COUNT {key}"), items),
            _ => with_items(&format!("{}.MEXISTS {key}", kind.prefix()), items),
        };
        let shows_counts = words[0].ends_with(b"COUNT");
        let call = self.call(server, key);
        let Outcome::Done(reply) = self.send(server, &words) else { return };
        let found = items.iter().zip(numbers(&reply, items.len())).map(|(&item, number)| match number {
            1 if !shows_counts => (item, PRESENT),
            number => (item, number.max(0) as u64),
        });
        let action = Action::Read { key: call.key, found: found.collect() };
        self.group.record.note(server, call.invoked, action);
    }

    /// Returns some items, at least one and at most `most`.
    fn items(&mut self, most: u64) -> Vec<u64> {
        (0..=self.random.below(most)).map(|_| self.random.below(ITEMS)).collect()
    }

    fn call(&self, server: usize, key: &str) -> Call {
        Call { server, key: key.to_owned(), invoked: self.group.record.now() }
    }

    fn send(&mut self, server: usize, words: &[Vec<u8>]) -> Outcome {
        let Some(reply) = self.clients[server].send(words) else { return Outcome::Rejected };
        match reply.and_then(Value::extract_error) {
            Ok(value) => Outcome::Done(value),
            Err(error) if error.code().is_none() => {
                self.clients[server].disconnect();
                Outcome::Unknown
            }
            Err(error) => {
                let text = error_text(&error);
                // Sentinels may promote a replica that has just deleted its data, and so has no filters.
                if self.group.sentinels.is_none() && !EXPECTED.iter().any(|expected| text.contains(expected)) {
                    let command = String::from_utf8_lossy(&words[..2].join(&b' ')).into_owned();
                    self.group.surprise(format!("{command} on server {server}: {text}"));
                }
                Outcome::Rejected
            }
        }
    }

    /// Returns the numbers in the reply, if there is one. Records `unknown` if nobody knows.
    fn numbers(
        &self,
        call: &Call,
        outcome: Outcome,
        count: usize,
        unknown: impl FnOnce(String) -> Action,
    ) -> Option<Vec<i64>> {
        match outcome {
            Outcome::Done(reply) => return Some(numbers(&reply, count)),
            Outcome::Rejected => {}
            Outcome::Unknown => {
                self.group.record.note_unknown(call.server, call.invoked, unknown(call.key.clone()));
            }
        }
        None
    }
}

/// Returns a number for each item in a reply.
fn numbers(reply: &Value, count: usize) -> Vec<i64> {
    match reply {
        Value::Int(number) => vec![*number],
        Value::BulkString(bits) => unpacked(bits, count),
        Value::Array(elements) => {
            assert_eq!(elements.len(), count, "{elements:?}");
            elements.iter().flat_map(|element| numbers(element, 1)).collect()
        }
        _ => panic!("{reply:?} for {count} items"),
    }
}
