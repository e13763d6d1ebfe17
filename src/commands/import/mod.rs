//! BF.IMPORT and CF.IMPORT: copy a filter of another module on the same server, which has the usual names of commands.
//!
//! Each step reads a chunk of the source by the other module's own command, and loads a part of it with LOADCHUNK. So
//! replicas and append-only files get the filter as chunks, and need no other module.
//!
//! Until it is complete, the filter has a key of its own, with a random number in its name. So an unfinished filter is
//! never mistaken for a whole one, and never takes the place of another key:
//!
//! ```text
//!  {newkey}:import:4f1c… ── part, part, … ── RENAMENX ──► newkey
//! ```
//!
//! [`watch`] notices if the source is written to between two steps. Then the import fails, since the copy may lack
//! items. The state of an import is not stored: after a restart or a failover, nobody knows whether the source was
//! written to, and the import starts again. An import that stops expires.

mod watch;

use std::ffi::CStr;

use super::declaration::{Argument, ArgumentKind};
use crate::admission;
use crate::allocation::can_allocate;
use crate::family::Verb;
use crate::filter_key::{READ, ReadKey};
use crate::names::named;
use crate::reply_error::{Error, Limit};
use crate::server::{Arg, Args, CallReply, Context, Keyspace, OpenKey, OwnedString};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{self, Encoding, HEADER_CURSOR, Header, Origin, payload};
use watch::Running;

pub(crate) use watch::drop_idle;

/// The arguments after the source.
pub(super) const ARGUMENTS: [Argument; 2] = [
    Argument::required(c"newkey", ArgumentKind::Key(1)),
    Argument::option(c"CURSOR", c"cursor", ArgumentKind::Integer),
];

/// The size of a part in bytes. A chunk of 16 MiB takes 14 ms to read, and as a whole another 22 ms to load and to
/// replicate; a part takes 3 ms.
const PART: usize = 2 << 20;

/// The memory that the server takes for the largest reply to SCANDUMP, twice 16 MiB. The server exits if it has less.
const REPLY: usize = 32 << 20;

/// The time after which an unfinished filter expires, in milliseconds.
const IDLE: i64 = 600_000;

/// The number of items that are looked up in both filters at the end.
const SAMPLE: u64 = 1000;

/// What the imports of a family have of their own.
pub(super) struct Imported {
    /// The data type of filters that the other module cannot dump in chunks, if there is one.
    pub whole: Option<Encoding>,
    /// What the import gains, for the last reply.
    pub gained: &'static str,
}

/// `IMPORT key newkey [CURSOR cursor]`
///
/// Each reply has the next cursor; the last has cursor 0.
pub(super) fn import(ctx: &Context, keyspace: Keyspace, args: Args, imported: &'static Imported) -> Result<(), Error> {
    let cursor = match args.len() {
        3 => 0,
        5 if args.at(3).is("CURSOR") => args.at(4).unsigned().ok_or(Error::BadImportCursor)?,
        _ => return Err(Error::Syntax),
    };
    let mut import = Import { ctx, keyspace, source: args.at(1), newkey: args.at(2), imported };
    match import.step(cursor) {
        Ok(()) => Ok(()),
        Err(Failure::Own(error)) => Err(error),
        Err(Failure::Called(error)) => {
            ctx.reply_call(&error);
            Ok(())
        }
    }
}

/// The reason why a step failed.
enum Failure {
    Own(Error),
    /// The error of a command that the step called.
    Called(CallReply),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Own(error)
    }
}

/// The place in the source that an import has reached. RedisBloom dumps cuckoo filters only from the start of a chunk.
#[derive(Clone, Copy)]
struct Cursor {
    /// The cursor after which the source dumps the current chunk. It is 0 before the header.
    chunk: u64,
    /// The number of parts of the chunk that were loaded.
    parts: u64,
}

impl Cursor {
    /// The number of bits for the parts in the number that clients get.
    const PART_BITS: u32 = 5;

    const FIRST: Cursor = Cursor { chunk: HEADER_CURSOR, parts: 0 };

    fn number(self) -> u64 {
        self.chunk << Cursor::PART_BITS | self.parts
    }

    /// Returns the number of bytes of the chunk that were loaded.
    fn loaded_of_chunk(self) -> usize {
        self.parts as usize * PART
    }

    /// Returns the number of bytes that were loaded. A cursor is one more than the bytes before it.
    fn loaded(self) -> u64 {
        self.chunk.saturating_sub(HEADER_CURSOR) + self.loaded_of_chunk() as u64
    }
}

struct Chunk {
    cursor: u64,
    /// The reply of SCANDUMP.
    reply: CallReply,
}

impl Chunk {
    fn data(&self) -> &[u8] {
        self.reply.value().element(1).and_then(|data| data.bytes()).unwrap_or_default()
    }
}

struct Import<'a> {
    ctx: &'a Context<'a>,
    keyspace: Keyspace<'a>,
    source: Arg<'a>,
    newkey: Arg<'a>,
    imported: &'static Imported,
}

impl Import<'_> {
    /// Continues an import that has reached a cursor, or starts if that is 0.
    fn step(&mut self, cursor: u64) -> Result<(), Failure> {
        if self.call(c"EXISTS", &[self.newkey])?.value().integer() != Some(0) {
            return Err(Error::Exists.into());
        }
        if let Some(whole) = self.imported.whole
            && self.call(c"TYPE", &[self.source])?.value().bytes() == Some(whole.type_name().to_bytes())
        {
            return self.import_whole();
        }
        // RedisBloom does not dump an empty cuckoo filter.
        let header = self.source_chunk(0)?.ok_or(Error::EmptySource)?;
        let total = Header::decode(header.data(), Origin::Client).map_err(|_| Error::BadData)?.memory();
        if cursor == 0 {
            self.start(&header)?;
        }
        let running = self.running().filter(|running| cursor == 0 || running.cursor.number() == cursor);
        let Running { id, cursor: reached, .. } = running.ok_or(Error::NoImport)?;
        let unfinished = self.unfinished(id)?;
        self.check_unchanged(unfinished.as_arg(), &header)?;
        let next = if cursor == 0 {
            reached
        } else if reached.loaded() == total {
            return self.finish(unfinished.as_arg(), total);
        } else {
            let chunk = self.source_chunk(reached.chunk)?.ok_or(Error::BadData)?;
            self.load_part(unfinished.as_arg(), reached, &chunk)?
        };
        watch::advance(self.ctx, id, next);
        let idle = self.ctx.string(IDLE.to_string().as_bytes());
        self.call(c"PEXPIRE", &[unfinished.as_arg(), idle.as_arg()])?;
        reply(self.ctx, next.number(), [next.loaded(), total], 0);
        Ok(())
    }

    /// Returns the running import of these keys.
    fn running(&self) -> Option<Running> {
        watch::find(self.ctx, self.source, self.newkey)
    }

    /// Imports a filter in one step.
    fn import_whole(&mut self) -> Result<(), Failure> {
        let filter = self.source_as_a_whole()?;
        let unfinished = self.unfinished(self.ctx.random())?;
        self.check_free(unfinished.as_arg())?;
        for chunk in codec::dump(&filter) {
            let chunk = chunk.map_err(|_| Error::NoMemory(Limit::System))?;
            self.load(unfinished.as_arg(), chunk.cursor, &chunk.data)?;
        }
        self.finish(unfinished.as_arg(), filter.memory_usage() as u64)
    }

    /// Decodes the source from its DUMP.
    fn source_as_a_whole(&mut self) -> Result<Filter, Failure> {
        let size = self.call(c"MEMORY", &[self.ctx.string(b"USAGE").as_arg(), self.source])?;
        let size = size.value().integer().and_then(|size| usize::try_from(size).ok()).ok_or(Error::BadData)?;
        // The server exits if it has no memory for a payload and its reply.
        if !can_allocate(size.saturating_mul(3)) {
            return Err(Error::NoMemory(Limit::System).into());
        }
        let dump = self.call(c"DUMP", &[self.source])?;
        let payload = dump.value().bytes().ok_or(Error::NotFound)?;
        Ok(admission::admitted(self.ctx, |admit| payload::decode(payload, admit), Error::decoding)?)
    }

    /// Creates the unfinished filter. An earlier import of these keys ends.
    fn start(&mut self, header: &Chunk) -> Result<(), Failure> {
        if let Some(earlier) = self.running() {
            self.give_up(self.unfinished(earlier.id)?.as_arg())?;
        }
        let id = self.ctx.random();
        let unfinished = self.unfinished(id)?;
        self.check_free(unfinished.as_arg())?;
        let is_queued = self.has_queued_commands();
        watch::begin(self.ctx, self.source, self.newkey, id, is_queued);
        self.load(unfinished.as_arg(), HEADER_CURSOR, header.data())
    }

    /// Removes the unfinished filter of the running import, which ends.
    fn give_up(&mut self, unfinished: Arg) -> Result<(), Failure> {
        self.call(c"UNLINK", &[unfinished])?;
        watch::end(self.ctx, self.source, self.newkey);
        Ok(())
    }

    /// Checks that the key of an unfinished filter is free, and that the user may use it.
    fn check_free(&mut self, unfinished: Arg) -> Result<(), Failure> {
        if !self.ctx.may_use(unfinished) {
            return Err(Error::ImportPermission.into());
        }
        let is_free = self.call(c"EXISTS", &[unfinished])?.value().integer() == Some(0);
        if is_free { Ok(()) } else { Err(Error::Exists.into()) }
    }

    /// Returns true unless it is certain that no transaction of another client has queued commands.
    fn has_queued_commands(&mut self) -> bool {
        let own = format!("id={} ", self.ctx.client_id());
        let Ok(clients) = self.call(c"CLIENT", &[self.ctx.string(b"LIST").as_arg()]) else { return true };
        let Some(clients) = clients.value().bytes() else { return true };
        // Without a transaction, the number is -1. On Valkey, it is 0 after one.
        let is_queueing = |line: &[u8]| {
            let mut numbers = line.split(|&byte| byte == b' ').filter_map(|word| word.strip_prefix(b"multi="));
            !line.starts_with(own.as_bytes()) && numbers.any(|number| number != b"-1" && number != b"0")
        };
        clients.split(|&byte| byte == b'\n').any(is_queueing)
    }

    /// Returns the chunk of the source after a cursor, or `None` after the last.
    fn source_chunk(&mut self, cursor: u64) -> Result<Option<Chunk>, Failure> {
        let scandump = self.ctx.family.usual_name(Verb::Scandump);
        self.chunk(&scandump, self.source, cursor)
    }

    /// Returns the chunk after a cursor that a SCANDUMP command dumps.
    fn chunk(&mut self, scandump: &CStr, key: Arg, cursor: u64) -> Result<Option<Chunk>, Failure> {
        if !can_allocate(REPLY) {
            return Err(Error::NoMemory(Limit::System).into());
        }
        let cursor = self.ctx.string(cursor.to_string().as_bytes());
        let reply = self.call(scandump, &[key, cursor.as_arg()])?;
        let next = reply.value().element(0).and_then(|cursor| cursor.integer());
        let cursor = next.and_then(|cursor| u64::try_from(cursor).ok()).ok_or(Error::BadData)?;
        Ok((cursor != 0).then_some(Chunk { cursor, reply }))
    }

    /// Loads a chunk into an unfinished filter.
    fn load(&mut self, unfinished: Arg, cursor: u64, data: &[u8]) -> Result<(), Failure> {
        let [cursor, data] = [cursor.to_string().as_bytes(), data].map(|bytes| self.ctx.string(bytes));
        let loadchunk = self.ctx.family.replicated_name(Verb::Loadchunk);
        self.call(loadchunk, &[unfinished, cursor.as_arg(), data.as_arg()]).map(drop)
    }

    /// Checks that the source was not written to since the import began. Removes the unfinished filter if it was: it
    /// has parts of the source from different times, in which items may be missing.
    fn check_unchanged(&mut self, unfinished: Arg, header: &Chunk) -> Result<(), Failure> {
        let scandump = self.ctx.family.replicated_name(Verb::Scandump);
        let ours = self.chunk(scandump, unfinished, 0).map_err(|_| Error::NoImport)?.ok_or(Error::NoImport)?;
        let is_changed = self.running().is_none_or(|running| running.is_changed);
        if !is_changed && ours.data() == header.data() {
            return Ok(());
        }
        self.give_up(unfinished)?;
        Err(Error::SourceChanged.into())
    }

    /// Loads the next part of a chunk. Returns the place that the import then has reached.
    fn load_part(&mut self, unfinished: Arg, cursor: Cursor, chunk: &Chunk) -> Result<Cursor, Failure> {
        let data = chunk.data();
        // No byte may be left out.
        let is_next = chunk.cursor.checked_sub(data.len() as u64) == Some(cursor.chunk);
        let start = cursor.loaded_of_chunk();
        if !is_next || start >= data.len() || data.len().div_ceil(PART) >> Cursor::PART_BITS != 0 {
            return Err(Error::BadData.into());
        }
        let end = data.len().min(start + PART);
        self.load(unfinished, cursor.chunk + end as u64, &data[start..end])?;
        Ok(if end == data.len() {
            Cursor { chunk: chunk.cursor, parts: 0 }
        } else {
            Cursor { parts: cursor.parts + 1, ..cursor }
        })
    }

    /// Compares the complete filter with the source, moves it to the new key, and replies with the verdict.
    fn finish(&mut self, unfinished: Arg, total: u64) -> Result<(), Failure> {
        let Some(found) = self.compare(unfinished)? else {
            self.give_up(unfinished)?;
            return Err(Error::ImportDiffers.into());
        };
        if self.call(c"RENAMENX", &[unfinished, self.newkey])?.value().integer() != Some(1) {
            return Err(Error::Exists.into());
        }
        watch::end(self.ctx, self.source, self.newkey);
        let expires_at = OpenKey::open(self.keyspace.reborrow(), self.ctx, self.source, READ).expire_time();
        match expires_at.map(|time| self.ctx.string(time.to_string().as_bytes())) {
            Some(time) => self.call(c"PEXPIREAT", &[self.newkey, time.as_arg()])?,
            None => self.call(c"PERSIST", &[self.newkey])?,
        };
        self.keyspace.notify_changed(self.ctx, self.newkey, Verb::Import);
        let ctx = self.ctx;
        let key = ReadKey::open(self.keyspace.reborrow(), ctx, self.newkey);
        let filter = key.filter()?.ok_or(Error::NotFound)?;
        let numbers = [
            (c"Number of items inserted", filter.len_at(0)),
            (c"Number of filters", filter.num_layers() as u64),
            (c"Size", filter.memory_usage() as u64),
            (c"Items compared", SAMPLE),
            (c"Items found in both", found),
        ];
        let texts = [
            (c"Kept", "layout, bits, hash and growth, and so all replies; SCANDUMP copies it back"),
            (c"Gained", self.imported.gained),
        ];
        reply(ctx, 0, [total, total], numbers.len() + texts.len());
        for (label, number) in numbers {
            ctx.reply_simple(label);
            ctx.reply_integer(number);
        }
        for (label, text) in texts {
            ctx.reply_simple(label);
            ctx.reply_bulk(named(text).to_string().as_bytes());
        }
        Ok(())
    }

    /// Looks up the same items in both filters. Returns the number of items found, or `None` if a reply differs.
    fn compare(&mut self, unfinished: Arg) -> Result<Option<u64>, Failure> {
        // Any fixed items do. These have all bits mixed.
        let items = (1..=SAMPLE).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string());
        let items: Vec<OwnedString> = items.map(|item| self.ctx.string(item.as_bytes())).collect();
        let (family, source) = (self.ctx.family, self.source);
        let mut found = |command: &CStr, key: Arg| {
            let arguments: Vec<Arg> = [key].into_iter().chain(items.iter().map(OwnedString::as_arg)).collect();
            let reply = self.call(command, &arguments)?;
            let replies = (0..items.len()).map(|index| reply.value().element(index).and_then(|found| found.integer()));
            Ok::<Vec<_>, Failure>(replies.collect())
        };
        let theirs = found(&family.usual_name(Verb::Mexists), source)?;
        let ours = found(family.replicated_name(Verb::Mexists), unfinished)?;
        Ok((theirs == ours).then(|| ours.iter().filter(|&&found| found == Some(1)).count() as u64))
    }

    /// Returns the key of an unfinished filter. It is in the slot of the new key.
    fn unfinished(&self, id: u64) -> Result<OwnedString, Error> {
        let newkey = self.newkey.bytes();
        let [open, close]: [&[u8]; 2] = match around_tag(newkey) {
            Some(braces) => braces,
            None if self.ctx.is_in_cluster() => return Err(Error::ImportSlot),
            None => [b"", b""],
        };
        Ok(self.ctx.string(&[open, newkey, close, format!(":import:{id:016x}").as_bytes()].concat()))
    }

    /// Calls a command. An error that it replies with is a failure.
    fn call(&mut self, command: &CStr, arguments: &[Arg]) -> Result<CallReply, Failure> {
        let is_unknown = || std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
        let error = || if is_unknown() { Error::NoOtherModule } else { Error::Internal };
        let reply = self.keyspace.call(self.ctx, command, arguments).ok_or_else(error)?;
        if reply.value().is_error() { Err(Failure::Called(reply)) } else { Ok(reply) }
    }
}

/// Returns what must stand before and after a key so that any name with this start has the key's slot. Returns `None`
/// if there is nothing like that. The slot depends on the *hash tag*, the bytes between the first `{` and the next `}`,
/// or on all bytes if there is none.
fn around_tag(key: &[u8]) -> Option<[&'static [u8]; 2]> {
    let mut parts = key.splitn(2, |&byte| byte == b'{').skip(1);
    let has_tag = parts.next().is_some_and(|rest| rest.iter().position(|&byte| byte == b'}').is_some_and(|at| at > 0));
    match has_tag {
        true => Some([b"", b""]),
        // The whole key becomes the tag.
        false => (!key.is_empty() && !key.contains(&b'}')).then_some([b"{", b"}"]),
    }
}

/// Starts a reply: the cursor, and a map with the bytes that were loaded, the bytes in total, and `more` fields.
fn reply(ctx: &Context, cursor: u64, bytes: [u64; 2], more: usize) {
    ctx.reply_array(2);
    ctx.reply_bulk(cursor.to_string().as_bytes());
    ctx.reply_map(bytes.len() + more);
    for (label, bytes) in [c"Bytes loaded", c"Bytes in total"].into_iter().zip(bytes) {
        ctx.reply_simple(label);
        ctx.reply_integer(bytes);
    }
}
