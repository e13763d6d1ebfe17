//! Loading the module: everything that is registered with the server, in order.

use std::ffi::c_int;

use redis_module::raw;

use super::args::Args;
use super::commands;
use super::config;
use super::context::Context;
use super::edge::call;
use super::{command, datatype, feature, stats};

/// Registers everything. What went wrong, if anything did.
pub fn load(ctx: &Context, args: Args) -> Result<(), String> {
    config::read_arguments(ctx, args)?;
    call!(RedisModule_SetModuleOptions(ctx.as_raw(), options()));
    if !datatype::register(ctx) {
        return Err("the server refused the data types".to_owned());
    }
    command::register(ctx, commands::TABLE).map_err(|name| format!("the server refused {}", name.to_string_lossy()))?;
    if !stats::register(ctx) {
        return Err("the server refused the section of INFO".to_owned());
    }
    if feature::CONFIG.is_offered() && !config::register(ctx) {
        return Err("the server refused the configuration".to_owned());
    }
    let version = env!("CARGO_PKG_VERSION");
    let settings = config::describe();
    ctx.log_notice(&format!(
        "oxbloom {version} loaded as 'bf', so that RedisBloom or valkey-bloom cannot be loaded as well: {settings}"
    ));
    if let Some(lacking) = feature::lacking() {
        ctx.log_notice(&format!("this server lacks, and oxbloom does without: {lacking}"));
    }
    Ok(())
}

/// What the server may take for granted.
///
/// - A load that fails half-way leaves nothing behind.
/// - While a replica loads its master's filters it may go on answering from its own.
/// - The keys of a slot that migrates may come as BF.LOADCHUNK commands, then as what clients write meanwhile, and show when
///   all have come.
///
/// For no filter knows of another, or of its key, and what is kept beside the key space is wrong at none of these times:
/// [`lookahead`] is good for hints only, also when the filters are gone, and [`stats`] follows the values.
///
/// [`lookahead`]: super::lookahead
fn options() -> c_int {
    let everywhere = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    let migration = if feature::SLOT_MIGRATION.is_offered() { feature::HANDLE_ATOMIC_SLOT_MIGRATION } else { 0 };
    everywhere as c_int | migration
}
