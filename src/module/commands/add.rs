//! BF.ADD, BF.MADD, BF.INSERT.
//!
//! What changed nothing is not replicated, for a crawler's stream is mostly duplicates: of a thousand items with three new
//! ones, three travel.

use redis_module::raw::RedisModuleString;

use super::super::args::{Arg, Args};
use super::super::config;
use super::super::context::Context;
use super::super::error::Error;
use super::super::key::WriteKey;
use super::super::memory;
use super::BATCH;
use super::query::hash_all;
use super::reserve::{create, expansion, once, positive, random_seed, set_once};
use crate::filter::hash::Hash;
use crate::filter::{self, ErrorRate, Filter, Growth, Params};

/// `BF.ADD key item`
pub fn add(ctx: &Context, args: Args) -> Result<(), Error> {
    let mut key = WriteKey::open(ctx, args.at(1));
    let filter = filter_or_create(ctx, args.at(1), &mut key, || default_params(ctx))?;
    let hash = [filter.hash(args.at(2).bytes())];
    let mut new = [false];
    while filter.insert_all(&hash, &mut new) == 0 {
        grow(ctx, filter)?;
    }
    ctx.reply_bool(new[0]);
    if new[0] {
        ctx.replicate(c"BF.ADD", args.at(1), args.from(2).as_raw());
        ctx.notify_changed(args.at(1), c"bf.add");
    }
    Ok(())
}

/// `BF.MADD key item [item …]`
pub fn madd(ctx: &Context, args: Args) -> Result<(), Error> {
    let mut key = WriteKey::open(ctx, args.at(1));
    let filter = filter_or_create(ctx, args.at(1), &mut key, || default_params(ctx))?;
    add_all(ctx, args.at(1), filter, args.from(2));
    Ok(())
}

/// `BF.INSERT key [CAPACITY n] [ERROR r] [EXPANSION n] [NOCREATE] [NONSCALING] [SEED n] ITEMS item [item …]`
pub fn insert(ctx: &Context, args: Args) -> Result<(), Error> {
    let Insertion { params, create, items } = Insertion::parse(ctx, args)?;
    let mut key = WriteKey::open(ctx, args.at(1));
    if !create && key.filter()?.is_none() {
        return Err(Error::NotFound);
    }
    let filter = filter_or_create(ctx, args.at(1), &mut key, || params)?;
    add_all(ctx, args.at(1), filter, items);
    Ok(())
}

/// What BF.INSERT asks for.
struct Insertion<'a> {
    params: Params,
    create: bool,
    items: Args<'a>,
}

impl<'a> Insertion<'a> {
    fn parse(ctx: &Context, args: Args<'a>) -> Result<Insertion<'a>, Error> {
        let (mut capacity, mut error_rate, mut growth, mut seed) = (None, None, None, None);
        let (mut nocreate, mut nonscaling) = (false, false);
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
                set_once(&mut growth, value()?.integer().ok_or(Error::InsertBadExpansion)?)?;
            } else if option.is("SEED") {
                set_once(&mut seed, value()?.unsigned().ok_or(Error::InsertBadSeed)?)?;
            } else {
                words = 1;
                if option.is("NOCREATE") {
                    once(&mut nocreate)?;
                } else if option.is("NONSCALING") {
                    once(&mut nonscaling)?;
                } else {
                    return Err(Error::UnknownArgument);
                }
            }
            next += words;
        };
        if items.is_empty() {
            return Err(Error::WrongArity);
        }
        let default = default_params(ctx);
        let growth = growth.map_or(Ok(default.growth), |factor| expansion(factor).ok_or(Error::InsertRange))?;
        let params = Params {
            capacity: capacity.map_or(Ok(default.capacity), |n| positive(n).ok_or(Error::InsertRange))?,
            error_rate: error_rate.map_or(Ok(default.error_rate), |r| ErrorRate::new(r).ok_or(Error::InsertRange))?,
            growth: if nonscaling { Growth::Fixed } else { growth },
            seed: seed.unwrap_or(default.seed),
        };
        Ok(Insertion { params, create: !nocreate, items })
    }
}

fn default_params(ctx: &Context) -> Params {
    Params {
        error_rate: config::error_rate(),
        capacity: config::initial_size(),
        growth: config::growth(),
        seed: random_seed(ctx),
    }
}

fn filter_or_create<'k>(
    ctx: &Context,
    name: Arg,
    key: &'k mut WriteKey,
    params: impl FnOnce() -> Params,
) -> Result<&'k mut Filter, Error> {
    if key.filter()?.is_none() {
        return create(ctx, name, key, params());
    }
    key.filter()?.ok_or(Error::Internal)
}

/// Adds items in order, as far as they fit. The reply has an element for each, and ends with an error where one did not.
fn add_all(ctx: &Context, name: Arg, filter: &mut Filter, items: Args) {
    let mut added = Added::default();
    ctx.start_array();
    let failure = items.chunks(BATCH).find_map(|items| add_batch(ctx, filter, items, &mut added).err());
    if let Some(error) = failure {
        ctx.reply_error(error);
    }
    ctx.end_array(added.replies + usize::from(failure.is_some()));
    if !added.new.is_empty() {
        ctx.replicate(c"BF.MADD", name, &added.new);
        ctx.notify_changed(name, c"bf.add");
    }
}

/// What came of the items so far.
#[derive(Default)]
struct Added {
    replies: usize,
    new: Vec<*mut RedisModuleString>,
}

fn add_batch(ctx: &Context, filter: &mut Filter, items: Args, added: &mut Added) -> Result<(), Error> {
    let mut hashes = [Hash::default(); BATCH];
    let hashes = hash_all(filter, items, &mut hashes);
    let mut handled = 0;
    while handled < items.len() {
        let mut new = [false; BATCH];
        let items = items.from(handled);
        let count = filter.insert_all(&hashes[handled..], &mut new[..items.len()]);
        for (&new, &item) in new[..count].iter().zip(items.as_raw()) {
            ctx.reply_bool(new);
            if new {
                added.new.push(item);
            }
        }
        added.replies += count;
        handled += count;
        if count < items.len() {
            grow(ctx, filter)?;
        }
    }
    Ok(())
}

fn grow(ctx: &Context, filter: &mut Filter) -> Result<(), Error> {
    let present = filter.memory_usage();
    let grown = filter.grow(|bytes| memory::admits(ctx, present, bytes));
    if grown == Err(filter::Error::OutOfMemory) {
        ctx.log_warning("a filter was refused the memory to grow");
    }
    grown.map_err(Error::growing)
}
