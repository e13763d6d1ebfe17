//! The errors of operations.

use std::fmt;

/// Declares an error, with the text of each value.
macro_rules! error {
    (
        $(#[$attribute:meta])*
        $name:ident {
            $($(#[$doc:meta])* $value:ident $(($($part:ident: $type:ty),*))? => $text:expr,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $value $(($($type),*))?,)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($name::$value $(($($part),*))? => write!(f, "{}", $text),)*
                }
            }
        }

        impl std::error::Error for $name {}
    };
}

error! {
    /// The error of an operation on a filter. The filter is unchanged.
    ///
    /// The other errors of the crate convert to it, so that `?` accepts all of them in a function that returns it.
    Error {
        /// The error rate is not above 0 and below 1.
        InvalidErrorRate => "the error rate must be above 0 and below 1",
        /// The capacity is 0.
        InvalidCapacity => "the capacity must be at least 1",
        /// The expansion is 0.
        InvalidExpansion => "the expansion must be at least 1",
        /// The window, or an option that needs a window, is not valid.
        InvalidWindow(reason: InvalidWindow) => reason,
        /// These two options of the builder exclude each other.
        Contradiction(one: &'static str, other: &'static str) => format_args!("{one} and {other} cannot be combined"),
        /// The memory cannot be allocated or addressed, whatever the operation.
        OutOfMemory => "not enough memory",
        /// The filter does not grow, and is at its capacity.
        Full => "the filter is full",
        /// The filter is full and cannot grow: its next layer would be one too many or too large, or too many of its
        /// items have nearly the same hash.
        CannotGrow => "the filter is full and cannot grow any further",
        /// The filter does not support removal and counts. It was not built with
        /// [`counting`](crate::FilterBuilder::counting).
        NotCounting => "the filter was not created for removal and counts",
        /// The filter cannot be folded: it is not a native one. Filters that count or forget, cuckoo filters and those
        /// of other projects' layouts have no blocks.
        CannotFold => "only native filters can be folded",
        /// No copy can follow the filter: it counts or forgets, or is a cuckoo filter, so that other changes than
        /// additions can remove items.
        CannotFollow => "filters that count or forget cannot be followed",
        /// The filters cannot be merged.
        Merge(error: MergeError) => error,
        /// The bytes cannot be decoded.
        Decode(error: DecodeError) => error,
    }
}

error! {
    /// The reason why a [window](crate::FilterBuilder::window) is not valid.
    InvalidWindow {
        /// The window is shorter than a millisecond.
        TooShort => "the window must be at least 1 millisecond",
        /// The window is longer than 100 years.
        TooLong => "the window must be at most 100 years",
        /// The number of slices is not from 2 to 64.
        Slices => "the number of slices must be from 2 to 64",
        /// `slices` was set without a window or `rolling`.
        SlicesAlone => "slices need a window, or a rolling filter",
        /// `refresh` was set without a window.
        RefreshAlone => "refreshing needs a window",
    }
}

error! {
    /// The error of decoding. An existing filter is unchanged.
    DecodeError {
        /// The bytes are of a later version of the encoding.
        NewerVersion => "written by a later version",
        /// The bytes are truncated, damaged, or no filter.
        Corrupt => "damaged data",
        /// The chunk is not damaged, but belongs to another filter, or to an earlier state of this one.
        Foreign => "a chunk of another filter",
        /// The chunk does not start in the filter.
        NoSuchOffset => "a chunk that starts in no layer",
        /// The chunk starts in a layer, but does not end in it.
        BeyondLayer => "a chunk that ends in no layer",
        /// Chunks are missing, or the filter was changed while they were read.
        Incomplete => "chunks are missing, or the filter was changed while they were read",
        /// The memory for the filter cannot be allocated, or exceeds the limit.
        OutOfMemory => "not enough memory",
    }
}

/// Returns [`DecodeError::Corrupt`] unless what was decoded `is_sound`.
pub(crate) fn ensure(is_sound: bool) -> Result<(), DecodeError> {
    if is_sound { Ok(()) } else { Err(DecodeError::Corrupt) }
}

error! {
    /// The error of a merge. The filters are unchanged.
    MergeError {
        /// The filters differ in this parameter, and possibly in others.
        SourcesDiffer(parameter: Mismatch) => format_args!("the filters have {parameter}"),
        /// Filters that have grown cannot be intersected.
        IntersectedLayers => "filters that have grown cannot be intersected",
        /// Counting filters that may grow cannot be intersected.
        IntersectedGrowing => "counting filters that may grow cannot be intersected",
        /// Filters that forget cannot be merged.
        MergedWindows => "filters that forget cannot be merged",
        /// Cuckoo filters cannot be merged.
        MergedCuckoo => "cuckoo filters cannot be merged",
        /// Valkey filters cannot be merged.
        MergedValkey => "valkey filters cannot be merged",
        /// The union would be too large.
        CannotGrow => "the union would be too large",
        /// The memory cannot be allocated.
        OutOfMemory => "not enough memory",
    }
}

error! {
    /// A parameter that must be equal for filters to be merged, and is not.
    Mismatch {
        /// The layout, which each kind of filter has of its own.
        Layout => "different layouts",
        /// The false-positive rate that the filters were created for.
        ErrorRate => "different error rates",
        /// The capacity that the filters were created for.
        Capacity => "different capacities",
        /// The expansion: for classic filters its value, for others whether the filter grows.
        Expansion => "different expansions",
        /// The seed of the hash.
        Seed => "different seeds",
        /// The shape of their layers. If only this differs, different versions of the library created the filters.
        Size => "layers of different shapes",
    }
}

/// The error of an insertion that stopped before the end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// The number of items that were handled: the filter has these.
    pub handled: usize,
    /// The error of the next item.
    pub error: Error,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {} items", self.error, self.handled)
    }
}

impl std::error::Error for Interrupted {}

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

impl From<Error> for MergeError {
    fn from(error: Error) -> MergeError {
        match error {
            Error::CannotGrow => MergeError::CannotGrow,
            Error::Merge(error) => error,
            _ => MergeError::OutOfMemory,
        }
    }
}
