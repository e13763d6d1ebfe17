//! Converts errors to Python's exceptions.

use oxbloom_filter::internals::Interrupted;
use oxbloom_filter::{DecodeError, Error, MergeError};
use pyo3::PyErr;
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};

pyo3::create_exception!(
    oxbloom,
    FilterFullError,
    PyIndexError,
    "Raised if a filter is full and cannot grow (any further). It is an IndexError, as in pybloom."
);

/// Returns the exception for an operation that failed.
pub(crate) fn failed(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::OutOfMemory => PyMemoryError::new_err(text),
        Error::Full | Error::CannotGrow => FilterFullError::new_err(text),
        Error::NotCounting => {
            PyTypeError::new_err("the filter does not support removal and counts: create it with counting=True")
        }
        _ => PyValueError::new_err(text),
    }
}

/// Returns the exception for a batch that stopped after `done` items, and the `handled` ones after them.
pub(crate) fn interrupted(Interrupted { handled, error }: Interrupted, done: usize) -> PyErr {
    let text = format!("{error}; it has the first {} of these items", done + handled);
    match error {
        Error::Full | Error::CannotGrow => FilterFullError::new_err(text),
        Error::OutOfMemory => PyMemoryError::new_err(text),
        _ => failed(error),
    }
}

/// Returns the exception for bytes that are not a filter.
pub(crate) fn undecodable(error: DecodeError) -> PyErr {
    match error {
        DecodeError::OutOfMemory => PyMemoryError::new_err("not enough memory for the filter"),
        DecodeError::NewerVersion => {
            PyValueError::new_err("the filter was written by a later version: install a newer oxbloom")
        }
        DecodeError::Incomplete => PyValueError::new_err(error.to_string()),
        _ => PyValueError::new_err(format!("no filter of oxbloom or RedisBloom: {error}")),
    }
}

/// Returns the exception for bytes that are not a filter, or one that takes more than `max_memory` bytes.
pub(crate) fn undecodable_within(error: DecodeError, max_memory: u64) -> PyErr {
    match error {
        DecodeError::OutOfMemory if max_memory < u64::MAX => {
            PyValueError::new_err(format!("the filter takes more than max_memory={max_memory} bytes"))
        }
        error => undecodable(error),
    }
}

/// Returns the exception for a filter that takes more memory than the caller allows.
pub(crate) fn too_large(bytes: u64, max_memory: u64) -> PyErr {
    PyValueError::new_err(format!("the filter takes {bytes} bytes, which is more than max_memory={max_memory}"))
}

/// Returns the exception for filters that cannot be merged.
pub(crate) fn unmergeable(error: MergeError) -> PyErr {
    match error {
        MergeError::OutOfMemory => PyMemoryError::new_err(error.to_string()),
        MergeError::SourcesDiffer(_) => {
            PyValueError::new_err(format!("{error}: create one of them with empty_like() of the other"))
        }
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// Returns the exception for a filter with a poisoned lock: a change of it panicked, so its content is unknown.
pub(crate) fn broken() -> PyErr {
    PyRuntimeError::new_err("an earlier operation on this filter hit a bug in oxbloom: load or create the filter again")
}
