//! BF.ADD, BF.MADD, BF.INSERT.
//!
//! To add an item that is there changes nothing, but in a counting filter, where it adds an occurrence.

use super::super::args::{Arg, Args};
use super::super::config::LayoutName;
use super::super::context::Context;
use super::super::error::Error;
use super::super::key::WriteKey;
use super::super::lookahead;
use super::super::memory;
use super::super::stats;
use super::items::{self, Changed, Marks, Names};
use super::redisbloom;
use super::reserve::{Expansion, Wanted, create, once, positive, set_once};
use oxbloom_filter::batch::{BATCH, Prepared};
use oxbloom_filter::hash::Hash;
use oxbloom_filter::{ErrorRate, Filter};

/// `BF.ADD key item`
pub fn add(ctx: &Context, args: Args) -> Result<(), Error> {
    let mut key = WriteKey::open(ctx, args.at(1))?;
    let (filter, created) = filter_or_create(ctx, args.at(1), &mut key, None)?;
    lookahead::remember(ctx, args.at(1), filter);
    let hash = [filter.hash(args.at(2).bytes())];
    let mut new = [false];
    let (handled, failure) = insert_all(ctx, filter, &hash, &mut new, Present::Added);
    let [added] = new;
    stats::added(filter, added.into(), u64::from(handled == 1 && !added));
    let changed = added || handled == 1 && filter.counting().is_some();
    drop(key);
    if changed {
        ctx.replicate_verbatim();
    }
    announce(ctx, args.at(1), created, changed);
    if let Some(error) = failure {
        return Err(error);
    }
    ctx.reply_bool(added);
    Ok(())
}

/// `BF.MADD key item [item …]`
pub fn madd(ctx: &Context, args: Args) -> Result<(), Error> {
    add_all(ctx, args, args.from(2), Present::Added, Creation::Default)
}

/// `BF.INSERT key [CAPACITY n] [ERROR r] [EXPANSION n] [NOCREATE] [NONSCALING] [COUNTING] [SEED n] [LAYOUT native | classic]
/// [NX] ITEMS item [item …]`
pub fn insert(ctx: &Context, args: Args) -> Result<(), Error> {
    let Insertion { wanted, create, present, items } =
        if ctx.must_obey() { redisbloom::insert(args) } else { Insertion::parse(args) }?;
    add_all(ctx, args, items, present, if create { Creation::As(wanted) } else { Creation::Never(wanted) })
}

/// What BF.INSERT asks for.
pub struct Insertion<'a> {
    pub wanted: Wanted,
    pub create: bool,
    pub present: Present,
    pub items: Args<'a>,
}

/// How a command treats a key that does not exist.
enum Creation {
    /// Creates a filter with default settings.
    Default,
    /// Creates a filter with these options.
    As(Wanted),
    /// Replies with an error, whatever its options.
    Never(Wanted),
}

/// What happens to items that are there already, in a counting filter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Present {
    /// They are there once more.
    Added,
    /// Nothing.
    LeftAlone,
}

impl<'a> Insertion<'a> {
    fn parse(args: Args<'a>) -> Result<Insertion<'a>, Error> {
        let (mut capacity, mut error_rate, mut expansion) = (None, None, None);
        let (mut seed, mut layout) = (None, None);
        let (mut nocreate, mut nonscaling, mut counting, mut absent_only) = (false, false, false, false);
        let mut next = 2;
        // The items start behind the word ITEMS; without it there are none.
        let items = loop {
            if next >= args.len() {
                return Err(Error::WrongArity);
            }
            let option = args.at(next);
            let value = || if next + 1 < args.len() { Ok(args.at(next + 1)) } else { Err(Error::WrongArity) };
            let mut words = 2;
            if option.is("ITEMS") {
                break args.from(next + 1);
            } else if option.is("CAPACITY") {
                set_once(&mut capacity, value()?.integer().ok_or(Error::InsertBadCapacity)?)?;
            } else if option.is("ERROR") {
                set_once(&mut error_rate, value()?.float().ok_or(Error::InsertBadErrorRate)?)?;
            } else if option.is("EXPANSION") {
                set_once(&mut expansion, value()?.integer().ok_or(Error::InsertBadExpansion)?)?;
            } else if option.is("SEED") {
                set_once(&mut seed, value()?.unsigned().ok_or(Error::InsertBadSeed)?)?;
            } else if option.is("LAYOUT") {
                set_once(&mut layout, LayoutName::of(value()?).ok_or(Error::InsertBadLayout)?)?;
            } else {
                words = 1;
                if option.is("NOCREATE") {
                    once(&mut nocreate)?;
                } else if option.is("NONSCALING") {
                    once(&mut nonscaling)?;
                } else if option.is("COUNTING") {
                    once(&mut counting)?;
                } else if option.is("NX") {
                    once(&mut absent_only)?;
                } else {
                    return Err(Error::UnknownArgument);
                }
            }
            next += words;
        };
        if items.is_empty() {
            return Err(Error::WrongArity);
        }
        let capacity = capacity.map(|number| positive(number).ok_or(Error::InsertRange)).transpose()?;
        let error_rate = error_rate.map(|rate| ErrorRate::new(rate).ok_or(Error::InsertRange)).transpose()?;
        let expansion = expansion.map(|factor| Expansion::of(factor).ok_or(Error::InsertRange)).transpose()?;
        let wanted = Wanted { capacity, error_rate, expansion, nonscaling, counting, seed, layout };
        let present = if absent_only { Present::LeftAlone } else { Present::Added };
        Ok(Insertion { wanted, create: !nocreate, present, items })
    }
}

/// The filter of a key, and whether it was created just now.
fn filter_or_create<'k>(
    ctx: &Context,
    name: Arg,
    key: &'k mut WriteKey,
    wanted: Option<&Wanted>,
) -> Result<(&'k mut Filter, bool), Error> {
    let created = key.filter().is_none();
    if created {
        create_as(ctx, name, key, wanted)?;
    }
    Ok((key.filter().ok_or(Error::Internal)?, created))
}

/// Creates the filter of a key, by default if nothing is wanted.
///
/// Not inlined: it happens once, and would have BF.ADD save more registers each time.
#[cold]
#[inline(never)]
fn create_as(ctx: &Context, name: Arg, key: &mut WriteKey, wanted: Option<&Wanted>) -> Result<(), Error> {
    let params = wanted.map_or_else(|| Wanted::unspecified(ctx).params(), Wanted::params)?;
    create(ctx, name, key, params)
}

/// Tells watchers and listeners what happened. They may do anything, to the key as well: this comes last.
fn announce(ctx: &Context, name: Arg, created: bool, added: bool) {
    if created {
        ctx.notify_changed(name, c"bf.reserve");
    }
    if added {
        ctx.notify_changed(name, c"bf.add");
    }
}

/// Adds items in order, as far as they fit, to the filter of the key, which is created if `creation` says so. The reply has
/// an element for each, and ends with an error where one did not fit.
fn add_all(ctx: &Context, args: Args, items: Args, present: Present, creation: Creation) -> Result<(), Error> {
    let name = args.at(1);
    // What is told and sent is only known at the end, so that an array is never begun that an error would cut short.
    let mut marks = Marks::new(ctx, items)?;
    let new = &mut marks.as_mut_slice()[..items.len()];
    let mut key = WriteKey::open(ctx, name)?;
    if let (Some(filter), Creation::As(wanted) | Creation::Never(wanted)) = (key.filter(), &creation)
        && let Err(error) = wanted.check_existing(filter)
        && !ctx.must_obey()
    {
        return Err(error);
    }
    let (filter, created) = match &creation {
        Creation::Default => filter_or_create(ctx, name, &mut key, None)?,
        Creation::As(wanted) => filter_or_create(ctx, name, &mut key, Some(wanted))?,
        Creation::Never(_) => (key.filter().ok_or(Error::NotFound)?, false),
    };
    let (handled, failure) = insert_in_batches(ctx, filter, items, new, present);
    let new = &new[..handled];
    let added = new.iter().filter(|new| **new).count();
    stats::added(filter, added as u64, (handled - added) as u64);
    let counts = present == Present::Added && filter.counting().is_some();
    drop(key);
    let names = Names { one: c"BF.ADD", many: c"BF.MADD" };
    let changed = if counts { Changed::All } else { Changed::Those(new) };
    let changed = items::replicate(ctx, names, args, items.up_to(handled), changed);
    announce(ctx, name, created, changed);
    ctx.reply_array(handled + usize::from(failure.is_some()));
    ctx.reply_bools(new);
    if let Some(error) = failure {
        ctx.refuse(args, error);
    }
    Ok(())
}

/// Inserts items until one does not fit; `new[i]` tells whether the item was new. How many were handled, and what was wrong
/// with the next.
fn insert_in_batches(
    ctx: &Context,
    filter: &mut Filter,
    items: Args,
    new: &mut [bool],
    present: Present,
) -> (usize, Option<Error>) {
    let mut handled = 0;
    for items in items.chunks(BATCH) {
        let batch = Prepared::new(filter, items.iter().map(Arg::bytes));
        let new = &mut new[handled..][..items.len()];
        let (in_batch, failure) = insert_all(ctx, filter, batch.hashes(), new, present);
        handled += in_batch;
        if failure.is_some() {
            return (handled, failure);
        }
    }
    (handled, None)
}

/// Inserts the items of `hashes`, growing as needed, until one does not fit; returns as [`insert_in_batches`].
fn insert_all(
    ctx: &Context,
    filter: &mut Filter,
    hashes: &[Hash],
    new: &mut [bool],
    present: Present,
) -> (usize, Option<Error>) {
    let (total, mut handled) = (hashes.len(), 0);
    loop {
        let (hashes, new) = (&hashes[handled..], &mut new[handled..]);
        handled += match present {
            Present::Added => filter.insert_all(hashes, new),
            Present::LeftAlone => filter.insert_absent(hashes, new),
        };
        if handled == total {
            return (handled, None);
        }
        if let Err(error) = memory::grow(ctx, filter) {
            return (handled, Some(error));
        }
    }
}
