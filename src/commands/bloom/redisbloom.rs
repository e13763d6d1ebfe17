//! Parses commands on Bloom filters from RedisBloom's replication stream or append-only file as RedisBloom does.
//!
//! RedisBloom replicates creations as its clients sent them, and accepts options that we reject. A replica must apply
//! them anyway, or it would lose acknowledged items. All filters of such a stream become classic, whatever `bf.layout`
//! says, so that all replicas agree, also after a restart.
//!
//! Our own stream is recognized by its commands. It has BF.INSERT only with AT, the time of an addition. It creates our
//! own filters with a BF.RESERVE of more than seven arguments, a header or a BF.MERGE, and classic filters with a
//! header. A command that creates a filter in any other way comes from RedisBloom.
//!
//! valkey-bloom replicates a creation as a BF.INSERT with all parameters, and so do we for valkey filters. It
//! replicates later BF.INSERT as its clients sent them. These are recognized by the options that RedisBloom does not
//! have; those without such an option are parsed like RedisBloom's, with numbers such as `+100` that only valkey-bloom
//! accepts.

use super::options::Options;
use crate::commands::option_row::positive;
use crate::configuration;
use crate::reply_error::Error;
use crate::server::{Arg, Args};
use oxbloom_filter::internals::ErrorRate;

/// The maximum number of arguments of RedisBloom's BF.RESERVE, its name included. Ours has more: see
/// [`replicated`](crate::commands::option_row::replicated).
const MAX_RESERVE: usize = 7;

/// Returns true if oxbloom wrote this BF.RESERVE.
pub(super) fn is_our_reserve(args: Args) -> bool {
    args.len() > MAX_RESERVE
}

/// Returns true if RedisBloom did not write this BF.INSERT. It has no option that starts with A, and none of those that
/// only valkey-bloom has, before the items, which it recognizes by an I.
pub(super) fn is_our_insert(args: Args) -> bool {
    const VALKEY_OPTIONS: [&str; 3] = ["TIGHTENING", "SEED", "VALIDATESCALETO"];
    let is_items = |arg: &Arg| arg.bytes().first().is_some_and(|letter| letter.eq_ignore_ascii_case(&b'i'));
    let mut options = args.from(2).iter().take_while(|arg| !is_items(arg));
    args.from(2).up_to(1).iter().any(|arg| arg.is("AT"))
        || options.any(|arg| VALKEY_OPTIONS.into_iter().any(|option| arg.is(option)))
}

/// Parses `BF.RESERVE key error_rate capacity …`. As in RedisBloom, unknown arguments are ignored, and the key is also
/// searched for options.
pub(super) fn reserve(args: Args) -> Result<Options, Error> {
    let mut from_key = args.from(1).iter();
    let expansion = from_key.find(|arg| arg.is("EXPANSION")).map(|_| expansion(from_key.next())).transpose()?;
    let options = Options {
        error_rate: Some(args.at(2).float().and_then(ErrorRate::new).ok_or(Error::BadErrorRate)?),
        capacity: Some(args.at(3).integer().and_then(positive).ok_or(Error::BadCapacity)?),
        expansion,
        nonscaling: args.from(1).iter().any(|arg| arg.is("NONSCALING")),
        ..Options::default()
    };
    Ok(options.of_redisbloom())
}

/// Parses `BF.INSERT key … ITEMS item …`. As in RedisBloom, options are recognized by their first one to three letters,
/// and the last of equal options counts.
pub(super) fn insert(args: Args<'_>) -> Result<(Options, Args<'_>), Error> {
    let mut options = Options::default();
    let mut next = 2;
    while next < args.len() {
        let name = next;
        next += 1;
        let mut value = || {
            next += 1;
            args.as_slice().get(next - 1).copied().ok_or(Error::WrongArity)
        };
        let letter = |index: usize| args.at(name).bytes().get(index).map_or(0, u8::to_ascii_lowercase);
        match [letter(0), letter(1), letter(2)] {
            [b'i', ..] => return Ok((options.of_redisbloom(), args.from(next))),
            [b'c', ..] => {
                options.capacity = Some(value()?.loose_integer().and_then(positive).ok_or(Error::InsertBadCapacity)?);
            }
            [b'e', b'r', _] => {
                options.error_rate = Some(value()?.float().and_then(ErrorRate::new).ok_or(Error::InsertBadErrorRate)?);
            }
            [b'e', ..] => options.expansion = Some(expansion(Some(value()?))?),
            [b'n', _, b'c'] => options.nocreate = true,
            [b'n', ..] => options.nonscaling = true,
            _ => return Err(Error::UnknownArgument(name as u32)),
        }
    }
    Err(Error::WrongArity)
}

/// Parses an expansion. RedisBloom truncates it to 32 bits. If that yields 0, a filter of Redis 8 does not grow, and a
/// filter of RedisBloom 2.8 breaks: every item is present. In the latter case, ours grows by 1 instead.
fn expansion(value: Option<Arg>) -> Result<u32, Error> {
    let factor = value.ok_or(Error::NoExpansion)?.loose_integer().ok_or(Error::BadExpansion)?;
    let is_broken = factor as u32 == 0 && !configuration::bloom::has_redis_8_streams();
    Ok(if is_broken { 1 } else { factor as u32 })
}
