//! Registers everything with the server when it loads the module.

use std::ffi::c_int;

use redis_module::raw;

use crate::commands;
use crate::configuration;
use crate::datatype;
use crate::events;
use crate::ffi::call;
use crate::info_section;
use crate::lookahead;
use crate::names::{named, names};
use crate::server::{Args, Context, feature};

/// Registers everything. Errors are messages for the log.
pub(crate) fn register_all(ctx: &Context, args: Args) -> Result<(), String> {
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
    let meaning = names().meaning();
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
///
/// [`lookahead`]: crate::lookahead
/// [`statistics`]: crate::statistics
fn options() -> c_int {
    let for_all_servers = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    let migration = if feature::SLOT_MIGRATION.is_offered() { feature::HANDLE_ATOMIC_SLOT_MIGRATION } else { 0 };
    for_all_servers as c_int | migration
}
