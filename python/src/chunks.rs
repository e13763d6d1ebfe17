//! Splits filters into the chunks that BF.SCANDUMP returns and BF.LOADCHUNK accepts, and loads filters from them.

use std::sync::atomic::{AtomicU64, Ordering};

use oxbloom_filter::Filter;
use oxbloom_filter::internals::codec::{self, Header, Loader, Origin};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{failed, too_large, undecodable, undecodable_within};
use crate::filter::BloomFilter;

/// An iterator over the chunks of a filter. The filter must not change until the last chunk has been read.
#[pyclass(frozen, module = "oxbloom")]
pub(crate) struct Chunks {
    filter: Py<BloomFilter>,
    cursor: AtomicU64,
}

/// The cursor with which BF.SCANDUMP starts, and which its last reply has.
const START: u64 = 0;
/// Marks the end. No chunk has this cursor.
const END: u64 = u64::MAX;

impl Chunks {
    pub(crate) fn new(filter: Py<BloomFilter>) -> Chunks {
        Chunks { filter, cursor: AtomicU64::new(START) }
    }
}

#[pymethods]
impl Chunks {
    fn __iter__(this: Py<Chunks>) -> Py<Chunks> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(u64, Bound<'py, PyBytes>)>> {
        let chunk = match self.cursor.load(Ordering::Relaxed) {
            END => None,
            cursor => self.filter.get().with(py, |filter| next(filter, cursor))?.map_err(failed)?,
        };
        self.cursor.store(chunk.as_ref().map_or(END, |(cursor, _)| *cursor), Ordering::Relaxed);
        Ok(chunk.map(|(cursor, data)| (cursor, PyBytes::new(py, &data))))
    }
}

fn next(filter: &Filter, cursor: u64) -> Result<Option<(u64, Vec<u8>)>, oxbloom_filter::Error> {
    Ok(codec::next_chunk(filter, cursor)?.map(|chunk| (chunk.cursor, chunk.data.into_owned())))
}

/// Loads a filter from its chunks. Looks for signals between them.
pub(crate) fn load(py: Python<'_>, chunks: &Bound<'_, PyAny>, max_memory: u64) -> PyResult<Filter> {
    let mut loader: Option<Loader> = None;
    for chunk in chunks.try_iter()? {
        // BF.SCANDUMP replies with lists, and the iterator above yields tuples.
        let [cursor, data]: [Bound<'_, PyAny>; 2] = chunk?.extract()?;
        let (cursor, data): (u64, &Bound<'_, PyBytes>) = (cursor.extract()?, data.cast()?);
        if cursor == START {
            break;
        }
        let data = data.as_bytes();
        match &mut loader {
            None => loader = Some(py.detach(|| start(cursor, data, max_memory))?),
            Some(loader) => {
                py.detach(|| loader.load(cursor, data)).map_err(|error| undecodable_within(error, max_memory))?
            }
        }
        py.check_signals()?;
    }
    loader.ok_or_else(|| PyValueError::new_err("there are no chunks"))?.finish().map_err(undecodable)
}

/// Builds the filter of a header.
fn start(cursor: u64, data: &[u8], max_memory: u64) -> PyResult<Loader> {
    if !codec::is_header(cursor, data) {
        return Err(PyValueError::new_err("the first chunk is not the header of a filter"));
    }
    let header = Header::decode(data, Origin::Replication).map_err(undecodable)?;
    if header.memory() > max_memory {
        return Err(too_large(header.memory(), max_memory));
    }
    Loader::new(&header, data, max_memory).map_err(undecodable)
}
