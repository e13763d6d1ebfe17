//! oxbloom: Bloom filters for Redis and Valkey.
//!
//! The module is thin: it parses arguments, replies, replicates and persists. The filters are in [`oxbloom_filter`].
//!
//! Each module uses only those below it:
//!
//! ```text
//!  events                                   what follows the server's events
//!  commands/                                the commands
//!  filter_key                               keys that hold filters
//!  datatype     info_section                callbacks of the data types; the section of INFO
//!  written_prefix                           compares the prefix of data that are loaded with ours
//!  admission    lookahead                   decides whether a filter may take more memory; prefetches before a command
//!  changes                                  the last changes of filters that clients follow
//!  configuration/                           the settings: how they are given, and those of each family
//!  callback                                 guards every call from C: panics, arity, safe wrappers
//!  rejection                                rejected commands, for the log and INFO
//!  server/      statistics                  safe wrappers over the C API; the figures of INFO
//!  allocation   reply_error                 the global allocator; the errors that clients get
//!  names        family                      the names of the module and of its commands
//!  ffi                                      calls into C
//! ```

mod admission;
mod allocation;
mod callback;
mod changes;
mod commands;
mod configuration;
mod datatype;
mod events;
mod family;
mod ffi;
mod filter_key;
mod info_section;
mod lookahead;
mod names;
mod rejection;
mod reply_error;
mod server;
mod statistics;
mod written_prefix;

use std::ffi::c_int;

use redis_module::raw;

use callback::catch_panic;
use ffi::{FAILED, OK, RawContext, RawString, call};
use names::{Names, named};
use server::{Args, Context, feature};

/// The global allocator: the server's if the module is loaded into a server, otherwise the system's.
#[global_allocator]
static ALLOCATOR: allocation::ServerAlloc = allocation::ServerAlloc;

/// The version that MODULE LIST shows, as 10000 * major + 100 * minor + patch. It is that of RedisBloom 2.8.2, whose
/// commands the module has: clients use it to decide which commands they can send. INFO shows our own version.
const VERSION: c_int = 20_802;

/// Loads the module.
///
/// # Safety
///
/// Only the server may call this, with a context and `argc` arguments that live for the time of the call.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: RawContext, argv: *mut RawString, argc: c_int) -> c_int {
    // SAFETY: the context is the server's. This fills the table of functions. Nothing before it may call one of them,
    // or allocate.
    let _ = unsafe { raw::Export_RedisModule_InitAPI(ctx) };
    allocation::align_as_server();
    // SAFETY: the server hands over its context and `argc` live strings for the time of the call.
    let (context, args) = unsafe { (Context::new(ctx, &family::BLOOM), Args::new(argv, argc)) };
    catch_panic(c"load", FAILED, || match load(&context, args) {
        Ok(()) => OK,
        Err(reason) => {
            context.log_warning(&format!("not loaded: {reason}"));
            FAILED
        }
    })
}

/// Names the module, and registers everything. Errors are messages for the log.
fn load(context: &Context, args: Args) -> Result<(), String> {
    let names = Names::read(args)?;
    let (module, version) = (names.module.as_ptr(), raw::REDISMODULE_APIVER_1 as c_int);
    // SAFETY: the context is the server's, which copies the name.
    if unsafe { raw::Export_RedisModule_Init(context.as_raw(), module, VERSION, version) } == FAILED {
        return Err(names.taken());
    }
    if names::are_in_use() {
        let module = names::names().module.to_string_lossy();
        return Err(format!("this file is already loaded, as '{module}': a server loads it once"));
    }
    family::spell(&names.prefix);
    names.set();
    register_all(context, args)?;
    names::keep();
    Ok(())
}

/// Registers everything. Errors are messages for the log.
fn register_all(ctx: &Context, args: Args) -> Result<(), String> {
    configuration::read_arguments(args)?;
    // SAFETY: the context is alive, and the module keeps the promises of the options.
    unsafe { call!(RedisModule_SetModuleOptions(ctx.as_raw(), options())) };
    datatype::register(ctx).map_err(|name| {
        let name = name.to_string_lossy();
        format!("the server rejected the data type '{name}': another module has it, load only one of the two")
    })?;
    commands::register_all(ctx).map_err(|name| {
        let name = name.to_string_lossy();
        format!("the server rejected the name '{name}': another module has it, choose another prefix")
    })?;
    if !info_section::register(ctx) {
        return Err("the server rejected the section of INFO".to_owned());
    }
    if !configuration::register(ctx) {
        return Err("the server rejected the configuration, correct the setting that the line above names".to_owned());
    }
    // Last: after a load that fails, servers before 7.2 would still call listeners to their events.
    lookahead::register();
    events::register(ctx);
    let version = env!("CARGO_PKG_VERSION");
    let settings = configuration::describe();
    let meaning = names::names().meaning();
    ctx.log_notice(&format!("oxbloom {version} loaded as {meaning}: {settings}"));
    if let Some(missing) = feature::missing_features() {
        let missing = named(&missing);
        ctx.log_notice(&format!("this server lacks optional features, which are off (nothing to do): {missing}"));
    }
    Ok(())
}

/// Returns the module options, which are promises to the server:
///
/// - A load that fails half-way leaves nothing behind.
/// - While a replica loads its master's filters, it may keep answering from its own.
/// - The keys of a migrating slot may arrive as BF.LOADCHUNK commands, followed by the commands that clients sent in
///   that time, and become visible when all have arrived.
///
/// The module keeps these promises because no filter refers to another filter or to its key. The state outside the key
/// space is never wrong either: [`lookahead`] forgets a filter before it is freed, and [`statistics`]
/// changes together with the values.
fn options() -> c_int {
    let for_all_servers = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    let migration = if feature::SLOT_MIGRATION.is_offered() { feature::HANDLE_ATOMIC_SLOT_MIGRATION } else { 0 };
    for_all_servers as c_int | migration
}
