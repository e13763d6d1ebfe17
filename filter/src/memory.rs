//! Memory that a caller may limit, and allocation that may fail. Whatever allocates returns [`Error::OutOfMemory`] if
//! there is no memory.

use crate::error::Error;

/// Decides whether a filter may take this many more bytes, in addition to those admitted before. A function with such a
/// parameter calls it before it takes the bytes, and fails with [`Error::OutOfMemory`] if they are rejected.
pub type Admit<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Asks for `bytes` more, and fails if they are rejected.
#[inline]
pub(crate) fn request(bytes: u64, admit: Admit<'_>) -> Result<(), Error> {
    if admit(bytes) { Ok(()) } else { Err(Error::OutOfMemory) }
}

/// Returns an empty vector with room for `count` elements.
pub fn try_vec<T>(count: usize) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Error::OutOfMemory)?;
    Ok(values)
}

/// Returns a vector of all values, or the first error.
pub(crate) fn try_collect<T, E: From<Error>>(
    results: impl ExactSizeIterator<Item = Result<T, E>>,
) -> Result<Vec<T>, E> {
    let mut values = try_vec(results.len())?;
    for value in results {
        values.push(value?);
    }
    Ok(values)
}

/// Appends parts to bytes: all of them, or none.
pub(crate) fn try_append(bytes: &mut Vec<u8>, parts: &[&[u8]]) -> Result<(), Error> {
    let length = parts.iter().map(|part| part.len()).sum();
    bytes.try_reserve(length).map_err(|_| Error::OutOfMemory)?;
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Ok(())
}
