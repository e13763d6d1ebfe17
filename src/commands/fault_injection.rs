//! BF.PANIC, BF.STARVE and BF.CLOCK: cause faults on demand, for tests.

use std::sync::atomic::Ordering;

use crate::allocation::starvation;
use crate::reply_error::Error;
use crate::server::clock::STOPPED_AT;
use crate::server::{Arg, Args, Context, Keyspace};

/// `BF.PANIC key [length sent [MAP]]`: panics, at once or after `sent` elements of a reply with `length` elements, or
/// pairs.
pub(super) fn panic(ctx: &Context, _: Keyspace, args: Args) -> Result<(), Error> {
    let mut numbers = args.from(2).iter().filter_map(Arg::unsigned);
    if let (Some(length), Some(sent)) = (numbers.next(), numbers.next()) {
        if args.at(args.len() - 1).is("MAP") {
            ctx.reply_map(length as usize)
        } else {
            ctx.reply_array(length as usize)
        }
        (0..sent).for_each(|number| ctx.reply_integer(number));
    }
    panic!("asked to, for {:?}", args.at(1).bytes())
}

/// `BF.STARVE key request min_bytes`: makes one of the next requests for memory fail. Returns the number of requests
/// since the last call.
pub(super) fn starve(ctx: &Context, _: Keyspace, args: Args) -> Result<(), Error> {
    let number = |index| args.at(index).unsigned().ok_or(Error::Syntax);
    let (failing, min_bytes) = (number(2)?, number(3)?);
    ctx.reply_integer(starvation::fail(failing, min_bytes));
    Ok(())
}

/// `BF.CLOCK key milliseconds`: stops the clock of filters that forget at this time, in milliseconds since 1970.
pub(super) fn clock(ctx: &Context, _: Keyspace, args: Args) -> Result<(), Error> {
    STOPPED_AT.store(args.at(2).integer().ok_or(Error::Syntax)?, Ordering::Relaxed);
    ctx.reply_ok();
    Ok(())
}
