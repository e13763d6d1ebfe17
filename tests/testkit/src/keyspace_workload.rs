//! Random commands on the filters of a server's key space, checked against a model that counts all items.

use redis::{Connection, RedisResult, Value};

use crate::command::{item, many, raw, with_items};
use crate::filter_model::Family;
use crate::info::{filter_info, info_field, layout_of};
use crate::server::wait_until;
use models::keyspace::KeyspaceModel;
use models::random::Random;

/// The number of keys of each family in random commands.
const KEYS: u64 = 5;

/// The number of items in random commands. It is lower for cuckoo filters, since CF.COUNT takes one item only.
const ITEMS: u64 = 4000;
const CUCKOO_ITEMS: u64 = 700;

/// A window that is longer than the tests, so that filters forget nothing.
const LONG_WINDOW: &str = "WINDOW 1000000000";

/// Some keys that only this client writes to, and the model of their filters.
#[derive(Clone)]
pub struct KeyspaceWorkload {
    /// The prefix of the keys.
    prefix: String,
    model: KeyspaceModel<u64>,
    /// The keys of a step that is not complete.
    doubtful: Vec<String>,
    /// True while items are added, which takes nothing away.
    is_adding: bool,
}

/// Returns the family of the filters that a key has.
fn family_of(key: &str) -> Family {
    if key.contains("cuckoo") { Family::Cuckoo } else { Family::Bloom }
}

fn is_ok(reply: &Value) -> bool {
    !matches!(reply, Value::ServerError(_))
}

/// Runs a command, given as arguments separated by spaces. Its reply may be an error.
fn run(client: &mut Connection, command: &str) -> RedisResult<Value> {
    raw(client, &with_items(command, &[]))
}

impl KeyspaceWorkload {
    pub fn new(prefix: &str) -> KeyspaceWorkload {
        let (prefix, model) = (prefix.to_owned(), KeyspaceModel::default());
        KeyspaceWorkload { prefix, model, doubtful: Vec::new(), is_adding: false }
    }

    /// Runs a random command, or several that belong together, and returns them as text. Returns an error if the
    /// connection broke. The last command may have run or not, so [`forget_doubtful`](Self::forget_doubtful) must
    /// follow.
    pub fn step(&mut self, random: &mut Random, client: &mut Connection) -> RedisResult<String> {
        let name = if random.chance(70) { "key" } else { "cuckoo" };
        let keys = [(); 2].map(|()| format!("{}{name}{}", self.prefix, random.below(KEYS)));
        self.doubtful = keys.to_vec();
        let shown = self.run_any(random, client, keys.each_ref().map(String::as_str))?;
        self.doubtful.clear();
        Ok(shown)
    }

    fn run_any(
        &mut self,
        random: &mut Random,
        client: &mut Connection,
        [key, other]: [&str; 2],
    ) -> RedisResult<String> {
        match (family_of(key), random.below(25)) {
            (Family::Bloom, 0 | 1) => self.add(client, &format!("BF.ADD {key}"), &some_items(random, key, 1)),
            (Family::Bloom, 2..6) => self.add(client, &format!("BF.MADD {key}"), &some_items(random, key, 80)),
            (Family::Bloom, 6..9) => {
                let command = format!("BF.INSERT {key} {} ITEMS", insert_options(random));
                self.add(client, &command, &some_items(random, key, 40))
            }
            (Family::Cuckoo, 0..4) => {
                let command = random.one_of(&["CF.ADD", "CF.ADDNX"]);
                self.add(client, &format!("{command} {key}"), &some_items(random, key, 1))
            }
            (Family::Cuckoo, 4..8) => {
                let command = random.one_of(&["CF.INSERT", "CF.INSERTNX"]);
                let command = format!("{command} {key} {} ITEMS", cuckoo_insert_options(random));
                self.add(client, &command, &some_items(random, key, 60))
            }
            // Copies of one item, which fill its buckets.
            (Family::Cuckoo, 8) => self.add(client, &format!("CF.INSERT {key} ITEMS"), &[random.below(8); 5]),
            (_, 9..13) => self.remove(random, client, key),
            (_, 13 | 14) => self.reserve(random, client, key),
            (_, 15..19) => self.run_on_key(random, client, key, other),
            (_, 19) => self.expire(random, client, key),
            (_, 20 | 21) => self.load_chunks(random, client, key, other),
            (Family::Bloom, 22) if random.chance(30) => {
                let command = format!("BF.FOLD {key}");
                // Only filters of one kind can be folded.
                Ok(run(client, &command).map_or_else(|error| error.to_string(), |_| command))
            }
            (Family::Bloom, 22) => self.merge(random, client, key, other),
            (Family::Cuckoo, 22) => {
                let command = format!("CF.COMPACT {key}");
                assert_eq!(is_ok(&run(client, &command)?), self.model.get(key).is_some(), "{command}");
                Ok(command)
            }
            (_, 23) if random.chance(30) => {
                let command = format!("SET {key} text");
                run(client, &command)?;
                self.model.delete(key);
                Ok(command)
            }
            _ => self.transaction(random, client, key, other),
        }
    }

    /// Deletes the keys of a step that a broken connection ended, except those to which it only added.
    pub fn forget_doubtful(&mut self, client: &mut Connection) -> RedisResult<()> {
        for key in std::mem::take(&mut self.doubtful) {
            if !self.is_adding || self.model.get(&key).is_none() {
                run(client, &format!("DEL {key}"))?;
                self.model.delete(&key);
            }
        }
        self.is_adding = false;
        Ok(())
    }

    /// Returns an error if an item is missing or its count too low, or if the two servers reply differently.
    pub fn check(&self, [master, replica]: [&mut Connection; 2]) -> Result<(), String> {
        for (key, filter) in self.model.filters() {
            let key = &String::from_utf8_lossy(key);
            let items: Vec<u64> = (0..items_of(key)).collect();
            let [ours, theirs] = [&mut *master, &mut *replica].map(|client| {
                let layout = layout_of(client, key);
                let is_bloom = family_of(key) == Family::Bloom;
                let seed = is_bloom.then(|| info_field::<Option<String>>(client, key, "SEED"));
                let found: Vec<u64> = many(client, &format!("{}.MEXISTS", family_of(key).prefix()), key, &items);
                let counts = match layout.as_str() {
                    "counting" => many(client, "BF.MCOUNT", key, &items),
                    _ if is_bloom => found.clone(),
                    _ => counts(client, key, &items),
                };
                (layout, seed, filter_info(client, key), found, counts)
            });
            if ours != theirs {
                return Err(format!("{key} differs: {ours:?} {theirs:?}"));
            }
            let (layout, _, _, found, counts) = ours;
            let is_counting = layout == "counting" || layout.ends_with("cuckoo");
            for (number, (count, found)) in items.iter().zip(counts.into_iter().zip(found)) {
                let held = filter.count(number);
                let required = if is_counting { held } else { held.min(1) };
                if count < required || (count > 0) != (found > 0) {
                    return Err(format!("{layout} {key}: item {number}, added {held} times, has the count {count}"));
                }
            }
        }
        Ok(())
    }

    /// Adds items by a command, given up to the items. Those that the server acknowledged must be present from now on.
    fn add(&mut self, client: &mut Connection, command: &str, numbers: &[u64]) -> RedisResult<String> {
        let key = command.split(' ').nth(1).expect("a key");
        self.is_adding = true;
        // The last element of an array may be an error.
        let reply = raw(client, &with_items(command, numbers))?;
        self.is_adding = false;
        let shown = format!("{command} {numbers:?}: {reply:?}");
        let replies = match &reply {
            Value::ServerError(_) => return Ok(shown),
            Value::Array(replies) => replies,
            single => std::slice::from_ref(single),
        };
        // An item that is present is not added again. It may be a false positive of one that is removed later.
        let is_nx = command.contains("NX");
        let filter = self.model.get_or_create(key);
        for (&number, reply) in numbers.iter().zip(replies) {
            match reply {
                Value::Int(1) => {
                    let may_be_new = !filter.contains(&number) || family_of(key) == Family::Cuckoo && !is_nx;
                    assert!(may_be_new, "{number} was present: {shown}");
                    filter.add(number);
                }
                Value::Int(0) if !is_nx => filter.add(number),
                Value::Int(0 | -1) => {}
                Value::ServerError(_) => break,
                other => panic!("{other:?}: {shown}"),
            }
        }
        Ok(shown)
    }

    /// Removes some occurrences of items, or tries to remove an item that is certainly absent. The removal of a false
    /// positive would remove another item.
    fn remove(&mut self, random: &mut Random, client: &mut Connection, key: &str) -> RedisResult<String> {
        let Some(filter) = self.model.get(key) else { return Ok(String::new()) };
        let prefix = family_of(key).prefix();
        let mut held: Vec<u64> = filter.occurrences().copied().collect();
        if held.is_empty() || random.chance(10) {
            let absent = some_items(random, key, 1);
            let command = format!("{prefix}.DEL {key}");
            let found = raw(client, &with_items(&format!("{prefix}.EXISTS {key}"), &absent))?;
            if found == Value::Int(0) {
                let reply = raw(client, &with_items(&command, &absent))?;
                assert!(reply == Value::Int(0) || !is_ok(&reply), "{command} {absent:?}: {reply:?}");
            }
            return Ok(format!("{command} {absent:?}"));
        }
        let is_single = family_of(key) == Family::Cuckoo || random.chance(20);
        let count = if is_single { 1 } else { held.len().min(1 + random.below(150) as usize) };
        let taken: Vec<u64> = (0..count).map(|_| held.swap_remove(random.below(held.len() as u64) as usize)).collect();
        let verb = if is_single { "DEL" } else { "MDEL" };
        let command = format!("{prefix}.{verb} {key}");
        let reply = raw(client, &with_items(&command, &taken))?;
        // Only some filters support removals.
        if is_ok(&reply) {
            let removed = vec![Value::Int(1); count];
            assert!(reply == Value::Int(1) || reply == Value::Array(removed), "{command} {taken:?}: {reply:?}");
            let filter = self.model.get_or_create(key);
            taken.iter().for_each(|number| filter.remove(number));
        }
        Ok(format!("{command} {taken:?}: {reply:?}"))
    }

    fn reserve(&mut self, random: &mut Random, client: &mut Connection, key: &str) -> RedisResult<String> {
        let command = match family_of(key) {
            Family::Bloom => format!("BF.RESERVE {key} {}", bloom_parameters(random)),
            Family::Cuckoo => format!("CF.RESERVE {key} {}", cuckoo_parameters(random)),
        };
        if is_ok(&run(client, &command)?) {
            assert!(self.model.get(key).is_none(), "{command}");
            self.model.create(key);
        }
        Ok(command)
    }

    /// Deletes, copies or renames a key, or restores a dump of it.
    fn run_on_key(
        &mut self,
        random: &mut Random,
        client: &mut Connection,
        key: &str,
        other: &str,
    ) -> RedisResult<String> {
        match random.below(4) {
            0 => {
                let command = format!("{} {key}", random.one_of(&["DEL", "UNLINK"]));
                run(client, &command)?;
                self.model.delete(key);
                Ok(command)
            }
            1 => {
                let command = format!("COPY {key} {other}{}", random.one_of(&["", " REPLACE"]));
                if run(client, &command)? == Value::Int(1) {
                    self.model.copy(key, other);
                }
                Ok(command)
            }
            2 => {
                let command = format!("RENAME {key} {other}");
                if run(client, &command)? == Value::Okay {
                    self.model.rename(key, other);
                }
                Ok(command)
            }
            _ => {
                if let Value::BulkString(payload) = run(client, &format!("DUMP {key}"))? {
                    let words = [b"RESTORE".as_slice(), other.as_bytes(), b"0", &payload, b"REPLACE"];
                    assert_eq!(raw(client, &words)?, Value::Okay, "RESTORE of {key}");
                    self.model.copy(key, other);
                }
                Ok(format!("RESTORE {other} 0 (dump of {key}) REPLACE"))
            }
        }
    }

    fn expire(&mut self, random: &mut Random, client: &mut Connection, key: &str) -> RedisResult<String> {
        let is_brief = random.chance(30);
        let command = format!("PEXPIRE {key} {}", if is_brief { 1 } else { 100_000_000 });
        if run(client, &command)? == Value::Int(1) && is_brief {
            let mut exists = Ok(Value::Int(1));
            wait_until("a key has expired", || {
                exists = run(client, &format!("EXISTS {key}"));
                exists != Ok(Value::Int(1))
            });
            exists?;
            self.model.delete(key);
        }
        Ok(command)
    }

    /// Copies a filter in chunks. The copy may get items of its own in between, and may stay incomplete.
    fn load_chunks(
        &mut self,
        random: &mut Random,
        client: &mut Connection,
        from: &str,
        to: &str,
    ) -> RedisResult<String> {
        if from == to || self.model.get(from).is_none() {
            return Ok(String::new());
        }
        run(client, &format!("DEL {to}"))?;
        self.model.create(to);
        let prefix = family_of(from).prefix();
        let (stop_after, gets_items) = (random.below(8), family_of(from) == Family::Bloom);
        let mut cursor = 0;
        for step in 0.. {
            let reply = run(client, &format!("{prefix}.SCANDUMP {from} {cursor}"))?;
            let (next, data): (i64, Option<Vec<u8>>) = redis::from_redis_value(reply).expect("a cursor and data");
            let Some(data) = data.filter(|_| next > 0) else {
                self.model.merge(to, &[to, from], true);
                break;
            };
            let words = with_items(&format!("{prefix}.LOADCHUNK {to} {next}"), &[]);
            let loaded = raw(client, &[words, vec![data]].concat())?;
            // A copy that counts or forgets rejects later chunks once items were added to it.
            assert!(is_ok(&loaded) || step > 0 && gets_items, "{next} of {from}, for {to}: {loaded:?}");
            if !is_ok(&loaded) || step == stop_after && gets_items {
                break;
            }
            if gets_items && random.chance(15) {
                self.add(client, &format!("BF.ADD {to}"), &some_items(random, to, 1))?;
            }
            cursor = next;
        }
        Ok(format!("{prefix}.LOADCHUNK {to} (from {from})"))
    }

    /// Merges a filter with another one that was created like it.
    fn merge(&mut self, random: &mut Random, client: &mut Connection, key: &str, other: &str) -> RedisResult<String> {
        if key == other || self.model.get(key).is_none() {
            return Ok(String::new());
        }
        run(client, &format!("DEL {other}"))?;
        assert_eq!(run(client, &format!("BF.RESERVE {other} LIKE {key}"))?, Value::Okay);
        self.model.create(other);
        self.add(client, &format!("BF.MADD {other}"), &some_items(random, other, 60))?;
        let operation = random.one_of(&["UNION", "INTERSECT"]);
        let command = format!("BF.MERGE {other} 1 {key} {operation}");
        if is_ok(&run(client, &command)?) {
            self.model.merge(other, &[other, key], operation == "UNION");
        }
        Ok(command)
    }

    /// Runs several commands at once, in a transaction or a script.
    fn transaction(
        &mut self,
        random: &mut Random,
        client: &mut Connection,
        key: &str,
        other: &str,
    ) -> RedisResult<String> {
        let numbers = some_items(random, key, 30);
        let insert = format!("{}.INSERT", family_of(key).prefix());
        if random.chance(50) {
            run(client, "MULTI")?;
            for key in [key, other] {
                raw(client, &with_items(&format!("{insert} {key} ITEMS"), &numbers))?;
            }
            run(client, "EXEC")?;
        } else {
            let script = "local insert = table.remove(ARGV, 1)
                          for _, key in ipairs(KEYS) do redis.pcall(insert, key, 'ITEMS', unpack(ARGV)) end";
            let words = ["EVAL", script, "2", key, other, &insert].map(|word| word.as_bytes().to_vec());
            let reply = raw(client, &[words.to_vec(), with_items("", &numbers)].concat())?;
            assert!(is_ok(&reply), "{reply:?}");
        }
        // The replies are not parsed, so it is unknown which items were added. Adding all again settles that.
        for key in [key, other] {
            if run(client, &format!("TYPE {key}"))? != Value::SimpleString("string".to_owned()) {
                self.add(client, &format!("{insert} {key} ITEMS"), &numbers)?;
            }
        }
        Ok(format!("transaction on {:?} {numbers:?}", [key, other]))
    }
}

/// Returns the number of different items of a key.
fn items_of(key: &str) -> u64 {
    match family_of(key) {
        Family::Bloom => ITEMS,
        Family::Cuckoo => CUCKOO_ITEMS,
    }
}

/// Returns some items, at least one and at most `most`.
fn some_items(random: &mut Random, key: &str, most: u64) -> Vec<u64> {
    (0..=random.below(most)).map(|_| random.below(items_of(key))).collect()
}

/// Returns the counts of items in a cuckoo filter.
fn counts(client: &mut Connection, key: &str, numbers: &[u64]) -> Vec<u64> {
    let mut pipe = redis::pipe();
    for &number in numbers {
        pipe.cmd("CF.COUNT").arg(key).arg(item(number));
    }
    pipe.query(client).expect("counts")
}

fn bloom_parameters(random: &mut Random) -> String {
    let rate = random.one_of(&["0.5", "0.1", "0.01", "0.000001"]);
    let capacity = random.one_of(&["1", "10", "100", "1000"]);
    let growth = match random.below(3) {
        0 => "NONSCALING".to_owned(),
        1 => format!("EXPANSION {}", 1 + random.below(4)),
        _ => String::new(),
    };
    match random.below(9) {
        0 => format!("{rate} {capacity} {growth} SEED {}", random.next_u64()),
        1 => format!("{rate} {capacity} {growth} {LONG_WINDOW}"),
        2 => format!("{rate} {capacity} {growth} {LONG_WINDOW} SLICES 3 REFRESH"),
        // A capacity for all items, so that none is forgotten.
        3 => format!("{rate} {ITEMS} ROLLING"),
        4 | 5 => format!("{rate} {capacity} {growth} COUNTING"),
        6 => format!("{rate} {capacity} {growth} LAYOUT classic"),
        7 => format!("{rate} {capacity} {growth} LAYOUT valkey"),
        _ => format!("{rate} {capacity} {growth}"),
    }
}

fn cuckoo_parameters(random: &mut Random) -> String {
    let capacity = random.one_of(&["16", "100", "1000"]);
    let is_classic = random.chance(50);
    let layout = if is_classic { "classic" } else { "native" };
    let choices = [
        ("BUCKETSIZE", random.one_of(&["1", "2", "4", "7"]).to_owned()),
        ("MAXITERATIONS", random.one_of(&["1", "20", "200"]).to_owned()),
        ("EXPANSION", random.one_of(&["0", "1", "2", "3"]).to_owned()),
        ("ERROR", random.one_of(&["0.2", "0.01", "0.000001"]).to_owned()),
        ("SEED", random.next_u64().to_string()),
    ];
    let choices = choices.into_iter().take(if is_classic { 3 } else { 5 });
    let options = choices.filter(|_| random.chance(40)).map(|(name, value)| format!(" {name} {value}"));
    format!("{capacity} LAYOUT {layout}{}", options.collect::<String>())
}

/// Returns options of BF.INSERT, some of which contradict each other or an existing filter.
fn insert_options(random: &mut Random) -> String {
    let choices = [
        format!("CAPACITY {}", random.one_of(&["1", "30", "500"])),
        format!("ERROR {}", random.one_of(&["0.3", "0.02", "0.0001"])),
        format!("EXPANSION {}", 1 + random.below(3)),
        format!("SEED {}", random.next_u64()),
        format!("LAYOUT {}", random.one_of(&["native", "classic"])),
    ];
    let flags = ["NOCREATE", "NONSCALING", "COUNTING", "NX", LONG_WINDOW, "TTL 900000000"].map(str::to_owned);
    let mut options: Vec<String> = choices.into_iter().filter(|_| random.chance(33)).collect();
    options.extend(flags.into_iter().filter(|_| random.chance(17)));
    options.join(" ")
}

/// Returns options of CF.INSERT, some of which contradict an existing filter.
fn cuckoo_insert_options(random: &mut Random) -> String {
    let choices = [
        format!("CAPACITY {}", random.one_of(&["4", "64", "900"])),
        "NOCREATE".to_owned(),
        format!("LAYOUT {}", random.one_of(&["native", "classic"])),
    ];
    let choices = choices.into_iter().filter(|_| random.chance(20));
    choices.collect::<Vec<_>>().join(" ")
}
