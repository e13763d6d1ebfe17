//! The options that create a filter, and the options of additions. [`reserve`](super::reserve) and [`add`](super::add)
//! parse them.

use std::num::{NonZeroU32, NonZeroU64};

use super::query::time_for;
use crate::configuration::{self, LayoutName};
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{
    CreateParams, DEFAULT_SLICES, ErrorRate, FilterKind, Growth, InsertOptions, Layout, MAX_LENGTH, OnDuplicate,
    SLICES, Window,
};

/// The options of a command that may create a filter. An option that is not given has its default.
#[derive(Default)]
pub(super) struct CreateOptions {
    pub capacity: Option<NonZeroU64>,
    pub error_rate: Option<ErrorRate>,
    pub expansion: Option<Expansion>,
    pub nonscaling: bool,
    pub counting: bool,
    pub window: WindowOptions,
    pub seed: Option<u64>,
    pub layout: Option<LayoutName>,
    /// The time at which the key expires, in milliseconds since 1970. It may be over, as in the server's SET.
    pub expires_at: Option<i64>,
}

/// The options of a filter that forgets.
#[derive(Default)]
pub(super) struct WindowOptions {
    /// The window, in milliseconds.
    length: Option<NonZeroU64>,
    slices: Option<u8>,
    refresh: bool,
    rolling: bool,
}

impl WindowOptions {
    /// Parses an option if it is one of these. Returns the number of arguments that it has, or 0 if it is another
    /// option.
    pub(super) fn take<'a>(&mut self, option: Arg, value: impl FnOnce() -> Option<Arg<'a>>) -> Result<usize, Error> {
        let number = || value().and_then(Arg::unsigned);
        if option.is("WINDOW") {
            let length = number().and_then(milliseconds).filter(|length| length.get() <= MAX_LENGTH);
            set_once(&mut self.length, length.ok_or(Error::WindowRange)?)?;
            Ok(2)
        } else if option.is("SLICES") {
            let slices = number().and_then(|slices| u8::try_from(slices).ok()).filter(|slices| SLICES.contains(slices));
            set_once(&mut self.slices, slices.ok_or(Error::SlicesRange)?)?;
            Ok(2)
        } else if option.is("REFRESH") {
            flag_once(&mut self.refresh)?;
            Ok(1)
        } else if option.is("ROLLING") {
            flag_once(&mut self.rolling)?;
            Ok(1)
        } else {
            Ok(0)
        }
    }

    fn is_given(&self) -> bool {
        self.length.is_some() || self.slices.is_some() || self.refresh || self.rolling
    }

    /// Returns the window, or `None` if the filter does not forget.
    fn window(&self) -> Result<Option<Window>, Error> {
        let &WindowOptions { length, slices, refresh, rolling } = self;
        let window = Window { length, slices: slices.unwrap_or(DEFAULT_SLICES), refresh, rolling };
        if self.is_given() { window.checked().map(Some).ok_or(Error::NoWindow) } else { Ok(None) }
    }

    /// Rejects options that contradict an existing filter.
    fn check_existing(&self, filter: &Filter) -> Result<(), Error> {
        let is_like = |window: Window| {
            self.length.is_none_or(|length| window.length == Some(length))
                && self.slices.is_none_or(|slices| window.slices == slices)
                && (window.refresh || !self.refresh)
                && (window.rolling || !self.rolling)
        };
        let agrees = filter.parameters().window.is_some_and(is_like);
        if agrees || !self.is_given() { Ok(()) } else { Err(Error::OtherWindow) }
    }
}

/// Converts seconds to milliseconds.
fn milliseconds(seconds: u64) -> Option<NonZeroU64> {
    seconds.checked_mul(1000).and_then(NonZeroU64::new)
}

/// The time to live and the time of addition of a command's items, for filters that forget.
#[derive(Clone, Copy, Default)]
pub(super) struct Timing {
    /// The time to live, in milliseconds; by default the filter's window.
    ttl: Option<NonZeroU64>,
    /// The time of addition, in milliseconds since 1970; by default now. Masters and append-only files give it.
    at: Option<u64>,
}

impl Timing {
    /// Parses an option if it is one of these. Returns the number of arguments that it has, or 0 if it is another
    /// option.
    pub(super) fn take<'a>(
        &mut self,
        ctx: &Context,
        option: Arg,
        value: impl FnOnce() -> Option<Arg<'a>>,
    ) -> Result<usize, Error> {
        let number = || value().and_then(Arg::unsigned);
        if option.is("TTL") {
            set_once(&mut self.ttl, number().and_then(milliseconds).ok_or(Error::TtlRange)?)?;
            Ok(2)
        } else if option.is("AT") {
            let is_past = |&time: &u64| ctx.is_replicated_or_loading() || time <= ctx.now();
            set_once(&mut self.at, number().filter(is_past).ok_or(Error::BadTime)?)?;
            Ok(2)
        } else {
            Ok(0)
        }
    }

    /// Returns true if a time to live was given.
    pub(super) fn has_ttl(&self) -> bool {
        self.ttl.is_some()
    }

    /// Rejects a time to live that a filter with this window does not support.
    fn check(&self, window: Option<Window>) -> Result<(), Error> {
        let Some(ttl) = self.ttl else { return Ok(()) };
        match window {
            Some(Window { length: Some(length), rolling: false, .. }) if ttl <= length => Ok(()),
            Some(Window { length: Some(_), rolling: false, .. }) => Err(Error::TtlRange),
            _ => Err(Error::TtlWithoutWindow),
        }
    }

    /// Rejects a time to live that an existing filter does not support.
    pub(super) fn check_existing(&self, filter: &Filter) -> Result<(), Error> {
        self.check(filter.parameters().window)
    }

    /// Rejects a time to live that a filter created with `options` does not support.
    pub(super) fn check_new(&self, options: &CreateOptions) -> Result<(), Error> {
        self.check(options.window.window()?)
    }

    /// Returns the options with which items are inserted into a filter.
    pub(super) fn insert_options(&self, ctx: &Context, filter: &Filter, on_duplicate: OnDuplicate) -> InsertOptions {
        let now = self.at.unwrap_or_else(|| time_for(ctx, filter));
        // An item that is new to the master may be a false positive here, if the master lacked memory and split its
        // table in another way. Refreshing makes both remember it equally long.
        let refresh = filter.windowed().is_some() && ctx.is_replicated_or_loading();
        InsertOptions { on_duplicate, now, lifetime: self.ttl, refresh }
    }

    /// Returns the arguments of BF.INSERT that replicate additions at `time`, up to and including ITEMS.
    pub(super) fn arguments(&self, time: u64) -> Vec<String> {
        let ttl = self.ttl.map(|ttl| ("TTL", ttl.get() / 1000));
        let options = std::iter::once(("AT", time)).chain(ttl);
        options.flat_map(|(name, value)| [name.to_owned(), value.to_string()]).chain(["ITEMS".to_owned()]).collect()
    }
}

/// An option that sets the time at which a key expires, as in the server's own commands.
#[derive(Clone, Copy)]
pub(super) struct ExpireOption {
    /// The unit of its value, in milliseconds.
    unit: i64,
    /// True if its value counts from now, false if from 1970.
    from_now: bool,
}

/// The value of `EXPANSION n`.
#[derive(Clone, Copy)]
pub(super) enum Expansion {
    /// The filter does not grow, as with NONSCALING: `n` is 0.
    None,
    By(NonZeroU32),
}

/// A parsed BF.INSERT.
pub(super) struct InsertRequest<'a> {
    pub options: CreateOptions,
    pub create: bool,
    pub on_duplicate: OnDuplicate,
    pub timing: Timing,
    pub items: Args<'a>,
}

impl Expansion {
    /// Returns the expansion, or `None` unless it is from 0 to `2^32 - 1`.
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

    /// Returns the option with this name, or `None` if the argument is something else.
    pub(super) fn of(argument: Arg) -> Option<ExpireOption> {
        ExpireOption::ALL.into_iter().find(|(name, _)| argument.is(name)).map(|(_, option)| option)
    }

    /// Returns the time at which the key expires, in milliseconds since 1970, given the option's value.
    pub(super) fn expires_at(self, server: &Server, value: Arg) -> Result<i64, Error> {
        let start = if self.from_now { server.milliseconds() } else { 0 };
        let number = value.integer().filter(|&number| number > 0);
        number.and_then(|number| number.checked_mul(self.unit)?.checked_add(start)).ok_or(Error::BadExpireTime)
    }
}

impl CreateOptions {
    /// Rejects options that contradict an existing filter. Capacity, error rate, growth and expiration only apply to
    /// the creation: clients repeat them with every command.
    pub(super) fn check_existing(&self, filter: &Filter) -> Result<(), Error> {
        let kind = filter.kind();
        if self.layout.is_some_and(|layout| (layout == LayoutName::Classic) != (kind == FilterKind::Classic)) {
            return Err(Error::OtherLayout);
        }
        if self.counting && kind != FilterKind::Counting {
            return Err(Error::OtherCounting);
        }
        if self.seed.is_some() && self.seed != filter.seed() {
            return Err(Error::OtherSeed);
        }
        self.window.check_existing(filter)
    }

    /// Returns the parameters of the filter, with defaults from the configuration.
    pub(super) fn params(&self, server: &Server) -> Result<CreateParams, Error> {
        let window = self.window.window()?;
        let is_rolling = window.is_some_and(|window| window.rolling);
        if is_rolling && (self.expansion.is_some() || self.nonscaling) {
            return Err(Error::RollingGrows);
        }
        if window.is_some() && (self.counting || self.layout == Some(LayoutName::Classic)) {
            return Err(Error::WindowedOther);
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
                _ if self.nonscaling || is_rolling => Growth::Fixed,
                None => configuration::growth(),
                Some(Expansion::None) => Growth::Fixed,
                Some(Expansion::By(factor)) => Growth::By(factor),
            },
            layout: match (self.layout, self.counting, window) {
                (_, _, Some(window)) => Layout::Windowed { seed: seed(), window },
                (Some(LayoutName::Classic), true, None) => return Err(Error::ClassicCounting),
                (_, true, None) => Layout::Counting { seed: seed() },
                (layout, false, None) => match layout.unwrap_or_else(configuration::layout) {
                    LayoutName::Native => Layout::Native { seed: seed() },
                    LayoutName::Classic if self.seed.is_some() => return Err(Error::ClassicSeed),
                    LayoutName::Classic => Layout::Classic { stored_expansion },
                },
            },
        })
    }
}

/// The expansion that RedisBloom stores for a filter that does not grow, unless the client gave another.
const DEFAULT_EXPANSION: u32 = 2;

/// Returns the number, or `None` unless it is above 0.
pub(super) fn positive(number: i64) -> Option<NonZeroU64> {
    u64::try_from(number).ok().and_then(NonZeroU64::new)
}

/// Sets an option, which may be given only once.
pub(super) fn set_once<T>(place: &mut Option<T>, value: T) -> Result<(), Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::RepeatedArgument),
    }
}

/// Sets a flag, which may be given only once.
pub(super) fn flag_once(flag: &mut bool) -> Result<(), Error> {
    if std::mem::replace(flag, true) { Err(Error::RepeatedArgument) } else { Ok(()) }
}
