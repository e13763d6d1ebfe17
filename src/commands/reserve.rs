//! BF.RESERVE, and how a filter comes into being by any command.

use std::num::{NonZeroU32, NonZeroU64};

use super::super::args::{Arg, Args};
use super::super::command::is_like;
use super::super::config::{self, LayoutName};
use super::super::context::Context;
use super::super::edge::call;
use super::super::error::Error;
use super::super::key::{ReadKey, WriteKey};
use super::super::memory;
use super::redisbloom;
use oxbloom_filter::codec;
use oxbloom_filter::{ErrorRate, Filter, Growth, Layout, Params};

/// `BF.RESERVE key error_rate capacity [EXPANSION n] [NONSCALING] [COUNTING] [SEED n] [LAYOUT native | classic]`
///
/// `BF.RESERVE key LIKE other`: an empty filter that can be merged with another.
pub fn reserve(ctx: &Context, args: Args) -> Result<(), Error> {
    if is_like(args) {
        return reserve_like(ctx, args.at(1), args.at(3));
    }
    let is_foreign = ctx.must_obey() && !redisbloom::is_our_reserve(args);
    let wanted = if is_foreign { redisbloom::reserve(args)? } else { parse(args)? };
    let params = wanted.params()?;
    let mut key = open_new(ctx, args.at(1))?;
    create(ctx, args.at(1), &mut key, params)?;
    drop(key);
    ctx.notify_changed(args.at(1), c"bf.reserve");
    ctx.reply_ok();
    Ok(())
}

/// Opens a key in which a filter is to be created.
///
/// A master or an append-only file says what was created: whatever is in the way here was not there, and is replaced.
fn open_new<'a>(ctx: &'a Context, name: Arg<'a>) -> Result<WriteKey, Error> {
    if ctx.must_obey() {
        return Ok(WriteKey::open_to_create(ctx, name));
    }
    let mut key = WriteKey::open(ctx, name)?;
    if key.filter().is_some() { Err(Error::Exists) } else { Ok(key) }
}

fn reserve_like(ctx: &Context, name: Arg, other: Arg) -> Result<(), Error> {
    let mut key = open_new(ctx, name)?;
    let other = ReadKey::open(ctx, other);
    let filter = memory::like(ctx, other.filter()?.ok_or(Error::NotFound)?)?;
    drop(other);
    let header = memory::encode_header(ctx, &filter)?;
    key.create(filter)?;
    replicate_header(ctx, name, &header);
    drop(key);
    ctx.notify_changed(name, c"bf.reserve");
    ctx.reply_ok();
    Ok(())
}

/// Tells the replicas to create the filter of a header: all parameters are in it.
fn replicate_header(ctx: &Context, name: Arg, header: &[u8]) {
    let iterator = codec::HEADER_ITERATOR.to_string();
    let [iterator, header] = [iterator.as_bytes(), header].map(|word| ctx.string(word));
    ctx.replicate(c"BF.LOADCHUNK", name, &[iterator.as_raw(), header.as_raw()]);
}

fn parse(args: Args) -> Result<Wanted, Error> {
    if args.at(2).is("LIKE") {
        return Err(Error::LikeAlone);
    }
    let error_rate = args.at(2).float().ok_or(Error::BadErrorRate)?;
    let error_rate = ErrorRate::new(error_rate).ok_or(Error::RateRange)?;
    let capacity = args.at(3).integer().ok_or(Error::BadCapacity)?;
    let capacity = positive(capacity).ok_or(Error::CapacityRange)?;
    let (mut expansion, mut seed, mut layout) = (None, None, None);
    let (mut nonscaling, mut counting) = (false, false);
    let mut options = args.from(4).iter();
    while let Some(option) = options.next() {
        if option.is("NONSCALING") {
            once(&mut nonscaling)?;
        } else if option.is("COUNTING") {
            once(&mut counting)?;
        } else if option.is("EXPANSION") {
            set_once(&mut expansion, options.next().ok_or(Error::NoExpansion)?)?;
        } else if option.is("SEED") {
            set_once(&mut seed, options.next().ok_or(Error::BadSeed)?)?;
        } else if option.is("LAYOUT") {
            set_once(&mut layout, options.next().ok_or(Error::BadLayout)?)?;
        } else {
            return Err(Error::UnknownArgument);
        }
    }
    let expansion = match expansion {
        Some(value) if value.is("NONSCALING") || nonscaling && value.integer() != Some(0) => {
            return Err(Error::NonscalingExpands);
        }
        Some(value) => {
            let factor = value.integer().ok_or(Error::BadExpansion)?;
            Some(Expansion::of(factor).ok_or(match factor {
                ..=0 => Error::ExpansionRange,
                1.. => Error::BadExpansion,
            })?)
        }
        None => None,
    };
    let seed = seed.map(|value: Arg| value.unsigned().ok_or(Error::BadSeed)).transpose()?;
    let layout = layout.map(|value: Arg| LayoutName::of(value).ok_or(Error::BadLayout)).transpose()?;
    Ok(Wanted { capacity: Some(capacity), error_rate: Some(error_rate), expansion, nonscaling, counting, seed, layout })
}

/// The growth that `EXPANSION n` asks for.
#[derive(Clone, Copy)]
pub enum Expansion {
    /// Not at all, as with NONSCALING: `n` is 0.
    None,
    By(NonZeroU32),
}

impl Expansion {
    /// An expansion from 0 to `2^32 - 1`.
    pub fn of(factor: i64) -> Option<Expansion> {
        u32::try_from(factor).ok().map(|factor| NonZeroU32::new(factor).map_or(Expansion::None, Expansion::By))
    }
}

/// What a command says of the filter that it may create. The rest is by default.
#[derive(Default)]
pub struct Wanted {
    pub capacity: Option<NonZeroU64>,
    pub error_rate: Option<ErrorRate>,
    pub expansion: Option<Expansion>,
    pub nonscaling: bool,
    pub counting: bool,
    pub seed: Option<u64>,
    pub layout: Option<LayoutName>,
}

impl Wanted {
    /// The parameters for a command that gives none.
    pub fn unspecified(ctx: &Context) -> Wanted {
        if ctx.must_obey() { redisbloom::unspecified() } else { Wanted::default() }
    }

    /// Rejects options that contradict a filter that exists. Capacity, error rate and growth are for its creation alone: clients
    /// repeat them with every command.
    pub fn check_existing(&self, filter: &Filter) -> Result<(), Error> {
        let layout = match filter {
            Filter::Native(_) | Filter::Counting(_) => LayoutName::Native,
            Filter::Classic(_) => LayoutName::Classic,
        };
        if self.layout.is_some_and(|asked| asked != layout) {
            return Err(Error::OtherLayout);
        }
        if self.counting && filter.counting().is_none() {
            return Err(Error::OtherCounting);
        }
        if self.seed.is_some() && self.seed != filter.seed() {
            return Err(Error::OtherSeed);
        }
        Ok(())
    }

    pub fn params(&self) -> Result<Params, Error> {
        let noted_expansion = match self.expansion {
            None => DEFAULT_EXPANSION,
            Some(Expansion::None) => 0,
            Some(Expansion::By(factor)) => factor.get(),
        };
        Ok(Params {
            capacity: self.capacity.unwrap_or_else(config::initial_size),
            error_rate: self.error_rate.unwrap_or_else(config::error_rate),
            growth: match self.expansion {
                _ if self.nonscaling => Growth::Fixed,
                None => config::growth(),
                Some(Expansion::None) => Growth::Fixed,
                Some(Expansion::By(factor)) => Growth::By(factor),
            },
            layout: match (self.layout, self.counting) {
                (Some(LayoutName::Classic), true) => return Err(Error::ClassicCounting),
                (_, true) => Layout::Counting { seed: self.seed.unwrap_or_else(random_seed) },
                (name, false) => layout_of(name, self.seed, noted_expansion)?,
            },
        })
    }
}

/// What RedisBloom notes as the expansion of a filter that does not grow, unless it is told otherwise.
const DEFAULT_EXPANSION: u32 = 2;

/// The layout that was asked for, or that of the configuration.
fn layout_of(name: Option<LayoutName>, seed: Option<u64>, noted_expansion: u32) -> Result<Layout, Error> {
    match (name.unwrap_or_else(config::layout), seed) {
        (LayoutName::Native, seed) => Ok(Layout::Native { seed: seed.unwrap_or_else(random_seed) }),
        (LayoutName::Classic, None) => Ok(Layout::Classic { noted_expansion }),
        (LayoutName::Classic, Some(_)) => Err(Error::ClassicSeed),
    }
}

/// Creates the filter of a key that has none, and tells the replicas every parameter of it: theirs may have other
/// defaults, and a seed cannot be guessed. For a classic filter it does so in a way that RedisBloom understands, too, for a
/// native one in a way that RedisBloom refuses.
pub fn create(ctx: &Context, name: Arg, key: &mut WriteKey, params: Params) -> Result<(), Error> {
    let filter = memory::new_filter(ctx, params)?;
    let words = match params.layout {
        Layout::Native { seed } => native_words(params, seed, &[]),
        Layout::Counting { seed } => native_words(params, seed, &["COUNTING"]),
        Layout::Classic { .. } => {
            let header = memory::encode_header(ctx, &filter)?;
            key.create(filter)?;
            replicate_header(ctx, name, &header);
            return Ok(());
        }
    };
    key.create(filter)?;
    let strings: Vec<_> = words.iter().map(|word| ctx.string(word)).collect();
    let strings: Vec<_> = strings.iter().map(|string| string.as_raw()).collect();
    ctx.replicate(c"BF.RESERVE", name, &strings);
    Ok(())
}

/// The arguments that create a native or counting filter, whatever the configuration is.
fn native_words(params: Params, seed: u64, flags: &[&str]) -> Vec<Vec<u8>> {
    let mut words = vec![params.error_rate.get().to_string(), params.capacity.to_string()];
    match params.growth {
        Growth::Fixed => words.push("NONSCALING".to_owned()),
        Growth::By(expansion) => words.extend(["EXPANSION".to_owned(), expansion.to_string()]),
    }
    words.extend(flags.iter().map(|&flag| flag.to_owned()));
    let options = [("SEED", seed.to_string()), ("LAYOUT", LayoutName::Native.to_string())];
    words.extend(options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
    words.into_iter().map(String::into_bytes).collect()
}

/// A seed that nobody can guess, from the server's own source.
fn random_seed() -> u64 {
    let mut seed = [0; 8];
    call!(RedisModule_GetRandomBytes(seed.as_mut_ptr(), seed.len()));
    u64::from_ne_bytes(seed)
}

pub fn positive(number: i64) -> Option<NonZeroU64> {
    u64::try_from(number).ok().and_then(NonZeroU64::new)
}

/// Notes an option that may be given once.
pub fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::RepeatedArgument),
    }
}

/// Notes a flag that may be given once.
pub fn once(flag: &mut bool) -> Result<(), Error> {
    if std::mem::replace(flag, true) { Err(Error::RepeatedArgument) } else { Ok(()) }
}
