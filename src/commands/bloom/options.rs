//! What the options of a command on Bloom filters mean together: the filter to create, or how to add items.

use std::num::NonZeroU64;

use crate::commands::query::time_for;
use crate::configuration;
use crate::configuration::bloom::{BloomLayout, RedisBloomVersion};
use crate::reply_error::Error;
use crate::server::{Context, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{
    CreateParams, DEFAULT_SLICES, ErrorRate, FilterKind, InsertOptions, OnDuplicate, SEED_BYTES, Window,
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
    pub kinds: AskedKinds,
    /// The time for which a filter remembers its items, in milliseconds.
    pub window: Option<NonZeroU64>,
    pub slices: Option<u8>,
    pub refresh: bool,
    pub rolling: bool,
    pub seed: Option<u64>,
    /// The seed of a valkey filter.
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
pub(super) enum AskedKind {
    /// All kinds of our own: LAYOUT native may be combined with options for another of them.
    Native,
    Counting,
    Windowed,
    Classic,
    Valkey,
}

impl AskedKind {
    const ALL: [AskedKind; 5] =
        [AskedKind::Native, AskedKind::Counting, AskedKind::Windowed, AskedKind::Classic, AskedKind::Valkey];

    /// Returns true if a filter is of this kind.
    pub(super) fn is_kind_of(self, filter: &Filter) -> bool {
        let kind = filter.kind();
        match self {
            AskedKind::Native => kind.is_own(),
            AskedKind::Counting => kind == FilterKind::Counting,
            AskedKind::Windowed => kind == FilterKind::Windowed,
            AskedKind::Classic => kind == FilterKind::Classic,
            AskedKind::Valkey => kind == FilterKind::Valkey,
        }
    }
}

impl From<BloomLayout> for AskedKind {
    fn from(layout: BloomLayout) -> AskedKind {
        match layout {
            BloomLayout::Native => AskedKind::Native,
            BloomLayout::Classic => AskedKind::Classic,
            BloomLayout::Valkey => AskedKind::Valkey,
        }
    }
}

/// The kinds of filters that options ask for.
#[derive(Clone, Copy, Default)]
pub(super) struct AskedKinds([bool; AskedKind::ALL.len()]);

impl AskedKinds {
    fn add(&mut self, kind: AskedKind) {
        self.0[kind as usize] = true;
    }

    pub(super) fn has(self, kind: AskedKind) -> bool {
        self.0[kind as usize]
    }

    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = AskedKind> {
        AskedKind::ALL.into_iter().filter(move |&kind| self.has(kind))
    }
}

/// The maximum error rate of filters in Redis 8.
const REDIS_8_MAX_RATE: ErrorRate = ErrorRate::new(0.25).unwrap();

impl Options {
    /// Makes the filter classic, and caps its error rate as the RedisBloom that wrote the stream does.
    pub(super) fn of_redisbloom(mut self) -> Options {
        self.error_rate = match configuration::bloom::redisbloom_version() {
            RedisBloomVersion::RedisBloom2 => self.error_rate,
            RedisBloomVersion::Redis8 => {
                let rate = self.error_rate.unwrap_or_else(configuration::bloom::error_rate);
                Some(if rate > REDIS_8_MAX_RATE { REDIS_8_MAX_RATE } else { rate })
            }
        };
        self.kinds.add(AskedKind::Classic);
        self
    }

    /// Asks for a kind, as the last step of setting an option.
    pub(super) fn ask_for(&mut self, kind: AskedKind) -> Result<(), Error> {
        self.kinds.add(kind);
        Ok(())
    }

    /// Returns the window of the filter, or `None` if it does not forget.
    pub(super) fn window(&self) -> Result<Option<Window>, Error> {
        let &Options { window: length, slices, refresh, rolling, .. } = self;
        let window = Window { length, slices: slices.unwrap_or(DEFAULT_SLICES), refresh, rolling };
        let forgets = self.kinds.has(AskedKind::Windowed);
        if forgets { window.checked().map(Some).ok_or(Error::NoWindow) } else { Ok(None) }
    }

    /// Rejects a time to live that a filter with this window does not support.
    pub(super) fn check_ttl(&self, window: Option<Window>) -> Result<(), Error> {
        let Some(ttl) = self.ttl else { return Ok(()) };
        match window {
            Some(Window { length: Some(length), rolling: false, .. }) if ttl <= length => Ok(()),
            Some(Window { length: Some(_), rolling: false, .. }) => Err(Error::TtlRange),
            _ => Err(Error::TtlWithoutWindow),
        }
    }

    /// Returns the kind of the filter: the one that the options ask for, or that of the configuration. Only the first
    /// kind, [`Native`](AskedKind::Native), may be combined with another.
    pub(super) fn kind(&self) -> AskedKind {
        self.kinds.iter().next_back().unwrap_or_else(|| configuration::bloom::layout().into())
    }

    /// Returns true if the options ask for a valkey filter.
    pub(super) fn is_valkey(&self) -> bool {
        self.kinds.has(AskedKind::Valkey)
    }

    /// Rejects options that exclude each other.
    pub(super) fn check_contradictions(&self, kind: AskedKind) -> Result<(), Error> {
        let asks_for_growth = self.expansion.is_some() || self.nonscaling;
        let contradictions = [
            (self.rolling && asks_for_growth, Error::RollingGrows),
            (self.kinds.iter().filter(|&kind| kind != AskedKind::Native).count() > 1, Error::TwoKinds),
            (kind == AskedKind::Classic && self.seed.is_some(), Error::ClassicSeed),
            (kind == AskedKind::Valkey && self.kinds.has(AskedKind::Native), Error::TwoKinds),
            (kind == AskedKind::Valkey && self.seed.is_some(), Error::ValkeySeed),
            (self.scales_to.is_some() && self.nonscaling, Error::NonscalingScales),
        ];
        let given = contradictions.into_iter().find(|&(is_given, _)| is_given);
        given.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Rejects a filter that cannot grow as far as the options demand. A master has checked that.
    pub(super) fn check_scale(&self, server: &Server, params: &CreateParams) -> Result<(), Error> {
        let Some(items) = self.scales_to.filter(|_| !server.is_replicated_or_loading()) else { return Ok(()) };
        let limit = configuration::filter_memory_limit();
        match params.predict(items.get()) {
            Ok(prediction) if limit == 0 || prediction.memory <= limit => Ok(()),
            Ok(_) | Err(oxbloom_filter::Error::OutOfMemory) => Err(Error::ScaleMemory),
            Err(_) => Err(Error::ScaleRate),
        }
    }

    /// Returns the options with which items are inserted into a filter.
    pub(super) fn insert_options(&self, ctx: &Context, filter: &Filter) -> InsertOptions {
        let on_duplicate = if self.skip_duplicates { OnDuplicate::Skip } else { OnDuplicate::Count };
        let now = self.at.unwrap_or_else(|| time_for(ctx, filter));
        // An item that is new to the master may be a false positive here, if the master lacked memory and split its
        // table in another way. Refreshing makes both remember it equally long.
        let is_replay = ctx.is_replicated_or_loading();
        let refresh = filter.forgets() && is_replay;
        InsertOptions { on_duplicate, now, lifetime: self.ttl, refresh, is_replay }
    }

    /// Returns the options that replicate additions at `time`.
    pub(super) fn replicated_additions(&self, time: u64) -> Vec<String> {
        let ttl = self.ttl.map(|ttl| ("TTL", ttl.get() / 1000));
        let options = std::iter::once(("AT", time)).chain(ttl);
        options.flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect()
    }
}
