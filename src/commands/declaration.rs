//! The declaration of a command: its arity, flags, keys and documentation; and its registration with the server.

use std::ffi::{CStr, CString, c_int};
use std::ops::Range;
use std::{mem, ptr};

use redis_module::commands::{BeginSearch, FindKeys, KeySpec, KeySpecFlags, get_redis_key_spec};
use redis_module::raw;

use crate::callback::{OTHER_KEY_FLAGS, Route};
use crate::family::{Dialect, Family, Verb};
use crate::ffi::{OK, RawContext, RawString, call};
use crate::names::{named, names};
use crate::reply_error::Error;
use crate::server::{Arg, Args, Arity, Context, feature};

// The complexities that several commands have.
pub(super) const CHUNK_SIZE: &CStr = c"O(N), where N is the size of the chunk";
pub(super) const EACH_ITEM: &CStr = c"O(N), where N is the number of items";
pub(super) const EACH_ITEM_AND_LAYER: &CStr =
    c"O(N), where N is the number of items, or O(N*L) for a classic filter of L layers";
pub(super) const EACH_LAYER: &CStr = c"O(1), or O(L) for a classic filter of L layers";

pub(super) struct Command {
    pub route: Route,
    pub callback: unsafe extern "C" fn(RawContext, *mut RawString, c_int) -> c_int,
    pub keys: Keys,
    pub access: Access,
    pub summary: &'static CStr,
    /// A command whose complexity starts with `O(1)` is flagged as fast.
    pub complexity: &'static CStr,
    /// Returns the arguments after the key.
    pub arguments: fn() -> Vec<Argument>,
}

/// Declares a command of the `FAMILY` where the macro is used, with a callback that runs its handler.
macro_rules! command {
    ($verb:ident, $handler:expr, $arity:expr, keys: $keys:expr, $access:expr, $($field:tt)*) => {{
        static ROUTE: $crate::callback::Route = $crate::callback::Route {
            family: FAMILY,
            verb: $crate::family::Verb::$verb,
            arity: $arity,
            handler: $handler,
        };
        use $crate::ffi::{OK, RawContext, RawString};
        unsafe extern "C" fn callback(ctx: RawContext, argv: *mut RawString, argc: std::ffi::c_int) -> std::ffi::c_int {
            // SAFETY: these are the arguments with which the server called this command.
            unsafe {
                if let Some(others) = Keys::others($keys)
                    && $crate::callback::answer_getkeys(ctx, argv, argc, Access::key_flags($access), others)
                {
                    return OK;
                }
                $crate::callback::dispatch(ctx, argv, argc, &ROUTE)
            }
        }
        Command { route: ROUTE, callback, keys: $keys, access: $access, $($field)* }
    }};
    // A command whose arguments after the key are items.
    ($verb:ident, $handler:expr, $arity:expr, $access:expr, complexity: $complexity:expr, summary: $summary:expr,) => {
        command! {
            $verb, $handler, $arity, $access, complexity: $complexity, summary: $summary,
            arguments: Argument::items_of($arity)
        }
    };
    ($verb:ident, $handler:expr, $arity:expr, $access:expr, $($field:tt)*) => {
        command! { $verb, $handler, $arity, keys: Keys::One, $access, $($field)* }
    };
}
pub(super) use command;

/// The keys of a command: its first argument, and for some commands others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    One,
    /// `key LIKE other`
    AndLike,
    /// `key numkeys other [other …]`
    AndNumbered,
    /// `key newkey`, of which the second is created.
    AndNew,
}

impl Keys {
    /// Returns a function that finds the positions of the other keys, if the command can have any whose positions vary.
    pub(super) const fn others(self) -> Option<fn(Args) -> Range<usize>> {
        match self {
            // The server itself finds keys at fixed positions.
            Keys::One | Keys::AndNew => None,
            Keys::AndLike => Some(|args| if is_like(args) { 3..4 } else { 0..0 }),
            Keys::AndNumbered => Some(|args| numbered_keys(args).map_or(0..0, |keys| 3..3 + keys.len())),
        }
    }
}

/// Returns true if the arguments are `key LIKE other`.
pub(super) fn is_like(args: Args) -> bool {
    args.len() == 4 && args.at(2).is("LIKE")
}

/// Returns the other keys of `key numkeys other [other …]`.
pub(super) fn numbered_keys(args: Args<'_>) -> Result<Args<'_>, Error> {
    let others = args.from(3);
    let count = args.from(2).iter().next().and_then(Arg::integer).filter(|&count| count > 0);
    match usize::try_from(count.ok_or(Error::BadKeyCount)?) {
        Ok(count) if count <= others.len() => Ok(others.up_to(count)),
        _ => Err(Error::TooManyKeys),
    }
}

/// The access of a command to its key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Reads items.
    Read,
    /// Adds items.
    Insert,
    /// Removes items, or the room that removed items have left.
    Remove,
    /// Creates the key or replaces its content.
    Update,
    /// Replaces the content by a merge of itself and of other keys.
    Merge,
    /// Reads a filter of another module, and creates another key from it.
    Import,
}

impl Access {
    /// Returns the server's flags for the first key. As for the server's own commands, a merge requires the permission
    /// to read (like PFMERGE), while adding and removing do not (like SADD and SREM), although they reveal whether an
    /// item was present.
    pub(super) const fn key_flags(self) -> c_int {
        let flags = match self {
            Access::Read | Access::Import => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Access::Insert => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT,
            Access::Remove => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
            Access::Update => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
            Access::Merge => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
            }
        };
        flags as c_int
    }
}

/// An argument, as COMMAND DOCS shows it.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    pub name: &'static CStr,
    pub kind: ArgumentKind,
    /// The token before the value, or for [`ArgumentKind::Token`], the token itself.
    pub token: Option<&'static CStr>,
    pub optional: bool,
    pub multiple: bool,
}

/// The kind of an argument, as COMMAND DOCS shows it.
#[derive(Clone, Copy)]
pub(super) enum ArgumentKind {
    String,
    /// A key, with the index of its key specification.
    Key(i32),
    Integer,
    Double,
    UnixTime,
    /// A token that is present or not.
    Token,
    /// One of several arguments.
    OneOf(&'static [Argument]),
    /// Several arguments in sequence.
    Block(fn() -> Vec<Argument>),
}

impl Argument {
    pub(super) const fn required(name: &'static CStr, kind: ArgumentKind) -> Argument {
        Argument { name, kind, token: None, optional: false, multiple: false }
    }

    /// Returns the optional argument `TOKEN value`.
    pub(super) const fn option(token: &'static CStr, name: &'static CStr, kind: ArgumentKind) -> Argument {
        Argument { name, kind, token: Some(token), optional: true, multiple: false }
    }

    /// Returns one of several [`alternatives`](Self::alternative), which is optional.
    pub(super) const fn choice(name: &'static CStr, alternatives: &'static [Argument]) -> Argument {
        Argument { optional: true, ..Argument::required(name, ArgumentKind::OneOf(alternatives)) }
    }

    /// Returns the required argument `TOKEN value`.
    pub(super) const fn alternative(token: &'static CStr, name: &'static CStr, kind: ArgumentKind) -> Argument {
        Argument { token: Some(token), ..Argument::required(name, kind) }
    }

    /// Returns the required argument `TOKEN`.
    pub(super) const fn token(token: &'static CStr, name: &'static CStr) -> Argument {
        Argument::alternative(token, name, ArgumentKind::Token)
    }

    /// Returns the optional argument `TOKEN`.
    pub(super) const fn flag(token: &'static CStr, name: &'static CStr) -> Argument {
        Argument::option(token, name, ArgumentKind::Token)
    }

    pub(super) const fn items(token: Option<&'static CStr>) -> Argument {
        Argument { token, multiple: true, ..Argument::required(c"item", ArgumentKind::String) }
    }

    /// Returns the arguments of a command that only takes a key and items, as many as its arity says.
    pub(super) const fn items_of(arity: Arity) -> fn() -> Vec<Argument> {
        match arity.max {
            2 => Vec::new,
            3 => || vec![Argument::required(c"item", ArgumentKind::String)],
            _ => || vec![Argument::items(None)],
        }
    }

    /// Returns true if the argument starts with this token, which may be that of an alternative.
    pub(super) fn starts_with(&self, token: &[u8]) -> bool {
        match (self.token, self.kind) {
            (Some(own), _) => token.eq_ignore_ascii_case(own.to_bytes()),
            (None, ArgumentKind::OneOf(alternatives)) => {
                alternatives.iter().any(|argument| argument.starts_with(token))
            }
            (None, _) => false,
        }
    }
}

/// Registers the commands of a family. The error is the name of the first command that the server rejects.
pub(super) fn register(ctx: &Context, family: &Family, commands: &[Command]) -> Result<(), &'static CStr> {
    if feature::ACL_CATEGORIES.is_offered() && !add_category(ctx, family.category()) {
        return Err(family.category());
    }
    let is_beside_another = !names().are_usual();
    for command in commands.iter().filter(|command| command.access != Access::Import || is_beside_another) {
        if !command.register(ctx) {
            return Err(command.route.name());
        }
    }
    Ok(())
}

/// Adds an ACL category, unless the server already has it: it keeps the categories of unloaded modules.
fn add_category(ctx: &Context, name: &CStr) -> bool {
    // SAFETY: the context is alive, and the name ends with a NUL.
    let status = unsafe { call!(RedisModule_AddACLCategory(ctx.as_raw(), name.as_ptr())) };
    status == OK || std::io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY)
}

impl Command {
    fn register(&self, ctx: &Context) -> bool {
        // Errors of arity show the name as it is registered, and valkey-bloom registers it in upper case.
        let name = match self.route.family.dialect() {
            Dialect::RedisBloom => self.route.name(),
            Dialect::ValkeyBloom => self.route.family.replicated_name(self.route.verb),
        };
        let name = name.as_ptr();
        let flags = self.flags();
        let callback = Some(self.callback);
        let last_key = if self.keys == Keys::AndNew { 2 } else { 1 };
        // SAFETY: the context is alive, the texts end with a NUL and are copied, and the callback is of the type that
        // the server expects.
        let status =
            unsafe { call!(RedisModule_CreateCommand(ctx.as_raw(), name, callback, flags.as_ptr(), 1, last_key, 1)) };
        // SAFETY: the context is alive, and the name ends with a NUL. The command exists until the module is unloaded.
        let command = || unsafe { call!(RedisModule_GetCommand(ctx.as_raw(), name)) };
        let categories = self.categories();
        status == OK
            // SAFETY: this is a command of ours.
            && (!feature::COMMAND_INFO.is_offered() || unsafe { self.describe(command()) })
            && (!feature::ACL_CATEGORIES.is_offered()
                // SAFETY: this is a command of ours, and the names end with a NUL.
                || unsafe { call!(RedisModule_SetCommandACLCategories(command(), categories.as_ptr())) } == OK)
    }

    fn is_fast(&self) -> bool {
        self.complexity.to_bytes().starts_with(b"O(1)")
    }

    fn flags(&self) -> CString {
        let kind = match self.access {
            Access::Read => "readonly",
            Access::Remove => "write",
            Access::Insert | Access::Update | Access::Merge | Access::Import => "write deny-oom",
        };
        // A cluster asks the command itself for its keys, even if the key specifications are complete.
        let asked = if self.keys.others().is_none() { "" } else { "getkeys-api" };
        join(&[kind, if self.is_fast() { "fast" } else { "" }, asked])
    }

    fn categories(&self) -> CString {
        let kind = if self.access == Access::Read { "read" } else { "write" };
        join(&[&self.route.family.category().to_string_lossy(), kind, if self.is_fast() { "fast" } else { "slow" }])
    }

    /// Returns what clients should know about the replies. A client that tracks keys may cache a reply until the key is
    /// written to: some replies change before that, and large ones are not worth it.
    fn tips(&self) -> Option<&'static CStr> {
        let varies = match self.route.verb {
            Verb::Info | Verb::Debug | Verb::Scandump | Verb::Changes => true,
            Verb::Exists | Verb::Mexists | Verb::Existspacked | Verb::Card => self.route.family.has_windows,
            _ => false,
        };
        varies.then_some(c"dont_cache")
    }

    /// Describes the command to the server.
    ///
    /// # Safety
    ///
    /// `command` must be the server's handle of the command.
    unsafe fn describe(&self, command: *mut raw::RedisModuleCommand) -> bool {
        const VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
            version: 1,
            sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
            sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
            sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
        };
        let mut key_specs = self.key_specs();
        let mut lists = Vec::new();
        let key = Argument::required(c"key", ArgumentKind::Key(0));
        let arguments: Vec<_> = [key].into_iter().chain((self.arguments)()).collect();
        let summary = CString::new(named(&self.summary.to_string_lossy()).to_string()).unwrap_or_default();
        let info = raw::RedisModuleCommandInfo {
            version: &VERSION,
            summary: summary.as_ptr(),
            complexity: self.complexity.as_ptr(),
            since: c"0.1.0".as_ptr(),
            history: ptr::null_mut(),
            tips: self.tips().map_or(ptr::null(), CStr::as_ptr),
            arity: self.route.arity.as_server_counts(),
            key_specs: key_specs.as_mut_ptr(),
            args: raw_arguments(&arguments, &mut lists),
        };
        // SAFETY: as promised by the caller. The server copies all of it, and finds the end of each list.
        let status = unsafe { call!(RedisModule_SetCommandInfo(command, &info)) };
        let by_keyword = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD;
        for keys in key_specs.iter().filter(|keys| keys.begin_search_type == by_keyword) {
            // SAFETY: the keyword was a `CString`, which nobody else frees.
            drop(unsafe { CString::from_raw(keys.bs.keyword.keyword.cast_mut()) });
        }
        status == OK
    }

    /// Returns the specifications of the keys: of the first, of others if there are any, and one that ends the list.
    fn key_specs(&self) -> Vec<raw::RedisModuleCommandKeySpec> {
        let keys =
            |flags: c_int, start, found| KeySpec::new(None, KeySpecFlags::from_bits_retain(flags as u32), start, found);
        let (at, one) = (BeginSearch::new_index, || FindKeys::new_range(0, 1, 0));
        let others = match self.keys {
            Keys::One => None,
            Keys::AndNew => Some(keys(Access::Update.key_flags(), at(2), one())),
            // LIKE may also be the value of another argument. INCOMPLETE makes the server ask the command itself.
            Keys::AndLike => {
                let flags = OTHER_KEY_FLAGS | raw::REDISMODULE_CMD_KEY_INCOMPLETE as c_int;
                Some(keys(flags, BeginSearch::new_keyword("LIKE".to_owned(), 2), one()))
            }
            Keys::AndNumbered => Some(keys(OTHER_KEY_FLAGS, at(2), FindKeys::new_keys_num(0, 1, 1))),
        };
        // The first key comes right after the command's name.
        let first = keys(self.access.key_flags(), at(1), one());
        get_redis_key_spec([Some(first), others].into_iter().flatten().collect())
    }
}

/// Returns arguments in the form that the server reads, ended by an empty one. `lists` owns them, and the lists of
/// sub-arguments that they point to.
fn raw_arguments(
    arguments: &[Argument],
    lists: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> *mut raw::RedisModuleCommandArg {
    let mut list: Vec<_> = arguments
        .iter()
        .map(|argument| {
            let parts = match argument.kind {
                ArgumentKind::OneOf(parts) => parts.to_vec(),
                ArgumentKind::Block(parts) => parts(),
                _ => Vec::new(),
            };
            let optional = if argument.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { 0 };
            let multiple = if argument.multiple { raw::REDISMODULE_CMD_ARG_MULTIPLE } else { 0 };
            raw::RedisModuleCommandArg {
                name: argument.name.as_ptr(),
                type_: argument.kind.as_raw(),
                key_spec_index: if let ArgumentKind::Key(index) = argument.kind { index } else { -1 },
                token: argument.token.map_or(ptr::null(), CStr::as_ptr),
                flags: (optional | multiple) as c_int,
                subargs: if parts.is_empty() { ptr::null_mut() } else { raw_arguments(&parts, lists) },
                ..NO_ARGUMENT
            }
        })
        .collect();
    list.push(NO_ARGUMENT);
    let start = list.as_mut_ptr();
    lists.push(list);
    start
}

/// The end of a list of arguments.
// SAFETY: the fields are numbers and pointers, which may be 0.
const NO_ARGUMENT: raw::RedisModuleCommandArg = unsafe { mem::zeroed() };

impl ArgumentKind {
    fn as_raw(self) -> raw::RedisModuleCommandArgType {
        match self {
            ArgumentKind::Key(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            ArgumentKind::String => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            ArgumentKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            ArgumentKind::Double => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_DOUBLE,
            ArgumentKind::UnixTime => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_UNIX_TIME,
            ArgumentKind::Token => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            ArgumentKind::OneOf(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
            ArgumentKind::Block(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
        }
    }
}

fn join(words: &[&str]) -> CString {
    let words: Vec<_> = words.iter().copied().filter(|word| !word.is_empty()).collect();
    CString::new(words.join(" ")).unwrap_or_default()
}
