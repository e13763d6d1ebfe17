//! How replicas and the append-only file are told what commands on items did.

use std::ffi::CStr;

use crate::server::{Arg, Args, Context};

/// The commands that do to one item, and to many, what a command did: replicas are sent these.
pub(super) struct ReplicatedAs<'a> {
    pub one: &'static CStr,
    pub many: &'static CStr,
    /// What stands between the key and the items.
    pub options: &'a [Arg<'a>],
}

/// The items of a command that changed the filter.
pub(super) enum Changed<'a> {
    All,
    /// Those whose flag is set.
    Flagged(&'a [bool]),
}

impl Changed<'_> {
    /// Returns true if one of the first `count` items did.
    pub(super) fn any(&self, count: usize) -> bool {
        match self {
            Changed::All => count > 0,
            Changed::Flagged(changed) => changed[..count].contains(&true),
        }
    }
}

/// Sends the items that changed the filter, if any did. What changed nothing is not replicated: a crawler's stream is
/// mostly duplicates. Returns true if there was one.
pub(super) fn replicate_items(ctx: &Context, names: ReplicatedAs, args: Args, items: Args, changed: Changed) -> bool {
    let (key, ReplicatedAs { one, many, options }) = (args.at(1), names);
    let has_changed = |index: usize| match changed {
        Changed::All => true,
        Changed::Flagged(changed) => changed[index],
    };
    let count = (0..items.len()).filter(|&index| has_changed(index)).count();
    if count == 0 {
        return false;
    }
    let is_all = count == items.len() && options.is_empty();
    if is_all && items.len() + 2 == args.len() {
        ctx.replicate_verbatim();
        return true;
    }
    if is_all {
        ctx.replicate(many, key, items.as_slice());
        return true;
    }
    let those = || items.iter().enumerate().filter(|(index, _)| has_changed(*index)).map(|(_, item)| item);
    let mut chosen = Vec::new();
    if chosen.try_reserve_exact(options.len() + count).is_ok() {
        chosen.extend(options.iter().copied().chain(those()));
        ctx.replicate(many, key, &chosen);
        return true;
    }
    let mut words = [key; MOST_OPTIONS + 1];
    words[..options.len()].copy_from_slice(options);
    for item in those() {
        words[options.len()] = item;
        ctx.replicate(one, key, &words[..=options.len()]);
    }
    true
}

/// The most words that stand between a key and its items: `AT time TTL seconds ITEMS`.
const MOST_OPTIONS: usize = 5;
