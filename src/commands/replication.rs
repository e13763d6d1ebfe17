//! How replicas and the append-only file are told what commands on items did.

use std::ffi::CStr;

use crate::server::{Args, Context};

/// The names of the commands that do to one item, and to many, what a command did: replicas are sent these.
pub(super) struct ReplicatedAs {
    pub one: &'static CStr,
    pub many: &'static CStr,
}

/// The items of a command that changed the filter.
pub(super) enum Changed<'a> {
    All,
    /// Those whose flag is set.
    Flagged(&'a [bool]),
}

/// Sends the items that changed the filter, if any did. What changed nothing is not replicated: a crawler's stream is
/// mostly duplicates. Returns true if there was one.
pub(super) fn replicate_items(ctx: &Context, names: ReplicatedAs, args: Args, items: Args, changed: Changed) -> bool {
    let key = args.at(1);
    let some = match changed {
        Changed::All => None,
        Changed::Flagged(changed) => Some(changed).filter(|changed| changed.contains(&false)),
    };
    let Some(changed) = some else {
        let is_whole_command = items.len() + 2 == args.len();
        match items.len() {
            0 => return false,
            _ if is_whole_command => ctx.replicate_verbatim(),
            _ => ctx.replicate(names.many, key, items.as_slice()),
        }
        return true;
    };
    let count = changed.iter().filter(|changed| **changed).count();
    if count == 0 {
        return false;
    }
    let those = || items.iter().zip(changed).filter(|(_, changed)| **changed).map(|(item, _)| item);
    let mut chosen = Vec::new();
    if chosen.try_reserve_exact(count).is_ok() {
        chosen.extend(those());
        ctx.replicate(names.many, key, &chosen);
    } else {
        those().for_each(|item| ctx.replicate(names.one, key, &[item]));
    }
    true
}
