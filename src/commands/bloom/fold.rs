//! BF.FOLD.
//!
//! The command is replicated as the client sent it: a replica has the same filter, and so folds it by the same factor.

use crate::admission;
use crate::commands::option_row::Grammar;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};

/// `BF.FOLD key [CAPACITY capacity]`
///
/// Replies with the factor by which the filter is smaller now.
pub(super) fn fold(ctx: &Context, mut keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let name = args.at(1);
    let capacity = match args.from(2).as_slice() {
        [] => 0,
        &[option, value] if option.is("CAPACITY") => {
            Grammar::of(ctx).capacity(value, [Error::BadCapacity, Error::CapacityRange])?.get()
        }
        _ => return Err(Error::Syntax),
    };
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let factor = admission::fold(ctx, key.filter().ok_or(Error::NotFound)?, capacity)?;
    drop(key);
    if factor > 1 {
        ctx.replicate_verbatim();
        keyspace.notify_changed(ctx, name, Verb::Fold);
    }
    ctx.reply_integer(factor);
    Ok(())
}
