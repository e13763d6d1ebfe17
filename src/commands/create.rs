//! Creates filters from parameters, here and on replicas. (BF.MERGE and BF.LOADCHUNK create filters from existing
//! data.)

use crate::admission;
use crate::configuration::LayoutName;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::reply_error::Error;
use crate::server::{Arg, Context, Keyspace};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CreateParams, FilterKind, Growth, Layout, Window, codec};

/// Creates the filter of a key that has none. Replicates every parameter, since replicas may have other defaults and
/// cannot know the seed. RedisBloom can apply the command for a classic filter, and rejects the one for a native
/// filter. If the key is to expire, the caller must [set the time](expire_at) afterwards.
pub(super) fn create<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    params: CreateParams,
    expires_at: Option<i64>,
) -> Result<Keyspace<'k>, Error> {
    let filter = admission::new_filter(ctx, params)?;
    match params.layout {
        Layout::Native { seed } => {
            create_native(ctx, name, key, filter, &native_arguments(params, seed, &[], expires_at))
        }
        Layout::Counting { seed } => {
            create_native(ctx, name, key, filter, &native_arguments(params, seed, &["COUNTING"], expires_at))
        }
        Layout::Windowed { seed, window } => {
            let options = window_arguments(window);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            create_native(ctx, name, key, filter, &native_arguments(params, seed, &options, expires_at))
        }
        Layout::Classic { .. } => create_from_header(ctx, name, key, filter),
    }
}

/// Sets the time at which a new key expires, in milliseconds since 1970, and notifies listeners.
///
/// The time may be over. So this comes after everything else that a command does with the key: a key whose time is over
/// can no longer be opened. Replicas and append-only files apply the commands in any case, and wait for the master to
/// delete the key.
pub(super) fn expire_at(ctx: &Context, mut keyspace: Keyspace, name: Arg, time: i64) -> Result<(), Error> {
    // The key is opened again, since a listener may have removed the new filter.
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let Some(kind) = key.filter().map(|filter| filter.kind()) else { return Ok(()) };
    key.set_expire_time(time);
    drop(key);
    // The command that created a filter of our own has the time.
    if kind == FilterKind::Classic {
        ctx.replicate_command(c"PEXPIREAT", name, &[ctx.string(time.to_string().as_bytes()).as_arg()]);
    }
    keyspace.notify_expire(ctx, name);
    Ok(())
}

fn create_native<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    filter: Filter,
    arguments: &[String],
) -> Result<Keyspace<'k>, Error> {
    let keyspace = key.create(filter)?;
    let strings: Vec<_> = arguments.iter().map(|argument| ctx.string(argument.as_bytes())).collect();
    let arguments: Vec<_> = strings.iter().map(|string| string.as_arg()).collect();
    ctx.replicate(Verb::Reserve, name, &arguments);
    Ok(keyspace)
}

/// Sets the filter of a key, and replicates its header, which has all parameters.
pub(super) fn create_from_header<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    filter: Filter,
) -> Result<Keyspace<'k>, Error> {
    let header = admission::encode_header(ctx, &filter)?;
    let keyspace = key.create(filter)?;
    let cursor = codec::HEADER_CURSOR.to_string();
    let [cursor, header] = [cursor.as_bytes(), &header].map(|bytes| ctx.string(bytes));
    ctx.replicate(Verb::Loadchunk, name, &[cursor.as_arg(), header.as_arg()]);
    Ok(keyspace)
}

/// Returns the arguments of BF.RESERVE for a filter's window.
fn window_arguments(window: Window) -> Vec<String> {
    let length = window.length.map(|length| ["WINDOW".to_owned(), (length.get() / 1000).to_string()]);
    let flags = [("REFRESH", window.refresh), ("ROLLING", window.rolling)];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.to_owned());
    let slices = ["SLICES".to_owned(), window.slices.to_string()];
    length.into_iter().flatten().chain(slices).chain(flags).collect()
}

/// Returns the arguments of BF.RESERVE that create one of our own filters, whatever the configuration is. `options`
/// stand after the growth.
fn native_arguments(params: CreateParams, seed: u64, options: &[&str], expires_at: Option<i64>) -> Vec<String> {
    let mut arguments = vec![params.error_rate.get().to_string(), params.capacity.to_string()];
    match params.growth {
        // A rolling filter neither grows nor gets full, and BF.RESERVE rejects both options.
        Growth::Fixed if options.contains(&"ROLLING") => {}
        Growth::Fixed => arguments.push("NONSCALING".to_owned()),
        Growth::By(expansion) => arguments.extend(["EXPANSION".to_owned(), expansion.to_string()]),
    }
    arguments.extend(options.iter().map(|&option| option.to_owned()));
    let others = [("SEED", seed.to_string()), ("LAYOUT", LayoutName::Native.to_string())];
    let expiry = expires_at.map(|time| ("PXAT", time.to_string()));
    arguments.extend(others.into_iter().chain(expiry).flat_map(|(name, value)| [name.to_owned(), value]));
    arguments
}
