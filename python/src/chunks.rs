//! Splits filters into the chunks that BF.SCANDUMP returns and BF.LOADCHUNK accepts, and loads filters from them.

use std::sync::atomic::{AtomicU64, Ordering};

use oxbloom_filter::Filter;
use oxbloom_filter::internals::FilterKind;
use oxbloom_filter::internals::codec::{self, Header, Origin};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{failed, too_large, undecodable};
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
            START => {
                let header = self.filter.get().with(py, codec::encode_header)?.map_err(failed)?;
                Some((codec::HEADER_CURSOR, header))
            }
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

/// Loads a filter from its chunks.
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
            None => loader = Some(py.detach(|| Loader::new(cursor, data, max_memory))?),
            Some(loader) => py.detach(|| loader.load(cursor, data))?,
        }
    }
    loader.ok_or_else(|| PyValueError::new_err("there are no chunks"))?.finish()
}

struct Loader {
    filter: Filter,
    header: Vec<u8>,
    expected: u64,
    loaded: u64,
}

impl Loader {
    fn new(cursor: u64, data: &[u8], max_memory: u64) -> PyResult<Loader> {
        if !codec::is_header(cursor, data) {
            return Err(PyValueError::new_err("the first chunk is not the header of a filter"));
        }
        let header = Header::decode(data, Origin::Replication).map_err(undecodable)?;
        if header.memory() > max_memory {
            return Err(too_large(header.memory(), max_memory));
        }
        let filter = header.build().map_err(undecodable)?;
        Ok(Loader { filter, header: data.to_vec(), expected: header.memory(), loaded: 0 })
    }

    fn load(&mut self, cursor: u64, data: &[u8]) -> PyResult<()> {
        codec::load_chunk(&mut self.filter, cursor, data, Origin::Replication).map_err(undecodable)?;
        self.loaded = self.loaded.saturating_add(data.len() as u64);
        Ok(())
    }

    /// Returns the filter if it is complete: then its header equals the first chunk. The header of a classic filter
    /// does not depend on its bits, so its loaded bytes are counted instead.
    fn finish(self) -> PyResult<Filter> {
        let is_whole = match self.filter.kind() {
            FilterKind::Classic => self.loaded == self.expected,
            _ => codec::encode_header(&self.filter).map_err(failed)? == self.header,
        };
        if is_whole {
            Ok(self.filter)
        } else {
            Err(PyValueError::new_err("chunks are missing, or the filter was changed while they were read"))
        }
    }
}
