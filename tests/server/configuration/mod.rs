//! Loading the module, and its settings.
//!
//! - [`arguments`]: settings as arguments of `loadmodule`; [`config`]: in the configuration file, and by CONFIG;
//! - [`defaults`]: the settings that tests read;
//! - [`limit`]: the limit of memory; [`redis_8`]: the names of settings in Redis 8;
//! - [`repeated_loads`]: loading again, next to RedisBloom, and after an error.

mod arguments;
mod config;
pub(crate) mod defaults;
mod limit;
mod redis_8;
mod repeated_loads;
mod valkey_bloom;
