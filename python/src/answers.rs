//! Returns answers to Python: as lists, and for columns as NumPy arrays, which other libraries accept as masks.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyModule};

use crate::items::Items;

/// Returns NumPy for the answers to a column, or `None` for a list.
fn numpy(py: Python<'_>, is_column: bool) -> Option<Bound<'_, PyModule>> {
    if is_column { py.import("numpy").ok() } else { None }
}

/// Returns flags as a list, or as a NumPy array.
pub(crate) fn flags(py: Python<'_>, flags: Vec<bool>, is_column: bool) -> PyResult<Bound<'_, PyAny>> {
    if let Some(numpy) = numpy(py, is_column) {
        let bytes: Vec<u8> = flags.into_iter().map(u8::from).collect();
        return numpy.call_method1("frombuffer", (PyByteArray::new(py, &bytes), "bool"));
    }
    PyList::new(py, flags).map(Bound::into_any)
}

/// Returns numbers as a list, or as a NumPy array.
pub(crate) fn numbers(py: Python<'_>, numbers: Vec<u64>, is_column: bool) -> PyResult<Bound<'_, PyAny>> {
    if let Some(numpy) = numpy(py, is_column) {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_ne_bytes).collect();
        return numpy.call_method1("frombuffer", (PyByteArray::new(py, &bytes), "uint64"));
    }
    PyList::new(py, numbers).map(Bound::into_any)
}

/// Calls `handle`, which appends the answers, for each group of items. Returns all answers, converted by `list`.
///
/// An exception gets an attribute with the answers for the items before it, since these were handled.
pub(crate) fn answers<'py, T: Send>(
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
