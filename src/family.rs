//! Families of commands. The names of a family's commands and keyspace events are its prefix and a [`Verb`].
//!
//! Only this file spells them: handlers name verbs. So a family can get another prefix, and a second family can have
//! the same verbs.

use std::ffi::CStr;

/// A family of commands.
pub(crate) struct Family {
    /// What all names start with, in lower case.
    pub prefix: &'static str,
    /// The ACL category of the commands.
    pub category: &'static CStr,
    /// The names by verb, in lower case.
    names: [&'static CStr; Verb::SPELLED.len()],
    /// The names by verb, in upper case.
    upper_names: [&'static CStr; Verb::SPELLED.len()],
}

/// Returns a family, given its prefix and its category.
macro_rules! family {
    ($prefix:literal, $category:literal) => {
        Family {
            prefix: $prefix,
            category: $category,
            names: texts(&const { spelled($prefix, false) }),
            upper_names: texts(&const { spelled($prefix, true) }),
        }
    };
}

/// The commands on Bloom filters.
pub(crate) static BLOOM: Family = family!("bf.", c"bloom");

/// The commands on cuckoo filters.
pub(crate) static CUCKOO: Family = family!("cf.", c"cuckoo");

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Family {
    /// Returns the name of a command, and of the event that it raises.
    #[inline]
    pub(crate) const fn name(&self, verb: Verb) -> &'static CStr {
        self.names[verb as usize]
    }

    /// Returns the name with which a command is replicated.
    pub(crate) fn replicated_name(&self, verb: Verb) -> &'static CStr {
        self.upper_names[verb as usize]
    }
}

/// Declares the verbs, and spells them.
macro_rules! verbs {
    ($($(#[$attribute:meta])* $verb:ident)*) => {
        /// What a command does, or what happened to a key. In lower case, it is the second part of a name.
        #[derive(Clone, Copy)]
        pub(crate) enum Verb {
            $($(#[$attribute])* $verb,)*
        }

        impl Verb {
            const SPELLED: &[&str] = &[$($(#[$attribute])* stringify!($verb)),*];
        }
    };
}

verbs! {
    Reserve Add Madd Insert Addpacked Exists Mexists Existspacked Del Mdel Delpacked Count Mcount Merge Card Info
    Scandump Loadchunk Load Debug
    // Only cuckoo filters.
    Addnx Insertnx Compact Convert
    // An event: the filter forgot items.
    Expire
    #[cfg(feature = "fault-injection")] Panic
    #[cfg(feature = "fault-injection")] Starve
    #[cfg(feature = "fault-injection")] Clock
}

/// Room for the longest name and a NUL.
const ROOM: usize = 32;

type Spelled = [[u8; ROOM]; Verb::SPELLED.len()];

/// Returns the names of all verbs with a prefix, each followed by NULs.
const fn spelled(prefix: &str, in_upper_case: bool) -> Spelled {
    let mut spelled = [[0; ROOM]; Verb::SPELLED.len()];
    let mut index = 0;
    while index < spelled.len() {
        let (name, verb) = (&mut spelled[index], Verb::SPELLED[index]);
        let (start, rest) = name.split_at_mut(prefix.len());
        start.copy_from_slice(prefix.as_bytes());
        rest.split_at_mut(verb.len()).0.copy_from_slice(verb.as_bytes());
        if in_upper_case {
            name.make_ascii_uppercase()
        } else {
            name.make_ascii_lowercase()
        }
        index += 1;
    }
    spelled
}

/// Returns names as the server takes them.
const fn texts(spelled: &'static Spelled) -> [&'static CStr; Verb::SPELLED.len()] {
    let mut texts = [c""; Verb::SPELLED.len()];
    let mut index = 0;
    while index < texts.len() {
        texts[index] = match CStr::from_bytes_until_nul(&spelled[index]) {
            Ok(text) => text,
            Err(_) => panic!("a name is too long"),
        };
        index += 1;
    }
    texts
}
