//! What a command tells the server about itself, and how it is registered.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use redis_module::raw;

use super::context::Context;
use super::edge::{Arity, available, call};

/// A command: all that the server, its clients and its users can know about it.
pub struct Command {
    pub name: &'static CStr,
    pub callback: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int,
    pub arity: Arity,
    pub access: Access,
    /// Whether it takes a time that does not depend on how many arguments it has.
    pub fast: bool,
    pub summary: &'static CStr,
    pub complexity: &'static CStr,
    /// The arguments behind the key.
    pub arguments: &'static [Argument],
}

/// What a command does to its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Looks at the items.
    Read,
    /// Adds items.
    Insert,
    /// Removes items.
    Remove,
    /// Creates the key or replaces its content.
    Update,
}

/// An argument, as COMMAND DOCS shows it.
pub struct Argument {
    pub name: &'static CStr,
    pub kind: Kind,
    /// The word before it, or the word itself.
    pub token: Option<&'static CStr>,
    pub optional: bool,
    pub multiple: bool,
}

#[derive(Clone, Copy)]
pub enum Kind {
    String,
    Integer,
    Double,
    /// A word that is there or not.
    Token,
    /// One of several.
    OneOf(&'static [Argument]),
}

impl Argument {
    pub const fn required(name: &'static CStr, kind: Kind) -> Argument {
        Argument { name, kind, token: None, optional: false, multiple: false }
    }

    /// `TOKEN value`, which may be left out.
    pub const fn option(token: &'static CStr, name: &'static CStr, kind: Kind) -> Argument {
        Argument { name, kind, token: Some(token), optional: true, multiple: false }
    }

    /// `TOKEN`, which may be left out.
    pub const fn flag(token: &'static CStr, name: &'static CStr) -> Argument {
        Argument::option(token, name, Kind::Token)
    }

    pub const fn items(token: Option<&'static CStr>) -> Argument {
        Argument { name: c"item", kind: Kind::String, token, optional: false, multiple: true }
    }
}

/// The category of all our commands.
const CATEGORY: &CStr = c"bloom";

/// Registers commands. The name of the first that the server refuses, if it does.
pub fn register(ctx: &Context, commands: &[Command]) -> Result<(), &'static CStr> {
    let categories = available!(RedisModule_AddACLCategory).is_some();
    if categories && call!(RedisModule_AddACLCategory(ctx.as_raw(), CATEGORY.as_ptr())) != OK {
        return Err(CATEGORY);
    }
    for command in commands {
        command.register(ctx, categories).ok_or(command.name)?;
    }
    Ok(())
}

const OK: c_int = raw::REDISMODULE_OK as c_int;

impl Command {
    fn register(&self, ctx: &Context, categories: bool) -> Option<()> {
        let name = self.name.as_ptr();
        let flags = self.flags();
        let callback = Some(self.callback);
        (call!(RedisModule_CreateCommand(ctx.as_raw(), name, callback, flags.as_ptr(), 1, 1, 1)) == OK).then_some(())?;
        if available!(RedisModule_GetCommand).is_none() {
            return Some(());
        }
        let command = call!(RedisModule_GetCommand(ctx.as_raw(), name));
        if available!(RedisModule_SetCommandInfo).is_some() {
            self.describe(command).then_some(())?;
        }
        if categories {
            let categories = self.categories();
            let status = call!(RedisModule_SetCommandACLCategories(command, categories.as_ptr()));
            (status == OK).then_some(())?;
        }
        Some(())
    }

    fn flags(&self) -> CString {
        let kind = match self.access {
            Access::Read => "readonly",
            Access::Remove => "write",
            Access::Insert | Access::Update => "write deny-oom",
        };
        join(&[kind, if self.fast { "fast" } else { "" }])
    }

    fn categories(&self) -> CString {
        let kind = if self.access == Access::Read { "read" } else { "write" };
        join(&["bloom", kind, if self.fast { "fast" } else { "slow" }])
    }

    fn describe(&self, command: *mut raw::RedisModuleCommand) -> bool {
        const VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
            version: 1,
            sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
            sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
            sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
        };
        let end = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID;
        let key_spec = self.key_spec();
        let mut key_specs = [key_spec, raw::RedisModuleCommandKeySpec { begin_search_type: end, ..key_spec }];
        let mut arguments = RawArguments::new(self.arguments);
        arguments.raw.insert(0, raw_argument(c"key", raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY));
        let info = raw::RedisModuleCommandInfo {
            version: &VERSION,
            summary: self.summary.as_ptr(),
            complexity: self.complexity.as_ptr(),
            since: c"0.1.0".as_ptr(),
            history: ptr::null_mut(),
            tips: ptr::null(),
            arity: self.arity.as_server_counts(),
            key_specs: key_specs.as_mut_ptr(),
            args: arguments.raw.as_mut_ptr(),
        };
        // The server copies all of it.
        call!(RedisModule_SetCommandInfo(command, &info)) == OK
    }

    /// One key, right behind the command's name.
    fn key_spec(&self) -> raw::RedisModuleCommandKeySpec {
        let flags = match self.access {
            Access::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Access::Insert => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT,
            Access::Remove => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
            Access::Update => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
        };
        raw::RedisModuleCommandKeySpec {
            notes: ptr::null(),
            flags: flags.into(),
            begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
            bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
                index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
            },
            find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
            fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
                range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 },
            },
        }
    }
}

/// Arguments in the form that the server reads, ended by an empty one, with what they point to.
struct RawArguments {
    raw: Vec<raw::RedisModuleCommandArg>,
    _alternatives: Vec<RawArguments>,
}

impl RawArguments {
    fn new(arguments: &[Argument]) -> RawArguments {
        let mut alternatives = Vec::new();
        let mut all: Vec<_> = arguments
            .iter()
            .map(|argument| {
                let mut raw = raw_argument(argument.name, argument.kind.as_raw());
                raw.token = argument.token.map_or(ptr::null(), CStr::as_ptr);
                if argument.optional {
                    raw.flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int;
                }
                if argument.multiple {
                    raw.flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE as c_int;
                }
                if let Kind::OneOf(choices) = argument.kind {
                    let mut choices = RawArguments::new(choices);
                    raw.subargs = choices.raw.as_mut_ptr();
                    alternatives.push(choices);
                }
                raw
            })
            .collect();
        all.push(raw_argument_with(ptr::null(), 0));
        RawArguments { raw: all, _alternatives: alternatives }
    }
}

impl Kind {
    fn as_raw(self) -> raw::RedisModuleCommandArgType {
        match self {
            Kind::String => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            Kind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            Kind::Double => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE,
            Kind::Token => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            Kind::OneOf(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
        }
    }
}

fn raw_argument(name: &CStr, kind: raw::RedisModuleCommandArgType) -> raw::RedisModuleCommandArg {
    raw_argument_with(name.as_ptr(), kind)
}

fn raw_argument_with(name: *const c_char, kind: raw::RedisModuleCommandArgType) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name,
        type_: kind,
        key_spec_index: if kind == raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY { 0 } else { -1 },
        token: ptr::null(),
        summary: ptr::null(),
        since: ptr::null(),
        flags: 0,
        deprecated_since: ptr::null(),
        subargs: ptr::null_mut(),
        display_text: ptr::null(),
    }
}

fn join(words: &[&str]) -> CString {
    CString::new(words.join(" ").trim_end()).unwrap_or_default()
}
