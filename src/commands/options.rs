//! What the options of a command mean together: the filter to create, or how to add items.

use std::num::{NonZeroU32, NonZeroU64};

use super::query::time_for;
use crate::configuration;
use crate::family::{CUCKOO, Dialect};
use crate::reply_error::Error;
use crate::server::{Context, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{
    CreateParams, CuckooSpec, DEFAULT_SLICES, DEFAULT_STORED_EXPANSION, ErrorRate, FIXED_SEED, FilterKind, Growth,
    InsertOptions, Layout, OnDuplicate, SEED_BYTES, Window,
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
    /// The number of slots in a bucket of a cuckoo filter.
    pub bucket_size: Option<u16>,
    /// The maximum number of fingerprints that move in a cuckoo filter to make room for another.
    pub max_iterations: Option<u16>,
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
}

/// The kinds of filters that options ask for. [`Native`](FilterKind::Native) stands for all kinds of our own: LAYOUT
/// native may be combined with options for another of them.
#[derive(Clone, Copy, Default)]
pub(super) struct AskedKinds([bool; FilterKind::ALL.len()]);

impl AskedKinds {
    pub(super) fn add(&mut self, kind: FilterKind) {
        self.0[kind as usize] = true;
    }

    fn has(self, kind: FilterKind) -> bool {
        self.0[kind as usize]
    }

    fn iter(self) -> impl DoubleEndedIterator<Item = FilterKind> {
        FilterKind::ALL.iter().copied().filter(move |&kind| self.has(kind))
    }
}

/// Returns the seed of a new valkey filter: a random one, unless the configuration says otherwise.
fn valkey_seed(server: &Server) -> [u8; SEED_BYTES] {
    let mut seed = FIXED_SEED;
    if !configuration::uses_random_seeds() {
        return seed;
    }
    seed.as_chunks_mut().0.iter_mut().for_each(|word| *word = server.random().to_le_bytes());
    seed
}

impl Options {
    /// Rejects options that contradict an existing filter. Capacity, error rate, growth and expiration only apply to
    /// the creation: clients repeat them with every command. In valkey-bloom's dialect, so does a valkey filter's seed.
    pub(super) fn check_existing(&self, ctx: &Context, filter: &Filter) -> Result<(), Error> {
        let kind = filter.kind();
        let is_other = |asked| match asked {
            FilterKind::Native => !kind.is_own(),
            // Compared below, with its parameters.
            FilterKind::Windowed => false,
            _ => kind != asked,
        };
        if self.kinds.iter().any(is_other) {
            return Err(if filter.cuckoo_spec().is_some() { Error::OtherLayout } else { Error::OtherKind });
        }
        let valkey_seed = || filter.valkey().map(|filter| filter.spec().seed);
        if self.seed.is_some() && self.seed != filter.seed()
            || self.valkey_seed.is_some() && self.valkey_seed != valkey_seed() && ctx.dialect() == Dialect::RedisBloom
        {
            return Err(Error::OtherSeed);
        }
        let window = filter.parameters().window;
        let is_like = |window: Window| {
            self.window.is_none_or(|length| window.length == Some(length))
                && self.slices.is_none_or(|slices| window.slices == slices)
                && (window.refresh || !self.refresh)
                && (window.rolling || !self.rolling)
        };
        if self.kinds.has(FilterKind::Windowed) && !window.is_some_and(is_like) {
            return Err(Error::OtherWindow);
        }
        self.check_ttl(window)
    }

    /// Returns the window of the filter, or `None` if it does not forget.
    fn window(&self) -> Result<Option<Window>, Error> {
        let &Options { window: length, slices, refresh, rolling, .. } = self;
        let window = Window { length, slices: slices.unwrap_or(DEFAULT_SLICES), refresh, rolling };
        let forgets = self.kinds.has(FilterKind::Windowed);
        if forgets { window.checked().map(Some).ok_or(Error::NoWindow) } else { Ok(None) }
    }

    /// Rejects a time to live that a filter with this window does not support.
    fn check_ttl(&self, window: Option<Window>) -> Result<(), Error> {
        let Some(ttl) = self.ttl else { return Ok(()) };
        match window {
            Some(Window { length: Some(length), rolling: false, .. }) if ttl <= length => Ok(()),
            Some(Window { length: Some(_), rolling: false, .. }) => Err(Error::TtlRange),
            _ => Err(Error::TtlWithoutWindow),
        }
    }

    /// Returns the kind of the filter: the one that the options ask for, or that of the configuration. Only the first
    /// kind, [`Native`](FilterKind::Native), may be combined with another.
    fn kind(&self) -> FilterKind {
        self.kinds.iter().next_back().unwrap_or_else(configuration::layout)
    }

    /// Returns true if the options ask for a valkey filter.
    pub(super) fn is_valkey(&self) -> bool {
        self.kinds.has(FilterKind::Valkey)
    }

    /// Rejects options that exclude each other.
    fn check_contradictions(&self, kind: FilterKind) -> Result<(), Error> {
        let asks_for_growth = self.expansion.is_some() || self.nonscaling;
        let contradictions = [
            (self.rolling && asks_for_growth, Error::RollingGrows),
            (self.kinds.iter().filter(|&kind| kind != FilterKind::Native).count() > 1, Error::TwoKinds),
            (kind == FilterKind::Classic && self.seed.is_some(), Error::ClassicSeed),
            (kind == FilterKind::Valkey && self.kinds.has(FilterKind::Native), Error::TwoKinds),
            (kind == FilterKind::Valkey && self.seed.is_some(), Error::ValkeySeed),
            (self.scales_to.is_some() && self.nonscaling, Error::NonscalingScales),
        ];
        let given = contradictions.into_iter().find(|&(is_given, _)| is_given);
        given.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Returns the parameters of the filter, with defaults from the configuration.
    pub(super) fn params(&self, ctx: &Context) -> Result<CreateParams, Error> {
        if *ctx.family == CUCKOO { self.cuckoo_params(ctx) } else { self.bloom_params(ctx) }
    }

    fn bloom_params(&self, server: &Server) -> Result<CreateParams, Error> {
        let window = self.window()?;
        self.check_ttl(window)?;
        let kind = self.kind();
        self.check_contradictions(kind)?;
        let seed = || self.seed.unwrap_or_else(|| server.random());
        let params = CreateParams {
            capacity: self.capacity.unwrap_or_else(configuration::initial_size),
            error_rate: self.error_rate.unwrap_or_else(configuration::error_rate),
            growth: match self.expansion {
                _ if self.nonscaling || self.rolling => Growth::Fixed,
                None => configuration::growth(),
                Some(factor) => NonZeroU32::new(factor).map_or(Growth::Fixed, Growth::By),
            },
            layout: match kind {
                FilterKind::Native => Layout::Native { seed: seed() },
                FilterKind::Counting => Layout::Counting { seed: seed() },
                // No option asks a Bloom filter for these.
                FilterKind::NativeCuckoo | FilterKind::Cuckoo => return Err(Error::Internal),
                FilterKind::Windowed => Layout::Windowed { seed: seed(), window: window.ok_or(Error::NoWindow)? },
                FilterKind::Classic => {
                    Layout::Classic { stored_expansion: self.expansion.unwrap_or(DEFAULT_STORED_EXPANSION) }
                }
                FilterKind::Valkey => Layout::Valkey {
                    seed: self.valkey_seed.unwrap_or_else(|| valkey_seed(server)),
                    tightening: self.tightening.unwrap_or_else(configuration::tightening_ratio),
                },
            },
        };
        self.check_scale(server, &params)?;
        Ok(params)
    }

    /// Rejects a filter that cannot grow as far as the options demand. A master has checked that.
    fn check_scale(&self, server: &Server, params: &CreateParams) -> Result<(), Error> {
        let Some(items) = self.scales_to.filter(|_| !server.is_replicated_or_loading()) else { return Ok(()) };
        let limit = configuration::filter_memory_limit();
        match params.predict(items.get()) {
            Ok(prediction) if limit == 0 || prediction.memory <= limit => Ok(()),
            Ok(_) | Err(oxbloom_filter::Error::OutOfMemory) => Err(Error::ScaleMemory),
            Err(_) => Err(Error::ScaleRate),
        }
    }

    fn cuckoo_params(&self, server: &Server) -> Result<CreateParams, Error> {
        let bucket_size = self.bucket_size.unwrap_or_else(configuration::cuckoo_bucket_size);
        let max_iterations = self.max_iterations.unwrap_or_else(configuration::cuckoo_max_iterations);
        let growth = NonZeroU32::new(self.expansion.unwrap_or_else(configuration::cuckoo_expansion));
        let growth = growth.map_or(Growth::Fixed, Growth::By);
        let min = NonZeroU64::new(2 * u64::from(bucket_size)).unwrap_or(NonZeroU64::MIN);
        let capacity = self.capacity.unwrap_or_else(|| configuration::cuckoo_initial_size().max(min));
        if capacity < min {
            return Err(Error::CuckooCapacity);
        }
        let spec = CuckooSpec::new(growth, bucket_size, max_iterations).map_err(|_| Error::CannotCreate)?;
        let is_classic = match self.kinds.iter().next() {
            Some(kind) => kind == FilterKind::Cuckoo,
            None => configuration::cuckoo_layout() == FilterKind::Classic,
        };
        if is_classic && self.seed.is_some() {
            return Err(Error::ClassicSeed);
        }
        if is_classic && self.error_rate.is_some() {
            return Err(Error::ClassicRate);
        }
        let error_rate = self.error_rate.unwrap_or_else(|| spec.error_rate());
        let layout = match is_classic {
            true => Layout::Cuckoo { spec },
            false => Layout::NativeCuckoo { seed: self.seed.unwrap_or_else(|| server.random()), spec },
        };
        Ok(CreateParams { error_rate, capacity, growth, layout })
    }

    /// Returns the options with which items are inserted into a filter.
    pub(super) fn insert_options(&self, ctx: &Context, filter: &Filter) -> InsertOptions {
        let on_duplicate = if self.skip_duplicates { OnDuplicate::Skip } else { OnDuplicate::Count };
        let now = self.at.unwrap_or_else(|| time_for(ctx, filter));
        // An item that is new to the master may be a false positive here, if the master lacked memory and split its
        // table in another way. Refreshing makes both remember it equally long.
        let is_replay = ctx.is_replicated_or_loading();
        let refresh = filter.windowed().is_some() && is_replay;
        InsertOptions { on_duplicate, now, lifetime: self.ttl, refresh, is_replay }
    }

    /// Returns the options that replicate additions at `time`.
    pub(super) fn replicated_additions(&self, time: u64) -> Vec<String> {
        let ttl = self.ttl.map(|ttl| ("TTL", ttl.get() / 1000));
        let options = std::iter::once(("AT", time)).chain(ttl);
        options.flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect()
    }
}
