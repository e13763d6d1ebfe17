//! Packs many items into one argument, for BF.ADDPACKED, BF.EXISTSPACKED and BF.DELPACKED.
//!
//! ```text
//!  NumPy, Arrow ── as they lie in memory ──┐
//!  others ──────── a copy ─────────────────┴─ Chunk ─┬─ arguments: FIXED n items, OFFSETS o items, …
//!                                                    ├─ a loop over them, for servers that lack the commands
//!                                                    ├─ column: for filters in this process
//!                                                    └─ by_shard: a chunk for each key of a sharded filter
//! ```
//!
//! A chunk is one command. It is large enough that the command costs little for each item, and small enough that other
//! clients do not wait for long. The answers to its items are flags: a byte for each item, 0 or 1.

use std::ffi::c_int;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use crc32fast::hash as crc32;
use memchr::memchr_iter;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyIterator, PyList, PyMemoryView, PyTuple};

use crate::column::{BadItem, Column, Limits, Packed, Packing};

/// Shorter arguments are copied to `bytes`. Clients join these with the rest of the command, and send both at once.
const SHORT: usize = 4096;

/// Bytes that are never changed, and that stay where they are.
enum Memory {
    Copied(Vec<u8>),
    Python(PyBackedBytes),
    /// A part of a column, which keeps it in place.
    Shared {
        _column: Arc<dyn Column>,
        start: *const u8,
        length: usize,
    },
}

// SAFETY: the pointer leads into the column, which is itself `Send` and `Sync`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn shared(column: &Arc<dyn Column>, bytes: &[u8]) -> Arc<Memory> {
        Arc::new(Memory::Shared { _column: column.clone(), start: bytes.as_ptr(), length: bytes.len() })
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Copied(bytes) => bytes,
            Memory::Python(bytes) => bytes,
            // SAFETY: `shared` got the pointer and the length from bytes of this column.
            Memory::Shared { start, length, .. } => unsafe { slice::from_raw_parts(*start, *length) },
        }
    }
}

/// Gives Python the bytes without a copy.
#[pyclass(frozen, module = "oxbloom")]
struct Buffer(Arc<Memory>);

#[pymethods]
impl Buffer {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().0.bytes();
        let (start, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: Python passes a view to fill. The view gets a reference to this object, which keeps the bytes.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

fn argument<'py>(py: Python<'py>, memory: &Arc<Memory>) -> PyResult<Bound<'py, PyAny>> {
    let bytes = memory.bytes();
    if bytes.len() <= SHORT {
        return Ok(PyBytes::new(py, bytes).into_any());
    }
    let buffer = Bound::new(py, Buffer(memory.clone()))?;
    Ok(PyMemoryView::from(buffer.as_any())?.into_any())
}

/// Items of one command. `len` returns their number.
#[pyclass(frozen, module = "oxbloom")]
pub(crate) struct Chunk {
    pub(crate) len: usize,
    packing: Packing<Arc<Memory>>,
    data: Arc<Memory>,
}

impl Chunk {
    pub(crate) fn shared(column: &Arc<dyn Column>, packed: &Packed<'_>) -> Chunk {
        let packing = match packed.packing {
            Packing::Fixed(width) => Packing::Fixed(width),
            Packing::Offsets(offsets) => Packing::Offsets(Memory::shared(column, offsets)),
            Packing::Offsets64(offsets) => Packing::Offsets64(Memory::shared(column, offsets)),
            Packing::Lines => Packing::Lines,
        };
        Chunk { len: packed.len, packing, data: Memory::shared(column, packed.data) }
    }

    /// Calls `handle` for each item, in order.
    fn each(&self, mut handle: impl FnMut(&[u8])) {
        let bytes = self.data.bytes();
        self.each_range(|range| handle(&bytes[range]));
    }

    /// Calls `handle` with the place of each item in the bytes of all items, in order.
    fn each_range(&self, mut handle: impl FnMut(Range<usize>)) {
        let mut start = 0;
        let mut next = |length: usize| {
            handle(start..start + length);
            start += length;
        };
        match &self.packing {
            Packing::Fixed(width) => (0..self.len).for_each(|_| next(*width)),
            Packing::Offsets(offsets) => lengths::<4>(offsets.bytes()).for_each(next),
            Packing::Offsets64(offsets) => lengths::<8>(offsets.bytes()).for_each(next),
            Packing::Lines => {
                for end in line_ends(self.data.bytes()) {
                    handle(start..end);
                    start = end + 1;
                }
            }
        }
    }
}

/// Returns the lengths of the items between offsets of `N` bytes.
fn lengths<const N: usize>(offsets: &[u8]) -> impl Iterator<Item = usize> {
    let value = |offset: &[u8; N]| {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(offset);
        u64::from_le_bytes(bytes)
    };
    let (offsets, _) = offsets.as_chunks::<N>();
    offsets.windows(2).map(move |pair| (value(&pair[1]) - value(&pair[0])) as usize)
}

/// Returns where each line ends. The last one needs no line feed.
fn line_ends(block: &[u8]) -> impl Iterator<Item = usize> {
    let is_cut = block.last().is_some_and(|&byte| byte != b'\n');
    memchr_iter(b'\n', block).chain(is_cut.then_some(block.len()))
}

#[pymethods]
impl Chunk {
    /// Returns the lines in `block` as a chunk. The last line needs no line feed.
    #[staticmethod]
    fn of_lines(py: Python<'_>, block: PyBackedBytes) -> Chunk {
        let len = py.detach(|| line_ends(&block).count());
        Chunk { len, packing: Packing::Lines, data: Arc::new(Memory::Python(block)) }
    }

    fn __len__(&self) -> usize {
        self.len
    }

    /// The packing and the items, as the last arguments of a command.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let data = argument(py, &self.data)?;
        match &self.packing {
            Packing::Fixed(width) => ("FIXED", *width, data).into_pyobject(py),
            Packing::Offsets(offsets) => ("OFFSETS", argument(py, offsets)?, data).into_pyobject(py),
            Packing::Offsets64(offsets) => ("OFFSETS64", argument(py, offsets)?, data).into_pyobject(py),
            Packing::Lines => ("LINES", data).into_pyobject(py),
        }
    }

    /// Returns the items one by one.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let mut items = Vec::with_capacity(self.len);
        self.each(|item| items.push(PyBytes::new(py, item)));
        PyList::new(py, items)?.try_iter()
    }

    /// Divides the items among the shards of a filter.
    fn by_shard(slf: &Bound<'_, Chunk>, shards: u32) -> PyResult<ShardedChunk> {
        let (py, chunk) = (slf.py(), slf.get());
        if shards == 1 {
            return Ok(ShardedChunk { homes: vec![0; chunk.len], parts: vec![(0, slf.clone().unbind())] });
        }
        let (homes, parts) = py.detach(|| {
            let mut homes = Vec::with_capacity(chunk.len);
            let mut parts: Vec<Option<Builder>> = (0..shards).map(|_| None).collect();
            chunk.each(|item| {
                let home = crc32(item) % shards;
                homes.push(home as u16);
                parts[home as usize].get_or_insert_default().push(item);
            });
            (homes, parts)
        });
        let parts = parts.into_iter().enumerate().filter_map(|(shard, part)| part.map(|part| (shard, part)));
        let parts = parts.map(|(shard, part)| Ok((shard, Py::new(py, part.finish())?))).collect::<PyResult<_>>()?;
        Ok(ShardedChunk { homes, parts })
    }
}

/// The items of a chunk, for a filter in this process.
struct ChunkColumn {
    data: Arc<Memory>,
    ranges: Vec<Range<usize>>,
}

impl Chunk {
    pub(crate) fn column(&self) -> Box<dyn Column> {
        let mut ranges = Vec::with_capacity(self.len);
        self.each_range(|range| ranges.push(range));
        Box::new(ChunkColumn { data: self.data.clone(), ranges })
    }
}

impl Column for ChunkColumn {
    fn len(&self) -> usize {
        self.ranges.len()
    }

    fn group<'a>(&'a self, range: Range<usize>, _text: &'a mut Vec<u8>) -> Result<Vec<&'a [u8]>, BadItem> {
        let bytes = self.data.bytes();
        Ok(self.ranges[range].iter().map(|item| &bytes[item.clone()]).collect())
    }
}

/// The items of a chunk, divided among the shards of a filter.
#[pyclass(frozen, module = "oxbloom")]
pub(crate) struct ShardedChunk {
    /// The shard of each item. There are at most 16384 shards.
    homes: Vec<u16>,
    parts: Vec<(usize, Py<Chunk>)>,
}

#[pymethods]
impl ShardedChunk {
    /// The shards that have items, and their chunks.
    #[getter]
    fn parts(&self, py: Python<'_>) -> Vec<(usize, Py<Chunk>)> {
        self.parts.iter().map(|(shard, part)| (*shard, part.clone_ref(py))).collect()
    }

    /// Returns the flags of the items in their order, from the flags of each part, up to the first item without one.
    fn merged<'py>(&self, py: Python<'py>, flags: Vec<PyBackedBytes>) -> Bound<'py, PyBytes> {
        let shards = self.parts.last().map_or(0, |(shard, _)| shard + 1);
        let mut rests: Vec<&[u8]> = vec![&[]; shards];
        for ((shard, _), flags) in self.parts.iter().zip(&flags) {
            rests[*shard] = flags;
        }
        let next = |home: &u16| rests[usize::from(*home)].split_off_first().copied();
        let merged: Vec<u8> = self.homes.iter().map_while(next).collect();
        PyBytes::new(py, &merged)
    }
}

/// Packs items by copying them.
#[derive(Default)]
pub(crate) struct Builder {
    data: Vec<u8>,
    /// The offset at which each item ends.
    ends: Vec<u64>,
}

impl Builder {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn push(&mut self, item: &[u8]) {
        self.data.extend_from_slice(item);
        self.ends.push(self.data.len() as u64);
    }

    /// Adds items until the chunk is full. Returns true if all of them fit.
    pub(crate) fn fill(&mut self, items: &[&[u8]], limits: Limits) -> bool {
        items.iter().all(|item| {
            let has_room = !self.is_full(limits);
            if has_room {
                self.push(item);
            }
            has_room
        })
    }

    pub(crate) fn is_full(&self, limits: Limits) -> bool {
        self.len() >= limits.items || self.data.len() >= limits.bytes
    }

    pub(crate) fn finish(self) -> Chunk {
        let Builder { data, ends } = self;
        let width = ends.first().copied().unwrap_or_default();
        // Fingerprints and numbers have the same length, and need no offsets.
        let is_fixed = width > 0 && ends.iter().zip(1..).all(|(&end, count)| end == width * count);
        let all = [0].into_iter().chain(ends.iter().copied());
        let packing = if is_fixed {
            Packing::Fixed(width as usize)
        } else if u32::try_from(data.len()).is_ok() {
            Packing::Offsets(Arc::new(Memory::Copied(all.flat_map(|end| (end as u32).to_le_bytes()).collect())))
        } else {
            Packing::Offsets64(Arc::new(Memory::Copied(all.flat_map(u64::to_le_bytes).collect())))
        };
        Chunk { len: ends.len(), packing, data: Arc::new(Memory::Copied(data)) }
    }
}

/// Returns the flags of a string of bits. The first item is the highest bit of the first byte.
#[pyfunction]
pub(crate) fn unpacked<'py>(py: Python<'py>, bits: &[u8], count: usize) -> PyResult<Bound<'py, PyBytes>> {
    if bits.len() != count.div_ceil(8) {
        let length = bits.len();
        return Err(PyValueError::new_err(format!("expected the bits of {count} items, not {length} bytes")));
    }
    PyBytes::new_with(py, count, |flags| {
        for (flags, byte) in flags.chunks_mut(8).zip(bits) {
            for (place, flag) in flags.iter_mut().enumerate() {
                *flag = byte >> (7 - place) & 1;
            }
        }
        Ok(())
    })
}
