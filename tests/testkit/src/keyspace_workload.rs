//! Random commands on the filters of a server's key space, checked against a model.

use redis::{Connection, Value};

use crate::command::{ask, item, many, raw, run, run_words};
use crate::cuckoo_workload::CuckooWorkload;
use crate::info::{filter_info, info_field, is_filter};
use crate::key_commands::run_on_key;
use crate::server::wait_until;
use models::keyspace::KeyspaceModel;
use models::random::Random;

/// The number of keys in random commands.
const KEYS: u64 = 6;

/// The number of items in random commands.
const ITEMS: u64 = 4000;

/// A window that is longer than the tests, so that filters forget nothing.
const LONG_WINDOW: [&str; 2] = ["WINDOW", "1000000000"];

/// Some keys that only this client writes to, and the model of their filters.
pub struct KeyspaceWorkload {
    /// The prefix of the keys.
    prefix: String,
    model: KeyspaceModel<u64>,
    cuckoo: CuckooWorkload,
}

impl KeyspaceWorkload {
    pub fn new(prefix: &str) -> KeyspaceWorkload {
        KeyspaceWorkload {
            prefix: prefix.to_owned(),
            model: KeyspaceModel::default(),
            cuckoo: CuckooWorkload::new(prefix),
        }
    }

    /// Runs a random command, or several that belong together. Returns them as text.
    pub fn step(&mut self, random: &mut Random, client: &mut Connection) -> String {
        let key = format!("{}key{}", self.prefix, random.below(KEYS));
        let other = format!("{}key{}", self.prefix, random.below(KEYS));
        match random.below(28) {
            21.. => self.cuckoo.step(random, client),
            0..3 => self.add(client, "BF.ADD", &key, &[], &[random.below(ITEMS)]),
            3..7 => {
                let numbers = some_items(random, 80);
                self.add(client, "BF.MADD", &key, &[], &numbers)
            }
            7..10 => {
                let options = insert_options(random);
                let numbers = some_items(random, 40);
                self.add(client, "BF.INSERT", &key, &options, &numbers)
            }
            10 | 11 => {
                let mut words = vec!["BF.RESERVE".to_owned(), key.clone()];
                words.push(random.one_of(&["0.5", "0.1", "0.01", "0.000001"]).to_owned());
                words.push(random.one_of(&["1", "10", "100", "1000"]).to_owned());
                match random.below(3) {
                    0 => words.push("NONSCALING".to_owned()),
                    1 => words.extend(["EXPANSION".to_owned(), (1 + random.below(4)).to_string()]),
                    _ => {}
                }
                match random.below(8) {
                    0 => words.extend(["SEED".to_owned(), random.next_u64().to_string()]),
                    1 => words.extend(LONG_WINDOW.map(str::to_owned)),
                    2 => words.extend([LONG_WINDOW[0], LONG_WINDOW[1], "SLICES", "3", "REFRESH"].map(str::to_owned)),
                    // A capacity for all items, so that none is forgotten.
                    3 => {
                        words[3] = ITEMS.to_string();
                        words.push("ROLLING".to_owned());
                    }
                    4 => words.push("COUNTING".to_owned()),
                    5 => words.extend(["LAYOUT".to_owned(), "classic".to_owned()]),
                    6 => words.extend(["LAYOUT".to_owned(), "valkey".to_owned()]),
                    _ => {}
                }
                if run_words(client, &words).is_ok() {
                    self.model.create(key);
                }
                words.join(" ")
            }
            12..16 => run_on_key(&mut self.model, random, client, &key, &other),
            16 => {
                let brief = random.below(3) == 0;
                let command = format!("PEXPIRE {key} {}", if brief { 1 } else { 100_000_000 });
                if ask::<i64>(client, &command) == 1 && brief {
                    wait_until("a key has expired", || ask::<i64>(client, &format!("EXISTS {key}")) == 0);
                    self.model.delete(&key);
                }
                command
            }
            17 => self.load_chunks(random, client, &key, &other),
            18 => {
                if random.below(3) > 0 {
                    return String::new();
                }
                run(client, &format!("SET {key} text")).unwrap();
                self.model.delete(&key);
                format!("SET {key} text")
            }
            19 => self.merge(random, client, &key, &other),
            _ => self.transaction(random, client, &key, &other),
        }
    }

    /// Returns an error if an item is missing, or if the two servers reply differently.
    pub fn check(&self, [master, replica]: [&mut Connection; 2]) -> Result<(), String> {
        let all: Vec<u64> = (0..ITEMS).collect();
        for (key, filter) in self.model.filters() {
            let key = &String::from_utf8_lossy(key);
            let answers: [Vec<u64>; 2] =
                [&mut *master, &mut *replica].map(|client| many(client, "BF.MEXISTS", key, &all));
            let seeds = [&mut *master, &mut *replica].map(|client| info_field::<Option<String>>(client, key, "SEED"));
            let facts = [&mut *master, &mut *replica].map(|client| filter_info(client, key));
            if answers[0] != answers[1] || seeds[0] != seeds[1] || facts[0] != facts[1] {
                return Err(format!("{key} differs: {seeds:?} {facts:?}"));
            }
            if let Some(number) = filter.items().find(|&&number| answers[0][number as usize] == 0) {
                return Err(format!("{key}: item {number} is missing"));
            }
        }
        self.cuckoo.check([master, replica])
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
        let mut words: Vec<Vec<u8>> = [command, key].map(|word| word.as_bytes().to_vec()).to_vec();
        words.extend(options.iter().map(|option| option.as_bytes().to_vec()));
        words.extend(numbers.iter().map(|&number| item(number)));
        // The last element of an array may be an error.
        let reply = raw(client, &words);
        let acknowledged = match &reply {
            Value::Int(_) => 1,
            Value::Array(answers) => answers.iter().filter(|answer| matches!(answer, Value::Int(_))).count(),
            _ => 0,
        };
        if !matches!(reply, Value::ServerError(_)) {
            self.model.get_or_create(key).extend(numbers[..acknowledged].iter().copied());
        }
        format!("{command} {key} {} {numbers:?}", options.join(" "))
    }

    /// Copies a filter in chunks. The copy may get items of its own in between, and may stay incomplete.
    fn load_chunks(&mut self, random: &mut Random, client: &mut Connection, from: &str, to: &str) -> String {
        if from == to || self.model.get(from).is_none() {
            return String::new();
        }
        run(client, &format!("DEL {to}")).unwrap();
        self.model.create(to);
        let stop_after = random.below(8);
        let mut cursor = 0;
        for step in 0.. {
            let (next, data): (u64, Vec<u8>) = ask(client, &format!("BF.SCANDUMP {from} {cursor}"));
            if next == 0 {
                self.model.merge(to, &[to, from], true);
                break;
            }
            let number = next.to_string();
            // A copy that counts or forgets rejects later chunks once items were added to it.
            let loaded = run_words(client, &[b"BF.LOADCHUNK".as_slice(), to.as_bytes(), number.as_bytes(), &data]);
            if step == 0 {
                assert_eq!(loaded, Ok(Value::Okay), "the header of {from}, for {to}");
            }
            if loaded.is_err() || step == stop_after {
                break;
            }
            if random.below(6) == 0 {
                let number = random.below(ITEMS);
                self.add(client, "BF.ADD", to, &[], &[number]);
            }
            cursor = next;
        }
        format!("BF.LOADCHUNK {to} (from {from})")
    }

    /// Merges a filter with another one that was created like it.
    fn merge(&mut self, random: &mut Random, client: &mut Connection, key: &str, other: &str) -> String {
        if key == other || self.model.get(key).is_none() {
            return String::new();
        }
        run(client, &format!("DEL {other}")).unwrap();
        run(client, &format!("BF.RESERVE {other} LIKE {key}")).unwrap();
        self.model.create(other);
        self.add(client, "BF.MADD", other, &[], &some_items(random, 60));
        let operation = random.one_of(&["UNION", "INTERSECT"]);
        let command = format!("BF.MERGE {other} 1 {key} {operation}");
        if run(client, &command).is_ok() {
            self.model.merge(other, &[other, key], operation == "UNION");
        }
        command
    }

    /// Runs several commands at once, in a transaction or a script.
    fn transaction(&mut self, random: &mut Random, client: &mut Connection, key: &str, other: &str) -> String {
        let numbers = some_items(random, 30);
        let keys = [key, other];
        if random.below(2) == 0 {
            let mut pipe = redis::pipe();
            pipe.atomic().ignore_errors();
            for key in keys {
                pipe.cmd("BF.MADD").arg(key).arg(numbers.iter().map(|&n| item(n)).collect::<Vec<_>>());
            }
            let _: redis::RedisResult<Value> = pipe.query(client);
        } else {
            let script = "for i, key in ipairs(KEYS) do redis.pcall('BF.MADD', key, unpack(ARGV)) end";
            let mut words = ["EVAL", script, "2", key, other].map(|word| word.as_bytes().to_vec()).to_vec();
            words.extend(numbers.iter().map(|&number| item(number)));
            run_words(client, &words).unwrap();
        }
        // The replies are not parsed, so it is unknown which items were added. Adding all again settles that.
        for key in keys {
            if is_filter(client, key) {
                self.model.get_or_create(key);
                self.add(client, "BF.MADD", key, &[], &numbers);
            }
        }
        format!("transaction on {keys:?} {numbers:?}")
    }
}

fn some_items(random: &mut Random, most: u64) -> Vec<u64> {
    (0..=random.below(most)).map(|_| random.below(ITEMS)).collect()
}

fn insert_options(random: &mut Random) -> Vec<String> {
    let mut options = Vec::new();
    for (name, value) in [
        ("CAPACITY", random.one_of(&["1", "30", "500"]).to_owned()),
        ("ERROR", random.one_of(&["0.3", "0.02", "0.0001"]).to_owned()),
        ("EXPANSION", (1 + random.below(3)).to_string()),
        ("SEED", random.next_u64().to_string()),
        ("LAYOUT", random.one_of(&["native", "classic"]).to_owned()),
    ] {
        if random.below(3) == 0 {
            options.extend([name.to_owned(), value]);
        }
    }
    for flag in ["NOCREATE", "NONSCALING", "COUNTING", "NX"] {
        if random.below(6) == 0 {
            options.push(flag.to_owned());
        }
    }
    if random.below(6) == 0 {
        options.extend(LONG_WINDOW.map(str::to_owned));
    }
    if random.below(6) == 0 {
        options.extend(["TTL", "900000000"].map(str::to_owned));
    }
    options.push("ITEMS".to_owned());
    options
}
