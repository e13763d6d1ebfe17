//! The commands on Bloom filters: their declarations, and the handlers that only they have.
//!
//! ```text
//!  options                the options, one row each
//!  redisbloom             commands of RedisBloom's stream, parsed as RedisBloom parses them
//!  creation               BF.RESERVE, and the filters that options create
//!  add                    BF.ADD, BF.MADD, BF.INSERT
//!  packed, packing        the commands on packed items
//!  info                   BF.INFO, BF.DEBUG
//!  merge                  BF.MERGE
//!  dump                   BF.SCANDUMP, BF.LOADCHUNK, BF.LOAD
//! ```
//!
//! To add a command, add its [`Verb`], its row here, and its handler.

mod add;
mod creation;
mod dump;
mod info;
mod merge;
mod options;
mod packed;
pub(super) mod packing;
pub(super) mod redisbloom;

use super::declaration::{Access, Argument, ArgumentKind, Command, Keys, command};
#[cfg(feature = "fault-injection")]
use super::fault_injection;
use super::import::{self, Imported};
use super::items::ITEMS;
use super::{counting, option_row, query};
use crate::family::{BLOOM, Family, Verb};
use crate::server::Arity;
use options::OPTIONS;
use oxbloom_filter::internals::codec::Encoding;

/// The family of all commands in this file.
pub(super) static FAMILY: &Family = &BLOOM;

/// valkey-bloom has no command that dumps chunks.
static IMPORTED: Imported = Imported {
    whole: Some(Encoding::Valkey),
    gained: "BF.MERGE and packed commands, and additions that change nothing are not replicated",
};

const PARAMETERS: [Argument; 2] = [
    Argument::required(
        c"explicit",
        ArgumentKind::Block(|| {
            let rate = Argument::required(c"error_rate", ArgumentKind::Double);
            let capacity = Argument::required(c"capacity", ArgumentKind::Integer);
            [rate, capacity].into_iter().chain(option_row::arguments(OPTIONS, Verb::Reserve)).collect()
        }),
    ),
    Argument::alternative(c"LIKE", c"other", ArgumentKind::Key(1)),
];

const OPERATIONS: [Argument; 2] = [Argument::token(c"UNION", c"union"), Argument::token(c"INTERSECT", c"intersect")];

/// All commands, each declared once.
pub(super) static COMMANDS: &[Command] = &[
    command! {
        Reserve, creation::reserve, Arity::at_least(4), keys: Keys::AndLike, Access::Update,
        summary: c"Creates an empty Bloom filter.",
        complexity: c"O(1); the memory is zeroed when it is first used",
        arguments: || vec![Argument::required(c"parameters", ArgumentKind::OneOf(&PARAMETERS))],
    },
    command! {
        Add, add::add, Arity::exactly(3), Access::Insert,
        summary: c"Adds an item to a Bloom filter. Creates the filter with default settings if the key does not exist.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Madd, add::madd, Arity::at_least(3), Access::Insert,
        summary: c"Adds items to a Bloom filter. Creates the filter with default settings if the key does not exist.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: || vec![Argument::items(None)],
    },
    command! {
        Insert, add::insert, Arity::at_least(2), Access::Insert,
        summary: c"Adds items to a Bloom filter. Creates the filter with the given options if the key does not exist.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: || option_row::arguments(OPTIONS, Verb::Insert).chain([ITEMS]).collect(),
    },
    command! {
        Addpacked, packed::addpacked, Arity::at_least(4), Access::Insert,
        summary: c"Adds packed items to a Bloom filter. Creates the filter with default settings if the key does not exist.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: || option_row::arguments(OPTIONS, Verb::Addpacked).chain(packing::ARGUMENTS).collect(),
    },
    command! {
        Exists, query::exists, Arity::exactly(3), Access::Read,
        summary: c"Tells whether an item was probably added to a Bloom filter, or certainly not.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Mexists, query::mexists, Arity::at_least(3), Access::Read,
        summary: c"Tells for each item whether it was probably added to a Bloom filter, or certainly not.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: || vec![Argument::items(None)],
    },
    command! {
        Existspacked, packed::existspacked, Arity { min: 4, max: 6 }, Access::Read,
        summary: c"Tells for each of the packed items whether it was probably added to a Bloom filter, or certainly not.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: || [packing::COUNT].into_iter().chain(packing::ARGUMENTS).collect(),
    },
    command! {
        Del, |ctx, keyspace, args| counting::remove(ctx, keyspace, args, None), Arity::exactly(3), Access::Remove,
        summary: c"Removes one occurrence of an item from a counting Bloom filter.",
        complexity: c"O(1)",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Mdel, counting::mdel, Arity::at_least(3), Access::Remove,
        summary: c"Removes one occurrence of each item from a counting Bloom filter.",
        complexity: c"O(N), where N is the number of items",
        arguments: || vec![Argument::items(None)],
    },
    command! {
        Delpacked, packed::delpacked, Arity { min: 4, max: 6 }, Access::Remove,
        summary: c"Removes one occurrence of each of the packed items from a counting Bloom filter.",
        complexity: c"O(N), where N is the number of items",
        arguments: || [packing::COUNT].into_iter().chain(packing::ARGUMENTS).collect(),
    },
    command! {
        Count, counting::count, Arity::exactly(3), Access::Read,
        summary: c"Returns how often an item is in a counting Bloom filter.",
        complexity: c"O(1)",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Mcount, counting::mcount, Arity::at_least(3), Access::Read,
        summary: c"Returns for each item how often it is in a counting Bloom filter.",
        complexity: c"O(N), where N is the number of items",
        arguments: || vec![Argument::items(None)],
    },
    command! {
        Merge, merge::merge, Arity::at_least(4), keys: Keys::AndNumbered, Access::Merge,
        summary: c"Stores the union or the intersection of Bloom filters. Includes an existing destination, unless it is replaced.",
        complexity: c"O(N), where N is the size of all filters",
        arguments: || vec![
            Argument::required(c"numkeys", ArgumentKind::Integer),
            Argument { multiple: true, ..Argument::required(c"source", ArgumentKind::Key(1)) },
            Argument::choice(c"operation", &OPERATIONS),
            Argument::flag(c"REPLACE", c"replace"),
        ],
    },
    command! {
        Card, query::card, Arity::exactly(2), Access::Read,
        summary: c"Returns the number of distinct items in a Bloom filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
    },
    command! {
        Info, info::info, Arity { min: 2, max: 3 }, Access::Read,
        summary: c"Returns information about a Bloom filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: || vec![Argument::choice(c"field", &info::FIELD_ARGUMENTS)],
    },
    command! {
        Scandump, dump::scandump, Arity::exactly(3), Access::Read,
        summary: c"Starts or continues the dump of a Bloom filter in chunks.",
        complexity: c"O(N), where N is the size of the chunk",
        arguments: || vec![Argument::required(c"iterator", ArgumentKind::Integer)],
    },
    command! {
        Loadchunk, dump::loadchunk, Arity::exactly(4), Access::Update,
        summary: c"Restores a chunk of a Bloom filter that was dumped with BF.SCANDUMP.",
        complexity: c"O(N), where N is the size of the chunk",
        arguments: || vec![
            Argument::required(c"iterator", ArgumentKind::Integer),
            Argument::required(c"data", ArgumentKind::String),
        ],
    },
    command! {
        Load, dump::load, Arity::exactly(3), Access::Update,
        summary: c"Restores a Bloom filter from the payload in an append-only file of valkey-bloom.",
        complexity: c"O(N), where N is the size of the payload",
        arguments: || vec![Argument::required(c"data", ArgumentKind::String)],
    },
    command! {
        Import, |ctx, keyspace, args| import::import(ctx, keyspace, args, &IMPORTED), Arity { min: 3, max: 5 }, keys: Keys::AndNew, Access::Import,
        summary: c"Copies a Bloom filter of another module into a filter of this module, a part at a time.",
        complexity: c"O(N), where N is the size of the chunk",
        arguments: || import::ARGUMENTS.to_vec(),
    },
    command! {
        Debug, info::debug, Arity::exactly(2), Access::Read,
        summary: c"Describes each layer of a Bloom filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Panic, fault_injection::panic, Arity { min: 2, max: 5 }, Access::Read,
        summary: c"Panics, at once or in the middle of a reply, to test that the server survives.",
        complexity: c"O(1)",
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Starve, fault_injection::starve, Arity::exactly(4), Access::Read,
        summary: c"Makes one of the next requests for memory fail. Returns the number of requests since the last call.",
        complexity: c"O(1)",
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Clock, fault_injection::clock, Arity::exactly(3), Access::Read,
        summary: c"Stops the clock of filters that forget, at this time in milliseconds since 1970.",
        complexity: c"O(1)",
    },
];
