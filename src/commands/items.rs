//! The items of a command: arguments, or [packed](super::bloom::packing) into one.

use std::ffi::CStr;

use super::declaration::Argument;
use super::replication::{Changed, Replay};
use crate::server::{Arg, Args, Context, OwnedString};
use oxbloom_filter::internals::try_vec;

/// The token before items that follow options.
const ITEMS_TOKEN: &CStr = c"ITEMS";

/// The items of BF.INSERT and CF.INSERT, after their options.
pub(super) const ITEMS: Argument = Argument::items(Some(ITEMS_TOKEN));

/// The items of a command, in order.
pub(super) trait Items<'a>: Copy {
    fn len(self) -> usize;

    fn iter(self) -> impl Iterator<Item = &'a [u8]>;

    /// Sends commands that repeat the change of these items to replicas and the append-only file. At least one item
    /// changed. Returns false, and sends nothing, if there is no memory for a command.
    fn replicate(self, ctx: &Context, replay: &Replay, changed: &Changed) -> bool;
}

/// Items that are the last arguments of a command.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    /// All arguments of the command.
    command: Args<'a>,
    items: Args<'a>,
}

impl<'a> Arguments<'a> {
    pub(super) fn new(command: Args<'a>, items: Args<'a>) -> Arguments<'a> {
        Arguments { command, items }
    }
}

impl<'a> Items<'a> for Arguments<'a> {
    fn len(self) -> usize {
        self.items.len()
    }

    #[inline]
    fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self.items.iter().map(Arg::bytes)
    }

    fn replicate(self, ctx: &Context, replay: &Replay, changed: &Changed) -> bool {
        let &Replay { key, verbs, options } = replay;
        let count = changed.count();
        if count == self.len() && options.is_empty() {
            if self.len() + 2 == self.command.len() {
                ctx.replicate_verbatim();
            } else {
                ctx.replicate(verbs.many, key, self.items.as_slice());
            }
            return true;
        }
        // Only BF.INSERT has options.
        let token = (!options.is_empty()).then(|| ctx.string(ITEMS_TOKEN.to_bytes()));
        let Ok(mut arguments) = try_vec(options.len() + 1 + count) else { return false };
        let changing = self.items.iter().enumerate().filter(|&(index, _)| changed.contains(index));
        arguments.extend_from_slice(options);
        arguments.extend(token.as_ref().map(OwnedString::as_arg));
        arguments.extend(changing.map(|(_, item)| item));
        ctx.replicate(verbs.many, key, &arguments);
        true
    }
}

/// Replicates the items that changed the filter. Returns true if there was one. Other items are not replicated: most of
/// a crawler's items are duplicates.
pub(super) fn replicate<'a>(ctx: &Context, replay: &Replay, items: impl Items<'a>, changed: &Changed) -> bool {
    if changed.count() == 0 {
        return false;
    }
    if items.replicate(ctx, replay, changed) {
        return true;
    }
    // Without memory for all items, replicate one command per item.
    let &Replay { key, verbs, options } = replay;
    let token = (!options.is_empty()).then(|| ctx.string(ITEMS_TOKEN.to_bytes()));
    for (_, item) in items.iter().enumerate().filter(|&(index, _)| changed.contains(index)) {
        let item = ctx.string(item);
        let options = options.iter().copied().chain(token.as_ref().map(OwnedString::as_arg));
        let arguments: Vec<_> = options.chain([item.as_arg()]).collect();
        ctx.replicate(verbs.one, key, &arguments);
    }
    true
}
