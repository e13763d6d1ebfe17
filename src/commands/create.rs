//! How a filter is created, here and on the replicas. (BF.MERGE and BF.LOADCHUNK make theirs of what is there.)

use crate::admission;
use crate::configuration::LayoutName;
use crate::filter_key::WriteKey;
use crate::reply_error::Error;
use crate::server::{Arg, Context, Keyspace};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CreateParams, Growth, Layout, Window, codec};

/// Creates the filter of a key that has none, and tells the replicas every parameter of it: theirs may have other
/// defaults, and a seed cannot be guessed. For a classic filter it does so in a way that RedisBloom understands, too,
/// for a native one in a way that RedisBloom rejects. If `expires_at` says so, the key expires at that time, in
/// milliseconds since 1970.
pub(super) fn create<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    params: CreateParams,
    expires_at: Option<i64>,
) -> Result<Keyspace<'k>, Error> {
    let filter = admission::new_filter(ctx, params)?;
    let mut keyspace = match params.layout {
        Layout::Native { seed } => create_native(ctx, name, key, filter, &native_words(params, seed, &[], expires_at)),
        Layout::Counting { seed } => {
            create_native(ctx, name, key, filter, &native_words(params, seed, &["COUNTING"], expires_at))
        }
        Layout::Windowed { seed, window } => {
            let words = window_words(window);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            create_native(ctx, name, key, filter, &native_words(params, seed, &words, expires_at))
        }
        Layout::Classic { .. } => create_from_header(ctx, name, key, filter),
    }?;
    if let Some(time) = expires_at {
        // Opened again: a listener may have removed what was created.
        WriteKey::open(keyspace.reborrow(), ctx, name)?.set_expire_time(time);
        if matches!(params.layout, Layout::Classic { .. }) {
            ctx.replicate(c"PEXPIREAT", name, &[ctx.string(time.to_string().as_bytes()).as_arg()]);
        }
    }
    Ok(keyspace)
}

fn create_native<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    filter: Filter,
    words: &[String],
) -> Result<Keyspace<'k>, Error> {
    let keyspace = key.create(filter)?;
    let strings: Vec<_> = words.iter().map(|word| ctx.string(word.as_bytes())).collect();
    let arguments: Vec<_> = strings.iter().map(|string| string.as_arg()).collect();
    ctx.replicate(c"BF.RESERVE", name, &arguments);
    Ok(keyspace)
}

/// Sets the filter of a key, and tells the replicas its header, which has all parameters.
pub(super) fn create_from_header<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    filter: Filter,
) -> Result<Keyspace<'k>, Error> {
    let header = admission::encode_header(ctx, &filter)?;
    let keyspace = key.create(filter)?;
    let iterator = codec::HEADER_CURSOR.to_string();
    let [iterator, header] = [iterator.as_bytes(), &header].map(|word| ctx.string(word));
    ctx.replicate(c"BF.LOADCHUNK", name, &[iterator.as_arg(), header.as_arg()]);
    Ok(keyspace)
}

/// Returns the arguments that say how long a filter remembers.
fn window_words(window: Window) -> Vec<String> {
    let length = window.length.map(|length| ["WINDOW".to_owned(), (length.get() / 1000).to_string()]);
    let flags = [("REFRESH", window.refresh), ("ROLLING", window.rolling)];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned());
    let slices = ["SLICES".to_owned(), window.slices.to_string()];
    length.into_iter().flatten().chain(slices).chain(flags).collect()
}

/// Returns the arguments that create a filter of our own, whatever the configuration is.
fn native_words(params: CreateParams, seed: u64, flags: &[&str], expires_at: Option<i64>) -> Vec<String> {
    let mut words = vec![params.error_rate.get().to_string(), params.capacity.to_string()];
    match params.growth {
        // It is neither full nor grows.
        Growth::Fixed if flags.contains(&"ROLLING") => {}
        Growth::Fixed => words.push("NONSCALING".to_owned()),
        Growth::By(expansion) => words.extend(["EXPANSION".to_owned(), expansion.to_string()]),
    }
    words.extend(flags.iter().map(|&flag| flag.to_owned()));
    let options = [("SEED", seed.to_string()), ("LAYOUT", LayoutName::Native.to_string())];
    let expiry = expires_at.map(|time| ("PXAT", time.to_string()));
    words.extend(options.into_iter().chain(expiry).flat_map(|(name, value)| [name.to_owned(), value]));
    words
}
