//! BF.PANIC and BF.STARVE: faults to order, for tests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::super::args::{Arg, Args};
use super::super::context::Context;
use super::super::error::Error;

/// `BF.PANIC key [length sent]`
pub fn panic(ctx: &Context, args: Args) -> Result<(), Error> {
    let mut numbers = args.from(2).iter().filter_map(Arg::unsigned);
    if let (Some(length), Some(sent)) = (numbers.next(), numbers.next()) {
        ctx.reply_array(length as usize);
        (0..sent).for_each(|number| ctx.reply_integer(number));
    }
    panic!("asked to, for {:?}", args.at(1).bytes())
}

/// The request for memory that is to be refused, counted from 1; 0 for none.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// What a request must ask for to count, in bytes.
static LEAST: AtomicU64 = AtomicU64::new(u64::MAX);

/// How many requests counted.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// `BF.STARVE key request least_bytes`
pub fn starve(ctx: &Context, args: Args) -> Result<(), Error> {
    let number = |index| args.at(index).unsigned().ok_or(Error::Syntax);
    let (refused, least) = (number(2)?, number(3)?);
    ctx.reply_integer(SEEN.swap(0, Relaxed));
    REFUSED.store(refused, Relaxed);
    LEAST.store(least, Relaxed);
    Ok(())
}

/// Whether a request for memory is the one that is to be refused.
pub fn is_refused(size: usize) -> bool {
    size as u64 >= LEAST.load(Relaxed) && SEEN.fetch_add(1, Relaxed) + 1 == REFUSED.load(Relaxed)
}
