//! Random commands on cuckoo filters of a server, of both layouts, checked against a model that counts all items.

use redis::{Connection, Value};

use crate::command::{ABSENT, ask, item, many, raw, run, run_words};
use crate::info::{filter_info, layout_of};
use crate::key_commands::run_on_key;
use models::keyspace::KeyspaceModel;
use models::random::Random;

/// The number of keys in random commands.
const KEYS: u64 = 4;

/// The number of items in random commands.
const ITEMS: u64 = 700;

/// Some keys that only this client writes to, and the model of their filters.
pub struct CuckooWorkload {
    /// The prefix of the keys.
    prefix: String,
    model: KeyspaceModel<u64>,
}

impl CuckooWorkload {
    pub fn new(prefix: &str) -> CuckooWorkload {
        CuckooWorkload { prefix: prefix.to_owned(), model: KeyspaceModel::default() }
    }

    /// Runs a random command, or several that belong together. Returns them as text.
    pub fn step(&mut self, random: &mut Random, client: &mut Connection) -> String {
        let key = format!("{}cuckoo{}", self.prefix, random.below(KEYS));
        let other = format!("{}cuckoo{}", self.prefix, random.below(KEYS));
        let number = random.below(ITEMS);
        match random.below(26) {
            0..3 => self.add(client, "CF.ADD", &key, &[], &[number]),
            3 | 4 => self.add(client, "CF.ADDNX", &key, &[], &[number]),
            5..8 => self.add(client, "CF.INSERT", &key, &insert_options(random), &some_items(random)),
            8..10 => self.add(client, "CF.INSERTNX", &key, &insert_options(random), &some_items(random)),
            // Copies of one item, which fill its buckets.
            10 => self.add(client, "CF.INSERT", &key, &["ITEMS".to_owned()], &[number % 8; 5]),
            11..16 => self.remove(random, client, &key),
            16 => self.look_up(client, &key),
            17 => self.reserve(random, client, &key),
            18 => {
                let command = format!("CF.COMPACT {key}");
                assert_eq!(run(client, &command).is_ok(), self.model.get(&key).is_some(), "{command}");
                command
            }
            19..23 => run_on_key(&mut self.model, random, client, &key, &other),
            23 => self.load_chunks(client, &key, &other),
            _ => self.run_at_once(random, client, &key),
        }
    }

    /// Returns an error if an item is missing or its count too low, or if the servers reply differently.
    pub fn check(&self, [master, replica]: [&mut Connection; 2]) -> Result<(), String> {
        let all: Vec<u64> = (0..ITEMS).chain(ABSENT..ABSENT + 100).collect();
        for (key, filter) in self.model.filters() {
            let key = &String::from_utf8_lossy(key);
            let [ours, theirs] = [&mut *master, &mut *replica].map(|client| {
                let found: Vec<bool> = many(client, "CF.MEXISTS", key, &all);
                (layout_of(client, key), filter_info(client, key), counts(client, key, &all), found)
            });
            if ours != theirs {
                return Err(format!("{key} differs: {:?} {:?}", (ours.0, ours.1), (theirs.0, theirs.1)));
            }
            let (layout, _, counts, found) = ours;
            for ((number, count), found) in all.iter().zip(counts).zip(found) {
                if found != (count > 0) || !filter.allows(number, count) {
                    let held = filter.count(number);
                    return Err(format!("{layout} {key}: item {number}, held {held} times, has the count {count}"));
                }
            }
        }
        Ok(())
    }

    /// Adds items. Those that the server acknowledged must be present from now on.
    fn add(
        &mut self,
        client: &mut Connection,
        command: &str,
        key: &str,
        options: &[String],
        numbers: &[u64],
    ) -> String {
        let words = [command, key].into_iter().chain(options.iter().map(String::as_str));
        let words = words.map(|word| word.as_bytes().to_vec()).chain(numbers.iter().map(|&number| item(number)));
        // The last element of an array may be an error.
        let reply = raw(client, &words.collect::<Vec<_>>());
        let shown = format!("{command} {key} {} {numbers:?}: {reply:?}", options.join(" "));
        let replies = match &reply {
            Value::Array(replies) => replies,
            Value::ServerError(_) => {
                assert_eq!(ask::<bool>(client, &format!("EXISTS {key}")), self.model.get(key).is_some(), "{shown}");
                return shown;
            }
            single => std::slice::from_ref(single),
        };
        let filter = self.model.get_or_create(key);
        let adds_copies = ["CF.ADD", "CF.INSERT"].contains(&command);
        for (&number, reply) in numbers.iter().zip(replies) {
            match reply {
                Value::Int(1) => {
                    assert!(adds_copies || !filter.contains(&number), "{number} was present: {shown}");
                    filter.add(number);
                }
                Value::Int(0) => assert!(!adds_copies, "{shown}"),
                Value::Int(-1) => {}
                Value::ServerError(_) => break,
                other => panic!("{other:?}: {shown}"),
            }
        }
        shown
    }

    /// Removes an item that is present, or tries to remove one that is certainly absent. The removal of a false
    /// positive would remove another item.
    fn remove(&mut self, random: &mut Random, client: &mut Connection, key: &str) -> String {
        let Some(filter) = self.model.get(key) else { return String::new() };
        let held: Vec<u64> = filter.items().copied().collect();
        let number = if held.is_empty() || random.chance(10) { random.below(ITEMS) } else { random.one_of(&held) };
        let expected = u64::from(filter.contains(&number));
        let shown = format!("CF.DEL {key} {number}");
        if expected == 0 && many::<bool>(client, "CF.EXISTS", key, &[number]) {
            return String::new();
        }
        assert_eq!(many::<u64>(client, "CF.DEL", key, &[number]), expected, "{shown}");
        if expected == 1 {
            self.model.get_or_create(key).remove(&number);
        }
        shown
    }

    /// Checks that no item is missing, if the key has a filter, and that all are absent if it has none.
    fn look_up(&self, client: &mut Connection, key: &str) -> String {
        let all: Vec<u64> = (0..ITEMS).collect();
        let found: Vec<bool> = many(client, "CF.MEXISTS", key, &all);
        let counts = counts(client, key, &all);
        for (number, (&found, &count)) in all.iter().zip(found.iter().zip(&counts)) {
            let held = self.model.get(key).map_or(0, |filter| filter.count(number));
            assert!(count >= held && found == (count > 0), "{key}: item {number}: {found}, {count}, {held}");
            assert!(self.model.get(key).is_some() || !found, "{key}: item {number}");
        }
        format!("CF.COUNT {key}")
    }

    fn reserve(&mut self, random: &mut Random, client: &mut Connection, key: &str) -> String {
        let capacity = random.one_of(&["16", "100", "1000"]);
        let mut words = vec!["CF.RESERVE".to_owned(), key.to_owned(), capacity.to_owned()];
        let is_classic = random.chance(50);
        words.extend(["LAYOUT", if is_classic { "classic" } else { "native" }].map(str::to_owned));
        let choices = [
            ("BUCKETSIZE", random.one_of(&["1", "2", "4", "7"]).to_owned()),
            ("MAXITERATIONS", random.one_of(&["1", "20", "200"]).to_owned()),
            ("EXPANSION", random.one_of(&["0", "1", "2", "3"]).to_owned()),
            ("ERROR", random.one_of(&["0.2", "0.01", "0.000001"]).to_owned()),
            ("SEED", random.next_u64().to_string()),
        ];
        for (option, value) in choices.into_iter().take(if is_classic { 3 } else { 5 }) {
            if random.chance(40) {
                words.extend([option.to_owned(), value]);
            }
        }
        let is_new = self.model.get(key).is_none();
        assert_eq!(run_words(client, &words).is_ok(), is_new, "{words:?}");
        if is_new {
            self.model.create(key);
        }
        words.join(" ")
    }

    /// Copies a filter in chunks.
    fn load_chunks(&mut self, client: &mut Connection, from: &str, to: &str) -> String {
        if from == to || self.model.get(from).is_none() {
            return String::new();
        }
        run(client, &format!("DEL {to}")).unwrap();
        let mut cursor = 0;
        loop {
            let (next, data): (u64, Option<Vec<u8>>) = ask(client, &format!("CF.SCANDUMP {from} {cursor}"));
            let Some(data) = data.filter(|_| next > 0) else { break };
            cursor = next;
            let number = next.to_string();
            let loaded = run_words(client, &[b"CF.LOADCHUNK".as_slice(), to.as_bytes(), number.as_bytes(), &data]);
            assert_eq!(loaded, Ok(Value::Okay), "{next} of {from}, for {to}");
        }
        self.model.delete(to);
        if cursor > 0 {
            self.model.copy(from, to);
        }
        format!("CF.LOADCHUNK {to} (from {from})")
    }

    /// Adds two copies of an item that is present, and removes one, in a transaction or a script. A full filter rejects
    /// copies.
    fn run_at_once(&mut self, random: &mut Random, client: &mut Connection, key: &str) -> String {
        let held: Vec<u64> = self.model.get(key).into_iter().flat_map(|filter| filter.items().copied()).collect();
        if held.is_empty() {
            return String::new();
        }
        let number = random.one_of(&held);
        let replies: Vec<Value> = if random.chance(50) {
            let mut pipe = redis::pipe();
            pipe.atomic().ignore_errors();
            for command in ["CF.ADD", "CF.ADD", "CF.DEL"] {
                pipe.cmd(command).arg(key).arg(item(number));
            }
            pipe.query(client).expect("a transaction")
        } else {
            let script = "local added = redis.call('CF.INSERT', KEYS[1], 'ITEMS', ARGV[1], ARGV[1]) \
                          return {added[1], added[2] or -1, redis.call('CF.DEL', KEYS[1], ARGV[1])}";
            let words = [b"EVAL", script.as_bytes(), b"1", key.as_bytes(), &item(number)];
            redis::from_redis_value(run_words(client, &words).expect("a script")).expect("an array")
        };
        let shown = format!("CF.ADD, CF.ADD, CF.DEL {key} {number} at once: {replies:?}");
        let [added @ .., Value::Int(1)] = &replies[..] else { panic!("{shown}") };
        let filter = self.model.get_or_create(key);
        for reply in added {
            match reply {
                Value::Int(1) => filter.add(number),
                Value::Int(-1) | Value::ServerError(_) => {}
                _ => panic!("{shown}"),
            }
        }
        filter.remove(&number);
        shown
    }
}

/// Returns the counts of items.
fn counts(client: &mut Connection, key: &str, numbers: &[u64]) -> Vec<u64> {
    let mut pipe = redis::pipe();
    for &number in numbers {
        pipe.cmd("CF.COUNT").arg(key).arg(item(number));
    }
    pipe.query(client).expect("counts")
}

fn some_items(random: &mut Random) -> Vec<u64> {
    (0..=random.below(60)).map(|_| random.below(ITEMS)).collect()
}

/// Returns options that do not contradict an existing filter, and ITEMS.
fn insert_options(random: &mut Random) -> Vec<String> {
    let mut options = Vec::new();
    if random.chance(30) {
        options.extend(["CAPACITY".to_owned(), random.one_of(&["4", "64", "900"]).to_owned()]);
    }
    if random.chance(15) {
        options.push("NOCREATE".to_owned());
    }
    if random.chance(15) {
        options.extend(["LAYOUT".to_owned(), random.one_of(&["native", "classic"]).to_owned()]);
    }
    options.push("ITEMS".to_owned());
    options
}
