//! Reads and writes filters as bytes, in Python's files and bytes-like objects.

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::payload;
use pyo3::exceptions::{PyBlockingIOError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::error::{too_large, undecodable, undecodable_within};

/// Returns the content of a bytes-like object.
pub(crate) fn bytes_like<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    // Other types are copied, since other threads may change their content.
    let view = data.py().import("builtins")?.call_method1("memoryview", (data,))?;
    Ok(view.call_method0("tobytes")?.cast_into()?)
}

pub(crate) fn is_path(file: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(file.is_instance_of::<PyString>() || file.is_instance_of::<PyBytes>() || file.hasattr("__fspath__")?)
}

/// Reads at most `n` bytes of a file, or all if `n` is negative. If `file` is a path, opens and closes it.
pub(crate) fn read<'py>(file: &Bound<'py, PyAny>, n: i64) -> PyResult<Bound<'py, PyAny>> {
    if !is_path(file)? {
        return file.call_method1("read", (n,));
    }
    let file = file.py().import("builtins")?.call_method1("open", (file, "rb"))?;
    let data = file.call_method1("read", (n,));
    file.call_method0("close")?;
    data
}

pub(crate) fn write_all(file: &Bound<'_, PyAny>, payload: &[u8]) -> PyResult<()> {
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
pub(crate) fn decode(bytes: &[u8], max_memory: u64) -> PyResult<Filter> {
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
