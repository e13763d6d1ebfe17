//! Memory that a caller may limit, and allocation that may fail.

use crate::error::Error;

/// Decides whether a filter may take this many more bytes, in addition to those admitted before.
pub type Admit<'a> = &'a mut dyn FnMut(u64) -> bool;

/// Returns an empty vector with room for `count` elements.
///
/// # Errors
///
/// [`Error::OutOfMemory`] if the memory cannot be allocated.
pub fn try_vec<T>(count: usize) -> Result<Vec<T>, Error> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| Error::OutOfMemory)?;
    Ok(values)
}
