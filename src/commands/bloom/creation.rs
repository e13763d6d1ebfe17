//! BF.RESERVE, and the Bloom filters that [options](super::options) create.

use std::iter;

use super::options::{BloomKind, OPTIONS, Options};
use super::redisbloom;
use crate::admission;
use crate::commands::creation::{Creation, create_empty, create_new, open_new};
use crate::commands::declaration::is_like;
use crate::commands::option_row::{self, Grammar};
use crate::configuration;
use crate::family::{Dialect, Verb};
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CreateParams, ErrorRate, Growth, ValkeySpec, Window};

/// `BF.RESERVE key error_rate capacity [option …]`, with [options](OPTIONS).
///
/// `BF.RESERVE key LIKE other` creates an empty filter that can be merged with `other`.
pub(super) fn reserve(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    if args.len() > 4 + option_row::max_arguments(OPTIONS, Verb::Reserve) {
        return Err(Error::WrongArity);
    }
    let name = args.at(1);
    if is_like(args) {
        return reserve_like(ctx, keyspace, name, args.at(3));
    }
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_reserve(args);
    let options = if is_foreign { redisbloom::reserve(args)? } else { parse(ctx, args)? };
    create_new(ctx, keyspace, name, &options)
}

fn reserve_like(ctx: &Context, keyspace: Keyspace, name: Arg, other: Arg) -> Result<(), Error> {
    let mut keys = open_new(ctx, keyspace, name)?.with_sources(ctx, iter::once(other))?;
    let (_, mut sources) = keys.filters();
    let other = sources.next().ok_or(Error::NotFound)?;
    let filter = admission::admitted(ctx, |admit| other.empty_like(admit), Error::creating)?;
    drop(sources);
    let mut keyspace = create_empty::<Options>(ctx, name, keys.close_sources(), filter)?;
    keyspace.notify_changed(ctx, name, Verb::Reserve);
    ctx.reply_ok();
    Ok(())
}

/// Parses `BF.RESERVE key error_rate capacity …` as clients and our own stream write it.
fn parse(ctx: &Context, args: Args) -> Result<Options, Error> {
    if args.at(2).is("LIKE") {
        return Err(Error::LikeAlone);
    }
    let grammar = Grammar::of(ctx);
    let error_rate = grammar.float(args.at(2)).ok_or(Error::BadErrorRate)?;
    let error_rate = ErrorRate::new(error_rate).ok_or(Error::RateRange)?;
    let capacity = grammar.capacity(args.at(3), [Error::BadCapacity, Error::CapacityRange])?;
    let (options, _) = option_row::parse(ctx, OPTIONS, Verb::Reserve, args, 4, |_| false)?;
    Ok(Options { capacity: Some(capacity), error_rate: Some(error_rate), ..options })
}

impl Creation for Options {
    fn of_stream() -> Options {
        Options::default().of_redisbloom()
    }

    /// Capacity, error rate, growth and expiration only apply to the creation: clients repeat them with every command.
    /// In valkey-bloom's dialect, so does a valkey filter's seed.
    fn check_existing(&self, ctx: &Context, filter: &Filter) -> Result<(), Error> {
        // The window is compared below, with its parameters.
        if self.asked_kinds().any(|asked| asked != BloomKind::Windowed && !asked.has(filter)) {
            return Err(Error::OtherKind);
        }
        let has_other_valkey_seed =
            self.valkey_seed.is_some() && self.valkey_seed != filter.valkey_spec().map(|spec| spec.seed);
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
        if self.asks_for(BloomKind::Windowed) && !window.is_some_and(is_like) {
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
        if self.rolling && (self.expansion.is_some() || self.nonscaling) {
            return Err(Error::RollingGrows);
        }
        let kind = self.kind()?.params(self, server)?;
        if self.scales_to.is_some() && self.nonscaling {
            return Err(Error::NonscalingScales);
        }
        let params = CreateParams {
            capacity: self.capacity.unwrap_or_else(configuration::bloom::initial_size),
            error_rate: self.error_rate.unwrap_or_else(configuration::bloom::error_rate),
            growth: match self.expansion {
                _ if self.nonscaling || self.rolling => Growth::Fixed,
                None => configuration::bloom::growth(),
                Some(factor) => Growth::of(factor),
            },
            kind,
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
        let &ValkeySpec { seed, tightening, .. } = filter.valkey_spec()?;
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

/// The maximum error rate of filters in Redis 8.
const REDIS_8_MAX_RATE: ErrorRate = ErrorRate::new(0.25).unwrap();

impl Options {
    /// Makes the filter classic, and caps its error rate as the RedisBloom that wrote the stream does.
    pub(super) fn of_redisbloom(mut self) -> Options {
        if configuration::bloom::has_redis_8_streams() {
            let rate = self.error_rate.unwrap_or_else(configuration::bloom::error_rate);
            self.error_rate = Some(if rate > REDIS_8_MAX_RATE { REDIS_8_MAX_RATE } else { rate });
        }
        self.layout = Some(BloomKind::Classic);
        self
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
}
