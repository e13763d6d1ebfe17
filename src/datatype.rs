//! The data types: what the server does with filters that are not commands.
//!
//! Native filters are of the type `oxbloom--`, classic ones of RedisBloom's `MBbloom--`, whose files they share.
//!
//! RDB files and DUMP payloads are files of [`codec`](oxbloom_filter::codec); an AOF rewrite is a walk, as `BF.LOADCHUNK`
//! commands.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use super::alloc::can_be_had;
use super::args::Args;
use super::context::Context;
use super::edge::{call, guard};
use super::error::Error;
use super::memory::{self, Admission};
use super::stats;
use oxbloom_filter::Filter;
use oxbloom_filter::codec::{self, DecodeError, Sink, Source, classic, native};
use oxbloom_filter::storage::Bytes;

/// A data type. The values of all of them are filters.
struct DataType {
    /// Nine characters, as the server wants it.
    name: &'static CStr,
    /// The version of the files that are written.
    version: u32,
    rdb_load: unsafe extern "C" fn(*mut raw::RedisModuleIO, c_int) -> *mut c_void,
    /// What the server knows it by.
    handle: AtomicPtr<raw::RedisModuleType>,
}

static NATIVE: DataType = DataType {
    name: c"oxbloom--",
    version: native::VERSION as u32,
    rdb_load: rdb_load_native,
    handle: AtomicPtr::new(ptr::null_mut()),
};

static CLASSIC: DataType = DataType {
    name: c"MBbloom--",
    version: classic::VERSION,
    rdb_load: rdb_load_classic,
    handle: AtomicPtr::new(ptr::null_mut()),
};

/// What the server knows the data type of a filter by.
pub fn handle_for(filter: &Filter) -> *mut raw::RedisModuleType {
    let data_type = match filter {
        Filter::Native(_) | Filter::Counting(_) => &NATIVE,
        Filter::Classic(_) => &CLASSIC,
    };
    data_type.handle.load(Ordering::Relaxed)
}

/// Whether values of this type are filters.
#[inline]
pub fn is_filter(handle: *mut raw::RedisModuleType) -> bool {
    [&NATIVE, &CLASSIC].into_iter().any(|data_type| data_type.handle.load(Ordering::Relaxed) == handle)
}

/// Registers the data types. `false` if the server refuses.
pub fn register(ctx: &Context) -> bool {
    [&NATIVE, &CLASSIC].into_iter().all(|data_type| data_type.register(ctx))
}

impl DataType {
    fn register(&self, ctx: &Context) -> bool {
        let mut methods = raw::RedisModuleTypeMethods {
            version: raw::REDISMODULE_TYPE_METHOD_VERSION.into(),
            rdb_load: Some(self.rdb_load),
            rdb_save: Some(rdb_save),
            aof_rewrite: Some(aof_rewrite),
            mem_usage: Some(mem_usage),
            digest: Some(digest),
            free: Some(free),
            aux_load: None,
            aux_save: None,
            aux_save_triggers: 0,
            free_effort: Some(free_effort),
            unlink: None,
            copy: Some(copy),
            defrag: Some(defrag),
            mem_usage2: None,
            free_effort2: None,
            unlink2: None,
            copy2: None,
            aux_save2: None,
        };
        let version = self.version as c_int;
        let handle = call!(RedisModule_CreateDataType(ctx.as_raw(), self.name.as_ptr(), version, &mut methods));
        self.handle.store(handle, Ordering::Relaxed);
        !handle.is_null()
    }
}

/// The filter behind a value of one of the data types.
///
/// # Safety
///
/// `value` must be one that the server got from us and has not given back, and not change during `'a`.
unsafe fn filter<'a>(value: *const c_void) -> &'a Filter {
    // SAFETY: all values of the data types are boxed filters.
    unsafe { &*value.cast() }
}

/// Makes a filter a value for the server, which gives it back to [`free`].
pub fn into_value(filter: Filter) -> *mut c_void {
    stats::entered(&filter);
    Box::into_raw(Box::new(filter)).cast()
}

extern "C" fn rdb_load_native(rdb: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    load(rdb, |admission| {
        if version > c_int::from(native::VERSION) {
            return Err(DecodeError::NewerVersion);
        }
        native::load(&mut Stream(rdb), |bytes| admission.admits(bytes))
    })
}

extern "C" fn rdb_load_classic(rdb: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    load(rdb, |admission| {
        let version = u32::try_from(version).map_err(|_| DecodeError::Corrupt)?;
        classic::load(version, &mut Stream(rdb), |bytes| admission.admits(bytes)).map(Filter::Classic)
    })
}

fn load(rdb: *mut raw::RedisModuleIO, load: impl FnOnce(&Admission) -> Result<Filter, DecodeError>) -> *mut c_void {
    guard(c"rdb_load", ptr::null_mut(), || {
        let ctx = Context::detached();
        let admission = Admission::new(&ctx, 0);
        match load(&admission) {
            Ok(filter) => into_value(filter),
            Err(error) => {
                let rejection = Error::decoding(error, admission.limit());
                let limit = rejection.limit().map_or(String::new(), |limit| format!(", {limit}"));
                stats::refused(rejection);
                if ctx.must_obey() {
                    stats::replicated_refused();
                }
                ctx.log_warning(&format!("a filter was refused: {error}{limit} (key '{}')", key_of(rdb)));
                memory::refused(&ctx, rejection);
                ptr::null_mut()
            }
        }
    })
}

/// The key whose value is loaded, as far as the server tells.
fn key_of(rdb: *mut raw::RedisModuleIO) -> String {
    let mut name = call!(RedisModule_GetKeyNameFromIO(rdb)).cast_mut();
    if name.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: the server hands over a live string for the time of the load.
    unsafe { Args::new(&mut name, 1) }.at(0).shown().to_string()
}

/// A file or payload that is read or written.
struct Stream(*mut raw::RedisModuleIO);

impl Stream {
    fn check<T>(&self, value: T) -> Result<T, DecodeError> {
        if call!(RedisModule_IsIOError(self.0)) == 0 { Ok(value) } else { Err(DecodeError::Corrupt) }
    }

    /// A string. If it cannot be read, the server does not say why: where there is no memory for `expected` bytes, packed and
    /// unpacked, it was that.
    fn read(&mut self, expected: usize) -> Result<Buffer, DecodeError> {
        let mut length = 0;
        let start = NonNull::new(call!(RedisModule_LoadStringBuffer(self.0, &mut length)));
        let buffer = start.map(|start| Buffer { start, length });
        let is_short = || !can_be_had(expected.saturating_mul(2));
        let failed = || if is_short() { DecodeError::OutOfMemory } else { DecodeError::Corrupt };
        self.check(()).ok().and(buffer).ok_or_else(failed)
    }
}

impl Source for Stream {
    type String = Buffer;

    fn unsigned(&mut self) -> Result<u64, DecodeError> {
        let number = call!(RedisModule_LoadUnsigned(self.0));
        self.check(number)
    }

    fn double(&mut self) -> Result<f64, DecodeError> {
        let number = call!(RedisModule_LoadDouble(self.0));
        self.check(number)
    }

    fn string(&mut self) -> Result<Buffer, DecodeError> {
        self.read(native::CHUNK_BYTES)
    }

    fn array(&mut self, bytes: u64) -> Result<Bytes, DecodeError> {
        let expected = usize::try_from(bytes).unwrap_or(usize::MAX);
        if !can_be_had(expected) {
            return Err(DecodeError::OutOfMemory);
        }
        let buffer = ManuallyDrop::new(self.read(expected)?);
        // SAFETY: the server allocated the buffer with its allocator, which is the global one here, and made it ours.
        Ok(unsafe { Bytes::adopt(buffer.start.cast(), buffer.length) })
    }
}

impl Sink for Stream {
    fn unsigned(&mut self, number: u64) {
        call!(RedisModule_SaveUnsigned(self.0, number));
    }

    fn double(&mut self, number: f64) {
        call!(RedisModule_SaveDouble(self.0, number));
    }

    fn string(&mut self, bytes: &[u8]) {
        call!(RedisModule_SaveStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }
}

/// Bytes that the server allocated for us.
struct Buffer {
    start: NonNull<c_char>,
    length: usize,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the server returned both, and the allocation is ours until dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        call!(RedisModule_Free(self.start.as_ptr().cast()));
    }
}

extern "C" fn rdb_save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    save_or_die(c"rdb_save", || {
        // SAFETY: the server hands over one of our values for the time of the call.
        codec::save(unsafe { filter(value) }, &mut Stream(rdb)).is_ok()
    });
}

extern "C" fn aof_rewrite(aof: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: *mut c_void) {
    save_or_die(c"aof_rewrite", || {
        // SAFETY: the server hands over one of our values for the time of the call.
        let filter = unsafe { filter(value) };
        let emit = |iterator: u64, data: &[u8]| {
            call!(RedisModule_EmitAOF(
                aof,
                c"BF.LOADCHUNK".as_ptr(),
                c"slb".as_ptr(),
                key,
                iterator as c_longlong,
                data.as_ptr().cast::<c_char>(),
                data.len()
            ));
        };
        let Ok(header) = codec::encode_header(filter) else { return false };
        emit(codec::HEADER_ITERATOR, &header);
        let mut iterator = codec::HEADER_ITERATOR;
        loop {
            match codec::next_piece(filter, iterator) {
                Ok(Some(piece)) => {
                    emit(piece.iterator, &piece.data);
                    iterator = piece.iterator;
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    });
}

/// Runs a save. One that fails, and with it the file, must not pass for whole, but the server has no way to be told: so
/// the child that writes the file ends, which the server reports as a failed save and tries again later. Where the server
/// itself writes (SAVE, DUMP) it goes on; what it wrote is refused when it is loaded.
fn save_or_die(what: &CStr, save: impl FnOnce() -> bool) {
    if !guard(what, false, save) {
        let ctx = Context::detached();
        ctx.log_warning(&format!("{} failed", what.to_string_lossy()));
        if ctx.is_child() {
            // SAFETY: ends the process without running anything else of it.
            unsafe { libc::_exit(1) }
        }
    }
}

extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server hands over one of our values for the time of the call.
    guard(c"mem_usage", 0, || unsafe { filter(value) }.memory_usage())
}

extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guard(c"digest", (), || {
        // SAFETY: the server hands over one of our values for the time of the call.
        let filter = unsafe { filter(value) };
        let add = |bytes: &[u8]| call!(RedisModule_DigestAddStringBuffer(digest, bytes.as_ptr().cast(), bytes.len()));
        // Without memory for it, the digest is one that nothing has.
        add(&codec::encode_header(filter).unwrap_or_default());
        filter.bits().for_each(add);
        call!(RedisModule_DigestEndSequence(digest));
    });
}

pub extern "C" fn free(value: *mut c_void) {
    guard(c"free", (), || {
        // SAFETY: the server gives back one of our values, and forgets it.
        let filter = unsafe { Box::from_raw(value.cast::<Filter>()) };
        stats::left(&filter);
    });
}

/// How much work it is to free a filter, in the server's unit, an allocation. Giving back the pages of a large one takes
/// longer than that; each 64 KiB count as one, so that from 4 MiB on it is done in the background.
extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    const UNIT: usize = 64 << 10;
    guard(c"free_effort", 1, || {
        // SAFETY: the server hands over one of our values for the time of the call.
        let filter = unsafe { filter(value) };
        filter.depth() + filter.memory_usage() / UNIT
    })
}

extern "C" fn copy(
    _from: *mut raw::RedisModuleString,
    _to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    guard(c"copy", ptr::null_mut(), || {
        // SAFETY: the server hands over one of our values for the time of the call.
        let filter = unsafe { filter(value) };
        memory::copy(&Context::detached(), filter).map_or_else(
            |error| {
                stats::refused(error);
                ptr::null_mut()
            },
            into_value,
        )
    })
}

/// Moves the allocations of a filter to where the server's defragmenter wants them. Only small ones ever are: large ones
/// have pages of their own.
extern "C" fn defrag(
    ctx: *mut raw::RedisModuleDefragCtx,
    _key: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guard(c"defrag", 0, || {
        let relocate = |address: NonNull<u8>| {
            let moved = NonNull::new(call!(RedisModule_DefragAlloc(ctx, address.as_ptr().cast())).cast::<u8>());
            stats::defragmented(moved.is_some());
            moved
        };
        // SAFETY: the server hands over the place of one of our values, and nobody else uses it meanwhile. The
        // defragmenter moves our allocations within the server's allocator, where they came from.
        unsafe {
            if let Some(moved) = NonNull::new((*value).cast()).and_then(relocate) {
                *value = moved.as_ptr().cast();
            }
            (*(*value).cast::<Filter>()).relocate(relocate);
        }
        0
    })
}
