//! Kinds of filters in histories: how filters are created, and what their replies promise about items.

use crate::history::{Added, FOREVER};

/// A kind of filters. All filters of a kind have the same parameters, so that they can be merged.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The start of the keys. Those of cuckoo filters contain `cuckoo`.
    pub name: &'static str,
    pub error_rate: &'static str,
    pub capacity: u64,
    pub options: &'static str,
    pub remembers: Remembers,
}

/// The promise of a filter about its items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Remembers {
    /// Each item.
    All,
    /// Each item that was new.
    New,
    /// Each occurrence of an item, until it is removed.
    Counts,
    /// Each item for so many seconds, from its first addition.
    Since(u64),
    /// Each item for so many seconds, from its last addition.
    SinceLast(u64),
    /// Nothing that the replies show: further items decide when one is forgotten.
    Unknown,
}

/// An addition of items, with the options that change what its replies promise.
#[derive(Clone, Copy, Debug)]
pub struct Addition {
    /// The time of the addition, in milliseconds.
    pub time: u64,
    /// The time to live of the items in seconds.
    pub ttl: Option<u64>,
    /// True if items that are present are not added again.
    pub is_nx: bool,
}

impl Kind {
    pub fn is_cuckoo(&self) -> bool {
        self.name.contains("cuckoo")
    }

    /// Returns the prefix of the commands.
    pub fn prefix(&self) -> &'static str {
        if self.is_cuckoo() { "CF" } else { "BF" }
    }

    pub fn counts(&self) -> bool {
        self.remembers == Remembers::Counts
    }

    /// Returns the seconds for which items are remembered, if they are forgotten by time.
    pub fn window(&self) -> Option<u64> {
        match self.remembers {
            Remembers::Since(window) | Remembers::SinceLast(window) => Some(window),
            _ => None,
        }
    }

    /// Returns the command that creates a filter. The error rate of a cuckoo filter is one of its options.
    pub fn reserving(&self, key: &str) -> String {
        let rate = if self.is_cuckoo() { "" } else { self.error_rate };
        format!("{}.RESERVE {key} {rate} {} {}", self.prefix(), self.capacity, self.options)
    }

    /// Returns a command that adds items, and creates the filter if there is none, up to further options.
    pub fn inserting(&self, command: &str, key: &str) -> String {
        let rate = if self.is_cuckoo() { String::new() } else { format!("ERROR {}", self.error_rate) };
        format!("{command} {key} {rate} CAPACITY {} {}", self.capacity, self.options)
    }

    /// Returns the items that must be present after an addition, given the reply to each: 1 if it was added as a new
    /// one, 0 if it was present, and -1 if it was rejected. Cuckoo filters only say whether it was stored.
    pub fn promised(&self, addition: Addition, items: &[u64], replies: &[i64]) -> Vec<Added> {
        let Addition { time, ttl, is_nx } = addition;
        let is_promised = |reply: i64| match self.remembers {
            Remembers::Unknown => false,
            _ if reply == 1 => true,
            Remembers::Counts => reply == 0 && !is_nx && !self.is_cuckoo(),
            Remembers::All | Remembers::SinceLast(_) => reply == 0,
            Remembers::Since(_) => reply == 0 && ttl.is_some(),
            Remembers::New => false,
        };
        let says_absent = is_nx || !self.is_cuckoo();
        let until = ttl.or(self.window()).map_or(FOREVER, |seconds| time + 1000 * seconds);
        let added = items.iter().zip(replies).filter(|&(_, &reply)| is_promised(reply));
        added.map(|(&item, &reply)| Added { item, was_absent: reply == 1 && says_absent, until }).collect()
    }
}
