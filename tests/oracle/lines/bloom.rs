//! Random lines with the commands on Bloom filters.

use super::{Draw, Line};

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

/// The commands, with their weights.
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

/// A generator of random lines.
struct Lines {
    draw: Draw,
}

/// Returns random lines without end.
pub(crate) fn lines(seed: u64) -> impl Iterator<Item = Line> {
    let mut lines = Lines { draw: Draw::new(seed) };
    std::iter::from_fn(move || Some(lines.next_line()))
}

impl Lines {
    fn next_line(&mut self) -> Line {
        let (name, key) = (self.draw.name(NAMES), self.draw.random.one_of(KEYS).to_vec());
        let mut words = vec![self.draw.any_case(name).into_bytes(), key];
        let mut huge = false;
        match name {
            "BF.RESERVE" => huge = self.reserve(&mut words),
            "BF.ADD" | "BF.EXISTS" => words.push(self.draw.item()),
            "BF.MADD" | "BF.MEXISTS" => self.draw.items(&mut words),
            "BF.INSERT" => huge = self.insert(&mut words),
            "BF.INFO" => self.info(&mut words),
            "BF.SCANDUMP" => {
                let cursor =
                    self.draw.pick(&["0", "0", "1", "2", "9", "-1", "4611686018427387904", "x", "", "01", "1e3"]);
                words.push(cursor.into());
            }
            "BF.LOADCHUNK" => self.load_chunk(&mut words),
            "SET" => words.push(b"value".to_vec()),
            "RPUSH" => words.push(b"element".to_vec()),
            "RENAME" => words.push(self.draw.random.one_of(KEYS).to_vec()),
            _ => {}
        }
        // Some lines have one argument too few or too many, except those for a huge filter, which must not grow.
        if name.starts_with("BF.") && !huge && self.draw.random.chance(3) {
            if self.draw.random.chance(50) {
                words.pop();
            } else {
                words.push(self.draw.item());
            }
        }
        Line { words }
    }

    /// Appends the arguments of BF.RESERVE. Returns true if the filter would be huge.
    fn reserve(&mut self, words: &mut Vec<Vec<u8>>) -> bool {
        let (capacity, mut huge) = self.capacity();
        words.push(self.error_rate(huge));
        words.push(capacity);
        let mut options = Vec::new();
        if self.draw.random.chance(35) {
            let (expansion, huge_expansion) = self.expansion();
            huge |= huge_expansion;
            options.push(vec![self.draw.option("EXPANSION"), expansion]);
        }
        if self.draw.random.chance(20) {
            options.push(vec![self.draw.option("NONSCALING")]);
        }
        if self.draw.random.chance(6) {
            options.push(vec![self.draw.option("SEED"), self.draw.pick(SEEDS).into()]);
        }
        if self.draw.random.chance(4) {
            options.push(vec![self.draw.option("LAYOUT"), self.draw.pick(LAYOUTS).into()]);
        }
        if self.draw.random.chance(4) {
            let unknown = self.draw.pick(&["NOTHING", "100", "", "EXPAND", "NONSCALE", "ERROR"]);
            options.push(vec![unknown.into()]);
        }
        self.draw.append_shuffled(options, words);
        if self.draw.random.chance(3) {
            words.push(self.draw.option("EXPANSION"));
        }
        huge
    }

    /// Appends the arguments of BF.INSERT. Returns true if the filter would be huge.
    fn insert(&mut self, words: &mut Vec<Vec<u8>>) -> bool {
        let (mut huge, mut huge_expansion) = (false, false);
        let mut options = Vec::new();
        if self.draw.random.chance(50) {
            let capacity;
            (capacity, huge) = self.capacity();
            options.push(vec![self.draw.option("CAPACITY"), capacity]);
        }
        if self.draw.random.chance(30) {
            options.push(vec![self.draw.option("ERROR"), self.error_rate(huge)]);
        }
        if self.draw.random.chance(25) {
            let expansion;
            (expansion, huge_expansion) = self.expansion();
            options.push(vec![self.draw.option("EXPANSION"), expansion]);
        }
        if self.draw.random.chance(15) {
            options.push(vec![self.draw.option("NOCREATE")]);
        }
        if self.draw.random.chance(20) {
            options.push(vec![self.draw.option("NONSCALING")]);
        }
        if self.draw.random.chance(3) {
            options.push(vec![self.draw.option("SEED"), self.draw.pick(SEEDS).into()]);
        }
        if self.draw.random.chance(3) {
            options.push(vec![self.draw.option("LAYOUT"), self.draw.pick(LAYOUTS).into()]);
        }
        if self.draw.random.chance(4) {
            options.push(vec![self.draw.pick(NEAR_OPTIONS).into()]);
        }
        huge |= huge_expansion;
        self.draw.append_shuffled(options, words);
        if huge || self.draw.random.chance(96) {
            words.push(self.draw.option("ITEMS"));
        }
        if huge {
            words.push(self.draw.item());
        } else {
            self.draw.items(words);
        }
        huge
    }

    fn info(&mut self, words: &mut Vec<Vec<u8>>) {
        if self.draw.random.chance(60) {
            let fields = if self.draw.random.chance(75) { FIELDS } else { OTHER_FIELDS };
            let field = self.draw.pick(fields);
            words.push(self.draw.any_case(field).into());
        }
    }

    /// Appends a cursor and a chunk that both modules must reject, since their valid chunks differ.
    fn load_chunk(&mut self, words: &mut Vec<Vec<u8>>) {
        let cursor =
            self.draw.pick(&["1", "1", "0", "-1", "4611686018427387904", "x", "", "1.0", "9223372036854775808"]);
        words.push(cursor.into());
        let length = 16 + self.draw.random.below(100);
        words.push((0..length).map(|_| self.draw.random.below(256) as u8).collect());
    }

    fn error_rate(&mut self, low: bool) -> Vec<u8> {
        let usual = low || self.draw.random.chance(70);
        self.draw.pick(if usual { USUAL_ERROR_RATES } else { ERROR_RATES }).into()
    }

    fn capacity(&mut self) -> (Vec<u8>, bool) {
        match self.draw.random.below(100) {
            0..75 => (self.draw.pick(USUAL_CAPACITIES).into(), false),
            75..97 => (self.draw.pick(CAPACITIES).into(), false),
            _ => (HUGE_CAPACITY.into(), true),
        }
    }

    fn expansion(&mut self) -> (Vec<u8>, bool) {
        match self.draw.random.below(100) {
            0..65 => (self.draw.pick(USUAL_EXPANSIONS).into(), false),
            65..90 => (self.draw.pick(EXPANSIONS).into(), false),
            _ => (self.draw.pick(HUGE_EXPANSIONS).into(), true),
        }
    }
}
