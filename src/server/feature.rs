//! What the module uses that not every supported server offers to modules: one table, which the code asks, and which
//! the log and docs/versions.md show.
//!
//! Whatever users notice when a server lacks it stands here, is asked for with [`Feature::is_offered`] before it is used,
//! and has a row in docs/versions.md, "Servers". A single call that has a substitute is looked up where it is made, with
//! [`available!`].

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::ffi::{OK, available, call};

/// Something that a server may offer to modules.
pub(crate) struct Feature {
    /// The name in the log and in docs/versions.md.
    name: &'static str,
    /// Says what oxbloom does without it.
    fallback: &'static str,
    is_offered: fn() -> bool,
}

/// Expands to true if the server has all these functions.
macro_rules! has {
    ($($function:ident),+) => { $(available!($function).is_some())&&+ };
}

/// From Redis 7.0 on.
pub(crate) const CONFIG: Feature = Feature {
    name: "settings in CONFIG",
    fallback: "only as arguments of loadmodule",
    is_offered: || {
        has!(
            RedisModule_RegisterStringConfig,
            RedisModule_RegisterNumericConfig,
            RedisModule_RegisterEnumConfig,
            RedisModule_LoadConfigs
        )
    },
};

/// From Redis 8.0 on.
pub(crate) const UNPREFIXED_CONFIG: Feature = Feature {
    name: "settings named bf-… as in Redis 8",
    fallback: "write bf.… in redis.conf and leave out cf-…",
    is_offered: is_redis_8,
};

/// From Redis 7.0 on.
pub(crate) const COMMAND_INFO: Feature = Feature {
    name: "COMMAND DOCS",
    fallback: "commands are not described",
    is_offered: || has!(RedisModule_GetCommand, RedisModule_SetCommandInfo),
};

/// From Redis 7.0 on.
pub(crate) const RESP3: Feature = Feature {
    name: "RESP3 booleans and maps",
    fallback: "integers and arrays",
    is_offered: || has!(RedisModule_ReplyWithBool, RedisModule_ReplyWithMap),
};

/// From Redis 7.4 on.
pub(crate) const ACL_CATEGORIES: Feature = Feature {
    name: "ACL categories",
    fallback: "commands are allowed by name",
    is_offered: || has!(RedisModule_GetCommand, RedisModule_AddACLCategory, RedisModule_SetCommandACLCategories),
};

pub(crate) const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// From Valkey 9.0 on, which asks for an option: it refuses to migrate slots unless all modules say that they go along.
/// Redis may come to mean something else by the bit.
pub(crate) const SLOT_MIGRATION: Feature = Feature {
    name: "CLUSTER MIGRATESLOTS",
    fallback: "slots move key by key",
    is_offered: || {
        is_valkey()
            && has!(RedisModule_GetModuleOptionsAll)
            // SAFETY: it takes no arguments.
            && unsafe { call!(RedisModule_GetModuleOptionsAll()) } & HANDLE_ATOMIC_SLOT_MIGRATION != 0
    },
};

const ALL: [&Feature; 6] = [&CONFIG, &UNPREFIXED_CONFIG, &COMMAND_INFO, &RESP3, &ACL_CATEGORIES, &SLOT_MIGRATION];

impl Feature {
    #[inline]
    pub(crate) fn is_offered(&self) -> bool {
        (self.is_offered)()
    }
}

/// Returns true on Redis 8 and later.
pub(crate) fn is_redis_8() -> bool {
    const REDIS_8: c_int = 8 << 16;
    available!(RedisModule_GetServerVersion).is_some()
        // SAFETY: it takes no arguments.
        && unsafe { call!(RedisModule_GetServerVersion()) } >= REDIS_8
        && !is_valkey()
}

/// Returns true on Valkey, which has the functions under its own names, too.
pub(crate) fn is_valkey() -> bool {
    let mut function: *mut c_void = ptr::null_mut();
    let name = c"ValkeyModule_SetModuleOptions".as_ptr();
    // SAFETY: the name ends with a NUL, and the server writes the function's address to a place of ours.
    unsafe { call!(RedisModule_GetApi(name, (&raw mut function).cast())) == OK }
}

/// Lists what this server lacks, and the fallback of each, for the log. `None` if it lacks nothing.
pub(crate) fn missing_features() -> Option<String> {
    let missing = ALL.iter().filter(|feature| !feature.is_offered());
    let missing: Vec<_> = missing.map(|feature| format!("{} ({})", feature.name, feature.fallback)).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}
