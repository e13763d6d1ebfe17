//! Packs many items into [chunks](crate::packing), one after the other.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyIterator;

use crate::answers::flags;
use crate::column::{BadItem, Column, Limits};
use crate::items::{Items, Source, bytes_at};
use crate::packing::{Builder, Chunk};

/// An iterator over the chunks of many items. It takes what `BloomFilter.add_all` takes.
#[pyclass(module = "oxbloom")]
pub(crate) struct ItemChunks {
    source: OwnedSource,
    limits: Limits,
    taken: usize,
    is_column: bool,
    /// The reason why there are no more items, which is raised after the items before it were returned.
    failure: Option<PyErr>,
}

enum OwnedSource {
    Columns(Columns),
    Iterator(Py<PyIterator>),
}

/// Columns, the number of the current one, and the next index in it.
struct Columns {
    columns: Vec<Arc<dyn Column>>,
    current: usize,
    index: usize,
}

#[pymethods]
impl ItemChunks {
    #[new]
    fn new(items: &Bound<'_, PyAny>, most: usize, most_bytes: usize) -> PyResult<ItemChunks> {
        let Items { source, is_column } = Items::new(items)?;
        let source = match source {
            Source::Columns(columns) => {
                let columns = columns.into_iter().map(Arc::from).collect();
                OwnedSource::Columns(Columns { columns, current: 0, index: 0 })
            }
            Source::Iterable(items) => OwnedSource::Iterator(items.try_iter()?.unbind()),
        };
        let limits = Limits { items: most.max(1), bytes: most_bytes };
        Ok(ItemChunks { source, limits, taken: 0, is_column, failure: None })
    }

    fn __iter__(this: Py<ItemChunks>) -> Py<ItemChunks> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Chunk>> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let (limits, taken) = (self.limits, self.taken);
        let (chunk, failure) = match &mut self.source {
            OwnedSource::Iterator(items) => taken_from(items.bind(py), limits, taken),
            OwnedSource::Columns(columns) => {
                let (chunk, failure) = py.detach(|| columns.next(limits));
                let failure = failure.map(|bad| bad.at(taken + chunk.len).into());
                (chunk, failure)
            }
        };
        self.taken += chunk.len;
        match failure {
            Some(failure) if chunk.len == 0 => Err(failure),
            failure => {
                self.failure = failure;
                Ok((chunk.len > 0).then_some(chunk))
            }
        }
    }

    /// Returns answers, given as flags, in the type in which BloomFilter returns them.
    fn converted<'py>(&self, py: Python<'py>, answers: PyBackedBytes) -> PyResult<Bound<'py, PyAny>> {
        flags(py, answers.iter().map(|flag| *flag != 0).collect(), self.is_column)
    }
}

/// Takes the items of a chunk from an iterator. Takes none after an item that cannot be read, which it also returns.
fn taken_from(items: &Bound<'_, PyIterator>, limits: Limits, taken: usize) -> (Chunk, Option<PyErr>) {
    let mut builder = Builder::default();
    let mut items = items.clone();
    while !builder.is_full(limits) {
        let Some(item) = items.next() else { break };
        let index = taken + builder.len();
        if let Err(error) = item.and_then(|item| bytes_at(&item, index).map(|bytes| builder.push(&bytes))) {
            return (builder.finish(), Some(error));
        }
    }
    (builder.finish(), None)
}

impl Columns {
    /// Returns the next chunk, which is empty at the end, and the reason if the item after it cannot be read.
    fn next(&mut self, limits: Limits) -> (Chunk, Option<BadItem>) {
        let mut builder = Builder::default();
        while let Some(column) = self.columns.get(self.current) {
            if self.index == column.len() {
                (self.current, self.index) = (self.current + 1, 0);
                continue;
            }
            if builder.is_full(limits) {
                break;
            }
            // A few items are copied, so that they share a chunk with the next column's.
            if builder.len() == 0
                && let Some(packed) = column.packed(self.index, limits)
                && (packed.len > limits.items / 4 || packed.data.len() > limits.bytes / 4)
            {
                self.index += packed.len;
                return (Chunk::shared(column, &packed), None);
            }
            let before = builder.len();
            let failure = copy(column.as_ref(), self.index, limits, &mut builder);
            let copied = builder.len() - before;
            self.index += copied;
            if let Some(bad) = failure {
                return (builder.finish(), Some(bad));
            }
        }
        (builder.finish(), None)
    }
}

/// Copies items from an index on, until the chunk is full. Returns the reason if an item cannot be read.
fn copy(column: &dyn Column, start: usize, limits: Limits, builder: &mut Builder) -> Option<BadItem> {
    let most = (limits.items - builder.len()).min((limits.bytes / column.width().max(1)).max(1));
    let end = column.len().min(start.saturating_add(most));
    let mut text = Vec::new();
    let bad = match column.group(start..end, &mut text) {
        Ok(group) => {
            builder.fill(&group, limits);
            return None;
        }
        Err(bad) => bad,
    };
    text.clear();
    if bad.index() > start {
        match column.group(start..bad.index(), &mut text) {
            Ok(group) if !builder.fill(&group, limits) => return None,
            Ok(_) => (),
            Err(bad) => return Some(bad),
        }
    }
    Some(bad)
}
