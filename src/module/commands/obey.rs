//! BF.RESERVE and BF.INSERT as RedisBloom reads them: for what it sends to a replica, or wrote to its append-only file.
//!
//! It sends creations as its clients did, and takes words that ours refuse. What it did has to be done again, or items that it
//! acknowledged would be missing here. Our own masters and files say all that matters, with LAYOUT among it.

use std::num::NonZeroU32;

use super::super::args::{Arg, Args};
use super::super::error::Error;
use super::add::{Insertion, Present};
use super::reserve::{Wanted, positive};
use crate::filter::ErrorRate;

/// Whether BF.RESERVE is one of ours.
pub fn is_our_reserve(args: Args) -> bool {
    args.from(4).iter().any(|word| word.is("LAYOUT"))
}

/// What `BF.RESERVE key error_rate capacity …` asks for. Words that are not known are passed over, and the key is a word like
/// the others.
pub fn reserve(args: Args) -> Result<Wanted, Error> {
    let is_named = |name| move |word: &Arg| word.is(name);
    let mut words = args.from(1).iter();
    let expansion = words.find(is_named("EXPANSION")).map(|_| expansion(words.next())).transpose()?;
    Ok(Wanted {
        error_rate: Some(args.at(2).float().and_then(ErrorRate::new).ok_or(Error::BadErrorRate)?),
        capacity: Some(args.at(3).integer().and_then(positive).ok_or(Error::BadCapacity)?),
        expansion,
        nonscaling: args.from(1).iter().any(|word| word.is("NONSCALING")),
        ..Wanted::default()
    })
}

/// What `BF.INSERT key … ITEMS item …` asks for. One to three letters tell the options, and the last of a kind counts.
pub fn insert(args: Args) -> Result<Insertion, Error> {
    let mut wanted = Wanted::default();
    let (mut create, mut next) = (true, 2);
    while next < args.len() {
        let value = || if next + 1 < args.len() { Ok(args.at(next + 1)) } else { Err(Error::WrongArity) };
        let letter = |index: usize| args.at(next).bytes().get(index).map_or(0, u8::to_ascii_lowercase);
        next += match [letter(0), letter(1), letter(2)] {
            [b'i', ..] => return Ok(Insertion { wanted, create, present: Present::Added, items: args.from(next + 1) }),
            [b'c', ..] => {
                wanted.capacity = Some(value()?.integer().and_then(positive).ok_or(Error::InsertBadCapacity)?);
                2
            }
            [b'e', b'r', _] => {
                wanted.error_rate = Some(value()?.float().and_then(ErrorRate::new).ok_or(Error::InsertBadErrorRate)?);
                2
            }
            [b'e', ..] => {
                wanted.expansion = Some(expansion(Some(value()?))?);
                2
            }
            [b'n', _, b'c'] => {
                create = false;
                1
            }
            [b'n', ..] => {
                wanted.nonscaling = true;
                1
            }
            _ => return Err(Error::UnknownArgument),
        };
    }
    Err(Error::WrongArity)
}

/// An expansion, of which RedisBloom keeps 32 bits. Of 0, with which it grows no more but takes every item for present, ours
/// grows: the items are not lost.
fn expansion(value: Option<Arg>) -> Result<NonZeroU32, Error> {
    let factor = value.ok_or(Error::NoExpansion)?.integer().ok_or(Error::BadExpansion)?;
    Ok(NonZeroU32::new(factor as u32).unwrap_or(NonZeroU32::MIN))
}
