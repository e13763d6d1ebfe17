//! The options of the commands that create Bloom filters or add to them, one [row](option_row) each, and the kinds of
//! filters that they ask for.
//!
//! To add an option, add its row and the field of [`Options`] that it sets here, its [error](crate::reply_error), and
//! what it means: for the filter to [create](super::creation), or for the items to [add](super::add). An option that
//! asks for another kind needs that [kind](BloomKind) here, and nothing in [`creation`](super::creation).

use std::num::NonZeroU64;

use super::packing;
use crate::commands::declaration::{Argument, ArgumentKind};
use crate::commands::items::ITEMS;
use crate::commands::option_row::{self, Given, OptionRow, expiry_row, row, set, switch_on};
use crate::configuration;
use crate::configuration::bloom::LAYOUT_NAMES;
use crate::family::{Dialect, Verb};
use crate::reply_error::Error;
use crate::server::{Args, Context, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::limits::{MAX_LENGTH, SLICES};
use oxbloom_filter::internals::{
    DEFAULT_SLICES, DEFAULT_STORED_EXPANSION, ErrorRate, FIXED_SEED, Kind, KindParams, SEED_BYTES, Window,
};

/// The options of a command that creates a filter or adds items. An option that is not given has its default.
#[derive(Default)]
pub(super) struct Options {
    pub capacity: Option<NonZeroU64>,
    pub error_rate: Option<ErrorRate>,
    /// The factor by which the filter grows; 0 if it does not grow.
    pub expansion: Option<u32>,
    pub nonscaling: bool,
    pub nocreate: bool,
    /// The kind that LAYOUT asks for.
    pub layout: Option<BloomKind>,
    pub counting: bool,
    /// The time for which a filter remembers its items, in milliseconds.
    pub window: Option<NonZeroU64>,
    pub slices: Option<u8>,
    pub refresh: bool,
    pub rolling: bool,
    pub seed: Option<u64>,
    pub valkey_seed: Option<[u8; SEED_BYTES]>,
    /// The ratio of the error rates of successive layers of a valkey filter.
    pub tightening: Option<ErrorRate>,
    /// The number of items for which the filter must be able to grow.
    pub scales_to: Option<NonZeroU64>,
    /// The time at which the key expires, in milliseconds since 1970. It may be over, as in the server's SET.
    pub expires_at: Option<i64>,
    /// True if an item that a counting filter already contains is not counted again.
    pub skip_duplicates: bool,
    /// The time to live of the items, in milliseconds; by default the filter's window.
    pub ttl: Option<NonZeroU64>,
    /// The time of addition, in milliseconds since 1970; by default now. Masters and append-only files give it.
    pub at: Option<u64>,
    /// True if the reply to packed items is the number of new ones.
    pub count: bool,
    /// The first error for a value that is out of range, if clients get it after all others.
    pub out_of_range: Option<Error>,
}

/// A kind of Bloom filters that options can ask for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BloomKind {
    /// All kinds of our own: LAYOUT native may be combined with options for another of them.
    Native,
    Counting,
    Windowed,
    Classic,
    Valkey,
}

/// The kinds that LAYOUT chooses, in the order of [`LAYOUT_NAMES`].
const LAYOUTS: [BloomKind; LAYOUT_NAMES.len()] = [BloomKind::Native, BloomKind::Classic, BloomKind::Valkey];

impl BloomKind {
    pub(super) const ALL: [BloomKind; 5] =
        [BloomKind::Native, BloomKind::Counting, BloomKind::Windowed, BloomKind::Classic, BloomKind::Valkey];

    pub(super) fn has(self, filter: &Filter) -> bool {
        let kind = filter.kind();
        match self {
            BloomKind::Native => kind.is_own(),
            BloomKind::Counting => kind == Kind::Counting,
            BloomKind::Windowed => kind == Kind::Windowed,
            BloomKind::Classic => kind == Kind::Classic,
            BloomKind::Valkey => kind == Kind::Valkey,
        }
    }

    /// Returns the parameters that only this kind has, or the error for options that exclude it.
    pub(super) fn params(self, options: &Options, server: &Server) -> Result<KindParams, Error> {
        let seed = || options.seed.unwrap_or_else(|| server.random());
        Ok(match self {
            BloomKind::Native => KindParams::Native { seed: seed() },
            BloomKind::Counting => KindParams::Counting { seed: seed() },
            BloomKind::Windowed => {
                KindParams::Windowed { seed: seed(), window: options.window()?.ok_or(Error::NoWindow)? }
            }
            BloomKind::Classic if options.seed.is_some() => return Err(Error::ClassicSeed),
            BloomKind::Classic => {
                KindParams::Classic { stored_expansion: options.expansion.unwrap_or(DEFAULT_STORED_EXPANSION) }
            }
            BloomKind::Valkey if options.asks_for(BloomKind::Native) => return Err(Error::TwoKinds),
            BloomKind::Valkey if options.seed.is_some() => return Err(Error::ValkeySeed),
            BloomKind::Valkey => KindParams::Valkey {
                seed: options.valkey_seed.unwrap_or_else(|| valkey_seed(server)),
                tightening: options.tightening.unwrap_or_else(configuration::bloom::tightening_ratio),
            },
        })
    }
}

/// Returns the seed of a new valkey filter: a random one, unless the configuration says otherwise.
fn valkey_seed(server: &Server) -> [u8; SEED_BYTES] {
    let mut seed = FIXED_SEED;
    if !configuration::bloom::uses_random_seeds() {
        return seed;
    }
    seed.as_chunks_mut().0.iter_mut().for_each(|word| *word = server.random().to_le_bytes());
    seed
}

impl Options {
    /// Returns true if LAYOUT or another option asks for a kind.
    pub(super) fn asks_for(&self, kind: BloomKind) -> bool {
        let by_others = match kind {
            BloomKind::Native | BloomKind::Classic => false,
            BloomKind::Counting => self.counting,
            BloomKind::Windowed => self.window.is_some() || self.slices.is_some() || self.refresh || self.rolling,
            BloomKind::Valkey => self.valkey_seed.is_some() || self.tightening.is_some() || self.scales_to.is_some(),
        };
        by_others || self.layout == Some(kind)
    }

    pub(super) fn asked_kinds(&self) -> impl DoubleEndedIterator<Item = BloomKind> {
        BloomKind::ALL.into_iter().filter(|&kind| self.asks_for(kind))
    }

    /// Returns the kind of the filter: the one that the options ask for, or that of the configuration. Only the first
    /// kind, [`Native`](BloomKind::Native), may be combined with another.
    pub(super) fn kind(&self) -> Result<BloomKind, Error> {
        if self.asked_kinds().filter(|&kind| kind != BloomKind::Native).count() > 1 {
            return Err(Error::TwoKinds);
        }
        Ok(self.asked_kinds().next_back().unwrap_or_else(|| LAYOUTS[configuration::bloom::layout()]))
    }

    /// Returns the window of the filter, or `None` if it does not forget.
    pub(super) fn window(&self) -> Result<Option<Window>, Error> {
        let &Options { window: length, slices, refresh, rolling, .. } = self;
        let window = Window { length, slices: slices.unwrap_or(DEFAULT_SLICES), refresh, rolling };
        let forgets = self.asks_for(BloomKind::Windowed);
        if forgets { window.checked().map(Some).ok_or(Error::NoWindow) } else { Ok(None) }
    }

    /// Returns the value of an option, or an error. BF.INSERT checks options in order, but in RedisBloom's dialect
    /// their ranges last.
    fn in_range<T>(&mut self, given: &Given, value: Result<T, Error>) -> Result<Option<T>, Error> {
        match value {
            Err(error @ (Error::InsertCapacityRange | Error::InsertRateRange | Error::InsertExpansionRange))
                if !given.grammar.is_valkey() =>
            {
                self.out_of_range.get_or_insert(error);
                Ok(None)
            }
            value => value.map(Some),
        }
    }
}

/// The options, in the order of COMMAND DOCS and of replication.
pub(super) static OPTIONS: &[OptionRow<Options>; 19] = &[
    OptionRow {
        set: |options, given| {
            let errors = [Error::InsertBadCapacity, Error::InsertCapacityRange];
            options.capacity = options.in_range(given, given.grammar.capacity(given.value, errors))?;
            Ok(())
        },
        ..insert_row(Argument::option(c"CAPACITY", c"capacity", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, given| {
            let rate = given.grammar.float(given.value).ok_or(Error::InsertBadErrorRate)?;
            options.error_rate = options.in_range(given, ErrorRate::new(rate).ok_or(Error::InsertRateRange))?;
            Ok(())
        },
        ..insert_row(Argument::option(c"ERROR", c"error_rate", ArgumentKind::Double))
    },
    OptionRow {
        missing: [Error::NoExpansion, Error::WrongArity],
        is_late: true,
        set: |options, given| {
            let factor = expansion(options, given);
            options.expansion = options.in_range(given, factor)?;
            Ok(())
        },
        replicated: |filter| filter.expansion().map(|expansion| expansion.to_string()),
        ..row(Argument::option(c"EXPANSION", c"expansion", ArgumentKind::Integer))
    },
    OptionRow {
        verbs: &[Verb::Insert, Verb::Addpacked],
        set: |options, _| switch_on(&mut options.nocreate),
        ..row(Argument::flag(c"NOCREATE", c"nocreate"))
    },
    OptionRow {
        set: |options, given| {
            // In valkey-bloom, the last of both options counts.
            options.expansion = options.expansion.filter(|_| !given.grammar.is_valkey());
            switch_on(&mut options.nonscaling)
        },
        // A rolling filter neither grows nor gets full, and BF.RESERVE rejects both options.
        replicated: |filter| (filter.expansion().is_none() && !has(filter, |window| window.rolling)).then(String::new),
        ..row(Argument::flag(c"NONSCALING", c"nonscaling"))
    },
    OptionRow {
        set: |options, _| switch_on(&mut options.counting),
        replicated: |filter| (filter.kind() == Kind::Counting).then(String::new),
        ..row(Argument::flag(c"COUNTING", c"counting"))
    },
    OptionRow {
        missing: [Error::WindowRange; 2],
        set: |options, given| {
            let length = given.value.unsigned().and_then(milliseconds).filter(|length| length.get() <= MAX_LENGTH);
            set(&mut options.window, length, Error::WindowRange)
        },
        replicated: |filter| Some((filter.parameters().window?.length?.get() / 1000).to_string()),
        ..row(Argument::option(c"WINDOW", c"seconds", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::SlicesRange; 2],
        set: |options, given| {
            let slices = given.value.unsigned().and_then(|slices| u8::try_from(slices).ok());
            set(&mut options.slices, slices.filter(|slices| SLICES.contains(slices)), Error::SlicesRange)
        },
        replicated: |filter| Some(filter.parameters().window?.slices.to_string()),
        ..row(Argument::option(c"SLICES", c"slices", ArgumentKind::Integer))
    },
    OptionRow {
        set: |options, _| switch_on(&mut options.refresh),
        replicated: |filter| has(filter, |window| window.refresh).then(String::new),
        ..row(Argument::flag(c"REFRESH", c"refresh"))
    },
    OptionRow {
        set: |options, _| switch_on(&mut options.rolling),
        replicated: |filter| has(filter, |window| window.rolling).then(String::new),
        ..row(Argument::flag(c"ROLLING", c"rolling"))
    },
    OptionRow {
        set: |options, given| {
            let ratio = given.grammar.float(given.value).ok_or(Error::BadTightening)?;
            set(&mut options.tightening, ErrorRate::new(ratio), Error::TighteningRange)
        },
        ..row(Argument::option(c"TIGHTENING", c"ratio", ArgumentKind::Double))
    },
    OptionRow {
        set: |options, given| {
            let items = given.grammar.capacity(given.value, [Error::BadCapacity, Error::CapacityRange])?;
            options.scales_to = Some(items);
            Ok(())
        },
        ..row(Argument::option(c"VALIDATESCALETO", c"items", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadSeed, Error::WrongArity],
        set: |options, given| {
            // A number has at most 20 digits.
            options.valkey_seed = given.value.bytes().try_into().ok();
            options.seed = given.value.unsigned();
            if options.valkey_seed.is_some() || options.seed.is_some() { Ok(()) } else { Err(Error::BadSeed) }
        },
        replicated: |filter| filter.seed().map(|seed| seed.to_string()),
        ..row(Argument::option(c"SEED", c"seed", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadLayout, Error::WrongArity],
        set: |options, given| {
            let layout = given.value.index_in(&LAYOUT_NAMES).map(|layout| LAYOUTS[layout]);
            set(&mut options.layout, layout, Error::BadLayout)
        },
        replicated: |_| Some(Kind::Native.name().to_string_lossy().into_owned()),
        ..row(Argument::option(c"LAYOUT", c"layout", ArgumentKind::OneOf(&LAYOUT_ARGUMENTS)))
    },
    expiry_row(|options, given| set(&mut options.expires_at, given.expires_at(), Error::BadExpireTime)),
    OptionRow { set: |options, _| switch_on(&mut options.skip_duplicates), ..adding_row(Argument::flag(c"NX", c"nx")) },
    OptionRow {
        missing: [Error::TtlRange; 2],
        set: |options, given| set(&mut options.ttl, given.value.unsigned().and_then(milliseconds), Error::TtlRange),
        ..adding_row(Argument::option(c"TTL", c"seconds", ArgumentKind::Integer))
    },
    OptionRow {
        missing: [Error::BadTime; 2],
        set: |options, given| {
            let is_past = |&time: &u64| given.ctx.is_replicated_or_loading() || time <= given.ctx.now();
            set(&mut options.at, given.value.unsigned().filter(is_past), Error::BadTime)
        },
        ..adding_row(Argument::option(c"AT", c"unix-time-milliseconds", ArgumentKind::UnixTime))
    },
    OptionRow { verbs: &[Verb::Addpacked], set: |options, _| switch_on(&mut options.count), ..row(packing::COUNT) },
];

static LAYOUT_ARGUMENTS: [Argument; LAYOUTS.len()] = {
    let [native, classic, valkey] = LAYOUT_NAMES;
    [Argument::token(native, native), Argument::token(classic, classic), Argument::token(valkey, valkey)]
};

/// Returns the row of an option that only BF.INSERT has, and that does nothing.
const fn insert_row(argument: Argument) -> OptionRow<Options> {
    OptionRow { verbs: &[Verb::Insert], ..row(argument) }
}

/// Returns the row of an option on the items to add, which does nothing.
const fn adding_row(argument: Argument) -> OptionRow<Options> {
    OptionRow { verbs: &[Verb::Insert, Verb::Addpacked], ..row(argument) }
}

fn expansion(options: &mut Options, given: &Given) -> Result<u32, Error> {
    let factor = given.grammar.integer(given.value);
    let (bad, out_of_range) = match given.verb {
        _ if given.grammar.is_valkey() => {
            if given.verb == Verb::Reserve && options.nonscaling {
                return Err(Error::WrongArity);
            }
            options.nonscaling = false;
            let factor = factor.and_then(|factor| u32::try_from(factor).ok()).filter(|&factor| factor > 0);
            return factor.ok_or(Error::BadExpansion);
        }
        Verb::Insert => (Error::InsertBadExpansion, Error::InsertExpansionRange),
        _ if given.value.is("NONSCALING") || options.nonscaling && factor != Some(0) => {
            return Err(Error::NonscalingExpands);
        }
        _ if factor.is_some_and(|factor| factor < 0) => (Error::BadExpansion, Error::ExpansionRange),
        _ => (Error::BadExpansion, Error::BadExpansion),
    };
    u32::try_from(factor.ok_or(bad)?).map_err(|_| out_of_range)
}

fn has(filter: &Filter, is_set: fn(Window) -> bool) -> bool {
    filter.parameters().window.is_some_and(is_set)
}

/// Parses the options of BF.INSERT, which start at argument 2. Also returns the items. In valkey-bloom's dialect, and
/// with its options, there may be none.
pub(super) fn parse_insert<'a>(ctx: &Context, args: Args<'a>) -> Result<(Options, Args<'a>), Error> {
    let ends = |token: &[u8]| ITEMS.starts_with(token);
    let (options, rest) = option_row::parse(ctx, OPTIONS, Verb::Insert, args, 2, ends)?;
    let items = rest.from(1);
    let may_lack_items =
        rest.is_empty() && (options.asks_for(BloomKind::Valkey) || ctx.dialect() == Dialect::ValkeyBloom);
    if items.is_empty() && !may_lack_items {
        return Err(Error::WrongArity);
    }
    options.out_of_range.map_or(Ok((options, items)), Err)
}

fn milliseconds(seconds: u64) -> Option<NonZeroU64> {
    seconds.checked_mul(1000).and_then(NonZeroU64::new)
}
