//! What the commands on many items have in common: what became of each, and how replicas are told.

use super::super::args::Args;
use super::super::context::Context;
use super::super::error::Error;
use super::super::memory;
use oxbloom_filter::batch::BATCH;

/// A yes or no for each item of a command, for the reply and the replicas: what they are is only known at the end, so that an
/// array is never begun that an error would cut short. Few of them need no allocation.
pub struct Marks {
    few: [bool; BATCH],
    many: Vec<bool>,
}

impl Marks {
    /// As many as there are `items`, all no.
    pub fn new(ctx: &Context, items: Args) -> Result<Marks, Error> {
        let mut many = Vec::new();
        if items.len() > BATCH {
            many = memory::room(ctx, items.len())?;
            many.resize(items.len(), false);
        }
        Ok(Marks { few: [false; BATCH], many })
    }

    /// At least as many as there are items.
    pub fn as_mut_slice(&mut self) -> &mut [bool] {
        if self.many.is_empty() { &mut self.few } else { &mut self.many }
    }
}

/// The name of a command for one item, and of its like for many.
pub struct Names {
    pub one: &'static std::ffi::CStr,
    pub many: &'static std::ffi::CStr,
}

/// The items of a command that changed the filter.
pub enum Changed<'a> {
    All,
    Those(&'a [bool]),
}

/// Sends the items that changed the filter, if any did: what changed nothing is not replicated, for a crawler's stream is
/// mostly duplicates. Whether there was one.
pub fn replicate(ctx: &Context, names: Names, args: Args, items: Args, changed: Changed) -> bool {
    let key = args.at(1);
    let some = match changed {
        Changed::All => None,
        Changed::Those(changed) => Some(changed).filter(|changed| changed.contains(&false)),
    };
    let Some(changed) = some else {
        let is_whole_command = items.len() + 2 == args.len();
        match items.len() {
            0 => return false,
            _ if is_whole_command => ctx.replicate_verbatim(),
            _ => ctx.replicate(names.many, key, items.as_raw()),
        }
        return true;
    };
    let count = changed.iter().filter(|changed| **changed).count();
    if count == 0 {
        return false;
    }
    let those = || items.iter().zip(changed).filter(|(_, changed)| **changed).map(|(item, _)| item.as_raw());
    let mut chosen = Vec::new();
    if chosen.try_reserve_exact(count).is_ok() {
        chosen.extend(those());
        ctx.replicate(names.many, key, &chosen);
    } else {
        those().for_each(|item| ctx.replicate(names.one, key, &[item]));
    }
    true
}
