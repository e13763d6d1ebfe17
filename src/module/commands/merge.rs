//! BF.MERGE.
//!
//! It is replicated as it was sent: a replica has the same sources, and makes the same of them. A gigabyte that was merged
//! would otherwise have to travel.

use super::super::args::{Arg, Args};
use super::super::command::numbered_keys;
use super::super::context::Context;
use super::super::error::Error;
use super::super::key::{ReadKey, WriteKey};
use super::super::memory;
use crate::filter::Filter;
use crate::filter::merge::Operation;

/// `BF.MERGE destination numkeys source [source …] [UNION | INTERSECT]`
///
/// A destination that exists is an operand as well, once, also if it is named as a source.
pub fn merge(ctx: &Context, args: Args) -> Result<(), Error> {
    let destination = args.at(1);
    let sources = numbered_keys(args)?;
    let operation = operation(args.from(3 + sources.len()))?;
    let mut key = WriteKey::open(ctx, destination)?;
    let mut keys = memory::room(ctx, sources.len())?;
    let is_other = |source: &Arg| source.bytes() != destination.bytes();
    if key.filter().is_none() && sources.iter().any(|source| !is_other(&source)) {
        return Err(Error::NotFound);
    }
    keys.extend(sources.iter().filter(is_other).map(|source| ReadKey::open(ctx, source)));
    let mut filters = memory::room(ctx, keys.len())?;
    for source in &keys {
        filters.push(source.filter()?.ok_or(Error::NotFound)?);
    }
    let changed = merge_filters(ctx, &mut key, &filters, operation)?;
    drop(filters);
    drop((keys, key));
    if changed {
        ctx.replicate_verbatim();
        ctx.notify_changed(destination, c"bf.merge");
    }
    ctx.reply_ok();
    Ok(())
}

/// Merges `sources` into the filter of a key, or into a new one. Whether there is anything new.
fn merge_filters(ctx: &Context, key: &mut WriteKey, sources: &[&Filter], operation: Operation) -> Result<bool, Error> {
    if let Some(filter) = key.filter() {
        return memory::merge_into(ctx, filter, sources, operation);
    }
    key.create(memory::merge_new(ctx, sources, operation)?)?;
    Ok(true)
}

fn operation(words: Args) -> Result<Operation, Error> {
    let mut words = words.iter();
    let operation = match words.next() {
        None => Operation::Union,
        Some(word) if word.is("UNION") => Operation::Union,
        Some(word) if word.is("INTERSECT") => Operation::Intersection,
        Some(_) => return Err(Error::Syntax),
    };
    if words.next().is_none() { Ok(operation) } else { Err(Error::Syntax) }
}
