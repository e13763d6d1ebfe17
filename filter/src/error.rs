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
    /// The window or its slices are out of range, or a filter that is to be rolling is to grow as well.
    InvalidWindow,
    /// The memory cannot be allocated or addressed.
    OutOfMemory,
    /// The filter does not grow, and holds as many items as it was created for.
    Full,
    /// The filter is full, and cannot have more: its next layer would be one too many, or too large, or too many of its
    /// items have nearly the same hash.
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
            Error::InvalidWindow => "the window must have a millisecond to a hundred years, in 2 to 64 slices, and one that rolls cannot grow",
            Error::OutOfMemory => "not enough memory",
            Error::Full => "the filter is full",
            Error::CannotGrow => "the filter is full and cannot grow any further",
            Error::NotCounting => "the filter was not created for removal and counts",
        })
    }
}

impl std::error::Error for Error {}

/// Why not all items of a batch were inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// How many were handled.
    pub handled: usize,
    /// What was wrong with the next.
    pub error: Error,
}

/// Why bytes cannot be decoded. Nothing is lost: what was there before still is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// They are of a later version of the encoding.
    NewerVersion,
    /// They are not what was written: truncated, damaged, or something else.
    Corrupt,
    /// The chunk is intact, but belongs to another filter, or to an earlier state of this one.
    Foreign,
    /// The chunk's place is not in the filter.
    NoSuchOffset,
    /// The chunk starts in a layer, and does not end in it.
    BeyondLayer,
    /// The memory for them cannot be allocated, or exceeds the limit.
    OutOfMemory,
}

impl From<Error> for DecodeError {
    fn from(_: Error) -> DecodeError {
        DecodeError::OutOfMemory
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
            DecodeError::OutOfMemory => "not enough memory",
        })
    }
}

impl std::error::Error for DecodeError {}

/// What filters must agree in to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Native, counting or classic.
    Layout,
    /// The false-positive rate that was asked for.
    ErrorRate,
    /// The capacity that the filters were created for.
    Capacity,
    /// That they grow, or, for classic filters, how fast.
    Expansion,
    /// The seed of the hash.
    Seed,
    /// The shapes of their parts. If all else agrees, different versions of the library created them.
    Size,
}

/// Why filters cannot be merged. They are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// They differ in this, and maybe in more.
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
            MergeError::SourcesDiffer(Mismatch::Size) => "the filters have parts of different shapes",
            MergeError::IntersectedLayers => "filters that have grown cannot be intersected",
            MergeError::IntersectedGrowing => "counting filters that may grow cannot be intersected",
            MergeError::MergedWindows => "filters that forget cannot be merged",
            MergeError::CannotGrow => "the union would be too large",
            MergeError::OutOfMemory => "not enough memory",
        })
    }
}

impl std::error::Error for MergeError {}
