//! BF.CHANGES: what became new in a filter, for clients that keep a copy of it.

use crate::admission;
use crate::changes::{self, Cursor};
use crate::filter_key::ReadKey;
use crate::reply_error::{Error, Limit};
use crate::server::{Args, Context, Keyspace};
use oxbloom_filter::internals::CHANGE_BYTES;
use oxbloom_filter::internals::codec::encode_header;

/// The number of changes in a reply, unless COUNT says another.
const DEFAULT_COUNT: u64 = 4096;
/// The maximum of COUNT.
const MAX_COUNT: u64 = 65_536;

// A reply is small enough to be built at once, and no other client waits for long.
const _: () = assert!(DEFAULT_COUNT <= MAX_COUNT && MAX_COUNT * CHANGE_BYTES as u64 <= 1 << 20);

/// `BF.CHANGES key [SINCE cursor] [COUNT count]`
///
/// Replies with a cursor, and with the header of the filter, or with the hashes of the items that became new since a
/// cursor. The header belongs to the cursor: nothing is added between the two.
pub(super) fn changes(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let (mut since, mut count) = (None, DEFAULT_COUNT);
    for option in args.from(2).chunks(2) {
        match *option.as_slice() {
            [name, cursor] if name.is("SINCE") => {
                since = Some(Cursor::parse(cursor.bytes()).ok_or(Error::BadChangesCursor)?);
            }
            [name, number] if name.is("COUNT") => {
                let given = number.integer().and_then(|number| u64::try_from(number).ok());
                count = given.filter(|given| (1..=MAX_COUNT).contains(given)).ok_or(Error::ChangesRange)?;
            }
            _ => return Err(Error::Syntax),
        }
    }
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    if !filter.kind().can_be_followed() {
        return Err(Error::NotFollowable);
    }
    let (cursor, data) = match since {
        Some(cursor) => changes::since(ctx, filter, cursor, count)?,
        None => {
            let header = encode_header(filter).map_err(|_| Error::NoMemory(Limit::System))?;
            (admission::follow(ctx, filter)?, header)
        }
    };
    ctx.reply_array(2);
    ctx.reply_bulk(cursor.to_string().as_bytes());
    ctx.reply_bulk(&data);
    Ok(())
}
