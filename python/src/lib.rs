//! The Python package `oxbloom`: Bloom filters in a Python process, with the same bits as on a server.
//!
//! ```text
//!  bytes, str, lists ─┐                              ┌─ DUMP, RESTORE, files: the crate's `payload`
//!  NumPy: `column`    ├─ `items` ── `filter` ── Filter
//!  Arrow: `arrow`    ─┘              │               └─ BF.SCANDUMP, BF.LOADCHUNK: `chunks`
//!                     │              └─ lists, NumPy: `answers`
//!                     └─ `packing` ── chunks for servers
//! ```
//!
//! The filters are those of the crate `oxbloom-filter`. This crate converts Python's items to bytes, filters to DUMP
//! payloads and back, and errors to exceptions (`error`). The Python files in `oxbloom/` talk to servers.
//!
//! Each filter has a lock. No thread waits for it while it holds the GIL, Python's own lock. Batches are hashed without
//! the GIL, so that other threads run. `fork` keeps the locks usable in forked processes.

mod answers;
mod arrow;
mod chunks;
mod column;
mod error;
mod filter;
mod fork;
mod items;
mod packing;
mod plan;

use pyo3::prelude::*;

/// Bloom filters in Rust. See the package `oxbloom`.
#[pymodule]
mod _oxbloom {
    #[pymodule_export]
    use crate::error::FilterFullError;
    #[pymodule_export]
    use crate::filter::BloomFilter;
    #[pymodule_export]
    use crate::items::encoded;
    #[pymodule_export]
    use crate::packing::{Chunk, ItemChunks, ShardedChunk, unpacked};
    #[pymodule_export]
    use crate::plan::plan;

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::fork::register(module)
    }
}
