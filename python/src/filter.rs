//! The class `BloomFilter`: a filter and its lock, and what the [methods](crate::methods) share.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, TryLockError};
use std::time::SystemTime;

use oxbloom_filter::internals::{BATCH, InsertOptions};
use oxbloom_filter::{Filter, MergeError};
use pyo3::prelude::*;

use crate::error::{broken, failed, interrupted, unmergeable};
use crate::fork;

/// A Bloom filter: a set that stores each item in a few bits.
///
/// `item in filter` is always True for an item that was added. For other items, it is False, except for false
/// positives: at most a share of error_rate. The bits are the same as in an oxbloom filter on a server, so filters can
/// be copied between both.
///
/// An item is a str, bytes, a bytearray, or a memoryview of bytes. A str stands for its UTF-8 bytes, as in clients of
/// servers. Other types raise TypeError.
///
/// capacity: the number of distinct items that fit, at least 1.
/// error_rate: the false-positive rate of a full filter, above 0 and below 1.
/// growing: True if the filter grows when it is full, at the same error rate; or the expansion, as for BF.RESERVE.
/// seed: the seed of the hash, random by default. Anyone who knows it can craft items that collide. Only filters with
/// equal seeds can be merged: see empty_like.
/// counting: True for a filter that counts its items, so that they can be removed.
/// window: the time for which an item is remembered, in seconds or as a timedelta. It is forgotten at most one slice of
/// the window later.
/// rolling: True for a filter that remembers the last `capacity` items. Can be combined with a window.
/// refresh: True if an item's time starts again when the item is added again.
/// slices: the number of slices of a window, from 2 to 64, by default 15. The filter forgets one slice at a time.
/// classic: True for RedisBloom's layout.
#[pyclass(frozen, weakref, module = "oxbloom")]
pub(crate) struct BloomFilter {
    filter: RwLock<Filter>,
    is_driven: AtomicBool,
}

impl From<Filter> for BloomFilter {
    fn from(filter: Filter) -> BloomFilter {
        BloomFilter { filter: RwLock::new(filter), is_driven: AtomicBool::new(false) }
    }
}

/// Access to the filter. A thread releases the GIL while it waits for the filter's lock.
impl BloomFilter {
    /// Calls `read` with the filter. `read` may hold the GIL, so it must be quick.
    pub(crate) fn with<T: Send>(&self, py: Python<'_>, read: impl FnOnce(&Filter) -> T + Send) -> PyResult<T> {
        match self.filter.try_read() {
            Ok(filter) => Ok(read(&filter)),
            Err(TryLockError::WouldBlock) => py.detach(|| self.with_detached(read)),
            Err(TryLockError::Poisoned(_)) => Err(broken()),
        }
    }

    /// Calls `read` with the filter. The thread must not hold the GIL.
    pub(crate) fn with_detached<T>(&self, read: impl FnOnce(&Filter) -> T) -> PyResult<T> {
        let _fork = fork::delayed();
        self.filter.read().map(|filter| read(&filter)).map_err(|_| broken())
    }

    /// Calls `change` with the filter. `change` may hold the GIL, so it must be quick.
    pub(crate) fn with_mut<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Filter) -> T + Send,
    ) -> PyResult<T> {
        match self.filter.try_write() {
            Ok(mut filter) => Ok(change(&mut filter)),
            Err(TryLockError::WouldBlock) => py.detach(|| self.with_mut_detached(change)),
            Err(TryLockError::Poisoned(_)) => Err(broken()),
        }
    }

    /// Calls `change` with the filter. The thread must not hold the GIL.
    pub(crate) fn with_mut_detached<T>(&self, change: impl FnOnce(&mut Filter) -> T) -> PyResult<T> {
        let _fork = fork::delayed();
        self.filter.write().map(|mut filter| change(&mut filter)).map_err(|_| broken())
    }

    /// Compares this filter and `other`, which is also locked. The thread must not hold the GIL.
    pub(crate) fn equals_detached(&self, other: &BloomFilter) -> PyResult<bool> {
        // A thread that waits to change a filter blocks new readers, also a thread that is already reading it.
        if ptr::eq(self, other) {
            return self.with_detached(|_| true);
        }
        // The same order in all threads. Otherwise, two of them could each hold the lock that the other one needs.
        let (first, second) = if ptr::from_ref(self) < ptr::from_ref(other) { (self, other) } else { (other, self) };
        let _fork = fork::delayed();
        let first = first.filter.read().map_err(|_| broken())?;
        let second = second.filter.read().map_err(|_| broken())?;
        first.try_eq(&second).map_err(failed)
    }

    /// Returns true if `advance_to` sets the time, false if the system's clock does.
    pub(crate) fn is_driven(&self) -> bool {
        self.is_driven.load(Ordering::Relaxed)
    }

    pub(crate) fn set_driven(&self, is_driven: bool) {
        self.is_driven.store(is_driven, Ordering::Relaxed);
    }

    /// Returns the time for a filter that forgets, in milliseconds since 1970. With 0, it keeps the time that it has.
    pub(crate) fn now(&self, filter: &Filter) -> u64 {
        if !filter.needs_time() || self.is_driven() {
            return 0;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn copied(&self, py: Python<'_>) -> PyResult<Filter> {
        py.detach(|| self.with_detached(Filter::try_clone))?.map_err(failed)
    }

    /// Wraps another filter, which gets its time from the same source as this one.
    pub(crate) fn alike(&self, filter: Filter) -> BloomFilter {
        let alike = BloomFilter::from(filter);
        alike.set_driven(self.is_driven());
        alike
    }

    /// Returns the merge of this filter and `other`.
    pub(crate) fn merged(&self, py: Python<'_>, other: &BloomFilter, merge: Merge) -> PyResult<BloomFilter> {
        let mut copy = self.copied(py)?;
        py.detach(|| other.with_detached(|other| merge(&mut copy, other)))?.map_err(unmergeable)?;
        Ok(self.alike(copy))
    }

    /// Merges `other` into this filter. Copies `other` first, so that the thread holds only one lock at a time.
    pub(crate) fn merge(&self, py: Python<'_>, other: &BloomFilter, merge: Merge) -> PyResult<()> {
        let other = other.copied(py)?;
        py.detach(|| self.with_mut_detached(|filter| merge(filter, &other)))?.map_err(unmergeable)?;
        Ok(())
    }
}

type Merge = fn(&mut Filter, &Filter) -> Result<bool, MergeError>;

/// Operations on a group of items. They append the answers to a vector.
impl BloomFilter {
    pub(crate) fn add_group(&self, items: &[&[u8]], present: &mut Vec<bool>) -> PyResult<()> {
        self.with_mut_detached(|filter| {
            let options = InsertOptions { now: self.now(filter), ..InsertOptions::default() };
            for items in items.chunks(BATCH) {
                let mut new = [false; BATCH];
                let new = &mut new[..items.len()];
                let batch = filter.prepare_batch(items.iter().copied());
                let inserted = filter.insert_hashes(batch.hashes(), new, &mut [], &options, &mut |_bytes| true);
                let handled = inserted.as_ref().map_or_else(|interrupted| interrupted.handled, |()| items.len());
                let done = present.len();
                present.extend(new[..handled].iter().map(|new| !new));
                inserted.map_err(|error| interrupted(error, done))?;
            }
            Ok(())
        })?
    }

    pub(crate) fn find_group(&self, items: &[&[u8]], present: &mut Vec<bool>) -> PyResult<()> {
        self.with_detached(|filter| {
            let now = self.now(filter);
            for items in items.chunks(BATCH) {
                let mut found = [false; BATCH];
                let found = &mut found[..items.len()];
                let batch = filter.hash_batch(items.iter().copied());
                filter.contains_hashes(batch.hashes(), found, now);
                present.extend_from_slice(found);
            }
        })
    }

    pub(crate) fn remove_group(&self, items: &[&[u8]], removed: &mut Vec<bool>) -> PyResult<()> {
        self.with_mut_detached(|filter| {
            for item in items {
                removed.push(filter.remove(item).map_err(failed)?);
            }
            Ok(())
        })?
    }

    pub(crate) fn count_group(&self, items: &[&[u8]], counts: &mut Vec<u64>) -> PyResult<()> {
        self.with_detached(|filter| {
            for item in items {
                counts.push(filter.count(item).map_err(failed)?);
            }
            Ok(())
        })?
    }
}
