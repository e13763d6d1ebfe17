//! The Python package `oxbloom`: Bloom filters in a Python process, with the same bits as on a server.
//!
//! ```text
//!  bytes, str, lists ─┐                  ┌─ lists, NumPy: `answers`
//!  NumPy: `numpy`    ├─ `items` ─┬─ `methods` ── `filter` ── Filter
//!  Arrow: `arrow`    ─┘          │       ├─ DUMP, RESTORE, files: `files` and the crate's `payload`
//!                               │       └─ BF.SCANDUMP, BF.LOADCHUNK: `chunks`
//!                               └─ `item_chunks` ── chunks for servers: `packing`
//! ```
//!
//! The filters are those of the crate `oxbloom-filter`. This crate converts Python's items to bytes, filters to DUMP
//! payloads and back, and errors to exceptions (`error`). The Python files in `oxbloom/` talk to servers.
//!
//! `column` is what arrays of items have in common. `options` and `plan` describe filters that do not exist yet.
//!
//! Each filter has a lock. No thread waits for it while it holds the GIL, Python's own lock. Batches are hashed without
//! the GIL, so that other threads run. `fork` keeps the locks usable in forked processes.

mod answers;
mod arrow;
mod chunks;
mod column;
mod data_types;
mod error;
mod files;
mod filter;
mod fork;
mod item_chunks;
mod items;
mod methods;
mod numpy;
mod options;
mod packing;
mod plan;

use pyo3::prelude::*;

/// Bloom filters in Rust. See the package `oxbloom`.
#[pymodule]
mod _oxbloom {
    #[pymodule_export]
    use crate::data_types::data_types;
    #[pymodule_export]
    use crate::error::FilterFullError;
    #[pymodule_export]
    use crate::filter::BloomFilter;
    #[pymodule_export]
    use crate::item_chunks::ItemChunks;
    #[pymodule_export]
    use crate::items::encoded;
    #[pymodule_export]
    use crate::packing::{Chunk, ShardedChunk, unpacked};
    #[pymodule_export]
    use crate::plan::plan;

    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Those of a batch replace it.
        module.getattr("FilterFullError")?.setattr("answers", PyTuple::empty(module.py()))?;
        crate::fork::initialize(module)?;
        crate::fork::register(module)
    }
}
