//! A fake server: as much of one as the module sees, so that the whole module runs in one process, without a socket.
//!
//! It calls the module as a server does, and is suspicious of what the module does in return: each key that is opened must be
//! one that the command names, and is closed again; what is created is freed; a reply is whole; nothing panics.
//!
//! ```text
//!  run(space, words) ── callback ──► module ── OpenKey, ReplyWith…, Replicate ──► STATE ──► Outcome
//! ```
//!
//! There is one for the process, as the module keeps the server's functions in statics; it is for one thread.
//!
//! What the functions are told by the module they take for sound, as a server does: that pointers are what they were when they
//! were handed out, texts end with a NUL, and buffers are as long as they are said to be.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uchar, c_uint, c_ulonglong, c_void};
use std::ptr;

use oxbloom::RedisModule_OnLoad;
use oxbloom_filter::Filter;
use oxbloom_filter::codec::{Sink, Source};
use redis_module::raw;

use super::decoding::{Reader, Writer};

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// Which functions the server has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// As Redis 6.2.
    Old,
    /// As Redis 8.
    New,
}

/// In what state a command finds the server, and for whom it runs.
#[derive(Clone, Copy, Default)]
pub struct Circumstances {
    /// `REDISMODULE_CTX_FLAGS_…`
    pub flags: u32,
    /// Zeroed memory cannot be had.
    pub poor: bool,
    /// As much of `maxmemory` is used as there is, but for a KiB.
    pub full: bool,
}

/// What came of a command.
pub struct Outcome {
    pub reply: Reply,
    /// What replicas and the append-only file get.
    pub replicated: Vec<Words>,
    /// The keys that are said to have changed.
    pub signalled: BTreeSet<Vec<u8>>,
}

/// A reply.
#[derive(Debug, PartialEq)]
pub enum Reply {
    Null,
    Integer(i64),
    Double(f64),
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<Reply>),
}

/// What a reply is made of.
enum Part {
    Whole(Reply),
    Array(usize),
    Map(usize),
}

impl Reply {
    fn of(parts: &mut impl Iterator<Item = Part>) -> Reply {
        match parts.next().expect("a reply that is whole") {
            Part::Whole(reply) => reply,
            Part::Array(length) => Reply::Array((0..length).map(|_| Reply::of(parts)).collect()),
            Part::Map(length) => Reply::Map((0..2 * length).map(|_| Reply::of(parts)).collect()),
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Reply::Error(_))
    }

    /// The elements of an array, or the reply as the only one.
    pub fn elements(&self) -> &[Reply] {
        if let Reply::Array(elements) = self { elements } else { std::slice::from_ref(self) }
    }

    /// The numbers among the elements. An error among them is the last.
    pub fn integers(&self) -> Vec<i64> {
        let number = |reply: &Reply| if let Reply::Integer(number) = reply { Some(*number) } else { None };
        self.elements().iter().filter_map(number).collect()
    }
}

/// What is behind a key.
enum Value {
    Text,
    /// Of one of the module's types, by number.
    Module(usize, *mut c_void),
}

struct DataType {
    version: c_int,
    methods: raw::RedisModuleTypeMethods,
}

#[derive(Clone, Copy)]
struct Command {
    callback: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut *mut raw::RedisModuleString, c_int) -> c_int,
    writes: bool,
    /// Whether it is asked where its keys are.
    is_asked: bool,
}

type Getter<T> = Option<unsafe extern "C" fn(*const c_char, *mut c_void) -> T>;
type Setter<T> = Option<unsafe extern "C" fn(*const c_char, T, *mut c_void, *mut *mut raw::RedisModuleString) -> c_int>;

/// A setting, by how it is read and written.
#[derive(Clone)]
enum Setting {
    Text(Getter<*mut raw::RedisModuleString>, Setter<*mut raw::RedisModuleString>),
    Number(Getter<c_longlong>, Setter<c_longlong>, *mut c_void, std::ops::RangeInclusive<c_longlong>),
    Choice(Getter<c_int>, Setter<c_int>, *mut c_void, Vec<(Vec<u8>, c_int)>),
}

/// An open key.
struct Key {
    name: Vec<u8>,
    is_writable: bool,
}

/// A file or payload that is read or written, or an append-only file.
struct Stream<'a> {
    rest: Reader<'a>,
    written: Writer,
    failed: bool,
    commands: Vec<Words>,
}

/// The command that is running.
#[derive(Default)]
struct Call {
    circumstances: Circumstances,
    space: usize,
    words: Words,
    /// Where the keys are that it may open.
    keys: BTreeSet<usize>,
    /// Whether it is asked for them.
    is_request: bool,
    may_write: bool,
    parts: Vec<Part>,
    replicated: Vec<Words>,
    signalled: BTreeSet<Vec<u8>>,
}

/// The key spaces: that of the server, and those of others that follow it.
pub const SPACES: usize = 3;

#[derive(Default)]
struct State {
    commands: BTreeMap<Vec<u8>, Command>,
    types: Vec<DataType>,
    settings: BTreeMap<Vec<u8>, Setting>,
    /// What is shown each command before it runs. Is there for good: the module registers it once.
    filters: Vec<unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx)>,
    spaces: [BTreeMap<Vec<u8>, Value>; SPACES],
    call: Call,
    warnings: Vec<String>,
    /// What the module shows in INFO, asked for by this.
    info: Option<unsafe extern "C" fn(*mut raw::RedisModuleInfoCtx, c_int)>,
    figures: BTreeMap<String, u64>,
    /// How many strings and keys there are that the module has to give back.
    strings: usize,
    keys: usize,
    random: u64,
    moves: u64,
    /// True while a listener runs.
    is_listening: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
    static AGE: Cell<Age> = const { Cell::new(Age::New) };
    /// Whether zeroed memory cannot be had.
    static POOR: Cell<bool> = const { Cell::new(false) };
}

fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(f)
}

/// Loads the module anew, with the arguments of `loadmodule`. What it logged if it refuses.
pub fn load(age: Age, arguments: &[Vec<u8>]) -> Result<(), String> {
    flush();
    with(|state| *state = State { filters: std::mem::take(&mut state.filters), ..State::default() });
    AGE.set(age);
    let strings = Strings::new(arguments);
    // SAFETY: a context, and as many strings, for the time of the call.
    let status = unsafe { RedisModule_OnLoad(context(), strings.0.as_ptr().cast_mut(), strings.0.len() as c_int) };
    drop(strings);
    let warnings = check_given_back();
    if status == OK { Ok(()) } else { Err(warnings.join("\n")) }
}

/// Runs a command of the module; `None` if it has none of this name.
pub fn run(space: usize, words: &[Vec<u8>], circumstances: Circumstances) -> Option<Outcome> {
    let name = words.first()?.to_ascii_lowercase();
    let command = with(|state| state.commands.get(&name).copied())?;
    let strings = Strings::new(words);
    let filters = with(|state| state.filters.clone());
    // SAFETY: a command's strings, for the time of the call.
    filters.iter().for_each(|filter| unsafe { filter(ptr::from_ref(&strings).cast_mut().cast()) });
    let call = Call { circumstances, space, words: words.to_vec(), is_request: true, ..Call::default() };
    with(|state| state.call = call);
    if command.is_asked {
        command.call(&strings);
    }
    with(|state| {
        let call = &mut state.call;
        call.is_request = false;
        call.may_write = command.writes;
        if !command.is_asked {
            call.keys.insert(1);
        }
        assert!(!command.is_asked || call.keys.iter().all(|&position| position < call.words.len()));
    });
    command.call(&strings);
    drop(strings);
    check_given_back();
    let Call { parts, replicated, signalled, .. } = with(|state| std::mem::take(&mut state.call));
    let mut parts = parts.into_iter();
    let reply = Reply::of(&mut parts);
    assert!(parts.next().is_none(), "more than a reply to {words:?}");
    assert!(command.writes || replicated.is_empty() && signalled.is_empty());
    Some(Outcome { reply, replicated, signalled })
}

impl Command {
    fn call(self, strings: &Strings) {
        // SAFETY: a context, and as many strings, for the time of the call.
        let status = in_their_circumstances(|| unsafe {
            (self.callback)(context(), strings.0.as_ptr().cast_mut(), strings.0.len() as c_int)
        });
        assert_eq!(status, OK);
    }
}

/// Calls the module where the present call says so without memory.
fn in_their_circumstances<T>(call: impl FnOnce() -> T) -> T {
    POOR.set(with(|state| state.call.circumstances.poor));
    let value = call();
    POOR.set(false);
    value
}

/// Panics if the module kept anything, or panicked itself. What it warned of.
fn check_given_back() -> Vec<String> {
    let (keys, strings, warnings) = with(|state| (state.keys, state.strings, std::mem::take(&mut state.warnings)));
    assert_eq!((keys, strings), (0, 0), "keys and strings that were not given back");
    warnings
}

/// The keys of a space, in order.
pub fn keys(space: usize) -> Vec<Vec<u8>> {
    with(|state| state.spaces[space].keys().cloned().collect())
}

/// All that can be told of a filter: two that agree in it are the same. `None` if there is no filter.
pub fn digest(space: usize, key: &[u8]) -> Option<Vec<u8>> {
    let (_, value, methods) = module_value(space, key)?;
    let mut digest = Vec::new();
    let usage = methods.mem_usage.expect("a callback");
    let effort = methods.free_effort.expect("a callback");
    // SAFETY: one of the module's values, and a digest for the time of the call.
    unsafe {
        methods.digest.expect("a callback")(ptr::from_mut(&mut digest).cast(), value);
        assert!(usage(value) > 0 && effort(ptr::null_mut(), value) > 0);
    }
    check_given_back();
    Some(digest)
}

/// How many bytes a filter would take for its next layer; 0 if there is no filter.
pub fn next_layer(space: usize, key: &[u8]) -> u64 {
    let Some((_, value, _)) = module_value(space, key) else { return 0 };
    // SAFETY: a value of the module's types is a filter, and nobody else uses it now.
    let filter = unsafe { &mut *value.cast::<Filter>() };
    let mut wanted = 0;
    let refused = filter.grow(|bytes| {
        wanted = bytes;
        false
    });
    assert!(refused.is_err());
    wanted
}

/// Panics unless INFO shows as many filters, layers, bytes and items as there are.
pub fn check_figures() {
    let mut expected = [0; 4];
    for space in 0..SPACES {
        for (_, value, _) in keys(space).iter().filter_map(|key| module_value(space, key)) {
            // SAFETY: a value of the module's types is a filter, and nobody changes it now.
            let filter = unsafe { &*value.cast::<Filter>() };
            let weights = [1, filter.depth() as u64, filter.memory_usage() as u64, filter.items()];
            // As the module does: a payload may claim any number of items.
            expected.iter_mut().zip(weights).for_each(|(sum, weight): (&mut u64, _)| *sum = sum.wrapping_add(weight));
        }
    }
    let show = with(|state| state.info).expect("a callback");
    // SAFETY: a context that is only handed back.
    unsafe { show(ptr::null_mut(), 0) };
    let shown = with(|state| ["filters", "layers", "bytes", "items"].map(|name| state.figures[name]));
    assert_eq!(shown, expected, "filters, layers, bytes and items");
}

/// The type and the value of a key, if it is one of the module's.
fn module_value(space: usize, key: &[u8]) -> Option<(usize, *mut c_void, raw::RedisModuleTypeMethods)> {
    with(|state| match state.spaces[space].get(key) {
        Some(&Value::Module(data_type, value)) => Some((data_type, value, state.types[data_type].methods)),
        _ => None,
    })
}

/// Makes a text the value of a key.
pub fn set_text(space: usize, key: &[u8]) {
    put(space, key, Value::Text);
}

fn put(space: usize, key: &[u8], value: Value) {
    delete(space, key);
    with(|state| state.spaces[space].insert(key.to_vec(), value));
}

/// Deletes a key, if it is there.
pub fn delete(space: usize, key: &[u8]) {
    let free = module_value(space, key).map(|(_, _, methods)| methods.free.expect("a callback"));
    let value = with(|state| state.spaces[space].remove(key));
    if let (Some(free), Some(Value::Module(_, value))) = (free, value) {
        // SAFETY: one of the module's values, which is used no more.
        unsafe { free(value) };
        check_given_back();
    }
}

/// Deletes everything.
pub fn flush() {
    (0..SPACES).for_each(|space| keys(space).iter().for_each(|key| delete(space, key)));
}

/// Gives a key another name. Whether it was there.
pub fn rename(space: usize, from: &[u8], to: &[u8]) -> bool {
    let value = with(|state| state.spaces[space].remove(from));
    value.map(|value| put(space, to, value)).is_some()
}

/// Copies a filter. Whether it could be.
pub fn copy(space: usize, from: &[u8], to: &[u8], circumstances: Circumstances) -> bool {
    let Some((data_type, value, methods)) = module_value(space, from) else { return false };
    with(|state| state.call = Call { circumstances, space, ..Call::default() });
    let names = Strings::new(&[from.to_vec(), to.to_vec()]);
    // SAFETY: one of the module's values, and names for the time of the call.
    let copy = in_their_circumstances(|| unsafe { methods.copy.expect("a callback")(names.0[0], names.0[1], value) });
    drop(names);
    check_given_back();
    if !copy.is_null() {
        put(space, to, Value::Module(data_type, copy));
    }
    !copy.is_null()
}

/// The type of a filter, by number, and its file.
pub fn save(space: usize, key: &[u8]) -> Option<(usize, Vec<u8>)> {
    let (data_type, value, methods) = module_value(space, key)?;
    let mut stream = Stream::reading(&[]);
    // SAFETY: one of the module's values, and a stream for the time of the call.
    unsafe { methods.rdb_save.expect("a callback")(stream.as_raw(), value) };
    check_given_back();
    Some((data_type, stream.written.0))
}

/// Replaces a key with what a file holds, of a version other than the present by so many. Whether it was sound.
pub fn restore(
    space: usize,
    key: &[u8],
    (data_type, file): (usize, &[u8]),
    versions_on: c_int,
    circumstances: Circumstances,
) -> bool {
    let Some((version, methods)) =
        with(|state| state.types.get(data_type).map(|data_type| (data_type.version, data_type.methods)))
    else {
        return false;
    };
    with(|state| state.call = Call { circumstances, space, ..Call::default() });
    let mut stream = Stream::reading(file);
    // SAFETY: a stream for the time of the call.
    let load = methods.rdb_load.expect("a callback");
    let value = in_their_circumstances(|| unsafe { load(stream.as_raw(), version + versions_on) });
    check_given_back();
    if value.is_null() {
        return false;
    }
    // A server refuses a payload that was cut short or goes on, whatever the module says.
    if stream.failed || !stream.rest.0.is_empty() {
        // SAFETY: one of the module's values, which is used no more.
        unsafe { methods.free.expect("a callback")(value) };
        return false;
    }
    put(space, key, Value::Module(data_type, value));
    true
}

/// The commands that make a filter again.
pub fn rewrite(space: usize, key: &[u8]) -> Vec<Words> {
    let Some((_, value, methods)) = module_value(space, key) else { return Vec::new() };
    let mut stream = Stream::reading(&[]);
    let name = Strings::new(&[key.to_vec()]);
    // SAFETY: one of the module's values, a stream and a name for the time of the call.
    unsafe { methods.aof_rewrite.expect("a callback")(stream.as_raw(), name.0[0], value) };
    drop(name);
    check_given_back();
    stream.commands
}

/// Moves the allocations of a filter, or some of them.
pub fn defragment(space: usize, key: &[u8]) {
    relocate(space, key);
    check_given_back();
}

fn relocate(space: usize, key: &[u8]) {
    let Some((data_type, mut value, methods)) = module_value(space, key) else { return };
    let name = Strings::new(&[key.to_vec()]);
    // SAFETY: the place of one of the module's values, and a name for the time of the call.
    let status = unsafe { methods.defrag.expect("a callback")(ptr::null_mut(), name.0[0], &raw mut value) };
    assert_eq!(status, 0);
    drop(name);
    with(|state| state.spaces[space].insert(key.to_vec(), Value::Module(data_type, value)));
}

/// Raises a keyspace event in the middle of the module's call: its listener moves every filter, and runs a command of the
/// module on the key. As in a server, what a listener does raises no event.
fn raise_event(key: &[u8]) {
    if with(|state| std::mem::replace(&mut state.is_listening, true)) {
        return;
    }
    let space = with(|state| state.call.space);
    keys(space).iter().for_each(|key| relocate(space, key));
    let poor = POOR.get();
    let (call, keys, strings, warnings) = with(|state| {
        use std::mem::take;
        (take(&mut state.call), take(&mut state.keys), take(&mut state.strings), take(&mut state.warnings))
    });
    run(space, &[b"BF.EXISTS".to_vec(), key.to_vec(), b"item".to_vec()], Circumstances::default());
    with(|state| {
        (state.call, state.keys, state.strings, state.warnings) = (call, keys, strings, warnings);
        state.is_listening = false;
    });
    POOR.set(poor);
}

/// A setting as CONFIG GET shows it, if there is one of this name.
pub fn configured(name: &[u8]) -> Option<Vec<u8>> {
    let setting = with(|state| state.settings.get(name).cloned())?;
    let name = c"".as_ptr();
    // SAFETY: what the module registered, called as it wants it.
    let shown = unsafe {
        match setting {
            Setting::Text(get, _) => {
                let shown = text(get.expect("a callback")(name, ptr::null_mut())).to_vec();
                // The string is the module's until the next is shown.
                with(|state| state.strings = 0);
                shown
            }
            Setting::Number(get, _, private, _) => get.expect("a callback")(name, private).to_string().into_bytes(),
            Setting::Choice(get, _, private, choices) => {
                let number = get.expect("a callback")(name, private);
                choices.into_iter().find(|choice| choice.1 == number).expect("a choice").0
            }
        }
    };
    check_given_back();
    Some(shown)
}

/// Changes a setting as CONFIG SET does. Whether it could be.
pub fn configure(name: &[u8], value: &[u8]) -> bool {
    let Some(setting) = with(|state| state.settings.get(name).cloned()) else { return false };
    let (any_name, mut message) = (c"".as_ptr(), ptr::null_mut());
    // SAFETY: what the module registered, called as it wants it, with strings for the time of the call.
    let status = unsafe {
        match setting {
            Setting::Text(_, set) => {
                let strings = Strings::new(&[value.to_vec()]);
                set.expect("a callback")(any_name, strings.0[0], ptr::null_mut(), &raw mut message)
            }
            Setting::Number(_, set, private, range) => {
                let Some(number) = whole_number(value).filter(|value| range.contains(value)) else { return false };
                set.expect("a callback")(any_name, number, private, &raw mut message)
            }
            Setting::Choice(_, set, private, choices) => {
                let choice = choices.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
                let Some(&(_, choice)) = choice else { return false };
                set.expect("a callback")(any_name, choice, private, &raw mut message)
            }
        }
    };
    assert_eq!(status == OK, message.is_null());
    if !message.is_null() {
        free_string(ptr::null_mut(), message);
    }
    check_given_back();
    if status == OK {
        let shown = configured(name).expect("what was just set");
        assert!(shown.eq_ignore_ascii_case(value) || number(&shown).is_some_and(|shown| Some(shown) == number(value)));
    }
    status == OK
}

/// Strings of the server's own.
struct Strings(Vec<*mut raw::RedisModuleString>);

impl Strings {
    fn new(words: &[Vec<u8>]) -> Strings {
        Strings(words.iter().map(|word| Box::into_raw(Box::new(word.clone().into_boxed_slice())).cast()).collect())
    }
}

impl Drop for Strings {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and given back by the module.
        self.0.iter().for_each(|&string| drop(unsafe { Box::from_raw(string.cast::<Box<[u8]>>()) }));
    }
}

impl<'a> Stream<'a> {
    fn reading(file: &'a [u8]) -> Stream<'a> {
        Stream { rest: Reader(file), written: Writer::default(), failed: false, commands: Vec::new() }
    }

    fn as_raw(&mut self) -> *mut raw::RedisModuleIO {
        ptr::from_mut(self).cast()
    }

    fn check<T>(&mut self, read: Result<T, oxbloom_filter::codec::DecodeError>) -> Option<T> {
        self.failed |= read.is_err();
        read.ok()
    }
}

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// What a context starts with is all that is looked at of it.
#[repr(transparent)]
struct Context(unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int);

static CONTEXT: Context = Context(get_api);

fn context() -> *mut raw::RedisModuleCtx {
    ptr::from_ref(&CONTEXT).cast_mut().cast()
}

/// Functions that came after Redis 6.2.
const LATER: &[&str] = &[
    "RedisModule_AddACLCategory",
    "RedisModule_GetCommand",
    "RedisModule_KeyAtPosWithFlags",
    "RedisModule_LoadConfigs",
    "RedisModule_RegisterEnumConfig",
    "RedisModule_RegisterNumericConfig",
    "RedisModule_RegisterStringConfig",
    "RedisModule_ReplyWithBool",
    "RedisModule_ReplyWithMap",
    "RedisModule_SetCommandACLCategories",
    "RedisModule_SetCommandInfo",
    "RedisModule_TryAlloc",
    "RedisModule_TryCalloc",
    "RedisModule_TryRealloc",
];

unsafe extern "C" fn get_api(name: *const c_char, place: *mut c_void) -> c_int {
    // SAFETY: the name of a function, and the place for it.
    let (name, place) = unsafe { (CStr::from_ptr(name), &mut *place.cast::<*const c_void>()) };
    let name = name.to_str().expect("a name");
    let is_missing = AGE.get() == Age::Old && LATER.contains(&name);
    *place = if is_missing { ptr::null() } else { function(name) };
    if place.is_null() { ERR } else { OK }
}

/// A function, if it is of the type that the module takes it for.
fn typed<F>(_expected: Option<F>, function: F) -> F {
    function
}

macro_rules! functions {
    ({ $($name:ident: $function:expr,)* } variadic { $($variadic:ident: $fixed:expr,)* }) => {
        /// The function of a name; null if there is none.
        fn function(name: &str) -> *const c_void {
            match name {
                // SAFETY: only the type of what is there is looked at.
                $(stringify!($name) => typed(unsafe { raw::$name }, $function) as *const c_void,)*
                $(stringify!($variadic) => $fixed as *const c_void,)*
                _ => ptr::null(),
            }
        }
    };
}

functions! {
{
    RedisModule_AddACLCategory: add_acl_category,
    RedisModule_Alloc: alloc,
    RedisModule_Calloc: calloc,
    RedisModule_CloseKey: close_key,
    RedisModule_CommandFilterArgGet: command_filter_arg_get,
    RedisModule_CommandFilterArgsCount: command_filter_args_count,
    RedisModule_CreateCommand: create_command,
    RedisModule_CreateDataType: create_data_type,
    RedisModule_CreateString: create_string,
    RedisModule_DefragAlloc: defrag_alloc,
    RedisModule_DigestAddStringBuffer: digest_add_string_buffer,
    RedisModule_DigestEndSequence: digest_end_sequence,
    RedisModule_Free: free,
    RedisModule_FreeServerInfo: free_server_info,
    RedisModule_FreeString: free_string,
    RedisModule_GetClientId: get_client_id,
    RedisModule_GetCommand: get_command,
    RedisModule_GetContextFlags: get_context_flags,
    RedisModule_GetKeyNameFromIO: get_key_name_from_io,
    RedisModule_GetRandomBytes: get_random_bytes,
    RedisModule_GetServerInfo: get_server_info,
    RedisModule_GetUsedMemoryRatio: get_used_memory_ratio,
    RedisModule_InfoAddFieldCString: info_add_field_c_string,
    RedisModule_InfoAddFieldULongLong: info_add_field_ulong_long,
    RedisModule_InfoAddSection: info_add_section,
    RedisModule_InfoBeginDictField: info_begin_dict_field,
    RedisModule_InfoEndDictField: info_end_dict_field,
    RedisModule_IsIOError: is_io_error,
    RedisModule_IsKeysPositionRequest: is_keys_position_request,
    RedisModule_IsModuleNameBusy: is_module_name_busy,
    RedisModule_KeyAtPos: key_at_pos,
    RedisModule_KeyAtPosWithFlags: key_at_pos_with_flags,
    RedisModule_KeyType: key_type,
    RedisModule_LoadConfigs: load_configs,
    RedisModule_LoadDouble: load_double,
    RedisModule_LoadStringBuffer: load_string_buffer,
    RedisModule_LoadUnsigned: load_unsigned,
    RedisModule_Milliseconds: milliseconds,
    RedisModule_ModuleTypeGetType: module_type_get_type,
    RedisModule_ModuleTypeGetValue: module_type_get_value,
    RedisModule_ModuleTypeSetValue: module_type_set_value,
    RedisModule_NotifyKeyspaceEvent: notify_keyspace_event,
    RedisModule_OpenKey: open_key,
    RedisModule_Realloc: realloc,
    RedisModule_RegisterCommandFilter: register_command_filter,
    RedisModule_RegisterEnumConfig: register_enum_config,
    RedisModule_RegisterInfoFunc: register_info_func,
    RedisModule_RegisterNumericConfig: register_numeric_config,
    RedisModule_RegisterStringConfig: register_string_config,
    RedisModule_ReplicateVerbatim: replicate_verbatim,
    RedisModule_ReplyWithArray: reply_with_array,
    RedisModule_ReplyWithBool: reply_with_bool,
    RedisModule_ReplyWithDouble: reply_with_double,
    RedisModule_ReplyWithError: reply_with_error,
    RedisModule_ReplyWithLongLong: reply_with_long_long,
    RedisModule_ReplyWithMap: reply_with_map,
    RedisModule_ReplyWithNull: reply_with_null,
    RedisModule_ReplyWithSimpleString: reply_with_simple_string,
    RedisModule_ReplyWithStringBuffer: reply_with_string_buffer,
    RedisModule_SaveDouble: save_double,
    RedisModule_SaveStringBuffer: save_string_buffer,
    RedisModule_SaveUnsigned: save_unsigned,
    RedisModule_ServerInfoGetFieldUnsigned: server_info_get_field_unsigned,
    RedisModule_SetCommandACLCategories: set_command_acl_categories,
    RedisModule_SetCommandInfo: set_command_info,
    RedisModule_SetModuleAttribs: set_module_attribs,
    RedisModule_SetModuleOptions: set_module_options,
    RedisModule_SignalModifiedKey: signal_modified_key,
    RedisModule_StringPtrLen: string_ptr_len,
    RedisModule_StringToDouble: string_to_double,
    RedisModule_StringToLongLong: string_to_long_long,
    RedisModule_TryAlloc: alloc,
    RedisModule_TryCalloc: try_calloc,
    RedisModule_TryRealloc: realloc,
    RedisModule_WrongArity: wrong_arity,
}
// Rust cannot define functions that take any arguments. These take those that the module gives them, which are passed the
// same way on Linux.
variadic {
    RedisModule_EmitAOF: emit_aof as unsafe extern "C" fn(_, _, _, _, _, _, _),
    RedisModule_Log: log as unsafe extern "C" fn(_, _, _, _),
    RedisModule_Replicate: replicate as unsafe extern "C" fn(_, _, _, _, _, _) -> _,
}
}

/// The bytes of a string.
///
/// # Safety
///
/// It must have been handed out, and not be given back during `'a`.
unsafe fn text<'a>(string: *const raw::RedisModuleString) -> &'a [u8] {
    // SAFETY: as promised by the caller.
    unsafe { &*string.cast::<Box<[u8]>>() }
}

/// # Safety
///
/// As of `slice::from_raw_parts`, but that it may be null if it is empty.
unsafe fn buffer<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts(start.cast(), length) }
}

/// # Safety
///
/// As of `CStr::from_ptr`.
unsafe fn bytes(text: *const c_char) -> Vec<u8> {
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(text) }.to_bytes().to_vec()
}

/// A whole number as the server reads it.
pub fn whole_number(text: &[u8]) -> Option<i64> {
    let digits = std::str::from_utf8(text).ok()?;
    let number: i64 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// A number as the server reads it.
fn number(text: &[u8]) -> Option<f64> {
    let is_range_error = |number: f64| {
        std::io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE) && (number.is_infinite() || number == 0.0)
    };
    if text.first().is_none_or(|first| first.is_ascii_whitespace() || *first == 0x0B) {
        return None;
    }
    let copy = [text, b"\0"].concat();
    let mut end = ptr::null_mut();
    // SAFETY: a text that ends with a NUL, and a place for where the number ends.
    let number = unsafe {
        *libc::__errno_location() = 0;
        libc::strtod(copy.as_ptr().cast(), &raw mut end)
    };
    let is_all = end.addr() - copy.as_ptr().addr() == text.len();
    (is_all && !number.is_nan() && !is_range_error(number)).then_some(number)
}

// Loading.

unsafe extern "C" fn is_module_name_busy(_name: *const c_char) -> c_int {
    0
}

unsafe extern "C" fn set_module_attribs(_: *mut raw::RedisModuleCtx, _: *const c_char, _: c_int, _: c_int) {}

unsafe extern "C" fn set_module_options(_ctx: *mut raw::RedisModuleCtx, _options: c_int) {}

unsafe extern "C" fn add_acl_category(_ctx: *mut raw::RedisModuleCtx, _name: *const c_char) -> c_int {
    OK
}

unsafe extern "C" fn create_command(
    _ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    callback: raw::RedisModuleCmdFunc,
    flags: *const c_char,
    first_key: c_int,
    last_key: c_int,
    step: c_int,
) -> c_int {
    assert_eq!((first_key, last_key, step), (1, 1, 1));
    // SAFETY: texts of the module's.
    let (name, flags) = unsafe { (bytes(name), bytes(flags)) };
    let has = |flag: &[u8]| flags.split(|&byte| byte == b' ').any(|given| given == flag);
    assert!(has(b"write") != has(b"readonly"));
    let callback = callback.expect("a callback");
    let command = Command { callback, writes: has(b"write"), is_asked: has(b"getkeys-api") };
    assert!(with(|state| state.commands.insert(name, command)).is_none());
    OK
}

unsafe extern "C" fn get_command(_ctx: *mut raw::RedisModuleCtx, name: *const c_char) -> *mut raw::RedisModuleCommand {
    // SAFETY: a text of the module's.
    let name = unsafe { bytes(name) };
    with(|state| state.commands.get_mut(&name).map_or(ptr::null_mut(), |command| ptr::from_mut(command).cast()))
}

unsafe extern "C" fn set_command_acl_categories(_: *mut raw::RedisModuleCommand, _: *const c_char) -> c_int {
    OK
}

unsafe extern "C" fn set_command_info(
    _command: *mut raw::RedisModuleCommand,
    info: *const raw::RedisModuleCommandInfo,
) -> c_int {
    // SAFETY: a list that ends with an argument without a name.
    unsafe fn count(arguments: *const raw::RedisModuleCommandArg) -> usize {
        // SAFETY: the list does not end before that.
        let named =
            (0..).map(|index| unsafe { &*arguments.add(index) }).take_while(|argument| !argument.name.is_null());
        // SAFETY: where there are others below, they are such a list.
        named.map(|argument| 1 + if argument.subargs.is_null() { 0 } else { unsafe { count(argument.subargs) } }).sum()
    }
    // SAFETY: the module's description of a command, whose arguments are such a list.
    assert!(unsafe { count((*info).args) } > 0);
    OK
}

unsafe extern "C" fn create_data_type(
    _ctx: *mut raw::RedisModuleCtx,
    _name: *const c_char,
    version: c_int,
    methods: *mut raw::RedisModuleTypeMethods,
) -> *mut raw::RedisModuleType {
    // SAFETY: the module's callbacks.
    let methods = unsafe { *methods };
    with(|state| {
        state.types.push(DataType { version, methods });
        handle(state.types.len() - 1)
    })
}

/// What the module knows a data type by: an address that nothing is at.
fn handle(data_type: usize) -> *mut raw::RedisModuleType {
    ptr::without_provenance_mut(data_type + 1)
}

unsafe extern "C" fn register_command_filter(
    _ctx: *mut raw::RedisModuleCtx,
    filter: raw::RedisModuleCommandFilterFunc,
    _flags: c_int,
) -> *mut raw::RedisModuleCommandFilter {
    with(|state| state.filters.push(filter.expect("a callback")));
    ptr::without_provenance_mut(1)
}

unsafe extern "C" fn register_string_config(
    _ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    _default: *const c_char,
    _flags: c_uint,
    get: raw::RedisModuleConfigGetStringFunc,
    set: raw::RedisModuleConfigSetStringFunc,
    _apply: raw::RedisModuleConfigApplyFunc,
    _private: *mut c_void,
) -> c_int {
    register(name, Setting::Text(get, set))
}

unsafe extern "C" fn register_numeric_config(
    _ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    default: c_longlong,
    _flags: c_uint,
    least: c_longlong,
    most: c_longlong,
    get: raw::RedisModuleConfigGetNumericFunc,
    set: raw::RedisModuleConfigSetNumericFunc,
    _apply: raw::RedisModuleConfigApplyFunc,
    private: *mut c_void,
) -> c_int {
    assert!((least..=most).contains(&default));
    register(name, Setting::Number(get, set, private, least..=most))
}

unsafe extern "C" fn register_enum_config(
    _ctx: *mut raw::RedisModuleCtx,
    name: *const c_char,
    _default: c_int,
    _flags: c_uint,
    names: *mut *const c_char,
    values: *const c_int,
    count: c_int,
    get: raw::RedisModuleConfigGetEnumFunc,
    set: raw::RedisModuleConfigSetEnumFunc,
    _apply: raw::RedisModuleConfigApplyFunc,
    private: *mut c_void,
) -> c_int {
    // SAFETY: as many names and values.
    let choices = (0..count as usize).map(|index| unsafe { (bytes(*names.add(index)), *values.add(index)) });
    register(name, Setting::Choice(get, set, private, choices.collect()))
}

fn register(name: *const c_char, setting: Setting) -> c_int {
    // SAFETY: a text of the module's.
    let name = unsafe { bytes(name) };
    assert!(with(|state| state.settings.insert(name, setting)).is_none());
    OK
}

unsafe extern "C" fn load_configs(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    OK
}

// Memory. All of it is the system's, which the module has before it is loaded.

unsafe extern "C" fn alloc(bytes: usize) -> *mut c_void {
    // SAFETY: any size will do.
    unsafe { libc::malloc(bytes) }
}

unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: any size will do.
    unsafe { libc::calloc(count, size) }
}

unsafe extern "C" fn try_calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: any size will do.
    if POOR.get() { ptr::null_mut() } else { unsafe { libc::calloc(count, size) } }
}

unsafe extern "C" fn realloc(old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: what was allocated here.
    unsafe { libc::realloc(old, bytes) }
}

unsafe extern "C" fn free(old: *mut c_void) {
    // SAFETY: what was allocated here.
    unsafe { libc::free(old) }
}

/// Moves two of three.
unsafe extern "C" fn defrag_alloc(_ctx: *mut raw::RedisModuleDefragCtx, old: *mut c_void) -> *mut c_void {
    let stays = with(|state| {
        state.moves += 1;
        state.moves % 3 == 0
    });
    if stays {
        return ptr::null_mut();
    }
    // SAFETY: what was allocated here, which is copied as far as it goes, and given back.
    unsafe {
        let size = libc::malloc_usable_size(old);
        let moved = libc::malloc(size);
        moved.cast::<u8>().copy_from_nonoverlapping(old.cast(), size);
        libc::free(old);
        moved
    }
}

// Strings.

unsafe extern "C" fn create_string(
    _ctx: *mut raw::RedisModuleCtx,
    start: *const c_char,
    length: usize,
) -> *mut raw::RedisModuleString {
    with(|state| state.strings += 1);
    // SAFETY: as many bytes.
    let copy: Box<[u8]> = unsafe { buffer(start, length) }.into();
    Box::into_raw(Box::new(copy)).cast()
}

extern "C" fn free_string(_ctx: *mut raw::RedisModuleCtx, string: *mut raw::RedisModuleString) {
    with(|state| state.strings = state.strings.saturating_sub(1));
    // SAFETY: a string that was created, and is used no more.
    drop(unsafe { Box::from_raw(string.cast::<Box<[u8]>>()) });
}

unsafe extern "C" fn string_ptr_len(string: *const raw::RedisModuleString, length: *mut usize) -> *const c_char {
    // SAFETY: a string that was handed out, and a place for its length.
    unsafe {
        *length = text(string).len();
        text(string).as_ptr().cast()
    }
}

unsafe extern "C" fn string_to_long_long(string: *const raw::RedisModuleString, place: *mut c_longlong) -> c_int {
    // SAFETY: a string that was handed out.
    let Some(number) = whole_number(unsafe { text(string) }) else { return ERR };
    // SAFETY: a place for the number.
    unsafe { *place = number };
    OK
}

unsafe extern "C" fn string_to_double(string: *const raw::RedisModuleString, place: *mut f64) -> c_int {
    // SAFETY: a string that was handed out.
    let Some(number) = number(unsafe { text(string) }) else { return ERR };
    // SAFETY: a place for the number.
    unsafe { *place = number };
    OK
}

unsafe extern "C" fn command_filter_args_count(command: *mut raw::RedisModuleCommandFilterCtx) -> c_int {
    // SAFETY: what a command filter was called with.
    unsafe { &*command.cast::<Strings>() }.0.len() as c_int
}

unsafe extern "C" fn command_filter_arg_get(
    command: *mut raw::RedisModuleCommandFilterCtx,
    position: c_int,
) -> *mut raw::RedisModuleString {
    // SAFETY: what a command filter was called with.
    unsafe { &*command.cast::<Strings>() }.0[position as usize]
}

// What a command knows of the server.

unsafe extern "C" fn get_context_flags(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    with(|state| state.call.circumstances.flags) as c_int
}

unsafe extern "C" fn get_random_bytes(start: *mut c_uchar, length: usize) {
    let seed = with(|state| {
        state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.random
    });
    // SAFETY: a place for as many bytes.
    (0..length).for_each(|index| unsafe { *start.add(index) = seed.to_le_bytes()[index % 8] });
}

/// With this limit, a full server has a KiB left.
const MAXMEMORY: c_ulonglong = 1 << 20;

unsafe extern "C" fn get_used_memory_ratio() -> f32 {
    let is_full = with(|state| state.call.circumstances.full);
    if is_full { 1023.0 / 1024.0 } else { 0.0 }
}

unsafe extern "C" fn get_server_info(
    _ctx: *mut raw::RedisModuleCtx,
    section: *const c_char,
) -> *mut raw::RedisModuleServerInfoData {
    // SAFETY: a text of the module's.
    assert_eq!(unsafe { bytes(section) }, b"memory");
    with(|state| state.keys += 1);
    ptr::without_provenance_mut(1)
}

unsafe extern "C" fn server_info_get_field_unsigned(
    _info: *mut raw::RedisModuleServerInfoData,
    field: *const c_char,
    status: *mut c_int,
) -> c_ulonglong {
    // SAFETY: a text of the module's, and a place for the status.
    unsafe {
        assert_eq!(bytes(field), b"maxmemory");
        *status = OK;
    }
    MAXMEMORY
}

unsafe extern "C" fn register_info_func(_ctx: *mut raw::RedisModuleCtx, show: raw::RedisModuleInfoFunc) -> c_int {
    with(|state| state.info = show);
    OK
}

unsafe extern "C" fn info_add_section(_info: *mut raw::RedisModuleInfoCtx, _name: *const c_char) -> c_int {
    with(|state| state.figures.clear());
    OK
}

/// What a dictionary has is not looked at: the sums come first.
unsafe extern "C" fn info_add_field_ulong_long(
    _info: *mut raw::RedisModuleInfoCtx,
    name: *const c_char,
    figure: c_ulonglong,
) -> c_int {
    // SAFETY: a text of the module's.
    let name = String::from_utf8(unsafe { bytes(name) }).expect("a name");
    with(|state| {
        state.figures.entry(name).or_insert(figure);
    });
    OK
}

unsafe extern "C" fn info_add_field_c_string(
    _info: *mut raw::RedisModuleInfoCtx,
    _name: *const c_char,
    text: *const c_char,
) -> c_int {
    // SAFETY: a text of the module's.
    let text = unsafe { bytes(text) };
    assert!(text.iter().all(|byte| !byte.is_ascii_control()), "a value that is more than a line");
    OK
}

unsafe extern "C" fn info_begin_dict_field(_info: *mut raw::RedisModuleInfoCtx, _name: *const c_char) -> c_int {
    OK
}

unsafe extern "C" fn info_end_dict_field(_info: *mut raw::RedisModuleInfoCtx) -> c_int {
    OK
}

/// No server is bound to know it.
unsafe extern "C" fn get_key_name_from_io(_io: *mut raw::RedisModuleIO) -> *const raw::RedisModuleString {
    ptr::null()
}

unsafe extern "C" fn free_server_info(_ctx: *mut raw::RedisModuleCtx, _info: *mut raw::RedisModuleServerInfoData) {
    with(|state| state.keys -= 1);
}

unsafe extern "C" fn log(
    _ctx: *mut raw::RedisModuleCtx,
    level: *const c_char,
    format: *const c_char,
    message: *const c_char,
) {
    // SAFETY: texts of the module's.
    let (level, format, message) = unsafe { (bytes(level), bytes(format), bytes(message)) };
    assert_eq!(format, b"%s");
    let message = String::from_utf8_lossy(&message).into_owned();
    // Or it would end the process, as is right for a replica without memory. Here nothing is asked for that takes so much.
    assert!(!message.contains("internal error") && !message.contains("ending"), "{message}");
    if level == b"warning" {
        with(|state| state.warnings.push(message));
    }
}

// Keys.

unsafe extern "C" fn is_keys_position_request(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    with(|state| state.call.is_request).into()
}

unsafe extern "C" fn key_at_pos(_ctx: *mut raw::RedisModuleCtx, position: c_int) {
    with(|state| {
        assert!(state.call.is_request);
        state.call.keys.insert(position as usize)
    });
}

unsafe extern "C" fn key_at_pos_with_flags(ctx: *mut raw::RedisModuleCtx, position: c_int, _flags: c_int) {
    // SAFETY: as of this function.
    unsafe { key_at_pos(ctx, position) }
}

unsafe extern "C" fn milliseconds() -> raw::mstime_t {
    0
}

/// No client is behind any command.
unsafe extern "C" fn get_client_id(_ctx: *mut raw::RedisModuleCtx) -> c_ulonglong {
    0
}

unsafe extern "C" fn open_key(
    _ctx: *mut raw::RedisModuleCtx,
    name: *mut raw::RedisModuleString,
    mode: c_int,
) -> *mut raw::RedisModuleKey {
    // SAFETY: a string that was handed out.
    let name = unsafe { text(name) };
    let is_writable = mode as u32 & raw::REDISMODULE_WRITE != 0;
    with(|state| {
        let call = &state.call;
        let is_named = call.keys.iter().any(|&position| call.words.get(position).is_some_and(|word| word == name));
        assert!(is_named, "a key that was not named: {name:?}");
        assert!(call.may_write || !is_writable);
        if !is_writable && !state.spaces[call.space].contains_key(name) {
            return ptr::null_mut();
        }
        state.keys += 1;
        Box::into_raw(Box::new(Key { name: name.to_vec(), is_writable })).cast()
    })
}

unsafe extern "C" fn close_key(key: *mut raw::RedisModuleKey) {
    with(|state| state.keys -= 1);
    // SAFETY: an open key, which is used no more.
    drop(unsafe { Box::from_raw(key.cast::<Key>()) });
}

/// Does something with the value of an open key.
fn with_value<T>(key: *mut raw::RedisModuleKey, f: impl FnOnce(Option<&Value>) -> T) -> T {
    // SAFETY: an open key.
    let key = unsafe { &*key.cast::<Key>() };
    with(|state| f(state.spaces[state.call.space].get(&key.name)))
}

unsafe extern "C" fn key_type(key: *mut raw::RedisModuleKey) -> c_int {
    with_value(key, |value| match value {
        None => raw::REDISMODULE_KEYTYPE_EMPTY,
        Some(Value::Text) => raw::REDISMODULE_KEYTYPE_STRING,
        Some(Value::Module(..)) => raw::REDISMODULE_KEYTYPE_MODULE,
    }) as c_int
}

unsafe extern "C" fn module_type_get_type(key: *mut raw::RedisModuleKey) -> *mut raw::RedisModuleType {
    with_value(key, |value| if let Some(Value::Module(number, _)) = value { handle(*number) } else { ptr::null_mut() })
}

unsafe extern "C" fn module_type_get_value(key: *mut raw::RedisModuleKey) -> *mut c_void {
    with_value(key, |value| if let Some(Value::Module(_, value)) = value { *value } else { ptr::null_mut() })
}

unsafe extern "C" fn module_type_set_value(
    key: *mut raw::RedisModuleKey,
    data_type: *mut raw::RedisModuleType,
    value: *mut c_void,
) -> c_int {
    // SAFETY: an open key.
    let key = unsafe { &*key.cast::<Key>() };
    assert!(key.is_writable && !value.is_null());
    let before = with(|state| {
        let value = Value::Module(data_type.addr() - 1, value);
        state.spaces[state.call.space].insert(key.name.clone(), value)
    });
    if let Some(Value::Module(number, before)) = before {
        let free = with(|state| state.types[number].methods.free).expect("a callback");
        // SAFETY: one of the module's values, which is used no more.
        unsafe { free(before) };
    }
    raise_event(&key.name);
    OK
}

// What a command does besides.

unsafe extern "C" fn signal_modified_key(_ctx: *mut raw::RedisModuleCtx, name: *mut raw::RedisModuleString) -> c_int {
    // SAFETY: a string that was handed out.
    let name = unsafe { text(name) }.to_vec();
    with(|state| {
        assert_eq!(state.keys, 0, "listeners may do anything, to open keys as well");
        state.call.signalled.insert(name);
    });
    OK
}

unsafe extern "C" fn notify_keyspace_event(
    _ctx: *mut raw::RedisModuleCtx,
    _kind: c_int,
    _event: *const c_char,
    name: *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: a string that was handed out.
    let name = unsafe { text(name) };
    assert!(with(|state| state.call.signalled.contains(name)));
    raise_event(name);
    OK
}

unsafe extern "C" fn replicate(
    _ctx: *mut raw::RedisModuleCtx,
    command: *const c_char,
    format: *const c_char,
    key: *mut raw::RedisModuleString,
    arguments: *const *mut raw::RedisModuleString,
    count: usize,
) -> c_int {
    // SAFETY: texts of the module's, a string that was handed out, and as many more.
    let words = unsafe {
        assert_eq!(bytes(format), b"sv");
        let arguments = (0..count).map(|index| text(*arguments.add(index)).to_vec());
        [bytes(command), text(key).to_vec()].into_iter().chain(arguments).collect()
    };
    with(|state| state.call.replicated.push(words));
    OK
}

unsafe extern "C" fn replicate_verbatim(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    with(|state| {
        let words = state.call.words.clone();
        state.call.replicated.push(words);
    });
    OK
}

// Replies.

fn reply(part: Part) -> c_int {
    with(|state| {
        assert!(!state.call.is_request);
        state.call.parts.push(part);
    });
    OK
}

unsafe extern "C" fn wrong_arity(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    reply(Part::Whole(Reply::Error(b"ERR wrong number of arguments".to_vec())))
}

unsafe extern "C" fn reply_with_error(_ctx: *mut raw::RedisModuleCtx, error: *const c_char) -> c_int {
    // SAFETY: a text of the module's.
    let error = unsafe { bytes(error) };
    assert!(error != b"ERR internal error");
    reply(Part::Whole(Reply::Error(error)))
}

unsafe extern "C" fn reply_with_simple_string(_ctx: *mut raw::RedisModuleCtx, simple: *const c_char) -> c_int {
    // SAFETY: a text of the module's.
    reply(Part::Whole(Reply::Simple(unsafe { bytes(simple) })))
}

unsafe extern "C" fn reply_with_string_buffer(
    _ctx: *mut raw::RedisModuleCtx,
    start: *const c_char,
    length: usize,
) -> c_int {
    // SAFETY: as many bytes.
    reply(Part::Whole(Reply::Bulk(unsafe { buffer(start, length) }.to_vec())))
}

unsafe extern "C" fn reply_with_long_long(_ctx: *mut raw::RedisModuleCtx, number: c_longlong) -> c_int {
    reply(Part::Whole(Reply::Integer(number)))
}

unsafe extern "C" fn reply_with_bool(_ctx: *mut raw::RedisModuleCtx, yes: c_int) -> c_int {
    assert!((0..=1).contains(&yes));
    reply(Part::Whole(Reply::Integer(yes.into())))
}

unsafe extern "C" fn reply_with_double(_ctx: *mut raw::RedisModuleCtx, number: f64) -> c_int {
    assert!(number.is_finite());
    reply(Part::Whole(Reply::Double(number)))
}

unsafe extern "C" fn reply_with_null(_ctx: *mut raw::RedisModuleCtx) -> c_int {
    reply(Part::Whole(Reply::Null))
}

unsafe extern "C" fn reply_with_array(_ctx: *mut raw::RedisModuleCtx, length: c_long) -> c_int {
    reply(Part::Array(usize::try_from(length).expect("a length")))
}

unsafe extern "C" fn reply_with_map(_ctx: *mut raw::RedisModuleCtx, length: c_long) -> c_int {
    reply(Part::Map(usize::try_from(length).expect("a length")))
}

// Files, and digests.

/// # Safety
///
/// It must be what a callback was called with.
unsafe fn stream<'a>(io: *mut raw::RedisModuleIO) -> &'a mut Stream<'a> {
    // SAFETY: as promised by the caller.
    unsafe { &mut *io.cast() }
}

unsafe extern "C" fn is_io_error(io: *mut raw::RedisModuleIO) -> c_int {
    // SAFETY: what a callback was called with.
    unsafe { stream(io) }.failed.into()
}

unsafe extern "C" fn load_unsigned(io: *mut raw::RedisModuleIO) -> u64 {
    // SAFETY: what a callback was called with.
    let stream = unsafe { stream(io) };
    let read = stream.rest.unsigned();
    stream.check(read).unwrap_or(0)
}

unsafe extern "C" fn load_double(io: *mut raw::RedisModuleIO) -> f64 {
    // SAFETY: what a callback was called with.
    let stream = unsafe { stream(io) };
    let read = stream.rest.double();
    stream.check(read).unwrap_or(0.0)
}

unsafe extern "C" fn load_string_buffer(io: *mut raw::RedisModuleIO, length: *mut usize) -> *mut c_char {
    // SAFETY: what a callback was called with.
    let stream = unsafe { stream(io) };
    let read = stream.rest.string();
    let Some(string) = stream.check(read) else { return ptr::null_mut() };
    // SAFETY: a place for the length, and a new allocation of as many bytes.
    unsafe {
        *length = string.len();
        let copy = libc::malloc(string.len().max(1));
        copy.cast::<u8>().copy_from_nonoverlapping(string.as_ptr(), string.len());
        copy.cast()
    }
}

unsafe extern "C" fn save_unsigned(io: *mut raw::RedisModuleIO, number: u64) {
    // SAFETY: what a callback was called with.
    unsafe { stream(io) }.written.unsigned(number);
}

unsafe extern "C" fn save_double(io: *mut raw::RedisModuleIO, number: f64) {
    // SAFETY: what a callback was called with.
    unsafe { stream(io) }.written.double(number);
}

unsafe extern "C" fn save_string_buffer(io: *mut raw::RedisModuleIO, start: *const c_char, length: usize) {
    // SAFETY: what a callback was called with, and as many bytes.
    unsafe { stream(io).written.string(buffer(start, length)) };
}

unsafe extern "C" fn emit_aof(
    io: *mut raw::RedisModuleIO,
    command: *const c_char,
    format: *const c_char,
    key: *mut raw::RedisModuleString,
    number: c_longlong,
    start: *const c_char,
    length: usize,
) {
    // SAFETY: what a callback was called with, texts of the module's, a string that was handed out, and as many bytes.
    unsafe {
        assert_eq!(bytes(format), b"slb");
        let number = number.to_string().into_bytes();
        stream(io).commands.push(vec![bytes(command), text(key).to_vec(), number, buffer(start, length).to_vec()]);
    }
}

unsafe extern "C" fn digest_add_string_buffer(
    digest: *mut raw::RedisModuleDigest,
    start: *const c_char,
    length: usize,
) {
    // SAFETY: the digest that a callback was called with, and as many bytes.
    unsafe { (*digest.cast::<Vec<u8>>()).extend_from_slice(buffer(start, length)) };
}

unsafe extern "C" fn digest_end_sequence(_digest: *mut raw::RedisModuleDigest) {}
