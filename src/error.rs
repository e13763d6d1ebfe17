//! What a client can be told went wrong, and in which words.
//!
//! The words are RedisBloom's where it has any, to the letter (also where it forgot the `ERR`), for there are clients that
//! look at them.

use std::ffi::CStr;

use super::memory::Limit;
use oxbloom_filter::codec::DecodeError;
use oxbloom_filter::merge::{Parameter, Refusal};

/// The text of an error for lack of memory: RedisBloom's words, then the limit that was exceeded.
macro_rules! no_memory {
    ($words:literal, $limit:expr) => {
        match $limit {
            Limit::Address => c_str(concat!($words, ": more than can be addressed\0")),
            Limit::Filter => c_str(concat!($words, ": over bf.filter-memory-limit\0")),
            Limit::Server => c_str(concat!($words, ": over maxmemory\0")),
            Limit::System => c_str(concat!($words, ": the system has no more\0")),
        }
    };
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    WrongArity,
    WrongType,
    NotFound,
    Exists,
    BadErrorRate,
    RateRange,
    BadCapacity,
    CapacityRange,
    NoExpansion,
    BadExpansion,
    ExpansionRange,
    NonscalingExpands,
    BadSeed,
    BadLayout,
    LikeAlone,
    ClassicSeed,
    ClassicCounting,
    OtherSeed,
    OtherLayout,
    OtherCounting,
    NotCounting,
    Syntax,
    BadKeyCount,
    TooManyKeys,
    Differ(Parameter),
    IntersectedLayers,
    CountingLayers,
    InsertBadCapacity,
    InsertBadErrorRate,
    InsertBadExpansion,
    InsertBadSeed,
    InsertBadLayout,
    InsertRange,
    UnknownArgument,
    RepeatedArgument,
    UnknownInformation,
    Full,
    CannotCreate,
    CannotGrow,
    NoMemoryToCreate(Limit),
    NoMemoryToGrow(Limit),
    NoMemory(Limit),
    ScanIterator,
    LoadIterator,
    BadData,
    NewerData,
    ForeignChunk,
    NoSuchOffset,
    ChunkTooBig,
    Internal,
}

impl Error {
    /// The reply, without the leading minus.
    pub fn text(self) -> &'static CStr {
        match self {
            // The server words this itself, with the command's name.
            Error::WrongArity => c"ERR wrong number of arguments",
            Error::WrongType => c"WRONGTYPE Operation against a key holding the wrong kind of value",
            Error::NotFound => c"ERR not found",
            Error::Exists => c"ERR item exists",
            Error::BadErrorRate => c"ERR bad error rate",
            Error::RateRange => c"ERR (0 < error rate range < 1) ",
            Error::BadCapacity => c"ERR bad capacity",
            Error::CapacityRange => c"ERR (capacity should be larger than 0)",
            Error::NoExpansion => c"ERR no expansion",
            Error::BadExpansion => c"ERR bad expansion",
            Error::ExpansionRange => c"ERR expansion should be greater or equal to 1",
            Error::NonscalingExpands => c"Nonscaling filters cannot expand",
            Error::BadSeed => c"ERR bad seed",
            Error::BadLayout => c"ERR bad layout",
            Error::ClassicSeed => c"ERR classic filters have no seed",
            Error::ClassicCounting => c"ERR classic filters do not count",
            Error::LikeAlone => c"ERR LIKE takes one key and no options: BF.RESERVE key LIKE other",
            Error::OtherSeed => c"ERR the filter exists and has another SEED",
            Error::OtherLayout => c"ERR the filter exists and has another LAYOUT",
            Error::OtherCounting => c"ERR the filter exists and was created without COUNTING",
            Error::NotCounting => {
                c"ERR only filters that were made with COUNTING remove and count items: BF.RESERVE key error_rate capacity COUNTING"
            }
            Error::Syntax => c"ERR syntax error",
            Error::BadKeyCount => c"ERR numkeys should be greater than 0",
            Error::TooManyKeys => c"ERR Number of keys can't be greater than number of args",
            Error::Differ(parameter) => difference(parameter),
            Error::IntersectedLayers => {
                c"ERR only filters of one layer can be intersected: of those that grew, an item may be in a different layer of each"
            }
            Error::CountingLayers => {
                c"ERR only counting filters of one layer can be merged: items could not be removed from those that grew any more"
            }
            Error::InsertBadCapacity => c"Bad capacity",
            Error::InsertBadErrorRate => c"Bad error rate",
            Error::InsertBadExpansion => c"Bad expansion",
            Error::InsertBadSeed => c"Bad seed",
            Error::InsertBadLayout => c"Bad layout",
            Error::InsertRange => c"Bad argument received",
            Error::UnknownArgument => c"Unknown argument received",
            Error::RepeatedArgument => c"Repeated argument received",
            Error::UnknownInformation => c"Invalid information value",
            Error::Full => c"ERR non scaling filter is full",
            Error::CannotCreate => c"ERR could not create filter",
            Error::CannotGrow => c"ERR problem inserting into filter",
            Error::NoMemoryToCreate(limit) => no_memory!("ERR Insufficient memory to create filter", limit),
            Error::NoMemoryToGrow(limit) => no_memory!("ERR Insufficient memory to grow filter", limit),
            Error::NoMemory(limit) => no_memory!("ERR Insufficient memory", limit),
            Error::ScanIterator => c"Second argument must be numeric",
            Error::LoadIterator => c"ERR Second argument must be numeric",
            Error::BadData => c"ERR received bad data",
            Error::NewerData => c"ERR received data of a later version",
            Error::ForeignChunk => c"ERR received a chunk of another filter, or one made before the last change",
            Error::NoSuchOffset => c"ERR invalid offset - no link found",
            Error::ChunkTooBig => c"ERR invalid chunk - Too big for current filter",
            Error::Internal => c"ERR internal error",
        }
    }
}

impl Error {
    /// The limit that was exceeded, as the text of an error for lack of memory names it.
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Error::NoMemoryToCreate(_) | Error::NoMemoryToGrow(_) | Error::NoMemory(_) => {
                Some(self.text().to_str().ok()?.split_once(": ")?.1)
            }
            _ => None,
        }
    }
}

/// Why something was refused, as INFO counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The filter is full, and does not grow or cannot.
    Full,
    /// There was no memory, or it was not granted.
    Memory,
    /// What was loaded is damaged, or not for this filter, or of a later version.
    Data,
    /// The filters do not fit together, or the filter is of another kind than the command needs.
    Mismatch,
    /// The key is not there, or is there already, or holds something else.
    Key,
    /// The command is not one that can be understood.
    Syntax,
}

impl Reason {
    pub const ALL: [Reason; 6] =
        [Reason::Full, Reason::Memory, Reason::Data, Reason::Mismatch, Reason::Key, Reason::Syntax];

    pub const fn name(self) -> &'static CStr {
        match self {
            Reason::Full => c"refused_full",
            Reason::Memory => c"refused_memory",
            Reason::Data => c"refused_data",
            Reason::Mismatch => c"refused_mismatch",
            Reason::Key => c"refused_key",
            Reason::Syntax => c"refused_syntax",
        }
    }
}

impl Error {
    /// What INFO counts it as: a mistake of ours is no refusal.
    pub fn reason(self) -> Option<Reason> {
        Some(match self {
            Error::Full | Error::CannotGrow => Reason::Full,
            Error::NoMemoryToCreate(_) | Error::NoMemoryToGrow(_) | Error::NoMemory(_) => Reason::Memory,
            Error::BadData | Error::NewerData | Error::ForeignChunk | Error::NoSuchOffset | Error::ChunkTooBig => {
                Reason::Data
            }
            Error::Differ(_)
            | Error::IntersectedLayers
            | Error::CountingLayers
            | Error::OtherSeed
            | Error::OtherLayout
            | Error::OtherCounting
            | Error::NotCounting => Reason::Mismatch,
            Error::WrongType | Error::NotFound | Error::Exists => Reason::Key,
            Error::Internal => return None,
            Error::WrongArity
            | Error::BadErrorRate
            | Error::RateRange
            | Error::BadCapacity
            | Error::CapacityRange
            | Error::NoExpansion
            | Error::BadExpansion
            | Error::ExpansionRange
            | Error::NonscalingExpands
            | Error::BadSeed
            | Error::BadLayout
            | Error::LikeAlone
            | Error::ClassicSeed
            | Error::ClassicCounting
            | Error::Syntax
            | Error::BadKeyCount
            | Error::TooManyKeys
            | Error::InsertBadCapacity
            | Error::InsertBadErrorRate
            | Error::InsertBadExpansion
            | Error::InsertBadSeed
            | Error::InsertBadLayout
            | Error::InsertRange
            | Error::UnknownArgument
            | Error::RepeatedArgument
            | Error::UnknownInformation
            | Error::CannotCreate
            | Error::ScanIterator
            | Error::LoadIterator => Reason::Syntax,
        })
    }
}

impl Error {
    /// A failure to read bytes, which exceeded `limit` if it was for lack of memory.
    pub fn decoding(error: DecodeError, limit: Limit) -> Error {
        match error {
            DecodeError::NewerVersion => Error::NewerData,
            DecodeError::Corrupt => Error::BadData,
            DecodeError::Foreign => Error::ForeignChunk,
            DecodeError::NoSuchOffset => Error::NoSuchOffset,
            DecodeError::BeyondLayer => Error::ChunkTooBig,
            DecodeError::OutOfMemory => Error::NoMemoryToCreate(limit),
        }
    }

    /// A failure to create a filter, which exceeded `limit` if it was for lack of memory.
    pub fn creating(error: oxbloom_filter::Error, limit: Limit) -> Error {
        match error {
            oxbloom_filter::Error::OutOfMemory => Error::NoMemoryToCreate(limit),
            oxbloom_filter::Error::Full | oxbloom_filter::Error::CannotGrow => Error::CannotCreate,
        }
    }

    /// A failure to merge filters, `no_memory` if it was that.
    pub fn merging(refusal: Refusal, no_memory: Error) -> Error {
        match refusal {
            Refusal::Differ(parameter) => Error::Differ(parameter),
            Refusal::IntersectedLayers => Error::IntersectedLayers,
            Refusal::CountingLayers => Error::CountingLayers,
            Refusal::OutOfMemory => no_memory,
        }
    }

    /// A failure to add a layer to a filter, which exceeded `limit` if it was for lack of memory.
    pub fn growing(error: oxbloom_filter::Error, limit: Limit) -> Error {
        match error {
            oxbloom_filter::Error::OutOfMemory => Error::NoMemoryToGrow(limit),
            oxbloom_filter::Error::Full => Error::Full,
            oxbloom_filter::Error::CannotGrow => Error::CannotGrow,
        }
    }
}

/// A text that ends with its only NUL.
const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"ERR internal error",
    }
}

/// That filters cannot be merged because they differ, and how to make such as can be.
fn difference(parameter: Parameter) -> &'static CStr {
    match parameter {
        Parameter::Layout => c"ERR the filters differ in their layout: make those to be merged with BF.RESERVE key LIKE other",
        Parameter::ErrorRate => {
            c"ERR the filters differ in their error rate: make those to be merged with BF.RESERVE key LIKE other"
        }
        Parameter::Capacity => {
            c"ERR the filters differ in their capacity: make those to be merged with BF.RESERVE key LIKE other"
        }
        Parameter::Expansion => {
            c"ERR the filters differ in their expansion: make those to be merged with BF.RESERVE key LIKE other"
        }
        Parameter::Seed => c"ERR the filters differ in their seed: make those to be merged with BF.RESERVE key LIKE other",
        Parameter::Size => {
            c"ERR the filters differ in the size of their layers: make those to be merged with BF.RESERVE key LIKE other"
        }
    }
}
