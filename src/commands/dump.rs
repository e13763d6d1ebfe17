//! BF.SCANDUMP and BF.LOADCHUNK: a filter in chunks, for copies between servers.

use crate::admission;
use crate::filter_key::{ReadKey, WriteKey};
use crate::reply_error::{Error, Limit};
use crate::server::{Args, Context, Keyspace};
use crate::statistics::{self, Footprint};
use oxbloom_filter::DecodeError;
use oxbloom_filter::internals::codec::{self, DumpChunk, Header, LoadedChunk, Origin};

/// `BF.SCANDUMP key iterator`
///
/// Iterator 0 starts, and gets the header; each reply carries the next iterator with its data, and the last is 0.
pub(super) fn scandump(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    let chunk = match args.at(2).integer().ok_or(Error::ScanIterator)? {
        0 => codec::encode_header(filter)
            .map(|header| Some(DumpChunk { cursor: codec::HEADER_CURSOR, data: header.into() })),
        ..0 => Ok(None),
        iterator => codec::next_chunk(filter, iterator.unsigned_abs()),
    };
    let chunk = chunk.map_err(|_| Error::NoMemory(Limit::System))?;
    ctx.reply_array(2);
    ctx.reply_integer(chunk.as_ref().map_or(0, |chunk| chunk.cursor));
    ctx.reply_bulk(chunk.as_ref().map_or(&[], |chunk| &chunk.data));
    Ok(())
}

/// `BF.LOADCHUNK key iterator data`, with an iterator and data that came together from BF.SCANDUMP.
///
/// Only accepted chunks reach an append-only file, so one that is damaged in itself means that the file is. The server
/// ignores the errors of commands that it loads, and would serve a part of a filter as if it were the whole: the
/// process exits instead. A chunk that is whole but does not fit is left out, as the server does with its own types: a
/// script that switched replication off can put it there, and must not keep the server from starting.
pub(super) fn loadchunk(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    apply_chunk(ctx, keyspace, args).inspect_err(|&error| {
        if ctx.is_loading() && is_damaged(args) {
            let (key, reason) = (args.at(1).shown(), error.text().to_string_lossy());
            ctx.end_server(&format!("a chunk of the append-only file was refused: {reason} (key '{key}'): ending"));
        }
    })
}

/// Returns true if the chunk of a BF.LOADCHUNK is damaged in itself: no filter could take it.
fn is_damaged(args: Args) -> bool {
    let iterator = args.at(2).integer().and_then(|iterator| u64::try_from(iterator).ok());
    let check = |iterator| codec::check_chunk(iterator, args.at(3).bytes());
    iterator.is_none_or(|iterator| matches!(check(iterator), Err(DecodeError::Corrupt | DecodeError::NewerVersion)))
}

fn apply_chunk(ctx: &Context, mut keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let iterator = args.at(2).integer().ok_or(Error::LoadIterator)?;
    let (name, data) = (args.at(1), args.at(3).bytes());
    let is_header = u64::try_from(iterator).is_ok_and(|iterator| codec::is_header(iterator, data));
    let origin = if ctx.is_replicated_or_loading() { Origin::Replication } else { Origin::Client };
    if is_header && origin == Origin::Replication {
        let header = decode_header(ctx, data, origin)?;
        return create(ctx, args, WriteKey::open_to_create(keyspace, ctx, name), &header);
    }
    let mut key = WriteKey::open(keyspace.reborrow(), ctx, name)?;
    let Some(filter) = key.filter() else {
        if iterator != codec::HEADER_CURSOR as i64 {
            return Err(Error::NotFound);
        }
        let header = decode_header(ctx, data, origin)?;
        return create(ctx, args, key, &header);
    };
    let iterator = u64::try_from(iterator).map_err(|_| Error::BadData)?;
    let before = Footprint::of(filter);
    let loaded = codec::load_chunk(filter, iterator, data, origin);
    let loaded = loaded.map(|LoadedChunk { bytes, changed }| (changed, (bytes != data).then(|| ctx.string(bytes))));
    statistics::on_change(filter, before);
    let refused = |error| admission::exit_if_data_lost(ctx, Error::decoding(error, Limit::System));
    let (changed, other_bytes) = loaded.map_err(refused)?;
    match other_bytes {
        Some(bytes) if changed => ctx.replicate(c"BF.LOADCHUNK", name, &[args.at(2), bytes.as_arg()]),
        None if changed => ctx.replicate_verbatim(),
        _ => {}
    }
    drop(key);
    if changed {
        keyspace.notify_changed(ctx, name, c"bf.loadchunk");
    }
    ctx.reply_ok();
    Ok(())
}

fn decode_header(ctx: &Context, data: &[u8], origin: Origin) -> Result<Header, Error> {
    Header::decode(data, origin)
        .map_err(|error| admission::exit_if_data_lost(ctx, Error::decoding(error, Limit::System)))
}

/// Creates the filter of a header.
fn create(ctx: &Context, args: Args, key: WriteKey, header: &Header) -> Result<(), Error> {
    let mut keyspace = key.create(admission::build(ctx, header)?)?;
    ctx.replicate_verbatim();
    keyspace.notify_changed(ctx, args.at(1), c"bf.reserve");
    ctx.reply_ok();
    Ok(())
}
