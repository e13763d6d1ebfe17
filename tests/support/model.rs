//! What a filter must answer, remembered exactly; and the little that tests of a whole server need beside it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, RedisResult, Value};

use super::{PATIENCE, Server, Setup, ask, error_text, run, run_words, server_binary};

/// The server's name, and its version, major and minor: `("Redis", (7, 0))`. Valkey's version is its own, above that of the
/// Redis it descends from.
pub fn server_name_and_version() -> (&'static str, (u32, u32)) {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        let output = Command::new(server_binary()).arg("--version").output().expect("a server that can be run");
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let (name, version) = text.split_once(" server v=").unwrap_or_else(|| panic!("no version in '{text}'"));
    let mut numbers = version.split(['.', ' ']).map(|number| number.parse().unwrap_or(0));
    (name, (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
}

/// The server's version alone.
pub fn server_version() -> (u32, u32) {
    server_name_and_version().1
}

/// A server on which DEBUG may be used: from version 7 on it has to be allowed.
pub fn with_debug(setup: Setup) -> Setup {
    if server_version() >= (7, 0) { setup.set("enable-debug-command yes") } else { setup }
}

/// A server with the module under test that keeps an append-only file, rewritten on demand only.
pub fn with_aof(preamble: &str) -> Setup {
    with_debug(Setup::oxbloom())
        .set("appendonly yes")
        .set(format!("aof-use-rdb-preamble {preamble}"))
        .set("auto-aof-rewrite-percentage 0")
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

/// Uses a filter that was made of data which nobody vouches for: what is added is there, and nothing takes for ever.
pub fn use_in_every_way(client: &mut Connection, key: &str) {
    let mut pipe = redis::pipe();
    for question in ["BF.INFO", "BF.DEBUG", "BF.CARD", "DUMP", "DEBUG DIGEST-VALUE", "MEMORY USAGE"] {
        question.split(' ').chain([key]).enumerate().fold(&mut pipe, |pipe, (index, word)| match index {
            0 => pipe.cmd(word),
            _ => pipe.arg(word),
        });
    }
    for field in ["ERROR", "SEED", "LAYOUT", "FILL", "FPR", "ESTIMATED", "STUCK"] {
        pipe.cmd("BF.INFO").arg(key).arg(field);
    }
    pipe.cmd("BF.SCANDUMP").arg(key).arg(1);
    let _: Vec<Value> = pipe.query(client).expect("answers");
    let counts = info_field::<String>(client, key, "LAYOUT") == "counting";
    for n in 0..30 {
        match run_words(client, &[b"BF.ADD".as_slice(), key.as_bytes(), &item(n)]).map_err(|error| error_text(&error)) {
            Ok(_) => {
                let found = run_words(client, &[b"BF.EXISTS".as_slice(), key.as_bytes(), &item(n)]);
                assert_eq!(found, Ok(Value::Int(1)));
                // Every other one is taken back, so that layers may become empty, and be dropped.
                if counts && n % 2 == 1 {
                    assert!(many::<Vec<u64>>(client, "BF.MCOUNT", key, &[n - 1, n]).iter().all(|&count| count > 0));
                    assert_eq!(many::<Vec<u64>>(client, "BF.MDEL", key, &[n]), [1]);
                }
            }
            Err(error) => {
                const KNOWN: [&str; 3] = [
                    "non scaling filter is full",
                    "Insufficient memory to grow filter",
                    "problem inserting into filter",
                ];
                assert!(KNOWN.iter().any(|known| error.contains(known)), "{error}");
                break;
            }
        }
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

/// Whether a key has a filter, of whichever data type.
pub fn is_filter(client: &mut Connection, key: &str) -> bool {
    ["oxbloom--", "MBbloom--"].contains(&ask::<String>(client, &format!("TYPE {key}")).as_str())
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

/// The figures of INFO about the filters of a layout that are there now: filters, layers, bytes, items.
type Present = [u64; 4];

/// The layouts, as INFO calls them, each with the words that make it: always the same filter of the same items.
pub const LAYOUTS: [(&str, &str); 3] =
    [("native", "LAYOUT native SEED 7"), ("counting", "COUNTING SEED 8"), ("classic", "LAYOUT classic")];

/// A figure of a layout in `INFO bf`.
pub fn layout_figure(client: &mut Connection, layout: &str, figure: &str) -> u64 {
    let figures = info(client, "bf", &format!("bf_{layout}"));
    let number = figures.split(',').find_map(|pair| pair.strip_prefix(figure)?.strip_prefix('='));
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {figure} of {layout} in '{figures}'"))
}

/// Panics unless `INFO bf` tells the sums of what BF.INFO tells of each filter.
pub fn assert_figures_add_up(client: &mut Connection) {
    let mut expected = [[0; 4]; LAYOUTS.len()];
    for key in ask::<Vec<String>>(client, "KEYS *") {
        if !is_filter(client, &key) {
            continue;
        }
        let layout: String = info_field(client, &key, "LAYOUT");
        let sums: &mut Present = &mut expected[LAYOUTS.iter().position(|(name, _)| *name == layout).expect("a layout")];
        sums[0] += 1;
        for (sum, field) in sums[1..].iter_mut().zip(["FILTERS", "SIZE", "ITEMS"]) {
            *sum += info_field::<u64>(client, &key, field);
        }
    }
    let figures = ["filters", "layers", "bytes", "items"];
    let shown = |client: &mut Connection| {
        LAYOUTS.map(|(layout, _)| figures.map(|figure| layout_figure(client, layout, figure)))
    };
    // Some filters are freed in the background.
    let deadline = Instant::now() + PATIENCE;
    while shown(client) != expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(shown(client), expected, "{figures:?} of {LAYOUTS:?}: shown, and there");
    for (index, figure) in figures.into_iter().enumerate() {
        let total = expected.iter().map(|sums| sums[index]).sum::<u64>();
        assert_eq!(info_number(client, "bf", &format!("bf_{figure}")), total, "{figure}");
    }
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

/// Makes a running server a replica of what is behind a port.
pub fn follow(replica: &mut Connection, port: u16) {
    assert_eq!(run(replica, &format!("REPLICAOF 127.0.0.1 {port}")), Ok(Value::Okay));
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

/// The files of a server's log: one, or a base, to which later ones add.
pub fn aof_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = [folder.to_owned(), folder.join("appendonlydir")]
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.map(|entry| entry.expect("a folder that can be read").path()))
        .filter(|path| {
            let name = path.file_name().expect("a file").to_string_lossy();
            name.starts_with("appendonly.aof") && (name.ends_with(".aof") || name.ends_with(".rdb"))
        })
        .collect();
    files.sort();
    files
}

/// Writes commands at the end of a server's append-only file.
pub fn append_to_aof(folder: &Path, commands: &[&[&[u8]]]) {
    let files = aof_files(folder);
    // Before version 7 there is one file; later, what follows the base is in one of its own.
    let last = files.iter().find(|file| file.to_string_lossy().ends_with("incr.aof")).unwrap_or(&files[0]);
    let mut file = fs::OpenOptions::new().append(true).open(last).expect("a file that can be written");
    for words in commands {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in *words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        file.write_all(&bytes).expect("a file that can be written");
    }
}

/// The commands in the append-only files of a server that keeps no RDB preamble.
pub fn aof_commands(folder: &Path) -> Vec<Vec<Vec<u8>>> {
    let files = aof_files(folder).into_iter().map(|file| fs::read(file).expect("a file that can be read"));
    files.flat_map(|bytes| commands_in(&bytes)).map(|(_, command)| command).collect()
}

/// The commands in a log, each with its place.
pub fn commands_in(log: &[u8]) -> Vec<(Range<usize>, Vec<Vec<u8>>)> {
    let mut rest = log;
    let mut commands = Vec::new();
    while !rest.is_empty() {
        let start = log.len() - rest.len();
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
        let words = words.collect();
        commands.push((start..log.len() - rest.len(), words));
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
