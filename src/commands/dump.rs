//! SCANDUMP and LOADCHUNK of all families: dump and restore a filter in chunks, to copy it between servers.
//!
//! RedisBloom calls a cursor an iterator. So do the documentation and the errors of these commands.

use crate::admission::{self, Admission};
use crate::changes;
use crate::datatype;
use crate::family::Verb;
use crate::filter_key::WriteKey;
use crate::reply_error::{Error, Limit};
use crate::server::{Args, Context, Keyspace};
use crate::statistics::{self, Footprint};
use oxbloom_filter::internals::codec::{self, Header, LoadedChunk, Origin};
use oxbloom_filter::{DecodeError, Filter};

/// Replies with the chunk after a cursor and its own cursor, or after the last with 0 and `end`.
pub(super) fn dump_chunk(ctx: &Context, filter: &Filter, cursor: u64, end: fn(&Context)) -> Result<(), Error> {
    let chunk = codec::next_chunk(filter, cursor).map_err(|_| Error::NoMemory(Limit::System))?;
    ctx.reply_array(2);
    ctx.reply_integer(chunk.as_ref().map_or(0, |chunk| chunk.cursor));
    chunk.map_or_else(|| end(ctx), |chunk| ctx.reply_bulk(&chunk.data));
    Ok(())
}

/// `LOADCHUNK key iterator data`, with the iterator and the data of one reply of SCANDUMP. `existing` is the
/// error for a header if the filter exists, or `None` if a filter's own header is accepted then.
///
/// Only accepted chunks reach an append-only file. So a damaged chunk in the file means that the file is damaged. The
/// server ignores the errors of commands that it loads, and would serve an incomplete filter as if it were complete:
/// the process exits instead. An undamaged chunk that does not fit the filter is ignored, as the server does for its
/// own types: a script that switched replication off can write such a file, and must not prevent the server from
/// starting.
pub(super) fn load_chunk(ctx: &Context, keyspace: Keyspace, args: Args, existing: Option<Error>) -> Result<(), Error> {
    apply_chunk(ctx, keyspace, args, existing).inspect_err(|&error| {
        if ctx.is_loading() && is_damaged(args) {
            exit_for_damaged_file(ctx, args, "chunk", error);
        }
    })
}

/// Exits since a part of the append-only file is damaged, for which `error` rejected it.
pub(super) fn exit_for_damaged_file(ctx: &Context, args: Args, part: &str, error: Error) -> ! {
    let (key, reason) = (args.at(1).shown(), error.text().to_string_lossy());
    ctx.log_and_exit(&format!("rejected a {part} of the append-only file: {reason} (key '{key}'); exiting, since the file is damaged: restore a backup"))
}

/// Returns true if the chunk of a LOADCHUNK is damaged: no filter accepts it.
fn is_damaged(args: Args) -> bool {
    let cursor = args.at(2).integer().and_then(|cursor| u64::try_from(cursor).ok());
    let check = |cursor| codec::check_chunk(cursor, args.at(3).bytes());
    cursor.is_none_or(|cursor| matches!(check(cursor), Err(DecodeError::Corrupt | DecodeError::NewerVersion)))
}

fn apply_chunk(ctx: &Context, mut keyspace: Keyspace, args: Args, existing: Option<Error>) -> Result<(), Error> {
    let cursor = args.at(2).integer().ok_or(Error::LoadCursor)?;
    let (name, data) = (args.at(1), args.at(3).bytes());
    let is_header = u64::try_from(cursor).is_ok_and(|cursor| codec::is_header(cursor, data));
    let origin = if ctx.is_replicated_or_loading() { Origin::Replication } else { Origin::Client };
    if is_header && origin == Origin::Replication {
        let header = decode_header(ctx, data, origin)?;
        return create(ctx, args, WriteKey::open_to_create(keyspace, ctx, name), &header);
    }
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    if let Some(error) = existing.filter(|_| key.has_filter() && cursor == codec::HEADER_CURSOR as i64) {
        return Err(error);
    }
    let Some(filter) = key.filter() else {
        if cursor != codec::HEADER_CURSOR as i64 {
            return Err(Error::NotFound);
        }
        let header = decode_header(ctx, data, origin)?;
        return create(ctx, args, key, &header);
    };
    let cursor = u64::try_from(cursor).map_err(|_| Error::BadData)?;
    let before = Footprint::of(filter);
    let admission = Admission::new(ctx, before.bytes, Limit::System);
    let loaded = codec::load_chunk(filter, cursor, data, origin, &mut |bytes| admission.admits(bytes));
    let loaded = loaded.map(|LoadedChunk { bytes, changed }| (changed, (bytes != data).then(|| ctx.string(bytes))));
    changes::forget(filter);
    statistics::on_change(filter, before);
    let rejected = |error| {
        let error = match error {
            DecodeError::OutOfMemory => Error::NoMemoryToGrow(admission.limit()),
            error => Error::decoding(error, admission.limit()),
        };
        admission::exit_if_data_lost(ctx, error)
    };
    let (changed, other_bytes) = loaded.map_err(rejected)?;
    match other_bytes {
        Some(bytes) if changed => ctx.replicate(Verb::Loadchunk, name, &[args.at(2), bytes.as_arg()]),
        None if changed => ctx.replicate_verbatim(),
        _ => {}
    }
    drop(key);
    if changed {
        keyspace.notify_changed(ctx, name, Verb::Loadchunk);
    }
    ctx.reply_ok();
    Ok(())
}

fn decode_header(ctx: &Context, data: &[u8], origin: Origin) -> Result<Header, Error> {
    Header::decode(data, origin)
        .map_err(|error| admission::exit_if_data_lost(ctx, Error::decoding(error, Limit::System)))
}

/// Creates the filter that a header describes.
fn create(ctx: &Context, args: Args, key: WriteKey, header: &Header) -> Result<(), Error> {
    let filter = admission::build(ctx, header)?;
    if datatype::family_of(&filter) != ctx.family {
        return Err(Error::BadData);
    }
    let mut keyspace = key.create(filter)?;
    ctx.replicate_verbatim();
    keyspace.notify_changed(ctx, args.at(1), Verb::Reserve);
    ctx.reply_ok();
    Ok(())
}
