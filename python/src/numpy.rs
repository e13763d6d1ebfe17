//! Reads NumPy arrays of fixed-width strings through the buffer protocol. The build does not need NumPy.
//!
//! An array of dtype `S` has bytes, padded with NULs. An array of dtype `U` has a 32-bit code point for each character.
//! As in NumPy itself, NULs at the end do not belong to an item.

use std::ops::Range;
use std::slice;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::column::{BadItem, Column, Limits, Packed, Packing};

/// NumPy's classes of arrays whose items are what lies in memory.
const PLAIN: [&str; 2] = ["numpy.ndarray", "numpy.memmap"];

/// A one-dimensional array of fixed-width strings.
pub(crate) struct FixedWidth {
    buffer: PyUntypedBuffer,
    start: *const u8,
    length: usize,
    stride: isize,
    width: usize,
    unicode: bool,
}

// SAFETY: the buffer owns the memory and keeps it in place. It is only read here.
unsafe impl Sync for FixedWidth {}
// SAFETY: as above.
unsafe impl Send for FixedWidth {}

impl FixedWidth {
    /// Returns the array, or `None` if the object is not an array of fixed-width strings.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Option<FixedWidth>> {
        // Other classes of arrays change what their items are: a masked array hides some. They are iterated over.
        let owner = if object.is_instance_of::<PyMemoryView>() { &object.getattr("obj")? } else { object };
        let class = owner.get_type().fully_qualified_name()?;
        if owner.hasattr("dtype")? && !PLAIN.iter().any(|plain| class == *plain) {
            return Ok(None);
        }
        let Ok(buffer) = PyUntypedBuffer::get(object) else { return Ok(None) };
        let format = buffer.format().to_bytes();
        // NumPy's formats in native byte order are `12s` and `12w`. Objects with other formats are iterated over.
        let unicode = match format.split_last() {
            Some((b's', digits)) if digits.iter().all(u8::is_ascii_digit) => false,
            Some((b'w', digits)) if digits.iter().all(u8::is_ascii_digit) => true,
            _ => return Ok(None),
        };
        if buffer.dimensions() != 1 || buffer.suboffsets().is_some() || (unicode && buffer.item_size() % 4 != 0) {
            return Ok(None);
        }
        let (start, length) = (buffer.buf_ptr().cast_const().cast(), buffer.item_count());
        let (stride, width) = (buffer.strides()[0], buffer.item_size());
        Ok(Some(FixedWidth { start, length, stride, width, unicode, buffer }))
    }

    fn item(&self, index: usize) -> &[u8] {
        debug_assert!(index < self.buffer.item_count());
        if self.width == 0 {
            return &[];
        }
        // SAFETY: the buffer has `length` items of `width` bytes, `stride` bytes apart, and lives as long as `self`.
        unsafe { slice::from_raw_parts(self.start.offset(index as isize * self.stride), self.width) }
    }
}

impl Column for FixedWidth {
    fn len(&self) -> usize {
        self.length
    }

    fn width(&self) -> usize {
        self.width
    }

    /// Only items that fill their width are what they are in memory: NULs at the end belong to no item.
    fn packed(&self, start: usize, limits: Limits) -> Option<Packed<'_>> {
        if self.unicode || self.width == 0 || self.stride != self.width as isize {
            return None;
        }
        let most = limits.items.min((limits.bytes / self.width).max(1));
        let len = most.min(self.length - start);
        // SAFETY: the buffer has `length` items one after the other, and lives as long as `self`.
        let data = unsafe { slice::from_raw_parts(self.start.add(start * self.width), len * self.width) };
        let are_whole = data.chunks_exact(self.width).all(|item| item[self.width - 1] != 0);
        are_whole.then_some(Packed { len, packing: Packing::Fixed(self.width), data })
    }

    fn group<'a>(&'a self, range: Range<usize>, text: &'a mut Vec<u8>) -> Result<Vec<&'a [u8]>, BadItem> {
        if !self.unicode {
            return Ok(range.map(|index| trimmed(self.item(index))).collect());
        }
        let mut ends = Vec::with_capacity(range.len());
        for index in range {
            let (points, _) = self.item(index).as_chunks::<4>();
            let used = points.iter().rposition(|point| *point != [0; 4]).map_or(0, |last| last + 1);
            let points = points[..used].iter().map(|point| u32::from_ne_bytes(*point));
            // Most items are ASCII. This check has no branch for each character, so the compiler vectorizes it.
            if points.clone().fold(0, |all, point| all | point) < 0x80 {
                text.extend(points.map(|point| point as u8));
            } else {
                for point in points {
                    let letter = char::from_u32(point).ok_or(BadItem::NotUnicode(index))?;
                    text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
            ends.push(text.len());
        }
        let mut start = 0;
        Ok(ends.into_iter().map(|end| &text[std::mem::replace(&mut start, end)..end]).collect())
    }
}

fn trimmed(item: &[u8]) -> &[u8] {
    let used = item.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &item[..used]
}
