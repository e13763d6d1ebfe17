//! CF.INFO and CF.DEBUG.

use std::ffi::CStr;

use crate::filter_key::ReadKey;
use crate::reply_error::Error;
use crate::server::{Args, Context, Keyspace};
use oxbloom_filter::internals::{CuckooSpec, KindFilter};

/// The labels of the figures of a cuckoo filter, as RedisBloom shows them.
const LABELS: [&CStr; 8] = [
    c"Size",
    c"Number of buckets",
    c"Number of filters",
    c"Number of items inserted",
    c"Number of items deleted",
    c"Bucket size",
    c"Expansion rate",
    c"Max iterations",
];

/// Returns the figures, in the order of [`LABELS`]. Those of a native filter are what it was asked for.
fn figures(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<[u64; LABELS.len()], Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    let &CuckooSpec { bucket_size, max_iterations, expansion } = filter.cuckoo_spec().ok_or(Error::Internal)?;
    let [size, buckets, items, removals] = if let Some(filter) = filter.cuckoo() {
        [filter.redisbloom_size(), filter.first_buckets(), filter.items(), filter.removals()]
    } else {
        let native = filter.native_cuckoo().ok_or(Error::Internal)?;
        [filter.memory_usage() as u64, native.buckets(), native.table().occurrences(), native.figures().removals]
    };
    let filters = filter.num_layers() as u64;
    Ok([size, buckets, filters, items, removals, bucket_size.into(), expansion.into(), max_iterations.into()])
}

/// `CF.INFO key`
pub(super) fn info(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let figures = figures(ctx, keyspace, args)?;
    ctx.reply_map(figures.len());
    for (label, number) in LABELS.into_iter().zip(figures) {
        ctx.reply_simple(label);
        ctx.reply_integer(number);
    }
    Ok(())
}

/// `CF.DEBUG key`
pub(super) fn debug(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let [_, buckets, filters, items, removals, bucket_size, expansion, max_iterations] = figures(ctx, keyspace, args)?;
    let line = format!(
        "bktsize:{bucket_size} buckets:{buckets} items:{items} deletes:{removals} filters:{filters} max_iterations:{max_iterations} expansion:{expansion}"
    );
    ctx.reply_bulk(line.as_bytes());
    Ok(())
}
