//! The methods of `BloomFilter` in Python. For editors and type checkers, `_oxbloom.pyi` repeats their documentation.

use std::borrow::Cow;
use std::time::Duration;

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{self, payload};
use oxbloom_filter::internals::{InsertOptions, LayerInfo, Window};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::answers::{answers, flags, numbers};
use crate::chunks::{self, Chunks};
use crate::error::{failed, undecodable};
use crate::files::{bytes_like, decode, is_path, read, write_all};
use crate::filter::BloomFilter;
use crate::items::{Items, bytes_of};
use crate::options::{Length, Options};

/// `add` and `in` hash items of at least this many bytes without the GIL.
const LARGE_ITEM: usize = 64 << 10;

/// The result of `__reduce__`: a function that restores the filter, and its arguments.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, bool));

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
            let (hashes, mut new) = ([filter.hash(&item)], [false]);
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
        let find = |filter: &Filter| filter.contains_at(&item, self.now(filter));
        if item.len() < LARGE_ITEM { self.with(py, find) } else { py.detach(|| self.with_detached(find)) }
    }

    /// Removes one occurrence of an item from a counting filter. Returns False if it was not there.
    ///
    /// Never remove an item that was not added: if it is a false positive, another item disappears.
    fn remove(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let item = bytes_of(item)?;
        self.with_mut(py, |filter| filter.remove(&item))?.map_err(failed)
    }

    /// Returns the count of an item in a counting filter. A share of the counts, up to error_rate, is too high.
    fn count_of(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<u64> {
        let item = bytes_of(item)?;
        self.with(py, |filter| filter.count(&item))?.map_err(failed)
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
        self.set_driven(true);
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

    /// Shrinks a filter that was created too large, to room for `capacity` items, or for those that it has. Returns
    /// the factor by which it is smaller.
    ///
    /// Raises ValueError if the filter counts, forgets, or has another layout than "native".
    #[pyo3(signature = (capacity = 0))]
    fn fold(&self, py: Python<'_>, capacity: u64) -> PyResult<u64> {
        py.detach(|| self.with_mut_detached(|filter| filter.fold(capacity)))?.map_err(failed)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, BloomFilter>) -> PyResult<bool> {
        let other = other.get();
        py.detach(|| self.equals_detached(other))
    }

    /// Returns a filter with the items of both filters. In counting filters, the counts are added.
    ///
    /// The capacities may differ if the larger filter can be folded to the other's. Raises ValueError if other options
    /// or the seeds differ, or if the filters forget.
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

    /// The seed of the hash, or None for a filter with the layout of RedisBloom or valkey-bloom.
    #[getter]
    fn seed(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, Filter::seed)
    }

    /// The expansion, or None if the filter does not grow.
    #[getter]
    fn growing(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.with(py, Filter::expansion)
    }

    /// The kind of filter. Filters from servers also have kinds that cannot be created here.
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
        let driven = this.get().is_driven();
        Ok((py.get_type::<BloomFilter>().getattr("_restore")?, (this.get().dump(py)?, driven)))
    }

    /// Restores a pickled filter.
    #[staticmethod]
    fn _restore(data: &Bound<'_, PyAny>, is_driven: bool) -> PyResult<BloomFilter> {
        let filter = BloomFilter::load(data, None)?;
        filter.set_driven(is_driven);
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

    // --- Copies that follow filters on servers ------------------------------------------------------------------------

    /// Starts a copy from the header in the reply of BF.CHANGES.
    #[staticmethod]
    fn _from_header(py: Python<'_>, header: &[u8]) -> PyResult<BloomFilter> {
        py.detach(|| Filter::from_header(header)).map(BloomFilter::from).map_err(failed)
    }

    /// Loads a chunk of BF.SCANDUMP.
    fn _load_chunk(&self, py: Python<'_>, cursor: u64, chunk: &[u8]) -> PyResult<()> {
        py.detach(|| self.with_mut_detached(|filter| filter.load_chunk(cursor, chunk)))?.map_err(undecodable)
    }

    /// Inserts the hashes in the reply of BF.CHANGES.
    fn _insert_changes(&self, py: Python<'_>, changes: &[u8]) -> PyResult<()> {
        py.detach(|| self.with_mut_detached(|filter| filter.insert_changes(changes)))?.map_err(failed)
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
