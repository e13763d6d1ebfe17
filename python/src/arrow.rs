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

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::column::{BadItem, Column, Limits, Packed, Packing};

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

/// The memory layout of the values in an array.
enum Layout {
    /// Strings with offsets of this many bytes: 4 or 8.
    Offsets(usize),
    /// 16 bytes per string: a short string itself, or the place of a long one.
    Views,
    /// Binary values of this many bytes.
    Fixed(usize),
    /// Integers, which are the indexes of values in a dictionary.
    Indexes(Integer),
    /// Nothing: all values are null.
    Null,
    /// Values that cannot be items, of the type with this name.
    Other(String),
}

/// The type of the indexes of a dictionary.
#[derive(Clone, Copy)]
struct Integer {
    bytes: usize,
    is_signed: bool,
}

/// The beginnings of formats that are not read, and the names of their types.
const NAMES: [(&[u8], &str); 26] = [
    (b"b", "bool"),
    (b"c", "int8"),
    (b"C", "uint8"),
    (b"s", "int16"),
    (b"S", "uint16"),
    (b"i", "int32"),
    (b"I", "uint32"),
    (b"l", "int64"),
    (b"L", "uint64"),
    (b"e", "float16"),
    (b"f", "float32"),
    (b"g", "float64"),
    (b"d:", "decimal"),
    (b"td", "date"),
    (b"tt", "time"),
    (b"ts", "timestamp"),
    (b"tD", "duration"),
    (b"ti", "interval"),
    (b"+s", "struct (if this is a table, pass one of its columns)"),
    (b"+l", "list"),
    (b"+L", "list"),
    (b"+v", "list"),
    (b"+w", "list"),
    (b"+m", "map"),
    (b"+u", "union"),
    (b"+r", "run-end encoded values (decode the column first)"),
];

impl Layout {
    fn of(schema: &Schema) -> PyResult<Layout> {
        if schema.format.is_null() {
            return Err(PyValueError::new_err("the Arrow schema has no format"));
        }
        // SAFETY: in the interface, the format is a NUL-terminated string.
        let format = unsafe { CStr::from_ptr(schema.format) };
        let known = NAMES.iter().find(|(start, _)| format.to_bytes().starts_with(start));
        let name = known.map_or_else(|| format!("Arrow's type with the format {format:?}"), |known| known.1.to_owned());
        if !schema.dictionary.is_null() {
            return Ok(Integer::of(format).map_or(Layout::Other(name), Layout::Indexes));
        }
        // The storage of text is the text. That of others, such as UUIDs, differs from what a loop would give.
        if let Some(extension) = extension(schema)
            && !matches!(format.to_bytes(), b"u" | b"U" | b"vu")
        {
            return Ok(Layout::Other(format!("Arrow's extension type {extension} (pass its storage, or text)")));
        }
        Ok(match format.to_bytes() {
            b"u" | b"z" => Layout::Offsets(4),
            b"U" | b"Z" => Layout::Offsets(8),
            b"vu" | b"vz" => Layout::Views,
            b"n" => Layout::Null,
            bytes => match bytes.strip_prefix(b"w:").and_then(|width| str::from_utf8(width).ok()?.parse().ok()) {
                Some(width) => Layout::Fixed(width),
                None => Layout::Other(name),
            },
        })
    }

    /// Returns the number of buffers that each array of this layout has, at least.
    fn buffers(&self) -> i64 {
        match self {
            Layout::Offsets(_) | Layout::Views => 3,
            Layout::Fixed(_) | Layout::Indexes(_) => 2,
            Layout::Null | Layout::Other(_) => 0,
        }
    }
}

/// Returns the name of an extension type, which is in the metadata.
fn extension(schema: &Schema) -> Option<String> {
    let mut at = schema.metadata.cast::<u8>();
    if at.is_null() {
        return None;
    }
    let mut take = |length: usize| {
        // SAFETY: in the interface, the metadata is the number of pairs, and for each the lengths and the bytes of a key
        // and a value. It is trusted, as the other structures are.
        let bytes = unsafe { slice::from_raw_parts(at, length) };
        at = at.wrapping_add(length);
        bytes
    };
    let pairs = number(take(4));
    let mut string = || {
        let length = number(take(4));
        take(length)
    };
    let mut pairs = (0..pairs).map(|_| (string(), string()));
    let (_, name) = pairs.find(|(key, _)| *key == b"ARROW:extension:name")?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// Returns the integer in four bytes, or 0 if it is negative.
fn number(bytes: &[u8]) -> usize {
    offset_at(bytes, 0, 4).unwrap_or(0)
}

impl Integer {
    fn of(format: &CStr) -> Option<Integer> {
        let [letter] = format.to_bytes() else { return None };
        let power = b"csil".iter().position(|known| known.eq_ignore_ascii_case(letter))?;
        Some(Integer { bytes: 1 << power, is_signed: letter.is_ascii_lowercase() })
    }

    /// Returns the number at an index, or `None` if it is no index itself.
    fn at(self, numbers: &[u8], index: usize) -> Option<usize> {
        let number = numbers.get(index * self.bytes..)?.get(..self.bytes)?;
        let mut bytes = [0; 8];
        bytes[..self.bytes].copy_from_slice(number);
        let is_negative = self.is_signed && number.last()? & 0x80 != 0;
        // The first bytes of a number are its low ones.
        if is_negative { None } else { usize::try_from(u64::from_le_bytes(bytes)).ok() }
    }
}

/// An array of strings, of binary values, or of indexes of them in a dictionary.
pub(crate) struct Strings {
    array: Array,
    layout: Layout,
    dictionary: Option<Box<Strings>>,
}

// SAFETY: the array owns the memory until it is released. The memory never changes, and is not bound to a thread.
unsafe impl Sync for Strings {}
// SAFETY: as above; `release` may be called on any thread.
unsafe impl Send for Strings {}

/// Returns the arrays of an object, or `None` if it does not have the methods of the interface, or they fail.
///
/// Those of pandas fail without pyarrow, and if a column has both `str` and `bytes`. A loop can read such columns.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Box<dyn Column>>>> {
    if let Ok(method) = object.getattr("__arrow_c_stream__") {
        let stream = match method.call0() {
            Ok(stream) => stream,
            Err(error) if error.is_instance_of::<PyException>(object.py()) && object.hasattr("__iter__")? => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // SAFETY: a capsule with this name contains a stream.
        return read_stream(unsafe { take(&stream, c"arrow_array_stream") }?).map(Some);
    }
    let Ok(method) = object.getattr("__arrow_c_array__") else { return Ok(None) };
    let capsules = method.call0()?.cast_into::<PyTuple>()?;
    // SAFETY: capsules with these names contain a schema and an array.
    let (schema, array) = unsafe {
        (take::<Schema>(&capsules.get_item(0)?, c"arrow_schema")?, take(&capsules.get_item(1)?, c"arrow_array")?)
    };
    Ok(Some(vec![Box::new(Strings::new(array, &schema)?)]))
}

fn read_stream(mut stream: Stream) -> PyResult<Vec<Box<dyn Column>>> {
    let (Some(get_schema), Some(get_next), Some(_)) = (stream.get_schema, stream.get_next, stream.release) else {
        return Err(PyValueError::new_err("the Arrow stream was read already"));
    };
    let mut schema = Schema::empty();
    // SAFETY: the stream has not been released, and the empty schema may be overwritten.
    let status = unsafe { get_schema(&mut stream, &mut schema) };
    check(&mut stream, status)?;
    let mut arrays: Vec<Box<dyn Column>> = Vec::new();
    loop {
        let mut array = Array::empty();
        // SAFETY: as above.
        let status = unsafe { get_next(&mut stream, &mut array) };
        check(&mut stream, status)?;
        if array.release.is_none() {
            return Ok(arrays);
        }
        arrays.push(Box::new(Strings::new(array, &schema)?));
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
    fn new(array: Array, schema: &Schema) -> PyResult<Strings> {
        let layout = Layout::of(schema)?;
        let numbers = [array.length, array.offset, array.n_buffers];
        let sound = numbers.iter().all(|&number| number >= 0)
            && array.length.checked_add(array.offset).is_some()
            && array.n_buffers >= layout.buffers()
            && (layout.buffers() == 0 || !array.buffers.is_null());
        if !sound {
            return Err(BadItem::Layout.into());
        }
        let dictionary = match layout {
            Layout::Indexes(_) if array.dictionary.is_null() => return Err(BadItem::Layout.into()),
            // SAFETY: both structures have a dictionary. The empty array in its place is marked as moved, so that the
            // parent does not release it.
            Layout::Indexes(_) => Some(unsafe {
                Box::new(Strings::new(ptr::replace(array.dictionary, Array::empty()), &*schema.dictionary)?)
            }),
            _ => None,
        };
        Ok(Strings { array, layout, dictionary })
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

    /// Returns the bits that say which values are not null, or `None` if no value is null.
    fn validity(&self, end: usize) -> Result<Option<&[u8]>, BadItem> {
        // SAFETY: arrays of the layouts that have values have at least two buffers.
        let validity = unsafe { *self.array.buffers };
        if self.array.null_count == 0 || validity.is_null() {
            return Ok(None);
        }
        self.buffer(0, end.div_ceil(8)).map(Some)
    }

    /// Returns a reader of the values before the index `end`.
    fn reader(&self, end: usize) -> Result<Reader<'_>, BadItem> {
        let offset = self.array.offset as usize;
        let end = offset + end;
        let values = match &self.layout {
            &Layout::Offsets(width) => {
                let offsets = self.buffer(1, (end + 1) * width)?;
                let last = offset_at(offsets, end, width).ok_or(BadItem::Layout)?;
                Values::Offsets { offsets, width, bytes: self.buffer(2, last)? }
            }
            Layout::Views => Values::Views(self.buffer(1, end * VIEW)?, self.data_buffers()?),
            &Layout::Fixed(width) => Values::Fixed(self.buffer(1, end * width)?, width),
            &Layout::Indexes(integer) => {
                let Some(dictionary) = &self.dictionary else { return Err(BadItem::Layout) };
                let values = dictionary.reader(dictionary.len())?;
                Values::Indexes(self.buffer(1, end * integer.bytes)?, integer, Box::new(values), dictionary.len())
            }
            Layout::Null => return Err(BadItem::Null(0)),
            Layout::Other(name) => return Err(BadItem::Type(0, name.clone())),
        };
        Ok(Reader { offset, validity: self.validity(end)?, values })
    }

    /// Returns the buffers with the long strings of views.
    fn data_buffers(&self) -> Result<Vec<&[u8]>, BadItem> {
        // The last buffer has the sizes of the data buffers.
        let count = self.array.n_buffers as usize - 3;
        let sizes = self.buffer(count + 2, count * 8)?;
        let buffer = |index| self.buffer(2 + index, offset_at(sizes, index, 8).ok_or(BadItem::Layout)?);
        (0..count).map(buffer).collect()
    }
}

/// The bytes of a view, and those of a short string in it.
const VIEW: usize = 16;
const INLINE: usize = 12;

/// Reads the values of an array in any order.
struct Reader<'a> {
    offset: usize,
    validity: Option<&'a [u8]>,
    values: Values<'a>,
}

enum Values<'a> {
    Offsets { offsets: &'a [u8], width: usize, bytes: &'a [u8] },
    Views(&'a [u8], Vec<&'a [u8]>),
    Fixed(&'a [u8], usize),
    Indexes(&'a [u8], Integer, Box<Reader<'a>>, usize),
}

impl<'a> Reader<'a> {
    fn at(&self, index: usize) -> Result<&'a [u8], BadItem> {
        let place = self.offset + index;
        if self.validity.is_some_and(|bits| bits[place / 8] >> (place % 8) & 1 == 0) {
            return Err(BadItem::Null(index));
        }
        let value = match &self.values {
            Values::Offsets { offsets, width, bytes } => offset_at(offsets, place, *width)
                .zip(offset_at(offsets, place + 1, *width))
                .and_then(|(from, to)| bytes.get(from..to)),
            Values::Views(views, buffers) => view_at(&views[place * VIEW..][..VIEW], buffers),
            Values::Fixed(values, width) => values.get(place * width..).and_then(|rest| rest.get(..*width)),
            Values::Indexes(numbers, integer, values, count) => {
                let number = integer.at(numbers, place).filter(|number| number < count);
                // A null in the dictionary is a null of each item with its index.
                let value = number.map(|number| values.at(number).map_err(|_| BadItem::Null(index)));
                return value.unwrap_or(Err(BadItem::Layout));
            }
        };
        value.ok_or(BadItem::Layout)
    }
}

fn view_at<'a>(view: &'a [u8], buffers: &[&'a [u8]]) -> Option<&'a [u8]> {
    let length = offset_at(view, 0, 4)?;
    if length <= INLINE {
        return view.get(4..4 + length);
    }
    let (buffer, from) = (offset_at(view, 2, 4)?, offset_at(view, 3, 4)?);
    buffers.get(buffer)?.get(from..from.checked_add(length)?)
}

impl Column for Strings {
    fn len(&self) -> usize {
        self.array.length as usize
    }

    fn group<'a>(&'a self, range: Range<usize>, _text: &'a mut Vec<u8>) -> Result<Vec<&'a [u8]>, BadItem> {
        let reader = self.reader(range.end).map_err(|bad| bad.after(range.start))?;
        range.map(|index| reader.at(index)).collect()
    }

    fn packed(&self, start: usize, limits: Limits) -> Option<Packed<'_>> {
        let width = match self.layout {
            Layout::Offsets(width) | Layout::Fixed(width) if width > 0 && cfg!(target_endian = "little") => width,
            _ => return None,
        };
        let most = if let Layout::Fixed(width) = self.layout { (limits.bytes / width).max(1) } else { usize::MAX };
        let len = limits.items.min(most).min(self.len() - start);
        let Reader { offset, validity, values } = self.reader(start + len).ok()?;
        let first = offset + start;
        if validity.is_some_and(|bits| (first..first + len).any(|place| bits[place / 8] >> (place % 8) & 1 == 0)) {
            return None;
        }
        match values {
            Values::Fixed(values, width) => {
                let data = values.get(first * width..)?.get(..len * width)?;
                Some(Packed { len, packing: Packing::Fixed(width), data })
            }
            Values::Offsets { offsets, bytes, .. } => {
                let offsets = offsets.get(first * width..)?.get(..(len + 1) * width)?;
                let at = |index| offset_at(offsets, index, width);
                let from = at(0)?;
                let mut len = 0;
                let mut to = from;
                // Also checks each offset, so that the items can be read from the chunk.
                while let Some(end) = (offsets.len() > (len + 1) * width).then(|| at(len + 1)) {
                    let end = end.filter(|&end| end >= to)?;
                    if end - from > limits.bytes && len > 0 {
                        break;
                    }
                    (len, to) = (len + 1, end);
                }
                let offsets = &offsets[..(len + 1) * width];
                let packing = if width == 4 { Packing::Offsets(offsets) } else { Packing::Offsets64(offsets) };
                Some(Packed { len, packing, data: bytes.get(from..to)? })
            }
            Values::Views(..) | Values::Indexes(..) => None,
        }
    }
}
