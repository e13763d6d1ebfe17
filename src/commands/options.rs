//! What the options that create a filter mean. Their words are parsed in [`reserve`](super::reserve) and
//! [`add`](super::add).

use std::num::{NonZeroU32, NonZeroU64};

use crate::configuration::{self, LayoutName};
use crate::reply_error::Error;
use crate::server::{Arg, Args, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CreateParams, ErrorRate, FilterKind, Growth, Layout, OnDuplicate};

/// The options of a command that may create a filter. What is not given is by default.
#[derive(Default)]
pub(super) struct CreateOptions {
    pub capacity: Option<NonZeroU64>,
    pub error_rate: Option<ErrorRate>,
    pub expansion: Option<Expansion>,
    pub nonscaling: bool,
    pub counting: bool,
    pub seed: Option<u64>,
    pub layout: Option<LayoutName>,
    /// When the key expires, in milliseconds since 1970.
    pub expires_at: Option<i64>,
}

/// An option that says when a key expires, as the server's own commands have it.
#[derive(Clone, Copy)]
pub(super) struct ExpireOption {
    /// The milliseconds of its unit.
    unit: i64,
    /// True if it counts from now on, and not from 1970 on.
    from_now: bool,
}

/// The growth that `EXPANSION n` asks for.
#[derive(Clone, Copy)]
pub(super) enum Expansion {
    /// None, as with NONSCALING: `n` is 0.
    None,
    By(NonZeroU32),
}

/// A parsed BF.INSERT.
pub(super) struct InsertRequest<'a> {
    pub options: CreateOptions,
    pub create: bool,
    pub on_duplicate: OnDuplicate,
    pub items: Args<'a>,
}

impl Expansion {
    /// Returns an expansion from 0 to `2^32 - 1`.
    pub(super) fn of(factor: i64) -> Option<Expansion> {
        u32::try_from(factor).ok().map(|factor| NonZeroU32::new(factor).map_or(Expansion::None, Expansion::By))
    }
}

impl ExpireOption {
    const ALL: [(&str, ExpireOption); 4] = [
        ("EX", ExpireOption { unit: 1000, from_now: true }),
        ("PX", ExpireOption { unit: 1, from_now: true }),
        ("EXAT", ExpireOption { unit: 1000, from_now: false }),
        ("PXAT", ExpireOption { unit: 1, from_now: false }),
    ];

    /// Returns the option that a word is, if it is one.
    pub(super) fn of(word: Arg) -> Option<ExpireOption> {
        ExpireOption::ALL.into_iter().find(|(name, _)| word.is(name)).map(|(_, option)| option)
    }

    /// Returns when the key expires, in milliseconds since 1970, given the option's value.
    pub(super) fn expires_at(self, server: &Server, value: Arg) -> Result<i64, Error> {
        let start = if self.from_now { server.milliseconds() } else { 0 };
        let number = value.integer().filter(|&number| number > 0);
        number.and_then(|number| number.checked_mul(self.unit)?.checked_add(start)).ok_or(Error::BadExpireTime)
    }
}

impl CreateOptions {
    /// Rejects options that contradict a filter that exists. Capacity, error rate, growth and time to live are for its
    /// creation alone: clients repeat them with every command.
    pub(super) fn check_existing(&self, filter: &Filter) -> Result<(), Error> {
        let layout = match filter.kind() {
            FilterKind::Native | FilterKind::Counting => LayoutName::Native,
            FilterKind::Classic => LayoutName::Classic,
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

    /// Returns the parameters of the filter, with defaults from the configuration. A key that would have expired
    /// already is an error, unless a master or a file says so: time went by since.
    pub(super) fn params(&self, server: &Server) -> Result<CreateParams, Error> {
        let is_over = self.expires_at.is_some_and(|time| time <= server.milliseconds());
        if is_over && !server.is_replicated_or_loading() {
            return Err(Error::BadExpireTime);
        }
        let stored_expansion = match self.expansion {
            None => DEFAULT_EXPANSION,
            Some(Expansion::None) => 0,
            Some(Expansion::By(factor)) => factor.get(),
        };
        let seed = || self.seed.unwrap_or_else(|| server.random());
        Ok(CreateParams {
            capacity: self.capacity.unwrap_or_else(configuration::initial_size),
            error_rate: self.error_rate.unwrap_or_else(configuration::error_rate),
            growth: match self.expansion {
                _ if self.nonscaling => Growth::Fixed,
                None => configuration::growth(),
                Some(Expansion::None) => Growth::Fixed,
                Some(Expansion::By(factor)) => Growth::By(factor),
            },
            layout: match (self.layout, self.counting) {
                (Some(LayoutName::Classic), true) => return Err(Error::ClassicCounting),
                (_, true) => Layout::Counting { seed: seed() },
                (layout, false) => match layout.unwrap_or_else(configuration::layout) {
                    LayoutName::Native => Layout::Native { seed: seed() },
                    LayoutName::Classic if self.seed.is_some() => return Err(Error::ClassicSeed),
                    LayoutName::Classic => Layout::Classic { stored_expansion },
                },
            },
        })
    }
}

/// The expansion that RedisBloom stores for a filter that does not grow, unless it is told otherwise.
const DEFAULT_EXPANSION: u32 = 2;

pub(super) fn positive(number: i64) -> Option<NonZeroU64> {
    u64::try_from(number).ok().and_then(NonZeroU64::new)
}

/// Sets an option that may be given once.
pub(super) fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::RepeatedArgument),
    }
}

/// Sets a flag that may be given once.
pub(super) fn flag_once(flag: &mut bool) -> Result<(), Error> {
    if std::mem::replace(flag, true) { Err(Error::RepeatedArgument) } else { Ok(()) }
}
