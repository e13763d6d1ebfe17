//! The commands that bytes stand for:
//!
//! ```text
//!  script    age, arguments of loadmodule, commands
//!  command   circumstances, number of arguments, arguments
//!  argument  a byte: one of WORDS, an item, or a code that says how to read the bytes that follow
//! ```

use crate::decoding::parts::sealed;
use crate::input::{Reader, item};
use crate::server::Words;

/// The arguments that bytes below [`ITEM`] and from [`MORE_WORDS`] on stand for. Append new ones at the end, so that the
/// corpus keeps its meaning.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "BF.RESERVE", "BF.ADD", "BF.MADD", "BF.INSERT", "BF.EXISTS", "BF.MEXISTS", "BF.DEL", "BF.MDEL", "BF.COUNT", "BF.MCOUNT",
    "BF.MERGE", "BF.CARD", "BF.INFO", "BF.SCANDUMP", "BF.LOADCHUNK", "BF.DEBUG",
    // Commands of the mock server.
    "SET", "DEL", "RENAME", "COPY", "SAVE", "RESTORE", "RELOAD", "REWRITE", "DEFRAGMENT", "CONFIG",
    "a", "b", "c", "d",
    "EXPANSION", "NONSCALING", "COUNTING", "SEED", "LAYOUT", "native", "classic", "LIKE", "CAPACITY", "ERROR", "NOCREATE", "NX",
    "ITEMS", "UNION", "INTERSECT", "SIZE", "FILTERS", "FILL", "FPR", "ESTIMATED", "5000",
    "0.5", "0.1", "0.01", "0.001", "1e-9", "1e-300", "0.99999999",
    "-1", "0", "1", "2", "3", "BF.FOLD", "5", "8", "20", "50", "100", "1000", "100000", "4294967295", "9223372036854775807",
    "error-rate", "initial-size", "expansion-factor", "layout", "lookahead-size", "ERROR_RATE", "CF_MAX_EXPANSIONS",
    "",
    "REPLACE", "redisbloom-version", "auto", "EXPIRE", "EX", "PX", "EXAT", "PXAT", "ALL",
    "WINDOW", "SLICES", "REFRESH", "TTL", "86400",
    "BF.ADDPACKED", "BF.EXISTSPACKED", "BF.DELPACKED", "FIXED", "OFFSETS", "OFFSETS64", "LINES", "COUNT",
    "CF.RESERVE", "CF.ADD", "CF.ADDNX", "CF.INSERT", "CF.INSERTNX", "CF.EXISTS", "CF.MEXISTS", "CF.COUNT", "CF.DEL",
    "CF.INFO", "CF.DEBUG", "CF.COMPACT", "CF.CONVERT", "CF.SCANDUMP", "CF.LOADCHUNK", "BUCKETSIZE", "MAXITERATIONS",
    "BF.LOAD", "valkey", "TIGHTENING", "VALIDATESCALETO", "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345", "dialect", "valkey-bloom",
    "ROLLING", "BF.CHANGES", "SINCE",
];

/// Bytes from here on are items.
const ITEM: u8 = 0x80;

/// Bytes from here on are the [`WORDS`] for which no byte below [`ITEM`] is left.
const MORE_WORDS: u8 = 0xDE;

const _: () = assert!(WORDS.len() == (ITEM + (LITERAL - MORE_WORDS)) as usize);

/// The code for a literal: its length and its bytes follow.
const LITERAL: u8 = 0xE0;

/// The code for a literal with two bytes of length.
const LONG_LITERAL: u8 = 0xE1;

/// The code for a header whose checksum is corrected: two bytes of length and its bytes follow.
const SEALED: u8 = 0xE2;

/// The code for several items: the number of the first item and the number of items follow.
const ITEMS: u8 = 0xE3;

/// The code for the cursor of the last reply that had one.
const CURSOR: u8 = 0xE4;

/// The code for the data of the last reply that had any, or for the file that was saved last.
const DATA: u8 = 0xE5;

/// The code for a whole number: eight bytes follow.
const NUMBER: u8 = 0xE6;

/// The code for a floating-point number: eight bytes follow.
const FRACTION: u8 = 0xE7;

/// Bytes from here on are small numbers.
const SMALL_NUMBER: u8 = 0xE8;

/// The bit of the circumstances for a command from a master.
pub(crate) const FROM_MASTER: u8 = 1;

/// The bit for a client that uses RESP3.
pub(crate) const RESP3: u8 = 2;

/// The bit for a server that cannot allocate zeroed memory.
pub(crate) const OUT_OF_MEMORY: u8 = 4;

/// The bit for a server that is almost at `maxmemory`.
pub(crate) const FULL: u8 = 8;

/// The bit for a server that may evict other keys.
pub(crate) const EVICTS: u8 = 16;

/// The bit for a follower that loads a file, and is not a replica.
pub(crate) const LOADS: u8 = 32;

/// The maximum number of arguments of a command.
const MAX_WORDS: u8 = 31;

/// The maximum number of items of a code [`ITEMS`].
const MAX_ITEMS: u8 = 63;

pub(crate) struct Script<'a> {
    pub rest: Reader<'a>,
    /// See [`CURSOR`] and [`DATA`].
    pub cursor: Vec<u8>,
    pub data: Vec<u8>,
}

/// Returns the commands of a script, given one a line. A `$` stands for the data, and a `*` for many items.
pub(crate) fn script_of(commands: &str) -> Vec<u8> {
    let mut script = Vec::new();
    for line in commands.lines() {
        script.extend([0, line.split(' ').count() as u8]);
        for word in line.split(' ') {
            match word {
                "$" => script.push(DATA),
                "*" => script.extend([ITEMS, 0, MAX_ITEMS]),
                _ => {
                    script.extend([LITERAL, word.len() as u8]);
                    script.extend(word.bytes());
                }
            }
        }
    }
    script
}

impl Script<'_> {
    pub(crate) fn words(&mut self) -> Option<Words> {
        let count = self.rest.u8()? & MAX_WORDS;
        let mut words = Words::new();
        for _ in 0..count {
            match self.rest.u8()? {
                LITERAL => words.push(self.literal(|rest| rest.u8().map(usize::from))?),
                LONG_LITERAL => words.push(self.literal(|rest| rest.u16().map(usize::from))?),
                SEALED => words.push(sealed(&self.literal(|rest| rest.u16().map(usize::from))?)),
                ITEMS => {
                    let (first, count) = (u64::from(self.rest.u8()?), u64::from(self.rest.u8()? & MAX_ITEMS));
                    words.extend((first..first + count).map(item));
                }
                CURSOR => words.push(self.cursor.clone()),
                DATA => words.push(self.data.clone()),
                NUMBER => words.push(self.rest.u64()?.cast_signed().to_string().into_bytes()),
                FRACTION => words.push(f64::from_bits(self.rest.u64()?).to_string().into_bytes()),
                byte @ SMALL_NUMBER.. => words.push((byte - SMALL_NUMBER).to_string().into_bytes()),
                byte @ MORE_WORDS.. => words.push(WORDS[usize::from(byte - MORE_WORDS + ITEM)].as_bytes().to_vec()),
                byte @ ITEM.. => words.push(item((byte - ITEM).into())),
                byte => words.push(WORDS[usize::from(byte)].as_bytes().to_vec()),
            }
        }
        Some(words)
    }

    fn literal(&mut self, length: impl FnOnce(&mut Reader<'_>) -> Option<usize>) -> Option<Vec<u8>> {
        let length = length(&mut self.rest)?.min(self.rest.0.len());
        self.rest.take(length).map(<[u8]>::to_vec)
    }
}
