//! Parses commands on cuckoo filters from RedisBloom's replication stream or append-only file as RedisBloom does. All
//! filters of such a stream become classic, as [those of Bloom filters](crate::commands::bloom::redisbloom).
//!
//! Our own stream creates filters with a CF.RESERVE that has all options, or with a header.

use super::options::Options;
use crate::commands::option_row::positive;
use crate::reply_error::Error;
use crate::server::{Arg, Args};

/// The minimum number of arguments of our own CF.RESERVE in a stream: the command, the key, the capacity, and the
/// values of six options with their names.
const MIN_OUR_RESERVE: usize = 3 + 2 * 6;

/// Returns true if oxbloom wrote this CF.RESERVE: it has all options, of which the last is the layout. RedisBloom's may
/// have any, since it ignores those that it does not know.
pub(super) fn is_our_reserve(args: Args) -> bool {
    args.len() >= MIN_OUR_RESERVE && args.at(args.len() - 2).is("LAYOUT")
}

/// Parses `CF.RESERVE key capacity …`. As in RedisBloom, the first of equal options counts, unknown ones are ignored,
/// and the key is also searched for options.
pub(super) fn reserve(args: Args) -> Result<Options, Error> {
    let number = |name: &str| {
        let mut found = args.from(1).iter().skip_while(|arg| !arg.is(name)).skip(1);
        found.next().and_then(Arg::integer)
    };
    let options = Options {
        capacity: Some(args.at(2).integer().and_then(positive).ok_or(Error::InsertBadCapacity)?),
        bucket_size: number("BUCKETSIZE").and_then(|number| u16::try_from(number).ok()),
        max_iterations: number("MAXITERATIONS").and_then(|number| u16::try_from(number).ok()),
        expansion: number("EXPANSION").and_then(|number| u32::try_from(number).ok()),
        ..Options::default()
    };
    Ok(options.of_redisbloom())
}

/// Parses `CF.INSERT key … ITEMS item …`. As in RedisBloom, options are recognized by their first letter, and the last
/// of equal options counts.
pub(super) fn insert(args: Args<'_>) -> Result<(Options, Args<'_>), Error> {
    let mut options = Options::default();
    let mut next = 2;
    while next < args.len() {
        let name = next;
        next += 1;
        match args.at(name).bytes().first().map(u8::to_ascii_lowercase) {
            Some(b'i') => return Ok((options.of_redisbloom(), args.from(next))),
            Some(b'c') if next < args.len() => {
                options.capacity = Some(args.at(next).integer().and_then(positive).ok_or(Error::InsertBadCapacity)?);
                next += 1;
            }
            Some(b'n') => options.nocreate = true,
            _ => return Err(Error::UnknownArgument(name as u32)),
        }
    }
    Err(Error::WrongArity)
}
