//! The Python package `oxbloom`: filters in a Python process, with the bits that they have on a server.
//!
//! ```text
//!  bytes, str, lists ─┐                              ┌─ DUMP, RESTORE, files: `dump`
//!  NumPy: `column`    ├─ `items` ── `filter` ── Filter
//!  Arrow: `arrow`    ─┘                              └─ BF.SCANDUMP, BF.LOADCHUNK: `chunks`
//! ```
//!
//! The filters are those of the crate `oxbloom-filter`. This one turns Python's items into bytes, filters into DUMP payloads and
//! back, and errors into exceptions (`error`). What talks to servers is written in Python, beside it.
//!
//! A filter is behind a lock, which no thread waits for while it holds Python's own (the GIL). Batches are hashed without it, so
//! that other threads run.

mod arrow;
mod chunks;
mod column;
mod dump;
mod error;
mod filter;
mod items;
mod plan;

use pyo3::prelude::*;

/// Bloom filters, in Rust: see the package `oxbloom`.
#[pymodule]
mod _oxbloom {
    #[pymodule_export]
    use crate::error::FilterFullError;
    #[pymodule_export]
    use crate::filter::BloomFilter;
    #[pymodule_export]
    use crate::plan::plan;
}
