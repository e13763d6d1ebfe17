//! BF.SCANDUMP and BF.LOADCHUNK: a filter in chunks, for copies between servers.

use super::super::args::Args;
use super::super::context::Context;
use super::super::error::Error;
use super::super::key::{ReadKey, WriteKey};
use super::super::memory::{self, Limit};
use crate::filter::codec::{self, Header, Piece, Sender};

/// `BF.SCANDUMP key iterator`
///
/// Iterator 0 starts, and gets the header; each reply carries the next iterator with its data, and the last is 0.
pub fn scandump(ctx: &Context, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    let piece = match args.at(2).integer().ok_or(Error::ScanIterator)? {
        0 => Some(Piece { iterator: codec::HEADER_ITERATOR, data: memory::encode_header(ctx, filter)?.into() }),
        ..0 => None,
        iterator => codec::next_piece(filter, iterator.unsigned_abs()).map_err(|_| Error::NoMemory(Limit::System))?,
    };
    ctx.reply_array(2);
    ctx.reply_integer(piece.as_ref().map_or(0, |piece| piece.iterator));
    ctx.reply_bulk(piece.as_ref().map_or(&[], |piece| &piece.data));
    Ok(())
}

/// `BF.LOADCHUNK key iterator data`, with an iterator and data that came together from BF.SCANDUMP.
///
/// An append-only file has only such as were taken: if one is refused, it was damaged, or what it belongs to was. The server
/// would go on, for it ignores the errors of commands that it loads, and serve a part of a filter as if it were the whole.
pub fn loadchunk(ctx: &Context, args: Args) -> Result<(), Error> {
    load(ctx, args).inspect_err(|error| {
        if ctx.is_loading() {
            let (key, reason) = (args.at(1).shown(), error.text().to_string_lossy());
            ctx.end_server(&format!("a chunk of the append-only file was refused: {reason} (key '{key}'): ending"));
        }
    })
}

fn load(ctx: &Context, args: Args) -> Result<(), Error> {
    let iterator = args.at(2).integer().ok_or(Error::LoadIterator)?;
    let data = args.at(3).bytes();
    let sender = if ctx.must_obey() { Sender::Authority } else { Sender::Anyone };
    let mut key = WriteKey::open(ctx, args.at(1))?;
    let event = match key.filter() {
        Some(filter) => {
            let iterator = u64::try_from(iterator).map_err(|_| Error::BadData)?;
            let loaded = codec::load_piece(filter, iterator, data, sender);
            let loaded = loaded.map_err(|error| Error::decoding(error, Limit::System))?;
            if !loaded.changed {
                ctx.reply_ok();
                return Ok(());
            }
            if loaded.bytes == data {
                ctx.replicate_verbatim();
            } else {
                let bytes = ctx.string(loaded.bytes);
                ctx.replicate(c"BF.LOADCHUNK", args.at(1), &[args.at(2).as_raw(), bytes.as_raw()]);
            }
            c"bf.loadchunk"
        }
        None if iterator == codec::HEADER_ITERATOR as i64 => {
            let header = Header::decode(data, sender).map_err(|error| Error::decoding(error, Limit::System))?;
            key.create(memory::build(ctx, &header)?)?;
            ctx.replicate_verbatim();
            c"bf.reserve"
        }
        None => return Err(Error::NotFound),
    };
    drop(key);
    ctx.notify_changed(args.at(1), event);
    ctx.reply_ok();
    Ok(())
}
