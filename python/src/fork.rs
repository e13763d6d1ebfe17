//! Keeps the locks of filters usable in forked processes.
//!
//! A fork copies only the thread that forks. If another thread holds the lock of a filter at this moment, the copied
//! lock stays locked for ever, and the copied filter may be half changed. So a thread that holds such a lock without
//! the GIL, in batches for example, also holds [`GATE`] for reading, and a fork waits until it can lock the gate for
//! writing. (Threads that hold the lock of a filter together with the GIL need no gate, because a thread that forks has
//! the GIL.)

use std::cell::Cell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pyo3::prelude::*;
use pyo3::types::PyDict;

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

/// Asks Python to call these functions whenever the process forks.
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
