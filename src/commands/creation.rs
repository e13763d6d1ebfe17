//! Creates filters from options, here and on replicas. (BF.MERGE and BF.LOADCHUNK create filters from existing data.)

use crate::admission;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::reply_error::{Error, Limit};
use crate::server::{Arg, Context, Keyspace, OwnedString, Server};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::{CreateParams, codec};

/// The options of a command that creates filters of a family.
pub(super) trait Creation: Default {
    /// Returns the options of a command without any in a stream, whose filters are those of the module that wrote it.
    fn of_stream() -> Self;

    /// Rejects options that contradict an existing filter.
    fn check_existing(&self, ctx: &Context, filter: &Filter) -> Result<(), Error>;

    /// Returns false if the filter must exist.
    fn may_create(&self) -> bool;

    /// Returns the parameters of the filter to create, with defaults from the configuration.
    fn params(&self, server: &Server) -> Result<CreateParams, Error>;

    /// Returns the time at which the key of a new filter expires, in milliseconds since 1970.
    fn expires_at(&self) -> Option<i64>;

    /// Returns the arguments of the RESERVE that repeats the creation of a filter of our own on replicas, with `expiry`
    /// after those that it requires.
    fn replicated(filter: &Filter, expiry: Vec<String>) -> Vec<String>;

    /// Returns the arguments of the INSERT that repeats the creation of a filter of another project on replicas, or
    /// `None` if its header does.
    fn replicated_foreign(_filter: &Filter) -> Option<Vec<Vec<u8>>> {
        None
    }
}

/// Opens a key to create a filter in it.
///
/// The key must not exist. But a master or an append-only file creates a filter only if the key does not exist there:
/// if it exists here, its value is replaced.
pub(super) fn open_new<'k>(ctx: &Context, keyspace: Keyspace<'k>, name: Arg) -> Result<WriteKey<'k>, Error> {
    if ctx.is_replicated_or_loading() {
        return Ok(WriteKey::open_to_create(keyspace, ctx, name));
    }
    let key = WriteKey::open(keyspace, ctx, name)?;
    if key.has_filter() { Err(Error::Exists) } else { Ok(key) }
}

/// Creates a filter in a key that must not exist, replicates and notifies, and replies.
pub(super) fn create_new<O: Creation>(ctx: &Context, keyspace: Keyspace, name: Arg, options: &O) -> Result<(), Error> {
    let params = options.params(ctx)?;
    let key = open_new(ctx, keyspace, name)?;
    let mut keyspace = create(ctx, name, key, params, options)?;
    keyspace.notify_changed(ctx, name, Verb::Reserve);
    if let Some(time) = options.expires_at() {
        expire_at(ctx, keyspace, name, time);
    }
    ctx.reply_ok();
    Ok(())
}

/// Creates the filter of a key that has none, with the parameters that follow from the options. Replicates every
/// parameter, since replicas may have other defaults and cannot know the seed. RedisBloom can apply the command for a
/// classic filter, and rejects the one for a native filter. If the key is to expire, the caller must [set the
/// time](expire_at) afterwards.
pub(super) fn create<'k, O: Creation>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    params: CreateParams,
    options: &O,
) -> Result<Keyspace<'k>, Error> {
    let filter = admission::new_filter(ctx, params)?;
    if !filter.kind().is_own() {
        return create_empty::<O>(ctx, name, key, filter);
    }
    let expiry = options.expires_at().map_or(Vec::new(), |time| vec!["PXAT".to_owned(), time.to_string()]);
    let arguments = O::replicated(&filter, expiry);
    set_new(ctx, name, key, filter, Verb::Reserve, &arguments)
}

/// Sets the new filter of a key, and replicates the command that creates it, with these arguments after the key.
fn set_new<'k>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    filter: Filter,
    verb: Verb,
    arguments: &[impl AsRef<[u8]>],
) -> Result<Keyspace<'k>, Error> {
    let strings: Vec<_> = arguments.iter().map(|argument| ctx.string(argument.as_ref())).collect();
    let keyspace = key.create(filter)?;
    let arguments: Vec<_> = strings.iter().map(OwnedString::as_arg).collect();
    ctx.replicate(verb, name, &arguments);
    Ok(keyspace)
}

/// Sets the time at which a new key expires, in milliseconds since 1970, and notifies listeners.
///
/// The time may be over. So this comes after everything else that a command does with the key: a key whose time is over
/// can no longer be opened. Replicas and append-only files apply the commands in any case, and wait for the master to
/// delete the key.
pub(super) fn expire_at(ctx: &Context, mut keyspace: Keyspace, name: Arg, time: i64) {
    // The key is opened again, since a listener may have removed or replaced the new filter.
    let Ok(mut key) = WriteKey::open(keyspace.reborrow(), ctx, name) else { return };
    let Some(kind) = key.filter().map(|filter| filter.kind()) else { return };
    key.set_expire_time(time);
    drop(key);
    // The command that created a filter of our own has the time.
    if !kind.is_own() {
        ctx.replicate_command(c"PEXPIREAT", name, &[ctx.string(time.to_string().as_bytes()).as_arg()]);
    }
    keyspace.notify_expire(ctx, name);
}

/// Sets the empty filter of a key. Replicates its header, which has all parameters, or for a filter of another project
/// the command with which that replicates it.
pub(super) fn create_empty<'k, O: Creation>(
    ctx: &Context,
    name: Arg,
    key: WriteKey<'k>,
    filter: Filter,
) -> Result<Keyspace<'k>, Error> {
    if let Some(arguments) = O::replicated_foreign(&filter) {
        return set_new(ctx, name, key, filter, Verb::Insert, &arguments);
    }
    let no_memory = |_| admission::exit_if_data_lost(ctx, Error::NoMemory(Limit::System));
    let header = codec::encode_header(&filter).map_err(no_memory)?;
    set_new(ctx, name, key, filter, Verb::Loadchunk, &[codec::HEADER_CURSOR.to_string().as_bytes(), &header])
}
