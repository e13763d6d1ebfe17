//! What a filter must answer, remembered exactly; and the little that tests of a whole server need beside it.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, RedisResult, Value};

use super::{PATIENCE, Server, Setup, ask, run, run_words, server_binary};

/// The server's version, major and minor. Valkey's own, which is above that of the Redis it descends from.
pub fn server_version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let output = Command::new(server_binary()).arg("--version").output().expect("a server that can be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split("v=").nth(1).unwrap_or_else(|| panic!("no version in '{text}'"));
        let mut numbers = version.split(['.', ' ']).map(|number| number.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    })
}

/// A server on which DEBUG may be used: from version 7 on it has to be allowed.
pub fn with_debug(setup: Setup) -> Setup {
    if server_version() >= (7, 0) { setup.set("enable-debug-command yes") } else { setup }
}

/// Item number `n`: any bytes, of various lengths.
pub fn item(n: u64) -> Vec<u8> {
    let mut item = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().to_vec();
    item.extend_from_slice(&b"\r\n\0 \xff%s"[..(n % 8) as usize]);
    item
}

/// Numbers from here on are never added by [`Model::add`].
pub const ABSENT: u64 = 1 << 40;

/// A filter's key, and every item that the server acknowledged.
#[derive(Clone, Debug)]
pub struct Model {
    pub key: String,
    pub items: BTreeSet<u64>,
}

/// What a filter answers: equal for two filters that hold the same bits.
#[derive(Debug, PartialEq)]
pub struct Observed {
    info: Vec<Value>,
    layout: String,
    /// A classic filter has none.
    seed: Option<String>,
    error_rate: String,
    /// How many items that were never added seem to be there, and a digest of which.
    false_positives: (usize, u64),
}

impl Model {
    pub fn new(key: &str) -> Model {
        Model { key: key.to_owned(), items: BTreeSet::new() }
    }

    /// The same items under another key.
    pub fn at(&self, key: &str) -> Model {
        Model { key: key.to_owned(), items: self.items.clone() }
    }

    /// Whether it is one of the [`various`] that do not grow.
    pub fn is_fixed(&self) -> bool {
        self.key.ends_with("fixed")
    }

    /// Adds items, all of which must be accepted. How many were new.
    pub fn add(&mut self, client: &mut Connection, numbers: Range<u64>) -> u64 {
        let numbers: Vec<u64> = numbers.collect();
        let mut new = 0;
        for numbers in numbers.chunks(1000) {
            let replies: Vec<u64> = many(client, "BF.MADD", &self.key, numbers);
            assert_eq!(replies.len(), numbers.len(), "BF.MADD {}", self.key);
            new += replies.iter().sum::<u64>();
            self.items.extend(numbers);
        }
        new
    }

    /// Panics if an item that was added is missing, and returns all other answers.
    pub fn observe(&self, client: &mut Connection) -> Observed {
        let items: Vec<u64> = self.items.iter().copied().collect();
        let forgotten = self.found(client, &items, false);
        assert!(forgotten.is_empty(), "{}: {} of {} items are forgotten", self.key, forgotten.len(), items.len());
        let absent: Vec<u64> = (ABSENT..ABSENT + 2000).collect();
        let found = self.found(client, &absent, true);
        Observed {
            info: filter_info(client, &self.key),
            layout: info_field(client, &self.key, "LAYOUT"),
            seed: info_field(client, &self.key, "SEED"),
            error_rate: info_field(client, &self.key, "ERROR"),
            false_positives: (found.len(), found.iter().fold(0, |digest, n| Random(digest ^ n).next())),
        }
    }

    /// Those of `numbers` whose presence is `expected`.
    pub fn found(&self, client: &mut Connection, numbers: &[u64], expected: bool) -> Vec<u64> {
        let mut found = Vec::new();
        for numbers in numbers.chunks(1000) {
            let answers: Vec<bool> = many(client, "BF.MEXISTS", &self.key, numbers);
            found.extend(numbers.iter().zip(answers).filter(|(_, answer)| *answer == expected).map(|(&n, _)| n));
        }
        found
    }
}

/// Runs `command key item…`.
pub fn many<T: FromRedisValue>(client: &mut Connection, command: &str, key: &str, numbers: &[u64]) -> T {
    let value = try_many(client, command, key, numbers).unwrap_or_else(|error| panic!("{command} {key}: {error}"));
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("{command} {key}: {error}"))
}

/// As [`many`], where it may fail.
pub fn try_many(client: &mut Connection, command: &str, key: &str, numbers: &[u64]) -> RedisResult<Value> {
    let mut words = vec![command.as_bytes().to_vec(), key.as_bytes().to_vec()];
    words.extend(numbers.iter().map(|&number| item(number)));
    run_words(client, &words)
}

/// The whole of BF.INFO.
///
/// Some allocators align some allocations better than others, and a filter then takes some bytes more or less: with them
/// the size is left out.
pub fn filter_info(client: &mut Connection, key: &str) -> Vec<Value> {
    let mut facts: Vec<Value> = ask(client, &format!("BF.INFO {key}"));
    if !info(client, "memory", "mem_allocator").starts_with("jemalloc") {
        let size = facts.iter().position(|fact| *fact == Value::SimpleString("Size".to_owned())).expect("a size");
        facts.drain(size..size + 2);
    }
    facts
}

/// A field of BF.INFO that is asked for alone.
pub fn info_field<T: FromRedisValue>(client: &mut Connection, key: &str, field: &str) -> T {
    let mut reply: Vec<Value> = ask(client, &format!("BF.INFO {key} {field}"));
    let value = reply.pop().expect("one value");
    redis::from_redis_value(value).unwrap_or_else(|error| panic!("BF.INFO {key} {field}: {error}"))
}

/// A field of the server's INFO; empty if there is none.
pub fn info(client: &mut Connection, section: &str, field: &str) -> String {
    let text: String = ask(client, &format!("INFO {section}"));
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

/// A field of the server's INFO that is a number; 0 if there is none.
pub fn info_number(client: &mut Connection, section: &str, field: &str) -> u64 {
    info(client, section, field).parse().unwrap_or(0)
}

/// How often the server ran a command.
pub fn calls(client: &mut Connection, command: &str) -> u64 {
    let stats = info(client, "commandstats", &format!("cmdstat_{command}"));
    stats.split(',').find_map(|stat| stat.strip_prefix("calls=")).map_or(0, |calls| calls.parse().unwrap_or(0))
}

pub fn used_memory(client: &mut Connection) -> u64 {
    info_number(client, "memory", "used_memory")
}

/// Waits until `condition` holds, and not longer than [`PATIENCE`].
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The digest of the server's whole data.
pub fn digest(client: &mut Connection) -> String {
    ask(client, "DEBUG DIGEST")
}

/// The digest of one key.
pub fn digest_of(client: &mut Connection, key: &str) -> String {
    ask::<Vec<String>>(client, &format!("DEBUG DIGEST-VALUE {key}")).remove(0)
}

/// The master for `replica`'s configuration file.
pub fn replica_of(master: &Server, setup: Setup) -> Setup {
    setup.set(format!("replicaof 127.0.0.1 {}", master.port))
}

/// Waits until the replica has seen all that the master did.
pub fn wait_for_replica(master: &mut Connection, replica: &mut Connection) {
    wait_until("the replica has caught up", || {
        info(replica, "replication", "master_link_status") == "up"
            && info_number(master, "replication", "master_repl_offset")
                == info_number(replica, "replication", "slave_repl_offset")
    });
}

/// Waits for the end of a snapshot in the background, which must succeed.
pub fn wait_for_bgsave(client: &mut Connection) {
    wait_until("the snapshot is written", || info_number(client, "persistence", "rdb_bgsave_in_progress") == 0);
    assert_eq!(info(client, "persistence", "rdb_last_bgsave_status"), "ok");
}

/// Rewrites the append-only file, which must succeed.
pub fn rewrite_aof(client: &mut Connection) {
    let idle = |client: &mut Connection| {
        info_number(client, "persistence", "aof_rewrite_in_progress") == 0
            && info_number(client, "persistence", "aof_rewrite_scheduled") == 0
            && info_number(client, "persistence", "rdb_bgsave_in_progress") == 0
    };
    wait_until("no rewrite is under way", || idle(client));
    run(client, "BGREWRITEAOF").expect("a rewrite that starts");
    wait_until("the rewrite ends", || idle(client));
    assert_eq!(info(client, "persistence", "aof_last_bgrewrite_status"), "ok");
}

/// The commands in the append-only files of a server that keeps no RDB preamble.
pub fn aof_commands(folder: &Path) -> Vec<Vec<Vec<u8>>> {
    let mut files: Vec<_> = [folder.to_owned(), folder.join("appendonlydir")]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.map(|entry| entry.expect("a folder that can be read").path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "aof"))
        .collect();
    files.sort();
    let mut commands = Vec::new();
    for file in files {
        let bytes = fs::read(&file).expect("a file that can be read");
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let line = take_line(&mut rest);
            // Annotations, such as times.
            if line.starts_with(b"#") {
                continue;
            }
            let count = number(line, b'*');
            let words = (0..count).map(|_| {
                let length = number(take_line(&mut rest), b'$');
                let word = rest[..length].to_vec();
                rest = &rest[length + 2..];
                word
            });
            commands.push(words.collect());
        }
    }
    commands
}

fn take_line<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let end = rest.windows(2).position(|pair| pair == b"\r\n").expect("a line that ends");
    let line = &rest[..end];
    *rest = &rest[end + 2..];
    line
}

fn number(line: &[u8], mark: u8) -> usize {
    let digits = line.strip_prefix(&[mark]).unwrap_or_else(|| panic!("{line:?} starts otherwise"));
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).expect("a number")
}

/// A command in words that can be compared: the name in capitals, then the arguments.
pub fn shown(command: &[Vec<u8>]) -> String {
    let words = command.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Random numbers from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// A seed that differs from run to run, printed so that a failure can be repeated.
    pub fn unpredictable() -> Random {
        use std::hash::{BuildHasher as _, RandomState};
        let seed = RandomState::new().hash_one(0);
        println!("random seed {seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number under `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Yes, in so many of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Filters of many kinds, in all layouts: empty, fixed and full, grown to many layers, with many wrong answers, large.
pub fn various(client: &mut Connection) -> Vec<Model> {
    let kinds = [
        ("empty", "0.01 1000", 0),
        ("fixed", "0.05 4000 NONSCALING", 4000),
        ("doubled", "0.05 10 EXPANSION 2", 3000),
        ("linear", "0.01 20 EXPANSION 1", 600),
        ("careless", "0.4 100 EXPANSION 4", 2000),
        ("exact", "0.0000001 500 SEED 18446744073709551615", 700),
        ("large", "0.01 2000000", 20_000),
        ("counting-empty", "0.01 1000 COUNTING", 0),
        ("counting-fixed", "0.05 4000 NONSCALING COUNTING", 4000),
        ("counting-doubled", "0.05 10 EXPANSION 2 COUNTING", 3000),
        ("counting-linear", "0.01 20 EXPANSION 1 COUNTING", 600),
        ("counting-large", "0.01 200000 COUNTING", 20_000),
        ("classic-empty", "0.01 1000 LAYOUT classic", 0),
        ("classic-fixed", "0.05 4000 NONSCALING LAYOUT classic", 4000),
        ("classic-doubled", "0.05 10 EXPANSION 2 LAYOUT classic", 3000),
        ("classic-linear", "0.01 20 EXPANSION 1 LAYOUT classic", 600),
        ("classic-careless", "0.4 100 EXPANSION 4 LAYOUT classic", 2000),
        ("classic-large", "0.01 2000000 LAYOUT classic", 20_000),
    ];
    let filled = kinds.map(|(key, parameters, items)| {
        assert_eq!(ask::<String>(client, &format!("BF.RESERVE {key} {parameters}")), "OK");
        let mut model = Model::new(key);
        model.add(client, 0..items);
        model
    });
    filled.into()
}
