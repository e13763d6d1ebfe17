//! BF.EXISTS, BF.MEXISTS, BF.CARD.

use super::super::args::Args;
use super::super::context::Context;
use super::super::error::Error;
use super::super::key::ReadKey;
use super::BATCH;
use crate::filter::Filter;
use crate::filter::hash::Hash;

/// `BF.EXISTS key item`
pub fn exists(ctx: &Context, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(ctx, args.at(1));
    let item = args.at(2).bytes();
    ctx.reply_bool(key.filter()?.is_some_and(|filter| filter.contains(item)));
    Ok(())
}

/// `BF.MEXISTS key item [item …]`
pub fn mexists(ctx: &Context, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(ctx, args.at(1));
    let filter = key.filter()?;
    let items = args.from(2);
    ctx.reply_array(items.len());
    for items in items.chunks(BATCH) {
        let mut found = [false; BATCH];
        let found = &mut found[..items.len()];
        if let Some(filter) = filter {
            filter.contains_all(hash_all(filter, items, &mut [Hash::default(); BATCH]), found);
        }
        found.iter().for_each(|&found| ctx.reply_bool(found));
    }
    Ok(())
}

/// `BF.CARD key`
pub fn card(ctx: &Context, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(ctx, args.at(1));
    ctx.reply_integer(key.filter()?.map_or(0, Filter::items));
    Ok(())
}

/// The hashes of at most [`BATCH`] items.
#[inline]
pub fn hash_all<'h>(filter: &Filter, items: Args, hashes: &'h mut [Hash; BATCH]) -> &'h [Hash] {
    for (hash, item) in hashes.iter_mut().zip(items.iter()) {
        *hash = filter.hash(item.bytes());
    }
    &hashes[..items.len()]
}
