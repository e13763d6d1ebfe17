//! Loading the module: everything that is registered with the server, in order.

use std::ffi::c_int;

use redis_module::raw;

use crate::commands;
use crate::configuration;
use crate::datatype;
use crate::ffi::call;
use crate::info_section;
use crate::server::{Args, Context, feature};

/// Registers everything. An error says what went wrong.
pub(crate) fn register_all(ctx: &Context, args: Args) -> Result<(), String> {
    configuration::read_arguments(ctx, args)?;
    // SAFETY: the context is alive, and the module keeps what the options promise.
    unsafe { call!(RedisModule_SetModuleOptions(ctx.as_raw(), options())) };
    if !datatype::register(ctx) {
        return Err("the server refused the data types".to_owned());
    }
    commands::register_all(ctx).map_err(|name| format!("the server refused {}", name.to_string_lossy()))?;
    if !info_section::register(ctx) {
        return Err("the server refused the section of INFO".to_owned());
    }
    if !configuration::register(ctx) {
        return Err("the server refused the configuration".to_owned());
    }
    let version = env!("CARGO_PKG_VERSION");
    let settings = configuration::describe();
    ctx.log_notice(&format!(
        "oxbloom {version} loaded as 'bf', so that RedisBloom or valkey-bloom cannot be loaded as well: {settings}"
    ));
    if let Some(missing) = feature::missing_features() {
        ctx.log_notice(&format!("this server lacks, and oxbloom does without: {missing}"));
    }
    Ok(())
}

/// Returns what the module promises to the server.
///
/// - A load that fails half-way leaves nothing behind.
/// - While a replica loads its master's filters it may go on answering from its own.
/// - The keys of a slot that migrates may come as BF.LOADCHUNK commands, then as what clients write in that time, and
///   show when all have come.
///
/// This holds because no filter knows of another, or of its key. And what is kept beside the key space is wrong at none
/// of these times: [`lookahead`] is good for hints only, also when the filters are gone, and [`statistics`] follows the
/// values.
///
/// [`lookahead`]: crate::lookahead
/// [`statistics`]: crate::statistics
fn options() -> c_int {
    let everywhere = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    let migration = if feature::SLOT_MIGRATION.is_offered() { feature::HANDLE_ATOMIC_SLOT_MIGRATION } else { 0 };
    everywhere as c_int | migration
}
