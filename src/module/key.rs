//! Keys of the key space that hold filters, or may come to.

use std::ffi::c_int;
use std::ptr::NonNull;

use redis_module::raw;

use super::args::Arg;
use super::context::Context;
use super::datatype;
use super::edge::call;
use super::error::Error;
use crate::filter::Filter;

/// An open key; closed when dropped.
struct Handle(*mut raw::RedisModuleKey);

impl Handle {
    fn open(ctx: &Context, name: Arg, mode: u32) -> Handle {
        Handle(call!(RedisModule_OpenKey(ctx.as_raw(), name.as_raw(), mode as c_int)))
    }

    /// The filter of the key, `None` if there is no such key.
    fn filter(&self) -> Result<Option<NonNull<Filter>>, Error> {
        if self.0.is_null() || call!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
            return Ok(None);
        }
        if call!(RedisModule_ModuleTypeGetType(self.0)) != datatype::handle() {
            return Err(Error::WrongType);
        }
        Ok(NonNull::new(call!(RedisModule_ModuleTypeGetValue(self.0)).cast()))
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
        // SAFETY: a value of our data type is a `Filter`, which stays while the key is open; commands run one at a time.
        self.0.filter().map(|filter| filter.map(|filter| unsafe { filter.as_ref() }))
    }
}

/// A key that is changed.
pub struct WriteKey(Handle);

impl WriteKey {
    pub fn open(ctx: &Context, name: Arg) -> WriteKey {
        WriteKey(Handle::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE))
    }

    /// The filter of the key, `None` if there is no such key.
    pub fn filter(&mut self) -> Result<Option<&mut Filter>, Error> {
        // SAFETY: as for `ReadKey`; `self` is borrowed mutably, and is the only one to have the key open.
        self.0.filter().map(|filter| filter.map(|mut filter| unsafe { filter.as_mut() }))
    }

    /// Makes `filter` the value of a key that has none.
    pub fn create(&mut self, filter: Filter) -> Result<&mut Filter, Error> {
        let value = Box::into_raw(Box::new(filter));
        let status = call!(RedisModule_ModuleTypeSetValue(self.0.0, datatype::handle(), value.cast()));
        if status != raw::REDISMODULE_OK as c_int {
            // SAFETY: the server did not take the value, which is a box of ours.
            drop(unsafe { Box::from_raw(value) });
            return Err(Error::Internal);
        }
        // SAFETY: the value was just made, and now stays while the key is open.
        Ok(unsafe { &mut *value })
    }
}
