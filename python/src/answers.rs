//! Returns answers to Python: as lists, and for columns as NumPy arrays, which other libraries accept as masks.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyList, PyModule};

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
