//! A mock server: it implements the part of a server that the module sees, so that the whole module runs in one
//! process, without a socket.
//!
//! It calls the module as a server does, and checks the module's calls: the module opens only keys that the command
//! names, closes them again, frees what it creates, completes each reply, and never panics. When a key is created, is
//! missing, or has expired, the mock calls a listener that reads the key through the module again, as another module
//! may do.
//!
//! ```text
//!  run(instance, words) ── callback ──► module ── OpenKey, ReplyWith…, Replicate ──► STATE ──► Outcome
//! ```
//!
//! A process has one mock server, since the module stores the server's functions in statics. It supports one thread.
//!
//! Its functions trust the module's arguments, as a server does: pointers come from the mock, texts end with a NUL, and
//! buffers have the given length.
//!
//! The mock does not offer COMMAND DOCS and ACL categories: no command depends on them, and the integration tests check
//! them on real servers.

mod api;
mod configuration;
mod events;
mod information;
mod keys;
mod memory;
mod rdb;
mod registration;
mod replication;
mod replies;
mod strings;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::ptr;

use oxbloom::RedisModule_OnLoad;
use redis_module::raw;

use api::context;
use configuration::Setting;
use keys::Instance;
use registration::{Command, DataType};
use replies::Part;
use strings::Strings;

pub(crate) use configuration::{configure, configured};
pub(crate) use information::check_figures;
pub(crate) use keys::{
    CLASSIC, CUCKOO, NATIVE, NATIVE_CUCKOO, VALKEY, copy, copy_of, data_type, delete, delete_expired, digest, expire,
    expire_time, flush, growth, is_cuckoo, keys, rename, rolls, set_clock, set_expire_time, set_text,
};
pub(crate) use memory::defragment;
pub(crate) use rdb::{restore, rewrite, save};
pub(crate) use replication::apply;
pub(crate) use replies::Reply;
pub(crate) use strings::whole_number;

/// The arguments of a command, its name first.
pub(crate) type Words = Vec<Vec<u8>>;

/// The age of the server, which determines the functions that it offers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// The functions of Redis 6.2.
    Old,
    /// The functions of Redis 8.
    New,
}

/// The state of the server and of the client for which a command runs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Circumstances {
    /// `REDISMODULE_CTX_FLAGS_…`
    pub flags: u32,
    /// True if zeroed memory cannot be allocated.
    pub out_of_memory: bool,
    /// True if one KiB is left under `maxmemory`.
    pub full: bool,
}

/// The outcome of a command.
pub(crate) struct Outcome {
    pub reply: Reply,
    /// The commands for replicas and the append-only file.
    pub replicated: Vec<Words>,
    /// The keys that the module signalled as changed.
    pub signalled: BTreeSet<Vec<u8>>,
}

/// The running command.
#[derive(Default)]
struct Call {
    circumstances: Circumstances,
    instance: usize,
    words: Words,
    /// The positions of the keys that the module may open.
    keys: BTreeSet<usize>,
    /// True if the command is only called for the positions of its keys.
    is_request: bool,
    may_write: bool,
    /// The number of strings that the module must free.
    strings: usize,
    /// The number of keys that the module must close.
    open_keys: usize,
    parts: Vec<Part>,
    replicated: Vec<Words>,
    signalled: BTreeSet<Vec<u8>>,
}

/// The number of instances: servers with keys and a clock of their own. All of them run the same module.
pub(crate) const INSTANCES: usize = 3;

#[derive(Default)]
struct State {
    commands: BTreeMap<Vec<u8>, Command>,
    types: Vec<DataType>,
    settings: BTreeMap<Vec<u8>, Setting>,
    /// The command filters, which are never removed: the module always looks ahead.
    filters: Vec<unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx)>,
    instances: [Instance; INSTANCES],
    call: Call,
    warnings: Vec<String>,
    /// The module's callback for INFO.
    info: Option<unsafe extern "C" fn(*mut raw::RedisModuleInfoCtx, c_int)>,
    figures: BTreeMap<String, u64>,
    /// True while the listener runs. It does not get the events that it causes itself.
    is_listening: bool,
    random: u64,
    moves: u64,
    /// The position at which the next call to defragment a value continues.
    cursor: u64,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
    static AGE: Cell<Age> = const { Cell::new(Age::New) };
    /// True if zeroed memory cannot be allocated.
    static OUT_OF_MEMORY: Cell<bool> = const { Cell::new(false) };
}

fn with<T>(f: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(f)
}

/// Loads the module again, with the arguments of `loadmodule`. Returns its log if it fails to load.
pub(crate) fn load(age: Age, arguments: &[Vec<u8>]) -> Result<(), String> {
    (0..INSTANCES).for_each(flush);
    with(|state| *state = State { filters: std::mem::take(&mut state.filters), ..State::default() });
    AGE.set(age);
    let strings = Strings::new(arguments);
    // SAFETY: the context and this number of strings outlive the call.
    let status = unsafe { RedisModule_OnLoad(context(), strings.0.as_ptr().cast_mut(), strings.0.len() as c_int) };
    drop(strings);
    let warnings = check_leaks();
    if status == OK { Ok(()) } else { Err(warnings.join("\n")) }
}

/// Runs a command of the module. Returns `None` if it has no command of this name.
pub(crate) fn run(instance: usize, words: &[Vec<u8>], circumstances: Circumstances) -> Option<Outcome> {
    let name = words.first()?.to_ascii_lowercase();
    let command = with(|state| state.commands.get(&name).copied())?;
    let strings = Strings::new(words);
    let filters = with(|state| state.filters.clone());
    // SAFETY: the strings outlive the call.
    filters.iter().for_each(|filter| unsafe { filter(ptr::from_ref(&strings).cast_mut().cast()) });
    let call = Call { circumstances, instance, words: words.to_vec(), is_request: true, ..Call::default() };
    with(|state| state.call = call);
    if command.reports_keys {
        command.call(&strings);
    }
    with(|state| {
        let call = &mut state.call;
        call.is_request = false;
        call.may_write = command.writes;
        if !command.reports_keys {
            call.keys.insert(1);
        }
        assert!(!command.reports_keys || call.keys.iter().all(|&position| position < call.words.len()));
    });
    command.call(&strings);
    drop(strings);
    check_leaks();
    let Call { parts, replicated, signalled, .. } = with(|state| std::mem::take(&mut state.call));
    let mut parts = parts.into_iter();
    let reply = Reply::of(&mut parts);
    assert!(parts.next().is_none(), "more than one reply to {words:?}");
    assert!(command.writes || replicated.is_empty() && signalled.is_empty());
    Some(Outcome { reply, replicated, signalled })
}

impl Command {
    fn call(self, strings: &Strings) {
        // SAFETY: the context and this number of strings outlive the call.
        let status = call_module(|| unsafe {
            (self.callback)(context(), strings.0.as_ptr().cast_mut(), strings.0.len() as c_int)
        });
        assert_eq!(status, OK);
    }
}

/// Calls the module, without memory if the circumstances say so.
fn call_module<T>(call: impl FnOnce() -> T) -> T {
    OUT_OF_MEMORY.set(with(|state| state.call.circumstances.out_of_memory));
    let value = call();
    OUT_OF_MEMORY.set(false);
    value
}

/// Panics if the module leaked keys or strings. Returns its warnings.
fn check_leaks() -> Vec<String> {
    with(|state| {
        let Call { strings, open_keys, .. } = state.call;
        assert_eq!((open_keys, strings), (0, 0), "the module leaked keys or strings");
        std::mem::take(&mut state.warnings)
    })
}

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;
