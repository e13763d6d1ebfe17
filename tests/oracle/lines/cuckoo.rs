//! Random lines with the commands on cuckoo filters.
//!
//! RedisBloom's server dies of some lines, and of filters that have grown too far. So no item is added often, only
//! small expansions are used after the creation, and no line ends with the name of an option that lacks its value.

use std::collections::{HashMap, VecDeque};

use super::{Draw, Line};

/// Keys. Frequent ones occur several times. The last two are also options of CF.RESERVE.
pub(crate) const KEYS: &[&[u8]] =
    &[b"a", b"a", b"a", b"b", b"b", b"b", b"c", b"c", b"d", b"d", b"", b"\xff\0\r\n", b"bucketsize", b"EXPANSION"];

/// The commands, with their weights.
const NAMES: &[(&str, u64)] = &[
    ("CF.RESERVE", 12),
    ("CF.ADD", 14),
    ("CF.ADDNX", 8),
    ("CF.INSERT", 16),
    ("CF.INSERTNX", 10),
    ("CF.EXISTS", 4),
    ("CF.MEXISTS", 4),
    ("CF.COUNT", 6),
    ("CF.DEL", 16),
    ("CF.COMPACT", 3),
    ("CF.INFO", 5),
    ("CF.DEBUG", 3),
    ("CF.SCANDUMP", 5),
    ("CF.LOADCHUNK", 5),
    ("DEL", 2),
    ("SET", 1),
    ("RPUSH", 1),
    ("RENAME", 1),
];

const USUAL_CAPACITIES: &[&str] = &["2", "4", "5", "8", "10", "16", "33", "600"];
const CAPACITIES: &[&str] = &[
    "0",
    "-1",
    "1",
    "3",
    "+8",
    "08",
    "1e3",
    " 8",
    "8 ",
    "",
    "x",
    "8.0",
    "0x10",
    "20000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "\0",
];

const USUAL_BUCKET_SIZES: &[&str] = &["1", "1", "2", "3", "4", "8"];
const BUCKET_SIZES: &[&str] = &["0", "-1", "255", "256", "65537", "02", "x", ""];

const USUAL_ITERATIONS: &[&str] = &["1", "2", "20", "100"];
const ITERATIONS: &[&str] = &["0", "-5", "65535", "65536", "+1", "x", ""];

const USUAL_EXPANSIONS: &[&str] = &["0", "1", "1", "2", "3", "4"];
/// The filters with the larger ones of these are not used any further.
const EXPANSIONS: &[&str] = &["-1", "5", "8", "255", "16385", "32768", "32769", "9223372036854775808", "01", "x", ""];

/// Pairs that are options only here.
const FURTHER_OPTIONS: &[(&str, &str)] = &[
    ("SEED", "42"),
    ("SEED", "x"),
    ("LAYOUT", "classic"),
    ("LAYOUT", "native"),
    ("LAYOUT", "x"),
    ("ERROR", "0.01"),
    ("ERROR", "2"),
    ("EX", "1000"),
    ("EX", "0"),
];

/// Words that are not options of CF.INSERT. RedisBloom takes all but the last three as options, because of their first
/// letters.
const NEAR_OPTIONS: &[&str] = &["I", "ITEM", "c", "CAP", "n", "NOCREATED", "EXPANSION", "7", ""];

/// The maximum number of times that an item is added.
const MAX_COPIES: u64 = 8;

/// The number of items of each key that are used again.
const RECENT: usize = 40;

/// The number of items of a header: more than are ever removed.
const MANY: u64 = 100_000;

/// A generator of random lines.
struct Lines {
    draw: Draw,
    /// How often each item was added.
    copies: HashMap<Vec<u8>, u64>,
    /// The items that were last added to each key.
    recent: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// The number of additions.
    additions: u64,
    /// Lines that follow the last one.
    queue: VecDeque<Line>,
}

/// Returns random lines without end.
pub(crate) fn lines(seed: u64) -> impl Iterator<Item = Line> {
    let (draw, queue) = (Draw::new(seed), VecDeque::new());
    let mut lines = Lines { draw, copies: HashMap::new(), recent: HashMap::new(), additions: 0, queue };
    std::iter::from_fn(move || Some(lines.next_line()))
}

impl Lines {
    fn next_line(&mut self) -> Line {
        if let Some(line) = self.queue.pop_front() {
            return line;
        }
        let (name, key) = (self.draw.name(NAMES), self.draw.random.one_of(KEYS).to_vec());
        let mut words = vec![self.draw.option(name), key.clone()];
        match name {
            "CF.RESERVE" => self.reserve(&mut words),
            "CF.ADD" | "CF.ADDNX" => words.push(self.added_item(&key)),
            "CF.INSERT" | "CF.INSERTNX" => self.insert(&key, &mut words),
            "CF.EXISTS" | "CF.COUNT" | "CF.DEL" => words.push(self.item(&key)),
            "CF.MEXISTS" => {
                for _ in 0..self.draw.random.below(7) {
                    words.push(self.item(&key));
                }
            }
            "CF.SCANDUMP" => {
                let cursor = self.draw.pick(&[
                    "0",
                    "0",
                    "1",
                    "1",
                    "2",
                    "9",
                    "17",
                    "40",
                    "-1",
                    "4611686018427387904",
                    "9223372036854775807",
                    "x",
                    "",
                    "01",
                    "1e3",
                ]);
                words.push(cursor.into());
            }
            "CF.LOADCHUNK" => self.load_chunk(&mut words),
            "SET" => words.push(b"value".to_vec()),
            "RPUSH" => words.push(b"element".to_vec()),
            "RENAME" => words.push(self.draw.random.one_of(KEYS).to_vec()),
            _ => {}
        }
        // Some lines have one argument too few or too many.
        if name.starts_with("CF.") && self.queue.is_empty() && self.draw.random.chance(3) {
            if self.draw.random.chance(50) {
                words.pop();
            } else {
                words.push(self.added_item(&key));
            }
        }
        let is_option = |word: &Vec<u8>| {
            [&b"BUCKETSIZE"[..], b"MAXITERATIONS", b"EXPANSION"].iter().any(|name| word.eq_ignore_ascii_case(name))
        };
        if name == "CF.RESERVE" && words.len() % 2 == 1 && words.last().is_some_and(is_option) {
            words.push(b"2".to_vec());
        }
        Line { words }
    }

    fn reserve(&mut self, words: &mut Vec<Vec<u8>>) {
        words.push(self.number(USUAL_CAPACITIES, CAPACITIES));
        let mut options = Vec::new();
        for (name, percent, usual, others) in [
            ("BUCKETSIZE", 50, USUAL_BUCKET_SIZES, BUCKET_SIZES),
            ("MAXITERATIONS", 40, USUAL_ITERATIONS, ITERATIONS),
            ("EXPANSION", 60, USUAL_EXPANSIONS, EXPANSIONS),
        ] {
            if self.draw.random.chance(percent) {
                options.push(vec![self.draw.option(name), self.number(usual, others)]);
            }
        }
        if self.draw.random.chance(4) {
            options.push(self.further_option());
        }
        if self.draw.random.chance(4) {
            let unknown = self.draw.pick(&["NOTHING", "100", "", "BUCKET", "EXPANSIONS", "NOCREATE"]);
            options.push(vec![unknown.into(), b"3".to_vec()]);
        }
        if self.draw.random.chance(2) {
            options.push(vec![b"alone".to_vec()]);
        }
        self.draw.append_shuffled(options, words);
        if self.draw.random.chance(3) {
            words.push(self.draw.option("BUCKETSIZE"));
        }
    }

    fn insert(&mut self, key: &[u8], words: &mut Vec<Vec<u8>>) {
        let mut options = Vec::new();
        if self.draw.random.chance(40) {
            options.push(vec![self.draw.option("CAPACITY"), self.number(USUAL_CAPACITIES, CAPACITIES)]);
        }
        if self.draw.random.chance(15) {
            options.push(vec![self.draw.option("NOCREATE")]);
        }
        if self.draw.random.chance(3) {
            options.push(self.further_option());
        }
        if self.draw.random.chance(4) {
            options.push(vec![self.draw.pick(NEAR_OPTIONS).into()]);
        }
        self.draw.append_shuffled(options, words);
        if self.draw.random.chance(96) {
            words.push(self.draw.option("ITEMS"));
        }
        // A few lines have several batches of items.
        let most = if self.draw.random.chance(10) { 80 } else { 9 };
        for _ in 0..self.draw.random.below(most) {
            words.push(self.added_item(key));
        }
    }

    /// Appends a cursor and a chunk that both modules reject, or a header, which chunks may follow.
    fn load_chunk(&mut self, words: &mut Vec<Vec<u8>>) {
        if self.draw.random.chance(40) {
            let cursor =
                self.draw.pick(&["1", "1", "0", "-1", "9", "9223372036854775808", "-9223372036854775808", "x", "1.0"]);
            let length = if self.draw.random.chance(30) { 38 } else { self.draw.random.below(60) };
            words.extend([cursor.into(), self.bytes(length)]);
            return;
        }
        let is_usual = self.draw.random.chance(60);
        let mut one_of = |usual: &[u64], all: &[u64]| self.draw.random.one_of(if is_usual { usual } else { all });
        let buckets = one_of(&[1, 2, 4, 16], &[0, 3, 4, 1 << 56, u64::MAX]);
        let bucket_size = one_of(&[1, 2, 4], &[0, 2, 255, 256]);
        let iterations = one_of(&[1, 20, 100], &[0, 20, 65535]);
        let removals = one_of(&[0, 3], &[0, MANY, u64::MAX]);
        // RedisBloom uses the low 16 bits of the number of layers.
        let layers = one_of(&[1, 2, 3, 5], &[0, 1, 2, 65536, 65537]);
        let expansion = one_of(&[1, 2, 4], &[1, 2, 3]);
        let numbers = [MANY, buckets, removals, layers].map(u64::to_le_bytes);
        let options = [bucket_size, iterations, expansion].map(|number| (number as u16).to_le_bytes());
        words.extend([b"1".to_vec(), [numbers.as_flattened(), options.as_flattened()].concat()]);
        if !is_usual || self.draw.random.chance(30) {
            return;
        }
        // The header comes after the deletion of the key, and all chunks come after the header, in any order.
        self.queue.push_back(Line { words: words.clone() });
        let mut end = 1;
        let mut chunks = Vec::new();
        for layer in 0..layers {
            let length = buckets * expansion.pow(layer as u32) * bucket_size;
            end += length;
            let chunk = self.slots(length);
            chunks.push([b"CF.LOADCHUNK".to_vec(), words[1].clone(), end.to_string().into_bytes(), chunk].to_vec());
        }
        while !chunks.is_empty() {
            let index = self.draw.random.below(chunks.len() as u64) as usize;
            self.queue.push_back(Line { words: chunks.swap_remove(index) });
        }
        words.truncate(2);
        words[0] = b"DEL".to_vec();
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|_| self.draw.random.below(256) as u8).collect()
    }

    /// Returns slots, some of which are free.
    fn slots(&mut self, length: u64) -> Vec<u8> {
        let filled = self.draw.random.below(101);
        (0..length)
            .map(|_| if self.draw.random.chance(filled) { self.draw.random.below(256) as u8 } else { 0 })
            .collect()
    }

    fn number(&mut self, usual: &'static [&'static str], others: &'static [&'static str]) -> Vec<u8> {
        let is_usual = self.draw.random.chance(85);
        self.draw.pick(if is_usual { usual } else { others }).into()
    }

    fn further_option(&mut self) -> Vec<Vec<u8>> {
        let (name, value) = self.draw.random.one_of(FURTHER_OPTIONS);
        vec![self.draw.option(name), value.into()]
    }

    /// Returns an item, probably one that was added to the key.
    fn item(&mut self, key: &[u8]) -> Vec<u8> {
        match self.recent.get(key) {
            Some(recent) if self.draw.random.chance(60) => {
                recent[self.draw.random.below(recent.len() as u64) as usize].clone()
            }
            _ => self.draw.item(),
        }
    }

    /// Returns an item that may be added to the key.
    fn added_item(&mut self, key: &[u8]) -> Vec<u8> {
        self.additions += 1;
        let mut item = self.item(key);
        if self.copies.get(&item) == Some(&MAX_COPIES) {
            item = format!("more {}", self.additions).into_bytes();
        }
        *self.copies.entry(item.clone()).or_default() += 1;
        let recent = self.recent.entry(key.to_vec()).or_default();
        if recent.len() == RECENT {
            recent.remove(0);
        }
        recent.push(item.clone());
        item
    }
}
