//! Columns: arrays of items that are read in place. [`numpy`](crate::numpy), [`arrow`](crate::arrow) and
//! [`packing`](crate::packing) have one each.

use std::ops::Range;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Returns the exception for an item of another type, with this name.
pub(crate) fn wrong_type(index: usize, name: &str) -> PyErr {
    PyTypeError::new_err(format!("the item at index {index} must be str or bytes, not {name}"))
}

/// The reason why an item in a column cannot be read.
pub(crate) enum BadItem {
    /// The item at this index is null.
    Null(usize),
    /// The item at this index has another type, with this name.
    Type(usize, String),
    /// The item at this index is not valid Unicode.
    NotUnicode(usize),
    /// The column does not have the layout that its schema describes.
    Layout,
}

impl BadItem {
    /// Adds the number of items in the columns before this one.
    pub(crate) fn after(self, before: usize) -> BadItem {
        match self {
            BadItem::Null(index) => BadItem::Null(before + index),
            BadItem::Type(index, name) => BadItem::Type(before + index, name),
            BadItem::NotUnicode(index) => BadItem::NotUnicode(before + index),
            BadItem::Layout => BadItem::Layout,
        }
    }

    /// Sets the index.
    pub(crate) fn at(self, index: usize) -> BadItem {
        match self {
            BadItem::Null(_) => BadItem::Null(index),
            BadItem::Type(_, name) => BadItem::Type(index, name),
            BadItem::NotUnicode(_) => BadItem::NotUnicode(index),
            BadItem::Layout => BadItem::Layout,
        }
    }

    /// Returns the number of items before this one that can be read.
    pub(crate) fn index(&self) -> usize {
        match self {
            BadItem::Null(index) | BadItem::Type(index, _) | BadItem::NotUnicode(index) => *index,
            BadItem::Layout => 0,
        }
    }
}

impl From<BadItem> for PyErr {
    fn from(bad: BadItem) -> PyErr {
        match bad {
            BadItem::Null(index) => PyTypeError::new_err(format!(
                "the item at index {index} must be str or bytes, not a missing value: drop such items, or fill them"
            )),
            BadItem::Type(index, name) => wrong_type(index, &name),
            BadItem::NotUnicode(index) => {
                PyValueError::new_err(format!("the item at index {index} is not valid Unicode"))
            }
            BadItem::Layout => PyValueError::new_err("the column is not laid out as its schema says"),
        }
    }
}

/// An array of items in memory, which is read without the GIL.
pub(crate) trait Column: Sync + Send {
    fn len(&self) -> usize;

    /// Returns the bytes of the items in `range`. Items that must be converted are written into `text`.
    fn group<'a>(&'a self, range: Range<usize>, text: &'a mut Vec<u8>) -> Result<Vec<&'a [u8]>, BadItem>;

    /// Returns the number of bytes of an item, if all have the same.
    fn width(&self) -> usize {
        0
    }

    /// Returns the next items from an index on, as many as a chunk may have, if they lie in memory as they can be sent.
    fn packed(&self, _start: usize, _limits: Limits) -> Option<Packed<'_>> {
        None
    }
}

/// The size at which a chunk is complete.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// The maximum number of items.
    pub(crate) items: usize,
    /// The maximum number of bytes. Only a single item may have more, or the last one of a chunk that is copied.
    pub(crate) bytes: usize,
}

/// The place of each item in the bytes of all items.
pub(crate) enum Packing<B> {
    /// Every item has this many bytes, at least one.
    Fixed(usize),
    /// Little-endian integers of 32 bits. Item i lies between integers i and i + 1, counted from the first one.
    Offsets(B),
    /// The same with 64 bits.
    Offsets64(B),
    /// Every line is an item, without its line feed.
    Lines,
}

/// Items that lie in memory as they can be sent.
pub(crate) struct Packed<'a> {
    pub(crate) len: usize,
    pub(crate) packing: Packing<&'a [u8]>,
    pub(crate) data: &'a [u8],
}
