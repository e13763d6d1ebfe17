//! Keeps the locks of filters usable in forked processes.
//!
//! A fork copies only the thread that forks. If another thread holds the lock of a filter at this moment, the copied
//! lock stays locked for ever, and the copied filter may be half changed. So a thread that holds such a lock without
//! the GIL, in batches for example, also holds [`GATE`] for reading, and a fork waits until it can lock the gate for
//! writing. (Threads that hold the lock of a filter together with the GIL need no gate, because a thread that forks has
//! the GIL.)
//!
//! PyO3 has locks, too. It needs them only to initialize what it uses, so [`initialize`] lets it do so in time.

use std::cell::Cell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

static GATE: RwLock<()> = RwLock::new(());

thread_local! {
    /// The lock of the gate, from before a fork until after it.
    static CLOSED: Cell<Option<RwLockWriteGuard<'static, ()>>> = const { Cell::new(None) };
}

/// Delays forks until the result is dropped. The caller must not hold the GIL.
pub(crate) fn delayed() -> RwLockReadGuard<'static, ()> {
    // The gate guards no data, so a panic of its holder breaks nothing.
    GATE.read().unwrap_or_else(PoisonError::into_inner)
}

#[pyfunction]
fn close_gate() {
    CLOSED.set(Some(GATE.write().unwrap_or_else(PoisonError::into_inner)));
}

#[pyfunction]
fn open_gate() {
    CLOSED.set(None);
}

/// Initializes what PyO3 otherwise initializes on first use: names of attributes, and types that it imports. It
/// releases the GIL while it does so. If another thread forked at that moment, the forked process would wait for ever
/// for a thread that it does not have.
pub(crate) fn initialize(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.get_type().fully_qualified_name()?;
    Duration::ZERO.into_pyobject(py)?.extract::<Duration>()?;
    module.extract::<Vec<u8>>().expect_err("a module is no sequence");
    module.getattr("BloomFilter")?.call1(("no capacity",)).expect_err("an argument of another type");
    // NumPy's `bool`.
    let attributes = PyDict::new(py);
    attributes.set_item("__module__", "numpy")?;
    let flag = py.get_type::<PyType>().call1(("bool", (py.get_type::<PyAny>(),), attributes))?.call0()?;
    flag.extract::<bool>().expect_err("it has no method `__bool__`");
    Ok(())
}

/// Asks Python to close the gate before each fork, and to open it after it.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let open = wrap_pyfunction!(open_gate, module)?;
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(close_gate, module)?)?;
    hooks.set_item("after_in_parent", &open)?;
    hooks.set_item("after_in_child", &open)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}
