//! Predicts the memory of a filter, for the command `oxbloom size`.

use oxbloom_filter::Prediction;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::failed;
use crate::options::{Length, Options};

/// Predicts the memory and the false-positive rate of a filter with `items` items, without creating it.
///
/// The other arguments are those of BloomFilter.
#[pyfunction]
#[pyo3(signature = (items, capacity, error_rate, *, growing=None, counting=false, window=None, rolling=false,
                    slices=None, classic=false))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub(crate) fn plan<'py>(
    py: Python<'py>,
    items: u64,
    capacity: i64,
    error_rate: f64,
    growing: Option<&Bound<'py, PyAny>>,
    counting: bool,
    window: Option<Length>,
    rolling: bool,
    slices: Option<i64>,
    classic: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let options = Options { growing, seed: None, counting, window, rolling, refresh: false, slices, classic };
    let builder = options.builder(capacity, error_rate)?;
    let Prediction { memory, false_positive_rate, is_estimate, probes, shape, .. } =
        py.detach(|| builder.predict(items)).map_err(failed)?;
    let plan = PyDict::new(py);
    plan.set_item("memory", memory)?;
    plan.set_item("false_positive_rate", false_positive_rate)?;
    plan.set_item("estimated", is_estimate)?;
    plan.set_item("probes", probes)?;
    plan.set_item("blocks", shape.map(|shape| shape.blocks))?;
    plan.set_item("block_bytes", shape.map(|shape| 8 * u32::from(shape.words)))?;
    plan.set_item("blocks_per_item", shape.map(|shape| shape.blocks_per_item))?;
    Ok(plan)
}
