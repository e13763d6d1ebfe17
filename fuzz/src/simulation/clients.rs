//! The commands of clients: see [`super`].

use models::history::{Action, Event, PRESENT, Rule, UNKNOWN};
use models::kinds::Remembers::{Since, SinceLast};
use models::kinds::{Addition, Kind, Remembers};
use testkit::packing::Packing;

use super::{JUMP, Simulation, line};
use crate::commands::items::unpacked;
use crate::server::{self, Circumstances, Reply, Words};

/// The number of different items in small commands.
pub(super) const ITEMS: u64 = 100;

/// The number of different items in large commands, which is above the number at which a table has several segments.
const MANY_ITEMS: u64 = 4000;

/// The ways to pack items of different lengths.
const PACKINGS: &[Packing] = &[Packing::Offsets(5), Packing::Offsets64(1 << 40), Packing::Lines];

/// The error rate of all filters. No item is a false positive, except in classic cuckoo filters.
const RATE: &str = "0.000000000001";

const KIND: Kind = Kind { name: "", error_rate: RATE, capacity: 10, options: "", remembers: Remembers::All };
const COUNTING: Kind = Kind { remembers: Remembers::Counts, ..KIND };

#[rustfmt::skip]
pub(super) const KINDS: &[Kind] = &[
    Kind { name: "plain", capacity: 1500, options: "SEED 1", ..KIND },
    Kind { name: "growing", capacity: 5, options: "SEED 2", ..KIND },
    Kind { name: "fixed", capacity: 100, options: "NONSCALING SEED 3", ..KIND },
    Kind { name: "counting", options: "COUNTING SEED 4", ..COUNTING },
    Kind { name: "window", capacity: 50, options: "WINDOW 900 SLICES 4 SEED 5", remembers: Since(900), ..KIND },
    Kind { name: "refresh", capacity: 9, options: "WINDOW 90 REFRESH SEED 6", remembers: SinceLast(90), ..KIND },
    Kind { name: "rolling", capacity: 90, options: "ROLLING SEED 7", remembers: Remembers::Unknown, ..KIND },
    Kind { name: "both", capacity: 90, options: "WINDOW 600 ROLLING SEED 8", remembers: Remembers::Unknown, ..KIND },
    Kind { name: "widest", options: "WINDOW 600 ROLLING REFRESH SLICES 64 SEED 10", remembers: Remembers::Unknown, ..KIND },
    Kind { name: "classic", options: "EXPANSION 2 LAYOUT classic", ..KIND },
    Kind { name: "classic-layers", capacity: 1, options: "EXPANSION 1 LAYOUT classic", ..KIND },
    Kind { name: "valkey-layers", capacity: 1, options: "EXPANSION 1 TIGHTENING 0.999", ..KIND },
    Kind { name: "valkey", options: "SEED abcdefghijklmnopqrstuvwxyz012345", ..KIND },
    Kind { name: "cuckoo", capacity: 20, options: "ERROR 0.000000000001 SEED 9", ..COUNTING },
    Kind { name: CLASSIC_CUCKOO, capacity: 20, options: "EXPANSION 2 LAYOUT classic", ..COUNTING },
];

const CLASSIC_CUCKOO: &str = "classic-cuckoo";

pub(super) fn keys(kind: Kind) -> [String; 2] {
    [1, 2].map(|number| format!("{}-{number}", kind.name))
}

/// Returns what the removal of items does. Where it may remove others, nothing is certain any more.
fn removal(kind: Kind, key: &str, items: Vec<u64>) -> Action {
    let key = key.to_owned();
    if kind.name == CLASSIC_CUCKOO { Action::Clear { key } } else { Action::Remove { key, items } }
}

impl Simulation {
    /// Sends a command, or several that belong together, to a master. Only look-ups also go to replicas.
    pub(super) fn send_any(&mut self) {
        let masters = self.cluster.masters();
        let server = if self.random.chance(80) { self.cluster.master } else { self.random.one_of(&masters) };
        self.delete_expired(server);
        let kind = self.random.one_of(&self.kinds);
        let [one, two] = keys(kind);
        let [key, other] = if self.random.chance(50) { [&one, &two] } else { [&two, &one] };
        let exists = server::data_type(server, key.as_bytes()).is_some();
        match self.random.below(100) {
            _ if !exists && (kind.is_cuckoo() || self.random.chance(50)) => self.create(server, kind, key),
            0..60 => self.add(server, kind, key),
            60..75 if kind.counts() => self.remove(server, kind, key),
            60..92 => {
                let numbers = self.some_items();
                let reader = self.random.below(self.cluster.len() as u64) as usize;
                self.look_up(reader, kind, key, &numbers);
            }
            92..94 => self.load_chunks(server, kind, [key, other]),
            94..96 => self.merge(server, [key, other]),
            // Folding changes no item, if the filter is of a kind that can be folded.
            96 => {
                let capacity = self.random.one_of(&["", "CAPACITY 20", "CAPACITY 1000"]);
                self.send(server, &line(&format!("BF.FOLD {key} {capacity}")));
            }
            _ => self.change_key(server, [key, other]),
        }
    }

    /// Deletes the keys whose time is over, as a master does from time to time.
    fn delete_expired(&mut self, server: usize) {
        let now = self.cluster.clock(server);
        for key in server::keys(server) {
            if server::expire_time(server, &key).is_some_and(|time| time <= now) {
                self.delete(server, &String::from_utf8_lossy(&key));
            }
        }
    }

    fn delete(&mut self, server: usize, key: &str) {
        self.cluster.run(server, &line(&format!("DEL {key}")), Circumstances::default());
        self.record(server, Action::Clear { key: key.to_owned() });
    }

    fn record(&mut self, server: usize, action: Action) {
        self.cluster.record(server, self.cluster.tick, action);
    }

    /// Records the time at which a key expires, if it does.
    fn record_expiry(&mut self, server: usize, key: &str) {
        if let Some(at) = server::expire_time(server, key.as_bytes()) {
            self.record(server, Action::Expire { key: key.to_owned(), at: at.cast_unsigned() });
        }
    }

    /// Sends a command, in some runs to a server that lacks memory.
    fn send(&mut self, server: usize, words: &Words) -> Reply {
        let out_of_memory = self.lacks_memory && self.random.chance(6);
        let full = self.random.chance(2);
        self.cluster.run(server, words, Circumstances { out_of_memory, full, ..Circumstances::default() })
    }

    /// Sends a command. Sometimes its reply is lost, or the command itself, so that the client sends it again.
    fn send_until_reply(&mut self, server: usize, words: &Words, unknown: Action) -> Reply {
        if self.random.chance(3) {
            if self.random.chance(50) {
                self.send(server, words);
            }
            self.record(server, unknown);
            let event = self.cluster.history.last_mut();
            event.into_iter().for_each(|event: &mut Event| event.completed = UNKNOWN);
        }
        self.send(server, words)
    }

    fn create(&mut self, server: usize, kind: Kind, key: &str) {
        let expiry = if self.random.chance(10) { format!("PX {}", 1 + self.random.below(JUMP)) } else { String::new() };
        let command = format!("{} {expiry}", kind.reserving(key));
        if !self.send(server, &line(&command)).is_error() {
            self.record(server, Action::Clear { key: key.to_owned() });
            self.record_expiry(server, key);
        }
    }

    fn some_items(&mut self) -> Vec<u64> {
        if !self.lacks_memory && self.random.chance(2) {
            return (0..1000).map(|_| self.random.below(MANY_ITEMS)).collect();
        }
        (0..=self.random.below(8)).map(|_| self.random.below(ITEMS)).collect()
    }

    /// Adds items, and may wait until replicas have them. Only BF.INSERT creates a filter.
    fn add(&mut self, server: usize, kind: Kind, key: &str) {
        let is_nx = kind.counts() && self.random.chance(30);
        let ttl = kind.window().filter(|_| self.random.chance(30)).map(|window| 1 + self.random.below(window));
        let age = kind.window().filter(|_| self.random.chance(10)).map(|window| self.random.below(1000 * window));
        let time = self.cluster.clock(server).cast_unsigned() - age.unwrap_or(0);
        let mut numbers = self.some_items();
        let nx = if is_nx { "NX" } else { "" };
        let when = [ttl.map(|ttl| format!("TTL {ttl}")), age.map(|_| format!("AT {time}"))];
        let when = when.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let form = self.random.below(4);
        if form == 0 {
            numbers.truncate(1);
        }
        let exists = server::data_type(server, key.as_bytes()).is_some();
        let is_packed = form == 2 && exists && !kind.is_cuckoo() && !is_nx;
        let start = match form {
            0 if kind.is_cuckoo() => format!("CF.ADD{nx} {key}"),
            _ if kind.is_cuckoo() => format!("CF.INSERT{nx} {key} ITEMS"),
            0 if exists && !is_nx && when.is_empty() => format!("BF.ADD {key}"),
            1 if exists && !is_nx && when.is_empty() => format!("BF.MADD {key}"),
            _ if is_packed => format!("BF.ADDPACKED {key} {when}"),
            _ => format!("{} {nx} {when} ITEMS", kind.inserting("BF.INSERT", key)),
        };
        let words = self.with_items(&start, &numbers, is_packed);
        let nothing_certain = Action::Add { key: key.to_owned(), items: Vec::new(), copies: 1 };
        let reply = self.send_until_reply(server, &words, nothing_certain);
        let invoked = self.cluster.tick;
        let replies = if is_packed { unpacked(&reply, numbers.len()) } else { reply.integers() };
        let items = kind.promised(Addition { time, ttl, is_nx }, &numbers, &replies);
        let copies = if server == self.cluster.master && self.random.chance(15) { self.wait() } else { 1 };
        self.cluster.tick += 1;
        self.cluster.record(server, invoked, Action::Add { key: key.to_owned(), items, copies });
    }

    /// Returns a command with items.
    fn with_items(&mut self, start: &str, numbers: &[u64], is_packed: bool) -> Words {
        let items: Words = numbers.iter().map(|number| format!("item {number}").into_bytes()).collect();
        let arguments = if is_packed { self.random.one_of(PACKINGS).pack(&items) } else { items };
        [line(start), arguments].concat()
    }

    /// Waits for replicas for a while. Returns the number of servers that have everything.
    fn wait(&mut self) -> usize {
        for _ in 0..self.random.below(4) {
            let replica = self.random.one_of(&self.cluster.replicas());
            self.cluster.deliver(replica, usize::MAX);
        }
        self.cluster.copies()
    }

    fn remove(&mut self, server: usize, kind: Kind, key: &str) {
        let mut numbers = self.some_items();
        let is_packed = !kind.is_cuckoo() && self.random.chance(30);
        let verb = if is_packed { "DELPACKED" } else { "MDEL" };
        let verb = if kind.is_cuckoo() { "DEL" } else { verb };
        if kind.is_cuckoo() {
            numbers.truncate(1);
        }
        let words = self.with_items(&format!("{}.{verb} {key}", kind.prefix()), &numbers, is_packed);
        let reply = self.send_until_reply(server, &words, removal(kind, key, numbers.clone()));
        let replies = if is_packed { unpacked(&reply, numbers.len()) } else { reply.integers() };
        let removed = numbers.into_iter().zip(replies).filter(|(_, reply)| *reply == 1);
        let removed: Vec<_> = removed.map(|(number, _)| number).collect();
        if !removed.is_empty() {
            self.record(server, removal(kind, key, removed));
        }
    }

    pub(super) fn look_up(&mut self, server: usize, kind: Kind, key: &str, numbers: &[u64]) {
        // CF.COUNT has one item only.
        let (verb, at_a_time) = match kind.counts() {
            true if kind.is_cuckoo() => ("COUNT", 1),
            true => ("MCOUNT", numbers.len()),
            false => ("MEXISTS", numbers.len()),
        };
        let mut found = Vec::new();
        for numbers in numbers.chunks(at_a_time) {
            let words = self.with_items(&format!("{}.{verb} {key}", kind.prefix()), numbers, false);
            let replies = self.cluster.run(server, &words, Circumstances::default()).integers();
            let count = |reply: i64| if reply == 0 || kind.counts() { reply.cast_unsigned() } else { PRESENT };
            found.extend(numbers.iter().copied().zip(replies.into_iter().map(count)));
        }
        self.record(server, Action::Read { key: key.to_owned(), found });
    }

    /// Copies a filter in chunks. The copy may stay incomplete.
    fn load_chunks(&mut self, server: usize, kind: Kind, [from, to]: [&str; 2]) {
        self.delete(server, to);
        let invoked = self.cluster.tick;
        let mut cursor = 0;
        let is_complete = loop {
            let reply = self.send(server, &line(&format!("{}.SCANDUMP {from} {cursor}", kind.prefix())));
            let [Reply::Integer(next), Reply::Bulk(data)] = reply.elements() else { break false };
            if *next == 0 {
                break cursor > 0;
            }
            cursor = *next;
            let words = [line(&format!("{}.LOADCHUNK {to} {next}", kind.prefix())), vec![data.clone()]].concat();
            if self.send(server, &words).is_error() || self.random.chance(10) {
                break false;
            }
        };
        let (to, sources) = (to.to_owned(), vec![from.to_owned()]);
        let copied = Action::Merge { to: to.clone(), sources, rule: Rule::Replace };
        self.cluster.record(server, invoked, if is_complete { copied } else { Action::Clear { key: to } });
    }

    fn merge(&mut self, server: usize, [from, to]: [&str; 2]) {
        let exists = server::data_type(server, to.as_bytes()).is_some();
        let mut sources = vec![from.to_owned(); 1 + self.random.below(2) as usize];
        let operation = self.random.one_of(&["UNION", "INTERSECT"]);
        let replace = self.random.one_of(&["REPLACE", ""]);
        let command = format!("BF.MERGE {to} {} {} {operation} {replace}", sources.len(), sources.join(" "));
        if self.send(server, &line(&command)).is_error() {
            return;
        }
        let rule = match (operation, replace) {
            ("UNION", "") => Rule::Union,
            ("UNION", _) => Rule::Replace,
            _ => Rule::Intersect,
        };
        if rule == Rule::Intersect && replace.is_empty() && exists {
            sources.push(to.to_owned());
        }
        self.record(server, Action::Merge { to: to.to_owned(), sources, rule });
    }

    /// Sends a command of the server.
    fn change_key(&mut self, server: usize, [key, other]: [&str; 2]) {
        let copied = |rule| Action::Merge { to: other.to_owned(), sources: vec![key.to_owned()], rule };
        let (words, action) = match self.random.below(5) {
            0 => return self.delete(server, key),
            1 => (line(&format!("RENAME {key} {other}")), copied(Rule::Move)),
            2 => (line(&format!("COPY {key} {other}")), copied(Rule::Replace)),
            3 => {
                let Some((data_type, file)) = server::save(server, key.as_bytes()) else { return };
                ([line(&format!("RESTORE {other} {data_type}")), vec![file]].concat(), copied(Rule::Replace))
            }
            _ => {
                let at = self.cluster.clock(server).cast_unsigned() + self.random.below(JUMP);
                (line(&format!("PEXPIREAT {key} {at}")), Action::Expire { key: key.to_owned(), at })
            }
        };
        if self.send(server, &words) == Reply::Integer(1) {
            self.record(server, action);
            self.record_expiry(server, other);
        }
    }
}
