//! The commands on cuckoo filters: their declarations, and the handlers that only they have.
//!
//! ```text
//!  add                CF.ADD, CF.ADDNX, CF.INSERT, CF.INSERTNX
//!  reserve            CF.RESERVE
//!  info               CF.INFO, CF.DEBUG
//!  compact            CF.COMPACT
//!  convert            CF.CONVERT
//!  dump               CF.SCANDUMP, CF.LOADCHUNK
//! ```

mod add;
mod compact;
mod convert;
mod dump;
mod info;
mod reserve;

use super::declaration::{Access, Argument, ArgumentKind, Command, Keys, command};
use super::option_rows::{self, Creator};
use super::{counting, import, query};
use crate::family::{CUCKOO, Family};
use crate::server::Arity;

/// The family of all commands in this file.
pub(super) static FAMILY: &Family = &CUCKOO;

/// All commands, each declared once.
pub(super) static COMMANDS: &[Command] = &[
    command! {
        Reserve, reserve::reserve, Arity::at_least(3),
        access: Access::Update,
        fast: true,
        summary: c"Creates an empty cuckoo filter.",
        complexity: c"O(1); the memory is zeroed when it is first used",
        arguments: || {
            let capacity = Argument::required(c"capacity", ArgumentKind::Integer);
            [capacity].into_iter().chain(option_rows::arguments(Creator::CuckooReserve)).collect()
        },
    },
    command! {
        Add, add::add, Arity::exactly(3),
        access: Access::Insert,
        fast: true,
        summary: c"Adds an item to a cuckoo filter, once more if it is there. Creates the filter with default settings if the key does not exist.",
        complexity: c"O(1), or O(L+I) for a classic filter of L layers and I iterations",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Addnx, add::addnx, Arity::exactly(3),
        access: Access::Insert,
        fast: true,
        summary: c"Adds an item to a cuckoo filter, unless it is probably there. Creates the filter with default settings if the key does not exist.",
        complexity: c"O(1), or O(L+I) for a classic filter of L layers and I iterations",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Insert, add::insert, Arity::at_least(4),
        access: Access::Insert,
        fast: false,
        summary: c"Adds items to a cuckoo filter, once more if they are there. Creates the filter if the key does not exist.",
        complexity: c"O(N), where N is the number of items, or O(N*(L+I)) for a classic filter of L layers and I iterations",
        arguments: || option_rows::arguments(Creator::CuckooInsert).chain([option_rows::ITEMS]).collect(),
    },
    command! {
        Insertnx, add::insertnx, Arity::at_least(4),
        access: Access::Insert,
        fast: false,
        summary: c"Adds items to a cuckoo filter, unless they are probably there. Creates the filter if the key does not exist.",
        complexity: c"O(N), where N is the number of items, or O(N*(L+I)) for a classic filter of L layers and I iterations",
        arguments: || option_rows::arguments(Creator::CuckooInsert).chain([option_rows::ITEMS]).collect(),
    },
    command! {
        Exists, query::exists, Arity::exactly(3),
        access: Access::Read,
        fast: true,
        summary: c"Tells whether an item is probably in a cuckoo filter, or certainly not.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Mexists, query::mexists, Arity::at_least(3),
        access: Access::Read,
        fast: false,
        summary: c"Tells for each item whether it is probably in a cuckoo filter, or certainly not.",
        complexity: c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers",
        arguments: || vec![Argument::items(None)],
    },
    command! {
        Count, counting::count, Arity::exactly(3),
        access: Access::Read,
        fast: true,
        summary: c"Returns how often an item is in a cuckoo filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Del, counting::del, Arity::exactly(3),
        access: Access::Remove,
        fast: true,
        summary: c"Removes one occurrence of an item from a cuckoo filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers, and now and then O(N), where N is the size of the filter",
        arguments: || vec![Argument::required(c"item", ArgumentKind::String)],
    },
    command! {
        Info, info::info, Arity::exactly(2),
        access: Access::Read,
        fast: true,
        summary: c"Returns information about a cuckoo filter.",
        complexity: c"O(1), or O(L) for a classic filter of L layers",
        arguments: Vec::new,
    },
    command! {
        Debug, info::debug, Arity::exactly(2),
        access: Access::Read,
        fast: true,
        summary: c"Describes a cuckoo filter in one line.",
        complexity: c"O(1)",
        arguments: Vec::new,
    },
    command! {
        Compact, compact::compact, Arity::exactly(2),
        access: Access::Remove,
        fast: false,
        summary: c"Moves the items of a classic cuckoo filter into as few layers as possible.",
        complexity: c"O(N*log(N)), where N is the size of the filter",
        arguments: Vec::new,
    },
    command! {
        Convert, convert::convert, Arity::exactly(2),
        access: Access::Update,
        fast: false,
        summary: c"Makes a classic cuckoo filter a native one, with the same items and counts.",
        complexity: c"O(N*log(N)), where N is the size of the filter",
        arguments: Vec::new,
    },
    command! {
        Scandump, dump::scandump, Arity::exactly(3),
        access: Access::Read,
        fast: false,
        summary: c"Starts or continues the dump of a cuckoo filter in chunks.",
        complexity: c"O(N), where N is the size of the chunk",
        arguments: || vec![Argument::required(c"iterator", ArgumentKind::Integer)],
    },
    command! {
        Loadchunk, dump::loadchunk, Arity::exactly(4),
        access: Access::Update,
        fast: false,
        summary: c"Restores a chunk of a cuckoo filter that was dumped with CF.SCANDUMP.",
        complexity: c"O(N), where N is the size of the chunk",
        arguments: || vec![
            Argument::required(c"iterator", ArgumentKind::Integer),
            Argument::required(c"data", ArgumentKind::String),
        ],
    },
    command! {
        Import, import::import, Arity { min: 3, max: 5 }, keys: Keys::AndNew,
        access: Access::Import,
        fast: false,
        summary: c"Copies a cuckoo filter of another module into a filter of this module, a part at a time.",
        complexity: c"O(N), where N is the size of the chunk",
        arguments: || import::ARGUMENTS.to_vec(),
    },
];
