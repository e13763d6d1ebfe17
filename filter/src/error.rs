//! Why an operation failed.

/// Why an operation on a filter failed. The filter is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The error rate is not above 0 and below 1.
    InvalidErrorRate,
    /// The capacity is 0.
    InvalidCapacity,
    /// The expansion is 0.
    InvalidExpansion,
    /// The memory cannot be allocated or addressed.
    OutOfMemory,
    /// The filter does not grow, and holds as many items as it was created for.
    Full,
    /// The filter is full, and its next layer would be one too many, or too large.
    CannotGrow,
    /// The filter does not support removal and counts: it was not built with
    /// [`counting`](crate::FilterBuilder::counting).
    NotCounting,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Error::InvalidErrorRate => "the error rate must be above 0 and below 1",
            Error::InvalidCapacity => "the capacity must be at least 1",
            Error::InvalidExpansion => "the expansion must be at least 1",
            Error::OutOfMemory => "not enough memory",
            Error::Full => "the filter is full",
            Error::CannotGrow => "the filter is full and cannot grow any further",
            Error::NotCounting => "the filter was not created for removal and counts",
        })
    }
}

impl std::error::Error for Error {}

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
