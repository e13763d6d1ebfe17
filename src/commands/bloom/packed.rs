//! BF.ADDPACKED, BF.EXISTSPACKED, BF.DELPACKED: commands on [packed](super::packing) items.
//!
//! They do the same as BF.MADD, BF.MEXISTS and BF.MDEL with each item. The reply is a string of bits, in the order of
//! SETBIT: the first item is the highest bit of the first byte. With COUNT, it is the number of ones.
//!
//! The server spends 60 to 150 ns on each item that is an argument, and on its reply. A packed command has one argument
//! and one reply for all items.

use super::add::add_all;
use super::options::OPTIONS;
use super::packing::{self, Packed};
use crate::admission;
use crate::commands::counting::remove_all;
use crate::commands::items::{ItemFlags, Items};
use crate::commands::option_row;
use crate::commands::query::{contains_all, time_for};
use crate::family::Verb;
use crate::filter_key::ReadKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};

/// `BF.ADDPACKED key [option …] packing items`, with [options](OPTIONS).
///
/// If an item does not fit, the reply is an array: the number of items before it, their bits, and the error.
pub(super) fn addpacked(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let (options, packed) = option_row::parse(ctx, OPTIONS, Verb::Addpacked, args, 2, packing::starts_with)?;
    let items = Packed::parse(packed)?;
    let mut flags = ItemFlags::new(ctx, items.len())?;
    let new = &mut flags.as_mut_slice()[..items.len()];
    // Before anything changes.
    let mut bits = Bits::new(ctx, items.len(), options.count)?;
    let (handled, failure) = add_all(ctx, keyspace, args.at(1), items, Some(&options), new)?;
    bits.extend(&new[..handled]);
    let Some(error) = failure else {
        bits.reply(ctx);
        return Ok(());
    };
    if handled > 0 {
        ctx.reply_array(3);
        ctx.reply_integer(handled as u64);
        bits.reply(ctx);
    }
    Err(error)
}

/// `BF.EXISTSPACKED key [COUNT] packing items`
pub(super) fn existspacked(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let (count, items) = parse(args)?;
    let mut bits = Bits::new(ctx, items.len(), count)?;
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    match key.filter()? {
        Some(filter) => contains_all(filter, items.iter(), time_for(ctx, filter), |found| bits.extend(found)),
        None => (0..items.len()).step_by(8).for_each(|_| bits.extend(&[false; 8])),
    }
    bits.reply(ctx);
    Ok(())
}

/// `BF.DELPACKED key [COUNT] packing items`
pub(super) fn delpacked(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let (count, items) = parse(args)?;
    let mut flags = ItemFlags::new(ctx, items.len())?;
    let removed = &mut flags.as_mut_slice()[..items.len()];
    let mut bits = Bits::new(ctx, items.len(), count)?;
    remove_all(ctx, keyspace, args.at(1), items, removed)?;
    bits.extend(removed);
    bits.reply(ctx);
    Ok(())
}

/// Parses `key [COUNT] packing items`.
fn parse(args: Args) -> Result<(bool, Packed), Error> {
    let count = packing::COUNT.starts_with(args.at(2).bytes());
    let packed = args.from(if count { 3 } else { 2 });
    Ok((count, Packed::parse(packed)?))
}

/// The reply: a bit for each item, or the number of ones.
enum Bits {
    Each(Vec<u8>),
    Count(u64),
}

impl Bits {
    /// Returns the reply for no items yet, with room for `items`.
    fn new(ctx: &Context, items: usize, count: bool) -> Result<Bits, Error> {
        if count { Ok(Bits::Count(0)) } else { Ok(Bits::Each(admission::try_vec(ctx, items.div_ceil(8))?)) }
    }

    /// Appends the bits of items. All calls but the last append a multiple of eight.
    #[inline]
    fn extend(&mut self, flags: &[bool]) {
        match self {
            Bits::Each(bytes) => {
                let (whole, rest) = flags.as_chunks();
                bytes.extend(whole.iter().map(byte));
                if !rest.is_empty() {
                    let mut flags = [false; 8];
                    flags[..rest.len()].copy_from_slice(rest);
                    bytes.push(byte(&flags));
                }
            }
            Bits::Count(count) => *count += flags.iter().filter(|flag| **flag).count() as u64,
        }
    }

    fn reply(&self, ctx: &Context) {
        match self {
            Bits::Each(bytes) => ctx.reply_bulk(bytes),
            Bits::Count(count) => ctx.reply_integer(*count),
        }
    }
}

/// Returns a byte with these bits, the first as the highest.
#[inline]
fn byte(flags: &[bool; 8]) -> u8 {
    // Each bit of the product's highest byte is one of the flags, since no two products of a flag overlap there.
    (u64::from_le_bytes(flags.map(u8::from)).wrapping_mul(0x8040_2010_0804_0201) >> 56) as u8
}
