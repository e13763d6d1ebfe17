//! The items of a command: arguments, or [packed](super::bloom::packing) into one; a flag for each; and the commands
//! that repeat their change on replicas.

use std::ffi::CStr;

use super::declaration::Argument;
use crate::admission;
use crate::family::Verb;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, OwnedString};
use oxbloom_filter::internals::{BATCH, try_vec};

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
        let &Replay { key, options, many, .. } = replay;
        let count = changed.count();
        if count == self.len() && options.is_empty() {
            if self.len() + 2 == self.command.len() {
                ctx.replicate_verbatim();
            } else {
                ctx.replicate(many, key, self.items.as_slice());
            }
            return true;
        }
        // Only INSERT has options.
        let token = (!options.is_empty()).then(|| ctx.string(ITEMS_TOKEN.to_bytes()));
        let Ok(mut arguments) = try_vec(options.len() + 1 + count) else { return false };
        let changing = self.items.iter().enumerate().filter(|&(index, _)| changed.contains(index));
        arguments.extend_from_slice(options);
        arguments.extend(token.as_ref().map(OwnedString::as_arg));
        arguments.extend(changing.map(|(_, item)| item));
        ctx.replicate(many, key, &arguments);
        true
    }
}

/// Replicates the items that changed the filter. Returns true if there was one. Other items are not replicated: most of
/// a crawler's items are duplicates.
pub(super) fn replicate<'a>(ctx: &Context, replay: &Replay, items: impl Items<'a>, changed: &Changed) -> bool {
    if changed.count() == 0 {
        return false;
    }
    if !items.replicate(ctx, replay, changed) {
        // Without memory for all items, replicate one command per item.
        replay.send(ctx, items, changed, 1);
    }
    true
}

/// How replicas repeat a change.
pub(super) struct Replay<'a> {
    pub key: Arg<'a>,
    /// The arguments between the key and the items.
    pub options: &'a [Arg<'a>],
    /// The command for items that are arguments.
    pub many: Verb,
    /// The command for packed items; `None` if each becomes an argument.
    pub packed: Option<Verb>,
}

impl<'a> Replay<'a> {
    /// Returns how replicas add items to a Bloom filter, given whether its layout is our own. If it is another
    /// module's, a replica may have that module, which knows no packed items.
    pub(super) fn additions(key: Arg<'a>, is_own: bool, options: &'a [Arg<'a>]) -> Replay<'a> {
        let many = if is_own && !options.is_empty() { Verb::Insert } else { Verb::Madd };
        Replay { key, options, many, packed: is_own.then_some(Verb::Addpacked) }
    }

    /// Returns how replicas add copies of items to a cuckoo filter. There is an option.
    pub(super) fn copies(key: Arg<'a>, options: &'a [Arg<'a>]) -> Replay<'a> {
        debug_assert!(!options.is_empty(), "CF.INSERT with a token");
        Replay { key, options, many: Verb::Insert, packed: None }
    }

    pub(super) fn removals(key: Arg<'a>) -> Replay<'a> {
        Replay { key, options: &[], many: Verb::Mdel, packed: Some(Verb::Delpacked) }
    }

    /// Sends commands in which each item that changed is an argument, with this many of them in each.
    pub(super) fn send<'b>(&self, ctx: &Context, items: impl Items<'b>, changed: &Changed, at_a_time: usize) {
        // Only INSERT has options.
        let token = (!self.options.is_empty()).then(|| ctx.string(ITEMS_TOKEN.to_bytes()));
        let changing = items.iter().enumerate().filter(|&(index, _)| changed.contains(index));
        let mut changing = changing.map(|(_, item)| ctx.string(item)).peekable();
        while changing.peek().is_some() {
            let items: Vec<_> = changing.by_ref().take(at_a_time).collect();
            let options = self.options.iter().copied().chain(token.as_ref().map(OwnedString::as_arg));
            let arguments: Vec<_> = options.chain(items.iter().map(OwnedString::as_arg)).collect();
            ctx.replicate(self.many, self.key, &arguments);
        }
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

/// One flag per item, for the reply and for replication. Results are buffered because the length of the reply is only
/// known after the last insert. Up to [`BATCH`] items need no allocation.
pub(super) struct ItemFlags {
    /// The flags of at most [`BATCH`] items.
    inline: [bool; BATCH],
    /// The flags of more items.
    allocated: Vec<bool>,
}

impl ItemFlags {
    /// Returns a flag for each of `count` items, all false.
    pub(super) fn new(ctx: &Context, count: usize) -> Result<ItemFlags, Error> {
        let mut allocated = Vec::new();
        if count > BATCH {
            allocated = admission::try_vec(ctx, count)?;
            allocated.resize(count, false);
        }
        Ok(ItemFlags { inline: [false; BATCH], allocated })
    }

    /// Returns the flags. There may be more of them than items.
    pub(super) fn as_mut_slice(&mut self) -> &mut [bool] {
        if self.allocated.is_empty() { &mut self.inline } else { &mut self.allocated }
    }
}
