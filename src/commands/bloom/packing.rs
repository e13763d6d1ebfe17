//! Items that are packed into one argument.
//!
//! ```text
//! FIXED n items            every n bytes are an item
//! OFFSETS o items          o has n + 1 little-endian integers of 32 bits. Item i starts where integer i says, and ends
//!                          where integer i + 1 says, counted from the first integer. (Arrow's strings have this form.)
//! OFFSETS64 o items        the same with 64 bits (Arrow's large strings)
//! LINES items              every line is an item, without its line feed. The last line needs none.
//! ```

use memchr::{memchr, memchr_iter};

use crate::commands::declaration::{Argument, ArgumentKind};
use crate::commands::items::{Changed, Items, Replay};
use crate::reply_error::Error;
use crate::server::{Args, Context, OwnedString};
use oxbloom_filter::internals::try_vec;

/// The maximum number of items in a packed command. They may be empty, so that the bytes of a command do not limit
/// them. The command's buffers have a byte for each, and it takes about a second.
const MAX_PACKED: usize = 1 << 24;

/// The number of items in a command that repeats the change of packed items as arguments.
const AT_A_TIME: usize = 1024;

/// The option of all packed commands that makes the reply a number.
pub(super) const COUNT: Argument = Argument::flag(c"COUNT", c"count");

/// The packing and the items in COMMAND DOCS.
pub(super) const ARGUMENTS: [Argument; 2] = [
    Argument::required(c"packing", ArgumentKind::OneOf(&PACKINGS)),
    Argument::required(c"items", ArgumentKind::String),
];

const PACKINGS: [Argument; 4] = [
    Argument::alternative(c"FIXED", c"width", ArgumentKind::Integer),
    Argument::alternative(c"OFFSETS", c"offsets", ArgumentKind::String),
    Argument::alternative(c"OFFSETS64", c"offsets64", ArgumentKind::String),
    Argument::token(c"LINES", c"lines"),
];

/// Returns true if this is the name of a packing.
pub(super) fn starts_with(token: &[u8]) -> bool {
    ARGUMENTS[0].starts_with(token)
}

/// Valid packed items, and the iterator over them, which takes those that it has passed from the packing and the bytes.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a> {
    packing: Packing<'a>,
    bytes: &'a [u8],
    /// The number of all items.
    len: usize,
    /// The arguments that the items were parsed from.
    arguments: Args<'a>,
}

#[derive(Clone, Copy)]
enum Packing<'a> {
    /// The number of bytes of each item, which is not 0.
    Fixed(usize),
    Offsets(&'a [[u8; 4]]),
    Offsets64(&'a [[u8; 8]]),
    Lines,
}

impl<'a> Packed<'a> {
    /// Parses a packing and its items, which are all that is left of a command.
    pub(super) fn parse(arguments: Args<'a>) -> Result<Packed<'a>, Error> {
        let (packing, items, len) = match *arguments.as_slice() {
            [name, items] if name.is("LINES") => {
                let bytes = items.bytes();
                let has_end = bytes.last().is_none_or(|&byte| byte == b'\n');
                (Packing::Lines, items, memchr_iter(b'\n', bytes).count() + usize::from(!has_end))
            }
            [name, width, items] if name.is("FIXED") => {
                let width = width.unsigned().and_then(|width| usize::try_from(width).ok());
                let width = width.filter(|&width| width > 0).ok_or(Error::PackedWidth)?;
                let length = items.bytes().len();
                if !length.is_multiple_of(width) {
                    return Err(Error::PackedRemainder);
                }
                (Packing::Fixed(width), items, length / width)
            }
            [name, offsets, items] if name.is("OFFSETS") => {
                let offsets = valid_offsets(offsets.bytes(), items.bytes())?;
                (Packing::Offsets(offsets), items, offsets.len() - 1)
            }
            [name, offsets, items] if name.is("OFFSETS64") => {
                let offsets = valid_offsets(offsets.bytes(), items.bytes())?;
                (Packing::Offsets64(offsets), items, offsets.len() - 1)
            }
            _ => return Err(Error::NoPacking),
        };
        if len > MAX_PACKED {
            return Err(Error::TooManyItems);
        }
        Ok(Packed { packing, bytes: items.bytes(), len, arguments })
    }

    /// Packs some of the items in the same way. Returns the arguments after the packing's name, or `None` if there is
    /// no memory for them.
    fn choose(self, is_chosen: impl Fn(usize) -> bool) -> Option<Vec<Vec<u8>>> {
        let chosen = || self.iter().enumerate().filter(|&(index, _)| is_chosen(index)).map(|(_, item)| item);
        let (count, length) = chosen().fold((0, 0), |(count, length), item| (count + 1, length + item.len()));
        let parameter = match self.packing {
            Packing::Fixed(width) => Some(width.to_string().into_bytes()),
            Packing::Offsets(_) => Some(offsets::<4>(chosen(), count)?),
            Packing::Offsets64(_) => Some(offsets::<8>(chosen(), count)?),
            Packing::Lines => None,
        };
        let terminator: &[u8] = if matches!(self.packing, Packing::Lines) { b"\n" } else { b"" };
        let mut items = try_vec(length + count * terminator.len()).ok()?;
        chosen().for_each(|item| {
            items.extend_from_slice(item);
            items.extend_from_slice(terminator);
        });
        Some(parameter.into_iter().chain([items]).collect())
    }
}

impl<'a> Iterator for Packed<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match &mut self.packing {
            Packing::Fixed(width) => self.bytes.split_off(..*width),
            Packing::Offsets(offsets) => self.bytes.split_off(..next_length(offsets)?),
            Packing::Offsets64(offsets) => self.bytes.split_off(..next_length(offsets)?),
            Packing::Lines => {
                if self.bytes.is_empty() {
                    return None;
                }
                // The last line may lack its line feed.
                let end = memchr(b'\n', self.bytes).unwrap_or(self.bytes.len());
                let line = self.bytes.split_off(..end);
                self.bytes.split_off_first();
                line
            }
        }
    }
}

/// Returns the length of the next item, and moves on to its end.
#[inline]
fn next_length<const N: usize>(offsets: &mut &[[u8; N]]) -> Option<usize> {
    let (start, ends) = offsets.split_first()?;
    let length = value(ends.first()?) - value(start);
    *offsets = ends;
    Some(length as usize)
}

impl<'a> Items<'a> for Packed<'a> {
    fn len(self) -> usize {
        self.len
    }

    #[inline]
    fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        self
    }

    fn replicate(self, ctx: &Context, replay: &Replay, changed: &Changed) -> bool {
        let Some(verb) = replay.packed else {
            replay.send(ctx, self, changed, AT_A_TIME);
            return true;
        };
        let mut arguments = replay.options.to_vec();
        if changed.count() == self.len {
            arguments.extend_from_slice(self.arguments.as_slice());
            ctx.replicate(verb, replay.key, &arguments);
            return true;
        }
        let Some(chosen) = self.choose(|index| changed.contains(index)) else { return false };
        let chosen: Vec<_> = chosen.iter().map(|argument| ctx.string(argument)).collect();
        arguments.push(self.arguments.at(0));
        arguments.extend(chosen.iter().map(OwnedString::as_arg));
        ctx.replicate(verb, replay.key, &arguments);
        true
    }
}

/// Returns the offsets of `count` items, of `N` bytes each.
fn offsets<'a, const N: usize>(items: impl Iterator<Item = &'a [u8]>, count: usize) -> Option<Vec<u8>> {
    let mut offsets = try_vec((count + 1) * N).ok()?;
    let mut end = 0u64;
    offsets.extend_from_slice(&end.to_le_bytes()[..N]);
    for item in items {
        end += item.len() as u64;
        offsets.extend_from_slice(&end.to_le_bytes()[..N]);
    }
    Some(offsets)
}

/// Returns the offsets of items, at least one: they never fall, and end where the items end.
fn valid_offsets<'a, const N: usize>(offsets: &'a [u8], items: &[u8]) -> Result<&'a [[u8; N]], Error> {
    // An argument may start at any address, so that the integers are read as bytes.
    let (all, []) = offsets.as_chunks() else { return Err(Error::BadOffsets) };
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Err(Error::BadOffsets) };
    let never_fall = all.is_sorted_by_key(value);
    let is_whole = value(last).checked_sub(value(first)) == Some(items.len() as u64);
    if never_fall && is_whole { Ok(all) } else { Err(Error::BadOffsets) }
}

/// Returns the value of an offset of four or eight bytes.
#[inline]
fn value<const N: usize>(offset: &[u8; N]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(offset);
    u64::from_le_bytes(bytes)
}
