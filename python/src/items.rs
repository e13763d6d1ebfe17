//! Reads items from Python: a single `str` or `bytes`, any iterable of them, and columns (NumPy and Arrow arrays).

use std::ops::Range;
use std::slice;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::arrow;
use crate::column::FixedWidth;

/// The number of items in a group: large enough that the time to take the locks does not matter.
const GROUP: usize = 4096;

/// Returns the bytes of an item, as clients send them to a server.
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

/// The reason why an item in a column cannot be read.
pub(crate) enum BadItem {
    /// The item at this index is null.
    Null(usize),
    /// The item at this index is not valid Unicode.
    NotUnicode(usize),
    /// The column does not have the layout that its schema describes.
    Layout,
}

impl BadItem {
    /// Adds the number of items in the columns before this one.
    fn after(self, before: usize) -> BadItem {
        match self {
            BadItem::Null(index) => BadItem::Null(before + index),
            BadItem::NotUnicode(index) => BadItem::NotUnicode(before + index),
            BadItem::Layout => BadItem::Layout,
        }
    }
}

impl From<BadItem> for PyErr {
    fn from(bad: BadItem) -> PyErr {
        match bad {
            BadItem::Null(index) => PyTypeError::new_err(format!("item number {index} is null")),
            BadItem::NotUnicode(index) => PyValueError::new_err(format!("item number {index} is not valid Unicode")),
            BadItem::Layout => PyValueError::new_err("the column is not laid out as its schema says"),
        }
    }
}

/// An array of items in memory, which is read without the GIL.
pub(crate) trait Column: Sync {
    fn len(&self) -> usize;

    /// Returns the bytes of the items in `range`. Items that must be converted are written into `text`.
    fn group<'a>(&'a self, range: Range<usize>, text: &'a mut Vec<u8>) -> Result<Vec<&'a [u8]>, BadItem>;
}

/// The source of many items.
pub(crate) enum Items<'py> {
    /// A NumPy array.
    FixedWidth(FixedWidth),
    /// Arrow arrays, in order.
    Arrow(Vec<arrow::Strings>),
    /// Any other iterable.
    Iterable(Bound<'py, PyAny>),
}

impl<'py> Items<'py> {
    /// Finds out which kind of source `items` is.
    pub(crate) fn new(items: &Bound<'py, PyAny>) -> PyResult<Items<'py>> {
        if items.is_instance_of::<PyString>()
            || items.is_instance_of::<PyBytes>()
            || items.is_instance_of::<PyByteArray>()
        {
            return Err(PyTypeError::new_err("expected an iterable of items: put a single item into a list"));
        }
        if let Some(column) = FixedWidth::new(items)? {
            return Ok(Items::FixedWidth(column));
        }
        if let Some(arrays) = arrow::import(items)? {
            return Ok(Items::Arrow(arrays));
        }
        Ok(Items::Iterable(items.clone()))
    }

    /// Returns true if the items are in a NumPy array. Then the answers are returned in a NumPy array, too.
    pub(crate) fn is_numpy(&self) -> bool {
        matches!(self, Items::FixedWidth(_))
    }

    /// Calls `handle` for each group of items, without the GIL.
    pub(crate) fn each_group<E>(
        &self,
        py: Python<'py>,
        handle: impl FnMut(&[&[u8]]) -> Result<(), E> + Send,
    ) -> PyResult<()>
    where
        E: Into<PyErr> + Send,
    {
        match self {
            Items::FixedWidth(column) => py.detach(|| each_group_of(slice::from_ref(column), handle)),
            Items::Arrow(arrays) => py.detach(|| each_group_of(arrays, handle)),
            Items::Iterable(items) => each_group_of_iterable(py, items, handle),
        }
    }
}

fn each_group_of<E: Into<PyErr>>(
    columns: &[impl Column],
    mut handle: impl FnMut(&[&[u8]]) -> Result<(), E>,
) -> PyResult<()> {
    let (mut text, mut before) = (Vec::new(), 0);
    for column in columns {
        for start in (0..column.len()).step_by(GROUP) {
            let end = column.len().min(start + GROUP);
            text.clear();
            let group = column.group(start..end, &mut text).map_err(|bad| bad.after(before))?;
            handle(&group).map_err(Into::into)?;
        }
        before += column.len();
    }
    Ok(())
}

/// See [`Items::each_group`]. If an item is invalid, or the iterable raises, the items before it are handled.
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
