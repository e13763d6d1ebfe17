//! Loading the module: everything that is registered with the server, in order.

use super::args::Args;
use super::commands;
use super::config;
use super::context::Context;
use super::edge::{available, call};
use super::{command, datatype};

/// Registers everything. What went wrong, if anything did.
pub fn load(ctx: &Context, args: Args) -> Result<(), String> {
    config::read_arguments(ctx, args)?;
    let options = redis_module::raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | redis_module::raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    call!(RedisModule_SetModuleOptions(ctx.as_raw(), options as i32));
    if !datatype::register(ctx) {
        return Err("the server refused the data types".to_owned());
    }
    command::register(ctx, commands::TABLE).map_err(|name| format!("the server refused {}", name.to_string_lossy()))?;
    if config::is_available() && !config::register(ctx) {
        return Err("the server refused the configuration".to_owned());
    }
    ctx.log_notice(&format!("oxbloom {} loaded: {}", env!("CARGO_PKG_VERSION"), config::describe()));
    let missing = missing_features();
    if !missing.is_empty() {
        ctx.log_notice(&format!("this server lacks, and oxbloom does without: {}", missing.join(", ")));
    }
    Ok(())
}

/// What this server does not offer to modules.
fn missing_features() -> Vec<&'static str> {
    [
        (config::is_available(), "CONFIG for modules (set bf options as loadmodule arguments)"),
        (available!(RedisModule_SetCommandInfo).is_some(), "COMMAND DOCS for modules"),
        (
            available!(RedisModule_SetCommandACLCategories).is_some(),
            "ACL categories for modules (allow commands by name)",
        ),
        (available!(RedisModule_ReplyWithBool).is_some(), "RESP3 replies from modules"),
    ]
    .into_iter()
    .filter_map(|(present, feature)| (!present).then_some(feature))
    .collect()
}
