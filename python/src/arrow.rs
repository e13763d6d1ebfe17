//! Reads Arrow arrays of strings through the
//! [Arrow C data interface](https://arrow.apache.org/docs/format/CDataInterface.html): those of pyarrow, Polars, pandas
//! and others. The build needs none of these.
//!
//! An Arrow object has a method `__arrow_c_stream__` or `__arrow_c_array__`, which returns capsules with the structures
//! below. The importer of a structure calls its `release` when done.
//!
//! The structures are trusted, because the sizes of their buffers cannot be checked. Only the offsets of strings are
//! checked, so that a wrong offset does not read beyond the data.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::{ptr, slice};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::items::{BadItem, Column};

#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

/// An imported structure, which is released when it is dropped.
trait Released {
    /// Returns a structure that holds nothing.
    fn empty() -> Self;
    fn release(&mut self);
}

macro_rules! released {
    ($structure:ident { $($field:ident: $value:expr),* }) => {
        impl Released for $structure {
            fn empty() -> Self {
                $structure { $($field: $value,)* release: None, private_data: ptr::null_mut() }
            }

            fn release(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: the structure was imported, and has not been released.
                    unsafe { release(self) }
                }
            }
        }

        impl Drop for $structure {
            fn drop(&mut self) {
                Released::release(self);
            }
        }
    };
}

released!(Schema {
    format: ptr::null(),
    name: ptr::null(),
    metadata: ptr::null(),
    flags: 0,
    n_children: 0,
    children: ptr::null_mut(),
    dictionary: ptr::null_mut()
});
released!(Array {
    length: 0,
    null_count: 0,
    offset: 0,
    n_buffers: 0,
    n_children: 0,
    buffers: ptr::null(),
    children: ptr::null_mut(),
    dictionary: ptr::null_mut()
});
released!(Stream { get_schema: None, get_next: None, get_last_error: None });

/// Moves the structure out of a capsule, and leaves an empty one in it.
///
/// # Safety
///
/// A capsule of this name must contain a `T`.
unsafe fn take<T: Released>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<T> {
    let place = capsule.cast::<PyCapsule>()?.pointer_checked(Some(name))?.cast::<T>().as_ptr();
    // SAFETY: the caller promises that the types match. The empty structure has no `release`, which marks it as moved.
    Ok(unsafe { ptr::replace(place, T::empty()) })
}

/// The memory layout of the strings in an array.
#[derive(Clone, Copy)]
enum Layout {
    /// Offsets of 32 bits.
    Small,
    /// Offsets of 64 bits.
    Large,
    /// 16 bytes per string: a short string itself, or the place of a long one.
    View,
}

impl Layout {
    fn of(schema: &Schema) -> PyResult<Layout> {
        if schema.format.is_null() {
            return Err(PyValueError::new_err("the Arrow schema has no format"));
        }
        // SAFETY: in the interface, the format is a NUL-terminated string.
        let format = unsafe { CStr::from_ptr(schema.format) };
        match (format.to_bytes(), schema.dictionary.is_null()) {
            (b"u" | b"z", true) => Ok(Layout::Small),
            (b"U" | b"Z", true) => Ok(Layout::Large),
            (b"vu" | b"vz", true) => Ok(Layout::View),
            (_, true) => Err(PyTypeError::new_err(format!(
                "an Arrow array of items must have strings or binary values, not the type with the format {format:?}"
            ))),
            (_, false) => {
                Err(PyTypeError::new_err("an Arrow array of items must not be dictionary-encoded: cast it to strings"))
            }
        }
    }
}

/// An array of strings.
pub(crate) struct Strings {
    array: Array,
    layout: Layout,
}

// SAFETY: the array owns the memory until it is released. The memory never changes, and is not bound to a thread.
unsafe impl Sync for Strings {}
// SAFETY: as above; `release` may be called on any thread.
unsafe impl Send for Strings {}

/// Returns the arrays of an object, or `None` if it does not have the methods of the interface.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Strings>>> {
    if let Ok(method) = object.getattr("__arrow_c_stream__") {
        // SAFETY: a capsule with this name contains a stream.
        return read_stream(unsafe { take(&method.call0()?, c"arrow_array_stream") }?).map(Some);
    }
    let Ok(method) = object.getattr("__arrow_c_array__") else { return Ok(None) };
    let capsules = method.call0()?.cast_into::<PyTuple>()?;
    // SAFETY: capsules with these names contain a schema and an array.
    let (schema, array) = unsafe {
        (take::<Schema>(&capsules.get_item(0)?, c"arrow_schema")?, take(&capsules.get_item(1)?, c"arrow_array")?)
    };
    Ok(Some(vec![Strings::new(array, Layout::of(&schema)?)?]))
}

fn read_stream(mut stream: Stream) -> PyResult<Vec<Strings>> {
    let (Some(get_schema), Some(get_next), Some(_)) = (stream.get_schema, stream.get_next, stream.release) else {
        return Err(PyValueError::new_err("the Arrow stream was read already"));
    };
    let mut schema = Schema::empty();
    // SAFETY: the stream has not been released, and the empty schema may be overwritten.
    let status = unsafe { get_schema(&mut stream, &mut schema) };
    check(&mut stream, status)?;
    let layout = Layout::of(&schema)?;
    let mut arrays = Vec::new();
    loop {
        let mut array = Array::empty();
        // SAFETY: as above.
        let status = unsafe { get_next(&mut stream, &mut array) };
        check(&mut stream, status)?;
        if array.release.is_none() {
            return Ok(arrays);
        }
        arrays.push(Strings::new(array, layout)?);
    }
}

fn check(stream: &mut Stream, status: c_int) -> PyResult<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the last call failed, and the text is valid until the next one.
    let text = stream.get_last_error.map(|get| unsafe { get(stream) }).filter(|text| !text.is_null());
    // SAFETY: as above.
    let text = text.map_or(String::new(), |text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
    Err(PyValueError::new_err(format!("the Arrow stream cannot be read: {text}")))
}

/// Returns the integer at an index of a buffer, or `None` if it is negative. `width` is 4 or 8 bytes.
fn offset_at(bytes: &[u8], index: usize, width: usize) -> Option<usize> {
    let bytes = &bytes[index * width..][..width];
    match width {
        4 => usize::try_from(i32::from_ne_bytes(bytes.try_into().ok()?)).ok(),
        _ => usize::try_from(i64::from_ne_bytes(bytes.try_into().ok()?)).ok(),
    }
}

impl Strings {
    fn new(array: Array, layout: Layout) -> PyResult<Strings> {
        let numbers = [array.length, array.offset, array.n_buffers];
        let sound = numbers.iter().all(|&number| number >= 0)
            && array.length.checked_add(array.offset).is_some()
            && (array.n_buffers >= 3 && !array.buffers.is_null());
        if !sound {
            return Err(BadItem::Layout.into());
        }
        Ok(Strings { array, layout })
    }

    /// Returns the first `length` bytes of a buffer.
    fn buffer(&self, index: usize, length: usize) -> Result<&[u8], BadItem> {
        if length == 0 {
            return Ok(&[]);
        }
        if index as i64 >= self.array.n_buffers {
            return Err(BadItem::Layout);
        }
        // SAFETY: the index is below the number of buffers.
        let start = unsafe { *self.array.buffers.add(index) };
        if start.is_null() {
            return Err(BadItem::Layout);
        }
        // SAFETY: callers compute the length from the array's fields. The buffer lives as long as the array.
        Ok(unsafe { slice::from_raw_parts(start.cast(), length) })
    }

    fn check_nulls(&self, range: &Range<usize>) -> Result<(), BadItem> {
        // SAFETY: there are at least three buffers.
        let validity = unsafe { *self.array.buffers };
        if self.array.null_count == 0 || validity.is_null() {
            return Ok(());
        }
        let end = self.array.offset as usize + range.end;
        let bits = self.buffer(0, end.div_ceil(8))?;
        let is_null = |&index: &usize| {
            let index = self.array.offset as usize + index;
            bits[index / 8] >> (index % 8) & 1 == 0
        };
        range.clone().find(is_null).map_or(Ok(()), |index| Err(BadItem::Null(index)))
    }

    fn with_offsets(&self, range: Range<usize>, width: usize) -> Result<Vec<&[u8]>, BadItem> {
        let (start, end) = (self.array.offset as usize + range.start, self.array.offset as usize + range.end);
        let offsets = self.buffer(1, (end + 1) * width)?;
        let last = offset_at(offsets, end, width).ok_or(BadItem::Layout)?;
        let bytes = self.buffer(2, last)?;
        let string = |index| {
            let (from, to) = (offset_at(offsets, index, width)?, offset_at(offsets, index + 1, width)?);
            bytes.get(from..to)
        };
        (start..end).map(|index| string(index).ok_or(BadItem::Layout)).collect()
    }

    fn with_views(&self, range: Range<usize>) -> Result<Vec<&[u8]>, BadItem> {
        const VIEW: usize = 16;
        const INLINE: usize = 12;
        let (start, end) = (self.array.offset as usize + range.start, self.array.offset as usize + range.end);
        let (views, _) = self.buffer(1, end * VIEW)?.as_chunks::<VIEW>();
        // The last buffer has the sizes of the data buffers.
        let data_buffers = self.array.n_buffers as usize - 3;
        let sizes = self.buffer(data_buffers + 2, data_buffers * 8)?;
        let string = |view: &'_ [u8; VIEW]| {
            let length = offset_at(view, 0, 4)?;
            let (buffer, from) = (offset_at(view, 2, 4)?, offset_at(view, 3, 4)?);
            if buffer >= data_buffers {
                return None;
            }
            let bytes = self.buffer(2 + buffer, offset_at(sizes, buffer, 8)?).ok()?;
            bytes.get(from..from.checked_add(length)?)
        };
        let views = views[start..end].iter();
        let strings = views.map(|view| match offset_at(view, 0, 4) {
            Some(length @ 0..=INLINE) => Some(&view[4..4 + length]),
            _ => string(view),
        });
        strings.map(|string| string.ok_or(BadItem::Layout)).collect()
    }
}

impl Column for Strings {
    fn len(&self) -> usize {
        self.array.length as usize
    }

    fn group<'a>(&'a self, range: Range<usize>, _text: &'a mut Vec<u8>) -> Result<Vec<&'a [u8]>, BadItem> {
        self.check_nulls(&range)?;
        match self.layout {
            Layout::Small => self.with_offsets(range, 4),
            Layout::Large => self.with_offsets(range, 8),
            Layout::View => self.with_views(range),
        }
    }
}
