//! BF.MERGE.
//!
//! It is replicated as it was sent: a replica has the same sources, and makes the same of them. A gigabyte that was merged
//! would otherwise have to travel. A merge that creates its destination is sent with REPLACE, as there must be nothing in its way
//! elsewhere.

use super::super::args::{Arg, Args};
use super::super::command::numbered_keys;
use super::super::context::Context;
use super::super::error::Error;
use super::super::key::{ReadKey, WriteKey};
use super::super::memory;
use super::reserve::{once, set_once};
use oxbloom_filter::Filter;
use oxbloom_filter::merge::Operation;

/// `BF.MERGE destination numkeys source [source …] [UNION | INTERSECT] [REPLACE]`
///
/// An existing destination is an operand, and counts once even if it is also named as a source. With REPLACE it is an operand only
/// if it is named.
pub fn merge(ctx: &Context, args: Args) -> Result<(), Error> {
    let (destination, sources) = (args.at(1), numbered_keys(args)?);
    let options = Options::parse(args.from(3 + sources.len()))?;
    let is_other = |source: &Arg| source.bytes() != destination.bytes();
    let is_named = sources.iter().any(|source| !is_other(&source));
    let is_replaced = options.replace && !is_named;
    let mut key = if is_replaced && ctx.must_obey() {
        WriteKey::open_to_replace(ctx, destination)
    } else {
        WriteKey::open(ctx, destination)?
    };
    let is_new = key.filter().is_none();
    if is_new && is_named {
        return Err(Error::NotFound);
    }
    // Everything is allocated before anything changes.
    let mut words = memory::room(ctx, args.len())?;
    let mut keys = memory::room(ctx, sources.len())?;
    keys.extend(sources.iter().filter(is_other).map(|source| ReadKey::open(ctx, source)));
    let mut operands = memory::room(ctx, keys.len() + 1)?;
    for source in &keys {
        operands.push(source.filter()?.ok_or(Error::NotFound)?);
    }
    let changed = merge_filters(ctx, &mut key, operands, options, is_replaced)?;
    drop((keys, key));
    if changed {
        if is_new && !options.replace {
            let replace = ctx.string(b"REPLACE");
            words.extend_from_slice(args.from(2).as_raw());
            words.push(replace.as_raw());
            ctx.replicate(c"BF.MERGE", destination, &words);
        } else {
            ctx.replicate_verbatim();
        }
        ctx.notify_changed(destination, c"bf.merge");
    }
    ctx.reply_ok();
    Ok(())
}

/// Merges `operands` into the key, and its own filter with them unless that `is_replaced`. `operands` has room for one more. Returns
/// whether the key changed.
fn merge_filters(
    ctx: &Context,
    key: &mut WriteKey,
    operands: Vec<&Filter>,
    Options { operation, replace }: Options,
    is_replaced: bool,
) -> Result<bool, Error> {
    if !replace && let Some(filter) = key.filter() {
        return memory::merge_into(ctx, filter, &operands, operation);
    }
    // The key's own filter is borrowed for a shorter time than the others.
    let mut operands: Vec<&Filter> = operands;
    if !is_replaced {
        operands.extend(key.filter().map(|filter| &*filter));
    }
    let merged = memory::merge_new(ctx, &operands, operation)?;
    drop(operands);
    key.create(merged)?;
    Ok(true)
}

/// The options after the sources, in any order.
#[derive(Clone, Copy)]
struct Options {
    operation: Operation,
    /// True if the result replaces the destination.
    replace: bool,
}

impl Options {
    fn parse(words: Args) -> Result<Options, Error> {
        let (mut operation, mut replace) = (None, false);
        for word in words.iter() {
            if word.is("UNION") {
                set_once(&mut operation, Operation::Union).map_err(|_| Error::Syntax)?;
            } else if word.is("INTERSECT") {
                set_once(&mut operation, Operation::Intersection).map_err(|_| Error::Syntax)?;
            } else if word.is("REPLACE") {
                once(&mut replace).map_err(|_| Error::Syntax)?;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(Options { operation: operation.unwrap_or(Operation::Union), replace })
    }
}
