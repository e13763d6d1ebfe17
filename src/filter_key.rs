//! Keys that hold filters, or that get a filter.
//!
//! A filter is borrowed from its open key, and the key from the [`Keyspace`]. [`server::key`](crate::server::key)
//! explains why.

use std::ptr::NonNull;

use redis_module::raw;

use crate::admission;
use crate::datatype;
use crate::family::Family;
use crate::reply_error::Error;
use crate::server::{Arg, Context, Keyspace, OpenKey};
use oxbloom_filter::Filter;

/// The mode of a key that is open for reading.
pub(crate) const READ: u32 = raw::REDISMODULE_READ;
const WRITE: u32 = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;

/// Returns the filter of an open key, or `None` if the key does not exist. The filter lives while the key is open. A
/// filter of another family is of the wrong type. Always inlined: a call costs BF.EXISTS 23 instructions.
#[inline(always)]
fn find(key: &OpenKey, family: &Family) -> Result<Option<NonNull<Filter>>, Error> {
    if key.is_missing() {
        return Ok(None);
    }
    if datatype::belongs_to(key.data_type(), family) {
        return Ok(NonNull::new(key.value().cast()));
    }
    if key.is_empty() { Ok(None) } else { Err(Error::WrongType) }
}

/// A key that is open for reading, by a command of a family.
pub(crate) struct ReadKey<'k> {
    key: OpenKey<'k>,
    family: &'static Family,
}

impl<'k> ReadKey<'k> {
    #[inline]
    pub(crate) fn open(keyspace: Keyspace<'k>, ctx: &Context, name: Arg) -> ReadKey<'k> {
        ReadKey { key: OpenKey::open(keyspace, ctx, name, READ), family: ctx.family }
    }

    /// Returns the filter of the key, or `None` if the key does not exist.
    #[inline]
    pub(crate) fn filter(&self) -> Result<Option<&Filter>, Error> {
        // SAFETY: a value of our data types is a `Filter`. It lives while the key is open: commands run one at a time,
        // and listeners can only run with the permission that the key holds.
        find(&self.key, self.family).map(|filter| filter.map(|filter| unsafe { filter.as_ref() }))
    }
}

/// A key that is open for writing.
pub(crate) struct WriteKey<'k> {
    key: OpenKey<'k>,
    filter: Option<NonNull<Filter>>,
}

impl<'k> WriteKey<'k> {
    #[inline]
    pub(crate) fn open(keyspace: Keyspace<'k>, ctx: &Context, name: Arg) -> Result<WriteKey<'k>, Error> {
        let key = OpenKey::open(keyspace, ctx, name, WRITE);
        let filter = find(&key, ctx.family)?;
        Ok(WriteKey { key, filter })
    }

    /// Opens a key to replace its value, of any type, with [`create`](Self::create).
    pub(crate) fn open_to_replace(keyspace: Keyspace<'k>, ctx: &Context, name: Arg) -> WriteKey<'k> {
        WriteKey { key: OpenKey::open(keyspace, ctx, name, WRITE), filter: None }
    }

    /// Opens a key to replace its value, for a creation that comes from the master or the append-only file. The key
    /// does not exist there. Logs a warning if it exists here.
    pub(crate) fn open_to_create(keyspace: Keyspace<'k>, ctx: &Context, name: Arg) -> WriteKey<'k> {
        let key = WriteKey::open_to_replace(keyspace, ctx, name);
        if !matches!(find(&key.key, ctx.family), Ok(None)) {
            let name = name.shown();
            ctx.log_warning(&format!(
                "replaced key '{name}': it exists here, but not where the master or the append-only file creates it (nothing to do)"
            ));
        }
        key
    }

    /// Returns true if the key has a filter and was not opened to replace it.
    #[inline]
    pub(crate) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns the filter of the key, or `None` if it has none or was opened to replace it.
    #[inline]
    pub(crate) fn filter(&mut self) -> Option<&mut Filter> {
        // SAFETY: as for `ReadKey`. `self` is borrowed mutably, and nothing else has the key open.
        self.filter.map(|mut filter| unsafe { filter.as_mut() })
    }

    /// Returns the time at which the key expires, in milliseconds since 1970, if it has one.
    pub(crate) fn expire_time(&self) -> Option<i64> {
        self.key.expire_time()
    }

    /// Sets the time at which the key expires, in milliseconds since 1970. Does nothing if the key has no value.
    pub(crate) fn set_expire_time(&mut self, time: i64) {
        self.key.set_expire_time(time);
    }

    /// Sets the value of the key to `filter`, and closes the key. Its previous value and time to live are removed.
    /// Returns the permission to open the key again.
    pub(crate) fn create(self, filter: Filter) -> Result<Keyspace<'k>, Error> {
        let data_type = datatype::handle_for(&filter);
        let value = datatype::into_value(filter);
        // SAFETY: the key is open for writing, and the value has that type.
        unsafe { self.key.set_value(data_type, value) }.ok_or_else(|| {
            // SAFETY: the server did not take the value.
            unsafe { datatype::free(value) };
            Error::Internal
        })
    }

    /// Opens source keys for reading while this key is open.
    ///
    /// # Errors
    ///
    /// The error of the first source that is missing or holds something else. All keys are then closed.
    pub(crate) fn with_sources<'a>(
        self,
        ctx: &Context,
        sources: impl Iterator<Item = Arg<'a>>,
    ) -> Result<KeyWithSources<'k>, Error> {
        let mut keys =
            KeyWithSources { key: self, sources: admission::try_vec(ctx, sources.size_hint().1.unwrap_or(0))? };
        for name in sources {
            // SAFETY: if this key has no value, the next line returns an error, which closes all keys.
            let key = unsafe { keys.key.key.open_another(ctx, name, READ) };
            let source = ReadKey { key, family: ctx.family };
            let filter = find(&source.key, source.family)?.ok_or(Error::NotFound)?;
            // The key's own filter must not be borrowed twice.
            if keys.key.filter != Some(filter) {
                keys.sources.push(source);
            }
        }
        Ok(keys)
    }
}

/// A key that is open for writing, and source keys that are open for reading at the same time. Each source has a
/// filter.
pub(crate) struct KeyWithSources<'k> {
    key: WriteKey<'k>,
    sources: Vec<ReadKey<'k>>,
}

impl<'k> KeyWithSources<'k> {
    /// Returns the filter of the key, if it has one, and those of the sources.
    pub(crate) fn filters(&mut self) -> (Option<&mut Filter>, impl Iterator<Item = &Filter>) {
        let sources = self.sources.iter().filter_map(|source| source.filter().ok().flatten());
        (self.key.filter(), sources)
    }

    /// Closes the sources, and returns the key that is open for writing.
    pub(crate) fn close_sources(self) -> WriteKey<'k> {
        self.key
    }
}
