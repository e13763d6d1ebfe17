//! CF.RESERVE, and the cuckoo filters that [options](super::options) create.

use std::num::NonZeroU64;

use super::options::{OPTIONS, Options};
use super::redisbloom;
use crate::commands::creation::{Creation, create_new};
use crate::commands::option_row::{self, positive};
use crate::configuration;
use crate::configuration::cuckoo::CuckooLayout;
use crate::family::Verb;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CreateParams, CuckooSpec, Growth, KindParams};

/// `CF.RESERVE key capacity [option …]`, with [options](OPTIONS).
pub(super) fn reserve(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let is_foreign = ctx.is_replicated_or_loading() && !redisbloom::is_our_reserve(args);
    let options = if is_foreign { redisbloom::reserve(args)? } else { parse(ctx, args)? };
    create_new(ctx, keyspace, args.at(1), &options)
}

/// Parses `CF.RESERVE key capacity …` as clients and our own stream write it.
fn parse(ctx: &Context, args: Args) -> Result<Options, Error> {
    let capacity = args.at(2).integer().ok_or(Error::InsertBadCapacity)?;
    let (options, rest) = option_row::parse(ctx, OPTIONS, Verb::Reserve, args, 3, |_| false)?;
    debug_assert!(rest.is_empty(), "all arguments are options");
    let capacity = positive(capacity).ok_or(Error::CuckooCapacity)?;
    Ok(Options { capacity: Some(capacity), ..options })
}

impl Options {
    /// Makes the filter one of RedisBloom's.
    pub(super) fn of_redisbloom(self) -> Options {
        Options { layout: Some(CuckooLayout::Classic), ..self }
    }
}

impl Creation for Options {
    fn of_stream() -> Options {
        Options::default().of_redisbloom()
    }

    fn check_existing(&self, _: &Context, filter: &Filter) -> Result<(), Error> {
        if self.layout.is_some_and(|layout| (layout == CuckooLayout::Native) != filter.kind().is_own()) {
            return Err(Error::OtherLayout);
        }
        if self.seed.is_some() && self.seed != filter.seed() { Err(Error::OtherSeed) } else { Ok(()) }
    }

    fn may_create(&self) -> bool {
        !self.nocreate
    }

    fn params(&self, server: &Server) -> Result<CreateParams, Error> {
        let bucket_size = self.bucket_size.unwrap_or_else(configuration::cuckoo::bucket_size);
        let max_iterations = self.max_iterations.unwrap_or_else(configuration::cuckoo::max_iterations);
        let growth = Growth::of(self.expansion.unwrap_or_else(configuration::cuckoo::expansion));
        let min = NonZeroU64::new(2 * u64::from(bucket_size)).unwrap_or(NonZeroU64::MIN);
        let capacity = self.capacity.unwrap_or_else(|| configuration::cuckoo::initial_size().max(min));
        if capacity < min {
            return Err(Error::CuckooCapacity);
        }
        let spec = CuckooSpec::new(growth, bucket_size, max_iterations).map_err(|_| Error::CannotCreate)?;
        let kind = match self.layout.unwrap_or_else(configuration::cuckoo::layout) {
            CuckooLayout::Classic if self.seed.is_some() => return Err(Error::ClassicSeed),
            CuckooLayout::Classic if self.error_rate.is_some() => return Err(Error::ClassicRate),
            CuckooLayout::Classic => KindParams::Cuckoo { spec },
            CuckooLayout::Native => {
                KindParams::NativeCuckoo { seed: self.seed.unwrap_or_else(|| server.random()), spec }
            }
        };
        let error_rate = self.error_rate.unwrap_or_else(|| spec.error_rate());
        Ok(CreateParams { error_rate, capacity, growth, kind })
    }

    fn expires_at(&self) -> Option<i64> {
        self.expires_at
    }

    fn replicated(filter: &Filter, expiry: Vec<String>) -> Vec<String> {
        let capacity = filter.parameters().capacity.to_string();
        [capacity].into_iter().chain(expiry).chain(option_row::replicated(OPTIONS, filter)).collect()
    }
}
