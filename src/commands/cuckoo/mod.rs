//! The commands on cuckoo filters: their declarations, and the handlers that only they have.
//!
//! ```text
//!  options                the options, one row each
//!  redisbloom             commands of RedisBloom's stream, parsed as RedisBloom parses them
//!  creation               CF.RESERVE, and the filters that options create
//!  add                    CF.ADD, CF.ADDNX, CF.INSERT, CF.INSERTNX
//!  info                   CF.INFO, CF.DEBUG
//!  rebuilding             CF.COMPACT, CF.CONVERT
//!  dump                   CF.SCANDUMP, CF.LOADCHUNK
//! ```
//!
//! To add a command, add its [`Verb`], its row here, and its handler.

mod add;
mod creation;
mod dump;
mod info;
mod options;
mod rebuilding;
mod redisbloom;

use super::declaration::{
    Access, Argument, ArgumentKind, CHUNK_SIZE, Command, EACH_ITEM_AND_LAYER, EACH_LAYER, Keys, command,
};
use super::import::{self, Imported};
use super::items::ITEMS;
use super::{counting, option_row, query};
use crate::family::{CUCKOO, Family, Verb};
use crate::reply_error::Error;
use crate::server::Arity;
use options::OPTIONS;
use oxbloom_filter::internals::OnDuplicate;

/// The family of all commands in this file.
pub(super) static FAMILY: &Family = &CUCKOO;

static IMPORTED: Imported = Imported {
    whole: None,
    gained: "CF.CONVERT makes it a native filter, which accepts items as long as there is memory",
};

/// All commands, each declared once.
pub(super) static COMMANDS: &[Command] = &[
    command! {
        Reserve, creation::reserve, Arity::at_least(3), Access::Update,
        complexity: c"O(1); the memory is zeroed when it is first used",
        summary: c"Creates an empty cuckoo filter.",
        arguments: || {
            let capacity = Argument::required(c"capacity", ArgumentKind::Integer);
            [capacity].into_iter().chain(option_row::arguments(OPTIONS, Verb::Reserve)).collect()
        },
    },
    command! {
        Add, |ctx, keyspace, args| add::add(ctx, keyspace, args, OnDuplicate::Count), Arity::exactly(3), Access::Insert,
        complexity: c"O(1), or O(L+I) for a classic filter of L layers and I iterations",
        summary: c"Adds an item to a cuckoo filter, once more if it is there. Creates the filter with default settings if the key does not exist.",
    },
    command! {
        Addnx, |ctx, keyspace, args| add::add(ctx, keyspace, args, OnDuplicate::Skip), Arity::exactly(3), Access::Insert,
        complexity: c"O(1), or O(L+I) for a classic filter of L layers and I iterations",
        summary: c"Adds an item to a cuckoo filter, unless it is probably there. Creates the filter with default settings if the key does not exist.",
    },
    command! {
        Insert, |ctx, keyspace, args| add::insert(ctx, keyspace, args, OnDuplicate::Count), Arity::at_least(4), Access::Insert,
        complexity: c"O(N), where N is the number of items, or O(N*(L+I)) for a classic filter of L layers and I iterations",
        summary: c"Adds items to a cuckoo filter, once more if they are there. Creates the filter if the key does not exist.",
        arguments: || option_row::arguments(OPTIONS, Verb::Insert).chain([ITEMS]).collect(),
    },
    command! {
        Insertnx, |ctx, keyspace, args| add::insert(ctx, keyspace, args, OnDuplicate::Skip), Arity::at_least(4), Access::Insert,
        complexity: c"O(N), where N is the number of items, or O(N*(L+I)) for a classic filter of L layers and I iterations",
        summary: c"Adds items to a cuckoo filter, unless they are probably there. Creates the filter if the key does not exist.",
        arguments: || option_row::arguments(OPTIONS, Verb::Insert).chain([ITEMS]).collect(),
    },
    command! {
        Exists, query::exists, Arity::exactly(3), Access::Read, complexity: EACH_LAYER,
        summary: c"Tells whether an item is probably in a cuckoo filter, or certainly not.",
    },
    command! {
        Mexists, query::mexists, Arity::at_least(3), Access::Read, complexity: EACH_ITEM_AND_LAYER,
        summary: c"Tells for each item whether it is probably in a cuckoo filter, or certainly not.",
    },
    command! {
        Count, counting::count, Arity::exactly(3), Access::Read, complexity: EACH_LAYER,
        summary: c"Returns how often an item is in a cuckoo filter.",
    },
    command! {
        Del, |ctx, keyspace, args| counting::remove(ctx, keyspace, args, Some(Error::NothingToRemoveFrom)), Arity::exactly(3), Access::Remove,
        complexity: c"O(1), or O(L) for a classic filter of L layers, and now and then O(N), where N is the size of the filter",
        summary: c"Removes one occurrence of an item from a cuckoo filter.",
    },
    command! {
        Info, info::info, Arity::exactly(2), Access::Read, complexity: EACH_LAYER,
        summary: c"Returns information about a cuckoo filter.",
    },
    command! {
        Debug, info::debug, Arity::exactly(2), Access::Read, complexity: c"O(1)",
        summary: c"Describes a cuckoo filter in one line.",
    },
    command! {
        Compact, rebuilding::compact, Arity::exactly(2), Access::Remove,
        complexity: c"O(N*log(N)), where N is the size of the filter",
        summary: c"Moves the items of a classic cuckoo filter into as few layers as possible.",
    },
    command! {
        Convert, rebuilding::convert, Arity::exactly(2), Access::Update,
        complexity: c"O(N*log(N)), where N is the size of the filter",
        summary: c"Makes a classic cuckoo filter a native one, with the same items and counts.",
    },
    command! {
        Scandump, dump::scandump, Arity::exactly(3), Access::Read, complexity: CHUNK_SIZE,
        summary: c"Starts or continues the dump of a cuckoo filter in chunks.",
        arguments: || vec![Argument::required(c"iterator", ArgumentKind::Integer)],
    },
    command! {
        Loadchunk, dump::loadchunk, Arity::exactly(4), Access::Update, complexity: CHUNK_SIZE,
        summary: c"Restores a chunk of a cuckoo filter that was dumped with CF.SCANDUMP.",
        arguments: || vec![
            Argument::required(c"iterator", ArgumentKind::Integer),
            Argument::required(c"data", ArgumentKind::String),
        ],
    },
    command! {
        Import, |ctx, keyspace, args| import::import(ctx, keyspace, args, &IMPORTED), Arity { min: 3, max: 5 }, keys: Keys::AndNew, Access::Import,
        complexity: CHUNK_SIZE,
        summary: c"Copies a cuckoo filter of another module into a filter of this module, a part at a time.",
        arguments: || import::ARGUMENTS.to_vec(),
    },
];
