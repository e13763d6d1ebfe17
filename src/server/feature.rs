//! Optional features: parts of the module API that not every supported server offers.
//!
//! A feature is listed here if users notice that a server lacks it. The code checks [`Feature::is_offered`] before it
//! uses the feature, and docs/versions.md has a row for it in "Servers". A single function that has a substitute is
//! checked where it is called, with [`available!`].

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::ffi::{OK, available, call};

/// Something that a server may offer to modules.
pub(crate) struct Feature {
    /// The name in the log and in docs/versions.md.
    name: &'static str,
    /// The behaviour without the feature, for the log.
    fallback: &'static str,
    is_offered: fn() -> bool,
}

/// Expands to true if the server has all these functions.
macro_rules! has {
    ($($function:ident),+) => { $(available!($function).is_some())&&+ };
}

/// Offered by Redis from 7.0 on.
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

/// Offered by Redis from 8.0 on.
pub(crate) const UNPREFIXED_CONFIG: Feature = Feature {
    name: "settings named bf-… as in Redis 8",
    fallback: "write bf.… and bf.cf-… in redis.conf",
    is_offered: is_redis_8,
};

/// Offered by Redis from 7.0 on.
pub(crate) const COMMAND_INFO: Feature = Feature {
    name: "COMMAND DOCS",
    fallback: "commands are not described",
    is_offered: || has!(RedisModule_GetCommand, RedisModule_SetCommandInfo),
};

/// Offered by Redis from 7.0 on.
pub(crate) const RESP3: Feature = Feature {
    name: "RESP3 booleans and maps",
    fallback: "integers and arrays",
    is_offered: || has!(RedisModule_ReplyWithBool, RedisModule_ReplyWithMap),
};

/// Offered by Redis from 7.4 on.
pub(crate) const ACL_CATEGORIES: Feature = Feature {
    name: "ACL categories",
    fallback: "commands are allowed by name",
    is_offered: || has!(RedisModule_GetCommand, RedisModule_AddACLCategory, RedisModule_SetCommandACLCategories),
};

/// The module option with which a module supports slot migration.
pub(crate) const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// Offered by Valkey from 9.0 on. Valkey only migrates slots if all modules set this option. Redis may give the bit
/// another meaning, so this is false there.
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

/// Not used on Redis 8.4 to 8.10, until 8.4.7, 8.6.7, 8.8.3 and 8.10.2.
pub(crate) const LOOKAHEAD: Feature = Feature {
    name: "bf.lookahead",
    fallback: "large filters are not prefetched",
    is_offered: || is_valkey() || !looks_up_twice(version()),
};

const ALL: [&Feature; 7] =
    [&CONFIG, &UNPREFIXED_CONFIG, &COMMAND_INFO, &RESP3, &ACL_CATEGORIES, &SLOT_MIGRATION, &LOOKAHEAD];

impl Feature {
    #[inline]
    pub(crate) fn is_offered(&self) -> bool {
        (self.is_offered)()
    }
}

/// Returns true on Redis 8 and later.
pub(crate) fn is_redis_8() -> bool {
    version().0 >= 8 && !is_valkey()
}

/// Returns true for versions of Redis that look up every command again while a command filter is registered, also if it
/// changes nothing: from redis#14440 until redis#15673. Versions with odd numbers came before a release.
fn looks_up_twice(version: (c_int, c_int, c_int)) -> bool {
    match version {
        (8, 4 | 6, patch) => patch < 7,
        (8, 8, patch) => patch < 3,
        (8, 10, patch) => patch < 2,
        (8, 3..10, _) => true,
        _ => false,
    }
}

/// Returns the version of the server: 8, 10 and 2 for 8.10.2.
fn version() -> (c_int, c_int, c_int) {
    // SAFETY: it takes no arguments.
    let version = available!(RedisModule_GetServerVersion).map_or(0, |version| unsafe { version() });
    (version >> 16, version >> 8 & 0xff, version & 0xff)
}

/// Returns true on Valkey, which also has the functions under names of its own.
pub(crate) fn is_valkey() -> bool {
    let mut function: *mut c_void = ptr::null_mut();
    let name = c"ValkeyModule_SetModuleOptions".as_ptr();
    // SAFETY: the name ends with a NUL, and the server writes the function's address to a place of ours.
    unsafe { call!(RedisModule_GetApi(name, (&raw mut function).cast())) == OK }
}

/// Lists the features that this server lacks, each with its fallback, for the log. Returns `None` if it lacks none.
pub(crate) fn missing_features() -> Option<String> {
    let missing = ALL.iter().filter(|feature| !feature.is_offered());
    let missing: Vec<_> = missing.map(|feature| format!("{} ({})", feature.name, feature.fallback)).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_filter_is_registered_where_the_server_would_look_up_commands_twice() {
        for twice in [(8, 3, 224), (8, 4, 0), (8, 4, 6), (8, 5, 0), (8, 6, 6), (8, 8, 0), (8, 8, 2), (8, 10, 1)] {
            assert!(looks_up_twice(twice), "{twice:?}");
        }
        for once in
            [(0, 0, 0), (6, 2, 14), (7, 4, 9), (8, 0, 5), (8, 2, 9), (8, 4, 7), (8, 6, 7), (8, 8, 3), (8, 10, 2)]
        {
            assert!(!looks_up_twice(once), "{once:?}");
        }
        assert!(!looks_up_twice((8, 12, 0)) && !looks_up_twice((9, 4, 0)) && !looks_up_twice((255, 255, 255)));
    }
}
