//! The errors that clients get, and their texts.
//!
//! Where RedisBloom has an error, the text is RedisBloom's to the letter, even if it lacks the `ERR`: clients compare
//! these texts. In valkey-bloom's [dialect](Dialect), they are valkey-bloom's.

use std::borrow::Cow;
use std::ffi::{CStr, CString};

use oxbloom_filter::{DecodeError, MergeError, Mismatch};

use crate::family::Dialect;
use crate::names::{named, names};
use crate::server::Args;

/// The limit that a request for memory exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The memory that any machine can address.
    Address,
    /// `bf.filter-memory-limit`.
    Filter,
    /// `maxmemory`.
    Server,
    /// The memory that the allocator can get from the system.
    System,
}

/// Declares the reasons for rejections, each with its counter in INFO, and the errors for each reason: `Name => text;`,
/// or `Name(value: Type) => text;` where the text depends on a value. `Name => text, valkey_bloom: text;` has another
/// text in valkey-bloom's dialect.
macro_rules! errors {
    ($($(#[$doc:meta])* $reason:ident, $figure:literal => {
        $($name:ident $(($value:ident: $type:ty))? => $text:expr $(, valkey_bloom: $other:expr)?;)*
    })*) => {
        /// The reason for a rejection, as INFO counts it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($(#[$doc])* $reason,)*
        }

        impl Reason {
            pub(crate) const ALL: [Reason; [$($figure),*].len()] = [$(Reason::$reason),*];

            /// Returns the name of the counter.
            pub(crate) const fn figure(self) -> &'static CStr {
                match self {
                    $(Reason::$reason => $figure,)*
                }
            }
        }

        /// The reason why a command failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Error {
            $($($name $(($type))?,)*)*
            /// A bug, such as a panic. It is counted separately.
            Internal,
        }

        impl Error {
            /// Returns the text of the reply in a dialect, without the leading minus, and with the usual names of
            /// commands and settings: [`named`] shows it with those on this server.
            fn text_in(self, dialect: Dialect) -> &'static CStr {
                match self {
                    $($(Error::$name $(($value))? => match dialect {
                        $(Dialect::ValkeyBloom => $other,)?
                        _ => $text,
                    },)*)*
                    Error::Internal => c"ERR internal error: see the log, and report it",
                }
            }

            /// Returns the reason, or `None` for an internal error.
            pub(crate) fn reason(self) -> Option<Reason> {
                match self {
                    $($(Error::$name { .. } => Some(Reason::$reason),)*)*
                    Error::Internal => None,
                }
            }
        }
    };
}

/// Returns the text of an error for lack of memory: RedisBloom's text, then the limit that was exceeded.
macro_rules! no_memory {
    ($words:literal, $limit:expr) => {
        match $limit {
            Limit::Address => {
                c_str(concat!($words, ": more than can be addressed, choose a smaller capacity or expansion\0"))
            }
            Limit::Filter => {
                c_str(concat!($words, ": over bf.filter-memory-limit, raise the limit or choose a smaller capacity\0"))
            }
            Limit::Server => c_str(concat!($words, ": over maxmemory, raise it or delete keys\0")),
            Limit::System => c_str(concat!($words, ": the system has no more, add memory or delete keys\0")),
        }
    };
}

errors! {
    /// The filter is full, and does not grow or cannot.
    Full, c"rejected_full" => {
        Full => c"ERR non scaling filter is full";
        CannotGrow => c"ERR problem inserting into filter", valkey_bloom: c"ERR false positive degrades to 0 on scale out";
        CuckooFull => c"Filter is full";
        MaxExpansions => c"Maximum expansions reached";
        UnionTooLarge => c"ERR the union would be too large: create the filters with another SEED";
    }
    /// There was no memory, or a limit did not allow it.
    Memory, c"rejected_memory" => {
        NoMemoryToCreate(limit: Limit) => no_memory!("ERR Insufficient memory to create filter", limit), valkey_bloom: valkey_memory(limit);
        NoMemoryToGrow(limit: Limit) => no_memory!("ERR Insufficient memory to grow filter", limit), valkey_bloom: valkey_memory(limit);
        NoMemory(limit: Limit) => no_memory!("ERR Insufficient memory", limit);
        MergeTooLong => c"ERR this merge would stop the server for too long: over bf.merge-limit, raise the limit or merge on another server";
    }
    /// The loaded data are damaged, belong to another filter, or come from a later version.
    Data, c"rejected_data" => {
        BadData => c"ERR received bad data", valkey_bloom: c"ERR bloom object decoding failed";
        NewerData => c"ERR received data of a later version: upgrade the module on this server", valkey_bloom: c"ERR bloom object decoding failed. Unsupported version";
        ForeignChunk => c"ERR received a chunk of another filter, or one from before its last write: copy again from iterator 0";
        NoSuchOffset => c"ERR invalid offset - no link found";
        ChunkTooBig => c"ERR invalid chunk - Too big for current filter";
        InvalidHeader => c"Invalid header";
        CannotCreateCuckoo => c"Couldn't create filter!";
        CannotLoadChunk => c"Couldn't load chunk!";
    }
    /// The filters cannot be merged, or the filter is not of the kind that the command needs.
    Mismatch, c"rejected_mismatch" => {
        OtherSeed => c"ERR the filter exists with another SEED: leave out SEED, or use another key";
        OtherKind => c"ERR the filter exists without COUNTING, or with another LAYOUT: leave out this option, or use another key";
        OtherLayout => c"ERR the filter exists with another LAYOUT: leave out LAYOUT, or use another key";
        OtherWindow => c"ERR the filter exists with another WINDOW, SLICES, REFRESH or ROLLING: leave these out, or use another key";
        TtlWithoutWindow => c"ERR TTL needs a filter with WINDOW and without ROLLING: leave out TTL, or use another key";
        MergedValkey => c"ERR cannot merge filters with LAYOUT valkey: add all items to one filter";
        MergedWindows => c"ERR cannot merge filters with WINDOW or ROLLING: add all items to one filter";
        NotFollowable => c"ERR cannot follow filters with COUNTING, WINDOW or ROLLING, whose items can go: look items up on the server";
        ChangesGone => c"ERR changes are gone: copy the filter again";
        NotFoldable => c"ERR cannot fold this filter: only filters with the native layout and without COUNTING, WINDOW and ROLLING have blocks";
        SourceChanged => c"ERR the source changed during the import: import again without CURSOR, while no client writes to it";
        ImportDiffers => c"ERR the imported filter differs from the source, and was removed: report it";
        NotCounting => c"ERR this filter does not support BF.DEL and BF.COUNT: create it with BF.RESERVE key error_rate capacity COUNTING";
        SourcesDiffer(parameter: Mismatch) => merge_mismatch(parameter);
        IntersectedLayers => c"ERR cannot intersect filters that have grown: create them with a larger capacity";
        IntersectedGrowing => c"ERR cannot intersect counting filters that may grow: create them with NONSCALING";
    }
    /// The key does not exist, already exists, or holds another type.
    Key, c"rejected_key" => {
        WrongType => c"WRONGTYPE Operation against a key holding the wrong kind of value";
        NotFound => c"ERR not found";
        NothingToRemoveFrom => c"Not found";
        NothingToCompact => c"Cuckoo filter was not found";
        Exists => c"ERR item exists";
        BusyKey => c"BUSYKEY Target key name already exists.";
        NoOtherModule => c"ERR no other module on this server has filters to import: load RedisBloom beside this module";
        NoImport => c"ERR no import is at this cursor: start again without CURSOR";
        ImportPermission => c"NOPERM an import also needs permission to read and write keys named {newkey}:import:*";
        ImportSlot => c"ERR in a cluster, a new key with '}' needs a hash tag: import to another key of this slot, and rename it";
        EmptySource => c"ERR the source is empty: create an empty filter instead";
    }
    /// The command has invalid arguments.
    Syntax, c"rejected_syntax" => {
        // The server replies with its own text, which has the command's name.
        WrongArity => c"ERR wrong number of arguments";
        BadErrorRate => c"ERR bad error rate";
        RateRange => c"ERR (0 < error rate range < 1) ", valkey_bloom: c"ERR (0 < error rate range < 1)";
        BadCapacity => c"ERR bad capacity";
        CapacityRange => c"ERR (capacity should be larger than 0)";
        NoExpansion => c"ERR no expansion", valkey_bloom: c"ERROR";
        BadExpansion => c"ERR bad expansion";
        ExpansionRange => c"ERR expansion should be greater or equal to 1", valkey_bloom: c"ERR bad expansion";
        NonscalingExpands => c"Nonscaling filters cannot expand";
        BadSeed => c"ERR bad seed: SEED must be a whole number from 0 to 18446744073709551615", valkey_bloom: c"ERR invalid seed";
        BadTightening => c"ERR bad tightening ratio";
        TighteningRange => c"ERR (0 < tightening ratio range < 1)";
        ScaleMemory => c"ERR provided VALIDATESCALETO causes bloom object to exceed memory limit";
        ScaleRate => c"ERR provided VALIDATESCALETO causes false positive to degrade to 0";
        NonscalingScales => c"ERR cannot use NONSCALING and VALIDATESCALETO options together";
        BadLayout => c"ERR bad layout: LAYOUT must be native, classic or valkey";
        BadCuckooLayout => c"ERR bad layout: LAYOUT must be native or classic";
        BadExpireTime => c"ERR invalid expire time: EX, PX, EXAT and PXAT must be a whole number above 0";
        WindowRange => c"ERR bad window: WINDOW must be seconds, from 1 to 3155760000 (100 years)";
        SlicesRange => c"ERR bad slices: SLICES must be a whole number from 2 to 64";
        NoWindow => c"ERR SLICES needs WINDOW or ROLLING, and REFRESH needs WINDOW: add the missing option";
        RollingGrows => c"ERR a filter with ROLLING never grows: leave out EXPANSION and NONSCALING";
        TwoKinds => c"ERR COUNTING, LAYOUT classic or valkey, and WINDOW or ROLLING exclude each other: leave out all but one";
        TtlRange => c"ERR bad TTL: TTL must be seconds, from 1 to the filter's WINDOW";
        BadTime => c"ERR bad time: AT must be milliseconds since 1970, not in the future";
        LikeAlone => c"ERR LIKE needs one key and no options: BF.RESERVE key LIKE other";
        ClassicRate => c"ERR classic cuckoo filters have no error rate: leave out ERROR, or add LAYOUT native";
        ValkeySeed => c"ERR valkey filters have a seed of 32 bytes: leave out SEED, or add LAYOUT native", valkey_bloom: c"ERR invalid seed";
        ClassicSeed => c"ERR classic filters have no seed: leave out SEED, or add LAYOUT native";
        Syntax => c"ERR syntax error";
        CuckooCapacity => c"Capacity must be at least (BucketSize * 2)";
        BadBucketSize => c"Couldn't parse BUCKETSIZE";
        BucketSizeRange => c"BUCKETSIZE: value must be an integer between 1 and 255, inclusive.";
        BadMaxIterations => c"Couldn't parse MAXITERATIONS";
        MaxIterationsRange => c"MAXITERATIONS: value must be an integer between 1 and 65535, inclusive.";
        BadCuckooExpansion => c"Couldn't parse EXPANSION";
        CuckooExpansionRange => c"EXPANSION: value must be an integer between 0 and 32768, inclusive.";
        InvalidPosition => c"Invalid position";
        BadKeyCount => c"ERR numkeys should be greater than 0";
        TooManyKeys => c"ERR Number of keys can't be greater than number of args";
        InsertBadCapacity => c"Bad capacity", valkey_bloom: c"ERR bad capacity";
        InsertBadErrorRate => c"Bad error rate", valkey_bloom: c"ERR bad error rate";
        InsertBadExpansion => c"Bad expansion", valkey_bloom: c"ERR bad expansion";
        InsertCapacityRange => c"Bad argument received", valkey_bloom: c"ERR (capacity should be larger than 0)";
        InsertRateRange => c"Bad argument received", valkey_bloom: c"ERR (0 < error rate range < 1)";
        InsertExpansionRange => c"Bad argument received", valkey_bloom: c"ERR bad expansion";
        // The positions have 32 bits, so that results of commands still fit into a register.
        // RedisBloom's BF.INSERT has this error. The log also names the argument, which is at this position.
        UnknownArgument(_position: u32) => c"Unknown argument received", valkey_bloom: c"ERR unknown argument received";
        // RedisBloom's BF.RESERVE ignores unknown options, so no client knows a text: the reply names the argument.
        UnknownOption(_position: u32) => c"ERR unknown option", valkey_bloom: c"ERROR";
        RepeatedArgument => c"ERR repeated argument: give each option once";
        NoPacking => c"ERR the items must be packed: end the command with FIXED width items, OFFSETS offsets items or LINES items";
        PackedWidth => c"ERR bad width: FIXED must be the number of bytes of an item, from 1";
        PackedRemainder => c"ERR the last item is too short: all items of FIXED have one width";
        BadOffsets => c"ERR bad offsets: OFFSETS must be little-endian integers of 32 bits (OFFSETS64: of 64), one more than there are items, that never fall and span all items";
        TooManyItems => c"ERR too many items: at most 16777216 in a packed command";
        UnknownInformation => c"Invalid information value", valkey_bloom: c"ERR invalid information value";
        CannotCreate => c"ERR could not create filter";
        BadImportCursor => c"ERR bad cursor: CURSOR must be the cursor of the last reply";
        ScanCursor => c"Second argument must be numeric";
        BadChangesCursor => c"ERR bad cursor: SINCE must be the cursor of the last reply";
        ChangesRange => c"ERR bad count: COUNT must be a whole number from 1 to 65536";
        LoadCursor => c"ERR Second argument must be numeric";
    }
}

/// Returns valkey-bloom's text for lack of memory, or the server's own, with which a server that has reached
/// `maxmemory` rejects valkey-bloom's commands.
fn valkey_memory(limit: Limit) -> &'static CStr {
    match limit {
        Limit::Server => c"OOM command not allowed when used memory > 'maxmemory'.",
        Limit::Address | Limit::Filter | Limit::System => c"ERR operation exceeds bloom object memory limit",
    }
}

impl Error {
    /// Returns the text of the error in our own dialect, for the log.
    pub(crate) fn text(self) -> &'static CStr {
        self.text_in(Dialect::RedisBloom)
    }

    /// Returns the text of the reply to a command with these arguments.
    pub(crate) fn reply(self, args: Args, dialect: Dialect) -> Cow<'static, CStr> {
        let owned = |text: String| CString::new(text).map_or(Cow::Borrowed(self.text()), Cow::Owned);
        match self {
            Error::UnknownOption(position) if dialect == Dialect::RedisBloom => {
                owned(format!("ERR unknown option '{}': correct or remove it", args.at(position as usize).shown()))
            }
            _ if names().are_usual() => Cow::Borrowed(self.text_in(dialect)),
            _ => owned(named(&self.text_in(dialect).to_string_lossy()).to_string()),
        }
    }

    /// Returns the position of the argument that is no option of the command, if this is the error.
    pub(crate) fn unknown_argument(self) -> Option<usize> {
        match self {
            Error::UnknownArgument(position) | Error::UnknownOption(position) => Some(position as usize),
            _ => None,
        }
    }

    /// Returns the limit that was exceeded, if this is an error for lack of memory.
    pub(crate) fn limit(self) -> Option<Limit> {
        match self {
            Error::NoMemoryToCreate(limit) | Error::NoMemoryToGrow(limit) | Error::NoMemory(limit) => Some(limit),
            _ => None,
        }
    }

    /// Returns the error for bytes that could not be decoded. `limit` is the exceeded limit if memory was the reason.
    pub(crate) fn decoding(error: DecodeError, limit: Limit) -> Error {
        match error {
            DecodeError::NewerVersion => Error::NewerData,
            DecodeError::Foreign => Error::ForeignChunk,
            DecodeError::NoSuchOffset => Error::NoSuchOffset,
            DecodeError::BeyondLayer => Error::ChunkTooBig,
            DecodeError::OutOfMemory => Error::NoMemoryToCreate(limit),
            _ => Error::BadData,
        }
    }

    /// Returns the error for a filter that could not be created. `limit` is the exceeded limit if memory was the
    /// reason.
    pub(crate) fn creating(error: oxbloom_filter::Error, limit: Limit) -> Error {
        match error {
            oxbloom_filter::Error::OutOfMemory => Error::NoMemoryToCreate(limit),
            _ => Error::CannotCreate,
        }
    }

    /// Returns the error for filters that could not be merged: `no_memory` if memory was the reason.
    pub(crate) fn merging(error: MergeError, no_memory: Error) -> Error {
        match error {
            MergeError::SourcesDiffer(parameter) => Error::SourcesDiffer(parameter),
            MergeError::IntersectedLayers => Error::IntersectedLayers,
            MergeError::IntersectedGrowing => Error::IntersectedGrowing,
            MergeError::MergedWindows => Error::MergedWindows,
            MergeError::MergedValkey => Error::MergedValkey,
            MergeError::CannotGrow => Error::UnionTooLarge,
            _ => no_memory,
        }
    }

    /// Returns the error for a filter that could not be folded. `limit` is the exceeded limit if memory was the reason.
    pub(crate) fn folding(error: oxbloom_filter::Error, limit: Limit) -> Error {
        match error {
            oxbloom_filter::Error::CannotFold => Error::NotFoldable,
            _ => Error::NoMemory(limit),
        }
    }

    /// Returns the error for a filter that could not grow. `limit` is the exceeded limit if memory was the reason.
    pub(crate) fn growing(error: oxbloom_filter::Error, limit: Limit) -> Error {
        match error {
            oxbloom_filter::Error::OutOfMemory => Error::NoMemoryToGrow(limit),
            oxbloom_filter::Error::Full => Error::Full,
            _ => Error::CannotGrow,
        }
    }
}

/// Converts a text whose only NUL is its last byte.
const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"ERR internal error: see the log, and report it",
    }
}

/// Returns the error for filters that cannot be merged; it also says how to create ones that can.
const fn merge_mismatch(parameter: Mismatch) -> &'static CStr {
    macro_rules! differ {
        ($what:literal) => {
            c_str(concat!(
                "ERR cannot merge filters that differ in ",
                $what,
                ": create them with BF.RESERVE key LIKE other\0"
            ))
        };
    }
    match parameter {
        Mismatch::Layout => differ!("their layout"),
        Mismatch::ErrorRate => differ!("their error rate"),
        Mismatch::Capacity => {
            c"ERR cannot merge filters that differ in their capacity: create them with BF.RESERVE key LIKE other, or fold both with BF.FOLD key CAPACITY capacity"
        }
        Mismatch::Expansion => differ!("their expansion"),
        Mismatch::Seed => differ!("their seed"),
        _ => differ!("the shape of their layers"),
    }
}
