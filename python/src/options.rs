//! Reads the options of new filters, which are arguments from Python.

use std::time::Duration;

use oxbloom_filter::{Filter, FilterBuilder};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

/// The expansion of filters with `growing=True`: the module's default.
const DEFAULT_EXPANSION: u32 = 2;

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
