//! The data types: callbacks with which the server saves, loads, copies, frees and moves filters.
//!
//! Our own filters have the type `oxbloom--`, or `oxcuckoo-` if they stand for cuckoo filters. Classic filters have
//! RedisBloom's types, `MBbloom--` and `MBbloomCF`, so that RedisBloom can read their files and we can read its files.
//! Likewise, valkey filters have valkey-bloom's type, `bloomfltr`.
//! Beside another module, which then owns these types, they have types of our own, with the same bytes. These are
//! registered on every server, so that filters keep working when the [names](crate::names) of the module change.
//!
//! RDB files and DUMP payloads hold the RDB values of [`codec`]. An AOF rewrite is a series of `LOADCHUNK` commands, or
//! for a valkey filter a `BF.LOAD`.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use crate::admission::{self, Admission};
use crate::callback::catch_panic;
use crate::changes;
use crate::configuration;
use crate::family::{BLOOM, CUCKOO, Family, Verb};
use crate::ffi::{FAILED, OK, RawString, call};
use crate::lookahead;
use crate::names::{named, names};
use crate::reply_error::{Error, Limit};
use crate::server::{Arg, Context, Io, Server};
use crate::statistics;
use crate::written_prefix;
use oxbloom_filter::internals::Mover;
use oxbloom_filter::internals::codec::{self, DumpChunk, Encoding, Sink, Source};
use oxbloom_filter::{DecodeError, Filter};

/// A data type: the values of an encoding.
struct DataType {
    encoding: Encoding,
    /// The family whose commands create and use the values.
    family: &'static Family,
    rdb_load: unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int) -> *mut c_void,
    /// The server's handle of the type of new values.
    handle: AtomicPtr<raw::RedisModuleType>,
    /// The server's handle of the type beside another module, if new values have the usual one. Null otherwise.
    beside_handle: AtomicPtr<raw::RedisModuleType>,
}

/// All data types, by [`Encoding`].
static TYPES: [DataType; Encoding::ALL.len()] = [
    DataType::new::<{ Encoding::Own as usize }>(&BLOOM),
    DataType::new::<{ Encoding::OwnCuckoo as usize }>(&CUCKOO),
    DataType::new::<{ Encoding::Cuckoo as usize }>(&CUCKOO),
    DataType::new::<{ Encoding::Valkey as usize }>(&BLOOM),
    DataType::new::<{ Encoding::Classic as usize }>(&BLOOM),
];

pub(crate) fn handle_for(filter: &Filter) -> *mut raw::RedisModuleType {
    DataType::of(filter).handle.load(Ordering::Relaxed)
}

/// Returns the family whose commands create and use a filter.
pub(crate) fn family_of(filter: &Filter) -> &'static Family {
    DataType::of(filter).family
}

/// Returns true if values of this type are filters for the commands of a family.
#[inline]
pub(crate) fn belongs_to(handle: *mut raw::RedisModuleType, family: &Family) -> bool {
    TYPES.iter().any(|data_type| data_type.handle.load(Ordering::Relaxed) == handle && data_type.family == family)
        || is_beside(handle, family)
}

/// Returns true if values of this type are filters for the commands of a family, in the type that they have beside the
/// module that owns the usual one. Not inlined: hardly any key has such a value while new ones have the usual type.
#[cold]
#[inline(never)]
fn is_beside(handle: *mut raw::RedisModuleType, family: &Family) -> bool {
    let has_it = |data_type: &DataType| data_type.beside_handle.load(Ordering::Relaxed) == handle;
    !handle.is_null() && TYPES.iter().any(|data_type| has_it(data_type) && data_type.family == family)
}

/// Registers the data types. The error is the name of the first that the server rejects.
pub(crate) fn register(ctx: &Context) -> Result<(), &'static CStr> {
    let is_alone = names().are_usual();
    for data_type in &TYPES {
        // A usual type of another module is left alone, even if that module is loaded later.
        let beside = data_type.encoding.name_beside();
        let name = beside.filter(|_| !is_alone).unwrap_or(data_type.encoding.type_name());
        data_type.handle.store(data_type.create(ctx, name)?, Ordering::Relaxed);
        if let Some(name) = beside.filter(|_| is_alone) {
            data_type.beside_handle.store(data_type.create(ctx, name)?, Ordering::Relaxed);
        }
    }
    Ok(())
}

impl DataType {
    const fn new<const ENCODING: usize>(family: &'static Family) -> DataType {
        DataType {
            encoding: Encoding::ALL[ENCODING],
            family,
            rdb_load: rdb_load::<ENCODING>,
            handle: AtomicPtr::new(ptr::null_mut()),
            beside_handle: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn of(filter: &Filter) -> &'static DataType {
        let encoding = Encoding::of(filter.kind());
        let data_type = &TYPES[encoding as usize];
        debug_assert_eq!(data_type.encoding, encoding, "the data types are in the order of the encodings");
        data_type
    }

    /// Creates a type of this name. The error is the name, if the server rejects it.
    fn create(&self, ctx: &Context, name: &'static CStr) -> Result<*mut raw::RedisModuleType, &'static CStr> {
        // One type has the field of the module.
        let is_own = self.encoding == Encoding::Own;
        let mut methods = raw::RedisModuleTypeMethods {
            version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
            rdb_load: Some(self.rdb_load),
            rdb_save: Some(rdb_save),
            aof_rewrite: Some(aof_rewrite),
            mem_usage: Some(mem_usage),
            digest: Some(digest),
            free: Some(free),
            aux_load: is_own.then_some(aux_load),
            aux_save_triggers: if is_own { raw::REDISMODULE_AUX_BEFORE_RDB as c_int } else { 0 },
            free_effort: Some(free_effort),
            copy: Some(copy),
            defrag: Some(defrag),
            aux_save2: is_own.then_some(aux_save),
            // SAFETY: the fields are numbers and optional functions, which may be 0.
            ..unsafe { mem::zeroed() }
        };
        let version = self.encoding.version() as c_int;
        // SAFETY: the context is alive, the name has nine characters and a NUL, and the server copies the methods.
        let handle = unsafe { call!(RedisModule_CreateDataType(ctx.as_raw(), name.as_ptr(), version, &mut methods)) };
        if handle.is_null() { Err(name) } else { Ok(handle) }
    }
}

/// Returns the filter behind a value of one of the data types.
///
/// # Safety
///
/// `value` must come from [`into_value`], must not have been freed, and must not change during `'a`.
unsafe fn filter<'a>(value: *const c_void) -> &'a Filter {
    // SAFETY: all values of the data types are boxed filters.
    unsafe { &*value.cast() }
}

/// Converts a filter into a value for the server, which later passes it to [`free`].
pub(crate) fn into_value(filter: Filter) -> *mut c_void {
    statistics::on_create(&filter);
    Box::into_raw(Box::new(filter)).cast()
}

/// Loads a filter from an RDB file or payload. If it is rejected, logs the reason and returns null.
///
/// # Safety
///
/// Only the server may call this and the callbacks below, with a file, key or value that lives for the time of the call
/// and that nobody else changes.
unsafe extern "C" fn rdb_load<const ENCODING: usize>(rdb: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    // SAFETY: the server hands over a file for the time of the call.
    let mut file = unsafe { Io::new(rdb) };
    catch_panic(c"rdb_load", ptr::null_mut(), || {
        let server = Server::without_context();
        let admission = Admission::new(&server, 0, Limit::System);
        let version = u64::try_from(version).unwrap_or(u64::MAX);
        let decoded = Encoding::ALL[ENCODING].read(version, &mut file, &mut |bytes| admission.admits(bytes));
        match decoded {
            // Only after all is read: the server takes a value that is not read to its end for damaged.
            Ok(_) if !written_prefix::may_load(&server) => ptr::null_mut(),
            Ok(filter) => into_value(filter),
            Err(error) => {
                let rejection = Error::decoding(error, admission.limit());
                // The text of an error for lack of memory ends with the limit.
                let limit = rejection.limit().and_then(|_| rejection.text().to_str().ok()?.split_once(": "));
                let limit = limit.map_or(String::new(), |(_, limit)| format!(", {}", named(limit)));
                let is_loading = server.is_replicated_or_loading();
                // The server rejects the whole file or stream then. Usually, the link to the master broke: the replica
                // lacks nothing once it has synchronized again.
                let ends_early = is_loading && error == DecodeError::Corrupt && file.has_failed();
                let reason = if ends_early {
                    "it ends early or is damaged".to_owned()
                } else {
                    statistics::count_rejection(rejection, is_loading);
                    error.to_string()
                };
                let key = file.key_name().map_or("unknown".to_owned(), |name| name.shown().to_string());
                server.log_warning(&format!("rejected a filter in a file or payload: {reason}{limit} (key '{key}')"));
                admission::exit_if_data_lost(&server, rejection);
                ptr::null_mut()
            }
        }
    })
}

unsafe extern "C" fn rdb_save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server hands over a file and one of our values for the time of the call.
    let (mut file, filter) = unsafe { (Io::new(rdb), filter(value)) };
    save_or_exit(c"rdb_save", || codec::write_rdb(filter, &mut file).is_ok());
}

unsafe extern "C" fn aof_rewrite(aof: *mut raw::RedisModuleIO, key: RawString, value: *mut c_void) {
    // SAFETY: the server hands over a file, the key's name and one of our values for the time of the call.
    let (mut file, key, filter) = unsafe { (Io::new(aof), Arg::new(key), filter(value)) };
    save_or_exit(c"aof_rewrite", || {
        let Ok(payload) = codec::valkey::encode_payload(filter) else { return false };
        if let Some(payload) = payload {
            file.write_command(BLOOM.replicated_name(Verb::Load), key, &[&payload]);
            return true;
        }
        let loadchunk = family_of(filter).replicated_name(Verb::Loadchunk);
        let mut write = |DumpChunk { cursor, data }: DumpChunk| {
            file.write_command(loadchunk, key, &[cursor.to_string().as_bytes(), &data]);
        };
        codec::dump(filter).all(|chunk| chunk.map(&mut write).is_ok())
    });
}

/// Writes the prefix of the module before the keys. Servers before Redis 7.2 do not call this.
unsafe extern "C" fn aux_save(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: the server hands over a file for the time of the call.
    let mut file = unsafe { Io::new(rdb) };
    catch_panic(c"aux_save", (), || {
        if !names().are_usual() && statistics::has_filters() {
            Sink::string(&mut file, names().prefix.as_bytes());
        }
    });
}

unsafe extern "C" fn aux_load(rdb: *mut raw::RedisModuleIO, _version: c_int, _when: c_int) -> c_int {
    // SAFETY: the server hands over a file for the time of the call.
    let mut file = unsafe { Io::new(rdb) };
    catch_panic(c"aux_load", FAILED, || {
        let prefix: Result<_, DecodeError> = Source::string(&mut file);
        let may_load = prefix.is_ok_and(|prefix| written_prefix::set(&Server::without_context(), prefix.as_ref()));
        if may_load { OK } else { FAILED }
    })
}

/// Runs a save. A callback cannot report to the server that it failed. So if the save fails in the child process that
/// writes the file, the child exits: the server reports a failed save and tries again later. If the server itself
/// writes (SAVE, DUMP), it goes on, and the incomplete value is rejected when it is loaded.
fn save_or_exit(what: &CStr, save: impl FnOnce() -> bool) {
    if !catch_panic(what, false, save) {
        let server = Server::without_context();
        server.log_warning(&format!(
            "{} failed, out of memory or by a bug of the module: what was written is incomplete",
            what.to_string_lossy()
        ));
        if server.is_child() {
            server.exit()
        }
    }
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server hands over one of our values for the time of the call.
    let filter = unsafe { filter(value) };
    catch_panic(c"mem_usage", 0, || filter.memory_usage() + changes::memory_usage(filter))
}

unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    // SAFETY: the server hands over one of our values for the time of the call.
    let filter = unsafe { filter(value) };
    catch_panic(c"digest", (), || {
        // SAFETY: the server hands over a digest for the time of the call, and only reads the bytes.
        let add = |bytes: &[u8]| unsafe {
            call!(RedisModule_DigestAddStringBuffer(digest, bytes.as_ptr().cast(), bytes.len()))
        };
        // If memory runs out, the digest is incomplete and matches no other.
        let _ = codec::digest(filter, add);
        // SAFETY: as above.
        unsafe { call!(RedisModule_DigestEndSequence(digest)) };
    });
}

/// Frees a value.
///
/// # Safety
///
/// `value` must come from [`into_value`], and nobody may use it afterwards.
pub(crate) unsafe extern "C" fn free(value: *mut c_void) {
    catch_panic(c"free", (), || {
        lookahead::forget(value.cast());
        changes::forget(value.cast());
        // SAFETY: the server hands back one of our values, and no longer uses it.
        let filter = unsafe { Box::from_raw(value.cast::<Filter>()) };
        statistics::on_free(&filter);
    });
}

/// Returns the work of freeing a filter in the server's unit, allocations. The system takes time to get back the pages
/// of a large allocation, so each 64 KiB counts as one. Filters from 4 MiB on are therefore freed in the background. A
/// table has one allocation for each segment.
unsafe extern "C" fn free_effort(_key: RawString, value: *const c_void) -> usize {
    const UNIT: usize = 64 << 10;
    // SAFETY: the server hands over one of our values for the time of the call.
    let filter = unsafe { filter(value) };
    catch_panic(c"free_effort", 1, || filter.num_allocations() + filter.memory_usage() / UNIT)
}

unsafe extern "C" fn copy(_from: RawString, _to: RawString, value: *const c_void) -> *mut c_void {
    // SAFETY: the server hands over one of our values for the time of the call.
    let filter = unsafe { filter(value) };
    catch_panic(c"copy", ptr::null_mut(), || {
        admission::copy(&Server::without_context(), filter).map_or_else(
            |error| {
                statistics::count_rejection(error, false);
                ptr::null_mut()
            },
            into_value,
        )
    })
}

/// Moves the allocations of a filter to where the server's defragmenter wants them. Only small allocations move, since
/// large ones have their own pages. A table has many allocations, so this checks now and then whether to stop and
/// continue in a later call.
unsafe extern "C" fn defrag(ctx: *mut raw::RedisModuleDefragCtx, _key: RawString, value: *mut *mut c_void) -> c_int {
    catch_panic(c"defrag", 0, || {
        if !configuration::is_defragmented() {
            return 0;
        }
        // SAFETY: the server hands over its defragmenter and the place of one of our values for the time of the call.
        // Nobody else uses the value. All addresses are from its allocator, which is jemalloc if it defragments, and so
        // begin its blocks. Their owners use the new addresses from then on.
        unsafe {
            // Returns the new address of an allocation, or `None` if its address is good already.
            let relocate = |address: NonNull<u8>| {
                let moved = NonNull::new(call!(RedisModule_DefragAlloc(ctx, address.as_ptr().cast())).cast::<u8>());
                statistics::count_defragmentation(moved.is_some());
                moved
            };
            // The position at which the last call for this value stopped. The first call has none.
            let mut start = 0;
            if call!(RedisModule_DefragCursorGet(ctx, &raw mut start)) != OK {
                start = 0;
            }
            lookahead::forget((*value).cast());
            if start == 0
                && let Some(moved) = NonNull::new((*value).cast()).and_then(relocate)
            {
                changes::moved((*value).cast(), moved.as_ptr().cast());
                *value = moved.as_ptr().cast();
            }
            let should_stop = || call!(RedisModule_DefragShouldStop(ctx)) != 0;
            let stopped = (*(*value).cast::<Filter>()).relocate(start, Mover::new(&relocate), should_stop);
            stopped.is_some_and(|position| call!(RedisModule_DefragCursorSet(ctx, position)) == OK).into()
        }
    })
}
