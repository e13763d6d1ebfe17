//! The errors of operations.

/// The error of an operation on a filter. The filter is unchanged.
///
/// The other errors of the crate convert to it, so that `?` accepts all of them in a function that returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The error rate is not above 0 and below 1.
    InvalidErrorRate,
    /// The capacity is 0.
    InvalidCapacity,
    /// The expansion is 0.
    InvalidExpansion,
    /// The window, or an option that needs a window, is not valid.
    InvalidWindow(InvalidWindow),
    /// These two options of the builder exclude each other.
    Contradiction(&'static str, &'static str),
    /// The memory cannot be allocated or addressed, whatever the operation.
    OutOfMemory,
    /// The filter does not grow, and is at its capacity.
    Full,
    /// The filter is full and cannot grow: its next layer would be one too many or too large, or too many of its items
    /// have nearly the same hash.
    CannotGrow,
    /// The filter does not support removal and counts. It was not built with
    /// [`counting`](crate::FilterBuilder::counting).
    NotCounting,
    /// The filters cannot be merged.
    Merge(MergeError),
    /// The bytes cannot be decoded.
    Decode(DecodeError),
}

/// The reason why a [window](crate::FilterBuilder::window) is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidWindow {
    /// The window is shorter than a millisecond.
    TooShort,
    /// The window is longer than 100 years.
    TooLong,
    /// The number of slices is not from 2 to 64.
    Slices,
    /// `slices` was set without a window or `rolling`.
    SlicesAlone,
    /// `refresh` was set without a window.
    RefreshAlone,
}

impl std::fmt::Display for InvalidWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            InvalidWindow::TooShort => "the window must be at least 1 millisecond",
            InvalidWindow::TooLong => "the window must be at most 100 years",
            InvalidWindow::Slices => "the number of slices must be from 2 to 64",
            InvalidWindow::SlicesAlone => "slices need a window, or a rolling filter",
            InvalidWindow::RefreshAlone => "refreshing needs a window",
        })
    }
}

impl From<MergeError> for Error {
    fn from(error: MergeError) -> Error {
        match error {
            MergeError::OutOfMemory => Error::OutOfMemory,
            error => Error::Merge(error),
        }
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Error {
        match error {
            DecodeError::OutOfMemory => Error::OutOfMemory,
            error => Error::Decode(error),
        }
    }
}

impl From<Interrupted> for Error {
    fn from(interrupted: Interrupted) -> Error {
        interrupted.error
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Error::InvalidWindow(reason) => return reason.fmt(f),
            Error::Contradiction(one, other) => return write!(f, "{one} and {other} cannot be combined"),
            Error::Merge(error) => return error.fmt(f),
            Error::Decode(error) => return error.fmt(f),
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

/// The error of an insertion that stopped before the end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// The number of items that were handled: the filter has these.
    pub handled: usize,
    /// The error of the next item.
    pub error: Error,
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} after {} items", self.error, self.handled)
    }
}

impl std::error::Error for Interrupted {}

/// The error of decoding. An existing filter is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are of a later version of the encoding.
    NewerVersion,
    /// The bytes are truncated, damaged, or no filter.
    Corrupt,
    /// The chunk is not damaged, but belongs to another filter, or to an earlier state of this one.
    Foreign,
    /// The chunk does not start in the filter.
    NoSuchOffset,
    /// The chunk starts in a layer, but does not end in it.
    BeyondLayer,
    /// Chunks are missing, or the filter was changed while they were read.
    Incomplete,
    /// The memory for the filter cannot be allocated, or exceeds the limit.
    OutOfMemory,
}

impl From<Error> for DecodeError {
    /// Returns [`DecodeError::Corrupt`] for an error of another operation: no filter has such content.
    fn from(error: Error) -> DecodeError {
        match error {
            Error::OutOfMemory => DecodeError::OutOfMemory,
            Error::Decode(error) => error,
            _ => DecodeError::Corrupt,
        }
    }
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DecodeError::NewerVersion => "written by a later version",
            DecodeError::Corrupt => "damaged data",
            DecodeError::Foreign => "a chunk of another filter",
            DecodeError::NoSuchOffset => "a chunk that starts in no layer",
            DecodeError::BeyondLayer => "a chunk that ends in no layer",
            DecodeError::Incomplete => "chunks are missing, or the filter was changed while they were read",
            DecodeError::OutOfMemory => "not enough memory",
        })
    }
}

impl std::error::Error for DecodeError {}

/// A parameter that must be equal for filters to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The layout: native, counting or classic.
    Layout,
    /// The false-positive rate that the filters were created for.
    ErrorRate,
    /// The capacity that the filters were created for.
    Capacity,
    /// The expansion: for classic filters its value, for others whether the filter grows.
    Expansion,
    /// The seed of the hash.
    Seed,
    /// The shape of their layers. If only this differs, different versions of the library created the filters.
    Size,
}

/// The error of a merge. The filters are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// The filters differ in this parameter, and possibly in others.
    SourcesDiffer(Mismatch),
    /// Filters that have grown cannot be intersected.
    IntersectedLayers,
    /// Counting filters that may grow cannot be intersected.
    IntersectedGrowing,
    /// Filters that forget cannot be merged.
    MergedWindows,
    /// The union would be too large.
    CannotGrow,
    /// The memory cannot be allocated.
    OutOfMemory,
}

impl From<Error> for MergeError {
    fn from(error: Error) -> MergeError {
        match error {
            Error::CannotGrow => MergeError::CannotGrow,
            Error::Merge(error) => error,
            _ => MergeError::OutOfMemory,
        }
    }
}

impl std::fmt::Display for MergeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MergeError::SourcesDiffer(Mismatch::Layout) => "the filters have different layouts",
            MergeError::SourcesDiffer(Mismatch::ErrorRate) => "the filters have different error rates",
            MergeError::SourcesDiffer(Mismatch::Capacity) => "the filters have different capacities",
            MergeError::SourcesDiffer(Mismatch::Expansion) => "the filters have different expansions",
            MergeError::SourcesDiffer(Mismatch::Seed) => "the filters have different seeds",
            MergeError::SourcesDiffer(Mismatch::Size) => "the filters have layers of different shapes",
            MergeError::IntersectedLayers => "filters that have grown cannot be intersected",
            MergeError::IntersectedGrowing => "counting filters that may grow cannot be intersected",
            MergeError::MergedWindows => "filters that forget cannot be merged",
            MergeError::CannotGrow => "the union would be too large",
            MergeError::OutOfMemory => "not enough memory",
        })
    }
}

impl std::error::Error for MergeError {}
