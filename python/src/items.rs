//! Reads items from Python: a single `str` or bytes, any iterable of them, and columns (NumPy and Arrow arrays).

use std::borrow::Cow;
use std::ops::Range;
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyFloat, PyIterator, PyMemoryView, PyString};

use crate::arrow;
use crate::column::{BadItem, Column, wrong_type};
use crate::numpy::FixedWidth;
use crate::packing::Chunk;

/// The number of items in a group: large enough that the time to take the locks does not matter.
const GROUP: usize = 4096;

/// The bytes of a group, unless its first item has more. They are hashed in less than a millisecond, so that a signal
/// does not wait for long.
const GROUP_BYTES: usize = 1 << 20;

/// The time after which a long call looks for signals, such as that of Ctrl-C.
const PULSE: Duration = Duration::from_millis(5);

/// Returns the bytes of an item, as clients send them to a server.
pub(crate) fn bytes_of<'a>(item: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    known_bytes_of(item).unwrap_or_else(|| {
        let name = item.get_type().name()?;
        Err(PyTypeError::new_err(format!("an item must be str or bytes, not {name}")))
    })
}

/// Returns the bytes of the item at an index, or an error that names the index.
pub(crate) fn bytes_at<'a>(item: &'a Bound<'_, PyAny>, index: usize) -> PyResult<Cow<'a, [u8]>> {
    match known_bytes_of(item) {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(error)) => {
            // A UnicodeEncodeError has the reason at the end of its message.
            if let Ok(reason) = error.value(item.py()).getattr("reason") {
                error.value(item.py()).setattr("reason", format!("{reason}, in the item at index {index}"))?;
            }
            Err(error)
        }
        None if is_missing(item)? => Err(BadItem::Null(index).into()),
        None => Err(wrong_type(index, &item.get_type().name()?.to_string())),
    }
}

/// Returns the bytes of a `str`, `bytes`, `bytearray` or memory view of bytes, and `None` for other objects.
///
/// Databases return binary values as objects of all these types. Those that can change are copied.
fn known_bytes_of<'a>(item: &'a Bound<'_, PyAny>) -> Option<PyResult<Cow<'a, [u8]>>> {
    if let Ok(text) = item.cast::<PyString>() {
        return Some(text.to_str().map(|text| Cow::Borrowed(text.as_bytes())));
    }
    if let Ok(bytes) = item.cast::<PyBytes>() {
        return Some(Ok(Cow::Borrowed(bytes.as_bytes())));
    }
    if let Ok(bytes) = item.cast::<PyByteArray>() {
        return Some(Ok(Cow::Owned(bytes.to_vec())));
    }
    let view = item.cast::<PyMemoryView>().ok().filter(|view| has_elements(view, b"Bbc"))?;
    let bytes = || Ok(view.call_method0("tobytes")?.cast::<PyBytes>()?.as_bytes().to_vec());
    Some(bytes().map(Cow::Owned))
}

/// Returns true if an object has elements in one dimension, of one of these formats of Python's module `struct`.
fn has_elements(object: &Bound<'_, PyAny>, formats: &[u8]) -> bool {
    let has = |view: &Bound<'_, PyMemoryView>| -> PyResult<bool> {
        let format: String = view.getattr("format")?.extract()?;
        // A sign for the byte order may come first.
        let element = format.trim_start_matches(['@', '=', '<', '>', '!']).as_bytes();
        Ok(view.getattr("ndim")?.extract::<usize>()? == 1 && element.len() == 1 && formats.contains(&element[0]))
    };
    PyMemoryView::from(object).and_then(|view| has(&view)).unwrap_or(false)
}

/// Returns true for `None`, NaN, `pandas.NA` and `numpy.ma.masked`, which stand for a missing value in a column.
fn is_missing(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(number) = item.cast::<PyFloat>() {
        return Ok(number.value().is_nan());
    }
    let name = item.get_type().name()?;
    Ok(item.is_none() || name == "NAType" || name == "MaskedConstant")
}

/// The source of many items.
pub(crate) struct Items<'py> {
    pub(crate) source: Source<'py>,
    /// True for an array, a series or another column of any library. Its answers are returned in a NumPy array.
    pub(crate) is_column: bool,
}

pub(crate) enum Source<'py> {
    /// Arrays that are read in place, in order.
    Columns(Vec<Box<dyn Column>>),
    /// Any other iterable.
    Iterable(Bound<'py, PyAny>),
}

impl<'py> Items<'py> {
    /// Finds out which kind of source `items` is.
    pub(crate) fn new(items: &Bound<'py, PyAny>) -> PyResult<Items<'py>> {
        if let Ok(chunk) = items.cast::<Chunk>() {
            return Ok(Items { source: Source::Columns(vec![chunk.get().column()]), is_column: false });
        }
        let dtype = items.getattr("dtype").ok();
        let is_column = dtype.is_some();
        // In a loop, bytes would be numbers, or items of one byte each.
        let is_single = items.is_instance_of::<PyString>()
            || items.is_instance_of::<PyBytes>()
            || (!is_column && has_elements(items, b"Bbcuw"));
        if is_single {
            let name = items.get_type().name()?;
            let what = format!("expected an iterable of items, not {name}: put a single item into a list");
            return Err(PyTypeError::new_err(what));
        }
        // A loop over a table would take the names of its columns for the items.
        let dimensions = items.getattr("ndim").and_then(|dimensions| dimensions.extract::<usize>());
        if dimensions.is_ok_and(|dimensions| dimensions != 1) {
            return Err(PyTypeError::new_err("items must have one dimension: pass one column of the table or array"));
        }
        if let Some(column) = FixedWidth::new(items)? {
            return Ok(Items { source: Source::Columns(vec![Box::new(column)]), is_column: true });
        }
        // Polars exports the addresses of objects.
        let has_objects = dtype.is_some_and(|dtype| dtype.str().is_ok_and(|name| name == "Object"));
        if !has_objects && let Some(arrays) = arrow::import(items)? {
            return Ok(Items { source: Source::Columns(arrays), is_column: true });
        }
        Ok(Items { source: Source::Iterable(items.clone()), is_column })
    }

    /// Calls `handle` for each group of items, without the GIL. Looks for signals between groups.
    pub(crate) fn each_group(
        &self,
        py: Python<'py>,
        handle: impl FnMut(&[&[u8]]) -> PyResult<()> + Send,
    ) -> PyResult<()> {
        match &self.source {
            Source::Columns(columns) => py.detach(|| each_group_of(columns, handle)),
            Source::Iterable(items) => each_group_of_iterable(py, items, handle),
        }
    }
}

/// Looks for signals from time to time, in a thread that has released the GIL.
struct Pulse {
    last: Instant,
    /// Only the main thread handles signals. Other threads would wait for the GIL in vain.
    is_off: bool,
}

impl Pulse {
    fn check(&mut self) -> PyResult<()> {
        if self.is_off || self.last.elapsed() < PULSE {
            return Ok(());
        }
        Python::attach(|py| {
            py.check_signals()?;
            let threading = py.import("threading")?;
            self.is_off = !threading.call_method0("current_thread")?.is(threading.call_method0("main_thread")?);
            self.last = Instant::now();
            Ok(())
        })
    }
}

/// Returns the number of items at the start of a group that are handled at once: at least one.
fn first_part(group: &[&[u8]]) -> usize {
    let mut bytes = 0;
    let end = group.iter().position(|item| {
        bytes += item.len();
        bytes > GROUP_BYTES
    });
    end.map_or(group.len(), |end| end.max(1))
}

/// See [`Items::each_group`]. If an item cannot be read, the items before it are handled.
fn each_group_of(columns: &[Box<dyn Column>], mut handle: impl FnMut(&[&[u8]]) -> PyResult<()>) -> PyResult<()> {
    let mut pulse = Pulse { last: Instant::now(), is_off: false };
    let (mut text, mut before) = (Vec::new(), 0);
    for column in columns {
        let most = (GROUP_BYTES / column.width().max(1)).clamp(1, GROUP);
        for start in (0..column.len()).step_by(most) {
            let end = column.len().min(start + most);
            let mut handle_all = |range: Range<usize>| -> PyResult<Option<BadItem>> {
                text.clear();
                let group = match column.group(range, &mut text) {
                    Ok(group) => group,
                    Err(bad) => return Ok(Some(bad)),
                };
                let mut rest = group.as_slice();
                while !rest.is_empty() {
                    let (part, others) = rest.split_at(first_part(rest));
                    handle(part)?;
                    pulse.check()?;
                    rest = others;
                }
                Ok(None)
            };
            if let Some(bad) = handle_all(start..end)? {
                if bad.index() > start {
                    handle_all(start..bad.index())?;
                }
                return Err(bad.after(before).into());
            }
        }
        before += column.len();
    }
    Ok(())
}

/// See [`Items::each_group`]. If an item is invalid, or the iterable raises, the items before it are handled.
fn each_group_of_iterable(
    py: Python<'_>,
    items: &Bound<'_, PyAny>,
    mut handle: impl FnMut(&[&[u8]]) -> PyResult<()> + Send,
) -> PyResult<()> {
    let mut taker = Taker { items: items.try_iter()?, taken: 0, failure: None };
    loop {
        let objects = taker.take(GROUP, GROUP_BYTES);
        let bytes = objects.iter().map(bytes_of).collect::<PyResult<Vec<_>>>()?;
        let group: Vec<&[u8]> = bytes.iter().map(AsRef::as_ref).collect();
        let mut rest = group.as_slice();
        while !rest.is_empty() {
            let (part, others) = rest.split_at(first_part(rest));
            py.detach(|| handle(part))?;
            rest = others;
        }
        if let Some(failure) = taker.failure.take() {
            return Err(failure);
        }
        if objects.is_empty() {
            return Ok(());
        }
        py.check_signals()?;
    }
}

/// Takes valid items from an iterator.
struct Taker<'py> {
    items: Bound<'py, PyIterator>,
    taken: usize,
    /// The reason why there are no more items, if it is an error.
    failure: Option<PyErr>,
}

impl<'py> Taker<'py> {
    /// Returns the next items, up to `most`, and until they have `most_bytes`. Takes no item after an invalid one.
    fn take(&mut self, most: usize, most_bytes: usize) -> Vec<Bound<'py, PyAny>> {
        let (mut objects, mut bytes) = (Vec::new(), 0);
        while objects.len() < most && bytes < most_bytes && self.failure.is_none() {
            let Some(item) = self.items.next() else { break };
            let length = item.and_then(|item| Ok((bytes_at(&item, self.taken)?.len(), item)));
            match length {
                Ok((length, item)) => {
                    self.taken += 1;
                    bytes += length;
                    objects.push(item);
                }
                Err(error) => self.failure = Some(error),
            }
        }
        objects
    }
}

/// Returns the bytes of an item, for the classes that send items to servers.
#[pyfunction]
pub(crate) fn encoded<'py>(item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(item.py(), &bytes_of(item)?))
}
