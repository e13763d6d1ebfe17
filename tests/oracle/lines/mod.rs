//! Random command lines, generated from a seed.

pub(crate) mod bloom;
pub(crate) mod cuckoo;

use std::fmt;

use models::random::Random;

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

/// Draws random words for the generators of lines.
struct Draw {
    random: Random,
    new_items: u64,
}

impl Draw {
    fn new(seed: u64) -> Draw {
        Draw { random: Random(seed), new_items: 0 }
    }

    /// Returns one of some names, each with its weight.
    fn name(&mut self, names: &[(&'static str, u64)]) -> &'static str {
        let total = names.iter().map(|(_, weight)| weight).sum();
        let mut chosen = self.random.below(total);
        for &(name, weight) in names {
            if chosen < weight {
                return name;
            }
            chosen -= weight;
        }
        unreachable!("the weights add up to the total")
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
