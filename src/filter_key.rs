//! Keys of the key space that hold filters, or are to hold one.
//!
//! A filter is borrowed from its open key, and the key from the [`Keyspace`]: see [`server::key`](crate::server::key)
//! for why.

use std::ptr::NonNull;

use redis_module::raw;

use crate::admission;
use crate::datatype;
use crate::reply_error::Error;
use crate::server::{Arg, Context, Keyspace, OpenKey};
use oxbloom_filter::Filter;

const READ: u32 = raw::REDISMODULE_READ;
const WRITE: u32 = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;

/// Finds the filter of an open key, `None` if there is no such key. It stays while the key is open.
#[inline]
fn find(key: &OpenKey) -> Result<Option<NonNull<Filter>>, Error> {
    if key.is_missing() {
        return Ok(None);
    }
    if datatype::is_filter(key.data_type()) {
        return Ok(NonNull::new(key.value().cast()));
    }
    if key.is_empty() { Ok(None) } else { Err(Error::WrongType) }
}

/// A key that is read.
pub(crate) struct ReadKey<'k>(OpenKey<'k>);

impl<'k> ReadKey<'k> {
    #[inline]
    pub(crate) fn open(keyspace: Keyspace<'k>, ctx: &Context, name: Arg) -> ReadKey<'k> {
        ReadKey(OpenKey::open(keyspace, ctx, name, READ))
    }

    /// Returns the filter of the key, `None` if there is no such key.
    #[inline]
    pub(crate) fn filter(&self) -> Result<Option<&Filter>, Error> {
        // SAFETY: a value of our data types is a `Filter`. It stays while the key is open: commands run one at a time,
        // and listeners only run with the permission that the key has.
        find(&self.0).map(|filter| filter.map(|filter| unsafe { filter.as_ref() }))
    }
}

/// A key that is changed.
pub(crate) struct WriteKey<'k> {
    key: OpenKey<'k>,
    filter: Option<NonNull<Filter>>,
}

impl<'k> WriteKey<'k> {
    #[inline]
    pub(crate) fn open(keyspace: Keyspace<'k>, ctx: &Context, name: Arg) -> Result<WriteKey<'k>, Error> {
        let key = OpenKey::open(keyspace, ctx, name, WRITE);
        let filter = find(&key)?;
        Ok(WriteKey { key, filter })
    }

    /// Opens a key whose value, if it has one of any type, is to be replaced by [`create`](Self::create).
    pub(crate) fn open_to_replace(keyspace: Keyspace<'k>, ctx: &Context, name: Arg) -> WriteKey<'k> {
        WriteKey { key: OpenKey::open(keyspace, ctx, name, WRITE), filter: None }
    }

    /// As [`open_to_replace`](Self::open_to_replace), for a creation by the master or the append-only file, where the
    /// key does not exist: logs a warning if it exists here.
    pub(crate) fn open_to_create(keyspace: Keyspace<'k>, ctx: &Context, name: Arg) -> WriteKey<'k> {
        let key = WriteKey::open_to_replace(keyspace, ctx, name);
        if !matches!(find(&key.key), Ok(None)) {
            let name = name.shown();
            ctx.log_warning(&format!(
                "'{name}' exists here, but not where the master or the append-only file creates it: replaced"
            ));
        }
        key
    }

    /// Returns true if there is a filter in the key that is not to be replaced.
    #[inline]
    pub(crate) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns the filter of the key, `None` if there is none that is not to be replaced.
    #[inline]
    pub(crate) fn filter(&mut self) -> Option<&mut Filter> {
        // SAFETY: as for `ReadKey`; `self` is borrowed mutably, and is the only one to have the key open.
        self.filter.map(|mut filter| unsafe { filter.as_mut() })
    }

    /// Makes the key expire at a time, in milliseconds since 1970. Without a value, nothing happens.
    pub(crate) fn set_expire_time(&mut self, time: i64) {
        self.key.set_expire_time(time);
    }

    /// Makes `filter` the value of the key, and closes it. A value that it has already, and its time to live, are gone.
    /// Returns the permission to open the key again.
    pub(crate) fn create(self, filter: Filter) -> Result<Keyspace<'k>, Error> {
        let data_type = datatype::handle_for(&filter);
        let value = datatype::into_value(filter);
        // SAFETY: the key is open to be written, and the value is one of that type.
        unsafe { self.key.set_value(data_type, value) }.map_err(|_| {
            // SAFETY: the server did not take the value.
            unsafe { datatype::free(value) };
            Error::Internal
        })
    }
}

/// A key that is changed, and others that are read at the same time, each of which holds a filter.
pub(crate) struct KeyWithSources<'k> {
    key: WriteKey<'k>,
    sources: Vec<ReadKey<'k>>,
}

impl<'k> WriteKey<'k> {
    /// Opens other keys to be read while this one is open.
    ///
    /// # Errors
    ///
    /// The error of the first that is missing or holds something else. All keys are closed then.
    pub(crate) fn with_sources<'a>(
        self,
        ctx: &Context,
        sources: impl Iterator<Item = Arg<'a>>,
    ) -> Result<KeyWithSources<'k>, Error> {
        let mut keys =
            KeyWithSources { key: self, sources: admission::try_vec(ctx, sources.size_hint().1.unwrap_or(0))? };
        for name in sources {
            // SAFETY: a key without a value is an error, with which all keys are closed.
            let source = ReadKey(unsafe { keys.key.key.open_another(ctx, name, READ) });
            let filter = find(&source.0)?.ok_or(Error::NotFound)?;
            // The key's own filter must not be borrowed twice.
            if keys.key.filter != Some(filter) {
                keys.sources.push(source);
            }
        }
        Ok(keys)
    }
}

impl<'k> KeyWithSources<'k> {
    /// Returns the filter of the key, `None` if it has none, and those of the others.
    pub(crate) fn filters(&mut self) -> (Option<&mut Filter>, impl Iterator<Item = &Filter>) {
        let sources = self.sources.iter().filter_map(|source| source.filter().ok().flatten());
        (self.key.filter(), sources)
    }

    /// Closes all keys but the one that is changed.
    pub(crate) fn close_sources(self) -> WriteKey<'k> {
        self.key
    }
}
