//! Families of commands. The names of a family's commands and keyspace events are the family's start and a [`Verb`].
//!
//! Only this file spells them: handlers name verbs. So the load can put a [prefix](crate::names) before all names, and
//! families can have the same verbs.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::names::{LoadTime, names};

pub(crate) struct Family {
    /// The usual start of the names, in lower case.
    start: &'static str,
    /// The usual ACL category of the commands.
    category: &'static str,
    /// True if some filters forget, so that time alone changes the replies.
    pub has_windows: bool,
    names: LoadTime<Spelled>,
    is_valkey_bloom: AtomicBool,
}

/// The project whose replies clients get, where they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    RedisBloom,
    ValkeyBloom,
}

/// The commands on Bloom filters.
pub(crate) static BLOOM: Family = Family::new("bf.", "bloom", true);

/// The commands on cuckoo filters.
pub(crate) static CUCKOO: Family = Family::new("cf.", "cuckoo", false);

/// The names of a family on this server.
struct Spelled {
    /// The ACL category of the commands.
    category: &'static CStr,
    /// The names by verb, in lower case.
    names: [&'static CStr; Verb::SPELLED.len()],
    /// The names by verb, in upper case.
    upper_names: [&'static CStr; Verb::SPELLED.len()],
}

/// Before the load, which always spells the names.
static UNSPELLED: Spelled =
    Spelled { category: c"", names: [c""; Verb::SPELLED.len()], upper_names: [c""; Verb::SPELLED.len()] };

/// Spells the names of all families, each with a prefix before its usual name.
pub(crate) fn spell(prefix: &str) {
    for family in [&BLOOM, &CUCKOO] {
        family.spell(prefix);
    }
}

/// Returns true if a command of a family may have this name. To save time, this ignores what the prefix is.
#[inline]
pub(crate) fn may_have(name: &[u8]) -> bool {
    name.get(names().prefix.len()..).is_some_and(is_usual)
}

/// Returns true if this is the usual name of a command of a family, which another module may have.
#[inline]
pub(crate) fn is_usual(name: &[u8]) -> bool {
    matches!(name, [b'b' | b'B' | b'c' | b'C', b'f' | b'F', b'.', ..])
}

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Family {
    const fn new(start: &'static str, category: &'static str, has_windows: bool) -> Family {
        let (names, is_valkey_bloom) = (LoadTime::new(&UNSPELLED), AtomicBool::new(false));
        Family { start, category, has_windows, names, is_valkey_bloom }
    }

    /// Returns the dialect of the replies to the commands.
    #[inline]
    pub(crate) fn dialect(&self) -> Dialect {
        if self.is_valkey_bloom.load(Ordering::Relaxed) { Dialect::ValkeyBloom } else { Dialect::RedisBloom }
    }

    pub(crate) fn set_dialect(&self, dialect: Dialect) {
        self.is_valkey_bloom.store(dialect == Dialect::ValkeyBloom, Ordering::Relaxed);
    }

    fn spell(&self, prefix: &str) {
        let name = |verb: &str| format!("{prefix}{}{verb}", self.start);
        self.names.set(Spelled {
            category: leak(format!("{prefix}{}", self.category).to_ascii_lowercase()),
            names: Verb::SPELLED.map(|verb| leak(name(verb).to_ascii_lowercase())),
            upper_names: Verb::SPELLED.map(|verb| leak(name(verb).to_ascii_uppercase())),
        });
    }

    /// Returns the name of a command of another module, which has the usual names, in upper case.
    pub(crate) fn usual_name(&self, verb: Verb) -> CString {
        let name = format!("{}{}", self.start, Verb::SPELLED[verb as usize]);
        CString::new(name.to_ascii_uppercase()).unwrap_or_default()
    }

    pub(crate) fn category(&self) -> &'static CStr {
        self.names.get().category
    }

    /// Returns the name of a command, and of the event that it raises.
    #[inline]
    pub(crate) fn name(&self, verb: Verb) -> &'static CStr {
        self.names.get().names[verb as usize]
    }

    /// Returns the name with which a command is replicated.
    pub(crate) fn replicated_name(&self, verb: Verb) -> &'static CStr {
        self.names.get().upper_names[verb as usize]
    }
}

/// Returns a name that lives as long as the module, like the value that holds it.
fn leak(name: String) -> &'static CStr {
    Box::leak(CString::new(name).unwrap_or_default().into_boxed_c_str())
}

/// Declares the verbs, and spells them.
macro_rules! verbs {
    ($($(#[$attribute:meta])* $verb:ident)*) => {
        /// What a command does, or what happened to a key. In lower case, it is the second part of a name.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Verb {
            $($(#[$attribute])* $verb,)*
        }

        impl Verb {
            const SPELLED: [&str; [$($(#[$attribute])* Verb::$verb),*].len()] =
                [$($(#[$attribute])* stringify!($verb)),*];
        }
    };
}

verbs! {
    Reserve Add Madd Insert Addpacked Exists Mexists Existspacked Del Mdel Delpacked Count Mcount Merge Fold Card Info
    Scandump Changes Loadchunk Load Debug
    // Only cuckoo filters.
    Addnx Insertnx Compact Convert
    // Only beside another module.
    Import
    // An event: the filter forgot items.
    Expire
    #[cfg(feature = "fault-injection")] Panic
    #[cfg(feature = "fault-injection")] Starve
    #[cfg(feature = "fault-injection")] Clock
}
