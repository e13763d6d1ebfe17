//! Memory that may be refused.

use crate::error::Error;

/// Asks whether so many bytes may be taken, in addition to those of earlier questions.
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
