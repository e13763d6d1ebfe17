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
//!  fold                   BF.FOLD
//!  dump                   BF.SCANDUMP, BF.LOADCHUNK, BF.LOAD
//!  changes                BF.CHANGES
//! ```
//!
//! To add a command, add its [`Verb`], its row here, and its handler.

mod add;
mod changes;
mod creation;
mod dump;
mod fold;
mod info;
mod merge;
mod options;
mod packed;
pub(super) mod packing;
pub(super) mod redisbloom;

use super::declaration::{
    Access, Argument, ArgumentKind, CHUNK_SIZE, Command, EACH_ITEM, EACH_ITEM_AND_LAYER, EACH_LAYER, Keys, command,
};
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
        complexity: c"O(1); the memory is zeroed when it is first used",
        summary: c"Creates an empty Bloom filter.",
        arguments: || vec![Argument::required(c"parameters", ArgumentKind::OneOf(&PARAMETERS))],
    },
    command! {
        Add, add::add, Arity::exactly(3), Access::Insert, complexity: EACH_LAYER,
        summary: c"Adds an item to a Bloom filter. Creates the filter with default settings if the key does not exist.",
    },
    command! {
        Madd, add::madd, Arity::at_least(3), Access::Insert, complexity: EACH_ITEM_AND_LAYER,
        summary: c"Adds items to a Bloom filter. Creates the filter with default settings if the key does not exist.",
    },
    command! {
        Insert, add::insert, Arity::at_least(2), Access::Insert, complexity: EACH_ITEM_AND_LAYER,
        summary: c"Adds items to a Bloom filter. Creates the filter with the given options if the key does not exist.",
        arguments: || option_row::arguments(OPTIONS, Verb::Insert).chain([ITEMS]).collect(),
    },
    command! {
        Addpacked, packed::addpacked, Arity::at_least(4), Access::Insert, complexity: EACH_ITEM_AND_LAYER,
        summary: c"Adds packed items to a Bloom filter. Creates the filter with default settings if the key does not exist.",
        arguments: || option_row::arguments(OPTIONS, Verb::Addpacked).chain(packing::ARGUMENTS).collect(),
    },
    command! {
        Exists, query::exists, Arity::exactly(3), Access::Read, complexity: EACH_LAYER,
        summary: c"Tells whether an item was probably added to a Bloom filter, or certainly not.",
    },
    command! {
        Mexists, query::mexists, Arity::at_least(3), Access::Read, complexity: EACH_ITEM_AND_LAYER,
        summary: c"Tells for each item whether it was probably added to a Bloom filter, or certainly not.",
    },
    command! {
        Existspacked, packed::existspacked, Arity { min: 4, max: 6 }, Access::Read, complexity: EACH_ITEM_AND_LAYER,
        summary: c"Tells for each of the packed items whether it was probably added to a Bloom filter, or certainly not.",
        arguments: || [packing::COUNT].into_iter().chain(packing::ARGUMENTS).collect(),
    },
    command! {
        Del, |ctx, keyspace, args| counting::remove(ctx, keyspace, args, None), Arity::exactly(3), Access::Remove,
        complexity: c"O(1)",
        summary: c"Removes one occurrence of an item from a counting Bloom filter.",
    },
    command! {
        Mdel, counting::mdel, Arity::at_least(3), Access::Remove, complexity: EACH_ITEM,
        summary: c"Removes one occurrence of each item from a counting Bloom filter.",
    },
    command! {
        Delpacked, packed::delpacked, Arity { min: 4, max: 6 }, Access::Remove, complexity: EACH_ITEM,
        summary: c"Removes one occurrence of each of the packed items from a counting Bloom filter.",
        arguments: || [packing::COUNT].into_iter().chain(packing::ARGUMENTS).collect(),
    },
    command! {
        Count, counting::count, Arity::exactly(3), Access::Read, complexity: c"O(1)",
        summary: c"Returns how often an item is in a counting Bloom filter.",
    },
    command! {
        Mcount, counting::mcount, Arity::at_least(3), Access::Read, complexity: EACH_ITEM,
        summary: c"Returns for each item how often it is in a counting Bloom filter.",
    },
    command! {
        Merge, merge::merge, Arity::at_least(4), keys: Keys::AndNumbered, Access::Merge,
        complexity: c"O(N), where N is the size of all filters",
        summary: c"Stores the union or the intersection of Bloom filters. Includes an existing destination, unless it is replaced.",
        arguments: || vec![
            Argument::required(c"numkeys", ArgumentKind::Integer),
            Argument { multiple: true, ..Argument::required(c"source", ArgumentKind::Key(1)) },
            Argument::choice(c"operation", &OPERATIONS),
            Argument::flag(c"REPLACE", c"replace"),
        ],
    },
    command! {
        Fold, fold::fold, Arity { min: 2, max: 4 }, Access::Remove,
        complexity: c"O(N), where N is the size of the filter",
        summary: c"Shrinks a Bloom filter that was reserved too large, without its items.",
        arguments: || vec![Argument::option(c"CAPACITY", c"capacity", ArgumentKind::Integer)],
    },
    command! {
        Card, query::card, Arity::exactly(2), Access::Read, complexity: EACH_LAYER,
        summary: c"Returns the number of distinct items in a Bloom filter.",
    },
    command! {
        Info, info::info, Arity { min: 2, max: 3 }, Access::Read, complexity: EACH_LAYER,
        summary: c"Returns information about a Bloom filter.",
        arguments: || vec![Argument::choice(c"field", &info::FIELD_ARGUMENTS)],
    },
    command! {
        Scandump, dump::scandump, Arity::exactly(3), Access::Read, complexity: CHUNK_SIZE,
        summary: c"Starts or continues the dump of a Bloom filter in chunks.",
        arguments: || vec![Argument::required(c"iterator", ArgumentKind::Integer)],
    },
    command! {
        Changes, changes::changes, Arity { min: 2, max: 6 }, Access::Read,
        complexity: c"O(N), where N is the number of changes",
        summary: c"Returns the items that became new in a Bloom filter, as hashes, for a client that keeps a copy of it.",
        arguments: || vec![
            Argument::option(c"SINCE", c"cursor", ArgumentKind::String),
            Argument::option(c"COUNT", c"count", ArgumentKind::Integer),
        ],
    },
    command! {
        Loadchunk, dump::loadchunk, Arity::exactly(4), Access::Update, complexity: CHUNK_SIZE,
        summary: c"Restores a chunk of a Bloom filter that was dumped with BF.SCANDUMP.",
        arguments: || vec![
            Argument::required(c"iterator", ArgumentKind::Integer),
            Argument::required(c"data", ArgumentKind::String),
        ],
    },
    command! {
        Load, dump::load, Arity::exactly(3), Access::Update,
        complexity: c"O(N), where N is the size of the payload",
        summary: c"Restores a Bloom filter from the payload in an append-only file of valkey-bloom.",
        arguments: || vec![Argument::required(c"data", ArgumentKind::String)],
    },
    command! {
        Import, |ctx, keyspace, args| import::import(ctx, keyspace, args, &IMPORTED), Arity { min: 3, max: 5 }, keys: Keys::AndNew, Access::Import,
        complexity: CHUNK_SIZE,
        summary: c"Copies a Bloom filter of another module into a filter of this module, a part at a time.",
        arguments: || import::ARGUMENTS.to_vec(),
    },
    command! {
        Debug, info::debug, Arity::exactly(2), Access::Read, complexity: EACH_LAYER,
        summary: c"Describes each layer of a Bloom filter.",
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Panic, fault_injection::panic, Arity { min: 2, max: 5 }, Access::Read, complexity: c"O(1)", arguments: Vec::new,
        summary: c"Panics, at once or in the middle of a reply, to test that the server survives.",
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Starve, fault_injection::starve, Arity::exactly(4), Access::Read, complexity: c"O(1)", arguments: Vec::new,
        summary: c"Makes one of the next requests for memory fail. Returns the number of requests since the last call.",
    },
    #[cfg(feature = "fault-injection")]
    command! {
        Clock, fault_injection::clock, Arity::exactly(3), Access::Read, complexity: c"O(1)", arguments: Vec::new,
        summary: c"Stops the clock of filters that forget, at this time in milliseconds since 1970.",
    },
];
