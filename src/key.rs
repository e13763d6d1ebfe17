//! Keys of the key space that hold filters, or may come to.

use std::ffi::c_int;
use std::ptr::NonNull;

use redis_module::raw;

use super::args::Arg;
use super::context::Context;
use super::datatype;
use super::edge::{OK, call};
use super::error::Error;
use oxbloom_filter::Filter;

/// An open key; closed when dropped.
struct Handle(*mut raw::RedisModuleKey);

impl Handle {
    fn open(ctx: &Context, name: Arg, mode: u32) -> Handle {
        Handle(call!(RedisModule_OpenKey(ctx.as_raw(), name.as_raw(), mode as c_int)))
    }

    /// The filter of the key, `None` if there is no such key.
    fn filter(&self) -> Result<Option<NonNull<Filter>>, Error> {
        if self.0.is_null() {
            return Ok(None);
        }
        if datatype::is_filter(call!(RedisModule_ModuleTypeGetType(self.0))) {
            return Ok(NonNull::new(call!(RedisModule_ModuleTypeGetValue(self.0)).cast()));
        }
        let is_empty = call!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int;
        if is_empty { Ok(None) } else { Err(Error::WrongType) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.0.is_null() {
            call!(RedisModule_CloseKey(self.0));
        }
    }
}

/// A key that is looked at.
pub struct ReadKey(Handle);

impl ReadKey {
    pub fn open(ctx: &Context, name: Arg) -> ReadKey {
        ReadKey(Handle::open(ctx, name, raw::REDISMODULE_READ))
    }

    /// The filter of the key, `None` if there is no such key.
    pub fn filter(&self) -> Result<Option<&Filter>, Error> {
        // SAFETY: a value of our data types is a `Filter`. It stays while the key is open: commands run one at a time, and
        // listeners, who may do anything, are only told once the key is closed.
        self.0.filter().map(|filter| filter.map(|filter| unsafe { filter.as_ref() }))
    }
}

/// A key that is changed.
pub struct WriteKey {
    handle: Handle,
    filter: Option<NonNull<Filter>>,
}

impl WriteKey {
    pub fn open(ctx: &Context, name: Arg) -> Result<WriteKey, Error> {
        let handle = Handle::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE);
        let filter = handle.filter()?;
        Ok(WriteKey { handle, filter })
    }

    /// Opens a key whose value, if it has one of whatever type, is to be replaced by [`create`](Self::create).
    pub fn open_to_replace(ctx: &Context, name: Arg) -> WriteKey {
        let handle = Handle::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE);
        WriteKey { handle, filter: None }
    }

    /// As [`open_to_replace`](Self::open_to_replace), for a creation by the master or the append-only file, where the key does not
    /// exist: logs a warning if it exists here.
    pub fn open_to_create(ctx: &Context, name: Arg) -> WriteKey {
        let key = WriteKey::open_to_replace(ctx, name);
        if !matches!(key.handle.filter(), Ok(None)) {
            let name = name.shown();
            ctx.log_warning(&format!(
                "'{name}' exists here, but not where the master or the append-only file creates it: replaced"
            ));
        }
        key
    }

    /// The filter of the key, `None` if there is no such key.
    pub fn filter(&mut self) -> Option<&mut Filter> {
        // SAFETY: as for `ReadKey`; `self` is borrowed mutably, and is the only one to have the key open.
        self.filter.map(|mut filter| unsafe { filter.as_mut() })
    }

    /// Makes `filter` the value of the key. A value that it has already, and its time to live, are gone.
    pub fn create(&mut self, filter: Filter) -> Result<(), Error> {
        let data_type = datatype::handle_for(&filter);
        let value = datatype::into_value(filter);
        let status = call!(RedisModule_ModuleTypeSetValue(self.handle.0, data_type, value));
        if status != OK {
            // The server did not take it.
            datatype::free(value);
            return Err(Error::Internal);
        }
        self.filter = NonNull::new(value.cast());
        Ok(())
    }
}
