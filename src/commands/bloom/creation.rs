//! The Bloom filters that options create.

use std::num::NonZeroU32;

use super::option_rows::OPTIONS;
use super::options::{AskedKind, Options};
use crate::commands::creation::Creation;
use crate::commands::option_row;
use crate::configuration;
use crate::family::Dialect;
use crate::reply_error::Error;
use crate::server::{Context, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{
    CreateParams, DEFAULT_STORED_EXPANSION, FIXED_SEED, Growth, Layout, SEED_BYTES, Window,
};

/// Returns the seed of a new valkey filter: a random one, unless the configuration says otherwise.
fn valkey_seed(server: &Server) -> [u8; SEED_BYTES] {
    let mut seed = FIXED_SEED;
    if !configuration::bloom::uses_random_seeds() {
        return seed;
    }
    seed.as_chunks_mut().0.iter_mut().for_each(|word| *word = server.random().to_le_bytes());
    seed
}

impl Creation for Options {
    fn of_stream() -> Options {
        Options::default().of_redisbloom()
    }

    /// Capacity, error rate, growth and expiration only apply to the creation: clients repeat them with every command.
    /// In valkey-bloom's dialect, so does a valkey filter's seed.
    fn check_existing(&self, ctx: &Context, filter: &Filter) -> Result<(), Error> {
        // The window is compared below, with its parameters.
        if self.kinds.iter().any(|asked| asked != AskedKind::Windowed && !asked.is_kind_of(filter)) {
            return Err(Error::OtherKind);
        }
        let has_other_valkey_seed = self.valkey_seed.is_some() && self.valkey_seed != filter.valkey_seed();
        if self.seed.is_some() && self.seed != filter.seed()
            || has_other_valkey_seed && ctx.dialect() == Dialect::RedisBloom
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
        if self.kinds.has(AskedKind::Windowed) && !window.is_some_and(is_like) {
            return Err(Error::OtherWindow);
        }
        self.check_ttl(window)
    }

    fn may_create(&self) -> bool {
        !self.nocreate
    }

    fn params(&self, server: &Server) -> Result<CreateParams, Error> {
        let window = self.window()?;
        self.check_ttl(window)?;
        let kind = self.kind();
        self.check_contradictions(kind)?;
        let seed = || self.seed.unwrap_or_else(|| server.random());
        let params = CreateParams {
            capacity: self.capacity.unwrap_or_else(configuration::bloom::initial_size),
            error_rate: self.error_rate.unwrap_or_else(configuration::bloom::error_rate),
            growth: match self.expansion {
                _ if self.nonscaling || self.rolling => Growth::Fixed,
                None => configuration::bloom::growth(),
                Some(factor) => NonZeroU32::new(factor).map_or(Growth::Fixed, Growth::By),
            },
            layout: match kind {
                AskedKind::Native => Layout::Native { seed: seed() },
                AskedKind::Counting => Layout::Counting { seed: seed() },
                AskedKind::Windowed => Layout::Windowed { seed: seed(), window: window.ok_or(Error::NoWindow)? },
                AskedKind::Classic => {
                    Layout::Classic { stored_expansion: self.expansion.unwrap_or(DEFAULT_STORED_EXPANSION) }
                }
                AskedKind::Valkey => Layout::Valkey {
                    seed: self.valkey_seed.unwrap_or_else(|| valkey_seed(server)),
                    tightening: self.tightening.unwrap_or_else(configuration::bloom::tightening_ratio),
                },
            },
        };
        self.check_scale(server, &params)?;
        Ok(params)
    }

    fn expires_at(&self) -> Option<i64> {
        self.expires_at
    }

    fn replicated(filter: &Filter, expiry: Vec<String>) -> Vec<String> {
        let parameters = filter.parameters();
        let required = [parameters.error_rate.to_string(), parameters.capacity.to_string()];
        required.into_iter().chain(expiry).chain(option_row::replicated(OPTIONS, filter)).collect()
    }

    /// Returns the arguments with which valkey-bloom replicates the creation, if it is a valkey filter.
    fn replicated_foreign(filter: &Filter) -> Option<Vec<Vec<u8>>> {
        let (seed, tightening) = (filter.valkey_seed()?, filter.tightening()?);
        let parameters = filter.parameters();
        let mut arguments = Vec::new();
        let mut push = |name: &str, value: &[u8]| arguments.extend([name.as_bytes().to_vec(), value.to_vec()]);
        push("CAPACITY", parameters.capacity.to_string().as_bytes());
        push("ERROR", parameters.error_rate.to_string().as_bytes());
        push("TIGHTENING", tightening.get().to_string().as_bytes());
        push("SEED", &seed);
        match filter.expansion() {
            None => arguments.push(b"NONSCALING".to_vec()),
            Some(expansion) => push("EXPANSION", expansion.to_string().as_bytes()),
        }
        Some(arguments)
    }
}
