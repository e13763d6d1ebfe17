//! The declarations of all commands, and their handlers. COMMAND, ACL, cluster routing and redis-cli's hints use the
//! declarations.
//!
//! To add a command, add its [`Verb`], its row here, and its handler.

use super::declaration::{Access, Argument, ArgumentKind, Command, Keys};
#[cfg(feature = "fault-injection")]
use super::fault_injection;
use super::{add, counting, dump, info, merge, query, reserve};
use crate::callback::{self, Route};
use crate::configuration::LayoutName;
use crate::family::{BLOOM, Verb};
use crate::ffi;
use crate::server::Arity;

/// Declares a command, with a callback that runs its handler.
macro_rules! command {
    ($verb:ident, $handler:path, $arity:expr, keys: $keys:expr, access: $access:expr, $($field:tt)*) => {{
        const ROUTE: Route = Route { name: BLOOM.name(Verb::$verb), family: &BLOOM, arity: $arity, handler: $handler };
        unsafe extern "C" fn callback(
            ctx: *mut redis_module::raw::RedisModuleCtx,
            argv: *mut *mut redis_module::raw::RedisModuleString,
            argc: std::ffi::c_int,
        ) -> std::ffi::c_int {
            // SAFETY: these are the arguments with which the server called this command.
            unsafe {
                if let Some(others) = Keys::others($keys)
                    && callback::answer_getkeys(ctx, argv, argc, Access::key_flags($access), others)
                {
                    return ffi::OK;
                }
                callback::dispatch(ctx, argv, argc, &ROUTE)
            }
        }
        Command { route: ROUTE, callback, keys: $keys, access: $access, $($field)* }
    }};
    ($verb:ident, $handler:path, $arity:expr, $($field:tt)*) => {
        command! { $verb, $handler, $arity, keys: Keys::One, $($field)* }
    };
}

const EXPANSION: Argument = Argument::option(c"EXPANSION", c"expansion", ArgumentKind::Integer);
const NONSCALING: Argument = Argument::flag(c"NONSCALING", c"nonscaling");
const COUNTING: Argument = Argument::flag(c"COUNTING", c"counting");
const SEED: Argument = Argument::option(c"SEED", c"seed", ArgumentKind::Integer);
const WINDOW: Argument = Argument::option(c"WINDOW", c"seconds", ArgumentKind::Integer);
const SLICES: Argument = Argument::option(c"SLICES", c"slices", ArgumentKind::Integer);
const REFRESH: Argument = Argument::flag(c"REFRESH", c"refresh");
const ROLLING: Argument = Argument::flag(c"ROLLING", c"rolling");

const LAYOUT: Argument = Argument::option(
    c"LAYOUT",
    c"layout",
    ArgumentKind::OneOf(&[
        Argument { token: Some(LayoutName::Native.name()), ..Argument::required(c"native", ArgumentKind::Token) },
        Argument { token: Some(LayoutName::Classic.name()), ..Argument::required(c"classic", ArgumentKind::Token) },
    ]),
);

/// The options that set the expiration of the key, as in the server's own SET.
const EXPIRY: Argument = Argument {
    optional: true,
    ..Argument::required(
        c"expiration",
        ArgumentKind::OneOf(&[
            Argument { token: Some(c"EX"), ..Argument::required(c"seconds", ArgumentKind::Integer) },
            Argument { token: Some(c"PX"), ..Argument::required(c"milliseconds", ArgumentKind::Integer) },
            Argument { token: Some(c"EXAT"), ..Argument::required(c"unix-time-seconds", ArgumentKind::UnixTime) },
            Argument { token: Some(c"PXAT"), ..Argument::required(c"unix-time-milliseconds", ArgumentKind::UnixTime) },
        ]),
    )
};

/// All commands, each declared once.
pub(super) static COMMANDS: &[Command] = &[
    command! {
        Reserve, reserve::reserve, Arity { min: 4, max: 20 }, keys: Keys::AndLike,
        access: Access::Update,
        fast: true,
        summary: c"Creates an empty Bloom filter.",
        complexity: c"O(1); the memory is zeroed when it is first used",
        arguments: &[Argument::required(
            c"parameters",
            ArgumentKind::OneOf(&[
                Argument::required(
                    c"explicit",
                    ArgumentKind::Block(&[
                        Argument::required(c"error_rate", ArgumentKind::Double),
                        Argument::required(c"capacity", ArgumentKind::Integer),
                        EXPANSION,
                        NONSCALING,
                        COUNTING,
                        WINDOW,
                        SLICES,
                        REFRESH,
                        ROLLING,
                        SEED,
                        LAYOUT,
                        EXPIRY,
                    ]),
                ),
                Argument { token: Some(c"LIKE"), ..Argument::required(c"other", ArgumentKind::Key(1)) },
            ]),
        )],
    },
    command! {
        Add, add::add, Arity::exactly(3),
        access: Access::Insert,
        fast: true,
        summary: c"Adds an item to a Bloom filter. Creates the filter with default settings if the key does not exist.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: &[Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Madd, add::madd, Arity::at_least(3),
        access: Access::Insert,
        fast: false,
        summary: c"Adds items to a Bloom filter. Creates the filter with default settings if the key does not exist.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: &[Argument::items(None)],
    },
    command! {
        Insert, add::insert, Arity::at_least(4),
        access: Access::Insert,
        fast: false,
        summary: c"Adds items to a Bloom filter. Creates the filter with the given options if the key does not exist.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: &[
            Argument::option(c"CAPACITY", c"capacity", ArgumentKind::Integer),
            Argument::option(c"ERROR", c"error_rate", ArgumentKind::Double),
            EXPANSION,
            Argument::flag(c"NOCREATE", c"nocreate"),
            NONSCALING,
            COUNTING,
            WINDOW,
            SLICES,
            REFRESH,
            ROLLING,
            SEED,
            LAYOUT,
            EXPIRY,
            Argument::flag(c"NX", c"nx"),
            Argument::option(c"TTL", c"seconds", ArgumentKind::Integer),
            Argument::option(c"AT", c"unix-time-milliseconds", ArgumentKind::UnixTime),
            Argument::items(Some(c"ITEMS")),
        ],
    },
    command! {
        Exists, query::exists, Arity::exactly(3),
        access: Access::Read,
        fast: true,
        summary: c"Tells whether an item was probably added to a Bloom filter, or certainly not.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: &[Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Mexists, query::mexists, Arity::at_least(3),
        access: Access::Read,
        fast: false,
        summary: c"Tells for each item whether it was probably added to a Bloom filter, or certainly not.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: &[Argument::items(None)],
    },
    command! {
        Del, counting::del, Arity::exactly(3),
        access: Access::Remove,
        fast: true,
        summary: c"Removes one occurrence of an item from a counting Bloom filter.",
        complexity: c"O(1)",
        arguments: &[Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Mdel, counting::mdel, Arity::at_least(3),
        access: Access::Remove,
        fast: false,
        summary: c"Removes one occurrence of each item from a counting Bloom filter.",
        complexity: c"O(N), where N is the number of items",
        arguments: &[Argument::items(None)],
    },
    command! {
        Count, counting::count, Arity::exactly(3),
        access: Access::Read,
        fast: true,
        summary: c"Returns how often an item is in a counting Bloom filter.",
        complexity: c"O(1)",
        arguments: &[Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Mcount, counting::mcount, Arity::at_least(3),
        access: Access::Read,
        fast: false,
        summary: c"Returns for each item how often it is in a counting Bloom filter.",
        complexity: c"O(N), where N is the number of items",
        arguments: &[Argument::items(None)],
    },
    command! {
        Merge, merge::merge, Arity::at_least(4), keys: Keys::AndNumbered,
        access: Access::Merge,
        fast: false,
        summary: c"Stores the union or the intersection of Bloom filters. Includes an existing destination, unless it is replaced.",
        complexity: c"O(N), where N is the size of all filters",
        arguments: &[
            Argument::required(c"numkeys", ArgumentKind::Integer),
            Argument { multiple: true, ..Argument::required(c"source", ArgumentKind::Key(1)) },
            Argument {
                optional: true,
                ..Argument::required(
                    c"operation",
                    ArgumentKind::OneOf(&[
                        Argument { token: Some(c"UNION"), ..Argument::required(c"union", ArgumentKind::Token) },
                        Argument { token: Some(c"INTERSECT"), ..Argument::required(c"intersect", ArgumentKind::Token) },
                    ]),
                )
            },
            Argument::flag(c"REPLACE", c"replace"),
        ],
    },
    command! {
        Card, query::card, Arity::exactly(2),
        access: Access::Read,
        fast: true,
        summary: c"Returns the number of distinct items in a Bloom filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: &[],
    },
    command! {
        Info, info::info, Arity { min: 2, max: 3 },
        access: Access::Read,
        fast: true,
        summary: c"Returns information about a Bloom filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: &[Argument {
            name: c"field",
            kind: ArgumentKind::OneOf(&info::FIELD_ARGUMENTS),
            token: None,
            optional: true,
            multiple: false,
        }],
    },
    command! {
        Scandump, dump::scandump, Arity::exactly(3),
        access: Access::Read,
        fast: false,
        summary: c"Starts or continues the dump of a Bloom filter in chunks.",
        complexity: c"O(N), where N is the size of the chunk",
        arguments: &[Argument::required(c"iterator", ArgumentKind::Integer)],
    },
    command! {
        Loadchunk, dump::loadchunk, Arity::exactly(4),
        access: Access::Update,
        fast: false,
        summary: c"Restores a chunk of a Bloom filter that was dumped with BF.SCANDUMP.",
        complexity: c"O(N), where N is the size of the chunk",
        arguments: &[
            Argument::required(c"iterator", ArgumentKind::Integer),
            Argument::required(c"data", ArgumentKind::String),
        ],
    },
    command! {
        Debug, info::debug, Arity::exactly(2),
        access: Access::Read,
        fast: true,
        summary: c"Describes each layer of a Bloom filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: &[],
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Panic, fault_injection::panic, Arity { min: 2, max: 4 },
        access: Access::Read,
        fast: true,
        summary: c"Panics, at once or in the middle of a reply, to test that the server survives.",
        complexity: c"O(1)",
        arguments: &[
            Argument::required(c"length", ArgumentKind::Integer),
            Argument::required(c"sent", ArgumentKind::Integer),
        ],
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Starve, fault_injection::starve, Arity::exactly(4),
        access: Access::Read,
        fast: true,
        summary: c"Makes one of the next requests for memory fail. Returns the number of requests since the last call.",
        complexity: c"O(1)",
        arguments: &[
            Argument::required(c"request", ArgumentKind::Integer),
            Argument::required(c"min_bytes", ArgumentKind::Integer),
        ],
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Clock, fault_injection::clock, Arity::exactly(3),
        access: Access::Read,
        fast: true,
        summary: c"Stops the clock of filters that forget, at this time in milliseconds since 1970.",
        complexity: c"O(1)",
        arguments: &[Argument::required(c"milliseconds", ArgumentKind::Integer)],
    },
];
