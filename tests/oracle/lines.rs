//! Random command lines, generated from a seed.

use std::fmt;

use testkit::random::Random;

/// A command and its arguments, which may be any bytes.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub words: Vec<Vec<u8>>,
}

impl Line {
    /// Returns the command in upper case.
    pub(crate) fn command(&self) -> String {
        String::from_utf8_lossy(&self.words[0]).to_ascii_uppercase()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.words.get(1).map_or(b"", Vec::as_slice)
    }

    /// Returns the arguments after the key.
    pub(crate) fn arguments(&self) -> &[Vec<u8>] {
        self.words.get(2..).unwrap_or(&[])
    }

    pub(crate) fn shares_a_key_with(&self, other: &Line) -> bool {
        let keys = |line: &Line| -> Vec<Vec<u8>> {
            let count = if line.command() == "RENAME" { 2 } else { 1 };
            line.words.iter().skip(1).take(count).cloned().collect()
        };
        keys(self).iter().any(|key| keys(other).contains(key))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for word in &self.words {
            match word.len() {
                0..100 => write!(f, "\"{}\" ", word.escape_ascii())?,
                length => write!(f, "({length} bytes) ")?,
            }
        }
        Ok(())
    }
}

impl From<&str> for Line {
    fn from(words: &str) -> Line {
        Line { words: words.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect() }
    }
}

/// Keys. Frequent ones occur several times. The last two are also options of BF.RESERVE.
const KEYS: &[&[u8]] =
    &[b"a", b"a", b"a", b"b", b"b", b"b", b"c", b"c", b"d", b"d", b"", b"\xff\0\r\n", b"nonscaling", b"EXPANSION"];

const USUAL_ERROR_RATES: &[&str] = &["1e-18", "0.000000000000000001", "1e-17", "0.001"];
const ERROR_RATES: &[&str] = &[
    "0", "-0.5", "0.0", "1", "1.0", "2", "0.5", "0.999999", "0.25", "1e-30", "1e-320", "1e-400", "1e400", "nan", "inf",
    "-inf", "", " 0.1", "0.1 ", "0.1x", "x", "0x1p-3", "+0.5", ".5", "5e-1", "0,5", "\0",
];

const USUAL_CAPACITIES: &[&str] = &["1", "2", "3", "5", "8", "20", "100"];
const CAPACITIES: &[&str] = &[
    "0",
    "-1",
    "+1",
    "01",
    "1e3",
    " 1",
    "1 ",
    "",
    "x",
    "1.0",
    "0x10",
    "1000000",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551616",
    "-9223372036854775809",
    "\0",
];
/// A capacity on which RedisBloom's arithmetic overflows, so that it creates a tiny filter. At error rates of 0.25 and
/// higher, it requests more memory than the machine has, and crashes.
const HUGE_CAPACITY: &str = "9223372036854775807";

const USUAL_EXPANSIONS: &[&str] = &["1", "2", "3", "4"];
const EXPANSIONS: &[&str] = &["0", "-1", "+2", "02", "1.5", "", "x", "9223372036854775808", "-9223372036854775808"];
const HUGE_EXPANSIONS: &[&str] = &["4294967295", "4294967296", "4294967299", "9223372036854775807"];

const SEEDS: &[&str] = &["0", "42", "18446744073709551615", "18446744073709551616", "-1", "x"];

const LAYOUTS: &[&str] = &["native", "classic", "CLASSIC", "", "x"];

/// Words that are not options of BF.INSERT. RedisBloom takes all but the last two as options, because of their first
/// letters.
const NEAR_OPTIONS: &[&str] = &["ITEM", "CAP", "ERRORS", "EXPAND", "NOCREATED", "NONSCALE", "SCALE", "XYZ"];

const FIELDS: &[&str] = &["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"];
const OTHER_FIELDS: &[&str] = &["ERROR", "SEED", "LAYOUT", "FILL", "FPR", "", "CAP", "CAPACITYX", "Number of filters"];

/// A generator of random lines.
pub(crate) struct Lines {
    random: Random,
    new_items: u64,
}

impl Lines {
    pub(crate) fn new(seed: u64) -> Lines {
        Lines { random: Random(seed), new_items: 0 }
    }

    pub(crate) fn next_line(&mut self) -> Line {
        let (name, key) = (self.name(), self.random.one_of(KEYS).to_vec());
        let mut words = vec![self.any_case(name).into_bytes(), key];
        let mut huge = false;
        match name {
            "BF.RESERVE" => huge = self.reserve(&mut words),
            "BF.ADD" | "BF.EXISTS" => words.push(self.item()),
            "BF.MADD" | "BF.MEXISTS" => self.items(&mut words),
            "BF.INSERT" => huge = self.insert(&mut words),
            "BF.INFO" => self.info(&mut words),
            "BF.SCANDUMP" => {
                let cursor = self.pick(&["0", "0", "1", "2", "9", "-1", "4611686018427387904", "x", "", "01", "1e3"]);
                words.push(cursor.into());
            }
            "BF.LOADCHUNK" => self.load_chunk(&mut words),
            "SET" => words.push(b"value".to_vec()),
            "RPUSH" => words.push(b"element".to_vec()),
            "RENAME" => words.push(self.random.one_of(KEYS).to_vec()),
            _ => {}
        }
        // Some lines have one argument too few or too many, except those for a huge filter, which must not grow.
        if name.starts_with("BF.") && !huge && self.random.chance(3) {
            if self.random.chance(50) {
                words.pop();
            } else {
                words.push(self.item());
            }
        }
        Line { words }
    }

    fn name(&mut self) -> &'static str {
        const NAMES: &[(&str, u64)] = &[
            ("BF.RESERVE", 14),
            ("BF.ADD", 16),
            ("BF.MADD", 10),
            ("BF.INSERT", 18),
            ("BF.EXISTS", 7),
            ("BF.MEXISTS", 6),
            ("BF.CARD", 5),
            ("BF.INFO", 9),
            ("BF.DEBUG", 3),
            ("BF.SCANDUMP", 3),
            ("BF.LOADCHUNK", 3),
            ("DEL", 3),
            ("SET", 1),
            ("RPUSH", 1),
            ("RENAME", 1),
        ];
        let total = NAMES.iter().map(|(_, weight)| weight).sum();
        let mut chosen = self.random.below(total);
        for &(name, weight) in NAMES {
            if chosen < weight {
                return name;
            }
            chosen -= weight;
        }
        unreachable!("the weights add up to the total")
    }

    /// Appends the arguments of BF.RESERVE. Returns true if the filter would be huge.
    fn reserve(&mut self, words: &mut Vec<Vec<u8>>) -> bool {
        let (capacity, mut huge) = self.capacity();
        words.push(self.error_rate(huge));
        words.push(capacity);
        let mut options = Vec::new();
        if self.random.chance(35) {
            let (expansion, huge_expansion) = self.expansion();
            huge |= huge_expansion;
            options.push(vec![self.option("EXPANSION"), expansion]);
        }
        if self.random.chance(20) {
            options.push(vec![self.option("NONSCALING")]);
        }
        if self.random.chance(6) {
            options.push(vec![self.option("SEED"), self.pick(SEEDS).into()]);
        }
        if self.random.chance(4) {
            options.push(vec![self.option("LAYOUT"), self.pick(LAYOUTS).into()]);
        }
        if self.random.chance(4) {
            let unknown = self.pick(&["NOTHING", "100", "", "EXPAND", "NONSCALE", "ERROR"]);
            options.push(vec![unknown.into()]);
        }
        self.append_shuffled(options, words);
        if self.random.chance(3) {
            words.push(self.option("EXPANSION"));
        }
        huge
    }

    /// Appends the arguments of BF.INSERT. Returns true if the filter would be huge.
    fn insert(&mut self, words: &mut Vec<Vec<u8>>) -> bool {
        let (mut huge, mut huge_expansion) = (false, false);
        let mut options = Vec::new();
        if self.random.chance(50) {
            let capacity;
            (capacity, huge) = self.capacity();
            options.push(vec![self.option("CAPACITY"), capacity]);
        }
        if self.random.chance(30) {
            options.push(vec![self.option("ERROR"), self.error_rate(huge)]);
        }
        if self.random.chance(25) {
            let expansion;
            (expansion, huge_expansion) = self.expansion();
            options.push(vec![self.option("EXPANSION"), expansion]);
        }
        if self.random.chance(15) {
            options.push(vec![self.option("NOCREATE")]);
        }
        if self.random.chance(20) {
            options.push(vec![self.option("NONSCALING")]);
        }
        if self.random.chance(3) {
            options.push(vec![self.option("SEED"), self.pick(SEEDS).into()]);
        }
        if self.random.chance(3) {
            options.push(vec![self.option("LAYOUT"), self.pick(LAYOUTS).into()]);
        }
        if self.random.chance(4) {
            options.push(vec![self.pick(NEAR_OPTIONS).into()]);
        }
        huge |= huge_expansion;
        self.append_shuffled(options, words);
        if huge || self.random.chance(96) {
            words.push(self.option("ITEMS"));
        }
        if huge {
            words.push(self.item());
        } else {
            self.items(words);
        }
        huge
    }

    fn info(&mut self, words: &mut Vec<Vec<u8>>) {
        if self.random.chance(60) {
            let fields = if self.random.chance(75) { FIELDS } else { OTHER_FIELDS };
            let field = self.pick(fields);
            words.push(self.any_case(field).into());
        }
    }

    /// Appends a cursor and a chunk that both modules must reject, since their valid chunks differ.
    fn load_chunk(&mut self, words: &mut Vec<Vec<u8>>) {
        let cursor = self.pick(&["1", "1", "0", "-1", "4611686018427387904", "x", "", "1.0", "9223372036854775808"]);
        words.push(cursor.into());
        let length = 16 + self.random.below(100);
        words.push((0..length).map(|_| self.random.below(256) as u8).collect());
    }

    /// Appends options in random order. In rare cases, one of them occurs twice.
    fn append_shuffled(&mut self, mut options: Vec<Vec<Vec<u8>>>, words: &mut Vec<Vec<u8>>) {
        if !options.is_empty() && self.random.chance(5) {
            options.push(options[self.random.below(options.len() as u64) as usize].clone());
        }
        while !options.is_empty() {
            let index = self.random.below(options.len() as u64) as usize;
            words.extend(options.swap_remove(index));
        }
    }

    fn error_rate(&mut self, low: bool) -> Vec<u8> {
        let usual = low || self.random.chance(70);
        self.pick(if usual { USUAL_ERROR_RATES } else { ERROR_RATES }).into()
    }

    fn capacity(&mut self) -> (Vec<u8>, bool) {
        match self.random.below(100) {
            0..75 => (self.pick(USUAL_CAPACITIES).into(), false),
            75..97 => (self.pick(CAPACITIES).into(), false),
            _ => (HUGE_CAPACITY.into(), true),
        }
    }

    fn expansion(&mut self) -> (Vec<u8>, bool) {
        match self.random.below(100) {
            0..65 => (self.pick(USUAL_EXPANSIONS).into(), false),
            65..90 => (self.pick(EXPANSIONS).into(), false),
            _ => (self.pick(HUGE_EXPANSIONS).into(), true),
        }
    }

    fn items(&mut self, words: &mut Vec<Vec<u8>>) {
        for _ in 0..self.random.below(7) {
            words.push(self.item());
        }
    }

    /// Returns an item. Most are chosen from a few, so that many are duplicates.
    fn item(&mut self) -> Vec<u8> {
        match self.random.below(20) {
            0 => b"".to_vec(),
            1 => b"\0".to_vec(),
            2 => b"\xff\xfe\r\n".to_vec(),
            3 => vec![b'x'; 5000],
            4..9 => {
                self.new_items += 1;
                format!("new {}", self.new_items).into_bytes()
            }
            _ => format!("item {}", self.random.below(30)).into_bytes(),
        }
    }

    fn option(&mut self, name: &str) -> Vec<u8> {
        self.any_case(name).into_bytes()
    }

    fn any_case(&mut self, word: &str) -> String {
        match self.random.below(4) {
            0 => word.to_ascii_lowercase(),
            1 => word
                .chars()
                .map(|letter| if self.random.chance(50) { letter.to_ascii_lowercase() } else { letter })
                .collect(),
            _ => word.to_owned(),
        }
    }

    fn pick(&mut self, words: &'static [&'static str]) -> &'static str {
        self.random.one_of(words)
    }
}
