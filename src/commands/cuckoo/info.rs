//! CF.INFO and CF.DEBUG.

use crate::filter_key::ReadKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CuckooSpec, Kind};

/// The figures of a cuckoo filter, as RedisBloom shows them. Those of a native filter are what it was asked for.
struct Figures {
    size: u64,
    buckets: u64,
    filters: u64,
    items: u64,
    removals: u64,
    spec: CuckooSpec,
}

impl Figures {
    fn of(filter: &Filter) -> Option<Figures> {
        let spec = *filter.cuckoo_spec()?;
        let figures = |size, buckets, items, removals| Figures {
            size,
            buckets,
            filters: filter.num_layers() as u64,
            items,
            removals,
            spec,
        };
        if let Some(filter) = filter.cuckoo() {
            return Some(figures(filter.redisbloom_size(), filter.first_buckets(), filter.items(), filter.removals()));
        }
        let native = filter.native_cuckoo()?;
        let size = filter.memory_usage() as u64;
        Some(figures(size, native.buckets(), native.table().occurrences(), native.figures().removals))
    }
}

/// `CF.INFO key`
pub(super) fn info(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let Figures { size, buckets, filters, items, removals, spec } = figures(&key)?;
    let fields = [
        (c"Size", size),
        (c"Number of buckets", buckets),
        (c"Number of filters", filters),
        (c"Number of items inserted", items),
        (c"Number of items deleted", removals),
        (c"Bucket size", spec.bucket_size.into()),
        (c"Expansion rate", spec.expansion.into()),
        (c"Max iterations", spec.max_iterations.into()),
    ];
    ctx.reply_map(fields.len());
    for (label, number) in fields {
        ctx.reply_simple(label);
        ctx.reply_integer(number);
    }
    Ok(())
}

/// `CF.DEBUG key`
pub(super) fn debug(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let Figures { buckets, filters, items, removals, spec, .. } = figures(&key)?;
    let CuckooSpec { bucket_size, max_iterations, expansion } = spec;
    ctx.reply_bulk(
        format!(
            "bktsize:{bucket_size} buckets:{buckets} items:{items} deletes:{removals} filters:{filters} max_iterations:{max_iterations} expansion:{expansion}"
        )
        .as_bytes(),
    );
    Ok(())
}

fn figures(key: &ReadKey) -> Result<Figures, Error> {
    Figures::of(key.filter()?.ok_or(Error::NotFound)?).ok_or(Error::Internal)
}
