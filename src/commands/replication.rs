//! Replicates the changes that commands on items made.

use super::options::MAX_REPLICATED;
use crate::family::Verb;
use crate::server::{Arg, Args, Context};

/// The commands that repeat a change on replicas, for one item and for many.
pub(super) struct ReplicatedAs<'a> {
    pub one: Verb,
    pub many: Verb,
    /// The arguments between the key and the items.
    pub options: &'a [Arg<'a>],
}

/// The items of a command that changed the filter.
pub(super) enum Changed<'a> {
    All,
    /// The items whose flag is set.
    Flagged(&'a [bool]),
}

impl Changed<'_> {
    /// Returns true if one of the first `count` items changed the filter.
    pub(super) fn any(&self, count: usize) -> bool {
        match self {
            Changed::All => count > 0,
            Changed::Flagged(changed) => changed[..count].contains(&true),
        }
    }
}

/// Replicates the items that changed the filter. Returns true if there was one. Other items are not replicated: most of
/// a crawler's items are duplicates.
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
    let changing = || items.iter().enumerate().filter(|(index, _)| has_changed(*index)).map(|(_, item)| item);
    let mut chosen = Vec::new();
    if chosen.try_reserve_exact(options.len() + count).is_ok() {
        chosen.extend(options.iter().copied().chain(changing()));
        ctx.replicate(many, key, &chosen);
        return true;
    }
    // Without memory for all items, replicate one command per item.
    let mut arguments = [key; MAX_REPLICATED + 1];
    arguments[..options.len()].copy_from_slice(options);
    for item in changing() {
        arguments[options.len()] = item;
        ctx.replicate(one, key, &arguments[..=options.len()]);
    }
    true
}
