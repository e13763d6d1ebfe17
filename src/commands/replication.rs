//! The change that a command on items made, and the commands that repeat it on replicas.

use crate::family::Verb;
use crate::server::Arg;

/// The commands that repeat a change on replicas.
#[derive(Clone, Copy)]
pub(super) struct Verbs {
    /// For one item.
    pub one: Verb,
    /// For many items, each an argument.
    pub many: Verb,
    /// For packed items; `None` if each becomes an argument.
    pub packed: Option<Verb>,
}

/// Additions.
const ADDITIONS: Verbs = Verbs { one: Verb::Add, many: Verb::Madd, packed: Some(Verb::Addpacked) };
/// Additions to a filter with another module's layout. A replica may have that module, which knows no packed items.
const ADDITIONS_FOR_ALL: Verbs = Verbs { packed: None, ..ADDITIONS };
/// Additions with options, such as the time.
const ADDITIONS_WITH_OPTIONS: Verbs = Verbs { one: Verb::Insert, many: Verb::Insert, packed: Some(Verb::Addpacked) };
/// Additions to a cuckoo filter. Its items are never packed.
const COPIES: Verbs = Verbs { one: Verb::Insert, many: Verb::Insert, packed: None };
const REMOVALS: Verbs = Verbs { one: Verb::Del, many: Verb::Mdel, packed: Some(Verb::Delpacked) };

/// How replicas repeat a change.
pub(super) struct Replay<'a> {
    pub key: Arg<'a>,
    pub verbs: Verbs,
    /// The arguments between the key and the items.
    pub options: &'a [Arg<'a>],
}

impl<'a> Replay<'a> {
    /// Returns how replicas add items to a Bloom filter, given whether its layout is our own.
    pub(super) fn additions(key: Arg<'a>, is_own: bool, options: &'a [Arg<'a>]) -> Replay<'a> {
        let verbs = match options {
            _ if !is_own => ADDITIONS_FOR_ALL,
            [] => ADDITIONS,
            _ => ADDITIONS_WITH_OPTIONS,
        };
        Replay { key, verbs, options }
    }

    /// Returns how replicas add copies of items to a cuckoo filter. There is an option.
    pub(super) fn copies(key: Arg<'a>, options: &'a [Arg<'a>]) -> Replay<'a> {
        debug_assert!(!options.is_empty(), "CF.INSERT with a token");
        Replay { key, verbs: COPIES, options }
    }

    pub(super) fn removals(key: Arg<'a>) -> Replay<'a> {
        Replay { key, verbs: REMOVALS, options: &[] }
    }
}

/// The items of a command that changed the filter.
pub(super) enum Changed<'a> {
    /// The first items, this many.
    First(usize),
    /// The items whose flag is set. There are no more flags than items.
    Flagged(&'a [bool]),
}

impl Changed<'_> {
    pub(super) fn count(&self) -> usize {
        match self {
            Changed::First(count) => *count,
            Changed::Flagged(flags) => flags.iter().filter(|changed| **changed).count(),
        }
    }

    pub(super) fn contains(&self, index: usize) -> bool {
        match self {
            Changed::First(count) => index < *count,
            Changed::Flagged(flags) => flags.get(index).is_some_and(|changed| *changed),
        }
    }
}
