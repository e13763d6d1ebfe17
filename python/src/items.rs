//! Items from Python: `str` and `bytes`, one at a time, from any iterable, and from columns of them.

use std::ops::Range;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::arrow;
use crate::column::FixedWidth;

/// Items that are handed over at a time: enough that taking the locks costs nothing.
const GROUP: usize = 4096;

/// Returns the bytes of an item: those that clients send for it.
pub(crate) fn bytes_of<'a>(item: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    if let Ok(text) = item.cast::<PyString>() {
        return text.to_str().map(str::as_bytes);
    }
    if let Ok(bytes) = item.cast::<PyBytes>() {
        return Ok(bytes.as_bytes());
    }
    let name = item.get_type().name()?;
    Err(PyTypeError::new_err(format!("an item must be str or bytes, not {name}")))
}

/// Why an item in a column is none.
pub(crate) enum BadItem {
    /// It is null.
    Null(usize),
    /// It is not Unicode.
    NotUnicode(usize),
    /// The column is not laid out as it says.
    Layout,
}

impl From<BadItem> for PyErr {
    fn from(bad: BadItem) -> PyErr {
        match bad {
            BadItem::Null(index) => PyTypeError::new_err(format!("an item must not be null, as number {index} is")),
            BadItem::NotUnicode(index) => PyValueError::new_err(format!("item number {index} is not valid Unicode")),
            BadItem::Layout => PyValueError::new_err("the column is not laid out as its schema says"),
        }
    }
}

/// Many items in one piece of memory, which are read without Python.
pub(crate) trait Column: Sync {
    fn len(&self) -> usize;

    /// Returns the bytes of some items. `text` is for those that have to be converted.
    fn group<'a>(&'a self, range: Range<usize>, text: &'a mut Vec<u8>) -> Result<Vec<&'a [u8]>, BadItem>;
}

/// Where many items come from.
pub(crate) enum Items<'py> {
    /// A NumPy array.
    FixedWidth(FixedWidth),
    /// Arrow arrays, one after the other.
    Arrow(Vec<arrow::Strings>),
    /// Anything else.
    Iterable(Bound<'py, PyAny>),
}

impl<'py> Items<'py> {
    /// Finds out what `items` is.
    pub(crate) fn new(items: &Bound<'py, PyAny>) -> PyResult<Items<'py>> {
        if items.is_instance_of::<PyString>()
            || items.is_instance_of::<PyBytes>()
            || items.is_instance_of::<PyByteArray>()
        {
            return Err(PyTypeError::new_err("expected many items: a single one goes in a list"));
        }
        if let Some(column) = FixedWidth::new(items)? {
            return Ok(Items::FixedWidth(column));
        }
        if let Some(arrays) = arrow::import(items)? {
            return Ok(Items::Arrow(arrays));
        }
        Ok(Items::Iterable(items.clone()))
    }

    /// Returns true if the items are in a NumPy array: the answers will be, too.
    pub(crate) fn is_numpy(&self) -> bool {
        matches!(self, Items::FixedWidth(_))
    }

    /// Hands the items to `handle`, many at a time, without Python's lock.
    pub(crate) fn each_group<E>(
        &self,
        py: Python<'py>,
        mut handle: impl FnMut(&[&[u8]]) -> Result<(), E> + Send,
    ) -> PyResult<()>
    where
        E: Into<PyErr> + Send,
    {
        match self {
            Items::FixedWidth(column) => py.detach(|| each_group_of(column, &mut handle)),
            Items::Arrow(arrays) => py.detach(|| arrays.iter().try_for_each(|array| each_group_of(array, &mut handle))),
            Items::Iterable(items) => each_group_of_iterable(py, items, handle),
        }
    }
}

fn each_group_of<E: Into<PyErr>>(
    column: &impl Column,
    handle: &mut impl FnMut(&[&[u8]]) -> Result<(), E>,
) -> PyResult<()> {
    let mut text = Vec::new();
    for start in (0..column.len()).step_by(GROUP) {
        let end = column.len().min(start + GROUP);
        text.clear();
        handle(&column.group(start..end, &mut text)?).map_err(Into::into)?;
    }
    Ok(())
}

/// The items before one that is wrong, or before an exception of the iterable, are handled.
fn each_group_of_iterable<E: Into<PyErr> + Send>(
    py: Python<'_>,
    items: &Bound<'_, PyAny>,
    mut handle: impl FnMut(&[&[u8]]) -> Result<(), E> + Send,
) -> PyResult<()> {
    let mut items = items.try_iter()?;
    let mut objects = Vec::with_capacity(GROUP);
    loop {
        objects.clear();
        let mut failed = None;
        for item in items.by_ref().take(GROUP) {
            match item {
                Ok(item) => objects.push(item),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mut group = Vec::with_capacity(objects.len());
        for object in &objects {
            match bytes_of(object) {
                Ok(bytes) => group.push(bytes),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if !group.is_empty() {
            py.detach(|| handle(&group)).map_err(Into::into)?;
        }
        match failed {
            Some(error) => return Err(error),
            None if objects.len() < GROUP => return Ok(()),
            None => {}
        }
    }
}
