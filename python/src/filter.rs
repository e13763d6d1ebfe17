//! The class `BloomFilter`. For editors and type checkers, `_oxbloom.pyi` repeats its documentation.

use std::borrow::Cow;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, TryLockError};
use std::time::{Duration, SystemTime};

use oxbloom_filter::internals::codec::{self, payload};
use oxbloom_filter::internals::{BATCH, InsertOptions, LayerInfo, Window};
use oxbloom_filter::{Filter, FilterBuilder, MergeError};
use pyo3::exceptions::{PyBlockingIOError, PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString};

use crate::answers::{flags, numbers};
use crate::chunks::{self, Chunks};
use crate::error::{broken, failed, interrupted, too_large, undecodable, undecodable_within, unmergeable};
use crate::fork;
use crate::items::{Items, bytes_of};

/// The expansion of filters with `growing=True`: the module's default.
const DEFAULT_EXPANSION: u32 = 2;

/// `add` and `in` hash items of at least this many bytes without the GIL.
const LARGE_ITEM: usize = 64 << 10;

/// A Bloom filter: a set that stores each item in a few bits.
///
/// `item in filter` is always True for an item that was added. For other items, it is False, except for false
/// positives: at most a share of error_rate. The bits are the same as in an oxbloom filter on a server, so filters can
/// be copied between both.
///
/// An item is bytes or a str. A str stands for its UTF-8 bytes, as in clients of servers. Other types raise TypeError.
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
    /// True if `advance_to` sets the time, false if the system's clock does.
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
    fn with_detached<T>(&self, read: impl FnOnce(&Filter) -> T) -> PyResult<T> {
        let _fork = fork::delayed();
        self.filter.read().map(|filter| read(&filter)).map_err(|_| broken())
    }

    /// Calls `change` with the filter. `change` may hold the GIL, so it must be quick.
    fn with_mut<T: Send>(&self, py: Python<'_>, change: impl FnOnce(&mut Filter) -> T + Send) -> PyResult<T> {
        match self.filter.try_write() {
            Ok(mut filter) => Ok(change(&mut filter)),
            Err(TryLockError::WouldBlock) => py.detach(|| self.with_mut_detached(change)),
            Err(TryLockError::Poisoned(_)) => Err(broken()),
        }
    }

    /// Calls `change` with the filter. The thread must not hold the GIL.
    fn with_mut_detached<T>(&self, change: impl FnOnce(&mut Filter) -> T) -> PyResult<T> {
        let _fork = fork::delayed();
        self.filter.write().map(|mut filter| change(&mut filter)).map_err(|_| broken())
    }

    /// Compares this filter and `other`, which is also locked. The thread must not hold the GIL.
    fn equals_detached(&self, other: &BloomFilter) -> PyResult<bool> {
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

    /// Returns the time for a filter that forgets, in milliseconds since 1970. With 0, it keeps the time that it has.
    fn now(&self, filter: &Filter) -> u64 {
        if !filter.needs_time() || self.is_driven.load(Ordering::Relaxed) {
            return 0;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    fn copied(&self, py: Python<'_>) -> PyResult<Filter> {
        py.detach(|| self.with_detached(Filter::try_clone))?.map_err(failed)
    }

    /// Wraps another filter, which gets its time from the same source as this one.
    fn alike(&self, filter: Filter) -> BloomFilter {
        let alike = BloomFilter::from(filter);
        alike.is_driven.store(self.is_driven.load(Ordering::Relaxed), Ordering::Relaxed);
        alike
    }

    /// Returns the merge of this filter and `other`.
    fn merged(&self, py: Python<'_>, other: &BloomFilter, merge: Merge) -> PyResult<BloomFilter> {
        let mut copy = self.copied(py)?;
        py.detach(|| other.with_detached(|other| merge(&mut copy, other)))?.map_err(unmergeable)?;
        Ok(self.alike(copy))
    }

    /// Merges `other` into this filter. Copies `other` first, so that the thread holds only one lock at a time.
    fn merge(&self, py: Python<'_>, other: &BloomFilter, merge: Merge) -> PyResult<()> {
        let other = other.copied(py)?;
        py.detach(|| self.with_mut_detached(|filter| merge(filter, &other)))?.map_err(unmergeable)?;
        Ok(())
    }
}

/// The result of `__reduce__`: a function that restores the filter, and its arguments.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, bool));

type Merge = fn(&mut Filter, &Filter) -> Result<bool, MergeError>;

/// Operations on a group of items. They append the answers to a vector.
impl BloomFilter {
    fn add_group(&self, items: &[&[u8]], present: &mut Vec<bool>) -> PyResult<()> {
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

    fn find_group(&self, items: &[&[u8]], present: &mut Vec<bool>) -> PyResult<()> {
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

    fn remove_group(&self, items: &[&[u8]], removed: &mut Vec<bool>) -> PyResult<()> {
        self.with_mut_detached(|filter| {
            for item in items {
                removed.push(filter.remove(item).map_err(failed)?);
            }
            Ok(())
        })?
    }

    fn count_group(&self, items: &[&[u8]], counts: &mut Vec<u64>) -> PyResult<()> {
        self.with_detached(|filter| {
            for item in items {
                counts.push(filter.count(item).map_err(failed)?);
            }
            Ok(())
        })?
    }
}

/// Calls `handle`, which appends the answers, for each group of items. Returns all answers, converted by `list`.
///
/// An exception gets an attribute with the answers for the items before it, since these were handled.
fn answers<'py, T: Send>(
    items: &Bound<'py, PyAny>,
    mut handle: impl FnMut(&[&[u8]], &mut Vec<T>) -> PyResult<()> + Send,
    list: impl Fn(Python<'py>, Vec<T>, bool) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = items.py();
    let items = Items::new(items)?;
    let mut all = Vec::new();
    let handled = items.each_group(py, |group| handle(group, &mut all));
    let answers = list(py, all, items.is_column)?;
    match handled {
        Ok(()) => Ok(answers),
        Err(error) => {
            error.value(py).setattr("answers", answers)?;
            Err(error)
        }
    }
}

/// Returns the expansion, or `None` if the filter does not grow. `growing` is True, False or the expansion.
fn expansion(growing: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    if let Ok(growing) = growing.cast::<PyBool>() {
        return Ok(growing.is_true().then_some(DEFAULT_EXPANSION));
    }
    growing.extract().map(Some).map_err(|_| {
        PyValueError::new_err(format!("growing must be True, False, or the expansion, from 1 to {}", u32::MAX))
    })
}

/// A length of time: a `timedelta`, or a number of seconds.
pub(crate) struct Length(Duration);

impl<'py> FromPyObject<'_, 'py> for Length {
    type Error = PyErr;

    fn extract(length: Borrowed<'_, 'py, PyAny>) -> PyResult<Length> {
        if let Ok(length) = length.extract::<Duration>() {
            return Ok(Length(length));
        }
        let seconds = if length.is_instance_of::<PyBool>() { None } else { length.extract::<f64>().ok() };
        let is_length = seconds.is_some() || length.hasattr("total_seconds")?;
        if !is_length {
            let name = length.get_type().name()?;
            return Err(PyTypeError::new_err(format!("window must be a number of seconds or a timedelta, not {name}")));
        }
        let length = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        length.map(Length).ok_or_else(|| PyValueError::new_err("window must be a time above 0, up to 100 years"))
    }
}

/// The options of a new filter, as arguments from Python.
pub(crate) struct Options<'a, 'py> {
    pub(crate) growing: Option<&'a Bound<'py, PyAny>>,
    pub(crate) seed: Option<u64>,
    pub(crate) counting: bool,
    pub(crate) window: Option<Length>,
    pub(crate) rolling: bool,
    pub(crate) refresh: bool,
    pub(crate) slices: Option<i64>,
    pub(crate) classic: bool,
}

impl Options<'_, '_> {
    /// Converts the options to those of the library.
    pub(crate) fn builder(self, capacity: i64, error_rate: f64) -> PyResult<FilterBuilder> {
        let Options { growing, seed, counting, window, rolling, refresh, slices, classic } = self;
        let forgets = window.is_some() || rolling;
        if usize::from(counting) + usize::from(forgets) + usize::from(classic) > 1 {
            return Err(PyValueError::new_err("counting, classic, and window or rolling cannot be combined"));
        }
        if !forgets && (refresh || slices.is_some()) {
            return Err(PyValueError::new_err("refresh and slices need a window or rolling"));
        }
        if classic && seed.is_some() {
            return Err(PyValueError::new_err("classic filters have no seed"));
        }
        let mut builder = Filter::builder().error_rate(error_rate).capacity(u64::try_from(capacity).unwrap_or(0));
        if let Some(expansion) = growing.map_or(Ok(None), expansion)? {
            builder = builder.growing(expansion);
        }
        if let Some(seed) = seed {
            builder = builder.seed(seed);
        }
        if let Some(window) = window {
            builder = builder.window(window.0);
        }
        if let Some(slices) = slices {
            builder = builder.slices(u8::try_from(slices).unwrap_or(0));
        }
        builder = if counting { builder.counting() } else { builder };
        builder = if rolling { builder.rolling() } else { builder };
        builder = if refresh { builder.refresh() } else { builder };
        Ok(if classic { builder.classic() } else { builder })
    }
}

/// Returns the content of a bytes-like object.
fn bytes_like<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    // Other types are copied, since other threads may change their content.
    let view = data.py().import("builtins")?.call_method1("memoryview", (data,))?;
    Ok(view.call_method0("tobytes")?.cast_into()?)
}

fn is_path(file: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(file.is_instance_of::<PyString>() || file.is_instance_of::<PyBytes>() || file.hasattr("__fspath__")?)
}

/// Reads at most `n` bytes of a file, or all if `n` is negative. If `file` is a path, opens and closes it.
fn read<'py>(file: &Bound<'py, PyAny>, n: i64) -> PyResult<Bound<'py, PyAny>> {
    if !is_path(file)? {
        return file.call_method1("read", (n,));
    }
    let file = file.py().import("builtins")?.call_method1("open", (file, "rb"))?;
    let data = file.call_method1("read", (n,));
    file.call_method0("close")?;
    data
}

fn write_all(file: &Bound<'_, PyAny>, payload: &[u8]) -> PyResult<()> {
    const CHUNK: usize = 1 << 20;
    let py = file.py();
    let is_unbuffered = file.is_instance(&py.import("io")?.getattr("RawIOBase")?)?;
    for chunk in payload.chunks(CHUNK) {
        let mut rest = PyBytes::new(py, chunk);
        // An unbuffered file may write only a part. It returns the length of that part, or None if it would block.
        while !rest.as_bytes().is_empty() {
            let written = match file.call_method1("write", (&rest,))?.extract()? {
                Some(0) => return Err(PyOSError::new_err("the file takes no more bytes")),
                Some(written) => written,
                None if is_unbuffered => {
                    return Err(PyBlockingIOError::new_err("the file cannot take all bytes without blocking"));
                }
                // The write method of an object that only resembles a file need not return a length.
                None => rest.as_bytes().len(),
            };
            rest = PyBytes::new(py, rest.as_bytes().get(written..).unwrap_or_default());
        }
        py.check_signals()?;
    }
    Ok(())
}

/// Decodes a DUMP payload, or bytes of the Rust library's `Filter::to_bytes`.
fn decode(bytes: &[u8], max_memory: u64) -> PyResult<Filter> {
    if !payload::is_payload(bytes) {
        return Filter::from_bytes_within(bytes, max_memory).map_err(|error| undecodable_within(error, max_memory));
    }
    let mut taken = 0u64;
    let decoded = payload::decode(bytes, &mut |more| {
        taken = taken.saturating_add(more);
        taken <= max_memory
    });
    decoded.map_err(|error| if taken > max_memory { too_large(taken, max_memory) } else { undecodable(error) })
}

#[pymethods]
impl BloomFilter {
    #[new]
    #[pyo3(signature = (capacity, error_rate=0.001, *, growing=None, seed=None, counting=false, window=None,
                        rolling=false, refresh=false, slices=None, classic=false))]
    #[expect(clippy::too_many_arguments, reason = "they have names in Python")]
    fn new(
        capacity: i64,
        error_rate: f64,
        growing: Option<&Bound<'_, PyAny>>,
        seed: Option<u64>,
        counting: bool,
        window: Option<Length>,
        rolling: bool,
        refresh: bool,
        slices: Option<i64>,
        classic: bool,
    ) -> PyResult<BloomFilter> {
        let options = Options { growing, seed, counting, window, rolling, refresh, slices, classic };
        options.builder(capacity, error_rate)?.build().map(BloomFilter::from).map_err(failed)
    }

    // --- Items -------------------------------------------------------------------------------------------------------

    /// Adds an item. As in pybloom, returns True if it was already there (or is a false positive), and False if it
    /// is new.
    ///
    /// BF.ADD returns the opposite. Raises FilterFullError if there is no room for the item.
    fn add(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let item = bytes_of(item)?;
        let insert = |filter: &mut Filter| {
            let now = self.now(filter);
            let (hashes, mut new) = ([filter.hash(item)], [false]);
            let options = InsertOptions { now, ..InsertOptions::default() };
            let inserted = filter.insert_hashes(&hashes, &mut new, &mut [], &options, &mut |_bytes| true);
            inserted.map(|()| !new[0]).map_err(|interrupted| interrupted.error)
        };
        let present = if item.len() < LARGE_ITEM {
            self.with_mut(py, insert)?
        } else {
            py.detach(|| self.with_mut_detached(insert))?
        };
        present.map_err(failed)
    }

    /// Returns False if the item is not in the filter, and True if it probably is.
    fn __contains__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let item = bytes_of(item)?;
        let find = |filter: &Filter| filter.contains_at(item, self.now(filter));
        if item.len() < LARGE_ITEM { self.with(py, find) } else { py.detach(|| self.with_detached(find)) }
    }

    /// Removes one occurrence of an item from a counting filter. Returns False if it was not there.
    ///
    /// Never remove an item that was not added: if it is a false positive, another item disappears.
    fn remove(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let item = bytes_of(item)?;
        self.with_mut(py, |filter| filter.remove(item))?.map_err(failed)
    }

    /// Returns the count of an item in a counting filter. A share of the counts, up to error_rate, is too high.
    fn count_of(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<u64> {
        let item = bytes_of(item)?;
        self.with(py, |filter| filter.count(item))?.map_err(failed)
    }

    /// Adds items in order. For each item, returns whether it was already there, like add.
    ///
    /// Takes any iterable of str and bytes, and columns of NumPy, pandas, Polars, pyarrow and other Arrow libraries.
    /// NumPy arrays of the dtypes S and U and Arrow arrays of strings, also with categories, are read without a loop in
    /// Python. Other threads run while items are hashed.
    ///
    /// For a column, the result is a NumPy array, so that df[~seen.add_all(df.url)] is the new rows. (Without NumPy, it
    /// is a list.) For other iterables, it is a list.
    ///
    /// Ctrl-C and other signals interrupt the call after a few milliseconds. Whatever ends the call early (a signal, a
    /// full filter, an item of another type, a missing value, the iterable itself), the items before it are in the
    /// filter, and the attribute answers of the exception has their answers. Only a full filter leaves items behind
    /// that were taken from an iterator and not added: up to 4096 are read ahead.
    fn add_all<'py>(&self, items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        answers(items, |items, present| self.add_group(items, present), flags)
    }

    /// Adds items like add_all, without returning answers.
    fn update(&self, items: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut present = Vec::new();
        Items::new(items)?.each_group(items.py(), |group| self.add_group(group, &mut present))
    }

    /// For each item, returns whether it is in the filter. Takes the same types as add_all.
    fn contains_all<'py>(&self, items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        answers(items, |items, present| self.find_group(items, present), flags)
    }

    /// Removes one occurrence of each item from a counting filter. For each, returns whether it was there.
    fn remove_all<'py>(&self, items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        answers(items, |items, removed| self.remove_group(items, removed), flags)
    }

    /// For each item, returns its count in a counting filter. Takes the same types as add_all.
    fn count_all<'py>(&self, items: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        answers(items, |items, counts| self.count_group(items, counts), numbers)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(usize::try_from(self.count(py)?).unwrap_or(isize::MAX as usize))
    }

    // --- Time --------------------------------------------------------------------------------------------------------

    /// Sets the time of a filter with a window, in seconds since 1970 or as a datetime.
    ///
    /// Until the first call, the filter uses the system's clock. After that, its time is the latest that was set. An
    /// earlier time changes nothing.
    fn advance_to(&self, py: Python<'_>, time: &Bound<'_, PyAny>) -> PyResult<()> {
        let seconds: f64 = match time.getattr("timestamp") {
            Ok(method) => method.call0()?.extract()?,
            Err(_) => time.extract()?,
        };
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| PyValueError::new_err("the time must be in seconds since 1970"))?;
        if !self.with(py, |filter| filter.needs_time())? {
            return Err(PyTypeError::new_err("the filter does not forget by time: create it with a window"));
        }
        self.is_driven.store(true, Ordering::Relaxed);
        self.with_mut(py, |filter| filter.advance_to(time))
    }

    // --- Copies and sets ---------------------------------------------------------------------------------------------

    /// Returns an independent copy.
    fn copy(&self, py: Python<'_>) -> PyResult<BloomFilter> {
        Ok(self.alike(self.copied(py)?))
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<BloomFilter> {
        self.copy(py)
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<BloomFilter> {
        self.copy(py)
    }

    /// Returns an empty filter with the same options and seed, so that the two can be merged.
    fn empty_like(&self, py: Python<'_>) -> PyResult<BloomFilter> {
        let empty = self.with(py, |filter| filter.empty_like(&mut |_bytes| true))?.map_err(failed)?;
        Ok(self.alike(empty))
    }

    /// Removes all items. The options, the seed and the time stay the same.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with_mut_detached(Filter::clear))?.map_err(failed)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, BloomFilter>) -> PyResult<bool> {
        let other = other.get();
        py.detach(|| self.equals_detached(other))
    }

    /// Returns a filter with the items of both filters. In counting filters, the counts are added.
    ///
    /// Raises ValueError if the options or the seeds differ, or if the filters forget.
    fn union(&self, py: Python<'_>, other: &Bound<'_, BloomFilter>) -> PyResult<BloomFilter> {
        self.merged(py, other.get(), Filter::union_with)
    }

    /// Returns a filter with the items that are in both filters.
    ///
    /// It has more false positives than a filter to which only these items were added. Raises ValueError like union,
    /// and also if a filter has grown, or is a counting filter that can grow.
    fn intersection(&self, py: Python<'_>, other: &Bound<'_, BloomFilter>) -> PyResult<BloomFilter> {
        self.merged(py, other.get(), Filter::intersect_with)
    }

    fn __or__(&self, py: Python<'_>, other: &Bound<'_, BloomFilter>) -> PyResult<BloomFilter> {
        self.union(py, other)
    }

    fn __and__(&self, py: Python<'_>, other: &Bound<'_, BloomFilter>) -> PyResult<BloomFilter> {
        self.intersection(py, other)
    }

    fn __ior__(&self, py: Python<'_>, other: &Bound<'_, BloomFilter>) -> PyResult<()> {
        self.merge(py, other.get(), Filter::union_with)
    }

    fn __iand__(&self, py: Python<'_>, other: &Bound<'_, BloomFilter>) -> PyResult<()> {
        self.merge(py, other.get(), Filter::intersect_with)
    }

    // --- Information -------------------------------------------------------------------------------------------------

    /// The number of distinct items that fit before the filter is full or grows again.
    #[getter]
    fn capacity(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, Filter::capacity)
    }

    /// The error rate that the filter was created with.
    #[getter]
    fn error_rate(&self, py: Python<'_>) -> PyResult<f64> {
        self.with(py, Filter::error_rate)
    }

    /// The number of items that were new when they were added, like len(filter). Unions make it an estimate.
    #[getter]
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |filter| filter.len_at(self.now(filter)))
    }

    /// The seed of the hash, or None for a classic filter.
    #[getter]
    fn seed(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, Filter::seed)
    }

    /// The expansion, or None if the filter does not grow.
    #[getter]
    fn growing(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.with(py, Filter::expansion)
    }

    /// The kind of filter: native, counting, windowed or classic.
    #[getter]
    fn kind(&self, py: Python<'_>) -> PyResult<Cow<'static, str>> {
        Ok(self.with(py, Filter::kind)?.name().to_string_lossy())
    }

    /// The memory of the filter, in bytes.
    #[getter]
    fn memory(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, Filter::memory_usage)
    }

    /// Returns information about the filter and each of its parts.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let facts = self.with(py, |filter| Facts::of(filter, self.now(filter)))?;
        let info = PyDict::new(py);
        info.set_item("kind", self.kind(py)?)?;
        info.set_item("capacity", self.capacity(py)?)?;
        info.set_item("count", self.count(py)?)?;
        info.set_item("estimated", facts.is_estimate)?;
        info.set_item("error_rate", self.error_rate(py)?)?;
        info.set_item("false_positive_rate", facts.false_positive_rate)?;
        info.set_item("fill", facts.fill)?;
        info.set_item("memory", self.memory(py)?)?;
        info.set_item("growing", self.growing(py)?)?;
        info.set_item("seed", self.seed(py)?)?;
        let window = facts.window;
        info.set_item("window", window.and_then(|window| window.length).map(|ms| Duration::from_millis(ms.get())))?;
        info.set_item("slices", window.map(|window| window.slices))?;
        info.set_item("refresh", window.is_some_and(|window| window.refresh))?;
        info.set_item("rolling", window.is_some_and(|window| window.rolling))?;
        let parts = facts.parts.iter().map(|part| {
            let facts = PyDict::new(py);
            facts.set_item("bytes", part.bytes)?;
            facts.set_item("blocks_per_item", part.blocks_per_item)?;
            facts.set_item("probes", part.probes)?;
            facts.set_item("capacity", part.capacity)?;
            facts.set_item("count", part.items)?;
            Ok(facts)
        });
        info.set_item("parts", parts.collect::<PyResult<Vec<_>>>()?)?;
        Ok(info)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (kind, count, capacity) = (self.kind(py)?, self.count(py)?, self.capacity(py)?);
        let (rate, memory) = (self.error_rate(py)?, self.memory(py)?);
        Ok(format!("<BloomFilter: {kind}, {count} of {capacity} items, error rate {rate}, {memory} bytes>"))
    }

    // --- Bytes, files and servers ------------------------------------------------------------------------------------

    /// Returns the filter as a DUMP payload, which RESTORE accepts. It has a checksum, and contains the seed.
    fn dump<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let payload = py.detach(|| self.with_detached(payload::encode))?.map_err(failed)?;
        Ok(PyBytes::new(py, &payload))
    }

    /// Loads a filter from a DUMP payload of oxbloom or RedisBloom, or from bytes that the Rust library wrote.
    ///
    /// Raises ValueError if the data is damaged or is not a filter, or if the filter takes more than max_memory bytes.
    /// Set max_memory for data from others: a few bytes can describe a filter of any size.
    #[staticmethod]
    #[pyo3(signature = (data, *, max_memory=None))]
    fn load(data: &Bound<'_, PyAny>, max_memory: Option<u64>) -> PyResult<BloomFilter> {
        let data = bytes_like(data)?;
        let bytes = data.as_bytes();
        data.py().detach(|| decode(bytes, max_memory.unwrap_or(u64::MAX))).map(BloomFilter::from)
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Reduced<'py>> {
        let py = this.py();
        let driven = this.get().is_driven.load(Ordering::Relaxed);
        Ok((py.get_type::<BloomFilter>().getattr("_restore")?, (this.get().dump(py)?, driven)))
    }

    /// Restores a pickled filter.
    #[staticmethod]
    fn _restore(data: &Bound<'_, PyAny>, is_driven: bool) -> PyResult<BloomFilter> {
        let filter = BloomFilter::load(data, None)?;
        filter.is_driven.store(is_driven, Ordering::Relaxed);
        Ok(filter)
    }

    /// Loads a filter from its value in an RDB file.
    #[staticmethod]
    fn _of_value(value: &[u8]) -> PyResult<BloomFilter> {
        payload::decode_value(value, &mut |_bytes| true).map(BloomFilter::from).map_err(undecodable)
    }

    /// Writes the filter to a binary file, in the format of dump.
    ///
    /// Raises BlockingIOError if an unbuffered file does not block and cannot take all bytes.
    ///
    /// file: a file that is open for writing bytes, or a path. A path then has the complete filter, or, after an error,
    /// what was there before.
    fn tofile(this: &Bound<'_, Self>, file: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = this.py();
        if is_path(file)? {
            py.import("oxbloom._files")?.call_method1("save", (this, file))?;
            return Ok(());
        }
        let filter = this.get();
        let payload = py.detach(|| filter.with_detached(payload::encode))?.map_err(failed)?;
        write_all(file, &payload)
    }

    /// Loads a filter from a binary file, or from its next n bytes. Raises ValueError like load.
    ///
    /// file: a file that is open for reading bytes, or a path.
    #[staticmethod]
    #[pyo3(signature = (file, n=-1, *, max_memory=None), text_signature = "(file, n=-1, *, max_memory=None)")]
    fn fromfile(file: &Bound<'_, PyAny>, n: i64, max_memory: Option<u64>) -> PyResult<BloomFilter> {
        BloomFilter::load(&read(file, n)?, max_memory)
    }

    /// Returns the chunks of the filter: a cursor and data each, as BF.SCANDUMP returns and BF.LOADCHUNK accepts.
    ///
    /// The filter must not change until the last chunk has been read.
    fn chunks(this: Py<Self>) -> Chunks {
        Chunks::new(this)
    }

    /// Loads a filter from all chunks of BF.SCANDUMP, in order: a cursor and data each.
    ///
    /// Ignores the last reply, whose cursor is 0. Raises ValueError like load, and also if chunks are missing, or the
    /// filter was changed while they were read.
    #[staticmethod]
    #[pyo3(signature = (chunks, *, max_memory=None))]
    fn from_chunks(chunks: &Bound<'_, PyAny>, max_memory: Option<u64>) -> PyResult<BloomFilter> {
        chunks::load(chunks.py(), chunks, max_memory.unwrap_or(u64::MAX)).map(BloomFilter::from)
    }

    /// Saves the filter in a key of a server. It is sent in chunks, so it may have any size.
    ///
    /// The chunks are loaded into a temporary key, which is renamed when the filter is complete. An overwritten key
    /// loses its TTL.
    ///
    /// Raises RuntimeError if the filter is changed, or the temporary key is deleted, before all is saved.
    ///
    /// client: a client of redis-py or valkey-py, for a server or a cluster.
    /// replace: True to overwrite the key. Otherwise, raises KeyError if it exists.
    /// progress: a function that is called after each chunk, with the bytes that are done and the total.
    #[pyo3(signature = (client, key, **options))]
    fn save_to(
        this: &Bound<'_, Self>,
        client: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        this.py().import("oxbloom._servers")?.call_method("save", (this, client, key), options)?;
        Ok(())
    }

    /// Loads the filter in a key of a server. It is read in chunks, so it may have any size.
    ///
    /// Raises KeyError if there is no such key, and RuntimeError if the filter changed during each of three attempts.
    ///
    /// client: a client of redis-py or valkey-py, for a server or a cluster.
    /// max_memory: the maximum memory of the filter, in bytes. Raises ValueError if it takes more.
    /// progress: a function that is called after each chunk, with the bytes that are done and the total.
    #[staticmethod]
    #[pyo3(signature = (client, key, **options))]
    fn load_from<'py>(
        client: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        client.py().import("oxbloom._servers")?.call_method("load", (client, key), options)
    }

    /// Returns the header of the filter's chunks. Filters with equal headers have equal numbers of items. Unless they
    /// are classic, they also have equal numbers of set bits.
    fn _header<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let header = self.with(py, codec::encode_header)?.map_err(failed)?;
        Ok(PyBytes::new(py, &header))
    }
}

/// The facts that [`BloomFilter::info`] returns in addition to the properties.
struct Facts {
    is_estimate: Option<bool>,
    false_positive_rate: f64,
    fill: f64,
    window: Option<Window>,
    parts: Vec<LayerInfo>,
}

impl Facts {
    fn of(filter: &Filter, now: u64) -> Facts {
        Facts {
            is_estimate: filter.is_estimate(),
            false_positive_rate: filter.false_positive_rate_at(now),
            fill: filter.fill(),
            window: filter.windowed().map(|filter| filter.slices().window()),
            parts: filter.layers().collect(),
        }
    }
}
