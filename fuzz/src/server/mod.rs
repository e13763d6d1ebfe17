//! A mock server: as much of one as the module sees, so that the whole module runs in one process, without a socket.
//!
//! It calls the module as a server does, and checks what the module does in return: each key that is opened must be one that
//! the command names, and is closed again; what is created is freed; a reply is whole; nothing panics. When a key is created,
//! is not there, or has expired, it calls a listener that reads the key through the module again, as another module may.
//!
//! ```text
//!  run(space, words) ── callback ──► module ── OpenKey, ReplyWith…, Replicate ──► STATE ──► Outcome
//! ```
//!
//! There is one for the process, since the module keeps the server's functions in statics; it is for one thread.
//!
//! The functions trust what the module passes to them, as a server does: pointers are those that were handed out, texts end
//! with a NUL, and buffers are as long as they are said to be.
//!
//! COMMAND DOCS and ACL categories are not offered: nothing that commands do depends on them, and the integration tests
//! compare them with what real servers show.

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
use keys::Value;
use registration::{Command, DataType};
use replies::Part;
use strings::Strings;

pub(crate) use configuration::{configure, configured};
pub(crate) use information::check_figures;
pub(crate) use keys::{
    copy, delete, delete_expired, digest, expire, expire_time, flush, growth, keys, rename, set_expire_time, set_text,
};
pub(crate) use memory::defragment;
pub(crate) use rdb::{restore, rewrite, save};
pub(crate) use replies::Reply;
pub(crate) use strings::whole_number;

/// The words of a command.
pub(crate) type Words = Vec<Vec<u8>>;

/// Which functions the server has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// As Redis 6.2.
    Old,
    /// As Redis 8.
    New,
}

/// In what state a command finds the server, and for whom it runs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Circumstances {
    /// `REDISMODULE_CTX_FLAGS_…`
    pub flags: u32,
    /// Zeroed memory cannot be had.
    pub poor: bool,
    /// As much of `maxmemory` is used as there is, but for a KiB.
    pub full: bool,
}

/// What came of a command.
pub(crate) struct Outcome {
    pub reply: Reply,
    /// What replicas and the append-only file get.
    pub replicated: Vec<Words>,
    /// The keys that are said to have changed.
    pub signalled: BTreeSet<Vec<u8>>,
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
    /// How many strings and open keys the module has to give back.
    strings: usize,
    open_keys: usize,
    parts: Vec<Part>,
    replicated: Vec<Words>,
    signalled: BTreeSet<Vec<u8>>,
}

/// The key spaces: that of the server, and those of others that follow it.
pub(crate) const SPACES: usize = 3;

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
    /// Keys that are deleted as soon as the module opens them, by space.
    expired: BTreeSet<(usize, Vec<u8>)>,
    /// When keys expire, by space. No time passes here.
    expire_times: BTreeMap<(usize, Vec<u8>), i64>,
    /// Whether the listener runs, which is not told of what it causes itself.
    is_listening: bool,
    random: u64,
    moves: u64,
    /// Where the next call to defragment a value goes on.
    cursor: u64,
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
pub(crate) fn load(age: Age, arguments: &[Vec<u8>]) -> Result<(), String> {
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
pub(crate) fn run(space: usize, words: &[Vec<u8>], circumstances: Circumstances) -> Option<Outcome> {
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
    with(|state| {
        let Call { strings, open_keys, .. } = state.call;
        assert_eq!((open_keys, strings), (0, 0), "keys and strings that were not given back");
        std::mem::take(&mut state.warnings)
    })
}

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;
